/* The rows by what is asked of them: all in their order, those of a name, and the renames. What
 * is asked for each of many rows must not look at all the others. Those of a name come out of
 * row_paths.c, which has them by their paths. */
#include "cache/queue/queue_impl.h"

#include <string.h>
#include <utlist.h>

/* ---- in their order ---- */

struct intent *row_first(struct cache *c)
{
    return row_looked(debt_row(c->queue->owed[DEBT_ROW].first));
}

struct intent *row_last(struct cache *c)
{
    return row_looked(debt_row(c->queue->owed[DEBT_ROW].last));
}

struct intent *row_next(const struct intent *i)
{
    return row_looked(debt_row(i->debt.next));
}

struct intent *row_prev(const struct intent *i)
{
    return row_looked(debt_row(i->debt.prev));
}

/* ---- of a name ---- */

struct queue *row_queue(const struct intent *i)
{
    assert(i->debt.in);
    return container_of(i->debt.in, struct queue, owed[DEBT_ROW]);
}

struct intent *row_of_name_locked(struct cache *c, const char *path)
{
    cache_assert_locked(c);
    return row_at_from(c->queue, ROWS_TAKING, path, 0);
}

struct intent *row_of_name_next(const struct intent *i)
{
    return row_at_from(row_queue(i), ROWS_TAKING, i->from, i->seq + 1);
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
    i->brings_pointer = i->kind == INTENT_RENAME && unit_path_is_pointer(c, i->to);
    c->queue->pointer_renames += i->brings_pointer;
    row_path_enters_locked(c, i, ROWS_LEAVING);
    row_path_enters_locked(c, i, ROWS_COMING);
}

static void stops_renaming_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex)
{
    cache_assert_locked(c);
    DL_DELETE2(c->queue->own->renames, i, rename_prev, rename_next);
    c->queue->renames--;
    c->queue->pointer_renames -= i->brings_pointer;
    i->brings_pointer = false;
    row_path_leaves_locked(c, i, ROWS_COMING);
    row_path_leaves_locked(c, i, ROWS_LEAVING);
}

void row_only_removes_locked(struct cache *c, struct intent *i)
{
    stops_renaming_locked(c, i);
    row_path_enters_locked(c, i, ROWS_REMOVING);
}

struct intent *rename_first_locked(struct cache *c)
{
    cache_assert_locked(c);
    return row_looked(c->queue->own->renames);
}

struct intent *rename_next(const struct intent *i)
{
    return row_looked(i->rename_next);
}

struct intent *rename_last_locked(struct cache *c)
{
    cache_assert_locked(c);
    return row_looked(c->queue->own->renames ? c->queue->own->renames->rename_prev : NULL);
}

struct intent *rename_before_locked(struct cache *c, const struct intent *i)
{
    cache_assert_locked(c);
    return i == c->queue->own->renames ? NULL : row_looked(i->rename_prev);
}

/* ---- all of them ---- */

#ifndef NDEBUG
void row_check_locked(struct cache *c, const struct intent *i)
{
    unsigned set = intent_is_rename(i) ? ROWS_LEAVING : ROWS_REMOVING;

    assert(row_at_from(c->queue, set, i->from, i->seq) == i);
    assert(set == ROWS_REMOVING || row_at_from(c->queue, ROWS_COMING, i->to, i->seq) == i);
    assert(!intent_is_rename(i) || !i->rename_next || i->rename_next->seq > i->seq);
}
#endif

void row_enters_locked(struct cache *c, struct intent *i)
{
    cache_assert_locked(c);
    debts_add(&c->queue->owed[DEBT_ROW], &i->debt);
    if (intent_is_rename(i))
        add_to_renames_locked(c, i);
    else
        row_path_enters_locked(c, i, ROWS_REMOVING);
}

void row_leaves_locked(struct cache *c, struct intent *i)
{
    cache_assert_locked(c);
    if (intent_is_rename(i))
        stops_renaming_locked(c, i);
    else
        row_path_leaves_locked(c, i, ROWS_REMOVING);
    debt_leave(&i->debt);
}
