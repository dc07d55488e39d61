/* Time limits, cancellation and failure texts of one request. */
#include "common/op.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* After how long a sleeper notices a cancel. */
#define SLICE_NS (10 * NS_PER_MS)

static int64_t clock_ns(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return ts.tv_sec * NS_PER_SEC + ts.tv_nsec;
}

int64_t clock_mono_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

int64_t clock_boot_ns(void)
{
    return clock_ns(CLOCK_BOOTTIME);
}

int64_t clock_real_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

void op_init(struct op *op, int64_t timeout_ns)
{
    int64_t now = clock_mono_ns();

    memset(op, 0, sizeof(*op));
    op->deadline_ns = timeout_ns >= OP_FOREVER - now ? OP_FOREVER : now + timeout_ns;
}

/* What failed before the wait ended is what a person needs to know: it stays in the text. */
static int op_end(struct op *op, int err, const char *what)
{
    char last[sizeof(op->why)];

    if (!op->why[0])
        return op_fail(op, err, "%s", what);
    if (strncmp(op->why, what, strlen(what)) == 0)
        return err;
    memcpy(last, op->why, sizeof(last));
    return op_fail(op, err, "%s; before that: %s", what, last);
}

static bool is_enough(const struct op *op)
{
    int64_t ns = op->enough_ns ? atomic_load_explicit(op->enough_ns, memory_order_relaxed) : 0;

    return ns && clock_mono_ns() >= ns;
}

static int64_t lease_left_ns(const struct op *op)
{
    if (!op->lease_end_ns)
        return OP_FOREVER;
    return atomic_load_explicit(op->lease_end_ns, memory_order_relaxed) - clock_boot_ns();
}

int op_check(struct op *op)
{
    if (op->cancelled && atomic_load_explicit(op->cancelled, memory_order_relaxed))
        return op_end(op, -EINTR, "cancelled");
    if (is_enough(op))
        return op_end(op, -EINTR, "another answer will do");
    if (op->deadline_ns != OP_FOREVER && clock_mono_ns() >= op->deadline_ns)
        return op_end(op, -ETIMEDOUT, "the time limit is over");
    if (lease_left_ns(op) <= 0)
        return op_end(op, -ETIMEDOUT, "the lease of this mount has ended");
    return 0;
}

int64_t op_left_ns(const struct op *op)
{
    int64_t left = OP_FOREVER, of_lease = lease_left_ns(op);

    if (op->deadline_ns != OP_FOREVER)
        left = op->deadline_ns - clock_mono_ns();
    left = of_lease < left ? of_lease : left;
    return left > 0 ? left : 0;
}

int op_sleep(struct op *op, int64_t ns)
{
    int64_t now = clock_mono_ns();
    int64_t end = ns >= OP_FOREVER - now ? OP_FOREVER : now + ns;

    for (;;) {
        int r = op_check(op);
        if (r < 0)
            return r;
        now = clock_mono_ns();
        if (now >= end)
            return 0;

        int64_t slice = end - now < SLICE_NS ? end - now : SLICE_NS;
        int64_t left = op_left_ns(op);
        if (left < slice)
            slice = left;
        struct timespec ts = {.tv_nsec = slice};
        (void)nanosleep(&ts, NULL); /* ended early by a signal: the loop looks at the clock */
    }
}

/* In brackets, because scripts/analyzer.h has a macro of this name. */
int(op_fail)(struct op *op, int err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(op->why, sizeof(op->why), fmt, ap);
    va_end(ap);
    return err;
}
