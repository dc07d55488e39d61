/* What follows a rename at the store: the places, records and versions of names, and of open
 * files. */
#include "cache/transfer/copy.h"

#include "cache/mirror/stamp.h"
#include "cache/tree/children.h"
#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

char *copy_moved_path(const char *path, const char *from, const char *to)
{
    const char *rest = path_below(from, path);

    return rest ? path_join(to, rest) : NULL;
}

void copy_source_locked(struct cache *c, struct entry *e, struct place from, struct place to)
{
    cache_assert_locked(c);
    auto_place struct place now = entry_place(e);
    auto_place struct place moved = place_known(now) ? place_moved(now, from, to) : NO_PLACE;
    if (!place_known(moved))
        return;
    place_free(&e->source);
    /* An entry in its directory's place needs no source of its own, and moves with it. */
    auto_place struct place inherited = entry_place(e);
    if (!place_known(inherited) || !place_same(inherited, moved))
        e->source = place_take(&moved);
    /* Where it is brought on, it stands for no directory around it yet. */
    entry_changed_locked(c, e);
}

/* Whether `i` moves something out of what `done`, an earlier one, brought, or something that
 * was made there since. What was made at a name that another rename had left has its place with
 * the directory around that name, so that directory is what counts. */
static bool came_with(struct intent *done, struct intent *i) REQUIRES(cache_mutex)
{
    auto_free char *at = strdup(i->from);

    for (struct intent *j = row_prev(i); at && (j = row_over_until(j, at)); j = row_prev(j)) {
        if (j->seq <= done->seq)
            break;
        if (intent_backward(j, &at) != INTENT_LEFT)
            continue;
        free(at);
        at = path_parent(j->from);
    }
    return at && path_below(done->to, at);
}

struct moving {
    struct cache *cache;
    struct intent *done;
    struct copy_readers *changed;
};

static void changed_add_locked(struct copy_readers *l, struct node *n) REQUIRES(cache_mutex)
{
    if (array_grow(l->v, l->cap, l->n + 1) < 0)
        return; /* the records in memory are right */
    l->v[l->n++] = n;
    node_ref_locked(n);
}

/* A mirror file that was made while the place was still the old one, after the version of that
 * had been told, or where nobody told one, has a record of the old place alone. */
static void record_follows(const struct moving *m, struct entry *e) REQUIRES(cache_mutex)
{
    const struct place from = intent_source(m->done), to = intent_target(m->done);
    struct stamp_keys *keys = e->node->file ? &e->node->file->keys : NULL;

    if (!keys || !keys->n)
        return;
    auto_place struct place now = entry_place(e);
    auto_place struct place old = place_known(now) ? place_moved(now, to, from) : NO_PLACE;
    struct stamp_key *k = place_known(old) ? stamp_keys_find(keys, old.key) : NULL;
    if (!k || !etag_is(&e->etag, k->etag))
        return;
    /* One that was left from when it stood there before does not count. */
    const struct stamp_key *there = stamp_keys_find(keys, now.key);
    if (there && (stamp_key_is_expected(there) || etag_is(&e->etag, there->etag)))
        return;
    auto_free char *etag = strdup(k->etag); /* the next call may move the record */
    if (!etag || stamp_keys_set(keys, now.key, etag, k->mtime_ns, k->size) < 0)
        return;
    stamp_keys_remove(keys, old.key);
    changed_add_locked(m->changed, e->node);
}

static int records_in_follow(void *arg, struct node *n) REQUIRES(cache_mutex)
{
    struct entry *e;
    size_t at;

    if (!n->dir)
        return 0;
    CHILDREN_FOREACH(n->dir->children, e, at)
    record_follows(arg, e);
    return 0;
}

/* A fragment of what `done` brought, where it is after the renames that were looked at. Those
 * of one file, there and back, move one fragment: there are as many as were moved out of a
 * directory, and one. */
struct fragment {
    char *path;
    uint64_t first, last; /* what the first and the last that moved just this one had there */
    bool replaced;        /* another rename brought something over it */
};

struct fragments {
    struct fragment *v;
    size_t n, cap;
};

static void fragments_add(struct fragments *fragments, const struct intent *by)
{
    char *path =
        array_grow(fragments->v, fragments->cap, fragments->n + 1) == 0 ? strdup(by->to) : NULL;

    if (path)
        fragments->v[fragments->n++] =
            (struct fragment){.path = path, .first = by->ino, .last = by->ino};
}

static void fragments_release(struct fragments *fragments)
{
    for (size_t i = 0; i < fragments->n; i++)
        free(fragments->v[i].path);
    free(fragments->v);
}

/* Moves the fragments on with the rename. Whether it takes something out of one of them. */
static bool fragments_move(struct fragments *fragments, const struct intent *by)
{
    bool whole = false, out = false;

    for (size_t i = 0; i < fragments->n; i++) {
        struct fragment *p = &fragments->v[i];
        const char *taken = p->path ? path_below(p->path, by->from) : NULL;
        if (taken && !*taken && !p->replaced) {
            p->last = by->ino;
            whole = true;
        }
        out = out || (taken && *taken);
        const char *over = p->path ? path_below(by->to, p->path) : NULL;
        if (p->path && !intent_forward(by, &p->path) && over &&
            (!*over || by->kind == INTENT_RENAMEDIR))
            p->replaced = true;
    }
    return out && !whole;
}

/* The next row from `i` on that may concern the fragments. With one of them, out of which
 * nothing is moved, as each file is, those between are left out. */
static struct intent *next_moving_locked(struct cache *c, const struct fragments *fragments,
                                         struct intent *i) REQUIRES(cache_mutex)
{
    const char *path = fragments->n == 1 ? fragments->v[0].path : NULL;

    if (!i || !path)
        return i;
    const struct row_ask out = {.sets = ROWS_LEAVING, .path = path, .since = i->seq};
    return row_below_locked(c, &out) ? i : row_over_from(i, path);
}

/* Where what `done` brought is after all later renames. Without memory for one of the fragments
 * the others are right. */
static void fragments_follow_locked(struct cache *c, struct fragments *fragments,
                                    struct intent *done) REQUIRES(cache_mutex)
{
    struct intent *i = row_next(done);

    fragments_add(fragments, done);
    for (; (i = next_moving_locked(c, fragments, i)); i = row_next(i)) {
        if (intent_is_rename(i) && fragments_move(fragments, i) && came_with(done, i))
            fragments_add(fragments, i);
    }
}

/* Whether the row moved what lies there: a file's row takes along nothing below its name, where
 * a name without an object can seem to lie. */
static bool is_moved_by(const struct intent *done, struct entry *e) REQUIRES(cache_mutex)
{
    auto_place struct place now = done->kind == INTENT_RENAMEDIR ? NO_PLACE : entry_place(e);

    return !place_known(now) || place_same(now, intent_source(done));
}

static void sources_of_fragment_follow(struct moving *m, const struct fragment *p)
    REQUIRES(cache_mutex)
{
    struct cache *c = m->cache;
    struct entry *e = NULL;
    struct node *n = p->path ? tree_find(c, p->path, &e) : NULL;

    /* An entry that stands at its final place has no source of its own, as one that was made
     * there since. */
    if (n && e && (place_known(e->source) || n->ino == p->first || n->ino == p->last) &&
        is_moved_by(m->done, e))
        copy_source_locked(c, e, intent_source(m->done), intent_target(m->done));
    if (n && e)
        record_follows(m, e);
    if (n)
        (void)tree_each(n, records_in_follow, m);
}

void copy_sources_locked(struct cache *c, struct intent *done, struct copy_readers *changed)
{
    struct moving m = {.cache = c, .done = done, .changed = changed};
    struct fragments fragments = {0};

    cache_assert_locked(c);
    assert(done);
    if (done->kind == INTENT_RENAMEDIR)
        listing_dir_moved_locked(c);
    fragments_follow_locked(c, &fragments, done);
    for (size_t i = 0; i < fragments.n; i++)
        sources_of_fragment_follow(&m, &fragments.v[i]);
    fragments_release(&fragments);
}

void copy_reader_follows(struct file *f, const char *to, const char *copied_etag,
                         const char *new_etag)
{
    const char *has = f->etag ? f->etag : "";
    bool same = strcmp(has, copied_etag) == 0;

    if (!same && *has && *copied_etag && strcmp(has, new_etag) != 0)
        return;
    auto_place struct place moved = place_dup(place_of_path(to));
    auto_free char *etag = strdup(same ? new_etag : has);
    if (!place_known(moved) || !etag)
        return;
    SWAP(f->orphan_source, moved);
    file_is_stored_as_locked(f, take_ptr(etag));
}

void copy_readers_follow_locked(struct copying *k, const char *copied_etag,
                                const char *new_etag)
{
    const struct contents *t = k->cache->content;

    for (size_t i = 0; i < t->n_stale_readers; i++) {
        struct file *f = t->stale_readers[i]->file;
        if (place_known(f->orphan_source) &&
            place_same(f->orphan_source, place_of_path(k->from)))
            copy_reader_follows(f, k->to, copied_etag, new_etag);
    }
}

struct node *copy_reader_locked(struct cache *c, struct intent *i, const char *from,
                                const char *to, struct entry **ret_entry)
{
    auto_free char *at = intent_path_after(row_next(i), to);
    struct entry *e = NULL;
    struct node *n = at ? tree_find(c, at, &e) : NULL;
    auto_place struct place now = n && e && !n->dir ? entry_place(e) : NO_PLACE;

    if (!place_known(now) || !place_same(now, place_of_path(from)))
        return NULL;
    *ret_entry = e;
    return n;
}

/* Says which version the entry has from now on. When somebody else had replaced the source, the
 * entry keeps its version, which is found to be gone at the next look. */
static const char *version_after(const struct entry *e, const char *copied_etag,
                                 const char *new_etag, char buf[ETAG_TEXT_MAX])
{
    return *copied_etag && !etag_is(&e->etag, copied_etag) ? etag_text(&e->etag, buf)
                                                           : new_etag;
}

void copy_write_keys(struct cache *c, struct node *n)
{
    int fd = file_get_fd(c, n, FD_READ);

    if (fd >= 0)
        (void)file_write_keys(c, n, fd);
    cache_lock(c);
    if (fd >= 0)
        file_put_fd_locked(c, n->file, FD_READ);
    node_unref_locked(c, n);
    cache_unlock(c);
}

void copy_write_readers(struct cache *c, struct copy_readers *l)
{
    for (size_t i = 0; i < l->n; i++)
        copy_write_keys(c, l->v[i]);
    free(l->v);
    *l = (struct copy_readers){0};
}

/* Whether somebody else had replaced what the entry was a version of. What is uploaded here may
 * replace what this cache put before. */
static bool was_replaced(const struct entry *e, const char *copied_etag, const char *new_etag,
                         bool own) REQUIRES(cache_mutex)
{
    char buf[ETAG_TEXT_MAX];

    return strcmp(version_after(e, copied_etag, new_etag, buf), new_etag) != 0 &&
           !(own && e->dirty);
}

/* Of a file that is to be uploaded under the new name, what that replaces. */
static bool expect_locked(struct file *f, const struct entry *e, struct place to,
                          const char *copied_etag, const char *new_etag, bool own)
    REQUIRES(cache_mutex)
{
    char buf[ETAG_TEXT_MAX];

    if (!etag_known(&e->etag) || !new_etag)
        return stamp_keys_expect(&f->keys, to.key, STAMP_ANY_VERSION);
    return stamp_keys_expect(
        &f->keys, to.key,
        was_replaced(e, copied_etag, new_etag, own) ? etag_text(&e->etag, buf) : new_etag);
}

/* Whether the copy has the content, though it may lack attributes: it is of the version that is
 * known here, and nothing was written since. */
static bool has_content(const struct file *f, const struct entry *e, const char *copied_etag)
    REQUIRES(cache_mutex)
{
    if (!e->dirty)
        return etag_known(&e->etag);
    return etag_known(&e->etag) && f->state != FILE_DIRTY &&
           (!*copied_etag || etag_is(&e->etag, copied_etag));
}

/* What the store has at the new place; whether there is something new to write. */
static bool record_locked(struct file *f, const struct entry *e, struct place to,
                          const char *copied_etag, const char *new_etag, bool own)
    REQUIRES(cache_mutex)
{
    char buf[ETAG_TEXT_MAX];

    if (!new_etag || (e->dirty && !has_content(f, e, copied_etag)))
        return expect_locked(f, e, to, copied_etag, new_etag, own);
    return etag_known(&e->etag) &&
           stamp_keys_set(&f->keys, to.key, version_after(e, copied_etag, new_etag, buf),
                          f->clean_mtime_ns, f->clean_size) == 0;
}

void copy_note_version(struct copying *k, const char *from, const char *to,
                       const char *copied_etag, const char *new_etag, bool own)
{
    struct cache *c = k->cache;
    struct entry *e = NULL;

    cache_lock(c);
    struct node *n = copy_reader_locked(c, k->intent, from, to, &e);
    bool ours = n && n->file &&
                record_locked(n->file, e, place_of_path(to), copied_etag, new_etag, own);
    if (ours)
        node_ref_locked(n);
    cache_unlock(c);
    if (ours)
        copy_write_keys(c, n);
}

/* It bears the number of the path that it left: only its version tells it from another node's.
 * Without memory it is taken for that. */
static void note_copied_locked(struct file *f, const char *etag) REQUIRES(cache_mutex)
{
    if (f)
        file_was_copied_as_locked(f, etag);
}

/* The caller writes the records of what is returned. */
static struct node *written_locked(struct node *n, bool write) REQUIRES(cache_mutex)
{
    if (!write)
        return NULL;
    node_ref_locked(n);
    return n;
}

/* Another file has the name by now, and what the store has there is what was copied over it:
 * nothing else than that version is ours. Nor is that, if somebody else had replaced what was
 * to be copied. */
static void note_brought_over_locked(struct copying *k, const char *to, const char *copied_etag,
                                     const char *etag, bool own) REQUIRES(cache_mutex)
{
    const struct intent *i = k->intent;

    if (!own &&
        (i->kind != INTENT_RENAME || !*copied_etag || strcmp(i->etag, copied_etag) != 0))
        return;

    auto_free char *at = intent_path_after(row_next(k->intent), to);
    struct entry *e = NULL;
    struct node *n = at ? tree_find(k->cache, at, &e) : NULL;
    auto_place struct place now = n && e && !n->dir ? entry_place(e) : NO_PLACE;

    if (n && place_known(now) && place_same(now, place_of_path(to)) && n->file &&
        n->file->copied_etag)
        note_copied_locked(n->file, etag);
}

struct node *copy_take_version_locked(struct copying *k, const char *from, const char *to,
                                      const char *copied_etag, const char *new_etag, bool own)
{
    struct entry *e = NULL;
    struct node *n = copy_reader_locked(k->cache, k->intent, from, to, &e);

    if (!n) {
        note_brought_over_locked(k, to, copied_etag, new_etag, own);
        return NULL;
    }
    struct file *f = n->file;
    /* Its mirror file may have been made since the version was noted. */
    bool write = f && record_locked(f, e, place_of_path(to), copied_etag, new_etag, own);
    bool same = f && has_content(f, e, copied_etag);
    auto_free char *path = entry_path(e);
    entry_copied_here_locked(e, path && strcmp(path, to) == 0);
    if (!etag_known(&e->etag)) {
        note_copied_locked(f, new_etag);
        return written_locked(n, write);
    }
    bool replaced = was_replaced(e, copied_etag, new_etag, own);
    if (!replaced)
        entry_version_went_on_locked(e, new_etag);
    entry_verified_locked(e, replaced ? 0 : clock_mono_ns());
    entry_forget_version(e);
    entry_changed_locked(k->cache, e);
    if (!same)
        return written_locked(n, write);
    (void)file_reads_version_locked(f, &e->etag);
    if (!e->dirty) /* else it is needed where a power loss brings the row back */
        stamp_keys_remove(&f->keys, place_of_path(from).key);
    return written_locked(n, true);
}
