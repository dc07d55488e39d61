/* What an errno means to runfs. */
#include "common/err.h"

#include <errno.h>
#include <string.h>

bool err_is_transient(int64_t result)
{
    switch (result) {
    case -EAGAIN:
    case -EIO:
    case -EPROTO:
    case -EPIPE:
    case -ETIMEDOUT:
    case -ECONNRESET:
    case -ECONNREFUSED:
    case -ECONNABORTED:
    case -EHOSTUNREACH:
    case -EHOSTDOWN:
    case -ENETUNREACH:
    case -ENETDOWN:
    case -ENETRESET:
        return true;
    default:
        return false;
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
