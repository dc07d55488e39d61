/* The cache: everything that fuse/ and cli/ may ask of it.
 *
 * Above this line everything is a file (offset, rename, half-written), below it everything is
 * an object (key, etag, whole replacement); only cache/ knows both. docs/format.md has the
 * states.
 *
 * No function here waits for the store. One that needs the store queues the caller's waiter and
 * returns CACHE_PARKED; the waiter is woken exactly once, from a thread of the cache that holds
 * no lock. Woken with 0 the caller makes the same call again (which may park again), with an
 * errno it answers that, with CACHE_DONE it answers success (fsync and its like only). Calls
 * that can't need the store take no waiter. All functions may be called from any thread,
 * holding no lock. They return 0 (or a count), a negative errno, or CACHE_PARKED. */
#ifndef RUNFS_CACHE_CACHE_H
#define RUNFS_CACHE_CACHE_H

#include "common/op.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>

struct cache;
struct node;   /* a name in the tree and what stands behind it */
struct handle; /* an open file */
struct dirhandle;
struct store;
struct routes;
struct policy;

/* No count gets this large: the kernel's requests end at 0x7ffff000 bytes. */
#define CACHE_PARKED INT_MAX
#define CACHE_DONE   (INT_MAX - 1)

/* The cache's: the close up to which a caller waits for removals, and how often it has begun to
 * wait for later ones, too. */
struct rounds {
    uint64_t until;
    int64_t next_ns; /* CLOCK_MONOTONIC; not again before that */
    unsigned n;
};

/* A request that waits for the store. Embedded in the requester's struct. */
struct waiter {
    /* Called once after CACHE_PARKED: 0 to make the call again, a negative errno to answer, or
     * CACHE_DONE: the call has succeeded, answer 0. */
    void (*wake)(struct waiter *w, int err);
    struct waiter *next; /* the cache's, while parked */
    void *queue;         /* the cache's, while parked */
    int err;             /* the cache's, between taking it off the queue and waking it */
    uint64_t off, end;   /* the cache's: the bytes that it waits for; end 0: for anything */
    uint64_t generation; /* the cache's: the content that the store is to have; 0: first try */
    uint64_t seq;        /* the cache's: the last close and intention that it waits for */
    struct rounds rounds;
    int64_t
        since_ns;    /* the cache's: CLOCK_MONOTONIC; when it first asked for them; 0 not yet */
    pid_t pid;       /* of the thread that asks, in our pid namespace; 0: not known */
    bool needs_room; /* the cache's: it has found none on the disk */
};

/* Takes a parked waiter back: true when it will not be woken any more, false when it was or is
 * being woken. */
bool cache_cancel(struct cache *c, struct waiter *w);

enum durability { DURABILITY_CACHE, DURABILITY_STORE };

/* One of the stores that the routes lead to, as messages and attributes name it. The inode
 * numbers of what it has follow from these and the keys. */
struct cache_store {
    const char *name;
    const char *url;      /* without secrets */
    const char *endpoint; /* NULL: the URL alone says where it is */
};

struct cache_config {
    const char *dir;      /* the cache directory; made 0700 when missing */
    const char *identity; /* store URL, endpoint, routes: refused when it changed while dirty */
    const char *mountpoint; /* for messages */
    uint64_t size_bytes;    /* limit of the cache in blocks used; 0: 80 % of what is free */
    uint64_t reserve_bytes; /* kept free on the disk; 0: 5 % of the disk, at most 10 GiB */
    enum durability durability;
    bool read_only;
    bool show_incomplete; /* also units that other mounts have not finished are shown */
    bool acl;             /* ACLs are shown, set and inherited; the kernel looks at them */
    bool shared; /* other users than the one who mounted come in: a mode or an owner that an
                    attribute index told lets nobody in before the object itself does */
    bool passthrough;           /* the frontend can open passthrough */
    int64_t attr_timeout_ns;    /* how long a known version is believed without asking */
    int64_t list_timeout_ns;    /* how long a listing is believed */
    int64_t upload_interval_ns; /* open logs that changed are uploaded this often; 0 never */
    int64_t settle_ns;          /* how long a closed file rests before its upload starts */
    int64_t late_ns; /* how long after a crash a request of the daemon that was killed may still
                        take effect at the store */
    int64_t retry_ns; /* how long the first pause is after a failed upload, removal or rename;
                         the next ones double, up to a minute */
    int64_t grace_ns; /* how long uploads that would make room must have been failing before
                         writers get ENOSPC */
    int64_t store_timeout_ns; /* deadline of one request to the store, with its retries */
    int64_t ask_timeout_ns;   /* deadline of a question about names and attributes, for which
                                 a caller waits; of a listing: until its next name */
    int64_t
        index_settle_ns; /* how long a directory rests before its attribute index is written */
    int64_t index_kept_ns; /* how long a part of the attribute index of the tree stays in memory
                              after its last use */
    uint64_t gather_bytes; /* bytes of a download in one write to the disk; 0: as suits the
                              machine */
    unsigned upload_jobs, download_jobs;
    unsigned mirror_fds; /* descriptors on mirror files; 0: as many as RLIMIT_NOFILE leaves */
    uint64_t part_size;  /* 0: what the store likes */
    uint64_t list_memory_bytes;
    const char *const *staging; /* NULL-terminated fnmatch patterns of components not published
                                   before they are renamed; NULL takes the defaults */
    const char *const *logs;    /* patterns of files that are uploaded every upload_interval_ns
                                   while they stay open; NULL takes the defaults */
    /* NULL: one store takes every path. Else the keys of the store are paths of the mount, and
     * `stores` has those that the routes number. All of it is borrowed until cache_free(). */
    const struct routes *routes;
    const struct policy *policies; /* that the routes number */
    size_t n_policies;
    const struct cache_store *stores;
    size_t n_stores;
    uint32_t uid, gid;            /* owner of objects that say none */
    uint32_t file_mode, dir_mode; /* permission bits of those */

    /* A thread of the cache's own calls it, never under a lock: what the kernel caches is no
     * longer true. `name` NULL: the node's attributes and pages; else this entry below it. */
    void (*invalidate)(void *arg, struct node *node, const char *name);
    void *invalidate_arg;
};

/* Fills the defaults of every number. */
void cache_config_init(struct cache_config *config);

/* Opens the cache directory (locked to this process), recovers what an earlier mount left, and
 * starts the workers. `store` is borrowed until cache_free(). op->why tells what is wrong:
 * -EBUSY in use, -EOPNOTSUPP a filesystem without xattrs, -EEXIST another identity while dirty.
 */
int cache_new(const struct cache_config *config, struct store *store, struct op *op,
              struct cache **ret);
/* Stops the workers, abandons what waits (it stays on disk) and closes. No handle may be open.
 * Accepts NULL. */
void cache_free(struct cache *c);
/* The clean end, before cache_free(): stops as cache_stop(), syncs what the store lacks to the
 * disk and notes that, so that a reboot takes nothing from it. Blocks for the disk; what
 * somebody still writes past the cache is not counted in. The frontend is gone by then. */
int cache_end(struct cache *c, struct op *op);
/* Wakes every waiter with -EINTR and answers no new call with CACHE_PARKED: before
 * cache_free(). */
void cache_stop(struct cache *c);

/* ---- names ---- */

/* The root; needs no lookup and no forget. */
struct node *cache_root(struct cache *c);
/* On success the node's lookup count is one higher; cache_forget() gives it back. -ENOENT. */
int cache_lookup(struct cache *c, struct node *parent, const char *name, struct waiter *w,
                 struct node **ret, struct stat *st);
/* Gives `nlookup` lookups of the node back, after which it may be freed. */
void cache_forget(struct cache *c, struct node *node, uint64_t nlookup);
/* The number of a node that the frontend holds a lookup of: no other one has, or had it, and
 * it says nothing of where the node is. Its lower 32 bits are not below 16. */
uint64_t cache_node_id(struct cache *c, const struct node *node);
/* The node of such a number; NULL: there is none. */
struct node *cache_node(struct cache *c, uint64_t id);
/* The path below the root, "" for it; heap. For messages. NULL without memory. */
char *cache_path(struct cache *c, struct node *node);
/* Finds a path below the root as lookups would, without parking; blocks until op's deadline. */
int cache_walk(struct cache *c, const char *path, struct op *op, struct node **ret);

/* New entries. The lookup count of what is returned is one higher. -EEXIST, -ENOTDIR, ...
 * Where no route leads -EPERM; -EINVAL, -EILSEQ: a name that the route can't store.
 * mode carries the type; the umask counts where the parent has no default ACL. */
struct cache_cred {
    uint32_t uid, gid;
    uint32_t umask;
};
int cache_mknod(struct cache *c, struct node *parent, const char *name, uint32_t mode,
                uint64_t rdev, const struct cache_cred *cred, struct waiter *w,
                struct node **ret, struct stat *st);
int cache_mkdir(struct cache *c, struct node *parent, const char *name, uint32_t mode,
                const struct cache_cred *cred, struct waiter *w, struct node **ret,
                struct stat *st);
int cache_symlink(struct cache *c, struct node *parent, const char *name, const char *target,
                  const struct cache_cred *cred, struct waiter *w, struct node **ret,
                  struct stat *st);
/* Gives the file another name, or a nameless one (cache_tmpfile()) its first. */
int cache_link(struct cache *c, struct node *node, struct node *parent, const char *name,
               struct waiter *w, struct node **ret, struct stat *st);
/* Takes a file's name away; open handles keep the file. -EISDIR, -ENOENT, ... */
int cache_unlink(struct cache *c, struct node *parent, const char *name, struct waiter *w);
/* Removes a directory that the store and the cache know as empty. -ENOTEMPTY, -ENOTDIR, ... */
int cache_rmdir(struct cache *c, struct node *parent, const char *name, struct waiter *w);
/* flags: 0, RENAME_NOREPLACE or RENAME_EXCHANGE. -EXDEV: to another store, or a directory to
 * where other routes lead on below it. */
int cache_rename(struct cache *c, struct node *parent, const char *name, struct node *newparent,
                 const char *newname, unsigned flags, struct waiter *w);

/* ---- attributes ---- */

/* Fills *st with the node's attributes, asking the store when they are not known. */
int cache_getattr(struct cache *c, struct node *node, struct waiter *w, struct stat *st);
enum cache_set {
    CACHE_SET_MODE = 1 << 0,
    CACHE_SET_UID = 1 << 1,
    CACHE_SET_GID = 1 << 2,
    CACHE_SET_SIZE = 1 << 3,
    CACHE_SET_ATIME = 1 << 4,
    CACHE_SET_MTIME = 1 << 5,
};
/* `h` is the open file of an ftruncate, or NULL. `st` gives the values and gets the result;
 * times that mean "now" are filled in by the caller. */
int cache_setattr(struct cache *c, struct node *node, struct handle *h, unsigned set,
                  struct waiter *w, struct stat *st);
/* The target, heap. */
int cache_readlink(struct cache *c, struct node *node, struct waiter *w, char **ret);
/* As the system calls: with size 0 the needed size; -ERANGE, -ENODATA. The attributes
 * user.runfs.state, .durability, .owed, .url, .version, .locks, .unit and .unit.state answer
 * for every file and can't be set (-EPERM); with routes .store, .route and .policy do, too,
 * where a store has the path. */
ssize_t cache_getxattr(struct cache *c, struct node *node, const char *name, void *value,
                       size_t size, struct waiter *w);
/* The names of the attributes, each with its NUL, as cache_getxattr() returns a value. */
ssize_t cache_listxattr(struct cache *c, struct node *node, char *list, size_t size,
                        struct waiter *w);
/* Among the flags of setxattr(2): an access ACL takes S_ISGID off the mode. */
#define CACHE_XATTR_KILL_SGID 0x100
/* An access ACL sets the mode, and is kept as the mode when that says it all. -EINVAL for what
 * is no ACL, -EACCES for the default ACL of a file. */
int cache_setxattr(struct cache *c, struct node *node, const char *name, const void *value,
                   size_t size, int flags, struct waiter *w);
/* Removes an attribute. -ENODATA when there is none. */
int cache_removexattr(struct cache *c, struct node *node, const char *name, struct waiter *w);
/* Fills *ret for statvfs(2). */
void cache_statfs(struct cache *c, struct statvfs *ret);

/* ---- open files ---- */

/* Among the flags that the kernel passes on: the file is opened to be executed. */
#define CACHE_OPEN_EXEC 0x20

/* flags as open(2). Opening parks for the version check and for O_TRUNC's peers, never for
 * content. The caller has checked permissions (default_permissions). O_TRUNC truncates. */
int cache_open(struct cache *c, struct node *node, int flags, struct waiter *w,
               struct handle **ret);
/* Creates and opens; the name must not exist unless O_EXCL is missing, then it opens it. */
int cache_create(struct cache *c, struct node *parent, const char *name, uint32_t mode,
                 int flags, const struct cache_cred *cred, struct waiter *w,
                 struct node **ret_node, struct stat *st, struct handle **ret);
/* An unnamed file (O_TMPFILE), linked later by cache_link() or gone at its last close. */
int cache_tmpfile(struct cache *c, struct node *parent, uint32_t mode, int flags,
                  const struct cache_cred *cred, struct waiter *w, struct node **ret_node,
                  struct stat *st, struct handle **ret);
/* The open file's node, which lives at least as long as the handle. */
struct node *handle_node(struct handle *h);
/* A descriptor on the mirror file: for positional reads and lseek(SEEK_DATA/HOLE) after
 * cache_prepare_read(). */
struct handle_fd {
    int fd;
    bool writable;     /* the cache's */
    struct node *node; /* the cache's */
};
/* 0 or a negative errno. The same thread gives it back soon: many handles share few
 * descriptors. */
int handle_fd_get(struct cache *c, struct handle *h, struct handle_fd *ret);
/* handle_fd_get() for the backing file of a passthrough open. The kernel opens it anew for each
 * handle, and keeps this one until the last of them is closed: it is open for reading only, or
 * the file would have a writer for as long as a program reads. */
int handle_backing_fd_get(struct cache *c, struct handle *h, struct handle_fd *ret);
/* Gives the descriptor back. The handle may be gone by now. */
void handle_fd_put(struct cache *c, struct handle_fd *fd);
/* Whether this open must be passthrough (complete file, and no cached open of the inode lives).
 * All opens of a node that live at the same time get one answer. */
bool handle_passthrough(struct handle *h);
/* The frontend could not open passthrough after all (the kernel refused): the node is in normal
 * mode until its last close. -EBUSY when another passthrough handle of the node lives. */
int cache_no_passthrough(struct cache *c, struct handle *h);
/* A slot of the frontend's own for the node's backing id; 0 at first; guarded by the frontend.
 */
int *handle_backing_slot(struct handle *h);
/* Whether pages the kernel kept of this node are still right. */
bool handle_keep_cache(struct cache *c, struct handle *h);

/* Whether the frontend should pass reads on as the program makes them: the kernel's read-ahead
 * of a large file that is not complete here is fetched from the store, needed or not. */
bool handle_reads_direct(struct cache *c, struct handle *h);

/* 0 when bytes [off, off+len) can be read from the mirror file (beyond the end counts as
 * present). -ESTALE when the version this handle reads is gone from the store. */
int cache_prepare_read(struct cache *c, struct handle *h, uint64_t off, size_t len,
                       struct waiter *w);
/* Says that the next write is of a page that a program has, or had, mapped. */
void cache_note_mapped(struct cache *c, struct handle *h);
/* Normal-mode write; returns len. Parks while the file is being completed or the cache is full.
 * `append`: at the file's end; `off` is where the kernel takes that to be, which after another
 * node's change it may not know yet. */
ssize_t cache_write(struct cache *c, struct handle *h, const void *buf, size_t len,
                    uint64_t off, bool append, struct waiter *w);
/* Says that a write that parked was answered with `err` instead of waiting: it counts as if the
 * cache had had no room for it. */
void cache_write_refused(struct cache *c, struct handle *h, uint64_t off, int err);
/* Allocates as cache_write() writes: parks, or fails, where the bytes would find no room. */
int cache_fallocate(struct cache *c, struct handle *h, int mode, uint64_t off, uint64_t len,
                    struct waiter *w);
/* Copies as copy_file_range(2); returns how many bytes. Parks as a read of `in` and a write of
 * `out` do. */
ssize_t cache_copy_file_range(struct cache *c, struct handle *in, uint64_t off_in,
                              struct handle *out, uint64_t off_out, size_t len,
                              struct waiter *w);
/* As lseek(2) with SEEK_DATA or SEEK_HOLE, once the file is complete here; *ret is the offset.
 * -ENXIO. */
int cache_lseek(struct cache *c, struct handle *h, uint64_t off, int whence, struct waiter *w,
                uint64_t *ret);
/* At each close(): reports a failed upload once; with durability=store parks until it is there.
 */
int cache_flush(struct cache *c, struct handle *h, struct waiter *w);
/* cache_flush() for a close() by a process that has the file by fork() only: it says nothing of
 * whether the content that was made anew is whole. */
int cache_flush_inherited(struct cache *c, struct handle *h, struct waiter *w);
/* Syncs content and journal to the disk, also for a handle that only reads; with
 * durability=store parks until the store has the content. A worker waits for the disk, so this
 * parks nearly always. */
int cache_fsync(struct cache *c, struct handle *h, bool datasync, struct waiter *w);
/* cache_fsync() of a directory: its names, and what was renamed or removed in it. */
int cache_fsyncdir(struct cache *c, struct node *dir, struct waiter *w);
/* Frees the handle, after the last close() of it. */
void cache_release(struct cache *c, struct handle *h);
/* Called before cache_release() of a file that nobody has closed when the mount ends. */
void cache_abandon(struct cache *c, struct handle *h);

/* ---- directories ---- */

/* Opens a directory; cache_releasedir() frees *ret. */
int cache_opendir(struct cache *c, struct node *dir, struct waiter *w, struct dirhandle **ret);
/* Visits entries from cookie `off` (0 the first) until the visit returns non-zero (buffer full;
 * that entry comes again). `next` is the cookie behind the entry. "." and ".." are included.
 * The visit runs under the cache's lock: it only copies. With `plus`, `node` is not NULL for
 * what can be answered without the store, its lookup count is one higher when the visit
 * returned 0, and *st is complete; without, only st_ino and the type bits of st_mode are set.
 */
typedef int (*cache_visit)(void *arg, const char *name, struct node *node,
                           const struct stat *st, uint64_t next);
int cache_readdir(struct cache *c, struct dirhandle *d, uint64_t off, bool plus,
                  struct waiter *w, cache_visit visit, void *arg);
/* Frees what cache_opendir() returned. */
void cache_releasedir(struct cache *c, struct dirhandle *d);

/* ---- control ---- */

struct cache_stats {
    uint64_t size_bytes, used_bytes; /* limit and use of the cache, in blocks */
    uint64_t disk_free_bytes;
    uint64_t dirty_files, dirty_bytes; /* not in the store yet, uploads running included */
    uint64_t uploading_files;
    uint64_t failed_files; /* dirty, and the last attempt failed */
    uint64_t staged_files; /* dirty files that wait for a rename */
    uint64_t pending_ops;  /* intentions other than uploads */
    int64_t oldest_ns; /* CLOCK_REALTIME: of the dirty files, the last change of the one that
                          was left alone for longest; 0 none */
    uint64_t uploaded_files, uploaded_bytes; /* since the mount */
    uint64_t downloaded_bytes;
    uint64_t open_handles;
    uint64_t nodes, mirror_files, pinned_files;
    uint64_t hidden_names;    /* store names that no path can show */
    uint64_t kept_files;      /* content that was not published on purpose (conflict, reboot) */
    uint64_t unstamped_files; /* of those: found at this mount with content and no stamp */
    bool copied;              /* this mount found that the cache directory is a copy */
    uint64_t fds_open, fds_limit; /* descriptors on mirror files */
    uint64_t fds_refused;         /* opens that got ENFILE as they were all taken */
    uint64_t waiting_writers;     /* requests that wait for room in the cache */
    const char *space_trouble;    /* why the limit is exceeded or writers are refused, or NULL;
                                     constant text */
    int last_error; /* negative errno of the last change that the store did not take, 0 none */
    char last_error_text[320];
    int last_read_error; /* of the last failed download or question about names */
    char last_read_error_text[320];
};
/* Fills *ret with the numbers of now. */
void cache_get_stats(struct cache *c, struct cache_stats *ret);

/* Where the routes lead a path, as user.runfs.store, .route and .policy tell it: texts of the
 * configuration, each NULL that the path has not. */
struct cache_routed {
    const char *store;  /* its name; NULL of scratch, too */
    const char *route;  /* its path; NULL: no routes, or a directory on the way */
    const char *policy; /* its name */
};

/* One thing the cache owes the store, or keeps. Strings are valid during the visit. */
struct cache_pending {
    const char *kind; /* "write", "unlink", "rename", "mkdir", "rmdir", "setattr", "symlink",
                         "kept" */
    const char *path;
    const char *path2;          /* the new name of a rename, else NULL */
    const char *state;          /* "dirty", "open" (half, by a writer), "staged", "uploading",
                                   "failed", "waiting", "locked" (by a deletion lock) */
    const char *error;          /* why the last attempt failed, else NULL */
    struct cache_routed routed; /* of the new name of a rename; nothing of what is kept, whose
                                   path may be another one than it had */
    uint64_t bytes, bytes_done;
    bool waits;       /* for its rename: CACHE_FLUSH_STAGED sends it, or the end of the mount */
    bool short_write; /* the cache lacks some of it: no attempt helps before it is written again
                       */
};
/* Visits all that the cache owes or keeps, and ends with the first visit that is not 0. A visit
 * holds up all other users of the cache: it copies what it needs, and writes neither files nor
 * log lines. Returns 0, or a negative errno: the visit's, or why kept files could not be
 * visited. */
int cache_each_pending(struct cache *c, int (*visit)(void *arg, const struct cache_pending *),
                       void *arg);

/* Visits the files at or below `path` that may be mapped for writing, and of whose pages the
 * kernel may hold some back, without those that it writes past us. `mapped`: it has written
 * some of them (cache_note_mapped()). Valid during the visit. */
void cache_each_mapped(struct cache *c, const char *path,
                       void (*visit)(void *arg, const char *path, bool mapped), void *arg);

/* A directory that is published as a whole, and that the store has not whole yet. */
struct cache_unit {
    const char *path;
    const char *state; /* "open", "cut": as an earlier mount left it, "settled", "failed" */
    bool declared;     /* a program said that it is complete */
    uint64_t lacks;    /* files that the store is to have and has not */
    int64_t idle_ns;   /* since its last change */
    const char *why;   /* what it waits for, for people */
};
/* Visits the units at or below `path`. A visit holds up all other users of the cache, as that
 * of cache_each_pending(). */
void cache_each_unit(struct cache *c, const char *path,
                     void (*visit)(void *arg, const struct cache_unit *u), void *arg);
/* Says that the directory at `path` is complete, which is published as a whole: nothing of it
 * is kept back for more to come, though a program writes in it. Nothing is waited for. -ENOENT,
 * -ENOTDIR; -EINVAL with op->why: no policy publishes the directory as a whole. */
int cache_commit(struct cache *c, const char *path, struct op *op);
/* Ends what other mounts left of the unit at `path`, which is hidden: it is shown as it is, or
 * (`drops`) removed from the store. Blocks until the leases of all who have notes there have
 * ended for this mount, which takes a minute or more; op's deadline is no matter. op->why tells
 * of all failures: -EAGAIN: one of them lives; -ENOENT: nobody left anything; -EBUSY: this
 * mount writes in it, or it is half removed, and is not to be shown; -EINVAL: no policy
 * publishes the directory as a whole; -EOPNOTSUPP: its store keeps no notes. */
int cache_clean_unit(struct cache *c, const char *path, bool drops, struct op *op);

enum cache_flush_flags {
    CACHE_FLUSH_STAGED = 1 << 0, /* also what waits for its rename */
    CACHE_FLUSH_HALF = 1 << 1,   /* also files made anew, and not closed or synced yet */
    CACHE_FLUSH_AWAIT = 1 << 2,  /* hurries nothing: for cache_await() */
};
/* Blocks until everything below `path` ("" the whole mount) that changed before the call is in
 * the store, or op's deadline. -ETXTBSY: the store has all but half-written files, of which
 * op->why names one. -EBUSY: all but removals that wait for files that come and go again and
 * again. Progress is reported about five times a second when `progress` is set. The first
 * failure since the call is returned with op->why, of an upload, a removal or a rename; what
 * failed stays owed. One that may pass is waited for until the deadline; after one that may not
 * the call goes on while something else comes to the store. */
int cache_flush_path(struct cache *c, const char *path, unsigned flags, struct op *op,
                     void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes),
                     void *arg);
/* For a caller who may only read: blocks until the store has what `node`, and all below it, was
 * at the call, or op is cancelled, and asks for no upload before its time. -EBUSY with op->why:
 * no waiting helps, as something is open for writing (a log is not: it goes up on its
 * interval), or waits for its rename. -ESTALE: some content was kept aside, -ENOENT: `node` has
 * no name any more. `node` is not forgotten meanwhile. */
int cache_await(struct cache *c, struct node *node, struct op *op);
/* Blocks until the attribute indexes have what is known here, or op's deadline, or it can't be
 * done: nothing depends on it. */
void cache_write_indexes(struct cache *c, struct op *op);
/* Blocks until all content below `path` is in the mirror. */
int cache_fetch_path(struct cache *c, const char *path, struct op *op,
                     void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes),
                     void *arg);
/* Keeps what is below `path` from eviction, now and after a remount; pinning fetches nothing.
 */
int cache_pin(struct cache *c, const char *path, bool pinned);
/* Lets all clean content at and below `path` go, and tells of each file that stays. What is not
 * here is no error. */
enum cache_stay {
    CACHE_STAYS_DIRTY, /* the store lacks something of it */
    CACHE_STAYS_PINNED,
    CACHE_STAYS_USED,  /* it is open, has several names, or a deletion lock covers it */
    CACHE_STAYS_LOCAL, /* it is scratch, in no store */
    CACHE_STAYS_N,
    CACHE_EVICTED = CACHE_STAYS_N,
};
struct cache_evicted {
    uint64_t files, bytes;        /* that went */
    uint64_t stay[CACHE_STAYS_N]; /* files */
};
typedef void (*cache_stays)(void *arg, const char *path, enum cache_stay why);
int cache_evict_path(struct cache *c, const char *path, struct op *op, cache_stays stays,
                     void *arg, struct cache_evicted *ret);
/* A deletion lock of `path` and all below it (docs/locks.md), which lives until it is given
 * back or the mount ends. `refuse`: removals there are refused to all but the process `pid` and
 * what that started; else they are hidden, and the store keeps what is removed. Waits until
 * op's deadline for a lock that is in the way and for the store to remove what is gone here.
 * -EBUSY with op->why that names it, -ENOENT: nothing is there. */
int cache_deletion_lock(struct cache *c, const char *path, bool refuse, pid_t pid,
                        const char *command, struct op *op, uint64_t *ret);
/* Gives it back: what it held goes. A number that no lock has is ignored. */
void cache_deletion_unlock(struct cache *c, uint64_t id);
/* All of them end: nobody can use the mount any more. */
void cache_deletion_unlock_all(struct cache *c);
/* Strings are valid during the visit. */
struct cache_deletion_lock {
    uint64_t id;
    const char *path;
    bool refuse;
    bool is_file; /* NAME.del_lock_PID, which stands for it; else a command has it */
    pid_t pid;
    const char *command;
    int64_t since_ns; /* CLOCK_REALTIME */
    uint64_t held;    /* removals that the store waits for because of it */
};
/* Visits the locks of the path, of what is above it and below it, until a visit is not 0, which
 * is returned. A visit holds up all other users of the cache: it only copies. */
int cache_each_deletion_lock(struct cache *c, const char *path,
                             int (*visit)(void *arg, const struct cache_deletion_lock *l),
                             void *arg);
/* What the view of the lock shows at `rel`, "" for the path that is locked itself: its lookup
 * count is one higher. Nothing may be changed by it. -ENOENT: there is no such lock or name. */
int cache_locked_node(struct cache *c, uint64_t id, const char *rel, struct waiter *w,
                      struct node **ret);
/* Visits the names in a directory of the view, some of them more than once, until a visit is
 * not 0: it only copies. Of the mode the type counts. When this parks it begins anew. */
typedef int (*cache_locked_visit)(void *arg, const char *name, uint32_t mode);
int cache_locked_list(struct cache *c, uint64_t id, const char *rel, struct waiter *w,
                      cache_locked_visit visit, void *arg);
/* 0 when the store has what stands at `path`, under just that name; else -EBUSY, -ENODATA of a
 * file of which the cache lacks a part (cache_pending.short_write), or -EISDIR of a directory
 * that is no key of a store, with op->why. Of a directory only itself counts, not
 * what is in it; one that other routes may make exist is asked for, and the store's errors are
 * returned then. */
int cache_stored_path(struct cache *c, const char *path, struct op *op);

enum cache_verdict {
    CACHE_VERIFIED,
    CACHE_DIFFERS,      /* the store has something else */
    CACHE_MISSING,      /* or nothing */
    CACHE_NOT_COMPARED, /* it is there, and nothing says whether its content is right */
    CACHE_UNREADABLE,   /* the store refuses to tell, or to read it */
    CACHE_NOT_STORED,   /* the store does not have it yet */
    CACHE_CHANGES,      /* it was changed or removed here each time it was looked at */
    CACHE_VERDICTS
};

/* A file of which the store was asked. Strings are valid during the visit. */
struct cache_verified {
    const char *path;
    enum cache_verdict verdict;
    const char *expected, *found; /* in words; "" where nothing is to be said */
    const char *why;
    int err;        /* of CACHE_UNREADABLE */
    bool local;     /* the cache has all of the content */
    bool read_back; /* the object was read for it */
    uint64_t bytes; /* its size */
};

struct cache_verify_total {
    uint64_t files[CACHE_VERDICTS];
    uint64_t bytes;     /* of the verified ones */
    uint64_t read_back; /* of those, how many files were read for it */
    bool may_lead;      /* the path itself is a symlink, or what it is is not known */
};

enum cache_verify_flags {
    CACHE_VERIFY_FLUSHED = 1 << 0, /* only what this mount put or owes, and what is whole in the
                                      cache */
};

/* Another than 0 ends it, and is returned. Called by the calling thread. */
typedef int (*cache_verify_visit)(void *arg, const struct cache_verified *v);
/* Compares each file at and below `path` with what the store has under its key now: that it is
 * there, its size and its checksum. The store's own checksum counts; an object of which it
 * keeps none, or of which nothing is known here, is read past the cache. Visits all that are
 * not verified. Changes nothing, but user.runfs.durability tells of it. Blocks until op's
 * deadline. 0, or a negative errno: it could not go on, and `ret` says how far it came.
 * `progress` is of bytes, and may be NULL. */
int cache_verify_path(struct cache *c, const char *path, unsigned flags, struct op *op,
                      cache_verify_visit visit,
                      void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes),
                      void *arg, struct cache_verify_total *ret);

#endif
