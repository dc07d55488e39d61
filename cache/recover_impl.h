/* What recovery's files share. */
#ifndef RUNFS_CACHE_RECOVER_IMPL_H
#define RUNFS_CACHE_RECOVER_IMPL_H

#include "cache/mount.h"

/* Names of one mirror inode. */
struct seen {
    UT_hash_handle hh;
    ino_t ino;
    struct node *node;
};

struct keeping {
    char *path;
    const char *why; /* what became of it; a constant text */
    uint64_t lost;   /* when it was closed last, of a file that no store ever had; else 0 */
    bool held;       /* it comes after such a file: recover_hold_behind_lost() */
};

struct scan {
    struct cache *cache;
    struct seen *seen;
    struct node **dirty;
    size_t n_dirty, cap_dirty;
    char **drop; /* paths that leave the mirror once the walk is over */
    size_t n_drop, cap_drop;
    struct keeping *keep; /* what goes to kept/ */
    size_t n_keep, cap_keep;
    size_t n_held;
    uint64_t keep_seq;  /* order of the first close among them; 0: one's is not known */
    uint64_t unstamped; /* of those that go to kept/, for want of a stamp */
};

enum verdict {
    VERDICT_DROP = 1, /* of no use: the store has it */
    VERDICT_KEEP,     /* owed to the store, but blocks of it may be lost */
};

/* ---- judge.c ---- */
/* Whether the file is what its last fsync() left, by the stamp's mtime and size. */
bool recover_was_synced(const struct stamp_attrs *a, const struct stat *st);
/* Data that was not synced may be gone after a reboot, whatever the stamps say. */
bool recover_trusts(struct cache *c, const struct stamp_attrs *a, const struct stat *st);
/* Whether a writer's changes may be there: a partial file has none yet, whoever opened it. */
bool recover_is_written(int fd, const struct stamp_attrs *a);
/* Sets the state of one name; a verdict when it leaves the mirror. */
int recover_judge(struct scan *s, struct entry *e, const char *path,
                  const struct stamp_attrs *a, const struct stat *st, bool partial)
    REQUIRES(cache_mutex);

/* ---- recover_kept.c ---- */
/* The name goes to kept/. `seq`: its place in the order of closes; 0: not known. 0 or -ENOMEM.
 */
int recover_keep(struct scan *s, const char *path, uint64_t seq, const char *why);
/* The same of a file whose changes the disk may have lost; `fd` is open. */
int recover_keep_unsynced(struct scan *s, const char *path, const struct stamp_attrs *a,
                          int fd);
/* What is published after a file that goes to kept/ and that no store ever had goes there, too:
 * the last file of its unit, a pointer beside. Else the store would show a unit as whole that
 * never will be. Before anything is queued. 0 or -ENOMEM. */
int recover_hold_behind_lost(struct scan *s) REQUIRES(cache_ns, cache_mutex);
/* Moves to kept/ what goes there. */
int recover_move_kept(struct scan *s);

/* ---- recover.c ---- */
/* The place that the thing at `path` had before the renames up to `last`; owned, none without
 * memory. A thing that a rename moved away from there is another one: this one was made later,
 * and *ret_later says so. */
struct place recover_place_before(struct cache *c, struct intent *last, const char *path,
                                  bool *ret_later) REQUIRES(cache_mutex);

#endif
