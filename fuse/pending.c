#include "fuse/pending.h"

#include "common/log.h"
#include "common/mem.h"
#include "common/op.h"
#include "fuse/dying.h"
#include "fuse/fs_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How often the callers of interrupted requests are looked at: the kernel tells of the first
 * signal only. */
#define WATCH_NS (100 * NS_PER_MS)

enum pending_state { STATE_RUNNING, STATE_PARKED, STATE_WOKEN };

/* ---- the list of parked requests ---- */

MUTEX_KIND(parked, struct parked_list, lock);

void parked_init(struct parked_list *list)
{
    mutex_init(&list->lock);
    cond_init(&list->changed);
}

void parked_destroy(struct parked_list *list)
{
    (void)pthread_cond_destroy(&list->changed);
    mutex_destroy(&list->lock);
}

uint64_t parked_count(struct parked_list *list)
{
    parked_lock(list);
    uint64_t count = list->count;
    parked_unlock(list);
    return count;
}

static void on_interrupt(fuse_req_t req, void *data)
{
    struct pending *p = data;
    struct parked_list *list = &p->fs->parked;

    (void)req;
    if (atomic_exchange(&p->interrupted, true))
        return;
    parked_lock(list);
    list->interrupted++;
    (void)pthread_cond_signal(&list->changed);
    parked_unlock(list);
}

static void list_add(struct parked_list *list, struct pending *p)
{
    parked_lock(list);
    p->prev = NULL;
    p->next = list->head;
    if (list->head)
        list->head->prev = p;
    list->head = p;
    list->count++;
    if (atomic_load(&p->interrupted)) {
        list->interrupted++;
        (void)pthread_cond_signal(&list->changed);
    }
    parked_unlock(list);
    p->listed = true;
}

static void list_remove(struct parked_list *list, struct pending *p)
{
    parked_lock(list);
    *(p->prev ? &p->prev->next : &list->head) = p->next;
    if (p->next)
        p->next->prev = p->prev;
    if (atomic_load(&p->interrupted))
        list->interrupted--;
    list->count--;
    if (list->count == 0)
        (void)pthread_cond_broadcast(&list->changed);
    parked_unlock(list);
    p->listed = false;
}

/* Takes one request that shall end back from the cache; NULL when there is none. It stays in
 * the list. */
static struct pending *take_one_locked(struct parked_list *list, bool all)
    REQUIRES(parked_mutex)
{
    parked_assert_locked(list);
    for (struct pending *p = list->head; p; p = p->next) {
        if (!all && !atomic_load(&p->interrupted))
            continue;
        if (!all && !caller_is_dying(fuse_req_ctx(p->req)->pid))
            continue;
        if (cache_cancel(list->fs->cache, &p->waiter))
            return p;
    }
    return NULL;
}

static void end_dying_locked(struct parked_list *list, bool all) REQUIRES(parked_mutex)
{
    struct pending *p;

    while ((p = take_one_locked(list, all))) {
        parked_unlock(list);
        p->waiter.wake(&p->waiter, -EINTR);
        parked_lock(list);
    }
}

static void *watch_main(void *arg)
{
    struct parked_list *list = arg;

    parked_lock(list);
    while (!list->stopping || list->count > 0) {
        if (list->stopping || list->interrupted > 0) {
            end_dying_locked(list, list->stopping);
            if (!list->stopping || list->count > 0)
                (void)parked_wait_until(list, &list->changed, clock_mono_ns() + WATCH_NS);
        } else {
            parked_wait(list, &list->changed);
        }
    }
    parked_unlock(list);
    return NULL;
}

int parked_start(struct parked_list *list, struct fs *fs)
{
    list->fs = fs;
    int r = pthread_create(&list->watcher, NULL, watch_main, list);
    list->running = r == 0;
    return -r;
}

void parked_stop(struct parked_list *list)
{
    if (!list->running)
        return;
    parked_lock(list);
    list->stopping = true;
    (void)pthread_cond_broadcast(&list->changed);
    parked_unlock(list);
    (void)pthread_join(list->watcher, NULL);
    list->running = false;
}

/* ---- one request ---- */

/* Copies what lies in the request's buffer, which is reused when the worker goes on. */
static int keep_arguments(struct pending *p)
{
    size_t len = p->name ? strlen(p->name) + 1 : 0;
    size_t len2 = p->name2 ? strlen(p->name2) + 1 : 0;
    size_t len_data = p->data ? p->size : 0;

    if (len + len2 + len_data == 0)
        return 0;
    p->keeps_data = len_data && kept_take(&p->fs->kept, p->uid, len_data, p->must_keep);
    if (len_data && !p->keeps_data)
        return -ENOSPC;
    char *at = p->kept = malloc(len + len2 + len_data);
    if (!at)
        return -ENOMEM;
    if (p->name)
        p->name = memcpy(at, p->name, len);
    if (p->name2)
        p->name2 = memcpy(at + len, p->name2, len2);
    if (p->data)
        p->data = memcpy(at + len + len2, p->data, len_data);
    return 0;
}

/* To be called after CACHE_PARKED. True: the request was woken already, or would wait in vain,
 * and this thread goes on with it. False: it is no longer this thread's. */
static bool park(struct pending *p)
{
    if (!p->listed) {
        p->keep_err = keep_arguments(p);
        if (p->keep_err && cache_cancel(p->fs->cache, &p->waiter))
            return true;
        list_add(&p->fs->parked, p);
        fuse_req_interrupt_func(p->req, on_interrupt, p);
    }
    return atomic_exchange(&p->state, STATE_PARKED) == STATE_WOKEN;
}

/* To be called before any answer: from here on no other thread knows the request. */
static void finish(struct pending *p)
{
    if (p->keeps_data)
        kept_give(&p->fs->kept, p->uid, p->size);
    p->keeps_data = false;
    if (!p->listed)
        return;
    /* Waits for an on_interrupt() that runs. */
    fuse_req_interrupt_func(p->req, NULL, NULL);
    list_remove(&p->fs->parked, p);
}

static void go_on(struct pending *p)
{
    int r;

    do {
        r = p->keep_err ? p->keep_err : p->err;
        if (r)
            break;
        atomic_store(&p->state, STATE_RUNNING);
        r = p->run(p);
        if (r == CACHE_PARKED && !park(p))
            return;
    } while (r == CACHE_PARKED);

    if (r < 0 && p->made) /* also when a waker said so, and run() was not called again */
        cache_forget(p->fs->cache, p->made, 1);
    if (p->keep_err && p->refused)
        p->refused(p, p->keep_err);
    if (r < 0 || r == CACHE_DONE) {
        finish(p);
        (void)fuse_reply_err(p->req, r < 0 ? -r : 0);
    }
    free(p->kept);
    free(p);
}

static void pending_wake(struct waiter *w, int err)
{
    struct pending *p = container_of(w, struct pending, waiter);

    p->err = err;
    if (atomic_exchange(&p->state, STATE_WOKEN) == STATE_PARKED)
        go_on(p);
}

struct pending *pending_new(fuse_req_t req, int (*run)(struct pending *p),
                            const struct fuse_file_info *fi)
{
    struct pending *p = calloc(1, sizeof(*p));

    if (!p) {
        (void)fuse_reply_err(req, ENOMEM);
        return NULL;
    }
    p->waiter.wake = pending_wake;
    p->fs = fs_of(req);
    p->req = req;
    p->uid = fuse_req_ctx(req)->uid;
    p->waiter.pid = fuse_req_ctx(req)->pid;
    p->run = run;
    if (fi) {
        p->fi = *fi;
        p->file = open_file_of(fi);
    }
    return p;
}

struct node *pending_node(struct pending *p, fuse_ino_t ino)
{
    struct node *n = node_of(p->fs, ino);

    if (!n)
        p->keep_err = -ESTALE;
    return n;
}

void pending_start(struct pending *p)
{
    go_on(p);
}

struct cache_cred pending_cred(const struct pending *p)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(p->req);

    return (struct cache_cred){.uid = ctx->uid, .gid = ctx->gid, .umask = ctx->umask};
}

/* ---- answers ---- */

int answer_ok(struct pending *p)
{
    finish(p);
    return fuse_reply_err(p->req, 0);
}

int answer_done(struct pending *p, int r)
{
    if (r == 0)
        (void)answer_ok(p);
    return r;
}

int answer_entry(struct pending *p, struct node *node, const struct stat *st)
{
    struct fuse_entry_param e;

    entry_fill(p->fs, node, st, &e);
    return answer_entry_param(p, &e);
}

int answer_entry_param(struct pending *p, const struct fuse_entry_param *e)
{
    finish(p);
    return fuse_reply_entry(p->req, e);
}

int answer_attr(struct pending *p, const struct stat *st)
{
    return answer_attr_for(p, st, p->fs->attr_timeout);
}

int answer_attr_for(struct pending *p, const struct stat *st, double timeout)
{
    finish(p);
    return fuse_reply_attr(p->req, st, timeout);
}

int answer_create(struct pending *p, struct node *node, const struct stat *st)
{
    struct fuse_entry_param e;

    entry_fill(p->fs, node, st, &e);
    finish(p);
    return fuse_reply_create(p->req, &e, &p->fi);
}

int answer_open(struct pending *p)
{
    finish(p);
    return fuse_reply_open(p->req, &p->fi);
}

int answer_buf(struct pending *p, const void *data, size_t size)
{
    finish(p);
    return fuse_reply_buf(p->req, data, size);
}

int answer_fd(struct pending *p, int fd, uint64_t off, size_t size)
{
    struct fuse_bufvec bytes = FUSE_BUFVEC_INIT(size);

    bytes.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
    bytes.buf[0].fd = fd;
    bytes.buf[0].pos = (off_t)off;
    finish(p);
    FILE_IS_ANSWERED(p->file);
    return fuse_reply_data(p->req, &bytes, 0);
}

int answer_write(struct pending *p, size_t size)
{
    finish(p);
    return fuse_reply_write(p->req, size);
}

int answer_xattr_size(struct pending *p, size_t size)
{
    finish(p);
    return fuse_reply_xattr(p->req, size);
}

int answer_readlink(struct pending *p, const char *target)
{
    finish(p);
    return fuse_reply_readlink(p->req, target);
}

int answer_lseek(struct pending *p, uint64_t off)
{
    finish(p);
    return fuse_reply_lseek(p->req, (off_t)off);
}
