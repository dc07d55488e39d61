/* The contract of listings, directories, remove and rename. Part of contract.c. */
#include "tests/contract/contract_place.h"

/* ---- listings ---- */

struct seen {
    char name[STORE_KEY_MAX];
    struct object obj; /* without its attributes' strings */
};

struct listed {
    struct seen *item;
    size_t n, max;
};

static int collect(void *arg, const char *name, const struct object *obj)
{
    struct listed *l = arg;

    ck_assert_uint_lt(l->n, l->max);
    (void)snprintf(l->item[l->n].name, STORE_KEY_MAX, "%s", name);
    l->item[l->n].obj = *obj;
    memset(&l->item[l->n].obj.attrs, 0, sizeof(obj->attrs));
    l->n++;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct seen *l = a, *r = b;
    int order = strcmp(l->name, r->name);

    return order ? order : (int)l->obj.is_prefix - (int)r->obj.is_prefix;
}

/* Names in order, directories with "/" at the end, joined by spaces. */
static void assert_listing(struct place *p, const char *dir, unsigned flags,
                           const char *expected)
{
    struct seen items[16];
    struct listed l = {items, 0, ARRAY_SIZE(items)};
    char text[1024] = "";

    int r = store_list(p->s, &p->op, key(p, dir), flags, collect, &l);
    ck_assert_msg(r == 0 || (r == -ENOENT && !expected[0]), "%s: list %s: %d %s",
                  p->fixture->name, dir, r, p->op.why);
    qsort(items, l.n, sizeof(items[0]), by_name);
    for (size_t i = 0; i < l.n; i++) {
        strcat(text, i ? " " : "");
        strcat(text, items[i].name);
        strcat(text, items[i].obj.is_prefix ? "/" : "");
    }
    ck_assert_str_eq(text, expected);
}

START_TEST(list_one_level)
{
    struct place *p = place_open(_i);

    ok(p, put_text(p, "b", NULL, "12"));
    ok(p, put_text(p, "a/x", NULL, ""));
    ok(p, put_text(p, "a/y/z", NULL, ""));
    ok(p, put_text(p, "a.b", NULL, ""));
    ok(p, put_text(p, "ab/c", NULL, ""));
    assert_listing(p, "", 0, "a/ a.b ab/ b");
    assert_listing(p, "a", 0, "x y/");
    assert_listing(p, "a/y", 0, "z");
    assert_listing(p, "nothing", 0, "");
    place_close(p);
}
END_TEST

START_TEST(list_subtree)
{
    struct place *p = place_open(_i);

    ok(p, put_text(p, "b", NULL, "12"));
    ok(p, put_text(p, "a/x", NULL, ""));
    ok(p, put_text(p, "a/y/z", NULL, ""));
    ok(p, store_mkdir(p->s, &p->op, key(p, "m/n"), NULL, NULL));
    if (can(p, STORE_DIRS))
        assert_listing(p, "", LIST_RECURSIVE, "a/ a/x a/y/ a/y/z b m/ m/n/");
    else
        assert_listing(p, "", LIST_RECURSIVE, "a/x a/y/z b m/n/");
    place_close(p);
}
END_TEST

START_TEST(list_tells_size_and_version)
{
    struct place *p = place_open(_i);
    struct seen item;
    struct listed l = {&item, 0, 1};
    char etag[STORE_ETAG_MAX];

    put_versioned(p, "object", "12345", etag);
    ok(p, store_list(p->s, &p->op, p->dir, 0, collect, &l));
    ck_assert_uint_eq(l.n, 1);
    ck_assert_uint_eq(item.obj.size, 5);
    ck_assert_str_eq(item.obj.etag, etag);
    ck_assert_int_gt(item.obj.mtime_ns, 1500000000 * NS_PER_SEC);
    ck_assert_int_eq(item.obj.attrs_known, can(p, STORE_LIST_ATTRS));
    place_close(p);
}
END_TEST

struct tally {
    unsigned char *count; /* how often each number was visited */
    unsigned max, n;
    int stop_at, answer;
};

static int tally_number(void *arg, const char *name, const struct object *obj)
{
    struct tally *t = arg;
    unsigned number = (unsigned)strtoul(name, NULL, 10);

    ck_assert(!obj->is_prefix);
    ck_assert_uint_lt(number, t->max);
    t->count[number]++;
    return (int)++t->n == t->stop_at ? t->answer : 0;
}

/* "+" before a directory's own object. */
static int append_name(void *arg, const char *name, const struct object *obj)
{
    char *text = arg;

    strcat(text, *text ? " " : "");
    strcat(text, name);
    strcat(text, obj->is_prefix ? "/" : "");
    return 0;
}

static void assert_order(struct place *p, const char *after, const char *expected)
{
    char text[1024] = "";

    ok(p,
       store_list_after(p->s, &p->op, key(p, "o"), LIST_RECURSIVE, after, append_name, text));
    ck_assert_str_eq(text, expected);
}

START_TEST(list_in_order_from_anywhere)
{
    struct place *p = place_open(_i);

    if (can(p, STORE_ORDER)) {
        ok(p, put_text(p, "o/b/x", NULL, ""));
        ok(p, put_text(p, "o/a/2", NULL, ""));
        ok(p, put_text(p, "o/a/1", NULL, ""));
        ok(p, put_text(p, "o/c", NULL, ""));
        ok(p, store_mkdir(p->s, &p->op, key(p, "o/b/d"), NULL, NULL));
        assert_order(p, NULL, "a/1 a/2 b/d/ b/x c");
        assert_order(p, "a", "a/1 a/2 b/d/ b/x c");
        assert_order(p, "a/1", "a/2 b/d/ b/x c");
        assert_order(p, "b", "b/d/ b/x c");
        assert_order(p, "b/d", "b/d/ b/x c");
        assert_order(p, "b/d/", "b/x c");
        assert_order(p, "b0", "c");
        assert_order(p, "c", "");
    }
    place_close(p);
}
END_TEST

START_TEST(list_pages_visits_each_name_once)
{
    struct place *p = place_open(_i);
    unsigned max = p->fixture->page_names;
    auto_free unsigned char *count = calloc(max, 1);
    struct tally t = {count, max, 0, -1, 0};
    char name[32];

    for (unsigned i = 0; i < max; i++) {
        (void)snprintf(name, sizeof(name), "many/%u", i);
        ok(p, put_text(p, name, NULL, ""));
    }
    ok(p, store_list(p->s, &p->op, key(p, "many"), 0, tally_number, &t));
    ck_assert_uint_eq(t.n, max);
    for (unsigned i = 0; i < max; i++)
        ck_assert_uint_eq(count[i], 1);

    t = (struct tally){count, max, 0, 3, 42};
    ck_assert_int_eq(store_list(p->s, &p->op, key(p, "many"), 0, tally_number, &t), 42);
    ck_assert_uint_eq(t.n, 3);
    t = (struct tally){count, max, 0, (int)max, -EDQUOT};
    ck_assert_int_eq(store_list(p->s, &p->op, key(p, "many"), LIST_RECURSIVE, tally_number, &t),
                     -EDQUOT);
    place_close(p);
}
END_TEST

START_TEST(object_and_directory_of_one_name)
{
    struct place *p = place_open(_i);
    struct object obj;

    if (p->fixture->flat) {
        ok(p, put_text(p, "both", NULL, "object"));
        ok(p, put_text(p, "both/below", NULL, "x"));
        assert_listing(p, "", 0, "both both/");
        ok(p, stat_of(p, "both", &obj));
        ck_assert(!obj.is_prefix); /* the object wins */
        object_release(&obj);
        assert_text(p, "both", "object");
        const char *k = key(p, "both");
        ok(p, store_remove(p->s, &p->op, &k, NULL, 1, NULL));
        ok(p, stat_of(p, "both", &obj));
        ck_assert(obj.is_prefix);
        object_release(&obj);
    }
    place_close(p);
}
END_TEST

START_TEST(odd_names_survive)
{
    static const char *const names[] = {
        "with space", "a+b",         "100%",
        "%2F",        "q?a=b&c#d",   "\"quoted\" 'too'",
        "<&>;",       "back\\slash", "\xc3\xa9t\xc3\xa9",
        ".hidden",    "...",         "~tilde",
        "a:b@c,d$e!", "[x]{y}(z)*",  "=eq",
        " lead",      "trail ",      "caf\x65\xcc\x81",
    };
    struct place *p = place_open(_i);
    struct seen items[ARRAY_SIZE(names) + 2];
    struct listed l = {items, 0, ARRAY_SIZE(items)};
    char long_name[256];
    size_t n = ARRAY_SIZE(names);

    memset(long_name, 'n', 255);
    long_name[255] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        ok(p, put_text(p, names[i], NULL, names[i]));
    ok(p, put_text(p, long_name, NULL, ""));
    n++;
    if (p->fixture->any_name) {
        ok(p, put_text(p, "line\nfeed\x01", NULL, ""));
        n++;
    }
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_text(p, names[i], names[i]);
    ok(p, store_list(p->s, &p->op, p->dir, 0, collect, &l));
    ck_assert_uint_eq(l.n, n);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        size_t j = 0;
        while (j < l.n && strcmp(items[j].name, names[i]) != 0)
            j++;
        ck_assert_msg(j < l.n, "%s: \"%s\" is not listed", p->fixture->name, names[i]);
    }
    place_close(p);
}
END_TEST

/* ---- directories ---- */

START_TEST(directories_exist_empty)
{
    struct place *p = place_open(_i);
    struct object obj;

    ok(p, store_mkdir(p->s, &p->op, key(p, "dir/sub"), NULL, NULL));
    ok(p, stat_of(p, "dir/sub", &obj));
    ck_assert(obj.is_prefix);
    ck_assert(obj.has_marker);
    object_release(&obj);
    assert_listing(p, "dir", 0, "sub/");
    assert_listing(p, "dir/sub", 0, "");
    ok(p, store_mkdir(p->s, &p->op, key(p, "dir/sub"), NULL, NULL)); /* again */
    ok(p, put_text(p, "dir/sub/object", NULL, "x"));
    assert_listing(p, "dir/sub", 0, "object");
    if (can(p, STORE_DIRS))
        fails(p, ENOTEMPTY, store_rmdir(p->s, &p->op, key(p, "dir/sub")));
    const char *k = key(p, "dir/sub/object");
    ok(p, store_remove(p->s, &p->op, &k, NULL, 1, NULL));
    ok(p, store_rmdir(p->s, &p->op, key(p, "dir/sub")));
    assert_missing(p, "dir/sub");
    ok(p, store_rmdir(p->s, &p->op, key(p, "dir/sub")));
    place_close(p);
}
END_TEST

START_TEST(remove_many)
{
    struct place *p = place_open(_i);
    int errs[3] = {1, 1, 1};
    const char *keys[3];

    ok(p, put_text(p, "a", NULL, "x"));
    ok(p, put_text(p, "dir/b", NULL, "x"));
    ok(p, put_text(p, "keep", NULL, "x"));
    keys[0] = key(p, "a");
    keys[1] = key(p, "nothing");
    keys[2] = key(p, "dir/b");
    ok(p, store_remove(p->s, &p->op, keys, NULL, 3, errs));
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(errs[i], 0);
    assert_missing(p, "a");
    assert_missing(p, "dir/b");
    assert_text(p, "keep", "x");
    ok(p, store_remove(p->s, &p->op, keys, NULL, 3, NULL));
    ok(p, store_remove(p->s, &p->op, keys, NULL, 0, NULL));
    place_close(p);
}
END_TEST

/* MinIO ignores the condition. */
static bool removes_conditionally(struct place *p)
{
    const char *server = getenv("RUNFS_TEST_S3_SERVER");

    return can(p, STORE_IF_MATCH) &&
           (strcmp(p->s->ops->name, "s3") != 0 || !server || strcmp(server, "minio") != 0);
}

START_TEST(remove_checks_the_version)
{
    struct place *p = place_open(_i);
    char old[STORE_ETAG_MAX], now[STORE_ETAG_MAX];
    const char *const etags[] = {old, now, now, NULL};
    const char *keys[4];
    int errs[4];

    if (removes_conditionally(p)) {
        put_versioned(p, "a", "one", old);
        put_versioned(p, "a", "other", now);
        keys[0] = key(p, "a");
        fails(p, ESTALE, store_remove(p->s, &p->op, keys, etags, 1, errs));
        assert_text(p, "a", "other");
        ok(p, store_remove(p->s, &p->op, keys, etags + 1, 1, errs));
        assert_missing(p, "a");
        ok(p, store_remove(p->s, &p->op, keys, etags + 1, 1, errs)); /* none is there */

        put_versioned(p, "dir/b", "b", now);
        ok(p, put_text(p, "dir/c", NULL, "c"));
        ok(p, put_text(p, "dir/d", NULL, "d"));
        keys[0] = key(p, "dir/c");
        keys[1] = key(p, "dir/b");
        keys[2] = key(p, "nothing");
        keys[3] = key(p, "dir/d");
        fails(p, ESTALE, store_remove(p->s, &p->op, keys, etags, 4, errs));
        ck_assert_int_eq(errs[0], -ESTALE);
        for (int i = 1; i < 4; i++)
            ck_assert_int_eq(errs[i], 0);
        assert_text(p, "dir/c", "c");
        assert_missing(p, "dir/b");
        assert_missing(p, "dir/d");

        put_versioned(p, "kind", "file", now);
        keys[0] = key(p, "kind");
        ok(p, store_remove(p->s, &p->op, keys, NULL, 1, NULL));
        ok(p, put_text(p, "kind/below", NULL, "stays"));
        ok(p, store_remove(p->s, &p->op, keys, etags + 1, 1, errs)); /* a directory is */
        assert_text(p, "kind/below", "stays");
    }
    place_close(p);
}
END_TEST

/* ---- rename ---- */

START_TEST(rename_objects)
{
    struct place *p = place_open(_i);

    ok(p, put_text(p, "a", NULL, "A"));
    if (!can(p, STORE_RENAME)) {
        fails(p, EOPNOTSUPP, store_rename(p->s, &p->op, key(p, "a"), key(p, "b")));
    } else {
        ok(p, put_text(p, "b", NULL, "B"));
        ok(p, store_rename(p->s, &p->op, key(p, "a"), key(p, "b")));
        assert_text(p, "b", "A");
        assert_missing(p, "a");
        ok(p, store_rename(p->s, &p->op, key(p, "b"), key(p, "new/dir/c")));
        assert_text(p, "new/dir/c", "A");
        ok(p, store_rename(p->s, &p->op, key(p, "new/dir/c"), key(p, "new/dir/c")));
        assert_text(p, "new/dir/c", "A");
        fails(p, ENOENT, store_rename(p->s, &p->op, key(p, "a"), key(p, "b")));
        ok(p, put_text(p, "other/x", NULL, "x"));
        fails(p, EISDIR, store_rename(p->s, &p->op, key(p, "new/dir/c"), key(p, "other")));
    }
    place_close(p);
}
END_TEST

START_TEST(rename_directories)
{
    struct place *p = place_open(_i);

    if (can(p, STORE_RENAME)) {
        ok(p, put_text(p, "a/x", NULL, "X"));
        ok(p, put_text(p, "a/y/z", NULL, "Z"));
        ok(p, put_text(p, "ab", NULL, "not below a"));
        ok(p, put_text(p, "full/x", NULL, "x"));
        fails(p, ENOTEMPTY, store_rename(p->s, &p->op, key(p, "a"), key(p, "full")));
        fails(p, ENOTDIR, store_rename(p->s, &p->op, key(p, "a"), key(p, "ab")));
        fails(p, EINVAL, store_rename(p->s, &p->op, key(p, "a"), key(p, "a/y/b")));
        ok(p, store_mkdir(p->s, &p->op, key(p, "empty"), NULL, NULL));
        ok(p, store_rename(p->s, &p->op, key(p, "a"), key(p, "empty")));
        assert_missing(p, "a");
        assert_text(p, "empty/x", "X");
        assert_text(p, "empty/y/z", "Z");
        assert_text(p, "ab", "not below a");
    }
    place_close(p);
}
END_TEST
