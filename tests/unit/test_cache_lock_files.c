/* cache/: NAME.del_lock_PID, the deletion lock of a program that makes such a file
 * (docs/locks.md): which file is one, who is refused what, and when it goes. */
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct routed_row rows[] = {
    {.path = "ray/**", .leaf = 0, .policy = 1},
    {.path = "**", .leaf = 1},
};

static struct routed_world w;
static struct driven *const d = &w.d;
static pid_t one, two; /* processes that do nothing */

static pid_t start_process(void)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid > 0)
        return pid;
    for (;;)
        (void)pause();
}

static void end_process(pid_t *pid)
{
    if (!*pid)
        return;
    ck_assert_int_eq(kill(*pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(*pid, NULL, 0), *pid);
    *pid = 0;
}

static void put(const char *path, const char *text)
{
    driven_put(d, path, text, strlen(text));
}

static void setup(void)
{
    one = start_process();
    two = start_process();
    driven_caller = getpid();
    routed_init(&w, rows, ARRAY_SIZE(rows), ROUTED_S3);
    w.policies[1].del_locks = 1;
    driven_mount(d);
    ck_assert_int_eq(driven_mkdir(d, "ray"), 0);
    ck_assert_int_eq(driven_mkdir(d, "ray/ckpt"), 0);
    put("ray/ckpt/model", "weights");
    ck_assert_int_eq(driven_flush(d), 0);
}

static void teardown(void)
{
    end_process(&one);
    end_process(&two);
    routed_release(&w);
}

/* The name of the lock that the process makes beside what it reads; static. */
static const char *lock_name(const char *of, pid_t pid)
{
    static char name[2][128];
    static int i;

    i = !i;
    (void)snprintf(name[i], sizeof(name[i]), "%s.del_lock_%d", of, (int)pid);
    return name[i];
}

/* As Python's open(path, "a").close(). */
static int touch_as(pid_t pid, const char *path)
{
    struct handle *h;

    driven_caller = pid;
    int r = driven_open(d, path, O_CREAT | O_WRONLY | O_APPEND, &h);
    if (r == 0)
        r = driven_close(d, h);
    driven_caller = getpid();
    return r;
}

static int unlink_as(pid_t pid, const char *path)
{
    driven_caller = pid;
    int r = driven_unlink(d, path);
    driven_caller = getpid();
    return r;
}

static bool shows(const char *path)
{
    struct stat st;

    return driven_stat(d, path, &st) == 0;
}

START_TEST(a_lock_is_listed_and_in_no_store)
{
    const char *name = lock_name("ray/ckpt", one);
    struct stat st;

    ck_assert_int_eq(touch_as(one, name), 0);
    ck_assert_int_eq(driven_stat(d, name, &st), 0);
    ck_assert(S_ISREG(st.st_mode) && st.st_nlink == 1);
    ck_assert_int_eq(driven_list(d, "ray"), 2);
    ck_assert_uint_eq(driven_listed_ino(d, "ray", path_basename(name)), st.st_ino);
    ck_assert_int_eq(driven_flush(d), 0);
    ck_assert(!routed_has(&w, 0, name));
    ck_assert_int_eq(unlink_as(one, name), 0);
    ck_assert(!shows(name));
    ck_assert_int_eq(driven_list(d, "ray"), 1);
    ck_assert_int_eq(driven_unlink(d, "ray/ckpt/model"), 0);
}
END_TEST

/* Those of another process, as with a pid of another namespace; of a route without the policy;
 * names that are nearly such a name. */
START_TEST(what_is_no_lock_is_an_ordinary_file)
{
    const char *names[] = {lock_name("ray/ckpt", two), lock_name("ckpt", one), "", "", "", ""};
    char zero[64], more[64], none[64], letters[64];

    (void)snprintf(zero, sizeof(zero), "ray/a.del_lock_0%d", (int)one);
    (void)snprintf(more, sizeof(more), "ray/a.del_lock_%d1234567890", (int)one);
    (void)snprintf(none, sizeof(none), "ray/.del_lock_%d", (int)one);
    (void)snprintf(letters, sizeof(letters), "ray/a.del_lock_%dx", (int)one);
    names[2] = zero, names[3] = more, names[4] = none, names[5] = letters;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        ck_assert_int_eq(touch_as(one, names[i]), 0);
    ck_assert_int_eq(touch_as(0, lock_name("ray/b", one)), 0); /* nobody knows who asks */
    ck_assert_int_eq(driven_unlink(d, "ray/ckpt/model"), 0);
    ck_assert_int_eq(driven_flush(d), 0);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        ck_assert(routed_has(&w, i == 1, names[i]));
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        ck_assert_int_eq(driven_unlink(d, names[i]), 0);
}
END_TEST

START_TEST(the_last_one_out_removes)
{
    ck_assert_int_eq(touch_as(one, lock_name("ray/ckpt", one)), 0);
    ck_assert_int_eq(touch_as(two, lock_name("ray/ckpt", two)), 0);
    ck_assert_int_eq(driven_list(d, "ray"), 3);
    ck_assert_int_eq(unlink_as(one, "ray/ckpt/model"), -EBUSY);
    ck_assert_int_eq(unlink_as(two, "ray/ckpt/model"), -EBUSY);
    ck_assert_int_eq(driven_unlink(d, "ray/ckpt/model"), -EBUSY);
    ck_assert_int_eq(unlink_as(two, lock_name("ray/ckpt", one)), -EBUSY); /* not its own */
    ck_assert_int_eq(unlink_as(one, lock_name("ray/ckpt", one)), 0);
    ck_assert_int_eq(unlink_as(one, "ray/ckpt/model"), -EBUSY);
    ck_assert_int_eq(unlink_as(two, "ray/ckpt/model"), 0); /* its own alone is left */
    ck_assert_int_eq(driven_flush(d), 0);
    routed_stores(&w, 0, "ray/ckpt/model", NULL);
    ck_assert_int_eq(unlink_as(two, lock_name("ray/ckpt", two)), 0);
    ck_assert_int_eq(driven_rmdir(d, "ray/ckpt"), 0);
}
END_TEST

START_TEST(two_users_of_one_process_share_the_file)
{
    const char *name = lock_name("ray/ckpt", one);
    struct handle *h;

    ck_assert_int_eq(touch_as(one, name), 0);
    ck_assert_int_eq(touch_as(one, name), 0);
    ck_assert_int_eq(touch_as(two, name), 0);                /* it is not its lock */
    ck_assert_int_eq(driven_open(d, name, O_RDONLY, &h), 0); /* nor is a look */
    ck_assert_int_eq(driven_close(d, h), 0);
    ck_assert_int_eq(unlink_as(one, name), 0);
    ck_assert(shows(name));
    ck_assert_int_eq(driven_unlink(d, "ray/ckpt/model"), -EBUSY);
    ck_assert_int_eq(unlink_as(one, name), 0);
    ck_assert(!shows(name));
    ck_assert_int_eq(unlink_as(one, name), -ENOENT);
    ck_assert_int_eq(driven_unlink(d, "ray/ckpt/model"), 0);
}
END_TEST

/* It may be reading what its child removes. */
START_TEST(a_child_of_the_process_is_another)
{
    const char *name = lock_name("ray/ckpt", getpid());

    ck_assert_int_eq(touch_as(getpid(), name), 0);
    ck_assert_int_eq(unlink_as(one, "ray/ckpt/model"), -EBUSY);
    ck_assert_int_eq(unlink_as(one, name), -EBUSY);
    ck_assert_int_eq(driven_unlink(d, "ray/ckpt/model"), 0);
    ck_assert_int_eq(driven_unlink(d, name), 0);
}
END_TEST

START_TEST(a_lock_ends_with_its_process)
{
    const char *name = lock_name("ray/ckpt", one);

    ck_assert_int_eq(touch_as(one, name), 0);
    ck_assert_int_eq(driven_unlink(d, "ray/ckpt/model"), -EBUSY);
    end_process(&one);
    ck_assert_int_eq(driven_list(d, "ray"), 1);
    ck_assert(!shows(name));
    ck_assert_int_eq(driven_unlink(d, "ray/ckpt/model"), 0);
    ck_assert_int_eq(driven_unlink(d, name), -ENOENT);
}
END_TEST

START_TEST(what_is_locked_need_not_exist_yet)
{
    ck_assert_int_eq(touch_as(one, lock_name("ray/later", one)), 0);
    ck_assert_int_eq(driven_mkdir(d, "ray/later"), 0);
    put("ray/later/part", "comes");
    ck_assert_int_eq(driven_unlink(d, "ray/later/part"), -EBUSY);
    ck_assert_int_eq(driven_rename(d, "ray/later/part", "ray/part"), -EBUSY);
    ck_assert_int_eq(driven_rename(d, "ray/later", "ray/other"), -EBUSY);
    ck_assert_int_eq(unlink_as(one, "ray/later/part"), 0);
    driven_caller = one;
    ck_assert_int_eq(driven_rmdir(d, "ray/later"), 0);
}
END_TEST

START_TEST(the_file_is_in_its_directory_s_way)
{
    const char *name = lock_name("ray/dir/ckpt", one);
    struct handle *h;

    ck_assert_int_eq(driven_mkdir(d, "ray/dir"), 0);
    ck_assert_int_eq(touch_as(one, name), 0);
    ck_assert_int_eq(driven_rmdir(d, "ray/dir"), -ENOTEMPTY);
    ck_assert_int_eq(driven_mkdir(d, "ray/new"), 0);
    ck_assert_int_eq(driven_rename(d, "ray/new", "ray/dir"), -ENOTEMPTY);
    ck_assert_int_eq(driven_rename(d, "ray/ckpt/model", name), -EBUSY);
    ck_assert_int_eq(driven_rename(d, name, "ray/x"), -EBUSY);
    ck_assert_int_eq(driven_link(d, name, "ray/x"), -EPERM);
    ck_assert_int_eq(driven_link(d, "ray/ckpt/model", name), -EEXIST);
    ck_assert_int_eq(driven_mkdir(d, name), -EEXIST);
    ck_assert_int_eq(driven_open(d, name, O_CREAT | O_EXCL | O_WRONLY, &h), -EEXIST);
    driven_caller = one;
    ck_assert_int_eq(driven_rename(d, "ray/dir", "ray/moved"), 0); /* it goes along */
    ck_assert(!shows(name) && shows(lock_name("ray/moved/ckpt", one)));
    ck_assert_int_eq(driven_unlink(d, lock_name("ray/moved/ckpt", one)), 0);
    ck_assert_int_eq(driven_rmdir(d, "ray/moved"), 0);
}
END_TEST

START_TEST(a_remount_knows_no_lock)
{
    const char *name = lock_name("ray/ckpt", one);

    ck_assert_int_eq(touch_as(one, name), 0);
    driven_unmount(d);
    driven_mount(d);
    ck_assert(!shows(name));
    ck_assert_int_eq(driven_unlink(d, "ray/ckpt/model"), 0);
    ck_assert_int_eq(driven_flush(d), 0);
    ck_assert(!routed_has(&w, 0, name));
}
END_TEST

START_TEST(a_command_reads_beside_the_locks_of_programs)
{
    struct op op;
    uint64_t id;

    ck_assert_int_eq(touch_as(one, lock_name("ray/ckpt", one)), 0);
    op_init(&op, 0);
    ck_assert_int_eq(cache_deletion_lock(d->cache, "ray", true, two, "", &op, &id), -EBUSY);
    op_init(&op, 0);
    ck_assert_int_eq(cache_deletion_lock(d->cache, "ray", false, two, "", &op, &id), 0);
    /* The one program's removal is hidden from the command. */
    ck_assert_int_eq(unlink_as(one, "ray/ckpt/model"), 0);
    (void)usleep(200000);
    routed_stores(&w, 0, "ray/ckpt/model", "weights");
    cache_deletion_unlock(d->cache, id);
    ck_assert_int_eq(driven_flush(d), 0);
    routed_stores(&w, 0, "ray/ckpt/model", NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_lock_files");
    TCase *t = tcase_create("cache_lock_files");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_lock_is_listed_and_in_no_store);
    tcase_add_test(t, what_is_no_lock_is_an_ordinary_file);
    tcase_add_test(t, the_last_one_out_removes);
    tcase_add_test(t, two_users_of_one_process_share_the_file);
    tcase_add_test(t, a_child_of_the_process_is_another);
    tcase_add_test(t, a_lock_ends_with_its_process);
    tcase_add_test(t, what_is_locked_need_not_exist_yet);
    tcase_add_test(t, the_file_is_in_its_directory_s_way);
    tcase_add_test(t, a_remount_knows_no_lock);
    tcase_add_test(t, a_command_reads_beside_the_locks_of_programs);
    suite_add_tcase(s, t);
    return suite_run(s);
}
