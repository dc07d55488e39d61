/* A cache over a store that refuses a bad name for good, beside others that it takes: what
 * test_cache_refused.c and test_cache_refused_rename.c share. Include it once. */
#ifndef RUNFS_TESTS_LIB_REFUSED_NAME_H
#define RUNFS_TESTS_LIB_REFUSED_NAME_H

#include "cache/cache.h"
#include "tests/lib/driven.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAD "dir/bad\xff"

static struct {
    atomic_int with;  /* errno for what has a bad name */
    atomic_bool lost; /* it takes a bad name once, says nothing, and refuses it from then on */
    atomic_bool all;  /* every change is refused, whatever its name */
    atomic_bool takes_own;      /* but not of our own objects */
    atomic_uint own;            /* changes of those */
    atomic_bool answers;        /* it says what it has at a bad name */
    _Atomic(const char *) hold; /* copies to that name, and its removal, until this changes */
    atomic_bool held;
    struct attrs attrs;   /* of the first put to a bad name */
    atomic_uint refused;  /* requests with a bad name that were */
    atomic_uint removals; /* those of them that were to remove it, or asked what is there */
} store;

static struct driven d;
static _Thread_local unsigned refused_removals; /* how many, when this thread's was refused */

static bool is_bad(const char *key)
{
    return key && strchr(key, '\xff');
}

static bool names_bad(const struct call *c)
{
    bool bad = is_bad(c->key) || is_bad(c->to);

    for (size_t i = 0; i < c->n_keys; i++)
        bad = bad || is_bad(c->keys[i]);
    return bad;
}

static bool is_held(const struct call *c)
{
    const char *hold = atomic_load(&store.hold);
    bool is = hold && c->kind == CALL_COPY && strcmp(c->to, hold) == 0;

    for (size_t i = 0; hold && c->kind == CALL_REMOVE && i < c->n_keys; i++)
        is = is || strcmp(c->keys[i], hold) == 0;
    return is;
}

static int64_t around(struct layer *l, struct call *c)
{
    bool asks = c->kind == CALL_LIST || c->kind == CALL_READ || c->kind == CALL_STAT;

    (void)l;
    while (is_held(c)) {
        atomic_store(&store.held, true);
        (void)usleep(1000);
    }
    if (c->kind == CALL_PUT && is_bad(c->key) && !store.attrs.has)
        (void)attrs_copy(&store.attrs, c->attrs);
    if (c->kind == CALL_PUT && is_bad(c->key) && atomic_exchange(&store.lost, false)) {
        (void)call_next(c);
        atomic_store(&store.with, EACCES);
        return op_fail(c->op, -EIO, "put: the answer was lost");
    }
    if (atomic_load(&store.with) && names_bad(c) && !(asks && atomic_load(&store.answers))) {
        atomic_fetch_add(&store.refused, 1);
        if (c->kind == CALL_REMOVE || c->kind == CALL_STAT)
            refused_removals = atomic_fetch_add(&store.removals, 1) + 1;
        return op_fail(c->op, -atomic_load(&store.with), "%s: the store refuses that",
                       call_name(c->kind));
    }
    if (!asks && c->key && path_below(STORE_STATE_DIR, c->key)) {
        atomic_fetch_add(&store.own, 1);
        if (atomic_load(&store.takes_own))
            return call_next(c);
    }
    if (!asks && atomic_load(&store.all))
        return op_fail(c->op, -EACCES, "%s %s: denied", call_name(c->kind), c->key);
    return call_next(c);
}

static void fill(void)
{
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "other"), 0);
    driven_put(&d, "dir/old", "old", 3);
    driven_put(&d, "other/old", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
}

static void setup(void)
{
    atomic_store(&store.with, EACCES);
    atomic_store(&store.lost, false);
    atomic_store(&store.all, false);
    atomic_store(&store.answers, false);
    atomic_store(&store.refused, 0);
    atomic_store(&store.hold, NULL);
    atomic_store(&store.held, false);
    atomic_store(&store.removals, 0);
    atomic_store(&store.takes_own, false);
    atomic_store(&store.own, 0);
    attrs_release(&store.attrs);
    driven_init_like_s3(&d, around);
    d.config.retry_ns = 100 * NS_PER_MS;
    fill();
}

static void teardown(void)
{
    driven_release(&d);
}

static bool is_stored(const char *key)
{
    char buf[8];

    return driven_stored(&d, key, buf, sizeof(buf)) >= 0;
}

static struct cache_stats stats(void)
{
    struct cache_stats s;

    cache_get_stats(d.cache, &s);
    return s;
}

static void await_refusals(unsigned n)
{
    unsigned before = atomic_load(&store.refused);

    DRIVEN_WAIT(atomic_load(&store.refused) >= before + n);
}

static int note_error(void *arg, const struct cache_pending *p)
{
    if (is_bad(p->path) && p->error)
        (void)snprintf(arg, 320, "%s", p->error);
    return 0;
}

/* Whether the status says of the name that the store refuses just that. */
static bool is_told(void)
{
    char error[320] = "";

    (void)cache_each_pending(d.cache, note_error, error);
    return strstr(error, "refuses the name");
}

#endif
