/* Hard links. */
#include "cache/ops/ops_impl.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/mirror.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define LINKS_MAX 1000

/* ---- linking ---- */

struct linking {
    struct step step;
    struct node *node;
    const char *to; /* path */
    int fd;         /* of the mirror file */
    struct seat seat;
};

/* It owes no more than before. */
static void not_linked(struct cache *c, const struct linking *k)
{
    struct file *f = k->node->file;

    cache_lock(c);
    if (f->write_handles + f->truncates == 0)
        file_will_not_change_locked(f);
    cache_unlock(c);
    (void)node_write_stamp(c, k->node, k->fd);
}

/* A file without all of its records says that the store has each of its names. W takes that
 * back before the name comes that the store lacks, since the stamp behind it may fail. */
static int link_in_mirror(struct step *step) REQUIRES(cache_ns)
{
    const struct linking *k = container_of(step, struct linking, step);
    struct cache *c = step->cache;

    cache_lock(c);
    k->node->named_seq = seq_next_locked(c);
    node_mark_scratch_locked(c, k->node, k->to);
    bool first = file_will_change_locked(k->node->file);
    cache_unlock(c);
    int r = node_write_stamp(c, k->node, k->fd);
    if (r == 0)
        r = mirror_link_fd(&c->mirror, k->fd, k->to);
    if (r < 0 && first)
        not_linked(c, k);
    crash_point("link-made");
    return r;
}

static void link_in_tree_locked(struct step *step) REQUIRES(cache_ns, cache_mutex)
{
    struct linking *k = container_of(step, struct linking, step);
    struct cache *c = step->cache;
    struct node *n = k->node;
    struct file *f = n->file;

    struct entry *e = seat_enter_locked(c, &k->seat);
    n->nlink++;
    n->ctime_ns = clock_real_ns();
    entry_owes_locked(e, true);
    file_got_name_locked(f);
    file_renamed_locked(c, n);
    if (f->unnamed) {
        file_set_unnamed_locked(f, false);
        fds_unkeep_locked(c);
        file_put_fd_locked(c, f, FD_WRITE);
    }
    name_gained_locked(c, e);
    if (f->write_handles == 0)
        file_queue_locked(c, n);
}

static int link_ns_locked(struct cache *c, struct node *n, struct node *parent,
                          const char *name) REQUIRES(cache_ns)
{
    cache_lock(c);
    struct file *f = n->file;
    bool exists = entry_find(parent, name) != NULL;
    bool lost = (parent->flags & NODE_REMOVED) || (!n->links && (!f || !f->unnamed));
    bool evicted = !f || f->state == FILE_PARTIAL;
    auto_free char *to = child_path(parent, name);
    auto_free char *from = n->links ? entry_path(n->links) : NULL;
    int unnamed_fd = f ? f->fds[FD_WRITE].fd : -1; /* stays until it has a name */
    cache_unlock(c);
    if (exists || lost || !to)
        return exists ? -EEXIST : lost ? -ENOENT : -ENOMEM;
    if (evicted)
        return -EAGAIN;
    auto_close int fd = from ? mirror_open_path(&c->mirror, from, O_RDONLY)
                             : fcntl(unnamed_fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return from ? fd : -errno;
    struct linking k = {
        .step = {.cache = c, .on_disk = link_in_mirror, .in_tree = link_in_tree_locked},
        .node = n,
        .to = to,
        .fd = fd};
    cache_lock(c);
    int r = seat_take_locked(c, parent, name, n, &k.seat);
    cache_unlock(c);
    if (r == 0)
        r = step_run(&k.step);
    seat_release(&k.seat);
    if (r == 0)
        (void)node_write_stamp(c, n, fd); /* its place in the order: without, it comes last */
    return r;
}

/* Makes sure that target and directory are known and take a link, or parks. */
static int link_ready(struct cache *c, struct node *node, struct node *parent, const char *name,
                      struct waiter *w)
{
    cache_lock(c);
    int r = node_is_lock_file_locked(c, node) ? -EPERM
            : c->queue->locks && lock_file_locked(c, parent, name)
                ? -EEXIST
                : name_parent_ready_locked(c, parent, name, w);
    if (r == 0)
        r = attrs_need_locked(c, node, w);
    if (r == 0)
        r = attrs_confirm_locked(c, node, w);
    if (r == 0 && node->nlink >= LINKS_MAX)
        r = -EMLINK;
    if (r == 0 && !entry_find(parent, name))
        r = name_link_admit_locked(c, node, parent, name);
    if (r == 0)
        r = name_key_fits_locked(c, parent, name, 0);
    cache_unlock(c);
    if (r == 0)
        r = file_need(c, node);
    if (r != 0)
        return r;
    cache_lock(c);
    r = node->file ? fetch_complete_locked(c, node, w) : 0;
    cache_unlock(c);
    crash_point("link-ready");
    return r;
}

int cache_link(struct cache *c, struct node *node, struct node *parent, const char *name,
               struct waiter *w, struct node **ret, struct stat *st)
{
    int r;

    if (node->dir)
        return -EPERM;
    do {
        r = link_ready(c, node, parent, name, w);
        if (r != 0)
            return r;
        ns_write(c);
        r = link_ns_locked(c, node, parent, name);
        ns_done(c);
    } while (r == -EAGAIN); /* evicted meanwhile: its content is fetched first */
    if (r < 0)
        return r;
    cache_lock(c);
    node->nlookup++;
    node_stat(node, st);
    *ret = node;
    cache_unlock(c);
    return 0;
}
