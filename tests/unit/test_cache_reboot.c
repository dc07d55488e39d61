/* cache/: what a mount after a reboot, or on a full disk, takes over and what it sets aside. */
#include "cache/cache.h"
#include "cache/mirror/crash.h"
#include "cache/mirror/stamp.h"
#include "cache/offline.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static struct driven d;
static atomic_bool refusing; /* the store takes nothing */

static int64_t refuse(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_PUT && atomic_load(&refusing))
        return op_fail(c->op, -EACCES, "put %s: refused", c->key);
    return call_next(c);
}

static void setup(void)
{
    atomic_store(&refusing, false);
}

/* The boot id is the first line of its file. */
static void another_boot(void)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/boot", d.dir);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "00000000", 8, 0), 8);
    ck_assert_int_eq(close(fd), 0);
}

static int count_one(void *arg, const struct cache_pending *p)
{
    (void)p;
    ++*(int *)arg;
    return 0;
}

static uint64_t kept(void)
{
    struct cache_stats s;

    cache_get_stats(d.cache, &s);
    return s.kept_files;
}

/* Nothing is stored before the reboot. */
static void reboot_unstored(void)
{
    driven_unmount(&d);
    another_boot();
    driven_mount(&d);
}

static void reboot_ended(void)
{
    driven_end(&d);
    another_boot();
    atomic_store(&refusing, false);
    driven_mount(&d);
}

/* A store with `f` and `gone` in their first version, which takes nothing more. */
static void mount_stored(void)
{
    driven_init(&d, refuse);
    d.config.settle_ns = 10 * NS_PER_SEC; /* nothing has failed when it is closed */
    driven_store(&d, "f", "one", 3);
    driven_store(&d, "gone", "one", 3);
    driven_mount(&d);
    atomic_store(&refusing, true);
}

static void all_comes_to_the_store(void)
{
    struct stat st;

    ck_assert_uint_eq(kept(), 0);
    ck_assert_int_eq(driven_stat(&d, "gone", &st), -ENOENT);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "two");
    driven_stores(&d, "gone", NULL);
}

/* Nobody fsynced anything, but the daemon had the time to. */
START_TEST(a_clean_end_is_believed_after_a_reboot)
{
    mount_stored();
    driven_put(&d, "f", "two", 3);
    ck_assert_int_eq(driven_unlink(&d, "gone"), 0);
    reboot_ended();
    all_comes_to_the_store();
    driven_release(&d);
}
END_TEST

START_TEST(what_looks_into_an_ended_cache_takes_nothing_from_it)
{
    int n = 0;
    struct op op;

    mount_stored();
    driven_put(&d, "f", "two", 3);
    ck_assert_int_eq(driven_unlink(&d, "gone"), 0);
    driven_end(&d);
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(recover_list(d.dir, &op, count_one, &n), 0);
    ck_assert_int_eq(n, 2);
    /* Nor does a mount that is refused. */
    struct cache_config other = d.config;
    other.identity = "another store";
    ck_assert_int_eq(cache_new(&other, d.store, &op, &d.cache), -EEXIST);
    another_boot();
    atomic_store(&refusing, false);
    driven_mount(&d);
    all_comes_to_the_store();
    driven_release(&d);
}
END_TEST

/* A mapping, or a descriptor past the daemon, can outlive it. */
START_TEST(what_was_written_after_the_end_is_not_believed)
{
    char path[128];

    mount_stored();
    driven_put(&d, "f", "two", 3);
    driven_end(&d);
    (void)snprintf(path, sizeof(path), "%s/mirror/f", d.dir);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "TWO", 3, 0), 3);
    ck_assert_int_eq(close(fd), 0);
    another_boot();
    driven_mount(&d);
    ck_assert_uint_eq(kept(), 1);
    driven_shows(&d, "f", "one");
    driven_release(&d);
}
END_TEST

/* The end of one mount says nothing of the next. */
START_TEST(a_kill_after_a_clean_end_is_a_kill)
{
    mount_stored();
    driven_end(&d);
    driven_mount(&d);
    driven_put(&d, "f", "two", 3);
    reboot_unstored();
    ck_assert_uint_eq(kept(), 1);
    driven_shows(&d, "f", "one");
    driven_release(&d);
}
END_TEST

/* What it had on the disk is there, however the next mount ends, and the one after that. */
START_TEST(a_clean_end_is_believed_after_later_kills)
{
    mount_stored();
    driven_put(&d, "f", "two", 3);
    ck_assert_int_eq(driven_unlink(&d, "gone"), 0);
    driven_end(&d);
    if (_i)
        another_boot();
    driven_mount(&d);
    reboot_unstored();
    reboot_unstored();
    atomic_store(&refusing, false);
    all_comes_to_the_store();
    driven_release(&d);
}
END_TEST

/* sync(1) opens what it is given to read it. */
START_TEST(who_only_reads_can_sync)
{
    struct handle *h = NULL;

    driven_init(&d, refuse);
    d.config.settle_ns = 10 * NS_PER_SEC; /* no fsync() has a failed upload to tell */
    driven_mount(&d);
    atomic_store(&refusing, true);
    driven_put(&d, "f", "data", 4);
    ck_assert_int_eq(driven_open(&d, "f", O_RDONLY, &h), 0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    reboot_unstored();
    atomic_store(&refusing, false);
    ck_assert_uint_eq(kept(), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, "f", "data");
    driven_release(&d);
}
END_TEST

START_TEST(a_synced_file_stays_so_with_another_time)
{
    struct handle *h = NULL;
    struct stat st;

    driven_init(&d, refuse);
    d.config.settle_ns = 10 * NS_PER_SEC;
    d.config.late_ns = NS_PER_SEC / 2;
    driven_mount(&d);
    atomic_store(&refusing, true);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "data", 4, 0), 0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_utimens(&d, "f", 1000 * NS_PER_SEC), 0);
    /* The time of a file that was not synced is no proof that it was. */
    driven_put(&d, "g", "data", 4);
    ck_assert_int_eq(driven_utimens(&d, "g", 1000 * NS_PER_SEC), 0);
    reboot_unstored();
    atomic_store(&refusing, false);
    ck_assert_uint_eq(kept(), 1);
    ck_assert_int_eq(driven_stat(&d, "g", &st), -ENOENT);
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    ck_assert_int_eq(st.st_mtim.tv_sec, 1000);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "data");
    driven_release(&d);
}
END_TEST

START_TEST(a_synced_file_stays_so_in_a_later_mount)
{
    struct handle *h = NULL;

    driven_init(&d, refuse);
    d.config.settle_ns = 10 * NS_PER_SEC;
    d.config.late_ns = NS_PER_SEC / 2;
    driven_mount(&d);
    atomic_store(&refusing, true);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "data", 4, 0), 0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_chmod(&d, "f", 0600), 0); /* writes the stamp anew */
    reboot_unstored();
    atomic_store(&refusing, false);
    ck_assert_uint_eq(kept(), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "data");
    driven_release(&d);
}
END_TEST

/* Writes in place, and the time that it had before: as rsync --inplace -t. */
static void rewrite(const char *text, int64_t mtime_ns)
{
    driven_put(&d, "f", text, strlen(text));
    ck_assert_int_eq(driven_utimens(&d, "f", mtime_ns), 0);
}

static void put_synced(const char *text)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, text, strlen(text), 0), 0);
    ck_assert_int_eq(driven_utimens(&d, "f", 1000 * NS_PER_SEC), 0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
}

/* What was lost: blocks that nobody had synced. */
static void tear(const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/mirror/%s", d.dir, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(pwrite(fd, "\0", 1, 0), 1);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    ck_assert_int_eq(futimens(fd, times), 0);
    ck_assert_int_eq(close(fd), 0);
}

static void reboot_torn(const char *name)
{
    driven_unmount(&d);
    tear(name);
    another_boot();
    driven_mount(&d);
}

START_TEST(a_synced_mark_does_not_outlive_later_writes)
{
    struct stat st;

    driven_init(&d, refuse);
    d.config.settle_ns = 10 * NS_PER_SEC;
    driven_mount(&d);
    atomic_store(&refusing, true);
    put_synced("old");
    rewrite("new", 1000 * NS_PER_SEC);
    reboot_torn("f");
    atomic_store(&refusing, false);
    ck_assert_uint_eq(kept(), 1);
    ck_assert_int_eq(driven_stat(&d, "f", &st), -ENOENT);
    driven_release(&d);
}
END_TEST

/* The same of a file that the store has: it is read from there. */
START_TEST(what_was_synced_before_it_was_stored_anew_is_not_trusted)
{
    driven_init(&d, refuse);
    driven_mount(&d);
    put_synced("old");
    ck_assert_int_eq(driven_flush(&d), 0);
    rewrite("new", 1000 * NS_PER_SEC);
    ck_assert_int_eq(driven_flush(&d), 0);
    reboot_torn("f");
    driven_shows(&d, "f", "new");
    driven_release(&d);
}
END_TEST

/* Nor is what was fetched in the place of content that a disk had lost: nobody synced that. */
START_TEST(a_synced_mark_does_not_outlive_the_content)
{
    char path[128];

    driven_init(&d, refuse);
    driven_mount(&d);
    put_synced("data");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    (void)snprintf(path, sizeof(path), "%s/mirror/f", d.dir);
    ck_assert_int_eq(truncate(path, 1), 0);
    driven_mount(&d);
    driven_shows(&d, "f", "data");
    reboot_torn("f");
    driven_shows(&d, "f", "data");
    driven_release(&d);
}
END_TEST

#ifndef NDEBUG

static atomic_bool marked; /* the time was moved while the disk still said "synced" */

static void at_new_time(const char *name)
{
    char path[128];
    struct stamp_attrs a;

    if (strcmp(name, "utimens-moved") != 0)
        return;
    (void)snprintf(path, sizeof(path), "%s/mirror/f", d.dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && stamp_read_attrs(fd, &a) == 0 && (a.flags & STAMP_SYNCED))
        atomic_store(&marked, true);
    (void)close(fd);
}

/* The power may go between any two steps. */
START_TEST(a_synced_mark_goes_before_the_time_comes_back)
{
    driven_init(&d, refuse);
    d.config.settle_ns = 10 * NS_PER_SEC;
    driven_mount(&d);
    put_synced("old");
    driven_put(&d, "f", "new", 3);
    atomic_store(&marked, false);
    crash_watch(at_new_time);
    ck_assert_int_eq(driven_utimens(&d, "f", 1000 * NS_PER_SEC), 0);
    crash_watch(NULL);
    ck_assert(!atomic_load(&marked));
    driven_release(&d);
}
END_TEST

#endif

/* What an earlier reboot has left in kept/ is in nobody's way. */
START_TEST(what_is_kept_twice_has_room)
{
    char name[256];

    memset(name, 'n', 255);
    name[255] = '\0';
    driven_init(&d, refuse);
    d.config.settle_ns = 10 * NS_PER_SEC;
    driven_mount(&d);
    atomic_store(&refusing, true);
    driven_put(&d, "x", "one", 3);
    driven_put(&d, name, "one", 3);
    reboot_unstored();
    ck_assert_uint_eq(kept(), 2);
    ck_assert_int_eq(driven_mkdir(&d, "x"), 0);
    driven_put(&d, "x/y", "two", 3);
    driven_put(&d, name, "two", 3);
    reboot_unstored();
    ck_assert_uint_eq(kept(), 4);
    ck_assert_int_eq(driven_rmdir(&d, "x"), 0);
    driven_put(&d, "x", "three", 5);
    reboot_unstored();
    ck_assert_uint_eq(kept(), 5);
    atomic_store(&refusing, false);
    driven_release(&d);
}
END_TEST

static void has_exported(const char *folder, const char *name, const char *wanted)
{
    char path[160], buf[64] = "";

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    ck_assert_int_eq(read(fd, buf, sizeof(buf) - 1), (ssize_t)strlen(wanted));
    ck_assert_str_eq(buf, wanted);
    ck_assert_int_eq(close(fd), 0);
}

/* A mount whose store takes nothing. */
static void mount_refused(void)
{
    driven_init(&d, refuse);
    d.config.settle_ns = 10 * NS_PER_SEC;
    driven_mount(&d);
    atomic_store(&refusing, true);
}

/* A file that can't be copied keeps none of the others back, and a second run makes what the
 * first could not. */
START_TEST(an_export_goes_on_after_a_failure)
{
    char folder[100], blocked[160];
    int n = 0;
    struct op op;

    mount_refused();
    driven_put(&d, "a", "first", 5);
    driven_put(&d, "b", "second", 6);
    driven_put(&d, "c", "third", 5);
    driven_unmount(&d);
    (void)snprintf(folder, sizeof(folder), "%s/exported", d.dir);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    (void)snprintf(blocked, sizeof(blocked), "%s/a", folder);
    ck_assert_int_eq(mkdir(blocked, 0700), 0); /* nothing can be written there */
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(recover_export(d.dir, folder, &op, count_one, &n), -EEXIST);
    ck_assert_ptr_nonnull(strstr(op.why, "a can't be exported"));
    ck_assert_int_eq(n, 2);
    has_exported(folder, "b", "second");
    has_exported(folder, "c", "third");
    ck_assert_int_eq(rmdir(blocked), 0);
    n = 0;
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(recover_export(d.dir, folder, &op, count_one, &n), 0);
    ck_assert_int_eq(n, 3);
    has_exported(folder, "a", "first");
    has_exported(folder, "b", "second");
    driven_release(&d);
}
END_TEST

static void keep(const char *name, const char *content)
{
    char path[160];

    (void)snprintf(path, sizeof(path), "%s/kept/%s", d.dir, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
    *slash = '/';
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, content, strlen(content)), (ssize_t)strlen(content));
    ck_assert_int_eq(close(fd), 0);
}

/* What was kept may have the name of what is owed, or need it for a folder. */
START_TEST(an_export_has_room_for_what_was_kept)
{
    char folder[100];
    int n = 0;
    struct op op;

    mount_refused();
    driven_put(&d, "a", "owed", 4);
    driven_put(&d, "b", "owed", 4);
    driven_unmount(&d);
    keep("a", "kept");
    keep("b/c", "kept");
    keep("d", "kept");
    (void)snprintf(folder, sizeof(folder), "%s/exported", d.dir);
    for (int run = 1; run <= 2; run++) {
        op_init(&op, 20 * NS_PER_SEC);
        int r = recover_export(d.dir, folder, &op, count_one, &n);
        ck_assert_msg(r == 0, "%d: %s", r, op.why);
        ck_assert_int_eq(n, 5 * run);
    }
    has_exported(folder, "a", "owed");
    has_exported(folder, "b", "owed");
    has_exported(folder, "d", "kept");
    has_exported(folder, ".runfs-kept/a", "kept");
    has_exported(folder, ".runfs-kept/b/c", "kept");
    driven_release(&d);
}
END_TEST

/* What lies in the folder leads nowhere else, and stays as it is. */
START_TEST(an_export_stays_in_its_folder)
{
    static const char *const links[] = {"dir", "f", ".runfs-kept"};
    char folder[100], outside[100], path[200];
    struct stat st;
    int n = 0;
    struct op op;

    mount_refused();
    driven_put(&d, "a", "owed", 4);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/b", "owed", 4);
    driven_put(&d, "f", "owed", 4);
    driven_unmount(&d);
    keep("a", "kept");
    (void)snprintf(folder, sizeof(folder), "%s/exported", d.dir);
    (void)snprintf(outside, sizeof(outside), "%s/outside", d.dir);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    ck_assert_int_eq(mkdir(outside, 0700), 0);
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, links[i]);
        ck_assert_int_eq(symlink(i == 1 ? "../outside/f" : "../outside", path), 0);
    }
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_lt(recover_export(d.dir, folder, &op, count_one, &n), 0);
    ck_assert_int_eq(n, 1);
    has_exported(folder, "a", "owed");
    ck_assert_int_eq(rmdir(outside), 0); /* nothing is in it */
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, links[i]);
        ck_assert_int_eq(lstat(path, &st), 0);
        ck_assert(S_ISLNK(st.st_mode));
    }
    driven_release(&d);
}
END_TEST

/* Its number was that of its first name, from which nobody can derive it any more. */
START_TEST(a_renamed_file_keeps_its_number)
{
    static char much[96 << 10];
    struct stat before, after;
    char buf[8];

    driven_init(&d, refuse);
    d.config.size_bytes = 64 << 10;
    driven_store(&d, "old", "data", 4);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "old", &before), 0);
    ck_assert_int_eq(driven_rename(&d, "old", "new"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_read(&d, "new", buf, sizeof(buf)), 4);
    driven_put(&d, "other", much, sizeof(much));
    DRIVEN_WAIT(strcmp(driven_state(&d, "new"), "clean") != 0);
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "new", &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    driven_release(&d);
}
END_TEST

/* The probe for what a store through a mapping does to mtime needs a block of its own. */
START_TEST(a_full_disk_can_be_mounted)
{
    static const char block[4096];
    char path[128], pattern[128];
    glob_t aside;
    struct op op;

    driven_init(&d, refuse);
    /* In a namespace of this process, so that nothing stays behind. */
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("runfs-test", d.dir, "tmpfs", 0, "size=1m") < 0) {
        ck_assert(errno == EPERM || errno == EACCES); /* who may not mount can't fill a disk */
        driven_release(&d);
        return;
    }
    driven_mount(&d);
    driven_put(&d, "f", "data", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    (void)snprintf(path, sizeof(path), "%s/foreign", d.dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    while (write(fd, block, sizeof(block)) > 0)
        ;
    ck_assert_int_eq(errno, ENOSPC);
    ck_assert_int_eq(close(fd), 0);
    op_init(&op, 20 * NS_PER_SEC);
    int r = cache_new(&d.config, d.store, &op, &d.cache);
    ck_assert_msg(r == 0 || r == -ENOSPC, "mount: %d %s", r, op.why);
    if (r == 0)
        driven_unmount(&d);
    d.cache = NULL;
    (void)snprintf(pattern, sizeof(pattern), "%s/state.db.damaged-*", d.dir);
    ck_assert_int_eq(glob(pattern, 0, NULL, &aside), GLOB_NOMATCH);
    ck_assert_int_eq(unlink(path), 0);
    driven_mount(&d);
    driven_unmount(&d);
    ck_assert_int_eq(umount(d.dir), 0);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_reboot");
    TCase *t = tcase_create("cache_reboot");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, a_clean_end_is_believed_after_a_reboot);
    tcase_add_test(t, what_looks_into_an_ended_cache_takes_nothing_from_it);
    tcase_add_test(t, what_was_written_after_the_end_is_not_believed);
    tcase_add_test(t, a_kill_after_a_clean_end_is_a_kill);
    tcase_add_loop_test(t, a_clean_end_is_believed_after_later_kills, 0, 2);
    tcase_add_test(t, who_only_reads_can_sync);
    tcase_add_test(t, a_synced_file_stays_so_with_another_time);
    tcase_add_test(t, a_synced_file_stays_so_in_a_later_mount);
    tcase_add_test(t, a_synced_mark_does_not_outlive_later_writes);
    tcase_add_test(t, what_was_synced_before_it_was_stored_anew_is_not_trusted);
    tcase_add_test(t, a_synced_mark_does_not_outlive_the_content);
#ifndef NDEBUG
    tcase_add_test(t, a_synced_mark_goes_before_the_time_comes_back);
#endif
    tcase_add_test(t, what_is_kept_twice_has_room);
    tcase_add_test(t, an_export_goes_on_after_a_failure);
    tcase_add_test(t, an_export_has_room_for_what_was_kept);
    tcase_add_test(t, an_export_stays_in_its_folder);
    tcase_add_test(t, a_renamed_file_keeps_its_number);
    tcase_add_test(t, a_full_disk_can_be_mounted);
    suite_add_tcase(s, t);
    return suite_run(s);
}
