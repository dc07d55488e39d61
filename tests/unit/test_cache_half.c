/* cache/: a file that somebody makes anew and has neither closed nor synced replaces nothing.
 */
#include "cache/cache.h"
#include "cache/mirror/crash.h"
#include "cache/mirror/door.h"
#include "cache/offline.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct driven d;

/* A store with `f` in a whole version, which outlives the process. */
static void with_whole(void)
{
    driven_init_folder(&d, NULL, 1 << 20);
    d.config.settle_ns = 10 * NS_PER_SEC; /* nothing goes up that no flush asks for */
    driven_store(&d, "f", "the whole", 9);
}

static struct handle *begin(const char *path, int flags)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(&d, path, flags, &h), 0);
    return h;
}

static void add(struct handle *h, const char *text, uint64_t off)
{
    ck_assert_int_eq(driven_write(&d, h, text, strlen(text), off), 0);
}

/* A close() without the end of the open file. */
static void close_a_duplicate(struct handle *h)
{
    struct waiter none = {0};

    ck_assert_int_eq(cache_flush(d.cache, h, &none), 0);
}

/* The mount of a daemon that was killed while `scene` had files open. */
static void kill_in(void (*scene)(void))
{
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        driven_mount(&d);
        scene();
        (void)kill(getpid(), SIGKILL);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void killed_in(void (*scene)(void))
{
    kill_in(scene);
    driven_mount(&d);
}

static uint64_t kept(void)
{
    struct cache_stats s;

    cache_get_stats(d.cache, &s);
    return s.kept_files;
}

static int flush(const char *path, unsigned flags)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    int r = cache_flush_path(d.cache, path, flags, &op, NULL, NULL);
    ck_assert(r != -ETXTBSY || strstr(op.why, "f is being written"));
    return r;
}

/* ---- killed ---- */

static void overwrite(void)
{
    add(begin("f", O_WRONLY | O_TRUNC), "half", 0);
}

static void empty(void)
{
    (void)begin("f", O_WRONLY | O_TRUNC);
}

static void empty_after_close(void)
{
    driven_put(&d, "f", "closed", 6);
    empty();
}

static void empty_after_chmod(void)
{
    ck_assert_int_eq(driven_chmod(&d, "f", 0600), 0);
    empty();
}

static void empty_by_handle(void)
{
    struct handle *h = begin("f", O_RDWR);
    struct stat st = {0};
    struct waiter none = {0};

    ck_assert_int_eq(cache_setattr(d.cache, handle_node(h), h, CACHE_SET_SIZE, &none, &st), 0);
    add(h, "half", 0);
}

static void overwrite_after_close(void)
{
    driven_put(&d, "f", "closed", 6);
    overwrite();
}

static void overwrite_with_a_duplicate(void)
{
    struct handle *h = begin("f", O_WRONLY | O_TRUNC);

    add(h, "one", 0);
    close_a_duplicate(h);
    add(h, "two", 0); /* as large, and perhaps within the same tick of the clock */
}

static void overwrite_and_fork(void)
{
    struct handle *h = begin("f", O_WRONLY | O_TRUNC);
    struct waiter none = {0};

    add(h, "one", 0);
    ck_assert_int_eq(cache_flush_inherited(d.cache, h, &none), 0);
}

/* Which of them leaves something to keep. */
static const struct {
    void (*scene)(void);
    unsigned kept;
} halves[] = {{overwrite, 1},
              {empty, 0},
              {empty_after_close, 1},
              {empty_after_chmod, 1},
              {empty_by_handle, 1},
              {overwrite_after_close, 1},
              {overwrite_with_a_duplicate, 1},
              {overwrite_and_fork, 1}};

START_TEST(a_half_file_replaces_nothing)
{
    with_whole();
    killed_in(halves[_i].scene);
    ck_assert_uint_eq(kept(), halves[_i].kept);
    driven_shows(&d, "f", "the whole");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "the whole");
    driven_release(&d);
}
END_TEST

static void make_new(void)
{
    add(begin("new", O_WRONLY | O_CREAT), "half", 0);
}

START_TEST(nor_does_it_come_as_something_new)
{
    struct stat st;

    with_whole();
    killed_in(make_new);
    ck_assert_uint_eq(kept(), 1);
    ck_assert_int_eq(driven_stat(&d, "new", &st), -ENOENT);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "new", NULL);
    driven_release(&d);
}
END_TEST

static void empty_what_a_removal_waits_for(void)
{
    driven_put(&d, "new", "closed", 6);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    (void)begin("new", O_WRONLY | O_TRUNC);
}

static void empty_another_name(void)
{
    ck_assert_int_eq(driven_link(&d, "f", "new"), 0);
    empty();
}

static const struct {
    void (*scene)(void);
    unsigned kept;
} empties[] = {{empty_what_a_removal_waits_for, 1}, {empty_another_name, 2}};

START_TEST(an_empty_one_is_kept_when_a_close_or_a_name_goes_with_it)
{
    with_whole();
    killed_in(empties[_i].scene);
    ck_assert_uint_eq(kept(), empties[_i].kept);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "the whole");
    driven_release(&d);
}
END_TEST

static void remove_another_meanwhile(void)
{
    overwrite();
    ck_assert_int_eq(driven_unlink(&d, "g"), 0);
}

START_TEST(no_removal_waits_for_what_was_never_closed)
{
    with_whole();
    driven_store(&d, "g", "removed", 7);
    killed_in(remove_another_meanwhile);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "g", NULL);
    driven_stores(&d, "f", "the whole");
    driven_release(&d);
}
END_TEST

static void close_without_release(void)
{
    struct handle *h = begin("f", O_WRONLY | O_TRUNC);

    add(h, "closed", 0);
    close_a_duplicate(h);
}

static void close_and_set_time(void)
{
    close_without_release();
    ck_assert_int_eq(driven_utimens(&d, "f", 1000 * NS_PER_SEC), 0);
}

static void sync_and_go_on(void)
{
    struct handle *h = begin("f", O_WRONLY | O_TRUNC);

    add(h, "clo", 0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    add(h, "sed", 3);
}

static void change_after_close(void)
{
    driven_put(&d, "f", "clo", 3);
    add(begin("f", O_WRONLY), "sed", 3);
}

static void (*const wholes[])(void) = {close_without_release, close_and_set_time,
                                       sync_and_go_on, change_after_close};

START_TEST(what_was_closed_or_synced_is_published)
{
    with_whole();
    killed_in(wholes[_i]);
    ck_assert_uint_eq(kept(), 0);
    driven_shows(&d, "f", "closed");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "closed");
    driven_release(&d);
}
END_TEST

/* Past the daemon, by who has the duplicate. */
static void close_set_time_and_write_on(void)
{
    char path[128];

    close_and_set_time();
    (void)snprintf(path, sizeof(path), "%s/mirror/f", d.dir);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "half", 4, 0), 4);
    ck_assert_int_eq(close(fd), 0);
}

START_TEST(a_new_time_makes_no_whole_of_what_comes_later)
{
    with_whole();
    killed_in(close_set_time_and_write_on);
    ck_assert_uint_eq(kept(), 1);
    driven_shows(&d, "f", "the whole");
    driven_release(&d);
}
END_TEST

#ifndef NDEBUG

static void die_at_a_new_time(void)
{
    crash_arm("utimens-moved");
    (void)driven_utimens(&d, "f", 1000 * NS_PER_SEC);
    abort();
}

static void close_and_die_at_a_new_time(void)
{
    close_without_release();
    die_at_a_new_time();
}

/* Of what a mount found, too, which was closed before that. */
START_TEST(what_was_closed_is_whole_while_its_time_moves)
{
    with_whole();
    if (_i)
        kill_in(close_without_release);
    killed_in(_i ? die_at_a_new_time : close_and_die_at_a_new_time);
    ck_assert_uint_eq(kept(), 0);
    driven_shows(&d, "f", "closed");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "closed");
    driven_release(&d);
}
END_TEST

#endif

static void write_logs(void)
{
    add(begin("f", O_WRONLY | O_APPEND), ", and more", 9);
    add(begin("appended", O_WRONLY | O_CREAT | O_APPEND), "line", 0);
    add(begin("train.log", O_WRONLY | O_CREAT | O_TRUNC), "line", 0);
}

START_TEST(a_log_goes_on_as_before)
{
    with_whole();
    killed_in(write_logs);
    ck_assert_uint_eq(kept(), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "the whole, and more");
    driven_stores(&d, "appended", "line");
    driven_stores(&d, "train.log", "line");
    driven_release(&d);
}
END_TEST

static const char *const my_logs[] = {"out", NULL};

static void append_to_log(void)
{
    add(begin("out", O_WRONLY | O_TRUNC), "line", 0);
}

static int count_one(void *arg, const struct cache_pending *p)
{
    (void)p;
    ++*(unsigned *)arg;
    return 0;
}

/* `runfs recover` does not know what a log is: it only looks, and the next mount publishes what
 * it would have published. */
START_TEST(who_looks_at_a_cache_keeps_nothing)
{
    unsigned pending = 0;
    struct op op;

    with_whole();
    d.config.logs = my_logs;
    driven_store(&d, "out", "", 0);
    kill_in(append_to_log);
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(recover_list(d.dir, &op, count_one, &pending), 0);
    ck_assert_uint_eq(pending, 1);
    driven_mount(&d);
    ck_assert_uint_eq(kept(), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "out", "line");
    driven_release(&d);
}
END_TEST

/* Nor does the mount of another store, which is refused. */
START_TEST(another_mount_does_not_judge_a_half_file)
{
    struct cache_config other;
    struct op op;

    with_whole();
    d.config.logs = my_logs;
    driven_store(&d, "out", "", 0);
    kill_in(append_to_log);
    other = d.config;
    other.identity = "another store";
    other.logs = NULL;
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(cache_new(&other, d.store, &op, &d.cache), -EEXIST);
    driven_mount(&d);
    ck_assert_uint_eq(kept(), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "out", "line");
    driven_release(&d);
}
END_TEST

/* A directory stands in the identity's place, or more than anybody reads. */
static void hide_identity(bool by_size, const char *identity, const char *away)
{
    ck_assert_int_eq(rename(identity, away), 0);
    if (!by_size) {
        ck_assert_int_eq(mkdir(identity, 0700), 0);
        return;
    }
    auto_close int fd = open(identity, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ck_assert_int_eq(ftruncate(fd, DOOR_TEXT_MAX + 1), 0);
}

/* Its policies would make of the half file what the mount that it is of does not. */
START_TEST(a_mount_that_cannot_tell_whose_it_is_judges_nothing)
{
    char identity[300], away[300];
    struct cache_config other;
    unsigned pending = 0;
    struct op op;

    with_whole();
    d.config.logs = my_logs;
    driven_store(&d, "out", "", 0);
    kill_in(append_to_log);
    (void)snprintf(identity, sizeof(identity), "%s/identity", d.dir);
    (void)snprintf(away, sizeof(away), "%s.identity", d.dir);
    hide_identity(_i, identity, away);
    other = d.config;
    other.identity = "another store";
    other.logs = NULL;
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(cache_new(&other, d.store, &op, &d.cache), _i ? -EFBIG : -EPERM);
    ck_assert_ptr_nonnull(strstr(op.why, "whose it is"));
    ck_assert_ptr_nonnull(strstr(op.why, " --export DIR"));
    ck_assert_int_eq(recover_list(d.dir, &op, count_one, &pending), 0);
    ck_assert_uint_eq(pending, 1); /* so is it exported */
    ck_assert_int_eq(remove(identity), 0);
    ck_assert_int_eq(rename(away, identity), 0);
    driven_mount(&d);
    ck_assert_uint_eq(kept(), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "out", "line");
    driven_release(&d);
}
END_TEST

/* ---- alive ---- */

START_TEST(a_flush_leaves_half_files_out)
{
    with_whole();
    driven_mount(&d);
    struct handle *h = begin("f", O_WRONLY | O_TRUNC);
    add(h, "half", 0);
    driven_put(&d, "other", "closed", 6);
    ck_assert_int_eq(flush("", CACHE_FLUSH_STAGED), -ETXTBSY);
    driven_stores(&d, "other", "closed"); /* all else is there */
    ck_assert_int_eq(flush("f", 0), -ETXTBSY);
    driven_stores(&d, "f", "the whole");
    ck_assert_int_eq(flush("f", CACHE_FLUSH_HALF), 0);
    driven_stores(&d, "f", "half");
    add(h, " and half", 4);
    ck_assert_int_eq(flush("f", 0), -ETXTBSY);
    driven_stores(&d, "f", "half");
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(flush("f", 0), 0);
    driven_stores(&d, "f", "half and half");
    driven_release(&d);
}
END_TEST

/* A removal waits for what was closed before it, and is made anew now: nobody can say when that
 * ends. A flush says so, and does not wait for it. */
START_TEST(a_flush_leaves_removals_behind_half_files_out)
{
    with_whole();
    driven_store(&d, "gone", "before", 6);
    driven_mount(&d);
    driven_put(&d, "other", "closed", 6);
    if (_i == 0)
        driven_put(&d, "f", "closed", 6);
    else
        driven_put(&d, "first", "closed", 6);
    ck_assert_int_eq(driven_unlink(&d, "gone"), 0);
    if (_i) { /* it waits for all that is closed by then */
        driven_put(&d, "f", "closed", 6);
        ck_assert_int_eq(driven_unlink(&d, "first"), 0);
    }
    struct handle *h = begin("f", O_WRONLY | O_TRUNC);
    add(h, "half", 0);
    ck_assert_int_eq(flush("", CACHE_FLUSH_STAGED), -ETXTBSY);
    ck_assert_int_eq(flush("gone", 0), -ETXTBSY);
    ck_assert_int_eq(flush("other", 0), 0); /* what does not wait for it tells nothing of it */
    driven_stores(&d, "gone", "before");
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(flush("", 0), 0);
    driven_stores(&d, "f", "half");
    driven_stores(&d, "gone", NULL);
    driven_release(&d);
}
END_TEST

START_TEST(a_flush_publishes_what_was_synced)
{
    with_whole();
    driven_mount(&d);
    struct handle *h = begin("f", O_WRONLY | O_TRUNC);
    add(h, "synced", 0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    ck_assert_int_eq(flush("", 0), 0);
    driven_stores(&d, "f", "synced");
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

/* Of what is synced the store is told, whatever is written behind that. */
START_TEST(a_sync_to_the_store_returns)
{
    with_whole();
    d.config.durability = DURABILITY_STORE;
    driven_mount(&d);
    struct handle *h = begin("f", O_WRONLY | O_TRUNC);
    add(h, "synced", 0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    driven_stores(&d, "f", "synced");
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

/* As `runfs umount` and SIGTERM: what is half is named, and the next mount keeps it aside. */
static void end_with_half(void)
{
    struct handle *h = begin("f", O_WRONLY | O_TRUNC);
    add(h, "half", 0);
    ck_assert_int_eq(flush("", CACHE_FLUSH_STAGED), -ETXTBSY);
    cache_abandon(d.cache, h);
    cache_release(d.cache, h);
    ck_assert_int_eq(flush("", CACHE_FLUSH_STAGED), -ETXTBSY);
    struct op op;
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(cache_end(d.cache, &op), 0);
}

START_TEST(an_end_publishes_nothing_half)
{
    with_whole();
    killed_in(end_with_half);
    ck_assert_uint_eq(kept(), 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "the whole");
    driven_release(&d);
}
END_TEST

/* ---- without memory ---- */

#define LONG_NAME 211 /* bytes; nothing else that a flush asks memory for is as long */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MALLOC_IS_OURS 1

static _Thread_local bool no_memory; /* for a path of LONG_NAME bytes */

void *malloc(size_t size)
{
    static void *(*libc)(size_t);

    if (!libc)
        *(void **)&libc = dlsym(RTLD_NEXT, "malloc");
    if (no_memory && size > LONG_NAME && size <= LONG_NAME + 2) {
        errno = ENOMEM;
        return NULL;
    }
    return libc(size);
}

/* Neither of what is being written yet, nor of what is closed, if that is not in the store. */
START_TEST(a_flush_without_memory_tells_no_success)
{
    bool half = _i == 0;
    char name[LONG_NAME + 1];
    struct op op;

    memset(name, 'n', LONG_NAME);
    name[LONG_NAME] = '\0';
    with_whole();
    driven_mount(&d);
    struct handle *h = begin(name, O_WRONLY | O_CREAT);
    add(h, "written", 0);
    if (!half)
        ck_assert_int_eq(driven_close(&d, h), 0);
    op_init(&op, 20 * NS_PER_SEC);
    no_memory = true;
    int r = cache_flush_path(d.cache, "", 0, &op, NULL, NULL);
    no_memory = false;
    ck_assert_int_eq(r, half ? -ENOMEM : 0);
    if (half)
        ck_assert_int_eq(driven_close(&d, h), 0);
    if (r == 0)
        driven_stores(&d, name, "written");
    driven_release(&d);
}
END_TEST
#endif

int main(void)
{
    Suite *s = suite_create("cache_half");
    TCase *t = tcase_create("cache_half");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_half_file_replaces_nothing, 0, (int)ARRAY_SIZE(halves));
    tcase_add_test(t, nor_does_it_come_as_something_new);
    tcase_add_loop_test(t, an_empty_one_is_kept_when_a_close_or_a_name_goes_with_it, 0,
                        (int)ARRAY_SIZE(empties));
    tcase_add_test(t, no_removal_waits_for_what_was_never_closed);
    tcase_add_loop_test(t, what_was_closed_or_synced_is_published, 0, (int)ARRAY_SIZE(wholes));
    tcase_add_test(t, a_new_time_makes_no_whole_of_what_comes_later);
#ifndef NDEBUG
    tcase_add_loop_test(t, what_was_closed_is_whole_while_its_time_moves, 0, 2);
#endif
    tcase_add_test(t, a_log_goes_on_as_before);
    tcase_add_test(t, who_looks_at_a_cache_keeps_nothing);
    tcase_add_test(t, another_mount_does_not_judge_a_half_file);
    tcase_add_loop_test(t, a_mount_that_cannot_tell_whose_it_is_judges_nothing, 0, 2);
    tcase_add_test(t, a_flush_leaves_half_files_out);
    tcase_add_loop_test(t, a_flush_leaves_removals_behind_half_files_out, 0, 2);
    tcase_add_test(t, a_flush_publishes_what_was_synced);
    tcase_add_test(t, a_sync_to_the_store_returns);
    tcase_add_test(t, an_end_publishes_nothing_half);
#ifdef MALLOC_IS_OURS
    tcase_add_loop_test(t, a_flush_without_memory_tells_no_success, 0, 2);
#endif
    suite_add_tcase(s, t);
    return suite_run(s);
}
