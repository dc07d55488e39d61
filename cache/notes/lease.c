/* The thread that rewrites the lease; see lease.h. When it is held and when the next rewrite is
 * due is in times.c. */
#include "cache/notes/lease.h"

#include "cache/notes/notes_impl.h"
#include "common/lock.h"
#include "common/mem.h"
#include "common/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

extern struct lock_class lease_mutex;

/* A time in which the lease is held without a gap. Requests look at its end for as long as they
 * last, so it stays when another one has begun. */
struct term {
    struct term *next; /* the one before */
    uint64_t number;
    atomic_llong end_ns;
};

struct lease {
    /* Constant. */
    struct lease_config config; /* of its texts only the object's are kept: */
    char *key, *node;
    char session[NOTE_ID_SIZE];

    struct task task;
    struct mutex lock;
    pthread_cond_t changed;
    atomic_bool ending; /* ends a request, too */
    GUARDED_BY(lease_mutex) struct {
        struct pool *pool; /* of one thread; NULL: nobody needed it yet */
        bool runs;         /* the task is submitted */
        unsigned needs;
        bool told; /* the last that the hooks heard is that it is held */
        struct lease_times times;
        struct term *terms; /* the newest first */
        uint64_t beat;
        int err;                                 /* of the last rewrite */
        char why[sizeof(((struct op *)0)->why)]; /* of the last rewrite that failed */
    };
};

MUTEX_KIND(lease, struct lease, lock);

/* ---- the thread ---- */

static int put_lease(struct lease *l, struct op *op, uint64_t beat)
{
    const struct lease_body body = {.node = l->node, .ttl_ns = l->config.ttl_ns, .beat = beat};
    struct lease_body b = body;

    memcpy(b.session, l->session, sizeof(b.session));
    auto_free char *text = lease_encode(&b);
    if (!text)
        return op_fail(op, -ENOMEM, "out of memory");
    return own_put(l->config.store, op, l->key, text);
}

/* The requests of the term may go on for longer. Without memory for a new one nothing can be
 * bound to it; the next rewrite tries again. */
static void prolong_locked(struct lease *l) REQUIRES(lease_mutex)
{
    if (!l->terms || l->terms->number != l->times.term) {
        struct term *t = calloc(1, sizeof(*t));
        if (!t)
            return;
        t->number = l->times.term;
        LL_PREPEND(l->terms, t);
    }
    atomic_store_explicit(&l->terms->end_ns, l->times.began_ns + l->times.ttl_ns,
                          memory_order_relaxed);
}

/* One rewrite. */
static void beat_locked(struct lease *l) REQUIRES(lease_mutex)
{
    int64_t began_ns = l->config.now();
    int64_t patience_ns = lease_times_patience(&l->times, began_ns);
    uint64_t beat = ++l->beat;
    struct op op;

    lease_unlock(l);
    op_init(&op, patience_ns);
    op.cancelled = &l->ending;
    int r = put_lease(l, &op, beat);
    int64_t now_ns = l->config.now();
    lease_lock(l);
    l->err = r;
    if (r < 0) {
        lease_times_failed(&l->times, now_ns);
        memcpy(l->why, op.why, sizeof(l->why));
        return;
    }
    l->why[0] = '\0';
    (void)lease_times_beaten(&l->times, began_ns, now_ns);
    if (lease_times_hold(&l->times, now_ns))
        prolong_locked(l);
}

/* Tells that it was lost. A rewrite that worked after its end was too late for that term. */
static void tell_lost_locked(struct lease *l, uint64_t told_term) REQUIRES(lease_mutex)
{
    char why[sizeof(l->why)];

    if (!l->told ||
        (lease_times_hold(&l->times, l->config.now()) && l->times.term == told_term))
        return;
    l->told = false;
    (void)snprintf(why, sizeof(why), "%s",
                   l->why[0] ? l->why : "it could not be renewed in time");
    lease_unlock(l);
    l->config.lost(l->config.arg, why);
    lease_lock(l);
}

static void tell_held_locked(struct lease *l) REQUIRES(lease_mutex)
{
    uint64_t term = l->times.term;

    if (l->told || !lease_times_hold(&l->times, l->config.now()))
        return;
    l->told = true;
    lease_unlock(l);
    l->config.held(l->config.arg, term);
    lease_lock(l);
}

/* Sleeps until the next rewrite is due or the lease ends. */
static void pause_locked(struct lease *l) REQUIRES(lease_mutex)
{
    int64_t now_ns = l->config.now(), until_ns = l->times.next_ns;

    if (l->told && l->times.began_ns + l->times.ttl_ns < until_ns)
        until_ns = l->times.began_ns + l->times.ttl_ns;
    if (until_ns > now_ns)
        (void)lease_wait_until(l, &l->changed, clock_mono_ns() + until_ns - now_ns);
}

static bool is_needed_locked(struct lease *l) REQUIRES(lease_mutex)
{
    return l->needs && !atomic_load(&l->ending);
}

static void run_lease(struct task *task)
{
    struct lease *l = container_of(task, struct lease, task);

    lease_lock(l);
    while (is_needed_locked(l)) {
        uint64_t term = l->times.term;
        if (l->config.now() >= l->times.next_ns)
            beat_locked(l);
        if (is_needed_locked(l))
            tell_lost_locked(l, term);
        if (is_needed_locked(l))
            tell_held_locked(l);
        if (is_needed_locked(l))
            pause_locked(l);
    }
    l->runs = false;
    lease_unlock(l);
}

void lease_wake(struct lease *l)
{
    lease_lock(l);
    pthread_cond_broadcast(&l->changed);
    lease_unlock(l);
}

/* ---- who needs it ---- */

/* Nobody did. */
static int start_locked(struct lease *l) REQUIRES(lease_mutex)
{
    int64_t now_ns = l->config.now();

    if (!l->pool)
        l->pool = pool_new("runfs-lease", 1);
    if (!l->pool)
        return -EAGAIN;
    l->told = l->told && lease_times_hold(&l->times, now_ns);
    lease_times_begin(&l->times, now_ns);
    if (!l->runs) {
        l->runs = true;
        pool_submit(l->pool, &l->task);
    }
    return 0;
}

int lease_need(struct lease *l)
{
    lease_lock(l);
    int r = l->needs ? 0 : start_locked(l);
    if (!r)
        l->needs++;
    lease_unlock(l);
    return r;
}

void lease_release(struct lease *l)
{
    lease_lock(l);
    assert(l->needs);
    if (--l->needs == 0)
        pthread_cond_broadcast(&l->changed);
    lease_unlock(l);
}

/* ---- looks ---- */

enum lease_state lease_state(struct lease *l)
{
    enum lease_state state = LEASE_NONE;

    lease_lock(l);
    if (l->needs && lease_times_hold(&l->times, l->config.now()))
        state = LEASE_HELD;
    else if (l->needs)
        state = l->times.beaten ? LEASE_LOST : LEASE_BEATING;
    lease_unlock(l);
    return state;
}

uint64_t lease_term(struct lease *l)
{
    uint64_t term = 0;

    lease_lock(l);
    if (l->needs && lease_times_hold(&l->times, l->config.now()))
        term = l->times.term;
    lease_unlock(l);
    return term;
}

bool lease_is_held(struct lease *l)
{
    return lease_term(l) != 0;
}

int lease_failure(struct lease *l, char ret_why[LEASE_WHY_SIZE])
{
    lease_lock(l);
    int err = l->err;
    (void)snprintf(ret_why, LEASE_WHY_SIZE, "%s", l->why);
    lease_unlock(l);
    return err;
}

int lease_bind(struct lease *l, uint64_t term, struct op *op)
{
    bool held;

    lease_lock(l);
    held = l->needs && l->times.term == term && lease_times_hold(&l->times, l->config.now()) &&
           l->terms && l->terms->number == term;
    if (held)
        op->lease_end_ns = &l->terms->end_ns;
    lease_unlock(l);
    return held ? 0
                : op_fail(op, -ESTALE, "the lease of this mount, %s/%s, was lost",
                          l->config.store->url, l->key);
}

/* ---- a lease ---- */

struct lease *lease_new(const struct lease_config *config)
{
    auto_free char *rest = note_lease_key(config->cache_id);
    struct lease *l = calloc(1, sizeof(*l));

    assert(config->ttl_ns > 0 && note_is_id(config->session));
    if (!l || !rest) {
        free(l);
        return NULL;
    }
    l->config = *config;
    l->key = own_key(config->state, rest);
    l->node = strndup(config->node, NOTE_NODE_MAX);
    memcpy(l->session, config->session, sizeof(l->session));
    l->task.run = run_lease;
    mutex_init(&l->lock);
    cond_init(&l->changed);
    lease_lock(l);
    l->times.ttl_ns = config->ttl_ns;
    lease_unlock(l);
    if (l->key && l->node)
        return l;
    lease_free(l);
    return NULL;
}

static void terms_free(struct term *terms)
{
    struct term *t, *next;

    LL_FOREACH_SAFE(terms, t, next)
    {
        free(t);
    }
}

void lease_free(struct lease *l)
{
    if (!l)
        return;
    atomic_store(&l->ending, true);
    lease_lock(l);
    struct pool *pool = l->pool;
    pthread_cond_broadcast(&l->changed);
    lease_unlock(l);
    pool_free(pool);
    lease_lock(l);
    terms_free(l->terms);
    lease_unlock(l);
    pthread_cond_destroy(&l->changed);
    mutex_destroy(&l->lock);
    free(l->key);
    free(l->node);
    free(l);
}
