/* cache/: a listing takes a name away, or tells of another version, while a program that knows
 * the file is about to change it. */
#include "cache/mount.h"
#include "tests/lib/at_point.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static struct driven d;
static struct node *node;
static struct handle *opened;
static pthread_t changer;
static void *(*change)(void *arg);
static int flags, result;

/* What the kernel does who knows the name: no lookup. */
static void *open_node(void *arg)
{
    struct waiter w = {0};

    result = cache_open(d.cache, node, flags, &w, &opened);
    return arg;
}

static void *truncate_node(void *arg)
{
    struct stat st = {.st_size = 1};
    struct waiter w = {0};

    result = cache_setattr(d.cache, node, NULL, CACHE_SET_SIZE, &w, &st);
    return arg;
}

static void begin_change(void)
{
    ck_assert_int_eq(pthread_create(&changer, NULL, change, NULL), 0);
    (void)usleep(50000); /* it waits for the listing now */
}

static void remove_theirs(void)
{
    const char *key = "f";
    struct op op;

    op_init(&op, 10 * NS_PER_SEC);
    ck_assert_int_eq(store_remove(d.store, &op, &key, NULL, 1, NULL), 0);
}

/* Another node replaces or removes what is open here for reading, and `change` begins when its
 * name has left it. */
static void list_theirs(bool removed)
{
    struct handle *reader;

    driven_init_like_s3(&d, NULL);
    d.config.settle_ns = 0;
    d.config.attr_timeout_ns = 3600 * NS_PER_SEC;
    d.config.list_timeout_ns = 0;
    driven_mount(&d);
    driven_put(&d, "f", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_open(&d, "f", O_RDONLY, &reader), 0);
    node = handle_node(reader);
    if (removed)
        remove_theirs();
    else
        driven_store(&d, "f", "theirs", 6);
    at("orphan-moved", begin_change);
    DRIVEN_WAIT(driven_list(&d, "") >= 0 && atomic_load(&done));
    ck_assert_int_eq(pthread_join(changer, NULL), 0);
    crash_watch(NULL);
    ck_assert_int_eq(driven_close(&d, reader), 0);
}

/* The kernel looks the name up again then. */
static void was_told_to_look_again(bool removed)
{
    ck_assert_int_eq(result, -ESTALE);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", removed ? NULL : "theirs");
    driven_release(&d);
}

START_TEST(opened_for_writing_as_it_is_replaced)
{
    change = open_node;
    flags = _i & 1 ? O_RDWR | O_TRUNC : O_RDWR;
    list_theirs(_i & 2);
    was_told_to_look_again(_i & 2);
}
END_TEST

START_TEST(truncated_as_it_is_replaced)
{
    change = truncate_node;
    list_theirs(_i);
    was_told_to_look_again(_i);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_replaced_between");
    TCase *t = tcase_create("cache_replaced_between");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, opened_for_writing_as_it_is_replaced, 0, 4);
    tcase_add_loop_test(t, truncated_as_it_is_replaced, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
