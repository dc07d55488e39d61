/* The attribute index of the tree's small directories: those with too few files for an index of
 * their own. Its first part lies under a key that all mounts know, and says where the others
 * begin; one part tells of some thousand files. A walk reads the parts that it comes through; a
 * mount that paid for a walk with HEADs, or uploaded below, writes them, later and at once.
 * What index.c says of the indexes of single directories holds here, too. */
#include "cache/listing/index.h"

#include "cache/types/attr_index.h"
#include "cache/types/etag.h"
#include "common/buf.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* Parts in memory. */
#define LOADED_MAX 4

char *index_tree_rank(struct place dir)
{
    size_t len = strlen(dir.key);
    char *rank = calloc(len + 2, 1);

    if (rank && len) {
        memcpy(rank, dir.key, len);
        rank[len] = '/';
    }
    return rank;
}

/* ---- parts in memory ---- */

static void loaded_free(struct loaded *l)
{
    if (!l)
        return;
    index_part_release(&l->part);
    free(l->start);
    free(l->end);
    free(l);
}

int index_tree_init(struct cache *c)
{
    c->listing->index_tree = calloc(1, sizeof(*c->listing->index_tree));
    return c->listing->index_tree ? 0 : -ENOMEM;
}

void index_tree_free(struct cache *c)
{
    struct loaded *l, *next;

    cache_assert_locked(c);
    if (!c->listing->index_tree)
        return;
    LL_FOREACH_SAFE(c->listing->index_tree->loaded, l, next)
    {
        loaded_free(l);
    }
    debt_release(&c->listing->index_tree->debt);
    free(c->listing->index_tree);
}

void index_tree_unload_locked(struct index_tree *t, int64_t old_ns)
{
    struct loaded *l, *next;
    int64_t now = clock_mono_ns();

    LL_FOREACH_SAFE(t->loaded, l, next)
    {
        if (l->users || now - l->used_ns < old_ns)
            continue;
        LL_DELETE(t->loaded, l);
        loaded_free(l);
    }
}

/* Who uses a part uses the first one, too, which says where the next is. */
static void used_locked(struct index_tree *t, struct loaded *l) REQUIRES(cache_mutex)
{
    struct loaded *first;

    l->used_ns = clock_mono_ns();
    LL_FOREACH(t->loaded, first)
    {
        if (!*first->start)
            first->used_ns = l->used_ns;
    }
}

/* Frees the part used longest ago; the first part says where the others are. */
static void make_room_locked(struct index_tree *t) REQUIRES(cache_mutex)
{
    struct loaded *l, *oldest = NULL;
    unsigned n = 0;

    LL_FOREACH(t->loaded, l)
    {
        n++;
        if (!l->users && *l->start && (!oldest || l->used_ns < oldest->used_ns))
            oldest = l;
    }
    if (n < LOADED_MAX || !oldest)
        return;
    LL_DELETE(t->loaded, oldest);
    loaded_free(oldest);
}

/* The part in memory that the rank is in, or the first part if there is none; `*ret_found`. */
static struct loaded *find_locked(struct index_tree *t, const char *rank, bool *ret_found)
    REQUIRES(cache_mutex)
{
    struct loaded *l, *first = NULL;

    LL_FOREACH(t->loaded, l)
    {
        *ret_found = strcmp(rank, l->start) >= 0 && (!l->end || strcmp(rank, l->end) < 0);
        if (*ret_found)
            return l;
        first = *l->start ? first : l;
    }
    *ret_found = false;
    return first;
}

void index_tree_stored_release(struct stored_part *s)
{
    index_part_release(&s->part);
    buf_release(&s->text);
}

int index_tree_load(struct cache *c, struct op *op, const char *start, struct stored_part *ret)
{
    char key[INDEX_KEY_MAX];

    *ret = (struct stored_part){.etag = ""};
    int r = index_part_key(start, key);
    if (r == 0)
        r = index_read_text(c, op, place_of_key(key), &ret->text, ret->etag);
    if (r == 0 && ret->text.data &&
        index_part_parse(ret->text.data, ret->text.len, start, &ret->part) < 0)
        log_debug("the attribute index of the tree is damaged: %s/%s", c->store->url, key);
    return r;
}

/* Reads the part from `start` to `end`; NULL when there is no first part. One of the others
 * that can't be read is an empty one. */
static struct loaded *read_part(struct cache *c, const char *start, const char *end)
{
    struct loaded *l = calloc(1, sizeof(*l));
    struct stored_part s;
    struct op op;

    cache_op_within(c, &op,
                    c->config.ask_timeout_ns < INDEX_READ_NS ? c->config.ask_timeout_ns
                                                             : INDEX_READ_NS);
    int r = index_tree_load(c, &op, start, &s);
    if (r < 0)
        log_debug("no attribute index of the tree: %s", op.why);
    if (l && !*start && s.part.n_starts)
        end = s.part.starts[0];
    bool there = *start || *s.etag;
    if (l && there) {
        l->start = strdup(start);
        l->end = end ? strdup(end) : NULL;
        l->part = s.part;
        s.part = (struct index_part){0};
    }
    index_tree_stored_release(&s);
    if (l && l->start && (!end || l->end))
        return l;
    loaded_free(l);
    return NULL;
}

/* Reads the part that the rank is in, or first the first. False when there is none. */
static bool load_locked(struct cache *c, struct loaded *first, const char *rank)
    REQUIRES(cache_mutex)
{
    struct index_tree *t = c->listing->index_tree;
    const char *end = NULL, *start = first ? index_part_of(&first->part, rank, &end) : "";
    auto_free char *from = strdup(start), *to = end ? strdup(end) : NULL;

    t->loading = true;
    cache_unlock(c);
    struct loaded *l = from && (!end || to) ? read_part(c, from, to) : NULL;
    cache_lock(c);
    t->loading = false;
    (void)pthread_cond_broadcast(&c->progress);
    if (l) {
        make_room_locked(t);
        LL_PREPEND(t->loaded, l);
        used_locked(t, l);
    }
    t->absent_ns = l ? 0 : clock_mono_ns();
    return l != NULL;
}

/* The part with the rank, to be put back, or NULL. */
static struct loaded *get_part(struct cache *c, const char *rank)
{
    struct index_tree *t = c->listing->index_tree;
    int64_t until = clock_mono_ns() + INDEX_READ_NS;
    struct loaded *l;
    bool found;

    cache_lock(c);
    for (;;) {
        l = find_locked(t, rank, &found);
        bool absent = t->absent_ns && clock_mono_ns() - t->absent_ns < INDEX_ABSENT_NS;
        if (found || absent || c->stopping || clock_mono_ns() > until)
            break;
        if (t->loading)
            (void)cache_wait_until(c, &c->progress, until);
        else if (!load_locked(c, l, rank))
            break;
    }
    if (found) {
        l->users++;
        used_locked(t, l);
    }
    cache_unlock(c);
    return found ? l : NULL;
}

static void put_part(struct cache *c, struct loaded *l)
{
    cache_lock(c);
    l->users--;
    used_locked(c->listing->index_tree, l);
    cache_unlock(c);
}

static size_t count_files(const struct listed *v, size_t n)
{
    size_t files = 0;

    for (size_t i = 0; i < n; i++)
        files += !v[i].obj.is_prefix;
    return files;
}

static bool marker_wanted(struct cache *c, struct node *dir, const struct object *marker)
{
    cache_lock(c);
    bool wanted = dir_wants_marker_locked(dir, marker);
    cache_unlock(c);
    return wanted;
}

void index_tree_fill(struct cache *c, struct node *dir, struct place at, struct listed *v,
                     size_t n, struct object *marker)
{
    if (!c->listing->index_tree || count_files(v, n) >= INDEX_FILES_MIN)
        return;
    auto_free bool *wanted = calloc(n + 1, sizeof(*wanted));
    auto_free char *rank = index_tree_rank(at);
    if (marker && !marker_wanted(c, dir, marker))
        marker = NULL;
    if (!wanted || !rank || (!index_mark_wanted(c, dir, v, n, wanted) && !marker))
        return;
    struct loaded *l = get_part(c, rank);
    /* The kernel lets people through a directory without asking us. */
    if (l && marker && !c->config.shared)
        index_take(index_find(&l->part.files, rank), marker);
    for (size_t i = 0; l && i < n; i++) {
        auto_place struct place file = wanted[i] ? place_join(at, v[i].name) : NO_PLACE;
        if (place_known(file))
            index_take(index_find(&l->part.files, file.key), &v[i].obj);
    }
    if (l)
        put_part(c, l);
}
