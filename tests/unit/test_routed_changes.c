/* The store over stores: what changes in it, what crosses stores, what holds at a key. */
#include "tests/lib/routed_world.h"
#include "tests/lib/suite.h"
#include "tests/lib/temp_dir.h"

#include <limits.h>
#include <sys/stat.h>

/* ---- across stores ---- */

START_TEST(nothing_moves_between_stores)
{
    struct world w;

    make_runs(&w);
    uint64_t before = requests(&w);
    fails(&w, EXDEV,
          store_copy(w.s, &w.op, "runs/one/notes.txt", NULL, "runs/one/logs/n", NULL, NULL,
                     NULL));
    fails(&w, EXDEV, store_rename(w.s, &w.op, "runs/one/notes.txt", "runs/one/logs/n"));
    ck_assert_uint_eq(requests(&w), before);
    ok(&w, store_copy(w.s, &w.op, "runs/one/notes.txt", NULL, "set/n", NULL, NULL, NULL));
    ok(&w, store_rename(w.s, &w.op, "set/n", "runs/two/n"));
    ck_assert(is_in_leaf(&w, 3, "runs/two/n"));
    world_close(&w);
}
END_TEST

START_TEST(a_directory_of_several_routes_is_not_renamed)
{
    struct world w;

    make_runs(&w);
    ck_assert(store_can(w.s, "set", STORE_RENAME));
    ck_assert(store_can(w.s, "runs/one/logs/a", STORE_RENAME));
    ck_assert(!store_can(w.s, "runs/one", STORE_RENAME));
    ck_assert(!store_can(w.s, "runs", STORE_RENAME));
    ck_assert(!store_can(w.s, "", STORE_RENAME));
    uint64_t before = requests(&w);
    fails(&w, EOPNOTSUPP, store_rename(w.s, &w.op, "runs/one", "runs/four"));
    fails(&w, EBUSY, store_rename(w.s, &w.op, "runs", "other"));
    ck_assert_uint_eq(requests(&w), before);
    fails(&w, EOPNOTSUPP, store_rename(w.s, &w.op, "set", "runs/four"));
    ok(&w, store_rename(w.s, &w.op, "runs/one/logs/a", "runs/five/logs/b"));
    ck_assert(is_in_leaf(&w, 1, "l/five/b/events"));
    ok(&w, store_rename(w.s, &w.op, "set", "sets"));
    assert_names(&w, "sets", 0, "train.csv");
    world_close(&w);
}
END_TEST

/* A directory of its new name would be made of several routes. */
START_TEST(an_object_is_renamed_to_where_a_directory_is_of_several_routes)
{
    struct world w;

    make_runs(&w);
    ck_assert(store_can(w.s, "set/train.csv", STORE_RENAME));
    ok(&w, store_rename(w.s, &w.op, "set/train.csv", "runs/four"));
    ck_assert(is_in_leaf(&w, 3, "runs/four"));
    fails(&w, ENOENT, store_rename(w.s, &w.op, "set/train.csv", "runs/five"));
    world_close(&w);
}
END_TEST

/* An object of that name would be in another store, which is no matter of a directory. */
START_TEST(a_directory_that_becomes_a_root_is_not_in_two_stores)
{
    struct world w;

    make_runs(&w);
    ck_assert(store_can(w.s, "runs/one/logs/a", STORE_RENAME));
    fails(&w, EOPNOTSUPP, store_rename(w.s, &w.op, "runs/one/logs/a", "runs/five/logs"));
    ok(&w, put(&w, "runs/one/logs/file"));
    fails(&w, EXDEV, store_rename(w.s, &w.op, "runs/one/logs/file", "runs/five/logs"));
    world_close(&w);
}
END_TEST

/* The root of a route is no object, and one key all the same. */
START_TEST(roots_are_renamed)
{
    static const struct test_route t[] = {
        {"r/{a}/**", "{a}/**", 0}, {"d/{a}/**", "d/{a}/data/**", 0}, {NULL, NULL, 0}};
    struct world w;

    world_open(&w, t, 1, "mem:");
    ok(&w, put(&w, "r/one/file"));
    ck_assert(store_can(w.s, "r/one", STORE_RENAME));
    ok(&w, store_rename(w.s, &w.op, "r/one", "r/two"));
    ck_assert(is_in_leaf(&w, 0, "two/file"));

    ok(&w, put(&w, "d/one/file"));
    ok(&w, store_mkdir(w.leaf[0], &w.op, "d/one", NULL, NULL));
    ck_assert(!store_can(w.s, "d/one", STORE_RENAME)); /* it is two keys */
    fails(&w, EOPNOTSUPP, store_rename(w.s, &w.op, "d/one", "d/two"));
    ck_assert(store_can(w.s, "d/one/file", STORE_RENAME));
    ok(&w, store_rename(w.s, &w.op, "d/one/file", "r/two/file2"));
    ok(&w, store_mkdir(w.s, &w.op, "d/one", NULL, NULL));
    assert_names(&w, "d", 0, "one/");
    ok(&w, store_rmdir(w.s, &w.op, "d/one"));
    ck_assert(!is_in_leaf(&w, 0, "d/one"));
    assert_names(&w, "d", 0, "");
    world_close(&w);
}
END_TEST

START_TEST(facts_are_of_the_store_behind)
{
    struct store_facts f, all;
    struct world w;

    world_open(&w, runs, LEAVES, "mem:");
    store_facts(w.s, "", &all);
    ck_assert_uint_eq(all.volume, 0);
    ck_assert(!(all.caps & (STORE_ORDER | STORE_STATE)));
    store_facts(w.s, "runs/one/logs/x", &f);
    ck_assert_uint_eq(f.volume, 2);
    ck_assert(!(f.caps & (STORE_ORDER | STORE_STATE)));
    ck_assert(f.caps & STORE_IF_MATCH);
    store_facts(w.s, "runs/one", &f);
    ck_assert_uint_eq(f.volume, 4);
    world_close(&w);
}
END_TEST

/* A path of the longest that a route promises has a key that its store takes. */
START_TEST(paths_that_are_not_too_long)
{
    static const struct test_route t[] = {
        {"r/{a}/{b}/**", "some/more/{a:hex}/_{b:b32}/z/**", 0},
        {"p/{a}/**", "{a:pct}/**", 0},
        {"a/very/long/way/to/a/**", "**", 0},
        {NULL, NULL, 0}};
    char a[121], b[151], c[81], path[STORE_KEY_MAX];
    struct store_facts f;
    struct world w;

    world_open(&w, t, 1, "mem:");
    for (int route = 0; route < 3; route++) {
        memset(a, 'a', 120);
        memset(b, 'b', 150);
        memset(c, '~', 80);
        a[120] = b[150] = c[80] = '\0';
        if (route == 0)
            (void)snprintf(path, sizeof(path), "r/%s/%s/x", a, b);
        else
            (void)snprintf(path, sizeof(path), route == 1 ? "p/%s/x" : "a/very/long/way/to/a/x",
                           c);
        store_facts(w.s, path, &f);
        ck_assert_uint_lt(f.key_max, STORE_KEY_MAX);
        ck_assert_uint_gt(f.key_max, 3500);
        for (size_t n = strlen(path); n < f.key_max; n++)
            path[n] = n + 1 < f.key_max && n % 200 == 0 ? '/' : 'x';
        path[f.key_max] = '\0';
        ok(&w, put(&w, path));
    }
    world_close(&w);
}
END_TEST

START_TEST(keys_of_several_stores_are_removed)
{
    static const struct fault refuse = {
        .kind = CALL_REMOVE, .first = 1, .count = 100, .err = -EACCES};
    const char *const paths[] = {"runs/one/logs/a/events", "runs/one/notes.txt",
                                 "runs/one/checkpoint/1.pt", "nothing",
                                 "runs/one/metadata/m.json"};
    const int expected[] = {0, 0, -EACCES, 0, 0};
    int errs[5] = {1, 1, 1, 1, 1};
    struct world w;

    make_runs(&w);
    layer_fault_script(w.fault[0], &refuse, 1);
    fails(&w, EACCES, store_remove(w.s, &w.op, paths, NULL, 5, errs));
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(errs[i], expected[i]);
    ck_assert(!is_in_leaf(&w, 1, "l/one/a/events"));
    ck_assert(!is_in_leaf(&w, 3, "runs/one/notes.txt"));
    ck_assert(is_in_leaf(&w, 0, "one/1.pt"));
    ck_assert_uint_eq(counts(&w, 3).removes, 1); /* both of its keys */
    layer_fault_script(w.fault[0], NULL, 0);
    ok(&w, store_remove(w.s, &w.op, paths, NULL, 5, NULL));
    ck_assert(!is_in_leaf(&w, 0, "one/1.pt"));
    world_close(&w);
}
END_TEST

START_TEST(one_version_is_removed)
{
    const char *const paths[] = {"set/train.csv", "runs/two/logs/events"};
    const char *const etags[] = {"another", NULL};
    int errs[2];
    struct world w;

    make_runs(&w);
    fails(&w, ESTALE, store_remove(w.s, &w.op, paths, etags, 2, errs));
    ck_assert_int_eq(errs[0], -ESTALE);
    ck_assert_int_eq(errs[1], 0);
    ck_assert_int_eq(kind_of(&w, paths[0]), 'o');
    ck_assert_int_eq(kind_of(&w, paths[1]), '-');
    world_close(&w);
}
END_TEST

/* ---- uploads ---- */

START_TEST(a_session_is_of_one_store)
{
    auto_free char *token = NULL;
    struct upload *up;
    struct world w;

    make_runs(&w);
    ok(&w, store_upload_begin(w.s, &w.op, "runs/one/logs/big", NULL, &up));
    token = store_upload_token(up);
    store_upload_detach(up);
    ck_assert_int_eq(strncmp(token, "b:", 2), 0);
    uint64_t before = requests(&w);
    fails(&w, ENOENT,
          store_upload_resume(w.s, &w.op, "runs/one/checkpoint/big", token, NULL, NULL, &up));
    ck_assert_uint_eq(requests(&w), before);
    ok(&w, store_upload_resume(w.s, &w.op, "runs/one/logs/big", token, NULL, NULL, &up));
    ok(&w, store_upload_abort(up, &w.op));
    world_close(&w);
}
END_TEST

/* A driver that keeps account of a session in each copy. */
static int64_t copies_in_parts(struct layer *l, struct call *c)
{
    (void)l;
    struct store_sessions *s = c->op->notes ? c->op->notes->sessions : NULL;
    if (c->kind == CALL_COPY && s) {
        ck_assert_int_eq(s->begun(s, c->to, NULL), 0);
        ck_assert_int_eq(s->begun(s, c->to, "token"), 0);
        s->ended(s);
    }
    return call_next(c);
}

struct account {
    struct store_sessions base;
    char text[128];
};

static int note_begun(struct store_sessions *s, const char *key, const char *token)
{
    char *text = container_of(s, struct account, base)->text;

    (void)sprintf(text + strlen(text), "%s=%s;", key, token ? token : "");
    return 0;
}

static void note_ended(struct store_sessions *s)
{
    strcat(container_of(s, struct account, base)->text, "end");
}

START_TEST(sessions_of_copies_are_told_by_path)
{
    static const struct test_route t[] = {{"x/**", "k/**", 0}, {NULL, NULL, 0}};
    struct layer *l = calloc(1, sizeof(*l));
    struct account account = {{note_begun, note_ended}, ""};
    struct store *mem = NULL, *leaf;
    struct world w = {.notes.sessions = &account.base};

    op_init(&w.op, PATIENCE);
    w.op.notes = &w.notes;
    ck_assert_int_eq(mem_store_new("mem:", NULL, &w.op, &mem), 0);
    ck_assert_int_eq(layer_init(l, mem, copies_in_parts), 0);
    leaf = &l->base;
    test_routes(&w.routes, t);
    w.s = test_routed(&w.routes, &leaf, 1);
    ok(&w, put(&w, "x/from"));
    ok(&w, store_copy(w.s, &w.op, "x/from", NULL, "x/to", NULL, NULL, NULL));
    ck_assert_str_eq(account.text, "x/to=;x/to=a:token;end");
    ck_assert_ptr_eq(w.op.notes, &w.notes);
    world_close(&w);
}
END_TEST

/* ---- directories that go ---- */

START_TEST(an_empty_directory_goes_from_all_stores)
{
    const char *path = "r/one/x/b/file";
    struct world w;

    world_open(&w, implied, 2, "mem:");
    ok(&w, put(&w, path));
    ok(&w, store_mkdir(w.leaf[0], &w.op, "one", NULL, NULL));
    ok(&w, store_mkdir(w.leaf[0], &w.op, "one/k", NULL, NULL));
    ok(&w, store_mkdir(w.s, &w.op, "r/one/y", NULL, NULL));
    fails(&w, ENOTEMPTY, store_rmdir(w.s, &w.op, "r/one"));
    ok(&w, store_remove(w.s, &w.op, &path, NULL, 1, NULL));
    fails(&w, ENOTEMPTY, store_rmdir(w.s, &w.op, "r/one")); /* its y */
    ok(&w, store_rmdir(w.s, &w.op, "r/one/y"));
    ck_assert(!is_in_leaf(&w, 1, "one"));
    ck_assert(is_in_leaf(&w, 0, "one"));
    ok(&w, store_rmdir(w.s, &w.op, "r/one/x"));
    ok(&w, store_rmdir(w.s, &w.op, "r/one"));
    ck_assert(!is_in_leaf(&w, 0, "one"));
    ck_assert_int_eq(kind_of(&w, "r/one"), '-');
    world_close(&w);
}
END_TEST

/* Routes over one new folder. */
static void world_in_folder(struct world *w, const struct test_route *t, char *folder,
                            size_t size)
{
    struct store *leaf = NULL;

    temp_dir_make(folder, size);
    op_init(&w->op, PATIENCE);
    test_routes(&w->routes, t);
    ck_assert_int_eq(local_store_new(folder, NULL, &w->op, &leaf), 0);
    w->s = test_routed(&w->routes, &leaf, 1);
}

/* Folders have a directory for each name of a key. */
START_TEST(real_directories_go_from_below)
{
    static const struct test_route t[] = {{"r/{a}/**", "r/{a}/some/where/**", 0},
                                          {"i/{a}/x/{b}/**", "i/{a}/k/{b}/**", 0},
                                          {NULL, NULL, 0}};
    const char *const paths[] = {"r/one/file", "i/two/x/b/file"};
    char folder[PATH_MAX];
    struct world w = {0};

    world_in_folder(&w, t, folder, sizeof(folder));
    ok(&w, put(&w, paths[0]));
    ok(&w, put(&w, paths[1]));
    fails(&w, ENOTEMPTY, store_rmdir(w.s, &w.op, "r/one"));
    fails(&w, ENOTEMPTY, store_rmdir(w.s, &w.op, "i/two"));
    ok(&w, store_remove(w.s, &w.op, paths, NULL, 2, NULL));
    ok(&w, store_rmdir(w.s, &w.op, "r/one"));
    ok(&w, store_rmdir(w.s, &w.op, "i/two/x/b"));
    ok(&w, store_rmdir(w.s, &w.op, "i/two/x"));
    ok(&w, store_rmdir(w.s, &w.op, "i/two"));
    assert_names(&w, "r", 0, "");
    assert_names(&w, "i", 0, "");
    world_close(&w);
    temp_dir_remove(folder);
}
END_TEST

static bool is_in_folder(const char *folder, const char *key)
{
    char path[PATH_MAX + 64];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s", folder, key);
    return lstat(path, &st) == 0;
}

/* What no path of the mount names could never be removed later. */
START_TEST(directories_of_an_object_alone_go_with_it)
{
    static const struct test_route t[] = {{"m/{a}.pt", "in/{a}/deep/model.pt", 0},
                                          {"m/{a}.txt", "in/{a}/deep/text", 0},
                                          {"r/{a}/one", "r/{a}/one", 0},
                                          {NULL, NULL, 0}};
    const char *const paths[] = {"m/x.pt", "m/y.txt", "r/x/one"};
    char folder[PATH_MAX];
    struct world w = {0};

    world_in_folder(&w, t, folder, sizeof(folder));
    ok(&w, put(&w, "m/x.pt"));
    ok(&w, put(&w, "m/x.txt"));
    ok(&w, put(&w, "r/x/one"));
    ok(&w, store_rename(w.s, &w.op, "m/x.txt", "m/y.txt"));
    ck_assert(is_in_folder(folder, "in/x/deep/model.pt")); /* another one's, too */
    ck_assert(is_in_folder(folder, "in/y/deep/text"));
    ok(&w, store_remove(w.s, &w.op, paths, NULL, 3, NULL));
    ck_assert(!is_in_folder(folder, "in/x"));
    ck_assert(!is_in_folder(folder, "in/y"));
    ck_assert(is_in_folder(folder, "in"));  /* of all of them */
    ck_assert(is_in_folder(folder, "r/x")); /* a directory of the mount */
    ok(&w, put(&w, "m/x.pt"));
    ok(&w, store_rename(w.s, &w.op, "m/x.pt", "m/z.pt"));
    ck_assert(!is_in_folder(folder, "in/x"));
    ck_assert(is_in_folder(folder, "in/z/deep/model.pt"));
    world_close(&w);
    temp_dir_remove(folder);
}
END_TEST

/* Two routes name the directory that a third makes for its object. */
START_TEST(directories_that_another_route_names_stay)
{
    static const struct test_route t[] = {
        {"d/{a}/model.pt", "elsewhere/{a}", 0}, {"d/{a}/**", "in/{a}/**", 0},
        {"m/{a}.pt", "in/{a}/model.pt", 0},     {"r/{a}/log", "{a}/log", 0},
        {"n/{a}.pt", "{a}/model.pt", 0},        {NULL, NULL, 0}};
    const char *const paths[] = {"m/x.pt", "n/y.pt"};
    char folder[PATH_MAX];
    struct world w = {0};

    world_in_folder(&w, t, folder, sizeof(folder));
    ok(&w, put(&w, paths[0]));
    ok(&w, put(&w, paths[1]));
    ok(&w, store_remove(w.s, &w.op, paths, NULL, 2, NULL));
    ck_assert(is_in_folder(folder, "in/x")); /* d/x */
    ck_assert(is_in_folder(folder, "y"));    /* r/y */
    world_close(&w);
    temp_dir_remove(folder);
}
END_TEST

/* What is in it stands for it, as at one store. A folder's directory stays. */
START_TEST(the_marker_goes_from_a_directory_that_is_not_empty)
{
    static const struct test_route t[] = {
        {"r/{a}/x/**", "x/{a}/**", 0}, {"r/{a}/**", "r/{a}/**", 0}, {NULL, NULL, 0}};
    char folder[PATH_MAX];
    struct world w = {0};
    struct store *leaf = NULL;
    struct object obj;

    temp_dir_make(folder, sizeof(folder));
    op_init(&w.op, PATIENCE);
    test_routes(&w.routes, t);
    ck_assert_int_eq(_i ? local_store_new(folder, NULL, &w.op, &leaf)
                        : mem_store_new("mem:", NULL, &w.op, &leaf),
                     0);
    w.s = test_routed(&w.routes, &leaf, 1);
    ok(&w, store_mkdir(w.s, &w.op, "r/one", NULL, NULL));
    ok(&w, store_mkdir(w.s, &w.op, "r/one/x", NULL, NULL));
    ok(&w, put(&w, "r/one/x/file"));
    if (_i)
        fails(&w, ENOTEMPTY, store_rmdir(w.s, &w.op, "r/one"));
    else
        ok(&w, store_rmdir(w.s, &w.op, "r/one"));
    ck_assert_int_eq(store_stat_dir(leaf, &w.op, "r/one", &obj), _i ? 0 : -ENOENT);
    ok(&w, store_stat_dir(leaf, &w.op, "x/one", &obj)); /* it is of the directory below */
    ck_assert_int_eq(kind_of(&w, "r/one"), 'd');
    world_close(&w);
    temp_dir_remove(folder);
}
END_TEST

/* ---- attributes ---- */

START_TEST(attributes_go_to_the_key_behind)
{
    struct attrs a = {.has = ATTR_MODE, .mode = S_IFREG | 0600};
    struct attrs dir = {.has = ATTR_MODE, .mode = S_IFDIR | 0700};
    struct object obj;
    struct world w;

    make_runs(&w);
    leaf_has(&w, 3, "runs/two/logs"); /* a directory is shown */
    ok(&w, store_set_attributes(w.s, &w.op, "set/train.csv", NULL, &a, NULL));
    ok(&w, store_set_attributes(w.s, &w.op, "runs/two/logs", NULL, &dir, NULL));
    ok(&w, store_stat_dir(w.leaf[1], &w.op, "l/two", &obj));
    ck_assert_uint_eq(obj.attrs.mode, dir.mode);
    object_release(&obj);
    ok(&w, store_set_attributes(w.s, &w.op, "runs/three", NULL, &dir, NULL));
    ok(&w, store_stat_dir(w.s, &w.op, "runs/three", &obj)); /* only another store had it */
    ck_assert_uint_eq(obj.attrs.mode, dir.mode);
    object_release(&obj);
    ck_assert(is_in_leaf(&w, 3, "runs/three"));
    fails(&w, ENOENT, store_set_attributes(w.s, &w.op, "nothing", NULL, &a, NULL));
    world_close(&w);

    world_open(&w, implied, 2, "mem:");
    leaf_has(&w, 0, "one/k/b/f");
    fails(&w, EPERM, store_set_attributes(w.s, &w.op, "r/one", NULL, &dir, NULL));
    ok(&w, store_set_attributes(w.s, &w.op, "r/one/x/b", NULL, &dir, NULL));
    world_close(&w);
}
END_TEST

/* ---- what is told of the stores ---- */

START_TEST(advice_names_the_store)
{
    static const struct test_route t[] = {{"a/**", "**", 0}, {"**", "**", 1}, {NULL, NULL, 0}};
    struct store *leaf[2] = {NULL};
    struct routes routes;
    struct op op;

    op_init(&op, PATIENCE);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(mem_store_new("mem:", NULL, &op, &leaf[i]), 0);
    leaf[1]->advice = (char *)"one\ntwo";
    test_routes(&routes, t);
    struct store *s = test_routed(&routes, leaf, 2);
    ck_assert_str_eq(s->advice, "b: one\nb: two");
    leaf[1]->advice = NULL;
    store_close(s);
    routes_release(&routes);
}
END_TEST

#define MANY_STORES 256 /* as many as a configuration may have */

/* However many there are: the title is cut for who mounts it, no advice is. */
START_TEST(many_stores_are_one)
{
    static char name[MANY_STORES][33], advice[301];
    const char *names[MANY_STORES];
    struct store *leaf[MANY_STORES];
    struct routes routes;
    struct store *s = NULL;
    size_t lines = 0;
    struct op op;

    op_init(&op, PATIENCE);
    test_routes(&routes, (const struct test_route[]){{"**", "**", 0}, {NULL, NULL, 0}});
    memset(advice, 'x', sizeof(advice) - 1);
    for (size_t i = 0; i < MANY_STORES; i++) {
        (void)snprintf(name[i], sizeof(name[i]), "%032zu", MANY_STORES - i);
        names[i] = name[i];
        ck_assert_int_eq(mem_store_new("mem:", NULL, &op, &leaf[i]), 0);
        leaf[i]->advice = advice;
    }
    ck_assert_msg(routed_store_new(&routes, leaf, names, MANY_STORES, &op, &s) == 0, "%s",
                  op.why);
    for (const char *line = s->advice; line; line = strchr(line + 1, '\n'))
        lines++;
    ck_assert_uint_eq(lines, MANY_STORES);
    ck_assert_ptr_nonnull(strstr(s->url, "runfs:00000000000000000000000000000001+"));
    ck_assert_ptr_nonnull(strstr(s->url, "2+0"));
    ck_assert_ptr_nonnull(strstr(s->url, "+227-more"));
    for (size_t i = 0; i < MANY_STORES; i++)
        leaf[i]->advice = NULL;
    store_close(s);
    routes_release(&routes);
}
END_TEST

START_TEST(a_title_is_as_long_as_a_mount_takes)
{
    static const char *const two[] = {"logs", "ckpt"};
    char long_name[256];
    const char *names[8];

    auto_free char *all = routed_title(two, 2);
    ck_assert_str_eq(all, "runfs:ckpt+logs");
    memset(long_name, 'n', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        names[i] = long_name;
    auto_free char *cut = routed_title(names, ARRAY_SIZE(names));
    ck_assert_uint_eq(strlen(cut), strlen("runfs:") + 3 * 256 - 1 + strlen("+5-more"));
    ck_assert_str_eq(cut + strlen(cut) - 8, "n+5-more");
}
END_TEST

static Suite *suite(void)
{
    const TTest *const tests[] = {
        nothing_moves_between_stores,
        a_directory_of_several_routes_is_not_renamed,
        an_object_is_renamed_to_where_a_directory_is_of_several_routes,
        a_directory_that_becomes_a_root_is_not_in_two_stores,
        roots_are_renamed,
        facts_are_of_the_store_behind,
        paths_that_are_not_too_long,
        keys_of_several_stores_are_removed,
        one_version_is_removed,
        a_session_is_of_one_store,
        sessions_of_copies_are_told_by_path,
        an_empty_directory_goes_from_all_stores,
        real_directories_go_from_below,
        directories_of_an_object_alone_go_with_it,
        directories_that_another_route_names_stay,
        attributes_go_to_the_key_behind,
        advice_names_the_store,
        many_stores_are_one,
        a_title_is_as_long_as_a_mount_takes,
    };
    Suite *s = suite_create("routed changes");
    TCase *t = tcase_create("routed changes");

    tcase_set_timeout(t, 60);
    for (size_t i = 0; i < ARRAY_SIZE(tests); i++)
        tcase_add_test(t, tests[i]);
    tcase_add_loop_test(t, the_marker_goes_from_a_directory_that_is_not_empty, 0, 2);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return suite_run(suite());
}
