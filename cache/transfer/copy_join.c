/* Renames that a store refuses, and renames that end one another. */
#include "cache/transfer/copy.h"

#include "cache/mirror/crash.h"
#include "cache/mirror/journal.h"
#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- another name for what the store refuses ---- */

static bool overlap(const char *a, const char *b)
{
    return path_below(a, b) || path_below(b, a);
}

static bool concerns(const struct intent *i, const char *path)
{
    return overlap(i->from, path) || (i->to && overlap(i->to, path));
}

static bool leads_back(const struct intent *i, const struct intent *end)
{
    return end->to && strcmp(end->to, i->from) == 0;
}

/* Whether `end` takes away all that `i` brings, to somewhere that the store can hold beside the
 * old name. */
static bool takes_all(const struct intent *i, const struct intent *end)
{
    if (strcmp(end->from, i->to) != 0)
        return false;
    if (!intent_is_rename(end))
        return (end->kind == INTENT_RMDIR) == (i->kind == INTENT_RENAMEDIR);
    return end->kind == i->kind && end->ino == i->ino &&
           (leads_back(i, end) || !overlap(end->to, i->from));
}

/* The later intention that ends the rename. With those in between, which concern neither of its
 * names, the rename could change places. */
static struct intent *ended_by_locked(const struct intent *i) REQUIRES(cache_mutex)
{
    struct intent *end = row_next(i);

    while (end && !concerns(end, i->from) && !concerns(end, i->to))
        end = row_next(end);
    return end && !end->debt.running && takes_all(i, end) ? end : NULL;
}

/* A removal waits for what the store refuses in its own directory only. One that is moved to
 * another directory waits here for what may yet be refused in this one. */
static bool waits_beside_locked(struct cache *c, const struct intent *i,
                                const struct intent *end) REQUIRES(cache_mutex)
{
    auto_free char *old = path_parent(i->from), *dir = path_parent(end->from);
    struct file *f;

    if (intent_is_rename(end) || (old && dir && strcmp(old, dir) == 0))
        return false;
    struct node *beside = dir ? tree_find(c, dir, NULL) : NULL;
    OWED_FILES_FOREACH(c, f)
    {
        if (!f->debt.seq || f->debt.seq > barrier_seq_locked(c, end->seq))
            continue;
        for (struct entry *e = f->node->links; e; e = e->next_link)
            if (!dir || (e->dirty && e->parent == beside))
                return true;
    }
    return false;
}

/* Recovery knows what a row moved by its inode, unless that was linked or moved later than the
 * row was made (format.md, 4): a link that came to the old name between the two rows would be
 * taken for what the joined one is still to move. */
static bool is_linked_there_locked(struct cache *c, const struct intent *i,
                                   const struct intent *end) REQUIRES(cache_mutex)
{
    struct node *n =
        intent_is_rename(end) && !leads_back(i, end) ? tree_find(c, i->from, NULL) : NULL;

    return n && n->ino == i->ino && n->named_seq < end->seq;
}

/* An earlier request may still arrive at the refused name, and its object would be left. */
static bool may_arrive_locked(struct cache *c, struct place at) REQUIRES(cache_mutex)
{
    return doubt_copies_below_locked(c, at) ||
           doubt_puts_below_until_locked(c, at) > clock_mono_ns();
}

/* The one intention that does what the two do, in the place of the later one; *ret NULL: the
 * two do nothing. `version` is what a removal takes away. 0 or -ENOMEM. */
static int join(const struct intent *i, const struct intent *end, const char *version,
                struct intent **ret) REQUIRES(cache_mutex)
{
    bool moves = intent_is_rename(end);

    *ret = NULL;
    if (leads_back(i, end))
        return 0;
    /* Recovery ignores a removal without the inode's number: its step was made. */
    *ret = intent_new(end->seq, end->kind, i->from, end->to, moves ? end->ino : 0,
                      moves && *end->etag ? end->etag : version);
    if (!*ret || intent_note_moved(*ret, end->moved_ino, end->moved_to) < 0 ||
        intent_note_over(*ret, end->over) < 0) {
        intent_free(take_ptr(*ret));
        return -ENOMEM;
    }
    (*ret)->since = intent_since(i);
    return 0;
}

static int note_joined(struct cache *c, const struct intent *i, const struct intent *end,
                       const struct intent *one)
{
    const uint64_t seqs[2] = {i->seq, end->seq};
    struct journal_row row = {0};

    if (one)
        row = intent_row(one);
    int r = journal_done(c->journal, seqs, 2, &row, one ? 1 : 0);

    crash_point("rename-joined");
    return r;
}

/* What came back, wherever it was moved since, is not told from what stands at its own name. */
static void came_back_locked(struct cache *c, const struct intent *i, const struct intent *end)
    REQUIRES(cache_mutex)
{
    auto_free char *at = intent_path_after(row_next(end), i->from);
    struct entry *e = NULL;

    if (at && tree_find(c, at, &e) && e && place_known(e->source))
        copy_source_locked(c, e, intent_source(i), intent_source(i));
}

static void take_joined_locked(struct cache *c, struct intent *i, struct intent *end,
                               struct intent *one) REQUIRES(cache_mutex)
{
    if (i->kind == INTENT_RENAMEDIR)
        listing_dir_moved_locked(c);
    if (leads_back(i, end))
        came_back_locked(c, i, end);
    if (one) { /* the rename's has its new name in it: what is wider of the two is of both */
        scope_takes_locked(one, i);
        scope_takes_locked(one, end);
    }
    intent_remove_locked(c, end);
    if (one)
        intent_add_locked(c, one);
    intent_remove_locked(c, i);
}

/* ns held for writing: the later intention is not taken back meanwhile, nor does another come
 * before it. It does not run either, since it waits for the rename, which this is the run of.
 */
static int join_ns_locked(struct copying *k, const char *version, bool *ret) REQUIRES(cache_ns)
{
    struct cache *c = k->cache;
    struct intent *i = k->intent, *one = NULL;

    cache_lock(c);
    struct intent *end = ended_by_locked(i);
    bool may = end && !waits_beside_locked(c, i, end) && !is_linked_there_locked(c, i, end) &&
               !may_arrive_locked(c, place_of_path(k->to));
    may = may && (intent_is_rename(end) || version);
    int r = may ? join(i, end, version ? version : i->etag, &one) : 0;
    cache_unlock(c);
    if (!may)
        return 0;
    if (r == 0)
        r = note_joined(c, i, end, one);
    if (r < 0) {
        intent_free(one);
        return r;
    }
    cache_lock(c);
    take_joined_locked(c, i, end, one);
    cache_unlock(c);
    *ret = true;
    return 0;
}

/* What the removal of the old name takes away, heap: not what somebody else puts there. */
static int version_to_remove(struct copying *k, struct op *op, char **ret)
{
    const struct place from = place_of_path(k->from);
    struct cache *c = k->cache;
    bool own;

    *ret = strdup(k->intent->etag);
    if (!*ret)
        return -ENOMEM;
    if (**ret || k->dir || !store_can(c->store, from.key, STORE_IF_MATCH))
        return 0;
    int r = copy_ask_version(c, op, from, ret, &own);
    if (r != -ENOENT)
        return r;
    free(*ret);
    *ret = strdup(INTENT_OURS);
    return *ret ? 0 : -ENOMEM;
}

int copy_give_up_name(struct copying *k, struct op *op, bool *ret)
{
    struct cache *c = k->cache;
    auto_free char *version = NULL;
    struct object there = {0};

    cache_lock(c);
    struct intent *end = k->intent->refused ? ended_by_locked(k->intent) : NULL;
    bool removes = end && !intent_is_rename(end);
    cache_unlock(c);
    int r = end ? store_stat(c->store, op, place_of_path(k->to).key, &there) : 0;
    object_release(&there);
    if (!end || r != -ENOENT)
        return 0;
    r = removes ? version_to_remove(k, op, &version) : 0;
    if (r < 0)
        return r;
    ns_write(c);
    r = join_ns_locked(k, version, ret);
    ns_done(c);
    return r < 0 ? copy_not_noted(op, k->from, k->to, r) : 0;
}

void copy_note_refusal_locked(struct copying *k, int err)
{
    struct cache *c = k->cache;
    struct intent *i = k->intent;
    unsigned refuser = atomic_load(&k->refuser);
    bool refused = refusal_is_one(err);
    bool again = i->others_taken && i->refuser == refuser;

    cache_assert_locked(c);
    i->refused = refused && (i->refused || again);
    debt_set_refused(&i->debt, refused ? clock_mono_ns() : 0);
    i->refuser = refuser;
    if (refused && !i->refused)
        refusal_probe_locked(c, refuser);
}
