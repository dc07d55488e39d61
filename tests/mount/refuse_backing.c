/* Loaded into a daemon with LD_PRELOAD: while there is a file of the name in RUNFS_TEST_REFUSE
 * the kernel takes no backing files, and answers with the errno whose number is in it. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct backing_map {
    int32_t fd;
    uint32_t flags;
    uint64_t padding;
};
#define DEV_IOC_BACKING_OPEN _IOW(229, 1, struct backing_map)

/* 0: it takes them. */
static int refusal(void)
{
    const char *name = getenv("RUNFS_TEST_REFUSE");
    char text[16] = "";
    int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;

    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    return n > 0 ? atoi(text) : 0;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list args;

    va_start(args, request);
    void *arg = va_arg(args, void *);
    va_end(args);
    int err = request == DEV_IOC_BACKING_OPEN ? refusal() : 0;
    if (err) {
        errno = err;
        return -1;
    }
    return (int)syscall(SYS_ioctl, fd, request, arg);
}
