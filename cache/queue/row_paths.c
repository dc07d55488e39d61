/* The rows in the order of paths, of which each path is followed by those below it: what lies
 * at a path, below it or above it is found without a look at the others. There is an order for
 * each set of enum row_set, and a row stands in it once for each end that it has there. Rows of
 * one path are in the order of their numbers.
 *
 * An order is a binary tree of links in the rows themselves, kept even by a hash of where they
 * lie (a treap), so nothing is allocated. Each link knows the oldest and the newest row of its
 * part of the tree: a search leaves out parts with nothing of the age that it is asked for. */
#include "cache/queue/queue_impl.h"

#include "common/hash.h"

#include <string.h>

#ifndef NDEBUG
atomic_ullong rows_looked_at;
#endif

/* ---- one link ---- */

static struct intent *row_of(enum row_set set, const struct row_link *l)
{
    char *at = (char *)l;

    return (struct intent *)(void *)(at - (set == ROWS_COMING
                                               ? offsetof(struct intent, coming)
                                               : offsetof(struct intent, going)));
}

static struct row_link *link_of(enum row_set set, struct intent *i) REQUIRES(cache_mutex)
{
    return set == ROWS_COMING ? &i->coming : &i->going;
}

static const char *path_of(enum row_set set, const struct intent *i)
{
    return set == ROWS_COMING ? i->to : i->from;
}

static struct row_link **order_of(struct queue *q, enum row_set set) REQUIRES(cache_mutex)
{
    return &q->own->by_path[set >> 1]; /* their bits are 1, 2, 4 */
}

static bool is_older(const struct intent *a, const struct intent *b)
{
    return a->seq < b->seq;
}

/* The link's rows changed. */
static void sum_up(enum row_set set, struct row_link *l) REQUIRES(cache_mutex)
{
    l->oldest = l->newest = row_of(set, l);
    for (int side = 0; side < 2; side++) {
        const struct row_link *part = l->part[side];
        if (part && is_older(part->oldest, l->oldest))
            l->oldest = part->oldest;
        if (part && is_older(l->newest, part->newest))
            l->newest = part->newest;
    }
}

/* ---- the order ---- */

/* "/" comes first of all: between a directory and what is below it nothing else can be. */
static int rank(char c)
{
    return c == '\0' ? 0 : c == '/' ? 1 : (unsigned char)c + 1;
}

/* Where a row's path is, compared to the first `len` bytes of `path`: before them, at them,
 * below them, or behind all that is below them. */
enum where { BEFORE, AT, BELOW, BEHIND };

static enum where where_is(const char *row, const char *path, size_t len)
{
    size_t n = 0;

    while (n < len && row[n] == path[n])
        n++;
    if (n < len)
        return rank(row[n]) < rank(path[n]) ? BEFORE : BEHIND;
    return row[n] == '\0' ? AT : row[n] == '/' || len == 0 ? BELOW : BEHIND;
}

static enum where link_is(enum row_set set, const struct row_link *l, const char *path,
                          size_t len)
{
    return where_is(path_of(set, row_looked(row_of(set, l))), path, len);
}

static bool comes_before(enum row_set set, const struct row_link *l, const struct intent *i)
{
    const char *path = path_of(set, i);
    enum where is = link_is(set, l, path, strlen(path));

    return is == BEFORE || (is == AT && is_older(row_of(set, l), i));
}

/* ---- rows come and go ---- */

static uint64_t height(const struct row_link *l)
{
    return hash_bytes(&l, sizeof(const struct row_link *));
}

/* Parts the tree into what comes before the row and what comes behind it. */
static void split(enum row_set set, struct row_link *l, const struct intent *i,
                  struct row_link *ret[2]) REQUIRES(cache_mutex)
{
    struct row_link *both[2];

    if (!l) {
        ret[0] = ret[1] = NULL;
        return;
    }
    bool before = comes_before(set, l, i);
    split(set, l->part[before], i, both);
    l->part[before] = both[!before];
    sum_up(set, l);
    ret[before] = both[before];
    ret[!before] = l;
}

/* The tree of both; all of `b` comes behind all of `a`. */
static struct row_link *joined(enum row_set set, struct row_link *a, struct row_link *b)
    REQUIRES(cache_mutex)
{
    if (!a || !b)
        return a ? a : b;
    if (height(a) > height(b)) {
        a->part[1] = joined(set, a->part[1], b);
        sum_up(set, a);
        return a;
    }
    b->part[0] = joined(set, a, b->part[0]);
    sum_up(set, b);
    return b;
}

static struct row_link *with(enum row_set set, struct row_link *l, struct intent *i)
    REQUIRES(cache_mutex)
{
    struct row_link *it = link_of(set, i);

    if (!l || height(it) > height(l)) {
        split(set, l, i, it->part);
        sum_up(set, it);
        return it;
    }
    bool behind = comes_before(set, l, i);
    l->part[behind] = with(set, l->part[behind], i);
    sum_up(set, l);
    return l;
}

static struct row_link *without(enum row_set set, struct row_link *l, struct intent *i)
    REQUIRES(cache_mutex)
{
    assert(l); /* it stands there, and its path is what it was */
    if (l == link_of(set, i))
        return joined(set, l->part[0], l->part[1]);
    bool behind = comes_before(set, l, i);
    l->part[behind] = without(set, l->part[behind], i);
    sum_up(set, l);
    return l;
}

void row_path_enters_locked(struct cache *c, struct intent *i, enum row_set set)
{
    struct row_link **order = order_of(c->queue, set);

    cache_assert_locked(c);
    *order = with(set, *order, i);
}

void row_path_leaves_locked(struct cache *c, struct intent *i, enum row_set set)
{
    struct row_link **order = order_of(c->queue, set);

    cache_assert_locked(c);
    *order = without(set, *order, i);
}

/* ---- of a path ---- */

/* The oldest row with this path and at least this number, or the newest with at most this one.
 */
static struct intent *nearest(struct queue *q, enum row_set set, const char *path, size_t len,
                              uint64_t seq, bool older) REQUIRES(cache_mutex)
{
    struct intent *found = NULL;

    for (const struct row_link *l = *order_of(q, set); l;) {
        enum where is = link_is(set, l, path, len);
        struct intent *i = row_of(set, l);
        bool is_one = is == AT && (older ? i->seq <= seq : i->seq >= seq);
        bool right = is == AT ? is_one == older : is == BEFORE;
        found = is_one ? i : found;
        l = l->part[right];
    }
    return found;
}

/* The nearest of all that the sets have there. */
static struct intent *nearest_of(struct queue *q, unsigned sets, const char *path, size_t len,
                                 uint64_t seq, bool older) REQUIRES(cache_mutex)
{
    struct intent *found = NULL;

    for (unsigned set = ROWS_REMOVING; set <= ROWS_COMING; set <<= 1) {
        struct intent *i = sets & set ? nearest(q, set, path, len, seq, older) : NULL;
        if (i && (!found || is_older(older ? found : i, older ? i : found)))
            found = i;
    }
    return found;
}

struct intent *row_at_from(struct queue *q, unsigned sets, const char *path, uint64_t seq)
{
    return nearest_of(q, sets, path, strlen(path), seq, false);
}

/* The length of the next one above it; 0: the root, which no row is of. */
static size_t len_above(const char *path, size_t len)
{
    while (len > 0 && path[--len] != '/')
        ;
    return len;
}

static struct intent *nearest_over(struct queue *q, unsigned sets, const char *path,
                                   uint64_t seq, bool older) REQUIRES(cache_mutex)
{
    struct intent *found = NULL;

    for (size_t len = strlen(path); len; len = len_above(path, len)) {
        struct intent *i = nearest_of(q, sets, path, len, seq, older);
        if (i && (!found || is_older(older ? found : i, older ? i : found)))
            found = i;
    }
    return found;
}

/* ---- asked with a test ---- */

static uint64_t until(const struct row_ask *ask)
{
    return ask->until ? ask->until : UINT64_MAX;
}

static bool is_it(const struct row_ask *ask, struct intent *i)
{
    return i->seq >= ask->since && i->seq < until(ask) && (!ask->is || ask->is(ask->arg, i));
}

static struct intent *at_locked(struct cache *c, const struct row_ask *ask, size_t len)
    REQUIRES(cache_mutex)
{
    struct intent *i = nearest_of(c->queue, ask->sets, ask->path, len, ask->since, false);

    while (i && i->seq < until(ask) && !is_it(ask, i))
        i = nearest_of(c->queue, ask->sets, ask->path, len, i->seq + 1, false);
    return i && i->seq < until(ask) ? i : NULL;
}

struct intent *row_at_locked(struct cache *c, const struct row_ask *ask)
{
    cache_assert_locked(c);
    return at_locked(c, ask, strlen(ask->path));
}

struct intent *row_over_locked(struct cache *c, const struct row_ask *ask)
{
    struct intent *i = NULL;

    cache_assert_locked(c);
    for (size_t len = strlen(ask->path); len && !i; len = len_above(ask->path, len))
        i = at_locked(c, ask, len);
    return i;
}

static struct intent *below(enum row_set set, const struct row_link *l,
                            const struct row_ask *ask, size_t len) REQUIRES(cache_mutex)
{
    if (!l || l->newest->seq < ask->since || l->oldest->seq >= until(ask))
        return NULL;
    enum where is = link_is(set, l, ask->path, len);
    struct intent *i = row_of(set, l);
    struct intent *found = is == BELOW && is_it(ask, i) ? i : NULL;
    if (!found && is >= BELOW)
        found = below(set, l->part[0], ask, len);
    return found || is == BEHIND ? found : below(set, l->part[1], ask, len);
}

struct intent *row_below_locked(struct cache *c, const struct row_ask *ask)
{
    size_t len = strlen(ask->path);
    struct intent *i = NULL;

    cache_assert_locked(c);
    for (unsigned set = ROWS_REMOVING; set <= ROWS_COMING && !i; set <<= 1)
        i = ask->sets & set ? below(set, *order_of(c->queue, set), ask, len) : NULL;
    return i;
}

struct intent *row_touching_locked(struct cache *c, const struct row_ask *ask)
{
    struct intent *i = row_over_locked(c, ask);

    return i ? i : row_below_locked(c, ask);
}

/* ---- along what moves a path ---- */

struct intent *row_over_from(const struct intent *first, const char *path)
{
    return first ? nearest_over(row_queue(first), ROWS_ALL, path, first->seq, false) : NULL;
}

struct intent *row_over_until(const struct intent *last, const char *path)
{
    return last ? nearest_over(row_queue(last), ROWS_ALL, path, last->seq, true) : NULL;
}
