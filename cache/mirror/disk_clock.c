/* The clock of the cache's disk, and whether the machine was started anew since the last mount.
 */
#include "cache/mirror/mirror.h"
#include "cache/mirror/mirror_impl.h"

#include "cache/mirror/stamp.h"
#include "common/err.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The clock itself ticks less often than that. */
#define COARSE_NS (10 * NS_PER_MS)

/* Whether a store through a mapping of an already synced page moves mtime: on tmpfs it does
 * not. On a full disk nobody can tell; and a hole would have no room when it is stored to,
 * which kills by SIGBUS. */
static int probe_mtime(int fd, bool *ret)
{
    static const char zeros[4096];
    struct stat before, after;
    ssize_t n = pwrite(fd, zeros, sizeof(zeros), 0);

    if (n != sizeof(zeros) && (n >= 0 || err_is_no_space(-errno))) {
        *ret = false;
        return 0;
    }
    if (n < 0)
        return -errno;
    volatile char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    map[0] = 1;
    int r = fsync(fd) < 0 || fstat(fd, &before) < 0 ? -errno : 0;
    const struct timespec tick = {.tv_nsec = 20 * 1000 * 1000};
    (void)nanosleep(&tick, NULL);
    map[0] = 2;
    if (r == 0 && fstat(fd, &after) < 0)
        r = -errno;
    if (r == 0)
        *ret = before.st_mtim.tv_sec != after.st_mtim.tv_sec ||
               before.st_mtim.tv_nsec != after.st_mtim.tv_nsec;
    (void)munmap((void *)map, 4096);
    return r;
}

/* ext4 with inodes of 128 bytes keeps seconds, others have ticks of their own. */
static int probe_tick(int fd, int64_t *ret_ns)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                      {.tv_sec = 1000000000, .tv_nsec = 123456789}};
    struct stat st;
    int64_t tick_ns = 1;

    if (futimens(fd, times) < 0 || fstat(fd, &st) < 0)
        return -errno;
    while (tick_ns < NS_PER_SEC && st.st_mtim.tv_nsec % (tick_ns * 10) == 0)
        tick_ns *= 10;
    *ret_ns = tick_ns;
    return 0;
}

int64_t mirror_time(const struct mirror *m, int64_t mtime_ns)
{
    int64_t over = mtime_ns % m->tick_ns;

    return mtime_ns - over - (over < 0 ? m->tick_ns : 0);
}

bool mirror_times_coarse(const struct mirror *m)
{
    return m->tick_ns > COARSE_NS;
}

int mirror_probe(struct mirror *m, struct op *op)
{
    auto_close int fd = mirror_beneath(m->incoming_fd, "probe", O_RDWR | O_CREAT | O_TRUNC);
    if (fd < 0)
        return op_fail(op, fd, "cache %s: can't create files in it: %s", m->dir, strerror(-fd));
    const struct stamp_attrs a = {.ino = 1};
    int r = stamp_write_attrs(fd, &a);
    if (r < 0)
        return op_fail(op, err_is_no_space(r) ? r : -EOPNOTSUPP,
                       "cache %s: its filesystem keeps no extended attributes (%s); put the "
                       "cache_dir on ext4, xfs, btrfs or tmpfs",
                       m->dir, strerror(-r));
    r = probe_mtime(fd, &m->mtime_trusted);
    if (r < 0)
        return op_fail(op, r, "cache %s: its filesystem can't map files: %s", m->dir,
                       strerror(-r));
    r = probe_tick(fd, &m->tick_ns);
    if (r < 0)
        return op_fail(op, r, "cache %s: can't set times of files in it: %s", m->dir,
                       strerror(-r));
    return unlinkat(m->incoming_fd, "probe", 0) < 0 ? -errno : 0;
}

#define BOOT_ENDED "ended "

/* Reads the kernel's boot id, a line. */
static int boot_id(char id[64])
{
    auto_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, id, 63);

    if (n <= 0)
        return -errno;
    id[n] = '\0';
    return 0;
}

int mirror_check_boot(struct mirror *m)
{
    char now[64];
    auto_free char *then = NULL;
    int r = mirror_read_text(m, "boot", &then);

    if (r == -ENOENT)
        return 0; /* a new cache */
    if (r < 0 || (r = boot_id(now)) < 0)
        return r;
    m->rebooted = strncmp(now, then, strlen(now)) != 0;
    const char *second = strchr(then, '\n');
    if (!second || sscanf(second + 1, BOOT_ENDED "%" SCNd64, &m->ended_ns) != 1)
        m->ended_ns = 0;
    return 0;
}

int mirror_note_boot(struct mirror *m)
{
    char now[64];
    int r = boot_id(now);

    return r < 0 ? r : mirror_write_text(m, "boot", now);
}

int mirror_note_failed(const struct mirror *m, struct op *op, int err, const char *what)
{
    if (err_is_no_space(err))
        return op_fail(
            op, err,
            "cache %s: can't note %s, as its disk is full: make a little room there, "
            "outside the cache, and try again",
            m->dir, what);
    return op_fail(op, err, "cache %s: can't note %s: %s", m->dir, what, door_why(err));
}

/* The time that the filesystem gives to a change of now. */
static int disk_time(struct mirror *m, int64_t *ret_ns)
{
    struct stat st;

    if (futimens(m->lock_fd, NULL) < 0 || fstat(m->lock_fd, &st) < 0)
        return -errno;
    *ret_ns = (int64_t)st.st_ctim.tv_sec * NS_PER_SEC + st.st_ctim.tv_nsec;
    return 0;
}

/* Waits until the disk's clock shows another time than `then_ns`. */
static int await_disk_tick(struct mirror *m, int64_t then_ns)
{
    const struct timespec pause = {.tv_nsec = NS_PER_MS};
    int64_t now_ns = then_ns;
    int r = 0;

    while (r == 0 && now_ns == then_ns) {
        (void)nanosleep(&pause, NULL);
        r = disk_time(m, &now_ns);
    }
    return r;
}

int mirror_sync(struct mirror *m)
{
    return mirror_note(m, syncfs(m->root_fd) < 0 ? -errno : 0);
}

int mirror_note_end(struct mirror *m)
{
    char text[128];
    int64_t ended_ns;
    int r = boot_id(text);

    if (r == 0)
        r = disk_time(m, &ended_ns);
    if (r == 0)
        r = await_disk_tick(m, ended_ns);
    if (r == 0)
        r = mirror_sync(m);
    if (r < 0)
        return mirror_note(m, r);
    size_t len = strlen(text);
    (void)snprintf(text + len, sizeof(text) - len, BOOT_ENDED "%" PRId64 "\n", ended_ns);
    return mirror_note(m, mirror_write_text(m, "boot", text));
}
