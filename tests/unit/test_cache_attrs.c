/* cache/: attributes that no listing carries. Requests are counted: HEADs in parallel and each
 * once, or an index instead, believed only where it is right. */
#include "backends/store.h"
#include "cache/types/attr_index.h"
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 300

/* ---- counting ---- */

static struct {
    atomic_uint files, dirs;        /* HEADs */
    atomic_uint running, most;      /* HEADs at the same time */
    atomic_uint lists, reads, puts; /* puts of files */
    atomic_uint index_puts, removes;
    atomic_bool gone;                 /* HEADs fail */
    atomic_bool slow;                 /* HEADs take a while */
    atomic_int refuse_index;          /* puts of indexes fail with this */
    _Atomic(const struct buf *) race; /* what another mount puts before the next index is put */
} seen;

static unsigned heads(void)
{
    return atomic_load(&seen.files) + atomic_load(&seen.dirs);
}

static void forget_counts(void)
{
    atomic_uint *counts[] = {&seen.files, &seen.dirs, &seen.most,       &seen.lists,
                             &seen.reads, &seen.puts, &seen.index_puts, &seen.removes};

    for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
        atomic_store(counts[i], 0);
}

static int64_t count_head(struct call *c)
{
    unsigned now = atomic_fetch_add(&seen.running, 1) + 1, most = atomic_load(&seen.most);

    while (now > most && !atomic_compare_exchange_weak(&seen.most, &most, now))
        ;
    atomic_fetch_add(c->self ? &seen.dirs : &seen.files, 1);
    if (atomic_load(&seen.slow))
        (void)usleep(3000);
    int64_t r = atomic_load(&seen.gone) ? op_fail(c->op, -EHOSTUNREACH, "gone") : call_next(c);
    if (r == 0) /* the objects are older than they are */
        c->ret_obj->told_ns += 10 * NS_PER_SEC;
    atomic_fetch_sub(&seen.running, 1);
    return r;
}

static void put_anything(struct store *s, const char *key, const struct buf *text)
{
    struct mem_source src;
    struct op op;

    op_init(&op, 10 * NS_PER_SEC);
    mem_source_init(&src, text->data, text->len);
    ck_assert_int_eq(store_put(s, &op, key, NULL, &src.base, NULL, NULL), 0);
}

static int64_t count_put(struct call *c)
{
    if (!path_below(STORE_STATE_DIR, c->key)) {
        atomic_fetch_add(&seen.puts, 1);
        return call_next(c);
    }
    atomic_fetch_add(&seen.index_puts, 1);
    int refused = atomic_load(&seen.refuse_index);
    if (refused)
        return op_fail(c->op, refused, "refused");
    const struct buf *race = atomic_exchange(&seen.race, NULL);
    if (race)
        put_anything(c->next, c->key, race);
    return call_next(c);
}

static int64_t count(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_STAT)
        return count_head(c);
    if (c->kind == CALL_PUT)
        return count_put(c);
    if (c->kind == CALL_LIST)
        atomic_fetch_add(&seen.lists, 1);
    else if (c->kind == CALL_READ)
        atomic_fetch_add(&seen.reads, 1);
    else if (c->kind == CALL_REMOVE)
        atomic_fetch_add(&seen.removes, 1);
    return call_next(c);
}

/* ---- places ---- */

static const char *name_of(int i)
{
    static char name[32];

    (void)snprintf(name, sizeof(name), "dir/%04d", i);
    return name;
}

static void place(struct driven *d)
{
    memset(&seen, 0, sizeof(seen));
    driven_init_like_s3(d, count);
    d->config.list_timeout_ns = d->config.attr_timeout_ns = 3600 * NS_PER_SEC;
    d->config.index_settle_ns = 1 * NS_PER_MS;
}

/* Files that another node made, with a mode of their own each. */
static void store_files(struct driven *d, int n)
{
    for (int i = 0; i < n; i++) {
        const struct attrs a = {.has = ATTR_MODE, .mode = S_IFREG | (0600 + (unsigned)i % 64)};
        driven_store_with(d, name_of(i), "content", 7, &a);
    }
}

static void check_files(struct driven *d, int n)
{
    struct stat st;

    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(driven_stat(d, name_of(i), &st), 0);
        ck_assert_msg(st.st_mode == (S_IFREG | (0600 + (unsigned)i % 64)), "%s: %o", name_of(i),
                      st.st_mode);
    }
}

static char *index_of_dir(const char *dir)
{
    static char key[INDEX_KEY_MAX];

    ck_assert_int_eq(index_key(dir, key), 0);
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

/* ---- HEADs ---- */

START_TEST(heads_are_asked_in_parallel_and_once)
{
    struct driven d;

    place(&d);
    d.store->facts.caps &= ~(unsigned)STORE_STATE;
    store_files(&d, FILES);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "dir"), FILES);
    ck_assert_uint_eq(heads(), 0); /* names need none */
    atomic_store(&seen.slow, true);
    check_files(&d, FILES);
    ck_assert_uint_eq(atomic_load(&seen.files), FILES);
    ck_assert_uint_gt(atomic_load(&seen.most), 8);
    check_files(&d, FILES);
    ck_assert_int_eq(driven_list(&d, "dir"), FILES);
    ck_assert_uint_eq(atomic_load(&seen.files), FILES);
    ck_assert_uint_eq(atomic_load(&seen.reads), 0);
    driven_release(&d);
}
END_TEST

/* One name that is looked up asks for itself alone. */
START_TEST(one_stat_is_one_head)
{
    struct driven d;
    struct stat st;

    place(&d);
    d.store->facts.caps &= ~(unsigned)STORE_STATE;
    store_files(&d, FILES);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, name_of(7), &st), 0);
    ck_assert_uint_eq(heads(), 1);
    driven_release(&d);
}
END_TEST

#define DIRS 100

static const char *dir_of(int i, const char *name)
{
    static char path[32];

    (void)snprintf(path, sizeof(path), "%02d%s", i, name);
    return path;
}

/* A listing tells of its own directory's marker: without one there is nothing to ask. */
START_TEST(directories_are_asked_when_they_are_looked_at)
{
    const struct attrs a = {.has = ATTR_MODE | ATTR_OWNER | ATTR_MTIME,
                            .mode = S_IFDIR | 0710,
                            .uid = 5,
                            .gid = 6,
                            .mtime_ns = 1600000000123456789};
    struct driven d;
    struct stat st;
    struct op op;

    place(&d);
    op_init(&op, 10 * NS_PER_SEC);
    for (int i = 0; i < DIRS; i++) {
        driven_store(&d, dir_of(i, "/f"), "x", 1);
        if (i % 2)
            ck_assert_int_eq(store_mkdir(d.store->next, &op, dir_of(i, ""), &a, NULL), 0);
    }
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, ""), DIRS);
    ck_assert_uint_eq(heads(), 0);
    ck_assert_int_eq(driven_list(&d, dir_of(0, "")), 1);
    ck_assert_uint_eq(heads(), 0);
    ck_assert_uint_eq(atomic_load(&seen.lists), 2);
    for (int i = 0; i < DIRS; i++) {
        ck_assert_int_eq(driven_stat(&d, dir_of(i, ""), &st), 0);
        ck_assert_uint_eq(st.st_mode, i % 2 ? a.mode : S_IFDIR | d.config.dir_mode);
        ck_assert_uint_eq(st.st_uid, i % 2 ? a.uid : d.config.uid);
        if (i % 2) {
            ck_assert_int_eq(st.st_mtim.tv_sec, 1600000000);
            ck_assert_int_eq(st.st_mtim.tv_nsec, 123456789);
        } else {
            ck_assert_int_gt(st.st_mtim.tv_sec, 1600000000); /* not 1970 */
        }
    }
    ck_assert_uint_le(atomic_load(&seen.dirs), DIRS);
    ck_assert_uint_eq(atomic_load(&seen.files), 0);
    unsigned before = heads();
    for (int i = 0; i < DIRS; i++)
        ck_assert_int_eq(driven_stat(&d, dir_of(i, ""), &st), 0);
    ck_assert_uint_eq(heads(), before);
    driven_release(&d);
}
END_TEST

/* Another node's chmod of a directory is seen with its next listing. */
START_TEST(a_marker_that_changed_is_asked_again)
{
    struct attrs a = {.has = ATTR_MODE, .mode = S_IFDIR | 0710};
    struct driven d;
    struct stat st;
    struct op op;

    place(&d);
    d.config.list_timeout_ns = 1;
    op_init(&op, 10 * NS_PER_SEC);
    driven_store(&d, "dir/f", "x", 1);
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "dir", &a, NULL), 0);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "dir", &st), 0);
    ck_assert_uint_eq(st.st_mode, S_IFDIR | 0710);
    /* A marker's content, so its ETag, is always the same: the second of its change tells. */
    (void)usleep(1100000);
    a.mode = S_IFDIR | 0700;
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "dir", &a, NULL), 0);
    DRIVEN_WAIT(driven_list(&d, "dir") == 1 && driven_stat(&d, "dir", &st) == 0 &&
                st.st_mode == (S_IFDIR | 0700));
    ck_assert_int_eq(store_rmdir(d.store->next, &op, "dir"), 0);
    DRIVEN_WAIT(driven_list(&d, "dir") == 1 && driven_stat(&d, "dir", &st) == 0 &&
                st.st_mode == (S_IFDIR | d.config.dir_mode));
    driven_release(&d);
}
END_TEST

/* A listing says that something changed, and then nobody answers: what was told before goes on.
 */
START_TEST(an_outage_leaves_what_was_told)
{
    const struct attrs f = {.has = ATTR_MODE, .mode = S_IFREG | 0604};
    struct attrs a = {.has = ATTR_MODE, .mode = S_IFDIR | 0710};
    struct driven d;
    struct stat st;
    struct op op;

    place(&d);
    d.config.list_timeout_ns = 1;
    op_init(&op, 10 * NS_PER_SEC);
    driven_store_with(&d, "dir/f", "x", 1, &f);
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "dir", &a, NULL), 0);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "dir", &st), 0);
    a.mode = S_IFDIR | 0700;
    (void)usleep(1100000); /* a marker's change is told by its second */
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "dir", &a, NULL), 0);
    (void)usleep(250000); /* until the listing is not believed any more */
    atomic_store(&seen.gone, true);
    unsigned before = heads();
    ck_assert_int_eq(driven_list(&d, "dir"), 1);
    ck_assert_int_eq(driven_stat(&d, "dir", &st), 0);
    ck_assert_uint_gt(heads(), before); /* it was asked */
    ck_assert_uint_eq(st.st_mode, S_IFDIR | 0710);
    atomic_store(&seen.gone, false);
    DRIVEN_WAIT(driven_list(&d, "dir") == 1 && driven_stat(&d, "dir", &st) == 0 &&
                st.st_mode == (S_IFDIR | 0700));
    driven_release(&d);
}
END_TEST

/* ---- the index ---- */

START_TEST(who_paid_the_heads_writes_the_index)
{
    struct driven d;

    place(&d);
    d.config.index_settle_ns = 3 * NS_PER_SEC;
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

/* The kernel would act on them. */
START_TEST(no_store_gives_security_attributes)
{
    static const char *const names[] = {"security.capability", "security.ima", "trusted.x",
                                        "system.x"};
    const struct attrs a = {.has = ATTR_XATTRS,
                            .xattrs =
                                (char *)"{\"security.capability\":\"AAEC\","
                                        "\"security.ima\":\"AAEC\",\"trusted.x\":\"AAEC\","
                                        "\"system.x\":\"AAEC\",\"user.x\":\"AAEC\"}"};
    char list[256], value[16];
    struct driven d;

    place(&d);
    driven_store_with(&d, "f", "content", 7, &a);
    driven_mount(&d);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        ck_assert_int_eq(driven_getxattr(&d, "f", names[i], value, sizeof(value)), -ENODATA);
        ck_assert_int_eq(driven_setxattr(&d, "f", names[i], "v", 1, 0), -EOPNOTSUPP);
        ck_assert_int_eq(driven_removexattr(&d, "f", names[i]), -EOPNOTSUPP);
    }
    ck_assert_int_eq(driven_getxattr(&d, "f", "user.x", value, sizeof(value)), 3);
    ck_assert_int_eq(driven_listxattr(&d, "f", list, sizeof(list)), sizeof("user.x"));
    driven_release(&d);
}
END_TEST

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
    Suite *s = suite_create("cache_attrs");
    TCase *t = tcase_create("cache_attrs");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, heads_are_asked_in_parallel_and_once);
    tcase_add_test(t, one_stat_is_one_head);
    tcase_add_test(t, directories_are_asked_when_they_are_looked_at);
    tcase_add_test(t, a_marker_that_changed_is_asked_again);
    tcase_add_test(t, an_outage_leaves_what_was_told);
    tcase_add_test(t, who_paid_the_heads_writes_the_index);
    tcase_add_test(t, who_uploaded_writes_the_index);
    tcase_add_test(t, an_index_is_believed_where_it_fits);
    tcase_add_test(t, no_store_gives_security_attributes);
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
