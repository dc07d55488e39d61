/* Serving one mount.
 *
 * The order of the start is the order in which failures are told: store, cache directory, mount
 * (options and mountpoint were checked before). The end: the mount goes (by an unmount, or by
 * SIGTERM after a first drain), what is dirty goes to the store, what remains is synced to the
 * disk, then the cache directory is released. */
#include "cli/serve.h"

#include "cache/mirror/door.h"
#include "cache/offline.h"
#include "cli/command.h"
#include "cli/control_io.h"
#include "cli/control_server.h"
#include "cli/daemon.h"
#include "cli/identity.h"
#include "cli/mountinfo.h"
#include "cli/mountpoint.h"
#include "cli/open_store.h"
#include "cli/predecessor.h"
#include "cli/status_doc.h"
#include "cli/writeback.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"
#include "fuse/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How many of the things that are left are named in the log. */
#define LEFT_LISTED 1000
/* How long the end of a mount tries to write what only saves requests. */
#define INDEX_PATIENCE_NS (5 * NS_PER_SEC)
/* How long a mount may be held up for a note to its user. */
#define NOTE_PATIENCE_NS (2 * NS_PER_SEC)
/* How long the end of a mount waits at least for the kernel's dirty pages: those that stay
 * there are lost for the cache, too. */
#define WRITEBACK_PATIENCE_NS (5 * NS_PER_SEC)

/* Below the lock under which daemon_signals() calls wake_main(); nothing is taken under it. */
extern struct lock_class run_mutex;

/* Of the main thread, but for what is guarded; `fs` is constant while its loop runs. */
struct mount {
    struct serve_request *request; /* borrowed */
    char *cache_dir;               /* absolute, without symlinks */
    int cache_fd;                  /* of door_open() */
    char *identity;
    const char **staging;
    struct store *store;
    struct fs *fs;
    dev_t dev; /* of the mount; 0: not known */
    struct cache *cache;
    struct status_doc *status;
    struct control_server *control;
    bool log_open;             /* the log goes to a file */
    int64_t drain_deadline_ns; /* CLOCK_MONOTONIC, from the first drain on; 0 before */
    bool unsaved; /* what mappings stored may be lost, for the cache as well as the store */

    struct mutex run_lock;
    pthread_cond_t changed; /* `fs_ended` was set, or daemon_stop() */
    bool fs_ended GUARDED_BY(run_mutex);
};

MUTEX_KIND(run, struct mount, run_lock);

/* ---- start ---- */

/* "/srv/x" of "file:///srv/x", else NULL. */
static const char *local_path(const char *url)
{
    return strncmp(url, "file:///", 8) == 0 ? url + 7 : NULL;
}

/* A mount that holds its own store or cache would wait for itself; a cache inside the store
 * would be uploaded. */
static int check_overlap(const struct mount *m, struct op *op)
{
    const char *store = local_path(m->store->url);

    if (store && mountpoint_path_within(store, m->request->mountpoint))
        return op_fail(op, -EINVAL, "the store %s lies within the mountpoint %s", store,
                       m->request->mountpoint);
    if (mountpoint_path_within(m->cache_dir, m->request->mountpoint))
        return op_fail(op, -EINVAL, "the cache directory %s lies within the mountpoint %s",
                       m->cache_dir, m->request->mountpoint);
    if (store && mountpoint_path_within(m->cache_dir, store))
        return op_fail(op, -EINVAL, "the cache directory %s lies within the store %s",
                       m->cache_dir, store);
    if (store && mountpoint_path_within(m->request->mountpoint, store))
        return op_fail(op, -EINVAL, "the mountpoint %s lies within the store %s",
                       m->request->mountpoint, store);
    return 0;
}

static int find_cache_dir(struct mount *m, struct op *op)
{
    auto_free char *dir = m->request->options.cache_dir
                              ? strdup(m->request->options.cache_dir)
                              : identity_default_dir(m->identity, m->request->mountpoint);

    if (!dir)
        return op_fail(op, -EINVAL, "no place for the cache (no home): give cache_dir");
    return door_open(dir, DOOR_MAKE, op, &m->cache_fd, &m->cache_dir);
}

static int count_pending(void *arg, const struct cache_pending *p)
{
    (void)p;
    ++*(unsigned *)arg;
    return 0;
}

/* What an earlier version left under its name of the cache directory would neither be seen nor
 * published any more. */
static int check_former_cache(const struct mount *m, struct op *op)
{
    auto_free char *dir =
        m->request->options.cache_dir
            ? NULL
            : identity_former_dir(m->store->url, m->store->endpoint, m->request->mountpoint);
    struct op listing;
    unsigned owed = 0;

    op_init(&listing, OP_FOREVER);
    listing.cancelled = op->cancelled;
    if (!dir || access(dir, F_OK) < 0)
        return 0;
    int r = recover_list(dir, &listing, count_pending, &owed);
    if (r == -EINTR || r == -EBUSY)
        return op_fail(op, r, "%s", listing.why);
    if (r == 0 && owed == 0)
        return 0;
    return op_fail(op, -EEXIST,
                   "cache %s was made for this bucket and mountpoint without the endpoint %s, "
                   "and holds what is not published: see 'runfs recover --list %s', and "
                   "publish that, or give cache_dir",
                   dir, m->store->endpoint, dir);
}

static int make_frontend(struct mount *m, struct op *op)
{
    auto_free char *control = NULL;
    struct fs_config config;

    if (asprintf(&control, "%s/" CONTROL_NAME, m->cache_dir) < 0) {
        control = NULL;
        return op_fail(op, -ENOMEM, "out of memory");
    }
    fs_config_init(&config);
    config.mountpoint = m->request->mountpoint;
    config.fsname = m->store->url;
    config.mount_options = m->request->options.kernel.data;
    config.control_path = control;
    config.allow_other = m->request->options.allow_other;
    config.read_only = m->request->options.read_only;
    config.acl = m->request->options.cache.acl;
    config.passthrough = m->request->options.passthrough == PASSTHROUGH_AUTO;
    config.attr_timeout_ns = m->request->options.cache.attr_timeout_ns;
    if (m->request->options.entry_timeout_ns >= 0)
        config.entry_timeout_ns = m->request->options.entry_timeout_ns;
    return fs_new(&config, op, &m->fs);
}

/* A runfs that was unmounted just before may still have the cache. */
static int await_the_cache(struct mount *m, struct op *op)
{
    struct predecessor predecessor = {0};
    struct op wait;
    int err, r;

    op_init(&wait, m->request->options.mount_timeout_ns);
    wait.cancelled = op->cancelled;
    op->deadline_ns = OP_FOREVER; /* recovery takes as long as it takes */
    do {
        err = cache_new(&m->request->options.cache, m->store, op, &m->cache);
        wait.why[0] = '\0';
        r = err == -EBUSY ? predecessor_await(m->cache_dir, &predecessor, &wait) : err;
    } while (err && r == 0);
    return *wait.why ? op_fail(op, r, "%s", wait.why) : r;
}

static int open_the_cache(struct mount *m, struct op *op)
{
    struct cache_config *config = &m->request->options.cache;

    config->dir = m->cache_dir;
    config->identity = m->identity;
    config->mountpoint = m->request->mountpoint;
    config->durability = (enum durability)m->request->options.durability;
    config->read_only = m->request->options.read_only;
    config->passthrough = fs_can_passthrough(m->fs);
    config->shared = m->request->options.allow_other;
    config->file_mode = 0666 & ~mount_options_mask(&m->request->options, false);
    config->dir_mode = 0777 & ~mount_options_mask(&m->request->options, true);
    config->invalidate = fs_invalidate;
    config->invalidate_arg = m->fs;
    if (m->request->options.staging) {
        m->staging = mount_options_split_staging(m->request->options.staging);
        if (!m->staging)
            return op_fail(op, -ENOMEM, "out of memory");
        config->staging = m->staging;
    }
    return await_the_cache(m, op);
}

static int open_control(struct mount *m, struct op *op)
{
    const struct status_info info = {
        .url = m->store->url,
        .mountpoint = m->request->mountpoint,
        .cache_dir = m->cache_dir,
        .durability = m->request->options.durability == DURABILITY_STORE ? "store" : "cache",
        .options = m->request->given,
        .read_only = m->request->options.read_only};
    int err = identity_save_options(m->cache_fd, &m->request->options.store, op);

    if (err)
        return err;
    m->status = status_doc_new(&info, m->cache, m->store);
    if (!m->status)
        return op_fail(op, -ENOMEM, "out of memory");
    status_doc_set_frontend(m->status, m->fs);
    fs_set_texts(m->fs, status_doc_text, status_doc_metrics, m->status);
    return control_server_start(m->cache_fd, m->cache, m->status, op, &m->control);
}

/* The log goes where a daemon's messages can be read later; from before the cache is opened, as
 * recovery has things to tell. */
static int open_log(struct mount *m, bool foreground, struct op *op)
{
    log_set_level((enum log_level)m->request->options.log_level);
    if (foreground)
        return 0;
    int err = log_to_file(m->cache_fd, "runfs.log");
    m->log_open = !err;
    return err ? op_fail(op, err, "cannot write %s/runfs.log: %s", m->cache_dir, door_why(err))
               : 0;
}

/* What stands at the mountpoint later may be another one. */
static void note_dev(struct mount *m)
{
    struct mountinfo info;

    if (mountinfo_by_path(m->request->mountpoint, &info))
        return;
    if (mountinfo_is_runfs(&info))
        m->dev = info.dev;
    mountinfo_release(&info);
}

/* A user who may rename a directory above takes the mount along. */
static void unmount(struct mount *m)
{
    struct mountinfo info = {0};
    bool moved =
        m->dev && (mountinfo_by_path(m->request->mountpoint, &info) || info.dev != m->dev);

    if (moved) {
        mountinfo_release(&info);
        moved = mountinfo_by_dev(m->dev, &info) == 0;
    }
    fs_unmount(m->fs, moved ? info.point : m->request->mountpoint, m->dev);
    mountinfo_release(&info);
}

static int start(struct mount *m, bool foreground, struct op *op)
{
    int err = open_store(m->request->url, &m->request->options.store, &m->request->options, op,
                         &m->store);

    if (err)
        return err;
    /* Where the folder keeps no ACLs, to set one fails. */
    m->request->options.cache.acl =
        mount_options_acl(&m->request->options) && store_can(m->store, "", STORE_ACLS);
    m->identity = identity_make(m->store->url, m->store->endpoint);
    if (!m->identity)
        return op_fail(op, -ENOMEM, "out of memory");
    err = check_former_cache(m, op);
    if (!err)
        err = find_cache_dir(m, op);
    if (!err)
        err = check_overlap(m, op);
    if (!err && !m->request->options.nonempty && !m->request->taken_over)
        err = mountpoint_check_empty(m->request->mountpoint, op);
    if (!err)
        err = open_log(m, foreground, op);
    if (!err)
        err = make_frontend(m, op);
    if (!err)
        err = open_the_cache(m, op);
    if (!err)
        err = open_control(m, op);
    if (!err)
        err = fs_mount(m->fs, m->cache, op);
    if (!err)
        note_dev(m);
    return err;
}

static int stop_at_first(void *arg, const char *name, const struct object *obj)
{
    (void)name;
    (void)obj;
    *(bool *)arg = true;
    return 1;
}

/* A mistyped prefix looks as a new one does. */
static void tell_empty(const struct mount *m, bool foreground)
{
    bool any = false;
    struct op op;

    op_init(&op, NOTE_PATIENCE_NS);
    if (store_list(m->store, &op, "", 0, stop_at_first, &any) || any)
        return;
    log_info("%s holds nothing yet", m->store->url);
    if (!foreground)
        (void)command_failed("note: %s holds nothing yet; is the name right?", m->store->url);
}

/* For a person at the terminal; a script goes by the exit code. */
static void tell_success(const struct mount *m)
{
    const char *point = m->request->mountpoint;

    if (!isatty(STDOUT_FILENO))
        return;
    command_say("%s is mounted on %s, cache %s; look with `runfs status %s`, end with `runfs "
                "umount %s`",
                m->store->url, point, m->cache_dir, point, point);
    (void)fflush(stdout);
}

/* ---- run and end ---- */

static void wake_main(void *arg)
{
    struct mount *m = arg;

    run_lock(m);
    pthread_cond_broadcast(&m->changed);
    run_unlock(m);
}

static void *frontend_loop(void *arg)
{
    struct mount *m = arg;
    int err = fs_run(m->fs);

    if (err)
        log_error("the mount ended: %s", strerror(-err));
    run_lock(m);
    m->fs_ended = true;
    pthread_cond_broadcast(&m->changed);
    run_unlock(m);
    return NULL;
}

/* drain_timeout counts from the first call. */
static void init_drain(struct mount *m, struct op *op)
{
    op_init(op, m->request->options.drain_timeout_ns);
    if (!m->drain_deadline_ns)
        m->drain_deadline_ns = op->deadline_ns;
    op->deadline_ns = m->drain_deadline_ns;
}

/* Paths, each with the NUL that ends it. */
struct path_list {
    struct buf buf;
    bool mapped; /* only of what is known to have been mapped */
    int err;     /* it is not whole */
};

static void add_path(void *arg, const char *path, bool mapped)
{
    struct path_list *list = arg;

    if ((mapped || !list->mapped) && !list->err)
        list->err = buf_add(&list->buf, path, strlen(path) + 1);
}

/* The kernel keeps what programs store through mappings for half a minute, and longer. Before
 * the drain it is not waited for long: a page may wait for room in the cache, which the drain
 * makes. */
static void write_back(struct mount *m, bool drained)
{
    struct path_list list = {.buf = BUF_INIT(WRITEBACK_MAX)};
    struct op all, op;
    int err;

    init_drain(m, &all);
    op_init(&op, WRITEBACK_PATIENCE_NS);
    if (drained && op.deadline_ns < all.deadline_ns)
        op.deadline_ns = all.deadline_ns;
    cache_each_mapped(m->cache, "", add_path, &list);
    err = writeback_files(m->request->mountpoint, m->dev, &list.buf, &op);
    if (err || list.err) {
        log_warn("before unmounting: %s", err ? op.why : strerror(-list.err));
        /* This stays true whatever comes: the kernel tells only once that it gave a page up. */
        m->unsaved = m->unsaved || drained || err != -ETIMEDOUT || list.err;
    }
    buf_release(&list.buf);
}

struct prospects {
    bool cut;  /* something is left that the cache has not whole */
    bool hope; /* something is left that another attempt may store */
};

/* What waits may wait behind a file that is cut; what is open may be written for ever. */
static int find_prospects(void *arg, const struct cache_pending *p)
{
    struct prospects *found = arg;

    if (p->short_write)
        found->cut = true;
    else if (strcmp(p->state, "waiting") != 0 && strcmp(p->state, "open") != 0 &&
             strcmp(p->state, "kept") != 0)
        found->hope = true;
    return found->hope;
}

/* The program that left a file cut may be gone, and after the unmount nobody can write it
 * again: the cache keeps it, and what waits behind it, for the next mount. */
static bool is_worth_trying(struct mount *m)
{
    struct prospects found = {0};

    (void)cache_each_pending(m->cache, find_prospects, &found);
    return found.hope || !found.cut;
}

/* Uploads everything, trying again after failures, until it is done, drain_timeout is over, or
 * no attempt helps. */
static void drain(struct mount *m, const char *when)
{
    int64_t pause_ns = NS_PER_SEC;
    struct op all;

    init_drain(m, &all);
    for (;;) {
        struct op op;
        int err;

        op_init(&op, OP_FOREVER);
        op.deadline_ns = all.deadline_ns;
        err = cache_flush_path(m->cache, "", CACHE_FLUSH_STAGED, &op, NULL, NULL);
        if (!err)
            return;
        log_warn("%s: not everything is in the store: %s", when, op.why);
        if (err == -ETXTBSY)
            return; /* it may be written for ever */
        if (!is_worth_trying(m))
            return;
        if (op_sleep(&all, pause_ns))
            return;
        pause_ns = pause_ns < 30 * NS_PER_SEC ? pause_ns * 2 : 60 * NS_PER_SEC;
    }
}

/* Files of which the kernel has written pages of a mapping, and which are still open: it may
 * have more pages. */
static void tell_mapped(struct mount *m)
{
    struct path_list list = {.buf = BUF_INIT(WRITEBACK_MAX), .mapped = true};

    cache_each_mapped(m->cache, "", add_path, &list);
    for (const char *path = list.buf.data; path && path < list.buf.data + list.buf.len;
         path += strlen(path) + 1)
        log_warn("%s: it is mapped, or was and is still open: what programs store through "
                 "mappings from now on is lost",
                 path);
    if (list.buf.len || list.err)
        m->unsaved = true;
    buf_release(&list.buf);
}

static bool has_ended(struct mount *m)
{
    run_lock(m);
    bool ended = m->fs_ended;
    run_unlock(m);
    return ended;
}

/* Serves until the filesystem is unmounted, by whomever. */
static int serve(struct mount *m)
{
    pthread_t thread;
    bool ended;
    int err = pthread_create(&thread, NULL, frontend_loop, m);

    if (err)
        return -err;
    status_doc_set_state(m->status, STATUS_MOUNTED);
    run_lock(m);
    while (!m->fs_ended && !atomic_load(daemon_stop()))
        run_wait(m, &m->changed);
    run_unlock(m);
    status_doc_set_state(m->status, STATUS_DRAINING);
    if (!has_ended(m)) {
        write_back(m, false);
        drain(m, "before unmounting");
    }
    ended = has_ended(m); /* somebody may have unmounted it meanwhile */
    if (!ended) {
        write_back(m, true); /* what was stored meanwhile; drained after unmounting */
        fs_stop(m->fs);
    }
    err = -pthread_join(thread, NULL);
    /* An unmount by somebody else proves that no file is mapped, though the word of the last
     * close may be lost with it. */
    if (!ended)
        tell_mapped(m);
    return err;
}

/* What the store lacks: the first lines, and how many there would be. */
struct left {
    char *lines[LEFT_LISTED];
    unsigned n;
};

static int note_left(void *arg, const struct cache_pending *p)
{
    struct left *l = arg;

    if (l->n < LEFT_LISTED &&
        asprintf(&l->lines[l->n], "%s %s%s%s%s%s (%s)", p->kind, p->path,
                 p->path2 ? " to " : "", p->path2 ? p->path2 : "", p->error ? ": " : "",
                 p->error ? p->error : "", p->state) < 0)
        return -ENOMEM;
    l->n++;
    return 0;
}

static void log_all_left(struct mount *m)
{
    struct left l = {0};

    (void)cache_each_pending(m->cache, note_left, &l);
    for (unsigned i = 0; i < l.n && i < LEFT_LISTED; i++) {
        log_warn("not in the store: %s", l.lines[i]);
        free(l.lines[i]);
    }
    if (l.n > LEFT_LISTED)
        log_warn("not in the store: %u more, see `runfs recover %s`", l.n - LEFT_LISTED,
                 m->cache_dir);
}

/* Writes the indexes, which save other mounts requests, as far as that takes no time worth
 * mentioning. */
static void write_indexes(struct mount *m)
{
    struct op op;

    op_init(&op, INDEX_PATIENCE_NS);
    cache_write_indexes(m->cache, &op);
}

/* After this a reboot loses nothing of what the store lacks. */
static void end_cache(struct mount *m)
{
    struct op op;

    op_init(&op, OP_FOREVER);
    if (cache_end(m->cache, &op))
        log_warn("%s", op.why);
}

/* What the end leaves: the answer to those who wait for it. Returns an exit code. */
static int finish(struct mount *m)
{
    struct cache_stats s;
    json_t *last;
    bool all_stored, clean;

    drain(m, "after unmounting");
    write_indexes(m);
    end_cache(m);
    cache_get_stats(m->cache, &s);
    all_stored = !s.dirty_files && !s.pending_ops && !s.kept_files;
    clean = all_stored && !m->unsaved;
    last = status_doc_json(m->status, !clean);
    if (last) {
        (void)json_object_set_new(last, "ok", json_true());
        (void)json_object_set_new(last, "clean", json_boolean(clean));
    }
    if (clean)
        log_info("unmounted %s, everything is in the store", m->request->mountpoint);
    else if (all_stored)
        log_warn("unmounted %s; the store has everything but what programs stored through "
                 "mappings at the end",
                 m->request->mountpoint);
    else
        log_warn("unmounted %s; %llu files and %llu operations are not in the store, %llu "
                 "kept; they stay in %s, and the next mount with that cache or `runfs recover "
                 "--publish %s` publishes what is not kept",
                 m->request->mountpoint, (unsigned long long)s.dirty_files,
                 (unsigned long long)s.pending_ops, (unsigned long long)s.kept_files,
                 m->cache_dir, m->cache_dir);
    if (!all_stored)
        log_all_left(m);
    control_server_stop(take_ptr(m->control), last);
    json_decref(last);
    return clean ? EXIT_OK : EXIT_NOT_YET;
}

static void mount_release(struct mount *m)
{
    control_server_stop(m->control, NULL);
    if (m->cache)
        cache_stop(m->cache);
    cache_free(m->cache);
    fs_free(m->fs);
    status_doc_free(m->status);
    store_close(m->store);
    free(m->staging);
    if (m->cache_fd >= 0)
        (void)close(m->cache_fd);
    free(m->cache_dir);
    free(m->identity);
    pthread_cond_destroy(&m->changed);
    mutex_destroy(&m->run_lock);
}

/* The advice goes to the log, and to the person who waits for the mount. */
static void pass_on_advice(const struct mount *m, bool foreground)
{
    for (const char *line = m->store->advice; line;) {
        int len = (int)strcspn(line, "\n");
        log_warn("%.*s", len, line);
        if (!foreground)
            (void)fprintf(stderr, "runfs: %.*s\n", len, line);
        line = line[len] ? line + len + 1 : NULL;
    }
}

static int run(struct mount *m, bool foreground, int ready_fd)
{
    struct op op;
    int code, err = daemon_signals(wake_main, m);

    if (err)
        return command_failed("cannot set up signals: %s", strerror(-err));
    op_init(&op, OP_FOREVER);
    op.cancelled = daemon_stop();
    log_set_level(LOG_LEVEL_ERROR); /* until there is a log, a failure is our one line */
    err = start(m, foreground, &op);
    if (err) {
        if (m->log_open)
            log_error("mount %s: %s", m->request->mountpoint, op.why);
        return command_failed_by(err, "%s", *op.why ? op.why : strerror(-err));
    }
    daemon_protect_from_oom();
    if (m->request->taken_over)
        log_warn("mountpoint %s: took over what a runfs that died had left",
                 m->request->mountpoint);
    log_info("mounted %s on %s, cache %s", m->store->url, m->request->mountpoint, m->cache_dir);
    pass_on_advice(m, foreground);
    tell_empty(m, foreground);
    tell_success(m);
    if (!foreground)
        daemon_ready(ready_fd);
    err = serve(m);
    if (err)
        log_error("cannot serve the mount: %s", strerror(-err));
    unmount(m);
    status_doc_set_frontend(m->status, NULL);
    code = finish(m);
    return err ? EXIT_FAILED : code;
}

int serve_mount(struct serve_request *request, int ready_fd)
{
    struct mount m = {.request = request, .cache_fd = -1};
    int code;

    mutex_init(&m.run_lock);
    cond_init(&m.changed);
    code = run(&m, ready_fd < 0, ready_fd);
    daemon_signals_end();
    mount_release(&m);
    return code;
}
