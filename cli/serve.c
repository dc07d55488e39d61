/* Serving one mount.
 *
 * The order of the start is the order in which failures are told: store, cache directory, mount
 * (options and mountpoint were checked before). The end: the mount goes (by an unmount, or by
 * SIGTERM after a first drain), what is dirty goes to the store, what remains is synced to the
 * disk, then the cache directory is released. */
#include "cli/serve.h"

#include "cache/mirror/door.h"
#include "cli/command.h"
#include "cli/control_io.h"
#include "cli/control_server.h"
#include "cli/daemon.h"
#include "cli/identity.h"
#include "cli/kept_config.h"
#include "cli/mount_cache.h"
#include "cli/mount_places.h"
#include "cli/mountinfo.h"
#include "cli/mountpoint.h"
#include "cli/open_store.h"
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
    char *title; /* of what is mounted: the store's URL, or "runfs:a+b" */
    const char **staging;
    struct open_stores stores;
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

/* Before anything is made or asked: where the cache has no place given it will be somewhere in
 * the user's home of caches. */
static int check_places(const struct mount *m, struct op *op)
{
    const char *given = m->request->options.cache_dir;
    auto_free char *home = given ? NULL : identity_cache_home();

    if (!given && !home)
        return op_fail(op, -EINVAL, "no place for the cache (no home): give cache_dir");
    return mount_places_check(m->request->mountpoint, given ? given : home, &m->request->config,
                              op);
}

static int find_cache_dir(struct mount *m, struct op *op)
{
    auto_free char *dir = m->request->options.cache_dir
                              ? strdup(m->request->options.cache_dir)
                              : identity_default_dir(m->identity, m->request->mountpoint);
    int err = dir ? door_open(dir, DOOR_MAKE, op, &m->cache_fd, &m->cache_dir)
                  : op_fail(op, -ENOMEM, "out of memory");

    /* A symlink may have led elsewhere than it seemed. */
    return err ? err
               : mount_places_check(m->request->mountpoint, m->cache_dir, &m->request->config,
                                    op);
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
    config.fsname = m->title;
    config.mount_options = m->request->options.kernel.data;
    config.control_path = control;
    config.allow_other = m->request->options.allow_other;
    config.read_only = m->request->options.read_only;
    config.acl = m->request->options.cache.acl;
    config.passthrough = m->request->options.passthrough == PASSTHROUGH_AUTO;
    config.attr_timeout_ns = m->request->options.cache.attr_timeout_ns;
    if (m->request->options.entry_timeout_ns >= 0)
        config.entry_timeout_ns = m->request->options.entry_timeout_ns;
    config.raw_names = m->request->config.raw_names;
    return fs_new(&config, op, &m->fs);
}

static int open_the_cache(struct mount *m, struct op *op)
{
    struct cache_config *config = &m->request->options.cache;

    config->dir = m->cache_dir;
    config->identity = m->identity;
    config->mountpoint = m->request->mountpoint;
    config->durability = (enum durability)m->request->options.durability;
    config->read_only = m->request->options.read_only;
    config->show_incomplete = m->request->options.incomplete == INCOMPLETE_SHOW;
    config->passthrough = fs_can_passthrough(m->fs);
    config->shared = m->request->options.allow_other;
    config->file_mode = 0666 & ~mount_options_mask(&m->request->options, false);
    config->dir_mode = 0777 & ~mount_options_mask(&m->request->options, true);
    config->invalidate = fs_invalidate;
    config->invalidate_arg = m->fs;
    open_stores_tell(&m->stores, &m->request->config, config);
    if (m->request->options.staging) {
        m->staging = mount_options_split_staging(m->request->options.staging);
        if (!m->staging)
            return op_fail(op, -ENOMEM, "out of memory");
        config->staging = m->staging;
    }
    return mount_cache_open(config, m->stores.top, m->request->options.mount_timeout_ns, op,
                            &m->cache);
}

static int open_control(struct mount *m, struct op *op)
{
    const struct status_info info = {
        .url = m->title,
        .mountpoint = m->request->mountpoint,
        .cache_dir = m->cache_dir,
        .durability = m->request->options.durability == DURABILITY_STORE ? "store" : "cache",
        .options = m->request->given,
        .read_only = m->request->options.read_only};
    int err = kept_config_save(m->cache_fd, &m->request->config, op);

    if (err)
        return err;
    m->status = status_doc_new(&info, m->cache, &m->stores);
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
    control_server_end_locks(m->control);
    cache_deletion_unlock_all(m->cache); /* nobody reads by path any more */
    mountinfo_release(&info);
}

static int make_identity(struct mount *m, struct op *op)
{
    struct identity identity;

    m->identity = identity_of(&m->request->config, &m->stores);
    if (!m->identity)
        return op_fail(op, -ENOMEM, "out of memory");
    int err = identity_parse(m->identity, op, &identity);
    if (err)
        return err;
    m->title = take_ptr(identity.title);
    identity_release(&identity);
    return 0;
}

static int start(struct mount *m, bool foreground, struct op *op)
{
    int err = check_places(m, op);

    if (!err)
        err = open_stores(&m->request->config, &m->request->options, op, &m->stores);
    if (err)
        return err;
    /* Where the folder keeps no ACLs, to set one fails. */
    m->request->options.cache.acl =
        mount_options_acl(&m->request->options) && store_can(m->stores.top, "", STORE_ACLS);
    err = make_identity(m, op);
    if (!err && !m->request->options.cache_dir && open_stores_is_one(&m->stores))
        err = mount_cache_check_former(m->stores.top, m->request->mountpoint, op);
    if (!err)
        err = find_cache_dir(m, op);
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
    if (!open_stores_is_one(&m->stores) ||
        store_list(m->stores.top, &op, "", 0, stop_at_first, &any) || any)
        return;
    log_info("%s holds nothing yet", m->title);
    if (!foreground)
        (void)command_failed("note: %s holds nothing yet; is the name right?", m->title);
}

/* For a person at the terminal; a script goes by the exit code. */
static void tell_success(const struct mount *m)
{
    const char *point = m->request->mountpoint;

    if (!isatty(STDOUT_FILENO))
        return;
    command_say("%s is mounted on %s, cache %s; look with `runfs status %s`, end with `runfs "
                "umount %s`",
                m->title, point, m->cache_dir, point, point);
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
    bool cut;    /* something is left that the cache has not whole */
    bool hope;   /* something is left that another attempt may store */
    bool locked; /* a removal is: the unmount ends the lock */
};

/* What waits may wait behind a file that is cut; what is open may be written for ever. */
static int find_prospects(void *arg, const struct cache_pending *p)
{
    struct prospects *found = arg;

    if (p->short_write)
        found->cut = true;
    else if (strcmp(p->state, "locked") == 0)
        found->locked = true;
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
    return found.hope || (!found.cut && !found.locked);
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
    open_stores_close(&m->stores);
    free(m->staging);
    if (m->cache_fd >= 0)
        (void)close(m->cache_fd);
    free(m->cache_dir);
    free(m->identity);
    free(m->title);
    pthread_cond_destroy(&m->changed);
    mutex_destroy(&m->run_lock);
}

/* The advice goes to the log, and to the person who waits for the mount. */
static void pass_on_advice(const struct store *store, bool foreground)
{
    for (const char *line = store->advice; line;) {
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
    log_info("mounted %s on %s, cache %s", m->title, m->request->mountpoint, m->cache_dir);
    pass_on_advice(m->stores.top, foreground);
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
