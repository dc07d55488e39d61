/* cache/mirror/door.c: which directories become a cache. As root with other users, else alone.
 */
#include "cache/mirror/door.h"
#include "common/mem.h"
#include "tests/lib/top.h"
#include "tests/unit/mirror/suites.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOBODY 65534

static struct op op;

static void setup(void)
{
    top_make();
    op_init(&op, OP_FOREVER);
}

static void is_empty(const char *name)
{
    ck_assert_msg(rmdir(in_top(name)) == 0, "%s is not empty", name);
}

static int open_door(const char *name, enum door_way way)
{
    auto_close int fd = -1;

    return door_open(in_top(name), way, &op, &fd, NULL);
}

static void takes(const char *name)
{
    int r = open_door(name, DOOR_MAKE);

    ck_assert_msg(r == 0, "%s: %d %s", name, r, op.why);
}

static void refuses(const char *name, int err, const char *word)
{
    int r = open_door(name, DOOR_MAKE);

    ck_assert_msg(r == err, "%s: %d instead of %d", name, r, err);
    ck_assert_msg(strstr(op.why, word) != NULL, "'%s' is not in: %s", word, op.why);
}

/* ---- what becomes a cache ---- */

START_TEST(a_new_or_empty_directory_becomes_one)
{
    auto_free char *path = NULL;
    auto_close int fd = -1;

    takes("new/in/new");
    ck_assert_uint_eq(top_mode_of("new/in/new"), 0700);
    top_make_dir("empty", 0755);
    takes("empty");
    takes("empty/./../empty//");
    top_make_dir("disk", 0755);
    top_make_dir("disk/lost+found", 0700);
    takes("disk");
    top_make_dir("begun", 0700); /* a mount that ended before it had a version */
    top_make_file("begun/lock", "");
    top_make_file("begun/runfs.log", "failed\n");
    takes("begun");
    ck_assert_int_eq(symlink("empty", in_top("link")), 0);
    ck_assert_int_eq(door_open(in_top("link"), DOOR_MAKE, &op, &fd, &path), 0);
    ck_assert_str_eq(path, in_top("empty"));
    ck_assert_int_eq(open_door("empty", DOOR_CACHE), -ENOENT);
    ck_assert_int_eq(open_door("missing", DOOR_CACHE), -ENOENT);
    ck_assert_int_ne(access(in_top("missing"), F_OK), 0);
    top_make_file("empty/version", "runfs cache 1\n");
    top_make_file("empty/other", "");
    ck_assert_int_eq(open_door("empty", DOOR_CACHE), 0);
}
END_TEST

START_TEST(a_relative_path_is_one)
{
    auto_free char *here = getcwd(NULL, 0);
    auto_free char *path = NULL;
    auto_close int fd = -1;

    ck_assert_int_eq(chdir(top), 0);
    int r = door_open("cache", DOOR_MAKE, &op, &fd, &path);
    ck_assert_int_eq(chdir(here), 0);
    ck_assert_int_eq(r, 0);
    ck_assert_str_eq(path, in_top("cache"));
}
END_TEST

START_TEST(what_holds_other_things_stays_as_it_is)
{
    char instead[600];

    top_make_dir("home", 0755);
    top_make_file("home/thesis", "text");
    (void)snprintf(instead, sizeof(instead), "cache_dir=%s/runfs", in_top("home"));
    refuses("home", -ENOTEMPTY, instead);
    top_make_dir("odd", 0755);
    top_make_file("odd/version", "1.0\n");
    refuses("odd", -ENOTEMPTY, "odd/runfs");
    ck_assert_int_eq(open_door("odd", DOOR_CACHE), -ENOENT);
    top_make_file("file", "text");
    refuses("file", -ENOTDIR, "file");
    refuses("file/below", -ENOTDIR, "file");
    ck_assert_uint_eq(top_mode_of("home"), 0755);
    ck_assert_int_eq(unlink(in_top("home/thesis")), 0);
    is_empty("home");
}
END_TEST

/* ---- who could replace it ---- */

START_TEST(where_all_may_write_is_no_place)
{
    top_make_dir("open", 0777);
    if (geteuid() == 0) {
        refuses("open/cache", -EPERM, "chmod +t");
        is_empty("open");
    }
    top_make_dir("sticky", 01777);
    takes("sticky/cache");
    top_make_dir("mine", 0777); /* itself, while it is empty */
    takes("mine");
}
END_TEST

static void give(const char *name, uid_t uid)
{
    ck_assert_int_eq(lchown(in_top(name), uid, uid), 0);
}

START_TEST(root_takes_nothing_of_others)
{
    if (geteuid() != 0)
        return;
    top_make_dir("theirs", 0755);
    top_make_dir("theirs/mine", 0700);
    give("theirs", NOBODY);
    refuses("theirs", -EPERM, "belongs to");
    refuses("theirs/mine", -EPERM, "belongs to");
    refuses("theirs/new", -EPERM, "belongs to");
    ck_assert_int_ne(access(in_top("theirs/new"), F_OK), 0);
    top_make_dir("group", 0775);
    refuses("group/cache", -EPERM, "chmod +t");
    top_make_dir("sticky", 01777);
    top_make_dir("sticky/theirs", 0755);
    give("sticky/theirs", NOBODY);
    refuses("sticky/theirs/cache", -EPERM, "theirs");
    top_make_dir("target", 0700);
    ck_assert_int_eq(symlink(in_top("target"), in_top("sticky/link")), 0);
    takes("sticky/link"); /* root's own */
    give("sticky/link", NOBODY);
    refuses("sticky/link", -EPERM, "lead elsewhere");
    refuses("sticky/link/below", -EPERM, "lead elsewhere");
    is_empty("target");
}
END_TEST

/* Who shares a directory with a group shares it with whom he likes. */
START_TEST(a_user_takes_his_own_only)
{
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(chmod(top, 0755), 0);
    top_make_dir("roots", 0755);
    top_make_dir("project", 02770);
    ck_assert_int_eq(chown(in_top("project"), 0, NOBODY), 0);
    top_make_dir("scratch", 0777); /* as an orchestrator gives it to a container */
    top_make_dir("scratch/theirs", 0777);
    give("scratch/theirs", 1);
    top_make_dir("away", 01777);
    ck_assert_int_eq(symlink("project/cache", in_top("away/link")), 0);
    give("away/link", 1);
    ck_assert(setegid(NOBODY) == 0 && seteuid(NOBODY) == 0);
    int roots = open_door("roots", DOOR_MAKE), project = open_door("project/cache", DOOR_MAKE),
        away = open_door("away/link", DOOR_MAKE),
        scratch = open_door("scratch/cache", DOOR_MAKE),
        theirs = open_door("scratch/theirs/cache", DOOR_MAKE);
    ck_assert(seteuid(0) == 0 && setegid(0) == 0);
    ck_assert_int_eq(roots, -EPERM);
    ck_assert_int_eq(project, 0);
    ck_assert_int_eq(away, -EPERM);
    ck_assert_int_eq(scratch, 0);
    ck_assert_int_eq(theirs, -EPERM);
}
END_TEST

START_TEST(a_log_leads_nowhere)
{
    auto_close int dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_TRUNC;

    top_make_file("victim", "root's");
    ck_assert_int_eq(symlink("victim", in_top("runfs.log")), 0);
    ck_assert_int_eq(door_file(dir, "runfs.log", flags), -EPERM);
    ck_assert_int_eq(unlink(in_top("runfs.log")), 0);
    ck_assert_int_eq(symlink("missing", in_top("runfs.log")), 0);
    ck_assert_int_eq(door_file(dir, "runfs.log", flags), -EPERM);
    ck_assert_int_ne(access(in_top("missing"), F_OK), 0);
    ck_assert_int_eq(unlink(in_top("runfs.log")), 0);
    ck_assert_int_eq(link(in_top("victim"), in_top("runfs.log")), 0);
    ck_assert_int_eq(door_file(dir, "runfs.log", flags), -EPERM);
    top_holds("victim", "root's");
    ck_assert_int_eq(unlink(in_top("runfs.log")), 0);
    auto_close int fd = door_file(dir, "runfs.log", flags);
    ck_assert_int_ge(fd, 0);
    ck_assert_uint_eq(top_mode_of("runfs.log"), 0600);
}
END_TEST

Suite *door_suite(void)
{
    Suite *s = suite_create("door");
    TCase *t = tcase_create("door");

    tcase_add_checked_fixture(t, setup, top_remove);
    tcase_add_test(t, a_new_or_empty_directory_becomes_one);
    tcase_add_test(t, a_relative_path_is_one);
    tcase_add_test(t, what_holds_other_things_stays_as_it_is);
    tcase_add_test(t, where_all_may_write_is_no_place);
    tcase_add_test(t, root_takes_nothing_of_others);
    tcase_add_test(t, a_user_takes_his_own_only);
    tcase_add_test(t, a_log_leads_nowhere);
    suite_add_tcase(s, t);
    return s;
}
