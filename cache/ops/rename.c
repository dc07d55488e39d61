/* Names that users move. The store learns of it by a row, only when it has, or may have,
 * something under the name. */
#include "cache/ops/ops_impl.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/journal.h"
#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

/* ---- moving ---- */

struct requeuing {
    struct cache *cache;
    struct node *moved;
    struct file **closed; /* that get their places anew */
    size_t n, cap;
};

static int by_close(const void *a, const void *b) REQUIRES(cache_mutex)
{
    const struct file *fa = *(struct file *const *)a, *fb = *(struct file *const *)b;

    return fa->unit_seq < fb->unit_seq ? -1 : fa->unit_seq > fb->unit_seq;
}

/* In the order in which they were closed: what was last stays last. */
static void queue_again_locked(struct requeuing *q) REQUIRES(cache_mutex)
{
    if (q->n)
        qsort(q->closed, q->n, sizeof(struct file *), by_close);
    for (size_t i = 0; i < q->n; i++)
        file_queue_locked(q->cache, q->closed[i]->node);
    free(q->closed);
}

static int requeue_locked(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    struct requeuing *q = arg;
    struct cache *c = q->cache;

    if (n->dir) {
        n->dir->has_marker |= n->dir->debt.running;
        debt_want(&n->dir->debt, false); /* who waits for it still says so again */
    }
    bool uploading = n->file && n->file->debt.running;
    if (uploading)
        atomic_store(&n->file->changed, true);
    upload_forget_unnoted_locked(n);
    for (struct entry *e = n->links; e; e = e->next_link) {
        /* A directory takes along what an upload put, or may have put, under the old path. */
        if (q->moved->dir && node_is_below(e->parent, q->moved))
            entry_carried_locked(e, uploading);
        entry_has_new_path_locked(e);
    }
    if (n->file) {
        debt_set_refused(&n->file->debt, 0);
        if (n->file->made_at || n->file->staged || debt_is_queued(&n->file->debt))
            file_renamed_locked(c, n);
    }
    if (!n->file || !debt_is_queued(&n->file->debt) || n->file->write_handles)
        return 0; /* it keeps its place: it was closed, and is open again */
    if (array_grow(q->closed, q->cap, q->n + 1))
        file_queue_locked(c, n);
    else
        q->closed[q->n++] = n->file;
    return 0;
}

void node_requeue_all_locked(struct cache *c, struct node *moved)
{
    struct requeuing q = {.cache = c, .moved = moved};

    (void)tree_each(moved, requeue_locked, &q);
    queue_again_locked(&q);
}

int node_may_be_stored(void *arg, struct node *n)
{
    (void)arg;
    for (struct entry *e = n->links; e; e = e->next_link)
        if (entry_may_be_stored(e))
            return 1;
    return 0;
}

/* -EAGAIN: what is replaced has to be listed first. */
static int check_move(struct cache *c, struct moving *m, unsigned flags) REQUIRES(cache_mutex)
{
    struct node *n = m->from->node;
    struct node *over = m->to ? m->to->node : NULL;

    if (over && (flags & RENAME_NOREPLACE))
        return -EEXIST;
    if (n->dir && node_is_below(m->newparent, n))
        return -EINVAL;
    if (over && n->dir && !over->dir)
        return -ENOTDIR;
    if (over && !n->dir && over->dir)
        return -EISDIR;
    if (over && over->dir &&
        (over->dir->children || over->dir->hidden_names || lock_file_is_in_locked(c, over)))
        return -ENOTEMPTY;
    if (over && over->dir && !dir_was_listed(over->dir))
        return -EAGAIN;
    /* Of a hard link one name can be in the store and another not. What is open, or gets a
     * staging name, is uploaded too late for the removal of the old name to wait for it. */
    m->crosses = name_crosses_locked(c, n, m->from_path, m->to_path);
    bool anew = m->crosses ||
                (m->from->dirty && n->file && n->file->state == FILE_DIRTY &&
                 upload_comes_first(n->file, UINT64_MAX) && !path_is_staged(c, m->to_path));
    m->copies = n->dir ? tree_each(n, node_may_be_stored, NULL) != 0
                       : !anew && (etag_known(&m->from->etag) || place_known(m->from->source));
    /* A directory of which nothing is stored can still come to the store under its old name,
     * when an intention passes something through it. */
    m->removes =
        !m->copies && (n->dir ? intent_below(c, m->from_path) : entry_may_be_stored(m->from));
    return 0;
}

struct older_ask {
    struct cache *cache;
    const char *from, *to;
    struct node *found;
    int error;
};

static bool takes_older(void *arg, struct intent *i) REQUIRES(cache_mutex)
{
    struct older_ask *a = arg;
    const char *rest = i->ino ? path_below(a->to, i->from) : NULL;

    if (!rest)
        return false;
    auto_free char *path = path_join(a->from, rest);
    struct node *n = path ? tree_find(a->cache, path, NULL) : NULL;
    a->error = path ? 0 : -ENOMEM;
    a->found = n && n->ino == i->ino && n->named_seq < i->seq ? n : NULL;
    return a->error || a->found;
}

/* A file of several names, one of which a pending row takes, and which comes to that name
 * within the directory that moves; *ret is referenced, or NULL. 0 or -ENOMEM. */
static int taken_for_older(struct cache *c, const char *from, const char *to, struct node **ret)
{
    struct older_ask older = {.cache = c, .from = from, .to = to};
    const struct row_ask ask = {
        .sets = ROWS_TAKING, .path = to, .is = takes_older, .arg = &older};

    cache_lock(c);
    (void)row_below_locked(c, &ask);
    if (older.found)
        node_ref_locked(older.found);
    cache_unlock(c);
    *ret = older.found;
    return older.error;
}

int node_renumber_below(struct cache *c, const char *from, const char *to)
{
    struct node *n;
    int r;

    ns_assert_written(c);
    while ((r = taken_for_older(c, from, to, &n)) == 0 && n) {
        r = node_renumber(c, n);
        cache_lock(c);
        node_unref_locked(c, n);
        cache_unlock(c);
        if (r < 0)
            break;
    }
    return r;
}

/* The store that the file comes to has nothing of it, and has refused nothing so far. Its place
 * in the order is before that of the row which removes its old name, which waits for it also
 * while a program has it open: a close that was answered may not have been told of as the last
 * one yet. */
static void owe_content_locked(struct cache *c, struct moving *m) REQUIRES(cache_mutex)
{
    struct node *n = m->from->node;

    (void)file_will_change_locked(n->file);
    debt_set_failing(&n->file->debt, 0);
    if (n->file->debt.running)
        atomic_store(&n->file->changed, true);
    file_mark_dirty_locked(c, n, true);
    if (n->file->write_handles == 0 || m->removes)
        file_queue_moved_locked(c, n);
}

/* The moved thing lies in the mirror, so that recovery can tell by its inode number whether the
 * move happened. */
static int prepare_move(struct cache *c, struct moving *m) REQUIRES(cache_ns)
{
    struct node *n = m->from->node, *over = m->to ? m->to->node : NULL;
    int r = n->dir ? mirror_mkdirs(&c->mirror, m->from_path) : file_materialise(c, n);

    /* The store has nothing of it, but has, or is just being sent, the marker of the directory
     * that it replaces: it gets a marker of its own, however little there is to say. */
    cache_lock(c);
    if (r == 0 && m->crosses)
        owe_content_locked(c, m);
    if (n->dir && n->dir->kind == DIR_STORED && over && over->dir &&
        entry_may_be_stored(m->to) && !m->copies) {
        n->flags |= NODE_ATTR_DIRTY;
        dir_queue_locked(c, n);
    }
    cache_unlock(c);
    if (r == 0 && n->dir)
        r = node_renumber_below(c, m->from_path, m->to_path);
    if (r == 0 && over)
        r = name_lost_renumber(c, m->to, false);
    return r < 0 ? r : node_renumber(c, n);
}

/* Whether the rename takes the last name of something in the mirror. An empty directory is just
 * replaced there. */
static bool takes_last_name(const struct moving *m)
{
    const struct node *over = m->to ? m->to->node : NULL;

    return over && !over->dir && over->file && !over->links->next_link;
}

static void drop_replaced_locked(struct cache *c, struct moving *m, bool *ret_may_exist,
                                 bool *ret_tried, bool *ret_marker, struct etag *ret_etag)
    REQUIRES(cache_ns, cache_mutex)
{
    struct node *over = m->to->node;

    bool stored = entry_may_be_stored(m->to);
    *ret_tried = stored && name_is_only_ours_locked(m->to, m->to_path);
    *ret_may_exist = stored && !*ret_tried;
    if (!place_known(m->to->source) && !over->dir)
        entry_is_replaced_locked(m->to, ret_etag);
    *ret_marker = over->dir && over->dir->has_marker;
    if (over->dir) {
        dir_unqueue_locked(c, over);
        over->nlink = 0;
        m->newparent->nlink--;
    } else {
        over->nlink--;
        if (over->file && over->file->debt.running)
            atomic_store(&over->file->changed, true);
        upload_forget_unnoted_locked(over);
        const struct place at = place_of_path(m->to_path);
        if (over->file && !name_shares_place(m->to, over, at))
            stamp_keys_remove(&over->file->keys, at.key);
        if (over->links->next_link)
            node_keeps_ino_locked(c, over);
    }
    over->ctime_ns = clock_real_ns();
    bool lives = over->links->next_link != NULL;
    entry_remove_locked(c, m->to);
    if (lives && over->file) {
        scopes_lost_name_locked(c, over, m->to_path);
        file_lost_name_locked(c, over);
    }
}

/* The version that an upload to the name replaces, as stamp_keys_expect() takes it; heap. `e`
 * is what has the name, or NULL. */
static char *entry_version_locked(struct entry *e, const char *path) REQUIRES(cache_mutex)
{
    if (!e)
        return NULL;
    if (!place_known(e->source) && etag_known(&e->etag))
        return etag_dup(&e->etag);
    bool any = entry_may_be_stored(e) && !name_is_only_ours_locked(e, path);
    return any ? strdup(STAMP_ANY_VERSION) : NULL;
}

/* Whether the record at the name's own place stays as it is: what lies there belongs to another
 * name of the file, until a rename takes it along. That name may replace the version in the
 * record and no other; the one that comes replaces nothing there (`etag` NULL), or what cannot
 * be told yet. */
static bool record_is_of_other_locked(struct node *n, struct place at, const char *etag)
    REQUIRES(cache_mutex)
{
    const struct stamp_key *k = n->file ? stamp_keys_find(&n->file->keys, at.key) : NULL;
    bool known = k && strcmp(k->etag, STAMP_ANY_VERSION) != 0;

    return (known || !etag) && name_shares_place(NULL, n, at);
}

/* As long as a rename is to bring what the name had, a mount looks for it where the store still
 * has it; and then under the name itself, in a version that can't be told yet. */
void name_expect(struct cache *c, struct node *n, const char *mirror_path, struct node *dir,
                 const char *name, struct entry *e)
{
    auto_free char *path = child_path(dir, name);

    ns_assert_written(c);
    if (!path)
        return;
    cache_lock(c);
    auto_free char *etag = entry_version_locked(e, path);
    auto_place struct place at = e ? entry_place(e) : child_place(dir, name);
    bool others = record_is_of_other_locked(n, place_of_path(path), etag);
    cache_unlock(c);
    auto_close int fd = mirror_open_path(&c->mirror, mirror_path, O_RDONLY);
    if (fd < 0 || !place_known(at))
        return;
    bool comes = etag && !place_same(at, place_of_path(path));
    if (comes)
        file_expect(c, n, fd, at, etag);
    if (!others)
        file_expect(c, n, fd, place_of_path(path), comes ? STAMP_ANY_VERSION : etag);
}

/* This comes before the file has the name: a mount that finds it there must know what it is to
 * replace. */
static void note_replaced(struct cache *c, struct moving *m) REQUIRES(cache_ns)
{
    struct node *n = m->from->node;

    if (n->dir || m->copies)
        return; /* what is copied to the name is recorded then */
    name_expect(c, n, m->from_path, m->newparent, m->newname, m->to);
}

/* What the new name leads to now stays reachable for those who have it open, in orphans/. */
static int move_in_mirror(struct step *step) REQUIRES(cache_ns)
{
    struct moving *m = container_of(step, struct moving, step);
    struct cache *c = step->cache;

    note_replaced(c, m);
    int r = takes_last_name(m) ? barrier_pass_on(c, m->to->node->file) : 0;
    if (r == 0 && takes_last_name(m))
        r = file_keep_aside(c, m->to_path, &m->orphan);
    crash_point("orphan-moved");
    if (r == 0)
        r = mirror_rename(&c->mirror, m->from_path, m->to_path, 0);
    if (r < 0 && m->orphan)
        file_drop_orphan(c, m->orphan);
    return r;
}

static void move_in_tree_locked(struct step *step) REQUIRES(cache_ns, cache_mutex)
{
    struct moving *m = container_of(step, struct moving, step);
    struct cache *c = step->cache;
    struct node *n = m->from->node;
    const bool owed_before = m->to && m->to->owed_before;
    bool may_exist = false, tried = false, marker = false;
    struct etag replaced = {0}; /* the version that an upload to the new name replaces */

    if (m->to && m->orphan)
        file_orphaned_locked(c, m->to->node, m->orphan);
    if (n->dir)
        index_drop_locked(c, n); /* the moved object is another version then */
    struct place source =
        m->copies ? entry_take_place_locked(m->from, &m->places[0]) : NO_PLACE;
    if (m->to)
        drop_replaced_locked(c, m, &may_exist, &tried, &marker, &replaced);
    struct entry *e = entry_move_locked(c, m->from, &m->seat);
    place_free(&e->source);
    e->source = source;
    entry_moved_here_locked(e, may_exist || (n->dir && m->copies) || (!m->to && m->may_exist));
    if (m->copies)
        dirs_above_may_exist_locked(c, m->to_path);
    negative_forget_locked(c, m->newparent, m->newname);
    if (!m->copies)
        entry_version_left_locked(e, &replaced);
    etag_clear(&replaced);
    if (marker && n->dir && !m->copies) /* else the copy removes it */
        n->dir->has_marker = true;
    if (n->dir) {
        step->left->nlink--;
        m->newparent->nlink++;
    }
    n->ctime_ns = clock_real_ns();
    entry_changed_here_locked(e);
    if (n->dir)
        unit_dir_moved_locked(c, n, path_is_staged_dir(c, m->from_path));
    scopes_follow_locked(c, n, m->from_path, m->to_path);
    node_requeue_all_locked(c, n);
    entry_takes_place_of_tried_locked(e, tried, owed_before);
    dir_touch_locked(step->left);
    dir_touch_locked(m->newparent);
    /* Its place in the order of publishing is that of the rename when it was not published. */
    if (n->file && n->file->state == FILE_DIRTY && n->file->write_handles == 0)
        file_queue_locked(c, n);
    else if (!n->dir)
        unit_name_came_locked(c, e);
}

/* The version that the store's rename of a file is to replace, as the row has it. */
static const char *replaced_version_locked(const struct moving *m, char buf[ETAG_TEXT_MAX])
    REQUIRES(cache_mutex)
{
    if (!m->to)
        return m->may_hold ? NULL : INTENT_OURS;
    if (name_is_only_ours_locked(m->to, m->to_path))
        return INTENT_OURS;
    return place_known(m->to->source) || !etag_known(&m->to->etag)
               ? NULL
               : etag_text(&m->to->etag, buf);
}

/* The next mount may find another one there. */
static int intend_copy_locked(struct moving *m) REQUIRES(cache_mutex)
{
    const bool dir = m->from->node->dir;
    char buf[ETAG_TEXT_MAX];
    int r = step_intend_locked(&m->step, dir ? INTENT_RENAMEDIR : INTENT_RENAME, m->from_path,
                               m->to_path, m->from);

    return r < 0 || dir ? r
                        : intent_note_over(m->step.rows[m->step.n_rows - 1],
                                           replaced_version_locked(m, buf));
}

static int plan_move_locked(struct cache *c, struct moving *m) REQUIRES(cache_ns, cache_mutex)
{
    struct node *n = m->from->node;
    int r = seat_take_locked(c, m->newparent, m->newname, n, &m->seat);

    m->places[0] = m->copies ? entry_place(m->from) : NO_PLACE;
    if (r == 0 && m->copies && !place_known(m->places[0]))
        r = -ENOMEM;
    if (r == 0 && m->copies)
        r = intend_copy_locked(m);
    else if (r == 0 && m->removes)
        r = step_intend_removal_locked(&m->step, m->from, m->from_path, m->to_path, m->crosses);
    return r;
}

static int move_ns_locked(struct cache *c, struct moving *m) REQUIRES(cache_ns)
{
    m->step = (struct step){.cache = c,
                            .on_disk = move_in_mirror,
                            .in_tree = move_in_tree_locked,
                            .rows_point = "rename-row",
                            .disk_point = "rename-mirror",
                            .left = m->from->parent};
    int r = prepare_move(c, m);

    cache_lock(c);
    if (r == 0)
        r = plan_move_locked(c, m);
    cache_unlock(c);
    if (r == 0)
        r = step_run(&m->step);
    step_release(&m->step);
    seat_release(&m->seat);
    place_free(&m->places[0]);
    return r;
}

/* Whether deletion locks let the one name go, and what has the other one. */
static int locks_admit_locked(struct cache *c, const struct moving *m, const struct leaving *l,
                              unsigned flags) REQUIRES(cache_mutex)
{
    bool exchange = (flags & RENAME_EXCHANGE) != 0;
    int r = leaving_admit_locked(c, l, m->from_path, true);

    if (r == 0 && m->to)
        r = leaving_admit_locked(c, l, m->to_path, exchange);
    if (r == 0 && m->to && !exchange)
        r = leaving_keeps_locked(c, l, m->to, m->to_path);
    return r;
}

static void moved(struct cache *c, const struct moving *m, struct leaving *l, unsigned flags,
                  bool replaces) REQUIRES(cache_ns)
{
    if (replaces && !(flags & RENAME_EXCHANGE))
        leaving_gone(c, l);
    const struct lock_move moves[2] = {{m->from_path, m->to_path, m->made_seq},
                                       {m->to_path, m->from_path, 0}};
    deletion_moved(c, moves, flags & RENAME_EXCHANGE ? 2 : 1);
}

static int rename_ns_locked(struct cache *c, struct node *parent, const char *name,
                            struct node *newparent, const char *newname, unsigned flags,
                            bool may_exist, struct leaving *l) REQUIRES(cache_ns)
{
    cache_lock(c);
    struct moving m = {.from = entry_find(parent, name),
                       .to = entry_find(newparent, newname),
                       .newparent = newparent,
                       .newname = newname};
    m.may_hold = may_exist;
    m.may_exist = may_exist && m.from && m.from->node->dir;
    auto_free char *from_path = m.from ? entry_path(m.from) : NULL;
    auto_free char *to_path = child_path(newparent, newname);
    m.from_path = from_path;
    m.to_path = to_path;
    int r = !m.from || (newparent->flags & NODE_REMOVED) ? -ENOENT
            : !from_path || !to_path                     ? -ENOMEM
                                                         : 0;
    bool same = r == 0 && m.to && m.from->node == m.to->node;
    if (r == 0 && !m.to && (flags & RENAME_EXCHANGE))
        r = -ENOENT;
    if (r == 0 && !same)
        r = name_move_admit_locked(c, m.from, newparent, newname, m.to, flags);
    if (r == 0 && !same)
        r = flags & RENAME_EXCHANGE ? exchange_check(&m) : check_move(c, &m, flags);
    if (r == 0 && !same)
        r = locks_admit_locked(c, &m, l, flags);
    m.made_seq =
        r == 0 && name_is_only_ours_locked(m.from, from_path) ? m.from->node->named_seq : 0;
    bool replaces = m.to != NULL;
    cache_unlock(c);
    if (r < 0 || same)
        return same && (flags & RENAME_NOREPLACE) ? -EEXIST : r;
    r = flags & RENAME_EXCHANGE ? exchange_ns_locked(c, &m) : move_ns_locked(c, &m);
    if (r == 0)
        moved(c, &m, l, flags, replaces);
    return r;
}

/* What an exchange may have to wait for. */
static int exchange_ready_locked(struct cache *c, struct entry *from, struct entry *to,
                                 struct waiter *w) REQUIRES(cache_mutex)
{
    struct entry *both[2] = {from, to};
    bool dirs[2] = {from->node->dir != NULL, to->node->dir != NULL};
    int r = 0;

    for (int i = 0; i < 2 && r == 0; i++) {
        struct entry *e = both[i], *other = both[1 - i];
        r = attrs_need_locked(c, e->node, w);
        if (r == 0)
            r = attrs_confirm_locked(c, e->node, w);
        if (r == 0 && !dirs[0] && !dirs[1] && e->node->file)
            r = fetch_complete_locked(c, e->node, w);
        if (r == 0 && dirs[i] && !dirs[1 - i])
            r = exchange_need_tree_locked(c, e->node, w);
        if (r == 0)
            r = name_key_fits_locked(c, other->parent, other->name,
                                     name_longest_below(e->node));
    }
    return r;
}

/* What a rename may have to wait for. */
static int rename_ready_locked(struct cache *c, struct node *parent, const char *name,
                               struct node *newparent, const char *newname, unsigned flags,
                               struct waiter *w) REQUIRES(cache_mutex)
{
    struct entry *known = entry_find(parent, name);
    int r = known && newparent->dir
                ? name_move_admit_locked(c, known, newparent, newname,
                                         entry_find(newparent, newname), flags)
                : 0;

    if (r == 0)
        r = name_parent_ready_locked(c, parent, name, w);
    if (r == 0)
        r = name_parent_ready_locked(c, newparent, newname, w);
    struct entry *from = r == 0 ? entry_find(parent, name) : NULL;
    struct entry *to = r == 0 ? entry_find(newparent, newname) : NULL;
    if (from)
        r = attrs_need_locked(c, from->node, w);
    /* Under its new name it is ours, and nobody asks the store for it any more. */
    if (r == 0 && from)
        r = attrs_confirm_locked(c, from->node, w);
    if (r == 0)
        r = name_owner_need_locked(c, newparent, to, w);
    if (r == 0 && from && !(flags & RENAME_EXCHANGE))
        r = name_key_fits_locked(c, newparent, newname, name_longest_below(from->node));
    if (r == 0 && to && to->node->dir && !(flags & RENAME_EXCHANGE))
        r = dir_need_locked(c, to->node, true, w);
    if (r == 0 && from && to && (flags & RENAME_EXCHANGE))
        r = exchange_ready_locked(c, from, to, w);
    return r;
}

int cache_rename(struct cache *c, struct node *parent, const char *name, struct node *newparent,
                 const char *newname, unsigned flags, struct waiter *w)
{
    int r;

    if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE))
        return -EINVAL;
    cache_lock(c);
    bool is_lock = c->queue->locks && (lock_file_locked(c, parent, name) ||
                                       lock_file_locked(c, newparent, newname));
    cache_unlock(c);
    if (is_lock)
        return -EBUSY;
    do {
        cache_lock(c);
        r = rename_ready_locked(c, parent, name, newparent, newname, flags, w);
        bool may_exist = r == 0 && dir_may_hold_locked(c, newparent, newname);
        cache_unlock(c);
        if (r != 0)
            return r;
        struct leaving l; /* what has the new name */
        r = leaving_ready(c, newparent, newname, w, &l);
        crash_point("rename-ready");
        if (r == 0) {
            ns_write(c);
            r = rename_ns_locked(c, parent, name, newparent, newname, flags, may_exist, &l);
            ns_done(c);
        }
        leaving_release(c, &l);
    } while (r == -EAGAIN); /* came, evicted or forgotten meanwhile: asked for first */
    return r;
}
