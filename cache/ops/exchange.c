/* RENAME_EXCHANGE: two names change places, at once in the mirror and one after the other at
 * the store. docs/format.md, section 4. */
#include "cache/ops/ops_impl.h"

#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>

/* The names lead to each other's nodes. */
static void swap_nodes_locked(struct entry *a, struct entry *b) REQUIRES(cache_ns, cache_mutex)
{
    struct node *na = a->node, *nb = b->node;
    struct entry **at;

    for (at = &na->links; *at != a; at = &(*at)->next_link)
        ;
    *at = a->next_link;
    for (at = &nb->links; *at != b; at = &(*at)->next_link)
        ;
    *at = b->next_link;
    a->node = nb;
    b->node = na;
    a->next_link = nb->links;
    nb->links = a;
    b->next_link = na->links;
    na->links = b;
}

static void swap_files_locked(struct step *step) REQUIRES(cache_ns, cache_mutex)
{
    const struct moving *m = container_of(step, struct moving, step);
    struct entry *both[2] = {m->from, m->to};
    const char *paths[2] = {m->from_path, m->to_path};
    struct cache *c = step->cache;

    /* The store's object under the name belongs to the other file from now on. */
    for (int i = 0; i < 2; i++)
        if (!name_shares_place(both[i], both[i]->node, place_of_path(paths[i])))
            stamp_keys_remove(&both[i]->node->file->keys, place_of_path(paths[i]).key);
    swap_nodes_locked(m->from, m->to);
    for (int i = 0; i < 2; i++) {
        struct entry *e = both[i];
        /* An upload to the name still replaces the version that the name had. */
        entry_got_other_file_locked(
            e,
            etag_known(&e->etag) || upload_runs_at_locked(c, place_of_path(paths[i]), false));
        upload_forget_unnoted_locked(e->node);
        scopes_follow_locked(c, e->node, paths[1 - i], paths[i]);
        file_renamed_locked(c, e->node);
        file_mark_dirty_locked(c, e->node, true);
        if (e->node->file->write_handles == 0)
            file_queue_locked(c, e->node);
        dir_touch_locked(e->parent);
    }
}

/* Before they have the names: each is to replace what the other one's has at the store. */
static void note_exchanged(struct cache *c, struct moving *m) REQUIRES(cache_ns)
{
    struct entry *both[2] = {m->from, m->to};
    const char *paths[2] = {m->from_path, m->to_path};

    for (int i = 0; i < 2; i++) {
        struct entry *other = both[1 - i];
        name_expect(c, both[i]->node, paths[i], other->parent, other->name, other);
    }
}

static int exchange_in_mirror(struct step *step) REQUIRES(cache_ns)
{
    const struct moving *m = container_of(step, struct moving, step);

    return mirror_rename(&step->cache->mirror, m->from_path, m->to_path, RENAME_EXCHANGE);
}

/* Two complete files change places; both are uploaded under their new names. */
static int exchange_files(struct cache *c, struct moving *m) REQUIRES(cache_ns)
{
    struct node *nodes[2] = {m->from->node, m->to->node};
    int r = file_prepare_exchange(c, nodes[0]);

    if (r == 0)
        r = file_prepare_exchange(c, nodes[1]);
    if (r < 0)
        return r;
    m->step = (struct step){.cache = c,
                            .on_disk = exchange_in_mirror,
                            .in_tree = swap_files_locked,
                            .disk_point = "exchange-mirror"};
    note_exchanged(c, m);
    r = step_run(&m->step);
    if (r == 0)
        files_note_exchanged(c, nodes);
    return r;
}

/* ---- exchanging directories ---- */

/* Two names change places, of which one at least is a directory. The store has no such request:
 * what it has of the one moves through a name of its own, in its root or with routes beside the
 * old one, while what it has of the other takes its place. The mirror exchanges them at once
 * and never has that name. */
struct exchange {
    struct moving *m;
    bool from_stored, to_stored; /* the store has, or may have, something of it */
};

/* Another mount's key can't be the same. */
static char *temporary_key_locked(struct cache *c, const char *beside) REQUIRES(cache_mutex)
{
    return exchange_passage(c, beside,
                            origins_number(c) + file_next_id_locked(c) + c->tree->seq);
}

static int add_move_locked(struct exchange *x, struct entry *e, const char *from,
                           const char *to, const char *etag) REQUIRES(cache_mutex)
{
    enum intent_kind kind = e->node->dir ? INTENT_RENAMEDIR : INTENT_RENAME;
    struct intent *i = intent_new(0, kind, from, to, e->node->ino, etag);

    if (i) { /* what is written anew is under one of the two */
        scope_reaches_locked(i, x->m->from_path);
        scope_reaches_locked(i, x->m->to_path);
    }
    return step_add_row_locked(&x->m->step, i, etag ? e : NULL);
}

/* None when the store has nothing of either: what an older row still brings to, or leaves at, a
 * name is not of the directory that has it now, and must not be read as if it were. The last
 * one always leaves the passage: by that recovery knows them. */
static int plan_trees_locked(struct cache *c, struct exchange *x) REQUIRES(cache_mutex)
{
    struct moving *m = x->m;
    bool from = x->from_stored, to = x->to_stored;
    auto_free char *temporary_key = temporary_key_locked(c, from ? m->from_path : m->to_path);

    if (!temporary_key)
        return -ENOMEM;
    if (!from && !to)
        return 0;
    int r = from ? add_move_locked(x, m->from, m->from_path, temporary_key, NULL)
                 : add_move_locked(x, m->to, m->to_path, temporary_key, NULL);
    if (r == 0 && from && to)
        r = add_move_locked(x, m->to, m->to_path, m->from_path, NULL);
    if (r == 0)
        r = from ? add_move_locked(x, m->from, temporary_key, m->to_path, NULL)
                 : add_move_locked(x, m->to, temporary_key, m->from_path, NULL);
    return r;
}

/* A directory and a file: the file takes the passage, being one object. Its old version goes
 * along, too, when it was changed: the store has that one until the new one is uploaded. What
 * moves alone needs no passage: nothing else is ever renamed to a name that has the other kind,
 * and by that recovery knows it. */
static int plan_mixed_locked(struct cache *c, struct exchange *x) REQUIRES(cache_mutex)
{
    char etag[ETAG_TEXT_MAX];
    struct moving *m = x->m;
    bool dir_first = m->from->node->dir != NULL;
    struct entry *dir = dir_first ? m->from : m->to, *file = dir_first ? m->to : m->from;
    const char *dir_path = dir_first ? m->from_path : m->to_path;
    const char *file_path = dir_first ? m->to_path : m->from_path;
    bool dir_stored = dir_first ? x->from_stored : x->to_stored;
    bool file_stored = dir_first ? x->to_stored : x->from_stored;
    auto_free char *temporary_key = temporary_key_locked(c, file_path);
    int r = temporary_key ? 0 : -ENOMEM;

    /* A directory of which nothing is stored may be left there, or be made there once more, by
     * what came or comes and goes below it: it would be in the way of the file. */
    if (r == 0 && !dir_stored &&
        (store_dir_can(c->store, place_of_path(dir_path).key, STORE_DIRS) ||
         intent_below(c, dir_path)))
        r = step_add_row_locked(&m->step, intent_new(0, INTENT_RMDIR, dir_path, NULL, 0, NULL),
                                NULL);
    if (r == 0 && file_stored)
        r = add_move_locked(x, file, file_path, dir_stored ? temporary_key : dir_path,
                            etag_text(&file->etag, etag));
    if (r == 0 && dir_stored)
        r = add_move_locked(x, dir, dir_path, file_path, NULL);
    /* Which version the passage will have can't be told yet. */
    if (r == 0 && dir_stored && file_stored)
        r = add_move_locked(x, file, temporary_key, dir_path, NULL);
    return r;
}

static bool is_mixed(const struct moving *m)
{
    return !m->from->node->dir != !m->to->node->dir;
}

/* Both lie in the mirror, younger than any row that could be taken for theirs. Of two
 * directories each owes a marker: what stands for its new name at the store now goes, or is of
 * the other. */
static int prepare_exchange(struct cache *c, struct moving *m) REQUIRES(cache_ns)
{
    struct entry *both[2] = {m->from, m->to};
    int r = 0;

    for (int i = 0; i < 2 && r == 0; i++) {
        struct node *n = both[i]->node;
        r = n->dir ? mirror_mkdirs(&c->mirror, i == 0 ? m->from_path : m->to_path)
                   : file_materialise(c, n);
        if (r < 0)
            break;
        cache_lock(c);
        if (n->dir && n->dir->kind == DIR_STORED && !is_mixed(m))
            n->dir->new_here = n->dir->stale_marker = true;
        cache_unlock(c);
        r = node_renumber(c, n);
        if (r == 0 && n->dir)
            r = node_renumber_below(c, i == 0 ? m->from_path : m->to_path,
                                    i == 0 ? m->to_path : m->from_path);
    }
    return r;
}

/* Nothing was exchanged: the store is told what was noted as owed for it. */
static void exchange_not(struct cache *c, struct moving *m)
{
    struct entry *both[2] = {m->from, m->to};

    cache_lock(c);
    for (int i = 0; i < 2; i++)
        if (both[i]->node->dir && both[i]->node->dir->new_here)
            dir_queue_locked(c, both[i]->node);
    cache_unlock(c);
}

/* What the names know of what they led to goes with it. */
static void swap_entries_locked(struct entry *a, struct entry *b)
    REQUIRES(cache_ns, cache_mutex)
{
    swap_nodes_locked(a, b);
    entries_exchange_locked(a, b);
    if (!a->node->dir == !b->node->dir)
        return;
    struct entry *dir = a->node->dir ? a : b, *file = a->node->dir ? b : a;
    file->parent->nlink--;
    dir->parent->nlink++;
}

static void exchange_in_tree_locked(struct step *step) REQUIRES(cache_ns, cache_mutex)
{
    struct moving *m = container_of(step, struct moving, step);
    struct cache *c = step->cache;
    struct entry *both[2] = {m->from, m->to};
    const char *paths[2] = {m->from_path, m->to_path};
    struct place places[2]; /* what the store has nothing of, no row takes anywhere */
    bool mixed = is_mixed(m), rows = step->n_rows > 0;

    for (int i = 0; i < 2; i++)
        places[i] = place_known(m->places[i]) ? entry_take_place_locked(both[i], &m->places[i])
                                              : NO_PLACE;
    swap_entries_locked(m->from, m->to);
    for (int i = 0; i < 2; i++) {
        struct entry *e = both[i];
        struct node *n = e->node;
        place_free(&e->source);
        e->source = places[1 - i];
        if (mixed) /* a file there can be another route's than a directory */
            entry_take_route_locked(c, e, paths[i]);
        entry_exchanged_locked(e, rows);
        n->ctime_ns = clock_real_ns();
        if (n->dir && mixed)
            index_drop_locked(c, n); /* what is moved is another version then */
        else if (n->dir)
            dir_queue_locked(c, n);
        if (n->dir)
            unit_dir_moved_locked(c, n, path_is_staged_dir(c, paths[1 - i]));
        scopes_follow_locked(c, n, paths[1 - i], paths[i]);
        node_requeue_all_locked(c, n);
        /* Its place in the order of publishing is that of the exchange. */
        if (n->file && n->file->state == FILE_DIRTY && n->file->write_handles == 0)
            file_queue_locked(c, n);
        dir_touch_locked(e->parent);
        if (rows)
            dirs_above_may_exist_locked(c, paths[i]);
    }
    scheduler_kick_locked(c);
}

/* Rows, and where the store has what it has of each. */
static int plan_exchange_locked(struct cache *c, struct moving *m) REQUIRES(cache_mutex)
{
    struct exchange x = {.m = m,
                         .from_stored = tree_each(m->from->node, node_may_be_stored, NULL) != 0,
                         .to_stored = tree_each(m->to->node, node_may_be_stored, NULL) != 0};
    struct entry *both[2] = {m->from, m->to};
    bool stored[2] = {x.from_stored, x.to_stored};

    for (int i = 0; i < 2; i++) {
        m->places[i] = stored[i] ? entry_place(both[i]) : NO_PLACE;
        if (stored[i] && !place_known(m->places[i]))
            return -ENOMEM;
    }
    return is_mixed(m) ? plan_mixed_locked(c, &x) : plan_trees_locked(c, &x);
}

static int exchange_by_rows(struct cache *c, struct moving *m) REQUIRES(cache_ns)
{
    m->step = (struct step){.cache = c,
                            .on_disk = exchange_in_mirror,
                            .in_tree = exchange_in_tree_locked,
                            .rows_point = "exchange-rows",
                            .disk_point = "exchange-mirror"};
    int r = prepare_exchange(c, m);

    cache_lock(c);
    if (r == 0)
        r = plan_exchange_locked(c, m);
    cache_unlock(c);
    if (r == 0)
        r = step_run(&m->step);
    if (r < 0)
        exchange_not(c, m);
    step_release(&m->step);
    place_free(&m->places[0]);
    place_free(&m->places[1]);
    return r;
}

/* For tree_each(). */
static int has_hidden_names(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    (void)arg;
    return n->dir && n->dir->hidden_names;
}

/* For tree_each(): 1 with the directory in *arg when nobody has seen all that it has. */
static int is_unlisted(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    if (!n->dir || dir_was_listed(n->dir))
        return 0;
    *(struct node **)arg = n;
    return 1;
}

int exchange_need_tree_locked(struct cache *c, struct node *dir, struct waiter *w)
{
    struct node *unlisted = NULL;
    int r = dir_need_locked(c, dir, true, w);

    cache_assert_locked(c);
    if (r == 0 && tree_each(dir, is_unlisted, &unlisted))
        r = dir_need_locked(c, unlisted, true, w);
    return r;
}

int exchange_check(struct moving *m)
{
    struct node *a = m->from->node, *b = m->to->node;

    if ((a->dir && node_is_below(m->newparent, a)) ||
        (b->dir && node_is_below(m->from->parent, b)))
        return -EINVAL;
    if (!is_mixed(m))
        return 0;
    /* Hidden names would stay, and a file of the directory's name would not be shown for them.
     */
    if (tree_each(a->dir ? a : b, has_hidden_names, NULL))
        return -ENOTEMPTY;
    /* The names were forgotten since the listing: it is listed once more. */
    struct node *unlisted;
    return tree_each(a->dir ? a : b, is_unlisted, &unlisted) ? -EAGAIN : 0;
}

int exchange_ns_locked(struct cache *c, struct moving *m)
{
    bool files = !m->from->node->dir && !m->to->node->dir;

    ns_assert_written(c);
    return files ? exchange_files(c, m) : exchange_by_rows(c, m);
}
