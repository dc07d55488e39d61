/* The contract over a real S3 server (tests/servers/with_s3.sh starts one), and what only such
 * a server can be asked: wrong buckets and keys, every byte in a name, what others see. */
#include "tests/contract/contract.c"

#include "backends/drivers.h"
#include "backends/s3/s3.h"
#include "tests/lib/notes_story.h"
#include "tests/lib/suite.h"

#include <fcntl.h>
#include <unistd.h>

#define SKIPPED 77

static struct store *open_driver(const struct contract_fixture *f)
{
    struct store *s = NULL;
    struct op op;

    (void)f;
    op_init(&op, PATIENCE);
    int r = s3_store_new(getenv("RUNFS_TEST_S3_URL"), NULL, &op, &s);
    ck_assert_msg(r == 0, "%d %s", r, op.why);
    return s;
}

static struct store *open_url(const struct contract_fixture *f)
{
    struct store *s = NULL;
    struct op op;

    (void)f;
    op_init(&op, PATIENCE);
    int r = store_open(getenv("RUNFS_TEST_S3_URL"), NULL, &op, &s);
    ck_assert_msg(r == 0, "%d %s", r, op.why);
    return s;
}

/* The bucket in the host name; *.localhost leads to the loopback. */
static struct store *open_virtual_host(const struct contract_fixture *f)
{
    char endpoint[64];
    const struct store_option options[] = {{"path_style", "false"}, {"endpoint", endpoint}};
    struct store_config config = {.options = options, .n_options = 2};
    struct store *s = NULL;
    struct op op;

    (void)f;
    (void)snprintf(endpoint, sizeof(endpoint), "http://localhost%s",
                   strrchr(getenv("RUNFS_TEST_S3_ENDPOINT"), ':'));
    op_init(&op, PATIENCE);
    int r = s3_store_new(getenv("RUNFS_TEST_S3_URL"), &config, &op, &s);
    ck_assert_msg(r == 0, "%d %s", r, op.why);
    return s;
}

static const struct contract_fixture fixtures[] = {
    {"s3", open_driver, .page_names = 1100, .any_name = true, .removal_bars = true},
    {"s3, virtual host", open_virtual_host, .page_names = 1100, .any_name = true,
     .removal_bars = true},
    {"s3, all layers", open_url, .page_names = 1100, .any_name = true, .removal_bars = true},
};

/* ---- what only S3 can be asked ---- */

static int open_with(const char *url, const char *name, const char *value, struct op *op)
{
    const struct store_option option = {name, value};
    struct store_config config = {.options = &option, .n_options = name ? 1 : 0};
    struct store *s = NULL;
    struct object obj;
    int r;

    op_init(op, PATIENCE);
    r = s3_store_new(url, &config, op, &s);
    if (r)
        return r;
    r = store_stat(s, op, "", &obj);
    if (!r)
        object_release(&obj);
    store_close(s);
    return r;
}

START_TEST(a_missing_bucket_is_told)
{
    struct op op;

    ck_assert_int_eq(open_with("s3://no-such-bucket-here/x", NULL, NULL, &op), -ENXIO);
    ck_assert_ptr_nonnull(strstr(op.why, "no-such-bucket-here"));
    ck_assert_ptr_nonnull(strstr(op.why, "NoSuchBucket"));
}
END_TEST

START_TEST(wrong_keys_are_told)
{
    const char *url = getenv("RUNFS_TEST_S3_URL");
    auto_free char *secret = strdup(getenv("AWS_SECRET_ACCESS_KEY"));
    auto_free char *access = strdup(getenv("AWS_ACCESS_KEY_ID"));
    struct op op;

    setenv("AWS_SECRET_ACCESS_KEY", "anothersecret", 1);
    ck_assert_int_eq(open_with(url, NULL, NULL, &op), -EACCES);
    ck_assert_ptr_nonnull(strstr(op.why, "SignatureDoesNotMatch"));
    ck_assert_ptr_null(strstr(op.why, "anothersecret"));
    setenv("AWS_SECRET_ACCESS_KEY", secret, 1);
    setenv("AWS_ACCESS_KEY_ID", "nobody", 1);
    ck_assert_int_eq(open_with(url, NULL, NULL, &op), -EACCES);
    ck_assert_ptr_nonnull(strcasestr(op.why, "access key")); /* each server has its own code */
    setenv("AWS_ACCESS_KEY_ID", access, 1);
    ck_assert_int_eq(open_with(url, "no_sign_request", "true", &op), -EACCES);
}
END_TEST

static void write_role(int fd, const char *access)
{
    ck_assert_int_gt(dprintf(fd,
                             "[role]\nrole_arn = arn:aws:iam::123456789012:role/x\n"
                             "source_profile = base\nduration_seconds = 900\n"
                             "[base]\naws_access_key_id = %s\naws_secret_access_key = %s\n",
                             access, getenv("AWS_SECRET_ACCESS_KEY")),
                     0);
}

/* MinIO is a token service, too: it judges our AssumeRole and the token that came of it. */
START_TEST(keys_of_a_role_are_good)
{
    const char *kind = getenv("RUNFS_TEST_S3_SERVER");
    auto_free char *file = strdup(getenv("AWS_SHARED_CREDENTIALS_FILE"));
    char path[] = "/tmp/runfs-credentials.XXXXXX";
    struct op op;

    if (kind && strcmp(kind, "minio") == 0) {
        auto_close int fd = mkstemp(path);

        ck_assert_int_ge(fd, 0);
        write_role(fd, getenv("AWS_ACCESS_KEY_ID"));
        setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
        ck_assert_msg(open_with(getenv("RUNFS_TEST_S3_URL"), "profile", "role", &op) == 0, "%s",
                      op.why);
        ck_assert_int_eq(ftruncate(fd, 0), 0);
        ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
        write_role(fd, "nobody");
        ck_assert_int_eq(open_with(getenv("RUNFS_TEST_S3_URL"), "profile", "role", &op),
                         -EACCES);
        ck_assert_msg(strstr(op.why, "STS AssumeRole") != NULL, "%s", op.why);
        setenv("AWS_SHARED_CREDENTIALS_FILE", file, 1);
        (void)unlink(path);
    }
}
END_TEST

START_TEST(nobody_at_the_endpoint)
{
    struct op op;

    ck_assert_int_eq(
        open_with(getenv("RUNFS_TEST_S3_URL"), "endpoint", "http://127.0.0.1:1", &op),
        -ECONNREFUSED);
    ck_assert_ptr_nonnull(strstr(op.why, "127.0.0.1"));
}
END_TEST

static int count_names(void *arg, const char *name, const struct object *obj)
{
    (void)name, (void)obj;
    (*(unsigned *)arg)++;
    return 0;
}

/* Every byte that a file name may hold, through the signature and back through a listing. The
 * server keeps names as UTF-8. */
START_TEST(every_character_in_a_name)
{
    struct place *p = place_open(_i);
    char name[8];
    unsigned seen = 0;

    for (int c = 1; c < 0x180; c++) {
        if (c == '/' || c == 0x80)
            continue;
        if (c < 0x80)
            (void)snprintf(name, sizeof(name), "x%cy", c);
        else
            (void)snprintf(name, sizeof(name), "x%c%cy", 0xc0 | c >> 6, 0x80 | (c & 0x3f));
        ok(p, put_text(p, name, NULL, name));
        assert_text(p, name, name);
        seen++;
    }
    unsigned listed = 0;
    ok(p, store_list(p->s, &p->op, p->dir, 0, count_names, &listed));
    ck_assert_uint_eq(listed, seen);
    place_close(p);
}
END_TEST

/* MinIO keeps no other names: they are nowhere, and refused for what they are. */
START_TEST(a_name_that_is_no_utf8)
{
    struct place *p = place_open(_i);
    const char *kind = getenv("RUNFS_TEST_S3_SERVER"), *bad = key(p, "bad\xff");
    struct object obj;
    unsigned seen = 0;

    if (kind && strcmp(kind, "minio") == 0) {
        fails(p, EACCES, put_text(p, "bad\xff", NULL, "x"));
        fails(p, ENOENT, stat_of(p, "bad\xff", &obj));
        ok(p, store_list(p->s, &p->op, bad, LIST_RECURSIVE, count_names, &seen));
        ck_assert_uint_eq(seen, 0);
        fails(p, EACCES, store_remove(p->s, &p->op, &bad, NULL, 1, NULL));
    }
    place_close(p);
}
END_TEST

/* What another program finds: the bytes, under the same name. */
START_TEST(others_find_the_plain_object)
{
    struct place *p = place_open(_i);
    auto_free char *path = NULL;
    char buf[32] = "";

    if (getenv("RUNFS_TEST_S3_DIR")) {
        ok(p, put_text(p, "dir/plain file.txt", NULL, "as it is"));
        ck_assert_int_ge(asprintf(&path, "%s/contract/%s/dir/plain file.txt",
                                  getenv("RUNFS_TEST_S3_DIR"), p->dir),
                         0);
        auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
        ck_assert_msg(fd >= 0, "%s", path);
        ck_assert_int_eq(read(fd, buf, sizeof(buf) - 1), 8);
        ck_assert_str_eq(buf, "as it is");
    }
    place_close(p);
}
END_TEST

/* A bit that the server's disk turns. */
START_TEST(damage_at_the_server_is_found)
{
    struct place *p = place_open(_i);
    auto_free char *path = NULL;
    char etag[STORE_ETAG_MAX], buf[32] = "";

    if (getenv("RUNFS_TEST_S3_DIR")) {
        put_versioned(p, "damaged", "as it was", etag);
        ck_assert_int_eq(get_bytes(p, "damaged", etag, buf, sizeof(buf), 0, NULL), 9);
        ck_assert_int_ge(
            asprintf(&path, "%s/contract/%s/damaged", getenv("RUNFS_TEST_S3_DIR"), p->dir), 0);
        auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
        ck_assert_msg(fd >= 0, "%s", path);
        ck_assert_int_eq(pwrite(fd, "X", 1, 3), 1);
        fails(p, EIO, get_bytes(p, "damaged", etag, buf, sizeof(buf), 0, NULL));
        ck_assert_ptr_nonnull(strstr(p->op.why, "checksum"));
        ck_assert_str_eq(buf, "as it was");
    }
    place_close(p);
}
END_TEST

START_TEST(a_file_is_no_directory)
{
    struct place *p = place_open(_i);

    ok(p, put_text(p, "same", NULL, "x"));
    /* Amazon's keeps both; servers over a filesystem can't. */
    int r = put_text(p, "same/below", NULL, "x");
    ck_assert_msg(r == 0 || r == -ENOTDIR, "%d %s", r, p->op.why);
    place_close(p);
}
END_TEST

START_TEST(a_part_may_come_twice)
{
    struct place *p = place_open(_i);
    struct upload *up;
    struct object obj;
    auto_free char *data = pattern(6 << 20, 7);
    struct mem_source src;

    ok(p, store_upload_begin(p->s, &p->op, key(p, "big"), NULL, &up));
    mem_source_init(&src, data, 6 << 20);
    ok(p, store_upload_part(up, &p->op, 1, &src.base));
    ok(p, store_upload_part(up, &p->op, 1, &src.base)); /* the same again */
    fails(p, ESTALE, store_upload_commit(up, &p->op, "no such version", &obj));
    ok(p, store_upload_commit(up, &p->op, "", &obj));
    ck_assert_uint_eq(obj.size, 6 << 20);
    object_release(&obj);
    place_close(p);
}
END_TEST

/* What AWS wants above 5 GiB, with other limits: the server copies part by part. */
START_TEST(a_large_object_is_copied_in_parts)
{
    struct place *p = place_open(0);
    const size_t size = 11 << 20;
    auto_free char *data = pattern(size, 3), *back = malloc(size);
    struct attrs attrs = {.has = ATTR_MODE, .mode = S_IFREG | 0640};
    struct object from, obj;

    s3_of(p->s)->copy_max = 6 << 20;
    s3_of(p->s)->copy_part = 5 << 20;
    ok(p, put_bytes(p, "large", NULL, data, size, &attrs, &from));
    ok(p,
       store_copy(p->s, &p->op, key(p, "large"), from.etag, key(p, "copy"), NULL, NULL, &obj));
    ck_assert_uint_eq(obj.size, size);
    ck_assert_ptr_nonnull(strstr(obj.etag, "-3")); /* as it went */
    ck_assert_int_eq(get_bytes(p, "copy", obj.etag, back, size, 0, NULL), (int)size);
    ck_assert_int_eq(memcmp(data, back, size), 0);
    object_release(&obj);
    ok(p, stat_of(p, "copy", &obj));
    ck_assert_uint_eq(obj.attrs.mode, S_IFREG | 0640);
    object_release(&obj);
    fails(p, ESTALE,
          store_copy(p->s, &p->op, key(p, "large"), "no such version", key(p, "copy"), NULL,
                     NULL, NULL));
    object_release(&from);
    place_close(p);
}
END_TEST

/* Tags that others gave: the copy that new attributes are takes them over. */
START_TEST(tags_survive_a_chmod)
{
    struct place *p = place_open(0);
    struct s3 *s = s3_of(p->s);
    struct attrs attrs = {.has = ATTR_MODE, .mode = S_IFREG | 0600};

    for (size_t size = 0; size <= 5; size += 5) {
        auto_request struct s3_request put, get;
        struct mem_source src;

        ok(p, s3_request_init(s, &p->op, &put, "put", "PUT", key(p, "tagged"), false));
        mem_source_init(&src, "hello", size);
        s3_fields_add(&put.headers, "x-amz-tagging", "team=sky%20blue&none=");
        put.body = &src.base;
        ok(p, s3_run(s, &p->op, &put));
        ok(p, store_set_attributes(p->s, &p->op, key(p, "tagged"), NULL, &attrs, NULL));
        ok(p, s3_request_init(s, &p->op, &get, "tags", "GET", key(p, "tagged"), false));
        s3_fields_add(&get.query, "tagging", "");
        ok(p, s3_run(s, &p->op, &get));
        ck_assert_msg(strstr(get.answer.body.data, "<Value>sky blue</Value>") != NULL,
                      "%zu: %s", size, get.answer.body.data);
        ck_assert_ptr_nonnull(strstr(get.answer.body.data, "<Key>none</Key>"));
    }
    place_close(p);
}
END_TEST

/* Content that changes while it is sent does not get in: the checksum was taken before. */
struct shifting_source {
    struct source base;
    unsigned calls;
};

static ssize_t shifting_pread(struct source *src, void *buf, size_t len, uint64_t off)
{
    struct shifting_source *s = container_of(src, struct shifting_source, base);

    (void)off;
    memset(buf, 'a' + (int)(s->calls++ % 26), len);
    return (ssize_t)len;
}

START_TEST(content_that_changes_on_its_way_is_refused)
{
    struct place *p = place_open(0);
    struct shifting_source src = {.base = {.size = 1000, .pread = shifting_pread}};
    struct object obj;

    fails(p, EIO, store_put(p->s, &p->op, key(p, "torn"), NULL, &src.base, NULL, NULL));
    fails(p, ENOENT, stat_of(p, "torn", &obj));
    place_close(p);
}
END_TEST

/* The longest key is what the store says, with its prefix. */
START_TEST(the_longest_key_fits)
{
    struct place *p = place_open(0);
    const char *kind = getenv("RUNFS_TEST_S3_SERVER");
    struct store_facts facts;

    store_facts(p->s, "", &facts);
    auto_free char *name = malloc(facts.key_max + 2);
    size_t first = strlen(p->dir) + 1;

    ck_assert_uint_eq(facts.key_max, 1024 - strlen("contract/"));
    memset(name, 'n', facts.key_max + 1);
    for (size_t i = 199; i < facts.key_max - 1; i += 200)
        name[i] = '/';
    name[facts.key_max - first] = '\0';
    ok(p, put_text(p, name, NULL, "fits"));
    assert_text(p, name, "fits");
    name[facts.key_max - first] = 'n';
    name[facts.key_max - first + 1] = '\0';
    if (kind && strcmp(kind, "minio") == 0) /* as Amazon's; others take more */
        ck_assert_int_lt(put_text(p, name, NULL, "does not"), 0);
    place_close(p);
}
END_TEST

/* What the option says, and where the sibling is taken from. */
START_TEST(state_has_a_place_or_none)
{
    static const struct {
        const char *url, *option, *place; /* NULL: none */
    } t[] = {
        {"s3://runfs-test/contract", NULL, "contract.runfs"},
        {"s3://runfs-test/a/b", NULL, "a/b.runfs"},
        {"s3://runfs-test", NULL, NULL},
        {"s3://runfs-test/contract", "off", NULL},
        {"s3://runfs-test/contract", "our/own/", "our/own"},
    };
    static const char *const bad[] = {"", "/", "a//b", "../x", "contract", "contract/x", "con"};

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        const struct store_option option = {"state_prefix", t[i].option};
        struct store_config config = {.options = &option, .n_options = t[i].option ? 1 : 0};
        struct store *s = NULL;
        struct op op;
        op_init(&op, PATIENCE);
        ck_assert_msg(s3_store_new(t[i].url, &config, &op, &s) == 0, "%s", op.why);
        ck_assert_int_eq(store_can(s, "", STORE_STATE), t[i].place != NULL);
        if (t[i].place)
            ck_assert_str_eq(s3_of(s)->state_prefix, t[i].place);
        store_close(s);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct op op;
        int r = open_with("s3://runfs-test/contract", "state_prefix", bad[i], &op);
        ck_assert_msg(r == (strcmp(bad[i], "con") == 0 ? 0 : -EINVAL), "%s: %d", bad[i], r);
    }
}
END_TEST

/* What mounts note of units, which a listing of the bucket's prefix never shows. */
START_TEST(notes_of_units)
{
    struct place *p = place_open(_i);

    notes_story(p->s, &p->op, p->dir);
    place_close(p);
}
END_TEST

int main(void)
{
    int n = ARRAY_SIZE(fixtures);

    if (!getenv("RUNFS_TEST_S3_URL") || !getenv("RUNFS_TEST_S3_ENDPOINT")) {
        printf("SKIP contract s3: RUNFS_TEST_S3_URL is not set; tests/servers/with_s3.sh sets "
               "it\n");
        return SKIPPED;
    }
    Suite *s = suite_create("contract s3");
    TCase *t = tcase_create("s3");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_missing_bucket_is_told);
    tcase_add_test(t, wrong_keys_are_told);
    tcase_add_test(t, keys_of_a_role_are_good);
    tcase_add_test(t, nobody_at_the_endpoint);
    tcase_add_loop_test(t, every_character_in_a_name, 0, 1);
    tcase_add_loop_test(t, a_name_that_is_no_utf8, 0, n);
    tcase_add_loop_test(t, others_find_the_plain_object, 0, n);
    tcase_add_loop_test(t, damage_at_the_server_is_found, 0, 1);
    tcase_add_loop_test(t, a_file_is_no_directory, 0, 1);
    tcase_add_loop_test(t, a_part_may_come_twice, 0, 1);
    tcase_add_test(t, a_large_object_is_copied_in_parts);
    tcase_add_test(t, tags_survive_a_chmod);
    tcase_add_test(t, content_that_changes_on_its_way_is_refused);
    tcase_add_test(t, the_longest_key_fits);
    tcase_add_test(t, state_has_a_place_or_none);
    tcase_add_loop_test(t, notes_of_units, 0, n);
    suite_add_tcase(s, contract_tcase(fixtures, (size_t)n));
    suite_add_tcase(s, t);
    return suite_run(s);
}
