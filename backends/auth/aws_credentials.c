/* The keys that are kept: when they are searched for anew, and by whom. */
#include "backends/auth/aws_credentials.h"

#include "backends/auth/aws_chain.h"
#include "backends/auth/aws_fetch.h"
#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Ahead of the end of keys one thread looks for new ones while the others go on; close before
 * it everyone waits for them. Of short-lived keys a part of their life. */
#define SOON_NS        (10 * 60 * NS_PER_SEC)
#define NOW_NS         (60 * NS_PER_SEC)
#define SOON_PART      4
#define NOW_PART       20
#define RETRY_NS       (10 * NS_PER_SEC) /* after a search that failed */
#define REST_NS        (20 * NS_PER_SEC) /* after one that did not, whatever our clock says */
#define FILES_NS       (10 * NS_PER_SEC) /* how often the profile files are looked at */
#define REFUSED_NS     (5 * NS_PER_SEC)
#define MAYBE_NS       (60 * NS_PER_SEC)
#define WAIT_SLICE_NS  (100 * NS_PER_MS)
#define SOON_TIMEOUT   (15 * NS_PER_SEC) /* a search that could also be made later */
#define SEARCH_TIMEOUT (90 * NS_PER_SEC)

struct aws_credentials {
    char *profile;
    char *ca_bundle;
    int64_t rest_ns, retry_ns;
    struct aws_fetch fetch;              /* of the thread that searches */
    struct mutex lock;                   /* guards `now`; given back while one searches */
    pthread_cond_t done;                 /* a search ended */
    struct {                             /* under lock */
        struct aws_keys keys;            /* access_key NULL: none yet */
        struct aws_profiles_stamp files; /* what the keys were read beside */
        bool searching;
        int64_t found_ns;      /* CLOCK_REALTIME of the last search that found keys */
        int64_t rest_until_ns; /* CLOCK_MONOTONIC; no search before, but for refused keys */
        int64_t look_ns;       /* ... when to look at the files again */
        int64_t refused_ns;    /* ... the last search for refused keys; 0: none yet */
        int err;               /* of the last search */
        char why[sizeof(((struct op *)0)->why)];
    } now;
};

int aws_credentials_new(const struct aws_credentials_config *config, struct op *op,
                        struct aws_credentials **ret)
{
    const char *profile = config->profile, *ca_bundle = config->ca_bundle;
    struct aws_credentials *c = calloc(1, sizeof(*c));

    if (!c)
        return op_fail(op, -ENOMEM, "out of memory");
    mutex_init(&c->lock);
    cond_init(&c->done);
    c->profile = profile ? strdup(profile) : NULL;
    c->ca_bundle = ca_bundle ? strdup(ca_bundle) : NULL;
    c->fetch.ca_bundle = c->ca_bundle;
    c->rest_ns = config->rest_ns ? config->rest_ns : REST_NS;
    c->retry_ns = config->retry_ns ? config->retry_ns : RETRY_NS;
    if ((profile && !c->profile) || (ca_bundle && !c->ca_bundle)) {
        aws_credentials_free(c);
        return op_fail(op, -ENOMEM, "out of memory");
    }
    *ret = c;
    return 0;
}

void aws_credentials_free(struct aws_credentials *c)
{
    if (!c)
        return;
    aws_fetch_release(&c->fetch);
    aws_keys_release(&c->now.keys);
    pthread_cond_destroy(&c->done);
    mutex_destroy(&c->lock);
    free(c->profile);
    free(c->ca_bundle);
    free(c);
}

/* --- when --- */

enum need { GOOD, SOON, NOW };

static bool files_changed_locked(struct aws_credentials *c, int64_t now_ns) REQUIRES(&c->lock)
{
    struct aws_profiles_stamp stamp;

    mutex_assert_held(&c->lock);
    if (now_ns < c->now.look_ns)
        return false;
    c->now.look_ns = now_ns + FILES_NS;
    aws_profiles_stamp_now(&stamp);
    return memcmp(&stamp, &c->now.files, sizeof(stamp)) != 0;
}

static enum need need_locked(struct aws_credentials *c) REQUIRES(&c->lock)
{
    int64_t now_ns = clock_mono_ns(), life, left;

    mutex_assert_held(&c->lock);
    if (now_ns < c->now.rest_until_ns)
        return GOOD;
    if (!c->now.keys.access_key)
        return NOW;
    if (files_changed_locked(c, now_ns))
        return SOON;
    if (c->now.keys.expires_ns == AWS_KEYS_FOREVER)
        return GOOD;
    life = c->now.keys.expires_ns - c->now.found_ns;
    left = c->now.keys.expires_ns - clock_real_ns();
    if (left <= (life / NOW_PART < NOW_NS ? life / NOW_PART : NOW_NS))
        return NOW;
    return left <= (life / SOON_PART < SOON_NS ? life / SOON_PART : SOON_NS) ? SOON : GOOD;
}

/* --- a search --- */

static int find(struct aws_credentials *c, struct op *op, struct aws_keys *ret,
                struct aws_profiles_stamp *ret_files)
{
    struct aws_profiles *profiles;
    int err = aws_profiles_load(c->profile, op, &profiles);

    if (err)
        return err;
    *ret_files = *aws_profiles_stamp(profiles);
    err = aws_chain_find(profiles, &c->fetch, op, ret);
    aws_profiles_free(profiles);
    return err;
}

/* Searches without the lock. What was found replaces the old keys; what failed leaves them. */
static void search_locked(struct aws_credentials *c, const struct op *op, int64_t patience_ns)
    REQUIRES(&c->lock)
{
    struct aws_profiles_stamp files = c->now.files;
    struct aws_keys keys = {0};
    struct op own = *op;
    int64_t latest = clock_mono_ns() + patience_ns;
    int err;

    mutex_assert_held(&c->lock);
    c->now.searching = true;
    mutex_unlock(&c->lock);
    own.why[0] = '\0';
    if (own.deadline_ns > latest)
        own.deadline_ns = latest;
    err = find(c, &own, &keys, &files);
    mutex_lock(&c->lock);
    c->now.searching = false;
    c->now.err = err;
    memcpy(c->now.why, own.why, sizeof(own.why));
    c->now.rest_until_ns = clock_mono_ns() + (err ? c->retry_ns : c->rest_ns);
    if (err == -EINTR || (err == -ETIMEDOUT && op_left_ns(op) == 0))
        c->now.rest_until_ns = 0; /* that was the caller's, not the search's end */
    c->now.files = files;
    if (!err) {
        aws_keys_release(&c->now.keys);
        c->now.keys = keys;
        c->now.found_ns = clock_real_ns();
    }
    pthread_cond_broadcast(&c->done);
}

static int wait_search_locked(struct aws_credentials *c, struct op *op) REQUIRES(&c->lock)
{
    int err = 0;

    mutex_assert_held(&c->lock);
    while (c->now.searching && !(err = op_check(op)))
        (void)mutex_wait_until(&c->lock, &c->done, clock_mono_ns() + WAIT_SLICE_NS);
    return err;
}

/* --- keys --- */

static int copy_locked(struct aws_credentials *c, struct op *op, struct aws_keys *ret)
    REQUIRES(&c->lock)
{
    int64_t past;
    int err;

    mutex_assert_held(&c->lock);
    if (!c->now.keys.access_key)
        return op_fail(op, c->now.err, "%s", c->now.why);
    past = clock_real_ns() - c->now.keys.expires_ns;
    if (c->now.err && past > 0)
        return op_fail(op, c->now.err, "the keys ended %lld s ago: %s",
                       (long long)(past / NS_PER_SEC), c->now.why);
    err = aws_keys_copy(ret, &c->now.keys);
    return err ? op_fail(op, err, "out of memory") : 0;
}

int aws_credentials_get(struct aws_credentials *c, struct op *op, struct aws_keys *ret)
{
    enum need need;
    int err = 0;

    mutex_lock(&c->lock);
    for (;;) {
        need = need_locked(c);
        if (!c->now.searching || need != NOW)
            break;
        err = wait_search_locked(c, op);
        if (err)
            break;
    }
    if (!err && need != GOOD && !c->now.searching)
        search_locked(c, op, need == SOON ? SOON_TIMEOUT : SEARCH_TIMEOUT);
    if (!err)
        err = copy_locked(c, op, ret);
    mutex_unlock(&c->lock);
    return err;
}

bool aws_credentials_refused(struct aws_credentials *c, struct op *op,
                             const struct aws_keys *keys, bool sure)
{
    int64_t now_ns = clock_mono_ns();
    bool others;

    mutex_lock(&c->lock);
    others = !wait_search_locked(c, op) && !aws_keys_same(&c->now.keys, keys);
    if (!others && !c->now.searching &&
        (!c->now.refused_ns || now_ns - c->now.refused_ns > (sure ? REFUSED_NS : MAYBE_NS))) {
        c->now.refused_ns = now_ns;
        search_locked(c, op, SEARCH_TIMEOUT);
        others = !c->now.err && !aws_keys_same(&c->now.keys, keys);
        if (c->now.err)
            memcpy(op->why, c->now.why, sizeof(op->why));
    }
    mutex_unlock(&c->lock);
    return others;
}
