/* What a mount does that was away for longer than its lease, or was killed, before it sends
 * more of a unit (docs/units.md, 4): others may have taken the unit for a dead owner's. It
 * waits until nobody cleans up there, and then asks what the store has of it. */
#include "cache/transfer/transfer_impl.h"

#include "cache/notes/others.h"
#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How often it is looked whether somebody has ended to clean up. */
#define LOOK_NS      (1 * NS_PER_SEC)
#define LOOK_SOON_NS (10 * NS_PER_MS)

/* Those who clean up after the owner. */
struct takers {
    struct cache *cache;
    struct op *op;
    struct others *others; /* their leases */
    bool work;
};

/* Before each request: the wait for takers is no part of its time. */
static void let_last(struct cache *c, struct op *op)
{
    op->deadline_ns = clock_mono_ns() + c->config.store_timeout_ns;
}

static int meet_taker(void *arg, const struct note *note)
{
    struct takers *t = arg;

    if (note->kind != NOTE_TAKE || strcmp(note->cache_id, t->cache->queue->cache_id) == 0)
        return 0;
    if (others_watch(t->others, note->cache_id) < 0)
        return op_fail(t->op, -ENOMEM, "out of memory");
    t->work = t->work || others_state(t->others, note->cache_id) != OTHER_ENDED;
    return 0;
}

/* How long until there may be something new. */
static int64_t pause_ns(struct others *o)
{
    int64_t ns = others_next_ns(o) - clock_boot_ns();

    return ns < LOOK_SOON_NS ? LOOK_SOON_NS : ns < LOOK_NS ? ns : LOOK_NS;
}

/* Until nobody who lives has a `take` there. */
static int await_takers(struct takers *t, const struct notes_at *at)
{
    int r = 0;

    for (t->work = true; t->work && r == 0;) {
        t->work = false;
        let_last(t->cache, t->op);
        r = notes_list(at, t->op, meet_taker, t);
        if (r < 0 || !t->work)
            break;
        others_look(t->others, t->op->cancelled);
        t->op->deadline_ns = OP_FOREVER;
        r = op_sleep(t->op, pause_ns(t->others));
    }
    return r;
}

/* ---- what the store has ---- */

struct stored {
    struct op *op;
    char **v; /* names below the unit's directory, in order */
    size_t n, cap;
};

static int add_name(void *arg, const char *name, const struct object *obj)
{
    struct stored *s = arg;

    if (obj->is_prefix)
        return 0;
    if (array_grow(s->v, s->cap, s->n + 1) || !(s->v[s->n] = strdup(name)))
        return op_fail(s->op, -ENOMEM, "out of memory");
    s->n++;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool has_name(void *arg, const char *name)
{
    const struct stored *s = arg;

    return s->n && bsearch(&name, s->v, s->n, sizeof(*s->v), by_name);
}

static int list_stored(struct cache *c, struct op *op, struct place unit, struct stored *ret)
{
    *ret = (struct stored){.op = op};
    let_last(c, op);
    int r = store_list(c->store, op, unit.key, LIST_RECURSIVE, add_name, ret);
    if (ret->n)
        qsort(ret->v, ret->n, sizeof(*ret->v), by_name);
    return r == -ENOENT ? 0 : r;
}

static void stored_release(struct stored *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->v[i]);
    free(s->v);
}

static int send_what_lacks(struct cache *c, struct op *op, struct unit_note *n,
                           struct stored *s)
{
    auto_free char *lost = NULL;

    ns_read(c);
    cache_lock(c);
    int r = unit_look_again_locked(c, n, has_name, s, &lost);
    cache_unlock(c);
    ns_done(c);
    if (r == -ESTALE)
        return op_fail(
            op, r,
            "%s/%s: while this mount was away somebody removed %s, which is not here "
            "any more: no more of it is sent; write that file again, or remove %s",
            c->store->url, n->at.key, lost, n->at.key);
    return r < 0 ? op_fail(op, r, "out of memory") : 0;
}

int note_look_again(struct cache *c, struct op *op, struct unit_note *n,
                    const struct notes_at *at, int64_t ttl_ns)
{
    const struct others_config config = {.store = c->store,
                                         .state = at->state,
                                         .ttl_ns = ttl_ns,
                                         .late_ns = c->config.late_ns,
                                         .now = clock_boot_ns};
    struct takers takers = {.cache = c, .op = op, .others = others_new(&config)};
    struct stored stored = {0};
    int r = takers.others ? await_takers(&takers, at) : op_fail(op, -ENOMEM, "out of memory");

    if (r == 0)
        r = list_stored(c, op, n->at, &stored);
    if (r == 0)
        r = send_what_lacks(c, op, n, &stored);
    stored_release(&stored);
    others_free(takers.others);
    return r;
}
