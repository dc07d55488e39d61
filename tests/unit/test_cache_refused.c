/* cache/: a name that the store refuses for good, as MinIO does with keys that are no UTF-8,
 * beside others that it takes. */
#include "cache/cache.h"
#include "cache/mirror/crash.h"
#include "common/mem.h"
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

#define BAD  "dir/bad\xff"
#define MANY 12 /* deletes that go in one request */

static struct {
    atomic_int with;  /* errno for what has a bad name */
    atomic_bool lost; /* it takes a bad name once, says nothing, and refuses it from then on */
    atomic_bool all;  /* every change is refused, whatever its name */
    atomic_bool answers;        /* it says what it has at a bad name */
    _Atomic(const char *) hold; /* copies to that name, until this changes */
    atomic_bool held;
    struct attrs attrs;  /* of the first put to a bad name */
    atomic_uint refused; /* requests with a bad name that were */
} store;

static struct driven d;

static bool is_bad(const char *key)
{
    return key && strchr(key, '\xff');
}

static bool names_bad(const struct call *c)
{
    bool bad = is_bad(c->key) || is_bad(c->to);

    for (size_t i = 0; i < c->n_keys; i++)
        bad = bad || is_bad(c->keys[i]);
    return bad;
}

static int64_t around(struct layer *l, struct call *c)
{
    bool asks = c->kind == CALL_LIST || c->kind == CALL_READ || c->kind == CALL_STAT;
    const char *hold;

    (void)l;
    while (c->kind == CALL_COPY && (hold = atomic_load(&store.hold)) &&
           strcmp(c->to, hold) == 0) {
        atomic_store(&store.held, true);
        (void)usleep(1000);
    }
    if (c->kind == CALL_PUT && is_bad(c->key) && !store.attrs.has)
        (void)attrs_copy(&store.attrs, c->attrs);
    if (c->kind == CALL_PUT && is_bad(c->key) && atomic_exchange(&store.lost, false)) {
        (void)call_next(c);
        atomic_store(&store.with, EACCES);
        return op_fail(c->op, -EIO, "put: the answer was lost");
    }
    if (atomic_load(&store.with) && names_bad(c) && !(asks && atomic_load(&store.answers))) {
        atomic_fetch_add(&store.refused, 1);
        return op_fail(c->op, -atomic_load(&store.with), "%s: the store refuses that",
                       call_name(c->kind));
    }
    if (!asks && atomic_load(&store.all))
        return op_fail(c->op, -EACCES, "%s %s: denied", call_name(c->kind), c->key);
    return call_next(c);
}

static void fill(void)
{
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "other"), 0);
    driven_put(&d, "dir/old", "old", 3);
    driven_put(&d, "other/old", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
}

static void setup(void)
{
    atomic_store(&store.with, EACCES);
    atomic_store(&store.lost, false);
    atomic_store(&store.all, false);
    atomic_store(&store.answers, false);
    atomic_store(&store.refused, 0);
    atomic_store(&store.hold, NULL);
    atomic_store(&store.held, false);
    attrs_release(&store.attrs);
    driven_init_like_s3(&d, around);
    d.config.retry_ns = 100 * NS_PER_MS;
    fill();
}

static void teardown(void)
{
    driven_release(&d);
}

static bool is_stored(const char *key)
{
    char buf[8];

    return driven_stored(&d, key, buf, sizeof(buf)) >= 0;
}

static bool is_dir(const char *key)
{
    struct object obj = {0};
    struct op op;

    op_init(&op, NS_PER_SEC);
    bool is = store_stat(d.store->next, &op, key, &obj) == 0 && obj.is_prefix;
    object_release(&obj);
    return is;
}

static struct cache_stats stats(void)
{
    struct cache_stats s;

    cache_get_stats(d.cache, &s);
    return s;
}

static void await_refusals(unsigned n)
{
    unsigned before = atomic_load(&store.refused);

    DRIVEN_WAIT(atomic_load(&store.refused) >= before + n);
}

static int note_error(void *arg, const struct cache_pending *p)
{
    if (is_bad(p->path) && p->error)
        (void)snprintf(arg, 320, "%s", p->error);
    return 0;
}

/* Whether the status says of the name that the store refuses just that. */
static bool is_told(void)
{
    char error[320] = "";

    (void)cache_each_pending(d.cache, note_error, error);
    return strstr(error, "refuses the name");
}

static const int errors[] = {EACCES, EINVAL, ENAMETOOLONG};

/* It is told by name; deletes elsewhere don't wait for it, those beside it do. */
START_TEST(deletes_elsewhere_go_on)
{
    atomic_store(&store.with, errors[_i]);
    driven_put(&d, BAD, "new", 3);
    ck_assert_int_eq(driven_unlink(&d, "other/old"), 0);
    ck_assert_int_eq(driven_unlink(&d, "dir/old"), 0);
    DRIVEN_WAIT(!is_stored("other/old"));
    ck_assert(is_told());
    ck_assert_str_eq(driven_state(&d, BAD), "failed");
    ck_assert_int_lt(driven_flush(&d), 0);
    await_refusals(2);
    ck_assert(is_stored("dir/old"));
    driven_shows(&d, BAD, "new");
    /* The server was changed. */
    atomic_store(&store.with, 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, BAD, "new");
    ck_assert(!is_stored("dir/old"));
}
END_TEST

/* Until the store is seen to take another name nobody knows whose fault it is. */
START_TEST(refused_keys_refuse_no_name)
{
    atomic_store(&store.all, true);
    driven_put(&d, BAD, "new", 3);
    driven_put(&d, "dir/new", "new", 3);
    ck_assert_int_eq(driven_unlink(&d, "other/old"), 0);
    await_refusals(4);
    ck_assert(is_stored("other/old"));
    ck_assert(!is_told());
    atomic_store(&store.all, false);
    atomic_store(&store.with, 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "dir/new", "new");
    driven_stores(&d, BAD, "new");
    ck_assert(!is_stored("other/old"));
}
END_TEST

/* ---- what ends it ---- */

static void known_or_not(bool known)
{
    driven_put(&d, BAD, "new", 3);
    if (known)
        DRIVEN_WAIT(is_told());
    else
        await_refusals(1);
}

START_TEST(its_removal_ends_it)
{
    known_or_not(_i);
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    ck_assert_int_eq(driven_unlink(&d, "dir/old"), 0);
    DRIVEN_WAIT(stats().pending_ops == 0 && stats().dirty_files == 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!is_stored("dir/old"));
}
END_TEST

/* The refusal says nothing of what was put there before. */
START_TEST(what_was_taken_before_is_removed)
{
    driven_unmount(&d);
    d.config.late_ns = NS_PER_SEC / 2;
    driven_mount(&d);
    atomic_store(&store.with, 0);
    atomic_store(&store.lost, true);
    driven_put(&d, BAD, "new", 3);
    DRIVEN_WAIT(is_told());
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    atomic_store(&store.with, 0);
    (void)driven_flush(&d); /* may tell of a removal that was refused just before */
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(!is_stored(BAD));
}
END_TEST

START_TEST(another_name_ends_it)
{
    known_or_not(_i);
    ck_assert_int_eq(driven_rename(&d, BAD, "dir/good"), 0);
    ck_assert_int_eq(driven_unlink(&d, "dir/old"), 0);
    DRIVEN_WAIT(stats().pending_ops == 0 && stats().dirty_files == 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "dir/good", "new");
    ck_assert(!is_stored("dir/old"));
}
END_TEST

/* The old name's version is all that the store has of it, as long as the new one is refused. */
START_TEST(what_moved_there_stays_under_its_old_name)
{
    driven_put(&d, "other/gone", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    d.config.settle_ns = 30 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, "other/old", "new", 3);
    ck_assert_int_eq(driven_rename(&d, "other/old", BAD), 0);
    ck_assert_int_eq(driven_unlink(&d, "other/gone"), 0);
    ck_assert_int_lt(driven_flush(&d), 0);
    DRIVEN_WAIT(!is_stored("other/gone"));
    ck_assert(is_stored("other/old"));
    ck_assert_int_eq(driven_rename(&d, BAD, "dir/good"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "dir/good", "new");
    ck_assert(!is_stored("other/old"));
}
END_TEST

/* What is stored is given a bad name, is called as it was again, or otherwise, or is removed;
 * the server never learns of the bad name. */
static const struct {
    const char *from, *to; /* to NULL: removed */
    bool dir;
} ends[] = {{"other/old", "dir/good", false},
            {"other/old", "other/old", false},
            {"other/old", NULL, false},
            {"other", "good", true},
            {"other", "other", true}};

static void end_it(int i)
{
    if (ends[i].to)
        ck_assert_int_eq(driven_rename(&d, BAD, ends[i].to), 0);
    else
        ck_assert_int_eq(driven_unlink(&d, BAD), 0);
}

static void is_ended(int i)
{
    const char *at = ends[i].to ? ends[i].to : "nothing";
    char key[64];

    DRIVEN_WAIT(driven_flush(&d) == 0);
    ck_assert_uint_eq(stats().pending_ops, 0);
    (void)snprintf(key, sizeof(key), "%s%s", at, ends[i].dir ? "/old" : "");
    driven_stores(&d, key, ends[i].to ? "old" : NULL);
    ck_assert(strcmp(at, ends[i].from) == 0 || !is_stored("other/old"));
    driven_mount_afresh(&d);
    if (ends[i].to)
        driven_shows(&d, key, "old");
    else
        ck_assert_int_eq(driven_list(&d, "other"), 0);
}

static void give_bad_name(int i)
{
    atomic_store(&store.answers, true);
    ck_assert_int_eq(driven_rename(&d, ends[i].from, BAD), 0);
    await_refusals(1);
}

START_TEST(what_was_stored_gets_another_name)
{
    give_bad_name(_i);
    ck_assert_int_lt(driven_flush(&d), 0);
    end_it(_i);
    is_ended(_i);
}
END_TEST

/* As the next mount finds it. */
START_TEST(what_was_stored_gets_another_name_later)
{
    give_bad_name(_i);
    end_it(_i);
    driven_unmount(&d);
    d.config.late_ns = NS_PER_SEC / 10;
    driven_mount(&d);
    is_ended(_i);
}
END_TEST

#ifndef NDEBUG
/* Killed when the two are one on the disk: the store is not asked for the bad name again. */
START_TEST(what_was_stored_gets_another_name_and_a_kill)
{
    int status = 0;

    driven_unmount(&d);
    d.config.late_ns = NS_PER_SEC / 10;
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        driven_mount(&d);
        give_bad_name(_i);
        end_it(_i);
        crash_arm("rename-joined");
        DRIVEN_WAIT(driven_flush(&d) == 0);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    atomic_store(&store.answers, true);
    unsigned before = atomic_load(&store.refused);
    driven_mount(&d);
    is_ended(_i);
    ck_assert_uint_eq(atomic_load(&store.refused), before);
}
END_TEST
#endif

/* Nor is what came to the old name since taken for it. */
START_TEST(what_took_the_old_name_stays)
{
    give_bad_name(0);
    driven_put(&d, "other/old", "newer", 5);
    if (_i)
        ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    else
        ck_assert_int_eq(driven_rename(&d, BAD, "dir/good"), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, "dir/good", _i ? NULL : "old");
    driven_stores(&d, "other/old", "newer");
}
END_TEST

/* What moved on over what took the old name, changed or not. */
START_TEST(what_came_back_is_stored)
{
    give_bad_name(0);
    driven_put(&d, "other/old", "newer", 5);
    if (_i)
        driven_put(&d, BAD, "changed", 7);
    ck_assert_int_eq(driven_rename(&d, BAD, "other/old"), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, "other/old", _i ? "changed" : "old");
    driven_shows(&d, "other/old", _i ? "changed" : "old");
}
END_TEST

START_TEST(one_bad_name_follows_another)
{
    give_bad_name(0);
    ck_assert_int_eq(driven_rename(&d, BAD, BAD "2"), 0);
    await_refusals(3);
    if (_i)
        ck_assert_int_eq(driven_unlink(&d, BAD "2"), 0);
    else
        ck_assert_int_eq(driven_rename(&d, BAD "2", "dir/good"), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, "dir/good", _i ? NULL : "old");
    ck_assert(!is_stored("other/old"));
}
END_TEST

/* It reads from there, and is changed there, after the directory moved. */
START_TEST(what_came_back_moves_with_its_directory)
{
    give_bad_name(0);
    ck_assert_int_eq(driven_rename(&d, BAD, "other/old"), 0);
    ck_assert_int_eq(driven_rename(&d, "other", "moved"), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, "moved/old", "old");
    ck_assert_int_eq(driven_rename(&d, "moved/old", "moved/on"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "moved/on", "old");
    driven_put(&d, "moved/on", "newer", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "moved/on", "newer");
    ck_assert(!is_stored("moved/old") && !is_stored("other/old"));
}
END_TEST

/* Another node's version is not what was removed here. */
START_TEST(what_another_node_put_at_the_old_name_stays)
{
    give_bad_name(0);
    driven_store(&d, "other/old", "theirs", 6);
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, "other/old", "theirs");
}
END_TEST

/* What it was renamed over is at the store, and goes when the server is changed. */
START_TEST(what_the_bad_name_had_is_replaced)
{
    atomic_store(&store.with, 0);
    driven_put(&d, BAD, "before", 6);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&store.with, EACCES);
    give_bad_name(0);
    await_refusals(2);
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    await_refusals(2);
    ck_assert(is_stored(BAD) && is_stored("other/old"));
    atomic_store(&store.with, 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    ck_assert(!is_stored(BAD) && !is_stored("other/old"));
}
END_TEST

/* The removal waits for what is refused in its directory, also of what the store has elsewhere.
 */
START_TEST(what_is_refused_beside_it_keeps_it)
{
    give_bad_name(0);
    driven_put(&d, BAD "2", "new", 3);
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    DRIVEN_WAIT(is_told());
    await_refusals(3);
    ck_assert(is_stored("other/old"));
    ck_assert_int_eq(driven_unlink(&d, BAD "2"), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    ck_assert(!is_stored("other/old"));
}
END_TEST

/* A link at the old name is no step that is still to be made. */
START_TEST(what_is_linked_at_the_old_name_moves_over_nothing)
{
    give_bad_name(0);
    ck_assert_int_eq(driven_link(&d, BAD, "other/old"), 0);
    ck_assert_int_eq(driven_rename(&d, BAD, BAD "2"), 0);
    await_refusals(4);
    driven_put(&d, BAD "w", "precious", 8);
    ck_assert_int_eq(driven_rename(&d, BAD "w", BAD "2"), 0);
    driven_unmount(&d);
    driven_mount(&d);
    driven_shows(&d, BAD "2", "precious");
    driven_shows(&d, "other/old", "old");
}
END_TEST

static void *sync_dir(void *arg)
{
    *(int *)arg = driven_fsyncdir(&d, "dir");
    return NULL;
}

/* Who waited for the rename to the bad name waits for the one that it became. */
START_TEST(who_waits_for_it_waits_on)
{
    pthread_t thread;
    int r = 1;

    driven_put(&d, "other/x", "x", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    d.config.upload_jobs = 1;
    d.config.durability = DURABILITY_STORE;
    driven_mount(&d);
    give_bad_name(0);
    await_refusals(3);
    atomic_store(&store.hold, "other/y"); /* nothing is tried meanwhile */
    ck_assert_int_eq(driven_rename(&d, "other/x", "other/y"), 0);
    DRIVEN_WAIT(atomic_load(&store.held));
    ck_assert_int_eq(pthread_create(&thread, NULL, sync_dir, &r), 0);
    (void)usleep(200000); /* it waits by then; if not yet, the test proves less */
    ck_assert_int_eq(driven_rename(&d, BAD, "dir/good"), 0);
    atomic_store(&store.held, false);
    atomic_store(&store.hold, "dir/good");
    DRIVEN_WAIT(atomic_load(&store.held));
    (void)usleep(200000); /* it would be told by then */
    atomic_store(&store.with, 0);
    bool waits = pthread_tryjoin_np(thread, NULL) == EBUSY;
    atomic_store(&store.hold, NULL);
    if (waits)
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert(waits || r != 0);
    driven_stores(&d, "dir/good", "old");
}
END_TEST

/* A copy can have another version than what it was copied from. */
START_TEST(what_was_just_copied_is_removed)
{
    teardown();
    driven_init(&d, around);
    d.store->facts.caps = (d.store->facts.caps & ~(unsigned)STORE_RENAME) | STORE_STATE;
    d.config.retry_ns = 100 * NS_PER_MS;
    fill();
    atomic_store(&store.answers, true);
    atomic_store(&store.hold, "other/new");
    ck_assert_int_eq(driven_rename(&d, "other/old", "other/new"), 0);
    DRIVEN_WAIT(atomic_load(&store.held));
    if (_i)
        ck_assert_int_eq(driven_rename(&d, "other/new", "other/newer"), 0);
    ck_assert_int_eq(driven_rename(&d, _i ? "other/newer" : "other/new", BAD), 0);
    atomic_store(&store.hold, NULL);
    await_refusals(3);
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    ck_assert(!is_stored("other/old") && !is_stored("other/new") && !is_stored("other/newer"));
}
END_TEST

/* What was sent to the bad name before, and arrives late, goes, too. */
static bool put_to_the_bad_name(int64_t late_ns, int i)
{
    struct mem_source src;
    struct op op;

    (void)i;
    teardown();
    setup();
    driven_unmount(&d);
    d.config.late_ns = late_ns;
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "dir"), 1);
    atomic_store(&store.answers, true);
    atomic_store(&store.with, EIO);
    int64_t until_ns = clock_mono_ns() + late_ns;
    driven_put(&d, BAD, "first", 5);
    await_refusals(1);
    atomic_store(&store.with, EACCES);
    ck_assert_int_eq(driven_rename(&d, "other/old", BAD), 0);
    await_refusals(2);
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    await_refusals(1);
    op_init(&op, 5 * NS_PER_SEC);
    mem_source_init(&src, "first", 5);
    int r = store_put(d.store->next, &op, BAD, "", &src.base, &store.attrs, NULL);
    bool in_time = clock_mono_ns() < until_ns;
    atomic_store(&store.with, 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    if (in_time && r == 0)
        ck_assert(!is_stored(BAD));
    return in_time;
}

START_TEST(what_arrives_late_at_the_bad_name_goes)
{
    driven_in_window(put_to_the_bad_name, 0);
}
END_TEST

/* An empty directory, too: nothing of it is at the store, to be moved or removed there. */
START_TEST(another_name_of_a_directory_ends_it)
{
    ck_assert_int_eq(driven_mkdir(&d, BAD), 0);
    await_refusals(1);
    if (_i)
        ck_assert_int_eq(driven_rename(&d, BAD, "dir/good"), 0);
    else
        ck_assert_int_eq(driven_rmdir(&d, BAD), 0);
    DRIVEN_WAIT(stats().pending_ops == 0 && stats().dirty_files == 0);
    unsigned refusals = atomic_load(&store.refused);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(atomic_load(&store.refused), refusals);
    ck_assert_int_eq(is_dir("dir/good"), _i);
}
END_TEST

/* A new mount learns of it anew. */
START_TEST(a_new_mount_is_not_held_up)
{
    known_or_not(true);
    ck_assert_int_eq(driven_unlink(&d, "dir/old"), 0);
    atomic_store(&store.all, true);
    ck_assert_int_eq(driven_unlink(&d, "other/old"), 0);
    driven_unmount(&d);
    atomic_store(&store.all, false);
    driven_mount(&d);
    DRIVEN_WAIT(!is_stored("other/old"));
    ck_assert(is_stored("dir/old"));
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    DRIVEN_WAIT(stats().pending_ops == 0 && stats().dirty_files == 0);
    ck_assert(!is_stored("dir/old"));
}
END_TEST

/* The other name of a hard link goes up. */
START_TEST(its_other_name_is_stored)
{
    driven_put(&d, BAD, "new", 3);
    ck_assert_int_eq(driven_link(&d, BAD, "dir/good"), 0);
    DRIVEN_WAIT(is_stored("dir/good"));
    driven_stores(&d, "dir/good", "new");
}
END_TEST

/* ---- deletes that are refused ---- */

/* One among many in a request: the others go, and what is refused shows again. */
START_TEST(a_refused_delete_holds_no_other)
{
    char path[32];

    atomic_store(&store.with, 0);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(path, sizeof(path), "dir/f%d", i);
        driven_put(&d, path, "x", 1);
    }
    driven_put(&d, BAD, "bad", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&store.with, errors[_i]);
    atomic_store(&store.all, true); /* all of them wait, and go together */
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(path, sizeof(path), "dir/f%d", i);
        ck_assert_int_eq(driven_unlink(&d, path), 0);
    }
    ck_assert_int_eq(driven_unlink(&d, BAD), 0);
    driven_unmount(&d);
    atomic_store(&store.all, false);
    driven_mount(&d);
    DRIVEN_WAIT(stats().pending_ops == 0);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(path, sizeof(path), "dir/f%d", i);
        ck_assert(!is_stored(path));
    }
    ck_assert(is_stored(BAD));
    ck_assert_ptr_nonnull(strstr(stats().last_error_text, "stays in the store"));
    ck_assert_int_eq(driven_flush(&d), 0);
    DRIVEN_WAIT(driven_list(&d, "dir") == 2);
}
END_TEST

/* Keys that may remove nothing are no refusal of names: what was removed is not shown again. */
START_TEST(deletes_that_are_all_refused_are_kept)
{
    struct stat st;

    atomic_store(&store.all, true);
    ck_assert_int_eq(driven_unlink(&d, "dir/old"), 0);
    ck_assert_int_eq(driven_unlink(&d, "other/old"), 0);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_lt(driven_flush(&d), 0);
    ck_assert(is_stored("dir/old") && is_stored("other/old"));
    ck_assert_int_eq(driven_stat(&d, "dir/old", &st), -ENOENT);
    atomic_store(&store.all, false);
    DRIVEN_WAIT(driven_flush(&d) == 0); /* an attempt may be on its way that was refused */
    ck_assert(!is_stored("dir/old") && !is_stored("other/old"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_refused");
    TCase *t = tcase_create("cache_refused");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, deletes_elsewhere_go_on, 0, (int)ARRAY_SIZE(errors));
    tcase_add_test(t, refused_keys_refuse_no_name);
    tcase_add_loop_test(t, its_removal_ends_it, 0, 2);
    tcase_add_test(t, what_was_taken_before_is_removed);
    tcase_add_loop_test(t, another_name_ends_it, 0, 2);
    tcase_add_test(t, what_moved_there_stays_under_its_old_name);
    tcase_add_loop_test(t, another_name_of_a_directory_ends_it, 0, 2);
    tcase_add_test(t, a_new_mount_is_not_held_up);
    tcase_add_test(t, its_other_name_is_stored);
    tcase_add_loop_test(t, what_was_stored_gets_another_name, 0, (int)ARRAY_SIZE(ends));
    tcase_add_loop_test(t, what_was_stored_gets_another_name_later, 0, (int)ARRAY_SIZE(ends));
#ifndef NDEBUG
    tcase_add_loop_test(t, what_was_stored_gets_another_name_and_a_kill, 0,
                        (int)ARRAY_SIZE(ends));
#endif
    tcase_add_loop_test(t, what_took_the_old_name_stays, 0, 2);
    tcase_add_loop_test(t, what_came_back_is_stored, 0, 2);
    tcase_add_loop_test(t, one_bad_name_follows_another, 0, 2);
    tcase_add_test(t, what_came_back_moves_with_its_directory);
    tcase_add_test(t, what_another_node_put_at_the_old_name_stays);
    tcase_add_test(t, what_the_bad_name_had_is_replaced);
    tcase_add_test(t, what_is_refused_beside_it_keeps_it);
    tcase_add_test(t, what_is_linked_at_the_old_name_moves_over_nothing);
    tcase_add_test(t, who_waits_for_it_waits_on);
    tcase_add_loop_test(t, what_was_just_copied_is_removed, 0, 2);
    tcase_add_test(t, what_arrives_late_at_the_bad_name_goes);
    tcase_add_loop_test(t, a_refused_delete_holds_no_other, 0, (int)ARRAY_SIZE(errors));
    tcase_add_test(t, deletes_that_are_all_refused_are_kept);
    suite_add_tcase(s, t);
    return suite_run(s);
}
