/* The JSON text of a node's extended attributes; see xattr_set.h. */
#include "cache/types/xattr_set.h"

#include "common/mem.h"

#include <errno.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/xattr.h>

/* Parses the text; an empty set where it is none. NULL only without memory. */
static json_t *load(const char *json)
{
    json_t *all = json ? json_loads(json, 0, NULL) : NULL;

    if (!json_is_object(all)) {
        json_decref(all);
        all = json_object();
    }
    return all;
}

/* Decodes base64; the length is that of the bytes. NULL when it is none. */
static unsigned char *decode(const char *text, size_t *ret_len)
{
    size_t len = strlen(text);
    auto_free unsigned char *out = malloc(len / 4 * 3 + 1);

    if (!out || len % 4 != 0)
        return NULL;
    int n = len ? EVP_DecodeBlock(out, (const unsigned char *)text, (int)len) : 0;
    if (n < 0)
        return NULL;
    for (size_t i = len; i > 0 && text[i - 1] == '=' && len - i < 2; i--)
        n--;
    *ret_len = (size_t)n;
    return take_ptr(out);
}

ssize_t xattr_set_get(const char *json, const char *name, unsigned char **ret)
{
    json_t *all = load(json);
    const char *text = all ? json_string_value(json_object_get(all, name)) : NULL;
    ssize_t r = all ? -ENODATA : -ENOMEM;
    size_t len = 0;

    if (text) {
        unsigned char *value = decode(text, &len);
        r = value ? (ssize_t)len : -EIO;
        if (value)
            *ret = value;
    }
    json_decref(all);
    return r;
}

static int put_value(json_t *all, const char *name, const void *value, size_t size)
{
    auto_free char *text = malloc(size / 3 * 4 + 8);

    if (!text)
        return -ENOMEM;
    text[0] = '\0';
    if (size)
        (void)EVP_EncodeBlock((unsigned char *)text, value, (int)size);
    return json_object_set_new(all, name, json_string(text)) < 0 ? -ENOMEM : 0;
}

int xattr_set_edit(const char *json, const char *name, const void *value, size_t size,
                   int flags, char **ret)
{
    json_t *all = load(json);
    bool there = json_object_get(all, name) != NULL;
    char *text = NULL;
    int r = 0;

    if (!all)
        return -ENOMEM;
    if ((!value || (flags & XATTR_REPLACE)) && !there)
        r = -ENODATA;
    else if (value && (flags & XATTR_CREATE) && there)
        r = -EEXIST;
    else if (!value)
        (void)json_object_del(all, name);
    else
        r = put_value(all, name, value, size);
    if (r == 0 && json_object_size(all) > 0) {
        text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
        r = text ? 0 : -ENOMEM;
    }
    json_decref(all);
    if (r == 0)
        *ret = text;
    return r;
}

int xattr_set_each(const char *json, int (*visit)(void *arg, const char *name), void *arg)
{
    json_t *all = json ? load(json) : NULL;
    const char *name;
    json_t *value;
    int r = 0;

    json_object_foreach(all, name, value)
    {
        if (r == 0)
            r = visit(arg, name);
    }
    json_decref(all);
    return r;
}
