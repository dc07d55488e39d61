/* cache/: what goes when space or memory is short, what stays, and deletes that wait. */
#include "cache/cache.h"
#include "cache/mount.h"
#include "cache/transfer/transfer_impl.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES (1 << 20)
#define FILES      8

static struct cache_stats stats(struct driven *d)
{
    struct cache_stats s;

    cache_get_stats(d->cache, &s);
    return s;
}

static bool is_troubled(struct driven *d, const char *by)
{
    const char *trouble = stats(d).space_trouble;

    return trouble && strstr(trouble, by);
}

/* ---- eviction ---- */

static const char *name_of(int i)
{
    static char name[32];

    (void)snprintf(name, sizeof(name), "f%d", i);
    return name;
}

/* Files made here, and files of another node that were read here: their content goes, their
 * number stays, and the content comes back. */
START_TEST(eviction_keeps_the_inode_number)
{
    static char data[FILE_BYTES], back[FILE_BYTES];
    ino_t ino[FILES];
    struct driven d;
    struct stat st;

    memset(data, 'x', sizeof(data));
    driven_init(&d, NULL);
    d.config.size_bytes = 2 * FILE_BYTES;
    for (int i = FILES / 2; i < FILES; i++)
        driven_store(&d, name_of(i), data, sizeof(data));
    driven_mount(&d);
    driven_put(&d, "empty", "", 0);
    for (int i = 0; i < FILES; i++) {
        if (i < FILES / 2)
            driven_put(&d, name_of(i), data, sizeof(data));
        else
            ck_assert_int_eq(driven_read(&d, name_of(i), back, sizeof(back)), FILE_BYTES);
        ck_assert_int_eq(driven_stat(&d, name_of(i), &st), 0);
        ino[i] = st.st_ino;
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    DRIVEN_WAIT(stats(&d).used_bytes <= d.config.size_bytes);
    ck_assert_int_eq(driven_stat(&d, "empty", &st), 0);
    ino_t empty = st.st_ino;
    for (int i = 0; i < FILES; i++) {
        ck_assert_int_eq(driven_stat(&d, name_of(i), &st), 0);
        ck_assert_uint_eq(st.st_ino, ino[i]);
        ck_assert_int_eq(st.st_size, FILE_BYTES);
    }
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "empty", &st), 0);
    ck_assert_uint_eq(st.st_ino, empty);
    for (int i = 0; i < FILES; i++) {
        ck_assert_int_eq(driven_stat(&d, name_of(i), &st), 0);
        ck_assert_uint_eq(st.st_ino, ino[i]);
        memset(back, 0, sizeof(back));
        ck_assert_int_eq(driven_read(&d, name_of(i), back, sizeof(back)), FILE_BYTES);
        ck_assert_mem_eq(back, data, sizeof(data));
    }
    driven_release(&d);
}
END_TEST

/* With durability=store close() waits for the change of a file that was written here often, was
 * evicted, and is changed once. */
START_TEST(close_waits_for_the_store_after_an_eviction)
{
    static char data[FILE_BYTES];
    struct handle *h;
    struct driven d;
    char back[8];

    memset(data, 'x', sizeof(data));
    driven_init(&d, NULL);
    d.config.size_bytes = 2 * FILE_BYTES;
    d.config.durability = DURABILITY_STORE;
    driven_mount(&d);
    for (int i = 0; i < 8; i++)
        driven_put(&d, "often", data, sizeof(data));
    for (int i = 0; i < FILES; i++)
        driven_put(&d, name_of(i), data, sizeof(data));
    DRIVEN_WAIT(strcmp(driven_state(&d, "often"), "clean") != 0);
    ck_assert_int_eq(driven_open(&d, "often", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "new", 3, 0), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_ge(driven_stored(&d, "often", back, 3), 3);
    ck_assert_mem_eq(back, "new", 3);
    driven_release(&d);
}
END_TEST

/* ---- no room ---- */

static int stored(struct driven *d, const char *path)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    return cache_stored_path(d->cache, path, &op);
}

/* A writer that gets ENOSPC and closes: the store keeps the version that it has, over a remount
 * too, until the file is written again. Who asks for what is stored is told, and not to wait.
 */
START_TEST(what_was_cut_off_is_not_published)
{
    struct handle *h = NULL;
    struct driven d;
    char buf[8] = "";

    driven_init(&d, NULL);
    driven_mount(&d);
    driven_put(&d, "f", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    d.config.reserve_bytes = UINT64_MAX / 2; /* no disk has that */
    driven_mount(&d);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_TRUNC, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "newer", 5, 0), -ENOSPC);
    ck_assert_int_eq(driven_close(&d, h), -ENOSPC);
    ck_assert_int_eq(driven_flush(&d), -ENOSPC);
    ck_assert_int_eq(stored(&d, "f"), -ENODATA);
    ck_assert_ptr_nonnull(stats(&d).space_trouble);
    driven_unmount(&d);
    d.config.reserve_bytes = 1;
    driven_mount(&d);
    ck_assert_str_eq(driven_state(&d, "f"), "failed");
    ck_assert_int_eq(stored(&d, "f"), -ENODATA);
    ck_assert_int_eq(driven_flush(&d), -ENOSPC);
    ck_assert_int_eq(driven_stored(&d, "f", buf, sizeof(buf)), 3);
    ck_assert_str_eq(buf, "old");
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "newer", 5, 0), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_stored(&d, "f", buf, sizeof(buf)), 5);
    ck_assert_str_eq(buf, "newer");
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "clean") == 0);
    ck_assert_int_eq(stored(&d, "f"), 0);
    driven_release(&d);
}
END_TEST

/* ---- what can't go up ---- */

static struct {
    atomic_bool shut;  /* changes of what begins with "ckpt" are refused */
    atomic_bool stuck; /* puts of "slow" are not answered */
    atomic_bool over;  /* the helper ends */
} door;

static int64_t deny_ckpt(struct layer *l, struct call *c)
{
    (void)l;
    bool change = c->kind == CALL_PUT || c->kind == CALL_COPY || c->kind == CALL_RENAME;

    if (change && strncmp(c->key, "ckpt", 4) == 0 && atomic_load(&door.shut))
        return op_fail(c->op, -EACCES, "%s %s: denied", call_name(c->kind), c->key);
    while (c->kind == CALL_PUT && strcmp(c->key, "slow") == 0 && atomic_load(&door.stuck)) {
        int waited = op_sleep(c->op, 2 * NS_PER_MS);
        if (waited < 0)
            return waited;
    }
    return call_next(c);
}

/* A cache that is full of what the store refuses is to be had below. */
static void begin_denied(struct driven *d)
{
    atomic_store(&door.shut, true);
    atomic_store(&door.stuck, true);
    atomic_store(&door.over, false);
    driven_init(d, deny_ckpt);
    d->config.size_bytes = 4 * FILE_BYTES;
    d->config.grace_ns = 1 * NS_PER_SEC;
    driven_mount(d);
    driven_put(d, "before", "once", 4);
    ck_assert_int_eq(driven_flush(d), 0);
}

static void put_large(struct driven *d, const char *path, unsigned mib)
{
    char *data = calloc(mib, FILE_BYTES);

    ck_assert_ptr_nonnull(data);
    driven_put(d, path, data, mib * (size_t)FILE_BYTES);
    free(data);
}

/* A writer is told that there is no room, and that uploads fail; when the store takes things
 * again he can go on, and all of it is published. */
static void expect_refusal(struct driven *d)
{
    struct handle *h = NULL;
    char buf[8];

    ck_assert_int_eq(driven_open(d, "next", O_WRONLY | O_CREAT, &h), -ENOSPC);
    ck_assert_int_eq(driven_open(d, "before", O_WRONLY, &h), -ENOSPC);
    ck_assert_int_eq(driven_open(d, "before", O_WRONLY | O_TRUNC, &h), 0);
    ck_assert_int_eq(driven_write(d, h, "again", 5, 0), -ENOSPC);
    DRIVEN_WAIT(is_troubled(d, "uploads fail"));
    atomic_store(&door.shut, false);
    atomic_store(&door.stuck, false);
    DRIVEN_WAIT(driven_write(d, h, "again", 5, 0) == 0);
    ck_assert_int_eq(driven_close(d, h), 0);
    ck_assert_int_eq(driven_flush(d), 0);
    ck_assert_int_eq(driven_stored(d, "before", buf, sizeof(buf)), 5);
    DRIVEN_WAIT(stats(d).space_trouble == NULL);
}

static void *change_log(void *arg)
{
    struct driven *d = arg;

    for (unsigned i = 0; !atomic_load(&door.over); i++) {
        ck_assert_int_eq(driven_chmod(d, "log", i % 2 ? 0600 : 0644), 0);
        (void)usleep(20000);
    }
    return NULL;
}

/* The store takes one thing and refuses another: what it takes doesn't make those wait for ever
 * for whom there is no room beside what it refuses. */
START_TEST(writers_do_not_wait_for_what_is_refused)
{
    struct driven d;
    pthread_t helper;

    begin_denied(&d);
    driven_put(&d, "log", "log", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(pthread_create(&helper, NULL, change_log, &d), 0);
    put_large(&d, "ckpt", 5);
    expect_refusal(&d);
    atomic_store(&door.over, true);
    ck_assert_int_eq(pthread_join(helper, NULL), 0);
    driven_release(&d);
}
END_TEST

static void *create_next(void *arg)
{
    struct driven *d = arg;
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(d, "next", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_close(d, h), 0);
    return NULL;
}

/* Whoever waits for room is seen to. */
START_TEST(who_waits_for_room_is_counted)
{
    struct driven d;
    pthread_t writer;

    begin_denied(&d);
    ck_assert_uint_eq(stats(&d).waiting_writers, 0);
    put_large(&d, "slow", 5);
    ck_assert_int_eq(pthread_create(&writer, NULL, create_next, &d), 0);
    DRIVEN_WAIT(stats(&d).waiting_writers == 1);
    atomic_store(&door.stuck, false);
    ck_assert_int_eq(pthread_join(writer, NULL), 0);
    ck_assert_uint_eq(stats(&d).waiting_writers, 0);
    driven_release(&d);
}
END_TEST

#ifndef NDEBUG
/* Who waits for room asks for a pass when he begins to wait, and does not keep the scheduler
 * busy until there is some. */
START_TEST(who_waits_for_room_asks_for_few_passes)
{
    struct driven d;
    pthread_t writer;

    begin_denied(&d);
    put_large(&d, "slow", 5);
    ck_assert_int_eq(pthread_create(&writer, NULL, create_next, &d), 0);
    DRIVEN_WAIT(stats(&d).waiting_writers == 1);
    unsigned long long before = atomic_load(&passes_made);
    (void)usleep(500000);
    unsigned long long passes = atomic_load(&passes_made) - before;
    ck_assert_msg(passes <= 20, "%llu", passes);
    atomic_store(&door.stuck, false);
    ck_assert_int_eq(pthread_join(writer, NULL), 0);
    driven_release(&d);
}
END_TEST
#endif

/* Nor for something small that is on its way. */
START_TEST(writers_do_not_wait_for_what_is_not_enough)
{
    struct driven d;

    begin_denied(&d);
    driven_put(&d, "slow", "slow", 4);
    put_large(&d, "ckpt", 5);
    expect_refusal(&d);
    driven_release(&d);
}
END_TEST

/* Nor for what may only follow a rename that the store refuses, or that waits for one. */
START_TEST(writers_do_not_wait_behind_a_refused_rename)
{
    struct driven d;

    begin_denied(&d);
    atomic_store(&door.shut, false);
    ck_assert_int_eq(driven_mkdir(&d, "ckpt"), 0);
    driven_put(&d, "ckpt/f", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&door.shut, true);
    ck_assert_int_eq(driven_rename(&d, "ckpt", "between"), 0);
    if (_i)
        ck_assert_int_eq(driven_rename(&d, "between", "last"), 0);
    put_large(&d, _i ? "last/f" : "between/f", 5);
    expect_refusal(&d);
    driven_release(&d);
}
END_TEST

/* What is refused and small is no reason to refuse a file that is larger than the cache: the
 * limit gives way to that. */
START_TEST(a_small_refusal_leaves_room)
{
    struct handle *h = NULL;
    struct driven d;
    char *data = calloc(5, FILE_BYTES);

    ck_assert_ptr_nonnull(data);
    begin_denied(&d);
    driven_put(&d, "ckpt", "small", 5);
    ck_assert_int_eq(driven_open(&d, "big", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, data, 5 * (size_t)FILE_BYTES, 0), 0);
    DRIVEN_WAIT(is_troubled(&d, "over its limit"));
    ck_assert_int_eq(driven_write(&d, h, data, FILE_BYTES, 5 * FILE_BYTES), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    atomic_store(&door.shut, false);
    DRIVEN_WAIT(driven_flush(&d) == 0); /* one may end by a refusal that was under way */
    free(data);
    driven_release(&d);
}
END_TEST

/* ---- memory ---- */

#define DIRS  8
#define NAMES 250

static const char *dir_of(int i)
{
    static char name[32];

    (void)snprintf(name, sizeof(name), "dir%d", i);
    return name;
}

/* Names that nobody uses leave the memory, those in use do not, and all come back when asked.
 */
START_TEST(names_leave_the_memory_and_come_back)
{
    char key[64];
    struct driven d;
    struct handle *h = NULL;
    struct stat st;

    driven_init(&d, NULL);
    d.config.list_memory_bytes = 64 << 10;
    for (int i = 0; i < DIRS * NAMES; i++) {
        (void)snprintf(key, sizeof(key), "%s/%d", dir_of(i / NAMES), i);
        driven_store(&d, key, "x", 1);
    }
    driven_mount(&d);
    for (int i = 0; i < DIRS; i++)
        ck_assert_int_eq(driven_list(&d, dir_of(i)), NAMES);
    ck_assert_uint_gt(stats(&d).nodes, DIRS * NAMES);
    ck_assert_int_eq(driven_open(&d, "dir0/0", O_RDONLY, &h), 0);
    driven_put(&d, "dir1/ours", "ours", 4);
    DRIVEN_WAIT(stats(&d).nodes < NAMES);
    ck_assert_int_eq(driven_stat(&d, "dir1/ours", &st), 0);
    ck_assert_int_eq(st.st_size, 4);
    ck_assert_int_eq(driven_stat(&d, "dir7/1999", &st), 0);
    ck_assert_int_eq(driven_stat(&d, "dir7/2000", &st), -ENOENT);
    ck_assert_int_eq(driven_list(&d, "dir0"), NAMES);
    ck_assert_int_eq(driven_list(&d, "dir1"), NAMES + 1);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Sanitizers have a heap of their own.
 *
 * list_memory is a bound only if a name takes no more than is counted for it: in many small
 * directories, as runs are, and in a large one. */
static void check_bytes_of_names(int dirs, int names)
{
    struct driven d;
    char key[64];

    driven_init_like_s3(&d, NULL);
    for (int i = 0; i < dirs * names; i++) {
        (void)snprintf(key, sizeof(key), "run-%06d/file-%06d.json", i / names, i % names);
        driven_store(&d, key, "x", 1);
    }
    driven_mount(&d);
    size_t before = mallinfo2().uordblks;
    ck_assert_int_eq(driven_list(&d, ""), dirs);
    for (int i = 0; i < dirs; i++) {
        (void)snprintf(key, sizeof(key), "run-%06d", i);
        ck_assert_int_eq(driven_list(&d, key), names);
    }
    uint64_t nodes = stats(&d).nodes - 1;
    ck_assert_uint_eq(nodes, (unsigned)(dirs * names + dirs));
    /* The answer comes a moment before what it was made of is freed. */
    DRIVEN_WAIT(mallinfo2().uordblks - before <= nodes * NODE_BYTES);
    ck_assert_uint_ge(mallinfo2().uordblks - before, nodes * NODE_BYTES / 2);
    driven_release(&d);
}

START_TEST(a_name_takes_what_is_counted_for_it)
{
    check_bytes_of_names(2000, 10);
    check_bytes_of_names(1, 20000);
}
END_TEST
#endif

/* ---- waiting for names ---- */

static struct {
    atomic_bool stuck; /* questions about names are not answered */
    atomic_bool slow;  /* a listing takes its time for each name */
} names;

struct slow_visit {
    struct call *call;
    store_visit visit;
    void *arg;
};

static int visit_slowly(void *arg, const char *name, const struct object *obj)
{
    struct slow_visit *s = arg;
    int r = op_sleep(s->call->op, 25 * NS_PER_MS);

    return r < 0 ? r : s->visit(s->arg, name, obj);
}

static int64_t delay_names(struct layer *l, struct call *c)
{
    struct slow_visit s = {c, c->visit, c->visit_arg};

    (void)l;
    if ((c->kind == CALL_LIST || c->kind == CALL_STAT) && atomic_load(&names.stuck))
        return op_sleep(c->op, 3600 * NS_PER_SEC);
    if (c->kind == CALL_LIST && atomic_load(&names.slow)) {
        c->visit = visit_slowly;
        c->visit_arg = &s;
    }
    return call_next(c);
}

/* Nobody can tell whether the name is free: the answer is an error, after ask_timeout and not
 * after the patience of an upload. */
START_TEST(a_question_about_names_waits_for_ask_timeout)
{
    struct handle *h = NULL;
    struct driven d;
    struct stat st;

    driven_init(&d, delay_names);
    d.config.ask_timeout_ns = 300 * NS_PER_MS;
    d.config.store_timeout_ns = 3600 * NS_PER_SEC;
    driven_store(&d, "dir/x", "x", 1);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, ""), 1);
    atomic_store(&names.stuck, true);
    int64_t started = clock_mono_ns();
    ck_assert_int_eq(driven_open(&d, "dir/new", O_WRONLY | O_CREAT, &h), -ETIMEDOUT);
    ck_assert_int_eq(driven_list(&d, "dir"), -ETIMEDOUT);
    ck_assert_int_lt(clock_mono_ns() - started, 5 * NS_PER_SEC);
    atomic_store(&names.stuck, false);
    ck_assert_int_eq(driven_open(&d, "dir/new", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_stat(&d, "dir/new", &st), 0);
    driven_release(&d);
}
END_TEST

/* A listing that goes on is not given up, however long it is; not even where an older one could
 * be shown instead. */
START_TEST(a_long_listing_is_not_given_up)
{
    struct driven d;
    char key[32];

    driven_init(&d, delay_names);
    d.config.ask_timeout_ns = 2 * NS_PER_SEC;
    d.config.list_timeout_ns = 0;
    for (int i = 0; i < 120; i++) {
        (void)snprintf(key, sizeof(key), "dir/%03d", i);
        driven_store(&d, key, "x", 1);
    }
    driven_mount(&d);
    atomic_store(&names.slow, true);
    ck_assert_int_eq(driven_list(&d, "dir"), 120);
    driven_store(&d, "dir/120", "x", 1);
    (void)usleep(300000);
    ck_assert_int_eq(driven_list(&d, "dir"), 121);
    atomic_store(&names.slow, false);
    driven_release(&d);
}
END_TEST

/* ---- deletes ---- */

static struct {
    atomic_bool refuse; /* puts of "new" fail */
    atomic_uint refused;
} gate;

static int64_t refuse_new(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_PUT && strcmp(c->key, "new") == 0 && atomic_load(&gate.refuse)) {
        atomic_fetch_add(&gate.refused, 1);
        return op_fail(c->op, -EACCES, "put new: refused");
    }
    return call_next(c);
}

/* A checkpoint that can't be uploaded, and the older one removed after it: the store keeps the
 * older one until it has the newer one. */
START_TEST(deletes_wait_behind_an_upload_that_fails)
{
    struct driven d;
    char buf[8];

    driven_init(&d, refuse_new);
    driven_mount(&d);
    driven_put(&d, "old", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&gate.refuse, true);
    driven_put(&d, "new", "new", 3);
    ck_assert_int_eq(driven_unlink(&d, "old"), 0);
    DRIVEN_WAIT(atomic_load(&gate.refused) >= 2);
    ck_assert_int_eq(stats(&d).failed_files, 1);
    ck_assert_int_eq(stats(&d).pending_ops, 1);
    ck_assert_int_eq(driven_stored(&d, "old", buf, sizeof(buf)), 3);
    /* The order outlives the mount. */
    driven_unmount(&d);
    unsigned before = atomic_load(&gate.refused);
    driven_mount(&d);
    DRIVEN_WAIT(atomic_load(&gate.refused) > before);
    (void)usleep(300000);
    ck_assert_int_eq(driven_stored(&d, "old", buf, sizeof(buf)), 3);
    atomic_store(&gate.refuse, false);
    DRIVEN_WAIT(driven_flush(&d) == 0); /* one may end by a refusal that was under way */
    ck_assert_int_eq(driven_stored(&d, "new", buf, sizeof(buf)), 3);
    ck_assert_int_eq(driven_stored(&d, "old", buf, sizeof(buf)), -ENOENT);
    driven_release(&d);
}
END_TEST

/* A store with room for one object. */
static int64_t one_object(struct layer *l, struct call *c)
{
    static atomic_bool full;

    (void)l;
    if (c->kind == CALL_PUT && atomic_exchange(&full, true))
        return op_fail(c->op, -ENOSPC, "put %s: no quota", c->key);
    int64_t r = call_next(c);
    if (c->kind == CALL_REMOVE)
        atomic_store(&full, false);
    return r;
}

/* The older one goes first when there is no room for the newer one beside it. */
START_TEST(deletes_go_first_when_the_store_is_full)
{
    struct driven d;
    char buf[8];

    driven_init(&d, one_object);
    driven_mount(&d);
    driven_put(&d, "old", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_put(&d, "new", "new", 3);
    ck_assert_int_eq(driven_unlink(&d, "old"), 0);
    DRIVEN_WAIT(driven_stored(&d, "new", buf, sizeof(buf)) == 3);
    ck_assert_int_eq(driven_stored(&d, "old", buf, sizeof(buf)), -ENOENT);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_space");
    TCase *t = tcase_create("cache_space");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, eviction_keeps_the_inode_number);
    tcase_add_test(t, close_waits_for_the_store_after_an_eviction);
    tcase_add_test(t, what_was_cut_off_is_not_published);
    tcase_add_test(t, writers_do_not_wait_for_what_is_refused);
    tcase_add_test(t, who_waits_for_room_is_counted);
#ifndef NDEBUG /* others count no passes */
    tcase_add_test(t, who_waits_for_room_asks_for_few_passes);
#endif
    tcase_add_test(t, writers_do_not_wait_for_what_is_not_enough);
    tcase_add_loop_test(t, writers_do_not_wait_behind_a_refused_rename, 0, 2);
    tcase_add_test(t, a_small_refusal_leaves_room);
    tcase_add_test(t, names_leave_the_memory_and_come_back);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    tcase_add_test(t, a_name_takes_what_is_counted_for_it);
#endif
    tcase_add_test(t, a_question_about_names_waits_for_ask_timeout);
    tcase_add_test(t, a_long_listing_is_not_given_up);
    tcase_add_test(t, deletes_wait_behind_an_upload_that_fails);
    tcase_add_test(t, deletes_go_first_when_the_store_is_full);
    suite_add_tcase(s, t);
    return suite_run(s);
}
