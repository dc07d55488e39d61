/* cli/: files whose pages are written back before a flush, and which of them count as looked
 * at. A plain folder stands for the mount. */
#include "cli/writeback.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOBODY 65534

static char folder[32];

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
    json_t *paths = json_pack("[s, s]", first, second);
    bool is_root = geteuid() == 0;

    ck_assert_ptr_nonnull(paths);
    ck_assert(!is_root || seteuid(NOBODY) == 0);
    op_init(op, 20 * NS_PER_SEC);
    int r = writeback_files(folder, paths, op);
    ck_assert(!is_root || seteuid(0) == 0);
    json_decref(paths);
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

int main(void)
{
    Suite *s = suite_create("writeback");
    TCase *t = tcase_create("writeback");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_is_gone_has_nothing_to_write_back);
    tcase_add_test(t, what_may_not_be_opened_is_told);
    tcase_add_test(t, others_are_looked_at_all_the_same);
    suite_add_tcase(s, t);
    return suite_run(s);
}
