/* Publish units: what a path belongs to by its names. */
#include "common/mem.h"
#include "common/op.h"
#include "runs/policy_fields.h"
#include "runs/unit.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>

#define D true
#define F false

/* `unit` NULL: UNIT_FILE, or UNIT_NONE where it is "-"; else the directory's path. */
static const struct {
    const char *preset, *root, *path;
    bool dir;
    const char *unit;
} places[] = {
    {"data", "", "checkpoint-10/model.bin", F, "checkpoint-10"},
    {"data", "", "out/checkpoint-10/model.bin", F, "out/checkpoint-10"},
    {"data", "", "out/checkpoint-10", D, "out/checkpoint-10"},
    {"data", "", "out/checkpoint-10", F, NULL}, /* a file of that name */
    {"data", "", "out/checkpoint-x/model.bin", F, NULL},
    {"data", "", "out/checkpoint-/model.bin", F, NULL},
    {"data", "", "out/checkpoint-10x/model.bin", F, NULL},
    {"data", "", "out/checkpoint_000001/a", F, "out/checkpoint_000001"},
    {"data", "", "global_step7/zero/mp_rank_00.pt", F, "global_step7"},
    {"data", "", "checkpoint-1/global_step7/a", F, "checkpoint-1"}, /* the outermost */
    {"data", "", "epoch=3-step=100/weights", F, "epoch=3-step=100"},
    {"data", "", "0/meta.yaml", F, NULL}, /* MLflow's */
    {"data", "", "intermediate_train_data.3/_SUCCESS", F, "intermediate_train_data.3"},
    {"data", "", "out", D, "-"},
    {"data", "", "model.bin", F, NULL},
    {"data", "runs/a", "runs/a/checkpoint-10/b", F, "runs/a/checkpoint-10"},
    /* Names above the root are the route's. */
    {"data", "checkpoint-1", "checkpoint-1/b/c", F, NULL},
    {"checkpoint", "runs/a/checkpoint", "runs/a/checkpoint/e/f/g", F, "runs/a/checkpoint/e"},
    {"checkpoint", "runs/a/checkpoint", "runs/a/checkpoint/e", D, "runs/a/checkpoint/e"},
    {"checkpoint", "runs/a/checkpoint", "runs/a/checkpoint/e.pt", F, NULL},
    {"checkpoint", "runs/a/checkpoint", "runs/a/checkpoint", D, "-"},
    {"checkpoint", "", "e/f", F, "e"},
    {"checkpoint", "runs/a/checkpoint.h5", "runs/a/checkpoint.h5", F, NULL},
    {"dbfs", "runs/a", "runs/a/x/y", F, "runs/a"},
    {"dbfs", "runs/a", "runs/a", D, "runs/a"},
    {"dbfs", "runs/a.h5", "runs/a.h5", F, NULL},
    {"dbfs", "", "x", F, ""},
    {"dbfs", "", "", D, ""},
    {"logs", "", "checkpoint-10/a", F, "-"},
    {"scratch", "", "checkpoint-10/a", F, "-"},
    {"metadata", "", "checkpoint-10/a", F, NULL},
    {"metadata", "", "checkpoint-10", D, "-"},
    {"ray", "", "t/checkpoint_000000/a", F, "t/checkpoint_000000"},
    {"ray", "", "t/checkpoint-10/a", F, NULL},
    {"adaptdl", "", "checkpoint-10/a", F, "checkpoint-10"},
    {"tfos", "", "7/saved_model.pb", F, "7"},
};

START_TEST(a_path_has_one_unit)
{
    const char *path = places[_i].path, *want = places[_i].unit;
    struct unit_at at = unit_of_path(policy_preset(places[_i].preset), strlen(places[_i].root),
                                     path, places[_i].dir);

    if (!want || strcmp(want, "-") == 0) {
        ck_assert_int_eq(at.kind, want ? UNIT_NONE : UNIT_FILE);
        return;
    }
    ck_assert_int_eq(at.kind, UNIT_DIR);
    ck_assert_uint_eq(at.len, strlen(want));
    ck_assert_int_eq(strncmp(path, want, at.len), 0);
}
END_TEST

static const struct {
    const char *patterns, *name;
    bool taken;
} patterns[] = {
    {"a-#", "a-1", true},   {"a-#", "a-00012345678901234567890123", true},
    {"a-#", "a-", false},   {"a-#", "a-1b", false},
    {"a-#*", "a-1b", true}, {"#.#", "10.20", true},
    {"#.#", "10.", false},  {"##", "1", false},
    {"##", "12", true},     {"#", "-1", false},
    {"#", "1", true},       {"x:y-*", "y-z", true},
    {"x::y", "", false},    {"", "", false},
    {"a?", "ab", true},     {"*", ".hidden", true},
    {NULL, "a", false},
};

START_TEST(a_mark_stands_for_digits)
{
    const char *name = patterns[_i].name;

    ck_assert_int_eq(unit_patterns_take(patterns[_i].patterns, name, strlen(name)),
                     patterns[_i].taken);
}
END_TEST

START_TEST(only_the_bytes_told_count)
{
    ck_assert(unit_patterns_take("a-#", "a-1/b", 3));
    ck_assert(!unit_patterns_take("a-#", "a-1/b", 2));
}
END_TEST

/* Routes of policies 0 to 3, to stores 0, 0, 1 and 2; the last one is scratch. */
START_TEST(a_lease_lasts_as_the_policies_say)
{
    struct policy p[4] = {{.lock_ttl_ns = 90 * NS_PER_SEC},
                          {.lock_ttl_ns = 20 * NS_PER_SEC},
                          {.lock_ttl_ns = POLICY_UNSET},
                          {.lock_ttl_ns = 5 * NS_PER_SEC}};
    struct route items[4] = {{.store = 0, .policy = 0},
                             {.store = 0, .policy = 1},
                             {.store = 1, .policy = 2},
                             {.store = 2, .policy = 3, .scratch = true}};
    const struct routes routes = {.items = items, .n = 4};

    ck_assert_int_eq(unit_lease_ttl_ns(&routes, p, 0), 20 * NS_PER_SEC);
    ck_assert_int_eq(unit_lease_ttl_ns(&routes, p, 1), 60 * NS_PER_SEC);
    ck_assert_int_eq(unit_lease_ttl_ns(&routes, p, 2), 60 * NS_PER_SEC);
    p[1].lock_ttl_ns = 1;
    p[2].lock_ttl_ns = INT64_MAX;
    ck_assert_int_eq(unit_lease_ttl_ns(&routes, p, 0), NS_PER_SEC);
    ck_assert_int_eq(unit_lease_ttl_ns(&routes, p, 1), 24 * 3600 * NS_PER_SEC);
}
END_TEST

START_TEST(a_name_says_what_it_is)
{
    const struct policy *data = policy_preset("data");

    ck_assert(unit_name_is_done(data, "_SUCCESS"));
    ck_assert(unit_name_is_done(data, ".metadata"));
    ck_assert(!unit_name_is_done(data, "model.bin"));
    ck_assert(unit_name_is_pointer(data, "latest_checkpointed_iteration.txt"));
    ck_assert(unit_name_is_pointer(data, "checkpoint"));
    ck_assert(!unit_name_is_pointer(data, "checkpoint-1"));
    ck_assert(!unit_name_is_done(policy_preset("logs"), "_SUCCESS"));
    ck_assert(!unit_name_is_pointer(policy_preset("logs"), "latest"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("runs_unit");
    TCase *t = tcase_create("runs_unit");

    tcase_add_loop_test(t, a_path_has_one_unit, 0, ARRAY_SIZE(places));
    tcase_add_loop_test(t, a_mark_stands_for_digits, 0, ARRAY_SIZE(patterns));
    tcase_add_test(t, only_the_bytes_told_count);
    tcase_add_test(t, a_lease_lasts_as_the_policies_say);
    tcase_add_test(t, a_name_says_what_it_is);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
