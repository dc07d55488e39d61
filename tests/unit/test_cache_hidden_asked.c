/* When a mount asks for the notes of units that others publish or remove, how often, and what
 * it shows without an answer. */
#include "tests/lib/others_notes.h"
#include "tests/lib/suite.h"

/* ---- when they are asked for ---- */

static void another_begins(void)
{
    note(NOTE_OPEN, "r", "checkpoint-1", THEIRS);
    file("r/checkpoint-1/x");
}

/* NOTES_AFTER_NAMES: the answer that is believed is from before the unit. */
START_TEST(a_new_name_needs_a_younger_answer)
{
    driven_mount(&d);
    file("q/checkpoint-0/x");
    file("r/plain");
    shows("q", "checkpoint-0", true);
    ck_assert_uint_ge(atomic_load(&dirs_asked), 1);
    another_begins();
    shows("r", "checkpoint-1", false);
}
END_TEST

/* It comes while the listing is under way, which shows it. */
START_TEST(notes_are_asked_after_the_listing)
{
    driven_mount(&d);
    file("r/plain");
    comes = another_begins;
    atomic_store(&before, "r");
    shows("r", "checkpoint-1", false);
    ck_assert_ptr_null(atomic_load(&before));
}
END_TEST

/* Who asked for another directory meanwhile has an answer from before the unit. */
static void another_begins_behind_an_answer(void)
{
    unsigned asked = atomic_load(&dirs_asked);

    file("q/checkpoint-0/x");
    ck_assert_int_eq(driven_list(&d, "q"), 1);
    ck_assert_uint_gt(atomic_load(&dirs_asked), asked);
    another_begins();
}

START_TEST(an_answer_from_meanwhile_is_too_old)
{
    driven_mount(&d);
    file("q/plain");
    file("r/plain");
    ck_assert_int_eq(driven_list(&d, ""), 2);
    store_loses("q/plain");
    comes = another_begins_behind_an_answer;
    atomic_store(&before, "r");
    shows("r", "checkpoint-1", false);
    ck_assert_ptr_null(atomic_load(&before));
}
END_TEST

static void fill_large(void)
{
    char path[32];

    for (int i = 0; i < 1100; i++) {
        (void)snprintf(path, sizeof(path), "r/%04d", i);
        file(path);
    }
}

/* And while its name is looked for alone, as in a large directory. */
START_TEST(notes_are_asked_after_the_look)
{
    driven_mount(&d);
    fill_large();
    file("q/plain");
    ck_assert_int_eq(driven_list(&d, ""), 2);
    store_loses("q/plain");
    ck_assert(shown("r/0000"));
    file("r/checkpoint-2/x");
    comes = _i ? another_begins_behind_an_answer : another_begins;
    atomic_store(&before, "r/checkpoint-1");
    ck_assert(!shown("r/checkpoint-1"));
    ck_assert_ptr_null(atomic_load(&before));
    ck_assert(!shown("r/checkpoint-1/x"));
    ck_assert(shown("r/checkpoint-2/x"));
}
END_TEST

/* One request tells of many directories, and which of them are new nobody knows before. */
START_TEST(what_is_listed_ahead_is_looked_at_too)
{
    char path[64];

    driven_mount(&d);
    for (int i = 0; i < 50; i++) {
        (void)snprintf(path, sizeof(path), "p/%02d/checkpoint-1/x", i);
        file(path);
        (void)snprintf(path, sizeof(path), "p/%02d", i);
        if (i % 2)
            note(NOTE_OPEN, path, "checkpoint-1", THEIRS);
    }
    ck_assert_int_eq(driven_list(&d, "p"), 50);
    forget_counts();
    for (int i = 0; i < 50; i++) {
        (void)snprintf(path, sizeof(path), "p/%02d", i);
        shows(path, "checkpoint-1", i % 2 == 0);
    }
    ck_assert_uint_lt(atomic_load(&listed), 20);
    ck_assert_uint_le(atomic_load(&dirs_asked), 10);
}
END_TEST

/* ---- requests ---- */

/* The next look at the directory is a listing. */
static void list_anew(const char *dir)
{
    cache_lock(d.cache);
    tree_find(d.cache, dir, NULL)->dir->listed_ns = 0;
    cache_unlock(d.cache);
}

START_TEST(nothing_is_asked_where_nothing_is_a_unit)
{
    driven_mount(&d);
    file("plain");
    file("r/checkpoint-1/x");
    ck_assert_int_eq(driven_list(&d, ""), 2); /* "r" is new, and may have come by a rename */
    ck_assert_uint_eq(atomic_load(&dirs_asked), 1);
    ck_assert_int_eq(driven_list(&d, "r"), 1);
    ck_assert_uint_eq(atomic_load(&dirs_asked), 2);
    for (int i = 0; i < 3; i++) {
        shows("r", "checkpoint-1", true);
        ck_assert(shown("plain"));
    }
    ck_assert_uint_eq(atomic_load(&dirs_asked), 2);
    ck_assert_uint_eq(atomic_load(&notes_asked), 0);
}
END_TEST

START_TEST(only_what_has_notes_is_asked_for)
{
    driven_mount(&d);
    note(NOTE_OPEN, "q", "checkpoint-1", THEIRS);
    file("q/checkpoint-2/x");
    file("r/checkpoint-1/x");
    shows("r", "checkpoint-1", true);
    ck_assert_uint_eq(atomic_load(&notes_asked), 0);
    note(NOTE_TAKE, "q", "checkpoint-1", THEIRS);
    note_goes(NOTE_OPEN, "q", "checkpoint-1", THEIRS);
    shows("q", "checkpoint-2", true);
    ck_assert_uint_eq(atomic_load(&notes_asked), 1);
    ck_assert_uint_eq(atomic_load(&seals_asked), 0); /* nobody writes there */
}
END_TEST

/* One more request at most in each time that a listing is believed, where nothing is new. */
START_TEST(what_is_known_is_believed)
{
    driven_mount(&d);
    note(NOTE_OPEN, "r", "checkpoint-1", THEIRS);
    file("q/plain");
    file("r/checkpoint-1/x");
    file("r/checkpoint-1/tail");
    note(NOTE_LOCK, "p", "checkpoint-1", THEIRS);
    file("p/checkpoint-1/sub/y");
    seal("r", "checkpoint-1", THEIRS, "tail", SAYS_RIGHT);
    for (int i = 2; i < 12; i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "r/checkpoint-%d/x", i);
        file(path);
    }
    ck_assert_int_eq(driven_list(&d, ""), 3);
    ck_assert_int_eq(driven_list(&d, "p"), 1);
    ck_assert_int_eq(driven_list(&d, "r"), 11);
    unsigned dirs = atomic_load(&dirs_asked), notes = atomic_load(&notes_asked),
             all_seals = atomic_load(&seals_asked), read = atomic_load(&seals_read);
    ck_assert_uint_eq(dirs, 3); /* with that of the root */
    ck_assert_uint_eq(notes, 2);
    ck_assert_uint_eq(all_seals, 1);
    ck_assert_uint_eq(read, 1);
    for (int i = 1; i < 12; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "checkpoint-%d", i);
        shows("r", name, true);
    }
    ck_assert_uint_eq(atomic_load(&dirs_asked), dirs);
    /* What is new elsewhere has the directories asked for, and not these notes. */
    file("q/checkpoint-1/x");
    ck_assert_int_eq(driven_list(&d, "q"), 2);
    ck_assert_uint_eq(atomic_load(&dirs_asked), dirs + 1);
    ck_assert_int_eq(driven_list(&d, "p/checkpoint-1"), 1);
    ck_assert_uint_eq(atomic_load(&notes_asked), notes);
    ck_assert_uint_eq(atomic_load(&seals_asked), all_seals);
    ck_assert_uint_eq(atomic_load(&seals_read), read);
    /* So is what is listed again. */
    list_anew("r");
    forget_counts();
    ck_assert_int_eq(driven_list(&d, "r"), 11);
    ck_assert_uint_eq(atomic_load(&listed), 1);
    ck_assert_uint_eq(atomic_load(&dirs_asked), 0);
    ck_assert_uint_eq(atomic_load(&notes_asked), 0);
}
END_TEST

/* ---- what can't be asked ---- */

START_TEST(a_state_that_may_not_be_read_hides_nothing)
{
    static const int refusals[] = {-EACCES, -EPERM};

    impatient();
    driven_mount(&d);
    note(NOTE_OPEN, "r", "checkpoint-1", THEIRS);
    file("r/checkpoint-1/x");
    atomic_store(&fails, refusals[_i]);
    shows("r", "checkpoint-1", true);
    atomic_store(&fails, 0);
    DRIVEN_WAIT(!shown("r/checkpoint-1"));
}
END_TEST

START_TEST(a_refusal_is_believed_too)
{
    driven_mount(&d);
    atomic_store(&fails, -EACCES);
    for (int i = 0; i < 5; i++) {
        char dir[32], path[64];
        (void)snprintf(dir, sizeof(dir), "r%d", i);
        (void)snprintf(path, sizeof(path), "%s/checkpoint-1/x", dir);
        file(path);
    }
    ck_assert_int_eq(driven_list(&d, ""), 5);
    for (int i = 0; i < 5; i++) {
        char dir[32];
        (void)snprintf(dir, sizeof(dir), "r%d", i);
        ck_assert_int_eq(driven_list(&d, dir), 1);
    }
    ck_assert_uint_eq(atomic_load(&dirs_asked), 1);
}
END_TEST

/* Half a unit is not shown for the want of an answer. */
START_TEST(without_an_answer_the_listing_fails)
{
    struct stat st;

    impatient();
    driven_mount(&d);
    note(NOTE_OPEN, "r", "checkpoint-1", THEIRS);
    file("r/checkpoint-1/x");
    file("r/plain");
    atomic_store(&fails, -EIO);
    ck_assert_int_eq(driven_stat(&d, "r/checkpoint-1/x", &st), -EIO);
    ck_assert_int_eq(driven_stat(&d, "r/plain", &st), -EIO);
    atomic_store(&fails, 0);
    DRIVEN_WAIT(driven_stat(&d, "r/plain", &st) == 0);
    shows("r", "checkpoint-1", false);
}
END_TEST

START_TEST(without_an_answer_the_look_fails)
{
    struct stat st;

    driven_mount(&d);
    fill_large();
    ck_assert(shown("r/0000"));
    another_begins();
    atomic_store(&fails, -EIO);
    ck_assert_int_eq(driven_stat(&d, "r/checkpoint-1", &st), -EIO);
    atomic_store(&fails, 0);
    ck_assert(!shown("r/checkpoint-1"));
}
END_TEST

/* A listing that was taken before is shown again meanwhile. */
START_TEST(without_an_answer_what_was_known_goes_on)
{
    impatient();
    driven_mount(&d);
    file("r/checkpoint-1/x");
    shows("r", "checkpoint-1", true);
    file("r/checkpoint-2/x");
    atomic_store(&fails, -EIO);
    forget_counts();
    DRIVEN_WAIT(driven_list(&d, "r") == 1 && atomic_load(&dirs_asked));
    atomic_store(&fails, 0);
    DRIVEN_WAIT(driven_list(&d, "r") == 2);
}
END_TEST

START_TEST(all_is_shown_to_who_wants_it)
{
    d.config.show_incomplete = true;
    driven_mount(&d);
    note(NOTE_OPEN, "r", "checkpoint-1", THEIRS);
    file("r/checkpoint-1/x");
    shows("r", "checkpoint-1", true);
    ck_assert_uint_eq(atomic_load(&dirs_asked), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_hidden_asked");
    TCase *t = tcase_create("units that others have not finished");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_new_name_needs_a_younger_answer);
    tcase_add_test(t, notes_are_asked_after_the_listing);
    tcase_add_test(t, an_answer_from_meanwhile_is_too_old);
    tcase_add_loop_test(t, notes_are_asked_after_the_look, 0, 2);
    tcase_add_test(t, what_is_listed_ahead_is_looked_at_too);
    tcase_add_test(t, nothing_is_asked_where_nothing_is_a_unit);
    tcase_add_test(t, only_what_has_notes_is_asked_for);
    tcase_add_test(t, what_is_known_is_believed);
    tcase_add_loop_test(t, a_state_that_may_not_be_read_hides_nothing, 0, 2);
    tcase_add_test(t, a_refusal_is_believed_too);
    tcase_add_test(t, without_an_answer_the_listing_fails);
    tcase_add_test(t, without_an_answer_the_look_fails);
    tcase_add_test(t, without_an_answer_what_was_known_goes_on);
    tcase_add_test(t, all_is_shown_to_who_wants_it);
    suite_add_tcase(s, t);
    return suite_run(s);
}
