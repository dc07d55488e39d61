/* Keys leave no copy in memory that was given back: the heap is searched for one. */
#include "backends/auth/aws_http.h"
#include "backends/auth/aws_profile.h"
#include "backends/http/xml.h"
#include "common/mem.h"
#include "tests/lib/aws_env.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_HEAP false /* the sanitizer keeps it elsewhere, and what is freed for itself */
#else
#define OWN_HEAP true
#endif

#define LEN  64
#define FLIP 0x55

/* The secret, never whole in this program but in the texts that are parsed. */
static unsigned char flipped[LEN];
static char text[512];

static void make_text(const char *before, const char *after)
{
    size_t at = strlen(before);

    memcpy(text, before, at);
    for (size_t i = 0; i < LEN; i++) {
        flipped[i] = (unsigned char)('A' + (i * i + 5 * (i / 16)) % 26) ^ FLIP;
        text[at + i] = (char)(flipped[i] ^ FLIP);
    }
    strcpy(text + at + LEN, after);
}

/* The allocator writes over the first bytes of what it gets back: the end of the secret counts.
 */
static bool is_secret(const unsigned char *at)
{
    for (size_t i = LEN / 2; i < LEN; i++)
        if ((at[i] ^ FLIP) != flipped[i])
            return false;
    return true;
}

static size_t copies_on_heap(void)
{
    char line[256];
    size_t n = 0;
    FILE *f = fopen("/proc/self/maps", "re");

    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f)) {
        unsigned long from, to;
        if (!strstr(line, "[heap]") || sscanf(line, "%lx-%lx", &from, &to) != 2)
            continue;
        const unsigned char *at = (const unsigned char *)from;
        for (; at + LEN <= (const unsigned char *)to; at++)
            n += is_secret(at);
    }
    (void)fclose(f);
    return n;
}

static void nothing_left(void)
{
    if (OWN_HEAP)
        ck_assert_uint_eq(copies_on_heap(), 0);
}

START_TEST(the_search_finds_one)
{
    make_text("", "");
    auto_free char *copy = strdup(text);

    ck_assert_ptr_nonnull(copy);
    if (OWN_HEAP)
        ck_assert_uint_eq(copies_on_heap(), 1);
    explicit_bzero(copy, LEN);
}
END_TEST

START_TEST(keys_of_json)
{
    struct aws_keys keys;
    struct op op;

    op_init(&op, OP_FOREVER);
    make_text("{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"", "\", \"Token\": \"T\"}");
    ck_assert_int_eq(aws_keys_from_json("test", text, strlen(text), "Token", &op, &keys), 0);
    ck_assert_uint_eq(strlen(keys.secret_key), LEN);
    aws_keys_release(&keys);
    nothing_left();
}
END_TEST

START_TEST(keys_of_xml)
{
    char *secret = NULL;

    make_text("<R><A>a</A><Secret>", "</Secret><B>b</B></R>");
    ck_assert_int_eq(xml_text(text, strlen(text), "R/Secret", &secret), 0);
    ck_assert_uint_eq(strlen(secret), LEN);
    aws_free_secret(secret);
    nothing_left();
}
END_TEST

START_TEST(keys_of_a_profile)
{
    struct aws_profiles *profiles;
    struct op op;

    op_init(&op, OP_FOREVER);
    aws_clear_environment();
    make_text("[default]\naws_access_key_id = A\naws_secret_access_key = ", "\n");
    ck_assert_int_eq(aws_profiles_parse(NULL, text, NULL, &op, &profiles), 0);
    aws_profiles_free(profiles);
    nothing_left();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("secrets");
    TCase *t = tcase_create("secrets");

    tcase_add_test(t, the_search_finds_one);
    tcase_add_test(t, keys_of_json);
    tcase_add_test(t, keys_of_xml);
    tcase_add_test(t, keys_of_a_profile);
    suite_add_tcase(s, t);
    return suite_run(s);
}
