/* Opening and closing the cache: configuration, recovery, threads. */
#include "cache/mount.h"

#include "cache/core/workers.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define DEFAULT_RESERVE_MAX (UINT64_C(10) << 30)
#define DEFAULT_LIST_MEMORY (UINT64_C(256) << 20)
#define DEFAULT_PART        (UINT64_C(8) << 20)
#define ASKERS              32
#define CHORES              4

void cache_config_init(struct cache_config *config)
{
    *config = (struct cache_config){
        .acl = true,
        .attr_timeout_ns = 1 * NS_PER_SEC,
        .list_timeout_ns = 5 * NS_PER_SEC,
        .upload_interval_ns = 30 * NS_PER_SEC,
        .settle_ns = 100 * NS_PER_MS,
        .index_settle_ns = 5 * NS_PER_SEC,
        .index_kept_ns = 10 * NS_PER_SEC,
        .late_ns = 10 * NS_PER_SEC,
        .retry_ns = 2 * NS_PER_SEC,
        .grace_ns = 60 * NS_PER_SEC,
        .store_timeout_ns = 300 * NS_PER_SEC,
        .ask_timeout_ns = 60 * NS_PER_SEC,
        .upload_jobs = 8,
        .download_jobs = 8,
        .list_memory_bytes = DEFAULT_LIST_MEMORY,
        .uid = getuid(),
        .gid = getgid(),
        .file_mode = 0644,
        .dir_mode = 0755,
    };
}

/* ---- configuration ---- */

static void free_patterns(const char *const *patterns)
{
    for (const char *const *p = patterns; p && *p; p++)
        free((void *)(uintptr_t)*p);
    free((void *)(uintptr_t)patterns);
}

static int copy_patterns(const char *const *from, const char *const **ret)
{
    size_t n = 0;

    *ret = NULL;
    if (!from)
        return 0;
    while (from[n])
        n++;
    char **v = calloc(n + 1, sizeof(*v));
    if (!v)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        v[i] = strdup(from[i]);
        if (!v[i]) {
            free_patterns((const char *const *)v);
            return -ENOMEM;
        }
    }
    *ret = (const char *const *)v;
    return 0;
}

static int copy_config(struct cache *c, const struct cache_config *from)
{
    struct cache_config *to = &c->config;

    *to = *from;
    to->staging = to->logs = NULL;
    to->gather_bytes = fetch_gather_bytes(from->gather_bytes);
    to->dir = strdup(from->dir);
    to->identity = strdup(from->identity ? from->identity : "");
    to->mountpoint = strdup(from->mountpoint ? from->mountpoint : "");
    if (!to->dir || !to->identity || !to->mountpoint)
        return -ENOMEM;
    int r = copy_patterns(from->staging, &to->staging);
    return r < 0 ? r : copy_patterns(from->logs, &to->logs);
}

/* The facts that hold everywhere in the store, for decisions made once for the mount; none
 * where a cache is opened without a store. */
static void root_facts(struct cache *c, struct store_facts *ret)
{
    *ret = (struct store_facts){0};
    if (c->store)
        store_facts(c->store, "", ret);
}

/* The numbers that depend on disk and store. */
static int size_up(struct cache *c, struct op *op)
{
    struct store_facts facts;
    struct cache_config *config = &c->config;
    struct statvfs vfs;
    int r = mirror_statvfs(&c->mirror, &vfs);

    if (r < 0)
        return op_fail(op, r, "cache %s: statvfs: %s", c->mirror.dir, strerror(-r));
    uint64_t total = (uint64_t)vfs.f_blocks * vfs.f_frsize;
    cache_lock(c);
    disk_seen_locked(c, &vfs);
    uint64_t ours = c->content->disk_free_bytes + c->content->used_bytes;
    cache_unlock(c);
    if (!config->reserve_bytes) {
        config->reserve_bytes = total / 20;
        if (config->reserve_bytes > DEFAULT_RESERVE_MAX)
            config->reserve_bytes = DEFAULT_RESERVE_MAX;
    }
    if (!config->size_bytes)
        config->size_bytes = ours / 5 * 4;
    root_facts(c, &facts);
    if (!config->part_size)
        config->part_size = facts.part_size ? facts.part_size : DEFAULT_PART;
    if (config->ask_timeout_ns > config->store_timeout_ns)
        config->ask_timeout_ns = config->store_timeout_ns;
    if (config->upload_jobs == 0)
        config->upload_jobs = 1;
    if (config->download_jobs == 0)
        config->download_jobs = 1;
    return 0;
}

/* ---- opening ---- */

static void prepare_process(struct cache *c, const struct cache_config *config)
{
    fds_init(c, config->mirror_fds);
    /* A lease that is broken between granting and giving back signals us. */
    (void)signal(SIGIO, SIG_IGN);
}

/* Several stores may need many threads, one after the other has failed; mostly few. */
static struct pool *start_pool(struct cache *c, const char *name, unsigned threads)
{
    return c->config.routes ? pool_new_growing(name, threads) : pool_new(name, threads);
}

/* One pool for each store: what does not answer holds no other's. */
static bool start_parts(struct cache *c)
{
    c->parts = calloc(volumes_count(c), sizeof(struct pool *));
    for (unsigned i = 0; c->parts && i < volumes_count(c); i++)
        if (!(c->parts[i] = start_pool(c, "runfs-part", c->config.upload_jobs)))
            return false;
    return c->parts;
}

static void stop_parts(struct cache *c)
{
    for (unsigned i = 0; c->parts && i < volumes_count(c); i++)
        pool_free(c->parts[i]);
    free(c->parts);
}

static int start_threads(struct cache *c)
{
    const struct cache_config *config = &c->config;
    int r = wait_start(c);

    if (r < 0)
        return r;
    c->fetchers = workers_new("runfs-fetch", config->download_jobs, !config->routes);
    c->askers = workers_new("runfs-ask", ASKERS, !config->routes);
    c->uploaders = start_pool(c, "runfs-upload", transfers_threads(c));
    bool parts = start_parts(c);
    c->notifier = pool_new("runfs-notice", 1);
    if (!c->fetchers || !c->askers || !c->uploaders || !parts || !c->chores || !c->notifier)
        return -ENOMEM;
    /* Many small answers come in a row: each would interrupt who writes the next file. */
    pool_set_batch(c->uploaders);
    log_queue_start(&c->log, c->chores);
    return scheduler_start(c);
}

static int open_parts(struct cache *c, const struct cache_config *config, struct op *op)
{
    int r = copy_config(c, config);

    if (r < 0)
        return op_fail(op, r, "out of memory");
    struct store_facts facts;
    root_facts(c, &facts);
    r = listings_open(c, facts.caps);
    if (r < 0)
        return op_fail(op, r, "out of memory");
    r = mirror_open(c->config.dir, c->store ? DOOR_MAKE : DOOR_CACHE, op, &c->mirror);
    if (r < 0)
        return r;
    if (mirror_times_coarse(&c->mirror) && c->config.passthrough) {
        log_warn("cache %s: its filesystem keeps times of %" PRId64
                 " ms: what is written past the daemon could not be told from what was there; "
                 "no file is opened passthrough",
                 c->mirror.dir, c->mirror.tick_ns / NS_PER_MS);
        c->config.passthrough = false;
    }
    r = origins_open(c);
    if (r < 0)
        return op_fail(op, r, "cache %s: can't draw a number for this mount: %s", c->mirror.dir,
                       strerror(-r));
    r = journal_open(c->mirror.root_fd, c->mirror.dir, &c->log, op, &c->journal, NULL);
    if (r < 0)
        return r;
    r = tree_open(c);
    if (r == 0)
        r = queue_open(c);
    if (r == 0)
        r = transfers_open(c);
    if (r < 0)
        return op_fail(op, r, "out of memory");
    r = c->store ? notes_open(c) : 0;
    if (r < 0)
        return op_fail(op, r, "cache %s: its id can be neither read nor made: %s",
                       c->mirror.dir, strerror(-r));
    /* Chores run from recovery on. */
    c->chores = pool_new("runfs-chore", CHORES);
    return c->chores ? 0 : op_fail(op, -ENOMEM, "can't start threads");
}

/* Whether a put can take effect after its caller died: of several stores one may be so. */
static bool puts_may_be_late(struct cache *c)
{
    return c->store && (c->config.routes || !store_can(c->store, "", STORE_PROMPT));
}

static int make_fixed_dirs(struct cache *c, struct op *op)
{
    ns_write(c);
    cache_lock(c);
    int r = fixed_dirs_make_locked(c);
    cache_unlock(c);
    ns_done(c);
    return r < 0 ? op_fail(op, r, "out of memory") : 0;
}

static int open_cache(struct cache *c, const struct cache_config *config, struct op *op)
{
    int r = open_parts(c, config, op);

    if (r == 0)
        r = takeover_check(c, op);
    if (r == 0)
        r = scratch_clear(c, op);
    if (r == 0)
        r = cache_recover(c, op);
    /* Of all that is owed, wherever it goes. */
    if (r == 0 && puts_may_be_late(c) && cache_owes(c)) {
        r = doubt_begin(c);
        if (r < 0)
            return op_fail(op, r, "out of memory");
    }
    if (r == 0)
        r = takeover(c, op);
    if (r == 0)
        r = make_fixed_dirs(c, op);
    if (r == 0)
        r = size_up(c, op);
    if (r < 0)
        return r;
    /* A mount that is refused, or only looks, leaves the earlier mount's note. */
    r = mirror_note_boot(&c->mirror);
    return r < 0 ? mirror_note_failed(&c->mirror, op, r, "the boot id") : 0;
}

static void node_nameless_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    if (n->file) /* it is not uploaded any more */
        waitq_wake_locked(c, &n->file->upload_waiters, 0);
}

static void node_end_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    if (n->dir)
        list_ahead_free(n->dir->ahead);
    if (n->file) {
        upload_forget(n->file->unnoted);
        file_free_locked(c, n->file);
    }
}

static int new_parts(struct cache *c)
{
    static const struct node_hooks hooks = {.nameless = node_nameless_locked,
                                            .end = node_end_locked};
    int r = tree_new(c, &hooks);

    if (r == 0)
        r = contents_new(c);
    if (r == 0)
        r = queue_new(c);
    if (r == 0)
        r = listings_new(c);
    if (r == 0)
        r = transfers_new(c);
    return r == 0 ? opened_new(c) : r;
}

/* Accepts a cache that lacks some of them. */
static void free_parts(struct cache *c)
{
    opened_free(c);
    transfers_free(c);
    listings_free(c);
    queue_free(c);
    contents_free(c);
    tree_free(c);
}

static struct cache *cache_alloc(void)
{
    struct cache *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->mirror = (struct mirror){.lock_fd = -1,
                                .root_fd = -1,
                                .tree_fd = -1,
                                .incoming_fd = -1,
                                .orphans_fd = -1,
                                .kept_fd = -1};
    core_init(c);
    if (new_parts(c) < 0) {
        free_parts(c);
        core_release(c);
        free(c);
        return NULL;
    }
    return c;
}

int cache_new(const struct cache_config *config, struct store *store, struct op *op,
              struct cache **ret)
{
    struct cache *c = cache_alloc();

    if (!c)
        return op_fail(op, -ENOMEM, "out of memory");
    prepare_process(c, config);
    c->store = store;
    int r = open_cache(c, config, op);
    if (r == 0) {
        r = start_threads(c);
        if (r < 0)
            (void)op_fail(op, r, "can't start threads: %s", strerror(-r));
    }
    if (r < 0) {
        cache_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

int cache_open_offline(const char *dir, struct op *op, struct cache **ret)
{
    struct cache_config config;
    struct cache *c = cache_alloc();

    if (!c)
        return op_fail(op, -ENOMEM, "out of memory");
    cache_config_init(&config);
    config.dir = dir;
    int r = open_parts(c, &config, op);
    if (r == 0)
        r = cache_recover(c, op);
    if (r < 0)
        cache_free(c);
    else
        *ret = c;
    return r;
}

/* ---- closing ---- */

static int wake_node(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    struct cache *c = arg;

    if (n->dir) {
        waitq_wake_locked(c, &n->dir->waiters, -EINTR);
        list_ahead_stop_locked(c, n);
    }
    if (n->file) {
        waitq_wake_locked(c, &n->file->range_waiters, -EINTR);
        waitq_wake_locked(c, &n->file->upload_waiters, -EINTR);
    }
    return 0;
}

void cache_stop(struct cache *c)
{
    atomic_store(&c->cancelled, true);
    ns_read(c);
    cache_lock(c);
    c->stopping = true;
    if (c->tree->root)
        (void)tree_each(c->tree->root, wake_node, c);
    for (size_t i = 0; i < c->content->n_stale_readers; i++)
        (void)wake_node(c, c->content->stale_readers[i]);
    askings_stop_locked(c);
    waitq_wake_locked(c, &c->space_waiters, -EINTR);
    waitq_wake_locked(c, &c->flush_waiters, -EINTR);
    (void)pthread_cond_broadcast(&c->progress);
    scheduler_kick_locked(c);
    cache_unlock(c);
    ns_done(c);
}

/* Running requests are being cancelled, and none begins. */
static void await_workers(struct cache *c)
{
    cache_lock(c);
    while (transfers_run_locked(c))
        cache_wait(c, &c->progress);
    cache_unlock(c);
}

int cache_end(struct cache *c, struct op *op)
{
    cache_stop(c);
    await_workers(c);
    pool_drain(c->chores); /* a stamp that is written after the note is not of this end */
    struct op clearing = *op;
    int r = scratch_clear(c, &clearing); /* the next mount does it otherwise */
    if (r < 0)
        log_warn("%s", clearing.why);
    r = journal_sync(c->journal);
    if (r == 0)
        r = mirror_note_end(&c->mirror);
    return r < 0 ? op_fail(op, r,
                           "cache %s: can't sync it: %s; what is not in the store may be lost "
                           "if the machine loses its power before the next mount",
                           c->mirror.dir, strerror(-r))
                 : 0;
}

static void stop_threads(struct cache *c)
{
    scheduler_join(c);
    workers_free(c, c->fetchers);
    workers_free(c, c->askers);
    pool_free(c->uploaders);
    stop_parts(c);
    pool_free(c->notifier);
}

/* The frontend is gone: it holds no lookups any more. */
static int forget_lookups(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    (void)arg;
    n->nlookup = 0;
    return 0;
}

static void remove_below_locked(struct cache *c, struct node *dir)
    REQUIRES(cache_ns, cache_mutex)
{
    struct entry *e;
    size_t at;

    CHILDREN_FOREACH(dir->dir->children, e, at)
    {
        if (e->node->dir)
            remove_below_locked(c, e->node);
        entry_remove_locked(c, e);
    }
}

static void free_tree(struct cache *c)
{
    ns_write(c);
    cache_lock(c);
    units_free(c);
    notes_free(c);
    while (c->queue->owed[DEBT_DIR].first)
        dir_unqueue_locked(c, debt_dir(c->queue->owed[DEBT_DIR].first));
    indexes_forget_locked(c);
    stale_readers_end_locked(c);
    detached_free_locked(c);
    if (c->tree->root) {
        (void)tree_each(c->tree->root, forget_lookups, NULL);
        remove_below_locked(c, c->tree->root);
        c->tree->root->is_root = false;
        node_collect_locked(c, c->tree->root);
    }
    while (row_first(c))
        intent_remove_locked(c, row_first(c));
    cache_unlock(c);
    ns_done(c);
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    cache_stop(c);
    stop_threads(c);
    wait_stop(c);
    if (c->queue && c->ops)
        cache_deletion_unlock_all(c);
    if (c->chores)
        pool_drain(c->chores); /* a stamp goes where its node is */
    free_tree(c);
    pool_free(c->chores);
    log_queue_stop(&c->log);
    free_parts(c);
    journal_close(c->journal);
    mirror_close(&c->mirror);
    free((void *)(uintptr_t)c->config.dir);
    free((void *)(uintptr_t)c->config.identity);
    free((void *)(uintptr_t)c->config.mountpoint);
    free_patterns(c->config.staging);
    free_patterns(c->config.logs);
    core_release(c);
    free(c);
}
