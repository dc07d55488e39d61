/* cli/: files whose pages are written back before a flush, and which of them count as looked
 * at. A plain folder stands for the mount. */
#include "cli/writeback.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOBODY 65534

static char folder[32];
static dev_t dev; /* of the mount; 0: any */

static const char *at(const char *name)
{
    static char path[64];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void make(const char *name, mode_t mode)
{
    int fd = open(at(name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(close(fd), 0);
}

static void setup(void)
{
    (void)strcpy(folder, "/tmp/runfs-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chmod(folder, 0755), 0);
    make("open", 0644);
    make("closed", 0);
    ck_assert_int_eq(symlink("open", at("link")), 0);
    dev = 0;
}

static void teardown(void)
{
    static const char *const names[] = {"open", "closed", "link"};

    for (size_t i = 0; i < 3; i++)
        (void)unlink(at(names[i]));
    (void)rmdir(folder);
}

/* By somebody whom modes bind. */
static int write_back(const char *first, const char *second, struct op *op)
{
    auto_buf struct buf paths = BUF_INIT(WRITEBACK_MAX);
    bool is_root = geteuid() == 0;

    ck_assert_int_eq(buf_add(&paths, first, strlen(first) + 1), 0);
    ck_assert_int_eq(buf_add(&paths, second, strlen(second) + 1), 0);
    ck_assert(!is_root || seteuid(NOBODY) == 0);
    op_init(op, 20 * NS_PER_SEC);
    int r = writeback_files(folder, dev, &paths, op);
    ck_assert(!is_root || seteuid(0) == 0);
    return r;
}

START_TEST(what_is_gone_has_nothing_to_write_back)
{
    struct op op;

    ck_assert_int_eq(write_back("open", "gone", &op), 0);
}
END_TEST

/* That may be what was stored through a mapping: nobody looked. */
START_TEST(what_may_not_be_opened_is_told)
{
    struct op op;

    ck_assert_int_eq(write_back("closed", "open", &op), -EACCES);
    ck_assert_ptr_nonnull(strstr(op.why, "may not be opened"));
}
END_TEST

/* And keeps none of the others back, whose failures count more. */
START_TEST(others_are_looked_at_all_the_same)
{
    struct op op;

    ck_assert_int_eq(write_back("closed", "link", &op), -ELOOP);
}
END_TEST

START_TEST(what_covers_the_mount_is_not_taken_for_it)
{
    struct stat st;
    struct op op;

    ck_assert_int_eq(stat(folder, &st), 0);
    dev = st.st_dev;
    ck_assert_int_eq(write_back("open", "gone", &op), 0);
    dev++;
    ck_assert_int_eq(write_back("open", "gone", &op), -ENXIO);
}
END_TEST

/* As from a parent that ignores it: then there is no exit code. */
START_TEST(an_ignored_sigchld_hides_no_failure)
{
    struct op op;

    ck_assert(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    ck_assert_int_eq(write_back("open", "gone", &op), 0);
}
END_TEST

/* Beside a symlink in the way a device could be meant. */
START_TEST(no_path_leaves_the_mount)
{
    struct op op;

    ck_assert_int_eq(unlink(at("link")), 0);
    ck_assert_int_eq(symlink("/dev", at("link")), 0);
    ck_assert_int_eq(write_back("open", "link/null", &op), -ELOOP);
    ck_assert_int_eq(write_back("open", "../../dev/null", &op), -EXDEV);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("writeback");
    TCase *t = tcase_create("writeback");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_is_gone_has_nothing_to_write_back);
    tcase_add_test(t, what_may_not_be_opened_is_told);
    tcase_add_test(t, others_are_looked_at_all_the_same);
    tcase_add_test(t, what_covers_the_mount_is_not_taken_for_it);
    tcase_add_test(t, an_ignored_sigchld_hides_no_failure);
    tcase_add_test(t, no_path_leaves_the_mount);
    suite_add_tcase(s, t);
    return suite_run(s);
}
