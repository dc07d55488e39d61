/* Small files, whole. */
#include "runs/read_file.h"

#include "common/mem.h"

#include <fcntl.h>
#include <sys/stat.h>

static int failed(int err, const char **ret_why)
{
    *ret_why = err == -EFBIG    ? "larger than a configuration may be (1 MiB)"
               : err == -ENOMEM ? "out of memory"
                                : strerror(-err);
    return err;
}

int read_small_file(const char *path, size_t max, struct buf *to, mode_t *ret_mode,
                    const char **ret_why)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    char chunk[4096];
    size_t len = 0;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0)
        return failed(-errno, ret_why);
    while ((n = read(fd, chunk, sizeof(chunk))) > 0) {
        int err = (len += (size_t)n) > max ? -EFBIG : buf_add(to, chunk, (size_t)n);

        if (err)
            return failed(err, ret_why);
    }
    if (n < 0)
        return failed(-errno, ret_why);
    if (ret_mode)
        *ret_mode = st.st_mode & 07777;
    return 0;
}
