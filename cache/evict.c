/* Space: clean content goes, least recently used first, before the disk or the limit is
 * reached; writers wait for uploads when nothing clean is left; directories that nobody uses
 * are forgotten when the tree outgrows its memory. Also pins. */
#include "cache/node.h"

#include "cache/crash.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <string.h>
#include <utlist.h>

/* Eviction begins below the limit, so that passthrough writers find room. */
#define HIGH_WATER(size) ((size) / 100 * 95)
/* A stub that only remembers an inode number. */
#define STUB_BYTES 8192
/* What a writer that can't be made to wait may need. */
#define HEADROOM_MAX    (UINT64_C(1) << 30)
#define FORGET_EVERY_NS (5 * NS_PER_SEC)
/* How much is allocated between two looks at the disk. */
#define TAKE_MAX (UINT64_C(64) << 20)
#define TAKE_MIN (UINT64_C(4) << 10)
/* Less is not worth a look at all of the heap. */
#define TRIM_BYTES (UINT64_C(4) << 20)

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

static int pin_add(void *arg, const char *path) REQUIRES(cache_mutex)
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

static void pin_remove(struct cache *c, const char *path) REQUIRES(cache_mutex)
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

static int back_to_lru(void *arg, struct node *n) REQUIRES(cache_mutex)
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
    cache_lock(c);
    if (pinned) {
        r = pin_add(c, path);
    } else {
        pin_remove(c, path);
        struct node *n = tree_find(c, path, NULL);
        if (n)
            (void)tree_each(n, back_to_lru, c);
    }
    cache_unlock(c);
    return r;
}

/* ---- eviction ---- */

static bool space_too_full_locked(struct cache *c) REQUIRES(cache_mutex)
{
    return c->used_bytes > HIGH_WATER(c->config.size_bytes) ||
           c->disk_free_bytes < c->config.reserve_bytes;
}

/* The next file that may go; what may never go leaves the list on the way. */
static struct node *next_victim_locked(struct cache *c) REQUIRES(cache_mutex)
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
        evict_one(c, n);
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

static void forget_children_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
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

static int forget_dir(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    struct cache *c = arg;

    if (n->dir && !n->dir->new_here && !n->dir->listing && !n->dir->queries &&
        n->dir->listed_ns && clock_mono_ns() - n->dir->told_ns > FORGET_EVERY_NS)
        forget_children_locked(c, n);
    return c->nodes * NODE_BYTES < c->config.list_memory_bytes;
}

static void forget_names(struct cache *c)
{
    if (clock_mono_ns() - c->forgot_ns < FORGET_EVERY_NS)
        return;
    c->forgot_ns = clock_mono_ns();
    ns_write(c);
    cache_lock(c);
    inos_purge_locked(c);
    uint64_t before = c->nodes;
    if (c->nodes * NODE_BYTES > c->config.list_memory_bytes)
        (void)tree_each(c->root, forget_dir, c);
    uint64_t forgot = before - c->nodes;
    cache_unlock(c);
    ns_done(c);
    if (forgot * NODE_BYTES > TRIM_BYTES)
        (void)malloc_trim(0); /* small pieces stay with the process otherwise */
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
        [SPACE_DISK_FULL] = "its disk is full, or its user's quota: writes get ENOSPC or "
                            "EDQUOT, what was written is kept, what "
                            "was cut off is not published",
        [SPACE_READ_ONLY] = "its filesystem is read-only: nothing can be changed, what was "
                            "written is published",
        [SPACE_REMOVED] = "it was removed while it was mounted: nothing can be written or read "
                          "any more; unmount, and mount again",
    };

    return texts[trouble];
}

/* Logged when it changes only: writers come by thousands a second. */
static void space_trouble_locked(struct cache *c, enum space_trouble trouble)
    REQUIRES(cache_mutex)
{
    if (c->space == trouble)
        return;
    c->space = trouble;
    if (trouble)
        log_later(&c->log, LOG_LEVEL_WARN,
                  "cache %s: %s (in use %" PRIu64 " of %" PRIu64 " bytes, free on the disk "
                  "%" PRIu64 ", reserve %" PRIu64 ")",
                  c->mirror.dir, space_trouble_text(trouble), c->used_bytes,
                  c->config.size_bytes, c->disk_free_bytes, c->config.reserve_bytes);
    else
        log_later(&c->log, LOG_LEVEL_INFO, "cache %s: has room again", c->mirror.dir);
}

void space_disk_full_locked(struct cache *c)
{
    space_trouble_locked(c, SPACE_DISK_FULL);
}

/* What will turn clean, in bytes on the disk. */
struct relief {
    uint64_t soon;  /* goes up now, or may */
    uint64_t stuck; /* would go up, if the store had not refused it for some time */
};

static struct relief relief_locked(struct cache *c, struct file *self) REQUIRES(cache_mutex)
{
    int64_t since_ns = clock_mono_ns() - c->config.grace_ns;
    bool none = c->unreachable_ns && c->unreachable_ns < since_ns;
    bool intents = !none && intents_look_stuck_locked(c, since_ns);
    struct relief ret = {0, 0};
    struct file *f;

    DL_FOREACH2(c->dirty, f, dirty_next)
    {
        if (f == self || f->cut || f->state != FILE_DIRTY ||
            (!f->uploading && (f->write_handles || f->staged || f->held)))
            continue;
        bool stuck = none || (f->attempts && f->failing_ns < since_ns);
        auto_free char *path = !stuck && intents && !f->uploading ? node_path(f->node) : NULL;
        if (stuck || (path && stuck_intent_blocks_locked(c, path)))
            ret.stuck += f->blocks_bytes;
        else
            ret.soon += f->blocks_bytes;
    }
    return ret;
}

/* Whether there is room when so much of what is dirty is in the store. */
static bool room_after_locked(struct cache *c, uint64_t relief) REQUIRES(cache_mutex)
{
    return c->used_bytes <= c->config.size_bytes + relief &&
           c->disk_free_bytes + relief >= c->config.reserve_bytes / 2;
}

/* SPACE_FINE: it is worth waiting for room. What goes up is, unless it makes too little, and
 * the rest of it can't go: that could be for ever, and what is small and goes up comes again
 * and again. Where all that is closed makes too little, the rest is open or waits for its name:
 * the limit gives way as long as the disk does not; docs/format.md, section 3, has why. */
static enum space_trouble space_outlook_locked(struct cache *c, struct file *self)
    REQUIRES(cache_mutex)
{
    bool disk_full = c->disk_free_bytes < c->config.reserve_bytes / 2;

    if (c->lru)
        return SPACE_FINE;
    struct relief r = relief_locked(c, self);
    if (r.soon && (!r.stuck || room_after_locked(c, r.soon)))
        return SPACE_FINE;
    if (r.stuck && (disk_full || room_after_locked(c, r.soon + r.stuck)))
        return SPACE_STORE_GONE;
    return r.soon ? SPACE_FINE : disk_full ? SPACE_DISK_FULL : SPACE_OVER_LIMIT;
}

static bool space_is_full_locked(struct cache *c) REQUIRES(cache_mutex)
{
    return !room_after_locked(c, 0);
}

int space_need_locked(struct cache *c, struct file *f, struct waiter *w)
{
    struct statvfs vfs;

    /* The last look may be a second old: room that others made counts at once. */
    if (c->disk_free_bytes < c->config.reserve_bytes / 2 &&
        mirror_statvfs(&c->mirror, &vfs) == 0)
        c->disk_free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    if (!space_is_full_locked(c) || !w)
        return 0;
    scheduler_kick_locked(c);
    enum space_trouble outlook = space_outlook_locked(c, f);
    if (outlook == SPACE_FINE)
        return waitq_park_locked(c, &c->space_waiters, w);
    space_trouble_locked(c, outlook);
    return outlook == SPACE_OVER_LIMIT ? 0 : -ENOSPC;
}

/* A write takes little beyond what was looked at; this one may take all. The disk's free bytes
 * are those that are not root's alone, which the kernel would give us. */
int space_take_locked(struct cache *c, struct file *f, uint64_t want, struct waiter *w,
                      uint64_t *ret)
{
    const uint64_t kept = c->config.reserve_bytes / 2;
    struct statvfs vfs;

    if (mirror_statvfs(&c->mirror, &vfs) == 0)
        c->disk_free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    int r = space_need_locked(c, f, w);
    if (r != 0)
        return r;
    uint64_t room = c->disk_free_bytes > kept + TAKE_MIN ? c->disk_free_bytes - kept : TAKE_MIN;
    uint64_t most = room < TAKE_MAX ? room : TAKE_MAX;
    *ret = want < most ? want : most;
    return 0;
}

bool space_is_never_there_locked(struct cache *c, const struct file *f, uint64_t want)
{
    const uint64_t kept = c->config.reserve_bytes / 2;
    uint64_t others = c->used_bytes > f->blocks_bytes ? c->used_bytes - f->blocks_bytes : 0;
    uint64_t most = c->disk_free_bytes + others;

    return want > f->blocks_bytes && (most < kept || want - f->blocks_bytes > most - kept);
}

/* Passthrough writers ask nobody: what they did to the limit is seen here. `disk`: what is the
 * matter with the filesystem itself. */
static void look_at_space_locked(struct cache *c, enum space_trouble disk) REQUIRES(cache_mutex)
{
    if (disk)
        space_trouble_locked(c, disk);
    else if (c->space == SPACE_READ_ONLY || !space_too_full_locked(c))
        space_trouble_locked(c, SPACE_FINE);
    if (disk || !space_is_full_locked(c))
        return;
    enum space_trouble outlook = space_outlook_locked(c, NULL);
    if (outlook) /* else there is room soon */
        space_trouble_locked(c, outlook);
}

void evict_if_needed(struct cache *c)
{
    enum space_trouble disk = mirror_removed(&c->mirror)     ? SPACE_REMOVED
                              : mirror_read_only(&c->mirror) ? SPACE_READ_ONLY
                                                             : SPACE_FINE;
    struct statvfs vfs;

    if (mirror_statvfs(&c->mirror, &vfs) == 0) {
        cache_lock(c);
        c->disk_free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
        cache_unlock(c);
    }
    for (int i = 0; i < 64 && evict_next(c); i++)
        ;
    forget_names(c);
    /* Those who wait for room find out when there is none to be had. */
    cache_lock(c);
    look_at_space_locked(c, disk);
    waitq_wake_locked(c, &c->space_waiters, 0);
    cache_unlock(c);
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
