/* Random tables of routes over small stores, walked as a mount does: what listings show is what
 * keys say, and no object is shown twice. The stores are lists of keys; both kinds of name
 * collide often, as names come from a short list. */
#include "common/buf.h"
#include "common/mem.h"
#include "common/path.h"
#include "runs/match.h"
#include "runs/routes.h"
#include "tests/lib/route_table.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define STORES   2
#define KEYS_MAX 24
#define ROUTES   4

static unsigned state;

static unsigned below(unsigned n)
{
    state = state * 1103515245 + 12345;
    return (state >> 16) % n;
}

#define PICK(list) (list)[below(ARRAY_SIZE(list))]

/* ---- random tables ---- */

static const char *const literals[] = {"a", "b", "ab", "61", "a%"};
static const char *const affixes[] = {"", "", "", "a", "b"};
static const char *const codecs[] = {"", "", "", ":hex", ":pct", ":b32"};

static void add_capture(struct buf *to, unsigned i, const char *codec)
{
    ck_assert_int_eq(
        buf_addf(to, "%s{%c%s}%s", PICK(affixes), (char)('p' + i), codec, PICK(affixes)), 0);
}

static void add_slash(struct buf *to)
{
    ck_assert_int_eq(buf_adds(to, to->len ? "/" : ""), 0);
}

static void add_literals(struct buf *to, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        add_slash(to);
        ck_assert_int_eq(buf_adds(to, PICK(literals)), 0);
    }
}

/* Captures with literals between them. */
static void add_template(struct buf *to, unsigned captures, bool rest, bool key)
{
    for (unsigned i = 0; i < captures; i++) {
        add_literals(to, below(5) == 0);
        add_slash(to);
        add_capture(to, i, key ? PICK(codecs) : "");
    }
    add_literals(to, below(2));
    if (!rest && !to->len)
        add_literals(to, 1);
    if (rest) {
        add_slash(to);
        ck_assert_int_eq(buf_adds(to, "**"), 0);
    }
}

static void add_route(struct routes *r)
{
    struct buf auto_buf path = BUF_INIT(256);
    struct buf auto_buf key = BUF_INIT(256);
    unsigned captures = below(3);
    bool rest = below(3) > 0, same = below(3) == 0;
    struct route_text text;
    struct op op;

    add_literals(&path, below(2));
    add_template(&path, captures, rest, false);
    add_template(&key, captures, rest, true);
    text = (struct route_text){path.data, same ? NULL : key.data,
                               below(8) == 0 ? -1 : (int)below(STORES)};
    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(route_add(r, &text, &op), 0);
}

static const char *store_roots[STORES];

static bool overlaps(const struct routes *r, size_t i, size_t k, struct routes_overlap *ret)
{
    const struct route *a = &r->items[i], *b = &r->items[k];

    return routes_overlap(r, a, store_roots[a->store], b, store_roots[b->store], ret);
}

static bool any_overlap(const struct routes *r)
{
    struct routes_overlap o = {.object = NULL};
    bool found = false;

    for (size_t i = 0; i < r->n && !found; i++)
        for (size_t k = 0; k < i && !found; k++)
            found = overlaps(r, i, k, &o);
    routes_overlap_release(&o);
    return found;
}

static struct routes random_routes(unsigned seed)
{
    static const char *const second[] = {"u", "t", "t/a", "t/ab/61"};
    struct routes r = {.items = NULL};

    state = seed;
    store_roots[0] = "t";
    store_roots[1] = PICK(second);
    for (unsigned n = 1 + below(ROUTES); n > 0; n--)
        add_route(&r);
    return r;
}

/* One that a mount would take. */
static bool legal_routes(unsigned seed, struct routes *ret)
{
    *ret = random_routes(seed);
    store_roots[1] = "u";
    if (!any_overlap(ret))
        return true;
    routes_release(ret);
    return false;
}

/* For messages. */
static const char *said(const struct routes *r)
{
    static char text[1024];
    size_t n = 0;

    for (size_t i = 0; i < r->n; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s | %s @%u%s; ",
                              r->items[i].path.text, r->items[i].key.text, r->items[i].store,
                              r->items[i].scratch ? " scratch" : "");
    return text;
}

/* ---- stores ---- */

static const char *const names[] = {"a",    "b",   "ab",       "aab",      "61",  "6162",
                                    "a%2F", "a%",  "ME======", "MFRA====", "6G",  "a61b",
                                    "b61a", "%2E", "2e",       "a6162",    "..a", "aMFRA===="};

struct toy {
    char keys[KEYS_MAX][64];
    size_t n;
};
static struct toy toys[STORES];

static void random_key(char key[64])
{
    size_t n = 0;

    key[0] = '\0';
    for (unsigned depth = 1 + below(4); depth > 0; depth--)
        n += (size_t)snprintf(key + n, 64 - n, "%s%s", n ? "/" : "", PICK(names));
}

/* The key of a random path of a route of the store, or a random one. */
static void add_object(const struct routes *r, unsigned store)
{
    struct toy *toy = &toys[store];
    struct routes_hit hit;

    random_key(toy->keys[toy->n]);
    if (below(2) && routes_find(r, toy->keys[toy->n], ROUTES_OBJECT, &hit) == 0) {
        if (hit.key && hit.route->store == store && !hit.route->scratch)
            (void)snprintf(toy->keys[toy->n], 64, "%.63s", hit.key);
        routes_hit_release(&hit);
    }
    for (size_t i = 0; i < toy->n; i++)
        if (strcmp(toy->keys[i], toy->keys[toy->n]) == 0)
            return;
    toy->n++;
}

static bool is_object(unsigned store, const char *key)
{
    for (size_t i = 0; i < toys[store].n; i++)
        if (strcmp(toys[store].keys[i], key) == 0)
            return true;
    return false;
}

static bool is_directory(unsigned store, const char *key)
{
    for (size_t i = 0; i < toys[store].n; i++) {
        const char *rest = path_below(key, toys[store].keys[i]);

        if (rest && *rest)
            return true;
    }
    return !*key;
}

/* ---- a mount ---- */

static int note_root(void *arg, unsigned store, const char *key, enum routes_as as)
{
    (void)arg;
    return as == ROUTES_OBJECT ? is_object(store, key) : is_directory(store, key);
}

static bool directory_exists(const struct routes *r, const char *path)
{
    return routes_fixed(r, path) || routes_each_root(r, path, note_root, NULL) == 1;
}

static bool object_exists(const struct routes *r, const char *path)
{
    struct routes_hit hit;
    bool exists;

    if (routes_find(r, path, ROUTES_OBJECT, &hit) < 0)
        return false;
    exists = hit.key && !hit.route->scratch && is_object(hit.route->store, hit.key);
    routes_hit_release(&hit);
    return exists;
}

#define ENTRIES_MAX 128

struct entry {
    char path[256];
    enum routes_as as;
};
/* What a walk found, in the order in which it goes on. */
struct listing {
    const struct routes *r;
    const char *dir;
    struct entry items[ENTRIES_MAX];
    size_t n;
};

static bool has_entry(const struct listing *l, const char *path, enum routes_as as)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->items[i].as == as && strcmp(l->items[i].path, path) == 0)
            return true;
    return false;
}

static void add_entry(struct listing *l, const struct routes_source *s, const char *name,
                      enum routes_as as)
{
    struct entry e = {.as = as};

    (void)snprintf(e.path, sizeof(e.path), "%s%s%s", l->dir, *l->dir ? "/" : "", name);
    if (routes_shadowed(l->r, s->route, e.path, as) || has_entry(l, e.path, as))
        return;
    ck_assert_uint_lt(l->n, ENTRIES_MAX);
    l->items[l->n++] = e;
}

static void add_child(struct listing *l, const struct routes_source *s, const char *stored,
                      enum routes_as kind)
{
    struct buf auto_buf name = BUF_INIT(1024);
    enum routes_as as = s->component ? s->as : kind;

    if (routes_source_name(s, stored, &name) < 0)
        return;
    if (kind == ROUTES_DIRECTORY && as == ROUTES_OBJECT) {
        auto_free char *path = path_join(l->dir, name.data);

        if (!object_exists(l->r, path))
            return;
    }
    add_entry(l, s, name.data, as);
}

static void list_store(struct listing *l, const struct routes_source *s)
{
    const struct toy *toy = &toys[s->route->store];

    for (size_t i = 0; i < toy->n; i++) {
        const char *rest = path_below(s->key, toy->keys[i]);
        char name[64];

        if (!rest || !*rest)
            continue;
        (void)snprintf(name, sizeof(name), "%.*s", (int)(strchrnul(rest, '/') - rest), rest);
        if (strchr(rest, '/') && s->directories)
            add_child(l, s, name, ROUTES_DIRECTORY);
        else if (!strchr(rest, '/') && s->objects)
            add_child(l, s, name, ROUTES_OBJECT);
    }
}

static int take_source(void *arg, const struct routes_source *s)
{
    struct listing *l = arg;

    if (!s->name)
        list_store(l, s);
    else if (s->always || (s->objects && is_object(s->route->store, s->key)) ||
             (s->directories && is_directory(s->route->store, s->key)))
        add_entry(l, s, s->name, s->as);
    return 0;
}

static void walk(const struct routes *r, struct listing *all)
{
    *all = (struct listing){.r = r, .dir = ""};
    ck_assert_int_eq(routes_each_source(r, "", take_source, all), 0);
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i].as == ROUTES_DIRECTORY) {
            all->dir = all->items[i].path;
            ck_assert_int_eq(routes_each_source(r, all->dir, take_source, all), 0);
        }
}

/* ---- listings and paths ---- */

/* What is listed is there, and what a key's path is, is listed. Returns how many objects are
 * shown. */
static size_t compare(const struct routes *r, const struct listing *l)
{
    size_t objects = 0, shown = 0;

    for (size_t i = 0; i < l->n; i++) {
        bool object = l->items[i].as == ROUTES_OBJECT;

        objects += object;
        ck_assert_msg(object ? object_exists(r, l->items[i].path)
                             : directory_exists(r, l->items[i].path),
                      "%s is not there: %s", l->items[i].path, said(r));
    }
    for (unsigned store = 0; store < STORES; store++)
        for (size_t i = 0; i < toys[store].n; i++) {
            auto_free char *path = NULL;
            struct routes_hit hit;

            if (routes_path_of(r, store, toys[store].keys[i], ROUTES_OBJECT, &path) < 0)
                continue;
            shown++;
            ck_assert_msg(has_entry(l, path, ROUTES_OBJECT), "%u:%s is not listed as %s: %s",
                          store, toys[store].keys[i], path, said(r));
            ck_assert_int_eq(routes_find(r, path, ROUTES_OBJECT, &hit), 0);
            ck_assert_str_eq(hit.key, toys[store].keys[i]);
            ck_assert_uint_eq(hit.route->store, store);
            routes_hit_release(&hit);
        }
    ck_assert_msg(objects == shown, "%zu listed, %zu shown: %s", objects, shown, said(r));
    return shown;
}

/* What exists is listed by the directory that it is in. */
static void compare_others(const struct routes *r, const struct listing *l)
{
    for (size_t i = 0; i < l->n; i++)
        for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
            auto_free char *path = path_join(l->items[i].path, names[k]);

            if (l->items[i].as == ROUTES_DIRECTORY && directory_exists(r, path))
                ck_assert_msg(has_entry(l, path, ROUTES_DIRECTORY), "%s is not listed: %s",
                              path, said(r));
        }
}

START_TEST(listings_and_paths_agree)
{
    static struct listing l;
    size_t shown = 0, tables = 0;

    for (unsigned seed = 1; seed <= 3000; seed++) {
        struct routes r;

        if (!legal_routes(seed, &r))
            continue;
        tables++;
        memset(toys, 0, sizeof(toys));
        for (unsigned i = 0; i < 2 * KEYS_MAX - 2; i++)
            add_object(&r, i % 2);
        walk(&r, &l);
        shown += compare(&r, &l);
        compare_others(&r, &l);
        routes_release(&r);
    }
    ck_assert_uint_gt(tables, 1000);
    ck_assert_uint_gt(shown, 3 * tables);
}
END_TEST

/* ---- paths of an object ---- */

/* Paths of the object at `place` of the two servers' one namespace; the last is in `ret`. */
static size_t count_paths(const struct routes *r, const char *place, struct buf *ret)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n; i++) {
        const struct route *route = &r->items[i];
        const char *key = path_below(store_roots[route->store], place);

        buf_clear(ret);
        if (!route->scratch && key && *key && match_path(route, key, ROUTES_OBJECT, ret) == 0 &&
            routes_owner(r, ret->data, ROUTES_OBJECT) == route)
            n++;
    }
    return n;
}

/* A found overlap is one: by the stores' keys both paths are one object's. */
static void check_overlap(const struct routes *r, size_t i, size_t k,
                          const struct routes_overlap *o)
{
    const char *paths[] = {o->a_path, o->b_path};
    auto_free char *places[2] = {NULL, NULL};
    const size_t routes[] = {i, k};

    for (size_t side = 0; side < 2; side++) {
        struct routes_hit hit;

        ck_assert_int_eq(routes_find(r, paths[side], ROUTES_OBJECT, &hit), 0);
        ck_assert_ptr_eq(hit.route, &r->items[routes[side]]);
        if (side == 0)
            ck_assert_str_eq(hit.key, o->object);
        places[side] = path_join(store_roots[hit.route->store], hit.key);
        routes_hit_release(&hit);
    }
    ck_assert_str_eq(places[0], places[1]);
    ck_assert_str_ne(paths[0], paths[1]);
    free(places[1]);
}

static bool check_overlaps(const struct routes *r)
{
    bool found = false;

    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->n; k++) {
            struct routes_overlap o = {.object = NULL};

            if (overlaps(r, i, k, &o)) {
                found = true;
                check_overlap(r, i, k, &o);
            }
            routes_overlap_release(&o);
        }
    return found;
}

/* The place with number `n` among those of up to three names below the first root. */
static bool nth_place(size_t n, char place[64])
{
    size_t len = (size_t)snprintf(place, 64, "t");

    for (; n > 0; n = (n - 1) / ARRAY_SIZE(names))
        len +=
            (size_t)snprintf(place + len, 64 - len, "/%s", names[(n - 1) % ARRAY_SIZE(names)]);
    return len < 64;
}

START_TEST(an_object_has_one_path)
{
    const size_t places = 18 + 18 * 18 + 18 * 18 * 18;
    unsigned with = 0, without = 0;

    for (unsigned seed = 1; seed <= 1500; seed++) {
        struct routes r = random_routes(seed);
        struct buf auto_buf path = BUF_INIT(1024);
        bool overlap = check_overlaps(&r);

        with += overlap;
        without += !overlap;
        for (size_t i = seed % 7; !overlap && i < places; i += i < 400 ? 1 : 7) {
            char place[64];

            if (nth_place(i, place))
                ck_assert_msg(count_paths(&r, place, &path) <= 1, "%s has two, as %s: %s",
                              place, path.data, said(&r));
        }
        routes_release(&r);
    }
    ck_assert_uint_gt(with, 100);
    ck_assert_uint_gt(without, 500);
}
END_TEST

/* ---- paths to keys and back ---- */

static bool check_back(const struct routes *r, const char *path, enum routes_as as)
{
    struct routes_hit hit, again;
    auto_free char *back = NULL;
    bool checked = false;

    if (routes_find(r, path, as, &hit) < 0)
        return false;
    if (hit.key && !hit.route->scratch) {
        int err = routes_path_of(r, hit.route->store, hit.key, as, &back);

        ck_assert_msg(err == 0, "%s of %s: %s", hit.key, path, said(r));
        ck_assert_int_eq(routes_find(r, back, as, &again), 0);
        ck_assert_str_eq(again.key, hit.key);
        ck_assert_uint_eq(again.route->store, hit.route->store);
        routes_hit_release(&again);
        if (as == ROUTES_OBJECT)
            ck_assert_str_eq(back, path);
        checked = true;
    }
    routes_hit_release(&hit);
    return checked;
}

START_TEST(both_ways)
{
    unsigned checked = 0;

    for (unsigned seed = 1; seed <= 3000; seed++) {
        struct routes r;

        if (!legal_routes(seed, &r))
            continue;
        for (unsigned i = 0; i < 100; i++) {
            char path[64];

            random_key(path);
            checked += check_back(&r, path, ROUTES_OBJECT);
            checked += check_back(&r, path, ROUTES_DIRECTORY);
        }
        routes_release(&r);
    }
    ck_assert_uint_gt(checked, 20000);
}
END_TEST

/* A covered route has no path of its own. */
START_TEST(covered_routes_have_no_path)
{
    unsigned covered = 0, own = 0;

    for (unsigned seed = 1; seed <= 1500; seed++) {
        struct routes r = random_routes(seed);

        for (size_t i = 0; i < r.n; i++)
            covered += routes_covering(&r, i) != SIZE_MAX;
        for (unsigned i = 0; i < 300; i++) {
            const struct route *owner;
            char path[64];

            random_key(path);
            owner = routes_owner(&r, path, ROUTES_OBJECT);
            own += owner != NULL;
            if (owner)
                ck_assert_uint_eq(routes_covering(&r, (size_t)(owner - r.items)), SIZE_MAX);
        }
        routes_release(&r);
    }
    ck_assert_uint_gt(covered, 50);
    ck_assert_uint_gt(own, 10000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("runs_trees");
    TCase *t = tcase_create("runs_trees");

    tcase_add_test(t, listings_and_paths_agree);
    tcase_add_test(t, an_object_has_one_path);
    tcase_add_test(t, both_ways);
    tcase_add_test(t, covered_routes_have_no_path);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
