/* Looks at the leases of other caches; see others.h. When one has ended is in times.c. */
#include "cache/notes/others.h"

#include "cache/notes/notes_impl.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/table.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* In a ttl. Two of the intervals and a request are less than the third that may lie between
 * two looks. */
#define LOOKS 8

extern struct lock_class others_mutex;

struct other {
    UT_hash_handle hh; /* by id */
    char id[NOTE_ID_SIZE];
    unsigned watchers;
    int64_t due_ns;
    struct other_times times;
};

struct others {
    /* Constant. */
    struct others_config config;
    char *state;

    struct mutex lock;
    struct other *table GUARDED_BY(others_mutex);
};

MUTEX_KIND(others, struct others, lock);

static struct other *find_locked(struct others *o, const char *id) REQUIRES(others_mutex)
{
    struct other *x;

    HASH_FIND_STR(o->table, id, x);
    return x;
}

/* Nothing is known of its ttl before the first look. */
static int64_t interval_ns(const struct others *o, const struct other_times *t)
{
    int64_t ns = (t->ttl_ns ? t->ttl_ns : o->config.ttl_ns) / LOOKS;

    return ns ? ns : 1;
}

/* ---- a look ---- */

struct look {
    char id[NOTE_ID_SIZE];
    int64_t patience_ns;
    int64_t asked_ns, told_ns;
    char version[OTHER_VERSION_SIZE];
    int64_t ttl_ns; /* 0: it tells none */
};

static void note_version(struct look *k, const char *text, size_t len, const char *etag)
{
    struct lease_body body;

    if (lease_decode(text, len, &body) < 0) {
        (void)snprintf(k->version, sizeof(k->version), "unreadable %zu %s", len, etag);
        return;
    }
    (void)snprintf(k->version, sizeof(k->version), "%s %" PRIu64 " %" PRId64, body.session,
                   body.beat, body.ttl_ns);
    k->ttl_ns = body.ttl_ns;
    lease_body_release(&body);
}

/* 0; or a failure, which says nothing of the lease. */
static int ask(struct others *o, struct look *k, struct op *op)
{
    auto_free char *rest = note_lease_key(k->id);
    auto_free char *key = rest ? own_key(o->state, rest) : NULL;
    auto_free char *text = NULL;
    char etag[STORE_ETAG_MAX] = "";
    size_t len = 0;

    if (!key)
        return op_fail(op, -ENOMEM, "out of memory");
    k->asked_ns = o->config.now();
    int r = own_read(o->config.store, op, key, &text, &len, etag);
    k->told_ns = o->config.now();
    if (r == -ENOENT)
        (void)snprintf(k->version, sizeof(k->version), "absent");
    else if (r == 0)
        note_version(k, text, len, etag);
    return r == -ENOENT ? 0 : r;
}

/* One that is due, and when it is next if this look fails. */
static bool take_due_locked(struct others *o, struct look *ret) REQUIRES(others_mutex)
{
    int64_t now_ns = o->config.now();
    struct other *x, *next;

    HASH_ITER(hh, o->table, x, next)
    {
        if (x->due_ns > now_ns)
            continue;
        int64_t ns = interval_ns(o, &x->times);
        x->due_ns = now_ns + ns;
        *ret = (struct look){.patience_ns = ns};
        memcpy(ret->id, x->id, sizeof(ret->id));
        return true;
    }
    return false;
}

static void tell_locked(struct others *o, const struct look *k) REQUIRES(others_mutex)
{
    struct other *x = find_locked(o, k->id);

    if (!x)
        return;
    other_times_told(&x->times, k->version, k->ttl_ns, o->config.ttl_ns, k->asked_ns,
                     k->told_ns);
    x->due_ns = k->asked_ns + interval_ns(o, &x->times);
}

void others_look(struct others *o, const atomic_bool *cancelled)
{
    struct look k;
    struct op op;

    others_lock(o);
    while (!(cancelled && atomic_load(cancelled)) && take_due_locked(o, &k)) {
        others_unlock(o);
        op_init(&op, k.patience_ns);
        op.cancelled = cancelled;
        int r = ask(o, &k, &op);
        if (r < 0)
            log_debug("the lease of cache %s can't be looked at: %s", k.id, op.why);
        others_lock(o);
        if (r == 0)
            tell_locked(o, &k);
    }
    others_unlock(o);
}

int64_t others_next_ns(struct others *o)
{
    int64_t next_ns = INT64_MAX;
    struct other *x, *next;

    others_lock(o);
    HASH_ITER(hh, o->table, x, next)
    {
        next_ns = x->due_ns < next_ns ? x->due_ns : next_ns;
    }
    others_unlock(o);
    return next_ns;
}

/* ---- who is watched ---- */

static struct other *add_locked(struct others *o, const char *id) REQUIRES(others_mutex)
{
    struct other *x = calloc(1, sizeof(*x));

    if (!x)
        return NULL;
    memcpy(x->id, id, sizeof(x->id));
    x->due_ns = o->config.now();
    HASH_ADD_STR(o->table, id, x);
    if (TABLE_LACKS(hh, x)) {
        free(x);
        return NULL;
    }
    return x;
}

int others_watch(struct others *o, const char *cache_id)
{
    assert(note_is_id(cache_id));
    others_lock(o);
    struct other *x = find_locked(o, cache_id);
    if (!x)
        x = add_locked(o, cache_id);
    if (x)
        x->watchers++;
    others_unlock(o);
    return x ? 0 : -ENOMEM;
}

static void remove_locked(struct others *o, struct other *x) REQUIRES(others_mutex)
{
    HASH_DEL(o->table, x);
    free(x);
}

void others_unwatch(struct others *o, const char *cache_id)
{
    others_lock(o);
    struct other *x = find_locked(o, cache_id);
    assert(x && x->watchers);
    if (--x->watchers == 0)
        remove_locked(o, x);
    others_unlock(o);
}

enum other_state others_state(struct others *o, const char *cache_id)
{
    enum other_state state = OTHER_UNKNOWN;

    others_lock(o);
    const struct other *x = find_locked(o, cache_id);
    if (x)
        state = other_times_state(&x->times, o->config.late_ns, o->config.now());
    others_unlock(o);
    return state;
}

/* ---- all of them ---- */

struct others *others_new(const struct others_config *config)
{
    struct others *o = calloc(1, sizeof(*o));

    if (!o)
        return NULL;
    assert(config->ttl_ns > 0);
    o->config = *config;
    o->state = strdup(config->state);
    mutex_init(&o->lock);
    if (o->state)
        return o;
    others_free(o);
    return NULL;
}

void others_free(struct others *o)
{
    struct other *x, *next;

    if (!o)
        return;
    others_lock(o);
    HASH_ITER(hh, o->table, x, next)
    {
        remove_locked(o, x);
    }
    others_unlock(o);
    mutex_destroy(&o->lock);
    free(o->state);
    free(o);
}
