/* Attribute indexes, of a directory and of a part of the tree: any bytes are read or refused,
 * and what was read is written so that it is read the same. The checksum is made right, or
 * nothing would get behind it; the first byte says how. */
#include "cache/types/attr_index.h"
#include "common/crc32c.h"
#include "common/mem.h"
#include "common/path.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* Nothing in it can lead anywhere or claim what no index may. */
static void check_entry(const struct index_entry *e)
{
    const struct attrs *a = &e->attrs;
    size_t len = strlen(e->name);
    bool marker = len && e->name[len - 1] == '/';
    auto_free char *key = strndup(e->name, len - marker);

    must(key && *key && path_key_ok(key, PATH_KEY_MAX));
    must((a->has & ~(unsigned)(marker ? INDEX_MARKER_ATTRS : INDEX_ATTRS)) == 0);
    must(!(a->has & ATTR_MODE) || marker || !S_ISDIR(a->mode));
    must(!(a->has & ATTR_MODE) || !marker || S_ISDIR(a->mode) || !(a->mode & S_IFMT));
    must(!(a->has & ATTR_TARGET));
    must(!(a->has & ATTR_MODE) ||
         (!(a->mode & (S_ISUID | S_ISGID)) &&
          (!(a->mode & S_IFMT) || S_ISREG(a->mode) || S_ISDIR(a->mode))));
}

static void check_same(const struct index *x, const struct index *y)
{
    struct index_entry *e, *next;

    must(HASH_COUNT(x->entries) == HASH_COUNT(y->entries));
    HASH_ITER(hh, x->entries, e, next)
    {
        struct index_entry *f = index_find(y, e->name);
        check_entry(e);
        must(f && f->size == e->size && f->modified_ns == e->modified_ns &&
             strcmp(f->etag, e->etag) == 0 && index_attrs_equal(&f->attrs, &e->attrs));
    }
}

static void check_part(const char *text, size_t len)
{
    auto_buf struct buf again = BUF_INIT(INDEX_BYTES_MAX);
    struct index_part x, y;
    const char *end;

    if (index_part_parse(text, len, "d", &x) < 0)
        return;
    for (size_t i = 0; i < x.n_starts; i++) {
        must(i == 0 || strcmp(x.starts[i - 1], x.starts[i]) < 0);
        must(strcmp(index_part_of(&x, x.starts[i], &end), x.starts[i]) == 0);
    }
    index_part_sort(&x);
    must(index_part_format(&x, "d", &again) == 0);
    must(index_part_parse(again.data, again.len, "d", &y) == 0);
    must(x.n_starts == y.n_starts);
    check_same(&x.files, &y.files);
    index_part_release(&x);
    index_part_release(&y);
}

static void check(const char *text, size_t len)
{
    auto_buf struct buf again = BUF_INIT(INDEX_BYTES_MAX);
    struct index_entry *e, *next;
    struct index x, y;

    if (index_parse(text, len, "d", &x) < 0)
        return;
    HASH_ITER(hh, x.entries, e, next)
    {
        must(!strchr(e->name, '/'));
    }
    must(index_format(&x, "d", &again) == 0);
    must(index_parse(again.data, again.len, "d", &y) == 0);
    check_same(&x, &y);
    index_release(&x);
    index_release(&y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_buf struct buf text = BUF_INIT(1 << 20);

    if (size == 0 || size > 1 << 16)
        return 0;
    bool part = data[0] & 4;
    if (data[0] % 4 == 0) {
        (part ? check_part : check)((const char *)data + 1, size - 1);
        return 0;
    }
    auto_buf struct buf body = BUF_INIT(1 << 20);
    if (buf_adds(&body, "=d\n") < 0 || buf_add(&body, data + 1, size - 1) < 0)
        return 0;
    const char *what = part               ? data[0] % 8 == 5 ? "trees 1" : "trees 2"
                       : data[0] % 8 == 1 ? "attrs 1"
                                          : "attrs 2";
    if (buf_addf(&text, "runfs-%s %08" PRIx32 "\n", what, crc32c(0, body.data, body.len)) < 0 ||
        buf_add(&text, body.data, body.len) < 0)
        return 0;
    (part ? check_part : check)(text.data, text.len);
    return 0;
}
