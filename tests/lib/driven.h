/* A cache driven call by call: each call waits for its answer, as a system call would. The
 * store is a mem: store of the test's own, with a function of the test around every request. */
#ifndef RUNFS_TESTS_LIB_DRIVEN_H
#define RUNFS_TESTS_LIB_DRIVEN_H

#include "backends/layer.h"
#include "cache/cache.h"

struct driven {
    char dir[64]; /* the cache directory */
    struct cache_config config;
    struct store *store; /* with `around` around it */
    struct cache *cache; /* NULL while unmounted */
};

/* What passes each request on with call_next(), or does not; NULL passes all on. */
typedef int64_t (*driven_around)(struct layer *l, struct call *c);

/* An empty cache directory and an empty store; not mounted yet, so that the test can change
 * config. Aborts the test on any failure, as everything here that returns nothing. */
void driven_init(struct driven *d, driven_around around);
void driven_release(struct driven *d);
void driven_mount(struct driven *d);
/* What is not in the store stays owed. */
void driven_unmount(struct driven *d);

/* These return 0 (or a count) or a negative errno. */
int driven_open(struct driven *d, const char *path, int flags, struct handle **ret);
int driven_write(struct driven *d, struct handle *h, const void *data, size_t len,
                 uint64_t off);
int driven_fsync(struct driven *d, struct handle *h);
int driven_fsyncdir(struct driven *d, const char *path);
int driven_close(struct driven *d, struct handle *h);
int driven_truncate(struct driven *d, const char *path, uint64_t size);
int driven_rename(struct driven *d, const char *from, const char *to);
int driven_link(struct driven *d, const char *path, const char *to);
int driven_unlink(struct driven *d, const char *path);
int driven_stat(struct driven *d, const char *path, struct stat *st);
/* user.runfs.state; static. */
const char *driven_state(struct driven *d, const char *path);
/* All of it reaches the store within 20 s. */
int driven_flush(struct driven *d);
/* How many names a directory shows. */
int driven_list(struct driven *d, const char *path);
/* The first bytes of a file. */
ssize_t driven_read(struct driven *d, const char *path, void *buf, size_t len);
/* Opens, writes and closes. */
void driven_put(struct driven *d, const char *path, const void *data, size_t len);

/* The store as it is, without the cache: -ENOENT, or how many bytes of the object are in `buf`.
 */
ssize_t driven_stored(struct driven *d, const char *key, void *buf, size_t len);
/* Makes an object there, as another node would. */
void driven_store(struct driven *d, const char *key, const void *data, size_t len);

/* Until the condition holds, at most 20 s. */
#define DRIVEN_WAIT(condition)                                                                 \
    do {                                                                                       \
        int64_t wait_until = clock_mono_ns() + 20 * NS_PER_SEC;                                \
        while (!(condition) && clock_mono_ns() < wait_until)                                   \
            (void)usleep(10000);                                                               \
        ck_assert_msg(condition, "not within 20 s: %s", #condition);                           \
    } while (0)

#endif
