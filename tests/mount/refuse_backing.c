/* Loaded into a daemon with LD_PRELOAD: while there is a file of the name in RUNFS_TEST_REFUSE
 * the kernel has no memory for backing files. */
#include <errno.h>
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

int ioctl(int fd, unsigned long request, ...)
{
    const char *refuse = getenv("RUNFS_TEST_REFUSE");
    va_list args;

    va_start(args, request);
    void *arg = va_arg(args, void *);
    va_end(args);
    if (request == DEV_IOC_BACKING_OPEN && refuse && access(refuse, F_OK) == 0) {
        errno = ENOMEM;
        return -1;
    }
    return (int)syscall(SYS_ioctl, fd, request, arg);
}
