/* What the attribute indexes of single directories (index.c) and that of the tree's small
 * directories (index_tree.c) share: when they are read and written, and what may be in them. */
#ifndef RUNFS_CACHE_LISTING_INDEX_H
#define RUNFS_CACHE_LISTING_INDEX_H

#include "cache/listing/listing_impl.h"
#include "cache/types/attr_index.h"
#include "common/mem.h"

/* News are written when they are this part of what is there, ... */
#define INDEX_NEWS_PART 8

/* ... rested, but at most so long, ... */
#define INDEX_BUSY_MAX_NS (60 * NS_PER_SEC)

/* ... or else after this time. */
#define INDEX_LATE_NS (600 * NS_PER_SEC)

/* An index that was not there is not asked for again for a while. */
#define INDEX_ABSENT_NS (60 * NS_PER_SEC)

/* A listing waits for an index at most so long: there are HEADs. */
#define INDEX_READ_NS (10 * NS_PER_SEC)

#define INDEX_WRITE_NS (30 * NS_PER_SEC)

#define INDEX_RETRY_NS (60 * NS_PER_SEC)

#define INDEX_RETRIES_MAX 3

/* How often another mount may get between reading and putting an index. */
#define INDEX_ROUNDS_MAX 4

/* Names looked at without letting others have the lock. */
#define INDEX_CHUNK 256

/* An index as the store has it: its text, what it says (nothing when it is damaged), and its
 * version, "" when there is none. */
struct stored_index {
    struct buf text;
    struct index index;
    char etag[STORE_ETAG_MAX];
};

/* Fewer news are not worth to write a part for: a part may be a hundred times as long. */
#define NEWS_MIN 64

/* A part of more is split, into parts of half of that. */
#define PART_FILES_MAX 8192

#define PART_BYTES_MAX (4U << 20)

/* A part in memory. */
struct loaded {
    struct loaded *next GUARDED_BY(cache_mutex);
    char *start, *end; /* ranks; end NULL: the last */
    struct index_part part;
    unsigned users GUARDED_BY(cache_mutex);
    int64_t used_ns GUARDED_BY(cache_mutex); /* CLOCK_MONOTONIC */
};

/* All of it under cache_mutex. */
struct index_tree {
    GUARDED_BY(cache_mutex) struct {
        struct loaded *loaded;
        bool loading;      /* one at a time */
        int64_t absent_ns; /* CLOCK_MONOTONIC; when there was no first part; 0 never seen */
        struct debt debt;  /* what is being written, or is to be */
        int64_t first_ns, last_ns; /* CLOCK_MONOTONIC; of the news */
        size_t files;              /* in the parts that were written last */
    };
};

/* A part as the store has it: its text, what it says (nothing when it is damaged), and its
 * version, "" when there is none. */
struct stored_part {
    struct buf text;
    struct index_part part;
    char etag[STORE_ETAG_MAX];
};

/* ---- index.c ---- */
/* An index's text, to be released, and its version: "" when there is none, which is 0, too. */
int index_read_text(struct cache *c, struct op *op, struct place index, struct buf *ret_text,
                    char ret_etag[STORE_ETAG_MAX]);
/* Gives the lock to waiting threads at every INDEX_CHUNK-th i. */
void index_breathe_locked(struct cache *c, size_t i) REQUIRES(cache_mutex);
/* When news that came from `first_ns` to `last_ns` have rested: INDEX_BUSY_MAX_NS after the
 * first at the latest, unless they are to rest for longer than that at all. */
static inline int64_t index_rested_ns(const struct cache *c, int64_t first_ns, int64_t last_ns)
{
    int64_t rest_ns = c->config.index_settle_ns, due_ns = last_ns + rest_ns;
    int64_t latest_ns = first_ns + (rest_ns > INDEX_BUSY_MAX_NS ? rest_ns : INDEX_BUSY_MAX_NS);

    return due_ns < latest_ns ? due_ns : latest_ns;
}
/* Which directory the debt is part of; NULL for NULL. */
static inline struct node *debt_index_dir(struct debt *d)
{
    return d ? container_of(d, struct dir, index.debt)->node : NULL;
}
/* Whether the index of the tree is to tell of the directory's news. */
bool index_is_in_tree_locked(struct cache *c, const struct node *dir) REQUIRES(cache_mutex);
/* The directory leaves the list of those whose index lacks something. */
void index_unqueue_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Marks the files whose attributes are not known here; returns how many. */
size_t index_mark_wanted(struct cache *c, struct node *dir, const struct listed *v, size_t n,
                         bool *wanted) EXCLUDES(cache_mutex);
/* Takes the attributes from the entry (or NULL), if it speaks of the very version listed. */
void index_take(const struct index_entry *e, struct object *obj);
/* Frees what index_load() gave; accepts zeros. */
void index_stored_release(struct stored_index *s);
/* That of the directory at `dir`, which lies at `index` itself. 0 or a negative errno. */
int index_load(struct cache *c, struct op *op, struct place dir, struct place index,
               struct stored_index *ret);

/* ---- index_tree.c ---- */
/* The tree of this cache may have an index. 0 or -ENOMEM. */
int index_tree_init(struct cache *c);
/* Accepts a cache that can't have one. */
void index_tree_free(struct cache *c) REQUIRES(cache_mutex);
/* Where the directory stands in the order of the index; heap or NULL. */
char *index_tree_rank(struct place dir);
/* Frees those that nobody uses and that are `old_ns` old. */
void index_tree_unload_locked(struct index_tree *t, int64_t old_ns) REQUIRES(cache_mutex);
/* Frees what index_tree_load() gave; accepts zeros. */
void index_tree_stored_release(struct stored_part *s);
/* Reads the part of the tree's index that begins at `start`, and its version, from the store.
 * A damaged part counts as an empty one. 0 or a negative errno; blocks, holds no lock. `*ret`
 * is to be released in any case. */
int index_tree_load(struct cache *c, struct op *op, const char *start, struct stored_part *ret);

/* ---- index_tree_write.c ---- */
/* Attributes in a small directory became known; index_unqueue_locked() takes it back. */
void index_tree_news_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Whether cache_write_indexes() has to wait. */
bool index_tree_pending_locked(struct cache *c) REQUIRES(cache_mutex);

/* ---- index_write.c ---- */
/* Puts it on the condition that it still is version `etag` ("" none), else -ESTALE; the new
 * version is in `ret_etag`, which may be NULL. */
int index_put_text(struct cache *c, struct op *op, struct place index, const struct buf *text,
                   const char *etag, char ret_etag[STORE_ETAG_MAX]);
/* Adds one listed file of `dir`, under `key` and its name, to an index: what is known here, or
 * what the entry (or NULL) of an older index says. */
int index_merge_locked(struct node *dir, const char *key, const struct index_entry *before,
                       const struct listed *l, struct index *to) REQUIRES(cache_mutex);
/* Appends what a listing says of a file. 0 or -ENOMEM. */
int index_collect(struct listed **v, size_t *n, size_t *cap, const char *name,
                  const struct object *obj);
/* Frees what index_collect() gathered. */
void index_collect_free(struct listed *v, size_t n);
/* A write failed: notes it. Whether to try it again, after a pause; not where the answer
 * refuses indexes for good. */
bool index_failed_locked(struct cache *c, struct debt *d, int r, const char *why)
    REQUIRES(cache_mutex);

#endif
