/* What programs do before the power is cut; see stories.h. */
#include "tests/lib/power/stories.h"

#include "common/mem.h"
#include "tests/lib/power/store.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

const struct story *power_story;
struct driven power_driven;

/* ---- contents ---- */

/* Of document `f` in version `v`. */
static size_t content(int f, int v, char text[CONTENT_MAX])
{
    size_t size = 9000 + (size_t)(f * 700 + v * 500);
    int n = snprintf(text, CONTENT_MAX, "%d %d %zu\n", f, v, size);

    for (size_t i = (size_t)n; i < size; i++)
        text[i] = (char)('!' + (i * 7 + i / 512 + (size_t)(f * 31 + v * 17)) % 90);
    return size;
}

bool power_is_whole(const char *data, size_t len, int *ret_f, int *ret_v)
{
    static char wanted[CONTENT_MAX];
    char head[64];
    size_t size;

    (void)snprintf(head, sizeof(head), "%.*s", (int)(len < 60 ? len : 60), data);
    if (sscanf(head, "%d %d %zu", ret_f, ret_v, &size) != 3 || size != len ||
        len > CONTENT_MAX || *ret_f < 0 || *ret_f > 9 || *ret_v < 0 || *ret_v > 9)
        return false;
    return content(*ret_f, *ret_v, wanted) == len && memcmp(data, wanted, len) == 0;
}

/* ---- stories ---- */

static void learn(int f, enum fact fact, int v)
{
    disk_record_mark(f, (int)fact, v);
}

enum { SYNCED = 1, IN_PLACE = 2 };

static void save(int f, int v, int how)
{
    char text[CONTENT_MAX];
    size_t len = content(f, v, text);
    const char *path = power_story->path[f][0];
    struct handle *h;

    learn(f, BEGUN, v);
    ck_assert_int_eq(driven_open(&power_driven, path,
                                 O_CREAT | O_WRONLY | (how & IN_PLACE ? 0 : O_TRUNC), &h),
                     0);
    for (size_t off = 0; off < len; off += 5000)
        ck_assert_int_eq(driven_write(&power_driven, h, text + off,
                                      len - off < 5000 ? len - off : 5000, off),
                         0);
    if (how & SYNCED) {
        ck_assert_int_eq(driven_fsync(&power_driven, h), 0);
        learn(f, SAFE, v);
    }
    ck_assert_int_eq(driven_close(&power_driven, h), 0);
    learn(f, CLOSED, v);
}

static void take_away(int f)
{
    learn(f, GOING, 1);
    ck_assert_int_eq(driven_unlink(&power_driven, power_story->path[f][0]), 0);
}

static void sync_dir(const char *path)
{
    ck_assert_int_eq(driven_fsyncdir(&power_driven, path), 0);
}

static bool all_is_stored(void)
{
    return driven_flush(&power_driven) == 0;
}

static void tell_saves(void)
{
    save(0, 1, SYNCED);
    save(0, 2, SYNCED);
    save(1, 1, SYNCED | IN_PLACE);
    ck_assert(all_is_stored());
    save(0, 3, SYNCED);
    save(1, 2, SYNCED | IN_PLACE);
    save(0, 4, 0);
    ck_assert(all_is_stored());
}

static void tell_closes(void)
{
    save(0, 1, 0);
    save(1, 1, 0);
    ck_assert(all_is_stored());
    save(0, 2, 0);
    save(1, 2, IN_PLACE);
    ck_assert(all_is_stored());
}

/* Document 1 takes the place of document 0, twice. */
static void tell_replaces(void)
{
    save(0, 1, SYNCED);
    ck_assert(all_is_stored());
    save(1, 1, SYNCED);
    learn(0, GOING, 1);
    learn(1, MOVING, 1);
    ck_assert_int_eq(
        driven_rename(&power_driven, power_story->path[1][0], power_story->path[1][1]), 0);
    sync_dir("");
    learn(0, GONE, 1);
    learn(1, MOVED, 1);
    save(2, 1, 0);
    learn(0, GONE, 0); /* what took its place goes, for what nobody synced */
    learn(1, GOING, 1);
    learn(2, MOVING, 1);
    ck_assert_int_eq(
        driven_rename(&power_driven, power_story->path[2][0], power_story->path[2][1]), 0);
    ck_assert(all_is_stored());
}

static void make_unit(int how, int how_tail)
{
    ck_assert_int_eq(driven_mkdir(&power_driven, "checkpoint-1"), 0);
    ck_assert_int_eq(driven_mkdir(&power_driven, "checkpoint-1/sub"), 0);
    save(0, 1, how);
    save(1, 1, how);
    save(2, 1, how);
    save(3, 1, how_tail);
}

static void tell_unit(void)
{
    make_unit(SYNCED, SYNCED);
    ck_assert(all_is_stored());
}

/* The program syncs its last file alone. */
static void tell_unit_of_which_the_tail_is_synced(void)
{
    make_unit(0, SYNCED);
    ck_assert(all_is_stored());
}

static void tell_unit_of_which_some_are_synced(void)
{
    atomic_store(&power_store_away, true);
    make_unit(0, SYNCED);
    sync_dir("checkpoint-1");
    atomic_store(&power_store_away, false);
    ck_assert(all_is_stored());
}

/* A program that syncs the last files alone. */
static void tell_pointer(void)
{
    make_unit(0, SYNCED);
    save(4, 1, SYNCED);
    learn(4, MOVING, 1);
    ck_assert_int_eq(driven_rename(&power_driven, "latest.tmp", "latest"), 0);
    sync_dir("");
    learn(4, MOVED, 1);
    ck_assert(all_is_stored());
}

static void make_removable(void)
{
    driven_mount(&power_driven);
    ck_assert_int_eq(driven_mkdir(&power_driven, "run"), 0);
    for (int f = 0; f < FOUND; f++)
        save(f, 1, SYNCED);
    ck_assert(all_is_stored());
    driven_unmount(&power_driven);
}

static void tell_removes(void)
{
    take_away(0);
    sync_dir("run");
    learn(0, GONE, 1);
    save(3, 1, SYNCED);
    take_away(1);
    save(4, 1, 0);
    take_away(2);
    sync_dir("run");
    learn(1, GONE, 1);
    learn(2, GONE, 1);
    ck_assert(all_is_stored());
}

static void tell_moves(void)
{
    save(3, 1, SYNCED);
    for (int f = 0; f < 4; f++)
        learn(f, MOVING, 1);
    ck_assert_int_eq(driven_rename(&power_driven, "run", "moved"), 0);
    sync_dir("");
    for (int f = 0; f < 4; f++)
        learn(f, MOVED, 1);
    save(4, 1, SYNCED);
    ck_assert(all_is_stored());
}

/* Nobody syncs, and the store follows. */
static void tell_moves_alone(void)
{
    for (int f = 0; f < FOUND; f++)
        learn(f, MOVING, 1);
    ck_assert_int_eq(driven_rename(&power_driven, "run", "moved"), 0);
    ck_assert(all_is_stored());
}

static void tell_end(void)
{
    atomic_store(&power_store_away, true);
    save(0, 2, 0);
    save(3, 1, 0);
    take_away(1);
    driven_end(&power_driven);
    learn(0, SAFE, 2);
    learn(3, SAFE, 1);
    learn(1, GONE, 1);
    atomic_store(&power_store_away, false);
    driven_mount(&power_driven);
    ck_assert(all_is_stored());
}

/* What is stored is read in part, changed, and its attributes are. */
static void tell_reads(void)
{
    char text[100];

    ck_assert_int_eq(driven_read(&power_driven, power_story->path[0][0], text, sizeof(text)),
                     100);
    ck_assert_int_eq(driven_chmod(&power_driven, power_story->path[1][0], 0600), 0);
    save(2, 2, IN_PLACE | SYNCED);
    ck_assert_int_eq(driven_chmod(&power_driven, power_story->path[2][0], 0600), 0);
    save(0, 2, 0);
    ck_assert(all_is_stored());
}

static void forget_cache(void)
{
    make_removable();
    driven_mount_afresh(&power_driven);
    driven_unmount(&power_driven);
}

#define IN_RUN                                                                                 \
    {                                                                                          \
        {"run/a", "moved/a"}, {"run/b", "moved/b"}, {"run/c", "moved/c"},                      \
            {"run/d", "moved/d"},                                                              \
        {                                                                                      \
            "run/e", "moved/e"                                                                 \
        }                                                                                      \
    }
#define IN_UNIT                                                                                \
    {                                                                                          \
        {"checkpoint-1/x", NULL}, {"checkpoint-1/sub/y", NULL}, {"checkpoint-1/z", NULL},      \
            {"checkpoint-1/_SUCCESS", NULL},                                                   \
        {                                                                                      \
            "latest.tmp", "latest"                                                             \
        }                                                                                      \
    }

#define IN_MOVED                                                                               \
    {                                                                                          \
        {"run/a", "moved/a"}, {"run/b", "moved/b"}, {"run/c", "moved/c"},                      \
            {"run/d", "moved/d"},                                                              \
        {                                                                                      \
            "moved/e", NULL                                                                    \
        }                                                                                      \
    }
#define AFTER(how, at) .name = "recovery of that", .way = (how), .percent = (at)

const struct story power_stories[] = {
    {.name = "saves", .path = {{"a", NULL}, {"b", NULL}}, .tell = tell_saves},
    {.name = "closes", .path = {{"a", NULL}, {"b", NULL}}, .tell = tell_closes},
    {.name = "replaces",
     .path = {{"a", NULL}, {"a.new", "a"}, {"a.next", "a"}},
     .tell = tell_replaces},
    {.name = "unit", .path = IN_UNIT, .tell = tell_unit, .tail = 3},
    {.name = "unit, its tail synced",
     .path = IN_UNIT,
     .tell = tell_unit_of_which_the_tail_is_synced,
     .tail = 3},
    {AFTER(DISK_WAY_ZEROS, 85), .path = IN_UNIT, .tail = 3},
    {.name = "unit, its directory synced",
     .path = IN_UNIT,
     .tell = tell_unit_of_which_some_are_synced,
     .tail = 3},
    {.name = "unit and pointer",
     .path = IN_UNIT,
     .tell = tell_pointer,
     .tail = 3,
     .pointer = 4},
    {AFTER(DISK_WAY_TORN, 85), .path = IN_UNIT, .tail = 3, .pointer = 4},
    {.name = "removes", .path = IN_RUN, .before = make_removable, .tell = tell_removes},
    {AFTER(DISK_WAY_PREFIX, 70), .path = IN_RUN, .before = make_removable},
    {.name = "moves", .path = IN_MOVED, .before = make_removable, .tell = tell_moves},
    {AFTER(DISK_WAY_DROPPED, 70), .path = IN_MOVED, .before = make_removable},
    {.name = "moves alone",
     .path = IN_MOVED,
     .before = make_removable,
     .tell = tell_moves_alone},
    {.name = "end", .path = IN_RUN, .before = make_removable, .tell = tell_end},
    {AFTER(DISK_WAY_DROPPED, 65), .path = IN_RUN, .before = make_removable},
    {.name = "reads", .path = IN_RUN, .before = forget_cache, .tell = tell_reads},
};

const size_t power_stories_n = ARRAY_SIZE(power_stories);
