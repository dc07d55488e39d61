/* cache/: what a flush waits for, when it gives up, and what it leaves to others. */
#include "cache/blocking.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct driven d;
static atomic_int held; /* enum call_kind of requests that wait; -1 none */
static atomic_int held_too;
static atomic_int waiting; /* how many of them did */
static atomic_int refused; /* of those that are refused, */
static atomic_int refusal; /* with this */
static atomic_bool once;   /* the first only */

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if ((int)c->kind == atomic_load(&held))
        atomic_fetch_add(&waiting, 1);
    while ((int)c->kind == atomic_load(&held) || (int)c->kind == atomic_load(&held_too))
        (void)usleep(1000);
    int kind = (int)c->kind;
    if (atomic_load(&once) ? atomic_compare_exchange_strong(&refused, &kind, -1)
                           : kind == atomic_load(&refused))
        return op_fail(c->op, atomic_load(&refusal), "%s: refused", call_name(c->kind));
    return call_next(c);
}

static void setup(void)
{
    atomic_store(&held, -1);
    atomic_store(&held_too, -1);
    atomic_store(&waiting, 0);
    atomic_store(&refused, -1);
    atomic_store(&refusal, -EACCES);
    atomic_store(&once, false);
}

static int flush(const char *path, bool with_staged, int64_t ns)
{
    struct op op;

    op_init(&op, ns);
    return cache_flush_path(d.cache, path, with_staged, &op, NULL, NULL);
}

struct flushing {
    pthread_t thread;
    int64_t ns; /* how long it may take */
    unsigned flags;
    atomic_uint looks;
    int result;
};

static void has_looked(void *arg, uint64_t done, uint64_t total)
{
    struct flushing *f = arg;

    (void)done, (void)total;
    atomic_fetch_add(&f->looks, 1);
}

static void *flush_all(void *arg)
{
    struct flushing *f = arg;
    struct op op;

    op_init(&op, f->ns);
    f->result = cache_flush_path(d.cache, "", f->flags, &op, has_looked, f);
    return NULL;
}

static void begin_with(struct flushing *f, int64_t ns, unsigned flags)
{
    *f = (struct flushing){.ns = ns, .flags = flags};
    ck_assert_int_eq(pthread_create(&f->thread, NULL, flush_all, f), 0);
}

static void begin(struct flushing *f, int64_t ns)
{
    begin_with(f, ns, CACHE_FLUSH_STAGED);
}

static int end(struct flushing *f)
{
    ck_assert_int_eq(pthread_join(f->thread, NULL), 0);
    return f->result;
}

/* A mount in which only a flush uploads, one file after the other. */
static void mount_unhurried(void)
{
    driven_init(&d, around);
    d.config.settle_ns = 3600 * NS_PER_SEC;
    d.config.upload_jobs = 1;
    driven_mount(&d);
}

static struct handle *open_written(const char *path)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(&d, path, O_WRONLY | O_CREAT | O_APPEND, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "1", 1, 0), 0);
    return h;
}

/* ---- what is queued once more while a flush waits for it does not settle first ---- */

static void closed(struct handle *h)
{
    ck_assert_int_eq(driven_close(&d, h), 0);
}

static void changed(struct handle *h)
{
    ck_assert_int_eq(driven_chmod(&d, "f", 0600), 0);
    closed(h);
}

static void renamed(struct handle *h)
{
    ck_assert_int_eq(driven_rename(&d, "f", "g"), 0);
    closed(h);
}

static void written(struct handle *h)
{
    closed(h);
    driven_put(&d, "f", "2", 1);
}

static const struct {
    void (*again)(struct handle *h);
    const char *name; /* at the end */
    const char *content;
} queued[] = {
    {closed, "f", "1"}, {changed, "f", "1"}, {renamed, "g", "1"}, {written, "f", "2"}};

static void is_stored(int i)
{
    driven_stores(&d, queued[i].name, queued[i].content);
    driven_release(&d);
}

START_TEST(a_flush_does_not_settle_what_is_queued_before_its_upload)
{
    struct flushing f;

    mount_unhurried();
    driven_put(&d, "first", "0", 1);
    struct handle *h = open_written("f");
    atomic_store(&held, CALL_PUT);
    begin(&f, 20 * NS_PER_SEC);
    DRIVEN_WAIT(atomic_load(&f.looks) && atomic_load(&waiting) == 1);
    queued[_i].again(h);
    atomic_store(&held, -1);
    ck_assert_int_eq(end(&f), 0);
    is_stored(_i);
}
END_TEST

START_TEST(a_flush_does_not_settle_what_is_queued_in_its_upload)
{
    struct flushing f;

    mount_unhurried();
    struct handle *h = open_written("f");
    atomic_store(&held, CALL_PUT);
    begin(&f, 20 * NS_PER_SEC);
    DRIVEN_WAIT(atomic_load(&f.looks) && atomic_load(&waiting) == 1);
    queued[_i].again(h);
    atomic_store(&held, -1);
    ck_assert_int_eq(end(&f), 0);
    driven_flush(&d); /* what came after it began */
    is_stored(_i);
}
END_TEST

/* ---- what was to stand for a directory goes before it is stored ---- */

static void unlink_in_it(void)
{
    ck_assert_int_eq(driven_unlink(&d, "new/dir/f"), 0);
}

static void unlink_it_too(void)
{
    unlink_in_it();
    ck_assert_int_eq(driven_rmdir(&d, "new/dir"), 0);
}

static void move_out_of_it(void)
{
    ck_assert_int_eq(driven_rename(&d, "new/dir/f", "f"), 0);
}

static struct handle *newer; /* of a file that another program writes */

static void replace_in_it(void)
{
    newer = open_written("new/dir/newer");
    unlink_in_it();
}

static const struct {
    void (*go)(void);
    const char *left;
    const char *beside; /* a file that waits for its rename; NULL: none */
} going[] = {{unlink_in_it, "new/dir", NULL},
             {unlink_it_too, "new", NULL},
             {unlink_in_it, "new/dir", "new/dir/x.tmp"},
             {move_out_of_it, "new/dir", "new/dir/x.tmp"},
             {replace_in_it, "new/dir", NULL}};

START_TEST(a_flush_waits_for_the_directory_that_is_left_empty)
{
    struct flushing f;

    driven_init_like_s3(&d, around);
    d.config.settle_ns = 300 * NS_PER_MS;
    d.config.upload_jobs = 1;
    driven_mount(&d);
    atomic_store(&held, CALL_PUT);
    driven_put(&d, "first", "0", 1);
    ck_assert_int_eq(driven_mkdir(&d, "new"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "new/dir"), 0);
    driven_put(&d, "new/dir/f", "1", 1);
    if (going[_i].beside)
        driven_put(&d, going[_i].beside, "2", 1);
    (void)usleep(900000); /* nothing is owed for the directories by then */
    /* A machine that is too slow proves nothing. */
    bool settled = driven_stores_dir(&d, "new") || driven_stores_dir(&d, "new/dir");
    atomic_store(&held_too, CALL_MKDIR);
    newer = NULL;
    begin_with(&f, 20 * NS_PER_SEC, 0);
    DRIVEN_WAIT(atomic_load(&f.looks));
    going[_i].go();
    atomic_store(&held, -1);
    (void)usleep(300000); /* it would have ended by then */
    bool waits = pthread_tryjoin_np(f.thread, NULL) == EBUSY;
    atomic_store(&held_too, -1);
    ck_assert(waits || settled);
    ck_assert_int_eq(waits ? end(&f) : f.result, 0);
    ck_assert(driven_stores_dir(&d, going[_i].left));
    if (newer)
        closed(newer);
    driven_release(&d);
}
END_TEST

/* Nothing that the flush sends stands for it. */
START_TEST(a_flush_waits_for_the_directory_of_what_waits_for_a_rename)
{
    driven_init_like_s3(&d, around);
    d.config.settle_ns = 10 * NS_PER_MS;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "new"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "new/dir"), 0);
    if (_i == 3)
        ck_assert_int_eq(driven_mkdir(&d, "new/dir/x.tmp"), 0);
    else
        driven_put(&d, "new/dir/x.tmp", "1", 1);
    (void)usleep(_i ? 300000 : 0); /* nothing is owed for the directories by then */
    ck_assert_int_eq(flush(_i == 2 ? "new/dir" : "", false, 20 * NS_PER_SEC), 0);
    ck_assert(driven_stores_dir(&d, "new/dir"));
    driven_stores(&d, "new/dir/x.tmp", NULL);
    ck_assert(!driven_stores_dir(&d, "new/dir/x.tmp"));
    driven_release(&d);
}
END_TEST

/* The first has what it asked for, the second asked for what is to go up next. */
START_TEST(a_flush_does_not_settle_what_an_upload_did_not_have)
{
    struct flushing first, second;

    mount_unhurried();
    struct handle *h = open_written("f");
    closed(h);
    atomic_store(&held, CALL_PUT);
    begin(&first, 20 * NS_PER_SEC);
    DRIVEN_WAIT(atomic_load(&waiting) == 1);
    driven_put(&d, "f", "2", 1);
    begin(&second, 20 * NS_PER_SEC);
    DRIVEN_WAIT(atomic_load(&second.looks));
    atomic_store(&held, -1);
    ck_assert_int_eq(end(&first), 0);
    ck_assert_int_eq(end(&second), 0);
    driven_stores(&d, "f", "2");
    driven_release(&d);
}
END_TEST

/* What waits under a staging name goes up for the second when the first has given up; and waits
 * again when both are over. */
START_TEST(a_flush_does_not_end_what_another_asked_for)
{
    struct flushing first, second;

    driven_init(&d, around);
    driven_mount(&d);
    atomic_store(&refusal, -EIO);
    atomic_store(&refused, CALL_MKDIR);
    ck_assert_int_eq(driven_mkdir(&d, "x.tmp"), 0);
    begin(&first, 500 * NS_PER_MS);
    (void)usleep(100000);
    begin(&second, 20 * NS_PER_SEC);
    ck_assert_int_eq(end(&first), -ETIMEDOUT);
    atomic_store(&refused, -1);
    ck_assert_int_eq(end(&second), 0);
    ck_assert(driven_stores_dir(&d, "x.tmp"));
    driven_put(&d, "y.tmp", "staged", 6);
    (void)usleep(300000);
    ck_assert_int_eq(driven_stored(&d, "y.tmp", NULL, 0), -ENOENT);
    driven_release(&d);
}
END_TEST

struct syncing {
    pthread_t thread;
    struct handle *handle;
    int result;
};

static void *sync_it(void *arg)
{
    struct syncing *s = arg;

    s->result = driven_fsync(&d, s->handle);
    return NULL;
}

static void sync_begun(struct syncing *s, const char *path)
{
    *s = (struct syncing){.result = 1};
    ck_assert_int_eq(driven_open(&d, path, O_WRONLY | O_CREAT, &s->handle), 0);
    ck_assert_int_eq(driven_write(&d, s->handle, path, strlen(path), 0), 0);
    ck_assert_int_eq(pthread_create(&s->thread, NULL, sync_it, s), 0);
}

static void sync_ends(struct syncing *s, const char *path)
{
    ck_assert_int_eq(pthread_join(s->thread, NULL), 0);
    ck_assert_int_eq(s->result, 0);
    driven_stores(&d, path, path);
    ck_assert_int_eq(driven_close(&d, s->handle), 0);
}

/* ---- how often it looks ---- */

#define ROWS 100

/* With many rows left it is no matter how often something comes to the store. */
START_TEST(a_flush_polls_while_many_rows_are_left)
{
    struct flushing f;
    char name[16];

    driven_init(&d, around);
    for (int i = 0; i < ROWS; i++) {
        (void)snprintf(name, sizeof(name), "f%d", i);
        driven_store(&d, name, "x", 1);
    }
    driven_mount(&d);
    atomic_store(&held, CALL_REMOVE);
    for (int i = 0; i < ROWS; i++) {
        (void)snprintf(name, sizeof(name), "f%d", i);
        ck_assert_int_eq(driven_unlink(&d, name), 0);
    }
    begin(&f, 60 * NS_PER_SEC);
    DRIVEN_WAIT(atomic_load(&f.looks) > 0);
    unsigned before = atomic_load(&f.looks);
    int64_t began_ns = clock_mono_ns();
    for (int i = 0; i < 500; i++) {
        cache_lock(d.cache);
        progress_tell_locked(d.cache);
        cache_unlock(d.cache);
        (void)usleep(200);
    }
    unsigned looks = atomic_load(&f.looks) - before;
    int64_t pauses = (clock_mono_ns() - began_ns) / (5 * NS_PER_MS);
    ck_assert_msg(looks <= pauses + 2, "%u", looks);
    atomic_store(&held, -1);
    ck_assert_int_eq(end(&f), 0);
    driven_release(&d);
}
END_TEST

/* A look that takes long is followed by a long pause, and by no endless one. */
START_TEST(a_pause_follows_the_look)
{
    const int64_t ms = NS_PER_MS;

    ck_assert_int_eq(blocking_pause_ns(0, 0), 0);
    ck_assert_int_eq(blocking_pause_ns(0, 5 * ms), 5 * ms);
    ck_assert_int_eq(blocking_pause_ns(2 * ms, 5 * ms), 32 * ms);
    ck_assert_int_eq(blocking_pause_ns(20 * ms, 5 * ms), TICK_NS);
    ck_assert_int_eq(blocking_pause_ns(INT64_MAX, 0), TICK_NS);
}
END_TEST

/* ---- who waits beside it ---- */

/* An fsync() that waits for its turn goes on when a flush has given up. */
START_TEST(a_flush_leaves_who_waits_for_the_store)
{
    struct syncing a, b;

    driven_init(&d, around);
    d.config.durability = DURABILITY_STORE;
    d.config.upload_jobs = 1;
    driven_mount(&d);
    atomic_store(&held, CALL_PUT);
    sync_begun(&a, "a");
    DRIVEN_WAIT(strcmp(driven_state(&d, "a"), "uploading") == 0);
    sync_begun(&b, "b");
    (void)usleep(200000);
    ck_assert_int_eq(flush("", false, 300 * NS_PER_MS), -ETIMEDOUT);
    atomic_store(&held, -1);
    sync_ends(&a, "a");
    sync_ends(&b, "b");
    driven_release(&d);
}
END_TEST

/* A rename that is refused likewise. */
START_TEST(a_flush_tells_of_a_delete_that_is_refused)
{
    struct op op;

    driven_init_like_s3(&d, around);
    driven_mount(&d);
    driven_put(&d, "f", "data", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refused, _i == 0 ? CALL_REMOVE : CALL_COPY);
    ck_assert_int_eq(_i == 0 ? driven_unlink(&d, "f") : driven_rename(&d, "f", "g"), 0);
    op_init(&op, 15 * NS_PER_SEC);
    ck_assert_int_eq(cache_flush_path(d.cache, "", CACHE_FLUSH_STAGED, &op, NULL, NULL),
                     -EACCES);
    ck_assert_msg(strstr(op.why, "refused"), "%s", op.why);
    /* What failed before says nothing of the next attempt. */
    atomic_store(&refused, -1);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_stored(&d, "f", NULL, 0), -ENOENT);
    driven_release(&d);
}
END_TEST

#define MANY 2500 /* removals, of which a request takes 1,000 at most */

static int64_t one_is_refused(struct layer *l, struct call *c)
{
    struct call others = *c;

    (void)l;
    if (c->kind != CALL_REMOVE)
        return call_next(c);
    while (atomic_load(&held) == CALL_REMOVE)
        (void)usleep(1000);
    bool is_it = strcmp(c->key, "f0") == 0;
    if (!is_it)
        (void)usleep(2000000);
    if (is_it && c->errs)
        c->errs[0] = -EACCES;
    others.keys += is_it;
    others.etags += is_it && c->etags;
    others.errs += is_it && c->errs;
    others.n_keys -= is_it;
    int64_t r = others.n_keys ? call_next(&others) : 0;
    return is_it ? op_fail(c->op, -EACCES, "%s: refused", c->key) : r;
}

/* Of one row that is refused a flush tells when the others are done, however long that takes.
 */
START_TEST(a_flush_brings_the_rows_beside_one_that_is_refused)
{
    struct cache_stats s;
    struct flushing f;
    char name[16];

    driven_init_like_s3(&d, one_is_refused);
    d.config.retry_ns = 3600 * NS_PER_SEC;
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "f%d", i);
        driven_store(&d, name, "1", 1);
    }
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, ""), MANY);
    atomic_store(&held, CALL_REMOVE);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "f%d", i);
        ck_assert_int_eq(driven_unlink(&d, name), 0);
    }
    begin(&f, 50 * NS_PER_SEC);
    DRIVEN_WAIT(atomic_load(&f.looks));
    atomic_store(&held, -1);
    ck_assert_int_eq(end(&f), -EACCES);
    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.pending_ops, 1);
    driven_stores(&d, "f0", "1");
    driven_release(&d);
}
END_TEST

/* What it is in the way of fails for that only. */
START_TEST(a_flush_waits_for_a_removal_that_is_tried_again)
{
    driven_init_folder(&d, around, 1 << 20);
    driven_mount(&d);
    driven_put(&d, "x", "x", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refusal, -EIO);
    atomic_store(&once, true);
    atomic_store(&refused, CALL_REMOVE);
    ck_assert_int_eq(driven_unlink(&d, "x"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "x"), 0);
    driven_put(&d, "x/y", "y", 1);
    struct op op;
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_msg(cache_flush_path(d.cache, "", CACHE_FLUSH_STAGED, &op, NULL, NULL) == 0, "%s",
                  op.why);
    driven_stores(&d, "x/y", "y");
    driven_release(&d);
}
END_TEST

START_TEST(a_flush_waits_for_a_rename_above_it)
{
    driven_init_like_s3(&d, around);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    driven_put(&d, "d/f", "data", 4);
    driven_put(&d, "other", "data", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&held, CALL_COPY);
    ck_assert_int_eq(driven_rename(&d, "d", "e"), 0);
    ck_assert_int_eq(flush("e/f", true, NS_PER_SEC), -ETIMEDOUT);
    ck_assert_int_eq(flush("d/f", true, NS_PER_SEC), -ETIMEDOUT);
    ck_assert_int_eq(flush("other", true, NS_PER_SEC), 0);
    atomic_store(&held, -1);
    ck_assert_int_eq(flush("e/f", true, 20 * NS_PER_SEC), 0);
    driven_stores(&d, "e/f", "data");
    driven_release(&d);
}
END_TEST

/* In a folder a directory is more than what is below it. */
START_TEST(a_flush_waits_for_no_directory_that_waits_for_its_rename)
{
    if (_i < 2)
        driven_init_folder(&d, around, 1 << 20);
    else
        driven_init_like_s3(&d, around);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "t.tmp"), 0);
    if (_i % 2)
        driven_put(&d, "t.tmp/q", "q", 1);
    ck_assert_int_eq(flush("", false, 20 * NS_PER_SEC), 0);
    ck_assert(!driven_stores_dir(&d, "t.tmp"));
    ck_assert_int_eq(flush("t.tmp", true, 20 * NS_PER_SEC), 0);
    ck_assert(driven_stores_dir(&d, "t.tmp"));
    ck_assert_int_eq(driven_mkdir(&d, "u.tmp"), 0);
    ck_assert_int_eq(driven_rename(&d, "u.tmp", "u"), 0);
    ck_assert_int_eq(flush("", false, 20 * NS_PER_SEC), 0);
    ck_assert(driven_stores_dir(&d, "u"));
    driven_release(&d);
}
END_TEST

/* The time of the directory above is owed, and comes after the names that come. */
START_TEST(a_flush_waits_for_no_directory_above_what_waits)
{
    struct handle *h = NULL;

    driven_init_folder(&d, around, 1 << 20);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    if (_i == 0) {
        ck_assert_int_eq(driven_mkdir(&d, "d/t.tmp"), 0);
    } else {
        const char *path = _i == 1 ? "d/x.tmp" : "d/x";
        ck_assert_int_eq(driven_open(&d, path, O_CREAT | O_WRONLY, &h), 0);
        ck_assert_int_eq(driven_write(&d, h, "x", 1, 0), 0);
        if (_i == 1)
            ck_assert_int_eq(driven_fsync(&d, h), 0);
    }
    ck_assert_int_eq(driven_utimens(&d, "d", NS_PER_SEC), 0);
    ck_assert_int_eq(flush("", false, 20 * NS_PER_SEC), _i == 2 ? -ETXTBSY : 0);
    ck_assert(driven_stores_dir(&d, "d"));
    if (h)
        ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

static int count_waiting(void *arg, const struct cache_pending *p)
{
    *(unsigned *)arg += p->waits;
    return 0;
}

/* A caller tells of what a flush leaves out, whatever became of it before. */
START_TEST(what_waits_for_its_rename_is_told_of_after_a_failure)
{
    unsigned n = 0;

    driven_init_like_s3(&d, around);
    driven_mount(&d);
    driven_put(&d, "x.tmp", "x", 1);
    atomic_store(&refused, CALL_PUT);
    ck_assert_int_lt(flush("x.tmp", true, 2 * NS_PER_SEC), 0);
    ck_assert_str_eq(driven_state(&d, "x.tmp"), "failed");
    ck_assert_int_eq(flush("", false, 20 * NS_PER_SEC), 0);
    ck_assert_int_eq(cache_each_pending(d.cache, count_waiting, &n), 0);
    ck_assert_uint_eq(n, 1);
    atomic_store(&refused, -1);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_flush");
    TCase *t = tcase_create("cache_flush");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_loop_test(t, a_flush_does_not_settle_what_is_queued_before_its_upload, 0, 4);
    tcase_add_loop_test(t, a_flush_does_not_settle_what_is_queued_in_its_upload, 0, 4);
    tcase_add_loop_test(t, a_flush_waits_for_the_directory_that_is_left_empty, 0,
                        ARRAY_SIZE(going));
    tcase_add_loop_test(t, a_flush_waits_for_the_directory_of_what_waits_for_a_rename, 0, 4);
    tcase_add_test(t, a_flush_does_not_settle_what_an_upload_did_not_have);
    tcase_add_test(t, a_flush_does_not_end_what_another_asked_for);
    tcase_add_test(t, a_flush_polls_while_many_rows_are_left);
    tcase_add_test(t, a_pause_follows_the_look);
    tcase_add_test(t, a_flush_leaves_who_waits_for_the_store);
    tcase_add_loop_test(t, a_flush_tells_of_a_delete_that_is_refused, 0, 2);
    tcase_add_test(t, a_flush_brings_the_rows_beside_one_that_is_refused);
    tcase_add_test(t, a_flush_waits_for_a_removal_that_is_tried_again);
    tcase_add_test(t, a_flush_waits_for_a_rename_above_it);
    tcase_add_loop_test(t, a_flush_waits_for_no_directory_that_waits_for_its_rename, 0, 4);
    tcase_add_loop_test(t, a_flush_waits_for_no_directory_above_what_waits, 0, 3);
    tcase_add_test(t, what_waits_for_its_rename_is_told_of_after_a_failure);
    suite_add_tcase(s, t);
    return suite_run(s);
}
