/* Which removals wait for which uploads: what was closed before something was removed, in its
 * scope (scope.c), is in the store before the removal is carried out there. */
#include "cache/queue/queue_impl.h"

#include "cache/mirror/crash.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <string.h>

/* A staging file that was just closed is about to be renamed: deletes wait for it this long. */
#define STAGED_BARRIER_NS (10 * NS_PER_SEC)

/* So often a waiter for a removal has it wait for something that was closed later. */
#define ROUNDS_MAX 8

/* What the refused names in the directory of `path` hold, or NULL. */
static struct barrier_dir *barrier_dir(const struct barrier_files *b, const char *path)
{
    const char *end = strrchr(path, '/');
    size_t len = end ? (size_t)(end - path) : 0;

    for (size_t i = 0; i < b->n; i++)
        if (strncmp(b->dirs[i].path, path, len) == 0 && b->dirs[i].path[len] == '\0')
            return &b->dirs[i];
    return NULL;
}

/* Without memory it holds all that comes later. */
static void hold_beside(struct barrier_files *b, const struct file *f) REQUIRES(cache_mutex)
{
    auto_free char *path = node_path(f->node);
    struct barrier_dir *dir = path ? barrier_dir(b, path) : NULL;

    if (!dir && path && array_grow(b->dirs, b->cap, b->n + 1) == 0) {
        dir = &b->dirs[b->n];
        *dir = (struct barrier_dir){path_parent(path), UINT64_MAX};
        b->n += dir->path != NULL;
    }
    uint64_t *seq = dir && dir->path ? &dir->seq : &b->seq;
    *seq = f->debt.seq < *seq ? f->debt.seq : *seq;
}

static void hold_for(struct barrier_files *b, const struct file *f) REQUIRES(cache_mutex)
{
    if (file_is_refused_locked(f) || unit_waits_for_refused_locked(f))
        hold_beside(b, f);
    else if (f->debt.seq < b->seq)
        b->seq = f->debt.seq;
}

static bool goes_to_full_locked(struct cache *c, const struct file *f) REQUIRES(cache_mutex)
{
    return c->queue->volumes[node_volume(f->node)].out_of_quota;
}

struct file *removal_moved_file_locked(struct cache *c, const struct intent *removal)
{
    struct file *f;

    cache_assert_locked(c);
    if (!removal->moved_ino)
        return NULL;
    OWED_FILES_FOREACH(c, f)
    {
        if (!f->debt.seq || f->debt.seq > removal->seq)
            return NULL;
        if (f->node->ino == removal->moved_ino)
            return f;
    }
    return NULL;
}

/* Whether no name of the file has its content in a store. */
static bool is_in_no_store(const struct file *f) REQUIRES(cache_mutex)
{
    for (const struct entry *e = f->node->links; e; e = e->next_link)
        if (!e->dirty)
            return false;
    return true;
}

bool removal_is_of_only_copy_locked(struct cache *c, const struct intent *removal)
{
    cache_assert_locked(c);
    if (!removal->moved_to)
        return false;
    const struct file *f = removal_moved_file_locked(c, removal);
    return f && is_in_no_store(f);
}

/* Whether the removal makes room in a full store: it waits for no file that goes to one then.
 * What a file left on its way to another store makes none before that has it: until then it is
 * all that a store has of it. */
static bool makes_room(struct cache *c, const struct intent *removal) REQUIRES(cache_mutex)
{
    return c->queue->volumes[intent_volume(c, removal)].out_of_quota &&
           !removal_is_of_only_copy_locked(c, removal);
}

bool removal_waits_for_locked(struct cache *c, const struct intent *removal,
                              const struct file *f)
{
    return (!goes_to_full_locked(c, f) || !makes_room(c, removal)) &&
           scope_has_locked(c, removal, f);
}

/* Whether removals wait for the file. */
static bool is_waited_for(struct cache *c, const struct file *f, int64_t now)
    REQUIRES(cache_mutex)
{
    bool may_stay = f->staged && !f->debt.wanted && !c->queue->drain &&
                    now - f->staged_ns >= STAGED_BARRIER_NS;

    return f->debt.seq && !f->unclosed && !may_stay;
}

void barrier_init_locked(struct cache *c, struct barrier *ret)
{
    struct file *f;

    cache_assert_locked(c);
    *ret = (struct barrier){.all = {.seq = UINT64_MAX},
                            .with_room = {.seq = UINT64_MAX},
                            .now_ns = clock_mono_ns()};
    OWED_FILES_FOREACH(c, f)
    {
        if (!is_waited_for(c, f, ret->now_ns))
            continue;
        hold_for(&ret->all, f);
        if (!goes_to_full_locked(c, f))
            hold_for(&ret->with_room, f);
    }
}

/* Refused names hold removals beside them only. But the store has what went there by a rename
 * under its old name alone, wherever that is. What went to another store is in none until it is
 * there, whatever becomes of its name, and its old one makes no room before. */
static bool moved_is_missing(struct cache *c, const struct intent *removal)
    REQUIRES(cache_mutex)
{
    if (removal->moved_to)
        return removal_is_of_only_copy_locked(c, removal);
    const struct file *f =
        makes_room(c, removal) ? NULL : removal_moved_file_locked(c, removal);
    return f && file_is_refused_locked(f);
}

/* Once for all removals, when the first of them asks: a look for each would be one at all files
 * each time. */
static void know_scopes(struct cache *c, struct barrier *b) REQUIRES(cache_mutex)
{
    struct file *f;

    b->scopes_known = true;
    OWED_FILES_FOREACH(c, f)
    {
        if (!is_waited_for(c, f, b->now_ns) || file_is_refused_locked(f))
            continue;
        scope_dirs_add_locked(&b->all.scopes, f);
        if (!goes_to_full_locked(c, f))
            scope_dirs_add_locked(&b->with_room.scopes, f);
    }
}

/* Whether something in the removal's scope comes before the place `seq`. */
static bool scope_holds(struct cache *c, struct barrier *b, const struct barrier_files *files,
                        const struct intent *removal, uint64_t seq) REQUIRES(cache_mutex)
{
    if (seq <= files->seq)
        return false;
    if (!b->scopes_known)
        know_scopes(c, b);
    return seq > scope_dirs_first_locked(c, &files->scopes, removal, files->seq);
}

bool barrier_holds_locked(struct cache *c, struct barrier *b, const struct intent *removal)
{
    const struct barrier_files *files = makes_room(c, removal) ? &b->with_room : &b->all;
    const struct barrier_dir *dir = barrier_dir(files, removal->from);
    uint64_t seq = barrier_seq_locked(c, removal->seq);

    cache_assert_locked(c);
    return scope_holds(c, b, files, removal, seq) || (dir && seq > dir->seq) ||
           moved_is_missing(c, removal) ||
           (!makes_room(c, removal) && (units_hold_removal_locked(c, removal) ||
                                        pointers_hold_removal_locked(c, removal)));
}

static void files_release(struct barrier_files *b)
{
    scope_dirs_free(&b->scopes);
    for (size_t i = 0; i < b->n; i++)
        free(b->dirs[i].path);
    free(b->dirs);
}

void barrier_release(struct barrier *b)
{
    files_release(&b->all);
    files_release(&b->with_room);
}

/* ---- what goes before it was uploaded ---- */

uint64_t barrier_seq_locked(struct cache *c, uint64_t seq)
{
    cache_assert_locked(c);
    for (size_t i = 0; i < c->queue->own->n_waits; i++)
        if (seq > c->queue->own->waits[i].since && seq < c->queue->own->waits[i].until)
            seq = c->queue->own->waits[i].until;
    return seq;
}

/* The place of the last file that was closed and is still owed, apart from `but`; 0: none. */
static uint64_t last_owed_locked(struct cache *c, const struct file *but) REQUIRES(cache_mutex)
{
    struct debt *d = c->queue->owed[DEBT_FILE].last;

    while (d && (!d->seq || debt_file(d) == but))
        d = d->prev;
    return d ? d->seq : 0;
}

/* Whether a removal waits for the place `since`, and not for the place `last`. A rename counts:
 * its copies may have left out what is written anew, whose old versions it will remove at its
 * own place. */
static bool is_passed_on_locked(struct cache *c, uint64_t since, uint64_t last)
    REQUIRES(cache_mutex)
{
    struct intent *i;

    ROWS_FOREACH(c, i)
    {
        if (i->seq > last)
            return false;
        uint64_t seq = barrier_seq_locked(c, i->seq);
        if (seq > since && seq <= last)
            return true;
    }
    return false;
}

static bool any_removal_within_locked(struct cache *c, const struct journal_wait *p)
    REQUIRES(cache_mutex)
{
    struct intent *i;

    ROWS_FOREACH(c, i)
    {
        if (i->seq >= p->until)
            return false;
        if (i->seq > p->since)
            return true;
    }
    return false;
}

/* The list with `more`, heap: joined with what it touches, without what concerns no removal any
 * more. Places only grow, so none begins behind it. */
static struct journal_wait *joined_locked(struct cache *c, struct journal_wait more,
                                          size_t *ret_n) REQUIRES(cache_mutex)
{
    struct journal_wait *v = calloc(c->queue->own->n_waits + 1, sizeof(*v));
    size_t n = 0;

    for (size_t i = 0; v && i < c->queue->own->n_waits; i++) {
        const struct journal_wait *p = &c->queue->own->waits[i];
        if (p->until > more.since) {
            more.since = p->since < more.since ? p->since : more.since;
            more.until = p->until > more.until ? p->until : more.until;
        } else if (any_removal_within_locked(c, p)) {
            v[n++] = *p;
        }
    }
    if (v)
        v[n++] = more;
    *ret_n = n;
    return v;
}

/* A disk that takes no row keeps nobody from removing a file there: memory knows it then. */
static void replace_waits(struct cache *c, struct journal_wait *v, size_t n)
{
    int r = journal_set_waits(c->journal, v, n);

    if (r < 0)
        log_later(
            &c->log, LOG_LEVEL_WARN,
            "cache %s: what removals wait for can't be noted, only this mount knows it: %s",
            c->mirror.dir, strerror(-r));
    crash_point("passed-on");
    cache_lock(c);
    free(c->queue->own->waits);
    c->queue->own->waits = v;
    c->queue->own->n_waits = n;
    cache_unlock(c);
}

int barrier_pass_on(struct cache *c, const struct file *f)
{
    struct journal_wait *v = NULL;
    size_t n = 0;

    ns_assert_written(c);
    cache_lock(c);
    uint64_t last = f->debt.seq ? last_owed_locked(c, f) : 0;
    bool needed = last > f->debt.seq && is_passed_on_locked(c, f->debt.seq, last);
    if (needed)
        v = joined_locked(c, (struct journal_wait){f->debt.seq, seq_next_locked(c)}, &n);
    cache_unlock(c);
    if (v)
        replace_waits(c, v, n);
    return needed && !v ? -ENOMEM : 0;
}

/* ---- who waits for removals ---- */

void rounds_init(struct cache *c, struct rounds *ret, uint64_t seq)
{
    *ret = (struct rounds){.until = seq, .next_ns = clock_mono_ns() + c->config.retry_ns};
}

/* The place of the first file that such a removal waits for wherever it is; UINT64_MAX: none.
 */
static uint64_t first_waited_for_locked(struct cache *c, const struct intent *removal)
    REQUIRES(cache_mutex)
{
    int64_t now = clock_mono_ns();
    struct file *f;

    OWED_FILES_FOREACH(c, f)
    {
        if (is_waited_for(c, f, now) && !file_is_refused_locked(f) &&
            removal_waits_for_locked(c, removal, f))
            return f->debt.seq;
    }
    return UINT64_MAX;
}

/* A round is over when all that was closed before it began is stored or gone. It is no shorter
 * than the pause after a failure: files may come and go fast for a moment. */
bool rounds_are_over_locked(struct cache *c, struct rounds *r, const struct intent *removal)
{
    uint64_t until = barrier_seq_locked(c, removal->seq);
    uint64_t first = until > r->until ? first_waited_for_locked(c, removal) : 0;

    cache_assert_locked(c);
    if (first <= r->until || first >= until || removal->debt.running ||
        intent_is_urgent(c, removal))
        return false;
    if (r->n == ROUNDS_MAX)
        return true;
    int64_t now = clock_mono_ns();
    if (now >= r->next_ns) {
        r->until = seq_now_locked(c);
        r->next_ns = now + c->config.retry_ns;
        r->n++;
    }
    return false;
}

static int load_one(void *arg, const struct journal_wait *w) REQUIRES(cache_mutex)
{
    struct cache *c = arg;
    struct journal_wait *v =
        reallocarray(c->queue->own->waits, c->queue->own->n_waits + 1, sizeof(*v));

    if (!v)
        return -ENOMEM;
    c->queue->own->waits = v;
    v[c->queue->own->n_waits++] = *w;
    c->tree->seq = w->until > c->tree->seq ? w->until : c->tree->seq;
    return 0;
}

int barrier_load(struct cache *c)
{
    return journal_each_wait(c->journal, load_one, c);
}
