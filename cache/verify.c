/* Whether the store has what this mount says, below a path.
 *
 * The calling thread walks the tree, a pool asks the store. A directory is looked at twice:
 * first what is known of it in memory is noted, then its listing tells of the rest. The other
 * way round the listing would have this mount take what somebody else put for right before it
 * is compared. */
#include "cache/verify.h"

#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define AHEAD 4 /* so many checks for each worker are noted before it comes to them */

/* ---- results ---- */

static void check_free(struct check *k)
{
    if (!k)
        return;
    cache_lock(k->v->cache);
    check_forget_locked(k);
    cache_unlock(k->v->cache);
    free(k->path);
    free(k);
}

static int tell(struct verifying *v, struct check *k)
{
    struct cache_verified *r = &k->result;

    v->total->files[r->verdict]++;
    if (r->verdict == CACHE_VERIFIED) {
        v->total->bytes += r->bytes;
        v->total->read_back += r->read_back;
        return 0;
    }
    r->path = k->path;
    r->expected = k->expected;
    r->found = k->found;
    r->why = k->why;
    return v->visit ? v->visit(v->listener.arg, r) : 0;
}

static void stop(struct verifying *v, int err, const char *why)
{
    atomic_store(&v->over, true);
    cache_lock(v->cache);
    if (!v->err) {
        v->err = err;
        (void)snprintf(v->why, sizeof(v->why), "%s", why);
    }
    cache_unlock(v->cache);
}

/* Tells of those that were looked at, and frees them all. */
static void tell_all(struct verifying *v, struct check *ended)
{
    while (ended) {
        struct check *k = ended;
        ended = k->next;
        int r = k->looked ? tell(v, k) : 0;
        check_free(k);
        if (r < 0)
            stop(v, r, "");
    }
}

/* Waits until at most `most` are on their way. */
static void collect(struct verifying *v, unsigned most)
{
    struct cache *c = v->cache;
    bool enough = false;

    while (!enough) {
        struct op probe = *v->op;
        cache_lock(c);
        if (v->running > most && !v->ended)
            (void)cache_wait_until(c, &c->progress, clock_mono_ns() + TICK_NS);
        struct check *ended = v->ended;
        v->ended = NULL;
        enough = v->running <= most;
        bool stopping = c->stopping;
        cache_unlock(c);
        tell_all(v, ended);
        v->listener.done = atomic_load(&v->bytes);
        blocking_tell(&v->listener);
        int r = stopping ? -EINTR : op_check(&probe);
        if (r < 0 && !atomic_load(&v->over))
            stop(v, r, probe.why);
    }
}

static void run(struct task *task)
{
    struct check *k = container_of(task, struct check, task);
    struct verifying *v = k->v;

    if (!atomic_load(&v->over))
        check_run(k);
    cache_lock(v->cache);
    k->next = v->ended;
    v->ended = k;
    v->running--;
    (void)pthread_cond_broadcast(&v->cache->progress);
    cache_unlock(v->cache);
}

/* ---- the walk ---- */

static bool is_wanted_locked(const struct verifying *v, const struct entry *e)
    REQUIRES(cache_mutex)
{
    const struct node *n = e->node;

    if (node_is_scratch(n))
        return false;
    return !(v->flags & CACHE_VERIFY_FLUSHED) || e->brought_here || node_owes(n) ||
           (n->file && n->file->state != FILE_PARTIAL);
}

/* Has the file at the path looked at; the path is taken over. */
static int submit(struct verifying *v, char *path)
{
    auto_free char *own = path;
    struct check *k = path ? calloc(1, sizeof(*k)) : NULL;

    if (!k)
        return -ENOMEM;
    *k = (struct check){.task.run = run, .v = v, .path = take_ptr(own)};
    cache_lock(v->cache);
    int r = check_believe_locked(k);
    v->listener.total += r == 0 ? k->belief.size : 0;
    v->running += r == 0;
    cache_unlock(v->cache);
    if (r == 0) {
        pool_submit(v->pool, &k->task);
        collect(v, v->at_once * AHEAD);
        return 0;
    }
    k->result.verdict = CACHE_NOT_STORED;
    if (r == -EBUSY)
        r = tell(v, k);
    check_free(k);
    return r == -ENOENT ? 0 : r; /* it went meanwhile */
}

struct names {
    char **v;
    size_t n, cap;
};

static void names_free(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->v[i]);
    free(names->v);
}

static int names_add(struct names *names, const char *name)
{
    if (array_grow(names->v, names->cap, names->n + 1))
        return -ENOMEM;
    names->v[names->n] = strdup(name);
    if (!names->v[names->n])
        return -ENOMEM;
    names->n++;
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool names_have(const struct names *sorted, const char *name)
{
    return sorted->n && bsearch(&name, sorted->v, sorted->n, sizeof(*sorted->v), compare_names);
}

static int take_name(void *arg, const char *name, struct node *node, const struct stat *st,
                     uint64_t next)
{
    (void)node;
    (void)st;
    (void)next;
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ? 0 : names_add(arg, name);
}

static int names_known_locked(struct node *dir, struct names *ret) REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;
    int r = 0;

    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        if (r == 0)
            r = names_add(ret, e->name);
    }
    if (ret->n)
        qsort(ret->v, ret->n, sizeof(*ret->v), compare_names);
    return r;
}

/* The files among the names; those of directories go to `dirs`. */
static int submit_names(struct verifying *v, struct node *dir, const char *path,
                        const struct names *names, const struct names *but, struct names *dirs)
{
    struct cache *c = v->cache;
    int r = 0;

    for (size_t i = 0; i < names->n && r == 0 && !atomic_load(&v->over); i++) {
        if (but && names_have(but, names->v[i]))
            continue;
        cache_lock(c);
        const struct entry *e = children_find(dir->dir->children, names->v[i]);
        bool is_dir = e && e->node->dir;
        bool wanted = e && !is_dir && is_wanted_locked(v, e);
        cache_unlock(c);
        if (is_dir)
            r = names_add(dirs, names->v[i]);
        else if (wanted)
            r = submit(v, path_join(path, names->v[i]));
    }
    return r;
}

/* What the store tells of the directory now. -ENOENT: it has no such directory any more. */
static int list(struct verifying *v, struct node *dir, struct names *ret)
{
    struct dirhandle *d = NULL;
    struct blocking b;
    int r;

    cache_lock(v->cache);
    bool recent = listing_is_recent(v->cache, dir, true);
    cache_unlock(v->cache);
    if (!recent)
        collect(v, 0); /* what is gone has to be seen before its name goes, too */
    blocking_init(&b, v->cache, &v->listener);
    BLOCK(b, v->op, r, cache_opendir(v->cache, dir, &b.w, &d));
    if (r < 0)
        return r;
    r = cache_readdir(v->cache, d, 0, false, NULL, take_name, ret);
    cache_releasedir(v->cache, d);
    return r;
}

static int walk(struct verifying *v, struct node *dir, const char *path);

static int walk_into(struct verifying *v, struct node *dir, const char *path, const char *name)
{
    auto_free char *below = path_join(path, name);
    struct cache *c = v->cache;

    if (!below)
        return -ENOMEM;
    cache_lock(c);
    const struct entry *e = children_find(dir->dir->children, name);
    struct node *n = e && e->node->dir && e->node->dir->kind != DIR_SCRATCH ? e->node : NULL;
    if (n)
        node_ref_locked(n);
    cache_unlock(c);
    if (!n)
        return 0;
    int r = walk(v, n, below);
    cache_lock(c);
    node_unref_locked(c, n);
    cache_unlock(c);
    return r;
}

static int walk(struct verifying *v, struct node *dir, const char *path)
{
    struct names known = {0}, listed = {0}, dirs = {0};

    cache_lock(v->cache);
    int r = names_known_locked(dir, &known);
    cache_unlock(v->cache);
    if (r == 0)
        r = submit_names(v, dir, path, &known, NULL, &dirs);
    if (r == 0 && !(v->flags & CACHE_VERIFY_FLUSHED) && !atomic_load(&v->over)) {
        r = list(v, dir, &listed);
        if (r == 0)
            r = submit_names(v, dir, path, &listed, &known, &dirs);
        else if (r == -ENOENT && known.n)
            r = 0; /* the store has it no more: its files were told of */
    }
    names_free(&known);
    names_free(&listed);
    for (size_t i = 0; i < dirs.n && r == 0 && !atomic_load(&v->over); i++)
        r = walk_into(v, dir, path, dirs.v[i]);
    names_free(&dirs);
    return r;
}

/* From what is known, if the path is: to look it up could ask the store, and believe it. */
static int walk_from(struct verifying *v, const char *path)
{
    struct cache *c = v->cache;
    struct node *looked_up = NULL;

    cache_lock(c);
    struct node *n = *path ? tree_find(c, path, NULL) : c->tree->root;
    if (n)
        node_ref_locked(n);
    cache_unlock(c);
    if (!n) {
        int r = blocking_walk(c, path, v->op, &v->listener, &looked_up);
        if (r < 0)
            return r;
        cache_lock(c);
        node_ref_locked(n = looked_up);
        cache_unlock(c);
    }
    cache_lock(c);
    v->total->may_lead = !n->dir && (S_ISLNK(n->mode) || !(n->flags & NODE_ATTRS_KNOWN));
    cache_unlock(c);
    int r = n->dir ? walk(v, n, path) : submit(v, strdup(path));
    cache_lock(c);
    node_unref_locked(c, n);
    cache_unlock(c);
    if (looked_up && looked_up != c->tree->root)
        cache_forget(c, looked_up, 1);
    return r;
}

int cache_verify_path(struct cache *c, const char *path, unsigned flags, struct op *op,
                      cache_verify_visit visit,
                      void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes),
                      void *arg, struct cache_verify_total *ret)
{
    struct verifying v = {.cache = c,
                          .op = op,
                          .flags = flags,
                          .at_once = c->config.download_jobs ? c->config.download_jobs : 1,
                          .visit = visit,
                          .total = ret,
                          .listener = {.progress = progress, .arg = arg}};

    *ret = (struct cache_verify_total){0};
    v.pool = pool_new_growing("verify", v.at_once);
    int r = v.pool ? flush_look_past(c, path) : -ENOMEM;
    if (r == 0)
        r = walk_from(&v, path);
    if (r < 0)
        stop(&v, r, op->why);
    collect(&v, 0);
    pool_free(v.pool);
    cache_lock(c);
    r = v.err ? op_fail(op, v.err, "%s", *v.why ? v.why : strerror(-v.err)) : 0;
    cache_unlock(c);
    return r;
}
