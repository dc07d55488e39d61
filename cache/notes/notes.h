/* What several mounts tell each other of units through the state of a store (docs/units.md, 3):
 * requests for notes and seals, and the id of this cache. The leases are in lease.h and
 * others.h; the names and texts in runs/note.h.
 *
 * The room knows no cache: a store, keys, and its own threads and locks. Requests block and
 * return 0 or a negative errno with op->why; who sends them has looked at its lease before
 * (lease_bind()). Any thread. */
#ifndef RUNFS_CACHE_NOTES_H
#define RUNFS_CACHE_NOTES_H

#include "backends/store.h"
#include "cache/mirror/mirror.h"
#include "runs/note.h"

/* The id of this cache: 16 hexadecimal digits in the file `id` of its directory, drawn by the
 * first mount, and by one whose directory is a copy: the notes under the old id are the
 * original's. After mirror_open(). */
int cache_id_open(struct mirror *m, char ret[NOTE_ID_SIZE]);
/* An ID of this mount's session, drawn. 0 or -EIO. */
int session_id_draw(char ret[NOTE_ID_SIZE]);

/* Where the notes of a directory, or of one unit in it, lie. What is the root of its bucket or
 * folder has an empty parent and name. */
struct notes_at {
    struct store *store; /* borrowed */
    char *state;         /* heap; where that store keeps what is its own */
    char *parent;        /* heap; the parent's key, the same for all who have the state */
    char *name;          /* heap; the unit's name in it; NULL: all units of the directory */
};

/* Of the directory at a key of the store as a unit. -EOPNOTSUPP: the store that has it keeps no
 * state; -ENOMEM. */
int notes_at_unit(struct store *s, struct op *op, const char *dir, struct notes_at *ret);
/* Of the units that are in the directory. */
int notes_at_parent(struct store *s, struct op *op, const char *dir, struct notes_at *ret);
void notes_at_release(struct notes_at *at);

/* `at` is a unit in these. A removal of what is not there is a success; a read is -ENOENT then,
 * and -EBADMSG where it says what runfs does not write. What is read is released by the
 * caller. */
int notes_put(const struct notes_at *at, struct op *op, enum note_kind kind,
              const char *cache_id, const char *id, const struct note_body *body);
int notes_remove(const struct notes_at *at, struct op *op, enum note_kind kind,
                 const char *cache_id, const char *id);
int notes_read(const struct notes_at *at, struct op *op, const struct note *note,
               struct note_body *ret);
int seal_put(const struct notes_at *at, struct op *op, const char *cache_id,
             const struct seal_body *body);
int seal_remove(const struct notes_at *at, struct op *op, const char *cache_id);
int seal_read(const struct notes_at *at, struct op *op, const char *cache_id,
              struct seal_body *ret);

/* Visits each note of a unit, or those of all units of a directory: then `unit` of the note
 * says whose it is. One request or more, page by page; a non-zero visit ends it and is
 * returned. What is no note is passed over; nothing there is 0. A listing that began before a
 * put may lack it. */
typedef int (*notes_visit)(void *arg, const struct note *note);
int notes_list(const struct notes_at *at, struct op *op, notes_visit visit, void *arg);
/* The same of seals. */
int seals_list(const struct notes_at *at, struct op *op, notes_visit visit, void *arg);
/* Visits the P (note_parent_part()) of each directory that has notes of units, in one state. */
int notes_list_parents(struct store *s, struct op *op, const char *state,
                       int (*visit)(void *arg, const char *parent), void *arg);

#endif
