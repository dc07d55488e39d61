/* The journal; see journal.h. One connection under one mutex; the thread that holds the mutex
 * serves the callers that wait for it, in one transaction. */
#include "cache/mirror/journal.h"
#include "cache/mirror/journal_impl.h"

#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"

#include <assert.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int journal_errno(int rc)
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

int journal_run_sql(struct journal *j, const char *sql)
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
    /* Texts are bound as blobs: keys are any bytes. */
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
    int r = step_once(s);
    if (r < 0 || !row->over)
        return r;
    (void)sqlite3_bind_int64(j->insert_over, 1, (sqlite3_int64)row->seq);
    bind_text(j->insert_over, 2, row->over);
    return step_once(j->insert_over);
}

static int remove_row(struct journal *j, uint64_t seq)
{
    (void)sqlite3_bind_int64(j->remove, 1, (sqlite3_int64)seq);
    (void)sqlite3_bind_int64(j->remove_over, 1, (sqlite3_int64)seq);
    int r = step_once(j->remove);
    return r < 0 ? r : step_once(j->remove_over);
}

static int tell_row(struct journal *j, const struct journal_row *row)
{
    sqlite3_stmt *s = row->over ? j->tell_over : j->tell;

    (void)sqlite3_bind_int64(s, 1, (sqlite3_int64)row->seq);
    bind_text(s, 2, row->over ? row->over : row->etag);
    return step_once(s);
}

static int apply_rows(struct journal *j, const struct change *change)
{
    int r = 0;

    for (size_t i = 0; i < change->n_seqs && r == 0; i++)
        r = remove_row(j, change->seqs[i]);
    for (size_t i = 0; i < change->n_rows && r == 0; i++)
        r = insert_row(j, &change->rows[i]);
    for (size_t i = 0; i < change->n_told && r == 0; i++)
        r = tell_row(j, &change->told[i]);
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

/* Sets the row with `flag`, else removes it. */
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

/* Sets the row with `flag`, else removes it. */
static int apply_unit(struct journal *j, const struct change *change)
{
    static const char *const sql[] = {
        "DELETE FROM unit WHERE key = ?1 AND id = ?2",
        "INSERT OR REPLACE INTO unit(key, id, how, tail) VALUES(?1, ?2, ?3, ?4)",
    };
    const struct journal_unit *u = change->unit;
    sqlite3_stmt *s = NULL;
    int r = journal_errno(sqlite3_prepare_v2(j->db, sql[change->flag], -1, &s, NULL));

    if (r < 0)
        return r;
    bind_text(s, 1, u->key);
    bind_text(s, 2, u->id);
    if (change->flag) {
        (void)sqlite3_bind_int(s, 3, u->how);
        bind_text(s, 4, u->tail);
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

/* The next mount must not find a row whose step was not made, above all not behind other rows.
 */
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

static int try_batch(struct journal *j, struct change *batch)
{
    int r = journal_run_sql(j, "BEGIN IMMEDIATE");

    if (r == 0)
        r = remove_unwanted(j);
    for (struct change *c = batch; c && r == 0; c = c->next)
        r = c->apply(j, c);
    if (r == 0)
        r = journal_run_sql(j, "COMMIT");
    if (r < 0)
        (void)journal_run_sql(j, "ROLLBACK");
    return r;
}

/* SQLite's log grows until it is copied into the database, and then begins anew in the room
 * that it has. */
static int log_begins_anew(struct journal *j)
{
    return journal_run_sql(j, "PRAGMA wal_checkpoint(RESTART)");
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
    r = try_batch(j, batch);
    if (r == -ENOSPC && log_begins_anew(j) == 0)
        r = try_batch(j, batch);
    if (r == 0) {
        note_commit(j, batch, durable);
        unwanted_removed(j);
    }
    if (durable)
        (void)journal_run_sql(j, "PRAGMA synchronous=NORMAL");
    if (r == 0 || !batch->next) {
        for (struct change *c = batch; c; c = c->next) {
            c->result = r;
            if (r < 0 && c->takes_back)
                want_no_more(j, c);
        }
        return;
    }
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
    REQUIRES(journal_mutex)
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

    journal_lock(j);
    *j->queue.tail = change;
    j->queue.tail = &change->next;
    while (!change->done && j->queue.leading)
        journal_wait(j, &j->queue.done);
    while (!change->done) {
        j->queue.leading = true;
        size_t n = take_batch(j, batch);
        journal_unlock(j);
        assert(batch[0]); /* not done and nobody leads: this change waits at least */
        commit_batch(j, batch[0]);
        journal_lock(j);
        finish_batch(j, batch, n);
        j->queue.leading = false;
    }
    journal_unlock(j);
    return change->result;
}

int journal_add(struct journal *j, const struct journal_row *rows, size_t n)
{
    struct change c = {.apply = apply_rows, .rows = rows, .n_rows = n};

    return n ? commit(j, &c) : 0;
}

int journal_done_and_told(struct journal *j, const uint64_t *seqs, size_t n_seqs,
                          const struct journal_row *rows, size_t n_rows,
                          const struct journal_row *told, size_t n_told)
{
    struct change c = {.apply = apply_rows,
                       .rows = rows,
                       .n_rows = n_rows,
                       .told = told,
                       .n_told = n_told,
                       .seqs = seqs,
                       .n_seqs = n_seqs,
                       .durable = true};

    return n_seqs || n_rows || n_told ? commit(j, &c) : 0;
}

int journal_done(struct journal *j, const uint64_t *seqs, size_t n_seqs,
                 const struct journal_row *rows, size_t n_rows)
{
    return journal_done_and_told(j, seqs, n_seqs, rows, n_rows, NULL, 0);
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
    char sql[320];

    (void)change;
    (void)snprintf(sql, sizeof(sql),
                   "DELETE FROM unit;" /* the notes of whose cache it is a copy */
                   "DELETE FROM intent WHERE kind IN (%d, %d);"
                   "DELETE FROM over;"
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

int journal_set_unit(struct journal *j, const struct journal_unit *u)
{
    struct change c = {.apply = apply_unit, .unit = u, .flag = 1, .durable = true};

    return commit(j, &c);
}

int journal_remove_unit(struct journal *j, const char *key, const char *id)
{
    const struct journal_unit u = {.key = key, .id = id};
    struct change c = {.apply = apply_unit, .unit = &u};

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
