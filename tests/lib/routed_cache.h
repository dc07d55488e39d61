/* A driven cache over several stores: a table of routes, and a mem: store for each number in
 * it, whose requests are counted and can be made to fail. */
#ifndef RUNFS_TESTS_LIB_ROUTED_CACHE_H
#define RUNFS_TESTS_LIB_ROUTED_CACHE_H

#include "runs/policy.h"
#include "runs/routes.h"
#include "tests/lib/driven.h"

#include <stdatomic.h>

#define ROUTED_LEAVES 3

/* What the stores are: mem: ones that can all, like S3, or folders; mixed: the first is a
 * folder, the others are like S3. */
enum routed_kind { ROUTED_MEM, ROUTED_S3, ROUTED_FOLDERS, ROUTED_KINDS, ROUTED_MIXED };

struct routed_row {
    const char *path, *key;
    unsigned leaf, policy;
    bool scratch;
};

/* One of the stores. */
struct routed_leaf_store {
    struct layer *layer;
    char folder[64]; /* ROUTED_FOLDERS */
    atomic_uint requests;
    atomic_bool down;          /* each fails as if it can't be reached */
    atomic_bool stuck;         /* each that changes something gets no answer for as long */
    atomic_bool hung;          /* none gets an answer for as long */
    atomic_bool full;          /* each that puts something is told that there is no room */
    atomic_bool no_puts;       /* each that puts something fails */
    atomic_bool no_moves;      /* each that renames or copies something fails */
    atomic_int refuses;        /* an error that each removal gets, 0: none */
    atomic_bool no_conditions; /* each conditional put is refused as not known */
    _Atomic(const char *) refused_key; /* that it puts never */
    atomic_int rmdirs_held; /* > 0: so many rmdirs pass, the next waits till it is 0 again */
    atomic_uint rmdirs;
    atomic_uint plain_puts;   /* without a condition */
    atomic_bool no_reads;     /* each that reads gets no answer for as long */
    atomic_bool silent;       /* each that stats or lists gets none for as long */
    atomic_uint kept_waiting; /* so many of those */
};

/* Sees a request that is about to change something in that store. */
typedef void (*routed_watch)(unsigned leaf, const struct call *c);

struct routed_world {
    struct driven d;
    struct routes routes;
    struct policy policies[4]; /* the first says nothing */
    struct cache_store names[ROUTED_LEAVES];
    struct routed_leaf_store leaves[ROUTED_LEAVES];
    _Atomic(routed_watch) watch; /* or NULL */
    atomic_int
        fuse; /* so many requests that change something pass before all fail; < 0: all pass
               */
};

/* Aborts the test on any failure. Not mounted yet, so that the test can change the policies and
 * d.config. One at a time. */
void routed_init(struct routed_world *w, const struct routed_row *rows, size_t n,
                 enum routed_kind kind);
void routed_release(struct routed_world *w);

/* Of all stores. */
unsigned routed_requests(struct routed_world *w);
/* Whether the store itself has something under the key. */
bool routed_has(struct routed_world *w, unsigned leaf, const char *key);
/* Fails the test unless the store itself holds that text under the key; NULL: nothing. */
void routed_stores(struct routed_world *w, unsigned leaf, const char *key, const char *wanted);
/* Makes an object in that store, as another node would. */
void routed_store(struct routed_world *w, unsigned leaf, const char *key, const char *text);

#endif
