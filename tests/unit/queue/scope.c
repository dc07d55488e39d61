/* cache/queue/scope.c: the directory of which a removal waits for files, as a table. */
#include "common/mem.h"
#include "runs/policy_fields.h"
#include "tests/lib/route_table.h"
#include "tests/unit/queue/owed.h"
#include "tests/unit/queue/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- of a path ---- */

static const struct route_text routed[] = {{"runs/{run}/ckpt/**", NULL, 0},
                                           {"runs/{run}.pt", NULL, 0},
                                           {"runs/{run}/**", NULL, 0},
                                           {"ray/**", NULL, 0},
                                           {"teams/{team}/{run}/**", NULL, 0},
                                           {"whole/{run}/**", NULL, 0},
                                           {"**", NULL, 0},
                                           {NULL, NULL, 0}};
static const char *const policies_of[] = {"checkpoint", "data", "data", "ray",
                                          "data",       "dbfs", "data"};

/* A "/" at the end: a directory. */
static const struct {
    bool routes;
    const char *path, *scope;
} scopes[] = {
    /* Where nobody says what belongs together: all. */
    {false, "e.pt", ""},
    {false, "ckpts/000100/model.pt", ""},
    {false, "ckpts/100/default/d/x", ""},
    {false, "a/b/c/d/e", ""},
    {false, "a/", ""},
    {false, "a/b/c/d/", ""},
    /* What a unit is in. */
    {false, "checkpoint-1/m", ""},
    {false, "checkpoint-1/", ""},
    {false, "r/checkpoint-1/m", "r"},
    {false, "r/checkpoint-1/", "r"},
    {false, "r/checkpoint-1/x/y/z", "r"},
    {false, "r/checkpoint-1/checkpoint-2/m", "r"},
    {false, "a/b/c/d/checkpoint-1/x/m", "a/b/c/d"},
    {false, "a/b/c/d/checkpoint-1", ""}, /* a file */
    {false, "a/b/c/d/tmp-checkpoint-1/m", ""},
    {true, "runs/x/ckpt/1/m", "runs/x/ckpt"},
    {true, "runs/x/ckpt/1/", "runs/x/ckpt"},
    {true, "ray/e/t/checkpoint_000/m", "ray/e/t"},
    /* Of a unit that is a route's root itself. */
    {true, "whole/x/m", "whole/x"},
    {true, "whole/x/d/e/m", "whole/x"},
    {true, "whole/x/", "whole/x"},
    /* Up to the first name that the route leaves open, and no file's own. */
    {true, "runs/x/m", "runs/x"},
    {true, "runs/x/d/e/f/m", "runs/x"},
    {true, "runs/x/d/", "runs/x"},
    {true, "runs/x/", "runs/x"},
    {true, "runs/x/ckpt/m", "runs/x"},
    {true, "runs/x.pt", "runs"},
    {true, "teams/a/x/d/e/m", "teams/a"},
    /* And else as without routes. */
    {true, "runs/", ""},
    {true, "runs", ""},
    {true, "a/b/c/d", ""},
    {true, "a/b/c/checkpoint-1/m", "a/b/c"},
};

static void route(struct cache *c, struct routes *routes, struct policy *policies)
{
    *routes = routes_of(routed);
    for (unsigned i = 0; i < routes->n; i++) {
        const struct policy *p = policy_preset(policies_of[i]);
        ck_assert_msg(p != NULL, "%s", policies_of[i]);
        policies[i] = *p;
        routes->items[i].policy = i;
    }
    c->config.routes = routes;
    c->config.policies = policies;
    c->config.n_policies = routes->n;
}

START_TEST(a_path_has_a_scope)
{
    struct policy policies[ARRAY_SIZE(policies_of)];
    struct cache *c = owed_new("", "");
    char path[64], scope[64] = "";
    struct routes routes = {0};

    if (scopes[_i].routes)
        route(c, &routes, policies);
    (void)snprintf(path, sizeof(path), "%s", scopes[_i].path);
    size_t len = strlen(path);
    bool dir = path[len - 1] == '/';
    if (dir)
        path[len - 1] = '\0';
    memcpy(scope, path, path_scope(c, path, dir));
    c->config.routes = NULL;
    routes_release(&routes);
    owed_free(c);
    ck_assert_msg(strcmp(scope, scopes[_i].scope) == 0, "%s: %s", scopes[_i].path, scope);
}
END_TEST

/* ---- what lies in it ---- */

/* Whether the removal, the second thing that was done, waits. */
static const struct {
    const char *files, *removed;
    bool holds;
} waiting[] = {
    {"a/b/c/f 1", "a/b/step1/e", true},
    {"a/x/c/f 1", "a/b/step1/e", false},
    {"ab/b/c/f 1", "a/b/step1/e", false},
    {"a/bc/c/f 1", "a/b/step1/e", false},
    {"a/x/c/f 1 a/b/f 1", "a/b/step1/e", true},
    {"a/x/c/f 1 a/b/f 3", "a/b/step1/e", false},
    {"f 1", "a/b/step1/e", false},
    {"a/f 1", "a/b/step1/e", false},
    {"a/b/f 1", "a/b/step1/e", true},
    {"a/b/c/step1/e/f 1", "a/b/step1/e", true},
    /* Where nobody says what belongs together: each other one. */
    {"a/x/c/f 1", "e", true},
    {"b/x/c/f 1", "a/b/e", true},
    {"ckpts/200/default/d/f 1", "ckpts/100/default/d/f", true},
    /* Units: those beside it, and what is beside them. */
    {"o/r/checkpoint-2/f 1", "o/r/checkpoint-1/e", true},
    {"o/r/best 1", "o/r/checkpoint-1/e", true},
    {"o/r/tmp/f 1", "o/r/checkpoint-1/e", true},
    {"o/s/checkpoint-2/f 1", "o/r/checkpoint-1/e", false},
    {"o/s/best 1", "o/r/checkpoint-1/e", false},
    {"o/best 1", "o/r/checkpoint-1/e", false},
    {"o/r/checkpoint-2/f 1", "o/r/e", true},
    /* A refused name holds what is beside it alone. */
    {"a/b/step1/f 1r", "a/b/step1/e", true},
    {"a/b/c/f 1r", "a/b/step1/e", false},
    {"a/b/c/f 1r a/x/c/g 1", "a/b/step1/e", false},
    {"a/x/c/f 1r a/b/c/g 1", "a/b/step1/e", true},
};

START_TEST(a_removal_waits_for_its_scope)
{
    struct cache *c = owed_new("", "");
    struct barrier b;

    owed_close(c, waiting[_i].files);
    c->tree->seq = SEQ_STEP;
    char row[80];
    (void)snprintf(row, sizeof(row), "unlink %s", waiting[_i].removed);
    struct intent *i = owed_add(c, row);
    barrier_init_locked(c, &b);
    bool holds = barrier_holds_locked(c, &b, i);
    barrier_release(&b);
    owed_free(c);
    ck_assert_msg(holds == waiting[_i].holds, "%s | %s", waiting[_i].files,
                  waiting[_i].removed);
}
END_TEST

/* In a full store it waits for what goes to another one, in its scope, too. */
START_TEST(a_removal_that_makes_room_waits_for_other_stores)
{
    struct cache *c = owed_new("", "");
    struct barrier b;

    free(c->queue->volumes);
    c->queue->volumes = calloc(2, sizeof(*c->queue->volumes));
    ck_assert_ptr_nonnull(c->queue->volumes);
    c->queue->volumes[0].out_of_quota = true;
    owed_close(c, "a/b/c/f 1 a/x/c/f 1 a/y/c/f 1");
    tree_find(c, "a/b/c/f", NULL)->links->volume = 1;
    tree_find(c, "a/x/c/f", NULL)->links->volume = 1;
    c->tree->seq = SEQ_STEP;
    struct intent *beside = owed_add(c, "unlink a/b/step1/e");
    struct intent *full = owed_add(c, "unlink a/y/step1/e");
    barrier_init_locked(c, &b);
    bool waits = barrier_holds_locked(c, &b, beside);
    bool waits_for_full = barrier_holds_locked(c, &b, full);
    barrier_release(&b);
    owed_free(c);
    ck_assert(waits && !waits_for_full);
}
END_TEST

/* ---- what moves ---- */

/* A file was closed first, then come the rows. What the first row's scope is when something has
 * gone from one path to another. */
static const struct {
    const char *file, *rows, *names, *node, *from, *to, *scope;
} moved[] = {
    {"a/y/f 1", "unlink a/x/step1/e", "", "a/y/f", "a/x/step1/f", "a/y/f", "a"},
    {"a/x/f 1", "unlink a/x/step1/e", "", "a/x/f", "a/x/step1/f", "a/x/f", "a/x"},
    {"a/x/step1/g 1", "unlink a/x/step1/e", "", "a/x/step1/g", "a/x/step1/f", "a/x/step1/g",
     "a/x"},
    {"b/y/f 1", "unlink a/x/step1/e", "", "b/y/f", "a/x/step1/f", "b/y/f", ""},
    /* Not from this scope. */
    {"b/y/f 1", "unlink a/x/step1/e", "", "b/y/f", "a/w/step1/f", "b/y/f", "a/x"},
    {"b/y/f 1", "unlink a/x/step1/e", "", "b/y/f", "a/xy/f", "b/y/f", "a/x"},
    {"a/y/f 1", "unlink a/x/step1/e", "", "a/y/f", "b/step1/f", "a/y/f", "a/x"},
    /* Not closed before. */
    {"a/y/f 3", "unlink a/x/step1/e", "", "a/y/f", "a/x/step1/f", "a/y/f", "a/x"},
    {"a/y/f 0", "unlink a/x/step1/e", "", "a/y/f", "a/x/step1/f", "a/y/f", "a/x"},
    /* A directory: below the scope, at it, above it. */
    {"a/y/g/f 1", "unlink a/x/step1/e", "", "a/y/g", "a/x/g", "a/y/g", "a"},
    {"a/x/h/f 1", "unlink a/x/step1/e", "", "a/x/h", "a/x/g", "a/x/h", "a/x"},
    {"a/y/f 1", "unlink a/x/step1/e", "", "a/y", "a/x", "a/y", "a"},
    {"b/x/f 1", "unlink a/x/step1/e", "", "b", "a", "b", ""},
    {"a/y/f 3", "unlink a/x/step1/e", "a/y/", "a/y", "a/x", "a/y", "a/x"},
    /* A removal of the directory that is its own scope. */
    {"b/y/f 1", "rmdir a/x/step1", "", "b/y/f", "a/x/step1/f", "b/y/f", ""},
    {"b/y/f 1", "rename a/x/step1/e a/x/step1/g", "", "b/y/f", "a/x/step1/f", "b/y/f", ""},
    /* A rename is to remove the old versions of what is under the new name. */
    {"x 1", "rename a/x/step1/e a/y/step1/e", "", "x", "y", "x", "a"},
    {"x 1", "renamedir a/x/step1 b/x/step1", "", "x", "y", "x", ""},
    {"x 1", "renamedir a/x/step1 a/x/g", "", "x", "y", "x", "a/x"},
};

START_TEST(a_scope_reaches_what_left_it)
{
    struct cache *c = owed_new("", moved[_i].names);
    char scope[64] = "";

    owed_close(c, moved[_i].file);
    c->tree->seq = SEQ_STEP;
    struct intent *i = owed_add(c, moved[_i].rows);
    struct node *n = tree_find(c, moved[_i].node, NULL);
    ck_assert_ptr_nonnull(n);
    scopes_follow_locked(c, n, moved[_i].from, moved[_i].to);
    memcpy(scope, i->from, i->scope);
    owed_free(c);
    ck_assert_msg(strcmp(scope, moved[_i].scope) == 0, "%s | %s | %s %s: %s", moved[_i].file,
                  moved[_i].rows, moved[_i].from, moved[_i].to, scope);
}
END_TEST

/* ---- after a kill ---- */

/* The file was closed as the second thing. When it, and a directory above it, got its number;
 * of which row the scope is the whole mount. */
static const struct {
    unsigned file, dir;
    bool row;
} found[] = {{1, 1, false}, {3, 1, true}, {1, 3, true}, {2, 1, true} /* a symlink's own */};

START_TEST(what_may_have_moved_is_waited_for)
{
    struct cache *c = owed_new("", "");

    c->tree->seq = 0;
    struct intent *older = owed_add(c, "unlink a/x/step1/e");
    c->tree->seq = 4 * SEQ_STEP;
    struct intent *younger = owed_add(c, "unlink a/x/step1/e");
    owed_close(c, "b/c/f 2");
    tree_find(c, "b/c/f", NULL)->named_seq = found[_i].file * SEQ_STEP;
    tree_find(c, "b", NULL)->named_seq = found[_i].dir * SEQ_STEP;
    scopes_found_locked(c);
    size_t scopes_of[2] = {older->scope, younger->scope};
    owed_free(c);
    ck_assert_uint_eq(scopes_of[0], strlen("a/x"));
    ck_assert_uint_eq(scopes_of[1], found[_i].row ? 0 : strlen("a/x"));
}
END_TEST

/* ---- what a pass costs ---- */

#ifndef NDEBUG /* which count the looks */
#define RUNS 100
#define EACH 10

/* Many runs, each with removals that wait for files of its own: each directory is looked at
 * once, and so is each row. */
START_TEST(a_pass_looks_at_each_once)
{
    struct cache *c = owed_new("", "");
    char text[64];
    struct barrier b;
    struct intent *i;
    unsigned held = 0;

    for (unsigned run = 0; run < RUNS; run++)
        for (unsigned n = 0; n < EACH; n++) {
            (void)snprintf(text, sizeof(text), "a/r%u/c/f%u %u", run, n, run * EACH + n + 1);
            owed_close(c, text);
        }
    c->tree->seq = (RUNS * EACH + 1) * SEQ_STEP;
    for (unsigned run = 0; run < 2 * RUNS; run++) {
        (void)snprintf(text, sizeof(text), "unlink a/r%u/step1/old", run);
        (void)owed_add(c, text);
    }
    unsigned long long before = atomic_load(&scope_looks);
    barrier_init_locked(c, &b);
    ROWS_FOREACH(c, i)
    held += barrier_holds_locked(c, &b, i);
    barrier_release(&b);
    unsigned long long looks = atomic_load(&scope_looks) - before;
    owed_free(c);
    ck_assert_uint_eq(held, RUNS);
    /* For all stores and for those that are not full: each directory, and the one above it that
     * is known; and the rows. */
    ck_assert_uint_le(looks, 2 * (3 * RUNS + 2) + 2 * RUNS);
}
END_TEST
#endif

Suite *scope_suite(void)
{
    Suite *s = suite_create("scope");
    TCase *t = tcase_create("scope");

    tcase_add_loop_test(t, a_path_has_a_scope, 0, ARRAY_SIZE(scopes));
    tcase_add_loop_test(t, a_removal_waits_for_its_scope, 0, ARRAY_SIZE(waiting));
    tcase_add_test(t, a_removal_that_makes_room_waits_for_other_stores);
    tcase_add_loop_test(t, a_scope_reaches_what_left_it, 0, ARRAY_SIZE(moved));
    tcase_add_loop_test(t, what_may_have_moved_is_waited_for, 0, ARRAY_SIZE(found));
#ifndef NDEBUG
    tcase_add_test(t, a_pass_looks_at_each_once);
#endif
    suite_add_tcase(s, t);
    return s;
}
