/* mem: uploads in parts. The parts are blobs of the session, joined to one at the commit. */
#include "backends/mem/tree.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mem_upload {
    struct upload base;
    uint64_t session;
};

static void session_free(struct mem_session *u)
{
    for (unsigned i = 0; i < u->n_parts; i++)
        mem_blob_unref(u->part[i]);
    free(u->part);
    attrs_release(&u->attrs);
    free(u->key);
    free(u);
}

static struct mem_session *session_find_locked(struct mem_tree *t, uint64_t id)
    REQUIRES(&t->lock)
{
    struct mem_session *u = t->sessions;

    mutex_assert_held(&t->lock);
    while (u && u->id != id)
        u = u->next;
    return u;
}

static void session_end_locked(struct mem_tree *t, uint64_t id) REQUIRES(&t->lock)
{
    struct mem_session **at = &t->sessions;

    mutex_assert_held(&t->lock);
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    struct mem_session *u = *at;
    if (u) {
        *at = u->next;
        session_free(u);
    }
}

static struct mem_upload *upload_new(struct store *s, uint64_t session)
{
    struct mem_upload *up = calloc(1, sizeof(*up));

    if (up)
        *up = (struct mem_upload){.base.store = s, .session = session};
    return up;
}

int mem_upload_begin(struct store *s, struct op *op, const char *key, const struct attrs *attrs,
                     struct upload **ret_up)
{
    struct mem_tree *t = mem_tree(s);
    struct mem_session *u = calloc(1, sizeof(*u));
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

static int session_reserve(struct mem_session *u, unsigned number)
{
    if (number <= u->n_parts)
        return 0;
    struct mem_blob **grown = realloc(u->part, number * sizeof(struct mem_blob *));
    if (!grown)
        return -ENOMEM;
    memset(grown + u->n_parts, 0, (number - u->n_parts) * sizeof(struct mem_blob *));
    u->part = grown;
    u->n_parts = number;
    return 0;
}

int mem_upload_part(struct upload *base, struct op *op, unsigned number, struct source *src)
{
    struct mem_upload *up = container_of(base, struct mem_upload, base);
    struct mem_tree *t = mem_tree(base->store);
    struct mem_blob *b = NULL;

    int r = mem_blob_from_source(op, src, &b);
    if (r < 0)
        return r;
    mutex_lock(&t->lock);
    struct mem_session *u = session_find_locked(t, up->session);
    r = u ? session_reserve(u, number) : session_gone(op);
    if (!r) {
        struct mem_blob *old = u->part[number - 1];
        u->part[number - 1] = b;
        b = old;
    }
    mutex_unlock(&t->lock);
    mem_blob_unref(b);
    return r;
}

/* One blob of all parts. */
static int session_join(const struct mem_session *u, struct op *op, struct mem_blob **ret)
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

    struct mem_blob *b = mem_blob_new(size);
    if (!b)
        return op_fail(op, -ENOMEM, "no memory for %llu bytes", (unsigned long long)size);
    for (unsigned i = 0; i < u->n_parts; i++) {
        memcpy(b->data + off, u->part[i]->data, u->part[i]->size);
        off += u->part[i]->size;
    }
    *ret = b;
    return 0;
}

static int mem_commit_locked(struct mem_tree *t, uint64_t id, struct op *op, const char *etag,
                             struct object *ret_obj) REQUIRES(&t->lock)
{
    struct mem_session *u = session_find_locked(t, id);
    struct mem_blob *b = NULL;

    mutex_assert_held(&t->lock);
    if (!u)
        return session_gone(op);
    int r = mem_check_version(op, u->key, mem_find_locked(t, u->key), etag);
    if (!r)
        r = session_join(u, op, &b);
    if (!r)
        r = mem_store_blob_locked(t, op, u->key, b, &u->attrs, ret_obj);
    if (!r)
        session_end_locked(t, id);
    return r;
}

int mem_upload_commit(struct upload *base, struct op *op, const char *etag,
                      struct object *ret_obj)
{
    struct mem_upload *up = container_of(base, struct mem_upload, base);
    struct mem_tree *t = mem_tree(base->store);

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

void mem_upload_detach(struct upload *base)
{
    free(container_of(base, struct mem_upload, base));
}

int mem_upload_abort(struct upload *base, struct op *op)
{
    struct mem_upload *up = container_of(base, struct mem_upload, base);
    struct mem_tree *t = mem_tree(base->store);

    (void)op;
    mutex_lock(&t->lock);
    session_end_locked(t, up->session);
    mutex_unlock(&t->lock);
    free(up);
    return 0;
}

char *mem_upload_token(struct upload *base)
{
    struct mem_upload *up = container_of(base, struct mem_upload, base);
    char *token;

    return asprintf(&token, "%llx", (unsigned long long)up->session) < 0 ? NULL : token;
}

/* The sizes of the session's parts (0: no such part, else size + 1). Heap. */
static int session_sizes(struct mem_tree *t, struct op *op, uint64_t id, const char *key,
                         uint64_t **ret_sizes, unsigned *ret_n)
{
    uint64_t *sizes = NULL;
    int r = 0;

    mutex_lock(&t->lock);
    struct mem_session *u = session_find_locked(t, id);
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

int mem_upload_resume(struct store *s, struct op *op, const char *key, const char *token,
                      int (*visit)(void *arg, const struct part *part), void *arg,
                      struct upload **ret_up)
{
    uint64_t id = strtoull(token, NULL, 16);
    auto_free uint64_t *sizes = NULL;
    unsigned n;

    int r = session_sizes(mem_tree(s), op, id, key, &sizes, &n);
    for (unsigned i = 0; !r && visit && i < n; i++) {
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

static bool blob_is(const struct mem_blob *b, struct op *op, struct source *src, int *ret_err)
{
    struct mem_blob *other = NULL;

    if (!b || b->size != src->size)
        return false;
    *ret_err = mem_blob_from_source(op, src, &other);
    bool same = !*ret_err && memcmp(b->data, other->data, b->size) == 0;
    mem_blob_unref(other);
    return same;
}

int mem_upload_has(struct upload *base, struct op *op, unsigned number, struct source *src)
{
    struct mem_upload *up = container_of(base, struct mem_upload, base);
    struct mem_tree *t = mem_tree(base->store);
    struct mem_blob *b = NULL;
    int r = 0;

    mutex_lock(&t->lock);
    struct mem_session *u = session_find_locked(t, up->session);
    if (!u)
        r = session_gone(op);
    else if (number <= u->n_parts && u->part[number - 1])
        b = mem_blob_ref(u->part[number - 1]);
    mutex_unlock(&t->lock);
    bool same = blob_is(b, op, src, &r);
    mem_blob_unref(b);
    return r < 0 ? r : same;
}

void mem_upload_end_all(struct mem_tree *t)
{
    while (t->sessions) {
        struct mem_session *u = t->sessions;
        t->sessions = u->next;
        session_free(u);
    }
}
