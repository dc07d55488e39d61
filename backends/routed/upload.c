/* Uploads in parts, each in the leaf of its path. Their tokens begin with the leaf's name: an
 * upload goes on in another process, whose routes may lead its path elsewhere by then. */
#include "backends/routed/routed_impl.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct routed_upload {
    struct upload base;
    struct upload *next; /* the leaf's; owned */
    const struct leaf *leaf;
};

static struct routed_upload *upload_of(struct upload *up)
{
    return container_of(up, struct routed_upload, base);
}

char *token_of(const struct leaf *leaf, const char *token)
{
    char *text = NULL;

    return asprintf(&text, "%s:%s", leaf->name, token) < 0 ? NULL : text;
}

/* What the leaf knows it by; NULL: it is of another store. */
static const char *leaf_token(const struct leaf *leaf, const char *token)
{
    size_t len = strlen(leaf->name);

    return strncmp(token, leaf->name, len) == 0 && token[len] == ':' ? token + len + 1 : NULL;
}

static struct routed_upload *upload_new(struct store *s, struct op *op, const struct leaf *leaf)
{
    struct routed_upload *up = calloc(1, sizeof(*up));

    if (!up)
        (void)op_fail(op, -ENOMEM, "no memory for an upload");
    else
        *up = (struct routed_upload){.base.store = s, .leaf = leaf};
    return up;
}

int routed_upload_begin(struct store *s, struct op *op, const char *path,
                        const struct attrs *attrs, struct upload **ret_up)
{
    auto_target struct target t = {0};

    int err = target_to_change(routed_of(s), op, "upload", path, ROUTES_OBJECT, &t);
    if (err < 0)
        return err;
    auto_free struct routed_upload *up = upload_new(s, op, t.leaf);
    if (!up)
        return -ENOMEM;
    err = store_upload_begin(t.leaf->store, op, t.key, attrs, &up->next);
    if (!err)
        *ret_up = &take_ptr(up)->base;
    return err;
}

int routed_upload_part(struct upload *up, struct op *op, unsigned number, struct source *src)
{
    return store_upload_part(upload_of(up)->next, op, number, src);
}

int routed_upload_has(struct upload *up, struct op *op, unsigned number, struct source *src)
{
    return store_upload_has(upload_of(up)->next, op, number, src);
}

int routed_upload_commit(struct upload *up, struct op *op, const char *etag,
                         struct object *ret_obj)
{
    int err = store_upload_commit(upload_of(up)->next, op, etag, ret_obj);

    if (!err)
        free(upload_of(up));
    return err;
}

int routed_upload_abort(struct upload *up, struct op *op)
{
    int err = store_upload_abort(upload_of(up)->next, op);

    free(upload_of(up));
    return err;
}

void routed_upload_detach(struct upload *up)
{
    store_upload_detach(upload_of(up)->next);
    free(upload_of(up));
}

char *routed_upload_token(struct upload *up)
{
    auto_free char *token = store_upload_token(upload_of(up)->next);

    return token ? token_of(upload_of(up)->leaf, token) : NULL;
}

int routed_upload_resume(struct store *s, struct op *op, const char *path, const char *token,
                         int (*visit)(void *arg, const struct part *part), void *arg,
                         struct upload **ret_up)
{
    auto_target struct target t = {0};

    int err = target_find(routed_of(s), op, path, ROUTES_OBJECT, &t);
    if (err < 0)
        return err;
    if (t.kind != ROUTES_MAPPED)
        return no_route(op, -ENOENT, "resume", path);
    const char *theirs = leaf_token(t.leaf, token);
    if (!theirs)
        return op_fail(op, -ENOENT,
                       "resume %.200s: the session was begun in another store than %s", path,
                       t.leaf->name);
    auto_free struct routed_upload *up = upload_new(s, op, t.leaf);
    if (!up)
        return -ENOMEM;
    err = store_upload_resume(t.leaf->store, op, t.key, theirs, visit, arg, &up->next);
    if (!err)
        *ret_up = &take_ptr(up)->base;
    return err;
}

int routed_upload_sweep(struct store *s, struct op *op, const char *path, int64_t since_ns,
                        const char *keep)
{
    auto_target struct target t = {0};

    int err = target_find(routed_of(s), op, path, ROUTES_OBJECT, &t);
    /* Where there is no such call a session goes by itself. */
    if (err < 0 || t.kind != ROUTES_MAPPED || !t.leaf->store->ops->upload_sweep)
        return err;
    return store_upload_sweep(t.leaf->store, op, t.key, since_ns,
                              keep ? leaf_token(t.leaf, keep) : NULL);
}
