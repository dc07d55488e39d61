/* The debug builds' check of the mirror files: docs/format.md, section 3. */
#include "cache/content/content_impl.h"

#ifndef NDEBUG
#include <utlist.h>

/* Walking all of a large cache at each change would be felt: the lists are cut short. */
#define LOOK_AT 200

void file_check_locked(struct cache *c, struct file *f)
{
    struct node *n = f->node;

    cache_assert_locked(c);
    assert(n->file == f && !n->dir);
    /* 1: dirty is complete. */
    assert(f->state != FILE_DIRTY || f->present.n == 0);
    /* 6: nothing dirty, open or uploading may be evicted. */
    assert(!f->in_lru || (f->state != FILE_DIRTY && !f->open_handles && !f->debt.running &&
                          !debt_is_queued(&f->debt) && !(n->flags & NODE_ATTR_DIRTY)));
    /* 7: one mode. */
    assert(!f->passthrough || (f->open_handles && f->state != FILE_PARTIAL));
    assert(f->write_handles <= f->open_handles);
    assert(f->is_writer == (f->write_handles > 0));
    assert(f->map_handles <= f->write_handles);
    assert(!f->was_mapped || f->map_handles > 0);
    for (int i = 0; i < 2; i++)
        assert((f->fds[i].fd >= 0) == (f->fds[i].users > 0 || f->fds[i].idle));
    assert(!f->debt.running || place_known(f->upload_place));
    assert(f->debt.seq <= c->tree->seq && f->seq <= c->tree->seq);
}

void contents_check_locked(struct cache *c)
{
    struct file *f;
    int n = 0;

    cache_assert_locked(c);
    DL_FOREACH2(c->content->urgent, f, urgent_next)
    {
        assert(debt_is_queued(&f->debt) && f->urgent);
        if (++n > LOOK_AT)
            break;
    }
    n = 0;
    DL_FOREACH2(c->content->lru, f, lru_next)
    {
        assert(f->in_lru && !debt_is_queued(&f->debt));
        file_check_locked(c, f);
        if (++n > LOOK_AT)
            break;
    }
    n = 0;
    DL_FOREACH2(c->content->writers, f, writer_next)
    {
        file_check_locked(c, f);
        if (++n > LOOK_AT)
            break;
    }
}
#endif
