/* What the files of an upload share. */
#ifndef RUNFS_CACHE_TRANSFER_UPLOAD_H
#define RUNFS_CACHE_TRANSFER_UPLOAD_H

#include "cache/transfer/transfer_impl.h"

/* A file that changed while it was read. */
#define CHANGED (-ECANCELED)

struct job {
    struct task task;
    struct cache *cache;
    struct node *node; /* referenced */
    char *path;        /* of the name that it is of */
    struct place at;   /* where that goes to; borrows the path */
    unsigned volume;   /* which store that is in */
    int fd;
    bool live;           /* a writer or a mapping may change it */
    struct lease *lease; /* of the note of its unit, without which nothing is sent; or NULL */
    uint64_t term;       /* of the lease, in which the note was put */
    bool looks;          /* nothing is owed, and nothing is sent: it waited for nobody's turn */
    bool of_open_file;   /* chosen although somebody writes: a log file, or a flush waits */
    uint64_t generation;
    uint64_t intents; /* the newest intention when the name was last seen to live */
    struct stat st;
    int64_t
        looked_ns; /* CLOCK_REALTIME; when a live file's pages began to be cleaned, before st */
    int64_t began_ns;  /* CLOCK_MONOTONIC of the attempt */
    bool left_behind;  /* requests of it got no answer before one that did */
    bool others_taken; /* other names were, since the store refused this one */
    struct attrs attrs;
    int64_t took_ns;   /* that it was sent in */
    char *etag;        /* the store's version that is replaced, "" none */
    bool beside_dir;   /* the store had a directory there when that version was asked */
    bool unknown;      /* which version that is can't be told from here: it is asked */
    bool owed_before;  /* by an earlier mount, and not stored since */
    bool content;      /* else attributes only */
    bool recorded;     /* what the store took is known under the name that it has here */
    unsigned refusals; /* how often the store took the condition for none that it knows */
    bool sent;         /* the store has it, as this object */
    bool theirs;       /* which somebody else put there, with the same bytes */
    bool outdated;     /* the version that was to get the attributes is not there any more */
    struct object object;
    atomic_int disk_error; /* negative errno of the cache's own disk, when that ended the
                              upload: whatever came of it, the store has not said so */
    _Atomic(const char *) disk_step; /* constant text: what failed then; NULL: op->why says */
};

/* ---- sources ---- */

struct file_source {
    struct source base;
    struct job *job;
    uint64_t start;  /* of this part in the file */
    uint64_t summed; /* bytes of it that `sum` is of */
    uint32_t sum;    /* CRC-32C of what was read of it last, in order; of a live file only */
};

/* ---- parts ---- */

struct parts {
    struct each each;
    struct job *job;
    struct upload *up;
    uint64_t part_size;
    unsigned n_parts;
    uint32_t *sums; /* CRC-32C of each as it was sent; of a live file only */
    bool resumed;   /* the store may have some of them */
};

/* ---- loser.c ---- */
/* Somebody else's version has the name at the store. The content from here goes to kept/, where
 * status lists it, and the name shows theirs. */
void upload_keep_loser(struct job *j) EXCLUDES(cache_ns, cache_mutex);

/* ---- parts.c ---- */
/* Sends the content in parts, going on with a session of the same content that was broken off.
 * 0 or 1 as upload_resolve_version(), or a negative errno with op->why. */
int upload_in_parts(struct job *j, struct op *op, struct object *obj);

/* ---- running.c ---- */
/* Counts the job, whose name `path` (taken over) is, as one that runs. */
void upload_runs_locked(struct job *j, char *path) REQUIRES(cache_mutex);
void upload_runs_no_more_locked(const struct job *j) REQUIRES(cache_mutex);

/* ---- same.c ---- */
/* Whether the object that somebody else put there is the file that is to be uploaded, but for
 * who may do what with it. 1, 0 or a negative errno with op->why; CHANGED: the file is another
 * one by now. */
int upload_is_same(struct job *j, struct op *op, const struct object *there);

/* ---- send.c ---- */
/* Whether an upload replaces one version only. Where a put can take effect after the process
 * that made it has died, an older one of ours could land last otherwise; and what another node
 * wrote meanwhile would be lost without a word. Elsewhere, too, if it is what an earlier mount
 * left: nobody here has looked at the name since. */
bool upload_has_version(struct job *j);
/* Whether the store compares the version. If it knows no condition, the cache looks first. */
bool upload_is_bound(struct job *j);
/* Whether the version has to be looked at before, as the store knows no condition. */
bool upload_is_looked_at(struct job *j);
/* Whether it may have been the condition that was refused: then there is another attempt. */
bool upload_condition_refused(struct job *j, int r);
/* The version that the store is to compare with; NULL: none. Borrowed from the job. */
const char *upload_expected(struct job *j);
/* Another version than expected is there, or the server could not tell while another change was
 * on its way. 0: the upload may replace what is there, being as expected, ours, older, or none;
 * 1: it is the very one that was to be uploaded, whose answer was lost, or has the same bytes;
 * -ESTALE: somebody else's. */
int upload_resolve_version(struct job *j, struct op *op, struct object *obj);
/* Sends the job's content, or its attributes alone. 0 or a negative errno with op->why; `*obj`
 * says what the store has then. Blocks, holds no lock. */
int upload_send_object(struct job *j, struct op *op, struct object *obj);
/* Drops the attributes of an outdated job, and tells of it by `why`. True: that was done, and
 * the stamp is to be written; false: they are not outdated, or others by now. The file is not
 * uploading any more: else who sees that nothing is owed would take what is here for ours. */
bool upload_drop_attributes_locked(struct job *j, const char *why) REQUIRES_SHARED(cache_ns)
    REQUIRES(cache_mutex);

/* ---- source.c ---- */
/* Notes that the cache's own disk failed at `step` (a constant text), so that the store is not
 * blamed. Returns `err`. Any thread. */
int source_disk_failed(struct job *j, int err, const char *step);
/* source_disk_failed() for a read of the mirror file. */
int source_read_failed(struct job *j, int err);
/* source_disk_failed() for pages that the disk lost. */
int source_lost_here(struct job *j, int err);
/* source_disk_failed() for a session's row. */
int upload_note_failed(struct job *j, int err);
/* Begins to read `size` bytes of the job's file from `start`. */
void file_source_init(struct file_source *s, struct job *j, uint64_t start, uint64_t size);
/* Whether the file is still what it was when the upload began. */
int source_still_same(struct job *j);
/* Whether the file begins with what was read of it, whose sums are those of each `step` bytes.
 * Each byte of a live file was read once by now and is read again: what is the same both times
 * is what the file was at the moment in between (a content that came back aside). That it grew
 * is no matter. 0, CHANGED or another error. */
int source_begins_the_same(struct job *j, const uint32_t *sums, uint64_t step);

/* ---- unnoted.c ---- */
/* The job of an attempt that only has to be noted, or NULL: the name and the file are what they
 * were. The caller has it to run, or to forget. */
struct job *upload_take_unnoted_locked(struct node *n, const char *path) REQUIRES(cache_mutex);

/* ---- upload.c ---- */
/* Begins a request of the job: as cache_op(), and the lease ends it, where that is needed. */
void upload_op(const struct job *j, struct op *op);
/* Whether somebody could change the file since the look without its mtime or size telling. */
bool upload_is_unproven_locked(const struct job *j) REQUIRES(cache_mutex);
/* The file's name that has the job's path now, and to which belongs what lies at its place;
 * NULL: there is none, or it came there since, and what the job put is to follow another one.
 * The tree must be held still. */
struct entry *upload_entry_at(const struct job *j) REQUIRES(cache_mutex);

#endif
