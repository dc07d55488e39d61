/* A change of the namespace, which is one step for who looks at it: what the store is to do
 * (rows of the journal), the mirror, the tree in memory. docs/format.md, section 4, "Protocol",
 * says what a kill in between leaves. Whatever may fail for lack of memory is made before. */
#include "cache/ops/ops_impl.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/journal.h"
#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>

/* ---- rows ---- */

/* Which version a row is to mean now. */
struct followed {
    struct journal_row rows[STEP_ROWS_MAX]; /* they own their etags */
    size_t n;
};

/* The copy that brings the entry may have ended since the row was written: it means the copy
 * then, or, of a removal, whatever is there where there is no copy. */
static void follow_copy_locked(struct intent *i, const struct entry *e, struct followed *f)
    REQUIRES(cache_mutex)
{
    char buf[ETAG_TEXT_MAX];
    const char *now = etag_known(&e->etag)       ? etag_text(&e->etag, buf)
                      : i->kind == INTENT_UNLINK ? INTENT_ANY
                                                 : NULL;

    if (e->node->dir || !now || !intent_version_is_known(i) || strcmp(now, i->etag) == 0)
        return;
    char *etag = strdup(now), *told = etag ? strdup(now) : NULL;
    if (!told) { /* it means the older version, and what is there stays */
        free(etag);
        return;
    }
    free(i->etag);
    i->etag = etag;
    f->rows[f->n++] = (struct journal_row){.seq = i->seq, .etag = told};
}

static void note_followed(struct cache *c, const struct followed *f)
{
    if (f->n)
        (void)journal_done_and_told(c->journal, NULL, 0, NULL, 0, f->rows, f->n);
    for (size_t i = 0; i < f->n; i++)
        free((char *)(uintptr_t)f->rows[i].etag);
}

int step_add_row_locked(struct step *s, struct intent *i, struct entry *e)
{
    cache_assert_locked(s->cache);
    if (!i)
        return -ENOMEM;
    assert(s->n_rows < STEP_ROWS_MAX);
    i->seq = seq_next_locked(s->cache);
    s->rows[s->n_rows] = i;
    s->of[s->n_rows++] = e;
    return 0;
}

/* All or none of them. */
static int write_rows(struct step *s) REQUIRES(cache_ns)
{
    struct journal_row rows[STEP_ROWS_MAX];

    for (size_t i = 0; i < s->n_rows; i++)
        rows[i] = intent_row(s->rows[i]);
    return s->n_rows ? journal_add(s->cache->journal, rows, s->n_rows) : 0;
}

static void take_rows_back(struct step *s)
{
    uint64_t seqs[STEP_ROWS_MAX];

    for (size_t i = 0; i < s->n_rows; i++)
        seqs[i] = s->rows[i]->seq;
    journal_take_back(s->cache->journal, seqs, s->n_rows);
}

static void add_rows_locked(struct step *s) REQUIRES(cache_mutex)
{
    for (size_t i = 0; i < s->n_rows; i++)
        intent_add_locked(s->cache, s->rows[i]);
    s->n_rows = 0; /* the queue owns them */
}

void step_release(struct step *s)
{
    while (s->n_rows)
        intent_free(s->rows[--s->n_rows]);
}

/* ---- the step ---- */

/* Only debug builds read the name. */
static void pass(const char *point)
{
    if (point)
        crash_point(point);
}

int step_run(struct step *s)
{
    struct cache *c = s->cache;
    struct followed followed = {.n = 0};

    ns_assert_written(c);
    int r = write_rows(s);
    bool written = r == 0;
    pass(s->rows_point);
    if (r == 0)
        r = s->on_disk(s);
    pass(s->disk_point);
    if (r < 0) {
        if (written)
            take_rows_back(s);
        return r;
    }
    bool is_told = s->n_rows || s->left;
    cache_lock(c);
    for (size_t i = 0; i < s->n_rows; i++)
        if (s->of[i])
            follow_copy_locked(s->rows[i], s->of[i], &followed);
    s->in_tree(s);
    add_rows_locked(s);
    /* Who waits for the name that went finds what its directory owes instead. */
    bool needs_marker = s->left && name_maybe_marker_locked(c, s->left);
    if (is_told) {
        progress_locked(c);
        cache_check_locked(c);
    }
    cache_unlock(c);
    note_followed(c, &followed);
    if (needs_marker)
        name_note_marker(c, s->left);
    return 0;
}
