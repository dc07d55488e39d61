/* The contract of store.h as one suite for every store and every layer. A test executable
 * defines its fixtures, includes contract.c, and adds contract_tcase() to its suite. */
#ifndef RUNFS_TESTS_CONTRACT_H
#define RUNFS_TESTS_CONTRACT_H

#include "backends/store.h"

#include <check.h>

/* A store to test. Several may stand for one server: each test works below a directory of its
 * own with a random name. */
struct contract_fixture {
    const char *name;
    /* A store of its own for the test, ready to use; fails the test when there is none. Closed
     * by the test with store_close(). Called again it opens the same place. */
    struct store *(*open)(const struct contract_fixture *f);
    unsigned page_names;                        /* more names than one page of a listing has */
    bool flat;                                  /* a key may be both object and directory */
    bool any_name;                              /* takes names with control characters */
    const char *arg;                            /* for open() */
    struct store *(*layer)(struct store *next); /* for open(): around the driver; may be NULL */
    const char *in;    /* the directory that the tests' own ones are in; NULL: the root */
    bool routed;       /* what holds depends on the key */
    const char *state; /* of STORE_STATE_DIR, where there is a state; NULL: that itself */
    bool removal_bars; /* its server refuses a put beside the removal of what was alone in its
                          directory (versitygw: 409 ExistingObjectIsDirectory) */
};

/* Every rule, over each of the fixtures, which must live on. */
TCase *contract_tcase(const struct contract_fixture *fixtures, size_t n);

/* The whole main() of a contract executable. */
int contract_main(const char *name, const struct contract_fixture *fixtures, size_t n);

#endif
