/* What every room of the cache knows: the cache itself, who waits and who is woken, what
 * failed. Its locks are in locks.h. */
#ifndef RUNFS_CACHE_CORE_CORE_H
#define RUNFS_CACHE_CORE_CORE_H

#include "backends/store.h"
#include "cache/cache.h"
#include "cache/core/locks.h"
#include "cache/mirror/journal.h"
#include "cache/mirror/mirror.h"
#include "cache/types/range.h"
#include "common/lock.h"
#include "common/log_queue.h"
#include "common/pool.h"

#include <stdatomic.h>

struct waitq {
    struct waiter *head, **tail;
};

/* A reader's descriptor is O_RDONLY, so that a lease can tell whether writers live. */
enum file_fd { FD_READ, FD_WRITE };

/* A descriptor on a mirror file; fds.c owns all of it. */
struct mirror_fd {
    int fd;         /* -1: closed */
    unsigned users; /* it stays open while there are any */
    bool idle;      /* open without users, for the open handles: in fd_cache.idle */
    struct mirror_fd *prev, *next;
};

/* The descriptors on mirror files. Those of open files that nobody uses just now are a cache:
 * the one used least recently is closed when there are too many, and opened again by the next
 * who needs it. */
struct fd_cache {
    unsigned limit;         /* constant; the others are the daemon's own */
    unsigned open;          /* of all files; beyond the limit only while each is in use */
    unsigned kept;          /* of those: in use for as long as a program has the file open */
    struct mirror_fd *idle; /* least recently used first */
    uint64_t refused;       /* opens, as all were kept */
    bool full;              /* the log has told so */
};

/* Why the cache can't keep its limit, or refuses writers; the worst comes last. */
enum space_trouble {
    SPACE_FINE,
    SPACE_OVER_LIMIT, /* what is open, or waits for its name, is more than the limit */
    SPACE_STORE_GONE, /* uploads fail: writers get ENOSPC */
    SPACE_DISK_FULL,  /* the reserve is touched and nothing can go: writers get ENOSPC */
    SPACE_READ_ONLY,  /* the disk takes nothing: writers get EROFS */
    SPACE_REMOVED,    /* the cache directory is gone: writers get EIO */
};

/* What the store was seen to take, whatever the name. */
enum change { CHANGE_PUT, CHANGE_REMOVE, CHANGES };

struct refusals {
    int64_t taken_ns[CHANGES]; /* CLOCK_MONOTONIC; when the last that it took began */
    bool probing;
};

/* The last one of its kind, for the status. */
struct failure {
    int err; /* negative errno; 0: there was none */
    char *text;
};

#define WAKERS 4 /* threads that answer parked requests */

#define STAMP_LOCKS 16

/* What is kept of a node outside of the tree follows it by these, called under the lock. */
struct node_hooks {
    void (*nameless)(struct cache *c, struct node *n); /* its last name went */
    void (*end)(struct cache *c, struct node *n);      /* it is freed next */
};

struct cache {
    struct cache_config config; /* constant; strings are copies */
    struct store *store;
    struct mirror mirror;
    struct journal *journal;
    uint64_t identity_hash;  /* constant; salt of derived inode numbers */
    int64_t started_ns;      /* constant; CLOCK_REALTIME; the time of what tells none */
    bool asks_dirs;          /* constant; a directory's attributes are those of its marker */
    struct node_hooks hooks; /* constant */
    bool has_index;          /* constant; the store can keep attribute indexes */
    struct origins *origins; /* constant; locked by itself, innermost */
    struct log_queue log;    /* lines from under ns or lock; locked by itself, innermost */

    struct rwlock ns;
    struct mutex stamp_locks[STAMP_LOCKS]; /* innermost but for `lock`; at most one is held */
    struct mutex lock;

    /* Constant from the start to the stop, or with locks of their own. */
    struct node *root;
    struct ids *ids;
    struct index_tree *index_tree; /* NULL: there can be none */
    pthread_cond_t progress;       /* flush_waiters for threads that block */
    atomic_ullong listed_bytes;    /* of names in listings that are under way */
    pthread_cond_t wake;
    pthread_t wakers[WAKERS];
    unsigned n_wakers;
    struct pool *fetchers, *askers, *uploaders, *parts, *chores, *notifier;
    pthread_t scheduler;
    bool scheduler_runs;
    int64_t forgot_ns;   /* CLOCK_MONOTONIC; when names were last forgotten; the scheduler's */
    pthread_cond_t kick; /* the scheduler has something to look at before pass_ns */
    atomic_bool cancelled;     /* ends every store call */
    atomic_bool unconditional; /* the store refuses preconditions of uploads */

    GUARDED_BY(cache_mutex) struct {
        uint64_t seq;     /* last given */
        uint64_t next_id; /* names in incoming/ and orphans/ */
        uint64_t nodes;
        struct file *dirty; /* by first_seq */
        struct node *dirty_dirs;
        struct node *index_dirs; /* whose attribute index lacks something */
        /* small ones, of which that of the tree lacks something */
        struct node *index_tree_dirs;
        unsigned index_tree_news; /* files, in all of them */
        unsigned indexes_running;
        bool index_refused;     /* it may not be written */
        bool walk_refused;      /* the store's keys do not come in order after all */
        bool index_now;         /* all that is known is written without waiting for more */
        struct file *writers;   /* open for writing, or held by a mapping */
        struct file *lru;       /* least recently used first */
        struct intent *intents; /* by seq */
        /* what removals wait for beside their own; in order, apart */
        struct journal_wait *waits;
        size_t n_waits;
        struct waitq space_waiters;
        struct waitq flush_waiters; /* woken when anything reached the store */
        uint64_t used_bytes;
        uint64_t disk_free_bytes; /* as last seen, less what was written since */
        enum space_trouble space;
        uint64_t mirror_files;
        struct fd_cache fds;
        uint64_t open_handles;
        unsigned uploads_running, uploads_running_dirs, deletes_running, copies_running;
        unsigned renames;      /* intentions that copy */
        uint32_t dir_ids;      /* the last one given */
        uint64_t dir_moves;    /* how many directories changed their place at the store */
        int64_t late_until_ns; /* CLOCK_MONOTONIC; until then a put of a daemon that was killed
                                  may still arrive; 0: none was under way */
        /* names that its deletes and copies concerned; constant after recovery */
        struct late *late;
        struct late_dir *late_dirs;
        struct late_change *late_changes; /* removals and copies that may still arrive */
        struct late_put *late_puts;       /* uploads that may still arrive */
        uint64_t late_seq;                /* the last of those intentions */
        bool out_of_quota;                /* the store refused for space: deletes go first */
        /* CLOCK_MONOTONIC; since when every upload fails; 0 they don't */
        int64_t unreachable_ns;
        struct refusals refusals;
        unsigned drain; /* flushes under way that want everything, staged files too */
        bool stopping;
        struct node **uploading; /* nodes whose upload runs */
        size_t n_uploading;
        struct dir_job *dir_jobs; /* directories whose upload runs */
        struct session *sessions; /* uploads in parts that were broken off */
        unsigned sessions_ending;
        uint64_t kept_files;
        uint64_t unstamped_files; /* of those, that recovery found now; constant after it */
        uint64_t hidden_names;    /* of all directories */
        uint64_t uploaded_files, uploaded_bytes, downloaded_bytes;
        enum checksum_kind sum_kind; /* what the store last told; ours until then */
        struct failure write_failure, read_failure;
        struct pin *pins;
        struct ghost *ghosts;
        struct moved_ino *moved_inos; /* default numbers that went with what was renamed */
        unsigned moved_seen; /* how many of them something had when they were purged last */
        struct absences *absences; /* names that the store does not have */
        struct asking *askings;    /* questions for attributes that are under way */
        /* nodes that lost their last name while the kernel held them */
        struct detached *detached;
        struct node **orphans; /* nameless nodes with a mirror file that reads from the store */
        size_t n_orphans, cap_orphans;
        struct waiter *wake_list, **wake_tail; /* taken off their queues, to be woken */
        int64_t pass_ns; /* CLOCK_MONOTONIC; when the scheduler looks next, at the latest */
    };
};

/* ---- failure.c ---- */
void failure_note_locked(struct cache *c, struct failure *f, int err, const char *why)
    REQUIRES(cache_mutex);
/* Logs that a question or a download failed, and keeps it for the status. A call that was ended
 * by a cancel is no failure. */
void read_failed(struct cache *c, const char *what, int err, const char *why);
/* How long to wait after the n-th failure in a row, with jitter, in ns. */
int64_t retry_delay_ns(const struct cache *c, unsigned attempts);

/* ---- wait.c ---- */
int wait_start(struct cache *c);
void wait_stop(struct cache *c);
void waitq_init(struct waitq *q);
/* Parks; always returns CACHE_PARKED, or -EINTR when the cache is stopping. */
int waitq_park_locked(struct cache *c, struct waitq *q, struct waiter *w) REQUIRES(cache_mutex);
void waitq_wake_locked(struct cache *c, struct waitq *q, int err) REQUIRES(cache_mutex);
/* Only those who wait for bytes that are all present, or for anything. */
void waitq_wake_arrived_locked(struct cache *c, struct waitq *q, const struct ranges *present)
    REQUIRES(cache_mutex);
/* The scheduler looks at once. */
void scheduler_kick_locked(struct cache *c) REQUIRES(cache_mutex);
/* The same when something is due at `due_ns`, or a few milliseconds later, together with what
 * else is due by then. */
void scheduler_kick_at_locked(struct cache *c, int64_t due_ns) REQUIRES(cache_mutex);
/* Begins a request to the store. It ends in time, or with the mount. */
void cache_op(struct cache *c, struct op *op);
/* The same in another time than that of the store. */
void cache_op_within(struct cache *c, struct op *op, int64_t timeout_ns);
/* A state change that the file's waiters, flushers and the scheduler want to know. */
void progress_locked(struct cache *c) REQUIRES(cache_mutex);
/* The same without the scheduler. */
void progress_tell_locked(struct cache *c) REQUIRES(cache_mutex);

#endif
