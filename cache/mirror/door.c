/* Opening a cache directory; see door.h. */
#include "cache/mirror/door.h"

#include "common/buf.h"
#include "common/mem.h"
#include "common/unmapped.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define LINKS_MAX 40 /* as the kernel has it */
/* What every version's "version" begins with. */
#define VERSION_BEGINS "runfs cache "

/* ---- files ---- */

int door_file(int dir_fd, const char *name, int flags)
{
    const int safe = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    struct stat st;
    auto_close int fd = openat(dir_fd, name, (flags & ~O_TRUNC) | safe, 0600);

    if (fd < 0)
        return errno == ELOOP || errno == ENXIO || errno == EISDIR ? -EPERM : -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1)
        return -EPERM;
    if ((flags & O_TRUNC) && ftruncate(fd, 0) < 0)
        return -errno;
    return take_fd(fd);
}

const char *door_why(int err)
{
    if (err == -EPERM)
        return "that is no plain file of this user with this one name: see who put it there, "
               "and "
               "move it away";
    return err == -EFBIG
               ? "it takes more than 8 MiB: have fewer or shorter routes, and policies "
                 "that repeat less"
               : strerror(-err);
}

int door_read_text(int dir_fd, const char *name, char **ret)
{
    auto_close int fd = door_file(dir_fd, name, O_RDONLY);
    auto_buf struct buf b = BUF_INIT(DOOR_TEXT_MAX);
    char chunk[4096];
    ssize_t n;

    if (fd < 0)
        return fd;
    while ((n = read(fd, chunk, sizeof(chunk))) > 0) {
        int r = buf_add(&b, chunk, (size_t)n);
        if (r < 0)
            return r;
    }
    if (n < 0)
        return -errno;
    *ret = buf_take(&b);
    return *ret ? 0 : -ENOMEM;
}

/* Whether it has just this text: then a full disk needs no room for another one. What is left
 * of a text that was not put in place must be ours all the same. */
static bool has_text(int dir_fd, const char *name, const char *temporary, const char *text)
{
    auto_free char *now = NULL;
    auto_close int left = door_file(dir_fd, temporary, O_RDONLY);

    return (left >= 0 || left == -ENOENT) && door_read_text(dir_fd, name, &now) == 0 &&
           strcmp(now, text) == 0;
}

int door_write_text(int dir_fd, const char *name, const char *text)
{
    char temporary[64];
    size_t len = strlen(text);

    if (len > DOOR_TEXT_MAX)
        return -EFBIG;
    (void)snprintf(temporary, sizeof(temporary), "%s.new", name);
    if (has_text(dir_fd, name, temporary, text))
        return fsync(dir_fd) < 0 ? -errno : 0;
    auto_close int fd = door_file(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0)
        return fd;
    ssize_t n = write(fd, text, len);
    if (n < 0 || fsync(fd) < 0)
        return -errno;
    if ((size_t)n != len)
        return -ENOSPC;
    if (renameat(dir_fd, temporary, dir_fd, name) < 0)
        return -errno;
    return fsync(dir_fd) < 0 ? -errno : 0;
}

/* ---- who is trusted ---- */

/* The number of an unmapped root counts as root: of all users behind it nobody else has
 * directories above that others may not write. */
static bool is_trusted(uid_t uid)
{
    return uid == 0 || uid == geteuid() || uid_is_unmapped_root(uid);
}

/* Whether others may make, rename and remove entries there, unless the sticky bit keeps them to
 * their own. */
static bool is_shared(const struct stat *dir)
{
    return dir->st_mode & (geteuid() == 0 ? S_IWOTH | S_IWGRP : S_IWOTH);
}

/* ---- words ---- */

#define USER_MAX 64

static const char *user_name(uid_t uid, char ret[USER_MAX])
{
    char store[1024];
    struct passwd pw, *found = NULL;

    if (getpwuid_r(uid, &pw, store, sizeof(store), &found) == 0 && found)
        (void)snprintf(ret, USER_MAX, "%s", pw.pw_name);
    else
        (void)snprintf(ret, USER_MAX, "user %u", (unsigned)uid);
    return ret;
}

/* The path of the open file; heap. */
static char *path_of(int fd)
{
    char link[64], path[PATH_MAX];

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path));
    return n < 0 || n == sizeof(path) ? NULL : strndup(path, (size_t)n);
}

/* The path as a word of a shell's command line; the user who types it need not be the one who
 * made the path. Heap. */
static char *quoted(const char *path)
{
    struct buf b = BUF_INIT(5 * PATH_MAX);
    int r = buf_addc(&b, '\'');

    for (const char *s = path; r == 0 && *s; s++)
        r = *s == '\'' ? buf_adds(&b, "'\\''") : buf_addc(&b, *s);
    if (r == 0)
        r = buf_addc(&b, '\'');
    char *text = r == 0 ? buf_take(&b) : NULL;
    buf_release(&b);
    return text;
}

/* ---- the way ---- */

struct walk {
    const char *dir; /* as it was named, for messages */
    enum door_way way;
    struct op *op;
    char *rest;     /* of the path; heap */
    int fd;         /* the directory that was reached, O_PATH */
    struct stat st; /* its */
    unsigned links; /* how many symlinks were followed */
};

static int fail_at(struct walk *w, int err, const char *what)
{
    auto_free char *at = path_of(w->fd);

    return op_fail(w->op, err, "cache %s: %s %s", w->dir, at ? at : "a directory above", what);
}

static int fail_errno(struct walk *w, const char *name, int err)
{
    if (w->way == DOOR_CACHE && err == -ENOENT)
        return op_fail(w->op, err, "%s is not a cache directory of runfs", w->dir);
    return op_fail(w->op, err, "cache %s: can't open or make %s: %s", w->dir, name,
                   strerror(-err));
}

/* Checks that nobody else can replace the directory's entries. For anybody but root a
 * replacement would have to be the user's own: so others can only take the cache away, as a
 * container's scratch folder (0777) lets them. */
static int check_holder(struct walk *w)
{
    char name[USER_MAX], text[USER_MAX + 128];

    if (geteuid() != 0)
        return 0;
    if (is_shared(&w->st) && !(w->st.st_mode & S_ISVTX))
        return fail_at(w, -EPERM,
                       "may be written by others, who could put another directory there: set "
                       "its sticky bit (chmod +t), or give another cache_dir");
    if (is_trusted(w->st.st_uid))
        return 0;
    (void)snprintf(
        text, sizeof(text),
        "belongs to %s, who could put another directory there: give a cache_dir that "
        "only root can replace",
        user_name(w->st.st_uid, name));
    return fail_at(w, -EPERM, text);
}

static bool is_last(const struct walk *w)
{
    return w->rest[strspn(w->rest, "/")] == '\0';
}

/* check_owner() looks at the owner of the last directory. */
static int check_entry(struct walk *w, const char *name, const struct stat *st)
{
    char user[USER_MAX];
    bool is_link = S_ISLNK(st->st_mode);

    if (is_trusted(st->st_uid) || (!is_link && (is_last(w) || !is_shared(&w->st))))
        return 0;
    return op_fail(w->op, -EPERM,
                   "cache %s: %s on the way there belongs to %s, who could %s: give another "
                   "cache_dir",
                   w->dir, name, user_name(st->st_uid, user),
                   is_link ? "have it lead elsewhere" : "replace it");
}

/* Takes the next component off the path; "" at its end. */
static int take_name(struct walk *w, char name[NAME_MAX + 1])
{
    const char *start = w->rest + strspn(w->rest, "/");
    size_t len = strcspn(start, "/");

    if (len > NAME_MAX)
        return op_fail(w->op, -ENAMETOOLONG, "cache %s: a name in it is too long", w->dir);
    memcpy(name, start, len);
    name[len] = '\0';
    memmove(w->rest, start + len, strlen(start + len) + 1);
    return 0;
}

/* O_DIRECTORY makes an automounter mount what belongs there. */
static int open_entry(struct walk *w, const char *name)
{
    const int flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(w->fd, name, flags | O_DIRECTORY);

    if (fd < 0 && errno == ENOTDIR)
        fd = openat(w->fd, name, flags);
    if (fd < 0 && errno == ENOENT && w->way == DOOR_MAKE) {
        if (mkdirat(w->fd, name, 0700) < 0 && errno != EEXIST)
            return -errno;
        fd = openat(w->fd, name, flags | O_DIRECTORY);
    }
    return fd < 0 ? -errno : fd;
}

static int enter(struct walk *w, int fd)
{
    if (fstat(fd, &w->st) < 0)
        return -errno;
    if (w->fd >= 0)
        (void)close(w->fd);
    w->fd = fd;
    return 0;
}

static int start_at_root(struct walk *w)
{
    auto_close int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 ? -errno : enter(w, fd);

    if (r == 0)
        fd = -1;
    return r;
}

/* Puts the symlink's target in its place in the path. */
static int follow(struct walk *w, int link_fd)
{
    char target[PATH_MAX];
    char *rest = NULL;
    ssize_t n = readlinkat(link_fd, "", target, sizeof(target) - 1);

    if (n <= 0)
        return n < 0 ? -errno : -ENOENT;
    if (++w->links > LINKS_MAX)
        return -ELOOP;
    target[n] = '\0';
    if (asprintf(&rest, "%s/%s", target, w->rest) < 0)
        return -ENOMEM;
    free(w->rest);
    w->rest = rest;
    return *target == '/' ? start_at_root(w) : 0;
}

static int step(struct walk *w, const char *name)
{
    struct stat st;
    int r = strcmp(name, "..") == 0 ? 0 : check_holder(w);

    if (r < 0)
        return r;
    auto_close int fd = open_entry(w, name);
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail_errno(w, name, fd < 0 ? fd : -errno);
    r = strcmp(name, "..") == 0 ? 0 : check_entry(w, name, &st);
    if (r < 0)
        return r;
    if (S_ISLNK(st.st_mode))
        r = follow(w, fd);
    else
        r = S_ISDIR(st.st_mode) ? enter(w, fd) : -ENOTDIR;
    if (r < 0)
        return fail_errno(w, name, r);
    if (S_ISDIR(st.st_mode))
        fd = -1;
    return 0;
}

static int walk_path(struct walk *w)
{
    char name[NAME_MAX + 1];
    int r = start_at_root(w);

    if (r < 0)
        return fail_errno(w, "/", r);
    while ((r = take_name(w, name)) == 0 && *name)
        if (strcmp(name, ".") != 0 && (r = step(w, name)) < 0)
            break;
    return r;
}

/* ---- the directory ---- */

static int check_owner(struct walk *w)
{
    auto_free char *at = path_of(w->fd);
    auto_free char *word = quoted(at ? at : w->dir);
    char owner[USER_MAX], me[USER_MAX], as[2 * USER_MAX + 64];
    struct stat st;

    if (w->st.st_uid == geteuid())
        return 0;
    user_name(w->st.st_uid, owner);
    if (geteuid() != 0 || fstatat(w->fd, "version", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return op_fail(w->op, -EPERM,
                       "%s belongs to %s: a cache belongs to who mounts, here %s; give another "
                       "cache_dir",
                       w->dir, owner, user_name(geteuid(), me));
    (void)snprintf(as, sizeof(as), "runuser -u %s --", owner);
    if (strchr(owner, ' ')) /* the owner has a number only */
        (void)snprintf(as, sizeof(as), "setpriv --reuid %u --regid %u --clear-groups",
                       (unsigned)w->st.st_uid, (unsigned)w->st.st_gid);
    return op_fail(w->op, -EPERM,
                   "cache %s belongs to %s, and root does not act on what others wrote: run "
                   "'%s runfs recover %s', or give another cache_dir",
                   w->dir, owner, as, word ? word : "");
}

static bool begins_as_version(const char *text)
{
    return strncmp(text, VERSION_BEGINS, strlen(VERSION_BEGINS)) == 0;
}

/* Whether the name is one that a new filesystem has, or that a mount leaves which ended before
 * it had a version. */
static bool is_no_content(const char *name)
{
    static const char *const names[] = {".",           "..",        "lost+found", "lock",
                                        "version.new", "runfs.log", "runfs.log.1"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* 1 when the directory holds something else, whose name is returned. */
static int has_content(int dir_fd, char ret_name[NAME_MAX + 1])
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;
    int found = 0;

    if (!d) {
        int err = -errno;
        if (fd >= 0)
            (void)close(fd);
        return err;
    }
    errno = 0;
    while (!found && (e = readdir(d))) {
        found = !is_no_content(e->d_name);
        (void)snprintf(ret_name, NAME_MAX + 1, "%s", e->d_name);
    }
    found = found ? 1 : -errno;
    (void)closedir(d);
    return found;
}

static int check_content(struct walk *w, int fd)
{
    auto_free char *version = NULL;
    char name[NAME_MAX + 1];
    int r = door_read_text(fd, "version", &version);

    if (r == 0 && begins_as_version(version))
        return 0;
    if (r < 0 && r != -ENOENT)
        return op_fail(w->op, r, "cache %s: version: %s", w->dir, door_why(r));
    if (w->way == DOOR_CACHE)
        return op_fail(w->op, -ENOENT, "%s is not a cache directory of runfs", w->dir);
    r = has_content(fd, name);
    if (r > 0)
        return op_fail(w->op, -ENOTEMPTY,
                       "%s holds other things (%s), and is no cache of runfs: give a directory "
                       "of its own, as cache_dir=%s%srunfs",
                       w->dir, name, w->dir, w->dir[strlen(w->dir) - 1] == '/' ? "" : "/");
    return r < 0 ? fail_errno(w, ".", r) : 0;
}

/* The walk has come to the directory itself. */
static int open_reached(struct walk *w, int *ret_fd, char **ret_path)
{
    int r = check_owner(w);

    if (r < 0)
        return r;
    auto_close int fd = openat(w->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(w, ".", -errno);
    r = check_content(w, fd);
    if (r < 0)
        return r;
    auto_free char *path = ret_path ? path_of(fd) : NULL;
    if (ret_path && !path)
        return op_fail(w->op, -ENAMETOOLONG, "cache %s: where it is can't be told", w->dir);
    if (ret_path)
        *ret_path = take_ptr(path);
    *ret_fd = take_fd(fd);
    return 0;
}

/* The path from "/" on; heap. */
static char *whole_path(const char *dir)
{
    auto_free char *here = *dir == '/' ? strdup("") : getcwd(NULL, 0);
    char *path = NULL;

    return here && asprintf(&path, "%s/%s", here, dir) >= 0 ? path : NULL;
}

int door_open(const char *dir, enum door_way way, struct op *op, int *ret_fd, char **ret_path)
{
    struct walk w = {.dir = dir, .way = way, .op = op, .fd = -1, .rest = whole_path(dir)};
    int r = !w.rest ? op_fail(op, -ENOMEM, "cache %s: no path leads to it", dir)
            : *dir  ? walk_path(&w)
                    : op_fail(op, -EINVAL, "cache_dir is empty");

    if (r == 0)
        r = open_reached(&w, ret_fd, ret_path);
    if (w.fd >= 0)
        (void)close(w.fd);
    free(w.rest);
    return r;
}
