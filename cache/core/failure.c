/* Failures that the status tells of, and how long the next attempt waits. */
#include "cache/core/core.h"

#include "common/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

void failure_note_locked(struct cache *c, struct failure *f, int err, const char *why)
{
    cache_assert_locked(c);
    f->err = err;
    free(f->text);
    f->text = strdup(why);
}

void read_failed(struct cache *c, const char *what, int err, const char *why)
{
    if (err == -EINTR)
        return;
    log_warn("%s failed: %s", what, why);
    cache_lock(c);
    failure_note_locked(c, &c->read_failure, err, why);
    cache_unlock(c);
}

/* ---- beginning ---- */

/* The longest pause between two attempts. */
#define RETRY_MOST_NS (60 * NS_PER_SEC)

int64_t retry_delay_ns(const struct cache *c, unsigned attempts)
{
    unsigned doubled = attempts > 5 ? 5 : attempts - 1;
    int64_t most = c->config.retry_ns << doubled;

    if (most > RETRY_MOST_NS)
        most = RETRY_MOST_NS;

    /* Half of the pause is random, so that many files do not come back at once. It takes 63
     * bits: 31 of them would end at 2.1 s. */
    return most / 2 + (int64_t)((uint64_t)clock_real_ns() * UINT64_C(0x9e3779b97f4a7c15) >> 1) %
                          (most / 2 + 1);
}
