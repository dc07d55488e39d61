/* The inside of the cache: names, inodes, open files, intentions, and the locks over them.
 *
 * Locks, outermost first:
 *
 * ns: rwlock. Written by whatever changes the tree's shape or a mirror file's place (create,
 * unlink, rename, merge of a listing, eviction); read by whoever opens a mirror file by its
 * path. Held across the mirror's system calls and the journal's write, never across a store
 * call, an fsync or a reply.
 *
 * stamp_lock: mutex. One stamp is written at a time, from the node's fields as they are then;
 * held across that setxattr().
 *
 * lock: mutex. Guards every field below that is not marked otherwise. Held for memory, and for
 * the fstat(), statvfs() and close() of the mirror's own descriptors; never for a path or for
 * data.
 *
 * The shape of the tree (children, links, names) changes only under ns and lock, so that
 * holding either is enough to read it. */
#ifndef RUNFS_CACHE_NODE_H
#define RUNFS_CACHE_NODE_H

#include "backends/store.h"
#include "cache/cache.h"
#include "cache/journal.h"
#include "cache/mirror.h"
#include "cache/range.h"
#include "cache/stamp.h"
#include "common/lock.h"
#include "common/pool.h"

#include <uthash.h>

struct waitq {
    struct waiter *head, **tail;
};

/* A name: the link between a directory and a node. */
struct entry {
    UT_hash_handle hh; /* in parent's dir->children, by name */
    struct node *parent;
    struct node *node;
    struct entry *next_link; /* the node's other names */
    char *etag;              /* the store's version under this name; NULL: none that we know */
    char *src_key;           /* where the store has it until a rename ran; NULL: at its path */
    int64_t verified_ns;     /* CLOCK_MONOTONIC; when the store last confirmed it; 0 never */
    int64_t changed_ns; /* CLOCK_MONOTONIC; last change from here: older listings don't count */
    bool dirty;         /* content or attributes under this name must go to the store */
    bool may_exist;     /* the store has, or may have, an object at this very path */
    uint64_t stored_generation; /* of the file; what the store has under this name */
    char name[];
};

/* A key that the store has, or may have, although the name is gone here. */
struct ghost {
    UT_hash_handle hh; /* in cache.ghosts, by key */
    int64_t done_ns;   /* CLOCK_MONOTONIC; when the store lost it: younger listings are right */
    unsigned pending;  /* intentions that will remove it, or move it away */
    bool with_tree;    /* the last one moved all below it away, too */
    char key[];
};

struct dir {
    struct entry *children;
    int64_t listed_ns;     /* CLOCK_MONOTONIC at the start of the last whole listing; 0 never */
    int64_t told_ns;       /* CLOCK_MONOTONIC at its end: from then on it is believed */
    bool local_only;       /* the store has nothing below it: no listing needed */
    bool big;              /* more than a page: names are asked one by one */
    bool listing;          /* a listing is under way */
    bool new_here;         /* STAMP_NEW: the store must get a marker when it stays empty */
    bool has_marker;       /* the store has an object or directory of its own for it */
    bool stale_marker;     /* and that may be of an older directory, with other attributes */
    bool in_mirror;        /* a mirror directory exists */
    uint64_t hidden_names; /* that its last listing had and no path can show */
    unsigned stat_misses;  /* attributes asked one after the other: someone walks it */
    struct query *queries; /* names being asked one by one */
    struct waitq waiters;
    /* Its own upload: a marker, or attributes. */
    bool queued, uploading;
    uint64_t generation;
    int64_t due_ns;
    unsigned attempts;
    int error;
    char *error_text;
};

/* A reader's descriptor is O_RDONLY, so that a lease can tell whether writers live. */
enum file_fd { FD_READ, FD_WRITE };

enum file_state { FILE_PARTIAL, FILE_CLEAN, FILE_DIRTY };

/* A range on its way from the store. */
struct fetch {
    struct task task;
    struct fetch *next;
    struct node *node; /* referenced */
    struct cache *cache;
    uint64_t off, end;
};

/* What a node has beyond its attributes once the mirror holds a file for it. */
struct file {
    struct node *node;
    enum file_state state;
    struct ranges present; /* FILE_PARTIAL */
    struct fetch *fetches;
    struct stamp_keys keys;
    int fds[2]; /* FD_READ and FD_WRITE on the mirror file while in use, else -1 */
    unsigned fd_users[2];
    unsigned open_handles, write_handles;
    bool passthrough;    /* mode of the open handles */
    int backing_slot;    /* the frontend's; its own lock */
    atomic_bool changed; /* set when a writer comes: an upload that reads the file stops */
    bool busy;           /* turns from partial to complete: readers and writers wait */
    uint64_t generation; /* counts changes of content or attributes, as far as seen */
    uint64_t stored_generation; /* of the last upload's content */
    int64_t clean_mtime_ns;     /* of the mirror file when it was last equal to the store */
    uint64_t clean_size;
    bool suspect;            /* mtime can't prove that it is unchanged since then */
    int64_t synced_mtime_ns; /* of the mirror file when it was last synced; 0 never */
    uint64_t synced_size;
    bool writing_stamp; /* STAMP_WRITING is on the disk */
    bool content_dirty; /* else only attributes are */
    bool cut;           /* a write found no room: not published before it is made again */
    uint64_t cut_at;    /* where */
    bool gone;          /* the version being read is no longer at the store */
    struct {            /* the last failed fetch, for those who waited for it */
        uint64_t off, end;
        int err;
        int64_t until_ns;
    } failed;
    uint64_t
        kept_generation; /* content that the kernel's pages show; see handle_keep_cache() */
    uint64_t orphan_id;  /* the mirror file is orphans/<id>; 0: at its path */
    bool unnamed;        /* O_TMPFILE without a name yet */
    char *orphan_key;    /* where a nameless partial file reads from */
    char *etag;          /* version that a partial or clean file is */
    uint64_t seq;        /* order of the last close */
    uint64_t first_seq;  /* order of the first close that is not in the store; 0 none */
    int64_t due_ns;      /* CLOCK_MONOTONIC: not uploaded before */
    unsigned attempts;   /* failed uploads in a row */
    int error;           /* of the last failed upload */
    bool error_told;     /* a close or fsync has reported it */
    char *error_text;
    bool queued;       /* in cache.dirty */
    bool staged;       /* waits for a rename, as its name says */
    int64_t staged_ns; /* CLOCK_MONOTONIC; since when */
    bool uploading;
    bool held;        /* a mapping may still write */
    bool wanted;      /* a flush waits: no settling, staging names too */
    char *upload_key; /* while uploading: under which name */
    uint64_t upload_total, upload_done;
    int64_t uploaded_live_ns; /* CLOCK_MONOTONIC; last upload while it was open */
    uint64_t blocks_bytes;    /* what it takes on the disk, as last seen */
    bool in_lru, is_writer;
    struct file *lru_prev, *lru_next;       /* clean and partial files that may go */
    struct file *dirty_prev, *dirty_next;   /* cache.dirty, by first_seq */
    struct file *writer_prev, *writer_next; /* cache.writers */
    struct waitq range_waiters;             /* bytes came, or failed */
    struct waitq upload_waiters;            /* an upload ended */
};

enum node_flags {
    NODE_ATTRS_KNOWN = 1 << 0, /* mode, owner and mtime are the store's or ours */
    NODE_ATTR_DIRTY = 1 << 1,  /* they are not in the store */
    NODE_DEFAULT_INO = 1 << 2, /* ino is the hash of the key */
    NODE_STATTING = 1 << 3,    /* a request for the attributes is under way */
    NODE_LOST = 1 << 5,        /* removed: nothing can be made below or reached by it */
    NODE_REPLACED = 1 << 6,    /* its name leads to another version now: opens are ESTALE */
};

/* An inode. */
struct node {
    bool is_root;        /* constant */
    struct entry *links; /* its names; none for the root and for unlinked files */
    uint64_t nlookup;    /* held by the frontend */
    unsigned refs;       /* held by handles, tasks and snapshots */
    unsigned flags;      /* enum node_flags */
    uint64_t ino;
    uint64_t birth; /* when it was made, in the order of closes and intentions; 0 elsewhere */
    uint32_t mode, uid, gid, nlink;
    uint64_t rdev;
    uint64_t size;
    int64_t mtime_ns, ctime_ns, atime_ns;
    struct file *file; /* not a directory, and the mirror holds it */
    struct dir *dir;   /* a directory */
    char *target;      /* of a symlink, once known */
    char *xattrs;      /* JSON, or NULL */
    struct waitq stat_waiters;
    struct node *dirty_prev, *dirty_next; /* a directory's place in cache.dirty_dirs */
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
    bool told;            /* this handle has been given the last error */
    uint64_t opened_size; /* of the file then */
    uint64_t ra_next;     /* where a sequential reader would go on */
    uint64_t ra_bytes;    /* how far ahead it is read */
};

/* A row of the journal in memory. */
struct intent {
    uint64_t seq; /* 0: not numbered yet */
    enum intent_kind kind;
    char *from, *to;
    char *etag;
    uint64_t ino;
    bool running;
    int error;
    char *error_text;
    unsigned attempts;
    int64_t due_ns;
    struct intent *prev, *next;
};

/* Why the cache can't keep its limit, or refuses writers. */
enum space_trouble {
    SPACE_FINE,
    SPACE_OVER_LIMIT, /* what is open, or waits for its name, is more than the limit */
    SPACE_STORE_GONE, /* uploads fail: writers get ENOSPC */
    SPACE_DISK_FULL,  /* the reserve is touched and nothing can go: writers get ENOSPC */
};

#define WAKERS 4 /* threads that answer parked requests */

struct cache {
    struct cache_config config; /* constant; strings are copies */
    struct store *store;
    struct mirror mirror;
    struct journal *journal;
    uint64_t identity_hash; /* constant; salt of derived inode numbers */
    uint64_t id;            /* constant; this cache directory's own random number */
    bool damaged_journal;

    pthread_rwlock_t ns;
    struct mutex stamp_lock; /* innermost but for `lock`: one stamp is written at a time, from
                                the node as it is then */
    struct mutex lock;

    struct node *root;
    uint64_t seq;     /* last given */
    uint64_t next_id; /* names in incoming/ and orphans/ */
    uint64_t nodes;
    struct file *dirty; /* by first_seq */
    struct node *dirty_dirs;
    struct file *writers;   /* open for writing, or held by a mapping */
    struct file *lru;       /* least recently used first */
    struct intent *intents; /* by seq */
    struct waitq space_waiters;
    struct waitq flush_waiters; /* woken when anything reached the store */
    pthread_cond_t progress;    /* the same for threads that block */
    uint64_t used_bytes;
    uint64_t disk_free_bytes; /* as last seen, less what was written since */
    enum space_trouble space;
    uint64_t mirror_files;
    uint64_t open_handles;
    unsigned uploads_running, uploads_running_dirs, deletes_running, copies_running;
    unsigned renames;       /* intentions that copy */
    int64_t late_until_ns;  /* CLOCK_MONOTONIC; until then a put of a daemon that was killed may
                               still arrive; 0: none was under way */
    bool out_of_quota;      /* the store refused for space: deletes go first */
    int64_t unreachable_ns; /* since when every upload fails; 0 they don't */
    bool drain;             /* everything is wanted, staged files too */
    bool stopping;
    struct node **uploading; /* nodes whose upload runs */
    size_t n_uploading;
    struct dir_job *dir_jobs; /* directories whose upload runs */
    uint64_t kept_files;
    uint64_t hidden_names; /* of all directories */
    uint64_t uploaded_files, uploaded_bytes, downloaded_bytes;
    int last_error;
    char *last_error_text;
    struct pin *pins;
    struct ghost *ghosts;
    struct node **orphans; /* nameless nodes with a mirror file that reads from the store */
    size_t n_orphans, cap_orphans;

    struct waiter *wake_list, **wake_tail; /* taken off their queues, to be woken */
    pthread_cond_t wake;
    pthread_t wakers[WAKERS];
    unsigned n_wakers;

    struct pool *fetchers, *askers, *uploaders, *parts, *chores, *notifier;
    pthread_t scheduler;
    bool scheduler_runs;
    int64_t forgot_ns;   /* CLOCK_MONOTONIC; when names were last forgotten; the scheduler's */
    pthread_cond_t kick; /* the scheduler has something to look at */
    bool kicked;
    atomic_bool cancelled;     /* ends every store call */
    atomic_bool unconditional; /* the store refuses preconditions of uploads */
};

void ns_read(struct cache *c);
void ns_write(struct cache *c);
void ns_done(struct cache *c);

/* ---- wait.c ---- */
int wait_start(struct cache *c);
void wait_stop(struct cache *c);
void waitq_init(struct waitq *q);
/* Parks; always returns CACHE_PARKED, or -EINTR when the cache is stopping. */
int waitq_park_locked(struct cache *c, struct waitq *q, struct waiter *w) REQUIRES(&c->lock);
void waitq_wake_locked(struct cache *c, struct waitq *q, int err) REQUIRES(&c->lock);
/* Tells the kernel, from the notifying thread, that the node (name NULL) or entry changed. */
void notice_locked(struct cache *c, struct node *node, const char *name) REQUIRES(&c->lock);
void scheduler_kick_locked(struct cache *c) REQUIRES(&c->lock);

/* ---- tree.c ---- */
/* The next number in the order of closes and intentions. There is room after each for the
 * removals that a renamed directory turns into: they keep its place. */
#define SEQ_STEP (UINT64_C(1) << 24)
uint64_t seq_next_locked(struct cache *c);
struct node *node_new(struct cache *c, uint32_t mode);
void node_ref_locked(struct node *n);
/* Frees a node that has no names, lookups or references left. */
void node_unref_locked(struct cache *c, struct node *n) REQUIRES(&c->lock);
void node_collect_locked(struct cache *c, struct node *n) REQUIRES(&c->lock);
/* The default inode number of a key. */
uint64_t ino_of_key(struct cache *c, const char *key);
/* A number for something made here. */
uint64_t ino_fresh(struct cache *c, const char *key);
struct entry *entry_find(struct node *dir, const char *name);
/* Adds a name; the caller holds ns for writing and lock. NULL without memory. */
struct entry *entry_add_locked(struct cache *c, struct node *dir, const char *name,
                               struct node *n);
/* Takes the name away and frees the entry; the node may be freed with it. */
void entry_remove_locked(struct cache *c, struct entry *e) REQUIRES(&c->lock);
/* Moves an entry to another place. 0 or -ENOMEM; *e is the new entry. */
int entry_move_locked(struct cache *c, struct entry **e, struct node *dir, const char *name);
/* What is below the entry came to the store, or changed there: listings that were asked before
 * are not right about it, nor about the directories above. */
void entry_changed_locked(struct cache *c, struct entry *e) REQUIRES(&c->lock);
/* Paths, heap or NULL. The tree must be held still. */
char *entry_path(struct entry *e);
char *entry_key(struct entry *e); /* where the store has it now: a key needs the lock */
char *node_path(struct node *n);  /* of its first name; NULL when it has none */
char *node_key(struct node *n);
char *child_path(struct node *dir, const char *name);
char *child_key(struct node *dir, const char *name);
bool node_is_below(struct node *n, struct node *dir);
/* Looks a path up in memory; NULL when it is not known. */
struct node *tree_find(struct cache *c, const char *path, struct entry **ret_entry);
/* The same, making directories that are not known yet. */
struct node *tree_make_dirs_locked(struct cache *c, const char *path) REQUIRES(&c->lock);
/* Whether a listing begun at `listed_ns` may not show what the store has at `key` as `path`: it
 * was removed since, or an intention will remove it or move it elsewhere. */
bool ghost_hides(struct cache *c, const char *key, const char *path, int64_t listed_ns);
/* Whether an intention concerns this very key. */
bool ghost_pending(struct cache *c, const char *key);
/* An intention towards a key begins (+1) or ends (-1). */
void ghost_count_locked(struct cache *c, const char *key, int by, bool with_tree)
    REQUIRES(&c->lock);
void ghosts_free(struct cache *c);
void node_stat(struct node *n, struct stat *st);
/* Brings size and mtime of a file that someone writes up to date. */
void node_look_locked(struct cache *c, struct node *n) REQUIRES(&c->lock);
/* Calls visit for every node below and including n, parents first. */
int tree_each(struct node *n, int (*visit)(void *arg, struct node *n), void *arg);
void node_apply_attrs(struct cache *c, struct node *n, const struct object *obj);
void node_default_attrs(struct cache *c, struct node *n);

/* ---- file.c ---- */
struct file *file_new(struct node *n, enum file_state state);
void file_free_locked(struct cache *c, struct file *f) REQUIRES(&c->lock);
/* The descriptor, valid until file_put_fd_locked(). Takes ns for reading. */
int file_get_fd(struct cache *c, struct node *n, enum file_fd which);
/* The same for a caller that holds ns. */
int file_get_fd_held(struct cache *c, struct node *n, enum file_fd which);
void file_put_fd_locked(struct cache *c, struct file *f, enum file_fd which) REQUIRES(&c->lock);
/* Creates the mirror file of a node known from a listing; nothing to do when it is there. The
 * caller holds ns for writing. */
int file_materialise(struct cache *c, struct node *n);
/* Takes ns for writing. */
int file_need(struct cache *c, struct node *n);
/* Writes the stamp's attributes as the node is now. `fd` is its mirror file or directory. */
int node_write_stamp(struct cache *c, struct node *n, int fd);
/* The same, found by path; takes ns for reading. */
int node_save_stamp(struct cache *c, struct node *n);
/* The same by path, for a caller that holds ns; nothing when the mirror has no such file. */
int node_write_stamp_held(struct cache *c, struct node *n);
/* Writes the records of what the store holds. */
int file_write_keys(struct cache *c, struct node *n, int fd);
/* What fstat() says of the mirror file, into the node; marks it dirty when it changed. Under
 * the lock, so that an older look can't come after a younger one. 0 or -errno. */
int file_look_locked(struct cache *c, struct node *n, int fd, struct stat *ret_st)
    REQUIRES(&c->lock);
void file_account_locked(struct cache *c, struct file *f, uint64_t blocks_bytes)
    REQUIRES(&c->lock);
/* Whether the store has this generation, or a later one, under each name that it owes. */
bool file_stored_locked(struct node *n, uint64_t generation);
/* Its content may change at the store or here without a listing being right about it. */
bool node_is_ours(struct node *n);
void file_mark_dirty_locked(struct cache *c, struct node *n, bool content) REQUIRES(&c->lock);
/* Gives it its place in the order of closes and queues it. */
void file_queue_locked(struct cache *c, struct node *n) REQUIRES(&c->lock);
void file_unqueue_locked(struct cache *c, struct file *f) REQUIRES(&c->lock);
/* Puts a file into cache.dirty, or moves it there, where its first_seq belongs. */
void file_place_locked(struct cache *c, struct file *f) REQUIRES(&c->lock);
void file_lru_add_locked(struct cache *c, struct file *f) REQUIRES(&c->lock);
void file_lru_remove_locked(struct cache *c, struct file *f) REQUIRES(&c->lock);
/* The bytes are the store's no longer (another version is there): a closed file is dropped, an
 * open one becomes nameless and goes on with its old bytes. ns held for writing. */
int node_replaced(struct cache *c, struct entry *e, const struct object *obj);
/* Whether a file that was changed at this time could change again without its mtime moving. */
bool mtime_is_racy(int64_t mtime_ns);
/* Takes the mirror file of a node without open handles away. ns held for writing. */
int file_discard(struct cache *c, struct node *n);
/* The node loses its last name. ns held for writing, the mirror file still at `path`;
 * `replaced`: it stays there for the rename that takes its place. */
int file_orphan(struct cache *c, struct node *n, const char *path, bool replaced);

/* ---- open.c ---- */
/* Opens what the caller has just created: nothing to wait for. */
int file_open_made(struct cache *c, struct node *n, int flags, struct handle **ret);
/* A write at `off` found no room: what the file holds is not what its writer meant. */
void file_cut_locked(struct cache *c, struct node *n, uint64_t off) REQUIRES(&c->lock);
/* Truncates or extends. 0, CACHE_PARKED or an error. */
int file_truncate(struct cache *c, struct node *n, uint64_t size, struct waiter *w);

/* ---- fetch.c ---- */
/* 0, CACHE_PARKED, or an error: makes [off, end) present. */
int fetch_need_locked(struct cache *c, struct node *n, uint64_t off, uint64_t end,
                      uint64_t ahead, struct waiter *w) REQUIRES(&c->lock);
/* The same for the whole file, which is FILE_PARTIAL no longer when this returns 0. */
int fetch_complete_locked(struct cache *c, struct node *n, struct waiter *w) REQUIRES(&c->lock);

/* ---- dir.c ---- */
/* The directory's children are known, or it parks. `whole`: every page. */
int dir_need_locked(struct cache *c, struct node *dir, bool whole, struct waiter *w)
    REQUIRES(&c->lock);
/* mode, owner and mtime are known, or it parks. */
int attrs_need_locked(struct cache *c, struct node *n, struct waiter *w) REQUIRES(&c->lock);
/* Takes a name away that the store has no more. ns held for writing. 0, or -EBUSY when
 * something below it is ours. */
int entry_gone(struct cache *c, struct entry *e);
/* The version is confirmed no longer ago than attr_timeout, or it parks. */
int version_need_locked(struct cache *c, struct node *n, struct waiter *w) REQUIRES(&c->lock);

/* ---- attr.c ---- */
/* "clean", "partial", "dirty", "uploading", "failed", "staged". */
const char *node_state_name(struct node *n);

/* ---- publish.c ---- */
void *scheduler_main(void *arg);
/* A directory's marker or attributes are to be uploaded. */
void dir_queue_locked(struct cache *c, struct node *dir) REQUIRES(&c->lock);
void dir_unqueue_locked(struct cache *c, struct node *dir) REQUIRES(&c->lock);
bool path_is_staged(struct cache *c, const char *path);
bool path_is_log(struct cache *c, const char *path);
uint64_t barrier_seq_locked(struct cache *c);
/* ---- upload.c ---- */
/* Begins the upload of one of the node's names; `path` is taken over. */
void upload_start_locked(struct cache *c, struct node *n, char *path) REQUIRES(&c->lock);
/* Whether an upload to this very path, or below it, runs. */
bool upload_runs_at_locked(struct cache *c, const char *path, bool below) REQUIRES(&c->lock);
/* What an object's attributes are to be; released with attrs_release(). */
int node_attrs_locked(struct node *n, struct attrs *ret);
/* Marks a version that this cache puts to `key`, so that it is known again. */
void attrs_sign(struct cache *c, const char *key, struct attrs *a);
/* Whether this cache put it to `key`. */
bool attrs_are_ours(struct cache *c, const char *key, const struct attrs *a);
/* How long to wait after the n-th failure in a row, with jitter, in ns. */
int64_t retry_delay_ns(unsigned attempts);
/* ---- intent.c ---- */
struct intent *intent_new(uint64_t seq, enum intent_kind kind, const char *from, const char *to,
                          uint64_t ino, const char *etag);
void intent_free(struct intent *i);
void intent_add_locked(struct cache *c, struct intent *i);
void intent_remove_locked(struct cache *c, struct intent *i);
/* Writes the intention's row; the caller holds ns. 0 or a negative errno. */
int intent_record(struct cache *c, const struct intent *i);
/* The number of the newest intention; 0 without any. Those made later have a higher one. */
uint64_t intents_newest_locked(struct cache *c) REQUIRES(&c->lock);
/* The store has `path` in its new version: removals of it up to number `seq` are void. One that
 * was intended while that version was on its way is newer and stays.
 * Takes no lock itself; 0 or a negative errno. */
int intents_retire(struct cache *c, enum intent_kind kind, const char *path, uint64_t seq);
/* Whether a marker at `path` (or below it) is just being made. */
bool dir_upload_runs_at_locked(struct cache *c, const char *path, bool below)
    REQUIRES(&c->lock);
/* Markers and attributes of directories. */
void dirs_start_locked(struct cache *c, int64_t now, int64_t *next_due) REQUIRES(&c->lock);
/* Starts what may run; lowers *next_due to when something else may. */
void intents_start_locked(struct cache *c, int64_t now, int64_t *next_due);
/* Whether what the store has at `key` now will be at `path` when all intentions are done. */
bool intent_leads_to(struct cache *c, const char *key, const char *path);
/* Whether an intention concerns something below `path`. */
bool intent_below(struct cache *c, const char *path);
/* Whether the store is just renaming what is at `key`. */
bool rename_runs_at_locked(struct cache *c, const char *key) REQUIRES(&c->lock);
/* Whether the path itself is about to be removed at the store. */
bool removal_pending(struct cache *c, const char *path);
/* Whether an upload to `path` has to wait for an intention with a lower number. */
bool intent_blocks_upload_locked(struct cache *c, const char *path, uint64_t seq);
/* ---- evict.c ---- */
void evict_if_needed(struct cache *c);
/* 0, CACHE_PARKED while writers must wait, or -ENOSPC. */
int space_need_locked(struct cache *c, struct file *f, struct waiter *w) REQUIRES(&c->lock);
bool space_for_passthrough_locked(struct cache *c);
/* The disk itself had no room for a write: told in log and status. */
void space_disk_full_locked(struct cache *c) REQUIRES(&c->lock);
/* What is wrong with the space, for people; NULL when nothing is. */
const char *space_trouble_text(enum space_trouble trouble);
bool path_is_pinned(struct cache *c, const char *path);
int pins_load(struct cache *c);
void pins_free(struct cache *c);
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
void cache_check_locked(struct cache *c) REQUIRES(&c->lock);
#endif

/* A state change that the file's waiters, flushers and the scheduler want to know. */
void progress_locked(struct cache *c) REQUIRES(&c->lock);

#endif
