#include "fuse/notify.h"

#include "common/log.h"
#include "common/table.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WAITING 65536

MUTEX_KIND(notify, struct notify_queue, lock);

struct notice {
    UT_hash_handle hh GUARDED_BY(notify_mutex);
    struct notice *next GUARDED_BY(notify_mutex);
    fuse_ino_t ino;
    size_t key_len; /* of ino's bytes and the name */
    char key[];     /* ino, then the name with a NUL; no name at all for the node itself */
};

void notify_init(struct notify_queue *q)
{
    memset(q, 0, sizeof(*q));
    mutex_init(&q->lock);
    cond_init(&q->changed);
    notify_lock(q);
    q->tail = &q->head;
    notify_unlock(q);
}

static struct notice *take_locked(struct notify_queue *q) REQUIRES(notify_mutex)
{
    struct notice *n = q->head;

    notify_assert_locked(q);
    if (!n)
        return NULL;
    assert(q->index); /* it is in there */
    q->head = n->next;
    if (!q->head)
        q->tail = &q->head;
    HASH_DEL(q->index, n);
    q->waiting--;
    return n;
}

static void drop_all_locked(struct notify_queue *q) REQUIRES(notify_mutex)
{
    struct notice *n;

    while ((n = take_locked(q)))
        free(n);
}

void notify_destroy(struct notify_queue *q)
{
    notify_lock(q);
    drop_all_locked(q);
    notify_unlock(q);
    (void)pthread_cond_destroy(&q->changed);
    mutex_destroy(&q->lock);
}

static void tell(struct notify_queue *q, const struct notice *n)
{
    const char *name = n->key_len > sizeof(n->ino) ? n->key + sizeof(n->ino) : NULL;
    int r;

    if (name)
        r = fuse_lowlevel_notify_inval_entry(q->session, n->ino, name, strlen(name));
    else
        r = fuse_lowlevel_notify_inval_inode(q->session, n->ino, 0, 0);
    /* ENOENT: the kernel does not know it, so there is nothing to forget. */
    if (r && r != -ENOENT)
        log_debug("notify: %s", strerror(-r));
}

static void *notify_main(void *arg)
{
    struct notify_queue *q = arg;

    notify_lock(q);
    while (!q->stopping) {
        struct notice *n = take_locked(q);
        if (!n) {
            notify_wait(q, &q->changed);
            continue;
        }
        q->sent++;
        notify_unlock(q);
        tell(q, n);
        free(n);
        notify_lock(q);
    }
    notify_unlock(q);
    return NULL;
}

int notify_start(struct notify_queue *q, struct fuse_session *session, const char *thread_name)
{
    q->session = session;
    notify_lock(q);
    int r = pthread_create(&q->thread, NULL, notify_main, q);
    q->running = r == 0;
    notify_unlock(q);
    if (r == 0)
        (void)pthread_setname_np(q->thread, thread_name);
    return -r;
}

void notify_close(struct notify_queue *q)
{
    notify_lock(q);
    q->stopping = true;
    drop_all_locked(q);
    (void)pthread_cond_broadcast(&q->changed);
    notify_unlock(q);
}

void notify_join(struct notify_queue *q)
{
    notify_lock(q);
    bool running = q->running;
    q->running = false;
    notify_unlock(q);
    if (running)
        (void)pthread_join(q->thread, NULL);
}

/* Whether it was queued; the first that finds no room sets *ret_full. */
static bool add_locked(struct notify_queue *q, struct notice *n, bool *ret_full)
    REQUIRES(notify_mutex)
{
    struct notice *known;

    notify_assert_locked(q);
    if (!q->running || q->stopping)
        return false;
    HASH_FIND(hh, q->index, n->key, n->key_len, known);
    if (known)
        return false;
    if (q->waiting >= MAX_WAITING) {
        *ret_full = q->lost++ == 0;
        return false;
    }
    HASH_ADD(hh, q->index, key, n->key_len, n);
    if (TABLE_LACKS(hh, n)) {
        *ret_full = q->lost++ == 0;
        return false;
    }
    n->next = NULL;
    *q->tail = n;
    q->tail = &n->next;
    q->waiting++;
    (void)pthread_cond_signal(&q->changed);
    return true;
}

void notify_add(struct notify_queue *q, fuse_ino_t ino, const char *name)
{
    size_t name_len = name ? strlen(name) + 1 : 0;
    struct notice *n = malloc(sizeof(*n) + sizeof(ino) + name_len);
    bool full = false;

    if (!n)
        return; /* as when too many wait */
    n->ino = ino;
    n->key_len = sizeof(ino) + name_len;
    memcpy(n->key, &ino, sizeof(ino));
    if (name)
        memcpy(n->key + sizeof(ino), name, name_len);
    notify_lock(q);
    bool queued = add_locked(q, n, &full);
    notify_unlock(q);
    if (full)
        log_warn("too many changes to tell the kernel: it may show old attributes until its "
                 "timeouts end");
    if (!queued)
        free(n);
}

void notify_count(struct notify_queue *q, uint64_t *sent, uint64_t *lost)
{
    notify_lock(q);
    *sent += q->sent;
    *lost += q->lost;
    notify_unlock(q);
}
