/* The retry layer: repeats a call that failed for a transient reason.
 *
 * Between attempts it backs off: the pause grows, is random, and honours what the server asked
 * for; a cancel ends it and the deadline limits it. "Slow down" (-EAGAIN) throttles all
 * calls of the store, new ones too (throttle.h). Errors of the caller's source, sink or visit
 * are not repeated. A read continues where it broke off, at the same version. A listing that
 * starts over visits only names that it had not visited. Every attempt and every pause passes
 * here, so this layer knows when the store stalls (stall.h).
 *
 * The answer to a change can get lost after the change was made. A repeated change then looks
 * like a conflict (-ESTALE) or a missing source (-ENOENT). Only after such a loss the layer
 * looks at the object, and calls it a success if the object is what this call makes: the same
 * content (put), or the same size and the very mtime that this call sets (commit, copy), or
 * all attributes that it sets (set_attributes), or the target in the place of the source
 * (rename). Else the error stands. */
#include "backends/layers/layer.h"
#include "backends/layers/layers.h"
#include "backends/layers/name_set.h"
#include "backends/layers/stall.h"
#include "backends/layers/throttle.h"
#include "common/err.h"
#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* A server that wishes more gets no attempt before that either, but one then. */
#define RETRY_AFTER_MAX_NS (60 * NS_PER_SEC)

/* How long all requests pause when no server wishes it: one of them asks again then. */
#define THROTTLE_MAX_NS (2 * NS_PER_SEC)

#define STALLED_NS (5 * NS_PER_SEC)

const struct backoff_policy backoff_default = {
    .first_ns = 100 * NS_PER_MS,
    .max_ns = 10 * NS_PER_SEC,
    .attempts = 12,
};

struct retry {
    struct layer layer;
    struct backoff_policy policy; /* constant */
    struct throttle throttle;
    struct stall stall;
    atomic_ullong retries;
};

static struct retry *retry_of(struct layer *l)
{
    return container_of(l, struct retry, layer);
}

/* ---- waiting ---- */

struct backoff {
    struct retry *retry;
    struct op *op;
    struct stall_call *stall;
    unsigned attempts; /* made so far */
    int64_t step_ns;
    bool over; /* there is no time for another attempt */
    bool lost; /* an attempt failed in a way that may have had its effect */
    char before[sizeof(((struct op *)0)->why)]; /* why the attempt before failed */
};

static struct backoff backoff_start(struct retry *t, struct op *op, struct stall_call *stall)
{
    return (struct backoff){
        .retry = t, .op = op, .stall = stall, .step_ns = t->policy.first_ns};
}

/* Between half a step and a whole one. */
static int64_t jitter(int64_t step_ns)
{
    uint32_t random = UINT32_MAX / 2;

    (void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
    return step_ns / 2 + (int64_t)((double)step_ns / 2 * ((double)random / UINT32_MAX));
}

/* "The time is over" is when it ended; what the attempts before met is why. */
static void tell_before(struct backoff *b, struct op *op, int64_t r)
{
    char last[sizeof(op->why)];

    if (r != -ETIMEDOUT || !*b->before || op_left_ns(op) > 0 || strstr(op->why, b->before))
        return;
    memcpy(last, op->why, sizeof(last));
    (void)op_fail(op, (int)r, "%.120s; before that: %s", last, b->before);
}

/* One attempt, when the server wants one. */
static int64_t attempt(struct backoff *b, struct call *c)
{
    int64_t r = throttle_wait(&b->retry->throttle, c->op);

    if (r < 0) {
        b->over = true;
        return r;
    }
    c->op->retry_after_ns = 0;
    stall_begin(b->stall);
    r = call_next(c);
    tell_before(b, c->op, r);
    stall_end(&b->retry->stall, b->stall, r, c->op->why);
    if (r == -EAGAIN)
        throttle_refused(&b->retry->throttle, c->op->retry_after_ns < RETRY_AFTER_MAX_NS
                                                  ? c->op->retry_after_ns
                                                  : RETRY_AFTER_MAX_NS);
    else if (!err_is_transient(r))
        throttle_answered(&b->retry->throttle);
    return r;
}

static int64_t next_wait(struct backoff *b)
{
    int64_t wait = jitter(b->step_ns), left = op_left_ns(b->op);
    int64_t wish = b->op->retry_after_ns;

    b->step_ns =
        2 * b->step_ns < b->retry->policy.max_ns ? 2 * b->step_ns : b->retry->policy.max_ns;
    if (wish > RETRY_AFTER_MAX_NS)
        wish = RETRY_AFTER_MAX_NS;
    /* Near the deadline half of the rest is waited, so that an attempt still fits. */
    if (left != OP_FOREVER && wait > left / 2)
        wait = left / 2;
    return wait > wish ? wait : wish;
}

/* What is left when nothing more is tried: "try again" is no answer to a user. */
static int64_t give_up(int64_t r)
{
    return r == -EAGAIN ? -ETIMEDOUT : r;
}

/* Judges the result *r of an attempt: true after the wait for another one, false when *r is
 * final. */
static bool backoff_again(struct backoff *b, int64_t *r)
{
    struct op *op = b->op;

    if (b->over || !err_is_transient(*r))
        return false;
    b->lost = true;
    if (*r != -EAGAIN) /* "slow down" is an answer */
        op->left_behind = true;
    b->attempts++;
    memcpy(b->before, op->why, sizeof(b->before));
    int64_t wait = next_wait(b), left = op_left_ns(op);
    if ((b->retry->policy.attempts && b->attempts >= b->retry->policy.attempts) ||
        left < NS_PER_MS || wait >= left) {
        *r = give_up(*r);
        return false;
    }
    int err = op_sleep(op, wait);
    if (err < 0) {
        *r = err;
        return false;
    }
    atomic_fetch_add_explicit(&b->retry->retries, 1, memory_order_relaxed);
    return true;
}

/* ---- the caller's own errors ---- */

struct guarded_source {
    struct source base;
    struct source *src;
    struct stall_call *stall;
    bool failed;
};

static ssize_t guarded_pread(struct source *src, void *buf, size_t len, uint64_t off)
{
    struct guarded_source *g = container_of(src, struct guarded_source, base);

    ssize_t n = g->src->pread(g->src, buf, len, off);
    if (n < 0)
        g->failed = g->stall->ours = true;
    else
        stall_moved(g->stall);
    return n;
}

/* Calls next with a watched source until it works or must not be repeated. */
static int64_t send_again(struct backoff *b, struct call *c)
{
    struct guarded_source g = {{c->src->size, guarded_pread}, c->src, b->stall, false};
    struct call guarded = *c;
    int64_t r;

    guarded.src = &g.base;
    do
        r = attempt(b, &guarded);
    while (!g.failed && backoff_again(b, &r));
    return r;
}

static int64_t call_again(struct backoff *b, struct call *c)
{
    int64_t r;

    do
        r = attempt(b, c);
    while (backoff_again(b, &r));
    return r;
}

/* ---- read ---- */

struct guarded_sink {
    struct sink base;
    struct sink *sink;
    struct stall_call *stall;
    uint64_t end; /* what was delivered reaches from the start to here without a gap */
    bool failed;
};

static int guarded_write(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct guarded_sink *g = container_of(sink, struct guarded_sink, base);

    int r = g->sink->write(g->sink, data, len, off);
    stall_moved(g->stall);
    if (r < 0)
        g->failed = g->stall->ours = true;
    else if (off <= g->end && off + len > g->end)
        g->end = off + len;
    return r;
}

/* Of any version (no etag) a second attempt must not continue the first: it starts over. With
 * an etag at least one byte is asked again, because only a whole answer counts as "this
 * version". */
static uint64_t read_from(const struct call *c, const struct guarded_sink *g)
{
    if (!c->etag)
        return c->off;
    return g->end == c->off + c->len ? g->end - 1 : g->end;
}

static int64_t retry_read(struct backoff *b, struct call *c)
{
    struct guarded_sink g = {{guarded_write}, c->sink, b->stall, c->off, false};
    struct call part = *c;
    int64_t r;

    part.sink = &g.base;
    do {
        part.off = read_from(c, &g);
        part.len = c->len - (size_t)(part.off - c->off);
        g.end = part.off;
        r = attempt(b, &part);
    } while (!g.failed && backoff_again(b, &r));
    return r < 0 ? r : r + (int64_t)(part.off - c->off);
}

/* ---- list ---- */

struct guarded_visit {
    const struct call *call;
    struct stall_call *stall;
    struct name_set seen;
    int result; /* of the visit that ended the listing */
    bool ended;
};

static int visit_once(void *arg, const char *name, const struct object *obj)
{
    struct guarded_visit *g = arg;

    int r = name_set_add(&g->seen, name, obj->is_prefix);
    stall_moved(g->stall);
    if (r == 0)
        return 0;
    if (r > 0)
        r = g->call->visit(g->call->visit_arg, name, obj);
    if (r) {
        g->ended = g->stall->ours = true;
        g->result = r;
    }
    return r;
}

static int64_t retry_list(struct backoff *b, struct call *c)
{
    struct guarded_visit g = {.call = c, .stall = b->stall};
    struct call once = *c;
    int64_t r = name_set_init(&g.seen);
    if (r < 0)
        return r;

    once.visit = visit_once;
    once.visit_arg = &g;
    do
        r = attempt(b, &once);
    while (!g.ended && backoff_again(b, &r));
    name_set_release(&g.seen);
    return g.ended ? g.result : r;
}

/* ---- was it us? ---- */

/* Compares what is read with a source. */
struct compare_sink {
    struct sink base;
    struct source *src;
    bool differs;
};

static int compare_write(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct compare_sink *k = container_of(sink, struct compare_sink, base);
    const char *left = data;
    char right[4096];

    while (len) {
        size_t want = len < sizeof(right) ? len : sizeof(right);
        ssize_t n = k->src->pread(k->src, right, want, off);
        if (n < 0)
            return (int)n;
        if (n == 0 || memcmp(left, right, (size_t)n) != 0) {
            k->differs = true;
            return -ECANCELED;
        }
        left += n;
        off += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

static bool same_content(struct call *c, const char *key, const struct object *obj)
{
    struct compare_sink k = {{compare_write}, c->src, false};

    if (c->src->size == 0)
        return true;
    ssize_t n = store_read(c->next, c->op, key, obj->etag, &k.base, c->src->size, 0, NULL);
    return !k.differs && n >= 0 && (uint64_t)n == c->src->size;
}

/* Whether the object carries the very time that the call sets: what else runs at the same time
 * on other nodes has another one, to the nanosecond. */
static bool has_time_of(const struct object *obj, const struct attrs *a)
{
    return a && (a->has & obj->attrs.has & ATTR_MTIME) && obj->attrs_known &&
           a->mtime_ns == obj->attrs.mtime_ns;
}

static const char *xattrs_of(const struct attrs *a)
{
    return a->has & ATTR_XATTRS && a->xattrs ? a->xattrs : "{}";
}

/* Whether it carries what the call sets. A chmod leaves the time as it is, which then says
 * nothing. */
static bool has_attrs_of(const struct object *obj, const struct attrs *a)
{
    const struct attrs *b = &obj->attrs;

    return has_time_of(obj, a) &&
           (!(a->has & ATTR_MODE) || (b->has & ATTR_MODE && a->mode == b->mode)) &&
           (!(a->has & ATTR_OWNER) ||
            (b->has & ATTR_OWNER && a->uid == b->uid && a->gid == b->gid)) &&
           (!(a->has & ATTR_XATTRS) || strcmp(xattrs_of(a), xattrs_of(b)) == 0);
}

/* An earlier version can't be our work. */
static bool is_changed(const struct object *obj, const char *expected)
{
    return !obj->is_prefix && strcmp(obj->etag, expected ? expected : "") != 0;
}

/* Takes `obj`: hands it to the caller when it is accepted. */
static int64_t settle(struct call *c, struct object *obj, bool ours, int64_t r, const char *why)
{
    if (ours && c->ret_obj)
        *c->ret_obj = *obj;
    else
        object_release(obj);
    return ours ? 0 : op_fail(c->op, (int)r, "%s", why);
}

static int64_t check_put(struct call *c, int64_t r, const char *why)
{
    struct object obj;

    if (r != -ESTALE || store_stat(c->next, c->op, c->key, &obj) < 0)
        return op_fail(c->op, (int)r, "%s", why);
    bool timed =
        c->attrs && (c->attrs->has & ATTR_MTIME) && store_can(c->next, c->key, STORE_ATTRS);
    bool ours = is_changed(&obj, c->etag) && obj.size == c->src->size &&
                (!timed || has_time_of(&obj, c->attrs)) && same_content(c, c->key, &obj);
    return settle(c, &obj, ours, r, why);
}

/* What the layer remembers of an upload: how large it gets. */
struct sizes {
    struct mutex lock; /* guards what follows */
    uint64_t *size;    /* of part number - 1 */
    unsigned n;
};

static struct sizes *sizes_new(void)
{
    struct sizes *z = calloc(1, sizeof(*z));

    if (z)
        mutex_init(&z->lock);
    return z;
}

static void sizes_free(void *extra)
{
    struct sizes *z = extra;

    if (!z)
        return;
    mutex_destroy(&z->lock);
    free(z->size);
    free(z);
}

static int sizes_set(struct sizes *z, unsigned number, uint64_t size)
{
    int r = 0;

    mutex_lock(&z->lock);
    if (number > z->n) {
        uint64_t *grown = realloc(z->size, number * sizeof(*grown));
        if (grown) {
            memset(grown + z->n, 0, (number - z->n) * sizeof(*grown));
            z->size = grown;
            z->n = number;
        } else {
            r = -ENOMEM;
        }
    }
    if (!r)
        z->size[number - 1] = size;
    mutex_unlock(&z->lock);
    return r;
}

static uint64_t sizes_sum(struct sizes *z)
{
    uint64_t sum = 0;

    mutex_lock(&z->lock);
    for (unsigned i = 0; i < z->n; i++)
        sum += z->size[i];
    mutex_unlock(&z->lock);
    return sum;
}

static int64_t check_commit(struct call *c, int64_t r, const char *why)
{
    struct object obj;

    if ((r != -ESTALE && r != -ENOENT) || store_stat(c->next, c->op, c->key, &obj) < 0)
        return op_fail(c->op, (int)r, "%s", why);
    bool ours = is_changed(&obj, c->etag) && obj.size == sizes_sum(c->up->extra) &&
                has_time_of(&obj, &c->up->attrs);
    /* The session below is done, but the caller's commit frees only its own half. */
    if (ours && c->up->next)
        store_upload_detach(take_ptr(c->up->next));
    return settle(c, &obj, ours, r, why);
}

/* A commit worked, but only after one whose fate is unknown. A server that died in the middle
 * of that one may take it for done (versitygw does, and answers 200): the object must be there.
 */
static int64_t confirm_commit(struct call *c)
{
    struct object obj, *made = c->ret_obj;
    int64_t r = store_stat(c->next, c->op, c->key, &obj);

    if (r < 0 && r != -ENOENT)
        return r;
    bool lacking = r == -ENOENT;
    if (!lacking) {
        /* What replaced it since is neither the old version nor this one. */
        lacking = made && strcmp(obj.etag, made->etag) != 0 &&
                  !(c->etag && is_changed(&obj, c->etag));
        object_release(&obj);
    }
    if (!lacking)
        return 0;
    return op_fail(c->op, -EIO,
                   "commit %s: the server says that an earlier attempt was done, but the "
                   "object is not there",
                   c->key);
}

static int64_t check_copy(struct call *c, int64_t r, const char *why)
{
    struct object from, to;

    if (r != -ESTALE || store_stat(c->next, c->op, c->key, &from) < 0)
        return op_fail(c->op, (int)r, "%s", why);
    bool ours = store_stat(c->next, c->op, c->to, &to) == 0;
    if (ours) {
        ours = is_changed(&to, c->to_etag) && to.size == from.size &&
               (!c->etag || strcmp(from.etag, c->etag) == 0) &&
               has_time_of(&to, c->attrs ? c->attrs : &from.attrs);
        r = settle(c, &to, ours, r, why);
    } else {
        op_fail(c->op, (int)r, "%s", why);
    }
    object_release(&from);
    return r;
}

static int64_t check_setattr(struct call *c, int64_t r, const char *why)
{
    struct object obj;

    if (r != -ESTALE || store_stat(c->next, c->op, c->key, &obj) < 0)
        return op_fail(c->op, (int)r, "%s", why);
    return settle(c, &obj, has_attrs_of(&obj, c->attrs), r, why);
}

static int64_t check_rename(struct call *c, int64_t r, const char *why)
{
    struct object obj;

    if (r != -ENOENT || store_stat(c->next, c->op, c->to, &obj) < 0)
        return op_fail(c->op, (int)r, "%s", why);
    object_release(&obj);
    return 0;
}

/* ---- changes ---- */

/* Repeats a change; the final error is looked at when an earlier answer may have been lost. */
static int64_t retry_change(struct backoff *b, struct call *c)
{
    char why[sizeof(c->op->why)];

    int64_t r = c->src ? send_again(b, c) : call_again(b, c);
    if (!b->lost)
        return r;
    if (r >= 0) {
        r = c->kind == CALL_COMMIT ? confirm_commit(c) : r;
        if (r < 0 && c->ret_obj)
            object_release(c->ret_obj);
        return r;
    }
    memcpy(why, c->op->why, sizeof(why));
    switch (c->kind) {
    case CALL_PUT:
        return check_put(c, r, why);
    case CALL_COMMIT:
        return check_commit(c, r, why);
    case CALL_COPY:
        return check_copy(c, r, why);
    case CALL_SETATTR:
        return check_setattr(c, r, why);
    case CALL_RENAME:
        return check_rename(c, r, why);
    default:
        return r;
    }
}

static int note_resumed(void *arg, const struct part *part)
{
    struct call *c = arg;

    int r = sizes_set(c->up->extra, part->number, part->size);
    return r < 0 ? r : c->visit_part(c->visit_arg, part);
}

/* A second attempt visits parts again, with the same answer. */
static int64_t retry_resume(struct backoff *b, struct call *c)
{
    struct call noting = *c;

    if (!c->visit_part)
        return call_again(b, c);
    noting.visit_part = note_resumed;
    noting.visit_arg = c;
    return call_again(b, &noting);
}

/* A begin whose answer was lost left a session that nobody knows. */
static int64_t retry_begin(struct backoff *b, struct call *c)
{
    int64_t since_ns = clock_real_ns();
    int64_t r = call_again(b, c);

    if (r == 0 && b->lost && c->next->ops->upload_sweep) {
        auto_free char *token = store_upload_token(c->up->next);
        struct op own = *c->op;
        if (token)
            (void)store_upload_sweep(c->next, &own, c->key, since_ns, token);
    }
    return r;
}

static int64_t retry_part(struct backoff *b, struct call *c)
{
    int64_t r = sizes_set(c->up->extra, c->number, c->src->size);
    return r < 0 ? r : send_again(b, c);
}

static int64_t retry_call(struct backoff *b, struct call *c)
{
    switch (c->kind) {
    case CALL_READ:
        return retry_read(b, c);
    case CALL_LIST:
        return retry_list(b, c);
    case CALL_BEGIN:
    case CALL_RESUME:
        c->up->extra = sizes_new();
        if (!c->up->extra)
            return op_fail(c->op, -ENOMEM, "no memory for an upload");
        return c->kind == CALL_BEGIN ? retry_begin(b, c) : retry_resume(b, c);
    case CALL_PART:
        return retry_part(b, c);
    default:
        return retry_change(b, c);
    }
}

static int64_t retry_around(struct layer *l, struct call *c)
{
    struct retry *t = retry_of(l);
    struct stall_call stall;
    struct backoff b = backoff_start(t, c->op, &stall);

    if (c->kind == CALL_ABORT) /* frees the upload, so there is nothing left to repeat */
        return call_next(c);
    stall_enter(&t->stall, &stall, c);
    int64_t r = retry_call(&b, c);
    stall_leave(&t->stall, &stall, r);
    return r;
}

static void retry_release(struct layer *l)
{
    throttle_release(&retry_of(l)->throttle);
    stall_release(&retry_of(l)->stall);
}

static void retry_add_stats(struct store *s, struct store_stats *ret)
{
    struct retry *t = container_of(s, struct retry, layer.base);

    ret->retries += atomic_load_explicit(&t->retries, memory_order_relaxed);
    stall_get(&t->stall, &ret->stall);
}

struct store *layer_retry_new(struct store *next, const struct backoff_policy *policy)
{
    struct retry *t = calloc(1, sizeof(*t));

    if (!t || layer_init(&t->layer, next, retry_around) < 0) {
        free(t);
        return NULL;
    }
    t->layer.free_extra = sizes_free;
    t->layer.ops.add_stats = retry_add_stats;
    t->layer.release = retry_release;
    t->policy = policy ? *policy : backoff_default;
    throttle_init(&t->throttle, t->policy.first_ns,
                  t->policy.max_ns < THROTTLE_MAX_NS ? t->policy.max_ns : THROTTLE_MAX_NS);
    stall_init(&t->stall, t->policy.stalled_ns ? t->policy.stalled_ns : STALLED_NS);
    return &t->layer.base;
}
