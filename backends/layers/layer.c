/* What all layers share: the calls of store.h, turned into struct call for `around`. */
#include "backends/layers/layer.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct layer *layer_of(struct store *s)
{
    return container_of(s, struct layer, base);
}

static int64_t run(struct store *s, struct call c)
{
    struct layer *l = layer_of(s);

    c.next = s->next;
    return l->around(l, &c);
}

static void layer_facts(struct store *s, const char *key, bool dir, struct store_facts *ret)
{
    (dir ? store_dir_facts : store_facts)(s->next, key, ret);
}

static int layer_state_of(struct store *s, struct op *op, const char *key, bool dir,
                          char **ret_state, char **ret_key)
{
    return store_state_of(s->next, op, key, dir, ret_state, ret_key);
}

/* ---- calls of one object ---- */

static int layer_stat(struct store *s, struct op *op, const char *key, struct object *ret_obj)
{
    return (int)run(s,
                    (struct call){.kind = CALL_STAT, .op = op, .key = key, .ret_obj = ret_obj});
}

static int layer_stat_dir(struct store *s, struct op *op, const char *key,
                          struct object *ret_obj)
{
    return (int)run(
        s, (struct call){
               .kind = CALL_STAT, .op = op, .key = key, .self = true, .ret_obj = ret_obj});
}

static int layer_list(struct store *s, struct op *op, const char *prefix, unsigned flags,
                      const char *after, store_visit visit, void *arg)
{
    return (int)run(s, (struct call){.kind = CALL_LIST,
                                     .op = op,
                                     .key = prefix,
                                     .flags = flags,
                                     .after = after,
                                     .visit = visit,
                                     .visit_arg = arg});
}

static ssize_t layer_read(struct store *s, struct op *op, const char *key, const char *etag,
                          struct sink *sink, size_t len, uint64_t off, struct object *ret_obj)
{
    return (ssize_t)run(s, (struct call){.kind = CALL_READ,
                                         .op = op,
                                         .key = key,
                                         .etag = etag,
                                         .sink = sink,
                                         .len = len,
                                         .off = off,
                                         .ret_obj = ret_obj});
}

static int layer_put(struct store *s, struct op *op, const char *key, const char *etag,
                     struct source *src, const struct attrs *attrs, struct object *ret_obj)
{
    return (int)run(s, (struct call){.kind = CALL_PUT,
                                     .op = op,
                                     .key = key,
                                     .etag = etag,
                                     .src = src,
                                     .attrs = attrs,
                                     .ret_obj = ret_obj});
}

static int layer_copy(struct store *s, struct op *op, const char *from, const char *from_etag,
                      const char *to, const char *to_etag, const struct attrs *attrs,
                      struct object *ret_obj)
{
    return (int)run(s, (struct call){.kind = CALL_COPY,
                                     .op = op,
                                     .key = from,
                                     .etag = from_etag,
                                     .to = to,
                                     .to_etag = to_etag,
                                     .attrs = attrs,
                                     .ret_obj = ret_obj});
}

static int layer_rename(struct store *s, struct op *op, const char *from, const char *to)
{
    return (int)run(s, (struct call){.kind = CALL_RENAME, .op = op, .key = from, .to = to});
}

static int layer_remove(struct store *s, struct op *op, const char *const *keys,
                        const char *const *etags, size_t n, int *errs)
{
    return (int)run(s, (struct call){.kind = CALL_REMOVE,
                                     .op = op,
                                     .key = keys[0],
                                     .keys = keys,
                                     .etags = etags,
                                     .n_keys = n,
                                     .errs = errs});
}

static int layer_mkdir(struct store *s, struct op *op, const char *key,
                       const struct attrs *attrs, struct object *ret_obj)
{
    return (int)run(
        s, (struct call){
               .kind = CALL_MKDIR, .op = op, .key = key, .attrs = attrs, .ret_obj = ret_obj});
}

static int layer_rmdir(struct store *s, struct op *op, const char *key)
{
    return (int)run(s, (struct call){.kind = CALL_RMDIR, .op = op, .key = key});
}

static int layer_setattr(struct store *s, struct op *op, const char *key, const char *etag,
                         const struct attrs *attrs, struct object *ret_obj)
{
    return (int)run(s, (struct call){.kind = CALL_SETATTR,
                                     .op = op,
                                     .key = key,
                                     .etag = etag,
                                     .attrs = attrs,
                                     .ret_obj = ret_obj});
}

/* ---- uploads ---- */

static struct layer_upload *upload_of(struct upload *up)
{
    return container_of(up, struct layer_upload, base);
}

static void upload_free(struct layer_upload *up)
{
    struct layer *l = layer_of(up->base.store);

    if (l->free_extra)
        l->free_extra(up->extra);
    attrs_release(&up->attrs);
    free(up->key);
    free(up);
}

static struct layer_upload *upload_new(struct store *s, const char *key,
                                       const struct attrs *attrs)
{
    struct layer_upload *up = calloc(1, sizeof(*up));
    if (!up)
        return NULL;

    up->base.store = s;
    up->key = strdup(key);
    if (!up->key || (attrs && attrs_copy(&up->attrs, attrs) < 0)) {
        upload_free(up);
        return NULL;
    }
    return up;
}

/* begin and resume: the new upload below comes in c.up->next. */
static int start_upload(struct store *s, struct call c, struct upload **ret_up)
{
    c.up = upload_new(s, c.key, c.attrs);
    if (!c.up)
        return op_fail(c.op, -ENOMEM, "no memory for an upload");
    int r = (int)run(s, c);
    if (r)
        upload_free(c.up);
    else
        *ret_up = &c.up->base;
    return r;
}

static int layer_begin(struct store *s, struct op *op, const char *key,
                       const struct attrs *attrs, struct upload **ret_up)
{
    return start_upload(
        s, (struct call){.kind = CALL_BEGIN, .op = op, .key = key, .attrs = attrs}, ret_up);
}

static int layer_resume(struct store *s, struct op *op, const char *key, const char *token,
                        int (*visit)(void *arg, const struct part *part), void *arg,
                        struct upload **ret_up)
{
    return start_upload(s,
                        (struct call){.kind = CALL_RESUME,
                                      .op = op,
                                      .key = key,
                                      .token = token,
                                      .visit_part = visit,
                                      .visit_arg = arg},
                        ret_up);
}

static int layer_part(struct upload *base, struct op *op, unsigned number, struct source *src)
{
    struct layer_upload *up = upload_of(base);

    return (int)run(base->store, (struct call){.kind = CALL_PART,
                                               .op = op,
                                               .key = up->key,
                                               .up = up,
                                               .number = number,
                                               .src = src});
}

static int layer_has(struct upload *base, struct op *op, unsigned number, struct source *src)
{
    struct layer_upload *up = upload_of(base);

    return (int)run(base->store, (struct call){.kind = CALL_HAS,
                                               .op = op,
                                               .key = up->key,
                                               .up = up,
                                               .number = number,
                                               .src = src});
}

static int layer_sweep(struct store *s, struct op *op, const char *key, int64_t since_ns,
                       const char *keep)
{
    return (int)run(
        s, (struct call){
               .kind = CALL_SWEEP, .op = op, .key = key, .since_ns = since_ns, .token = keep});
}

static int layer_commit(struct upload *base, struct op *op, const char *etag,
                        struct object *ret_obj)
{
    struct layer_upload *up = upload_of(base);

    int r = (int)run(base->store, (struct call){.kind = CALL_COMMIT,
                                                .op = op,
                                                .key = up->key,
                                                .up = up,
                                                .etag = etag,
                                                .ret_obj = ret_obj});
    if (!r)
        upload_free(up);
    return r;
}

static int layer_abort(struct upload *base, struct op *op)
{
    struct layer_upload *up = upload_of(base);

    int r = (int)run(base->store,
                     (struct call){.kind = CALL_ABORT, .op = op, .key = up->key, .up = up});
    /* A layer that failed the call before it got there still has to free what is below. */
    if (up->next)
        store_upload_detach(up->next);
    upload_free(up);
    return r;
}

static void layer_detach(struct upload *base)
{
    struct layer_upload *up = upload_of(base);

    if (up->next)
        store_upload_detach(up->next);
    upload_free(up);
}

static char *layer_token(struct upload *base)
{
    struct layer_upload *up = upload_of(base);

    return up->next ? store_upload_token(up->next) : NULL;
}

/* ---- one store down ---- */

/* After a commit whose answer was lost on the way (layer_fault does that) nothing is left
 * below; a server says the same of a session that it completed. */
static int64_t next_upload_call(struct call *c)
{
    if (!c->up->next)
        return c->kind == CALL_ABORT
                   ? 0
                   : op_fail(c->op, -ENOENT, "%s %s: the upload session is gone",
                             call_name(c->kind), c->key);
    if (c->kind == CALL_PART)
        return store_upload_part(c->up->next, c->op, c->number, c->src);
    if (c->kind == CALL_HAS)
        return store_upload_has(c->up->next, c->op, c->number, c->src);
    if (c->kind == CALL_ABORT)
        return store_upload_abort(take_ptr(c->up->next), c->op);
    int r = store_upload_commit(c->up->next, c->op, c->etag, c->ret_obj);
    if (!r)
        c->up->next = NULL;
    return r;
}

int64_t call_next(struct call *c)
{
    struct store *s = c->next;
    struct op *op = c->op;

    switch (c->kind) {
    case CALL_STAT:
        return c->self ? store_stat_dir(s, op, c->key, c->ret_obj)
                       : store_stat(s, op, c->key, c->ret_obj);
    case CALL_LIST:
        return store_list_after(s, op, c->key, c->flags, c->after, c->visit, c->visit_arg);
    case CALL_READ:
        return store_read(s, op, c->key, c->etag, c->sink, c->len, c->off, c->ret_obj);
    case CALL_PUT:
        return store_put(s, op, c->key, c->etag, c->src, c->attrs, c->ret_obj);
    case CALL_BEGIN:
        return store_upload_begin(s, op, c->key, c->attrs, &c->up->next);
    case CALL_PART:
    case CALL_HAS:
    case CALL_COMMIT:
    case CALL_ABORT:
        return next_upload_call(c);
    case CALL_RESUME:
        return store_upload_resume(s, op, c->key, c->token, c->visit_part, c->visit_arg,
                                   &c->up->next);
    case CALL_SWEEP:
        return store_upload_sweep(s, op, c->key, c->since_ns, c->token);
    case CALL_COPY:
        return store_copy(s, op, c->key, c->etag, c->to, c->to_etag, c->attrs, c->ret_obj);
    case CALL_RENAME:
        return store_rename(s, op, c->key, c->to);
    case CALL_REMOVE:
        return store_remove(s, op, c->keys, c->etags, c->n_keys, c->errs);
    case CALL_MKDIR:
        return store_mkdir(s, op, c->key, c->attrs, c->ret_obj);
    case CALL_RMDIR:
        return store_rmdir(s, op, c->key);
    case CALL_SETATTR:
        return store_set_attributes(s, op, c->key, c->etag, c->attrs, c->ret_obj);
    case CALL_KINDS:
        break;
    }
    return -EOPNOTSUPP;
}

const char *call_name(enum call_kind kind)
{
    static const char *const names[CALL_KINDS] = {
        "stat",    "list",  "read", "put",    "begin",  "part",  "commit", "abort",  "resume",
        "compare", "sweep", "copy", "rename", "remove", "mkdir", "rmdir",  "setattr"};

    return names[kind];
}

/* ---- opening and closing ---- */

static void layer_close(struct store *s)
{
    struct layer *l = layer_of(s);

    store_close(s->next);
    if (l->release)
        l->release(l);
    free(s->url);
    free(l); /* embedded first */
}

static const struct store_ops layer_all = {
    .stat = layer_stat,
    .stat_dir = layer_stat_dir,
    .list = layer_list,
    .read = layer_read,
    .put = layer_put,
    .upload_begin = layer_begin,
    .upload_part = layer_part,
    .upload_commit = layer_commit,
    .upload_abort = layer_abort,
    .upload_detach = layer_detach,
    .upload_token = layer_token,
    .upload_resume = layer_resume,
    .upload_has = layer_has,
    .upload_sweep = layer_sweep,
    .copy = layer_copy,
    .rename = layer_rename,
    .remove = layer_remove,
    .mkdir = layer_mkdir,
    .rmdir = layer_rmdir,
    .set_attributes = layer_setattr,
    .close = layer_close,
};

int layer_init(struct layer *l, struct store *next,
               int64_t (*around)(struct layer *l, struct call *c))
{
    char *url = strdup(next->url);
    if (!url)
        return -ENOMEM;

    l->ops = layer_all;
    l->ops.name = next->ops->name;
    l->ops.facts = next->ops->facts ? layer_facts : NULL;
    l->ops.state_of = next->ops->state_of ? layer_state_of : NULL;
    l->ops.copy = next->ops->copy ? layer_copy : NULL;
    l->ops.rename = next->ops->rename ? layer_rename : NULL;
    l->ops.mkdir = next->ops->mkdir ? layer_mkdir : NULL;
    l->ops.rmdir = next->ops->rmdir ? layer_rmdir : NULL;
    l->ops.set_attributes = next->ops->set_attributes ? layer_setattr : NULL;
    l->ops.upload_begin = next->ops->upload_begin ? layer_begin : NULL;
    l->ops.upload_resume = next->ops->upload_resume ? layer_resume : NULL;
    l->ops.upload_sweep = next->ops->upload_sweep ? layer_sweep : NULL;
    l->base.ops = &l->ops;
    l->base.facts = next->facts;
    l->base.url = url;
    l->base.endpoint = next->endpoint;
    l->base.advice = next->advice;
    l->base.root_id = next->root_id;
    l->base.root_key = next->root_key;
    l->base.next = next;
    l->around = around;
    return 0;
}
