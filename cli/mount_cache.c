/* The cache of a mount, as it is found. */
#include "cli/mount_cache.h"

#include "cache/offline.h"
#include "cli/identity.h"
#include "cli/predecessor.h"
#include "common/mem.h"

#include <errno.h>

static int count_pending(void *arg, const struct cache_pending *p)
{
    (void)p;
    ++*(unsigned *)arg;
    return 0;
}

int mount_cache_check_former(const struct store *store, const char *mountpoint, struct op *op)
{
    auto_free char *dir = identity_former_dir(store->url, store->endpoint, mountpoint);
    struct op listing;
    unsigned owed = 0;

    op_init(&listing, OP_FOREVER);
    listing.cancelled = op->cancelled;
    if (!dir || access(dir, F_OK) < 0)
        return 0;
    int r = recover_list(dir, &listing, count_pending, &owed);
    if (r == -EINTR || r == -EBUSY)
        return op_fail(op, r, "%s", listing.why);
    if (r == 0 && owed == 0)
        return 0;
    return op_fail(op, -EEXIST,
                   "cache %s was made for this bucket and mountpoint without the endpoint %s, "
                   "and holds what is not published: see 'runfs recover --list %s', and "
                   "publish that, with -o endpoint= if it belongs there, or give cache_dir",
                   dir, store->endpoint, dir);
}

/* In words: an identity is a text for programs. */
static int tell_difference(const struct cache_config *config, struct op *op)
{
    auto_free char *of_cache = NULL;
    auto_free char *words = NULL;
    struct op reading;

    op_init(&reading, OP_FOREVER);
    if (recover_identity(config->dir, &reading, &of_cache) == 0)
        words = identity_difference(of_cache, config->identity, "the mount");
    if (!words)
        return -EEXIST; /* cache_new() told it in its words */
    return op_fail(op, -EEXIST,
                   "cache %s holds what is not published: %.200s; mount that again, or run "
                   "'runfs recover %s', or use another cache_dir",
                   config->dir, words, config->dir);
}

int mount_cache_open(const struct cache_config *config, struct store *store,
                     int64_t patience_ns, struct op *op, struct cache **ret)
{
    struct predecessor predecessor = {0};
    struct op wait;
    int err, r;

    op_init(&wait, patience_ns);
    wait.cancelled = op->cancelled;
    op->deadline_ns = OP_FOREVER; /* recovery takes as long as it takes */
    do {
        err = cache_new(config, store, op, ret);
        wait.why[0] = '\0';
        r = err == -EBUSY ? predecessor_await(config->dir, &predecessor, &wait) : err;
    } while (err && r == 0);
    if (r == -EEXIST)
        return tell_difference(config, op);
    return *wait.why ? op_fail(op, r, "%s", wait.why) : r;
}
