/* What a store in memory was at each step of the disk; see store.h. */
#include "tests/lib/power/store.h"

#include "common/mem.h"
#include "tests/lib/power/disk.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct {
    struct mutex lock;
    struct driven *d; /* NULL: nothing is noted */
    struct store_then *v;
    size_t n, cap;
} history = {.lock = {.m = PTHREAD_MUTEX_INITIALIZER}};

struct store_then power_store_now(struct driven *d)
{
    struct mem_tree *t = mem_tree(d->store->next);

    mutex_lock(&t->lock);
    struct store_then then = {disk_recorded(), calloc(t->n_entries + 1, sizeof(*then.v)),
                              t->n_entries};
    ck_assert_ptr_nonnull(then.v);
    for (size_t i = 0; i < t->n_entries; i++) {
        const struct mem_entry *e = t->entry[i];
        then.v[i] = (struct object_then){strdup(e->key), mem_blob_ref(e->blob), e->mtime_ns,
                                         e->version,     e->checksum,           {0}};
        ck_assert_int_eq(attrs_copy(&then.v[i].attrs, &e->attrs), 0);
    }
    mutex_unlock(&t->lock);
    return then;
}

void power_store_then_free(struct store_then *then)
{
    for (size_t i = 0; i < then->n; i++) {
        free(then->v[i].key);
        mem_blob_unref(then->v[i].blob);
        attrs_release(&then->v[i].attrs);
    }
    free(then->v);
}

void power_store_becomes(struct driven *d, const struct store_then *then)
{
    struct mem_tree *t = mem_tree(d->store->next);

    mutex_lock(&t->lock);
    while (t->n_entries)
        mem_entry_free(mem_take_out_locked(t, t->entry[t->n_entries - 1]->key));
    for (size_t i = 0; i < then->n; i++) {
        struct mem_entry *e = calloc(1, sizeof(*e));
        const struct object_then *o = &then->v[i];
        ck_assert_ptr_nonnull(e);
        *e = (struct mem_entry){strdup(o->key), mem_blob_ref(o->blob), o->mtime_ns,
                                o->version,     o->checksum,           {0}};
        ck_assert_int_eq(attrs_copy(&e->attrs, &o->attrs), 0);
        ck_assert_int_eq(mem_insert_locked(t, e), 0);
    }
    mutex_unlock(&t->lock);
}

atomic_bool power_store_away;

static bool is_change(enum call_kind kind)
{
    return kind == CALL_PUT || kind == CALL_COMMIT || kind == CALL_COPY ||
           kind == CALL_REMOVE || kind == CALL_MKDIR || kind == CALL_RMDIR ||
           kind == CALL_SETATTR || kind == CALL_RENAME;
}

static void note_store(void)
{
    ck_assert(!array_grow(history.v, history.cap, history.n + 1));
    history.v[history.n++] = power_store_now(history.d);
}

int64_t power_around(struct layer *l, struct call *c)
{
    (void)l;
    if (!is_change(c->kind))
        return call_next(c);
    if (atomic_load(&power_store_away))
        return op_fail(c->op, -EIO, "the store takes nothing now");
    mutex_lock(&history.lock);
    int64_t r = call_next(c);
    if (history.d)
        note_store();
    mutex_unlock(&history.lock);
    return r;
}

void power_history_begin(struct driven *d)
{
    mutex_lock(&history.lock);
    history.d = d;
    note_store();
    mutex_unlock(&history.lock);
}

void power_history_end(void)
{
    mutex_lock(&history.lock);
    history.d = NULL;
    mutex_unlock(&history.lock);
}

void power_history_forget(void)
{
    for (size_t i = 0; i < history.n; i++)
        power_store_then_free(&history.v[i]);
    history.n = 0;
}

const struct store_then *power_store_at(size_t at, size_t *ret_number)
{
    size_t i = history.n - 1;

    while (i > 0 && history.v[i].at > at)
        i--;
    *ret_number = i;
    return &history.v[i];
}
