/* The extended attributes of a node as the store keeps them: a JSON object, name to base64 of
 * the value (s3fs's form). Pure functions over the text, which may be NULL (none) and may come
 * from anybody: what is damaged counts as none. */
#ifndef RUNFS_CACHE_XATTR_SET_H
#define RUNFS_CACHE_XATTR_SET_H

#include <stddef.h>
#include <sys/types.h>

/* The value, heap, and its length; -ENODATA, -EIO when it is no base64, -ENOMEM. */
ssize_t xattr_set_get(const char *json, const char *name, unsigned char **ret);

/* The set with one attribute added, replaced, or (value NULL) removed. *ret is heap, NULL when
 * nothing is left. flags: XATTR_CREATE, XATTR_REPLACE. -EEXIST, -ENODATA, -ENOMEM. */
int xattr_set_edit(const char *json, const char *name, const void *value, size_t size,
                   int flags, char **ret);

/* Visits the names; a non-zero answer ends it and is returned. */
int xattr_set_each(const char *json, int (*visit)(void *arg, const char *name), void *arg);

#endif
