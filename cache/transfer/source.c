/* What an upload reads: the mirror file, while nobody changes it. */
#include "cache/transfer/upload.h"

#include "cache/mirror/mirror.h"
#include "cache/types/sums.h"
#include "common/buf.h"
#include "common/crc32c.h"
#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMPARE_BYTES ((size_t)1 << 20)

int source_disk_failed(struct job *j, int err, const char *step)
{
    atomic_store(&j->disk_step, step);
    atomic_store(&j->disk_error, err);
    return err;
}

/* Drivers read a source in order, and from its beginning when they start over. */
static void sum_up(struct file_source *s, const void *buf, size_t len, uint64_t off)
{
    if (off == 0) {
        s->sum = 0;
        s->summed = 0;
    }
    if (off == s->summed) {
        s->sum = crc32c(s->sum, buf, len);
        s->summed += len;
    }
}

int source_read_failed(struct job *j, int err)
{
    return source_disk_failed(j, err, "can't read the cache");
}

int source_lost_here(struct job *j, int err)
{
    return source_disk_failed(j, err, "can't read the cache: its disk lost what was written");
}

int upload_note_failed(struct job *j, int err)
{
    return source_disk_failed(j, err, "the session can't be noted in the cache");
}

static ssize_t file_pread(struct source *src, void *buf, size_t len, uint64_t off)
{
    struct file_source *s = container_of(src, struct file_source, base);
    struct job *j = s->job;

    if (off >= s->base.size)
        return 0;
    if (len > s->base.size - off)
        len = (size_t)(s->base.size - off);
    ssize_t n = pread(j->fd, buf, len, (off_t)(s->start + off));
    if (n < 0)
        return source_read_failed(j, -errno);
    /* Before the last bytes leave: without them there is no object. */
    if (s->start + off + (uint64_t)n >= (uint64_t)j->st.st_size &&
        file_check_kept(j->cache, j->node, j->fd) < 0)
        return source_lost_here(j, -EIO);
    /* A writer that came before these bytes were read has set the flag before it could write.
     */
    if (!j->live && atomic_load(&j->node->file->changed))
        return CHANGED;
    if (j->live)
        sum_up(s, buf, (size_t)n, off);
    return n == 0 ? CHANGED : n;
}

void file_source_init(struct file_source *s, struct job *j, uint64_t start, uint64_t size)
{
    *s = (struct file_source){
        .base = {.size = size, .pread = file_pread}, .job = j, .start = start};
}

static bool same_stat(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

int source_still_same(struct job *j)
{
    struct stat now;

    /* A writer through the daemon may also have set the time back, and says so under the same
     * hold of the lock. */
    cache_lock(j->cache);
    int r = fstat(j->fd, &now) < 0 ? -errno : 0;
    bool changed = atomic_load(&j->node->file->changed);
    cache_unlock(j->cache);
    if (r < 0)
        return source_read_failed(j, r);
    if (file_check_kept(j->cache, j->node, j->fd) < 0)
        return source_lost_here(j, -EIO);
    return !changed && same_stat(&now, &j->st) ? 0 : CHANGED;
}

/* Whether the file has this CRC-32C at [off, end). 0, CHANGED or another error. */
static int compare_range(struct job *j, uint64_t off, uint64_t end, uint32_t sum)
{
    auto_free char *buf = malloc(COMPARE_BYTES);
    uint32_t now = 0;

    if (!buf)
        return -ENOMEM;
    while (off < end) {
        size_t want = end - off < COMPARE_BYTES ? (size_t)(end - off) : COMPARE_BYTES;
        ssize_t n = pread(j->fd, buf, want, (off_t)off);
        if (n < 0)
            return source_read_failed(j, -errno);
        if (n == 0 || atomic_load(&j->cache->cancelled))
            return n == 0 ? CHANGED : -EINTR;
        now = crc32c(now, buf, (size_t)n);
        off += (uint64_t)n;
    }
    return now == sum ? 0 : CHANGED;
}

int source_begins_the_same(struct job *j, const uint32_t *sums, uint64_t step)
{
    uint64_t size = (uint64_t)j->st.st_size;
    int r = source_still_same(j);

    if (!j->live || (r < 0 && r != CHANGED))
        return r;
    cache_lock(j->cache);
    bool unproven = upload_is_unproven_locked(j);
    cache_unlock(j->cache);
    if (r == 0 && !unproven)
        return 0;
    r = 0;
    for (uint64_t off = 0; r == 0 && off < size; off += step)
        r = compare_range(j, off, size - off < step ? size : off + step, sums[off / step]);
    return r;
}
