/* Names that the store refuses for good, such as keys that some servers have no form for.
 *
 * An answer like 403 does not tell whether the store refuses the name or who asks. A name
 * counts as refused once the store refused it, then took a change of another name that began
 * later, and then refused it again. What another store took says nothing. So that there is such
 * a change, a probe puts and removes an object of our own after the first refusal, where the
 * store has a place for those and judges by keys. In a folder each directory has rights of its
 * own: what the place of our objects takes says nothing there. Over several stores no path is
 * such a place.
 * docs/format.md, section 4. */
#include "cache/queue/queue_impl.h"

#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>

bool refusal_is_one(int err)
{
    return err == -EACCES || err == -EPERM || err == -EINVAL || err == -ENAMETOOLONG ||
           err == -EILSEQ;
}

bool intent_is_in_the_way(int err)
{
    return err == -EEXIST || err == -EISDIR || err == -ENOTDIR || err == -ENOTEMPTY;
}

void refusal_taken_locked(struct cache *c, unsigned volume, enum change change,
                          int64_t began_ns)
{
    int64_t *taken_ns = &c->queue->volumes[volume].taken_ns[change];

    cache_assert_locked(c);
    if (*taken_ns < began_ns)
        *taken_ns = began_ns;
}

bool refusal_others_taken_locked(const struct cache *c, unsigned volume, enum change change,
                                 int64_t refused_ns)
{
    return refused_ns && c->queue->volumes[volume].taken_ns[change] > refused_ns;
}

/* ---- the probe ---- */

/* All mounts share one: it does not matter who removes it. */
#define PROBE_KEY STORE_STATE_DIR "/probe"

struct probe {
    struct task task;
    struct cache *cache;
    unsigned volume; /* the only store, by its number in the entries */
};

static bool probe_put(struct cache *c, struct op *op)
{
    struct object obj = {0};
    struct mem_source src;

    mem_source_init(&src, "", 0);
    int r = store_put(c->store, op, PROBE_KEY, NULL, &src.base, NULL, &obj);
    object_release(&obj);
    return r == 0;
}

static void run_probe(struct task *task)
{
    struct probe *p = container_of(task, struct probe, task);
    struct cache *c = p->cache;
    const char *key = PROBE_KEY;
    struct op op;

    cache_op(c, &op);
    int64_t put_ns = clock_mono_ns();
    bool put = probe_put(c, &op);
    int64_t removed_ns = clock_mono_ns();
    bool removed = put && store_remove(c->store, &op, &key, NULL, 1, NULL) == 0;
    if (!put || !removed)
        log_debug("whether the store takes other names can't be told: %s", op.why);
    cache_lock(c);
    if (put)
        refusal_taken_locked(c, p->volume, CHANGE_PUT, put_ns);
    if (removed)
        refusal_taken_locked(c, p->volume, CHANGE_REMOVE, removed_ns);
    c->queue->own->refusals.probing = false;
    cache_unlock(c);
    free(p);
}

bool refusal_has_probe(const struct cache *c)
{
    struct store_facts facts;

    store_facts(c->store, PROBE_KEY, &facts);
    return (facts.caps & STORE_STATE) && !(facts.caps & STORE_DIRS);
}

void refusal_probe_locked(struct cache *c, unsigned volume)
{
    struct probe *p = NULL;

    cache_assert_locked(c);
    if (c->queue->own->refusals.probing || c->stopping || !refusal_has_probe(c) ||
        !(p = calloc(1, sizeof(*p))))
        return;
    *p = (struct probe){.task.run = run_probe, .cache = c, .volume = volume};
    c->queue->own->refusals.probing = true;
    pool_submit(c->uploaders, &p->task);
}

/* ---- of a file ---- */

bool file_is_refused_locked(const struct file *f)
{
    bool owes = false;

    for (const struct entry *e = f->node->links; e; e = e->next_link) {
        if (e->dirty && !e->refused)
            return false;
        owes = owes || e->dirty;
    }
    return owes && f->debt.error;
}
