/* The directory `.runfs/locked`: for each deletion lock, under its number, a read-only view of
 * what it covers, with what was removed or replaced since. It is the mount owner's alone, since
 * it shows a directory without those above it. Nothing of a view is kept but the paths of what
 * the kernel knows: each question is asked of the cache, and believed for no time. */
#ifndef RUNFS_FUSE_LOCKED_H
#define RUNFS_FUSE_LOCKED_H

#include "fuse/lowlevel.h"

#include <stdbool.h>

#define LOCKED_NAME "locked"

/* Answers about a name in the directory or in a view. */
void locked_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
/* Answers about what the number stands for. */
void locked_getattr(fuse_req_t req, fuse_ino_t ino);
void locked_readlink(fuse_req_t req, fuse_ino_t ino);
void locked_open(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi);
/* The same of the directory itself, too. */
void locked_opendir(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi);
void locked_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    const struct fuse_file_info *fi, bool plus);

#endif
