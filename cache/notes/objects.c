/* A request to the state of a store: small objects, each written whole. */
#include "cache/notes/notes_impl.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

char *own_key(const char *state, const char *rest)
{
    char *key;

    return asprintf(&key, "%s/%s", state, rest) < 0 ? NULL : key;
}

int own_put(struct store *s, struct op *op, const char *key, const char *text)
{
    struct mem_source src;

    mem_source_init(&src, text, strlen(text));
    return store_put(s, op, key, NULL, &src.base, NULL, NULL);
}

int own_read(struct store *s, struct op *op, const char *key, char **ret, size_t *ret_len,
             char ret_etag[STORE_ETAG_MAX])
{
    auto_free char *text = malloc(NOTE_BODY_MAX + 1);
    struct object obj = {0};
    struct mem_sink sink;

    if (!text)
        return op_fail(op, -ENOMEM, "out of memory");
    mem_sink_init(&sink, text, NOTE_BODY_MAX + 1, 0);
    ssize_t n = store_read(s, op, key, NULL, &sink.base, NOTE_BODY_MAX + 1, 0, &obj);
    if (n < 0)
        return (int)n;
    if (ret_etag)
        memcpy(ret_etag, obj.etag, sizeof(obj.etag));
    object_release(&obj);
    *ret = take_ptr(text);
    *ret_len = (size_t)n;
    return 0;
}
