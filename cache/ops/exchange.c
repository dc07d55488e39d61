/* RENAME_EXCHANGE: two names change places, at once in the mirror and one after the other at
 * the store. docs/format.md, section 4. */
#include "cache/ops/ops_impl.h"

#include "cache/mirror/crash.h"
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

static void swap_files_locked(struct cache *c, struct entry *a, struct entry *b)
    REQUIRES(cache_ns, cache_mutex)
{
    auto_free char *path_a = entry_path(a);
    auto_free char *path_b = entry_path(b);

    /* The store's object under the name belongs to the other file from now on. */
    if (path_a)
        stamp_keys_remove(&a->node->file->keys, place_of_path(path_a).key);
    if (path_b)
        stamp_keys_remove(&b->node->file->keys, place_of_path(path_b).key);
    swap_nodes_locked(a, b);
    struct entry *both[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        const char *path = i == 0 ? path_a : path_b;
        /* An upload to the name still replaces the version that the name had. */
        entry_got_other_file_locked(both[i],
                                    etag_known(&both[i]->etag) || !path ||
                                        upload_runs_at_locked(c, place_of_path(path), false));
        file_renamed_locked(c, both[i]->node);
        file_mark_dirty_locked(c, both[i]->node, true);
        if (both[i]->node->file->write_handles == 0)
            file_queue_locked(c, both[i]->node);
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

/* Two complete files change places; both are uploaded under their new names. */
static int exchange_files(struct cache *c, struct moving *m) REQUIRES(cache_ns)
{
    struct node *nodes[2] = {m->from->node, m->to->node};
    int r = 0;

    for (int i = 0; i < 2 && r == 0; i++) {
        r = file_materialise(c, nodes[i]);
        cache_lock(c);
        if (r == 0 && nodes[i]->file->state == FILE_PARTIAL)
            r = -EAGAIN; /* became partial again since the check: ask again */
        if (r == 0)
            file_will_change_locked(nodes[i]->file);
        cache_unlock(c);
        if (r == 0)
            r = node_renumber(c, nodes[i]);
    }
    if (r == 0) {
        note_exchanged(c, m);
        r = mirror_rename(&c->mirror, m->from_path, m->to_path, RENAME_EXCHANGE);
    }
    crash_point("exchange-mirror");
    if (r < 0)
        return r;
    cache_lock(c);
    swap_files_locked(c, m->from, m->to);
    dir_touch_locked(m->from->parent);
    dir_touch_locked(m->to->parent);
    cache_unlock(c);
    /* Their places in the order: without, they come last. */
    for (int i = 0; i < 2; i++)
        (void)node_write_stamp_ns_locked(c, nodes[i]);
    crash_point("exchange-placed");
    return 0;
}

/* ---- exchanging directories ---- */

/* Two names change places, of which one at least is a directory. The store has no such request:
 * what it has of the one moves through a name of its own, in its root, while what it has of the
 * other takes its place. The mirror exchanges them at once and never has that name. */
struct exchange {
    struct moving *m;
    struct intent *rows[3];
    size_t n;
    bool from_stored, to_stored; /* the store has, or may have, something of it */
};

/* `ino` and `etag` as in struct journal_row. */
static int add_row_locked(struct cache *c, struct exchange *x, enum intent_kind kind,
                          const char *from, const char *to, uint64_t ino, const char *etag)
    REQUIRES(cache_mutex)
{
    struct intent *i = intent_new(seq_next_locked(c), kind, from, to, ino, etag);

    if (!i)
        return -ENOMEM;
    x->rows[x->n++] = i;
    return 0;
}

/* Another mount's key can't be the same. */
static char *temporary_key_locked(struct cache *c, const char *beside) REQUIRES(cache_mutex)
{
    return exchange_passage(c, beside,
                            origins_number(c) + file_next_id_locked(c) + c->tree->seq);
}

static int add_move_locked(struct cache *c, struct exchange *x, struct entry *e,
                           const char *from, const char *to, const char *etag)
    REQUIRES(cache_mutex)
{
    return add_row_locked(c, x, e->node->dir ? INTENT_RENAMEDIR : INTENT_RENAME, from, to,
                          e->node->ino, etag);
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
    int r = from ? add_move_locked(c, x, m->from, m->from_path, temporary_key, NULL)
                 : add_move_locked(c, x, m->to, m->to_path, temporary_key, NULL);
    if (r == 0 && from && to)
        r = add_move_locked(c, x, m->to, m->to_path, m->from_path, NULL);
    if (r == 0)
        r = from ? add_move_locked(c, x, m->from, temporary_key, m->to_path, NULL)
                 : add_move_locked(c, x, m->to, temporary_key, m->from_path, NULL);
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
        r = add_row_locked(c, x, INTENT_RMDIR, dir_path, NULL, 0, NULL);
    if (r == 0 && file_stored)
        r = add_move_locked(c, x, file, file_path, dir_stored ? temporary_key : dir_path,
                            etag_text(&file->etag, etag));
    if (r == 0 && dir_stored)
        r = add_move_locked(c, x, dir, dir_path, file_path, NULL);
    /* Which version the passage will have can't be told yet. */
    if (r == 0 && dir_stored && file_stored)
        r = add_move_locked(c, x, file, temporary_key, dir_path, NULL);
    return r;
}

static bool is_mixed(const struct moving *m)
{
    return !m->from->node->dir != !m->to->node->dir;
}

static int plan_exchange_locked(struct cache *c, struct exchange *x) REQUIRES(cache_mutex)
{
    x->from_stored = tree_each(x->m->from->node, node_may_be_stored, NULL) != 0;
    x->to_stored = tree_each(x->m->to->node, node_may_be_stored, NULL) != 0;
    return is_mixed(x->m) ? plan_mixed_locked(c, x) : plan_trees_locked(c, x);
}

static int record_exchange(struct cache *c, struct exchange *x)
{
    struct journal_row rows[ARRAY_SIZE(x->rows)];

    for (size_t i = 0; i < x->n; i++)
        rows[i] = (struct journal_row){.seq = x->rows[i]->seq,
                                       .kind = x->rows[i]->kind,
                                       .from = x->rows[i]->from,
                                       .to = x->rows[i]->to,
                                       .ino = x->rows[i]->ino,
                                       .etag = x->rows[i]->etag};
    return x->n ? journal_add(c->journal, rows, x->n) : 0;
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

/* Nothing was exchanged: the store is told what was noted as owed for it, and then it is owed
 * no more. */
static void exchange_not(struct cache *c, struct exchange *x, bool recorded)
{
    uint64_t seqs[ARRAY_SIZE(x->rows)];
    struct entry *both[2] = {x->m->from, x->m->to};

    for (size_t i = 0; i < x->n; i++) {
        seqs[i] = x->rows[i]->seq;
        intent_free(x->rows[i]);
    }
    if (recorded)
        journal_take_back(c->journal, seqs, x->n);
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

static int exchange_in_tree_locked(struct cache *c, struct exchange *x)
    REQUIRES(cache_ns, cache_mutex)
{
    struct entry *a = x->m->from, *b = x->m->to;
    auto_place struct place at_a = entry_place(a);
    auto_place struct place at_b = entry_place(b);
    bool mixed = is_mixed(x->m);

    if (!place_known(at_a) || !place_known(at_b))
        return -ENOMEM;
    swap_entries_locked(a, b);
    place_free(&a->source);
    place_free(&b->source);
    /* What the store has nothing of, no row takes anywhere. */
    a->source = x->to_stored ? place_take(&at_b) : NO_PLACE;
    b->source = x->from_stored ? place_take(&at_a) : NO_PLACE;
    struct entry *both[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        struct entry *e = both[i];
        struct node *n = e->node;
        if (mixed) /* a file there can be another route's than a directory */
            entry_take_route_locked(c, e, i == 0 ? x->m->from_path : x->m->to_path);
        entry_exchanged_locked(e, x->n > 0);
        n->ctime_ns = clock_real_ns();
        if (n->dir && mixed)
            index_drop_locked(c, n); /* what is moved is another version then */
        else if (n->dir)
            dir_queue_locked(c, n);
        node_requeue_all_locked(c, n);
        /* Its place in the order of publishing is that of the exchange. */
        if (n->file && n->file->state == FILE_DIRTY && n->file->write_handles == 0)
            file_queue_locked(c, n);
        dir_touch_locked(e->parent);
        if (x->n > 0)
            dirs_above_may_exist_locked(c, i == 0 ? x->m->from_path : x->m->to_path);
    }
    return 0;
}

static int exchange_by_rows(struct cache *c, struct moving *m) REQUIRES(cache_ns)
{
    struct exchange x = {.m = m};
    int r = prepare_exchange(c, m);

    cache_lock(c);
    if (r == 0)
        r = plan_exchange_locked(c, &x);
    cache_unlock(c);
    if (r == 0)
        r = record_exchange(c, &x);
    bool recorded = r == 0;
    crash_point("exchange-rows");
    if (r == 0)
        r = mirror_rename(&c->mirror, m->from_path, m->to_path, RENAME_EXCHANGE);
    crash_point("exchange-mirror");
    if (r < 0) {
        exchange_not(c, &x, recorded);
        return r;
    }
    cache_lock(c);
    r = exchange_in_tree_locked(c, &x);
    for (size_t i = 0; i < x.n; i++)
        intent_add_locked(c, x.rows[i]);
    scheduler_kick_locked(c);
    cache_check_locked(c);
    cache_unlock(c);
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
