/* A cache driven call by call: each call waits for its answer, as a system call would. The
 * store is a mem: store of the test's own, with a function of the test around every request. */
#ifndef RUNFS_TESTS_LIB_DRIVEN_H
#define RUNFS_TESTS_LIB_DRIVEN_H

#include "backends/layers/layer.h"
#include "cache/cache.h"

struct driven {
    char dir[64];    /* the cache directory */
    char folder[72]; /* of driven_init_folder() */
    struct cache_config config;
    struct store *store; /* with `around` around it */
    struct cache *cache; /* NULL while unmounted */
};

/* What passes each request on with call_next(), or does not; NULL passes all on. */
typedef int64_t (*driven_around)(struct layer *l, struct call *c);

/* Whose calls these are, of all caches; 0: nobody knows. */
extern pid_t driven_caller;

/* An empty cache directory and an empty store; not mounted yet, so that the test can change
 * config. Aborts the test on any failure, as everything here that returns nothing. */
void driven_init(struct driven *d, driven_around around);
/* The same over a store like S3: it lists no attributes, renames nothing, gives the same
 * content the same version, and has a place for objects of our own. */
void driven_init_like_s3(struct driven *d, driven_around around);
/* The same with a store that outlives the process: a folder, that takes parts of one size. */
void driven_init_folder(struct driven *d, driven_around around, uint64_t part_size);
/* The same over a store of the test's own, which belongs to `d` then. */
void driven_init_over(struct driven *d, struct store *store, driven_around around);
void driven_release(struct driven *d);
void driven_mount(struct driven *d);
/* What is not in the store stays owed. As after a kill: nothing is noted, nothing synced. */
void driven_unmount(struct driven *d);
/* The same, as a daemon ends that was asked to. */
void driven_end(struct driven *d);
/* Mounted again with an empty cache directory. */
void driven_mount_afresh(struct driven *d);

/* These return 0 (or a count) or a negative errno. */
int driven_open(struct driven *d, const char *path, int flags, struct handle **ret);
int driven_write(struct driven *d, struct handle *h, const void *data, size_t len,
                 uint64_t off);
int driven_fallocate(struct driven *d, struct handle *h, int mode, uint64_t off, uint64_t len);
/* The mirror file's descriptor, for what the kernel does past the cache; good as long as no
 * other file is opened. */
int driven_fd(struct driven *d, struct handle *h);
int driven_fsync(struct driven *d, struct handle *h);
int driven_fsyncdir(struct driven *d, const char *path);
int driven_close(struct driven *d, struct handle *h);
int driven_truncate(struct driven *d, const char *path, uint64_t size);
int driven_rename(struct driven *d, const char *from, const char *to);
int driven_exchange(struct driven *d, const char *from, const char *to);
int driven_link(struct driven *d, const char *path, const char *to);
int driven_unlink(struct driven *d, const char *path);
int driven_mkdir(struct driven *d, const char *path);
int driven_symlink(struct driven *d, const char *target, const char *path);
int driven_rmdir(struct driven *d, const char *path);
int driven_chmod(struct driven *d, const char *path, mode_t mode);
/* The target is heap. */
int driven_readlink(struct driven *d, const char *path, char **ret);
int driven_utimens(struct driven *d, const char *path, int64_t mtime_ns);
int driven_setxattr(struct driven *d, const char *path, const char *name, const void *value,
                    size_t size, int flags);
ssize_t driven_getxattr(struct driven *d, const char *path, const char *name, void *value,
                        size_t size);
ssize_t driven_listxattr(struct driven *d, const char *path, char *list, size_t size);
int driven_removexattr(struct driven *d, const char *path, const char *name);
int driven_stat(struct driven *d, const char *path, struct stat *st);
/* user.runfs.state; static. */
const char *driven_state(struct driven *d, const char *path);
/* All of it reaches the store within a minute. */
int driven_flush(struct driven *d);
/* How many names a directory shows. */
int driven_list(struct driven *d, const char *path);
/* The inode number that a listing of the directory shows beside the name; 0: it shows none. */
uint64_t driven_listed_ino(struct driven *d, const char *path, const char *name);
/* As a read() of the open file. */
ssize_t driven_pread(struct driven *d, struct handle *h, void *buf, size_t len, uint64_t off);
/* The first bytes of a file. */
ssize_t driven_read(struct driven *d, const char *path, void *buf, size_t len);
/* Fails the test unless the file holds this text, of up to 63 bytes. */
void driven_shows(struct driven *d, const char *path, const char *wanted);
/* Opens, writes and closes. */
void driven_put(struct driven *d, const char *path, const void *data, size_t len);

/* The store as it is, without the cache: -ENOENT, or how many bytes of the object are in `buf`.
 */
ssize_t driven_stored(struct driven *d, const char *key, void *buf, size_t len);
/* Fails the test unless the object holds this text, of up to 63 bytes; NULL: unless there is
 * none. */
void driven_stores(struct driven *d, const char *key, const char *wanted);
/* Whether there is a directory. */
bool driven_stores_dir(struct driven *d, const char *key);
/* Makes an object there, as another node would. */
void driven_store(struct driven *d, const char *key, const void *data, size_t len);
/* Makes it if the object is at version `etag`, with attributes: a put that arrives late. */
int driven_store_if(struct driven *d, const char *key, const char *etag, const void *data,
                    size_t len, const struct attrs *attrs);
void driven_store_with(struct driven *d, const char *key, const void *data, size_t len,
                       const struct attrs *attrs);

/* Tells a story in which something happens while the cache still reckons with it: a request
 * arrives late (config.late_ns), names are asked for before a listing is old (list_timeout_ns).
 * `story(window_ns, i)` returns whether it happened in time: on a machine that was too slow for
 * the window the story proves nothing, and is told again with one of twice the length. */
void driven_in_window(bool (*story)(int64_t window_ns, int i), int i);

/* Until the condition holds, at most 20 s. Not asked again then: it may hold for a moment only.
 */
#define DRIVEN_WAIT(condition)                                                                 \
    do {                                                                                       \
        int64_t wait_until = clock_mono_ns() + 20 * NS_PER_SEC;                                \
        bool wait_over = false;                                                                \
        while (!(wait_over = (condition)) && clock_mono_ns() < wait_until)                     \
            (void)usleep(10000);                                                               \
        ck_assert_msg(wait_over, "not within 20 s: %s", #condition);                           \
    } while (0)

#endif
