/* What is known of the store's version under a name, and whether a listing shows another. */
#include "cache/tree/tree_impl.h"

#include "common/mem.h"
#include "common/path.h"

#include <string.h>

/* A time that no listing shows. */
#define NO_TIME_NS 1

/* ---- versions ---- */

void entry_told(struct entry *e, const struct object *obj)
{
    entry_forget_version(e);
    e->modified_ns = obj->mtime_ns;
    e->stable = obj->told_ns >= obj->mtime_ns + STABLE_NS;
}

/* Another mount or tool may have put it. */
static void is_theirs(struct entry *e) REQUIRES(cache_mutex)
{
    e->brought_here = e->compared = false;
}

void entry_is_listed_first_locked(struct entry *e, const char *etag, int64_t asked_ns)
{
    etag_set(&e->etag, etag);
    is_theirs(e);
    entry_verified_locked(e, asked_ns);
    entry_may_exist_locked(e);
}

void entry_took_version_locked(struct entry *e, const struct object *obj)
{
    etag_set(&e->etag, obj->etag);
    is_theirs(e);
    entry_forget_version(e);
    if (obj->attrs_known)
        entry_told(e, obj);
}

void entry_is_noted_locked(struct entry *e, const char *etag)
{
    etag_set(&e->etag, etag);
    e->compared = false;
}

void entry_got_stored_locked(struct entry *e, const char *etag)
{
    etag_set(&e->etag, etag);
    e->brought_here = true;
    e->owed_before = e->compared = false;
    entry_may_exist_locked(e);
    entry_verified_locked(e, clock_mono_ns());
}

void entry_version_went_on_locked(struct entry *e, const char *etag)
{
    etag_set(&e->etag, etag);
    e->compared = false;
}

void entry_version_lost_locked(struct entry *e)
{
    etag_clear(&e->etag);
    e->compared = false;
    entry_may_exist_locked(e);
}

void entry_replaces_locked(struct entry *e, const char *etag)
{
    entry_version_lost_locked(e);
    if (etag)
        etag_set(&e->etag, etag);
    else
        e->may_exist = false;
}

void entry_ends_locked(struct entry *e)
{
    etag_clear(&e->etag);
}

bool put_window(const struct object *obj, int64_t took_ns, uint32_t *ret_from_s,
                uint32_t *ret_to_s)
{
    int64_t told_s = obj->mtime_ns / NS_PER_SEC;
    int64_t from_s = told_s - took_ns / NS_PER_SEC - 2; /* both are rounded */

    if (from_s <= 0 || told_s >= UINT32_MAX)
        return false;
    *ret_from_s = (uint32_t)from_s;
    *ret_to_s = (uint32_t)told_s + 1;
    return true;
}

void entry_put(struct entry *e, const struct object *obj, int64_t took_ns)
{
    uint32_t from_s, to_s;

    entry_forget_version(e);
    if (!put_window(obj, took_ns, &from_s, &to_s))
        return;
    e->was_put = e->unseen = true;
    e->put.from_s = from_s;
    e->put.to_s = to_s;
}

void entry_forget_version(struct entry *e)
{
    e->modified_ns = 0;
    e->was_put = e->unseen = false;
    e->stable = false;
}

void entry_may_exist_locked(struct entry *e)
{
    e->may_exist = true;
    e->tried_before = false;
}

void entry_seen(struct entry *e, const struct object *obj)
{
    e->unseen = false;
    e->modified_ns = obj->mtime_ns;
}

void entry_expire(struct entry *e)
{
    entry_forget_version(e);
    e->modified_ns = NO_TIME_NS;
}

/* A HEAD says whole seconds, a listing may be more precise. */
static bool same_time(int64_t a_ns, int64_t b_ns)
{
    return a_ns == b_ns || (a_ns / NS_PER_SEC == b_ns / NS_PER_SEC &&
                            (a_ns % NS_PER_SEC == 0 || b_ns % NS_PER_SEC == 0));
}

bool entry_moved(const struct entry *e, const struct object *obj)
{
    int64_t modified_s = obj->mtime_ns / NS_PER_SEC;

    if (e->unseen)
        return modified_s < e->put.from_s || modified_s > e->put.to_s;
    return e->modified_ns && !same_time(e->modified_ns, obj->mtime_ns);
}

void entry_verified_locked(struct entry *e, int64_t at_ns)
{
    e->verified_ns = at_ns;
}

void entry_listed_locked(struct entry *e, int64_t asked_ns)
{
    if (e->verified_ns < asked_ns)
        e->verified_ns = asked_ns;
}

void entry_compared_locked(struct entry *e, bool compared)
{
    e->compared = compared;
}

void entry_changed_here_locked(struct entry *e)
{
    e->changed_ns = clock_mono_ns();
}

/* ---- what is owed under the name, and how that goes ---- */

void entry_owes_locked(struct entry *e, bool owes)
{
    e->dirty = owes;
}

bool names_owe(const struct node *n)
{
    for (const struct entry *e = n->links; e; e = e->next_link)
        if (e->dirty)
            return true;
    return false;
}

bool names_all_owe(const struct node *n)
{
    for (const struct entry *e = n->links; e; e = e->next_link)
        if (!e->dirty)
            return false;
    return true;
}

void entry_sent_locked(struct entry *e, uint64_t generation, bool same)
{
    e->stored_generation = generation;
    e->refused = false;
    e->failed = !same; /* what was written since goes there after the other names */
    if (same)
        e->dirty = false;
}

void entry_not_sent_locked(struct entry *e, bool may_be_there)
{
    e->failed = true;
    e->tried = e->tried || may_be_there;
}

void entry_another_round_locked(struct entry *e)
{
    e->failed = false;
}

void entry_refused_locked(struct entry *e, bool for_good)
{
    e->refused = e->refused || for_good;
}

/* ---- moved, exchanged, found ---- */

void entry_moved_here_locked(struct entry *e, bool may_exist)
{
    e->may_exist = may_exist;
    e->tried_before = e->brought = false;
}

void entry_taken_along_locked(struct entry *e, struct entry *old)
{
    etag_move(&e->etag, &old->etag);
    e->brought_here = old->brought_here;
    e->compared = old->compared;
    entry_verified_locked(e, old->verified_ns);
    entry_owes_locked(e, old->dirty);
}

void entry_is_replaced_locked(struct entry *e, struct etag *ret)
{
    etag_move(ret, &e->etag);
    e->compared = false;
}

void entry_version_left_locked(struct entry *e, struct etag *replaces)
{
    e->stored_generation = 0;
    etag_clear(&e->etag);
    etag_move(&e->etag, replaces);
    e->compared = false;
}

void entry_takes_place_of_tried_locked(struct entry *e, bool tried, bool owed_before)
{
    e->tried = tried;
    e->owed_before = owed_before;
}

void entry_carried_locked(struct entry *e, bool sending)
{
    if (!e->may_exist)
        e->may_exist = e->tried_before = sending || e->tried;
}

void entry_has_new_path_locked(struct entry *e)
{
    e->refused = false;
}

void entries_exchange_locked(struct entry *a, struct entry *b)
{
    bool dirty = a->dirty; /* bits */
    bool brought_here = a->brought_here;

    a->dirty = b->dirty;
    b->dirty = dirty;
    a->brought_here = b->brought_here;
    b->brought_here = brought_here;
    a->compared = b->compared = false;
    SWAP(a->etag, b->etag);
    SWAP(a->verified_ns, b->verified_ns);
    SWAP(a->stored_generation, b->stored_generation);
    entry_forget_version(a);
    entry_forget_version(b);
}

void entry_got_other_file_locked(struct entry *e, bool may_exist)
{
    e->may_exist = e->may_exist || may_exist;
    e->stored_generation = 0;
}

void entry_exchanged_locked(struct entry *e, bool rows)
{
    e->may_exist = e->may_exist || rows;
    entry_changed_here_locked(e);
}

void entry_copied_here_locked(struct entry *e, bool at_own_path)
{
    e->may_exist = e->may_exist || at_own_path; /* an upload asks for it where its version is
                                                   not known */
    e->tried_before = false;
}

void entry_found_locked(struct entry *e, bool stored)
{
    e->tried = !stored;
    e->may_exist = stored;
}

void entry_owed_before_locked(struct entry *e)
{
    e->owed_before = true;
}

void entry_brought_locked(struct entry *e)
{
    e->brought = true;
}

void name_is_the_stores_locked(struct cache *c, const char *path)
{
    auto_free char *at = strdup(path);

    cache_assert_locked(c);
    while (at) {
        auto_free char *parent = path_parent(at);
        struct node *n = parent ? tree_find(c, parent, NULL) : NULL;
        if (n && n->dir) {
            n->dir->listed_ns = 0;
            n->dir->local_only = false;
            n->dir->overruled_ns = clock_mono_ns();
            negative_forget_locked(c, n, path_basename(at));
            notice_locked(c, n, path_basename(at));
            return;
        }
        if (!parent)
            return;
        at[strlen(parent)] = '\0'; /* the directory above was removed, too */
    }
}
