/* Bytes and names between mirror and store: downloads, uploads, copies, removals, markers; room
 * on the disk; the scheduler that starts them. The room owns what is on its way, broken-off
 * uploads and pins, under `lock`; it calls listing/ and what is below it, and the store from
 * its tasks. */
#ifndef RUNFS_CACHE_TRANSFER_TRANSFER_H
#define RUNFS_CACHE_TRANSFER_TRANSFER_H

#include "cache/listing/listing.h"

#ifdef NDEBUG
#define cache_check_locked(c) ((void)(c))
#else
/* Checks this room's part and those of the rooms below: aborts on a broken invariant of
 * docs/format.md. */
void cache_check_locked(struct cache *c) REQUIRES(cache_mutex);
#endif

/* ---- fetch.c ---- */
/* How many bytes of a download are gathered for one write to the mirror: as many as are wanted,
 * or (0) as suit this machine. */
uint64_t fetch_gather_bytes(uint64_t wanted);
/* 0, CACHE_PARKED, or an error: makes [off, end) present. */
int fetch_need_locked(struct cache *c, struct node *n, uint64_t off, uint64_t end,
                      uint64_t ahead, struct waiter *w) REQUIRES(cache_mutex);
/* fetch_need_locked() for the whole file, no longer FILE_PARTIAL when this returns 0. */
int fetch_complete_locked(struct cache *c, struct node *n, struct waiter *w)
    REQUIRES(cache_mutex);

/* ---- marker_put.c ---- */
/* How long a directory's time waits for the names in it before they are looked at again. */
#define NAMES_NS (100 * NS_PER_MS)
/* Whether the store is told of the directory, which is at `path`, by itself, as far as is known
 * now: no name in it stands for it, or comes to do so. */
bool dir_goes_itself_locked(struct cache *c, struct node *dir, const char *path)
    REQUIRES(cache_mutex);

/* ---- pin.c ---- */
/* Loads the pins of earlier mounts. 0 or a negative errno. */
int pins_load(struct cache *c);

/* ---- room.c ---- */
/* Makes the room's part of the cache. 0 or -ENOMEM. */
int transfers_new(struct cache *c) EXCLUDES(cache_mutex);
/* The options say by now how many uploads run at once. 0 or -ENOMEM. */
int transfers_open(struct cache *c) EXCLUDES(cache_mutex);
/* How many threads carry out what goes to the stores. */
unsigned transfers_threads(const struct cache *c);
/* Nothing is on its way any more. Accepts a cache without that part. */
void transfers_free(struct cache *c) EXCLUDES(cache_mutex);
/* Whether something is on its way to the store. */
bool transfers_run_locked(struct cache *c) REQUIRES(cache_mutex);
/* The room's numbers of the status. */
void transfers_stats_locked(struct cache *c, struct cache_stats *ret) REQUIRES(cache_mutex);
/* How many files are in kept/. */
uint64_t transfers_kept_locked(struct cache *c) REQUIRES(cache_mutex);
/* Recovery found `kept` files there; `unstamped` of them came there for want of a stamp. */
void transfers_found_kept_locked(struct cache *c, uint64_t kept, uint64_t unstamped)
    REQUIRES(cache_mutex);

/* ---- running.c ---- */
/* Whether an upload to this very place, or below it, runs. */
bool upload_runs_at_locked(struct cache *c, struct place at, bool below) REQUIRES(cache_mutex);

/* ---- scheduler.c ---- */
/* Starts its thread, which ends when the cache stops. 0 or a negative errno. */
int scheduler_start(struct cache *c);
/* The cache was stopped: waits until the thread has ended, if there is one. */
void scheduler_join(struct cache *c) EXCLUDES(cache_ns, cache_mutex);

/* ---- session.c ---- */
/* Loads the sessions that earlier mounts left. */
int sessions_load(struct cache *c);
/* Whether a session is to be ended and that has not failed yet. */
bool sessions_pending_locked(struct cache *c) REQUIRES(cache_mutex);

/* ---- space.c ---- */
/* 0, CACHE_PARKED while writers must wait, or -ENOSPC with a reason in status and log. */
int space_need_locked(struct cache *c, struct file *f, struct waiter *w) REQUIRES(cache_mutex);
/* space_need_locked() for an allocation of `want` bytes; *ret: how many it may take now. */
int space_take_locked(struct cache *c, struct file *f, uint64_t want, struct waiter *w,
                      uint64_t *ret) REQUIRES(cache_mutex);
/* Whether the file could not have so many bytes on the disk even if nothing else was left there
 * of the cache. */
bool space_is_never_there_locked(struct cache *c, const struct file *f, uint64_t want)
    REQUIRES(cache_mutex);
bool space_for_passthrough_locked(struct cache *c) REQUIRES(cache_mutex);
/* Tells log and status that the disk itself had no room for a write. */
void space_disk_full_locked(struct cache *c) REQUIRES(cache_mutex);

/* ---- unnoted.c ---- */
/* Frees a job, perhaps one that only had to be noted: nobody will. Accepts NULL. */
void upload_forget(struct job *j);
/* What was sent of the node and could not be noted is sent again: a name of it comes, goes or
 * moves, so that a removal may take what the store has before the name is back, or one just
 * did. Accepts a node without a file. */
void upload_forget_unnoted_locked(struct node *n) REQUIRES(cache_mutex);

#endif
