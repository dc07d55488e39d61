/* What is noted of units, on any store that keeps a state: put, listed, read, removed. */
#ifndef RUNFS_TESTS_LIB_NOTES_STORY_H
#define RUNFS_TESTS_LIB_NOTES_STORY_H

#include "cache/notes/notes.h"
#include "common/buf.h"
#include "common/mem.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STORY_C1 "00000000000000c1"
#define STORY_C2 "00000000000000c2"
#define STORY_ID "00000000000000d0"

#define story_ok(op, expression)                                                               \
    do {                                                                                       \
        int story_r_ = (expression);                                                           \
        ck_assert_msg(story_r_ == 0, "%s: %d %s", #expression, story_r_, (op)->why);           \
    } while (0)

struct story_seen {
    char *names[16];
    size_t n;
};

static inline int story_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static inline void story_add(struct story_seen *seen, char *name)
{
    ck_assert_ptr_nonnull(name);
    ck_assert_uint_lt(seen->n, ARRAY_SIZE(seen->names));
    seen->names[seen->n++] = name;
}

static inline int story_note(void *arg, const struct note *note)
{
    char *name;

    ck_assert_int_ge(asprintf(&name, "%s/%s~%s", note->unit, note_kind_word(note->kind),
                              note->cache_id + NOTE_ID_SIZE - 3),
                     0);
    story_add(arg, name);
    return 0;
}

static inline int story_seal(void *arg, const struct note *note)
{
    char *name;

    ck_assert_int_ge(asprintf(&name, "%s/%s", note->unit, note->cache_id + NOTE_ID_SIZE - 3),
                     0);
    story_add(arg, name);
    return 0;
}

static inline int story_parent(void *arg, const char *parent)
{
    story_add(arg, strdup(parent));
    return 0;
}

/* In the order of their bytes, each with a " " behind it. */
static inline void story_saw(struct story_seen *seen, const char *want)
{
    auto_buf struct buf all = BUF_INIT(4096);

    qsort(seen->names, seen->n, sizeof(*seen->names), story_compare);
    for (size_t i = 0; i < seen->n; i++) {
        ck_assert_int_eq(buf_addf(&all, "%s ", seen->names[i]), 0);
        free(seen->names[i]);
    }
    ck_assert_str_eq(all.len ? all.data : "", want);
    *seen = (struct story_seen){0};
}

static inline void story_put(const struct notes_at *at, struct op *op, enum note_kind kind,
                             const char *cache_id)
{
    const struct note_body body = {
        .node = (char *)"node", .since_s = 7, .attempt = (char *)"a 1"};

    story_ok(op, notes_put(at, op, kind, cache_id, STORY_ID, &body));
}

static inline bool story_has_parent(struct store *s, struct op *op, const struct notes_at *at)
{
    char parent[NOTE_PARENT_SIZE];
    struct story_seen seen = {0};
    bool found = false;

    ck_assert_int_eq(note_parent_part(at->parent, parent), 0);
    story_ok(op, notes_list_parents(s, op, at->state, story_parent, &seen));
    for (size_t i = 0; i < seen.n; i++) {
        found = found || strcmp(seen.names[i], parent) == 0;
        free(seen.names[i]);
    }
    return found;
}

static inline int story_stop(void *arg, const struct note *note)
{
    (void)note;
    ++*(unsigned *)arg;
    return 5;
}

/* Below the directory `dir`, of which nothing is noted, and of which nothing is left. */
static inline void notes_story(struct store *s, struct op *op, const char *dir)
{
    auto_free char *unit_path = path_join(dir, "step 1");
    auto_free char *other_path = path_join(dir, "step-2");
    struct notes_at parent, unit, other;
    struct story_seen seen = {0};
    struct note_body body;
    struct seal_body read_seal;
    const struct seal_body seal = {.how = SEAL_ASSUMED,
                                   .attempt = (char *)"a 1",
                                   .files = 3,
                                   .tail = {(char *)"x/y", "etag", 5}};
    struct note note = {.kind = NOTE_OPEN, .cache_id = STORY_C1, .id = STORY_ID};
    unsigned visits = 0;

    story_ok(op, notes_at_parent(s, op, dir, &parent));
    story_ok(op, notes_at_unit(s, op, unit_path, &unit));
    story_ok(op, notes_at_unit(s, op, other_path, &other));
    ck_assert_str_eq(unit.parent, parent.parent);
    ck_assert_str_eq(unit.name, "step 1");

    ck_assert(!story_has_parent(s, op, &parent));
    story_ok(op, notes_list(&parent, op, story_note, &seen));
    story_ok(op, seals_list(&parent, op, story_seal, &seen));
    story_saw(&seen, "");
    ck_assert_int_eq(notes_read(&unit, op, &note, &body), -ENOENT);
    story_ok(op, notes_remove(&unit, op, NOTE_OPEN, STORY_C1, STORY_ID));

    story_put(&unit, op, NOTE_OPEN, STORY_C1);
    story_put(&unit, op, NOTE_OPEN, STORY_C1); /* its answer was lost */
    story_put(&unit, op, NOTE_LAST, STORY_C1);
    story_put(&unit, op, NOTE_OPEN, STORY_C2);
    story_put(&other, op, NOTE_GONE, STORY_C2);
    ck_assert(story_has_parent(s, op, &parent));
    story_ok(op, notes_list(&unit, op, story_note, &seen));
    story_saw(&seen, "/last~c1 /open~c1 /open~c2 ");
    story_ok(op, notes_list(&parent, op, story_note, &seen));
    story_saw(&seen, "step%201/last~c1 step%201/open~c1 step%201/open~c2 step-2/gone~c2 ");
    ck_assert_int_eq(notes_list(&parent, op, story_stop, &visits), 5);
    ck_assert_uint_eq(visits, 1);
    story_ok(op, notes_read(&unit, op, &note, &body));
    ck_assert_str_eq(body.node, "node");
    ck_assert_str_eq(body.attempt, "a 1");
    ck_assert_int_eq(body.since_s, 7);
    note_body_release(&body);

    story_ok(op, seal_put(&unit, op, STORY_C1, &seal));
    story_ok(op, seals_list(&parent, op, story_seal, &seen));
    story_saw(&seen, "step%201/c1 ");
    story_ok(op, seals_list(&unit, op, story_seal, &seen));
    story_saw(&seen, "/c1 ");
    story_ok(op, seal_read(&unit, op, STORY_C1, &read_seal));
    ck_assert_int_eq(read_seal.how, SEAL_ASSUMED);
    ck_assert_str_eq(read_seal.tail.name, "x/y");
    seal_body_release(&read_seal);
    ck_assert_int_eq(seal_read(&unit, op, STORY_C2, &read_seal), -ENOENT);

    story_ok(op, notes_remove(&unit, op, NOTE_LAST, STORY_C1, STORY_ID));
    story_ok(op, notes_remove(&unit, op, NOTE_OPEN, STORY_C1, STORY_ID));
    story_ok(op, notes_remove(&unit, op, NOTE_OPEN, STORY_C2, STORY_ID));
    story_ok(op, notes_list(&parent, op, story_note, &seen));
    story_saw(&seen, "step-2/gone~c2 ");
    story_ok(op, notes_remove(&other, op, NOTE_GONE, STORY_C2, STORY_ID));
    story_ok(op, seal_remove(&unit, op, STORY_C1));
    ck_assert(!story_has_parent(s, op, &parent));
    story_ok(op, seals_list(&parent, op, story_seal, &seen));
    story_saw(&seen, "");
    notes_at_release(&parent);
    notes_at_release(&unit);
    notes_at_release(&other);
}

#endif
