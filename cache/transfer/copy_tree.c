/* Renames of directories at a store that renames by copies. */
#include "cache/transfer/copy.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/journal.h"
#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- a directory ---- */

/* Whether a removal comes first, of a directory or of what is none as `is_dir` says: one can
 * have taken the place of the other since. */
static bool removal_pending_before(struct cache *c, const struct intent *self, const char *path,
                                   bool is_dir) REQUIRES(cache_mutex)
{
    enum intent_kind kind = is_dir ? INTENT_RMDIR : INTENT_UNLINK;
    const struct intent *i = row_of_name_locked(c, path);

    while (i && i->seq < self->seq && i->kind != kind)
        i = row_of_name_next(i);
    return i && i->seq < self->seq;
}

static struct item *item_add(struct copying *k)
{
    if (array_grow(k->v, k->cap, k->n + 1))
        return NULL;
    k->v[k->n] = (struct item){0};
    return &k->v[k->n++];
}

void copy_items_release(struct copying *k)
{
    for (size_t i = 0; i < k->n; i++) {
        free(k->v[i].from);
        free(k->v[i].to);
        free(k->v[i].etag);
        free(k->v[i].new_etag);
    }
    k->n = 0;
}

/* A name that is uploaded anew below the new directory, in time, is not copied. Its old name
 * loses the version that the upload was to replace, or the one that an attempt made there, if
 * there was any: not one that somebody else has put there since. */
static int resolve_written_anew_locked(struct copying *k, struct item *it) REQUIRES(cache_mutex)
{
    /* What has the name that a later row removes from there is another file. */
    auto_free char *at = intent_lasting_path(row_next(k->intent), it->to);
    struct entry *e = NULL;
    struct node *n = at ? tree_find(k->cache, at, &e) : NULL;

    if (!n || !e || !copy_is_owed(k, n, e))
        return 0;
    bool known = etag_known(&e->etag);
    it->fate = known || e->may_exist || e->tried ? ITEM_OUT : ITEM_LEFT;
    const char *copied = n->file->copied_etag;
    bool own = e->tried_before || (e->tried && !e->may_exist) || copied;
    bool as_listed = !known && (!own || (copied && strcmp(it->etag, copied) == 0));
    if (as_listed || copy_is_meant_locked(k, it->to, it->etag))
        return 0;
    free(it->etag);
    it->etag = known ? etag_dup(&e->etag) : strdup(INTENT_OURS);
    return it->etag ? 0 : -ENOMEM;
}

static int collect(void *arg, const char *name, const struct object *obj)
{
    struct copying *k = arg;
    struct cache *c = k->cache;

    if (!path_key_ok(name, STORE_KEY_MAX))
        return 0;
    k->bytes += sizeof(*k->v) + strlen(k->from) + strlen(k->to) + 2 * strlen(name);
    if (k->bytes > listed_max(c))
        return listed_too_much(c, k->op, place_of_path(k->from), k->n);
    struct item *it = item_add(k);
    if (!it)
        return -ENOMEM;
    *it = (struct item){.from = path_join(k->from, name),
                        .to = path_join(k->to, name),
                        .etag = strdup(obj->etag),
                        .is_dir = obj->is_prefix};
    if (!it->from || !it->to || !it->etag)
        return -ENOMEM;
    int r = 0;
    cache_lock(c);
    /* The removal of a real directory may come when there is still something in it that this
     * rename takes away, and does nothing then. */
    bool real = it->is_dir && store_can(c->store, place_of_path(it->from).key, STORE_DIRS);
    if (removal_pending_before(c, k->intent, it->from, it->is_dir))
        it->fate = real ? ITEM_OUT : ITEM_LEFT;
    else if (!it->is_dir)
        r = resolve_written_anew_locked(k, it);
    cache_unlock(c);
    return r;
}

static int copy_item_dir(struct copying *k, struct item *it, struct op *op)
{
    struct store *s = k->cache->store;
    struct object obj = {0};
    int r = store_stat(s, op, place_of_path(it->from).key, &obj);

    if (r == 0)
        r = store_mkdir(s, op, place_of_path(it->to).key, obj.attrs_known ? &obj.attrs : NULL,
                        NULL);
    object_release(&obj);
    return r;
}

static int copy_item_file(struct copying *k, struct item *it, struct op *op)
{
    const struct place from = place_of_path(it->from);
    struct cache *c = k->cache;
    struct object obj = {0};
    int r = copy_repeat_attributes(k, op, it->from, it->to, it->etag);
    bool ask = copy_is_meant_otherwise(k, it->to, it->etag);

    if (r == 0 && ask)
        r = copy_ask_version(c, op, from, &it->etag, &it->own);
    if (r == 0)
        r = copy_latest(c, op, from, &it->etag, &it->own, place_of_path(it->to), &obj);
    if (r == 0) {
        it->new_etag = strdup(obj.etag);
        it->own = it->own || (obj.attrs_known && origin_is_ours(c, from, &obj.attrs));
        r = it->new_etag ? 0 : -ENOMEM;
    }
    object_release(&obj);
    return r;
}

static int copy_item(struct each *each, size_t i, struct op *op)
{
    struct copying *k = container_of(each, struct copying, each);
    struct item *it = &k->v[i];

    if (it->fate != ITEM_COPIED)
        return 0;
    int r = it->is_dir ? copy_item_dir(k, it, op) : copy_item_file(k, it, op);
    if (refusal_is_one(r))
        atomic_store(&k->refuser, path_volume(k->cache, it->to, it->is_dir));
    if (r != -ENOENT)
        return r;
    /* Somebody else removed it after the listing. A directory may be there without a marker of
     * its own, and goes with what is below it. */
    it->fate = it->is_dir ? ITEM_OUT : ITEM_LEFT;
    return 0;
}

static int copy_items(struct copying *k, struct op *op)
{
    struct cache *c = k->cache;
    unsigned jobs = c->config.upload_jobs;

    k->each = (struct each){.call = copy_item,
                            .n = k->n,
                            .at_once = jobs < COPIES_AT_ONCE ? jobs : COPIES_AT_ONCE,
                            .patience_ns = c->config.store_timeout_ns};
    return pool_each(c->parts[k->volume], &k->each, op);
}

/* Sorts children before their directories. */
static int by_path_down(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;

    return strcmp(b->from, a->from);
}

/* Whether the item lies below the directory whose path is the first `len` bytes of `path`. */
static bool lies_below(const struct item *it, const char *path, size_t len)
{
    return strncmp(it->from, path, len) == 0 && it->from[len] == '/';
}

static bool has_marker(const struct copying *k, size_t n, const char *path)
{
    const struct item wanted = {.from = (char *)path};
    const struct item *found = bsearch(&wanted, k->v, n, sizeof(*k->v), by_path_down);

    return found && found->is_dir;
}

/* Directories that have no object of their own show in listings as long as something below them
 * is there: until it is removed they are about to go, as their content is. */
static int add_implied_dirs(struct copying *k)
{
    size_t n = k->n;

    if (n)
        qsort(k->v, n, sizeof(*k->v), by_path_down);
    for (size_t i = 0; i < n; i++) {
        const char *path = k->v[i].from;
        for (size_t len = strlen(k->from) + 1; path[len]; len++) {
            if (path[len] != '/' || (i > 0 && lies_below(&k->v[i - 1], path, len)))
                continue;
            auto_free char *dir = strndup(path, len);
            if (dir && has_marker(k, n, dir))
                continue;
            struct item *it = dir ? item_add(k) : NULL;
            if (!it)
                return -ENOMEM;
            it->from = take_ptr(dir);
            it->to = copy_moved_path(it->from, k->from, k->to);
            it->etag = strdup("");
            it->is_dir = true;
            it->fate = ITEM_OUT;
            if (!it->to || !it->etag)
                return -ENOMEM;
        }
    }
    return 0;
}

/* Plans the rows and intentions that remove what was copied, or is written anew, children
 * first. They take the place of the rename in the order, so that later intentions see the same
 * store. */
static int plan_removals(struct copying *k, struct intent **plan, size_t *ret_n)
{
    uint64_t seq = k->intent->seq;
    size_t n = 0;

    if (k->n + 2 >= SEQ_STEP)
        return -EFBIG;
    if (k->n)
        qsort(k->v, k->n, sizeof(*k->v), by_path_down);
    for (size_t i = 0; i <= k->n; i++) {
        bool last = i == k->n;
        bool dir = last || k->v[i].is_dir;
        if (!last && k->v[i].fate == ITEM_LEFT)
            continue;
        plan[n] = intent_new(++seq, dir ? INTENT_RMDIR : INTENT_UNLINK,
                             last ? k->from : k->v[i].from, NULL, 0, last ? "" : k->v[i].etag);
        if (!plan[n])
            return -ENOMEM;
        n++;
    }
    *ret_n = n;
    return 0;
}

static bool is_written_anew(const struct item *it)
{
    return it->fate == ITEM_OUT && !it->is_dir;
}

/* A killed mount may have copied an item that is not copied now: nobody knows the version. */
static void note_item(struct copying *k, const struct item *it)
{
    if (it->new_etag)
        copy_note_version(k, it->from, it->to, it->etag, it->new_etag, it->own);
    else if (is_written_anew(it))
        copy_note_version(k, it->from, it->to, it->etag, NULL, false);
}

static int note_copied(struct copying *k, struct intent **plan, size_t n)
{
    struct journal_row *rows = calloc(n ? n : 1, sizeof(*rows));

    if (!rows)
        return -ENOMEM;
    for (size_t i = 0; i < k->n; i++)
        note_item(k, &k->v[i]);
    for (size_t i = 0; i < n; i++)
        rows[i] = (struct journal_row){.seq = plan[i]->seq,
                                       .kind = plan[i]->kind,
                                       .from = plan[i]->from,
                                       .etag = plan[i]->etag};
    int r = 0;
    k->n_told = 0;
    for (size_t i = 0; i < k->n && r == 0; i++)
        if (k->v[i].new_etag)
            r = copy_gather_told(k, k->v[i].to, k->v[i].etag, k->v[i].new_etag, k->v[i].own);
    if (r == 0)
        r = journal_done_and_told(k->cache->journal, &k->intent->seq, 1, rows, n, k->told,
                                  k->n_told);
    free(rows);
    crash_point("renamedir-noted");
    return r;
}

static void take_version(struct copying *k, const struct item *it)
{
    struct cache *c = k->cache;
    struct node *changed = NULL;

    cache_lock(c);
    if (it->new_etag) {
        copy_tell_next_locked(k, it->to, it->etag, it->new_etag, it->own);
        changed =
            copy_take_version_locked(k, it->from, it->to, it->etag, it->new_etag, it->own);
    } else if (is_written_anew(it)) {
        copy_forget_version_locked(k, it->from, it->to);
    }
    cache_unlock(c);
    if (changed)
        copy_write_keys(c, changed);
}

/* The first item, in the order of by_path_down(), that does not come before `path`. */
static size_t item_at(const struct copying *k, const char *path)
{
    size_t from = 0, to = k->n;

    while (from < to) {
        size_t mid = from + (to - from) / 2;
        if (strcmp(k->v[mid].from, path) > 0)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

/* The file of just this name that was copied, or NULL. */
static const struct item *copied_file(const struct copying *k, const char *path)
{
    for (size_t i = item_at(k, path); i < k->n && strcmp(k->v[i].from, path) == 0; i++)
        if (!k->v[i].is_dir && k->v[i].fate == ITEM_COPIED)
            return &k->v[i];
    return NULL;
}

/* Open files that have no name any more read on from where their version is: in the copy, if it
 * is among what was copied, and else in its old place, from which it is yet to be removed. A
 * native rename has moved all. */
static void readers_follow_locked(struct copying *k, bool native) REQUIRES(cache_mutex)
{
    const struct contents *t = k->cache->content;

    for (size_t i = 0; i < t->n_stale_readers; i++) {
        struct file *f = t->stale_readers[i]->file;
        if (!place_known(f->orphan_source))
            continue;
        const char *from = place_path(f->orphan_source);
        const struct item *it = native ? NULL : copied_file(k, from);
        auto_free char *to = native ? copy_moved_path(from, k->from, k->to) : NULL;
        if (to)
            copy_reader_follows(f, to, "", "");
        else if (it)
            copy_reader_follows(f, it->to, it->etag, it->new_etag);
    }
}

static void take_over(struct copying *k, struct intent **plan, size_t n)
{
    struct copy_readers changed = {0};
    struct cache *c = k->cache;

    k->n_told = 0;
    ns_read(c); /* no listing is between its look at this and its names */
    cache_lock(c);
    k->intent->taken_over = true; /* the old place has older versions than names know now */
    cache_unlock(c);
    ns_done(c);
    for (size_t i = 0; i < k->n; i++)
        take_version(k, &k->v[i]);
    crash_point("renamedir-taken");
    cache_lock(c);
    copy_sources_locked(c, k->intent, &changed);
    readers_follow_locked(k, plan == NULL);
    for (size_t i = 0; i < n; i++) {
        plan[i]->since = k->intent->since; /* who waits for the rename waits for them */
        scope_takes_locked(plan[i], k->intent);
    }
    intent_remove_locked(c, k->intent);
    for (size_t i = 0; i < n; i++)
        intent_add_locked(c, plan[i]);
    cache_unlock(c);
    copy_write_told(k);
    copy_write_readers(c, &changed);
}

/* ---- what is in its way ---- */

/* Whether an item is copied to a place below `path` (where it comes from, not its own). */
static bool copied_below(const struct copying *k, const char *path)
{
    auto_free char *dir = NULL;

    if (asprintf(&dir, "%s/", path) < 0)
        return true; /* waits for more than it must */
    for (size_t i = item_at(k, dir); i-- > 0 && strncmp(k->v[i].from, dir, strlen(dir)) == 0;)
        if (k->v[i].fate == ITEM_COPIED)
            return true;
    return false;
}

/* Whether a file (or a directory) of just this name is copied. */
static bool copied_at(const struct copying *k, const char *path, bool dir)
{
    size_t i = item_at(k, path);

    return i < k->n && strcmp(k->v[i].from, path) == 0 && k->v[i].fate == ITEM_COPIED &&
           k->v[i].is_dir == dir;
}

/* Whether what the earlier intention removes, below the new name, is of another kind than what
 * is copied there, or to a place above or below it. */
static bool is_in_the_way(const struct copying *k, const struct intent *removal)
{
    auto_free char *path = copy_moved_path(removal->from, k->to, k->from);
    size_t len = strlen(k->from);
    bool dir = removal->kind == INTENT_RMDIR;

    if (!path || strlen(path) <= len)
        return false; /* its own name was waited for */
    if (copied_at(k, path, !dir) || (!dir && copied_below(k, path)))
        return true;
    for (char *end; (end = strrchr(path, '/')) && end > path + len;) {
        *end = '\0';
        if (copied_at(k, path, false))
            return true;
    }
    return false;
}

struct ways {
    const struct copying *k;
    bool found;
};

/* All of them are marked: none is the one that is looked for. */
static bool mark_urgent(void *arg, struct intent *i) REQUIRES(cache_mutex)
{
    struct ways *w = arg;

    if (!i->debt.error && is_in_the_way(w->k, i))
        w->found = i->urgent = true;
    return false;
}

/* Many stores hold nothing at or below a name of the other kind: an earlier removal of such a
 * name goes first. Whether there is one to wait for. */
static bool must_wait(struct copying *k)
{
    struct cache *c = k->cache;
    struct ways ways = {.k = k};
    const struct row_ask ask = {.sets = ROWS_REMOVING,
                                .path = k->to,
                                .until = k->intent->seq,
                                .is = mark_urgent,
                                .arg = &ways};

    if (k->n)
        qsort(k->v, k->n, sizeof(*k->v), by_path_down);
    cache_lock(c);
    (void)row_below_locked(c, &ask);
    cache_unlock(c);
    return ways.found;
}

/* A directory's own marker is not part of the listing below it. *ret tells whether it has one.
 */
static int copy_marker(struct copying *k, struct op *op, bool *ret)
{
    struct cache *c = k->cache;
    struct object obj = {0};

    *ret = false;
    if (path_dir_kind(c, k->from) != DIR_STORED)
        return 0; /* what stands for it there is below it */
    cache_lock(c);
    bool older = removal_pending_before(c, k->intent, k->from, true);
    cache_unlock(c);
    if (older)
        return 0; /* it is of the directory that had the name before, and goes with that */
    int r = store_stat(c->store, op, place_of_path(k->from).key, &obj);
    *ret = r == 0 && obj.is_prefix && obj.has_marker;
    if (*ret)
        r = store_mkdir(c->store, op, place_of_path(k->to).key,
                        obj.attrs_known ? &obj.attrs : NULL, NULL);
    object_release(&obj);
    return r == -ENOENT ? 0 : r;
}

/* The directory has no marker of its own, and would take its attributes from the marker of the
 * directory that it replaced. Where that can't be removed, as some servers remove none that has
 * something below it, it becomes one of the defaults: versitygw keeps what a PUT does not say.
 */
static int remove_replaced_marker(struct copying *k, struct op *op)
{
    const struct cache_config *config = &k->cache->config;
    const struct attrs defaults = {.has = ATTR_MODE | ATTR_OWNER,
                                   .mode = S_IFDIR | config->dir_mode,
                                   .uid = config->uid,
                                   .gid = config->gid};
    const struct place to = place_of_path(k->to);
    struct store *s = k->cache->store;
    struct object obj = {0};

    if (path_dir_kind(k->cache, k->to) != DIR_STORED || store_can(s, to.key, STORE_DIRS) ||
        store_rmdir(s, op, to.key) == 0)
        return 0;
    int r = store_stat_dir(s, op, to.key, &obj);
    object_release(&obj);
    return r == 0 ? store_mkdir(s, op, to.key, &defaults, NULL) : r == -ENOENT ? 0 : r;
}

static int copy_tree(struct copying *k, struct op *op)
{
    struct cache *c = k->cache;
    bool has_marker = false;
    size_t n = 0;

    k->op = op;
    int r = store_list(c->store, op, place_of_path(k->from).key, LIST_RECURSIVE, collect, k);

    if (r == -ENOENT)
        r = 0;
    if (r == 0 && must_wait(k))
        return COPY_WAITS;
    if (r == 0)
        r = copy_marker(k, op, &has_marker);
    if (r == 0 && !has_marker)
        r = remove_replaced_marker(k, op);
    if (r == 0)
        r = copy_items(k, op);
    crash_point("renamedir-copied");
    if (r == 0)
        r = add_implied_dirs(k);
    if (r < 0)
        return r;
    for (size_t i = 0; i < k->n && r == 0; i++)
        if (k->v[i].fate == ITEM_COPIED)
            r = intents_retire(c, k->v[i].is_dir ? INTENT_RMDIR : INTENT_UNLINK, k->v[i].to,
                               k->intent->seq);
    if (r == 0)
        r = intents_retire(c, INTENT_RMDIR, k->to, k->intent->seq);
    struct intent **plan = calloc(k->n + 1, sizeof(*plan));
    if (!plan)
        return -ENOMEM;
    if (r == 0)
        r = plan_removals(k, plan, &n);
    if (r == 0)
        r = note_copied(k, plan, n);
    if (r < 0)
        (void)copy_not_noted(op, k->from, k->to, r);
    if (r == 0)
        take_over(k, plan, n);
    for (size_t i = 0; r < 0 && i < k->n + 1; i++)
        intent_free(plan[i]);
    free(plan);
    return r;
}

static bool removals_pending_below(struct cache *c, const char *path) REQUIRES(cache_mutex)
{
    const struct row_ask ask = {.sets = ROWS_REMOVING, .path = path};

    return row_at_locked(c, &ask) || row_below_locked(c, &ask);
}

/* Files of the mirror whose stamps name a place below the directory that moves. */
static int collect_stamped(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    struct copying *k = arg;

    for (struct entry *e = n->file ? n->links : NULL; e; e = e->next_link) {
        auto_place struct place at = e->dirty ? NO_PLACE : entry_place(e);
        const char *from = place_known(at) && etag_known(&e->etag) ? place_path(at) : NULL;
        char *to = from ? copy_moved_path(from, k->from, k->to) : NULL;
        struct item *it = to ? item_add(k) : NULL;
        if (!it) {
            free(to);
            continue;
        }
        it->from = strdup(from);
        it->to = to;
        it->etag = etag_dup(&e->etag);
        it->new_etag = etag_dup(&e->etag);
        if (!it->from || !it->etag || !it->new_etag)
            return -ENOMEM;
    }
    return 0;
}

/* A native rename takes all along: nothing below may be about to go. */
static int rename_tree(struct copying *k, struct op *op)
{
    const struct place from = place_of_path(k->from), to = place_of_path(k->to);
    struct cache *c = k->cache;
    struct object obj = {0};

    cache_lock(c);
    bool unsafe = removals_pending_below(c, k->from) || removals_pending_below(c, k->to);
    auto_free char *at = intent_path_after(row_next(k->intent), k->to);
    struct node *dir = at && !unsafe ? tree_find(c, at, NULL) : NULL;
    int cr = dir ? tree_each(dir, collect_stamped, k) : 0;
    cache_unlock(c);
    if (cr < 0)
        return cr;
    if (unsafe)
        return -EOPNOTSUPP;
    int r = copy_rename(c, op, from, to);
    if (r == -ENOENT) {
        /* Never there, or a repeat of a rename that had happened. */
        r = store_stat(c->store, op, to.key, &obj) == 0 ? 0 : -EOPNOTSUPP;
        object_release(&obj);
    }
    if (r == -ENOTEMPTY || r == -EEXIST)
        return -EOPNOTSUPP;
    crash_point("renamedir-native");
    if (r < 0)
        return r;
    r = note_copied(k, NULL, 0);
    if (r < 0)
        return copy_not_noted(op, k->from, k->to, r);
    take_over(k, NULL, 0);
    return 0;
}

int copy_dir(struct copying *k, struct op *op)
{
    const struct place from = place_of_path(k->from);
    int r =
        store_can(k->cache->store, from.key, STORE_RENAME) ? rename_tree(k, op) : -EOPNOTSUPP;

    if (r != -EOPNOTSUPP)
        return r;
    copy_items_release(k);
    return copy_tree(k, op);
}
