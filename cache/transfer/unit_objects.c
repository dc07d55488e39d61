/* The objects of a unit at the store; see unit_objects.h. */
#include "cache/transfer/unit_objects.h"

#include "cache/mirror/crash.h"
#include "common/mem.h"
#include "common/path.h"
#include "runs/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How many files go in one request. */
#define BATCH 1000

static int no_memory(struct op *op)
{
    return op_fail(op, -ENOMEM, "out of memory");
}

int unit_objects_begin(const struct unit_objects *o)
{
    o->op->deadline_ns = clock_mono_ns() + o->c->config.store_timeout_ns;
    return o->term ? lease_bind(o->lease, o->term, o->op) : 0;
}

/* ---- what there is ---- */

struct finding {
    struct op *op;
    struct unit_found *found;
};

static int add_found(void *arg, const char *name, const struct object *obj)
{
    const struct finding *l = arg;
    struct unit_found *f = l->found;

    if (array_grow(f->v, f->cap, f->n + 1))
        return no_memory(l->op);
    f->v[f->n] = (struct listed){.name = strdup(name), .obj = *obj};
    f->v[f->n].obj.attrs = (struct attrs){0};
    if (!f->v[f->n].name)
        return no_memory(l->op);
    f->n++;
    return 0;
}

void unit_found_release(struct unit_found *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->v[i].name);
    free(f->v);
}

int unit_objects_find(const struct unit_objects *o, struct unit_found *ret)
{
    struct finding l = {o->op, ret};

    *ret = (struct unit_found){0};
    int r = unit_objects_begin(o);
    if (r == 0)
        r = store_list(o->c->store, o->op, o->at.key, LIST_RECURSIVE, add_found, &l);
    return r == -ENOENT ? 0 : r;
}

const struct listed *unit_found_newest(const struct unit_found *f)
{
    const struct listed *last = NULL;

    for (size_t i = 0; i < f->n; i++)
        if (!f->v[i].obj.is_prefix && (!last || f->v[i].obj.mtime_ns >= last->obj.mtime_ns))
            last = &f->v[i];
    return last;
}

static int take_seal(void *arg, const struct note *note)
{
    struct object obj = {0};

    return add_found(arg, note->cache_id, &obj);
}

/* All seals of the unit, as names. */
static int find_seals(const struct unit_objects *o, struct unit_found *ret)
{
    struct finding l = {o->op, ret};

    *ret = (struct unit_found){0};
    int r = unit_objects_begin(o);
    return r < 0 ? r : seals_list(o->notes, o->op, take_seal, &l);
}

/* ---- which go first ---- */

static void move_first(struct unit_found *f, size_t *n, size_t i)
{
    SWAP(f->v[i], f->v[*n]);
    ++*n;
}

/* A seal that names another version is of a unit that had the name before. */
static void tail_first(struct unit_found *f, size_t *n, const struct unit_tail *tail)
{
    for (size_t i = *n; i < f->n; i++)
        if (tail->name && strcmp(f->v[i].name, tail->name) == 0 &&
            strcmp(f->v[i].obj.etag, tail->etag) == 0)
            move_first(f, n, i);
}

static void done_first(struct unit_found *f, size_t *n, const char *done)
{
    for (size_t i = *n; i < f->n; i++) {
        const char *name = f->v[i].name;
        if (!f->v[i].obj.is_prefix && !strchr(name, '/') &&
            unit_patterns_take(done, name, strlen(name)))
            move_first(f, n, i);
    }
}

/* The tails that seals name. */
static int sealed_first(const struct unit_objects *o, struct unit_found *f,
                        const struct unit_found *seals, size_t *n)
{
    int r = 0;

    for (size_t i = 0; i < seals->n && r == 0; i++) {
        struct seal_body body = {0};
        r = unit_objects_begin(o);
        if (r == 0)
            r = seal_read(o->notes, o->op, seals->v[i].name, &body);
        if (r == 0)
            tail_first(f, n, &body.tail);
        seal_body_release(&body);
        r = r == -ENOENT || r == -EBADMSG ? 0 : r;
    }
    return r;
}

/* *ret_n: so many of them are to go before the others. Where nothing names them it is what came
 * last. */
static int tails_first(const struct unit_objects *o, struct unit_found *f,
                       const struct unit_found *seals, size_t *ret_n)
{
    *ret_n = 0;
    done_first(f, ret_n, o->done);
    int r = sealed_first(o, f, seals, ret_n);
    const struct listed *last = unit_found_newest(f);
    if (*ret_n == 0 && last)
        move_first(f, ret_n, (size_t)(last - f->v));
    return r;
}

/* ---- how they go ---- */

/* Removes the files [at, end). */
static int remove_files(struct unit_objects *o, const struct unit_found *f, size_t at,
                        size_t end)
{
    auto_free const char **keys = calloc(end - at, sizeof(*keys));
    size_t n = 0;
    int r = keys ? unit_objects_begin(o) : no_memory(o->op);

    for (size_t i = at; i < end && r == 0; i++) {
        if (f->v[i].obj.is_prefix)
            continue;
        keys[n] = path_join(o->at.key, f->v[i].name);
        r = keys[n] ? 0 : no_memory(o->op);
        n += r == 0;
    }
    if (r == 0 && n)
        r = store_remove(o->c->store, o->op, keys, NULL, n, NULL);
    for (size_t i = 0; i < n; i++)
        free((char *)(uintptr_t)keys[i]);
    return r;
}

static int by_depth(const void *a, const void *b)
{
    const char *x = ((const struct listed *)a)->name, *y = ((const struct listed *)b)->name;

    return -strcmp(x, y); /* what is below comes behind */
}

/* Markers, and directories where they are real; that of the unit itself last. */
static int remove_dirs(struct unit_objects *o, struct unit_found *f)
{
    int r = 0;

    if (f->n)
        qsort(f->v, f->n, sizeof(*f->v), by_depth);
    for (size_t i = 0; i <= f->n && r == 0; i++) {
        if (i < f->n && !f->v[i].obj.is_prefix)
            continue;
        auto_free char *key = i < f->n ? path_join(o->at.key, f->v[i].name) : strdup(o->at.key);
        r = key ? unit_objects_begin(o) : no_memory(o->op);
        if (r == 0)
            r = store_rmdir(o->c->store, o->op, key);
        r = r == -ENOENT ? 0 : r;
    }
    return r;
}

static int remove_found(struct unit_objects *o, struct unit_found *f, size_t tails)
{
    int r = tails ? remove_files(o, f, 0, tails) : 0;

    o->began = o->began || (tails && !refusal_is_one(r));
    crash_point("unit-tail-removed");
    for (size_t i = tails; i < f->n && r == 0; i += BATCH)
        r = remove_files(o, f, i, i + BATCH < f->n ? i + BATCH : f->n);
    crash_point("unit-rest-removed");
    return r == 0 ? remove_dirs(o, f) : r;
}

int unit_objects_remove(struct unit_objects *o, struct unit_found *f)
{
    struct unit_found seals;
    size_t tails = 0;
    int r = find_seals(o, &seals);

    if (r == 0)
        r = tails_first(o, f, &seals, &tails);
    if (r == 0)
        r = remove_found(o, f, tails);
    bool filled = r == -ENOTEMPTY;
    r = filled ? 0 : r;
    for (size_t i = 0; i < seals.n && r == 0; i++) {
        r = unit_objects_begin(o);
        if (r == 0)
            r = seal_remove(o->notes, o->op, seals.v[i].name);
    }
    crash_point("unit-seals-removed");
    unit_found_release(&seals);
    return r == 0 && filled ? -ENOTEMPTY : r;
}
