/* Files and directories that wait for their upload, and how long each settles. */
#include "cache/queue/queue_impl.h"

#include "common/mem.h"

#include <utlist.h>

/* It keeps its place among all that are dirty: removals go by that. */
static void set_urgent_locked(struct cache *c, struct file *f, bool urgent)
    REQUIRES(cache_mutex)
{
    if (f->urgent == urgent)
        return;
    if (debt_is_queued(&f->debt) && f->urgent)
        DL_DELETE2(c->content->urgent, f, urgent_prev, urgent_next);
    else if (debt_is_queued(&f->debt))
        DL_APPEND2(c->content->urgent, f, urgent_prev, urgent_next);
    f->urgent = urgent;
}

void file_insert_found_locked(struct cache *c, struct file *f)
{
    cache_assert_locked(c);
    file_unqueue_locked(c, f);
    debts_add(&c->queue->owed[DEBT_FILE], &f->debt);
    if (f->urgent)
        DL_APPEND2(c->content->urgent, f, urgent_prev, urgent_next);
}

void file_insert_locked(struct cache *c, struct file *f)
{
    cache_assert_locked(c);
    if (!node_is_scratch(f->node))
        file_insert_found_locked(c, f);
}

static bool is_staged(struct cache *c, struct file *f, const char *path) REQUIRES(cache_mutex)
{
    if (f->made_at && path && f->made_at != path_made_at(c, path))
        f->made_at = 0; /* it was renamed, also when it gets its old path back */
    return path && (path_is_staged(c, path) || f->made_at);
}

bool file_waits_for_rename_locked(struct cache *c, struct node *n)
{
    auto_free char *path = debt_is_queued(&n->file->debt) ? NULL : node_path(n);

    cache_assert_locked(c);
    if (debt_is_queued(&n->file->debt))
        return n->file->staged;
    return is_staged(c, n->file, path) && !path_is_log(c, path);
}

void file_insert_open_locked(struct cache *c, struct file *f)
{
    bool waits = file_waits_for_rename_locked(c, f->node);

    cache_assert_locked(c);
    if (waits && !f->staged)
        f->staged_ns = clock_mono_ns();
    f->staged = waits;
    set_urgent_locked(c, f, node_is_urgent(c, f->node));
    file_insert_locked(c, f);
}

void file_stage_locked(struct cache *c, struct node *n)
{
    struct file *f = n->file;
    auto_free char *path = node_path(n);
    bool staged = is_staged(c, f, path);

    cache_assert_locked(c);
    if (staged && !f->staged)
        f->staged_ns = clock_mono_ns();
    f->staged = staged;
    f->log = path && path_is_log(c, path);
    f->pointer = path && unit_path_is_pointer(c, path);
    set_urgent_locked(c, f, path && path_is_urgent(c, path));
}

/* A directory is older than what is made in it, unless it got another name since; perhaps its
 * old one back. */
static bool above_was_renamed(const struct node *n) REQUIRES(cache_mutex)
{
    for (const struct entry *e = n->links; e; e = e->parent->links)
        if (e->parent->named_seq > n->named_seq)
            return true;
    return false;
}

void file_stage_found_locked(struct cache *c, struct node *n)
{
    cache_assert_locked(c);
    if (above_was_renamed(n))
        n->file->made_at = 0;
    file_stage_locked(c, n);
}

void file_renamed_locked(struct cache *c, struct node *n)
{
    cache_assert_locked(c);
    n->file->made_at = 0;
    file_stage_locked(c, n);
}

void file_forgive_locked(struct file *f)
{
    f->rewrites = 0;
    if (f->short_write) { /* it was while it was sent: that error stays until it is mended */
        debt_got_on(&f->debt);
        return;
    }
    debt_forgive(&f->debt);
    f->error_told = false;
}

void file_lost_name_locked(struct cache *c, struct node *n)
{
    struct file *f = n->file;

    cache_assert_locked(c);
    if (!debt_is_queued(&f->debt))
        return;
    file_stage_locked(c, n); /* perhaps that name alone had it wait */
    if (names_owe(n))
        return;
    file_forgive_locked(f); /* what failed was an upload to that name */
    debt_set_due(&f->debt, clock_mono_ns());
}

void file_set_made_at_locked(struct file *f, uint64_t made_at)
{
    f->made_at = made_at;
}

void file_sending_locked(struct file *f)
{
    f->after_seq = 0;
}

void file_put_off_locked(struct cache *c, struct file *f)
{
    cache_assert_locked(c);
    if (!f->debt.wanted)
        debt_set_due(&f->debt, clock_mono_ns() + node_settle_ns(c, f->node));
    else if (!f->debt.error) /* else it makes its pause */
        debt_set_due(&f->debt, clock_mono_ns());
}

static void queue_locked(struct cache *c, struct node *n, bool content) REQUIRES(cache_mutex)
{
    struct file *f = n->file;
    bool ordered = f->debt.seq == 0 && f->state == FILE_DIRTY;

    cache_assert_locked(c);
    file_lru_remove_locked(c, f);
    if (node_is_scratch(n))
        return;
    if (f->state == FILE_DIRTY || (n->flags & NODE_ATTR_DIRTY))
        f->seq = seq_next_locked(c);
    if (content || !f->unit_seq)
        f->unit_seq = f->seq;
    f->unit_generation = f->generation;
    f->unclosed = false;
    if (f->debt.running && !f->after_seq)
        f->after_seq = f->seq;
    if (!f->after_want)
        f->after_want = f->seq;
    if (ordered) {
        debt_set_place(&f->debt, f->seq);
        file_unqueue_locked(c, f); /* the file takes its place */
    }
    if (!debt_is_queued(&f->debt))
        file_insert_locked(c, f);
    file_put_off_locked(c, f);
    file_stage_locked(c, n);
    unit_file_closed_locked(c, f);
    /* Whoever ends an upload looks for the next. */
    if (c->queue->uploads_running < c->config.upload_jobs || c->config.routes)
        scheduler_kick_at_locked(c, f->debt.due_ns);
}

void file_queue_locked(struct cache *c, struct node *n)
{
    queue_locked(c, n, true);
}

void file_queue_again_locked(struct cache *c, struct node *n)
{
    queue_locked(c, n, false);
}

void file_queue_lost_locked(struct cache *c, struct node *n)
{
    if (!n->file->unit_seq) /* of a file that a mount finds clean its stamp alone tells */
        n->file->unit_seq = n->file->seq;
    queue_locked(c, n, false);
}

void file_queue_moved_locked(struct cache *c, struct node *n)
{
    struct file *f = n->file;
    bool unclosed = f->write_handles && (!f->debt.seq || f->unclosed);

    cache_assert_locked(c);
    file_queue_locked(c, n);
    f->unclosed = unclosed;
}

bool file_stored_locked(struct node *n, uint64_t generation)
{
    for (struct entry *e = n->links; e; e = e->next_link)
        if (e->dirty && e->stored_generation < generation)
            return false;
    return true;
}

void file_want_locked(struct file *f, uint64_t generation)
{
    if (!f->debt.wanted && !f->debt.error)
        debt_set_due(&f->debt, 0); /* it may have been put off since somebody else waited */
    debt_want(&f->debt, true);
    if (f->wanted_generation > generation)
        return;
    /* What was closed so far is no newer than what is there now; of an older one that is not
     * known. */
    if (generation == f->generation)
        f->after_want = 0;
    else if (f->wanted_generation < generation)
        f->after_want = f->debt.seq;
    f->wanted_generation = generation;
}

void file_set_place_locked(struct cache *c, struct file *f, uint64_t first_seq)
{
    cache_assert_locked(c);
    debt_set_place(&f->debt, first_seq);
    if (debt_is_queued(&f->debt))
        file_insert_locked(c, f);
}

void file_end_wait_locked(struct cache *c, struct file *f)
{
    debt_want(&f->debt, false);
    bool later =
        f->wanted_generation && f->debt.seq && (!f->after_want || f->after_want > f->debt.seq);
    if (later)
        file_set_place_locked(c, f, f->after_want);
}

void file_unwant_locked(struct file *f)
{
    debt_want(&f->debt, f->debt.wanted && f->upload_waiters.head);
    f->wanted_half = false;
}

bool upload_comes_first(const struct file *f, uint64_t seq)
{
    return f->debt.seq && f->debt.seq < seq && !f->write_handles;
}

/* A directory of no key of its own is kept here, with its attributes. */
static void keep_here_locked(struct node *dir) REQUIRES(cache_mutex)
{
    struct dir *d = dir->dir;

    dir->flags &= ~(unsigned)NODE_ATTR_DIRTY;
    d->bare = d->bare || (d->new_here && d->kind == DIR_IMPLIED && !d->fixed);
    d->new_here = d->stale_marker = d->mtime_set = d->time_early = false;
}

/* A program needs a moment for the first name in a new directory, also where a policy has files
 * go up at once; a marker that came before it stays, and who reads the store takes it for a
 * file. An empty unit it takes for a checkpoint. */
static int64_t dir_settle_ns(struct cache *c, struct node *dir) REQUIRES(cache_mutex)
{
    bool empty = dir->dir->new_here && !dir->dir->children;
    int64_t files = node_settle_ns(c, dir), unit = empty ? unit_idle_at_locked(c, dir) : 0;

    files = files < c->config.settle_ns ? c->config.settle_ns : files;
    return files < unit ? unit : files;
}

void dir_queue_locked(struct cache *c, struct node *dir)
{
    struct dir *d = dir->dir;

    cache_assert_locked(c);
    if (d->kind != DIR_STORED) {
        keep_here_locked(dir);
        return;
    }
    d->generation++;
    debt_set_due(&d->debt, clock_mono_ns() + dir_settle_ns(c, dir));
    if (!debt_is_queued(&d->debt)) {
        node_ref_locked(dir);
        debts_add(&c->queue->owed[DEBT_DIR], &d->debt);
    }
    scheduler_kick_at_locked(c, d->debt.due_ns);
}

void dir_is_not_empty_locked(struct cache *c, struct node *dir)
{
    struct debt *d = &dir->dir->debt;
    int64_t due_ns = clock_mono_ns() + dir_settle_ns(c, dir);

    cache_assert_locked(c);
    if (d->due_ns <= due_ns)
        return;
    debt_set_due(d, due_ns);
    scheduler_kick_at_locked(c, due_ns);
}

void dir_unqueue_locked(struct cache *c, struct node *dir)
{
    struct dir *d = dir->dir;

    cache_assert_locked(c);
    if (!debt_is_queued(&d->debt))
        return;
    debt_leave(&d->debt);
    /* What failed is not owed any more: it says nothing of what comes to be owed later. */
    debt_forgive(&d->debt);
    debt_want(&d->debt, false);
    d->names_ns = 0;
    node_unref_locked(c, dir);
}

void dirs_above_may_exist_locked(struct cache *c, const char *path)
{
    struct entry *e = NULL;

    cache_assert_locked(c);
    const char *key = place_of_path(path).key;
    if (!store_can(c->store, key, STORE_DIRS) && !store_dir_can(c->store, key, STORE_DIRS))
        return;
    (void)tree_find(c, path, &e);
    for (struct node *dir = e ? e->parent : NULL; dir && dir->links; dir = dir->links->parent)
        entry_may_exist_locked(dir->links);
}
