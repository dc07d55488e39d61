/* When a lease of ours is held, and when one of theirs has ended: judgements by times alone. */
#include "cache/notes/notes_impl.h"

#include <stdio.h>
#include <string.h>

#define BEATS       3  /* in a ttl */
#define TRIES_AGAIN 12 /* in a ttl: after a failure */

/* ---- ours ---- */

bool lease_times_hold(const struct lease_times *t, int64_t now_ns)
{
    return t->beaten && now_ns - t->began_ns < t->ttl_ns;
}

void lease_times_begin(struct lease_times *t, int64_t now_ns)
{
    if (lease_times_hold(t, now_ns))
        return;
    t->beaten = false;
    t->next_ns = now_ns;
}

int64_t lease_times_patience(const struct lease_times *t, int64_t now_ns)
{
    int64_t left = t->ttl_ns;

    if (lease_times_hold(t, now_ns))
        left -= now_ns - t->began_ns;
    return left > t->ttl_ns / TRIES_AGAIN ? left / 2 : left;
}

bool lease_times_beaten(struct lease_times *t, int64_t began_ns, int64_t now_ns)
{
    bool was_held = lease_times_hold(t, now_ns);

    t->beaten = true;
    t->began_ns = began_ns;
    t->next_ns = began_ns + t->ttl_ns / BEATS;
    if (was_held || !lease_times_hold(t, now_ns))
        return false;
    t->term++;
    return true;
}

void lease_times_failed(struct lease_times *t, int64_t now_ns)
{
    t->next_ns = now_ns + t->ttl_ns / TRIES_AGAIN;
}

/* ---- theirs ---- */

void other_times_told(struct other_times *t, const char *version, int64_t ttl_ns,
                      int64_t own_ttl_ns, int64_t asked_ns, int64_t told_ns)
{
    bool gap = told_ns - t->told_ns > t->ttl_ns / BEATS;

    if (strcmp(t->version, version) != 0 || gap)
        t->since_ns = told_ns;
    if (ttl_ns)
        t->ttl_ns = ttl_ns;
    else if (t->ttl_ns < own_ttl_ns)
        t->ttl_ns = own_ttl_ns;
    (void)snprintf(t->version, sizeof(t->version), "%s", version);
    t->asked_ns = asked_ns;
    t->told_ns = told_ns;
}

/* What the store said is as old as the question. */
enum other_state other_times_state(const struct other_times *t, int64_t late_ns, int64_t now_ns)
{
    int64_t wait_ns;

    if (!*t->version || now_ns - t->told_ns > t->ttl_ns / BEATS)
        return OTHER_UNKNOWN;
    if (__builtin_add_overflow(t->ttl_ns, late_ns + OTHER_MARGIN_NS, &wait_ns))
        return OTHER_LIVES;
    return t->asked_ns - t->since_ns >= wait_ns ? OTHER_ENDED : OTHER_LIVES;
}
