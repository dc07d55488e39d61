/* cache/: a disk that is full below the journal, a stamp or a session's row. Only the store's
 * own answer says that the store is full: deletes go first then, and at no other time. What
 * makes room, or brings out what is there, needs none.
 *
 * SQLite's writes go through a function of ours; so do fsync() and what moves a file in the
 * mirror. */
#include "cache/cache.h"
#include "cache/offline.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"
#include "tests/lib/temp_dir.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PART_BYTES (64 << 10)

/* ---- the disk ---- */

static struct {
    atomic_bool journal_full; /* state.db can't grow */
    atomic_bool sync_fails;   /* fsync() finds no room */
    atomic_bool fills;        /* at the next move of a file, which finds no room: all is full */
    atomic_bool stays;        /* state.db gets no more room than it has */
    atomic_bool no_notes;     /* no text of the cache directory can be written */
    atomic_uint failed;       /* how often either of the first two was asked in vain */
    atomic_uint written;      /* how often the journal was */
} disk;

static bool has_room(int fd, size_t len, off_t off)
{
    struct stat st;

    if (atomic_load(&disk.journal_full))
        return false;
    return !atomic_load(&disk.stays) ||
           (fstat(fd, &st) == 0 && off + (off_t)len <= (off_t)st.st_blocks * 512);
}

static ssize_t journal_write(int fd, const void *data, size_t len, off_t off)
{
    if (has_room(fd, len, off)) {
        atomic_fetch_add(&disk.written, 1);
        return pwrite(fd, data, len, off);
    }
    atomic_fetch_add(&disk.failed, 1);
    errno = ENOSPC;
    return -1;
}

int fsync(int fd)
{
    if (!atomic_load(&disk.sync_fails))
        return (int)syscall(SYS_fsync, fd);
    atomic_fetch_add(&disk.failed, 1);
    errno = ENOSPC;
    return -1;
}

/* A text is written beside the one that it replaces. */
static bool is_note(int fd)
{
    char link[64], path[512];

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path));
    return n > 4 && memcmp(path + n - 4, ".new", 4) == 0;
}

ssize_t write(int fd, const void *data, size_t len)
{
    if (!atomic_load(&disk.no_notes) || !is_note(fd))
        return syscall(SYS_write, fd, data, len);
    errno = ENOSPC;
    return -1;
}

static bool move_fails(void)
{
    if (!atomic_exchange(&disk.fills, false))
        return false;
    atomic_store(&disk.journal_full, true);
    errno = ENOSPC;
    return true;
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return move_fails() ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return move_fails() ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

static void disk_works(void)
{
    atomic_store(&disk.fills, false);
    atomic_store(&disk.stays, false);
    atomic_store(&disk.no_notes, false);
    atomic_store(&disk.journal_full, false);
    atomic_store(&disk.sync_fails, false);
}

static void take_the_journals_writes(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

    (void)vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)journal_write);
    (void)vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)journal_write);
}

/* ---- the store ---- */

static struct {
    atomic_bool waits;        /* what would change "new" is not sent on before this is false */
    atomic_bool then_full;    /* when the store has done it the journal's disk is full */
    atomic_bool refuses;      /* "first" and "unsent" */
    atomic_uint puts, copies; /* of "new" that the store took */
    atomic_uint removes;      /* of "old" */
    atomic_uint begun;        /* uploads in parts of "new" */
} store;

static bool changes_new(const struct call *c)
{
    bool change = c->kind == CALL_PUT || c->kind == CALL_BEGIN || c->kind == CALL_COMMIT ||
                  c->kind == CALL_COPY;
    const char *key = c->kind == CALL_COPY     ? c->to
                      : c->kind == CALL_COMMIT ? c->up->key
                                               : c->key;

    return change && strcmp(key, "new") == 0;
}

static int64_t pass_new(struct call *c)
{
    while (atomic_load(&store.waits)) {
        int waited = op_sleep(c->op, 2 * NS_PER_MS);
        if (waited < 0)
            return waited;
    }
    int64_t r = call_next(c);
    if (r == 0 && atomic_load(&store.then_full))
        atomic_store(&disk.journal_full, true);
    atomic_uint *count = c->kind == CALL_COPY    ? &store.copies
                         : c->kind == CALL_BEGIN ? &store.begun
                                                 : &store.puts;
    if (r == 0)
        atomic_fetch_add(count, 1);
    return r;
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (changes_new(c))
        return pass_new(c);
    if (c->kind == CALL_PUT && atomic_load(&store.refuses) &&
        (strcmp(c->key, "first") == 0 || strcmp(c->key, "unsent") == 0))
        return op_fail(c->op, -EIO, "put %s: refused", c->key);
    if (c->kind == CALL_REMOVE && strcmp(c->keys[0], "old") == 0)
        atomic_fetch_add(&store.removes, 1);
    int64_t r = call_next(c);
    if (c->kind == CALL_REMOVE && r == 0 && atomic_load(&store.then_full))
        atomic_store(&disk.journal_full, true);
    return r;
}

static void store_works(void)
{
    atomic_store(&store.waits, false);
    atomic_store(&store.then_full, false);
    atomic_store(&store.refuses, false);
    atomic_store(&store.puts, 0);
    atomic_store(&store.copies, 0);
    atomic_store(&store.removes, 0);
    atomic_store(&store.begun, 0);
}

/* ---- helpers ---- */

static struct driven d;

static void setup(void)
{
    disk_works();
    store_works();
}

static void mount(void)
{
    d.config.retry_ns = 100 * NS_PER_MS;
    driven_mount(&d);
}

static void teardown(void)
{
    disk_works();
    store_works();
    driven_release(&d);
}

static int find_full(void *arg, const struct cache_pending *p)
{
    bool *found = arg;
    const char *to = p->path2 ? p->path2 : p->path;

    *found |= strcmp(to, "new") == 0 && p->error && strstr(p->error, "No space left");
    return 0;
}

static int find_no_room(void *arg, const struct cache_pending *p)
{
    *(bool *)arg |= p->error && strstr(p->error, "No space left");
    return 0;
}

/* Of a file with several names the error is that of the last attempt, to any of them. */
static bool last_attempt_found_no_room(void)
{
    bool found = false;

    (void)cache_each_pending(d.cache, find_no_room, &found);
    return found;
}

/* "first" fails as well, so that the cache's last error is its, or that of "new". */
static bool new_finds_no_room(void)
{
    bool found = false;

    (void)cache_each_pending(d.cache, find_full, &found);
    return found;
}

/* The disk was asked in vain so often since the call, and the error of what makes "new" says
 * so.
 */
static void await_failures(unsigned n)
{
    unsigned before = atomic_load(&disk.failed);

    DRIVEN_WAIT(atomic_load(&disk.failed) >= before + n);
    DRIVEN_WAIT(new_finds_no_room());
}

/* A flush is also told of an attempt that met the full disk just before, and ends during it. */
static void everything_works(void)
{
    setup();
    DRIVEN_WAIT(driven_flush(&d) == 0);
}

static void put_large(const char *path)
{
    char *data = calloc(3, PART_BYTES);

    ck_assert_ptr_nonnull(data);
    driven_put(&d, path, data, (size_t)3 * PART_BYTES);
    free(data);
}

static bool is_stored(const char *key)
{
    char buf[8];

    return driven_stored(&d, key, buf, sizeof(buf)) >= 0;
}

/* ---- deletes stay behind uploads ---- */

/* The row of an upload in parts can't be written. */
START_TEST(a_session_without_a_row)
{
    driven_init_folder(&d, around, PART_BYTES);
    d.config.part_size = PART_BYTES;
    mount();
    driven_put(&d, "old", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&store.waits, true);
    atomic_store(&store.then_full, true);
    put_large("new");
    ck_assert_int_eq(driven_unlink(&d, "old"), 0);
    atomic_store(&store.waits, false);
    await_failures(1);
    ck_assert(is_stored("old") || is_stored("new"));
    everything_works();
    ck_assert(is_stored("new"));
    ck_assert(!is_stored("old"));
}
END_TEST

/* The store has the file, and the row of an older removal of its name can't go. It is noted
 * when there is room; nothing is sent again. */
START_TEST(a_row_that_can_not_go)
{
    driven_init(&d, around);
    mount();
    driven_put(&d, "old", "old", 3);
    driven_put(&d, "new", "one", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&store.refuses, true);
    driven_put(&d, "first", "first", 5); /* removals wait for it */
    ck_assert_int_eq(driven_unlink(&d, "new"), 0);
    atomic_store(&store.waits, true);
    driven_put(&d, "new", "two", 3);
    ck_assert_int_eq(driven_unlink(&d, "old"), 0);
    atomic_store(&store.then_full, true);
    atomic_store(&store.puts, 0);
    atomic_store(&store.waits, false);
    await_failures(3);
    ck_assert(is_stored("old"));
    ck_assert_uint_eq(atomic_load(&store.puts), 1);
    DRIVEN_WAIT(strcmp(driven_state(&d, "new"), "failed") == 0);
    disk_works();
    atomic_store(&store.then_full, false);
    DRIVEN_WAIT(strcmp(driven_state(&d, "new"), "clean") == 0);
    atomic_store(&store.refuses, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(atomic_load(&store.puts), 1);
    driven_stores(&d, "new", "two");
    ck_assert(!is_stored("old"));
    driven_unmount(&d);
    driven_mount(&d);
    driven_shows(&d, "new", "two");
}
END_TEST

/* The store took "new", whose row of an older removal could not go; only a flush sends
 * anything, and removals wait for "first". */
static void new_is_sent_and_not_noted(const char *other_name)
{
    struct op op;

    driven_init(&d, around);
    d.config.retry_ns = 500 * NS_PER_MS; /* the name has left by then */
    d.config.settle_ns = 60 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, "new", "one", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&store.refuses, true);
    driven_put(&d, "first", "first", 5);
    ck_assert_int_eq(driven_unlink(&d, "new"), 0);
    atomic_store(&store.then_full, true);
    driven_put(&d, "new", "two", 3);
    if (other_name)
        ck_assert_int_eq(driven_link(&d, "new", other_name), 0);
    op_init(&op, 1 * NS_PER_SEC);
    ck_assert_int_lt(cache_flush_path(d.cache, "", 0, &op, NULL, NULL), 0);
    DRIVEN_WAIT(last_attempt_found_no_room());
    driven_stores(&d, "new", "two");
    disk_works();
    atomic_store(&store.then_full, false);
}

/* The name leaves its path and has it again. In between the store loses what it was sent, as
 * the removal that waited means that, too. The second time another name of the file comes. */
START_TEST(what_was_not_noted_is_sent_again_to_a_name_that_came_back)
{
    new_is_sent_and_not_noted(_i ? "unsent" : NULL);
    if (_i)
        ck_assert_int_eq(driven_unlink(&d, "new"), 0);
    else
        ck_assert_int_eq(driven_rename(&d, "new", "unsent"), 0);
    atomic_store(&store.refuses, false);
    DRIVEN_WAIT(!is_stored("new"));
    ck_assert_int_eq(driven_rename(&d, "unsent", "new"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "new", "two");
    driven_mount_afresh(&d);
    driven_shows(&d, "new", "two");
}
END_TEST

/* What was written in the meantime is sent. */
START_TEST(what_changed_since_is_sent)
{
    driven_init(&d, around);
    mount();
    driven_put(&d, "new", "one", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&store.refuses, true);
    driven_put(&d, "first", "first", 5);
    ck_assert_int_eq(driven_unlink(&d, "new"), 0);
    atomic_store(&store.then_full, true);
    driven_put(&d, "new", "two", 3);
    await_failures(2);
    struct handle *h = NULL;
    ck_assert_int_eq(driven_open(&d, "new", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "three", 5, 0), 0);
    ck_assert_int_eq(driven_close(&d, h), -ENOSPC); /* why it is not noted, once */
    everything_works();
    driven_stores(&d, "new", "three");
}
END_TEST

/* The disk has no room for what somebody writes through an open file that is flushed. */
START_TEST(an_open_file_that_can_not_be_synced)
{
    struct handle *h = NULL;

    driven_init(&d, around);
    mount();
    driven_put(&d, "old", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&store.refuses, true);
    driven_put(&d, "first", "first", 5);
    ck_assert_int_eq(driven_unlink(&d, "old"), 0);
    ck_assert_int_eq(driven_open(&d, "new", O_WRONLY | O_CREAT | O_APPEND, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "new", 3, 0), 0);
    atomic_store(&disk.sync_fails, true);
    ck_assert_int_lt(driven_flush(&d), 0);
    ck_assert(is_stored("old"));
    ck_assert(!is_stored("new"));
    disk_works();
    ck_assert_int_eq(driven_truncate(&d, "new", 0), 0);
    (void)driven_close(&d, h);
    everything_works();
    ck_assert(!is_stored("old"));
}
END_TEST

/* ---- what the store has done is not asked for again ---- */

START_TEST(a_delete_that_can_not_be_noted)
{
    driven_init(&d, around);
    mount();
    driven_put(&d, "old", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&store.then_full, true);
    ck_assert_int_eq(driven_unlink(&d, "old"), 0);
    unsigned before = atomic_load(&disk.failed);
    DRIVEN_WAIT(atomic_load(&disk.failed) >= before + 3);
    ck_assert_uint_eq(atomic_load(&store.removes), 1);
    everything_works();
    ck_assert_uint_eq(atomic_load(&store.removes), 0);
}
END_TEST

START_TEST(a_copy_that_can_not_be_noted_says_so)
{
    driven_init_like_s3(&d, around);
    mount();
    driven_put(&d, "old", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&store.then_full, true);
    ck_assert_int_eq(driven_rename(&d, "old", "new"), 0);
    await_failures(1);
    ck_assert(is_stored("old"));
    everything_works();
    ck_assert(is_stored("new"));
    ck_assert(!is_stored("old"));
}
END_TEST

/* ---- what failed is not done later ---- */

static int rename_old(void)
{
    return driven_rename(&d, "old", "new");
}

static int remove_old(void)
{
    return driven_unlink(&d, "old");
}

static int (*const changes[])(void) = {rename_old, remove_old};

#define CHANGES ((int)ARRAY_SIZE(changes))

/* With the next row, on its own after a while, or at the end of the mount. */
static void let_the_row_go(int how)
{
    unsigned before = atomic_load(&disk.written);

    disk_works();
    if (how == 0)
        ck_assert_int_eq(driven_rename(&d, "other", "another"), 0);
    else if (how == 1)
        DRIVEN_WAIT(atomic_load(&disk.written) > before);
    if (how == 2)
        driven_end(&d);
    else
        driven_unmount(&d);
}

/* The mirror's step finds no room, and then the row can't be taken back either. */
START_TEST(a_row_that_can_not_be_taken_back)
{
    driven_init_like_s3(&d, around);
    d.config.settle_ns = 30 * NS_PER_SEC; /* only a flush uploads */
    mount();
    driven_put(&d, "old", "old", 3);
    driven_put(&d, "new", "new", 3);
    driven_put(&d, "other", "other", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&disk.fills, true);
    ck_assert_int_eq(changes[_i % CHANGES](), -ENOSPC);
    driven_shows(&d, "old", "old");
    let_the_row_go(_i / CHANGES);
    mount();
    driven_shows(&d, "old", "old");
    driven_shows(&d, "new", "new");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "old", "old");
    driven_stores(&d, "new", "new");
}
END_TEST

/* ---- what needs no room ---- */

#define FILES   64
#define RENAMES 400

static void name_of(int i, char name[16])
{
    (void)snprintf(name, 16, "f%d", i);
}

static void put_files(int n)
{
    char name[16];

    for (int i = 0; i < n; i++) {
        name_of(i, name);
        driven_put(&d, name, "text", 4);
    }
    ck_assert_int_eq(driven_flush(&d), 0);
}

/* Others have filled the disk: what makes room on it must not fail for that. */
START_TEST(files_are_removed_on_a_full_disk)
{
    char name[16];

    driven_init_like_s3(&d, around);
    mount();
    put_files(FILES);
    if (_i) { /* in a cache that was there */
        driven_unmount(&d);
        mount();
    }
    driven_put(&d, "first", "first", 5);
    atomic_store(&store.refuses, true);
    atomic_store(&disk.stays, true);
    for (int i = 0; i < FILES; i++) {
        name_of(i, name);
        ck_assert_int_eq(driven_unlink(&d, name), 0);
    }
    atomic_store(&store.refuses, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    for (int i = 0; i < FILES; i++) {
        name_of(i, name);
        ck_assert(!is_stored(name));
    }
}
END_TEST

/* However many rows come and go, the journal begins anew in the room that it has. */
START_TEST(the_journal_gets_by_with_its_room)
{
    driven_init_folder(&d, around, PART_BYTES);
    mount();
    put_files(1);
    atomic_store(&disk.stays, true);
    for (int i = 0; i < RENAMES; i++)
        ck_assert_int_eq(driven_rename(&d, i % 2 ? "g" : "f0", i % 2 ? "f0" : "g"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f0", "text");
}
END_TEST

static int count(void *arg, const struct cache_pending *p)
{
    (void)p;
    ++*(int *)arg;
    return 0;
}

/* After a kill, on a full disk: what the cache has is seen, brought out and published. */
START_TEST(a_full_cache_is_mounted_again)
{
    char out[64], path[80];
    int n = 0;
    struct op op;

    driven_init_folder(&d, around, PART_BYTES);
    d.config.settle_ns = 30 * NS_PER_SEC;
    mount();
    driven_put(&d, "new", "new", 3);
    driven_unmount(&d);
    atomic_store(&disk.no_notes, true);
    atomic_store(&disk.stays, true);
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_msg(recover_list(d.dir, &op, count, &n) == 0, "%s", op.why);
    ck_assert_int_eq(n, 1);
    temp_dir_make(out, sizeof(out));
    ck_assert_msg(recover_export(d.dir, out, &op, count, &n) == 0, "%s", op.why);
    (void)snprintf(path, sizeof(path), "%s/new", out);
    ck_assert_int_eq(access(path, F_OK), 0);
    temp_dir_remove(out);
    mount();
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "new", "new");
}
END_TEST

/* Elsewhere than it was, it has to note that. */
START_TEST(a_full_cache_that_moved_says_what_to_do)
{
    char path[80];
    struct op op;
    int n = 0;

    driven_init(&d, around);
    mount();
    driven_unmount(&d);
    (void)snprintf(path, sizeof(path), "%s/place", d.dir);
    ck_assert_int_eq(unlink(path), 0);
    atomic_store(&disk.no_notes, true);
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(recover_list(d.dir, &op, count, &n), -ENOSPC);
    ck_assert_msg(strstr(op.why, "make a little room") != NULL, "%s", op.why);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_full_disk");
    TCase *t = tcase_create("cache_full_disk");

    take_the_journals_writes();
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_session_without_a_row);
    tcase_add_test(t, a_row_that_can_not_go);
    tcase_add_loop_test(t, what_was_not_noted_is_sent_again_to_a_name_that_came_back, 0, 2);
    tcase_add_test(t, what_changed_since_is_sent);
    tcase_add_test(t, an_open_file_that_can_not_be_synced);
    tcase_add_test(t, a_delete_that_can_not_be_noted);
    tcase_add_test(t, a_copy_that_can_not_be_noted_says_so);
    tcase_add_loop_test(t, a_row_that_can_not_be_taken_back, 0, 3 * CHANGES);
    tcase_add_loop_test(t, files_are_removed_on_a_full_disk, 0, 2);
    tcase_add_test(t, the_journal_gets_by_with_its_room);
    tcase_add_test(t, a_full_cache_is_mounted_again);
    tcase_add_test(t, a_full_cache_that_moved_says_what_to_do);
    suite_add_tcase(s, t);
    return suite_run(s);
}
