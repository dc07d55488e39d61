/* backends/store.c and open.c: what the wrappers check, URLs without secrets, opening by URL.
 */
#include "backends/drivers.h"
#include "backends/layers/layers.h"
#include "backends/store.h"
#include "common/mem.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct store *open_store(const char *url)
{
    struct op op;
    struct store *s = NULL;

    op_init(&op, 20 * NS_PER_SEC);
    int r = store_open(url, NULL, &op, &s);
    ck_assert_msg(r == 0, "%s: %d %s", url, r, op.why);
    return s;
}

static int put_text(struct store *s, struct op *op, const char *key, const char *text)
{
    struct mem_source src;

    mem_source_init(&src, text, strlen(text));
    return store_put(s, op, key, NULL, &src.base, NULL, NULL);
}

/* ---- URLs ---- */

START_TEST(urls_show_no_secret)
{
    static const struct {
        const char *url, *shown;
    } t[] = {
        {"s3://bucket/prefix", "s3://bucket/prefix"},
        {"s3://AKIA:secret@bucket/p", "s3://***@bucket/p"},
        {"s3://AKIA:se/cr@et@bucket/p", "s3://***@bucket/p"},
        {"s3://user@bucket/p@q", "s3://***@bucket/p@q"},
        {"http://h:9000/a@b", "http://h:9000/a@b"},
        {"s3://b/p?region=x&secret_key=abc&Y=1", "s3://b/p?region=x&secret_key=***&Y=1"},
        {"https://h/?X-Amz-Signature=abc#f", "https://h/?X-Amz-Signature=***#f"},
        {"https://h/?token=a=b&x", "https://h/?token=***&x"},
        {"/a/b?c", "/a/b?c"},
        {"", ""},
        {"mem:", "mem:"},
        {"s3:///AKIA:secret@bucket/p", "s3:///***@bucket/p"},
        {"s3:///AKIA:se/cret@bucket/p", "s3:///***@bucket/p"},
        {"s3://AKIA:se?cr#et@bucket/p", "s3://***@bucket/p"},
        {"s3:/AKIA:secret@bucket", "s3:/***@bucket"},
        {"s3:AKIA:secret@bucket", "***@bucket"},
        {"AKIA:secret@bucket", "***@bucket"},
        {"dbfs:/Users/me@corp.example/x:y", "dbfs:/Users/me@corp.example/x:y"},
        {"file:///srv/a:b@c", "file:///srv/a:b@c"},
        {"/srv/a:b@c", "/srv/a:b@c"},
        {"mem:a:b@c", "mem:a:b@c"},
        {"user@host:9000", "user@host:9000"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        auto_free char *shown = store_url_redact(t[i].url);
        ck_assert_str_eq(shown, t[i].shown);
    }
}
END_TEST

START_TEST(wrong_urls_are_refused)
{
    static const char *const urls[] = {"", "ckpt", "ckpt/run", "hdfs:/x", "S3://b", "mem:a?b"};
    struct store *s = NULL;
    struct op op;

    for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
        op_init(&op, NS_PER_SEC);
        ck_assert_int_eq(store_open(urls[i], NULL, &op, &s), -EINVAL);
        ck_assert_msg(strstr(op.why, "expected"), "%s: %s", urls[i], op.why);
    }
    op_init(&op, NS_PER_SEC);
    ck_assert_int_eq(store_open("nfs://u:topsecret@h/x", NULL, &op, &s), -EINVAL);
    ck_assert_ptr_null(strstr(op.why, "topsecret"));
    ck_assert_ptr_nonnull(strstr(op.why, "nfs://***@h/x"));
    ck_assert_ptr_null(s);
}
END_TEST

START_TEST(unknown_options_are_refused)
{
    struct store_option option = {"endpont", "x"};
    struct store_config config = {.options = &option, .n_options = 1};
    struct store *s;
    struct op op;

    op_init(&op, NS_PER_SEC);
    ck_assert_int_eq(store_open("mem:", &config, &op, &s), -EINVAL);
    ck_assert_ptr_nonnull(strstr(op.why, "endpont"));
    ck_assert_ptr_nonnull(store_option_names());
}
END_TEST

START_TEST(named_mem_stores_are_shared)
{
    struct store *a = open_store("mem:shared"), *b = open_store("mem:shared");
    struct store *fresh = open_store("mem:");
    struct object obj;
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(put_text(a, &op, "k", "text"), 0);
    ck_assert_int_eq(store_stat(b, &op, "k", &obj), 0);
    object_release(&obj);
    ck_assert_int_eq(store_stat(fresh, &op, "k", &obj), -ENOENT);
    store_close(a);
    store_close(b);
    a = open_store("mem:shared?s3");
    ck_assert_int_eq(store_stat(a, &op, "k", &obj), 0);
    object_release(&obj);
    ck_assert_int_eq(store_rename(a, &op, "k", "l"), -EOPNOTSUPP);
    store_close(a);
    store_close(fresh);
    store_close(NULL);
}
END_TEST

/* ---- what the wrappers check ---- */

START_TEST(bad_keys_are_refused)
{
    static const char *const keys[] = {"/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b"};
    struct store *s = open_store("mem:");
    struct object obj;
    struct op op;

    op_init(&op, OP_FOREVER);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        ck_assert_int_eq(store_stat(s, &op, keys[i], &obj), -EINVAL);
        ck_assert_int_eq(put_text(s, &op, keys[i], "x"), -EINVAL);
        ck_assert_int_eq(store_remove(s, &op, &keys[i], NULL, 1, NULL), -EINVAL);
        ck_assert_int_eq(store_mkdir(s, &op, keys[i], NULL, NULL), -EINVAL);
        ck_assert_int_eq(store_rename(s, &op, "a", keys[i]), -EINVAL);
        ck_assert_ptr_nonnull(strstr(op.why, "mem:"));
    }
    store_close(s);
}
END_TEST

START_TEST(impossible_files_are_refused)
{
    struct attrs link = {.has = ATTR_MODE, .mode = S_IFLNK | 0777};
    struct attrs fifo = {.has = ATTR_MODE, .mode = S_IFIFO | 0600};
    struct store *s = open_store("mem:");
    struct mem_source src;
    struct op op;

    op_init(&op, OP_FOREVER);
    mem_source_init(&src, "", 0);
    ck_assert_int_eq(store_put(s, &op, "l", NULL, &src.base, &link, NULL), -EINVAL);
    ck_assert_int_eq(store_put(s, &op, "", NULL, &src.base, NULL, NULL), -EISDIR);
    mem_source_init(&src, "x", 1);
    ck_assert_int_eq(store_put(s, &op, "f", NULL, &src.base, &fifo, NULL), -EINVAL);
    ck_assert_int_eq(store_rename(s, &op, "a", "a/b"), -EINVAL);
    store_close(s);
}
END_TEST

/* A store that lacks nearly everything and answers what no good driver answers. */
static int poor_list(struct store *s, struct op *op, const char *prefix, unsigned flags,
                     const char *after, store_visit visit, void *arg)
{
    static const char *const names[] = {"",  "..",   "a", "b/../c",     "/",
                                        ".", "a//b", "b", STORE_NO_NAME};
    const struct object obj = {.size = 1};

    (void)s, (void)op, (void)prefix, (void)flags, (void)after;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        int r = visit(arg, names[i], &obj);
        if (r)
            return r;
    }
    return 0;
}

static ssize_t poor_read(struct store *s, struct op *op, const char *key, const char *etag,
                         struct sink *sink, size_t len, uint64_t off, struct object *ret_obj)
{
    (void)s, (void)op, (void)key, (void)etag, (void)ret_obj;
    int r = sink->write(sink, "too much", 8, off);
    return r < 0 ? r : (ssize_t)len;
}

static int poor_put(struct store *s, struct op *op, const char *key, const char *etag,
                    struct source *src, const struct attrs *attrs, struct object *ret_obj)
{
    (void)s, (void)op, (void)key, (void)etag, (void)src, (void)attrs, (void)ret_obj;
    return -EACCES;
}

static int count_names(void *arg, const char *name, const struct object *obj)
{
    (void)obj;
    ck_assert(strcmp(name, "a") == 0 || strcmp(name, "b") == 0);
    ++*(int *)arg;
    return 0;
}

START_TEST(poor_drivers_are_held_off)
{
    static const struct store_ops ops = {
        .name = "poor", .list = poor_list, .read = poor_read, .put = poor_put};
    struct store s = {.ops = &ops, .url = (char *)"poor:", .facts = {.put_max = 5}};
    struct store_stats stats;
    struct op_notes notes = {0};
    struct mem_source src;
    struct mem_sink sink;
    struct op op;
    char room[3];
    int names = 0;

    op_init(&op, OP_FOREVER);
    op.notes = &notes;
    ck_assert_int_eq(store_list(&s, &op, "", 0, count_names, &names), 0);
    ck_assert_int_eq(names, 2);
    store_get_stats(&s, &stats);
    ck_assert_uint_eq(stats.hidden_names, 7);
    ck_assert_uint_eq(notes.hidden_names, 7);
    ck_assert_int_eq(store_list(&s, &op, "", 0, count_names, &names), 0);
    ck_assert_uint_eq(notes.hidden_names, 7); /* of this listing, not of both */
    mem_sink_init(&sink, room, sizeof(room), 7);
    ck_assert_int_eq(store_read(&s, &op, "k", NULL, &sink.base, 3, 7, NULL), -EPROTO);
    mem_source_init(&src, "123456", 6);
    ck_assert_int_eq(store_put(&s, &op, "k", NULL, &src.base, NULL, NULL), -EFBIG);
    mem_source_init(&src, "1234", 4);
    ck_assert_int_eq(store_put(&s, &op, "k", "", &src.base, NULL, NULL), -EOPNOTSUPP);
    ck_assert_int_eq(store_put(&s, &op, "k", NULL, &src.base, NULL, NULL), -EACCES);
    ck_assert_str_eq(op.why, "put poor:/k: Permission denied");
    ck_assert_int_eq(store_rename(&s, &op, "a", "b"), -EOPNOTSUPP);
    ck_assert_int_eq(store_copy(&s, &op, "a", NULL, "b", NULL, NULL, NULL), -EOPNOTSUPP);
    ck_assert_int_eq(store_mkdir(&s, &op, "a", NULL, NULL), -EOPNOTSUPP);
    ck_assert_int_eq(store_upload_begin(&s, &op, "a", NULL, NULL), -EOPNOTSUPP);
}
END_TEST

/* A store made of two: what is below "b/" is in one that takes more at once. */
static void facts_of_two(struct store *s, const char *key, bool dir, struct store_facts *ret)
{
    bool b = strncmp(key, "b/", 2) == 0;

    (void)s;
    *ret = (struct store_facts){
        .caps = STORE_PARTS | (b ? STORE_RENAME | STORE_IF_MATCH : 0) | (dir ? STORE_DIRS : 0),
        .volume = b        ? 2
                  : key[0] ? 1
                           : 0,
        .part_max = b ? 5 : 1,
        .parts_max = b ? 3 : 1,
        .put_max = b ? 6 : 4,
    };
}

static int two_put(struct store *s, struct op *op, const char *key, const char *etag,
                   struct source *src, const struct attrs *attrs, struct object *ret_obj)
{
    (void)s, (void)op, (void)key, (void)etag, (void)src, (void)attrs, (void)ret_obj;
    return 0;
}

static int two_begin(struct store *s, struct op *op, const char *key, const struct attrs *attrs,
                     struct upload **ret_up)
{
    static struct upload up;

    (void)op, (void)key, (void)attrs;
    up.store = s;
    *ret_up = &up;
    return 0;
}

static int two_part(struct upload *up, struct op *op, unsigned number, struct source *src)
{
    (void)up, (void)op, (void)number, (void)src;
    return 0;
}

static void two_detach(struct upload *up)
{
    (void)up;
}

static void two_close(struct store *s)
{
    (void)s;
}

/* The wrappers, too, go by the key, and layers pass on what is below them. */
static void check_two(struct store *s)
{
    struct store_facts facts;
    struct mem_source src;
    struct upload *up;
    struct op op;

    op_init(&op, OP_FOREVER);
    store_facts(s, "b/x", &facts);
    ck_assert_uint_eq(facts.volume, 2);
    ck_assert_uint_eq(facts.parts_max, 3);
    ck_assert(store_can(s, "b/x", STORE_RENAME | STORE_PARTS));
    ck_assert(!store_can(s, "a/x", STORE_RENAME | STORE_PARTS));
    ck_assert(store_can(s, "", STORE_PARTS));
    ck_assert(store_dir_can(s, "a/x", STORE_DIRS));
    ck_assert(!store_can(s, "a/x", STORE_DIRS));
    mem_source_init(&src, "12345", 5);
    ck_assert_int_eq(store_put(s, &op, "b/x", "v", &src.base, NULL, NULL), 0);
    ck_assert_int_eq(store_put(s, &op, "a/x", "v", &src.base, NULL, NULL), -EOPNOTSUPP);
    ck_assert_int_eq(store_put(s, &op, "a/x", NULL, &src.base, NULL, NULL), -EFBIG);
    ck_assert_int_eq(store_upload_begin(s, &op, "b/x", NULL, &up), 0);
    ck_assert_int_eq(store_upload_part(up, &op, 3, &src.base), 0);
    ck_assert_int_eq(store_upload_part(up, &op, 4, &src.base), -EINVAL);
    store_upload_detach(up);
    ck_assert_int_eq(store_upload_begin(s, &op, "a/x", NULL, &up), 0);
    ck_assert_int_eq(store_upload_part(up, &op, 1, &src.base), -EFBIG);
    ck_assert_int_eq(store_upload_part(up, &op, 2, &src.base), -EINVAL);
    store_upload_detach(up);
}

START_TEST(facts_go_by_the_key)
{
    static const struct store_ops ops = {.name = "two",
                                         .facts = facts_of_two,
                                         .put = two_put,
                                         .upload_begin = two_begin,
                                         .upload_part = two_part,
                                         .upload_detach = two_detach,
                                         .close = two_close};
    struct store two = {.ops = &ops, .url = (char *)"two:"};
    struct store *s = layer_retry_new(layer_limit_new(layer_stats_new(&two), 4), NULL);

    check_two(&two);
    check_two(s);
    store_close(s);
}
END_TEST

START_TEST(mem_sink_keeps_its_bounds)
{
    struct mem_sink m;
    char room[4] = "....";

    mem_sink_init(&m, room, sizeof(room), 10);
    ck_assert_int_eq(m.base.write(&m.base, "ab", 2, 10), 0);
    ck_assert_int_eq(m.base.write(&m.base, "cd", 2, 12), 0);
    ck_assert_int_eq(m.base.write(&m.base, "x", 1, 9), -EFBIG);
    ck_assert_int_eq(m.base.write(&m.base, "xy", 2, 13), -EFBIG);
    ck_assert_int_eq(m.base.write(&m.base, "x", 1, UINT64_MAX), -EFBIG);
    ck_assert_mem_eq(room, "abcd", 4);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("store");
    TCase *t = tcase_create("store");

    tcase_add_test(t, urls_show_no_secret);
    tcase_add_test(t, wrong_urls_are_refused);
    tcase_add_test(t, unknown_options_are_refused);
    tcase_add_test(t, named_mem_stores_are_shared);
    tcase_add_test(t, bad_keys_are_refused);
    tcase_add_test(t, impossible_files_are_refused);
    tcase_add_test(t, poor_drivers_are_held_off);
    tcase_add_test(t, facts_go_by_the_key);
    tcase_add_test(t, facts_go_by_the_key);
    tcase_add_test(t, mem_sink_keeps_its_bounds);
    suite_add_tcase(s, t);
    return suite_run(s);
}
