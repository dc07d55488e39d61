/* Downloads: ranges of partial files come from the store, each byte asked for once however many
 * readers wait, with read-ahead in parallel. A fetch is claimed under the lock, runs without
 * it, and records what arrived chunk by chunk, so that a reader waits for its bytes only. */
#include "cache/node.h"

#include "cache/crash.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <utlist.h>

/* What a random reader gets beyond what it asked, to the next multiple of this many bytes. */
#define ALIGN_BYTES (UINT64_C(32) << 10)
/* How long a failure answers those who waited for it before the range is asked again. */
#define FAILED_NS (1 * NS_PER_SEC)
/* How often the source may be renamed at the store under one download. */
#define MOVES_MAX 16

struct fetch_sink {
    struct sink base;
    struct fetch *fetch;
    int fd;
};

static int write_all(int fd, const char *data, size_t len, uint64_t off)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, data, len, (off_t)off);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        off += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

static int fetch_write(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct fetch_sink *s = container_of(sink, struct fetch_sink, base);
    struct cache *c = s->fetch->cache;
    struct file *f = s->fetch->node->file;

    if (off < s->fetch->off || off + len > s->fetch->end)
        return -EPROTO;
    int r = write_all(s->fd, data, len, off);
    if (r < 0)
        return r;
    mutex_lock(&c->lock);
    r = ranges_add(&f->present, off, off + len);
    c->downloaded_bytes += len;
    waitq_wake_locked(c, &f->range_waiters, 0);
    mutex_unlock(&c->lock);
    return r;
}

/* Where the node's bytes are now: key and version. */
static int fetch_source(struct cache *c, struct node *n, char **ret_key, char **ret_etag)
{
    mutex_lock(&c->lock);
    struct file *f = n->file;
    char *key = f->orphan_id ? (f->orphan_key ? strdup(f->orphan_key) : NULL) : node_key(n);
    char *etag = f->etag && *f->etag ? strdup(f->etag) : NULL;
    mutex_unlock(&c->lock);
    if (!key) {
        free(etag);
        return -ESTALE;
    }
    *ret_key = key;
    *ret_etag = etag;
    return 0;
}

static int fetch_once(struct fetch *fetch, int fd, uint64_t off, struct op *op, char **ret_key)
{
    struct cache *c = fetch->cache;
    struct fetch_sink sink = {.base.write = fetch_write, .fetch = fetch, .fd = fd};
    auto_free char *etag = NULL;
    int r = fetch_source(c, fetch->node, ret_key, &etag);

    if (r < 0)
        return op_fail(op, r, "the file is gone");
    size_t len = (size_t)(fetch->end - off);
    ssize_t n = store_read(c->store, op, *ret_key, etag, &sink.base, len, off, NULL);
    if (n < 0)
        return (int)n;
    return (size_t)n == len ? 0
                            : op_fail(op, -ESTALE, "%s/%s is shorter than it was listed",
                                      c->store->url, *ret_key);
}

/* While the store renames the source nobody can tell where it is. Whether that was so. */
static bool wait_for_rename(struct cache *c, const char *key, struct op *op)
{
    bool waited = false;

    mutex_lock(&c->lock);
    while (rename_runs_at_locked(c, key) && op_check(op) == 0) {
        waited = true;
        (void)mutex_wait_until(&c->lock, &c->progress, clock_mono_ns() + NS_PER_SEC / 10);
    }
    mutex_unlock(&c->lock);
    return waited;
}

/* The bytes; a source that was renamed at the store meanwhile is looked for at its new place.
 */
static int fetch_bytes(struct fetch *fetch, int fd)
{
    struct cache *c = fetch->cache;
    struct op op;
    int r = 0;

    op_init(&op, c->config.store_timeout_ns);
    op.cancelled = &c->cancelled;
    for (int i = 0; i < MOVES_MAX; i++) {
        auto_free char *key = NULL;
        auto_free char *key_now = NULL;
        auto_free char *etag_now = NULL;
        r = fetch_once(fetch, fd, fetch->off, &op, &key);
        if ((r != -ENOENT && r != -ESTALE) || !key)
            break;
        bool waited = wait_for_rename(c, key, &op);
        if (fetch_source(c, fetch->node, &key_now, &etag_now) < 0 ||
            (strcmp(key, key_now) == 0 && !waited))
            break;
    }
    if (r < 0)
        log_warn("download failed: %s", op.why);
    return r;
}

/* All ranges are here: the file turns clean; docs/format.md has the order. */
static int complete(struct node *n, int fd)
{
    struct file *f = n->file;
    const struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = f->clean_mtime_ns / NS_PER_SEC, .tv_nsec = f->clean_mtime_ns % NS_PER_SEC}};

    crash_point("complete-data");
    if (futimens(fd, times) < 0)
        return -errno;
    crash_point("complete-mtime");
    return stamp_remove_ranges(fd);
}

static void finish_locked(struct cache *c, struct fetch *fetch, int r, const struct stat *st)
{
    struct file *f = fetch->node->file;

    LL_DELETE(f->fetches, fetch);
    if (r < 0) {
        f->failed.off = fetch->off;
        f->failed.end = fetch->end;
        f->failed.err = r == -ENOENT ? -ESTALE : r;
        f->failed.until_ns = clock_mono_ns() + FAILED_NS;
        if (f->failed.err == -ESTALE) {
            f->gone = true;
            for (struct entry *e = f->node->links; e; e = e->next_link)
                e->verified_ns = 0;
        }
    }
    if (st)
        file_account_locked(c, f, (uint64_t)st->st_blocks * 512);
    waitq_wake_locked(c, &f->range_waiters, 0);
    progress_locked(c);
}

/* The last fetch of a whole file turns it clean before its waiters are woken. */
static int maybe_complete(struct cache *c, struct fetch *fetch, int fd)
{
    struct node *n = fetch->node;
    struct file *f = n->file;

    mutex_lock(&c->lock);
    bool last = f->state == FILE_PARTIAL && f->fetches == fetch && !fetch->next && !f->busy &&
                ranges_has(&f->present, 0, n->size);
    f->busy = f->busy || last;
    mutex_unlock(&c->lock);
    if (!last)
        return 0;
    int r = complete(n, fd);
    mutex_lock(&c->lock);
    f->busy = false;
    if (r == 0) {
        f->state = FILE_CLEAN;
        ranges_clear(&f->present);
    }
    mutex_unlock(&c->lock);
    return r;
}

static void record_ranges(struct cache *c, struct node *n, int fd)
{
    struct ranges copy = {0};
    int r = 0;

    mutex_lock(&c->lock);
    struct file *f = n->file;
    bool partial = f->state == FILE_PARTIAL && !f->busy;
    for (size_t i = 0; partial && i < f->present.n && r == 0; i++)
        r = ranges_add(&copy, f->present.v[i].off, f->present.v[i].end);
    mutex_unlock(&c->lock);
    if (partial && r == 0)
        (void)stamp_write_ranges(fd, &copy, false);
    ranges_clear(&copy);
}

static void run_fetch(struct task *task)
{
    struct fetch *fetch = container_of(task, struct fetch, task);
    struct cache *c = fetch->cache;
    struct node *n = fetch->node;
    struct stat st;
    int fd = file_get_fd(c, n, FD_WRITE);
    int r = fd < 0 ? fd : fetch->off < fetch->end ? fetch_bytes(fetch, fd) : 0;

    if (r == 0)
        record_ranges(c, n, fd);
    if (r == 0)
        r = maybe_complete(c, fetch, fd);
    bool seen = fd >= 0 && fstat(fd, &st) == 0;
    mutex_lock(&c->lock);
    finish_locked(c, fetch, r, seen ? &st : NULL);
    if (fd >= 0)
        file_put_fd_locked(c, n->file, FD_WRITE);
    if (n->file->open_handles == 0)
        file_lru_add_locked(c, n->file);
    node_unref_locked(c, n);
    mutex_unlock(&c->lock);
    free(fetch);
}

static int start_locked(struct cache *c, struct node *n, uint64_t off, uint64_t end)
{
    struct fetch *fetch = calloc(1, sizeof(*fetch));

    if (!fetch)
        return -ENOMEM;
    *fetch =
        (struct fetch){.task.run = run_fetch, .node = n, .cache = c, .off = off, .end = end};
    node_ref_locked(n);
    file_lru_remove_locked(c, n->file);
    LL_PREPEND(n->file->fetches, fetch);
    pool_submit(c->fetchers, &fetch->task);
    return 0;
}

/* The first stretch of [off, end) that is neither here nor on its way. */
static bool unclaimed(struct file *f, uint64_t off, uint64_t end, struct range *ret)
{
    while (ranges_missing(&f->present, off, end, ret)) {
        struct fetch *hit = NULL;
        for (struct fetch *i = f->fetches; i && !hit; i = i->next)
            if (i->off <= ret->off && ret->off < i->end)
                hit = i;
        if (!hit) {
            for (struct fetch *i = f->fetches; i; i = i->next)
                if (i->off > ret->off && i->off < ret->end)
                    ret->end = i->off;
            return true;
        }
        off = hit->end;
    }
    return false;
}

/* Starts fetches for what is missing in [off, end), a part each. */
static int start_range_locked(struct cache *c, struct node *n, uint64_t off, uint64_t end)
{
    struct range todo;
    int r = 0;

    while (r == 0 && unclaimed(n->file, off, end, &todo)) {
        uint64_t cut = todo.off + c->config.part_size;
        if (todo.end > cut)
            todo.end = cut;
        r = start_locked(c, n, todo.off, todo.end);
        off = todo.end;
    }
    return r;
}

static uint64_t ahead_end(struct cache *c, struct node *n, uint64_t off, uint64_t end,
                          uint64_t ahead)
{
    uint64_t to = (end + ALIGN_BYTES - 1) & ~(ALIGN_BYTES - 1);

    if (end + ahead > to)
        to = end + ahead;
    /* A small file read from its beginning is one request. */
    if (off == 0 && n->size <= c->config.part_size)
        to = n->size;
    return to < n->size ? to : n->size;
}

int fetch_need_locked(struct cache *c, struct node *n, uint64_t off, uint64_t end,
                      uint64_t ahead, struct waiter *w)
{
    struct file *f = n->file;
    bool here = ranges_has(&f->present, off, end);

    mutex_assert_held(&c->lock);
    if (f->busy && !here)
        return waitq_park_locked(c, &f->range_waiters, w);
    if (!here && f->gone)
        return -ESTALE;
    if (!here && f->failed.err && clock_mono_ns() < f->failed.until_ns && f->failed.off < end &&
        off < f->failed.end)
        return f->failed.err;
    /* With the whole of the window on its way there is no request to add. */
    uint64_t to = ahead_end(c, n, off, end, ahead);
    int r = f->gone || (here && ahead == 0) ? 0 : start_range_locked(c, n, off, to);
    return here ? 0 : r < 0 ? r : waitq_park_locked(c, &f->range_waiters, w);
}

int fetch_complete_locked(struct cache *c, struct node *n, struct waiter *w)
{
    struct file *f = n->file;

    mutex_assert_held(&c->lock);
    if (f->state != FILE_PARTIAL)
        return 0;
    if (f->busy)
        return waitq_park_locked(c, &f->range_waiters, w);
    if (!ranges_has(&f->present, 0, n->size))
        return fetch_need_locked(c, n, 0, n->size, 0, w);
    if (f->failed.err && clock_mono_ns() < f->failed.until_ns)
        return f->failed.err;
    /* Every byte is here: an empty fetch makes the file complete. */
    int r = f->fetches ? 0 : start_locked(c, n, n->size, n->size);
    return r < 0 ? r : waitq_park_locked(c, &f->range_waiters, w);
}
