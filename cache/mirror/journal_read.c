/* The journal's rows, read: at the mount, and where one is looked for. */
#include "cache/mirror/journal.h"
#include "cache/mirror/journal_impl.h"

#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

static char *column_dup(sqlite3_stmt *s, int i)
{
    const void *data = sqlite3_column_blob(s, i);
    size_t len = (size_t)sqlite3_column_bytes(s, i);

    return data ? strndup(data, len) : strdup("");
}

int journal_query(struct journal *j, const char *sql, int (*row)(sqlite3_stmt *s, void *arg),
                  void *arg)
{
    sqlite3_stmt *s = NULL;
    int rc, r;

    journal_lock(j);
    while (j->queue.leading)
        journal_wait(j, &j->queue.done);
    j->queue.leading = true;
    journal_unlock(j);
    r = journal_errno(sqlite3_prepare_v2(j->db, sql, -1, &s, NULL));
    while (r == 0 && (rc = sqlite3_step(s)) != SQLITE_DONE)
        r = rc == SQLITE_ROW ? row(s, arg) : journal_errno(rc);
    (void)sqlite3_finalize(s);
    journal_lock(j);
    j->queue.leading = false;
    (void)pthread_cond_broadcast(&j->queue.done);
    journal_unlock(j);
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
    auto_free char *over = sqlite3_column_type(s, 6) == SQLITE_NULL ? NULL : column_dup(s, 6);
    const struct journal_row row = {
        .seq = (uint64_t)sqlite3_column_int64(s, 0),
        .kind = (enum intent_kind)sqlite3_column_int(s, 1),
        .from = from,
        .to = to,
        .ino = (uint64_t)sqlite3_column_int64(s, 4),
        .etag = etag,
        .over = over,
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

    return journal_query(j,
                         "SELECT i.seq, kind, src, dst, ino, i.etag, o.etag FROM intent i"
                         " LEFT JOIN over o ON o.seq = i.seq ORDER BY i.seq",
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

struct unit_visit {
    int (*visit)(void *arg, const struct journal_unit *u);
    void *arg;
};

static int visit_unit(sqlite3_stmt *s, void *arg)
{
    const struct unit_visit *v = arg;
    auto_free char *key = column_dup(s, 0);
    auto_free char *id = column_dup(s, 1);
    auto_free char *tail = column_dup(s, 3);
    const struct journal_unit u = {
        .key = key, .id = id, .how = sqlite3_column_int(s, 2), .tail = tail};

    return key && id && tail ? v->visit(v->arg, &u) : -ENOMEM;
}

int journal_each_unit(struct journal *j, int (*visit)(void *arg, const struct journal_unit *u),
                      void *arg)
{
    struct unit_visit v = {visit, arg};

    return journal_query(j, "SELECT key, id, how, tail FROM unit", visit_unit, &v);
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

int journal_no_row(sqlite3_stmt *s, void *arg)
{
    (void)s;
    (void)arg;
    return 0;
}
