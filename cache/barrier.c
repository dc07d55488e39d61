/* Which removals wait for which uploads: what was closed before something was removed is in the
 * store before the removal is carried out there. */
#include "cache/intent.h"

#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <string.h>
#include <utlist.h>

/* A staging file that was just closed is about to be renamed: deletes wait for it this long. */
#define STAGED_BARRIER_NS (10 * NS_PER_SEC)

/* What the refused names in the directory of `path` hold, or NULL. */
static struct barrier_dir *barrier_dir(const struct barrier *b, const char *path)
{
    const char *end = strrchr(path, '/');
    size_t len = end ? (size_t)(end - path) : 0;

    for (size_t i = 0; i < b->n; i++)
        if (strncmp(b->dirs[i].path, path, len) == 0 && b->dirs[i].path[len] == '\0')
            return &b->dirs[i];
    return NULL;
}

/* Without memory it holds all that comes later. */
static void hold_beside(struct barrier *b, const struct file *f)
{
    auto_free char *path = node_path(f->node);
    struct barrier_dir *dir = path ? barrier_dir(b, path) : NULL;

    if (!dir && path && b->n == b->cap) {
        size_t cap = b->cap ? b->cap * 2 : 8;
        struct barrier_dir *v = reallocarray(b->dirs, cap, sizeof(*v));
        b->dirs = v ? v : b->dirs;
        b->cap = v ? cap : b->cap;
    }
    if (!dir && path && b->n < b->cap) {
        dir = &b->dirs[b->n];
        *dir = (struct barrier_dir){path_parent(path), UINT64_MAX};
        b->n += dir->path != NULL;
    }
    uint64_t *seq = dir && dir->path ? &dir->seq : &b->seq;
    *seq = f->first_seq < *seq ? f->first_seq : *seq;
}

void barrier_init_locked(struct cache *c, struct barrier *ret)
{
    int64_t now = clock_mono_ns();
    struct file *f;

    *ret = (struct barrier){.seq = UINT64_MAX};
    if (c->out_of_quota)
        return;
    DL_FOREACH2(c->dirty, f, dirty_next)
    {
        bool waits =
            f->staged && !f->wanted && !c->drain && now - f->staged_ns >= STAGED_BARRIER_NS;
        if (!f->first_seq || waits)
            continue;
        if (file_is_refused_locked(f))
            hold_beside(ret, f);
        else if (f->first_seq < ret->seq)
            ret->seq = f->first_seq;
    }
}

bool barrier_holds(const struct barrier *b, const struct intent *removal)
{
    const struct barrier_dir *dir = barrier_dir(b, removal->from);

    return removal->seq > b->seq || (dir && removal->seq > dir->seq);
}

void barrier_release(struct barrier *b)
{
    for (size_t i = 0; i < b->n; i++)
        free(b->dirs[i].path);
    free(b->dirs);
}
