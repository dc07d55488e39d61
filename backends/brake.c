/* The pause that the requests to one store share. */
#include "backends/brake.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

void brake_init(struct brake *b, int64_t first_ns, int64_t max_ns)
{
    *b = (struct brake){.first_ns = first_ns, .max_ns = max_ns};
    mutex_init(&b->lock);
}

void brake_release(struct brake *b)
{
    mutex_destroy(&b->lock);
}

/* Between 0 and `ns`. */
static int64_t part_of(int64_t ns)
{
    uint32_t random = UINT32_MAX / 2;

    (void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
    return (int64_t)((double)ns * ((double)random / UINT32_MAX));
}

void brake_pull(struct brake *b, int64_t wish_ns)
{
    int64_t now = clock_mono_ns();

    mutex_lock(&b->lock);
    if (now >= b->until_ns) {
        b->step_ns = b->answered ? b->step_ns / 2 : 2 * b->step_ns;
        if (b->step_ns < b->first_ns)
            b->step_ns = b->first_ns;
        if (b->step_ns > b->max_ns)
            b->step_ns = b->max_ns;
        b->until_ns = now + b->step_ns / 2 + part_of(b->step_ns / 2);
        b->answered = false;
    }
    if (b->until_ns < now + wish_ns)
        b->until_ns = now + wish_ns;
    mutex_unlock(&b->lock);
}

void brake_ease(struct brake *b)
{
    mutex_lock(&b->lock);
    b->answered = true;
    mutex_unlock(&b->lock);
}

/* How long until the pause is over, and how widely to spread what waits for that. */
static int64_t pause_left(struct brake *b, int64_t *ret_spread)
{
    int64_t left;

    mutex_lock(&b->lock);
    left = b->until_ns - clock_mono_ns();
    *ret_spread = b->step_ns / 2;
    mutex_unlock(&b->lock);
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

int brake_wait(struct brake *b, struct op *op)
{
    int64_t left, spread;

    while ((left = pause_left(b, &spread)) > 0) {
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
