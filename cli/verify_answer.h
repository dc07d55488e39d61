/* The daemon's answer to the request "verify". */
#ifndef RUNFS_CLI_VERIFY_ANSWER_H
#define RUNFS_CLI_VERIFY_ANSWER_H

#include "cache/cache.h"

#include <jansson.h>

struct verify_answer {
    struct cache *cache;
    int fd;                /* of the client */
    const char *cache_dir; /* for the client to tell */
    void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes);
    void *arg;
};

/* Verifies what is at and below `path` until op's deadline, sends what is not right as it is
 * found, in messages of progress, and the counts at the end. 0, or a negative errno when the
 * client went away. Any thread. */
int verify_answer(const struct verify_answer *a, const char *path, const json_t *request,
                  struct op *op);

/* The verdict's name in messages. */
const char *verify_verdict_name(enum cache_verdict verdict);
/* CACHE_VERDICTS: none of them. */
enum cache_verdict verify_verdict(const char *name);

#endif
