/* Names that moved or went while the store was behind: what it still shows of them, or gets
 * late from a daemon that was killed, does not come back. And flush beside somebody who writes
 * past the daemon. */
#include "cache/mirror/crash.h"
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
#include <unistd.h>

static struct {
    atomic_bool refuse_puts;
    atomic_bool refuse_removals;
    atomic_bool lose_markers; /* the store takes them, the answer does not come */
    atomic_bool lose_removals;
    atomic_bool refuse_copies, refuse_copy_of_a;
    atomic_bool hold_puts;   /* the store has taken them, the answers come later */
    atomic_uint puts, looks; /* done; how often somebody asked for "gone" */
    atomic_uint held;        /* of the puts */
    atomic_uint empty;       /* puts of nothing */
    atomic_uint lost;        /* answers to removals */
    atomic_uint copies_of_a; /* tried */
} gate;

/* The last put, so that it can arrive once more. */
static struct {
    pthread_mutex_t lock; /* uploads run side by side */
    char etag[STORE_ETAG_MAX];
    struct attrs attrs; /* without what is on the heap */
} last = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void remember(struct call *c)
{
    (void)pthread_mutex_lock(&last.lock);
    (void)snprintf(last.etag, sizeof(last.etag), "%s", c->etag ? c->etag : "");
    last.attrs = *c->attrs;
    last.attrs.has &= ~(unsigned)(ATTR_XATTRS | ATTR_TARGET);
    (void)pthread_mutex_unlock(&last.lock);
}

static int64_t refuse(struct layer *l, struct call *c)
{
    (void)l;
    bool put = c->kind == CALL_PUT || c->kind == CALL_MKDIR;
    bool look = c->kind == CALL_STAT && strcmp(c->key, "gone") == 0;
    bool removal = c->kind == CALL_REMOVE || c->kind == CALL_RMDIR || look;

    if (c->kind == CALL_PUT && c->attrs && (c->attrs->has & ATTR_ORIGIN))
        remember(c); /* not an index */
    if ((put && atomic_load(&gate.refuse_puts)) ||
        (removal && atomic_load(&gate.refuse_removals)))
        return op_fail(c->op, -EIO, "%s %s: refused", call_name(c->kind), c->key);
    bool of_a = c->kind == CALL_COPY && strcmp(c->key, "a") == 0;
    atomic_fetch_add(&gate.copies_of_a, of_a);
    if (c->kind == CALL_COPY &&
        atomic_load(of_a ? &gate.refuse_copy_of_a : &gate.refuse_copies))
        return op_fail(c->op, -EIO, "copy %s: refused", c->key);
    int64_t r = call_next(c);
    if (c->kind == CALL_MKDIR && atomic_load(&gate.lose_markers))
        return op_fail(c->op, -EIO, "mkdir %s: the answer was lost", c->key);
    if (removal && !look && atomic_load(&gate.lose_removals)) {
        atomic_fetch_add(&gate.lost, 1);
        return op_fail(c->op, -EIO, "%s %s: the answer was lost", call_name(c->kind), c->key);
    }
    if (look)
        atomic_fetch_add(&gate.looks, 1);
    if (c->kind == CALL_PUT && c->src && c->src->size == 0)
        atomic_fetch_add(&gate.empty, 1);
    atomic_fetch_add(&gate.held, c->kind == CALL_PUT && atomic_load(&gate.hold_puts));
    while (c->kind == CALL_PUT && atomic_load(&gate.hold_puts))
        (void)usleep(1000);
    if (c->kind == CALL_PUT)
        atomic_fetch_add(&gate.puts, 1);
    return r;
}

static void start(struct driven *d)
{
    memset(&gate, 0, sizeof(gate));
    driven_init_like_s3(d, refuse);
    d->config.settle_ns = 200 * NS_PER_MS;
    d->config.late_ns = 0;
}

/* A directory that was never stored itself, while a copy passed something through it: the copy
 * makes it show at the store, below a name that its parent has left since. */
static void pass_through(struct driven *d)
{
    char buf[8];

    ck_assert_int_eq(driven_mkdir(d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(d, "x"), 0);
    driven_put(d, "a/f", "f", 1);
    driven_put(d, "x/g", "g", 1);
    ck_assert_int_eq(driven_flush(d), 0);
    atomic_store(&gate.refuse_removals, true);
    ck_assert_int_eq(driven_mkdir(d, "x/b"), 0);
    ck_assert_int_eq(driven_rename(d, "a", "x/b/a"), 0);
    DRIVEN_WAIT(driven_stored(d, "x/b/a/f", buf, sizeof(buf)) == 1);
    ck_assert_int_eq(driven_rename(d, "x/b/a", "c"), 0);
    ck_assert_int_eq(driven_rename(d, "x", "y"), 0);
}

static void only_what_is_meant(struct driven *d, bool moved)
{
    atomic_store(&gate.refuse_puts, true);
    driven_unmount(d);
    driven_mount(d);
    ck_assert_int_eq(driven_list(d, "y"), 1);
    ck_assert_int_eq(driven_list(d, ""), moved ? 3 : 2);
    atomic_store(&gate.refuse_puts, false);
    atomic_store(&gate.refuse_removals, false);
    ck_assert_int_eq(driven_flush(d), 0);
    ck_assert_int_eq(driven_list(d, "y"), 1);
    driven_stores(d, "c/f", "f");
    driven_stores(d, "y/g", "g");
    driven_stores(d, "x/g", NULL);
    driven_stores(d, "x/b/a/f", NULL);
    driven_release(d);
}

START_TEST(a_moved_directory_does_not_show_where_a_copy_passed)
{
    struct driven d;

    start(&d);
    driven_mount(&d);
    pass_through(&d);
    ck_assert_int_eq(driven_rename(&d, "y/b", "z"), 0);
    only_what_is_meant(&d, true);
}
END_TEST

START_TEST(a_removed_directory_does_not_show_where_a_copy_passed)
{
    struct driven d;

    start(&d);
    driven_mount(&d);
    pass_through(&d);
    ck_assert_int_eq(driven_rmdir(&d, "y/b"), 0);
    only_what_is_meant(&d, false);
}
END_TEST

/* A directory that has no object of its own shows at the store until its content is gone. */
START_TEST(a_directory_goes_with_its_content)
{
    struct driven d;
    char buf[8];

    start(&d);
    driven_store(&d, "a/x/y/f", "f", 1);
    driven_mount(&d);
    atomic_store(&gate.refuse_removals, true);
    ck_assert_int_eq(driven_rename(&d, "a", "b"), 0);
    DRIVEN_WAIT(driven_stored(&d, "b/x/y/f", buf, sizeof(buf)) == 1);
    ck_assert_int_eq(driven_mkdir(&d, "a"), 0);
    ck_assert_int_eq(driven_list(&d, "a"), 0);
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "a"), 0);
    ck_assert_int_eq(driven_list(&d, "b/x"), 1);
    atomic_store(&gate.refuse_removals, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_list(&d, "a"), 0);
    driven_stores(&d, "a/x/y/f", NULL);
    driven_release(&d);
}
END_TEST

START_TEST(a_marker_whose_answer_was_lost_is_removed)
{
    struct cache_stats s;
    struct driven d;

    start(&d);
    driven_mount(&d);
    atomic_store(&gate.lose_markers, true);
    ck_assert_int_eq(driven_mkdir(&d, "a"), 0);
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.last_error == -EIO));
    ck_assert_int_eq(driven_rmdir(&d, "a"), 0);
    atomic_store(&gate.lose_markers, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_list(&d, ""), 0);
    driven_release(&d);
}
END_TEST

/* Closed, tried, and never stored for all that is known. */
static void put_refused(struct driven *d, const char *path)
{
    struct cache_stats s;

    atomic_store(&gate.refuse_puts, true);
    driven_put(d, path, "new", 3);
    DRIVEN_WAIT((cache_get_stats(d->cache, &s), s.failed_files == 1));
}

static void killed_and_mounted(struct driven *d)
{
    driven_unmount(d);
    atomic_store(&gate.refuse_puts, false);
    atomic_store(&gate.refuse_removals, false);
    driven_mount(d);
}

/* A put of the daemon before may still be on its way to a name that was removed since. */
static bool arrive_after_the_removal(int64_t late_ns, int i)
{
    struct driven d;

    (void)i;
    start(&d);
    d.config.late_ns = late_ns;
    driven_mount(&d);
    put_refused(&d, "gone");
    atomic_store(&gate.refuse_removals, true);
    ck_assert_int_eq(driven_unlink(&d, "gone"), 0);
    struct attrs attrs = last.attrs;
    unsigned before = atomic_load(&gate.looks);
    int64_t until_ns = clock_mono_ns() + late_ns;
    killed_and_mounted(&d);
    DRIVEN_WAIT(atomic_load(&gate.looks) > before);
    ck_assert_int_eq(driven_store_if(&d, "gone", NULL, "late", 4, &attrs), 0);
    bool in_time = clock_mono_ns() < until_ns;
    ck_assert_int_eq(driven_flush(&d), 0);
    if (in_time)
        driven_stores(&d, "gone", NULL);
    driven_release(&d);
    return in_time;
}

START_TEST(what_arrives_late_is_removed_again)
{
    driven_in_window(arrive_after_the_removal, _i);
}
END_TEST

/* The same below a directory that was renamed since: the rename waits for it. */
static bool arrive_after_the_rename(int64_t late_ns, int i)
{
    struct driven d;

    (void)i;
    start(&d);
    d.config.late_ns = late_ns;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "from"), 0);
    driven_put(&d, "from/a", "a", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    put_refused(&d, "from/late");
    struct attrs attrs = last.attrs;
    atomic_store(&gate.refuse_removals, true);
    ck_assert_int_eq(driven_rename(&d, "from", "to"), 0);
    (void)usleep(300000); /* it would be carried out at once, were it not for that put */
    int64_t until_ns = clock_mono_ns() + late_ns;
    killed_and_mounted(&d);
    (void)usleep(200000);
    ck_assert_int_eq(driven_store_if(&d, "from/late", NULL, "late", 4, &attrs), 0);
    bool in_time = clock_mono_ns() < until_ns;
    ck_assert_int_eq(driven_flush(&d), 0);
    if (in_time) {
        driven_stores(&d, "from/late", NULL);
        driven_stores(&d, "to/late", "new");
        driven_stores(&d, "to/a", "a");
    }
    driven_release(&d);
    return in_time;
}

START_TEST(what_arrives_late_moves_along)
{
    driven_in_window(arrive_after_the_rename, _i);
}
END_TEST

/* Content "a" is at the store; a put of "b" is on its way when the daemon dies, and the file
 * holds "a" again. The version of the new "a" is that of the old one, so the late put finds
 * what it expects. */
static bool arrive_beside_the_same_content(int64_t late_ns, int i)
{
    struct driven d;

    (void)i;
    start(&d);
    d.config.late_ns = late_ns;
    driven_mount(&d);
    driven_put(&d, "f", "a", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    put_refused(&d, "f");
    char etag[STORE_ETAG_MAX];
    memcpy(etag, last.etag, sizeof(etag));
    struct attrs attrs = last.attrs;
    struct handle *h = NULL;
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_TRUNC, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "a", 1, 0), 0);
    ck_assert_int_eq(driven_close(&d, h), 0); /* the refusal may pass, and is tried again */
    unsigned before = atomic_load(&gate.puts);
    int64_t until_ns = clock_mono_ns() + late_ns;
    killed_and_mounted(&d);
    DRIVEN_WAIT(atomic_load(&gate.puts) > before);
    ck_assert_int_eq(driven_store_if(&d, "f", etag, "new", 3, &attrs), 0);
    bool in_time = clock_mono_ns() < until_ns;
    ck_assert_int_eq(driven_flush(&d), 0);
    if (in_time)
        driven_stores(&d, "f", "a");
    driven_release(&d);
    return in_time;
}

START_TEST(the_same_content_twice_does_not_let_a_late_put_win)
{
    driven_in_window(arrive_beside_the_same_content, _i);
}
END_TEST

/* A file takes the name of a removed directory, whose removal is still to be repeated when the
 * directory above is renamed. */
START_TEST(a_file_in_the_place_of_a_directory_moves_along)
{
    struct driven d;

    start(&d);
    d.config.settle_ns = 0;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "from"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "from/x"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&gate.lose_removals, true);
    ck_assert_int_eq(driven_rmdir(&d, "from/x"), 0);
    DRIVEN_WAIT(atomic_load(&gate.lost) > 0);
    driven_put(&d, "from/x", "file", 4);
    DRIVEN_WAIT(driven_stored(&d, "from/x", NULL, 0) >= 0);
    ck_assert_int_eq(driven_rename(&d, "from", "to"), 0);
    (void)usleep(300000); /* it is copied meanwhile, or begins to wait */
    atomic_store(&gate.lose_removals, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "to/x", "file");
    driven_stores(&d, "from/x", NULL);
    driven_release(&d);
}
END_TEST

/* The source of a rename is gone from the store, and what was renamed has gone from its new
 * name, which is another's now. */
START_TEST(a_rename_that_comes_too_late_is_not_of_who_has_the_name)
{
    const char *key = "a";
    struct driven d;
    struct op op;

    start(&d);
    d.config.settle_ns = 0;
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 0;
    driven_mount(&d);
    driven_put(&d, "a", "a", 1);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/f", "f", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&gate.refuse_copy_of_a, true);
    atomic_store(&gate.refuse_copies, true);
    ck_assert_int_eq(driven_rename(&d, "a", "b"), 0);
    DRIVEN_WAIT(atomic_load(&gate.copies_of_a) > 0);
    ck_assert_int_eq(driven_unlink(&d, "b"), 0);
    ck_assert_int_eq(driven_rename(&d, "dir", "b"), 0);
    op_init(&op, NS_PER_SEC);
    ck_assert_int_eq(store_remove(d.store, &op, &key, NULL, 1, NULL), 0);
    unsigned before = atomic_load(&gate.copies_of_a);
    atomic_store(&gate.refuse_copy_of_a, false);
    DRIVEN_WAIT(atomic_load(&gate.copies_of_a) > before);
    for (int i = 0; i < 30; i++) {
        ck_assert_int_eq(driven_list(&d, "b"), 1);
        ck_assert_int_eq(driven_list(&d, ""), 1);
        (void)usleep(10000);
    }
    atomic_store(&gate.refuse_copies, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "b/f", "f");
    driven_stores(&d, "dir/f", NULL);
    driven_release(&d);
}
END_TEST

static struct driven *renaming;

/* The answer to the upload comes when the rename has decided what it has to do. */
static void answer_in_mid_rename(const char *point)
{
    struct cache_stats s;

    if (strcmp(point, "rename-row") != 0)
        return;
    atomic_store(&gate.hold_puts, false);
    /* A rename that it waits for is not over before: then there is nothing to be seen. */
    int64_t until = clock_mono_ns() + 300 * NS_PER_MS;
    do {
        (void)usleep(1000);
        cache_get_stats(renaming->cache, &s);
    } while (s.uploaded_files < 2 && clock_mono_ns() < until);
}

/* Of a directory that was replaced nothing is left, also where its successor has no marker. */
START_TEST(a_replaced_directory_lends_no_attributes)
{
    struct stat st;
    struct driven d;

    start(&d);
    driven_store(&d, "run/x", "x", 1);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "last"), 0);
    ck_assert_int_eq(driven_chmod(&d, "last", 0702), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&gate.lose_removals, true); /* that of its marker comes too late */
    ck_assert_int_eq(driven_rename(&d, "run", "last"), 0);
    DRIVEN_WAIT(atomic_load(&gate.lost) > 0);
    atomic_store(&gate.lose_removals, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_stat(&d, "last/x", &st), 0);
    ck_assert_int_eq(driven_stat(&d, "last", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0755);
    driven_release(&d);
}
END_TEST

/* And no marker: when it is empty it needs one of its own. */
START_TEST(a_replaced_directory_lends_no_marker)
{
    struct driven d;

    driven_init_like_s3(&d, NULL);
    d.config.settle_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "last"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_mkdir(&d, "run"), 0);
    driven_put(&d, "run/x", "x", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_rename(&d, "run", "last"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_unlink(&d, "last/x"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_list(&d, "last"), 0);
    driven_release(&d);
}
END_TEST

/* Likewise for one that is new, whose content stands for it at the store otherwise. */
START_TEST(a_new_directory_in_the_place_of_another)
{
    struct stat st;
    struct driven d;

    start(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "last"), 0);
    ck_assert_int_eq(driven_chmod(&d, "last", 0702), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_mkdir(&d, "run"), 0);
    driven_put(&d, "run/x", "x", 1);
    ck_assert_int_eq(driven_rename(&d, "run", "last"), 0);
    driven_unmount(&d); /* before any of it is stored */
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "last/x", "x");
    driven_unmount(&d);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_stat(&d, "last", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0755);
    driven_release(&d);
}
END_TEST

/* A checkpoint is written under another name and renamed while that name is uploaded. */
START_TEST(an_upload_that_ends_while_its_file_is_renamed)
{
    struct driven d;

    start(&d);
    d.config.settle_ns = 0;
    driven_mount(&d);
    driven_put(&d, "last", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&gate.hold_puts, true);
    driven_put(&d, "tmp", "new", 3);
    DRIVEN_WAIT(atomic_load(&gate.held) == 1);
    renaming = &d;
    crash_watch(answer_in_mid_rename);
    ck_assert_int_eq(driven_rename(&d, "tmp", "last"), 0);
    crash_watch(NULL);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "last", "new");
    driven_stores(&d, "tmp", NULL);
    driven_release(&d);
}
END_TEST

/* Whoever opens a file to write it anew does not have it published empty before he has it open.
 */
START_TEST(no_upload_begins_between_truncating_and_opening)
{
    struct driven d;

    start(&d);
    d.config.settle_ns = 0;
    driven_mount(&d);
    driven_put(&d, "f", "first", 5);
    for (int i = 0; i < 300; i++) {
        struct handle *h = NULL;
        ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_TRUNC, &h), 0);
        (void)usleep(200);
        ck_assert_int_eq(driven_write(&d, h, "again", 5, 0), 0);
        ck_assert_int_eq(driven_close(&d, h), 0);
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(atomic_load(&gate.empty), 0);
    driven_stores(&d, "f", "again");
    driven_release(&d);
}
END_TEST

/* As a program that has gone on writing through passthrough since a daemon before. */
START_TEST(flush_sends_what_somebody_writes_past_the_daemon)
{
    char path[128], text[32];
    struct driven d;

    start(&d);
    d.config.settle_ns = 10 * NS_PER_SEC; /* only the flush uploads */
    driven_mount(&d);
    driven_put(&d, "log", "line 0", 6);
    (void)snprintf(path, sizeof(path), "%s/mirror/log", d.dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    for (int i = 1; i < 6; i++) {
        ck_assert_int_eq(driven_flush(&d), 0);
        (void)snprintf(text, sizeof(text), "line %d", i);
        ck_assert_int_eq(pwrite(fd, text, 6, 0), 6);
        ck_assert_int_eq(driven_flush(&d), 0);
        driven_stores(&d, "log", text);
    }
    (void)close(fd);
    driven_release(&d);
}
END_TEST

/* ---- renamed and changed ---- */

static void no_intentions_left(struct driven *d)
{
    struct cache_stats s;

    DRIVEN_WAIT((cache_get_stats(d->cache, &s), s.pending_ops == 0));
}

static void one_is_stored(struct driven *d, const char *a, const char *b)
{
    char buf[8];

    ck_assert_msg(driven_stored(d, a, buf, sizeof(buf)) == 3 ||
                      driven_stored(d, b, buf, sizeof(buf)) == 3,
                  "neither %s nor %s is stored", a, b);
}

static struct handle *open_and_write(struct driven *d, const char *path)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(d, path, O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(d, h, "new", 3, 0), 0);
    return h;
}

static const struct {
    const char *from, *to;         /* what is renamed */
    const char *file, *file_later; /* what is written */
    bool before;                   /* the rename, else while it waits */
    bool closed;                   /* and not uploaded */
} changed_moves[] = {
    {"a", "b", "a", "b", .before = true},
    {"a", "b", "a", "b", .before = false},
    {"a", "b", "a", "b", .closed = true},
    {"a", "b.tmp", "a", "b.tmp", .before = true, .closed = true},
    {"run", "run-old", "run/log", "run-old/log", .before = true},
    {"run", "run-old", "run/log", "run-old/log", .before = false},
    {"run", "run-old", "run/log", "run-old/log", .closed = true},
};

/* The old name stays at the store until the new one has something: a file that is open, or was
 * closed after the rename, or waits for another name, comes there late. */
START_TEST(a_changed_file_that_is_renamed_stays_stored)
{
    const char *file = changed_moves[_i].file, *later = changed_moves[_i].file_later;
    struct driven d;

    start(&d);
    driven_mount(&d);
    if (strcmp(changed_moves[_i].from, "run") == 0)
        ck_assert_int_eq(driven_mkdir(&d, "run"), 0);
    driven_put(&d, file, "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&gate.refuse_puts, true);
    atomic_store(&gate.refuse_copies, !changed_moves[_i].before);
    atomic_store(&gate.refuse_copy_of_a, !changed_moves[_i].before);
    struct handle *h = changed_moves[_i].before ? open_and_write(&d, file) : NULL;
    if (h && changed_moves[_i].closed)
        ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_rename(&d, changed_moves[_i].from, changed_moves[_i].to), 0);
    if (!h)
        h = open_and_write(&d, later);
    if (!changed_moves[_i].before && changed_moves[_i].closed)
        ck_assert_int_eq(driven_close(&d, h), 0);
    atomic_store(&gate.refuse_copies, false);
    atomic_store(&gate.refuse_copy_of_a, false);
    no_intentions_left(&d);
    one_is_stored(&d, file, later);
    atomic_store(&gate.refuse_puts, false);
    if (!changed_moves[_i].closed)
        ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, file, NULL);
    driven_stores(&d, later, "new");
    driven_release(&d);
}
END_TEST

static uint64_t staged(struct driven *d)
{
    struct cache_stats s;

    cache_get_stats(d->cache, &s);
    return s.staged_files;
}

/* What was closed, and is open again, waits as its new name says: removals wait for it. */
START_TEST(an_open_file_is_staged_as_it_is_called)
{
    const char *const from = _i ? "dir.tmp/f" : "f.tmp", *const to = _i ? "dir/f" : "f";
    struct handle *h = NULL;
    struct driven d;

    start(&d);
    driven_mount(&d);
    if (_i)
        ck_assert_int_eq(driven_mkdir(&d, "dir.tmp"), 0);
    driven_put(&d, from, "one", 3);
    ck_assert_uint_eq(staged(&d), 1);
    ck_assert_int_eq(driven_open(&d, from, O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_rename(&d, _i ? "dir.tmp" : from, _i ? "dir" : to), 0);
    ck_assert_uint_eq(staged(&d), 0);
    ck_assert_int_eq(driven_rename(&d, _i ? "dir" : to, _i ? "dir.tmp" : from), 0);
    ck_assert_uint_eq(staged(&d), 1);
    ck_assert_int_eq(driven_rename(&d, _i ? "dir.tmp" : from, _i ? "dir" : to), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, to, "one");
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_names");
    TCase *t = tcase_create("cache_names");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_moved_directory_does_not_show_where_a_copy_passed);
    tcase_add_test(t, a_removed_directory_does_not_show_where_a_copy_passed);
    tcase_add_test(t, what_arrives_late_is_removed_again);
    tcase_add_test(t, a_directory_goes_with_its_content);
    tcase_add_test(t, a_marker_whose_answer_was_lost_is_removed);
    tcase_add_test(t, what_arrives_late_moves_along);
    tcase_add_test(t, the_same_content_twice_does_not_let_a_late_put_win);
    tcase_add_test(t, a_file_in_the_place_of_a_directory_moves_along);
    tcase_add_test(t, a_rename_that_comes_too_late_is_not_of_who_has_the_name);
    tcase_add_test(t, a_replaced_directory_lends_no_attributes);
    tcase_add_test(t, a_replaced_directory_lends_no_marker);
    tcase_add_test(t, a_new_directory_in_the_place_of_another);
    tcase_add_test(t, an_upload_that_ends_while_its_file_is_renamed);
    tcase_add_test(t, no_upload_begins_between_truncating_and_opening);
    tcase_add_loop_test(t, an_open_file_is_staged_as_it_is_called, 0, 2);
    tcase_add_test(t, flush_sends_what_somebody_writes_past_the_daemon);
    tcase_add_loop_test(t, a_changed_file_that_is_renamed_stays_stored, 0,
                        ARRAY_SIZE(changed_moves));
    suite_add_tcase(s, t);
    return suite_run(s);
}
