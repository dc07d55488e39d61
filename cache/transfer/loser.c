/* An upload that lost against another node's version: its content is kept aside. */
#include "cache/transfer/upload.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/mirror.h"
#include "cache/mirror/stamp.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/log_queue.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool has_other_names(const struct node *n)
{
    return n->links && n->links->next_link;
}

/* A program that opens the file for writing, or truncates it, has no handle for a while. What
 * it writes would follow the file to kept/, though it was told of nothing. */
static bool is_used(const struct file *f) REQUIRES(cache_mutex)
{
    return f->open_handles || f->fetches || f->truncates || f->fds[FD_WRITE].users;
}

/* The name that lost, if it can go now; else NULL. `copied`: its content was copied. */
static struct entry *loser_locked(struct job *j, bool copied) REQUIRES(cache_mutex)
{
    struct node *n = j->node;
    struct entry *e = upload_entry_at(j);
    bool free_to_go = e && e->dirty && !is_used(n->file) && has_other_names(n) == copied &&
                      (!copied || n->file->generation == j->generation);

    return free_to_go ? e : NULL;
}

/* An unnamed file with the content, on the disk. Returns its descriptor; -EBUSY: not now. */
static int copy_content(struct job *j)
{
    auto_close int to = mirror_tmpfile(&j->cache->mirror);
    off_t in = 0, out = 0;
    struct stat st;
    ssize_t n = 1;

    if (to < 0 || fstat(j->fd, &st) < 0)
        return to < 0 ? to : -errno;
    while (n > 0 && in < st.st_size && !atomic_load(&j->cache->cancelled))
        n = copy_file_range(j->fd, &in, to, &out, (size_t)(st.st_size - in), 0);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (n < 0 || futimens(to, times) < 0 || fsync(to) < 0)
        return -errno;
    return in < st.st_size ? -EBUSY : take_fd(to);
}

/* Other names go on with the file, and will be written: what is kept is a copy of its own.
 * After a kill in between it is owed as before, and kept once more. */
static int keep_copy(struct job *j, struct entry *e, int copy) REQUIRES(cache_ns)
{
    int r = mirror_keep_fd(&j->cache->mirror, copy, j->path);

    crash_point("conflict-copied");
    return r < 0 ? r : file_leave_name(j->cache, e);
}

/* The name is out of the mirror. */
static void lost_locked(struct job *j, struct entry *e) REQUIRES(cache_ns, cache_mutex)
{
    struct cache *c = j->cache;
    struct node *n = j->node;

    log_later(&c->log, LOG_LEVEL_ERROR,
              "%s/%s was written by somebody else meanwhile: theirs stays, the content from "
              "here is kept as %s/kept/%s",
              c->store->url, j->path, c->mirror.dir, j->path);
    c->transfer->kept_files++;
    origin_resolved(c, j->at);
    if (!has_other_names(n))       /* else what is written is under those */
        n->flags |= NODE_REPLACED; /* who is about to open it looks the name up once more */
    n->nlink--;
    n->file->losses++;
    stamp_keys_remove(&n->file->keys, j->at.key);
    name_is_the_stores_locked(c, j->path);
    entry_remove_locked(c, e);
    if (n->links)
        file_lost_name_locked(c, n);
    else
        file_unqueue_locked(c, n->file);
}

void upload_keep_loser(struct job *j)
{
    struct cache *c = j->cache;
    struct node *n = j->node;

    cache_lock(c);
    bool copied = has_other_names(n) && loser_locked(j, true);
    cache_unlock(c);
    auto_close int copy = copied ? copy_content(j) : -EBADF;
    ns_write(c);
    cache_lock(c);
    struct entry *e = loser_locked(j, copied);
    uint64_t seq = n->file->debt.seq ? n->file->debt.seq : UINT64_MAX; /* never closed */
    cache_unlock(c);
    int r = !e ? -EBUSY : copied && copy < 0 ? copy : 0;
    /* This comes first: after a kill in between the file is owed as before, and loses again. */
    if (r == 0)
        r = intents_take_back(c, seq, n->file);
    crash_point("conflict-removals");
    if (r == 0)
        r = copied ? keep_copy(j, e, copy) : mirror_keep(&c->mirror, j->path);
    crash_point("conflict-kept");
    if (r == 0) {
        cache_lock(c);
        lost_locked(j, e);
        cache_unlock(c);
    } else if (r != -EBUSY) {
        log_later(&c->log, LOG_LEVEL_ERROR, "cache %s: can't set %s aside: %s", c->mirror.dir,
                  j->path, strerror(-r));
    }
    ns_done(c);
}
