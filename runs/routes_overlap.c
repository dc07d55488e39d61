/* Whether an object has two paths: a search for one, which is then shown to have them. The
 * names of its place are found one by one (overlap.h), for each number of names it could have.
 */
#include "common/buf.h"
#include "common/mem.h"
#include "runs/match.h"
#include "runs/overlap.h"
#include "runs/routes.h"

#include <errno.h>
#include <string.h>

/* So many objects are tried. Where names are ruled out by few routes, as everywhere but in a
 * riddle, there is one to try for each number of names. */
#define TRIES_MAX 4096

struct side {
    const struct route *route;
    const char *root; /* its store's root, below what both have in common */
    size_t root_n;    /* components of that */
};

struct search {
    const struct routes *routes;
    struct side sides[2];
    char fresh[FRESH_MAX];
    struct candidates *places; /* heap; by the object's names */
    size_t n, cap;             /* names; those that were made */
    size_t tries;
};

static size_t count_components(const char *key)
{
    size_t n = *key != '\0';

    for (; *key; key++)
        n += *key == '/';
    return n;
}

static size_t least_names(const struct side *side)
{
    return side->root_n + side->route->key.n + side->route->key.rest;
}

/* The parts of the roots behind what they have in common; false if neither holds the other. */
static bool split_roots(struct search *s, const char *a, const char *b)
{
    const char *a_below = path_below(b, a), *b_below = path_below(a, b);

    s->sides[0].root = a_below ? a_below : "";
    s->sides[1].root = b_below ? b_below : "";
    s->sides[0].root_n = count_components(s->sides[0].root);
    s->sides[1].root_n = count_components(s->sides[1].root);
    return a_below || b_below;
}

static struct slot slot_of(const struct side *side, size_t i)
{
    const struct template *key = &side->route->key;
    struct slot slot = {.route = side->route};

    if (i < side->root_n) {
        for (slot.literal = side->root; i > 0; i--)
            slot.literal = strchr(slot.literal, '/') + 1;
        slot.literal_len = (size_t)(strchrnul(slot.literal, '/') - slot.literal);
        return slot;
    }
    i -= side->root_n;
    if (i >= key->n) {
        slot.path_at = side->route->path.n + i - key->n;
    } else if (key->components[i].capture) {
        slot.capture = &key->components[i];
        slot.path_at = match_capture(&side->route->path, slot.capture->capture);
    } else {
        slot.literal = key->components[i].before;
        slot.literal_len = strlen(slot.literal);
    }
    return slot;
}

/* ---- one object ---- */

static int join_names(const struct search *s, size_t from, struct buf *key)
{
    int r = 0;

    for (size_t i = from; r == 0 && i < s->n; i++) {
        if (i > from)
            r = buf_addc(key, '/');
        if (r == 0)
            r = buf_adds(key, s->places[i].items[s->places[i].at].name);
    }
    return r;
}

/* The path that one side shows the object under. -ENOENT: none. */
static int path_of_side(const struct search *s, const struct side *side, char **ret_key,
                        char **ret_path)
{
    struct buf auto_buf key = BUF_INIT(PATH_KEY_MAX);
    struct buf auto_buf path = BUF_INIT(PATH_KEY_MAX);
    int r = join_names(s, side->root_n, &key);

    if (r == 0)
        r = match_path(side->route, key.data, ROUTES_OBJECT, &path);
    if (r == 0 && (routes_owner(s->routes, path.data, ROUTES_OBJECT) != side->route ||
                   path_below(PATH_RESERVED, path.data)))
        r = -ENOENT;
    if (r < 0)
        return r == -EFBIG ? -ENOENT : r;
    *ret_key = buf_take(&key);
    *ret_path = buf_take(&path);
    return *ret_key && *ret_path ? 0 : -ENOMEM;
}

static bool try_object(const struct search *s, struct routes_overlap *ret)
{
    auto_free char *key = NULL, *path = NULL, *other_key = NULL, *other_path = NULL;

    if (path_of_side(s, &s->sides[0], &key, &path) < 0 ||
        path_of_side(s, &s->sides[1], &other_key, &other_path) < 0)
        return false;
    ret->object = take_ptr(key);
    ret->a_path = take_ptr(path);
    ret->b_path = take_ptr(other_path);
    return true;
}

/* ---- all of them ---- */

static void drop_places(struct search *s)
{
    for (size_t i = 0; i < s->cap; i++)
        free(s->places[i].items);
    free(s->places);
    s->places = NULL;
    s->cap = s->n = 0;
}

/* False where no name suits both. */
static bool make_places(struct search *s, size_t n)
{
    char letter = 'a';

    s->places = calloc(n, sizeof(*s->places));
    s->n = s->cap = s->places ? n : 0;
    for (size_t i = 0; i < s->n; i++) {
        struct slot slots[2] = {slot_of(&s->sides[0], i), slot_of(&s->sides[1], i)};

        if (overlap_names(s->routes, slots, letter, s->fresh, &s->places[i]) < 0 ||
            s->places[i].n == 0)
            return false;
        if (!slots[0].literal && !slots[1].literal)
            letter = (char)(letter == 'z' ? 'a' : letter + 1);
    }
    return s->places != NULL;
}

/* The next choice of names; false after the last. */
static bool next_object(struct search *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (++s->places[i].at < s->places[i].n)
            return true;
        s->places[i].at = 0;
    }
    return false;
}

static bool search_objects(struct search *s, size_t n, struct routes_overlap *ret)
{
    bool found = false, more = make_places(s, n);

    while (!found && more && s->tries < TRIES_MAX) {
        s->tries++;
        found = try_object(s, ret);
        more = next_object(s);
    }
    drop_places(s);
    return found;
}

/* From so many names on, no route tells two objects apart that differ in their number. */
static size_t most_names(const struct search *s)
{
    size_t n = 0, least = least_names(&s->sides[0]), other = least_names(&s->sides[1]);

    for (size_t i = 0; i < s->routes->n; i++)
        n = n > s->routes->items[i].path.n ? n : s->routes->items[i].path.n;
    return (least > other ? least : other) + n + 1;
}

/* Whether some name is a literal of both sides, and another of each: most routes part so, and
 * nothing need be searched. */
static bool literals_differ(const struct search *s)
{
    const struct side *a = &s->sides[0], *b = &s->sides[1];

    for (size_t i = 0; i < a->root_n + a->route->key.n && i < b->root_n + b->route->key.n;
         i++) {
        struct slot x = slot_of(a, i), y = slot_of(b, i);

        if (x.literal && y.literal &&
            (x.literal_len != y.literal_len ||
             memcmp(x.literal, y.literal, x.literal_len) != 0))
            return true;
    }
    return false;
}

bool routes_overlap(const struct routes *r, const struct route *a, const char *a_root,
                    const struct route *b, const char *b_root, struct routes_overlap *ret)
{
    struct search s = {.routes = r, .sides = {{.route = a}, {.route = b}}};
    size_t most;

    if (a == b || a->scratch || b->scratch || !split_roots(&s, a_root, b_root) ||
        literals_differ(&s))
        return false;
    overlap_fresh(r, s.fresh);
    most = most_names(&s);
    for (size_t n = 1; n <= most; n++) {
        bool fits = true;

        for (size_t i = 0; i < 2; i++) {
            size_t least = least_names(&s.sides[i]);

            fits = fits && (s.sides[i].route->key.rest ? n >= least : n == least);
        }
        if (fits && search_objects(&s, n, ret))
            return true;
    }
    return false;
}

void routes_overlap_release(struct routes_overlap *o)
{
    free(o->object);
    free(o->a_path);
    free(o->b_path);
    *o = (struct routes_overlap){.object = NULL};
}
