/* The scope of a removal: the directory whose files it waits for, as far as they were closed
 * before. It is the beginning of the removed path, as the policies and routes say (a parent of
 * units, a run); "" is the whole mount, also where they say nothing: what takes the place of
 * something that is removed may lie anywhere then.
 *
 * What was in it when something was removed is waited for wherever it went since: its move
 * makes the scope of each such row wider, so that the new name lies in it, too. So the path of
 * a scope stays good: a directory at it, or above it, that is renamed with something owed in it
 * is no part of a scope any more. */
#include "cache/queue/queue_impl.h"

#include "common/mem.h"
#include "common/path.h"
#include "runs/policy_fields.h"
#include "runs/routes.h"
#include "runs/unit.h"

#include <string.h>

#ifndef NDEBUG
atomic_ullong scope_looks;
#endif

static void looked(void)
{
#ifndef NDEBUG
    atomic_fetch_add_explicit(&scope_looks, 1, memory_order_relaxed);
#endif
}

/* ---- which directory ---- */

static size_t count_names(const char *path)
{
    size_t n = *path != '\0';

    for (; *path; path++)
        n += *path == '/';
    return n;
}

/* How long the first `n` names are. */
static size_t first_names(const char *path, size_t n)
{
    size_t len = 0;

    for (; n && path[len]; n--) {
        len += len ? 1 : 0; /* the "/" */
        len += strcspn(path + len, "/");
    }
    return len;
}

/* What the directory is in of which the first `len` bytes are the path. */
static size_t parent_len(const char *path, size_t len)
{
    while (len && path[--len] != '/')
        ;
    return len;
}

/* Below which the captures of the route say nothing more: up to the first of them, since what
 * takes the place of something may differ in the others. 0: it has none. */
static size_t names_to_capture(const struct route *route)
{
    for (size_t i = 0; route && i < route->path.n; i++)
        if (route->path.components[i].capture)
            return i + 1;
    return 0;
}

static const struct policy *policy_of(struct cache *c, const char *path, bool dir)
{
    return c->config.routes ? path_policy(c, path, dir) : policy_preset("data");
}

/* The unit that is at the path, or above it, by its names. */
static struct unit_at unit_by_names(const struct policy *p, const struct route *route,
                                    const char *path, bool dir)
{
    bool object = route && !route->path.rest;
    size_t root = object ? strlen(path) : route ? first_names(path, route->path.n) : 0;

    return p ? unit_of_path(p, root, path, dir) : (struct unit_at){UNIT_NONE, 0};
}

bool path_may_be_unit(struct cache *c, const char *path)
{
    const struct policy *p = policy_of(c, path, true);

    if (!p || !unit_policy_groups(p) || path_is_staged_dir(c, path))
        return false;
    struct unit_at unit = unit_by_names(p, path_route(c, path, true), path, true);
    return unit.kind != UNIT_DIR || unit.len == strlen(path);
}

/* Whether there is one; then *ret is the scope. */
static bool scope_of_unit(const struct policy *p, struct unit_at unit, const char *path,
                          size_t *ret)
{
    if (unit.kind != UNIT_DIR)
        return false;
    *ret = strcmp(p->unit, "root") == 0 ? unit.len : parent_len(path, unit.len);
    return true;
}

size_t path_scope(struct cache *c, const char *path, bool dir)
{
    const struct route *route = path_route(c, path, dir);
    const struct policy *p = policy_of(c, path, dir);
    size_t captured = names_to_capture(route), ret = 0;
    size_t names = count_names(path) + dir; /* a directory goes with what is in it */

    if (scope_of_unit(p, unit_by_names(p, route, path, dir), path, &ret))
        return ret;
    return first_names(path, captured < names ? captured : names - 1);
}

/* How long the path of the deepest directory is that both are in. */
static size_t common_len(const char *a, const char *b)
{
    size_t len = 0;

    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '/')
            len = i;
    return len;
}

/* ---- of a row ---- */

static void widen(struct intent *i, size_t len) REQUIRES(cache_mutex)
{
    i->scope = len < i->scope ? len : i->scope;
}

void scope_begin_locked(struct cache *c, struct intent *i)
{
    cache_assert_locked(c);
    widen(i, path_scope(c, i->from, intent_kind_is_of_dir(i->kind)));
    if (i->to) /* of what is written anew it removes the old version */
        scope_reaches_locked(i, i->to);
}

void scope_reaches_locked(struct intent *i, const char *path)
{
    widen(i, common_len(i->from, path));
}

void scope_takes_locked(struct intent *i, const struct intent *other)
{
    widen(i, other->scope);
}

/* Its directory, NULL: there is none; *ret_all: it is the whole mount, or without memory may
 * be.
 */
static struct node *scope_dir_locked(struct cache *c, const struct intent *i, bool *ret_all)
    REQUIRES(cache_mutex)
{
    auto_free char *path = i->scope ? strndup(i->from, i->scope) : NULL;

    *ret_all = !path;
    return path ? tree_find(c, path, NULL) : NULL;
}

bool scope_has_locked(struct cache *c, const struct intent *i, const struct file *f)
{
    bool all;
    struct node *dir = scope_dir_locked(c, i, &all);

    cache_assert_locked(c);
    for (const struct entry *e = f->node->links; e && dir && !all; e = e->next_link)
        all = node_is_below(e->parent, dir);
    return all;
}

/* ---- the first files of all directories ---- */

/* The first of those that removals wait for at or below a directory. */
struct scope_dir {
    UT_hash_handle hh; /* in scope_dirs.dirs, by dir */
    const struct node *dir;
    uint64_t seq;
};

static bool add_dir(struct scope_dirs *s, const struct node *dir, uint64_t seq)
{
    struct scope_dir *d;

    looked();
    HASH_FIND_PTR(s->dirs, &dir, d);
    if (d)
        return false;
    d = calloc(1, sizeof(*d));
    if (!d) {
        s->all_hold = true;
        return false;
    }
    d->dir = dir;
    d->seq = seq;
    HASH_ADD_PTR(s->dirs, dir, d);
    return true;
}

void scope_dirs_add_locked(struct scope_dirs *s, const struct file *f)
{
    for (const struct entry *e = f->node->links; e; e = e->next_link) {
        const struct node *dir = e->parent;
        /* One that is known has all above it known, too. */
        while (dir && dir != s->last && add_dir(s, dir, f->debt.seq))
            dir = dir->links ? dir->links->parent : NULL;
        s->last = e->parent;
    }
}

uint64_t scope_dirs_first_locked(struct cache *c, const struct scope_dirs *s,
                                 const struct intent *i, uint64_t all_seq)
{
    struct scope_dir *d = NULL;
    bool all;
    const struct node *dir = scope_dir_locked(c, i, &all);

    cache_assert_locked(c);
    looked();
    if (all || s->all_hold)
        return all_seq;
    if (dir)
        HASH_FIND_PTR(s->dirs, &dir, d);
    return d ? d->seq : UINT64_MAX;
}

void scope_dirs_free(struct scope_dirs *s)
{
    struct scope_dir *d, *next;

    HASH_ITER(hh, s->dirs, d, next)
    {
        HASH_DEL(s->dirs, d);
        free(d);
    }
}

/* ---- what moves ---- */

static int note_first(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    uint64_t *first = arg, seq = n->file ? n->file->debt.seq : 0;

    *first = seq && (!*first || seq < *first) ? seq : *first;
    return 0;
}

struct move {
    struct cache *cache;
    const char *from;
    size_t common; /* what both paths are in */
    uint64_t first;
};

/* Whether the scope was that of what moved, or lies in it. */
static bool had(const struct intent *i, const char *path) REQUIRES(cache_mutex)
{
    size_t len = strlen(path), least = len < i->scope ? len : i->scope;
    const char *end = len < i->scope ? i->from : path;

    return strncmp(i->from, path, least) == 0 && (end[least] == '/' || end[least] == '\0');
}

static bool follow(void *arg, struct intent *i) REQUIRES(cache_mutex)
{
    const struct move *m = arg;

    if (barrier_seq_locked(m->cache, i->seq) > m->first && had(i, m->from))
        widen(i, m->common);
    return false; /* the next one */
}

static void follow_all(struct move *m) REQUIRES(cache_mutex)
{
    struct intent *i;

    ROWS_FOREACH(m->cache, i)
    (void)follow(m, i);
}

void scopes_follow_locked(struct cache *c, struct node *n, const char *from, const char *to)
{
    struct move m = {.cache = c, .from = from, .common = common_len(from, to)};

    cache_assert_locked(c);
    if (!row_first(c))
        return;
    /* A scope that it leaves begins with this, so that its rows are below it. */
    size_t top = m.common + (m.common ? 1 : 0);
    top += strcspn(from + top, "/");
    if (!n->dir && from[top] == '\0')
        return; /* it stays in its directory */
    (void)tree_each(n, note_first, &m.first);
    if (!m.first)
        return;
    auto_free char *path = strndup(from, top);
    struct row_ask ask = {.sets = ROWS_TAKING, .path = path, .is = follow, .arg = &m};
    if (!path) {
        follow_all(&m);
        return;
    }
    (void)row_below_locked(c, &ask);
}

void scopes_lost_name_locked(struct cache *c, struct node *n, const char *path)
{
    auto_free char *other = entry_path(n->links);

    scopes_follow_locked(c, n, path, other ? other : "");
}

/* Whether it may have had another name when it was closed: what moves gets a new number. */
static bool may_have_moved(const struct file *f) REQUIRES(cache_mutex)
{
    bool moved = f->node->named_seq >= f->debt.seq;

    for (const struct entry *link = f->node->links; link && !moved; link = link->next_link)
        for (const struct entry *e = link; e && !moved; e = e->parent->links)
            moved = e->parent->named_seq >= f->debt.seq;
    return moved;
}

void scopes_found_locked(struct cache *c)
{
    struct intent *i;
    struct file *f;

    cache_assert_locked(c);
    OWED_FILES_FOREACH(c, f)
    {
        if (f->debt.seq && may_have_moved(f))
            break;
    }
    if (!f)
        return;
    ROWS_FOREACH(c, i)
    {
        if (barrier_seq_locked(c, i->seq) > f->debt.seq)
            widen(i, 0);
    }
}
