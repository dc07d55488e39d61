/* Room on the cache's disk: who waits for it, who is refused, and why. */
#include "cache/transfer/transfer_impl.h"

#include "cache/mirror/mirror.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <utlist.h>

/* Eviction begins below the limit, so that passthrough writers find room. */
#define HIGH_WATER(size) ((size) / 100 * 95)

/* What a writer may need that can't be made to wait. */
#define HEADROOM_MAX (UINT64_C(1) << 30)

/* How much is allocated between two looks at the disk. */
#define TAKE_MAX (UINT64_C(64) << 20)
#define TAKE_MIN (UINT64_C(4) << 10)

/* ---- eviction ---- */
bool space_too_full_locked(struct cache *c)
{
    cache_assert_locked(c);
    return c->content->used_bytes > HIGH_WATER(c->config.size_bytes) ||
           c->content->disk_free_bytes < c->config.reserve_bytes;
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

void space_trouble_locked(struct cache *c, enum space_trouble trouble)
{
    cache_assert_locked(c);
    if (c->transfer->space == trouble)
        return;
    c->transfer->space = trouble;
    if (trouble)
        log_later(&c->log, LOG_LEVEL_WARN,
                  "cache %s: %s (in use %" PRIu64 " of %" PRIu64 " bytes, free on the disk "
                  "%" PRIu64 ", reserve %" PRIu64 ")",
                  c->mirror.dir, space_trouble_text(trouble), c->content->used_bytes,
                  c->config.size_bytes, c->content->disk_free_bytes, c->config.reserve_bytes);
    else
        log_later(&c->log, LOG_LEVEL_INFO, "cache %s: has room again", c->mirror.dir);
}

void space_disk_full_locked(struct cache *c)
{
    cache_assert_locked(c);
    space_trouble_locked(c, SPACE_DISK_FULL);
}

/* What will turn clean, in bytes on the disk. */
struct relief {
    uint64_t soon;  /* goes up now, or may */
    uint64_t stuck; /* would go up, if its store had not refused it for some time */
};

/* Whether the file's uploads have been failing since before then. */
static bool fails_since_locked(const struct file *f, int64_t since_ns) REQUIRES(cache_mutex)
{
    return f->debt.failing_ns && f->debt.failing_ns < since_ns;
}

/* Whether that tells of other files that go to its store: not where the store refuses this one,
 * or it is the cache that fails. */
static bool fails_for_all_locked(const struct file *f) REQUIRES(cache_mutex)
{
    return !f->error_here && f->debt.error != -EBUSY && !refusal_is_one(f->debt.error);
}

/* A store takes nothing when a file has been failing there since before then, and none was
 * stored there meanwhile. */
static void look_at_stores_locked(struct cache *c, int64_t since_ns) REQUIRES(cache_mutex)
{
    struct file *f;

    for (unsigned i = 0; i < volumes_count(c); i++)
        c->queue->volumes[i].takes_none = false;
    OWED_FILES_FOREACH(c, f)
    {
        struct volume *v = &c->queue->volumes[node_volume(f->node)];
        if (fails_since_locked(f, since_ns) && fails_for_all_locked(f) &&
            v->uploaded_ns < f->debt.failing_ns)
            v->takes_none = true;
    }
}

static struct relief relief_locked(struct cache *c, struct file *self) REQUIRES(cache_mutex)
{
    int64_t since_ns = clock_mono_ns() - c->config.grace_ns;
    bool looked = false, intents = false;
    struct relief ret = {0, 0};
    struct file *f;

    look_at_stores_locked(c, since_ns);
    OWED_FILES_FOREACH(c, f)
    {
        if (f == self || f->short_write || f->state != FILE_DIRTY ||
            (!f->debt.running && (f->write_handles || f->staged || f->mapped_writer)))
            continue;
        bool stuck = fails_since_locked(f, since_ns) ||
                     c->queue->volumes[node_volume(f->node)].takes_none ||
                     unit_is_stuck_locked(f);
        if (!stuck && !looked)
            intents = intents_look_stuck_locked(c, since_ns);
        looked = looked || !stuck;
        auto_free char *path =
            !stuck && intents && !f->debt.running ? node_path(f->node) : NULL;
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
    return c->content->used_bytes <= c->config.size_bytes + relief &&
           c->content->disk_free_bytes + relief >= c->config.reserve_bytes / 2;
}

enum space_trouble space_outlook_locked(struct cache *c, struct file *self)
{
    bool disk_full = c->content->disk_free_bytes < c->config.reserve_bytes / 2;

    cache_assert_locked(c);
    if (c->content->lru)
        return SPACE_FINE;
    struct relief r = relief_locked(c, self);
    if (r.soon && (!r.stuck || room_after_locked(c, r.soon)))
        return SPACE_FINE;
    if (r.stuck && (disk_full || room_after_locked(c, r.soon + r.stuck)))
        return SPACE_STORE_GONE;
    return r.soon ? SPACE_FINE : disk_full ? SPACE_DISK_FULL : SPACE_OVER_LIMIT;
}

bool space_is_full_locked(struct cache *c)
{
    cache_assert_locked(c);
    return !room_after_locked(c, 0);
}

/* A pass evicts, and may start what makes room. Each attempt that fails wakes all who wait for
 * it, and is to be no reason for a pass at once. */
static void ask_for_pass_locked(struct cache *c, struct waiter *w) REQUIRES(cache_mutex)
{
    if (!w->needs_room || c->content->lru)
        scheduler_kick_locked(c);
    else
        scheduler_kick_late_locked(c);
    w->needs_room = true;
}

int space_need_locked(struct cache *c, struct file *f, struct waiter *w)
{
    struct statvfs vfs;

    cache_assert_locked(c);
    /* The last look may be a second old: room that others made counts at once. */
    if (c->content->disk_free_bytes < c->config.reserve_bytes / 2 &&
        mirror_statvfs(&c->mirror, &vfs) == 0)
        disk_seen_locked(c, &vfs);
    if (!space_is_full_locked(c) || !w)
        return 0;
    ask_for_pass_locked(c, w);
    enum space_trouble outlook = space_outlook_locked(c, f);
    if (outlook == SPACE_FINE)
        return waitq_park_locked(c, &c->space_waiters, w);
    space_trouble_locked(c, outlook);
    return outlook == SPACE_OVER_LIMIT ? 0 : -ENOSPC;
}

/* A write takes little beyond the last look; an allocation may take all. The disk's free bytes
 * do not count those of root alone, which the kernel would give us. */
int space_take_locked(struct cache *c, struct file *f, uint64_t want, struct waiter *w,
                      uint64_t *ret)
{
    const uint64_t kept = c->config.reserve_bytes / 2;
    struct statvfs vfs;

    cache_assert_locked(c);
    if (mirror_statvfs(&c->mirror, &vfs) == 0)
        disk_seen_locked(c, &vfs);
    int r = space_need_locked(c, f, w);
    if (r != 0)
        return r;
    uint64_t room = c->content->disk_free_bytes > kept + TAKE_MIN
                        ? c->content->disk_free_bytes - kept
                        : TAKE_MIN;
    uint64_t most = room < TAKE_MAX ? room : TAKE_MAX;
    *ret = want < most ? want : most;
    return 0;
}

bool space_is_never_there_locked(struct cache *c, const struct file *f, uint64_t want)
{
    const uint64_t kept = c->config.reserve_bytes / 2;
    uint64_t others =
        c->content->used_bytes > f->blocks_bytes ? c->content->used_bytes - f->blocks_bytes : 0;
    uint64_t most = c->content->disk_free_bytes + others;

    cache_assert_locked(c);
    return want > f->blocks_bytes && (most < kept || want - f->blocks_bytes > most - kept);
}

bool space_for_passthrough_locked(struct cache *c)
{
    uint64_t writers = 1, room = c->config.size_bytes / 8;
    struct file *f;

    cache_assert_locked(c);
    DL_FOREACH2(c->content->writers, f, writer_next)
    {
        writers++;
    }
    if (room > HEADROOM_MAX)
        room = HEADROOM_MAX;
    return c->content->used_bytes + room * writers <= c->config.size_bytes &&
           c->content->disk_free_bytes > c->config.reserve_bytes + room * writers;
}
