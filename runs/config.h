/* The configuration: JSON that names stores, what of the mount lies in which, the cache and the
 * mount's options; or a layout over one URL. Its form is docs/routes.md.
 *
 *   {"stores":  {"ckpt": {"url": "s3://training/ckpt", "region": "eu-west-1"}},
 *    "routes":  [{"path": "**", "store": "ckpt"}],
 *    "cache":   {"dir": "/var/cache/runfs", "size": "200GiB"},
 *    "options": {"durability": "store", "upload_jobs": 8, "allow_other": true}}
 *
 * This folder knows the form, not the options, and no kind of store: "cache" {"dir", "size",
 * "reserve"} become the options cache_dir, cache_size and cache_reserve, everything else is
 * name and text. One thread at a time, constant once it is made. */
#ifndef RUNFS_RUNS_CONFIG_H
#define RUNFS_RUNS_CONFIG_H

#include "common/op.h"
#include "common/settings.h"
#include "runs/policy.h"
#include "runs/routes.h"

#include <stddef.h>

#define CONFIG_PROBLEMS_MAX 100

/* What is wrong, and where. */
struct config_problem {
    struct text_place at; /* line 0: the file as a whole */
    char *text;           /* heap; no place and no secret in it */
};
struct config_problems {
    struct config_problem *items; /* heap, by their places */
    size_t n, cap;
    size_t more; /* so many beyond CONFIG_PROBLEMS_MAX */
};
void config_problems_release(struct config_problems *p);
/* Appends one. 0 or -ENOMEM. */
int config_problem_add(struct config_problems *p, struct text_place at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* `ORIGIN:LINE:COLUMN: TEXT` of the first into op->why; -EINVAL. */
int config_problems_fail(const struct config_problems *p, const char *origin, struct op *op);

struct config_store {
    char *name; /* heap */
    char *url;  /* heap; with what default_fs and a tracker's file say */
    /* Its other fields, each once: options of the kind of store; what a tracker's file says of
     * the client, too. No secrets: those are refused. */
    struct settings settings;
    struct text_place at;     /* of its name */
    struct text_place url_at; /* of its URL, or of the tracker's file */
};

/* One of "cache" or "options". */
struct config_option {
    char *name, *value; /* heap */
    struct text_place at;
};

struct config {
    char *origin; /* heap; the file's name in messages */
    struct config_store *stores;
    size_t n_stores, cap_stores;
    struct policies policies;
    struct routes routes; /* complete: of "routes", then of the layout, then default_store */
    char *layout;         /* heap; NULL: none was named */
    /* Of a layout with raw names: how those of the root encode the ids of runs. Only a mount
     * asks; it is no part of the routes, and config_expand() has it not. */
    enum codec raw_names;
    struct config_option *options;
    size_t n_options, cap_options;
};

/* Reads a configuration; `origin` names it in messages, and a relative torchx_config is beside
 * it. All that is wrong is in `problems` (may be NULL), the first of it in op->why. *ret is
 * released with config_release() after success only. -EINVAL; -ENOMEM; a file without "stores"
 * is none of several things wrong: it has options only. Any thread. */
int config_parse(const char *text, size_t len, const char *origin, struct op *op,
                 struct config_problems *problems, struct config *ret);
/* The same from a file of at most 1 MiB; its name is the origin. */
int config_load(const char *path, struct op *op, struct config_problems *problems,
                struct config *ret);
/* What one URL under a layout is: one store named "store", with these settings. `layout` NULL
 * takes "plain". -EINVAL: no such layout, with the nearest one. */
int config_of_url(const char *url, const struct settings *settings, const char *layout,
                  struct op *op, struct config *ret);
void config_release(struct config *c);

/* Whether a route leads to the store: a mount opens those only. */
bool config_store_used(const struct config *c, size_t store);
/* Takes the others out; where everything is scratch the first store stays. */
void config_drop_unused(struct config *c);

/* Where a store lies, in words that are equal only for one place: its server ("s3 https://…/b"
 * with the bucket; "file"; "mem:x"), its root there, and where its own state is (NULL: it keeps
 * none). backends/ fills it in. */
struct config_root {
    char *server, *root, *state;
};
/* What is wrong of the stores as a whole: an object that two paths would show, a store's state
 * within a store. roots[i] is of stores[i]. -EINVAL as config_parse(). */
int config_check_roots(const struct config *c, const struct config_root *roots, struct op *op,
                       struct config_problems *problems);

/* The stores and routes as JSON, as `runfs check --expand` prints them: a configuration itself
 * that is read as the same. No secrets. `options` too when that is set. Heap; NULL without
 * memory. */
char *config_expand(const struct config *c, bool options);

#endif
