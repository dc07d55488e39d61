/* A cache with a directory that this node made, over a store in which a test plays the other
 * node: what test_cache_nodes.c and test_cache_conflicts.c share. Include it once. */
#ifndef RUNFS_TESTS_LIB_TWO_NODES_H
#define RUNFS_TESTS_LIB_TWO_NODES_H

#include "cache/mount.h"
#include "tests/lib/driven.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_uint questions; /* listings and looks */
static atomic_bool refuse;
static atomic_bool stale;      /* reads find another version */
static atomic_uint delay_ms;   /* of each look */
static atomic_bool strays;     /* removals are repeated, and one of them is still on its way */
static atomic_bool hold;       /* changes wait before the store gets them */
static atomic_bool hold_looks; /* looks wait before the store answers them */
static atomic_uint held_looks;
static atomic_uint begun;    /* uploads in parts */
static atomic_uint disputed; /* so many puts are refused for a change that is on its way */
static atomic_bool last;     /* uploads wait until their directory does, and a flush for them */
static struct driven d;

static bool is_wanted(const char *path)
{
    mutex_lock(&d.cache->lock);
    struct node *n = tree_find(d.cache, path, NULL);
    bool wanted = n && (n->file ? n->file->debt.wanted : n->dir->debt.due_ns == 0);
    mutex_unlock(&d.cache->lock);
    return wanted;
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_LIST || c->kind == CALL_STAT) {
        atomic_fetch_add(&questions, 1);
        if (atomic_load(&refuse))
            return op_fail(c->op, -EIO, "%s %s: refused", call_name(c->kind), c->key);
    }
    if (c->kind == CALL_READ && atomic_load(&stale))
        return op_fail(c->op, -ESTALE, "read %s: another version", c->key);
    if (c->kind == CALL_BEGIN)
        atomic_fetch_add(&begun, 1);
    while ((c->kind == CALL_PUT || c->kind == CALL_COMMIT || c->kind == CALL_SETATTR) &&
           atomic_load(&hold)) {
        int waited = op_sleep(c->op, 2 * NS_PER_MS);
        if (waited < 0)
            return waited;
    }
    if (c->kind == CALL_STAT && atomic_load(&hold_looks))
        atomic_fetch_add(&held_looks, 1);
    while (c->kind == CALL_STAT && atomic_load(&hold_looks))
        (void)usleep(1000);
    while ((c->kind == CALL_PUT || c->kind == CALL_MKDIR) && atomic_load(&last) &&
           !is_wanted(c->key))
        (void)usleep(1000);
    if (c->kind == CALL_PUT && atomic_load(&disputed)) {
        atomic_fetch_sub(&disputed, 1);
        return op_fail(c->op, -ESTALE, "put %s: 409 ConditionalRequestConflict", c->key);
    }
    int64_t r = call_next(c);
    if (c->kind == CALL_REMOVE && atomic_load(&strays))
        c->op->left_behind = true;
    if (c->kind == CALL_STAT)
        (void)usleep(1000 * atomic_load(&delay_ms));
    return r;
}

static void setup(void)
{
    atomic_store(&refuse, false);
    atomic_store(&stale, false);
    atomic_store(&delay_ms, 0);
    atomic_store(&hold, false);
    atomic_store(&hold_looks, false);
    atomic_store(&held_looks, 0);
    atomic_store(&strays, false);
    atomic_store(&disputed, 0);
    atomic_store(&last, false);
    driven_init_like_s3(&d, around);
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 200 * NS_PER_MS;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "step"), 0);
    driven_put(&d, "step/rank0", "mine", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
}

static void teardown(void)
{
    driven_release(&d);
}

static void out_of_date(void)
{
    (void)usleep(300000);
}

/* Another node removes it. */
static void store_loses(const char *key)
{
    struct op op;

    op_init(&op, 5 * NS_PER_SEC);
    ck_assert_int_eq(store_remove(d.store->next, &op, &key, NULL, 1, NULL), 0);
}

#endif
