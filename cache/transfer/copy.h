/* What the files of a rename at the store share. */
#ifndef RUNFS_CACHE_TRANSFER_COPY_H
#define RUNFS_CACHE_TRANSFER_COPY_H

#include "cache/mirror/journal.h"
#include "cache/transfer/transfer_impl.h"

/* Nothing was done: something is to be removed first. */
#define COPY_WAITS 1

/* How many objects of one directory are copied at once. */
#define COPIES_AT_ONCE 16

/* What becomes of an object in a directory that is renamed. */
enum item_fate {
    ITEM_COPIED, /* and then removed under its old name */
    ITEM_OUT, /* removed without a copy: written anew under its new name, or a directory without
                 one */
    ITEM_LEFT, /* neither: it is gone, or somebody else's, or an earlier intention removes it */
};

/* One object of a directory that is copied. */
struct item {
    char *from, *to;       /* paths, as the intent's */
    char *etag, *new_etag; /* the version that is copied or removed; that of the copy */
    enum item_fate fate;
    bool is_dir;
    bool own; /* this cache put what was copied */
};

/* Files whose records changed, each referenced. */
struct copy_readers {
    struct node **v;
    size_t n, cap;
};

struct copying {
    struct task task;
    struct cache *cache;
    struct intent *intent;
    char *from, *to; /* the intent's, constant while it runs */
    bool dir;
    unsigned volume; /* which store it is in */
    atomic_uint
        refuser;    /* which must be it that refuses it; 0: which of several is not known */
    bool own;       /* a file's source was replaced by a later version of this cache */
    struct op *op;  /* of the listing */
    uint64_t bytes; /* that what it tells of takes */
    struct item *v;
    size_t n, cap;
    struct each each;         /* copies the items */
    struct journal_row *told; /* of later intentions: which version they mean now */
    size_t n_told, told_cap;
};

/* ---- copy_follow.c ---- */
/* `path` with the prefix `from` replaced by `to`, heap; NULL when it is not below, or no
 * memory. */
char *copy_moved_path(const char *path, const char *from, const char *to);
/* The source of an entry that stood at or below `from` is now at or below `to`. */
void copy_source_locked(struct cache *c, struct entry *e, struct place from, struct place to)
    REQUIRES(cache_mutex);
/* Only entries that some rename of the list moved have a source of their own. Records of the
 * old place alone follow; those files are added to *changed, for copy_write_readers(). */
void copy_sources_locked(struct cache *c, struct intent *done, struct copy_readers *changed)
    REQUIRES(cache_mutex);
/* An open file that has no name any more, and read what was copied, reads the copy. One that
 * reads another version does not: its own is where it was, or gone. */
void copy_reader_follows(struct file *f, const char *to, const char *copied_etag,
                         const char *new_etag) REQUIRES(cache_mutex);
/* The same of all that read what was moved. */
void copy_readers_follow_locked(struct copying *k, const char *copied_etag,
                                const char *new_etag) REQUIRES(cache_mutex);
/* The live entry that reads from `from` and that the intention brings to `to`, or NULL; later
 * ones may have moved it on. */
struct node *copy_reader_locked(struct cache *c, struct intent *i, const char *from,
                                const char *to, struct entry **ret_entry) REQUIRES(cache_mutex);
/* Writes the records of the node's stamp and drops the caller's reference. A failure is
 * ignored. */
void copy_write_keys(struct cache *c, struct node *n) EXCLUDES(cache_mutex);
/* The same of all of them; the list is empty then. */
void copy_write_readers(struct cache *c, struct copy_readers *l) EXCLUDES(cache_mutex);
/* Records in the stamp what the store has at the new place, beside the old one: whether the
 * row is gone or not, one of them holds. `new_etag` NULL: nobody knows its version. */
void copy_note_version(struct copying *k, const char *from, const char *to,
                       const char *copied_etag, const char *new_etag, bool own)
    EXCLUDES(cache_mutex);
/* copy_note_version() in memory, once the row is gone, and without the record of the old place.
 * The node is returned, referenced, when its records are to be written. */
struct node *copy_take_version_locked(struct copying *k, const char *from, const char *to,
                                      const char *copied_etag, const char *new_etag, bool own)
    REQUIRES(cache_mutex);

/* ---- copy.c ---- */
/* Whether the live name is uploaded before the old name is removed at the store: that waits
 * for it. What was closed later, or is open, comes after it, and is copied first. */
bool copy_is_owed(const struct copying *k, const struct node *n, const struct entry *e)
    REQUIRES(cache_mutex);
/* Nothing was copied: what the store has under the new name is not the version that was
 * renamed, and the upload asks for it. */
void copy_forget_version_locked(struct copying *k, const char *from, const char *to)
    REQUIRES(cache_mutex);
/* The store's own rename. -ENOENT: it has nothing at `from`, which is asked for: some answer so
 * of a new name that they don't take. */
int copy_rename(struct cache *c, struct op *op, struct place from, struct place to);
/* Asks which version is there, and whether this cache put it, by an upload that ended when the
 * name had been given away. */
int copy_ask_version(struct cache *c, struct op *op, struct place at, char **etag, bool *own);
/* Where the store is prompt: sends the attributes that the thing owes, if it owes
 * nothing else, to its old place. They may have been sent there before, without an answer, and
 * have made another version of it: only the store can tell that one from somebody else's.
 * Nothing is sent where `listed`, which may be NULL, is the version that is known. 0, also
 * where somebody else's is there, or a negative errno. */
int copy_repeat_attributes(struct copying *k, struct op *op, const char *from, const char *to,
                           const char *listed);
/* Whether the removal takes away what is there, as far as that is known. */
bool copy_is_taken(const struct intent *removal, const char *there, bool own)
    REQUIRES(cache_mutex);
/* Says that the cache itself failed, whatever op->why said before. */
int copy_not_noted(struct op *op, const char *from, const char *to, int err);
/* Copies what has the name now. *etag is the version that is expected there ("" any), and then
 * the one that was copied ("" where the store keeps none): that one alone may be removed. */
int copy_latest(struct cache *c, struct op *op, struct place from, char **etag, bool *own,
                struct place to, struct object *obj);

/* ---- copy_join.c ---- */
/* The next rename of the thing, or its removal, gives up a name that the store refuses: the two
 * become one, which does not pass through that name. Not if the store has, or may get,
 * something there, which would be replaced, or removed. */
int copy_give_up_name(struct copying *k, struct op *op, bool *ret)
    EXCLUDES(cache_ns, cache_mutex);
/* Notes a refused name as refusal.c has it: refused again after another name was taken. */
void copy_note_refusal_locked(struct copying *k, int err) REQUIRES(cache_mutex);

/* ---- copy_over.c ---- */
/* Whether the rename of a file, which an earlier mount left, would replace what another node
 * put there: not what it was to replace, nor what this cache put. `renamed` is the version of
 * the file. Asks the store, of such renames alone. 0 or a negative errno. */
int copy_finds_theirs(struct copying *k, struct op *op, const char *renamed, bool *ret);
/* Then the file, which is uploaded to the new name, replaces what the rename was to replace. */
void copy_expect_over_locked(struct copying *k) REQUIRES(cache_mutex);
/* Then what came to the new name instead of the file replaces that. */
void copy_over_goes_on_locked(struct copying *k) REQUIRES(cache_mutex);
/* Then both names are as the store has them, which log and status say. */
void copy_leave_locked(struct copying *k) REQUIRES(cache_mutex);

/* ---- copy_told.c ---- */
/* A later intention that takes away from `to` the version that was copied, or what this cache
 * put, means the copy: its origin is that of the old name. So does one that takes it on from
 * its next place, and the rename of a file that replaces it. In memory, once the journal has
 * it; k->told, which is to be empty before, are the rows of those that came since it was
 * written. INTENT_ANY: nothing was copied, and a removal means whatever is there. */
void copy_tell_next_locked(struct copying *k, const char *to, const char *copied_etag,
                           const char *new_etag, bool own) REQUIRES(cache_mutex);
/* The same for the journal: k->told are its rows, which keep `new_etag`. 0 or -ENOMEM. */
int copy_gather_told(struct copying *k, const char *to, const char *copied_etag,
                     const char *new_etag, bool own) EXCLUDES(cache_mutex);
/* Writes k->told, after copy_tell_next_locked(). */
void copy_write_told(struct copying *k) EXCLUDES(cache_mutex);
/* Whether the next intention that takes away what is brought to `to` names just this version.
 */
bool copy_is_meant_locked(const struct copying *k, const char *to, const char *etag)
    REQUIRES(cache_mutex);
/* Whether a later intention takes away from `to` another version than that one, which it means
 * nevertheless if this cache put it. */
bool copy_is_meant_otherwise(struct copying *k, const char *to, const char *etag)
    EXCLUDES(cache_mutex);
/* Of a file that has no name here any more: whether something else goes where the rename brings
 * it, and replaces it there. Not where a removal comes first that says which version it means;
 * nor where a directory's rename passes what is written anew by. */
bool copy_is_replaced_locked(const struct copying *k) REQUIRES(cache_mutex);

/* ---- copy_tree.c ---- */
/* Frees what the items hold; their array stays for the next ones. */
void copy_items_release(struct copying *k);
/* Renames a directory at the store: natively, or by copies. 0, COPY_WAITS or a negative errno
 * with op->why. Blocks, holds no lock. */
int copy_dir(struct copying *k, struct op *op);

#endif
