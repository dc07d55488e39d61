/* cache/: of two names of a file that is written all the time both reach the store, and none is
 * sent again and again. */
#include "cache/mount.h"
#include "common/mem.h"
#include "tests/lib/at_point.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PUT_US 20000

static struct driven d;
static const char *_Atomic refused; /* puts of this key are; NULL none */
static atomic_int refused_with = -EIO;
static atomic_int sent;
static void (*_Atomic meanwhile)(void); /* called once while a put runs; NULL none */

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind != CALL_PUT)
        return call_next(c);
    atomic_fetch_add(&sent, 1);
    (void)usleep(PUT_US);
    void (*then)(void) = atomic_exchange(&meanwhile, NULL);
    if (then)
        then();
    const char *key = atomic_load(&refused);
    return key && strcmp(key, c->key) == 0
               ? op_fail(c->op, atomic_load(&refused_with), "%s: refused", key)
               : call_next(c);
}

static int flush(int64_t ns)
{
    struct op op;

    op_init(&op, ns);
    return cache_flush_path(d.cache, "", CACHE_FLUSH_STAGED, &op, NULL, NULL);
}

/* `f` and `g`, one file, in the store. */
static void with_two_names(void)
{
    atomic_store(&refused, NULL);
    driven_init(&d, around);
    driven_mount(&d);
    driven_put(&d, "f", "1", 1);
    ck_assert_int_eq(driven_link(&d, "f", "g"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&sent, 0);
}

struct writing {
    pthread_t thread;
    struct handle *handle;
    atomic_bool over;
    uint64_t n;
};

static void write_one(struct writing *w)
{
    ck_assert_int_eq(driven_write(&d, w->handle, "x", 1, w->n++), 0);
}

static void *write_on(void *arg)
{
    struct writing *w = arg;

    while (!atomic_load(&w->over)) {
        write_one(w);
        (void)usleep(1000);
    }
    return NULL;
}

static void begin_writing(struct writing *w)
{
    *w = (struct writing){.n = 1};
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_APPEND, &w->handle), 0);
    write_one(w);
    ck_assert_int_eq(pthread_create(&w->thread, NULL, write_on, w), 0);
}

static void end_writing(struct writing *w)
{
    atomic_store(&w->over, true);
    ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
    ck_assert_int_eq(driven_close(&d, w->handle), 0);
    driven_release(&d);
}

START_TEST(both_reach_the_store_beside_a_writer)
{
    struct writing w;

    with_two_names();
    begin_writing(&w);
    ck_assert_int_eq(flush(20 * NS_PER_SEC), 0);
    ck_assert_int_lt(atomic_load(&sent), 20);
    end_writing(&w);
}
END_TEST

START_TEST(one_is_not_sent_on_and_on_while_the_other_fails)
{
    struct writing w;

    with_two_names();
    atomic_store(&refused, _i == 0 ? "f" : "g");
    begin_writing(&w);
    (void)flush(5 * NS_PER_SEC);
    ck_assert_int_lt(atomic_load(&sent), 20);
    end_writing(&w);
}
END_TEST

/* ---- a change that no time tells of ---- */

static int64_t then_ns; /* a time of the mirror file that nothing is older than the tick of */

/* A mount that lets the kernel write, and `f`. */
static void with_passthrough(const char *refuses)
{
    then_ns = clock_real_ns() + 100 * NS_PER_SEC;
    atomic_store(&refused, refuses);
    driven_init(&d, around);
    d.config.passthrough = true;
    d.config.retry_ns = 200 * NS_PER_MS; /* the other name goes up when the refused one may */
    driven_mount(&d);
    driven_put(&d, "f", "1", 1);
}

static struct handle *open_past(void)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY, &h), 0);
    ck_assert(handle_passthrough(h));
    return h;
}

/* The kernel writes it, within the clock's tick: the file has the time that it had. */
static void write_unseen(struct handle *h, const char *text)
{
    const struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = then_ns / NS_PER_SEC, .tv_nsec = then_ns % NS_PER_SEC}};

    ck_assert_int_eq(pwrite(driven_fd(&d, h), text, 1, 0), 1);
    ck_assert_int_eq(futimens(driven_fd(&d, h), times), 0);
}

static void both_get(const char *wanted)
{
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "g", wanted);
    driven_stores(&d, "f", wanted);
    driven_release(&d);
}

/* The second time the file is open when it gets the other name. */
START_TEST(a_change_past_the_daemon_reaches_both)
{
    with_passthrough(NULL);
    ck_assert_int_eq(driven_utimens(&d, "f", then_ns), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    struct handle *h = _i == 1 ? open_past() : NULL;
    ck_assert_int_eq(driven_link(&d, "f", "g"), 0);
    h = h ? h : open_past();
    write_unseen(h, "2");
    ck_assert_int_eq(driven_close(&d, h), 0);
    both_get("2");
}
END_TEST

/* A writer who may write past the daemon is open while all go up: each is sent once or twice,
 * and again after the close, when no such write is on its way any more. (Of two names a flush
 * ends before it can show.) */
START_TEST(none_is_sent_on_and_on_beside_a_writer_past_the_daemon)
{
    with_passthrough(NULL);
    ck_assert_int_eq(driven_link(&d, "f", "g"), 0);
    ck_assert_int_eq(driven_link(&d, "f", "h"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_utimens(&d, "f", then_ns), 0);
    struct handle *h = open_past();
    ck_assert_int_eq(driven_truncate(&d, "f", 2), 0);
    ck_assert_int_eq(driven_utimens(&d, "f", then_ns), 0);
    atomic_store(&sent, 0);
    ck_assert_int_eq(flush(20 * NS_PER_SEC), 0);
    ck_assert_int_le(atomic_load(&sent), 6);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(flush(20 * NS_PER_SEC), 0);
    ck_assert_int_le(atomic_load(&sent), 12);
    driven_release(&d);
}
END_TEST

/* It comes when the one name has gone up, beside the writer, and the other has not. */
START_TEST(a_change_between_the_two_uploads_reaches_both)
{
    with_passthrough(_i == 0 ? "f" : "g");
    ck_assert_int_eq(driven_link(&d, "f", "g"), 0);
    struct handle *h = open_past();
    ck_assert_int_eq(driven_utimens(&d, "f", then_ns), 0);
    ck_assert_int_ne(flush(2 * NS_PER_SEC), 0);
    driven_stores(&d, _i == 0 ? "g" : "f", "1");
    write_unseen(h, "2");
    ck_assert_int_eq(driven_close(&d, h), 0);
    atomic_store(&refused, NULL);
    both_get("2");
}
END_TEST

static uint64_t generation(void)
{
    cache_lock(d.cache);
    uint64_t now = tree_find(d.cache, "f", NULL)->file->generation;
    cache_unlock(d.cache);
    return now;
}

/* Of what was closed the name that was sent before has nothing, beside another writer, too: who
 * waits for it does not take the one content for the other. */
START_TEST(what_is_closed_is_not_what_was_sent_before)
{
    with_passthrough(_i == 0 ? "f" : "g");
    ck_assert_int_eq(driven_link(&d, "f", "g"), 0);
    struct handle *h = open_past(), *other = open_past();
    ck_assert_int_eq(driven_utimens(&d, "f", then_ns), 0);
    ck_assert_int_ne(flush(2 * NS_PER_SEC), 0);
    driven_stores(&d, _i == 0 ? "g" : "f", "1");
    uint64_t sent_then = generation();
    write_unseen(h, "2");
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_uint_gt(generation(), sent_then);
    atomic_store(&refused, NULL);
    ck_assert_int_eq(driven_close(&d, other), 0);
    both_get("2");
}
END_TEST

/* ---- the name that was owed goes ---- */

static void unlink_it(void)
{
    ck_assert_int_eq(driven_unlink(&d, "g"), 0);
}

static void replace_it(void)
{
    ck_assert_int_eq(driven_rename(&d, "other", "g"), 0);
}

static void (*const ways[])(void) = {unlink_it, replace_it};

/* `f` is in the store, its second name `g` is not, nor is `other`. */
static void with_one_owed(void)
{
    atomic_store(&refused, NULL);
    atomic_store(&meanwhile, NULL);
    driven_init(&d, around);
    d.config.settle_ns = 60 * NS_PER_SEC; /* only a flush uploads */
    driven_mount(&d);
    driven_put(&d, "f", "1", 1);
    driven_put(&d, "other", "2", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_link(&d, "f", "g"), 0);
    atomic_store(&sent, 0);
}

/* With so many puts since, and none for the next mount to make. */
static void nothing_is_owed(int puts)
{
    struct cache_stats s;

    ck_assert_int_eq(driven_flush(&d), 0);
    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.dirty_files, 0);
    driven_stores(&d, "f", "1");
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_shows(&d, "f", "1");
    ck_assert_int_eq(atomic_load(&sent), puts);
    driven_release(&d);
}

START_TEST(the_other_name_is_not_sent_again)
{
    with_one_owed();
    ways[_i]();
    nothing_is_owed(0);
}
END_TEST

START_TEST(nor_when_its_upload_runs)
{
    with_one_owed();
    atomic_store(&meanwhile, ways[_i]);
    ck_assert_int_eq(flush(20 * NS_PER_SEC), 0);
    nothing_is_owed(1);
}
END_TEST

/* With an error that no repetition mends, the second time around. */
START_TEST(nor_when_its_upload_fails)
{
    with_one_owed();
    atomic_store(&refused, "g");
    atomic_store(&refused_with, _i < 2 ? -EIO : -EACCES);
    atomic_store(&meanwhile, ways[_i % 2]);
    ck_assert_int_eq(flush(20 * NS_PER_SEC), 0);
    atomic_store(&refused, NULL);
    atomic_store(&refused_with, -EIO);
    nothing_is_owed(1);
}
END_TEST

static int64_t no_copies(struct layer *l, struct call *c)
{
    (void)l;
    return c->kind == CALL_COPY ? op_fail(c->op, -EIO, "%s: refused", c->key) : call_next(c);
}

/* The look that is left is none of an upload to the name that it takes, of which a rename may
 * wait for ever. */
START_TEST(nor_does_a_flush_wait_for_what_keeps_the_other_name)
{
    struct op op;

    driven_init_like_s3(&d, no_copies);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "b"), 0);
    driven_put(&d, "a/f", "1", 1);
    ck_assert_int_eq(driven_link(&d, "a/f", "b/h"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_rename(&d, "b", "c"), 0);
    ck_assert_int_eq(driven_link(&d, "a/f", "a/g"), 0);
    ck_assert_int_eq(driven_unlink(&d, "a/g"), 0);
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(cache_flush_path(d.cache, "a", 0, &op, NULL, NULL), 0);
    driven_release(&d);
}
END_TEST

static int64_t copies_denied(struct layer *l, struct call *c)
{
    (void)l;
    return c->kind == CALL_COPY ? op_fail(c->op, -EACCES, "%s: denied", c->key) : call_next(c);
}

/* A rename that is refused for good has one name wait, whichever was there first. */
START_TEST(the_other_name_does_not_wait_for_what_keeps_the_one)
{
    const char *moves = _i ? "g" : "f";

    driven_init_like_s3(&d, copies_denied);
    d.config.settle_ns = 3600 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, "x", "x", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_put(&d, "f", "1", 1);
    ck_assert_int_eq(driven_link(&d, "f", "g"), 0);
    ck_assert_int_eq(driven_rename(&d, "x", "a"), 0);
    ck_assert_int_eq(driven_rename(&d, moves, "a"), 0);
    ck_assert_int_eq(flush(20 * NS_PER_SEC), -EACCES);
    driven_stores(&d, _i ? "f" : "g", "1");
    driven_release(&d);
}
END_TEST

static struct handle *writer;

static void write_more(void)
{
    ck_assert_int_eq(driven_write(&d, writer, "2", 1, 1), 0);
}

static int64_t around_without_copies(struct layer *l, struct call *c)
{
    return c->kind == CALL_COPY ? copies_denied(l, c) : around(l, c);
}

/* Somebody waited for the name that goes while a program wrote on. What that has closed goes up
 * there in its time, though the other name still waits. */
START_TEST(what_was_closed_goes_up_beside_what_keeps_the_other_name)
{
    char buf[8];

    atomic_store(&refused, NULL);
    driven_init_like_s3(&d, around_without_copies);
    d.config.durability = DURABILITY_STORE;
    d.config.settle_ns = 2 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, "x", "x", 1);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_put(&d, "d/f", "10", 2);
    ck_assert_int_eq(driven_link(&d, "d/f", "g"), 0);
    ck_assert_int_eq(driven_rename(&d, "x", "a"), 0);
    ck_assert_int_eq(driven_rename(&d, "g", "a"), 0);
    ck_assert_int_eq(driven_truncate(&d, "d/f", 1), 0);
    ck_assert_int_eq(driven_open(&d, "d/f", O_WRONLY, &writer), 0);
    atomic_store(&meanwhile, write_more);
    ck_assert_int_eq(driven_fsyncdir(&d, "d"), 0);
    ck_assert_ptr_null(atomic_load(&meanwhile));
    driven_stores(&d, "d/f", "1");
    ck_assert_int_eq(driven_close(&d, writer), -EACCES); /* of the name that waits */
    DRIVEN_WAIT(driven_stored(&d, "d/f", buf, sizeof(buf)) == 2);
    driven_stores(&d, "d/f", "12");
    driven_release(&d);
}
END_TEST

static struct handle *kept_open;

static bool no_upload_runs(void)
{
    cache_lock(d.cache);
    bool none = d.cache->queue->uploads_running == 0;
    cache_unlock(d.cache);
    return none;
}

static void write_over(void)
{
    ck_assert_int_eq(driven_write(&d, kept_open, "33", 2, 0), 0);
}

/* What was closed is there under both names, though the first to get it owes what was written
 * since, and does not get that before the writer has closed it. */
START_TEST(a_removal_waits_for_what_was_closed_alone)
{
    struct handle *h;
    char text[8];

    with_two_names();
    driven_put(&d, "x", "x", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY, &kept_open), 0);
    ck_assert_int_eq(driven_open(&d, "g", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "2", 1, 0), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    atomic_store(&refused, "g");
    /* One may end by the failure of `g` before `f` is sent, which is open and waits on then. */
    DRIVEN_WAIT(flush(2 * NS_PER_SEC) != 0 && driven_stored(&d, "f", text, sizeof(text)) == 1 &&
                *text == '2');
    DRIVEN_WAIT(no_upload_runs()); /* one that began for the flush is past the point */
    ck_assert_int_eq(driven_unlink(&d, "x"), 0);
    at("upload-leased", write_over);
    atomic_store(&refused, NULL);
    ck_assert_int_eq(flush(10 * NS_PER_SEC), 0);
    crash_watch(NULL);
    ck_assert(atomic_load(&done));
    driven_stores(&d, "x", NULL);
    ck_assert_int_eq(driven_close(&d, kept_open), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "33");
    driven_stores(&d, "g", "33");
    driven_release(&d);
}
END_TEST

START_TEST(what_was_written_goes_up_to_the_other_name)
{
    with_one_owed();
    driven_put(&d, "f", "3", 1);
    ways[_i]();
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "3");
    driven_release(&d);
}
END_TEST

/* ---- their directories change places under the upload ---- */

static void exchange_them(void)
{
    ck_assert_int_eq(driven_exchange(&d, "d", "e"), 0);
}

static void move_them(void)
{
    ck_assert_int_eq(driven_rename(&d, "d", "f"), 0);
    ck_assert_int_eq(driven_rename(&d, "e", "d"), 0);
    ck_assert_int_eq(driven_rename(&d, "f", "e"), 0);
}

static void move_one_over_the_other(void)
{
    ck_assert_int_eq(driven_unlink(&d, "e/b"), 0);
    ck_assert_int_eq(driven_rename(&d, "d", "f"), 0);
    ck_assert_int_eq(driven_rename(&d, "f/a", "e/b"), 0);
    ck_assert_int_eq(driven_rename(&d, "e", "d"), 0);
}

/* The other name comes to the path in a new directory: what the store has there is to leave
 * with the old one. */
static void take_the_place(void)
{
    ck_assert_int_eq(driven_rename(&d, "e", "f"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "e"), 0);
    ck_assert_int_eq(driven_rename(&d, "d/a", "e/a"), 0);
}

static void (*const turns[])(void) = {exchange_them, move_them, move_one_over_the_other,
                                      take_the_place};
static void (*_Atomic behind)(void); /* called once when a put was made, and is not answered */

static int64_t around_both(struct layer *l, struct call *c)
{
    int64_t r = around(l, c);
    void (*then)(void) = c->kind == CALL_PUT ? atomic_exchange(&behind, NULL) : NULL;

    if (then)
        then();
    return r;
}

/* `d/a` and `e/a`, one file that was written again, and `e/b`. `e/a` goes up first. */
static void with_two_directories(bool s3)
{
    atomic_store(&refused, NULL);
    (s3 ? driven_init_like_s3 : driven_init)(&d, around_both);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "e"), 0);
    driven_put(&d, "d/a", "1", 1);
    driven_put(&d, "e/b", "b", 1);
    ck_assert_int_eq(driven_link(&d, "d/a", "e/a"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_put(&d, "d/a", "2", 1);
}

static void each_has(const char *wanted)
{
    static const char *const names[] = {"d/a", "d/b", "e/a", "e/b", "f/a"};
    struct stat st;
    int n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (driven_stat(&d, names[i], &st) == 0 && st.st_nlink > 1) {
            driven_stores(&d, names[i], wanted);
            n++;
        }
    ck_assert_int_eq(n, 2);
}

START_TEST(both_get_it_though_their_directories_change_places)
{
    with_two_directories(_i & 1);
    atomic_store(_i & 2 ? &behind : &meanwhile, turns[_i / 4]);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_ptr_null(atomic_load(_i & 2 ? &behind : &meanwhile));
    each_has("2");
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_two_names");
    TCase *t = tcase_create("cache_two_names");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, both_reach_the_store_beside_a_writer);
    tcase_add_loop_test(t, one_is_not_sent_on_and_on_while_the_other_fails, 0, 2);
    tcase_add_loop_test(t, a_change_past_the_daemon_reaches_both, 0, 2);
    tcase_add_test(t, none_is_sent_on_and_on_beside_a_writer_past_the_daemon);
    tcase_add_loop_test(t, a_change_between_the_two_uploads_reaches_both, 0, 2);
    tcase_add_loop_test(t, what_is_closed_is_not_what_was_sent_before, 0, 2);
    tcase_add_loop_test(t, the_other_name_is_not_sent_again, 0, ARRAY_SIZE(ways));
    tcase_add_loop_test(t, nor_when_its_upload_runs, 0, ARRAY_SIZE(ways));
    tcase_add_loop_test(t, nor_when_its_upload_fails, 0, 2 * ARRAY_SIZE(ways));
    tcase_add_test(t, nor_does_a_flush_wait_for_what_keeps_the_other_name);
    tcase_add_loop_test(t, the_other_name_does_not_wait_for_what_keeps_the_one, 0, 2);
    tcase_add_test(t, what_was_closed_goes_up_beside_what_keeps_the_other_name);
    tcase_add_test(t, a_removal_waits_for_what_was_closed_alone);
    tcase_add_loop_test(t, what_was_written_goes_up_to_the_other_name, 0, ARRAY_SIZE(ways));
    tcase_add_loop_test(t, both_get_it_though_their_directories_change_places, 0,
                        4 * ARRAY_SIZE(turns));
    suite_add_tcase(s, t);
    return suite_run(s);
}
