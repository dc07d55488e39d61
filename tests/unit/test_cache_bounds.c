/* cache/: what a store or a user may ask for without end has one: names of a listing, room on
 * the disk. The disk is ours: fstatvfs() and fallocate() are functions of the test. */
#include "cache/listing/listing_impl.h"
#include "cache/mount.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

/* ---- the disk ---- */

static struct {
    _Atomic uint64_t free;      /* bytes that are not root's alone */
    _Atomic uint64_t allocated; /* by fallocate(), from the beginning of the one file */
    atomic_uint calls;
} disk;

int fstatvfs(int fd, struct statvfs *ret)
{
    (void)fd;
    *ret = (struct statvfs){.f_bsize = 4096, .f_frsize = 4096, .f_blocks = 1 << 20};
    ret->f_bavail = (disk.free - disk.allocated) / 4096;
    ret->f_bfree = ret->f_bavail + (1 << 16);
    return 0;
}

int fallocate(int fd, int mode, off_t off, off_t len)
{
    uint64_t end = (uint64_t)off + (uint64_t)len;

    disk.calls++;
    if (end > disk.allocated)
        disk.allocated = end;
    return mode & FALLOC_FL_KEEP_SIZE ? 0 : ftruncate(fd, (off_t)end);
}

static struct handle *start_allocating(struct driven *d)
{
    struct handle *h = NULL;

    memset(&disk, 0, sizeof(disk));
    disk.free = 1000 * MIB;
    driven_init(d, NULL);
    d->config.reserve_bytes = 400 * MIB; /* half of which is never taken */
    driven_mount(d);
    disk.calls = 0; /* the journal has taken its room */
    ck_assert_int_eq(driven_open(d, "f", O_CREAT | O_RDWR, &h), 0);
    return h;
}

START_TEST(an_allocation_leaves_the_reserve)
{
    struct driven d;
    struct stat st;
    struct handle *h = start_allocating(&d);

    ck_assert_int_eq(driven_fallocate(&d, h, 0, 0, 700 * MIB), 0);
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    ck_assert_int_eq(st.st_size, 700 * MIB);
    ck_assert_int_eq(driven_fallocate(&d, h, 0, 0, 900 * MIB), -ENOSPC);
    ck_assert_uint_le(disk.allocated, 801 * MIB);
    /* A hole takes none. */
    ck_assert_int_eq(
        driven_fallocate(&d, h, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

/* Nothing of it is taken, and nothing has to go for it. */
START_TEST(an_allocation_of_more_than_there_is)
{
    struct driven d;
    struct handle *h = start_allocating(&d);

    ck_assert_int_eq(driven_fallocate(&d, h, 0, 0, 1 << 30), -ENOSPC);
    ck_assert_int_eq(
        driven_fallocate(&d, h, FALLOC_FL_KEEP_SIZE, (uint64_t)1 << 62, (uint64_t)1 << 61),
        -ENOSPC);
    ck_assert_uint_eq(disk.calls, 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

/* ---- listings ---- */

#define LAST_NAME 1000000 /* the end of one that is not ended */

static struct {
    atomic_uint names;
    atomic_bool slow, over;
} endless;

static int64_t list_endlessly(struct layer *l, struct call *c)
{
    struct object obj = {.size = 1, .etag = "e"};
    char name[32];
    int r = 0;

    (void)l;
    if (c->kind != CALL_LIST || strcmp(c->key, "endless") != 0)
        return call_next(c);
    for (unsigned i = 0; r == 0 && i < LAST_NAME; i++) {
        atomic_store(&endless.names, i);
        (void)snprintf(name, sizeof(name), "name-%06u", i);
        r = c->visit(c->visit_arg, name, &obj);
        if (atomic_load(&endless.slow))
            (void)usleep(1000);
    }
    atomic_store(&endless.over, r != 0);
    return r;
}

static void start_endless(struct driven *d, uint64_t memory)
{
    memset(&disk, 0, sizeof(disk));
    disk.free = UINT64_C(1) << 40;
    memset(&endless, 0, sizeof(endless));
    driven_init(d, list_endlessly);
    d->config.list_memory_bytes = memory;
    driven_store(d, "endless/f", "x", 1);
    driven_store(d, "other/f", "x", 1);
    driven_mount(d);
}

START_TEST(a_listing_without_end_has_one)
{
    struct cache_stats s;
    struct driven d;

    start_endless(&d, MIB);
    ck_assert_int_eq(driven_list(&d, "endless"), -ENOMEM);
    ck_assert_uint_lt(atomic_load(&endless.names), 16 * MIB / NODE_BYTES);
    ck_assert_uint_gt(atomic_load(&endless.names), MIB / 2 / NODE_BYTES);
    cache_get_stats(d.cache, &s);
    ck_assert_msg(strstr(s.last_read_error_text, "/endless: the store tells of more than"),
                  "%s", s.last_read_error_text);
    ck_assert_int_eq(driven_list(&d, "other"), 1);
    ck_assert_uint_eq(atomic_load(&d.cache->listing->listed_bytes), 0);
    driven_release(&d);
}
END_TEST

static void ignore(struct waiter *w, int err)
{
    (void)w;
    (void)err;
}

START_TEST(a_listing_ends_when_nobody_waits)
{
    struct waiter w = {.wake = ignore};
    struct node *n = NULL;
    struct driven d;
    struct op op;

    start_endless(&d, 1024 * MIB); /* it ends by nothing else meanwhile */
    atomic_store(&endless.slow, true);
    op_init(&op, 10 * NS_PER_SEC);
    ck_assert_int_eq(cache_walk(d.cache, "endless", &op, &n), 0);
    mutex_lock(&d.cache->lock);
    int r = dir_need_locked(d.cache, n, true, &w);
    mutex_unlock(&d.cache->lock);
    ck_assert_int_eq(r, CACHE_PARKED);
    DRIVEN_WAIT(atomic_load(&endless.names) > 10);
    ck_assert(cache_cancel(d.cache, &w));
    DRIVEN_WAIT(atomic_load(&endless.over));
    cache_forget(d.cache, n, 1);
    driven_release(&d);
}
END_TEST

/* ---- numbers of nodes ---- */

/* The numbers by which the frontend names nodes: never an address, never one of before. */
START_TEST(numbers_of_nodes_are_their_own)
{
    struct node *n = NULL, *again = NULL;
    struct driven d;
    struct op op;

    memset(&disk, 0, sizeof(disk));
    disk.free = UINT64_C(1) << 40;
    driven_init(&d, NULL);
    driven_mount(&d);
    op_init(&op, 10 * NS_PER_SEC);
    driven_put(&d, "f", "x", 1);
    ck_assert_int_eq(cache_walk(d.cache, "f", &op, &n), 0);
    uint64_t id = cache_node_id(d.cache, n);
    ck_assert_uint_ge(id, 16);
    ck_assert_uint_lt(id, 1000); /* of the first nodes */
    ck_assert_ptr_eq(cache_node(d.cache, id), n);
    for (uint64_t i = 0; i < 1000; i++) /* of others, or nobody's */
        ck_assert(i == id || cache_node(d.cache, i) != n);
    ck_assert_ptr_null(cache_node(d.cache, (uintptr_t)n));
    ck_assert_ptr_null(cache_node(d.cache, UINT64_MAX));
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    cache_forget(d.cache, n, 1);
    driven_put(&d, "g", "x", 1);
    ck_assert_int_eq(cache_walk(d.cache, "g", &op, &again), 0);
    ck_assert_uint_ne(cache_node_id(d.cache, again), id);
    DRIVEN_WAIT(!cache_node(d.cache, id));
    cache_forget(d.cache, again, 1);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_bounds");
    TCase *t = tcase_create("cache_bounds");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, an_allocation_leaves_the_reserve);
    tcase_add_test(t, an_allocation_of_more_than_there_is);
    tcase_add_test(t, a_listing_without_end_has_one);
    tcase_add_test(t, a_listing_ends_when_nobody_waits);
    tcase_add_test(t, numbers_of_nodes_are_their_own);
    suite_add_tcase(s, t);
    return suite_run(s);
}
