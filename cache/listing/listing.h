/* What the store says: listings, questions for attributes and versions, markers, attribute
 * indexes. Each question parks, or answers 0. The room owns the questions under way and what is
 * to be written to indexes, under `lock`; it calls queue/ and what is below it, and the store
 * from its tasks. */
#ifndef RUNFS_CACHE_LISTING_LISTING_H
#define RUNFS_CACHE_LISTING_LISTING_H

#include "cache/queue/queue.h"

/* What a listing says of one name. */
struct listed {
    char *name;
    struct object obj;
    bool hidden; /* other mounts' notes say that it is not to be shown */
};

/* How many siblings' attributes are asked ahead when a program stats one after the other: at
 * first, and when it goes on. */
#define STAT_AHEAD 64

/* ---- ask.c ---- */
/* The cache stops: waiters for attributes wait no longer. */
void askings_stop_locked(struct cache *c) REQUIRES(cache_mutex);
/* mode, owner and mtime are known, or it parks. */
int attrs_need_locked(struct cache *c, struct node *n, struct waiter *w) REQUIRES(cache_mutex);
/* Where other users may use the mount: the object itself has told them, or it parks, and is
 * woken with -ESTALE when they were others: then the kernel asks for them, and whether the
 * caller may, once more. */
int attrs_confirm_locked(struct cache *c, struct node *n, struct waiter *w)
    REQUIRES(cache_mutex);
/* The version is confirmed no longer ago than attr_timeout, or it parks. */
int version_need_locked(struct cache *c, struct node *n, struct waiter *w)
    REQUIRES(cache_mutex);
int name_ask_locked(struct cache *c, struct node *dir, const char *name, struct waiter *w)
    REQUIRES(cache_mutex);
/* `ahead`: nobody waits for it yet. */
int attrs_ask_locked(struct cache *c, struct node *n, bool ahead) REQUIRES(cache_mutex);
/* Parks for the answer to attrs_ask_locked(). */
int attrs_wait_locked(struct cache *c, struct node *n, struct waiter *w) REQUIRES(cache_mutex);
/* Whether the store must be asked for the node's attributes before they are shown. */
bool attrs_missing(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* A directory's listing tells whether it has attributes to ask for. */
bool listing_tells_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);

/* ---- index.c ---- */
/* Attributes became known that the directory's index may lack. */
void index_news_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* The attributes of a directory's marker became known. */
void index_marker_news_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* No directory is in a list of those whose index lacks something any more: the cache ends, or
 * none can be written. */
void indexes_forget_locked(struct cache *c) REQUIRES(cache_mutex);

/* ---- index_write.c ---- */
/* The directory is moved or removed: its index, if it has one, is of no use. */
void index_drop_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* Starts to write the directory's index that the debt stands for, if it is time to; else lowers
 * *next_due to that. */
void index_start_locked(struct cache *c, struct debt *d, int64_t now, int64_t *next_due)
    REQUIRES(cache_mutex);

/* ---- index_tree_write.c ---- */
/* The same of the index of the tree. */
void index_tree_start_locked(struct cache *c, int64_t now, int64_t *next_due)
    REQUIRES(cache_mutex);

/* ---- listing.c ---- */
/* The directory's children are known, or it parks. `whole`: every page. */
int dir_need_locked(struct cache *c, struct node *dir, bool whole, struct waiter *w)
    REQUIRES(cache_mutex);
/* The store may have something of that name, though nothing shows it: the directory is not
 * listed for a name, and the store was not asked for it lately. */
bool dir_may_hold_locked(struct cache *c, struct node *dir, const char *name)
    REQUIRES(cache_mutex);
/* How many bytes of names the store may tell of at once, whatever it says. */
uint64_t listed_max(const struct cache *c);
/* It tells of more: -ENOMEM with the reason. */
int listed_too_much(struct cache *c, struct op *op, struct place at, uint64_t names);
/* How long a listing is believed, in ns. */
int64_t listing_validity_ns(struct cache *c);
/* The store can have nothing below a directory that it was not told of. A directory made here
 * is listed like any other then, since other nodes see it; but a program that fills it with
 * more names than one question tells does not wait for the store at each. */
bool listing_is_recent(struct cache *c, struct node *dir, bool whole) REQUIRES(cache_mutex);

/* ---- merge.c ---- */
/* The store has the version after all that an earlier answer to a read denied. Accepts NULL for
 * the file. */
void listing_file_is_there_locked(struct file *f, const char *etag) REQUIRES(cache_mutex);
/* Takes a name away that the store has no more. ns held for writing. 0, or -EBUSY when
 * something below it is ours. */
int entry_gone(struct cache *c, struct entry *e) REQUIRES(cache_ns) EXCLUDES(cache_mutex);

/* ---- room.c ---- */
/* Makes the room's part of the cache. 0 or -ENOMEM. */
int listings_new(struct cache *c);
/* `caps`: what holds everywhere in the store. 0 or -ENOMEM. */
int listings_open(struct cache *c, unsigned caps);
/* Nothing is asked any more. Accepts a cache without that part. */
void listings_free(struct cache *c) EXCLUDES(cache_mutex);
/* The store must be asked for the attributes of a directory there, which are its marker's. The
 * same at any time. */
bool listing_asks_dir(struct cache *c, struct place at);
/* The store has moved a directory: an earlier question's answer may be from before or after. */
void listing_dir_moved_locked(struct cache *c) REQUIRES(cache_mutex);

/* ---- notes_ask.c ---- */
/* What was told of notes is not believed any more: this mount has changed them. */
void noted_renew_locked(struct cache *c) REQUIRES(cache_mutex);

/* ---- list_ahead.c ---- */
/* Frees what listing ahead keeps of a directory. Accepts NULL. */
void list_ahead_free(struct list_ahead *w) REQUIRES(cache_mutex);
/* The cache stops: wakes those who wait for a listing ahead. */
void list_ahead_stop_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);
/* A program comes to the directory, whose names may be known: if it is one of those that were
 * told last, the next ones are asked for. */
void list_ahead_on_locked(struct cache *c, struct node *dir) REQUIRES(cache_mutex);

#endif
