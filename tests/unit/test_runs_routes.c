/* Routes: what a path is, from where a directory's names come, and back from keys. */
#include "common/buf.h"
#include "common/err.h"
#include "common/mem.h"
#include "runs/routes.h"
#include "tests/lib/route_table.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Stores are 0 to 3; the tables are legal ones. */
enum table { RUNS, ONE, HOROVOD, ODD, SCRATCH, BEHIND, PLAIN, EMPTY };

static const struct route_text runs[] = {
    {"runs/{run}/checkpoint/**", "{run}/**", 0},
    {"runs/{run}/logs/**", "{run}/**", 1},
    {"runs/{run}/metadata/**", "{run:b32}/**", 2},
    {"runs/{run}/**", NULL, 3},
    {"**", NULL, 3},
    {NULL, NULL, 0},
};
static const struct route_text one[] = {
    {"runs/{run}/checkpoint/**", NULL, 0},
    {"runs/{run}/logs/**", NULL, 0},
    {"runs/{run}/**", NULL, 0},
    {"**", NULL, 0},
    {NULL, NULL, 0},
};
static const struct route_text horovod[] = {
    {"intermediate_train_data/**", "warehouse/tr/**", 1},
    {"intermediate_train_data{x}/**", "warehouse/tr{x}/**", 1},
    {"intermediate_train_data{x}", "warehouse/tr{x}", 1},
    {"runs/{run}/checkpoint.h5", NULL, 0},
    {"runs/{run}/**", NULL, 0},
    {"**", NULL, 2},
    {NULL, NULL, 0},
};
static const struct route_text odd[] = {
    {"runs/{run}/model.pt", "{run}.pt", 0},        /* an object makes a directory */
    {"models/{run}.pt", "runs/{run}/model.pt", 1}, /* a directory names an object */
    {"meta/{run}/**", "{run}/data/**", 1},
    {"deep/{a}/x/y/{b}/**", "k/{a}/m/{b}/**", 2},
    {"all/**", "**", 3},
    {"hex/{h}", "h/{h:hex}.bin", 0},
    {"dots/a{x}", "dots/{x}", 0},
    {"runs/{run}/d/**", "{run}.pt/**", 0},
    {NULL, NULL, 0},
};
static const struct route_text scratch[] = {
    {"runs/**", NULL, -1},
    {"tmp/{x}/y/**", NULL, -1},
    {"{a}/logs/**", "{a}/**", 1},
    {"x/y/z/**", NULL, 1},
    {NULL, NULL, 0},
};
static const struct route_text behind[] = {
    {"runs/{run}/tmp/**", NULL, -1},
    {"runs/{run}/checkpoint/**", "{run:b32}/**", 0},
    {"runs/{run}/of/model.pt", "{run}.pt", 1},
    {"runs/**", NULL, -1},
    {"**", NULL, 2},
    {NULL, NULL, 0},
};
static const struct route_text plain[] = {{"**", NULL, 0}, {NULL, NULL, 0}};
static const struct route_text empty[] = {{NULL, NULL, 0}};

static const struct route_text *const tables[] = {
    [RUNS] = runs,       [ONE] = one,       [HOROVOD] = horovod, [ODD] = odd,
    [SCRATCH] = scratch, [BEHIND] = behind, [PLAIN] = plain,     [EMPTY] = empty,
};

/* ---- what a path is ---- */

/* "STORE:KEY", the kind, or the error. */
static void say_found(const struct routes *r, const char *path, enum routes_as as, char *text,
                      size_t size)
{
    static const char *const kinds[] = {"nowhere", "fixed", "implied", "mapped"};
    const struct route *route;
    struct routes_hit hit;
    int err = routes_find(r, path, as, &hit);

    if (err < 0) {
        (void)snprintf(text, size, "%s", err_name(err));
        ck_assert_int_eq(routes_kind(r, path, as, &route), ROUTES_NOWHERE);
        return;
    }
    ck_assert_int_eq(routes_kind(r, path, as, &route), hit.kind);
    ck_assert_ptr_eq(route, hit.route);
    if (hit.kind == ROUTES_MAPPED)
        (void)snprintf(text, size, "%u:%s", hit.route->store, hit.key);
    else
        (void)snprintf(text, size, "%s", kinds[hit.kind]);
    routes_hit_release(&hit);
    ck_assert_ptr_null(hit.key);
}

static const struct {
    enum table table;
    const char *path, *object, *directory;
} found[] = {
    {RUNS, "", "nowhere", "3:"},
    {RUNS, "runs", "3:runs", "3:runs"},
    {RUNS, "runs/a", "3:runs/a", "3:runs/a"},
    {RUNS, "runs/a/checkpoint", "3:runs/a/checkpoint", "0:a"},
    {RUNS, "runs/a/checkpoint/x/y", "0:a/x/y", "0:a/x/y"},
    {RUNS, "runs/a/logs/x", "1:a/x", "1:a/x"},
    {RUNS, "runs/a/log/x", "3:runs/a/log/x", "3:runs/a/log/x"},
    {RUNS, "runs/foo/metadata/m", "2:MZXW6===/m", "2:MZXW6===/m"},
    {RUNS, "runs/%2E/metadata/m", "2:FY======/m", "2:FY======/m"},
    {RUNS, "runs/%41/metadata/m", "EINVAL", "EINVAL"},
    {RUNS, "runs/\xff/metadata/m", "EILSEQ", "EILSEQ"},
    {RUNS, "runs/%41/logs", "3:runs/%41/logs", "1:%41"},
    {RUNS, "other/x", "3:other/x", "3:other/x"},
    {HOROVOD, "intermediate_train_data", "2:intermediate_train_data", "1:warehouse/tr"},
    {HOROVOD, "intermediate_train_data1", "1:warehouse/tr1", "1:warehouse/tr1"},
    {HOROVOD, "intermediate_train_data1/x", "1:warehouse/tr1/x", "1:warehouse/tr1/x"},
    {HOROVOD, "intermediate_train_data/x", "1:warehouse/tr/x", "1:warehouse/tr/x"},
    {HOROVOD, "runs/a/checkpoint.h5", "0:runs/a/checkpoint.h5", "0:runs/a/checkpoint.h5"},
    {ODD, "", "nowhere", "fixed"},
    {ODD, "runs", "nowhere", "fixed"},
    {ODD, "runs/a", "nowhere", "implied"},
    {ODD, "runs/a/model.pt", "0:a.pt", "nowhere"},
    {ODD, "runs/a/model", "nowhere", "nowhere"},
    {ODD, "models/a.pt", "1:runs/a/model.pt", "nowhere"},
    {ODD, "meta/a", "nowhere", "1:a/data"},
    {ODD, "deep/a/x", "nowhere", "implied"},
    {ODD, "deep/a/x/y/b", "nowhere", "2:k/a/m/b"},
    {ODD, "deep/a/x/y/b/c", "2:k/a/m/b/c", "2:k/a/m/b/c"},
    {ODD, "all", "nowhere", "3:"},
    {ODD, "all/x", "3:x", "3:x"},
    {ODD, "hex/ab", "0:h/6162.bin", "nowhere"},
    {ODD, "hex/%2f", "EINVAL", "nowhere"},
    {ODD, "dots/a.", "EINVAL", "nowhere"},
    {ODD, "dots/a..", "EINVAL", "nowhere"},
    {ODD, "dots/a...", "0:dots/...", "nowhere"},
    {ODD, "nothing", "nowhere", "nowhere"},
    {SCRATCH, "runs/a", "0:runs/a", "0:runs/a"},
    {SCRATCH, "tmp/a", "nowhere", "implied"},
    {SCRATCH, "tmp", "nowhere", "fixed"},
    {SCRATCH, "a", "nowhere", "implied"},
    {SCRATCH, "x", "nowhere", "fixed"},
    {PLAIN, "", "nowhere", "0:"},
    {PLAIN, "a/b", "0:a/b", "0:a/b"},
    {EMPTY, "", "nowhere", "fixed"},
    {EMPTY, "a", "nowhere", "nowhere"},
};

START_TEST(what_a_path_is)
{
    struct routes r = routes_of(tables[found[_i].table]);
    char text[256];

    say_found(&r, found[_i].path, ROUTES_OBJECT, text, sizeof(text));
    ck_assert_str_eq(text, found[_i].object);
    say_found(&r, found[_i].path, ROUTES_DIRECTORY, text, sizeof(text));
    ck_assert_str_eq(text, found[_i].directory);
    routes_release(&r);
}
END_TEST

START_TEST(names_too_long)
{
    static const struct route_text texts[] = {
        {"b/{x}/**", "{x:b32}/**", 0}, {"l/{x}", "long-{x}", 0}, {NULL, NULL, 0}};
    struct routes r = routes_of(texts);
    char path[PATH_KEY_MAX] = "b/", text[8];

    memset(path + 2, 'a', 155);
    say_found(&r, path, ROUTES_DIRECTORY, text, sizeof(text));
    ck_assert_str_eq(text, "0:MFQWC");
    path[157] = 'a';
    say_found(&r, path, ROUTES_DIRECTORY, text, sizeof(text));
    ck_assert_str_eq(text, "ENAMETO");
    strcpy(path, "l/");
    memset(path + 2, 'a', 250);
    path[252] = '\0';
    say_found(&r, path, ROUTES_OBJECT, text, sizeof(text));
    ck_assert_str_eq(text, "0:long-");
    strcpy(path + 252, "a");
    say_found(&r, path, ROUTES_OBJECT, text, sizeof(text));
    ck_assert_str_eq(text, "ENAMETO");
    routes_release(&r);
}
END_TEST

/* A key of one byte too much: the path is shorter by the codec. */
START_TEST(a_key_too_long)
{
    static const struct route_text texts[] = {{"{x}/**", "{x:hex}/**", 0}, {NULL, NULL, 0}};
    struct routes r = routes_of(texts);
    char path[PATH_KEY_MAX + 1];

    for (size_t i = 0; i < sizeof(path); i++)
        path[i] = i % 2 ? '/' : 'a'; /* the key is one byte longer */
    for (size_t n = PATH_KEY_MAX - 4; n < PATH_KEY_MAX; n++) {
        char byte = path[n], text[4];

        path[n] = '\0';
        if (n % 2) {
            say_found(&r, path, ROUTES_OBJECT, text, sizeof(text));
            ck_assert_str_eq(text, n + 1 < PATH_KEY_MAX ? "0:6" : "ENA");
        }
        path[n] = byte;
    }
    routes_release(&r);
}
END_TEST

/* A directory that a route takes, though the name can't be written for it, is on the way of a
 * route before it. */
START_TEST(on_the_way_though_not_written)
{
    static const struct route_text texts[] = {{"runs/{run}/x/**", "{run}/**", 0},
                                              {"runs/{run}/**", "{run:b32}/**", 1},
                                              {NULL, NULL, 0}};
    struct routes r = routes_of(texts);
    char text[64];

    say_found(&r, "runs/%41", ROUTES_DIRECTORY, text, sizeof(text));
    ck_assert_str_eq(text, "implied");
    say_found(&r, "runs/%41/x/y", ROUTES_OBJECT, text, sizeof(text));
    ck_assert_str_eq(text, "0:%41/y");
    say_found(&r, "runs/%41/y", ROUTES_OBJECT, text, sizeof(text));
    ck_assert_str_eq(text, "EINVAL");
    routes_release(&r);
}
END_TEST

static const struct {
    enum table table;
    const char *path;
    bool fixed;
} fixed[] = {
    {RUNS, "", true},       {RUNS, "runs", true},     {RUNS, "runs/a", false},
    {RUNS, "other", false}, {ODD, "models", true},    {ODD, "deep", true},
    {ODD, "deep/a", false}, {ODD, "deep/a/x", false}, {ODD, "all", false},
    {EMPTY, "", true},      {EMPTY, "a", false},      {PLAIN, "a", false},
    {SCRATCH, "tmp", true}, {SCRATCH, "runs", false},
};

START_TEST(what_exists_always)
{
    struct routes r = routes_of(tables[fixed[_i].table]);

    ck_assert_int_eq(routes_fixed(&r, fixed[_i].path), fixed[_i].fixed);
    routes_release(&r);
}
END_TEST

static const struct {
    enum table table;
    const char *path;
    bool through;
} through[] = {
    {BEHIND, "runs", true},
    {BEHIND, "runs/a", true},
    {BEHIND, "runs/a/of", true},
    {BEHIND, "runs/%41", true}, /* whose name is no key of the first */
    {BEHIND, "runs/a/of/b", false},
    {BEHIND, "runs/a/tmp", false},
    {BEHIND, "runs/a/checkpoint", false},
    {BEHIND, "runs/a/logs", false},
    {BEHIND, "", true},
    {BEHIND, "other", false},
    {SCRATCH, "runs", false},
    {SCRATCH, "tmp", true}, /* by {a}/logs */
    {SCRATCH, "tmp/a", false},
    {PLAIN, "", false},
    {EMPTY, "", false},
};

START_TEST(what_leads_through)
{
    struct routes r = routes_of(tables[through[_i].table]);

    ck_assert_int_eq(routes_lead_through(&r, through[_i].path), through[_i].through);
    routes_release(&r);
}
END_TEST

/* ---- roots ---- */

static int say_root(void *arg, unsigned store, const char *key, enum routes_as as)
{
    return buf_addf(arg, "%u:%s%s ", store, key, as == ROUTES_OBJECT ? "!" : "");
}

static const struct {
    enum table table;
    const char *path, *roots; /* "!": of an object */
} roots[] = {
    {RUNS, "", "3: "},
    {RUNS, "runs", "3:runs "},
    {RUNS, "runs/foo", "3:runs/foo 0:foo 1:foo 2:MZXW6=== "},
    {RUNS, "runs/%41", "3:runs/%41 0:%41 1:%41 "},
    {RUNS, "runs/a/logs", "1:a "},
    {RUNS, "runs/a/x", "3:runs/a/x "},
    {ONE, "runs/a", "0:runs/a "},
    {ODD, "", ""},
    {ODD, "runs", ""},
    {ODD, "runs/a", "0:a.pt! 0:a.pt "},
    {ODD, "meta/a", "1:a/data 1:a "},
    {ODD, "meta/a/b", "1:a/data/b "},
    {ODD, "deep/a", "2:k/a "},
    {ODD, "deep/a/x/y", "2:k/a "},
    {ODD, "deep/a/x/y/b", "2:k/a/m/b "},
    {ODD, "all", "3: "},
    {SCRATCH, "tmp/a", ""},
    {SCRATCH, "runs", ""},
    {SCRATCH, "a", "1:a "},
    {EMPTY, "a", ""},
};

START_TEST(what_makes_a_directory_exist)
{
    struct routes r = routes_of(tables[roots[_i].table]);
    struct buf auto_buf text = BUF_INIT(1024);

    ck_assert_int_eq(buf_adds(&text, ""), 0);
    ck_assert_int_eq(routes_each_root(&r, roots[_i].path, say_root, &text), 0);
    ck_assert_str_eq(text.data, roots[_i].roots);
    routes_release(&r);
}
END_TEST

static int stop(void *arg, unsigned store, const char *key, enum routes_as as)
{
    (void)store, (void)key, (void)as;
    return ++*(int *)arg == 2 ? 7 : 0;
}

START_TEST(a_visit_ends_early)
{
    struct routes r = routes_of(runs);
    int calls = 0;

    ck_assert_int_eq(routes_each_root(&r, "runs/a", stop, &calls), 7);
    ck_assert_int_eq(calls, 2);
    calls = 1;
    ck_assert_int_eq(routes_each_root(&r, "runs/a", stop, &calls), 7);
    ck_assert_int_eq(calls, 2);
    routes_release(&r);
}
END_TEST

/* ---- sources ---- */

/* `NAME=STORE:KEY` or `*=STORE:KEY`; "!" always; what of the store counts; what it is here. */
static int say_source(void *arg, const struct routes_source *s)
{
    return buf_addf(arg, "%s%s=%u:%s[%s%s%s] ",
                    s->name        ? s->name
                    : s->component ? "{}"
                                   : "*",
                    s->always ? "!" : "", s->route->store, s->key, s->objects ? "o" : "",
                    s->directories ? "d" : "",
                    !s->name && !s->component   ? ""
                    : s->as == ROUTES_DIRECTORY ? ">d"
                                                : ">o");
}

static const struct {
    enum table table;
    const char *path, *sources;
} sources[] = {
    {RUNS, "", "runs!=0:[d>d] runs!=1:[d>d] runs!=2:[d>d] runs!=3:[d>d] *=3:[od] "},
    {RUNS, "runs", "{}=0:[d>d] {}=1:[d>d] {}=2:[d>d] {}=3:runs[d>d] *=3:runs[od] "},
    {RUNS, "runs/foo",
     "checkpoint=0:foo[d>d] logs=1:foo[d>d] metadata=2:MZXW6===[d>d] *=3:runs/foo[od] "},
    {RUNS, "runs/%41", "checkpoint=0:%41[d>d] logs=1:%41[d>d] *=3:runs/%41[od] "},
    {RUNS, "runs/a/logs/x", "*=1:a/x[od] "},
    {HOROVOD, "",
     "intermediate_train_data=1:warehouse/tr[d>d] {}=1:warehouse[d>d] {}=1:warehouse[o>o] "
     "runs!=0:[d>d] runs!=0:[d>d] *=2:[od] "},
    {HOROVOD, "runs/a", "checkpoint.h5=0:runs/a/checkpoint.h5[o>o] *=0:runs/a[od] "},
    {ODD, "",
     "runs!=0:[d>d] models!=1:[d>d] meta!=1:[d>d] deep!=2:[d>d] all!=3:[d>d] hex!=0:[d>d] "
     "dots!=0:[d>d] runs!=0:[d>d] "},
    {ODD, "runs", "{}=0:[o>d] {}=0:[d>d] "},
    {ODD, "runs/a", "model.pt=0:a.pt[o>o] d=0:a.pt[d>d] "},
    {ODD, "models", "{}=1:runs[d>o] "},
    {ODD, "meta", "{}=1:[d>d] "},
    {ODD, "meta/a", "*=1:a/data[od] "},
    {ODD, "deep", "{}=2:k[d>d] "},
    {ODD, "deep/a", "x=2:k/a[d>d] "},
    {ODD, "deep/a/x", "y=2:k/a[d>d] "},
    {ODD, "deep/a/x/y", "{}=2:k/a/m[d>d] "},
    {ODD, "hex", "{}=0:h[o>o] "},
    {SCRATCH, "", "tmp!=0:[d>d] {}=1:[d>d] x!=1:[d>d] "},
    {SCRATCH, "runs", ""},
    {SCRATCH, "tmp", "logs=1:tmp[d>d] "},
    {SCRATCH, "a", "logs=1:a[d>d] "},
    {EMPTY, "", ""},
};

START_TEST(from_where_names_come)
{
    struct routes r = routes_of(tables[sources[_i].table]);
    struct buf auto_buf text = BUF_INIT(1024);

    ck_assert_int_eq(buf_adds(&text, ""), 0);
    ck_assert_int_eq(routes_each_source(&r, sources[_i].path, say_source, &text), 0);
    ck_assert_str_eq(text.data, sources[_i].sources);
    routes_release(&r);
}
END_TEST

/* What a child of the last source that lists by a component is called. */
struct child {
    const char *stored;
    struct buf shown;
    int result;
};

static int name_child(void *arg, const struct routes_source *s)
{
    struct child *child = arg;

    if (!s->component)
        return 0;
    buf_clear(&child->shown);
    child->result = routes_source_name(s, child->stored, &child->shown);
    return 0;
}

static const struct {
    enum table table;
    const char *path, *stored, *shown; /* NULL: hidden */
} children[] = {
    {ODD, "hex", "6162.bin", "ab"},
    {ODD, "hex", "6162.bi", NULL},
    {ODD, "hex", ".bin", NULL},
    {ODD, "hex", "6A.bin", NULL},
    {ODD, "hex", "2f.bin", "%2F"},
    {ODD, "hex", "00.bin", "%00"},
    {ODD, "runs", "a.pt", "a"},
    {ODD, "runs", "a.pth", NULL},
    {ODD, "runs", "..pt", NULL},
    {ODD, "models", "a", "a.pt"},
    {HOROVOD, "", "tr1", "intermediate_train_data1"},
    {HOROVOD, "", "tr", NULL},
    {ODD, "dots", "x", "ax"},
};

START_TEST(what_a_child_is_called)
{
    struct routes r = routes_of(tables[children[_i].table]);
    struct child child = {.stored = children[_i].stored, .shown = BUF_INIT(1024)};

    ck_assert_int_eq(routes_each_source(&r, children[_i].path, name_child, &child), 0);
    ck_assert_int_eq(child.result, children[_i].shown ? 0 : -ENOENT);
    if (children[_i].shown)
        ck_assert_str_eq(child.shown.data, children[_i].shown);
    else
        ck_assert_uint_eq(child.shown.len, 0);
    buf_release(&child.shown);
    routes_release(&r);
}
END_TEST

START_TEST(names_that_others_claim)
{
    struct routes r = routes_of(horovod);
    const struct route *last = &r.items[r.n - 1];

    ck_assert(routes_shadowed(&r, last, "intermediate_train_data", ROUTES_DIRECTORY));
    ck_assert(!routes_shadowed(&r, last, "intermediate_train_data", ROUTES_OBJECT));
    ck_assert(routes_shadowed(&r, last, "intermediate_train_data1", ROUTES_OBJECT));
    ck_assert(routes_shadowed(&r, last, "runs/a", ROUTES_DIRECTORY));
    ck_assert(!routes_shadowed(&r, last, "runs/a", ROUTES_OBJECT));
    ck_assert(!routes_shadowed(&r, last, "runs", ROUTES_DIRECTORY));
    ck_assert(!routes_shadowed(&r, &r.items[0], "intermediate_train_data", ROUTES_DIRECTORY));
    routes_release(&r);
}
END_TEST

/* ---- back ---- */

static const struct {
    enum table table;
    unsigned store;
    const char *key, *object, *directory; /* NULL: none */
} keys[] = {
    {RUNS, 0, "a/b", "runs/a/checkpoint/b", "runs/a/checkpoint/b"},
    {RUNS, 0, "a", NULL, "runs/a/checkpoint"},
    {RUNS, 0, "", NULL, NULL},
    {RUNS, 2, "MZXW6===/b", "runs/foo/metadata/b", "runs/foo/metadata/b"},
    {RUNS, 2, "mzxw6===/b", NULL, NULL},
    {RUNS, 3, "", NULL, ""},
    {RUNS, 3, "runs/a/x", "runs/a/x", "runs/a/x"},
    {RUNS, 3, "runs/a/logs/x", NULL, NULL},
    {RUNS, 3, "runs/a/logs", "runs/a/logs", NULL},
    {RUNS, 3, "x", "x", "x"},
    {HOROVOD, 1, "warehouse/tr", NULL, "intermediate_train_data"},
    {HOROVOD, 1, "warehouse/tr2", "intermediate_train_data2", "intermediate_train_data2"},
    {ODD, 0, "a.pt", "runs/a/model.pt", "runs/a/d"},
    {ODD, 0, "..pt", NULL, NULL},
    {ODD, 0, "h/2e.bin", "hex/%2E", NULL},
    {ODD, 1, "a/data", NULL, "meta/a"},
    {ODD, 1, "a", NULL, NULL},
    {ODD, 3, "x", "all/x", "all/x"},
    {SCRATCH, 0, "runs/a", NULL, NULL},
    {SCRATCH, 1, "runs/a", NULL, NULL},
    {SCRATCH, 1, "b/a", "b/logs/a", "b/logs/a"},
};

static void check_path(const struct routes *r, unsigned store, const char *key,
                       enum routes_as as, const char *path)
{
    auto_free char *got = NULL;

    ck_assert_int_eq(routes_path_of(r, store, key, as, &got), path ? 0 : -ENOENT);
    if (path)
        ck_assert_str_eq(got, path);
}

START_TEST(the_path_of_a_key)
{
    struct routes r = routes_of(tables[keys[_i].table]);

    check_path(&r, keys[_i].store, keys[_i].key, ROUTES_OBJECT, keys[_i].object);
    check_path(&r, keys[_i].store, keys[_i].key, ROUTES_DIRECTORY, keys[_i].directory);
    routes_release(&r);
}
END_TEST

/* What no path of the mount can hold is no one's, though a store has it. */
START_TEST(keys_without_a_path)
{
    static const struct route_text texts[] = {
        {"{x}", "long-{x}", 0}, {"longer/path/**", "**", 1}, {NULL, NULL, 0}};
    struct routes r = routes_of(texts);
    char key[PATH_KEY_MAX] = "long-";

    memset(key + 5, 'a', 251);
    check_path(&r, 0, key, ROUTES_OBJECT, NULL);
    key[255] = '\0';
    check_path(&r, 0, key, ROUTES_OBJECT, key + 5);
    for (size_t i = 0; i + 1 < sizeof(key); i++)
        key[i] = i % 2 ? '/' : 'a';
    check_path(&r, 1, key, ROUTES_OBJECT, NULL);
    strcpy(key + PATH_KEY_MAX - 14, "aa"); /* a path of a byte too much */
    check_path(&r, 1, key, ROUTES_OBJECT, NULL);
    key[13] = '\0';
    check_path(&r, 1, key, ROUTES_OBJECT, "longer/path/a/a/a/a/a/a/a");
    routes_release(&r);
}
END_TEST

/* ---- the table ---- */

static const struct {
    const char *path, *key, *why;
} pairs[] = {
    {"runs/{run}/**", "runs/**", "\"path\" has {run}, \"key\" has not"},
    {"runs/**", "runs/{run}/**", "\"key\" has {run}, \"path\" has not"},
    {"{a}/{b}", "{b}/{a}", "\"key\" has {b} before {a}"},
    {"{a}/{b}/{c}", "{a}/x/{c}/{b}", "\"key\" has {c} before {b}"},
    {"a/**", "a", "\"path\" ends in \"**\", \"key\" does not"},
    {"a", "a/**", "\"key\" ends in \"**\", \"path\" does not"},
    {"{a}/{b}/**", "x{a:b32}/{b:hex}y/**", NULL},
    {"a/b", "c", NULL},
    {"a/**", "**", NULL},
};

START_TEST(legal_pairs)
{
    struct route_text text = {pairs[_i].path, pairs[_i].key, 0};
    struct routes r = {.items = NULL};
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(route_add(&r, &text, &op), pairs[_i].why ? -EINVAL : 0);
    ck_assert_str_eq(op.why, pairs[_i].why ? pairs[_i].why : "");
    ck_assert_uint_eq(r.n, !pairs[_i].why);
    routes_release(&r);
}
END_TEST

START_TEST(a_trivial_table)
{
    static const struct route_text below[] = {{"a/**", "**", 0}, {NULL, NULL, 0}};
    static const struct route_text gone[] = {{"**", NULL, -1}, {NULL, NULL, 0}};
    static const struct route_text *const texts[] = {plain, empty, below, gone, runs};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct routes r = routes_of(texts[i]);

        ck_assert_int_eq(routes_trivial(&r), i == 0);
        routes_release(&r);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("runs_routes");
    TCase *t = tcase_create("runs_routes");

    tcase_add_loop_test(t, what_a_path_is, 0, ARRAY_SIZE(found));
    tcase_add_test(t, names_too_long);
    tcase_add_test(t, a_key_too_long);
    tcase_add_test(t, on_the_way_though_not_written);
    tcase_add_loop_test(t, what_exists_always, 0, ARRAY_SIZE(fixed));
    tcase_add_loop_test(t, what_leads_through, 0, ARRAY_SIZE(through));
    tcase_add_loop_test(t, what_makes_a_directory_exist, 0, ARRAY_SIZE(roots));
    tcase_add_test(t, a_visit_ends_early);
    tcase_add_loop_test(t, from_where_names_come, 0, ARRAY_SIZE(sources));
    tcase_add_loop_test(t, what_a_child_is_called, 0, ARRAY_SIZE(children));
    tcase_add_test(t, names_that_others_claim);
    tcase_add_loop_test(t, the_path_of_a_key, 0, ARRAY_SIZE(keys));
    tcase_add_test(t, keys_without_a_path);
    tcase_add_loop_test(t, legal_pairs, 0, ARRAY_SIZE(pairs));
    tcase_add_test(t, a_trivial_table);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
