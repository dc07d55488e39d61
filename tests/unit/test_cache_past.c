/* cache/: what a program writes past the daemon while the same file goes up. A write() moves
 * the file's time when it begins, not when it ends. */
#include "cache/mirror/crash.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096
#define SIZE (2 * PAGE)

static struct driven d;

/* A source whose second page is not there before it is given: a write() from it stands still
 * between the two. */
struct slow_source {
    int faults;
    char *data; /* SIZE bytes */
};

static int open_faults(void)
{
    return (int)syscall(SYS_userfaultfd, O_CLOEXEC);
}

static void source_begin(struct slow_source *s)
{
    struct uffdio_api api = {.api = UFFD_API};

    s->faults = open_faults();
    ck_assert_int_ge(s->faults, 0);
    ck_assert_int_eq(ioctl(s->faults, UFFDIO_API, &api), 0);
    s->data = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(s->data, MAP_FAILED);
    memset(s->data, 'n', PAGE);
    struct uffdio_register missing = {.range = {(uintptr_t)s->data + PAGE, PAGE},
                                      .mode = UFFDIO_REGISTER_MODE_MISSING};
    ck_assert_int_eq(ioctl(s->faults, UFFDIO_REGISTER, &missing), 0);
}

static void source_await_reader(struct slow_source *s)
{
    struct uffd_msg m;

    ck_assert_int_eq(read(s->faults, &m, sizeof(m)), sizeof(m));
    ck_assert_int_eq(m.event, UFFD_EVENT_PAGEFAULT);
}

static void source_give_rest(struct slow_source *s)
{
    char page[PAGE];
    struct uffdio_copy copy = {
        .dst = (uintptr_t)s->data + PAGE, .src = (uintptr_t)page, .len = PAGE};

    memset(page, 'n', PAGE);
    ck_assert_int_eq(ioctl(s->faults, UFFDIO_COPY, &copy), 0);
}

static void source_end(struct slow_source *s)
{
    ck_assert_int_eq(munmap(s->data, SIZE), 0);
    ck_assert_int_eq(close(s->faults), 0);
}

struct writer {
    int fd;
    const char *data;
};

static void *write_past(void *arg)
{
    struct writer *w = arg;

    ck_assert_int_eq(pwrite(w->fd, w->data, SIZE, 0), SIZE);
    return NULL;
}

static void *flush(void *arg)
{
    *(int *)arg = driven_flush(&d);
    return NULL;
}

static void stores_all_of(char letter)
{
    char wanted[SIZE], stored[SIZE];

    memset(wanted, letter, SIZE);
    ck_assert_int_eq(driven_stored(&d, "f", stored, SIZE), SIZE);
    ck_assert_int_eq(memcmp(stored, wanted, SIZE), 0);
}

static void start_around(driven_around around)
{
    char old[SIZE];

    memset(old, 'o', SIZE);
    driven_init(&d, around);
    d.config.passthrough = true;
    driven_mount(&d);
    driven_put(&d, "f", old, SIZE);
    ck_assert_int_eq(driven_flush(&d), 0);
}

static void start(void)
{
    start_around(NULL);
}

/* The time tells of the write that began; half of it is in the file when it is read. */
START_TEST(a_flush_sends_no_half_of_a_write)
{
    struct slow_source s;
    struct handle *h = NULL;
    pthread_t writer, flusher;
    int flushed = -1;

    source_begin(&s);
    start();
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, &h), 0);
    struct writer w = {driven_fd(&d, h), s.data};
    ck_assert_int_eq(pthread_create(&writer, NULL, write_past, &w), 0);
    source_await_reader(&s);
    (void)usleep(50000); /* its time is old enough to prove that nothing began later */
    ck_assert_int_eq(pthread_create(&flusher, NULL, flush, &flushed), 0);
    (void)usleep(300000); /* a flush that does not wait has sent it */
    source_give_rest(&s);
    (void)pthread_join(writer, NULL);
    (void)pthread_join(flusher, NULL);
    ck_assert_int_eq(flushed, 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    stores_all_of('n');
    driven_release(&d);
    source_end(&s);
}
END_TEST

/* ---- through a mapping ---- */

static char *mapped;
static atomic_bool stored; /* while the pages were being cleaned */

static void store_while_it_is_synced(const char *point)
{
    if (strcmp(point, "upload-synced") != 0 || atomic_exchange(&stored, true))
        return;
    memset(mapped, 'm', SIZE);
    (void)usleep(50000);
}

static int64_t store_after_it_is_read(struct layer *l, struct call *c)
{
    (void)l;
    int64_t r = call_next(c);
    if (c->kind == CALL_PUT && atomic_load(&stored))
        memset(mapped, 'n', SIZE);
    return r;
}

/* A page that is stored to while fsync() runs may stay dirty: then the next store to it, after
 * it was read, moves no time. */
START_TEST(a_mapping_is_written_while_the_file_is_synced)
{
    struct handle *h = NULL;

    atomic_store(&stored, true);
    mapped = malloc(SIZE); /* until there is a mapping */
    start_around(store_after_it_is_read);
    free(mapped);
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, &h), 0);
    mapped = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, driven_fd(&d, h), 0);
    ck_assert_ptr_ne(mapped, MAP_FAILED);
    memset(mapped, 'l', SIZE);
    atomic_store(&stored, false);
    crash_watch(store_while_it_is_synced);
    ck_assert_int_eq(driven_flush(&d), 0);
    crash_watch(NULL);
    ck_assert(atomic_load(&stored));
    ck_assert_int_eq(munmap(mapped, SIZE), 0);
    mapped = malloc(SIZE);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    stores_all_of('n');
    driven_release(&d);
    free(mapped);
}
END_TEST

/* ---- past the page cache ---- */

/* Bytes of an asynchronous write come after its time has moved, and hold no lock. Here they
 * come as late as they can: when the file has gone up, and its time is old. */
START_TEST(direct_bytes_that_come_late)
{
    char late[SIZE];
    struct handle *h = NULL;
    struct stat st;

    memset(late, 'n', SIZE);
    start();
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR | O_DIRECT, &h), 0);
    int fd = driven_fd(&d, h);
    ck_assert_int_eq(futimens(fd, NULL), 0); /* it begins */
    (void)usleep(50000);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(pwrite(fd, late, SIZE, 0), SIZE);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    ck_assert_int_eq(futimens(fd, times), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    stores_all_of('n');
    driven_release(&d);
}
END_TEST

#define PART (9 << 20) /* two are more than is copied into memory */

static int writer_fd = -1;
static atomic_bool came; /* the late bytes */

static struct handle *through; /* the daemon; NULL: past it */

/* The writer sets the time back. */
static void write_and_keep_the_time(const char *late, size_t len)
{
    struct stat st;

    ck_assert_int_eq(fstat(writer_fd, &st), 0);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (through) {
        ck_assert_int_eq(driven_write(&d, through, late, len, 0), 0);
        ck_assert_int_eq(
            driven_utimens(&d, "f", st.st_mtim.tv_sec * NS_PER_SEC + st.st_mtim.tv_nsec), 0);
        return;
    }
    ck_assert_int_eq(pwrite(writer_fd, late, len, 0), (ssize_t)len);
    ck_assert_int_eq(futimens(writer_fd, times), 0);
}

/* Both parts get them when the first is sent, and the second is not read yet. */
static int64_t bytes_between_parts(struct layer *l, struct call *c)
{
    static char late[2 * PART];

    (void)l;
    while (c->kind == CALL_PART && c->number == 2 && !atomic_load(&came))
        (void)usleep(1000);
    int64_t r = call_next(c);
    if (c->kind != CALL_PART || c->number != 1 || atomic_load(&came))
        return r;
    memset(late, 'n', sizeof(late));
    write_and_keep_the_time(late, sizeof(late));
    atomic_store(&came, true);
    return r;
}

START_TEST(direct_bytes_that_come_between_parts)
{
    static char old[2 * PART], there[2 * PART];
    struct handle *h = NULL;

    memset(old, 'o', sizeof(old));
    atomic_store(&came, true);
    driven_init(&d, bytes_between_parts);
    d.config.passthrough = true;
    d.config.part_size = PART;
    driven_mount(&d);
    driven_put(&d, "f", old, sizeof(old));
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR | O_DIRECT, &h), 0);
    writer_fd = driven_fd(&d, h);
    ck_assert_int_eq(futimens(writer_fd, NULL), 0);
    (void)usleep(50000);
    atomic_store(&came, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(atomic_load(&came));
    ck_assert_int_eq(driven_stored(&d, "f", there, sizeof(there)), sizeof(there));
    ck_assert_int_eq(there[0], there[sizeof(there) - 1]); /* no half of it */
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_stored(&d, "f", there, sizeof(there)), sizeof(there));
    ck_assert_int_eq(there[0], 'n');
    driven_release(&d);
}
END_TEST

/* The clock of files is coarse: what is written through the daemon within one step of it leaves
 * no mark. A time that is not over yet stands for all of that step. Or the time is over, and
 * the writer sets it again. */
START_TEST(bytes_that_come_between_parts_at_the_same_time)
{
    static char old[2 * PART], there[2 * PART];
    struct handle *h = NULL;

    memset(old, 'o', sizeof(old));
    atomic_store(&came, true);
    driven_init(&d, bytes_between_parts);
    d.config.part_size = PART;
    driven_mount(&d);
    driven_put(&d, "f", old, sizeof(old));
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_open(&d, "f", O_RDWR, &h), 0);
    writer_fd = driven_fd(&d, h);
    ck_assert_int_eq(driven_write(&d, h, "o", 1, 0), 0);
    ck_assert_int_eq(
        driven_utimens(&d, "f", clock_real_ns() + (_i ? -3600 : 3600) * NS_PER_SEC), 0);
    through = _i ? h : NULL;
    atomic_store(&came, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(atomic_load(&came));
    ck_assert_int_eq(driven_stored(&d, "f", there, sizeof(there)), sizeof(there));
    ck_assert_int_eq(there[0], there[sizeof(there) - 1]);
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

int main(void)
{
    int faults = open_faults();

    /* On a disk: in memory the time of a file proves nothing. */
    (void)setenv("TMPDIR", "/tmp", 0);
    Suite *s = suite_create("cache_past");
    TCase *t = tcase_create("cache_past");

    tcase_set_timeout(t, 60);
    if (faults < 0)
        puts("SKIP a_flush_sends_no_half_of_a_write: this user may have no userfaultfd");
    else
        tcase_add_test(t, a_flush_sends_no_half_of_a_write);
    tcase_add_test(t, a_mapping_is_written_while_the_file_is_synced);
    tcase_add_test(t, direct_bytes_that_come_late);
    tcase_add_test(t, direct_bytes_that_come_between_parts);
    tcase_add_loop_test(t, bytes_that_come_between_parts_at_the_same_time, 0, 2);
    suite_add_tcase(s, t);
    if (faults >= 0)
        (void)close(faults);
    return suite_run(s);
}
