/* cache/content/: what the rows of docs/format.md, section 3, write, and what the disk has at
 * each point where a test may kill them. */
#include "cache/content/content_impl.h"
#include "cache/mirror/crash.h"
#include "cache/mirror/mirror.h"
#include "common/mem.h"
#include "tests/lib/room.h"
#include "tests/unit/content/suites.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define T (1700000000 * NS_PER_SEC)

static struct cache *c;
static char trace[512]; /* "point: what `f` is then; " for each point that was passed */

/* ---- what the disk has ---- */

static bool record_has_sum(int fd)
{
    struct stamp_keys keys = {0};
    const struct stamp_key *k =
        stamp_read_keys(fd, &keys) == 0 ? stamp_keys_find(&keys, "f") : NULL;
    bool has = k && k->sum.kind != CHECKSUM_NONE;

    stamp_keys_release(&keys);
    return has;
}

/* What the mirror has at "f": "-" nothing, else its size; "?" without a stamp, else the mode
 * (unless 644), W, A, and its number in the order; r of a partial file; x with xattrs; s with a
 * checksum in its record. */
static const char *on_disk(void)
{
    static char text[64];
    auto_close int fd = mirror_open_path(&c->mirror, "f", O_RDONLY);
    auto_free char *xattrs = NULL;
    struct ranges present = {0};
    char mode[16] = "", seq[32] = "";
    struct stamp_attrs a = {0};
    struct stat st;

    if (fd == -ENOENT)
        return "-";
    ck_assert_int_eq(fstat(fd, &st), 0);
    bool stamped = stamp_read_attrs(fd, &a) == 0;
    if (stamped && (a.mode & 0777) != 0644)
        (void)snprintf(mode, sizeof(mode), " %o", a.mode & 0777);
    if (a.seq)
        (void)snprintf(seq, sizeof(seq), " #%u", (unsigned)a.seq);
    bool partial = stamp_read_ranges(fd, &present) == 0;
    ranges_clear(&present);
    (void)snprintf(text, sizeof(text), "%u%s%s%s%s%s%s%s%s", (unsigned)st.st_size,
                   stamped ? "" : " ?", mode, a.flags & STAMP_WRITING ? " W" : "",
                   a.flags & STAMP_ATTR_DIRTY ? " A" : "", seq, partial ? " r" : "",
                   stamp_read_xattrs(fd, &xattrs) == 0 && xattrs ? " x" : "",
                   record_has_sum(fd) ? " s" : "");
    return text;
}

static void note(const char *point)
{
    size_t len = strlen(trace);

    (void)snprintf(trace + len, sizeof(trace) - len, "%s: %s; ", point, on_disk());
}

/* The points that were passed since the last call. A release build has none. */
static void passed(const char *points)
{
#ifndef NDEBUG
    ck_assert_str_eq(trace, points);
#endif
    (void)points;
    trace[0] = '\0';
}

static void setup(void)
{
    c = room_core();
    room_disk(c);
    room_tree(c);
    room_content(c, 4);
    trace[0] = '\0';
    crash_watch(note);
}

static void teardown(void)
{
    crash_watch(NULL);
    room_free(c);
}

/* ---- files ---- */

static struct node *listed(uint64_t size)
{
    ns_write(c);
    cache_lock(c);
    struct node *n = room_file_locked(c, "f");
    n->size = size;
    n->mtime_ns = n->ctime_ns = T;
    cache_unlock(c);
    ns_done(c);
    return n;
}

/* With its mirror file; all of it is here when it is empty. Its descriptor is in use. */
static struct node *held(uint64_t size, int *ret_fd)
{
    struct node *n = listed(size);

    *ret_fd = file_need_fd(c, n, FD_WRITE);
    ck_assert_int_ge(*ret_fd, 0);
    passed(size ? "materialise-incoming: -; materialise-linked: 5 r; "
                : "materialise-incoming: -; materialise-linked: 0; ");
    return n;
}

static void put(struct node *n)
{
    cache_lock(c);
    file_put_fd_locked(c, n->file, FD_WRITE);
    cache_unlock(c);
}

/* One that a program makes: its mirror file comes next. */
static struct node *made(void)
{
    struct node *n = listed(0);

    cache_lock(c);
    struct file *f = file_new(n, FILE_DIRTY);
    ck_assert_ptr_nonnull(f);
    file_count_locked(c);
    file_is_made_locked(f);
    cache_unlock(c);
    return n;
}

/* ---- births ---- */

START_TEST(a_created_file_has_its_stamp_before_the_answer)
{
    struct node *n = made();

    ns_write(c);
    ck_assert_int_eq(file_create(c, n, "f", false), 0);
    ns_done(c);
    passed("create-made: 0 ?; create-stamped: 0 W; ");
    ck_assert_int_ne(n->mtime_ns, T); /* the file's own, by the disk's clock */
    n->file->seq = 7;
    file_note_made(c, n, false);
    passed("create-placed: 0 W; ");
    file_note_made(c, n, true);
    passed("create-placed: 0 W #7; ");
    ck_assert_str_eq(on_disk(), "0 W #7");
}
END_TEST

START_TEST(a_file_that_is_there_is_not_created)
{
    struct node *n = made();
    auto_close int other = mirror_create(&c->mirror, "f");

    ck_assert_int_ge(other, 0);
    ns_write(c);
    ck_assert_int_eq(file_create(c, n, "f", false), -EEXIST);
    ns_done(c);
    passed("");
    ck_assert_str_eq(on_disk(), "0 ?");
}
END_TEST

START_TEST(a_symlink_comes_with_target_and_stamp)
{
    struct node *n = made();

    ns_write(c);
    ck_assert_int_eq(file_create_symlink(c, n, "f", "target"), 0);
    ns_done(c);
    passed("create-stamped: -; ");
    ck_assert_str_eq(on_disk(), "6 W");
}
END_TEST

static struct node *born;
static struct waiter visitor;
static bool was_busy;

/* Somebody sees the file before it is in the mirror, and wants its bytes. */
static void visit(const char *name)
{
    if (strcmp(name, "materialise-incoming") != 0)
        return;
    cache_lock(c);
    was_busy = born->file->busy;
    ck_assert_int_eq(waitq_park_locked(c, &born->file->range_waiters, &visitor), CACHE_PARKED);
    cache_unlock(c);
}

/* It is claimed until it is in the mirror, or can't get there. */
START_TEST(a_file_is_claimed_while_it_is_born)
{
    auto_close int other = _i ? mirror_create(&c->mirror, "f") : -1;

    (void)other;
    born = listed(5);
    crash_watch(visit);
    ck_assert_int_eq(file_need(c, born), _i ? -EEXIST : 0);
#ifndef NDEBUG
    ck_assert(was_busy);
    ck_assert_ptr_eq(c->wake_list, &visitor);
    c->wake_list = NULL; /* nobody wakes here */
#endif
    ck_assert(_i ? !born->file : !born->file->busy);
}
END_TEST

/* ---- bytes from the store ---- */

START_TEST(the_record_of_a_range_comes_last)
{
    const struct checksum sum = {.kind = CHECKSUM_NONE};
    const struct range all = {0, 5};
    struct ranges present = {0};
    int fd;
    struct node *n = held(5, &fd);

    file_take_room(fd, 0, UINT64_C(1) << 20);
    ck_assert_str_eq(on_disk(), "5 r");
    ck_assert_int_eq(file_write_arrived(fd, "bytes", 5, 0), 0);
    ck_assert_int_eq(stamp_read_ranges(fd, &present), 0);
    ck_assert_uint_eq(present.n, 0);
    cache_lock(c);
    ck_assert_int_eq(file_arrived_locked(n->file, 0, 5), 0);
    cache_unlock(c);
    file_note_arrived(c, n, fd, &all, &sum);
    ck_assert_int_eq(stamp_read_ranges(fd, &present), 0);
    ck_assert(ranges_has(&present, 0, 5));
    ranges_clear(&present);
    file_note_damaged(fd);
    ck_assert_int_eq(stamp_read_ranges(fd, &present), 0);
    ck_assert_uint_eq(present.n, 0);
    put(n);
}
END_TEST

START_TEST(a_complete_file_has_its_checksum_before_it_counts)
{
    const struct checksum sum = {.kind = CHECKSUM_CRC32C, .value = 7};
    struct stat st;
    int fd;
    struct node *n = held(5, &fd);

    ck_assert_int_eq(file_write_arrived(fd, "bytes", 5, 0), 0);
    cache_lock(c);
    ck_assert(file_claim_locked(n->file));
    cache_unlock(c);
    ck_assert_int_eq(file_complete(c, n, fd, &sum), 0);
    passed("complete-data: 5 r; complete-mtime: 5 r s; ");
    ck_assert_str_eq(on_disk(), "5 s");
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(stat_mtime_ns(&st), T);
    cache_lock(c);
    file_completed_locked(n->file);
    cache_unlock(c);
    put(n);
}
END_TEST

/* ---- changes ---- */

START_TEST(a_partial_file_is_emptied)
{
    int fd;
    struct node *n = held(5, &fd);

    cache_lock(c);
    ck_assert(file_claim_locked(n->file));
    cache_unlock(c);
    n->file->truncates = 1;
    ck_assert_int_eq(file_empty_partial(c, n, fd), 0);
    passed("truncate-emptied: 0 r; truncate-stamped: 0 W r; truncate-complete: 0 W; ");
    ck_assert(n->file->state == FILE_DIRTY && !n->file->busy && n->size == 0);
    n->file->truncates = 0;
    put(n);
}
END_TEST

START_TEST(a_complete_file_is_truncated)
{
    int fd;
    struct node *n = held(0, &fd);

    n->file->truncates = 1;
    ck_assert_int_eq(file_truncate_complete(c, n, fd, 3), 0);
    passed("open-stamped: 0 W; ");
    ck_assert(n->file->state == FILE_DIRTY && n->size == 3);
    n->file->truncates = 0;
    n->file->seq = 7;
    put(n);
    ck_assert_int_eq(file_note_truncated(c, n, false), 0);
    passed("truncate-placed: 3 W; ");
    ck_assert_int_eq(file_note_truncated(c, n, true), 0);
    passed("truncate-placed: 3 W #7; ");
}
END_TEST

/* A mapping may have outlived the last close, or none has. */
START_TEST(a_refused_writer_takes_no_mark_of_another)
{
    int fd;
    struct node *n = held(0, &fd);

    n->file->write_handles = 1;
    n->file->writing_stamp = _i;
    ck_assert_int_eq(file_stamp_writing(c, n, -1), -EBADF);
    passed("open-stamped: 0; ");
    ck_assert_int_eq(n->file->writing_stamp, _i);
    n->file->write_handles = 0;
    put(n);
}
END_TEST

START_TEST(a_close_has_its_number_before_the_answer)
{
    int fd;
    struct node *n = held(0, &fd);

    n->file->seq = 7;
    ck_assert_int_eq(file_note_closed(c, n, fd, false), 0);
    passed("close-stamped: 0; ");
    ck_assert_int_eq(file_note_closed(c, n, fd, true), 0);
    passed("close-stamped: 0 #7; ");
    put(n);
}
END_TEST

/* ---- attributes ---- */

START_TEST(a_new_time_is_recorded_behind_the_stamp)
{
    struct stamp_keys keys = {0};
    int fd;
    struct node *n = held(0, &fd);

    ck_assert_int_eq(file_note_attrs(c, n, fd, 0), 0);
    passed("utimens-moved: 0; setattr-stamped: 0; ");
    cache_lock(c);
    n->flags |= NODE_ATTR_DIRTY;
    n->mtime_ns = T + NS_PER_SEC;
    file_mtime_moved_locked(c, n);
    cache_unlock(c);
    ck_assert_int_eq(file_note_attrs(c, n, fd, CACHE_SET_MTIME), 0);
    passed("utimens-moved: 0; setattr-stamped: 0 A; ");
    ck_assert_int_eq(stamp_read_keys(fd, &keys), 0);
    ck_assert_int_eq(stamp_keys_find(&keys, "f")->mtime_ns, T + NS_PER_SEC);
    stamp_keys_release(&keys);
    put(n);
}
END_TEST

START_TEST(an_acl_narrows_the_mode_first)
{
    struct narrowed narrowed;
    int fd;
    struct node *n = held(0, &fd);

    ns_write(c);
    ck_assert_int_eq(node_write_access_acl(c, n, fd, "{}", S_IFREG | 0660, &narrowed), 0);
    ns_done(c);
    passed("acl-narrowed: 0 640 A; xattrs-written: 0 640 A x; ");
    ck_assert(narrowed.before == (S_IFREG | 0644) && narrowed.mode == (S_IFREG | 0640));
    ck_assert(!narrowed.was_dirty);
    put(n);
}
END_TEST

/* ---- uploads ---- */

/* Of attributes alone, or of content; the records can't be written at first. */
START_TEST(what_no_record_tells_stays_owed)
{
    const char *marks = _i ? "W" : "A";
    char points[96];
    int fd;
    struct node *n = held(0, &fd);

    cache_lock(c);
    file_keys_are_behind_locked(n->file, _i ? STAMP_WRITING : STAMP_ATTR_DIRTY);
    cache_unlock(c);
    ck_assert_int_eq(node_write_stamp(c, n, fd), 0);
    ck_assert_int_eq(file_note_stored(c, n, -1), -EBADF);
    trace[0] = '\0';
    ck_assert_int_eq(node_write_stamp(c, n, fd), 0);
    ck_assert_int_eq(file_note_stored(c, n, fd), 0);
    (void)snprintf(points, sizeof(points),
                   "upload-committed: 0 %s; upload-keys: 0 %s; upload-stamped: 0; ", marks,
                   marks);
    passed(points);
    put(n);
}
END_TEST

/* ---- evictions ---- */

/* Its number can be derived from its place, or it can't. */
START_TEST(an_evicted_file_keeps_its_number)
{
    int fd;
    struct node *n = held(5, &fd);

    put(n);
    ns_write(c);
    cache_lock(c);
    n->flags = _i ? n->flags | NODE_DEFAULT_INO : n->flags & ~(unsigned)NODE_DEFAULT_INO;
    cache_unlock(c);
    ck_assert_int_eq(file_evict(c, n), 0);
    ns_done(c);
    passed(_i ? "discard-orphaned: -; evict-discarded: -; "
              : "discard-orphaned: -; evict-discarded: -; "
                "materialise-incoming: -; materialise-linked: 5 r; ");
    ck_assert_str_eq(on_disk(), _i ? "-" : "5 r");
    ck_assert((n->file == NULL) == (_i != 0));
}
END_TEST

START_TEST(a_file_in_use_is_not_evicted)
{
    int fd;
    struct node *n = held(5, &fd);

    ns_write(c);
    ck_assert_int_eq(file_evict(c, n), -EBUSY);
    ns_done(c);
    passed("evict-discarded: 5 r; ");
    put(n);
}
END_TEST

/* What a chmod owes since the file was chosen. */
static void owe_locked(struct node *n, int what, struct debts *queue) REQUIRES(cache_mutex)
{
    if (what == 0)
        n->flags |= NODE_ATTR_DIRTY;
    else if (what == 1)
        debts_add(queue, &n->file->debt);
    else
        n->file->truncates = 1;
}

static void pay_locked(struct node *n) REQUIRES(cache_mutex)
{
    n->flags &= ~(unsigned)NODE_ATTR_DIRTY;
    debt_leave(&n->file->debt);
    n->file->truncates = 0;
}

START_TEST(a_file_that_owes_something_by_now_is_not_evicted)
{
    const struct object theirs = {.size = 9, .mtime_ns = T + NS_PER_SEC, .etag = "w"};
    struct debts queue = {0};
    int fd;
    struct node *n = held(5, &fd);

    put(n);
    ns_write(c);
    cache_lock(c);
    owe_locked(n, _i, &queue);
    cache_unlock(c);
    ck_assert_int_eq(file_evict(c, n), -EBUSY);
    passed("evict-discarded: 5 r; ");
    /* Nor does it go for another version: its upload tells of that one. */
    ck_assert_int_eq(node_replaced(c, n->links, &theirs), -EBUSY);
    passed("");
    ck_assert(n->file && n->links && n->size == 5);
    cache_lock(c);
    pay_locked(n);
    cache_unlock(c);
    ns_done(c);
}
END_TEST

Suite *rows_suite(void)
{
    Suite *s = suite_create("rows");
    TCase *t = tcase_create("rows");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_created_file_has_its_stamp_before_the_answer);
    tcase_add_test(t, a_file_that_is_there_is_not_created);
    tcase_add_test(t, a_symlink_comes_with_target_and_stamp);
    tcase_add_loop_test(t, a_file_is_claimed_while_it_is_born, 0, 2);
    tcase_add_test(t, the_record_of_a_range_comes_last);
    tcase_add_test(t, a_complete_file_has_its_checksum_before_it_counts);
    tcase_add_test(t, a_partial_file_is_emptied);
    tcase_add_test(t, a_complete_file_is_truncated);
    tcase_add_loop_test(t, a_refused_writer_takes_no_mark_of_another, 0, 2);
    tcase_add_test(t, a_close_has_its_number_before_the_answer);
    tcase_add_test(t, a_new_time_is_recorded_behind_the_stamp);
    tcase_add_test(t, an_acl_narrows_the_mode_first);
    tcase_add_loop_test(t, what_no_record_tells_stays_owed, 0, 2);
    tcase_add_loop_test(t, an_evicted_file_keeps_its_number, 0, 2);
    tcase_add_test(t, a_file_in_use_is_not_evicted);
    tcase_add_loop_test(t, a_file_that_owes_something_by_now_is_not_evicted, 0, 3);
    suite_add_tcase(s, t);
    return s;
}
