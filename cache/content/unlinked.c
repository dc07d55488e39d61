/* How a mirror file leaves its name: discarded, evicted, unlinked while open, replaced by the
 * store's. */
#include "cache/content/content_impl.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int file_discard(struct cache *c, struct node *n)
{
    struct file *f = n->file;

    ns_assert_written(c);
    if (!f)
        return 0;
    auto_free char *path = node_path(n);
    if (!path)
        return -ENOMEM;
    cache_lock(c);
    /* Who had a descriptor as it was chosen may have changed it since: a chmod owes what the
     * stamp has, and has it queued. */
    bool in_use =
        f->open_handles || file_fd_users(f) || f->fetches || f->busy || node_is_ours(n);
    uint64_t id = file_next_id_locked(c);
    if (!in_use)
        (void)file_claim_locked(f); /* readers without a descriptor wait */
    cache_unlock(c);
    if (in_use)
        return -EBUSY;
    int r = mirror_orphan(&c->mirror, path, id, false);
    bool gone = r == 0 || r == -ENOENT;
    crash_point("discard-orphaned");
    cache_lock(c);
    file_unclaim_locked(f);
    waitq_wake_locked(c, &f->range_waiters, 0);
    if (gone) {
        f->orphan_id = r == 0 ? id : 0;
        file_free_locked(c, f);
    }
    cache_unlock(c);
    return gone ? 0 : r;
}

int file_evict(struct cache *c, struct node *n)
{
    cache_lock(c);
    bool keeps_ino = !(n->flags & NODE_DEFAULT_INO);
    cache_unlock(c);
    int r = file_discard(c, n);

    crash_point("evict-discarded");
    if (r == 0 && keeps_ino)
        r = file_materialise(c, n);
    if (r < 0 && r != -EBUSY)
        log_later(&c->log, LOG_LEVEL_WARN, "cache %s: can't evict a file: %s", c->mirror.dir,
                  strerror(-r));
    return r;
}

/* Remembers readers that still need bytes from the store: publish and delete must fetch them
 * first. Without memory the readers get ESTALE then. */
static void remember_stale_reader_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    if (array_grow(c->content->stale_readers, c->content->own->cap_stale_readers,
                   c->content->n_stale_readers + 1))
        return;
    c->content->stale_readers[c->content->n_stale_readers++] = n;
    node_ref_locked(n);
}

void stale_readers_forget_locked(struct cache *c)
{
    struct contents *t = c->content;

    cache_assert_locked(c);
    for (size_t i = 0; i < t->n_stale_readers;) {
        struct node *n = t->stale_readers[i];
        if (n->file->state == FILE_PARTIAL && n->file->open_handles && !n->file->gone) {
            i++;
            continue;
        }
        t->stale_readers[i] = t->stale_readers[--t->n_stale_readers];
        node_unref_locked(c, n);
    }
}

void stale_readers_end_locked(struct cache *c)
{
    struct contents *t = c->content;

    cache_assert_locked(c);
    while (t->n_stale_readers > 0)
        node_unref_locked(c, t->stale_readers[--t->n_stale_readers]);
}

int file_keep_aside(struct cache *c, const char *path, uint64_t *ret_id)
{
    ns_assert_written(c);
    cache_lock(c);
    uint64_t id = file_next_id_locked(c);
    cache_unlock(c);
    int r = mirror_orphan(&c->mirror, path, id, true);
    if (r == 0)
        *ret_id = id;
    return r;
}

void file_orphaned_locked(struct cache *c, struct node *n, uint64_t id)
{
    struct file *f = n->file;

    cache_assert_locked(c);
    f->orphan_source = f->state == FILE_PARTIAL && n->links ? entry_place(n->links) : NO_PLACE;
    f->orphan_id = id;
    atomic_store(&f->changed, true);
    file_unqueue_locked(c, f);
    file_lru_remove_locked(c, f);
    debt_set_place(&f->debt, 0);
    if (f->state == FILE_PARTIAL && f->open_handles)
        remember_stale_reader_locked(c, n);
}

void file_set_unnamed_locked(struct file *f, bool unnamed)
{
    f->unnamed = unnamed;
}

int file_orphan(struct cache *c, struct node *n, const char *path)
{
    ns_assert_written(c);
    cache_lock(c);
    uint64_t id = file_next_id_locked(c);
    cache_unlock(c);
    int r = mirror_orphan(&c->mirror, path, id, false);
    crash_point("orphan-moved");
    if (r < 0)
        return r;
    cache_lock(c);
    file_orphaned_locked(c, n, id);
    cache_unlock(c);
    return 0;
}

int file_leave_name(struct cache *c, struct entry *e)
{
    struct node *n = e->node;
    auto_free char *path = entry_path(e);

    ns_assert_written(c);
    if (!path)
        return -ENOMEM;
    auto_close int fd = mirror_open_path(&c->mirror, path, O_RDONLY);
    /* The link goes first: a name without a record would be taken for one that was made here.
     */
    int r = mirror_unlink(&c->mirror, path);
    crash_point("name-left");
    if (r < 0 && r != -ENOENT)
        return r;
    cache_lock(c);
    auto_place struct place at = entry_place(e);
    if (place_known(at) && !name_shares_place(e, n, at))
        stamp_keys_remove(&n->file->keys, at.key);
    node_keeps_ino_locked(c, n);
    cache_unlock(c);
    if (fd >= 0)
        (void)file_write_keys(c, n, fd);
    return 0;
}

/* Makes a closed file the new version, of which nothing is here. */
static int renew(struct cache *c, struct entry *e, const struct object *obj) REQUIRES(cache_ns)
{
    struct node *n = e->node;
    int r = file_discard(c, n);

    if (r < 0)
        return r;
    cache_lock(c);
    n->flags &= ~(unsigned)(NODE_ATTRS_KNOWN | NODE_ATTRS_OLD);
    node_apply_version(c, n, obj);
    entry_took_version_locked(e, obj);
    notice_locked(c, n, NULL);
    cache_unlock(c);
    return 0;
}

/* Makes the new version's node, without a name yet. It takes over the number of a node that
 * goes with the name, but not of one that goes on under other names. */
static struct node *successor_locked(struct cache *c, struct entry *e, const struct object *obj)
    REQUIRES(cache_mutex)
{
    struct node *old = e->node, *n = node_new(c, S_IFREG);
    bool goes_on = old->links->next_link != NULL;
    auto_place struct place at = entry_place(e);

    if (!n || !place_known(at)) {
        if (n)
            node_collect_locked(c, n);
        return NULL;
    }
    n->ino = goes_on ? ino_of_found_locked(c, at, false) : old->ino;
    n->flags |= goes_on ? NODE_DEFAULT_INO : old->flags & NODE_DEFAULT_INO;
    node_apply_version(c, n, obj);
    return n;
}

/* The name gets a node of its own: handles and other names keep the old one's version. */
static int part(struct cache *c, struct entry *e, const struct object *obj) REQUIRES(cache_ns)
{
    struct node *old = e->node, *parent = e->parent;
    auto_free char *path = entry_path(e), *name = strdup(e->name);
    int r = !path || !name          ? -ENOMEM
            : old->links->next_link ? file_leave_name(c, e)
                                    : file_orphan(c, old, path);

    if (r < 0)
        return r;
    cache_lock(c);
    struct node *n = successor_locked(c, e, obj);
    if (n) {
        old->flags |= NODE_REPLACED;
        old->nlink--;
        notice_locked(c, parent, name);
        node_ref_locked(old);
        entry_remove_locked(c, e);
        if (old->links)
            file_lru_add_locked(c, old->file);
        struct entry *e2 = entry_add_locked(c, parent, name, n);
        if (e2) {
            entry_took_version_locked(e2, obj);
            entry_may_exist_locked(e2);
            entry_verified_locked(e2, clock_mono_ns());
        }
        node_unref_locked(c, old);
        node_collect_locked(c, n);
    }
    cache_unlock(c);
    return n ? 0 : -ENOMEM;
}

int node_replaced(struct cache *c, struct entry *e, const struct object *obj)
{
    struct node *n = e->node;

    ns_assert_written(c);
    cache_lock(c);
    struct file *f = n->file;
    bool in_use = f && (f->open_handles || f->fetches || f->busy || file_fd_users(f));
    bool shared = n->links->next_link != NULL;
    cache_unlock(c);
    return in_use || shared ? part(c, e, obj) : renew(c, e, obj);
}
