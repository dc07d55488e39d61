/* Templates: the form of a path of the mount, or of a key of a store, with names left open.
 *
 *   template  = component *("/" component) ["/" rest] / rest     rest = "**"
 *   component = literal / [literal] "{" name [":" codec] "}" [literal]
 *
 * "{{" and "}}" are braces in a literal; a name is [a-z][a-z0-9_]*; codecs are of keys only. A
 * capture takes one whole name between the literals around it, at least one byte. "**" takes
 * one name or more. Any thread. */
#ifndef RUNFS_RUNS_TEMPLATE_H
#define RUNFS_RUNS_TEMPLATE_H

#include "common/op.h"
#include "runs/codec.h"

#include <stdbool.h>
#include <stddef.h>

#define TEMPLATE_TEXT_MAX       8192 /* bytes of a template's text, with a NUL */
#define TEMPLATE_COMPONENTS_MAX 64

struct component {
    char *before;  /* heap; the literal, or what stands before the capture; "" for nothing */
    char *capture; /* heap; the capture's name; NULL: a literal */
    char *after;   /* heap; what stands behind the capture; "" for nothing */
    enum codec codec;
};

struct template
{
    char *text; /* heap; as it was written */
    struct component *components;
    size_t n;
    bool rest; /* ends in "**" */
};

enum template_side { TEMPLATE_PATH, TEMPLATE_KEY };

/* *ret is released with template_release() after success only. -EINVAL with the reason in
 * op->why, without a place: `".." can't be a component`. -ENOMEM. */
int template_parse(const char *text, enum template_side side, struct op *op,
                   struct template *ret);
void template_release(struct template *t);
/* Deep copy into uninitialised `to`; 0 or -ENOMEM. */
int template_copy(struct template *to, const struct template *from);

/* Whether a name of the mount has the form of the component; the captured part lies at *ret_at,
 * *ret_len of it. */
bool component_takes(const struct component *c, const char *name, size_t len, size_t *ret_at,
                     size_t *ret_len);

#endif
