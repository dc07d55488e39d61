/* One attempt of an upload: the request, and what the store has after it. */
#include "cache/transfer/upload.h"

#include "common/crc32c.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A live file up to this size is read into memory and sent from there. */
#define SNAPSHOT_MAX (UINT64_C(16) << 20)

/* So often in a row a condition must be refused before anything is sent without: what refuses
 * once may be something in between, or mean something else. */
#define REFUSALS_MAX 2

bool upload_has_version(struct job *j)
{
    struct store *s = j->cache->store;

    if (!j->content || !store_can(s, j->at.key, STORE_IF_MATCH))
        return false;
    return store_can(s, j->at.key, STORE_PROMPT) ? j->owed_before
                                                 : store_can(s, j->at.key, STORE_ORIGIN);
}

bool upload_is_bound(struct job *j)
{
    return upload_has_version(j) && j->refusals < REFUSALS_MAX;
}

bool upload_is_looked_at(struct job *j)
{
    return upload_has_version(j) && !upload_is_bound(j);
}

bool upload_condition_refused(struct job *j, int r)
{
    bool refused = r == -EOPNOTSUPP && upload_is_bound(j);

    j->refusals += refused;
    return refused;
}

const char *upload_expected(struct job *j)
{
    return upload_is_bound(j) ? j->etag : NULL;
}

static int take_version(struct job *j, const struct object *obj)
{
    char *etag = strdup(obj && !obj->is_prefix ? obj->etag : "");

    if (!etag)
        return -ENOMEM;
    free(j->etag);
    j->etag = etag;
    j->beside_dir = obj && obj->is_prefix;
    return 0;
}

/* Somebody else's version is there. 1: it will do, several who write the same to one name are
 * in no conflict; -ESTALE; or another error. Takes the object over when it is 1. */
static int resolve_theirs(struct job *j, struct op *op, struct object *there,
                          struct object *ret)
{
    int r = upload_is_same(j, op, there);

    if (r == 0)
        return op_fail(op, -ESTALE, "%s/%s was written by somebody else since it was read here",
                       j->cache->store->url, j->path);
    if (r < 0)
        return r;
    j->theirs = true;
    *ret = *there;
    *there = (struct object){0};
    return 1;
}

int upload_resolve_version(struct job *j, struct op *op, struct object *obj)
{
    struct object there = {0};
    int r = store_stat(j->cache->store, op, j->at.key, &there);

    if (r == -ENOENT)
        return take_version(j, NULL);
    if (r < 0)
        return r;
    bool ours = origin_is_ours(j->cache, j->at, &there.attrs);
    if (ours && there.attrs.origin_ns == j->attrs.origin_ns) {
        *obj = there;
        return 1;
    }
    bool expected = j->etag && *j->etag && strcmp(there.etag, j->etag) == 0;
    bool any = ours || j->unknown || path_overwrites(j->cache, j->path);
    r = there.is_prefix || expected || any ? take_version(j, &there)
                                           : resolve_theirs(j, op, &there, obj);
    object_release(&there);
    return r;
}

/* ---- whole ---- */

static int put_snapshot(struct job *j, struct op *op, struct object *obj)
{
    size_t size = (size_t)j->st.st_size;
    auto_free char *copy = malloc(size ? size : 1);
    struct mem_source src;

    if (!copy)
        return op_fail(op, -ENOMEM, "upload %s: no memory", j->path);
    ssize_t n = pread(j->fd, copy, size, 0);
    if (n < 0)
        return source_read_failed(j, -errno);
    const uint32_t sum = crc32c(0, copy, (size_t)n);
    int r = (size_t)n == size ? source_begins_the_same(j, &sum, size ? size : 1) : CHANGED;
    if (r < 0)
        return r;
    mem_source_init(&src, copy, size);
    return store_put(j->cache->store, op, j->at.key, upload_expected(j), &src.base, &j->attrs,
                     obj);
}

static int put_special(struct job *j, struct op *op, struct object *obj)
{
    struct mem_source src;

    mem_source_init(&src, "", 0);
    return store_put(j->cache->store, op, j->at.key, upload_expected(j), &src.base, &j->attrs,
                     obj);
}

static int upload_once(struct job *j, struct op *op, struct object *obj)
{
    struct store *s = j->cache->store;
    uint64_t size = (uint64_t)j->st.st_size;
    bool has_parts = store_can(s, j->at.key, STORE_PARTS);

    if (!S_ISREG(j->attrs.mode))
        return put_special(j, op, obj);
    if (j->live && size <= SNAPSHOT_MAX)
        return put_snapshot(j, op, obj);
    if (has_parts && (j->live || size > j->cache->config.part_size))
        return upload_in_parts(j, op, obj);
    struct file_source src;
    file_source_init(&src, j, 0, size);
    return store_put(s, op, j->at.key, upload_expected(j), &src.base, &j->attrs, obj);
}

/* The store refused a condition, once and again, and then took the same without it: that was
 * it. */
static void remember_refusal(const struct job *j)
{
    struct cache *c = j->cache;

    cache_lock(c);
    bool known = c->queue->volumes[j->volume].unconditional;
    c->queue->volumes[j->volume].unconditional = true;
    cache_unlock(c);
    if (!known)
        log_warn("%s knows no conditional uploads: what two mounts write to one name in the "
                 "same moment, one of them loses",
                 volume_url(c, j->volume));
}

static bool is_unconditional(const struct job *j)
{
    cache_lock(j->cache);
    bool ret = j->cache->queue->volumes[j->volume].unconditional;
    cache_unlock(j->cache);
    return ret;
}

/* The store refused each version that it had named just before. Some servers refuse a file
 * where they have a directory by the condition "nothing is there", and then show no object. */
static int refused_each_time(struct job *j, struct op *op)
{
    const char *url = j->cache->store->url;

    if (j->beside_dir)
        return op_fail(
            op, -EISDIR,
            "upload %s/%s: the store has a directory of that name, and takes no file "
            "beside it: rename one of the two",
            url, j->path);
    return op_fail(op, -EAGAIN, "upload %s/%s: its version at the store changes all the time",
                   url, j->path);
}

static int upload_content(struct job *j, struct op *op, struct object *obj)
{
    j->refusals = is_unconditional(j) ? REFUSALS_MAX : 0;
    bool ask = upload_is_looked_at(j) || (upload_is_bound(j) && j->unknown);
    int r = ask ? upload_resolve_version(j, op, obj) : 0;

    j->unknown = false; /* the version there at that time may be replaced, no later one */
    for (int i = 0; i < VERSIONS_MAX && r == 0; i++) {
        r = upload_once(j, op, obj);
        if (r == 0 && j->refusals == REFUSALS_MAX)
            remember_refusal(j);
        if (!upload_condition_refused(j, r) && (r != -ESTALE || !upload_is_bound(j)))
            return r == 1 ? 0 : r; /* 1: settled as its parts were committed */
        upload_op(j, op);
        r = upload_resolve_version(j, op, obj);
        if (r == 0) /* another attempt: its session has its own row */
            origin_sign(j->cache, j->at, &j->attrs);
    }
    if (r == 0) /* another attempt was due, and nothing is stored */
        r = refused_each_time(j, op);
    return r == 1 ? 0 : r;
}

/* The name has no new attributes to bring to the store any more. */
static void attributes_dropped_locked(struct job *j, struct entry *e) REQUIRES(cache_mutex)
{
    struct node *n = j->node;

    entry_owes_locked(e, false);
    entry_verified_locked(e, 0); /* the next look asks what is there */
    entry_expire(e);
    if (names_owe(n))
        return;
    n->flags &= ~(unsigned)NODE_ATTR_DIRTY;
    n->flags |= NODE_ATTRS_OLD;
    debt_want(&n->file->debt, false);
    file_forgive_locked(n->file);
    file_unqueue_locked(j->cache, n->file);
    notice_locked(j->cache, n, NULL);
}

bool upload_drop_attributes_locked(struct job *j, const char *why)
{
    struct cache *c = j->cache;
    struct entry *e = j->outdated ? upload_entry_at(j) : NULL;

    cache_assert_locked(c);
    if (!e || j->node->file->generation != j->generation)
        return false; /* what was changed since is tried, and lost, on its own */
    attributes_dropped_locked(j, e);
    failure_note_locked(c, &c->write_failure, -ESTALE, why);
    log_later(&c->log, LOG_LEVEL_ERROR, "%s", why);
    return true;
}

/* The version that got new attributes is at the store no more: somebody has replaced or removed
 * it. Nothing here is worth keeping, as the content is not ours. */
static int lose_attributes(struct job *j, struct op *op, bool replaced)
{
    j->outdated = true;
    (void)op_fail(
        op, -ESTALE,
        "%s/%s was %s by somebody else: the new mode, owner or times that it got here "
        "are dropped",
        j->cache->store->url, j->path, replaced ? "replaced" : "removed");
    return CHANGED;
}

/* Whether the object has the content of which some, or none, is here. */
static bool is_same_content_locked(const struct file *f, const struct object *there)
    REQUIRES(cache_mutex)
{
    bool some = f->present.n || f->fetches || f->verify || f->open_handles;
    bool same = f->sum.kind != CHECKSUM_NONE && checksum_same(&f->sum, &there->checksum);

    return !there->is_prefix && there->size == f->clean_size && (same || !some);
}

/* A version of ours is there. What is here of another content goes up again, with everything.
 * The same content can be another version by its attributes alone, of which no answer came: it
 * is that version which gets the new ones. False when it is not known to be the same, and can't
 * go up, as not all of it is here. */
static bool resolve_ours_locked(struct job *j, const struct object *there) REQUIRES(cache_mutex)
{
    struct file *f = j->node->file;
    struct entry *e = upload_entry_at(j);

    if (f->state != FILE_PARTIAL) {
        file_mark_dirty_locked(j->cache, j->node, true);
        return true;
    }
    char *etag = e && strcmp(there->etag, j->etag) != 0 && is_same_content_locked(f, there)
                     ? strdup(there->etag)
                     : NULL;
    if (!etag)
        return false;
    entry_version_went_on_locked(e, etag);
    file_is_stored_as_locked(f, etag);
    return true;
}

/* Another version than that which gets new attributes is there, or none. */
static int resolve_attributes(struct job *j, struct op *op)
{
    struct cache *c = j->cache;
    struct object there = {0};

    upload_op(j, op);
    int r = store_stat(c->store, op, j->at.key, &there);
    if (r < 0 && r != -ENOENT)
        return r;
    bool ours = r == 0 && origin_is_ours(c, j->at, &there.attrs);
    cache_lock(c);
    ours = ours && resolve_ours_locked(j, &there);
    cache_unlock(c);
    object_release(&there);
    return ours ? CHANGED : lose_attributes(j, op, r == 0);
}

int upload_send_object(struct job *j, struct op *op, struct object *obj)
{
    struct cache *c = j->cache;

    if (j->content)
        return upload_content(j, op, obj);
    if (!store_can(c->store, j->at.key, STORE_ATTRS)) {
        memcpy(obj->etag, j->etag,
               sizeof(obj->etag) < strlen(j->etag) + 1 ? sizeof(obj->etag) - 1
                                                       : strlen(j->etag) + 1);
        return 0;
    }
    struct session_watch watch;
    session_watch(&watch, c, op);
    int r = store_set_attributes(c->store, op, j->at.key, *j->etag ? j->etag : NULL, &j->attrs,
                                 obj);
    int noted = session_unwatch(&watch, op);
    if (op->left_behind)
        doubt_copy(c, j->at);
    if (r < 0 && noted < 0)
        return upload_note_failed(j, noted);
    return r == -ENOENT || r == -ESTALE ? resolve_attributes(j, op) : r;
}
