/* Finding a cache directory by what was mounted. */
#include "cli/caches.h"

#include "cli/configured.h"
#include "cli/mountpoint.h"
#include "common/buf.h"
#include "common/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYSTEM_HOME  "/var/cache/runfs" /* root's, and systemd's */
#define IDENTITY_MAX (1024 * 1024)      /* as a configuration */

/* A cache that another user made is not read: its text could say anything. */
static int open_own_dir(int at, const char *name)
{
    auto_close int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    return fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() ? take_fd(fd) : -1;
}

/* Heap; NULL: it has none. */
static char *read_identity(int dir_fd)
{
    auto_close int fd =
        openat(dir_fd, "identity", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    auto_free char *text = malloc(IDENTITY_MAX);
    ssize_t n = fd >= 0 && text ? read(fd, text, IDENTITY_MAX - 1) : -1;

    if (n <= 0)
        return NULL;
    text[n] = '\0';
    return take_ptr(text);
}

struct search {
    int (*visit)(void *arg, const struct cache_place *p);
    void *arg;
};

static int visit_one(const struct search *s, int home_fd, const char *home, const char *name)
{
    auto_close int dir_fd = open_own_dir(home_fd, name);
    auto_free char *identity = dir_fd >= 0 ? read_identity(dir_fd) : NULL;
    auto_free char *dir = NULL;
    struct identity parsed;
    struct op op;
    int r = -ENOMEM;

    op_init(&op, OP_FOREVER);
    if (!identity || identity_parse(identity, &op, &parsed))
        return 0;
    if (asprintf(&dir, "%s/%s", home, name) < 0)
        dir = NULL;
    if (dir)
        r = s->visit(
            s->arg, &(struct cache_place){.dir = dir, .identity = identity, .parsed = &parsed});
    identity_release(&parsed);
    return r;
}

static int visit_home(const struct search *s, const char *home)
{
    DIR *dir = opendir(home);
    struct dirent *entry;
    int r = 0;

    while (dir && r == 0 && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            r = visit_one(s, dirfd(dir), home, entry->d_name);
    if (dir)
        (void)closedir(dir);
    return r;
}

int caches_each(int (*visit)(void *arg, const struct cache_place *p), void *arg)
{
    const struct search search = {visit, arg};
    auto_free char *home = identity_cache_home();
    int r = home ? visit_home(&search, home) : 0;

    if (r == 0 && (!home || strcmp(home, SYSTEM_HOME) != 0))
        r = visit_home(&search, SYSTEM_HOME);
    return r;
}

char *caches_store_url(const char *name)
{
    bool is_url = strstr(name, "://") != NULL;
    bool is_file = strncmp(name, "file://", 7) == 0;
    auto_free char *real =
        is_url && !is_file ? NULL : realpath(is_file ? name + 7 : name, NULL);
    char *url = NULL;

    if (!is_url && strncmp(name, IDENTITY_TITLE, strlen(IDENTITY_TITLE)) == 0)
        return strdup(name);
    if (!is_url || is_file)
        return real && asprintf(&url, "file://%s", real) >= 0 ? url : NULL;
    url = strdup(name);
    for (size_t end = url ? strlen(url) : 0; end > 0 && url[end - 1] == '/';)
        url[--end] = '\0';
    return url;
}

/* ---- what a name means ---- */

struct meaning {
    const char *mountpoint; /* absolute; or NULL */
    const char *url;        /* or NULL */
    struct buf dirs;        /* those found, with ", " between them */
    unsigned n;
};

/* The name of a default directory is made of both, so it proves the mountpoint. */
static bool is_default_dir(const struct cache_place *p, const char *mountpoint)
{
    auto_free char *dir = identity_default_dir(p->identity, mountpoint);

    return dir && strcmp(dir, p->dir) == 0;
}

static bool has_store(const struct identity *identity, const char *url)
{
    for (size_t i = 0; i < identity->n; i++)
        if (strcmp(identity->stores[i].url, url) == 0)
            return true;
    return strcmp(identity->title, url) == 0;
}

static int add_meant(void *arg, const struct cache_place *p)
{
    struct meaning *m = arg;

    if (!(m->url && has_store(p->parsed, m->url)) &&
        !(m->mountpoint && is_default_dir(p, m->mountpoint)))
        return 0;
    return buf_addf(&m->dirs, "%s%s", m->n++ ? ", " : "", p->dir);
}

static int find_meant(struct meaning *m, const char *name, struct op *op, char **ret)
{
    int err = caches_each(add_meant, m);

    if (err)
        return op_fail(op, err, "%s: its cache can't be looked for: %s", name, strerror(-err));
    if (m->n > 1)
        return op_fail(op, -ENOTUNIQ, "%s has %u caches, name one of them: %s", name, m->n,
                       m->dirs.data);
    *ret = strdup(m->n ? m->dirs.data : name);
    return *ret ? 0 : op_fail(op, -ENOMEM, "out of memory");
}

static bool is_cache(const char *name)
{
    auto_free char *mark = NULL;

    if (asprintf(&mark, "%s/version", name) < 0) {
        mark = NULL;
        return false;
    }
    return access(mark, F_OK) == 0;
}

int caches_find(const char *name, struct op *op, char **ret)
{
    auto_free char *url = NULL;
    auto_free char *abs = NULL;
    struct meaning m = {.dirs = BUF_INIT(65536)};

    if (is_cache(name)) {
        *ret = strdup(name);
        return *ret ? 0 : op_fail(op, -ENOMEM, "out of memory");
    }
    if (configured_is_file(name)) /* it may be mounted many times, and once it was another */
        return op_fail(op, -EINVAL,
                       "%s is a configuration: name a mountpoint, a store or a cache directory",
                       name);
    url = caches_store_url(name);
    if (!strstr(name, "://") && mountpoint_resolve(name, &abs))
        abs = NULL;
    m.url = url;
    m.mountpoint = abs;
    int err = find_meant(&m, name, op, ret);
    buf_release(&m.dirs);
    return err;
}
