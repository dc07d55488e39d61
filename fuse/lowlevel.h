/* libfuse's low-level API, in the version that this code is written for. What came after 3.14
 * is used where the headers have it. */
#ifndef RUNFS_FUSE_LOWLEVEL_H
#define RUNFS_FUSE_LOWLEVEL_H

#define FUSE_USE_VERSION 314

#include <fuse_lowlevel.h>

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
#define HAVE_FUSE_PASSTHROUGH 1
#define HAVE_FUSE_TMPFILE     1
#define HAVE_FUSE_DIRECT_MMAP 1
#endif

#endif
