/* Read before every source by clang-tidy (lint.sh), never by a compiler. The analyzer sees one
 * file at a time; here it is told that errno is positive after a failure, and that op_fail()
 * returns the error it was given. Without that it takes `return -errno` and `return
 * op_fail(...)` for possible successes and follows paths on which results are not set. */
#ifndef RUNFS_SCRIPTS_ANALYZER_H
#define RUNFS_SCRIPTS_ANALYZER_H

#include "common/op.h"

#include <errno.h>

/* Some values stand for all: clang 14 can't negate a number that it knows only the sign of. */
static inline int *analyzer_errno(void)
{
    static int value;

    switch (errno) {
    case ENOENT:
        value = ENOENT;
        break;
    case EEXIST:
        value = EEXIST;
        break;
    case EINTR:
        value = EINTR;
        break;
    default:
        value = EIO;
    }
    return &value;
}
#undef errno
#define errno (*analyzer_errno())

#define op_fail(op, err, ...) (op_fail(op, err, __VA_ARGS__), (err))

#endif
