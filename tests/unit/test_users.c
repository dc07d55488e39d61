/* cli/: which processes use a mount, by a /proc that is made up: a fifo stands for a file of a
 * process that is stuck in the kernel, as who opens it waits. No real process, as this one is,
 * has numbers as large as these. */
#include "cli/users.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FIRST   9000001
#define LAST    9000039
#define MAPPING "55d0-55d1 r-xp 00000000 00:63 1234 /mnt/x\n"
#define ANOTHER "55d0-55d1 r-xp 00000000 fd:01 1234 /lib/x\n"

static char root[32];
static struct mount_users users;

static const char *at(int pid, const char *name)
{
    static char path[64];

    (void)snprintf(path, sizeof(path), "%s/%d/%s", root, pid, name);
    return path;
}

static void text(int pid, const char *name, const char *content)
{
    int fd = open(at(pid, name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, content, strlen(content)), (ssize_t)strlen(content));
    ck_assert_int_eq(close(fd), 0);
}

/* `maps` NULL: it is never answered. */
static void process(int pid, char state, const char *maps)
{
    char stat[64];

    (void)snprintf(stat, sizeof(stat), "%d (a) S) %c 1 1", pid, state);
    ck_assert_int_eq(mkdir(at(pid, ""), 0700), 0);
    text(pid, "comm", "a) S\n");
    text(pid, "stat", stat);
    if (maps)
        text(pid, "maps", maps);
    else
        ck_assert_int_eq(mkfifo(at(pid, "maps"), 0600), 0);
}

static void find(int patience_ms)
{
    mount_users_find(root, makedev(0, 0x63), patience_ms, &users);
}

static void setup(void)
{
    (void)strcpy(root, "/tmp/runfs-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void teardown(void)
{
    static const char *const names[] = {"comm", "stat", "maps", ""};

    mount_users_release(&users);
    for (int pid = FIRST; pid <= LAST; pid++)
        for (size_t i = 0; i < 4; i++)
            (void)remove(at(pid, names[i]));
    (void)rmdir(root);
}

START_TEST(who_mapped_a_file_is_found)
{
    process(9000011, 'S', ANOTHER);
    process(9000012, 'S', ANOTHER MAPPING);
    find(60000);
    ck_assert_uint_eq(users.count, 1);
    ck_assert_str_eq(users.names.data, "9000012 (a) S)");
    ck_assert_uint_eq(users.passed_over, 0);
}
END_TEST

/* Without a look at its mappings, as patience would not be enough for the test's own. */
START_TEST(who_waits_in_the_kernel_is_passed_over)
{
    process(9000011, 'D', NULL);
    process(9000012, 'S', MAPPING);
    find(60000);
    ck_assert_str_eq(users.names.data, "9000012 (a) S)");
    ck_assert_uint_eq(users.passed_over, 1);
    ck_assert_str_eq(users.passed_names.data, "9000011 (a) S)");
    ck_assert_uint_eq(users.stuck, 0);
}
END_TEST

/* It does not look stuck, and keeps who asks. */
START_TEST(who_does_not_answer_is_passed_over)
{
    process(9000011, 'S', MAPPING);
    process(9000012, 'S', NULL);
    process(9000013, 'S', MAPPING);
    process(9000014, 'S', NULL);
    process(9000015, 'S', MAPPING);
    find(1000);
    ck_assert_uint_eq(users.count, 3);
    ck_assert_uint_eq(users.stuck, 2);
    ck_assert_uint_eq(users.passed_over, 2);
    ck_assert_ptr_nonnull(strstr(users.passed_names.data, "9000012 (a) S)"));
    ck_assert_ptr_nonnull(strstr(users.passed_names.data, "9000014 (a) S)"));
}
END_TEST

/* However many are stuck, five are waited for. */
START_TEST(the_look_is_bounded)
{
    for (int pid = FIRST; pid <= LAST; pid++)
        process(pid, 'S', NULL);
    find(20);
    ck_assert_uint_eq(users.count, 0);
    ck_assert_uint_eq(users.stuck, 5);
    ck_assert_uint_eq(users.passed_over, LAST - FIRST + 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("users");
    TCase *t = tcase_create("users");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, who_mapped_a_file_is_found);
    tcase_add_test(t, who_waits_in_the_kernel_is_passed_over);
    tcase_add_test(t, who_does_not_answer_is_passed_over);
    tcase_add_test(t, the_look_is_bounded);
    suite_add_tcase(s, t);
    return suite_run(s);
}
