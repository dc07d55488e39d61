/* A cache whose listings carry no attributes, over a store whose requests are counted: what
 * test_cache_attrs.c and test_cache_index.c share. Include it once. */
#ifndef RUNFS_TESTS_LIB_ATTRS_COUNTED_H
#define RUNFS_TESTS_LIB_ATTRS_COUNTED_H

#include "backends/store.h"
#include "common/buf.h"
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/driven.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 300

/* ---- counting ---- */

static struct {
    atomic_uint files, dirs;        /* HEADs */
    atomic_uint running, most;      /* HEADs at the same time */
    atomic_uint lists, reads, puts; /* puts of files */
    atomic_uint index_puts, removes;
    atomic_bool gone;                 /* HEADs fail */
    atomic_bool slow;                 /* HEADs take a while */
    atomic_int refuse_index;          /* puts of indexes fail with this */
    _Atomic(const struct buf *) race; /* what another mount puts before the next index is put */
} seen;

static unsigned heads(void)
{
    return atomic_load(&seen.files) + atomic_load(&seen.dirs);
}

static int64_t count_head(struct call *c)
{
    unsigned now = atomic_fetch_add(&seen.running, 1) + 1, most = atomic_load(&seen.most);

    while (now > most && !atomic_compare_exchange_weak(&seen.most, &most, now))
        ;
    atomic_fetch_add(c->self ? &seen.dirs : &seen.files, 1);
    if (atomic_load(&seen.slow))
        (void)usleep(3000);
    int64_t r = atomic_load(&seen.gone) ? op_fail(c->op, -EHOSTUNREACH, "gone") : call_next(c);
    if (r == 0) /* the objects are older than they are */
        c->ret_obj->told_ns += 10 * NS_PER_SEC;
    atomic_fetch_sub(&seen.running, 1);
    return r;
}

static void put_anything(struct store *s, const char *key, const struct buf *text)
{
    struct mem_source src;
    struct op op;

    op_init(&op, 10 * NS_PER_SEC);
    mem_source_init(&src, text->data, text->len);
    ck_assert_int_eq(store_put(s, &op, key, NULL, &src.base, NULL, NULL), 0);
}

static int64_t count_put(struct call *c)
{
    if (!path_below(STORE_STATE_DIR, c->key)) {
        atomic_fetch_add(&seen.puts, 1);
        return call_next(c);
    }
    atomic_fetch_add(&seen.index_puts, 1);
    int refused = atomic_load(&seen.refuse_index);
    if (refused)
        return op_fail(c->op, refused, "refused");
    const struct buf *race = atomic_exchange(&seen.race, NULL);
    if (race)
        put_anything(c->next, c->key, race);
    return call_next(c);
}

static int64_t count(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_STAT)
        return count_head(c);
    if (c->kind == CALL_PUT)
        return count_put(c);
    if (c->kind == CALL_LIST) /* what is asked for notes test_cache_hidden_asked.c counts */
        atomic_fetch_add(&seen.lists, !path_below(STORE_STATE_DIR, c->key));
    else if (c->kind == CALL_READ)
        atomic_fetch_add(&seen.reads, 1);
    else if (c->kind == CALL_REMOVE)
        atomic_fetch_add(&seen.removes, 1);
    return call_next(c);
}

/* ---- places ---- */

static const char *name_of(int i)
{
    static char name[32];

    (void)snprintf(name, sizeof(name), "dir/%04d", i);
    return name;
}

static void place(struct driven *d)
{
    memset(&seen, 0, sizeof(seen));
    driven_init_like_s3(d, count);
    d->config.list_timeout_ns = d->config.attr_timeout_ns = 3600 * NS_PER_SEC;
    d->config.index_settle_ns = 1 * NS_PER_MS;
}

/* Files that another node made, with a mode of their own each. */
static void store_files(struct driven *d, int n)
{
    for (int i = 0; i < n; i++) {
        const struct attrs a = {.has = ATTR_MODE, .mode = S_IFREG | (0600 + (unsigned)i % 64)};
        driven_store_with(d, name_of(i), "content", 7, &a);
    }
}

static void check_files(struct driven *d, int n)
{
    struct stat st;

    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(driven_stat(d, name_of(i), &st), 0);
        ck_assert_msg(st.st_mode == (S_IFREG | (0600 + (unsigned)i % 64)), "%s: %o", name_of(i),
                      st.st_mode);
    }
}

static const char *dir_of(int i, const char *name)
{
    static char path[32];

    (void)snprintf(path, sizeof(path), "%02d%s", i, name);
    return path;
}

#endif
