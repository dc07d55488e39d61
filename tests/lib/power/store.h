/* What a store in memory was at each step of the disk: a cut finds it as it was then. */
#ifndef RUNFS_TESTS_LIB_POWER_STORE_H
#define RUNFS_TESTS_LIB_POWER_STORE_H

#include "backends/mem/tree.h"
#include "tests/lib/driven.h"

#include <stdatomic.h>

struct object_then {
    char *key;
    struct mem_blob *blob;
    int64_t mtime_ns;
    uint64_t version;
    struct checksum checksum;
    struct attrs attrs;
};

struct store_then {
    size_t at; /* operations on the disk before it */
    struct object_then *v;
    size_t n;
};

/* The store takes nothing. */
extern atomic_bool power_store_away;

/* For driven_init(): notes what changes. */
int64_t power_around(struct layer *l, struct call *c);
/* Begins, and ends, to note the changes. */
void power_history_begin(struct driven *d);
void power_history_end(void);
void power_history_forget(void);
/* What it was before that operation on the disk; a number of its own for each state. */
const struct store_then *power_store_at(size_t at, size_t *ret_number);

/* The caller frees it. */
struct store_then power_store_now(struct driven *d);
void power_store_then_free(struct store_then *then);
/* The store is as it was. */
void power_store_becomes(struct driven *d, const struct store_then *then);

#endif
