/* What the tests of the contract share: a place in a store, and short words for calls. Part of
 * contract.c. */
#ifndef RUNFS_TESTS_CONTRACT_PLACE_H
#define RUNFS_TESTS_CONTRACT_PLACE_H

#include "common/mem.h"
#include "common/path.h"
#include "tests/contract/contract.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define PATIENCE (60 * NS_PER_SEC)

static const struct contract_fixture *fixtures_run;

/* A store, and a directory of the test's own in it. */
struct place {
    const struct contract_fixture *fixture;
    struct store *s;
    struct op op;
    char dir[80];
    char keys[8][STORE_KEY_MAX]; /* results of key(), in turn */
    unsigned next_key;
};

static struct place *place_open(int i)
{
    struct place *p = calloc(1, sizeof(*p));
    uint64_t random;

    ck_assert_ptr_nonnull(p);
    ck_assert_int_eq(getrandom(&random, sizeof(random), 0), sizeof(random));
    p->fixture = &fixtures_run[i];
    const char *in = p->fixture->in;
    (void)snprintf(p->dir, sizeof(p->dir), "%s%stest-%016llx", in ? in : "", in ? "/" : "",
                   (unsigned long long)random);
    p->s = p->fixture->open(p->fixture);
    op_init(&p->op, PATIENCE);
    return p;
}

static void place_close(struct place *p)
{
    store_close(p->s);
    free(p);
}

/* The key of a name in the test's directory; good for eight calls. */
static const char *key(struct place *p, const char *name)
{
    char *k = p->keys[p->next_key++ % ARRAY_SIZE(p->keys)];

    (void)snprintf(k, STORE_KEY_MAX, "%s%s%s", p->dir, name[0] ? "/" : "", name);
    return k;
}

#define ok(p, expression)                                                                      \
    do {                                                                                       \
        int ok_r_ = (int)(expression);                                                         \
        ck_assert_msg(ok_r_ == 0, "%s: %s: %d %s", (p)->fixture->name, #expression, ok_r_,     \
                      (p)->op.why);                                                            \
    } while (0)

#define fails(p, error, expression)                                                            \
    do {                                                                                       \
        int fails_r_ = (int)(expression);                                                      \
        ck_assert_msg(fails_r_ == -(error), "%s: %s: %d, not -%s; %s", (p)->fixture->name,     \
                      #expression, fails_r_, #error, (p)->op.why);                             \
        ck_assert_msg((p)->op.why[0], "%s: %s: no reason given", (p)->fixture->name,           \
                      #expression);                                                            \
    } while (0)

/* Whether the store can do that where the test is. */
static bool can(struct place *p, unsigned caps)
{
    return store_can(p->s, p->dir, caps);
}

static int put_bytes(struct place *p, const char *name, const char *etag, const void *data,
                     size_t len, const struct attrs *attrs, struct object *obj)
{
    struct mem_source src;

    mem_source_init(&src, data, len);
    return store_put(p->s, &p->op, key(p, name), etag, &src.base, attrs, obj);
}

static int put_text(struct place *p, const char *name, const char *etag, const char *text)
{
    return put_bytes(p, name, etag, text, strlen(text), NULL, NULL);
}

/* The version of what was put. */
static void put_versioned(struct place *p, const char *name, const char *text,
                          char etag[STORE_ETAG_MAX])
{
    struct object obj;

    ok(p, put_bytes(p, name, NULL, text, strlen(text), NULL, &obj));
    memcpy(etag, obj.etag, STORE_ETAG_MAX);
    object_release(&obj);
}

static ssize_t get_bytes(struct place *p, const char *name, const char *etag, void *buf,
                         size_t len, uint64_t off, struct object *obj)
{
    struct mem_sink sink;

    mem_sink_init(&sink, buf, len, off);
    return store_read(p->s, &p->op, key(p, name), etag, &sink.base, len, off, obj);
}

static void assert_text(struct place *p, const char *name, const char *text)
{
    char buf[256];

    ssize_t n = get_bytes(p, name, NULL, buf, sizeof(buf) - 1, 0, NULL);
    ck_assert_msg(n >= 0, "%s: read %s: %zd %s", p->fixture->name, name, n, p->op.why);
    buf[n] = '\0';
    ck_assert_str_eq(buf, text);
}

static int stat_of(struct place *p, const char *name, struct object *obj)
{
    return store_stat(p->s, &p->op, key(p, name), obj);
}

static void assert_missing(struct place *p, const char *name)
{
    struct object obj;

    fails(p, ENOENT, stat_of(p, name, &obj));
}

/* Bytes that tell their place. */
static char *pattern(size_t len, unsigned seed)
{
    char *data = malloc(len + 1);

    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < len; i++)
        data[i] = (char)((i * 2654435761u + seed) >> 13);
    return data;
}

#endif
