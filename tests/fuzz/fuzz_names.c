/* Names, keys and store URLs: what the checks let through is a path below a directory, the
 * parts of a key make the key again, a store in memory keeps any good key, and no URL that is
 * shown has its password in it. */
#include "backends/store.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECRET "S3cr3tW0rd"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void check_key(const char *key)
{
    auto_free char *parent = path_parent(key);
    auto_free char *joined = parent ? path_join(parent, path_basename(key)) : NULL;

    if (!path_key_safe(key, STORE_KEY_MAX))
        must(!path_key_ok(key, STORE_KEY_MAX));
    if (!path_key_safe(key, STORE_KEY_MAX) || !joined)
        return;
    must(strcmp(joined, key) == 0);
    must(strlen(key) < STORE_KEY_MAX && key[0] != '/' && !strstr(key, "//"));
    must(strcmp(path_basename(key), "..") != 0 && strncmp(key, "../", 3) != 0);
    must(!strstr(key, "/../"));
    must(path_key_safe(parent, STORE_KEY_MAX));
    must(path_below(parent, key) && strcmp(path_below(key, key), key[0] ? "" : key) == 0);
}

static int find_name(void *arg, const char *name, const struct object *obj)
{
    (void)obj;
    must(path_key_safe(name, STORE_KEY_MAX) && name[0]);
    return strcmp(name, arg) == 0 ? 1 : 0;
}

/* Stores the key and finds it in its directory again. */
static void check_store(struct store *s, const char *key)
{
    auto_free char *parent = path_parent(key);
    struct mem_source src;
    struct object obj;
    struct op op;

    if (strcmp(key, STORE_STATE_DIR) == 0)
        return; /* the directory of our own objects, which no listing has */
    op_init(&op, OP_FOREVER);
    mem_source_init(&src, "x", 1);
    int r = store_put(s, &op, key, NULL, &src.base, NULL, NULL);
    must((r == 0) == (key[0] && path_key_safe(key, STORE_KEY_MAX)));
    if (r < 0 || !parent)
        return;
    must(store_stat(s, &op, key, &obj) == 0);
    object_release(&obj);
    char *name = (char *)(uintptr_t)path_basename(key);
    must(store_list(s, &op, parent, 0, find_name, name) == 1);
    must(store_remove(s, &op, (const char *const *)&key, NULL, 1, NULL) == 0);
}

static void check_shown(const char *before, const char *data, const char *behind)
{
    auto_free char *url = NULL;

    if (asprintf(&url, "%s%s%s", before, data, behind) < 0)
        return;
    auto_free char *shown = store_url_redact(url);
    must(shown && !strstr(shown, SECRET));
}

static void check_open(const char *url)
{
    struct store *s = NULL;
    struct op op;

    /* Only forms that touch nothing: a path is a folder of this machine, s3: a server. */
    if (url[0] == '/' || strncmp(url, "file:", 5) == 0 || strncmp(url, "s3:", 3) == 0 ||
        (strncmp(url, "mem:", 4) == 0 && url[4] && url[4] != '?')) /* named ones stay */
        return;
    op_init(&op, NS_PER_SEC);
    int r = store_open(url, NULL, &op, &s);
    must(r == 0 ? s != NULL : s == NULL && op.why[0]);
    store_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct store *s;
    auto_free char *text = malloc(size + 1);
    struct op op;

    op_init(&op, OP_FOREVER);
    if (!text || (!s && store_open("mem:", NULL, &op, &s) < 0))
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    must(!path_name_ok(text, size) || (size <= PATH_NAME_MAX && !strchr(text, '/')));
    check_key(text);
    check_store(s, text);
    check_open(text);
    if (!strstr(text, SECRET)) {
        check_shown("s3://id:" SECRET "@", text, "");
        check_shown("s3://id:" SECRET "/x@", text, "");
        if (!strchr(text, '=') && !strchr(text, '#'))
            check_shown("", text, "?secret_key=" SECRET);
    }
    return 0;
}
