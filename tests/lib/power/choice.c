/* What of a record a power cut may leave; see disk.h.
 *
 * Two promises that disks' filesystems make are tried. A strict one brings with any sync all
 * names, sizes and attributes that were changed before it (ext4, xfs); a loose one only those
 * of the file or directory, and what leads to it (what POSIX and the kernel's filesystems have
 * in common). Neither shows an operation without what it builds on, and no data without the
 * time of their write (docs/promises.md says what that means). */
#include "tests/lib/power/disk.h"

#include "common/mem.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 4096

/* ---- chance ---- */

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed >> 11;
}

static bool heads(uint64_t *seed)
{
    return next_random(seed) & 1;
}

/* ---- what an operation builds on ---- */

static bool is_of_inode(const struct disk_op *op)
{
    return op->kind >= DISK_WRITE && op->kind <= DISK_TIMES;
}

static bool is_of_name(const struct disk_op *op)
{
    return op->kind <= DISK_REMOVE;
}

static bool is_name(const char *name, unsigned dir, const char *other, unsigned other_dir)
{
    return name && other && dir == other_dir && strcmp(name, other) == 0;
}

/* Whether both change one entry of a directory. */
static bool share_a_name(const struct disk_op *a, const struct disk_op *b)
{
    return is_name(a->name, a->dir, b->name, b->dir) ||
           is_name(a->name, a->dir, b->to_name, b->to_dir) ||
           is_name(a->to_name, a->to_dir, b->name, b->dir) ||
           is_name(a->to_name, a->to_dir, b->to_name, b->to_dir);
}

static bool is_in(const struct disk_op *op, unsigned dir)
{
    return is_of_name(op) && dir && (op->dir == dir || op->to_dir == dir);
}

/* Whether `op` can't be on the disk without the earlier `before`. */
static bool builds_on(const struct disk_op *op, const struct disk_op *before)
{
    if (before->kind == DISK_MAKE &&
        (before->id == op->id || before->id == op->dir || before->id == op->to_dir))
        return true;
    if (is_of_inode(op))
        return is_of_inode(before) && before->id == op->id;
    if (!is_of_name(op) || !is_of_name(before))
        return false;
    bool empties = op->is_dir && (op->kind == DISK_REMOVE || op->kind == DISK_RENAME);
    return share_a_name(op, before) ||
           (empties && is_in(before, op->kind == DISK_REMOVE ? op->id : op->other));
}

/* ---- what is there for sure ---- */

struct sure {
    const struct disk_record *r;
    bool *op, *data; /* of each operation: it is there; and its data are */
};

static void make_sure(struct sure *s, size_t i)
{
    if (s->op[i])
        return;
    s->op[i] = true;
    for (size_t j = 0; j < i; j++)
        if (builds_on(&s->r->op[i], &s->r->op[j]))
            make_sure(s, j);
}

/* What leads to a directory, or a file, at that time. */
static void make_path_sure(struct sure *s, unsigned id, size_t at)
{
    unsigned parent = 0;

    for (size_t i = at; id > DISK_TOP && i-- > 0;) {
        const struct disk_op *op = &s->r->op[i];
        bool named = is_of_name(op) && (op->id == id || (op->exchange && op->other == id));
        if (!named)
            continue;
        make_sure(s, i);
        if (!parent)
            parent = op->exchange && op->other == id ? op->dir
                     : op->to_dir                    ? op->to_dir
                                                     : op->dir;
    }
    if (parent > DISK_TOP)
        make_path_sure(s, parent, at);
}

/* A sync of one inode, by a filesystem that keeps no more than it must. */
static void sync_loose(struct sure *s, unsigned id, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        const struct disk_op *op = &s->r->op[i];
        if (is_of_inode(op) && op->id == id) {
            make_sure(s, i);
            s->data[i] = true;
        }
        if (is_in(op, id))
            make_sure(s, i);
    }
    make_path_sure(s, id, at);
}

static void sync_strict(struct sure *s, unsigned id, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        s->op[i] = true;
        s->data[i] = s->data[i] || !id || s->r->op[i].id == id;
    }
}

static struct sure find_sure(const struct disk_record *r, size_t at, bool loose)
{
    struct sure s = {r, calloc(at + 1, sizeof(bool)), calloc(at + 1, sizeof(bool))};

    ck_assert(s.op && s.data);
    for (size_t i = 0; i < at; i++) {
        const struct disk_op *op = &r->op[i];
        if (i == r->begun || op->kind == DISK_SYNC_ALL)
            sync_strict(&s, 0, i);
        else if (op->kind == DISK_SYNC && loose)
            sync_loose(&s, op->id, i);
        else if (op->kind == DISK_SYNC)
            sync_strict(&s, op->id, i);
    }
    if (at == r->begun)
        sync_strict(&s, 0, at);
    return s;
}

/* ---- the choice ---- */

static struct disk_cut cut_new(size_t at)
{
    struct disk_cut cut = {at, calloc(at + 1, 1), calloc(at + 1, sizeof(size_t))};

    ck_assert(cut.kept && cut.part);
    return cut;
}

static void choose_data(const struct disk_record *r, struct disk_cut *cut, size_t i,
                        uint64_t *seed)
{
    size_t blocks = r->op[i].len / BLOCK;

    cut->kept[i] = DISK_SIZE_ONLY + next_random(seed) % 3;
    if (cut->kept[i] != DISK_PART)
        return;
    cut->part[i] = heads(seed) ? next_random(seed) % (r->op[i].len + 1)
                               : (blocks ? next_random(seed) % (blocks + 1) : 0) * BLOCK;
}

/* Whether all that the operation builds on is there. */
static bool stands(const struct disk_record *r, const struct disk_cut *cut, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (!cut->kept[j] && builds_on(&r->op[i], &r->op[j]))
            return false;
    return true;
}

static bool is_database(const struct disk_record *r, unsigned id)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->op[i].kind == DISK_MAKE && r->op[i].id == id)
            return r->op[i].name && strncmp(r->op[i].name, "state.db", 8) == 0;
    return false;
}

/* Whether the data of a write can be on the disk before names, sizes and times are: over what
 * the file has already. Only SQLite's files have nothing that goes by their times. */
static bool may_be_early(const struct disk_record *r, const struct disk_cut *cut, size_t i)
{
    const struct disk_op *op = &r->op[i];
    uint64_t size = 0;

    if (op->kind != DISK_WRITE || !is_database(r, op->id))
        return false;
    for (size_t j = 0; j < i; j++)
        if (cut->kept[j] && r->op[j].id == op->id)
            size = r->op[j].size;
    return op->off + op->len <= size;
}

static void keep_one(const struct disk_record *r, const struct sure *s, struct disk_cut *cut,
                     size_t i, enum disk_way way, uint64_t *seed)
{
    if (r->op[i].kind != DISK_WRITE || s->data[i] || way == DISK_WAY_PREFIX)
        cut->kept[i] = DISK_ALL;
    else if (way == DISK_WAY_TORN || way == DISK_WAY_REORDERED)
        choose_data(r, cut, i, seed);
    else
        cut->kept[i] = DISK_SIZE_ONLY;
}

bool disk_way_is_loose(enum disk_way way)
{
    return way == DISK_WAY_BARE || way == DISK_WAY_REORDERED;
}

struct disk_cut disk_choose(const struct disk_record *r, size_t at, enum disk_way way,
                            uint64_t seed)
{
    bool loose = disk_way_is_loose(way);
    struct sure s = find_sure(r, at, loose);
    struct disk_cut cut = cut_new(at);
    size_t last = 0, until = at;

    seed = seed * 2654435761u + at * 40503u + (uint64_t)way + 1;
    for (unsigned i = 0; i < 8; i++)
        (void)next_random(&seed);
    for (size_t i = 0; i < at; i++)
        last = s.op[i] ? i + 1 : last;
    if (way == DISK_WAY_PREFIX || (way == DISK_WAY_TORN && heads(&seed)))
        until = last + next_random(&seed) % (at - last + 1);
    if (way == DISK_WAY_DROPPED || way == DISK_WAY_BARE || way == DISK_WAY_EARLY)
        until = 0;
    for (size_t i = 0; i < at; i++) {
        bool there = s.op[i];
        if (!there && i < until)
            there = !loose || (heads(&seed) && stands(r, &cut, i));
        if (there)
            keep_one(r, &s, &cut, i, way, &seed);
        else if (way == DISK_WAY_EARLY && next_random(&seed) % 4 && may_be_early(r, &cut, i))
            cut.kept[i] = DISK_ALL;
    }
    free(s.op);
    free(s.data);
    return cut;
}

struct disk_cut disk_choose_all(const struct disk_record *r, size_t at)
{
    struct disk_cut cut = cut_new(at);

    (void)r;
    memset(cut.kept, DISK_ALL, at);
    return cut;
}

void disk_cut_free(struct disk_cut *cut)
{
    free(cut->kept);
    free(cut->part);
    *cut = (struct disk_cut){.at = 0};
}

void disk_cut_tell(const struct disk_record *r, const struct disk_cut *cut)
{
    static const char *const kinds[] = {"make",  "link",  "rename", "remove",   "write", "size",
                                        "xattr", "times", "sync",   "sync all", "mark"};
    static const char *const kept[] = {"lost", "without data", "in part", ""};

    for (size_t i = r->begun; i < cut->at; i++) {
        const struct disk_op *op = &r->op[i];
        (void)fprintf(stderr, "%zu %s %u", i, kinds[op->kind], op->id);
        if (op->name)
            (void)fprintf(stderr, " %u/%s", op->dir, op->name);
        if (op->to_name)
            (void)fprintf(stderr, " to %u/%s", op->to_dir, op->to_name);
        if (op->kind == DISK_MARK)
            (void)fprintf(stderr, " %d %d %d", op->mark[0], op->mark[1], op->mark[2]);
        if (op->kind == DISK_XATTR && op->data)
            (void)fprintf(stderr, " %.*s", (int)op->len, op->data);
        else if (op->data)
            (void)fprintf(stderr, " %zu at %llu", op->len, (unsigned long long)op->off);
        (void)fprintf(stderr, " %s\n", kept[cut->kept[i]]);
    }
}

const char *disk_way_name(enum disk_way way)
{
    static const char *const names[DISK_WAYS] = {"dropped", "bare",  "prefix",   "zeros",
                                                 "torn",    "early", "reordered"};

    return names[way];
}
