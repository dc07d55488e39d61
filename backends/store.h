/* The one interface of every store, and of every layer around a store.
 *
 * A store holds objects under keys. A key is a path relative to the store's root: components
 * joined by "/", no leading or trailing "/", "" is the root itself. A key may name an object, a
 * directory, or both (an object store has no say in that); calls that differ say so.
 *
 * Callers use the store_*() functions below, never `ops`: the wrappers check the contract on
 * both sides, answer -EOPNOTSUPP for what a driver lacks, and are the one place to trace. Calls
 * block and come from many threads at once. They return 0 (or a count) or a negative errno and
 * fill op->why on failure. Arguments are borrowed for the call; ret_* are written on success
 * only. */
#ifndef RUNFS_BACKENDS_STORE_H
#define RUNFS_BACKENDS_STORE_H

#include "common/checksum.h"
#include "common/op.h"
#include "common/path.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STORE_ETAG_MAX 72           /* bytes with the NUL */
#define STORE_KEY_MAX  PATH_KEY_MAX /* longest key any driver is asked for, with the NUL */

/* Keys below this one are objects of our own (STORE_STATE): they are read, put, listed and
 * removed like others, but lie outside of the store's root, whose listings never show them. All
 * who open the store find them in one place. Directories there come and go with what is below
 * them. */
#define STORE_STATE_DIR PATH_RESERVED

/* What POSIX knows of a file beyond its bytes. */
enum attr_has {
    ATTR_MODE = 1 << 0,   /* mode: type and permission bits (st_mode) */
    ATTR_OWNER = 1 << 1,  /* uid and gid */
    ATTR_MTIME = 1 << 2,  /* mtime_ns */
    ATTR_RDEV = 1 << 3,   /* rdev of a device node */
    ATTR_TARGET = 1 << 4, /* target of a symlink */
    ATTR_XATTRS = 1 << 5, /* xattrs */
    ATTR_ORIGIN = 1 << 6, /* origin, origin_ns */
};

struct attrs {
    unsigned has; /* enum attr_has: which of the fields below say something */
    uint32_t mode;
    uint32_t uid, gid;
    uint64_t rdev;
    int64_t mtime_ns;  /* CLOCK_REALTIME */
    char *target;      /* heap; a symlink's target, any bytes but NUL */
    char *xattrs;      /* heap; JSON object: name to base64 of the value (s3fs's form) */
    uint64_t origin;   /* who put this version here: a cache's own number, mixed with the key */
    int64_t origin_ns; /* and when it began to, by its CLOCK_REALTIME */
};

/* Frees the strings and clears the struct. */
void attrs_release(struct attrs *a);
/* Deep copy into uninitialised `to`. 0 or -ENOMEM. */
int attrs_copy(struct attrs *to, const struct attrs *from);

/* What a store says of one key. */
struct object {
    uint64_t size;    /* bytes */
    int64_t mtime_ns; /* CLOCK_REALTIME of the last change, as the server says */
    int64_t told_ns;  /* the server's clock when it said so; 0 when it did not tell */
    char
        etag[STORE_ETAG_MAX]; /* opaque version, without quotes; "" when the store keeps none */
    bool is_prefix;           /* a directory, real or implied by the keys below it */
    bool has_marker;          /* is_prefix: an object of its own stands for it ("dir/"), or the
                                 store has real directories */
    bool attrs_known;         /* attrs are what the store holds; false from a listing that does
                                 not carry them (then only stat tells) */
    bool attrs_hearsay;       /* they are from a copy of that, which others may write to: never
                                 from a store (cache/listing/index.c) */
    struct attrs attrs;
    struct checksum checksum; /* of the whole content, where the store tells it
                                 (STORE_CHECKSUM): from stat, from what writes content, and from
                                 a read of the whole that was verified; not from listings */
};

/* Frees what attrs holds. */
void object_release(struct object *obj);

/* Bytes to upload, readable at any offset and any number of times, from any one thread. */
struct source {
    uint64_t size; /* bytes */
    /* As pread(2), but with a negative errno; short only at the end. One that ends before
     * `size` has changed: what is sent of it fails with -EBUSY. */
    ssize_t (*pread)(struct source *src, void *buf, size_t len, uint64_t off);
};

/* Where the bytes of a read go. Called in the reading thread, with growing offsets within one
 * attempt; a retried read may deliver bytes again. It must not call the store. */
struct sink {
    /* 0 or a negative errno, which ends the read and is returned by it. `off` is the object's.
     */
    int (*write)(struct sink *sink, const void *data, size_t len, uint64_t off);
};

/* A ready-made source and sink over memory. */
struct mem_source {
    struct source base;
    const char *data;
};
void mem_source_init(struct mem_source *m, const void *data, size_t len);
struct mem_sink {
    struct sink base;
    char *data;
    size_t len;   /* room */
    uint64_t off; /* the object's offset of data[0] */
};
void mem_sink_init(struct mem_sink *m, void *data, size_t len, uint64_t off);

enum store_cap {
    STORE_RENAME = 1 << 0,   /* rename is one atomic request, also of a whole directory */
    STORE_IF_MATCH = 1 << 1, /* put, commit, copy and set_attributes honour an expected etag */
    STORE_PARTS = 1 << 2,    /* has the upload_* calls */
    STORE_DIRS = 1 << 3,     /* directories are real: exist empty, must exist before children */
    STORE_LIST_ATTRS = 1 << 4, /* listings fill object.attrs for everything */
    STORE_COPY = 1 << 5,       /* copy happens at the server */
    STORE_ATTRS = 1 << 6,      /* keeps mode, owner, mtime, symlink target and xattrs */
    STORE_ORIGIN = 1 << 7,     /* keeps ATTR_ORIGIN, of regular files at least */
    STORE_STATE = 1 << 8,      /* takes keys below STORE_STATE_DIR, outside of its root */
    STORE_CHECKSUM = 1 << 9,   /* stat tells the checksum of most contents */
    STORE_ORDER = 1 << 10, /* recursive listings come in the order of the keys' bytes (that of a
                              directory's own object ends in "/"), and can begin anywhere */
    STORE_ACLS = 1 << 11,  /* keeps ACLs among the xattrs */
    STORE_PROMPT = 1 << 12, /* no request takes effect after its caller died */
};

/* What a store can do at a key, and its limits there. */
struct store_facts {
    unsigned caps;      /* enum store_cap */
    unsigned volume;    /* which of the stores that it is made of; 0: it is one */
    uint64_t part_size; /* bytes per request the store likes best */
    uint64_t part_min;  /* bytes of every part but the last */
    uint64_t part_max;
    unsigned parts_max; /* parts of one upload */
    uint64_t put_max;   /* bytes of one put */
    uint64_t size_max;  /* bytes of the largest object that can be there, 0: INT64_MAX; an
                           answer that tells of a larger one becomes -EBADMSG */
    unsigned key_max;   /* bytes of the longest key, below the root; of a directory that may get
                           an object of its own one less */
};

struct store;
struct store_stats;
struct upload;

enum list_flags {
    LIST_RECURSIVE =
        1 << 0,         /* the whole subtree, names relative to the prefix with "/" inside */
    LIST_SELF = 1 << 1, /* also the directory's own object, under the name "", where the store
                           has one and tells of it in the listing; not with LIST_RECURSIVE */
};

/* What a driver visits in place of a name that no text can hold: no name either. */
#define STORE_NO_NAME "/"

/* The name (relative to the listed prefix) and object are valid during the visit. A non-zero
 * answer ends the listing and is returned by it. It must not call the store: the listing holds
 * one of the connections. */
typedef int (*store_visit)(void *arg, const char *name, const struct object *obj);

/* An uploaded part as a resumed session reports it. */
struct part {
    unsigned number; /* from 1 */
    uint64_t size;   /* bytes */
    char etag[STORE_ETAG_MAX];
};

/* Keeps account of the session that a call begins by itself, as a copy in parts does: the call
 * can't end it when its process dies. Called by the thread of the call. */
struct store_sessions {
    /* With token NULL before a session is begun, then with what upload_resume takes. A negative
     * errno ends the call with it. */
    int (*begun)(struct store_sessions *s, const char *key, const char *token);
    /* The store has it no more. */
    void (*ended)(struct store_sessions *s);
};

/* What a requester gets beside the result if op->notes points to one. */
struct op_notes {
    uint64_t hidden_names;           /* set by a listing: names it met that no path can show */
    struct store_sessions *sessions; /* the requester's; NULL: nobody keeps account */
    bool elsewhere; /* set by a stat that is not hasty: the directory has nothing under its own
                       key, and is there by what other keys have (a store over stores) */
};

struct store_ops {
    const char *name;

    /* -ENOENT when the key is neither an object nor a directory. An object wins over a
     * directory of the same name. The root is always a directory once the store can be reached;
     * a missing bucket or folder is -ENXIO. */
    int (*stat)(struct store *s, struct op *op, const char *key, struct object *ret_obj);

    /* The own object of a directory (on S3 the marker "dir/"), also where an object has the
     * same name; -ENOENT when it has none, whatever is below it. */
    int (*stat_dir)(struct store *s, struct op *op, const char *key, struct object *ret_obj);

    /* Visits the children of directory `prefix`, each once, in no promised order, page by page
     * as answers arrive. Where a name is both object and directory, both are visited. A prefix
     * without children is 0 without a visit; one that does not exist is that or -ENOENT.
     * Recursive listings visit directories only when they have an object of their own; where
     * the store has STORE_ORDER they leave out all keys up to `after` (NULL: none), which is
     * relative to the prefix, too, and NULL in all other listings.
     * Names with empty, "." or ".." components are not visited but counted by the wrapper; one
     * with NUL the driver visits as STORE_NO_NAME. op->notes says how many there were in this
     * listing. */
    int (*list)(struct store *s, struct op *op, const char *prefix, unsigned flags,
                const char *after, store_visit visit, void *arg);

    /* Delivers bytes [off, off+len) into the sink; returns how many, fewer only at the end.
     * -ESTALE when the object is no longer version `etag` (NULL takes any); -ENOENT when gone.
     * ret_obj may be NULL. */
    ssize_t (*read)(struct store *s, struct op *op, const char *key, const char *etag,
                    struct sink *sink, size_t len, uint64_t off, struct object *ret_obj);

    /* All or nothing: readers see the old object or the new. -ESTALE when the stored version is
     * not `etag` (NULL overwrites, "" demands absence). `attrs` may be NULL. A symlink is a put
     * of an empty source with ATTR_MODE S_IFLNK and ATTR_TARGET; fifos, sockets and devices are
     * empty puts with their mode. Parent directories come into being. -EFBIG above what one
     * request may carry (put_max of its facts). */
    int (*put)(struct store *s, struct op *op, const char *key, const char *etag,
               struct source *src, const struct attrs *attrs, struct object *ret_obj);

    /* An upload in parts, which may run in parallel and be repeated (the last one counts);
     * nothing shows before commit. Numbers run from 1; all parts but the last have one size
     * within [part_min, part_max]. After commit returned 0, and after abort whatever it
     * returned, the upload is freed; after a failed commit it may be committed again or
     * aborted. upload_token returns a heap string with which upload_resume continues the
     * session in another process: it visits the parts the store has; -ENOENT when the session
     * is gone. With a NULL visit the parts are not asked for: such an upload is only to be
     * aborted. upload_detach frees the upload too, but leaves the session for that. */
    int (*upload_begin)(struct store *s, struct op *op, const char *key,
                        const struct attrs *attrs, struct upload **ret_up);
    int (*upload_part)(struct upload *up, struct op *op, unsigned number, struct source *src);
    int (*upload_commit)(struct upload *up, struct op *op, const char *etag,
                         struct object *ret_obj);
    int (*upload_abort)(struct upload *up, struct op *op);
    void (*upload_detach)(struct upload *up);
    char *(*upload_token)(struct upload *up);
    int (*upload_resume)(struct store *s, struct op *op, const char *key, const char *token,
                         int (*visit)(void *arg, const struct part *part), void *arg,
                         struct upload **ret_up);
    /* Whether the session has part `number` with just this content: 1, 0, or a negative errno.
     * For parts that were sent before a resume; it costs one reading of the source, and what
     * the store told of the part at the resume is compared. A store that told nothing to
     * compare answers 0. */
    int (*upload_has)(struct upload *up, struct op *op, unsigned number, struct source *src);
    /* Ends the sessions of `key` that were begun at `since_ns` (CLOCK_REALTIME) or later and
     * hold no part, but for that of the token `keep` (may be NULL): what is left of
     * upload_begin when its answer was lost, or its caller died before noting the token. NULL
     * in stores where such a session costs nothing and goes by itself. */
    int (*upload_sweep)(struct store *s, struct op *op, const char *key, int64_t since_ns,
                        const char *keep);

    /* A copy within the store, of any size. -ESTALE when `from` is not version `from_etag` or
     * `to` not `to_etag` (as in put). attrs NULL keeps those of the source. */
    int (*copy)(struct store *s, struct op *op, const char *from, const char *from_etag,
                const char *to, const char *to_etag, const struct attrs *attrs,
                struct object *ret_obj);

    /* Atomic, replaces an existing object; a directory moves with all below it and replaces
     * only an empty one (-ENOTEMPTY). */
    int (*rename)(struct store *s, struct op *op, const char *from, const char *to);

    /* Removes objects; one that is not there is a success. errs may be NULL, else errs[i] gets
     * each key's result. Returns 0 or the first failure. etags may be NULL, and so may be each:
     * any version goes. Else the result is -ESTALE when another version is there; an S3 server
     * that knows no conditional deletes removes it nevertheless (docs/s3.md). */
    int (*remove)(struct store *s, struct op *op, const char *const *keys,
                  const char *const *etags, size_t n, int *errs);

    /* Makes a directory that exists empty (on S3 a marker "dir/"); one that is there already
     * gets the attributes. Of attributes that are the time alone a real directory (STORE_DIRS)
     * gets that and keeps the others, and none is made. ret_obj may be NULL: its version, as
     * after a put; all zero where the store does not tell. */
    int (*mkdir)(struct store *s, struct op *op, const char *key, const struct attrs *attrs,
                 struct object *ret_obj);
    /* Removes the directory's own object or the real directory; -ENOTEMPTY only where
     * directories are real; one that is not there is a success. */
    int (*rmdir)(struct store *s, struct op *op, const char *key);

    /* Replaces the attributes of an object or a directory without sending its content; on
     * object stores a copy onto itself, so the etag may change. -ESTALE as in put. */
    int (*set_attributes)(struct store *s, struct op *op, const char *key, const char *etag,
                          const struct attrs *attrs, struct object *ret_obj);

    /* Fills *ret with what holds at `key`; NULL where struct store's facts hold at all keys.
     * `dir`: of the directory itself that is there or may be, whoever has a file there. */
    void (*facts)(struct store *s, const char *key, bool dir, struct store_facts *ret);

    /* As store_state_of(); NULL where STORE_STATE_DIR is that of all keys. */
    int (*state_of)(struct store *s, struct op *op, const char *key, bool dir, char **ret_state,
                    char **ret_key);

    /* Adds what this layer counted; NULL in drivers, which count nothing. */
    void (*add_stats)(struct store *s, struct store_stats *stats);

    /* The last call; closes the layer below too; accepts a half-built store. */
    void (*close)(struct store *s);
};

struct store {
    const struct store_ops *ops;
    struct store_facts facts; /* at all keys, where ops->facts is NULL; fixed once open */
    char *url;      /* heap; the store's URL without secrets, without a trailing "/" */
    char *advice;   /* a driver's, heap; layers borrow it. What the user should know, a line
                       each; NULL: nothing */
    char *endpoint; /* a driver's, heap; layers borrow it. Where its requests go, as an option,
                       the environment or a profile says; NULL: the URL says it all */
    char *root_id;  /* a driver's, heap; layers borrow it. Tells a folder from another one that
                       has its path later: its inode and when it was made (ns, 0 not known).
                       Of several stores a line for each, with its name behind that. NULL:
                       the URL says it all */
    char *root_key; /* a driver's, heap; layers borrow it. Where the root is among the keys of
                       all whose STORE_STATE_DIR may be the same; NULL: of these one has one
                       root */
    struct store *next;         /* a layer's: the store below, owned; NULL in drivers */
    atomic_ullong hidden_total; /* names met in listings that no path can show */
};

/* Every layer and driver embeds struct upload first; `store` is the one that made it. */
struct upload {
    struct store *store;
    struct store_facts facts; /* at its key; the wrapper fills them */
};

/* How a store is opened: options by name, as `-o name=value` or a config's store object has
 * them
 * ("endpoint", "region", "profile", "path_style", ...). Borrowed for the call. */
struct store_option {
    const char *name;
    const char *value;
};
struct store_config {
    const struct store_option *options;
    size_t n_options;
    unsigned connections; /* how many requests may run at once; 0 takes a default */
    int64_t stalled_ns;   /* without a success for so long it counts as stalled; 0: 5 s */
};

/* The value of an option for a driver, or NULL when it was not given. */
const char *store_config_get(const struct store_config *config, const char *name);

/* Opens the store that `url` names, with the layers trace > retry > limit > stats > driver
 * around it. Asks for the root once: a wrong host, bucket or key pair fails here. A URL of
 * a wrong form is -EINVAL with what was found and what was expected in op->why. *ret is closed
 * with store_close(). */
int store_open(const char *url, const struct store_config *config, struct op *op,
               struct store **ret);

/* Opens the place in which the store that `url` names stages what it writes, as a store: what
 * is tried there happens as it would in the store, and no listing of that has it. Fails where
 * the store takes no new object. -EOPNOTSUPP: the store has no such place; op->why says why, to
 * stand behind "as". No layer is around *ret, which store_close() closes; of the place it
 * leaves what was there before, and what was put and not removed. */
int store_open_trial(const char *url, const struct store_config *config, struct op *op,
                     struct store **ret);
/* Whether stores of that kind may have one. */
bool store_has_trial(const char *url);

/* NULL-terminated names of the options that any driver knows, for "nearest known" messages. */
const char *const *store_option_names(void);

/* The URL without user info and query secrets, heap; for messages. */
char *store_url_redact(const char *url);

/* What holds at `key`, whether anything is there or not; at "" what holds at every key, for
 * what is decided once for a whole store, or where no key is at hand. The same for as long as
 * the store is open; asks nobody, takes no lock and no memory. Any thread. */
void store_facts(struct store *s, const char *key, struct store_facts *ret);
/* Whether it has all these caps at `key`. */
bool store_can(struct store *s, const char *key, unsigned caps);
/* The same of the directory itself at `key`: its marker and attributes may be in another store
 * than a file of that name. */
void store_dir_facts(struct store *s, const char *key, struct store_facts *ret);
bool store_dir_can(struct store *s, const char *key, unsigned caps);

/* Where objects of our own belong that are about the object (`dir`: the directory) at `key`:
 * *ret_state is STORE_STATE_DIR, or a key below it, of the store that has it; *ret_key is what
 * all who have that state call it, whatever part of the bucket they opened. Both heap. Asks
 * nobody. -EOPNOTSUPP: that store has no state, or there is no single store; -ENOMEM. */
int store_state_of(struct store *s, struct op *op, const char *key, bool dir, char **ret_state,
                   char **ret_key);

int store_stat(struct store *s, struct op *op, const char *key, struct object *ret_obj);
int store_stat_dir(struct store *s, struct op *op, const char *key, struct object *ret_obj);
int store_list(struct store *s, struct op *op, const char *prefix, unsigned flags,
               store_visit visit, void *arg);
int store_list_after(struct store *s, struct op *op, const char *prefix, unsigned flags,
                     const char *after, store_visit visit, void *arg);
ssize_t store_read(struct store *s, struct op *op, const char *key, const char *etag,
                   struct sink *sink, size_t len, uint64_t off, struct object *ret_obj);
int store_put(struct store *s, struct op *op, const char *key, const char *etag,
              struct source *src, const struct attrs *attrs, struct object *ret_obj);
int store_upload_begin(struct store *s, struct op *op, const char *key,
                       const struct attrs *attrs, struct upload **ret_up);
int store_upload_part(struct upload *up, struct op *op, unsigned number, struct source *src);
int store_upload_commit(struct upload *up, struct op *op, const char *etag,
                        struct object *ret_obj);
int store_upload_abort(struct upload *up, struct op *op);
void store_upload_detach(struct upload *up);
char *store_upload_token(struct upload *up);
int store_upload_resume(struct store *s, struct op *op, const char *key, const char *token,
                        int (*visit)(void *arg, const struct part *part), void *arg,
                        struct upload **ret_up);
int store_upload_has(struct upload *up, struct op *op, unsigned number, struct source *src);
int store_upload_sweep(struct store *s, struct op *op, const char *key, int64_t since_ns,
                       const char *keep);
int store_copy(struct store *s, struct op *op, const char *from, const char *from_etag,
               const char *to, const char *to_etag, const struct attrs *attrs,
               struct object *ret_obj);
int store_rename(struct store *s, struct op *op, const char *from, const char *to);
int store_remove(struct store *s, struct op *op, const char *const *keys,
                 const char *const *etags, size_t n, int *errs);
int store_mkdir(struct store *s, struct op *op, const char *key, const struct attrs *attrs,
                struct object *ret_obj);
int store_rmdir(struct store *s, struct op *op, const char *key);
int store_set_attributes(struct store *s, struct op *op, const char *key, const char *etag,
                         const struct attrs *attrs, struct object *ret_obj);
/* Accepts NULL. */
void store_close(struct store *s);

/* A stall: for some seconds nothing succeeded and no byte moved, while requests were under way
 * or being tried again: the store hangs, refuses, or can't be reached. */
struct store_stall {
    int64_t ns;       /* for how long by now; 0: there is none */
    bool changes;     /* uploads, removals and the like; else downloads, listings, questions */
    int64_t until_ns; /* CLOCK_MONOTONIC; when the last of those under way is given up;
                         OP_FOREVER: it is tried again until it works */
    int err;          /* of the last failure, negative; 0: no word came at all */
    char why[sizeof(((struct op *)0)->why)]; /* of that; "" without one */
};

/* What the layers counted since the store was opened; zero where a layer is missing. */
struct store_stats {
    uint64_t requests; /* calls that reached the driver */
    uint64_t failures; /* of those, how many failed */
    uint64_t retries;  /* repeats by layer_retry */
    uint64_t reads, puts, parts, lists, stats, removes, copies;
    uint64_t bytes_read, bytes_written;
    uint64_t
        hidden_names; /* names in listings that no path can show, each time they were met */
    struct store_stall stall;
};
void store_get_stats(struct store *s, struct store_stats *ret);

#endif
