#include "fuse/await.h"

#include "common/mem.h"
#include "fuse/fs_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VALUE "store"
/* One user's waits must not take the room of root's, or of many others'. */
#define WAITS_MAX      64
#define WAITS_USER_MAX 16

MUTEX_KIND(await, struct await_list, lock);

struct awaiting {
    struct awaiting *prev GUARDED_BY(await_mutex), *next GUARDED_BY(await_mutex);
    struct fs *fs;
    fuse_req_t req;
    struct node *node; /* the kernel's lookup, until it is answered */
    uid_t uid;
    size_t size; /* of the caller's buffer; 0: it asks for the length */
    atomic_bool cancelled;
};

static unsigned count_of_user_locked(struct await_list *list, uid_t uid) REQUIRES(await_mutex)
{
    unsigned n = 0;

    await_assert_locked(list);
    for (const struct awaiting *a = list->head; a; a = a->next)
        n += a->uid == uid;
    return n;
}

static bool list_add(struct await_list *list, struct awaiting *a)
{
    await_lock(list);
    bool room = !list->stopping && list->count < WAITS_MAX &&
                (a->uid == 0 || count_of_user_locked(list, a->uid) < WAITS_USER_MAX);
    if (room) {
        a->next = list->head;
        if (a->next)
            a->next->prev = a;
        list->head = a;
        list->count++;
    }
    await_unlock(list);
    return room;
}

static void list_remove(struct await_list *list, struct awaiting *a)
{
    await_lock(list);
    *(a->prev ? &a->prev->next : &list->head) = a->next;
    if (a->next)
        a->next->prev = a->prev;
    list->count--;
    (void)pthread_cond_broadcast(&list->changed);
    await_unlock(list);
}

static void on_interrupt(fuse_req_t req, void *data)
{
    struct awaiting *a = data;

    (void)req;
    atomic_store(&a->cancelled, true);
}

static void answer(const struct awaiting *a, int r)
{
    if (r < 0)
        (void)fuse_reply_err(a->req, -r);
    else if (a->size == 0)
        (void)fuse_reply_xattr(a->req, strlen(VALUE));
    else
        (void)fuse_reply_buf(a->req, VALUE, strlen(VALUE));
}

static void *await_main(void *arg)
{
    struct awaiting *a = arg;
    struct op op;

    op_init(&op, OP_FOREVER);
    op.cancelled = &a->cancelled;
    int r = cache_await(a->fs->cache, a->node, &op);
    fuse_req_interrupt_func(a->req, NULL, NULL); /* waits for an on_interrupt() that runs */
    answer(a, r);
    list_remove(&a->fs->awaiting, a);
    free(a);
    return NULL;
}

static int start_thread(struct awaiting *a)
{
    pthread_attr_t attr;
    pthread_t thread;

    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int r = pthread_create(&thread, &attr, await_main, a);
    (void)pthread_attr_destroy(&attr);
    return -r;
}

void await_start(struct fs *fs, fuse_req_t req, fuse_ino_t ino, size_t size)
{
    struct awaiting *a = size == 0 || size >= strlen(VALUE) ? calloc(1, sizeof(*a)) : NULL;

    if (!a) {
        (void)fuse_reply_err(req, size == 0 || size >= strlen(VALUE) ? ENOMEM : ERANGE);
        return;
    }
    *a = (struct awaiting){.fs = fs,
                           .req = req,
                           .node = node_of(fs, ino),
                           .uid = fuse_req_ctx(req)->uid,
                           .size = size};
    if (!a->node || !list_add(&fs->awaiting, a)) {
        (void)fuse_reply_err(req, a->node ? EAGAIN : ESTALE);
        free(a);
        return;
    }
    fuse_req_interrupt_func(req, on_interrupt, a);
    if (start_thread(a) < 0) {
        fuse_req_interrupt_func(req, NULL, NULL);
        list_remove(&fs->awaiting, a);
        free(a);
        (void)fuse_reply_err(req, EAGAIN);
    }
}

void await_init(struct await_list *list)
{
    mutex_init(&list->lock);
    cond_init(&list->changed);
}

void await_destroy(struct await_list *list)
{
    (void)pthread_cond_destroy(&list->changed);
    mutex_destroy(&list->lock);
}

unsigned await_count(struct await_list *list)
{
    await_lock(list);
    unsigned count = list->count;
    await_unlock(list);
    return count;
}

void await_stop(struct await_list *list)
{
    await_lock(list);
    list->stopping = true;
    for (struct awaiting *a = list->head; a; a = a->next)
        atomic_store(&a->cancelled, true);
    while (list->count > 0)
        await_wait(list, &list->changed);
    await_unlock(list);
}
