/* cache/: content that leaves because somebody says so, and what the store has of a path. */
#include "cache/cache.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES (1 << 16)

static struct driven d;
static atomic_bool refuses; /* the store takes nothing */
static atomic_uint reads;
static struct handle *_Atomic closes; /* by the next upload, when the store has it; or NULL */

/* The program's close comes behind the store's answer, and before the end of the upload. */
static int64_t put_and_close(struct call *c)
{
    struct handle *h = atomic_exchange(&closes, NULL);
    int64_t r = call_next(c);

    if (h)
        ck_assert_int_eq(driven_close(&d, h), 0);
    return r;
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_READ)
        atomic_fetch_add(&reads, 1);
    bool changes = c->kind != CALL_READ && c->kind != CALL_STAT && c->kind != CALL_LIST;
    if (changes && atomic_load(&refuses))
        return op_fail(c->op, -EHOSTUNREACH, "the store is away");
    return c->kind == CALL_PUT ? put_and_close(c) : call_next(c);
}

static void setup(void)
{
    atomic_store(&refuses, false);
    atomic_store(&reads, 0);
    driven_init(&d, around);
    driven_mount(&d);
}

static void teardown(void)
{
    atomic_store(&refuses, false);
    driven_release(&d);
}

static void put(const char *path)
{
    static char data[FILE_BYTES];

    memset(data, 'x', sizeof(data));
    driven_put(&d, path, data, sizeof(data));
}

static void reads_back(const char *path)
{
    char back[64];

    ck_assert_int_eq(driven_read(&d, path, back, sizeof(back)), sizeof(back));
    ck_assert_int_eq(back[sizeof(back) - 1], 'x');
}

/* ---- eviction ---- */

struct stays {
    char text[256]; /* "path why," */
};

static void note(void *arg, const char *path, enum cache_stay why)
{
    static const char *const names[] = {"dirty", "pinned", "used"};
    struct stays *s = arg;
    size_t len = strlen(s->text);

    (void)snprintf(s->text + len, sizeof(s->text) - len, "%s %s,", path, names[why]);
}

static struct cache_evicted evict(const char *path, const char *stays)
{
    struct stays s = {""};
    struct cache_evicted e;
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_msg(cache_evict_path(d.cache, path, &op, note, &s, &e) == 0, "%s", op.why);
    ck_assert_str_eq(s.text, stays);
    return e;
}

static uint64_t used(void)
{
    struct cache_stats s;

    cache_get_stats(d.cache, &s);
    return s.used_bytes;
}

START_TEST(clean_content_leaves_and_comes_back)
{
    ck_assert_int_eq(driven_mkdir(&d, "a"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "a/b"), 0);
    put("a/f");
    put("a/b/g");
    put("h");
    ck_assert_int_eq(driven_flush(&d), 0);
    uint64_t before = used();
    struct cache_evicted e = evict("a", "");
    ck_assert_uint_eq(e.files, 2);
    ck_assert_uint_ge(e.bytes, 2 * FILE_BYTES);
    ck_assert_uint_le(used(), before - 2 * FILE_BYTES);
    unsigned seen = atomic_load(&reads);
    reads_back("h"); /* it stayed */
    ck_assert_uint_eq(atomic_load(&reads), seen);
    reads_back("a/b/g");
    ck_assert_uint_gt(atomic_load(&reads), seen);
    ck_assert_uint_eq(evict("nothing", "").files, 0);
    ck_assert_uint_eq(evict("", "").stay[CACHE_STAYS_DIRTY], 0);
}
END_TEST

START_TEST(what_the_store_lacks_stays)
{
    put("stored");
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refuses, true);
    put("new");
    ck_assert_int_eq(driven_chmod(&d, "stored", 0600), 0);
    struct cache_evicted e = evict("new", "new dirty,");
    ck_assert_uint_eq(e.files, 0);
    ck_assert_uint_eq(e.stay[CACHE_STAYS_DIRTY], 1);
    evict("stored", "stored dirty,");
    reads_back("new");
}
END_TEST

static void make_empty(const char *path)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(&d, path, O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
}

/* As `_SUCCESS`, or a lock. One that the store has gives nothing, and nothing is told of it. */
START_TEST(an_empty_file_that_the_store_lacks_is_told)
{
    make_empty("stored");
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refuses, true);
    make_empty("new");
    struct cache_evicted e = evict("new", "new dirty,");
    ck_assert_uint_eq(e.files, 0);
    ck_assert_uint_eq(e.stay[CACHE_STAYS_DIRTY], 1);
    ck_assert_int_eq(cache_pin(d.cache, "stored", true), 0);
    ck_assert_uint_eq(evict("stored", "").files, 0);
}
END_TEST

START_TEST(pinned_and_open_content_stays)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_mkdir(&d, "p"), 0);
    put("p/pinned");
    put("open");
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(cache_pin(d.cache, "p", true), 0);
    ck_assert_int_eq(driven_open(&d, "open", O_RDONLY, &h), 0);
    ck_assert_uint_eq(evict("p", "p/pinned pinned,").stay[CACHE_STAYS_PINNED], 1);
    ck_assert_uint_eq(evict("open", "open used,").stay[CACHE_STAYS_USED], 1);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_uint_eq(evict("open", "").files, 1);
    ck_assert_int_eq(cache_pin(d.cache, "p", false), 0);
    ck_assert_uint_eq(evict("p", "").files, 1);
    reads_back("p/pinned");
}
END_TEST

/* It was open when a flush sent it, and is looked at once more for that. */
START_TEST(what_was_open_while_it_went_up_leaves)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(&d, "x.log", O_CREAT | O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "text", 4, 0), 0);
    atomic_store(&closes, h);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_ptr_null(atomic_load(&closes));
    ck_assert_uint_eq(evict("x.log", "").files, 1);
}
END_TEST

/* ---- what is stored ---- */

static int stored(const char *path)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    int r = cache_stored_path(d.cache, path, &op);
    ck_assert(r == 0 || r == -ENOENT || op.why[0]);
    return r;
}

START_TEST(content_is_stored_when_it_is_there)
{
    atomic_store(&refuses, true);
    ck_assert_int_eq(driven_mkdir(&d, "a"), 0);
    put("a/f");
    ck_assert_int_eq(driven_symlink(&d, "f", "a/link"), 0);
    ck_assert_int_eq(stored("a/f"), -EBUSY);
    ck_assert_int_eq(stored("a/link"), -EBUSY);
    ck_assert_int_eq(stored("a/none"), -ENOENT);
    ck_assert_int_eq(stored(""), 0);
    atomic_store(&refuses, false);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    ck_assert_int_eq(stored("a/f"), 0);
    ck_assert_int_eq(stored("a/link"), 0);
    ck_assert_int_eq(stored("a"), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(stored("a/f"), 0);
}
END_TEST

static bool upload_fails(const char *path)
{
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    return cache_stored_path(d.cache, path, &op) == -EBUSY && strstr(op.why, "upload fails");
}

/* Its marker failed, and then a file in it stood for it. */
START_TEST(a_directory_is_stored_when_its_names_are)
{
    ck_assert_int_eq(driven_mkdir(&d, "a"), 0);
    atomic_store(&refuses, true);
    ck_assert_int_eq(driven_mkdir(&d, "a/b"), 0);
    DRIVEN_WAIT(upload_fails("a/b"));
    put("a/b/f");
    atomic_store(&refuses, false);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    ck_assert(!upload_fails("a/b"));
    ck_assert_int_eq(stored("a/b"), 0);
}
END_TEST

START_TEST(a_name_is_stored_when_its_rename_is_carried_out)
{
    ck_assert_int_eq(driven_mkdir(&d, "a"), 0);
    put("a/f");
    put("g");
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refuses, true);
    ck_assert_int_eq(driven_rename(&d, "g", "h"), 0);
    ck_assert_int_eq(driven_rename(&d, "a", "b"), 0);
    ck_assert_int_eq(driven_link(&d, "h", "i"), 0);
    ck_assert_int_eq(stored("h"), -EBUSY);
    ck_assert_int_eq(stored("i"), -EBUSY);
    ck_assert_int_eq(stored("b"), -EBUSY);
    ck_assert_int_eq(stored("b/f"), -EBUSY);
    atomic_store(&refuses, false);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    ck_assert_int_eq(stored("h"), 0);
    ck_assert_int_eq(stored("i"), 0);
    ck_assert_int_eq(stored("b/f"), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_evict");
    TCase *t = tcase_create("cache_evict");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, clean_content_leaves_and_comes_back);
    tcase_add_test(t, what_the_store_lacks_stays);
    tcase_add_test(t, an_empty_file_that_the_store_lacks_is_told);
    tcase_add_test(t, pinned_and_open_content_stays);
    tcase_add_test(t, what_was_open_while_it_went_up_leaves);
    tcase_add_test(t, content_is_stored_when_it_is_there);
    tcase_add_test(t, a_directory_is_stored_when_its_names_are);
    tcase_add_test(t, a_name_is_stored_when_its_rename_is_carried_out);
    suite_add_tcase(s, t);
    return suite_run(s);
}
