/* Where a cache directory is; see location.h. */
#include "cache/mirror/location.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PLACE_MAX  160
#define PLACE_MARK "user.runfs.mirror"

/* Without an id, as in many containers, the directory has to tell. */
static void machine_id(char id[64])
{
    auto_close int fd = open("/etc/machine-id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, id, 63);

    id[n > 0 ? n : 0] = '\0';
    id[strcspn(id, "\n")] = '\0';
}

/* The text leaves out the device, whose number may be another one after each boot. The time at
 * which the directory was made tells an inode from one of the same number on another disk. */
static int describe(const struct mirror *m, char text[PLACE_MAX])
{
    struct statx stx;
    char id[64];

    if (statx(m->root_fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &stx) < 0)
        return -errno;
    bool born = stx.stx_mask & STATX_BTIME;
    machine_id(id);
    (void)snprintf(text, PLACE_MAX, "1 %" PRIu64 " %" PRId64 ".%09" PRIu32 " %s\n",
                   (uint64_t)stx.stx_ino, born ? (int64_t)stx.stx_btime.tv_sec : 0,
                   born ? stx.stx_btime.tv_nsec : 0, *id ? id : "-");
    return 0;
}

int location_check(struct mirror *m)
{
    auto_free char *then = NULL;
    char now[PLACE_MAX];
    int r = mirror_read_text(m, "place", &then);

    m->older = r == -ENOENT;
    if (m->older)
        return 0;
    if (r == 0)
        r = describe(m, now);
    if (r < 0)
        return r;
    m->copied = strcmp(now, then) != 0;
    m->stampless = fgetxattr(m->tree_fd, PLACE_MARK, NULL, 0) < 0 && errno == ENODATA;
    return 0;
}

/* The mark comes first, and on the disk: a place without it says that the stamps are lost. */
static int mark(struct mirror *m)
{
    if (fgetxattr(m->tree_fd, PLACE_MARK, NULL, 0) >= 0)
        return 0;
    return fsetxattr(m->tree_fd, PLACE_MARK, "1", 1, 0) < 0 || fsync(m->tree_fd) < 0 ? -errno
                                                                                     : 0;
}

int location_note(struct mirror *m)
{
    char text[PLACE_MAX];
    int r = describe(m, text);

    if (r == 0)
        r = mark(m);
    return r < 0 ? r : mirror_write_text(m, "place", text);
}
