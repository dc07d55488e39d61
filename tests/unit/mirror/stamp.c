/* cache/mirror/stamp.c: what is written to a file's extended attributes is read from them, and
 * what is damaged is no stamp. */
#include "cache/mirror/stamp.h"
#include "common/mem.h"
#include "tests/lib/temp_dir.h"
#include "tests/unit/mirror/suites.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static char dir[64];
static int fd;

static void setup(void)
{
    char path[80];

    temp_dir_make(dir, sizeof(dir));
    (void)snprintf(path, sizeof(path), "%s/file", dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
}

static void teardown(void)
{
    (void)close(fd);
    temp_dir_remove(dir);
}

/* ---- attributes ---- */

static const struct stamp_attrs attrs[] = {
    {.ino = 16, .mode = S_IFREG | 0644},
    {.ino = INT64_MAX,
     .mode = S_IFCHR | 07777,
     .uid = UINT32_MAX,
     .gid = UINT32_MAX,
     .rdev = UINT64_MAX,
     .named_seq = UINT64_MAX,
     .seq = UINT64_MAX,
     .first_seq = UINT64_MAX,
     .flags = STAMP_WRITING | STAMP_HEARSAY,
     .synced_mtime_ns = INT64_MIN,
     .synced_size = UINT64_MAX},
    {.ino = 20,
     .mode = S_IFREG,
     .flags = STAMP_BEGUN | STAMP_WHOLE,
     .whole_mtime_ns = -5,
     .whole_size = 7},
    {.ino = 20, .flags = STAMP_UNRENAMED, .made_at = UINT64_MAX},
    {.ino = 20,
     .flags = STAMP_BEGUN | STAMP_WHOLE | STAMP_UNRENAMED,
     .whole_mtime_ns = 1,
     .whole_size = 2,
     .made_at = 3},
};

START_TEST(attributes_come_back)
{
    struct stamp_attrs found;

    ck_assert_int_eq(stamp_read_attrs(fd, &found), -ENODATA);
    ck_assert_int_eq(stamp_write_attrs(fd, &attrs[_i]), 0);
    ck_assert_int_eq(stamp_read_attrs(fd, &found), 0);
    ck_assert(found.ino == attrs[_i].ino && found.mode == attrs[_i].mode);
    ck_assert(found.uid == attrs[_i].uid && found.gid == attrs[_i].gid);
    ck_assert(found.rdev == attrs[_i].rdev && found.named_seq == attrs[_i].named_seq);
    ck_assert(found.seq == attrs[_i].seq && found.first_seq == attrs[_i].first_seq);
    ck_assert(found.flags == attrs[_i].flags);
    ck_assert(found.synced_mtime_ns == attrs[_i].synced_mtime_ns);
    ck_assert(found.synced_size == attrs[_i].synced_size);
    ck_assert(found.whole_mtime_ns == attrs[_i].whole_mtime_ns);
    ck_assert(found.whole_size == attrs[_i].whole_size);
    ck_assert(found.made_at == attrs[_i].made_at);
}
END_TEST

static const char *const damaged[] = {
    "",
    "1",
    "2 10 100644 0 0 0 0 0 0 0 0 0",
    "1 10 100644 0 0 0 0 0 0 0 0",
    "1 10 100644 0 0 0 0 0 0 0 0 0 more",
    "1 10 100644 0 0 0 0 0 0 0 0 0 5",
    "1 10 100644 0 0 0 0 0 0 200 0 0",  /* whole, and not when */
    "1 10 100644 0 0 0 0 0 0 2000 0 0", /* it waits, and not where */
    "1 zz 100644 0 0 0 0 0 0 0 0 0",
};

START_TEST(damaged_attributes_are_none)
{
    struct stamp_attrs found;

    ck_assert_int_eq(stamp_parse_attrs(damaged[_i], &found), -EINVAL);
    ck_assert_int_eq(fsetxattr(fd, STAMP_ATTRS, damaged[_i], strlen(damaged[_i]), 0), 0);
    ck_assert_int_eq(stamp_read_attrs(fd, &found), -EINVAL);
    ck_assert_int_eq(fsetxattr(fd, STAMP_ATTRS, "1 10\0 100644", 12, 0), 0);
    ck_assert_int_eq(stamp_read_attrs(fd, &found), -EINVAL);
}
END_TEST

/* ---- records ---- */

/* A key as long as keys may be: its record has a hash. */
static const char *long_key(char last)
{
    static char key[1001];

    memset(key, 'k', sizeof(key) - 1);
    key[sizeof(key) - 2] = last;
    return key;
}

START_TEST(records_come_back)
{
    struct stamp_keys k = {0}, found = {0};
    bool all = false;

    ck_assert_int_eq(stamp_keys_set(&k, "a b\n%", "etag \" %", -1, 5), 0);
    ck_assert_int_eq(stamp_keys_set(&k, "sum", "", 7, 0), 0);
    k.v[1].sum = (struct checksum){CHECKSUM_CRC64NVME, UINT64_MAX};
    ck_assert_int_eq(stamp_keys_set(&k, long_key('1'), "v", 7, 1), 0);
    ck_assert_int_eq(stamp_keys_set(&k, "gone", "v", 7, 1), 0);
    stamp_keys_remove(&k, "gone");
    ck_assert_int_eq(stamp_write_keys(fd, &k, &all), 0);
    ck_assert(all);
    ck_assert_int_eq(stamp_read_keys(fd, &found), 0);
    ck_assert_uint_eq(found.n, 3);
    const struct stamp_key *r = stamp_keys_find(&found, "a b\n%");
    ck_assert(r && strcmp(r->etag, "etag \" %") == 0 && r->mtime_ns == -1 && r->size == 5);
    ck_assert_uint_eq(stamp_keys_find(&found, "sum")->sum.value, UINT64_MAX);
    ck_assert_ptr_nonnull(stamp_keys_find(&found, long_key('1')));
    ck_assert_ptr_null(stamp_keys_find(&found, long_key('2')));
    ck_assert_ptr_null(stamp_keys_find(&found, "gone"));
    stamp_keys_release(&found);
    stamp_keys_release(&k);
}
END_TEST

START_TEST(a_record_is_replaced)
{
    struct stamp_keys k = {0};

    ck_assert_int_eq(stamp_keys_set(&k, "a", "v", 1, 1), 0);
    k.v[0].sum = (struct checksum){CHECKSUM_CRC32C, 1};
    ck_assert_int_eq(stamp_keys_set(&k, "a", "w", 2, 2), 0);
    ck_assert_uint_eq(k.n, 1);
    ck_assert(strcmp(k.v[0].etag, "w") == 0 && k.v[0].sum.kind == CHECKSUM_NONE);
    stamp_keys_release(&k);
}
END_TEST

START_TEST(what_is_to_be_replaced_is_no_content)
{
    struct stamp_keys k = {0};

    ck_assert(stamp_keys_expect(&k, "a", "v") && !stamp_keys_expect(&k, "a", "v"));
    ck_assert(stamp_key_is_expected(stamp_keys_find(&k, "a")));
    ck_assert(stamp_keys_expect(&k, "a", STAMP_ANY_VERSION));
    ck_assert(stamp_keys_expect(&k, "a", NULL) && !stamp_keys_expect(&k, "a", NULL));
    ck_assert_int_eq(stamp_keys_set(&k, "a", "v", 1, 1), 0);
    ck_assert(!stamp_key_is_expected(stamp_keys_find(&k, "a")));
    ck_assert(stamp_keys_expect(&k, "a", "v")); /* the upload may change that content */
    ck_assert(k.n == 1 && stamp_key_is_expected(stamp_keys_find(&k, "a")));
    stamp_keys_release(&k);
}
END_TEST

START_TEST(as_many_records_as_there_is_room_for)
{
    struct stamp_keys k = {0}, found = {0};
    char key[128];
    bool all = true;

    for (int i = 0; i < 100; i++) {
        (void)snprintf(key, sizeof(key), "%0100d", i);
        ck_assert_int_eq(stamp_keys_set(&k, key, "v", i, 1), 0);
    }
    ck_assert_int_eq(stamp_write_keys(fd, &k, &all), 0);
    ck_assert(!all);
    ck_assert_int_le(fgetxattr(fd, STAMP_KEYS, NULL, 0), STAMP_KEYS_MAX);
    ck_assert_int_eq(stamp_read_keys(fd, &found), 0);
    ck_assert(found.n > 10 && found.n < 100);
    for (size_t i = 0; i < found.n; i++)
        ck_assert_ptr_nonnull(stamp_keys_find(&k, found.v[i].key));
    stamp_keys_release(&found);
    stamp_keys_release(&k);
}
END_TEST

/* ---- ranges ---- */

START_TEST(ranges_come_back)
{
    struct ranges r = {0}, found = {0};

    ck_assert_int_eq(stamp_write_ranges(fd, &r, false), -ENODATA); /* partial no more */
    ck_assert_int_eq(stamp_read_ranges(fd, &found), -ENODATA);
    ck_assert_int_eq(stamp_write_ranges(fd, &r, true), 0);
    ck_assert_int_eq(stamp_read_ranges(fd, &found), 0);
    ck_assert_uint_eq(found.n, 0);
    ck_assert_int_eq(ranges_add(&r, 0, 4096), 0);
    ck_assert_int_eq(ranges_add(&r, INT64_MAX - 1, INT64_MAX), 0);
    ck_assert_int_eq(stamp_write_ranges(fd, &r, false), 0);
    ck_assert_int_eq(stamp_read_ranges(fd, &found), 0);
    ck_assert(found.n == 2 && ranges_has(&found, 0, 4096));
    ck_assert(ranges_has(&found, INT64_MAX - 1, INT64_MAX));
    ranges_clear(&found);
    ranges_clear(&r);
    ck_assert_int_eq(stamp_remove_ranges(fd), 0);
    ck_assert_int_eq(stamp_read_ranges(fd, &found), -ENODATA);
}
END_TEST

/* What is left out is fetched again: nothing is added. */
START_TEST(the_smallest_ranges_are_left_out)
{
    struct ranges r = {0}, found = {0};
    const uint64_t far = UINT64_C(1) << 40;

    for (uint64_t i = 0; i < 2000; i++)
        if (ranges_add(&r, far + 10000 * i, far + 10000 * i + (i % 100 ? 1 : 8192)) < 0)
            ck_abort_msg("no memory");
    ck_assert_int_eq(ranges_add(&r, 0, far / 2), 0);
    ck_assert_int_eq(stamp_write_ranges(fd, &r, true), 0);
    ck_assert_int_eq(stamp_read_ranges(fd, &found), 0);
    ck_assert(ranges_has(&found, 0, far / 2) && found.n == 21);
    for (size_t i = 0; i < found.n; i++)
        ck_assert(ranges_has(&r, found.v[i].off, found.v[i].end));
    ranges_clear(&found);
    ranges_clear(&r);
}
END_TEST

static const char *const no_ranges[] = {"5", "5-", "7-5", "5-5", "0-5 4-9", "0-5 5", "a-b"};

START_TEST(damaged_ranges_are_none)
{
    struct ranges found = {0};

    ck_assert_int_eq(stamp_parse_ranges(no_ranges[_i], &found), -EINVAL);
    ck_assert_ptr_null(found.v);
}
END_TEST

/* ---- attributes of users ---- */

START_TEST(the_users_attributes_come_back)
{
    auto_free char *found = NULL;

    ck_assert_int_eq(stamp_read_xattrs(fd, &found), -ENODATA);
    ck_assert_int_eq(stamp_write_xattrs(fd, "{\"user.a\":\"YQ==\"}"), 0);
    ck_assert_int_eq(stamp_read_xattrs(fd, &found), 0);
    ck_assert_str_eq(found, "{\"user.a\":\"YQ==\"}");
    ck_assert_int_eq(stamp_write_xattrs(fd, NULL), 0);
    ck_assert_int_eq(stamp_write_xattrs(fd, NULL), 0);
    free(take_ptr(found));
    ck_assert_int_eq(stamp_read_xattrs(fd, &found), -ENODATA);
}
END_TEST

Suite *stamp_suite(void)
{
    Suite *s = suite_create("stamp");
    TCase *t = tcase_create("stamp");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, attributes_come_back, 0, ARRAY_SIZE(attrs));
    tcase_add_loop_test(t, damaged_attributes_are_none, 0, ARRAY_SIZE(damaged));
    tcase_add_test(t, records_come_back);
    tcase_add_test(t, a_record_is_replaced);
    tcase_add_test(t, what_is_to_be_replaced_is_no_content);
    tcase_add_test(t, as_many_records_as_there_is_room_for);
    tcase_add_test(t, ranges_come_back);
    tcase_add_test(t, the_smallest_ranges_are_left_out);
    tcase_add_loop_test(t, damaged_ranges_are_none, 0, ARRAY_SIZE(no_ranges));
    tcase_add_test(t, the_users_attributes_come_back);
    suite_add_tcase(s, t);
    return s;
}
