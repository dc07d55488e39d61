/* Units that other mounts left half published, or half removed, and that stay hidden: one is
 * shown as it is (adopted), or what the store has of it is removed (docs/units.md, 7). Both go
 * the way of who takes such a unit over: the leases of all who have notes there must have
 * ended; then `take`, a pause in which what they sent lands, another look, and the deed. */
#include "cache/blocking.h"

#include "cache/listing/listing.h"
#include "cache/notes/others.h"
#include "cache/transfer/unit_objects.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define LOOK_NS (50 * NS_PER_MS)

/* How long it may take to take the own note back. */
#define BACK_NS (10 * NS_PER_SEC)

#define VERSION_SIZE (STORE_ETAG_MAX + 32)

/* Who has notes there. */
struct owner {
    char cache_id[NOTE_ID_SIZE];
    char version[VERSION_SIZE]; /* of its lease, at first */
};

struct left {
    struct cache *c;
    struct op *op;
    struct place at; /* the unit's directory; owned */
    struct notes_at notes;
    int64_t ttl_ns;
    struct others *others;
    struct lease *lease; /* of the cache, needed; NULL: not yet */
    uint64_t term;       /* of the lease; 0: it is not held yet */

    struct note *v; /* the notes of others, as they were last listed */
    size_t n, cap;
    char (*takes)[NOTE_ID_SIZE]; /* of its own, that an earlier mount was killed with */
    size_t n_takes, cap_takes;
    struct owner *owners;
    size_t n_owners;
};

static int no_memory(struct op *op)
{
    return op_fail(op, -ENOMEM, "out of memory");
}

/* ---- requests ---- */

/* Before each request. Once there is a `take` it is a look at the clock, too. */
static int begin(struct left *l)
{
    l->op->deadline_ns = clock_mono_ns() + l->c->config.store_timeout_ns;
    return l->term ? lease_bind(l->lease, l->term, l->op) : 0;
}

static int rest(struct left *l, int64_t ns)
{
    l->op->deadline_ns = OP_FOREVER;
    l->op->lease_end_ns = NULL;
    return op_sleep(l->op, ns);
}

static int add_take(struct left *l, const struct note *note)
{
    if (strcmp(note->id, l->c->queue->session) == 0)
        return 0;
    if (array_grow(l->takes, l->cap_takes, l->n_takes + 1))
        return no_memory(l->op);
    memcpy(l->takes[l->n_takes++], note->id, NOTE_ID_SIZE);
    return 0;
}

static int add_note(void *arg, const struct note *note)
{
    struct left *l = arg;

    if (strcmp(note->cache_id, l->c->queue->cache_id) == 0)
        return note->kind == NOTE_TAKE ? add_take(l, note)
               : note->kind == NOTE_OPEN || note->kind == NOTE_LAST
                   ? op_fail(l->op, -EBUSY, "this mount itself writes in it")
                   : 0;
    if (array_grow(l->v, l->cap, l->n + 1))
        return no_memory(l->op);
    l->v[l->n++] = *note;
    return 0;
}

static int list(struct left *l)
{
    int r = begin(l);

    l->n = l->n_takes = 0;
    return r < 0 ? r : notes_list(&l->notes, l->op, add_note, l);
}

/* Where the note says that its writer is, or the id of that; static per call. */
static void writer_of(struct left *l, const struct note *n, char *ret, size_t size)
{
    struct note_body body = {0};

    if (begin(l) == 0 && notes_read(&l->notes, l->op, n, &body) == 0)
        (void)snprintf(ret, size, "%.64s", body.node);
    else
        (void)snprintf(ret, size, "the cache %s", n->cache_id);
    note_body_release(&body);
}

/* ---- leases ---- */

/* The version of a lease: "" there is none. */
static int look_at_lease(struct left *l, const char *cache_id, char ret[VERSION_SIZE])
{
    auto_free char *lease = note_lease_key(cache_id);
    auto_free char *key = lease ? path_join(l->notes.state, lease) : NULL;
    struct object obj = {0};
    int r = key ? begin(l) : no_memory(l->op);

    if (r == 0)
        r = store_stat(l->c->store, l->op, key, &obj);
    ret[0] = '\0';
    if (r == 0)
        (void)snprintf(ret, VERSION_SIZE, "%s %" PRId64, obj.etag, obj.mtime_ns);
    object_release(&obj);
    return r == -ENOENT ? 0 : r;
}

static int lives(struct left *l, const struct note *n)
{
    char who[128];

    writer_of(l, n, who, sizeof(who));
    return op_fail(l->op, -EAGAIN,
                   "%s has it in work (note \"%s\"), and its mount lives: wait until that is "
                   "done, or end that mount and try again",
                   who, note_kind_word(n->kind));
}

static const struct owner *owner_of(const struct left *l, const struct note *n)
{
    for (size_t i = 0; i < l->n_owners; i++)
        if (strcmp(l->owners[i].cache_id, n->cache_id) == 0)
            return &l->owners[i];
    return NULL;
}

/* Those who have notes there, with what their leases are now. */
static int meet_owners(struct left *l)
{
    size_t cap = 0;
    int r = 0;

    for (size_t i = 0; i < l->n && r == 0; i++) {
        if (owner_of(l, &l->v[i]))
            continue;
        if (array_grow(l->owners, cap, l->n_owners + 1) ||
            others_watch(l->others, l->v[i].cache_id) < 0)
            return no_memory(l->op);
        struct owner *o = &l->owners[l->n_owners++];
        memcpy(o->cache_id, l->v[i].cache_id, sizeof(o->cache_id));
        r = look_at_lease(l, o->cache_id, o->version);
    }
    return r;
}

/* None of the leases is another one than at first; one that had no note then has it in work. */
static int look_at_leases(struct left *l)
{
    char now[VERSION_SIZE];
    int r = 0;

    for (size_t i = 0; i < l->n && r == 0; i++) {
        const struct owner *o = owner_of(l, &l->v[i]);
        r = o ? look_at_lease(l, o->cache_id, now) : lives(l, &l->v[i]);
        if (r == 0 && strcmp(now, o->version) != 0)
            r = lives(l, &l->v[i]);
    }
    return r;
}

static bool have_ended(struct left *l)
{
    for (size_t i = 0; i < l->n_owners; i++)
        if (others_state(l->others, l->owners[i].cache_id) != OTHER_ENDED)
            return false;
    return true;
}

/* Until the leases of all who have notes there have ended, or one of them lives. */
static int wait_for_ends(struct left *l)
{
    int r = meet_owners(l);

    while (r == 0) {
        others_look(l->others, l->op->cancelled);
        r = look_at_leases(l);
        if (r == 0 && have_ended(l))
            break;
        int64_t pause_ns = others_next_ns(l->others) - clock_boot_ns();
        if (r == 0)
            r = rest(l, pause_ns < LOOK_NS ? LOOK_NS : pause_ns);
    }
    return r;
}

/* The lease of this mount, under which all that follows is done. */
static int hold(struct left *l, const char *path)
{
    int64_t until_ns = clock_mono_ns() + l->ttl_ns;
    int r = 0;

    cache_lock(l->c);
    l->lease = lease_at_locked(l->c, path);
    if (l->lease && lease_need(l->lease) < 0)
        l->lease = NULL;
    cache_unlock(l->c);
    if (!l->lease)
        return no_memory(l->op);
    while (r == 0 && !(l->term = lease_term(l->lease))) {
        r = rest(l, LOOK_NS);
        if (r == 0 && clock_mono_ns() > until_ns)
            r = op_fail(l->op, -EAGAIN,
                        "the store takes no lease of this mount: see `runfs status`, and try "
                        "again when it takes uploads");
    }
    return r;
}

/* ---- the deed ---- */

static uint64_t count_files(const struct unit_found *f)
{
    uint64_t n = 0;

    for (size_t i = 0; i < f->n; i++)
        n += !f->v[i].obj.is_prefix;
    return n;
}

/* A seal of this cache says that what is there is all of it. */
static int seal(struct left *l, const struct unit_found *f)
{
    const struct listed *last = unit_found_newest(f);
    struct object obj = {0};

    if (!last)
        return op_fail(l->op, -ENOENT,
                       "the store has no file of it: nothing can be adopted; --drop ends it");
    auto_place struct place tail = place_join(l->at, last->name);
    int r = place_known(tail) ? begin(l) : no_memory(l->op);
    if (r == 0)
        r = store_stat(l->c->store, l->op, tail.key, &obj);
    struct seal_body body = {.how = SEAL_ASSUMED,
                             .attempt = (char *)(uintptr_t) "",
                             .files = count_files(f),
                             .tail = {.name = last->name, .mtime_ns = obj.mtime_ns}};
    (void)snprintf(body.tail.etag, sizeof(body.tail.etag), "%s", obj.etag);
    object_release(&obj);
    if (r == 0)
        r = begin(l);
    return r < 0 ? r : seal_put(&l->notes, l->op, l->c->queue->cache_id, &body);
}

/* ---- the steps ---- */

static bool hides(const struct note *n)
{
    return n->kind == NOTE_OPEN || n->kind == NOTE_LAST || n->kind == NOTE_GONE;
}

/* Whether the notes are such as this is for, and all of owners that have ended: 0, or why not.
 */
static int look(struct left *l, bool drops)
{
    bool any = false;

    for (size_t i = 0; i < l->n; i++) {
        const struct note *n = &l->v[i];
        any = any || hides(n);
        if (!drops && n->kind == NOTE_GONE)
            return op_fail(
                l->op, -EBUSY,
                "it is being removed, and half of it may have gone: --drop ends that");
    }
    return any ? 0
               : op_fail(l->op, -ENOENT,
                         "no other mount has left it unfinished: nothing is to be done");
}

static int put_take(struct left *l)
{
    const struct note_body body = {.node = l->c->queue->node,
                                   .since_s = clock_real_ns() / NS_PER_SEC,
                                   .attempt = (char *)(uintptr_t) ""};
    int r = begin(l);

    return r < 0 ? r
                 : notes_put(&l->notes, l->op, NOTE_TAKE, l->c->queue->cache_id,
                             l->c->queue->session, &body);
}

/* The old notes go last of all that is theirs, `last` before `open`. */
static int remove_notes(struct left *l)
{
    static const enum note_kind order[] = {NOTE_LAST, NOTE_OPEN, NOTE_GONE, NOTE_LOCK,
                                           NOTE_TAKE};
    int r = 0;

    for (size_t k = 0; k < ARRAY_SIZE(order); k++)
        for (size_t i = 0; i < l->n && r == 0; i++) {
            const struct note *n = &l->v[i];
            if (n->kind != order[k])
                continue;
            r = begin(l);
            if (r == 0)
                r = notes_remove(&l->notes, l->op, n->kind, n->cache_id, n->id);
        }
    return r;
}

static int do_it(struct left *l, bool drops)
{
    struct unit_objects o = {.c = l->c,
                             .op = l->op,
                             .at = l->at,
                             .notes = &l->notes,
                             .lease = l->lease,
                             .term = l->term};
    struct unit_found f;
    int r = unit_objects_find(&o, &f);

    if (r == 0)
        r = drops ? unit_objects_remove(&o, &f) : seal(l, &f);
    unit_found_release(&f);
    return r < 0 ? r : remove_notes(l);
}

/* Takes back its `take`, and those of earlier mounts: also when nobody waits for the answer any
 * more, and without the lease. Where the deed was broken off, what was sent of it lands first.
 */
static int take_back(struct left *l, bool broken_off)
{
    struct op op;
    int r = 0;

    op_init(&op, OP_FOREVER);
    if (broken_off)
        r = op_sleep(&op, l->c->config.late_ns);
    for (size_t i = 0; i <= l->n_takes && r == 0; i++) {
        const char *id = i < l->n_takes ? l->takes[i] : l->c->queue->session;
        op.deadline_ns = clock_mono_ns() + BACK_NS;
        r = notes_remove(&l->notes, &op, NOTE_TAKE, l->c->queue->cache_id, id);
    }
    return r < 0 ? op_fail(l->op, r, "%s", op.why) : 0;
}

/* The note is taken back whatever happened; what failed first is told. */
static int under_take(struct left *l, bool drops)
{
    char why[sizeof(l->op->why)];
    bool begun = false;
    int r = put_take(l);
    int pause = rest(l, l->c->config.late_ns);

    if (r == 0)
        r = pause;
    if (r == 0)
        r = list(l);
    if (r == 0)
        r = look(l, drops);
    if (r == 0)
        r = look_at_leases(l);
    begun = r == 0;
    if (r == 0)
        r = do_it(l, drops);
    memcpy(why, l->op->why, sizeof(why));
    int back = take_back(l, begun && r < 0);
    if (r < 0)
        memcpy(l->op->why, why, sizeof(why));
    return r < 0 ? r : back;
}

static int clean(struct left *l, const char *path, bool drops)
{
    const struct others_config config = {.store = l->c->store,
                                         .state = l->notes.state,
                                         .ttl_ns = l->ttl_ns,
                                         .late_ns = l->c->config.late_ns,
                                         .now = clock_boot_ns};
    int r = list(l);

    if (r == 0)
        r = look(l, drops);
    if (r < 0)
        return r;
    l->others = others_new(&config);
    r = l->others ? wait_for_ends(l) : no_memory(l->op);
    if (r == 0)
        r = hold(l, path);
    return r < 0 ? r : under_take(l, drops);
}

/* Where the path lies at the store: it is hidden, but what it is in is not. */
static int find_place(struct left *l, const char *path)
{
    auto_free char *parent = path_parent(path);
    struct node *dir;

    if (!parent)
        return no_memory(l->op);
    if (!*path || !path_may_be_unit(l->c, path))
        return op_fail(l->op, -EINVAL,
                       "it is no directory that is published as a whole: see unit in its "
                       "policy (`runfs check CONFIG PATH` tells)");
    l->op->deadline_ns = clock_mono_ns() + l->c->config.ask_timeout_ns;
    int r = cache_walk(l->c, parent, l->op, &dir);
    if (r < 0)
        return r;
    cache_lock(l->c);
    l->at = child_place(dir, path_basename(path));
    cache_unlock(l->c);
    cache_forget(l->c, dir, 1);
    if (!place_known(l->at))
        return no_memory(l->op);
    r = notes_at_unit(l->c->store, l->op, l->at.key, &l->notes);
    return r == -EOPNOTSUPP
               ? op_fail(l->op, r, "its store keeps no notes of units (state_prefix=off)")
               : r;
}

static int same_path(const struct cleaning *a, const struct cleaning *b)
{
    return strcmp(a->path, b->path);
}

/* One at a time of each path: all of this mount have one name for their `take`. */
static int enter(struct cache *c, struct op *op, struct cleaning *self)
{
    const struct cleaning *other;

    cache_lock(c);
    LL_SEARCH(c->queue->cleanings, other, self, same_path);
    if (!other)
        LL_PREPEND(c->queue->cleanings, self);
    cache_unlock(c);
    return other ? op_fail(op, -EAGAIN,
                           "this mount is just at it, for another command: try again when "
                           "that has ended")
                 : 0;
}

static void leave(struct cache *c, struct cleaning *self)
{
    cache_lock(c);
    LL_DELETE(c->queue->cleanings, self);
    cache_unlock(c);
}

static int clean_alone(struct left *l, const char *path, bool drops)
{
    struct cleaning self = {.path = path};
    int r = enter(l->c, l->op, &self);

    if (r < 0)
        return r;
    r = clean(l, path, drops);
    leave(l->c, &self);
    return r;
}

int cache_clean_unit(struct cache *c, const char *path, bool drops, struct op *op)
{
    struct left l = {.c = c, .op = op, .ttl_ns = lease_ttl_ns(c, path_volume(c, path, true))};
    int r = c->config.read_only ? op_fail(op, -EROFS, "the mount is read-only")
                                : find_place(&l, path);

    if (r == 0)
        r = clean_alone(&l, path, drops);
    if (l.lease)
        lease_release(l.lease);
    cache_lock(c);
    noted_renew_locked(c);
    name_is_the_stores_locked(c, path);
    cache_unlock(c);
    others_free(l.others);
    notes_at_release(&l.notes);
    place_free(&l.at);
    free(l.takes);
    free(l.owners);
    free(l.v);
    return r;
}
