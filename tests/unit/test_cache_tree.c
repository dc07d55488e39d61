/* cache/: the attribute index of the tree's small directories. Requests are counted: it is read
 * and written in parts, believed where it is right, and nobody depends on it. */
#include "backends/store.h"
#include "cache/types/attr_index.h"
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUNS  60
#define FILES 3
/* As index_tree.c has it. */
#define PART_FILES_MAX 8192

/* ---- counting ---- */

static struct {
    atomic_uint heads, reads, lists; /* reads are of indexes: no content is read here */
    atomic_uint index_puts;
    atomic_ullong index_bytes;
    atomic_int refuse_index;          /* puts of indexes fail with this */
    atomic_bool young;                /* the objects have just come */
    _Atomic(const struct buf *) race; /* what another mount puts before the next index is put */
} seen;

static void forget_counts(void)
{
    atomic_store(&seen.heads, 0);
    atomic_store(&seen.reads, 0);
    atomic_store(&seen.lists, 0);
    atomic_store(&seen.index_puts, 0);
    atomic_store(&seen.index_bytes, 0);
}

static void put_anything(struct store *s, const char *key, const struct buf *text)
{
    struct mem_source src;
    struct op op;

    op_init(&op, 10 * NS_PER_SEC);
    mem_source_init(&src, text->data, text->len);
    ck_assert_int_eq(store_put(s, &op, key, NULL, &src.base, NULL, NULL), 0);
}

static int64_t count_index_put(struct call *c)
{
    int refused = atomic_load(&seen.refuse_index);

    atomic_fetch_add(&seen.index_puts, 1);
    atomic_fetch_add(&seen.index_bytes, c->src->size);
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
    if (c->kind == CALL_PUT && path_below(STORE_STATE_DIR, c->key))
        return count_index_put(c);
    atomic_fetch_add(&seen.heads, c->kind == CALL_STAT && !c->self);
    atomic_fetch_add(&seen.reads, c->kind == CALL_READ);
    atomic_fetch_add(&seen.lists, c->kind == CALL_LIST);
    int64_t r = call_next(c);
    if (c->kind == CALL_STAT && r == 0) /* whatever the clock says of it */
        c->ret_obj->told_ns = atomic_load(&seen.young) ? c->ret_obj->mtime_ns + NS_PER_SEC
                                                       : c->ret_obj->told_ns + 10 * NS_PER_SEC;
    return r;
}

/* ---- places ---- */

static struct driven d;

static void setup(void)
{
    memset(&seen, 0, sizeof(seen));
    driven_init_like_s3(&d, count);
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 3600 * NS_PER_SEC;
    d.config.index_settle_ns = 3600 * NS_PER_SEC; /* written when it is asked for */
    d.config.index_kept_ns = 3600 * NS_PER_SEC;   /* however long a walk takes */
}

static void teardown(void)
{
    driven_release(&d);
}

static const char *run_path(int run, int file)
{
    static char path[64];

    if (file < 0)
        (void)snprintf(path, sizeof(path), "runs/r%05d", run);
    else
        (void)snprintf(path, sizeof(path), "runs/r%05d/f%d", run, file);
    return path;
}

static mode_t mode_of(int run, int file)
{
    return S_IFREG | (0600 + (unsigned)(run + file) % 64);
}

/* As another node put them. */
static void store_runs(int from, int to)
{
    for (int i = from; i < to; i++)
        for (int k = 0; k < FILES; k++) {
            const struct attrs a = {.has = ATTR_MODE, .mode = mode_of(i, k)};
            driven_store_with(&d, run_path(i, k), "content", 7, &a);
        }
}

/* As ls -lR goes through them. */
static void walk_runs(int to)
{
    struct stat st;

    ck_assert_int_ge(driven_list(&d, "runs"), to);
    for (int i = 0; i < to; i++)
        ck_assert_int_eq(driven_stat(&d, run_path(i, -1), &st), 0);
    for (int i = 0; i < to; i++) {
        ck_assert_int_ge(driven_list(&d, run_path(i, -1)), FILES);
        for (int k = 0; k < FILES; k++) {
            ck_assert_int_eq(driven_stat(&d, run_path(i, k), &st), 0);
            ck_assert_msg(st.st_mode == mode_of(i, k), "%s: %o", run_path(i, k), st.st_mode);
        }
    }
}

static char *key_of_part(const char *start)
{
    static char key[INDEX_KEY_MAX];

    ck_assert_int_eq(index_part_key(start, key), 0);
    return key;
}

/* -ENOENT, or -EINVAL when it is none. */
static int read_part(const char *start, struct index_part *ret)
{
    auto_free char *text = malloc(8 << 20);
    ssize_t n = driven_stored(&d, key_of_part(start), text, 8 << 20);

    return n < 0 ? (int)n : index_part_parse(text, (size_t)n, start, ret);
}

/* How many files the first part tells of; markers of directories have no name. */
static int indexed(void)
{
    struct index_entry *e, *next;
    struct index_part p = {0};
    int r = read_part("", &p), n = 0;

    HASH_ITER(hh, p.files.entries, e, next)
    {
        n += *path_basename(e->name) != '\0';
    }
    r = r < 0 ? r : n;
    index_part_release(&p);
    return r;
}

static void write_indexes(void)
{
    struct op op;

    op_init(&op, 300 * NS_PER_SEC); /* of thousands, under TSan beside other jobs */
    cache_write_indexes(d.cache, &op);
}

/* On a mount that never saw them. */
static unsigned heads_of_a_walk(int runs)
{
    driven_mount_afresh(&d);
    forget_counts();
    walk_runs(runs);
    return atomic_load(&seen.heads);
}

/* ---- who writes ---- */

START_TEST(who_paid_the_heads_of_a_walk_writes)
{
    /* The walk pauses for less, also when it is slow. */
    d.config.index_settle_ns = 3 * NS_PER_SEC;
    store_runs(0, RUNS);
    driven_mount(&d);
    walk_runs(RUNS);
    ck_assert_uint_eq(atomic_load(&seen.heads), RUNS * FILES);
    DRIVEN_WAIT(indexed() == RUNS * FILES);   /* by itself */
    ck_assert_int_eq(driven_list(&d, ""), 1); /* what is ours is not seen */
    ck_assert_uint_eq(heads_of_a_walk(RUNS), 0);
    ck_assert_uint_eq(atomic_load(&seen.reads), 1);
    ck_assert_uint_eq(atomic_load(&seen.index_puts), 0);
}
END_TEST

START_TEST(who_uploaded_writes)
{
    d.config.settle_ns = NS_PER_SEC; /* no directory owes a marker before it has its files */
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "runs"), 0);
    for (int i = 0; i < RUNS; i++) {
        ck_assert_int_eq(driven_mkdir(&d, run_path(i, -1)), 0);
        for (int k = 0; k < FILES; k++) {
            driven_put(&d, run_path(i, k), "x", 1);
            ck_assert_int_eq(driven_chmod(&d, run_path(i, k), mode_of(i, k) & 07777), 0);
        }
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    forget_counts();
    write_indexes();
    ck_assert_int_eq(indexed(), RUNS * FILES);
    ck_assert_uint_eq(atomic_load(&seen.index_puts), 1);
    ck_assert_uint_eq(atomic_load(&seen.lists), 1); /* for all of them */
    ck_assert_uint_eq(heads_of_a_walk(RUNS), 0);
}
END_TEST

/* A training node puts a file now and then: no part is written for a few, however often. */
START_TEST(few_news_write_nothing)
{
    char path[64];

    store_runs(0, RUNS);
    driven_mount(&d);
    walk_runs(RUNS);
    write_indexes();
    ck_assert_int_eq(indexed(), RUNS * FILES);
    forget_counts();
    for (int i = 0; i < 63; i++) {
        (void)snprintf(path, sizeof(path), "runs/r%05d/new", i % RUNS);
        driven_put(&d, path, "x", (size_t)(1 - i / RUNS));
        ck_assert_int_eq(driven_flush(&d), 0);
        write_indexes();
    }
    ck_assert_uint_eq(atomic_load(&seen.index_puts), 0);
    driven_put(&d, "runs/r00000/newer", "x", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    write_indexes();
    ck_assert_uint_eq(atomic_load(&seen.index_puts), 1);
    ck_assert_int_eq(indexed(), RUNS * FILES + RUNS + 1);
}
END_TEST

/* What was told within the second of its change may not be the last of that second. */
START_TEST(young_versions_are_not_written)
{
    atomic_store(&seen.young, true);
    store_runs(0, RUNS);
    driven_mount(&d);
    walk_runs(RUNS);
    write_indexes();
    ck_assert_int_eq(indexed(), -ENOENT);
}
END_TEST

START_TEST(read_only_mounts_write_nothing)
{
    store_runs(0, RUNS);
    d.config.read_only = true;
    driven_mount(&d);
    walk_runs(RUNS);
    write_indexes();
    ck_assert_int_eq(indexed(), -ENOENT);
}
END_TEST

/* ---- what is believed ---- */

START_TEST(it_is_believed_where_it_fits)
{
    const struct attrs wrong = {.has = ATTR_MODE, .mode = S_IFREG | 0111};
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    struct index_part p = {0};
    struct object obj;
    struct op op;

    store_runs(0, RUNS);
    op_init(&op, 10 * NS_PER_SEC);
    for (int i = 0; i < RUNS; i++) {
        auto_free char *dir = strdup(run_path(i, -1));
        for (int k = 0; k < FILES; k++) {
            const char *name = path_basename(run_path(i, k));
            ck_assert_int_eq(store_stat(d.store->next, &op, run_path(i, k), &obj), 0);
            obj.mtime_ns += k == 1;           /* the same bytes once more */
            obj.etag[0] ^= k == 2 && i % 2;   /* others */
            obj.size += k == 2 && i % 2 == 0; /* longer */
            const struct attrs *a = k ? &wrong : &obj.attrs;
            ck_assert_int_eq(index_add_in(&p.files, dir, name, &obj, a), 0);
            object_release(&obj);
        }
    }
    index_part_sort(&p);
    ck_assert_int_eq(index_part_format(&p, "", &text), 0);
    index_part_release(&p);
    put_anything(d.store->next, key_of_part(""), &text);
    driven_mount(&d);
    walk_runs(RUNS);
    ck_assert_uint_eq(atomic_load(&seen.heads), RUNS * (FILES - 1));
    write_indexes();
    ck_assert_uint_eq(heads_of_a_walk(RUNS), 0); /* mended */
}
END_TEST

START_TEST(what_is_none_is_asked_and_replaced)
{
    auto_buf struct buf garbage = BUF_INIT(1 << 20);

    store_runs(0, RUNS);
    for (int i = 0; i < 50000; i++)
        ck_assert_int_eq(buf_addc(&garbage, (char)(i * 31)), 0);
    if (_i == 1)
        memcpy(garbage.data, "runfs-trees 1 00000000\n=\n", 25);
    garbage.len = _i == 2 ? 1 : garbage.len;
    put_anything(d.store->next, key_of_part(""), &garbage);
    driven_mount(&d);
    walk_runs(RUNS);
    ck_assert_uint_eq(atomic_load(&seen.heads), RUNS * FILES);
    write_indexes();
    ck_assert_int_eq(indexed(), RUNS * FILES);
}
END_TEST

/* What another tool put has no attributes, and that is known of it then. */
START_TEST(no_attributes_are_an_answer)
{
    struct stat st;

    for (int i = 0; i < RUNS; i++)
        for (int k = 0; k < 2; k++)
            driven_store(&d, run_path(i, k), "", 0);
    for (int round = 0; round < 2; round++) {
        driven_mount_afresh(&d);
        forget_counts();
        ck_assert_int_eq(driven_list(&d, "runs"), RUNS);
        for (int i = 0; i < RUNS; i++)
            ck_assert_int_eq(driven_stat(&d, run_path(i, -1), &st), 0);
        for (int i = 0; i < RUNS; i++)
            ck_assert_int_eq(driven_list(&d, run_path(i, -1)), 2); /* needs the types */
        ck_assert_uint_eq(atomic_load(&seen.heads), round ? 0 : RUNS * 2);
        write_indexes();
    }
}
END_TEST

/* ---- several writers ---- */

/* Another mount puts its part between our reading and our putting: both are in the result. */
START_TEST(two_writers_lose_nothing)
{
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    struct index_part p = {0};
    struct object obj;
    struct op op;

    store_runs(0, RUNS);
    driven_mount(&d);
    walk_runs(RUNS);
    store_runs(RUNS, 2 * RUNS); /* since then, by the other */
    op_init(&op, 10 * NS_PER_SEC);
    for (int i = RUNS; i < 2 * RUNS; i++) {
        auto_free char *dir = strdup(run_path(i, -1));
        for (int k = 0; k < FILES; k++) {
            ck_assert_int_eq(store_stat(d.store->next, &op, run_path(i, k), &obj), 0);
            ck_assert_int_eq(
                index_add_in(&p.files, dir, path_basename(run_path(i, k)), &obj, &obj.attrs),
                0);
            object_release(&obj);
        }
    }
    ck_assert_int_eq(index_part_format(&p, "", &text), 0);
    index_part_release(&p);
    atomic_store(&seen.race, &text);
    write_indexes();
    ck_assert_uint_eq(atomic_load(&seen.index_puts), 2);
    ck_assert_int_eq(indexed(), 2 * RUNS * FILES);
    ck_assert_uint_eq(heads_of_a_walk(2 * RUNS), 0);
}
END_TEST

/* A place that may not be written costs one attempt, and nobody hears of it. */
START_TEST(a_refusal_hurts_nobody)
{
    struct cache_stats s;

    store_runs(0, RUNS);
    atomic_store(&seen.refuse_index, _i ? -EIO : -EACCES);
    driven_mount(&d);
    walk_runs(RUNS);
    write_indexes();
    write_indexes();
    ck_assert_uint_eq(atomic_load(&seen.index_puts), 1);
    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.dirty_files + s.pending_ops + s.failed_files, 0);
    ck_assert_int_eq(s.last_error, 0);
    walk_runs(RUNS);
}
END_TEST

/* ---- what goes ---- */

static void claim(struct index_part *p, const char *dir, const char *name, int64_t modified_ns)
{
    const struct object obj = {.etag = "e", .size = 1, .mtime_ns = modified_ns};
    const struct attrs none = {0};

    ck_assert_int_eq(index_add_in(&p->files, dir, name, &obj, &none), 0);
}

/* What a listing denies; nobody can say that of what has come since. */
START_TEST(what_is_gone_goes)
{
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    struct index_part p = {0};
    int64_t long_ago_ns = 1500000000 * NS_PER_SEC, now_ns = clock_real_ns();

    claim(&p, "runs/gone", "f", long_ago_ns);      /* goes */
    claim(&p, "runs/r00001", "gone", long_ago_ns); /* goes */
    claim(&p, "runs/r00001", "f0", long_ago_ns);   /* another version is there: it counts */
    claim(&p, "runs/r00001/f1", "f", long_ago_ns); /* below a file: goes */
    claim(&p, "runs/come", "f", now_ns);           /* stays */
    claim(&p, "runs/r00001", "come", now_ns);      /* stays */
    claim(&p, "other/unseen", "f", long_ago_ns);   /* stays */
    index_part_sort(&p);
    ck_assert_int_eq(index_part_format(&p, "", &text), 0);
    index_part_release(&p);
    put_anything(d.store->next, key_of_part(""), &text);
    store_runs(0, RUNS);
    driven_store(&d, "other/unseen/f", "x", 1);
    driven_mount(&d);
    walk_runs(RUNS);
    write_indexes();
    ck_assert_int_eq(indexed(), RUNS * FILES + 3);
    ck_assert_int_eq(read_part("", &p), 0);
    ck_assert_ptr_nonnull(index_find(&p.files, "runs/come/f"));
    ck_assert_ptr_nonnull(index_find(&p.files, "runs/r00001/come"));
    ck_assert_ptr_nonnull(index_find(&p.files, "other/unseen/f"));
    index_part_release(&p);
}
END_TEST

/* A directory that gets more files has an index of its own. */
START_TEST(what_has_grown_goes)
{
    char path[64];

    store_runs(0, RUNS);
    driven_mount(&d);
    walk_runs(RUNS);
    write_indexes();
    for (int i = 0; i < 64; i++) {
        (void)snprintf(path, sizeof(path), "runs/r%05d/new%d", i % 2, i);
        driven_put(&d, path, "x", 1);
    }
    for (int i = 0; i < 64; i++) {
        (void)snprintf(path, sizeof(path), "runs/r%05d/new", 2 + i % (RUNS - 2));
        driven_put(&d, path, "x", (size_t)(1 - i / (RUNS - 2)));
    }
    for (int i = 0; i < 8; i++) {
        (void)snprintf(path, sizeof(path), "runs/r%05d/newer", 2 + i);
        driven_put(&d, path, "x", 1);
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    write_indexes();
    ck_assert_int_eq(indexed(), (RUNS - 2) * (FILES + 1) + 8);
}
END_TEST

/* ---- parts ---- */

/* Under TSan, which takes its time, fewer: in four parts all the same. */
#ifdef __SANITIZE_THREAD__
#define MANY  6000
#define GROWN 4200
#else
#define MANY  9000
#define GROWN 5000
#endif

/* How many files all parts have together; each at most as many as it may. */
static size_t count_parts(size_t *ret_parts)
{
    struct index_part first = {0}, p;
    size_t files;

    ck_assert_int_eq(read_part("", &first), 0);
    files = HASH_COUNT(first.files.entries);
    ck_assert_uint_le(files, PART_FILES_MAX);
    for (size_t i = 0; i < first.n_starts; i++) {
        p = (struct index_part){0};
        ck_assert_int_eq(read_part(first.starts[i], &p), 0);
        ck_assert_uint_le(HASH_COUNT(p.files.entries), PART_FILES_MAX);
        ck_assert_uint_gt(HASH_COUNT(p.files.entries), 0);
        files += HASH_COUNT(p.files.entries);
        index_part_release(&p);
    }
    *ret_parts = 1 + first.n_starts;
    index_part_release(&first);
    return files;
}

START_TEST(many_files_are_in_parts)
{
    size_t parts, before;

    store_runs(0, MANY);
    driven_mount(&d);
    walk_runs(MANY);
    write_indexes();
    ck_assert_uint_eq(count_parts(&before), MANY * FILES);
    ck_assert_uint_ge(before, 4);
    ck_assert_uint_eq(heads_of_a_walk(MANY), 0);
    ck_assert_uint_le(atomic_load(&seen.reads), before + 1);
    /* News of some write the part that they are in. */
    forget_counts();
    for (int i = 0; i < 70; i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "runs/r%05d/new", 5000 + i);
        driven_put(&d, path, "x", 1);
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    write_indexes();
    ck_assert_uint_le(atomic_load(&seen.index_puts), 2);
    ck_assert_uint_lt(atomic_load(&seen.index_bytes), 2 << 20);
    ck_assert_uint_eq(count_parts(&parts), MANY * FILES + 70);
    ck_assert_uint_eq(parts, before);
    /* It grows: what is full is split. */
    for (int i = 0; i < GROWN; i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "runs/r00100x%04d/f", i);
        driven_store(&d, path, "x", 1);
    }
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_list(&d, "runs"), MANY + GROWN);
    for (int i = 0; i < GROWN; i++) {
        struct stat st;
        char path[64];
        (void)snprintf(path, sizeof(path), "runs/r00100x%04d/f", i);
        ck_assert_int_eq(driven_stat(&d, path, &st), 0);
    }
    write_indexes();
    ck_assert_uint_eq(count_parts(&parts), MANY * FILES + 70 + GROWN);
    ck_assert_uint_gt(parts, before);
    ck_assert_uint_eq(heads_of_a_walk(MANY), 0);
}
END_TEST

#define PAGE_DIRS  100 /* a request tells of 1,000 keys */
#define PAGE_FILES 10
#define PAGES      8

/* A first part that says only where two others begin; they are not there and count as empty. */
static void store_three_parts(void)
{
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    struct index_part p = {0};

    ck_assert_int_eq(index_part_add_start(&p, "runs/r00100/"), 0);
    ck_assert_int_eq(index_part_add_start(&p, "runs/r00700/"), 0);
    ck_assert_int_eq(index_part_format(&p, "", &text), 0);
    index_part_release(&p);
    put_anything(d.store->next, key_of_part(""), &text);
    for (int i = 0; i < PAGES * PAGE_DIRS; i++)
        for (int k = 0; k < PAGE_FILES; k++)
            driven_store(&d, run_path(i, k), "x", 1);
}

/* A walk that is in the second part for longer than a part is kept, and always uses it. */
static bool walk_through_parts(int64_t kept_ns, int unused)
{
    bool in_time = true;

    (void)unused;
    d.config.index_kept_ns = kept_ns;
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_list(&d, "runs"), PAGES * PAGE_DIRS);
    forget_counts();
    int64_t used_ns = clock_mono_ns();
    for (int i = 0; i < PAGES * PAGE_DIRS; i++) {
        unsigned before = atomic_load(&seen.lists);
        int64_t begun_ns = clock_mono_ns();
        ck_assert_int_eq(driven_list(&d, run_path(i, -1)), PAGE_FILES);
        if (atomic_load(&seen.lists) == before)
            continue;
        in_time &= clock_mono_ns() - used_ns < kept_ns;
        used_ns = begun_ns;
        (void)usleep((unsigned)(kept_ns / 2000));
    }
    if (in_time)
        ck_assert_uint_eq(atomic_load(&seen.reads), 3);
    return in_time;
}

START_TEST(a_walk_reads_each_part_once)
{
    store_three_parts();
    driven_mount(&d);
    driven_in_window(walk_through_parts, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_tree");
    TCase *t = tcase_create("cache_tree");

    tcase_set_timeout(t, 400);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, who_paid_the_heads_of_a_walk_writes);
    tcase_add_test(t, who_uploaded_writes);
    tcase_add_test(t, few_news_write_nothing);
    tcase_add_test(t, young_versions_are_not_written);
    tcase_add_test(t, read_only_mounts_write_nothing);
    tcase_add_test(t, it_is_believed_where_it_fits);
    tcase_add_loop_test(t, what_is_none_is_asked_and_replaced, 0, 3);
    tcase_add_test(t, no_attributes_are_an_answer);
    tcase_add_test(t, two_writers_lose_nothing);
    tcase_add_loop_test(t, a_refusal_hurts_nobody, 0, 2);
    tcase_add_test(t, what_is_gone_goes);
    tcase_add_test(t, what_has_grown_goes);
    tcase_add_test(t, many_files_are_in_parts);
    tcase_add_test(t, a_walk_reads_each_part_once);
    suite_add_tcase(s, t);
    return suite_run(s);
}
