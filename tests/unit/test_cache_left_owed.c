/* cache/: what a killed daemon had not sent, and another node put there before the next mount:
 * nothing is replaced or removed in silence, whatever the store is; and what the daemon itself
 * had sent is no other node's. */
#include "tests/lib/left_owed.h"
#include "tests/lib/some.h"
#include "tests/lib/suite.h"

/* The store has what the daemon sent, which has not heard of that when it is killed. */
static void put_unheard(const char *path, const char *text)
{
    atomic_store(&lost, true);
    put(path, text);
    DRIVEN_WAIT(atomic_load(&away));
    driven_stores(d, path, text);
}

/* ---- uploads ---- */

START_TEST(a_first_version_replaces_nothing)
{
    begin(_i);
    atomic_store(&away, true);
    put("a/d/g", "ours");
    killed();
    theirs("a/d/g", "theirs");
    comes_back();
    lost_against("a/d/g", "theirs", "ours");
    end();
}
END_TEST

START_TEST(a_new_version_replaces_the_one_that_was_known)
{
    begin(_i);
    atomic_store(&away, true);
    put("a/d/f", "ours");
    killed();
    theirs("a/d/f", "theirs");
    comes_back();
    lost_against("a/d/f", "theirs", "ours");
    end();
}
END_TEST

/* It is written once more before it goes up. */
START_TEST(what_is_written_since_replaces_no_more)
{
    begin(_i);
    atomic_store(&away, true);
    put("a/d/f", "two");
    killed();
    theirs("a/d/f", "theirs");
    atomic_store(&away, true);
    driven_mount(d);
    put("a/d/f", "three");
    atomic_store(&away, false);
    DRIVEN_WAIT(driven_flush(d) == 0);
    lost_against("a/d/f", "theirs", "three");
    end();
}
END_TEST

/* Something else takes its name before it goes up. */
START_TEST(what_takes_its_name_replaces_no_more)
{
    begin(_i);
    atomic_store(&away, true);
    put("a/d/f", "two");
    killed();
    theirs("a/d/f", "theirs");
    atomic_store(&away, true);
    driven_mount(d);
    put("a/d/f.tmp", "three");
    ck_assert_int_eq(driven_rename(d, "a/d/f.tmp", "a/d/f"), 0);
    atomic_store(&away, false);
    DRIVEN_WAIT(driven_flush(d) == 0);
    lost_against("a/d/f", "theirs", "three");
    end();
}
END_TEST

static char bytes[3 * PART];

START_TEST(parts_replace_no_more)
{
    char back[8];

    begin(_i);
    memset(bytes, 's', sizeof(bytes));
    atomic_store(&away, true);
    driven_put(d, "a/d/f", bytes, sizeof(bytes));
    killed();
    theirs("a/d/f", "theirs");
    comes_back();
    ck_assert_uint_eq(stats().kept_files, 1);
    ck_assert_int_eq(driven_stored(d, "a/d/f", back, sizeof(back)), 6);
    end();
}
END_TEST

START_TEST(the_same_bytes_are_no_conflict)
{
    const bool parts = _i >= KINDS;

    begin(_i % KINDS);
    memset(bytes, 's', sizeof(bytes));
    const size_t len = parts ? sizeof(bytes) : 3;
    atomic_store(&away, true);
    driven_put(d, "a/d/f", bytes, len);
    killed();
    driven_store(d, "a/d/f", bytes, len);
    comes_back();
    ck_assert_uint_eq(stats().kept_files, 0);
    put("a/d/f", "newer");
    ck_assert_int_eq(driven_flush(d), 0);
    stored("a/d/f", "newer");
    end();
}
END_TEST

START_TEST(other_bytes_of_that_size_are_one)
{
    begin(_i);
    atomic_store(&away, true);
    put("a/d/f", "ours!!");
    killed();
    theirs("a/d/f", "theirs");
    comes_back();
    lost_against("a/d/f", "theirs", "ours!!");
    end();
}
END_TEST

/* The name was removed and made again. */
START_TEST(what_was_made_again_replaces_what_was_removed)
{
    begin(_i);
    atomic_store(&away, true);
    ck_assert_int_eq(driven_unlink(d, "a/d/f"), 0);
    put("a/d/f", "ours");
    killed();
    theirs("a/d/f", "theirs");
    comes_back();
    lost_against("a/d/f", "theirs", "ours");
    end();
}
END_TEST

START_TEST(a_changed_file_that_was_renamed_replaces_what_was_there)
{
    const bool conflict = _i >= KINDS;

    begin(_i % KINDS);
    atomic_store(&away, true);
    put("a/d/f.tmp", "ours");
    ck_assert_int_eq(driven_rename(d, "a/d/f.tmp", "a/d/f"), 0);
    killed();
    if (conflict)
        theirs("a/d/f", "theirs");
    comes_back();
    if (conflict)
        lost_against("a/d/f", "theirs", "ours");
    else
        stored("a/d/f", "ours");
    end();
}
END_TEST

/* ---- what this cache put ---- */

START_TEST(where_nobody_was_it_is_stored)
{
    begin(_i);
    atomic_store(&away, true);
    put("a/d/f", "two");
    put("a/d/g", "first");
    killed();
    comes_back();
    stored("a/d/f", "two");
    stored("a/d/g", "first");
    end();
}
END_TEST

START_TEST(what_was_sent_is_ours)
{
    begin(_i);
    put_unheard("a/d/f", "two");
    killed();
    comes_back();
    stored("a/d/f", "two");
    end();
}
END_TEST

START_TEST(what_was_sent_is_replaced_by_what_was_written_since)
{
    const char *path = _i >= ORIGINS ? "a/d/g" : "a/d/f";

    begin(_i % ORIGINS);
    put_unheard(path, "two");
    put(path, "three");
    killed();
    comes_back();
    stored(path, "three");
    end();
}
END_TEST

START_TEST(parts_that_were_sent_are_replaced_by_what_was_written_since)
{
    begin(_i);
    memset(bytes, 's', sizeof(bytes));
    atomic_store(&lost, true);
    driven_put(d, "a/d/f", bytes, sizeof(bytes));
    DRIVEN_WAIT(atomic_load(&away));
    put("a/d/f", "three");
    killed();
    comes_back();
    stored("a/d/f", "three");
    end();
}
END_TEST

START_TEST(what_came_after_what_was_sent_stays)
{
    begin(_i);
    put_unheard("a/d/f", "two");
    killed();
    theirs("a/d/f", "theirs");
    comes_back();
    lost_against("a/d/f", "theirs", "two");
    end();
}
END_TEST

/* A link has no room to say who put it. */
START_TEST(a_link_that_was_sent_is_ours)
{
    auto_free char *target = NULL;

    begin(_i);
    atomic_store(&lost, true);
    ck_assert_int_eq(driven_symlink(d, "f", "a/d/link"), 0);
    DRIVEN_WAIT(atomic_load(&away));
    killed();
    comes_back();
    ck_assert_uint_eq(stats().kept_files, 0);
    ck_assert_int_eq(driven_readlink(d, "a/d/link", &target), 0);
    ck_assert_str_eq(target, "f");
    end();
}
END_TEST

/* Nor does it keep the removal that follows: it has taken the place of an older link. */
START_TEST(a_link_that_was_sent_goes)
{
    struct stat st;

    begin(_i);
    ck_assert_int_eq(driven_symlink(d, "f", "a/d/link"), 0);
    ck_assert_int_eq(driven_flush(d), 0);
    ck_assert_int_eq(driven_symlink(d, "other", "a/d/new"), 0);
    atomic_store(&lost, true);
    ck_assert_int_eq(driven_rename(d, "a/d/new", "a/d/link"), 0);
    DRIVEN_WAIT(atomic_load(&away));
    ck_assert_int_eq(driven_unlink(d, "a/d/link"), 0);
    killed();
    comes_back();
    ck_assert_int_eq(driven_stat(d, "a/d/link", &st), -ENOENT);
    driven_stores(d, "a/d/link", NULL);
    ck_assert_int_eq(stats().last_error, 0);
    end();
}
END_TEST

static const enum kind folders[] = {FOLDER, FOLDER_PLAIN};

/* In place of what the folder has there. */
static void link_by_others(const char *path, const char *target)
{
    char where[160];

    (void)snprintf(where, sizeof(where), "%s/%s", d->folder, path);
    ck_assert(unlink(where) == 0 || errno == ENOENT);
    ck_assert_int_eq(symlink(target, where), 0);
}

/* The daemon is killed before it hears that the link is there. */
static void send_link_and_replace_it(void)
{
    atomic_store(&lost, true);
    ck_assert_int_eq(driven_symlink(d, "f", "a/d/link"), 0);
    DRIVEN_WAIT(atomic_load(&away));
    ck_assert_int_eq(driven_unlink(d, "a/d/link"), 0);
    put("a/d/link", "text");
    killed();
}

/* A file that came to the name in between finds the link that was sent. */
START_TEST(a_link_that_was_sent_is_replaced)
{
    begin(folders[_i]);
    put("a/d/file", "text");
    ck_assert_int_eq(driven_flush(d), 0);
    send_link_and_replace_it();
    comes_back();
    stored("a/d/link", "text");
    ck_assert_int_eq(stats().last_error, 0);
    end();
}
END_TEST

/* One that leads elsewhere is somebody else's. */
START_TEST(a_link_of_others_stays)
{
    auto_free char *target = NULL;

    begin(folders[_i]);
    send_link_and_replace_it();
    link_by_others("a/d/link", "elsewhere");
    comes_back();
    keeps("a/d/link", "text");
    DRIVEN_WAIT(driven_readlink(d, "a/d/link", &target) == 0);
    ck_assert_str_eq(target, "elsewhere");
    end();
}
END_TEST

/* Nor does a removal take such a one. */
START_TEST(a_link_of_others_is_not_removed)
{
    auto_free char *target = NULL;

    begin(folders[_i]);
    ck_assert_int_eq(driven_symlink(d, "f", "a/d/link"), 0);
    ck_assert_int_eq(driven_flush(d), 0);
    atomic_store(&away, true);
    ck_assert_int_eq(driven_unlink(d, "a/d/link"), 0);
    killed();
    link_by_others("a/d/link", "elsewhere");
    comes_back();
    DRIVEN_WAIT(driven_readlink(d, "a/d/link", &target) == 0);
    ck_assert_str_eq(target, "elsewhere");
    end();
}
END_TEST

/* What this mount has stored itself is as ever: in a folder the last upload wins. */
START_TEST(what_was_stored_since_is_owed_by_this_mount)
{
    const bool last_wins = _i == FOLDER || _i == FOLDER_PLAIN;

    begin(_i);
    d->config.settle_ns = 60 * NS_PER_SEC; /* the flush uploads */
    atomic_store(&away, true);
    put("a/d/f", "two");
    killed();
    comes_back();
    stored("a/d/f", "two");
    put("a/d/f", "three");
    theirs("a/d/f", "theirs");
    DRIVEN_WAIT(driven_flush(d) == 0);
    if (last_wins)
        stored("a/d/f", "three");
    else
        ck_assert(stats().kept_files == 1 || kind == ROUTED_TO_FOLDERS || kind == MIXED);
    end();
}
END_TEST

/* ---- removals ---- */

START_TEST(a_removal_takes_what_was_removed)
{
    begin(_i);
    atomic_store(&away, true);
    ck_assert_int_eq(driven_unlink(d, "a/d/f"), 0);
    killed();
    comes_back();
    stored("a/d/f", NULL);
    end();
}
END_TEST

START_TEST(a_removal_leaves_what_came_since)
{
    struct stat st;

    begin(_i);
    atomic_store(&away, true);
    ck_assert_int_eq(driven_unlink(d, "a/d/f"), 0);
    killed();
    theirs("a/d/f", "theirs");
    comes_back();
    driven_stores(d, "a/d/f", "theirs");
    ck_assert_int_eq(stats().last_error, -ESTALE);
    DRIVEN_WAIT(driven_stat(d, "a/d/f", &st) == 0);
    driven_shows(d, "a/d/f", "theirs");
    end();
}
END_TEST

START_TEST(a_removal_takes_what_was_sent_before)
{
    const char *path = _i >= ORIGINS ? "a/d/g" : "a/d/f";

    begin(_i % ORIGINS);
    put_unheard(path, "two");
    ck_assert_int_eq(driven_unlink(d, path), 0);
    killed();
    comes_back();
    stored(path, NULL);
    end();
}
END_TEST

START_TEST(a_directory_stays_for_what_came_into_it)
{
    begin(_i);
    atomic_store(&away, true);
    ck_assert_int_eq(driven_unlink(d, "a/d/f"), 0);
    ck_assert_int_eq(driven_unlink(d, "a/d/beside"), 0);
    ck_assert_int_eq(driven_rmdir(d, "a/d"), 0);
    killed();
    theirs("a/d/new", "theirs");
    comes_back();
    driven_stores(d, "a/d/new", "theirs");
    driven_stores(d, "a/d/f", NULL);
    DRIVEN_WAIT(driven_list(d, "a/d") == 1);
    driven_shows(d, "a/d/new", "theirs");
    end();
}
END_TEST

/* ---- attributes ---- */

START_TEST(attributes_are_not_of_what_came_since)
{
    struct stat st;

    begin(_i);
    atomic_store(&away, true);
    ck_assert_int_eq(driven_chmod(d, "a/d/f", 0600), 0);
    killed();
    theirs("a/d/f", "theirs");
    comes_back();
    driven_stores(d, "a/d/f", "theirs");
    DRIVEN_WAIT(driven_stat(d, "a/d/f", &st) == 0 && st.st_size == 6);
    ck_assert_int_ne(st.st_mode & 0777, 0600);
    driven_shows(d, "a/d/f", "theirs");
    ck_assert_uint_eq(stats().kept_files, 0);
    end();
}
END_TEST

/* ---- what it costs ---- */

/* An upload in a mount that found nothing owed looks at nothing; what was found costs one look
 * at most. */
START_TEST(an_upload_is_one_request)
{
    begin(_i);
    put("a/d/f", "two"); /* what has to be learnt is known: whether there are conditions */
    ck_assert_int_eq(driven_flush(d), 0);
    d->config.list_timeout_ns = d->config.attr_timeout_ns = 60 * NS_PER_SEC;
    killed();
    driven_mount(d);
    ck_assert_int_eq(driven_list(d, "a/d"), 2);
    driven_shows(d, "a/d/f", "two"); /* its attributes, which a listing of S3 lacks */
    atomic_store(&content_puts, 0);
    atomic_store(&other_requests, 0);
    put("a/d/f", "three");
    put("a/d/g", "first");
    ck_assert_int_eq(driven_flush(d), 0);
    if (kind != S3_PLAIN) {
        ck_assert_uint_eq(atomic_load(&content_puts), 2);
        ck_assert_uint_eq(atomic_load(&other_requests), 0);
    }
    atomic_store(&away, true);
    put("a/d/f", "four");
    killed();
    atomic_store(&content_puts, 0);
    atomic_store(&other_requests, 0);
    driven_mount(d);
    ck_assert_int_eq(driven_flush(d), 0);
    if (kind != S3_PLAIN)
        ck_assert_uint_eq(atomic_load(&content_puts), 1);
    ck_assert_uint_le(atomic_load(&other_requests), kind == S3_PLAIN ? 4 : 1);
    stored("a/d/f", "four");
    end();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cache/left_owed");
    TCase *t = tcase_create("owed");

    tcase_set_timeout(t, 120);
    tcase_add_some_test(t, a_first_version_replaces_nothing, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, a_new_version_replaces_the_one_that_was_known, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, what_is_written_since_replaces_no_more, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, what_takes_its_name_replaces_no_more, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, parts_replace_no_more, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, the_same_bytes_are_no_conflict, 0, 2 * KINDS, SOME_KINDS);
    tcase_add_some_test(t, other_bytes_of_that_size_are_one, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, what_was_made_again_replaces_what_was_removed, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, a_changed_file_that_was_renamed_replaces_what_was_there, 0,
                        2 * KINDS, SOME_KINDS);
    tcase_add_some_test(t, where_nobody_was_it_is_stored, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, what_was_sent_is_ours, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, what_was_sent_is_replaced_by_what_was_written_since, 0, 2 * ORIGINS,
                        SOME_KINDS);
    tcase_add_some_test(t, parts_that_were_sent_are_replaced_by_what_was_written_since, 0,
                        ORIGINS, SOME_KINDS);
    tcase_add_some_test(t, what_came_after_what_was_sent_stays, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, a_link_that_was_sent_is_ours, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, what_was_stored_since_is_owed_by_this_mount, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, a_removal_takes_what_was_removed, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, a_removal_leaves_what_came_since, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, a_removal_takes_what_was_sent_before, 0, 2 * ORIGINS, SOME_KINDS);
    tcase_add_loop_test(t, a_link_that_was_sent_goes, FOLDER, FOLDER + 1);
    tcase_add_some_test(t, a_link_that_was_sent_is_replaced, 0, (int)ARRAY_SIZE(folders),
                        SOME_KINDS);
    tcase_add_some_test(t, a_link_of_others_stays, 0, (int)ARRAY_SIZE(folders), SOME_KINDS);
    tcase_add_some_test(t, a_link_of_others_is_not_removed, 0, (int)ARRAY_SIZE(folders),
                        SOME_KINDS);
    tcase_add_some_test(t, a_directory_stays_for_what_came_into_it, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, attributes_are_not_of_what_came_since, 0, KINDS, SOME_KINDS);
    tcase_add_some_test(t, an_upload_is_one_request, 0, KINDS, SOME_KINDS);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return suite_run(suite());
}
