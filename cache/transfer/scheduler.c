/* The scheduler: one thread that decides which dirty file, directory or intention goes to the
 * store next, looks at open files from time to time, and keeps the cache within its size. */
#include "cache/transfer/transfer_impl.h"

#include "cache/mirror/journal.h"
#include "common/lock.h"
#include "common/mem.h"

#include <stdlib.h>
#include <utlist.h>

/* How often open files are looked at. */
#define LOOK_NS (1 * NS_PER_SEC)

/* So many urgent files go up before it is the turn of who was closed first. */
#define URGENT_ROW 16

#ifndef NDEBUG
atomic_ullong passes_made;
#endif

/* An open log goes up each interval. */
static bool log_is_due(struct cache *c, const struct file *f, const char *path, int64_t now)
    REQUIRES(cache_mutex)
{
    int64_t interval_ns = path_interval_ns(c, path);

    return interval_ns > 0 && f->state == FILE_DIRTY &&
           now - f->uploaded_live_ns >= interval_ns && path_is_log(c, path);
}

static bool live_upload_due(struct cache *c, struct file *f, const char *path, int64_t now)
    REQUIRES(cache_mutex)
{
    return f->debt.wanted || log_is_due(c, f, path, now);
}

/* A full disk cut it off, or it is half: that goes up only for a caller who asks for it, or
 * waits for its close's content. */
static bool is_withheld_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex)
{
    return f->short_write ||
           (!f->wanted_half && !f->upload_waiters.head && file_is_half_locked(c, f->node));
}

bool upload_has_to_wait_locked(struct cache *c, struct file *f, struct place at)
{
    cache_assert_locked(c);
    return is_withheld_locked(c, f) ||
           doubt_blocks_upload_locked(c, at, f->state == FILE_DIRTY);
}

/* Whether the file is to go up, as far as it says itself. */
static bool wants_upload_locked(struct cache *c, struct file *f, const char *path, int64_t now)
    REQUIRES(cache_mutex)
{
    if ((f->write_handles && !live_upload_due(c, f, path, now)) || is_withheld_locked(c, f))
        return false;
    return !f->staged || f->debt.wanted || c->queue->drain;
}

/* Whether its unit lets the name go now; who waits for it is told if that may take for ever. */
static bool unit_lets_go(struct cache *c, struct file *f, const struct entry *e)
    REQUIRES(cache_mutex)
{
    enum unit_turn turn = unit_turn_locked(c, f, e, space_is_full_locked(c));

    if (turn == UNIT_TURN_FAIL)
        unit_tell_failure_locked(c, f, e);
    return turn == UNIT_TURN_GO;
}

/* Whether the name is to be sent now, as far as its unit, rows and other requests go. */
static enum order order_of_name(struct pass *p, struct file *f, const struct entry *e,
                                const char *path) REQUIRES(cache_mutex)
{
    struct cache *c = p->cache;

    return wants_upload_locked(c, f, path, p->now_ns) && unit_lets_go(c, f, e)
               ? order_of_upload_locked(c, path, f->state == FILE_DIRTY, &on_its_way)
               : ORDER_WAIT;
}

/* What was written since the name was sent goes there after the other names. While somebody
 * waits for one that something else keeps, this one would be sent on and on beside a writer.
 * What has none any more is sent once. */
static bool has_what_is_wanted(const struct file *f, const struct entry *e)
    REQUIRES(cache_mutex)
{
    return (f->write_handles || f->mapped_writer) && f->debt.wanted && e->stored_generation &&
           e->stored_generation >= f->wanted_generation;
}

/* The first name that may be sent of those that failed, or did not; heap or NULL. */
static char *name_that_goes(struct pass *p, struct file *f, bool failed, enum order *ret)
    REQUIRES(cache_mutex)
{
    for (struct entry *e = f->node->links; e; e = e->next_link) {
        if (!e->dirty || e->failed != failed || (failed && has_what_is_wanted(f, e)))
            continue;
        auto_free char *path = entry_path(e);
        *ret = path ? order_of_name(p, f, e, path) : ORDER_WAIT;
        if (*ret != ORDER_WAIT)
            return take_ptr(path);
    }
    return NULL;
}

static bool all_failed(const struct node *n) REQUIRES(cache_mutex)
{
    for (const struct entry *e = n->links; e; e = e->next_link)
        if (e->dirty && !e->failed)
            return false;
    return true;
}

/* The name that is to be published now, heap or NULL. One that failed comes after the others:
 * the store may refuse it for good. One that waits for a row holds no other: that may be
 * refused for good, too. */
static char *name_to_send(struct pass *p, struct file *f) REQUIRES(cache_mutex)
{
    enum order order = ORDER_WAIT;

    if (all_failed(f->node))
        for (struct entry *e = f->node->links; e; e = e->next_link)
            entry_another_round_locked(e);
    auto_free char *path = name_that_goes(p, f, false, &order);
    if (!path)
        path = name_that_goes(p, f, true, &order);
    return readers_let_go_locked(p, order, &f->debt, place_of_path(path), false)
               ? take_ptr(path)
               : NULL;
}

/* That of a file whose names owe nothing, but which may have been written since. */
static char *name_to_look_at(struct pass *p, struct file *f, bool looks) REQUIRES(cache_mutex)
{
    auto_free char *path = entry_path(f->node->links);

    if (looks) /* it sends nothing, and waits for nobody's turn */
        return is_withheld_locked(p->cache, f) ? NULL : take_ptr(path);
    enum order order = path ? order_of_name(p, f, f->node->links, path) : ORDER_WAIT;
    return readers_let_go_locked(p, order, &f->debt, place_of_path(path), false)
               ? take_ptr(path)
               : NULL;
}

/* Whether as many files are on their way to its store as may be. */
static bool store_is_busy_locked(struct cache *c, const struct node *n) REQUIRES(cache_mutex)
{
    return c->transfer->volumes[node_volume(n)].uploads >= c->config.upload_jobs;
}

static bool all_are_busy_locked(struct cache *c) REQUIRES(cache_mutex)
{
    return c->queue->uploads_running >= uploads_max(c);
}

/* Whether it is its time, as far as the debt says. */
static bool pass_reaches_locked(struct pass *p, const struct debt *d) REQUIRES(cache_mutex)
{
    return !d->running && debt_is_due(d, p->now_ns, p->next_ns);
}

/* Whether it was started. */
static bool start_upload_locked(struct pass *p, struct file *f) REQUIRES(cache_mutex)
{
    struct cache *c = p->cache;

    if (store_is_busy_locked(c, f->node))
        return false;
    if (!f->node->links) {
        file_unqueue_locked(c, f);
        return false;
    }
    bool looks = upload_is_done_locked(f->node) && !f->write_handles;
    char *path = names_owe(f->node) ? name_to_send(p, f) : name_to_look_at(p, f, looks);
    if (!path)
        return false;
    upload_start_locked(c, f->node, path, looks, p->own);
    p->own = false;
    return true;
}

/* A program that always has urgent files to write does not keep all others of the store. */
static bool start_urgent_locked(struct pass *p)
{
    struct cache *c = p->cache;
    struct file *f, *after;

    cache_assert_locked(c);
    DL_FOREACH_SAFE2(c->content->urgent, f, after, urgent_next)
    {
        unsigned *row = &c->transfer->volumes[node_volume(f->node)].urgent_row;

        if (all_are_busy_locked(c))
            return false;
        if (*row < URGENT_ROW && pass_reaches_locked(p, &f->debt) && start_upload_locked(p, f))
            (*row)++;
    }
    return !all_are_busy_locked(c);
}

static bool start_file_locked(struct pass *p, struct debt *d)
{
    struct cache *c = p->cache;
    struct file *f = debt_file(d);

    cache_assert_locked(c);
    if (start_upload_locked(p, f))
        c->transfer->volumes[node_volume(f->node)].urgent_row = 0;
    return !all_are_busy_locked(c);
}

static bool start_index_locked(struct pass *p, struct debt *d)
{
    cache_assert_locked(p->cache);
    index_start_locked(p->cache, d, p->now_ns, p->next_ns);
    return true;
}

static void indexes_end_locked(struct pass *p)
{
    cache_assert_locked(p->cache);
    index_tree_start_locked(p->cache, p->now_ns, p->next_ns);
}

/* In this order; rows are gone through twice, removals before renames. */
static const struct starter file_starter = {DEBT_FILE, start_urgent_locked, start_file_locked,
                                            NULL},
                            index_starter = {DEBT_INDEX, NULL, start_index_locked,
                                             indexes_end_locked};
static const struct starter *const starters[] = {
    &note_starter,   &file_starter,    &dir_starter,   &removal_starter,
    &rename_starter, &session_starter, &index_starter,
};

/* Starts what is due of a kind. */
static void start_kind_locked(struct pass *p, const struct starter *s) REQUIRES(cache_mutex)
{
    struct debts *q = &p->cache->queue->owed[s->kind];

    if (s->begin && !s->begin(p))
        return;
    for (struct debt *d = debts_first(q); d; d = debts_next(q))
        if (pass_reaches_locked(p, d) && !s->start(p, d))
            break;
    if (s->end)
        s->end(p);
}

void upload_ended_locked(struct cache *c, bool failed)
{
    int64_t now = clock_mono_ns(), next = now;
    struct pass p = {.cache = c, .now_ns = now, .next_ns = &next, .own = true};

    ns_assert_held(c);
    cache_assert_locked(c);
    progress_tell_locked(c);
    if (!c->stopping)
        start_kind_locked(&p, &file_starter);
    /* Removals and renames wait for uploads; what else may come next can do so with others. */
    if (failed)
        scheduler_kick_late_locked(c);
    else if (row_first(c))
        scheduler_kick_locked(c);
    else
        scheduler_kick_at_locked(c, now);
}

/* Open log files are queued on the interval; what they take on the disk is counted. */
static void look_at_writers_locked(struct cache *c, int64_t now) REQUIRES(cache_mutex)
{
    struct file *f, *after;

    DL_FOREACH_SAFE2(c->content->writers, f, after, writer_next)
    {
        struct node *n = f->node;
        node_look_locked(c, n);
        if (!n->links || f->state != FILE_DIRTY || debt_is_queued(&f->debt))
            continue;
        auto_free char *path = entry_path(n->links);
        if (path && log_is_due(c, f, path, now)) {
            file_insert_open_locked(c, f);
            debt_set_due(&f->debt, now);
        }
    }
}

static void pass_locked(struct cache *c, int64_t now, int64_t *next) REQUIRES(cache_mutex)
{
    struct pass p = {.cache = c, .now_ns = now, .next_ns = next};

#ifndef NDEBUG
    atomic_fetch_add_explicit(&passes_made, 1, memory_order_relaxed);
#endif
    units_look_locked(c, next);
    for (size_t i = 0; i < ARRAY_SIZE(starters); i++)
        start_kind_locked(&p, starters[i]);
}

static void *scheduler_main(void *arg) EXCLUDES(cache_ns, cache_mutex)
{
    struct cache *c = arg;
    int64_t looked = 0;

    (void)pthread_setname_np(pthread_self(), "runfs-scheduler");
    cache_lock(c);
    while (!c->stopping) {
        int64_t now = clock_mono_ns(), next = now + LOOK_NS;
        c->pass_ns = INT64_MAX; /* a kick from now on may follow a change of what was seen */
        cache_unlock(c);
        /* A removal or a move decides under ns whether the store may know the name, and writes
         * its row: no upload may start in between. */
        ns_read(c);
        cache_lock(c);
        if (now - looked >= LOOK_NS) {
            look_at_writers_locked(c, now);
            locks_reap_locked(c);
            looked = now;
        }
        /* Whoever ends the mount waits for what runs, and for nothing that begins later. */
        int64_t begun = clock_mono_ns();
        if (!c->stopping)
            pass_locked(c, now, &next);
        c->pass_took_ns = clock_mono_ns() - begun;
        cache_check_locked(c);
        cache_unlock(c);
        ns_done(c);
        evict_if_needed(c, looked == now);
        if (looked == now)
            (void)journal_retry(c->journal);
        cache_lock(c);
        c->pass_ns = next < c->pass_ns ? next : c->pass_ns;
        while (!c->stopping && clock_mono_ns() < c->pass_ns)
            (void)cache_wait_until(c, &c->kick, c->pass_ns);
    }
    cache_unlock(c);
    return NULL;
}

int scheduler_start(struct cache *c)
{
    int r = pthread_create(&c->transfer->scheduler, NULL, scheduler_main, c);

    c->transfer->scheduler_runs = r == 0;
    return -r;
}

void scheduler_join(struct cache *c)
{
    if (c->transfer->scheduler_runs)
        (void)pthread_join(c->transfer->scheduler, NULL);
}
