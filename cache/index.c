/* The attribute index of a directory at the store: listings take attributes from it that would
 * cost a HEAD for each file, and who knows them notes them there, later and in one go. What
 * makes an entry valid, and what may be added, is in docs/format.md, section 7. It is a copy of
 * what the objects' own metadata say: any failure here costs HEADs and nothing else. */
#include "cache/index.h"

#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

/* LastModified counts seconds: who is told later than this knows the last version of its
 * second.
 */
#define SETTLED_NS (2 * NS_PER_SEC)
/* A time that no listing shows. */
#define NO_TIME_NS 1
#define TICK_NS    (50 * NS_PER_MS)

/* ---- versions ---- */

void entry_told(struct entry *e, const struct object *obj)
{
    entry_forget_version(e);
    e->modified_ns = obj->mtime_ns;
    e->settled = obj->told_ns >= obj->mtime_ns + SETTLED_NS;
}

bool put_window(const struct object *obj, int64_t took_ns, uint32_t *ret_from_s,
                uint32_t *ret_to_s)
{
    int64_t told_s = obj->mtime_ns / NS_PER_SEC;
    int64_t from_s = told_s - took_ns / NS_PER_SEC - 2; /* both are rounded */

    if (from_s <= 0 || told_s >= UINT32_MAX)
        return false;
    *ret_from_s = (uint32_t)from_s;
    *ret_to_s = (uint32_t)told_s + 1;
    return true;
}

void entry_put(struct entry *e, const struct object *obj, int64_t took_ns)
{
    uint32_t from_s, to_s;

    entry_forget_version(e);
    if (!put_window(obj, took_ns, &from_s, &to_s))
        return;
    e->was_put = e->unseen = true;
    e->put.from_s = from_s;
    e->put.to_s = to_s;
}

void entry_forget_version(struct entry *e)
{
    e->modified_ns = 0;
    e->was_put = e->unseen = false;
    e->settled = false;
}

void entry_seen(struct entry *e, const struct object *obj)
{
    e->unseen = false;
    e->modified_ns = obj->mtime_ns;
}

void entry_distrust(struct entry *e)
{
    entry_forget_version(e);
    e->modified_ns = NO_TIME_NS;
}

/* A HEAD says whole seconds, a listing may be more precise. */
static bool same_time(int64_t a_ns, int64_t b_ns)
{
    return a_ns == b_ns || (a_ns / NS_PER_SEC == b_ns / NS_PER_SEC &&
                            (a_ns % NS_PER_SEC == 0 || b_ns % NS_PER_SEC == 0));
}

bool entry_moved(const struct entry *e, const struct object *obj)
{
    int64_t modified_s = obj->mtime_ns / NS_PER_SEC;

    if (e->unseen)
        return modified_s < e->put.from_s || modified_s > e->put.to_s;
    return e->modified_ns && !same_time(e->modified_ns, obj->mtime_ns);
}

/* ---- reading ---- */

/* Collects a text of unknown length; an attempt that starts over writes over the first. */
struct text_sink {
    struct sink base;
    struct buf text;
};

static int text_write(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct text_sink *t = container_of(sink, struct text_sink, base);

    if (off > t->text.len)
        return -EPROTO;
    t->text.len = (size_t)off;
    return buf_add(&t->text, data, len);
}

int index_read_text(struct cache *c, struct op *op, const char *key, struct buf *ret_text,
                    char ret_etag[STORE_ETAG_MAX])
{
    struct text_sink sink = {.base = {.write = text_write}, .text = BUF_INIT(INDEX_BYTES_MAX)};
    struct object obj = {0};
    ssize_t n = store_read(c->store, op, key, NULL, &sink.base, INDEX_BYTES_MAX, 0, &obj);

    buf_init(ret_text, INDEX_BYTES_MAX);
    ret_etag[0] = '\0';
    if (n < 0) {
        buf_release(&sink.text);
        return n == -ENOENT ? 0 : (int)n;
    }
    memcpy(ret_etag, obj.etag, sizeof(obj.etag));
    if (obj.size == (uint64_t)n)
        *ret_text = sink.text;
    else
        buf_release(&sink.text);
    object_release(&obj);
    return 0;
}

/* An index as the store has it: its text, what it says (nothing when it is damaged), and its
 * version, "" when there is none. */
struct stored_index {
    struct buf text;
    struct index index;
    char etag[STORE_ETAG_MAX];
};

static void index_stored_release(struct stored_index *s)
{
    index_release(&s->index);
    buf_release(&s->text);
}

static int index_load(struct cache *c, struct op *op, const char *dir, const char *key,
                      struct stored_index *ret)
{
    *ret = (struct stored_index){0};
    int r = index_read_text(c, op, key, &ret->text, ret->etag);
    if (r == 0 && ret->text.data &&
        index_parse(ret->text.data, ret->text.len, dir, &ret->index) < 0)
        log_debug("the attribute index of %s/%s is damaged", c->store->url, dir);
    return r;
}

void index_breathe_locked(struct cache *c, size_t i)
{
    if (i % INDEX_CHUNK != INDEX_CHUNK - 1)
        return;
    cache_unlock(c);
    cache_lock(c);
}

/* Whether the listed file's attributes are not known here, and no HEAD of another version. */
static bool wanted_locked(struct node *dir, const struct listed *l) REQUIRES(cache_mutex)
{
    struct entry *e = entry_find(dir, l->name);

    if (l->obj.is_prefix || l->obj.attrs_known || !*l->obj.etag)
        return false;
    if (!e || e->node->dir)
        return true;
    return !node_is_ours(e->node) &&
           (!node_attrs_known(e->node) || !etag_is(&e->etag, l->obj.etag) ||
            entry_moved(e, &l->obj));
}

size_t index_mark_wanted(struct cache *c, struct node *dir, const struct listed *v, size_t n,
                         bool *wanted)
{
    size_t count = 0;

    cache_lock(c);
    for (size_t i = 0; i < n; i++) {
        index_breathe_locked(c, i);
        wanted[i] = wanted_locked(dir, &v[i]);
        count += wanted[i];
    }
    cache_unlock(c);
    return count;
}

void index_take(const struct index_entry *e, struct object *obj)
{
    if (!e || !index_entry_fits(e, obj) || attrs_copy(&obj->attrs, &e->attrs) < 0)
        return;
    obj->attrs_known = true;
    obj->attrs_hearsay = true;
    obj->told_ns = obj->mtime_ns + SETTLED_NS; /* else it would not be there */
}

static bool may_have_index(struct cache *c, struct node *dir, size_t n)
{
    struct dir_index *x = &dir->dir->index;

    if (!c->has_index || n < INDEX_FILES_MIN)
        return false;
    cache_lock(c);
    bool absent = x->absent_ns && clock_mono_ns() - x->absent_ns < INDEX_ABSENT_NS;
    cache_unlock(c);
    return !absent;
}

void index_fill(struct cache *c, struct node *dir, const char *key, struct listed *v, size_t n)
{
    char index[INDEX_KEY_MAX];
    struct stored_index s = {0};
    struct op op;

    if (!may_have_index(c, dir, n) || index_key(key, index) < 0)
        return;
    auto_free bool *wanted = calloc(n, sizeof(*wanted));
    if (!wanted || index_mark_wanted(c, dir, v, n, wanted) < INDEX_FILES_MIN)
        return;
    cache_op_within(c, &op,
                    c->config.ask_timeout_ns < INDEX_READ_NS ? c->config.ask_timeout_ns
                                                             : INDEX_READ_NS);
    int r = index_load(c, &op, key, index, &s);
    if (r < 0)
        log_debug("no attribute index: %s", op.why);
    for (size_t i = 0; i < n; i++)
        if (wanted[i])
            index_take(index_find(&s.index, v[i].name), &v[i].obj);
    cache_lock(c);
    dir->dir->index.known = *s.etag != '\0';
    dir->dir->index.absent_ns = *s.etag ? 0 : clock_mono_ns();
    cache_unlock(c);
    index_stored_release(&s);
}

/* ---- when to write ---- */

void index_unqueue_locked(struct cache *c, struct node *dir)
{
    struct dir_index *x = &dir->dir->index;

    if (x->queued && x->in_tree)
        c->index_tree_news -= x->news;
    x->news = 0;
    x->first_ns = 0;
    if (!x->queued)
        return;
    if (x->in_tree)
        DL_DELETE2(c->index_tree_dirs, dir, dir->index_prev, dir->index_next);
    else
        DL_DELETE2(c->index_dirs, dir, dir->index_prev, dir->index_next);
    x->queued = false;
    node_unref_locked(c, dir);
}

void index_news_locked(struct cache *c, struct node *dir)
{
    struct dir_index *x = &dir->dir->index;

    if (!c->has_index || c->config.read_only || c->index_refused || (dir->flags & NODE_LOST))
        return;
    x->last_ns = clock_mono_ns();
    bool own = x->queued && !x->in_tree;
    if (dir->dir->files < INDEX_FILES_MIN && !own) {
        index_tree_news_locked(c, dir);
        return;
    }
    unsigned news = x->news;
    if (x->queued && x->in_tree) { /* it has outgrown it */
        index_unqueue_locked(c, dir);
        x->news = news;
    }
    if (!x->news++ || !own)
        x->first_ns = x->last_ns;
    if (x->queued)
        return;
    x->in_tree = false;
    node_ref_locked(dir);
    DL_APPEND2(c->index_dirs, dir, dir->index_prev, dir->index_next);
    x->queued = true;
    scheduler_kick_locked(c);
}

void index_marker_news_locked(struct cache *c, struct node *dir)
{
    struct dir_index *x = &dir->dir->index;

    if (c->has_index && !c->config.read_only && !c->index_refused &&
        !(dir->flags & NODE_LOST) && dir->dir->files < INDEX_FILES_MIN &&
        (!x->queued || x->in_tree))
        index_tree_news_locked(c, dir);
}

static int64_t due_ns(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    struct dir_index *x = &dir->dir->index;
    int64_t due = x->last_ns + c->config.index_settle_ns;

    if (c->index_now)
        return x->failures ? INT64_MAX : 0;
    if ((uint64_t)x->news * INDEX_NEWS_PART < children_count(dir->dir->children))
        due = x->first_ns + INDEX_LATE_NS;
    else if (due > x->first_ns + INDEX_BUSY_MAX_NS)
        due = x->first_ns + INDEX_BUSY_MAX_NS;
    return due > x->not_before_ns ? due : x->not_before_ns;
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
    if (*n == *cap) {
        size_t more = *cap ? *cap * 2 : 4;
        struct listed *grown = reallocarray(*v, more, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        *v = grown;
        *cap = more;
    }
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
        (!e->settled && !e->was_put))
        return false;
    *ret_sure = e->settled;
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

/* When both say something of one version, and not the same, only what the store itself told is
 * believed. */
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

int index_put_text(struct cache *c, struct op *op, const char *key, const struct buf *text,
                   const char *etag, char ret_etag[STORE_ETAG_MAX])
{
    bool bound = (c->store->caps & STORE_IF_MATCH) && !atomic_load(&c->unconditional);
    struct object obj = {0};
    struct mem_source src;

    mem_source_init(&src, text->data, text->len);
    int r = store_put(c->store, op, key, bound ? etag : NULL, &src.base, NULL, &obj);
    if (r == 0 && ret_etag)
        memcpy(ret_etag, obj.etag, sizeof(obj.etag));
    if (r == 0)
        object_release(&obj);
    return r;
}

/* Reads, merges and puts the index once; -ESTALE when another mount put one meanwhile. */
static int write_once(struct writing *w, struct op *op, const char *dir, const char *key)
{
    struct cache *c = w->cache;
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    struct index merged = {0};
    struct stored_index old;
    int r = index_load(c, op, dir, key, &old);

    if (r == -EACCES) /* what is not there, to one who may not list */
        r = 0;
    if (r < 0)
        return r;
    r = merge_all(w, &old.index, &merged);
    bool worth = *old.etag || HASH_COUNT(merged.entries) >= INDEX_FILES_MIN;
    if (r == 0 && worth)
        r = index_format(&merged, dir, &text);
    bool same = r == 0 && text.len == old.text.len && text.len &&
                memcmp(text.data, old.text.data, text.len) == 0;
    if (r == 0 && worth && !same)
        r = index_put_text(c, op, key, &text, old.etag, NULL);
    index_release(&merged);
    index_stored_release(&old);
    return r;
}

static int write_index(struct writing *w, struct op *op)
{
    struct cache *c = w->cache;
    char key[INDEX_KEY_MAX];

    cache_lock(c);
    auto_free char *dir = node_key(w->dir);
    cache_unlock(c);
    if (!dir)
        return 0; /* removed meanwhile */
    int r = index_key(dir, key);
    if (r == 0)
        r = store_list(c->store, op, dir, 0, collect, w);
    if (r == -ENOENT || (r >= 0 && w->n < INDEX_FILES_MIN))
        return 0;
    if (r == 1)
        r = 0;
    for (int i = 0; r == 0 && i < INDEX_ROUNDS_MAX; i++) {
        r = write_once(w, op, dir, key);
        if (r != -ESTALE)
            return r;
        r = i < INDEX_ROUNDS_MAX - 1 ? 0 : r;
    }
    return r;
}

bool index_refused_locked(struct cache *c, int r, const char *why)
{
    if (r != -EACCES && r != -EPERM && r != -EROFS)
        return false;
    log_later(&c->log, LOG_LEVEL_INFO,
              "attribute indexes can't be written, listings take more requests: %s", why);
    c->index_refused = true;
    return true;
}

/* What could not be written is tried again a few times. */
static void failed_locked(struct writing *w, int r, const char *why) REQUIRES(cache_mutex)
{
    struct cache *c = w->cache;
    struct dir_index *x = &w->dir->dir->index;

    if (index_refused_locked(c, r, why))
        return;
    log_later(&c->log, LOG_LEVEL_DEBUG, "attribute index not written: %s", why);
    if (++x->failures >= INDEX_RETRIES_MAX || c->stopping)
        return;
    x->not_before_ns = clock_mono_ns() + INDEX_RETRY_NS;
    index_news_locked(c, w->dir);
    if (x->in_tree) /* it has shrunk */
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
    x->running = false;
    c->indexes_running--;
    if (r < 0) {
        failed_locked(w, r, op.why);
    } else {
        x->failures = 0;
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
        x->running = true;
        c->indexes_running++;
        pool_submit(c->askers, &w->task);
    }
    index_unqueue_locked(c, dir);
    if (!w)
        node_unref_locked(c, dir);
}

void indexes_start_locked(struct cache *c, int64_t now, int64_t *next_due)
{
    struct node *dir, *after;

    DL_FOREACH_SAFE2(c->index_dirs, dir, after, dir->index_next)
    {
        if (c->index_refused || (dir->flags & NODE_LOST)) {
            index_unqueue_locked(c, dir);
            continue;
        }
        int64_t due = due_ns(c, dir);
        if (due > now)
            *next_due = due < *next_due ? due : *next_due;
        else if (!c->indexes_running) /* one at a time: nobody waits for it */
            start_locked(c, dir);
    }
    index_tree_start_locked(c, now, next_due);
}

void cache_write_indexes(struct cache *c, struct op *op)
{
    cache_lock(c);
    c->index_now = true;
    scheduler_kick_locked(c);
    for (;;) {
        struct node *dir, *left = NULL;
        DL_FOREACH2(c->index_dirs, dir, dir->index_next)
        {
            left = dir->dir->index.failures ? left : dir;
        }
        bool done = !left && !index_tree_pending_locked(c) && !c->indexes_running &&
                    !c->uploads_running;
        if (done || c->stopping || op_check(op) < 0)
            break;
        (void)cache_wait_until(c, &c->progress, clock_mono_ns() + TICK_NS);
    }
    c->index_now = false;
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
    const char *key = d->key;
    struct op op;

    cache_op_within(d->cache, &op, INDEX_WRITE_NS);
    if (store_remove(d->cache->store, &op, &key, NULL, 1, NULL) < 0)
        log_debug("attribute index not removed: %s", op.why);
    free(d);
}

void index_drop_locked(struct cache *c, struct node *dir)
{
    struct dir_index *x = &dir->dir->index;

    index_unqueue_locked(c, dir);
    if (!x->known)
        return;
    x->known = false;
    auto_free char *dir_key = node_key(dir);
    struct dropping *d = dir_key ? calloc(1, sizeof(*d)) : NULL;
    if (!d || index_key(dir_key, d->key) < 0) {
        free(d);
        return;
    }
    d->task.run = run_dropping;
    d->cache = c;
    pool_submit(c->askers, &d->task);
}
