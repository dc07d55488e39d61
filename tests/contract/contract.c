/* The contract of store.h: a test for each rule. Included, with its parts, by the executables
 * that run it. */
#include "tests/contract/contract_attrs.c"
#include "tests/contract/contract_content.c"
#include "tests/contract/contract_names.c"
#include "tests/contract/contract_place.h"
#include "tests/contract/contract_state.c"
#include "tests/contract/contract_upload.c"
#include "tests/lib/suite.h"

TCase *contract_tcase(const struct contract_fixture *fixtures, size_t n)
{
    const TTest *const tests[] = {
        facts_are_the_same_at_every_key,
        stat_tells_objects_and_directories,
        put_and_read_any_size,
        read_ranges,
        read_one_version,
        put_checks_the_version,
        one_winner_creates,
        no_update_is_lost,
        readers_see_whole_objects,
        errors_of_the_caller_come_back,
        deadline_and_cancel_end_calls,
        list_one_level,
        list_subtree,
        list_tells_size_and_version,
        list_pages_visits_each_name_once,
        list_in_order_from_anywhere,
        object_and_directory_of_one_name,
        odd_names_survive,
        directories_exist_empty,
        remove_many,
        remove_checks_the_version,
        attributes_are_kept,
        a_directory_may_have_an_object_of_its_own,
        state_lies_outside_of_the_root,
        state_is_listed_by_itself,
        one_winner_creates_state,
        state_comes_and_goes_beside_others,
        odd_names_of_state_survive,
        special_files_are_kept,
        acls_are_kept,
        directories_have_attributes,
        set_attributes_keeps_content,
        parts_make_one_object,
        parts_run_in_parallel,
        commit_checks_the_version,
        uploads_resume_elsewhere,
        resumed_parts_are_compared,
        unknown_sessions_are_swept,
        checksums_are_of_the_whole,
        abort_leaves_nothing,
        sessions_are_aborted_by_token,
        copy_keeps_or_replaces_attributes,
        copy_checks_both_versions,
        rename_objects,
        rename_directories,
    };
    TCase *t = tcase_create("contract");

    fixtures_run = fixtures;
    tcase_set_timeout(t, 120);
    for (size_t i = 0; i < ARRAY_SIZE(tests); i++)
        tcase_add_loop_test(t, tests[i], 0, (int)n);
    return t;
}

int contract_main(const char *name, const struct contract_fixture *fixtures, size_t n)
{
    Suite *s = suite_create(name);

    suite_add_tcase(s, contract_tcase(fixtures, n));
    return suite_run(s);
}
