/* Names that requests may still change which nobody waits for any more: deletes and copies of a
 * daemon that was killed can take effect at the store after the next daemon began, and a delete
 * whose answer was lost after it was repeated, where those are requests that carry no condition
 * or a server that does not look at it. Until `late_window` is over nothing new is put there.
 * docs/format.md, section 7.
 *
 * Of a daemon that was killed the names are those of the intentions that were found in the
 * journal at the mount. */
#include "cache/queue/queue_impl.h"

#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

struct doubt {
    UT_hash_handle hh; /* in queue_own.doubt, by key */
    bool copied;       /* something may still be copied there */
    char key[];
};

struct doubt_dir {
    struct doubt_dir *next;
    char key[]; /* with all below it */
};

/* An upload that failed, or that a killed daemon may have begun: it may still arrive, where the
 * version that it is bound to comes back. */
struct doubt_put {
    UT_hash_handle hh; /* in queue_own.doubt_puts, by key */
    int64_t until_ns GUARDED_BY(cache_mutex);
    char *etag; /* that version; "" none */
    char key[];
};

/* A delete, or a copy, of this daemon that may still arrive. */
struct doubt_change {
    UT_hash_handle hh; /* in queue_own.doubt_changes, by key */
    int64_t until_ns GUARDED_BY(cache_mutex);
    bool removed GUARDED_BY(cache_mutex), copied GUARDED_BY(cache_mutex); /* which of them */
    char key[];
};

static int add_key(struct cache *c, struct place at, bool copied) REQUIRES(cache_mutex)
{
    size_t len = strlen(at.key);
    struct doubt *l = NULL;

    HASH_FIND(hh, c->queue->own->doubt, at.key, len, l);
    if (!l) {
        l = calloc(1, sizeof(*l) + len + 1);
        if (!l)
            return -ENOMEM;
        memcpy(l->key, at.key, len);
        HASH_ADD(hh, c->queue->own->doubt, key, len, l);
        if (TABLE_LACKS(hh, l)) {
            free(l);
            return -ENOMEM;
        }
    }
    l->copied = l->copied || copied;
    return 0;
}

static int add_dir(struct cache *c, struct place at) REQUIRES(cache_mutex)
{
    size_t len = strlen(at.key);
    struct doubt_dir *d = calloc(1, sizeof(*d) + len + 1);

    if (!d)
        return -ENOMEM;
    memcpy(d->key, at.key, len);
    LL_PREPEND(c->queue->own->doubt_dirs, d);
    return 0;
}

static void put_free(struct cache *c, struct doubt_put *p) REQUIRES(cache_mutex)
{
    HASH_DEL(c->queue->own->doubt_puts, p);
    free(p->etag);
    free(p);
}

static void purge(struct cache *c, int64_t now) REQUIRES(cache_mutex)
{
    struct doubt_put *p, *next;
    struct doubt_change *r, *next_r;

    HASH_ITER(hh, c->queue->own->doubt_puts, p, next)
    {
        if (p->until_ns <= now)
            put_free(c, p);
    }
    HASH_ITER(hh, c->queue->own->doubt_changes, r, next_r)
    {
        if (r->until_ns <= now) {
            HASH_DEL(c->queue->own->doubt_changes, r);
            free(r);
        }
    }
}

static int add_change_locked(struct cache *c, struct place at, bool copied)
    REQUIRES(cache_mutex)
{
    int64_t now = clock_mono_ns();
    size_t len = strlen(at.key);
    struct doubt_change *r = NULL;

    purge(c, now);
    HASH_FIND(hh, c->queue->own->doubt_changes, at.key, len, r);
    if (!r) {
        r = calloc(1, sizeof(*r) + len + 1);
        if (!r)
            return -ENOMEM;
        memcpy(r->key, at.key, len);
        HASH_ADD(hh, c->queue->own->doubt_changes, key, len, r);
        if (TABLE_LACKS(hh, r)) {
            free(r);
            return -ENOMEM;
        }
    }
    r->until_ns = now + c->config.late_ns;
    r->removed = r->removed || !copied;
    r->copied = r->copied || copied;
    return 0;
}

int doubt_removal_locked(struct cache *c, struct place at)
{
    cache_assert_locked(c);
    return add_change_locked(c, at, false);
}

void doubt_copy(struct cache *c, struct place at)
{
    cache_lock(c);
    (void)add_change_locked(c, at, true);
    cache_unlock(c);
}

static const struct doubt_change *doubt_change_at(struct cache *c, struct place at)
    REQUIRES(cache_mutex)
{
    struct doubt_change *r = NULL;

    HASH_FIND(hh, c->queue->own->doubt_changes, at.key, strlen(at.key), r);
    return r && r->until_ns > clock_mono_ns() ? r : NULL;
}

/* Whether something may be taken away there. */
static bool removal_may_arrive(struct cache *c, struct place at) REQUIRES(cache_mutex)
{
    const struct doubt_change *r = doubt_change_at(c, at);

    return r && r->removed;
}

/* Whether something may appear there. */
static bool copy_may_arrive(struct cache *c, struct place at) REQUIRES(cache_mutex)
{
    const struct doubt_change *r = doubt_change_at(c, at);

    return r && r->copied;
}

int doubt_put_locked(struct cache *c, struct place at, const char *etag)
{
    int64_t now = clock_mono_ns();
    size_t len = strlen(at.key);
    struct doubt_put *p = NULL;
    char *copy = strdup(etag);

    cache_assert_locked(c);
    if (!copy)
        return -ENOMEM;
    purge(c, now);
    HASH_FIND(hh, c->queue->own->doubt_puts, at.key, len, p);
    if (!p) {
        p = calloc(1, sizeof(*p) + len + 1);
        if (p) {
            memcpy(p->key, at.key, len);
            HASH_ADD(hh, c->queue->own->doubt_puts, key, len, p);
        }
        if (!p || TABLE_LACKS(hh, p)) {
            free(p);
            free(copy);
            return -ENOMEM;
        }
    }
    free(p->etag);
    p->etag = copy;
    p->until_ns = now + c->config.late_ns;
    return 0;
}

int64_t doubt_until_locked(struct cache *c)
{
    cache_assert_locked(c);
    return c->queue->own->doubt_until_ns;
}

int64_t doubt_put_until_locked(struct cache *c, struct place at, const char *etag)
{
    struct doubt_put *p = NULL;

    cache_assert_locked(c);
    HASH_FIND(hh, c->queue->own->doubt_puts, at.key, strlen(at.key), p);
    if (!p || p->until_ns <= clock_mono_ns() || (etag && strcmp(p->etag, etag) != 0))
        return 0;
    return p->until_ns;
}

int64_t doubt_puts_below_until_locked(struct cache *c, struct place dir)
{
    struct doubt_put *p, *next;
    int64_t until_ns = 0;

    cache_assert_locked(c);
    HASH_ITER(hh, c->queue->own->doubt_puts, p, next)
    {
        if (p->until_ns > until_ns && place_below(dir, place_of_key(p->key)))
            until_ns = p->until_ns;
    }
    return until_ns;
}

/* The names of a dirty file that a put may be on its way to. Content whose time did not move
 * since it was equal to the store's was never sent in another version. */
static int add_names(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    char etag[ETAG_TEXT_MAX];
    int r = 0;

    for (struct entry *e = n->links; e && r == 0; e = e->next_link) {
        auto_free char *path = e->dirty ? entry_path(e) : NULL;
        const struct place at = place_of_path(path); /* where uploads go to */
        if (path && (n->flags & NODE_ATTR_DIRTY))
            r = add_change_locked(c, at, true); /* new attributes are a copy */
        struct stamp_key *k = path ? stamp_keys_find(&n->file->keys, at.key) : NULL;
        if (r == 0 && path && !(k && k->mtime_ns == n->mtime_ns && k->size == n->size))
            r = doubt_put_locked(c, at, etag_known(&e->etag) ? etag_text(&e->etag, etag) : "");
    }
    return r;
}

int doubt_begin(struct cache *c)
{
    struct intent *i;
    struct file *f;
    int r = 0;

    cache_lock(c);
    OWED_FILES_FOREACH(c, f)
    {
        if (r == 0)
            r = add_names(c, f->node);
    }
    c->queue->own->doubt_until_ns = clock_mono_ns() + c->config.late_ns;
    ROWS_FOREACH(c, i)
    {
        if (r == 0 && i->kind == INTENT_RENAMEDIR)
            r = add_dir(c, intent_target(i));
        else if (r == 0)
            r = add_key(c, i->to ? intent_target(i) : intent_source(i),
                        i->kind == INTENT_RENAME);
    }
    cache_unlock(c);
    return r;
}

static bool is_over(struct cache *c) REQUIRES(cache_mutex)
{
    return c->queue->own->doubt_until_ns == 0 ||
           clock_mono_ns() >= c->queue->own->doubt_until_ns;
}

/* `copies`: only names where something may appear. */
static bool is_late(struct cache *c, struct place at, bool copies) REQUIRES(cache_mutex)
{
    struct doubt *l = NULL;
    struct doubt_dir *d;

    HASH_FIND(hh, c->queue->own->doubt, at.key, strlen(at.key), l);
    if (l && (l->copied || !copies))
        return true;
    LL_FOREACH(c->queue->own->doubt_dirs, d)
    {
        if (place_below(place_of_key(d->key), at))
            return true;
    }
    return false;
}

bool doubt_blocks_upload_locked(struct cache *c, struct place at, bool content)
{
    cache_assert_locked(c);
    /* New attributes may come to the copy that they are on their way as. */
    return (!is_over(c) && is_late(c, at, false)) || removal_may_arrive(c, at) ||
           (content && copy_may_arrive(c, at));
}

bool doubt_blocks_intent_locked(struct cache *c, const struct intent *i)
{
    cache_assert_locked(c);
    if (i->to ? removal_may_arrive(c, intent_target(i)) : copy_may_arrive(c, intent_source(i)))
        return true;
    if (is_over(c))
        return false;
    if (!i->to)
        return is_late(c, intent_source(i), true);
    /* What is found in the journal is carried out again: with the same result. */
    return i->seq > c->queue->own->found_seq &&
           (is_late(c, intent_source(i), false) || is_late(c, intent_target(i), false));
}

bool doubt_copies_below_locked(struct cache *c, struct place at)
{
    const struct doubt_change *r, *next_r;
    const struct doubt *l, *next;
    const struct doubt_dir *d;

    cache_assert_locked(c);
    HASH_ITER(hh, c->queue->own->doubt_changes, r, next_r)
    {
        const struct place there = place_of_key(r->key);
        if (place_below(at, there) && copy_may_arrive(c, there))
            return true;
    }
    if (is_over(c))
        return false;
    HASH_ITER(hh, c->queue->own->doubt, l, next)
    {
        if (l->copied && place_below(at, place_of_key(l->key)))
            return true;
    }
    LL_FOREACH(c->queue->own->doubt_dirs, d)
    {
        const struct place dir = place_of_key(d->key);
        if (place_below(dir, at) || place_below(at, dir))
            return true;
    }
    return false;
}

void doubt_free(struct cache *c)
{
    struct doubt *l, *next;
    struct doubt_dir *d, *next_dir;

    cache_assert_locked(c);
    HASH_ITER(hh, c->queue->own->doubt, l, next)
    {
        HASH_DEL(c->queue->own->doubt, l);
        free(l);
    }
    LL_FOREACH_SAFE(c->queue->own->doubt_dirs, d, next_dir)
    {
        free(d);
    }
    c->queue->own->doubt_dirs = NULL;
    purge(c, INT64_MAX);
}
