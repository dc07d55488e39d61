/* What a driven cache shows, and the store below it has. */
#include "tests/lib/driven.h"

#include <check.h>
#include <errno.h>
#include <string.h>

#define PATIENCE_NS (60 * NS_PER_SEC)

ssize_t driven_stored(struct driven *d, const char *key, void *buf, size_t len)
{
    struct store *mem = d->store->next;
    struct mem_sink sink;
    struct op op;

    op_init(&op, PATIENCE_NS);
    mem_sink_init(&sink, buf, len, 0);
    return store_read(mem, &op, key, NULL, &sink.base, len, 0, NULL);
}

/* Whether a read gave `n` bytes, which are `wanted`. */
static void check_text(const char *what, const char *name, const char *text, ssize_t n,
                       const char *wanted)
{
    if (wanted)
        ck_assert_msg(n == (ssize_t)strlen(wanted) && memcmp(text, wanted, (size_t)n) == 0,
                      "%s %s: %zd \"%.*s\", not \"%s\"", what, name, n, n > 0 ? (int)n : 0,
                      text, wanted);
    else
        ck_assert_msg(n == -ENOENT, "%s %s: %zd, not ENOENT", what, name, n);
}

void driven_stores(struct driven *d, const char *key, const char *wanted)
{
    char text[64];

    check_text("the store has", key, text, driven_stored(d, key, text, sizeof(text)), wanted);
}

bool driven_stores_dir(struct driven *d, const char *key)
{
    struct object obj = {0};
    struct op op;

    op_init(&op, PATIENCE_NS);
    bool is = store_stat(d->store->next, &op, key, &obj) == 0 && obj.is_prefix;
    object_release(&obj);
    return is;
}

int driven_store_if(struct driven *d, const char *key, const char *etag, const void *data,
                    size_t len, const struct attrs *attrs)
{
    struct mem_source src;
    struct op op;

    op_init(&op, PATIENCE_NS);
    mem_source_init(&src, data, len);
    return store_put(d->store->next, &op, key, etag, &src.base, attrs, NULL);
}

void driven_store_with(struct driven *d, const char *key, const void *data, size_t len,
                       const struct attrs *attrs)
{
    int r = driven_store_if(d, key, NULL, data, len, attrs);

    ck_assert_msg(r == 0, "put %s: %d", key, r);
}

void driven_store(struct driven *d, const char *key, const void *data, size_t len)
{
    driven_store_with(d, key, data, len, NULL);
}

void driven_shows(struct driven *d, const char *path, const char *wanted)
{
    char text[64];

    check_text("the mount shows", path, text, driven_read(d, path, text, sizeof(text)), wanted);
}
