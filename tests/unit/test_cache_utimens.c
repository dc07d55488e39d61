/* cache/: times that a user sets, which must neither hide a change of content nor make one. */
#include "cache/cache.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <sys/stat.h>

#define OLD_NS (1000 * NS_PER_SEC)

static struct driven d;

/* As touch(1) does with a file of which nothing is here yet: it opens it for writing. */
START_TEST(a_new_time_of_a_partial_file_is_no_change_of_content)
{
    struct handle *h = NULL;
    struct stat st;

    driven_init(&d, NULL);
    driven_store(&d, "f", "data", 4);
    driven_mount(&d);
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, &h), 0);
    ck_assert_int_eq(driven_utimens(&d, "f", OLD_NS), 0);
    if (_i == 1)
        ck_assert_int_eq(driven_write(&d, h, "D", 1, 0), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", _i == 1 ? "Data" : "data");
    driven_shows(&d, "f", _i == 1 ? "Data" : "data");
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    if (_i == 0)
        ck_assert_int_eq(st.st_mtim.tv_sec, OLD_NS / NS_PER_SEC);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_utimens");
    TCase *t = tcase_create("cache_utimens");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_new_time_of_a_partial_file_is_no_change_of_content, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
