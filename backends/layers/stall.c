/* Whether a store answers. */
#include "backends/layers/stall.h"

#include "common/err.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

/* Longer than any pause after which a change is tried again. */
#define OWING_NS (120 * NS_PER_SEC)
/* A copy of some GiB at the server, without a byte of it passing us. */
#define SLOW_NS (60 * NS_PER_SEC)

void stall_init(struct stall *s, int64_t after_ns)
{
    *s = (struct stall){.after_ns = after_ns};
    mutex_init(&s->lock);
}

void stall_release(struct stall *s)
{
    mutex_destroy(&s->lock);
}

static enum stall_lane lane_of(enum call_kind kind)
{
    return kind == CALL_STAT || kind == CALL_LIST || kind == CALL_READ || kind == CALL_HAS
               ? STALL_QUESTIONS
               : STALL_CHANGES;
}

static bool is_slow(enum call_kind kind)
{
    return kind == CALL_COPY || kind == CALL_COMMIT || kind == CALL_SETATTR;
}

/* What keeps a store from working, rather than a name or a version. A question that it refuses
 * is answered with that at once, and nobody asks it again. */
static bool is_refusal(int64_t r, enum stall_lane lane)
{
    if (lane == STALL_CHANGES && (r == -EACCES || err_is_no_space(r)))
        return true;
    return err_is_transient(r) || r == -ENXIO;
}

static bool is_success(int64_t r, enum stall_lane lane)
{
    return !is_refusal(r, lane) && r != -EACCES && r != -EINTR && r != -ENOMEM;
}

static bool is_owing_locked(struct stall *s, enum stall_lane lane, int64_t now)
    REQUIRES(&s->lock)
{
    mutex_assert_held(&s->lock);
    return s->lane[lane].calls || now < s->lane[lane].owing_ns;
}

static void succeed_locked(struct stall *s, enum stall_lane lane, int64_t now)
    REQUIRES(&s->lock)
{
    mutex_assert_held(&s->lock);
    s->lane[lane].good_ns = now;
    s->lane[lane].owing_ns = 0;
    s->lane[lane].err = 0;
    s->lane[lane].why[0] = '\0';
}

void stall_enter(struct stall *s, struct stall_call *call, const struct call *c)
{
    int64_t now = clock_mono_ns();

    call->lane = lane_of(c->kind);
    call->slow = is_slow(c->kind);
    call->deadline_ns = c->op->deadline_ns;
    call->ours = false;
    atomic_init(&call->began_ns, now);
    atomic_init(&call->moved_ns, 0);
    mutex_lock(&s->lock);
    if (!is_owing_locked(s, call->lane, now))
        succeed_locked(s, call->lane, now);
    DL_APPEND(s->lane[call->lane].calls, call);
    mutex_unlock(&s->lock);
}

void stall_leave(struct stall *s, struct stall_call *call, int64_t r)
{
    mutex_lock(&s->lock);
    DL_DELETE(s->lane[call->lane].calls, call);
    if (!call->ours && is_success(r, call->lane))
        succeed_locked(s, call->lane, clock_mono_ns());
    mutex_unlock(&s->lock);
}

void stall_begin(struct stall_call *call)
{
    call->ours = false;
    atomic_store_explicit(&call->moved_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&call->began_ns, clock_mono_ns(), memory_order_relaxed);
}

void stall_moved(struct stall_call *call)
{
    atomic_store_explicit(&call->moved_ns, clock_mono_ns(), memory_order_relaxed);
}

static int64_t moved_ns(const struct stall_call *call)
{
    return atomic_load_explicit(&call->moved_ns, memory_order_relaxed);
}

static int64_t began_ns(const struct stall_call *call)
{
    return atomic_load_explicit(&call->began_ns, memory_order_relaxed);
}

/* A line that breaks after bytes moved for long does work now and then; a server that refuses
 * after it took them does not. */
static bool did_some(const struct stall *s, const struct stall_call *call, int64_t r)
{
    return r != -EAGAIN && r != -EACCES && moved_ns(call) - began_ns(call) >= s->after_ns;
}

void stall_end(struct stall *s, struct stall_call *call, int64_t r, const char *why)
{
    enum stall_lane lane = call->lane;

    if (call->ours || !is_refusal(r, lane))
        return;
    mutex_lock(&s->lock);
    if (did_some(s, call, r) && s->lane[lane].good_ns < moved_ns(call))
        s->lane[lane].good_ns = moved_ns(call);
    s->lane[lane].err = (int)r;
    memcpy(s->lane[lane].why, why, sizeof(s->lane[lane].why));
    if (lane == STALL_CHANGES)
        s->lane[lane].owing_ns = clock_mono_ns() + OWING_NS;
    mutex_unlock(&s->lock);
    atomic_store_explicit(&call->moved_ns, 0, memory_order_relaxed);
}

/* When the attempt that runs last showed that the lane works; 0: it did not. What follows a
 * failure has to move bytes for a while first: they may be refused as those before them. */
static int64_t call_good_locked(struct stall *s, const struct stall_call *call, int64_t now)
    REQUIRES(&s->lock)
{
    int64_t began = began_ns(call), moved = moved_ns(call);

    mutex_assert_held(&s->lock);
    if (call->slow && now - began < SLOW_NS)
        moved = now;
    return s->lane[call->lane].err && moved - began < s->after_ns ? 0 : moved;
}

/* When the lane last showed that it works. */
static int64_t lane_good_locked(struct stall *s, enum stall_lane lane, int64_t now)
    REQUIRES(&s->lock)
{
    int64_t good = s->lane[lane].good_ns;
    const struct stall_call *call;

    mutex_assert_held(&s->lock);
    DL_FOREACH(s->lane[lane].calls, call)
    {
        int64_t ns = call_good_locked(s, call, now);
        good = ns > good ? ns : good;
    }
    return good;
}

/* Changes are tried again until they work, whatever a single request may take. */
static int64_t given_up_locked(struct stall *s, enum stall_lane lane) REQUIRES(&s->lock)
{
    const struct stall_call *call;
    int64_t until = 0;

    mutex_assert_held(&s->lock);
    if (lane == STALL_CHANGES)
        return OP_FOREVER;
    DL_FOREACH(s->lane[lane].calls, call)
    {
        until = call->deadline_ns > until ? call->deadline_ns : until;
    }
    return until;
}

void stall_get(struct stall *s, struct store_stall *ret)
{
    int64_t now = clock_mono_ns();

    *ret = (struct store_stall){0};
    mutex_lock(&s->lock);
    for (enum stall_lane lane = 0; lane < STALL_LANES; lane++) {
        int64_t ns = now - lane_good_locked(s, lane, now);
        if (!is_owing_locked(s, lane, now) || ns < s->after_ns || ns <= ret->ns)
            continue;
        ret->ns = ns;
        ret->changes = lane == STALL_CHANGES;
        ret->until_ns = given_up_locked(s, lane);
        ret->err = s->lane[lane].err;
        memcpy(ret->why, s->lane[lane].why, sizeof(ret->why));
    }
    mutex_unlock(&s->lock);
}
