/* The contract of uploads in parts and of copies. Part of contract.c. */
#include "tests/contract/contract_place.h"

/* ---- uploads in parts ---- */

static int part_of(struct upload *up, struct op *op, const char *data, size_t size,
                   uint64_t part_size, unsigned number)
{
    uint64_t off = (number - 1) * part_size;
    struct mem_source src;

    mem_source_init(&src, data + off, size - off < part_size ? size - off : part_size);
    return store_upload_part(up, op, number, &src.base);
}

static uint64_t test_part_size(struct store *s)
{
    uint64_t size = 64 << 10;

    struct store_facts f;

    store_facts(s, "object", &f);
    return size < f.part_min ? f.part_min : size > f.part_max ? f.part_max : size;
}

static void assert_content(struct place *p, const char *name, const char *data, size_t size)
{
    auto_free char *back = malloc(size + 1);

    ck_assert_int_eq(get_bytes(p, name, NULL, back, size + 1, 0, NULL), size);
    ck_assert_msg(memcmp(back, data, size) == 0, "%s: %s differs", p->fixture->name, name);
}

START_TEST(parts_make_one_object)
{
    struct place *p = place_open(_i);
    uint64_t part = test_part_size(p->s);
    size_t size = 2 * part + 1000;
    auto_free char *data = pattern(size, 1), *wrong = pattern(size, 2);
    struct attrs a = signed_attrs(p);
    struct upload *up;
    struct object obj, now;

    if (can(p, STORE_PARTS)) {
        ok(p, put_text(p, "object", NULL, "old"));
        ok(p, store_upload_begin(p->s, &p->op, key(p, "object"), &a, &up));
        ok(p, part_of(up, &p->op, data, size, part, 3));
        ok(p, part_of(up, &p->op, wrong, size, part, 1));
        ok(p, part_of(up, &p->op, data, size, part, 2));
        assert_text(p, "object", "old");
        assert_listing(p, "", LIST_RECURSIVE, "object");
        ok(p, part_of(up, &p->op, data, size, part, 1)); /* the last one counts */
        fails(p, EINVAL, part_of(up, &p->op, data, size, part, 0));
        ok(p, store_upload_commit(up, &p->op, NULL, &obj));
        ck_assert_uint_eq(obj.size, size);
        assert_content(p, "object", data, size);
        ok(p, stat_of(p, "object", &now));
        ck_assert_str_eq(now.etag, obj.etag);
        if (can(p, STORE_ATTRS))
            assert_attrs(p, &a, &now.attrs);
        object_release(&obj);
        object_release(&now);
    }
    place_close(p);
}
END_TEST

struct part_job {
    struct upload *up;
    const char *data;
    size_t size;
    uint64_t part;
    unsigned number;
    int result;
};

static void *upload_one(void *arg)
{
    struct part_job *j = arg;
    struct op op;

    op_init(&op, PATIENCE);
    j->result = part_of(j->up, &op, j->data, j->size, j->part, j->number);
    return NULL;
}

START_TEST(parts_run_in_parallel)
{
    struct place *p = place_open(_i);
    uint64_t part = test_part_size(p->s);
    size_t size = 3 * part + 1;
    auto_free char *data = pattern(size, 3);
    struct part_job jobs[4];
    pthread_t threads[4];
    struct upload *up;

    if (can(p, STORE_PARTS)) {
        ok(p, store_upload_begin(p->s, &p->op, key(p, "object"), NULL, &up));
        for (unsigned i = 0; i < 4; i++) {
            jobs[i] = (struct part_job){up, data, size, part, i + 1, -1};
            ck_assert_int_eq(pthread_create(&threads[i], NULL, upload_one, &jobs[i]), 0);
        }
        for (unsigned i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
            ck_assert_int_eq(jobs[i].result, 0);
        }
        ok(p, store_upload_commit(up, &p->op, NULL, NULL));
        assert_content(p, "object", data, size);
    }
    place_close(p);
}
END_TEST

START_TEST(commit_checks_the_version)
{
    struct place *p = place_open(_i);
    char v1[STORE_ETAG_MAX];
    struct upload *up;

    if (can(p, STORE_PARTS | STORE_IF_MATCH)) {
        put_versioned(p, "object", "old", v1);
        ok(p, store_upload_begin(p->s, &p->op, key(p, "object"), NULL, &up));
        ok(p, part_of(up, &p->op, "new", 3, test_part_size(p->s), 1));
        fails(p, ESTALE, store_upload_commit(up, &p->op, "", NULL));
        assert_text(p, "object", "old");
        ok(p, store_upload_commit(up, &p->op, v1, NULL)); /* again, after a failure */
        assert_text(p, "object", "new");
        ok(p, store_upload_begin(p->s, &p->op, key(p, "object"), NULL, &up));
        ok(p, part_of(up, &p->op, "newer", 5, test_part_size(p->s), 1));
        fails(p, ESTALE, store_upload_commit(up, &p->op, v1, NULL));
        ok(p, store_upload_abort(up, &p->op));
        assert_text(p, "object", "new");
        ok(p, store_upload_begin(p->s, &p->op, key(p, "fresh"), NULL, &up));
        ok(p, part_of(up, &p->op, "x", 1, test_part_size(p->s), 1));
        ok(p, store_upload_commit(up, &p->op, "", NULL));
        assert_text(p, "fresh", "x");
    }
    place_close(p);
}
END_TEST

static int note_part(void *arg, const struct part *part)
{
    unsigned *bits = arg;

    *bits |= 1u << part->number;
    ck_assert_uint_gt(part->size, 0);
    return 0;
}

START_TEST(uploads_resume_elsewhere)
{
    struct place *p = place_open(_i);
    uint64_t part = test_part_size(p->s);
    size_t size = 2 * part + 5;
    auto_free char *data = pattern(size, 4), *token = NULL;
    struct attrs a = signed_attrs(p);
    struct store *first = p->s;
    struct object obj;
    struct upload *up;
    unsigned bits = 0;

    if (can(p, STORE_PARTS)) {
        ok(p, store_upload_begin(p->s, &p->op, key(p, "object"), &a, &up));
        ok(p, part_of(up, &p->op, data, size, part, 1));
        ok(p, part_of(up, &p->op, data, size, part, 3));
        token = store_upload_token(up);
        ck_assert_ptr_nonnull(token);
        store_upload_detach(up);

        p->s = p->fixture->open(p->fixture); /* as another process would */
        fails(p, ENOENT,
              store_upload_resume(p->s, &p->op, key(p, "object"), "no-such-session", note_part,
                                  &bits, &up));
        ok(p,
           store_upload_resume(p->s, &p->op, key(p, "object"), token, note_part, &bits, &up));
        ck_assert_uint_eq(bits, 1u << 1 | 1u << 3);
        ok(p, part_of(up, &p->op, data, size, part, 2));
        ok(p, store_upload_commit(up, &p->op, NULL, NULL));
        assert_content(p, "object", data, size);
        if (can(p, STORE_ATTRS)) {
            ok(p, stat_of(p, "object", &obj));
            assert_attrs(p, &a, &obj.attrs);
            object_release(&obj);
        }
        fails(
            p, ENOENT,
            store_upload_resume(p->s, &p->op, key(p, "object"), token, note_part, &bits, &up));
        store_close(first);
    }
    place_close(p);
}
END_TEST

static int has_part(struct upload *up, struct op *op, const char *data, size_t size,
                    unsigned number)
{
    struct mem_source src;

    mem_source_init(&src, data, size);
    return store_upload_has(up, op, number, &src.base);
}

START_TEST(resumed_parts_are_compared)
{
    struct place *p = place_open(_i);
    uint64_t part = test_part_size(p->s);
    size_t size = part + 700;
    auto_free char *data = pattern(size, 5), *token = NULL;
    struct store *first = p->s;
    struct upload *up;
    unsigned bits = 0;

    if (can(p, STORE_PARTS)) {
        ok(p, store_upload_begin(p->s, &p->op, key(p, "object"), NULL, &up));
        ok(p, part_of(up, &p->op, data, size, part, 1));
        ok(p, part_of(up, &p->op, data, size, part, 2));
        token = store_upload_token(up);
        store_upload_detach(up);

        p->s = p->fixture->open(p->fixture);
        ok(p,
           store_upload_resume(p->s, &p->op, key(p, "object"), token, note_part, &bits, &up));
        ck_assert_int_eq(has_part(up, &p->op, data, part, 1), 1);
        ck_assert_int_eq(has_part(up, &p->op, data + part, 700, 2), 1);
        ck_assert_int_eq(has_part(up, &p->op, data, part - 1, 1), 0);
        ck_assert_int_eq(has_part(up, &p->op, data + part, 699, 2), 0);
        ck_assert_int_eq(has_part(up, &p->op, data, part, 2), 0);
        ck_assert_int_eq(has_part(up, &p->op, data, part, 3), 0);
        data[part + 5] ^= 1;
        ck_assert_int_eq(has_part(up, &p->op, data + part, 700, 2), 0);
        ok(p, part_of(up, &p->op, data, size, part, 2));
        ok(p, store_upload_commit(up, &p->op, NULL, NULL));
        assert_content(p, "object", data, size);
        store_close(first);
    }
    place_close(p);
}
END_TEST

START_TEST(unknown_sessions_are_swept)
{
    struct place *p = place_open(_i);
    char *token[3];
    struct upload *up;
    unsigned bits = 0;

    if (p->s->ops->upload_sweep) {
        for (int i = 0; i < 3; i++) {
            ok(p, store_upload_begin(p->s, &p->op, key(p, "object"), NULL, &up));
            if (i == 1)
                ok(p, part_of(up, &p->op, "x", 1, test_part_size(p->s), 1));
            token[i] = store_upload_token(up);
            store_upload_detach(up);
        }
        ok(p, store_upload_begin(p->s, &p->op, key(p, "object2"), NULL, &up));
        ok(p,
           store_upload_sweep(p->s, &p->op, key(p, "object"),
                              clock_real_ns() + 3600 * NS_PER_SEC, NULL)); /* all are older */
        ok(p, store_upload_sweep(p->s, &p->op, key(p, "object"), clock_real_ns(), token[2]));
        for (int i = 0; i < 3; i++) {
            struct upload *back;
            int r = store_upload_resume(p->s, &p->op, key(p, "object"), token[i], note_part,
                                        &bits, &back);
            ck_assert_msg(r == (i == 0 ? -ENOENT : 0), "session %d: %d", i, r);
            if (r == 0)
                ok(p, store_upload_abort(back, &p->op));
            free(token[i]);
        }
        ok(p, part_of(up, &p->op, "x", 1, test_part_size(p->s), 1)); /* the other key's lives */
        ok(p, store_upload_abort(up, &p->op));
    }
    place_close(p);
}
END_TEST

static void assert_checksum(struct place *p, const struct object *obj, const char *data,
                            size_t size)
{
    struct checksum sum = {.kind = obj->checksum.kind};

    if (!can(p, STORE_CHECKSUM))
        return;
    checksum_add(&sum, data, size);
    ck_assert_int_ne(sum.kind, CHECKSUM_NONE);
    ck_assert_msg(checksum_same(&sum, &obj->checksum), "%s: another checksum",
                  p->fixture->name);
}

START_TEST(checksums_are_of_the_whole)
{
    struct place *p = place_open(_i);
    uint64_t part = test_part_size(p->s);
    size_t size = 2 * part + 77;
    auto_free char *data = pattern(size, 6);
    struct upload *up;
    struct object obj;

    ok(p, put_bytes(p, "small", NULL, data, 1000, NULL, &obj));
    assert_checksum(p, &obj, data, 1000);
    object_release(&obj);
    ok(p, stat_of(p, "small", &obj));
    assert_checksum(p, &obj, data, 1000);
    object_release(&obj);
    if (can(p, STORE_PARTS)) {
        ok(p, store_upload_begin(p->s, &p->op, key(p, "object"), NULL, &up));
        for (unsigned i = 1; i <= 3; i++)
            ok(p, part_of(up, &p->op, data, size, part, i));
        ok(p, store_upload_commit(up, &p->op, NULL, &obj));
        assert_checksum(p, &obj, data, size);
        object_release(&obj);
        ok(p, stat_of(p, "object", &obj));
        assert_checksum(p, &obj, data, size);
        object_release(&obj);
    }
    place_close(p);
}
END_TEST

START_TEST(abort_leaves_nothing)
{
    struct place *p = place_open(_i);
    auto_free char *token = NULL;
    struct upload *up;
    unsigned bits = 0;

    if (can(p, STORE_PARTS)) {
        ok(p, store_upload_begin(p->s, &p->op, key(p, "object"), NULL, &up));
        ok(p, part_of(up, &p->op, "x", 1, test_part_size(p->s), 1));
        token = store_upload_token(up);
        ok(p, store_upload_abort(up, &p->op));
        assert_missing(p, "object");
        fails(
            p, ENOENT,
            store_upload_resume(p->s, &p->op, key(p, "object"), token, note_part, &bits, &up));
    }
    place_close(p);
}
END_TEST

START_TEST(sessions_are_aborted_by_token)
{
    struct place *p = place_open(_i);
    auto_free char *token = NULL;
    struct upload *up;
    unsigned bits = 0;

    if (can(p, STORE_PARTS)) {
        ok(p, store_upload_begin(p->s, &p->op, key(p, "object"), NULL, &up));
        ok(p, part_of(up, &p->op, "x", 1, test_part_size(p->s), 1));
        token = store_upload_token(up);
        store_upload_detach(up);
        ok(p, store_upload_resume(p->s, &p->op, key(p, "object"), token, NULL, NULL, &up));
        ok(p, store_upload_abort(up, &p->op));
        fails(
            p, ENOENT,
            store_upload_resume(p->s, &p->op, key(p, "object"), token, note_part, &bits, &up));
    }
    place_close(p);
}
END_TEST

/* ---- copy ---- */

START_TEST(copy_keeps_or_replaces_attributes)
{
    struct place *p = place_open(_i);
    struct attrs a = file_attrs(), other = file_attrs();
    struct object obj;

    other.mode = S_IFREG | 0604;
    other.xattrs = (char *)"{\"user.c\":\"AA==\"}";
    if (can(p, STORE_COPY)) {
        ok(p, put_bytes(p, "from", NULL, "content", 7, &a, NULL));
        ok(p,
           store_copy(p->s, &p->op, key(p, "from"), NULL, key(p, "dir/to"), NULL, NULL, &obj));
        ck_assert_uint_eq(obj.size, 7);
        object_release(&obj);
        assert_text(p, "dir/to", "content");
        assert_text(p, "from", "content");
        if (can(p, STORE_ATTRS)) {
            ok(p, stat_of(p, "dir/to", &obj));
            assert_attrs(p, &a, &obj.attrs);
            object_release(&obj);
            ok(p, store_copy(p->s, &p->op, key(p, "from"), NULL, key(p, "to2"), NULL, &other,
                             NULL));
            ok(p, stat_of(p, "to2", &obj));
            assert_attrs(p, &other, &obj.attrs);
            object_release(&obj);
        }
        fails(
            p, ENOENT,
            store_copy(p->s, &p->op, key(p, "nothing"), NULL, key(p, "to"), NULL, NULL, NULL));
    }
    place_close(p);
}
END_TEST

START_TEST(copy_checks_both_versions)
{
    struct place *p = place_open(_i);
    char from[STORE_ETAG_MAX], to[STORE_ETAG_MAX];

    if (can(p, STORE_COPY | STORE_IF_MATCH)) {
        put_versioned(p, "from", "one", from);
        put_versioned(p, "to", "two!", to);
        fails(p, ESTALE,
              store_copy(p->s, &p->op, key(p, "from"), to, key(p, "to"), NULL, NULL, NULL));
        fails(p, ESTALE,
              store_copy(p->s, &p->op, key(p, "from"), from, key(p, "to"), "", NULL, NULL));
        fails(p, ESTALE,
              store_copy(p->s, &p->op, key(p, "from"), from, key(p, "to"), from, NULL, NULL));
        assert_text(p, "to", "two!");
        ok(p, store_copy(p->s, &p->op, key(p, "from"), from, key(p, "to"), to, NULL, NULL));
        assert_text(p, "to", "one");
        ok(p, store_copy(p->s, &p->op, key(p, "from"), from, key(p, "fresh"), "", NULL, NULL));
        assert_text(p, "fresh", "one");
    }
    place_close(p);
}
END_TEST
