/* The attribute index of the tree's small directories, written: part by part. */
#include "cache/listing/index.h"

#include "cache/types/attr_index.h"
#include "cache/types/etag.h"
#include "common/buf.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* Directories written at once. */
#define SPOTS_MAX 4096

/* Keys that may lie between those of the directories to be written, and as many again for each
 * file to be told of. */
#define KEYS_BETWEEN 4000
#define KEYS_FACTOR  8

/* What is younger than this may have come to the store after it was listed. */
#define YOUNG_NS (60 * NS_PER_SEC)

/* ---- when to write ---- */

static void add_news_locked(struct cache *c, struct node *dir, unsigned news)
    REQUIRES(cache_mutex)
{
    struct dir_index *x = &dir->dir->index;

    x->news += news;
    if (!c->listing->index_tree)
        return;
    c->listing->index_tree_news += news;
    c->listing->index_tree->last_ns = clock_mono_ns();
    if (!c->listing->small_dirs.first)
        c->listing->index_tree->first_ns = c->listing->index_tree->last_ns;
    if (debt_is_queued(&x->debt))
        return;
    c->listing->index_tree_news += x->news - news; /* of before it was queued */
    node_ref_locked(dir);
    debts_add(&c->listing->small_dirs, &x->debt);
    if (c->listing->index_tree_news >= NEWS_MIN)
        scheduler_kick_locked(c);
}

void index_tree_news_locked(struct cache *c, struct node *dir)
{
    cache_assert_locked(c);
    add_news_locked(c, dir, 1);
}

/* How many files the parts have that the news may be in. */
static size_t files_there_locked(const struct index_tree *t) REQUIRES(cache_mutex)
{
    const struct loaded *l;
    size_t n = 0;

    LL_FOREACH(t->loaded, l)
    {
        n += HASH_COUNT(l->part.files.entries);
    }
    return n > t->files ? n : t->files;
}

static int64_t due_ns(struct cache *c) REQUIRES(cache_mutex)
{
    struct index_tree *t = c->listing->index_tree;
    int64_t due = index_rested_ns(c, t->first_ns, t->last_ns);

    if (c->listing->index_tree_news < NEWS_MIN)
        return INT64_MAX;
    if (c->listing->index_now) /* all at once: fewer may be too few afterwards */
        return t->debt.attempts || c->queue->uploads_running ? INT64_MAX : 0;
    if ((uint64_t)c->listing->index_tree_news * INDEX_NEWS_PART < files_there_locked(t))
        due = t->first_ns + INDEX_LATE_NS;
    return due > t->debt.due_ns ? due : t->debt.due_ns;
}

bool index_tree_pending_locked(struct cache *c)
{
    cache_assert_locked(c);
    return c->listing->index_tree && (c->listing->index_tree->debt.running || due_ns(c) == 0);
}

/* ---- what is to be written ---- */

/* A directory of which something new is known, and what the store lists in it. */
struct spot {
    UT_hash_handle hh; /* in writing.by_key */
    struct node *dir;  /* referenced */
    struct place at;   /* owned */
    char *rank;
    unsigned news;
    struct listed *v; /* files, up to one more than the index takes */
    size_t n, cap;
    bool whole;           /* it has no more */
    bool has_marker;      /* its own: */
    struct object marker; /* without attributes */
};

struct writing {
    struct task task;
    struct cache *cache;
    struct spot *spots; /* in the order of their ranks */
    size_t n;
    struct spot *by_key;
    unsigned news;
    int64_t listed_ns; /* CLOCK_REALTIME; when the listing began */
    /* Of the listing: */
    struct place base;    /* owned; the directory that all are below */
    const char *end;      /* the rank behind which nothing is looked for */
    struct place stopped; /* owned; what it ended before, or none */
    uint64_t keys_left;
    size_t files; /* in the parts, afterwards */
};

static void writing_free(struct writing *w)
{
    HASH_CLEAR(hh, w->by_key);
    for (size_t i = 0; i < w->n; i++) {
        struct spot *s = &w->spots[i];
        index_collect_free(s->v, s->n);
        place_free(&s->at);
        free(s->rank);
    }
    free(w->spots);
    place_free(&w->base);
    place_free(&w->stopped);
    free(w);
}

static bool begins_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Whether all keys at or below rank `a` come before the key. */
static bool is_behind(const char *key, const char *a)
{
    return !begins_with(key, a) && strcmp(key, a) > 0;
}

/* Directories by key, from the common one on. */
static int order(struct writing *w)
{
    const char *a = w->spots[0].at.key, *b = w->spots[w->n - 1].at.key;
    size_t both = 0;

    for (size_t i = 0; i < w->n; i++) {
        struct spot *s = &w->spots[i];
        HASH_ADD_KEYPTR(hh, w->by_key, s->at.key, strlen(s->at.key), s);
        if (TABLE_LACKS(hh, s))
            return -ENOMEM;
        if (i == 0 || is_behind(s->rank, w->end))
            w->end = s->rank;
    }
    for (size_t i = 0;; i++) {
        bool at_end = (!a[i] || a[i] == '/') && (!b[i] || b[i] == '/');
        both = at_end ? i : both;
        if (!a[i] || a[i] != b[i])
            break;
    }
    w->base = place_own_key(strndup(a, both));
    w->keys_left = KEYS_BETWEEN + (uint64_t)KEYS_FACTOR * w->news;
    return place_known(w->base) ? 0 : -ENOMEM;
}

static void note_marker(struct spot *s, const struct object *obj)
{
    if (!s)
        return;
    s->has_marker = true;
    s->marker = *obj;
    s->marker.attrs = (struct attrs){0};
}

static int visit(void *arg, const char *name, const struct object *obj)
{
    struct writing *w = arg;
    auto_place struct place at = place_join(w->base, name);
    struct spot *s = NULL;

    if (!place_known(at))
        return -ENOMEM;
    if (!w->keys_left || is_behind(at.key, w->end)) {
        w->stopped = place_take(&at);
        return 1;
    }
    w->keys_left--;
    if (!*obj->etag)
        return 0;
    if (obj->is_prefix) {
        HASH_FIND_STR(w->by_key, at.key, s);
        note_marker(s, obj);
        return 0;
    }
    HASH_FIND(hh, w->by_key, at.key, path_parent_len(at.key), s);
    if (!s || s->n == INDEX_FILES_MIN)
        return 0;
    return index_collect(&s->v, &s->n, &s->cap, path_basename(at.key), obj);
}

/* One listing for all: they lie side by side, mostly. What it does not come to is left out. */
static int list_spots(struct writing *w, struct op *op)
{
    struct cache *c = w->cache;
    int r = order(w);

    if (r < 0)
        return r;
    const char *first = place_below(w->base, w->spots[0].at);
    w->listed_ns = clock_real_ns();
    r = store_list_after(c->store, op, w->base.key, LIST_RECURSIVE,
                         first && *first ? first : NULL, visit, w);
    if (r < 0 && r != -ENOENT)
        return r;
    for (size_t i = 0; i < w->n; i++)
        w->spots[i].whole =
            !place_known(w->stopped) || is_behind(w->stopped.key, w->spots[i].rank);
    return 0;
}

/* ---- merging ---- */

/* Adds what is known of the directory's marker, or what the old part said of it. */
static int merge_marker_locked(const struct spot *s, const struct index *old, struct index *ret)
    REQUIRES(cache_mutex)
{
    const struct index_entry *before = index_find(old, s->rank);
    struct attrs known;
    bool sure = false, ours = dir_marker_attrs_locked(s->dir, &s->marker, &known, &sure);
    int r = 0;

    if (before && !index_entry_fits(before, &s->marker))
        before = NULL;
    if (ours && (!before || sure || index_attrs_equal(&before->attrs, &known)))
        r = index_add_in(ret, s->at.key, "", &s->marker, &known);
    else if (before && !ours)
        r = index_add_in(ret, s->at.key, "", &s->marker, &before->attrs);
    return r == -E2BIG || r == -EEXIST ? 0 : r;
}

/* Adds what is known of the spots [from, to), or what the old part said of their files. */
static int merge_spots(struct writing *w, size_t from, size_t to, const struct index *old,
                       struct index *ret)
{
    struct cache *c = w->cache;
    int r = 0;

    cache_lock(c);
    for (size_t i = from; i < to && r == 0; i++) {
        const struct spot *s = &w->spots[i];
        /* Each counts as the most files that it can have, less one: i is a last one. */
        index_breathe_locked(c, (i + 1) * INDEX_FILES_MIN - 1);
        if (s->has_marker && s->n < INDEX_FILES_MIN && s->whole)
            r = merge_marker_locked(s, old, ret);
        for (size_t k = 0; k < s->n && s->n < INDEX_FILES_MIN && s->whole && r == 0; k++) {
            auto_place struct place at = place_join(s->at, s->v[k].name);
            r = place_known(at) ? index_merge_locked(s->dir, s->at.key, index_find(old, at.key),
                                                     &s->v[k], ret)
                                : -ENOMEM;
        }
    }
    cache_unlock(c);
    return r;
}

/* Whether the listing decided what is said of the file. */
static bool was_listed(const struct spot *s, const char *name)
{
    if (!s || s->n == INDEX_FILES_MIN) /* that one has an index of its own */
        return s;
    for (size_t i = 0; i < s->n && s->whole; i++)
        if (strcmp(s->v[i].name, name) == 0)
            return true;
    return false;
}

/* Whether what is known of the tree says that there is no such version. A listing from before
 * the version came says nothing of it. */
static bool refuted_locked(struct cache *c, const struct index_entry *e) REQUIRES(cache_mutex)
{
    int64_t age_ns = clock_real_ns() - e->modified_ns - YOUNG_NS;
    struct node *n = c->tree->root;
    const char *name = e->name;
    char part[PATH_NAME_MAX + 1];

    for (;;) {
        size_t len = strcspn(name, "/");
        if (n->dir && !*name) /* its own marker, which a listing of it shows */
            return n->dir->files >= INDEX_FILES_MIN ||
                   (!n->dir->has_marker && n->dir->listed_ns &&
                    clock_mono_ns() - n->dir->listed_ns < age_ns);
        if (!n->dir || (!name[len] && n->dir->files >= INDEX_FILES_MIN))
            return true;
        memcpy(part, name, len);
        part[len] = '\0';
        struct entry *at = entry_find(n, part);
        bool told = n->dir->listed_ns && clock_mono_ns() - n->dir->listed_ns < age_ns;
        if (!at)
            return told;
        if (!name[len])
            return told && !etag_is(&at->etag, e->etag);
        n = at->node;
        name += len + 1;
    }
}

/* Moves what the old part says of other directories, unless it is refuted. */
static void keep_others(struct writing *w, const char *start, const char *end,
                        struct index *old, struct index *ret)
{
    struct cache *c = w->cache;
    struct index_entry *e, *next;
    size_t n = 0;

    cache_lock(c);
    HASH_ITER(hh, old->entries, e, next)
    {
        struct spot *s = NULL;
        HASH_FIND(hh, w->by_key, e->name, path_parent_len(e->name), s);
        index_breathe_locked(c, n++);
        bool young = e->modified_ns > w->listed_ns - YOUNG_NS;
        if (index_rank_cmp(e->name, start) < 0 || (end && index_rank_cmp(e->name, end) >= 0) ||
            index_find(ret, e->name) || was_listed(s, path_basename(e->name)) ||
            (s && s->whole && !young) || refuted_locked(c, e))
            continue;
        index_move(old, e, ret);
    }
    cache_unlock(c);
}

/* ---- writing ---- */

static int put_part_text(struct cache *c, struct op *op, const char *start,
                         struct index_part *p, const struct buf *before, const char *etag,
                         char *ret_etag)
{
    auto_buf struct buf text = BUF_INIT(INDEX_BYTES_MAX);
    char key[INDEX_KEY_MAX];
    int r = index_part_key(start, key);

    if (r == 0)
        r = index_part_format(p, start, &text);
    if (r < 0 || (before && before->data && before->len == text.len &&
                  memcmp(before->data, text.data, text.len) == 0))
        return r;
    return index_put_text(c, op, place_of_key(key), &text, etag, ret_etag);
}

static int put_first(struct writing *w, struct op *op, struct stored_part *first)
{
    int r =
        put_part_text(w->cache, op, "", &first->part, &first->text, first->etag, first->etag);

    buf_release(&first->text); /* it is another one now */
    return r;
}

static size_t text_bytes(const struct index_entry *e)
{
    const struct attrs *a = &e->attrs;

    return 200 + 3 * (strlen(path_basename(e->name)) + (a->target ? strlen(a->target) : 0) +
                      (a->xattrs ? strlen(a->xattrs) : 0));
}

/* Takes what is behind the first `files` files or `bytes` bytes off, to the end of a directory.
 * `p` is in order. */
static void cut(struct index_part *p, size_t files, size_t bytes, struct index_part *ret_rest)
{
    const struct index_entry *last = NULL;
    struct index_entry *e, *next;
    size_t n = 0, length = 0;

    *ret_rest = (struct index_part){0};
    HASH_ITER(hh, p->files.entries, e, next)
    {
        bool full = n >= files || length >= bytes;
        bool same = last && index_rank_len(last->name) == index_rank_len(e->name) &&
                    memcmp(last->name, e->name, index_rank_len(e->name)) == 0;
        if (ret_rest->files.entries || (full && !same)) {
            index_move(&p->files, e, &ret_rest->files);
            continue;
        }
        last = e;
        n++;
        length += text_bytes(e);
    }
}

/* Puts a part that is new: with what somebody else may have put there since. */
static int put_new(struct writing *w, struct op *op, const char *start, const char *end,
                   struct index_part *p)
{
    struct stored_part old;
    int r = index_tree_load(w->cache, op, start, &old);

    if (r == -EACCES) /* what is not there, to one who may not list */
        r = 0;
    if (r == 0) {
        keep_others(w, start, end, &old.part.files, &p->files);
        index_part_sort(p);
        r = put_part_text(w->cache, op, start, p, &old.text, old.etag, NULL);
    }
    index_tree_stored_release(&old);
    return r;
}

static bool too_long(const struct index_part *p)
{
    struct index_entry *e, *next;
    size_t bytes = 0;

    HASH_ITER(hh, p->files.entries, e, next)
    {
        bytes += text_bytes(e);
    }
    return HASH_COUNT(p->files.entries) > PART_FILES_MAX || bytes > PART_BYTES_MAX;
}

/* Splits `p`, which ends at `end`: what is behind its first part is put, and the first part of
 * the tree learns of it. What can't be told of is left out. */
static int split(struct writing *w, struct op *op, struct index_part *first,
                 struct index_part *p, const char *end)
{
    struct index_part rest, more;
    bool split = too_long(p);
    int r = 0;

    cut(p, split ? PART_FILES_MAX / 2 : SIZE_MAX, split ? PART_BYTES_MAX / 2 : SIZE_MAX, &rest);
    while (rest.files.entries && r == 0) {
        const char *key = rest.files.entries->name;
        auto_free char *start = strndup(key, index_rank_len(key)), *next = NULL;
        cut(&rest, PART_FILES_MAX / 2, PART_BYTES_MAX / 2, &more);
        if (more.files.entries) {
            key = more.files.entries->name;
            next = strndup(key, index_rank_len(key));
        }
        r = start && (next || !more.files.entries) ? index_part_add_start(first, start)
                                                   : -ENOMEM;
        if (r == 0)
            r = put_new(w, op, start, next ? next : end, &rest);
        index_part_release(&rest);
        rest = more;
    }
    index_part_release(&rest);
    return r == -E2BIG ? 0 : r;
}

/* The spots [from, to) are in the part from `start` to `end`. */
static int write_range(struct writing *w, struct op *op, struct stored_part *first, size_t from,
                       size_t to, const char *start, const char *end)
{
    struct stored_part own = {.etag = ""}, *old = *start ? &own : first;
    struct index_part merged = {0};
    size_t starts = first->part.n_starts;
    int r = *start ? index_tree_load(w->cache, op, start, &own) : 0;

    if (r == -EACCES)
        r = 0;
    if (r == 0)
        r = merge_spots(w, from, to, &old->part.files, &merged.files);
    if (r == 0)
        keep_others(w, start, end, &old->part.files, &merged.files);
    w->files += HASH_COUNT(merged.files.entries);
    index_part_sort(&merged);
    /* The first part has to say where the others are. */
    if (r == 0 && (*first->etag || HASH_COUNT(merged.files.entries) >= INDEX_FILES_MIN)) {
        r = split(w, op, &first->part, &merged, end);
        if (!*start) {
            index_release(&first->part.files);
            first->part.files = merged.files;
            merged.files = (struct index){0};
        }
        if (r == 0 && (!*start || first->part.n_starts > starts))
            r = put_first(w, op, first);
        if (r == 0 && *start)
            r = put_part_text(w->cache, op, start, &merged, &own.text, own.etag, NULL);
    }
    index_part_release(&merged);
    index_tree_stored_release(&own);
    return r;
}

/* Part by part; -ESTALE when another mount put one meanwhile. */
static int write_once(struct writing *w, struct op *op)
{
    struct stored_part first;
    int r = index_tree_load(w->cache, op, "", &first);

    if (r == -EACCES) /* what is not there, to one who may not list */
        r = 0;
    w->files = 0;
    for (size_t i = 0, next; i < w->n && r == 0; i = next) {
        const char *to, *from = index_part_of(&first.part, w->spots[i].rank, &to);
        auto_free char *start = strdup(from), *end = to ? strdup(to) : NULL;
        next = i + 1;
        while (next < w->n && (!end || strcmp(w->spots[next].rank, end) < 0))
            next++;
        r = start && (end || !to) ? write_range(w, op, &first, i, next, start, end) : -ENOMEM;
    }
    index_tree_stored_release(&first);
    return r;
}

static int write_parts(struct writing *w, struct op *op)
{
    int r = list_spots(w, op);

    for (int i = 0; r == 0 && i < INDEX_ROUNDS_MAX; i++) {
        r = write_once(w, op);
        if (r != -ESTALE)
            return r;
        r = i < INDEX_ROUNDS_MAX - 1 ? 0 : r;
    }
    return r;
}

/* What could not be written is tried again a few times. */
static void failed_locked(struct writing *w, int r, const char *why) REQUIRES(cache_mutex)
{
    struct cache *c = w->cache;

    if (!index_failed_locked(c, &c->listing->index_tree->debt, r, why))
        return;
    for (size_t i = 0; i < w->n; i++) {
        struct node *dir = w->spots[i].dir;
        bool own = debt_is_queued(&dir->dir->index.debt) && !index_is_in_tree_locked(c, dir);
        if (!own && !(dir->flags & NODE_REMOVED))
            add_news_locked(c, dir, w->spots[i].news);
    }
}

static void run_writing(struct task *task)
{
    struct writing *w = container_of(task, struct writing, task);
    struct cache *c = w->cache;
    struct index_tree *t = c->listing->index_tree;
    struct op op;

    cache_op_within(c, &op, INDEX_WRITE_NS);
    int r = write_parts(w, &op);
    cache_lock(c);
    debt_run(&t->debt, false);
    c->listing->indexes_running--;
    if (r < 0) {
        failed_locked(w, r, op.why);
    } else {
        debt_forgive(&t->debt);
        t->absent_ns = 0;
        t->files = w->files;
        index_tree_unload_locked(t, 0);
    }
    for (size_t i = 0; i < w->n; i++)
        node_unref_locked(c, w->spots[i].dir);
    (void)pthread_cond_broadcast(&c->progress);
    scheduler_kick_locked(c);
    cache_unlock(c);
    writing_free(w);
}

static int by_rank(const void *a, const void *b)
{
    return strcmp(((const struct spot *)a)->rank, ((const struct spot *)b)->rank);
}

/* Takes the directory off the list. */
static void take_locked(struct cache *c, struct writing *w, struct node *dir)
    REQUIRES(cache_mutex)
{
    struct spot *s = &w->spots[w->n];

    s->at = node_place(dir);
    s->rank = place_known(s->at) ? index_tree_rank(s->at) : NULL;
    s->news = dir->dir->index.news;
    s->dir = dir;
    if (s->rank) {
        node_ref_locked(dir);
        w->news += s->news;
        w->n++;
    } else {
        place_free(&s->at);
    }
    index_unqueue_locked(c, dir);
}

static void start_locked(struct cache *c, int64_t now) REQUIRES(cache_mutex)
{
    struct writing *w = calloc(1, sizeof(*w));
    struct debt *d, *next;

    if (w)
        *w = (struct writing){
            .task.run = run_writing, .cache = c, .spots = calloc(SPOTS_MAX, sizeof(*w->spots))};
    if (!w || !w->spots) {
        free(w);
        return; /* looked at again at the next pass */
    }
    for (d = c->listing->small_dirs.first; d && w->n < SPOTS_MAX; d = next) {
        next = d->next;
        take_locked(c, w, debt_index_dir(d));
    }
    /* What is left has rested long enough. */
    c->listing->index_tree->first_ns =
        c->listing->small_dirs.first ? now - INDEX_BUSY_MAX_NS : now;
    if (!w->n) {
        writing_free(w);
        return;
    }
    qsort(w->spots, w->n, sizeof(*w->spots), by_rank);
    debt_run(&c->listing->index_tree->debt, true);
    c->listing->indexes_running++;
    workers_submit_locked(c->askers, NULL, &w->task, false);
}

void index_tree_start_locked(struct cache *c, int64_t now, int64_t *next_due)
{
    cache_assert_locked(c);
    if (!c->listing->index_tree)
        return;
    index_tree_unload_locked(c->listing->index_tree, c->config.index_kept_ns);
    int64_t due = due_ns(c);
    if (due > now)
        *next_due = due < *next_due ? due : *next_due;
    else if (!c->listing->indexes_running)
        start_locked(c, now);
}
