/* cache/types/attr_index.c: the text of an attribute index, and what is refused. */
#include "cache/types/attr_index.h"
#include "common/crc32c.h"
#include "common/mem.h"
#include "tests/unit/types/suites.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
    const char *name, *etag;
    uint64_t size;
    int64_t modified_ns;
    struct attrs attrs;
} files[] = {
    {"plain", "abc", 7, 1700000000000000000, {.has = 0}},
    {"with space\n%",
     "d41d-1",
     0,
     1700000000123000000,
     {.has = ATTR_MODE | ATTR_OWNER | ATTR_MTIME,
      .mode = S_IFREG | 0640,
      .uid = 4294967294U,
      .gid = 1,
      .mtime_ns = -1500000000}},
    {"sticky \x01",
     "x",
     0,
     1,
     {.has = ATTR_MODE | ATTR_RDEV, .mode = 01777, .rdev = UINT64_MAX}},
    {"\xff\xfe=",
     "=",
     INT64_MAX,
     INT64_MAX,
     {.has = ATTR_XATTRS, .xattrs = (char *)"{\"user.a\":\"AAEC\"}"}},
};

static void fill(struct index *x)
{
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        struct object obj = {.size = files[i].size, .mtime_ns = files[i].modified_ns};
        (void)snprintf(obj.etag, sizeof(obj.etag), "%s", files[i].etag);
        ck_assert_int_eq(index_add(x, files[i].name, &obj, &files[i].attrs), 0);
    }
}

/* How many entries the fullest place of a table has. */
static unsigned longest_walk(const struct index *x)
{
    const UT_hash_table *t = x->entries->hh.tbl;
    unsigned longest = 0;

    for (unsigned i = 0; i < t->num_buckets; i++)
        if (t->buckets[i].count > longest)
            longest = t->buckets[i].count;
    return longest;
}

/* Names that uthash's own hash puts into one place of 1,024: who names objects knows it. */
START_TEST(names_that_collide_do_not)
{
    const struct object obj = {.size = 1, .etag = "e"};
    const struct attrs none = {0};
    struct index x = {0};
    unsigned hash;
    char name[16];

    for (unsigned i = 0, n = 0; n < 1000; i++) {
        int len = snprintf(name, sizeof(name), "%u", i);
        HASH_JEN(name, (unsigned)len, hash);
        if (hash & 1023)
            continue;
        ck_assert_int_eq(index_add(&x, name, &obj, &none), 0);
        n++;
    }
    ck_assert_uint_lt(longest_walk(&x), 50);
    index_release(&x);
}
END_TEST

START_TEST(what_is_written_is_read)
{
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    struct index x = {0}, y = {0};

    fill(&x);
    ck_assert_int_eq(index_format(&x, "a dir/\n", &text), 0);
    ck_assert_int_eq(index_parse(text.data, text.len, "a dir/\n", &y), 0);
    ck_assert_uint_eq(HASH_COUNT(y.entries), ARRAY_SIZE(files));
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        struct object obj = {.size = files[i].size, .mtime_ns = files[i].modified_ns};
        struct index_entry *e = index_find(&y, files[i].name);
        (void)snprintf(obj.etag, sizeof(obj.etag), "%s", files[i].etag);
        ck_assert_msg(e && index_entry_fits(e, &obj), "%s", files[i].name);
        ck_assert(index_attrs_equal(&e->attrs, &files[i].attrs));
        obj.mtime_ns ^= 1;
        ck_assert(!index_entry_fits(e, &obj));
        obj.mtime_ns ^= 1;
        obj.size++;
        ck_assert(!index_entry_fits(e, &obj));
    }
    index_release(&x);
    index_release(&y);
}
END_TEST

static void sign(struct buf *text, char version)
{
    char head[32];
    const char *body = strchr(text->data, '\n') + 1;

    (void)snprintf(head, sizeof(head), "runfs-attrs %c %08" PRIx32 "\n", version,
                   crc32c(0, body, text->len - (size_t)(body - text->data)));
    memcpy(text->data, head, strlen(head));
}

/* The first version could say of files that they have no attributes, when it only did not know:
 * there nothing but a mode is believed. */
START_TEST(nothing_said_by_the_first_version_is_nothing_known)
{
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    struct index x = {0}, y = {0};

    fill(&x);
    ck_assert_int_eq(index_format(&x, "dir", &text), 0);
    sign(&text, '1');
    ck_assert_int_eq(index_parse(text.data, text.len, "dir", &y), 0);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        ck_assert_msg(!index_find(&y, files[i].name) == !(files[i].attrs.has & ATTR_MODE), "%s",
                      files[i].name);
    index_release(&y);
    sign(&text, '3');
    ck_assert_int_eq(index_parse(text.data, text.len, "dir", &y), -EINVAL);
    sign(&text, '2');
    ck_assert_int_eq(index_parse(text.data, text.len, "dir", &y), 0);
    ck_assert_uint_eq(HASH_COUNT(y.entries), ARRAY_SIZE(files));
    index_release(&x);
    index_release(&y);
}
END_TEST

START_TEST(damage_is_no_index)
{
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    struct index x = {0}, y;

    fill(&x);
    ck_assert_int_eq(index_format(&x, "dir", &text), 0);
    ck_assert_int_eq(index_parse(text.data, text.len, "other", &y), -EINVAL);
    for (size_t len = 0; len < text.len; len++)
        ck_assert_int_eq(index_parse(text.data, len, "dir", &y), -EINVAL);
    for (size_t i = 0; i < text.len; i++) {
        text.data[i] ^= 1;
        ck_assert_msg(index_parse(text.data, text.len, "dir", &y) == -EINVAL, "byte %zu", i);
        text.data[i] ^= 1;
    }
    index_release(&x);
}
END_TEST

/* With the right checksum: what somebody could write who may. */
START_TEST(hostile_lines_are_no_index)
{
    static const char *const lines[] = {
        "",
        "1 0 =e 0 0 0 0 0 0 = = =name",  /* no end of the line */
        "1 0 =e 0 0 0 0 0 0 = = =a/b\n", /* no name */
        "1 0 =e 0 0 0 0 0 0 = = =..\n",
        "1 0 =e 0 0 0 0 0 0 = = =\n",
        "1 0 =e 0 0 0 0 0 0 = = =%00\n",
        "1 0 =e 0 0 0 0 0 0 = = =%2\n",
        "1 0 =e 0 0 0 0 0 0 = = =a =b\n", /* too many words */
        "1 0 =e 0 0 0 0 0 0 = =\n",       /* too few */
        "1 -1 =e 0 0 0 0 0 0 = = =a\n",   /* numbers */
        "99999999999999999999 0 =e 0 0 0 0 0 0 = = =a\n",
        "x 0 =e 0 0 0 0 0 0 = = =a\n",
        "1 0 =e 0 0 4294967296 0 0 0 = = =a\n",
        "1 0 e 0 0 0 0 0 0 = = =a\n", /* words */
        "1 0 =e 0 0 0 0 0 0 x = =a\n",
        "1 0 =e 40 0 0 0 0 0 = = =a\n",        /* attributes that an index has not */
        "1 0 =e 1 40755 0 0 0 0 = = =a\n",     /* a directory */
        "1 1 =e 1 20600 0 0 0 0 = = =a\n",     /* a device with content */
        "1 1 =e 11 120777 0 0 0 0 =to = =a\n", /* a symlink with content */
        "1 0 =e 1 120777 0 0 0 0 = = =a\n",    /* a symlink to nowhere */
        "1 0 =e 11 120777 0 0 0 0 = = =a\n",
        "1 0 =e 11 100644 0 0 0 0 =to = =a\n",                    /* a file with a target */
        "1 0 =e 1 1100644 0 0 0 0 = = =a\n",                      /* bits that no mode has */
        "1 0 =e 0 0 0 0 0 0 = = =a\n1 0 =e 0 0 0 0 0 0 = = =a\n", /* twice */
    };
    struct index y;

    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        auto_buf struct buf text = BUF_INIT(4096), body = BUF_INIT(4096);
        ck_assert_int_eq(buf_addf(&body, "=d%s%s", *lines[i] ? "\n" : "", lines[i]), 0);
        ck_assert_int_eq(buf_addf(&text, "runfs-attrs 2 %08" PRIx32 "\n%s",
                                  crc32c(0, body.data, body.len), body.data),
                         0);
        ck_assert_msg(index_parse(text.data, text.len, "d", &y) == -EINVAL, "%s", lines[i]);
    }
}
END_TEST

/* Nothing that would give rights or lead elsewhere is in an index, or taken from one. */
START_TEST(only_the_object_gives_rights)
{
    static const struct attrs rights[] = {
        {.has = ATTR_MODE, .mode = S_IFREG | 04755},
        {.has = ATTR_MODE | ATTR_OWNER, .mode = S_IFREG | 02755},
        {.has = ATTR_MODE | ATTR_TARGET,
         .mode = S_IFLNK | 0777,
         .target = (char *)"/etc/passwd"},
        {.has = ATTR_MODE | ATTR_RDEV, .mode = S_IFCHR | 0666, .rdev = 1},
        {.has = ATTR_MODE, .mode = S_IFIFO | 0666},
        {.has = ATTR_XATTRS, .xattrs = (char *)"{\"security.capability\":\"AAEC\"}"},
        {.has = ATTR_XATTRS,
         .xattrs = (char *)"{\"user.a\":\"\",\"\\u0074rusted.x\":\"AAEC\"}"},
        {.has = ATTR_XATTRS, .xattrs = (char *)"{\"system.x\":\"AAEC\"}"},
    };
    static const char lines[] = "=d\n1 0 =e 1 104755 0 0 0 0 = = =set-id\n"
                                "1 0 =e 11 120777 0 0 0 0 =/etc/passwd = =link\n"
                                "1 0 =e 9 20666 0 0 0 1 = = =device\n"
                                "1 0 =e 20 0 0 0 0 0 = ={\"security.capability\":\"AAEC\"} =x\n"
                                "1 0 =e 1 100644 0 0 0 0 = = =plain\n";
    auto_buf struct buf text = BUF_INIT(4096);
    struct object obj = {.etag = "e"};
    struct index x = {0}, y = {0};

    for (size_t i = 0; i < ARRAY_SIZE(rights); i++)
        ck_assert_int_eq(index_add(&x, "a", &obj, &rights[i]), -EPERM);
    ck_assert_int_eq(buf_addf(&text, "runfs-attrs 2 %08" PRIx32 "\n%s",
                              crc32c(0, lines, sizeof(lines) - 1), lines),
                     0);
    ck_assert_int_eq(index_parse(text.data, text.len, "d", &y), 0);
    ck_assert_uint_eq(HASH_COUNT(y.entries), 1);
    ck_assert_ptr_nonnull(index_find(&y, "plain"));
    index_release(&y);
}
END_TEST

START_TEST(it_is_bounded)
{
    struct object obj = {.etag = "e"};
    struct attrs none = {0};
    struct index x = {0};
    char name[300];

    memset(name, 'n', 256);
    name[256] = '\0';
    ck_assert_int_eq(index_add(&x, name, &obj, &none), -E2BIG);
    for (unsigned i = 0; i < INDEX_ENTRIES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "%u", i);
        ck_assert_int_eq(index_add(&x, name, &obj, &none), 0);
    }
    ck_assert_int_eq(index_add(&x, "one more", &obj, &none), -E2BIG);
    auto_buf struct buf text = BUF_INIT(1000);
    ck_assert_int_eq(index_format(&x, "dir", &text), -EFBIG);
    index_release(&x);
}
END_TEST

START_TEST(keys_differ)
{
    char a[INDEX_KEY_MAX], b[INDEX_KEY_MAX];

    ck_assert_int_eq(index_key(place_of_path(""), a), 0);
    ck_assert_int_eq(index_key(place_of_path("a"), b), 0);
    ck_assert_str_ne(a, b);
    ck_assert_int_eq(index_part_key("a", a), 0);
    ck_assert_str_ne(a, b);
    ck_assert_str_eq(b, STORE_STATE_DIR
                     "/attrs/ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785"
                     "afee48bb");
}
END_TEST

/* ---- parts of the tree's ---- */

static void fill_part(struct index_part *p)
{
    static const char *const dirs[] = {"runs/r1", "", "runs", "runs/r1-old", "runs/r1/logs"};

    for (size_t k = 0; k < ARRAY_SIZE(dirs); k++)
        for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
            struct object obj = {.size = files[i].size, .mtime_ns = files[i].modified_ns};
            (void)snprintf(obj.etag, sizeof(obj.etag), "%s", files[i].etag);
            ck_assert_int_eq(
                index_add_in(&p->files, dirs[k], files[i].name, &obj, &files[i].attrs), 0);
            ck_assert_int_eq(
                index_add_in(&p->files, dirs[k], files[i].name, &obj, &files[i].attrs),
                -EEXIST);
        }
    index_part_sort(p);
}

START_TEST(a_part_that_is_written_is_read)
{
    static const char *const starts[] = {"z/", "runs/r2/", "runs/r2/", "a b/\n/"};
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    struct index_part p = {0}, q = {0};
    struct index_entry *e, *next;

    fill_part(&p);
    for (size_t i = 0; i < ARRAY_SIZE(starts); i++)
        ck_assert_int_eq(index_part_add_start(&p, starts[i]), 0);
    ck_assert_uint_eq(p.n_starts, 3);
    ck_assert_int_eq(index_part_format(&p, "", &text), 0);
    ck_assert_int_eq(index_part_parse(text.data, text.len, "", &q), 0);
    ck_assert_uint_eq(q.n_starts, 3);
    for (size_t i = 0; i < 3; i++)
        ck_assert_str_eq(q.starts[i], p.starts[i]);
    ck_assert_uint_eq(HASH_COUNT(q.files.entries), HASH_COUNT(p.files.entries));
    HASH_ITER(hh, p.files.entries, e, next)
    {
        struct index_entry *f = index_find(&q.files, e->name);
        ck_assert_msg(f && f->size == e->size && f->modified_ns == e->modified_ns &&
                          strcmp(f->etag, e->etag) == 0 &&
                          index_attrs_equal(&f->attrs, &e->attrs),
                      "%s", e->name);
    }
    ck_assert_int_eq(index_part_parse(text.data, text.len, "z/", &p), -EINVAL);
    ck_assert_int_eq(index_parse(text.data, text.len, "", &p.files), -EINVAL);
    for (size_t len = 0; len < text.len; len++)
        ck_assert_int_eq(index_part_parse(text.data, len, "", &p), -EINVAL);
    index_part_release(&p);
    index_part_release(&q);
}
END_TEST

/* A directory's marker is an entry without a name. */
START_TEST(markers_are_entries_of_their_own)
{
    struct object obj = {.is_prefix = true, .etag = "e", .mtime_ns = 5}, file = obj;
    const struct attrs a = {.has = INDEX_MARKER_ATTRS,
                            .mode = S_IFDIR | 01750,
                            .uid = 1,
                            .gid = 2,
                            .mtime_ns = -7,
                            .xattrs = (char *)"{\"user.a\": \"AA==\"}"};
    const struct attrs wrong[] = {
        {.has = ATTR_MODE, .mode = S_IFREG | 0755},
        {.has = ATTR_MODE, .mode = S_IFDIR | 0200755},
        {.has = ATTR_RDEV, .rdev = 1},
        {.has = ATTR_TARGET, .target = (char *)"t"},
        {.has = ATTR_ORIGIN},
    };
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    struct index_part p = {0}, q = {0};

    file.is_prefix = false;
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        ck_assert_int_eq(index_add_in(&p.files, "runs/r1", "", &obj, &wrong[i]), -E2BIG);
    ck_assert_int_eq(index_add_in(&p.files, "", "", &obj, &a), -E2BIG); /* the root has none */
    ck_assert_int_eq(index_add_in(&p.files, "runs/r1", "", &obj, &a), 0);
    ck_assert_int_eq(index_add_in(&p.files, "runs/r1", "", &obj, &a), -EEXIST);
    ck_assert_int_eq(index_add_in(&p.files, "runs", "r1", &file, &(struct attrs){0}), 0);
    ck_assert_int_eq(index_add_in(&p.files, "runs/r1", "f", &file, &(struct attrs){0}), 0);
    index_part_sort(&p);
    ck_assert_int_eq(index_part_format(&p, "", &text), 0);
    ck_assert_int_eq(strncmp(text.data, "runfs-trees 2 ", 14), 0); /* older readers take none */
    ck_assert_int_eq(index_part_parse(text.data, text.len, "", &q), 0);
    ck_assert_uint_eq(HASH_COUNT(q.files.entries), 3);
    struct index_entry *marker = index_find(&q.files, "runs/r1/");
    ck_assert(marker && index_attrs_equal(&marker->attrs, &a));
    ck_assert(index_entry_fits(marker, &obj));
    ck_assert(!index_entry_fits(marker, &file)); /* the object beside the directory */
    ck_assert(index_entry_fits(index_find(&q.files, "runs/r1"), &file));
    ck_assert(!index_entry_fits(index_find(&q.files, "runs/r1"), &obj));
    obj.mtime_ns++;
    ck_assert(!index_entry_fits(marker, &obj));
    index_part_release(&p);
    index_part_release(&q);
}
END_TEST

/* Places are in the order in which a listing has the keys below them. */
START_TEST(parts_are_found_by_rank)
{
    static const struct {
        const char *place, *start, *end;
    } wanted[] = {
        {"", "", "b/"},         {"a/", "", "b/"},         {"b", "", "b/"},
        {"b/", "b/", "b/c/"},   {"b/a/", "b/", "b/c/"},   {"b-x/", "", "b/"},
        {"b/c/", "b/c/", "d/"}, {"b/c/d/", "b/c/", "d/"}, {"b0/", "b/c/", "d/"},
        {"d/", "d/", NULL},     {"\xff/", "d/", NULL},
    };
    struct index_part p = {0};
    const char *end;

    ck_assert_str_eq(index_part_of(&p, "x/", &end), "");
    ck_assert_ptr_null(end);
    ck_assert_int_eq(index_part_add_start(&p, "d/"), 0);
    ck_assert_int_eq(index_part_add_start(&p, "b/"), 0);
    ck_assert_int_eq(index_part_add_start(&p, "b/c/"), 0);
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        ck_assert_str_eq(index_part_of(&p, wanted[i].place, &end), wanted[i].start);
        ck_assert_msg(end == wanted[i].end || strcmp(end, wanted[i].end) == 0, "%s",
                      wanted[i].place);
    }
    ck_assert_int_lt(index_rank_cmp("b/file", "b/c/"), 0);
    ck_assert_int_eq(index_rank_cmp("b/c/file", "b/c/"), 0);
    ck_assert_int_gt(index_rank_cmp("b/c/d/file", "b/c/"), 0);
    ck_assert_int_eq(index_rank_cmp("file", ""), 0);
    index_part_release(&p);
}
END_TEST

START_TEST(hostile_parts_are_none)
{
    static const char *const lines[] = {
        "+=a\n", /* no place */
        "+=/\n",
        "+=\n",
        "+=../\n",
        "+=a//\n",
        "+a/\n",
        "+=a/\n+=a/\n", /* twice, out of order, too late */
        "+=b/\n+=a/\n",
        "=a\n+=b/\n",
        "1 0 =e 0 0 0 0 0 0 = = =name\n", /* nowhere */
        "=..\n1 0 =e 0 0 0 0 0 0 = = =name\n",
        "=a/\n1 0 =e 0 0 0 0 0 0 = = =name\n",
        "=/a\n1 0 =e 0 0 0 0 0 0 = = =name\n",
        "=a%00\n1 0 =e 0 0 0 0 0 0 = = =name\n",
        "=a\n1 0 =e 0 0 0 0 0 0 = = =a/b\n",
        "=a\n1 0 =e 0 0 0 0 0 0 = = =n\n=a\n1 0 =e 0 0 0 0 0 0 = = =n\n", /* twice */
        "=a\n1 0 =e 1 40755 0 0 0 0 = = =n\n",                            /* a directory */
        "=a\n1 0 =e 1 100644 0 0 0 0 = = =\n", /* a marker that is a file, ... */
        "=a\n1 0 =e 1 120777 0 0 0 0 =t = =\n",
        "=a\n1 0 =e 8 0 0 0 0 1 = = =\n",
        "=a\n1 0 =e 0 0 0 0 0 0 = = =\n1 0 =e 0 0 0 0 0 0 = = =\n", /* twice, of the root */
        "=\n1 0 =e 0 0 0 0 0 0 = = =\n",
        "=a",
        "\n",
    };
    struct index_part p;

    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        auto_buf struct buf text = BUF_INIT(4096), body = BUF_INIT(4096);
        ck_assert_int_eq(buf_addf(&body, "=\n%s", lines[i]), 0);
        ck_assert_int_eq(buf_addf(&text, "runfs-trees %d %08" PRIx32 "\n%s", (int)(i % 2) + 1,
                                  crc32c(0, body.data, body.len), body.data),
                         0);
        ck_assert_msg(index_part_parse(text.data, text.len, "", &p) == -EINVAL, "%s", lines[i]);
    }
}
END_TEST

START_TEST(parts_are_bounded)
{
    struct index_part p = {0};
    struct object obj = {.etag = "e"};
    struct attrs none = {0};
    char text[PATH_KEY_MAX + 8];

    for (unsigned i = 0; i < INDEX_PARTS_MAX; i++) {
        (void)snprintf(text, sizeof(text), "%04u/", i);
        ck_assert_int_eq(index_part_add_start(&p, text), 0);
    }
    ck_assert_int_eq(index_part_add_start(&p, "x/"), -E2BIG);
    memset(text, 'd', sizeof(text));
    for (size_t i = 200; i < sizeof(text); i += 200)
        text[i] = '/';
    text[PATH_KEY_MAX - 3] = '\0';
    ck_assert_int_eq(index_add_in(&p.files, text, "n", &obj, &none), 0);
    ck_assert_int_eq(index_add_in(&p.files, text, "nn", &obj, &none), -E2BIG);
    index_part_release(&p);
}
END_TEST

Suite *attr_index_suite(void)
{
    Suite *s = suite_create("attr_index");
    TCase *t = tcase_create("attr_index");

    tcase_add_test(t, names_that_collide_do_not);
    tcase_add_test(t, what_is_written_is_read);
    tcase_add_test(t, nothing_said_by_the_first_version_is_nothing_known);
    tcase_add_test(t, damage_is_no_index);
    tcase_add_test(t, hostile_lines_are_no_index);
    tcase_add_test(t, only_the_object_gives_rights);
    tcase_add_test(t, it_is_bounded);
    tcase_add_test(t, keys_differ);
    tcase_add_test(t, a_part_that_is_written_is_read);
    tcase_add_test(t, markers_are_entries_of_their_own);
    tcase_add_test(t, parts_are_found_by_rank);
    tcase_add_test(t, hostile_parts_are_none);
    tcase_add_test(t, parts_are_bounded);
    suite_add_tcase(s, t);
    return s;
}
