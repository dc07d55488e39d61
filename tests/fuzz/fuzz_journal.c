/* The journal's database: any bytes as state.db are opened or set aside, and any values in its
 * rows are visited as what journal.h promises or end the visit. The first byte chooses: the
 * bytes are the file, or the values of a row of a sound database. */
#include "cache/mirror/journal.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <dirent.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[256];
static int dir_fd = -1;

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void leave(void)
{
    (void)rmdir(dir);
}

/* In memory where there is such a place: each input makes a database. */
static void make_dir(void)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");

    log_set_level(LOG_LEVEL_ERROR);
    must((size_t)snprintf(dir, sizeof(dir), "%s/runfs-fuzz-XXXXXX", base ? base : "/tmp") <
         sizeof(dir));
    must(mkdtemp(dir) != NULL);
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(dir_fd >= 0 && atexit(leave) == 0);
}

static void empty_dir(void)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    must(d != NULL);
    while ((e = readdir(d)))
        (void)unlinkat(dir_fd, e->d_name, 0);
    (void)closedir(d);
}

static int see_row(void *arg, const struct journal_row *row)
{
    (void)arg;
    must(row->from && row->etag && row->kind >= INTENT_UNLINK && row->kind <= INTENT_RENAMEDIR);
    must(row->to || (row->kind != INTENT_RENAME && row->kind != INTENT_RENAMEDIR));
    return 0;
}

static int see_pin(void *arg, const char *path)
{
    (void)arg;
    must(path != NULL);
    return 0;
}

static int see_session(void *arg, const struct journal_session *s)
{
    (void)arg;
    must(s->key && s->token);
    return 0;
}

/* Opens what lies there, reads all, and writes. True when it was set aside. */
static bool use(void)
{
    const struct journal_row row = {.seq = 7, .kind = INTENT_UNLINK, .from = "a", .etag = ""};
    struct journal *j = NULL;
    struct log_queue log;
    int damaged = 0;
    struct op op;

    log_queue_init(&log);
    op_init(&op, OP_FOREVER);
    int r = journal_open(dir_fd, dir, &log, &op, &j, &damaged);
    must(r == 0 ? j != NULL : op.why[0] != '\0');
    if (r == 0) {
        (void)journal_each(j, see_row, NULL);
        (void)journal_each_pin(j, see_pin, NULL);
        (void)journal_each_session(j, see_session, NULL);
        (void)journal_add(j, &row, 1);
        if (damaged) /* what took its place is sound */
            must(journal_each(j, see_row, NULL) == 0);
    }
    journal_close(j);
    log_queue_release(&log);
    return damaged;
}

static void try_file(const uint8_t *data, size_t size)
{
    int fd = openat(dir_fd, "state.db", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    must(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
    (void)use();
}

/* A value of each of SQLite's types: the byte before it says which, and how long. */
static const uint8_t *bind_value(sqlite3_stmt *s, int i, const uint8_t *at, const uint8_t *end)
{
    uint8_t how = at < end ? *at++ : 0;
    size_t len = how >> 3, left = (size_t)(end - at);
    int64_t number = 0;

    len = len < left ? len : left;
    memcpy(&number, at, len < sizeof(number) ? len : sizeof(number));
    if ((how & 7) == 0)
        (void)sqlite3_bind_null(s, i);
    else if ((how & 7) == 1)
        (void)sqlite3_bind_int64(s, i, number);
    else if ((how & 7) == 2)
        (void)sqlite3_bind_double(s, i, (double)number);
    else if ((how & 7) == 3)
        (void)sqlite3_bind_text(s, i, (const char *)at, (int)len, SQLITE_TRANSIENT);
    else
        (void)sqlite3_bind_blob(s, i, at, (int)len, SQLITE_TRANSIENT);
    return at + len;
}

static void try_rows(const uint8_t *data, size_t size)
{
    static const char *const tables[] = {
        "INSERT OR REPLACE INTO intent VALUES(?,?,?,?,?,?)",
        "INSERT OR REPLACE INTO pin VALUES(?)",
        "INSERT OR REPLACE INTO upload VALUES(?,?,?,?,?,?,?,?,?)"};
    const uint8_t *at = data, *end = data + size;
    char path[sizeof(dir) + 16];
    sqlite3_stmt *s = NULL;
    sqlite3 *db = NULL;

    must(!use()); /* makes the tables */
    (void)snprintf(path, sizeof(path), "%s/state.db", dir);
    must(sqlite3_open(path, &db) == SQLITE_OK);
    while (at < end) {
        must(sqlite3_prepare_v2(db, tables[*at++ % ARRAY_SIZE(tables)], -1, &s, NULL) ==
             SQLITE_OK);
        for (int i = 1; i <= sqlite3_bind_parameter_count(s); i++)
            at = bind_value(s, i, at, end);
        (void)sqlite3_step(s); /* a constraint may refuse it */
        (void)sqlite3_finalize(s);
    }
    (void)sqlite3_close(db);
    must(!use());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (dir_fd < 0)
        make_dir();
    if (size == 0)
        return 0;
    if (data[0] & 1)
        try_file(data + 1, size - 1);
    else
        try_rows(data + 1, size - 1);
    empty_dir();
    return 0;
}
