/* cache/mirror/mirror.c: files and their places in a cache directory. */
#include "cache/mirror/mirror.h"
#include "cache/mirror/door.h"
#include "common/mem.h"
#include "tests/lib/temp_dir.h"
#include "tests/unit/mirror/suites.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];
static struct mirror m;
static struct op op;

static void setup(void)
{
    temp_dir_make(dir, sizeof(dir));
    op_init(&op, OP_FOREVER);
    int r = mirror_open(dir, DOOR_MAKE, &op, &m);
    ck_assert_msg(r == 0, "%d %s", r, op.why);
}

static void teardown(void)
{
    mirror_close(&m);
    temp_dir_remove(dir);
}

static void make(const char *path, const char *text)
{
    auto_close int fd = mirror_create(&m, path);

    ck_assert_msg(fd >= 0, "%s: %d", path, fd);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void fd_holds(int fd, const char *text)
{
    char found[32] = "";

    ck_assert_int_ge(fd, 0);
    ck_assert_int_ge(pread(fd, found, sizeof(found) - 1, 0), 0);
    ck_assert_str_eq(found, text);
}

static void holds(const char *path, const char *text)
{
    auto_close int fd = mirror_open_path(&m, path, O_RDONLY);

    if (text)
        fd_holds(fd, text);
    else
        ck_assert_msg(fd == -ENOENT, "%s: %d", path, fd);
}

/* ---- names ---- */

START_TEST(a_file_comes_with_its_directories)
{
    make("a/b/f", "text");
    holds("a/b/f", "text");
    ck_assert_int_eq(mirror_create(&m, "a/b/f"), -EEXIST);
    ck_assert_int_eq(mirror_mkdirs(&m, "a/b"), 0);
    ck_assert_int_eq(mirror_rmdir(&m, "a/b"), -ENOTEMPTY);
    ck_assert_int_eq(mirror_unlink(&m, "a/b/f"), 0);
    ck_assert_int_eq(mirror_rmdir(&m, "a/b"), 0);
    holds("a/b", NULL);
}
END_TEST

START_TEST(a_name_is_taken_when_all_is_there)
{
    auto_close int fd = mirror_create_incoming(&m, 5);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "in", 2), 2);
    holds("d/f", NULL);
    ck_assert_int_eq(mirror_link_in(&m, 5, "d/f"), 0);
    holds("d/f", "in");
    ck_assert_int_eq(mirror_remove_incoming(&m, 5), -ENOENT);
    auto_close int unnamed = mirror_tmpfile(&m);
    ck_assert_int_ge(unnamed, 0);
    ck_assert_int_eq(mirror_link_fd(&m, unnamed, "d/f"), -EEXIST);
    ck_assert_int_eq(mirror_link_fd(&m, unnamed, "d/g"), 0);
    ck_assert_int_eq(mirror_link_fd(&m, fd, "d/h"), 0);
    holds("d/h", "in");
}
END_TEST

START_TEST(names_move_and_change_places)
{
    make("a", "a");
    make("b", "b");
    ck_assert_int_eq(mirror_rename(&m, "a", "new/dir/c", 0), 0);
    holds("new/dir/c", "a");
    ck_assert_int_eq(mirror_rename(&m, "b", "new/dir/c", RENAME_NOREPLACE), -EEXIST);
    ck_assert_int_eq(mirror_rename(&m, "b", "new/dir/c", RENAME_EXCHANGE), 0);
    holds("b", "a");
    holds("new/dir/c", "b");
}
END_TEST

/* A symlink that somebody put there leads nowhere. */
START_TEST(nothing_leads_out)
{
    make("d/f", "text");
    ck_assert_int_eq(symlinkat("/etc", m.tree_fd, "out"), 0);
    ck_assert_int_eq(symlinkat("d", m.tree_fd, "in"), 0);
    static const char *const paths[] = {"out", "out/passwd", "in/f", "../version",
                                        "/etc/passwd"};

    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        int fd = mirror_open_path(&m, paths[i], O_RDONLY);
        ck_assert_msg(fd < 0, "%s", paths[i]);
    }
    ck_assert_int_lt(mirror_create(&m, "in/g"), 0);
    ck_assert_int_lt(mirror_unlink(&m, "in/f"), 0);
    holds("d/f", "text");
}
END_TEST

/* ---- files that leave their names ---- */

START_TEST(an_orphan_lives_until_it_is_dropped)
{
    make("f", "text");
    ck_assert_int_eq(mirror_orphan(&m, "f", 7, false), 0);
    holds("f", NULL);
    auto_close int fd = mirror_open_orphan(&m, 7, O_RDONLY);
    fd_holds(fd, "text");
    ck_assert_int_eq(mirror_drop_orphan(&m, 7), 0);
    ck_assert_int_eq(mirror_drop_orphan(&m, 7), 0);
    ck_assert_int_eq(mirror_open_orphan(&m, 7, O_RDONLY), -ENOENT);
    make("g", "again");
    ck_assert_int_eq(mirror_orphan(&m, "g", 8, true), 0);
    holds("g", "again"); /* until another takes its name */
    ck_assert_int_eq(mirror_orphan(&m, "h", 9, false), -ENOENT);
    ck_assert_int_ge(mirror_create_incoming(&m, 9), 0);
    ck_assert_int_eq(mirror_clean(&m), 0);
    ck_assert_int_eq(mirror_open_orphan(&m, 8, O_RDONLY), -ENOENT);
    ck_assert_int_eq(mirror_remove_incoming(&m, 9), -ENOENT);
}
END_TEST

static int add_path(void *arg, const char *path, int fd, const struct stat *st)
{
    char *all = arg;

    ck_assert_int_ge(fd, 0);
    (void)strcat(strcat(all, path), S_ISDIR(st->st_mode) ? "/;" : ";");
    return strlen(all) > 200 ? 7 : 0;
}

/* What is kept never takes the place of what was kept before. */
START_TEST(what_is_kept_has_a_name_of_its_own)
{
    char all[256] = "";

    for (int i = 0; i < 3; i++) {
        make("d/f", "text");
        ck_assert_int_eq(mirror_keep(&m, "d/f"), 0);
    }
    make("d/f/x", "text");
    ck_assert_int_eq(mirror_keep(&m, "d/f/x"), 0);
    auto_close int fd = mirror_tmpfile(&m);
    ck_assert_int_eq(mirror_keep_fd(&m, fd, "d/f"), 0);
    ck_assert_int_eq(mirror_walk(m.kept_fd, add_path, all), 0);
    static const char *const kept[] = {"d/;",     "d/f;",     "d/f.1;", "d/f.2;",
                                       "d/f.3/;", "d/f.3/x;", "d/f.4;"};
    size_t len = 0;
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
        ck_assert_msg(strstr(all, kept[i]) != NULL, "no %s: %s", kept[i], all);
        len += strlen(kept[i]);
    }
    ck_assert_uint_eq(strlen(all), len);
}
END_TEST

/* The power went while it was on its way to its place, and the disk had what is in it sooner.
 */
START_TEST(a_directory_on_its_way_is_kept_with_its_files)
{
    auto_close int made = mirror_mkdir_incoming(&m, 7);
    auto_close int fd = openat(made, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    auto_close int empty = mirror_mkdir_incoming(&m, 8);

    ck_assert(fd >= 0 && empty >= 0);
    ck_assert_int_eq(write(fd, "text", 4), 4);
    ck_assert_int_eq(mirror_clean(&m), 0);
    auto_close int kept = openat(m.kept_fd, "7/f", O_RDONLY | O_CLOEXEC);
    fd_holds(kept, "text");
    ck_assert_int_lt(openat(m.incoming_fd, "7", O_RDONLY | O_CLOEXEC), 0);
    ck_assert_int_lt(openat(m.kept_fd, "8", O_RDONLY | O_CLOEXEC), 0);
    ck_assert_int_eq(mirror_clean(&m), 0);
}
END_TEST

START_TEST(a_walk_visits_parents_first)
{
    char all[256] = "";

    make("a/b/f", "");
    ck_assert_int_eq(mirror_walk(m.tree_fd, add_path, all), 0);
    ck_assert_str_eq(all, "a/;a/b/;a/b/f;");
    memset(all, 'x', 220);
    ck_assert_int_eq(mirror_walk(m.tree_fd, add_path, all), 7);
}
END_TEST

/* ---- the directory ---- */

START_TEST(one_mount_at_a_time)
{
    struct mirror other;

    ck_assert_int_eq(mirror_open(dir, DOOR_MAKE, &op, &other), -EBUSY);
    ck_assert_ptr_nonnull(strstr(op.why, dir));
    mirror_close(&m);
    ck_assert_int_eq(mirror_open(dir, DOOR_CACHE, &op, &m), 0);
}
END_TEST

/* Whether others see that it is of no use to wait for the lock. */
static bool lock_is_held(void)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    auto_close int fd = openat(m.root_fd, "lock", O_RDWR | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fcntl(fd, F_OFD_GETLK, &l), 0);
    return l.l_type == F_WRLCK;
}

START_TEST(a_mount_holds_the_lock)
{
    ck_assert(lock_is_held());
    mirror_close(&m);
    ck_assert_int_eq(mirror_open(dir, DOOR_CACHE, &op, &m), 0);
    ck_assert(!lock_is_held());
    mirror_hold(&m);
    ck_assert(lock_is_held());
}
END_TEST

/* A lock that is removed while somebody waits for it is nobody's. */
static void *remove_and_close(void *arg)
{
    (void)arg;
    (void)sleep(1);
    ck_assert_int_eq(unlinkat(m.root_fd, "lock", 0), 0);
    mirror_close(&m);
    return NULL;
}

START_TEST(a_removed_lock_is_not_taken)
{
    struct mirror other;
    pthread_t t;

    mirror_close(&m);
    ck_assert_int_eq(mirror_open(dir, DOOR_CACHE, &op, &m), 0);
    ck_assert_int_eq(pthread_create(&t, NULL, remove_and_close, NULL), 0);
    ck_assert_int_eq(mirror_open(dir, DOOR_CACHE, &op, &other), -EBUSY);
    pthread_join(t, NULL);
    ck_assert_int_eq(mirror_open(dir, DOOR_CACHE, &op, &m), 0);
}
END_TEST

START_TEST(another_version_is_refused)
{
    mirror_close(&m);
    ck_assert_int_eq(mirror_open(dir, DOOR_CACHE, &op, &m), 0);
    ck_assert_int_eq(mirror_write_text(&m, "version", "runfs cache 99\n"), 0);
    mirror_close(&m);
    ck_assert_int_eq(mirror_open(dir, DOOR_CACHE, &op, &m), -EPROTO);
}
END_TEST

START_TEST(a_text_is_replaced_whole)
{
    auto_free char *text = NULL;

    ck_assert_int_eq(mirror_read_text(&m, "note", &text), -ENOENT);
    ck_assert_int_eq(mirror_write_text(&m, "note", "first and longer"), 0);
    ck_assert_int_eq(mirror_write_text(&m, "note", "second"), 0);
    ck_assert_int_eq(mirror_read_text(&m, "note", &text), 0);
    ck_assert_str_eq(text, "second");
}
END_TEST

START_TEST(a_text_that_could_not_be_read_back_is_not_written)
{
    auto_free char *most = calloc(1, DOOR_TEXT_MAX + 2);
    auto_free char *text = NULL;

    memset(most, 'x', DOOR_TEXT_MAX);
    ck_assert_int_eq(mirror_write_text(&m, "note", most), 0);
    most[DOOR_TEXT_MAX] = 'x';
    ck_assert_int_eq(mirror_write_text(&m, "note", most), -EFBIG);
    ck_assert_int_eq(mirror_read_text(&m, "note", &text), 0);
    ck_assert_uint_eq(strlen(text), DOOR_TEXT_MAX);
}
END_TEST

START_TEST(a_filesystem_that_turned_read_only_is_noticed)
{
    ck_assert(!mirror_read_only(&m));
    ck_assert_int_eq(mirror_note(&m, -EIO), -EIO);
    ck_assert(!atomic_load(&m.refused));
    ck_assert_int_eq(mirror_note(&m, -EROFS), -EROFS);
    ck_assert(atomic_load(&m.refused));
    ck_assert(!mirror_read_only(&m)); /* it is asked again */
    ck_assert(!mirror_removed(&m));
}
END_TEST

Suite *mirror_suite(void)
{
    Suite *s = suite_create("mirror");
    TCase *t = tcase_create("mirror");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_file_comes_with_its_directories);
    tcase_add_test(t, a_name_is_taken_when_all_is_there);
    tcase_add_test(t, names_move_and_change_places);
    tcase_add_test(t, nothing_leads_out);
    tcase_add_test(t, an_orphan_lives_until_it_is_dropped);
    tcase_add_test(t, what_is_kept_has_a_name_of_its_own);
    tcase_add_test(t, a_directory_on_its_way_is_kept_with_its_files);
    tcase_add_test(t, a_walk_visits_parents_first);
    tcase_add_test(t, one_mount_at_a_time);
    tcase_add_test(t, a_mount_holds_the_lock);
    tcase_add_test(t, a_removed_lock_is_not_taken);
    tcase_add_test(t, another_version_is_refused);
    tcase_add_test(t, a_text_is_replaced_whole);
    tcase_add_test(t, a_text_that_could_not_be_read_back_is_not_written);
    tcase_add_test(t, a_filesystem_that_turned_read_only_is_noticed);
    suite_add_tcase(s, t);
    return s;
}
