/* Templates, codecs and tables of routes: what a path is found as leads back to a path that is
 * found as the same, listings are of what exists, an overlap that is told is one, and every
 * name has one spelling. Input: lines; one with a tab is a route (path, tab, key, perhaps a tab
 * and the store), any other is a path and a key that are looked up. */
#include "common/buf.h"
#include "common/mem.h"
#include "common/path.h"
#include "runs/routes.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ROUTES_MAX 6 /* comparing them all takes the square of it */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* ---- codecs ---- */

static void check_codec(enum codec c, const char *text, size_t len)
{
    struct buf auto_buf there = BUF_INIT(PATH_NAME_MAX);
    struct buf auto_buf back = BUF_INIT(PATH_NAME_MAX);

    if (codec_encode(c, text, len, &there) == 0) {
        must(codec_decode(c, there.data, there.len, &back) == 0);
        must(back.len == len && memcmp(back.data, text, len) == 0);
    }
    buf_clear(&there);
    buf_clear(&back);
    if (codec_decode(c, text, len, &there) == 0) {
        must(c == CODEC_NONE || path_name_ok(there.data, there.len));
        must(codec_encode(c, there.data, there.len, &back) == 0);
        must(back.len == len && memcmp(back.data, text, len) == 0);
    }
}

/* ---- paths and keys ---- */

static int note_root(void *arg, unsigned store, const char *key, enum routes_as as)
{
    (void)store, (void)as;
    ++*(size_t *)arg;
    must(path_key_ok(key, PATH_KEY_MAX));
    return 0;
}

static int check_source(void *arg, const struct routes_source *s)
{
    const char *dir = arg;
    struct buf auto_buf name = BUF_INIT(PATH_NAME_MAX);

    must(path_key_ok(s->key, PATH_KEY_MAX));
    must((s->objects || s->directories) && (!s->name || !s->component));
    must(!s->name || path_name_ok(s->name, strlen(s->name)));
    must((s->depth == 0) == !*dir);
    if (!s->name && routes_source_name(s, "MFRA====", &name) == 0)
        must(path_name_ok(name.data, name.len));
    return 0;
}

static void check_found(const struct routes *r, const char *path, enum routes_as as)
{
    auto_free char *back = NULL;
    const struct route *route;
    struct routes_hit hit, again;
    int err = routes_find(r, path, as, &hit);

    must(routes_kind(r, path, as, &route) == (err < 0 ? ROUTES_NOWHERE : hit.kind));
    /* What no route can write for the directory can't be written for what is below it. */
    must(as == ROUTES_OBJECT || err == 0 || routes_writable_below(r, path) == err);
    if (err < 0) {
        must(err == -EINVAL || err == -EILSEQ || err == -ENAMETOOLONG);
        return;
    }
    must(route == hit.route && !hit.route == !hit.key);
    if (hit.key && !hit.route->scratch) {
        must(path_key_ok(hit.key, PATH_KEY_MAX));
        must(routes_path_of(r, hit.route->store, hit.key, as, &back) == 0);
        must(routes_find(r, back, as, &again) == 0 && again.key);
        must(strcmp(again.key, hit.key) == 0 && again.route->store == hit.route->store);
        routes_hit_release(&again);
    }
    routes_hit_release(&hit);
}

static void check_key(const struct routes *r, unsigned store, const char *key,
                      enum routes_as as)
{
    auto_free char *path = NULL;
    struct routes_hit hit;

    if (routes_path_of(r, store, key, as, &path) < 0)
        return;
    must(path_key_ok(path, PATH_KEY_MAX));
    must(routes_find(r, path, as, &hit) == 0 && hit.key);
    must(strcmp(hit.key, key) == 0 && hit.route->store == store);
    must(!routes_shadowed(r, hit.route, path, as));
    routes_hit_release(&hit);
}

static void check_text(const struct routes *r, const char *text)
{
    const struct route *route;
    size_t roots = 0;

    for (int c = 0; c < CODEC_N; c++)
        check_codec((enum codec)c, text, strlen(text));
    if (!path_key_safe(text, PATH_KEY_MAX))
        return;
    for (unsigned store = 0; store < 2; store++) {
        check_key(r, store, text, ROUTES_OBJECT);
        check_key(r, store, text, ROUTES_DIRECTORY);
    }
    if (!path_key_ok(text, PATH_KEY_MAX))
        return;
    check_found(r, text, ROUTES_OBJECT);
    check_found(r, text, ROUTES_DIRECTORY);
    if (routes_each_root(r, text, note_root, &roots) < 0)
        return;
    must(routes_each_source(r, text, check_source, (void *)text) == 0);
    if (routes_kind(r, text, ROUTES_DIRECTORY, &route) == ROUTES_NOWHERE)
        must(roots == 0);
    else
        must(!*text || routes_same_below(r, text, text));
}

/* ---- routes ---- */

static void check_overlap(const struct routes *r, const struct route *a, const struct route *b)
{
    static const char *const roots[] = {"t", "t/a"};
    const char *a_root = roots[a->store % 2], *b_root = roots[b->store % 2];
    struct routes_overlap o;
    struct routes_hit hit_a, hit_b;

    if (!routes_overlap(r, a, a_root, b, b_root, &o))
        return;
    must(routes_find(r, o.a_path, ROUTES_OBJECT, &hit_a) == 0 && hit_a.route == a);
    must(routes_find(r, o.b_path, ROUTES_OBJECT, &hit_b) == 0 && hit_b.route == b);
    auto_free char *place_a = path_join(a_root, hit_a.key);
    auto_free char *place_b = path_join(b_root, hit_b.key);

    must(place_a && place_b && strcmp(place_a, place_b) == 0);
    must(strcmp(o.object, hit_a.key) == 0 && strcmp(o.a_path, o.b_path) != 0);
    routes_hit_release(&hit_a);
    routes_hit_release(&hit_b);
    routes_overlap_release(&o);
}

static void check_copy(const struct template *t)
{
    struct template copy;
    struct op op;

    op_init(&op, OP_FOREVER);
    must(template_copy(&copy, t) == 0 && copy.n == t->n && copy.rest == t->rest);
    template_release(&copy);
    must(template_parse(t->text, TEMPLATE_KEY, &op, &copy) == 0 && copy.n == t->n);
    template_release(&copy);
}

static void add_route(struct routes *r, char *line)
{
    char *key = strchr(line, '\t'), *store;
    struct template path, of_key;
    struct op op;

    *key++ = '\0';
    store = strchr(key, '\t');
    if (store)
        *store++ = '\0';
    op_init(&op, OP_FOREVER);
    if (template_parse(line, TEMPLATE_PATH, &op, &path) < 0) {
        must(op.why[0]);
        return;
    }
    if (template_parse(*key ? key : line, TEMPLATE_KEY, &op, &of_key) < 0) {
        must(op.why[0]);
        template_release(&path);
        return;
    }
    check_copy(&of_key);
    if (routes_add(r, &path, &of_key, store ? *store == '1' : 0, 0, (struct text_place){0, 0},
                   &op) == 0)
        r->items[r->n - 1].scratch = store && *store == 's';
    else
        must(op.why[0]);
}

static void each_line(struct routes *r, char *text, bool routes)
{
    for (char *line = text, *end; line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end = '\0';
        if (routes && strchr(line, '\t') && r->n < ROUTES_MAX)
            add_route(r, line);
        else if (!routes && !strchr(line, '\t'))
            check_text(r, line);
        if (end)
            *end++ = '\n';
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = calloc(size + 1, 1);
    auto_free char *again = calloc(size + 1, 1);
    struct routes r = {.items = NULL};

    if (!text || !again)
        return 0;
    memcpy(text, data, size);
    memcpy(again, data, size);
    each_line(&r, text, true);
    each_line(&r, again, false);
    for (size_t i = 0; i < r.n; i++) {
        size_t k = routes_covering(&r, i);

        must(k == SIZE_MAX || k < i);
        for (k = 0; k < r.n; k++)
            check_overlap(&r, &r.items[i], &r.items[k]);
    }
    routes_release(&r);
    return 0;
}
