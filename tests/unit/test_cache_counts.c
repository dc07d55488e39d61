/* What a user's step costs at the store: every request is written down, and the list of them is
 * compared. Like S3: no renames, no attributes in listings. */
#include "cache/transfer/transfer_impl.h"
#include "common/lock.h"
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
#include <unistd.h>

#define MIB   ((size_t)1 << 20)
#define PIECE ((size_t)128 << 10) /* what the kernel asks for at once */
#define PART  (8 * MIB)
#ifdef __SANITIZE_THREAD__ /* which takes its time */
#define SIZE (4 * PART)
#else
#define SIZE (8 * PART)
#endif
#define GROWING  3 /* requests that the first part is cut into while the window grows */
#define KEPT_MAX 512

/* ---- what was asked ---- */

struct asked {
    enum call_kind kind;
    uint64_t off, end;
    char key[32];
};

static struct {
    pthread_mutex_t lock;
    struct asked v[KEPT_MAX];
    size_t n;
    bool no_sums; /* the objects are of a tool that gave them none */
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t note(struct layer *l, struct call *c)
{
    (void)l;
    (void)pthread_mutex_lock(&seen.lock);
    if (seen.n == KEPT_MAX)
        abort();
    struct asked *a = &seen.v[seen.n++];
    *a = (struct asked){.kind = c->kind, .off = c->off, .end = c->off + c->len};
    const char *key = c->key ? c->key : c->up ? c->up->key : "";
    (void)snprintf(a->key, sizeof(a->key), "%s", key);
    (void)pthread_mutex_unlock(&seen.lock);
    int64_t r = call_next(c);
    if (r >= 0 && c->ret_obj && seen.no_sums)
        c->ret_obj->checksum = (struct checksum){0};
    return r;
}

static void forget(void)
{
    (void)pthread_mutex_lock(&seen.lock);
    seen.n = 0;
    (void)pthread_mutex_unlock(&seen.lock);
}

/* How many were made of one kind, to one key. */
static size_t count(enum call_kind kind, const char *key)
{
    size_t n = 0;

    (void)pthread_mutex_lock(&seen.lock);
    for (size_t i = 0; i < seen.n; i++)
        n += seen.v[i].kind == kind && strcmp(seen.v[i].key, key) == 0;
    (void)pthread_mutex_unlock(&seen.lock);
    return n;
}

/* How many were not of the store's state, where notes of units come in their own time. */
static size_t of_names(void)
{
    size_t n = 0;

    (void)pthread_mutex_lock(&seen.lock);
    for (size_t i = 0; i < seen.n; i++)
        n += !path_below(STORE_STATE_DIR, seen.v[i].key);
    (void)pthread_mutex_unlock(&seen.lock);
    return n;
}

/* That there were so many in all; the text names them. */
static void check_total(size_t expected)
{
    char text[1024] = "";
    size_t used = 0;

    (void)pthread_mutex_lock(&seen.lock);
    for (size_t i = 0; i < seen.n && used < sizeof(text); i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, " %s %s [%llu, %llu)",
                                 call_name(seen.v[i].kind), seen.v[i].key,
                                 (unsigned long long)seen.v[i].off,
                                 (unsigned long long)seen.v[i].end);
    size_t n = seen.n;
    (void)pthread_mutex_unlock(&seen.lock);
    ck_assert_msg(n == expected, "%zu requests, expected %zu:%s", n, expected, text);
}

/* ---- what is read and written ---- */

static char content[SIZE]; /* constant */

static void make_content(void)
{
    for (size_t i = 0; i < SIZE; i += sizeof(uint32_t)) {
        uint32_t word = (uint32_t)i * 2654435761u;
        memcpy(content + i, &word, sizeof(word));
    }
}

static void start(struct driven *d)
{
    driven_init_like_s3(d, note);
    d->config.part_size = PART;
    d->config.attr_timeout_ns = d->config.list_timeout_ns = 3600 * NS_PER_SEC;
    d->config.settle_ns = 3600 * NS_PER_SEC; /* only a flush uploads */
}

/* Mounted, with the root listed. */
static void begin(struct driven *d)
{
    driven_mount(d);
    ck_assert_int_ge(driven_list(d, ""), 0);
    forget();
}

static void read_whole(struct driven *d, struct handle *h)
{
    char *buf = malloc(PIECE);

    ck_assert_ptr_nonnull(buf);
    for (size_t off = 0; off < SIZE; off += PIECE) {
        ck_assert_int_eq(driven_pread(d, h, buf, PIECE, off), (ssize_t)PIECE);
        ck_assert(memcmp(buf, content + off, PIECE) == 0);
    }
    free(buf);
}

static void open_and_read(struct driven *d)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(d, "model", O_RDONLY, &h), 0);
    read_whole(d, h);
    cache_release(d->cache, h);
}

/* ---- reading ---- */

/* Each part but the first is one request; the first is GROWING, since who reads only the
 * beginning must not get all of it. No byte is asked twice. */
static void check_one_request_a_part(void)
{
    bool got[SIZE / PART] = {false};
    size_t first = 0, bytes = 0;

    (void)pthread_mutex_lock(&seen.lock);
    for (size_t i = 0; i < seen.n; i++) {
        const struct asked *a = &seen.v[i];
        if (a->kind != CALL_READ)
            continue;
        bytes += a->end - a->off;
        first += a->off < PART && a->end <= PART;
        size_t part = a->off / PART;
        got[part] = got[part] || (a->off == part * PART && a->end == (part + 1) * PART);
    }
    (void)pthread_mutex_unlock(&seen.lock);
    ck_assert_uint_eq(bytes, SIZE);
    for (size_t part = 1; part < SIZE / PART; part++)
        ck_assert_msg(got[part], "part %zu is not one request", part);
    ck_assert_uint_le(first, GROWING);
    check_total(first + SIZE / PART - 1 + count(CALL_STAT, "model"));
}

/* The listing tells no attributes: one HEAD does. Then content, and nothing else. */
START_TEST(a_cold_file_is_one_request_a_part)
{
    struct driven d;

    start(&d);
    driven_store(&d, "model", content, SIZE);
    begin(&d);
    open_and_read(&d);
    check_one_request_a_part();
    ck_assert_uint_eq(count(CALL_STAT, "model"), 1);
    driven_release(&d);
}
END_TEST

/* An object without a checksum has none at the end of the download either. */
START_TEST(a_checksum_that_is_not_there_is_asked_for_once)
{
    struct driven d;

    start(&d);
    seen.no_sums = true;
    driven_store(&d, "model", content, SIZE);
    begin(&d);
    open_and_read(&d);
    check_one_request_a_part();
    ck_assert_uint_eq(count(CALL_STAT, "model"), 1);
    driven_release(&d);
    seen.no_sums = false;
}
END_TEST

START_TEST(what_is_here_is_not_asked_for_again)
{
    struct driven d;

    start(&d);
    driven_store(&d, "model", content, SIZE);
    begin(&d);
    open_and_read(&d);
    forget();
    open_and_read(&d);
    check_total(0);
    driven_unmount(&d); /* nor by the next mount, but for whether it is still that version */
    begin(&d);
    open_and_read(&d);
    ck_assert_uint_eq(count(CALL_READ, "model"), 0);
    ck_assert_uint_le(count(CALL_STAT, "model"), 1);
    driven_release(&d);
}
END_TEST

/* Close-to-open: one question when the time is over. */
START_TEST(a_version_is_asked_for_once_after_its_time)
{
    struct handle *h = NULL;
    struct driven d;

    start(&d);
    d.config.attr_timeout_ns = 3 * NS_PER_SEC;
    driven_store(&d, "model", content, SIZE);
    begin(&d);
    open_and_read(&d);
    (void)usleep(3200000);
    forget();
    ck_assert_int_eq(driven_open(&d, "model", O_RDONLY, &h), 0);
    check_total(1);
    ck_assert_uint_eq(count(CALL_STAT, "model"), 1);
    read_whole(&d, h);
    check_total(1);
    cache_release(d.cache, h);
    driven_release(&d);
}
END_TEST

struct reader {
    pthread_t thread;
    pthread_barrier_t *all;
    struct driven *d;
};

static void *read_with_others(void *arg)
{
    struct reader *r = arg;

    (void)pthread_barrier_wait(r->all);
    open_and_read(r->d);
    return NULL;
}

START_TEST(readers_at_once_ask_as_one_does)
{
    struct reader readers[8];
    pthread_barrier_t all;
    struct driven d;

    start(&d);
    driven_store(&d, "model", content, SIZE);
    begin(&d);
    ck_assert_int_eq(pthread_barrier_init(&all, NULL, ARRAY_SIZE(readers)), 0);
    for (size_t i = 0; i < ARRAY_SIZE(readers); i++) {
        readers[i] = (struct reader){.all = &all, .d = &d};
        ck_assert_int_eq(
            pthread_create(&readers[i].thread, NULL, read_with_others, &readers[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(readers); i++)
        ck_assert_int_eq(pthread_join(readers[i].thread, NULL), 0);
    (void)pthread_barrier_destroy(&all);
    check_one_request_a_part();
    ck_assert_uint_eq(count(CALL_STAT, "model"), 1);
    driven_release(&d);
}
END_TEST

/* The kernel shares pages: what one process read the next ones do not ask for, so that the
 * daemon sees each of them jump. */
START_TEST(readers_who_share_pages_are_one_reader)
{
    struct handle *h[4];
    static char buf[PIECE];
    struct driven d;

    start(&d);
    driven_store(&d, "model", content, SIZE);
    begin(&d);
    for (size_t i = 0; i < ARRAY_SIZE(h); i++)
        ck_assert_int_eq(driven_open(&d, "model", O_RDONLY, &h[i]), 0);
    for (size_t off = 0; off < SIZE; off += PIECE) {
        struct handle *one = h[off / MIB % ARRAY_SIZE(h)];
        ck_assert_int_eq(driven_pread(&d, one, buf, PIECE, off), (ssize_t)PIECE);
    }
    for (size_t i = 0; i < ARRAY_SIZE(h); i++)
        cache_release(d.cache, h[i]);
    check_one_request_a_part();
    driven_release(&d);
}
END_TEST

/* Threads that share a descriptor, and load a part of the file each, in order. */
START_TEST(a_descriptor_may_be_read_at_several_places)
{
    enum { THREADS = 4 };
    const size_t each = SIZE / THREADS;
    struct handle *h = NULL;
    static char buf[PIECE];
    struct driven d;

    start(&d);
    driven_store(&d, "model", content, SIZE);
    begin(&d);
    ck_assert_int_eq(driven_open(&d, "model", O_RDONLY, &h), 0);
    for (size_t off = 0; off < each; off += PIECE)
        for (size_t i = 0; i < THREADS; i++)
            ck_assert_int_eq(driven_pread(&d, h, buf, PIECE, i * each + off), (ssize_t)PIECE);
    cache_release(d.cache, h);
    /* The first MiB of each comes piece by piece, then the window grows by a quarter. */
    ck_assert_uint_le(count(CALL_READ, "model"), THREADS * (MIB / PIECE + 16));
    driven_release(&d);
}
END_TEST

#ifndef NDEBUG
/* What is fetched is nothing that is owed: the scheduler makes no pass for each range of it. */
START_TEST(what_is_fetched_asks_for_no_pass)
{
    enum { FILES = 100 };
    char name[16], buf[8];
    struct driven d;

    start(&d);
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(name, sizeof(name), "r%d", i);
        driven_store(&d, name, "content", 7);
    }
    begin(&d);
    unsigned long long before = atomic_load(&passes_made);
    int64_t began_ns = clock_mono_ns();
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(name, sizeof(name), "r%d", i);
        ck_assert_int_eq(driven_read(&d, name, buf, sizeof(buf)), 7);
    }
    unsigned long long passes = atomic_load(&passes_made) - before;
    int64_t seconds = (clock_mono_ns() - began_ns) / NS_PER_SEC;
    ck_assert_msg(passes <= 20 + (unsigned long long)seconds, "%llu", passes);
    driven_release(&d);
}
END_TEST
#endif

/* In a directory of many names each is asked for alone when the listing is old. Not a directory
 * that has just been listed itself, as most are that somebody walks through. */
static bool walk_names_that_were_told(int64_t window_ns, int unused)
{
    enum { DIRS = 1100, WALKED = 100, FIRST = 3 };
    struct driven d;
    char path[32];

    (void)unused;
    start(&d);
    d.config.list_timeout_ns = window_ns * 3; /* longer than attr_timeout */
    for (int i = 0; i < DIRS; i++) {
        (void)snprintf(path, sizeof(path), "run-%04d/f", i);
        driven_store(&d, path, "x", 1);
    }
    begin(&d);
    (void)usleep((useconds_t)((d.config.list_timeout_ns + 100 * NS_PER_MS) / 1000));
    int64_t until_ns = clock_mono_ns() + d.config.list_timeout_ns;
    for (int i = 0; i < WALKED; i++) {
        (void)snprintf(path, sizeof(path), "run-%04d", i);
        ck_assert_int_eq(driven_list(&d, path), 1);
    }
    bool in_time = clock_mono_ns() < until_ns;
    size_t heads = 0;
    for (int i = 0; i < WALKED; i++) {
        (void)snprintf(path, sizeof(path), "run-%04d", i);
        heads += count(CALL_STAT, path);
    }
    if (in_time)
        ck_assert_uint_le(heads, FIRST);
    driven_release(&d);
    return in_time;
}

START_TEST(a_walk_asks_for_no_name_that_it_was_told)
{
    driven_in_window(walk_names_that_were_told, 0);
}
END_TEST

/* ---- writing ---- */

START_TEST(a_small_file_is_one_put_under_its_last_name)
{
    struct driven d;

    start(&d);
    begin(&d);
    driven_put(&d, "model.part", content, 16 << 10);
    ck_assert_int_eq(driven_rename(&d, "model.part", "model"), 0);
    check_total(0);
    ck_assert_int_eq(driven_flush(&d), 0);
    check_total(1);
    ck_assert_uint_eq(count(CALL_PUT, "model"), 1);
    driven_release(&d);
}
END_TEST

START_TEST(a_large_file_is_its_parts_and_no_more)
{
    const size_t parts = 4;
    struct driven d;

    start(&d);
    begin(&d);
    driven_put(&d, "model.part", content, (parts - 1) * PART + 12345);
    ck_assert_int_eq(driven_rename(&d, "model.part", "model"), 0);
    check_total(0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(count(CALL_BEGIN, "model"), 1);
    ck_assert_uint_eq(count(CALL_PART, "model"), parts);
    ck_assert_uint_eq(count(CALL_COMMIT, "model"), 1);
    check_total(parts + 2);
    driven_release(&d);
}
END_TEST

/* Small and large: what nobody will see again is not sent. */
START_TEST(what_is_deleted_before_its_upload_costs_nothing)
{
    struct driven d;

    start(&d);
    begin(&d);
    driven_put(&d, "small", content, 16 << 10);
    driven_put(&d, "large", content, 2 * PART);
    ck_assert_int_eq(driven_unlink(&d, "small"), 0);
    ck_assert_int_eq(driven_unlink(&d, "large"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    check_total(0);
    driven_release(&d);
}
END_TEST

/* A directory of many is as many PUTs under the last name, and no object for the directory. */
START_TEST(a_folder_that_is_renamed_is_sent_once)
{
    /* Its lease, its note put and removed, its seal, and a look at what that names. */
    enum { FILES = 20, OF_UNIT = 5 };
    struct driven d;
    char path[32];

    start(&d);
    begin(&d);
    ck_assert_int_eq(driven_mkdir(&d, "tmp-1"), 0);
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof(path), "tmp-1/f%d", i);
        driven_put(&d, path, content, 4096);
    }
    ck_assert_int_eq(driven_rename(&d, "tmp-1", "step-1"), 0);
    ck_assert_uint_eq(of_names(), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof(path), "step-1/f%d", i);
        ck_assert_uint_eq(count(CALL_PUT, path), 1);
    }
    check_total(FILES + OF_UNIT);
    driven_release(&d);
}
END_TEST

/* In a directory that others filled with more names than one page the store is asked for the
 * name; the LOOKUP before a CREATE and the CREATE ask once. */
START_TEST(a_name_in_a_large_directory_is_asked_for_once)
{
    enum { MANY = 2100 };
    char path[32];
    struct driven d;
    struct stat st;

    start(&d);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(path, sizeof(path), "large/f%d", i);
        driven_store(&d, path, "x", 1);
    }
    d.config.list_timeout_ns = 3 * NS_PER_SEC;
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "large/none", &st), -ENOENT);
    (void)usleep(3100000);
    for (int i = 0; i < 5; i++) {
        forget();
        (void)snprintf(path, sizeof(path), "large/n%d", i);
        ck_assert_int_eq(driven_stat(&d, path, &st), -ENOENT);
        driven_put(&d, path, content, 4096);
        ck_assert_int_eq(driven_flush(&d), 0);
        ck_assert_uint_eq(count(CALL_STAT, path), 1);
        ck_assert_uint_eq(count(CALL_PUT, path), 1);
    }
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_counts");
    TCase *t = tcase_create("cache_counts");

    make_content();
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_cold_file_is_one_request_a_part);
    tcase_add_test(t, a_checksum_that_is_not_there_is_asked_for_once);
    tcase_add_test(t, what_is_here_is_not_asked_for_again);
    tcase_add_test(t, a_version_is_asked_for_once_after_its_time);
    tcase_add_test(t, readers_at_once_ask_as_one_does);
    tcase_add_test(t, readers_who_share_pages_are_one_reader);
    tcase_add_test(t, a_descriptor_may_be_read_at_several_places);
#ifndef NDEBUG /* others count no passes */
    tcase_add_test(t, what_is_fetched_asks_for_no_pass);
#endif
    tcase_add_test(t, a_walk_asks_for_no_name_that_it_was_told);
    tcase_add_test(t, a_small_file_is_one_put_under_its_last_name);
    tcase_add_test(t, a_large_file_is_its_parts_and_no_more);
    tcase_add_test(t, what_is_deleted_before_its_upload_costs_nothing);
    tcase_add_test(t, a_folder_that_is_renamed_is_sent_once);
    tcase_add_test(t, a_name_in_a_large_directory_is_asked_for_once);
    suite_add_tcase(s, t);
    return suite_run(s);
}
