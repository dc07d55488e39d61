/* What the files of the routed store share. */
#ifndef RUNFS_BACKENDS_ROUTED_IMPL_H
#define RUNFS_BACKENDS_ROUTED_IMPL_H

#include "backends/routed/routed.h"

struct leaf {
    struct store *store; /* owned */
    char *name;          /* heap */
    atomic_uint helpers; /* threads of crowds that ask it */
};

struct routed {
    struct store base;
    struct store_ops ops; /* base.ops: without what no leaf has */
    const struct routes *routes;
    struct leaf *leaves;
    size_t n;
    struct store_facts all;   /* what holds at every key */
    struct store_facts *each; /* what holds at the keys of each route */
    uint64_t names_max; /* bytes that the names of a listing take at most, while it is made */
};

#define ROUTED_HELPERS_MAX 32 /* of a leaf, beside the threads of who calls */
#define ROUTED_NAMES_MAX   (UINT64_C(64) << 20)

struct routed *routed_of(struct store *s);

/* ---- find.c: from a path to a key ---- */

struct target {
    enum routes_kind kind;     /* NOWHERE, too, where the route has no store */
    const struct route *route; /* MAPPED: this and what follows; NULL: of a leaf's state */
    struct leaf *leaf;
    char *key; /* heap */
};

void target_done(struct target *t);
#define auto_target __attribute__((cleanup(target_done)))

/* What is behind a path for who asks: a name that can't be there leads NOWHERE. 0 or -ENOMEM.
 */
int target_find(struct routed *r, struct op *op, const char *path, enum routes_as as,
                struct target *ret);
/* The object behind a path for who changes it: -EPERM without a route, and as routes_find(). */
int target_to_change(struct routed *r, struct op *op, const char *what, const char *path,
                     enum routes_as as, struct target *ret);
int no_route(struct op *op, int err, const char *what, const char *path);
/* Whether an object of the leaf's own would be meant (STORE_STATE_DIR), which no path is. */
bool key_is_reserved(const char *key);
/* The call of store.h: the state of the one leaf that has the path. */
int routed_state_of(struct store *s, struct op *op, const char *path, bool dir,
                    char **ret_state, char **ret_key);
/* The leaf in whose state the path is, which has one; NULL: it is in none. *ret_rest, a part of
 * the path, is behind the leaf's STORE_STATE_DIR and begins with "/", or is "". */
struct leaf *find_state(const struct routed *r, const char *path, const char **ret_rest);
/* Whether the route's paths lead through or below the directory. */
bool route_leads_through(const struct route *route, const char *path);
/* The same of a template of paths, or of keys as they are stored. */
bool template_leads_through(const struct template *t, const char *path);
/* Whether the directory, which `route` maps, is that one key and nothing else. */
bool is_alone(const struct routed *r, const struct route *route, const char *path);
/* Components of a path or key. */
size_t depth_of(const char *path);
/* Whether the path is a directory below the root of the route, or that root. */
bool is_mapped_by(const struct route *route, size_t depth);

/* ---- ask.c: several questions at once ---- */

enum ask_kind {
    ASK_OBJECT,    /* stat; a directory is none */
    ASK_DIRECTORY, /* stat; an object of that name hides no directory */
    ASK_EITHER,    /* stat */
    ASK_OWN,       /* stat_dir */
    ASK_LIST,
};

struct listed {
    char *name; /* heap */
    struct object obj;
};

/* Bytes of what questions keep. */
struct kept {
    atomic_uint_fast64_t bytes;
    uint64_t max;     /* 0: no limit */
    atomic_bool over; /* something did not fit */
};

/* 0 or -EFBIG. */
int asks_keep(struct kept *k, uint64_t bytes);
/* Of a name and of what its object has on the heap. */
uint64_t named_bytes(const char *name, const struct object *obj);

struct ask {
    enum ask_kind kind;
    struct leaf *leaf;
    char *key;         /* heap */
    struct kept *kept; /* of its list */
    unsigned flags;    /* LIST: LIST_SELF or 0 */
    size_t max;        /* LIST: is cut behind so many names */
    bool later;        /* not yet */
    bool done;
    /* Its answer. */
    int r;             /* 0, -ENOENT or what failed */
    bool cut;          /* there are more names; none is kept */
    struct object obj; /* of a stat, when r is 0 */
    struct listed *item;
    size_t n, cap;
    uint64_t hidden; /* names that the leaf could not show */
    struct op op;    /* of its own */
};

struct asks {
    struct ask *v; /* heap */
    size_t n, cap;
    struct kept kept;
};

void asks_release(struct asks *a);
#define auto_asks __attribute__((cleanup(asks_release)))
/* The question in the list, a new one where it is not among them; its index in *ret. 0 or
 * -ENOMEM, or -EFBIG where what is kept has a limit. The list stays where it is from now on. */
int asks_add(struct asks *a, enum ask_kind kind, struct leaf *leaf, const char *key,
             size_t *ret);
enum asks_until {
    ASKS_ALL,
    ASKS_FAILED, /* a failure ends those that did not begin */
    ASKS_FOUND,  /* a store that has it ends the others, after a moment for those that work */
};
/* Asks what was not asked yet, all at once. The first failure in their order, with op->why;
 * that nothing is there is none. */
int asks_run(struct asks *a, struct op *op, enum asks_until until);

/* The names that a listing told are taken; that of the directory itself is kept. */
void ask_keep_self(struct ask *a);

/* A visit that ends its listing with 1. */
int stop_at_first(void *arg, const char *name, const struct object *obj);

/* Tasks of one call, each of which asks one leaf; run at once as far as the machine and the
 * number of threads that ask that leaf allow; each begins. */
struct crowd {
    void (*run)(struct crowd *crowd, size_t i, struct op *op);
    struct leaf *(*leaf)(struct crowd *crowd, size_t i);
    size_t n;
};
void crowd_run(struct crowd *crowd, struct op *op);

/* ---- sources.c: what is shown in a directory ---- */

/* A source of routes.h that outlives its visit. */
struct source_of {
    struct routes_source s; /* key and name are heap */
    struct leaf *leaf;      /* NULL: of a route without a store, a name that exists always */
    size_t ask;             /* among those of the listing; SIZE_MAX: none */
    const char *stored;     /* NAMED, found in a listing: the stored name; borrows the key */
};
struct sources {
    struct source_of *v; /* heap */
    size_t n, cap;
};
void sources_release(struct sources *s);
#define auto_sources __attribute__((cleanup(sources_release)))
/* In the order of the routes. 0, -ENOMEM or as routes_find(). */
int sources_find(struct routed *r, const char *dir, struct sources *ret);
/* A name of a source. */
struct child {
    char *name; /* heap */
    enum routes_as as;
    bool own;     /* what was seen in the store is the path's own key */
    bool doubted; /* it is there only if the object of its own key is */
};
/* Whether what a leaf has there is a child of the source: 1, 0 or -ENOMEM. */
int source_takes(struct routed *r, const struct source_of *s, const char *dir,
                 const char *stored, bool is_prefix, struct child *ret);
/* The object of a directory of which no key is the directory itself: what was seen of it is a
 * directory on the way, whose marker is not that of the directory. `seen` may be NULL. */
struct object implied_object(const struct object *seen);
/* Names that are not shown, of the leaves and of this store. */
void tell_hidden(struct routed *r, struct op *op, uint64_t leaves, uint64_t ours);

/* ---- union.c, tree.c: listings ---- */

int routed_list(struct store *s, struct op *op, const char *prefix, unsigned flags,
                const char *after, store_visit visit, void *arg);
int routed_list_tree(struct routed *r, struct op *op, const char *prefix, store_visit visit,
                     void *arg);

/* ---- the calls of store.h ---- */

int routed_stat(struct store *s, struct op *op, const char *path, struct object *ret_obj);
int routed_stat_dir(struct store *s, struct op *op, const char *path, struct object *ret_obj);
ssize_t routed_read(struct store *s, struct op *op, const char *path, const char *etag,
                    struct sink *sink, size_t len, uint64_t off, struct object *ret_obj);
int routed_put(struct store *s, struct op *op, const char *path, const char *etag,
               struct source *src, const struct attrs *attrs, struct object *ret_obj);
int routed_copy(struct store *s, struct op *op, const char *from, const char *from_etag,
                const char *to, const char *to_etag, const struct attrs *attrs,
                struct object *ret_obj);
int routed_rename(struct store *s, struct op *op, const char *from, const char *to);
int routed_remove(struct store *s, struct op *op, const char *const *paths,
                  const char *const *etags, size_t n, int *errs);
int routed_mkdir(struct store *s, struct op *op, const char *path, const struct attrs *attrs,
                 struct object *ret_obj);
int routed_rmdir(struct store *s, struct op *op, const char *path);
int routed_set_attributes(struct store *s, struct op *op, const char *path, const char *etag,
                          const struct attrs *attrs, struct object *ret_obj);

int routed_upload_begin(struct store *s, struct op *op, const char *path,
                        const struct attrs *attrs, struct upload **ret_up);
int routed_upload_part(struct upload *up, struct op *op, unsigned number, struct source *src);
int routed_upload_commit(struct upload *up, struct op *op, const char *etag,
                         struct object *ret_obj);
int routed_upload_abort(struct upload *up, struct op *op);
void routed_upload_detach(struct upload *up);
char *routed_upload_token(struct upload *up);
int routed_upload_resume(struct store *s, struct op *op, const char *path, const char *token,
                         int (*visit)(void *arg, const struct part *part), void *arg,
                         struct upload **ret_up);
int routed_upload_has(struct upload *up, struct op *op, unsigned number, struct source *src);
int routed_upload_sweep(struct store *s, struct op *op, const char *path, int64_t since_ns,
                        const char *keep);
/* A leaf's token with the leaf's name before it; heap, NULL without memory. */
char *token_of(const struct leaf *leaf, const char *token);

#endif
