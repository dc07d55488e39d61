/* Where objects of our own belong that are about an object, and what those call it who have the
 * same state. */
#include "backends/drivers.h"
#include "tests/lib/routed_world.h"
#include "tests/lib/suite.h"
#include "tests/lib/temp_dir.h"

#include <sys/stat.h>

static void must_be(struct store *s, const char *key, bool dir, const char *state,
                    const char *whole)
{
    auto_free char *ret_state = NULL;
    auto_free char *ret_key = NULL;
    struct op op;

    op_init(&op, PATIENCE);
    int r = store_state_of(s, &op, key, dir, &ret_state, &ret_key);
    if (!state) {
        ck_assert_int_eq(r, -EOPNOTSUPP);
        ck_assert_str_ne(op.why, "");
        return;
    }
    ck_assert_msg(r == 0, "%s: %s", key, op.why);
    ck_assert_str_eq(ret_state, state);
    ck_assert_str_eq(ret_key, whole);
    ck_assert(store_can(s, ret_state, STORE_STATE));
}

/* Whatever part of the bucket is opened, the same object is called the same. */
START_TEST(prefixes_of_a_bucket_agree)
{
    static const struct {
        const char *url, *option, *key, *whole; /* whole NULL: no state */
    } t[] = {
        {"s3://bucket/a", NULL, "b/c", "a/b/c"},   {"s3://bucket/a/b", NULL, "c", "a/b/c"},
        {"s3://bucket/a", "ours", "b/c", "a/b/c"}, {"s3://bucket/a/b", "ours", "c", "a/b/c"},
        {"s3://bucket/x", "ours", "c", "x/c"},     {"s3://bucket/x", "ours", "", "x"},
        {"s3://bucket", NULL, "c", NULL},          {"s3://bucket/x", "off", "c", NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        const struct store_option options[] = {{"no_sign_request", "true"},
                                               {"state_prefix", t[i].option}};
        struct store_config config = {.options = options, .n_options = t[i].option ? 2 : 1};
        struct store *s = NULL;
        struct op op;
        op_init(&op, PATIENCE);
        ck_assert_msg(s3_store_new(t[i].url, &config, &op, &s) == 0, "%s", op.why);
        must_be(s, t[i].key, true, t[i].whole ? STORE_STATE_DIR : NULL, t[i].whole);
        struct store *layer = layer_stats_new(s);
        ck_assert_ptr_nonnull(layer);
        must_be(layer, t[i].key, false, t[i].whole ? STORE_STATE_DIR : NULL, t[i].whole);
        store_close(layer);
    }
}
END_TEST

/* Nodes may have it at different paths: its state is its own, and so are its keys. */
START_TEST(a_folder_is_its_own_root)
{
    char dir[64], path[80];
    struct store *s = NULL;
    struct op op;

    temp_dir_make(dir, sizeof(dir));
    (void)snprintf(path, sizeof(path), "%s/in", dir);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    op_init(&op, PATIENCE);
    ck_assert_msg(local_store_new(path, NULL, &op, &s) == 0, "%s", op.why);
    must_be(s, "a/b", true, STORE_STATE_DIR, "a/b");
    must_be(s, "", true, STORE_STATE_DIR, "");
    store_close(s);
    temp_dir_remove(dir);
}
END_TEST

/* The key in the store of the route, and the state of that. */
START_TEST(routes_lead_to_one_state)
{
    struct world w;

    world_open(&w, runs, LEAVES, "mem:");
    w.leaf[3]->facts.caps &= ~(unsigned)STORE_STATE;
    w.leaf[1]->root_key = strdup("pre/fix");
    must_be(w.s, "runs/r1/checkpoint/step-1", true, STORE_STATE_DIR "/@a", "r1/step-1");
    must_be(w.s, "runs/r1/checkpoint", true, STORE_STATE_DIR "/@a", "r1");
    must_be(w.s, "runs/r1/logs/x", false, STORE_STATE_DIR "/@b", "pre/fix/l/r1/x");
    must_be(w.s, "other/x", true, NULL, NULL);
    must_be(w.s, "runs/r1", true, NULL, NULL);
    must_be(w.s, "", true, NULL, NULL);
    must_be(w.s, STORE_STATE_DIR "/@a/x", false, NULL, NULL); /* about what is its own */
    free(w.leaf[1]->root_key);
    w.leaf[1]->root_key = NULL; /* mem: has none */
    world_close(&w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_of");
    TCase *t = tcase_create("state_of");

    tcase_add_test(t, prefixes_of_a_bucket_agree);
    tcase_add_test(t, a_folder_is_its_own_root);
    tcase_add_test(t, routes_lead_to_one_state);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
