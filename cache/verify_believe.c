/* What this mount says the store has under a name, and whether it says the same a moment later.
 */
#include "cache/verify.h"

#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void release(struct belief *b)
{
    place_free(&b->at);
    free(b->etag);
    free(b->target);
    *b = (struct belief){0};
}

void check_forget_locked(struct check *k)
{
    cache_assert_locked(k->v->cache);
    release(&k->belief);
    if (k->node)
        node_unref_locked(k->v->cache, k->node);
    k->node = NULL;
}

/* Whether the store does not have the file as it is, and why. */
static bool owes_locked(struct check *k, struct node *n) REQUIRES(cache_mutex)
{
    const struct file *f = n->file;
    const char *failed = f && f->debt.error ? f->debt.why : NULL;
    const char *why = !node_owes(n)           ? stored_name_owed_locked(k->v->cache, k->path)
                      : f && f->write_handles ? "it is open for writing, and changed"
                                              : "the store does not have it as it is";

    if (failed)
        (void)snprintf(k->why, sizeof(k->why), "its upload fails: %s", failed);
    else
        (void)snprintf(k->why, sizeof(k->why), "%s", why ? why : "");
    return failed || why;
}

/* Of content that was here. What the store alone has told says nothing of its bytes. */
static struct checksum known_sum(const struct entry *e) REQUIRES(cache_mutex)
{
    const struct node *n = e->node;
    const struct file *f = n->file;

    if (f && f->sum.kind != CHECKSUM_NONE && (f->state == FILE_CLEAN || e->compared))
        return f->sum;
    return (struct checksum){e->compared ? (enum checksum_kind)n->sum_kind : CHECKSUM_NONE,
                             n->sum_value};
}

int check_believe_locked(struct check *k)
{
    struct cache *c = k->v->cache;
    struct belief *b = &k->belief;
    struct entry *e = NULL;
    struct node *n = tree_find(c, k->path, &e);

    cache_assert_locked(c);
    check_forget_locked(k);
    if (!n || !e || n->dir)
        return -ENOENT;
    if (n->file)
        node_look_locked(c, n); /* somebody may write it past the daemon */
    const struct file *f = n->file;

    node_ref_locked(n);
    k->node = n;
    *b = (struct belief){.at = place_dup(place_of_path(k->path)),
                         .etag = etag_dup(&e->etag),
                         .target = n->target ? strdup(n->target) : NULL,
                         .sum = known_sum(e),
                         .size = n->size,
                         .type = n->flags & NODE_ATTRS_KNOWN ? n->mode & S_IFMT : 0,
                         .local = f && f->state == FILE_CLEAN,
                         .has_file = f != NULL,
                         .generation = f ? f->generation : 0,
                         .taken_ns = clock_mono_ns()};
    k->result.local = f && f->state != FILE_PARTIAL;
    k->result.bytes = n->size;
    if (owes_locked(k, n))
        return -EBUSY;
    return place_known(b->at) ? 0 : -ENOMEM;
}

bool check_moved_on_locked(struct check *k)
{
    struct cache *c = k->v->cache;
    const struct belief *b = &k->belief;
    struct entry *e = NULL;
    struct node *n = tree_find(c, k->path, &e);

    cache_assert_locked(c);
    if (!n || !e || n->dir)
        return true;
    if (n->file)
        node_look_locked(c, n);
    /* What the store has now may have been found out meanwhile: that changed nothing here. */
    return e->changed_ns > b->taken_ns || node_owes(n) ||
           (n == k->node && n->file && b->has_file && n->file->generation != b->generation);
}
