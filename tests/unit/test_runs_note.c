/* Notes, seals and leases: how the objects are called, and what is in them. */
#include "common/mem.h"
#include "common/op.h"
#include "runs/note.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OF_NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define OF_ABC     "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define C          "0123456789abcdef"
#define ID         "fedcba9876543210"

/* ---- names ---- */

static void must_be(char *key, const char *want)
{
    ck_assert_ptr_nonnull(key);
    ck_assert_str_eq(key, want);
    free(key);
}

START_TEST(keys_are_made_of_hash_name_and_ids)
{
    must_be(note_parent_key(""), "units/" OF_NOTHING);
    must_be(note_parent_key("abc"), "units/" OF_ABC);
    must_be(note_unit_key("abc", "step-1"), "units/" OF_ABC "/step-1");
    must_be(seal_parent_key("abc"), "whole/" OF_ABC);
    must_be(seal_key("abc", "a b", C), "whole/" OF_ABC "/a%20b/" C);
    must_be(note_lease_key(C), "nodes/" C);
    must_be(note_key("units/P/U", NOTE_OPEN, C, ID), "units/P/U/open~" C "~" ID);
    must_be(note_key("units/P/U", NOTE_LAST, C, ID), "units/P/U/last~" C "~" ID);
    must_be(note_key("units/P/U", NOTE_TAKE, C, ID), "units/P/U/take~" C "~" ID);
    must_be(note_key("units/P/U", NOTE_GONE, C, ID), "units/P/U/gone~" C "~" ID);
    must_be(note_key("units/P/U", NOTE_LOCK, C, ID), "units/P/U/lock~" C "~" ID);
}
END_TEST

START_TEST(an_id_is_the_beginning_of_a_hash)
{
    char id[NOTE_ID_SIZE];

    ck_assert_int_eq(note_id("abc", id), 0);
    ck_assert_str_eq(id, "ba7816bf8f01cfea");
    ck_assert(note_is_id(id));
}
END_TEST

static const struct {
    const char *name, *unit;
} units[] = {
    {"step-100", "step-100"},
    {"a_B.9-", "a_B.9-"},
    {"a b", "a%20b"},
    {"a%20b", "a%2520b"},
    {"a~b", "a%7Eb"},
    {"~", "%7E"},
    {"", "~"}, /* the root of a bucket or folder */
    {"epoch=3", "epoch%3D3"},
    {"\xc3\xa9\x01", "%C3%A9%01"},
    {".", "%2E"}, /* components that mean something else */
    {"..", "%2E%2E"},
    {"...", "..."},
};

START_TEST(a_name_is_spelled)
{
    char unit[NOTE_UNIT_SIZE], below[300];
    struct note n;

    ck_assert_int_eq(note_unit_part(units[_i].name, unit), 0);
    ck_assert_str_eq(unit, units[_i].unit);
    (void)snprintf(below, sizeof(below), "%s/take~" C "~" ID, unit);
    ck_assert(note_parse(below, &n));
    ck_assert_str_eq(n.unit, unit);
}
END_TEST

/* `n` times the text; spelled that is `len` bytes. */
static const struct {
    const char *text;
    size_t n, len;
} longs[] = {{"a", 200, 200}, {"a", 201, 65}, {"=", 66, 198}, {"=", 67, 65}, {"a", 5000, 65}};

START_TEST(a_long_name_is_hashed)
{
    char name[6000] = "", unit[NOTE_UNIT_SIZE], other[NOTE_UNIT_SIZE];
    auto_free char *key = NULL;
    struct note n;

    for (size_t i = 0; i < longs[_i].n; i++)
        strcat(name, longs[_i].text);
    ck_assert_int_eq(note_unit_part(name, unit), 0);
    ck_assert_uint_eq(strlen(unit), longs[_i].len);
    ck_assert_int_eq(unit[0] == '~', longs[_i].len == 65);
    key = seal_key("abc", name, C);
    ck_assert(seal_parse(key + strlen("whole/" OF_ABC "/"), &n));
    ck_assert_str_eq(n.unit, unit);
    name[0] = 'b';
    ck_assert_int_eq(note_unit_part(name, other), 0);
    ck_assert_str_ne(unit, other);
}
END_TEST

START_TEST(a_note_is_known_by_its_name)
{
    struct note n;

    ck_assert(note_parse("last~" C "~" ID, &n));
    ck_assert_int_eq(n.kind, NOTE_LAST);
    ck_assert_str_eq(n.unit, "");
    ck_assert_str_eq(n.cache_id, C);
    ck_assert_str_eq(n.id, ID);
    for (enum note_kind k = 0; k < NOTE_KINDS; k++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "%s~" C "~" ID, note_kind_word(k));
        ck_assert(note_parse(name, &n) && n.kind == k);
    }
    ck_assert(seal_parse("a%20b/" C, &n));
    ck_assert_str_eq(n.unit, "a%20b");
    ck_assert_str_eq(n.cache_id, C);
    ck_assert(seal_parse(C, &n));
    ck_assert(note_is_parent(OF_ABC));
}
END_TEST

static const char *const no_notes[] = {
    "",
    "/",
    "open",
    "open~",
    "open~~",
    "open~" C,
    "open~" C "~",
    "open~" C "~" ID "~",
    "open~" C "~" ID "/",
    "open~" C "~" ID "0",
    "open~" C "0~" ID,
    "open~" C "~fedcba987654321",
    "open~0123456789ABCDEF~" ID,
    "open~../../../../../~" ID,
    "opens~" C "~" ID,
    "Open~" C "~" ID,
    "seal~" C "~" ID,
    "~" C "~" ID,
    "/open~" C "~" ID,
    "./open~" C "~" ID,
    "../open~" C "~" ID,
    "a/b/open~" C "~" ID,
    "a b/open~" C "~" ID,
    "a%/open~" C "~" ID,
    "a%2/open~" C "~" ID,
    "a%2f/open~" C "~" ID,
    "a%2F/open~" C "~" ID, /* no name has a "/" */
    "a%00/open~" C "~" ID,
    "a%3d/open~" C "~" ID, /* it is spelled %3D */
    "%61/open~" C "~" ID,  /* and this one a */
    "a%2E/open~" C "~" ID,
    "%2E%2E%2E/open~" C "~" ID,
    "~0/open~" C "~" ID,
    "~" OF_ABC "0/open~" C "~" ID,
    "a~" OF_ABC "/open~" C "~" ID,
};

START_TEST(what_runfs_does_not_write_is_no_note)
{
    struct note n;

    ck_assert(!note_parse(no_notes[_i], &n));
}
END_TEST

START_TEST(what_runfs_does_not_write_is_no_seal)
{
    char long_name[400];
    struct note n;

    ck_assert(!seal_parse("", &n));
    ck_assert(!seal_parse("a/", &n));
    ck_assert(!seal_parse("a/b/" C, &n));
    ck_assert(!seal_parse(C "~", &n));
    ck_assert(!seal_parse("a/" C "0", &n));
    memset(long_name, 'a', sizeof(long_name));
    (void)snprintf(long_name + 201, sizeof(long_name) - 201, "/" C);
    ck_assert(!seal_parse(long_name, &n));
    ck_assert(seal_parse(long_name + 1, &n));
    ck_assert(!note_is_parent(OF_ABC "0"));
    ck_assert(
        !note_is_parent("BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    ck_assert(!note_is_id(""));
}
END_TEST

/* ---- what is in them ---- */

START_TEST(a_note_says_who_and_when)
{
    const struct note_body b = {
        .node = (char *)"node-7", .since_s = 1700000000, .attempt = (char *)"slurm 12.0"};
    auto_free char *text = note_encode(&b);
    struct note_body back;

    must_be(note_encode(&b),
            "{\"node\":\"node-7\",\"since\":1700000000,\"attempt\":\"slurm 12.0\"}");
    ck_assert_int_eq(note_decode(text, strlen(text), &back), 0);
    ck_assert_str_eq(back.node, "node-7");
    ck_assert_int_eq(back.since_s, 1700000000);
    ck_assert_str_eq(back.attempt, "slurm 12.0");
    ck_assert_ptr_null(back.tail.name);
    note_body_release(&back);
}
END_TEST

START_TEST(a_note_of_a_removal_names_the_tail)
{
    const struct note_body b = {.node = (char *)"n",
                                .attempt = (char *)"",
                                .tail = {(char *)"a\xff/50%\n", "\"e-2\"", -1}};
    auto_free char *text = note_encode(&b);
    struct note_body back;

    must_be(note_encode(&b),
            "{\"node\":\"n\",\"since\":0,\"attempt\":\"\",\"tail\":{\"name\":\"a%FF/"
            "50%25%0A\",\"etag\":\"\\\"e-2\\\"\",\"mtime_ns\":-1}}");
    ck_assert_int_eq(note_decode(text, strlen(text), &back), 0);
    ck_assert_str_eq(back.tail.name, "a\xff/50%\n");
    ck_assert_str_eq(back.tail.etag, "\"e-2\"");
    ck_assert_int_eq(back.tail.mtime_ns, -1);
    note_body_release(&back);
}
END_TEST

START_TEST(a_lease_says_how_long_it_lasts)
{
    const struct lease_body b = {
        .node = (char *)"n", .session = ID, .ttl_ns = 20 * NS_PER_MS + 1, .beat = INT64_MAX};
    auto_free char *text = lease_encode(&b);
    struct lease_body back;

    must_be(lease_encode(&b),
            "{\"node\":\"n\",\"session\":\"" ID "\",\"ttl\":21,\"beat\":9223372036854775807}");
    ck_assert_int_eq(lease_decode(text, strlen(text), &back), 0);
    ck_assert_str_eq(back.node, "n");
    ck_assert_str_eq(back.session, ID);
    ck_assert_int_eq(back.ttl_ns, 21 * NS_PER_MS);
    ck_assert_uint_eq(back.beat, INT64_MAX);
    lease_body_release(&back);
}
END_TEST

START_TEST(a_seal_says_how_and_names_the_tail)
{
    static const char *const words[] = {"declared", "assumed", "cut"};
    const struct seal_body b = {.how = (enum seal_how)_i,
                                .attempt = (char *)"a",
                                .files = 3,
                                .tail = {(char *)"_SUCCESS", "e", 5}};
    auto_free char *text = seal_encode(&b);
    struct seal_body back;
    char want[200];

    (void)snprintf(want, sizeof(want),
                   "{\"how\":\"%s\",\"attempt\":\"a\",\"files\":3,\"tail\":{\"name\":"
                   "\"_SUCCESS\",\"etag\":\"e\",\"mtime_ns\":5}}",
                   words[_i]);
    must_be(seal_encode(&b), want);
    ck_assert_str_eq(seal_how_word(b.how), words[_i]);
    ck_assert_int_eq(seal_decode(text, strlen(text), &back), 0);
    ck_assert_int_eq(back.how, b.how);
    ck_assert_str_eq(back.attempt, "a");
    ck_assert_uint_eq(back.files, 3);
    ck_assert_str_eq(back.tail.name, "_SUCCESS");
    ck_assert_str_eq(back.tail.etag, "e");
    ck_assert_int_eq(back.tail.mtime_ns, 5);
    seal_body_release(&back);
}
END_TEST

START_TEST(the_longest_fits)
{
    char name[4096], node[NOTE_NODE_MAX + 1], attempt[NOTE_ATTEMPT_MAX + 1];
    struct note_body b = {.node = node, .attempt = attempt, .tail.name = name};
    struct note_body back;

    memset(name, '\xff', sizeof(name) - 1);
    memset(node, '\xff', sizeof(node) - 1);
    memset(attempt, '\xff', sizeof(attempt) - 1);
    name[sizeof(name) - 1] = node[sizeof(node) - 1] = attempt[sizeof(attempt) - 1] = '\0';
    auto_free char *text = note_encode(&b);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_le(strlen(text), NOTE_BODY_MAX);
    ck_assert_int_eq(note_decode(text, strlen(text), &back), 0);
    ck_assert_str_eq(back.tail.name, name);
    note_body_release(&back);
}
END_TEST

static int decode_note(const char *text, size_t len)
{
    struct note_body b = {0};
    int r = note_decode(text, len, &b);

    note_body_release(&b);
    return r;
}

static int decode_lease(const char *text, size_t len)
{
    struct lease_body b = {0};
    int r = lease_decode(text, len, &b);

    lease_body_release(&b);
    return r;
}

static int decode_seal(const char *text, size_t len)
{
    struct seal_body b = {0};
    int r = seal_decode(text, len, &b);

    seal_body_release(&b);
    return r;
}

#define TAIL "{\"name\":\"a\",\"etag\":\"e\",\"mtime_ns\":5}"

static const struct {
    int (*decode)(const char *text, size_t len);
    int result;
    const char *text;
} bodies[] = {
    {decode_note, 0, "{\"node\":\"\",\"since\":1,\"attempt\":\"\"}"},
    {decode_note, 0, " {\"node\":\"n\",\"x\":[{}],\"since\":1,\"attempt\":\"\",\"y\":null}\n"},
    {decode_note, 0, "{\"node\":\"n\",\"since\":1,\"attempt\":\"\",\"tail\":" TAIL "}"},
    {decode_note, -EBADMSG, ""},
    {decode_note, -EBADMSG, "null"},
    {decode_note, -EBADMSG, "[]"},
    {decode_note, -EBADMSG, "{}"},
    {decode_note, -EBADMSG, "{\"node\":\"n\",\"since\":1,\"attempt\":\"\"} x"},
    {decode_note, -EBADMSG, "{\"node\":\"n\",\"since\":1}"},
    {decode_note, -EBADMSG, "{\"node\":1,\"since\":1,\"attempt\":\"\"}"},
    {decode_note, -EBADMSG, "{\"node\":\"n\",\"since\":\"1\",\"attempt\":\"\"}"},
    {decode_note, -EBADMSG, "{\"node\":\"n\",\"since\":1.0,\"attempt\":\"\"}"},
    {decode_note, -EBADMSG, "{\"node\":\"n\",\"since\":99999999999999999999,\"attempt\":\"\"}"},
    {decode_note, -EBADMSG, "{\"node\":\"n\",\"node\":\"n\",\"since\":1,\"attempt\":\"\"}"},
    {decode_note, -EBADMSG, "{\"node\":\"n%\",\"since\":1,\"attempt\":\"\"}"},
    {decode_note, -EBADMSG, "{\"node\":\"n%0\",\"since\":1,\"attempt\":\"\"}"},
    {decode_note, -EBADMSG, "{\"node\":\"n%00\",\"since\":1,\"attempt\":\"\"}"},
    {decode_note, -EBADMSG, "{\"node\":\"n\\u0000\",\"since\":1,\"attempt\":\"\"}"},
    {decode_note, -EBADMSG, "{\"node\":\"n\",\"since\":1,\"attempt\":\"\",\"tail\":null}"},
    {decode_note, -EBADMSG, "{\"node\":\"n\",\"since\":1,\"attempt\":\"\",\"tail\":{}}"},
    {decode_lease, 0, "{\"node\":\"n\",\"session\":\"" ID "\",\"ttl\":1,\"beat\":0}"},
    {decode_lease, -EBADMSG, "{\"node\":\"n\",\"session\":\"x\",\"ttl\":1,\"beat\":0}"},
    {decode_lease, -EBADMSG, "{\"node\":\"n\",\"session\":\"" ID "0\",\"ttl\":1,\"beat\":0}"},
    {decode_lease, -EBADMSG, "{\"node\":\"n\",\"session\":\"" ID "\",\"ttl\":0,\"beat\":0}"},
    {decode_lease, -EBADMSG, "{\"node\":\"n\",\"session\":\"" ID "\",\"ttl\":1,\"beat\":-1}"},
    {decode_lease, -EBADMSG,
     "{\"node\":\"n\",\"session\":\"" ID "\",\"ttl\":9223372036855,\"beat\":0}"},
    {decode_lease, 0,
     "{\"node\":\"n\",\"session\":\"" ID "\",\"ttl\":9223372036854,\"beat\":0}"},
    {decode_seal, 0, "{\"how\":\"cut\",\"attempt\":\"\",\"files\":0,\"tail\":" TAIL "}"},
    {decode_seal, -EBADMSG, "{\"how\":\"cut\",\"attempt\":\"\",\"files\":0}"},
    {decode_seal, -EBADMSG, "{\"how\":\"x\",\"attempt\":\"\",\"files\":0,\"tail\":" TAIL "}"},
    {decode_seal, -EBADMSG, "{\"how\":0,\"attempt\":\"\",\"files\":0,\"tail\":" TAIL "}"},
    {decode_seal, -EBADMSG,
     "{\"how\":\"cut\",\"attempt\":\"\",\"files\":-1,\"tail\":" TAIL "}"},
    {decode_seal, -EBADMSG, "{\"how\":\"cut\",\"attempt\":\"\",\"files\":1,\"tail\":\"a\"}"},
    {decode_seal, -EBADMSG,
     "{\"how\":\"cut\",\"attempt\":\"\",\"files\":1,\"tail\":{\"name\":\"a\",\"etag\":"
     "\"012345678"
     "901234567890123456789012345678901234567890123456789012345678901\",\"mtime_ns\":1}}"},
};

START_TEST(a_body_is_read_or_refused)
{
    ck_assert_int_eq(bodies[_i].decode(bodies[_i].text, strlen(bodies[_i].text)),
                     bodies[_i].result);
}
END_TEST

START_TEST(a_longer_body_says_nothing)
{
    auto_free char *text = malloc(NOTE_BODY_MAX + 2);

    ck_assert_ptr_nonnull(text);
    memset(text, ' ', NOTE_BODY_MAX + 2);
    memcpy(text, bodies[0].text, strlen(bodies[0].text));
    ck_assert_int_eq(decode_note(text, NOTE_BODY_MAX), 0);
    ck_assert_int_eq(decode_note(text, NOTE_BODY_MAX + 1), -EBADMSG);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("runs_note");
    TCase *t = tcase_create("runs_note");

    tcase_add_test(t, keys_are_made_of_hash_name_and_ids);
    tcase_add_test(t, an_id_is_the_beginning_of_a_hash);
    tcase_add_loop_test(t, a_name_is_spelled, 0, ARRAY_SIZE(units));
    tcase_add_loop_test(t, a_long_name_is_hashed, 0, ARRAY_SIZE(longs));
    tcase_add_test(t, a_note_is_known_by_its_name);
    tcase_add_loop_test(t, what_runfs_does_not_write_is_no_note, 0, ARRAY_SIZE(no_notes));
    tcase_add_test(t, what_runfs_does_not_write_is_no_seal);
    tcase_add_test(t, a_note_says_who_and_when);
    tcase_add_test(t, a_note_of_a_removal_names_the_tail);
    tcase_add_test(t, a_lease_says_how_long_it_lasts);
    tcase_add_loop_test(t, a_seal_says_how_and_names_the_tail, SEAL_DECLARED, SEAL_CUT + 1);
    tcase_add_test(t, the_longest_fits);
    tcase_add_loop_test(t, a_body_is_read_or_refused, 0, ARRAY_SIZE(bodies));
    tcase_add_test(t, a_longer_body_says_nothing);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
