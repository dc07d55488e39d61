/* The order at the store (docs/format.md, section 4): whether a row, or an upload, may go now.
 * It is decided by what is owed, and by what is on its way, which transfer/ tells by struct
 * order_world. Nothing is begun here. */
#include "cache/queue/queue_impl.h"

#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <stdlib.h>
#include <string.h>

/* ---- rows that wait for each other ---- */

static bool overlap(const char *a, const char *b)
{
    return path_below(a, b) || path_below(b, a);
}

/* Whether the row reads or writes `path`, something below it, or something above it. What is
 * below a file's name, or above it, is of another kind than it was, or will be. */
static bool touches(const struct intent *i, const char *path)
{
    if (intent_is_rename(i))
        return overlap(i->from, path) || overlap(i->to, path);
    return strcmp(i->from, path) == 0;
}

/* Many stores, S3 servers among them, put nothing at or below a name of the other kind: what
 * was a file and is a directory now, or the reverse. Its removal can't wait for the uploads
 * that were closed before it: those that it is in the way of wait for it. */
static bool in_the_way(struct cache *c, const struct intent *i)
{
    auto_free char *at = strdup(i->from);
    bool was_dir = i->kind == INTENT_RMDIR;

    while (at && *at) {
        struct node *n = tree_find(c, at, NULL);
        if (n)
            return (n->dir != NULL) != was_dir;
        char *end = strrchr(at, '/');
        *(end ? end : at) = '\0';
        was_dir = true;
    }
    return false;
}

/* Whether something of the rename's kind can't be at `path` before the removal is done: what it
 * removes has the name, or one above or below it, and is of the other kind. */
static bool conflicts(const struct intent *removal, const struct intent *rename,
                      const char *path)
{
    bool dir_goes = removal->kind == INTENT_RMDIR;
    bool dir_comes = rename->kind == INTENT_RENAMEDIR;

    if (strcmp(removal->from, path) == 0)
        return dir_goes != dir_comes;
    if (path_below(removal->from, path))
        return !dir_goes;
    return path_below(path, removal->from) && !dir_comes;
}

/* A rename neither takes along what is removed first, nor finds it in its way. */
static bool waits_for(const struct intent *rename, const struct intent *removal)
    REQUIRES(cache_mutex)
{
    return conflicts(removal, rename, rename->from) || conflicts(removal, rename, rename->to) ||
           (removal->urgent && path_below(rename->to, removal->from));
}

static bool rename_waits_for(void *removal, struct intent *i) REQUIRES(cache_mutex)
{
    return waits_for(i, removal);
}

bool order_later_rename_waits(struct cache *c, const struct intent *removal)
{
    const struct row_ask later = {.sets = ROWS_RENAMING,
                                  .path = removal->from,
                                  .since = removal->seq + 1,
                                  .is = rename_waits_for,
                                  .arg = (void *)removal};

    /* What is below a directory is no matter to what comes there. */
    return row_over_locked(c, &later) ||
           (removal->kind != INTENT_RMDIR && row_below_locked(c, &later));
}

bool intent_is_urgent(struct cache *c, const struct intent *removal)
{
    cache_assert_locked(c);
    return in_the_way(c, removal) || order_later_rename_waits(c, removal);
}

/* After one failure of the removal the rename is tried nevertheless: not all stores mind. */
static bool holds_rename(void *rename, struct intent *i) REQUIRES(cache_mutex)
{
    return !i->debt.error && waits_for(rename, i);
}

bool order_removal_in_the_way(struct cache *c, const struct intent *rename)
{
    struct row_ask ask = {.sets = ROWS_REMOVING,
                          .path = rename->from,
                          .until = rename->seq,
                          .is = holds_rename,
                          .arg = (void *)rename};

    /* What goes below the old name of a directory is in nobody's way there. */
    if (row_over_locked(c, &ask) ||
        (rename->kind != INTENT_RENAMEDIR && row_below_locked(c, &ask)))
        return true;
    ask.path = rename->to;
    return row_touching_locked(c, &ask);
}

static bool blocks_upload(struct cache *c, const struct intent *i, const char *path, bool dir)
    REQUIRES(cache_mutex)
{
    /* A directory has room for files that come and go below it. */
    bool below = dir && i->kind == INTENT_RENAME && !path_below(i->from, path) &&
                 !path_below(i->to, path);

    if ((intent_is_rename(i) || i->debt.running) && !below && touches(i, path))
        return true;
    return !intent_is_rename(i) && !i->debt.error && overlap(i->from, path) && in_the_way(c, i);
}

struct upload_ask {
    struct cache *cache;
    const char *path;
    bool dir, stuck; /* only stuck rows are meant */
};

static bool blocks(void *arg, struct intent *i) REQUIRES(cache_mutex)
{
    const struct upload_ask *u = arg;

    return (i->stuck || !u->stuck) && blocks_upload(u->cache, i, u->path, u->dir);
}

/* Whether an upload, of a directory's marker or of a file, has to wait for a row. */
static bool row_blocks(struct upload_ask u) REQUIRES(cache_mutex)
{
    const struct row_ask ask = {.sets = ROWS_ALL, .path = u.path, .is = blocks, .arg = &u};

    return row_touching_locked(u.cache, &ask);
}

bool order_row_blocks_upload(struct cache *c, const char *path, bool dir)
{
    return row_blocks((struct upload_ask){.cache = c, .path = path, .dir = dir});
}

struct marker_ask {
    struct cache *cache;
    const char *path;
    bool (*is)(void *arg, struct intent *i);
    void *arg;
};

/* The directory that had the name before goes first, failed or not. */
static bool holds_marker(void *arg, struct intent *i) REQUIRES(cache_mutex)
{
    const struct marker_ask *m = arg;
    bool had_name = i->kind == INTENT_RMDIR && strcmp(i->from, m->path) == 0;

    return (had_name || blocks_upload(m->cache, i, m->path, true)) && m->is(m->arg, i);
}

bool marker_waits_for_row_locked(struct cache *c, const char *path,
                                 bool (*is)(void *arg, struct intent *i), void *arg)
{
    struct marker_ask m = {.cache = c, .path = path, .is = is, .arg = arg};
    const struct row_ask ask = {.sets = ROWS_ALL, .path = path, .is = holds_marker, .arg = &m};

    cache_assert_locked(c);
    return row_touching_locked(c, &ask);
}

/* Whether the intention has to wait for `first`, which comes before it. */
static bool follows(const struct intent *i, const struct intent *first) REQUIRES(cache_mutex)
{
    if (intent_is_rename(first))
        return touches(first, i->from) || (i->to && touches(first, i->to));
    return intent_is_rename(i) && !first->debt.error && waits_for(i, first);
}

static bool is_stuck_before(void *arg, struct intent *first) REQUIRES(cache_mutex)
{
    return first->stuck && follows(arg, first);
}

/* Whether the intention has to wait for a stuck one. Those that came before it are judged. */
static bool follows_stuck(struct cache *c, struct intent *i) REQUIRES(cache_mutex)
{
    struct row_ask ask = {.sets = intent_is_rename(i) ? ROWS_ALL : ROWS_RENAMING,
                          .path = i->from,
                          .until = i->seq,
                          .is = is_stuck_before,
                          .arg = i};

    if (row_touching_locked(c, &ask))
        return true;
    ask.path = i->to;
    return i->to && row_touching_locked(c, &ask);
}

bool intents_look_stuck_locked(struct cache *c, int64_t since_ns)
{
    struct intent *i;
    bool any = false;

    cache_assert_locked(c);
    ROWS_FOREACH(c, i)
    {
        i->stuck = i->debt.error && i->debt.failing_ns < since_ns;
        if (any && !i->stuck)
            i->stuck = follows_stuck(c, i);
        any = any || i->stuck;
    }
    return any;
}

bool stuck_intent_blocks_locked(struct cache *c, const char *path)
{
    cache_assert_locked(c);
    return row_blocks((struct upload_ask){.cache = c, .path = path, .stuck = true});
}

bool order_earlier_rename_touches(struct cache *c, const struct intent *self, const char *path)
{
    const struct row_ask ask = {.sets = ROWS_RENAMING, .path = path, .until = self->seq};

    return c->queue->renames && row_touching_locked(c, &ask);
}

bool intent_comes_first(struct cache *c, const struct intent *i)
{
    cache_assert_locked(c);
    return !order_earlier_rename_touches(c, i, i->from) &&
           !order_earlier_rename_touches(c, i, i->to);
}

bool intents_before_locked(struct cache *c, uint64_t seq)
{
    cache_assert_locked(c);
    return row_first(c) && row_first(c)->seq < seq;
}

/* ---- removals ---- */

/* A later rename that runs counts, too: it may bring there what is meant to stay, and retires
 * the removal. */
static bool goes_before(void *arg, struct intent *i) REQUIRES(cache_mutex)
{
    const struct intent *removal = arg;

    return i->seq < removal->seq || i->debt.running;
}

bool order_rename_comes_first(struct cache *c, const struct intent *removal)
{
    const struct row_ask ask = {.sets = ROWS_RENAMING,
                                .path = removal->from,
                                .is = goes_before,
                                .arg = (void *)removal};

    return c->queue->renames && row_touching_locked(c, &ask);
}

/* Whether the removal means what this cache put itself, and an older one is to take the version
 * at the name that it found there: that is nobody else's. Not one that waits for another store
 * to have what it names: that may take for ever. */
static bool follows_removal(struct cache *c, const struct intent *removal) REQUIRES(cache_mutex)
{
    const struct intent *i;

    if (!intent_means_ours(removal))
        return false;
    for (i = row_of_name_locked(c, removal->from); i && i != removal; i = row_of_name_next(i))
        if (i->kind == INTENT_UNLINK && intent_version_is_known(i) && !i->moved_to)
            return true;
    return false;
}

/* A directory goes after what is below it. */
bool order_removals_below(struct cache *c, const struct intent *self)
{
    const struct row_ask ask = {.sets = ROWS_TAKING, .path = self->from, .until = self->seq};

    return row_below_locked(c, &ask);
}

/* Nothing sends the file that has the name now before it is renamed, and it expects nothing
 * there. */
static bool name_waits_for_rename(struct cache *c, const struct intent *i) REQUIRES(cache_mutex)
{
    struct entry *e = NULL;
    struct node *n = tree_find(c, i->from, &e);
    const struct file *f = n ? n->file : NULL;

    return f && e && !f->debt.wanted && !f->debt.running && !c->queue->drain &&
           !etag_known(&e->etag) && !place_known(e->source) &&
           file_waits_for_rename_locked(c, n);
}

/* What has the name again goes up first, and makes the removal void. */
static bool waits_for_its_name(struct cache *c, const struct intent *i) REQUIRES(cache_mutex)
{
    return intent_live_at(c, i) == LIVE_WAIT && !order_later_rename_waits(c, i) &&
           !name_waits_for_rename(c, i);
}

static bool runs(void *arg, struct intent *i) REQUIRES(cache_mutex)
{
    (void)arg;
    return i->debt.running;
}

bool order_removal_runs_at(struct cache *c, const char *path, bool below)
{
    const struct row_ask ask = {.sets = ROWS_REMOVING, .path = path, .is = runs};

    if (c->queue->removals_running == 0)
        return false;
    return row_at_locked(c, &ask) || (below && row_below_locked(c, &ask));
}

static bool is_running_rmdir(void *arg, struct intent *i) REQUIRES(cache_mutex)
{
    return runs(arg, i) && i->kind == INTENT_RMDIR;
}

/* Whether the store is just removing the directory there, or one above it whose removal may
 * take the directory's own object: with routes one key can be behind both. What comes there
 * before such a removal has looked is found by it, and stays. */
bool order_rmdir_runs_above(struct cache *c, const char *path)
{
    const struct row_ask ask = {.sets = ROWS_REMOVING, .path = path, .is = is_running_rmdir};

    return c->config.routes && c->queue->removals_running && row_over_locked(c, &ask);
}

struct volume_ask {
    struct cache *cache;
    unsigned volume;
};

static bool runs_on_volume(void *arg, struct intent *i) REQUIRES(cache_mutex)
{
    const struct volume_ask *of = arg;

    return i->debt.running && volumes_meet(intent_lone_volume(of->cache, i), of->volume);
}

/* Whether that store (0: of several) is just removing something below the place. A server that
 * keeps its objects in folders removes a folder with its last object unless that has a marker:
 * one that comes between the look and the removal goes with it. */
static bool removal_runs_below(struct cache *c, struct place dir, unsigned volume)
    REQUIRES(cache_mutex)
{
    struct volume_ask of = {c, volume};
    const struct row_ask ask = {
        .sets = ROWS_REMOVING, .path = place_path(dir), .is = runs_on_volume, .arg = &of};

    return c->queue->removals_running && (row_at_locked(c, &ask) || row_below_locked(c, &ask));
}

/* ---- whose turn it is ---- */

/* Nothing else is in the way of what takes something away there. */
static enum order after_readers(struct cache *c, const struct order_world *w, struct place at,
                                bool below)
{
    return w->readers_at(c, at, below) ? ORDER_READERS : ORDER_GO;
}

/* What arrives late below the old name must be listed: the copies begin when nothing can. */
static bool more_may_arrive(struct cache *c, const struct intent *i, int64_t *next_ns)
    REQUIRES(cache_mutex)
{
    if (i->kind != INTENT_RENAMEDIR)
        return false;
    int64_t until_ns = doubt_until_locked(c);
    int64_t puts_ns = doubt_puts_below_until_locked(c, intent_source(i));
    until_ns = puts_ns > until_ns ? puts_ns : until_ns;
    if (until_ns <= clock_mono_ns())
        return false;
    *next_ns = until_ns < *next_ns ? until_ns : *next_ns;
    return true;
}

static enum order order_of_rename(struct cache *c, const struct intent *i,
                                  const struct order_world *w, int64_t *next_ns)
    REQUIRES(cache_mutex)
{
    const struct place from = intent_source(i), to = intent_target(i);
    bool below = i->kind == INTENT_RENAMEDIR;

    if (more_may_arrive(c, i, next_ns) || doubt_blocks_intent_locked(c, i))
        return ORDER_WAIT;
    if (w->upload_at(c, from, below) || w->upload_at(c, to, below) ||
        w->marker_at(c, from, below) || w->marker_at(c, to, below))
        return ORDER_WAIT;
    /* The marker of a directory that is replaced is removed. */
    if (below && w->marker_above(c, to, intent_lone_volume(c, i)))
        return ORDER_WAIT;
    if (order_removal_runs_at(c, i->from, below) || order_removal_runs_at(c, i->to, below))
        return ORDER_WAIT;
    if (below && order_rmdir_runs_above(c, i->to)) /* it brings markers */
        return ORDER_WAIT;
    if (!intent_comes_first(c, i) || order_removal_in_the_way(c, i) ||
        unit_rename_waits_locked(c, i))
        return ORDER_WAIT;
    return after_readers(c, w, to, below);
}

static enum order order_of_removal(struct cache *c, const struct intent *i, struct barrier *b,
                                   const struct order_world *w) REQUIRES(cache_mutex)
{
    const struct place at = intent_source(i);
    /* With routes the removal of a directory may take the object of one below it. */
    bool below = c->config.routes && i->kind == INTENT_RMDIR;

    if (i->kind == INTENT_RMDIR && order_removals_below(c, i))
        return ORDER_WAIT;
    if (lock_holds_row_locked(c, i))
        return ORDER_WAIT;
    if (barrier_holds_locked(c, b, i) && !intent_is_urgent(c, i))
        return ORDER_WAIT;
    if (doubt_blocks_intent_locked(c, i) || follows_removal(c, i) || waits_for_its_name(c, i))
        return ORDER_WAIT;
    if (w->upload_at(c, at, false) || w->marker_at(c, at, below) ||
        w->marker_above(c, at, intent_lone_volume(c, i)))
        return ORDER_WAIT;
    if (order_rename_comes_first(c, i))
        return ORDER_WAIT;
    return after_readers(c, w, at, false);
}

enum order order_of_row_locked(struct cache *c, const struct intent *i, struct barrier *b,
                               const struct order_world *w, int64_t *next_ns)
{
    cache_assert_locked(c);
    return intent_is_rename(i) ? order_of_rename(c, i, w, next_ns)
                               : order_of_removal(c, i, b, w);
}

enum order order_of_upload_locked(struct cache *c, const char *path, bool content,
                                  const struct order_world *w)
{
    const struct place at = place_of_path(path);

    cache_assert_locked(c);
    if (doubt_blocks_upload_locked(c, at, content) || w->upload_at(c, at, false) ||
        w->session_at(c, at) || order_row_blocks_upload(c, path, false))
        return ORDER_WAIT;
    return after_readers(c, w, at, false);
}

enum order order_of_marker_locked(struct cache *c, const char *path, unsigned volume,
                                  const struct order_world *w)
{
    const struct place at = place_of_path(path);

    cache_assert_locked(c);
    /* One that is just being put there is of the directory that this one replaced, and must not
     * come after its own. */
    bool waits = w->marker_at(c, at, false) || order_row_blocks_upload(c, path, true) ||
                 removal_pending(c, path) || order_rmdir_runs_above(c, path) ||
                 removal_runs_below(c, at, volume);
    return waits ? ORDER_WAIT : ORDER_GO;
}
