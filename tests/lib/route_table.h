/* Tables of routes as tests write them. */
#ifndef RUNFS_TESTS_LIB_ROUTE_TABLE_H
#define RUNFS_TESTS_LIB_ROUTE_TABLE_H

#include "runs/routes.h"

#include <check.h>

/* A route; `key` NULL: as the path; store -1: it never uploads. */
struct route_text {
    const char *path, *key;
    int store;
};

/* Appends one. 0, or -EINVAL with op->why. */
static inline int route_add(struct routes *r, const struct route_text *text, struct op *op)
{
    struct template path, key;
    int err = template_parse(text->path, TEMPLATE_PATH, op, &path);

    if (err < 0)
        return err;
    err = template_parse(text->key ? text->key : text->path, TEMPLATE_KEY, op, &key);
    if (err < 0) {
        template_release(&path);
        return err;
    }
    err = routes_add(r, &path, &key, text->store < 0 ? 0 : (unsigned)text->store, 0,
                     (struct text_place){(unsigned)r->n + 1, 1}, op);
    if (err == 0)
        r->items[r->n - 1].scratch = text->store < 0;
    return err;
}

/* A table of all up to one without a path. */
static inline struct routes routes_of(const struct route_text *texts)
{
    struct routes r = {.items = NULL};
    struct op op;

    op_init(&op, OP_FOREVER);
    for (; texts->path; texts++) {
        int err = route_add(&r, texts, &op);

        ck_assert_msg(err == 0, "%s: %s", texts->path, op.why);
    }
    return r;
}

#endif
