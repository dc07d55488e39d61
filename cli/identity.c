/* A store's identity as JSON with sorted keys. */
#include "cli/identity.h"

#include "cache/mirror/door.h"
#include "cli/control_io.h"
#include "common/mem.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define OPTIONS_NAME "store.json"

char *identity_make(const char *url, const char *endpoint)
{
    auto_json json_t *j = json_pack("{s:o, s:s}", "url", control_text(url), "layout", "plain");

    if (!j || (endpoint && json_object_set_new(j, "endpoint", control_text(endpoint))))
        return NULL;
    return json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
}

static int add_texts(const json_t *j, struct settings *to)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)j, key, value)
    {
        if (strcmp(key, "url") == 0 || strcmp(key, "layout") == 0)
            continue;
        if (!json_is_string(value) || settings_add(to, key, json_string_value(value)))
            return -EINVAL;
    }
    return 0;
}

int identity_parse(const char *text, struct op *op, char **ret_url, struct settings *ret_store)
{
    auto_json json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *url = json_string_value(json_object_get(j, "url"));
    struct settings store = {0};
    auto_free char *copy = url ? strdup(url) : NULL;

    if (!copy || add_texts(j, &store)) {
        settings_release(&store);
        return op_fail(op, -EINVAL, "the cache directory's identity can't be read");
    }
    *ret_url = take_ptr(copy);
    *ret_store = store;
    return 0;
}

char *identity_cache_home(void)
{
    const char *home = getenv("XDG_CACHE_HOME");
    char *path = NULL;

    if (geteuid() == 0)
        return strdup("/var/cache/runfs");
    if (home && *home == '/') {
        if (asprintf(&path, "%s/runfs", home) < 0)
            return NULL;
        return path;
    }
    home = getenv("HOME");
    if (!home || *home != '/' || asprintf(&path, "%s/.cache/runfs", home) < 0)
        return NULL;
    return path;
}

char *identity_default_dir(const char *identity, const char *mountpoint)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    auto_free char *home = identity_cache_home();
    auto_free char *text = NULL;
    char *dir = NULL, hex[2 * 12 + 1];
    unsigned len;

    if (!home || asprintf(&text, "%s\n%s", identity, mountpoint) < 0) {
        text = NULL;
        return NULL;
    }
    if (!EVP_Digest(text, strlen(text), hash, &len, EVP_sha256(), NULL))
        return NULL;
    for (size_t i = 0; i < 12; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    if (asprintf(&dir, "%s/%s", home, hex) < 0)
        return NULL;
    return dir;
}

char *identity_former_dir(const char *url, const char *endpoint, const char *mountpoint)
{
    auto_free char *identity = endpoint ? identity_make(url, NULL) : NULL;

    return identity ? identity_default_dir(identity, mountpoint) : NULL;
}

static json_t *settings_json(const struct settings *store)
{
    json_t *j = json_object();

    for (size_t i = 0; j && i < store->n; i++)
        (void)json_object_set_new(j, store->items[i].name, control_text(store->items[i].value));
    return j;
}

int identity_save_options(int dir_fd, const struct settings *store, struct op *op)
{
    auto_json json_t *j = settings_json(store);
    auto_free char *text = j ? json_dumps(j, JSON_INDENT(2)) : NULL;
    int r = text ? door_write_text(dir_fd, OPTIONS_NAME, text) : -ENOMEM;

    return r < 0 ? op_fail(op, r, "cannot write " OPTIONS_NAME " of the cache: %s", door_why(r))
                 : 0;
}

int identity_load_options(int dir_fd, struct op *op, struct settings *ret)
{
    auto_free char *text = NULL;
    auto_json json_t *j = NULL;
    struct settings store = {0};
    int r = door_read_text(dir_fd, OPTIONS_NAME, &text);

    *ret = store;
    if (r == -ENOENT)
        return 0;
    if (r == 0) {
        j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        r = json_is_object(j) ? add_texts(j, &store) : -EINVAL;
    }
    if (r < 0) {
        settings_release(&store);
        return op_fail(op, r, OPTIONS_NAME " of the cache can't be read: %s", door_why(r));
    }
    *ret = store;
    return 0;
}
