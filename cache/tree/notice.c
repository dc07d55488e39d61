/* Tells the kernel that a node or a name has changed, from a thread of its own. */
#include "cache/tree/tree_impl.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

struct notice {
    struct task task;
    struct cache *cache;
    struct node *node; /* referenced */
    char name[];       /* "" for the node itself */
};

static void send_notice(struct task *task)
{
    struct notice *n = container_of(task, struct notice, task);
    struct cache *c = n->cache;

    c->config.invalidate(c->config.invalidate_arg, n->node, *n->name ? n->name : NULL);
    cache_lock(c);
    node_unref_locked(c, n->node);
    cache_unlock(c);
    free(n);
}

void notice_locked(struct cache *c, struct node *node, const char *name)
{
    cache_assert_locked(c);
    /* Without the thread nothing was told yet: recovery. */
    if (!c->config.invalidate || !c->notifier || c->stopping ||
        (node->nlookup == 0 && node != c->tree->root))
        return;
    size_t len = name ? strlen(name) : 0;
    struct notice *n = malloc(sizeof(*n) + len + 1);
    if (!n)
        return; /* the kernel's timeouts end what is not told */
    n->task.run = send_notice;
    n->cache = c;
    n->node = node;
    memcpy(n->name, name ? name : "", len + 1);
    node_ref_locked(node);
    pool_submit(c->notifier, &n->task);
}
