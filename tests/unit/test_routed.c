/* The store over stores: what a directory shows that several stores have a part in, and what
 * makes it exist. */
#include "tests/lib/routed_world.h"
#include "tests/lib/suite.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- directories of several stores ---- */

START_TEST(each_path_has_its_store)
{
    struct world w;

    make_runs(&w);
    ck_assert(is_in_leaf(&w, 0, "one/1.pt"));
    ck_assert(is_in_leaf(&w, 1, "l/one/a/events"));
    ck_assert(is_in_leaf(&w, 2, "N5XGK===/m.json"));
    ck_assert(is_in_leaf(&w, 3, "runs/one/notes.txt"));
    ck_assert(is_in_leaf(&w, 3, "set/train.csv"));
    ck_assert_uint_eq(routed_count(w.s), LEAVES);
    ck_assert_uint_eq(routed_count(w.leaf[0]), 0);
    ck_assert_str_eq(routed_name(w.s, 1), "b");
    ck_assert_ptr_eq(routed_leaf(w.s, 1), w.leaf[1]);
    ck_assert_uint_eq(routed_index(w.s, "runs/one/logs/a"), 1);
    ck_assert_uint_eq(routed_index(w.s, "runs/one/logs"), 3); /* an object of that name */
    ck_assert_uint_eq(routed_index(w.s, ""), 3);
    ck_assert_str_eq(w.s->url, "runfs:a+b+c+d");
    world_close(&w);
}
END_TEST

START_TEST(a_directory_shows_what_all_stores_have)
{
    struct world w;

    make_runs(&w);
    assert_names(&w, "", 0, "runs/ set/");
    assert_names(&w, "runs", 0, "list.txt one/ three/ two/");
    assert_names(&w, "runs/one", 0, "checkpoint/ logs/ metadata/ notes.txt");
    assert_names(&w, "runs/two", 0, "logs/");
    assert_names(&w, "runs/one/logs", 0, "a/");
    assert_names(&w, "runs/one/logs/a", 0, "events");
    ck_assert_uint_eq(w.notes.hidden_names, 0);
    assert_names(&w, "runs/four", 0, "");
    world_close(&w);
}
END_TEST

START_TEST(what_makes_a_directory_exist)
{
    static const struct {
        const char *path;
        char kind;
    } t[] = {
        {"", 'd'},
        {"runs", 'd'},
        {"runs/one", 'd'},
        {"runs/two", 'd'},
        {"runs/three", 'd'},
        {"runs/four", '-'},
        {"runs/one/checkpoint", 'd'},
        {"runs/two/checkpoint", '-'},
        {"runs/two/logs", 'd'},
        {"runs/one/logs/a", 'd'},
        {"runs/one/notes.txt", 'o'},
        {"runs/one/logs/a/events", 'o'},
        {"runs/list.txt", 'o'},
        {"nothing", '-'},
    };
    struct world w;

    make_runs(&w);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        ck_assert_msg(kind_of(&w, t[i].path) == t[i].kind, "%s", t[i].path);
    world_close(&w);

    world_open(&w, runs, LEAVES, "mem:"); /* with nothing in it */
    ck_assert_int_eq(kind_of(&w, ""), 'd');
    ck_assert_int_eq(kind_of(&w, "runs"), 'd');
    ck_assert_int_eq(kind_of(&w, "runs/one"), '-');
    assert_names(&w, "", 0, "runs/");
    assert_names(&w, "runs", 0, "");
    world_close(&w);
}
END_TEST

/* A directory on the way is none of a store: it has no attributes there. */
START_TEST(directories_on_the_way_have_no_attributes)
{
    struct attrs a = {.has = ATTR_MODE, .mode = S_IFDIR | 0700};
    struct object obj;
    struct world w;

    world_open(&w, implied, 2, "mem:");
    ok(&w, store_mkdir(w.leaf[0], &w.op, "one", &a, NULL));
    ok(&w, store_stat(w.s, &w.op, "r/one", &obj));
    ck_assert(obj.is_prefix && obj.attrs_known && !obj.has_marker);
    ck_assert_uint_eq(obj.attrs.has, 0);
    object_release(&obj);
    ok(&w, store_stat_dir(w.s, &w.op, "r/one", &obj));
    ck_assert_uint_eq(obj.attrs.has, 0);
    object_release(&obj);
    fails(&w, ENOENT, store_stat_dir(w.s, &w.op, "r/two", &obj));
    fails(&w, ENOENT, store_stat_dir(w.s, &w.op, "r", &obj));
    assert_names(&w, "", 0, "r/");
    assert_names(&w, "r", 0, "one/");
    ok(&w, store_mkdir(w.s, &w.op, "r/one/x/b", &a, NULL)); /* is the key of a store */
    ok(&w, store_stat(w.s, &w.op, "r/one/x/b", &obj));
    ck_assert_uint_eq(obj.attrs.mode, a.mode);
    object_release(&obj);
    world_close(&w);
}
END_TEST

static int note_marker(void *arg, const char *name, const struct object *obj)
{
    bool *seen = arg;

    ck_assert_str_eq(name, "one");
    *seen = obj->has_marker;
    return 0;
}

static void assert_marker(struct world *w, bool there)
{
    struct object obj;
    bool listed = !there;

    for (int hasty = 0; hasty < 2; hasty++) {
        w->op.hasty = hasty;
        ok(w, store_stat(w->s, &w->op, "runs/one", &obj));
        ck_assert(obj.is_prefix && obj.has_marker == there);
        object_release(&obj);
    }
    w->op.hasty = false;
    ok(w, store_list(w->s, &w->op, "runs", 0, note_marker, &listed));
    ck_assert(listed == there);
}

/* And not that of a key which another store has on its way, though it is a real directory. */
START_TEST(a_marker_is_of_the_own_key)
{
    struct world w;

    world_open(&w, runs, LEAVES, "mem:");
    ok(&w, store_mkdir(w.leaf[0], &w.op, "one", NULL, NULL));
    assert_marker(&w, false);
    ok(&w, store_mkdir(w.leaf[1], &w.op, "l/one", NULL, NULL));
    assert_marker(&w, false);
    ok(&w, store_mkdir(w.leaf[3], &w.op, "runs/one", NULL, NULL));
    assert_marker(&w, true);
    world_close(&w);
}
END_TEST

/* What tells folders from others is kept of each store, by its name. */
START_TEST(folders_are_told_by_their_stores)
{
    static const char *const names[] = {"a", "b c", "d"};
    struct store *leaves[3];
    struct routes routes;
    struct store *s;
    struct op op;

    test_routes(&routes, implied);
    op_init(&op, PATIENCE);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(mem_store_new("mem:", NULL, &op, &leaves[i]), 0);
    leaves[0]->root_id = strdup("12 34");
    leaves[1]->root_id = strdup("56 0");
    ck_assert_int_eq(routed_store_new(&routes, leaves, names, 3, &op, &s), 0);
    ck_assert_ptr_nonnull(s->root_id);
    ck_assert_str_eq(s->root_id, "12 34 a\n56 0 b c");
    free(leaves[0]->root_id);
    free(leaves[1]->root_id);
    leaves[0]->root_id = leaves[1]->root_id = NULL; /* mem: has none */
    store_close(s);
    routes_release(&routes);
}
END_TEST

/* ---- one name, several claims ---- */

START_TEST(an_earlier_route_has_the_name)
{
    struct world w;

    make_runs(&w);
    leaf_has(&w, 3, "runs/one/logs/of the wrong store");
    leaf_has(&w, 3, "runs/two/checkpoint/3.pt");
    assert_names(&w, "runs/one", 0, "checkpoint/ logs/ metadata/ notes.txt");
    ck_assert_uint_eq(w.notes.hidden_names, 1); /* as what another store has */
    assert_names(&w, "runs/one/logs", 0, "a/");
    ck_assert_int_eq(kind_of(&w, "runs/one/logs/of the wrong store"), '-');
    ck_assert_int_eq(kind_of(&w, "runs/two/checkpoint"), '-');
    assert_names(&w, "runs/two", 0, "logs/");
    ck_assert_uint_eq(w.notes.hidden_names, 1);
    world_close(&w);
}
END_TEST

START_TEST(a_directory_is_shown_before_an_object)
{
    struct world w;

    make_runs(&w);
    leaf_has(&w, 3, "runs/one/logs"); /* objects, and directories of other stores */
    leaf_has(&w, 3, "runs/three");
    leaf_has(&w, 3, "runs");
    leaf_has(&w, 3, "runs/two/checkpoint"); /* no directory */
    assert_names(&w, "runs/one", 0, "checkpoint/ logs/ metadata/ notes.txt");
    ck_assert_uint_eq(w.notes.hidden_names, 1);
    assert_names(&w, "runs", 0, "list.txt one/ three/ two/");
    assert_names(&w, "", 0, "runs/ set/");
    assert_names(&w, "runs/two", 0, "checkpoint logs/");
    ck_assert_int_eq(kind_of(&w, "runs/one/logs"), 'd');
    ck_assert_int_eq(kind_of(&w, "runs/three"), 'd');
    ck_assert_int_eq(kind_of(&w, "runs"), 'd');
    ck_assert_int_eq(kind_of(&w, "runs/two/checkpoint"), 'o');

    leaf_has(&w, 3, "set"); /* as one store has both */
    assert_names(&w, "", 0, "runs/ set set/");
    ck_assert_int_eq(kind_of(&w, "set"), 'o');
    world_close(&w);
}
END_TEST

START_TEST(an_object_hides_no_directory_on_the_way)
{
    struct world w;

    world_open(&w, implied, 2, "mem:");
    leaf_has(&w, 0, "one"); /* and "one/", below which the route goes on */
    leaf_has(&w, 0, "one/k/b/file");
    leaf_has(&w, 0, "two");
    ck_assert_int_eq(kind_of(&w, "r/one"), 'd');
    ck_assert_int_eq(kind_of(&w, "r/two"), '-');
    assert_names(&w, "r", 0, "one/");
    ck_assert_uint_eq(w.notes.hidden_names, 2);
    assert_names(&w, "r/one", 0, "x/");
    world_close(&w);
}
END_TEST

/* ---- objects whose key goes on behind the name ---- */

static const struct test_route models[] = {{"models/{name}", "m/{name}/model.bin", 0},
                                           {"best/{run}/weights", "{run}.h5", 1},
                                           {"data{x}", "d{x}", 1},
                                           {"data{x}/**", "d{x}/**", 1},
                                           {NULL, NULL, 0}};

START_TEST(keys_that_go_on_and_keys_that_end)
{
    struct world w;

    world_open(&w, models, 2, "mem:");
    ok(&w, put(&w, "models/one"));
    ck_assert(is_in_leaf(&w, 0, "m/one/model.bin"));
    leaf_has(&w, 0, "m/two/other.bin");
    leaf_has(&w, 0, "m/three/model.bin/below");
    assert_names(&w, "models", 0, "one");
    ck_assert_int_eq(kind_of(&w, "models/one"), 'o');
    ck_assert_int_eq(kind_of(&w, "models/two"), '-');
    assert_names(&w, "models", LIST_RECURSIVE, "one");

    ok(&w, put(&w, "best/x/weights"));
    ck_assert(is_in_leaf(&w, 1, "x.h5"));
    assert_names(&w, "best", 0, "x/");
    assert_names(&w, "best/x", 0, "weights");
    ck_assert_int_eq(kind_of(&w, "best/x"), 'd');
    ck_assert_int_eq(kind_of(&w, "best/y"), '-');
    assert_names(&w, "best", LIST_RECURSIVE, "x/weights");

    ok(&w, put(&w, "dataset"));
    ok(&w, put(&w, "datadir/file"));
    assert_names(&w, "", 0, "best/ datadir/ dataset models/");
    world_close(&w);
}
END_TEST

/* One directory of a store by several names. */
START_TEST(one_stored_name_is_shown_by_two)
{
    static const struct test_route t[] = {
        {"u/a{x}/c/**", "k/{x}/c/**", 0}, {"u/b{x}/**", "k/{x}/**", 0}, {NULL, NULL, 0}};
    struct world w;

    world_open(&w, t, 1, "mem:");
    leaf_has(&w, 0, "k/1/c/file");
    assert_names(&w, "u", 0, "a1/ b1/");
    assert_names(&w, "u/a1", 0, "c/");
    assert_names(&w, "u", LIST_RECURSIVE, "a1/c/file b1/c/file");
    world_close(&w);
}
END_TEST

/* ---- codecs ---- */

static const struct test_route coded[] = {
    {"meta/{run}/**", "{run:b32}/**", 0}, {"**", "**", 1}, {NULL, NULL, 0}};

START_TEST(names_are_written_by_the_codec)
{
    char long_name[STORE_KEY_MAX];
    struct world w;

    world_open(&w, coded, 2, "mem:");
    ok(&w, put(&w, "meta/f/x"));
    ok(&w, put(&w, "meta/a%2Fb/x"));
    ck_assert(is_in_leaf(&w, 0, "MY======/x"));
    ck_assert(is_in_leaf(&w, 0, "MEXWE===/x"));
    leaf_has(&w, 0, "my======/lower case");
    leaf_has(&w, 0, "no base32/x");
    leaf_has(&w, 0, "MZ======/bits behind the end");
    assert_names(&w, "meta", 0, "a%2Fb/ f/");
    ck_assert_uint_eq(w.notes.hidden_names, 3);
    ck_assert_int_eq(kind_of(&w, "meta/f"), 'd');
    ck_assert_int_eq(kind_of(&w, "meta/a%2fb"), '-');
    fails(&w, EINVAL, put(&w, "meta/a%2fb/x"));
    fails(&w, EILSEQ, put(&w, "meta/\xff/x"));
    fails(&w, EILSEQ, store_mkdir(w.s, &w.op, "meta/\xff", NULL, NULL));
    ck_assert_int_eq(kind_of(&w, "meta/\xff"), '-');
    (void)snprintf(long_name, sizeof(long_name), "meta/%0200d/x", 0);
    fails(&w, ENAMETOOLONG, put(&w, long_name));
    assert_names(&w, "meta", LIST_RECURSIVE, "a%2Fb/x f/x");
    world_close(&w);
}
END_TEST

/* What a store keeps for itself is behind no path. */
START_TEST(state_of_a_store_is_no_path)
{
    static const struct test_route t[] = {
        {"x/y/**", "**", 1}, {"{run}/**", "{run}/**", 0}, {NULL, NULL, 0}};
    struct world w;

    world_open(&w, t, 2, "mem:");
    leaf_has(&w, 0, ".runfs/state");
    fails(&w, EPERM, put(&w, ".runfs/other"));
    ck_assert_int_eq(kind_of(&w, ".runfs/state"), '-');
    assert_names(&w, "", 0, "x/");
    assert_names(&w, "", LIST_RECURSIVE, "");
    world_close(&w);

    static const struct test_route below[] = {{"x/{run}/**", "{run}/**", 0},
                                              {"y/{run}/z/**", "{run}/**", 0},
                                              {"all/**", "**", 0},
                                              {NULL, NULL, 0}};
    world_open(&w, below, 1, "mem:");
    leaf_has(&w, 0, ".runfs/state");
    fails(&w, EPERM, put(&w, "x/.runfs/other"));
    ck_assert_int_eq(kind_of(&w, "x/.runfs/state"), '-');
    assert_names(&w, "x", 0, "");
    assert_names(&w, "x", LIST_RECURSIVE, "");
    ck_assert_int_eq(kind_of(&w, "y/.runfs"), '-');
    fails(&w, ENOENT, store_list(w.s, &w.op, "y/.runfs", 0, visit_none, NULL));
    assert_names(&w, "all", 0, "");
    assert_names(&w, "all", LIST_RECURSIVE, "");
    world_close(&w);
}
END_TEST

/* ---- without a route ---- */

START_TEST(where_no_route_leads)
{
    struct object obj;
    struct upload *up;
    struct world w;
    const char *path = "r/one/z";

    world_open(&w, implied, 2, "mem:");
    fails(&w, EPERM, put(&w, path));
    ck_assert_ptr_nonnull(strstr(w.op.why, "no route leads to r/one/z"));
    fails(&w, EPERM, store_upload_begin(w.s, &w.op, path, NULL, &up));
    fails(&w, EPERM, store_mkdir(w.s, &w.op, "r/one", NULL, NULL)); /* no store keeps it */
    fails(&w, EEXIST, store_mkdir(w.s, &w.op, "r", NULL, NULL));
    fails(&w, EBUSY, store_rmdir(w.s, &w.op, "r"));
    fails(&w, ENOENT, store_stat(w.s, &w.op, path, &obj));
    fails(&w, ENOENT, store_list(w.s, &w.op, path, 0, visit_none, NULL));
    fails(&w, ENOENT, store_upload_resume(w.s, &w.op, path, "a:x", NULL, NULL, &up));
    ok(&w, store_remove(w.s, &w.op, &path, NULL, 1, NULL));
    ok(&w, store_rmdir(w.s, &w.op, path));
    ck_assert_uint_eq(requests(&w), 0);
    world_close(&w);
}
END_TEST

START_TEST(scratch_is_in_no_store)
{
    static const struct test_route t[] = {{"tmp/**", "tmp/**", TEST_SCRATCH},
                                          {"run/{x}/tmp/**", "{x}/**", TEST_SCRATCH},
                                          {"**", "**", 0},
                                          {NULL, NULL, 0}};
    struct store_facts f;
    struct world w;

    world_open(&w, t, 1, "mem:");
    leaf_has(&w, 0, "tmp/file");
    leaf_has(&w, 0, "file");
    assert_names(&w, "", 0, "file run/");
    ck_assert_uint_eq(w.notes.hidden_names, 1);
    assert_names(&w, "", LIST_RECURSIVE, "file");
    ck_assert_int_eq(kind_of(&w, "tmp/file"), '-');
    ck_assert_int_eq(kind_of(&w, "run"), 'd');
    ck_assert_int_eq(kind_of(&w, "run/x"), '-');
    assert_names(&w, "run", 0, "");
    fails(&w, EPERM, put(&w, "tmp/other"));
    store_facts(w.s, "tmp/other", &f);
    ck_assert_uint_eq(f.volume, 0);
    world_close(&w);
}
END_TEST

START_TEST(below_scratch_is_what_an_earlier_route_has)
{
    static const struct test_route t[] = {
        {"runs/{run}/checkpoint/**", "{run}/**", 0},
        {"runs/{run}/model.pt", "models/{run}.pt", 1},
        {"runs/**", "runs/**", TEST_SCRATCH},
        {"**", "**", 1},
        {NULL, NULL, 0},
    };
    struct object obj;
    struct world w;

    world_open(&w, t, 2, "mem:");
    leaf_has(&w, 0, "a/m");
    leaf_has(&w, 1, "models/b.pt");
    leaf_has(&w, 1, "runs/c/m");
    ck_assert_int_eq(kind_of(&w, "runs"), 'd');
    ck_assert_int_eq(kind_of(&w, "runs/a"), 'd');
    ck_assert_int_eq(kind_of(&w, "runs/b"), 'd');
    ck_assert_int_eq(kind_of(&w, "runs/c"), '-');
    ck_assert_int_eq(kind_of(&w, "runs/a/checkpoint/m"), 'o');
    ck_assert_int_eq(kind_of(&w, "runs/a/logs"), '-');
    assert_names(&w, "runs", 0, "a/ b/");
    assert_names(&w, "runs/a", 0, "checkpoint/");
    assert_names(&w, "runs", LIST_RECURSIVE, "a/checkpoint/m b/model.pt");
    fails(&w, ENOENT, store_stat_dir(w.s, &w.op, "runs/a", &obj));
    fails(&w, EPERM, store_mkdir(w.s, &w.op, "runs/d", NULL, NULL)); /* no store keeps it */
    fails(&w, EPERM, store_mkdir(w.s, &w.op, "runs/a/logs", NULL, NULL));
    fails(&w, EPERM, put(&w, "runs/a/x"));
    fails(&w, EBUSY, store_rmdir(w.s, &w.op, "runs"));
    fails(&w, ENOTEMPTY, store_rmdir(w.s, &w.op, "runs/a"));
    ok(&w, store_rmdir(w.s, &w.op, "runs/a/logs"));
    ok(&w, store_rmdir(w.s, &w.op, "runs/c"));
    world_close(&w);
}
END_TEST

/* ---- subtrees ---- */

START_TEST(a_subtree_is_that_of_all_stores)
{
    struct world w;

    make_runs(&w);
    leaf_has(&w, 3, "runs/one/logs/of the wrong store");
    ok(&w, store_mkdir(w.s, &w.op, "runs/one/checkpoint", NULL, NULL));
    ok(&w, store_mkdir(w.s, &w.op, "runs/one/logs/empty", NULL, NULL));
    assert_names(&w, "runs/one", LIST_RECURSIVE,
                 "checkpoint/ checkpoint/1.pt logs/a/events logs/empty/ metadata/m.json "
                 "notes.txt");
    assert_names(&w, "runs", LIST_RECURSIVE,
                 "list.txt one/checkpoint/ one/checkpoint/1.pt one/logs/a/events "
                 "one/logs/empty/ one/metadata/m.json one/notes.txt three/checkpoint/2.pt "
                 "two/logs/events");
    assert_names(&w, "runs/one/checkpoint", LIST_RECURSIVE, "1.pt");
    assert_names(&w, "set", LIST_RECURSIVE, "train.csv");
    world_close(&w);
}
END_TEST

/* ---- failures ---- */

START_TEST(a_store_that_fails_fails_what_it_has_a_part_in)
{
    static const struct fault down = {
        .kind = FAULT_ANY_KIND, .first = 1, .count = 1000, .err = -EHOSTUNREACH};
    struct object obj;
    struct world w;

    make_runs(&w);
    layer_fault_script(w.fault[1], &down, 1);
    fails(&w, EHOSTUNREACH, store_list(w.s, &w.op, "runs", 0, visit_none, NULL));
    fails(&w, EHOSTUNREACH, store_list(w.s, &w.op, "runs/one", 0, visit_none, NULL));
    fails(&w, EHOSTUNREACH, store_list(w.s, &w.op, "runs", LIST_RECURSIVE, visit_none, NULL));
    fails(&w, EHOSTUNREACH, store_stat(w.s, &w.op, "runs/four", &obj)); /* who knows */
    fails(&w, EHOSTUNREACH, store_stat(w.s, &w.op, "runs/one/logs/a", &obj));
    assert_names(&w, "", 0, "runs/ set/");
    assert_names(&w, "runs/one/checkpoint", 0, "1.pt");
    assert_names(&w, "set", 0, "train.csv");
    ck_assert_int_eq(kind_of(&w, "runs/one"), 'd'); /* the store of its own key has it */
    ck_assert_int_eq(kind_of(&w, "runs/three"), 'd');
    world_close(&w);
}
END_TEST

START_TEST(a_cancel_and_the_deadline_end_questions)
{
    static const struct fault hangs = {
        .kind = FAULT_ANY_KIND, .first = 1, .count = 1000, .delay_ns = 3600 * NS_PER_SEC};
    atomic_bool cancelled = true;
    struct object obj;
    struct world w;

    make_runs(&w);
    layer_fault_script(w.fault[1], &hangs, 1);
    op_init(&w.op, 20 * NS_PER_MS);
    fails(&w, ETIMEDOUT, store_list(w.s, &w.op, "runs/one", 0, visit_none, NULL));
    op_init(&w.op, PATIENCE);
    w.op.cancelled = &cancelled;
    fails(&w, EINTR, store_list(w.s, &w.op, "runs/one", 0, visit_none, NULL));
    fails(&w, EINTR, store_stat(w.s, &w.op, "runs/four", &obj));
    world_close(&w);
}
END_TEST

static Suite *suite(void)
{
    const TTest *const tests[] = {
        each_path_has_its_store,
        a_directory_shows_what_all_stores_have,
        what_makes_a_directory_exist,
        directories_on_the_way_have_no_attributes,
        a_marker_is_of_the_own_key,
        folders_are_told_by_their_stores,
        an_earlier_route_has_the_name,
        a_directory_is_shown_before_an_object,
        an_object_hides_no_directory_on_the_way,
        keys_that_go_on_and_keys_that_end,
        one_stored_name_is_shown_by_two,
        names_are_written_by_the_codec,
        state_of_a_store_is_no_path,
        where_no_route_leads,
        scratch_is_in_no_store,
        below_scratch_is_what_an_earlier_route_has,
        a_subtree_is_that_of_all_stores,
        a_store_that_fails_fails_what_it_has_a_part_in,
        a_cancel_and_the_deadline_end_questions,
    };
    Suite *s = suite_create("routed");
    TCase *t = tcase_create("routed");

    tcase_set_timeout(t, 60);
    for (size_t i = 0; i < ARRAY_SIZE(tests); i++)
        tcase_add_test(t, tests[i]);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return suite_run(suite());
}
