/* mem: a store in memory, the reference of what store.h promises. It is an object store: a
 * flat, sorted set of keys, where a directory is implied by the keys below it and, to exist
 * empty, has a marker of its own named "dir/".
 *
 * "mem:" is a fresh store; "mem:NAME" is one store for all who open it in this process, and it
 * keeps its content when it is closed. "?s3" behind either takes away what S3 lacks: rename,
 * and attributes in listings.
 *
 * Content is immutable and counted (struct blob), so nothing is copied, read or delivered under
 * the lock; a listing copies a page and visits it unlocked. */
#include "common/mem.h"
#include "backends/drivers.h"
#include "common/lock.h"
#include "common/path.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PART_SIZE  (UINT64_C(8) << 20)
#define PART_MAX   (UINT64_C(5) << 30)
#define PARTS_MAX  10000
#define CHUNK      (UINT64_C(256) << 10) /* between two looks at the deadline */
#define PAGE_NAMES 256

struct blob {
    atomic_uint refs;
    uint64_t size;
    char data[];
};

struct entry {
    char *key; /* of a directory's marker with "/" at the end */
    struct blob *blob;
    int64_t mtime_ns;
    uint64_t version;
    struct attrs attrs;
};

/* An upload in parts; lives in the tree until commit or abort. */
struct session {
    struct session *next;
    uint64_t id;
    char *key;
    struct attrs attrs;
    unsigned n_parts;   /* highest number */
    struct blob **part; /* by number - 1; NULL where there is none yet */
};

struct tree {
    struct tree *next;    /* of the named ones; never freed */
    char *name;           /* NULL for a store of its own */
    struct mutex lock;    /* guards what follows */
    struct entry **entry; /* sorted by key */
    size_t n_entries, cap;
    struct session *sessions;
    uint64_t clock; /* versions and session ids given out */
};

struct mem_store {
    struct store base;
    struct store_ops ops; /* base.ops: without rename when it is like S3 */
    struct tree *tree;
};

struct mem_upload {
    struct upload base;
    uint64_t session;
};

static struct tree *tree_of(struct store *s)
{
    return container_of(s, struct mem_store, base)->tree;
}

/* ---- blobs ---- */

static struct blob *blob_new(uint64_t size)
{
    struct blob *b = size > SIZE_MAX / 2 ? NULL : malloc(sizeof(*b) + size);

    if (b) {
        atomic_init(&b->refs, 1);
        b->size = size;
    }
    return b;
}

static struct blob *blob_ref(struct blob *b)
{
    atomic_fetch_add(&b->refs, 1);
    return b;
}

static void blob_unref(struct blob *b)
{
    if (b && atomic_fetch_sub(&b->refs, 1) == 1)
        free(b);
}

static int blob_fill(struct blob *b, struct op *op, struct source *src)
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
            return op_fail(op, -EIO, "the source ends after %llu of %llu bytes",
                           (unsigned long long)off, (unsigned long long)b->size);
        off += (uint64_t)n;
    }
    return 0;
}

static int blob_from_source(struct op *op, struct source *src, struct blob **ret)
{
    struct blob *b = blob_new(src->size);
    if (!b)
        return op_fail(op, -ENOMEM, "no memory for %llu bytes", (unsigned long long)src->size);

    int r = blob_fill(b, op, src);
    if (r < 0)
        blob_unref(b);
    else
        *ret = b;
    return r;
}

/* ---- the sorted keys ---- */

static void entry_free(struct entry *e)
{
    if (!e)
        return;
    blob_unref(e->blob);
    attrs_release(&e->attrs);
    free(e->key);
    free(e);
}

/* Index of the first entry not before `key`. */
static size_t lower_bound(const struct tree *t, const char *key)
{
    size_t low = 0, high = t->n_entries;

    while (low < high) {
        size_t mid = (low + high) / 2;
        if (strcmp(t->entry[mid]->key, key) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct entry *find(const struct tree *t, const char *key)
{
    size_t i = lower_bound(t, key);

    return i < t->n_entries && strcmp(t->entry[i]->key, key) == 0 ? t->entry[i] : NULL;
}

/* Takes `e`, in the place of an entry of the same key. */
static int insert(struct tree *t, struct entry *e)
{
    size_t i = lower_bound(t, e->key);

    if (i < t->n_entries && strcmp(t->entry[i]->key, e->key) == 0) {
        entry_free(t->entry[i]);
        t->entry[i] = e;
        return 0;
    }
    if (t->n_entries == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 64;
        struct entry **grown = realloc(t->entry, cap * sizeof(*grown));
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

/* Takes the entry out; the caller owns it. */
static struct entry *take_out(struct tree *t, const char *key)
{
    size_t i = lower_bound(t, key);

    if (i == t->n_entries || strcmp(t->entry[i]->key, key) != 0)
        return NULL;
    struct entry *e = t->entry[i];
    t->n_entries--;
    memmove(t->entry + i, t->entry + i + 1, (t->n_entries - i) * sizeof(*t->entry));
    return e;
}

/* "key/", or "" for the root: what keys below a directory begin with. Heap. */
static char *dir_prefix(const char *key)
{
    char *prefix;

    if (!key[0])
        return strdup("");
    return asprintf(&prefix, "%s/", key) < 0 ? NULL : prefix;
}

static bool begins_with(const char *key, const char *prefix)
{
    return strncmp(key, prefix, strlen(prefix)) == 0;
}

/* How many keys, its marker among them, make the directory; 2 stands for more. */
static int dir_keys(const struct tree *t, const char *prefix)
{
    size_t i = lower_bound(t, prefix);
    int n = 0;

    for (; n < 2 && i < t->n_entries && begins_with(t->entry[i]->key, prefix); i++)
        n++;
    return n;
}

/* ---- objects ---- */

static void etag_of(const struct entry *e, char etag[STORE_ETAG_MAX])
{
    (void)snprintf(etag, STORE_ETAG_MAX, "%llx", (unsigned long long)e->version);
}

/* `e` NULL: a directory that only its children imply. */
static int describe(const struct entry *e, bool is_dir, struct object *ret)
{
    struct object obj = {.is_prefix = is_dir, .attrs_known = true};

    if (e) {
        obj.size = e->blob->size;
        obj.mtime_ns = e->mtime_ns;
        obj.has_marker = is_dir;
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

/* -ESTALE when `e` (NULL: absent) is not version `etag`. */
static int check_version(struct op *op, const char *key, const struct entry *e,
                         const char *etag)
{
    char found[STORE_ETAG_MAX] = "";

    if (!etag)
        return 0;
    if (e)
        etag_of(e, found);
    return strcmp(found, etag) == 0 ? 0 : stale(op, key, etag, found);
}

static struct entry *entry_new(const char *key, const struct attrs *attrs)
{
    struct entry *e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;

    e->key = strdup(key);
    e->mtime_ns = clock_real_ns();
    if (!e->key || (attrs && attrs_copy(&e->attrs, attrs) < 0)) {
        entry_free(e);
        return NULL;
    }
    return e;
}

/* Puts a new entry with `blob` (taken, also on failure) under `key`. */
static int store_blob_locked(struct tree *t, struct op *op, const char *key, struct blob *blob,
                             const struct attrs *attrs, struct object *ret_obj)
{
    struct entry *e = entry_new(key, attrs);
    struct object obj;

    mutex_assert_held(&t->lock);
    if (!e) {
        blob_unref(blob);
        return op_fail(op, -ENOMEM, "no memory for %.200s", key);
    }
    e->blob = blob;
    e->version = ++t->clock;
    int r = describe(e, false, &obj);
    if (!r)
        r = insert(t, e);
    if (r < 0) {
        entry_free(e);
        return op_fail(op, r, "no memory for %.200s", key);
    }
    if (ret_obj)
        *ret_obj = obj;
    else
        object_release(&obj);
    return 0;
}

static int mem_stat_locked(struct tree *t, const char *key, struct object *ret_obj)
{
    struct entry *e = key[0] ? find(t, key) : NULL;
    if (e)
        return describe(e, false, ret_obj);

    auto_free char *prefix = dir_prefix(key);
    if (!prefix)
        return -ENOMEM;
    if (key[0] && dir_keys(t, prefix) == 0)
        return -ENOENT;
    return describe(find(t, prefix), true, ret_obj);
}

static int mem_stat(struct store *s, struct op *op, const char *key, struct object *ret_obj)
{
    struct tree *t = tree_of(s);

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

static int page_add(struct page *p, const char *name, size_t len, const struct entry *e,
                    bool is_dir, bool with_attrs)
{
    struct object *obj = &p->item[p->n].obj;

    int r = describe(e, is_dir, obj);
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
static int page_add_at(struct page *p, const struct tree *t, size_t *i, const char *prefix,
                       unsigned flags, bool with_attrs)
{
    const struct entry *e = t->entry[*i];
    const char *name = e->key + strlen(prefix);
    const char *slash = strchr(name, '/');

    if (!name[0] || name[0] == '/') { /* the marker of the listed directory itself */
        ++*i;
        return 0;
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
    int r = page_add(p, name, (size_t)(slash - name), find(t, subdir), true, with_attrs);
    subdir[strlen(subdir) - 1] = '/' + 1; /* behind all keys of the directory */
    *i = lower_bound(t, subdir);
    return r;
}

static int page_fill_locked(struct page *p, struct tree *t, const char *prefix,
                            const char *start, unsigned flags, bool with_attrs)
{
    size_t i = lower_bound(t, start);

    mutex_assert_held(&t->lock);
    for (; i < t->n_entries && begins_with(t->entry[i]->key, prefix);) {
        if (p->n == PAGE_NAMES) {
            p->next = strdup(t->entry[i]->key);
            return p->next ? 0 : -ENOMEM;
        }
        int r = page_add_at(p, t, &i, prefix, flags, with_attrs);
        if (r < 0)
            return r;
    }
    return 0;
}

static int mem_list(struct store *s, struct op *op, const char *dir, unsigned flags,
                    store_visit visit, void *arg)
{
    struct tree *t = tree_of(s);
    auto_free char *prefix = dir_prefix(dir);
    auto_free char *start = prefix ? strdup(prefix) : NULL;
    auto_free struct page *p = calloc(1, sizeof(*p));
    int r = prefix && start && p ? 0 : -ENOMEM;

    while (!r && start) {
        r = op_check(op);
        if (r < 0)
            return r;
        mutex_lock(&t->lock);
        r = page_fill_locked(p, t, prefix, start, flags, s->caps & STORE_LIST_ATTRS);
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

static int mem_open_blob(struct tree *t, struct op *op, const char *key, const char *etag,
                         struct blob **ret, struct object *ret_obj)
{
    int r;

    mutex_lock(&t->lock);
    struct entry *e = find(t, key);
    if (!e)
        r = op_fail(op, -ENOENT, "%.200s is not there", key);
    else
        r = check_version(op, key, e, etag);
    if (!r)
        r = describe(e, false, ret_obj);
    if (!r)
        *ret = blob_ref(e->blob);
    mutex_unlock(&t->lock);
    return r;
}

static int deliver(struct op *op, const struct blob *b, struct sink *sink, size_t len,
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
    struct blob *b = NULL;

    int r = mem_open_blob(tree_of(s), op, key, etag, &b, &obj);
    if (r < 0)
        return r;
    if (off >= b->size)
        len = 0;
    else if (len > b->size - off)
        len = b->size - off;
    r = deliver(op, b, sink, len, off);
    blob_unref(b);
    if (r >= 0 && ret_obj)
        *ret_obj = obj;
    else
        object_release(&obj);
    return r < 0 ? r : (ssize_t)len;
}

static int mem_put(struct store *s, struct op *op, const char *key, const char *etag,
                   struct source *src, const struct attrs *attrs, struct object *ret_obj)
{
    struct tree *t = tree_of(s);
    struct blob *b = NULL;

    int r = blob_from_source(op, src, &b);
    if (r < 0)
        return r;
    mutex_lock(&t->lock);
    r = check_version(op, key, find(t, key), etag);
    if (r < 0)
        blob_unref(b);
    else
        r = store_blob_locked(t, op, key, b, attrs, ret_obj);
    mutex_unlock(&t->lock);
    return r;
}

static int mem_copy_locked(struct tree *t, struct op *op, const char *from,
                           const char *from_etag, const char *to, const char *to_etag,
                           const struct attrs *attrs, struct object *ret_obj)
{
    struct entry *e = find(t, from);
    struct attrs kept;

    mutex_assert_held(&t->lock);
    if (!e)
        return op_fail(op, -ENOENT, "%.200s is not there", from);
    int r = check_version(op, from, e, from_etag);
    if (!r)
        r = check_version(op, to, find(t, to), to_etag);
    if (!r)
        r = attrs_copy(&kept, attrs ? attrs : &e->attrs); /* insert may free `e` */
    if (r < 0)
        return r;
    r = store_blob_locked(t, op, to, blob_ref(e->blob), &kept, ret_obj);
    attrs_release(&kept);
    return r;
}

static int mem_copy(struct store *s, struct op *op, const char *from, const char *from_etag,
                    const char *to, const char *to_etag, const struct attrs *attrs,
                    struct object *ret_obj)
{
    struct tree *t = tree_of(s);

    int r = op_check(op);
    if (r < 0)
        return r;
    mutex_lock(&t->lock);
    r = mem_copy_locked(t, op, from, from_etag, to, to_etag, attrs, ret_obj);
    mutex_unlock(&t->lock);
    return r;
}

/* ---- uploads in parts ---- */

static void session_free(struct session *u)
{
    for (unsigned i = 0; i < u->n_parts; i++)
        blob_unref(u->part[i]);
    free(u->part);
    attrs_release(&u->attrs);
    free(u->key);
    free(u);
}

static struct session *session_find(struct tree *t, uint64_t id)
{
    struct session *u = t->sessions;

    while (u && u->id != id)
        u = u->next;
    return u;
}

static void session_end_locked(struct tree *t, uint64_t id)
{
    struct session **at = &t->sessions;

    mutex_assert_held(&t->lock);
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    struct session *u = *at;
    if (u) {
        *at = u->next;
        session_free(u);
    }
}

static struct mem_upload *upload_new(struct store *s, uint64_t session)
{
    struct mem_upload *up = calloc(1, sizeof(*up));

    if (up)
        *up = (struct mem_upload){{s}, session};
    return up;
}

static int mem_upload_begin(struct store *s, struct op *op, const char *key,
                            const struct attrs *attrs, struct upload **ret_up)
{
    struct tree *t = tree_of(s);
    struct session *u = calloc(1, sizeof(*u));
    struct mem_upload *up = upload_new(s, 0);

    if (u)
        u->key = strdup(key);
    if (!u || !up || !u->key || (attrs && attrs_copy(&u->attrs, attrs) < 0)) {
        if (u)
            session_free(u);
        free(up);
        return op_fail(op, -ENOMEM, "no memory for an upload");
    }
    mutex_lock(&t->lock);
    up->session = u->id = ++t->clock;
    u->next = t->sessions;
    t->sessions = u;
    mutex_unlock(&t->lock);
    *ret_up = &up->base;
    return 0;
}

static int session_gone(struct op *op)
{
    return op_fail(op, -ENOENT, "the upload session is gone");
}

static int session_reserve(struct session *u, unsigned number)
{
    if (number <= u->n_parts)
        return 0;
    struct blob **grown = realloc(u->part, number * sizeof(struct blob *));
    if (!grown)
        return -ENOMEM;
    memset(grown + u->n_parts, 0, (number - u->n_parts) * sizeof(struct blob *));
    u->part = grown;
    u->n_parts = number;
    return 0;
}

static int mem_upload_part(struct upload *base, struct op *op, unsigned number,
                           struct source *src)
{
    struct mem_upload *up = container_of(base, struct mem_upload, base);
    struct tree *t = tree_of(base->store);
    struct blob *b = NULL;

    int r = blob_from_source(op, src, &b);
    if (r < 0)
        return r;
    mutex_lock(&t->lock);
    struct session *u = session_find(t, up->session);
    r = u ? session_reserve(u, number) : session_gone(op);
    if (!r) {
        struct blob *old = u->part[number - 1];
        u->part[number - 1] = b;
        b = old;
    }
    mutex_unlock(&t->lock);
    blob_unref(b);
    return r;
}

/* One blob of all parts. */
static int session_join(const struct session *u, struct op *op, struct blob **ret)
{
    uint64_t size = 0, off = 0;

    for (unsigned i = 0; i < u->n_parts; i++) {
        if (!u->part[i])
            return op_fail(op, -EINVAL, "part %u of %u is missing", i + 1, u->n_parts);
        if (i + 1 < u->n_parts && u->part[i]->size != u->part[0]->size)
            return op_fail(op, -EINVAL, "part %u has another size", i + 1);
        size += u->part[i]->size;
    }
    if (u->n_parts == 0)
        return op_fail(op, -EINVAL, "no part was uploaded");

    struct blob *b = blob_new(size);
    if (!b)
        return op_fail(op, -ENOMEM, "no memory for %llu bytes", (unsigned long long)size);
    for (unsigned i = 0; i < u->n_parts; i++) {
        memcpy(b->data + off, u->part[i]->data, u->part[i]->size);
        off += u->part[i]->size;
    }
    *ret = b;
    return 0;
}

static int mem_commit_locked(struct tree *t, uint64_t id, struct op *op, const char *etag,
                             struct object *ret_obj)
{
    struct session *u = session_find(t, id);
    struct blob *b = NULL;

    mutex_assert_held(&t->lock);
    if (!u)
        return session_gone(op);
    int r = check_version(op, u->key, find(t, u->key), etag);
    if (!r)
        r = session_join(u, op, &b);
    if (!r)
        r = store_blob_locked(t, op, u->key, b, &u->attrs, ret_obj);
    if (!r)
        session_end_locked(t, id);
    return r;
}

static int mem_upload_commit(struct upload *base, struct op *op, const char *etag,
                             struct object *ret_obj)
{
    struct mem_upload *up = container_of(base, struct mem_upload, base);
    struct tree *t = tree_of(base->store);

    int r = op_check(op);
    if (r < 0)
        return r;
    mutex_lock(&t->lock);
    r = mem_commit_locked(t, up->session, op, etag, ret_obj);
    mutex_unlock(&t->lock);
    if (!r)
        free(up);
    return r;
}

static void mem_upload_detach(struct upload *base)
{
    free(container_of(base, struct mem_upload, base));
}

static int mem_upload_abort(struct upload *base, struct op *op)
{
    struct mem_upload *up = container_of(base, struct mem_upload, base);
    struct tree *t = tree_of(base->store);

    (void)op;
    mutex_lock(&t->lock);
    session_end_locked(t, up->session);
    mutex_unlock(&t->lock);
    free(up);
    return 0;
}

static char *mem_upload_token(struct upload *base)
{
    struct mem_upload *up = container_of(base, struct mem_upload, base);
    char *token;

    return asprintf(&token, "%llx", (unsigned long long)up->session) < 0 ? NULL : token;
}

/* The sizes of the session's parts (0: no such part, else size + 1). Heap. */
static int session_sizes(struct tree *t, struct op *op, uint64_t id, const char *key,
                         uint64_t **ret_sizes, unsigned *ret_n)
{
    uint64_t *sizes = NULL;
    int r = 0;

    mutex_lock(&t->lock);
    struct session *u = session_find(t, id);
    if (!u || strcmp(u->key, key) != 0)
        r = session_gone(op);
    else if (!(sizes = calloc(u->n_parts + 1, sizeof(*sizes))))
        r = op_fail(op, -ENOMEM, "no memory");
    for (unsigned i = 0; !r && i < u->n_parts; i++)
        sizes[i] = u->part[i] ? u->part[i]->size + 1 : 0;
    if (!r)
        *ret_n = u->n_parts;
    mutex_unlock(&t->lock);
    *ret_sizes = sizes;
    return r;
}

static int mem_upload_resume(struct store *s, struct op *op, const char *key, const char *token,
                             int (*visit)(void *arg, const struct part *part), void *arg,
                             struct upload **ret_up)
{
    uint64_t id = strtoull(token, NULL, 16);
    auto_free uint64_t *sizes = NULL;
    unsigned n;

    int r = session_sizes(tree_of(s), op, id, key, &sizes, &n);
    for (unsigned i = 0; !r && i < n; i++) {
        struct part part = {.number = i + 1, .size = sizes[i] - 1};
        if (sizes[i])
            r = visit(arg, &part);
    }
    if (r)
        return r;
    struct mem_upload *up = upload_new(s, id);
    if (!up)
        return op_fail(op, -ENOMEM, "no memory for an upload");
    *ret_up = &up->base;
    return 0;
}

/* ---- names ---- */

static int rename_entry(struct tree *t, const char *from, const char *to)
{
    char *key = strdup(to);
    if (!key)
        return -ENOMEM;

    struct entry *e = take_out(t, from);
    free(e->key);
    e->key = key;
    return insert(t, e); /* has room: one entry was taken out */
}

/* The keys below a directory, its marker too; n of them, heap. */
static char **keys_below(const struct tree *t, const char *prefix, size_t *ret_n)
{
    size_t first = lower_bound(t, prefix), n = 0;

    while (first + n < t->n_entries && begins_with(t->entry[first + n]->key, prefix))
        n++;
    char **keys = calloc(n + 1, sizeof(*keys));
    for (size_t i = 0; keys && i < n; i++)
        keys[i] = strdup(t->entry[first + i]->key);
    *ret_n = n;
    return keys;
}

static int rename_dir(struct tree *t, struct op *op, const char *from, const char *to)
{
    auto_free char *from_dir = dir_prefix(from);
    auto_free char *to_dir = dir_prefix(to);
    size_t n;
    int r = 0;

    if (!from_dir || !to_dir)
        return -ENOMEM;
    if (dir_keys(t, from_dir) == 0)
        return op_fail(op, -ENOENT, "%.200s is not there", from);
    if (find(t, to))
        return op_fail(op, -ENOTDIR, "%.200s is an object", to);
    if (strcmp(from, to) == 0)
        return 0;
    if (dir_keys(t, to_dir) > (find(t, to_dir) ? 1 : 0))
        return op_fail(op, -ENOTEMPTY, "%.200s is not empty", to);
    entry_free(take_out(t, to_dir));
    char **keys = keys_below(t, from_dir, &n);
    for (size_t i = 0; keys && i < n; i++) {
        auto_free char *key = NULL;
        if (keys[i] && asprintf(&key, "%s%s", to_dir, keys[i] + strlen(from_dir)) >= 0)
            r = rename_entry(t, keys[i], key);
        else
            r = -ENOMEM;
        free(keys[i]);
    }
    free(keys);
    return keys ? r : -ENOMEM;
}

static int rename_object(struct tree *t, struct op *op, const char *from, const char *to)
{
    auto_free char *to_dir = dir_prefix(to);

    if (!to_dir)
        return -ENOMEM;
    if (strcmp(from, to) == 0)
        return 0;
    if (!find(t, to) && dir_keys(t, to_dir) > 0)
        return op_fail(op, -EISDIR, "%.200s is a directory", to);
    return rename_entry(t, from, to);
}

static int mem_rename(struct store *s, struct op *op, const char *from, const char *to)
{
    struct tree *t = tree_of(s);

    int r = op_check(op);
    if (r < 0)
        return r;
    mutex_lock(&t->lock);
    if (find(t, from))
        r = rename_object(t, op, from, to);
    else
        r = rename_dir(t, op, from, to);
    mutex_unlock(&t->lock);
    return r;
}

static int mem_remove(struct store *s, struct op *op, const char *const *keys, size_t n,
                      int *errs)
{
    struct tree *t = tree_of(s);

    int r = op_check(op);
    if (r < 0)
        return r;
    mutex_lock(&t->lock);
    for (size_t i = 0; i < n; i++) {
        entry_free(take_out(t, keys[i]));
        if (errs)
            errs[i] = 0;
    }
    mutex_unlock(&t->lock);
    return 0;
}

static int mem_mkdir(struct store *s, struct op *op, const char *key, const struct attrs *attrs)
{
    struct tree *t = tree_of(s);
    auto_free char *marker = dir_prefix(key);
    struct blob *empty = blob_new(0);
    static const struct attrs none;

    int r = op_check(op);
    if (!marker || !empty)
        r = -ENOMEM;
    if (r < 0 || !key[0]) {
        blob_unref(empty);
        return r;
    }
    mutex_lock(&t->lock);
    struct entry *e = find(t, marker);
    struct attrs kept;
    r = attrs_copy(&kept, attrs ? attrs : e ? &e->attrs : &none);
    if (!r) {
        r = store_blob_locked(t, op, marker, take_ptr(empty), &kept, NULL);
        attrs_release(&kept);
    }
    mutex_unlock(&t->lock);
    blob_unref(empty);
    return r;
}

static int mem_rmdir(struct store *s, struct op *op, const char *key)
{
    struct tree *t = tree_of(s);
    auto_free char *marker = dir_prefix(key);

    int r = op_check(op);
    if (r < 0)
        return r;
    if (!marker)
        return op_fail(op, -ENOMEM, "no memory");
    mutex_lock(&t->lock);
    entry_free(take_out(t, marker));
    mutex_unlock(&t->lock);
    return 0;
}

static int set_attributes_locked(struct tree *t, struct op *op, const char *key,
                                 const char *etag, const struct attrs *attrs,
                                 struct object *ret_obj)
{
    auto_free char *marker = dir_prefix(key);
    struct entry *e = find(t, key);
    const char *real = e ? key : marker;

    mutex_assert_held(&t->lock);
    if (!marker)
        return -ENOMEM;
    if (!e)
        e = find(t, marker);
    if (!e && dir_keys(t, marker) == 0 && key[0])
        return op_fail(op, -ENOENT, "%.200s is not there", key);
    int r = check_version(op, key, e, etag);
    if (r < 0)
        return r;
    struct blob *b = e ? blob_ref(e->blob) : blob_new(0);
    if (!b)
        return -ENOMEM;
    r = store_blob_locked(t, op, real, b, attrs, ret_obj);
    if (!r && ret_obj)
        ret_obj->is_prefix = ret_obj->has_marker = real == marker;
    return r;
}

static int mem_set_attributes(struct store *s, struct op *op, const char *key, const char *etag,
                              const struct attrs *attrs, struct object *ret_obj)
{
    struct tree *t = tree_of(s);

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

static void tree_free(struct tree *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_entries; i++)
        entry_free(t->entry[i]);
    while (t->sessions) {
        struct session *u = t->sessions;
        t->sessions = u->next;
        session_free(u);
    }
    free(t->entry);
    free(t->name);
    mutex_destroy(&t->lock);
    free(t);
}

static struct tree *tree_new(const char *name, size_t len)
{
    struct tree *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;

    mutex_init(&t->lock);
    t->name = len ? strndup(name, len) : NULL;
    if (len && !t->name) {
        tree_free(t);
        return NULL;
    }
    return t;
}

/* The tree of that name, made when there is none; a new one without a name. */
static struct tree *tree_get(const char *name, size_t len)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct tree *named;
    struct tree *t;

    if (len == 0)
        return tree_new(name, 0);
    pthread_mutex_lock(&lock);
    for (t = named; t; t = t->next)
        if (strlen(t->name) == len && memcmp(t->name, name, len) == 0)
            break;
    if (!t && (t = tree_new(name, len))) {
        t->next = named;
        named = t;
    }
    pthread_mutex_unlock(&lock);
    return t;
}

static void mem_close(struct store *s)
{
    struct mem_store *m = container_of(s, struct mem_store, base);

    if (m->tree && !m->tree->name)
        tree_free(m->tree);
    free(s->url);
    free(m);
}

static const struct store_ops mem_ops = {
    .name = "mem",
    .stat = mem_stat,
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
    .copy = mem_copy,
    .rename = mem_rename,
    .remove = mem_remove,
    .mkdir = mem_mkdir,
    .rmdir = mem_rmdir,
    .set_attributes = mem_set_attributes,
    .close = mem_close,
};

#define CAPS_S3 (STORE_IF_MATCH | STORE_PARTS | STORE_COPY | STORE_ATTRS | STORE_ORIGIN)

int mem_store_new(const char *url, const struct store_config *config, struct op *op,
                  struct store **ret)
{
    const char *name = url + strlen("mem:");
    size_t len = strcspn(name, "?");
    bool like_s3 = strcmp(name + len, "?s3") == 0;

    (void)config;
    if (name[len] && !like_s3)
        return op_fail(op, -EINVAL,
                       "\"%.100s\": found \"%s\", expected mem:NAME or mem:NAME?s3", url,
                       name + len);
    struct mem_store *m = calloc(1, sizeof(*m));
    if (!m)
        return op_fail(op, -ENOMEM, "no memory to open a store");
    m->ops = mem_ops;
    if (like_s3)
        m->ops.rename = NULL;
    m->base = (struct store){
        .ops = &m->ops,
        .caps = like_s3 ? CAPS_S3 : CAPS_S3 | STORE_RENAME | STORE_LIST_ATTRS,
        .part_size = PART_SIZE,
        .part_min = 1,
        .part_max = PART_MAX,
        .parts_max = PARTS_MAX,
        .put_max = PART_MAX,
        .url = strdup(url),
    };
    m->tree = tree_get(name, len);
    if (!m->base.url || !m->tree) {
        mem_close(&m->base);
        return op_fail(op, -ENOMEM, "no memory to open a store");
    }
    *ret = &m->base;
    return 0;
}
