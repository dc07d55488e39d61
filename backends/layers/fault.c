/* The fault layer, for tests: fails, delays and cuts calls as scripted. */
#include "backends/layers/fault.h"
#include "common/lock.h"
#include "common/mem.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FAULTS_MAX 16

struct fault_layer {
    struct layer layer;
    struct mutex lock; /* guards what follows */
    struct fault fault[FAULTS_MAX];
    unsigned seen[FAULTS_MAX]; /* matching calls so far */
    size_t n;
    unsigned calls, hits;
};

/* Copies the fault that strikes this call. */
static bool strikes(struct fault_layer *f, enum call_kind kind, struct fault *ret)
{
    bool hit = false;

    mutex_lock(&f->lock);
    f->calls++;
    for (size_t i = 0; i < f->n; i++) {
        const struct fault *fault = &f->fault[i];
        if (fault->kind != FAULT_ANY_KIND && fault->kind != kind)
            continue;
        unsigned number = ++f->seen[i];
        unsigned end = fault->first + (fault->count ? fault->count : 1);
        if (!hit && number >= fault->first && number < end) {
            *ret = *fault;
            hit = true;
        }
    }
    f->hits += hit;
    mutex_unlock(&f->lock);
    return hit;
}

static int fail(struct call *c, const struct fault *fault)
{
    c->op->retry_after_ns = fault->retry_after_ns;
    return op_fail(c->op, fault->err, "%s %s: a scripted fault", call_name(c->kind), c->key);
}

/* Lets only so many bytes or names pass. */
struct cut {
    struct sink base;
    struct call *call;
    uint64_t left;
    bool over;
};

static int cut_write(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct cut *k = container_of(sink, struct cut, base);
    size_t pass = len < k->left ? len : (size_t)k->left;

    int r = pass ? k->call->sink->write(k->call->sink, data, pass, off) : 0;
    k->left -= pass;
    if (r < 0 || pass == len)
        return r;
    k->over = true;
    return -ECANCELED;
}

static int cut_visit(void *arg, const char *name, const struct object *obj)
{
    struct cut *k = arg;

    if (k->left == 0) {
        k->over = true;
        return -ECANCELED;
    }
    k->left--;
    return k->call->visit(k->call->visit_arg, name, obj);
}

static int64_t run_cut(struct call *c, const struct fault *fault)
{
    struct cut k = {{cut_write}, c, fault->after, false};
    struct call cut = *c;

    if (c->kind == CALL_READ) {
        cut.sink = &k.base;
    } else {
        cut.visit = cut_visit;
        cut.visit_arg = &k;
    }
    int64_t r = call_next(&cut);
    return k.over ? fail(c, fault) : r;
}

/* What the store handed out is lost with its answer. */
static int64_t run_after(struct call *c, const struct fault *fault)
{
    struct object obj;
    struct call lost = *c;

    if (c->ret_obj)
        lost.ret_obj = &obj;
    int64_t r = call_next(&lost);
    if (r < 0)
        return r;
    if (c->ret_obj)
        object_release(&obj);
    if ((c->kind == CALL_BEGIN || c->kind == CALL_RESUME) && c->up->next)
        store_upload_detach(take_ptr(c->up->next));
    return fail(c, fault);
}

static int64_t fault_around(struct layer *l, struct call *c)
{
    struct fault_layer *f = container_of(l, struct fault_layer, layer);
    struct fault fault;

    if (!strikes(f, c->kind, &fault))
        return call_next(c);
    int r = fault.delay_ns ? op_sleep(c->op, fault.delay_ns) : 0;
    if (r < 0)
        return r;
    if (!fault.err)
        return call_next(c);
    if (fault.when == FAULT_AFTER)
        return run_after(c, &fault);
    if (fault.when == FAULT_CUT && (c->kind == CALL_READ || c->kind == CALL_LIST))
        return run_cut(c, &fault);
    return fail(c, &fault);
}

static void fault_release(struct layer *l)
{
    mutex_destroy(&container_of(l, struct fault_layer, layer)->lock);
}

struct store *layer_fault_new(struct store *next)
{
    struct fault_layer *f = calloc(1, sizeof(*f));

    if (!f || layer_init(&f->layer, next, fault_around) < 0) {
        free(f);
        return NULL;
    }
    f->layer.release = fault_release;
    mutex_init(&f->lock);
    return &f->layer.base;
}

static struct fault_layer *fault_of(struct store *s)
{
    return container_of(s, struct fault_layer, layer.base);
}

void layer_fault_script(struct store *s, const struct fault *faults, size_t n)
{
    struct fault_layer *f = fault_of(s);

    assert(n <= FAULTS_MAX);
    mutex_lock(&f->lock);
    if (n)
        memcpy(f->fault, faults, n * sizeof(*faults));
    f->n = n;
    memset(f->seen, 0, sizeof(f->seen));
    f->calls = f->hits = 0;
    mutex_unlock(&f->lock);
}

unsigned layer_fault_calls(struct store *s)
{
    struct fault_layer *f = fault_of(s);

    mutex_lock(&f->lock);
    unsigned n = f->calls;
    mutex_unlock(&f->lock);
    return n;
}

unsigned layer_fault_hits(struct store *s)
{
    struct fault_layer *f = fault_of(s);

    mutex_lock(&f->lock);
    unsigned n = f->hits;
    mutex_unlock(&f->lock);
    return n;
}
