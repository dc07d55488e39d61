/* The mirror file behind a node: accounted, found when it is needed, evictable, freed. */
#include "cache/content/content_impl.h"

#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "cache/types/range.h"
#include "cache/types/sums.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utlist.h>

struct file *file_new(struct node *n, enum file_state state)
{
    struct file *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    f->node = n;
    f->fds[FD_READ].fd = f->fds[FD_WRITE].fd = -1;
    f->kept_generation = UINT64_MAX; /* the kernel has no pages of this content */
    file_is_born_locked(f, state);
    waitq_init(&f->range_waiters);
    waitq_init(&f->upload_waiters);
    n->file = f;
    return f;
}

/* The lock gets its name here, so clang does not check these two. */
NO_THREAD_SAFETY void stamp_lock(struct cache *c, const struct node *n)
{
    mutex_lock(stamp_lock_of(c, n));
}

NO_THREAD_SAFETY void stamp_unlock(struct cache *c, const struct node *n)
{
    mutex_unlock(stamp_lock_of(c, n));
}

/* ---- lists ---- */

void file_lru_remove_locked(struct cache *c, struct file *f)
{
    cache_assert_locked(c);
    if (!f->in_lru)
        return;
    DL_DELETE2(c->content->lru, f, lru_prev, lru_next);
    f->in_lru = false;
}

void file_lru_add_locked(struct cache *c, struct file *f)
{
    cache_assert_locked(c);
    file_lru_remove_locked(c, f);
    if (f->open_handles || debt_is_queued(&f->debt) || f->debt.running || f->orphan_id ||
        f->unnamed || f->state == FILE_DIRTY || !f->node->links ||
        (f->node->flags & NODE_ATTR_DIRTY))
        return;
    DL_APPEND2(c->content->lru, f, lru_prev, lru_next);
    f->in_lru = true;
}

void file_unqueue_locked(struct cache *c, struct file *f)
{
    cache_assert_locked(c);
    if (!debt_is_queued(&f->debt))
        return;
    debt_leave(&f->debt);
    if (f->urgent)
        DL_DELETE2(c->content->urgent, f, urgent_prev, urgent_next);
}

void disk_seen_locked(struct cache *c, const struct statvfs *vfs)
{
    cache_assert_locked(c);
    c->content->disk_free_bytes = (uint64_t)vfs->f_bavail * vfs->f_frsize;
}

void file_account_locked(struct cache *c, struct file *f, uint64_t blocks_bytes)
{
    cache_assert_locked(c);
    /* The disk is looked at once a second only: a fast writer could be through by then. */
    if (blocks_bytes > f->blocks_bytes) {
        uint64_t more = blocks_bytes - f->blocks_bytes;
        c->content->disk_free_bytes -=
            more < c->content->disk_free_bytes ? more : c->content->disk_free_bytes;
    }
    c->content->used_bytes += blocks_bytes - f->blocks_bytes;
    f->blocks_bytes = blocks_bytes;
}

/* ---- state changes ---- */

bool node_is_ours(struct node *n)
{
    struct file *f = n->file;

    if (n->is_root || (n->flags & NODE_ATTR_DIRTY))
        return true;
    for (struct entry *e = n->links; e; e = e->next_link)
        if (e->dirty || place_known(e->source))
            return true;
    if (n->dir)
        return n->dir->new_here || n->dir->debt.running || dir_is_local(n->dir);
    return f && (f->state == FILE_DIRTY || f->write_handles || f->truncates ||
                 f->debt.running || debt_is_queued(&f->debt) || f->unnamed || f->orphan_id);
}

void file_count_locked(struct cache *c)
{
    cache_assert_locked(c);
    c->content->own->mirror_files++;
}

uint64_t file_next_id_locked(struct cache *c)
{
    cache_assert_locked(c);
    return ++c->content->own->next_id;
}

void file_free_locked(struct cache *c, struct file *f)
{
    cache_assert_locked(c);
    assert(!f->open_handles && !f->fetches && !f->debt.running);
    file_unqueue_locked(c, f);
    file_lru_remove_locked(c, f);
    if (f->is_writer)
        DL_DELETE2(c->content->writers, f, writer_prev, writer_next);
    file_drop_locked(c, f);
    file_account_locked(c, f, 0);
    c->content->own->mirror_files--;
    ranges_clear(&f->present);
    sums_clear(&f->sums);
    free(f->streams);
    stamp_keys_release(&f->keys);
    place_free(&f->orphan_source);
    free(f->etag);
    free(f->copied_etag);
    debt_release(&f->debt);
    place_free(&f->upload_place);
    f->node->file = NULL;
    free(f);
}

/* ---- the need for one, and its end ---- */

int file_need(struct cache *c, struct node *n)
{
    cache_lock(c);
    bool there = n->file != NULL;
    cache_unlock(c);
    if (there)
        return 0;
    ns_write(c);
    int r = file_materialise(c, n);
    ns_done(c);
    return r;
}

void file_drop_orphan(struct cache *c, uint64_t id)
{
    int r = mirror_drop_orphan(&c->mirror, id);

    if (r < 0)
        log_later(&c->log, LOG_LEVEL_WARN, "cache %s: can't remove orphans/%" PRIx64 ": %s",
                  c->mirror.dir, id, strerror(-r));
}

/* How often a file that eviction took away at the wrong moment is made again. */
#define NEED_TRIES 8

/* Drops a file that lost pages on a failing disk, and that the store has as well: it is fetched
 * again. 0: there is nothing to drop; 1: it was dropped; -EIO: it is in use, or the disk
 * refuses. Unless it is 0 the descriptor is given back. */
static int drop_if_disk_lost(struct cache *c, struct node *n, int fd, enum file_fd which)
{
    cache_lock(c);
    bool clean = n->file && n->file->state == FILE_CLEAN, known = clean && n->file->disk_lost;
    cache_unlock(c);
    if (!clean || (!known && !fd_lost_pages(fd)))
        return 0;
    ns_write(c);
    cache_lock(c);
    struct file *f = n->file;
    bool stored = f->state == FILE_CLEAN && n->links && !n->links->next_link &&
                  !node_is_ours(n) && f->open_handles == 0 && file_fd_users(f) == 1;
    if (f->state == FILE_DIRTY) /* written meanwhile: the store does not have that */
        file_disk_lost_locked(c, n);
    else
        file_disk_lost_clean_locked(f);
    file_put_fd_locked(c, f, which);
    auto_free char *path = node_path(n);
    cache_unlock(c);
    int r = stored ? file_discard(c, n) : -EBUSY;
    ns_done(c);
    log_warn("cache %s: its disk lost content of %s; %s", c->mirror.dir, path ? path : "a file",
             r == 0        ? "it is read from the store again"
             : r == -EBUSY ? "it can't be read while it is in use"
                           : "it can't be read, and not be taken away");
    return r == 0 ? 1 : -EIO;
}

/* Eviction spares only files in use: it can take this one between the two steps. */
int file_need_fd(struct cache *c, struct node *n, enum file_fd which)
{
    int r = -ESTALE;

    for (int i = 0; i < NEED_TRIES && r == -ESTALE; i++) {
        r = file_need(c, n);
        if (r < 0)
            break; /* -ESTALE, too: it has no name any more */
        r = file_get_fd(c, n, which);
        int lost = r < 0 ? 0 : drop_if_disk_lost(c, n, r, which);
        if (lost != 0)
            r = lost < 0 ? lost : -ESTALE;
    }
    return r;
}
