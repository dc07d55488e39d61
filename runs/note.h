/* What mounts tell each other of units through the state of a store (docs/units.md, 3): notes,
 * seals and leases; how the objects are called, and what is in them. Texts in, texts out; it
 * asks nobody. Any thread.
 *
 * A key here is what stands below STORE_STATE_DIR: routed_state_key() makes it one of a store.
 * `parent_key` and `name` are those of the unit's directory in the bucket or folder, whatever
 * part of that is mounted. NULL from what returns a heap string, and -ENOMEM, is no memory. */
#ifndef RUNFS_RUNS_NOTE_H
#define RUNFS_RUNS_NOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NOTE_ID_SIZE     (16 + 1) /* lower-case hex digits and a NUL */
#define NOTE_PARENT_SIZE (64 + 1) /* P, the same */
#define NOTE_UNIT_SIZE   (200 + 1)
#define NOTE_ETAG_SIZE   72
#define NOTE_BODY_MAX    (64 * 1024) /* bytes of an object; a longer one says nothing */
#define NOTE_NODE_MAX    255         /* bytes of a node's name */
#define NOTE_ATTEMPT_MAX 1024        /* bytes of an attempt */

/* What all notes, seals and leases lie below. */
#define NOTES_DIR  "units"
#define SEALS_DIR  "whole"
#define LEASES_DIR "nodes"

/* ---- names ---- */

enum note_kind {
    NOTE_OPEN, /* its writer writes a part of the unit */
    NOTE_LAST, /* of that part only the tail is missing */
    NOTE_TAKE, /* its writer cleans up what an ended owner left */
    NOTE_GONE, /* its writer removes the unit; it names the tail */
    NOTE_LOCK, /* its writer holds the unit */
};
#define NOTE_KINDS (NOTE_LOCK + 1)

/* The word that a note's name begins with. */
const char *note_kind_word(enum note_kind kind);

/* A note by its name, or (kind alone unset) a seal by its name. */
struct note {
    char unit[NOTE_UNIT_SIZE]; /* U; "": the name was that in its unit */
    enum note_kind kind;
    char cache_id[NOTE_ID_SIZE]; /* who wrote it */
    char id[NOTE_ID_SIZE];       /* hash of the attempt, or of the mount's session */
};

/* P: the SHA-256 of the parent's key. 0 or -ENOMEM. */
int note_parent_part(const char *parent_key, char ret[NOTE_PARENT_SIZE]);
/* U: the name with %XX for all but [A-Za-z0-9._-]; of one that is longer than 200 bytes then
 * "~" and its SHA-256; of "", the root of a bucket or folder, "~" alone. 0 or -ENOMEM. */
int note_unit_part(const char *name, char ret[NOTE_UNIT_SIZE]);
/* An ID, the same for the same text: the beginning of its SHA-256. 0 or -ENOMEM. */
int note_id(const char *text, char ret[NOTE_ID_SIZE]);

/* "units/P" and "units/P/U": where the notes of all units of a directory lie, and of one. */
char *note_parent_key(const char *parent_key);
char *note_unit_key(const char *parent_key, const char *name);
/* "units/P/U/KIND~C~ID". */
char *note_key(const char *unit_key, enum note_kind kind, const char *cache_id, const char *id);
/* "whole/P" and "whole/P/U/C". */
char *seal_parent_key(const char *parent_key);
char *seal_key(const char *parent_key, const char *name, const char *cache_id);
/* "nodes/C". */
char *note_lease_key(const char *cache_id);

/* What a listing has there, relative to units/P ("U/KIND~C~ID") or to units/P/U ("KIND~C~ID").
 * False: runfs writes no such name. */
bool note_parse(const char *name, struct note *ret);
/* The same of whole/P ("U/C") and of whole/P/U ("C"). */
bool seal_parse(const char *name, struct note *ret);
/* Whether it is a P; whether it is the id of a cache, or another ID. */
bool note_is_parent(const char *name);
bool note_is_id(const char *name);

/* ---- what is in them ----
 *
 * JSON objects. In a text stands %XX for each byte that is not ASCII or that commands a
 * terminal, and for "%". Fields that are not known are passed over. A decoded text may be
 * anything but longer than said above: others write it. */

struct unit_tail {
    char *name; /* heap; below the unit's directory; NULL: there is none */
    char etag[NOTE_ETAG_SIZE];
    int64_t mtime_ns; /* as the store says */
};

struct note_body {
    char *node; /* heap */
    int64_t
        since_s;   /* CLOCK_REALTIME of `node`, in seconds: for people, compared with nothing */
    char *attempt; /* heap */
    struct unit_tail tail; /* NOTE_GONE has it */
};

struct lease_body {
    char *node; /* heap */
    char session[NOTE_ID_SIZE];
    int64_t ttl_ns; /* > 0; whole milliseconds, rounded up */
    uint64_t beat;  /* another one each time, up to INT64_MAX */
};

enum seal_how { SEAL_DECLARED, SEAL_ASSUMED, SEAL_CUT };

struct seal_body {
    enum seal_how how;
    char *attempt;  /* heap */
    uint64_t files; /* up to INT64_MAX */
    struct unit_tail tail;
};

const char *seal_how_word(enum seal_how how);

/* The object's bytes, heap. What they take are texts within the limits above, the tail of a
 * seal with a name. */
char *note_encode(const struct note_body *b);
char *lease_encode(const struct lease_body *b);
char *seal_encode(const struct seal_body *b);

/* 0 and *ret, to be released; -EBADMSG: runfs writes no such thing; -ENOMEM. */
int note_decode(const void *data, size_t len, struct note_body *ret);
int lease_decode(const void *data, size_t len, struct lease_body *ret);
int seal_decode(const void *data, size_t len, struct seal_body *ret);

/* Accept what is all zero. */
void note_body_release(struct note_body *b);
void lease_body_release(struct lease_body *b);
void seal_body_release(struct seal_body *b);

#endif
