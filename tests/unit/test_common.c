/* common/: operations, arrays, errors, buffers, paths. */
#include "common/buf.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/op.h"
#include "common/path.h"
#include "tests/lib/cancel.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

/* ---- op ---- */

START_TEST(op_without_limits_goes_on)
{
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(op_check(&op), 0);
    ck_assert_int_eq(op_left_ns(&op), OP_FOREVER);
    ck_assert_int_eq(op_sleep(&op, NS_PER_MS), 0);
    ck_assert_str_eq(op.why, "");
}
END_TEST

START_TEST(op_deadline_ends_a_sleep)
{
    struct op op;
    int64_t start = clock_mono_ns();

    op_init(&op, 30 * NS_PER_MS);
    ck_assert_int_le(op_left_ns(&op), 30 * NS_PER_MS);
    ck_assert_int_eq(op_sleep(&op, 60 * NS_PER_SEC), -ETIMEDOUT);
    ck_assert_int_ge(clock_mono_ns() - start, 30 * NS_PER_MS);
    ck_assert_int_lt(clock_mono_ns() - start, 20 * NS_PER_SEC);
    ck_assert_int_eq(op_left_ns(&op), 0);
    ck_assert_str_ne(op.why, "");
}
END_TEST

START_TEST(op_ends_with_the_lease)
{
    atomic_llong end_ns = clock_boot_ns() + 60 * NS_PER_SEC;
    struct op op;

    op_init(&op, OP_FOREVER);
    op.lease_end_ns = &end_ns;
    ck_assert_int_eq(op_check(&op), 0);
    ck_assert_int_le(op_left_ns(&op), 60 * NS_PER_SEC);
    ck_assert_int_gt(op_left_ns(&op), 0);
    op.deadline_ns = clock_mono_ns() + NS_PER_SEC;
    ck_assert_int_le(op_left_ns(&op), NS_PER_SEC); /* what comes first */
    op.deadline_ns = OP_FOREVER;
    atomic_store(&end_ns, clock_boot_ns());
    ck_assert_int_eq(op_left_ns(&op), 0);
    ck_assert_int_eq(op_check(&op), -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(op.why, "lease"));
    op_init(&op, 60 * NS_PER_SEC);
    op.lease_end_ns = &end_ns;
    atomic_store(&end_ns, clock_boot_ns() + 30 * NS_PER_MS);
    ck_assert_int_eq(op_sleep(&op, 50 * NS_PER_SEC), -ETIMEDOUT);
}
END_TEST

START_TEST(op_cancel_ends_a_sleep)
{
    atomic_bool cancelled = false;
    struct op op;
    pthread_t t;

    op_init(&op, OP_FOREVER);
    op.cancelled = &cancelled;
    ck_assert_int_eq(pthread_create(&t, NULL, cancel_soon, &cancelled), 0);
    ck_assert_int_eq(op_sleep(&op, 60 * NS_PER_SEC), -EINTR);
    pthread_join(t, NULL);
}
END_TEST

START_TEST(op_end_keeps_the_reason)
{
    struct op op;

    op_init(&op, 0);
    ck_assert_int_eq(op_fail(&op, -EIO, "503 %s", "SlowDown"), -EIO);
    ck_assert_int_eq(op_check(&op), -ETIMEDOUT);
    ck_assert_int_eq(op_check(&op), -ETIMEDOUT);
    ck_assert_str_eq(op.why, "the time limit is over; before that: 503 SlowDown");
}
END_TEST

/* ---- arrays ---- */

START_TEST(array_grows_or_stays)
{
    uint64_t *v = NULL;
    size_t cap = 0;

    ck_assert_int_eq(array_grow(v, cap, 0), 0);
    ck_assert_ptr_null(v);
    for (size_t n = 0; n < 1000; n++) {
        ck_assert_int_eq(array_grow(v, cap, n + 1), 0);
        ck_assert_uint_gt(cap, n);
        v[n] = n;
    }
    ck_assert_uint_lt(cap, 2048);
    /* More bytes than a size_t counts. */
    ck_assert_int_eq(array_grow(v, cap, SIZE_MAX / 8 + 2), -ENOMEM);
    ck_assert_int_eq(array_grow(v, cap, SIZE_MAX), -ENOMEM);
    ck_assert_uint_lt(cap, 2048);
    for (size_t n = 0; n < 1000; n++)
        ck_assert_uint_eq(v[n], n);
    free(v);
}
END_TEST

/* ---- err ---- */

START_TEST(err_table)
{
    ck_assert(err_is_transient(-EAGAIN));
    ck_assert(err_is_transient(-EIO));
    ck_assert(err_is_transient(-EPROTO));
    ck_assert(err_is_transient(-ECONNRESET));
    ck_assert(err_is_transient(-ETIMEDOUT));
    ck_assert(!err_is_transient(0));
    ck_assert(!err_is_transient(EAGAIN)); /* a count of 11 bytes */
    ck_assert(!err_is_transient(-ENOENT));
    ck_assert(!err_is_transient(-ESTALE));
    ck_assert(!err_is_transient(-EINTR));
    ck_assert(!err_is_transient(-EACCES));
    ck_assert(!err_is_transient(-ENOSPC));
    ck_assert(err_is_network(-ETIMEDOUT) && !err_is_unreachable(-ETIMEDOUT));
    ck_assert(err_is_network(-ENETDOWN) && err_is_unreachable(-ENETDOWN));
    ck_assert(err_is_transient(-ENETDOWN));
    ck_assert(!err_is_network(-EIO) && !err_is_network(ENETDOWN));
    ck_assert(err_is_no_space(-ENOSPC));
    ck_assert(err_is_no_space(-EDQUOT));
    ck_assert(!err_is_no_space(ENOSPC));
    ck_assert(!err_is_no_space(-EIO));
    ck_assert_str_eq(err_name(-ENOENT), "ENOENT");
    ck_assert_str_eq(err_name(ESTALE), "ESTALE");
    ck_assert_str_eq(err_name(99999), "unknown error");
    ck_assert_int_eq(err_by_name("ESTALE"), ESTALE);
    ck_assert_int_eq(err_by_name("unknown error"), 0);
}
END_TEST

/* ---- buf ---- */

START_TEST(buf_grows_to_its_maximum)
{
    auto_buf struct buf b = BUF_INIT(100);
    char sixty[60];

    memset(sixty, 'x', sizeof(sixty));
    ck_assert_int_eq(buf_add(&b, sixty, sizeof(sixty)), 0);
    ck_assert_int_eq(buf_add(&b, sixty, sizeof(sixty)), -EFBIG);
    ck_assert_int_eq(buf_addf(&b, "%041d", 1), -EFBIG);
    ck_assert_uint_eq(b.len, 60);
    ck_assert_int_eq(buf_addf(&b, "%040d", 1), 0);
    ck_assert_uint_eq(b.len, 100);
    ck_assert_uint_eq(strlen(b.data), 100);
    ck_assert_int_eq(buf_addc(&b, 'x'), -EFBIG);
    ck_assert_int_eq(buf_add(&b, NULL, 0), 0);
    buf_clear(&b);
    ck_assert_str_eq(b.data, "");
    ck_assert_int_eq(buf_add(&b, "a\0b", 3), 0);
    ck_assert_mem_eq(b.data, "a\0b", 4);
}
END_TEST

START_TEST(buf_take_empties)
{
    struct buf b;

    buf_init(&b, 10);
    auto_free char *empty = buf_take(&b);
    ck_assert_str_eq(empty, "");
    ck_assert_int_eq(buf_adds(&b, "text"), 0);
    auto_free char *text = buf_take(&b);
    ck_assert_str_eq(text, "text");
    ck_assert_ptr_null(b.data);
    ck_assert_int_eq(buf_adds(&b, "0123456789"), 0); /* the maximum is kept */
    ck_assert_int_eq(buf_addc(&b, 'x'), -EFBIG);
    buf_release(&b);
}
END_TEST

/* ---- path ---- */

static char *long_name(char *buf, size_t len)
{
    memset(buf, 'n', len);
    buf[len] = '\0';
    return buf;
}

START_TEST(path_names_and_keys)
{
    static const char *const bad[] = {"/",  "/a",   "a/",   "a//b",  ".",
                                      "..", "a/..", "../a", "a/./b", "a/../b"};
    static const char *const good[] = {"",    "a",    "a/b",   "...", ".a",
                                       "..a", "a/.b", "a b\n", "é"};
    char name[300];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!path_key_ok(bad[i], 4096), "%s", bad[i]);
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        ck_assert_msg(path_key_ok(good[i], 4096), "%s", good[i]);
    ck_assert(path_key_ok(long_name(name, 255), 4096));
    ck_assert(!path_key_ok(long_name(name, 256), 4096));
    ck_assert(path_key_safe(name, 4096));
    ck_assert(!path_key_safe(name, 256));
    ck_assert(!path_key_safe("a/../b", 4096));
    ck_assert(path_key_ok("abc", 4));
    ck_assert(!path_key_ok("abc", 3));
    ck_assert(!path_name_ok("a\0b", 3));
    ck_assert(!path_name_ok("a/b", 3));
    ck_assert(!path_name_ok("", 0));
}
END_TEST

START_TEST(path_names_shown)
{
    static const struct {
        const char *dir, *name;
        size_t len;
        bool shown;
    } cases[] = {
        {"", "a", 1, true},       {"", "", 0, false},       {"", ".", 1, false},
        {"d", "..", 2, false},    {"d", "...", 3, true},    {"d", "a/b", 3, false},
        {"", "a\0b", 3, false},   {"", "\n", 1, true},      {"", "\xff\xfe", 2, true},
        {"", ".runfs", 6, false}, {"d", ".runfs", 6, true}, {"", ".runf", 5, true},
        {"", ".runfs2", 7, true}, {"", ".RUNFS", 6, true},
    };
    char name[PATH_NAME_MAX + 2], dir[PATH_KEY_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        ck_assert_msg(path_name_shown(cases[i].dir, cases[i].name, cases[i].len) ==
                          cases[i].shown,
                      "%s/%s", cases[i].dir, cases[i].name);
    ck_assert(path_name_shown("", long_name(name, 255), 255));
    ck_assert(!path_name_shown("", long_name(name, 256), 256));
    memset(dir, 'd', sizeof(dir));
    dir[PATH_KEY_MAX - 3] = '\0';
    ck_assert(path_name_shown(dir, "n", 1)); /* 4093, "/", 1: the longest key */
    ck_assert(!path_name_shown(dir, "nn", 2));
}
END_TEST

START_TEST(path_parts)
{
    static const struct {
        const char *key, *parent, *base;
    } t[] = {{"", "", ""}, {"a", "", "a"}, {"a/b", "a", "b"}, {"a/b/c", "a/b", "c"}};

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        auto_free char *parent = path_parent(t[i].key);
        auto_free char *joined = path_join(t[i].parent, t[i].base);
        ck_assert_str_eq(parent, t[i].parent);
        ck_assert_uint_eq(path_parent_len(t[i].key), strlen(t[i].parent));
        ck_assert_str_eq(path_basename(t[i].key), t[i].base);
        ck_assert_str_eq(joined, t[i].key);
    }
    ck_assert_str_eq(path_below("", "a/b"), "a/b");
    ck_assert_str_eq(path_below("a", "a/b"), "b");
    ck_assert_str_eq(path_below("a/b", "a/b"), "");
    ck_assert_ptr_null(path_below("a", "ab"));
    ck_assert_ptr_null(path_below("a/b", "a"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("common");
    TCase *t = tcase_create("common");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, op_without_limits_goes_on);
    tcase_add_test(t, op_deadline_ends_a_sleep);
    tcase_add_test(t, op_ends_with_the_lease);
    tcase_add_test(t, op_cancel_ends_a_sleep);
    tcase_add_test(t, op_end_keeps_the_reason);
    tcase_add_test(t, array_grows_or_stays);
    tcase_add_test(t, err_table);
    tcase_add_test(t, buf_grows_to_its_maximum);
    tcase_add_test(t, buf_take_empties);
    tcase_add_test(t, path_names_and_keys);
    tcase_add_test(t, path_names_shown);
    tcase_add_test(t, path_parts);
    suite_add_tcase(s, t);
    return suite_run(s);
}
