/* Routes: which object of which store stands behind a path of the mount, and back.
 *
 * A path and a key are components joined by single "/" (common/path.h); "" is the root. The
 * first route whose template takes a path has it. A directory that is the root of a route
 * "P/xx" (xx for two asterisks) or below it is *mapped*: one key stands behind it. One above,
 * on the way to a route's paths, is *implied*; it is *fixed* when it binds no capture of one of
 * them: then it always exists. A path may be mapped by one route and on the way to others.
 *
 * Pure: tables in, texts out. A table is constant once it is made; any thread. */
#ifndef RUNFS_RUNS_ROUTES_H
#define RUNFS_RUNS_ROUTES_H

#include "common/op.h"
#include "runs/template.h"

#include <stdbool.h>
#include <stddef.h>

/* Where something was written in a configuration; line 0: nowhere, a layout made it. Lines and
 * columns (bytes) count from 1. */
struct text_place {
    unsigned line, column;
};

struct route {
    struct template path, key; /* of one store's names: key "" is not possible but as rest */
    unsigned store;            /* index among the stores of the configuration */
    unsigned policy;           /* index among its policies */
    bool scratch; /* in no store: the policy never uploads; `store` means nothing */
    struct text_place at;
};

struct routes {
    struct route *items; /* heap */
    size_t n, cap;
};

/* Whether the pair is legal: the same captures once each, both or neither with a rest, the
 * key's in the path's order. Appends a route, taking over both
 * templates (also on failure). -EINVAL with the reason (without a place) in op->why. */
int routes_add(struct routes *r, struct template *path, struct template *key, unsigned store,
               unsigned policy, struct text_place at, struct op *op);
void routes_release(struct routes *r);

/* One route "**" to "**": the mount is one store, and needs no table. */
bool routes_trivial(const struct routes *r);

enum routes_as { ROUTES_OBJECT, ROUTES_DIRECTORY };

enum routes_kind {
    ROUTES_NOWHERE, /* no route leads there */
    ROUTES_FIXED,   /* a directory on the way that binds nothing; exists always */
    ROUTES_IMPLIED, /* a directory on the way */
    ROUTES_MAPPED,  /* one key of one store */
};

struct routes_hit {
    enum routes_kind kind;
    const struct route *route; /* MAPPED: that one; else NULL */
    char *key;                 /* MAPPED: heap, the caller's; else NULL */
};

/* What a path is as an object or as a directory. As an object it is MAPPED or NOWHERE. The root
 * is a directory only: MAPPED or FIXED. 0; or -EINVAL: a name that no stored name is shown as,
 * -EILSEQ: no UTF-8 where the codec needs it, -ENAMETOOLONG: its encoding passes 255 bytes, or
 * the key STORE_KEY_MAX; -ENOMEM. Release with routes_hit_release(). */
int routes_find(const struct routes *r, const char *path, enum routes_as as,
                struct routes_hit *ret);
void routes_hit_release(struct routes_hit *hit);
/* The same without the key; for who only asks whether, or which policy. Allocates nothing; a
 * name of a wrong spelling is NOWHERE. */
enum routes_kind routes_kind(const struct routes *r, const char *path, enum routes_as as,
                             const struct route **ret_route);

/* The same with the key, where it is MAPPED, written to `key`, which holds PATH_KEY_MAX bytes.
 */
enum routes_kind routes_key(const struct routes *r, const char *path, enum routes_as as,
                            const struct route **ret_route, char *key);

/* Whether the key, or the beginning of it that is known, is one that the route's store keeps
 * for itself (PATH_RESERVED): nothing of a path is ever stored there. */
bool routes_key_reserved(const struct route *route, const char *key);

/* Whether a directory is on the way of a route and binds no capture of it: then it exists
 * whatever the stores have, though it may be mapped by another route. The root is. */
bool routes_fixed(const struct routes *r, const char *path);

/* Whether a route to a store is on the way through a directory, before the one that maps it, if
 * any: names of that store may be in the directory though it is mapped by scratch. Allocates
 * nothing. */
bool routes_lead_through(const struct routes *r, const char *path);

/* The keys that make a directory exist which routes lead through: of each such route, the key
 * up to the last component whose capture the directory binds; each key of a store once. `as` is
 * what the key has to be there: a directory, but for `runs/{run}/model` with the key
 * `{run}.pt`, where the object x.pt makes runs/x exist. Routes that bind nothing there are left
 * out, and so are those that never upload. Where the directory is mapped, its own key is the
 * first. If it is the root of `runs/{run}/xx` with the key `{run}/data/xx`, whose listing shows
 * it by the directory {run}, that one follows: a key may lie below another. A non-zero answer
 * of visit ends it and is returned. -ENOMEM and as routes_find(). */
int routes_each_root(const struct routes *r, const char *path,
                     int (*visit)(void *arg, unsigned store, const char *key,
                                  enum routes_as as),
                     void *arg);

/* From where the names of a directory come. */
struct routes_source {
    const struct route *route;
    size_t depth;     /* components of the directory's path */
    const char *key;  /* LISTED: the directory of the store whose children are the names;
                         NAMED: the object or directory whose existence counts */
    const char *name; /* NAMED: the one name; LISTED: NULL */
    bool always;      /* NAMED: it exists always; nothing is asked */
    bool objects, directories; /* what of the store counts: LISTED: which children; NAMED: what
                                  the key has to be */
    enum routes_as as; /* what its names are in the mount; with `objects` and `directories` each
                          is what its child is. One that is an object here, and a directory in
                          the listing, is there only if the object of its own key is
                          (routes_find()); one that is a directory here, and an object there, is
                          on the way */
    const struct component *component; /* LISTED: of the key: what a child's stored name is made
                                          of; NULL: it is the name itself */
};

/* Visits every source of a directory, in the order of the routes: at most one NAMED or LISTED a
 * route. Of routes that never upload there are only the names that exist always. -ENOMEM and as
 * routes_find(). */
int routes_each_source(const struct routes *r, const char *path,
                       int (*visit)(void *arg, const struct routes_source *source), void *arg);
/* The name in the mount of a stored child of a LISTED source, appended to `shown`; -ENOENT:
 * there is none (hidden; counted by the caller). */
int routes_source_name(const struct routes_source *source, const char *stored,
                       struct buf *shown);

/* Whether an earlier route than `route` has the path (as an object or a directory): then
 * what `route` has there is shadowed. */
bool routes_shadowed(const struct routes *r, const struct route *route, const char *path,
                     enum routes_as as);

/* The path of a key of a store; *ret is heap. -ENOENT: none leads there (or only a shadowed
 * one). Where several do, the first route's. */
int routes_path_of(const struct routes *r, unsigned store, const char *key, enum routes_as as,
                   char **ret);

/* Whether all that can be below the two directories is reached by the same templates behind
 * them, in the same stores by the same codecs and policies' uploads: then one may become the
 * other. */
bool routes_same_below(const struct routes *r, const char *from, const char *to);

/* Whether a directory can get the name together with all that may be below it: every route that
 * leads to the directory or through it can write the part of its key that the path says. 0,
 * also where no route leads; of the first route that can't -EINVAL, -EILSEQ or -ENAMETOOLONG as
 * routes_find(), or -EPERM: routes_key_reserved(). */
int routes_writable_below(const struct routes *r, const char *path);

/* Whether two routes lead to one object of a store by two paths, none of them shadowed: then
 * the object (as a key of a's store) and both paths are filled in (heap). `a_root` and `b_root`
 * are where the stores of the two lie in one namespace of their server ("training/ckpt"; "" its
 * root), as the caller knows them; one may hold the other. Routes that keep the names of both
 * sides (each the same templates on both) have one path for what both lead to, and are no
 * overlap. What is found is one; of codecs that lie over other literals some are not found.
 * Without memory nothing is. */
struct routes_overlap {
    char *object, *a_path, *b_path;
};
bool routes_overlap(const struct routes *r, const struct route *a, const char *a_root,
                    const struct route *b, const char *b_root, struct routes_overlap *ret);
void routes_overlap_release(struct routes_overlap *o);

/* The index of an earlier route that takes every path of route `i`, which so never matches;
 * SIZE_MAX: none. */
size_t routes_covering(const struct routes *r, size_t i);

#endif
