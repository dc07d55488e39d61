/* cache/: with durability=store fsync() of a directory returns when the store has its names as
 * they are, and that of a file when its content is there under its name. */
#include "cache/cache.h"
#include "cache/transfer/transfer_impl.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static struct {
    atomic_int kind; /* enum call_kind: what the store refuses; -1 nothing */
    atomic_int err;
} refused;

static atomic_bool holds_copies, holds_puts;
static atomic_int copies_begun, puts_begun;

/* Changes take their time: who does not wait for them is told at once. */
static int64_t around(struct layer *l, struct call *c)
{
    bool changes = c->kind == CALL_PUT || c->kind == CALL_COPY || c->kind == CALL_REMOVE ||
                   c->kind == CALL_MKDIR || c->kind == CALL_COMMIT;

    (void)l;
    if (changes)
        (void)usleep(50000);
    bool refuses = (int)c->kind == atomic_load(&refused.kind);
    atomic_fetch_add(&copies_begun, c->kind == CALL_COPY);
    while (c->kind == CALL_COPY && atomic_load(&holds_copies))
        (void)usleep(1000);
    atomic_fetch_add(&puts_begun, c->kind == CALL_PUT);
    while (c->kind == CALL_PUT && atomic_load(&holds_puts))
        (void)usleep(1000);
    if (refuses)
        return op_fail(c->op, atomic_load(&refused.err), "%s refused", c->key);
    return call_next(c);
}

/* `kind` -1: none any more; who is just refused reads its error yet. */
static void refuse(int kind, int err)
{
    if (kind >= 0)
        atomic_store(&refused.err, err);
    atomic_store(&refused.kind, kind);
}

static void begin_settling(struct driven *d, int64_t settle_ns)
{
    refuse(-1, 0);
    driven_init_like_s3(d, around);
    d->config.durability = DURABILITY_STORE;
    d->config.settle_ns = settle_ns;
    driven_mount(d);
}

static void begin(struct driven *d)
{
    begin_settling(d, 100 * NS_PER_MS);
}

static bool is_stored(struct driven *d, const char *key)
{
    struct object obj = {0};
    struct op op;

    op_init(&op, 10 * NS_PER_SEC);
    int r = store_stat(d->store->next, &op, key, &obj);
    object_release(&obj);
    return r == 0;
}

static uint64_t kept_files(struct driven *d)
{
    struct cache_stats s;

    cache_get_stats(d->cache, &s);
    return s.kept_files;
}

struct syncing {
    struct driven *d;
    const char *path;
    pthread_t thread;
    atomic_bool ended;
    int r;
};

static void *sync_it(void *arg)
{
    struct syncing *s = arg;

    s->r = driven_fsyncdir(s->d, s->path);
    atomic_store(&s->ended, true);
    return NULL;
}

/* What fsync() of the directory answers, which may not take for ever. */
static int synced(struct driven *d, const char *path)
{
    static struct syncing s;

    s = (struct syncing){.d = d, .path = path};
    ck_assert_int_eq(pthread_create(&s.thread, NULL, sync_it, &s), 0);
    DRIVEN_WAIT(atomic_load(&s.ended));
    ck_assert_int_eq(pthread_join(s.thread, NULL), 0);
    return s.r;
}

/* ---- names ---- */

/* As trainers end a write: the file is synced, renamed, and its directory synced. */
START_TEST(a_rename)
{
    const char *to = _i & 1 ? "new/f" : "f";
    bool open = _i & 2, sync_old = _i & 4;
    struct handle *h = NULL;
    struct driven d;

    begin(&d);
    ck_assert_int_eq(driven_mkdir(&d, "new"), 0);
    driven_put(&d, to, "old", 3);
    ck_assert_int_eq(driven_open(&d, "f.tmp", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "content", 7, 0), 0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    if (!open)
        ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_rename(&d, "f.tmp", to), 0);
    ck_assert_int_eq(driven_fsyncdir(&d, sync_old || !(_i & 1) ? "" : "new"), 0);
    driven_stores(&d, to, "content");
    if (sync_old || !(_i & 1)) /* the old name belongs to the other directory */
        driven_stores(&d, "f.tmp", NULL);
    if (open)
        ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

/* fsync() of the file itself, though nothing of it changed, also of its directory. */
START_TEST(a_renamed_file_is_synced)
{
    bool of_directory = _i;
    struct handle *h = NULL;
    struct driven d;

    begin(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/f", "content", 7);
    ck_assert_int_eq(driven_open(&d, "dir/f", O_RDONLY, &h), 0);
    ck_assert_int_eq(of_directory ? driven_rename(&d, "dir", "to")
                                  : driven_rename(&d, "dir/f", "dir/to"),
                     0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    driven_stores(&d, of_directory ? "to/f" : "dir/to", "content");
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

START_TEST(a_renamed_directory)
{
    struct driven d;

    begin(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "dir/sub"), 0);
    driven_put(&d, "dir/sub/f", "content", 7);
    ck_assert_int_eq(driven_rename(&d, "dir", "to"), 0);
    ck_assert_int_eq(driven_fsyncdir(&d, ""), 0);
    driven_stores(&d, "to/sub/f", "content");
    driven_stores(&d, "dir/sub/f", NULL);
    driven_release(&d);
}
END_TEST

START_TEST(a_removal)
{
    struct driven d;

    begin(&d);
    driven_put(&d, "f", "content", 7);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/f", "content", 7);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    ck_assert_int_eq(driven_unlink(&d, "dir/f"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_fsyncdir(&d, ""), 0);
    driven_stores(&d, "f", NULL);
    driven_stores(&d, "dir/f", NULL);
    ck_assert(!is_stored(&d, "dir"));
    driven_release(&d);
}
END_TEST

/* What no writer closes, and so nobody waited for. */
START_TEST(new_names)
{
    struct handle *h = NULL;
    struct driven d;

    begin(&d);
    driven_put(&d, "f", "content", 7);
    ck_assert_int_eq(driven_link(&d, "f", "link"), 0);
    ck_assert_int_eq(driven_symlink(&d, "target", "symlink"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_open(&d, "empty", O_RDONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_put(&d, "cut", "content", 7);
    ck_assert_int_eq(driven_truncate(&d, "cut", 3), 0);
    ck_assert_int_eq(driven_fsyncdir(&d, ""), 0);
    driven_stores(&d, "link", "content");
    driven_stores(&d, "empty", "");
    driven_stores(&d, "cut", "con");
    ck_assert(is_stored(&d, "symlink"));
    ck_assert(is_stored(&d, "dir"));
    driven_release(&d);
}
END_TEST

/* Both, also when one of them was stored more often than the other was ever changed. */
START_TEST(two_names_that_change_places)
{
    struct handle *h = NULL;
    struct driven d;

    begin(&d);
    driven_put(&d, "one", "one", 3);
    for (int i = 0; i < 4; i++)
        driven_put(&d, "two", "two", 3);
    ck_assert_int_eq(driven_open(&d, "one", O_RDONLY, &h), 0);
    ck_assert_int_eq(driven_exchange(&d, "one", "two"), 0);
    ck_assert_int_eq(_i ? driven_fsync(&d, h) : driven_fsyncdir(&d, ""), 0);
    driven_stores(&d, "two", "one");
    if (!_i)
        driven_stores(&d, "one", "two");
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

/* What is being written, and was never closed or synced, is no matter of its directory. */
START_TEST(a_file_that_is_being_written)
{
    struct handle *h = NULL;
    struct driven d;

    begin(&d);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "half", 4, 0), 0);
    ck_assert_int_eq(driven_fsyncdir(&d, ""), 0);
    driven_stores(&d, "f", NULL);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

/* Nothing that comes to the store by itself stands for them there, neither before they settle
 * nor after. */
START_TEST(a_new_directory_around_an_open_file)
{
    struct handle *h = NULL;
    struct driven d;

    begin(&d);
    ck_assert_int_eq(driven_mkdir(&d, "new"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "new/dir"), 0);
    ck_assert_int_eq(driven_open(&d, "new/dir/f", O_WRONLY | O_CREAT, &h), 0);
    if (_i & 1)
        (void)usleep(500000);
    ck_assert_int_eq(driven_fsyncdir(&d, _i & 2 ? "new/dir" : "new"), 0);
    ck_assert(is_stored(&d, "new/dir"));
    driven_stores(&d, "new/dir/f", NULL);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

/* What is refused below a directory is no matter of who waits for the directory's name. */
START_TEST(a_new_directory_around_what_is_refused)
{
    struct handle *h = NULL;
    struct driven d;

    begin(&d);
    ck_assert_int_eq(driven_mkdir(&d, "new"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "new/dir"), 0);
    refuse(CALL_PUT, -EACCES);
    ck_assert_int_eq(driven_open(&d, "new/dir/f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_close(&d, h), -EACCES);
    ck_assert_int_eq(driven_fsyncdir(&d, "new"), 0);
    ck_assert(is_stored(&d, "new/dir"));
    refuse(-1, 0);
    driven_release(&d);
}
END_TEST

/* Nor does what is renamed into it stand for it before it is there. */
START_TEST(a_new_directory_around_what_does_not_come)
{
    struct handle *h = NULL;
    struct driven d;

    begin(&d);
    driven_put(&d, "f", "content", 7);
    ck_assert_int_eq(driven_mkdir(&d, "new"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "new/dir"), 0);
    refuse(CALL_COPY, -EACCES);
    ck_assert_int_eq(driven_rename(&d, "f", "new/dir/f"), 0);
    if (_i == 1)
        (void)usleep(500000);
    if (_i == 2) { /* it is waited for, and waits for the rename */
        ck_assert_int_eq(driven_open(&d, "new/dir/f", O_WRONLY, &h), 0);
        ck_assert_int_eq(driven_write(&d, h, "CONTENT", 7, 0), 0);
        ck_assert_int_eq(driven_close(&d, h), -EACCES);
        ck_assert_int_eq(driven_fsyncdir(&d, "new/dir"), -EACCES);
    }
    ck_assert_int_eq(driven_fsyncdir(&d, "new"), 0);
    ck_assert(is_stored(&d, "new/dir"));
    refuse(-1, 0);
    DRIVEN_WAIT(driven_fsyncdir(&d, "new/dir") == 0); /* one may end by a refusal under way */
    driven_stores(&d, "new/dir/f", _i == 2 ? "CONTENT" : "content");
    driven_release(&d);
}
END_TEST

/* Not either when the store gets on with the way there. */
START_TEST(a_new_directory_around_what_comes_half_the_way)
{
    struct driven d;

    begin(&d);
    driven_put(&d, "f", "content", 7);
    ck_assert_int_eq(driven_mkdir(&d, "new"), 0);
    atomic_store(&copies_begun, 0);
    atomic_store(&holds_copies, true);
    ck_assert_int_eq(driven_rename(&d, "f", "g"), 0);
    DRIVEN_WAIT(atomic_load(&copies_begun) == 1);
    refuse(CALL_COPY, -EACCES);
    ck_assert_int_eq(driven_mkdir(&d, "new/dir"), 0);
    ck_assert_int_eq(driven_rename(&d, "g", "new/dir/f"), 0);
    atomic_store(&holds_copies, false);
    DRIVEN_WAIT(atomic_load(&copies_begun) > 1);
    ck_assert_int_eq(synced(&d, "new"), 0);
    ck_assert(is_stored(&d, "new/dir"));
    driven_stores(&d, "g", "content");
    refuse(-1, 0);
    DRIVEN_WAIT(synced(&d, "new/dir") == 0); /* one may end by a refusal under way */
    driven_stores(&d, "new/dir/f", "content");
    driven_release(&d);
}
END_TEST

/* What was closed goes in a moment, and no marker stays beside it; a store may refuse that.
 * What leaves the directory is no matter then. */
START_TEST(a_new_directory_around_a_closed_file)
{
    struct driven d;

    begin_settling(&d, 900 * NS_PER_MS); /* no marker before the link, on a slow machine */
    ck_assert_int_eq(driven_mkdir(&d, "p"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "p/n"), 0);
    if (_i) {
        ck_assert_int_eq(driven_mkdir(&d, "p/n/y"), 0);
        driven_put(&d, "p/n/y/k", "content", 7);
        atomic_store(&copies_begun, 0);
        refuse(CALL_COPY, -EACCES);
        ck_assert_int_eq(driven_rename(&d, "p/n/y", "z"), 0);
        DRIVEN_WAIT(atomic_load(&copies_begun) > 0);
    } else {
        refuse(CALL_MKDIR, -EACCES);
    }
    ck_assert_int_eq(driven_symlink(&d, "target", "p/n/s"), 0);
    ck_assert_int_eq(synced(&d, "p"), 0);
    ck_assert(is_stored(&d, "p/n/s"));
    refuse(-1, 0);
    driven_release(&d);
}
END_TEST

/* Nobody waits for one that rests for an hour. */
START_TEST(a_new_directory_around_a_file_that_rests)
{
    struct driven d;

    begin(&d);
    driven_unmount(&d);
    d.config.settle_ns = 3600 * NS_PER_SEC;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "p"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "p/n"), 0);
    ck_assert_int_eq(driven_symlink(&d, "target", "p/n/s"), 0);
    ck_assert_int_eq(synced(&d, "p"), 0);
    ck_assert(is_stored(&d, "p/n") && !is_stored(&d, "p/n/s"));
    driven_release(&d);
}
END_TEST

#ifndef NDEBUG
static void *flush_it(void *arg)
{
    struct syncing *s = arg;

    s->r = driven_flush(s->d);
    atomic_store(&s->ended, true);
    return NULL;
}

/* What comes may take hours, and asks for a pass when it is there. */
START_TEST(a_new_directory_around_a_slow_upload_asks_for_few_passes)
{
    struct syncing s = {.path = "new"};
    struct driven d;

    begin_settling(&d, 900 * NS_PER_MS); /* no marker before the link, on a slow machine */
    s.d = &d;
    atomic_store(&puts_begun, 0);
    atomic_store(&holds_puts, true);
    ck_assert_int_eq(driven_mkdir(&d, "new"), 0);
    ck_assert_int_eq(driven_symlink(&d, "target", "new/f"), 0);
    ck_assert_int_eq(pthread_create(&s.thread, NULL, _i ? flush_it : sync_it, &s), 0);
    DRIVEN_WAIT(atomic_load(&puts_begun) == 1);
    (void)usleep(300000);
    unsigned long long before = atomic_load(&passes_made);
    (void)usleep(1500000);
    unsigned long long passes = atomic_load(&passes_made) - before;
    ck_assert_msg(passes <= 6, "%llu", passes);
    ck_assert(!atomic_load(&s.ended) && !is_stored(&d, "new"));
    atomic_store(&holds_puts, false);
    ck_assert_int_eq(pthread_join(s.thread, NULL), 0);
    ck_assert_int_eq(s.r, 0);
    driven_release(&d);
}
END_TEST
#endif

/* A directory that does not come stands for it no more than a file. */
START_TEST(a_new_directory_around_a_directory_that_does_not_come)
{
    const char *synced_dir = _i ? "new/dir" : "new";
    struct driven d;

    begin(&d);
    ck_assert_int_eq(driven_mkdir(&d, "moves"), 0);
    driven_put(&d, "moves/f", "content", 7);
    ck_assert_int_eq(driven_mkdir(&d, "new"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "new/dir"), 0);
    refuse(CALL_COPY, -EACCES);
    ck_assert_int_eq(driven_rename(&d, "moves", "new/dir/moves"), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(synced(&d, synced_dir), -EACCES);
    refuse(-1, 0);
    ck_assert_int_eq(synced(&d, synced_dir), 0);
    driven_stores(&d, "new/dir/moves/f", "content");
    driven_release(&d);
}
END_TEST

/* Its marker comes after the row of what left it, though that is no name of who waits. */
START_TEST(a_new_directory_behind_what_does_not_leave)
{
    struct handle *h = NULL;
    struct driven d;

    begin(&d);
    ck_assert_int_eq(driven_mkdir(&d, "p"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "p/n"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "p/n/y"), 0);
    driven_put(&d, "p/n/y/k", "content", 7);
    refuse(CALL_COPY, -EACCES);
    ck_assert_int_eq(driven_rename(&d, "p/n/y", "z"), 0);
    ck_assert_int_eq(driven_open(&d, "p/n/f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(synced(&d, _i ? "p/n" : "p"), -EACCES);
    refuse(-1, 0);
    ck_assert_int_eq(synced(&d, _i ? "p/n" : "p"), 0);
    ck_assert(is_stored(&d, "p/n"));
    driven_stores(&d, "p/n/f", NULL);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

/* ---- failures ---- */

static const struct {
    int kind, err;
} failures[] = {
    {CALL_COPY, -EACCES},
    {CALL_REMOVE, -EACCES},
    {CALL_PUT, -ENOSPC},
    {CALL_MKDIR, -EACCES},
};

/* Told each time, and no more when the store takes it. */
START_TEST(what_fails_is_told)
{
    struct driven d;

    begin(&d);
    driven_put(&d, "moves", "content", 7);
    driven_put(&d, "goes", "content", 7);
    ck_assert_int_eq(driven_flush(&d), 0);
    refuse(failures[_i].kind, failures[_i].err);
    if (failures[_i].kind == CALL_COPY)
        ck_assert_int_eq(driven_rename(&d, "moves", "moved"), 0);
    else if (failures[_i].kind == CALL_REMOVE)
        ck_assert_int_eq(driven_unlink(&d, "goes"), 0);
    else if (failures[_i].kind == CALL_PUT)
        ck_assert_int_eq(driven_symlink(&d, "target", "new"), 0);
    else
        ck_assert_int_eq(driven_mkdir(&d, "new"), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(driven_fsyncdir(&d, ""), failures[_i].err);
    refuse(-1, 0);
    ck_assert_int_eq(driven_fsyncdir(&d, ""), 0);
    ck_assert(is_stored(&d, failures[_i].kind == CALL_COPY     ? "moved"
                            : failures[_i].kind == CALL_REMOVE ? "moves"
                                                               : "new"));
    ck_assert(failures[_i].kind != CALL_REMOVE || !is_stored(&d, "goes"));
    driven_release(&d);
}
END_TEST

/* Who waited for a directory in vain does not have it go up under a name that waits for another
 * one. */
START_TEST(what_failed_gets_a_staging_name)
{
    struct driven d;

    begin(&d);
    driven_unmount(&d);
    d.config.retry_ns = NS_PER_SEC;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "new"), 0);
    refuse(CALL_MKDIR, -EACCES);
    ck_assert_int_eq(synced(&d, ""), -EACCES);
    ck_assert_int_eq(driven_rename(&d, "new", "new.tmp"), 0);
    refuse(-1, 0);
    (void)usleep(2500000);
    ck_assert(!is_stored(&d, "new.tmp"));
    ck_assert_int_eq(driven_rename(&d, "new.tmp", "to"), 0);
    ck_assert_int_eq(synced(&d, ""), 0);
    ck_assert(is_stored(&d, "to"));
    driven_release(&d);
}
END_TEST

/* A removal waits for uploads; of one that fails who waits for the removal is told. */
START_TEST(a_removal_behind_an_upload_that_fails)
{
    struct handle *h = NULL;
    struct driven d;

    begin(&d);
    driven_put(&d, "goes", "content", 7);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    refuse(CALL_PUT, -EACCES);
    ck_assert_int_eq(driven_open(&d, "dir/f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "content", 7, 0), 0);
    ck_assert_int_eq(driven_close(&d, h), -EACCES);
    ck_assert_int_eq(driven_unlink(&d, "goes"), 0);
    ck_assert_int_eq(driven_fsyncdir(&d, ""), -EACCES);
    refuse(-1, 0);
    ck_assert_int_eq(driven_fsyncdir(&d, ""), 0);
    driven_stores(&d, "goes", NULL);
    driven_release(&d);
}
END_TEST

/* Another node has put something under the name: ours is set aside, and that is no success. */
START_TEST(a_name_that_somebody_else_has)
{
    struct driven d;

    begin(&d);
    driven_put(&d, "f", "content", 7);
    atomic_store(&holds_puts, true); /* or a slow machine has it there before theirs */
    ck_assert_int_eq(driven_symlink(&d, "target", "name"), 0);
    driven_store(&d, "name", "theirs", 6);
    atomic_store(&holds_puts, false);
    ck_assert_int_eq(driven_fsyncdir(&d, ""), -ESTALE);
    driven_stores(&d, "name", "theirs");
    DRIVEN_WAIT(kept_files(&d) == 1); /* it is told a moment before it is done */
    ck_assert_int_eq(driven_fsyncdir(&d, ""), 0);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_durable");
    TCase *t = tcase_create("cache_durable");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_rename, 0, 8);
    tcase_add_loop_test(t, a_renamed_file_is_synced, 0, 2);
    tcase_add_test(t, a_renamed_directory);
    tcase_add_test(t, a_removal);
    tcase_add_test(t, new_names);
    tcase_add_loop_test(t, two_names_that_change_places, 0, 2);
    tcase_add_test(t, a_file_that_is_being_written);
    tcase_add_loop_test(t, a_new_directory_around_an_open_file, 0, 4);
    tcase_add_test(t, a_new_directory_around_what_is_refused);
    tcase_add_loop_test(t, a_new_directory_around_what_does_not_come, 0, 3);
    tcase_add_test(t, a_new_directory_around_what_comes_half_the_way);
    tcase_add_loop_test(t, a_new_directory_around_a_directory_that_does_not_come, 0, 2);
    tcase_add_loop_test(t, a_new_directory_around_a_closed_file, 0, 2);
    tcase_add_test(t, a_new_directory_around_a_file_that_rests);
#ifndef NDEBUG
    tcase_add_loop_test(t, a_new_directory_around_a_slow_upload_asks_for_few_passes, 0, 2);
#endif
    tcase_add_loop_test(t, a_new_directory_behind_what_does_not_leave, 0, 2);
    tcase_add_loop_test(t, what_fails_is_told, 0, sizeof(failures) / sizeof(*failures));
    tcase_add_test(t, what_failed_gets_a_staging_name);
    tcase_add_test(t, a_removal_behind_an_upload_that_fails);
    tcase_add_test(t, a_name_that_somebody_else_has);
    suite_add_tcase(s, t);
    return suite_run(s);
}
