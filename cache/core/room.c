/* The room's part of a cache: made, freed. */
#include "cache/core/core.h"

#include <stdlib.h>

void core_init(struct cache *c)
{
    rwlock_init(&c->ns);
    mutex_init(&c->lock);
    for (size_t i = 0; i < STAMP_LOCKS; i++)
        mutex_init(&c->stamp_locks[i]);
    cond_init(&c->progress);
    cond_init(&c->kick);
    cond_init(&c->wake);
    log_queue_init(&c->log);
    cache_lock(c);
    c->wake_tail = &c->wake_list;
    waitq_init(&c->space_waiters);
    waitq_init(&c->flush_waiters);
    cache_unlock(c);
}

void core_release(struct cache *c)
{
    cache_lock(c);
    free(c->write_failure.text);
    free(c->read_failure.text);
    cache_unlock(c);
    (void)pthread_cond_destroy(&c->progress);
    (void)pthread_cond_destroy(&c->kick);
    (void)pthread_cond_destroy(&c->wake);
    mutex_destroy(&c->lock);
    log_queue_release(&c->log);
    for (size_t i = 0; i < STAMP_LOCKS; i++)
        mutex_destroy(&c->stamp_locks[i]);
    rwlock_destroy(&c->ns);
}
