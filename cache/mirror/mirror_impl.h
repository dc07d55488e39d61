/* What the files behind mirror.h share. */
#ifndef RUNFS_CACHE_MIRROR_MIRROR_IMPL_H
#define RUNFS_CACHE_MIRROR_MIRROR_IMPL_H

#include "cache/mirror/mirror.h"

/* ---- disk_clock.c ---- */
/* Finds out by a file of its own what the disk of the cache can do: extended attributes,
 * mapped files, the tick of its clock. 0 or a negative errno with op->why. */
int mirror_probe(struct mirror *m, struct op *op);
/* Finds out whether the machine was started anew since the cache was used last, and when that
 * use ended. 0 or a negative errno. */
int mirror_check_boot(struct mirror *m);

/* ---- kept.c ---- */
/* Moves the directory `name`, with what is in it, to such a name in kept/. 0 or a negative
 * errno. */
int mirror_keep_dir(struct mirror *m, int dir, const char *name);

/* ---- lock.c ---- */
/* Opens and takes the lock of the cache directory, as mirror_open() says. */
int mirror_lock(struct mirror *m, struct op *op);

/* ---- mirror.c ---- */
/* openat2() that leaves neither `dirfd` nor its filesystem and follows no symlink; new files
 * have mode 0600. A descriptor or a negative errno. */
int mirror_beneath(int dirfd, const char *path, int flags);
/* Opens the parent directory of a path and points at its last component. */
int mirror_open_parent(int root_fd, const char *path, const char **ret_name);

#endif
