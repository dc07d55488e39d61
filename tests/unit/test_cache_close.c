/* cache/: what close() and fsync() answer, and when, beside other writers, flushes, removals
 * and a disk that is full. pwrite() is ours, so that it can find no room. */
#include "cache/cache.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int disk_full; /* errno of a write that finds no room, or 0 */

ssize_t pwrite(int fd, const void *buf, size_t len, off_t off)
{
    if (atomic_load(&disk_full) && len == 5) { /* no page of the journal */
        errno = atomic_load(&disk_full);
        return -1;
    }
    return syscall(SYS_pwrite64, fd, buf, len, off);
}

/* ---- the store ---- */

static struct {
    /* Of puts of "other" (0) and "f" (1): */
    atomic_uint held[2];  /* from this one on they are not answered; 0: all are */
    atomic_uint begun[2]; /* how many there were */
    atomic_bool busy;     /* a second writer changes "f" during each put */
    struct handle *second;
    struct driven *driven;
    atomic_int failing; /* errno of every put */
} gate;

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind != CALL_PUT)
        return call_next(c);
    int which = strcmp(c->key, "f") == 0;
    unsigned number = atomic_fetch_add(&gate.begun[which], 1) + 1;
    while (atomic_load(&gate.held[which]) && number >= atomic_load(&gate.held[which])) {
        int waited = op_sleep(c->op, 2 * NS_PER_MS);
        if (waited < 0)
            return waited;
    }
    if (atomic_load(&gate.failing))
        return op_fail(c->op, -atomic_load(&gate.failing), "put: as the test says");
    int64_t r = call_next(c);
    if (which && atomic_load(&gate.busy))
        ck_assert_int_eq(driven_write(gate.driven, gate.second, "more", 4, 0), 0);
    return r;
}

static void begin(struct driven *d, enum durability durability)
{
    atomic_store(&disk_full, 0);
    atomic_store(&gate.busy, false);
    atomic_store(&gate.failing, 0);
    gate.driven = d;
    for (int i = 0; i < 2; i++) {
        atomic_store(&gate.held[i], 0);
        atomic_store(&gate.begun[i], 0);
    }
    driven_init(d, around);
    d->config.durability = durability;
    d->config.upload_jobs = 1;
    d->config.store_timeout_ns = 60 * NS_PER_SEC;
    driven_mount(d);
}

/* The only uploader has to do with another file. */
static void *put_other(void *arg)
{
    driven_put(arg, "other", "other", 5);
    return NULL;
}

static pthread_t occupy_uploader(struct driven *d)
{
    pthread_t t;

    atomic_store(&gate.held[0], 1);
    ck_assert_int_eq(pthread_create(&t, NULL, put_other, d), 0);
    DRIVEN_WAIT(atomic_load(&gate.begun[0]) > 0);
    return t;
}

static void free_uploader(pthread_t t)
{
    atomic_store(&gate.held[0], 0);
    ck_assert_int_eq(pthread_join(t, NULL), 0);
}

/* An fsync() that waits for the store. */
struct syncing {
    struct driven *driven;
    struct handle *handle;
    pthread_t thread;
    int result;
};

static void *run_sync(void *arg)
{
    struct syncing *s = arg;

    s->result = driven_fsync(s->driven, s->handle);
    return NULL;
}

static void start_sync(struct syncing *s, struct driven *d, struct handle *h)
{
    *s = (struct syncing){.driven = d, .handle = h};
    ck_assert_int_eq(pthread_create(&s->thread, NULL, run_sync, s), 0);
    (void)usleep(100000); /* it waits by then; if not yet, the test proves less */
}

static int end_sync(struct syncing *s)
{
    ck_assert_int_eq(pthread_join(s->thread, NULL), 0);
    return s->result;
}

/* ---- no room ---- */

static const int no_room[] = {ENOSPC, EDQUOT, EFBIG};

/* Each fsync() and close() of a file that was cut off says so. */
START_TEST(a_cut_file_says_so_each_time)
{
    struct handle *h = NULL;
    struct driven d;
    char buf[8];

    begin(&d, DURABILITY_STORE);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "one", 3, 0), 0);
    atomic_store(&disk_full, no_room[_i]);
    ck_assert_int_eq(driven_write(&d, h, "three", 5, 3), -no_room[_i]);
    atomic_store(&disk_full, 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(driven_fsync(&d, h), -ENOSPC);
    ck_assert_int_eq(driven_close(&d, h), -ENOSPC);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "three", 5, 3), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_stored(&d, "f", buf, sizeof(buf)), 8);
    driven_release(&d);
}
END_TEST

/* Who waits for the store learns that the file does not go there now. */
START_TEST(a_cut_ends_the_waiting)
{
    struct handle *h = NULL, *second = NULL;
    struct syncing s;
    struct driven d;

    begin(&d, DURABILITY_STORE);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "one", 3, 0), 0);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY, &second), 0);
    pthread_t t = occupy_uploader(&d);
    start_sync(&s, &d, h);
    atomic_store(&disk_full, no_room[_i]);
    ck_assert_int_eq(driven_write(&d, second, "three", 5, 3), -no_room[_i]);
    atomic_store(&disk_full, 0);
    ck_assert_int_eq(end_sync(&s), -ENOSPC);
    free_uploader(t);
    ck_assert_int_eq(driven_write(&d, h, "three", 5, 3), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_close(&d, second), 0);
    driven_release(&d);
}
END_TEST

/* And that it was removed. */
START_TEST(a_removal_ends_the_waiting)
{
    struct handle *h = NULL;
    struct syncing s;
    struct driven d;

    begin(&d, DURABILITY_STORE);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "one", 3, 0), 0);
    pthread_t t = occupy_uploader(&d);
    start_sync(&s, &d, h);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    ck_assert_int_eq(end_sync(&s), 0);
    free_uploader(t);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

/* ---- uploads that failed ---- */

/* A store that can't be reached is no failure of a close() that does not wait for it; one that
 * refuses is. */
static const struct {
    int err, told;
} failing[] = {{ECONNREFUSED, 0}, {ECONNRESET, 0}, {ENETUNREACH, 0},
               {ETIMEDOUT, 0},    {EIO, 0},        {EACCES, -EACCES}};

static bool has_failed(struct driven *d)
{
    struct cache_stats s;

    cache_get_stats(d->cache, &s);
    return s.failed_files > 0;
}

START_TEST(what_passes_is_not_told)
{
    struct handle *h = NULL;
    struct driven d;

    begin(&d, DURABILITY_CACHE);
    atomic_store(&gate.failing, failing[_i].err);
    driven_put(&d, "f", "one", 3);
    DRIVEN_WAIT(has_failed(&d));
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_close(&d, h), failing[_i].told);
    atomic_store(&gate.failing, 0);
    DRIVEN_WAIT(driven_flush(&d) == 0); /* one may end by a refusal that was under way */
    driven_release(&d);
}
END_TEST

/* ---- other writers ---- */

/* fsync() waits for what was written before it, and not for what comes all the while. */
START_TEST(another_writer_does_not_prolong_the_waiting)
{
    struct handle *h = NULL;
    struct driven d;

    begin(&d, DURABILITY_STORE);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY, &gate.second), 0);
    ck_assert_int_eq(driven_write(&d, h, "once", 4, 0), 0);
    atomic_store(&gate.busy, true);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    ck_assert_int_eq(driven_write(&d, h, "twice", 5, 4), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    atomic_store(&gate.busy, false);
    ck_assert_int_eq(driven_close(&d, gate.second), 0);
    driven_release(&d);
}
END_TEST

/* ---- runfs flush ---- */

/* A flush that ends does not take with it what an fsync() waits for. */
START_TEST(a_flush_that_gives_up_leaves_others_waiting)
{
    struct handle *h = NULL;
    struct syncing s;
    struct driven d;
    struct op op;

    begin(&d, DURABILITY_STORE);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "one", 3, 0), 0);
    pthread_t t = occupy_uploader(&d);
    start_sync(&s, &d, h);
    op_init(&op, 300 * NS_PER_MS);
    ck_assert_int_eq(cache_flush_path(d.cache, "f", CACHE_FLUSH_STAGED, &op, NULL, NULL),
                     -ETIMEDOUT);
    free_uploader(t);
    ck_assert_int_eq(end_sync(&s), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

static void *run_flush(void *arg)
{
    ck_assert_int_eq(driven_flush(arg), 0);
    return NULL;
}

/* A checkpoint that is closed while a flush runs, and the older one that is removed then: that
 * stays in the store until all of the new one is there. */
START_TEST(what_is_closed_during_a_flush_has_its_place)
{
    bool closed_before = _i;
    struct handle *h = NULL;
    struct waiter w = {0};
    struct driven d;
    pthread_t t;
    char buf[8];

    begin(&d, DURABILITY_CACHE);
    driven_put(&d, "old", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&gate.held[1], 1);
    if (closed_before)
        driven_put(&d, "f", "once", 4);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT | O_APPEND, &h), 0);
    if (!closed_before)
        ck_assert_int_eq(driven_write(&d, h, "once", 4, 0), 0);
    ck_assert_int_eq(pthread_create(&t, NULL, run_flush, &d), 0);
    DRIVEN_WAIT(atomic_load(&gate.begun[1]) > 0);
    ck_assert_int_eq(driven_write(&d, h, "twice", 5, 0), 0);
    ck_assert_int_eq(cache_flush(d.cache, h, &w), 0);
    ck_assert_int_eq(driven_unlink(&d, "old"), 0);
    cache_release(d.cache, h);
    unsigned begun = atomic_load(&gate.begun[1]);
    atomic_store(&gate.held[1], begun + 1);
    DRIVEN_WAIT(atomic_load(&gate.begun[1]) > begun);
    (void)usleep(300000);
    ck_assert_int_eq(driven_stored(&d, "old", buf, sizeof(buf)), 3);
    atomic_store(&gate.held[1], 0);
    ck_assert_int_eq(pthread_join(t, NULL), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_stored(&d, "f", buf, sizeof(buf)), 5);
    ck_assert_int_eq(driven_stored(&d, "old", buf, sizeof(buf)), -ENOENT);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_close");
    TCase *t = tcase_create("cache_close");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_cut_file_says_so_each_time, 0, 2);
    tcase_add_loop_test(t, a_cut_ends_the_waiting, 0, 2);
    tcase_add_test(t, a_removal_ends_the_waiting);
    tcase_add_loop_test(t, what_passes_is_not_told, 0, sizeof(failing) / sizeof(*failing));
    tcase_add_test(t, another_writer_does_not_prolong_the_waiting);
    tcase_add_test(t, a_flush_that_gives_up_leaves_others_waiting);
    tcase_add_loop_test(t, what_is_closed_during_a_flush_has_its_place, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
