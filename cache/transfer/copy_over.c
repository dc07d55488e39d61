/* What the renames of files that an earlier mount left would replace: another node may have put
 * something under the new name since. That stays, and so does the file, under its old name. */
#include "cache/transfer/copy.h"

#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>

/* Whether it is what the name has here, or goes by an older removal. */
static bool is_known_here(struct copying *k, const struct object *there)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;

    cache_lock(c);
    bool ret = tree_find(c, k->to, &e) && e && etag_is(&e->etag, there->etag);
    for (struct intent *i = row_of_name_locked(c, k->to); i && i->seq < k->intent->seq && !ret;
         i = row_of_name_next(i))
        ret = i->kind == INTENT_UNLINK && copy_is_taken(i, there->etag, false);
    cache_unlock(c);
    return ret;
}

/* A link in a folder has no origin; one that leads to the same place is as good. */
static bool has_same_origin(const struct attrs *a, const struct attrs *b)
{
    if (a->has & b->has & ATTR_ORIGIN)
        return a->origin == b->origin && a->origin_ns == b->origin_ns;
    return !((a->has | b->has) & ATTR_ORIGIN) && (a->has & b->has & ATTR_TARGET) &&
           strcmp(a->target, b->target) == 0;
}

/* Whether it is a copy of what is to be renamed, which an earlier mount made: it has the origin
 * of the old name. */
static int is_copy(struct copying *k, struct op *op, const struct object *there)
{
    struct object from = {0};
    int r = there->attrs.has & (ATTR_ORIGIN | ATTR_TARGET)
                ? store_stat(k->cache->store, op, place_of_path(k->from).key, &from)
                : -ENOENT;
    bool same = r == 0 && has_same_origin(&from.attrs, &there->attrs);

    object_release(&from);
    return r < 0 && r != -ENOENT ? r : same;
}

/* 1, 0 or a negative errno. */
static int is_theirs(struct copying *k, struct op *op, const char *renamed,
                     const struct object *there)
{
    if (there->is_prefix || strcmp(there->etag, k->intent->over) == 0 ||
        strcmp(there->etag, renamed) == 0 ||
        origin_is_ours(k->cache, place_of_path(k->to), &there->attrs) ||
        is_known_here(k, there))
        return 0;
    int r = is_copy(k, op, there);
    return r < 0 ? r : !r;
}

int copy_finds_theirs(struct copying *k, struct op *op, const char *renamed, bool *ret)
{
    struct object there = {0};

    *ret = false;
    if (!k->intent->over || !intent_was_found(k->cache, k->intent))
        return 0;
    int r = store_stat(k->cache->store, op, place_of_path(k->to).key, &there);
    if (r == 0)
        r = is_theirs(k, op, renamed, &there);
    object_release(&there);
    *ret = r == 1;
    return r < 0 && r != -ENOENT ? r : 0;
}

void copy_expect_over_locked(struct copying *k)
{
    const char *over = k->intent->over;
    struct entry *e = NULL;

    if (!copy_reader_locked(k->cache, k->intent, k->from, k->to, &e))
        return;
    entry_replaces_locked(e, strcmp(over, INTENT_OURS) == 0 ? NULL : over);
    entry_owed_before_locked(e);
}

void copy_over_goes_on_locked(struct copying *k)
{
    struct intent *i = row_next(k->intent);

    while (i && !(i->kind == INTENT_RENAME && strcmp(i->to, k->to) == 0))
        i = row_next(i);
    if (i && !i->over)
        SWAP(i->over, k->intent->over);
}

void copy_leave_locked(struct copying *k)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;
    struct op op = {0};
    int r = op_fail(&op, -ESTALE,
                    "%s/%s was renamed here to %s, but somebody else had put that meanwhile: "
                    "their version stays, and %s, too",
                    c->store->url, k->from, k->to, k->from);

    cache_assert_locked(c);
    log_later(&c->log, LOG_LEVEL_ERROR, "%s", op.why);
    failure_note_locked(c, &c->write_failure, r, op.why);
    if (tree_find(c, k->to, &e) && e) {
        entry_owed_before_locked(e);
        entry_verified_locked(e, 0); /* the next look asks what is there */
        entry_expire(e);
    }
    name_is_the_stores_locked(c, k->from);
    name_is_the_stores_locked(c, k->to);
}
