/* cache/: which directories become a cache, and that nothing leads out of one: the paths, the
 * owners and the files that others could prepare. As root with other users, else alone. */
#include "cache/mirror/door.h"
#include "cache/offline.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOBODY 65534

static char top[256]; /* an empty directory, by no symlink */
static struct op op;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void setup(void)
{
    const char *tmp = getenv("TMPDIR");
    auto_free char *real = realpath(tmp ? tmp : "/tmp", NULL);

    ck_assert_ptr_nonnull(real);
    (void)snprintf(top, sizeof(top), "%s/runfs-door-XXXXXX", real);
    ck_assert_ptr_nonnull(mkdtemp(top));
    op_init(&op, OP_FOREVER);
}

static void teardown(void)
{
    (void)nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* In one of two places that take turns. */
static const char *in_top(const char *name)
{
    static char paths[2][512];
    static unsigned n;
    char *path = paths[n++ % 2];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", top, name);
    return path;
}

static void make_dir(const char *name, mode_t mode)
{
    ck_assert_int_eq(mkdir(in_top(name), 0700), 0);
    ck_assert_int_eq(chmod(in_top(name), mode), 0);
}

static void make_file(const char *name, const char *text)
{
    FILE *f = fopen(in_top(name), "we");

    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

static void holds(const char *name, const char *text)
{
    char found[256];
    auto_close int fd = open(in_top(name), O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, found, sizeof(found) - 1);

    ck_assert_msg(n >= 0, "%s", name);
    found[n] = '\0';
    ck_assert_str_eq(found, text);
}

static unsigned mode_of(const char *name)
{
    struct stat st;

    ck_assert_int_eq(stat(in_top(name), &st), 0);
    return st.st_mode & 07777;
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
    ck_assert_uint_eq(mode_of("new/in/new"), 0700);
    make_dir("empty", 0755);
    takes("empty");
    takes("empty/./../empty//");
    make_dir("disk", 0755);
    make_dir("disk/lost+found", 0700);
    takes("disk");
    make_dir("begun", 0700); /* a mount that ended before it had a version */
    make_file("begun/lock", "");
    make_file("begun/runfs.log", "failed\n");
    takes("begun");
    ck_assert_int_eq(symlink("empty", in_top("link")), 0);
    ck_assert_int_eq(door_open(in_top("link"), DOOR_MAKE, &op, &fd, &path), 0);
    ck_assert_str_eq(path, in_top("empty"));
    ck_assert_int_eq(open_door("empty", DOOR_CACHE), -ENOENT);
    ck_assert_int_eq(open_door("missing", DOOR_CACHE), -ENOENT);
    ck_assert_int_ne(access(in_top("missing"), F_OK), 0);
    make_file("empty/version", "runfs cache 1\n");
    make_file("empty/other", "");
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

    make_dir("home", 0755);
    make_file("home/thesis", "text");
    (void)snprintf(instead, sizeof(instead), "cache_dir=%s/runfs", in_top("home"));
    refuses("home", -ENOTEMPTY, instead);
    make_dir("odd", 0755);
    make_file("odd/version", "1.0\n");
    refuses("odd", -ENOTEMPTY, "odd/runfs");
    ck_assert_int_eq(open_door("odd", DOOR_CACHE), -ENOENT);
    make_file("file", "text");
    refuses("file", -ENOTDIR, "file");
    refuses("file/below", -ENOTDIR, "file");
    ck_assert_uint_eq(mode_of("home"), 0755);
    ck_assert_int_eq(unlink(in_top("home/thesis")), 0);
    is_empty("home");
}
END_TEST

/* ---- who could replace it ---- */

START_TEST(where_all_may_write_is_no_place)
{
    make_dir("open", 0777);
    if (geteuid() == 0) {
        refuses("open/cache", -EPERM, "chmod +t");
        is_empty("open");
    }
    make_dir("sticky", 01777);
    takes("sticky/cache");
    make_dir("mine", 0777); /* itself, while it is empty */
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
    make_dir("theirs", 0755);
    make_dir("theirs/mine", 0700);
    give("theirs", NOBODY);
    refuses("theirs", -EPERM, "belongs to");
    refuses("theirs/mine", -EPERM, "belongs to");
    refuses("theirs/new", -EPERM, "belongs to");
    ck_assert_int_ne(access(in_top("theirs/new"), F_OK), 0);
    make_dir("group", 0775);
    refuses("group/cache", -EPERM, "chmod +t");
    make_dir("sticky", 01777);
    make_dir("sticky/theirs", 0755);
    give("sticky/theirs", NOBODY);
    refuses("sticky/theirs/cache", -EPERM, "theirs");
    make_dir("target", 0700);
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
    make_dir("roots", 0755);
    make_dir("project", 02770);
    ck_assert_int_eq(chown(in_top("project"), 0, NOBODY), 0);
    make_dir("scratch", 0777); /* as an orchestrator gives it to a container */
    make_dir("scratch/theirs", 0777);
    give("scratch/theirs", 1);
    make_dir("away", 01777);
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

/* ---- what others put into it ---- */

static struct driven d;

static int count_one(void *arg, const struct cache_pending *p)
{
    (void)p;
    ++*(unsigned *)arg;
    return 0;
}

static void setup_cache(void)
{
    setup();
    driven_init(&d, NULL);
    driven_mount(&d);
    driven_put(&d, "f", "content", 7);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    make_file("victim", "root's");
}

static void teardown_cache(void)
{
    driven_release(&d);
    teardown();
}

static void in_cache(const char *name, char ret[256])
{
    (void)snprintf(ret, 256, "%s/%s", d.dir, name);
}

static const char *const opened[] = {"lock",         "version",          "boot.new",
                                     "identity.new", "state.db",         "state.db-wal",
                                     "state.db-shm", "state.db-journal", "place.new"};

/* -EPERM, and neither the victim nor what leads to it has changed. */
static void mount_is_refused(const char *name)
{
    struct cache *c = NULL;
    int r = cache_new(&d.config, d.store, &op, &c);

    ck_assert_msg(r == -EPERM, "%s: %d %s", name, r, op.why);
    ck_assert_msg(strstr(op.why, "this user") != NULL, "%s: %s", name, op.why);
    ck_assert_msg(mode_of("victim") == 0644, "%s", name);
    holds("victim", "root's");
}

START_TEST(no_file_leads_out_of_it)
{
    char path[256], aside[270];

    in_cache(opened[_i], path);
    (void)snprintf(aside, sizeof(aside), "%s.aside", path);
    ck_assert_int_eq(chmod(in_top("victim"), 0644), 0);
    bool there = rename(path, aside) == 0;
    ck_assert_int_eq(symlink(in_top("victim"), path), 0);
    mount_is_refused(opened[_i]);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(link(in_top("victim"), path), 0);
    mount_is_refused(opened[_i]);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* which nobody waits for, either */
    mount_is_refused(opened[_i]);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert(!there || rename(aside, path) == 0);
    driven_mount(&d);
    driven_shows(&d, "f", "content");
}
END_TEST

START_TEST(a_log_leads_nowhere)
{
    auto_close int dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_TRUNC;

    ck_assert_int_eq(symlink("victim", in_top("runfs.log")), 0);
    ck_assert_int_eq(door_file(dir, "runfs.log", flags), -EPERM);
    ck_assert_int_eq(unlink(in_top("runfs.log")), 0);
    ck_assert_int_eq(symlink("missing", in_top("runfs.log")), 0);
    ck_assert_int_eq(door_file(dir, "runfs.log", flags), -EPERM);
    ck_assert_int_ne(access(in_top("missing"), F_OK), 0);
    ck_assert_int_eq(unlink(in_top("runfs.log")), 0);
    ck_assert_int_eq(link(in_top("victim"), in_top("runfs.log")), 0);
    ck_assert_int_eq(door_file(dir, "runfs.log", flags), -EPERM);
    holds("victim", "root's");
    ck_assert_int_eq(unlink(in_top("runfs.log")), 0);
    auto_close int fd = door_file(dir, "runfs.log", flags);
    ck_assert_int_ge(fd, 0);
    ck_assert_uint_eq(mode_of("runfs.log"), 0600);
}
END_TEST

START_TEST(a_directory_of_another_user_is_none_of_it)
{
    struct cache *c = NULL;
    char path[256], aside[256];

    if (geteuid() != 0)
        return;
    in_cache("mirror", path);
    in_cache("aside", aside);
    ck_assert_int_eq(rename(path, aside), 0);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    ck_assert_int_eq(chown(path, NOBODY, NOBODY), 0);
    ck_assert_int_eq(cache_new(&d.config, d.store, &op, &c), -EPERM);
}
END_TEST

/* What root would find there was written by somebody else: where it says that it goes, root's
 * keys would go too, and modes would be set for root's files. */
START_TEST(root_acts_on_no_cache_of_another_user)
{
    struct cache *c = NULL;
    auto_free char *identity = NULL;
    unsigned n = 0;
    char log[256];

    if (geteuid() != 0)
        return;
    ck_assert_int_eq(chmod(d.dir, 0755), 0);
    ck_assert_int_eq(chown(d.dir, NOBODY, NOBODY), 0);
    in_cache("lock", log);
    ck_assert_int_eq(unlink(log), 0);
    ck_assert_int_eq(recover_list(d.dir, &op, count_one, &n), -EPERM);
    ck_assert_msg(strstr(op.why, "runuser -u ") || strstr(op.why, "setpriv "), "%s", op.why);
    ck_assert_ptr_nonnull(strstr(op.why, " runfs recover '/"));
    ck_assert_int_eq(recover_export(d.dir, in_top("out"), &op, count_one, &n), -EPERM);
    ck_assert_int_ne(access(in_top("out"), F_OK), 0);
    ck_assert_int_eq(recover_identity(d.dir, &op, &identity), -EPERM);
    ck_assert_int_eq(cache_new(&d.config, d.store, &op, &c), -EPERM);
    ck_assert_msg(access(log, F_OK) < 0, "something was written there");
    struct stat st;
    ck_assert_int_eq(stat(d.dir, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0755);
}
END_TEST

/* Whoever runs the export owns what it makes, and may not be who set the bits. */
START_TEST(what_is_exported_has_no_set_id_bits)
{
    unsigned n = 0;

    d.config.settle_ns = 60 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, "program", "#!", 2);
    ck_assert_int_eq(driven_chmod(&d, "program", 06755), 0);
    driven_unmount(&d);
    ck_assert_int_eq(recover_export(d.dir, in_top("out"), &op, count_one, &n), 0);
    ck_assert_uint_eq(n, 1);
    holds("out/program", "#!");
    ck_assert_uint_eq(mode_of("out/program"), 0600);
}
END_TEST

int main(void)
{
    /* Names outside a cache are linked to what is in it. */
    (void)setenv("TMPDIR", "/tmp", 0);
    Suite *s = suite_create("cache_door");
    TCase *t = tcase_create("door");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_new_or_empty_directory_becomes_one);
    tcase_add_test(t, a_relative_path_is_one);
    tcase_add_test(t, what_holds_other_things_stays_as_it_is);
    tcase_add_test(t, where_all_may_write_is_no_place);
    tcase_add_test(t, root_takes_nothing_of_others);
    tcase_add_test(t, a_user_takes_his_own_only);
    suite_add_tcase(s, t);
    t = tcase_create("cache");
    tcase_add_checked_fixture(t, setup_cache, teardown_cache);
    tcase_add_loop_test(t, no_file_leads_out_of_it, 0, ARRAY_SIZE(opened));
    tcase_add_test(t, a_log_leads_nowhere);
    tcase_add_test(t, a_directory_of_another_user_is_none_of_it);
    tcase_add_test(t, root_acts_on_no_cache_of_another_user);
    tcase_add_test(t, what_is_exported_has_no_set_id_bits);
    suite_add_tcase(s, t);
    return suite_run(s);
}
