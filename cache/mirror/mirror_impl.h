/* What the files behind mirror.h share. */
#ifndef RUNFS_CACHE_MIRROR_MIRROR_IMPL_H
#define RUNFS_CACHE_MIRROR_MIRROR_IMPL_H

#include "cache/mirror/mirror.h"

/* ---- disk_clock.c ---- */
int mirror_probe(struct mirror *m, struct op *op);
int mirror_check_boot(struct mirror *m);

/* ---- mirror.c ---- */
int mirror_beneath(int dirfd, const char *path, int flags);
/* Opens the parent directory of a path and points at its last component. */
int mirror_open_parent(int root_fd, const char *path, const char **ret_name);

#endif
