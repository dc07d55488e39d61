/* Short words for calls of the S3 driver about one key: what test_s3_*.c share that put, stat
 * and read. Include it once. */
#ifndef RUNFS_TESTS_LIB_S3_CALLS_H
#define RUNFS_TESTS_LIB_S3_CALLS_H

#include "backends/store.h"
#include "common/mem.h"
#include "tests/lib/s3_scripted.h"

#include <string.h>

static int put(const char *etag)
{
    struct mem_source src;

    mem_source_init(&src, "hello", 5);
    return store_put(store, &op, "k", etag, &src.base, NULL, NULL);
}

static int stat_key(const char *key)
{
    struct object obj;
    int r = store_stat(store, &op, key, &obj);

    if (!r)
        object_release(&obj);
    return r;
}

static ssize_t read_key(const char *etag, size_t len, uint64_t off, char data[17])
{
    struct mem_sink sink;
    struct object obj;
    ssize_t n;

    memset(data, 0, 17);
    mem_sink_init(&sink, data, 16, off);
    n = store_read(store, &op, "k", etag, &sink.base, len, off, &obj);
    if (n >= 0)
        object_release(&obj);
    return n;
}

#endif
