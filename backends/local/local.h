/* What the files of the local driver share: a folder as a store.
 *
 * Every path is resolved with openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS) below the root's
 * descriptor: a symlink in the folder is an object, never a way out. New content is written to
 * a staged file in the state folder and renamed into place. Functions return 0 or a negative
 * errno and, where they take an op, fill op->why. */
#ifndef RUNFS_BACKENDS_LOCAL_LOCAL_H
#define RUNFS_BACKENDS_LOCAL_LOCAL_H

#include "backends/store.h"
#include "common/lock.h"

#include <assert.h>

/* The state folder's name inside the root, where the root has no usable sibling. */
#define LOCAL_STATE_NAME STORE_STATE_DIR
#define LOCAL_NEW_DIR    0755
#define LOCAL_CHUNK      (1 << 20) /* bytes between two looks at the deadline */

struct local_store {
    struct store base;
    char *root;        /* constant; absolute, no trailing "/" */
    int root_fd;       /* constant; a directory */
    char *boot_id;     /* constant; of this boot of the machine */
    struct mutex lock; /* guards the making of the state folder */
    int state_fd;      /* -1 until something is staged; constant then, with another folder
                        * behind it when its own was removed; lock held to set it */
    bool is_trial;     /* constant; of what is in its place it makes nothing again */
    char *own;         /* constant; a trial's folder, which goes with it (trial.c), or NULL */
    int stateless; /* constant; why there is no STORE_STATE, as local_no_place() takes it, or 0
                    */
};

/* ---- local.c ---- */

struct local_store *local_of(struct store *s);
/* The path in a URL, or NULL when the form is wrong. No percent-decoding: names are bytes. */
const char *local_path_of(const char *url);
/* What is said then, and of a store that would be "/": -EINVAL. */
int local_no_path(const char *url, struct op *op);
int local_is_machine(struct op *op);

/* ---- path.c ---- */

/* How often a call starts again because a parent that it had opened, or made, was removed
 * before its name was in it: a directory that comes to be empty may go at any time. */
#define LOCAL_RACES_TOLERATED 8

/* The negative errno of a call on the folder: of what NFS has no handle for any more nothing is
 * known (-ENXIO); -ESTALE would be another version. */
int local_errno(int err);
/* Opens `key` below the root, or where objects of our own are; never follows a symlink. */
int local_openat(const struct local_store *l, const char *key, int flags);
/* A readable descriptor of the key's parent directory; with `create`, missing ones are made.
 * The name in it is path_basename(key), or "." for the root. */
int local_open_parent(const struct local_store *l, const char *key, bool create, int *ret_fd);
/* The name that belongs to local_open_parent(). */
const char *local_name(const char *key);
/* Fills op->why and tells a missing object from a missing root (-ENXIO). */
int local_explain(const struct local_store *l, struct op *op, const char *what, const char *key,
                  int err);
/* The same; inline, so that analyzers see that a failure stays one. */
static inline int local_fail(const struct local_store *l, struct op *op, const char *what,
                             const char *key, int err)
{
    int r = local_explain(l, op, what, key, err);

    assert(r < 0);
    return r;
}

/* STORE_STATE_DIR and what is below it: no part of the root, whether the state folder is inside
 * of that or not. */
bool local_is_reserved(const char *key);
/* Whether nothing can be there: the directory of all objects of our own is none of them, and
 * where there is no place for them no key is one. */
bool local_is_nobodys(const struct local_store *l, const char *key);
/* Removes the directories above a key of STORE_STATE_DIR that are empty: they exist by what is
 * in them. Under local_lock(), alone, so that none goes that a put has just made. */
int local_prune(const struct local_store *l, const char *key);
/* Whether the open directory was removed. */
bool local_is_removed(int fd);
/* The same of the store's folder. */
bool local_root_is_gone(const struct local_store *l);
/* What stands at `key`, as local_describe(). */
int local_describe_key(const struct local_store *l, const char *key, struct object *ret);

/* ---- attrs.c ---- */

/* What stands at dirfd/name, with its attributes. */
int local_describe(int dirfd, const char *name, struct object *ret);
/* Only size, times and version, of an open file. */
int local_describe_fd(int fd, struct object *ret);
/* Whether `there` is version `etag` with this time set: nothing else of it is another. */
bool local_is_version_at(const char *there, const char *etag, int64_t mtime_ns);
/* Sets owner, permissions, xattrs and, last, the time of dirfd/name; what `attrs` (may be NULL)
 * does not say of a new thing is 0644, or 0755 for a directory. */
int local_apply_attrs(int dirfd, const char *name, const struct attrs *attrs, bool is_new);
/* Notes who put dirfd/name, if `attrs` (may be NULL) say so, for the time that it has now. What
 * can't have the note goes without. */
void local_apply_origin(int dirfd, const char *name, const struct attrs *attrs);
/* The same of who is noted there, after the time has changed. */
void local_renew_origin(int dirfd, const char *name);
/* Whether the filesystem of this directory keeps such notes. */
bool local_has_origins(int dirfd);
/* Whether the filesystem of this directory keeps ACLs. */
bool local_has_acls(int dirfd);
/* The time alone. */
int local_apply_mtime(int dirfd, const char *name, const struct attrs *attrs);

/* ---- state.c: objects of our own ---- */

/* Why STORE_STATE_DIR has no place: 0 when it has one, or a negative errno for
 * local_no_place(). Makes nothing. */
int local_state_look(const struct local_store *l);
/* The directory of the keys below STORE_STATE_DIR, opened; with `make` it comes into being.
 * Each call opens it anew: what the folder is now counts. -ENOENT: there is none yet; -EPERM:
 * it is not to be trusted. */
int local_state_open(const struct local_store *l, bool make);
/* A directory of it that was just made belongs to those who use the one that it is in. */
int local_state_share(int parent, const char *name);
/* -EPERM, and why. */
int local_no_place(const struct local_store *l, struct op *op, int err);
/* The option state_prefix said "off". */
#define LOCAL_STATE_OFF (-ECANCELED)

/* ---- stage.c ---- */

/* Not -EPERM, which lets another place be taken. */
#define LOCAL_UNTRUSTED (-EKEYREJECTED)

/* Opens the folder dirfd/name, or makes it, only this user's. A symlink there is not followed.
 * LOCAL_UNTRUSTED: more people may change what is in it than may change the store. */
int local_open_folder(const struct local_store *l, int dirfd, const char *name, bool make);
/* The same of the root's sibling "<root>.runfs". -EXDEV: it is, or would be, on another disk.
 */
int local_open_sibling(const struct local_store *l, bool make);
/* The state folder's descriptor, the store's; made when it is missing, or was removed. -ENXIO:
 * what it is beside can't be found. */
int local_state(struct local_store *l, struct op *op, int *ret_fd);
/* As local_fail(), of a call on what is staged: it may be gone. Then -ENXIO: -ENOENT would say
 * that of the key. */
int local_stage_fail(const struct local_store *l, struct op *op, const char *what,
                     const char *key, int err);
/* A place to stage in for a trial, which becomes the store's state folder: the one that is
 * there, else a folder of the trial's own beside the root, which *ret_own (heap, otherwise
 * untouched) names and local_state_apart_end() removes. -EOPNOTSUPP: nothing can be made beside
 * the root, and LOCAL_STATE_NAME is not in it. */
int local_state_apart(struct local_store *l, struct op *op, char **ret_own);
/* Removes the trial's own folder, if nothing but its lock is left in it. */
void local_state_apart_end(int state_fd, const char *own);
/* A random name that begins with `kind`; heap. NULL without memory or randomness. */
char *local_stage_name(const char *kind);
/* Makes the empty staged file, symlink or special file `name` of the type that attrs say;
 * *ret_fd is its descriptor, -1 for what is not a regular file. */
int local_stage_make(int state_fd, const char *name, const struct attrs *attrs, int *ret_fd);
/* Waits for the store's lock between processes (released by closing *ret_fd): alone, or among
 * others that are not alone. */
int local_lock(struct local_store *l, struct op *op, bool alone, int *ret_fd);
/* Moves the staged file over `key` if that is version `etag` (as in store_put()), and waits for
 * the disk. The staged content must have been synced. -ENOENT: there is none. */
int local_publish(struct local_store *l, struct op *op, const char *name, const char *key,
                  const char *etag);
/* -ESTALE when `key` is not version `etag` (as in store_put()). Under local_lock(). */
int local_check_version(const struct local_store *l, struct op *op, const char *key,
                        const char *etag);
/* fsync() of a directory, or of another inode. */
int local_sync_dir(int fd);

/* ---- first.c ---- */

/* Moves the staged file `name` to a key whose directory is missing, with that and those above
 * it, in one step. *ret_parent: the key's parent, still to be synced. -EEXIST: nothing was
 * done, as the directory is there by now, or can't be made elsewhere and moved. */
int local_move_as_first(const struct local_store *l, int state_fd, const char *name,
                        const char *key, int *ret_parent);
/* Removes something staged, and what is in it. */
void local_stage_remove(int dirfd, const char *name);

/* ---- read.c: stat, list, read ---- */

/* Opens a regular file for reading; first as a mere place, so that no fifo or device is ever
 * opened. -ENOENT for a directory; *ret_fd is -1 for what has no content. */
int local_open_content(const struct local_store *l, const char *key, int *ret_fd);
int local_stat(struct store *s, struct op *op, const char *key, struct object *ret_obj);
int local_list(struct store *s, struct op *op, const char *prefix, unsigned flags,
               const char *after, store_visit visit, void *arg);
ssize_t local_read(struct store *s, struct op *op, const char *key, const char *etag,
                   struct sink *sink, size_t len, uint64_t off, struct object *ret_obj);

/* ---- write.c: put, copy ---- */

int local_put(struct store *s, struct op *op, const char *key, const char *etag,
              struct source *src, const struct attrs *attrs, struct object *ret_obj);
int local_copy(struct store *s, struct op *op, const char *from, const char *from_etag,
               const char *to, const char *to_etag, const struct attrs *attrs,
               struct object *ret_obj);

/* ---- names.c ---- */

int local_rename(struct store *s, struct op *op, const char *from, const char *to);
int local_remove(struct store *s, struct op *op, const char *const *keys,
                 const char *const *etags, size_t n, int *errs);
int local_mkdir(struct store *s, struct op *op, const char *key, const struct attrs *attrs,
                struct object *ret_obj);
int local_rmdir(struct store *s, struct op *op, const char *key);
int local_set_attributes(struct store *s, struct op *op, const char *key, const char *etag,
                         const struct attrs *attrs, struct object *ret_obj);

/* ---- upload.c: parts ---- */

int local_upload_begin(struct store *s, struct op *op, const char *key,
                       const struct attrs *attrs, struct upload **ret_up);
int local_upload_part(struct upload *up, struct op *op, unsigned number, struct source *src);
int local_upload_commit(struct upload *up, struct op *op, const char *etag,
                        struct object *ret_obj);
int local_upload_abort(struct upload *up, struct op *op);
void local_upload_detach(struct upload *up);
char *local_upload_token(struct upload *up);
int local_upload_resume(struct store *s, struct op *op, const char *key, const char *token,
                        int (*visit)(void *arg, const struct part *part), void *arg,
                        struct upload **ret_up);
int local_upload_has(struct upload *base, struct op *op, unsigned number, struct source *src);
/* Writes all of `src` into fd from `off`. */
int local_write_source(int fd, struct op *op, struct source *src, uint64_t off);

#endif
