/* The mirror on the disk: directories, files and their places, reached only beneath the cache
 * directory and through no symlink. Paths are keys ("a/b/c", "" is the root). No locking: the
 * caller's namespace lock keeps paths still. All return 0 (or a descriptor) or a negative
 * errno. */
#ifndef RUNFS_CACHE_MIRROR_H
#define RUNFS_CACHE_MIRROR_H

#include "cache/mirror/door.h"
#include "common/op.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

struct mirror {
    char *dir;          /* the cache directory's path, for messages */
    int lock_fd;        /* see lock.c */
    int root_fd;        /* the cache directory */
    int tree_fd;        /* mirror/ */
    int incoming_fd;    /* incoming/ */
    int orphans_fd;     /* orphans/ */
    int kept_fd;        /* kept/ */
    bool mtime_trusted; /* a store through a mapping moves mtime even after a sync */
    int64_t tick_ns;  /* the step of its filesystem's timestamps: 1, or as coarse as a second */
    bool rebooted;    /* the boot id differs from the last mount's */
    bool older;       /* left by a version that noted neither place nor debts; or new */
    bool copied;      /* the directory is not the one that the last mount had */
    bool stampless;   /* and its extended attributes did not come along */
    int64_t ended_ns; /* CLOCK_REALTIME of the last mount's clean end, as the filesystem
                         counts; what was not changed since is on the disk; 0: killed */
    atomic_bool refused; /* a change got EROFS */
};

/* Opens the directory as door_open() does, locks it, checks version and filesystem. Waits up to
 * three seconds for who only looks at it; a mount (DOOR_MAKE) holds it. op->why names the path
 * and what to do: -EBUSY in use, -EOPNOTSUPP no xattrs, -EPROTO another version. */
int mirror_open(const char *dir, enum door_way way, struct op *op, struct mirror *ret);
/* Shows others that it is of no use to wait for this one. */
void mirror_hold(struct mirror *m);
/* Closes what mirror_open() opened, and gives its lock back. */
void mirror_close(struct mirror *m);
/* The mtime that a file of the mirror shows after it was given this one. */
int64_t mirror_time(const struct mirror *m, int64_t mtime_ns);
/* Whether a file can change again and again with one mtime: that proves nothing then, not even
 * long after. */
bool mirror_times_coarse(const struct mirror *m);
/* Notes the boot id of now, durably, once recovery has drawn its consequences: the end of the
 * last mount counts no more. */
int mirror_note_boot(struct mirror *m);
/* What a user is told when a note of the directory can't be written for `err`: `what` names it.
 * Returns err. */
int mirror_note_failed(const struct mirror *m, struct op *op, int err, const char *what);
/* Syncs all that is in the cache directory, and notes that: a clean end. Blocks for the disk,
 * and until its clock has moved on, so that a later change shows. */
int mirror_note_end(struct mirror *m);
/* Waits until all that is in the cache directory is on the disk. */
int mirror_sync(struct mirror *m);
/* Empties incoming/ and orphans/; a directory there that is not empty goes to kept/. */
int mirror_clean(struct mirror *m);

/* Reads a small text file in the cache directory; -ENOENT; the text is heap. */
int mirror_read_text(struct mirror *m, const char *name, char **ret);
/* Replaces a text file atomically and durably. */
int mirror_write_text(struct mirror *m, const char *name, const char *text);

/* Opens a file or directory of the tree. */
int mirror_open_path(struct mirror *m, const char *path, int flags);
/* Creates a file that must not exist, parents included. */
int mirror_create(struct mirror *m, const char *path);
/* Creates a file in incoming/, removed at the next mount unless mirror_link_in() moved it. */
int mirror_create_incoming(struct mirror *m, uint64_t id);
/* The same for a directory, opened for reading. */
int mirror_mkdir_incoming(struct mirror *m, uint64_t id);
/* Moves what is in incoming/ to its path, where nothing may be; makes the parents. */
int mirror_link_in(struct mirror *m, uint64_t id, const char *path);
/* Removes the file, or the empty directory, in incoming/. */
int mirror_remove_incoming(struct mirror *m, uint64_t id);
/* Creates a file without a name. */
int mirror_tmpfile(struct mirror *m);
/* Gives an open file a (further) name; it must not exist. */
int mirror_link_fd(struct mirror *m, int fd, const char *path);
/* Makes a directory and its parents; one that is there already is a success. */
int mirror_mkdirs(struct mirror *m, const char *path);
/* flags as renameat2(2); the target's parents are made. */
int mirror_rename(struct mirror *m, const char *from, const char *to, unsigned flags);
/* Takes a name away: the file lives on as orphans/<id> until mirror_drop_orphan(). With
 * `name_stays` another file is about to take the name, and it is left for that. */
int mirror_orphan(struct mirror *m, const char *path, uint64_t id, bool name_stays);
/* Removes an orphan. 0 also when there is none. */
int mirror_drop_orphan(struct mirror *m, uint64_t id);
/* Opens an orphan. */
int mirror_open_orphan(struct mirror *m, uint64_t id, int flags);
/* Removes a file of the tree. */
int mirror_unlink(struct mirror *m, const char *path);
/* Removes an empty directory of the tree. */
int mirror_rmdir(struct mirror *m, const char *path);
/* Moves a dirty file aside to kept/<path>; each part of the path gets a .n, and is cut to make
 * room for it, where an earlier file is in the way. */
int mirror_keep(struct mirror *m, const char *path);
/* Gives an open file, of mirror_tmpfile(), such a name in kept/. */
int mirror_keep_fd(struct mirror *m, int fd, const char *path);
/* statvfs(3) of the cache directory's filesystem. */
int mirror_statvfs(struct mirror *m, struct statvfs *ret);
/* Notes an EROFS among the results of changes; returns r. ext4 does not tell in statvfs() that
 * it has turned read-only after an error. */
int mirror_note(struct mirror *m, int r);
/* Whether the filesystem takes no changes; asks it again when it was so. */
bool mirror_read_only(struct mirror *m);
/* Whether somebody removed the directory below us. Missing files are -EIO then, not -ENOENT. */
bool mirror_removed(struct mirror *m);

/* Visits every file and directory below `root_fd` (tree_fd or kept_fd), parents first. `fd` is
 * open for the visit (O_RDONLY). A non-zero answer ends the walk and is returned. */
int mirror_walk(int root_fd,
                int (*visit)(void *arg, const char *path, int fd, const struct stat *st),
                void *arg);

#endif
