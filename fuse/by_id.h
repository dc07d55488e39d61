/* The directory `.runfs/by-id`: a symlink for each directory of the root whose name encodes the
 * id of a run, under that id, to `../../NAME`. fs_config.raw_names says how they encode it;
 * with CODEC_NONE the directory is not there. It is the root seen another way, and nothing is
 * kept of it: who may list or search the root may do so here, a listing is the root's, and a
 * name is there when the root has the directory at the time of the lookup. */
#ifndef RUNFS_FUSE_BY_ID_H
#define RUNFS_FUSE_BY_ID_H

#include "fuse/lowlevel.h"

#include <stdbool.h>

#define BY_ID_NAME "by-id"

/* Answers about the directory. */
void by_id_lookup_dir(fuse_req_t req);
void by_id_getattr_dir(fuse_req_t req);
void by_id_getxattr_dir(fuse_req_t req, const char *name, size_t size);
void by_id_opendir(fuse_req_t req, struct fuse_file_info *fi);
void by_id_readdir(fuse_req_t req, size_t size, off_t off, struct fuse_file_info *fi,
                   bool plus);

/* Answers about the links in it. */
void by_id_lookup(fuse_req_t req, const char *id);
void by_id_getattr(fuse_req_t req, fuse_ino_t ino);
void by_id_readlink(fuse_req_t req, fuse_ino_t ino);

#endif
