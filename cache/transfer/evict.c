/* Clean content goes, least recently used first, before the disk or the limit is reached;
 * directories that nobody uses are forgotten when the tree outgrows its memory. */
#include "cache/transfer/transfer_impl.h"

#include "cache/mirror/mirror.h"
#include "cache/tree/children.h"
#include "common/lock.h"
#include "common/mem.h"

#include <malloc.h>

#define FORGET_EVERY_NS (5 * NS_PER_SEC)

/* Less is not worth a walk through all of the heap. */
#define TRIM_BYTES (UINT64_C(4) << 20)

bool file_is_stub(const struct node *n)
{
    const struct file *f = n->file;

    return (f->state == FILE_PARTIAL || n->size == 0) && f->blocks_bytes <= STUB_BYTES &&
           !(n->flags & NODE_DEFAULT_INO);
}

/* The next file to be evicted; the walk takes files that may never go off the list. What a
 * deletion lock covers goes last: it comes behind all others, where it is met again when there
 * is nothing else. */
static struct node *next_victim_locked(struct cache *c) REQUIRES(cache_mutex)
{
    const struct node *spared = NULL;

    while (c->content->lru) {
        struct file *f = c->content->lru;
        struct node *n = f->node;
        auto_free char *path = n->links ? entry_path(n->links) : NULL;
        bool stub = file_is_stub(n);
        file_lru_remove_locked(c, f);
        if (path && !stub && !n->links->next_link && !path_is_pinned(c, path) &&
            f->state != FILE_DIRTY && !f->open_handles && !debt_is_queued(&f->debt) &&
            !f->debt.running && !node_is_ours(n)) {
            if (n == spared || !path_is_locked(c, path))
                return n;
            spared = spared ? spared : n;
            file_lru_add_locked(c, f);
        }
    }
    return NULL;
}

static bool evict_next(struct cache *c)
{
    cache_lock(c);
    bool full = space_too_full_locked(c);
    cache_unlock(c);
    if (!full)
        return false;
    ns_write(c);
    cache_lock(c);
    struct node *n = space_too_full_locked(c) ? next_victim_locked(c) : NULL;
    if (n)
        node_ref_locked(n);
    cache_unlock(c);
    if (n)
        (void)file_evict(c, n);
    ns_done(c);
    if (!n)
        return false;
    cache_lock(c);
    node_unref_locked(c, n);
    waitq_wake_locked(c, &c->space_waiters, 0);
    cache_unlock(c);
    return true;
}

/* ---- memory ---- */

static void forget_children_locked(struct cache *c, struct node *dir)
    REQUIRES(cache_ns, cache_mutex)
{
    struct entry *e;
    size_t at;
    bool forgot = false;

    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        struct node *n = e->node;
        if (n->nlookup || n->refs || n->file || n->dir || n->links != e || e->next_link ||
            node_is_ours(n))
            continue;
        entry_remove_locked(c, e);
        forgot = true;
    }
    if (forgot) {
        dir->dir->listed_ns = 0;
        dir->dir->local_only = false;
    }
}

static int forget_dir(void *arg, struct node *n) REQUIRES(cache_ns, cache_mutex)
{
    struct cache *c = arg;

    if (n->dir && !n->dir->new_here && n->dir->kind != DIR_SCRATCH && !n->dir->listing &&
        !n->dir->queries && n->dir->listed_ns &&
        clock_mono_ns() - n->dir->told_ns > FORGET_EVERY_NS)
        forget_children_locked(c, n);
    return c->tree->nodes * NODE_BYTES < c->config.list_memory_bytes;
}

static void forget_names(struct cache *c)
{
    if (clock_mono_ns() - c->transfer->forgot_ns < FORGET_EVERY_NS)
        return;
    c->transfer->forgot_ns = clock_mono_ns();
    ns_write(c);
    cache_lock(c);
    inos_purge_locked(c);
    uint64_t before = c->tree->nodes;
    if (c->tree->nodes * NODE_BYTES > c->config.list_memory_bytes)
        (void)tree_each(c->tree->root, forget_dir, c);
    uint64_t forgot = before - c->tree->nodes;
    cache_unlock(c);
    ns_done(c);
    if (forgot * NODE_BYTES > TRIM_BYTES)
        (void)malloc_trim(0); /* small pieces stay with the process otherwise */
}

/* Passthrough writers ask nobody: what they did to the limit is seen here. `disk`: what is the
 * matter with the filesystem itself. The outlook for who waits for room. */
static enum space_trouble look_at_space_locked(struct cache *c, enum space_trouble disk)
    REQUIRES(cache_mutex)
{
    if (disk)
        space_trouble_locked(c, disk);
    else if (c->transfer->space == SPACE_READ_ONLY || !space_too_full_locked(c))
        space_trouble_locked(c, SPACE_FINE);
    if (disk || !space_is_full_locked(c))
        return disk;
    enum space_trouble outlook = space_outlook_locked(c, NULL);
    if (outlook) /* else there is room soon */
        space_trouble_locked(c, outlook);
    return outlook;
}

/* Who finds no room asks for a pass and waits: each pass that woke him for nothing would be
 * followed by the next one at once. The outlook for one file can be another than for all of
 * them, so that he is woken from time to time in any case. */
static void tell_waiters_locked(struct cache *c, enum space_trouble outlook, bool waited)
    REQUIRES(cache_mutex)
{
    bool changed = outlook != c->transfer->outlook;

    c->transfer->outlook = outlook;
    if (waited || changed || !space_is_full_locked(c))
        waitq_wake_locked(c, &c->space_waiters, 0);
}

void evict_if_needed(struct cache *c, bool waited)
{
    enum space_trouble disk = mirror_removed(&c->mirror)     ? SPACE_REMOVED
                              : mirror_read_only(&c->mirror) ? SPACE_READ_ONLY
                                                             : SPACE_FINE;
    struct statvfs vfs;

    if (mirror_statvfs(&c->mirror, &vfs) == 0) {
        cache_lock(c);
        disk_seen_locked(c, &vfs);
        cache_unlock(c);
    }
    for (int i = 0; i < 64 && evict_next(c); i++)
        ;
    forget_names(c);
    /* Writers who wait for room find out when there is none to be had. */
    cache_lock(c);
    tell_waiters_locked(c, look_at_space_locked(c, disk), waited);
    cache_unlock(c);
}
