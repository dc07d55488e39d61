/* What comes of a partial file from the store: row "fetch range" of docs/format.md, section 3.
 * A download takes its room, then brings its bytes piece by piece, then records what is here:
 * that record says less than there is at any moment. */
#include "cache/content/content_impl.h"

#include "cache/mirror/stamp.h"
#include "cache/types/range.h"
#include "cache/types/sums.h"
#include "common/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* From so many bytes on a download takes its room on the disk at once, with its first byte:
 * that costs less than block by block. */
#define ROOM_MIN (UINT64_C(1) << 20)

void file_take_room(int fd, uint64_t off, uint64_t end)
{
    if (end - off >= ROOM_MIN)
        (void)fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)(end - off));
}

int file_write_arrived(int fd, const char *data, size_t len, uint64_t off)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, data, len, (off_t)off);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        off += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

void file_note_arrived(struct cache *c, struct node *n, int fd, const struct range *summed,
                       const struct checksum *sum)
{
    struct ranges copy = {0};
    int r = 0;

    cache_lock(c);
    struct file *f = n->file;
    if (sum)
        sums_add(&f->sums, summed->off, summed->end, sum);
    bool partial = f->state == FILE_PARTIAL && !f->busy;
    for (size_t i = 0; partial && i < f->present.n && r == 0; i++)
        r = ranges_add(&copy, f->present.v[i].off, f->present.v[i].end);
    cache_unlock(c);
    if (partial && r == 0)
        (void)stamp_write_ranges(fd, &copy, false);
    ranges_clear(&copy);
}

void file_note_damaged(int fd)
{
    const struct ranges none = {0};

    (void)stamp_write_ranges(fd, &none, false);
}
