/* One template against one path or key. */
#include "runs/match.h"

#include "common/buf.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>

bool match_begin(const struct template *t, const char *path, struct match *ret)
{
    ret->n = 0;
    ret->below = path;
    while (ret->n < t->n && *ret->below) {
        size_t len = (size_t)(strchrnul(ret->below, '/') - ret->below), at = 0, n = 0;

        if (!component_takes(&t->components[ret->n], ret->below, len, &at, &n))
            return false;
        ret->captured[ret->n].at = ret->below + at;
        ret->captured[ret->n].len = n;
        ret->n++;
        ret->below += len;
        if (*ret->below)
            ret->below++;
    }
    return true;
}

bool match_takes(const struct template *t, const struct match *m, enum routes_as as)
{
    if (m->n < t->n)
        return false;
    if (as == ROUTES_DIRECTORY)
        return t->rest;
    return t->rest == (*m->below != '\0');
}

bool template_takes(const struct template *t, const char *path, enum routes_as as)
{
    struct match m;

    return match_begin(t, path, &m) && match_takes(t, &m, as);
}

/* ---- keys ---- */

static int key_add(struct key_text *key, const char *text, size_t len)
{
    if (len >= sizeof(key->at) - key->len)
        return -ENAMETOOLONG;
    memcpy(key->at + key->len, text, len);
    key->len += len;
    key->at[key->len] = '\0';
    return 0;
}

/* A name of the key; the empty one is none. */
static int key_add_name(struct key_text *key, const char *name, size_t len)
{
    int r = key->len && len ? key_add(key, "/", 1) : 0;

    return r < 0 ? r : key_add(key, name, len);
}

static int add_component(const struct route *route, const struct match *m,
                         const struct component *c, struct key_text *key)
{
    char stored[PATH_NAME_MAX], name[3 * PATH_NAME_MAX];
    size_t before = strlen(c->before), after = strlen(c->after), at, n;
    int r;

    if (!c->capture)
        return key_add_name(key, c->before, before);
    at = match_capture(&route->path, c->capture);
    r = codec_write(c->codec, m->captured[at].at, m->captured[at].len, stored, &n);
    if (r < 0)
        return r;
    memcpy(name, c->before, before);
    memcpy(name + before, stored, n);
    memcpy(name + before + n, c->after, after);
    n += before + after;
    if (!path_name_ok(name, n))
        return n > PATH_NAME_MAX ? -ENAMETOOLONG : -EINVAL;
    return key_add_name(key, name, n);
}

int match_key(const struct route *route, const struct match *m, size_t n, const char *below,
              struct key_text *ret)
{
    int r = 0;

    ret->len = 0;
    ret->at[0] = '\0';
    for (size_t i = 0; r == 0 && i < n; i++)
        r = add_component(route, m, &route->key.components[i], ret);
    return r < 0 ? r : key_add_name(ret, below, strlen(below));
}

size_t match_bound(const struct route *route, const struct match *m)
{
    size_t n = 0;

    for (size_t i = 0; i < route->key.n; i++) {
        const char *capture = route->key.components[i].capture;

        if (capture && match_capture(&route->path, capture) < m->n)
            n = i + 1;
    }
    return n;
}

size_t match_capture(const struct template *t, const char *capture)
{
    size_t i = 0;

    while (i < t->n &&
           (!t->components[i].capture || strcmp(t->components[i].capture, capture) != 0))
        i++;
    return i;
}

/* ---- paths ---- */

int match_name(const struct route *route, size_t at, enum codec codec, const char *stored,
               size_t len, struct buf *shown)
{
    const struct component *c = &route->path.components[at];
    struct buf auto_buf name = BUF_INIT(3 * PATH_NAME_MAX);
    int r = buf_adds(&name, c->before);

    if (r == 0)
        r = codec_decode(codec, stored, len, &name);
    if (r == 0)
        r = buf_adds(&name, c->after);
    if (r < 0)
        return r;
    return path_name_ok(name.data, name.len) ? buf_add(shown, name.data, name.len) : -ENOENT;
}

static int add_name(const struct route *route, const struct match *m, size_t at,
                    struct buf *path)
{
    const struct component *c = &route->path.components[at];
    int r = path->len ? buf_addc(path, '/') : 0;
    size_t k;

    if (r < 0)
        return r;
    if (!c->capture)
        return buf_adds(path, c->before);
    k = match_capture(&route->key, c->capture);
    return match_name(route, at, route->key.components[k].codec, m->captured[k].at,
                      m->captured[k].len, path);
}

int match_path(const struct route *route, const char *key, enum routes_as as, struct buf *ret)
{
    struct match m;
    int r = 0;

    if (!path_key_ok(key, PATH_KEY_MAX) || !match_begin(&route->key, key, &m) ||
        !match_takes(&route->key, &m, as))
        return -ENOENT;
    for (size_t i = 0; r == 0 && i < route->path.n; i++)
        r = add_name(route, &m, i, ret);
    if (r == 0 && *m.below && ret->len)
        r = buf_addc(ret, '/');
    if (r == 0)
        r = buf_adds(ret, m.below);
    if (r < 0)
        return r == -EFBIG ? -ENOENT : r;
    return ret->len < PATH_KEY_MAX ? 0 : -ENOENT;
}

const struct route *routes_owner(const struct routes *r, const char *path, enum routes_as as)
{
    for (size_t i = 0; i < r->n; i++)
        if (template_takes(&r->items[i].path, path, as))
            return &r->items[i];
    return NULL;
}
