/* The power is cut at any step of the cache's disk: what was not synced is dropped, reordered
 * and torn. The next mount finds what a disk may have left, over the store as it was, and has
 * to bring what docs/promises.md says.
 *
 * No table of functions stands between the cache and its disk for this:
 * tests/lib/power/record.c has functions by the names of libc's calls, which the linker takes
 * for the whole program and for SQLite's library, too. So nothing of the product changes, no
 * call can go past a table, and the_record_is_complete compares each record with the disk. The
 * store is in memory and counts as another machine: each of its changes is kept with the step
 * at which it was made.
 *
 * By night each cut is made in each way (RUNFS_NIGHTLY, RUNFS_SEED), else some. */
#include "cache/cache.h"
#include "common/log.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/power/disk.h"
#include "tests/lib/power/store.h"
#include "tests/lib/power/stories.h"
#include "tests/lib/some.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- after the cut ---- */

static struct known known_first; /* before the record begins */

static struct known known_at(const struct disk_record *r, size_t at)
{
    struct known k = known_first;

    for (size_t i = 0; i < at; i++)
        if (r->op[i].kind == DISK_MARK)
            k.of[r->op[i].mark[0]][r->op[i].mark[1]] = r->op[i].mark[2];
    return k;
}

static struct {
    const char *story;
    enum disk_way way;
    size_t at;
    uint64_t seed;
    unsigned faults;
} now;

static void fault(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void fault(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)fprintf(stderr, "FAULT %s, %s, cut at %zu, seed %" PRIu64 ": ", now.story,
                  disk_way_name(now.way), now.at, now.seed);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputc('\n', stderr);
    va_end(ap);
    now.faults++;
}

/* What is somewhere, by documents. */
struct have {
    int v[DOCS];      /* the newest whole version; 0: none */
    bool first[DOCS]; /* under its first path, or the second */
    bool second[DOCS];
    unsigned files;
};

static bool is_path(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

static struct have what_is_stored(const struct store_then *then, const char *when)
{
    struct have have = {.files = 0};
    int f, v;

    for (size_t i = 0; i < then->n; i++) {
        const struct object_then *o = &then->v[i];
        if (o->key[strlen(o->key) - 1] == '/' || strncmp(o->key, ".runfs/", 7) == 0)
            continue;
        have.files++;
        if (!power_is_whole(o->blob->data, o->blob->size, &f, &v)) {
            fault("%s the store has a torn %s of %" PRIu64 " bytes", when, o->key,
                  o->blob->size);
            continue;
        }
        bool first = is_path(power_story->path[f][0], o->key);
        bool second = is_path(power_story->path[f][1], o->key);
        if (!first && !second)
            fault("%s the store has document %d as %s", when, f, o->key);
        have.first[f] = have.first[f] || first;
        have.second[f] = have.second[f] || second;
        have.v[f] = v > have.v[f] ? v : have.v[f];
    }
    return have;
}

static struct have kept;

static int look_at_kept(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    static char data[CONTENT_MAX];
    int f, v;

    (void)ftw;
    if (type != FTW_F)
        return 0;
    kept.files++;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ssize_t n = pread(fd, data, sizeof(data), 0);
    (void)close(fd);
    if (n == st->st_size && power_is_whole(data, (size_t)n, &f, &v))
        kept.v[f] = v > kept.v[f] ? v : kept.v[f];
    return 0;
}

static void what_is_kept(void)
{
    char dir[128];

    kept = (struct have){.files = 0};
    (void)snprintf(dir, sizeof(dir), "%s/kept", power_driven.dir);
    (void)nftw(dir, look_at_kept, 16, FTW_PHYS);
}

static void comes_after(const struct have *have, int last, const char *when)
{
    for (int f = 0; last && have->v[last] && f < last; f++)
        if (!have->v[f])
            fault("%s the store has %s without %s", when, power_story->path[last][0],
                  power_story->path[f][0]);
}

static void units_are_whole(const struct have *have, const char *when)
{
    comes_after(have, power_story->tail, when);
    if (have->second[power_story->pointer])
        comes_after(have, power_story->pointer, when);
}

/* What was to come after something that was lost is kept beside it. */
static bool is_held(int f)
{
    return f && (f == power_story->tail || f == power_story->pointer) && kept.files > 1;
}

static void judge(const struct known *k, const struct have *then, const struct have *have,
                  bool disputed)
{
    for (int f = 0; f < DOCS; f++) {
        const int *is = k->of[f];
        const char *path = power_story->path[f][0];
        bool safe =
            have->v[f] == is[SAFE] || ((disputed || is_held(f)) && kept.v[f] == is[SAFE]);
        if (is[SAFE] && is[SAFE] == is[BEGUN] && !is[GOING] && !safe)
            fault("%s %d was synced; stored: %d, kept: %d of %u", path, is[SAFE], have->v[f],
                  kept.v[f], kept.files);
        /* The disk lost what the store has (promises.md, known to be missing). */
        bool regress =
            then->v[f] > is[SAFE] && (disk_way_is_loose(now.way) || now.way == DISK_WAY_EARLY);
        if (then->v[f] && !is[GOING] && have->v[f] < then->v[f] && !regress)
            fault("%s %d was stored; stored: %d", path, then->v[f], have->v[f]);
        if (have->v[f] > is[BEGUN])
            fault("%s %d was not written", path, have->v[f]);
        if (is[GONE] && have->v[f] && !kept.files)
            fault("%s was removed, and is stored", path);
        if (is[MOVED] && !is[GOING] && (have->first[f] || !have->second[f]) && !kept.files)
            fault("%s was moved; stored there: %d, here: %d", path, have->second[f],
                  have->first[f]);
        /* A rename that the store knew of; the others are in promises.md, too. */
        bool begun = is[MOVED] || (then->second[f] && !disk_way_is_loose(now.way));
        if (have->first[f] && have->second[f] && begun && !kept.files)
            fault("%s is stored under both names", path);
    }
    /* A loose disk may have lost a file without a trace. */
    if (!disk_way_is_loose(now.way))
        units_are_whole(have, "in the end");
}

/* Other mounts do not see a unit as long as its note is there. */
static void no_note_stays(const struct store_then *end)
{
    for (size_t i = 0; i < end->n; i++)
        if (strncmp(end->v[i].key, ".runfs/units/", strlen(".runfs/units/")) == 0)
            fault("a note stays: %s", end->v[i].key);
}

/* The boot id is the first line of its file. */
static void another_boot(void)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/boot", power_driven.dir);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (lseek(fd, 0, SEEK_END) > 0)
        ck_assert_int_eq(pwrite(fd, "00000000", 8, 0), 8);
    ck_assert_int_eq(close(fd), 0);
}

static void mount_and_judge(const struct known *k, const struct store_then *then)
{
    struct have before = what_is_stored(then, "at the cut");
    struct cache_stats found;
    struct op op;

    units_are_whole(&before, "at the cut");
    op_init(&op, 20 * NS_PER_SEC);
    power_driven.config.identity = power_driven.store->url;
    atomic_store(&power_store_away, true);
    int r = cache_new(&power_driven.config, power_driven.store, &op, &power_driven.cache);
    if (r < 0) {
        power_driven.cache = NULL;
        fault("the mount is refused: %d %s", r, op.why);
        return;
    }
    cache_get_stats(power_driven.cache, &found);
    /* One that is made in incoming/ can come to its place before its stamp, and is kept. */
    if (found.unstamped_files && now.way != DISK_WAY_REORDERED)
        fault("%" PRIu64 " files lost their stamps", found.unstamped_files);
    atomic_store(&power_store_away, false);
    r = driven_flush(&power_driven);
    driven_unmount(&power_driven);
    what_is_kept();
    /* A put whose note was lost counts as another node's (promises.md, known to be missing). */
    bool disputed = kept.files > found.kept_files;
    if (r < 0 && !disputed)
        fault("the flush fails: %d", r);
    struct store_then end = power_store_now(&power_driven);
    struct have have = what_is_stored(&end, "in the end");
    judge(k, &before, &have, disputed);
    if (r == 0)
        no_note_stays(&end);
    power_store_then_free(&end);
}

/* ---- the cuts of a story ---- */

static struct disk_record record;

static void forget_record(void)
{
    power_history_forget();
    disk_record_free(&record);
}

static void record_story(void)
{
    disk_record_begin(power_driven.dir);
    power_history_begin(&power_driven);
    driven_mount(&power_driven);
    if (power_story->tell)
        power_story->tell();
    else
        (void)driven_flush(&power_driven);
    driven_unmount(&power_driven);
    power_history_end();
    record = disk_record_end();
}

static void hear_from_the_beginning(void)
{
    known_first = (struct known){.of = {{0}}};
    if (power_story->before)
        power_story->before();
    for (int f = 0; power_story->before && f < FOUND; f++)
        known_first.of[f][BEGUN] = known_first.of[f][CLOSED] = known_first.of[f][SAFE] = 1;
    record_story();
}

/* The disk and the store are as they were at the cut. */
static struct disk_state *become(size_t at, const struct disk_cut *choice)
{
    struct disk_state *state = disk_state_new(&record, choice);
    size_t number;

    power_store_becomes(&power_driven, power_store_at(at, &number));
    disk_state_put(state, power_driven.dir);
    another_boot();
    return state;
}

static void hear_recovery(void)
{
    const struct story *recovery = power_story--;

    hear_from_the_beginning();
    size_t at = record.begun + (record.n - record.begun) * recovery->percent / 100;
    struct disk_cut choice = disk_choose(&record, at, recovery->way, 1);
    known_first = known_at(&record, at);
    disk_state_free(become(at, &choice));
    disk_cut_free(&choice);
    forget_record();
    power_story = recovery;
    record_story();
}

static void hear(void)
{
    driven_init_like_s3(&power_driven, power_around);
    power_driven.config.settle_ns = 1 * NS_PER_MS;
    power_driven.config.late_ns = 1 * NS_PER_MS;
    power_driven.config.retry_ns = 5 * NS_PER_MS;
    atomic_store(&power_store_away, false);
    now.story = power_story->name;
    if (power_story->tell)
        hear_from_the_beginning();
    else
        hear_recovery();
}

static void forget(void)
{
    disk_ctimes_clear();
    forget_record();
    driven_release(&power_driven);
}

static uint64_t *seen;
static size_t n_seen, cap_seen;

static bool is_new(uint64_t hash)
{
    for (size_t i = 0; i < n_seen; i++)
        if (seen[i] == hash)
            return false;
    ck_assert(!array_grow(seen, cap_seen, n_seen + 1));
    seen[n_seen++] = hash;
    return true;
}

/* Whether the state is another one than those before. */
static bool cut(size_t at, enum disk_way way, uint64_t seed)
{
    struct disk_cut choice = disk_choose(&record, at, way, seed);
    struct disk_state *state = disk_state_new(&record, &choice);
    size_t number;
    const struct store_then *then = power_store_at(at, &number);
    struct known k = known_at(&record, at);
    uint64_t hash = disk_state_hash(state) + number * 1000003;

    for (size_t i = 0; i < sizeof(k) / sizeof(int); i++)
        hash = hash * 31 + (uint64_t)((const int *)&k)[i];
    bool new = is_new(hash);
    if (new) {
        now.at = at;
        now.seed = seed;
        now.way = way;
        disk_state_free(become(at, &choice));
        unsigned before = now.faults;
        mount_and_judge(&k, then);
        if (now.faults > before && getenv("RUNFS_POWER_TELL"))
            disk_cut_tell(&record, &choice);
        disk_ctimes_clear();
    }
    disk_state_free(state);
    disk_cut_free(&choice);
    return new;
}

static uint64_t first_seed(void)
{
    const char *seed = getenv("RUNFS_SEED");

    return seed ? strtoull(seed, NULL, 10) : 1;
}

#define SOME_CUTS 6

START_TEST(the_power_is_cut)
{
    unsigned states[DISK_WAYS] = {0}, cuts = 0;

    power_story = &power_stories[_i];
    hear();
    n_seen = 0;
    now.faults = 0;
    size_t steps = record.n - record.begun;
    for (size_t i = 0; i <= steps; i += by_night() ? 1 : 1 + steps / SOME_CUTS) {
        for (enum disk_way way = 0; way < DISK_WAYS; way++)
            states[way] += cut(record.n - i, way, first_seed());
        cuts++;
    }
    (void)printf("%s: %zu steps, %u cuts, states:", power_story->name, steps, cuts);
    for (enum disk_way way = 0; way < DISK_WAYS; way++)
        (void)printf(" %u %s", states[way], disk_way_name(way));
    (void)printf(", %u faults\n", now.faults);
    unsigned faults = now.faults;
    forget();
    ck_assert_uint_eq(faults, 0);
}
END_TEST

/* What the record says is what the disk has. */
START_TEST(the_record_is_complete)
{
    power_story = &power_stories[_i];
    hear();
    struct disk_cut all = disk_choose_all(&record, record.n);
    struct disk_state *state = disk_state_new(&record, &all);
    disk_state_compare(state, power_driven.dir, "state.db-shm");
    disk_state_put(state, power_driven.dir);
    disk_state_compare(state, power_driven.dir, "state.db-shm");
    disk_state_free(state);
    disk_cut_free(&all);
    forget();
}
END_TEST

static void setup(void)
{
    log_set_level(getenv("RUNFS_POWER_TELL") ? LOG_LEVEL_WARN : LOG_LEVEL_ERROR);
}

int main(void)
{
    Suite *suite = suite_create("cache_power");
    TCase *t = tcase_create("cache_power");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_set_timeout(t, 7200);
    tcase_add_loop_test(t, the_record_is_complete, 0, power_stories_n);
    tcase_add_loop_test(t, the_power_is_cut, 0, power_stories_n);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
