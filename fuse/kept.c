#include "fuse/kept.h"

#include "common/log.h"

#include <inttypes.h>
#include <string.h>

void kept_init(struct kept *k)
{
    memset(k, 0, sizeof(*k));
    mutex_init(&k->lock);
}

void kept_destroy(struct kept *k)
{
    mutex_destroy(&k->lock);
}

/* Once for each time that it is reached: writers come by thousands a second. */
static void tell_locked(struct kept *k, uid_t uid)
{
    if (k->told)
        return;
    k->told = true;
    log_error("%" PRIu64 " MiB of writes wait for room in the cache, or for the rest of their "
              "files, %" PRIu64 " MiB of them by user %u: more of his fail with ENOSPC until "
              "some have gone on. `runfs status` says what they wait for",
              k->bytes >> 20, k->of[uid % KEPT_USERS] >> 20, (unsigned)uid);
}

bool kept_take(struct kept *k, uid_t uid, uint64_t bytes, bool must)
{
    uint64_t *of = &k->of[uid % KEPT_USERS];

    mutex_lock(&k->lock);
    uint64_t left = k->bytes < KEPT_MAX ? KEPT_MAX - k->bytes : 0;
    bool fits = must || *of + bytes <= left;
    if (fits) {
        k->bytes += bytes;
        *of += bytes;
    } else {
        tell_locked(k, uid);
    }
    mutex_unlock(&k->lock);
    return fits;
}

void kept_give(struct kept *k, uid_t uid, uint64_t bytes)
{
    mutex_lock(&k->lock);
    k->bytes -= bytes;
    k->of[uid % KEPT_USERS] -= bytes;
    if (k->bytes == 0)
        k->told = false;
    mutex_unlock(&k->lock);
}

uint64_t kept_bytes(struct kept *k)
{
    mutex_lock(&k->lock);
    uint64_t bytes = k->bytes;
    mutex_unlock(&k->lock);
    return bytes;
}
