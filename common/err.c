/* What an errno means to runfs. */
#include "common/err.h"

#include <errno.h>
#include <string.h>

#define ERRNO_MAX 4095 /* the kernel's */

bool err_is_unreachable(int64_t result)
{
    switch (result) {
    case -ECONNREFUSED:
    case -EHOSTUNREACH:
    case -EHOSTDOWN:
    case -ENETUNREACH:
    case -ENETDOWN:
        return true;
    default:
        return false;
    }
}

bool err_is_network(int64_t result)
{
    switch (result) {
    case -ETIMEDOUT:
    case -ECONNRESET:
    case -ECONNABORTED:
    case -ENETRESET:
        return true;
    default:
        return err_is_unreachable(result);
    }
}

bool err_is_transient(int64_t result)
{
    switch (result) {
    case -EAGAIN:
    case -EIO:
    case -EPROTO:
    case -EPIPE:
        return true;
    default:
        return err_is_network(result);
    }
}

bool err_is_no_space(int64_t result)
{
    return result == -ENOSPC || result == -EDQUOT;
}

const char *err_name(int err)
{
    const char *name = strerrorname_np(err < 0 ? -err : err);

    return name ? name : "unknown error";
}

int err_by_name(const char *name)
{
    for (int err = 1; err <= ERRNO_MAX; err++) {
        const char *known = strerrorname_np(err);
        if (known && strcmp(known, name) == 0)
            return err;
    }
    return 0;
}
