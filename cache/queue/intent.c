/* Intentions in memory: their list, their rows, and what makes them void. Which waits for which
 * is in order.c; removals run in transfer/remove.c, renames in transfer/copy.c. */
#include "cache/queue/queue_impl.h"

#include "cache/mirror/journal.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool intent_kind_is_of_dir(enum intent_kind kind)
{
    return kind == INTENT_RENAMEDIR || kind == INTENT_RMDIR;
}

static bool is_of_dir(const struct intent *i)
{
    return intent_kind_is_of_dir(i->kind);
}

unsigned intent_volume(struct cache *c, const struct intent *i)
{
    return path_volume(c, i->from, is_of_dir(i));
}

unsigned intent_lone_volume(struct cache *c, const struct intent *i)
{
    return is_of_dir(i) ? dir_lone_volume(c, i->from) : intent_volume(c, i);
}

/* Nobody else has it yet. */
NO_THREAD_SAFETY struct intent *intent_new(uint64_t seq, enum intent_kind kind,
                                           const char *from, const char *to, uint64_t ino,
                                           const char *etag)
{
    struct intent *i = calloc(1, sizeof(*i));

    if (!i)
        return NULL;
    i->seq = seq;
    i->debt.kind = DEBT_ROW;
    i->kind = kind;
    i->ino = ino;
    i->scope = SIZE_MAX;
    i->from = strdup(from);
    i->to = to ? strdup(to) : NULL;
    i->etag = strdup(etag ? etag : "");
    if (i->from && i->etag && (i->to || !to))
        return i;
    intent_free(i);
    return NULL;
}

/* Nobody else has it yet, or any more. */
NO_THREAD_SAFETY void intent_free(struct intent *i)
{
    if (!i)
        return;
    free(i->from);
    free(i->to);
    free(i->moved_to);
    free(i->etag);
    free(i->over);
    debt_release(&i->debt);
    free(i);
}

bool intent_is_rename(const struct intent *i)
{
    return i->kind == INTENT_RENAME || i->kind == INTENT_RENAMEDIR;
}

struct place intent_source(const struct intent *i)
{
    return place_of_path(i->from);
}

struct place intent_target(const struct intent *i)
{
    return place_of_path(i->to);
}

uint64_t intent_since(const struct intent *i)
{
    return i->since ? i->since : i->seq;
}

void intent_add_locked(struct cache *c, struct intent *i)
{
    cache_assert_locked(c);
    assert(i->seq);
    debt_set_place(&i->debt, i->seq);
    scope_begin_locked(c, i);
    row_enters_locked(c, i);
    tombstone_count_locked(c, intent_source(i), i->kind, 1);
    c->queue->moved += i->moved_to != NULL;
}

void intent_remove_locked(struct cache *c, struct intent *i)
{
    cache_assert_locked(c);
    row_leaves_locked(c, i);
    tombstone_count_locked(c, intent_source(i), i->kind, -1);
    c->queue->moved -= i->moved_to != NULL;
    intent_free(i);
}

void intent_becomes_removal_locked(struct cache *c, struct intent *i, char *etag)
{
    assert(i->kind == INTENT_RENAME);
    row_only_removes_locked(c, i);
    i->kind = INTENT_UNLINK;
    free(take_ptr(i->to));
    free(i->etag);
    i->etag = etag;
    debt_forgive(&i->debt);
    debt_set_due(&i->debt, 0);
    i->others_taken = i->refused = false;
}

int intent_note_moved(struct intent *i, uint64_t ino, const char *to)
{
    i->moved_ino = ino;
    i->moved_to = to ? strdup(to) : NULL;
    return to && !i->moved_to ? -ENOMEM : 0;
}

int intent_note_over(struct intent *i, const char *etag)
{
    i->over = etag ? strdup(etag) : NULL;
    return etag && !i->over ? -ENOMEM : 0;
}

bool intent_was_found(struct cache *c, const struct intent *i)
{
    return i->seq <= c->queue->own->found_seq;
}

struct journal_row intent_row(const struct intent *i)
{
    return (struct journal_row){.seq = i->seq,
                                .kind = i->kind,
                                .from = i->from,
                                .to = i->moved_to ? i->moved_to : i->to,
                                .ino = i->moved_to ? i->moved_ino : i->ino,
                                .etag = i->etag,
                                .over = intent_is_rename(i) ? i->over : NULL};
}

int intent_record(struct cache *c, const struct intent *i)
{
    const struct journal_row row = intent_row(i);

    ns_assert_held(c);
    return journal_add(c->journal, &row, 1);
}

uint64_t intents_newest_locked(struct cache *c)
{
    cache_assert_locked(c);
    return row_first(c) ? row_last(c)->seq : 0;
}

void intents_found_locked(struct cache *c)
{
    c->queue->own->found_seq = intents_newest_locked(c);
}

/* Which removals go without being carried out. */
struct voided {
    bool (*is_void)(struct cache *c, struct intent *i, const struct voided *v);
    void (*gone_locked)(struct cache *c, const struct intent *i); /* or NULL */
    enum intent_kind kind;
    const char *path; /* NULL: of any */
    const struct file *file;
    uint64_t seq;
};

/* Those among which they are. */
static struct intent *void_first_locked(struct cache *c, const struct voided *v)
    REQUIRES(cache_mutex)
{
    return v->path ? row_of_name_locked(c, v->path) : row_first(c);
}

static struct intent *void_next_locked(const struct voided *v, const struct intent *i)
    REQUIRES(cache_mutex)
{
    return v->path ? row_of_name_next(i) : row_next(i);
}

/* Up to `max` of them; those that run are carried out. */
static size_t collect_void(struct cache *c, const struct voided *v, uint64_t *ret_seqs,
                           size_t max)
{
    size_t n = 0;

    cache_lock(c);
    for (struct intent *i = void_first_locked(c, v); i && n < max; i = void_next_locked(v, i))
        if (!i->debt.running && v->is_void(c, i, v))
            ret_seqs[n++] = i->seq;
    cache_unlock(c);
    return n;
}

static void remove_void(struct cache *c, const struct voided *v, const uint64_t *seqs, size_t n)
{
    struct intent *i, *next;
    size_t done = 0; /* both are in the order of seq */

    cache_lock(c);
    for (i = void_first_locked(c, v); i; i = next) {
        next = void_next_locked(v, i);
        while (done < n && seqs[done] < i->seq)
            done++;
        if (done == n || seqs[done] != i->seq || i->debt.running)
            continue;
        if (v->gone_locked)
            v->gone_locked(c, i);
        intent_remove_locked(c, i);
    }
    cache_unlock(c);
}

/* The disk forgets them first: the next mount would carry out what only memory forgot. */
static int drop_void(struct cache *c, const struct voided *v)
{
    uint64_t seqs[256];
    size_t n;
    int r;

    do {
        n = collect_void(c, v, seqs, ARRAY_SIZE(seqs));
        r = journal_done(c->journal, seqs, n, NULL, 0);
        if (r == 0 && n)
            remove_void(c, v, seqs, n);
    } while (r == 0 && n == ARRAY_SIZE(seqs));
    return r;
}

static bool is_replaced(struct cache *c, struct intent *i, const struct voided *v)
{
    (void)c;
    return i->kind == v->kind && i->seq <= v->seq;
}

int intents_retire(struct cache *c, enum intent_kind kind, const char *path, uint64_t seq)
{
    const struct voided v = {.is_void = is_replaced, .kind = kind, .path = path, .seq = seq};

    assert(path);
    return drop_void(c, &v);
}

/* Whether the removal waited in vain. An urgent one waited for nothing; a name that has come
 * again replaces what the store has there. */
static bool waited_in_vain(struct cache *c, struct intent *i, const struct voided *v)
    REQUIRES(cache_mutex)
{
    return !intent_is_rename(i) && barrier_seq_locked(c, i->seq) > v->seq &&
           (!v->file || scope_has_locked(c, i, v->file)) && !intent_is_urgent(c, i) &&
           intent_live_at(c, i) == LIVE_NONE;
}

static void say_taken_back_locked(struct cache *c, const struct intent *i) REQUIRES(cache_mutex)
{
    log_later(&c->log, LOG_LEVEL_WARN,
              "%s was removed here after something that is kept: it stays in the store",
              i->from);
    name_is_the_stores_locked(c, i->from);
}

int intents_take_back(struct cache *c, uint64_t seq, const struct file *f)
{
    const struct voided v = {
        .is_void = waited_in_vain, .gone_locked = say_taken_back_locked, .file = f, .seq = seq};

    ns_assert_written(c);
    return drop_void(c, &v);
}
