#include "fuse/kept.h"

#include "common/log.h"

#include <inttypes.h>
#include <string.h>

MUTEX_KIND(kept, struct kept, lock);

void kept_init(struct kept *k)
{
    memset(k, 0, sizeof(*k));
    mutex_init(&k->lock);
}

void kept_destroy(struct kept *k)
{
    mutex_destroy(&k->lock);
}

static void log_full(uint64_t bytes, uint64_t of_user, uid_t uid)
{
    log_error("%" PRIu64 " MiB of writes wait for room in the cache, or for the rest of their "
              "files, %" PRIu64 " MiB of them by user %u: further ones of that user fail with "
              "ENOSPC until some have gone on. `runfs status` says what they wait for",
              bytes >> 20, of_user >> 20, (unsigned)uid);
}

bool kept_take(struct kept *k, uid_t uid, uint64_t bytes, bool must)
{
    kept_lock(k);
    uint64_t *of = &k->of[uid % KEPT_USERS];
    uint64_t left = k->bytes < KEPT_MAX ? KEPT_MAX - k->bytes : 0;
    bool fits = must || *of + bytes <= left;
    /* One line each time that the bound is reached: thousands of writers a second may find it
     * so. */
    bool news = !fits && !k->logged;
    uint64_t all = k->bytes, of_user = *of;
    if (fits) {
        k->bytes += bytes;
        *of += bytes;
    }
    k->logged = k->logged || news;
    kept_unlock(k);
    if (news)
        log_full(all, of_user, uid);
    return fits;
}

void kept_give(struct kept *k, uid_t uid, uint64_t bytes)
{
    kept_lock(k);
    k->bytes -= bytes;
    k->of[uid % KEPT_USERS] -= bytes;
    if (k->bytes == 0)
        k->logged = false;
    kept_unlock(k);
}

uint64_t kept_bytes(struct kept *k)
{
    kept_lock(k);
    uint64_t bytes = k->bytes;
    kept_unlock(k);
    return bytes;
}
