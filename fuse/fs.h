/* The frontend: a cache shown as a mounted filesystem. Everything cli/ may call.
 *
 *   fs_new > cache_new > fs_mount > fs_run > fs_unmount > cache_stop > cache_free > fs_free
 *
 * fs_new() starts no thread: a process that goes into the background forks before fs_mount().
 */
#ifndef RUNFS_FUSE_FS_H
#define RUNFS_FUSE_FS_H

#include "cache/cache.h"
#include "common/op.h"
#include "runs/codec.h"

#include <stdbool.h>
#include <stdint.h>

struct fs;

/* Strings are copied by fs_new(). */
struct fs_config {
    const char *mountpoint;
    const char *fsname;        /* the store's URL without secrets: the mount's source */
    const char *mount_options; /* "nosuid,nodev,noatime" and their like for the kernel; or NULL
                                  (libfuse sets nosuid and nodev unless told otherwise) */
    const char *control_path;  /* what the root answers for user.runfs.control; NULL: nothing */
    bool allow_other;
    bool read_only;
    bool acl;         /* the kernel shall enforce ACLs */
    bool passthrough; /* wanted, where library, kernel and privileges allow */
    bool debug;       /* libfuse writes every request to stderr */
    int64_t attr_timeout_ns, entry_timeout_ns; /* how long the kernel may believe us */
    unsigned threads;                          /* at most this many FUSE workers; 0: 10 */
    enum codec raw_names; /* how names of the root encode runs' ids, which `.runfs/by-id` then
                             shows; CODEC_NONE: they don't */
};

void fs_config_init(struct fs_config *config);

/* Builds the session. 0, -EINVAL for options that libfuse refuses, -ENOMEM; op->why tells. */
int fs_new(const struct fs_config *config, struct op *op, struct fs **ret);

/* Whether files may be opened passthrough as far as can be known before the mount: asked for,
 * in the library, and privileged. The value for cache_config.passthrough; if the kernel refuses
 * later, every file falls back to normal mode. */
bool fs_can_passthrough(const struct fs *fs);

/* The callback for cache_config.invalidate, with the fs as its argument: queues a notification
 * of the kernel; never blocks. What comes before the mount or after its end is dropped. */
void fs_invalidate(void *fs, struct node *node, const char *name);

/* The writers of .runfs/status.json and .runfs/metrics: a heap text, NULL without memory.
 * Called when one is opened, from a FUSE worker: must not touch the mount. Before fs_mount();
 * without it `.runfs` has no files. */
typedef char *(*fs_text)(void *arg);
void fs_set_texts(struct fs *fs, fs_text status, fs_text metrics, void *arg);

/* Mounts and answers the kernel's first request: the mount is usable as soon as fs_run() is
 * called. Starts the frontend's threads. On failure nothing stays mounted; op->why tells. */
int fs_mount(struct fs *fs, struct cache *cache, struct op *op);

/* Answers requests until the filesystem is unmounted or fs_stop() is called. 0 or the errno
 * that ended it. SIGRTMAX has a handler that does nothing from then on. */
int fs_run(struct fs *fs);

/* Makes fs_run() return, and waits until it is about to. From any thread but the one in
 * fs_run(), the workers, and the cache's; not from a signal handler. */
void fs_stop(struct fs *fs);

/* After fs_run(): ends what is parked with EINTR, takes the mount away if it still is there
 * (requests that run then fail), and releases what the kernel had left open. The cache works on
 * and can be drained. `path` is where it is mounted by now, `dev` its device; 0: not known, and
 * whatever is mounted there goes. */
void fs_unmount(struct fs *fs, const char *path, dev_t dev);

/* After fs_unmount(), or without a mount. Accepts NULL. */
void fs_free(struct fs *fs);

/* What the frontend counts of itself. Any thread. */
struct fs_stats {
    bool passthrough;            /* new opens may still be passthrough */
    uint64_t parked;             /* requests that wait for the store now */
    uint64_t opens_passthrough;  /* since the mount */
    uint64_t opens_normal;       /* since the mount */
    uint64_t notifications;      /* told to the kernel since the mount */
    uint64_t notifications_lost; /* of those, dropped because too many waited */
};
void fs_get_stats(struct fs *fs, struct fs_stats *ret);

#endif
