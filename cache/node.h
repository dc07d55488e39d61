/* The inside of the cache: names, inodes, open files, intentions. */
#ifndef RUNFS_CACHE_NODE_H
#define RUNFS_CACHE_NODE_H

#include "backends/store.h"
#include "cache/cache.h"
#include "cache/children.h"
#include "cache/etag.h"
#include "cache/journal.h"
#include "cache/locks.h"
#include "cache/mirror.h"
#include "cache/range.h"
#include "cache/stamp.h"
#include "cache/sums.h"
#include "common/log_queue.h"
#include "common/pool.h"
#include "common/table.h"

/* What a known name of some 16 bytes takes in memory, with its share of the directory. */
#define NODE_BYTES 352

struct waitq {
    struct waiter *head, **tail;
};

/* A name: the link between a directory and a node. */
struct entry {
    struct node *parent;
    struct node *node;
    struct entry *next_link; /* the node's other names */
    GUARDED_BY(cache_mutex) struct {
        char *src_key;       /* where the store has it until a rename ran; NULL: at its path */
        int64_t verified_ns; /* CLOCK_MONOTONIC; when the store last confirmed it; 0 never */
        /* CLOCK_MONOTONIC; last change from here: older listings don't count */
        int64_t changed_ns;
        union {
            int64_t modified_ns; /* of the version whose attributes are known, by the server's
                                    clock; 0: it was copied here, and not listed since */
            struct {
                uint32_t from_s, to_s; /* when the server can have taken it */
            } put;                     /* if it is unseen */
        };
        uint64_t stored_generation; /* of the file; what the store has under this name */
    };
    uint32_t hash; /* of the name; constant */
    GUARDED_BY(cache_mutex) struct {
        bool settled : 1; /* its attributes were told when the second of its change was over */
        bool was_put : 1; /* from here */
        bool unseen : 1;  /* and no listing has shown it since */
        bool dirty : 1;   /* content or attributes under this name must go to the store */
        bool may_exist : 1; /* the store has, or may have, an object at this very path */
        bool tried : 1;     /* an upload to this path failed: ours may be there nevertheless */
        bool failed : 1;    /* it failed, or came too early: the node's other names go first */
        bool refused : 1;   /* the store takes other names, and not this one */
        struct etag etag;   /* the store's version under this name */
    };
    char name[];
};

/* A key that the store has, or may have, although the name is gone here. */
struct ghost {
    UT_hash_handle hh; /* in cache.ghosts, by key */
    /* CLOCK_MONOTONIC; when the store lost it: younger listings are right */
    int64_t done_ns GUARDED_BY(cache_mutex);
    /* intentions that will remove it, or move it away */
    unsigned pending GUARDED_BY(cache_mutex);
    bool with_tree GUARDED_BY(cache_mutex); /* the last one moved all below it away, too */
    char key[];
};

/* What this mount knows of a directory's attribute index, and owes it. */
struct dir_index {
    GUARDED_BY(cache_mutex) struct {
        bool queued;               /* in cache.index_dirs, or in cache.index_tree_dirs */
        bool in_tree;              /* in the latter */
        bool running;              /* it is just being written */
        bool known;                /* the store has one */
        unsigned news;             /* files whose attributes it may lack */
        unsigned failures;         /* in a row */
        int64_t first_ns, last_ns; /* CLOCK_MONOTONIC; of the news */
        int64_t not_before_ns;     /* CLOCK_MONOTONIC; after a failure */
        int64_t absent_ns;         /* CLOCK_MONOTONIC; when the store had none; 0 never seen */
    };
};

struct dir {
    struct children *children;
    uint32_t id; /* constant; no other directory in memory has it */
    GUARDED_BY(cache_mutex) struct {
        unsigned files;    /* of the children: they are no directories */
        int64_t listed_ns; /* CLOCK_MONOTONIC at the start of the last whole listing; 0 never */
        int64_t told_ns;   /* CLOCK_MONOTONIC at its end: from then on it is believed */
        bool told_there;   /* that listing showed something: the directory is there, too */
        bool local_only;   /* made here, and no other node was seen to put anything below it */
        bool big;          /* more than a page: names are asked one by one */
        bool listing;      /* a listing is under way */
        bool new_here;     /* STAMP_NEW: the store must get a marker when it stays empty */
        bool has_marker;   /* the store has an object or directory of its own for it */
        bool stale_marker; /* and that may be of an older directory, with other attributes */
        bool mtime_set;    /* a user set its time, which the store must learn */
        unsigned stat_misses;  /* attributes asked one after the other: someone walks it */
        uint64_t hidden_names; /* that its last listing had and no path can show */
        /* of the marker whose attributes are known, a hash of what a listing says of it; 0: it
         * has none, or may have changed since */
        uint64_t marker_version;
        int64_t marker_mtime_ns; /* as it says; the directory's own moves with its names */
        struct etag put_etag;    /* of the marker that was put from here with its attributes; */
        uint32_t put_from_s, put_to_s; /* when the server can have taken it; 0: none was */
        struct dir_index index;
        struct node *dirty_prev, *dirty_next; /* its place in cache.dirty_dirs */
        /* and in cache.index_dirs or cache.index_tree_dirs */
        struct node *index_prev, *index_next;
        struct dir_walk *walk; /* of its children; NULL: nobody looked into them */
        struct query *queries; /* names being asked one by one */
        struct waitq waiters;
        /* the request for its siblings that it was to be told with; 0 none */
        unsigned waited_page;
        /* Its own upload: a marker, or attributes. */
        bool queued, uploading;
        uint64_t generation;
        int64_t due_ns;
        unsigned attempts;
        int error;
        int64_t failed_ns; /* CLOCK_MONOTONIC; of the last of them */
        char *error_text;
        int64_t overruled_ns; /* CLOCK_MONOTONIC; when the store's version of a name in it last
                                 stayed against what was meant here; 0 never */
    };
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

enum file_state { FILE_PARTIAL, FILE_CLEAN, FILE_DIRTY };

/* A range on its way from the store. */
struct fetch {
    struct task task;
    struct fetch *next;
    struct node *node; /* referenced */
    struct cache *cache;
    uint64_t off, end;
    struct checksum verified; /* that the store has compared with what was read */
    struct checksum sum;      /* of [off, summed), as it came */
    uint64_t summed;
    bool told; /* file.failed says what became of it */
};

/* What a node has beyond its attributes once the mirror holds a file for it. */
struct file {
    struct node *node;
    int backing_slot;        /* the frontend's; its own lock */
    atomic_bool changed;     /* set when a writer comes: an upload that reads the file stops */
    atomic_bool passthrough; /* mode of the open handles; written under `lock` */
    GUARDED_BY(cache_mutex) struct {
        enum file_state state;
        struct ranges present; /* FILE_PARTIAL */
        struct sums sums;      /* of what fetches brought of it in this mount */
        struct fetch *fetches;
        bool needed_whole; /* the next is claimed with the end of each, though nobody waits */
        /* who reads it in order, while it is partial and open, or NULL */
        struct streams *streams;
        struct stamp_keys keys;
        bool keys_cut;           /* the stamp has not all of them */
        struct mirror_fd fds[2]; /* FD_READ and FD_WRITE */
        unsigned open_handles, write_handles, exec_handles;
        unsigned map_handles; /* that may be mapped for writing */
        unsigned truncates;   /* under way, by path: as writers */
        unsigned beginners;   /* handles that made the content anew, and have not ended that */
        int64_t whole_mtime_ns; /* of the mirror file when one of them closed it; 0: not, or it
                                   was written since */
        uint64_t whole_size;
        bool busy;           /* turns from partial to complete: readers and writers wait */
        uint64_t generation; /* counts changes of content or attributes, as far as seen */
        uint64_t stored_generation; /* of the last upload's content */
        int64_t clean_mtime_ns; /* of the mirror file when it was last equal to the store; as
                                   its filesystem keeps it */
        uint64_t clean_size;
        struct checksum sum; /* of the content that is, or will be, clean; where it is known */
        bool verify;  /* FILE_PARTIAL: all bytes may be here and right, since before a reboot */
        bool suspect; /* mtime can't prove that it is unchanged since then */
        int64_t synced_mtime_ns; /* of the mirror file when it was last synced; 0 never */
        uint64_t synced_size;
        uint64_t writes;    /* that came through the daemon */
        bool writing_stamp; /* the stamp is to say STAMP_WRITING */
        bool past; /* since it was last seen without a writer someone may write past the daemon:
                      in passthrough, or from before the mount */
        unsigned noted; /* flags that the stamp on the disk has, whatever is being written just
                           now, enum stamp_flags */
        bool content_dirty; /* else only attributes are */
        bool cut;           /* a write found no room: not published before it is made again */
        bool lost;       /* cut, because the disk lost what it had taken: all is made again */
        uint64_t cut_at; /* where */
        bool gone;       /* the version being read is no longer at the store */
        struct {         /* the last failed fetch, for those who waited for it */
            uint64_t off, end;
            int err;
            int64_t until_ns;
        } failed;
        /* content that the kernel's pages show; see handle_keep_cache() */
        uint64_t kept_generation;
        uint64_t orphan_id; /* the mirror file is orphans/<id>; 0: at its path */
        bool unnamed;       /* O_TMPFILE without a name yet */
        char *orphan_key;   /* where a nameless partial file reads from */
        char *etag;         /* version that a partial or clean file is */
        uint64_t seq;       /* order of the last close */
        uint64_t first_seq; /* order of the first close that is not in the store; 0 none */
        /* of the first one that the upload which runs has not seen; 0 none */
        uint64_t after_seq;
        int64_t due_ns;    /* CLOCK_MONOTONIC: not uploaded before */
        unsigned attempts; /* failed uploads in a row */
        /* CLOCK_MONOTONIC; when the last of them was refused; 0 it was not */
        int64_t refused_ns;
        unsigned rewrites;  /* in a row that found it rewritten while they read it */
        int64_t failing_ns; /* CLOCK_MONOTONIC; of the first of them */
        int64_t failed_ns;  /* CLOCK_MONOTONIC; of the last of them */
        int error;          /* of the last failed upload */
        bool error_told;    /* a close or fsync has reported it */
        bool error_here;    /* it is the cache's own disk's, not the store's */
        char *error_text;
        bool queued;       /* in cache.dirty */
        bool staged;       /* waits for a rename, as its name says */
        int64_t staged_ns; /* CLOCK_MONOTONIC; since when */
        bool uploading;
        bool held;                  /* a mapping may still write */
        bool wanted;                /* somebody waits for it: no settling, staging names too */
        bool wanted_half;           /* as it is, though who made it anew has not ended that */
        uint64_t wanted_generation; /* the last one that somebody waits, or waited, for */
        /* CLOCK_MONOTONIC; since when it waits for readers of what it replaces */
        int64_t readers_ns;
        char *upload_key; /* while uploading: under which name */
        uint64_t upload_total, upload_done;
        struct job *unnoted;      /* in the store, but the cache could not note it */
        int64_t uploaded_live_ns; /* CLOCK_MONOTONIC; last upload while it was open */
        uint64_t blocks_bytes;    /* what it takes on the disk, as last seen */
        bool was_mapped;          /* while one of map_handles lived, outside of passthrough */
        bool in_lru, is_writer;
        struct file *lru_prev, *lru_next;       /* clean and partial files that may go */
        struct file *dirty_prev, *dirty_next;   /* cache.dirty, by first_seq */
        struct file *writer_prev, *writer_next; /* cache.writers */
        struct waitq range_waiters;             /* bytes came, or failed */
        struct waitq upload_waiters;            /* an upload ended */
    };
};

enum node_flags {
    NODE_ATTRS_KNOWN = 1 << 0, /* mode, owner and mtime are the store's or ours */
    NODE_ATTR_DIRTY = 1 << 1,  /* they are not in the store */
    NODE_DEFAULT_INO = 1 << 2, /* ino is the hash of the key */
    NODE_STATTING = 1 << 3,    /* a request for the attributes is under way */
    NODE_ATTRS_OLD = 1 << 4,   /* known, but the store may have others by now */
    NODE_LOST = 1 << 5,        /* removed: nothing can be made below or reached by it */
    NODE_REPLACED = 1 << 6, /* a name of it leads to another version now, or to none: who opens
                               or truncates it is told ESTALE, once if it has other names, and
                               looks the name up */
    NODE_ATTRS_HEARSAY = 1 << 8, /* an index told the attributes, and they are confirmed before
                                    they give anybody rights */
    NODE_NO_SUM = 1 << 7,        /* the store was asked for this version, and has no checksum */
};

/* An inode. */
struct node {
    struct entry *links; /* its names; none for the root and for unlinked files */
    struct dir *dir;     /* constant; a directory */
    struct file *file;   /* not a directory, and the mirror holds it; of the shape, too */
    uint32_t slot;       /* constant; where cache.ids has it */
    bool is_root;        /* constant */
    GUARDED_BY(cache_mutex) struct {
        /* enum attr_has; which attributes the store has, others are defaults */
        uint8_t attrs_has;
        uint8_t sum_kind; /* enum checksum_kind */
    };
    GUARDED_BY(cache_mutex) struct {
        uint64_t nlookup; /* held by the frontend */
        unsigned refs;    /* held by handles, tasks and snapshots */
        uint16_t flags;   /* enum node_flags */
        uint16_t mode;    /* as st_mode */
        uint64_t ino;
        /* when it was made, in the order of closes and intentions; 0 elsewhere */
        uint64_t birth;
        uint32_t uid, gid, nlink;
        uint32_t rdev; /* as the kernel and FUSE have it */
        uint64_t size;
        int64_t mtime_ns, ctime_ns, atime_ns;
        uint64_t sum_value; /* of the store's version, as last told */
        char *target;       /* of a symlink, once known */
        char *xattrs;       /* JSON (xattr_set.h), or NULL; an access ACL in it follows mode */
    };
};

/* A mount ends without the kernel's giving back what it holds. */
struct detached {
    UT_hash_handle hh; /* in cache.detached, by node */
    struct node *node;
};

/* A path that is kept from eviction, with all below it. */
struct pin {
    UT_hash_handle hh;
    char path[];
};

struct handle {
    struct node *node;
    int flags; /* as open(2) */
    bool writable;
    bool keeps_fd;        /* FD_WRITE has a user for as long as the handle lives */
    bool told;            /* this handle has been given the last error */
    bool begins;          /* among file.beginners */
    uint64_t opened_size; /* of the file then */
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

/* A row of the journal in memory. */
struct intent {
    uint64_t seq; /* 0: not numbered yet */
    enum intent_kind kind;
    char *from, *to;
    char *etag; /* version at `from`; "": none that is known; INTENT_ANY, INTENT_OURS */
    uint64_t ino;
    GUARDED_BY(cache_mutex) struct {
        /* who waits for it: the place of the older one that is part of it; 0 none */
        uint64_t since;
        /* of the file that left the name that is removed; 0: none is known */
        uint64_t moved_ino;
        bool removed_before; /* a removal that is repeated, for what may have come late */
        int64_t refused_ns; /* CLOCK_MONOTONIC; when the store refused it last; 0: it did not */
        bool others_taken;  /* and it has taken the like of another name since */
        bool refused;       /* a rename whose name it refuses for good */
        /* a removal that a later rename of something around it was found to need */
        bool urgent;
        bool redo; /* a rename that an earlier mount may have carried out, natively */
        bool running;
        bool done;  /* a removal that the store has carried out: only its row is to go */
        bool stuck; /* as intents_look_stuck_locked() saw it */
        int error;
        char *error_text;
        int64_t failing_ns; /* CLOCK_MONOTONIC; since when, if there is an error */
        int64_t failed_ns;  /* and when it failed last */
        unsigned attempts;
        int64_t due_ns;
        struct intent *prev, *next;
    };
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
/* Tells the kernel, from the notifying thread, that the node (name NULL) or entry changed. */
void notice_locked(struct cache *c, struct node *node, const char *name) REQUIRES(cache_mutex);
/* The scheduler looks at once. */
void scheduler_kick_locked(struct cache *c) REQUIRES(cache_mutex);
/* The same when something is due at `due_ns`, or a few milliseconds later, together with what
 * else is due by then. */
void scheduler_kick_at_locked(struct cache *c, int64_t due_ns) REQUIRES(cache_mutex);

/* ---- tree.c ---- */
/* The next number in the order of closes and intentions. There is room after each for the
 * removals that a renamed directory turns into: they keep its place. */
#define SEQ_STEP (UINT64_C(1) << 24)
uint64_t seq_next_locked(struct cache *c) REQUIRES(cache_mutex);
/* The last one given, with the removals that what has it may turn into; never 0. */
uint64_t seq_now_locked(struct cache *c) REQUIRES(cache_mutex);
struct node *node_new(struct cache *c, uint32_t mode) REQUIRES(cache_mutex);
/* ---- ids.c ---- */
struct ids *ids_new(void);
/* All nodes are gone. Accepts NULL. */
void ids_free(struct ids *ids);
/* Gives a new node its slot; 0 or -ENOMEM. */
int ids_add(struct ids *ids, struct node *n);
/* The node goes, and its number with it. */
void ids_remove(struct ids *ids, struct node *n);
void node_ref_locked(struct node *n) REQUIRES(cache_mutex);
/* Frees a node that has no names, lookups or references left. */
void node_unref_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
void node_collect_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* At the end: frees what only the kernel held. */
void detached_free_locked(struct cache *c) REQUIRES(cache_mutex);
/* The default inode number of a key. */
uint64_t ino_of_key(struct cache *c, const char *key);
/* That of something found under the key: another one when what had it was renamed. */
uint64_t ino_of_found_locked(struct cache *c, const char *key) REQUIRES(cache_mutex);
/* The node leaves the name that its number may come from, and keeps it. */
void node_keeps_ino_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* The same of what has this number, if it is another than that of the key under which a mount
 * found it. */
void ino_stands_locked(struct cache *c, uint64_t ino, const char *key) REQUIRES(cache_mutex);
/* Forgets those numbers of moved things that nothing has any more, now and then. ns held. */
void inos_purge_locked(struct cache *c) REQUIRES(cache_mutex);
void inos_free(struct cache *c) REQUIRES(cache_mutex);
/* A number for something made here. */
uint64_t ino_fresh(struct cache *c, const char *key);
struct entry *entry_find(struct node *dir, const char *name);
/* Adds a name; the caller holds ns for writing and lock. NULL without memory. */
struct entry *entry_add_locked(struct cache *c, struct node *dir, const char *name,
                               struct node *n) REQUIRES(cache_mutex);
/* Takes the name away and frees the entry; the node may be freed with it. */
void entry_remove_locked(struct cache *c, struct entry *e) REQUIRES(cache_mutex);
/* Moves an entry to another place. 0 or -ENOMEM; *e is the new entry. */
int entry_move_locked(struct cache *c, struct entry **e, struct node *dir, const char *name)
    REQUIRES(cache_mutex);
/* What is below the entry came to the store, or changed there: listings that were asked before
 * are not right about it, nor about the directories above. */
void entry_changed_locked(struct cache *c, struct entry *e) REQUIRES(cache_mutex);
/* Paths, heap or NULL. The tree must be held still. */
char *entry_path(struct entry *e);
char *entry_key(struct entry *e)
    REQUIRES(cache_mutex);       /* where the store has it now: a key needs the lock */
char *node_path(struct node *n); /* of its first name; NULL when it has none */
char *node_key(struct node *n) REQUIRES(cache_mutex);
/* The one of its names that the store has at this key, or NULL. */
struct entry *node_name_at(struct node *n, const char *key) REQUIRES(cache_mutex);
char *child_path(struct node *dir, const char *name);
char *child_key(struct node *dir, const char *name) REQUIRES(cache_mutex);
bool node_is_below(struct node *n, struct node *dir);
/* Looks a path up in memory; NULL when it is not known, for no other reason. */
struct node *tree_find(struct cache *c, const char *path, struct entry **ret_entry);
/* Whether one of its names is this path, or below it. Takes no memory either. */
bool node_is_named_below(struct cache *c, struct node *n, const char *path);
/* The same, making directories that are not known yet. */
struct node *tree_make_dirs_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);
/* Whether a listing begun at `listed_ns` may not show what the store has at `key` as `path`: it
 * was removed since, or an intention will remove it or move it elsewhere. */
bool ghost_hides(struct cache *c, const char *key, const char *path, int64_t listed_ns)
    REQUIRES(cache_mutex);
/* Whether an intention concerns this very key. */
bool ghost_pending(struct cache *c, const char *key) REQUIRES(cache_mutex);
/* An intention towards a key begins (+1) or ends (-1). */
void ghost_count_locked(struct cache *c, const char *key, int by, bool with_tree)
    REQUIRES(cache_mutex);
void ghosts_free(struct cache *c) REQUIRES(cache_mutex);
void node_stat(struct node *n, struct stat *st) REQUIRES(cache_mutex);
struct timespec timespec_of(int64_t ns);
/* Brings size and mtime of a file that someone writes up to date. */
void node_look_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* Calls visit for every node below and including n, parents first. */
int tree_each(struct node *n, int (*visit)(void *arg, struct node *n), void *arg);
void node_apply_attrs(struct cache *c, struct node *n, const struct object *obj)
    REQUIRES(cache_mutex);
/* The attributes it has are right, as far as is known. */
bool node_attrs_known(const struct node *n) REQUIRES(cache_mutex);
void node_attrs_are_known(struct node *n) REQUIRES(cache_mutex);
void node_default_attrs(struct cache *c, struct node *n) REQUIRES(cache_mutex);

/* ---- file.c ---- */
struct file *file_new(struct node *n, enum file_state state) REQUIRES(cache_mutex);
void file_free_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* Creates the mirror file of a node known from a listing; nothing to do when it is there. The
 * caller holds ns for writing. */
int file_materialise(struct cache *c, struct node *n);
/* Takes ns for writing. */
int file_need(struct cache *c, struct node *n);
/* The mirror file's descriptor, made when there is none, as file_get_fd(); -ESTALE: it has no
 * name any more. Takes ns for writing. */
int file_need_fd(struct cache *c, struct node *n, enum file_fd which);
/* STAMP_BEGUN and STAMP_WHOLE as they are to be. */
unsigned file_stamp_begun(const struct file *f) REQUIRES(cache_mutex);
/* Writes the stamp's attributes as the node is now. `fd` is its mirror file or directory. */
int node_write_stamp(struct cache *c, struct node *n, int fd);
/* The same, found by path; takes ns for reading. */
int node_save_stamp(struct cache *c, struct node *n);
/* The same by path, for a caller that holds ns; nothing when the mirror has no such file. */
int node_write_stamp_held(struct cache *c, struct node *n);
/* Writes the records of what the store holds. */
int file_write_keys(struct cache *c, struct node *n, int fd);
/* Notes in the stamp which version an upload of the file to `path` is to replace, as
 * stamp_keys_expect(): the next mount knows it then. When that fails nothing is lost: the
 * upload of a next mount loses against what it does not know, and is kept. Takes no ns. */
void file_expect(struct cache *c, struct node *n, int fd, const char *path, const char *etag);
/* A node that nobody has seen yet gets the time at which the mirror file was made: the disk's
 * clock ticks more slowly than ours, and what is told of a new file must stay true. */
int node_take_birth_time(struct node *n, int fd) REQUIRES(cache_mutex);
/* What fstat() says of the mirror file, into the node; marks it dirty when it changed. Under
 * the lock, so that an older look can't come after a younger one. 0 or -errno. */
int file_look_locked(struct cache *c, struct node *n, int fd, struct stat *ret_st)
    REQUIRES(cache_mutex);
/* Whether the file has the time and size at which it was last synced. */
bool file_says_synced(const struct file *f, const struct stat *now) REQUIRES(cache_mutex);
/* Whether somebody can still change the mirror file, of which `fd` is open for reading only:
 * through a descriptor, or through a mapping without one. docs/format.md, invariant 5. */
bool file_has_writer(int fd);
/* The same for what no open handle tells of. A file that was open for writing, and is marked
 * so, may be mapped, and change past the daemon: it is looked at, and while somebody still can
 * write it counts as changed by now, since a page that is dirty already moves no time. */
int file_look_past_locked(struct cache *c, struct node *n, int fd) REQUIRES(cache_mutex);
void file_account_locked(struct cache *c, struct file *f, uint64_t blocks_bytes)
    REQUIRES(cache_mutex);
/* Whether the store has this generation, or a later one, under each name that it owes. */
bool file_stored_locked(struct node *n, uint64_t generation) REQUIRES(cache_mutex);
/* Somebody waits until the store has this generation: no settling from now on, nor when it is
 * queued or sent once more meanwhile. */
void file_want_locked(struct file *f, uint64_t generation) REQUIRES(cache_mutex);
/* Its content may change at the store or here without a listing being right about it. */
bool node_is_ours(struct node *n) REQUIRES(cache_mutex);
void file_mark_dirty_locked(struct cache *c, struct node *n, bool content)
    REQUIRES(cache_mutex);
/* Whether it waits for a rename, as its name says. */
void file_stage_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* What is queued settles first, unless somebody waits for it. */
void file_put_off_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* Gives it its place in the order of closes and queues it. */
void file_queue_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
void file_unqueue_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* Puts a file into cache.dirty, or moves it there, where its first_seq belongs. */
void file_place_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
void file_lru_add_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
void file_lru_remove_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* The bytes are the store's no longer (another version is there): a closed file is dropped, an
 * open one becomes nameless and goes on with its old bytes, one that has other names goes on
 * under those. ns held for writing. */
int node_replaced(struct cache *c, struct entry *e, const struct object *obj);
/* Whether a file that was changed at this time could change again without its mtime moving. */
bool mtime_is_racy(int64_t mtime_ns);
/* The same at an earlier CLOCK_REALTIME. */
bool mtime_was_racy(int64_t mtime_ns, int64_t then_ns);
/* Takes the mirror file of a node without open handles away. ns held for writing. */
int file_discard(struct cache *c, struct node *n);
/* The mirror's part of a name that goes while the inode keeps others: the link and the record
 * of it. The inode keeps its number, too. ns held for writing; the entry is still there. */
int file_leave_name(struct cache *c, struct entry *e);
/* The node, which has a mirror file, loses its last name: the file leaves `path` for orphans/.
 * ns held for writing. */
int file_orphan(struct cache *c, struct node *n, const char *path);
/* The same in two steps, around the mirror's rename that takes its place at `path`: it gets a
 * second name, orphans/<id>, to be dropped again if that rename fails; and when it did not,
 * what is known of the file follows, its last entry still being there. */
int file_keep_aside(struct cache *c, const char *path, uint64_t *ret_id);
/* orphans/<id> goes; that it can't is told. Takes no lock. */
void file_drop_orphan(struct cache *c, uint64_t id);
void file_orphaned_locked(struct cache *c, struct node *n, uint64_t id) REQUIRES(cache_mutex);

/* ---- fds.c ---- */
/* Raises the process's limit. `limit`: how many for mirror files; 0: what the daemon does not
 * need itself. */
void fds_init(struct cache *c, unsigned limit);
/* The descriptor, in use until file_put_fd_locked(), which the same thread calls soon: so there
 * is always one to be had. Takes ns for reading. */
int file_get_fd(struct cache *c, struct node *n, enum file_fd which);
/* The same for a caller that holds ns. */
int file_get_fd_held(struct cache *c, struct node *n, enum file_fd which);
/* It stays open, idle, where handles may ask for it again. */
void file_put_fd_locked(struct cache *c, struct file *f, enum file_fd which)
    REQUIRES(cache_mutex);
/* Takes over the descriptor of a file that nobody has opened yet; it is in use then. */
void file_take_fd_locked(struct cache *c, struct file *f, enum file_fd which, int fd)
    REQUIRES(cache_mutex);
unsigned file_fd_users(const struct file *f) REQUIRES(cache_mutex);
/* Closes what was open for handles that are gone. */
void file_settle_fds_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* Closes both, and removes the mirror file if it is an orphan, by a chore. */
void file_drop_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* One more descriptor will be in use for as long as a program likes. 0; or -ENFILE, which log
 * and status then tell. */
int fds_keep_locked(struct cache *c) REQUIRES(cache_mutex);
/* Whether there is room for one more: 0 or -ENFILE, as above. */
int fds_room_locked(struct cache *c) REQUIRES(cache_mutex);
void fds_unkeep_locked(struct cache *c) REQUIRES(cache_mutex);
/* Whether that is no matter yet. */
bool fds_plenty_locked(struct cache *c) REQUIRES(cache_mutex);

/* ---- open.c ---- */
/* Opens what the caller has just created: nothing to wait for. */
int file_open_made(struct cache *c, struct node *n, int flags, struct handle **ret);
/* A write at `off` found no room: what the file holds is not what its writer meant. */
void file_cut_locked(struct cache *c, struct node *n, uint64_t off) REQUIRES(cache_mutex);
/* The disk took the content and could not keep it: nobody knows what the file is now. */
void file_lost_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* The same with the stamp on the disk, as far as that works. */
void file_lost(struct cache *c, struct node *n, int fd);
/* A flush, or an fsync(), does not wait for the store any more; perhaps others do. */
void file_unwant_locked(struct file *f) REQUIRES(cache_mutex);
/* 0, or -EIO when the kernel tells that pages of the file could not be written: it forgets
 * them, and what is read is what the disk had before. Told once, so the file is held back from
 * then on. What is read before the call is right when it returns 0. */
int file_check_kept(struct cache *c, struct node *n, int fd);
/* Whether the content was made anew by a writer that has not said of what is there now that it
 * is whole: it replaces nothing unless that is asked for. A log is what it is at any moment. */
bool file_is_half_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* The handle is about to make the content anew. */
void handle_begin_anew(struct cache *c, struct handle *h);
/* Truncates or extends. 0, CACHE_PARKED or an error. */
int file_truncate(struct cache *c, struct node *n, uint64_t size, struct waiter *w);

/* ---- control.c ---- */
void failure_note_locked(struct cache *c, struct failure *f, int err, const char *why)
    REQUIRES(cache_mutex);
/* Logs that a question or a download failed, and keeps it for the status. A call that was ended
 * by a cancel is no failure. */
void read_failed(struct cache *c, const char *what, int err, const char *why);

/* ---- fetch.c ---- */
/* How many bytes of a download are gathered for one write to the mirror: as many as are wanted,
 * or (0) as suit this machine. */
uint64_t fetch_gather_bytes(uint64_t wanted);
/* 0, CACHE_PARKED, or an error: makes [off, end) present. */
int fetch_need_locked(struct cache *c, struct node *n, uint64_t off, uint64_t end,
                      uint64_t ahead, struct waiter *w) REQUIRES(cache_mutex);
/* The same for the whole file, which is FILE_PARTIAL no longer when this returns 0. */
int fetch_complete_locked(struct cache *c, struct node *n, struct waiter *w)
    REQUIRES(cache_mutex);

/* Adds the file's first `size` bytes to the sum. 0 or a negative errno; -EIO: it is shorter. */
int file_sum(int fd, uint64_t size, struct checksum *sum);

/* ---- index.c ---- */
/* What a listing says of one name. */
struct listed {
    char *name;
    struct object obj;
};
/* Takes attributes that the listing does not carry from the directory's index, as far as they
 * are needed. In a worker, holding no lock; `key` is where the store has the directory. */
void index_fill(struct cache *c, struct node *dir, const char *key, struct listed *v, size_t n);
/* The same from the tree's index, for a small directory and its own marker (or NULL): when
 * someone walks. */
void index_tree_fill(struct cache *c, struct node *dir, const char *key, struct listed *v,
                     size_t n, struct object *marker);
int index_tree_init(struct cache *c);
void index_tree_free(struct cache *c);
/* Attributes became known that the directory's index may lack. */
void index_news_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* The attributes of a directory's marker became known. */
void index_marker_news_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* The directory is moved or removed: its index, if it has one, is of no use. */
void index_drop_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
void index_unqueue_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Starts what may run; lowers *next_due to when something else may. */
void indexes_start_locked(struct cache *c, int64_t now, int64_t *next_due)
    REQUIRES(cache_mutex);
/* The entry's attributes are those of the version that the store told. */
void entry_told(struct entry *e, const struct object *obj) REQUIRES(cache_mutex);
/* The same of one that was put from here, which took `took_ns`: the answer says when it came.
 */
void entry_put(struct entry *e, const struct object *obj, int64_t took_ns)
    REQUIRES(cache_mutex);
/* A listing showed the version whose attributes are known. */
void entry_seen(struct entry *e, const struct object *obj) REQUIRES(cache_mutex);
/* When the server can have taken what was put from here, by its answer. False when it does not
 * tell. */
bool put_window(const struct object *obj, int64_t took_ns, uint32_t *ret_from_s,
                uint32_t *ret_to_s);
/* Nothing is known of when the version came to be. */
void entry_forget_version(struct entry *e) REQUIRES(cache_mutex);
/* The store may have other attributes: the next listing finds that it moved. */
void entry_distrust(struct entry *e) REQUIRES(cache_mutex);
/* Whether the listed object can be another version than that whose attributes are known,
 * although its etag is the same. */
bool entry_moved(const struct entry *e, const struct object *obj) REQUIRES(cache_mutex);

/* ---- dir.c ---- */
/* The directory's children are known, or it parks. `whole`: every page. */
int dir_need_locked(struct cache *c, struct node *dir, bool whole, struct waiter *w)
    REQUIRES(cache_mutex);
/* The store may have something of that name, though nothing shows it: the directory is too
 * large to be listed for a name, and the store was not asked for it lately. */
bool dir_may_hold_locked(struct cache *c, const struct node *dir, const char *name)
    REQUIRES(cache_mutex);
/* The cache stops: who waits for attributes waits no longer. */
void askings_stop_locked(struct cache *c) REQUIRES(cache_mutex);
/* mode, owner and mtime are known, or it parks. */
int attrs_need_locked(struct cache *c, struct node *n, struct waiter *w) REQUIRES(cache_mutex);
/* Where others come in: the object itself has said them, or it parks, and is woken with -ESTALE
 * when they were others: then the kernel asks for them, and whether the caller may, once more.
 */
int attrs_confirm_locked(struct cache *c, struct node *n, struct waiter *w)
    REQUIRES(cache_mutex);
/* Takes a name away that the store has no more. ns held for writing. 0, or -EBUSY when
 * something below it is ours. */
int entry_gone(struct cache *c, struct entry *e);
/* The version is confirmed no longer ago than attr_timeout, or it parks. */
int version_need_locked(struct cache *c, struct node *n, struct waiter *w)
    REQUIRES(cache_mutex);

/* ---- absent.c ---- */
/* The store has no such name in a large directory; it was asked at `asked_ns`
 * (CLOCK_MONOTONIC). */
void absent_note_locked(struct cache *c, const struct node *dir, const char *name,
                        int64_t asked_ns) REQUIRES(cache_mutex);
/* Whether it said so less than `belief_ns` ago. */
bool absent_is_locked(struct cache *c, const struct node *dir, const char *name,
                      int64_t belief_ns) REQUIRES(cache_mutex);
/* Something gets the name here. */
void absent_forget_locked(struct cache *c, const struct node *dir, const char *name)
    REQUIRES(cache_mutex);

/* ---- birth.c ---- */
struct making {
    struct node *parent;
    const char *name;
    const char *target; /* of a symlink */
    uint32_t mode;
    uint64_t rdev;
    const struct cache_cred *cred;
    bool keep_fd; /* of a file that is opened next: FD_WRITE is in use when it is made */
    bool begins;  /* by that handle: it is among file.beginners */
};
/* A new node at `path` ("" without one), of no name yet. NULL without memory. */
struct node *node_make_locked(struct cache *c, const struct making *m, const char *path)
    REQUIRES(cache_mutex);
/* The mirror's part: a file with its stamps, or a directory with its. ns held for writing. */
int node_make_in_mirror(struct cache *c, struct node *n, const char *path, bool keep_fd);
/* The stamps of a file that has none yet. */
int node_write_first_stamps(struct cache *c, struct node *n, int fd);
/* ---- xattr.c ---- */
/* What the store lacks of it and of all below it, in numbers; heap. NULL: no name, no memory.
 */
char *node_owed_text_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* The set of extended attributes with an access ACL that agrees with the mode; *ret is NULL
 * when it does already. 0 or -ENOMEM. */
int acl_follow_mode(const char *xattrs, uint32_t mode, char **ret);
/* The same of the node's own, after its mode or its set came from elsewhere. */
void node_acl_follow(struct node *n) REQUIRES(cache_mutex);
/* A new node gets what its parent's default ACL hands on, else its mode loses the umask. 0 or
 * -ENOMEM. */
int node_inherit_acl_locked(struct cache *c, struct node *n, const struct node *parent,
                            uint32_t umask) REQUIRES(cache_mutex);

/* ---- dirs.c ---- */
/* What a whole listing, or its first page, says of the directory's own marker; NULL: there is
 * none. `generation` is the directory's when it was asked. */
void dir_listed_locked(struct cache *c, struct node *dir, const struct object *marker,
                       uint64_t generation) REQUIRES(cache_mutex);
/* What the store said of the marker; NULL: there is none. */
void dir_told_locked(struct cache *c, struct node *dir, const struct object *marker,
                     uint64_t generation) REQUIRES(cache_mutex);
/* Whether the attributes of the marker that a listing showed are not known. */
bool dir_wants_marker_locked(struct node *dir, const struct object *marker)
    REQUIRES(cache_mutex);
/* What the marker that a listing showed says of the directory, as far as the store has it;
 * borrows the texts. False when that is not known; `*ret_sure`: the store itself told it. */
bool dir_marker_attrs_locked(struct node *dir, const struct object *marker, struct attrs *ret,
                             bool *ret_sure) REQUIRES(cache_mutex);
/* What is shown of it is ours, whatever the store says. */
bool dir_attrs_are_ours(struct node *dir) REQUIRES(cache_mutex);
/* A name in it came to the store, or changed there: it stands for a directory that the store
 * need not be told of otherwise. */
void dir_child_changed_locked(struct cache *c, struct node *dir, const struct entry *e)
    REQUIRES(cache_mutex);

/* ---- walk.c ---- */
void walk_free(struct dir_walk *w);
/* The cache stops: nobody waits any more. */
void walk_stop_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);

/* ---- publish.c ---- */
void *scheduler_main(void *arg);
/* In an uploader that has ended an upload, with ns held: it goes on with the next that is due.
 */
void upload_ended_locked(struct cache *c) REQUIRES(cache_mutex);
/* A directory's marker or attributes are to be uploaded. */
void dir_queue_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
void dir_unqueue_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
bool path_is_staged(struct cache *c, const char *path);
bool path_is_log(struct cache *c, const char *path);
/* Whether the file was closed before the intention with this number, and is open no more: its
 * upload comes first, unless it waits for another name. */
bool upload_comes_first(const struct file *f, uint64_t seq) REQUIRES(cache_mutex);

/* ---- barrier.c ---- */
/* Which removals have to wait for uploads. */
struct barrier {
    uint64_t seq; /* those with a lower number for none */
    struct barrier_dir {
        char *path;
        uint64_t seq;
    } * dirs; /* of refused names: what is in the same directory waits for them, too */
    size_t n, cap;
};
void barrier_init_locked(struct cache *c, struct barrier *ret) REQUIRES(cache_mutex);
bool barrier_holds_locked(struct cache *c, const struct barrier *b,
                          const struct intent *removal) REQUIRES(cache_mutex);
void barrier_release(struct barrier *b);
/* Up to which place in the order uploads come before a removal that has the place `seq`. */
uint64_t barrier_seq_locked(struct cache *c, uint64_t seq) REQUIRES(cache_mutex);
/* Who waits for removals begins with what has the place `seq`. */
void rounds_init(struct cache *c, struct rounds *ret, uint64_t seq);
/* Whether the removal is waited for in vain: what it waits for went, unstored, again and again,
 * each time with something later to wait for. Counts the times. */
bool rounds_are_over_locked(struct cache *c, struct rounds *r, const struct intent *removal)
    REQUIRES(cache_mutex);
/* The file is about to lose its last name, and what removals wait for with it: they wait for
 * all that is closed by now instead, above all for what takes its name or came in its place. ns
 * held for writing, before the mirror's step; waits for the disk, if there are such removals. 0
 * or -ENOMEM. */
int barrier_pass_on(struct cache *c, const struct file *f);
/* What an earlier mount passed on. Recovery. */
int barrier_load(struct cache *c);

/* ---- upload.c ---- */
/* Whether the file has to wait, as it is: a full disk cut it off, it is half (format.md, 3), or
 * something that was sent before may still arrive at the name. Asked when it is chosen, and
 * once more when it was looked at. */
bool upload_has_to_wait_locked(struct cache *c, struct file *f, const char *path)
    REQUIRES(cache_mutex);
/* Begins the upload of one of the node's names; `path` is taken over. `own`: the caller is an
 * uploader that ends its own, and goes on with this one. */
void upload_start_locked(struct cache *c, struct node *n, char *path, bool own)
    REQUIRES(cache_mutex);
/* One that only had to be noted: nobody will. Accepts NULL. */
void upload_forget(struct job *j);
/* Whether an upload to this very path, or below it, runs. */
bool upload_runs_at_locked(struct cache *c, const char *path, bool below) REQUIRES(cache_mutex);
/* What an object's attributes are to be; released with attrs_release(). */
int node_attrs_locked(struct node *n, struct attrs *ret) REQUIRES(cache_mutex);
/* How long to wait after the n-th failure in a row, with jitter, in ns. */
int64_t retry_delay_ns(const struct cache *c, unsigned attempts);
/* ---- session.c ---- */
/* The content that an upload in parts sends, as far as it can be told without reading it. */
struct session_mark {
    uint64_t ino, size; /* of the mirror file */
    int64_t mtime_ns;
    uint64_t attrs; /* hash */
};
/* An upload in parts. Whoever has it in hand owns it; the others are in cache.sessions. */
struct session {
    struct session *prev, *next;
    char *key;
    char *token;      /* "": not learned */
    int64_t began_ns; /* CLOCK_REALTIME; origin_ns of what it will make */
    uint64_t part_size;
    struct session_mark mark;
    bool live; /* somebody could write the file while it was sent */
    bool over; /* of no use any more: to be ended at the store */
    bool busy; /* being ended */
    unsigned attempts;
    int64_t due_ns;
};
void session_mark(struct session_mark *ret, const struct stat *st, const struct attrs *a);
/* The one that was broken off with just this content, or NULL. Others of the key are over. */
struct session *session_take(struct cache *c, const char *key, const struct session_mark *mark);
/* A new one, with its row and without a token. 0, or why it can't be recorded. */
int session_open(struct cache *c, const char *key, const struct session_mark *mark,
                 uint64_t part_size, int64_t began_ns, bool live, struct session **ret);
/* The store has begun it. */
int session_begun(struct cache *c, struct session *s, const char *token);
/* Whether an upload to the key has to wait for one to be ended. */
bool session_blocks_upload_locked(struct cache *c, const char *key) REQUIRES(cache_mutex);
/* Broken off: to be resumed, or (`over`) to be ended. */
void session_leave(struct cache *c, struct session *s, bool over);
/* The store has it no more. */
void session_gone(struct cache *c, struct session *s);
/* Keeps account of the sessions that calls with this op begin by themselves, until it is
 * forgotten: those that are left then are ended at the store. */
struct session_watch {
    struct op_notes notes;
    struct store_sessions base;
    struct cache *cache;
    struct session *session;
    int error; /* of the journal: the last call that a session's account has failed with */
};
void session_watch(struct session_watch *w, struct cache *c, struct op *op);
/* 0, or the error of the journal that ended the call: the store has not said so. */
int session_unwatch(struct session_watch *w, struct op *op);
/* What an earlier mount left. */
int sessions_load(struct cache *c);
/* Ends those that no upload will resume; lowers *next_due. */
void sessions_start_locked(struct cache *c, int64_t now, int64_t *next_due)
    REQUIRES(cache_mutex);
/* Whether one is to be ended and that has not failed yet. */
bool sessions_pending_locked(struct cache *c) REQUIRES(cache_mutex);
void sessions_free(struct cache *c) REQUIRES(cache_mutex);
/* ---- intent.c ---- */
struct intent *intent_new(uint64_t seq, enum intent_kind kind, const char *from, const char *to,
                          uint64_t ino, const char *etag);
void intent_free(struct intent *i);
void intent_add_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex);
void intent_remove_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex);
/* Writes the intention's row; the caller holds ns. 0 or a negative errno. */
int intent_record(struct cache *c, const struct intent *i);
/* The number of the newest intention; 0 without any. Those made later have a higher one. */
uint64_t intents_newest_locked(struct cache *c) REQUIRES(cache_mutex);
/* The store has `path` in its new version: removals of it up to number `seq` are void. One that
 * was intended while that version was on its way is newer and stays.
 * Takes no lock itself; 0 or a negative errno. */
int intents_retire(struct cache *c, enum intent_kind kind, const char *path, uint64_t seq);
/* Whether a marker at `path` (or below it) is just being made. */
bool dir_upload_runs_at_locked(struct cache *c, const char *path, bool below)
    REQUIRES(cache_mutex);
/* Markers and attributes of directories. */
void dirs_start_locked(struct cache *c, int64_t now, int64_t *next_due) REQUIRES(cache_mutex);
/* Starts what may run; lowers *next_due to when something else may. */
void intents_start_locked(struct cache *c, int64_t now, int64_t *next_due)
    REQUIRES(cache_mutex);
/* Whether what the store has at `key` now will be at `path` when all intentions are done. */
bool intent_leads_to(struct cache *c, const char *key, const char *path) REQUIRES(cache_mutex);
/* The version that the pending removals of `path` mean, "" what this cache put alone; NULL when
 * that is not known, or the intention is another one. Valid under the lock. */
const char *intent_removes_version(struct cache *c, const char *path) REQUIRES(cache_mutex);
/* Whether an intention concerns something below `path`. */
bool intent_below(struct cache *c, const char *path) REQUIRES(cache_mutex);
/* Whether the store is just renaming what is at `key`, or may have done so. */
bool rename_runs_at_locked(struct cache *c, const char *key) REQUIRES(cache_mutex);
/* Whether the path itself is about to be removed at the store. */
bool removal_pending(struct cache *c, const char *path) REQUIRES(cache_mutex);
/* Whether an upload to `path`, of a directory's marker or of a file, has to wait for an
 * intention. */
bool intent_blocks_upload_locked(struct cache *c, const char *path, bool dir)
    REQUIRES(cache_mutex);
/* Looks which intentions have been failing since before `since_ns` (CLOCK_MONOTONIC), or wait
 * for such a one. Whether there are any. */
bool intents_look_stuck_locked(struct cache *c, int64_t since_ns) REQUIRES(cache_mutex);
/* Whether an upload of a file to `path` waits for one of them. */
bool stuck_intent_blocks_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);
/* ---- refusal.c ---- */
/* Whether an answer may say that the store will never have what it was asked for. */
bool refusal_is_one(int err);
/* The store took a change of some name, for which it was asked at `began_ns`. */
void refusal_taken_locked(struct cache *c, enum change change, int64_t began_ns)
    REQUIRES(cache_mutex);
/* Whether it took one that it was asked for after `refused_ns`, when it refused another (0:
 * never). */
bool refusal_others_taken_locked(const struct cache *c, enum change change, int64_t refused_ns)
    REQUIRES(cache_mutex);
/* Something was refused: it is found out whether the store takes anything. */
void refusal_probe_locked(struct cache *c) REQUIRES(cache_mutex);
/* Whether all that the file owes has names which the store refuses. */
bool file_is_refused_locked(const struct file *f) REQUIRES(cache_mutex);
/* ---- late.c ---- */
/* Begins the time in which requests of a daemon that was killed may take effect. */
int late_begin(struct cache *c);
/* Whether an upload to the path (of content, else attributes), or an intention, has to wait for
 * its end. */
bool late_blocks_upload_locked(struct cache *c, const char *path, bool content)
    REQUIRES(cache_mutex);
bool late_blocks_intent_locked(struct cache *c, const struct intent *i) REQUIRES(cache_mutex);
/* A removal of the key, with which this daemon is done, may still arrive. 0 or -ENOMEM. */
int late_removal_locked(struct cache *c, const char *key) REQUIRES(cache_mutex);
/* A copy to the key, or its new attributes, may still arrive. */
void late_copy(struct cache *c, const char *key);
/* An upload to the key, bound to this version ("" none), may still arrive. 0 or -ENOMEM. */
int late_put_locked(struct cache *c, const char *key, const char *etag) REQUIRES(cache_mutex);
/* Until when (CLOCK_MONOTONIC) one may that is bound to this version (NULL: to any); 0 none. */
int64_t late_put_until_locked(struct cache *c, const char *key, const char *etag)
    REQUIRES(cache_mutex);
/* The same of any key below the directory. */
int64_t late_puts_below_until_locked(struct cache *c, const char *dir) REQUIRES(cache_mutex);
/* Whether something may still be copied to the name, or below it. */
bool late_copies_below_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);
void late_free(struct cache *c) REQUIRES(cache_mutex);
/* ---- evict.c ---- */
void evict_if_needed(struct cache *c);
/* 0, CACHE_PARKED while writers must wait, or -ENOSPC, which status and log then tell. */
int space_need_locked(struct cache *c, struct file *f, struct waiter *w) REQUIRES(cache_mutex);
/* The same for one who allocates `want` bytes: how many of them he may take now. */
int space_take_locked(struct cache *c, struct file *f, uint64_t want, struct waiter *w,
                      uint64_t *ret) REQUIRES(cache_mutex);
/* Whether the file could not have so many bytes on the disk even if nothing else was left there
 * of the cache. */
bool space_is_never_there_locked(struct cache *c, const struct file *f, uint64_t want)
    REQUIRES(cache_mutex);
bool space_for_passthrough_locked(struct cache *c) REQUIRES(cache_mutex);
/* The disk itself had no room for a write: told in log and status. */
void space_disk_full_locked(struct cache *c) REQUIRES(cache_mutex);
/* What is wrong with the space, for people; NULL when nothing is. */
const char *space_trouble_text(enum space_trouble trouble);
bool path_is_pinned(struct cache *c, const char *path) REQUIRES(cache_mutex);
int pins_load(struct cache *c);
void pins_free(struct cache *c) REQUIRES(cache_mutex);
/* ---- scan.c ---- */
int cache_recover(struct cache *c, struct op *op);
/* ---- check.c ---- */
/* ---- cache.c ---- */
/* Recovers a directory without a store, and starts no uploads. */
int cache_open_offline(const char *dir, struct op *op, struct cache **ret);

#ifdef NDEBUG
#define cache_check_locked(c) ((void)(c))
#else
/* Walks every list and count and aborts on a broken invariant of docs/format.md. */
void cache_check_locked(struct cache *c) REQUIRES(cache_mutex);
#endif

/* Begins a request to the store. It ends in time, or with the mount. */
void cache_op(struct cache *c, struct op *op);
/* The same in another time than that of the store. */
void cache_op_within(struct cache *c, struct op *op, int64_t timeout_ns);

/* A state change that the file's waiters, flushers and the scheduler want to know. */
void progress_locked(struct cache *c) REQUIRES(cache_mutex);
/* The same without the scheduler. */
void progress_tell_locked(struct cache *c) REQUIRES(cache_mutex);

#endif
