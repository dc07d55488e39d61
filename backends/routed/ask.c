/* Several questions at once. Each has an op of its own, since an op is one thread's, with the
 * deadline and the cancel flag of the caller's. The threads are the call's, which helps them:
 * those of a store that hangs are nobody else's. However many calls there are, the threads that
 * help with one store have a limit, beyond which a call asks it by itself. */
#include "backends/routed/routed_impl.h"
#include "common/mem.h"
#include "common/pool.h"

#include <errno.h>
#include <string.h>

#define AT_ONCE_MAX 16 /* of one call */

/* How long the other stores have when one has what is looked for; and when it has an object,
 * which a directory of another store hides. */
#define FOUND_NS  (100 * NS_PER_MS)
#define OBJECT_NS (1 * NS_PER_SEC)

/* ---- the list ---- */

int asks_keep(struct kept *k, uint64_t bytes)
{
    uint64_t all = atomic_fetch_add(&k->bytes, bytes) + bytes;

    if (!k->max || all <= k->max)
        return 0;
    atomic_store(&k->over, true);
    return -EFBIG;
}

uint64_t named_bytes(const char *name, const struct object *obj)
{
    const struct attrs *a = &obj->attrs;

    return strlen(name) + 1 + (a->xattrs ? strlen(a->xattrs) + 1 : 0) +
           (a->target ? strlen(a->target) + 1 : 0);
}

static uint64_t listed_bytes(const struct listed *item)
{
    return sizeof(*item) + named_bytes(item->name, &item->obj);
}

static void listed_release(struct ask *a, struct listed *item)
{
    atomic_fetch_sub(&a->kept->bytes, listed_bytes(item));
    free(item->name);
    object_release(&item->obj);
}

static void ask_clear(struct ask *a)
{
    for (size_t i = 0; i < a->n; i++)
        listed_release(a, &a->item[i]);
    free(take_ptr(a->item));
    a->n = a->cap = 0;
}

void ask_keep_self(struct ask *a)
{
    size_t kept = 0;

    for (size_t i = 0; i < a->n; i++) {
        if (a->item[i].name[0])
            listed_release(a, &a->item[i]);
        else
            a->item[kept++] = a->item[i];
    }
    a->n = kept;
    struct listed *less = kept ? realloc(a->item, kept * sizeof(*less)) : NULL;
    if (!kept)
        free(a->item);
    else if (!less)
        return;
    a->item = less;
    a->cap = kept;
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
    if (asks_keep(&a->kept, sizeof(struct ask) + strlen(key) + 1) < 0)
        return -EFBIG;
    auto_free char *copy = strdup(key);
    if (!copy || array_grow(a->v, a->cap, a->n + 1) < 0)
        return -ENOMEM;
    *ret = a->n++;
    a->v[*ret] = (struct ask){
        .kind = kind, .leaf = leaf, .key = take_ptr(copy), .kept = &a->kept, .max = SIZE_MAX};
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
    return asks_keep(a->kept, listed_bytes(item)) < 0
               ? op_fail(&a->op, -EFBIG, "list %.200s: too many names", a->key)
               : 0;
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

static void crowd_in_turn(struct crowd *crowd, const struct op *op)
{
    for (size_t i = 0; i < crowd->n; i++) {
        struct op own = *op;
        own.notes = NULL;
        crowd->run(crowd, i, &own);
    }
}

struct crowd_calls {
    struct crowd *crowd;
    atomic_bool *begun;   /* of each call */
    atomic_size_t behind; /* all calls before it have begun */
    int64_t patience_ns;
    const atomic_llong *lease_end_ns;
    const atomic_bool *cancelled;
};

struct helper {
    struct task task;
    struct crowd_calls *calls;
};

static bool helper_enters(struct leaf *leaf)
{
    if (atomic_fetch_add(&leaf->helpers, 1) < ROUTED_HELPERS_MAX)
        return true;
    atomic_fetch_sub(&leaf->helpers, 1);
    return false;
}

static void helper_leaves(struct leaf *leaf)
{
    atomic_fetch_sub(&leaf->helpers, 1);
}

/* Begins the next call, a helper's where its leaf has room for one; SIZE_MAX: there is none. */
static size_t begin_call(struct crowd_calls *k, bool helps)
{
    struct crowd *crowd = k->crowd;
    size_t i = atomic_load(&k->behind);

    while (i < crowd->n && atomic_load(&k->begun[i]))
        i++;
    atomic_store(&k->behind, i);
    for (; i < crowd->n; i++) {
        if (atomic_load(&k->begun[i]) || (helps && !helper_enters(crowd->leaf(crowd, i))))
            continue;
        if (!atomic_exchange(&k->begun[i], true))
            return i;
        if (helps)
            helper_leaves(crowd->leaf(crowd, i));
    }
    return SIZE_MAX;
}

static void make_calls(struct crowd_calls *k, bool helps)
{
    for (size_t i; (i = begin_call(k, helps)) != SIZE_MAX;) {
        struct op op;

        op_init(&op, k->patience_ns);
        op.cancelled = k->cancelled;
        op.lease_end_ns = k->lease_end_ns;
        k->crowd->run(k->crowd, i, &op);
        if (helps)
            helper_leaves(k->crowd->leaf(k->crowd, i));
    }
}

static void help(struct task *task)
{
    make_calls(container_of(task, struct helper, task)->calls, true);
}

/* As many threads as have something to do, where the leaves have room for so many helpers: it
 * may be gone when these begin, and then they end. */
static unsigned count_helpers(struct crowd *crowd)
{
    unsigned max = (unsigned)(crowd->n < AT_ONCE_MAX ? crowd->n : AT_ONCE_MAX) - 1;
    const struct leaf *helped[AT_ONCE_MAX];
    unsigned n = 0;

    for (size_t i = 0; i < crowd->n && n < max; i++) {
        struct leaf *leaf = crowd->leaf(crowd, i);
        unsigned taken = atomic_load(&leaf->helpers);
        for (unsigned k = 0; k < n; k++)
            taken += helped[k] == leaf;
        if (taken < ROUTED_HELPERS_MAX)
            helped[n++] = leaf;
    }
    return n;
}

void crowd_run(struct crowd *crowd, struct op *op)
{
    unsigned helpers = count_helpers(crowd);
    auto_free atomic_bool *begun = calloc(crowd->n, sizeof(*begun));
    struct crowd_calls calls = {.crowd = crowd,
                                .begun = begun,
                                .patience_ns = op_left_ns(op),
                                .lease_end_ns = op->lease_end_ns,
                                .cancelled = op->cancelled};
    struct helper tasks[AT_ONCE_MAX];
    struct pool *pool = helpers && begun ? pool_new("routes", helpers) : NULL;

    if (!pool) {
        crowd_in_turn(crowd, op);
        return;
    }
    for (unsigned i = 0; i < helpers; i++) {
        tasks[i] = (struct helper){{.run = help}, &calls};
        pool_submit(pool, &tasks[i].task);
    }
    make_calls(&calls, false);
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

static struct leaf *asked_leaf(struct crowd *crowd, size_t i)
{
    return container_of(crowd, struct asking, crowd)->v[i]->leaf;
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
    struct asking g = {.crowd.run = ask_run, .crowd.leaf = asked_leaf, .v = v, .until = until};

    if (!v)
        return op_fail(op, -ENOMEM, "no memory to ask the stores");
    for (size_t i = 0; i < a->n; i++)
        if (!a->v[i].done && !a->v[i].later)
            v[g.crowd.n++] = &a->v[i];
    if (g.crowd.n)
        crowd_run(&g.crowd, op);
    return first_failure(a, op);
}
