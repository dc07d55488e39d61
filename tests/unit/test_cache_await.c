/* cache/await.c: who may only read waits, and hurries nothing. */
#include "cache/cache.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct driven d;
static atomic_bool refuse;

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (atomic_load(&refuse) && c->kind == CALL_PUT)
        return op_fail(c->op, -EACCES, "refused");
    return call_next(c);
}

/* A mount whose uploads rest until somebody asks for them. */
static void mount_resting(void)
{
    atomic_store(&refuse, false);
    driven_init(&d, around);
    d.config.settle_ns = 3600 * NS_PER_SEC;
    d.config.retry_ns = 50 * NS_PER_MS;
    driven_mount(&d);
}

struct waiting {
    pthread_t thread;
    struct node *node;
    atomic_bool cancelled, over;
    int result;
};

static void *await_it(void *arg)
{
    struct waiting *w = arg;
    struct op op;

    op_init(&op, OP_FOREVER);
    op.cancelled = &w->cancelled;
    w->result = cache_await(d.cache, w->node, &op);
    atomic_store(&w->over, true);
    return NULL;
}

static void begin(struct waiting *w, const char *path)
{
    struct op op;

    op_init(&op, OP_FOREVER);
    *w = (struct waiting){.result = 1};
    ck_assert_int_eq(cache_walk(d.cache, path, &op, &w->node), 0);
    ck_assert_int_eq(pthread_create(&w->thread, NULL, await_it, w), 0);
}

static int end(struct waiting *w)
{
    ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
    if (w->node != cache_root(d.cache))
        cache_forget(d.cache, w->node, 1);
    return w->result;
}

static int await(const char *path)
{
    struct waiting w;

    begin(&w, path);
    return end(&w);
}

START_TEST(waiting_hurries_nothing)
{
    struct waiting file, all;

    mount_resting();
    ck_assert_int_eq(await(""), 0);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_put(&d, "dir/x", "x", 1);
    begin(&file, "dir/x");
    begin(&all, "");
    (void)usleep(300000);
    ck_assert(!atomic_load(&file.over) && !atomic_load(&all.over));
    driven_stores(&d, "dir/x", NULL);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(end(&file), 0);
    ck_assert_int_eq(end(&all), 0);
    driven_stores(&d, "dir/x", "x");
    ck_assert_int_eq(await("dir/x"), 0);
    driven_release(&d);
}
END_TEST

/* The name that it has at the end is what the store has. */
START_TEST(a_rename_is_waited_for)
{
    struct waiting w;

    mount_resting();
    driven_put(&d, "x", "x", 1);
    begin(&w, "x");
    (void)usleep(100000);
    ck_assert_int_eq(driven_rename(&d, "x", "y"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(end(&w), 0);
    driven_stores(&d, "y", "x");
    driven_release(&d);
}
END_TEST

START_TEST(what_no_waiting_helps)
{
    struct handle *h;

    mount_resting();
    driven_put(&d, "resting", "r", 1);
    driven_put(&d, "x.tmp", "x", 1);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "dir/y.tmp"), 0);
    ck_assert_int_eq(driven_open(&d, "open", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "half", 4, 0), 0);
    ck_assert_int_eq(await("x.tmp"), -EBUSY);
    ck_assert_int_eq(await("dir"), -EBUSY);
    ck_assert_int_eq(await("open"), -EBUSY);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    ck_assert_int_eq(await("open"), -EBUSY);
    ck_assert_int_eq(await(""), -EBUSY);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

/* What is kept aside the store lacks, also when nobody can look what that is. */
START_TEST(what_is_kept_is_not_there)
{
    struct rlimit limit, none;

    mount_resting();
    driven_put(&d, "x", "ours", 4);
    driven_store(&d, "x", "theirs", 6);
    (void)driven_flush(&d);
    ck_assert_int_eq(await("x"), -ESTALE);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    int r = await("x");
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_int_eq(r, -EMFILE);
    driven_release(&d);
}
END_TEST

START_TEST(it_ends_by_a_failure_or_a_cancel)
{
    struct waiting w;

    mount_resting();
    driven_put(&d, "x", "x", 1);
    begin(&w, "x");
    (void)usleep(100000);
    atomic_store(&w.cancelled, true);
    ck_assert_int_eq(end(&w), -EINTR);
    atomic_store(&refuse, true);
    begin(&w, "x");
    (void)usleep(100000);
    ck_assert_int_eq(driven_flush(&d), -EACCES);
    ck_assert_int_eq(end(&w), -EACCES);
    driven_release(&d);
}
END_TEST

START_TEST(what_is_owed_in_numbers)
{
    char text[200];
    ssize_t n;

    mount_resting();
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/x", "12345", 5);
    driven_put(&d, "dirty", "1", 1);
    n = driven_getxattr(&d, "dir", "user.runfs.owed", text, sizeof(text) - 1);
    ck_assert_int_gt(n, 0);
    text[n] = '\0';
    ck_assert_str_eq(text, "files=1 bytes=5 uploading=0 failed=0 staged=0 operations=1");
    n = driven_getxattr(&d, "dirty", "user.runfs.owed", text, sizeof(text) - 1);
    ck_assert_int_gt(n, 0);
    text[n] = '\0';
    ck_assert_str_eq(text, "files=1 bytes=1 uploading=0 failed=0 staged=0 operations=0");
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_await");
    TCase *t = tcase_create("cache_await");

    tcase_add_test(t, waiting_hurries_nothing);
    tcase_add_test(t, a_rename_is_waited_for);
    tcase_add_test(t, what_no_waiting_helps);
    tcase_add_test(t, what_is_kept_is_not_there);
    tcase_add_test(t, it_ends_by_a_failure_or_a_cancel);
    tcase_add_test(t, what_is_owed_in_numbers);
    tcase_set_timeout(t, 60);
    suite_add_tcase(s, t);
    return suite_run(s);
}
