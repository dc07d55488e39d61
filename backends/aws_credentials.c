/* Keys and settings from the environment and AWS's profile files. The files are read into a
 * flat list of (section, name, value); nested settings ("s3 =" and indented lines below it)
 * become "s3.name". */
#include "backends/aws_credentials.h"

#include "common/buf.h"
#include "common/mem.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define FILE_MAX_BYTES (1024 * 1024)

/* One setting of a profile file; the texts point into the file's memory. */
struct item {
    const char *section;
    const char *parent; /* "s3" of "s3 =\n  name = value"; NULL at the top */
    const char *name;
    const char *value;
};

struct ini {
    char *path;
    char *text;
    size_t text_len;
    struct item *items;
    size_t n_items;
    bool exists;
};

static void ini_release(struct ini *ini)
{
    if (ini->text)
        OPENSSL_cleanse(ini->text, ini->text_len);
    free(ini->text);
    free(ini->items);
    free(ini->path);
    *ini = (struct ini){0};
}

static char *trim(char *s)
{
    char *end;

    while (isspace((unsigned char)*s))
        s++;
    end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return s;
}

static int ini_add(struct ini *ini, struct item item)
{
    struct item *items = reallocarray(ini->items, ini->n_items + 1, sizeof(*items));

    if (!items)
        return -ENOMEM;
    ini->items = items;
    ini->items[ini->n_items++] = item;
    return 0;
}

/* "[profile x]" and "[x]" are both section "x"; other words ("services x") stay. */
static const char *section_name(char *line)
{
    char *end = strchr(line, ']');

    if (end)
        *end = '\0';
    line = trim(line + 1);
    if (strncmp(line, "profile", 7) == 0 && isspace((unsigned char)line[7]))
        line = trim(line + 7);
    return line;
}

static int ini_parse(struct ini *ini)
{
    const char *section = "", *parent = NULL;
    char *save = NULL;
    int err;

    for (char *line = strtok_r(ini->text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        bool indented = *line == ' ' || *line == '\t';
        char *at = trim(line), *equals = strchr(at, '='), *comment;

        if (!*at || *at == '#' || *at == ';')
            continue;
        if (*at == '[') {
            section = section_name(at);
            parent = NULL;
            continue;
        }
        if (!equals)
            continue;
        *equals = '\0';
        comment = strstr(equals + 1, " #");
        if (comment)
            *comment = '\0';
        if (!indented)
            parent = NULL;
        at = trim(at);
        err = ini_add(ini, (struct item){section, parent, at, trim(equals + 1)});
        if (err)
            return err;
        if (!indented && !*ini->items[ini->n_items - 1].value)
            parent = at;
    }
    return 0;
}

static int read_file(struct ini *ini, int fd)
{
    ssize_t got = 0;

    ini->text = malloc(FILE_MAX_BYTES + 1);
    if (!ini->text)
        return -ENOMEM;
    while (ini->text_len < FILE_MAX_BYTES) {
        got = read(fd, ini->text + ini->text_len, FILE_MAX_BYTES - ini->text_len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        ini->text_len += (size_t)got;
    }
    if (got < 0)
        return -errno;
    ini->text[ini->text_len] = '\0';
    return ini->text_len == FILE_MAX_BYTES ? -EFBIG : 0;
}

/* ~ as the shell knows it. Heap. */
static char *in_home(const char *name)
{
    const char *home = getenv("HOME");
    struct passwd pw, *found = NULL;
    char store[4096], *path;

    if (!home && getpwuid_r(geteuid(), &pw, store, sizeof(store), &found) == 0 && found)
        home = found->pw_dir;
    return asprintf(&path, "%s/%s", home ? home : "", name) < 0 ? NULL : path;
}

static int ini_load(struct ini *ini, const char *variable, const char *standard, struct op *op)
{
    const char *named = getenv(variable);
    auto_close int fd = -1;
    int err;

    if (named && strncmp(named, "~/", 2) == 0)
        ini->path = in_home(named + 2);
    else
        ini->path = named && *named ? strdup(named) : in_home(standard);
    if (!ini->path)
        return op_fail(op, -ENOMEM, "out of memory");
    fd = open(ini->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (fd < 0)
        return op_fail(op, -EINVAL, "AWS profile file %s: %s", ini->path, strerror(errno));
    ini->exists = true;
    err = read_file(ini, fd);
    if (!err)
        err = ini_parse(ini);
    return err ? op_fail(op, err == -ENOMEM ? err : -EINVAL, "AWS profile file %s: %s",
                         ini->path, strerror(-err))
               : 0;
}

static const char *ini_get(const struct ini *ini, const char *section, const char *parent,
                           const char *name)
{
    for (size_t i = ini->n_items; i-- > 0;) {
        const struct item *it = &ini->items[i];

        if (strcmp(it->section, section) == 0 && strcasecmp(it->name, name) == 0 &&
            (parent ? it->parent && strcasecmp(it->parent, parent) == 0 : !it->parent))
            return *it->value ? it->value : NULL;
    }
    return NULL;
}

static bool ini_has(const struct ini *ini, const char *section)
{
    for (size_t i = 0; i < ini->n_items; i++)
        if (strcmp(ini->items[i].section, section) == 0)
            return true;
    return false;
}

/* --- from both files and the environment to the settings --- */

struct load {
    struct ini credentials, config;
    const char *profile;
    bool asked; /* the profile was named by option */
    bool named; /* ... or by the environment */
    struct op *op;
    struct aws_settings *ret;
};

static const char *env(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

static int keep(struct load *l, char **to, const char *value)
{
    if (!value)
        return 0;
    free(*to);
    *to = strdup(value);
    return *to ? 0 : op_fail(l->op, -ENOMEM, "out of memory");
}

static int keep_keys(struct load *l, const char *access, const char *secret, const char *token,
                     const char *where)
{
    int err;

    if (!access || !secret)
        return op_fail(l->op, -EINVAL, "%s: there is %s but no %s", where,
                       access ? "an access key" : "a secret key",
                       access ? "secret key" : "access key");
    err = keep(l, &l->ret->access_key, access);
    if (!err)
        err = keep(l, &l->ret->secret_key, secret);
    return err ? err : keep(l, &l->ret->session_token, token);
}

/* 1 when there are keys, 0 when not. */
static int keys_from_env(struct load *l)
{
    const char *access = env("AWS_ACCESS_KEY_ID"), *secret = env("AWS_SECRET_ACCESS_KEY");
    int err;

    if (!access && !secret)
        return 0;
    err = keep_keys(l, access, secret, env("AWS_SESSION_TOKEN"), "the environment");
    return err ? err : 1;
}

static int keys_from_file(struct load *l, const struct ini *ini)
{
    const char *access = ini_get(ini, l->profile, NULL, "aws_access_key_id");
    const char *secret = ini_get(ini, l->profile, NULL, "aws_secret_access_key");
    int err;

    if (!access && !secret)
        return 0;
    err = keep_keys(l, access, secret, ini_get(ini, l->profile, NULL, "aws_session_token"),
                    ini->path);
    return err ? err : 1;
}

static int no_keys(struct load *l)
{
    static const char *const other[] = {"role_arn", "sso_session", "sso_start_url",
                                        "credential_process"};

    for (size_t i = 0; i < ARRAY_SIZE(other); i++)
        if (ini_get(&l->config, l->profile, NULL, other[i]))
            return op_fail(l->op, -EACCES,
                           "no keys: profile \"%s\" in %s uses %s, which runfs cannot follow; "
                           "export AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
                           "AWS_SESSION_TOKEN instead",
                           l->profile, l->config.path, other[i]);
    return op_fail(l->op, -EACCES,
                   "no AWS keys found; looked at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                   "profile \"%s\" in %s%s and in %s%s (no_sign_request for a public bucket)",
                   l->profile, l->credentials.path,
                   l->credentials.exists ? "" : " (no such file)", l->config.path,
                   l->config.exists ? "" : " (no such file)");
}

static int load_keys(struct load *l)
{
    int r = l->asked ? 0 : keys_from_env(l);

    if (!r)
        r = keys_from_file(l, &l->credentials);
    if (!r)
        r = keys_from_file(l, &l->config);
    if (!r && l->asked)
        r = keys_from_env(l);
    if (r < 0)
        return r;
    return r ? 0 : no_keys(l);
}

static const char *profile_get(struct load *l, const char *parent, const char *name)
{
    return ini_get(&l->config, l->profile, parent, name);
}

static const char *find_endpoint(struct load *l)
{
    const char *ignore = env("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    const char *value = env("AWS_ENDPOINT_URL_S3"), *services;
    char section[256];

    if (ignore && strcasecmp(ignore, "true") == 0)
        return NULL;
    if (!value)
        value = env("AWS_ENDPOINT_URL");
    services = profile_get(l, NULL, "services");
    if (!value && services &&
        (size_t)snprintf(section, sizeof(section), "services %s", services) < sizeof(section))
        value = ini_get(&l->config, section, "s3", "endpoint_url");
    if (!value)
        value = profile_get(l, "s3", "endpoint_url");
    return value ? value : profile_get(l, NULL, "endpoint_url");
}

static const char *either(const char *a, const char *b)
{
    return a ? a : b;
}

static int load_settings(struct load *l)
{
    const char *region = either(env("AWS_REGION"), env("AWS_DEFAULT_REGION"));
    struct aws_settings *s = l->ret;
    int err = keep(l, &s->region, either(region, profile_get(l, NULL, "region")));

    if (!err)
        err = keep(l, &s->endpoint_url, find_endpoint(l));
    if (!err)
        err = keep(l, &s->ca_bundle,
                   either(env("AWS_CA_BUNDLE"), profile_get(l, NULL, "ca_bundle")));
    if (!err)
        err = keep(l, &s->addressing_style, profile_get(l, "s3", "addressing_style"));
    return err;
}

static int load_all(struct load *l, bool anonymous)
{
    int err =
        ini_load(&l->credentials, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", l->op);

    if (!err)
        err = ini_load(&l->config, "AWS_CONFIG_FILE", ".aws/config", l->op);
    if (err)
        return err;
    if ((l->asked || l->named) && !ini_has(&l->credentials, l->profile) &&
        !ini_has(&l->config, l->profile))
        return op_fail(l->op, -EINVAL, "AWS profile \"%s\" is neither in %s nor in %s",
                       l->profile, l->credentials.path, l->config.path);
    err = load_settings(l);
    return err || anonymous ? err : load_keys(l);
}

int aws_settings_load(const char *profile, bool anonymous, struct op *op,
                      struct aws_settings *ret)
{
    const char *named = either(env("AWS_PROFILE"), env("AWS_DEFAULT_PROFILE"));
    struct aws_settings found = {0};
    struct load l = {.asked = profile && *profile, .named = named, .op = op, .ret = &found};
    int err;

    l.profile = l.asked ? profile : either(named, "default");
    err = load_all(&l, anonymous);
    ini_release(&l.credentials);
    ini_release(&l.config);
    if (err) {
        aws_settings_release(&found);
        return err;
    }
    *ret = found;
    return 0;
}

static void free_secret(char *s)
{
    if (s)
        OPENSSL_cleanse(s, strlen(s));
    free(s);
}

void aws_settings_release(struct aws_settings *s)
{
    free_secret(s->access_key);
    free_secret(s->secret_key);
    free_secret(s->session_token);
    free(s->region);
    free(s->endpoint_url);
    free(s->ca_bundle);
    free(s->addressing_style);
    *s = (struct aws_settings){0};
}
