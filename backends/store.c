/* The checked calls of every store, and helpers over their arguments. */
#include "backends/store.h"
#include "common/mem.h"
#include "common/path.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_ERRNO 4095

/* ---- arguments ---- */

void attrs_release(struct attrs *a)
{
    free(a->target);
    free(a->xattrs);
    memset(a, 0, sizeof(*a));
}

int attrs_copy(struct attrs *to, const struct attrs *from)
{
    struct attrs copy = *from;

    copy.target = from->target ? strdup(from->target) : NULL;
    copy.xattrs = from->xattrs ? strdup(from->xattrs) : NULL;
    if ((from->target && !copy.target) || (from->xattrs && !copy.xattrs)) {
        attrs_release(&copy);
        return -ENOMEM;
    }
    *to = copy;
    return 0;
}

void object_release(struct object *obj)
{
    attrs_release(&obj->attrs);
}

const char *store_config_get(const struct store_config *config, const char *name)
{
    for (size_t i = 0; config && i < config->n_options; i++)
        if (strcmp(config->options[i].name, name) == 0)
            return config->options[i].value;
    return NULL;
}

static ssize_t mem_source_pread(struct source *src, void *buf, size_t len, uint64_t off)
{
    struct mem_source *m = container_of(src, struct mem_source, base);

    if (off >= src->size)
        return 0;
    if (len > src->size - off)
        len = src->size - off;
    memcpy(buf, m->data + off, len);
    return (ssize_t)len;
}

void mem_source_init(struct mem_source *m, const void *data, size_t len)
{
    *m = (struct mem_source){{.size = len, .pread = mem_source_pread}, data};
}

static int mem_sink_write(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct mem_sink *m = container_of(sink, struct mem_sink, base);

    if (off < m->off || off - m->off > m->len || len > m->len - (off - m->off))
        return -EFBIG;
    if (len)
        memcpy(m->data + (off - m->off), data, len);
    return 0;
}

void mem_sink_init(struct mem_sink *m, void *data, size_t len, uint64_t off)
{
    *m = (struct mem_sink){{.write = mem_sink_write}, data, len, off};
}

/* ---- facts ---- */

static void facts_at(struct store *s, const char *key, bool dir, struct store_facts *ret)
{
    if (s->ops->facts)
        s->ops->facts(s, key, dir, ret);
    else
        *ret = s->facts;
}

void store_facts(struct store *s, const char *key, struct store_facts *ret)
{
    facts_at(s, key, false, ret);
}

void store_dir_facts(struct store *s, const char *key, struct store_facts *ret)
{
    facts_at(s, key, true, ret);
}

bool store_can(struct store *s, const char *key, unsigned caps)
{
    struct store_facts facts;

    store_facts(s, key, &facts);
    return (facts.caps & caps) == caps;
}

bool store_dir_can(struct store *s, const char *key, unsigned caps)
{
    struct store_facts facts;

    store_dir_facts(s, key, &facts);
    return (facts.caps & caps) == caps;
}

/* ---- objects of our own ---- */

static int own_state_of(struct store *s, struct op *op, const char *key, char **ret_state,
                        char **ret_key)
{
    if (!store_can(s, STORE_STATE_DIR, STORE_STATE))
        return op_fail(op, -EOPNOTSUPP, "%s keeps nothing beside its objects (state_prefix)",
                       s->url);
    auto_free char *state = strdup(STORE_STATE_DIR);
    auto_free char *whole = path_join(s->root_key ? s->root_key : "", key);
    if (!state || !whole)
        return op_fail(op, -ENOMEM, "out of memory");
    *ret_state = take_ptr(state);
    *ret_key = take_ptr(whole);
    return 0;
}

int store_state_of(struct store *s, struct op *op, const char *key, bool dir, char **ret_state,
                   char **ret_key)
{
    return s->ops->state_of ? s->ops->state_of(s, op, key, dir, ret_state, ret_key)
                            : own_state_of(s, op, key, ret_state, ret_key);
}

/* ---- the contract, checked on both sides ---- */

/* Names come from users and servers: a bad one is an error, not our mistake. */
static int begin(struct store *s, struct op *op, const char *what, const char *key)
{
    op->why[0] = '\0';
    op->retry_after_ns = 0;
    if (!path_key_safe(key, STORE_KEY_MAX))
        return op_fail(op, -EINVAL, "%s %s: the key \"%.200s\" can't be used", what, s->url,
                       key);
    return 0;
}

static int lacks(struct store *s, struct op *op, const char *what)
{
    return op_fail(op, -EOPNOTSUPP, "%s: %s stores don't have this call", what, s->ops->name);
}

/* A failure always has a reason that names operation, store and path. */
static int64_t end(struct store *s, struct op *op, const char *what, const char *key, int64_t r)
{
    if (r >= 0)
        return r;
    assert(r >= -MAX_ERRNO);
    if (!op->why[0])
        op_fail(op, (int)r, "%s %s/%s: %s", what, s->url, key, strerror((int)-r));
    return r;
}

static int cant_check(struct store *s, struct op *op, const char *what)
{
    return op_fail(op, -EOPNOTSUPP, "%s: %s stores can't check a version", what, s->ops->name);
}

static int check_etag(struct store *s, struct op *op, const char *what, const char *key,
                      const char *etag)
{
    return !etag || store_can(s, key, STORE_IF_MATCH) ? 0 : cant_check(s, op, what);
}

/* What is not a regular file has no content. */
static int check_attrs(struct op *op, const char *what, const char *key, uint64_t size,
                       const struct attrs *a)
{
    if (!a || !(a->has & ATTR_MODE) || S_ISREG(a->mode) || !(a->mode & S_IFMT))
        return 0;
    if (S_ISDIR(a->mode) || size > 0)
        return op_fail(op, -EINVAL, "%s %.200s: content with mode %o", what, key, a->mode);
    if (S_ISLNK(a->mode) && (!(a->has & ATTR_TARGET) || !a->target || !a->target[0]))
        return op_fail(op, -EINVAL, "%s %.200s: a symlink without a target", what, key);
    return 0;
}

/* What a store says goes into sizes of files and offsets of requests. */
static int check_size(struct store *s, struct op *op, const char *what, const char *key,
                      uint64_t size_max, const struct object *obj)
{
    const uint64_t max = size_max ? size_max : INT64_MAX;

    if (obj->size <= max)
        return 0;
    return op_fail(op, -EBADMSG,
                   "%s %s/%.100s: the store says %" PRIu64
                   " bytes, and no object there can have "
                   "more than %" PRIu64 ": look at the server",
                   what, s->url, key, obj->size, max);
}

/* The end of a call that told of an object. */
static int told(struct store *s, struct op *op, const char *what, const char *key, int r,
                struct object *ret_obj)
{
    struct store_facts facts;

    store_facts(s, key, &facts);
    if (r == 0)
        r = check_size(s, op, what, key, facts.size_max, ret_obj);
    if (r == -EBADMSG)
        object_release(ret_obj);
    return (int)end(s, op, what, key, r);
}

int store_stat(struct store *s, struct op *op, const char *key, struct object *ret_obj)
{
    struct object obj = {0};
    int r = begin(s, op, "stat", key);

    if (r == 0)
        r = told(s, op, "stat", key, s->ops->stat(s, op, key, &obj), &obj);
    if (r < 0)
        return r;
    *ret_obj = obj;
    return r;
}

int store_stat_dir(struct store *s, struct op *op, const char *key, struct object *ret_obj)
{
    struct object obj = {0};
    int r = begin(s, op, "stat", key);

    if (r < 0)
        return r;
    r = told(s, op, "stat", key,
             s->ops->stat_dir ? s->ops->stat_dir(s, op, key, &obj)
                              : s->ops->stat(s, op, key, &obj),
             &obj);
    if (r < 0)
        return r;
    if (!s->ops->stat_dir && (!obj.is_prefix || !obj.has_marker)) {
        object_release(&obj);
        return op_fail(op, -ENOENT, "stat %s/%s: no object of its own", s->url, key);
    }
    *ret_obj = obj;
    return 0;
}

struct checked_visit {
    struct store *store;
    struct op *op;
    uint64_t size_max;
    uint64_t hidden;
    bool self; /* the directory's own object is wanted */
    store_visit visit;
    void *arg;
};

static int visit_safe_names(void *arg, const char *name, const struct object *obj)
{
    struct checked_visit *c = arg;

    bool itself = c->self && !name[0] && obj->is_prefix && obj->has_marker;
    if ((!name[0] && !itself) || !path_key_safe(name, STORE_KEY_MAX)) {
        c->hidden++;
        return 0;
    }
    int r = check_size(c->store, c->op, "list", name, c->size_max, obj);
    return r < 0 ? r : c->visit(c->arg, name, obj);
}

int store_list(struct store *s, struct op *op, const char *prefix, unsigned flags,
               store_visit visit, void *arg)
{
    return store_list_after(s, op, prefix, flags, NULL, visit, arg);
}

int store_list_after(struct store *s, struct op *op, const char *prefix, unsigned flags,
                     const char *after, store_visit visit, void *arg)
{
    struct checked_visit c = {
        .store = s, .op = op, .self = (flags & LIST_SELF) != 0, .visit = visit, .arg = arg};
    struct store_facts facts;

    int r = begin(s, op, "list", prefix);
    if (r < 0)
        return r;
    store_facts(s, prefix, &facts);
    c.size_max = facts.size_max;
    if (op->notes)
        op->notes->hidden_names = 0; /* a layer's repeated listing counts once */
    r = s->ops->list(s, op, prefix, flags, after, visit_safe_names, &c);
    atomic_fetch_add_explicit(&s->hidden_total, c.hidden, memory_order_relaxed);
    if (op->notes)
        op->notes->hidden_names += c.hidden;
    return (int)end(s, op, "list", prefix, r);
}

struct checked_sink {
    struct sink base;
    struct sink *sink;
    uint64_t from, to;
};

static int write_within(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct checked_sink *c = container_of(sink, struct checked_sink, base);

    /* A server that sends more than was asked for must not write beyond the caller's room. */
    if (off < c->from || off > c->to || len > c->to - off)
        return -EPROTO;
    return c->sink->write(c->sink, data, len, off);
}

/* No range request can ask for nothing; the answer is in the object's attributes. */
static int read_nothing(struct store *s, struct op *op, const char *key, const char *etag,
                        struct object *ret_obj)
{
    struct object obj;

    int r = store_stat(s, op, key, &obj);
    if (r < 0)
        return r;
    if (obj.is_prefix)
        r = op_fail(op, -ENOENT, "read %s/%s: a directory", s->url, key);
    else if (etag && strcmp(etag, obj.etag) != 0)
        r = op_fail(op, -ESTALE, "read %s/%s: version %s, not %s", s->url, key, obj.etag, etag);
    else if (ret_obj)
        *ret_obj = obj;
    if (r < 0 || !ret_obj)
        object_release(&obj);
    return r;
}

ssize_t store_read(struct store *s, struct op *op, const char *key, const char *etag,
                   struct sink *sink, size_t len, uint64_t off, struct object *ret_obj)
{
    int r = begin(s, op, "read", key);
    if (r < 0)
        return r;
    if (off > INT64_MAX)
        return op_fail(op, -EINVAL, "read %s/%s: the offset is too large", s->url, key);
    if (len > INT64_MAX - off)
        len = (size_t)(INT64_MAX - off);
    if (len == 0)
        return read_nothing(s, op, key, etag, ret_obj);

    struct checked_sink c = {{.write = write_within}, sink, off, off + len};
    ssize_t n = s->ops->read(s, op, key, etag, &c.base, len, off, ret_obj);
    assert(n <= 0 || (size_t)n <= len);
    return (ssize_t)end(s, op, "read", key, n);
}

int store_put(struct store *s, struct op *op, const char *key, const char *etag,
              struct source *src, const struct attrs *attrs, struct object *ret_obj)
{
    struct store_facts facts;
    int r = begin(s, op, "put", key);
    if (!r)
        r = check_etag(s, op, "put", key, etag);
    if (!r)
        r = check_attrs(op, "put", key, src->size, attrs);
    if (r < 0)
        return r;
    if (!key[0])
        return op_fail(op, -EISDIR, "put %s: the root is a directory", s->url);
    store_facts(s, key, &facts);
    if (src->size > facts.put_max)
        return op_fail(op, -EFBIG, "put %s/%s: %llu bytes are too much for one request", s->url,
                       key, (unsigned long long)src->size);
    return (int)end(s, op, "put", key, s->ops->put(s, op, key, etag, src, attrs, ret_obj));
}

int store_upload_begin(struct store *s, struct op *op, const char *key,
                       const struct attrs *attrs, struct upload **ret_up)
{
    int r = begin(s, op, "upload", key);
    if (!r)
        r = check_attrs(op, "upload", key, 1, attrs);
    if (r < 0)
        return r;
    if (!s->ops->upload_begin)
        return lacks(s, op, "upload");
    if (!key[0])
        return op_fail(op, -EISDIR, "upload %s: the root is a directory", s->url);
    r = s->ops->upload_begin(s, op, key, attrs, ret_up);
    if (!r)
        store_facts(s, key, &(*ret_up)->facts);
    return (int)end(s, op, "upload", key, r);
}

int store_upload_part(struct upload *up, struct op *op, unsigned number, struct source *src)
{
    struct store *s = up->store;

    int r = begin(s, op, "part", "");
    if (r < 0)
        return r;
    if (number < 1 || number > up->facts.parts_max)
        return op_fail(op, -EINVAL, "part %u of %s: numbers are 1 to %u", number, s->url,
                       up->facts.parts_max);
    if (src->size > up->facts.part_max)
        return op_fail(op, -EFBIG, "part %u of %s: too large", number, s->url);
    return (int)end(s, op, "part", "", s->ops->upload_part(up, op, number, src));
}

int store_upload_commit(struct upload *up, struct op *op, const char *etag,
                        struct object *ret_obj)
{
    struct store *s = up->store;

    int r = begin(s, op, "commit", "");
    if (!r && etag && !(up->facts.caps & STORE_IF_MATCH))
        r = cant_check(s, op, "commit");
    if (r < 0)
        return r;
    return (int)end(s, op, "commit", "", s->ops->upload_commit(up, op, etag, ret_obj));
}

int store_upload_abort(struct upload *up, struct op *op)
{
    struct store *s = up->store;

    op->why[0] = '\0';
    op->retry_after_ns = 0;
    return (int)end(s, op, "abort", "", s->ops->upload_abort(up, op));
}

void store_upload_detach(struct upload *up)
{
    up->store->ops->upload_detach(up);
}

char *store_upload_token(struct upload *up)
{
    return up->store->ops->upload_token(up);
}

int store_upload_resume(struct store *s, struct op *op, const char *key, const char *token,
                        int (*visit)(void *arg, const struct part *part), void *arg,
                        struct upload **ret_up)
{
    int r = begin(s, op, "resume", key);
    if (r < 0)
        return r;
    if (!s->ops->upload_resume)
        return lacks(s, op, "resume");
    r = s->ops->upload_resume(s, op, key, token, visit, arg, ret_up);
    if (!r)
        store_facts(s, key, &(*ret_up)->facts);
    return (int)end(s, op, "resume", key, r);
}

int store_upload_has(struct upload *up, struct op *op, unsigned number, struct source *src)
{
    struct store *s = up->store;

    int r = begin(s, op, "compare", "");
    if (r < 0)
        return r;
    if (!s->ops->upload_has)
        return lacks(s, op, "compare");
    r = (int)end(s, op, "compare", "", s->ops->upload_has(up, op, number, src));
    assert(r <= 1);
    return r;
}

int store_upload_sweep(struct store *s, struct op *op, const char *key, int64_t since_ns,
                       const char *keep)
{
    int r = begin(s, op, "sweep", key);
    if (r < 0)
        return r;
    if (!s->ops->upload_sweep)
        return lacks(s, op, "sweep");
    return (int)end(s, op, "sweep", key, s->ops->upload_sweep(s, op, key, since_ns, keep));
}

int store_copy(struct store *s, struct op *op, const char *from, const char *from_etag,
               const char *to, const char *to_etag, const struct attrs *attrs,
               struct object *ret_obj)
{
    int r = begin(s, op, "copy", from);
    if (!r)
        r = begin(s, op, "copy", to);
    if (!r)
        r = check_etag(s, op, "copy", to, to_etag);
    if (r < 0)
        return r;
    if (!s->ops->copy)
        return lacks(s, op, "copy");
    if (!to[0])
        return op_fail(op, -EISDIR, "copy to %s: the root is a directory", s->url);
    return (int)end(s, op, "copy", from,
                    s->ops->copy(s, op, from, from_etag, to, to_etag, attrs, ret_obj));
}

int store_rename(struct store *s, struct op *op, const char *from, const char *to)
{
    int r = begin(s, op, "rename", from);
    if (!r)
        r = begin(s, op, "rename", to);
    if (r < 0)
        return r;
    if (!s->ops->rename)
        return lacks(s, op, "rename");
    const char *below = path_below(from, to);
    if (!from[0] || !to[0] || (below && below[0]))
        return op_fail(op, -EINVAL, "rename %s/%s to %s: into itself, or the root", s->url,
                       from, to);
    return (int)end(s, op, "rename", from, s->ops->rename(s, op, from, to));
}

int store_remove(struct store *s, struct op *op, const char *const *keys,
                 const char *const *etags, size_t n, int *errs)
{
    int r = 0;

    for (size_t i = 0; i < n && !r; i++) {
        r = begin(s, op, "remove", keys[i]);
        if (!r && etags)
            r = check_etag(s, op, "remove", keys[i], etags[i]);
    }
    if (r < 0 || n == 0)
        return r;
    return (int)end(s, op, "remove", keys[0], s->ops->remove(s, op, keys, etags, n, errs));
}

int store_mkdir(struct store *s, struct op *op, const char *key, const struct attrs *attrs,
                struct object *ret_obj)
{
    int r = begin(s, op, "mkdir", key);
    if (r < 0)
        return r;
    if (!s->ops->mkdir)
        return lacks(s, op, "mkdir");
    return (int)end(s, op, "mkdir", key, s->ops->mkdir(s, op, key, attrs, ret_obj));
}

int store_rmdir(struct store *s, struct op *op, const char *key)
{
    int r = begin(s, op, "rmdir", key);
    if (r < 0)
        return r;
    if (!s->ops->rmdir)
        return lacks(s, op, "rmdir");
    if (!key[0])
        return op_fail(op, -EBUSY, "rmdir %s: the root stays", s->url);
    return (int)end(s, op, "rmdir", key, s->ops->rmdir(s, op, key));
}

int store_set_attributes(struct store *s, struct op *op, const char *key, const char *etag,
                         const struct attrs *attrs, struct object *ret_obj)
{
    int r = begin(s, op, "setattr", key);
    if (!r)
        r = check_etag(s, op, "setattr", key, etag);
    if (r < 0)
        return r;
    if (!s->ops->set_attributes)
        return lacks(s, op, "setattr");
    return (int)end(s, op, "setattr", key,
                    s->ops->set_attributes(s, op, key, etag, attrs, ret_obj));
}

void store_close(struct store *s)
{
    if (s)
        s->ops->close(s);
}

void store_get_stats(struct store *s, struct store_stats *ret)
{
    memset(ret, 0, sizeof(*ret));
    for (; s; s = s->next) {
        ret->hidden_names += atomic_load_explicit(&s->hidden_total, memory_order_relaxed);
        if (s->ops->add_stats)
            s->ops->add_stats(s, ret);
    }
}
