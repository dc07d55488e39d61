/* The tree of names in memory: nodes, the entries that name them, directories, inode numbers,
 * paths, and what is known of the store's object under each name. The room owns all of these:
 * the shape under `ns` and `lock`, the rest under `lock`; it calls core/ alone. */
#ifndef RUNFS_CACHE_TREE_TREE_H
#define RUNFS_CACHE_TREE_TREE_H

#include "cache/core/core.h"
#include "cache/core/workers.h"
#include "cache/tree/children.h"
#include "cache/types/debt.h"
#include "cache/types/etag.h"
#include "cache/types/place.h"
#include "common/table.h"

/* Other rooms keep parts of a node, and let go of them in these, which are called under the
 * lock. */
struct node_hooks {
    void (*nameless)(struct cache *c, struct node *n); /* its last name went */
    void (*end)(struct cache *c, struct node *n);      /* it is freed next */
};

/* The memory that a known name of some 16 bytes takes, with its share of the directory. */
#define NODE_BYTES 352

/* A name: the link between a directory and a node. */
struct entry {
    struct node *parent;
    struct node *node;
    struct entry *next_link; /* the node's other names */
    GUARDED_BY(cache_mutex) struct {
        struct place
            source; /* owned; where the store has it until a rename ran; none: at its path */
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
    uint32_t hash;   /* of the name; constant */
    uint16_t volume; /* constant but for an exchange of kinds; which of the stores has it; 0:
                        there is one, or none */
    GUARDED_BY(cache_mutex) struct {
        bool stable : 1;  /* its attributes were told when the second of its change was over */
        bool was_put : 1; /* from here */
        bool unseen : 1;  /* and no listing has shown it since */
        bool dirty : 1;   /* content or attributes under this name must go to the store */
        bool may_exist : 1; /* the store has, or may have, an object at this very path */
        bool tried : 1;     /* an upload to this path failed: ours may be there nevertheless */
        bool tried_before : 1; /* may_exist says just that, of the path before a rename */
        bool brought : 1;      /* a pending rename may bring here what a lost mount put */
        bool owed_before : 1;  /* an earlier mount owed something under the name, and this one
                                  has stored nothing there */
        bool failed : 1;  /* it failed, or came too early: the node's other names go first */
        bool refused : 1; /* the store takes other names, and not this one */
        bool scratch : 1; /* no store ever has it, as its route says */
        bool brought_here : 1; /* this mount put a version under the name, and knows of no
                                  other one that came since */
        bool compared : 1;     /* the version's content was compared by checksum */
        struct etag etag;      /* the store's version under this name */
    };
    char name[];
};

/* What this mount knows of a directory's attribute index, and owes it. */
struct dir_index {
    GUARDED_BY(cache_mutex) struct {
        struct debt debt;          /* in queue.owed, or in listings.small_dirs */
        bool known;                /* the store has one */
        unsigned news;             /* files whose attributes it may lack */
        int64_t first_ns, last_ns; /* CLOCK_MONOTONIC; of the news */
        int64_t absent_ns;         /* CLOCK_MONOTONIC; when the store had none; 0 never seen */
    };
};

/* What the routes make of a directory; it stays so wherever the directory may move. */
enum dir_kind {
    DIR_STORED,  /* one key of one store stands behind it; without routes all are this */
    DIR_IMPLIED, /* on the way to what is stored, or a store's root: no key is its own. One of
                    scratch, too, through which an earlier route leads */
    DIR_SCRATCH, /* no store ever has it, nor anything below it */
};

struct dir {
    struct node *node; /* constant; whose it is */
    struct children *children;
    uint32_t id;  /* constant; no other directory in memory has it */
    uint8_t kind; /* enum dir_kind; constant once it has a name */
    bool fixed;   /* the same; it always exists, and neither goes nor moves */
    GUARDED_BY(cache_mutex) struct {
        unsigned files;    /* of the children: they are no directories */
        int64_t found_ns;  /* CLOCK_MONOTONIC; when it came into the tree */
        int64_t listed_ns; /* CLOCK_MONOTONIC at the start of the last whole listing; 0 never */
        int64_t told_ns;   /* CLOCK_MONOTONIC at its end: from then on it is believed */
        int64_t
            unlisted_ns; /* CLOCK_MONOTONIC; when a listing failed, and none did not since */
        bool told_there; /* that listing showed something: the directory is there, too */
        bool local_only; /* made here, and no other node was seen to put anything below it */
        bool big;        /* more than a page: names are asked one by one */
        bool listing;    /* a listing is under way */
        bool new_here;   /* STAMP_NEW: the store must get a marker when it stays empty */
        bool bare;       /* STAMP_BARE: it stays here, and nothing is owed for it: of no key of
                            its own, and the store may have nothing below it */
        bool has_marker; /* the store has an object or directory of its own for it */
        bool stale_marker; /* and that may be of an older directory, with other attributes */
        bool mtime_set;    /* a user set its time, which the store must learn */
        bool time_early;   /* it did, before names that are owed, and that move it there */
        int64_t names_ns; /* CLOCK_MONOTONIC; since when who waits for it waits for a name in it
                             that comes; 0: not */
        unsigned stat_misses;  /* attributes asked one after the other: someone walks it */
        uint64_t hidden_names; /* that its last listing had and no path can show */
        /* of the marker whose attributes are known, a hash of what a listing says of it; 0: it
         * has none, or may have changed since */
        uint64_t marker_version;
        int64_t marker_mtime_ns; /* as it says; the directory's own moves with its names */
        struct etag put_etag;    /* of the marker that was put from here with its attributes; */
        uint32_t put_from_s, put_to_s; /* when the server can have taken it; 0: none was */
        struct dir_index index;
        struct list_ahead *ahead; /* of its children; NULL: nobody looked into them */
        struct query *queries;    /* names being asked one by one */
        struct waitq waiters;
        /* the request for its siblings that was to tell of it; 0 none */
        unsigned waited_page;
        struct debt debt; /* its own upload: a marker, or attributes */
        uint64_t generation;
        struct unit *unit; /* queue/'s; that it is the directory of, and not whole; or NULL */
        /* it is in no unit, and is none, until directories have moved so often; 0: not looked
         */
        uint32_t no_unit;
        int64_t overruled_ns; /* CLOCK_MONOTONIC; when the store's version of a name in it last
                                 stayed against what was meant here; 0 never */
    };
};

enum node_flags {
    NODE_ATTRS_KNOWN = 1 << 0, /* mode, owner and mtime are the store's or ours */
    NODE_ATTR_DIRTY = 1 << 1,  /* they are not in the store */
    NODE_DEFAULT_INO = 1 << 2, /* ino is the hash of the place */
    NODE_STATTING = 1 << 3,    /* a request for the attributes is under way */
    NODE_ATTRS_OLD = 1 << 4,   /* known, but the store may have others by now */
    NODE_REMOVED = 1 << 5,     /* removed: nothing can be made below or reached by it */
    NODE_REPLACED = 1 << 6, /* a name of it leads to another version now, or to none: open() and
                               truncate() get ESTALE, once if it has other names, and the
                               caller looks the name up */
    NODE_ATTRS_HEARSAY = 1 << 8, /* an index told the attributes, and they are confirmed before
                                    they give anybody rights */
    NODE_NO_SUM = 1 << 7,        /* the store was asked for this version, and has no checksum */
    NODE_SCRATCH = 1 << 9,       /* a file whose names are in no store, by their routes */
};

/* An inode. */
struct node {
    struct entry *links; /* its names; none for the root and for unlinked files */
    struct dir *dir;     /* constant; a directory */
    struct file *file;   /* not a directory, and the mirror holds it; of the shape, too */
    uint32_t slot;       /* constant; where tree_own.ids has it */
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
        uint64_t named_seq;
        uint32_t uid, gid, nlink;
        uint32_t rdev; /* as the kernel and FUSE have it */
        uint64_t size;
        int64_t mtime_ns, ctime_ns, atime_ns;
        uint64_t sum_value; /* of the store's version, as last told */
        char *target;       /* of a symlink, once known */
        char *xattrs;       /* JSON (xattr_set.h), or NULL; an access ACL in it follows mode */
    };
};

/* The next number in the order of closes and intentions. There is room after each for the
 * removals that a renamed directory turns into: they keep its place. */
#define SEQ_STEP (UINT64_C(1) << 24)

/* LastModified counts seconds: an answer that came later than this tells of the last version of
 * its second. */
#define STABLE_NS (2 * NS_PER_SEC)

/* The tree's part of a cache. */
struct tree {
    struct tree_own *own; /* constant; what only the room itself sees */
    struct node *root;    /* constant from the start to the stop */

    GUARDED_BY(cache_mutex) struct {
        uint64_t seq; /* last given */
        uint64_t nodes;
        uint64_t hidden_names; /* of all directories */
    };
};

/* ---- negative.c ---- */
/* Notes that the store had no such name in a large directory when it was asked at `asked_ns`
 * (CLOCK_MONOTONIC). */
void negative_note_locked(struct cache *c, const struct node *dir, const char *name,
                          int64_t asked_ns) REQUIRES(cache_mutex);
/* Whether the store said so less than `validity_ns` ago. */
bool negative_is_locked(struct cache *c, const struct node *dir, const char *name,
                        int64_t validity_ns) REQUIRES(cache_mutex);
/* Forgets that answer: something gets the name here. */
void negative_forget_locked(struct cache *c, const struct node *dir, const char *name)
    REQUIRES(cache_mutex);

/* ---- attrs.c ---- */
/* The time as a timespec; right before 1970, too. */
struct timespec timespec_of(int64_t ns);
/* Notes what the store told of the content's checksum. */
void node_sum_told_locked(struct node *n, const struct object *obj) REQUIRES(cache_mutex);
/* Gives the node what the store told of the object; the cache's defaults where it told
 * nothing. */
void node_apply_attrs(struct cache *c, struct node *n, const struct object *obj)
    REQUIRES(cache_mutex);
/* The same of another content than the node, or the one before it, had: ctime tells of it,
 * though size and mtime may be the same. */
void node_apply_version(struct cache *c, struct node *n, const struct object *obj)
    REQUIRES(cache_mutex);
/* Whether the node's attributes are right, as far as is known. */
bool node_attrs_known(const struct node *n) REQUIRES(cache_mutex);
/* Notes that the node's attributes are right. */
void node_attrs_are_known(struct node *n) REQUIRES(cache_mutex);
/* Gives the node the owner and the mode that the options name. */
void node_default_attrs(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* What an object's attributes are to be; released with attrs_release(). 0 or -ENOMEM. */
int node_attrs_locked(struct node *n, struct attrs *ret) REQUIRES(cache_mutex);
/* Makes the node's ACL follow its mode, after either came from elsewhere. */
void node_acl_follow(struct node *n) REQUIRES(cache_mutex);

/* ---- ino.c ---- */
/* Gives out the next number. */
uint64_t seq_next_locked(struct cache *c) REQUIRES(cache_mutex);
/* The last number given, plus room for the removals that its owner may turn into; never 0. */
uint64_t seq_now_locked(struct cache *c) REQUIRES(cache_mutex);
/* The default inode number of what lies at a place, a directory or something else. With routes
 * it follows from the store and its key alone, whatever other routes there are; of what has no
 * key of one store, from the path. Allocates nothing. */
uint64_t ino_of_place(struct cache *c, struct place at, bool dir);
/* The inode number of something found at a place: not the default one when a renamed node took
 * that along. */
uint64_t ino_of_found_locked(struct cache *c, struct place at, bool dir) REQUIRES(cache_mutex);
/* Notes that the node takes its number along from the name that it may come from. */
void node_keeps_ino_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* Notes the same of a node with this number, if the number is not the default one of the place
 * where a mount found it. */
void ino_stands_locked(struct cache *c, uint64_t ino, struct place at, bool dir)
    REQUIRES(cache_mutex);
/* Forgets those numbers of moved things that nothing has any more, now and then. ns held. */
void inos_purge_locked(struct cache *c) REQUIRES_SHARED(cache_ns) REQUIRES(cache_mutex);
/* Forgets all of them: nothing that had one is left. */
void inos_forget_locked(struct cache *c) REQUIRES(cache_mutex);
/* Makes a number for something made here. */
uint64_t ino_fresh(struct cache *c, const char *path);

/* ---- name_class.c ---- */
/* What the policy of the path's route says, and where it says nothing the mount's option. */

/* What a new file notes that is to wait for its rename (`upload` of its policy), also when that
 * is one of a directory above: a hash of the path, the same in every mount. 0: it waits for
 * none.
 */
uint64_t path_made_at(struct cache *c, const char *path);
/* Whether a part of the path is a staging name: what has it waits for a rename. */
bool path_is_staged(struct cache *c, const char *path);
/* The same of a directory. */
bool path_is_staged_dir(struct cache *c, const char *path);
/* Whether a part of the path is the name of a log, which is uploaded while it is open; or all
 * files there are. */
bool path_is_log(struct cache *c, const char *path);
/* How often such a file is uploaded while it is open; 0 never. */
int64_t path_interval_ns(struct cache *c, const char *path);
/* How long what was closed rests before its upload starts; a new directory never less than the
 * mount says. The tree must be held still. */
int64_t node_settle_ns(struct cache *c, struct node *n);
/* Whether files there go up before others. */
bool path_is_urgent(struct cache *c, const char *path);
/* The same of a file by its first name. The tree must be held still. */
bool node_is_urgent(struct cache *c, struct node *n);
/* Whether close() and fsync() wait for the store. The tree must be held still. */
bool node_waits_for_store(struct cache *c, struct node *n);
/* Whether an upload replaces what somebody else wrote meanwhile. */
bool path_overwrites(struct cache *c, const char *path);
/* Whether a file there may be the lock of a program, as its name says (`del_locks`). */
bool path_takes_lock_files(struct cache *c, const char *path);

/* ---- notice.c ---- */
/* Tells the kernel, from the notifying thread, that the node (name NULL) or entry changed. */
void notice_locked(struct cache *c, struct node *node, const char *name) REQUIRES(cache_mutex);

/* ---- paths.c ---- */
/* The path of an entry, a node, or a name in a directory; heap. NULL without memory, and below
 * a removed directory. The tree must be held still. */
char *entry_path(const struct entry *e);
char *node_path(struct node *n); /* of its first name; NULL when it has none */
char *child_path(struct node *dir, const char *name);
/* The place where the store has an entry, a node, or a name in a directory now; owned. None
 * below a removed directory, and without memory. */
struct place entry_place(struct entry *e) REQUIRES(cache_mutex);
struct place node_place(struct node *n) REQUIRES(cache_mutex);
struct place child_place(struct node *dir, const char *name) REQUIRES(cache_mutex);
/* entry_place() of an entry that moves away from it: its own source is taken. Without memory it
 * is `*before`, which is taken, too: entry_place() of a moment ago, which only the end of a
 * copy since then makes an older one. */
struct place entry_take_place_locked(struct entry *e, struct place *before)
    REQUIRES(cache_mutex);
/* Whether a name of the node other than `e` (or NULL) lies at this place: of two names one can
 * come to a path whose object is still to follow the other. */
bool name_shares_place(const struct entry *e, const struct node *n, struct place at)
    REQUIRES(cache_mutex);
/* The node's name that the store has at this place, or NULL. */
struct entry *node_name_at(struct node *n, struct place at) REQUIRES(cache_mutex);
/* Whether the node is the directory, or below it by its first name. The tree must be held
 * still. */
bool node_is_below(struct node *n, struct node *dir);
/* Looks a path up in memory; NULL when it is not known, for no other reason. */
struct node *tree_find(struct cache *c, const char *path, struct entry **ret_entry);
/* Whether one of the node's names is this path, or below it. Takes no memory either. */
bool node_is_named_below(struct cache *c, struct node *n, const char *path);
/* Looks a directory up, and makes directories that are not known yet. NULL without memory, and
 * where a file is in the way. */
struct node *tree_make_dirs_locked(struct cache *c, const char *path)
    REQUIRES(cache_ns, cache_mutex);
/* Calls visit for every node below and including n, parents first. */
int tree_each(struct node *n, int (*visit)(void *arg, struct node *n), void *arg);

/* ---- room.c ---- */
/* Makes the room's part of the cache. 0 or -ENOMEM. */
int tree_new(struct cache *c, const struct node_hooks *hooks);
/* Makes the root, once the cache's identity is known. 0 or -ENOMEM. */
int tree_open(struct cache *c) EXCLUDES(cache_mutex);
/* Frees the room's part, once all nodes are gone. Accepts a cache without that part. */
void tree_free(struct cache *c) EXCLUDES(cache_mutex);
/* The room's numbers of the status. */
void tree_stats_locked(struct cache *c, struct cache_stats *ret) REQUIRES(cache_mutex);

/* ---- routing.c ---- */
/* The route that takes a file (or a directory) of this path; NULL: none does, or there are no
 * routes. */
const struct route *path_route(struct cache *c, const char *path, bool dir);
/* The policy of that route; NULL: the mount's options say all. */
const struct policy *path_policy(struct cache *c, const char *path, bool dir);
/* What is told of that route. */
struct cache_routed path_routed(struct cache *c, const char *path, bool dir);
/* Which store has a file (or a directory) of this path, from 1; 0: no single one. */
unsigned path_volume(struct cache *c, const char *path, bool dir);
/* The same of what the node's first name leads to. */
unsigned node_volume(const struct node *n);
/* That of a directory in which no other store has a part, at or below it; 0: there is one
 * store, several have a part, or none; or no memory. */
unsigned dir_lone_volume(struct cache *c, const char *path);
/* Whether the two may mean one store; 0 is several. */
bool volumes_meet(unsigned a, unsigned b);
/* How many numbers there are of that kind. */
unsigned volumes_count(const struct cache *c);
/* The URL of the store with that number, for messages. */
const char *volume_url(const struct cache *c, unsigned volume);
/* What a call of the store asks of a path there. */
enum question { QUESTION_READ, QUESTION_STAT, QUESTION_STAT_DIR, QUESTION_LIST };
/* Which stores have to answer it; of a place that is not known, and without routes, none. */
struct store_set stores_asked(struct cache *c, struct place at, enum question question);
/* What a directory of this path is. */
enum dir_kind path_dir_kind(struct cache *c, const char *path);
/* Notes in the directory what its path is. */
void dir_take_route(struct cache *c, struct dir *d, const char *path);
/* Whether the directory exists whatever stores say, and can't be removed or moved. */
bool path_is_fixed(struct cache *c, const char *path);
/* Whether the names of the directory are those of several stores. */
bool path_is_joint(struct cache *c, const char *path);
/* Whether the directory may be there though no store has anything under its own key. */
bool path_may_lack_key(struct cache *c, const char *path);
/* Whether no store can have a file or a directory there. */
bool path_is_in_no_store(struct cache *c, const char *path);
/* Whether a file of this path is in no store, by its route. */
bool path_is_scratch(struct cache *c, const char *path);
/* Whether the routes keep anything out of all stores. */
bool routes_have_scratch(struct cache *c);
/* Notes whether the file that is to come to the path is scratch, for its next stamp, whatever
 * was noted before: it did not come there. A file without a name (path "") is nothing yet. */
void node_mark_scratch_locked(struct cache *c, struct node *n, const char *path)
    REQUIRES(cache_mutex);
/* Whether the file, which has a name, is in no store, by its route. */
bool node_is_scratch(const struct node *n) REQUIRES(cache_mutex);
/* Whether the directory is there, and owed to nobody, whatever the stores say of it. */
bool dir_is_local(const struct dir *d) REQUIRES(cache_mutex);
/* The store has, or may have, something below a bare directory: it is there as long as the
 * store says so. Whether that is new, and the stamp must learn it. */
bool dir_dress_locked(struct node *dir) REQUIRES(cache_mutex);
/* Makes the fixed directories. 0 or -ENOMEM. */
int fixed_dirs_make_locked(struct cache *c) REQUIRES(cache_ns, cache_mutex);

/* ---- tree.c ---- */
/* Makes a node without names and references. NULL without memory. */
struct node *node_new(struct cache *c, uint32_t mode) REQUIRES(cache_mutex);
/* Keeps the node from being freed until node_unref_locked(). */
void node_ref_locked(struct node *n) REQUIRES(cache_mutex);
/* Frees a node that has no names, lookups or references left. */
void node_unref_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* Frees the node if nothing has it any more: no name, lookup or reference. */
void node_collect_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* Frees the nodes that only the kernel held, at the end. */
void detached_free_locked(struct cache *c) REQUIRES(cache_mutex);
/* The directory's name in memory, or NULL. The tree must be held still. */
struct entry *entry_find(struct node *dir, const char *name);
/* A name made ready: what it takes to enter it is there, and then nothing can fail. */
struct seat {
    struct entry *entry;   /* in no list; NULL: there is none */
    struct children *room; /* for it, if its directory needs more; else NULL */
    char *path;            /* where routes lead on from there; else NULL */
};

/* Makes a name of the directory ready for the node. ns stays held for writing until it is
 * entered or released. 0 or -ENOMEM. */
int seat_take_locked(struct cache *c, struct node *dir, const char *name, struct node *n,
                     struct seat *ret) REQUIRES(cache_ns, cache_mutex);
/* Frees what was not entered; else does nothing. */
void seat_release(struct seat *s);
/* The node gets the name, which nothing has by then. */
struct entry *seat_enter_locked(struct cache *c, struct seat *s)
    REQUIRES(cache_ns, cache_mutex);
/* Adds a name; the caller holds ns for writing and lock. NULL without memory. */
struct entry *entry_add_locked(struct cache *c, struct node *dir, const char *name,
                               struct node *n) REQUIRES(cache_ns, cache_mutex);
/* Notes what the routes make of a name of this path that leads to another kind of node now. */
void entry_take_route_locked(struct cache *c, struct entry *e, const char *path)
    REQUIRES(cache_ns, cache_mutex);
/* Takes the name away and frees the entry; the node may be freed with it. */
void entry_remove_locked(struct cache *c, struct entry *e) REQUIRES(cache_ns, cache_mutex);
/* Moves an entry to another place, that of a seat for its node: frees it, and returns the one
 * that stands for it. */
struct entry *entry_move_locked(struct cache *c, struct entry *old, struct seat *s)
    REQUIRES(cache_ns, cache_mutex);

/* ---- version.c ---- */
/* Notes that the entry's attributes are those of the version that the store told. */
void entry_told(struct entry *e, const struct object *obj) REQUIRES(cache_mutex);
/* entry_told() for a version put from here, which took `took_ns`: the answer says when it came.
 */
void entry_put(struct entry *e, const struct object *obj, int64_t took_ns)
    REQUIRES(cache_mutex);
/* A listing that was asked then told of a name that was not known; NULL: of a directory. */
void entry_is_listed_first_locked(struct entry *e, const char *etag, int64_t asked_ns)
    REQUIRES(cache_mutex);
/* The store's version took the place of what was known under the name, or is told anew. */
void entry_took_version_locked(struct entry *e, const struct object *obj) REQUIRES(cache_mutex);
/* A record of the mirror file, or a row of the journal, says which version the store has there,
 * or will have. */
void entry_is_noted_locked(struct entry *e, const char *etag) REQUIRES(cache_mutex);
/* An upload under the name became this version just now. */
void entry_got_stored_locked(struct entry *e, const char *etag) REQUIRES(cache_mutex);
/* The version that was known goes on as this one: copied to the name, put where the name's copy
 * reads from, or given other attributes. */
void entry_version_went_on_locked(struct entry *e, const char *etag) REQUIRES(cache_mutex);
/* Which version the store has is not known any more, nor whether it has one. */
void entry_version_lost_locked(struct entry *e) REQUIRES(cache_mutex);
/* It is about to be freed: so is what is known of its version. */
void entry_ends_locked(struct entry *e) REQUIRES(cache_mutex);
/* Notes that a listing showed the version whose attributes are known. */
void entry_seen(struct entry *e, const struct object *obj) REQUIRES(cache_mutex);
/* Tells from the server's answer when it can have taken what was put from here. False when the
 * answer does not say. */
bool put_window(const struct object *obj, int64_t took_ns, uint32_t *ret_from_s,
                uint32_t *ret_to_s);
/* Forgets when the version came to be. */
void entry_forget_version(struct entry *e) REQUIRES(cache_mutex);
/* The store has, or may have, an object under the name, whoever put it there. */
void entry_may_exist_locked(struct entry *e) REQUIRES(cache_mutex);
/* Makes the next listing find that the version moved: the store may have other attributes. */
void entry_expire(struct entry *e) REQUIRES(cache_mutex);
/* Whether the listed object can be another version than that whose attributes are known,
 * although its etag is the same. */
bool entry_moved(const struct entry *e, const struct object *obj) REQUIRES(cache_mutex);
/* The store confirmed it at that time (CLOCK_MONOTONIC); 0: the next look asks. */
void entry_verified_locked(struct entry *e, int64_t at_ns) REQUIRES(cache_mutex);
/* A listing that was asked then showed it: the last one counts. */
void entry_listed_locked(struct entry *e, int64_t asked_ns) REQUIRES(cache_mutex);
/* Whether the content of the version that is known was compared with what this cache sent, read
 * or has, by checksum; forgotten with the version. */
void entry_compared_locked(struct entry *e, bool compared) REQUIRES(cache_mutex);
/* It changed from here: older listings are not right about it. */
void entry_changed_here_locked(struct entry *e) REQUIRES(cache_mutex);
/* Content or attributes must go to the store under this name; or need not any more. */
void entry_owes_locked(struct entry *e, bool owes) REQUIRES(cache_mutex);
/* Whether something must go to the store under one of the node's names; under all of them. */
bool names_owe(const struct node *n) REQUIRES(cache_mutex);
bool names_all_owe(const struct node *n) REQUIRES(cache_mutex);
/* The store has that generation under this name; `same`: nothing was written since. */
void entry_sent_locked(struct entry *e, uint64_t generation, bool same) REQUIRES(cache_mutex);
/* An upload under this name failed, or came too early: the node's other names go first. */
void entry_not_sent_locked(struct entry *e, bool may_be_there) REQUIRES(cache_mutex);
/* Each name had its turn. */
void entry_another_round_locked(struct entry *e) REQUIRES(cache_mutex);
/* The store refused the name; `for_good`: and takes others. */
void entry_refused_locked(struct entry *e, bool for_good) REQUIRES(cache_mutex);
/* entry_move_locked() brought it to another path, where the store has, or may have, something.
 */
void entry_moved_here_locked(struct entry *e, bool may_exist) REQUIRES(cache_mutex);
/* entry_move_locked() made `e` for what `old` was, which ends: it takes along what is known of
 * the version, and whether that is owed. */
void entry_taken_along_locked(struct entry *e, struct entry *old) REQUIRES(cache_mutex);
/* Something else comes to the name: `*ret`, of which none was known, is the version that it
 * replaces. */
void entry_is_replaced_locked(struct entry *e, struct etag *ret) REQUIRES(cache_mutex);
/* The store's version does not come along: an upload replaces `replaces` there, which is taken
 * over. */
void entry_version_left_locked(struct entry *e, struct etag *replaces) REQUIRES(cache_mutex);
/* Whether an upload of what had the name may have put something there; `owed_before` as it was.
 */
void entry_takes_place_of_tried_locked(struct entry *e, bool tried, bool owed_before)
    REQUIRES(cache_mutex);
/* A directory above it moved: it takes along what an upload put (`sending`: puts), or may have
 * put, under the older path. */
void entry_carried_locked(struct entry *e, bool sending) REQUIRES(cache_mutex);
/* No store has refused the path that it has now. */
void entry_has_new_path_locked(struct entry *e) REQUIRES(cache_mutex);
/* Their nodes changed places, and what is known of the versions goes with them. */
void entries_exchange_locked(struct entry *a, struct entry *b) REQUIRES(cache_mutex);
/* Another file has the name, of which the store has nothing there; `may_exist`: it has
 * something else. */
void entry_got_other_file_locked(struct entry *e, bool may_exist) REQUIRES(cache_mutex);
/* So did the objects at the store, if `rows`. */
void entry_exchanged_locked(struct entry *e, bool rows) REQUIRES(cache_mutex);
/* A rename's copy came to where it reads from; `at_own_path`: and that is its own path. */
void entry_copied_here_locked(struct entry *e, bool at_own_path) REQUIRES(cache_mutex);
/* An upload under the name is to replace that version there, NULL: none, and no other. */
void entry_replaces_locked(struct entry *e, const char *etag) REQUIRES(cache_mutex);
/* Recovery found it in the mirror; `stored`: by its records the store has something there, else
 * at most what this cache put there. */
void entry_found_locked(struct entry *e, bool stored) REQUIRES(cache_mutex);
/* What an earlier mount left for the name is not in the store: another node may have put
 * something there, which nobody here has looked at. */
void entry_owed_before_locked(struct entry *e) REQUIRES(cache_mutex);
/* A pending rename may bring there what a lost mount put. */
void entry_brought_locked(struct entry *e) REQUIRES(cache_mutex);
/* Makes the next look ask the store, which has something else at the path than this mount
 * believed. */
void name_is_the_stores_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);

#endif
