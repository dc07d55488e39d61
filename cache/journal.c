/* The journal; see journal.h. One connection under one mutex; callers that wait for the mutex
 * are served by whoever holds it, in one transaction. */
#include "cache/journal.h"

#include "cache/door.h"
#include "common/err.h"
#include "common/lock.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* One change that waits for a commit; lives on its caller's stack. */
struct change {
    int (*apply)(struct journal *j, const struct change *change);
    const struct journal_row *rows;
    size_t n_rows;
    const uint64_t *seqs;
    size_t n_seqs;
    const char *text;
    const struct journal_session *session;
    const struct journal_put *put, *settled;
    size_t n_settled;
    const struct journal_wait *waits;
    size_t n_waits;
    int flag;
    bool durable;    /* the commit waits for the disk */
    bool takes_back; /* what fails of it is done with a later commit */
    int result;
    bool done;
    struct change *next;
};

struct journal {
    sqlite3 *db;           /* used by the leader only */
    struct log_queue *log; /* constant */
    struct {               /* under lock */
        struct mutex lock;
        pthread_cond_t done;
        struct change *head, **tail;
        bool leading; /* someone is committing */
    } queue;
    sqlite3_stmt *insert, *remove, *note_put, *forget_put;
    struct { /* used by the leader only */
        uint64_t *seqs;
        size_t n, cap;
    } unwanted; /* rows that were taken back, and could not be removed yet */
    atomic_bool has_unwanted;
    atomic_uint_fast64_t commits; /* how many there were of intentions */
    atomic_uint_fast64_t synced;  /* and up to which of them they are on the disk */
};

static int journal_errno(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_DONE:
    case SQLITE_ROW:
        return 0;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_READONLY:
        return -EROFS;
    default:
        return -EIO;
    }
}

static int journal_run_sql(struct journal *j, const char *sql)
{
    int rc = sqlite3_exec(j->db, sql, NULL, NULL, NULL);

    if (rc != SQLITE_OK)
        log_later(j->log, LOG_LEVEL_DEBUG, "state.db: %s: %s", sql, sqlite3_errmsg(j->db));
    return journal_errno(rc);
}

static int step_once(sqlite3_stmt *s)
{
    int r = journal_errno(sqlite3_step(s));

    (void)sqlite3_reset(s);
    (void)sqlite3_clear_bindings(s);
    return r;
}

static void bind_text(sqlite3_stmt *s, int i, const char *text)
{
    /* As blobs: keys are any bytes. */
    if (text)
        (void)sqlite3_bind_blob(s, i, text, (int)strlen(text), SQLITE_STATIC);
    else
        (void)sqlite3_bind_null(s, i);
}

static int insert_row(struct journal *j, const struct journal_row *row)
{
    sqlite3_stmt *s = j->insert;

    (void)sqlite3_bind_int64(s, 1, (sqlite3_int64)row->seq);
    (void)sqlite3_bind_int(s, 2, (int)row->kind);
    bind_text(s, 3, row->from);
    bind_text(s, 4, row->to);
    (void)sqlite3_bind_int64(s, 5, (sqlite3_int64)row->ino);
    bind_text(s, 6, row->etag ? row->etag : "");
    return step_once(s);
}

static int apply_rows(struct journal *j, const struct change *change)
{
    int r = 0;

    for (size_t i = 0; i < change->n_seqs && r == 0; i++) {
        (void)sqlite3_bind_int64(j->remove, 1, (sqlite3_int64)change->seqs[i]);
        r = step_once(j->remove);
    }
    for (size_t i = 0; i < change->n_rows && r == 0; i++)
        r = insert_row(j, &change->rows[i]);
    return r;
}

/* `flag` chooses the statement; text is its parameter. */
static int apply_pin(struct journal *j, const struct change *change)
{
    static const char *const sql[] = {
        "DELETE FROM pin WHERE path = ?1",
        "INSERT OR REPLACE INTO pin(path) VALUES(?1)",
    };
    sqlite3_stmt *s = NULL;
    int r = journal_errno(sqlite3_prepare_v2(j->db, sql[change->flag], -1, &s, NULL));

    if (r < 0)
        return r;
    bind_text(s, 1, change->text);
    r = step_once(s);
    (void)sqlite3_finalize(s);
    return r;
}

/* `flag`: the row is set, else it is removed. */
static int apply_session(struct journal *j, const struct change *change)
{
    static const char *const sql[] = {
        "DELETE FROM upload WHERE key = ?1 AND began = ?2",
        "INSERT OR REPLACE INTO upload(key, began, token, part_size, ino, size, mtime, attrs,"
        " live) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    };
    const struct journal_session *one = change->session;
    sqlite3_stmt *s = NULL;
    int r = journal_errno(sqlite3_prepare_v2(j->db, sql[change->flag], -1, &s, NULL));

    if (r < 0)
        return r;
    bind_text(s, 1, one->key);
    (void)sqlite3_bind_int64(s, 2, one->began_ns);
    if (change->flag) {
        bind_text(s, 3, one->token);
        (void)sqlite3_bind_int64(s, 4, (sqlite3_int64)one->part_size);
        (void)sqlite3_bind_int64(s, 5, (sqlite3_int64)one->ino);
        (void)sqlite3_bind_int64(s, 6, (sqlite3_int64)one->size);
        (void)sqlite3_bind_int64(s, 7, one->mtime_ns);
        (void)sqlite3_bind_int64(s, 8, (sqlite3_int64)one->attrs);
        (void)sqlite3_bind_int(s, 9, one->live);
    }
    r = step_once(s);
    (void)sqlite3_finalize(s);
    return r;
}

static int step_put(sqlite3_stmt *s, const struct journal_put *put)
{
    bind_text(s, 1, put->key);
    (void)sqlite3_bind_int64(s, 2, (sqlite3_int64)put->origin);
    (void)sqlite3_bind_int64(s, 3, put->last_ns);
    return step_once(s);
}

static int apply_put(struct journal *j, const struct change *change)
{
    int r = step_put(j->note_put, change->put);

    for (size_t i = 0; i < change->n_settled && r == 0; i++)
        r = step_put(j->forget_put, &change->settled[i]);
    return r;
}

/* All commits of intentions up to this one are on the disk. */
static void note_synced(struct journal *j, uint_fast64_t commits)
{
    uint_fast64_t known = atomic_load(&j->synced);

    while (known < commits && !atomic_compare_exchange_weak(&j->synced, &known, commits))
        ;
}

static void note_commit(struct journal *j, const struct change *batch, bool durable)
{
    bool rows = false;

    for (const struct change *c = batch; c; c = c->next)
        rows = rows || c->n_rows;
    if (rows)
        atomic_fetch_add(&j->commits, 1);
    if (durable)
        note_synced(j, atomic_load(&j->commits));
}

/* What was not done must not be found by the next mount, above all not behind other rows. */
static void want_no_more(struct journal *j, const struct change *c)
{
    size_t n = j->unwanted.n + c->n_seqs;

    if (n > j->unwanted.cap) {
        uint64_t *v = reallocarray(j->unwanted.seqs, n, sizeof(*v));
        if (!v)
            return;
        j->unwanted.seqs = v;
        j->unwanted.cap = n;
    }
    memcpy(j->unwanted.seqs + j->unwanted.n, c->seqs, c->n_seqs * sizeof(*c->seqs));
    j->unwanted.n = n;
    atomic_store(&j->has_unwanted, true);
}

static int remove_unwanted(struct journal *j)
{
    const struct change c = {.seqs = j->unwanted.seqs, .n_seqs = j->unwanted.n};

    return apply_rows(j, &c);
}

static void unwanted_removed(struct journal *j)
{
    j->unwanted.n = 0;
    atomic_store(&j->has_unwanted, false);
}

/* Applies a batch in one transaction; when that fails, each alone, so that one bad change does
 * not take the others with it. */
static void commit_batch(struct journal *j, struct change *batch)
{
    bool durable = false;
    int r;

    assert(batch);

    for (struct change *c = batch; c; c = c->next)
        durable = durable || c->durable;
    if (durable)
        (void)journal_run_sql(j, "PRAGMA synchronous=FULL");
    r = journal_run_sql(j, "BEGIN IMMEDIATE");
    if (r == 0)
        r = remove_unwanted(j);
    for (struct change *c = batch; c && r == 0; c = c->next)
        r = c->apply(j, c);
    if (r == 0)
        r = journal_run_sql(j, "COMMIT");
    if (r == 0) {
        note_commit(j, batch, durable);
        unwanted_removed(j);
    }
    if (durable)
        (void)journal_run_sql(j, "PRAGMA synchronous=NORMAL");
    if (r == 0 || !batch->next) {
        if (r < 0)
            (void)journal_run_sql(j, "ROLLBACK");
        for (struct change *c = batch; c; c = c->next) {
            c->result = r;
            if (r < 0 && c->takes_back)
                want_no_more(j, c);
        }
        return;
    }
    (void)journal_run_sql(j, "ROLLBACK");
    for (struct change *c = batch; c;) {
        struct change *next = c->next;
        c->next = NULL;
        commit_batch(j, c);
        c = next;
    }
}

static void finish_batch(struct journal *j, struct change **batch, size_t n)
{
    for (size_t i = 0; i < n; i++)
        batch[i]->done = true;
    (void)pthread_cond_broadcast(&j->queue.done);
}

#define BATCH_MAX 256

/* Takes up to BATCH_MAX waiting changes; links them through `next`. */
static size_t take_batch(struct journal *j, struct change *batch[BATCH_MAX])
{
    size_t n = 0;

    while (j->queue.head && n < BATCH_MAX) {
        batch[n] = j->queue.head;
        j->queue.head = j->queue.head->next;
        batch[n]->next = NULL;
        if (n > 0)
            batch[n - 1]->next = batch[n];
        n++;
    }
    if (!j->queue.head)
        j->queue.tail = &j->queue.head;
    return n;
}

static int commit(struct journal *j, struct change *change)
{
    struct change *batch[BATCH_MAX] = {NULL};

    mutex_lock(&j->queue.lock);
    *j->queue.tail = change;
    j->queue.tail = &change->next;
    while (!change->done && j->queue.leading)
        mutex_wait(&j->queue.lock, &j->queue.done);
    while (!change->done) {
        j->queue.leading = true;
        size_t n = take_batch(j, batch);
        mutex_unlock(&j->queue.lock);
        assert(batch[0]); /* not done and nobody leads: this change waits at least */
        commit_batch(j, batch[0]);
        mutex_lock(&j->queue.lock);
        finish_batch(j, batch, n);
        j->queue.leading = false;
    }
    mutex_unlock(&j->queue.lock);
    return change->result;
}

int journal_add(struct journal *j, const struct journal_row *rows, size_t n)
{
    struct change c = {.apply = apply_rows, .rows = rows, .n_rows = n};

    return n ? commit(j, &c) : 0;
}

int journal_done(struct journal *j, const uint64_t *seqs, size_t n_seqs,
                 const struct journal_row *rows, size_t n_rows)
{
    struct change c = {.apply = apply_rows,
                       .rows = rows,
                       .n_rows = n_rows,
                       .seqs = seqs,
                       .n_seqs = n_seqs,
                       .durable = true};

    return n_seqs || n_rows ? commit(j, &c) : 0;
}

void journal_take_back(struct journal *j, const uint64_t *seqs, size_t n)
{
    struct change c = {.apply = apply_rows, .seqs = seqs, .n_seqs = n, .takes_back = true};

    if (n)
        (void)commit(j, &c);
}

int journal_retry(struct journal *j)
{
    struct change c = {.apply = apply_rows};

    return atomic_load(&j->has_unwanted) ? commit(j, &c) : 0;
}

static int apply_adopt(struct journal *j, const struct change *change)
{
    char sql[256];

    (void)change;
    (void)snprintf(sql, sizeof(sql),
                   "DELETE FROM intent WHERE kind IN (%d, %d);"
                   "UPDATE intent SET etag = CAST('" INTENT_OURS "' AS BLOB)"
                   " WHERE kind = %d AND CAST(etag AS TEXT) IN ('', '" INTENT_ANY "');",
                   INTENT_RENAME, INTENT_RENAMEDIR, INTENT_UNLINK);
    return journal_run_sql(j, sql);
}

int journal_adopt(struct journal *j)
{
    struct change c = {.apply = apply_adopt, .durable = true};

    return commit(j, &c);
}

int journal_set_pin(struct journal *j, const char *path, int pinned)
{
    struct change c = {.apply = apply_pin, .text = path, .flag = pinned ? 1 : 0};

    return commit(j, &c);
}

int journal_set_session(struct journal *j, const struct journal_session *s, int durable)
{
    struct change c = {.apply = apply_session, .session = s, .flag = 1, .durable = durable};

    return commit(j, &c);
}

int journal_remove_session(struct journal *j, const char *key, int64_t began_ns)
{
    const struct journal_session s = {.key = key, .began_ns = began_ns};
    struct change c = {.apply = apply_session, .session = &s};

    return commit(j, &c);
}

int journal_note_put(struct journal *j, const struct journal_put *note,
                     const struct journal_put *settled, size_t n)
{
    struct change c = {.apply = apply_put, .put = note, .settled = settled, .n_settled = n};

    return commit(j, &c);
}

static int apply_waits(struct journal *j, const struct change *change)
{
    char sql[128];
    int r = journal_run_sql(j, "DELETE FROM wait");

    for (size_t i = 0; i < change->n_waits && r == 0; i++) {
        (void)snprintf(sql, sizeof(sql), "INSERT INTO wait(since, until) VALUES(%llu, %llu)",
                       (unsigned long long)change->waits[i].since,
                       (unsigned long long)change->waits[i].until);
        r = journal_run_sql(j, sql);
    }
    return r;
}

int journal_set_waits(struct journal *j, const struct journal_wait *v, size_t n)
{
    struct change c = {.apply = apply_waits, .waits = v, .n_waits = n, .durable = true};

    return commit(j, &c);
}

static char *column_dup(sqlite3_stmt *s, int i)
{
    const void *data = sqlite3_column_blob(s, i);
    size_t len = (size_t)sqlite3_column_bytes(s, i);

    return data ? strndup(data, len) : strdup("");
}

/* Runs a query; `row` is called for each line of the answer. The journal is used by one thread
 * then (recovery), or the reader takes the leader's place. */
static int journal_query(struct journal *j, const char *sql,
                         int (*row)(sqlite3_stmt *s, void *arg), void *arg)
{
    sqlite3_stmt *s = NULL;
    int rc, r;

    mutex_lock(&j->queue.lock);
    while (j->queue.leading)
        mutex_wait(&j->queue.lock, &j->queue.done);
    j->queue.leading = true;
    mutex_unlock(&j->queue.lock);
    r = journal_errno(sqlite3_prepare_v2(j->db, sql, -1, &s, NULL));
    while (r == 0 && (rc = sqlite3_step(s)) != SQLITE_DONE)
        r = rc == SQLITE_ROW ? row(s, arg) : journal_errno(rc);
    (void)sqlite3_finalize(s);
    mutex_lock(&j->queue.lock);
    j->queue.leading = false;
    (void)pthread_cond_broadcast(&j->queue.done);
    mutex_unlock(&j->queue.lock);
    return r;
}

struct row_visit {
    int (*visit)(void *arg, const struct journal_row *row);
    void *arg;
};

static int visit_row(sqlite3_stmt *s, void *arg)
{
    const struct row_visit *v = arg;
    auto_free char *from = column_dup(s, 2);
    auto_free char *to = sqlite3_column_type(s, 3) == SQLITE_NULL ? NULL : column_dup(s, 3);
    auto_free char *etag = column_dup(s, 5);
    const struct journal_row row = {
        .seq = (uint64_t)sqlite3_column_int64(s, 0),
        .kind = (enum intent_kind)sqlite3_column_int(s, 1),
        .from = from,
        .to = to,
        .ino = (uint64_t)sqlite3_column_int64(s, 4),
        .etag = etag,
    };

    if (!from || !etag)
        return -ENOMEM;
    if (row.kind < INTENT_UNLINK || row.kind > INTENT_RENAMEDIR)
        return -EIO;
    if ((row.kind == INTENT_RENAME || row.kind == INTENT_RENAMEDIR) && !to)
        return -EIO;
    return v->visit(v->arg, &row);
}

int journal_each(struct journal *j, int (*visit)(void *arg, const struct journal_row *row),
                 void *arg)
{
    struct row_visit v = {visit, arg};

    return journal_query(j, "SELECT seq, kind, src, dst, ino, etag FROM intent ORDER BY seq",
                         visit_row, &v);
}

struct pin_visit {
    int (*visit)(void *arg, const char *path);
    void *arg;
};

static int visit_pin(sqlite3_stmt *s, void *arg)
{
    const struct pin_visit *v = arg;
    auto_free char *path = column_dup(s, 0);

    return path ? v->visit(v->arg, path) : -ENOMEM;
}

int journal_each_pin(struct journal *j, int (*visit)(void *arg, const char *path), void *arg)
{
    struct pin_visit v = {visit, arg};

    return journal_query(j, "SELECT path FROM pin", visit_pin, &v);
}

struct session_visit {
    int (*visit)(void *arg, const struct journal_session *s);
    void *arg;
};

static int visit_session(sqlite3_stmt *s, void *arg)
{
    const struct session_visit *v = arg;
    auto_free char *key = column_dup(s, 0);
    auto_free char *token = column_dup(s, 2);
    const struct journal_session one = {
        .key = key,
        .began_ns = sqlite3_column_int64(s, 1),
        .token = token,
        .part_size = (uint64_t)sqlite3_column_int64(s, 3),
        .ino = (uint64_t)sqlite3_column_int64(s, 4),
        .size = (uint64_t)sqlite3_column_int64(s, 5),
        .mtime_ns = sqlite3_column_int64(s, 6),
        .attrs = (uint64_t)sqlite3_column_int64(s, 7),
        .live = sqlite3_column_int(s, 8),
    };

    return key && token ? v->visit(v->arg, &one) : -ENOMEM;
}

int journal_each_session(struct journal *j,
                         int (*visit)(void *arg, const struct journal_session *s), void *arg)
{
    struct session_visit v = {visit, arg};

    return journal_query(
        j, "SELECT key, began, token, part_size, ino, size, mtime, attrs, live FROM upload",
        visit_session, &v);
}

struct put_visit {
    int (*visit)(void *arg, const struct journal_put *note);
    void *arg;
};

static int visit_put(sqlite3_stmt *s, void *arg)
{
    const struct put_visit *v = arg;
    auto_free char *key = column_dup(s, 0);
    const struct journal_put note = {
        .key = key,
        .origin = (uint64_t)sqlite3_column_int64(s, 1),
        .last_ns = sqlite3_column_int64(s, 2),
    };

    return key ? v->visit(v->arg, &note) : -ENOMEM;
}

int journal_each_put(struct journal *j, int (*visit)(void *arg, const struct journal_put *note),
                     void *arg)
{
    struct put_visit v = {visit, arg};

    return journal_query(j, "SELECT key, origin, last FROM put", visit_put, &v);
}

struct wait_visit {
    int (*visit)(void *arg, const struct journal_wait *w);
    void *arg;
};

static int visit_wait(sqlite3_stmt *s, void *arg)
{
    const struct wait_visit *v = arg;
    const struct journal_wait w = {
        .since = (uint64_t)sqlite3_column_int64(s, 0),
        .until = (uint64_t)sqlite3_column_int64(s, 1),
    };

    return v->visit(v->arg, &w);
}

int journal_each_wait(struct journal *j, int (*visit)(void *arg, const struct journal_wait *w),
                      void *arg)
{
    struct wait_visit v = {visit, arg};

    return journal_query(j, "SELECT since, until FROM wait ORDER BY since", visit_wait, &v);
}

static int journal_no_row(sqlite3_stmt *s, void *arg)
{
    (void)s;
    (void)arg;
    return 0;
}

int journal_sync(struct journal *j)
{
    int r = journal_retry(j);
    uint_fast64_t commits = atomic_load(&j->commits);

    if (r == 0)
        r = journal_query(j, "PRAGMA wal_checkpoint(FULL)", journal_no_row, NULL);
    if (r == 0)
        note_synced(j, commits);
    return r;
}

int journal_sync_intents(struct journal *j)
{
    return atomic_load(&j->synced) < atomic_load(&j->commits) ? journal_sync(j) : 0;
}

/* ---- opening ---- */

static const char schema[] =
    "PRAGMA journal_mode=WAL;"
    "PRAGMA synchronous=NORMAL;"
    "PRAGMA wal_autocheckpoint=4000;"
    "CREATE TABLE IF NOT EXISTS intent(seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL,"
    " src BLOB NOT NULL, dst BLOB, ino INTEGER NOT NULL, etag BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS pin(path BLOB PRIMARY KEY) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS upload(key BLOB NOT NULL, began INTEGER NOT NULL,"
    " token BLOB NOT NULL, part_size INTEGER NOT NULL, ino INTEGER NOT NULL,"
    " size INTEGER NOT NULL, mtime INTEGER NOT NULL, attrs INTEGER NOT NULL,"
    " live INTEGER NOT NULL, PRIMARY KEY(key, began)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS put(key BLOB NOT NULL, origin INTEGER NOT NULL,"
    " last INTEGER NOT NULL, PRIMARY KEY(key, origin)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS wait(since INTEGER PRIMARY KEY, until INTEGER NOT NULL);";

static int check_integrity(sqlite3_stmt *s, void *arg)
{
    const char *text = (const char *)sqlite3_column_text(s, 0);

    (void)arg;
    return text && strcmp(text, "ok") == 0 ? 0 : -EBADMSG;
}

/* Only what SQLite calls damaged is: a lock that somebody holds, a full disk or one that fails
 * for a while are no reason to forget what the store is owed. */
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
        r = prepare(j, "DELETE FROM intent WHERE seq = ?", &j->remove);
    if (r == 0)
        r = prepare(j, "INSERT OR REPLACE INTO put(key, origin, last) VALUES(?1,?2,?3)",
                    &j->note_put);
    if (r == 0)
        r = prepare(j, "DELETE FROM put WHERE key = ?1 AND origin = ?2 AND last <= ?3",
                    &j->forget_put);
    return r;
}

static int has_code(sqlite3_stmt *s, void *arg)
{
    (void)s;
    (void)arg;
    return -EBADMSG;
}

/* A database may hold code that SQLite runs when it is written or read. We write none: what has
 * some is not ours, or was changed. */
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

/* Whether the path led to the directory's own. */
static int check_path(int dir_fd, const char *path)
{
    struct stat here, there;

    if (fstatat(dir_fd, "state.db", &here, AT_SYMLINK_NOFOLLOW) < 0 || lstat(path, &there) < 0)
        return -errno;
    return here.st_dev == there.st_dev && here.st_ino == there.st_ino ? 0 : -ESTALE;
}

/* -EBADMSG: the database is damaged. */
static int try_open(struct journal *j, int dir_fd, const char *path)
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
    if (r == 0)
        r = forbid_code(j);
    if (r == 0)
        r = journal_run_sql(j, schema);
    if (r == 0)
        r = journal_query(j, "PRAGMA quick_check(1)", check_integrity, NULL);
    if (r == 0)
        r = prepare_all(j);
    return why_not(j, r);
}

static void close_db(struct journal *j)
{
    (void)sqlite3_finalize(j->insert);
    (void)sqlite3_finalize(j->remove);
    (void)sqlite3_finalize(j->note_put);
    (void)sqlite3_finalize(j->forget_put);
    j->insert = j->remove = j->note_put = j->forget_put = NULL;
    (void)sqlite3_close(j->db);
    j->db = NULL;
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

/* Of the directory that is open, without symlinks: where it was named may be another by now. */
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
    j->queue.tail = &j->queue.head;
    atomic_init(&j->commits, 1); /* what an earlier process left in the WAL */
    mutex_init(&j->queue.lock);
    cond_init(&j->queue.done);
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
