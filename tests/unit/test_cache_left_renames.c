/* cache/: renames of stored files that a killed daemon had not carried out, and what another
 * node put under the new name before the next mount: that stays, and so does the file. */
#include "tests/lib/left_owed.h"
#include "tests/lib/some.h"
#include "tests/lib/suite.h"

/* ---- renames of what is stored ---- */

/* To a name that is free, and over another file. */
static const char *const targets[] = {"a/d/g", "a/d/beside"};

static void rename_while_away(const char *to)
{
    atomic_store(&away, true);
    ck_assert_int_eq(driven_rename(d, "a/d/f", to), 0);
}

START_TEST(a_rename_is_carried_out)
{
    const char *to = targets[_i >= KINDS];

    begin(_i % KINDS);
    rename_while_away(to);
    killed();
    comes_back();
    stored(to, "one");
    stored("a/d/f", NULL);
    ck_assert_int_eq(stats().last_error, 0);
    end();
}
END_TEST

START_TEST(a_rename_replaces_nothing_that_came_since)
{
    const char *to = targets[_i >= KINDS];

    begin(_i % KINDS);
    rename_while_away(to);
    killed();
    theirs(to, "theirs");
    comes_back();
    driven_stores(d, to, "theirs");
    driven_stores(d, "a/d/f", "one");
    ck_assert_int_eq(stats().last_error, -ESTALE);
    DRIVEN_WAIT(driven_read(d, to, (char[8]){0}, 8) == 6);
    driven_shows(d, to, "theirs");
    driven_shows(d, "a/d/f", "one");
    /* The next mount knows no better. */
    killed();
    comes_back();
    driven_shows(d, to, "theirs");
    driven_shows(d, "a/d/f", "one");
    driven_stores(d, to, "theirs");
    end();
}
END_TEST

START_TEST(a_rename_that_was_carried_out_is_ours)
{
    const char *to = targets[_i >= KINDS];

    begin(_i % KINDS);
    atomic_store(&lost, true);
    ck_assert_int_eq(driven_rename(d, "a/d/f", to), 0);
    DRIVEN_WAIT(atomic_load(&away));
    killed();
    comes_back();
    stored(to, "one");
    stored("a/d/f", NULL);
    ck_assert_int_eq(stats().last_error, 0);
    end();
}
END_TEST

/* A link has no room to say who put it, nor has its copy. */
START_TEST(a_rename_of_a_link_that_was_carried_out_is_ours)
{
    auto_free char *target = NULL;
    struct stat st;

    begin(_i);
    ck_assert_int_eq(driven_symlink(d, "f", "a/d/link"), 0);
    ck_assert_int_eq(driven_flush(d), 0);
    atomic_store(&lost, true);
    ck_assert_int_eq(driven_rename(d, "a/d/link", "a/d/g"), 0);
    DRIVEN_WAIT(atomic_load(&away));
    killed();
    comes_back();
    ck_assert_int_eq(stats().last_error, 0);
    ck_assert_int_eq(driven_readlink(d, "a/d/g", &target), 0);
    ck_assert_str_eq(target, "f");
    ck_assert_int_eq(driven_stat(d, "a/d/link", &st), -ENOENT);
    driven_stores(d, "a/d/link", NULL);
    end();
}
END_TEST

/* What it replaces came there with its directory, by a rename that is not carried out either.
 */
START_TEST(a_rename_takes_the_place_of_what_is_renamed_before_it)
{
    const bool is_link = _i / (FOLDER_COPYING + 1) == 1;
    const bool is_changed = _i / (FOLDER_COPYING + 1) == 2;

    begin(_i % (FOLDER_COPYING + 1));
    ck_assert_int_eq(driven_mkdir(d, "a/d/sub"), 0);
    if (is_link)
        ck_assert_int_eq(driven_symlink(d, "old", "a/d/sub/x"), 0);
    else
        put("a/d/sub/x", "old");
    ck_assert_int_eq(driven_flush(d), 0);
    atomic_store(&away, true);
    ck_assert_int_eq(driven_rename(d, "a/d/sub", "a/d/new"), 0);
    if (is_changed)
        put("a/d/f", "two");
    rename_while_away("a/d/new/x");
    killed();
    comes_back();
    ck_assert_int_eq(stats().last_error, 0);
    stored("a/d/new/x", is_changed ? "two" : "one");
    stored("a/d/sub/x", NULL);
    stored("a/d/f", NULL);
    end();
}
END_TEST

START_TEST(a_rename_takes_the_place_of_what_was_removed)
{
    begin(_i);
    atomic_store(&away, true);
    ck_assert_int_eq(driven_unlink(d, "a/d/beside"), 0);
    rename_while_away("a/d/beside");
    killed();
    comes_back();
    stored("a/d/beside", "one");
    stored("a/d/f", NULL);
    ck_assert_int_eq(stats().last_error, 0);
    end();
}
END_TEST

/* Another file was just sent to the new name, and nobody heard of it. */
START_TEST(a_rename_takes_the_place_of_what_was_sent)
{
    begin(_i);
    atomic_store(&lost, true);
    put("a/d/beside", "sent");
    DRIVEN_WAIT(atomic_load(&away));
    rename_while_away("a/d/beside");
    killed();
    comes_back();
    stored("a/d/beside", "one");
    stored("a/d/f", NULL);
    ck_assert_int_eq(stats().last_error, 0);
    end();
}
END_TEST

/* What was changed since the rename goes up in place of the copy. */
START_TEST(a_renamed_file_that_was_changed_replaces_no_more)
{
    const bool conflict = _i >= KINDS;

    begin(_i % KINDS);
    rename_while_away("a/d/beside");
    put("a/d/beside", "two");
    killed();
    if (conflict)
        theirs("a/d/beside", "theirs");
    comes_back();
    if (conflict)
        lost_against("a/d/beside", "theirs", "two");
    else
        stored("a/d/beside", "two");
    driven_stores(d, "a/d/f", conflict ? "one" : NULL); /* the old name of a loser stays */
    end();
}
END_TEST

/* It is changed in the mount that finds the rename. */
START_TEST(a_renamed_file_that_is_changed_replaces_no_more)
{
    begin(_i);
    rename_while_away("a/d/beside");
    killed();
    theirs("a/d/beside", "theirs");
    atomic_store(&away, true);
    atomic_store(&blind, true);
    driven_mount(d);
    put("a/d/beside", "two");
    atomic_store(&blind, false);
    atomic_store(&away, false);
    DRIVEN_WAIT(driven_flush(d) == 0);
    lost_against("a/d/beside", "theirs", "two");
    end();
}
END_TEST

/* It was closed before the rename, and open then: it is sent in place of the copy. */
START_TEST(a_file_that_was_changed_and_open_comes)
{
    struct handle *h;

    begin(_i);
    atomic_store(&away, true);
    put("a/d/f", "two");
    ck_assert_int_eq(driven_open(d, "a/d/f", O_WRONLY | O_APPEND, &h), 0);
    rename_while_away("a/d/beside");
    ck_assert_int_eq(driven_close(d, h), 0);
    killed();
    comes_back();
    stored("a/d/beside", "two");
    end();
}
END_TEST

/* Nothing comes to the new name in the end: the old one goes, and theirs stays. */
START_TEST(a_renamed_file_that_was_removed_takes_nothing_along)
{
    begin(_i);
    rename_while_away("a/d/g");
    ck_assert_int_eq(driven_unlink(d, "a/d/g"), 0);
    killed();
    theirs("a/d/g", "theirs");
    comes_back();
    driven_stores(d, "a/d/g", "theirs");
    driven_stores(d, "a/d/f", NULL);
    end();
}
END_TEST

/* Two were renamed to one name. */
START_TEST(the_second_rename_replaces_no_more)
{
    const bool conflict = _i >= KINDS;

    begin(_i % KINDS);
    rename_while_away("a/d/g");
    ck_assert_int_eq(driven_rename(d, "a/d/beside", "a/d/g"), 0);
    killed();
    if (conflict)
        theirs("a/d/g", "theirs");
    comes_back();
    driven_stores(d, "a/d/g", conflict ? "theirs" : "x");
    driven_stores(d, "a/d/beside", conflict ? "x" : NULL);
    driven_stores(d, "a/d/f", NULL);
    ck_assert_int_eq(stats().last_error, conflict ? -ESTALE : 0);
    end();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cache/left_renames");
    TCase *t = tcase_create("renames");

    tcase_set_timeout(t, 120);
    tcase_add_some_test(t, a_rename_is_carried_out, 0, 2 * KINDS, SOME_KINDS);
    tcase_add_some_test(t, a_rename_replaces_nothing_that_came_since, 0, 2 * KINDS, SOME_KINDS);
    tcase_add_some_test(t, a_rename_that_was_carried_out_is_ours, 0, 2 * KINDS, SOME_KINDS);
    tcase_add_some_test(t, a_rename_of_a_link_that_was_carried_out_is_ours, 0,
                        FOLDER_COPYING + 1, SOME_KINDS);
    tcase_add_some_test(t, a_rename_takes_the_place_of_what_is_renamed_before_it, 0,
                        3 * (FOLDER_COPYING + 1), SOME_STATES);
    tcase_add_some_test(t, a_rename_takes_the_place_of_what_was_removed, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, a_rename_takes_the_place_of_what_was_sent, 0, ORIGINS, SOME_KINDS);
    tcase_add_some_test(t, a_renamed_file_that_was_changed_replaces_no_more, 0, 2 * KINDS,
                        SOME_KINDS);
    tcase_add_some_test(t, a_renamed_file_that_is_changed_replaces_no_more, 0, KINDS,
                        SOME_KINDS);
    tcase_add_some_test(t, a_file_that_was_changed_and_open_comes, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, a_renamed_file_that_was_removed_takes_nothing_along, 0, KINDS,
                        SOME_KINDS);
    tcase_add_some_test(t, the_second_rename_replaces_no_more, 0, 2 * KINDS, SOME_KINDS);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return suite_run(suite());
}
