/* The stamp: what runfs knows of a mirror file, kept in its extended attributes.
 * docs/format.md, section 2. The texts are parsed strictly: a damaged stamp is -EINVAL, never a
 * guess. */
#ifndef RUNFS_CACHE_STAMP_H
#define RUNFS_CACHE_STAMP_H

#include "cache/types/range.h"
#include "common/checksum.h"

#include <stdbool.h>
#include <stdint.h>

#define STAMP_ATTRS  "user.runfs.a"
#define STAMP_KEYS   "user.runfs.k"
#define STAMP_RANGES "user.runfs.r"
#define STAMP_XATTRS "user.runfs.x"
#define STAMP_MAX    4096 /* bytes of any of them */
/* The most bytes of the records of several names: an inode of ext4 holds 4 KiB for all of its
 * stamps, and users have some of it. */
#define STAMP_KEYS_MAX 2000

enum stamp_flags {
    STAMP_WRITING = 1 << 0,     /* W: opened for writing since it was last equal to the store */
    STAMP_ATTR_DIRTY = 1 << 1,  /* A: attributes not in the store */
    STAMP_NEW = 1 << 2,         /* N: a directory that the store doesn't have yet */
    STAMP_SYNCED = 1 << 3,      /* S: data was fsynced at synced_mtime_ns and synced_size */
    STAMP_SHORT_WRITE = 1 << 4, /* C: the disk had no room for a write; not to be published */
    STAMP_DISK_LOST = 1 << 5,   /* L: the disk lost what was written; not to be published */
    STAMP_MANY = 1 << 6,        /* M: more names than records; the store has them all */
    STAMP_KEYS_CUT = 1 << 7,    /* K: more records than were written */
    STAMP_BEGUN = 1 << 8,       /* B: made anew by a writer that had not ended then */
    STAMP_WHOLE = 1 << 9,       /* H: its writer closed it at whole_mtime_ns and whole_size */
    STAMP_HEARSAY = 1 << 10,    /* I: an index told the attributes */
    STAMP_BARE = 1 << 11,       /* V: a directory that only this cache has */
    STAMP_SCRATCH = 1 << 12,    /* T: a file that is owed to no store, by its route */
    STAMP_UNRENAMED = 1 << 13,  /* U: it waits for a rename from the path of made_at */
};

struct stamp_attrs {
    uint64_t ino;
    uint32_t mode, uid, gid;
    uint64_t rdev;
    uint64_t named_seq; /* when it was made, in the order of closes and intentions */
    uint64_t seq;       /* order of the last close; 0 never closed */
    uint64_t first_seq; /* order of the first close that is not in the store; 0 none */
    unsigned flags;     /* enum stamp_flags */
    int64_t synced_mtime_ns;
    uint64_t synced_size;
    int64_t whole_mtime_ns; /* STAMP_WHOLE */
    uint64_t whole_size;
    uint64_t made_at; /* STAMP_UNRENAMED: path_made_at() */
};

/* In place of an etag: a version is there, or may be, but nobody knows which. */
#define STAMP_ANY_VERSION "*"

/* What the store holds under one name of the file: its content, or what that is to replace. */
struct stamp_key {
    char *key; /* a long one is its hash: ask stamp_keys_find() */
    char *etag;
    int64_t mtime_ns;    /* of the mirror file when its content was equal */
    uint64_t size;       /* UINT64_MAX: the store holds something else */
    struct checksum sum; /* of that content, where it is known */
};

struct stamp_keys {
    struct stamp_key *v;
    size_t n;
};

/* Frees the records, not `k` itself. */
void stamp_keys_release(struct stamp_keys *k);
/* The record of `key`, or NULL. */
struct stamp_key *stamp_keys_find(const struct stamp_keys *k, const char *key);
/* Adds or replaces the record of `key`, without a checksum. 0 or -ENOMEM. */
int stamp_keys_set(struct stamp_keys *k, const char *key, const char *etag, int64_t mtime_ns,
                   uint64_t size);
/* Records what an upload to `key` is to replace there: a version, STAMP_ANY_VERSION, or (NULL)
 * nothing. Whether there is something new to write; false without memory, too. */
bool stamp_keys_expect(struct stamp_keys *k, const char *key, const char *etag);
/* Whether the record is of what is to be replaced, and of no content of the file. */
bool stamp_key_is_expected(const struct stamp_key *rec);
/* Forgets the record of `key`. */
void stamp_keys_remove(struct stamp_keys *k, const char *key);

/* The files of a mirror are reached by descriptor. All return 0 or a negative errno: -ENODATA
 * when the stamp is not there, -EINVAL when it is damaged. */
int stamp_read_attrs(int fd, struct stamp_attrs *ret);
int stamp_write_attrs(int fd, const struct stamp_attrs *a);
int stamp_read_keys(int fd, struct stamp_keys *ret);
/* Writes as many records as there is room for, and one at least; *ret_all tells whether that
 * was all of them. */
int stamp_write_keys(int fd, const struct stamp_keys *k, bool *ret_all);
int stamp_read_ranges(int fd, struct ranges *ret);
/* When the set is too large for an xattr the smallest ranges are left out. Without `create` a
 * file that is not partial (any more) is -ENODATA. */
int stamp_write_ranges(int fd, const struct ranges *r, bool create);
int stamp_remove_ranges(int fd);
/* Reads the JSON text; heap. */
int stamp_read_xattrs(int fd, char **ret);
/* Writes the JSON text; NULL removes it. */
int stamp_write_xattrs(int fd, const char *json);

/* The texts themselves, for tests and fuzzing. `text` is NUL-terminated. */
int stamp_parse_attrs(const char *text, struct stamp_attrs *ret);
int stamp_parse_keys(const char *text, struct stamp_keys *ret);
int stamp_parse_ranges(const char *text, struct ranges *ret);

#endif
