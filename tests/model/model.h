/* The crash model: random operations on the cache, in a process that is killed at a random
 * moment, beside a model of what a local folder would hold. One operation is one system call,
 * so that at most the one that was running when the process died is in doubt. */
#ifndef RUNFS_TESTS_MODEL_H
#define RUNFS_TESTS_MODEL_H

#include "cache/cache.h"

#include <stdatomic.h>
#include <stdio.h>

#define PATH_MAX_MODEL 160
#define NAMES_MAX      64   /* names in one tree */
#define DATA_MAX       8192 /* bytes of one file */
#define HANDLES        3
#define OPS_MAX        40

enum kind { KIND_FILE, KIND_DIR, KIND_LINK };

/* What several names may share. */
struct inode {
    unsigned refs;
    enum kind kind;
    uint32_t mode;
    size_t size;
    bool here;    /* all of it is, for sure: made or emptied by this process */
    uint64_t ino; /* of one that was read */
    char data[];  /* content, or a symlink's target */
};

struct name {
    char path[PATH_MAX_MODEL];
    struct inode *inode;
};

/* A folder as the model has it: names in no order, and the files that are open. */
struct tree {
    struct name v[NAMES_MAX];
    size_t n;
    struct inode *open[HANDLES];
};

enum op_kind {
    OP_OPEN,  /* into a handle; O_CREAT, O_TRUNC by chance */
    OP_WRITE, /* through a handle */
    OP_FSYNC,
    OP_CLOSE,
    OP_TRUNCATE,
    OP_UNLINK,
    OP_RENAME,
    OP_EXCHANGE,
    OP_LINK,
    OP_SYMLINK,
    OP_MKDIR,
    OP_RMDIR,
    OP_CHMOD,
    OP_UTIMENS,
    OP_FLUSH, /* all of it to the store */
    OP_REST,  /* a moment in which the store catches up */
    OP_KINDS,
};

struct step {
    enum op_kind kind;
    char path[PATH_MAX_MODEL], to[PATH_MAX_MODEL];
    int flags;
    unsigned handle;
    size_t off, len; /* of a write; len: the size of a truncate; microseconds of a rest */
    unsigned char fill;
    uint32_t mode;
    int refused;  /* what it has to answer; 0: it succeeds */
    bool crosses; /* a rename to another store, which takes what is here as a whole */
};

/* What a round does, and what the tree is after each step. */
struct plan {
    struct tree tree[OPS_MAX + 1];
    struct step step[OPS_MAX];
    size_t n;
};

/* Random numbers of a sequence. */
struct rng {
    uint64_t state;
};
uint64_t rng_next(struct rng *r);
unsigned rng_below(struct rng *r, unsigned n);

/* STORED: but of directories that are in no store. */
enum modes { MODES_OF_FILES, MODES_STORED, MODES_ALL };

/* ---- tree.c ---- */
void tree_copy(struct tree *to, const struct tree *from);
void tree_release(struct tree *t);
/* The process ends: files are open no more, and what is in no store by its route is gone. */
void tree_close_all(struct tree *t);
/* Names of one file are files of their own, as on another node. */
void tree_split_links(struct tree *t);
struct name *tree_at(struct tree *t, const char *path);
/* NULL when both hold the same names and content, else what differs (static). Permission
 * bits count as `modes` says. `files_only`: as a store without directories shows it. */
const char *tree_differs(const struct tree *found, const struct tree *wanted, enum modes modes,
                         bool files_only);
/* Whether two names are of one file, as read, where they are of one in `wanted`. */
bool tree_links_agree(const struct tree *found, const struct tree *wanted);
void tree_print(FILE *out, const struct tree *t);
void step_print(FILE *out, const struct step *s);
/* `frozen`: only what needs nothing from the store. */
void plan_make(struct plan *p, const struct tree *from, struct rng *rng, size_t n, bool frozen);
void plan_release(struct plan *p);

/* ---- stores.c: the stores of a sequence ---- */
struct routes;
struct store;
struct stores {
    const char *url;
    char prefix[64];             /* theirs below the URL */
    bool native, errors;         /* renames are one request; changes fail now and then */
    bool moves;                  /* names move, mostly while the store gives no answer */
    const struct routes *routes; /* NULL: one store */
    atomic_int *frozen;          /* requests get no answer as long as this is set */
};
extern struct stores stores;
/* What the cache gets. `parts`: what is larger than a few bytes goes in parts. */
struct store *stores_open(bool parts);
bool stores_are_folders(void);
/* NULL when they hold the files of the tree and no others, else what differs (static). */
const char *stores_differ(const struct tree *wanted);
/* A part of an upload session that is left in a folder's state, or NULL: staged bytes, or a log
 * with more than its head of two lines. Static. */
const char *stores_session_left(void);

/* ---- routed.c: routes to several stores; without any all is answered as for one ---- */
#define ROUTED_STORES 3
extern const char *const routed_names[ROUTED_STORES];
const struct routes *routed_table(uint64_t seed);
/* Adds the directories that are always there. */
void routed_begin(struct tree *t);
/* Whether no store keeps the directory's mode. */
bool routed_is_local(const char *path);
/* Whether only this cache knows the directory: it leads on, and nothing is stored below. */
bool routed_is_bare(const struct tree *t, const char *path);
/* Whether the name is still there after the process: not when it is in no store by its route.
 */
bool routed_outlives(struct name *name);
/* An operation, and a new name along one of the routes (of a directory, or of a file, which
 * gets the letter where the route doesn't name it): they meet where routes part. */
enum op_kind routed_op(struct rng *rng);
bool routed_path(struct tree *t, struct rng *rng, bool dir, char letter, char *path);
/* Fills in what the routes make of the step. False: it is none to take. */
bool routed_step(struct tree *before, struct step *s, struct rng *rng, bool frozen);

/* ---- mounted.c: operations on a cache, each waited for ---- */
struct mounted {
    struct cache *cache;
    struct handle *open[HANDLES];
};
/* 0 or a negative errno. */
int mounted_do(struct mounted *m, const struct step *s);
/* Reads the whole tree through the cache; the caller releases it. */
int mounted_read(struct mounted *m, struct tree *ret, bool with_content);
void mounted_close_all(struct mounted *m);
/* Adds a name that was read. */
int tree_add(struct tree *t, const char *path, enum kind kind, uint32_t mode, const void *data,
             size_t size);

#endif
