/* The attribute index of a directory at the store: listings take attributes from it that would
 * cost a HEAD for each file, and a mount that knows them notes them there, later and at once.
 * What makes an entry valid, and what may be added, is in docs/format.md, section 7. It is a
 * copy of what the objects' own metadata say: any failure here costs HEADs and nothing else. */
#include "cache/listing/index.h"

#include "cache/types/attr_index.h"
#include "cache/types/etag.h"
#include "common/buf.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

int index_read_text(struct cache *c, struct op *op, struct place index, struct buf *ret_text,
                    char ret_etag[STORE_ETAG_MAX])
{
    struct text_sink sink = {.base = {.write = text_write}, .text = BUF_INIT(INDEX_BYTES_MAX)};
    struct object obj = {0};
    ssize_t n = store_read(c->store, op, index.key, NULL, &sink.base, INDEX_BYTES_MAX, 0, &obj);

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

void index_stored_release(struct stored_index *s)
{
    index_release(&s->index);
    buf_release(&s->text);
}

int index_load(struct cache *c, struct op *op, struct place dir, struct place index,
               struct stored_index *ret)
{
    *ret = (struct stored_index){0};
    int r = index_read_text(c, op, index, &ret->text, ret->etag);
    if (r == 0 && ret->text.data &&
        index_parse(ret->text.data, ret->text.len, dir.key, &ret->index) < 0)
        log_debug("the attribute index of %s/%s is damaged", c->store->url, dir.key);
    return r;
}

void index_breathe_locked(struct cache *c, size_t i)
{
    cache_assert_locked(c);
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
    obj->told_ns = obj->mtime_ns + STABLE_NS; /* else it would not be there */
}

static bool may_have_index(struct cache *c, struct node *dir, size_t n)
{
    struct dir_index *x = &dir->dir->index;

    if (!c->listing->has_index || n < INDEX_FILES_MIN)
        return false;
    cache_lock(c);
    bool absent = x->absent_ns && clock_mono_ns() - x->absent_ns < INDEX_ABSENT_NS;
    cache_unlock(c);
    return !absent;
}

void index_fill(struct cache *c, struct node *dir, struct place at, struct listed *v, size_t n)
{
    char key[INDEX_KEY_MAX];
    struct stored_index s = {0};
    struct op op;

    if (!may_have_index(c, dir, n) || index_key(at, key) < 0)
        return;
    auto_free bool *wanted = calloc(n, sizeof(*wanted));
    if (!wanted || index_mark_wanted(c, dir, v, n, wanted) < INDEX_FILES_MIN)
        return;
    cache_op_within(c, &op,
                    c->config.ask_timeout_ns < INDEX_READ_NS ? c->config.ask_timeout_ns
                                                             : INDEX_READ_NS);
    int r = index_load(c, &op, at, place_of_key(key), &s);
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

bool index_is_in_tree_locked(struct cache *c, const struct node *dir)
{
    cache_assert_locked(c);
    return dir->dir->index.debt.in == &c->listing->small_dirs;
}

void index_unqueue_locked(struct cache *c, struct node *dir)
{
    struct dir_index *x = &dir->dir->index;

    if (index_is_in_tree_locked(c, dir))
        c->listing->index_tree_news -= x->news;
    x->news = 0;
    x->first_ns = 0;
    if (!debt_is_queued(&x->debt))
        return;
    debt_leave(&x->debt);
    node_unref_locked(c, dir);
}

void index_news_locked(struct cache *c, struct node *dir)
{
    struct dir_index *x = &dir->dir->index;

    cache_assert_locked(c);
    if (!c->listing->has_index || c->config.read_only || c->listing->index_refused ||
        (dir->flags & NODE_REMOVED))
        return;
    x->last_ns = clock_mono_ns();
    bool in_tree = index_is_in_tree_locked(c, dir);
    bool own = debt_is_queued(&x->debt) && !in_tree;
    if (dir->dir->files < INDEX_FILES_MIN && !own) {
        index_tree_news_locked(c, dir);
        return;
    }
    unsigned news = x->news;
    if (in_tree) { /* it has outgrown it */
        index_unqueue_locked(c, dir);
        x->news = news;
    }
    if (!x->news++ || !own)
        x->first_ns = x->last_ns;
    if (debt_is_queued(&x->debt))
        return;
    node_ref_locked(dir);
    debts_add(&c->queue->owed[DEBT_INDEX], &x->debt);
    scheduler_kick_locked(c);
}

void indexes_forget_locked(struct cache *c)
{
    cache_assert_locked(c);
    while (c->queue->owed[DEBT_INDEX].first)
        index_unqueue_locked(c, debt_index_dir(c->queue->owed[DEBT_INDEX].first));
    while (c->listing->small_dirs.first)
        index_unqueue_locked(c, debt_index_dir(c->listing->small_dirs.first));
}

void index_marker_news_locked(struct cache *c, struct node *dir)
{
    struct dir_index *x = &dir->dir->index;

    cache_assert_locked(c);
    if (c->listing->has_index && !c->config.read_only && !c->listing->index_refused &&
        !(dir->flags & NODE_REMOVED) && dir->dir->files < INDEX_FILES_MIN &&
        (!debt_is_queued(&x->debt) || index_is_in_tree_locked(c, dir)))
        index_tree_news_locked(c, dir);
}
