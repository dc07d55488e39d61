/* cache/: the index of attributes that a directory has at the store. Requests are counted: it
 * stands for HEADs, is believed only where it is right, and gives nobody rights. */
#include "backends/store.h"
#include "cache/types/attr_index.h"
#include "common/mem.h"
#include "tests/lib/attrs_counted.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void forget_counts(void)
{
    atomic_uint *counts[] = {&seen.files, &seen.dirs, &seen.most,       &seen.lists,
                             &seen.reads, &seen.puts, &seen.index_puts, &seen.removes};

    for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
        atomic_store(counts[i], 0);
}

static char *index_of_dir(const char *dir)
{
    static char key[INDEX_KEY_MAX];

    ck_assert_int_eq(index_key(place_of_path(dir), key), 0);
    return key;
}

/* How many files the stored index of `dir` has; -ENOENT, or -EINVAL when it is none. */
static int indexed(struct driven *d, const char *dir)
{
    auto_free char *text = malloc(1 << 20);
    struct index x = {0};
    ssize_t n = driven_stored(d, index_of_dir(dir), text, 1 << 20);

    if (n < 0)
        return (int)n;
    int r = index_parse(text, (size_t)n, dir, &x);
    if (r < 0)
        return r;
    int files = (int)HASH_COUNT(x.entries);
    index_release(&x);
    return files;
}

static void write_indexes(struct driven *d)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    cache_write_indexes(d->cache, &op);
}

/* ---- written and read ---- */

START_TEST(who_paid_the_heads_writes_the_index)
{
    struct driven d;

    place(&d);
    d.config.index_settle_ns = 6 * NS_PER_SEC;
    store_files(&d, FILES);
    driven_mount(&d);
    check_files(&d, FILES);
    ck_assert_uint_eq(atomic_load(&seen.files), FILES);
    DRIVEN_WAIT(indexed(&d, "dir") == FILES); /* by itself */
    ck_assert_uint_eq(atomic_load(&seen.index_puts), 1);
    ck_assert_int_eq(driven_list(&d, ""), 1); /* what is ours is not seen */
    driven_mount_afresh(&d);
    forget_counts();
    check_files(&d, FILES);
    ck_assert_uint_eq(heads(), 0);
    ck_assert_uint_le(atomic_load(&seen.lists), 2);
    ck_assert_uint_eq(atomic_load(&seen.reads), 1);
    ck_assert_uint_eq(atomic_load(&seen.index_puts), 0);
    driven_release(&d);
}
END_TEST

START_TEST(who_uploaded_writes_the_index)
{
    struct driven d;
    struct stat st;

    place(&d);
    driven_mount(&d);
    for (int i = 0; i < FILES; i++) {
        driven_put(&d, dir_of(i % 2, ""), "x", 1); /* too few for an index */
        driven_put(&d, name_of(i) + 4, "x", 1);
    }
    ck_assert_int_eq(driven_chmod(&d, name_of(3) + 4, 0640), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    write_indexes(&d);
    ck_assert_int_eq(indexed(&d, ""), FILES + 2);
    driven_mount_afresh(&d);
    forget_counts();
    for (int i = 0; i < FILES; i++) {
        ck_assert_int_eq(driven_stat(&d, name_of(i) + 4, &st), 0);
        ck_assert_uint_eq(st.st_mode, S_IFREG | (i == 3 ? 0640 : 0644));
    }
    ck_assert_uint_eq(heads(), 0);
    driven_release(&d);
}
END_TEST

/* What the index says counts for the very version that is listed, else the store is asked. */
START_TEST(an_index_is_believed_where_it_fits)
{
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    const struct attrs wrong = {.has = ATTR_MODE, .mode = S_IFREG | 0111};
    struct index x = {0};
    struct object obj;
    struct driven d;
    struct op op;

    place(&d);
    store_files(&d, FILES);
    op_init(&op, 10 * NS_PER_SEC);
    for (int i = 0; i < FILES; i++) {
        ck_assert_int_eq(store_stat(d.store->next, &op, name_of(i), &obj), 0);
        switch (i % 4) {
        case 0: /* right */
            ck_assert_int_eq(index_add(&x, name_of(i) + 4, &obj, &obj.attrs), 0);
            break;
        case 1: /* the same bytes once more */
            obj.mtime_ns++;
            ck_assert_int_eq(index_add(&x, name_of(i) + 4, &obj, &wrong), 0);
            break;
        case 2:
            obj.etag[0] ^= 1;
            ck_assert_int_eq(index_add(&x, name_of(i) + 4, &obj, &wrong), 0);
            break;
        default: /* it lacks */
            break;
        }
        object_release(&obj);
    }
    ck_assert_int_eq(index_format(&x, "dir", &text), 0);
    index_release(&x);
    put_anything(d.store->next, index_of_dir("dir"), &text);
    driven_mount(&d);
    check_files(&d, FILES);
    ck_assert_uint_eq(atomic_load(&seen.files), FILES * 3 / 4);
    write_indexes(&d);
    ck_assert_int_eq(indexed(&d, "dir"), FILES); /* mended */
    driven_release(&d);
}
END_TEST

/* ---- what it may not do ---- */

/* An index that says of each second file that it is somebody else's, and everybody's. */
static void store_false_index(struct driven *d, int n)
{
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    const struct attrs wrong = {
        .has = ATTR_MODE | ATTR_OWNER, .mode = S_IFREG | 0777, .uid = 4711, .gid = 4711};
    struct index x = {0};
    struct object obj;
    struct op op;

    op_init(&op, 10 * NS_PER_SEC);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(store_stat(d->store->next, &op, name_of(i), &obj), 0);
        ck_assert_int_eq(index_add(&x, name_of(i) + 4, &obj, i % 2 ? &wrong : &obj.attrs), 0);
        object_release(&obj);
    }
    ck_assert_int_eq(index_format(&x, "dir", &text), 0);
    index_release(&x);
    put_anything(d->store->next, index_of_dir("dir"), &text);
}

static int try_open(struct driven *d, const char *path)
{
    struct handle *h;
    int r = driven_open(d, path, O_RDONLY, &h);

    return r < 0 ? r : driven_close(d, h);
}

/* Where others come in, what an index says lets nobody in: the kernel looks again. */
START_TEST(an_index_gives_no_rights)
{
    struct driven d;
    struct stat st;

    place(&d);
    d.config.shared = true;
    store_files(&d, 20);
    store_false_index(&d, 20);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, name_of(1), &st), 0);
    ck_assert_uint_eq(st.st_uid, 4711); /* told, so far */
    ck_assert_uint_eq(atomic_load(&seen.files), 0);
    ck_assert_int_eq(try_open(&d, name_of(0)), 0);
    ck_assert_uint_eq(atomic_load(&seen.files), 1);
    ck_assert_int_eq(try_open(&d, name_of(0)), 0);
    ck_assert_int_eq(try_open(&d, name_of(1)), 0); /* after -ESTALE and another look */
    ck_assert_int_eq(driven_stat(&d, name_of(1), &st), 0);
    ck_assert_uint_ne(st.st_uid, 4711);
    ck_assert_int_eq(driven_chmod(&d, name_of(3), 0700), -ESTALE);
    ck_assert_int_eq(driven_setxattr(&d, name_of(5), "user.a", "b", 1, 0), -ESTALE);
    ck_assert_int_eq(driven_truncate(&d, name_of(7), 0), -ESTALE);
    ck_assert_uint_eq(atomic_load(&seen.files), 5);
    for (int i = 1; i < 9; i += 2) {
        ck_assert_int_eq(driven_stat(&d, name_of(i), &st), 0);
        ck_assert_uint_ne(st.st_uid, 4711);
        ck_assert_uint_eq(st.st_mode, S_IFREG | (0600 + (unsigned)i));
        ck_assert_int_eq(try_open(&d, name_of(i)), 0);
    }
    ck_assert_uint_eq(atomic_load(&seen.files), 5);
    driven_release(&d);
}
END_TEST

/* Nor what a mount of one's own believed it, whose cache is shared now. */
START_TEST(an_index_gives_no_rights_later)
{
    struct driven d;
    struct stat st;
    char text[8];

    place(&d);
    store_files(&d, 20);
    store_false_index(&d, 20);
    driven_mount(&d);
    for (int i = 1; i < 5; i += 2) {
        ck_assert_int_eq(driven_stat(&d, name_of(i), &st), 0);
        ck_assert_uint_eq(st.st_uid, 4711);
        ck_assert_int_eq(driven_read(&d, name_of(i), text, sizeof(text)), 7);
    }
    driven_unmount(&d);
    d.config.shared = true;
    driven_mount(&d);
    for (int i = 1; i < 5; i += 2) {
        ck_assert_int_eq(driven_stat(&d, name_of(i), &st), 0);
        ck_assert_int_eq(try_open(&d, name_of(i)), 0); /* after -ESTALE and another look */
        ck_assert_int_eq(driven_stat(&d, name_of(i), &st), 0);
        ck_assert_uint_ne(st.st_uid, 4711);
    }
    driven_release(&d);
}
END_TEST

/* Nor under another name, which only this cache knows yet; and in a sticky directory nobody
 * takes a file away that it says is his. */
START_TEST(an_index_gives_no_rights_to_names)
{
    struct driven d;
    struct stat st;

    place(&d);
    d.config.shared = true;
    store_files(&d, 20);
    store_false_index(&d, 20);
    driven_mount(&d);
    ck_assert_int_eq(driven_chmod(&d, "dir", 0777), 0);
    ck_assert_int_eq(driven_stat(&d, name_of(1), &st), 0);
    ck_assert_uint_eq(st.st_uid, 4711);
    ck_assert_int_eq(driven_rename(&d, name_of(1), "moved"), -ESTALE);
    ck_assert_int_eq(driven_rename(&d, name_of(1), "moved"), 0);
    ck_assert_int_eq(driven_stat(&d, "moved", &st), 0);
    ck_assert_uint_ne(st.st_uid, 4711);
    ck_assert_uint_eq(st.st_mode, S_IFREG | 0601);
    ck_assert_int_eq(driven_link(&d, name_of(3), "linked"), -ESTALE);
    ck_assert_int_eq(driven_exchange(&d, name_of(5), "dir/0000"), -ESTALE);
    ck_assert_int_eq(driven_unlink(&d, name_of(7)), 0);
    ck_assert_int_eq(driven_chmod(&d, "dir", 01777), 0);
    ck_assert_int_eq(driven_unlink(&d, name_of(9)), -ESTALE);
    ck_assert_int_eq(driven_unlink(&d, name_of(9)), 0);
    ck_assert_int_eq(driven_rename(&d, "dir/0002", "dir/0011"), -ESTALE);
    ck_assert_int_eq(driven_rename(&d, "dir/0002", "dir/0011"), 0);
    driven_release(&d);
}
END_TEST

/* Neither does an ACL that it tells. */
START_TEST(an_index_gives_no_acl)
{
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    struct attrs wrong = {.has = ATTR_MODE | ATTR_XATTRS,
                          .mode = S_IFREG,
                          .xattrs = (char *)"{\"system.posix_acl_access\":\"AAEC\"}"};
    struct index x = {0};
    struct object obj;
    struct driven d;
    struct stat st;
    struct op op;

    place(&d);
    d.config.shared = d.config.acl = true;
    store_files(&d, 20);
    op_init(&op, 10 * NS_PER_SEC);
    for (int i = 0; i < 20; i++) {
        ck_assert_int_eq(store_stat(d.store->next, &op, name_of(i), &obj), 0);
        wrong.mode = obj.attrs.mode;
        ck_assert_int_eq(index_add(&x, name_of(i) + 4, &obj, &wrong), 0);
        object_release(&obj);
    }
    ck_assert_int_eq(index_format(&x, "dir", &text), 0);
    index_release(&x);
    put_anything(d.store->next, index_of_dir("dir"), &text);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, name_of(1), &st), 0);
    ck_assert_uint_eq(atomic_load(&seen.files), 0);
    ck_assert_int_eq(driven_chmod(&d, name_of(1), 0700), -ESTALE);
    ck_assert_int_eq(driven_chmod(&d, name_of(1), 0700), 0);
    ck_assert_uint_eq(atomic_load(&seen.files), 1);
    driven_release(&d);
}
END_TEST

/* Where nobody else comes in it is good enough. */
START_TEST(an_index_of_ones_own_costs_nothing)
{
    struct driven d;
    struct stat st;

    place(&d);
    store_files(&d, 20);
    store_false_index(&d, 20);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, name_of(1), &st), 0);
    ck_assert_int_eq(try_open(&d, name_of(1)), 0);
    ck_assert_uint_eq(atomic_load(&seen.files), 0);
    driven_release(&d);
}
END_TEST

/* ---- others write it, or nobody does ---- */

START_TEST(what_is_no_index_is_asked_and_replaced)
{
    auto_buf struct buf garbage = BUF_INIT(1 << 20);
    struct driven d;

    place(&d);
    store_files(&d, FILES);
    for (int i = 0; i < 50000; i++)
        ck_assert_int_eq(buf_addc(&garbage, (char)(i * 31)), 0);
    if (_i == 1) /* another directory's */
        memcpy(garbage.data, "runfs-attrs 1 00000000\n=other\n", 30);
    garbage.len = _i == 2 ? 1 : garbage.len;
    put_anything(d.store->next, index_of_dir("dir"), &garbage);
    driven_mount(&d);
    check_files(&d, FILES);
    ck_assert_uint_eq(atomic_load(&seen.files), FILES);
    write_indexes(&d);
    ck_assert_int_eq(indexed(&d, "dir"), FILES);
    driven_release(&d);
}
END_TEST

/* Another mount puts its index between our reading and our putting: both are in the result. */
START_TEST(two_writers_lose_nothing)
{
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    struct index x = {0};
    struct object obj;
    struct driven d;
    struct op op;

    place(&d);
    store_files(&d, FILES);
    driven_mount(&d);
    op_init(&op, 10 * NS_PER_SEC);
    for (int i = FILES / 2; i < FILES; i++) {
        ck_assert_int_eq(store_stat(d.store->next, &op, name_of(i), &obj), 0);
        ck_assert_int_eq(index_add(&x, name_of(i) + 4, &obj, &obj.attrs), 0);
        object_release(&obj);
    }
    ck_assert_int_eq(index_format(&x, "dir", &text), 0);
    index_release(&x);
    atomic_store(&seen.race, &text);
    check_files(&d, FILES / 2 - 100);
    write_indexes(&d);
    ck_assert_int_ge(indexed(&d, "dir"), FILES - 100); /* HEADs ahead of the walk count, too */
    ck_assert_uint_ge(atomic_load(&seen.index_puts), 2);
    driven_release(&d);
}
END_TEST

/* Two mounts wrote the same bytes under one name at one time, and each says what it wrote:
 * nobody knows who came last but the store. */
START_TEST(claims_that_contradict_are_dropped)
{
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    const struct attrs theirs = {.has = ATTR_MODE, .mode = S_IFREG | 0111};
    struct index x = {0};
    struct object obj;
    struct driven d;
    struct op op;

    place(&d);
    driven_mount(&d);
    for (int i = 0; i < FILES; i++)
        driven_put(&d, name_of(i) + 4, "x", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    write_indexes(&d);
    ck_assert_int_eq(indexed(&d, ""), FILES);
    op_init(&op, 10 * NS_PER_SEC);
    ck_assert_int_eq(store_stat(d.store->next, &op, name_of(9) + 4, &obj), 0);
    ck_assert_int_eq(index_add(&x, name_of(9) + 4, &obj, &theirs), 0);
    object_release(&obj);
    ck_assert_int_eq(index_format(&x, "", &text), 0);
    index_release(&x);
    put_anything(d.store->next, index_of_dir(""), &text);
    driven_put(&d, "another", "x", 1); /* a reason to write */
    ck_assert_int_eq(driven_flush(&d), 0);
    write_indexes(&d);
    ck_assert_int_eq(indexed(&d, ""), FILES); /* one more, one less */
    driven_release(&d);
}
END_TEST

/* A place that may not be written costs one attempt, and nobody hears of it. */
START_TEST(an_index_that_is_refused_hurts_nobody)
{
    struct cache_stats s;
    struct driven d;

    place(&d);
    store_files(&d, FILES);
    atomic_store(&seen.refuse_index, _i ? -EIO : -EACCES);
    driven_mount(&d);
    check_files(&d, FILES);
    driven_put(&d, "dir/new", "x", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    write_indexes(&d);
    driven_put(&d, "dir/newer", "x", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    write_indexes(&d);
    if (_i == 0)
        ck_assert_uint_eq(atomic_load(&seen.index_puts), 1);
    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.dirty_files + s.pending_ops + s.failed_files, 0);
    ck_assert_int_eq(s.last_error, 0);
    driven_release(&d);
}
END_TEST

START_TEST(small_and_read_only_places_get_no_index)
{
    struct driven d;

    place(&d);
    store_files(&d, 10);
    driven_mount(&d);
    check_files(&d, 10);
    write_indexes(&d);
    ck_assert_int_eq(indexed(&d, "dir"), -ENOENT);
    ck_assert_uint_eq(atomic_load(&seen.reads), 0); /* nor is it looked for */
    driven_unmount(&d);
    store_files(&d, FILES);
    d.config.read_only = true;
    driven_mount_afresh(&d);
    check_files(&d, FILES);
    write_indexes(&d);
    ck_assert_int_eq(indexed(&d, "dir"), -ENOENT);
    driven_release(&d);
}
END_TEST

/* The directory is gone, its index goes. */
START_TEST(the_index_goes_with_its_directory)
{
    struct driven d;

    place(&d);
    store_files(&d, FILES);
    driven_mount(&d);
    check_files(&d, FILES);
    write_indexes(&d);
    ck_assert_int_eq(indexed(&d, "dir"), FILES);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    DRIVEN_WAIT(indexed(&d, "dir") == -ENOENT);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_index");
    TCase *t = tcase_create("cache_index");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, who_paid_the_heads_writes_the_index);
    tcase_add_test(t, who_uploaded_writes_the_index);
    tcase_add_test(t, an_index_is_believed_where_it_fits);
    tcase_add_test(t, an_index_gives_no_rights);
    tcase_add_test(t, an_index_gives_no_rights_to_names);
    tcase_add_test(t, an_index_gives_no_rights_later);
    tcase_add_test(t, an_index_gives_no_acl);
    tcase_add_test(t, an_index_of_ones_own_costs_nothing);
    tcase_add_loop_test(t, what_is_no_index_is_asked_and_replaced, 0, 3);
    tcase_add_test(t, two_writers_lose_nothing);
    tcase_add_test(t, claims_that_contradict_are_dropped);
    tcase_add_loop_test(t, an_index_that_is_refused_hurts_nobody, 0, 2);
    tcase_add_test(t, small_and_read_only_places_get_no_index);
    tcase_add_test(t, the_index_goes_with_its_directory);
    suite_add_tcase(s, t);
    return suite_run(s);
}
