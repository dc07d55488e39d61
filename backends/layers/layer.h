/* What all layers share: one function around every call, instead of one for each.
 *
 * layer.c turns each call of store.h into a struct call and hands it to the layer's `around`,
 * which looks at it, hands it on with call_next() as often as it likes (none, once, again), and
 * returns its result. */
#ifndef RUNFS_BACKENDS_LAYERS_LAYER_H
#define RUNFS_BACKENDS_LAYERS_LAYER_H

#include "backends/store.h"

enum call_kind {
    CALL_STAT,
    CALL_LIST,
    CALL_READ,
    CALL_PUT,
    CALL_BEGIN,
    CALL_PART,
    CALL_COMMIT,
    CALL_ABORT,
    CALL_RESUME,
    CALL_HAS,
    CALL_SWEEP,
    CALL_COPY,
    CALL_RENAME,
    CALL_REMOVE,
    CALL_MKDIR,
    CALL_RMDIR,
    CALL_SETATTR,
    CALL_KINDS, /* how many */
};

/* An upload as a layer sees it: the layer's own struct, and the upload below. */
struct layer_upload {
    struct upload base;
    struct upload *next;
    char *key;
    struct attrs attrs; /* those of begin; none after a resume */
    void *extra;        /* the layer's; freed with free_extra */
};

/* The arguments of a call, as in store.h; those that the kind has not are zero. */
struct call {
    enum call_kind kind;
    struct store *next; /* where call_next() goes */
    struct op *op;
    const char *key; /* also `from`, the prefix, or the first of `keys` */
    const char *to;
    const char *etag; /* also `from_etag` */
    const char *to_etag;
    struct source *src;
    struct sink *sink;
    size_t len;
    uint64_t off;
    const struct attrs *attrs;
    struct object *ret_obj;
    bool self; /* stat: of the directory's own object */
    unsigned flags;
    const char *after;
    store_visit visit;
    void *visit_arg;
    struct layer_upload *up; /* part, has, commit, abort; and the new one of begin and resume */
    unsigned number;
    const char *token; /* also `keep` */
    int64_t since_ns;
    int (*visit_part)(void *arg, const struct part *part);
    const char *const *keys;
    const char *const *etags;
    size_t n_keys;
    int *errs;
};

/* Every layer embeds this first. */
struct layer {
    struct store base;
    struct store_ops ops; /* base.ops: those of `next` that are not NULL */
    int64_t (*around)(struct layer *l, struct call *c);
    void (*release)(struct layer *l); /* frees what the layer itself holds; may be NULL */
    void (*free_extra)(void *extra);  /* of an upload; may be NULL */
};

/* Fills the embedded layer around `next`; 0 or -ENOMEM, and then nothing is owned. The layer's
 * struct is freed with free() at close. */
int layer_init(struct layer *l, struct store *next,
               int64_t (*around)(struct layer *l, struct call *c));

/* Makes the call one store down and returns what it returned. */
int64_t call_next(struct call *c);

/* "put", "list", ... */
const char *call_name(enum call_kind kind);

#endif
