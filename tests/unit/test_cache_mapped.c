/* cache/: what a mapping writes past the daemon, into a file that nobody has open any more. In
 * passthrough the mapping is one of the mirror file, which lives on after the last close.
 * Without it the kernel keeps the pages: which files it may do that of. */
#include "cache/mount.h"
#include "common/mem.h"
#include "tests/lib/at_point.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE   4096
#define OLD_NS (1000 * NS_PER_SEC)

static struct driven d;

/* The store has the file, whose time is old enough to prove that it is unchanged. */
static void start(void)
{
    static char zeros[SIZE];

    driven_init(&d, NULL);
    d.config.passthrough = true;
    d.config.settle_ns = 60 * NS_PER_SEC; /* nothing looks at it by itself */
    driven_mount(&d);
    driven_put(&d, "f", zeros, sizeof(zeros));
    ck_assert_int_eq(driven_utimens(&d, "f", OLD_NS), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
}

/* As a program that maps the file and closes it. */
static char *map_and_close(void)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, &h), 0);
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, driven_fd(&d, h), 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    ck_assert_int_eq(driven_close(&d, h), 0);
    return map;
}

static void unmap(char *map)
{
    ck_assert_int_eq(munmap(map, SIZE), 0);
}

static void stores(const char *wanted)
{
    char buf[SIZE];

    ck_assert_int_eq(driven_stored(&d, "f", buf, sizeof(buf)), SIZE);
    buf[SIZE - 1] = '\0';
    ck_assert_str_eq(buf, wanted);
}

START_TEST(a_flush_sends_what_a_mapping_wrote_after_the_close)
{
    start();
    char *map = map_and_close();
    strcpy(map, "mapped");
    ck_assert_int_eq(driven_flush(&d), 0);
    stores("mapped");
    strcpy(map, "again");
    ck_assert_int_eq(driven_flush(&d), 0);
    stores("again");
    unmap(map);
    driven_release(&d);
}
END_TEST

START_TEST(a_flush_sends_what_a_mapping_wrote_that_is_gone)
{
    start();
    char *map = map_and_close();
    strcpy(map, "mapped");
    unmap(map);
    ck_assert_int_eq(driven_flush(&d), 0);
    stores("mapped");
    driven_release(&d);
}
END_TEST

/* A time that a user sets takes the place of the one that told of the change. */
START_TEST(a_new_time_hides_no_change_by_a_mapping)
{
    struct stat st;

    start();
    char *map = map_and_close();
    strcpy(map, "mapped");
    if (_i == 1)
        unmap(map);
    ck_assert_int_eq(driven_utimens(&d, "f", 2 * OLD_NS), 0);
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    ck_assert_int_eq(st.st_mtim.tv_sec, 2 * OLD_NS / NS_PER_SEC);
    if (_i == 0)
        unmap(map);
    ck_assert_int_eq(driven_flush(&d), 0);
    stores("mapped");
    driven_release(&d);
}
END_TEST

/* The page was written to before: the next store to it moves no time any more. */
START_TEST(a_new_time_hides_no_later_change_by_a_mapping)
{
    start();
    char *map = map_and_close();
    strcpy(map, "mapped");
    ck_assert_int_eq(driven_flush(&d), 0);
    strcpy(map, "second");
    ck_assert_int_eq(driven_utimens(&d, "f", 2 * OLD_NS), 0);
    strcpy(map, "third");
    unmap(map);
    ck_assert_int_eq(driven_flush(&d), 0);
    stores("third");
    driven_release(&d);
}
END_TEST

/* fsync() by somebody who opened the file later. */
START_TEST(an_fsync_waits_for_what_a_mapping_wrote)
{
    struct handle *h = NULL;

    driven_init(&d, NULL);
    d.config.passthrough = true;
    d.config.durability = DURABILITY_STORE;
    d.config.settle_ns = 60 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, "f", "", 0);
    ck_assert_int_eq(driven_truncate(&d, "f", SIZE), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    char *map = map_and_close();
    strcpy(map, "mapped");
    ck_assert_int_eq(driven_open(&d, "f", O_RDONLY, &h), 0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    stores("mapped");
    strcpy(map, "again");
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    stores("again");
    ck_assert_int_eq(driven_close(&d, h), 0);
    unmap(map);
    driven_release(&d);
}
END_TEST

/* Nobody mapped it: opening and closing it is no change. */
START_TEST(what_was_only_open_is_not_sent_again)
{
    struct cache_stats before, after;

    start();
    cache_get_stats(d.cache, &before);
    unmap(map_and_close());
    ck_assert_int_eq(driven_flush(&d), 0);
    cache_get_stats(d.cache, &after);
    ck_assert_uint_eq(after.uploaded_files, before.uploaded_files);
    driven_release(&d);
}
END_TEST

static char *late_map;

static void map_late(void)
{
    late_map = map_and_close();
}

/* The upload asked whether anybody may write, and nobody did: one who came then, and closed the
 * file before the upload looked at it, has a mapping all the same. */
START_TEST(a_mapping_that_came_after_the_question_is_not_missed)
{
    start();
    char *map = map_and_close();
    strcpy(map, "first");
    unmap(map);
    at("upload-leased", map_late);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(atomic_load(&done));
    crash_watch(NULL);
    strcpy(late_map, "mapped");
    unmap(late_map);
    ck_assert_int_eq(driven_flush(&d), 0);
    stores("mapped");
    driven_release(&d);
}
END_TEST

static void *release_one(void *arg)
{
    cache_release(d.cache, arg);
    return NULL;
}

static bool has_ended(struct handle *h)
{
    mutex_lock(&d.cache->lock);
    bool ended = !h->begins;
    mutex_unlock(&d.cache->lock);
    return ended;
}

static void lock_stamps(bool lock)
{
    for (int i = 0; i < STAMP_LOCKS; i++)
        if (lock)
            mutex_lock(&d.cache->stamp_locks[i]);
        else
            mutex_unlock(&d.cache->stamp_locks[i]);
}

/* Each of the two sees the other's handle, and takes it for the last one. */
START_TEST(the_last_of_two_that_close_at_once_looks_for_mappings)
{
    static char data[SIZE] = "whole";
    struct handle *first = NULL, *second = NULL;
    pthread_t thread;
    struct op op;

    start();
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR | O_TRUNC, &first), 0);
    ck_assert_int_eq(pwrite(driven_fd(&d, first), data, SIZE, 0), SIZE);
    (void)usleep(50000); /* its time proves that it is unchanged since */
    op_init(&op, 10 * NS_PER_SEC);
    ck_assert_int_eq(cache_flush_path(d.cache, "", CACHE_FLUSH_HALF, &op, NULL, NULL), 0);
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, &second), 0);
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, driven_fd(&d, second), 0);
    ck_assert_ptr_ne(map, MAP_FAILED);

    lock_stamps(true);
    ck_assert_int_eq(pthread_create(&thread, NULL, release_one, first), 0);
    DRIVEN_WAIT(has_ended(first));
    cache_release(d.cache, second);
    lock_stamps(false);
    (void)pthread_join(thread, NULL);

    strcpy(map, "mapped");
    unmap(map);
    ck_assert_int_eq(driven_flush(&d), 0);
    stores("mapped");
    driven_release(&d);
}
END_TEST

/* ---- without passthrough ---- */

static void count_mapped(void *arg, const char *path, bool mapped)
{
    unsigned *counts = arg;

    ck_assert_str_eq(path, "f");
    counts[mapped]++;
}

static void check_mapped(unsigned not_yet, unsigned mapped)
{
    unsigned counts[2] = {0};

    cache_each_mapped(d.cache, "", count_mapped, counts);
    ck_assert_uint_eq(counts[false], not_yet);
    ck_assert_uint_eq(counts[true], mapped);
}

START_TEST(who_may_have_mapped_a_file_is_known_until_the_last_of_them_closes)
{
    struct handle *h[4] = {NULL};
    const int flags[4] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR};

    driven_init(&d, NULL);
    driven_mount(&d);
    driven_put(&d, "f", "zeros", 5);
    for (int i = 0; i < 4; i++) {
        check_mapped(i > 2, 0);
        ck_assert_int_eq(driven_open(&d, "f", flags[i], &h[i]), 0);
    }
    cache_note_mapped(d.cache, h[1]); /* the kernel takes any handle that writes */
    check_mapped(0, 1);
    ck_assert_int_eq(driven_close(&d, h[2]), 0);
    check_mapped(0, 1);
    ck_assert_int_eq(driven_close(&d, h[3]), 0);
    check_mapped(0, 0);
    cache_note_mapped(d.cache, h[1]);
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, &h[2]), 0);
    check_mapped(1, 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(driven_close(&d, h[i]), 0);
    driven_release(&d);
}
END_TEST

START_TEST(what_goes_past_the_daemon_is_no_mapping_of_its_kernel)
{
    struct handle *h = NULL;

    start();
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, &h), 0);
    check_mapped(0, 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

int main(void)
{
    /* On a disk: in memory what a mapping stores changes no time. */
    (void)setenv("TMPDIR", "/tmp", 0);
    Suite *s = suite_create("cache_mapped");
    TCase *t = tcase_create("cache_mapped");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_flush_sends_what_a_mapping_wrote_after_the_close);
    tcase_add_test(t, a_flush_sends_what_a_mapping_wrote_that_is_gone);
    tcase_add_loop_test(t, a_new_time_hides_no_change_by_a_mapping, 0, 2);
    tcase_add_test(t, a_new_time_hides_no_later_change_by_a_mapping);
    tcase_add_test(t, an_fsync_waits_for_what_a_mapping_wrote);
    tcase_add_test(t, what_was_only_open_is_not_sent_again);
    tcase_add_test(t, a_mapping_that_came_after_the_question_is_not_missed);
    tcase_add_test(t, the_last_of_two_that_close_at_once_looks_for_mappings);
    tcase_add_test(t, who_may_have_mapped_a_file_is_known_until_the_last_of_them_closes);
    tcase_add_test(t, what_goes_past_the_daemon_is_no_mapping_of_its_kernel);
    suite_add_tcase(s, t);
    return suite_run(s);
}
