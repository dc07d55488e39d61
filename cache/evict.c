/* Space: clean content goes, least recently used first, before the disk or the limit is
 * reached; writers wait for uploads when nothing clean is left; directories that nobody uses
 * are forgotten when the tree outgrows its memory. Also pins. */
#include "cache/node.h"

#include "cache/crash.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <utlist.h>

/* Eviction begins below the limit, so that passthrough writers find room. */
#define HIGH_WATER(size) ((size) / 100 * 95)
/* A stub that only remembers an inode number. */
#define STUB_BYTES 8192
/* What a writer that can't be made to wait may need. */
#define HEADROOM_MAX (UINT64_C(1) << 30)
/* How long the store must have been failing before writers are told ENOSPC. */
#define GRACE_NS (60 * NS_PER_SEC)
/* What a known name takes in memory, roughly. */
#define NODE_BYTES      400
#define FORGET_EVERY_NS (5 * NS_PER_SEC)

/* ---- pins ---- */

bool path_is_pinned(struct cache *c, const char *path)
{
    struct pin *p, *next;

    HASH_ITER(hh, c->pins, p, next)
    {
        if (path_below(p->path, path))
            return true;
    }
    return false;
}

static int pin_add(void *arg, const char *path)
{
    struct cache *c = arg;
    size_t len = strlen(path);
    struct pin *p;

    HASH_FIND_STR(c->pins, path, p);
    if (p)
        return 0;
    p = calloc(1, sizeof(*p) + len + 1);
    if (!p)
        return -ENOMEM;
    memcpy(p->path, path, len + 1);
    HASH_ADD_KEYPTR(hh, c->pins, p->path, len, p);
    return 0;
}

static void pin_remove(struct cache *c, const char *path)
{
    struct pin *p;

    HASH_FIND_STR(c->pins, path, p);
    if (!p)
        return;
    HASH_DEL(c->pins, p);
    free(p);
}

int pins_load(struct cache *c)
{
    return journal_each_pin(c->journal, pin_add, c);
}

void pins_free(struct cache *c)
{
    struct pin *p, *next;

    HASH_ITER(hh, c->pins, p, next)
    {
        HASH_DEL(c->pins, p);
        free(p);
    }
}

static int back_to_lru(void *arg, struct node *n)
{
    struct cache *c = arg;

    if (n->file && !n->file->in_lru)
        file_lru_add_locked(c, n->file);
    return 0;
}

int cache_pin(struct cache *c, const char *path, bool pinned)
{
    int r = journal_set_pin(c->journal, path, pinned);

    if (r < 0)
        return r;
    mutex_lock(&c->lock);
    if (pinned) {
        r = pin_add(c, path);
    } else {
        pin_remove(c, path);
        struct node *n = tree_find(c, path, NULL);
        if (n)
            (void)tree_each(n, back_to_lru, c);
    }
    mutex_unlock(&c->lock);
    return r;
}

/* ---- eviction ---- */

static bool too_full_locked(struct cache *c)
{
    return c->used_bytes > HIGH_WATER(c->config.size_bytes) ||
           c->disk_free_bytes < c->config.reserve_bytes;
}

/* The next file that may go; what may never go leaves the list on the way. */
static struct node *next_victim_locked(struct cache *c)
{
    while (c->lru) {
        struct file *f = c->lru;
        struct node *n = f->node;
        auto_free char *path = n->links ? entry_path(n->links) : NULL;
        bool stub = (f->state == FILE_PARTIAL || n->size == 0) &&
                    f->blocks_bytes <= STUB_BYTES && !(n->flags & NODE_DEFAULT_INO);
        file_lru_remove_locked(c, f);
        if (path && !stub && !n->links->next_link && !path_is_pinned(c, path) &&
            f->state != FILE_DIRTY && !f->open_handles && !f->queued && !f->uploading &&
            !node_is_ours(n))
            return n;
    }
    return NULL;
}

/* A mapping may still read a closed file: it keeps its inode, the name gets a fresh stub. */
static void evict_one(struct cache *c, struct node *n)
{
    bool keeps_ino = !(n->flags & NODE_DEFAULT_INO);
    int r = file_discard(c, n);

    crash_point("evict-discarded");
    if (r == 0 && keeps_ino)
        r = file_materialise(c, n);
    if (r < 0 && r != -EBUSY)
        log_warn("cache %s: can't evict a file: %s", c->mirror.dir, strerror(-r));
}

static bool evict_next(struct cache *c)
{
    ns_write(c);
    mutex_lock(&c->lock);
    struct node *n = too_full_locked(c) ? next_victim_locked(c) : NULL;
    if (n)
        node_ref_locked(n);
    mutex_unlock(&c->lock);
    if (n)
        evict_one(c, n);
    ns_done(c);
    if (!n)
        return false;
    mutex_lock(&c->lock);
    node_unref_locked(c, n);
    waitq_wake_locked(c, &c->space_waiters, 0);
    mutex_unlock(&c->lock);
    return true;
}

/* ---- memory ---- */

static void forget_children_locked(struct cache *c, struct node *dir)
{
    struct entry *e, *next;
    bool forgot = false;

    HASH_ITER(hh, dir->dir->children, e, next)
    {
        struct node *n = e->node;
        if (n->nlookup || n->refs || n->file || n->dir || n->links != e || e->next_link ||
            node_is_ours(n))
            continue;
        entry_remove_locked(c, e);
        forgot = true;
    }
    if (forgot)
        dir->dir->listed_ns = 0;
}

static int forget_dir(void *arg, struct node *n)
{
    struct cache *c = arg;

    if (n->dir && !n->dir->local_only && !n->dir->listing && n->dir->listed_ns &&
        clock_mono_ns() - n->dir->told_ns > FORGET_EVERY_NS)
        forget_children_locked(c, n);
    return c->nodes * NODE_BYTES < c->config.list_memory_bytes;
}

static void forget_names(struct cache *c)
{
    if (clock_mono_ns() - c->forgot_ns < FORGET_EVERY_NS)
        return;
    c->forgot_ns = clock_mono_ns();
    ns_write(c);
    mutex_lock(&c->lock);
    if (c->nodes * NODE_BYTES > c->config.list_memory_bytes)
        (void)tree_each(c->root, forget_dir, c);
    mutex_unlock(&c->lock);
    ns_done(c);
}

/* ---- back-pressure ---- */

const char *space_trouble_text(enum space_trouble trouble)
{
    static const char *const texts[] = {
        [SPACE_FINE] = NULL,
        [SPACE_OVER_LIMIT] = "over its limit: what is open or waits for a rename is larger; it "
                             "may grow up to the reserve of the disk",
        [SPACE_STORE_GONE] = "full while uploads fail: writes get ENOSPC, what was written is "
                             "kept",
        [SPACE_DISK_FULL] =
            "its disk is full: writes get ENOSPC, what was written is kept, what "
            "was cut off is not published",
    };

    return texts[trouble];
}

/* Logged when it changes only: writers come by thousands a second. */
static void trouble_locked(struct cache *c, enum space_trouble trouble)
{
    if (c->space == trouble)
        return;
    c->space = trouble;
    if (trouble)
        log_warn("cache %s: %s (in use %" PRIu64 " of %" PRIu64 " bytes, free on the disk "
                 "%" PRIu64 ", reserve %" PRIu64 ")",
                 c->mirror.dir, space_trouble_text(trouble), c->used_bytes,
                 c->config.size_bytes, c->disk_free_bytes, c->config.reserve_bytes);
    else
        log_info("cache %s: has room again", c->mirror.dir);
}

void space_disk_full_locked(struct cache *c)
{
    trouble_locked(c, SPACE_DISK_FULL);
}

/* Whether an upload that runs, or may run, will make something clean. */
static bool upload_will_help_locked(struct cache *c, struct file *self)
{
    struct file *f;

    DL_FOREACH2(c->dirty, f, dirty_next)
    {
        if (f != self && !f->cut && f->blocks_bytes > 0 && f->state == FILE_DIRTY &&
            (f->uploading || (f->write_handles == 0 && !f->staged && !f->held)))
            return true;
    }
    return false;
}

int space_need_locked(struct cache *c, struct file *f, struct waiter *w)
{
    bool full = c->used_bytes > c->config.size_bytes;
    bool disk_full = c->disk_free_bytes < c->config.reserve_bytes / 2;
    struct statvfs vfs;

    /* The last look may be a second old: room that others made counts at once. */
    if (disk_full && mirror_statvfs(&c->mirror, &vfs) == 0) {
        c->disk_free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
        disk_full = c->disk_free_bytes < c->config.reserve_bytes / 2;
    }
    if ((!full && !disk_full) || !w)
        return 0;
    scheduler_kick_locked(c);
    if (c->lru)
        return waitq_park_locked(c, &c->space_waiters, w);
    if (upload_will_help_locked(c, f)) {
        if (!c->unreachable_ns || clock_mono_ns() - c->unreachable_ns <= GRACE_NS)
            return waitq_park_locked(c, &c->space_waiters, w);
        trouble_locked(c, SPACE_STORE_GONE);
        return -ENOSPC;
    }
    /* All of it is open or waits for its name: waiting would be for ever. The limit gives way
     * as long as the disk does not; docs/format.md, section 3, has why. */
    trouble_locked(c, disk_full ? SPACE_DISK_FULL : SPACE_OVER_LIMIT);
    return disk_full ? -ENOSPC : 0;
}

/* Passthrough writers ask nobody: what they did to the limit is seen here. */
static void look_at_space_locked(struct cache *c)
{
    if (!too_full_locked(c))
        trouble_locked(c, SPACE_FINE);
    else if (c->lru || upload_will_help_locked(c, NULL))
        return; /* there is room soon */
    else if (c->disk_free_bytes < c->config.reserve_bytes / 2)
        trouble_locked(c, SPACE_DISK_FULL);
    else if (c->used_bytes > c->config.size_bytes)
        trouble_locked(c, SPACE_OVER_LIMIT);
}

void evict_if_needed(struct cache *c)
{
    struct statvfs vfs;

    if (mirror_statvfs(&c->mirror, &vfs) == 0) {
        mutex_lock(&c->lock);
        c->disk_free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
        mutex_unlock(&c->lock);
    }
    for (int i = 0; i < 64 && evict_next(c); i++)
        ;
    forget_names(c);
    /* Those who wait for room find out when there is none to be had. */
    mutex_lock(&c->lock);
    look_at_space_locked(c);
    waitq_wake_locked(c, &c->space_waiters, 0);
    mutex_unlock(&c->lock);
}

bool space_for_passthrough_locked(struct cache *c)
{
    uint64_t writers = 1, room = c->config.size_bytes / 8;
    struct file *f;

    DL_FOREACH2(c->writers, f, writer_next)
    {
        writers++;
    }
    if (room > HEADROOM_MAX)
        room = HEADROOM_MAX;
    return c->used_bytes + room * writers <= c->config.size_bytes &&
           c->disk_free_bytes > c->config.reserve_bytes + room * writers;
}
