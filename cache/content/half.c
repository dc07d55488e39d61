/* Half files: docs/format.md, section 3. A file that is made anew replaces nothing before its
 * writer has said that it is whole. Only these functions assign what tells of that. */
#include "cache/content/content_impl.h"

#include "cache/mirror/mirror.h"
#include "common/lock.h"
#include "common/mem.h"

#include <assert.h>

void file_begin_anew_locked(struct file *f)
{
    f->beginners++;
    f->whole_mtime_ns = 0;
}

void file_end_anew_locked(struct file *f)
{
    assert(f->beginners > 0);
    f->beginners--;
}

bool file_is_said_whole(const struct file *f, int64_t mtime_ns, uint64_t size)
{
    return f->whole_mtime_ns == mtime_ns && f->whole_size == size;
}

void file_say_whole_locked(struct file *f, int64_t mtime_ns, uint64_t size)
{
    f->whole_mtime_ns = mtime_ns;
    f->whole_size = size;
}

bool file_unsay_whole_locked(struct file *f)
{
    bool said = f->beginners && f->whole_mtime_ns;

    f->whole_mtime_ns = 0;
    return said;
}

unsigned file_stamp_begun(const struct file *f)
{
    if (!f->beginners || (f->time_moves && f->whole_mtime_ns))
        return 0;
    return f->whole_mtime_ns ? STAMP_BEGUN | STAMP_WHOLE : STAMP_BEGUN;
}

bool file_begun_is_noted(const struct file *f)
{
    return (f->noted & (STAMP_BEGUN | STAMP_WHOLE)) == file_stamp_begun(f);
}

bool file_time_moves_locked(struct file *f, bool whole)
{
    bool half = f->beginners && !(whole && f->whole_mtime_ns);

    if (half || !(f->noted & STAMP_BEGUN))
        return false;
    f->time_moves = true;
    return true;
}

void file_time_moved_locked(struct file *f)
{
    f->time_moves = false;
}

bool file_is_half_locked(struct cache *c, struct node *n)
{
    struct file *f = n->file;

    cache_assert_locked(c);
    if (!f || !f->beginners)
        return false;
    node_look_locked(c, n);
    if (file_is_said_whole(f, mirror_time(&c->mirror, n->mtime_ns), n->size))
        return false;
    auto_free char *path = node_path(n);
    return !path || !path_is_log(c, path);
}
