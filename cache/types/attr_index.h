/* The text of an attribute index: what is known of the files of one directory, or of a part of
 * the tree's small directories, each bound to the version that a listing shows. docs/format.md,
 * section 7, has the form. The text comes from a store: anything may be in it. Any thread; no
 * I/O. */
#ifndef RUNFS_CACHE_ATTR_INDEX_H
#define RUNFS_CACHE_ATTR_INDEX_H

#include "backends/store.h"
#include "cache/types/place.h"
#include "common/buf.h"
#include "common/table.h"

#define INDEX_BYTES_MAX   (16U << 20)
#define INDEX_ENTRIES_MAX 65536
#define INDEX_KEY_MAX     128 /* bytes of an index's own key, with the NUL */
/* What the attributes of an entry can be. */
#define INDEX_ATTRS                                                                            \
    (ATTR_MODE | ATTR_OWNER | ATTR_MTIME | ATTR_RDEV | ATTR_TARGET | ATTR_XATTRS)

/* And those of a directory's marker. */
#define INDEX_MARKER_ATTRS (ATTR_MODE | ATTR_OWNER | ATTR_MTIME | ATTR_XATTRS)

struct index_entry {
    UT_hash_handle hh; /* in index.entries, by name; in a part of the tree by key, which ends in
                          "/" for a directory's marker */
    uint64_t size;     /* as the listing says it */
    int64_t modified_ns;
    char etag[STORE_ETAG_MAX];
    struct attrs attrs;
    char name[];
};

struct index {
    struct index_entry *entries;
};

/* The key of a directory's index, below STORE_STATE_DIR. 0 or -ENOMEM. */
int index_key(struct place dir, char ret[INDEX_KEY_MAX]);

void index_release(struct index *x);
struct index_entry *index_find(const struct index *x, const char *name);
/* Adds a file. 0, -ENOMEM, -EEXIST, -EPERM for attributes that only the object itself says
 * (set-id bits, symlinks, devices), or -E2BIG when no index may hold more, or the
 * attributes are none at all. */
int index_add(struct index *x, const char *name, const struct object *obj,
              const struct attrs *attrs);
/* Which has none of that name. */
void index_move(struct index *from, struct index_entry *e, struct index *to);
/* Whether the entry speaks of the very version that a listing shows. */
bool index_entry_fits(const struct index_entry *e, const struct object *obj);
/* Whether both say the same of a file. */
bool index_attrs_equal(const struct attrs *a, const struct attrs *b);

/* Reads the index of directory `dir`. -EINVAL for whatever is not one, -ENOMEM. */
int index_parse(const char *text, size_t len, const char *dir, struct index *ret);
/* Appends the text; -EFBIG when it becomes too long, and `out` is to be thrown away. */
int index_format(const struct index *x, const char *dir, struct buf *out);

/* ---- the tree's ---- */

/* More parts than this the first one does not name. */
#define INDEX_PARTS_MAX 4096

/* What is known of files in small directories whose rank is in one range. A directory's rank
 * is its key with a "/" behind it, "" that of the root; they are in the order of their bytes.
 * The first part begins at "" and says where the others do. */
struct index_part {
    struct index files;
    char **starts; /* ranks, in order; of the first part only */
    size_t n_starts;
};

/* The key of the part that begins at `start`, below STORE_STATE_DIR. 0 or -ENOMEM. */
int index_part_key(const char *start, char ret[INDEX_KEY_MAX]);
void index_part_release(struct index_part *p);
/* Bytes of the rank of the directory that a file's key names, from the key's beginning. */
size_t index_rank_len(const char *key);
/* Compares the rank of a file's directory with another rank, as strcmp(). */
int index_rank_cmp(const char *key, const char *rank);
/* Says where another part begins. 0, -ENOMEM, or -E2BIG when that is no rank, or there are too
 * many. */
int index_part_add_start(struct index_part *p, const char *start);
/* The start of the part that a rank is in, "" that of the first; `*ret_end` is where the next
 * one begins, or NULL. Both point into `first`. */
const char *index_part_of(const struct index_part *first, const char *rank,
                          const char **ret_end);
/* As index_add(), for the file `name` in the directory `dir`, or for the directory's own marker
 * ("", not of the root). */
int index_add_in(struct index *x, const char *dir, const char *name, const struct object *obj,
                 const struct attrs *attrs);
/* Puts the files into the order of their ranks. */
void index_part_sort(struct index_part *p);
/* As index_parse() and index_format(), of the part that begins at `start`; the files must be in
 * order. */
int index_part_parse(const char *text, size_t len, const char *start, struct index_part *ret);
int index_part_format(const struct index_part *p, const char *start, struct buf *out);

#endif
