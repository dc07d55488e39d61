/* cli/check_reach.c: servers that take what they must refuse, or tell late what they have. */
#include "backends/where.h"
#include "cli/check.h"
#include "common/mem.h"
#include "tests/lib/aws_env.h"
#include "tests/lib/scripted.h"
#include "tests/lib/suite.h"
#include "tests/lib/temp_dir.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XML(body)                                                                              \
    {                                                                                          \
        .text = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" body, .close = true             \
    }
#define EMPTY_LIST XML("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
#define TAKEN                                                                                  \
    {                                                                                          \
        .text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"                                     \
                "ETag: \"5d41402abc4b2a76b9719d911017c592\"\r\n\r\n"                           \
    }
#define REFUSED                                                                                \
    {                                                                                          \
        .text = "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n"                \
    }
#define REMOVED                                                                                \
    {                                                                                          \
        .text = "HTTP/1.1 204 No Content\r\n\r\n"                                              \
    }

static char dir[PATH_MAX];

static void setup(void)
{
    aws_clear_environment();
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    temp_dir_make(dir, sizeof(dir));
}

static void teardown(void)
{
    temp_dir_remove(dir);
}

static struct checked load_text(const char *text)
{
    struct config_problems problems = {0};
    char path[PATH_MAX + 16];
    struct checked checked;
    struct op op;

    (void)snprintf(path, sizeof(path), "%s/c.json", dir);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_gt(fprintf(f, "%s", text), 0);
    ck_assert_int_eq(fclose(f), 0);
    op_init(&op, OP_FOREVER);
    ck_assert_msg(check_load(path, &op, &problems, &checked) == 0, "%s", op.why);
    return checked;
}

/* `more`: behind the URL of the only store. */
static struct checked load(unsigned port, const char *more)
{
    char text[1024];

    (void)snprintf(text, sizeof(text),
                   "{\"stores\": {\"a\": {\"url\": \"s3://bkt/pre\", "
                   "\"no_sign_request\": true, "
                   "\"endpoint\": \"http://127.0.0.1:%u\"%s}",
                   port, more);
    return load_text(text);
}

/* What is said on stdout as JSON, which the caller frees. */
static json_t *reach(struct checked *c, int *ret_code)
{
    char path[PATH_MAX + 16];

    (void)snprintf(path, sizeof(path), "%s/said", dir);
    int kept = dup(STDOUT_FILENO);
    ck_assert(kept >= 0 && freopen(path, "w", stdout));
    *ret_code = check_reach(c, true);
    ck_assert_int_eq(fflush(stdout), 0);
    ck_assert_int_ge(dup2(kept, STDOUT_FILENO), 0);
    (void)close(kept);
    json_t *said = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(said);
    return said;
}

static const struct {
    struct scripted_answer script[8];
    int code;
    const char *create, *match, *list; /* "true", "false" or "null" */
    const char *error;                 /* a part of one of the reasons */
} servers[] = {
    /* takes every put, and shows nothing */
    {{EMPTY_LIST, TAKEN, TAKEN, TAKEN, EMPTY_LIST, REMOVED},
     1,
     "false",
     "false",
     "false",
     "a second one replaced the first"},
    /* keeps conditions, but its listing is late */
    {{EMPTY_LIST, TAKEN, REFUSED, REFUSED, TAKEN, EMPTY_LIST, REMOVED},
     1,
     "true",
     "true",
     "false",
     "does not have the object yet"},
    /* knows If-None-Match only */
    {{EMPTY_LIST, TAKEN, REFUSED, TAKEN, EMPTY_LIST, REMOVED},
     1,
     "true",
     "false",
     "false",
     "for another version replaced the object"},
};

static const char *word(const json_t *store, const char *field)
{
    const json_t *value = json_object_get(store, field);

    return json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null";
}

START_TEST(what_a_server_does_not_do_is_told)
{
    struct scripted *server = scripted_new(servers[_i].script, ARRAY_SIZE(servers[_i].script));
    struct checked checked = load(scripted_port(server), "}}");
    int code;
    json_t *said = reach(&checked, &code);
    const json_t *store = json_array_get(json_object_get(said, "stores"), 0);
    auto_free char *text = json_dumps(said, 0);

    ck_assert_int_eq(code, servers[_i].code);
    ck_assert(json_is_true(json_object_get(store, "reached")));
    ck_assert_str_eq(word(store, "exclusive_create"), servers[_i].create);
    ck_assert_str_eq(word(store, "if_match"), servers[_i].match);
    ck_assert_str_eq(word(store, "list_after_put"), servers[_i].list);
    ck_assert_msg(strstr(text, servers[_i].error) != NULL, "%s", text);
    ck_assert_msg(strcmp(word(store, "remove"), "true") == 0, "%s", text);
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 1), "PUT /bkt/pre.runfs/check-"));
    ck_assert_ptr_nonnull(strstr(scripted_request(server, 1), "if-none-match: *"));
    json_decref(said);
    checked_release(&checked);
    scripted_free(server);
}
END_TEST

/* What follows the store's options, in which its place for state or the whole mount is such
 * that nothing may be written there. */
static const char *const unwritten[] = {
    ", \"state_prefix\": \"off\"}}",
    "}}, \"options\": {\"ro\": true}",
};

START_TEST(where_nothing_may_be_written_only_listings_come)
{
    const struct scripted_answer script[] = {EMPTY_LIST, EMPTY_LIST};
    struct scripted *server = scripted_new(script, ARRAY_SIZE(script));
    struct checked checked = load(scripted_port(server), unwritten[_i]);
    int code;
    json_t *said = reach(&checked, &code);
    const json_t *store = json_array_get(json_object_get(said, "stores"), 0);

    ck_assert_int_eq(code, 0);
    ck_assert(json_is_true(json_object_get(store, "reached")));
    ck_assert_str_eq(word(store, "exclusive_create"), "null");
    ck_assert_str_eq(word(store, "remove"), "null");
    ck_assert_uint_eq(scripted_count(server), 2);
    for (size_t i = 0; i < 2; i++)
        ck_assert_msg(strncmp(scripted_request(server, i), "GET ", 4) == 0, "%s",
                      scripted_request(server, i));
    json_decref(said);
    checked_release(&checked);
    scripted_free(server);
}
END_TEST

/* A folder is tried where a mount stages, and memory in its state; neither keeps anything. */
START_TEST(nothing_stays_of_what_was_tried)
{
    auto_free char *folder = NULL, *beside = NULL, *text = NULL;
    int code;

    ck_assert_int_ge(asprintf(&folder, "%s/store", dir), 0);
    ck_assert_int_ge(asprintf(&beside, "%s.runfs", folder), 0);
    ck_assert_int_eq(mkdir(folder, 0755), 0);
    ck_assert_int_ge(
        asprintf(&text, "{\"stores\": {\"a\": {\"url\": \"%s\"}}}", _i ? "mem:x" : folder), 0);
    struct checked checked = load_text(text);
    json_t *said = reach(&checked, &code);
    const json_t *store = json_array_get(json_object_get(said, "stores"), 0);

    ck_assert_int_eq(code, 0);
    ck_assert_str_eq(word(store, "exclusive_create"), "true");
    ck_assert_str_eq(word(store, "list_after_put"), "true");
    ck_assert_str_eq(word(store, "remove"), "true");
    ck_assert_int_lt(access(beside, F_OK), 0);
    json_decref(said);
    checked_release(&checked);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("check_reach");
    TCase *t = tcase_create("check_reach");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, what_a_server_does_not_do_is_told, 0, ARRAY_SIZE(servers));
    tcase_add_loop_test(t, where_nothing_may_be_written_only_listings_come, 0,
                        ARRAY_SIZE(unwritten));
    tcase_add_loop_test(t, nothing_stays_of_what_was_tried, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
