/* What the tests of publish units share: a cache over two stores, the first of which has "a/"
 * with a policy of units: c-1, c-2 and so on, complete at "done", with the pointer "latest".
 * Include it once. */
#ifndef RUNFS_TESTS_LIB_UNIT_STORIES_H
#define RUNFS_TESTS_LIB_UNIT_STORIES_H

#include "cache/core/core.h"
#include "common/mem.h"
#include "tests/lib/routed_cache.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define HOUR (3600 * NS_PER_SEC)

static const struct routed_row rows[] = {
    {.path = "a/**", .leaf = 0, .policy = 1},
    {.path = "**", .leaf = 1},
};

static struct routed_world w;

/* The keys that the first store was sent, in that order, each behind a space; not what lies in
 * its state. */
static char sent[4096];

static pthread_mutex_t sent_lock = PTHREAD_MUTEX_INITIALIZER;

static void watch(unsigned leaf, const struct call *c)
{
    if (leaf != 0 || c->kind != CALL_PUT ||
        strncmp(c->key, STORE_STATE_DIR, strlen(STORE_STATE_DIR)) == 0)
        return;
    (void)pthread_mutex_lock(&sent_lock);
    size_t len = strlen(sent);
    (void)snprintf(sent + len, sizeof(sent) - len, " %s", c->key);
    (void)pthread_mutex_unlock(&sent_lock);
}

static inline void forget_sent(void)
{
    (void)pthread_mutex_lock(&sent_lock);
    sent[0] = '\0';
    (void)pthread_mutex_unlock(&sent_lock);
}

static inline bool was_sent(const char *key)
{
    (void)pthread_mutex_lock(&sent_lock);
    bool was = strstr(sent, key);
    (void)pthread_mutex_unlock(&sent_lock);
    return was;
}

static void setup(void)
{
    struct policy *p = &w.policies[1];

    routed_init(&w, rows, ARRAY_SIZE(rows), ROUTED_S3);
    p->unit = (char *)(uintptr_t) "names";
    p->unit_names = (char *)(uintptr_t) "c-#";
    p->unit_done = (char *)(uintptr_t) "done";
    p->unit_pointer = (char *)(uintptr_t) "latest";
    p->unit_idle_ns = HOUR;
    w.d.config.settle_ns = 0;
    w.d.config.retry_ns = 20 * NS_PER_MS;
    forget_sent();
    atomic_store(&w.watch, watch);
}

static void teardown(void)
{
    routed_release(&w);
}

static void mounted(void)
{
    struct stat st;

    driven_mount(&w.d);
    if (driven_stat(&w.d, "a", &st) != 0)
        ck_assert_int_eq(driven_mkdir(&w.d, "a"), 0);
}

/* Changes of the policy while it is mounted. */
static inline void now_idle(int64_t unit_idle_ns)
{
    cache_lock(w.d.cache);
    w.policies[1].unit_idle_ns = unit_idle_ns;
    cache_unlock(w.d.cache);
}

static inline void now_durable(int durability)
{
    cache_lock(w.d.cache);
    w.policies[1].durability = durability;
    cache_unlock(w.d.cache);
}

static void made(const char *dir)
{
    ck_assert_int_eq(driven_mkdir(&w.d, dir), 0);
}

static void put(const char *path)
{
    driven_put(&w.d, path, path, strlen(path));
}

static bool has(const char *path)
{
    return routed_has(&w, 0, path);
}

/* What may go is gone: a file outside of all units, closed after what is asked for, is there.
 */
static void all_that_goes_is_gone(void)
{
    static int n;
    char path[32];

    for (int i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof(path), "a/later-%d", n++);
        put(path);
        DRIVEN_WAIT(has(path));
    }
}

#endif
