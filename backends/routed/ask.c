/* Several questions at once. Each has an op of its own, since an op is one thread's, with the
 * deadline and the cancel flag of the caller's. The threads are the call's: those of a store
 * that hangs are nobody else's. */
#include "backends/routed/routed_impl.h"
#include "common/mem.h"
#include "common/pool.h"

#include <errno.h>
#include <string.h>

#define AT_ONCE_MAX 16

/* How long the other stores have when one has what is looked for; and when it has an object,
 * which a directory of another store hides. */
#define FOUND_NS  (100 * NS_PER_MS)
#define OBJECT_NS (1 * NS_PER_SEC)

/* ---- the list ---- */

static void ask_clear(struct ask *a)
{
    for (size_t i = 0; i < a->n; i++) {
        free(a->item[i].name);
        object_release(&a->item[i].obj);
    }
    free(take_ptr(a->item));
    a->n = a->cap = 0;
}

void asks_release(struct asks *a)
{
    for (size_t i = 0; i < a->n; i++) {
        ask_clear(&a->v[i]);
        object_release(&a->v[i].obj);
        free(a->v[i].key);
    }
    free(a->v);
    *a = (struct asks){0};
}

int asks_add(struct asks *a, enum ask_kind kind, struct leaf *leaf, const char *key,
             size_t *ret)
{
    for (size_t i = 0; i < a->n; i++) {
        if (a->v[i].kind == kind && a->v[i].leaf == leaf && strcmp(a->v[i].key, key) == 0) {
            *ret = i;
            return 0;
        }
    }
    auto_free char *copy = strdup(key);
    if (!copy || array_grow(a->v, a->cap, a->n + 1) < 0)
        return -ENOMEM;
    *ret = a->n++;
    a->v[*ret] =
        (struct ask){.kind = kind, .leaf = leaf, .key = take_ptr(copy), .max = SIZE_MAX};
    return 0;
}

/* ---- one question ---- */

struct collecting {
    struct ask *ask;
    int64_t patience_ns;
};

static int collect(void *arg, const char *name, const struct object *obj)
{
    struct collecting *c = arg;
    struct ask *a = c->ask;

    if (a->n == a->max) {
        a->cut = true;
        return 1;
    }
    /* The requester sees the names only later, and would have been patient at each of them. */
    if (a->op.deadline_ns != OP_FOREVER)
        a->op.deadline_ns = clock_mono_ns() + c->patience_ns;
    if (array_grow(a->item, a->cap, a->n + 1) < 0)
        return -ENOMEM;
    struct listed *item = &a->item[a->n];
    *item = (struct listed){strdup(name), *obj};
    if (!item->name || attrs_copy(&item->obj.attrs, &obj->attrs) < 0) {
        free(item->name);
        return -ENOMEM;
    }
    a->n++;
    return 0;
}

static int ask_list(struct ask *a)
{
    struct collecting c = {a, op_left_ns(&a->op)};
    int r = store_list(a->leaf->store, &a->op, a->key, a->flags, collect, &c);

    if (r != 0)
        ask_clear(a);
    return r == 1 ? 0 : r;
}

int stop_at_first(void *arg, const char *name, const struct object *obj)
{
    (void)arg, (void)name, (void)obj;
    return 1;
}

/* An object wins over a directory in a stat: whether there is one, too, its names tell. */
static int ask_directory(struct ask *a)
{
    struct store *s = a->leaf->store;

    int r = store_stat(s, &a->op, a->key, &a->obj);
    if (r < 0 || a->obj.is_prefix)
        return r;
    object_release(&a->obj);
    a->obj = (struct object){.is_prefix = true};
    if (store_can(s, a->key, STORE_DIRS))
        return -ENOENT;
    r = store_list(s, &a->op, a->key, LIST_SELF, stop_at_first, NULL);
    return r == 1 ? 0 : r < 0 ? r : -ENOENT;
}

static int ask_object(struct ask *a)
{
    int r = store_stat(a->leaf->store, &a->op, a->key, &a->obj);

    if (r < 0 || !a->obj.is_prefix)
        return r;
    object_release(&a->obj);
    return -ENOENT;
}

static int ask_once(struct ask *a)
{
    switch (a->kind) {
    case ASK_OBJECT:
        return ask_object(a);
    case ASK_DIRECTORY:
        return ask_directory(a);
    case ASK_EITHER:
        return store_stat(a->leaf->store, &a->op, a->key, &a->obj);
    case ASK_OWN:
        return store_stat_dir(a->leaf->store, &a->op, a->key, &a->obj);
    case ASK_LIST:
        break;
    }
    return ask_list(a);
}

/* ---- all of them ---- */

struct crowd_each {
    struct each each;
    struct crowd *crowd;
};

static int crowd_call(struct each *each, size_t i, struct op *op)
{
    struct crowd *crowd = container_of(each, struct crowd_each, each)->crowd;

    crowd->run(crowd, i, op);
    return 0;
}

static void crowd_in_turn(struct crowd *crowd, const struct op *op)
{
    for (size_t i = 0; i < crowd->n; i++) {
        struct op own = *op;
        own.notes = NULL;
        crowd->run(crowd, i, &own);
    }
}

void crowd_run(struct crowd *crowd, struct op *op)
{
    unsigned threads = crowd->n < AT_ONCE_MAX ? (unsigned)crowd->n : AT_ONCE_MAX;
    struct crowd_each e = {
        {.call = crowd_call, .n = crowd->n, .at_once = threads, .patience_ns = op_left_ns(op)},
        crowd};
    struct pool *pool = crowd->n > 1 ? pool_new("routes", threads) : NULL;

    if (pool)
        (void)pool_each(pool, &e.each, op); /* no call fails */
    else
        crowd_in_turn(crowd, op);
    pool_free(pool);
}

struct asking {
    struct crowd crowd;
    struct ask **v; /* n of them */
    enum asks_until until;
    atomic_bool failed;
    atomic_llong enough_ns; /* as op.enough_ns */
};

static void found(struct asking *g, const struct ask *a)
{
    bool hidden = a->kind == ASK_EITHER && !a->obj.is_prefix;
    long long ns = clock_mono_ns() + (hidden ? OBJECT_NS : FOUND_NS);
    long long set = atomic_load(&g->enough_ns);

    while ((!set || ns < set) && !atomic_compare_exchange_weak(&g->enough_ns, &set, ns))
        ;
}

static void ask_run(struct crowd *crowd, size_t i, struct op *op)
{
    struct asking *g = container_of(crowd, struct asking, crowd);
    struct ask *a = g->v[i];
    struct op_notes notes = {0};

    if (g->until == ASKS_FAILED && atomic_load(&g->failed))
        return;
    a->op = *op;
    a->op.notes = &notes;
    a->op.enough_ns = &g->enough_ns;
    a->r = ask_once(a);
    a->op.notes = NULL;
    a->op.enough_ns = NULL;
    if (g->until == ASKS_FOUND && a->r == 0)
        found(g, a);
    a->hidden = notes.hidden_names;
    a->done = true;
    if (a->r < 0 && a->r != -ENOENT)
        atomic_store(&g->failed, true);
}

static int first_failure(const struct asks *a, struct op *op)
{
    for (size_t i = 0; i < a->n; i++) {
        const struct ask *k = &a->v[i];
        if (!k->done || k->r >= 0 || k->r == -ENOENT)
            continue;
        op->retry_after_ns = k->op.retry_after_ns;
        return op_fail(op, k->r, "%s", k->op.why);
    }
    return 0;
}

int asks_run(struct asks *a, struct op *op, enum asks_until until)
{
    auto_free struct ask **v = calloc(a->n + 1, sizeof(struct ask *));
    struct asking g = {.crowd.run = ask_run, .v = v, .until = until};

    if (!v)
        return op_fail(op, -ENOMEM, "no memory to ask the stores");
    for (size_t i = 0; i < a->n; i++)
        if (!a->v[i].done && !a->v[i].later)
            v[g.crowd.n++] = &a->v[i];
    if (g.crowd.n)
        crowd_run(&g.crowd, op);
    return first_failure(a, op);
}
