/* What the store is owed, and in which order: files and directories that wait for their upload,
 * the journal's rows (intentions), tombstones, requests in doubt, and whose a version is. The
 * room owns those, under `lock` (whose a version is under a lock of its own); it calls content/
 * and what is below it, and the store for a probe only. */
#ifndef RUNFS_CACHE_QUEUE_QUEUE_H
#define RUNFS_CACHE_QUEUE_QUEUE_H

#include "cache/content/content.h"
#include "cache/notes/lease.h"
#include "cache/notes/notes.h"
#include "common/mem.h"
#include "common/process.h"
#include "common/table.h"
#include "runs/note.h"

/* The kinds of changes that the store was seen to take, whatever the name. */
enum change { CHANGE_PUT, CHANGE_REMOVE, CHANGES };

/* What one of the stores was seen to do. */
struct volume {
    /* Of this cache in the store's state; NULL until a unit there has a note. Made under
     * cache_mutex, and then there as long as the queue. */
    struct lease *lease;
    GUARDED_BY(cache_mutex) struct {
        bool no_notes;             /* it takes no notes of units */
        int64_t taken_ns[CHANGES]; /* CLOCK_MONOTONIC; when the last that it took began */
        int64_t uploaded_ns;       /* CLOCK_MONOTONIC; when the last upload to it ended well */
        bool takes_none;           /* as relief_locked() saw it: every upload to it fails */
        bool out_of_quota;         /* it refused for space: deletes go first there */
        bool unconditional;        /* it refuses preconditions of uploads */
    };
};

/* Where a row stands among those of a set, in the order of their paths (row_paths.c). */
struct row_link {
    struct row_link *part[2];       /* what comes before it, and behind it */
    struct intent *oldest, *newest; /* of them and itself */
};

/* A row of the journal in memory. */
struct intent {
    uint64_t seq; /* 0: not numbered yet */
    enum intent_kind kind;
    char *from, *to; /* paths of the tree as it was then; `to` NULL: a removal */
    char *etag;      /* version at `from`; "": none that is known; INTENT_ANY, INTENT_OURS */
    char *over;      /* as in struct journal_row; constant */
    uint64_t ino;
    /* of the file that left the name that is removed; 0: none is known */
    uint64_t moved_ino;
    char *moved_to; /* where it went, if that is another store; else NULL */
    GUARDED_BY(cache_mutex) struct {
        /* who waits for it: the place of the older one that is part of it; 0 none */
        uint64_t since;
        struct debt debt; /* in the place of its number */
        size_t scope;     /* so many bytes of `from` are the directory whose files its removal
                             waits for */
        struct row_link going, coming;            /* by `from`, and by `to` */
        struct intent *rename_prev, *rename_next; /* in queue_own.renames */
        bool removed_before; /* a removal that is repeated, for what may have come late */
        unsigned refuser;    /* who refused it; 0: one of several stores, or the only one */
        bool others_taken;   /* and it has taken the like of another name since */
        bool refused;        /* a rename whose name it refuses for good */
        bool brings_pointer; /* a rename to the name of a pointer */
        /* a removal that a later rename of something around it was found to need */
        bool urgent;
        bool redo;     /* a rename that an earlier mount may have carried out, natively */
        bool row_told; /* its row says already which copy it means, or is about to */
        /* of a directory, which the store has moved: each name in it is told of its new version
         */
        bool taken_over;
        bool done;  /* a removal that the store has carried out: only its row is to go */
        bool stuck; /* as intents_look_stuck_locked() saw it */
    };
};

/* Which directories have something at or below them that removals wait for. All zero: none. */
struct scope_dirs {
    struct scope_dir *dirs;  /* with the first of it */
    const struct node *last; /* the one that was added last */
    bool all_hold;           /* without memory each may have something */
};

/* Uploads that removals have to wait for. */
struct barrier_files {
    uint64_t seq;             /* those with a lower number for none */
    struct scope_dirs scopes; /* those with a higher one for the first in their scope */
    struct barrier_dir {
        char *path;
        uint64_t seq;
    } * dirs; /* of refused names: what is in the same directory waits for them, too */
    size_t n, cap;
};

/* Which removals have to wait for uploads. */
struct barrier {
    struct barrier_files all, with_room; /* to all stores; to those that are not full */
    int64_t now_ns;                      /* CLOCK_MONOTONIC; for what time it is */
    bool scopes_known;
};

/* What intent_backward() finds out of a path after a rename. INTENT_STAYS: the rename did not
 * concern it. INTENT_CAME: the rename brought what is there. INTENT_LEFT: the rename took away
 * what was there before, so what is there now was made later. */
enum intent_back { INTENT_STAYS, INTENT_CAME, INTENT_LEFT };

/* What a live name says about an intended removal of its place. */
enum live { LIVE_NONE, LIVE_WAIT, LIVE_STORED };

/* Whether something goes to the store now. ORDER_WAIT: something else comes first.
 * ORDER_READERS: only open files without a name do, which read what it takes away; they have a
 * bounded time for it. */
enum order { ORDER_GO, ORDER_WAIT, ORDER_READERS };

/* What is on its way, which a higher room knows: it tells at or (`below`) also below a place.
 * All of it under cache_mutex. */
struct order_world {
    /* Whether an upload of a file, or of a directory's marker, runs there. */
    bool (*upload_at)(struct cache *c, struct place at, bool below);
    bool (*marker_at)(struct cache *c, struct place at, bool below);
    /* Whether one of a directory above the place runs, to that store; 0: to several. */
    bool (*marker_above)(struct cache *c, struct place at, unsigned volume);
    /* Whether an upload to there that broke off is being ended, and may take a new one along.
     */
    bool (*session_at)(struct cache *c, struct place at);
    /* Whether open files without a name still need what lies there. */
    bool (*readers_at)(struct cache *c, struct place at, bool below);
};

/* What the view of a deletion lock shows `at` a path of it ("" is the view itself) lies at
 * `path`. The first is what the lock was asked for, wherever that was moved; the others are
 * where something of it was moved since. */
struct locked_path {
    char *path, *at;
};

/* What lay at one path lies at the other. */
struct lock_move {
    const char *from, *to;
    uint64_t made_seq; /* of a new file: when it got its name before; 0 elsewhere */
};

/* Somebody has a path locked. What is not guarded is constant. */
struct deletion_lock {
    struct deletion_lock *prev, *next GUARDED_BY(cache_mutex);
    uint64_t id;        /* no other lock of this mount has, or had it */
    uint64_t since_seq; /* what has a lower place in the order was removed before */
    int64_t since_ns;   /* CLOCK_REALTIME */
    bool refuse;        /* removals are refused; else they are hidden */
    struct process holder;
    char *command;

    GUARDED_BY(cache_mutex) struct {
        /* What it covers: the path that it was asked for, and where something of that went. */
        char **paths;
        size_t n_paths, cap_paths;
        struct locked_path *shown;
        size_t n_shown, cap_shown;
        /* Of one that a file stands for, else NULL: the file, which has no name in the tree,
         * and the directory that shows it as `name`; both are referenced. */
        struct node *node, *dir;
        char *name;
        unsigned opens; /* that no unlink() has taken back */
    };
};

/* What is to become of a unit's note at the store next; the steps have the names of the models
 * in tests/protocol. */
enum note_step {
    NOTE_STEP_PUT,    /* `open` is to be there before the first commit */
    NOTE_STEP_NONE,   /* it is: the unit's files go up */
    NOTE_STEP_NAME,   /* the journal is to know the tail before that goes */
    NOTE_STEP_SEAL,   /* the seal is put, then `open` goes */
    NOTE_STEP_REMOVE, /* `open` goes without one */
    NOTE_STEP_UNSEAL, /* there is no note: the unit is gone, and its seal goes */
};

/* What other mounts are told of a unit. It may outlive the unit. */
struct unit_note {
    struct debt debt;      /* in the queue of notes as long as there is one */
    struct place at;       /* constant, owned; the unit's directory */
    unsigned volume;       /* constant; which store that is in */
    struct lease *lease;   /* constant, needed; NULL: it is about seals only */
    char id[NOTE_ID_SIZE]; /* constant */
    GUARDED_BY(cache_mutex) struct {
        struct unit *unit; /* NULL: it has ended, or is of an earlier mount */
        enum note_step step;
        bool is_there;     /* it was put */
        bool sent;         /* it may be there: not each put of it was refused */
        uint64_t term;     /* of the lease, in which it was last put */
        bool left;         /* an earlier mount's, and recovery goes on */
        bool asks;         /* before it is put: what the store has is changed, or is new */
        bool again;        /* behind that: what the store has of the unit may be less by now */
        int64_t doubt_ns;  /* CLOCK_MONOTONIC; until then a put of it may take effect */
        enum seal_how how; /* as what it is sealed */
        char *tail;        /* name below `at` of the file that comes last, or NULL */
        uint64_t files;    /* in the unit */
    };
};

/* A unit that this mount cleans up after others just now (left_units.c). */
struct cleaning {
    struct cleaning *next GUARDED_BY(cache_mutex);
    const char *path; /* constant */
};

/* What the store is owed, of a whole cache. */
struct queue {
    char cache_id[NOTE_ID_SIZE];  /* constant; who writes its notes */
    char session[NOTE_ID_SIZE];   /* constant; of this mount */
    char node[NOTE_NODE_MAX + 1]; /* constant; the machine's name */
    struct queue_own *own;        /* constant; what only the room itself sees */
    struct volume *volumes;       /* constant; of each store, by the number in its entries */

    GUARDED_BY(cache_mutex) struct {
        struct debts owed[DEBT_KINDS]; /* all that stands in a queue */
        unsigned uploads_running;      /* of files; transfer/ counts them */
        unsigned removals_running;     /* requests; transfer/ counts these, too */
        unsigned renames;              /* intentions that copy */
        unsigned pointer_renames;      /* of them: to the name of a pointer */
        unsigned moved;                /* intentions of names that went to another store */
        unsigned drain; /* flushes under way that want everything, staged files too */
        struct cleaning *cleanings;
        struct deletion_lock *locks; /* in the order in which they were had */
        unsigned n_refusing;         /* of them */
        bool no_locks;               /* the mount has ended: there is none any more */
    };
};

/* ---- what is owed, one by one ---- */
/* What a debt is part of, as its kind says. */
static inline struct file *debt_file(struct debt *d)
{
    return d ? container_of(d, struct file, debt) : NULL;
}
static inline struct node *debt_dir(struct debt *d)
{
    return d ? container_of(d, struct dir, debt)->node : NULL;
}
static inline struct intent *debt_row(struct debt *d)
{
    return d ? container_of(d, struct intent, debt) : NULL;
}

/* Each row, and each file that waits for its upload, in the order of closes. The body keeps
 * them in their queue. */
#define ROWS_FOREACH(c, i) for ((i) = row_first(c); (i); (i) = row_next(i))
#define OWED_FILES_FOREACH(c, f)                                                               \
    for ((f) = debt_file((c)->queue->owed[DEBT_FILE].first); (f);                              \
         (f) = debt_file((f)->debt.next))

/* All that a program's changes owe to the store, whoever asks: what waits for its upload, what
 * is open for writing, changed or not, directories, rows, broken-off sessions; by kinds. An
 * attribute index is not among them: nothing is lost without one. What the caller does with
 * each keeps it where it is. */
struct debt *owed_first_locked(struct cache *c) REQUIRES(cache_mutex);
struct debt *owed_next_locked(struct cache *c, const struct debt *d) REQUIRES(cache_mutex);
#define OWED_FOREACH(c, d) for ((d) = owed_first_locked(c); (d); (d) = owed_next_locked(c, d))
/* An attempt failed: the next comes after a pause that grows, and the status tells of it. */
void owed_failed_locked(struct cache *c, struct debt *d, int err, const char *why)
    REQUIRES(cache_mutex);

/* ---- barrier.c ---- */
/* Finds out which uploads removals wait for now. The result is right until the lock is given
 * back; barrier_release() frees it. */
void barrier_init_locked(struct cache *c, struct barrier *ret) REQUIRES(cache_mutex);
/* Frees the barrier's paths. */
void barrier_release(struct barrier *b);
/* The file that left the removed name, if it was closed or moved before and is still owed; else
 * NULL. */
struct file *removal_moved_file_locked(struct cache *c, const struct intent *removal)
    REQUIRES(cache_mutex);
/* Whether a file left the name on its way to another store, and no store has it elsewhere. */
bool removal_is_of_only_copy_locked(struct cache *c, const struct intent *removal)
    REQUIRES(cache_mutex);
/* Whether the removal waits for such files as this one, where they were closed before: it is in
 * the removal's scope. */
bool removal_waits_for_locked(struct cache *c, const struct intent *removal,
                              const struct file *f) REQUIRES(cache_mutex);
/* The place in the order up to which uploads come before a removal with the place `seq`. */
uint64_t barrier_seq_locked(struct cache *c, uint64_t seq) REQUIRES(cache_mutex);
/* Begins to wait for removals, with the place `seq`. */
void rounds_init(struct cache *c, struct rounds *ret, uint64_t seq);
/* Whether waiting for the removal is in vain: what it waits for went, unstored, again and
 * again, each time with something later to wait for. Counts the times. */
bool rounds_are_over_locked(struct cache *c, struct rounds *r, const struct intent *removal)
    REQUIRES(cache_mutex);
/* The file is about to lose its last name, and what removals wait for with it: they wait for
 * all that is closed by now instead, above all for what takes its name or came in its place. ns
 * held for writing, before the mirror's step; waits for the disk, if there are such removals. 0
 * or -ENOMEM. */
int barrier_pass_on(struct cache *c, const struct file *f) REQUIRES(cache_ns)
    EXCLUDES(cache_mutex);
/* Loads what an earlier mount passed on. Recovery. */
int barrier_load(struct cache *c);

/* ---- scope.c ---- */
/* How many bytes of the path are the directory whose files a removal of it waits for; 0: the
 * whole mount. */
size_t path_scope(struct cache *c, const char *path, bool dir);
/* Whether a directory of this path may be published as a whole by itself: its policy publishes
 * directories so, and by its names it is in none. One that came by a rename may have any. */
bool path_may_be_unit(struct cache *c, const char *path);
/* The row's scope reaches so far that the path is in it, too. */
void scope_reaches_locked(struct intent *i, const char *path) REQUIRES(cache_mutex);
/* It is one with the other's, of which the row takes the place; both have the same `from`, or
 * one below the other's. */
void scope_takes_locked(struct intent *i, const struct intent *other) REQUIRES(cache_mutex);
/* Whether one of the file's names lies in the scope of the row's removal. */
bool scope_has_locked(struct cache *c, const struct intent *i, const struct file *f)
    REQUIRES(cache_mutex);
/* The node, with all below it, went from one path to another, or lost the one name and has the
 * other: rows that were in the queue before wait for it there. */
void scopes_follow_locked(struct cache *c, struct node *n, const char *from, const char *to)
    REQUIRES(cache_mutex);
/* The same of a file that lost this name and has others. */
void scopes_lost_name_locked(struct cache *c, struct node *n, const char *path)
    REQUIRES(cache_mutex);
/* Rows and files of an earlier mount were found. What moved in its time is not known: where
 * something did after it was closed, the rows wait for all files. */
void scopes_found_locked(struct cache *c) REQUIRES(cache_mutex);

/* ---- file_queue.c ---- */
/* Whether the store has this generation, or a later one, under each name that it owes. */
bool file_stored_locked(struct node *n, uint64_t generation) REQUIRES(cache_mutex);
/* A caller waits until the store has this generation: no settling from now on, nor when it is
 * queued or sent once more meanwhile. */
void file_want_locked(struct file *f, uint64_t generation) REQUIRES(cache_mutex);
/* Notes whether the file waits for a rename, and whether it is urgent, as its name says. */
void file_stage_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* The same of a file that an earlier mount left. */
void file_stage_found_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* Whether it waits for a rename, also one that is open and was never queued: of that `staged`
 * says nothing, and a log goes up while it is open, whatever it is called. */
bool file_waits_for_rename_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* A new file has waited for its rename, if its policy says so: that came, or is no matter. */
void file_renamed_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* The upload got on: forgets its failures, but not a short write. */
void file_forgive_locked(struct file *f) REQUIRES(cache_mutex);
/* A name of the file went, and others are left. If none of these owes anything it is looked at
 * at once, which sends nothing, and settles it. */
void file_lost_name_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* What path_made_at() said of the path of a new file, or of one that an earlier mount left. */
void file_set_made_at_locked(struct file *f, uint64_t made_at) REQUIRES(cache_mutex);
/* An upload has looked at the file: a later close is the first that it does not have. */
void file_sending_locked(struct file *f) REQUIRES(cache_mutex);
/* A queued file settles first, unless somebody waits for it. */
void file_put_off_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* Gives the file its place in the order of closes and queues it. */
void file_queue_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* file_queue_locked() where no content was closed: in its unit it comes where it came. */
void file_queue_again_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* The same for a file that the store had and has no more: in its unit, too, after a restart. */
void file_queue_lost_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* file_queue_locked() for a file that moves to another store, also while it is open for
 * writing: the removal of its old name waits for its upload then, other removals only for its
 * close. */
void file_queue_moved_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* Puts a file that an earlier mount left into the queue, where its place is: also one that is
 * scratch to this mount, since it may belong to another. */
void file_insert_found_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* Puts a file into the queue, or moves it there, where its place is. */
void file_insert_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* file_insert_locked() for one that no close has queued: whether it waits for its rename is
 * judged. */
void file_insert_open_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* What it owes from now on was first closed then; 0: none of it was closed. */
void file_set_place_locked(struct cache *c, struct file *f, uint64_t first_seq)
    REQUIRES(cache_mutex);
/* The store has under each name what was waited for: what was written since goes up in its own
 * time. Nor do removals wait any more for what was closed before that, which is there, though a
 * writer keeps the file open and some name owes what came later. */
void file_end_wait_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* A flush, or an fsync(), does not wait for the store any more; perhaps others do. */
void file_unwant_locked(struct file *f) REQUIRES(cache_mutex);
/* A directory's marker or attributes are to be uploaded; one of no key of its own is kept here
 * instead, and its stamp is to be written. */
void dir_queue_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* A name in it is stored: it is due as one that was not empty when it was queued. */
void dir_is_not_empty_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Takes the directory off that queue, if it is there; the node may be freed. */
void dir_unqueue_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* What is sent to this path makes the directories above it at the store, where directories are
 * real: they go by names that the store may have from now on, whatever becomes of the path. */
void dirs_above_may_exist_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);
/* Whether the file was closed before the intention with this number, and is open no more: its
 * upload comes first, unless it waits for another name. */
bool upload_comes_first(const struct file *f, uint64_t seq) REQUIRES(cache_mutex);

/* ---- intent.c ---- */
/* Which of the stores it is for; 0: there is one, or several have a part in it. */
unsigned intent_volume(struct cache *c, const struct intent *i);
/* Which store must be it that refused it; 0: there is one, or which of several is not known. */
unsigned intent_lone_volume(struct cache *c, const struct intent *i);
struct intent *intent_new(uint64_t seq, enum intent_kind kind, const char *from, const char *to,
                          uint64_t ino, const char *etag);
/* Notes which file left the name that the intention is to remove, and the path in another store
 * that it has now (NULL: it stayed in its own). 0 or -ENOMEM. */
int intent_note_moved(struct intent *i, uint64_t ino, const char *to);
/* Notes which version at `to` a rename replaces, as in struct journal_row. 0 or -ENOMEM. */
int intent_note_over(struct intent *i, const char *etag);
/* Whether an earlier mount made it. Any thread. */
bool intent_was_found(struct cache *c, const struct intent *i);
/* The row as it is written; it borrows the intention's texts. */
struct journal_row intent_row(const struct intent *i);
/* Frees an intention that is in no list. Accepts NULL. */
void intent_free(struct intent *i);
/* Where the store has what it takes, and where it brings that, when its turn comes: all that
 * came before is done then, and the paths of that time are places. Borrowed. */
struct place intent_source(const struct intent *i);
struct place intent_target(const struct intent *i);
/* Puts the intention where its number belongs; the queue owns it from then on. */
void intent_add_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex);
/* Takes the intention out of the queue and frees it: its row is gone. */
void intent_remove_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex);
/* Writes the intention's row; the caller holds ns. 0 or a negative errno. */
int intent_record(struct cache *c, const struct intent *i) REQUIRES_SHARED(cache_ns);
/* The number of the newest intention; 0 without any. Those made later have a higher one. */
uint64_t intents_newest_locked(struct cache *c) REQUIRES(cache_mutex);
/* Those that are there are an earlier mount's: what this one makes comes later. */
void intents_found_locked(struct cache *c) REQUIRES(cache_mutex);
/* The store has `path` in its new version: removals of it up to number `seq` are void. One that
 * was intended while that version was on its way is newer and stays.
 * Takes no lock itself; 0 or a negative errno. */
int intents_retire(struct cache *c, enum intent_kind kind, const char *path, uint64_t seq);
/* Its copy is there: from now on it removes the old name, of which `etag` (taken over) is
 * known. */
void intent_becomes_removal_locked(struct cache *c, struct intent *i, char *etag)
    REQUIRES(cache_mutex);
/* Whether the intention renames, be it a file or a directory; the others remove. */
bool intent_is_rename(const struct intent *i);
/* The place in the order from which on others wait for the intention. */
uint64_t intent_since(const struct intent *i) REQUIRES(cache_mutex);
/* Removals that were intended after what has this place in the order waited for its upload,
 * which never comes: they are taken back, on the disk first, and what they meant shows again.
 * `f` is the file (NULL: there are several): what has another scope did not wait.
 * ns held for writing, or recovery. 0 or a negative errno. */
int intents_take_back(struct cache *c, uint64_t seq, const struct file *f) REQUIRES(cache_ns);

/* ---- doubt.c ---- */
/* Begins the time in which requests of a daemon that was killed may take effect. */
int doubt_begin(struct cache *c) EXCLUDES(cache_mutex);
/* Whether an upload to the place (of content, else attributes) has to wait for its end. */
bool doubt_blocks_upload_locked(struct cache *c, struct place at, bool content)
    REQUIRES(cache_mutex);
/* A removal there, with which this daemon is done, may still arrive. 0 or -ENOMEM. */
int doubt_removal_locked(struct cache *c, struct place at) REQUIRES(cache_mutex);
/* A copy to there, or new attributes, may still arrive. */
void doubt_copy(struct cache *c, struct place at) EXCLUDES(cache_mutex);
/* An upload to there, bound to this version ("" none), may still arrive. 0 or -ENOMEM. */
int doubt_put_locked(struct cache *c, struct place at, const char *etag) REQUIRES(cache_mutex);
/* Until when (CLOCK_MONOTONIC) one may that is bound to this version (NULL: to any); 0 none. */
int64_t doubt_put_until_locked(struct cache *c, struct place at, const char *etag)
    REQUIRES(cache_mutex);
/* The same of any place below the directory. */
int64_t doubt_puts_below_until_locked(struct cache *c, struct place dir) REQUIRES(cache_mutex);
/* Whether something may still be copied to there, or below it. */
bool doubt_copies_below_locked(struct cache *c, struct place at) REQUIRES(cache_mutex);

/* ---- lead.c ---- */
/* Whether an intention concerns what lies at or below `path`. */
bool intent_below(struct cache *c, const char *path) REQUIRES(cache_mutex);
/* The same of those that `is` is true of; `at` is what `path` was called then. -ENOMEM: nobody
 * knows. */
int intent_below_is(struct cache *c, const char *path,
                    bool (*is)(void *arg, const struct intent *i, const char *at), void *arg)
    REQUIRES(cache_mutex);
/* Whether it is of the directory at `dir`, or of a name directly in it. */
bool intent_is_of_name_in(const struct intent *i, const char *dir);
/* Whether the store is just renaming what lies there, or may have done so. */
bool rename_runs_at_locked(struct cache *c, struct place at) REQUIRES(cache_mutex);
/* The same of renames that the store carries out in one request, a directory's with all below
 * it. */
bool native_rename_runs_at_locked(struct cache *c, struct place at) REQUIRES(cache_mutex);
/* Whether the store has moved a directory away from there, around it as well, and names in it
 * know their new versions, but not yet their new places: what is asked at the old one is no
 * news. */
bool rename_is_taken_over_at_locked(struct cache *c, struct place at) REQUIRES(cache_mutex);
/* Where the rename takes what is at *at (heap, replaced). Whether it does; without memory *at
 * is NULL then. */
bool intent_forward(const struct intent *i, char **at);
/* Replaces *at (heap), a path after the rename, by the path where the rename found it, if the
 * rename brought it; without memory *at is NULL then. */
enum intent_back intent_backward(const struct intent *i, char **at);
/* Where the renames from `first` on take `path`, heap; NULL without memory. */
char *intent_path_after(const struct intent *first, const char *path) REQUIRES(cache_mutex);
/* The same of what lies there before `first`; NULL also when a removal on its way takes it, or
 * another rename brings something else over it. */
char *intent_lasting_path(const struct intent *first, const char *path) REQUIRES(cache_mutex);

/* ---- lock.c ---- */
/* A lock of the path and all below it; its command may be "". Takes over the holder's
 * descriptor. NULL without memory. */
struct deletion_lock *lock_add_locked(struct cache *c, const char *path, bool refuse,
                                      const struct process *holder, const char *command)
    REQUIRES(cache_mutex);
/* Takes the lock out of the table and frees it; of a file's nothing but the lock is left. What
 * it held goes with the scheduler's next pass. */
void lock_remove_locked(struct cache *c, struct deletion_lock *l) REQUIRES(cache_mutex);
/* The lock that is the file `name` in the directory; NULL: none, or its process has ended. */
struct deletion_lock *lock_file_locked(struct cache *c, const struct node *dir,
                                       const char *name) REQUIRES(cache_mutex);
/* Whether the directory shows such a file. */
bool lock_file_is_in_locked(struct cache *c, const struct node *dir) REQUIRES(cache_mutex);
/* The locks of programs that have ended are no more. */
void locks_reap_locked(struct cache *c) REQUIRES(cache_mutex);
/* Whether the store has something at the path, or below it, that it is to remove. */
bool path_is_leaving_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);
/* NULL: it has ended. */
struct deletion_lock *lock_find_locked(struct cache *c, uint64_t id) REQUIRES(cache_mutex);
/* Whether the lock is of this path or one above it; or also of one below it. */
bool lock_covers_locked(const struct deletion_lock *l, const char *path) REQUIRES(cache_mutex);
bool lock_meets_locked(const struct deletion_lock *l, const char *path) REQUIRES(cache_mutex);
/* Whether any lock covers the path. */
bool path_is_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);
/* Whether what was removed at the path, with this place in the order, is hidden only: a lock
 * that is older covers it. */
bool lock_hides_locked(struct cache *c, const char *path, uint64_t seq) REQUIRES(cache_mutex);
/* Whether the store keeps what the row removes for a lock: something below a directory counts.
 * An urgent removal is not held: what waits for it has no other way. */
bool lock_holds_row_locked(struct cache *c, const struct intent *removal) REQUIRES(cache_mutex);
/* The lock for which a removal at the path is refused to this process, or NULL. `above`: one of
 * something below it, too, which would go along. */
struct deletion_lock *lock_refusing_locked(struct cache *c, const char *path, bool above,
                                           const struct process_line *who)
    REQUIRES(cache_mutex);
/* What lay there is moved, by one or both (an exchange) of two moves at once: the locks of it
 * go along. -ENOMEM: some do not. */
int lock_follow_locked(struct cache *c, const struct lock_move *moves, size_t n)
    REQUIRES(cache_mutex);

/* ---- order.c ---- */
/* Whether a row may go to the store now. A removal goes by what barrier_init_locked() found (a
 * rename waits for no file by its place: NULL will do). Lowers *next_ns to when it goes, where
 * a time says so. */
enum order order_of_row_locked(struct cache *c, const struct intent *i, struct barrier *b,
                               const struct order_world *w, int64_t *next_ns)
    REQUIRES(cache_mutex);
/* The same of a file's upload (of content, else attributes) to `path`... */
enum order order_of_upload_locked(struct cache *c, const char *path, bool content,
                                  const struct order_world *w) REQUIRES(cache_mutex);
/* ...and of what a directory is at the store, this one. */
enum order order_of_marker_locked(struct cache *c, const char *path, unsigned volume,
                                  const struct order_world *w) REQUIRES(cache_mutex);
/* Whether a row of which `is` is true keeps the marker of the directory back. `is` changes no
 * row's path, and adds and removes none. */
bool marker_waits_for_row_locked(struct cache *c, const char *path,
                                 bool (*is)(void *arg, struct intent *i), void *arg)
    REQUIRES(cache_mutex);
/* Looks which intentions have been failing since before `since_ns` (CLOCK_MONOTONIC), or wait
 * for such a one. Whether there are any. */
bool intents_look_stuck_locked(struct cache *c, int64_t since_ns) REQUIRES(cache_mutex);
/* Whether an upload of a file to `path` waits for one of them. */
bool stuck_intent_blocks_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);
/* Whether no rename that was intended before concerns what the rename does. */
bool intent_comes_first(struct cache *c, const struct intent *rename) REQUIRES(cache_mutex);
/* Whether something else can't come to the store before the removal is done: it waits for no
 * upload then. */
bool intent_is_urgent(struct cache *c, const struct intent *removal) REQUIRES(cache_mutex);
/* Whether there is an intention with a lower number. */
bool intents_before_locked(struct cache *c, uint64_t seq) REQUIRES(cache_mutex);

/* ---- origin.c ---- */
/* Draws the mount's number. 0, -ENOMEM or -EIO. */
int origins_open(struct cache *c);
/* Loads the notes of earlier mounts, once the tree is recovered. 0 or a negative errno. */
int origins_load(struct cache *c) REQUIRES(cache_mutex);
/* The mount's own number. */
uint64_t origins_number(struct cache *c);
/* Signs what is to be put there, each attempt anew, and notes it. On a disk that is full or
 * read-only it is sent without a note: an upload is what makes room, and at worst a later mount
 * takes it for somebody else's. Must hold no lock: it writes to the journal. */
void origin_sign(struct cache *c, struct place at, struct attrs *a);
/* Whether this cache put what has these attributes to that place. */
bool origin_is_ours(struct cache *c, struct place at, const struct attrs *a);
/* The stamps or rows say what the store has there, and nothing that was put there is on its
 * way any more: the notes go with the next one. */
void origin_resolved(struct cache *c, struct place at);

/* ---- refusal.c ---- */
/* Whether an answer may say that the store will never have what it was asked for. */
bool refusal_is_one(int err);
/* Whether the failure says that something lies where it goes, which may be to be removed or
 * moved away itself: that was refused once, and is tried again. */
bool intent_is_in_the_way(int err);
/* The store took a change of some name, for which it was asked at `began_ns`. */
void refusal_taken_locked(struct cache *c, unsigned volume, enum change change,
                          int64_t began_ns) REQUIRES(cache_mutex);
/* Whether it took one that it was asked for after `refused_ns`, when it refused another (0:
 * never). */
bool refusal_others_taken_locked(const struct cache *c, unsigned volume, enum change change,
                                 int64_t refused_ns) REQUIRES(cache_mutex);
/* Whether what the store takes can be found out on an object of our own. */
bool refusal_has_probe(const struct cache *c);
/* Something was refused: it is found out whether the store takes anything, if it is the only
 * one. */
void refusal_probe_locked(struct cache *c, unsigned volume) REQUIRES(cache_mutex);
/* Whether all that the file owes has names which the store refuses. */
bool file_is_refused_locked(const struct file *f) REQUIRES(cache_mutex);

/* ---- removal.c ---- */
/* The version that the pending removals of `path` mean, "" what this cache put alone; NULL when
 * that is not known, or the intention is another one. Valid under the lock. */
const char *intent_removes_version(struct cache *c, const char *path) REQUIRES(cache_mutex);
/* Whether the intention means what this cache put itself, and no other version. */
bool intent_means_ours(const struct intent *i);
/* Whether the intention names the one version that it means. */
bool intent_version_is_known(const struct intent *i);
/* What the live name at the removal's path says about the removal. */
enum live intent_live_at(struct cache *c, const struct intent *i) REQUIRES(cache_mutex);
/* Whether the removal, or that of a rename's old name, is bound to the version it means: a
 * request that takes effect late, or one that comes after another node has put something there,
 * must not take a newer version away. Where none is late that is one of an earlier mount. */
bool removal_is_bound(struct cache *c, const struct intent *i);
/* Until when an upload may arrive after the removal: of a name of which the store had no
 * version that it was bound to, or of which it has none now, too. It is removed once more then.
 */
int64_t comes_back_locked(struct cache *c, const struct intent *i) REQUIRES(cache_mutex);

/* ---- room.c ---- */
/* Whether no store was seen to refuse preconditions of uploads. */
bool stores_take_conditions(struct cache *c) EXCLUDES(cache_mutex);
#ifndef NDEBUG
/* Aborts where the intentions are not as they are counted. */
void queue_check_locked(struct cache *c) REQUIRES(cache_mutex);
#endif
/* Makes the room's part of the cache. 0 or -ENOMEM. */
int queue_new(struct cache *c);
/* The configuration is known: makes what there is of each store. 0 or -ENOMEM. */
int queue_open(struct cache *c);
/* Nothing is in its lists any more. Accepts a cache without that part. */
void queue_free(struct cache *c) EXCLUDES(cache_mutex);

/* ---- rows.c ---- */
/* The journal's rows in their order; NULL behind the last and before the first. */
struct intent *row_first(struct cache *c) REQUIRES(cache_mutex);
struct intent *row_last(struct cache *c) REQUIRES(cache_mutex);
struct intent *row_next(const struct intent *i) REQUIRES(cache_mutex);
struct intent *row_prev(const struct intent *i) REQUIRES(cache_mutex);
/* The queue's rows by path: removals, renames by their old names, renames by their new ones. */
enum row_set { ROWS_REMOVING = 1, ROWS_LEAVING = 2, ROWS_COMING = 4 };
#define ROWS_TAKING   (ROWS_REMOVING | ROWS_LEAVING)
#define ROWS_RENAMING (ROWS_LEAVING | ROWS_COMING)
#define ROWS_ALL      (ROWS_TAKING | ROWS_COMING)
/* The oldest of those that take something from this path, and the next one; or NULL. */
struct intent *row_of_name_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);
struct intent *row_of_name_next(const struct intent *i) REQUIRES(cache_mutex);
/* The oldest rename and the next one; the newest and the one before. */
struct intent *rename_first_locked(struct cache *c) REQUIRES(cache_mutex);
struct intent *rename_next(const struct intent *i) REQUIRES(cache_mutex);
struct intent *rename_last_locked(struct cache *c) REQUIRES(cache_mutex);
struct intent *rename_before_locked(struct cache *c, const struct intent *i)
    REQUIRES(cache_mutex);
#define RENAMES_FOREACH(c, i) for ((i) = rename_first_locked(c); (i); (i) = rename_next(i))

/* ---- row_paths.c ---- */
/* Which row is wanted: of these sets (enum row_set, or'ed), with a number of at least `since`
 * and below `until` (0: any), of which `is` is true (NULL: whichever). `is` changes no row's
 * path, and adds and removes none. */
struct row_ask {
    unsigned sets;
    const char *path;
    uint64_t since, until;
    bool (*is)(void *arg, struct intent *i);
    void *arg;
};
/* One that has just this path, this path or one above it, one below it, or any of those; NULL:
 * there is none. The first is the oldest, the others any of them. */
struct intent *row_at_locked(struct cache *c, const struct row_ask *ask) REQUIRES(cache_mutex);
struct intent *row_over_locked(struct cache *c, const struct row_ask *ask)
    REQUIRES(cache_mutex);
struct intent *row_below_locked(struct cache *c, const struct row_ask *ask)
    REQUIRES(cache_mutex);
struct intent *row_touching_locked(struct cache *c, const struct row_ask *ask)
    REQUIRES(cache_mutex);
/* The oldest from `first` on, or the newest up to `last`, of which one path is `path` or above
 * it; NULL: there is none, or they are NULL. All others leave the path where it is: what
 * follows a path through the rows goes from one of these to the next. */
struct intent *row_over_from(const struct intent *first, const char *path)
    REQUIRES(cache_mutex);
struct intent *row_over_until(const struct intent *last, const char *path)
    REQUIRES(cache_mutex);

/* ---- tombstone.c ---- */
/* Whether a listing begun at `listed_ns` may not show what the store has there, a directory or
 * what is none, as `path`: it was removed since, or an intention will remove it or move it
 * elsewhere. */
bool tombstone_hides(struct cache *c, struct place at, bool is_dir, const char *path,
                     int64_t listed_ns) REQUIRES(cache_mutex);
/* How many intentions concern this very place, whichever they mean. */
unsigned tombstone_pending(struct cache *c, struct place at) REQUIRES(cache_mutex);

/* ---- note.c ---- */
/* Notes of units (docs/units.md, 3 and 5): transfer/ takes their steps. */

/* Whether a step of it is owed now; else lowers *next to when it is, if that is known. It may
 * be gone then, where its store takes none. */
bool note_is_due_locked(struct cache *c, struct unit_note *n, int64_t now, int64_t *next)
    REQUIRES(cache_mutex);
/* The step was taken in that term of the lease, or failed; `why` says so in words. The note may
 * be gone then, and its unit with it. */
void note_step_done_locked(struct cache *c, struct unit_note *n, enum note_step step,
                           uint64_t term, int err, const char *why) REQUIRES(cache_mutex);
/* The unit's directory was there before: what is owed is an edit of it, and hides nothing. */
void note_is_of_edit_locked(struct cache *c, struct unit_note *n) REQUIRES(cache_mutex);
/* The lease under which what is at the path is sent, and its term; NULL: under none. */
struct lease *unit_lease_locked(struct cache *c, const char *path, uint64_t *ret_term)
    REQUIRES(cache_mutex);
/* What was at the path, a directory or what is none, was removed, and no row says so (any
 * more): if nothing is left of its unit, the seal of that is to go. Not those of other caches:
 * they may have made it again since. */
void note_unseal_locked(struct cache *c, const char *path, bool dir) REQUIRES(cache_mutex);
/* Whether a flush of the path waits for a note; *ret says how its steps go. */
bool notes_are_awaited_locked(struct cache *c, const char *path, struct debt **ret)
    REQUIRES(cache_mutex);
/* This cache's lease in the state of the store that has the directory at the path, for who
 * needs it (lease_need()); NULL: that keeps no state, or without memory. And how long it
 * counts. */
struct lease *lease_at_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);
int64_t lease_ttl_ns(struct cache *c, unsigned volume);
/* Who writes notes: the cache's id is read or drawn. After mirror_open(). 0 or a negative
 * errno.
 */
int notes_open(struct cache *c);
/* Loads the notes that an earlier mount left, before its files are found; then what no unit
 * took up is sealed or removed. Recovery. 0 or a negative errno. */
int notes_load(struct cache *c) REQUIRES(cache_mutex);
void notes_found_locked(struct cache *c) REQUIRES(cache_mutex);
/* Forgets them: the cache ends. The units went before. */
void notes_free(struct cache *c) REQUIRES(cache_mutex);

/* ---- unit.c ---- */
/* Publish units: directories that the store gets as a whole (docs/units.md). */

/* Whose turn it is among the names of a unit, or beside one. UNIT_TURN_FAIL: somebody waits for
 * the file, and the rest of its unit, which comes first, fails. */
enum unit_turn { UNIT_TURN_GO, UNIT_TURN_WAIT, UNIT_TURN_FAIL };

/* The directory that is, or holds, what is published with this one, by its names; NULL: none,
 * as while a name of it waits for its rename. */
struct node *unit_dir_named_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Whether a file of that path says which of the units beside it counts. */
bool unit_path_is_pointer(struct cache *c, const char *path);
/* A name was made in the directory: its unit begins, if it is in one that the store has not. */
void unit_grows_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* The file has its place in the order: the unit of each of its names lacks it, and is open. */
void unit_file_closed_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* The same of a file that an earlier mount left. Recovery. */
void unit_file_found_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* The directory has another path; its old one waited for that (`was_staged`), or not. What it
 * owes has its place in the order anew. */
void unit_dir_moved_locked(struct cache *c, struct node *dir, bool was_staged)
    REQUIRES(cache_mutex);
/* Somebody wants the store to have what is at or below the path: no unit there waits for more.
 */
void units_ask_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);
/* The same of a directory that is a unit: its names were synced. */
void unit_ask_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* How long nothing changes in the directory of a unit before it is taken for complete; 0: it is
 * none. */
int64_t unit_idle_at_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Somebody says that the unit of this directory is complete, whoever writes in it. 0; or
 * -EINVAL: it is none. */
int unit_commit_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Visits the units at or below the path. */
void units_each_locked(struct cache *c, const char *path,
                       void (*visit)(void *arg, const struct cache_unit *u), void *arg)
    REQUIRES(cache_mutex);
/* The directory whose unit holds the node, by its first name, or NULL; and in words how that
 * stands. */
struct node *unit_dir_of_locked(struct cache *c, struct node *n, const char **ret_state)
    REQUIRES(cache_mutex);
/* A file that the store has under another name came to this one. */
void unit_name_came_locked(struct cache *c, struct entry *e) REQUIRES(cache_mutex);
/* Finds out what each unit lacks, settles what is due, and ends those that are whole. Lowers
 * *next_ns (CLOCK_MONOTONIC) to when it has to be called again. */
void units_look_locked(struct cache *c, int64_t *next_ns) REQUIRES(cache_mutex);
/* Whether the file goes to the store under this name of it now, as far as its unit says.
 * `no_room`: writers wait for room in the cache. */
enum unit_turn unit_turn_locked(struct cache *c, const struct file *f, const struct entry *e,
                                bool no_room) REQUIRES(cache_mutex);
/* Whether the directory may be told to the store, as far as its unit says. */
bool unit_lets_dir_go_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Whether the rename at the store waits for the note of the unit that it is of; or brings a
 * pointer that waits for units, or for files beside it. */
bool unit_rename_waits_locked(struct cache *c, const struct intent *i) REQUIRES(cache_mutex);
/* Somebody waits for what comes after the files that are held back: they go, each after the
 * rest of its unit. */
void units_hurry_locked(struct cache *c) REQUIRES(cache_mutex);
/* Whether the file is held back behind one of its unit that fails. */
bool unit_is_stuck_locked(const struct file *f) REQUIRES(cache_mutex);
/* UNIT_TURN_FAIL: the waiters for the file are to be told. */
void unit_tell_failure_locked(struct cache *c, struct file *f, const struct entry *e)
    REQUIRES(cache_mutex);
/* Forgets them: the cache ends, and its nodes are freed next. */
void units_free(struct cache *c) REQUIRES(cache_mutex);

/* ---- unit_again.c ---- */
/* The store was asked what it has below the directory of the note's unit: `has(arg, name)`.
 * What it had before, and has no more, is owed again. 0, -ENOMEM; or -ESTALE and in *ret_lost
 * (heap) the name of something that is whole in neither place. */
int unit_look_again_locked(struct cache *c, struct unit_note *n,
                           bool (*has)(void *arg, const char *name), void *arg, char **ret_lost)
    REQUIRES(cache_mutex);
/* Whether the node is in a unit whose note is not there: nobody knows whether others cleaned up
 * behind this mount, and what the store has no more may be owed again. */
bool unit_keeps_locked(const struct node *n) REQUIRES(cache_mutex);

#endif
