/* Inode numbers, and places in the order of closes and intentions. */
#include "cache/tree/tree_impl.h"

#include "common/hash.h"
#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"
#include "runs/routes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint64_t seq_now_locked(struct cache *c)
{
    cache_assert_locked(c);
    return c->tree->seq / SEQ_STEP * SEQ_STEP + SEQ_STEP - 1;
}

uint64_t seq_next_locked(struct cache *c)
{
    cache_assert_locked(c);
    c->tree->seq = (c->tree->seq / SEQ_STEP + 1) * SEQ_STEP;
    return c->tree->seq;
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
static uint64_t ino_derived(uint64_t of, const char *key, uint64_t salt)
{
    return ino_usable(hash_text(of ^ salt, key) & ~UINT64_C(1));
}

/* Each part is mixed, so that no two stores are the same text. */
static uint64_t store_salt(const struct cache_store *s)
{
    uint64_t h = hash_text(hash_text(0, s->name), s->url);

    return s->endpoint ? hash_text(h, s->endpoint) : h;
}

int inos_init(struct cache *c)
{
    struct tree_own *own = c->tree->own;

    own->identity_hash = hash_fnv(FNV_START, c->config.identity);
    own->store_salts = calloc(c->config.n_stores + 1, sizeof(*own->store_salts));
    if (!own->store_salts)
        return -ENOMEM;
    for (size_t i = 0; i < c->config.n_stores; i++)
        own->store_salts[i] = store_salt(&c->config.stores[i]);
    return 0;
}

/* Routes may show one directory of a store at two paths, one even below the other, where find
 * and rm would see a loop: only the first has the number of the key. A store may also have an
 * object of the same key. */
static uint64_t salt_of_dir(struct cache *c, const struct route *route, const char *key,
                            const char *path, uint64_t of)
{
    auto_free char *first = NULL;

    int r = routes_path_of(c->config.routes, route->store, key, ROUTES_DIRECTORY, &first);
    return hash_text(of, r == 0 && strcmp(first, path) != 0 ? path : "/");
}

/* A number of the path itself needs no salt: the device tells this mount from others. */
static uint64_t ino_routed(struct cache *c, const char *path, bool dir, uint64_t salt)
{
    char key[PATH_KEY_MAX];
    const struct route *route = NULL;

    (void)routes_key(c->config.routes, path, dir ? ROUTES_DIRECTORY : ROUTES_OBJECT, &route,
                     key);
    bool stored = route && !route->scratch && route->store < c->config.n_stores;
    uint64_t of = stored ? c->tree->own->store_salts[route->store] : 0;
    if (dir)
        of = stored ? salt_of_dir(c, route, key, path, of) : hash_text(of, "/");
    return ino_derived(of, stored ? key : path, salt);
}

/* Without routes, and as earlier versions did it with them. */
static uint64_t ino_plain(struct cache *c, struct place at, uint64_t salt)
{
    return ino_derived(c->tree->own->identity_hash, at.key, salt);
}

static uint64_t ino_at(struct cache *c, struct place at, bool dir, uint64_t salt)
{
    return c->config.routes ? ino_routed(c, place_path(at), dir, salt) : ino_plain(c, at, salt);
}

static bool has_moved(struct cache *c, uint64_t ino) REQUIRES(cache_mutex)
{
    struct moved_ino *m;

    HASH_FIND(hh, c->tree->own->moved_inos, &ino, sizeof(ino), m);
    return m != NULL;
}

uint64_t ino_of_place(struct cache *c, struct place at, bool dir)
{
    return ino_at(c, at, dir, 0);
}

uint64_t ino_of_found_locked(struct cache *c, struct place at, bool dir)
{
    uint64_t ino = ino_of_place(c, at, dir);

    cache_assert_locked(c);
    for (uint64_t salt = 1; has_moved(c, ino); salt++)
        ino = ino_at(c, at, dir, salt);
    return ino;
}

static void ino_moved_locked(struct cache *c, uint64_t ino) REQUIRES(cache_mutex)
{
    struct moved_ino *m = ino % 2 || has_moved(c, ino) ? NULL : calloc(1, sizeof(*m));

    if (!m)
        return;
    m->ino = ino;
    HASH_ADD(hh, c->tree->own->moved_inos, ino, sizeof(m->ino), m);
    if (TABLE_LACKS(hh, m))
        free(m);
}

void node_keeps_ino_locked(struct cache *c, struct node *n)
{
    cache_assert_locked(c);
    ino_moved_locked(c, n->ino);
    n->flags &= ~(unsigned)NODE_DEFAULT_INO; /* the key it is the hash of may be another's */
}

/* What an earlier version derived with routes stays, and no key gives it to anything else. */
void ino_stands_locked(struct cache *c, uint64_t ino, struct place at, bool dir)
{
    cache_assert_locked(c);
    if (ino != ino_of_place(c, at, dir) && ino != ino_plain(c, at, 0))
        ino_moved_locked(c, ino);
}

/* So few are not worth a walk through all names. */
#define MOVED_FEW 1000

static int see_ino(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    struct cache *c = arg;
    struct moved_ino *m;

    HASH_FIND(hh, c->tree->own->moved_inos, &n->ino, sizeof(n->ino), m);
    if (m)
        m->seen = true;
    return 0;
}

void inos_purge_locked(struct cache *c)
{
    struct moved_ino *m, *next;
    struct detached *d, *next_d;

    ns_assert_held(c);
    cache_assert_locked(c);
    if (HASH_COUNT(c->tree->own->moved_inos) <= MOVED_FEW + 2 * c->tree->own->moved_seen)
        return;
    (void)tree_each(c->tree->root, see_ino, c);
    HASH_ITER(hh, c->tree->own->detached, d, next_d)
    {
        (void)see_ino(c, d->node);
    }
    HASH_ITER(hh, c->tree->own->moved_inos, m, next)
    {
        if (!m->seen) {
            HASH_DEL(c->tree->own->moved_inos, m);
            free(m);
        } else {
            m->seen = false;
        }
    }
    c->tree->own->moved_seen = HASH_COUNT(c->tree->own->moved_inos);
}

void inos_forget_locked(struct cache *c)
{
    struct moved_ino *m, *next;

    cache_assert_locked(c);
    HASH_ITER(hh, c->tree->own->moved_inos, m, next)
    {
        HASH_DEL(c->tree->own->moved_inos, m);
        free(m);
    }
}

uint64_t ino_fresh(struct cache *c, const char *path)
{
    uint64_t salt = (uint64_t)clock_real_ns() * UINT64_C(0x9e3779b97f4a7c15);

    return ino_usable(hash_text(c->tree->own->identity_hash ^ salt, path) | 1);
}
