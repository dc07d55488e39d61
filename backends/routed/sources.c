/* What of which leaf is shown in a directory, and by which name. */
#include "backends/routed/routed_impl.h"
#include "common/buf.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>

void sources_release(struct sources *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free((char *)s->v[i].s.key);
        free((char *)s->v[i].s.name);
    }
    free(s->v);
    *s = (struct sources){0};
}

struct finding {
    struct routed *r;
    struct sources *sources;
};

static int note_source(void *arg, const struct routes_source *source)
{
    struct finding *f = arg;
    struct sources *list = f->sources;

    if (key_is_reserved(source->key))
        return 0;
    if (array_grow(list->v, list->cap, list->n + 1) < 0)
        return -ENOMEM;
    struct source_of *s = &list->v[list->n++];
    *s = (struct source_of){.s = *source, .ask = SIZE_MAX};
    if (!source->route->scratch) /* else it is a name that exists always */
        s->leaf = &f->r->leaves[source->route->store];
    s->s.key = strdup(source->key);
    s->s.name = source->name ? strdup(source->name) : NULL;
    s->stored = source->name && s->s.key ? path_basename(s->s.key) : NULL;
    return !s->s.key || (source->name && !s->s.name) ? -ENOMEM : 0;
}

int sources_find(struct routed *r, const char *dir, struct sources *ret)
{
    struct finding f = {r, ret};

    return routes_each_source(r->routes, dir, note_source, &f);
}

/* 1, 0 or -ENOMEM. */
static int shown_name(const struct source_of *s, const char *stored, char **ret)
{
    auto_buf struct buf shown = BUF_INIT(PATH_KEY_MAX);
    int err = 0;

    if (s->s.name) {
        if (stored && strcmp(stored, s->stored) != 0)
            return 0;
        err = buf_adds(&shown, s->s.name);
    } else if (!s->s.key[0] && key_is_reserved(stored)) {
        return 0;
    } else {
        err = routes_source_name(&s->s, stored, &shown);
    }
    if (err < 0)
        return err == -ENOMEM ? err : 0;
    *ret = buf_take(&shown);
    return *ret ? 1 : -ENOMEM;
}

/* The key that a source tells of is that of the child itself, and not of the way there. */
static bool tells_own(const struct source_of *s, enum routes_as as)
{
    const struct template *key = &s->s.route->key;

    if (is_mapped_by(s->s.route, s->s.depth))
        return true;
    if (as == ROUTES_OBJECT)
        return s->s.objects;
    return is_mapped_by(s->s.route, s->s.depth + 1) &&
           (s->s.name || s->s.component == &key->components[key->n - 1]);
}

int source_takes(struct routed *r, const struct source_of *s, const char *dir,
                 const char *stored, bool is_prefix, struct child *ret)
{
    struct child child = {.as = s->s.as};
    auto_free char *name = NULL;

    if (is_prefix ? !s->s.directories : !s->s.objects)
        return 0;
    if (is_mapped_by(s->s.route, s->s.depth))
        child.as = is_prefix ? ROUTES_DIRECTORY : ROUTES_OBJECT;
    int err = shown_name(s, stored, &name);
    if (err <= 0)
        return err;
    if (!path_name_shown(dir, name, strlen(name)))
        return 0;
    auto_free char *path = path_join(dir, name);
    if (!path)
        return -ENOMEM;
    if (routes_shadowed(r->routes, s->s.route, path, child.as))
        return 0;
    child.own = !s->s.always && tells_own(s, child.as);
    child.doubted = child.as == ROUTES_OBJECT && is_prefix;
    child.name = take_ptr(name);
    *ret = child;
    return 1;
}

struct object implied_object(const struct object *seen)
{
    return (struct object){.is_prefix = true,
                           .attrs_known = true,
                           .mtime_ns = seen ? seen->mtime_ns : 0,
                           .told_ns = seen ? seen->told_ns : 0};
}

void tell_hidden(struct routed *r, struct op *op, uint64_t leaves, uint64_t ours)
{
    atomic_fetch_add_explicit(&r->base.hidden_total, ours, memory_order_relaxed);
    if (op->notes)
        op->notes->hidden_names += leaves + ours;
}
