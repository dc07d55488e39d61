/* The door of a cache directory: the one way in. What is read there is believed, and what is
 * written there is written with the rights of the mount's user: so nobody else may have put it
 * there, or put another directory in its place. Any thread. */
#ifndef RUNFS_CACHE_DOOR_H
#define RUNFS_CACHE_DOOR_H

#include "common/op.h"

/* Bytes of a text file. More than what a mount writes of its stores and routes, unless policies
 * that extend each other repeat texts of hundreds of KiB. */
#define DOOR_TEXT_MAX (8 << 20)

enum door_way {
    DOOR_MAKE,  /* makes it where it is missing; an empty directory becomes a cache, too */
    DOOR_CACHE, /* it must be a cache: -ENOENT */
};

/* Opens a cache directory, and changes nothing in one that is there. It must belong to the
 * caller (geteuid(); -EPERM), and be empty or a cache already (-ENOTEMPTY). On the way there
 *  - a symlink is followed if it belongs to root or the caller;
 *  - what is taken in a directory that all may write belongs to root or the caller;
 *  - for root each directory belongs to root, one that others or a group may write has the
 *    sticky bit, and what holds for all holds for a group, too.
 * A user who may write a directory above, and so take another user's cache away, can put none
 * but that user's own in its place. op->why says what to do. *ret_path (may be NULL) is where
 * it is, without symlinks; heap. */
int door_open(const char *dir, enum door_way way, struct op *op, int *ret_fd, char **ret_path);

/* Opens or creates (0600) a file of the directory. -EPERM for what is no regular file of the
 * caller's with this one name: a symlink or another name of a file would lead out of it. */
int door_file(int dir_fd, const char *name, int flags);
/* strerror() for what door_file() and those below return. */
const char *door_why(int err);

/* Reads a text file; -ENOENT; -EFBIG above DOOR_TEXT_MAX; the text is heap. */
int door_read_text(int dir_fd, const char *name, char **ret);
/* Replaces a text file atomically and durably. -EFBIG for what could not be read back. */
int door_write_text(int dir_fd, const char *name, const char *text);

#endif
