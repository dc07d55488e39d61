/* cache/: the view of a deletion lock (docs/locks.md): what is there, and what was removed,
 * replaced or moved since. */
#include "tests/lib/lock_stories.h"
#include "tests/lib/suite.h"

static void woken(struct waiter *w, int err)
{
    (void)w, (void)err;
}

/* Calls that may park, made again until they do not. */
#define UNPARKED(r, call)                                                                      \
    do {                                                                                       \
        struct waiter waiter_ = {.wake = woken}, *w = &waiter_;                                \
        while (((r) = (call)) == CACHE_PARKED) {                                               \
            (void)usleep(20000);                                                               \
            (void)cache_cancel(d.cache, w);                                                    \
        }                                                                                      \
    } while (0)

/* Fails unless the view shows this text, of up to 63 bytes, at the path; NULL: nothing. */
static void view_shows(uint64_t id, const char *rel, const char *wanted)
{
    struct node *n = NULL;
    struct handle *h;
    char buf[64] = "";
    int r;

    UNPARKED(r, cache_locked_node(d.cache, id, rel, w, &n));
    if (!wanted) {
        ck_assert_int_eq(r, -ENOENT);
        return;
    }
    ck_assert_msg(r == 0, "%s: %d", rel, r);
    UNPARKED(r, cache_open(d.cache, n, O_RDONLY, w, &h));
    ck_assert_msg(r == 0, "%s: %d", rel, r);
    ssize_t len = driven_pread(&d, h, buf, sizeof(buf) - 1, 0);
    ck_assert_int_ge(len, 0);
    ck_assert_str_eq(buf, wanted);
    ck_assert_int_eq(driven_close(&d, h), 0);
    cache_forget(d.cache, n, 1);
}

static int add_to_text(void *arg, const char *name, uint32_t mode)
{
    char *text = arg;

    if (!strstr(text, name))
        (void)strcat(strcat(strcat(text, name), S_ISDIR(mode) ? "/" : ""), " ");
    return 0;
}

static void view_lists(uint64_t id, const char *rel, const char *wanted)
{
    char text[200];
    int r;

    UNPARKED(r, (*text = 0, cache_locked_list(d.cache, id, rel, w, add_to_text, text)));
    ck_assert_int_eq(r, 0);
    ck_assert_str_eq(text, wanted);
}

START_TEST(what_was_removed)
{
    make_tree();
    put("d/c", "stays");
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d); /* the store alone has it */
    uint64_t id = lock("d", false, getpid());
    view_shows(id, "a", "of a");
    ck_assert_int_eq(driven_unlink(&d, "d/a"), 0);
    ck_assert_int_eq(driven_unlink(&d, "d/sub/b"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "d/sub"), 0);
    view_shows(id, "a", "of a");
    view_shows(id, "sub/b", "of b");
    view_shows(id, "c", "stays");
    view_shows(id, "none", NULL);
    view_lists(id, "", "a sub/ c ");
    view_lists(id, "sub", "b ");
    put("d/a", "anew"); /* is another file */
    view_shows(id, "a", "of a");
    put("d/new", "later");
    view_shows(id, "new", "later");
    uint64_t late = lock("d", false, getpid());
    view_shows(late, "a", "anew"); /* what it found */
    view_shows(late, "sub/b", NULL);
    unlock(late);
    unlock(id);
    struct node *n;
    struct waiter w = {.wake = woken};
    ck_assert_int_eq(cache_locked_node(d.cache, id, "a", &w, &n), -ENOENT);
}
END_TEST

START_TEST(what_is_moved)
{
    make_tree();
    uint64_t id = lock("d", false, getpid());
    ck_assert_int_eq(driven_rename(&d, "d/a", "out"), 0);
    view_shows(id, "a", "of a");
    view_lists(id, "", "a sub/ ");
    ck_assert_int_eq(driven_rename(&d, "d", "e"), 0);
    view_shows(id, "sub/b", "of b");
    ck_assert_int_eq(driven_unlink(&d, "e/sub/b"), 0);
    ck_assert_int_eq(driven_unlink(&d, "out"), 0);
    view_shows(id, "sub/b", "of b");
    view_shows(id, "a", "of a");
    view_lists(id, "", "a sub/ ");
    view_lists(id, "sub", "b ");
    put("over", "over it");
    put("e/c", "replaced");
    uint64_t file = lock("e/c", false, getpid());
    ck_assert_int_eq(driven_rename(&d, "over", "e/c"), 0);
    view_shows(file, "", "replaced");
    unlock(file);
    unlock(id);
}
END_TEST

START_TEST(nothing_later_for_what_was_moved)
{
    make_tree();
    if (_i)
        driven_mount_afresh(&d); /* the store alone has it */
    uint64_t id = lock("d", false, getpid());
    ck_assert_int_eq(driven_rename(&d, "d", "e"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    put("d/a", "anew");
    view_shows(id, "a", "of a");
    ck_assert_int_eq(driven_unlink(&d, "d/a"), 0);
    view_shows(id, "a", "of a");
    ck_assert_int_eq(driven_unlink(&d, "e/a"), 0);
    put("e/a", "anew");
    view_shows(id, "a", "of a");
    view_shows(id, "sub/b", "of b");
    unlock(id);
}
END_TEST

START_TEST(what_is_moved_within)
{
    make_tree();
    uint64_t id = lock("d", false, getpid());
    ck_assert_int_eq(driven_rename(&d, "d/a", "d/sub/c"), 0);
    view_shows(id, "a", "of a");
    view_lists(id, "", "a sub/ ");
    put("d/a", "anew");
    view_shows(id, "a", "of a");
    put("d/.new", "new");
    ck_assert_int_eq(driven_rename(&d, "d/.new", "d/new"), 0);
    view_shows(id, "new", "new");
    view_shows(id, ".new", NULL); /* nobody found it there */
    ck_assert_int_eq(driven_rename(&d, "d/sub", "d/other"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "d/sub"), 0);
    put("d/sub/b", "anew");
    put("d/sub/c", "anew");
    view_shows(id, "a", "of a");
    view_shows(id, "sub/b", "of b");
    ck_assert_int_eq(driven_rename(&d, "d/a", "d/other/c"), 0); /* over it */
    ck_assert_int_eq(driven_unlink(&d, "d/other/b"), 0);
    view_shows(id, "a", "of a");
    view_shows(id, "sub/b", "of b");
    unlock(id);
}
END_TEST

START_TEST(an_exchange)
{
    make_tree();
    ck_assert_int_eq(driven_mkdir(&d, "x"), 0);
    put("x/a", "of x");
    put("x/sub", "no directory");
    uint64_t id = lock("d", false, getpid()), of_x = lock("x/a", false, getpid());
    ck_assert_int_eq(driven_exchange(&d, "x", "d"), 0);
    view_shows(id, "a", "of a");
    view_shows(id, "sub/b", "of b");
    view_shows(of_x, "", "of x");
    ck_assert_int_eq(driven_unlink(&d, "d/a"), 0);
    ck_assert_int_eq(driven_unlink(&d, "x/a"), 0);
    view_shows(id, "a", "of a");
    view_shows(of_x, "", "of x");
    unlock(id);
    unlock(of_x);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_lock_views");
    TCase *t = tcase_create("cache_lock_views");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, what_was_removed);
    tcase_add_test(t, what_is_moved);
    tcase_add_loop_test(t, nothing_later_for_what_was_moved, 0, 2);
    tcase_add_test(t, what_is_moved_within);
    tcase_add_test(t, an_exchange);
    suite_add_tcase(s, t);
    return suite_run(s);
}
