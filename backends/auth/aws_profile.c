/* AWS's profile files: read into a flat list of (section, name, value); nested settings ("s3 ="
 * and indented lines below it) keep the name of what they are nested in. */
#include "backends/auth/aws_profile.h"

#include "backends/auth/aws_owner.h"
#include "common/buf.h"
#include "common/mem.h"
#include "common/secret.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

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
    secret_free(ini->text);
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

char *aws_home_path(const char *name)
{
    const char *home = getenv("HOME");
    struct passwd pw, *found = NULL;
    char store[4096], *path;

    if (!home && getpwuid_r(geteuid(), &pw, store, sizeof(store), &found) == 0 && found)
        home = found->pw_dir;
    return asprintf(&path, "%s/%s", home ? home : "", name) < 0 ? NULL : path;
}

/* --- the two files --- */

static const struct {
    const char *variable;
    const char *standard; /* below the home directory */
} places[2] = {
    [AWS_CREDENTIALS_FILE] = {"AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"},
    [AWS_CONFIG_FILE] = {"AWS_CONFIG_FILE", ".aws/config"},
};

struct aws_profiles {
    struct ini file[2];
    struct aws_profiles_stamp stamp;
    const char *chosen;
    char *chosen_copy;
    bool asked;   /* the profile was named by option */
    bool exposed; /* all can read the credentials */
};

static char *place_path(enum aws_profile_file which)
{
    const char *named = aws_env(places[which].variable);

    if (named && strncmp(named, "~/", 2) == 0)
        return aws_home_path(named + 2);
    return named ? strdup(named) : aws_home_path(places[which].standard);
}

static void stamp_of(const struct stat *st, struct aws_profiles_stamp *ret, int i)
{
    ret->file[i].mtime_ns = (int64_t)st->st_mtim.tv_sec * NS_PER_SEC + st->st_mtim.tv_nsec;
    ret->file[i].size = st->st_size;
    ret->file[i].ino = st->st_ino;
}

/* Who can write to the file gives us keys, a server to use them with, and with
 * credential_process a program that we run. /dev/null is everybody's. */
static int check_owner(const char *path, enum aws_profile_file which, int fd,
                       const struct stat *st, struct op *op)
{
    if (!S_ISREG(st->st_mode) && !S_ISFIFO(st->st_mode))
        return 0;
    int r = aws_owner_check(fd, st);
    if (r == -EPERM)
        return op_fail(
            op, -EACCES,
            "AWS profile file %.90s belongs to user %u, who could name programs to run "
            "as user %u: name a file of your own in %s",
            path, st->st_uid, geteuid(), places[which].variable);
    if (r)
        return op_fail(
            op, -EACCES,
            "AWS profile file %.90s can be written by others, who could name programs "
            "to run: chmod go-w '%.90s'",
            path, path);
    return 0;
}

static int ini_load(struct aws_profiles *p, enum aws_profile_file which, struct op *op)
{
    struct ini *ini = &p->file[which];
    auto_close int fd = -1;
    struct stat st;
    int err;

    p->stamp.file[which].size = -1;
    ini->path = place_path(which);
    if (!ini->path)
        return op_fail(op, -ENOMEM, "out of memory");
    fd = open(ini->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (fd < 0 || fstat(fd, &st))
        return op_fail(op, -EINVAL, "AWS profile file %s: %s", ini->path, strerror(errno));
    err = check_owner(ini->path, which, fd, &st, op);
    if (err)
        return err;
    p->exposed |=
        which == AWS_CREDENTIALS_FILE && S_ISREG(st.st_mode) && (st.st_mode & S_IROTH);
    stamp_of(&st, &p->stamp, which);
    ini->exists = true;
    err = read_file(ini, fd);
    if (!err)
        err = ini_parse(ini);
    return err ? op_fail(op, err == -ENOMEM ? err : -EINVAL, "AWS profile file %s: %s",
                         ini->path, strerror(-err))
               : 0;
}

static int ini_from_text(struct ini *ini, const char *name, const char *text)
{
    ini->path = strdup(name);
    ini->text = text ? strdup(text) : NULL;
    if (!ini->path || (text && !ini->text))
        return -ENOMEM;
    ini->text_len = text ? strlen(text) : 0;
    ini->exists = text != NULL;
    return text ? ini_parse(ini) : 0;
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

static int choose(struct aws_profiles *p, const char *asked, struct op *op)
{
    const char *named = aws_env("AWS_PROFILE");

    if (!named)
        named = aws_env("AWS_DEFAULT_PROFILE");
    p->asked = asked && *asked;
    p->chosen_copy = strdup(p->asked ? asked : named ? named : "default");
    if (!p->chosen_copy)
        return op_fail(op, -ENOMEM, "out of memory");
    p->chosen = p->chosen_copy;
    if ((p->asked || named) && !aws_profile_exists(p, p->chosen))
        return op_fail(op, -EINVAL, "AWS profile \"%s\" is neither in %s nor in %s", p->chosen,
                       p->file[AWS_CREDENTIALS_FILE].path, p->file[AWS_CONFIG_FILE].path);
    return 0;
}

int aws_profiles_load(const char *asked, struct op *op, struct aws_profiles **ret)
{
    struct aws_profiles *p = calloc(1, sizeof(*p));
    int err;

    if (!p)
        return op_fail(op, -ENOMEM, "out of memory");
    err = ini_load(p, AWS_CREDENTIALS_FILE, op);
    if (!err)
        err = ini_load(p, AWS_CONFIG_FILE, op);
    if (!err)
        err = choose(p, asked, op);
    if (err) {
        aws_profiles_free(p);
        return err;
    }
    *ret = p;
    return 0;
}

int aws_profiles_parse(const char *asked, const char *credentials, const char *config,
                       struct op *op, struct aws_profiles **ret)
{
    struct aws_profiles *p = calloc(1, sizeof(*p));
    int err;

    if (!p)
        return op_fail(op, -ENOMEM, "out of memory");
    err = ini_from_text(&p->file[AWS_CREDENTIALS_FILE], "credentials", credentials);
    if (!err)
        err = ini_from_text(&p->file[AWS_CONFIG_FILE], "config", config);
    err = err ? op_fail(op, err, "out of memory") : choose(p, asked, op);
    if (err) {
        aws_profiles_free(p);
        return err;
    }
    *ret = p;
    return 0;
}

void aws_profiles_free(struct aws_profiles *p)
{
    if (!p)
        return;
    ini_release(&p->file[AWS_CREDENTIALS_FILE]);
    ini_release(&p->file[AWS_CONFIG_FILE]);
    free(p->chosen_copy);
    free(p);
}

const char *aws_profiles_exposed(const struct aws_profiles *p)
{
    return p->exposed ? p->file[AWS_CREDENTIALS_FILE].path : NULL;
}

const struct aws_profiles_stamp *aws_profiles_stamp(const struct aws_profiles *p)
{
    return &p->stamp;
}

void aws_profiles_stamp_now(struct aws_profiles_stamp *ret)
{
    *ret = (struct aws_profiles_stamp){0};
    for (int i = 0; i < 2; i++) {
        auto_free char *path = place_path(i);
        struct stat st;

        if (path && stat(path, &st) == 0)
            stamp_of(&st, ret, i);
        else
            ret->file[i].size = -1;
    }
}

const char *aws_profile_chosen(const struct aws_profiles *p)
{
    return p->chosen;
}

bool aws_profile_was_asked(const struct aws_profiles *p)
{
    return p->asked;
}

bool aws_profile_exists(const struct aws_profiles *p, const char *profile)
{
    return ini_has(&p->file[AWS_CREDENTIALS_FILE], profile) ||
           ini_has(&p->file[AWS_CONFIG_FILE], profile);
}

/* As botocore: what both files have, the one with the credentials says. */
const char *aws_profile_get(const struct aws_profiles *p, const char *profile,
                            const char *parent, const char *name)
{
    const char *value = ini_get(&p->file[AWS_CREDENTIALS_FILE], profile, parent, name);

    return value ? value : ini_get(&p->file[AWS_CONFIG_FILE], profile, parent, name);
}

int aws_profile_keys(const struct aws_profiles *p, const char *profile,
                     enum aws_profile_file file, struct op *op, struct aws_keys *ret)
{
    const struct ini *ini = &p->file[file];
    const char *access = ini_get(ini, profile, NULL, "aws_access_key_id");
    const char *secret = ini_get(ini, profile, NULL, "aws_secret_access_key");
    int err;

    if (!access && !secret)
        return 0;
    if (!access || !secret)
        return op_fail(op, -EINVAL, "%s: there is %s but no %s", ini->path,
                       access ? "an access key" : "a secret key",
                       access ? "secret key" : "access key");
    err = aws_keys_set(ret, access, secret, ini_get(ini, profile, NULL, "aws_session_token"));
    return err ? op_fail(op, err, "%s: profile \"%s\" has unusable keys", ini->path, profile)
               : 1;
}

const char *aws_profile_path(const struct aws_profiles *p, enum aws_profile_file file)
{
    return p->file[file].path;
}

const char *aws_profile_missing(const struct aws_profiles *p, enum aws_profile_file file)
{
    return p->file[file].exists ? "" : " (no such file)";
}

/* --- settings --- */

const char *aws_env(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

bool aws_env_true(const char *name)
{
    const char *value = aws_env(name);

    return value && strcasecmp(value, "true") == 0;
}

static const char *either(const char *a, const char *b)
{
    return a ? a : b;
}

static const char *endpoint_of_services(const struct aws_profiles *p, const char *profile,
                                        const char *service)
{
    const char *services = aws_profile_get(p, profile, NULL, "services");
    char section[256];

    if (!services ||
        (size_t)snprintf(section, sizeof(section), "services %s", services) >= sizeof(section))
        return NULL;
    return aws_profile_get(p, section, service, "endpoint_url");
}

const char *aws_profile_endpoint(const struct aws_profiles *p, const char *profile,
                                 const char *service)
{
    char variable[64];
    const char *value;

    if (aws_env_true("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"))
        return NULL;
    (void)snprintf(variable, sizeof(variable), "AWS_ENDPOINT_URL_%s", service);
    for (char *c = variable; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    value = either(aws_env(variable), aws_env("AWS_ENDPOINT_URL"));
    if (!value)
        value = endpoint_of_services(p, profile, service);
    if (!value)
        value = aws_profile_get(p, profile, service, "endpoint_url");
    return either(value, aws_profile_get(p, profile, NULL, "endpoint_url"));
}

static int keep(char **to, const char *value)
{
    *to = value ? strdup(value) : NULL;
    return value && !*to ? -ENOMEM : 0;
}

int aws_settings_load(const struct aws_profiles *p, struct op *op, struct aws_settings *ret)
{
    const char *profile = p->chosen;
    const char *region = either(aws_env("AWS_REGION"), aws_env("AWS_DEFAULT_REGION"));
    const char *ca = aws_env("AWS_CA_BUNDLE");
    struct aws_settings s = {0};
    int err = keep(&s.region, either(region, aws_profile_get(p, profile, NULL, "region"))) |
              keep(&s.endpoint_url, aws_profile_endpoint(p, profile, "s3")) |
              keep(&s.ca_bundle, either(ca, aws_profile_get(p, profile, NULL, "ca_bundle"))) |
              keep(&s.addressing_style, aws_profile_get(p, profile, "s3", "addressing_style"));

    if (err) {
        aws_settings_release(&s);
        return op_fail(op, -ENOMEM, "out of memory");
    }
    *ret = s;
    return 0;
}

void aws_settings_release(struct aws_settings *s)
{
    free(s->region);
    free(s->endpoint_url);
    free(s->ca_bundle);
    free(s->addressing_style);
    *s = (struct aws_settings){0};
}
