/* The virtual directory `.runfs` in the mount's root: status.json and metrics, read-only, not
 * in the root's listing, their text made when they are opened. Node ids 2 to 15 are its. */
#ifndef RUNFS_FUSE_CONTROL_H
#define RUNFS_FUSE_CONTROL_H

#include "common/path.h"
#include "fuse/lowlevel.h"

#include <stdbool.h>
#include <sys/stat.h>

struct fs;

#define CONTROL_NAME PATH_RESERVED

/* Whether `name` in `parent` is or is in the control directory, where nothing can be made,
 * renamed or removed. */
bool control_claims(fuse_ino_t parent, const char *name);

/* Answers. The ino or parent must be the control directory's or a file's of it, or (lookup) the
 * name claimed. */
void control_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void control_getattr(fuse_req_t req, fuse_ino_t ino);
void control_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void control_read(fuse_req_t req, struct fuse_file_info *fi, size_t size, off_t off);
void control_opendir(fuse_req_t req, struct fuse_file_info *fi);
void control_readdir(fuse_req_t req, size_t size, off_t off, bool plus);

#endif
