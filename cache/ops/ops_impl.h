/* What the files of ops/ share. */
#ifndef RUNFS_CACHE_OPS_OPS_IMPL_H
#define RUNFS_CACHE_OPS_OPS_IMPL_H

#include "cache/ops/ops.h"

struct kept_name;

/* What programs have open, of a whole cache. */
struct opened {
    GUARDED_BY(cache_mutex) struct {
        uint64_t open_handles;
        struct kept_name *kept;       /* in the order in which they went */
        struct kept_view *kept_views; /* by key */
        int64_t
            refused_ns; /* CLOCK_MONOTONIC; when the log was told of a path without a route */
    };
};

struct making {
    struct node *parent;
    const char *name;
    const char *target; /* of a symlink */
    uint32_t mode;
    uint64_t rdev;
    const struct cache_cred *cred;
    bool keep_fd; /* of a file that is opened next: FD_WRITE is in use when it is made */
    bool begins;  /* by that handle: it is among file.beginners */
    /* A directory's: dir_may_hold_locked() as it was when the names of the parent were known;
     * they may be taken back before the name is made. Anything else is to find nothing there:
     * what another node puts meanwhile is theirs. */
    bool may_exist;
};

/* Where the view of a lock shows what is kept, as it did before. */
struct kept_view {
    UT_hash_handle hh; /* in opened.kept_views, by key */
    struct kept_view *next;
    struct node *node; /* that of the kept name */
    uint64_t id;       /* the lock's */
    const char *rel;   /* in `key` */
    char key[];        /* "ID/REL" */
};

/* A name that was removed, or replaced, while a deletion lock hid that: what it led to is here
 * as long as one of those locks is. What is not guarded is constant. */
struct kept_name {
    struct kept_name *prev, *next; /* the list's, under the lock; then of who took it off */
    char *path;
    uint64_t seq;          /* its place in the order; older locks count */
    struct node *node;     /* referenced */
    struct handle *handle; /* of a file, for reading; else NULL */
    struct kept_view *views;
};

/* A name that is about to go, and who takes it away. */
struct leaving {
    struct process_line who;
    struct kept_name *kept; /* what a lock keeps of it; NULL: none does */
};

#define STEP_ROWS_MAX 3

/* A change of the namespace. Who makes it has looked whether it may be, and made ready what it
 * takes; ns stays held for writing from then on. */
struct step {
    struct cache *cache;
    /* The rows, which are in no list before the tree has changed, and the entry (or NULL) whose
     * version each of them means. */
    struct intent *rows[STEP_ROWS_MAX];
    struct entry *of[STEP_ROWS_MAX];
    size_t n_rows;
    /* The mirror; with ns. A negative errno: nothing has changed there. */
    int (*on_disk)(struct step *s);
    /* The tree in memory, which can't fail; with ns and lock. */
    void (*in_tree)(struct step *s);
    const char *rows_point, *disk_point; /* crash points behind each, or NULL */
    struct node *left;                   /* the directory that loses a name, or NULL */
};

struct moving {
    struct step step;
    struct entry *from, *to; /* `to` NULL: the name is free */
    struct node *newparent;
    const char *newname;
    char *from_path, *to_path;
    bool crosses;           /* to another store: as one that was never uploaded */
    bool copies;            /* the store's object moves: a rename row */
    bool removes;           /* the store may have the old name: an unlink row */
    bool may_hold;          /* a name that is free here: the store may have it */
    bool may_exist;         /* the same of a directory: as in struct making */
    uint64_t made_seq;      /* of what no store ever had: when it got its name; else 0 */
    struct seat seat;       /* of the new name */
    struct place places[2]; /* owned; where the store has `from` and, of an exchange, `to` */
    uint64_t orphan; /* orphans/<it> is what lost its last name by the move; 0: nothing */
};

/* What S3 takes as user metadata is 2 KiB in all; attributes and names need some of it. */
#define XATTRS_MAX 1600

/* ---- changing ---- */

struct edit {
    const char *name;
    const void *value; /* NULL removes */
    size_t size;
    int flags;
    bool sets_mode; /* an access ACL does */
    uint32_t mode;
};

/* ---- acl.c ---- */
/* Adds the ACL to the set `*xattrs`, which is replaced. */
int acl_add(char **xattrs, const char *name, const void *value, size_t size);
/* The ACL could not be written: the mode is what it was, unless a chmod came between, and what
 * was not owed before is not owed. */
void acl_widen_mode(struct cache *c, struct node *n, const struct narrowed *narrowed, int fd)
    EXCLUDES(cache_mutex);
/* Removes the ACL. A missing one is a success, as in the kernel's own filesystems. */
int acl_remove(struct cache *c, struct node *n, const char *name);
/* Sets one of the two ACLs of a node; an empty one is removed. 0, CACHE_PARKED or a negative
 * errno: -EOPNOTSUPP without the option or for a symlink, -EINVAL for a text that is no ACL. */
int acl_set(struct cache *c, struct node *n, const char *name, const void *value, size_t size,
            int flags, struct waiter *w) EXCLUDES(cache_mutex);

/* ---- admit.c ---- */
/* Whether a file (or a directory) may get the name: 0; -EPERM where no route leads, or to a
 * key that a store keeps for itself; -EINVAL, -EILSEQ, -ENAMETOOLONG: the route can't store the
 * name. */
int name_admit_locked(struct cache *c, struct node *parent, const char *name, bool dir)
    REQUIRES(cache_mutex);
/* Whether a directory has the name that is neither removed nor moved. */
bool name_is_fixed_locked(struct cache *c, struct entry *e) REQUIRES(cache_mutex);
/* The same as name_admit_locked() of one more name of the file; -EXDEV: in another store. */
int name_link_admit_locked(struct cache *c, struct node *n, struct node *parent,
                           const char *name) REQUIRES(cache_mutex);
/* Whether what has the name `from` may get the other one, which `to` (or NULL) has: 0; -EXDEV,
 * -EBUSY or -ENOTEMPTY of a fixed directory, and what name_admit_locked() answers, of a
 * directory also for the routes that lead on below it. */
int name_move_admit_locked(struct cache *c, struct entry *from, struct node *newparent,
                           const char *newname, struct entry *to, unsigned flags)
    REQUIRES(cache_mutex);
/* Whether a file that may move from one path to the other leaves its store. */
bool name_crosses_locked(struct cache *c, const struct node *n, const char *from,
                         const char *to) REQUIRES(cache_mutex);
/* The name through which one of two goes that change places, a directory or a file; heap, NULL
 * without memory. Another number gives another name. It is in the root, with routes beside
 * `beside`. */
char *exchange_passage(struct cache *c, const char *beside, uint64_t number);

/* ---- create.c ---- */
/* Makes a node for `path` ("" without one) that has no name yet. NULL without memory. */
struct node *node_make_locked(struct cache *c, const struct making *m, const char *path)
    REQUIRES(cache_mutex);
/* Makes the file, or the directory, with its stamps in the mirror. ns held for writing. */
int node_make_in_mirror(struct cache *c, struct node *n, const char *path, bool keep_fd)
    REQUIRES(cache_ns) EXCLUDES(cache_mutex);
/* A new node gets what its parent's default ACL hands on, else its mode loses the umask. 0 or
 * -ENOMEM. */
int node_inherit_acl_locked(struct cache *c, struct node *n, const struct node *parent,
                            uint32_t umask) REQUIRES(cache_mutex);
/* A name came to the directory, or went. */
void dir_touch_locked(struct node *dir) REQUIRES(cache_mutex);
/* Whether the store has, or may have, an object under the entry's path. */
bool entry_may_be_stored(struct entry *e) REQUIRES(cache_mutex);
/* Whether all that the directory has was seen, and nothing of it forgotten since. */
bool dir_was_listed(const struct dir *d) REQUIRES(cache_mutex);
/* Whether no store can have the name in the directory: what is not known of it is not there. */
bool name_is_in_no_store_locked(struct cache *c, struct node *parent, const char *name)
    REQUIRES(cache_mutex);
/* Makes sure that the directory takes changes and its names are known; or parks. For a name
 * that is in no store nobody is asked for those of others. */
int name_parent_ready_locked(struct cache *c, struct node *parent, const char *name,
                             struct waiter *w) REQUIRES(cache_mutex);
/* How many bytes the longest known key has below that of `n`; of a directory's marker one. */
size_t name_longest_below(struct node *n);
/* Whether the store can take an object of this name, with `below` bytes behind it: asked when
 * the name is made, since an upload can only fail. */
int name_key_fits_locked(struct cache *c, struct node *parent, const char *name, size_t below)
    REQUIRES(cache_mutex);
/* A directory whose last name went must be kept alive by a marker of its own. Whether that is
 * owed from now on, which name_note_marker() is to note. ns held for writing. */
bool name_maybe_marker_locked(struct cache *c, struct node *dir) REQUIRES_SHARED(cache_ns)
    REQUIRES(cache_mutex);
/* That the directory needs a marker is on the disk before the removal is answered. ns held for
 * writing. */
void name_note_marker(struct cache *c, struct node *dir) REQUIRES_SHARED(cache_ns)
    EXCLUDES(cache_mutex);
/* Notes that the entry came to its directory: times, negative entries. */
void name_gained_locked(struct cache *c, struct entry *e) REQUIRES(cache_mutex);

/* ---- durability.c ---- */
/* "cache": the store lacks something of the node, or of what is below it; "store": it has all
 * that is known; "verified": and each content was compared by checksum. A constant. */
const char *node_durability_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);

/* ---- deletion.c ---- */
/* Finds out, before the tree is held still, who removes the name (if a lock could refuse it)
 * and opens what a lock is to keep of it. 0, CACHE_PARKED or a negative errno.
 * leaving_release() frees the result in any case. */
int leaving_ready(struct cache *c, struct node *parent, const char *name, struct waiter *w,
                  struct leaving *l) EXCLUDES(cache_ns, cache_mutex);
/* Whether a lock refuses that the path goes (`above`: with all below it): 0 or -EBUSY. */
int leaving_admit_locked(struct cache *c, const struct leaving *l, const char *path, bool above)
    REQUIRES(cache_mutex);
/* -EAGAIN: a lock is to keep what the entry leads to, and leaving_ready() did not see to it.
 * Else 0 or -ENOMEM. */
int leaving_keeps_locked(struct cache *c, const struct leaving *l, const struct entry *e,
                         const char *path) REQUIRES(cache_mutex);
/* The name is gone: what is kept is the locks' from now on. */
void leaving_gone(struct cache *c, struct leaving *l) EXCLUDES(cache_mutex);
void leaving_release(struct cache *c, struct leaving *l) EXCLUDES(cache_ns, cache_mutex);
/* Locks go along with what was moved, by one or both (an exchange) of two moves. ns held for
 * writing. */
void deletion_moved(struct cache *c, const struct lock_move *moves, size_t n) REQUIRES(cache_ns)
    EXCLUDES(cache_mutex);

/* ---- locked.c ---- */
/* The path, which leads to the node, is about to go: finds out where views show it, in
 * k->views. 0 or -ENOMEM. */
int kept_views_find_locked(struct cache *c, struct kept_name *k, const char *path)
    REQUIRES(cache_mutex);
/* It went, and is shown there from now on; or is kept no more. */
void kept_views_begin_locked(struct cache *c, const struct kept_name *k) REQUIRES(cache_mutex);
void kept_views_end_locked(struct cache *c, const struct kept_name *k) REQUIRES(cache_mutex);

/* ---- lock_file.c ---- */
/* Whether a new file of this name in the directory is the lock of the program that asks:
 * `*ret_pid` is the process in its name. */
bool lock_file_is_asked_locked(struct cache *c, struct node *parent, const char *name,
                               pid_t *ret_pid) REQUIRES(cache_mutex);
/* Makes it, as cache_create() does; the process is `own` to itself. -ENOTUNIQ: it is an
 * ordinary file, since the program asks for another one's. */
int lock_file_create(struct cache *c, struct node *parent, const char *name, pid_t own,
                     uint32_t mode, int flags, const struct cache_cred *cred, struct waiter *w,
                     struct node **ret_node, struct stat *st, struct handle **ret)
    EXCLUDES(cache_ns, cache_mutex);
/* The program has the file open for writing once more, if it is its own lock. */
void lock_file_opened(struct cache *c, const struct node *n, const struct waiter *w)
    EXCLUDES(cache_mutex);
/* unlink() of a name that may be a lock: 0 or -EBUSY; -ENOENT: it is none. */
int lock_file_unlink(struct cache *c, const struct node *parent, const char *name,
                     const struct waiter *w) EXCLUDES(cache_mutex);
/* Whether the node is such a file. */
bool node_is_lock_file_locked(struct cache *c, const struct node *n) REQUIRES(cache_mutex);

/* ---- durable.c ---- */
/* Both return 0 when the store has what was so at the first call with this waiter, or a
 * negative errno of an attempt that failed since then, or they park. */

/* The store has the renamed file, or directory above it, under its new name. */
int durable_file_locked(struct cache *c, struct node *n, struct waiter *w)
    REQUIRES(cache_mutex);
/* The store has the directory's names: those that came, went, or were renamed, with the content
 * of closed files; itself and the directories in it, by their markers where no name in them is
 * there yet. Files never closed nor synced are left out, and so are directories under a staging
 * name. -ESTALE: the store's version of a name stayed: somebody else's, or one whose removal
 * was taken back. */
int durable_dir_locked(struct cache *c, struct node *dir, struct waiter *w)
    REQUIRES(cache_mutex);

/* ---- exchange.c ---- */
/* Makes sure that all below the directory is known, or parks: a directory that changes places
 * with a file may have no hidden name anywhere below it. */
int exchange_need_tree_locked(struct cache *c, struct node *dir, struct waiter *w)
    REQUIRES(cache_mutex);
/* Whether the two may change places: 0 or a negative errno; -EAGAIN: ask again. */
int exchange_check(struct moving *m);
/* The two change places. ns held for writing. 0 or a negative errno; -EAGAIN: ask again. */
int exchange_ns_locked(struct cache *c, struct moving *m) REQUIRES(cache_ns);

/* ---- handle.c ---- */
/* Which of the file's two descriptors the handle uses. */
enum file_fd handle_fd_of(const struct handle *h);

/* ---- open.c ---- */
/* Opens a file that the caller has just created: nothing to wait for. */
int file_open_made(struct cache *c, struct node *n, int flags, struct handle **ret);
/* The handle is about to make the content anew. Whether it was not doing that before. */
bool handle_begin_anew(struct cache *c, struct handle *h) EXCLUDES(cache_mutex);
/* -ESTALE: a name of the node leads to another version, or to none, by now. */
int node_is_replaced_locked(struct node *n) REQUIRES(cache_mutex);
/* Whether the disk must have what the handle writes before the write is answered. The kernel
 * sees to it by an fsync() of each write that came by the daemon; past it the data is synced,
 * and no stamp says so. */
bool handle_writes_synced(const struct handle *h);
/* The handle gives back the descriptor that it kept for as long as it was open, if it did. */
void handle_unkeep_fd_locked(struct cache *c, struct handle *h) REQUIRES(cache_mutex);
/* Takes the handle off its file's counts, and lets the file be evicted with the last one.
 * Frees the handle, and the node if nothing else has it. */
void handle_leave_locked(struct cache *c, struct handle *h) REQUIRES(cache_mutex);
/* Later changes are changes of something whole. Whether the stamp must learn it. */
bool handle_end_begun_locked(struct handle *h) REQUIRES(cache_mutex);
/* The writer who made the content anew closes the file: it is whole as it is now. The writer
 * may have more descriptors, so that this holds until the next write; after the last close it
 * holds for good. Whether the stamp must learn it. */
bool handle_declare_whole_locked(struct handle *h, const struct stat *st) REQUIRES(cache_mutex);
/* The file is about to change. A write past the daemon moves its mtime or size instead. */
int handle_withdraw_whole(struct cache *c, struct node *n, int fd) EXCLUDES(cache_mutex);
/* Opens a file whose mirror file can be made at once. 0 or a negative errno: -ESTALE when a
 * name of it leads to another version by now. `*ret` belongs to the caller. */
int handle_open_file(struct cache *c, struct node *n, int flags, struct handle **ret)
    EXCLUDES(cache_ns, cache_mutex);

/* ---- owed.c ---- */
/* Says in numbers what the store lacks of all at and below the node; heap, or NULL. */
char *node_owed_text_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);

/* ---- rename.c ---- */
/* Notes in the file's stamp what an upload to its coming name is to replace. `e` has that name
 * now, or NULL: nothing, then. ns held for writing. */
void name_expect(struct cache *c, struct node *n, const char *mirror_path, struct node *dir,
                 const char *name, struct entry *e) REQUIRES(cache_ns) EXCLUDES(cache_mutex);
/* For tree_each(): not 0 when the store may have one of the node's names. */
int node_may_be_stored(void *arg, struct node *n) REQUIRES(cache_mutex);
/* The paths of the node, and of all below it, are others now. Uploads under the old ones stop,
 * what waits gets its new name. What arrives below a directory nevertheless is moved along. */
void node_requeue_all_locked(struct cache *c, struct node *moved) REQUIRES(cache_mutex);
/* node_renumber() for all that comes to such a name with a directory. */
int node_renumber_below(struct cache *c, const char *from, const char *to) REQUIRES(cache_ns)
    EXCLUDES(cache_mutex);

/* ---- step.c ---- */
/* Numbers the row, which belongs to the step from then on, `e` or NULL as in `of`. -ENOMEM when
 * `i` is NULL, else 0. */
int step_add_row_locked(struct step *s, struct intent *i, struct entry *e)
    REQUIRES(cache_mutex);
/* Rows, mirror, tree. 0, or a negative errno: nothing has changed, what was written is taken
 * back. */
int step_run(struct step *s) REQUIRES(cache_ns) EXCLUDES(cache_mutex);
/* Frees the rows of a step that was not made. */
void step_release(struct step *s);

/* ---- truncate.c ---- */
/* Truncates or extends. 0, CACHE_PARKED or an error. */
int file_truncate(struct cache *c, struct node *n, uint64_t size, struct waiter *w)
    EXCLUDES(cache_mutex);
/* Truncates to 0 and opens; the handle counts as a beginner from before that. */
int file_truncate_anew(struct cache *c, struct node *n, int flags, struct waiter *w,
                       struct handle **ret) EXCLUDES(cache_mutex);
/* The same through an open handle, which is a beginner from before that, too, and is none when
 * nothing came of it. */
int file_empty_open(struct cache *c, struct handle *h, struct waiter *w) EXCLUDES(cache_mutex);

/* ---- unlink.c ---- */
/* Makes sure that the file's owner is known, or parks: in a sticky directory the kernel judges
 * by it, and an index may have told it. */
int name_owner_need_locked(struct cache *c, struct node *parent, struct entry *e,
                           struct waiter *w) REQUIRES(cache_mutex);
/* Whether the store can have at most what this cache put, or tried to put, under this name, by
 * the number that it bears. What a pending rename brings bears one of an older name. `path` is
 * the entry's. */
bool name_is_only_ours_locked(struct entry *e, const char *path) REQUIRES(cache_mutex);
/* The name is about to go, and others keep its file. If that is owed it gets a new number, by
 * which a later mount knows that removals may have waited for it in another place. `intends`:
 * the name leaves a row. 0 or a negative errno. */
int name_lost_renumber(struct cache *c, const struct entry *e, bool intends) REQUIRES(cache_ns);
/* Gives the step a row for the entry: a removal, or a rename to `to` if that is not NULL. 0 or
 * -ENOMEM. */
int step_intend_locked(struct step *s, enum intent_kind kind, const char *from, const char *to,
                       struct entry *e) REQUIRES(cache_mutex);
/* The row of a removal at the store; the mirror keeps the file under the name `to`, which is in
 * another store if it `crosses`. Recovery does not take it for the removal of the file: killed
 * before the mirror's step the file is still there, and its upload makes the row void. */
int step_intend_removal_locked(struct step *s, struct entry *e, const char *path,
                               const char *to, bool crosses) REQUIRES(cache_mutex);

/* ---- write.c ---- */
/* The kernel does not tell of a passthrough write that failed. A file that grew, or is empty,
 * when it is closed on a full disk is taken for one: held back rather than published in part.
 */
bool handle_look_for_short_write(struct cache *c, struct handle *h, const struct stat *st)
    EXCLUDES(cache_mutex);

/* ---- xattr.c ---- */
/* Notes that the node's attributes changed: sets ctime, and queues the file or the directory
 * for an upload. */
void xattr_changed_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* Whether an upload of the node waits or runs, which takes its attributes with it. */
bool xattr_is_owed(const struct node *n) REQUIRES(cache_mutex);
/* Carries the edit out, on the disk first. 0 or a negative errno. Takes ns for writing. */
int xattr_edit(struct cache *c, struct node *n, const struct edit *e) EXCLUDES(cache_ns);
/* Makes sure that the attributes which are to be changed are known and the store's. 0,
 * CACHE_PARKED or a negative errno: -EROFS on a read-only mount. */
int xattr_edit_ready(struct cache *c, struct node *n, struct waiter *w) EXCLUDES(cache_mutex);

/* ---- xattr_own.c ---- */
/* The value of user.runfs.WHAT, heap; NULL: there is none such, or no memory. */
char *xattr_own_locked(struct cache *c, struct node *n, const char *what) REQUIRES(cache_mutex);

#endif
