/* cache/: content is compared with the store's checksum before it counts as complete, and again
 * when a reboot may have taken bytes of it away. */
#include "cache/types/sums.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART 65536
#define SIZE (5 * PART - 7)

/* ---- a store that damages what it sends ---- */

static atomic_uint reads, stats;
static atomic_long damage_at; /* offset of a byte that arrives wrong, once; -1 none */

struct damaging {
    struct sink base;
    struct sink *to;
};

static int damage(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct damaging *d = container_of(sink, struct damaging, base);
    auto_free char *copy = malloc(len ? len : 1);
    long at = atomic_load(&damage_at);

    memcpy(copy, data, len);
    if (at >= (long)off && at < (long)(off + len)) {
        copy[at - (long)off] ^= 4;
        atomic_store(&damage_at, -1);
    }
    return d->to->write(d->to, copy, len, off);
}

static int64_t around(struct layer *l, struct call *c)
{
    struct damaging d = {{damage}, c->sink};

    (void)l;
    atomic_fetch_add(&stats, c->kind == CALL_STAT);
    if (c->kind == CALL_READ) {
        atomic_fetch_add(&reads, 1);
        c->sink = &d.base;
    }
    return call_next(c);
}

static struct driven d;
static char content[SIZE], back[SIZE + 1];

static void setup(void)
{
    atomic_store(&reads, 0);
    atomic_store(&stats, 0);
    atomic_store(&damage_at, -1);
    for (size_t i = 0; i < SIZE; i++)
        content[i] = (char)(i * 7 % 253);
    driven_init(&d, around);
    d.config.part_size = PART;
}

static void teardown(void)
{
    driven_release(&d);
}

static int fetch(const char *path)
{
    struct op op;

    op_init(&op, 10 * NS_PER_SEC);
    return cache_fetch_path(d.cache, path, &op, NULL, NULL);
}

static void reads_right(const char *path)
{
    ck_assert_int_eq(driven_read(&d, path, back, sizeof(back)), SIZE);
    ck_assert_mem_eq(back, content, SIZE);
}

START_TEST(a_damaged_download_is_fetched_again)
{
    driven_store(&d, "f", content, SIZE);
    driven_mount(&d);
    atomic_store(&damage_at, 2 * PART + 5);
    ck_assert_int_eq(fetch("f"), -EIO);
    ck_assert_str_eq(driven_state(&d, "f"), "partial");
    (void)usleep(1100000); /* the failure is told for a second */
    ck_assert_int_eq(fetch("f"), 0);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "clean") == 0);
    reads_right("f");
}
END_TEST

/* ---- sums of stretches ---- */

static void add_stretch(struct sums *s, enum checksum_kind kind, uint64_t off, uint64_t end)
{
    struct checksum sum = {.kind = kind};

    checksum_add(&sum, content + off, (size_t)(end - off));
    sums_add(s, off, end, &sum);
}

START_TEST(stretches_in_any_order_make_the_whole)
{
    static const uint64_t orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {0, 2, 1}};
    static const uint64_t cuts[] = {0, 7, PART + 1, SIZE};
    struct checksum whole = {.kind = CHECKSUM_CRC64NVME}, found;

    checksum_add(&whole, content, SIZE);
    for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
        struct sums s = {0};
        for (size_t k = 0; k < 3; k++) {
            ck_assert(!sums_whole(&s, SIZE, &found));
            add_stretch(&s, whole.kind, cuts[orders[i][k]], cuts[orders[i][k] + 1]);
            add_stretch(&s, whole.kind, cuts[orders[i][k]], cuts[orders[i][k] + 1]); /* twice */
        }
        ck_assert(sums_whole(&s, SIZE, &found));
        ck_assert(checksum_same(&found, &whole));
        ck_assert(!sums_whole(&s, SIZE - 1, &found));
        sums_clear(&s);
    }
}
END_TEST

START_TEST(stretches_that_overlap_make_no_whole)
{
    struct sums s = {0};
    struct checksum found;

    add_stretch(&s, CHECKSUM_CRC32C, 0, 100);
    add_stretch(&s, CHECKSUM_CRC32C, 50, SIZE);
    ck_assert(!sums_whole(&s, SIZE, &found));
    add_stretch(&s, CHECKSUM_CRC32, 100, SIZE); /* of another kind */
    ck_assert(!sums_whole(&s, SIZE, &found));
    add_stretch(&s, CHECKSUM_CRC32C, 100, SIZE);
    ck_assert(sums_whole(&s, SIZE, &found));
    sums_clear(&s);
}
END_TEST

START_TEST(a_sound_download_costs_one_question)
{
    driven_store(&d, "f", content, SIZE);
    driven_mount(&d);
    ck_assert_int_eq(fetch("f"), 0);
    reads_right("f");
    ck_assert_uint_eq(atomic_load(&reads), 5);
    ck_assert_uint_le(atomic_load(&stats), 1);
}
END_TEST

/* Bytes that this process has asked the kernel for. */
static unsigned long long bytes_read(void)
{
    unsigned long long n = 0;
    FILE *f = fopen("/proc/self/io", "r");

    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "rchar: %llu", &n), 1);
    (void)fclose(f);
    return n;
}

START_TEST(what_came_is_not_read_again)
{
    driven_store(&d, "f", content, SIZE);
    driven_mount(&d);
    unsigned long long before = bytes_read();
    ck_assert_int_eq(fetch("f"), 0);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "clean") == 0);
    ck_assert_uint_lt(bytes_read() - before, SIZE);
}
END_TEST

/* ---- after a reboot ---- */

static void another_boot(void)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/boot", d.dir);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs("00000000-0000-0000-0000-000000000000\n", f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

static void flip(const char *name, off_t off)
{
    char path[128], byte;
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/mirror/%s", d.dir, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(pread(fd, &byte, 1, off), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(fd, &byte, 1, off), 1);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    ck_assert_int_eq(futimens(fd, times), 0);
    (void)close(fd);
}

/* One that was uploaded and one that was downloaded. */
static void two_clean_files(void)
{
    driven_store(&d, "down", content, SIZE);
    driven_mount(&d);
    driven_put(&d, "up", content, SIZE);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(fetch("down"), 0);
    driven_unmount(&d);
    another_boot();
}

START_TEST(what_a_reboot_left_whole_is_kept)
{
    two_clean_files();
    atomic_store(&reads, 0);
    driven_mount(&d);
    reads_right("up");
    reads_right("down");
    ck_assert_uint_eq(atomic_load(&reads), 0);
    DRIVEN_WAIT(strcmp(driven_state(&d, "up"), "clean") == 0);
}
END_TEST

START_TEST(what_a_reboot_damaged_is_fetched_again)
{
    two_clean_files();
    flip("up", SIZE - 1);
    flip("down", 0);
    atomic_store(&reads, 0);
    driven_mount(&d);
    reads_right("up");
    reads_right("down");
    ck_assert_uint_gt(atomic_load(&reads), 1);
}
END_TEST

/* A change of it must not publish the damage. */
START_TEST(what_a_reboot_damaged_is_not_published)
{
    struct handle *h = NULL;

    two_clean_files();
    flip("up", 3);
    driven_mount(&d);
    ck_assert_int_eq(driven_open(&d, "up", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "x", 1, 100), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    content[100] = 'x';
    ck_assert_int_eq(driven_stored(&d, "up", back, sizeof(back)), SIZE);
    ck_assert_mem_eq(back, content, SIZE);
}
END_TEST

/* Nobody looked at it before the daemon ended: it is not taken for good by the next one. */
START_TEST(doubt_outlives_the_daemon)
{
    two_clean_files();
    flip("up", 3);
    driven_mount(&d);
    driven_unmount(&d);
    driven_mount(&d);
    reads_right("up");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_checksum");
    TCase *t = tcase_create("checksums");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_damaged_download_is_fetched_again);
    tcase_add_test(t, stretches_in_any_order_make_the_whole);
    tcase_add_test(t, stretches_that_overlap_make_no_whole);
    tcase_add_test(t, a_sound_download_costs_one_question);
    tcase_add_test(t, what_came_is_not_read_again);
    tcase_add_test(t, what_a_reboot_left_whole_is_kept);
    tcase_add_test(t, what_a_reboot_damaged_is_fetched_again);
    tcase_add_test(t, what_a_reboot_damaged_is_not_published);
    tcase_add_test(t, doubt_outlives_the_daemon);
    suite_add_tcase(s, t);
    return suite_run(s);
}
