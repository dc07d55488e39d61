/* The parts of a cache that core/ has. */
#include "tests/lib/room/room_impl.h"

#include <stdlib.h>

void room_ends_with(struct cache *c, part_end end)
{
    struct room *r = (struct room *)c;

    ck_assert_uint_lt(r->n, PARTS_MAX);
    r->ends[r->n++] = end;
}

static void free_core(struct cache *c)
{
    free(c->write_failure.text);
    free(c->read_failure.text);
    (void)pthread_cond_destroy(&c->progress);
    (void)pthread_cond_destroy(&c->kick);
    (void)pthread_cond_destroy(&c->wake);
    mutex_destroy(&c->lock);
    log_queue_release(&c->log);
    for (size_t i = 0; i < STAMP_LOCKS; i++)
        mutex_destroy(&c->stamp_locks[i]);
    rwlock_destroy(&c->ns);
}

struct cache *room_core(void)
{
    struct room *r = calloc(1, sizeof(*r));

    ck_assert_ptr_nonnull(r);
    struct cache *c = &r->cache;
    c->config.identity = "room";
    c->config.retry_ns = 1 * NS_PER_SEC;
    c->config.settle_ns = 1 * NS_PER_SEC;
    c->config.late_ns = 10 * NS_PER_SEC;
    c->config.file_mode = 0644;
    c->config.dir_mode = 0755;
    c->config.upload_jobs = 1;
    rwlock_init(&c->ns);
    mutex_init(&c->lock);
    for (size_t i = 0; i < STAMP_LOCKS; i++)
        mutex_init(&c->stamp_locks[i]);
    cond_init(&c->progress);
    cond_init(&c->kick);
    cond_init(&c->wake);
    log_queue_init(&c->log);
    c->wake_tail = &c->wake_list;
    waitq_init(&c->space_waiters);
    waitq_init(&c->flush_waiters);
    room_ends_with(c, free_core);
    return c;
}

void room_free(struct cache *c)
{
    struct room *r = (struct room *)c;

    while (r->n > 0)
        r->ends[--r->n](c);
    free(r);
}
