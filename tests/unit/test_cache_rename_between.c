/* cache/: what comes between the steps of a rename at the store, and must not be lost by it,
 * nor by a kill after it. */
#include "cache/mirror/crash.h"
#include "cache/mount.h"
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
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct driven d;
static atomic_bool hold_puts, hold_copies;
static atomic_bool lost_puts; /* nobody is left to be answered, nor does the store have them */
static atomic_bool lost_attrs, no_attrs, hold_attrs, attrs_wait;
static atomic_uint lost_copies; /* how many are lost yet */
static atomic_bool hold_renames, rename_waits;
static atomic_bool lost_removals, f_goes, copy_waits;
static atomic_bool versions_change; /* with attributes, and copies, as of objects in parts */
static atomic_uint questions;
static void (*_Atomic unanswered)(
    void);        /* what is done, once, before attributes are answered */
static bool dies; /* then, and else the answer is lost */

/* The content tells the version here. */
static int64_t change_version(struct call *c)
{
    const char *key = c->kind == CALL_COPY ? c->to : c->kind == CALL_SETATTR ? c->key : NULL;
    char text[32];

    if (!key)
        return 0;
    (void)snprintf(text, sizeof(text), "%s of %d", key, c->kind);
    driven_store(&d, key, text, strlen(text));
    object_release(c->ret_obj);
    return store_stat(c->next, c->op, key, c->ret_obj);
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    while ((c->kind == CALL_PUT && atomic_load(&hold_puts)) ||
           (c->kind == CALL_COPY && atomic_load(&hold_copies))) {
        atomic_store(&copy_waits, c->kind == CALL_COPY);
        if (c->kind == CALL_PUT && atomic_load(&lost_puts))
            return op_fail(c->op, -EIO, "put %s: lost", c->key);
        (void)usleep(1000);
    }
    atomic_fetch_add(&questions, c->kind == CALL_LIST || c->kind == CALL_STAT);
    while (c->kind == CALL_RENAME && atomic_load(&hold_renames)) {
        atomic_store(&rename_waits, true);
        (void)usleep(1000);
    }
    if (c->kind == CALL_COPY && strcmp(c->to, "f") == 0) /* it came back */
        atomic_store(&lost_removals, true);
    while (c->kind == CALL_SETATTR && atomic_load(&hold_attrs)) {
        atomic_store(&attrs_wait, true);
        (void)usleep(1000);
    }
    if (c->kind == CALL_REMOVE && atomic_load(&lost_removals)) {
        atomic_store(&f_goes, strcmp(c->keys[c->n_keys - 1], "f") == 0);
        return op_fail(c->op, -EIO, "removal of %s: lost", c->key);
    }
    if (c->kind == CALL_SETATTR && atomic_load(&lost_attrs))
        return op_fail(c->op, -EIO, "attributes of %s: lost", c->key);
    if (c->kind == CALL_SETATTR && atomic_load(&no_attrs))
        return op_fail(c->op, -EOPNOTSUPP, "attributes of %s: there are none", c->key);
    if (c->kind == CALL_COPY && atomic_load(&lost_copies)) {
        atomic_fetch_sub(&lost_copies, 1);
        return op_fail(c->op, -EIO, "copy of %s: lost", c->key);
    }
    int64_t r = call_next(c);
    if (r == 0 && atomic_load(&versions_change))
        r = change_version(c);
    void (*meanwhile)(void) =
        c->kind == CALL_SETATTR ? atomic_exchange(&unanswered, NULL) : NULL;
    if (!meanwhile)
        return r;
    meanwhile();
    if (dies)
        (void)raise(SIGKILL);
    object_release(c->ret_obj);
    return op_fail(c->op, -EIO, "attributes of %s: a lost answer", c->key);
}

static void start(void)
{
    driven_init_folder(&d, around, 1 << 20);
    d.config.settle_ns = 0;
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
}

static atomic_bool goes_on;

/* No longer than a failing test takes to say so. */
static void stand_still(void)
{
    int64_t until_ns = clock_mono_ns() + 10 * NS_PER_SEC;

    while (!atomic_load(&goes_on) && clock_mono_ns() < until_ns)
        (void)usleep(1000);
}

static void *stat_moved(void *arg)
{
    struct stat st;

    (void)arg;
    ck_assert_int_eq(driven_stat(&d, "moved/sub/two", &st), 0);
    return NULL;
}

static void store_directory(void)
{
    struct stat st;

    start();
    d.store->facts.caps &= ~(unsigned)STORE_RENAME;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "dir/sub"), 0);
    driven_put(&d, "dir/sub/two", "22", 2);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_stat(&d, "dir", &st), 0);
}

/* The store has copied a directory, and names are told of their new versions: what is asked at
 * the old place then is no news. */
START_TEST(asked_while_a_copied_directory_is_taken_over)
{
    pthread_t thread;

    store_directory();
    atomic_store(&goes_on, false);
    at("renamedir-taken", stand_still);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    DRIVEN_WAIT(atomic_load(&begun));
    ck_assert_int_eq(pthread_create(&thread, NULL, stat_moved, NULL), 0);
    (void)usleep(200000); /* what believes the old place has its answer */
    atomic_store(&goes_on, true);
    (void)pthread_join(thread, NULL);
    ck_assert_int_eq(driven_flush(&d), 0);
    crash_watch(NULL);
    driven_shows(&d, "moved/sub/two", "22");
    driven_release(&d);
}
END_TEST

static void let_it_be_copied(void)
{
    atomic_store(&hold_copies, false);
    (void)usleep(500000); /* it is taken over in that time, if it may be */
}

/* What was listed at the old place becomes names while the new versions are told. */
START_TEST(listed_while_a_copied_directory_is_taken_over)
{
    struct stat st;

    store_directory();
    ck_assert_int_eq(driven_stat(&d, "dir/sub", &st), 0);
    atomic_store(&hold_copies, true);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    (void)usleep(300000); /* it is being copied */
    at("listing-unmoved", let_it_be_copied);
    ck_assert_int_eq(driven_list(&d, "moved/sub"), 1);
    ck_assert(atomic_load(&done));
    ck_assert_int_eq(driven_flush(&d), 0);
    crash_watch(NULL);
    driven_shows(&d, "moved/sub/two", "22");
    driven_release(&d);
}
END_TEST

static const char *const moments[] = {"renamedir-copied", "renamedir-noted", "renamedir-taken"};

/* A directory with a symbolic link that has a mirror file and a file that has none. */
static void store_link_and_file(bool copied)
{
    start();
    if (copied) {
        driven_release(&d);
        driven_init_like_s3(&d, around);
        d.config.settle_ns = d.config.late_ns = 0;
        d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    }
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/f", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_symlink(&d, "there", "dir/l"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_list(&d, "dir"), 2);
}

static void evict_link(void)
{
    struct cache_evicted e;
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(cache_evict_path(d.cache, "moved/l", &op, NULL, NULL, &e), 0);
    ck_assert_uint_eq(e.files, 1);
}

/* Not once the versions are told: who opens it waits then until the place is told, too. */
static void write_file(void)
{
    atomic_store(&hold_puts, true);
    driven_put(&d, "moved/f", "newer", 5);
}

/* A mirror file is made anew while a copied directory is taken over: the next mount still knows
 * what the store has of it. */
START_TEST(made_anew_while_a_copied_directory_is_taken_over)
{
    const bool writes = _i >= 3;
    struct cache_stats s;
    char *target = NULL;

    store_link_and_file(true);
    at(moments[_i % 3], writes ? write_file : evict_link);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    DRIVEN_WAIT(atomic_load(&done));
    if (writes)
        (void)usleep(500000); /* the old names go, the upload does not begin */
    else
        ck_assert_int_eq(driven_flush(&d), 0);
    crash_watch(NULL);
    atomic_store(&lost_puts, true);
    driven_unmount(&d);
    atomic_store(&lost_puts, false);
    atomic_store(&hold_puts, false);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.kept_files, 0);
    ck_assert_int_eq(driven_readlink(&d, "moved/l", &target), 0);
    ck_assert_str_eq(target, "there");
    free(target);
    driven_stores(&d, "moved/f", writes ? "newer" : "old");
    driven_release(&d);
}
END_TEST

static void change_mode_of_moved(void)
{
    ck_assert_int_eq(driven_chmod(&d, "moved/f", 0640), 0);
}

/* Attributes are owed of a file that is renamed, by a copy or not: they still are after a kill.
 */
START_TEST(chmod_around_a_rename_and_killed)
{
    const char *path = _i == 0 ? "g" : "moved/f";
    struct stat st;
    char old[8];

    store_link_and_file(_i < 3);
    atomic_store(&lost_attrs, true);
    atomic_store(&done, true);
    if (_i == 2 || _i == 3)
        at(_i == 2 ? "renamedir-noted" : "renamedir-native", change_mode_of_moved);
    if (_i != 2 && _i != 3)
        ck_assert_int_eq(driven_chmod(&d, "dir/f", 0640), 0);
    ck_assert_int_eq(
        _i == 0 ? driven_rename(&d, "dir/f", "g") : driven_rename(&d, "dir", "moved"), 0);
    DRIVEN_WAIT(atomic_load(&done) && driven_stored(&d, "dir/f", old, sizeof(old)) == -ENOENT);
    crash_watch(NULL);
    driven_unmount(&d);
    driven_mount(&d);
    atomic_store(&lost_attrs, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_stat(&d, path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0640);
    driven_release(&d);
}
END_TEST

/* The version of attributes is known when a file is removed, and was not when it was renamed
 * before: the removal means what is copied then. */
START_TEST(attributes_come_between_a_rename_and_a_removal)
{
    driven_init_like_s3(&d, around);
    d.config.settle_ns = d.config.late_ns = 0;
    driven_mount(&d);
    driven_put(&d, "f", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&attrs_wait, false);
    atomic_store(&hold_attrs, true);
    atomic_store(&hold_copies, true);
    atomic_store(&versions_change, true);
    ck_assert_int_eq(driven_chmod(&d, "f", 0640), 0);
    DRIVEN_WAIT(atomic_load(&attrs_wait));
    ck_assert_int_eq(driven_rename(&d, "f", "g"), 0);
    ck_assert_int_eq(driven_rename(&d, "g", "f"), 0);
    atomic_store(&hold_attrs, false);
    DRIVEN_WAIT(atomic_load(&copy_waits));
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    atomic_store(&hold_copies, false);
    DRIVEN_WAIT(atomic_load(&lost_removals));
    DRIVEN_WAIT(atomic_load(&f_goes));
    driven_unmount(&d);
    atomic_store(&lost_removals, false);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&versions_change, false);
    driven_stores(&d, "f", NULL);
    driven_stores(&d, "g", NULL);
    driven_release(&d);
}
END_TEST

static bool in_dir;

static void remove_the_copy(void)
{
    atomic_store(&lost_removals, true);
    ck_assert_int_eq(driven_unlink(&d, in_dir ? "moved/f" : "g"), 0);
}

/* A name is removed when the row of the rename that brought it is gone, and the cache does not
 * know yet: the next mount knows which version that means. */
START_TEST(removed_as_a_rename_is_noted)
{
    in_dir = _i != 0;
    driven_init_like_s3(&d, around);
    d.config.settle_ns = d.config.late_ns = 0;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, _i ? "dir/f" : "f", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&versions_change, true);
    at(_i ? "renamedir-noted" : "rename-noted", remove_the_copy);
    ck_assert_int_eq(_i ? driven_rename(&d, "dir", "moved") : driven_rename(&d, "f", "g"), 0);
    DRIVEN_WAIT(atomic_load(&done));
    (void)usleep(300000); /* removals get no answer */
    crash_watch(NULL);
    driven_unmount(&d);
    atomic_store(&lost_removals, false);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&versions_change, false);
    driven_stores(&d, _i ? "moved/f" : "g", NULL);
    driven_release(&d);
}
END_TEST

/* Attributes come to the old name of a directory that the store is to rename. What the store
 * has then has another version, which the next mount must know. */
START_TEST(a_time_comes_before_its_directory_is_renamed)
{
    start();
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/f", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&hold_attrs, true);
    ck_assert_int_eq(driven_utimens(&d, "dir/f", 1000 * NS_PER_SEC), 0);
    DRIVEN_WAIT(atomic_load(&attrs_wait));
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    atomic_store(&hold_attrs, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    driven_store(&d, "moved/f", "theirs", 6);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "moved/f", "theirs");
    driven_release(&d);
}
END_TEST

/* A directory's file was there before, in another version: that is not the one that the store
 * has when it is renamed back. */
START_TEST(a_time_of_a_file_that_came_back_and_killed)
{
    struct stat st;
    char text[8];

    start();
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "other"), 0);
    driven_put(&d, "dir/f", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&lost_attrs, true);
    ck_assert_int_eq(driven_utimens(&d, "dir/f", 1000 * NS_PER_SEC), 0);
    ck_assert_int_eq(driven_rename(&d, "dir/f", "other/f"), 0);
    DRIVEN_WAIT(driven_stored(&d, "other/f", text, sizeof(text)) == 3);
    atomic_store(&lost_attrs, false);
    ck_assert_int_eq(driven_rmdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&lost_attrs, true);
    ck_assert_int_eq(driven_utimens(&d, "other/f", 2000 * NS_PER_SEC), 0);
    ck_assert_int_eq(driven_rename(&d, "other", "dir"), 0);
    DRIVEN_WAIT(driven_stored(&d, "dir/f", text, sizeof(text)) == 3);
    (void)usleep(200000); /* the row goes */
    driven_unmount(&d);
    driven_mount(&d);
    atomic_store(&lost_attrs, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_stat(&d, "dir/f", &st), 0);
    ck_assert_int_eq(st.st_mtim.tv_sec, 2000);
    driven_release(&d);
}
END_TEST

static void open_moved(void)
{
    struct handle *h;

    ck_assert_int_eq(driven_open(&d, "moved/e", O_RDONLY, &h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
}

/* The store has renamed a directory, and a file in it gets its mirror file before the cache
 * knows: what another node puts there later is not taken for what is to be replaced. */
START_TEST(opened_while_a_directory_is_renamed)
{
    start();
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/e", "", 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_list(&d, "dir"), 1);
    at("renamedir-native", open_moved);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    DRIVEN_WAIT(atomic_load(&done));
    ck_assert_int_eq(driven_flush(&d), 0);
    crash_watch(NULL);
    driven_unmount(&d);
    driven_store(&d, "moved/e", "theirs", 6);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "moved/e", "theirs");
    driven_release(&d);
}
END_TEST

static void *look_at_moved(void *arg)
{
    const bool *lists = arg;
    struct stat st;

    if (*lists)
        ck_assert_int_eq(driven_list(&d, "moved"), 1);
    else
        ck_assert_int_eq(driven_stat(&d, "moved/f", &st), 0);
    return NULL;
}

/* No answer is of use before the store has renamed the directory. */
START_TEST(a_store_that_renames_is_not_asked_again_and_again)
{
    bool lists = _i == 0;
    pthread_t thread;

    start();
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/f", "1", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_list(&d, ""), 1);
    atomic_store(&rename_waits, false);
    atomic_store(&hold_renames, true);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    DRIVEN_WAIT(atomic_load(&rename_waits));
    atomic_store(&questions, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, look_at_moved, &lists), 0);
    DRIVEN_WAIT(atomic_load(&questions) > 0);
    (void)usleep(500000);
    unsigned n = atomic_load(&questions);
    atomic_store(&hold_renames, false);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_gt(n, 0);
    ck_assert_uint_lt(n, 100);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_release(&d);
}
END_TEST

/* ---- a new time of which no answer came ---- */

#define TIME_SET_NS (INT64_C(1500000000) * NS_PER_SEC + 123456789)

static const struct move {
    const char *from, *to, *then; /* where the file is then */
    int (*make)(struct driven *d, const char *from, const char *to);
} moves[] = {
    {"d/f", "g", "g", driven_rename},
    {"d", "e/d", "e/d/f", driven_rename},
    {"d/f", "e", "e", driven_exchange},
};
static const struct move *move;

static void move_and_change_mode(void)
{
    ck_assert_int_eq(move->make(&d, move->from, move->to), 0);
    ck_assert_int_eq(driven_chmod(&d, move->then, 0640), 0);
}

static void replace_and_move(void)
{
    driven_store(&d, "d/f", "theirs", 6);
    move_and_change_mode();
}

static void move_before_the_answer(void (*meanwhile)(void))
{
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "e"), 0);
    driven_put(&d, "d/f", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    (void)usleep(100000); /* its time is old enough to prove that it is unchanged */
    atomic_store(&unanswered, meanwhile);
    ck_assert_int_eq(driven_utimens(&d, "d/f", TIME_SET_NS), 0);
}

static void move_and_be_killed(void)
{
    int status = 0;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        move_before_the_answer(move_and_change_mode);
        (void)sleep(20);
        _exit(1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
}

/* The folder has the new time, and so another version than the one that is known here. What is
 * copied to the new name is ours nevertheless, and gets the mode. */
START_TEST(moved_before_a_new_time_is_answered)
{
    struct stat st;

    start();
    d.store->facts.caps &= ~(unsigned)STORE_RENAME;
    move = &moves[_i / 2];
    dies = _i % 2;
    if (dies) {
        move_and_be_killed();
        driven_mount(&d);
    } else {
        move_before_the_answer(move_and_change_mode);
        DRIVEN_WAIT(!atomic_load(&unanswered));
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    driven_shows(&d, move->then, "old");
    ck_assert_int_eq(driven_stat(&d, move->then, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0640);
    ck_assert_int_eq(st.st_mtim.tv_sec * NS_PER_SEC + st.st_mtim.tv_nsec, TIME_SET_NS);
    driven_release(&d);
}
END_TEST

/* What another node put there meanwhile is not what the new time made. */
START_TEST(replaced_and_moved_before_a_new_time_is_answered)
{
    struct stat st;

    start();
    d.store->facts.caps &= ~(unsigned)STORE_RENAME;
    move = &moves[_i];
    dies = false;
    move_before_the_answer(replace_and_move);
    DRIVEN_WAIT(!atomic_load(&unanswered));
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    driven_shows(&d, move->then, "theirs");
    ck_assert_int_eq(driven_stat(&d, move->then, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0644);
    ck_assert_int_ne(st.st_mtim.tv_sec, TIME_SET_NS / NS_PER_SEC);
    driven_release(&d);
}
END_TEST

/* The old place, from which it is read until it is copied, has another version since then. */
START_TEST(read_on_after_a_new_time_and_before_the_copy)
{
    const size_t size = 3 << 20;
    auto_free char *text = calloc(1, size);
    struct handle *h;
    char buf[16];

    start();
    d.config.retry_ns = 100 * NS_PER_MS;
    d.store->facts.caps &= ~(unsigned)STORE_RENAME;
    memset(text, 'x', size);
    driven_store(&d, "d/f", text, size);
    driven_mount(&d);
    ck_assert_int_eq(driven_open(&d, "d/f", O_RDONLY, &h), 0);
    ck_assert_int_eq(driven_pread(&d, h, buf, sizeof(buf), 0), sizeof(buf));
    atomic_store(&lost_attrs, true);
    atomic_store(&copy_waits, false);
    atomic_store(&hold_copies, true);
    ck_assert_int_eq(driven_utimens(&d, "d/f", TIME_SET_NS), 0);
    ck_assert_int_eq(driven_rename(&d, "d/f", "g"), 0);
    atomic_store(&lost_attrs, false);
    DRIVEN_WAIT(atomic_load(&copy_waits));
    ck_assert_int_eq(driven_pread(&d, h, buf, sizeof(buf), size / 2), sizeof(buf));
    atomic_store(&lost_copies, 1);
    atomic_store(&hold_copies, false);
    DRIVEN_WAIT(!atomic_load(&lost_copies));
    ck_assert_int_eq(driven_pread(&d, h, buf, sizeof(buf), size - 16), sizeof(buf));
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_stored(&d, "g", text, size), size);
    driven_release(&d);
}
END_TEST

/* Attributes that the store does not take hold no rename. */
START_TEST(moved_where_no_attributes_are_taken)
{
    char buf[8];

    start();
    d.config.retry_ns = 100 * NS_PER_MS;
    d.store->facts.caps &= ~(unsigned)STORE_RENAME;
    driven_mount(&d);
    driven_put(&d, "f", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&no_attrs, true);
    ck_assert_int_eq(driven_chmod(&d, "f", 0640), 0);
    ck_assert_int_eq(driven_rename(&d, "f", "g"), 0);
    DRIVEN_WAIT(driven_stored(&d, "g", buf, sizeof(buf)) == 3);
    atomic_store(&no_attrs, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "g", "old");
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_rename_between");
    TCase *t = tcase_create("cache_rename_between");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, asked_while_a_copied_directory_is_taken_over);
    tcase_add_test(t, listed_while_a_copied_directory_is_taken_over);
    tcase_add_loop_test(t, made_anew_while_a_copied_directory_is_taken_over, 0, 5);
    tcase_add_loop_test(t, a_store_that_renames_is_not_asked_again_and_again, 0, 2);
    tcase_add_test(t, opened_while_a_directory_is_renamed);
    tcase_add_test(t, a_time_of_a_file_that_came_back_and_killed);
    tcase_add_test(t, attributes_come_between_a_rename_and_a_removal);
    tcase_add_loop_test(t, removed_as_a_rename_is_noted, 0, 2);
    tcase_add_test(t, a_time_comes_before_its_directory_is_renamed);
    tcase_add_loop_test(t, chmod_around_a_rename_and_killed, 0, 5);
    tcase_add_loop_test(t, moved_before_a_new_time_is_answered, 0, 2 * (int)ARRAY_SIZE(moves));
    tcase_add_loop_test(t, replaced_and_moved_before_a_new_time_is_answered, 0,
                        (int)ARRAY_SIZE(moves));
    tcase_add_test(t, read_on_after_a_new_time_and_before_the_copy);
    tcase_add_test(t, moved_where_no_attributes_are_taken);
    suite_add_tcase(s, t);
    return suite_run(s);
}
