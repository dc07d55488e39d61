/* Bytes and names between mirror and store: downloads, uploads, copies, removals, markers; room
 * on the disk; the scheduler that starts them. */
#ifndef RUNFS_CACHE_TRANSFER_TRANSFER_H
#define RUNFS_CACHE_TRANSFER_TRANSFER_H

#include "cache/listing/listing.h"

/* Why the cache can't keep its limit, or refuses writers; the worst comes last. */
enum space_trouble {
    SPACE_FINE,
    SPACE_OVER_LIMIT, /* what is open, or waits for its name, is more than the limit */
    SPACE_STORE_GONE, /* uploads fail: writers get ENOSPC */
    SPACE_DISK_FULL,  /* the reserve is touched and nothing can go: writers get ENOSPC */
    SPACE_READ_ONLY,  /* the disk takes nothing: writers get EROFS */
    SPACE_REMOVED,    /* the cache directory is gone: writers get EIO */
};

#ifdef NDEBUG
#define cache_check_locked(c) ((void)(c))
#else
/* Walks every list and count and aborts on a broken invariant of docs/format.md. */
void cache_check_locked(struct cache *c) REQUIRES(cache_mutex);
#endif

/* A range on its way from the store. */
struct fetch {
    struct task task;
    struct fetch *next GUARDED_BY(cache_mutex);
    struct node *node; /* referenced */
    struct cache *cache;
    uint64_t off, end;
    struct checksum verified; /* that the store has compared with what was read */
    struct checksum sum;      /* of [off, summed), as it came */
    uint64_t summed;
    bool told GUARDED_BY(cache_mutex); /* file.failed says what became of it */
};

/* A path that is kept from eviction, with all below it. */
struct pin {
    UT_hash_handle hh;
    char path[];
};

/* The content that an upload in parts sends, as far as it can be told without reading it. */
struct session_mark {
    uint64_t ino, size; /* of the mirror file */
    int64_t mtime_ns;
    uint64_t attrs; /* hash */
};

/* An upload in parts. Whoever has it in hand owns it; the others are in cache.sessions. */
struct session {
    struct session *prev, *next;
    char *key;
    char *token;      /* "": not learned */
    int64_t began_ns; /* CLOCK_REALTIME; origin_ns of what it will make */
    uint64_t part_size;
    struct session_mark mark;
    bool live; /* somebody could write the file while it was sent */
    bool over; /* of no use any more: to be ended at the store */
    bool busy; /* being ended */
    unsigned attempts;
    int64_t due_ns;
};

/* Keeps account of the sessions that calls with this op begin by themselves, until it is
 * forgotten: those that are left then are ended at the store. */
struct session_watch {
    struct op_notes notes;
    struct store_sessions base;
    struct cache *cache;
    struct session *session;
    int error; /* of the journal: the last call that a session's account has failed with */
};

/* How long they are waited for, and how often it is looked whether they still need something.
 */
#define READERS_NS (200 * NS_PER_MS)

#define READERS_TRIES 300

/* What is on its way, of a whole cache. */
struct transfers {
    pthread_t scheduler;
    bool scheduler_runs;
    int64_t forgot_ns; /* CLOCK_MONOTONIC; when names were last forgotten; the scheduler's */

    GUARDED_BY(cache_mutex) struct {
        enum space_trouble space;
        /* CLOCK_MONOTONIC; since when every upload fails; 0 they don't */
        int64_t unreachable_ns;
        struct node **uploading; /* nodes whose upload runs */
        size_t n_uploading;
        struct dir_job *dir_jobs; /* directories whose upload runs */
        struct session *sessions; /* uploads in parts that were broken off */
        unsigned sessions_ending;
        uint64_t kept_files;
        uint64_t unstamped_files; /* of those, that recovery found now; constant after it */
        uint64_t uploaded_files, uploaded_bytes, downloaded_bytes;
        enum checksum_kind sum_kind; /* what the store last told; ours until then */
        struct pin *pins;
    };
};

/* ---- fetch.c ---- */
/* How many bytes of a download are gathered for one write to the mirror: as many as are wanted,
 * or (0) as suit this machine. */
uint64_t fetch_gather_bytes(uint64_t wanted);
/* 0, CACHE_PARKED, or an error: makes [off, end) present. */
int fetch_need_locked(struct cache *c, struct node *n, uint64_t off, uint64_t end,
                      uint64_t ahead, struct waiter *w) REQUIRES(cache_mutex);
/* The same for the whole file, which is FILE_PARTIAL no longer when this returns 0. */
int fetch_complete_locked(struct cache *c, struct node *n, struct waiter *w)
    REQUIRES(cache_mutex);

/* ---- pin.c ---- */
int pins_load(struct cache *c);
void pins_free(struct cache *c) REQUIRES(cache_mutex);

/* ---- scheduler.c ---- */
void *scheduler_main(void *arg) EXCLUDES(cache_ns, cache_mutex);

/* ---- session.c ---- */
/* What an earlier mount left. */
int sessions_load(struct cache *c);
/* Whether one is to be ended and that has not failed yet. */
bool sessions_pending_locked(struct cache *c) REQUIRES(cache_mutex);
void sessions_free(struct cache *c) REQUIRES(cache_mutex);

/* ---- space.c ---- */
/* 0, CACHE_PARKED while writers must wait, or -ENOSPC, which status and log then tell. */
int space_need_locked(struct cache *c, struct file *f, struct waiter *w) REQUIRES(cache_mutex);
/* The same for one who allocates `want` bytes: how many of them he may take now. */
int space_take_locked(struct cache *c, struct file *f, uint64_t want, struct waiter *w,
                      uint64_t *ret) REQUIRES(cache_mutex);
/* Whether the file could not have so many bytes on the disk even if nothing else was left there
 * of the cache. */
bool space_is_never_there_locked(struct cache *c, const struct file *f, uint64_t want)
    REQUIRES(cache_mutex);
bool space_for_passthrough_locked(struct cache *c) REQUIRES(cache_mutex);
/* The disk itself had no room for a write: told in log and status. */
void space_disk_full_locked(struct cache *c) REQUIRES(cache_mutex);
/* What is wrong with the space, for people; NULL when nothing is. */
const char *space_trouble_text(enum space_trouble trouble);

/* ---- upload.c ---- */
/* One that only had to be noted: nobody will. Accepts NULL. */
void upload_forget(struct job *j);
/* Whether an upload to this very path, or below it, runs. */
bool upload_runs_at_locked(struct cache *c, const char *path, bool below) REQUIRES(cache_mutex);

#endif
