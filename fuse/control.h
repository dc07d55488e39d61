/* The virtual directory `.runfs` in the mount's root: status.json and metrics, read-only, not
 * in the root's listing, their text made when they are opened; and the directories of by_id.h
 * and locked.h. Node ids with a lower half of 2 to 15 are its. */
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
void control_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void control_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                     struct fuse_file_info *fi, bool plus);
void control_readlink(fuse_req_t req, fuse_ino_t ino);
void control_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);

/* What all of it has in common: times, and the daemon's user as the owner. */
void control_stat(const struct fs *fs, mode_t mode, struct stat *ret);
/* As fuse_add_direntry() or, with `plus`, its namesake: a name without a node. */
size_t control_add_entry(fuse_req_t req, char *buf, size_t room, const char *name,
                         const struct stat *st, uint64_t next, bool plus);

#endif
