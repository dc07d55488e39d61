/* The model: trees, and plans of random steps with the tree after each. */
#include "common/mem.h"
#include "tests/model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

uint64_t rng_next(struct rng *r)
{
    uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

unsigned rng_below(struct rng *r, unsigned n)
{
    return (unsigned)(rng_next(r) % n);
}

/* ---- inodes ---- */

static struct inode *inode_new(enum kind kind, uint32_t mode, const void *data, size_t size)
{
    struct inode *i = calloc(1, sizeof(*i) + size + 1);

    if (!i)
        abort();
    i->refs = 1;
    i->kind = kind;
    i->mode = mode;
    i->size = size;
    if (size && data)
        memcpy(i->data, data, size);
    return i;
}

static void inode_put(struct inode *i)
{
    if (i && --i->refs == 0)
        free(i);
}

/* ---- trees ---- */

struct name *tree_at(struct tree *t, const char *path)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->v[i].path, path) == 0)
            return &t->v[i];
    return NULL;
}

static void enter(struct tree *t, const char *path, struct inode *inode)
{
    if (t->n == NAMES_MAX)
        abort();
    struct name *name = &t->v[t->n++];
    memcpy(name->path, path, strnlen(path, sizeof(name->path) - 1) + 1);
    name->path[sizeof(name->path) - 1] = '\0';
    name->inode = inode;
}

int tree_add(struct tree *t, const char *path, enum kind kind, uint32_t mode, const void *data,
             size_t size)
{
    if (t->n == NAMES_MAX || strlen(path) >= PATH_MAX_MODEL)
        return -ENAMETOOLONG;
    enter(t, path, inode_new(kind, mode, data, size));
    return 0;
}

static void drop(struct tree *t, struct name *name)
{
    inode_put(name->inode);
    *name = t->v[--t->n];
}

/* Sharing is kept: what was one inode is one in the copy. */
void tree_copy(struct tree *to, const struct tree *from)
{
    const struct inode *seen[NAMES_MAX + HANDLES];
    struct inode *made[NAMES_MAX + HANDLES];
    size_t n = 0;

    memset(to, 0, sizeof(*to));
    for (size_t i = 0; i < from->n + HANDLES; i++) {
        const struct inode *old = i < from->n ? from->v[i].inode : from->open[i - from->n];
        struct inode *copy = NULL;
        for (size_t k = 0; k < n && old && !copy; k++)
            if (seen[k] == old) {
                copy = made[k];
                copy->refs++;
            }
        if (old && !copy) {
            copy = inode_new(old->kind, old->mode, old->data, old->size);
            copy->here = old->here;
            seen[n] = old;
            made[n++] = copy;
        }
        if (i < from->n)
            enter(to, from->v[i].path, copy);
        else
            to->open[i - from->n] = copy;
    }
}

static void close_all(struct tree *t)
{
    for (size_t i = 0; i < HANDLES; i++) {
        inode_put(t->open[i]);
        t->open[i] = NULL;
    }
}

void tree_close_all(struct tree *t)
{
    close_all(t);
    for (size_t i = t->n; i-- > 0;)
        if (!routed_outlives(&t->v[i]))
            drop(t, &t->v[i]);
}

void tree_release(struct tree *t)
{
    close_all(t);
    while (t->n)
        drop(t, &t->v[t->n - 1]);
}

void tree_split_links(struct tree *t)
{
    for (size_t i = 0; i < t->n; i++) {
        struct inode *old = t->v[i].inode;
        if (old->refs == 1)
            continue;
        t->v[i].inode = inode_new(old->kind, old->mode, old->data, old->size);
        inode_put(old);
    }
}

const char *tree_differs(const struct tree *found, const struct tree *wanted, enum modes modes,
                         bool files_only)
{
    static char text[512];

    for (size_t i = 0; i < wanted->n; i++) {
        const struct name *w = &wanted->v[i];
        if (files_only && w->inode->kind == KIND_DIR)
            continue;
        const struct name *f = tree_at((struct tree *)(uintptr_t)found, w->path);
        bool local =
            w->inode->kind == KIND_DIR && modes != MODES_ALL && routed_is_local(w->path);
        if (!f && local && routed_is_bare(wanted, w->path))
            continue;
        const char *what = !f                                 ? "is missing"
                           : f->inode->kind != w->inode->kind ? "is of another kind"
                           : w->inode->kind != KIND_LINK &&
                                   (modes != MODES_OF_FILES || w->inode->kind == KIND_FILE) &&
                                   !local && f->inode->mode != w->inode->mode
                               ? "has another mode"
                           : w->inode->kind == KIND_DIR       ? NULL
                           : f->inode->size != w->inode->size ? "has another size"
                           : memcmp(f->inode->data, w->inode->data, w->inode->size) != 0
                               ? "has other content"
                               : NULL;
        if (!what)
            continue;
        (void)snprintf(text, sizeof(text),
                       "%s %s (wanted %zu bytes '%.12s' mode %o, found %zu '%.12s' %o)",
                       w->path, what, w->inode->size, w->inode->data, w->inode->mode,
                       f ? f->inode->size : 0, f ? f->inode->data : "", f ? f->inode->mode : 0);
        return text;
    }
    for (size_t i = 0; i < found->n; i++) {
        const struct name *f = &found->v[i];
        if ((files_only && f->inode->kind == KIND_DIR) ||
            tree_at((struct tree *)(uintptr_t)wanted, f->path))
            continue;
        (void)snprintf(text, sizeof(text), "%s is there and should not be ('%.12s')", f->path,
                       f->inode->data);
        return text;
    }
    return NULL;
}

bool tree_links_agree(const struct tree *found, const struct tree *wanted)
{
    for (size_t i = 0; i < wanted->n; i++) {
        const struct name *a = tree_at((struct tree *)(uintptr_t)found, wanted->v[i].path);
        for (size_t k = 0; a && k < i; k++) {
            const struct name *b = tree_at((struct tree *)(uintptr_t)found, wanted->v[k].path);
            bool one = wanted->v[i].inode == wanted->v[k].inode;
            if (b && one != (a->inode->ino == b->inode->ino))
                return false;
        }
    }
    return true;
}

void tree_print(FILE *out, const struct tree *t)
{
    for (size_t i = 0; i < t->n; i++)
        (void)fprintf(out, "    %s%s %o %zu '%.12s'\n", t->v[i].path,
                      t->v[i].inode->kind == KIND_DIR ? "/" : "", t->v[i].inode->mode,
                      t->v[i].inode->size, t->v[i].inode->data);
}

/* ---- plans ---- */

static bool below(const char *dir, const char *path)
{
    size_t len = strlen(dir);

    return strncmp(dir, path, len) == 0 && path[len] == '/';
}

static bool empty(const struct tree *t, const char *dir)
{
    for (size_t i = 0; i < t->n; i++)
        if (below(dir, t->v[i].path))
            return false;
    return true;
}

static struct name *any(struct tree *t, struct rng *rng, enum kind kind)
{
    struct name *of[NAMES_MAX];
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        if (t->v[i].inode->kind == kind)
            of[n++] = &t->v[i];
    return n ? of[rng_below(rng, (unsigned)n)] : NULL;
}

static const char files[] = "12345", folders[] = "degh";

static bool fresh_path(struct tree *t, struct rng *rng, const char *letters, char *path)
{
    struct name *dir = rng_below(rng, 4) ? any(t, rng, KIND_DIR) : NULL;
    char letter = letters[rng_below(rng, (unsigned)strlen(letters))];

    if (stores.routes && rng_below(rng, 2))
        return routed_path(t, rng, letters == folders, letter, path);
    if (dir && strlen(dir->path) > PATH_MAX_MODEL - 40)
        return false;
    int len =
        snprintf(path, PATH_MAX_MODEL, "%s%s%c", dir ? dir->path : "", dir ? "/" : "", letter);
    return len < PATH_MAX_MODEL;
}

static bool plan_open(struct tree *t, struct step *s, struct rng *rng, bool frozen)
{
    unsigned h = rng_below(rng, HANDLES);
    struct name *name = rng_below(rng, 2) ? any(t, rng, KIND_FILE) : NULL;

    if (t->open[h])
        return false;
    if (name)
        (void)snprintf(s->path, sizeof(s->path), "%s", name->path);
    else if (!fresh_path(t, rng, files, s->path))
        return false;
    name = tree_at(t, s->path);
    if ((name && name->inode->kind != KIND_FILE) || (!name && t->n > NAMES_MAX - 4))
        return false;
    s->handle = h;
    /* What is made by appending is what it is at any moment, whether it is closed or not. */
    s->flags = O_RDWR | (name ? 0 : O_CREAT | O_APPEND);
    if (name && (frozen || rng_below(rng, 2)))
        s->flags |= O_TRUNC;
    if (!name)
        enter(t, s->path, inode_new(KIND_FILE, 0644, NULL, 0));
    struct inode *inode = tree_at(t, s->path)->inode;
    if (s->flags & O_TRUNC)
        inode->size = 0;
    inode->here = inode->here || !name || (s->flags & O_TRUNC);
    inode->refs++;
    t->open[h] = inode;
    return true;
}

/* Makes the inode as long as `size`, for all who share it. */
static struct inode *resize(struct tree *t, struct inode *old, size_t size)
{
    struct inode *i =
        inode_new(old->kind, old->mode, old->data, old->size < size ? old->size : size);
    struct inode *grown = realloc(i, sizeof(*i) + size + 1);

    if (!grown)
        abort();
    memset(grown->data + grown->size, 0, size + 1 - grown->size);
    grown->size = size;
    grown->refs = old->refs;
    grown->here = old->here || size == 0;
    for (size_t k = 0; k < t->n; k++)
        if (t->v[k].inode == old)
            t->v[k].inode = grown;
    for (size_t k = 0; k < HANDLES; k++)
        if (t->open[k] == old)
            t->open[k] = grown;
    free(old);
    return grown;
}

static bool plan_write(struct tree *t, struct step *s, struct rng *rng)
{
    s->handle = rng_below(rng, HANDLES);
    struct inode *i = t->open[s->handle];
    if (!i)
        return false;
    s->off = rng_below(rng, 2) ? i->size : rng_below(rng, (unsigned)i->size + 1);
    s->len = 1 + rng_below(rng, rng_below(rng, 4) ? 8 : 3000);
    s->fill = (unsigned char)('A' + rng_below(rng, 58));
    if (s->off + s->len > DATA_MAX)
        return false;
    if (s->off + s->len > i->size)
        i = resize(t, i, s->off + s->len);
    memset(i->data + s->off, s->fill, s->len);
    return true;
}

static bool plan_truncate(struct tree *t, struct step *s, struct rng *rng, bool frozen)
{
    struct name *name = any(t, rng, KIND_FILE);

    if (!name)
        return false;
    (void)snprintf(s->path, sizeof(s->path), "%s", name->path);
    s->len = frozen || rng_below(rng, 3) == 0 ? 0 : rng_below(rng, 2000);
    (void)resize(t, name->inode, s->len);
    return true;
}

static bool plan_unlink(struct tree *t, struct step *s, struct rng *rng)
{
    struct name *name = any(t, rng, rng_below(rng, 5) ? KIND_FILE : KIND_LINK);

    if (!name)
        return false;
    (void)snprintf(s->path, sizeof(s->path), "%s", name->path);
    drop(t, name);
    return true;
}

static void move_below(struct tree *t, const char *from, const char *to)
{
    size_t len = strlen(from);

    for (size_t i = 0; i < t->n; i++) {
        char rest[PATH_MAX_MODEL];
        if (!below(from, t->v[i].path))
            continue;
        (void)snprintf(rest, sizeof(rest), "%s", t->v[i].path + len);
        if (strlen(to) + strlen(rest) >= PATH_MAX_MODEL)
            abort();
        (void)snprintf(t->v[i].path, PATH_MAX_MODEL, "%.80s%.79s", to, rest);
    }
}

static bool plan_rename(struct tree *t, struct step *s, struct rng *rng)
{
    enum kind kind = rng_below(rng, 5) < 2 ? KIND_DIR
                     : rng_below(rng, 8)   ? KIND_FILE
                                           : KIND_LINK;
    struct name *name = any(t, rng, kind);
    struct name *over = rng_below(rng, 5) < 2 ? any(t, rng, kind) : NULL;

    if (!name)
        return false;
    (void)snprintf(s->path, sizeof(s->path), "%s", name->path);
    if (over)
        (void)snprintf(s->to, sizeof(s->to), "%s", over->path);
    else if (!fresh_path(t, rng, kind == KIND_DIR ? folders : files, s->to))
        return false;
    over = tree_at(t, s->to);
    if (strcmp(s->path, s->to) == 0 || below(s->path, s->to) || strlen(s->to) > 70)
        return false;
    if (over && over->inode == name->inode)
        return false; /* names of one file: nothing happens */
    if (over && (over->inode->kind == KIND_DIR) != (kind == KIND_DIR))
        return false;
    if (over && kind == KIND_DIR && (!empty(t, s->to) || below(s->to, s->path)))
        return false;
    if (over)
        drop(t, over);
    name = tree_at(t, s->path);
    (void)snprintf(name->path, PATH_MAX_MODEL, "%s", s->to);
    if (kind == KIND_DIR)
        move_below(t, s->path, s->to);
    return true;
}

static struct name *any_of_a_kind(struct tree *t, struct rng *rng)
{
    return any(t, rng,
               rng_below(rng, 2)   ? KIND_DIR
               : rng_below(rng, 4) ? KIND_FILE
                                   : KIND_LINK);
}

/* Any two, of which neither holds the other. Two files must be here to the last byte. */
static bool plan_exchange(struct tree *t, struct step *s, struct rng *rng, bool frozen)
{
    struct name *a = any_of_a_kind(t, rng), *b = any_of_a_kind(t, rng);

    if (!a || !b || a->inode == b->inode ||
        (frozen && a->inode->kind != KIND_DIR && b->inode->kind != KIND_DIR))
        return false;
    (void)snprintf(s->path, sizeof(s->path), "%s", a->path);
    (void)snprintf(s->to, sizeof(s->to), "%s", b->path);
    if (below(s->path, s->to) || below(s->to, s->path) || strlen(s->path) > 70 ||
        strlen(s->to) > 70)
        return false;
    (void)snprintf(a->path, PATH_MAX_MODEL, "%s", s->to);
    (void)snprintf(b->path, PATH_MAX_MODEL, "%s", s->path);
    move_below(t, s->path, "\n");
    move_below(t, s->to, s->path);
    move_below(t, "\n", s->to);
    return true;
}

static bool plan_link(struct tree *t, struct step *s, struct rng *rng)
{
    struct name *name = any(t, rng, KIND_FILE);

    if (!name || t->n > NAMES_MAX - 4 || !fresh_path(t, rng, files, s->to) || tree_at(t, s->to))
        return false;
    (void)snprintf(s->path, sizeof(s->path), "%s", name->path);
    name->inode->refs++;
    enter(t, s->to, name->inode);
    return true;
}

static bool plan_new(struct tree *t, struct step *s, struct rng *rng, enum kind kind)
{
    const char *letters = kind == KIND_DIR ? folders : files;

    if (t->n > NAMES_MAX - 4 || !fresh_path(t, rng, letters, s->path) || tree_at(t, s->path))
        return false;
    if (kind == KIND_LINK)
        (void)snprintf(s->to, sizeof(s->to), "target%u", rng_below(rng, 100));
    enter(t, s->path, inode_new(kind, kind == KIND_DIR ? 0755 : 0777, s->to, strlen(s->to)));
    return true;
}

static bool plan_rmdir(struct tree *t, struct step *s, struct rng *rng)
{
    struct name *name = any(t, rng, KIND_DIR);

    if (!name || !empty(t, name->path))
        return false;
    (void)snprintf(s->path, sizeof(s->path), "%s", name->path);
    drop(t, name);
    return true;
}

static bool plan_chmod(struct tree *t, struct step *s, struct rng *rng, bool only_time)
{
    struct name *name = any(t, rng, rng_below(rng, 4) || only_time ? KIND_FILE : KIND_DIR);

    if (!name)
        return false;
    (void)snprintf(s->path, sizeof(s->path), "%s", name->path);
    s->mode = 0600 | rng_below(rng, 0100);
    s->len = 1000000000 + rng_below(rng, 100000000);
    if (!only_time)
        name->inode->mode = s->mode;
    return true;
}

/* New files, and names that are moved over one another and away. */
static enum op_kind any_move(struct rng *rng)
{
    static const enum op_kind kinds[] = {
        OP_RENAME, OP_RENAME, OP_RENAME, OP_RENAME, OP_RENAME, OP_RENAME,
        OP_OPEN,   OP_OPEN,   OP_WRITE,  OP_CLOSE,  OP_CLOSE,  OP_CLOSE,
        OP_UNLINK, OP_UNLINK, OP_MKDIR,  OP_MKDIR,  OP_RMDIR,  OP_REST,
    };

    return kinds[rng_below(rng, ARRAY_SIZE(kinds))];
}

static bool plan_step(struct tree *t, struct step *s, struct rng *rng, bool frozen)
{
    s->kind = stores.moves ? any_move(rng) : (enum op_kind)rng_below(rng, OP_KINDS);
    if (stores.routes && rng_below(rng, 3) == 0)
        s->kind = routed_op(rng);
    switch (s->kind) {
    case OP_OPEN:
        return plan_open(t, s, rng, frozen);
    case OP_WRITE:
        return plan_write(t, s, rng);
    case OP_FSYNC:
    case OP_CLOSE:
        s->handle = rng_below(rng, HANDLES);
        if (!t->open[s->handle])
            return false;
        if (s->kind == OP_CLOSE) {
            inode_put(t->open[s->handle]);
            t->open[s->handle] = NULL;
        }
        return true;
    case OP_TRUNCATE:
        return plan_truncate(t, s, rng, frozen);
    case OP_UNLINK:
        return plan_unlink(t, s, rng);
    case OP_RENAME:
        return plan_rename(t, s, rng);
    case OP_EXCHANGE:
        return plan_exchange(t, s, rng, frozen);
    case OP_LINK:
        return !frozen && plan_link(t, s, rng);
    case OP_SYMLINK:
        return plan_new(t, s, rng, KIND_LINK);
    case OP_MKDIR:
        return plan_new(t, s, rng, KIND_DIR);
    case OP_RMDIR:
        return plan_rmdir(t, s, rng);
    case OP_CHMOD:
        return !frozen && plan_chmod(t, s, rng, false);
    case OP_UTIMENS:
        return !frozen && plan_chmod(t, s, rng, true);
    case OP_FLUSH:
        return !frozen && rng_below(rng, 6) == 0;
    case OP_REST:
        s->len = rng_below(rng, frozen ? 2000 : 12000);
        return rng_below(rng, 2) == 0;
    default:
        return false;
    }
}

void plan_make(struct plan *p, const struct tree *from, struct rng *rng, size_t n, bool frozen)
{
    memset(p, 0, sizeof(*p));
    tree_copy(&p->tree[0], from);
    while (p->n < n) {
        struct step *s = &p->step[p->n];
        memset(s, 0, sizeof(*s));
        struct tree *next = &p->tree[p->n + 1];
        tree_copy(next, &p->tree[p->n]);
        bool planned =
            plan_step(next, s, rng, frozen) && routed_step(&p->tree[p->n], s, rng, frozen);
        if (!planned || s->refused)
            tree_release(next);
        if (planned && s->refused)
            tree_copy(next, &p->tree[p->n]);
        p->n += planned;
    }
}

void plan_release(struct plan *p)
{
    for (size_t i = 0; i <= p->n; i++)
        tree_release(&p->tree[i]);
    p->n = 0;
}

void step_print(FILE *out, const struct step *s)
{
    static const char *const names[OP_KINDS] = {
        "open", "write",   "fsync", "close", "truncate", "unlink",  "rename", "exchange",
        "link", "symlink", "mkdir", "rmdir", "chmod",    "utimens", "flush",  "rest"};

    (void)fprintf(out, "  %s %s %s", names[s->kind], s->path, s->to);
    if (s->kind == OP_OPEN)
        (void)fprintf(out, "[%u]%s%s", s->handle, s->flags & O_CREAT ? " creat" : "",
                      s->flags & O_TRUNC ? " trunc" : "");
    else if (s->kind == OP_WRITE)
        (void)fprintf(out, "[%u] %zu+%zu '%c'", s->handle, s->off, s->len, s->fill);
    else if (s->kind == OP_FSYNC || s->kind == OP_CLOSE)
        (void)fprintf(out, "[%u]", s->handle);
    else if (s->kind == OP_TRUNCATE || s->kind == OP_REST)
        (void)fprintf(out, " %zu", s->len);
    else if (s->kind == OP_CHMOD)
        (void)fprintf(out, " %o", s->mode);
    (void)fprintf(out, "%s%s\n", s->crosses ? " across" : "",
                  s->refused == -EPERM   ? " EPERM"
                  : s->refused == -EBUSY ? " EBUSY"
                  : s->refused           ? " EXDEV"
                                         : "");
}
