/* Attribute indexes of single directories, written: when there is news, and it has rested. */
#include "cache/listing/index.h"

#include "cache/tree/children.h"
#include "cache/types/attr_index.h"
#include "cache/types/etag.h"
#include "common/buf.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TICK_NS (50 * NS_PER_MS)

static int64_t due_ns(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    struct dir_index *x = &dir->dir->index;
    int64_t due = index_rested_ns(c, x->first_ns, x->last_ns);

    if (c->listing->index_now)
        return x->debt.attempts ? INT64_MAX : 0;
    if ((uint64_t)x->news * INDEX_NEWS_PART < children_count(dir->dir->children))
        due = x->first_ns + INDEX_LATE_NS;
    return due > x->debt.due_ns ? due : x->debt.due_ns;
}

/* ---- writing ---- */

struct writing {
    struct task task;
    struct cache *cache;
    struct node *dir; /* referenced */
    unsigned news;    /* that were known when it began */
    int64_t first_ns; /* of them */
    struct listed *v; /* the directory's files as the store lists them */
    size_t n, cap;
};

int index_collect(struct listed **v, size_t *n, size_t *cap, const char *name,
                  const struct object *obj)
{
    if (array_grow(*v, *cap, *n + 1))
        return -ENOMEM;
    struct listed *l = &(*v)[*n];
    *l = (struct listed){.name = strdup(name), .obj = *obj};
    l->obj.attrs = (struct attrs){0};
    if (!l->name)
        return -ENOMEM;
    ++*n;
    return 0;
}

void index_collect_free(struct listed *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(v[i].name);
    free(v);
}

static int collect(void *arg, const char *name, const struct object *obj)
{
    struct writing *w = arg;

    if (obj->is_prefix || !*obj->etag)
        return 0;
    return w->n == INDEX_ENTRIES_MAX ? 1 : index_collect(&w->v, &w->n, &w->cap, name, obj);
}

/* What the node's attributes are, as far as the store has them; borrows the texts. False when
 * they are not known to be those of the listed version. */
static bool known_locked(struct node *dir, const struct listed *l, struct attrs *ret,
                         bool *ret_sure) REQUIRES(cache_mutex)
{
    struct entry *e = entry_find(dir, l->name);
    struct node *n = e ? e->node : NULL;

    if (!n || n->dir || !node_attrs_known(n) || node_is_ours(n) ||
        !etag_is(&e->etag, l->obj.etag) || entry_moved(e, &l->obj) ||
        (!e->stable && !e->was_put))
        return false;
    *ret_sure = e->stable;
    *ret = (struct attrs){.has = n->attrs_has & INDEX_ATTRS,
                          .mode = n->mode,
                          .uid = n->uid,
                          .gid = n->gid,
                          .rdev = n->rdev,
                          .mtime_ns = n->mtime_ns,
                          .target = S_ISLNK(n->mode) ? n->target : NULL,
                          .xattrs = n->xattrs};
    if (!n->xattrs)
        ret->has &= ~(unsigned)ATTR_XATTRS;
    if (!ret->target)
        ret->has &= ~(unsigned)ATTR_TARGET;
    return true;
}

/* When both speak of one version, and differ, the store's own word alone is believed. */
int index_merge_locked(struct node *dir, const char *key, const struct index_entry *before,
                       const struct listed *l, struct index *to)
{
    struct attrs known;
    bool sure = false;
    bool ours = known_locked(dir, l, &known, &sure);
    int r = 0;

    if (before && !index_entry_fits(before, &l->obj))
        before = NULL;
    if (ours && (!before || sure || index_attrs_equal(&before->attrs, &known)))
        r = index_add_in(to, key, l->name, &l->obj, &known);
    else if (before && !ours)
        r = index_add_in(to, key, l->name, &l->obj, &before->attrs);
    return r == -E2BIG || r == -EEXIST || r == -EPERM ? 0 : r;
}

static int merge_all(struct writing *w, const struct index *old, struct index *to)
{
    struct cache *c = w->cache;
    int r = 0;

    cache_lock(c);
    for (size_t i = 0; i < w->n && r == 0; i++) {
        index_breathe_locked(c, i);
        r = index_merge_locked(w->dir, "", index_find(old, w->v[i].name), &w->v[i], to);
    }
    cache_unlock(c);
    return r;
}

int index_put_text(struct cache *c, struct op *op, struct place index, const struct buf *text,
                   const char *etag, char ret_etag[STORE_ETAG_MAX])
{
    /* Where there is an index there is one store. */
    bool bound = store_can(c->store, index.key, STORE_IF_MATCH) && stores_take_conditions(c);
    struct object obj = {0};
    struct mem_source src;

    mem_source_init(&src, text->data, text->len);
    int r = store_put(c->store, op, index.key, bound ? etag : NULL, &src.base, NULL, &obj);
    if (r == 0 && ret_etag)
        memcpy(ret_etag, obj.etag, sizeof(obj.etag));
    if (r == 0)
        object_release(&obj);
    return r;
}

/* Reads, merges and puts the index once; -ESTALE when another mount put one meanwhile. */
static int write_once(struct writing *w, struct op *op, struct place dir, struct place index)
{
    struct cache *c = w->cache;
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    struct index merged = {0};
    struct stored_index old;
    int r = index_load(c, op, dir, index, &old);

    if (r == -EACCES) /* a missing index, to a user who may not list */
        r = 0;
    if (r < 0)
        return r;
    r = merge_all(w, &old.index, &merged);
    bool worth = *old.etag || HASH_COUNT(merged.entries) >= INDEX_FILES_MIN;
    if (r == 0 && worth)
        r = index_format(&merged, dir.key, &text);
    bool same = r == 0 && text.len == old.text.len && text.len &&
                memcmp(text.data, old.text.data, text.len) == 0;
    if (r == 0 && worth && !same)
        r = index_put_text(c, op, index, &text, old.etag, NULL);
    index_release(&merged);
    index_stored_release(&old);
    return r;
}

static int write_index(struct writing *w, struct op *op)
{
    struct cache *c = w->cache;
    char key[INDEX_KEY_MAX];

    cache_lock(c);
    auto_place struct place dir = node_place(w->dir);
    cache_unlock(c);
    if (!place_known(dir))
        return 0; /* removed meanwhile */
    int r = index_key(dir, key);
    if (r == 0)
        r = store_list(c->store, op, dir.key, 0, collect, w);
    if (r == -ENOENT || (r >= 0 && w->n < INDEX_FILES_MIN))
        return 0;
    if (r == 1)
        r = 0;
    for (int i = 0; r == 0 && i < INDEX_ROUNDS_MAX; i++) {
        r = write_once(w, op, dir, place_of_key(key));
        if (r != -ESTALE)
            return r;
        r = i < INDEX_ROUNDS_MAX - 1 ? 0 : r;
    }
    return r;
}

bool index_failed_locked(struct cache *c, struct debt *d, int r, const char *why)
{
    bool last = d->attempts + 1 >= INDEX_RETRIES_MAX;

    cache_assert_locked(c);
    debt_failed(d, clock_mono_ns(), r, why, last ? 0 : INDEX_RETRY_NS);
    if (r == -EACCES || r == -EPERM || r == -EROFS) {
        log_later(&c->log, LOG_LEVEL_INFO,
                  "attribute indexes can't be written, listings take more requests: %s", why);
        c->listing->index_refused = true;
        indexes_forget_locked(c);
        return false;
    }
    log_later(&c->log, LOG_LEVEL_DEBUG, "attribute index not written: %s", why);
    return !last && !c->stopping;
}

/* A write that failed is tried again a few times. */
static void failed_locked(struct writing *w, int r, const char *why) REQUIRES(cache_mutex)
{
    struct cache *c = w->cache;
    struct dir_index *x = &w->dir->dir->index;

    if (!index_failed_locked(c, &x->debt, r, why))
        return;
    index_news_locked(c, w->dir);
    if (index_is_in_tree_locked(c, w->dir)) /* it has shrunk */
        return;
    x->news += w->news;
    x->first_ns = w->first_ns;
}

static void run_writing(struct task *task)
{
    struct writing *w = container_of(task, struct writing, task);
    struct cache *c = w->cache;
    struct dir_index *x = &w->dir->dir->index;
    struct op op;

    cache_op_within(c, &op, INDEX_WRITE_NS);
    int r = write_index(w, &op);
    cache_lock(c);
    debt_run(&x->debt, false);
    c->listing->indexes_running--;
    if (r < 0) {
        failed_locked(w, r, op.why);
    } else {
        debt_forgive(&x->debt);
        x->known = true;
        x->absent_ns = 0;
    }
    (void)pthread_cond_broadcast(&c->progress);
    scheduler_kick_locked(c);
    node_unref_locked(c, w->dir);
    cache_unlock(c);
    index_collect_free(w->v, w->n);
    free(w);
}

static void start_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    struct dir_index *x = &dir->dir->index;
    struct writing *w = calloc(1, sizeof(*w));

    node_ref_locked(dir);
    if (w) {
        *w = (struct writing){.task.run = run_writing,
                              .cache = c,
                              .dir = dir,
                              .news = x->news,
                              .first_ns = x->first_ns};
        debt_run(&x->debt, true);
        c->listing->indexes_running++;
        workers_submit_locked(c->askers, NULL, &w->task, false);
    }
    index_unqueue_locked(c, dir);
    if (!w)
        node_unref_locked(c, dir);
}

void index_start_locked(struct cache *c, struct debt *d, int64_t now, int64_t *next_due)
{
    struct node *dir = debt_index_dir(d);

    cache_assert_locked(c);
    if (dir->flags & NODE_REMOVED) {
        index_unqueue_locked(c, dir);
        return;
    }
    int64_t due = due_ns(c, dir);
    if (due > now)
        *next_due = due < *next_due ? due : *next_due;
    else if (!c->listing->indexes_running) /* one at a time: nobody waits for it */
        start_locked(c, dir);
}

void cache_write_indexes(struct cache *c, struct op *op)
{
    cache_lock(c);
    c->listing->index_now = true;
    scheduler_kick_locked(c);
    for (;;) {
        const struct debt *d = c->queue->owed[DEBT_INDEX].first;
        while (d && d->attempts)
            d = d->next;
        bool done = !d && !index_tree_pending_locked(c) && !c->listing->indexes_running &&
                    !c->queue->uploads_running;
        if (done || c->stopping || op_check(op) < 0)
            break;
        (void)cache_wait_until(c, &c->progress, clock_mono_ns() + TICK_NS);
    }
    c->listing->index_now = false;
    cache_unlock(c);
}

/* ---- removing ---- */

struct dropping {
    struct task task;
    struct cache *cache;
    char key[INDEX_KEY_MAX];
};

static void run_dropping(struct task *task)
{
    struct dropping *d = container_of(task, struct dropping, task);
    const struct place index = place_of_key(d->key);
    struct op op;

    cache_op_within(d->cache, &op, INDEX_WRITE_NS);
    if (store_remove(d->cache->store, &op, &index.key, NULL, 1, NULL) < 0)
        log_debug("attribute index not removed: %s", op.why);
    free(d);
}

void index_drop_locked(struct cache *c, struct node *dir)
{
    struct dir_index *x = &dir->dir->index;

    cache_assert_locked(c);
    index_unqueue_locked(c, dir);
    if (!x->known)
        return;
    x->known = false;
    auto_place struct place at = node_place(dir);
    struct dropping *d = place_known(at) ? calloc(1, sizeof(*d)) : NULL;
    if (!d || index_key(at, d->key) < 0) {
        free(d);
        return;
    }
    d->task.run = run_dropping;
    d->cache = c;
    workers_submit_locked(c->askers, NULL, &d->task, false);
}
