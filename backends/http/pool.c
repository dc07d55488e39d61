/* The handles of libcurl: idle ones, and the DNS and TLS sessions that they share. */
#include "backends/http/pool.h"

#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_NS (10 * NS_PER_SEC)
#define SILENCE_NS         (30 * NS_PER_SEC)
#define IDLE_MAX           64

static void share_lock(CURL *easy, curl_lock_data data, curl_lock_access access, void *arg)
{
    struct http *h = arg;

    (void)easy;
    (void)access;
    pthread_mutex_lock(&h->share_locks[data]);
}

static void share_unlock(CURL *easy, curl_lock_data data, void *arg)
{
    struct http *h = arg;

    (void)easy;
    pthread_mutex_unlock(&h->share_locks[data]);
}

static void slot_free(struct http_slot *slot)
{
    if (!slot)
        return;
    if (slot->easy)
        curl_easy_cleanup(slot->easy);
    if (slot->multi)
        curl_multi_cleanup(slot->multi);
    free(slot);
}

static struct http_slot *slot_new(void)
{
    struct http_slot *slot = calloc(1, sizeof(*slot));

    if (!slot)
        return NULL;
    slot->multi = curl_multi_init();
    if (!slot->multi) {
        slot_free(slot);
        return NULL;
    }
    curl_multi_setopt(slot->multi, CURLMOPT_MAXCONNECTS, 1L);
    return slot;
}

bool http_slot_begin(struct http_slot *slot)
{
    slot->easy = curl_easy_init();
    return slot->easy != NULL;
}

void http_slot_end(struct http_slot *slot)
{
    curl_easy_cleanup(slot->easy);
    slot->easy = NULL;
}

struct http_slot *http_slot_take(struct http *h)
{
    struct http_slot *slot;

    mutex_lock(&h->lock);
    slot = h->idle;
    if (slot) {
        h->idle = slot->next;
        h->n_idle--;
    }
    mutex_unlock(&h->lock);
    return slot ? slot : slot_new();
}

void http_slot_put(struct http *h, struct http_slot *slot)
{
    mutex_lock(&h->lock);
    if (h->n_idle < h->idle_max) {
        slot->next = h->idle;
        h->idle = slot;
        h->n_idle++;
        slot = NULL;
    }
    mutex_unlock(&h->lock);
    slot_free(slot);
}

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_start(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int share_init(struct http *h)
{
    h->share = curl_share_init();
    if (!h->share)
        return -ENOMEM;
    if (curl_share_setopt(h->share, CURLSHOPT_LOCKFUNC, share_lock) ||
        curl_share_setopt(h->share, CURLSHOPT_UNLOCKFUNC, share_unlock) ||
        curl_share_setopt(h->share, CURLSHOPT_USERDATA, h) ||
        curl_share_setopt(h->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS) ||
        curl_share_setopt(h->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION))
        return -EIO;
    return 0;
}

int http_new(const struct http_config *config, struct op *op, struct http **ret)
{
    struct http *h;
    int err;

    if (config->ca_file && access(config->ca_file, R_OK) != 0)
        return op_fail(op, -EINVAL, "CA file %s: %s", config->ca_file, strerror(errno));
    pthread_once(&curl_once, curl_start);
    h = calloc(1, sizeof(*h));
    if (!h)
        return op_fail(op, -ENOMEM, "out of memory");
    for (size_t i = 0; i < ARRAY_SIZE(h->share_locks); i++)
        pthread_mutex_init(&h->share_locks[i], NULL);
    mutex_init(&h->lock);
    h->allow_plain = config->allow_plain;
    h->direct = config->direct;
    h->connect_timeout_ns =
        config->connect_timeout_ns ? config->connect_timeout_ns : CONNECT_TIMEOUT_NS;
    h->silence_ns = config->silence_ns ? config->silence_ns : SILENCE_NS;
    h->idle_max = config->idle_max ? config->idle_max : IDLE_MAX;
    h->ca_file = config->ca_file ? strdup(config->ca_file) : NULL;
    err = config->ca_file && !h->ca_file ? -ENOMEM : share_init(h);
    if (err) {
        http_free(h);
        return op_fail(op, err, "libcurl: cannot start");
    }
    *ret = h;
    return 0;
}

void http_free(struct http *h)
{
    if (!h)
        return;
    while (h->idle) {
        struct http_slot *slot = h->idle;

        h->idle = slot->next;
        slot_free(slot);
    }
    if (h->share)
        curl_share_cleanup(h->share);
    for (size_t i = 0; i < ARRAY_SIZE(h->share_locks); i++)
        pthread_mutex_destroy(&h->share_locks[i]);
    mutex_destroy(&h->lock);
    free(h->ca_file);
    free(h);
}
