/* backends/s3/attrs.c: attributes to metadata and back, in s3fs's form. common/crc32c.c rides
 * along: both are what an object carries besides its bytes. */
#include "backends/s3/attrs.h"
#include "common/crc32c.h"
#include "common/mem.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* An answer whose headers are those that were written. */
static int add(void *arg, const char *name, const char *value)
{
    struct http_answer *a = arg;

    if (buf_add(&a->headers, name, strlen(name) + 1) ||
        buf_add(&a->headers, value, strlen(value) + 1))
        return -ENOMEM;
    a->n_headers++;
    return 0;
}

#define ANSWER                                                                                 \
    {                                                                                          \
        .headers = BUF_INIT(1 << 20)                                                           \
    }

static void assert_same(const struct attrs *a, const struct attrs *b)
{
    ck_assert_uint_eq(a->has, b->has);
    ck_assert_uint_eq(a->mode, b->mode);
    ck_assert_uint_eq(a->uid, b->uid);
    ck_assert_uint_eq(a->gid, b->gid);
    ck_assert_uint_eq(a->rdev, b->rdev);
    ck_assert_int_eq(a->mtime_ns, b->mtime_ns);
    ck_assert_pstr_eq(a->target, b->target);
    ck_assert_pstr_eq(a->xattrs, b->xattrs);
    ck_assert_uint_eq(a->origin, b->origin);
    ck_assert_int_eq(a->origin_ns, b->origin_ns);
}

START_TEST(there_and_back)
{
    static const struct attrs t[] = {
        {0},
        {.has = ATTR_MODE | ATTR_OWNER, .mode = S_IFREG | 06755, .uid = 0, .gid = UINT32_MAX},
        {.has = ATTR_MTIME, .mtime_ns = INT64_C(1700000000000000001)},
        {.has = ATTR_MTIME, .mtime_ns = -1},
        {.has = ATTR_MTIME, .mtime_ns = -1500000000},
        {.has = ATTR_MODE | ATTR_RDEV, .mode = S_IFCHR | 0600, .rdev = UINT64_MAX},
        {.has = ATTR_MODE | ATTR_TARGET,
         .mode = S_IFLNK | 0777,
         .target = (char *)"../a b/%41\r\nx-evil: 1\x01\xff\xc3"},
        {.has = ATTR_XATTRS, .xattrs = (char *)"{\"user.a\":\"AP8=\"}"},
        {.has = ATTR_ORIGIN, .origin = 1, .origin_ns = 0},
        {.has = ATTR_ORIGIN, .origin = UINT64_MAX, .origin_ns = INT64_MAX},
    };
    struct http_answer a = ANSWER;
    struct attrs back;

    ck_assert_int_eq(s3_attrs_write(&t[_i], add, &a), 0);
    ck_assert_int_eq(s3_attrs_read(&a, false, &back), 0);
    assert_same(&back, &t[_i]);
    attrs_release(&back);
    http_answer_release(&a);
}
END_TEST

/* What s3fs 1.9x writes, and what rclone writes. */
START_TEST(the_form_of_others)
{
    struct http_answer a = ANSWER;
    struct attrs back;

    ck_assert_int_eq(add(&a, "x-amz-meta-mode", "33188"), 0);
    ck_assert_int_eq(add(&a, "x-amz-meta-uid", "1000"), 0);
    ck_assert_int_eq(add(&a, "x-amz-meta-gid", "100"), 0);
    ck_assert_int_eq(add(&a, "x-amz-meta-mtime", "1700000000.5"), 0);
    ck_assert_int_eq(add(&a, "x-amz-meta-xattr", "%7B%22user.x%22%3A%22YQ%3D%3D%22%7D"), 0);
    ck_assert_int_eq(s3_attrs_read(&a, false, &back), 0);
    ck_assert_uint_eq(back.mode, S_IFREG | 0644);
    ck_assert_uint_eq(back.uid, 1000);
    ck_assert_int_eq(back.mtime_ns, INT64_C(1700000000500000000));
    ck_assert_str_eq(back.xattrs, "{\"user.x\":\"YQ==\"}");
    attrs_release(&back);
    http_answer_release(&a);
}
END_TEST

START_TEST(the_form_we_write)
{
    struct attrs attrs = {.has = ATTR_MODE | ATTR_MTIME,
                          .mode = S_IFREG | 0644,
                          .mtime_ns = INT64_C(1700000000000000042)};
    struct http_answer a = ANSWER;

    ck_assert_int_eq(s3_attrs_write(&attrs, add, &a), 0);
    ck_assert_str_eq(http_answer_header(&a, "x-amz-meta-mode"), "33188");
    ck_assert_str_eq(http_answer_header(&a, "x-amz-meta-mtime"), "1700000000.000000042");
    http_answer_release(&a);
}
END_TEST

START_TEST(broken_metadata_is_ignored)
{
    static const struct {
        const char *name, *value;
    } t[] = {
        {"mode", ""},
        {"mode", "-1"},
        {"mode", "0x1ff"},
        {"mode", "99999999999"},
        {"uid", "1000"}, /* no gid beside it */
        {"mtime", "now"},
        {"mtime", "-"},
        {"mtime", "1.2.3"},
        {"mtime", "99999999999999999999"},
        {"mtime", "9223372036854775807"},
        {"rdev", "1 "},
        {"symlink-target", "%zz"},
        {"symlink-target", "a%00b"},
        {"symlink-target", ""},
        {"xattr", "%"},
        {"runfs-origin", "1.1"},
        {"runfs-origin", "0123456789abcdef"},
        {"runfs-origin", "0123456789abcdef.-1"},
        {"runfs-origin", "0123456789abcdeg.1"},
        {"unknown", "1"},
    };
    struct http_answer a = ANSWER;
    struct attrs back;
    char name[64];

    (void)snprintf(name, sizeof(name), "x-amz-meta-%s", t[_i].name);
    ck_assert_int_eq(add(&a, name, t[_i].value), 0);
    ck_assert_int_eq(s3_attrs_read(&a, false, &back), 0);
    ck_assert_uint_eq(back.has, 0);
    attrs_release(&back);
    http_answer_release(&a);
}
END_TEST

/* Else it would be a set-id program of who mounts. */
START_TEST(set_id_bits_need_an_owner)
{
    static const struct {
        const char *uid, *gid;
        unsigned read;
    } t[] = {{NULL, NULL, 01755},
             {"0", NULL, 01755},
             {NULL, "0", 01755},
             {"0", "x", 01755},
             {"7", "7", 07755}};

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct http_answer a = ANSWER;
        struct attrs back;
        ck_assert_int_eq(add(&a, "x-amz-meta-mode", "36845"), 0); /* 0107755 */
        if (t[i].uid)
            ck_assert_int_eq(add(&a, "x-amz-meta-uid", t[i].uid), 0);
        if (t[i].gid)
            ck_assert_int_eq(add(&a, "x-amz-meta-gid", t[i].gid), 0);
        ck_assert_int_eq(s3_attrs_read(&a, false, &back), 0);
        ck_assert_uint_eq(back.mode, S_IFREG | t[i].read);
        attrs_release(&back);
        http_answer_release(&a);
    }
}
END_TEST

START_TEST(the_key_decides_the_type)
{
    static const struct {
        unsigned stored;
        bool is_dir;
        unsigned read;
    } t[] = {
        {S_IFDIR | 0755, false, S_IFREG | 0755}, {S_IFREG | 0644, true, S_IFDIR | 0644},
        {0644, false, S_IFREG | 0644},           {0755, true, S_IFDIR | 0755},
        {S_IFLNK | 0777, false, S_IFLNK | 0777}, {S_IFIFO | 0600, false, S_IFIFO | 0600},
        {0170000 | 0600, false, S_IFREG | 0600},
    };
    struct http_answer a = ANSWER;
    struct attrs back;
    char value[16];

    (void)snprintf(value, sizeof(value), "%u", t[_i].stored);
    ck_assert_int_eq(add(&a, "x-amz-meta-mode", value), 0);
    ck_assert_int_eq(s3_attrs_read(&a, t[_i].is_dir, &back), 0);
    ck_assert_uint_eq(back.mode, t[_i].read);
    http_answer_release(&a);
}
END_TEST

START_TEST(too_much_is_refused)
{
    auto_free char *target = malloc(100001);
    struct attrs attrs = {.has = ATTR_TARGET, .target = target};
    struct http_answer a = ANSWER;

    memset(target, ' ', 100000);
    target[100000] = '\0';
    ck_assert_int_eq(s3_attrs_write(&attrs, add, &a), -E2BIG);
    http_answer_release(&a);
}
END_TEST

START_TEST(whose_headers)
{
    ck_assert(s3_attrs_owns("x-amz-meta-mode"));
    ck_assert(s3_attrs_owns("x-amz-meta-symlink-target"));
    ck_assert(!s3_attrs_owns("x-amz-meta-model"));
}
END_TEST

/* RFC 3720, B.4. */
START_TEST(crc32c_vectors)
{
    unsigned char bytes[32];

    memset(bytes, 0, sizeof(bytes));
    ck_assert_uint_eq(crc32c(0, bytes, sizeof(bytes)), 0x8a9136aa);
    memset(bytes, 0xff, sizeof(bytes));
    ck_assert_uint_eq(crc32c(0, bytes, sizeof(bytes)), 0x62a8ab43);
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)i;
    ck_assert_uint_eq(crc32c(0, bytes, sizeof(bytes)), 0x46dd794e);
    for (size_t cut = 0; cut <= sizeof(bytes); cut++)
        ck_assert_uint_eq(crc32c(crc32c(0, bytes, cut), bytes + cut, sizeof(bytes) - cut),
                          0x46dd794e);
    ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283);
    ck_assert_uint_eq(crc32c(0, "", 0), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("s3_attrs");
    TCase *t = tcase_create("s3_attrs");

    tcase_add_loop_test(t, there_and_back, 0, 10);
    tcase_add_test(t, the_form_of_others);
    tcase_add_test(t, the_form_we_write);
    tcase_add_loop_test(t, broken_metadata_is_ignored, 0, 20);
    tcase_add_test(t, set_id_bits_need_an_owner);
    tcase_add_loop_test(t, the_key_decides_the_type, 0, 7);
    tcase_add_test(t, too_much_is_refused);
    tcase_add_test(t, whose_headers);
    tcase_add_test(t, crc32c_vectors);
    suite_add_tcase(s, t);
    return suite_run(s);
}
