/* mem: a store in memory, the reference of what store.h promises. It is an object store: a
 * flat, sorted set of keys, where a directory is implied by the keys below it and, to exist
 * empty, has a marker of its own named "dir/".
 *
 * "mem:" is a fresh store; "mem:NAME" is one store for all who open it in this process, and it
 * keeps its content when it is closed. "?s3" behind either takes away what S3 lacks: rename,
 * attributes in listings, and versions that tell the same content put twice apart.
 *
 * Content is immutable and counted (struct mem_blob), so nothing is copied, read or delivered
 * under the lock; a listing copies a page and visits it unlocked. */
#include "backends/mem/tree.h"

#include "backends/drivers.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PART_SIZE  (UINT64_C(8) << 20)
#define PART_MAX   (UINT64_C(5) << 30)
#define PARTS_MAX  10000
#define CHUNK      (UINT64_C(256) << 10) /* between two looks at the deadline */
#define PAGE_NAMES 256

struct mem_store {
    struct store base;
    struct store_ops ops; /* base.ops: without rename when it is like S3 */
    struct mem_tree *tree;
};

struct mem_tree *mem_tree(struct store *s)
{
    return container_of(s, struct mem_store, base)->tree;
}

static int mem_stat_locked(struct mem_tree *t, const char *key, struct object *ret_obj)
    REQUIRES(&t->lock)
{
    struct mem_entry *e = key[0] ? mem_find_locked(t, key) : NULL;

    mutex_assert_held(&t->lock);
    if (e)
        return mem_describe(e, false, ret_obj);

    auto_free char *prefix = mem_dir_prefix(key);
    if (!prefix)
        return -ENOMEM;
    if (key[0] && mem_dir_keys_locked(t, prefix) == 0)
        return -ENOENT;
    return mem_describe(mem_find_locked(t, prefix), true, ret_obj);
}

static int mem_stat_dir(struct store *s, struct op *op, const char *key, struct object *ret_obj)
{
    struct mem_tree *t = mem_tree(s);
    auto_free char *prefix = mem_dir_prefix(key);

    int r = prefix ? op_check(op) : -ENOMEM;
    if (r < 0)
        return r;
    mutex_lock(&t->lock);
    struct mem_entry *e = mem_find_locked(t, prefix);
    r = e ? mem_describe(e, true, ret_obj) : -ENOENT;
    mutex_unlock(&t->lock);
    return r;
}

static int mem_stat(struct store *s, struct op *op, const char *key, struct object *ret_obj)
{
    struct mem_tree *t = mem_tree(s);

    int r = op_check(op);
    if (r < 0)
        return r;
    mutex_lock(&t->lock);
    r = mem_stat_locked(t, key, ret_obj);
    mutex_unlock(&t->lock);
    return r;
}

/* ---- listing ---- */

struct page {
    struct {
        char *name;
        struct object obj;
    } item[PAGE_NAMES];
    size_t n;
    char *next; /* where the next page begins; NULL after the last */
};

static void page_clear(struct page *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->item[i].name);
        object_release(&p->item[i].obj);
    }
    p->n = 0;
    free(take_ptr(p->next));
}

static int page_add(struct page *p, const char *name, size_t len, const struct mem_entry *e,
                    bool is_dir, bool with_attrs)
{
    struct object *obj = &p->item[p->n].obj;

    int r = mem_describe(e, is_dir, obj);
    if (r < 0)
        return r;
    p->item[p->n].name = strndup(name, len);
    if (!p->item[p->n].name) {
        object_release(obj);
        return -ENOMEM;
    }
    if (!with_attrs) {
        object_release(obj);
        obj->attrs_known = false;
    }
    p->n++;
    return 0;
}

/* Visits in one page what stands at index *i, and moves *i behind it. */
static int page_add_at_locked(struct page *p, struct mem_tree *t, size_t *i, const char *prefix,
                              unsigned flags, bool with_attrs) REQUIRES(&t->lock)
{
    const struct mem_entry *e = t->entry[*i];
    const char *name = e->key + strlen(prefix);
    const char *slash = strchr(name, '/');

    mutex_assert_held(&t->lock);
    if (!name[0] || name[0] == '/') { /* the marker of the listed directory itself */
        ++*i;
        bool self = (flags & LIST_SELF) && prefix[0] && !name[0];
        return self ? page_add(p, "", 0, e, true, with_attrs) : 0;
    }
    if (!slash) {
        ++*i;
        return page_add(p, name, strlen(name), e, false, with_attrs);
    }
    if (flags & LIST_RECURSIVE) {
        size_t len = strlen(name);
        bool marker = name[len - 1] == '/';
        ++*i;
        return page_add(p, name, len - marker, e, marker, with_attrs);
    }
    auto_free char *subdir = strndup(e->key, (size_t)(slash + 1 - e->key));
    if (!subdir)
        return -ENOMEM;
    int r =
        page_add(p, name, (size_t)(slash - name), mem_find_locked(t, subdir), true, with_attrs);
    subdir[strlen(subdir) - 1] = '/' + 1; /* behind all keys of the directory */
    *i = mem_lower_bound_locked(t, subdir);
    return r;
}

static int page_fill_locked(struct page *p, struct mem_tree *t, const char *prefix,
                            const char *start, unsigned flags, bool with_attrs)
    REQUIRES(&t->lock)
{
    size_t i = mem_lower_bound_locked(t, start);

    mutex_assert_held(&t->lock);
    while (i < t->n_entries && mem_begins_with(t->entry[i]->key, prefix)) {
        if (!prefix[0] && path_below(STORE_STATE_DIR, t->entry[i]->key)) {
            i++; /* it is in no listing of the root */
            continue;
        }
        if (p->n == PAGE_NAMES) {
            p->next = strdup(t->entry[i]->key);
            return p->next ? 0 : -ENOMEM;
        }
        int r = page_add_at_locked(p, t, &i, prefix, flags, with_attrs);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Not above any key that is to be listed: the least byte in a key is 1. */
static char *first_key(const char *prefix, const char *after)
{
    char *key = NULL;

    return asprintf(&key, "%s%s%s", prefix, after ? after : "", after ? "\001" : "") < 0 ? NULL
                                                                                         : key;
}

static int mem_list(struct store *s, struct op *op, const char *dir, unsigned flags,
                    const char *after, store_visit visit, void *arg)
{
    struct mem_tree *t = mem_tree(s);
    auto_free char *prefix = mem_dir_prefix(dir);
    auto_free char *start = prefix ? first_key(prefix, after) : NULL;
    auto_free struct page *p = calloc(1, sizeof(*p));
    int r = prefix && start && p ? 0 : -ENOMEM;

    while (!r && start) {
        r = op_check(op);
        if (r < 0)
            return r;
        mutex_lock(&t->lock);
        r = page_fill_locked(p, t, prefix, start, flags, s->facts.caps & STORE_LIST_ATTRS);
        mutex_unlock(&t->lock);
        for (size_t i = 0; i < p->n && !r; i++)
            r = visit(arg, p->item[i].name, &p->item[i].obj);
        free(start);
        start = take_ptr(p->next);
        page_clear(p);
    }
    return r;
}

/* ---- content ---- */

static int mem_open_blob(struct mem_tree *t, struct op *op, const char *key, const char *etag,
                         struct mem_blob **ret, struct object *ret_obj)
{
    int r;

    mutex_lock(&t->lock);
    struct mem_entry *e = mem_find_locked(t, key);
    if (!e)
        r = op_fail(op, -ENOENT, "%.200s is not there", key);
    else
        r = mem_check_version(op, key, e, etag);
    if (!r)
        r = mem_describe(e, false, ret_obj);
    if (!r)
        *ret = mem_blob_ref(e->blob);
    mutex_unlock(&t->lock);
    return r;
}

static int deliver(struct op *op, const struct mem_blob *b, struct sink *sink, size_t len,
                   uint64_t off)
{
    int r = op_check(op);

    while (len && !r) {
        size_t n = len < CHUNK ? len : CHUNK;
        r = sink->write(sink, b->data + off, n, off);
        off += n;
        len -= n;
        if (!r)
            r = op_check(op);
    }
    return r;
}

static ssize_t mem_read(struct store *s, struct op *op, const char *key, const char *etag,
                        struct sink *sink, size_t len, uint64_t off, struct object *ret_obj)
{
    struct object obj;
    struct mem_blob *b = NULL;

    int r = mem_open_blob(mem_tree(s), op, key, etag, &b, &obj);
    if (r)
        return r;
    if (off >= b->size)
        len = 0;
    else if (len > b->size - off)
        len = b->size - off;
    r = deliver(op, b, sink, len, off);
    mem_blob_unref(b);
    if (r >= 0 && ret_obj)
        *ret_obj = obj;
    else
        object_release(&obj);
    return r < 0 ? r : (ssize_t)len;
}

static int mem_put(struct store *s, struct op *op, const char *key, const char *etag,
                   struct source *src, const struct attrs *attrs, struct object *ret_obj)
{
    struct mem_tree *t = mem_tree(s);
    struct mem_blob *b = NULL;

    int r = mem_blob_from_source(op, src, &b);
    if (r < 0)
        return r;
    mutex_lock(&t->lock);
    r = mem_check_version(op, key, mem_find_locked(t, key), etag);
    if (r < 0)
        mem_blob_unref(b);
    else
        r = mem_store_blob_locked(t, op, key, b, attrs, ret_obj);
    mutex_unlock(&t->lock);
    return r;
}

static int mem_copy_locked(struct mem_tree *t, struct op *op, const char *from,
                           const char *from_etag, const char *to, const char *to_etag,
                           const struct attrs *attrs, struct object *ret_obj) REQUIRES(&t->lock)
{
    struct mem_entry *e = mem_find_locked(t, from);
    struct attrs kept;

    mutex_assert_held(&t->lock);
    if (!e)
        return op_fail(op, -ENOENT, "%.200s is not there", from);
    int r = mem_check_version(op, from, e, from_etag);
    if (!r)
        r = mem_check_version(op, to, mem_find_locked(t, to), to_etag);
    if (!r)
        r = attrs_copy(&kept, attrs ? attrs : &e->attrs); /* insert may free `e` */
    if (r < 0)
        return r;
    r = mem_store_blob_locked(t, op, to, mem_blob_ref(e->blob), &kept, ret_obj);
    attrs_release(&kept);
    return r;
}

static int mem_copy(struct store *s, struct op *op, const char *from, const char *from_etag,
                    const char *to, const char *to_etag, const struct attrs *attrs,
                    struct object *ret_obj)
{
    struct mem_tree *t = mem_tree(s);

    int r = op_check(op);
    if (r < 0)
        return r;
    mutex_lock(&t->lock);
    r = mem_copy_locked(t, op, from, from_etag, to, to_etag, attrs, ret_obj);
    mutex_unlock(&t->lock);
    return r;
}

/* ---- names ---- */

static int rename_entry_locked(struct mem_tree *t, const char *from, const char *to)
    REQUIRES(&t->lock)
{
    char *key = strdup(to);

    mutex_assert_held(&t->lock);
    if (!key)
        return -ENOMEM;

    struct mem_entry *e = mem_take_out_locked(t, from);
    free(e->key);
    e->key = key;
    return mem_insert_locked(t, e); /* has room: one entry was taken out */
}

/* The keys below a directory, its marker too; n of them, heap. */
static char **keys_below_locked(struct mem_tree *t, const char *prefix, size_t *ret_n)
    REQUIRES(&t->lock)
{
    size_t first = mem_lower_bound_locked(t, prefix), n = 0;

    mutex_assert_held(&t->lock);
    while (first + n < t->n_entries && mem_begins_with(t->entry[first + n]->key, prefix))
        n++;
    char **keys = calloc(n + 1, sizeof(*keys));
    for (size_t i = 0; keys && i < n; i++)
        keys[i] = strdup(t->entry[first + i]->key);
    *ret_n = n;
    return keys;
}

static int rename_dir_locked(struct mem_tree *t, struct op *op, const char *from,
                             const char *to) REQUIRES(&t->lock)
{
    auto_free char *from_dir = mem_dir_prefix(from);
    auto_free char *to_dir = mem_dir_prefix(to);
    size_t n;
    int r = 0;

    mutex_assert_held(&t->lock);
    if (!from_dir || !to_dir)
        return -ENOMEM;
    if (mem_dir_keys_locked(t, from_dir) == 0)
        return op_fail(op, -ENOENT, "%.200s is not there", from);
    if (mem_find_locked(t, to))
        return op_fail(op, -ENOTDIR, "%.200s is an object", to);
    if (strcmp(from, to) == 0)
        return 0;
    if (mem_dir_keys_locked(t, to_dir) > (mem_find_locked(t, to_dir) ? 1 : 0))
        return op_fail(op, -ENOTEMPTY, "%.200s is not empty", to);
    mem_entry_free(mem_take_out_locked(t, to_dir));
    char **keys = keys_below_locked(t, from_dir, &n);
    for (size_t i = 0; keys && i < n; i++) {
        auto_free char *key = NULL;
        if (keys[i] && asprintf(&key, "%s%s", to_dir, keys[i] + strlen(from_dir)) >= 0)
            r = rename_entry_locked(t, keys[i], key);
        else
            r = -ENOMEM;
        free(keys[i]);
    }
    free(keys);
    return keys ? r : -ENOMEM;
}

static int rename_object_locked(struct mem_tree *t, struct op *op, const char *from,
                                const char *to) REQUIRES(&t->lock)
{
    auto_free char *to_dir = mem_dir_prefix(to);

    mutex_assert_held(&t->lock);
    if (!to_dir)
        return -ENOMEM;
    if (strcmp(from, to) == 0)
        return 0;
    if (!mem_find_locked(t, to) && mem_dir_keys_locked(t, to_dir) > 0)
        return op_fail(op, -EISDIR, "%.200s is a directory", to);
    return rename_entry_locked(t, from, to);
}

static int mem_rename(struct store *s, struct op *op, const char *from, const char *to)
{
    struct mem_tree *t = mem_tree(s);

    int r = op_check(op);
    if (r < 0)
        return r;
    mutex_lock(&t->lock);
    if (mem_find_locked(t, from))
        r = rename_object_locked(t, op, from, to);
    else
        r = rename_dir_locked(t, op, from, to);
    mutex_unlock(&t->lock);
    return r;
}

static int mem_remove(struct store *s, struct op *op, const char *const *keys,
                      const char *const *etags, size_t n, int *errs)
{
    struct mem_tree *t = mem_tree(s);
    int first = 0;

    int r = op_check(op);
    if (r < 0)
        return r;
    mutex_lock(&t->lock);
    for (size_t i = 0; i < n; i++) {
        struct mem_entry *e = mem_find_locked(t, keys[i]);
        r = e && etags ? mem_check_version(op, keys[i], e, etags[i]) : 0;
        if (!r)
            mem_entry_free(mem_take_out_locked(t, keys[i]));
        if (errs)
            errs[i] = r;
        first = first ? first : r;
    }
    mutex_unlock(&t->lock);
    return first;
}

static int mem_mkdir(struct store *s, struct op *op, const char *key, const struct attrs *attrs,
                     struct object *ret_obj)
{
    struct mem_tree *t = mem_tree(s);
    auto_free char *marker = mem_dir_prefix(key);
    struct mem_blob *empty = mem_blob_new(0);
    static const struct attrs none;

    int r = op_check(op);
    if (!marker || !empty)
        r = -ENOMEM;
    if (r < 0 || !key[0]) {
        if (r == 0 && ret_obj)
            *ret_obj = (struct object){.is_prefix = true};
        mem_blob_unref(empty);
        return r;
    }
    mutex_lock(&t->lock);
    struct mem_entry *e = mem_find_locked(t, marker);
    struct attrs kept;
    r = attrs_copy(&kept, attrs ? attrs : e ? &e->attrs : &none);
    if (!r) {
        r = mem_store_blob_locked(t, op, marker, take_ptr(empty), &kept, ret_obj);
        attrs_release(&kept);
    }
    mutex_unlock(&t->lock);
    mem_blob_unref(empty);
    return r;
}

static int mem_rmdir(struct store *s, struct op *op, const char *key)
{
    struct mem_tree *t = mem_tree(s);
    auto_free char *marker = mem_dir_prefix(key);

    int r = op_check(op);
    if (r < 0)
        return r;
    if (!marker)
        return op_fail(op, -ENOMEM, "no memory");
    mutex_lock(&t->lock);
    mem_entry_free(mem_take_out_locked(t, marker));
    mutex_unlock(&t->lock);
    return 0;
}

static int set_attributes_locked(struct mem_tree *t, struct op *op, const char *key,
                                 const char *etag, const struct attrs *attrs,
                                 struct object *ret_obj) REQUIRES(&t->lock)
{
    auto_free char *marker = mem_dir_prefix(key);
    struct mem_entry *e = mem_find_locked(t, key);
    const char *real = e ? key : marker;

    mutex_assert_held(&t->lock);
    if (!marker)
        return -ENOMEM;
    if (!e)
        e = mem_find_locked(t, marker);
    if (!e && mem_dir_keys_locked(t, marker) == 0 && key[0])
        return op_fail(op, -ENOENT, "%.200s is not there", key);
    int r = mem_check_version(op, key, e, etag);
    if (r < 0)
        return r;
    struct mem_blob *b = e ? mem_blob_ref(e->blob) : mem_blob_new(0);
    if (!b)
        return -ENOMEM;
    r = mem_store_blob_locked(t, op, real, b, attrs, ret_obj);
    if (!r && ret_obj)
        ret_obj->is_prefix = ret_obj->has_marker = real == marker;
    return r;
}

static int mem_set_attributes(struct store *s, struct op *op, const char *key, const char *etag,
                              const struct attrs *attrs, struct object *ret_obj)
{
    struct mem_tree *t = mem_tree(s);

    int r = op_check(op);
    if (r < 0)
        return r;
    if (!key[0])
        return op_fail(op, -EOPNOTSUPP, "the root of a mem: store keeps no attributes");
    mutex_lock(&t->lock);
    r = set_attributes_locked(t, op, key, etag, attrs, ret_obj);
    mutex_unlock(&t->lock);
    return r;
}

/* ---- opening and closing ---- */

static void mem_close(struct store *s)
{
    struct mem_store *m = container_of(s, struct mem_store, base);

    if (m->tree && !m->tree->name)
        mem_tree_free(m->tree);
    free(s->url);
    free(m);
}

static const struct store_ops mem_ops = {
    .name = "mem",
    .stat = mem_stat,
    .stat_dir = mem_stat_dir,
    .list = mem_list,
    .read = mem_read,
    .put = mem_put,
    .upload_begin = mem_upload_begin,
    .upload_part = mem_upload_part,
    .upload_commit = mem_upload_commit,
    .upload_abort = mem_upload_abort,
    .upload_detach = mem_upload_detach,
    .upload_token = mem_upload_token,
    .upload_resume = mem_upload_resume,
    .upload_has = mem_upload_has,
    .copy = mem_copy,
    .rename = mem_rename,
    .remove = mem_remove,
    .mkdir = mem_mkdir,
    .rmdir = mem_rmdir,
    .set_attributes = mem_set_attributes,
    .close = mem_close,
};

#define CAPS_S3                                                                                \
    (STORE_IF_MATCH | STORE_PARTS | STORE_COPY | STORE_ATTRS | STORE_ORIGIN | STORE_STATE |    \
     STORE_CHECKSUM | STORE_ORDER | STORE_ACLS)

/* The length of the name in the URL; -EINVAL for what is behind it but "?s3". */
static int split_url(const char *url, struct op *op, const char **ret_name, size_t *ret_len)
{
    *ret_name = url + strlen("mem:");
    *ret_len = strcspn(*ret_name, "?");
    const char *rest = *ret_name + *ret_len;
    if (*rest && strcmp(rest, "?s3") != 0)
        return op_fail(op, -EINVAL,
                       "\"%.100s\": found \"%.100s\", expected mem:NAME or mem:NAME?s3", url,
                       rest);
    return 0;
}

int mem_store_new(const char *url, const struct store_config *config, struct op *op,
                  struct store **ret)
{
    const char *name;
    size_t len;
    int r = split_url(url, op, &name, &len);

    (void)config;
    if (r < 0)
        return r;
    bool like_s3 = name[len] == '?';
    struct mem_store *m = calloc(1, sizeof(*m));
    if (!m)
        return op_fail(op, -ENOMEM, "no memory to open a store");
    m->ops = mem_ops;
    if (like_s3)
        m->ops.rename = NULL;
    m->base = (struct store){
        .ops = &m->ops,
        .facts = {.caps = like_s3 ? CAPS_S3 : CAPS_S3 | STORE_RENAME | STORE_LIST_ATTRS,
                  .part_size = PART_SIZE,
                  .part_min = 1,
                  .part_max = PART_MAX,
                  .parts_max = PARTS_MAX,
                  .put_max = PART_MAX,
                  .size_max = INT64_MAX,
                  .key_max = STORE_KEY_MAX - 1},
        .url = strdup(url),
    };
    m->tree = mem_tree_get(name, len);
    if (!m->base.url || !m->tree) {
        mem_close(&m->base);
        return op_fail(op, -ENOMEM, "no memory to open a store");
    }
    mutex_lock(&m->tree->lock);
    m->tree->by_content = like_s3;
    mutex_unlock(&m->tree->lock);
    *ret = &m->base;
    return 0;
}

/* ---- where it is ---- */

int mem_where(const char *url, const struct store_config *config, struct op *op,
              struct store_where *ret)
{
    static atomic_uint fresh;
    const char *name;
    size_t len;
    int r = split_url(url, op, &name, &len), n;

    (void)config;
    if (r < 0)
        return r;
    if (len)
        n = asprintf(&ret->server, "mem:%.*s", (int)len, name);
    else /* another one each time; no name has a "?" */
        n = asprintf(&ret->server, "mem:?%u", atomic_fetch_add(&fresh, 1));
    if (n < 0)
        ret->server = NULL;
    ret->root = strdup("");
    return ret->server && ret->root ? 0 : op_fail(op, -ENOMEM, "out of memory");
}

int mem_key_of(const struct store_where *w, const char *url, struct op *op, char **ret_key)
{
    size_t len = strlen(w->server);

    if (strncmp(url, w->server, len) != 0 || (url[len] && url[len] != '/') ||
        !path_key_safe(url + len + (url[len] == '/'), STORE_KEY_MAX))
        return op_fail(op, -ENOENT, "%.200s is not in %s", url, w->server);
    *ret_key = strdup(url + len + (url[len] == '/'));
    return *ret_key ? 0 : op_fail(op, -ENOMEM, "out of memory");
}
