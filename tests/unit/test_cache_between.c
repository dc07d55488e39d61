/* cache/: what comes between two steps of a call or an upload, and must not be lost by it. */
#include "cache/mirror/crash.h"
#include "cache/mount.h"
#include "cache/transfer/transfer.h"
#include "common/mem.h"
#include "tests/lib/at_point.h"
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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct driven d;
static atomic_bool hold_puts, hold_reads, hold_attrs;
static atomic_bool attrs_wait; /* one is held */
static atomic_bool dies;       /* when the store has taken attributes */
static void (*last)(void);     /* what is done before that; may be NULL */

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    while (c->kind == CALL_PUT && atomic_load(&hold_puts))
        (void)usleep(1000);
    while (c->kind == CALL_READ && atomic_load(&hold_reads))
        (void)usleep(1000);
    while (c->kind == CALL_SETATTR && atomic_load(&hold_attrs)) {
        atomic_store(&attrs_wait, true);
        (void)usleep(1000);
    }
    int64_t r = call_next(c);
    if (c->kind == CALL_SETATTR && atomic_load(&dies)) {
        if (last)
            last();
        (void)raise(SIGKILL);
    }
    return r;
}

/* In a process of its own, which dies when all of it is done. */
static void killed_after(void (*function)(void))
{
    int status = 0;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        function();
        (void)raise(SIGKILL);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void start(void)
{
    atomic_store(&hold_puts, false);
    atomic_store(&hold_reads, false);
    atomic_store(&hold_attrs, false);
    atomic_store(&attrs_wait, false);
    atomic_store(&dies, false);
    last = NULL;
    driven_init_folder(&d, around, 1 << 20);
    d.config.settle_ns = 0;
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
}

static void stored_once(void)
{
    driven_mount(&d);
    driven_put(&d, "f", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    (void)usleep(100000); /* its time is old enough to prove that it is unchanged */
}

static void open_and_close(void)
{
    struct handle *h;

    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, &h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
}

/* ---- an upload that finds nothing to send ---- */

static void write_and_close(void)
{
    struct handle *h;

    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "newer", 5, 0), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
}

START_TEST(written_after_the_look)
{
    start();
    stored_once();
    at("upload-looked", write_and_close);
    open_and_close();
    DRIVEN_WAIT(atomic_load(&done));
    ck_assert_int_eq(driven_flush(&d), 0);
    crash_watch(NULL);
    driven_stores(&d, "f", "newer");
    driven_release(&d);
}
END_TEST

static void change_mode(void)
{
    ck_assert_int_eq(driven_chmod(&d, "f", 0640), 0);
}

START_TEST(chmod_after_the_look)
{
    struct stat st;

    start();
    stored_once();
    at("upload-looked", change_mode);
    open_and_close();
    DRIVEN_WAIT(atomic_load(&done));
    ck_assert_int_eq(driven_flush(&d), 0);
    crash_watch(NULL);
    driven_unmount(&d);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0640);
    driven_release(&d);
}
END_TEST

static struct handle *opened;

static void open_it(void)
{
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, &opened), 0);
}

static void opened_after_the_look(void)
{
    stored_once();
    at("upload-looked", open_it);
    open_and_close();
    DRIVEN_WAIT(atomic_load(&done));
    (void)usleep(200000); /* the upload ends */
    atomic_store(&hold_puts, true);
    ck_assert_int_eq(driven_write(&d, opened, "newer", 5, 0), 0);
    ck_assert_int_eq(driven_close(&d, opened), 0);
}

START_TEST(opened_after_the_look_and_killed)
{
    start();
    killed_after(opened_after_the_look);
    driven_mount(&d);
    driven_shows(&d, "f", "newer");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "newer");
    driven_release(&d);
}
END_TEST

/* ---- an upload that ends ---- */

static void let_the_upload_end(void)
{
    atomic_store(&hold_puts, false);
    (void)usleep(300000);
}

static void truncate_meanwhile(void)
{
    driven_mount(&d);
    atomic_store(&hold_puts, true);
    driven_put(&d, "f", "content", 7);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "uploading") == 0);
    at("open-stamped", let_the_upload_end);
    ck_assert_int_eq(driven_truncate(&d, "f", 3), 0);
    ck_assert(atomic_load(&done));
}

START_TEST(truncated_while_an_upload_ends)
{
    start();
    killed_after(truncate_meanwhile);
    driven_mount(&d);
    driven_shows(&d, "f", "con");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "con");
    driven_release(&d);
}
END_TEST

static void let_the_attributes_end(void)
{
    atomic_store(&hold_attrs, false);
    (void)usleep(300000);
}

static void empty_meanwhile(void)
{
    driven_mount(&d);
    atomic_store(&hold_attrs, true);
    ck_assert_int_eq(driven_chmod(&d, "f", 0640), 0);
    DRIVEN_WAIT(atomic_load(&attrs_wait));
    atomic_store(&hold_puts, true);
    at("truncate-complete", let_the_attributes_end);
    ck_assert_int_eq(driven_truncate(&d, "f", 0), 0);
    ck_assert(atomic_load(&done));
}

/* The store gets the new mode of a partial file, which is emptied meanwhile. */
START_TEST(emptied_while_its_attributes_go_up)
{
    struct stat st;

    start();
    driven_store(&d, "f", "theirs", 6);
    killed_after(empty_meanwhile);
    driven_mount(&d);
    driven_shows(&d, "f", "");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "");
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0640);
    driven_release(&d);
}
END_TEST

static void let_it_be_uploaded(void)
{
    (void)sleep(20);
}

static void change_mode_and_die_at_once(void)
{
    change_mode();
    (void)raise(SIGKILL);
}

static void change_mode_before_the_records(void)
{
    stored_once();
    at("upload-committed", change_mode_and_die_at_once);
    write_and_close();
    let_it_be_uploaded();
}

/* The store has the new content, the records do not say so, and a chmod writes its stamp. */
START_TEST(chmod_before_the_records_and_killed)
{
    struct stat st;

    start();
    killed_after(change_mode_before_the_records);
    driven_mount(&d);
    driven_shows(&d, "f", "newer");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    driven_shows(&d, "f", "newer");
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0640);
    driven_release(&d);
}
END_TEST

#define TIME_SET_NS (INT64_C(1500000000) * NS_PER_SEC + 123456789)

static void change_mode_after_the_time_is_noted(void)
{
    stored_once();
    at("upload-committed", change_mode_and_die_at_once);
    ck_assert_int_eq(driven_utimens(&d, "f", TIME_SET_NS), 0);
    let_it_be_uploaded();
}

static void change_mode_after_the_time_is_stored(void)
{
    stored_once();
    last = change_mode;
    atomic_store(&dies, true);
    ck_assert_int_eq(driven_utimens(&d, "f", TIME_SET_NS), 0);
    let_it_be_uploaded();
}

/* The store has the new time, and so another version; no record says so, and a chmod writes its
 * stamp. */
START_TEST(chmod_after_a_new_time_and_killed)
{
    struct stat st;

    start();
    killed_after(_i ? change_mode_after_the_time_is_noted
                    : change_mode_after_the_time_is_stored);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    driven_shows(&d, "f", "old");
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0640);
    ck_assert_int_eq(st.st_mtim.tv_sec * NS_PER_SEC + st.st_mtim.tv_nsec, TIME_SET_NS);
    driven_release(&d);
}
END_TEST

static void sync_and_die(void)
{
    struct handle *h;

    ck_assert_int_eq(driven_open(&d, "f", O_RDONLY, &h), 0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    (void)raise(SIGKILL);
}

/* It is noted of the one name, and not yet of the other. */
static void sync_at_the_other(void)
{
    at("upload-committed", sync_and_die);
}

static void sync_before_the_records(void)
{
    stored_once();
    ck_assert_int_eq(driven_link(&d, "f", "g"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    (void)usleep(100000);
    at("upload-committed", sync_at_the_other);
    ck_assert_int_eq(driven_utimens(&d, "f", TIME_SET_NS), 0);
    let_it_be_uploaded();
}

/* The store has the new time of both, and so other versions; the records say so of one, and a
 * stamp is written. Nobody else did that: they stay one file. */
START_TEST(synced_before_a_new_time_is_noted_and_killed)
{
    struct stat f, g;

    start();
    killed_after(sync_before_the_records);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_stat(&d, "f", &f), 0);
    ck_assert_int_eq(driven_stat(&d, "g", &g), 0);
    ck_assert_uint_eq(f.st_ino, g.st_ino);
    ck_assert_uint_eq(f.st_nlink, 2);
    ck_assert_int_eq(f.st_mtim.tv_sec * NS_PER_SEC + f.st_mtim.tv_nsec, TIME_SET_NS);
    driven_shows(&d, "g", "old");
    driven_release(&d);
}
END_TEST

/* ---- a chmod that is not answered yet ---- */

static void change_mode_and_die(void)
{
    stored_once();
    atomic_store(&dies, true);
    at("utimens-moved", let_it_be_uploaded);
    (void)driven_chmod(&d, "f", 0640);
}

/* The mode here and in the store are the same afterwards, whichever it is. */
START_TEST(killed_in_mid_chmod)
{
    struct stat here, there;

    start();
    killed_after(change_mode_and_die);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_stat(&d, "f", &here), 0);
    driven_unmount(&d);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_stat(&d, "f", &there), 0);
    ck_assert_uint_eq(here.st_mode, there.st_mode);
    driven_release(&d);
}
END_TEST

/* ---- two who open at once ---- */

static atomic_uint answered;

static void *opens(void *arg)
{
    struct handle **h = arg;

    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, h), 0);
    atomic_fetch_add(&answered, 1);
    return NULL;
}

START_TEST(two_open_at_once)
{
    struct handle *h[2];
    pthread_t threads[2];

    start();
    stored_once();
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "clean") == 0);
    atomic_store(&answered, 0);
    for (size_t i = 0; i < ARRAY_SIZE(d.cache->stamp_locks); i++)
        mutex_lock(&d.cache->stamp_locks[i]); /* nobody gets a stamp onto the disk */
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, opens, &h[i]), 0);
    (void)usleep(200000);
    ck_assert_uint_eq(atomic_load(&answered), 0);
    for (size_t i = 0; i < ARRAY_SIZE(d.cache->stamp_locks); i++)
        mutex_unlock(&d.cache->stamp_locks[i]);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_int_eq(driven_close(&d, h[i]), 0);
    }
    driven_release(&d);
}
END_TEST

/* ---- eviction ---- */

static void evict_it(void)
{
    static char much[96 << 10];

    driven_put(&d, "other", much, sizeof(much));
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "partial") == 0 ||
                strcmp(driven_state(&d, "f"), "remote") == 0);
}

START_TEST(evicted_before_it_is_linked)
{
    start();
    d.config.size_bytes = 64 << 10;
    stored_once();
    at("link-ready", evict_it);
    ck_assert_int_eq(driven_link(&d, "f", "second"), 0);
    crash_watch(NULL);
    ck_assert(atomic_load(&done));
    driven_shows(&d, "second", "old");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "second", "old");
    driven_release(&d);
}
END_TEST

#define SIZE (1 << 20)

static struct node *node;
static pthread_t changer;
static struct waiter linker;

/* It tries again. */
static void wake_linker(struct waiter *w, int err)
{
    (void)w;
    (void)err;
}

static void *link_node(void *arg)
{
    struct node *made = NULL;
    struct stat st;

    linker = (struct waiter){.wake = wake_linker};
    (void)cache_link(d.cache, node, cache_root(d.cache), "g", &linker, &made, &st);
    return arg;
}

static void begin_link(void)
{
    ck_assert_int_eq(pthread_create(&changer, NULL, link_node, NULL), 0);
    (void)usleep(50000); /* it asks for the rest of the file */
}

/* Who links has nothing open. */
START_TEST(linked_while_it_is_evicted)
{
    static char data[SIZE];
    struct handle *h;
    char buf[16];

    driven_init_like_s3(&d, NULL);
    d.config.part_size = 128 << 10;
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    d.config.size_bytes = SIZE;
    driven_mount(&d);
    driven_store(&d, "f", data, SIZE);
    driven_store(&d, "other", data, SIZE);
    ck_assert_int_eq(driven_list(&d, ""), 2);
    ck_assert_int_eq(driven_open(&d, "f", O_RDONLY, &h), 0);
    ck_assert_int_eq(driven_pread(&d, h, buf, sizeof(buf), SIZE / 2), sizeof(buf));
    node = handle_node(h);
    ck_assert_int_eq(driven_close(&d, h), 0);
    at("discard-orphaned", begin_link);
    ck_assert_int_eq(driven_read(&d, "other", data, SIZE), SIZE);
    DRIVEN_WAIT(atomic_load(&done));
    ck_assert_int_eq(pthread_join(changer, NULL), 0);
    crash_watch(NULL);
    ck_assert_int_eq(driven_read(&d, "f", data, SIZE), SIZE);
    driven_release(&d);
}
END_TEST

/* ---- a file that nobody closes as a writer ---- */

/* As a program that reads what is here, with a window that is not filled. */
static void read_ahead(void)
{
    struct waiter w = {0};

    cache_lock(d.cache);
    struct node *n = tree_find(d.cache, "f", NULL);
    ck_assert_int_eq(fetch_need_locked(d.cache, n, 0, 4096, 3 << 20, &w), 0);
    cache_unlock(d.cache);
}

/* Nothing of the old content comes into a file that is being emptied. */
START_TEST(read_ahead_while_it_is_truncated)
{
    auto_free char *text = calloc(1, 4 << 20);
    struct handle *reader;
    struct stat st;
    char buf[4096];

    start();
    memset(text, 'x', 4 << 20);
    driven_store(&d, "f", text, 4 << 20);
    driven_mount(&d);
    ck_assert_int_eq(driven_open(&d, "f", O_RDONLY, &reader), 0);
    ck_assert_int_eq(driven_pread(&d, reader, buf, sizeof(buf), 0), sizeof(buf));
    atomic_store(&hold_reads, true);
    at("truncate-emptied", read_ahead);
    ck_assert_int_eq(driven_truncate(&d, "f", 0), 0);
    ck_assert(atomic_load(&done));
    atomic_store(&hold_reads, false);
    ck_assert_int_eq(driven_close(&d, reader), 0);
    (void)usleep(100000); /* what was asked for comes */
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    ck_assert_int_eq(st.st_size, 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "");
    driven_release(&d);
}
END_TEST

static struct waiter whole;
static atomic_bool was_told;

static void tell(struct waiter *w, int err)
{
    (void)w;
    atomic_store(&was_told, err == 0);
}

/* As a program that links it, or exchanges it, before its mirror file is in its place. */
static void need_it_whole(void)
{
    cache_lock(d.cache);
    struct node *n = tree_find(d.cache, "f", NULL);
    ck_assert_int_eq(fetch_complete_locked(d.cache, n, &whole), CACHE_PARKED);
    cache_unlock(d.cache);
}

/* Nobody downloads into a file that does not get to its place, or waits for it for ever. */
START_TEST(needed_while_it_is_not_born)
{
    struct handle *h;
    char blocker[96];

    start();
    driven_store(&d, "f", "theirs", 6);
    driven_mount(&d);
    (void)snprintf(blocker, sizeof(blocker), "%s/mirror/f", d.dir);
    ck_assert_int_eq(mkdir(blocker, 0700), 0);
    whole = (struct waiter){.wake = tell};
    atomic_store(&was_told, false);
    at("materialise-incoming", need_it_whole);
    ck_assert_int_eq(driven_open(&d, "f", O_RDONLY, &h), -EEXIST);
    ck_assert(atomic_load(&done));
    DRIVEN_WAIT(atomic_load(&was_told));
    crash_watch(NULL);
    ck_assert_int_eq(rmdir(blocker), 0);
    driven_shows(&d, "f", "theirs");
    driven_release(&d);
}
END_TEST

START_TEST(created_to_be_read)
{
    struct handle *h;

    start();
    driven_mount(&d);
    ck_assert_int_eq(driven_open(&d, "lock", O_RDONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "lock", "");
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_between");
    TCase *t = tcase_create("between");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, written_after_the_look);
    tcase_add_test(t, chmod_after_the_look);
    tcase_add_test(t, opened_after_the_look_and_killed);
    tcase_add_test(t, truncated_while_an_upload_ends);
    tcase_add_test(t, emptied_while_its_attributes_go_up);
    tcase_add_test(t, chmod_before_the_records_and_killed);
    tcase_add_loop_test(t, chmod_after_a_new_time_and_killed, 0, 2);
    tcase_add_test(t, synced_before_a_new_time_is_noted_and_killed);
    tcase_add_test(t, killed_in_mid_chmod);
    tcase_add_test(t, two_open_at_once);
    tcase_add_test(t, evicted_before_it_is_linked);
    tcase_add_test(t, linked_while_it_is_evicted);
    tcase_add_test(t, read_ahead_while_it_is_truncated);
    tcase_add_test(t, needed_while_it_is_not_born);
    tcase_add_test(t, created_to_be_read);
    suite_add_tcase(s, t);
    return suite_run(s);
}
