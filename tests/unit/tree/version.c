/* cache/tree/: what is known of the store's version under a name, and of a node's attributes.
 */
#include "cache/tree/tree.h"
#include "common/mem.h"
#include "tests/lib/room.h"
#include "tests/unit/tree/suites.h"

#include <string.h>

#define T (1700000000 * NS_PER_SEC)

static struct cache *c;
static struct entry *e;
static struct node *n;

/* From setup() to teardown() a test holds the locks: clang can't see that across functions. */
static NO_THREAD_SAFETY void setup(void)
{
    c = room_core();
    room_tree(c);
    ns_write(c);
    cache_lock(c);
    n = room_file_locked(c, "f");
    e = n->links;
}

static NO_THREAD_SAFETY void teardown(void)
{
    cache_unlock(c);
    ns_done(c);
    room_free(c);
}

/* ---- versions ---- */

/* What is known: told by the store, put from here, shown by a listing, or expired. The
 * listing that comes then shows the same etag and this time. */
enum known { NOTHING, TOLD, PUT, PUT_AND_SEEN, EXPIRED };

static const struct {
    enum known known;
    int64_t then_ns, took_ns, listed_ns;
    bool moved;
} listings[] = {
    {NOTHING, 0, 0, T, false},
    {TOLD, T, 0, T, false},
    {TOLD, T, 0, T + NS_PER_SEC, true},
    {TOLD, T, 0, T - NS_PER_SEC, true},
    /* A HEAD says whole seconds, a listing may be more precise, and the reverse. */
    {TOLD, T, 0, T + 5 * NS_PER_MS, false},
    {TOLD, T + 5 * NS_PER_MS, 0, T, false},
    {TOLD, T + 5 * NS_PER_MS, 0, T + 6 * NS_PER_MS, true},
    /* The answer says when it came, and the server can have taken it from the request on. */
    {PUT, T, 0, T, false},
    {PUT, T, 10 * NS_PER_SEC, T - 10 * NS_PER_SEC, false},
    {PUT, T, 10 * NS_PER_SEC, T - 13 * NS_PER_SEC, true},
    {PUT, T, 10 * NS_PER_SEC, T + 1 * NS_PER_SEC, false},
    {PUT, T, 10 * NS_PER_SEC, T + 2 * NS_PER_SEC, true},
    {PUT, 0, 0, T, false}, /* a server that does not tell */
    /* Once a listing has shown it, it has one time. */
    {PUT_AND_SEEN, T, 10 * NS_PER_SEC, T, false},
    {PUT_AND_SEEN, T, 10 * NS_PER_SEC, T - 1 * NS_PER_SEC, true},
    {EXPIRED, T, 0, T, true},
};

START_TEST(a_listing_shows_what_moved)
{
    struct object obj = {.mtime_ns = listings[_i].then_ns};
    const struct object listed = {.mtime_ns = listings[_i].listed_ns};

    if (listings[_i].known == TOLD)
        entry_told(e, &obj);
    if (listings[_i].known == PUT || listings[_i].known == PUT_AND_SEEN)
        entry_put(e, &obj, listings[_i].took_ns);
    if (listings[_i].known == PUT_AND_SEEN)
        entry_seen(e, &obj);
    if (listings[_i].known == EXPIRED)
        entry_expire(e);
    ck_assert_int_eq(entry_moved(e, &listed), listings[_i].moved);
    entry_forget_version(e);
    ck_assert(!entry_moved(e, &listed));
}
END_TEST

/* Two versions of one second look the same. */
START_TEST(who_is_told_later_knows_the_last_of_its_second)
{
    struct object obj = {.mtime_ns = T, .told_ns = T + STABLE_NS - 1};

    entry_told(e, &obj);
    ck_assert(!e->stable);
    obj.told_ns++;
    entry_told(e, &obj);
    ck_assert(e->stable && !e->was_put);
    entry_put(e, &obj, 0);
    ck_assert(!e->stable && e->was_put && e->unseen);
    entry_seen(e, &obj);
    ck_assert(e->was_put && !e->unseen);
}
END_TEST

/* ---- attributes ---- */

/* The type and the mode that an object of some size gets which claims a mode. */
static const struct {
    uint32_t claimed;
    uint64_t size;
    uint32_t mode;
} modes[] = {
    {0640, 5, S_IFREG | 0640},
    {S_IFREG | 0600, 5, S_IFREG | 0600},
    {S_IFLNK | 0777, 0, S_IFLNK | 0777},
    {S_IFLNK | 0777, 5, S_IFREG | 0644}, /* content is no symlink */
    {S_IFDIR | 0755, 0, S_IFREG | 0644},
    {S_IFIFO | 0600, 0, S_IFIFO | 0600},
};

START_TEST(an_object_says_its_mode)
{
    const struct object obj = {
        .size = modes[_i].size,
        .mtime_ns = T,
        .attrs_known = true,
        .attrs = {.has = ATTR_MODE | ATTR_OWNER, .mode = modes[_i].claimed, .uid = 7, .gid = 8},
    };

    node_apply_attrs(c, n, &obj);
    ck_assert_uint_eq(n->mode, modes[_i].mode);
    ck_assert(n->uid == 7 && n->gid == 8);
    ck_assert(n->mtime_ns == T && n->ctime_ns == T);
    ck_assert(node_attrs_known(n));
    n->flags |= NODE_ATTRS_OLD;
    ck_assert(!node_attrs_known(n));
    node_attrs_are_known(n);
    ck_assert(node_attrs_known(n));
}
END_TEST

START_TEST(a_listing_without_attributes_leaves_them_to_be_asked_for)
{
    const struct object obj = {.size = 5, .mtime_ns = T};

    n->mode = S_IFREG | 0600;
    node_apply_attrs(c, n, &obj);
    ck_assert_uint_eq(n->mode, S_IFREG | 0644);
    ck_assert_uint_eq(n->size, 5);
    ck_assert(!node_attrs_known(n));
}
END_TEST

static const struct {
    int64_t ns;
    int64_t sec;
    long nsec;
} times[] = {
    {0, 0, 0},
    {1, 0, 1},
    {NS_PER_SEC + 1, 1, 1},
    {-1, -1, 999999999},
    {-NS_PER_SEC, -1, 0},
    {-NS_PER_SEC - 1, -2, 999999999},
};

START_TEST(nanoseconds_count_forward_before_1970)
{
    struct timespec t = timespec_of(times[_i].ns);

    ck_assert_int_eq(t.tv_sec, times[_i].sec);
    ck_assert_int_eq(t.tv_nsec, times[_i].nsec);
}
END_TEST

/* ---- names that say something ---- */

static const struct {
    const char *path;
    bool staged, log;
} classes[] = {
    {"model.pt", false, false},
    {"model.pt.tmp", true, false},
    {"tmp-5/model.pt", true, false},
    {"a/.model.tmp3/x", true, false},
    {"run/events.out.tfevents.1", false, true},
    {"logs/a/b", false, true},
    {"train.log", false, true},
    {"catalogs/a", false, false},
    {"", false, false},
};

START_TEST(a_path_says_what_its_file_is)
{
    static const char *const own[] = {"*.part", NULL};

    ck_assert_int_eq(path_is_staged(c, classes[_i].path), classes[_i].staged);
    ck_assert_int_eq(path_is_log(c, classes[_i].path), classes[_i].log);
    c->config.staging = c->config.logs = own;
    ck_assert(!path_is_staged(c, classes[_i].path) && !path_is_log(c, classes[_i].path));
    ck_assert(path_is_staged(c, "d/x.part") && path_is_log(c, "x.part/f"));
}
END_TEST

Suite *version_suite(void)
{
    Suite *s = suite_create("version");
    TCase *t = tcase_create("version");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_listing_shows_what_moved, 0, ARRAY_SIZE(listings));
    tcase_add_test(t, who_is_told_later_knows_the_last_of_its_second);
    tcase_add_loop_test(t, an_object_says_its_mode, 0, ARRAY_SIZE(modes));
    tcase_add_test(t, a_listing_without_attributes_leaves_them_to_be_asked_for);
    tcase_add_loop_test(t, nanoseconds_count_forward_before_1970, 0, ARRAY_SIZE(times));
    tcase_add_loop_test(t, a_path_says_what_its_file_is, 0, ARRAY_SIZE(classes));
    suite_add_tcase(s, t);
    return s;
}
