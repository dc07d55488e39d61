/* The store over stores: objects of our own, each in the state of one store. */
#include "tests/lib/routed_world.h"
#include "tests/lib/suite.h"

#define STATE STORE_STATE_DIR

/* The last of the four keeps no state. */
static void make_world(struct world *w)
{
    world_open(w, runs, LEAVES, "mem:");
    w->leaf[3]->facts.caps &= ~(unsigned)STORE_STATE;
    ck_assert(!store_can(w->leaf[3], STATE, STORE_STATE));
}

static uint64_t all_requests(struct world *w)
{
    struct store_stats s;

    store_get_stats(w->s, &s);
    return s.requests;
}

START_TEST(state_is_that_of_one_store)
{
    struct world w;
    struct object obj;

    make_world(&w);
    ok(&w, put(&w, STATE "/@b/units/x/open"));
    ck_assert(is_in_leaf(&w, 1, STATE "/units/x/open"));
    for (size_t i = 0; i < LEAVES; i++)
        ck_assert(i == 1 || !is_in_leaf(&w, i, STATE "/units/x/open"));
    leaf_has(&w, 0, STATE "/lease"); /* of a mount that has this store alone */
    ck_assert_int_eq(kind_of(&w, STATE "/@a/lease"), 'o');
    ck_assert_int_eq(kind_of(&w, STATE "/@b/lease"), '-');
    ck_assert_int_eq(kind_of(&w, STATE "/@b/units"), 'd');
    ck_assert_int_eq(kind_of(&w, STATE "/@b/units/x/open"), 'o');
    uint64_t before = all_requests(&w);
    assert_names(&w, STATE "/@b/units", 0, "x/");
    assert_names(&w, STATE "/@b/units", LIST_RECURSIVE, "x/open");
    assert_names(&w, STATE "/@a", 0, "lease");
    ck_assert_uint_eq(all_requests(&w), before + 3); /* nobody else is asked */
    assert_names(&w, "", 0, "runs/");
    assert_names(&w, "", LIST_RECURSIVE, "");

    struct mem_sink sink;
    char buf[8];
    mem_sink_init(&sink, buf, sizeof(buf), 0);
    ck_assert_int_eq(store_read(w.s, &w.op, STATE "/@b/units/x/open", NULL, &sink.base,
                                sizeof(buf), 0, &obj),
                     4);
    struct mem_source src;
    mem_source_init(&src, "new", 3);
    fails(&w, ESTALE,
          store_put(w.s, &w.op, STATE "/@b/units/x/open", "", &src.base, NULL, NULL));
    ok(&w, store_put(w.s, &w.op, STATE "/@b/units/x/open", obj.etag, &src.base, NULL, NULL));
    object_release(&obj);

    const char *const gone[] = {STATE "/@a/lease", STATE "/@b/units/x/open", STATE "/@c/none",
                                STATE "/@d/none"};
    ok(&w, store_remove(w.s, &w.op, gone, NULL, 4, NULL));
    ck_assert(!is_in_leaf(&w, 0, STATE "/lease"));
    ck_assert(!is_in_leaf(&w, 1, STATE "/units/x/open"));
    world_close(&w);
}
END_TEST

START_TEST(facts_tell_which_store_keeps_state)
{
    struct store_facts f;
    struct world w;

    make_world(&w);
    ck_assert(store_can(w.s, STATE "/@a/x", STORE_STATE));
    ck_assert(store_can(w.s, STATE "/@c", STORE_STATE));
    ck_assert(!store_can(w.s, STATE "/@d/x", STORE_STATE));
    store_facts(w.s, STATE "/@b/x", &f);
    ck_assert_uint_eq(f.volume, 2);
    ck_assert_uint_eq(f.key_max, STORE_KEY_MAX - 1);
    w.leaf[1]->facts.key_max = 100;
    store_facts(w.s, STATE "/@b/x", &f);
    ck_assert_uint_eq(f.key_max, 100 + strlen("/@b"));
    store_facts(w.s, STATE "/@d/x", &f);
    ck_assert_uint_eq(f.volume, 0);
    world_close(&w);
}
END_TEST

/* The whole of it, the root and paths beside it lead to no state. */
START_TEST(no_other_key_is_of_a_state)
{
    static const char *const keys[] = {
        STATE,        STATE "/probe", STATE "/attrs/0", STATE "/@",   STATE "/@e/x",
        STATE "/a/x", STATE "/xa/x",  STATE "/@aa/x",   STATE "/@/x", STATE "/@d/x"};
    struct mem_source src;
    struct world w;

    make_world(&w);
    uint64_t before = all_requests(&w);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        const char *k = keys[i];
        ck_assert_msg(!store_can(w.s, k, STORE_STATE), "%s", k);
        mem_source_init(&src, "x", 1);
        fails(&w, EPERM, store_put(w.s, &w.op, k, NULL, &src.base, NULL, NULL));
        ck_assert_int_eq(kind_of(&w, k), '-');
        fails(&w, ENOENT, store_list(w.s, &w.op, k, 0, visit_none, NULL));
        ok(&w, store_remove(w.s, &w.op, &k, NULL, 1, NULL));
    }
    ck_assert_uint_eq(all_requests(&w), before);
    ck_assert(!store_can(w.s, "", STORE_STATE));
    ck_assert(!store_can(w.s, "@a/x", STORE_STATE));
    ok(&w, put(&w, "@a/x")); /* a name like others */
    ck_assert(is_in_leaf(&w, 3, "@a/x"));
    world_close(&w);
}
END_TEST

/* No directory is made or removed, nothing crosses stores, and what moves within one leaves
 * routes alone. */
START_TEST(state_has_no_directories_of_its_own)
{
    struct world w;

    make_world(&w);
    fails(&w, EPERM, store_mkdir(w.s, &w.op, STATE "/@a/dir", NULL, NULL));
    ok(&w, put(&w, STATE "/@a/dir/x"));
    ok(&w, store_rmdir(w.s, &w.op, STATE "/@a/dir"));
    ck_assert(is_in_leaf(&w, 0, STATE "/dir/x"));
    fails(&w, EXDEV, store_rename(w.s, &w.op, STATE "/@a/dir/x", STATE "/@b/dir/x"));
    ok(&w, store_rename(w.s, &w.op, STATE "/@a/dir/x", STATE "/@a/dir/y"));
    ck_assert(is_in_leaf(&w, 0, STATE "/dir/y"));
    world_close(&w);
}
END_TEST

/* One name for who asks, whatever stores there are. */
START_TEST(keys_of_state)
{
    struct world w;

    make_world(&w);
    auto_free char *routed = routed_state_key(w.s, 2, "units/x");
    auto_free char *alone = routed_state_key(w.leaf[2], 0, "units/x");
    ck_assert_str_eq(routed, STATE "/@c/units/x");
    ck_assert_str_eq(alone, STATE "/units/x");
    ok(&w, put(&w, routed));
    ck_assert(is_in_leaf(&w, 2, alone));
    world_close(&w);
}
END_TEST

/* A name may begin with another one. */
START_TEST(stores_are_told_apart_by_the_whole_name)
{
    static const char *const names[LEAVES] = {"ab", "a", "abc", "b"};
    struct store *leaves[LEAVES], *s = NULL;
    struct world w = {0};

    op_init(&w.op, PATIENCE);
    test_routes(&w.routes, runs);
    for (size_t i = 0; i < LEAVES; i++)
        ck_assert_int_eq(mem_store_new("mem:", NULL, &w.op, &leaves[i]), 0);
    ok(&w, routed_store_new(&w.routes, leaves, names, LEAVES, &w.op, &s));
    w.s = s;
    for (size_t i = 0; i < LEAVES; i++) {
        struct object obj;
        auto_free char *k = routed_state_key(s, i, names[i]);
        ok(&w, put(&w, k));
        auto_free char *own = routed_state_key(leaves[i], 0, names[i]);
        ok(&w, store_stat(leaves[i], &w.op, own, &obj));
        object_release(&obj);
    }
    world_close(&w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("routed state");
    TCase *t = tcase_create("routed state");

    tcase_add_test(t, state_is_that_of_one_store);
    tcase_add_test(t, facts_tell_which_store_keeps_state);
    tcase_add_test(t, no_other_key_is_of_a_state);
    tcase_add_test(t, state_has_no_directories_of_its_own);
    tcase_add_test(t, keys_of_state);
    tcase_add_test(t, stores_are_told_apart_by_the_whole_name);
    suite_add_tcase(s, t);
    return suite_run(s);
}
