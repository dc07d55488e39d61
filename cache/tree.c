/* The tree in memory: nodes, their names, paths, and the keys that are hidden until the store
 * lost them. */
#include "cache/node.h"

#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

uint64_t seq_now_locked(struct cache *c)
{
    return c->seq / SEQ_STEP * SEQ_STEP + SEQ_STEP - 1;
}

uint64_t seq_next_locked(struct cache *c)
{
    c->seq = (c->seq / SEQ_STEP + 1) * SEQ_STEP;
    return c->seq;
}

/* ---- inode numbers ---- */

/* FNV-1a with a final mix (splitmix64): the number must be stable over versions, not secret. */
static uint64_t hash_text(uint64_t h, const char *s)
{
    h = hash_fnv(h ^ FNV_START, s);
    h ^= h >> 30;
    h *= UINT64_C(0xbf58476d1ce4e5b9);
    h ^= h >> 27;
    h *= UINT64_C(0x94d049bb133111eb);
    return h ^ (h >> 31);
}

/* 0 and 1 are the kernel's and the root's; the top bit stays free for programs that use off_t.
 */
static uint64_t ino_usable(uint64_t h)
{
    h &= INT64_MAX;
    return h < 16 ? h + 16 : h;
}

/* Derived numbers are even, others odd: none of these is derived from a key later. */
static uint64_t ino_derived(struct cache *c, const char *key, uint64_t salt)
{
    return ino_usable(hash_text(c->identity_hash ^ salt, key) & ~UINT64_C(1));
}

/* The number of a key that went with what was renamed. */
struct moved_ino {
    UT_hash_handle hh;
    uint64_t ino;
    bool seen; /* while they are purged: something has it */
};

static bool has_moved(struct cache *c, uint64_t ino) REQUIRES(cache_mutex)
{
    struct moved_ino *m;

    HASH_FIND(hh, c->moved_inos, &ino, sizeof(ino), m);
    return m != NULL;
}

uint64_t ino_of_key(struct cache *c, const char *key)
{
    return ino_derived(c, key, 0);
}

uint64_t ino_of_found_locked(struct cache *c, const char *key)
{
    uint64_t ino = ino_of_key(c, key);

    for (uint64_t salt = 1; has_moved(c, ino); salt++)
        ino = ino_derived(c, key, salt);
    return ino;
}

static void ino_moved_locked(struct cache *c, uint64_t ino) REQUIRES(cache_mutex)
{
    struct moved_ino *m = ino % 2 || has_moved(c, ino) ? NULL : calloc(1, sizeof(*m));

    if (!m)
        return;
    m->ino = ino;
    HASH_ADD(hh, c->moved_inos, ino, sizeof(m->ino), m);
}

void node_keeps_ino_locked(struct cache *c, struct node *n)
{
    ino_moved_locked(c, n->ino);
    n->flags &= ~(unsigned)NODE_DEFAULT_INO; /* the key it is the hash of may be another's */
}

void ino_stands_locked(struct cache *c, uint64_t ino, const char *key)
{
    if (ino != ino_of_key(c, key))
        ino_moved_locked(c, ino);
}

/* So many cost nothing worth a walk through all names. */
#define MOVED_FEW 1000

static int see_ino(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    struct cache *c = arg;
    struct moved_ino *m;

    HASH_FIND(hh, c->moved_inos, &n->ino, sizeof(n->ino), m);
    if (m)
        m->seen = true;
    return 0;
}

void inos_purge_locked(struct cache *c)
{
    struct moved_ino *m, *next;
    struct detached *d, *next_d;

    if (HASH_COUNT(c->moved_inos) <= MOVED_FEW + 2 * c->moved_seen)
        return;
    (void)tree_each(c->root, see_ino, c);
    HASH_ITER(hh, c->detached, d, next_d)
    {
        (void)see_ino(c, d->node);
    }
    HASH_ITER(hh, c->moved_inos, m, next)
    {
        if (!m->seen) {
            HASH_DEL(c->moved_inos, m);
            free(m);
        } else {
            m->seen = false;
        }
    }
    c->moved_seen = HASH_COUNT(c->moved_inos);
}

void inos_free(struct cache *c)
{
    struct moved_ino *m, *next;

    HASH_ITER(hh, c->moved_inos, m, next)
    {
        HASH_DEL(c->moved_inos, m);
        free(m);
    }
}

uint64_t ino_fresh(struct cache *c, const char *key)
{
    uint64_t salt = (uint64_t)clock_real_ns() * UINT64_C(0x9e3779b97f4a7c15);

    return ino_usable(hash_text(c->identity_hash ^ salt, key) | 1);
}

/* ---- nodes ---- */

struct node *node_new(struct cache *c, uint32_t mode)
{
    struct node *n = calloc(1, sizeof(*n));

    if (!n)
        return NULL;
    n->mode = mode;
    n->nlink = S_ISDIR(mode) ? 2 : 1;
    if (S_ISDIR(mode)) {
        n->dir = calloc(1, sizeof(*n->dir));
        if (!n->dir) {
            free(n);
            return NULL;
        }
        waitq_init(&n->dir->waiters);
        c->dir_ids += c->dir_ids == UINT32_MAX ? 2 : 1; /* 0 is none */
        n->dir->id = c->dir_ids;
    }
    if (ids_add(c->ids, n) < 0) {
        free(n->dir);
        free(n);
        return NULL;
    }
    c->nodes++;
    return n;
}

void node_ref_locked(struct node *n)
{
    n->refs++;
}

void node_unref_locked(struct cache *c, struct node *n)
{
    assert(n->refs > 0);
    n->refs--;
    node_collect_locked(c, n);
}

static void detached_add_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    struct detached *d = NULL;

    HASH_FIND_PTR(c->detached, &n, d);
    if (d || !(d = calloc(1, sizeof(*d))))
        return; /* without memory it is lost at the end, with all the others */
    d->node = n;
    HASH_ADD_PTR(c->detached, node, d);
}

static void detached_remove_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex)
{
    struct detached *d = NULL;

    HASH_FIND_PTR(c->detached, &n, d);
    if (!d)
        return;
    HASH_DEL(c->detached, d);
    free(d);
}

void detached_free_locked(struct cache *c)
{
    while (c->detached) {
        struct node *n = c->detached->node;
        detached_remove_locked(c, n);
        n->nlookup = 0;
        node_collect_locked(c, n);
    }
}

void node_collect_locked(struct cache *c, struct node *n)
{
    if (n->refs || n->nlookup || n->links || n->is_root)
        return;
    detached_remove_locked(c, n);
    if (n->dir) {
        struct entry *e;
        size_t at;
        CHILDREN_FOREACH(n->dir->children, e, at)
        {
            entry_remove_locked(c, e);
        }
    }
    c->hooks.end(c, n);
    if (n->dir) {
        c->hidden_names -= n->dir->hidden_names;
        free(n->dir->error_text);
        etag_clear(&n->dir->put_etag);
        free(n->dir);
    }
    free(n->target);
    free(n->xattrs);
    c->nodes--;
    ids_remove(c->ids, n);
    free(n);
}

struct timespec timespec_of(int64_t ns)
{
    int64_t rest = ns % NS_PER_SEC;

    /* Before 1970 the nanoseconds count forward, too. */
    return rest < 0
               ? (struct timespec){.tv_sec = ns / NS_PER_SEC - 1, .tv_nsec = rest + NS_PER_SEC}
               : (struct timespec){.tv_sec = ns / NS_PER_SEC, .tv_nsec = rest};
}

void node_stat(struct node *n, struct stat *st)
{
    memset(st, 0, sizeof(*st));
    st->st_ino = n->ino;
    st->st_mode = n->mode;
    st->st_nlink = n->nlink;
    st->st_uid = n->uid;
    st->st_gid = n->gid;
    st->st_rdev = n->rdev;
    st->st_size = (off_t)n->size;
    /* A file that is not whole here would look sparse to tar and cp. */
    bool whole = n->file && n->file->state != FILE_PARTIAL && S_ISREG(n->mode);
    /* As much is read at once by stdio and Python, after each seek, too: of what must come from
     * the store no more than is fetched anyway. */
    st->st_blksize = whole || !S_ISREG(n->mode) ? 1 << 20 : 32 << 10;
    st->st_blocks = (blkcnt_t)((whole ? n->file->blocks_bytes : n->size + 511) / 512);
    st->st_mtim = timespec_of(n->mtime_ns);
    st->st_ctim = timespec_of(n->ctime_ns);
    st->st_atim = timespec_of(n->atime_ns);
}

void node_default_attrs(struct cache *c, struct node *n)
{
    n->uid = c->config.uid;
    n->gid = c->config.gid;
    n->mode = S_ISDIR(n->mode) ? S_IFDIR | c->config.dir_mode : S_IFREG | c->config.file_mode;
}

static bool mode_fits(struct node *n, uint32_t mode)
{
    if (n->dir)
        return S_ISDIR(mode);
    return S_ISREG(mode) || S_ISLNK(mode) || S_ISFIFO(mode) || S_ISSOCK(mode) ||
           S_ISCHR(mode) || S_ISBLK(mode);
}

/* A content can't be a symlink, fifo or device: only an empty object may claim that. */
static bool type_allowed(struct node *n, const struct object *obj, uint32_t mode)
{
    return mode_fits(n, mode) && (n->dir || S_ISREG(mode) || obj->size == 0);
}

bool node_attrs_known(const struct node *n)
{
    return (n->flags & (NODE_ATTRS_KNOWN | NODE_ATTRS_OLD)) == NODE_ATTRS_KNOWN;
}

void node_attrs_are_known(struct node *n)
{
    n->flags |= NODE_ATTRS_KNOWN;
    n->flags &= ~(unsigned)NODE_ATTRS_OLD;
}

void node_apply_attrs(struct cache *c, struct node *n, const struct object *obj)
{
    const struct attrs *a = &obj->attrs;

    node_default_attrs(c, n);
    n->sum_kind = (uint8_t)obj->checksum.kind;
    n->sum_value = obj->checksum.value;
    n->flags &= ~(unsigned)NODE_NO_SUM;
    n->size = obj->size;
    n->mtime_ns = obj->mtime_ns || !obj->is_prefix ? obj->mtime_ns : c->started_ns;
    n->attrs_has = obj->attrs_known ? a->has : 0;
    n->flags &= ~(unsigned)NODE_ATTRS_HEARSAY;
    if (obj->attrs_known && obj->attrs_hearsay && !n->dir)
        n->flags |= NODE_ATTRS_HEARSAY;
    if (!obj->attrs_known) {
        n->ctime_ns = n->atime_ns = n->mtime_ns;
        return;
    }
    if ((a->has & ATTR_MODE) && !(a->mode & S_IFMT))
        n->mode = (n->mode & S_IFMT) | (a->mode & 07777);
    else if ((a->has & ATTR_MODE) && type_allowed(n, obj, a->mode))
        n->mode = a->mode;
    if (a->has & ATTR_OWNER) {
        n->uid = a->uid;
        n->gid = a->gid;
    }
    if (a->has & ATTR_MTIME)
        n->mtime_ns = a->mtime_ns;
    if (a->has & ATTR_RDEV)
        n->rdev = (uint32_t)a->rdev;
    n->ctime_ns = n->atime_ns = n->mtime_ns;
    free(n->xattrs);
    n->xattrs = (a->has & ATTR_XATTRS) && a->xattrs ? strdup(a->xattrs) : NULL;
    node_acl_follow(n);
    if (S_ISLNK(n->mode)) {
        free(n->target);
        n->target = strdup((a->has & ATTR_TARGET) && a->target ? a->target : "");
        n->size = n->target ? strlen(n->target) : 0;
    }
    node_attrs_are_known(n);
}

/* ---- entries ---- */

struct entry *entry_find(struct node *dir, const char *name)
{
    return dir->dir ? children_find(dir->dir->children, name) : NULL;
}

static int link_entry(struct entry *e) REQUIRES(cache_mutex)
{
    int r = children_add(&e->parent->dir->children, e);

    if (r < 0)
        return r;
    e->parent->dir->files += !e->node->dir;
    e->next_link = e->node->links;
    e->node->links = e;
    return 0;
}

static void unlink_entry(struct entry *e) REQUIRES(cache_mutex)
{
    struct entry **at = &e->node->links;

    children_remove(&e->parent->dir->children, e);
    e->parent->dir->files -= !e->node->dir;
    while (*at != e)
        at = &(*at)->next_link;
    *at = e->next_link;
}

struct entry *entry_add_locked(struct cache *c, struct node *dir, const char *name,
                               struct node *n)
{
    size_t len = strlen(name);
    struct entry *e = calloc(1, offsetof(struct entry, name) + len + 1);

    cache_assert_locked(c);
    if (!e)
        return NULL;
    memcpy(e->name, name, len + 1);
    e->hash = children_hash(name);
    e->parent = dir;
    e->node = n;
    if (link_entry(e) < 0) {
        free(e);
        return NULL;
    }
    return e;
}

void entry_remove_locked(struct cache *c, struct entry *e)
{
    struct node *n = e->node;

    unlink_entry(e);
    if (!n->links && n->dir)
        n->flags |= NODE_LOST;
    if (!n->links && n->nlookup)
        detached_add_locked(c, n);
    if (!n->links)
        c->hooks.nameless(c, n);
    etag_clear(&e->etag);
    free(e->src_key);
    free(e);
    node_collect_locked(c, n);
}

int entry_move_locked(struct cache *c, struct entry **e, struct node *dir, const char *name)
{
    struct entry *old = *e;
    struct node *n = old->node;

    node_ref_locked(n);
    struct entry *e2 = entry_add_locked(c, dir, name, n);
    if (e2) {
        etag_move(&e2->etag, &old->etag);
        e2->src_key = take_ptr(old->src_key);
        e2->verified_ns = old->verified_ns;
        e2->dirty = old->dirty;
        unlink_entry(old);
        free(old);
        *e = e2;
    }
    node_unref_locked(c, n);
    return e2 ? 0 : -ENOMEM;
}

void entry_changed_locked(struct cache *c, struct entry *e)
{
    int64_t now = clock_mono_ns();

    cache_assert_locked(c);
    for (; e; e = e->parent->links) {
        e->changed_ns = now;
        dir_child_changed_locked(c, e->parent, e);
    }
}

/* ---- paths ---- */

/* Joins `base`, which is where `until` stands, and the names below that, down to that of `e`.
 */
static char *build_path(struct entry *e, const struct entry *until, const char *base)
{
    size_t base_len = strlen(base), len = until ? base_len + 1 : 0;

    for (struct entry *at = e; at != until; at = at->parent->links) {
        len += strlen(at->name) + 1;
        if (!at->parent->links && !at->parent->is_root)
            return NULL; /* below a removed directory */
    }
    char *path = malloc(len + 1);
    if (!path)
        return NULL;
    char *p = path + len;
    *p = '\0';
    for (struct entry *at = e; at != until; at = at->parent->links) {
        size_t n = strlen(at->name);
        p -= n;
        memcpy(p, at->name, n);
        *--p = '/';
    }
    if (until) {
        p -= base_len;
        memcpy(p, base, base_len);
        *--p = '/';
    }
    memmove(path, path + 1, len);
    return path;
}

char *entry_path(struct entry *e)
{
    return build_path(e, NULL, "");
}

char *entry_key(struct entry *e)
{
    for (struct entry *at = e; at; at = at->parent->links) {
        if (at->src_key)
            return build_path(e, at, at->src_key);
    }
    return build_path(e, NULL, "");
}

char *node_path(struct node *n)
{
    if (n->is_root)
        return strdup("");
    return n->links ? entry_path(n->links) : NULL;
}

char *node_key(struct node *n)
{
    if (n->is_root)
        return strdup("");
    return n->links ? entry_key(n->links) : NULL;
}

struct entry *node_name_at(struct node *n, const char *key)
{
    for (struct entry *e = n->links; e; e = e->next_link) {
        auto_free char *now = entry_key(e);
        if (now && strcmp(now, key) == 0)
            return e;
    }
    return NULL;
}

char *child_path(struct node *dir, const char *name)
{
    auto_free char *path = node_path(dir);

    return path ? path_join(path, name) : NULL;
}

char *child_key(struct node *dir, const char *name)
{
    auto_free char *key = node_key(dir);

    return key ? path_join(key, name) : NULL;
}

bool node_is_below(struct node *n, struct node *dir)
{
    while (n != dir) {
        if (!n->links)
            return false;
        n = n->links->parent;
    }
    return true;
}

/* Takes no memory: without any, nobody may be told that there is no such name. */
struct node *tree_find(struct cache *c, const char *path, struct entry **ret_entry)
{
    struct node *n = c->root;
    struct entry *e = NULL;
    char name[NAME_MAX + 1];

    if (ret_entry)
        *ret_entry = NULL;
    for (size_t len; *path; path += len) {
        len = strcspn(path, "/");
        if (len == 0) {
            len = 1;
            continue;
        }
        if (len > NAME_MAX)
            return NULL;
        memcpy(name, path, len);
        name[len] = '\0';
        e = entry_find(n, name);
        if (!e)
            return NULL;
        n = e->node;
    }
    if (ret_entry)
        *ret_entry = e;
    return n;
}

bool node_is_named_below(struct cache *c, struct node *n, const char *path)
{
    struct entry *at, *e;
    struct node *top = tree_find(c, path, &at);

    for (e = top ? n->links : NULL; e; e = e->next_link)
        if (e == at || node_is_below(e->parent, top))
            return true;
    return false;
}

struct node *tree_make_dirs_locked(struct cache *c, const char *path)
{
    struct node *n = c->root;
    auto_free char *copy = strdup(path);
    char *rest = copy, *name;

    while (copy && (name = strsep(&rest, "/"))) {
        if (*name == '\0')
            continue;
        struct entry *e = entry_find(n, name);
        if (e && !e->node->dir)
            return NULL;
        if (!e) {
            struct node *child = node_new(c, S_IFDIR);
            if (!child)
                return NULL;
            node_default_attrs(c, child);
            child->mtime_ns = child->ctime_ns = child->atime_ns = c->started_ns;
            e = entry_add_locked(c, n, name, child);
            if (!e) {
                node_collect_locked(c, child);
                return NULL;
            }
            auto_free char *at = entry_path(e);
            child->ino = at ? ino_of_found_locked(c, at) : 0;
            child->flags |= NODE_DEFAULT_INO;
        }
        n = e->node;
    }
    return copy ? n : NULL;
}

int tree_each(struct node *n, int (*visit)(void *arg, struct node *n), void *arg)
{
    struct entry *e;
    size_t at;
    int r = visit(arg, n);

    if (r != 0 || !n->dir)
        return r;
    CHILDREN_FOREACH(n->dir->children, e, at)
    {
        r = tree_each(e->node, visit, arg);
        if (r != 0)
            return r;
    }
    return 0;
}

char *cache_path(struct cache *c, struct node *node)
{
    cache_lock(c);
    char *path = node_path(node);
    cache_unlock(c);
    return path;
}

struct node *cache_root(struct cache *c)
{
    return c->root;
}

/* ---- ghosts ---- */

/* How long a listing may take; a younger one can't show what was removed before it. */
#define GHOST_KEEP_NS (600 * NS_PER_SEC)

bool ghost_pending(struct cache *c, const char *key)
{
    struct ghost *g;

    HASH_FIND_STR(c->ghosts, key, g);
    return g && g->pending > 0;
}

/* Whether the key was removed, or moved away with a directory above it, since. */
static bool removed_since(struct cache *c, const char *key, int64_t listed_ns)
    REQUIRES(cache_mutex)
{
    for (const char *end = key; *end; end++) {
        struct ghost *g;
        if (end[1] != '/' && end[1] != '\0')
            continue;
        HASH_FIND(hh, c->ghosts, key, (size_t)(end + 1 - key), g);
        if (g && g->pending == 0 && g->done_ns >= listed_ns && (!end[1] || g->with_tree))
            return true;
    }
    return false;
}

bool ghost_hides(struct cache *c, const char *key, const char *path, int64_t listed_ns)
{
    return removed_since(c, key, listed_ns) || !intent_leads_to(c, key, path);
}

static void ghosts_purge(struct cache *c) REQUIRES(cache_mutex)
{
    struct ghost *g, *next;
    int64_t old = clock_mono_ns() - GHOST_KEEP_NS;

    HASH_ITER(hh, c->ghosts, g, next)
    {
        if (g->pending > 0 || g->done_ns > old)
            continue;
        HASH_DEL(c->ghosts, g);
        free(g);
    }
}

void ghost_count_locked(struct cache *c, const char *key, int by, bool with_tree)
{
    struct ghost *g;

    HASH_FIND_STR(c->ghosts, key, g);
    if (!g && by > 0) {
        size_t len = strlen(key);
        g = calloc(1, sizeof(*g) + len + 1);
        if (!g)
            return; /* a listing may show the name until the store lost it */
        memcpy(g->key, key, len + 1);
        if (HASH_COUNT(c->ghosts) % 1024 == 1023)
            ghosts_purge(c);
        HASH_ADD_KEYPTR(hh, c->ghosts, g->key, len, g);
    }
    if (!g)
        return;
    g->pending = (unsigned)((int)g->pending + by);
    if (by > 0)
        return;
    g->done_ns = clock_mono_ns();
    g->with_tree = with_tree;
}

void ghosts_free(struct cache *c)
{
    struct ghost *g, *next;

    HASH_ITER(hh, c->ghosts, g, next)
    {
        HASH_DEL(c->ghosts, g);
        free(g);
    }
}
