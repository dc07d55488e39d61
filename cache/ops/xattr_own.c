/* The attributes user.runfs.*: what runfs itself tells of a node. */
#include "cache/ops/ops_impl.h"

#include "cache/types/etag.h"
#include "common/buf.h"
#include "common/mem.h"
#include "runs/routes.h"

#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <utlist.h>

/* Names below a new directory stand for it once the store has one of them; till then it waits
 * in no queue, and still is in no store. */
static const char *dir_state_name(struct node *n) REQUIRES(cache_mutex)
{
    const struct dir *d = n->dir;

    return d->debt.running ? "uploading"
           : d->debt.error ? "failed"
           : debt_is_queued(&d->debt) || d->new_here || (n->flags & NODE_ATTR_DIRTY) ? "dirty"
                                                                                     : "clean";
}

/* "clean", "partial", "dirty", "uploading" or "failed"; "local" of what no store has nor gets.
 */
static const char *state_name(struct node *n) REQUIRES(cache_mutex)
{
    struct file *f = n->file;

    if (node_is_scratch(n) || (n->dir && n->dir->bare))
        return "local";
    if (n->dir)
        return dir_state_name(n);
    if (!f)
        return "partial";
    if (f->debt.running)
        return "uploading";
    if (f->debt.error)
        return "failed";
    if (f->state == FILE_DIRTY || f->write_handles || (n->flags & NODE_ATTR_DIRTY))
        return "dirty";
    return f->state == FILE_PARTIAL ? "partial" : "clean";
}

static char *join_url(const char *url, const char *key)
{
    auto_buf struct buf b = BUF_INIT(64 << 10);

    if (buf_addf(&b, "%s%s%s", url, *key ? "/" : "", key) < 0)
        return NULL;
    return buf_take(&b);
}

/* Where the object lies: of several stores in which, and by which of its keys. */
static char *url_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    auto_place struct place at = node_place(n);
    struct routes_hit hit;
    char *url = NULL;

    if (!place_known(at))
        return NULL;
    if (!c->config.routes)
        return join_url(c->store->url, at.key);
    if (routes_find(c->config.routes, place_path(at), n->dir ? ROUTES_DIRECTORY : ROUTES_OBJECT,
                    &hit) < 0)
        return NULL;
    if (hit.kind == ROUTES_MAPPED && !hit.route->scratch &&
        hit.route->store < c->config.n_stores)
        url = join_url(c->config.stores[hit.route->store].url, hit.key);
    routes_hit_release(&hit);
    return url;
}

/* By the path that it has now, though the object may still lie where it was. */
static char *routed_locked(struct cache *c, struct node *n, const char *what)
    REQUIRES(cache_mutex)
{
    auto_free char *path = c->config.routes ? node_path(n) : NULL;
    struct cache_routed routed = {0};

    if (path)
        routed = path_routed(c, path, n->dir != NULL);
    const char *text = strcmp(what, "route") == 0    ? routed.route
                       : strcmp(what, "policy") == 0 ? routed.policy
                       : strcmp(what, "store") == 0  ? routed.store
                                                     : NULL;
    return text ? strdup(text) : NULL;
}

/* The unit that holds it, as a path of the mount, or how that stands; NULL: there is none. */
static char *unit_text_locked(struct cache *c, struct node *n, const char *what)
    REQUIRES(cache_mutex)
{
    const char *state;
    struct node *dir = unit_dir_of_locked(c, n, &state);

    if (!dir)
        return NULL;
    return strcmp(what, "unit") ? strdup(state) : dir->is_root ? strdup("") : node_path(dir);
}

/* A line for each lock of the path, of what is above it and below it. */
static char *locks_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    auto_buf struct buf b = BUF_INIT(64 << 10);
    auto_free char *path = node_path(n);
    const struct deletion_lock *l;
    struct utsname node;

    if (!path)
        return NULL;
    (void)uname(&node);
    locks_reap_locked(c);
    DL_FOREACH(c->queue->locks, l)
    {
        time_t since = (time_t)(l->since_ns / NS_PER_SEC);
        char at[32] = "";
        struct tm tm;
        if (gmtime_r(&since, &tm))
            (void)strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%SZ", &tm);
        if (lock_meets_locked(l, path) &&
            buf_addf(&b, "%s %s pid=%ld node=%s since=%s path=%s command=%s\n",
                     l->refuse ? "refuse" : "hide", l->node ? "file" : "command",
                     (long)l->holder.pid, node.nodename, at, l->paths[0], l->command) < 0)
            return NULL;
    }
    return b.len ? buf_take(&b) : strdup("");
}

char *xattr_own_locked(struct cache *c, struct node *n, const char *what)
{
    cache_assert_locked(c);
    if (strcmp(what, "state") == 0)
        return strdup(state_name(n));
    if (strcmp(what, "durability") == 0)
        return strdup(node_durability_locked(c, n));
    if (strcmp(what, "owed") == 0)
        return node_owed_text_locked(c, n);
    if (strcmp(what, "locks") == 0)
        return locks_locked(c, n);
    if (strcmp(what, "version") == 0)
        return n->links && etag_known(&n->links->etag) ? etag_dup(&n->links->etag) : strdup("");
    if (strcmp(what, "url") == 0)
        return url_locked(c, n);
    if (strcmp(what, "unit") == 0 || strcmp(what, "unit.state") == 0)
        return unit_text_locked(c, n, what);
    return routed_locked(c, n, what);
}
