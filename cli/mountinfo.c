/* /proc/self/mountinfo, one line a mount:
 * "36 35 98:0 /root /mount/point rw,noatime master:1 - ext3 /dev/root rw". */
#include "cli/mountinfo.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

struct wanted {
    int id;           /* or -1 */
    const char *path; /* or NULL */
    dev_t dev;        /* when neither of them */
};

/* Resolves the kernel's "\040" octal escapes in place. */
static void unescape(char *s)
{
    char *to = s;

    for (; *s; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
            s[3] >= '0' && s[3] <= '7') {
            *to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 3;
        } else {
            *to++ = *s;
        }
    }
    *to = '\0';
}

static bool matches(const struct wanted *w, const struct mountinfo *m)
{
    if (w->id >= 0)
        return m->id == w->id;
    if (w->path)
        return strcmp(m->point, w->path) == 0;
    return m->dev == w->dev && strcmp(m->root, "/") == 0;
}

/* Of "rw,user_id=1000,group_id=1000": the filesystem's options, which end the line; the store's
 * name is not among them. -1 when they name no user. */
static uid_t owner_of(const char *options)
{
    static const char name[] = "user_id=";

    while (options && strncmp(options, name, strlen(name)) != 0) {
        options = strchr(options, ',');
        options += options != NULL;
    }
    return options ? (uid_t)strtoul(options + strlen(name), NULL, 10) : (uid_t)-1;
}

/* Of "ro,nosuid,nodev". */
static unsigned long flags_of(const char *options)
{
    static const struct {
        const char *name;
        unsigned long flag;
    } known[] = {{"ro", MS_RDONLY},
                 {"nosuid", MS_NOSUID},
                 {"nodev", MS_NODEV},
                 {"noexec", MS_NOEXEC},
                 {"sync", MS_SYNCHRONOUS},
                 {"dirsync", MS_DIRSYNC},
                 {"nosymfollow", MS_NOSYMFOLLOW}};
    unsigned long flags = 0;

    while (options && *options) {
        size_t len = strcspn(options, ",");

        for (size_t i = 0; i < ARRAY_SIZE(known); i++)
            if (strlen(known[i].name) == len && memcmp(options, known[i].name, len) == 0)
                flags |= known[i].flag;
        options += len + (options[len] == ',');
    }
    return flags;
}

/* Fills *m with pointers into the line. */
static bool parse_line(char *line, struct mountinfo *m)
{
    char *rest = strstr(line, " - ");
    unsigned maj, min;
    char *save, *options;
    int used;

    if (!rest || sscanf(line, "%d %*d %u:%u %n", &m->id, &maj, &min, &used) != 3)
        return false;
    *rest = '\0';
    m->dev = makedev(maj, min);
    m->root = strtok_r(line + used, " ", &save);
    m->point = strtok_r(NULL, " ", &save);
    m->flags = flags_of(m->point ? strtok_r(NULL, " ", &save) : NULL);
    /* The source may be empty: it must not shift what comes after it. */
    rest += 3;
    m->type = strsep(&rest, " ");
    m->source = strsep(&rest, " ");
    options = strsep(&rest, "\n");
    m->owner = owner_of(options);
    m->flags |= flags_of(options);
    if (!m->root || !m->point || !m->type || !m->source)
        return false;
    unescape(m->root);
    unescape(m->point);
    unescape(m->source);
    return true;
}

static int copy_info(const struct mountinfo *from, struct mountinfo *to)
{
    *to = *from;
    to->root = strdup(from->root);
    to->point = strdup(from->point);
    to->type = strdup(from->type);
    to->source = strdup(from->source);
    if (to->root && to->point && to->type && to->source)
        return 0;
    mountinfo_release(to);
    return -ENOMEM;
}

/* The last match, which is the topmost mount of a path. */
static int find(const struct wanted *w, struct mountinfo *ret)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    struct mountinfo line_info, found = {0};
    auto_free char *line = NULL;
    size_t size = 0;
    int err = -ENOENT;

    if (!file)
        return -errno;
    while (err != -ENOMEM && getline(&line, &size, file) > 0) {
        if (!parse_line(line, &line_info) || !matches(w, &line_info))
            continue;
        mountinfo_release(&found);
        err = copy_info(&line_info, &found);
    }
    (void)fclose(file);
    if (!err)
        *ret = found;
    return err;
}

int mountinfo_each(int (*visit)(void *arg, const struct mountinfo *m), void *arg)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    auto_free char *line = NULL;
    struct mountinfo m;
    size_t size = 0;
    int r = 0;

    if (!file)
        return -errno;
    while (r == 0 && getline(&line, &size, file) > 0)
        if (parse_line(line, &m))
            r = visit(arg, &m);
    (void)fclose(file);
    return r;
}

void mountinfo_release(struct mountinfo *m)
{
    free(m->root);
    free(m->point);
    free(m->type);
    free(m->source);
    *m = (struct mountinfo){0};
}

int mountinfo_by_id(int id, struct mountinfo *ret)
{
    return find(&(struct wanted){.id = id}, ret);
}

int mountinfo_by_path(const char *path, struct mountinfo *ret)
{
    return find(&(struct wanted){.id = -1, .path = path}, ret);
}

int mountinfo_by_dev(dev_t dev, struct mountinfo *ret)
{
    return find(&(struct wanted){.id = -1, .dev = dev}, ret);
}

int mountinfo_id_of_fd(int fd)
{
    auto_free char *line = NULL;
    char path[64];
    size_t size = 0;
    int id = -ENOENT;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    file = fopen(path, "re");
    if (!file)
        return -errno;
    while (id == -ENOENT && getline(&line, &size, file) > 0) {
        int value;

        if (sscanf(line, "mnt_id: %d", &value) == 1)
            id = value;
    }
    (void)fclose(file);
    return id;
}

/* Without attributes, which a mount of another user's does not tell even root. */
int mountinfo_id_of_path(const char *path, bool follow)
{
    int flags = AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC | (follow ? 0 : AT_SYMLINK_NOFOLLOW);
    struct statx st;

    if (statx(AT_FDCWD, path, flags, 0, &st) < 0)
        return -errno;
    if (st.stx_mask & STATX_MNT_ID)
        return (int)st.stx_mnt_id;
    auto_close int fd = open(path, O_PATH | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
    return fd < 0 ? -errno : mountinfo_id_of_fd(fd);
}

bool mountinfo_is_runfs(const struct mountinfo *m)
{
    return strcmp(m->type, RUNFS_FSTYPE) == 0;
}
