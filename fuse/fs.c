/* The life of a mount: what fs.h promises to the commands. */
#include "fuse/fs.h"

#include "common/log.h"
#include "common/mem.h"
#include "fuse/fs_impl.h"
#include "fuse/session.h"
#include "fuse/unmount.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>

#define DEFAULT_THREADS 10
#define STOP_SIGNAL     SIGRTMAX

MUTEX_KIND(files, struct fs, files_lock);

/* ---- what the other files share ---- */

void entry_fill(const struct fs *fs, struct node *node, const struct stat *st,
                struct fuse_entry_param *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->ino = ino_of(fs, node);
    ret->attr = *st;
    ret->attr_timeout = fs->attr_timeout;
    ret->entry_timeout = fs->entry_timeout;
}

void kernel_forget_attr(struct fs *fs, struct node *node)
{
    (void)fuse_lowlevel_notify_inval_inode(fs->session, ino_of(fs, node), -1, 0);
}

struct open_file *open_file_new(struct fs *fs)
{
    struct open_file *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    files_lock(fs);
    f->next = fs->files;
    if (f->next)
        f->next->prev = f;
    fs->files = f;
    files_unlock(fs);
    return f;
}

static struct open_file *first_file(struct fs *fs)
{
    files_lock(fs);
    struct open_file *f = fs->files;
    files_unlock(fs);
    return f;
}

void open_file_free(struct fs *fs, struct open_file *f)
{
    if (!f)
        return;
    FILE_IS_ENDED(f);
    files_lock(fs);
    *(f->prev ? &f->prev->next : &fs->files) = f->next;
    if (f->next)
        f->next->prev = f->prev;
    files_unlock(fs);
    if (f->backing)
        backing_put(&fs->backings, fs->session, f->handle, f->backing);
    if (f->handle)
        cache_release(fs->cache, f->handle);
    if (f->dir)
        cache_releasedir(fs->cache, f->dir);
    free(f->text);
    free(f);
}

struct thread_memory {
    size_t size;
    char data[];
};

static pthread_key_t memory_key;
static pthread_once_t memory_once = PTHREAD_ONCE_INIT;

static void memory_init(void)
{
    /* A failure shows in pthread_setspecific(). */
    (void)pthread_key_create(&memory_key, free);
}

void *thread_buffer(size_t size)
{
    (void)pthread_once(&memory_once, memory_init);
    struct thread_memory *m = pthread_getspecific(memory_key);
    if (m && m->size >= size)
        return m->data;
    free(m);
    m = malloc(sizeof(*m) + size);
    if (m)
        m->size = size;
    if (pthread_setspecific(memory_key, m) != 0) {
        free(m);
        return NULL;
    }
    return m ? m->data : NULL;
}

/* ---- new and free ---- */

void fs_config_init(struct fs_config *config)
{
    memset(config, 0, sizeof(*config));
    config->passthrough = true;
    config->acl = true;
    config->attr_timeout_ns = NS_PER_SEC;
    config->entry_timeout_ns = NS_PER_SEC;
    config->threads = DEFAULT_THREADS;
}

static int copy_text(const char **text)
{
    if (!*text)
        return 0;
    *text = strdup(*text);
    return *text ? 0 : -ENOMEM;
}

static int copy_config(struct fs *fs, const struct fs_config *config)
{
    int r = 0;

    fs->config = *config;
    if (fs->config.threads == 0)
        fs->config.threads = DEFAULT_THREADS;
    /* All are copied, also after a failure: fs_free() frees each. */
    r |= copy_text(&fs->config.mountpoint);
    r |= copy_text(&fs->config.fsname);
    r |= copy_text(&fs->config.mount_options);
    r |= copy_text(&fs->config.control_path);
    return r ? -ENOMEM : 0;
}

int fs_new(const struct fs_config *config, struct op *op, struct fs **ret)
{
    struct fs *fs = calloc(1, sizeof(*fs));

    if (!fs)
        return op_fail(op, -ENOMEM, "mount: no memory");
    mutex_init(&fs->files_lock);
    parked_init(&fs->parked);
    await_init(&fs->awaiting);
    kept_init(&fs->kept);
    links_init(&fs->links, INO_LINK);
    links_init(&fs->locked, INO_LOCKED);
    notify_init(&fs->notify_nodes);
    notify_init(&fs->notify_entries);
    backings_init(&fs->backings);
    fs->attr_timeout = (double)config->attr_timeout_ns / (double)NS_PER_SEC;
    fs->entry_timeout = (double)config->entry_timeout_ns / (double)NS_PER_SEC;
    int r = copy_config(fs, config);
    if (r)
        (void)op_fail(op, r, "mount: no memory");
    atomic_store(&fs->passthrough, fs_can_passthrough(fs));
    if (r == 0)
        r = session_new(fs, op);
    if (r) {
        fs_free(fs);
        return r;
    }
    *ret = fs;
    return 0;
}

void fs_free(struct fs *fs)
{
    if (!fs)
        return;
    if (fs->session)
        fuse_session_destroy(fs->session);
    backings_release(&fs->backings);
    notify_destroy(&fs->notify_entries);
    notify_destroy(&fs->notify_nodes);
    await_destroy(&fs->awaiting);
    parked_destroy(&fs->parked);
    links_destroy(&fs->links);
    links_destroy(&fs->locked);
    kept_destroy(&fs->kept);
    mutex_destroy(&fs->files_lock);
    free((char *)fs->config.mountpoint);
    free((char *)fs->config.fsname);
    free((char *)fs->config.mount_options);
    free((char *)fs->config.control_path);
    free(fs);
}

bool fs_can_passthrough(const struct fs *fs)
{
#ifdef HAVE_FUSE_PASSTHROUGH
    return fs->config.passthrough && session_is_privileged();
#else
    (void)fs;
    return false;
#endif
}

void fs_set_texts(struct fs *fs, fs_text status, fs_text metrics, void *arg)
{
    fs->status = status;
    fs->metrics = metrics;
    fs->text_arg = arg;
}

/* ---- while mounted ---- */

void fs_invalidate(void *arg, struct node *node, const char *name)
{
    struct fs *fs = arg;

    if (!atomic_load(&fs->mounted))
        return;
    if (!name)
        kernel_forget_attr(fs, node);
    notify_add(name ? &fs->notify_entries : &fs->notify_nodes, ino_of(fs, node), name);
}

static int start_threads(struct fs *fs)
{
    int r = parked_start(&fs->parked, fs);

    if (r == 0)
        r = notify_start(&fs->notify_nodes, fs->session, "runfs-inodes");
    if (r == 0)
        r = notify_start(&fs->notify_entries, fs->session, "runfs-entries");
    return r;
}

int fs_mount(struct fs *fs, struct cache *cache, struct op *op)
{
    fs->cache = cache;
    fs->root = cache_root(cache);
    fs->mounted_ns = clock_real_ns();
    int r = session_mount(fs, op);
    if (r)
        return r;
    atomic_store(&fs->mounted, true);
    r = start_threads(fs);
    if (r) {
        fs_unmount(fs, fs->config.mountpoint, 0);
        return op_fail(op, r, "mount: cannot start a thread: %s", strerror(-r));
    }
    return 0;
}

static void on_stop_signal(int sig)
{
    (void)sig; /* it has interrupted the loop's wait, which is all it is for */
}

static void take_stop_signal(void)
{
    struct sigaction action = {.sa_handler = on_stop_signal};
    sigset_t set;

    (void)sigaction(STOP_SIGNAL, &action, NULL);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, STOP_SIGNAL);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* The loop ends its threads by pthread_cancel(), for which glibc loads a library at the first
 * time; it aborts the process when there is no descriptor or no memory for that by then. */
static void load_canceller(void)
{
    (void)dlopen("libgcc_s.so.1", RTLD_NOW);
}

int fs_run(struct fs *fs)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create();

    if (!config)
        return -ENOMEM;
    fuse_loop_cfg_set_clone_fd(config, 1);
    fuse_loop_cfg_set_max_threads(config, fs->config.threads);
    fuse_loop_cfg_set_idle_threads(config, fs->config.threads);
    take_stop_signal();
    load_canceller();
    fs->loop = pthread_self();
    atomic_store(&fs->looping, true);
    int r = fuse_session_loop_mt(fs->session, config);
    atomic_store(&fs->looping, false);
    fuse_loop_cfg_destroy(config);
    return r > 0 ? -EINTR : r;
}

void fs_stop(struct fs *fs)
{
    const struct timespec pause = {.tv_nsec = 5 * NS_PER_MS};

    /* The loop looks at the flag before it waits: a signal in between is lost, the next is not.
     */
    do {
        fuse_session_exit(fs->session);
        if (atomic_load(&fs->looping))
            (void)pthread_kill(fs->loop, STOP_SIGNAL);
        (void)nanosleep(&pause, NULL);
    } while (atomic_load(&fs->looping));
}

/* ---- the end ---- */

/* Closes the connection and puts in its place what libfuse takes for a mount that is gone: a
 * pipe that nobody reads. False when that failed: the connection is as it was. */
static bool sever(struct fs *fs)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    (void)close(ends[0]);
    bool severed = dup3(ends[1], fuse_session_fd(fs->session), O_CLOEXEC) >= 0;
    (void)close(ends[1]);
    return severed;
}

/* Ends the connection, so that no thread of ours stays in the kernel waiting for an answer. */
static void disconnect(struct fs *fs, const char *path, dev_t dev)
{
    struct pollfd pfd = {.fd = fuse_session_fd(fs->session)};
    bool gone = poll(&pfd, 1, 0) == 1 && (pfd.revents & POLLERR);

    /* MNT_FORCE aborts what runs; the path is not ours any more when the mount is gone. */
    int r = gone ? 0 : unmount_at(path, dev, MNT_FORCE | MNT_DETACH);
    if (r && geteuid() == 0)
        log_warn("cannot unmount %s: %s", path, strerror(-r));
    /* What libfuse does not find disconnected it unmounts by the path, and follows symlinks;
     * without privilege fusermount3 does that, which looks where it goes. */
    if (r == 0 || geteuid() != 0 || sever(fs))
        fuse_session_unmount(fs->session);
}

/* What the kernel will not release any more. */
static void abandon_files(struct fs *fs)
{
    struct open_file *f;

    while ((f = first_file(fs))) {
        if (f->handle)
            cache_abandon(fs->cache, f->handle);
        open_file_free(fs, f);
    }
}

void fs_unmount(struct fs *fs, const char *path, dev_t dev)
{
    if (!atomic_exchange(&fs->mounted, false))
        return;
    notify_close(&fs->notify_nodes);
    notify_close(&fs->notify_entries);
    await_stop(&fs->awaiting);
    parked_stop(&fs->parked);
    disconnect(fs, path, dev);
    notify_join(&fs->notify_nodes);
    notify_join(&fs->notify_entries);
    abandon_files(fs);
}

void fs_get_stats(struct fs *fs, struct fs_stats *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->passthrough = atomic_load(&fs->passthrough);
    ret->opens_passthrough = atomic_load(&fs->opens_passthrough);
    ret->opens_normal = atomic_load(&fs->opens_normal);
    ret->parked = parked_count(&fs->parked) + await_count(&fs->awaiting);
    notify_count(&fs->notify_nodes, &ret->notifications, &ret->notifications_lost);
    notify_count(&fs->notify_entries, &ret->notifications, &ret->notifications_lost);
}
