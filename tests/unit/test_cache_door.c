/* cache/: nothing leads out of a cache directory: the files and the owners that others could
 * prepare. As root with other users, else alone. */
#include "cache/offline.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"
#include "tests/lib/top.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOBODY 65534

static struct op op;

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
    top_make();
    op_init(&op, OP_FOREVER);
    driven_init(&d, NULL);
    driven_mount(&d);
    driven_put(&d, "f", "content", 7);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    top_make_file("victim", "root's");
}

static void teardown_cache(void)
{
    driven_release(&d);
    top_remove();
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
    ck_assert_msg(top_mode_of("victim") == 0644, "%s", name);
    top_holds("victim", "root's");
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
    top_holds("out/program", "#!");
    ck_assert_uint_eq(top_mode_of("out/program"), 0600);
}
END_TEST

int main(void)
{
    /* Names outside a cache are linked to what is in it. */
    (void)setenv("TMPDIR", "/tmp", 0);
    Suite *s = suite_create("cache_door");
    TCase *t = tcase_create("cache");

    tcase_add_checked_fixture(t, setup_cache, teardown_cache);
    tcase_add_loop_test(t, no_file_leads_out_of_it, 0, ARRAY_SIZE(opened));
    tcase_add_test(t, a_directory_of_another_user_is_none_of_it);
    tcase_add_test(t, root_acts_on_no_cache_of_another_user);
    tcase_add_test(t, what_is_exported_has_no_set_id_bits);
    suite_add_tcase(s, t);
    return suite_run(s);
}
