/* Uploads: one name of one file goes to the store, as one request or in parallel parts.
 *
 * A job passes through: looked at > sent > noted here. One that the store has and the cache
 * could not note stays with its file: the next attempt only notes it.
 *
 * What is sent is a stable file: without writers a writable open stops the upload before a
 * changed byte can leave; with writers (a flush, a growing log) what the file was when it was
 * looked at is sent, and read again before it is committed. Clean is declared only when no
 * writer lived. docs/format.md, section 3. */
#include "cache/transfer/upload.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/journal.h"
#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "cache/types/etag.h"
#include "common/err.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HELD_NS (1 * NS_PER_SEC)

/* How often in a row a live file may be found rewritten before that counts as a failure. */
#define REWRITES_MAX 3

/* Whether what lies at the place of the entry's path belongs to the entry. */
static bool lies_there(struct cache *c, struct entry *e, const char *path) REQUIRES(cache_mutex)
{
    if (c->queue->renames == 0)
        return true;
    auto_place struct place at = entry_place(e);
    auto_free char *after = intent_path_after(row_first(c), path);

    return place_known(at) && place_same(at, place_of_path(path)) && after &&
           strcmp(after, path) == 0;
}

/* The name that has the path, wherever it lies. */
static struct entry *entry_called_so(struct node *n, const char *path) REQUIRES(cache_mutex)
{
    for (struct entry *e = n->links; e; e = e->next_link) {
        auto_free char *now = entry_path(e);
        if (now && strcmp(now, path) == 0)
            return e;
    }
    return NULL;
}

struct entry *node_name_lying_at_locked(struct cache *c, struct node *n, const char *path)
{
    struct entry *e = entry_called_so(n, path);

    return e && lies_there(c, e, path) ? e : NULL;
}

struct entry *upload_entry_at(const struct job *j)
{
    return node_name_lying_at_locked(j->cache, j->node, j->path);
}

/* The disk says that the upload is owed before a byte leaves: else, after a crash, the store
 * would have what nobody here remembers. A chmod may just be about to write it. */
static int note_debt(struct job *j)
{
    struct cache *c = j->cache;

    cache_lock(c);
    bool noted = j->node->file->noted & (STAMP_WRITING | STAMP_ATTR_DIRTY);
    cache_unlock(c);
    return noted ? 0 : node_write_stamp(c, j->node, j->fd);
}

/* The next store to a mapped page moves mtime only after the page was cleaned, and it is clean
 * from some moment of the fsync() on: a time from then on stands for later stores, too. Once
 * more, which has little to write, it is mostly over before the second begins. */
static int clean_pages(struct job *j)
{
    struct stat st;

    for (int i = 0; i < 2; i++) {
        j->looked_ns = clock_real_ns();
        if (fsync(j->fd) < 0)
            return -errno;
        crash_point("upload-synced");
        if (fstat(j->fd, &st) < 0)
            return -errno;
        if (!mtime_was_racy(stat_mtime_ns(&st), j->looked_ns))
            return 0;
    }
    return 0;
}

bool upload_is_done_locked(const struct node *n)
{
    const struct file *f = n->file;
    bool is_sent = f->state == FILE_DIRTY ? f->stored_generation == f->generation
                                          : !(n->flags & NODE_ATTR_DIRTY);

    return n->links && !names_owe(n) && is_sent && !f->suspect && !f->short_write;
}

/* Whether the file is what it was when it was chosen, or CHANGED. */
static int look_again_locked(struct job *j) REQUIRES(cache_mutex)
{
    struct cache *c = j->cache;
    struct node *n = j->node;
    struct file *f = n->file;
    struct entry *e = upload_entry_at(j); /* or the name went since it was chosen */

    /* A program opened the file for writing since the lease was tried. If it has closed it by
     * now, too, its mapping may live. */
    bool opened = !j->live && (f->generation != j->generation || f->fds[FD_WRITE].users);
    int r = (!e && !j->looks) || opened ? CHANGED : file_look_locked(c, n, j->fd, &j->st);
    uint64_t looked = f->generation;
    /* It was written, or is being made anew, since it was chosen; or since it was looked at. */
    if (r == 0 && !j->looks && upload_has_to_wait_locked(c, f, j->at))
        r = CHANGED;
    /* Nothing is owed, but it may be written unseen: each name gets it, to be sure. */
    if (r == 0 && f->state == FILE_DIRTY && upload_is_done_locked(n) &&
        upload_is_unproven_locked(j))
        file_mark_dirty_locked(c, n, true);
    if (r == 0 && (f->generation != looked || (j->looks && !upload_is_done_locked(n))))
        r = CHANGED;
    return r;
}

/* What is to be sent, and what it replaces. 0, or 1: nothing. */
static int take_what_is_owed_locked(struct job *j) REQUIRES(cache_mutex)
{
    struct cache *c = j->cache;
    struct node *n = j->node;
    struct file *f = n->file;
    struct entry *e = upload_entry_at(j);
    bool done = upload_is_done_locked(n), attrs = (n->flags & NODE_ATTR_DIRTY) && !done;

    atomic_store(&f->changed, false);
    j->generation = f->generation;
    file_sending_locked(f);
    f->upload_done = 0;
    j->content = f->state == FILE_DIRTY && !done;
    j->owed_before = e && e->owed_before;
    int r = !j->content && !attrs ? 1 : node_attrs_locked(n, &j->attrs);
    if (r != 0)
        return r;
    if (!e) /* there was no memory for its path */
        return -ENOMEM;
    bool known = etag_known(&e->etag);
    bool tombstone = tombstone_pending(c, j->at) > 0;
    const char *removed = tombstone && !known ? intent_removes_version(c, j->path) : NULL;
    j->unknown = (tombstone && !removed) || (!known && e->may_exist) || etag_is(&e->etag, "");
    j->etag = known ? etag_dup(&e->etag) : strdup(removed ? removed : "");
    return 0;
}

/* Looks at the file. 0: there is something to send; 1: nothing; CHANGED: look again later. */
static int look(struct job *j)
{
    struct cache *c = j->cache;
    struct node *n = j->node;
    struct file *f = n->file;
    int r;

    cache_lock(c);
    atomic_store(&f->changed, false);
    j->generation = f->generation;
    bool writers = f->write_handles > 0 || f->fds[FD_WRITE].users > 0;
    bool wanted = f->debt.wanted || j->of_open_file;
    cache_unlock(c);
    /* A program opened the file for writing since it was chosen: its close makes it due again.
     */
    if (writers && !wanted)
        return CHANGED;
    bool held = !writers && file_has_writer(j->fd);
    crash_point("upload-leased");
    j->live = writers || held;
    if (held && !wanted) {
        cache_lock(c);
        f->mapped_writer = true;
        (void)file_look_locked(c, n, j->fd, &j->st); /* so that status tells of the change */
        cache_unlock(c);
        return CHANGED;
    }
    r = j->live ? clean_pages(j) : 0;
    if (r < 0) {
        if (r == -EIO || err_is_no_space(r))
            file_disk_lost(c, n, j->fd);
        return source_lost_here(j, r);
    }
    cache_lock(c);
    f->mapped_writer = held;
    r = look_again_locked(j);
    if (r == 0)
        r = take_what_is_owed_locked(j);
    cache_unlock(c);
    /* After the look, and before a byte is read: what began since moves another time. */
    if (r == 0 && j->live && j->content)
        file_await_writes(j->fd);
    return r;
}

/* ---- ending ---- */
/* Nothing is left to do for this file, as far as its names go. */
static void settle_locked(struct cache *c, struct job *j) REQUIRES(cache_mutex)
{
    struct node *n = j->node;
    struct file *f = n->file;

    debt_want(&f->debt, false);
    debt_set_place(&f->debt, 0);
    file_forgive_locked(f);
    n->flags &= ~(unsigned)(NODE_ATTR_DIRTY | (j->sent ? NODE_ATTRS_OLD : 0));
    file_is_stored_locked(f, j->live);
    file_unqueue_locked(c, f);
    if (j->live && f->write_handles == 0)
        file_queue_locked(c, n); /* a mapping lives: looked at again */
    if (j->live && f->write_handles == 0)
        debt_set_due(&f->debt, clock_mono_ns() + HELD_NS);
}

static void keep_record(struct stamp_keys *kept, const struct stamp_keys *from, struct place at,
                        bool dirty)
{
    const struct stamp_key *k = place_known(at) ? stamp_keys_find(from, at.key) : NULL;

    if (k && dirty)
        (void)stamp_keys_expect(kept, at.key, k->etag);
    else if (k)
        (void)stamp_keys_set(kept, at.key, k->etag, k->mtime_ns, k->size);
}

/* The file has other content than what its records are of. Names that still have to get it keep
 * what it is to replace, those that have it their records. */
static void renew_records_locked(struct node *n) REQUIRES(cache_mutex)
{
    struct stamp_keys kept = {0};

    for (struct entry *e = n->links; e; e = e->next_link) {
        auto_place struct place at = entry_place(e);
        auto_free char *path = entry_path(e); /* see name_expect() */
        keep_record(&kept, &n->file->keys, at, e->dirty);
        keep_record(&kept, &n->file->keys, place_of_path(path), e->dirty);
    }
    stamp_keys_release(&n->file->keys);
    n->file->keys = kept;
}

/* Another write within the clock's granularity, after it was looked at, does not show. */
bool upload_is_unproven_locked(const struct job *j)
{
    const struct file *f = j->node->file;

    cache_assert_locked(j->cache);
    return j->live && (mtime_was_racy(stat_mtime_ns(&j->st), j->looked_ns) ||
                       mirror_times_coarse(&j->cache->mirror) ||
                       (f->past && (f->direct || !j->cache->mirror.mtime_trusted)));
}

static void took_content_locked(struct job *j, const struct object *obj) REQUIRES(cache_mutex)
{
    struct file *f = j->node->file;
    int64_t mtime_ns = stat_mtime_ns(&j->st);

    if (f->clean_mtime_ns != mtime_ns || f->clean_size != (uint64_t)j->st.st_size ||
        f->stored_generation != j->generation)
        renew_records_locked(j->node);
    file_is_sent_locked(f, j->generation, mtime_ns, (uint64_t)j->st.st_size,
                        upload_is_unproven_locked(j));
    if (f->made_at) /* what it gets in place goes up at its close */
        file_renamed_locked(j->cache, j->node);
    f->sum = obj->checksum;
    node_sum_told_locked(j->node, obj);
    file_is_stored_as_locked(f, strdup(obj->etag));
    (void)stamp_keys_set(&f->keys, j->at.key, obj->etag, mtime_ns, (uint64_t)j->st.st_size);
    file_keys_are_behind_locked(f, STAMP_WRITING); /* a chmod may come before them */
}

/* The version at the store is another one, its content the same. */
static void took_attrs_locked(struct job *j, const struct object *obj) REQUIRES(cache_mutex)
{
    struct file *f = j->node->file;

    if (stamp_keys_find(&f->keys, j->at.key)) {
        (void)stamp_keys_set(&f->keys, j->at.key, obj->etag, f->clean_mtime_ns, f->clean_size);
        file_keys_are_behind_locked(f, STAMP_ATTR_DIRTY); /* another stamp may come before */
    }
    if (f->etag)
        file_is_stored_as_locked(f, strdup(obj->etag));
}

/* A pending rename copies the version that an upload brought to its old name: the file under
 * the new name, the same or another, is to replace that one. */
static void moved_meanwhile_locked(struct job *j, const struct object *obj)
    REQUIRES(cache_mutex)
{
    struct cache *c = j->cache;
    auto_free char *at = c->queue->renames ? intent_path_after(row_first(c), j->path) : NULL;
    struct entry *e = NULL;
    struct node *n = at ? tree_find(c, at, &e) : NULL;
    auto_place struct place now = n && e && !n->dir ? entry_place(e) : NO_PLACE;

    if (!n || !place_known(now) || !place_same(now, j->at) || !etag_known(&e->etag))
        return;
    entry_version_went_on_locked(e, obj->etag);
    if (n == j->node && !j->content)
        took_attrs_locked(j, obj);
}

/* The store has the content. */
static void done_locked(struct job *j) REQUIRES(cache_mutex)
{
    const struct object *obj = &j->object;
    struct cache *c = j->cache;
    struct node *n = j->node;
    struct file *f = n->file;
    struct entry *e = upload_entry_at(j);
    bool same = f->generation == j->generation;

    if (j->content)
        refusal_taken_locked(c, j->volume, CHANGE_PUT, j->began_ns);
    if (upload_is_bound(j) && j->left_behind)
        (void)doubt_put_locked(c, j->at, j->etag ? j->etag : "");
    c->transfer->uploaded_files++;
    c->transfer->uploaded_bytes += j->content ? (uint64_t)j->st.st_size : 0;
    c->queue->volumes[j->volume].uploaded_ns = clock_mono_ns();
    c->queue->volumes[j->volume].out_of_quota = false;
    if (!e) {
        file_put_off_locked(c, f);
        moved_meanwhile_locked(j, obj);
        return; /* renamed or removed meanwhile: an intention deals with the old name */
    }
    if (j->content)
        took_content_locked(j, obj);
    else
        took_attrs_locked(j, obj);
    entry_got_stored_locked(e, obj->etag);
    entry_compared_locked(e, j->content && obj->checksum.kind != CHECKSUM_NONE);
    entry_changed_locked(c, e);
    if (j->theirs)
        entry_expire(e); /* the next listing brings their attributes */
    else
        entry_put(e, obj, j->took_ns);
    if (store_can(c->store, j->at.key, STORE_ATTRS))
        n->attrs_has = j->attrs.has;
    f->uploaded_live_ns = clock_mono_ns();
    /* An ETag can come again with the content, and an older upload that is bound to it is then
     * no longer refused: whether this one lasted is seen when it can arrive no more. */
    int64_t late_ns = j->content ? doubt_put_until_locked(c, j->at, obj->etag) : 0;
    if (late_ns) {
        file_forgive_locked(f);
        debt_set_due(&f->debt, late_ns);
        return;
    }
    j->recorded = doubt_put_until_locked(c, j->at, NULL) == 0;
    entry_sent_locked(e, j->generation, same);
    if (same && !names_owe(n))
        settle_locked(c, j);
    else if (!same)
        file_set_place_locked(c, f, f->after_seq); /* 0: not closed since */
    if (file_stored_locked(n, f->wanted_generation))
        file_end_wait_locked(c, f);
    if (!debt_is_queued(&f->debt) || j->live)
        return;
    if (same)
        debt_set_due(&f->debt, clock_mono_ns());
    else
        file_put_off_locked(c, f);
}

/* Whether the failure is what the store said. */
static bool is_answer(const struct job *j)
{
    return !atomic_load(&j->disk_error);
}

/* Whether the name is refused for good, as far as that is known by now. */
static bool note_refusal_locked(struct job *j, struct entry *e, int r) REQUIRES(cache_mutex)
{
    struct file *f = j->node->file;
    bool refused = is_answer(j) && refusal_is_one(r);

    /* Where the file goes by now another store has refused nothing. */
    debt_set_refused(&f->debt,
                     refused && j->volume == node_volume(j->node) ? clock_mono_ns() : 0);
    if (!refused || !e)
        return false;
    entry_refused_locked(e, j->others_taken);
    if (!e->refused)
        refusal_probe_locked(j->cache, j->volume);
    return e->refused;
}

static char *refused_text(const char *path, const char *why)
{
    char *text = NULL;

    if (asprintf(
            &text,
            "%s: the store refuses the name and takes others: the file stays here until it "
            "is renamed or removed (%s)",
            path, why) < 0)
        return NULL;
    return text;
}

static void failed_locked(struct job *j, int r, const char *why) REQUIRES(cache_mutex)
{
    struct cache *c = j->cache;
    struct file *f = j->node->file;
    struct entry *e = upload_entry_at(j);

    bool refused = note_refusal_locked(j, e, r);
    if (e) /* only the answer may have been lost, unless a refusal was it */
        entry_not_sent_locked(e, !is_answer(j) || !refusal_is_one(r) || j->left_behind);
    if (upload_is_bound(j) && is_answer(j) && err_is_transient(r))
        (void)doubt_put_locked(c, j->at, j->etag ? j->etag : "");
    if (r == CHANGED) {
        /* What does not lie at its path was chosen all the same, and may be again at once. */
        if (j->live || f->mapped_writer || (!e && entry_called_so(j->node, j->path)))
            debt_set_due(&f->debt, clock_mono_ns() + HELD_NS);
        else
            file_put_off_locked(c, f);
        return;
    }
    if (c->stopping)
        return;
    if (!e && j->node->links && !names_owe(j->node)) {
        file_lost_name_locked(c, j->node); /* nothing is owed under the name that is gone */
        return;
    }
    auto_free char *refusal = refused ? refused_text(j->path, why) : NULL;
    why = refusal ? refusal : why;
    owed_failed_locked(c, &f->debt, r, why);
    if (j->volume !=
        node_volume(j->node)) /* the store that it goes to now has failed nothing */
        debt_set_failing(&f->debt, 0);
    f->error_told = false;
    f->error_here = !is_answer(j) && r != -EBUSY; /* another file's writer is in its way */
    if (is_answer(j) && err_is_no_space(r))
        c->queue->volumes[j->volume].out_of_quota = true;
    log_later(&c->log, LOG_LEVEL_ERROR, "upload failed, kept in the cache and tried again: %s",
              why);
}

/* The file owes no attributes any more. If it is not there by now, its stamp went with it.
 * Gives the node back, which counts as a task. */
static void stamp_dropped(struct cache *c, struct node *n)
{
    crash_point("attributes-dropped");
    (void)node_save_stamp(c, n);
    cache_lock(c);
    c->transfer->stamps_running--;
    progress_tell_locked(c);
    node_unref_locked(c, n);
    cache_unlock(c);
}

/* Frees the job, or leaves it with its file. */
static void finish(struct job *j, int r, const char *why)
{
    struct cache *c = j->cache;
    struct node *n = j->node;

    /* A rename decides under ns whether what it moves is stored, and moves it a while later. */
    ns_read(c);
    cache_lock(c);
    if (r == 0)
        done_locked(j);
    else if (r == 1 && n->file->generation == j->generation)
        settle_locked(c, j);
    else if (r == 1) /* somebody came since it was looked at */
        file_put_off_locked(c, n->file);
    else
        failed_locked(j, r, why);
    cache_unlock(c);
    ns_done(c);
    if (r == -ESTALE && is_answer(j) && upload_has_version(j))
        upload_keep_loser(j);
    bool stamped = r >= 0 && file_note_stored(j->cache, j->node, j->fd) == 0;
    if (stamped && j->recorded)
        origin_resolved(c, j->at);
    if (r >= 0 && !stamped)
        log_warn("%s is in the store, but its stamp could not be written; it will be uploaded "
                 "again after a restart",
                 j->path);
    ns_read(c); /* for the next */
    cache_lock(c);
    upload_runs_no_more_locked(j);
    const bool dropped = upload_drop_attributes_locked(j, why);
    c->transfer->stamps_running += dropped;
    struct entry *e = r == 0 ? upload_entry_at(j) : NULL;
    if (e) /* only now it is not ours any more */
        index_news_locked(c, e->parent);
    waitq_wake_locked(c, &n->file->upload_waiters, 0);
    if (j->fd >= 0)
        file_put_fd_locked(c, n->file, FD_READ);
    if (r < 0 && j->sent && upload_entry_at(j))
        n->file->unnoted = j;
    else /* with its name it lost what says that the store still has it */
        upload_forget(j);
    file_lru_add_locked(c, n->file);
    upload_ended_locked(c, r < 0 && r != CHANGED);
    if (!dropped)
        node_unref_locked(c, n);
    cache_check_locked(c);
    cache_unlock(c);
    ns_done(c);
    if (dropped)
        stamp_dropped(c, n);
}

/* A live file is not what was sent of it. CHANGED: once more, after a pause; -EBUSY: that was
 * so too often. */
static int rewritten(struct job *j, struct op *op)
{
    cache_lock(j->cache);
    struct file *f = j->node->file;
    bool often = ++f->rewrites >= REWRITES_MAX;
    f->rewrites = often ? 0 : f->rewrites;
    cache_unlock(j->cache);
    return often ? op_fail(op, -EBUSY,
                           "upload %s: it is rewritten each time while it is read; tried again "
                           "after a pause, and when its writers close it",
                           j->path)
                 : CHANGED;
}

/* What is at the key may be the only copy of another file, by now. It is the cache that fails
 * then, and says why. */
static int keep_moved(struct job *j, struct op *op)
{
    int r = moved_make_durable(j->cache, op, j->path, false, j->intents);

    if (r < 0)
        atomic_store(&j->disk_error, r);
    return r;
}

/* 0: the store has it; 1: there is nothing to send. */
static int send_now(struct job *j, struct op *op)
{
    j->began_ns = clock_mono_ns();
    int r = j->looks ? 0 : keep_moved(j, op);

    if (r == 0)
        r = look(j);
    if (r < 0 && r != CHANGED && is_answer(j))
        (void)source_read_failed(j, r);
    if (r == 0) {
        r = note_debt(j);
        if (r < 0)
            (void)source_disk_failed(j, r, "its stamp can't be written in the cache");
    }
    if (r == 0)
        origin_sign(j->cache, j->at, &j->attrs);
    crash_point("upload-looked");
    if (r == 0)
        r = upload_send_object(j, op, &j->object);
    if (r == CHANGED && j->live && j->content)
        r = rewritten(j, op);
    j->sent = r == 0;
    j->took_ns = clock_mono_ns() - j->began_ns;
    return r;
}

/* Older removals of the name are void, on the disk first. */
static int note_sent(struct job *j)
{
    int r = intents_retire(j->cache, INTENT_UNLINK, j->path, j->intents);

    return r < 0
               ? source_disk_failed(j, r, "it is in the store, but can't be noted in the cache")
               : 0;
}

void upload_op(const struct job *j, struct op *op)
{
    static const atomic_llong ended_ns = 1;

    cache_op(j->cache, op);
    if (j->lease && lease_bind(j->lease, j->term, op) < 0)
        op->lease_end_ns = &ended_ns;
}

static void run_upload(struct task *task)
{
    struct job *j = container_of(task, struct job, task);
    struct cache *c = j->cache;
    struct op op;
    int r;

    upload_op(j, &op);
    j->fd = file_get_fd(c, j->node, FD_READ);
    if (j->fd < 0)
        r = source_read_failed(j, j->fd);
    else
        r = j->sent ? 0 : send_now(j, &op);
    if (r == 0)
        r = note_sent(j);
    /* Whatever the store has made of the request. */
    if (r < 0 && !is_answer(j)) {
        const char *step = atomic_load(&j->disk_step);
        r = atomic_load(&j->disk_error);
        if (step)
            (void)op_fail(&op, r, "upload %s: %s: %s", j->path, step, strerror(-r));
    }
    j->left_behind = op.left_behind;
    finish(j, r, op.why);
}

static struct job *job_new_locked(struct cache *c, struct node *n, const char *path)
    REQUIRES(cache_mutex)
{
    struct job *j = calloc(1, sizeof(*j));

    if (!j)
        return NULL;
    *j = (struct job){.task.run = run_upload,
                      .cache = c,
                      .node = n,
                      .path = strdup(path),
                      .fd = -1,
                      .of_open_file = n->file->write_handles > 0,
                      .intents = intents_newest_locked(c)};
    j->at = place_of_path(j->path);
    if (j->path)
        return j;
    upload_forget(j);
    return NULL;
}

void upload_start_locked(struct cache *c, struct node *n, char *path, bool looks, bool own)
{
    auto_free char *own_path = path;
    struct job *j = upload_take_unnoted_locked(n, path);

    cache_assert_locked(c);
    if (!j && !(j = job_new_locked(c, n, path)))
        return; /* looked at again at the next pass */
    node_ref_locked(n);
    j->looks = looks;
    j->lease = unit_lease_locked(c, path, &j->term);
    if (!looks)
        dirs_above_may_exist_locked(c, path);
    upload_runs_locked(j, take_ptr(own_path));
    j->others_taken =
        refusal_others_taken_locked(c, j->volume, CHANGE_PUT, n->file->debt.refused_ns);
    if (own)
        pool_submit_own(c->uploaders, &j->task);
    else
        pool_submit(c->uploaders, &j->task);
}
