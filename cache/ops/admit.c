/* Which names the routes admit: a new one is where a store, or the scratch, takes it; a name
 * moves only to where its object can be without its bytes being read. Nothing is asked. */
#include "cache/ops/ops_impl.h"

#include "common/mem.h"
#include "common/path.h"
#include "runs/routes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>

#define REFUSED_EVERY_NS (60 * NS_PER_SEC)

#define NO_ROUTE                                                                               \
    "no route leads there; a route for \"**\", or default_store, takes what others leave"
#define RESERVED                                                                               \
    "a route gives it a key in " PATH_RESERVED                                                 \
    ", where a store keeps what is its own; take another name"

/* Programs try such names by thousands. */
static int refuse_locked(struct cache *c, const char *path, const char *why)
    REQUIRES(cache_mutex)
{
    int64_t now = clock_mono_ns();

    if (c->ops->refused_ns && now - c->ops->refused_ns < REFUSED_EVERY_NS)
        return -EPERM;
    c->ops->refused_ns = now;
    log_later(&c->log, LOG_LEVEL_WARN, "%s can't be made: %s", path, why);
    return -EPERM;
}

static int admit_path_locked(struct cache *c, const char *path, bool dir) REQUIRES(cache_mutex)
{
    struct routes_hit hit;
    int r = routes_find(c->config.routes, path, dir ? ROUTES_DIRECTORY : ROUTES_OBJECT, &hit);

    if (r < 0)
        return r;
    const char *why = hit.kind == ROUTES_NOWHERE ? NO_ROUTE : NULL;
    if (hit.kind == ROUTES_MAPPED && routes_key_reserved(hit.route, hit.key))
        why = RESERVED;
    routes_hit_release(&hit);
    return why ? refuse_locked(c, path, why) : 0;
}

int name_admit_locked(struct cache *c, struct node *parent, const char *name, bool dir)
{
    auto_free char *path = c->config.routes ? child_path(parent, name) : NULL;

    cache_assert_locked(c);
    if (!c->config.routes)
        return 0;
    if (!path)
        return parent->flags & NODE_REMOVED ? -ENOENT : -ENOMEM;
    return admit_path_locked(c, path, dir);
}

bool name_is_fixed_locked(struct cache *c, struct entry *e)
{
    auto_free char *path = c->config.routes && e->node->dir ? entry_path(e) : NULL;

    cache_assert_locked(c);
    return path && path_is_fixed(c, path);
}

/* Whether a file of one of the paths can become one of the other where it lies. */
static bool same_store(struct cache *c, const char *a, const char *b)
{
    const struct route *ra = path_route(c, a, false), *rb = path_route(c, b, false);

    if (!ra || !rb || ra->scratch || rb->scratch)
        return ra && rb && ra->scratch && rb->scratch;
    return ra->store == rb->store;
}

static bool can_move(struct cache *c, const struct node *n, const char *from, const char *to)
{
    return n->dir ? routes_same_below(c->config.routes, from, to) : same_store(c, from, to);
}

/* Programs replace a file by one that they made in another place, and have no other way: what
 * is here as a whole is uploaded under its new name, and the removal of the old one waits for
 * that.
 */
static bool can_cross_locked(struct cache *c, const struct node *n, const char *from,
                             const char *to) REQUIRES(cache_mutex)
{
    const struct route *route = path_route(c, to, false);
    const struct file *f = n->file;

    return f && S_ISREG(n->mode) && f->state != FILE_PARTIAL && !f->busy && !f->short_write &&
           !f->disk_lost && !n->links->next_link && !node_is_scratch(n) && route &&
           !route->scratch && path_route(c, from, false) && !path_is_staged(c, to);
}

bool name_crosses_locked(struct cache *c, const struct node *n, const char *from,
                         const char *to)
{
    cache_assert_locked(c);
    return c->config.routes && !n->dir && !same_store(c, from, to);
}

int name_link_admit_locked(struct cache *c, struct node *n, struct node *parent,
                           const char *name)
{
    int r = name_admit_locked(c, parent, name, false);

    if (r < 0 || !c->config.routes || !n->links)
        return r;
    auto_free char *from = entry_path(n->links);
    auto_free char *to = child_path(parent, name);
    if (!from || !to)
        return -ENOMEM;
    return same_store(c, from, to) ? 0 : -EXDEV;
}

/* A fixed directory neither goes nor is replaced. */
static int check_fixed_locked(struct cache *c, struct entry *from, const char *to_path,
                              struct entry *to, unsigned flags) REQUIRES(cache_mutex)
{
    bool onto = path_is_fixed(c, to_path);

    if (onto && from->node->dir && to && to->node->dir->children && !(flags & RENAME_EXCHANGE))
        return -ENOTEMPTY;
    return onto || name_is_fixed_locked(c, from) ? -EBUSY : 0;
}

char *exchange_passage(struct cache *c, const char *beside, uint64_t number)
{
    auto_free char *parent = c->config.routes ? path_parent(beside) : strdup("");
    char *passage = NULL;

    if (!parent || asprintf(&passage, "%s%s" PATH_RESERVED "-exchange-%016llx", parent,
                            *parent ? "/" : "", (unsigned long long)number) < 0)
        return NULL;
    return passage;
}

/* What is below a directory comes along, and gets no name that is judged by itself. */
static int admit_below_locked(struct cache *c, const char *to) REQUIRES(cache_mutex)
{
    int r = routes_writable_below(c->config.routes, to);

    return r == -EPERM ? refuse_locked(c, to, RESERVED) : r;
}

static int admit_there_locked(struct cache *c, const struct node *n, const char *to)
    REQUIRES(cache_mutex)
{
    return n->dir ? admit_below_locked(c, to) : admit_path_locked(c, to, false);
}

static bool can_pass(struct cache *c, const struct node *n, const char *from,
                     const char *passage)
{
    return can_move(c, n, from, passage) &&
           (!n->dir || routes_writable_below(c->config.routes, passage) == 0);
}

/* Each takes the other's path, and one of them goes through the passage. */
static int admit_exchange_locked(struct cache *c, const struct entry *from,
                                 const char *from_path, const struct entry *to,
                                 const char *to_path) REQUIRES(cache_mutex)
{
    const struct node *n = from->node, *other = to->node;

    if (!can_move(c, n, from_path, to_path) || !can_move(c, other, to_path, from_path))
        return -EXDEV;
    int r = admit_there_locked(c, n, to_path);
    if (r == 0)
        r = admit_there_locked(c, other, from_path);
    if (r < 0 || (!n->dir && !other->dir))
        return r;
    auto_free char *passage = exchange_passage(c, from_path, 0);
    auto_free char *other_passage = exchange_passage(c, to_path, 0);
    if (!passage || !other_passage)
        return -ENOMEM;
    return can_pass(c, n, from_path, passage) && can_pass(c, other, to_path, other_passage)
               ? 0
               : -EXDEV;
}

int name_move_admit_locked(struct cache *c, struct entry *from, struct node *newparent,
                           const char *newname, struct entry *to, unsigned flags)
{
    auto_free char *from_path = c->config.routes ? entry_path(from) : NULL;
    auto_free char *to_path = from_path ? child_path(newparent, newname) : NULL;

    cache_assert_locked(c);
    if (!c->config.routes)
        return 0;
    if (!from_path || !to_path)
        return newparent->flags & NODE_REMOVED ? -ENOENT : -ENOMEM;
    bool exchange = (flags & RENAME_EXCHANGE) && to, dir = from->node->dir != NULL;
    if (to && !exchange && !to->node->dir != !dir)
        return 0; /* the kinds are what is wrong */
    int r = check_fixed_locked(c, from, to_path, to, flags);
    if (r == 0 && exchange)
        return admit_exchange_locked(c, from, from_path, to, to_path);
    if (r == 0)
        r = admit_path_locked(c, to_path, dir);
    if (r < 0)
        return r;
    if (can_move(c, from->node, from_path, to_path))
        return dir ? admit_below_locked(c, to_path) : 0;
    return !dir && can_cross_locked(c, from->node, from_path, to_path) ? 0 : -EXDEV;
}
