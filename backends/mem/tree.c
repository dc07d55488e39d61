/* The content of a mem: store: counted blobs under a sorted set of keys. */
#include "backends/mem/tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK (UINT64_C(256) << 10) /* between two looks at the deadline */

/* ---- blobs ---- */

struct mem_blob *mem_blob_new(uint64_t size)
{
    struct mem_blob *b = size > SIZE_MAX / 2 ? NULL : malloc(sizeof(*b) + size);

    if (b) {
        atomic_init(&b->refs, 1);
        b->size = size;
    }
    return b;
}

struct mem_blob *mem_blob_ref(struct mem_blob *b)
{
    atomic_fetch_add(&b->refs, 1);
    return b;
}

void mem_blob_unref(struct mem_blob *b)
{
    if (b && atomic_fetch_sub(&b->refs, 1) == 1)
        free(b);
}

static int blob_fill(struct mem_blob *b, struct op *op, struct source *src)
{
    for (uint64_t off = 0; off < b->size;) {
        uint64_t want = b->size - off < CHUNK ? b->size - off : CHUNK;
        int r = op_check(op);
        if (r < 0)
            return r;
        ssize_t n = src->pread(src, b->data + off, want, off);
        if (n < 0)
            return op_fail(op, (int)n, "the source can't be read: %s", strerror((int)-n));
        if (n == 0)
            return op_fail(op, -EBUSY, "the source ends after %llu of %llu bytes",
                           (unsigned long long)off, (unsigned long long)b->size);
        off += (uint64_t)n;
    }
    return 0;
}

int mem_blob_from_source(struct op *op, struct source *src, struct mem_blob **ret)
{
    struct mem_blob *b = mem_blob_new(src->size);
    if (!b)
        return op_fail(op, -ENOMEM, "no memory for %llu bytes", (unsigned long long)src->size);

    int r = blob_fill(b, op, src);
    if (r < 0)
        mem_blob_unref(b);
    else
        *ret = b;
    return r;
}

/* ---- the sorted keys ---- */

void mem_entry_free(struct mem_entry *e)
{
    if (!e)
        return;
    mem_blob_unref(e->blob);
    attrs_release(&e->attrs);
    free(e->key);
    free(e);
}

size_t mem_lower_bound_locked(struct mem_tree *t, const char *key) REQUIRES(&t->lock)
{
    size_t low = 0, high = t->n_entries;

    mutex_assert_held(&t->lock);
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (strcmp(t->entry[mid]->key, key) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct mem_entry *mem_find_locked(struct mem_tree *t, const char *key) REQUIRES(&t->lock)
{
    size_t i = mem_lower_bound_locked(t, key);

    mutex_assert_held(&t->lock);
    return i < t->n_entries && strcmp(t->entry[i]->key, key) == 0 ? t->entry[i] : NULL;
}

int mem_insert_locked(struct mem_tree *t, struct mem_entry *e) REQUIRES(&t->lock)
{
    size_t i = mem_lower_bound_locked(t, e->key);

    mutex_assert_held(&t->lock);
    if (i < t->n_entries && strcmp(t->entry[i]->key, e->key) == 0) {
        mem_entry_free(t->entry[i]);
        t->entry[i] = e;
        return 0;
    }
    if (t->n_entries == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 64;
        struct mem_entry **grown = realloc(t->entry, cap * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        t->entry = grown;
        t->cap = cap;
    }
    memmove(t->entry + i + 1, t->entry + i, (t->n_entries - i) * sizeof(*t->entry));
    t->entry[i] = e;
    t->n_entries++;
    return 0;
}

struct mem_entry *mem_take_out_locked(struct mem_tree *t, const char *key) REQUIRES(&t->lock)
{
    size_t i = mem_lower_bound_locked(t, key);

    mutex_assert_held(&t->lock);
    if (i == t->n_entries || strcmp(t->entry[i]->key, key) != 0)
        return NULL;
    struct mem_entry *e = t->entry[i];
    t->n_entries--;
    memmove(t->entry + i, t->entry + i + 1, (t->n_entries - i) * sizeof(*t->entry));
    return e;
}

char *mem_dir_prefix(const char *key)
{
    char *prefix;

    if (!key[0])
        return strdup("");
    return asprintf(&prefix, "%s/", key) < 0 ? NULL : prefix;
}

bool mem_begins_with(const char *key, const char *prefix)
{
    return strncmp(key, prefix, strlen(prefix)) == 0;
}

int mem_dir_keys_locked(struct mem_tree *t, const char *prefix) REQUIRES(&t->lock)
{
    size_t i = mem_lower_bound_locked(t, prefix);
    int n = 0;

    mutex_assert_held(&t->lock);
    for (; n < 2 && i < t->n_entries && mem_begins_with(t->entry[i]->key, prefix); i++)
        n++;
    return n;
}

/* ---- objects ---- */

static void etag_of(const struct mem_entry *e, char etag[STORE_ETAG_MAX])
{
    (void)snprintf(etag, STORE_ETAG_MAX, "%llx", (unsigned long long)e->version);
}

int mem_describe(const struct mem_entry *e, bool is_dir, struct object *ret)
{
    struct object obj = {.is_prefix = is_dir, .attrs_known = true, .told_ns = clock_real_ns()};

    if (e) {
        obj.size = e->blob->size;
        obj.mtime_ns = e->mtime_ns;
        obj.has_marker = is_dir;
        obj.checksum = e->checksum;
        etag_of(e, obj.etag);
        int r = attrs_copy(&obj.attrs, &e->attrs);
        if (r < 0)
            return r;
    }
    *ret = obj;
    return 0;
}

static int stale(struct op *op, const char *key, const char *etag, const char *found)
{
    return op_fail(op, -ESTALE, "%.200s is version \"%s\", not \"%s\"", key, found, etag);
}

int mem_check_version(struct op *op, const char *key, const struct mem_entry *e,
                      const char *etag)
{
    char found[STORE_ETAG_MAX] = "";

    if (!etag)
        return 0;
    if (e)
        etag_of(e, found);
    return strcmp(found, etag) == 0 ? 0 : stale(op, key, etag, found);
}

static struct mem_entry *entry_new(const char *key, const struct attrs *attrs)
{
    struct mem_entry *e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;

    e->key = strdup(key);
    e->mtime_ns = clock_real_ns();
    if (!e->key || (attrs && attrs_copy(&e->attrs, attrs) < 0)) {
        mem_entry_free(e);
        return NULL;
    }
    return e;
}

int mem_store_blob_locked(struct mem_tree *t, struct op *op, const char *key,
                          struct mem_blob *blob, const struct attrs *attrs,
                          struct object *ret_obj) REQUIRES(&t->lock)
{
    struct mem_entry *e = entry_new(key, attrs);
    struct object obj;

    mutex_assert_held(&t->lock);
    if (!e) {
        mem_blob_unref(blob);
        return op_fail(op, -ENOMEM, "no memory for %.200s", key);
    }
    e->blob = blob;
    e->checksum.kind = CHECKSUM_CRC32C;
    checksum_add(&e->checksum, blob->data, blob->size);
    e->version = t->by_content ? e->checksum.value << 32 | blob->size : ++t->clock;
    int r = mem_describe(e, false, &obj);
    if (!r)
        r = mem_insert_locked(t, e);
    if (r < 0) {
        mem_entry_free(e);
        return op_fail(op, r, "no memory for %.200s", key);
    }
    if (ret_obj)
        *ret_obj = obj;
    else
        object_release(&obj);
    return 0;
}

/* ---- trees ---- */

static struct mutex named_lock = {.m = PTHREAD_MUTEX_INITIALIZER};
static struct mem_tree *named GUARDED_BY(named_lock);

void mem_tree_free(struct mem_tree *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_entries; i++)
        mem_entry_free(t->entry[i]);
    mem_upload_end_all(t);
    free(t->entry);
    free(t->name);
    mutex_destroy(&t->lock);
    free(t);
}

static struct mem_tree *tree_new(const char *name, size_t len)
{
    struct mem_tree *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;

    mutex_init(&t->lock);
    t->name = len ? strndup(name, len) : NULL;
    if (len && !t->name) {
        mem_tree_free(t);
        return NULL;
    }
    return t;
}

struct mem_tree *mem_tree_get(const char *name, size_t len)
{
    struct mem_tree *t;

    if (len == 0)
        return tree_new(name, 0);
    mutex_lock(&named_lock);
    for (t = named; t; t = t->next)
        if (strlen(t->name) == len && memcmp(t->name, name, len) == 0)
            break;
    if (!t && (t = tree_new(name, len))) {
        t->next = named;
        named = t;
    }
    mutex_unlock(&named_lock);
    return t;
}
