/* What the files of the mem: driver share: a sorted set of keys, and counted content.
 *
 * Functions return 0 or a negative errno and, where they take an op, fill op->why. */
#ifndef RUNFS_BACKENDS_MEM_TREE_H
#define RUNFS_BACKENDS_MEM_TREE_H

#include "backends/store.h"
#include "common/lock.h"

#include <stdatomic.h>

/* Content: constant once it is filled, freed with its last reference. */
struct mem_blob {
    atomic_uint refs;
    uint64_t size;
    char data[];
};

struct mem_entry {
    char *key; /* of a directory's marker with "/" at the end */
    struct mem_blob *blob;
    int64_t mtime_ns;
    uint64_t version;
    struct checksum checksum;
    struct attrs attrs;
};

/* An upload in parts; lives in the tree until commit or abort. */
struct mem_session {
    struct mem_session *next;
    uint64_t id;
    char *key;
    struct attrs attrs;
    unsigned n_parts;       /* highest number */
    struct mem_blob **part; /* by number - 1; NULL where there is none yet */
};

struct mem_tree {
    struct mem_tree *next;    /* of the named ones, under their lock; never freed */
    char *name;               /* NULL for a store of its own */
    struct mutex lock;        /* guards what follows */
    struct mem_entry **entry; /* sorted by key */
    size_t n_entries, cap;
    struct mem_session *sessions;
    uint64_t clock;  /* versions and session ids given out */
    bool by_content; /* an ETag says what the content is, as S3's do, and comes again with it */
};

/* ---- mem.c ---- */

struct mem_tree *mem_tree(struct store *s);

/* ---- tree.c: trees ---- */

/* The tree of that name, made when there is none; a new one without a name. */
struct mem_tree *mem_tree_get(const char *name, size_t len);
/* NULL is none. */
void mem_tree_free(struct mem_tree *t);

/* ---- tree.c: content ---- */

/* With one reference, not filled; NULL without memory. */
struct mem_blob *mem_blob_new(uint64_t size);
struct mem_blob *mem_blob_ref(struct mem_blob *b);
/* NULL is none. */
void mem_blob_unref(struct mem_blob *b);
/* All bytes of the source; the caller's reference. */
int mem_blob_from_source(struct op *op, struct source *src, struct mem_blob **ret);

/* ---- tree.c: the sorted keys; under the tree's lock ---- */

/* The entry of that key, or NULL. */
struct mem_entry *mem_find_locked(struct mem_tree *t, const char *key) REQUIRES(&t->lock);
/* Index of the first entry not before `key`. */
size_t mem_lower_bound_locked(struct mem_tree *t, const char *key) REQUIRES(&t->lock);
/* Takes `e`, in the place of an entry of the same key. */
int mem_insert_locked(struct mem_tree *t, struct mem_entry *e) REQUIRES(&t->lock);
/* Takes the entry out; the caller owns it. */
struct mem_entry *mem_take_out_locked(struct mem_tree *t, const char *key) REQUIRES(&t->lock);
void mem_entry_free(struct mem_entry *e);
/* How many keys, its marker among them, make the directory; 2 stands for more. */
int mem_dir_keys_locked(struct mem_tree *t, const char *prefix) REQUIRES(&t->lock);
/* What the entry is to callers. `e` NULL: a directory that only its children imply. */
int mem_describe(const struct mem_entry *e, bool is_dir, struct object *ret);
/* -ESTALE when `e` (NULL: absent) is not version `etag` (as in store_put()). */
int mem_check_version(struct op *op, const char *key, const struct mem_entry *e,
                      const char *etag);
/* Puts a new entry with `blob` (taken, also on failure) under `key`. */
int mem_store_blob_locked(struct mem_tree *t, struct op *op, const char *key,
                          struct mem_blob *blob, const struct attrs *attrs,
                          struct object *ret_obj) REQUIRES(&t->lock);

/* ---- tree.c: keys as text ---- */

/* "key/", or "" for the root: what keys below a directory begin with. Heap. */
char *mem_dir_prefix(const char *key);
bool mem_begins_with(const char *key, const char *prefix);

/* ---- upload.c: parts ---- */

int mem_upload_begin(struct store *s, struct op *op, const char *key, const struct attrs *attrs,
                     struct upload **ret_up);
int mem_upload_part(struct upload *base, struct op *op, unsigned number, struct source *src);
int mem_upload_commit(struct upload *base, struct op *op, const char *etag,
                      struct object *ret_obj);
int mem_upload_abort(struct upload *base, struct op *op);
void mem_upload_detach(struct upload *base);
char *mem_upload_token(struct upload *base);
int mem_upload_resume(struct store *s, struct op *op, const char *key, const char *token,
                      int (*visit)(void *arg, const struct part *part), void *arg,
                      struct upload **ret_up);
int mem_upload_has(struct upload *base, struct op *op, unsigned number, struct source *src);
/* Frees the sessions of a tree that nobody uses any more. */
void mem_upload_end_all(struct mem_tree *t);

#endif
