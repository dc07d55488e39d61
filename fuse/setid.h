/* Set-user-id and set-group-id bits fall when an unprivileged caller changes a file's content,
 * and when anyone changes the owner or group of what is no directory.
 *
 * The kernel would see to that, but asks for `security.capability` before each write() then: a
 * round trip that makes small passthrough writes five times as dear. So we take it over
 * (HANDLE_KILLPRIV_V2) and do it at write, truncate, fallocate and chown. Passthrough writes
 * are not seen: there the bits fall when the file is opened for writing. */
#ifndef RUNFS_FUSE_SETID_H
#define RUNFS_FUSE_SETID_H

#include "fuse/pending.h"

/* Takes the bits off a file when the caller is unprivileged; the kernel is told. 0,
 * CACHE_PARKED or a negative errno. */
int setid_fall(struct pending *p, struct node *node);

/* For a chown or truncate that is about to be made: adds the mode without the bits to what is
 * set. `always`: also for a privileged caller. The same results. */
int setid_add_to_set(struct pending *p, bool always, unsigned *set, struct stat *st);

/* A caller outside the group of p->node clears its S_ISGID by setting an access ACL: adds
 * CACHE_XATTR_KILL_SGID to the flags. (The kernel says so in a field that libfuse does not pass
 * on.) The same results. */
int setid_add_to_acl(struct pending *p, int *flags);

#endif
