/* Whose a version at the store is: which of them this cache put there.
 *
 * A mount signs what it puts with a number of its own, drawn at random, and notes in the
 * journal under which key, and until when, before the request is sent. What bears its number is
 * its own. Of what an earlier mount signed only that is this cache's which was noted, and not
 * settled: the cache directory may be a copy, or an older state of itself, and what followed
 * from the other is somebody else's. docs/format.md, section 7.
 *
 * A note passes through: in the journal (the put may be sent) > settled (in memory only: the
 * next note takes it out of the journal) > gone. One that is left in the journal does no harm:
 * it claims what this cache did put. Any thread. */
#include "cache/queue/queue_impl.h"

#include "cache/mirror/crash.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <utlist.h>

/* What one mount put to a key, up to a time. */
struct sent {
    struct sent *next;
    uint64_t origin;
    int64_t last_ns; /* CLOCK_REALTIME */
};

/* What was put to one key and is not settled. */
struct put {
    UT_hash_handle hh; /* in origins.puts, by key */
    struct put *next;  /* in origins.settled */
    struct sent *sent; /* by each mount one */
    char key[];
};

extern struct lock_class origins_mutex;

struct origins {
    uint64_t number; /* constant */
    struct mutex lock;
    GUARDED_BY(origins_mutex) struct {
        int64_t last_ns; /* CLOCK_REALTIME; of the newest that this mount has signed */
        bool unnoted;    /* the last note could not be written */
        struct put *puts;
        struct put *settled; /* their notes are still in the journal */
    };
};

MUTEX_KIND(origins, struct origins, lock);

/* ---- notes in memory ---- */

static void put_free(struct put *p)
{
    struct sent *s, *next;

    LL_FOREACH_SAFE(p->sent, s, next)
    {
        free(s);
    }
    free(p);
}

static struct put *find_put(struct origins *o, struct place at) REQUIRES(origins_mutex)
{
    struct put *p = NULL;

    HASH_FIND(hh, o->puts, at.key, strlen(at.key), p);
    return p;
}

static struct put *add_put(struct origins *o, struct place at) REQUIRES(origins_mutex)
{
    size_t len = strlen(at.key);
    struct put *p = calloc(1, sizeof(*p) + len + 1);

    if (!p)
        return NULL;
    memcpy(p->key, at.key, len);
    HASH_ADD(hh, o->puts, key, len, p);
    if (TABLE_LACKS(hh, p)) {
        free(p);
        return NULL;
    }
    return p;
}

/* Remembers one note. 0 or -ENOMEM. */
static int remember_locked(struct origins *o, struct place at, uint64_t origin, int64_t last_ns)
    REQUIRES(origins_mutex)
{
    struct put *p = find_put(o, at);
    struct sent *s;

    if (!p && !(p = add_put(o, at)))
        return -ENOMEM;
    LL_SEARCH_SCALAR(p->sent, s, origin, origin);
    if (!s) {
        s = calloc(1, sizeof(*s));
        if (!s)
            return -ENOMEM;
        s->origin = origin;
        LL_PREPEND(p->sent, s);
    }
    s->last_ns = last_ns;
    return 0;
}

static void settle_locked(struct origins *o, struct put *p) REQUIRES(origins_mutex)
{
    HASH_DEL(o->puts, p);
    LL_PREPEND(o->settled, p);
}

/* ---- whose ---- */

/* Each key has its own: what is copied keeps the origin of the key that it came from. */
static uint64_t origin_of(uint64_t number, struct place at)
{
    return hash_fnv(number, at.key);
}

/* A folder has no room for it in what is no regular file: the note names such a thing by what
 * it is. Who has put the same there lost nothing. */
static bool is_unsigned(struct cache *c, struct place at, const struct attrs *a)
{
    return a->has & ATTR_MODE && !S_ISREG(a->mode) && !S_ISDIR(a->mode) &&
           store_can(c->store, at.key, STORE_PROMPT);
}

static uint64_t mark_of(const struct attrs *a)
{
    const char *target = a->has & ATTR_TARGET ? a->target : "";

    return hash_fnv((a->mode & S_IFMT) ^ FNV_START ^ (a->has & ATTR_RDEV ? a->rdev : 0),
                    target);
}

static bool was_put_locked(struct origins *o, struct place at, uint64_t origin, int64_t ns)
    REQUIRES(origins_mutex)
{
    const struct put *p = find_put(o, at);
    const struct sent *s;

    LL_FOREACH(p ? p->sent : NULL, s)
    {
        if (s->origin == origin && ns <= s->last_ns)
            return true;
    }
    return false;
}

bool origin_is_ours(struct cache *c, struct place at, const struct attrs *a)
{
    struct origins *o = c->queue->own->origins;
    bool ours = false;

    if (!(a->has & ATTR_ORIGIN)) {
        if (!is_unsigned(c, at, a))
            return false;
        origins_lock(o);
        ours = was_put_locked(o, at, mark_of(a), INT64_MIN);
        origins_unlock(o);
        return ours;
    }
    origins_lock(o);
    /* A later time than that of anything that was sent is of another life of this cache. */
    if (a->origin == origin_of(o->number, at))
        ours = a->origin_ns <= o->last_ns;
    ours = ours || was_put_locked(o, at, a->origin, a->origin_ns);
    origins_unlock(o);
    return ours;
}

uint64_t origins_number(struct cache *c)
{
    return c->queue->own->origins->number;
}

/* ---- signing ---- */

static size_t count_notes(const struct put *puts)
{
    const struct put *p;
    const struct sent *s;
    size_t n = 0;

    LL_FOREACH(puts, p)
    {
        LL_FOREACH(p->sent, s)
        {
            n++;
        }
    }
    return n;
}

/* Tells the first failure in a row alone. */
static void tell_unnoted(struct cache *c, int r)
{
    struct origins *o = c->queue->own->origins;

    origins_lock(o);
    bool news = r < 0 && !o->unnoted;
    o->unnoted = r < 0;
    origins_unlock(o);
    if (news)
        log_warn(
            "cache %s: what is uploaded can't be noted (%s): a mount after a crash may take "
            "it for another node's",
            c->mirror.dir, strerror(-r));
}

/* Writes the note, and takes those of `settled` out. */
static int write_note(struct cache *c, const struct journal_put *note,
                      const struct put *settled)
{
    size_t n = 0, most = count_notes(settled);
    struct journal_put *old = most ? calloc(most, sizeof(*old)) : NULL;
    const struct put *p;
    const struct sent *s;

    LL_FOREACH(old ? settled : NULL, p)
    {
        LL_FOREACH(p->sent, s)
        {
            old[n++] = (struct journal_put){p->key, s->origin, s->last_ns};
        }
    }
    int r = journal_note_put(c->journal, note, old, n);
    free(old);
    return r;
}

static void puts_free(struct put *puts)
{
    struct put *p, *next;

    LL_FOREACH_SAFE(puts, p, next)
    {
        put_free(p);
    }
}

void origin_sign(struct cache *c, struct place at, struct attrs *a)
{
    struct origins *o = c->queue->own->origins;

    a->has |= ATTR_ORIGIN;
    a->origin = origin_of(o->number, at);
    a->origin_ns = clock_real_ns();
    bool is_marked = is_unsigned(c, at, a);
    if (!is_marked && !store_can(c->store, at.key, STORE_ORIGIN))
        return;
    const struct journal_put note = {at.key, is_marked ? mark_of(a) : a->origin, a->origin_ns};
    origins_lock(o);
    int r = remember_locked(o, at, note.origin, note.last_ns);
    if (o->last_ns < a->origin_ns)
        o->last_ns = a->origin_ns;
    struct put *settled = o->settled;
    o->settled = NULL;
    origins_unlock(o);
    if (r == 0)
        r = write_note(c, &note, settled);
    puts_free(settled);
    tell_unnoted(c, r);
    crash_point("put-noted");
}

void origin_resolved(struct cache *c, struct place at)
{
    struct origins *o = c->queue->own->origins;

    origins_lock(o);
    struct put *p = find_put(o, at);
    if (p)
        settle_locked(o, p);
    origins_unlock(o);
}

/* ---- at the mount and at its end ---- */

int origins_open(struct cache *c)
{
    struct origins *o = calloc(1, sizeof(*o));

    if (!o)
        return -ENOMEM;
    mutex_init(&o->lock);
    c->queue->own->origins = o;
    return getrandom(&o->number, sizeof(o->number), 0) == sizeof(o->number) ? 0 : -EIO;
}

/* Whether something may still ask whose the version at the key is. */
static bool is_owed(struct cache *c, struct place at) REQUIRES(cache_mutex)
{
    struct entry *e = NULL;

    return row_first(c) || (tree_find(c, place_path(at), &e) && e && e->dirty);
}

static int load_one(void *arg, const struct journal_put *note)
{
    struct cache *c = arg;
    struct origins *o = c->queue->own->origins;

    origins_lock(o);
    int r = remember_locked(o, place_of_key(note->key), note->origin, note->last_ns);
    origins_unlock(o);
    return r;
}

int origins_load(struct cache *c)
{
    struct origins *o = c->queue->own->origins;
    struct put *p, *next;

    cache_assert_locked(c);
    int r = journal_each_put(c->journal, load_one, c);
    origins_lock(o);
    HASH_ITER(hh, o->puts, p, next)
    {
        if (!is_owed(c, place_of_key(p->key)))
            settle_locked(o, p);
    }
    origins_unlock(o);
    return r;
}

void origins_free(struct cache *c)
{
    struct origins *o = c->queue->own->origins;
    struct put *p, *next;

    if (!o)
        return;
    origins_lock(o);
    HASH_ITER(hh, o->puts, p, next)
    {
        HASH_DEL(o->puts, p);
        put_free(p);
    }
    puts_free(o->settled);
    origins_unlock(o);
    mutex_destroy(&o->lock);
    free(o);
    c->queue->own->origins = NULL;
}
