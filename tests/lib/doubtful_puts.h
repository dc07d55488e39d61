/* A cache over a store that refuses or holds requests, and that remembers what was put last, to
 * be put once more: what test_cache_doubt.c and test_cache_late.c share. Include it once. */
#ifndef RUNFS_TESTS_LIB_DOUBTFUL_PUTS_H
#define RUNFS_TESTS_LIB_DOUBTFUL_PUTS_H

#include "tests/lib/driven.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static atomic_int refused;    /* enum call_kind; -1 none */
static atomic_bool puts_wait; /* before they are refused, or reach the store */
static atomic_int held;       /* the answer to a put of dir/f */
enum { HELD_NONE, HELD_NEXT, HELD_ONE };
static void (*before_removal)(void);  /* called once, by the request itself */
static atomic_uint puts_of_f;         /* done */
static atomic_int put_refusals;       /* puts still to be refused as what is not known */
static atomic_int put_with_condition; /* the last put: 1, else 0 */
static struct driven d;
static pthread_mutex_t put_lock = PTHREAD_MUTEX_INITIALIZER; /* guards put_attrs */
static struct attrs put_attrs; /* those of the last put, with its origin */

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    while (c->kind == CALL_PUT && atomic_load(&puts_wait)) {
        int waited = op_sleep(c->op, 1 * NS_PER_MS);
        if (waited < 0)
            return waited;
    }
    if ((int)c->kind == atomic_load(&refused))
        return op_fail(c->op, -EACCES, "%s %s: refused", call_name(c->kind), c->key);
    if (c->kind == CALL_PUT)
        atomic_store(&put_with_condition, c->etag != NULL);
    if (c->kind == CALL_PUT && atomic_fetch_sub(&put_refusals, 1) > 0)
        return op_fail(c->op, -EOPNOTSUPP, "put %s: refused", c->key);
    if (c->kind == CALL_PUT && c->attrs) {
        (void)pthread_mutex_lock(&put_lock);
        attrs_release(&put_attrs);
        ck_assert_int_eq(attrs_copy(&put_attrs, c->attrs), 0);
        (void)pthread_mutex_unlock(&put_lock);
    }
    if (c->kind == CALL_REMOVE && before_removal) {
        before_removal();
        before_removal = NULL;
    }
    int64_t r = call_next(c);
    int next = HELD_NEXT;
    if (c->kind == CALL_PUT && strcmp(c->key, "dir/f") == 0 &&
        atomic_compare_exchange_strong(&held, &next, HELD_ONE))
        while (atomic_load(&held) == HELD_ONE)
            (void)usleep(1000);
    atomic_fetch_add(&puts_of_f, c->kind == CALL_PUT && strcmp(c->key, "f") == 0);
    return r;
}

static void setup(void)
{
    atomic_store(&refused, -1);
    atomic_store(&puts_wait, false);
    atomic_store(&held, HELD_NONE);
    atomic_store(&put_refusals, 0);
    before_removal = NULL;
    driven_init_like_s3(&d, around);
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 50 * NS_PER_MS;
}

static void teardown(void)
{
    driven_release(&d);
    attrs_release(&put_attrs);
}

static bool has(const char *key, const char *wanted)
{
    char buf[64] = "";
    ssize_t n = driven_stored(&d, key, buf, sizeof(buf) - 1);

    return wanted ? n == (ssize_t)strlen(wanted) && strcmp(buf, wanted) == 0 : n == -ENOENT;
}

/* What was refused last is noted then: a flush tells of what fails while it waits. */
static void refuse_no_more(void)
{
    atomic_store(&refused, -1);
    (void)usleep(50000);
}

#endif
