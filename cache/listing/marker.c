/* What the store says of a directory's own marker. */
#include "cache/listing/listing_impl.h"

#include "cache/types/attr_index.h"
#include "cache/types/etag.h"
#include "common/hash.h"
#include "common/lock.h"
#include "common/mem.h"

/* ---- what the store says ---- */

bool dir_attrs_are_ours(struct node *dir)
{
    struct dir *d = dir->dir;

    return dir->is_root || (dir->flags & NODE_ATTR_DIRTY) || d->new_here || d->debt.running ||
           d->kind != DIR_STORED || debt_is_queued(&d->debt) || d->local_only ||
           (dir->links && place_known(dir->links->source));
}

bool dir_asks_locked(struct cache *c, struct node *dir)
{
    auto_place struct place at = c->config.routes ? node_place(dir) : NO_PLACE;

    cache_assert_locked(c);
    return listing_asks_dir(c, at);
}

/* What a listing says of a marker and a HEAD, too; never 0. */
static uint64_t version_of(const struct object *marker)
{
    uint64_t h = (uint64_t)(marker->mtime_ns / NS_PER_SEC) * UINT64_C(0x9e3779b97f4a7c15) + 1;

    h = hash_fnv(h, marker->etag);
    return h ? h : 1;
}

/* Without a marker it is as the mount says. */
static void apply_default(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    const struct object none = {
        .is_prefix = true, .attrs_known = true, .mtime_ns = dir->mtime_ns};

    node_apply_attrs(c, dir,
                     &none); /* its time is what was seen here: nothing else tells one */
    dir->dir->marker_version = 0;
    dir->dir->has_marker = false;
}

bool dir_marker_goes_locked(struct cache *c, struct node *dir, struct place at,
                            int64_t asked_ns)
{
    auto_free char *path = node_path(dir);

    cache_assert_locked(c);
    return path && tombstone_hides(c, at, true, path, asked_ns);
}

void dir_listed_locked(struct cache *c, struct node *dir, const struct object *marker,
                       uint64_t generation)
{
    struct dir *d = dir->dir;

    cache_assert_locked(c);
    if (dir_attrs_are_ours(dir) || !dir_asks_locked(c, dir) || d->generation != generation)
        return;
    if (!marker) {
        if (d->has_marker || !node_attrs_known(dir))
            apply_default(c, dir);
    } else if (version_of(marker) != d->marker_version && marker->attrs_known) {
        dir_told_locked(c, dir, marker, generation);
    } else {
        d->has_marker = true;
        if (version_of(marker) != d->marker_version)
            dir->flags |= NODE_ATTRS_OLD;
    }
}

bool dir_wants_marker_locked(struct node *dir, const struct object *marker)
{
    return !dir_attrs_are_ours(dir) &&
           (!node_attrs_known(dir) || version_of(marker) != dir->dir->marker_version);
}

/* Whether the listed marker is the one that was put from here, with what is shown now. */
static bool is_put(struct node *dir, const struct object *marker) REQUIRES(cache_mutex)
{
    const struct dir *d = dir->dir;
    int64_t modified_s = marker->mtime_ns / NS_PER_SEC;

    return d->put_to_s && modified_s >= d->put_from_s && modified_s <= d->put_to_s &&
           etag_is(&d->put_etag, marker->etag) && !(dir->flags & NODE_ATTR_DIRTY) &&
           !d->new_here && !debt_is_queued(&d->debt) && !d->debt.running &&
           !(dir->links && place_known(dir->links->source));
}

bool dir_marker_attrs_locked(struct node *dir, const struct object *marker, struct attrs *ret,
                             bool *ret_sure)
{
    *ret_sure = dir->dir && !dir_attrs_are_ours(dir) && node_attrs_known(dir) &&
                version_of(marker) == dir->dir->marker_version;
    if (!dir->dir || (!*ret_sure && !is_put(dir, marker)))
        return false;
    *ret = (struct attrs){.has = dir->attrs_has & INDEX_MARKER_ATTRS,
                          .mode = dir->mode,
                          .uid = dir->uid,
                          .gid = dir->gid,
                          .mtime_ns = dir->dir->marker_mtime_ns,
                          .xattrs = dir->xattrs};
    if (!dir->xattrs)
        ret->has &= ~(unsigned)ATTR_XATTRS;
    return true;
}

void dir_told_locked(struct cache *c, struct node *dir, const struct object *marker,
                     uint64_t generation)
{
    struct dir *d = dir->dir;

    cache_assert_locked(c);
    if (dir_attrs_are_ours(dir) || d->generation != generation)
        return;
    if (!marker) {
        apply_default(c, dir);
        return;
    }
    d->has_marker = true;
    node_apply_attrs(c, dir, marker);
    d->marker_mtime_ns = dir->mtime_ns;
    /* Told within the second of its change it may not be the last of that second. */
    d->marker_version =
        marker->told_ns >= marker->mtime_ns + 2 * NS_PER_SEC ? version_of(marker) : 0;
}
