/* A disk with bad sectors: one file, `disk`, that passes everything on to an image, and answers
 * EIO where it is told to. Put under a loop device it is what device-mapper's error target
 * would be.
 *
 * usage: flaky_disk IMAGE MOUNTPOINT
 *
 * Written to the file `control`: "read FIRST END" or "write FIRST END" makes these bytes fail
 * from then on, "heal" ends all of it. Read from it: how many requests failed. */
#define FUSE_USE_VERSION 31

#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BAD_MAX 256

struct bad {
    bool write; /* else reads fail */
    uint64_t first, end;
};

static int image = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bad bad[BAD_MAX];
static size_t n_bad;
static unsigned long failed;

static bool is_bad(bool write, uint64_t off, uint64_t len)
{
    bool found = false;

    (void)pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_bad; i++)
        found |= bad[i].write == write && off < bad[i].end && bad[i].first < off + len;
    failed += found;
    (void)pthread_mutex_unlock(&lock);
    return found;
}

static bool is_control(const char *path)
{
    return strcmp(path, "/control") == 0;
}

static int disk_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    struct stat of_image;

    (void)fi;
    memset(st, 0, sizeof(*st));
    st->st_nlink = 1;
    st->st_mode = strcmp(path, "/") == 0 ? S_IFDIR | 0700 : S_IFREG | 0600;
    if (is_control(path)) {
        st->st_size = 32;
    } else if (strcmp(path, "/disk") == 0) {
        if (fstat(image, &of_image) < 0)
            return -errno;
        st->st_size = of_image.st_size;
    } else if (strcmp(path, "/") != 0) {
        return -ENOENT;
    }
    return 0;
}

static int disk_open(const char *path, struct fuse_file_info *fi)
{
    (void)path;
    fi->direct_io = 1; /* each request of the loop device must come here */
    return 0;
}

static int disk_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
    (void)size;
    (void)fi;
    return is_control(path) ? 0 : -EPERM;
}

static int disk_read(const char *path, char *buf, size_t len, off_t off,
                     struct fuse_file_info *fi)
{
    ssize_t n;

    (void)fi;
    if (is_control(path)) {
        char text[32];
        size_t size = (size_t)snprintf(text, sizeof(text), "%lu\n", failed);
        if ((size_t)off >= size)
            return 0;
        size = size - (size_t)off < len ? size - (size_t)off : len;
        memcpy(buf, text + off, size);
        return (int)size;
    }
    if (is_bad(false, (uint64_t)off, len))
        return -EIO;
    n = pread(image, buf, len, off);
    return n < 0 ? -errno : (int)n;
}

static int obey(const char *text)
{
    char verb[8];
    unsigned long long first = 0, end = 0;
    int n = sscanf(text, "%7s %llu %llu", verb, &first, &end), r = 0;

    (void)pthread_mutex_lock(&lock);
    if (n == 1 && strcmp(verb, "heal") == 0)
        n_bad = 0;
    else if (n == 3 && n_bad < BAD_MAX &&
             (strcmp(verb, "read") == 0 || strcmp(verb, "write") == 0))
        bad[n_bad++] = (struct bad){strcmp(verb, "write") == 0, first, end};
    else
        r = -EINVAL;
    (void)pthread_mutex_unlock(&lock);
    return r;
}

static int disk_write(const char *path, const char *buf, size_t len, off_t off,
                      struct fuse_file_info *fi)
{
    ssize_t n;

    (void)fi;
    if (is_control(path)) {
        char text[64] = "";
        if (len >= sizeof(text))
            return -EINVAL;
        memcpy(text, buf, len);
        int r = obey(text);
        return r < 0 ? r : (int)len;
    }
    if (is_bad(true, (uint64_t)off, len))
        return -EIO;
    n = pwrite(image, buf, len, off);
    return n < 0 ? -errno : (int)n;
}

static int disk_fsync(const char *path, int datasync, struct fuse_file_info *fi)
{
    (void)path;
    (void)datasync;
    (void)fi;
    return 0;
}

int main(int argc, char **argv)
{
    static const struct fuse_operations operations = {
        .getattr = disk_getattr,
        .open = disk_open,
        .truncate = disk_truncate,
        .read = disk_read,
        .write = disk_write,
        .fsync = disk_fsync,
    };
    char foreground[] = "-f";
    char *fuse_argv[] = {argv[0], argc > 2 ? argv[2] : NULL, foreground, NULL};

    if (argc != 3) {
        (void)fprintf(stderr, "usage: flaky_disk IMAGE MOUNTPOINT\n");
        return 2;
    }
    image = open(argv[1], O_RDWR | O_CLOEXEC);
    if (image < 0) {
        perror(argv[1]);
        return 1;
    }
    return fuse_main(3, fuse_argv, &operations, NULL);
}
