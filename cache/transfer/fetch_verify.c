/* Whether a complete file is what the store's checksum says. */
#include "cache/transfer/transfer_impl.h"

#include "cache/types/etag.h"
#include "cache/types/sums.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- is it right? ---- */

#define CHUNK (UINT64_C(1) << 20)

int file_sum(int fd, uint64_t size, struct checksum *sum)
{
    auto_free char *chunk = malloc(CHUNK);

    if (!chunk)
        return -ENOMEM;
    for (uint64_t off = 0; off < size;) {
        ssize_t n = pread(fd, chunk, size - off < CHUNK ? size - off : CHUNK, (off_t)off);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        checksum_add(sum, chunk, (size_t)n);
        off += (uint64_t)n;
    }
    return 0;
}

/* What the store says the version's checksum is; none when it says nothing. */
static int ask_checksum(struct cache *c, struct node *n, struct checksum *ret)
{
    auto_place struct place at = NO_PLACE;
    auto_free char *etag = NULL;
    struct object obj = {0};
    struct op op;

    *ret = (struct checksum){0};
    cache_lock(c);
    bool none = n->flags & NODE_NO_SUM;
    cache_unlock(c);
    if (none || fetch_source(c, n, &at, &etag) < 0 ||
        !store_can(c->store, at.key, STORE_CHECKSUM))
        return 0;
    cache_op(c, &op);
    int r = store_stat(c->store, &op, at.key, &obj);
    if (r == 0 && etag && strcmp(etag, obj.etag) == 0)
        *ret = obj.checksum;
    object_release(&obj);
    /* It is gone, or another version is there: the bytes that came are the last there are. */
    return r == -ENOENT || r == 0 ? 0 : r;
}

/* The sum of `kind`, read from the file unless `known` is of that kind. */
static int sum_of(int fd, uint64_t size, const struct checksum *known, enum checksum_kind kind,
                  struct checksum *ret)
{
    *ret = (struct checksum){.kind = kind};
    if (known->kind == kind) {
        *ret = *known;
        return 0;
    }
    return file_sum(fd, size, ret);
}

/* Compares the file with `sum`, or with what the store says when that is not known or does not
 * fit. 0, -EIO when it is damaged, or another error. */
static int fetch_verify(struct cache *c, struct node *n, int fd, uint64_t size,
                        const struct checksum *known, struct checksum *sum)
{
    struct checksum found = {0}, told;
    int r = sum->kind == CHECKSUM_NONE ? 0 : sum_of(fd, size, known, sum->kind, &found);

    if (r < 0 || (sum->kind != CHECKSUM_NONE && checksum_same(&found, sum)))
        return r;
    r = ask_checksum(c, n, &told);
    if (r < 0)
        return r;
    if (told.kind == CHECKSUM_NONE)
        return sum->kind == CHECKSUM_NONE ? 0 : -EIO;
    cache_lock(c);
    c->transfer->sum_kind = told.kind; /* what the next ones are summed with */
    cache_unlock(c);
    r = sum_of(fd, size, known, told.kind, &found);
    *sum = told;
    return r < 0 ? r : checksum_same(&found, &told) ? 0 : -EIO;
}

int fetch_verify_complete(struct cache *c, struct fetch *fetch, int fd, struct checksum *ret)
{
    struct node *n = fetch->node;
    struct file *f = n->file;

    cache_lock(c);
    uint64_t size = n->size;
    bool whole = fetch->off == 0 && fetch->end == size;
    struct checksum sum = f->sum, known = {0};
    if (!f->verify)
        (void)sums_whole(&f->sums, size, &known);
    cache_unlock(c);
    int r = 0;
    if (whole && fetch->verified.kind != CHECKSUM_NONE)
        sum = fetch->verified;
    else if (size > 0)
        r = fetch_verify(c, n, fd, size, &known, &sum);
    if (r == 0)
        *ret = sum;
    return r;
}

void fetch_compared_locked(struct node *n)
{
    for (struct entry *e = n->links; e; e = e->next_link)
        if (n->file->etag && etag_is(&e->etag, n->file->etag))
            entry_compared_locked(e, true);
}
