/* Downloads: ranges of partial files come from the store, each byte asked for once however many
 * readers wait, with read-ahead in parallel. A fetch is claimed under the lock, runs without
 * it, and records what arrived chunk by chunk, so that a reader waits for its bytes only. */
#include "cache/transfer/transfer_impl.h"

#include "cache/types/etag.h"
#include "cache/types/range.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utlist.h>

/* A random reader gets bytes beyond what it asked, to the next multiple of this many. */
#define ALIGN_BYTES (UINT64_C(32) << 10)

/* How long a failure answers those who waited for it before the range is asked again. */
#define FAILED_NS (1 * NS_PER_SEC)

/* How often the source may be renamed at the store under one download. */
#define MOVES_MAX 16

/* How many parts of one file are claimed at once for each worker, however large the store says
 * that it is: each claim costs memory, and the next one looks at all of them. */
#define CLAIMS_PER_JOB 4

/* Bytes come in pieces of 16 KiB at most and go to the disk in larger ones: one call, one turn
 * of the lock and one large folio in the page cache for each, which are read much faster later.
 * The first ones are small, and each doubles what came before, so that nobody waits long. */
#define GATHER_MAX (UINT64_C(256) << 10)
#define GATHER_MIN (UINT64_C(16) << 10)

/* The largest folios that Linux hands out from lists of each processor's own, from which no
 * page goes back to a host: see memory_is_given_back(). */
#define GATHER_KEPT (UINT64_C(32) << 10)
#define GATHER_NS   (10 * NS_PER_MS) /* what came is kept back no longer, over a slow line */

struct fetch_sink {
    struct sink base;
    struct fetch *fetch;
    int fd;
    int disk_error;    /* negative errno: the cache's own disk ended the fetch */
    char *gathered;    /* `len` bytes that belong at `off` and are not written yet */
    uint64_t off, len; /* len < room */
    uint64_t room;
    int64_t since_ns; /* when the first of them came */
    bool has_room;
};

/* A read that is tried again may begin anew; one that goes back elsewhere has no sum. */
static void add_to_sum(struct fetch *fetch, const void *data, size_t len, uint64_t off)
{
    if (off == fetch->off) {
        fetch->sum.value = 0;
        fetch->summed = off;
    }
    if (off != fetch->summed)
        return;
    checksum_add(&fetch->sum, data, len);
    fetch->summed += len;
}

/* Writes the bytes to the mirror and wakes their readers. */
static int store_piece(struct fetch_sink *s, const char *data, size_t len, uint64_t off)
{
    struct cache *c = s->fetch->cache;
    struct file *f = s->fetch->node->file;
    int r = s->disk_error = file_write_arrived(s->fd, data, len, off);

    if (r < 0)
        return r;
    add_to_sum(s->fetch, data, len, off);
    cache_lock(c);
    r = file_arrived_locked(f, off, off + len);
    c->transfer->downloaded_bytes += len;
    waitq_wake_arrived_locked(c, &f->range_waiters, &f->present);
    cache_unlock(c);
    return r;
}

static int store_gathered(struct fetch_sink *s)
{
    size_t len = (size_t)s->len;

    s->len = 0;
    return len ? store_piece(s, s->gathered, len, s->off) : 0;
}

/* A virtual machine that gives free memory back to its host (free page reporting) pays for its
 * first touch with faults in the host: one or two seconds for 1 GiB. Large folios are made of
 * such memory, and small ones of what was in use a moment ago. */
static bool memory_is_given_back(void)
{
    FILE *f = fopen("/sys/module/page_reporting/parameters/page_reporting_order", "re");
    unsigned order = UINT_MAX;

    if (f && fscanf(f, "%u", &order) != 1)
        order = UINT_MAX;
    if (f)
        (void)fclose(f);
    return order <= 31; /* UINT_MAX: nobody asks for it */
}

uint64_t fetch_gather_bytes(uint64_t wanted)
{
    if (!wanted)
        return memory_is_given_back() ? GATHER_KEPT : GATHER_MAX;
    return wanted < GATHER_MIN ? GATHER_MIN : wanted;
}

/* How much is gathered when the bytes at `off` come. */
static uint64_t room_at(const struct fetch_sink *s, uint64_t off)
{
    uint64_t came = off - s->fetch->off, most = s->fetch->cache->config.gather_bytes;

    return came < GATHER_MIN ? GATHER_MIN : came < most ? came : most;
}

static int gather(struct fetch_sink *s, const char *data, size_t len, uint64_t off)
{
    int r = 0;

    while (len > 0 && r == 0) {
        if (s->len == 0) {
            s->off = off;
            s->room = room_at(s, off);
            s->since_ns = clock_mono_ns();
        }
        size_t n = len < s->room - s->len ? len : (size_t)(s->room - s->len);
        memcpy(s->gathered + s->len, data, n);
        s->len += n;
        data += n;
        off += n;
        len -= n;
        if (s->len == s->room || clock_mono_ns() - s->since_ns > GATHER_NS)
            r = store_gathered(s);
    }
    return r;
}

static int fetch_write(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct fetch_sink *s = container_of(sink, struct fetch_sink, base);

    if (off < s->fetch->off || off + len > s->fetch->end)
        return -EPROTO;
    if (!s->has_room)
        file_take_room(s->fd, s->fetch->off, s->fetch->end);
    s->has_room = true;
    int r = s->len && off != s->off + s->len ? store_gathered(s) : 0;
    return r < 0 ? r : gather(s, data, len, off);
}

/* The place of the node's content; for an unlinked file its last place. */
static struct place source_of(struct node *n) REQUIRES(cache_mutex)
{
    struct file *f = n->file;

    if (!f->orphan_id)
        return node_place(n);
    return place_known(f->orphan_source) ? place_dup(f->orphan_source) : NO_PLACE;
}

int fetch_source(struct cache *c, struct node *n, struct place *ret_at, char **ret_etag)
{
    cache_lock(c);
    struct file *f = n->file;
    struct place at = source_of(n);
    char *etag = f->etag && *f->etag ? strdup(f->etag) : NULL;
    cache_unlock(c);
    if (!place_known(at)) {
        free(etag);
        return -ESTALE;
    }
    *ret_at = at;
    *ret_etag = etag;
    return 0;
}

/* Reads from the store into the mirror file; how many bytes, or an error. */
static ssize_t fetch_into(struct fetch_sink *sink, struct place at, const char *etag,
                          struct op *op)
{
    struct fetch *fetch = sink->fetch;
    size_t len = (size_t)(fetch->end - fetch->off);
    struct object obj = {0};

    sink->gathered = malloc(
        len < fetch->cache->config.gather_bytes ? len : fetch->cache->config.gather_bytes);
    if (!sink->gathered)
        return op_fail(op, -ENOMEM, "%s: no memory to download it", at.key);
    ssize_t n =
        store_read(fetch->cache->store, op, at.key, etag, &sink->base, len, fetch->off, &obj);
    /* Bytes that came before a failure are right, and are not asked for again. */
    int r = sink->disk_error ? 0 : store_gathered(sink);
    free(sink->gathered);
    if (n >= 0)
        fetch->verified = obj.checksum;
    if (n >= 0)
        object_release(&obj);
    return n >= 0 && r < 0 ? r : n;
}

static int fetch_once(struct fetch *fetch, int fd, struct op *op, struct place *ret_at,
                      char **ret_etag)
{
    struct cache *c = fetch->cache;
    struct fetch_sink sink = {.base.write = fetch_write, .fetch = fetch, .fd = fd};
    int r = fetch_source(c, fetch->node, ret_at, ret_etag);

    if (r < 0)
        return op_fail(op, r, "the file is gone");
    ssize_t n = fetch_into(&sink, *ret_at, *ret_etag, op);
    if (n < 0 && sink.disk_error)
        return op_fail(op, (int)n, "%s: can't write to the cache: %s", ret_at->key,
                       strerror(-sink.disk_error));
    if (n < 0)
        return (int)n;
    return fetch->off + (uint64_t)n == fetch->end
               ? 0
               : op_fail(op, -ESTALE, "%s/%s is shorter than it was listed", c->store->url,
                         ret_at->key);
}

/* Waits while the store renames the source, or takes new attributes for it: nobody can tell
 * then where it is, or which version it is. Whether it waited. */
static bool wait_for_source(struct cache *c, struct node *n, struct place at, struct op *op)
{
    bool waited = false;

    cache_lock(c);
    while ((n->file->debt.running || rename_runs_at_locked(c, at)) && op_check(op) == 0) {
        waited = true;
        (void)cache_wait_until(c, &c->progress, clock_mono_ns() + NS_PER_SEC / 10);
    }
    cache_unlock(c);
    return waited;
}

/* Whether the next request would ask for the same place and version. */
static bool is_the_source(struct cache *c, struct node *n, struct place at, const char *etag)
{
    auto_place struct place now = NO_PLACE;
    auto_free char *etag_now = NULL;

    if (fetch_source(c, n, &now, &etag_now) < 0)
        return true;
    bool same_version = etag && etag_now ? strcmp(etag, etag_now) == 0 : etag == etag_now;
    return same_version && place_same(at, now);
}

/* Fetches the bytes. When the source was renamed at the store meanwhile, it asks the new place;
 * when it got other attributes, it asks for its new version. */
static int fetch_bytes(struct fetch *fetch, int fd)
{
    struct cache *c = fetch->cache;
    struct op op;
    int r = 0;

    cache_op(c, &op);
    for (int i = 0; i < MOVES_MAX; i++) {
        auto_place struct place at = NO_PLACE;
        auto_free char *etag = NULL;
        r = fetch_once(fetch, fd, &op, &at, &etag);
        if ((r != -ENOENT && r != -ESTALE) || !place_known(at))
            break;
        bool waited = wait_for_source(c, fetch->node, at, &op);
        if (!waited && is_the_source(c, fetch->node, at, etag))
            break;
    }
    if (r < 0)
        read_failed(c, "download", r, op.why);
    return r;
}

/* ---- claims ---- */

static void run_fetch(struct task *task);

static int start_locked(struct cache *c, struct node *n, uint64_t off, uint64_t end)
    REQUIRES(cache_mutex)
{
    struct fetch *fetch = calloc(1, sizeof(*fetch));

    if (!fetch)
        return -ENOMEM;
    *fetch =
        (struct fetch){.task.run = run_fetch, .node = n, .cache = c, .off = off, .end = end};
    auto_place struct place at = source_of(n);
    if (place_known(at) && store_can(c->store, at.key, STORE_CHECKSUM))
        fetch->sum.kind = n->file->sum.kind ? n->file->sum.kind : c->transfer->sum_kind;
    node_ref_locked(n);
    file_lru_remove_locked(c, n->file);
    LL_PREPEND(n->file->fetches, fetch);
    const struct store_set stores = stores_asked(c, at, QUESTION_READ);
    workers_submit_locked(c->fetchers, &stores, &fetch->task, false);
    return 0;
}

/* The first stretch of [off, end) that is neither here nor on its way. */
static bool unclaimed(struct file *f, uint64_t off, uint64_t end, struct range *ret)
    REQUIRES(cache_mutex)
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

/* Whether all that may be claimed for now is claimed, and a reader of [off, end) waits for
 * nothing else, or for a part of it: it asks for the rest then. */
static bool enough_claimed(struct cache *c, const struct file *f, uint64_t off, uint64_t end)
    REQUIRES(cache_mutex)
{
    bool served = ranges_has(&f->present, off, end);
    unsigned n = 0;

    for (const struct fetch *i = f->fetches; i; i = i->next) {
        n++;
        served = served || (i->off < end && off < i->end);
    }
    return served && n >= c->config.download_jobs * CLAIMS_PER_JOB;
}

/* Starts fetches for what is missing in [off, to), a part of the file each, as long as not too
 * many run. [off, end) of it is needed, the rest is ahead. */
static int start_range_locked(struct cache *c, struct node *n, uint64_t off, uint64_t end,
                              uint64_t to) REQUIRES(cache_mutex)
{
    uint64_t at = off;
    struct range todo;
    int r = 0;

    while (r == 0 && !enough_claimed(c, n->file, off, end) &&
           unclaimed(n->file, at, to, &todo)) {
        uint64_t cut = (todo.off / c->config.part_size + 1) * c->config.part_size;
        if (todo.end > cut)
            todo.end = cut;
        r = start_locked(c, n, todo.off, todo.end);
        at = todo.end;
    }
    return r;
}

/* ---- the end of one ---- */

/* Tells readers of [off, end) `err` for a while; the range is not tried again at once. */
static void remember_failure_locked(struct file *f, uint64_t off, uint64_t end, int err)
    REQUIRES(cache_mutex)
{
    f->failed.off = off;
    f->failed.end = end;
    f->failed.err = err;
    f->failed.until_ns = clock_mono_ns() + FAILED_NS;
}

/* What was fetched is no matter to what is owed, unless something waits until readers have what
 * it takes away; and only a pass evicts. */
static void tell_fetched_locked(struct cache *c) REQUIRES(cache_mutex)
{
    progress_tell_locked(c);
    if (c->content->n_stale_readers > 0 || space_too_full_locked(c))
        scheduler_kick_locked(c);
}

static void finish_locked(struct cache *c, struct fetch *fetch, int r, const struct stat *st)
    REQUIRES(cache_mutex)
{
    struct file *f = fetch->node->file;

    LL_DELETE(f->fetches, fetch);
    if (r == -ENOENT)
        r = -ESTALE;
    if (r < 0 && !fetch->told)
        remember_failure_locked(f, fetch->off, fetch->end, r);
    if (r == -ESTALE) {
        file_version_is_gone_locked(f, true);
        for (struct entry *e = f->node->links; e; e = e->next_link)
            entry_verified_locked(e, 0);
    }
    if (st)
        file_account_locked(c, f, (uint64_t)st->st_blocks * 512);
    if (r == 0 && f->needed_whole && f->open_handles && f->state == FILE_PARTIAL && !f->busy)
        (void)start_range_locked(c, fetch->node, 0, fetch->node->size, fetch->node->size);
    waitq_wake_locked(c, &f->range_waiters, 0);
    tell_fetched_locked(c);
}

/* The content here is not the store's: all of it is fetched again. Readers of bytes that just
 * came are told so, whichever fetch found it out. */
static void damaged_before(struct cache *c, struct fetch *fetch, int fd, bool kept)
{
    struct node *n = fetch->node;

    cache_lock(c);
    auto_free char *path = node_path(n);
    file_forget_ranges_locked(n->file);
    if (!kept)
        remember_failure_locked(n->file, 0, n->size, -EIO);
    fetch->told = true;
    cache_unlock(c);
    log_error("%s: %s does not match its checksum, and is fetched again",
              path ? path : "a removed file",
              kept ? "what the cache kept since before the reboot" : "what was downloaded");
    file_note_damaged(fd);
}

/* The last fetch of a whole file turns it clean before its waiters are woken. */
static int maybe_complete(struct cache *c, struct fetch *fetch, int fd)
{
    struct node *n = fetch->node;
    struct file *f = n->file;

    cache_lock(c);
    bool last = f->state == FILE_PARTIAL && f->fetches == fetch && !fetch->next && !f->busy &&
                (f->verify || ranges_has(&f->present, 0, n->size));
    bool kept = f->verify; /* bytes from before a reboot */
    if (last)
        (void)file_claim_locked(f);
    cache_unlock(c);
    if (!last)
        return 0;
    struct checksum sum = {0};
    int r = fetch_verify_complete(c, fetch, fd, &sum);
    bool damaged = r == -EIO;
    if (damaged)
        damaged_before(c, fetch, fd, kept);
    if (r == 0)
        r = file_complete(c, n, fd, &sum);
    cache_lock(c);
    if (r == 0)
        file_completed_locked(f);
    else
        file_not_completed_locked(f);
    if (r == 0 && !kept && sum.kind != CHECKSUM_NONE)
        fetch_compared_locked(n);
    cache_unlock(c);
    return damaged && kept ? 0 : r; /* the store is asked for them now */
}

/* What is here now; the range's sum where it was told in order, and whole. */
static void record_arrived(struct cache *c, struct fetch *fetch, int fd)
{
    const struct range summed = {fetch->off, fetch->end};

    file_note_arrived(c, fetch->node, fd, &summed,
                      fetch->summed == fetch->end ? &fetch->sum : NULL);
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
        record_arrived(c, fetch, fd);
    if (r == 0)
        r = maybe_complete(c, fetch, fd);
    bool seen = fd >= 0 && fstat(fd, &st) == 0;
    cache_lock(c);
    finish_locked(c, fetch, r, seen ? &st : NULL);
    if (fd >= 0)
        file_put_fd_locked(c, n->file, FD_WRITE);
    if (n->file->open_handles == 0)
        file_lru_add_locked(c, n->file);
    node_unref_locked(c, n);
    cache_unlock(c);
    free(fetch);
}

/* How far to fetch for a reader of [off, end), when `from` is the first byte that is missing.
 * So that each part is one request, a window ends where a part does: always from a part's size
 * on; while it grows, when it comes to the end of the part, or would leave less of the part
 * than it asks for. */
static uint64_t window_end(struct cache *c, struct node *n, uint64_t off, uint64_t end,
                           uint64_t ahead, uint64_t from) REQUIRES(cache_mutex)
{
    uint64_t part = c->config.part_size, to = end + ahead;
    uint64_t boundary = (from / part + 1) * part;

    /* A small file read from its beginning is one request. */
    if (to >= n->size || (off == 0 && n->size <= part))
        return n->size;
    if (ahead >= part)
        to -= to % part;
    else if (ahead > 0 && (to > boundary || (from < part && part - to < to - from)))
        to = boundary;
    if (to < end)
        to = end;
    to = (to + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return to < n->size ? to : n->size;
}

/* Whether the window is to be filled: while it grows, when two thirds of it were read, not by a
 * little at each read. `gap` is what is missing then. */
static bool window_runs_dry(struct cache *c, struct node *n, uint64_t off, uint64_t end,
                            uint64_t ahead, struct range *gap) REQUIRES(cache_mutex)
{
    uint64_t need = end + (ahead >= 2 * c->config.part_size ? ahead : ahead / 4);

    return unclaimed(n->file, off, need < n->size ? need : n->size, gap);
}

/* Bytes that may be right are looked at before any are asked for: an empty fetch does it. */
static int verify_first_locked(struct cache *c, struct node *n, struct waiter *w)
    REQUIRES(cache_mutex)
{
    int r = n->file->fetches ? 0 : start_locked(c, n, n->size, n->size);

    return r < 0 ? r : waitq_park_locked(c, &n->file->range_waiters, w);
}

int fetch_need_locked(struct cache *c, struct node *n, uint64_t off, uint64_t end,
                      uint64_t ahead, struct waiter *w)
{
    struct file *f = n->file;
    bool here = ranges_has(&f->present, off, end);

    cache_assert_locked(c);
    if (f->busy && !here)
        return waitq_park_locked(c, &f->range_waiters, w);
    if (f->verify)
        return verify_first_locked(c, n, w);
    if (!here && f->gone)
        return -ESTALE;
    if (!here && f->failed.err && clock_mono_ns() < f->failed.until_ns && f->failed.off < end &&
        off < f->failed.end)
        return f->failed.err;
    struct range gap;
    int r = 0;
    /* Nothing comes into a file that is just being emptied. */
    if (!f->gone && !f->busy && window_runs_dry(c, n, off, end, ahead, &gap))
        r = start_range_locked(c, n, off, end, window_end(c, n, off, end, ahead, gap.off));
    if (here || r < 0)
        return here ? 0 : r;
    r = waitq_park_locked(c, &f->range_waiters, w);
    w->off = off;
    w->end = end;
    return r;
}

int fetch_complete_locked(struct cache *c, struct node *n, struct waiter *w)
{
    struct file *f = n->file;

    cache_assert_locked(c);
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
