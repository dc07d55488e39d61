/* The pause that the requests to one store share. */
#include "backends/layers/throttle.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

void throttle_init(struct throttle *t, int64_t first_ns, int64_t max_ns)
{
    *t = (struct throttle){.first_ns = first_ns, .max_ns = max_ns};
    mutex_init(&t->lock);
}

void throttle_release(struct throttle *t)
{
    mutex_destroy(&t->lock);
}

/* Between 0 and `ns`. */
static int64_t part_of(int64_t ns)
{
    uint32_t random = UINT32_MAX / 2;

    (void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
    return (int64_t)((double)ns * ((double)random / UINT32_MAX));
}

void throttle_refused(struct throttle *t, int64_t wish_ns)
{
    int64_t now = clock_mono_ns();

    mutex_lock(&t->lock);
    if (now >= t->until_ns) {
        t->step_ns = t->answered ? t->step_ns / 2 : 2 * t->step_ns;
        if (t->step_ns < t->first_ns)
            t->step_ns = t->first_ns;
        if (t->step_ns > t->max_ns)
            t->step_ns = t->max_ns;
        t->until_ns = now + t->step_ns / 2 + part_of(t->step_ns / 2);
        t->answered = false;
    }
    if (t->until_ns < now + wish_ns)
        t->until_ns = now + wish_ns;
    mutex_unlock(&t->lock);
}

void throttle_answered(struct throttle *t)
{
    mutex_lock(&t->lock);
    t->answered = true;
    mutex_unlock(&t->lock);
}

/* How long until the pause is over, and how widely to spread what waits for that. */
static int64_t pause_left(struct throttle *t, int64_t *ret_spread)
{
    int64_t left;

    mutex_lock(&t->lock);
    left = t->until_ns - clock_mono_ns();
    *ret_spread = t->step_ns / 2;
    mutex_unlock(&t->lock);
    return left;
}

/* What the server said before stays in the text. */
static int fail_late(struct op *op, int64_t left)
{
    char why[sizeof(op->why)];

    memcpy(why, op->why, sizeof(why));
    return op_fail(op, -ETIMEDOUT,
                   "the server wants a pause of %lld ms, and the time is over before%s%s",
                   (long long)(left / NS_PER_MS), why[0] ? "; it said: " : "", why);
}

int throttle_wait(struct throttle *t, struct op *op)
{
    int64_t left, spread;

    while ((left = pause_left(t, &spread)) > 0) {
        int64_t patience = op_left_ns(op);
        int err;

        if (left >= patience)
            return fail_late(op, left);
        if (spread > (patience - left) / 2) /* an attempt shall still fit */
            spread = (patience - left) / 2;
        err = op_sleep(op, left + part_of(spread));
        if (err)
            return err;
    }
    return 0;
}
