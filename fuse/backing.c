#include "fuse/backing.h"

#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

struct backing {
    int id;             /* the kernel's */
    unsigned users;     /* open files */
    unsigned next_free; /* while unused */
};

MUTEX_KIND(backings, struct backings, lock);

void backings_init(struct backings *b)
{
    memset(b, 0, sizeof(*b));
    mutex_init(&b->lock);
}

void backings_release(struct backings *b)
{
    backings_lock(b);
    free(b->slots);
    backings_unlock(b);
    mutex_destroy(&b->lock);
}

/* A slot from the free list; 0 without memory. */
static unsigned slot_take_locked(struct backings *b) REQUIRES(backings_mutex)
{
    backings_assert_locked(b);
    if (b->free_head == 0) {
        size_t first = b->cap ? b->cap : 1;
        if (array_grow(b->slots, b->cap, first + 1))
            return 0;
        for (size_t i = first; i < b->cap; i++) {
            b->slots[i].next_free = b->free_head;
            b->free_head = (unsigned)i;
        }
    }
    unsigned slot = b->free_head;
    b->free_head = b->slots[slot].next_free;
    return slot;
}

static void slot_give_locked(struct backings *b, unsigned slot) REQUIRES(backings_mutex)
{
    backings_assert_locked(b);
    b->slots[slot].next_free = b->free_head;
    b->free_head = slot;
}

#ifdef HAVE_FUSE_PASSTHROUGH

/* libfuse has calls for these that want a request; there is none before the first and after the
 * last one. */
struct backing_map {
    int32_t fd;
    uint32_t flags;
    uint64_t padding;
};
#define DEV_IOC_BACKING_OPEN  _IOW(229, 1, struct backing_map)
#define DEV_IOC_BACKING_CLOSE _IOW(229, 2, uint32_t)

static int kernel_open(struct fuse_session *session, int fd)
{
    struct backing_map map = {.fd = fd};
    int id = ioctl(fuse_session_fd(session), DEV_IOC_BACKING_OPEN, &map);

    if (id > 0)
        return id;
    return id < 0 ? -errno : -EIO;
}

static void kernel_close(struct fuse_session *session, int id)
{
    uint32_t backing_id = (uint32_t)id;

    /* Fails only when the mount is gone, and the id with it. */
    (void)ioctl(fuse_session_fd(session), DEV_IOC_BACKING_CLOSE, &backing_id);
}

#else

static int kernel_open(struct fuse_session *session, int fd)
{
    (void)session;
    (void)fd;
    return -EOPNOTSUPP;
}

static void kernel_close(struct fuse_session *session, int id)
{
    (void)session;
    (void)id;
}

#endif

int backing_probe(struct fuse_session *session, int fd)
{
    int id = kernel_open(session, fd);

    if (id < 0)
        return id;
    kernel_close(session, id);
    return 0;
}

static int open_locked(struct backings *b, struct fuse_session *session, struct cache *cache,
                       struct handle *h, int *slot) REQUIRES(backings_mutex)
{
    backings_assert_locked(b);
    unsigned fresh = slot_take_locked(b);
    if (fresh == 0)
        return -ENOMEM;
    struct handle_fd fd;
    int id = handle_backing_fd_get(cache, h, &fd);
    if (id == 0) {
        id = kernel_open(session, fd.fd); /* it holds the file by itself from now on */
        handle_fd_put(cache, &fd);
    }
    if (id < 0) {
        slot_give_locked(b, fresh);
        return id;
    }
    b->slots[fresh].id = id;
    b->slots[fresh].users = 0;
    *slot = (int)fresh;
    return 0;
}

int backing_get(struct backings *b, struct fuse_session *session, struct cache *cache,
                struct handle *h, bool fresh, unsigned *ret_slot, int *ret_id)
{
    int r = 0;

    backings_lock(b);
    int *slot = handle_backing_slot(h);
    if (*slot == 0)
        r = fresh ? open_locked(b, session, cache, h, slot) : -EOPNOTSUPP;
    if (r == 0) {
        struct backing *k = &b->slots[*slot];
        k->users++;
        *ret_slot = (unsigned)*slot;
        *ret_id = k->id;
    }
    backings_unlock(b);
    return r;
}

void backing_put(struct backings *b, struct fuse_session *session, struct handle *h,
                 unsigned slot)
{
    backings_lock(b);
    struct backing *k = &b->slots[slot];
    if (--k->users == 0) {
        kernel_close(session, k->id);
        *handle_backing_slot(h) = 0;
        slot_give_locked(b, slot);
    }
    backings_unlock(b);
}
