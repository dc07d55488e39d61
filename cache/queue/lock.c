/* Deletion locks of this node (docs/locks.md): who has which, what they keep in the store, and
 * what they refuse. A lock is in the table from when it was had until its holder gave it back
 * or was gone; it is nowhere on the disk, so a daemon that was killed leaves none. */
#include "cache/queue/queue_impl.h"

#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* ---- the table ---- */

static void free_lock(struct deletion_lock *l) REQUIRES(cache_mutex)
{
    for (size_t i = 0; i < l->n_paths; i++)
        free(l->paths[i]);
    for (size_t i = 0; i < l->n_shown; i++) {
        free(l->shown[i].path);
        free(l->shown[i].at);
    }
    free(l->paths);
    free(l->shown);
    free(l->command);
    free(l);
}

static int add_path(struct deletion_lock *l, const char *path) REQUIRES(cache_mutex)
{
    if (array_grow(l->paths, l->cap_paths, l->n_paths + 1))
        return -ENOMEM;
    l->paths[l->n_paths] = strdup(path);
    if (!l->paths[l->n_paths])
        return -ENOMEM;
    l->n_paths++;
    return 0;
}

static int show_path(struct deletion_lock *l, const char *path, const char *at)
    REQUIRES(cache_mutex)
{
    if (array_grow(l->shown, l->cap_shown, l->n_shown + 1))
        return -ENOMEM;
    struct locked_path *p = &l->shown[l->n_shown];
    *p = (struct locked_path){.path = strdup(path), .at = strdup(at)};
    if (p->path && p->at) {
        l->n_shown++;
        return 0;
    }
    free(p->path);
    free(p->at);
    return -ENOMEM;
}

struct deletion_lock *lock_add_locked(struct cache *c, const char *path, bool refuse,
                                      const struct process *holder, const char *command)
{
    struct deletion_lock *l = calloc(1, sizeof(*l));

    cache_assert_locked(c);
    if (!l)
        return NULL;
    l->command = strdup(command);
    if (!l->command || add_path(l, path) < 0 || show_path(l, path, "") < 0) {
        free_lock(l);
        return NULL;
    }
    l->id = ++c->queue->own->last_lock;
    l->refuse = refuse;
    l->holder = *holder;
    l->since_seq = seq_now_locked(c);
    l->since_ns = clock_real_ns();
    DL_APPEND(c->queue->locks, l);
    c->queue->n_refusing += refuse;
    return l;
}

/* The file leaves its directory; the kernel is told, and programs that have it open keep it. */
static void drop_file_locked(struct cache *c, struct deletion_lock *l) REQUIRES(cache_mutex)
{
    if (!l->node)
        return;
    notice_locked(c, l->dir, l->name);
    l->node->nlink = 0;
    node_unref_locked(c, l->node);
    node_unref_locked(c, l->dir);
    free(l->name);
}

void lock_remove_locked(struct cache *c, struct deletion_lock *l)
{
    cache_assert_locked(c);
    DL_DELETE(c->queue->locks, l);
    c->queue->n_refusing -= l->refuse;
    drop_file_locked(c, l);
    process_release(&l->holder);
    free_lock(l);
}

struct deletion_lock *lock_find_locked(struct cache *c, uint64_t id)
{
    struct deletion_lock *l;

    cache_assert_locked(c);
    DL_FOREACH(c->queue->locks, l)
    {
        if (l->id == id)
            return l;
    }
    return NULL;
}

/* ---- files that are locks ---- */

void locks_reap_locked(struct cache *c)
{
    struct deletion_lock *l, *next;

    cache_assert_locked(c);
    DL_FOREACH_SAFE(c->queue->locks, l, next)
    {
        if (l->node && !process_lives(&l->holder))
            lock_remove_locked(c, l);
    }
}

struct deletion_lock *lock_file_locked(struct cache *c, const struct node *dir,
                                       const char *name)
{
    struct deletion_lock *l;

    cache_assert_locked(c);
    locks_reap_locked(c);
    DL_FOREACH(c->queue->locks, l)
    {
        if (l->node && l->dir == dir && strcmp(l->name, name) == 0)
            return l;
    }
    return NULL;
}

bool lock_file_is_in_locked(struct cache *c, const struct node *dir)
{
    struct deletion_lock *l;

    cache_assert_locked(c);
    locks_reap_locked(c);
    DL_FOREACH(c->queue->locks, l)
    {
        if (l->node && l->dir == dir)
            return true;
    }
    return false;
}

/* ---- what is locked ---- */

bool lock_covers_locked(const struct deletion_lock *l, const char *path)
{
    for (size_t i = 0; i < l->n_paths; i++)
        if (path_below(l->paths[i], path))
            return true;
    return false;
}

/* Whether something that is locked lies there, below it or above it. */
bool lock_meets_locked(const struct deletion_lock *l, const char *path)
{
    for (size_t i = 0; i < l->n_paths; i++)
        if (path_below(l->paths[i], path) || path_below(path, l->paths[i]))
            return true;
    return false;
}

bool path_is_locked(struct cache *c, const char *path)
{
    struct deletion_lock *l;

    cache_assert_locked(c);
    DL_FOREACH(c->queue->locks, l)
    {
        if (lock_covers_locked(l, path))
            return true;
    }
    return false;
}

bool lock_hides_locked(struct cache *c, const char *path, uint64_t seq)
{
    struct deletion_lock *l;

    cache_assert_locked(c);
    DL_FOREACH(c->queue->locks, l)
    {
        if (!l->refuse && l->since_seq < seq && lock_covers_locked(l, path))
            return true;
    }
    return false;
}

static bool holds_itself(struct cache *c, const struct intent *removal) REQUIRES(cache_mutex)
{
    return !intent_is_rename(removal) && !removal->debt.running &&
           lock_hides_locked(c, removal->from, removal->seq) && !intent_is_urgent(c, removal);
}

static bool is_held(void *cache, struct intent *i) REQUIRES(cache_mutex)
{
    return holds_itself(cache, i);
}

bool lock_holds_row_locked(struct cache *c, const struct intent *removal)
{
    struct row_ask below = {.sets = ROWS_REMOVING,
                            .path = removal->from,
                            .until = removal->seq,
                            .is = is_held,
                            .arg = c};

    cache_assert_locked(c);
    if (!c->queue->locks)
        return false;
    return holds_itself(c, removal) || (removal->kind == INTENT_RMDIR &&
                                        !removal->debt.running && row_below_locked(c, &below));
}

bool path_is_leaving_locked(struct cache *c, const char *path)
{
    const struct row_ask ask = {.sets = ROWS_REMOVING, .path = path};

    cache_assert_locked(c);
    return row_at_locked(c, &ask) || row_below_locked(c, &ask);
}

struct deletion_lock *lock_refusing_locked(struct cache *c, const char *path, bool above,
                                           const struct process_line *who)
{
    struct deletion_lock *l;

    cache_assert_locked(c);
    DL_FOREACH(c->queue->locks, l)
    {
        /* A command is all that it starts; a program that has made a file is itself alone: what
         * it forked may go on while it reads. */
        bool own =
            l->node ? process_line_is(who, &l->holder) : process_line_has(who, &l->holder);
        if (l->refuse && !own && (!l->node || process_lives(&l->holder)) &&
            (above ? lock_meets_locked(l, path) : lock_covers_locked(l, path)))
            return l;
    }
    return NULL;
}

/* ---- what moves ---- */

/* What has been locked below `from` is below `to` now. Whether all of the path was. */
static int cover(struct deletion_lock *l, char **p, const struct lock_move *m, bool *ret_all)
    REQUIRES(cache_mutex)
{
    const char *in = path_below(m->from, *p);
    auto_free char *path = NULL;

    *ret_all = in != NULL;
    if (!in && !path_below(*p, m->from))
        return 0;
    path = in ? path_join(m->to, in) : strdup(m->to);
    if (!path)
        return -ENOMEM;
    if (!l->refuse)
        return lock_covers_locked(l, path) ? 0 : add_path(l, path);
    if (in) /* else its holder took a part away, which it has no use for there */
        SWAP(*p, path);
    return 0;
}

/* The same of what the view shows. Of what was made since the lock nobody knows the old name.
 */
static int show(struct deletion_lock *l, size_t i, const struct lock_move *m, bool *ret_all)
    REQUIRES(cache_mutex)
{
    const char *in = path_below(m->from, l->shown[i].path);
    const char *out = path_below(l->shown[i].path, m->from);

    *ret_all = in != NULL;
    if (in) {
        auto_free char *path = path_join(m->to, in);
        if (path)
            SWAP(l->shown[i].path, path);
        return path ? 0 : -ENOMEM;
    }
    if (!out || m->made_seq > l->since_seq)
        return 0;
    auto_free char *at = path_join(l->shown[i].at, out);
    return at ? show_path(l, m->to, at) : -ENOMEM;
}

/* By what has one path now nothing moves a second time. */
static int follow(struct deletion_lock *l, const struct lock_move *moves, size_t n)
    REQUIRES(cache_mutex)
{
    size_t n_paths = l->n_paths, n_shown = l->n_shown;
    int err = 0;

    for (size_t i = 0; i < n_paths; i++) {
        bool all = false;
        for (size_t k = 0; k < n && !all; k++) {
            int r = cover(l, &l->paths[i], &moves[k], &all);
            err = r < 0 ? r : err;
        }
    }
    for (size_t i = 0; i < n_shown; i++) {
        bool all = false;
        for (size_t k = 0; k < n && !all; k++) {
            int r = show(l, i, &moves[k], &all);
            err = r < 0 ? r : err;
        }
    }
    return err;
}

int lock_follow_locked(struct cache *c, const struct lock_move *moves, size_t n)
{
    struct deletion_lock *l;
    int err = 0;

    cache_assert_locked(c);
    DL_FOREACH(c->queue->locks, l)
    {
        int r = follow(l, moves, n);
        err = r < 0 ? r : err;
    }
    return err;
}
