/* Whether what another node put is what was to be uploaded: then nobody lost. */
#include "cache/transfer/upload.h"

#include "common/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define RANGE_BYTES (UINT64_C(32) << 20) /* in one request */

/* Whether two that have no content are the same thing. */
static bool is_same_special(const struct attrs *ours, const struct attrs *theirs)
{
    if (S_ISLNK(ours->mode))
        return theirs->target && strcmp(theirs->target, ours->target) == 0;
    return S_ISFIFO(ours->mode) || S_ISSOCK(ours->mode) || theirs->rdev == ours->rdev;
}

/* Sums up what is read, in order. A retried read delivers bytes again. */
struct summing {
    struct sink base;
    struct checksum begun, sum; /* before `start`, and now */
    uint64_t start, next;       /* offsets of the request, and behind what was summed */
};

static int add(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct summing *s = container_of(sink, struct summing, base);

    if (off == s->start) {
        s->sum = s->begun;
        s->next = off;
    }
    if (off != s->next)
        return -EIO;
    checksum_add(&s->sum, data, len);
    s->next = off + len;
    return 0;
}

/* Of a store that keeps no checksums it is asked for by reading it all. */
static int read_sum(struct job *j, struct op *op, const struct object *there,
                    struct checksum *ret)
{
    struct summing s = {.base.write = add, .sum.kind = CHECKSUM_CRC32C};

    while (s.next < there->size) {
        uint64_t left = there->size - s.next;
        s.begun = s.sum;
        s.start = s.next;
        cache_op(j->cache, op);
        ssize_t n =
            store_read(j->cache->store, op, j->at.key, there->etag, &s.base,
                       (size_t)(left < RANGE_BYTES ? left : RANGE_BYTES), s.start, NULL);
        if (n < 0)
            return (int)n;
        if (n == 0)
            return op_fail(op, -EAGAIN, "%s became shorter while it was read", j->at.key);
    }
    *ret = s.sum;
    return 0;
}

/* Of a regular file with the size that is to be uploaded. */
static int sum_there(struct job *j, struct op *op, const struct object *there,
                     struct checksum *ret)
{
    *ret = there->checksum;
    if (ret->kind != CHECKSUM_NONE || store_can(j->cache->store, j->at.key, STORE_CHECKSUM))
        return 0;
    return read_sum(j, op, there, ret);
}

static int has_same_bytes(struct job *j, struct op *op, const struct object *there)
{
    struct checksum theirs;

    if (j->live || there->size != (uint64_t)j->st.st_size)
        return 0;
    int r = sum_there(j, op, there, &theirs);
    if (r < 0 || (there->size && theirs.kind == CHECKSUM_NONE))
        return r;
    struct checksum sum = {.kind = theirs.kind};
    r = file_sum(j->fd, there->size, &sum);
    if (r < 0)
        return source_read_failed(j, r);
    r = source_still_same(j);
    return r < 0 ? r : there->size == 0 || checksum_same(&sum, &theirs);
}

int upload_is_same(struct job *j, struct op *op, const struct object *there)
{
    mode_t type = there->attrs.has & ATTR_MODE ? there->attrs.mode & S_IFMT : S_IFREG;

    if (there->is_prefix || type != (j->attrs.mode & S_IFMT))
        return 0;
    return S_ISREG(type) ? has_same_bytes(j, op, there)
                         : is_same_special(&j->attrs, &there->attrs);
}
