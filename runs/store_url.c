/* URLs of stores: Hadoop's rule for paths without a scheme, and a search for secrets. */
#include "runs/store_url.h"

#include "common/mem.h"
#include "runs/config_impl.h"

#include <ctype.h>
#include <pwd.h>
#include <stdio.h>
#include <strings.h>

#define PASSWD_MAX 16384

/* ---- what completes a path ---- */

/* As Hadoop: the variable wins. */
static int find_user(char **ret)
{
    const char *name = getenv("HADOOP_USER_NAME");
    auto_free char *room = malloc(PASSWD_MAX);
    struct passwd entry, *found = NULL;

    if (!room)
        return -ENOMEM;
    if (!name || !*name) {
        (void)getpwuid_r(geteuid(), &entry, room, PASSWD_MAX, &found);
        name = found ? found->pw_name : getenv("USER");
    }
    if (!name || !*name)
        return 0;
    *ret = strdup(name);
    return *ret ? 0 : -ENOMEM;
}

void url_base_release(struct url_base *b)
{
    free(b->fs);
    free(b->user);
    free(b->folder);
    *b = (struct url_base){0};
}

int url_base_set(struct url_base *b, const char *fs, const char **ret_why)
{
    size_t scheme = url_scheme_len(fs), len = strlen(fs);

    if (strcmp(fs, "hadoop") == 0) {
        *ret_why = "\"default_fs\": \"hadoop\" is not built yet; write the URL that "
                   "fs.defaultFS has";
        return -EINVAL;
    }
    if (scheme == 0 || strncmp(fs + scheme, "://", 3) != 0) {
        *ret_why = "\"default_fs\" must be a URL such as hdfs://host:8020 or file:///";
        return -EINVAL;
    }
    while (len > scheme + 3 && fs[len - 1] == '/')
        len--;
    if (memchr(fs + scheme + 3, '/', len - scheme - 3)) {
        *ret_why = "\"default_fs\" names a filesystem, so it has no path behind the host";
        return -EINVAL;
    }
    b->fs = strndup(fs, len);
    return b->fs ? 0 : -ENOMEM;
}

static bool is_folders(const char *fs)
{
    return strcmp(fs, "file://") == 0;
}

static int resolve_relative(struct url_base *b, const char *path, struct buf *to,
                            const char **ret_why)
{
    if (is_folders(b->fs) && !b->folder)
        b->folder = getcwd(NULL, 0);
    if (!is_folders(b->fs) && !b->user && find_user(&b->user))
        return -ENOMEM;
    if (is_folders(b->fs) && b->folder)
        return buf_addf(to, "%s%s%s%s", b->fs, b->folder, b->folder[1] ? "/" : "", path);
    if (!is_folders(b->fs) && b->user)
        return buf_addf(to, "%s/user/%s/%s", b->fs, b->user, path);
    *ret_why = "a relative path needs a user's name or a working directory, and there is none; "
               "write a path that begins with \"/\"";
    return -EINVAL;
}

static int resolve_path(struct url_base *b, const char *path, struct buf *to,
                        const char **ret_why)
{
    if (b->fs)
        return *path == '/' ? buf_addf(to, "%s%s", b->fs, path)
                            : resolve_relative(b, path, to, ret_why);
    if (*path == '/')
        return buf_adds(to, path);
    *ret_why = "the URL has neither a scheme nor a \"/\" at its start; a relative path needs "
               "\"default_fs\"";
    return -EINVAL;
}

int url_resolve(struct url_base *b, const char *url, bool host_given, char **ret,
                const char **ret_why)
{
    auto_buf struct buf to = BUF_INIT(CONFIG_TEXT_MAX);
    size_t scheme = url_scheme_len(url);
    bool hostless = scheme && strncmp(url + scheme, ":///", 4) == 0;
    int err;

    if (!scheme)
        err = resolve_path(b, url, &to, ret_why);
    else if (hostless && !host_given && b->fs && strncasecmp(b->fs, url, scheme + 3) == 0)
        err = buf_addf(&to, "%s%s", b->fs, url + scheme + 3);
    else
        err = buf_adds(&to, url);
    if (err == -EFBIG) {
        *ret_why = "the URL is too long";
        return -EINVAL;
    }
    if (err)
        return err;
    *ret = buf_take(&to);
    return *ret ? 0 : -ENOMEM;
}

size_t url_scheme_len(const char *url)
{
    size_t len = 0;

    if (!isalpha((unsigned char)*url))
        return 0;
    while (isalnum((unsigned char)url[len]) || (url[len] && strchr("+-.", url[len])))
        len++;
    return url[len] == ':' ? len : 0;
}

/* ---- secrets ---- */

/* A user's name is none, and where a container or a login stands before the "@" it is needed.
 */
static bool user_is_usual(const char *url, size_t scheme)
{
    static const char *const schemes[] = {"abfs", "abfss", "wasb", "wasbs", "sftp", "ssh"};

    for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
        if (strlen(schemes[i]) == scheme && strncasecmp(url, schemes[i], scheme) == 0)
            return true;
    return false;
}

/* A password may hold "/", "?" and "@": when what follows the first ":" is no port, an "@"
 * anywhere behind it ends one. */
static bool has_user(const char *url, size_t scheme)
{
    const char *from = url + scheme + 3;
    size_t host = strcspn(from, "/?#");
    const char *colon = memchr(from, ':', host);
    const char *at = memchr(from, '@', host);

    if (at)
        return (colon && colon < at) || !user_is_usual(url, scheme);
    return colon && *from != '[' &&
           colon + 1 + strspn(colon + 1, "0123456789") != from + host && strchr(colon, '@');
}

static bool query_has_secret(const char *url)
{
    const char *at = url + strcspn(url, "?#");

    while (*at) {
        size_t len = strcspn(++at, "&#");
        const char *equals = memchr(at, '=', len);
        auto_free char *name = equals ? strndup(at, (size_t)(equals - at)) : NULL;

        if (name && config_name_secret(name))
            return true;
        at += len;
    }
    return false;
}

bool url_has_secret(const char *url)
{
    size_t scheme = url_scheme_len(url);

    /* A folder's name may have any byte. */
    if (scheme == 0 || strncmp(url + scheme, "://", 3) != 0 ||
        (scheme == 4 && strncasecmp(url, "file", 4) == 0))
        return false;
    return has_user(url, scheme) || query_has_secret(url);
}
