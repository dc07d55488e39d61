/* Who may write a file; see aws_owner.h. */
#include "backends/auth/aws_owner.h"

#include "common/unmapped.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

/* A group of just the owner's, as Debian and Fedora give one to each user: there the umask lets
 * it write, and nobody else is in it. */
static bool is_owners_alone(int fd, const struct stat *st)
{
    char names[2][4096];
    struct passwd user, *u = NULL;
    struct group group, *g = NULL;

    if (getpwuid_r(st->st_uid, &user, names[0], sizeof(names[0]), &u) || !u ||
        getgrgid_r(st->st_gid, &group, names[1], sizeof(names[1]), &g) || !g)
        return false;
    /* With an ACL those are the bits of all whom it names. */
    if (fgetxattr(fd, "system.posix_acl_access", NULL, 0) >= 0)
        return false;
    if (u->pw_gid != st->st_gid || strcmp(u->pw_name, g->gr_name) != 0)
        return false;
    for (char **member = g->gr_mem; *member; member++)
        if (strcmp(*member, u->pw_name) != 0)
            return false;
    return true;
}

int aws_owner_check(int fd, const struct stat *st)
{
    bool known = st->st_uid == geteuid() || st->st_uid == 0;

    if (!known && !uid_is_unmapped_root(st->st_uid))
        return -EPERM;
    /* Groups without a number look alike, too: the owner's own, and any other. */
    if ((st->st_mode & S_IWOTH) ||
        ((st->st_mode & S_IWGRP) && !(known && is_owners_alone(fd, st))))
        return -EACCES;
    return 0;
}
