/* What is mounted where, as /proc/self/mountinfo tells: without touching the mounts, which may
 * be dead or slow. Any thread. */
#ifndef RUNFS_CLI_MOUNTINFO_H
#define RUNFS_CLI_MOUNTINFO_H

#include <stdbool.h>
#include <sys/mount.h>
#include <sys/types.h>

#ifndef MS_NOSYMFOLLOW
#define MS_NOSYMFOLLOW 256 /* glibc has it since 2.36 */
#endif

#define RUNFS_FSTYPE "fuse.runfs"

struct mountinfo {
    int id;
    dev_t dev;
    char *root;  /* the directory of the filesystem that stands at the mountpoint */
    char *point; /* absolute path of the mountpoint */
    char *type;
    char *source;
    unsigned long flags; /* MS_RDONLY and its like, of mount(2) */
    uid_t owner; /* user_id= of a FUSE mount, as the kernel says: who serves it; else -1 */
};

void mountinfo_release(struct mountinfo *m);

/* The mount with this id. 0, -ENOENT, or another negative errno. */
int mountinfo_by_id(int id, struct mountinfo *ret);
/* The topmost mount at exactly this absolute path. */
int mountinfo_by_path(const char *path, struct mountinfo *ret);
/* A mount of the device that shows the filesystem's own root. */
int mountinfo_by_dev(dev_t dev, struct mountinfo *ret);

/* Visits the mounts, each valid during its visit, until one returns another value than 0, which
 * is returned. Or a negative errno. */
int mountinfo_each(int (*visit)(void *arg, const struct mountinfo *m), void *arg);

/* The id of the mount that an open (O_PATH is enough) descriptor is on, or a negative errno. */
int mountinfo_id_of_fd(int fd);
/* The same of a path, of what a symlink at its end leads to only with `follow`. Before
 * Linux 5.8 it opens what is there for a moment; else nobody becomes a user of the mount by it.
 */
int mountinfo_id_of_path(const char *path, bool follow);

bool mountinfo_is_runfs(const struct mountinfo *m);

#endif
