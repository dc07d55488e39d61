/* A request of the kernel on its way to an answer.
 *
 * States: RUNNING (a thread is in its `run`), PARKED (it waits for the store, nobody touches
 * it), WOKEN (it may go on). The thread that parks and the one that wakes meet in one atomic
 * exchange: whoever comes second goes on with the request. So a wake that comes before the
 * parking call has returned is harmless, and arguments are copied and interrupts are watched
 * only once a request has parked. */
#ifndef RUNFS_FUSE_PENDING_H
#define RUNFS_FUSE_PENDING_H

#include "cache/cache.h"
#include "common/lock.h"
#include "fuse/lowlevel.h"

struct fs;
struct open_file;

/* Above the cache's locks: cache_cancel() is called under it, and the cache wakes nobody under
 * one of its own. Below the lock of a libfuse request, under which on_interrupt() is called. */
extern struct lock_class parked_mutex;

/* What is neither atomic nor guarded belongs to the thread that has the request in hand; of a
 * listed one the watcher reads what is constant. */
struct pending {
    struct waiter waiter;
    struct fs *fs;
    fuse_req_t req; /* gone with the answer */
    uid_t uid;      /* whose it is */

    /* Makes the calls to the cache. CACHE_PARKED, a negative errno to be answered, or 0 when it
     * has answered through one of the functions below. Runs again after a wake. */
    int (*run)(struct pending *p);

    atomic_int state;
    int err;         /* what the waker said */
    int keep_err;    /* no room for the arguments, or no node: answered at once */
    bool keeps_data; /* counted in fs.kept */
    bool must_keep;  /* ... beyond the bound, too */
    void (*refused)(struct pending *p, int err); /* its data could not be kept; may be NULL */
    bool listed;             /* in parked_list; has been parked at least once */
    atomic_bool interrupted; /* the caller got a signal, or could end without our being told */
    struct pending *prev GUARDED_BY(parked_mutex), *next GUARDED_BY(parked_mutex);
    void *kept; /* heap; copies of what the request's buffer held */

    /* Arguments; which count depends on the operation. Pointers lead into the request's buffer
     * until the request parks, then into `kept`. */
    struct node *node, *node2;
    struct node *made; /* a lookup that is the request's own: forgotten when it fails */
    struct open_file *file, *file2;
    const char *name, *name2;
    const void *data;
    size_t size;
    uint64_t off, off2;
    uint64_t rdev;
    unsigned flags, mode;
    struct fuse_file_info fi;
    struct stat st;
};

/* Requests that are parked, and the thread that looks whether the interrupted ones' callers are
 * dying. */
struct parked_list {
    struct fs *fs;     /* constant from parked_start() on */
    pthread_t watcher; /* of the thread that starts and stops it */
    bool running;      /* of the same thread */

    struct mutex lock;
    pthread_cond_t changed;
    struct pending *head GUARDED_BY(parked_mutex);
    uint64_t count GUARDED_BY(parked_mutex); /* in the list */
    /* interruptions not looked at yet or still being watched */
    unsigned interrupted GUARDED_BY(parked_mutex);
    bool stopping GUARDED_BY(parked_mutex);
};

void parked_init(struct parked_list *list);
void parked_destroy(struct parked_list *list);

/* 0 or a negative errno. */
int parked_start(struct parked_list *list, struct fs *fs);
/* Ends every parked request with EINTR and waits until none is left; then ends the thread. No
 * new request may come meanwhile. */
void parked_stop(struct parked_list *list);
uint64_t parked_count(struct parked_list *list);

/* A request with `fi` (may be NULL) copied; answers ENOMEM itself and returns NULL. */
struct pending *pending_new(fuse_req_t req, int (*run)(struct pending *p),
                            const struct fuse_file_info *fi);
/* The node that the request is about. Without one it will be answered with ESTALE, and not run.
 */
struct node *pending_node(struct pending *p, fuse_ino_t ino);
/* Runs it to its answer or until it parks; not the caller's afterwards. */
void pending_start(struct pending *p);

/* The user who asks. */
struct cache_cred pending_cred(const struct pending *p);

/* The answers. They return 0, or a negative errno when the kernel did not take the answer (the
 * request was ended from outside): what the answer handed over must be taken back then. */
int answer_ok(struct pending *p);
/* Success when `r` is 0; other results are the caller's to return. Returns `r`. */
int answer_done(struct pending *p, int r);
int answer_entry(struct pending *p, struct node *node, const struct stat *st);
int answer_entry_param(struct pending *p, const struct fuse_entry_param *e);
int answer_attr(struct pending *p, const struct stat *st);
/* The kernel believes it for so many seconds. */
int answer_attr_for(struct pending *p, const struct stat *st, double timeout);
int answer_create(struct pending *p, struct node *node, const struct stat *st);
int answer_open(struct pending *p);
int answer_buf(struct pending *p, const void *data, size_t size);
/* With `size` bytes of `fd` at `off`, or as many as there are. */
int answer_fd(struct pending *p, int fd, uint64_t off, size_t size);
int answer_write(struct pending *p, size_t size);
int answer_xattr_size(struct pending *p, size_t size);
int answer_readlink(struct pending *p, const char *target);
int answer_lseek(struct pending *p, uint64_t off);

#endif
