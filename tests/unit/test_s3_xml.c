/* backends/s3/xml.c and http/xml.c: the answers of S3 servers, right and hostile ones. */
#include "backends/http/xml.h"
#include "backends/s3/xml.h"
#include "common/mem.h"
#include "common/op.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NS   "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""
#define HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"

static int parse_list(const char *text, struct s3_page *page)
{
    return s3_xml_list(text, strlen(text), page);
}

START_TEST(a_listing)
{
    static const char text[] =
        HEAD "<ListBucketResult " NS "><Name>b</Name><Prefix>p/</Prefix>"
             "<NextContinuationToken>1/a+b==</NextContinuationToken><KeyCount>3</KeyCount>"
             "<IsTruncated>true</IsTruncated>"
             "<Contents><Key>p/a+b%2Bc%25</Key><LastModified>2026-11-21T04:06:27.999Z"
             "</LastModified><ETag>&quot;abc-2&quot;</ETag><Size>5497558138880</Size>"
             "<Owner><ID>x</ID></Owner><StorageClass>STANDARD</StorageClass></Contents>"
             "<Contents><Key>p/%01%FF</Key><Size>0</Size></Contents>"
             "<CommonPrefixes><Prefix>p/dir/</Prefix></CommonPrefixes>"
             "<EncodingType>url</EncodingType></ListBucketResult>";
    struct s3_page page;

    ck_assert_int_eq(parse_list(text, &page), 0);
    ck_assert_uint_eq(page.n_entries, 3);
    ck_assert_str_eq(page.entries[0].name, "p/a b+c%");
    ck_assert_uint_eq(page.entries[0].size, 5497558138880ULL);
    ck_assert_str_eq(page.entries[0].etag, "abc-2");
    ck_assert_int_eq(page.entries[0].mtime_ns, INT64_C(1795233987) * NS_PER_SEC);
    ck_assert_str_eq(page.entries[1].name, "p/\x01\xff");
    ck_assert(page.entries[2].is_prefix);
    ck_assert_str_eq(page.entries[2].name, "p/dir/");
    ck_assert(page.truncated);
    ck_assert_str_eq(page.token, "1/a+b==");
    s3_page_release(&page);
}
END_TEST

START_TEST(a_listing_that_is_not_encoded)
{
    struct s3_page page;

    ck_assert_int_eq(parse_list("<ListBucketResult><IsTruncated>false</IsTruncated><Contents>"
                                "<Key>a+b%2B&amp;</Key></Contents></ListBucketResult>",
                                &page),
                     0);
    ck_assert_str_eq(page.entries[0].name, "a+b%2B&");
    ck_assert(!page.truncated);
    s3_page_release(&page);
}
END_TEST

START_TEST(names_with_nul_are_dropped_and_counted)
{
    struct s3_page page;

    ck_assert_int_eq(
        parse_list("<ListBucketResult><EncodingType>url</EncodingType>"
                   "<Contents><Key>a%00b</Key></Contents><Contents><Key>a</Key></Contents>"
                   "<Contents><Key>%00</Key></Contents></ListBucketResult>",
                   &page),
        0);
    ck_assert_uint_eq(page.n_entries, 1);
    ck_assert_str_eq(page.entries[0].name, "a");
    ck_assert_uint_eq(page.unusable, 2);
    s3_page_release(&page);
}
END_TEST

static const char *const bad_listings[] = {
    "",
    "not xml",
    "<html><body>proxy login</body></html>",
    "<ListBucketResult>",
    "<ListBucketResult><Contents></ListBucketResult>",
    "<ListBucketResult><Contents></Contents></ListBucketResult>",
    "<ListBucketResult><Contents><Key>%zz</Key></Contents>"
    "<EncodingType>url</EncodingType></ListBucketResult>",
    "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
    "<ListBucketResult><Contents><Key>a</Key><Size>99999999999999999999</Size></Contents>"
    "</ListBucketResult>",
    "<ListBucketResult><Contents><Key>a</Key><ETag>a\nb</ETag></Contents></ListBucketResult>",
    "<ListBucketResult><Contents><Key>a</Key><LastModified>today</LastModified></Contents>"
    "</ListBucketResult>",
    "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
    "<!DOCTYPE x><ListBucketResult></ListBucketResult>",
    "<!DOCTYPE x [<!ENTITY a \"aaaa\">]><ListBucketResult><Contents><Key>&a;</Key></Contents>"
    "</ListBucketResult>",
    "<ListBucketResult><Contents><Key>&unknown;</Key></Contents></ListBucketResult>",
    "<a><b><c><d><e><f><g><h><i></i></h></g></f></e></d></c></b></a>",
    "<ListBucketResult/><ListBucketResult/>",
};

START_TEST(a_bad_listing)
{
    struct s3_page page;

    ck_assert_msg(parse_list(bad_listings[_i], &page) == -EPROTO, "%s", bad_listings[_i]);
}
END_TEST

/* More than any page may hold, and a text longer than any key. */
START_TEST(a_listing_out_of_bounds)
{
    auto_buf struct buf many = BUF_INIT(4 * 1024 * 1024);
    auto_buf struct buf wide = BUF_INIT(4 * 1024 * 1024);
    struct s3_page page;

    buf_adds(&many, "<ListBucketResult>");
    for (int i = 0; i <= S3_PAGE_MAX; i++)
        buf_addf(&many, "<Contents><Key>%d</Key></Contents>", i);
    buf_adds(&many, "</ListBucketResult>");
    ck_assert_int_eq(parse_list(many.data, &page), -EPROTO);
    buf_addf(&wide, "<ListBucketResult><Contents><Key>%0*d</Key></Contents></ListBucketResult>",
             XML_TEXT_MAX + 1, 1);
    ck_assert_int_eq(parse_list(wide.data, &page), -EPROTO);
}
END_TEST

START_TEST(errors)
{
    static const char text[] =
        HEAD "<Error><Code>SlowDown</Code><Message>Please reduce\n\x1fyour"
             "</Message><RequestId>7F3A</RequestId></Error>";
    static const char good[] = HEAD "<Error><Code>SlowDown</Code><Message>Please reduce\nyour"
                                    "</Message><RequestId>7F3A</RequestId>"
                                    "<Region>eu-west-1</Region></Error>";
    struct s3_error e;

    ck_assert(!s3_xml_error(text, strlen(text), &e)); /* 0x1f is no XML */
    ck_assert_str_eq(e.code, "");
    ck_assert(s3_xml_error(good, strlen(good), &e));
    ck_assert_str_eq(e.code, "SlowDown");
    ck_assert_str_eq(e.message, "Please reduce your");
    ck_assert_str_eq(e.request_id, "7F3A");
    ck_assert_str_eq(e.region, "eu-west-1");
    ck_assert(!s3_xml_error("<ListBucketResult/>", 19, &e));
    ck_assert(!s3_xml_error(NULL, 0, &e));
}
END_TEST

START_TEST(long_error_texts_are_cut)
{
    auto_buf struct buf b = BUF_INIT(1 << 20);
    struct s3_error e;

    buf_addf(&b, "<Error><Code>%0200d</Code><Message>%01000d</Message></Error>", 1, 2);
    ck_assert(s3_xml_error(b.data, b.len, &e));
    ck_assert_uint_eq(strlen(e.code), sizeof(e.code) - 1);
    ck_assert_uint_eq(strlen(e.message), sizeof(e.message) - 1);
}
END_TEST

START_TEST(parts)
{
    static const char text[] =
        HEAD "<ListPartsResult " NS "><Bucket>b</Bucket><UploadId>u</UploadId>"
             "<NextPartNumberMarker>2</NextPartNumberMarker><IsTruncated>true</IsTruncated>"
             "<Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag><Size>5</Size>"
             "<ChecksumCRC32C>AAAAAA==</ChecksumCRC32C></Part>"
             "<Part><PartNumber>2</PartNumber><ETag>\"b\"</ETag><Size>6</Size></Part>"
             "</ListPartsResult>";
    static const char numberless[] = "<ListPartsResult><Part><Size>5</Size></Part>"
                                     "</ListPartsResult>";
    struct s3_parts_page page;

    ck_assert_int_eq(s3_xml_parts(text, strlen(text), &page), 0);
    ck_assert_uint_eq(page.n_parts, 2);
    ck_assert_str_eq(page.parts[0].crc32c, "AAAAAA==");
    ck_assert_str_eq(page.parts[1].etag, "b");
    ck_assert_uint_eq(page.parts[1].size, 6);
    ck_assert(page.truncated);
    ck_assert_uint_eq(page.next, 2);
    s3_parts_page_release(&page);
    ck_assert_int_eq(s3_xml_parts(numberless, strlen(numberless), &page), -EPROTO);
    ck_assert_int_eq(s3_xml_parts("<Error/>", 8, &page), -EPROTO);
}
END_TEST

START_TEST(single_texts)
{
    static const char text[] = "<R " NS "><A>x &amp; y</A></R>";
    auto_free char *found = NULL;

    ck_assert_int_eq(xml_text(text, strlen(text), "R/A", &found), 0);
    ck_assert_str_eq(found, "x & y");
    ck_assert_int_eq(xml_text(text, strlen(text), "R/B", &found), -EPROTO);
    ck_assert_int_eq(xml_text("", 0, "R/B", &found), -EPROTO);
}
END_TEST

static int note(void *arg, const char *key, const char *code)
{
    char *text = arg;

    (void)snprintf(text + strlen(text), 100 - strlen(text), "%s=%s;", key, code);
    return 0;
}

START_TEST(delete_errors)
{
    static const char text[] = "<DeleteResult><Deleted><Key>ok</Key></Deleted>"
                               "<Error><Key>a/&lt;b</Key><Code>AccessDenied</Code></Error>"
                               "<Error><Key>c</Key><Code>InternalError</Code></Error>"
                               "</DeleteResult>";
    char seen[100] = "";

    ck_assert_int_eq(s3_xml_delete_errors(text, strlen(text), note, seen), 0);
    ck_assert_str_eq(seen, "a/<b=AccessDenied;c=InternalError;");
    ck_assert_int_eq(s3_xml_delete_errors("<Other/>", 8, note, seen), -EPROTO);
}
END_TEST

START_TEST(escaping)
{
    static const struct {
        const char *text, *out;
    } t[] = {
        {"plain", "plain"},
        {"a<b>&\"'", "a&#60;b&#62;&#38;&#34;&#39;"},
        {"tab\tline\nreturn\r", "tab&#9;line&#10;return&#13;"},
        {"\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\x01", NULL},
        {"\xff", NULL},
        {"\xc3", NULL},
        {"\xc0\x80", NULL},
        {"\xed\xa0\x80", NULL},
        {"\xf4\x90\x80\x80", NULL},
        {"\xef\xbf\xbf", NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        auto_buf struct buf b = BUF_INIT(1000);
        int r = xml_escape(&b, t[i].text);

        ck_assert_int_eq(r, t[i].out ? 0 : -EINVAL);
        if (t[i].out)
            ck_assert_str_eq(b.data, t[i].out);
    }
}
END_TEST

START_TEST(etags_and_times)
{
    char etag[STORE_ETAG_MAX];
    int64_t ns;

    ck_assert_int_eq(s3_etag_copy(etag, "\"abc\""), 0);
    ck_assert_str_eq(etag, "abc");
    ck_assert_int_eq(s3_etag_copy(etag, "abc"), 0);
    ck_assert_int_eq(s3_etag_copy(etag, "\"a\r\nx-evil: 1\""), -EPROTO);
    ck_assert_int_eq(s3_etag_copy(etag, "a\"b"), -EPROTO);
    ck_assert_int_eq(s3_etag_copy(etag, "0123456789012345678901234567890123456789"
                                        "01234567890123456789012345678901"),
                     -EPROTO);
    ck_assert_int_eq(s3_parse_time("1970-01-01T00:00:01Z", &ns), 0);
    ck_assert_int_eq(ns, NS_PER_SEC);
    ck_assert_int_eq(s3_parse_time("1970-01-01T00:00:01.123Z", &ns), 0);
    ck_assert_int_eq(ns, NS_PER_SEC);
    ck_assert_int_eq(s3_parse_time("9999-99-01T00:00:01Z", &ns), -EPROTO);
    ck_assert_int_eq(s3_parse_time("9999-01-01T00:00:01Z", &ns), -EPROTO);
    ck_assert_int_eq(s3_parse_time("1970-01-01T00:00:01", &ns), -EPROTO);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("s3_xml");
    TCase *t = tcase_create("s3_xml");

    tcase_add_test(t, a_listing);
    tcase_add_test(t, a_listing_that_is_not_encoded);
    tcase_add_test(t, names_with_nul_are_dropped_and_counted);
    tcase_add_loop_test(t, a_bad_listing, 0, ARRAY_SIZE(bad_listings));
    tcase_add_test(t, a_listing_out_of_bounds);
    tcase_add_test(t, errors);
    tcase_add_test(t, long_error_texts_are_cut);
    tcase_add_test(t, parts);
    tcase_add_test(t, single_texts);
    tcase_add_test(t, delete_errors);
    tcase_add_test(t, escaping);
    tcase_add_test(t, etags_and_times);
    suite_add_tcase(s, t);
    return suite_run(s);
}
