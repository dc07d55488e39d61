/* What the files of transfer/ share. */
#ifndef RUNFS_CACHE_TRANSFER_TRANSFER_IMPL_H
#define RUNFS_CACHE_TRANSFER_TRANSFER_IMPL_H

#include "cache/transfer/transfer.h"

/* Why the cache can't keep its limit, or refuses writers; the worst comes last. */
enum space_trouble {
    SPACE_FINE,
    SPACE_OVER_LIMIT, /* files that are open, or wait for a name, exceed the limit */
    SPACE_STORE_GONE, /* uploads fail: writers get ENOSPC */
    SPACE_DISK_FULL,  /* the reserve is touched and nothing can go: writers get ENOSPC */
    SPACE_READ_ONLY,  /* the disk takes nothing: writers get EROFS */
    SPACE_REMOVED,    /* the cache directory is gone: writers get EIO */
};

/* A range on its way from the store. */
struct fetch {
    struct task task;
    struct fetch *next GUARDED_BY(cache_mutex);
    struct node *node; /* referenced */
    struct cache *cache;
    uint64_t off, end;
    struct checksum verified; /* that the store has compared with what was read */
    struct checksum sum;      /* of [off, summed), as it came */
    uint64_t summed;
    bool told GUARDED_BY(cache_mutex); /* file.failed says what became of it */
};

/* The content that an upload in parts sends, as far as it can be told without reading it. */
struct session_mark {
    uint64_t ino, size; /* of the mirror file */
    int64_t mtime_ns;
    uint64_t attrs; /* hash */
};

/* An upload in parts. The task that works on a session owns it; the queue has the
 * others. */
struct session {
    struct debt debt; /* it is to be ended, or to be resumed; while it is ended it runs */
    struct place at;  /* owned */
    char *token;      /* "": not learned */
    int64_t began_ns; /* CLOCK_REALTIME; origin_ns of what it will make */
    uint64_t part_size;
    struct session_mark mark;
    bool live;        /* somebody could write the file while it was sent */
    bool over;        /* of no use any more: to be ended at the store */
    unsigned resumes; /* in a row that failed */
};

/* Keeps account of the sessions that calls with this op begin by themselves, until it is
 * forgotten: those that are left then are ended at the store. */
struct session_watch {
    struct op_notes notes;
    struct store_sessions base;
    struct cache *cache;
    struct session *session;
    int error; /* of the journal: the last call that a session's account has failed with */
};

/* How often, and for how long, what takes a version away looks whether readers still need it.
 */
#define READERS_NS (200 * NS_PER_MS)

#define READERS_MOST_NS (300 * READERS_NS)

/* How often the version at the store may change under one upload, copy or removal. */
#define VERSIONS_MAX 8

/* What is on its way to one of several stores. Each has a share of its own, so that one that
 * does not answer takes nothing from the others. */
struct volume_tasks {
    unsigned uploads, markers, copies, removals;
    unsigned urgent_row; /* urgent uploads begun since one was by the order of closes */
};

/* What is on its way, of a whole cache. */
struct transfers {
    pthread_t scheduler;
    bool scheduler_runs;
    int64_t forgot_ns; /* CLOCK_MONOTONIC; when names were last forgotten; the scheduler's */
    enum space_trouble outlook; /* that who waits for room was last told; the scheduler's */

    GUARDED_BY(cache_mutex) struct {
        enum space_trouble space;
        struct node **uploading; /* nodes whose upload runs */
        size_t n_uploading;
        struct dir_job *dir_jobs; /* directories whose upload runs */
        unsigned sessions_ending;
        unsigned note_steps;                          /* of units, that are being taken */
        unsigned dir_uploads_running, copies_running; /* tasks */
        struct volume_tasks *volumes; /* and of each store, by the number in its entries */
        unsigned stamps_running;      /* that uploads write after they have ended */
        uint64_t kept_files;
        uint64_t unstamped_files; /* of those, that recovery found now; constant after it */
        uint64_t uploaded_files, uploaded_bytes, downloaded_bytes;
        enum checksum_kind sum_kind; /* what the store last told; ours until then */
        struct pin *pins;
    };
};

/* A pass of the scheduler over what is owed. */
struct pass {
    struct cache *cache;
    int64_t now_ns;   /* CLOCK_MONOTONIC */
    int64_t *next_ns; /* lowered to when the next is due */
    bool own;         /* the calling thread can run one upload more */
    GUARDED_BY(cache_mutex) struct {
        struct barrier barrier;   /* of removals, while they are gathered */
        struct removal *removals; /* that are, one for each store */
    };
};

/* How what is owed of a kind is begun: by the scheduler alone, which asks of each one that does
 * not run whether it is due. All of it under cache_mutex. */
struct starter {
    enum debt_kind kind;
    /* Whether any may begin; NULL: yes. Without, the two below are not called. */
    bool (*begin)(struct pass *p);
    /* Begins it, if nothing is in its way; it may leave its queue. Whether to go on. */
    bool (*start)(struct pass *p, struct debt *d);
    void (*end)(struct pass *p); /* or NULL */
};

/* A stub that only remembers an inode number. */
#define STUB_BYTES 8192

/* ---- copy.c ---- */
/* Runs a rename or renamedir that is ready. */
void copy_start_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex);

/* ---- evict.c ---- */
/* Looks at the disk, evicts files until the cache keeps its limits, and wakes writers who wait
 * for room: when there is some, or the outlook is another one, or they have `waited`. */
void evict_if_needed(struct cache *c, bool waited) EXCLUDES(cache_mutex);
/* Whether a file's mirror file is a stub only; lock held. */
bool file_is_stub(const struct node *n) REQUIRES(cache_mutex);

/* ---- fetch.c ---- */
/* Where the node's bytes are now, and which version: both the caller's to free. 0 or -ESTALE.
 */
int fetch_source(struct cache *c, struct node *n, struct place *ret_at, char **ret_etag)
    EXCLUDES(cache_mutex);

/* ---- fetch_verify.c ---- */
/* Adds the file's first `size` bytes to the sum. 0 or a negative errno; -EIO: it is shorter. */
int file_sum(int fd, uint64_t size, struct checksum *sum);
/* Compares the complete file's sum with what the store says, unless one verified read brought
 * it. 0, with `*ret` for file_complete(); -EIO: it is damaged; or another negative errno. */
int fetch_verify_complete(struct cache *c, struct fetch *fetch, int fd, struct checksum *ret)
    EXCLUDES(cache_mutex);
/* That came from the store, and its checksum is known: the names of that version say so. */
void fetch_compared_locked(struct node *n) REQUIRES(cache_mutex);

/* ---- intents.c ---- */
extern const struct starter rename_starter;

/* ---- marker_put.c ---- */
/* Something below the entry came to the store, or changed there: listings that were asked
 * before are not right about it, nor about the directories above. */
void entry_changed_locked(struct cache *c, struct entry *e) REQUIRES(cache_mutex);
/* A name in the directory came to the store, or changed there: it stands for the directory,
 * which the store need not be told of otherwise. */
void dir_child_changed_locked(struct cache *c, struct node *dir, const struct entry *e)
    REQUIRES(cache_mutex);
/* Whether an upload of a marker there, or below it, runs. */
bool dir_upload_runs_at_locked(struct cache *c, struct place at, bool below)
    REQUIRES(cache_mutex);
/* Whether one of a directory above the place runs, to that store; 0: to several. */
bool dir_upload_runs_above_locked(struct cache *c, struct place at, unsigned volume)
    REQUIRES(cache_mutex);
extern const struct starter dir_starter;

/* ---- moved.c ---- */
/* Before the object at `path`, or (`below`) at or below it, is replaced or removed: each file
 * that left such a name for another store by a row up to number `seq`, and is in no store yet,
 * is synced with its row, and its stamp says so. 0, or a negative errno with op->why: the
 * change has to wait, and is tried again. -EBUSY: no mount could publish such a file as it is.
 * Waits for the cache's disk, for no store; op, which is of cache_op(), has all its time again
 * then. */
int moved_make_durable(struct cache *c, struct op *op, const char *path, bool below,
                       uint64_t seq) EXCLUDES(cache_ns, cache_mutex);

/* ---- pin.c ---- */
/* Frees all pins: the cache ends. */
void pins_free(struct cache *c) REQUIRES(cache_mutex);
/* How many paths are pinned. */
uint64_t pins_count_locked(struct cache *c) REQUIRES(cache_mutex);
/* Whether the path is kept from eviction, by itself or with a directory above it. */
bool path_is_pinned(struct cache *c, const char *path) REQUIRES(cache_mutex);

/* ---- readers.c ---- */
/* Whether open files without a name read what lies there (or below). */
bool readers_need_locked(struct cache *c, struct place at, bool below) REQUIRES(cache_mutex);
/* Whether the debt, which takes away what lies there (or below), goes now: it is its turn in
 * the order, and who still reads that was waited for long enough. Starts the readers' fetches;
 * the pass comes again for it. */
bool readers_let_go_locked(struct pass *p, enum order order, struct debt *d, struct place at,
                           bool below) REQUIRES(cache_mutex);

/* ---- remove.c ---- */
/* They go in batches, one for each store at a time. */
extern const struct starter removal_starter;

/* ---- running.c ---- */
/* How many files are uploaded at once, to all stores together. */
unsigned uploads_max(const struct cache *c);

/* What the order at the store asks of this room. */
extern const struct order_world on_its_way;

/* ---- scheduler.c ---- */
#ifndef NDEBUG
/* How many passes were made so far: for tests. */
extern atomic_ullong passes_made;
#endif
/* For an uploader that has ended an upload, which `failed` or not: starts the next one that is
 * due. ns is held. */
void upload_ended_locked(struct cache *c, bool failed) REQUIRES_SHARED(cache_ns)
    REQUIRES(cache_mutex);
/* Whether the file has to wait: a full disk cut it off, it is half (format.md, 3), or an
 * earlier request may still arrive at the name. Asked when the file is chosen, and once more
 * after it was looked at. */
bool upload_has_to_wait_locked(struct cache *c, struct file *f, struct place at)
    REQUIRES(cache_mutex);

/* ---- session.c ---- */
/* Sums up the content and the attributes that an upload sends, for session_take(). */
void session_mark(struct session_mark *ret, const struct stat *st, const struct attrs *a);
/* Takes the session broken off with just this content, or NULL. Others of the place are over.
 */
struct session *session_take(struct cache *c, struct place at, const struct session_mark *mark)
    EXCLUDES(cache_mutex);
/* Makes a session, with its row and without a token. 0, or why it can't be recorded. */
int session_open(struct cache *c, struct place at, const struct session_mark *mark,
                 uint64_t part_size, int64_t began_ns, bool live, struct session **ret);
/* Notes that the store has begun the session. */
int session_begun(struct cache *c, struct session *s, const char *token);
/* Whether an upload to the place has to wait for a session to be ended. */
bool session_blocks_upload_locked(struct cache *c, struct place at) REQUIRES(cache_mutex);
/* The upload broke off: the session is to be resumed, or (`over`) to be ended. */
void session_leave(struct cache *c, struct session *s, bool over) EXCLUDES(cache_mutex);
/* The store has the session no more. */
void session_gone(struct cache *c, struct session *s);
/* Begins the account for calls with this op; session_unwatch() ends it. */
void session_watch(struct session_watch *w, struct cache *c, struct op *op);
/* Ends the account. 0, or the journal's error that ended the call, not told by the store. */
int session_unwatch(struct session_watch *w, struct op *op);
/* Frees all sessions; the store keeps them, and their rows say so to the next mount. */
void sessions_free(struct cache *c) REQUIRES(cache_mutex);
/* Ends the sessions that no upload will resume. */
extern const struct starter session_starter;
/* ---- note.c ---- */
extern const struct starter note_starter;

/* ---- note_again.c ---- */
/* The owner of the note was away: waits until nobody cleans up after it, and owes the store
 * again what that has no more of the unit. `at` is the unit, `ttl_ns` that of the own lease. 0;
 * or a negative errno with op->why: nothing of the unit may be sent. In a worker, holding no
 * lock; the note runs. */
int note_look_again(struct cache *c, struct op *op, struct unit_note *n,
                    const struct notes_at *at, int64_t ttl_ns) EXCLUDES(cache_ns, cache_mutex);

/* ---- space.c ---- */
/* What is wrong with the space, for people; NULL when nothing is. */
const char *space_trouble_text(enum space_trouble trouble);
/* Whether files have to be evicted: the limit is near, or the reserve is touched. */
bool space_too_full_locked(struct cache *c) REQUIRES(cache_mutex);
/* Notes the trouble. Logs changes only: writers come by thousands a second. */
void space_trouble_locked(struct cache *c, enum space_trouble trouble) REQUIRES(cache_mutex);
/* SPACE_FINE: it is worth waiting for room. What goes up is, unless it makes too little, and
 * the rest of it can't go: that could be for ever, and what is small and goes up comes again
 * and again. Where all that is closed makes too little, the rest is open or waits for its name:
 * the limit gives way as long as the disk does not; docs/format.md, section 3, has why. */
enum space_trouble space_outlook_locked(struct cache *c, struct file *self)
    REQUIRES(cache_mutex);
/* Whether writers have to wait for room. */
bool space_is_full_locked(struct cache *c) REQUIRES(cache_mutex);

/* ---- upload.c ---- */
/* Whether the store has the file under each name that is left: what was owed went with the name
 * that owed it, or nothing was. Unless it changed since it was looked at. */
bool upload_is_done_locked(const struct node *n) REQUIRES(cache_mutex);
/* The node's name that has the path now, and to which belongs what lies at its place; NULL:
 * there is none, or what lies there is to follow another name. The tree must be held still. */
struct entry *node_name_lying_at_locked(struct cache *c, struct node *n, const char *path)
    REQUIRES(cache_mutex);
/* Begins the upload of one of the node's names; `path` is taken over. `looks`: nothing is owed,
 * and it is only looked at. `own`: the caller is an uploader that ends its own, and goes on
 * with this one. */
void upload_start_locked(struct cache *c, struct node *n, char *path, bool looks, bool own)
    REQUIRES(cache_mutex);

#endif
