/* JSON with the place of each member and element: jansson reads the values, and keeps no
 * places. Lines and columns (bytes) count from 1. Any thread. */
#ifndef RUNFS_RUNS_JSON_PLACES_H
#define RUNFS_RUNS_JSON_PLACES_H

#include "runs/routes.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct json_node {
    json_type type;
    char *name;                /* heap; of a member; NULL: an element, or the whole */
    struct text_place name_at; /* of a member */
    struct text_place at;      /* of the value */
    json_t *value;             /* of what is neither an object nor a list; else NULL */
    struct json_node *items;   /* heap; members or elements in the text's order */
    size_t n, cap;
    bool again; /* an earlier member of the object has this name */
};

/* *ret is released with json_node_release() after success only. -EINVAL: no JSON; *ret_at is
 * the end of the word at which that shows, and *ret_why (constant) says why without a word of
 * the text, which may be a secret. -ENOMEM. */
int json_places_parse(const char *text, size_t len, struct json_node *ret,
                      struct text_place *ret_at, const char **ret_why);
void json_node_release(struct json_node *node);

/* The first member of that name, or NULL. */
const struct json_node *json_node_get(const struct json_node *object, const char *name);

#endif
