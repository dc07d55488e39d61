/* Files and directories that wait for their upload, and how long each settles. */
#include "cache/queue/queue_impl.h"

#include "common/mem.h"

#include <utlist.h>

void file_queued_locked(struct cache *c, struct file *f)
{
    cache_assert_locked(c);
    f->queued = true;
    if (f->urgent)
        DL_APPEND2(c->content->urgent, f, urgent_prev, urgent_next);
}

/* It keeps its place among all that are dirty: removals go by that. */
static void set_urgent_locked(struct cache *c, struct file *f, bool urgent)
    REQUIRES(cache_mutex)
{
    if (f->urgent == urgent)
        return;
    if (f->queued && f->urgent)
        DL_DELETE2(c->content->urgent, f, urgent_prev, urgent_next);
    else if (f->queued)
        DL_APPEND2(c->content->urgent, f, urgent_prev, urgent_next);
    f->urgent = urgent;
}

void file_insert_locked(struct cache *c, struct file *f)
{
    struct file *before = NULL;

    cache_assert_locked(c);
    if (node_is_scratch(f->node))
        return;
    file_unqueue_locked(c, f);
    if (f->first_seq && c->content->dirty) {
        before = c->content->dirty->dirty_prev; /* the last */
        while (before && (!before->first_seq || before->first_seq > f->first_seq))
            before = before == c->content->dirty ? NULL : before->dirty_prev;
        if (before)
            DL_APPEND_ELEM2(c->content->dirty, before, f, dirty_prev, dirty_next);
        else
            DL_PREPEND2(c->content->dirty, f, dirty_prev, dirty_next);
    } else {
        DL_APPEND2(c->content->dirty, f, dirty_prev, dirty_next);
    }
    file_queued_locked(c, f);
}

static bool is_staged(struct cache *c, struct file *f, const char *path) REQUIRES(cache_mutex)
{
    if (f->made_at && path && f->made_at != path_made_at(c, path))
        f->made_at = 0; /* it was renamed, also when it gets its old path back */
    return path && (path_is_staged(c, path) || f->made_at);
}

bool file_waits_for_rename_locked(struct cache *c, struct node *n)
{
    auto_free char *path = n->file->queued ? NULL : node_path(n);

    cache_assert_locked(c);
    if (n->file->queued)
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

void file_put_off_locked(struct cache *c, struct file *f)
{
    cache_assert_locked(c);
    if (!f->wanted)
        f->due_ns = clock_mono_ns() + node_settle_ns(c, f->node);
    else if (!f->error) /* else it makes its pause */
        f->due_ns = clock_mono_ns();
}

void file_queue_locked(struct cache *c, struct node *n)
{
    struct file *f = n->file;
    bool ordered = f->first_seq == 0 && f->state == FILE_DIRTY;

    cache_assert_locked(c);
    file_lru_remove_locked(c, f);
    if (node_is_scratch(n))
        return;
    if (f->state == FILE_DIRTY || (n->flags & NODE_ATTR_DIRTY))
        f->seq = seq_next_locked(c);
    f->unclosed = false;
    if (f->uploading && !f->after_seq)
        f->after_seq = f->seq;
    if (ordered) {
        f->first_seq = f->seq;
        file_unqueue_locked(c, f); /* the file takes its place by first_seq */
    }
    if (!f->queued)
        file_insert_locked(c, f);
    file_put_off_locked(c, f);
    file_stage_locked(c, n);
    /* Whoever ends an upload looks for the next. */
    if (c->queue->uploads_running < c->config.upload_jobs || c->config.routes)
        scheduler_kick_at_locked(c, f->due_ns);
}

void file_queue_moved_locked(struct cache *c, struct node *n)
{
    struct file *f = n->file;
    bool unclosed = f->write_handles && (!f->first_seq || f->unclosed);

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
    if (!f->wanted && !f->error)
        f->due_ns = 0; /* it may have been put off since somebody else waited */
    f->wanted = true;
    if (f->wanted_generation < generation)
        f->wanted_generation = generation;
}

void file_unwant_locked(struct file *f)
{
    f->wanted = f->wanted && f->upload_waiters.head;
    f->wanted_half = false;
}

bool upload_comes_first(const struct file *f, uint64_t seq)
{
    return f->first_seq && f->first_seq < seq && !f->write_handles;
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
 * file. */
static int64_t dir_settle_ns(struct cache *c, struct node *dir)
{
    int64_t files = node_settle_ns(c, dir);

    return files < c->config.settle_ns ? c->config.settle_ns : files;
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
    d->due_ns = clock_mono_ns() + dir_settle_ns(c, dir);
    if (!d->queued) {
        node_ref_locked(dir);
        DL_APPEND2(c->queue->dirty_dirs, dir, dir->dirty_prev, dir->dirty_next);
        d->queued = true;
    }
    scheduler_kick_at_locked(c, d->due_ns);
}

void dir_unqueue_locked(struct cache *c, struct node *dir)
{
    struct dir *d = dir->dir;

    cache_assert_locked(c);
    if (!d->queued)
        return;
    DL_DELETE2(c->queue->dirty_dirs, dir, dir->dirty_prev, dir->dirty_next);
    d->queued = false;
    /* What failed is not owed any more: it says nothing of what comes to be owed later. */
    d->error = 0;
    d->attempts = 0;
    free(d->error_text);
    d->error_text = NULL;
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
        dir->links->may_exist = true;
}
