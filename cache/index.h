/* What the attribute indexes of single directories (index.c) and that of the tree's small
 * directories (index_tree.c) share: when they are read and written, and what may be in them. */
#ifndef RUNFS_CACHE_INDEX_H
#define RUNFS_CACHE_INDEX_H

#include "cache/attr_index.h"
#include "cache/node.h"

/* One round of HEADs tells of fewer files than this: a directory of so many has an index of its
 * own, a smaller one is in that of the tree. */
#define INDEX_FILES_MIN 16
/* News are written when they are this part of what is there, ... */
#define INDEX_NEWS_PART 8
/* ... rested, but at most so long, ... */
#define INDEX_BUSY_MAX_NS (60 * NS_PER_SEC)
/* ... or else after this time. */
#define INDEX_LATE_NS (600 * NS_PER_SEC)
/* An index that was not there is not asked for again for a while. */
#define INDEX_ABSENT_NS (60 * NS_PER_SEC)
/* Those who list wait for an index at most so long: there are HEADs. */
#define INDEX_READ_NS     (10 * NS_PER_SEC)
#define INDEX_WRITE_NS    (30 * NS_PER_SEC)
#define INDEX_RETRY_NS    (60 * NS_PER_SEC)
#define INDEX_RETRIES_MAX 3
/* How often another mount may get between reading and putting an index. */
#define INDEX_ROUNDS_MAX 4
/* Names looked at without letting others have the lock. */
#define INDEX_CHUNK 256

/* ---- index.c ---- */

/* An index's text, to be released, and its version: "" when there is none, which is 0, too. */
int index_read_text(struct cache *c, struct op *op, const char *key, struct buf *ret_text,
                    char ret_etag[STORE_ETAG_MAX]);
/* Puts it on the condition that it still is version `etag` ("" none), else -ESTALE; the new
 * version is in `ret_etag`, which may be NULL. */
int index_put_text(struct cache *c, struct op *op, const char *key, const struct buf *text,
                   const char *etag, char ret_etag[STORE_ETAG_MAX]);
/* Gives the lock to who waits for it, at every INDEX_CHUNK-th i. */
void index_breathe_locked(struct cache *c, size_t i) REQUIRES(cache_mutex);
/* Marks the files whose attributes are not known here; how many that are. */
size_t index_mark_wanted(struct cache *c, struct node *dir, const struct listed *v, size_t n,
                         bool *wanted);
/* Takes the attributes from the entry (or NULL), if it speaks of the very version listed. */
void index_take(const struct index_entry *e, struct object *obj);
/* Adds one listed file of `dir`, under `key` and its name, to an index: what is known here, or
 * what the entry (or NULL) of an older index says. */
int index_merge_locked(struct node *dir, const char *key, const struct index_entry *before,
                       const struct listed *l, struct index *to) REQUIRES(cache_mutex);
/* Appends what a listing says of a file. 0 or -ENOMEM. */
int index_collect(struct listed **v, size_t *n, size_t *cap, const char *name,
                  const struct object *obj);
void index_collect_free(struct listed *v, size_t n);
/* It may not be written: true, and nobody tries again. */
bool index_refused_locked(struct cache *c, int r, const char *why) REQUIRES(cache_mutex);

/* ---- index_tree.c ---- */

/* Attributes in a small directory became known; index_unqueue_locked() takes it back. */
void index_tree_news_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Frees what nobody reads any more, and starts to write if it is time to. */
void index_tree_start_locked(struct cache *c, int64_t now, int64_t *next_due)
    REQUIRES(cache_mutex);
/* Whether cache_write_indexes() has to wait. */
bool index_tree_pending_locked(struct cache *c) REQUIRES(cache_mutex);

#endif
