/* A cache over each kind of store in turn, whose daemon is killed while the store takes
 * nothing, and what another node puts there before it is mounted again: what
 * test_cache_left_owed.c and test_cache_left_renames.c share. Include it once. */
#ifndef RUNFS_TESTS_LIB_LEFT_OWED_H
#define RUNFS_TESTS_LIB_LEFT_OWED_H

#include "backends/drivers.h"
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/routed_cache.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART 4096

/* S3_PLAIN: it refuses each condition. COPYING: a copy is another version, as one in parts is
 * on S3. Below ORIGINS are those that keep who put a version. */
enum kind {
    MEM,
    COPYING,
    S3,
    S3_PLAIN,
    FOLDER,
    ROUTED_TO_FOLDERS,
    MIXED,
    ORIGINS,
    FOLDER_PLAIN = ORIGINS,
    KINDS,
    FOLDER_COPYING = KINDS
};

static const struct routed_row rows[] = {
    {.path = "a/{x}/**", .key = "{x}/**", .leaf = 0},
    {.path = "**", .leaf = 1},
};

static enum kind kind;
static struct driven plain, *d;
static struct routed_world world;
static atomic_bool away;  /* no change reaches the store */
static atomic_bool blind; /* nor does a look at a/d/beside */
/* The store takes one more content, or move, and is away before it says so. */
static atomic_bool lost;
static atomic_uint content_puts, other_requests;

static bool changes(enum call_kind k)
{
    return k == CALL_PUT || k == CALL_BEGIN || k == CALL_PART || k == CALL_COMMIT ||
           k == CALL_COPY || k == CALL_RENAME || k == CALL_REMOVE || k == CALL_MKDIR ||
           k == CALL_RMDIR || k == CALL_SETATTR;
}

static int64_t around(struct layer *l, struct call *c)
{
    const bool content = c->kind == CALL_PUT || c->kind == CALL_COMMIT;
    const bool moves = c->kind == CALL_COPY || c->kind == CALL_RENAME;

    (void)l;
    if (!path_below(STORE_STATE_DIR, c->key)) /* attribute indexes go up in their own time */
        atomic_fetch_add(content ? &content_puts : &other_requests, 1);
    if ((changes(c->kind) && atomic_load(&away)) ||
        (c->kind == CALL_STAT && strcmp(c->key, "a/d/beside") == 0 && atomic_load(&blind)))
        return op_fail(c->op, -EHOSTUNREACH, "%s %s: away", call_name(c->kind), c->key);
    if (content && c->etag && kind == S3_PLAIN)
        return op_fail(c->op, -EOPNOTSUPP, "%s: 501 NotImplemented", c->key);
    int64_t r = call_next(c);
    if ((content || moves) && r >= 0 && atomic_exchange(&lost, false)) {
        atomic_store(&away, true);
        if (c->kind != CALL_RENAME)
            object_release(c->ret_obj);
        return op_fail(c->op, -EHOSTUNREACH, "%s: the answer was lost", c->key);
    }
    return r;
}

static void route(enum routed_kind stores)
{
    struct layer *l = calloc(1, sizeof(*l));

    routed_init(&world, rows, sizeof(rows) / sizeof(*rows), stores);
    d = &world.d;
    ck_assert_ptr_nonnull(l);
    ck_assert_int_eq(layer_init(l, d->store, around), 0);
    d->store = &l->base;
}

/* Mounted, with a/d/f in the store, and nothing owed. */
static void begin(int i)
{
    kind = (enum kind)i;
    d = &plain;
    atomic_store(&away, false);
    atomic_store(&blind, false);
    atomic_store(&lost, false);
    if (kind == MEM || kind == COPYING)
        driven_init(d, around);
    else if (kind == FOLDER || kind == FOLDER_PLAIN || kind == FOLDER_COPYING)
        driven_init_folder(d, around, PART);
    else if (kind == ROUTED_TO_FOLDERS || kind == MIXED)
        route(kind == MIXED ? ROUTED_MIXED : ROUTED_FOLDERS);
    else
        driven_init_like_s3(d, around);
    if (kind == FOLDER_PLAIN)
        d->store->facts.caps &= ~(unsigned)STORE_ORIGIN;
    if (kind == COPYING || kind == FOLDER_COPYING)
        d->store->facts.caps &= ~(unsigned)STORE_RENAME;
    d->config.list_timeout_ns = d->config.attr_timeout_ns = 50 * NS_PER_MS;
    d->config.retry_ns = 20 * NS_PER_MS;
    d->config.late_ns = 1;
    d->config.part_size = PART;
    driven_mount(d);
    int r = driven_mkdir(d, "a");
    ck_assert(r == 0 || r == -EEXIST);
    ck_assert_int_eq(driven_mkdir(d, "a/d"), 0);
    driven_put(d, "a/d/f", "one", 3);
    driven_put(d, "a/d/beside", "x", 1);
    ck_assert_int_eq(driven_flush(d), 0);
}

static void end(void)
{
    if (d == &world.d)
        routed_release(&world);
    else
        driven_release(d);
}

static void put(const char *path, const char *text)
{
    driven_put(d, path, text, strlen(text));
}

static void killed(void)
{
    driven_unmount(d);
    atomic_store(&away, false);
}

static void theirs(const char *path, const char *text)
{
    driven_store(d, path, text, strlen(text));
}

static struct cache_stats stats(void)
{
    struct cache_stats s;

    cache_get_stats(d->cache, &s);
    return s;
}

/* Mounted again, and all is done that was owed. */
static void comes_back(void)
{
    driven_mount(d);
    DRIVEN_WAIT(driven_flush(d) == 0 && stats().pending_ops == 0);
}

/* What is kept aside of a file. */
static void keeps(const char *path, const char *wanted)
{
    char where[160], text[64] = "";
    FILE *file = NULL;

    (void)snprintf(where, sizeof(where), "%s/kept/%s", d->dir, path);
    file = fopen(where, "r");
    ck_assert_msg(file != NULL, "nothing is kept of %s", path);
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[n] = '\0';
    ck_assert_str_eq(text, wanted);
}

/* What another node put stays, and what was owed is kept, and told. */
static void lost_against(const char *path, const char *other, const char *ours)
{
    driven_stores(d, path, other);
    keeps(path, ours);
    ck_assert_uint_eq(stats().kept_files, 1);
    DRIVEN_WAIT(driven_read(d, path, (char[8]){0}, 8) == (ssize_t)strlen(other));
    driven_shows(d, path, other);
}

/* What was owed is in the store. */
static void stored(const char *path, const char *text)
{
    driven_stores(d, path, text);
    ck_assert_uint_eq(stats().kept_files, 0);
    if (text)
        driven_shows(d, path, text);
}

#endif
