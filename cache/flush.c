/* flush: waits until the store has all below a path, and hurries it. */
#include "cache/flush.h"

#include "common/err.h"
#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#define PAUSE_NS       (5 * NS_PER_MS)
#define AWAIT_PAUSE_NS (50 * NS_PER_MS)
#define EMPTY_NS       (1 * NS_PER_SEC) /* a program needs no longer to remove a directory */
#define NOTHING_NS     (5 * NS_PER_SEC) /* nothing came for so long: nothing will soon */

static bool target_done(const struct flush *fl, const struct target *t) REQUIRES(cache_mutex)
{
    struct node *n = t->node;

    if (!node_owes(n))
        return true;
    if (n->dir || !file_stored_locked(n, t->generation))
        return false;
    bool awaits = fl->flags & CACHE_FLUSH_AWAIT; /* it does without the look that is left */
    return awaits || names_owe(n) || n->file->state != FILE_DIRTY || n->file->write_handles > 0;
}

/* Who removes a checkpoint removes its files first; nobody is to see what is left meanwhile. */
static int64_t dir_due_ns(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    bool empty = n->dir->new_here && !n->dir->children;

    return empty && !c->queue->drain && unit_idle_at_locked(c, n) ? clock_mono_ns() + EMPTY_NS
                                                                  : 0;
}

/* Each change below it puts it off again, as when its files come to be stored: it is hurried
 * once after each. A pass that puts it off because it waits for its names is none: it looks at
 * these again in its own time. What failed waits for its next attempt. */
static void hurry_dir_locked(struct flush *fl, struct target *t, bool first)
    REQUIRES(cache_mutex)
{
    struct dir *dir = t->node->dir;
    struct debt *d = &dir->debt;

    if (first || (!d->error && dir->generation != t->hurried)) {
        int64_t due_ns = dir_due_ns(fl->cache, t->node);
        fl->hurried |= d->due_ns > due_ns;
        debt_set_due(d, d->due_ns > due_ns ? due_ns : d->due_ns);
        t->hurried = dir->generation;
    }
    debt_want(d, true);
}

/* Makes all due at once, settled or not. */
static void hurry_locked(struct flush *fl, struct target *t, bool first) REQUIRES(cache_mutex)
{
    struct cache *c = fl->cache;
    struct node *n = t->node;
    struct file *f = n->file;

    if (fl->flags & CACHE_FLUSH_AWAIT)
        return;
    if (n->dir) {
        hurry_dir_locked(fl, t, first);
        return;
    }
    assert(f); /* what owes something and is no directory has a file */
    fl->hurried |= !f->debt.wanted;
    file_want_locked(f, t->generation);
    f->wanted_half = f->wanted_half || (fl->flags & CACHE_FLUSH_HALF);
    if (first)
        debt_set_due(&f->debt, 0);
    if (!debt_is_queued(&f->debt)) {
        file_insert_open_locked(c, f);
        file_lru_remove_locked(c, f);
        fl->hurried = true;
    }
}

/* The caller would take for done what is left out without a path to tell of it. */
static void tell_of(char **what, char *path, int *error, struct op *op)
{
    free(*what);
    *what = path;
    if (!path)
        *error = op_fail(op, -ENOMEM, "there is no memory to say what is not in the store");
}

/* A removal waits for each file that was closed before it, also for one that is made anew now:
 * its writer may take for ever. What has its place for a move to another store alone holds no
 * other removal. */
static struct node *first_half_locked(const struct flush *fl) REQUIRES(cache_mutex)
{
    struct cache *c = fl->cache;
    struct file *f;

    if ((fl->flags & CACHE_FLUSH_HALF) || !row_first(c))
        return NULL;
    OWED_FILES_FOREACH(c, f)
    {
        if (!f->debt.seq || f->debt.seq > barrier_seq_locked(c, row_last(c)->seq))
            return NULL;
        if (!f->unclosed && file_is_half_locked(c, f->node))
            return f->node;
    }
    return NULL;
}

/* The first such file that the row waits for, or NULL; `half` is the first of all. */
static struct node *half_before_locked(struct cache *c, const struct intent *i,
                                       const struct node *half) REQUIRES(cache_mutex)
{
    struct file *f = half && !intent_is_rename(i) ? half->file : NULL;
    uint64_t until = f ? barrier_seq_locked(c, i->seq) : 0;

    for (; f && f->debt.seq && f->debt.seq < until; f = debt_file(f->debt.next))
        if (!f->unclosed && file_is_half_locked(c, f->node) && scope_has_locked(c, i, f))
            return f->node;
    return NULL;
}

/* Only its writer's close or rename sends it, or a caller who may ask for more than to wait. */
static bool waits_for_writer_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    const struct file *f = n->dir ? NULL : n->file;

    if (f && !f->write_handles)
        return f->staged;
    auto_free char *path = node_path(n);
    return path && (f ? f->staged || !path_is_log(c, path) : path_is_staged_dir(c, path));
}

/* Nobody waits for a half file: its writer may take for ever. */
static bool is_left_out_locked(const struct flush *fl, struct node *n) REQUIRES(cache_mutex)
{
    bool half = !(fl->flags & CACHE_FLUSH_HALF) && !n->dir && file_is_half_locked(fl->cache, n);

    return half || ((fl->flags & CACHE_FLUSH_AWAIT) && waits_for_writer_locked(fl->cache, n));
}

/* Nor for the removal of the name that it left for another store. It is told of as a target. */
static bool goes_with_half_locked(const struct flush *fl, const struct intent *i)
    REQUIRES(cache_mutex)
{
    struct file *f = flush_awaited_elsewhere_locked(fl->cache, i);

    return f && is_left_out_locked(fl, f->node);
}

/* Nor for the removal of what had the name of a half file: that goes when its writer ends. */
static struct node *half_in_its_place_locked(const struct flush *fl, const struct intent *i)
    REQUIRES(cache_mutex)
{
    struct node *n = intent_is_rename(i) ? NULL : tree_find(fl->cache, i->from, NULL);
    bool half = n && n->file && !i->debt.running && is_left_out_locked(fl, n);

    return half && intent_live_at(fl->cache, i) == LIVE_WAIT ? n : NULL;
}

/* Whether it goes only when a writer ends or pauses: that is told of. */
static bool is_row_left_out_locked(struct flush *fl, const struct intent *i, struct node *half,
                                   int *error, struct op *op) REQUIRES(cache_mutex)
{
    if (fl->half && goes_with_half_locked(fl, i))
        return true;
    struct node *behind = half_before_locked(fl->cache, i, half);
    behind = behind ? behind : half_in_its_place_locked(fl, i);

    if (behind) {
        tell_of(&fl->half, node_path(behind), error, op);
        return true;
    }
    if (lock_holds_row_locked(fl->cache, i)) {
        tell_of(&fl->locked, strdup(i->from), error, op);
        return true;
    }
    if (intent_is_rename(i) || !rounds_are_over_locked(fl->cache, &fl->rounds, i))
        return false;
    tell_of(&fl->in_vain, strdup(i->from), error, op);
    return true;
}

/* A refused rename and the removal after it have become one since the flush began: there is
 * perhaps another file to wait for. */
static void add_joined_locked(struct flush *fl, const struct intent *i, int *error,
                              struct op *op) REQUIRES(cache_mutex)
{
    int r = i->since ? flush_add_moved_locked(fl, i) : 0;

    if (r < 0)
        *error = op_fail(op, r, "there is no memory to wait for what left %s", i->from);
}

/* Whether it failed since the flush began, and what is in its way does not go by itself. */
static bool row_failed_for_good_locked(const struct flush *fl, const struct intent *i)
    REQUIRES(cache_mutex)
{
    return i->debt.error && i->debt.failed_ns >= fl->began_ns &&
           !err_is_transient(i->debt.error) &&
           !(intent_is_in_the_way(i->debt.error) && intents_before_locked(fl->cache, i->seq));
}

/* True when all of them are done; else what is known of a failure, as look_locked(). */
static bool look_at_intents_locked(struct flush *fl, bool first, int *error, bool *final,
                                   struct op *op) REQUIRES(cache_mutex)
{
    bool done = true;
    struct node *half = first_half_locked(fl);
    struct intent *i;

    ROWS_FOREACH(fl->cache, i)
    {
        if (!flush_concerns_locked(fl, i))
            continue;
        fl->rows++;
        add_joined_locked(fl, i, error, op);
        if (is_row_left_out_locked(fl, i, half, error, op)) {
            fl->behind++;
            continue;
        }
        done = false;
        bool stays = row_failed_for_good_locked(fl, i);
        fl->coming += i->debt.running || !stays;
        if (!(fl->flags & CACHE_FLUSH_AWAIT))
            units_hurry_locked(fl->cache);
        if (first && i->debt.error && !(fl->flags & CACHE_FLUSH_AWAIT))
            debt_set_due(&i->debt, 0);
        if (i->debt.error && i->debt.failed_ns >= fl->began_ns && (*error == 0 || !*final)) {
            const char *text = i->debt.why && *i->debt.why ? i->debt.why : NULL;
            *error = op_fail(op, i->debt.error, "%s", text ? text : strerror(-i->debt.error));
            *final = stays;
        }
    }
    return done;
}

/* Whether what failed for something in its way is worth another attempt: while there are
 * intentions, and once after the last of them. */
static bool clears_up_locked(struct flush *fl, struct target *t, int err, unsigned attempts)
    REQUIRES(cache_mutex)
{
    if (!intent_is_in_the_way(err))
        return false;
    if (intents_before_locked(fl->cache, UINT64_MAX)) {
        t->attempts = attempts;
        return true;
    }
    if (attempts > t->attempts + 1)
        return false;
    if (fl->flags & CACHE_FLUSH_AWAIT)
        return true;
    fl->hurried |= flush_debt_of(t->node)->due_ns != 0;
    debt_set_due(flush_debt_of(t->node), 0);
    return true;
}

static bool skip_half_locked(struct flush *fl, struct node *n, int *error, struct op *op)
    REQUIRES(cache_mutex)
{
    if (!is_left_out_locked(fl, n))
        return false;
    tell_of(&fl->half, node_path(n), error, op);
    return true;
}

/* Of a directory that took the name of a half file: what lies in its way, where a directory
 * can't be beside a file, goes after that file. */
static bool lies_behind_half_locked(struct flush *fl, struct node *n, int err, int *error,
                                    struct op *op) REQUIRES(cache_mutex)
{
    struct intent *i;

    if (!intent_is_in_the_way(err))
        return false;
    auto_free char *path = node_path(n);
    ROWS_FOREACH(fl->cache, i)
    {
        if (!path || !path_below(i->from, path) || !goes_with_half_locked(fl, i))
            continue;
        tell_of(&fl->half, node_path(flush_awaited_elsewhere_locked(fl->cache, i)->node), error,
                op);
        return true;
    }
    return false;
}

struct behind {
    struct flush *fl;
    const struct node *dir;
    struct node *half;
    int *error;
    struct op *op;
};

static bool holds_dir(void *arg, const struct intent *i, const char *at) REQUIRES(cache_mutex)
{
    const struct behind *b = arg;

    return flush_concerns_locked(b->fl, i) &&
           (b->dir->dir->mtime_set ? intent_is_of_name_in(i, at) : strcmp(i->from, at) == 0) &&
           is_row_left_out_locked(b->fl, i, b->half, b->error, b->op);
}

/* Nor for a directory that goes after an intention which is left out: the removal of what had
 * its name, or, when its time is owed, of what was in it. */
static bool lies_behind_row_locked(struct flush *fl, struct node *n, int *error, struct op *op)
    REQUIRES(cache_mutex)
{
    struct behind b = {.fl = fl, .dir = n, .error = error, .op = op};

    if (!n->dir || n->dir->debt.running || !fl->behind)
        return false;
    auto_free char *path = node_path(n);
    b.half = first_half_locked(fl);
    return path && intent_below_is(fl->cache, path, holds_dir, &b) > 0;
}

/* Another node's version took a name: the content from here is kept aside. */
static bool lost_to_another(struct target *t) REQUIRES(cache_mutex)
{
    const struct file *f = t->node->dir ? NULL : t->node->file; /* or it was evicted since */

    t->lost = t->lost ||
              (f && (f->losses > t->losses || (f->debt.error == -ESTALE && !t->node->links)));
    return t->lost;
}

/* Tells of it, by what was said of the attempt as long as that is known. */
static int tell_lost(const struct flush *fl, const struct target *t, struct op *op)
    REQUIRES(cache_mutex)
{
    const struct debt *d = t->node->file ? &t->node->file->debt : NULL;

    return d && d->error == -ESTALE && d->why
               ? op_fail(op, -ESTALE, "%s", d->why)
               : op_fail(op, -ESTALE, "another node's version took a name: see %s/kept",
                         fl->cache->mirror.dir);
}

/* A new directory is owed no more when a name in it is to stand for it. That name went, or does
 * not come: nothing that the flush sends will stand for it, so its marker goes. A waiter for
 * what comes by itself asks for none. */
static bool asks_for_marker_locked(struct flush *fl, struct target *t) REQUIRES(cache_mutex)
{
    struct node *n = t->node;
    struct dir *dir = n->dir;

    if (!dir || !dir->new_here || dir->kind != DIR_STORED || !n->links ||
        debt_is_queued(&dir->debt))
        return false;
    auto_free char *path = node_path(n);
    if (!path || (!(fl->flags & CACHE_FLUSH_STAGED) && path_is_staged_dir(fl->cache, path)))
        return false;
    dir_queue_locked(fl->cache, n);
    hurry_dir_locked(fl, t, true);
    return true;
}

static bool ask_for_markers_locked(struct flush *fl) REQUIRES(cache_mutex)
{
    bool asked = false;

    if (fl->flags & CACHE_FLUSH_AWAIT)
        return false;
    for (size_t i = 0; i < fl->n; i++)
        asked = asks_for_marker_locked(fl, &fl->v[i]) || asked;
    return asked;
}

/* Other mounts do not see a unit before its note is gone. A failure from before the flush says
 * nothing of the attempt that it asks for. */
static bool waits_for_note_locked(struct flush *fl, bool first, int *error, bool *final,
                                  struct op *op) REQUIRES(cache_mutex)
{
    struct debt *d;

    if (!notes_are_awaited_locked(fl->cache, fl->path, &d))
        return false;
    fl->coming++;
    if (first && !(fl->flags & CACHE_FLUSH_AWAIT))
        debt_set_due(d, 0);
    if (d->error && (d->attempts == 0 || d->failed_ns > fl->began_ns) && *error == 0) {
        *error = op_fail(op, d->error, "%s", d->why ? d->why : strerror(-d->error));
        *final = !err_is_transient(d->error);
    }
    return true;
}

/* True when nothing is left to wait for; beside that what is known of the progress and of a
 * failure, and whether that stays. */
static bool look_locked(struct flush *fl, bool first, uint64_t *done, uint64_t *total,
                        int *error, bool *final, struct op *op) REQUIRES(cache_mutex)
{
    bool all = true;

    *done = *total = 0;
    fl->left = fl->rows = fl->coming = 0; /* behind: as the last look found it */
    fl->hurried = first;
    free(take_ptr(fl->in_vain));
    free(take_ptr(fl->locked));
    free(take_ptr(fl->half));
    for (size_t i = 0; i < fl->n; i++) {
        struct node *n = fl->v[i].node;
        uint64_t size = fl->v[i].size,
                 sent = n->file && n->file->debt.running ? n->file->upload_done : 0;
        bool ok = target_done(fl, &fl->v[i]);
        *total += size;
        *done += ok || sent > size ? size : sent;
        if (lost_to_another(&fl->v[i]) && ok)
            *error = tell_lost(fl, &fl->v[i], op);
        if (ok || skip_half_locked(fl, n, error, op) ||
            lies_behind_half_locked(fl, n, flush_debt_of(n)->error, error, op) ||
            lies_behind_row_locked(fl, n, error, op))
            continue;
        all = false;
        fl->left++;
        fl->coming++;
        hurry_locked(fl, &fl->v[i], first);
        /* A failure from before the flush says nothing of the attempt that it asks for. */
        const struct debt *d = flush_debt_of(n);
        bool cut = n->file && n->file->short_write; /* a full disk cut the content off */
        if (!d->error || (!cut && d->attempts == fl->v[i].attempts))
            continue;
        bool stays = cut || !(err_is_transient(d->error) ||
                              clears_up_locked(fl, &fl->v[i], d->error, d->attempts));
        fl->coming -= stays;
        if (*error == 0 || (stays && !*final)) {
            auto_free char *path = cut ? node_path(n) : NULL;
            *error = op_fail(op, d->error, "%s%s%s", path ? path : "", path ? ": " : "",
                             d->why ? d->why : strerror(-d->error));
            *final = stays;
        }
    }
    fl->behind = 0;
    all = look_at_intents_locked(fl, first, error, final, op) && all;
    all = all && !ask_for_markers_locked(fl);
    all = !waits_for_note_locked(fl, first, error, final, op) && all;
    return all && (*fl->path != '\0' || !sessions_pending_locked(fl->cache));
}

/* With much left, looking at each upload would take the lock, and the processor, from the
 * uploaders: poll instead. */
static bool much_is_left(const struct flush *fl)
{
    return (fl->flags & CACHE_FLUSH_AWAIT) ||
           fl->left + fl->rows > (size_t)fl->cache->config.upload_jobs * 4;
}

/* The store has all else. */
static int tell_rest(const struct flush *fl, struct op *op)
{
    if (fl->half)
        return op_fail(op, -ETXTBSY,
                       "%s is being written, and not published half: close or fsync() it, "
                       "or publish it as it is with `runfs flush --open`",
                       fl->half);
    if (fl->locked)
        return op_fail(op, -EBUSY,
                       "%s was removed here, and stays in the store as long as somebody has it "
                       "locked: `runfs locks` tells who; flush once more when they have ended",
                       fl->locked);
    if (!fl->in_vain)
        return 0;
    return op_fail(
        op, -EBUSY,
        "%s was removed here, and stays in the store until what was closed before is "
        "there, but that is removed or replaced again and again: flush once more when "
        "its writers pause",
        fl->in_vain);
}

/* What the store had at a look, and when it last got something. */
struct advance {
    uint64_t done;
    size_t left, rows;
    int64_t last_ns;
};

/* Whether a flush that has failed for good goes on: the rest comes yet, which umount and `runfs
 * recover` may have no other chance for. A store that takes nothing ends it. (The rename of a
 * directory that gets on becomes more rows.) */
static bool goes_on(const struct flush *fl, struct advance *a, uint64_t done)
{
    int64_t now = clock_mono_ns();

    if (!a->last_ns || done > a->done || fl->left < a->left || fl->rows != a->rows)
        *a = (struct advance){done, fl->left, fl->rows, now};
    return fl->coming && !(fl->flags & CACHE_FLUSH_AWAIT) && now - a->last_ns < NOTHING_NS;
}

static void sleep_ns(int64_t ns)
{
    const struct timespec pause = {.tv_nsec = ns}; /* less than a second */

    (void)nanosleep(&pause, NULL);
}

static int wait_flushed(struct flush *fl, struct op *op,
                        void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg)
{
    const bool awaits = fl->flags & CACHE_FLUSH_AWAIT; /* any process may, often */
    struct cache *c = fl->cache;
    struct advance advance = {0};
    bool first = true;
    int r = 0;

    for (;;) {
        uint64_t done, total;
        int error = 0;
        cache_lock(c);
        int64_t looked_ns = clock_mono_ns();
        bool final = false;
        bool all = look_locked(fl, first, &done, &total, &error, &final, op);
        int64_t took_ns = clock_mono_ns() - looked_ns;
        bool much = much_is_left(fl);
        if (!all && fl->hurried)
            scheduler_kick_locked(c);
        if (!all && !much)
            (void)cache_wait_until(c, &c->progress, clock_mono_ns() + TICK_NS);
        bool stopping = c->stopping;
        cache_unlock(c);
        int64_t least_ns = !much ? 0 : awaits ? AWAIT_PAUSE_NS : PAUSE_NS;
        if (!all)
            sleep_ns(blocking_pause_ns(took_ns, least_ns));
        first = false;
        if (progress)
            progress(arg, done, total);
        if (all || (awaits && fl->half))
            return error ? error : tell_rest(fl, op);
        if (final && !goes_on(fl, &advance, done))
            return error;
        struct op probe = *op;
        r = stopping ? -EINTR : op_check(&probe);
        if (r < 0 && final)
            return error;
        if (r < 0)
            return error ? r : op_fail(op, r, "not everything is in the store yet");
    }
}

static void unwant_locked(const struct flush *fl) REQUIRES(cache_mutex)
{
    for (size_t i = 0; i < fl->n; i++) {
        struct node *n = fl->v[i].node;

        if (n->dir)
            debt_want(&n->dir->debt, false);
        else if (n->file)
            file_unwant_locked(n->file);
    }
}

int cache_flush_path(struct cache *c, const char *path, unsigned flags, struct op *op,
                     void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes),
                     void *arg)
{
    struct flush fl = {.cache = c, .path = path, .flags = flags, .began_ns = clock_mono_ns()};

    int r = flush_look_past(c, path);
    cache_lock(c);
    bool drains = (flags & CACHE_FLUSH_STAGED) && *path == '\0';
    c->queue->drain += drains;
    if (r == 0)
        r = flush_gather_locked(&fl);
    if (!(flags & CACHE_FLUSH_AWAIT))
        units_ask_locked(c, path);
    cache_unlock(c);
    if (r == 0)
        r = wait_flushed(&fl, op, progress, arg);
    else
        (void)op_fail(op, r, "flush: %s", strerror(-r));
    cache_lock(c);
    c->queue->drain -= drains;
    if (!(flags & CACHE_FLUSH_AWAIT))
        unwant_locked(&fl);
    flush_drop_targets_locked(&fl);
    cache_unlock(c);
    free(fl.v);
    free(fl.half);
    free(fl.in_vain);
    free(fl.locked);
    return r;
}
