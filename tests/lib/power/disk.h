/* What a disk is told, call by call, and what a power cut may leave of it.
 *
 * record.c has functions by the names of libc's calls that change files. They stand before
 * libc's for the whole program, SQLite's library with it, and note what is done below one
 * directory. state.c makes of such a record, and of a choice, the files that a disk may have
 * after a cut. A program that has these files linked to it is a test of a power cut alone. */
#ifndef RUNFS_TESTS_LIB_POWER_DISK_H
#define RUNFS_TESTS_LIB_POWER_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum disk_kind {
    DISK_MAKE,   /* `id` is made under dir/name, or with no name */
    DISK_LINK,   /* it gets the name to_dir/to_name */
    DISK_RENAME, /* from dir/name to to_dir/to_name, where `other` was (0: nothing) */
    DISK_REMOVE, /* loses dir/name */
    DISK_WRITE,  /* `len` bytes at `off` */
    DISK_SIZE,   /* has the size `off` */
    DISK_XATTR,  /* `name` is data; without data it goes */
    DISK_TIMES,  /* its mtime */
    DISK_SYNC,   /* fsync(), fdatasync() */
    DISK_SYNC_ALL,
    DISK_MARK, /* the test's own: what it knows from here on */
};

/* Inodes have numbers of the record's own, so that one which the disk gives twice is two. */
struct disk_op {
    enum disk_kind kind;
    unsigned id, other;
    unsigned dir, to_dir;
    char *name, *to_name;
    bool is_dir, exchange;
    uint64_t off;
    size_t len;
    char *data;
    uint64_t size; /* of the file after the call */
    int64_t mtime_ns, ctime_ns;
    int mark[3];
};

/* The top directory. */
#define DISK_TOP 1

struct disk_record {
    struct disk_op *op;
    size_t n, cap;
    size_t begun; /* operations before this one made what was there when it began */
    unsigned ids; /* the last one given out */
};

/* ---- record.c ---- */

/* Notes from now on what is done below the directory; what is there already comes first, as if
 * it were synced. One record at a time. Aborts the test on any failure, as everything here. */
void disk_record_begin(const char *dir);
void disk_record_mark(int a, int b, int c);
/* How many operations there are so far. */
size_t disk_recorded(void);
/* The record, which the caller frees. */
struct disk_record disk_record_end(void);
void disk_record_free(struct disk_record *r);

/* Files whose inodes have changed at other times than their disk says: fstat() tells those. */
void disk_ctimes_clear(void);
void disk_ctime_is(const char *path, int64_t ctime_ns);

/* ---- choice.c ---- */

/* What of an operation is on the disk after the cut. */
enum disk_kept { DISK_NOTHING, DISK_SIZE_ONLY, DISK_PART, DISK_ALL };

/* A choice of one for each operation before `at`. */
struct disk_cut {
    size_t at;
    unsigned char *kept; /* enum disk_kept */
    size_t *part;        /* of DISK_PART: so many bytes */
};

/* The kinds of states. */
enum disk_way {
    DISK_WAY_DROPPED,  /* a sync brings all names and attributes before it; no more is there */
    DISK_WAY_BARE,     /* a sync brings what it is of, and no more is there */
    DISK_WAY_PREFIX,   /* what was not synced is there up to some operation */
    DISK_WAY_ZEROS,    /* names, sizes, attributes are there, and no data that was not synced */
    DISK_WAY_TORN,     /* the same, and data in part */
    DISK_WAY_EARLY,    /* as dropped, but for pages of SQLite's files that were written early */
    DISK_WAY_REORDERED /* a sync brings what it is of, and of the rest there is this and that */
};
#define DISK_WAYS 7

const char *disk_way_name(enum disk_way way);
/* Whether a sync brings no more than what it is of. */
bool disk_way_is_loose(enum disk_way way);
/* The choice for a cut before operation `at`; the caller frees it. */
struct disk_cut disk_choose(const struct disk_record *r, size_t at, enum disk_way way,
                            uint64_t seed);
/* All that was done before `at`. */
struct disk_cut disk_choose_all(const struct disk_record *r, size_t at);
void disk_cut_free(struct disk_cut *cut);
/* Writes to stderr which operations since the record began are there. */
void disk_cut_tell(const struct disk_record *r, const struct disk_cut *cut);

/* ---- state.c ---- */

struct disk_state;

struct disk_state *disk_state_new(const struct disk_record *r, const struct disk_cut *cut);
void disk_state_free(struct disk_state *s);
/* The same for the same files. */
uint64_t disk_state_hash(const struct disk_state *s);
/* Replaces what is below the directory by it. */
void disk_state_put(const struct disk_state *s, const char *dir);
/* Fails the test unless the directory has just these files. Names that `skip` holds are not
 * looked at. */
void disk_state_compare(const struct disk_state *s, const char *dir, const char *skip);

#endif
