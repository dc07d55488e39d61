/* What http.c and pool.c share: handles of libcurl, for one transfer at a time each. Any
 * thread. */
#ifndef RUNFS_BACKENDS_HTTP_POOL_H
#define RUNFS_BACKENDS_HTTP_POOL_H

#include "backends/http/http.h"
#include "common/lock.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* One easy handle and the multi handle that owns its connections. */
struct http_slot {
    CURL *easy;
    CURLM *multi;
    struct http_slot *next;
    char error[CURL_ERROR_SIZE];
};

struct http {
    bool allow_plain;
    bool direct;
    char *ca_file;
    int64_t connect_timeout_ns;
    int64_t silence_ns;
    unsigned idle_max;
    CURLSH *share;                                    /* DNS and TLS sessions */
    pthread_mutex_t share_locks[CURL_LOCK_DATA_LAST]; /* libcurl's: one for each kind */
    struct mutex lock;                                /* guards what is marked */
    struct http_slot *idle; /* under lock; the last used comes first: its connection is warm */
    unsigned n_idle;        /* under lock */
};

/* The handle used last, or a new one; the caller's until it is put back. NULL without memory.
 */
struct http_slot *http_slot_take(struct http *h);
void http_slot_put(struct http *h, struct http_slot *slot);

/* An easy handle for one transfer; the connection stays with the multi handle. A handle that is
 * used again remembers the last header of the answer before, even after curl_easy_reset(), and
 * an answer that begins with a folded line then writes into freed memory (curl issue 11101: in
 * 7.83 to 8.1.0, Debian 12's among them). */
bool http_slot_begin(struct http_slot *slot);
void http_slot_end(struct http_slot *slot);

#endif
