/* What the files of listing/ share: a listing on its way into the tree, and listing ahead. */
#ifndef RUNFS_CACHE_LISTING_LISTING_IMPL_H
#define RUNFS_CACHE_LISTING_LISTING_IMPL_H

#include "cache/listing/listing.h"

/* What is asked of the store, of a whole cache. */
struct listings {
    bool asks_dirs; /* constant; somewhere a directory's attributes are those of its marker */
    bool has_index; /* constant; the store can keep attribute indexes */
    struct index_tree *index_tree; /* NULL: there can be none */
    atomic_ullong listed_bytes;    /* of names in listings that are under way */

    GUARDED_BY(cache_mutex) struct {
        /* directories without an index of their own, of which that of the tree lacks something;
         * those with one stand among what is owed */
        struct debts small_dirs;
        unsigned index_tree_news; /* files, in all of them */
        unsigned indexes_running;
        bool index_refused;        /* it may not be written */
        bool list_ahead_refused;   /* the store's keys do not come in order after all */
        bool index_now;            /* all that is known is written without waiting for more */
        uint64_t dir_moves;        /* how many directories changed their place at the store */
        struct asking *askings;    /* questions for attributes that are under way */
        struct noted_state *noted; /* what the states of the stores say of units */
    };
};

/* Where something was asked at the store, and when in the order of moves. */
struct asked {
    struct place at;
    uint64_t moves; /* directories that had changed their place until then */
};

struct listing {
    struct task task;
    struct cache *cache;
    struct node *dir; /* referenced */
    bool whole;
    bool behind; /* it goes on while nobody waits */
    bool ahead;  /* siblings are listed one after the other: some more with it */
    bool around; /* or in no order: those around it, too */
    int64_t asked_ns;
    struct op *op;
    struct place at;     /* of the directory */
    int64_t patience_ns; /* until its next name */
    uint64_t bytes;      /* that its names take, of listings.listed_bytes */
    int64_t looked_ns;   /* when it was last asked whether anybody waits for it */
    bool left;           /* it ended because nobody did */
    struct listed *v;
    size_t n, cap;
    uint64_t generation;  /* the directory's when it was asked */
    bool has_marker;      /* the directory itself has one: */
    struct object marker; /* without attributes, but for what an index tells */
};

/* One round of HEADs tells of fewer files than this: a directory of so many has an index of its
 * own, a smaller one is in that of the tree. */
#define INDEX_FILES_MIN 16

/* A lookup in a directory of more names than this asks for the name alone. */
#define PAGE_NAMES 1000

/* How long an answer from before an outage is believed while the store can't be reached. */
#define OUTAGE_NS (5 * NS_PER_SEC)

/* How long a request that memory could answer waits for the store. */
#define OUTAGE_WAIT_NS (2 * NS_PER_SEC)

/* ---- index.c ---- */
/* Takes attributes that the listing does not carry from the directory's index, as far as they
 * are needed. In a worker, holding no lock; `at` is where the store has the directory. */
void index_fill(struct cache *c, struct node *dir, struct place at, struct listed *v, size_t n)
    EXCLUDES(cache_mutex);

/* ---- index_tree.c ---- */
/* The same from the tree's index, for a small directory and its own marker (or NULL): when
 * someone walks. */
void index_tree_fill(struct cache *c, struct node *dir, struct place at, struct listed *v,
                     size_t n, struct object *marker);

/* ---- listing.c ---- */
/* Whether the directory's last listing is believed still. The lock is held. */
bool listing_is_valid(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Whether several stores have a part in the directory's names: what is there is known when one
 * of them tells it. */
bool dir_is_joint_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Whether a listing asked for at `asked_ns` was merged. Holding no lock. */
bool listing_told_since(struct cache *c, struct node *dir, int64_t asked_ns)
    EXCLUDES(cache_mutex);
/* How long an answer is believed from its end: it may have taken longer than that itself, and
 * its waiters must come to see it. */
int64_t listing_validity_in(int64_t timeout_ns);

/* ---- marker.c ---- */
/* Whether a marker that was asked for at `asked_ns`, at the directory's place, is of another
 * one, which had the name before: it is to go, to move, or has gone since. It counts as none.
 */
bool dir_marker_goes_locked(struct cache *c, struct node *dir, struct place at,
                            int64_t asked_ns) REQUIRES(cache_mutex);
/* What a whole listing, or its first page, says of the directory's own marker; NULL: there is
 * none. `generation` is the directory's when it was asked. */
void dir_listed_locked(struct cache *c, struct node *dir, const struct object *marker,
                       uint64_t generation) REQUIRES(cache_mutex);
/* Takes what the store said of the marker; NULL: there is none. */
void dir_told_locked(struct cache *c, struct node *dir, const struct object *marker,
                     uint64_t generation) REQUIRES(cache_mutex);
/* Whether the attributes of the marker that a listing showed are not known. */
bool dir_wants_marker_locked(struct node *dir, const struct object *marker)
    REQUIRES(cache_mutex);
/* What the marker that a listing showed says of the directory, as far as the store has it;
 * borrows the texts. False when that is not known; `*ret_sure`: the store itself told it. */
bool dir_marker_attrs_locked(struct node *dir, const struct object *marker, struct attrs *ret,
                             bool *ret_sure) REQUIRES(cache_mutex);
/* Whether only a request of its own tells the directory's attributes. */
bool dir_asks_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Whether the directory's shown attributes are ours, whatever the store says. */
bool dir_attrs_are_ours(struct node *dir) REQUIRES(cache_mutex);

/* ---- merge.c ---- */
/* Adds a name of `len` bytes; 0 or -ENOMEM. */
int listing_add(struct listing *l, const char *name, size_t len, const struct object *obj);
/* Frees the names and the marker that the listing has gathered; the listing itself stays its
 * owner's. */
void listing_clear(struct listing *l);
/* Takes it into the tree, unless the directory has moved since it was asked. `hidden`: how many
 * names it had that no path can show; `cut`: there are more names. 0; or -ENOMEM: some names
 * are missing, and the directory counts as listed no more recently than before. Holding no
 * lock. */
int listing_merge(struct listing *l, const struct asked *asked, uint64_t hidden, bool cut)
    EXCLUDES(cache_ns, cache_mutex);
/* Whether the object's metadata say what is shown here of a file with content in the cache. */
bool listing_attrs_agree(struct node *n, const struct object *obj) REQUIRES(cache_mutex);
/* Takes from the store what an index had told. */
void attrs_hear_locked(struct cache *c, struct node *n, const struct object *obj)
    REQUIRES(cache_mutex);
/* The store's object under a name that is known here, and that lies at this place; 1 when it
 * stays hidden. */
int listing_update_entry(struct cache *c, struct entry *e, struct place at,
                         const struct object *obj, int64_t asked_ns) REQUIRES(cache_ns)
    EXCLUDES(cache_mutex);
/* 1 when there is something of that name that is not shown. */
int listing_merge_one(struct cache *c, struct node *dir, const char *name,
                      const struct object *obj, int64_t asked_ns) REQUIRES(cache_ns)
    EXCLUDES(cache_mutex);
/* Borrows the place. */
struct asked listing_asked_locked(struct cache *c, struct place at) REQUIRES(cache_mutex);
/* While the store moves a directory it can't be told whether an answer is from before or after;
 * and two moves may bring a place back to what had it when it was asked. */
bool listing_may_have_moved(struct cache *c, const struct asked *asked) EXCLUDES(cache_mutex);
/* Whoever got no answer for that asks again at once: comes between the two, with no lock held.
 */
void listing_pause_while_it_moves(struct cache *c, const struct asked *asked)
    EXCLUDES(cache_ns, cache_mutex);

/* ---- notes_ask.c ---- */
/* Whether the notes of other mounts hide the unit whose directory lies at this place, by
 * answers that were asked for at `since_ns` (CLOCK_MONOTONIC) or later: 1 or 0; also where no
 * notes are kept, or may not be read. Else why that could not be found out. In a worker,
 * holding no lock. */
int noted_hides(struct cache *c, struct op *op, struct place unit, int64_t since_ns)
    EXCLUDES(cache_mutex);
/* The same for what is in other stores than the notes: while theirs does not answer nothing of
 * that is hidden. */
int noted_hides_elsewhere(struct cache *c, struct op *op, struct place unit, int64_t since_ns)
    EXCLUDES(cache_mutex);
/* Whether a unit was ever made whole in the store that has the directory, or may have been. */
bool noted_has_seals(struct cache *c, struct op *op, struct place dir) EXCLUDES(cache_mutex);
/* Frees all that is known of notes; nobody asks any more. */
void noted_forget_locked(struct cache *c) REQUIRES(cache_mutex);

/* ---- hidden.c ---- */
/* Marks what the listing is not to show. What was listed was there at `shown_ns`, and `at` is
 * where. When the directory itself is in a unit that is hidden, that goes. 0; or why nobody
 * knows what to hide. In a worker, holding no lock. */
int hidden_mark(struct listing *l, struct op *op, struct place at, int64_t shown_ns)
    EXCLUDES(cache_ns, cache_mutex);
/* Whether what was listed in the directory at `asked_ns` may be half of a unit that became
 * whole since: that was found later, and is to be listed once more. */
bool hidden_was_listed_early_locked(struct cache *c, struct node *dir, int64_t asked_ns)
    REQUIRES(cache_mutex);
/* Whether the object, which a look for the name has just found, is not to be shown: 1 or 0, or
 * why nobody knows. The same. */
int hidden_name(struct cache *c, struct op *op, struct node *dir, const char *name,
                struct place at, const struct object *obj) EXCLUDES(cache_ns, cache_mutex);

/* ---- list_ahead.c ---- */
/* A program looks into the directory. */
void list_ahead_step_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Whether one request may tell of many siblings, too: not where they are known to be large. */
bool list_ahead_may_pay_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* The directory was listed: its children may be small now. */
void list_ahead_listed_locked(struct node *dir) REQUIRES(cache_mutex);
/* Parks while a request is under way that may tell of the directory, else 0. */
int list_ahead_wait_locked(struct cache *c, struct node *dir, struct waiter *w)
    REQUIRES(cache_mutex);
/* Whether a program has just walked through the directory's siblings to it. */
bool list_ahead_is_on_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* The directory is to be listed alone, being one of no row: whether one request should tell of
 * those around it. */
bool list_ahead_apart_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Sends that request. In a worker, holding no lock. */
void list_around(struct cache *c, struct node *dir, int64_t asked_ns) EXCLUDES(cache_mutex);
/* Lists the directory and the siblings behind it, and all below them, as far as one request
 * tells. In a worker, holding no lock. */
void list_ahead_run(struct cache *c, struct node *dir, int64_t asked_ns) EXCLUDES(cache_mutex);

#endif
