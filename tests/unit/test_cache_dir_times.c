/* cache/: the time that a user gives to a directory comes to a folder behind the names that
 * move it there, and no flush waits for names that it does not send. */
#include "backends/drivers.h"
#include "cache/cache.h"
#include "cache/content/content.h"
#include "cache/transfer/transfer_impl.h"
#include "common/mem.h"
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"
#include "tests/lib/temp_dir.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define TIME (1000 * NS_PER_SEC)

static struct driven d;
static atomic_bool slow;   /* requests are, those for directories most of all */
static atomic_int marked;  /* how many directories the store was told of */
static atomic_bool held;   /* uploads wait */
static atomic_int waiting; /* how many did */
static atomic_int refused; /* so many uploads are */

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_MKDIR)
        atomic_fetch_add(&marked, 1);
    if (atomic_load(&slow))
        (void)usleep(c->kind == CALL_MKDIR ? 100000 : 10000);
    if (c->kind != CALL_PUT)
        return call_next(c);
    atomic_fetch_add(&waiting, 1);
    while (atomic_load(&held))
        (void)usleep(1000);
    if (atomic_load(&refused) > 0) {
        atomic_fetch_sub(&refused, 1);
        return op_fail(c->op, -EIO, "put: refused");
    }
    return call_next(c);
}

static void setup(void)
{
    atomic_store(&held, false);
    atomic_store(&slow, false);
    atomic_store(&marked, 0);
    atomic_store(&waiting, 0);
    atomic_store(&refused, 0);
    driven_init_folder(&d, around, 1 << 20);
    d.config.settle_ns = 30 * NS_PER_SEC; /* nothing goes up that no flush asks for */
    d.config.retry_ns = NS_PER_SEC;
    driven_store(&d, "d/gone", "gone", 4);
    driven_store(&d, "d/sub/gone", "gone", 4);
    driven_store(&d, "d/sub/stays", "stays", 5);
    driven_mount(&d);
}

static void teardown(void)
{
    driven_release(&d);
}

static struct handle *begin(const char *path, int flags)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(&d, path, O_CREAT | O_WRONLY | flags, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "x", 1, 0), 0);
    return h;
}

static int flush(unsigned flags)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    return cache_flush_path(d.cache, "", flags, &op, NULL, NULL);
}

static const char *stored_path(const char *key)
{
    static char path[sizeof(d.folder) + 8];

    (void)snprintf(path, sizeof(path), "%s/%s", d.folder, key);
    return path;
}

static int64_t stored_time(const char *key)
{
    struct stat st;

    return stat(stored_path(key), &st) == 0 ? stat_mtime_ns(&st) : -1;
}

static void set_time(void)
{
    ck_assert_int_eq(driven_utimens(&d, "d", TIME), 0);
}

/* ---- a flush that an upload holds up ---- */

struct flushing {
    pthread_t thread;
    unsigned flags;
    int result;
};

static void *flush_all(void *arg)
{
    struct flushing *f = arg;

    f->result = flush(f->flags);
    return NULL;
}

static void flush_begun(struct flushing *f, unsigned flags)
{
    *f = (struct flushing){.flags = flags};
    atomic_store(&waiting, 0);
    atomic_store(&held, true);
    ck_assert_int_eq(pthread_create(&f->thread, NULL, flush_all, f), 0);
    DRIVEN_WAIT(atomic_load(&waiting) == 1);
}

static int flush_ended(struct flushing *f)
{
    atomic_store(&held, false);
    ck_assert_int_eq(pthread_join(f->thread, NULL), 0);
    return f->result;
}

static void flush_slowly(unsigned flags)
{
    struct flushing f;

    flush_begun(&f, flags);
    (void)usleep(300000); /* the directory would go first */
    ck_assert_int_eq(flush_ended(&f), 0);
}

/* ---- the time comes last ---- */

/* Where no flush waits. */
START_TEST(the_time_waits_for_a_half_file)
{
    driven_unmount(&d);
    d.config.settle_ns = NS_PER_MS;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "e"), 0);
    struct handle *h = begin("d/x", 0);
    set_time();
    ck_assert_int_eq(driven_utimens(&d, "e", TIME), 0);
    DRIVEN_WAIT(stored_time("e") == TIME);
    ck_assert_int_ne(stored_time("d"), TIME);
    ck_assert_int_eq(driven_close(&d, h), 0);
    DRIVEN_WAIT(stored_time("d") == TIME);
    driven_stores(&d, "d/x", "x");
}
END_TEST

START_TEST(the_time_comes_after_a_half_file_that_the_flush_sends)
{
    struct handle *h = begin("d/x", 0);

    set_time();
    flush_slowly(CACHE_FLUSH_HALF);
    driven_stores(&d, "d/x", "x");
    ck_assert_int_eq(stored_time("d"), TIME);
    ck_assert_int_eq(driven_close(&d, h), 0);
}
END_TEST

START_TEST(the_time_comes_after_a_staged_file_that_the_flush_sends)
{
    driven_put(&d, "d/x.tmp", "x", 1);
    set_time();
    flush_slowly(CACHE_FLUSH_STAGED);
    driven_stores(&d, "d/x.tmp", "x");
    ck_assert_int_eq(stored_time("d"), TIME);
}
END_TEST

#ifndef NDEBUG
/* While the names of a directory are on their way, no look of a flush asks for a pass. */
START_TEST(a_flush_that_waits_for_names_asks_for_few_passes)
{
    struct flushing f;
    char name[16];

    driven_unmount(&d);
    d.config.upload_jobs = 1; /* what is left is much: the flush looks often */
    driven_mount(&d);
    for (int i = 0; i < 8; i++) {
        (void)snprintf(name, sizeof(name), "d/%d", i);
        driven_put(&d, name, "x", 1);
    }
    set_time();
    flush_begun(&f, 0);
    unsigned long long before = atomic_load(&passes_made);
    (void)usleep(500000);
    unsigned long long passes = atomic_load(&passes_made) - before;
    ck_assert_msg(passes <= 20, "%llu", passes);
    ck_assert_int_eq(flush_ended(&f), 0);
    ck_assert_int_eq(stored_time("d"), TIME);
}
END_TEST
#endif

/* ---- a program that changes the directory again and again ---- */

struct changing {
    pthread_t thread;
    atomic_bool over;
    atomic_uint made; /* changes */
};

static void *change_on(void *arg)
{
    struct changing *ch = arg;

    for (unsigned i = 0; !atomic_load(&ch->over); i++) {
        ck_assert_int_eq(driven_chmod(&d, "d", 0700 + i % 8), 0);
        atomic_fetch_add(&ch->made, 1);
        (void)usleep(30000);
    }
    return NULL;
}

/* Each change puts the directory off by the settle time, which is longer than the time between
 * two changes. The first upload misses a change: the store gets it by another one. */
START_TEST(a_flush_of_a_directory_that_changes_on_and_on_ends)
{
    struct flushing f = {.flags = 0};
    struct changing ch = {.over = false};

    driven_unmount(&d);
    d.config.settle_ns = 100 * NS_PER_MS;
    driven_mount(&d);
    atomic_store(&slow, true);
    ck_assert_int_eq(pthread_create(&ch.thread, NULL, change_on, &ch), 0);
    DRIVEN_WAIT(atomic_load(&ch.made) > 0); /* else the flush has nothing to wait for */
    ck_assert_int_eq(pthread_create(&f.thread, NULL, flush_all, &f), 0);
    DRIVEN_WAIT(atomic_load(&marked) > 0);
    (void)usleep(20000);
    atomic_store(&slow, false);
    ck_assert_int_eq(pthread_join(f.thread, NULL), 0);
    atomic_store(&ch.over, true);
    ck_assert_int_eq(pthread_join(ch.thread, NULL), 0);
    ck_assert_int_eq(f.result, 0);
}
END_TEST

/* The flush leaves the name out, and sends the time: it is owed again when the name comes. */
START_TEST(the_time_comes_again_after_a_name_that_came_later)
{
    struct handle *h = _i < 2 ? begin("d/x", 0) : NULL;
    struct stat st;

    if (!h)
        driven_put(&d, "d/x.tmp", "x", 1);
    ck_assert_int_eq(driven_setxattr(&d, "d", "user.k", "v", 1, 0), 0);
    set_time();
    ck_assert_int_eq(flush(0), h ? -ETXTBSY : 0);
    ck_assert_int_eq(stored_time("d"), TIME);
    if (_i == 1) { /* what another node did to it stays */
        ck_assert_int_eq(chmod(stored_path("d"), 0700), 0);
        ck_assert_int_ge(driven_list(&d, ""), 1);
        DRIVEN_WAIT(driven_stat(&d, "d", &st) == 0 && (st.st_mode & 07777) == 0700);
        ck_assert_int_eq(stat_mtime_ns(&st), TIME);
    }
    if (h)
        ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(flush(CACHE_FLUSH_STAGED), 0);
    driven_stores(&d, h ? "d/x" : "d/x.tmp", "x");
    ck_assert_int_eq(stored_time("d"), TIME);
    ck_assert_int_eq(getxattr(stored_path("d"), "user.k", NULL, 0), 1);
    if (_i == 1) {
        ck_assert_int_eq(stat(stored_path("d"), &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 0700);
    }
}
END_TEST

START_TEST(the_time_alone_makes_no_directory)
{
    const struct attrs time = {.has = ATTR_MTIME, .mtime_ns = TIME};
    struct op op;

    op_init(&op, NS_PER_SEC);
    ck_assert_int_eq(chmod(stored_path("d"), 0700), 0);
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "d", &time, NULL), 0);
    ck_assert_int_eq(stored_time("d"), TIME);
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "none", &time, NULL), 0);
    ck_assert_int_eq(store_mkdir(d.store->next, &op, "none/sub", &time, NULL), 0);
    ck_assert(!driven_stores_dir(&d, "none"));
}
END_TEST

/* 0 is a time as any other: archives have it. */
START_TEST(a_time_of_0_comes_again)
{
    struct handle *h = begin("d/x", 0);
    struct stat st;

    ck_assert_int_eq(driven_utimens(&d, "d", 0), 0);
    ck_assert_int_eq(flush(0), -ETXTBSY);
    ck_assert_int_eq(chmod(stored_path("d"), 0700), 0);
    ck_assert_int_ge(driven_list(&d, ""), 1);
    DRIVEN_WAIT(driven_stat(&d, "d", &st) == 0 && (st.st_mode & 07777) == 0700);
    ck_assert_int_eq(stat_mtime_ns(&st), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(flush(0), 0);
    ck_assert_int_eq(stored_time("d"), 0);
}
END_TEST

/* Nothing is owed to a directory that is another user's, or lies nowhere any more; a folder
 * that is gone is no success. */
START_TEST(the_time_alone_of_what_others_changed)
{
    const struct attrs time = {.has = ATTR_MTIME, .mtime_ns = TIME};
    char folder[64];
    struct store *s = NULL;
    struct op op;

    op_init(&op, NS_PER_SEC);
    temp_dir_make(folder, sizeof(folder));
    ck_assert_int_eq(local_store_new(folder, NULL, &op, &s), 0);
    ck_assert_int_eq(store_mkdir(s, &op, "d", NULL, NULL), 0);
    auto_close int fd = openat(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY);
    ck_assert_int_eq(mknodat(fd, "file", S_IFREG | 0644, 0), 0);
    ck_assert_int_eq(store_mkdir(s, &op, "file/d", &time, NULL), 0);
    if (geteuid() == 0) {
        ck_assert_int_eq(fchmod(fd, 0777), 0);
        ck_assert_int_eq(fchownat(fd, "d", 1001, 1001, 0), 0);
        (void)setfsuid(1000);
        int r = store_mkdir(s, &op, "d", &time, NULL);
        (void)setfsuid(0);
        ck_assert_int_eq(r, 0);
    }
    temp_dir_remove(folder);
    ck_assert_int_eq(store_mkdir(s, &op, "d", &time, NULL), -ENXIO);
    ck_assert_int_eq(store_mkdir(s, &op, "d/sub", &time, NULL), -ENXIO);
    store_close(s);
    (void)strcat(folder, ".runfs"); /* its state */
    temp_dir_remove(folder);
}
END_TEST

START_TEST(the_time_comes_after_a_file_that_failed)
{
    driven_put(&d, "d/x", "x", 1);
    set_time();
    atomic_store(&refused, 1);
    ck_assert_int_eq(flush(0), 0);
    driven_stores(&d, "d/x", "x");
    ck_assert_int_eq(stored_time("d"), TIME);
}
END_TEST

/* Nothing is owed for a name that is gone. */
START_TEST(the_time_is_not_owed_after_a_name_that_went)
{
    struct handle *h = begin("d/x", 0);

    set_time();
    ck_assert_int_eq(flush(0), -ETXTBSY);
    ck_assert_int_eq(driven_unlink(&d, "d/x"), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(flush(0), 0);
    ck_assert_str_eq(driven_state(&d, "d"), "clean");
    driven_end(&d);
    driven_mount(&d);
    ck_assert_str_eq(driven_state(&d, "d"), "clean");
    ck_assert_int_eq(flush(0), 0);
    ck_assert_int_eq(atomic_load(&marked), 1);
}
END_TEST

static const struct routed_row scratches[] = {
    {.path = "{y}/{x}.lock", .leaf = 0, .scratch = true}, {.path = "**", .leaf = 0}};

/* What stays here moves nothing there. */
START_TEST(the_time_waits_for_no_scratch_file)
{
    static struct routed_world w;

    routed_init(&w, scratches, 2, ROUTED_FOLDERS);
    driven_mount(&w.d);
    ck_assert_int_eq(driven_mkdir(&w.d, "d"), 0);
    driven_put(&w.d, "d/a.lock", "x", 1);
    ck_assert_int_eq(driven_utimens(&w.d, "d", TIME), 0);
    DRIVEN_WAIT(strcmp(driven_state(&w.d, "d"), "clean") == 0);
    routed_release(&w);
}
END_TEST

/* A marker has its time whatever comes beside it. */
START_TEST(a_marker_is_put_once)
{
    driven_release(&d);
    driven_init_like_s3(&d, around);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&marked, 0);
    for (int i = 0; i < 20; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "d/f%d", i);
        driven_put(&d, name, "x", 1);
    }
    atomic_store(&slow, true);
    set_time();
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(atomic_load(&marked), 1);
}
END_TEST

/* ---- what no flush waits for ---- */

START_TEST(a_flush_waits_for_no_write_after_it)
{
    struct flushing f;
    struct handle *h = begin("d/x", O_APPEND);

    set_time();
    flush_begun(&f, 0);
    ck_assert_int_eq(driven_write(&d, h, "y", 1, 1), 0);
    ck_assert_int_eq(flush_ended(&f), 0);
    ck_assert_int_eq(stored_time("d"), TIME);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(flush(0), 0);
    driven_stores(&d, "d/x", "xy");
    ck_assert_int_eq(stored_time("d"), TIME);
}
END_TEST

/* It was closed as the flush began, and is being made anew before its turn. */
START_TEST(a_flush_waits_for_no_file_that_became_half)
{
    struct flushing f;

    driven_unmount(&d);
    d.config.upload_jobs = 1;
    driven_mount(&d);
    driven_put(&d, "a", "x", 1);
    driven_put(&d, "d/x", "x", 1);
    set_time();
    flush_begun(&f, 0);
    struct handle *h = begin("d/x", O_TRUNC);
    ck_assert_int_eq(flush_ended(&f), -ETXTBSY);
    ck_assert_int_eq(stored_time("d"), TIME);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(flush(0), 0);
    ck_assert_int_eq(stored_time("d"), TIME);
}
END_TEST

START_TEST(a_flush_waits_for_no_later_removal_further_below)
{
    struct flushing f;

    driven_put(&d, "d/y", "x", 1);
    set_time();
    flush_begun(&f, 0);
    driven_put(&d, "g", "x", 1);
    ck_assert_int_eq(driven_unlink(&d, "d/sub/gone"), 0);
    ck_assert_int_eq(flush_ended(&f), 0);
    ck_assert_int_eq(stored_time("d"), TIME);
}
END_TEST

/* A half file holds a removal up, which holds the directory up. */
START_TEST(a_flush_leaves_a_directory_behind_a_removal_out)
{
    ck_assert_int_eq(driven_mkdir(&d, "e"), 0);
    ck_assert_int_eq(flush(0), 0);
    driven_put(&d, "f", "closed", 6);
    if (_i == 0)
        ck_assert_int_eq(driven_rmdir(&d, "e"), 0);
    else
        ck_assert_int_eq(driven_unlink(&d, "d/gone"), 0);
    struct handle *h = begin("f", O_TRUNC);
    if (_i == 0)
        ck_assert_int_eq(driven_mkdir(&d, "e"), 0);
    else
        set_time();
    ck_assert_int_eq(flush(CACHE_FLUSH_STAGED), -ETXTBSY);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(flush(0), 0);
    driven_stores(&d, "f", "x");
    ck_assert(driven_stores_dir(&d, "e"));
    if (_i) {
        driven_stores(&d, "d/gone", NULL);
        ck_assert_int_eq(stored_time("d"), TIME);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_dir_times");
    TCase *t = tcase_create("cache_dir_times");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_time_waits_for_a_half_file);
    tcase_add_test(t, the_time_comes_after_a_half_file_that_the_flush_sends);
    tcase_add_test(t, the_time_comes_after_a_staged_file_that_the_flush_sends);
#ifndef NDEBUG /* others count no passes */
    tcase_add_test(t, a_flush_that_waits_for_names_asks_for_few_passes);
#endif
    tcase_add_test(t, a_flush_of_a_directory_that_changes_on_and_on_ends);
    tcase_add_loop_test(t, the_time_comes_again_after_a_name_that_came_later, 0, 3);
    tcase_add_test(t, the_time_alone_makes_no_directory);
    tcase_add_test(t, a_time_of_0_comes_again);
    tcase_add_test(t, the_time_alone_of_what_others_changed);
    tcase_add_test(t, the_time_comes_after_a_file_that_failed);
    tcase_add_test(t, the_time_is_not_owed_after_a_name_that_went);
    tcase_add_test(t, the_time_waits_for_no_scratch_file);
    tcase_add_test(t, a_marker_is_put_once);
    tcase_add_test(t, a_flush_waits_for_no_write_after_it);
    tcase_add_test(t, a_flush_waits_for_no_file_that_became_half);
    tcase_add_test(t, a_flush_waits_for_no_later_removal_further_below);
    tcase_add_loop_test(t, a_flush_leaves_a_directory_behind_a_removal_out, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
