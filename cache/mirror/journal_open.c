/* The journal's file: opened, checked, set aside when it is damaged, closed. */
#include "cache/mirror/journal.h"
#include "cache/mirror/journal_impl.h"

#include "cache/mirror/door.h"
#include "common/err.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What state.db and its log have of the disk, each, from the first mount on. */
#define ROOM_BYTES (256 << 10)

/* ---- opening ---- */

static const char schema[] =
    "PRAGMA journal_mode=WAL;"
    "PRAGMA synchronous=NORMAL;"
    "PRAGMA wal_autocheckpoint=4000;"
    "CREATE TABLE IF NOT EXISTS intent(seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL,"
    " src BLOB NOT NULL, dst BLOB, ino INTEGER NOT NULL, etag BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS over(seq INTEGER PRIMARY KEY, etag BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS pin(path BLOB PRIMARY KEY) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS upload(key BLOB NOT NULL, began INTEGER NOT NULL,"
    " token BLOB NOT NULL, part_size INTEGER NOT NULL, ino INTEGER NOT NULL,"
    " size INTEGER NOT NULL, mtime INTEGER NOT NULL, attrs INTEGER NOT NULL,"
    " live INTEGER NOT NULL, PRIMARY KEY(key, began)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS put(key BLOB NOT NULL, origin INTEGER NOT NULL,"
    " last INTEGER NOT NULL, PRIMARY KEY(key, origin)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS unit(key BLOB NOT NULL, id BLOB NOT NULL,"
    " how INTEGER NOT NULL, tail BLOB NOT NULL, PRIMARY KEY(key, id)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS wait(since INTEGER PRIMARY KEY, until INTEGER NOT NULL);";

static int check_integrity(sqlite3_stmt *s, void *arg)
{
    const char *text = (const char *)sqlite3_column_text(s, 0);

    (void)arg;
    return text && strcmp(text, "ok") == 0 ? 0 : -EBADMSG;
}

/* Only SQLite's own word makes a database damaged: a lock that somebody holds, a full disk or
 * one that fails for a while are no reason to forget what the store is owed. */
static int why_not(struct journal *j, int r)
{
    int rc = j->db ? sqlite3_errcode(j->db) & 0xff : SQLITE_OK;
    int err = j->db ? sqlite3_system_errno(j->db) : 0;

    if (r != -EIO)
        return r;
    if (rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB)
        return -EBADMSG;
    if (rc == SQLITE_BUSY || rc == SQLITE_LOCKED)
        return -EBUSY;
    return err_is_no_space(-err) ? -ENOSPC : r;
}

static int prepare(struct journal *j, const char *sql, sqlite3_stmt **ret)
{
    return journal_errno(
        sqlite3_prepare_v3(j->db, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL));
}

static int prepare_all(struct journal *j)
{
    int r = prepare(
        j, "INSERT OR REPLACE INTO intent(seq, kind, src, dst, ino, etag) VALUES(?,?,?,?,?,?)",
        &j->insert);

    if (r == 0)
        r = prepare(j, "INSERT OR REPLACE INTO over(seq, etag) VALUES(?,?)", &j->insert_over);
    if (r == 0)
        r = prepare(j, "DELETE FROM intent WHERE seq = ?", &j->remove);
    if (r == 0)
        r = prepare(j, "DELETE FROM over WHERE seq = ?", &j->remove_over);
    if (r == 0)
        r = prepare(j, "UPDATE intent SET etag = ?2 WHERE seq = ?1", &j->tell);
    if (r == 0)
        r = prepare(j, "UPDATE over SET etag = ?2 WHERE seq = ?1", &j->tell_over);
    if (r == 0)
        r = prepare(j, "INSERT OR REPLACE INTO put(key, origin, last) VALUES(?1,?2,?3)",
                    &j->note_put);
    if (r == 0)
        r = prepare(j, "DELETE FROM put WHERE key = ?1 AND origin = ?2 AND last = ?3",
                    &j->forget_put);
    return r;
}

static int has_code(sqlite3_stmt *s, void *arg)
{
    (void)s;
    (void)arg;
    return -EBADMSG;
}

/* A database may hold code that SQLite runs when it is written or read. runfs writes none: a
 * database that has some is not ours, or was changed. */
static int forbid_code(struct journal *j)
{
    static const int off[] = {SQLITE_DBCONFIG_ENABLE_TRIGGER, SQLITE_DBCONFIG_ENABLE_VIEW,
                              SQLITE_DBCONFIG_TRUSTED_SCHEMA,
                              SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION};

    for (size_t i = 0; i < ARRAY_SIZE(off); i++)
        (void)sqlite3_db_config(j->db, off[i], 0, NULL);
    (void)sqlite3_db_config(j->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    int r = journal_run_sql(j, "PRAGMA cell_size_check=ON");
    return r ? r
             : journal_query(j,
                             "SELECT 1 FROM sqlite_master WHERE type NOT IN ('table', 'index')"
                             " OR sql LIKE 'CREATE VIRTUAL%' LIMIT 1",
                             has_code, NULL);
}

/* SQLite opens by name alone, and only looks for symlinks. */
static int check_files(int dir_fd)
{
    static const char *const names[] = {"state.db", "state.db-wal", "state.db-shm",
                                        "state.db-journal"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        auto_close int fd = door_file(dir_fd, names[i], O_RDONLY);
        if (fd < 0 && fd != -ENOENT)
            return fd;
    }
    return 0;
}

/* Whether the path led to the database of this directory. */
static int check_path(int dir_fd, const char *path)
{
    struct stat here, there;

    if (fstatat(dir_fd, "state.db", &here, AT_SYMLINK_NOFOLLOW) < 0 || lstat(path, &there) < 0)
        return -errno;
    return here.st_dev == there.st_dev && here.st_ino == there.st_ino ? 0 : -ESTALE;
}

/* Takes room on the disk while it has some, so that rows can be written when others have filled
 * it: what makes room, as a removal does, needs one. journal.c has the log begin anew in it. */
static void keep_room(struct journal *j, int dir_fd)
{
    int chunk = ROOM_BYTES;
    sqlite3_int64 size = ROOM_BYTES;
    auto_close int log_fd = door_file(dir_fd, "state.db-wal", O_WRONLY);

    if (log_fd >= 0) /* SQLite holds no lock on this one, which a close() would end */
        (void)fallocate(log_fd, FALLOC_FL_KEEP_SIZE, 0, ROOM_BYTES);
    (void)sqlite3_file_control(j->db, "main", SQLITE_FCNTL_CHUNK_SIZE, &chunk);
    (void)sqlite3_file_control(j->db, "main", SQLITE_FCNTL_SIZE_HINT, &size);
}

/* A full disk has none for SQLite's index of the log, which several processes could share. */
static bool index_has_no_room(struct journal *j)
{
    return j->db && sqlite3_extended_errcode(j->db) == SQLITE_IOERR_SHMSIZE;
}

/* -EBADMSG: the database is damaged. `alone`: the index is in memory, and no other process can
 * look at the database. */
static int try_open_as(struct journal *j, int dir_fd, const char *path, bool alone)
{
    int r = check_files(dir_fd);

    if (r < 0)
        return r;
    r = journal_errno(sqlite3_open_v2(path, &j->db,
                                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE |
                                          SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW,
                                      NULL));
    if (r == 0)
        r = check_path(dir_fd, path);
    if (r == 0)
        (void)sqlite3_busy_timeout(j->db, 2000);
    if (r == 0 && alone)
        r = journal_run_sql(j, "PRAGMA locking_mode=EXCLUSIVE");
    if (r == 0)
        r = forbid_code(j);
    if (r == 0)
        r = journal_run_sql(j, schema);
    if (r == 0)
        r = journal_query(j, "PRAGMA quick_check(1)", check_integrity, NULL);
    if (r == 0)
        r = prepare_all(j);
    if (r == 0)
        keep_room(j, dir_fd);
    return why_not(j, r);
}

static void close_db(struct journal *j)
{
    (void)sqlite3_finalize(j->insert);
    (void)sqlite3_finalize(j->insert_over);
    (void)sqlite3_finalize(j->remove);
    (void)sqlite3_finalize(j->remove_over);
    (void)sqlite3_finalize(j->tell);
    (void)sqlite3_finalize(j->tell_over);
    (void)sqlite3_finalize(j->note_put);
    (void)sqlite3_finalize(j->forget_put);
    j->insert = j->insert_over = j->remove = j->remove_over = NULL;
    j->tell = j->tell_over = j->note_put = j->forget_put = NULL;
    (void)sqlite3_close(j->db);
    j->db = NULL;
}

static int try_open(struct journal *j, int dir_fd, const char *path)
{
    int r = try_open_as(j, dir_fd, path, false);

    if (r == 0 || !index_has_no_room(j))
        return r;
    close_db(j);
    return try_open_as(j, dir_fd, path, true);
}

/* Moves a database that can't be read out of the way, with what belongs to it. */
static int set_aside(int dir_fd)
{
    static const char *const suffix[] = {"", "-wal", "-shm"};
    long long now = (long long)(clock_real_ns() / NS_PER_SEC);

    for (size_t i = 0; i < ARRAY_SIZE(suffix); i++) {
        char from[32], to[80];
        (void)snprintf(from, sizeof(from), "state.db%s", suffix[i]);
        (void)snprintf(to, sizeof(to), "state.db.damaged-%lld%s", now, suffix[i]);
        if (renameat(dir_fd, from, dir_fd, to) < 0 && errno != ENOENT)
            return -errno;
    }
    return 0;
}

/* The path of the open directory's database, without symlinks: another directory may have the
 * old path by now. */
static int db_path(int dir_fd, char path[PATH_MAX])
{
    static const char name[] = "/state.db";
    char link[64];

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", dir_fd);
    ssize_t n = readlink(link, path, PATH_MAX - sizeof(name));
    if (n < 0)
        return -errno;
    if ((size_t)n == PATH_MAX - sizeof(name))
        return -ENAMETOOLONG;
    memcpy(path + n, name, sizeof(name));
    return 0;
}

int journal_open(int dir_fd, const char *dir, struct log_queue *log, struct op *op,
                 struct journal **ret, int *ret_damaged)
{
    struct journal *j = calloc(1, sizeof(*j));
    char path[PATH_MAX];

    if (ret_damaged)
        *ret_damaged = 0;
    if (!j)
        return -ENOMEM;
    j->log = log;
    atomic_init(&j->commits, 1); /* what an earlier process left in the WAL */
    mutex_init(&j->queue.lock);
    cond_init(&j->queue.done);
    journal_lock(j);
    j->queue.tail = &j->queue.head;
    journal_unlock(j);
    int r = db_path(dir_fd, path);
    if (r == 0)
        r = try_open(j, dir_fd, path);
    if (r == -EBADMSG) {
        log_warn("cache %s: state.db is damaged (%s); it is set aside, content is recovered "
                 "from the mirror",
                 dir, j->db ? sqlite3_errmsg(j->db) : "can't open");
        close_db(j);
        if (ret_damaged)
            *ret_damaged = 1;
        r = set_aside(dir_fd);
        if (r == 0)
            r = try_open(j, dir_fd, path);
    }
    if (r < 0) {
        (void)op_fail(op, r, "cache %s: can't open state.db: %s", dir,
                      j->db && sqlite3_errcode(j->db) ? sqlite3_errmsg(j->db) : door_why(r));
        journal_close(j);
        return r;
    }
    *ret = j;
    return 0;
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    close_db(j);
    free(j->unwanted.seqs);
    (void)pthread_cond_destroy(&j->queue.done);
    mutex_destroy(&j->queue.lock);
    free(j);
}
