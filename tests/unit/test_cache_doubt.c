/* cache/: a removal takes the version that it means, and none that came later: from another
 * node, or from this one after an attempt that failed. */
#include "common/mem.h"
#include "tests/lib/doubtful_puts.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static void theirs_to_f(void)
{
    driven_store(&d, "f", "theirs", 6);
}

/* ---- other nodes ---- */

START_TEST(a_version_of_another_node_stays)
{
    struct cache_stats s;
    struct stat st;

    driven_mount(&d);
    driven_put(&d, "f", "mine", 4);
    driven_put(&d, "g", "mine", 4);
    driven_put(&d, "h", "mine", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    before_removal = theirs_to_f;
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    ck_assert_int_eq(driven_unlink(&d, "g"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "theirs");
    driven_stores(&d, "g", NULL);
    cache_get_stats(d.cache, &s);
    ck_assert_int_eq(s.last_error, -ESTALE);
    ck_assert_msg(strstr(s.last_error_text, "f was removed here") != NULL, "%s",
                  s.last_error_text);
    ck_assert_uint_eq(s.pending_ops, 0);
    DRIVEN_WAIT(driven_stat(&d, "f", &st) == 0); /* at the next listing */
    driven_shows(&d, "f", "theirs");
    ck_assert_int_eq(driven_unlink(&d, "f"), 0); /* which removes that one */
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", NULL);
}
END_TEST

/* What was renamed is removed in the version that was copied. */
START_TEST(a_source_that_was_replaced_stays)
{
    driven_mount(&d);
    driven_put(&d, "f", "mine", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    before_removal = theirs_to_f;
    ck_assert_int_eq(driven_rename(&d, "f", "g"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "theirs");
    driven_stores(&d, "g", "mine");
}
END_TEST

/* A store that refuses a condition is known to know none only when it refuses it again, and
 * takes the same without. */
START_TEST(a_refusal_of_something_else_keeps_the_conditions)
{
    d.config.settle_ns = 10 * NS_PER_SEC; /* only the flush uploads */
    driven_mount(&d);
    atomic_store(&put_refusals, 3); /* with the condition, and without: it is not that */
    driven_put(&d, "f", "mine", 4);
    ck_assert_int_lt(driven_flush(&d), 0);
    ck_assert_int_eq(atomic_load(&put_with_condition), 0);
    DRIVEN_WAIT(has("f", "mine")); /* the next attempt */
    ck_assert_int_eq(atomic_load(&put_with_condition), 1);
    atomic_store(&put_refusals, 1); /* by something in between */
    driven_put(&d, "g", "mine", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "g", "mine");
    ck_assert_int_eq(atomic_load(&put_with_condition), 1);
    atomic_store(&put_refusals, 2);
    driven_put(&d, "h", "mine", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "h", "mine");
    ck_assert_int_eq(atomic_load(&put_with_condition), 0);
    driven_put(&d, "i", "mine", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "i", "mine");
    ck_assert_int_eq(atomic_load(&put_with_condition), 0); /* remembered */
}
END_TEST

/* What is sent without a condition is looked at first: the version of another node stays, when
 * the refusal is learned and after that. */
START_TEST(a_version_of_another_node_stays_without_conditions)
{
    struct cache_stats s;

    d.config.settle_ns = 10 * NS_PER_SEC;
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 60 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, "f", "first", 5);
    driven_put(&d, "g", "first", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    for (unsigned i = 1; i <= 2; i++) {
        const char *name = i == 1 ? "f" : "g";

        driven_store(&d, name, "theirs", 6);
        atomic_store(&put_refusals, i == 1 ? 2 : 0);
        driven_put(&d, name, "mine", 4);
        (void)driven_flush(&d);
        driven_stores(&d, name, "theirs");
        /* It is told a moment before it is set aside. */
        DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.kept_files == i));
        atomic_store(&put_refusals, i == 1 ? 2 : 0);
        driven_put(&d, "other", "mine", 4); /* nobody's: taken without */
        ck_assert_int_eq(driven_flush(&d), 0);
        ck_assert_int_eq(atomic_load(&put_with_condition), 0);
    }
}
END_TEST

/* ---- this node ---- */

static void doubt_put_of_f(void)
{
    struct mem_source src;
    struct op op;

    op_init(&op, 5 * NS_PER_SEC);
    mem_source_init(&src, "late", 4);
    ck_assert_int_eq(store_put(d.store->next, &op, "f", NULL, &src.base, &put_attrs, NULL), 0);
}

START_TEST(its_own_later_version_goes)
{
    driven_mount(&d);
    driven_put(&d, "f", "mine", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    before_removal = doubt_put_of_f;
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", NULL);
}
END_TEST

/* A name that a pending rename brings has, once it is there, another version than it had. */
START_TEST(what_a_rename_brought_goes)
{
    driven_store(&d, "dir/f", "mine", 4);
    driven_mount(&d);
    driven_put(&d, "f", "mine", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refused, CALL_COPY);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    ck_assert_int_eq(driven_rename(&d, "f", "g"), 0);
    ck_assert_int_eq(driven_unlink(&d, "moved/f"), 0);
    ck_assert_int_eq(driven_unlink(&d, "g"), 0);
    refuse_no_more();
    DRIVEN_WAIT(driven_flush(&d) == 0); /* one may end by a refusal that was under way */
    driven_stores(&d, "f", NULL);
    driven_stores(&d, "g", NULL);
    driven_stores(&d, "dir/f", NULL);
    driven_stores(&d, "moved/f", NULL);
}
END_TEST

/* ---- a failed attempt ---- */

/* x is new here, its upload failed, and another node puts its own version there. */
static struct handle *fail_to_put_x(bool hold)
{
    struct cache_stats s;
    struct handle *h = NULL;

    if (hold)
        d.config.upload_interval_ns = 100 * NS_PER_MS;
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, ""), 0);
    atomic_store(&refused, CALL_PUT);
    atomic_store(&puts_wait, !hold); /* else the close may tell of the failure */
    ck_assert_int_eq(driven_open(&d, "x.log", O_WRONLY | O_CREAT, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "mine", 4, 0), 0);
    if (!hold)
        ck_assert_int_eq(driven_close(&d, h), 0);
    atomic_store(&puts_wait, false);
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.failed_files == 1));
    driven_store(&d, "x.log", "theirs", 6);
    return h;
}

START_TEST(a_failed_upload_is_not_repeated_over_another_node)
{
    struct cache_stats s;

    (void)fail_to_put_x(false);
    atomic_store(&refused, -1);
    (void)driven_flush(&d); /* tells of it, unless it has lost before */
    driven_stores(&d, "x.log", "theirs");
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.kept_files == 1)); /* told a moment before */
    DRIVEN_WAIT(driven_list(&d, "") == 1);
    driven_shows(&d, "x.log", "theirs");
}
END_TEST

START_TEST(nor_that_of_an_open_file)
{
    struct cache_stats s;
    struct handle *h = fail_to_put_x(true);

    atomic_store(&refused, -1);
    /* First it is seen, then it is tried again. */
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.last_error == -ESTALE));
    (void)usleep(4500000);
    driven_stores(&d, "x.log", "theirs");
    ck_assert_int_eq(driven_close(&d, h), -ESTALE);
    (void)driven_flush(&d);
    driven_stores(&d, "x.log", "theirs");
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.kept_files == 1)); /* told a moment before */
}
END_TEST

/* What goes here is what was put from here, if it got there. */
START_TEST(a_removal_after_a_failed_upload_is_not_of_another_node)
{
    (void)fail_to_put_x(false);
    if (_i == 0)
        ck_assert_int_eq(driven_unlink(&d, "x.log"), 0);
    else
        ck_assert_int_eq(driven_rename(&d, "x.log", "y.log"), 0);
    if (_i == 2) { /* the row is read from the journal */
        driven_unmount(&d);
        driven_mount(&d);
    }
    refuse_no_more();
    DRIVEN_WAIT(driven_flush(&d) == 0); /* one may end by a refusal that was under way */
    driven_stores(&d, "x.log", "theirs");
    driven_stores(&d, "y.log", _i == 0 ? NULL : "mine");
}
END_TEST

/* A file goes up while its directory gets another name, and what is copied there is the version
 * that came so. It is this mount's own: replaced or removed under its new name like any. */
START_TEST(what_came_while_its_directory_was_renamed)
{
    struct cache_stats s;

    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/f", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&held, HELD_NEXT);
    driven_put(&d, "dir/f", "newer", 5);
    DRIVEN_WAIT(atomic_load(&held) == HELD_ONE);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    if (_i == 2)
        atomic_store(&refused, CALL_PUT);
    if (_i == 1) {
        driven_put(&d, "moved/f", "newest", 6);
    } else {
        driven_put(&d, "x.tmp", "newest", 6);
        ck_assert_int_eq(driven_rename(&d, "x.tmp", "moved/f"), 0);
    }
    atomic_store(&held, HELD_NONE);
    if (_i == 2) { /* it is not stored anew under its new name before it goes */
        DRIVEN_WAIT(has("moved/f", "newer"));
        (void)usleep(50000);
        ck_assert_int_eq(driven_unlink(&d, "moved/f"), 0);
        refuse_no_more();
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "moved/f", _i == 2 ? NULL : "newest");
    driven_stores(&d, "dir/f", NULL);
    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.kept_files, 0);
}
END_TEST

static int lost_answers; /* puts that the store takes */

static int64_t lose_answers(struct layer *l, struct call *c)
{
    (void)l;
    int64_t r = call_next(c);

    if (c->kind == CALL_PUT && r >= 0 && lost_answers > 0) {
        lost_answers--;
        return op_fail(c->op, -EIO, "put %s: the answer was lost", c->key);
    }
    return r;
}

START_TEST(an_upload_whose_answer_was_lost_is_known_again)
{
    struct cache_stats s;
    struct driven e;
    char buf[16];

    lost_answers = 1;
    driven_init_like_s3(&e, lose_answers);
    e.config.late_ns = NS_PER_SEC / 2;
    e.config.retry_ns = 30 * NS_PER_SEC; /* it has failed until the flush */
    driven_mount(&e);
    ck_assert_int_eq(driven_list(&e, ""), 0);
    driven_put(&e, "x", "mine", 4);
    DRIVEN_WAIT((cache_get_stats(e.cache, &s), s.failed_files == 1));
    if (_i == 1)
        ck_assert_int_eq(driven_unlink(&e, "x"), 0);
    ck_assert_int_eq(driven_flush(&e), 0);
    ck_assert_int_eq(driven_stored(&e, "x", buf, sizeof(buf)), _i == 0 ? 4 : -ENOENT);
    cache_get_stats(e.cache, &s);
    ck_assert_uint_eq(s.kept_files, 0);
    driven_release(&e);
}
END_TEST

/* The version that an older removal is to take is nobody else's. */
START_TEST(a_removal_of_what_was_put_since_comes_after_an_older_one)
{
    struct cache_stats s;

    driven_mount(&d);
    driven_put(&d, "f", "mine", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d); /* what it put is known for this cache's own by the stamp alone then */
    driven_mount(&d);
    atomic_store(&refused, CALL_REMOVE);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    atomic_store(&puts_wait, true);
    driven_put(&d, "f", "newer", 5);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "uploading") == 0);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    driven_unmount(&d);
    atomic_store(&puts_wait, false);
    atomic_store(&refused, -1);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", NULL);
    cache_get_stats(d.cache, &s);
    ck_assert_msg(s.last_error == 0, "%s", s.last_error_text);
}
END_TEST

/* A name that was removed here and made again replaces what it means to replace. */
START_TEST(what_is_made_again_does_not_replace_another_node_s)
{
    struct cache_stats s;

    driven_mount(&d);
    driven_put(&d, "f", "mine", 4);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refused, CALL_REMOVE);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.last_error == -EACCES));
    if (_i == 1)
        theirs_to_f();
    driven_put(&d, "f", "again", 5);
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.dirty_files == 0));
    atomic_store(&refused, -1);
    DRIVEN_WAIT(driven_flush(&d) == 0); /* one may end by a refusal that was under way */
    driven_stores(&d, "f", _i == 1 ? "theirs" : "again");
    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.kept_files, _i == 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_doubt");
    TCase *t = tcase_create("removals");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_version_of_another_node_stays);
    tcase_add_test(t, a_source_that_was_replaced_stays);
    tcase_add_test(t, a_refusal_of_something_else_keeps_the_conditions);
    tcase_add_test(t, a_version_of_another_node_stays_without_conditions);
    tcase_add_test(t, its_own_later_version_goes);
    tcase_add_test(t, what_a_rename_brought_goes);
    tcase_add_test(t, a_failed_upload_is_not_repeated_over_another_node);
    tcase_add_test(t, nor_that_of_an_open_file);
    tcase_add_loop_test(t, a_removal_after_a_failed_upload_is_not_of_another_node, 0, 3);
    tcase_add_loop_test(t, what_came_while_its_directory_was_renamed, 0, 3);
    tcase_add_loop_test(t, an_upload_whose_answer_was_lost_is_known_again, 0, 2);
    tcase_add_test(t, a_removal_of_what_was_put_since_comes_after_an_older_one);
    tcase_add_loop_test(t, what_is_made_again_does_not_replace_another_node_s, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
