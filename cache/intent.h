/* What intent.c and copy.c share. */
#ifndef RUNFS_CACHE_INTENT_H
#define RUNFS_CACHE_INTENT_H

#include "cache/node.h"

bool intent_is_rename(const struct intent *i);
/* Who came at that place, or later, waits for it. */
uint64_t intent_since(const struct intent *i) REQUIRES(cache_mutex);
/* Where the rename takes what is at *at (heap, replaced). Whether it does; without memory *at
 * is NULL then. */
bool intent_forward(const struct intent *i, char **at);
/* The same backwards: where what is at *at after the rename came from. INTENT_LEFT: the rename
 * took from there what was there before, so what is there now was made later. */
enum intent_back { INTENT_STAYS, INTENT_CAME, INTENT_LEFT };
enum intent_back intent_backward(const struct intent *i, char **at);
/* Where the renames from `first` on take `path`, heap; NULL without memory. */
char *intent_path_after(const struct intent *first, const char *path) REQUIRES(cache_mutex);
/* Whether open files without a name still read the version at `path` (or below); their fetches
 * are started. */
bool readers_need_locked(struct cache *c, const char *path, bool below) REQUIRES(cache_mutex);
/* How long they are waited for, and how often it is looked whether they still need something.
 */
#define READERS_NS    (200 * NS_PER_MS)
#define READERS_TRIES 300
/* Whether no rename that was intended before concerns what the rename does. */
bool intent_comes_first(struct cache *c, const struct intent *rename) REQUIRES(cache_mutex);
/* Whether something else can't come to the store before the removal is done: it waits for no
 * upload then. */
bool intent_is_urgent(struct cache *c, const struct intent *removal) REQUIRES(cache_mutex);
/* Removals that were intended after what has this place in the order waited for its upload,
 * which never comes: they are taken back, on the disk first, and what they meant shows again.
 * ns held for writing, or recovery. 0 or a negative errno. */
int intents_take_back(struct cache *c, uint64_t seq);
/* What the store has at the path is not what this mount believed: the next look asks. */
void name_is_the_stores_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);
/* Whether the failure says that something lies where it goes, which may be to be removed or
 * moved away itself: that was refused once, and is tried again. */
bool intent_is_in_the_way(int err);
/* Whether there is an intention with a lower number. */
bool intents_before_locked(struct cache *c, uint64_t seq) REQUIRES(cache_mutex);
/* It failed, and is tried again later. */
void intent_failed_locked(struct cache *c, struct intent *i, int err, const char *why)
    REQUIRES(cache_mutex);
/* Runs a rename or renamedir that is ready. */
void copy_start_locked(struct cache *c, struct intent *i) REQUIRES(cache_mutex);

#endif
