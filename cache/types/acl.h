/* POSIX ACLs as the kernel hands them over: a version, then entries of tag, permissions and id
 * (linux/posix_acl_xattr.h). Pure functions over these bytes; see acl(5). */
#ifndef RUNFS_CACHE_ACL_H
#define RUNFS_CACHE_ACL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ACL_ACCESS  "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"

/* Whether an extended attribute of this name is an ACL. */
bool acl_is_name(const char *name);

/* 0 when the kernel would take these bytes as an ACL, -EINVAL, or -EOPNOTSUPP for another
 * version. One without entries is none: setting it removes. The other functions want what this
 * accepts, with entries. */
int acl_check(const void *value, size_t size);
bool acl_is_empty(size_t size);

/* The permission bits that it stands for (the mask's are the group's). True when they say all
 * of it: then the mode alone is kept. */
bool acl_to_mode(const void *value, size_t size, uint32_t *ret_bits);

/* What chmod does to it: owner, mask (else the group) and others get the mode's bits. True when
 * that changed anything. */
bool acl_take_mode(void *value, size_t size, uint32_t mode);

/* A default ACL becomes the access ACL of what is made with *mode, which loses what the ACL
 * does not grant. False when the mode then says all of it. */
bool acl_inherit(void *value, size_t size, uint32_t *mode);
/* The set of extended attributes with an access ACL that agrees with the mode; *ret is NULL
 * when it does already. 0 or -ENOMEM. */
int acl_follow_mode(const char *xattrs, uint32_t mode, char **ret);
/* One that the kernel would take, heap; -ENODATA for anything else: what the store says may
 * come from anybody. */
ssize_t acl_stored(const char *xattrs, const char *name, unsigned char **ret);

#endif
