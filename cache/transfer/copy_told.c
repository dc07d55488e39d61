/* What later intentions are told of a copy. A removal, or a rename, of what a pending rename
 * brings names the version that was known where the store has it. Only if that one is copied,
 * or one that this cache put, does it mean the copy: what another node had put in its place
 * stays where it was copied to. */
#include "cache/transfer/copy.h"

#include "cache/types/etag.h"
#include "common/lock.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What a copy was made of. */
struct copied {
    const char *etag; /* the version */
    bool own;         /* this cache put it */
};

/* Whether the later intention means what was copied. One of which the version is not known
 * means what was brought, if that is what was known here. */
static bool means_copied(const struct copying *k, const struct intent *i,
                         const struct copied *copied)
{
    const char *etag = copied->etag;
    bool known = *etag && strcmp(etag, INTENT_ANY) != 0;
    bool unknown = i->kind == INTENT_RENAME && !*i->etag;

    if (copied->own)
        return unknown || intent_version_is_known(i) || intent_means_ours(i);
    return known && strcmp(unknown ? k->intent->etag : i->etag, etag) == 0;
}

/* The first from `i` on that takes away what was copied to *at, or NULL. What moves a directory
 * above is followed. */
static struct intent *next_taking(struct intent *i, char **at) REQUIRES(cache_mutex)
{
    i = *at ? row_over_from(i, *at) : NULL;
    while (i && i->kind == INTENT_RENAMEDIR && intent_forward(i, at))
        i = *at ? row_over_from(row_next(i), *at) : NULL;
    bool takes = i && (i->kind == INTENT_UNLINK || i->kind == INTENT_RENAME) &&
                 strcmp(i->from, *at) == 0;
    return takes ? i : NULL;
}

/* Where an intention has the version that it is told of. */
static char **version_of(struct intent *i, bool over)
{
    return over ? &i->over : &i->etag;
}

typedef int told_visit(struct copying *k, struct intent *i, bool over, const char *etag);

/* Whether the rename to where it was copied knows that it replaces the version that was. */
static bool means_to_replace(const struct intent *i, const struct copied *copied)
{
    return i->over && (strcmp(i->over, copied->etag) == 0 ||
                       (copied->own && strcmp(i->over, INTENT_OURS) != 0));
}

/* Calls `visit` for the rename, if any, that replaces the copy, where that ends: what comes
 * after it replaces something else. What moves a directory above is followed. */
static int told_over(struct copying *k, const char *to, const struct copied *copied,
                     const char *new_etag, told_visit *visit) REQUIRES(cache_mutex)
{
    auto_free char *at = strdup(to);
    struct intent *i = row_next(k->intent);

    for (; at && (i = row_over_from(i, at)); i = row_next(i)) {
        if (i->kind == INTENT_RENAME && strcmp(i->to, at) == 0)
            return means_to_replace(i, copied) ? visit(k, i, true, new_etag) : 0;
        if (!intent_forward(i, &at) && strcmp(i->from, at) == 0)
            return 0; /* it is removed */
    }
    return at ? 0 : -ENOMEM;
}

/* Calls `visit` for each that is to be told of the copy's version, and those that take it on
 * from their next place, and the one that replaces it. A rename takes on whatever is there: one
 * that knew an older version, from before attributes were stored, says nothing of those behind
 * it. 0, or what a visit returned. */
static int each_told(struct copying *k, const char *to, const struct copied *copied,
                     const char *new_etag, told_visit *visit) REQUIRES(cache_mutex)
{
    auto_free char *at = *new_etag ? strdup(to) : NULL;
    struct intent *i = row_next(k->intent);
    bool is_known = *new_etag && strcmp(new_etag, INTENT_ANY) != 0;
    int r = is_known ? told_over(k, to, copied, new_etag, visit) : 0;

    while (r == 0 && (i = next_taking(i, &at)) != NULL) {
        if (means_copied(k, i, copied) && strcmp(i->etag, new_etag) != 0 &&
            !(intent_is_rename(i) && strcmp(new_etag, INTENT_ANY) == 0))
            r = visit(k, i, false, new_etag);
        if (!intent_forward(i, &at))
            break;
        i = row_next(i);
    }
    return r;
}

static int add_told(struct copying *k, const struct intent *i, bool over, const char *etag)
{
    if (array_grow(k->told, k->told_cap, k->n_told + 1) < 0)
        return -ENOMEM;
    k->told[k->n_told++] = over ? (struct journal_row){.seq = i->seq, .over = etag}
                                : (struct journal_row){.seq = i->seq, .etag = etag};
    return 0;
}

/* One that came since the rows were gathered has its row written anew. */
static int tell(struct copying *k, struct intent *i, bool over, const char *etag)
    REQUIRES(cache_mutex)
{
    char **version = version_of(i, over), *copy = strdup(etag);
    int r = copy && !i->row_told ? add_told(k, i, over, etag) : 0;

    i->row_told = false;
    if (!copy)
        return -ENOMEM;
    free(*version);
    *version = copy;
    return r;
}

void copy_tell_next_locked(struct copying *k, const char *to, const char *copied_etag,
                           const char *new_etag, bool own)
{
    const struct copied copied = {copied_etag, own};

    (void)each_told(k, to, &copied, new_etag, tell);
}

static int note_told(struct copying *k, struct intent *i, bool over, const char *etag)
    REQUIRES(cache_mutex)
{
    int r = add_told(k, i, over, etag);

    i->row_told = r == 0;
    return r;
}

void copy_write_told(struct copying *k)
{
    if (k->n_told)
        (void)journal_done_and_told(k->cache->journal, NULL, 0, NULL, 0, k->told, k->n_told);
    k->n_told = 0;
}

int copy_gather_told(struct copying *k, const char *to, const char *copied_etag,
                     const char *new_etag, bool own)
{
    const struct copied copied = {copied_etag, own};

    cache_lock(k->cache);
    int r = each_told(k, to, &copied, new_etag, note_told);
    cache_unlock(k->cache);
    return r;
}

bool copy_is_replaced_locked(const struct copying *k)
{
    auto_free char *at = strdup(k->to);
    bool with_dir = false;
    const struct intent *i = row_next(k->intent);

    for (; at && (i = row_over_from(i, at)); i = row_next(i)) {
        if (intent_forward(i, &at)) {
            with_dir = with_dir || i->kind == INTENT_RENAMEDIR;
            continue;
        }
        if (strcmp(i->from, at) == 0 && !intent_is_rename(i))
            return !intent_version_is_known(i) && !intent_means_ours(i);
        if (i->to && strcmp(i->to, at) == 0)
            return true;
    }
    return !with_dir;
}

bool copy_is_meant_locked(const struct copying *k, const char *to, const char *etag)
{
    auto_free char *at = strdup(to);

    cache_assert_locked(k->cache);
    const struct intent *i = next_taking(row_next(k->intent), &at);
    return i && intent_version_is_known(i) && strcmp(i->etag, etag) == 0;
}

bool copy_is_meant_otherwise(struct copying *k, const char *to, const char *etag)
{
    const struct copied any = {"", true}, this = {etag, false};
    struct cache *c = k->cache;

    cache_lock(c);
    auto_free char *at = strdup(to);
    struct intent *i = row_next(k->intent);
    bool ret = false;
    while (!ret && (i = next_taking(i, &at)) != NULL) {
        ret = means_copied(k, i, &any) && !means_copied(k, i, &this);
        if (!intent_forward(i, &at))
            break;
        i = row_next(i);
    }
    cache_unlock(c);
    return ret;
}
