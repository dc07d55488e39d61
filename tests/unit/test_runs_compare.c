/* Routes beside each other: what may be renamed, what never matches, what has two paths. */
#include "common/mem.h"
#include "runs/routes.h"
#include "tests/lib/route_table.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdint.h>

#define END                                                                                    \
    {                                                                                          \
        NULL, NULL, 0                                                                          \
    }

/* ---- directories that may become each other ---- */

enum table { RUNS, ONE, BACK, LISTED, SCRATCH, CODED };

static const struct route_text runs[] = {
    {"runs/{run}/checkpoint/**", "{run}/**", 0},
    {"runs/{run}/logs/**", "{run}/**", 1},
    {"runs/{run}/**", NULL, 2},
    {"**", NULL, 2},
    END,
};
static const struct route_text one[] = {
    {"runs/{run}/checkpoint/**", NULL, 0},
    {"runs/{run}/logs/**", NULL, 0},
    {"runs/{run}/**", NULL, 0},
    {"**", NULL, 0},
    END,
};
static const struct route_text back[] = {
    {"now/{run}/logs/**", "now/{run}/**", 1},    {"old/{x}/logs/**", "old/{x}/**", 1},
    {"hex/{x}/logs/**", "hex/{x:hex}/**", 1},    {"far/{x}/logs/**", "far/{x}/**", 0},
    {"two/{x}/{y}/**", "two/{x}/{y}/**", 1},     {"dos/{x}/{y}/**", "dos/{x}/y/{y}/**", 1},
    {"hax/{x}/{y}/**", "hax/{x}/{y:hex}/**", 1}, {"hux/{x}/{y}/**", "hux/{x}/{y:hex}/**", 1},
    {"obj/{x}/{y}", "obj/{x}/{y}", 1},           END,
};
static const struct route_text listed[] = {
    {"a/{x}/**", "k/{x}/data/**", 0}, {"b/**", NULL, 0}, {"c/**", "z/**", 0}, END};
static const struct route_text scratch[] = {
    {"a/**", NULL, -1}, {"b/**", NULL, -1}, {"**", NULL, 0}, END};

static const struct route_text coded[] = {
    {"runs/{run}/checkpoint/**", "{run}/**", 0},
    {"runs/{run}/metadata/**", "{run:b32}/**", 1},
    {"runs/{run}/one/{x}", "one/{run}/{x:hex}", 1},
    {"tmp/{x}/a/**", "{x:b32}/**", -1},
    {"own/{x}/**", "{x}/**", 0},
    {"own/{x}/metadata/**", "{x:b32}/**", 1},
    {"raw/{x}/**", "{x}/**", -1},
    {"under/{x}/c/**", ".runfs/{x}/**", 0},
    {"half/{x}/**", ".run{x}/**", 0},
    END,
};

static const struct route_text *const tables[] = {
    [RUNS] = runs,     [ONE] = one,         [BACK] = back,
    [LISTED] = listed, [SCRATCH] = scratch, [CODED] = coded};

static const struct {
    enum table table;
    const char *from, *to;
    bool same;
} below[] = {
    {RUNS, "runs/a", "runs/b", true},
    {ONE, "runs/a", "runs/b", true},
    {RUNS, "runs/a/x", "runs/a/y", true},
    {RUNS, "runs/a/x", "runs/a/logs", false},
    {ONE, "runs/a/x", "runs/a/logs", true},
    {RUNS, "runs/a/logs/x", "runs/a/logs", true},
    {RUNS, "runs/a/logs", "runs/b/checkpoint", false},
    {RUNS, "runs/a", "archive/a", false},
    {ONE, "runs/a", "archive/a", false},
    {RUNS, "archive/a", "runs/a", false},
    {RUNS, "runs/a", "archive", false},
    {RUNS, "x/y", "x/z/w", true},
    {RUNS, "x", "y", true},
    {RUNS, "runs/a/x", "x", true},
    {BACK, "now/a", "old/b", true},
    {BACK, "now/a/logs", "old/b/logs", true},
    {BACK, "now/a/logs/x", "hex/a/logs/y", true},
    {BACK, "now/a", "hex/b", true},
    {BACK, "now/a", "far/a", false},
    {BACK, "two/a", "two/b", true},
    {BACK, "two/a", "dos/a", false},
    {BACK, "two/a", "hax/a", false},
    {BACK, "hux/a", "hax/a", true},
    {BACK, "two/a/b", "hax/a/b", true},
    {BACK, "two/a", "obj/a", false},
    {BACK, "obj/a", "obj/b", true},
    {BACK, "obj/a/b", "obj/a/c", false}, /* no directories */
    {BACK, "nowhere", "nothing", false},
    {LISTED, "a/x", "a/y", true},
    {LISTED, "b", "c", true},
    {SCRATCH, "a", "b", true},
    {SCRATCH, "a", "c", false},
    {SCRATCH, "c", "a", false},
};

START_TEST(same_below)
{
    struct routes r = routes_of(tables[below[_i].table]);

    ck_assert_int_eq(routes_same_below(&r, below[_i].from, below[_i].to), below[_i].same);
    routes_release(&r);
}
END_TEST

#define NAME_160                                                                               \
    "1234567890123456789012345678901234567890123456789012345678901234567890123456789012345678" \
    "901234567890123456789012345678901234567890123456789012345678901234567890"

static const struct {
    enum table table;
    const char *path;
    int err;
} names[] = {
    {CODED, "runs/a", 0},
    {CODED, "runs/\xff", -EILSEQ},
    {CODED, "runs/" NAME_160, -ENAMETOOLONG},
    {CODED, "runs/%zz", -EINVAL},
    {CODED, "runs/\xff/checkpoint", 0}, /* its own route takes all of it */
    {CODED, "runs/\xff/checkpoint/x", 0},
    {CODED, "runs/\xff/metadata", -EILSEQ},
    {CODED, "runs/\xff/metadata/x", -EILSEQ},
    {CODED, "runs/a/metadata/\xff", 0},
    {CODED, "runs/\xff/one", 0}, /* the name that is encoded is not known yet */
    {CODED, "runs", 0},
    {CODED, "tmp/\xff", -EILSEQ}, /* no policy would be found for it */
    {CODED, "own/\xff", 0},       /* what is behind the route that takes it has nothing there */
    {CODED, "nowhere", 0},
    {RUNS, "runs/\xff", 0},
    {CODED, "runs/.runfs", -EPERM},
    {CODED, "runs/.runfs/checkpoint", -EPERM},
    {CODED, "runs/.runfs/checkpoint/x", -EPERM},
    {CODED, "runs/.runfs/metadata", -EINVAL}, /* %2E%72%75%6E%66%73 is its spelling */
    {CODED, "runs/a/checkpoint/.runfs", 0},
    {CODED, "own/.runfs", -EPERM},
    {CODED, "raw/.runfs", 0}, /* in no store */
    {CODED, "under/a", -EPERM},
    {CODED, "half/fs", -EPERM},
    {CODED, "half/f", 0},
    {RUNS, "runs/a/.runfs", 0},
};

START_TEST(writable_below)
{
    struct routes r = routes_of(tables[names[_i].table]);

    ck_assert_int_eq(routes_writable_below(&r, names[_i].path), names[_i].err);
    routes_release(&r);
}
END_TEST

/* ---- routes that never match ---- */

static const struct {
    const char *earlier, *path;
    bool covered;
} covers[] = {
    {"**", "a", true},
    {"**", "{x}/**", true},
    {"**", "**", true},
    {"{x}/**", "**", false},
    {"{x}", "**", false},
    {"a", "a", true},
    {"a", "a/**", false},
    {"a/**", "a", false},
    {"a/**", "a/b", true},
    {"a/**", "a/{x}/c/**", true},
    {"a/{x}/**", "a/**", false},
    {"a/{x}/**", "a/b/**", true},
    {"a/{x}/**", "a/b", false},
    {"a/{x}", "a/b", true},
    {"a/b", "a/{x}", false},
    {"{x}", "d{x}", true},
    {"d{x}", "{x}", false},
    {"d{x}", "da{x}", true},
    {"da{x}", "d{x}", false},
    {"d{x}e", "d{x}e", true},
    {"d{x}e", "da{x}be", true},
    {"d{x}e", "d{x}", false},
    {"d{x}", "d", false},
    {"d{x}", "da", true},
    {"d{x}d", "dd", false},
    {"runs/{run}/logs/**", "runs/{run}/**", false},
    {"runs/{run}/**", "runs/{r}/logs/**", true},
};

START_TEST(never_matches)
{
    const struct route_text texts[] = {{"else/where", NULL, 0},
                                       {covers[_i].earlier, NULL, 0},
                                       {covers[_i].path, NULL, 0},
                                       END};
    struct routes r = routes_of(texts);

    ck_assert_uint_eq(routes_covering(&r, 2), covers[_i].covered ? 1 : SIZE_MAX);
    ck_assert_uint_eq(routes_covering(&r, 1), SIZE_MAX);
    routes_release(&r);
}
END_TEST

/* ---- objects of two paths ---- */

/* The last two of the routes; the roots are of their stores. `object` NULL: no overlap. */
static const struct {
    struct route_text routes[5];
    const char *a_root, *b_root, *object, *a_path, *b_path;
} pairs[] = {
    /* the specification's */
    {{{"runs/{run}/checkpoint/**", "{run}/**", 0}, {"runs/{run}/logs/**", "{run}/**", 0}, END},
     "t",
     "t",
     "a/b",
     "runs/a/checkpoint/b",
     "runs/a/logs/b"},
    {{{"runs/{run}/checkpoint/**", "{run}/**", 0}, {"runs/{run}/logs/**", "{run}/**", 1}, END},
     "t/c",
     "t/l",
     NULL,
     NULL,
     NULL},
    /* roots in each other */
    {{{"a/**", "**", 0}, {"b/**", "**", 1}, END}, "t/a", "t/a/x", "x/a", "a/x/a", "b/a"},
    {{{"a/**", "**", 0}, {"b/**", "**", 1}, END}, "t/a/x", "t/a", "a", "a/a", "b/x/a"},
    {{{"a/**", "**", 0}, {"b/**", "**", 1}, END}, "t/a", "t/ab", NULL, NULL, NULL},
    {{{"a/**", "**", 0}, {"b/**", "**", 1}, END}, "", "t", "t/a", "a/t/a", "b/a"},
    {{{"a/**", "y/**", 0}, {"b/**", "**", 1}, END}, "t", "t/x", NULL, NULL, NULL},
    /* the layouts keep names on both sides */
    {{{"runs/{run}/checkpoint/**", NULL, 0}, {"runs/{run}/logs/**", NULL, 0}, END},
     "",
     "",
     NULL,
     NULL,
     NULL},
    {{{"runs/{run}/checkpoint/**", NULL, 0}, {"runs/{run}/**", NULL, 0}, END},
     "",
     "",
     NULL,
     NULL,
     NULL},
    {{{"runs/{run}/**", NULL, 0}, {"**", NULL, 0}, END}, "", "", NULL, NULL, NULL},
    {{{"data{x}/**", NULL, 0}, {"**", NULL, 0}, END}, "", "", NULL, NULL, NULL},
    {{{"tr/**", "w/tr/**", 0}, {"tr{x}/**", "w/tr{x}/**", 0}, END}, "", "", NULL, NULL, NULL},
    {{{"tr{x}/**", "w/tr{x}/**", 0}, {"tr{x}", "w/tr{x}", 0}, END}, "", "", NULL, NULL, NULL},
    /* a rest that shows the same once more */
    {{{"train/**", "w/tr/**", 0}, {"**", NULL, 0}, END}, "", "", "w/tr/a", "train/a", "w/tr/a"},
    {{{"w/**", "else/**", 1}, {"train/**", "w/tr/**", 0}, {"**", NULL, 0}, END},
     "",
     "",
     NULL,
     NULL,
     NULL}, /* w/ is shadowed */
    /* codecs */
    {{{"a/{x}/**", "{x:b32}/**", 0}, {"b/{x}/**", "{x}/**", 0}, END},
     "",
     "",
     "ME======/b",
     "a/a/b",
     "b/ME======/b"},
    {{{"a/{x}", "{x:b32}", 0}, {"b/{x}", "{x:hex}", 0}, END},
     "",
     "",
     "42222222",
     "a/\xe6\xb5\xadkZ",
     "b/B\"\"\""},
    {{{"a/{x}", "{x:hex}", 0}, {"b/{x}", "{x:pct}", 0}, END}, "", "", "61", "a/a", "b/61"},
    {{{"a/{x}", "{x:hex}", 0}, {"b", "zz", 0}, END}, "", "", NULL, NULL, NULL},
    {{{"a/{x}", "{x:hex}", 0}, {"b", "7a", 0}, END}, "", "", "7a", "a/z", "b"},
    {{{"a/{x}", "{x:b32}", 0}, {"b/{x}", "M{x}", 0}, END},
     "",
     "",
     "ME======",
     "a/a",
     "b/E======"},
    /* literals around */
    {{{"a/{x}", "p{x}", 0}, {"b/{x}", "{x}s", 0}, END}, "", "", "pas", "a/as", "b/pa"},
    {{{"a/{x}", "p{x}", 0}, {"b/{x}", "q{x}", 0}, END}, "", "", NULL, NULL, NULL},
    {{{"a/{x}", "p{x}", 0}, {"b", "p", 0}, END}, "", "", NULL, NULL, NULL},
    {{{"a/{x}as", "else{x}", 1}, {"a/{x}", "p{x}", 0}, {"b/{x}", "{x}as", 0}, END},
     "",
     "",
     "pas",
     "a/as",
     "b/p"}, /* longer ones are shadowed */
    {{{"a/a", "x", 1}, {"a/{x}", "{x}", 0}, {"b/{x}", "{x}", 0}, END},
     "",
     "",
     "aa",
     "a/aa",
     "b/aa"},
    {{{"a/a", "x", 1}, {"a/a{x}", "y{x}", 1}, {"a/{x}", "{x}", 0}, {"b/{x}", "{x}", 0}, END},
     "",
     "",
     "z",
     "a/z",
     "b/z"},
    /* by their number of names */
    {{{"a/{x}", "{x}", 1}, {"a/**", "**", 0}, {"b/**", "**", 0}, END},
     "",
     "",
     "a/b",
     "a/a/b",
     "b/a/b"},
    {{{"a/{x}", "{x}", 0}, {"b/**", "**", 0}, END}, "", "", "a", "a/a", "b/a"},
    {{{"a/{x}", "{x}", 0}, {"b/{x}/**", "{x}/**", 0}, END}, "", "", NULL, NULL, NULL},
    /* no store has it */
    {{{"a/**", "**", -1}, {"b/**", "**", 0}, END}, "", "", NULL, NULL, NULL},
    /* the mount's own name is shown nowhere */
    {{{"a/**", ".runfs/**", 0}, {"**", NULL, 0}, END}, "", "", NULL, NULL, NULL},
};

START_TEST(two_paths)
{
    struct routes r = routes_of(pairs[_i].routes);
    struct routes_overlap o = {.object = NULL};
    const struct route *b = &r.items[r.n - 1], *a = r.n > 1 ? b - 1 : b;
    bool found = routes_overlap(&r, a, pairs[_i].a_root, b, pairs[_i].b_root, &o);

    ck_assert_int_eq(found, pairs[_i].object != NULL);
    if (found) {
        ck_assert_str_eq(o.object, pairs[_i].object);
        ck_assert_str_eq(o.a_path, pairs[_i].a_path);
        ck_assert_str_eq(o.b_path, pairs[_i].b_path);
        routes_overlap_release(&o);
        ck_assert(routes_overlap(&r, b, pairs[_i].b_root, a, pairs[_i].a_root, &o));
    }
    routes_overlap_release(&o);
    routes_release(&r);
}
END_TEST

/* Layouts as they are made over one store. */
static const struct route_text horovod[] = {
    {"intermediate_train_data/**", NULL, 0},
    {"intermediate_train_data{x}/**", NULL, 0},
    {"intermediate_train_data{x}", NULL, 0},
    {"intermediate_val_data/**", NULL, 0},
    {"intermediate_val_data{x}/**", NULL, 0},
    {"intermediate_val_data{x}", NULL, 0},
    {"runs/{run}/checkpoint.h5", NULL, 0},
    {"runs/{run}/checkpoint/**", NULL, 0},
    {"runs/{run}/logs/**", NULL, 0},
    {"runs/{run}/**", NULL, 0},
    {"**", NULL, 0},
    END,
};
static const struct route_text *const layouts[] = {one, horovod, runs};

START_TEST(layouts_have_each_object_once)
{
    struct routes r = routes_of(layouts[_i]);
    static const char *const roots[] = {"t", "l", "d"};
    struct routes_overlap o;

    for (size_t i = 0; i < r.n; i++) {
        ck_assert_uint_eq(routes_covering(&r, i), SIZE_MAX);
        for (size_t k = 0; k < r.n; k++)
            ck_assert(!routes_overlap(&r, &r.items[i], roots[r.items[i].store], &r.items[k],
                                      roots[r.items[k].store], &o));
    }
    routes_release(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("runs_compare");
    TCase *t = tcase_create("runs_compare");

    tcase_add_loop_test(t, same_below, 0, ARRAY_SIZE(below));
    tcase_add_loop_test(t, writable_below, 0, ARRAY_SIZE(names));
    tcase_add_loop_test(t, never_matches, 0, ARRAY_SIZE(covers));
    tcase_add_loop_test(t, two_paths, 0, ARRAY_SIZE(pairs));
    tcase_add_loop_test(t, layouts_have_each_object_once, 0, ARRAY_SIZE(layouts));
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
