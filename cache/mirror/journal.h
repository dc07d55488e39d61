/* The journal: intentions towards the store that leave no trace in the mirror, pins, upload
 * sessions, notes of units and what was put, in state.db (SQLite, WAL). docs/format.md,
 * section 4.
 *
 * A call that changes something returns when its row is in the WAL (a SIGKILL loses nothing);
 * callers that come at the same time share one commit. Only journal_done() and journal_sync()
 * wait for the disk. Any thread. 0 or a negative errno. */
#ifndef RUNFS_CACHE_JOURNAL_H
#define RUNFS_CACHE_JOURNAL_H

#include "common/op.h"

#include <stddef.h>
#include <stdint.h>

struct journal;
struct log_queue;

enum intent_kind {
    INTENT_UNLINK = 1,
    INTENT_RMDIR = 2,
    INTENT_RENAME = 3,
    INTENT_RENAMEDIR = 4,
};

/* One row. Strings are borrowed by the calls that write, valid during a visit. */
struct journal_row {
    uint64_t seq;
    enum intent_kind kind;
    const char *from;
    const char *to; /* renames; of a removal: where, in another store, its file went, or NULL */
    uint64_t ino;   /* of the inode that is removed or renamed, or went there */
    const char *etag; /* version at `from`; "" when none is known, INTENT_ANY when one was */
    const char *over; /* version at `to` that the rename of a file replaces, INTENT_OURS: there
                         is none; NULL: it is not known */
};

/* The store has had a version there, but this cache can't tell which: no ETag is "*". */
#define INTENT_ANY "*"
/* In place of a version: the store had none; the row means what this cache put there since. */
#define INTENT_OURS "-"

/* Opens the journal in the directory that door_open() has opened; `dir` is for messages. A
 * damaged database is set aside and a new one begun: *ret_damaged tells (may be NULL). What
 * sqlite says goes to `log`, since callers hold locks. */
int journal_open(int dir_fd, const char *dir, struct log_queue *log, struct op *op,
                 struct journal **ret, int *ret_damaged);
/* Closes the journal. Accepts NULL. */
void journal_close(struct journal *j);

/* Adds `n` rows in one transaction. */
int journal_add(struct journal *j, const struct journal_row *rows, size_t n);
/* Notes what was carried out: removes rows and adds others in one transaction, and waits for
 * the disk: a row that comes back after a machine crash could undo what followed it. */
int journal_done(struct journal *j, const uint64_t *seqs, size_t n_seqs,
                 const struct journal_row *rows, size_t n_rows);
/* The same, and says anew which versions the rows of `told` mean, by their seq and etag, or by
 * their seq and what they replace (`over`, then no etag): those that are there still. */
int journal_done_and_told(struct journal *j, const uint64_t *seqs, size_t n_seqs,
                          const struct journal_row *rows, size_t n_rows,
                          const struct journal_row *told, size_t n_told);
/* Adopts a journal that came with a copy of its cache: the original carries out what it says,
 * and others change the store since. Renames are taken back; a removal of which the version is
 * not known means only what this cache put. Waits for the disk. */
int journal_adopt(struct journal *j);
/* Takes back rows whose mirror step failed. Where the disk refuses it they go with the next
 * change that is made, in its transaction: they are never found behind a newer row. */
void journal_take_back(struct journal *j, const uint64_t *seqs, size_t n);
/* Removes rows that could not be taken back; the caller does this from time to time. */
int journal_retry(struct journal *j);
/* Visits all rows in the order of seq. */
int journal_each(struct journal *j, int (*visit)(void *arg, const struct journal_row *row),
                 void *arg);

/* Adds a pinned path, or removes it. */
int journal_set_pin(struct journal *j, const char *path, int pinned);
/* Visits all pinned paths. */
int journal_each_pin(struct journal *j, int (*visit)(void *arg, const char *path), void *arg);

/* An unfinished upload in parts: resumed or ended after a restart. The row says what it is and
 * of which content; key and began_ns name the row. Strings as in struct journal_row. */
struct journal_session {
    const char *key;
    int64_t began_ns;  /* CLOCK_REALTIME; the origin's time of what it will make */
    const char *token; /* of the store; "" before it was learned */
    uint64_t part_size;
    uint64_t ino, size; /* of the mirror file */
    int64_t mtime_ns;
    uint64_t attrs; /* hash of the attributes that the session carries */
    int live;       /* somebody could write the file meanwhile */
};

/* Adds or replaces the row; with `durable` it waits for the disk. */
int journal_set_session(struct journal *j, const struct journal_session *s, int durable);
/* Removes the row; 0 also when there is none. */
int journal_remove_session(struct journal *j, const char *key, int64_t began_ns);
/* Visits all sessions. */
int journal_each_session(struct journal *j,
                         int (*visit)(void *arg, const struct journal_session *s), void *arg);

/* What one mount has put to a key, or may have: which versions there it can have made. The key
 * is borrowed by the call that writes, valid during a visit. */
struct journal_put {
    const char *key;
    uint64_t origin; /* as objects carry it */
    int64_t last_ns; /* CLOCK_REALTIME; when the last one was signed */
};

/* Adds the note or sets its time, and takes `n` others out unless they were noted anew since.
 */
int journal_note_put(struct journal *j, const struct journal_put *note,
                     const struct journal_put *settled, size_t n);
/* Visits all notes. */
int journal_each_put(struct journal *j, int (*visit)(void *arg, const struct journal_put *note),
                     void *arg);

/* Removals that come after `since` in the order wait for what was closed before `until`. */
struct journal_wait {
    uint64_t since, until;
};

/* Replaces all waits. Waits for the disk: the mirror has no trace of why removals wait. */
int journal_set_waits(struct journal *j, const struct journal_wait *v, size_t n);
/* Visits the waits in order. */
int journal_each_wait(struct journal *j, int (*visit)(void *arg, const struct journal_wait *w),
                      void *arg);

/* A note of a unit, which the state of its store has, or may have (docs/units.md, 3). The key
 * of the unit's directory and the id name the row. Texts as in struct journal_session. */
struct journal_unit {
    const char *key;
    const char *id;
    int how;          /* enum seal_how; what it is to be sealed as; no matter without a tail */
    const char *tail; /* name of the file that comes last, below the directory; "": it is not
                         on its way yet */
};

/* Adds or replaces the row. */
int journal_set_unit(struct journal *j, const struct journal_unit *u);
/* Removes the row; 0 also when there is none. */
int journal_remove_unit(struct journal *j, const char *key, const char *id);
/* Visits all rows. */
int journal_each_unit(struct journal *j, int (*visit)(void *arg, const struct journal_unit *u),
                      void *arg);

/* Waits until everything committed so far is on the disk. */
int journal_sync(struct journal *j);
/* journal_sync() for the rows of intentions; asks nothing of the disk when they are there
 * already. */
int journal_sync_intents(struct journal *j);

#endif
