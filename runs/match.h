/* One template against one path or key, and the texts that come of it: the parts of which the
 * calls of routes.h are made. Any thread. */
#ifndef RUNFS_RUNS_MATCH_H
#define RUNFS_RUNS_MATCH_H

#include "common/path.h"
#include "runs/routes.h"

/* A path or a key that has begun as a template says. */
struct match {
    struct {
        const char *at; /* in the path */
        size_t len;
    } captured[TEMPLATE_COMPONENTS_MAX]; /* by the template's components; of literals nothing */
    size_t n;                            /* so many of the template's components the path has */
    const char *below;                   /* what of the path is behind them; "" for nothing */
};

/* Whether the template and the path are the same as far as both go. */
bool match_begin(const struct template *t, const char *path, struct match *ret);
/* Whether the path goes on to that template's paths but is none: it ends before. */
static inline bool match_on_the_way(const struct template *t, const struct match *m)
{
    return m->n < t->n;
}
/* Whether the template takes what match_begin() said is the same. */
bool match_takes(const struct template *t, const struct match *m, enum routes_as as);
/* Both. */
bool template_takes(const struct template *t, const char *path, enum routes_as as);

/* A key while it is put together. */
struct key_text {
    char at[PATH_KEY_MAX];
    size_t len;
};

/* The first `n` components of the route's key, of what its path captured; `below` behind them.
 * 0, -EINVAL, -EILSEQ or -ENAMETOOLONG as routes_find(). Allocates nothing. */
int match_key(const struct route *route, const struct match *m, size_t n, const char *below,
              struct key_text *ret);
/* How many components of the key are known: up to the last whose capture the path has. */
size_t match_bound(const struct route *route, const struct match *m);
/* The path's component with that capture; there is one. */
size_t match_capture(const struct template *t, const char *capture);

/* The name in the mount for what a component of the key captured, appended; the route's path
 * has that capture at component `at`. -ENOENT: there is no such name; -ENOMEM. */
int match_name(const struct route *route, size_t at, enum codec codec, const char *stored,
               size_t len, struct buf *shown);
/* The path that the route gives to a key, appended to `ret`, which is empty; others may have
 * it. -ENOENT: it gives none; -ENOMEM. */
int match_path(const struct route *route, const char *key, enum routes_as as, struct buf *ret);

/* The first route that has the path; NULL: none. */
const struct route *routes_owner(const struct routes *r, const char *path, enum routes_as as);

#endif
