/* The rows by what is asked of them: all in their order, those of a name, and the renames. What
 * is asked for each of many rows must not look at all the others. */
#include "cache/queue/queue_impl.h"

#include <string.h>
#include <utlist.h>

#ifndef NDEBUG
atomic_ullong rows_looked_at;

static struct intent *looked(struct intent *i)
{
    if (i)
        atomic_fetch_add_explicit(&rows_looked_at, 1, memory_order_relaxed);
    return i;
}
#else
static struct intent *looked(struct intent *i)
{
    return i;
}
#endif

/* ---- in their order ---- */

struct intent *row_first(struct cache *c)
{
    return looked(debt_row(c->queue->owed[DEBT_ROW].first));
}

struct intent *row_last(struct cache *c)
{
    return looked(debt_row(c->queue->owed[DEBT_ROW].last));
}

struct intent *row_next(const struct intent *i)
{
    return looked(debt_row(i->debt.next));
}

struct intent *row_prev(const struct intent *i)
{
    return looked(debt_row(i->debt.prev));
}

/* ---- of a name ---- */

/* The first of them stands in the table, and the others behind it in their order. Either may be
 * NULL. A table that stays in use allocates nothing when it changes hands. */
static void stand_for_name_locked(struct cache *c, struct intent *i, struct intent *before)
    REQUIRES(cache_mutex)
{
    if (i)
        HASH_ADD_KEYPTR(hh, c->queue->own->by_name, i->from, strlen(i->from), i);
    if (before)
        HASH_DEL(c->queue->own->by_name, before);
}

static void add_to_name_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex)
{
    struct intent *first = NULL, *before;

    HASH_FIND_STR(c->queue->own->by_name, i->from, first);
    for (before = first ? first->name_prev : NULL; before && before->seq > i->seq;)
        before = before == first ? NULL : before->name_prev;
    if (before) {
        DL_APPEND_ELEM2(first, before, i, name_prev, name_next);
        return;
    }
    struct intent *second = first;
    DL_PREPEND2(first, i, name_prev, name_next);
    stand_for_name_locked(c, first, second);
}

static void take_from_name_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex)
{
    struct intent *first = NULL;

    HASH_FIND_STR(c->queue->own->by_name, i->from, first);
    bool was_first = first == i;
    DL_DELETE2(first, i, name_prev, name_next);
    if (was_first)
        stand_for_name_locked(c, first, i);
}

struct intent *row_of_name_locked(struct cache *c, const char *path)
{
    struct intent *first = NULL;

    cache_assert_locked(c);
    HASH_FIND_STR(c->queue->own->by_name, path, first);
    return looked(first);
}

struct intent *row_of_name_next(const struct intent *i)
{
    return looked(i->name_next);
}

/* ---- renames ---- */

static void add_to_renames_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex)
{
    struct intent **list = &c->queue->own->renames;
    struct intent *before = *list ? (*list)->rename_prev : NULL; /* the last */

    while (before && before->seq > i->seq)
        before = before == *list ? NULL : before->rename_prev;
    if (before)
        DL_APPEND_ELEM2(*list, before, i, rename_prev, rename_next);
    else
        DL_PREPEND2(*list, i, rename_prev, rename_next);
    c->queue->renames++;
}

void row_renames_no_more_locked(struct cache *c, struct intent *i)
{
    cache_assert_locked(c);
    DL_DELETE2(c->queue->own->renames, i, rename_prev, rename_next);
    c->queue->renames--;
}

struct intent *rename_first_locked(struct cache *c)
{
    cache_assert_locked(c);
    return looked(c->queue->own->renames);
}

struct intent *rename_next(const struct intent *i)
{
    return looked(i->rename_next);
}

struct intent *rename_last_locked(struct cache *c)
{
    cache_assert_locked(c);
    return looked(c->queue->own->renames ? c->queue->own->renames->rename_prev : NULL);
}

struct intent *rename_before_locked(struct cache *c, const struct intent *i)
{
    cache_assert_locked(c);
    return i == c->queue->own->renames ? NULL : looked(i->rename_prev);
}

/* ---- all of them ---- */

#ifndef NDEBUG
void row_check_locked(struct cache *c, const struct intent *i)
{
    const struct intent *of_name = row_of_name_locked(c, i->from);

    while (of_name && of_name != i) {
        assert(!of_name->name_next || of_name->seq < of_name->name_next->seq);
        of_name = of_name->name_next;
    }
    assert(of_name == i && strcmp(of_name->from, i->from) == 0);
    assert(!intent_is_rename(i) || !i->rename_next || i->rename_next->seq > i->seq);
}
#endif

void row_enters_locked(struct cache *c, struct intent *i)
{
    cache_assert_locked(c);
    debts_add(&c->queue->owed[DEBT_ROW], &i->debt);
    add_to_name_locked(c, i);
    if (intent_is_rename(i))
        add_to_renames_locked(c, i);
}

void row_leaves_locked(struct cache *c, struct intent *i)
{
    cache_assert_locked(c);
    if (intent_is_rename(i))
        row_renames_no_more_locked(c, i);
    take_from_name_locked(c, i);
    debt_leave(&i->debt);
}
