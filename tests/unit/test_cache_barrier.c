/* cache/queue/barrier.c: what removals wait for when that goes, too, before the store has it.
 */
#include "cache/mirror/crash.h"
#include "cache/mount.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct driven d;
static atomic_bool refuses;
static atomic_int puts_refused;
static atomic_bool holds_copies;
static atomic_int copies_held;

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_PUT && atomic_load(&refuses)) {
        atomic_fetch_add(&puts_refused, 1);
        return op_fail(c->op, -EIO, "no uploads now");
    }
    if (c->kind == CALL_COPY && atomic_load(&holds_copies))
        atomic_fetch_add(&copies_held, 1);
    while (c->kind == CALL_COPY && atomic_load(&holds_copies))
        (void)usleep(1000);
    return call_next(c);
}

/* ---- ways for `second` to go before it was uploaded, with a `third` closed by then ---- */

static void unlinked(void)
{
    driven_put(&d, "third", "3", 1);
    ck_assert_int_eq(driven_unlink(&d, "second"), 0);
}

static void replaced(void)
{
    driven_put(&d, "next", "3", 1);
    ck_assert_int_eq(driven_rename(&d, "next", "second"), 0);
}

/* What takes its place goes, too, and again. */
static void unlinked_thrice(void)
{
    char from[16] = "second", to[16];

    for (int i = 3; i <= 5; i++) {
        (void)snprintf(to, sizeof(to), "%d", i);
        driven_put(&d, to, "3", 1);
        ck_assert_int_eq(driven_unlink(&d, from), 0);
        (void)snprintf(from, sizeof(from), "%d", i);
    }
}

static void copied(void)
{
    driven_put(&d, "copy", "2", 1);
    driven_put(&d, "more", "2", 1);
    ck_assert_int_eq(driven_unlink(&d, "more"), 0);
    ck_assert_int_eq(driven_unlink(&d, "second"), 0);
}

static const struct {
    void (*goes)(void);
    const char *heir; /* what is there instead, and its content */
    const char *content;
} ways[] = {{unlinked, "third", "3"},
            {replaced, "second", "3"},
            {unlinked_thrice, "5", "3"},
            {copied, "copy", "2"}};

static void rotate(int way)
{
    driven_put(&d, "second", "2", 1);
    ck_assert_int_eq(driven_unlink(&d, "first"), 0);
    ways[way].goes();
}

static void start(void)
{
    atomic_store(&refuses, false);
    driven_init_folder(&d, around, 1 << 20);
    d.config.retry_ns = 20 * NS_PER_MS;
    driven_mount(&d);
    driven_put(&d, "first", "1", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
}

/* Removals had their turn when uploads have been tried again and again. */
static void is_never_without(int way)
{
    atomic_store(&puts_refused, 0);
    DRIVEN_WAIT(atomic_load(&puts_refused) >= 3);
    driven_stores(&d, "first", "1");
    atomic_store(&refuses, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "first", NULL);
    driven_stores(&d, ways[way].heir, ways[way].content);
    driven_release(&d);
}

START_TEST(the_first_waits_for_the_third)
{
    start();
    atomic_store(&refuses, true);
    rotate(_i);
    is_never_without(_i);
}
END_TEST

static void die_in(void (*scene)(int way), int way)
{
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        driven_mount(&d);
        scene(way);
        (void)kill(getpid(), SIGKILL);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

START_TEST(also_for_the_next_mount)
{
    start();
    driven_unmount(&d);
    atomic_store(&refuses, true);
    die_in(rotate, _i);
    driven_mount(&d);
    is_never_without(_i);
}
END_TEST

/* What waits for nothing else goes on. */
START_TEST(a_removal_that_waits_for_nothing_is_not_held)
{
    start();
    driven_put(&d, "old", "0", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refuses, true);
    ck_assert_int_eq(driven_unlink(&d, "old"), 0);
    rotate(0);
    DRIVEN_WAIT(driven_stored(&d, "old", NULL, 0) == -ENOENT);
    is_never_without(0);
}
END_TEST

/* ---- the same while a rename of the directory is carried out by copies ---- */

static void unlinked_below(void)
{
    driven_put(&d, "third", "3", 1);
    ck_assert_int_eq(driven_unlink(&d, "e/first"), 0);
}

static void replaced_below(void)
{
    driven_put(&d, "next", "3", 1);
    ck_assert_int_eq(driven_rename(&d, "next", "e/first"), 0);
}

static const struct {
    void (*goes)(void);
    const char *heir;
} ways_below[] = {{unlinked_below, "third"}, {replaced_below, "e/first"}};

static int count_rename(void *arg, const struct cache_pending *p)
{
    *(int *)arg += strcmp(p->kind, "rename") == 0;
    return 0;
}

static int renames(void)
{
    int n = 0;

    (void)cache_each_pending(d.cache, count_rename, &n);
    return n;
}

/* What is written anew below the new name is not copied: its old version waits for it. */
static void rename_with_what_is_owed(int way)
{
    atomic_store(&refuses, false);
    atomic_store(&copies_held, 0);
    driven_init_like_s3(&d, around);
    d.config.retry_ns = 20 * NS_PER_MS;
    d.config.late_ns = 0;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    driven_put(&d, "d/first", "1", 1);
    driven_put(&d, "d/other", "o", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refuses, true);
    driven_put(&d, "d/first", "2", 1);
    atomic_store(&holds_copies, true);
    ck_assert_int_eq(driven_rename(&d, "d", "e"), 0);
    DRIVEN_WAIT(atomic_load(&copies_held) > 0);
    ways_below[way].goes();
    atomic_store(&holds_copies, false);
    DRIVEN_WAIT(renames() == 0);
}

static void is_never_without_below(int way)
{
    atomic_store(&puts_refused, 0);
    DRIVEN_WAIT(atomic_load(&puts_refused) >= 3);
    driven_stores(&d, "e/other", "o");
    driven_stores(&d, "d/first", "1");
    atomic_store(&refuses, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "d/first", NULL);
    driven_stores(&d, ways_below[way].heir, "3");
    driven_release(&d);
}

START_TEST(what_is_renamed_waits_for_the_third)
{
    rename_with_what_is_owed(_i);
    is_never_without_below(_i);
}
END_TEST

START_TEST(what_is_renamed_does_so_in_the_next_mount)
{
    rename_with_what_is_owed(_i);
    driven_unmount(&d);
    driven_mount(&d);
    is_never_without_below(_i);
}
END_TEST

/* ---- where files come and go all the time ---- */

struct churn {
    pthread_t thread;
    atomic_bool stop;
    unsigned last; /* the number of the one that is there */
};

/* Where they do: the removal has to be of that scope. */
static const char *churned = "";

static void come(unsigned n)
{
    char name[16];

    (void)snprintf(name, sizeof(name), "%sc%u", churned, n);
    ck_assert_int_eq(driven_symlink(&d, "anything", name), 0);
}

static void go(unsigned n)
{
    char name[16];

    (void)snprintf(name, sizeof(name), "%sc%u", churned, n);
    ck_assert_int_eq(driven_unlink(&d, name), 0);
}

static void *come_and_go(void *arg)
{
    struct churn *churn = arg;

    for (; !atomic_load(&churn->stop); churn->last++) {
        come(churn->last + 1);
        go(churn->last);
        (void)usleep(1000);
    }
    return NULL;
}

static int flush_dir(void)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    return cache_flush_path(d.cache, "d", 0, &op, NULL, NULL);
}

static int sync_dir(void)
{
    return driven_fsyncdir(&d, "d");
}

static const struct {
    enum durability durability;
    int (*wait)(void);
} waits[] = {{DURABILITY_CACHE, flush_dir}, {DURABILITY_STORE, sync_dir}};

/* A directory of which one file was removed after the close of something that is not uploaded
 * before it goes, as all that comes in its place. */
static void remove_behind(struct churn *churn, enum durability durability)
{
    atomic_store(&refuses, false);
    driven_init_like_s3(&d, around);
    d.config.durability = durability;
    d.config.retry_ns = 20 * NS_PER_MS;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "d/n"), 0);
    driven_put(&d, "d/first", "1", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    d.config.settle_ns = 600 * NS_PER_SEC;
    driven_mount(&d);
    *churn = (struct churn){0};
    come(churn->last);
    ck_assert_int_eq(driven_unlink(&d, "d/first"), 0);
}

START_TEST(nobody_waits_as_long_as_that_goes_on)
{
    struct churn churn;

    remove_behind(&churn, waits[_i].durability);
    ck_assert_int_eq(pthread_create(&churn.thread, NULL, come_and_go, &churn), 0);
    int r = waits[_i].wait();
    driven_stores(&d, "d/first", "1");
    atomic_store(&churn.stop, true);
    ck_assert_int_eq(pthread_join(churn.thread, NULL), 0);
    ck_assert_int_eq(r, -EBUSY);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "d/first", NULL);
    driven_release(&d);
}
END_TEST

static const struct {
    const char *dir, *churned;
} synced[] = {{"d", ""}, {"d/n", "d/"}};

/* Nor for a new directory around an open file, whose marker comes after the removal of what had
 * its name. */
START_TEST(nobody_waits_for_a_directory_behind_such_a_removal)
{
    const char *dir = synced[_i].dir;
    struct handle *h = NULL;
    struct churn churn;

    churned = synced[_i].churned;
    remove_behind(&churn, DURABILITY_STORE);
    ck_assert_int_eq(driven_rmdir(&d, "d/n"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "d/n"), 0);
    ck_assert_int_eq(driven_open(&d, "d/n/f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(pthread_create(&churn.thread, NULL, come_and_go, &churn), 0);
    int r = driven_fsyncdir(&d, dir);
    atomic_store(&churn.stop, true);
    ck_assert_int_eq(pthread_join(churn.thread, NULL), 0);
    ck_assert_int_eq(r, -EBUSY);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "d/first", NULL);
    driven_stores(&d, "d/n/f", "");
    driven_release(&d);
    churned = "";
}
END_TEST

static void *wait_for_it(void *arg)
{
    int *ret = arg;

    *ret = waits[*ret].wait();
    return NULL;
}

/* What goes now and then has an end. */
START_TEST(what_takes_its_place_is_waited_for)
{
    pthread_t thread;
    struct churn churn;
    int r = _i;

    remove_behind(&churn, waits[_i].durability);
    ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_it, &r), 0);
    (void)usleep(50000);
    come(1);
    go(0);
    (void)usleep(50000);
    driven_stores(&d, "d/first", "1");
    go(1);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(r, 0);
    driven_stores(&d, "d/first", NULL);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_barrier");
    TCase *t = tcase_create("cache_barrier");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, the_first_waits_for_the_third, 0, 4);
    tcase_add_loop_test(t, also_for_the_next_mount, 0, 4);
    tcase_add_test(t, a_removal_that_waits_for_nothing_is_not_held);
    tcase_add_loop_test(t, what_is_renamed_waits_for_the_third, 0, 2);
    tcase_add_loop_test(t, what_is_renamed_does_so_in_the_next_mount, 0, 2);
    tcase_add_loop_test(t, nobody_waits_as_long_as_that_goes_on, 0, 2);
    tcase_add_loop_test(t, nobody_waits_for_a_directory_behind_such_a_removal, 0, 2);
    tcase_add_loop_test(t, what_takes_its_place_is_waited_for, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
