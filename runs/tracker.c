/* A TorchX tracker's configuration file as a store. Its rules are those of torchx 0.7,
 * tracker/backend/fsspec.py: lines "key=value", both without space around them; a line that
 * begins with "#", or lacks a key, a "=" or a value, is skipped; "a.b" is b of a; of two lines
 * with one key the later counts. `protocol` and `root_path` say where, the rest goes
 * to fsspec's client: what of it has a meaning here becomes a setting of the store, and what
 * has none is refused. */
#include "common/mem.h"
#include "common/nearest.h"
#include "common/secret.h"
#include "common/units.h"
#include "runs/config_impl.h"
#include "runs/read_file.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>

struct line {
    char *key, *value; /* heap */
    unsigned number;
};

struct tracker {
    struct reading *r;
    struct config_store *store;
    const char *path;
    struct line *lines; /* heap; each key once */
    size_t n, cap;
    mode_t mode;
    struct config_problems problems; /* their places are lines of the file */
};

/* Adds a problem of a line; 0: of the file. */
#define wrong(t, number, ...)                                                                  \
    config_problem_add(&(t)->problems, (struct text_place){.line = (number)}, __VA_ARGS__)

/* ---- lines ---- */

static const char *strip(const char *text, size_t *len)
{
    while (*len && isspace((unsigned char)text[*len - 1]))
        --*len;
    while (*len && isspace((unsigned char)*text)) {
        text++;
        --*len;
    }
    return text;
}

static struct line *find_line(const struct tracker *t, const char *key)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->lines[i].key, key) == 0)
            return &t->lines[i];
    return NULL;
}

/* Whether one of the keys is a text where the other nests. */
static bool nests_below(const char *key, const char *in)
{
    size_t len = strlen(in);

    return strncmp(key, in, len) == 0 && key[len] == '.';
}

static void release_line(struct line *line)
{
    free(line->key);
    secret_free(line->value);
    *line = (struct line){0};
}

/* Takes over the key. */
static int put_line(struct tracker *t, char **key, const char *value, size_t len,
                    unsigned number)
{
    struct line *line = find_line(t, *key);

    if (!line) {
        if (array_grow(t->lines, t->cap, t->n + 1))
            return -ENOMEM;
        line = &t->lines[t->n++];
        *line = (struct line){0};
    }
    release_line(line);
    *line =
        (struct line){.key = take_ptr(*key), .value = strndup(value, len), .number = number};
    return line->value ? 0 : -ENOMEM;
}

static int add_line(struct tracker *t, const char *text, size_t len, unsigned number)
{
    const char *equals = memchr(text, '=', len);
    size_t key_len = equals ? (size_t)(equals - text) : 0;
    size_t value_len = equals ? len - key_len - 1 : 0;
    const char *value = equals ? strip(equals + 1, &value_len) : text;
    auto_free char *key = NULL;

    if (!equals || *text == '#')
        return 0;
    text = strip(text, &key_len);
    if (key_len == 0 || value_len == 0)
        return 0;
    key = strndup(text, key_len);
    if (!key)
        return -ENOMEM;
    if (key[key_len - 1] == '.')
        return wrong(t, number, "Illegal config key \"%s\": it ends in \".\"", key);
    for (size_t i = 0; i < t->n; i++)
        if (nests_below(key, t->lines[i].key))
            return wrong(t, number, "\"%s\" nests in \"%s\", which is a text in line %u", key,
                         t->lines[i].key, t->lines[i].number);
    return put_line(t, &key, value, value_len, number);
}

/* Python's universal newlines: also a "\r" alone ends a line. */
static int read_lines(struct tracker *t, const char *text, size_t size)
{
    const char *end = text + size;
    unsigned number = 1;
    int err = 0;

    for (; text < end && !err; number++) {
        size_t len = 0;

        while (text + len < end && text[len] != '\n' && text[len] != '\r')
            len++;
        err = add_line(t, text, len, number);
        text += len;
        if (text + 1 < end && text[0] == '\r' && text[1] == '\n')
            text++;
        text++;
    }
    return err;
}

/* ---- what has a meaning here ---- */

enum key_use {
    KEY_PLACE,   /* protocol and root_path */
    KEY_SETTING, /* a setting of that name, or as is */
    KEY_ANON,    /* a flag: unsigned requests */
    KEY_STYLE,   /* "path" or "virtual" */
    KEY_PAYS,    /* a flag: the requester pays */
    KEY_NOTHING, /* how fsspec keeps its own memory */
};

static const struct known_key {
    const char *name;
    enum key_use use;
    const char *setting;
} known_keys[] = {
    {"protocol", KEY_PLACE, NULL},
    {"root_path", KEY_PLACE, NULL},
    {"client_kwargs.endpoint_url", KEY_SETTING, "endpoint"},
    {"endpoint_url", KEY_SETTING, "endpoint"},
    {"client_kwargs.region_name", KEY_SETTING, "region"},
    {"profile", KEY_SETTING, "profile"},
    {"anon", KEY_ANON, "no_sign_request"},
    {"config_kwargs.s3.addressing_style", KEY_STYLE, "path_style"},
    {"requester_pays", KEY_PAYS, "request_payer"},
    {"s3_additional_kwargs.ServerSideEncryption", KEY_SETTING, "sse"},
    {"s3_additional_kwargs.SSEKMSKeyId", KEY_SETTING, "sse_kms_key_id"},
    {"s3_additional_kwargs.StorageClass", KEY_SETTING, "storage_class"},
    {"host", KEY_SETTING, "host"},
    {"port", KEY_SETTING, "port"},
    {"user", KEY_SETTING, "user"},
    {"auto_mkdir", KEY_NOTHING, NULL},
    {"use_listings_cache", KEY_NOTHING, NULL},
    {"listings_expiry_time", KEY_NOTHING, NULL},
    {"skip_instance_cache", KEY_NOTHING, NULL},
    {"default_block_size", KEY_NOTHING, NULL},
    {"default_cache_type", KEY_NOTHING, NULL},
    {"default_fill_cache", KEY_NOTHING, NULL},
};

static int unknown_key(struct tracker *t, const struct line *line)
{
    struct nearest n;

    nearest_init(&n, line->key);
    for (size_t i = 0; i < ARRAY_SIZE(known_keys); i++)
        nearest_try(&n, known_keys[i].name);
    if (n.best)
        return wrong(t, line->number, "unknown \"%s\", did you mean \"%s\"?", line->key,
                     n.best);
    return wrong(t, line->number,
                 "\"%s\" has no meaning for runfs; leave it out of its copy of the file",
                 line->key);
}

/* No kind of store takes keys as options: what keeps them is made for that. */
static int refuse_secret(struct tracker *t, const struct line *line)
{
    if (t->mode & 077)
        return wrong(t, line->number,
                     "\"%s\" is a secret, and others may read the file (mode %04o): chmod 600 "
                     "it; runfs takes keys from the environment or a profile only",
                     line->key, (unsigned)t->mode);
    return wrong(t, line->number,
                 "\"%s\" is a secret: runfs takes keys from the environment or a profile only; "
                 "leave it out of its copy of the file, and say \"profile=NAME\"",
                 line->key);
}

/* The setting's value; NULL: there is none, or it was reported. */
static int value_of(struct tracker *t, const struct known_key *k, const struct line *line,
                    const char **ret)
{
    bool flag = strcasecmp(line->value, "true") == 0;

    *ret = line->value;
    if (k->use == KEY_SETTING)
        return 0;
    *ret = NULL;
    if (k->use == KEY_STYLE) {
        bool path = strcmp(line->value, "path") == 0;

        *ret = path ? "true" : NULL;
        if (path || strcmp(line->value, "virtual") == 0 || strcmp(line->value, "auto") == 0)
            return 0;
        return wrong(t, line->number, "\"%s\" must be path, virtual or auto", line->key);
    }
    if (!flag && strcasecmp(line->value, "false") != 0 && parse_flag(line->value, &flag))
        return wrong(t, line->number, "\"%s\" must be true or false", line->key);
    if (flag)
        *ret = k->use == KEY_PAYS ? "requester" : "true";
    return 0;
}

static int add_setting(struct tracker *t, const struct known_key *k, const struct line *line)
{
    const char *value;
    int err = value_of(t, k, line, &value);

    if (err || !value)
        return err;
    if (url_has_secret(value))
        return wrong(t, line->number, "\"%s\": credentials don't belong in a URL", line->key);
    return config_store_setting(t->r, t->store, k->setting, value, t->store->url_at);
}

static int use_line(struct tracker *t, const struct line *line)
{
    const char *dot = strrchr(line->key, '.');
    size_t i = 0;

    while (i < ARRAY_SIZE(known_keys) && strcmp(known_keys[i].name, line->key) != 0)
        i++;
    if (i == ARRAY_SIZE(known_keys))
        return config_name_secret(dot ? dot + 1 : line->key) ? refuse_secret(t, line)
                                                             : unknown_key(t, line);
    if (known_keys[i].use == KEY_PLACE || known_keys[i].use == KEY_NOTHING)
        return 0;
    return add_setting(t, &known_keys[i], line);
}

/* ---- where it is ---- */

/* What fsspec calls it, and the scheme here. */
static const struct protocol {
    const char *name, *scheme;
    bool bucket; /* the path begins with the name of a bucket, not with "/" */
} protocols[] = {
    {"file", "file", false}, {"local", "file", false}, {"s3", "s3", true},
    {"s3a", "s3", true},     {"hdfs", "hdfs", false},  {"webhdfs", "webhdfs", false},
    {"gs", "gs", true},      {"gcs", "gs", true},      {"abfs", "abfs", true},
    {"abfss", "abfs", true}, {"az", "abfs", true},
};

static const struct protocol *find_protocol(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(protocols); i++)
        if (strlen(protocols[i].name) == len && memcmp(protocols[i].name, name, len) == 0)
            return &protocols[i];
    return NULL;
}

static int unknown_protocol(struct tracker *t, const struct line *line)
{
    auto_buf struct buf names = BUF_INIT(512);

    for (size_t i = 0; i < ARRAY_SIZE(protocols); i++)
        if (buf_addf(&names, "%s%s", i ? ", " : "", protocols[i].name))
            return -ENOMEM;
    return wrong(t, line->number, "unknown protocol \"%s\"; known are %s", line->value,
                 names.data);
}

/* fsspec takes paths with and without the protocol before them. */
static int make_url(struct tracker *t, const struct protocol *p, const struct line *root)
{
    size_t scheme = url_scheme_len(root->value);
    const char *rest = root->value, *why;
    auto_free char *url = NULL;
    int err;

    if (scheme && strncmp(root->value + scheme, "://", 3) == 0) {
        const struct protocol *found = find_protocol(root->value, scheme);

        if (!found || strcmp(found->scheme, p->scheme) != 0)
            return wrong(t, root->number,
                         "stores.%s: Mismatched namespace: found %.*s:// but expected %s://",
                         t->store->name, (int)scheme, root->value, p->name);
        rest = root->value + scheme + 3;
    }
    if (p->bucket)
        rest += strspn(rest, "/");
    else if (rest == root->value && *rest != '/')
        return wrong(t, root->number, "\"root_path\" must begin with \"/\"");
    if (asprintf(&url, "%s://%s", p->scheme, rest) < 0) {
        url = NULL;
        return -ENOMEM;
    }
    if (url_has_secret(url))
        return wrong(t, root->number, "\"root_path\": credentials don't belong in a URL");
    err = url_resolve(&t->r->base, url, settings_get(&t->store->settings, "host"),
                      &t->store->url, &why);
    return err == -EINVAL ? wrong(t, root->number, "%s", why) : err;
}

static int find_place(struct tracker *t)
{
    const struct line *protocol = find_line(t, "protocol"), *root = find_line(t, "root_path");
    const struct protocol *p;

    if (!protocol || !*protocol->value || !root || !*root->value)
        return wrong(t, 0, "a tracker needs \"protocol\" and \"root_path\"; there is no \"%s\"",
                     protocol && *protocol->value ? "root_path" : "protocol");
    p = find_protocol(protocol->value, strlen(protocol->value));
    return p ? make_url(t, p, root) : unknown_protocol(t, protocol);
}

/* ---- the file ---- */

static int read_tracker(struct tracker *t, const struct buf *text)
{
    const char *data = text->data ? text->data : "";
    json_t *legal = json_stringn(data, text->len);
    int err;

    if (!legal || memchr(data, '\0', text->len)) {
        json_decref(legal);
        return wrong(t, 0, "no text in UTF-8");
    }
    json_decref(legal);
    err = read_lines(t, data, text->len);
    for (size_t i = 0; !err && i < t->n; i++)
        err = use_line(t, &t->lines[i]);
    return err ? err : find_place(t);
}

/* The place of each is that of the file's name; its text has the line. */
static int hand_over(struct tracker *t)
{
    const struct config_problem *p = t->problems.items;
    int err = 0;

    for (size_t i = 0; !err && i < t->problems.n; i++)
        err = p[i].at.line ? config_wrong(t->r, t->store->url_at, "%s:%u: %s", t->path,
                                          p[i].at.line, p[i].text)
                           : config_wrong(t->r, t->store->url_at, "%s: %s", t->path, p[i].text);
    t->r->problems->more += t->problems.more;
    return err;
}

int config_read_tracker(struct reading *r, struct config_store *store, const char *path)
{
    struct tracker t = {.r = r, .store = store, .path = path};
    auto_buf struct buf text = BUF_SECRET(CONFIG_TEXT_MAX);
    const char *why;
    int err = read_small_file(path, CONFIG_TEXT_MAX, &text, &t.mode, &why);

    if (err)
        return err == -ENOMEM ? err : config_wrong(r, store->url_at, "%s: %s", path, why);
    err = read_tracker(&t, &text);
    if (!err)
        err = hand_over(&t);
    config_problems_release(&t.problems);
    for (size_t i = 0; i < t.n; i++)
        release_line(&t.lines[i]);
    free(t.lines);
    return err;
}
