/* The names of a directory, from all leaves that have a part in it.
 *
 * What the leaves say is collected, and visited only when nothing is left to be asked: a visit
 * must not hold a connection that another question waits for. One listing, that of the
 * directory's own key, may be too long for that: it is asked beside the others as far as it is
 * short, else again behind them, and visited as it comes. Where it is the only question it
 * streams at once, as if there were no routes. What is kept has a limit, beyond which the
 * listing fails: a directory of one store has none here. */
#include "backends/routed/routed_impl.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Names of a listing that are kept: four pages of a server. */
#define KEPT_NAMES 4096

/* A name of the directory; one of a directory and one of an object at most. */
struct shown {
    char *name; /* heap */
    struct object obj;
    size_t order;   /* in which it was found */
    size_t ask;     /* by which question; SIZE_MAX: by none */
    size_t doubt;   /* the question whether it is there; SIZE_MAX: it is */
    bool own;       /* the object is that of the path itself, not of the way there */
    bool elsewhere; /* other questions found such a directory, too */
    bool told;      /* visited, or dropped */
};

struct uniting {
    struct routed *r;
    struct op *op;
    const char *dir;
    struct sources sources;
    struct asks asks;
    size_t stream; /* the question that may be visited as it comes; SIZE_MAX: none */
    struct shown *v;
    size_t n, cap;
    uint64_t hidden, hidden_by_leaves;
    store_visit visit;
    void *arg;
};

static void shown_release(struct shown *s)
{
    free(s->name);
    object_release(&s->obj);
}

static void uniting_release(struct uniting *u)
{
    for (size_t i = 0; i < u->n; i++)
        shown_release(&u->v[i]);
    free(u->v);
    sources_release(&u->sources);
    asks_release(&u->asks);
}

/* ---- which questions ---- */

/* The directory itself is listed, and not the one on the way to it. */
static bool is_own(const struct source_of *s)
{
    return !s->s.name && is_mapped_by(s->s.route, s->s.depth);
}

static int ask_listings(struct uniting *u, unsigned flags)
{
    int err = 0;

    for (size_t i = 0; i < u->sources.n && !err; i++) {
        struct source_of *s = &u->sources.v[i];
        if (s->s.name)
            continue;
        err = asks_add(&u->asks, ASK_LIST, s->leaf, s->s.key, &s->ask);
        if (!err && is_own(s)) {
            u->asks.v[s->ask].flags = flags & LIST_SELF;
            u->stream = s->ask;
        }
    }
    return err;
}

/* The question that lists what the key is in. */
static size_t find_listing(const struct uniting *u, const struct source_of *s)
{
    size_t len = path_parent_len(s->s.key);

    for (size_t i = 0; i < u->asks.n; i++) {
        const struct ask *a = &u->asks.v[i];
        if (a->kind == ASK_LIST && a->leaf == s->leaf && strlen(a->key) == len &&
            memcmp(a->key, s->s.key, len) == 0)
            return i;
    }
    return SIZE_MAX;
}

static int ask_names(struct uniting *u)
{
    int err = 0;

    for (size_t i = 0; i < u->sources.n && !err; i++) {
        struct source_of *s = &u->sources.v[i];
        if (!s->s.name || s->s.always)
            continue;
        s->ask = find_listing(u, s);
        if (s->ask == SIZE_MAX)
            err = asks_add(&u->asks, s->s.objects ? ASK_OBJECT : ASK_DIRECTORY, s->leaf,
                           s->s.key, &s->ask);
    }
    return err;
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

/* Whether a stored name is shown as it is. */
static bool keeps_names(const struct source_of *s)
{
    const struct component *key = s->s.component, *path;

    if (s->s.name)
        return strcmp(s->s.name, s->stored) == 0;
    if (!key)
        return true;
    path = &s->s.route->path.components[s->s.depth];
    return key->codec == CODEC_NONE && same_text(key->before, path->before) &&
           same_text(key->after, path->after);
}

/* Its names are objects here, of each of which its own key has to be asked for. */
static bool doubts(const struct source_of *s)
{
    return !s->s.name && s->s.directories && s->s.as == ROUTES_OBJECT &&
           !is_mapped_by(s->s.route, s->s.depth);
}

/* Where several sources give one stored name different ones, only all names together tell which
 * are shown. */
static bool can_stream(const struct uniting *u)
{
    size_t users = 0;
    bool keep = true;

    for (size_t i = 0; i < u->sources.n; i++) {
        if (u->sources.v[i].ask != u->stream)
            continue;
        if (doubts(&u->sources.v[i]))
            return false;
        users++;
        keep = keep && keeps_names(&u->sources.v[i]);
    }
    return users == 1 || keep;
}

static int questions(struct uniting *u, unsigned flags)
{
    u->stream = SIZE_MAX;
    int err = ask_listings(u, flags);
    if (!err && u->stream == SIZE_MAX && u->asks.n == 1)
        u->stream = 0;
    if (!err)
        err = ask_names(u);
    if (u->stream == SIZE_MAX)
        return err;
    if (!can_stream(u)) {
        u->stream = SIZE_MAX;
        return err;
    }
    u->asks.v[u->stream].later = u->asks.n == 1;
    u->asks.v[u->stream].max = KEPT_NAMES;
    return err;
}

/* ---- what was found ---- */

/* The object is copied; the name is taken over. 0 or -ENOMEM. */
static int add_shown(struct uniting *u, struct child *child, const struct object *obj,
                     size_t ask, size_t doubt)
{
    struct object copy = child->own                      ? *obj
                         : child->as == ROUTES_DIRECTORY ? implied_object(obj)
                                                         : (struct object){0};
    auto_free char *name = take_ptr(child->name);

    if (asks_keep(&u->asks.kept, sizeof(*u->v) + named_bytes(name, obj)) < 0)
        return -EFBIG;
    if (child->own && attrs_copy(&copy.attrs, &obj->attrs) < 0)
        return -ENOMEM;
    if (array_grow(u->v, u->cap, u->n + 1) < 0) {
        object_release(&copy);
        return -ENOMEM;
    }
    u->v[u->n] = (struct shown){.name = take_ptr(name),
                                .obj = copy,
                                .order = u->n,
                                .ask = ask,
                                .doubt = doubt,
                                .own = child->own};
    u->n++;
    return 0;
}

/* Asks for the object behind a name that a directory of the store stands for. */
static int ask_doubted(struct uniting *u, const char *name, size_t *ret)
{
    auto_free char *path = path_join(u->dir, name);
    auto_target struct target t = {0};

    if (!path)
        return -ENOMEM;
    int err = target_find(u->r, u->op, path, ROUTES_OBJECT, &t);
    if (err < 0 || t.kind != ROUTES_MAPPED)
        return err;
    err = asks_add(&u->asks, ASK_OBJECT, t.leaf, t.key, ret);
    return err < 0 ? err : 1;
}

static int take_child(struct uniting *u, const struct source_of *s, const char *stored,
                      const struct object *obj)
{
    struct child child = {0};
    size_t doubt = SIZE_MAX;

    int err = source_takes(u->r, s, u->dir, stored, obj->is_prefix, &child);
    if (err > 0 && child.doubted)
        err = ask_doubted(u, child.name, &doubt);
    int added = err > 0 ? add_shown(u, &child, obj, s->ask, doubt) : 0;
    err = added < 0 ? added : err;
    free(child.name);
    return err;
}

/* One name of an answer, to every source that reads it. 1 when one of them shows it. */
static int take_name(struct uniting *u, size_t ask, const char *stored,
                     const struct object *obj)
{
    int taken = 0;

    for (size_t i = 0; i < u->sources.n; i++) {
        if (u->sources.v[i].ask != ask)
            continue;
        int err = take_child(u, &u->sources.v[i], stored, obj);
        if (err < 0)
            return err;
        taken |= err;
    }
    return taken;
}

static int take_listing(struct uniting *u, size_t ask)
{
    /* By index: doubts move the list of questions. */
    for (size_t i = 0; i < u->asks.v[ask].n; i++) {
        const struct listed *item = &u->asks.v[ask].item[i];
        if (!item->name[0])
            continue;
        int err = take_name(u, ask, item->name, &item->obj);
        if (err < 0)
            return err;
        u->hidden += err == 0;
    }
    ask_keep_self(&u->asks.v[ask]);
    return 0;
}

/* Names that need no answer. */
static int take_always(struct uniting *u)
{
    static const struct object directory = {.is_prefix = true}, object;

    for (size_t i = 0; i < u->sources.n; i++) {
        const struct source_of *s = &u->sources.v[i];
        if (!s->s.name || !s->s.always)
            continue;
        int err = take_child(u, s, s->stored, s->s.directories ? &directory : &object);
        if (err < 0)
            return err;
    }
    return 0;
}

static int take_answers(struct uniting *u)
{
    size_t n = u->asks.n; /* doubts come behind */
    int err = take_always(u);

    for (size_t i = 0; i < n && err >= 0; i++) {
        const struct ask *a = &u->asks.v[i];
        u->hidden_by_leaves += a->done ? a->hidden : 0;
        if (!a->done || a->r < 0 || a->cut)
            continue;
        if (a->kind == ASK_LIST)
            err = take_listing(u, i);
        else
            err = take_name(u, i, path_basename(a->key), &a->obj);
    }
    return err < 0 ? err : 0;
}

/* What is not there goes. */
static int settle_doubts(struct uniting *u)
{
    size_t kept = 0;
    int err = asks_run(&u->asks, u->op, ASKS_FAILED);

    for (size_t i = 0; i < u->n; i++) {
        struct shown *s = &u->v[i];
        struct ask *a = s->doubt == SIZE_MAX ? NULL : &u->asks.v[s->doubt];
        if (a && (!a->done || a->r < 0)) {
            shown_release(s);
            continue;
        }
        if (a) {
            s->obj = a->obj;
            a->obj = (struct object){0};
        }
        u->v[kept++] = *s;
    }
    u->n = kept;
    return err;
}

/* ---- each name once ---- */

static int by_name(const void *a, const void *b)
{
    const struct shown *l = a, *r = b;
    int order = strcmp(l->name, r->name);

    if (order)
        return order;
    if (l->obj.is_prefix != r->obj.is_prefix)
        return l->obj.is_prefix ? -1 : 1;
    if (l->own != r->own)
        return l->own ? -1 : 1;
    return l->order < r->order ? -1 : l->order > r->order;
}

/* `s` is kept, the other goes. */
static void merge(struct shown *s, struct shown *other)
{
    s->elsewhere = s->elsewhere || other->elsewhere || s->ask != other->ask;
    shown_release(other);
}

/* An object beside a directory of its name is shown, too, only as one store has both. */
static bool is_beside(const struct shown *dir, const struct shown *obj)
{
    return dir->obj.is_prefix && !obj->obj.is_prefix &&
           (dir->elsewhere || dir->ask != obj->ask);
}

static void unite(struct uniting *u)
{
    size_t kept = 0;

    if (u->n)
        qsort(u->v, u->n, sizeof(*u->v), by_name);
    for (size_t i = 0; i < u->n; i++) {
        struct shown *s = &u->v[i], *last = kept ? &u->v[kept - 1] : NULL;
        bool same = last && strcmp(last->name, s->name) == 0;
        if (same && last->obj.is_prefix == s->obj.is_prefix) {
            u->hidden += !s->obj.is_prefix && s->ask != last->ask;
            merge(last, s);
            continue;
        }
        if (same && is_beside(last, s)) {
            u->hidden++;
            shown_release(s);
            continue;
        }
        u->v[kept++] = *s;
    }
    u->n = kept;
}

static int tell_all(struct uniting *u)
{
    int err = 0;

    for (size_t i = 0; i < u->n && !err; i++)
        if (!u->v[i].told)
            err = u->visit(u->arg, u->v[i].name, &u->v[i].obj);
    return err;
}

/* The directory's own object, which a listing told of. */
static int tell_self(struct uniting *u)
{
    for (size_t i = 0; i < u->asks.n; i++) {
        const struct ask *a = &u->asks.v[i];
        for (size_t j = 0; j < a->n; j++)
            if (!a->item[j].name[0])
                return u->visit(u->arg, "", &a->item[j].obj);
    }
    return 0;
}

/* ---- what did not fit ---- */

static int too_many(struct uniting *u, int err)
{
    return atomic_load(&u->asks.kept.over)
               ? op_fail(u->op, -EFBIG,
                         "list %.200s: the names that stores have there take more than %" PRIu64
                         " MiB: too many for one directory of several stores",
                         u->dir, u->r->names_max >> 20)
               : err;
}

static int no_memory(struct uniting *u, int err)
{
    return err == -ENOMEM ? op_fail(u->op, err, "list %.200s: no memory for its names", u->dir)
                          : too_many(u, err);
}

/* ---- the listing that is visited as it comes ---- */

static struct shown *find_shown(struct uniting *u, size_t n, const char *name, bool is_prefix)
{
    const struct shown wanted = {.name = (char *)name, .obj.is_prefix = is_prefix};

    for (size_t from = 0, to = n; from < to;) {
        size_t middle = from + (to - from) / 2;
        struct shown *s = &u->v[middle];
        int order = strcmp(wanted.name, s->name);
        if (!order && s->obj.is_prefix == is_prefix)
            return s;
        if (order < 0 || (!order && is_prefix))
            to = middle;
        else
            from = middle + 1;
    }
    return NULL;
}

/* What was just found at the end of the list, beside the first n that are united. */
static int tell_one(struct uniting *u, size_t n)
{
    struct shown *s = &u->v[n];
    struct shown *dir = find_shown(u, n, s->name, true);
    struct shown *obj = find_shown(u, n, s->name, false);

    if (!s->obj.is_prefix && (dir || obj)) {
        u->hidden++;
        return 0;
    }
    if (obj && !obj->told) {
        obj->told = true;
        u->hidden++;
    }
    if (dir && !s->own)
        return 0; /* told behind the listing */
    if (dir)
        dir->told = true;
    return u->visit(u->arg, s->name, &s->obj);
}

static int visit_streamed(void *arg, const char *name, const struct object *obj)
{
    struct uniting *u = arg;
    uint64_t bytes = atomic_load(&u->asks.kept.bytes);
    size_t n = u->n;

    if (!name[0])
        return u->visit(u->arg, name, obj);
    int err = take_name(u, u->stream, name, obj);
    u->hidden += err == 0;
    if (u->n - n > 1) /* one name, since the sources keep it */
        qsort(u->v + n, u->n - n, sizeof(*u->v), by_name);
    if (err > 0)
        err = tell_one(u, n);
    while (u->n > n)
        shown_release(&u->v[--u->n]);
    atomic_store(&u->asks.kept.bytes, bytes); /* nothing is asked beside it */
    return err;
}

static int stream(struct uniting *u)
{
    struct ask *a = &u->asks.v[u->stream];

    /* It is the caller's op, whose deadline a visit may move. */
    a->r = store_list(a->leaf->store, u->op, a->key, a->flags, visit_streamed, u);
    return a->r == -ENOENT ? 0 : too_many(u, a->r);
}

/* ---- all of it ---- */

static bool nothing_is_there(const struct uniting *u)
{
    for (size_t i = 0; i < u->asks.n; i++)
        if (u->asks.v[i].r != -ENOENT)
            return false;
    return u->n == 0;
}

static int list_union(struct uniting *u, unsigned flags)
{
    int err = sources_find(u->r, u->dir, &u->sources);

    if (!err)
        err = questions(u, flags);
    if (err < 0)
        return no_memory(u, err);
    err = too_many(u, asks_run(&u->asks, u->op, ASKS_FAILED));
    if (!err)
        err = no_memory(u, take_answers(u));
    if (!err)
        err = settle_doubts(u);
    if (err < 0)
        return err;
    unite(u);
    bool streams =
        u->stream != SIZE_MAX && (u->asks.v[u->stream].later || u->asks.v[u->stream].cut);
    err = streams ? stream(u) : tell_self(u);
    if (!err)
        err = tell_all(u);
    return !err && nothing_is_there(u) ? -ENOENT : err;
}

int routed_list(struct store *s, struct op *op, const char *prefix, unsigned flags,
                const char *after, store_visit visit, void *arg)
{
    struct routed *r = routed_of(s);
    struct uniting u = {.r = r, .op = op, .dir = prefix, .visit = visit, .arg = arg};
    auto_target struct target own = {0};
    struct target t = {.kind = ROUTES_NOWHERE};

    u.asks.kept.max = r->names_max;
    int err = key_is_reserved(prefix) ? target_find(r, op, prefix, ROUTES_OBJECT, &own) : 0;
    if (!err && own.leaf) /* a directory in the state of that leaf */
        return store_list_after(own.leaf->store, op, own.key, flags, after, visit, arg);
    if (!err)
        err = target_find(r, op, prefix, ROUTES_DIRECTORY, &t);
    if (err < 0)
        return err;
    enum routes_kind kind = t.kind;
    target_done(&t);
    if (kind == ROUTES_NOWHERE)
        return no_route(op, -ENOENT, "list", prefix);
    if (flags & LIST_RECURSIVE)
        return routed_list_tree(r, op, prefix, visit, arg);
    err = list_union(&u, flags);
    if (err == -ENOENT && kind == ROUTES_FIXED)
        err = 0;
    tell_hidden(r, op, u.hidden_by_leaves, u.hidden);
    uniting_release(&u);
    return err;
}
