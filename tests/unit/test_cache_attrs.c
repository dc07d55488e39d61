/* cache/: attributes that no listing carries, nor an index. Requests are counted: HEADs in
 * parallel and each once. */
#include "backends/store.h"
#include "common/mem.h"
#include "tests/lib/attrs_counted.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

START_TEST(heads_are_asked_in_parallel_and_once)
{
    struct driven d;

    place(&d);
    d.store->facts.caps &= ~(unsigned)STORE_STATE;
    store_files(&d, FILES);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "dir"), FILES);
    ck_assert_uint_eq(heads(), 0); /* names need none */
    atomic_store(&seen.slow, true);
    check_files(&d, FILES);
    ck_assert_uint_eq(atomic_load(&seen.files), FILES);
    ck_assert_uint_gt(atomic_load(&seen.most), 8);
    check_files(&d, FILES);
    ck_assert_int_eq(driven_list(&d, "dir"), FILES);
    ck_assert_uint_eq(atomic_load(&seen.files), FILES);
    ck_assert_uint_eq(atomic_load(&seen.reads), 0);
    driven_release(&d);
}
END_TEST

/* What the mount knew of a directory by the store alone goes along with the first change. */
START_TEST(a_directory_keeps_its_xattrs_through_a_kill)
{
    char value[8] = "";
    struct driven d;

    driven_init_folder(&d, NULL, 1 << 20);
    if (_i / 3)
        d.config.settle_ns = 0;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_setxattr(&d, "dir", "user.k", "v", 1, 0), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    if (_i % 3 == 0)
        ck_assert_int_eq(driven_chmod(&d, "dir", 0711), 0);
    else if (_i % 3 == 1)
        ck_assert_int_eq(driven_utimens(&d, "dir", 388934997 * NS_PER_SEC), 0);
    else
        ck_assert_int_eq(driven_rename(&d, "dir", "dir2") || driven_chmod(&d, "dir2", 0711) ||
                             driven_rename(&d, "dir2", "dir"),
                         0);
    driven_unmount(&d); /* a kill */
    driven_mount(&d);
    ck_assert_int_eq(driven_getxattr(&d, "dir", "user.k", value, sizeof(value)), 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_getxattr(&d, "dir", "user.k", value, sizeof(value)), 1);
    driven_release(&d);
}
END_TEST

/* One name that is looked up asks for itself alone. */
START_TEST(one_stat_is_one_head)
{
    struct driven d;
    struct stat st;

    place(&d);
    d.store->facts.caps &= ~(unsigned)STORE_STATE;
    store_files(&d, FILES);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, name_of(7), &st), 0);
    ck_assert_uint_eq(heads(), 1);
    driven_release(&d);
}
END_TEST

#define DIRS 100

/* A listing tells of its own directory's marker: without one there is nothing to ask. */
START_TEST(directories_are_asked_when_they_are_looked_at)
{
    const struct attrs a = {.has = ATTR_MODE | ATTR_OWNER | ATTR_MTIME,
                            .mode = S_IFDIR | 0710,
                            .uid = 5,
                            .gid = 6,
                            .mtime_ns = 1600000000123456789};
    struct driven d;
    struct stat st;
    struct op op;

    place(&d);
    op_init(&op, 60 * NS_PER_SEC);
    for (int i = 0; i < DIRS; i++) {
        driven_store(&d, dir_of(i, "/f"), "x", 1);
        if (i % 2)
            ck_assert_int_eq(store_mkdir(d.store->next, &op, dir_of(i, ""), &a, NULL), 0);
    }
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, ""), DIRS);
    ck_assert_uint_eq(heads(), 0);
    ck_assert_int_eq(driven_list(&d, dir_of(0, "")), 1);
    ck_assert_uint_eq(heads(), 0);
    ck_assert_uint_eq(atomic_load(&seen.lists), 2);
    for (int i = 0; i < DIRS; i++) {
        ck_assert_int_eq(driven_stat(&d, dir_of(i, ""), &st), 0);
        ck_assert_uint_eq(st.st_mode, i % 2 ? a.mode : S_IFDIR | d.config.dir_mode);
        ck_assert_uint_eq(st.st_uid, i % 2 ? a.uid : d.config.uid);
        if (i % 2) {
            ck_assert_int_eq(st.st_mtim.tv_sec, 1600000000);
            ck_assert_int_eq(st.st_mtim.tv_nsec, 123456789);
        } else {
            ck_assert_int_gt(st.st_mtim.tv_sec, 1600000000); /* not 1970 */
        }
    }
    ck_assert_uint_le(atomic_load(&seen.dirs), DIRS);
    ck_assert_uint_eq(atomic_load(&seen.files), 0);
    unsigned before = heads();
    for (int i = 0; i < DIRS; i++)
        ck_assert_int_eq(driven_stat(&d, dir_of(i, ""), &st), 0);
    ck_assert_uint_eq(heads(), before);
    driven_release(&d);
}
END_TEST

/* Another node's chmod of a directory is seen with its next listing. */
START_TEST(a_marker_that_changed_is_asked_again)
{
    struct attrs a = {.has = ATTR_MODE, .mode = S_IFDIR | 0710};
    struct driven d;
    struct stat st;
    struct op op;

    place(&d);
    d.config.list_timeout_ns = 1;
    op_init(&op, 60 * NS_PER_SEC);
    driven_store(&d, "dir/f", "x", 1);
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "dir", &a, NULL), 0);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "dir", &st), 0);
    ck_assert_uint_eq(st.st_mode, S_IFDIR | 0710);
    /* A marker's content, so its ETag, is always the same: the second of its change tells. */
    (void)usleep(1100000);
    a.mode = S_IFDIR | 0700;
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "dir", &a, NULL), 0);
    DRIVEN_WAIT(driven_list(&d, "dir") == 1 && driven_stat(&d, "dir", &st) == 0 &&
                st.st_mode == (S_IFDIR | 0700));
    ck_assert_int_eq(store_rmdir(d.store->next, &op, "dir"), 0);
    DRIVEN_WAIT(driven_list(&d, "dir") == 1 && driven_stat(&d, "dir", &st) == 0 &&
                st.st_mode == (S_IFDIR | d.config.dir_mode));
    driven_release(&d);
}
END_TEST

/* A listing says that something changed, and then nobody answers: what was told before goes on.
 */
START_TEST(an_outage_leaves_what_was_told)
{
    const struct attrs f = {.has = ATTR_MODE, .mode = S_IFREG | 0604};
    struct attrs a = {.has = ATTR_MODE, .mode = S_IFDIR | 0710};
    struct driven d;
    struct stat st;
    struct op op;

    place(&d);
    d.config.list_timeout_ns = 1;
    op_init(&op, 60 * NS_PER_SEC);
    driven_store_with(&d, "dir/f", "x", 1, &f);
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "dir", &a, NULL), 0);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "dir", &st), 0);
    a.mode = S_IFDIR | 0700;
    (void)usleep(1100000); /* a marker's change is told by its second */
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "dir", &a, NULL), 0);
    (void)usleep(250000); /* until the listing is not believed any more */
    atomic_store(&seen.gone, true);
    unsigned before = heads();
    ck_assert_int_eq(driven_list(&d, "dir"), 1);
    ck_assert_int_eq(driven_stat(&d, "dir", &st), 0);
    ck_assert_uint_gt(heads(), before); /* it was asked */
    ck_assert_uint_eq(st.st_mode, S_IFDIR | 0710);
    atomic_store(&seen.gone, false);
    DRIVEN_WAIT(driven_list(&d, "dir") == 1 && driven_stat(&d, "dir", &st) == 0 &&
                st.st_mode == (S_IFDIR | 0700));
    driven_release(&d);
}
END_TEST

/* The kernel would act on them. */
START_TEST(no_store_gives_security_attributes)
{
    static const char *const names[] = {"security.capability", "security.ima", "trusted.x",
                                        "system.x"};
    const struct attrs a = {.has = ATTR_XATTRS,
                            .xattrs =
                                (char *)"{\"security.capability\":\"AAEC\","
                                        "\"security.ima\":\"AAEC\",\"trusted.x\":\"AAEC\","
                                        "\"system.x\":\"AAEC\",\"user.x\":\"AAEC\"}"};
    char list[256], value[16];
    struct driven d;

    place(&d);
    driven_store_with(&d, "f", "content", 7, &a);
    driven_mount(&d);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        ck_assert_int_eq(driven_getxattr(&d, "f", names[i], value, sizeof(value)), -ENODATA);
        ck_assert_int_eq(driven_setxattr(&d, "f", names[i], "v", 1, 0), -EOPNOTSUPP);
        ck_assert_int_eq(driven_removexattr(&d, "f", names[i]), -EOPNOTSUPP);
    }
    ck_assert_int_eq(driven_getxattr(&d, "f", "user.x", value, sizeof(value)), 3);
    ck_assert_int_eq(driven_listxattr(&d, "f", list, sizeof(list)), sizeof("user.x"));
    driven_release(&d);
}
END_TEST

static int64_t time_of(const struct timespec *t)
{
    return t->tv_sec * NS_PER_SEC + t->tv_nsec;
}

/* tar takes a directory, or a file, whose ctime moves while it is read for one that changed. */
START_TEST(what_is_told_again_keeps_its_times)
{
    struct stat first, st;
    struct driven d;

    driven_init(&d, NULL);
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 1;
    driven_store(&d, "dir/f", "x", 1);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "dir"), 1);
    ck_assert_int_eq(driven_chmod(&d, "dir", 0750), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_list(&d, ""), 1);
    (void)usleep(20000);
    ck_assert_int_eq(driven_chmod(&d, "dir", 0710), 0);
    ck_assert_int_eq(driven_stat(&d, "dir", &first), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(driven_list(&d, ""), 1);
        ck_assert_int_eq(driven_stat(&d, "dir", &st), 0);
        ck_assert_uint_eq(st.st_mode, S_IFDIR | 0710);
        ck_assert_int_eq(time_of(&st.st_ctim), time_of(&first.st_ctim));
        (void)usleep(250000); /* a listing is believed for less */
    }
    driven_release(&d);
}
END_TEST

/* The store's own time of a directory moves as what was put here comes there. */
START_TEST(what_lands_in_a_directory_keeps_its_ctime)
{
    struct stat first, st;
    struct driven d;

    driven_init_folder(&d, NULL, 0);
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 1;
    if (_i == 1)
        driven_store(&d, "dir/old", "x", 1);
    driven_mount(&d);
    if (_i == 0)
        ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_list(&d, "dir"), _i);
    driven_put(&d, "dir/f", "x", 1);
    ck_assert_int_eq(driven_stat(&d, "dir", &first), 0);
    (void)usleep(20000);
    ck_assert_int_eq(driven_flush(&d), 0);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(driven_list(&d, ""), 1);
        ck_assert_int_eq(driven_stat(&d, "dir", &st), 0);
        ck_assert_int_eq(time_of(&st.st_ctim), time_of(&first.st_ctim));
        (void)usleep(250000); /* a listing is believed for less */
    }
    driven_release(&d);
}
END_TEST

#define AN_MTIME INT64_C(1600000000123456789)

/* Waits until reading `path` gives these four bytes. */
static bool reads(struct driven *d, const char *path, const char *wanted)
{
    char text[4];

    (void)driven_list(d, "");
    return driven_read(d, path, text, 4) == 4 && memcmp(text, wanted, 4) == 0;
}

/* Size, mtime and the rest are as they were: only ctime tells a backup that it has to read. */
START_TEST(another_content_moves_ctime)
{
    struct attrs a = {.has = ATTR_MODE | ATTR_OWNER | ATTR_MTIME, .mtime_ns = AN_MTIME};
    struct stat first, st;
    struct driven d;

    if (_i == 0)
        driven_init(&d, NULL);
    else if (_i == 1)
        driven_init_folder(&d, NULL, 0);
    else
        driven_init_like_s3(&d, NULL);
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 1;
    driven_mount(&d);
    driven_put(&d, "f", "old!", 4);
    ck_assert_int_eq(driven_utimens(&d, "f", AN_MTIME), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_stat(&d, "f", &first), 0);
    a.mode = first.st_mode;
    a.uid = first.st_uid;
    a.gid = first.st_gid;
    driven_store_with(&d, "f", "new!", 4, &a);
    DRIVEN_WAIT(reads(&d, "f", "new!"));
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    ck_assert_int_eq(st.st_size, first.st_size);
    ck_assert_int_eq(time_of(&st.st_mtim), time_of(&first.st_mtim));
    ck_assert_int_gt(time_of(&st.st_ctim), time_of(&first.st_ctim));
    driven_release(&d);
}
END_TEST

static bool leads_to(struct driven *d, const char *path, const char *target)
{
    auto_free char *found = NULL;

    (void)driven_list(d, "");
    return driven_readlink(d, path, &found) == 0 && strcmp(found, target) == 0;
}

/* On S3 the version stays, as it is that of an empty content. */
START_TEST(another_target_moves_ctime)
{
    struct attrs a = {.has = ATTR_MODE | ATTR_MTIME | ATTR_TARGET,
                      .mode = S_IFLNK | 0777,
                      .mtime_ns = AN_MTIME,
                      .target = (char *)"aaaa"};
    struct stat first, st;
    struct driven d;

    driven_init_like_s3(&d, NULL);
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 1;
    driven_store_with(&d, "l", "", 0, &a);
    driven_mount(&d);
    ck_assert(leads_to(&d, "l", "aaaa"));
    ck_assert_int_eq(driven_stat(&d, "l", &first), 0);
    (void)usleep(1100000); /* a listing tells changes by the second */
    a.target = (char *)"bbbb";
    driven_store_with(&d, "l", "", 0, &a);
    DRIVEN_WAIT(leads_to(&d, "l", "bbbb"));
    ck_assert_int_eq(driven_stat(&d, "l", &st), 0);
    ck_assert_int_eq(time_of(&st.st_mtim), time_of(&first.st_mtim));
    ck_assert_int_gt(time_of(&st.st_ctim), time_of(&first.st_ctim));
    driven_release(&d);
}
END_TEST

/* Of what was changed elsewhere long ago, in this mount and in the next. */
START_TEST(what_is_seen_first_has_its_mtime)
{
    struct attrs a = {
        .has = ATTR_MODE | ATTR_MTIME, .mode = S_IFREG | 0640, .mtime_ns = AN_MTIME};
    struct driven d;
    struct stat st;

    if (_i)
        driven_init_like_s3(&d, NULL);
    else
        driven_init(&d, NULL);
    driven_store_with(&d, "f", "x", 1, &a);
    for (int i = 0; i < 2; i++) {
        driven_mount(&d);
        ck_assert_int_eq(driven_list(&d, ""), 1);
        ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
        ck_assert_int_eq(time_of(&st.st_mtim), AN_MTIME);
        ck_assert_int_eq(time_of(&st.st_ctim), AN_MTIME);
        driven_unmount(&d);
    }
    driven_mount(&d);
    driven_release(&d);
}
END_TEST

/* A marker that says no time is as old as itself; a name that was made here is younger. */
START_TEST(a_name_made_here_stays_the_directorys_time)
{
    struct attrs a = {.has = ATTR_MODE, .mode = S_IFDIR | 0710};
    struct stat made, st;
    struct driven d;
    struct op op;

    driven_init_like_s3(&d, NULL);
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 1;
    op_init(&op, 60 * NS_PER_SEC);
    driven_store(&d, "dir/f", "x", 1);
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "dir", &a, NULL), 0);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, ""), 1);
    ck_assert_int_eq(driven_stat(&d, "dir", &st), 0);
    (void)usleep(1100000);
    driven_put(&d, "dir/g", "x", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_stat(&d, "dir", &made), 0);
    ck_assert_int_gt(time_of(&made.st_mtim), time_of(&st.st_mtim));
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(driven_list(&d, ""), 1);
        ck_assert_int_eq(driven_stat(&d, "dir", &st), 0);
        ck_assert_int_eq(driven_list(&d, "dir"), 2);
        ck_assert_int_eq(driven_stat(&d, "dir", &st), 0);
        ck_assert_int_eq(time_of(&st.st_mtim), time_of(&made.st_mtim));
        (void)usleep(250000); /* a listing is believed for less */
    }
    driven_release(&d);
}
END_TEST

/* The time that the former marker said is not one that is known here. */
START_TEST(a_marker_that_says_no_time_any_more)
{
    struct attrs a = {.has = ATTR_MODE | ATTR_MTIME,
                      .mode = S_IFDIR | 0710,
                      .mtime_ns = INT64_C(4070908800) * NS_PER_SEC};
    struct driven d;
    struct stat st;
    struct op op;

    driven_init(&d, NULL);
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 1;
    op_init(&op, 60 * NS_PER_SEC);
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "dir", &a, NULL), 0);
    driven_mount(&d);
    DRIVEN_WAIT(driven_list(&d, "") == 1 && driven_stat(&d, "dir", &st) == 0 &&
                st.st_mtim.tv_sec == 4070908800);
    a.has = ATTR_MODE;
    ck_assert_int_eq(store_rmdir(d.store->next, &op, "dir"), 0);
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "dir", &a, NULL), 0);
    DRIVEN_WAIT(driven_list(&d, "") == 1 && driven_stat(&d, "dir", &st) == 0 &&
                st.st_mtim.tv_sec < 4070908800);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_attrs");
    TCase *t = tcase_create("cache_attrs");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, heads_are_asked_in_parallel_and_once);
    tcase_add_loop_test(t, a_directory_keeps_its_xattrs_through_a_kill, 0, 6);
    tcase_add_test(t, one_stat_is_one_head);
    tcase_add_test(t, directories_are_asked_when_they_are_looked_at);
    tcase_add_test(t, a_marker_that_changed_is_asked_again);
    tcase_add_test(t, an_outage_leaves_what_was_told);
    tcase_add_test(t, no_store_gives_security_attributes);
    tcase_add_test(t, what_is_told_again_keeps_its_times);
    tcase_add_loop_test(t, what_lands_in_a_directory_keeps_its_ctime, 0, 2);
    tcase_add_loop_test(t, another_content_moves_ctime, 0, 3);
    tcase_add_test(t, another_target_moves_ctime);
    tcase_add_loop_test(t, what_is_seen_first_has_its_mtime, 0, 2);
    tcase_add_test(t, a_name_made_here_stays_the_directorys_time);
    tcase_add_test(t, a_marker_that_says_no_time_any_more);
    suite_add_tcase(s, t);
    return suite_run(s);
}
