/* cache/: a name takes the path of another that has moved on while the store was away: each is
 * known by what it is itself. */
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

static struct driven d;
static atomic_bool away; /* the store refuses all changes */

static int64_t while_away(struct layer *l, struct call *c)
{
    bool changes = c->kind == CALL_PUT || c->kind == CALL_COPY || c->kind == CALL_RENAME ||
                   c->kind == CALL_REMOVE;

    (void)l;
    return changes && atomic_load(&away) ? op_fail(c->op, -EIO, "it is away") : call_next(c);
}

/* A name that comes to the path of a name that has moved on takes nothing of what is known of
 * that: it was written here alone, and a mount that finds both keeps nothing aside. */
START_TEST(both_are_known_after_a_kill_when_one_took_the_path_of_the_other)
{
    struct cache_stats s;

    (_i ? driven_init_like_s3 : driven_init)(&d, while_away);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    driven_put(&d, "d/a", "1", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d); /* it is nobody's by now */
    driven_shows(&d, "d/a", "1");
    atomic_store(&away, true);
    driven_put(&d, "d/a", "2", 1);
    ck_assert_int_eq(driven_link(&d, "d/a", "x"), 0);
    ck_assert_int_eq(driven_rename(&d, "d", "f"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    ck_assert_int_eq(driven_rename(&d, "x", "d/a"), 0);
    driven_unmount(&d);
    atomic_store(&away, false);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f/a", "2");
    driven_stores(&d, "d/a", "2");
    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.kept_files, 0);
    driven_release(&d);
}
END_TEST

static bool lies_somewhere(const char *text)
{
    static const char *const keys[] = {"d/a", "f/a"};
    char buf[64];
    bool found = false;

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        ssize_t n = driven_stored(&d, keys[i], buf, sizeof(buf));
        found |= n == (ssize_t)strlen(text) && memcmp(buf, text, (size_t)n) == 0;
    }
    return found;
}

/* The same over a file that a rename is to bring there: what the name that has moved on is to
 * replace stays known. After the kill the next mount removes no other version for it. (Where a
 * rename is a copy, that of `y` replaces what lies at `d/a`, whoever put it.) */
START_TEST(what_the_other_is_to_replace_is_known_after_a_kill)
{
    struct cache_stats s;

    driven_init(&d, while_away);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    driven_put(&d, "d/a", "1", 1);
    driven_put(&d, "y", "y", 1);
    ck_assert_int_eq(driven_link(&d, "d/a", "x"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&away, true);
    driven_put(&d, "d/a", "2", 1);
    ck_assert_int_eq(driven_rename(&d, "d", "f"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    ck_assert_int_eq(driven_rename(&d, "y", "d/a"), 0);
    ck_assert_int_eq(driven_rename(&d, "x", "d/a"), 0);
    driven_unmount(&d);
    atomic_store(&away, false);
    driven_store(&d, "d/a", "theirs", 6);
    driven_mount(&d);
    (void)driven_flush(&d);
    (void)driven_flush(&d);
    cache_get_stats(d.cache, &s);
    ck_assert(lies_somewhere("theirs"));
    ck_assert_uint_eq(s.kept_files, 1);
    driven_release(&d);
}
END_TEST

/* Two renames of what another node has removed meanwhile, the second below the directory that
 * took its old name, which is renamed as well. What is uploaded then lies where it is called.
 */
START_TEST(what_is_gone_at_the_store_lies_nowhere_else)
{
    const char *key = "5";
    struct op op;

    (_i ? driven_init_like_s3 : driven_init)(&d, while_away);
    driven_mount(&d);
    driven_put(&d, "5", "1", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&away, true);
    ck_assert_int_eq(driven_mkdir(&d, "h"), 0);
    ck_assert_int_eq(driven_exchange(&d, "5", "h"), 0);
    driven_put(&d, "5/in", "x", 1);
    ck_assert_int_eq(driven_exchange(&d, "h", "5"), 0);
    ck_assert_int_eq(driven_rename(&d, "5", "h/5"), 0);
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(store_remove(d.store->next, &op, &key, NULL, 1, NULL), 0);
    atomic_store(&away, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_flush(&d), 0); /* what turned out to be gone is owed since then */
    driven_stores(&d, "h/5", "1");
    driven_stores(&d, "h/in", "x");
    ck_assert_int_eq(cache_stored_path(d.cache, "h/5", &op), 0);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_path_taken");
    TCase *t = tcase_create("cache_path_taken");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, both_are_known_after_a_kill_when_one_took_the_path_of_the_other, 0,
                        2);
    tcase_add_test(t, what_the_other_is_to_replace_is_known_after_a_kill);
    tcase_add_loop_test(t, what_is_gone_at_the_store_lies_nowhere_else, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
