/* The parts of a cache that core/ has. */
#include "tests/lib/room/room_impl.h"

#include <stdlib.h>

void room_ends_with(struct cache *c, part_end end)
{
    struct room *r = (struct room *)c;

    ck_assert_uint_lt(r->n, PARTS_MAX);
    r->ends[r->n++] = end;
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
    core_init(c);
    room_ends_with(c, core_release);
    return c;
}

void room_free(struct cache *c)
{
    struct room *r = (struct room *)c;

    while (r->n > 0)
        r->ends[--r->n](c);
    free(r);
}
