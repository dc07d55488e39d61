/* cache/: what reaches the disk in which order, and uploads beside those who change the file.
 * ftruncate(), fsync(), syncfs(), fdatasync() and pthread_rwlock_rdlock() are ours, so that a
 * test can stop in one and see what was there when it was called. */
#include "cache/cache.h"
#include "cache/mirror/stamp.h"
#include "common/lock.h"
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIZE 65536

/* ---- the system calls ---- */

static struct {
    atomic_bool hold_truncate; /* ftruncate() returns once this is false */
    atomic_uint truncated;     /* ftruncate() calls that were carried out */
    /* Of the file whose syncs are watched: */
    ino_t ino;
    struct stamp_attrs first, last; /* its stamp as the first and the last sync found it */
    unsigned syncs;
    atomic_uint journal_syncs; /* of the journal's log */
} calls;

static void note_sync(int fd)
{
    char link[64], path[256];

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    path[n < 0 ? 0 : n] = '\0';
    if (strstr(path, "/state.db-wal"))
        atomic_fetch_add(&calls.journal_syncs, 1);
}

int fdatasync(int fd)
{
    note_sync(fd);
    return (int)syscall(SYS_fdatasync, fd);
}

int ftruncate(int fd, off_t size)
{
    long r = syscall(SYS_ftruncate, fd, size);

    atomic_fetch_add(&calls.truncated, 1);
    while (atomic_load(&calls.hold_truncate))
        (void)usleep(1000);
    return (int)r;
}

static void look_at_stamp(int fd)
{
    struct stamp_attrs a = {0};
    struct stat st;

    if (calls.ino && fstat(fd, &st) == 0 && st.st_ino == calls.ino) {
        (void)stamp_read_attrs(fd, &a);
        if (calls.syncs++ == 0)
            calls.first = a;
        calls.last = a;
    }
}

/* For others on this machine it would take a while. */
int syncfs(int fd)
{
    look_at_stamp(fd);
    return 0;
}

int fsync(int fd)
{
    look_at_stamp(fd);
    note_sync(fd);
    return (int)syscall(SYS_fsync, fd);
}

/* ---- truncating under an upload ---- */

/* Lets the upload read the first half of what it sends, then waits. */
static struct {
    atomic_bool armed, half, go;
} gate;

struct gated {
    struct source base;
    struct source *real;
};

static ssize_t gated_pread(struct source *src, void *buf, size_t len, uint64_t off)
{
    struct gated *g = container_of(src, struct gated, base);
    size_t first = len / 2;
    ssize_t n = g->real->pread(g->real, buf, first, off);

    if (n != (ssize_t)first)
        return n;
    if (atomic_load(&gate.armed)) {
        atomic_store(&gate.half, true);
        while (!atomic_load(&gate.go))
            (void)usleep(1000);
        atomic_store(&gate.armed, false);
    }
    n = g->real->pread(g->real, (char *)buf + first, len - first, off + first);
    return n < 0 ? n : n + (ssize_t)first;
}

static int64_t gated_put(struct layer *l, struct call *c)
{
    struct gated g = {.base.pread = gated_pread};

    (void)l;
    if (c->kind != CALL_PUT || !c->src->size)
        return call_next(c);
    g.base.size = c->src->size;
    g.real = c->src;
    c->src = &g.base;
    int64_t r = call_next(c);
    c->src = g.real;
    return r;
}

struct truncater {
    pthread_t thread;
    struct driven *d;
    uint64_t size;
    int result;
};

static void *truncater_main(void *arg)
{
    struct truncater *t = arg;

    t->result = driven_truncate(t->d, "f", t->size);
    return NULL;
}

static void start_truncater(struct truncater *t, struct driven *d, uint64_t size)
{
    unsigned before = atomic_load(&calls.truncated);

    *t = (struct truncater){.d = d, .size = size};
    ck_assert_int_eq(pthread_create(&t->thread, NULL, truncater_main, t), 0);
    DRIVEN_WAIT(atomic_load(&calls.truncated) > before);
}

/* An upload has read half of a file; the file becomes empty and long again. The store may get
 * the old content or the new, never half of each. */
START_TEST(truncate_stops_an_upload_that_reads)
{
    static char data[SIZE], stored[SIZE];
    struct truncater cut, grow;
    struct driven d;

    memset(data, 'x', sizeof(data));
    driven_init(&d, gated_put);
    driven_mount(&d);
    atomic_store(&gate.armed, true);
    driven_put(&d, "f", data, sizeof(data));
    DRIVEN_WAIT(atomic_load(&gate.half));
    atomic_store(&calls.hold_truncate, true);
    start_truncater(&cut, &d, 0);
    start_truncater(&grow, &d, SIZE);
    atomic_store(&gate.go, true);
    /* Long enough for the upload to end, well or badly. */
    DRIVEN_WAIT(!atomic_load(&gate.armed));
    (void)usleep(200000);
    ssize_t n = driven_stored(&d, "f", stored, sizeof(stored));
    bool torn = n > 0 && memchr(stored, 'x', SIZE) && memchr(stored, '\0', SIZE);
    atomic_store(&calls.hold_truncate, false);
    (void)pthread_join(cut.thread, NULL);
    (void)pthread_join(grow.thread, NULL);
    ck_assert_msg(!torn, "the store holds half of the old content and half of the new");
    ck_assert_int_eq(cut.result, 0);
    ck_assert_int_eq(grow.result, 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_stored(&d, "f", stored, sizeof(stored)), SIZE);
    ck_assert_ptr_null(memchr(stored, 'x', SIZE));
    driven_release(&d);
}
END_TEST

/* While a file is truncated by its path a listing tells of another version: the change that is
 * about to be answered is not lost with the old one. */
START_TEST(a_listing_does_not_take_away_what_is_truncated)
{
    struct truncater cut;
    struct cache_stats s;
    struct driven d;
    struct stat st;
    char back[8];

    driven_init(&d, NULL);
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 0;
    d.config.settle_ns = 10 * NS_PER_SEC; /* only the flush uploads */
    driven_mount(&d);
    driven_put(&d, "f", "mine", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&calls.hold_truncate, true);
    start_truncater(&cut, &d, 2);
    driven_store(&d, "f", "theirs", 6);
    (void)usleep(250000); /* what was listed before is believed no more */
    ck_assert_int_eq(driven_list(&d, ""), 1);
    atomic_store(&calls.hold_truncate, false);
    (void)pthread_join(cut.thread, NULL);
    ck_assert_int_eq(cut.result, 0);
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    ck_assert_int_eq(st.st_size, 2);
    ck_assert_int_eq(driven_read(&d, "f", back, sizeof(back)), 2);
    ck_assert_int_eq(driven_flush(&d), -ESTALE);
    cache_get_stats(d.cache, &s);
    ck_assert_int_eq(s.last_error, -ESTALE); /* the other node was faster, and that is told */
    driven_release(&d);
}
END_TEST

/* An upload was chosen while nobody wrote, and a writer came before it looked. */
#define HALF 100

static atomic_uint torn;

static int64_t see_torn(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_PUT && c->src->size % (2 * HALF) != 0)
        atomic_fetch_add(&torn, 1);
    return call_next(c);
}

START_TEST(a_writer_that_comes_before_the_upload_looks_is_waited_for)
{
    char half[HALF];
    struct driven d;

    memset(half, 'x', sizeof(half));
    driven_init(&d, see_torn);
    d.config.settle_ns = 0;
    driven_mount(&d);
    for (int i = 0; i < 3000; i++) {
        struct handle *h = NULL;
        ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT | O_TRUNC, &h), 0);
        ck_assert_int_eq(driven_write(&d, h, half, HALF, 0), 0);
        if (i % 8 == 0)
            (void)usleep(1000);
        ck_assert_int_eq(driven_write(&d, h, half, HALF, HALF), 0);
        ck_assert_int_eq(driven_close(&d, h), 0);
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(atomic_load(&torn), 0);
    driven_release(&d);
}
END_TEST

/* ---- eviction at the wrong moment ---- */

/* Under TSan the lock must be TSan's own. */
#ifndef __SANITIZE_THREAD__

#define SMALL_CACHE (UINT64_C(4) << 20)

/* Counts down this thread's rdlock() calls; at 0 the file is evicted before the lock is had. */
static _Thread_local int until_eviction = -1;
static struct driven *evicted;

static void evict(struct driven *d)
{
    static char large[SMALL_CACHE];
    struct cache_stats s;

    driven_put(d, "large", large, sizeof(large));
    ck_assert_int_eq(driven_flush(d), 0);
    do {
        (void)usleep(1000);
        cache_get_stats(d->cache, &s);
    } while (s.used_bytes > SMALL_CACHE / 2);
}

int pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    if (until_eviction >= 0 && until_eviction-- == 0)
        evict(evicted);
    /* No deadline: as rdlock() itself, which has this name now. */
    int r;
    while ((r = pthread_rwlock_tryrdlock(lock)) == EBUSY)
        (void)usleep(100);
    return r;
}

/* A file goes just before any of the steps of a truncate, an open or a chmod: made again, no
 * ESTALE. */
START_TEST(eviction_between_two_steps_fails_nothing)
{
    struct handle *h = NULL;
    struct driven d;
    char buf[4];

    driven_init(&d, NULL);
    d.config.size_bytes = SMALL_CACHE;
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 60 * NS_PER_SEC;
    driven_store(&d, "f", "data", 4);
    driven_store(&d, "g", "data", 4);
    driven_store(&d, "h", "data", 4);
    driven_mount(&d);
    ck_assert_int_eq(driven_read(&d, "g", buf, sizeof(buf)), 4);
    evicted = &d;
    until_eviction = _i;
    int opened = driven_open(&d, "g", O_RDONLY, &h);
    until_eviction = -1;
    ck_assert_int_eq(driven_read(&d, "f", buf, sizeof(buf)), 4);
    until_eviction = _i;
    int cut = driven_truncate(&d, "f", 2);
    until_eviction = -1;
    ck_assert_int_eq(driven_read(&d, "h", buf, sizeof(buf)), 4);
    until_eviction = _i;
    int changed = driven_chmod(&d, "h", 0600);
    until_eviction = -1;
    ck_assert_msg(opened == 0 && cut == 0 && changed == 0, "open: %s, truncate: %s, chmod: %s",
                  strerror(-opened), strerror(-cut), strerror(-changed));
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

#endif

/* ---- fsync ---- */

static int stat_mirror(struct driven *d, const char *name, struct stat *ret)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/mirror/%s", d->dir, name);
    return stat(path, ret);
}

/* "Synced" may be on the disk only when the data was there before, and fsync() answers only
 * when that note is there, too. */
START_TEST(fsync_notes_what_is_synced_after_it)
{
    struct handle *h = NULL;
    struct driven d;
    struct stat st;

    driven_init(&d, NULL);
    driven_mount(&d);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "one", 3, 0), 0);
    ck_assert_int_eq(stat_mirror(&d, "f", &st), 0);
    calls.syncs = 0;
    calls.ino = st.st_ino;
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    calls.ino = 0;
    ck_assert_int_eq(stat_mirror(&d, "f", &st), 0);
    ck_assert_uint_ge(calls.syncs, 2);
    ck_assert_msg(!(calls.first.flags & STAMP_SYNCED), "noted before the data was synced");
    ck_assert_msg(calls.last.flags & STAMP_SYNCED, "answered before the note was synced");
    ck_assert_uint_eq(calls.last.synced_size, 3);
    ck_assert_int_eq(calls.last.synced_mtime_ns,
                     (int64_t)st.st_mtim.tv_sec * NS_PER_SEC + st.st_mtim.tv_nsec);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

/* Of a file whose content is not here, or in part, the attributes can be ours. */
START_TEST(fsync_keeps_attributes_of_what_is_not_here)
{
    enum durability durability = (enum durability)_i;
    struct handle *h = NULL;
    struct driven d;
    struct stat st;

    driven_init_like_s3(&d, NULL);
    d.config.durability = durability;
    d.config.settle_ns = 30 * NS_PER_SEC; /* only who waits for it has it uploaded */
    driven_mount(&d);
    driven_put(&d, "f", "content", 7);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_chmod(&d, "f", 0600), 0);
    ck_assert_str_eq(driven_state(&d, "f"), "dirty");
    ck_assert_int_eq(driven_open(&d, "f", O_RDONLY, &h), 0);
    ck_assert_int_eq(stat_mirror(&d, "f", &st), 0);
    calls.syncs = 0;
    calls.ino = st.st_ino;
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    calls.ino = 0;
    if (durability == DURABILITY_STORE) {
        ck_assert_str_ne(driven_state(&d, "f"), "dirty");
    } else {
        ck_assert_uint_ge(calls.syncs, 1);
        ck_assert_uint_eq(calls.last.mode, S_IFREG | 0600);
        ck_assert(calls.last.flags & STAMP_ATTR_DIRTY);
    }
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_unmount(&d);
    driven_mount(&d);
    driven_shows(&d, "f", "content");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_stat(&d, "f", &st), 0);
    ck_assert_uint_eq(st.st_mode, S_IFREG | 0600);
    driven_shows(&d, "f", "content");
    driven_release(&d);
}
END_TEST

/* ---- O_SYNC ---- */

static bool noted_synced(struct driven *d, struct handle *h, uint64_t size)
{
    struct stamp_attrs a;

    ck_assert_int_eq(stamp_read_attrs(driven_fd(d, h), &a), 0);
    return (a.flags & STAMP_SYNCED) && a.synced_size == size;
}

/* The kernel has each write of such a handle followed by an fsync(), if it comes by here. */
START_TEST(what_writes_synchronously_is_not_passthrough)
{
    static const int flags[] = {O_SYNC, O_DSYNC, 0};
    struct handle *h = NULL;
    struct driven d;

    driven_init(&d, NULL);
    d.config.passthrough = true;
    driven_mount(&d);
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT | flags[i], &h), 0);
        ck_assert_int_eq(handle_passthrough(h), flags[i] == 0);
        ck_assert_int_eq(driven_close(&d, h), 0);
    }
    driven_release(&d);
}
END_TEST

/* Somebody has the file open in passthrough already, and there is one mode for all. */
START_TEST(a_close_syncs_what_was_written_synchronously_past_the_daemon)
{
    struct handle *h = NULL, *other = NULL;
    struct driven d;

    driven_init(&d, NULL);
    d.config.passthrough = true;
    driven_mount(&d);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_CREAT, &other), 0);
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_SYNC, &h), 0);
    ck_assert(handle_passthrough(h));
    ck_assert_int_eq(pwrite(driven_fd(&d, h), "data", 4, 0), 4);
    ck_assert(!noted_synced(&d, h, 4));
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert(noted_synced(&d, other, 4));
    ck_assert_int_eq(driven_close(&d, other), 0);
    driven_release(&d);
}
END_TEST

static int64_t refuse_intentions(struct layer *l, struct call *c)
{
    (void)l;
    return c->kind == CALL_REMOVE || c->kind == CALL_COPY ? op_fail(c->op, -EACCES, "refused")
                                                          : call_next(c);
}

/* That a name was removed is in the journal only: fsync() of its directory puts it on the disk.
 * unlink() itself does not wait for that. */
START_TEST(fsync_of_a_directory_syncs_the_journal)
{
    struct driven d;

    driven_init(&d, refuse_intentions);
    driven_mount(&d);
    driven_put(&d, "f", "data", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    unsigned before = atomic_load(&calls.journal_syncs);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    ck_assert_uint_eq(atomic_load(&calls.journal_syncs), before);
    ck_assert_int_eq(driven_fsyncdir(&d, ""), 0);
    ck_assert_uint_gt(atomic_load(&calls.journal_syncs), before);
    driven_release(&d);
}
END_TEST

/* fsync() of a file makes the disk's filesystem keep all that was renamed before, as when a log
 * is rotated: the rows that say what that means for the store are kept first. Without a new row
 * there is nothing to keep. */
START_TEST(fsync_of_a_file_syncs_the_journal)
{
    struct handle *h = NULL;
    struct driven d;

    driven_init_like_s3(&d, refuse_intentions);
    driven_mount(&d);
    driven_put(&d, "log", "data", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    /* The store's turn keeps the row, too, where it comes first. */
    unsigned before = atomic_load(&calls.journal_syncs);
    ck_assert_int_eq(driven_rename(&d, "log", "log.1"), 0);
    ck_assert_int_eq(driven_open(&d, "log", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "line", 4, 0), 0);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    ck_assert_uint_gt(atomic_load(&calls.journal_syncs), before);
    before = atomic_load(&calls.journal_syncs);
    ck_assert_int_eq(driven_fsync(&d, h), 0);
    ck_assert_uint_eq(atomic_load(&calls.journal_syncs), before);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_sync");
    TCase *t = tcase_create("cache_sync");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, truncate_stops_an_upload_that_reads);
    tcase_add_test(t, a_listing_does_not_take_away_what_is_truncated);
    tcase_add_test(t, a_writer_that_comes_before_the_upload_looks_is_waited_for);
    tcase_add_test(t, fsync_notes_what_is_synced_after_it);
    tcase_add_loop_test(t, fsync_keeps_attributes_of_what_is_not_here, DURABILITY_CACHE,
                        DURABILITY_STORE + 1);
    tcase_add_test(t, what_writes_synchronously_is_not_passthrough);
    tcase_add_test(t, a_close_syncs_what_was_written_synchronously_past_the_daemon);
    tcase_add_test(t, fsync_of_a_directory_syncs_the_journal);
    tcase_add_test(t, fsync_of_a_file_syncs_the_journal);
#ifndef __SANITIZE_THREAD__
    tcase_add_loop_test(t, eviction_between_two_steps_fails_nothing, 0, 5);
#endif
    suite_add_tcase(s, t);
    return suite_run(s);
}
