/* The store over stores: how many requests, names in memory and threads its calls take. */
#include "backends/layers/layer.h"
#include "backends/routed/routed_impl.h"
#include "tests/lib/cancel.h"
#include "tests/lib/routed_world.h"
#include "tests/lib/suite.h"

#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <unistd.h>

/* ---- requests ---- */

START_TEST(requests_are_few)
{
    static const struct {
        const char *path;
        unsigned list, stat; /* requests of a listing, of a stat */
    } t[] = {
        {"runs/one/logs", 1, 2},   /* an object of that name is in another store */
        {"runs/one/logs/a", 1, 1}, /* mapped */
        {"set", 1, 1},
        {"", 1, 1},
        {"runs", 4, 1},
        {"runs/one", 4, 1},   /* the stores of its four names, at most */
        {"runs/three", 4, 4}, /* its own key is not there */
        {"runs/four", 4, 4},
        {"runs/one/notes.txt", 1, 1},
    };
    struct object obj;
    struct world w;

    make_runs(&w);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        uint64_t before = requests(&w);
        int r = store_list(w.s, &w.op, t[i].path, 0, visit_none, NULL);
        ck_assert(r == 0 || r == -ENOENT);
        ck_assert_msg(requests(&w) - before <= t[i].list, "list %s", t[i].path);
        before = requests(&w);
        if (store_stat(w.s, &w.op, t[i].path, &obj) == 0)
            object_release(&obj);
        ck_assert_msg(requests(&w) - before <= t[i].stat, "stat %s: %u", t[i].path,
                      (unsigned)(requests(&w) - before));
    }
    world_close(&w);
}
END_TEST

/* Where one store has all of it, its directory is listed once. */
START_TEST(one_store_is_asked_once)
{
    static const struct test_route t[] = {
        {"runs/{run}/checkpoint/**", "runs/{run}/checkpoint/**", 0},
        {"runs/{run}/logs/**", "runs/{run}/logs/**", 0},
        {"runs/{run}/**", "runs/{run}/**", 0},
        {"**", "**", 0},
        {NULL, NULL, 0}};
    struct world w;

    world_open(&w, t, 1, "mem:");
    ok(&w, put(&w, "runs/one/checkpoint/1"));
    ok(&w, put(&w, "runs/one/logs"));
    ok(&w, put(&w, "runs/one/notes"));
    ok(&w, put(&w, "runs/file"));
    static const struct {
        const char *path, *names;
    } dirs[] = {{"", "runs/"}, {"runs", "file one/"}, {"runs/one", "checkpoint/ logs notes"}};
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        uint64_t before = requests(&w);
        assert_names(&w, dirs[i].path, 0, dirs[i].names);
        ck_assert_uint_eq(requests(&w) - before, 1);
    }
    assert_names(&w, "", LIST_RECURSIVE,
                 "runs/file runs/one/checkpoint/1 runs/one/logs runs/one/notes");
    world_close(&w);
}
END_TEST

/* ---- long directories ---- */

#define MANY 6000

struct tally {
    unsigned n, dirs, stop_at;
    bool self;
};

static int tally_name(void *arg, const char *name, const struct object *obj)
{
    struct tally *t = arg;

    if (!name[0]) {
        t->self = true;
        return 0;
    }
    t->dirs += obj->is_prefix;
    return ++t->n == t->stop_at ? 42 : 0;
}

/* More names than are kept: they are visited as they come. */
START_TEST(long_directories_are_not_kept)
{
    struct tally t = {0};
    struct world w;
    char name[64];

    make_runs(&w);
    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "runs/one/%u", i);
        leaf_has(&w, 3, name);
    }
    leaf_has(&w, 3, "runs/one/logs/wrong");
    leaf_has(&w, 3, "runs/one/checkpoint");
    ok(&w, store_mkdir(w.s, &w.op, "runs/one", NULL, NULL));
    uint64_t before = counts(&w, 3).lists;
    ok(&w, store_list(w.s, &w.op, "runs/one", LIST_SELF, tally_name, &t));
    ck_assert_uint_eq(t.n, MANY + 4);
    ck_assert_uint_eq(t.dirs, 3);
    ck_assert(t.self);
    ck_assert_uint_eq(w.notes.hidden_names, 2);
    ck_assert_uint_eq(counts(&w, 3).lists - before, 2); /* the first one is cut */
    t = (struct tally){.stop_at = 5};
    ck_assert_int_eq(store_list(w.s, &w.op, "runs/one", 0, tally_name, &t), 42);
    ck_assert_uint_eq(t.n, 5);
    t = (struct tally){0};
    ok(&w, store_list(w.s, &w.op, "runs/two", LIST_SELF, tally_name, &t));
    ck_assert(!t.self);
    ok(&w, store_mkdir(w.s, &w.op, "runs/two", NULL, NULL));
    ok(&w, store_list(w.s, &w.op, "runs/two", LIST_SELF, tally_name, &t));
    ck_assert(t.self);
    world_close(&w);
}
END_TEST

/* What is kept of a directory has a limit; what is visited as it comes has none. */
START_TEST(names_that_are_kept_have_a_limit)
{
    struct tally t = {0};
    struct world w;
    char name[64];

    make_runs(&w);
    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "runs/one/%u", i);
        leaf_has(&w, 3, name);
        (void)snprintf(name, sizeof(name), "l/%u/events", i);
        leaf_has(&w, 1, name);
    }
    ok(&w, store_list(w.s, &w.op, "runs", 0, tally_name, &t));
    ck_assert_uint_eq(t.n, MANY + 4);
    routed_of(w.s)->names_max = MANY * 60;
    fails(&w, EFBIG, store_list(w.s, &w.op, "runs", 0, visit_none, NULL));
    ck_assert_msg(strstr(w.op.why, "list runs: "), "%s", w.op.why);
    t = (struct tally){0};
    routed_of(w.s)->names_max = MANY * sizeof(struct listed);
    ok(&w, store_list(w.s, &w.op, "runs/one", 0, tally_name, &t));
    ck_assert_uint_eq(t.n, MANY + 4);
    world_close(&w);
}
END_TEST

/* ---- long walks ---- */

#define WALKED 100 /* runs */

/* Each request takes 10 ms, and one of them longer. */
static void make_slow_runs(struct world *w, unsigned nth, int64_t delay_ns)
{
    static const struct test_route t[] = {{"r/{a}/s/{b}/**", "{a}/{b}/**", 0}, {NULL, NULL, 0}};
    char name[64];

    world_open(w, t, 1, "mem:");
    for (unsigned i = 0; i < WALKED; i++) {
        (void)snprintf(name, sizeof(name), "one/%u/f", i);
        leaf_has(w, 0, name);
    }
    const struct fault slow[] = {
        {.kind = FAULT_ANY_KIND, .first = nth, .delay_ns = delay_ns},
        {.kind = FAULT_ANY_KIND, .first = 1, .count = 100000, .delay_ns = 10 * NS_PER_MS}};
    layer_fault_script(w->fault[0], slow, ARRAY_SIZE(slow));
}

/* A walk asks as often as there are directories on the way: while answers come it goes on. */
START_TEST(a_long_walk_ends_when_no_answer_comes)
{
    struct tally t = {0};
    struct world w;

    make_slow_runs(&w, 50, 10 * NS_PER_MS);
    op_init(&w.op, NS_PER_SEC);
    ok(&w, store_list(w.s, &w.op, "r/one", LIST_RECURSIVE, tally_name, &t));
    ck_assert_uint_eq(t.n, WALKED);
    ck_assert_int_gt(op_left_ns(&w.op), 0);
    world_close(&w);

    make_slow_runs(&w, 50, PATIENCE);
    op_init(&w.op, NS_PER_SEC);
    fails(&w, ETIMEDOUT, store_list(w.s, &w.op, "r/one", LIST_RECURSIVE, visit_none, NULL));
    world_close(&w);
}
END_TEST

static int visit_late(void *arg, const char *name, const struct object *obj)
{
    const struct call *c = arg;

    int r = op_sleep(c->op, 10 * NS_PER_MS);
    return r < 0 ? r : c->visit(c->visit_arg, name, obj);
}

static int64_t name_late(struct layer *l, struct call *c)
{
    struct call late = *c;

    (void)l;
    if (c->kind == CALL_LIST) {
        late.visit = visit_late;
        late.visit_arg = c;
    }
    return call_next(&late);
}

/* A store without anything, in front of which a layer of `around` stands. */
static struct store *open_behind(struct routes *routes, const struct test_route *t,
                                 int64_t (*around)(struct layer *, struct call *),
                                 struct store **ret_mem)
{
    struct layer *layer = calloc(1, sizeof(*layer));
    struct op op;

    op_init(&op, PATIENCE);
    test_routes(routes, t);
    ck_assert_int_eq(mem_store_new("mem:", NULL, &op, ret_mem), 0);
    ck_assert_int_eq(layer_init(layer, *ret_mem, around), 0);
    struct store *leaf = &layer->base;
    return test_routed(routes, &leaf, 1);
}

/* So it does while names of one answer come. */
START_TEST(names_that_come_slowly_end_no_walk)
{
    static const struct test_route t[] = {{"d/{a}/**", "{a}/**", 0}, {NULL, NULL, 0}};
    struct world w = {0};
    struct store *mem = NULL;
    struct tally n = {0};
    char name[64];

    w.s = open_behind(&w.routes, t, name_late, &mem);
    op_init(&w.op, PATIENCE);
    for (unsigned i = 0; i < WALKED; i++) {
        (void)snprintf(name, sizeof(name), "%u/f", i);
        ok(&w, put_in(&w, mem, name)); /* each a run */
        (void)snprintf(name, sizeof(name), "one/%u", i);
        ok(&w, put_in(&w, mem, name)); /* all of one run */
    }
    op_init(&w.op, NS_PER_SEC / 2);
    ok(&w, store_list(w.s, &w.op, "d/one", LIST_RECURSIVE, tally_name, &n));
    ck_assert_uint_eq(n.n, WALKED);
    op_init(&w.op, 2 * NS_PER_SEC);
    ok(&w, store_list(w.s, &w.op, "d", LIST_RECURSIVE, tally_name, &n));
    ck_assert_uint_eq(n.n, 3 * WALKED);
    world_close(&w);
}
END_TEST

START_TEST(a_cancel_ends_a_long_walk)
{
    atomic_bool cancelled = false;
    struct tally t = {0};
    pthread_t thread;
    struct world w;

    make_slow_runs(&w, 50, 10 * NS_PER_MS);
    w.op.cancelled = &cancelled;
    ck_assert_int_eq(pthread_create(&thread, NULL, cancel_soon, &cancelled), 0);
    fails(&w, EINTR, store_list(w.s, &w.op, "r/one", LIST_RECURSIVE, tally_name, &t));
    ck_assert_uint_lt(t.n, WALKED);
    pthread_join(thread, NULL);
    world_close(&w);
}
END_TEST

/* ---- names on the way of a walk ---- */

/* Names of 5 bytes, of which a walk keeps 7. */
#define KEPT_BYTES 7

START_TEST(names_that_a_walk_keeps_have_a_limit)
{
    static const struct test_route t[] = {
        {"r/{a}/s/{b}/**", "{a}/{b}/**", 0}, {"all/**", "**", 0}, {NULL, NULL, 0}};
    struct tally n = {0};
    struct world w;
    char name[64];

    world_open(&w, t, 1, "mem:");
    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "one/%05u/f", i);
        leaf_has(&w, 0, name);
    }
    ok(&w, store_list(w.s, &w.op, "r/one", LIST_RECURSIVE, tally_name, &n));
    ck_assert_uint_eq(n.n, MANY);
    routed_of(w.s)->names_max = MANY * KEPT_BYTES - 1;
    fails(&w, EFBIG, store_list(w.s, &w.op, "r/one", LIST_RECURSIVE, visit_none, NULL));
    ck_assert_msg(strstr(w.op.why, "list r/one: "), "%s", w.op.why);
    n = (struct tally){0};
    ok(&w, store_list(w.s, &w.op, "all", LIST_RECURSIVE, tally_name, &n)); /* keeps none */
    ck_assert_uint_eq(n.n, MANY);
    world_close(&w);
}
END_TEST

/* All levels have one limit, and what was walked through counts no more. */
START_TEST(names_that_were_visited_count_no_more)
{
    static const struct test_route t[] = {{"r/{a}/{b}/s/{c}/**", "{a}/{b}/{c}/**", 0},
                                          {NULL, NULL, 0}};
    const unsigned width = 20;
    struct tally n = {0};
    struct world w;
    char name[64];

    world_open(&w, t, 1, "mem:");
    for (unsigned i = 0; i < width * width; i++) {
        (void)snprintf(name, sizeof(name), "one/%05u/%05u/f", i / width, i % width);
        leaf_has(&w, 0, name);
    }
    routed_of(w.s)->names_max = (uint64_t)2 * width * KEPT_BYTES;
    ok(&w, store_list(w.s, &w.op, "r/one", LIST_RECURSIVE, tally_name, &n));
    ck_assert_uint_eq(n.n, width * width);
    n = (struct tally){0};
    routed_of(w.s)->names_max--;
    fails(&w, EFBIG, store_list(w.s, &w.op, "r/one", LIST_RECURSIVE, tally_name, &n));
    ck_assert_uint_eq(n.n, 0);
    world_close(&w);
}
END_TEST

/* Objects are visited as they come; a visit ends the walk. */
START_TEST(objects_on_the_way_are_not_kept)
{
    static const struct test_route t[] = {{"r/{a}/m/{b}", "{a}/{b}", 0}, {NULL, NULL, 0}};
    struct tally n = {0};
    struct world w;
    char name[64];

    world_open(&w, t, 1, "mem:");
    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "one/%05u", i);
        leaf_has(&w, 0, name);
    }
    routed_of(w.s)->names_max = KEPT_BYTES;
    ok(&w, store_list(w.s, &w.op, "r/one", LIST_RECURSIVE, tally_name, &n));
    ck_assert_uint_eq(n.n, MANY);
    n = (struct tally){.stop_at = 5};
    ck_assert_int_eq(store_list(w.s, &w.op, "r/one", LIST_RECURSIVE, tally_name, &n), 42);
    ck_assert_uint_eq(n.n, 5);
    world_close(&w);
}
END_TEST

static atomic_bool endless_objects;

/* A server whose listings go on with ever new names. */
static int64_t list_for_ever(struct layer *l, struct call *c)
{
    const struct object obj = {.is_prefix = !atomic_load(&endless_objects)};
    char name[32];
    int r = 0;

    (void)l;
    if (c->kind != CALL_LIST)
        return call_next(c);
    for (uint64_t i = 0; !r; i++) {
        (void)snprintf(name, sizeof(name), "%" PRIu64, i);
        r = op_check(c->op);
        if (!r)
            r = c->visit(c->visit_arg, name, &obj);
    }
    return r;
}

/* It ends by its names where they are kept, and else by the time: nobody counts them. */
START_TEST(a_walk_through_a_store_without_end_ends)
{
    static const struct test_route t[] = {{"r/{a}/s/{b}/**", "{a}/{b}/**", 0}, {NULL, NULL, 0}};
    struct store *mem = NULL;
    struct world w = {0};

    w.s = open_behind(&w.routes, t, list_for_ever, &mem);
    op_init(&w.op, PATIENCE);
    routed_of(w.s)->names_max = 1 << 20;
    fails(&w, EFBIG, store_list(w.s, &w.op, "r/one", LIST_RECURSIVE, visit_none, NULL));
    atomic_store(&endless_objects, true);
    op_init(&w.op, 100 * NS_PER_MS);
    fails(&w, ETIMEDOUT, store_list(w.s, &w.op, "r/one", LIST_RECURSIVE, visit_none, NULL));
    world_close(&w);
}
END_TEST

/* ---- threads ---- */

#define LISTINGS 20
#define SOURCES  20

static atomic_uint running, most_running;

static int64_t count_running(struct layer *l, struct call *c)
{
    unsigned now = atomic_fetch_add(&running, 1) + 1, most = atomic_load(&most_running);

    (void)l;
    while (now > most && !atomic_compare_exchange_weak(&most_running, &most, now))
        ;
    (void)usleep(2000);
    int64_t r = call_next(c);
    atomic_fetch_sub(&running, 1);
    return r;
}

struct listing_thread {
    struct store *s;
    pthread_t thread;
    struct tally tally;
    int r;
};

static void *list_one(void *arg)
{
    struct listing_thread *l = arg;
    struct op op;

    op_init(&op, PATIENCE);
    l->r = store_list(l->s, &op, "d/one", 0, tally_name, &l->tally);
    return NULL;
}

/* A store of SOURCES directories, each a name of "d/one". */
static struct store *open_counted(struct routes *routes,
                                  int64_t (*count)(struct layer *, struct call *))
{
    static char path[SOURCES][32], key[SOURCES][32];
    struct test_route t[SOURCES + 1] = {{NULL, NULL, 0}};
    struct layer *layer = calloc(1, sizeof(*layer));
    struct store *mem = NULL;
    struct mem_source src;
    struct op op;

    op_init(&op, PATIENCE);
    ck_assert_int_eq(mem_store_new("mem:", NULL, &op, &mem), 0);
    mem_source_init(&src, "text", 4);
    for (unsigned i = 0; i < SOURCES; i++) {
        (void)snprintf(path[i], sizeof(path[i]), "d/{a}/f%u/**", i);
        (void)snprintf(key[i], sizeof(key[i]), "%u/one/file", i);
        ck_assert_int_eq(store_put(mem, &op, key[i], NULL, &src.base, NULL, NULL), 0);
        (void)snprintf(key[i], sizeof(key[i]), "%u/{a}/**", i);
        t[i] = (struct test_route){path[i], key[i], 0};
    }
    test_routes(routes, t);
    ck_assert_int_eq(layer_init(layer, mem, count), 0);
    struct store *leaf = &layer->base;
    return test_routed(routes, &leaf, 1);
}

/* However many listings ask a store, so many threads do at once; and each is answered. */
START_TEST(listings_share_the_threads_of_a_store)
{
    struct listing_thread t[LISTINGS];
    struct routes routes;
    struct store *s = open_counted(&routes, count_running);

    for (unsigned i = 0; i < LISTINGS; i++) {
        t[i] = (struct listing_thread){.s = s};
        ck_assert_int_eq(pthread_create(&t[i].thread, NULL, list_one, &t[i]), 0);
    }
    for (unsigned i = 0; i < LISTINGS; i++) {
        pthread_join(t[i].thread, NULL);
        ck_assert_int_eq(t[i].r, 0);
        ck_assert_uint_eq(t[i].tally.n, SOURCES);
    }
    ck_assert_uint_gt(atomic_load(&most_running), 1);
    ck_assert_uint_le(atomic_load(&most_running), ROUTED_HELPERS_MAX + LISTINGS);
    store_close(s);
    routes_release(&routes);
}
END_TEST

static unsigned count_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    unsigned n = 0;

    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

static int64_t note_threads(struct layer *l, struct call *c)
{
    unsigned now = count_threads(), most = atomic_load(&most_running);

    (void)l;
    while (now > most && !atomic_compare_exchange_weak(&most_running, &most, now))
        ;
    return call_next(c);
}

/* Who asks a store that has all its helpers asks it without threads that could only end. */
START_TEST(no_thread_begins_where_none_may_help)
{
    struct listing_thread t = {0};
    struct routes routes;

    t.s = open_counted(&routes, note_threads);
    struct leaf *leaf = &routed_of(t.s)->leaves[0];
    atomic_store(&leaf->helpers, ROUTED_HELPERS_MAX);
    unsigned before = count_threads();
    atomic_store(&most_running, 0);
    list_one(&t);
    ck_assert_int_eq(t.r, 0);
    ck_assert_uint_eq(t.tally.n, SOURCES);
    ck_assert_uint_gt(atomic_load(&most_running), 0);
    ck_assert_uint_le(atomic_load(&most_running), before);
    atomic_store(&leaf->helpers, 0);
    store_close(t.s);
    routes_release(&routes);
}
END_TEST

static Suite *suite(void)
{
    const TTest *const tests[] = {
        requests_are_few,
        one_store_is_asked_once,
        long_directories_are_not_kept,
        names_that_are_kept_have_a_limit,
        a_long_walk_ends_when_no_answer_comes,
        names_that_come_slowly_end_no_walk,
        a_cancel_ends_a_long_walk,
        names_that_a_walk_keeps_have_a_limit,
        names_that_were_visited_count_no_more,
        objects_on_the_way_are_not_kept,
        a_walk_through_a_store_without_end_ends,
        listings_share_the_threads_of_a_store,
        no_thread_begins_where_none_may_help,
    };
    Suite *s = suite_create("routed costs");
    TCase *t = tcase_create("costs");

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
