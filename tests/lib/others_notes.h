/* A cache over a store in whose state a test keeps the notes and seals of other mounts: what
 * test_cache_hidden.c and test_cache_hidden_asked.c share. Include it once. */
#ifndef RUNFS_TESTS_LIB_OTHERS_NOTES_H
#define RUNFS_TESTS_LIB_OTHERS_NOTES_H

#include "backends/layers/layer.h"
#include "cache/queue/queue.h"
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/driven.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HOUR (3600 * NS_PER_SEC)

#define THEIRS  "00000000000000c1"
#define OTHERS  "00000000000000c2"
#define SESSION "00000000000000aa"

static struct driven d;
static atomic_uint dirs_asked, notes_asked, seals_asked, seals_read; /* of the state */
static atomic_uint listed;                                           /* of all else */
static atomic_int fails; /* an error that each question to the state gets */
static _Atomic(const char *)
    before; /* the listing of this prefix is answered, something comes */
static void (*comes)(void);
static _Atomic(void (*)(void)) behind; /* comes behind a listing of all that is below "r" */

static void count(const struct call *c, const char *rest)
{
    bool lists = c->kind == CALL_LIST;

    if (lists && strcmp(rest, NOTES_DIR) == 0)
        atomic_fetch_add(&dirs_asked, 1);
    else if (lists && path_below(NOTES_DIR, rest))
        atomic_fetch_add(&notes_asked, 1);
    else if (lists && path_below(SEALS_DIR, rest))
        atomic_fetch_add(&seals_asked, 1);
    else if (path_below(SEALS_DIR, rest))
        atomic_fetch_add(&seals_read, 1);
}

static int64_t around(struct layer *l, struct call *c)
{
    const char *rest = path_below(STORE_STATE_DIR, c->key);
    const char *when = atomic_load(&before);

    (void)l;
    if (rest && (c->kind == CALL_LIST || c->kind == CALL_READ)) {
        count(c, rest);
        if (atomic_load(&fails))
            return op_fail(c->op, atomic_load(&fails), "%s %s: refused", call_name(c->kind),
                           c->key);
    } else if (c->kind == CALL_LIST) {
        atomic_fetch_add(&listed, 1);
    }
    if (when && (c->kind == CALL_LIST || c->kind == CALL_STAT) && strcmp(when, c->key) == 0) {
        atomic_store(&before, NULL);
        comes();
    }
    int64_t r = call_next(c);
    void (*then)(void) = atomic_load(&behind);
    if (then && c->kind == CALL_LIST && (c->flags & LIST_RECURSIVE) &&
        strcmp(c->key, "r") == 0) {
        atomic_store(&behind, NULL);
        then();
    }
    return r;
}

static inline void forget_counts(void)
{
    atomic_store(&dirs_asked, 0);
    atomic_store(&notes_asked, 0);
    atomic_store(&seals_asked, 0);
    atomic_store(&seals_read, 0);
    atomic_store(&listed, 0);
}

static void setup(void)
{
    forget_counts();
    atomic_store(&fails, 0);
    atomic_store(&before, NULL);
    atomic_store(&behind, NULL);
    driven_init_like_s3(&d, around);
    d.config.list_timeout_ns = d.config.attr_timeout_ns = HOUR;
}

/* Names and answers are old at once. */
static inline void impatient(void)
{
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 1;
}

static void teardown(void)
{
    driven_release(&d);
}

/* ---- what others do ---- */

static inline void store_loses(const char *key)
{
    struct op op;

    op_init(&op, 5 * NS_PER_SEC);
    ck_assert_int_eq(store_remove(d.store->next, &op, &key, NULL, 1, NULL), 0);
}

/* The key in the state of a note of the unit; static. */
static inline const char *key_of_note(enum note_kind kind, const char *dir, const char *name,
                                      const char *cache_id)
{
    static char key[512];
    auto_free char *unit = note_unit_key(dir, name);
    auto_free char *note = unit ? note_key(unit, kind, cache_id, SESSION) : NULL;

    ck_assert_ptr_nonnull(note);
    (void)snprintf(key, sizeof(key), STORE_STATE_DIR "/%s", note);
    return key;
}

static inline void note(enum note_kind kind, const char *dir, const char *name,
                        const char *cache_id)
{
    driven_store(&d, key_of_note(kind, dir, name, cache_id), "{}", 2);
}

static inline void note_goes(enum note_kind kind, const char *dir, const char *name,
                             const char *cache_id)
{
    store_loses(key_of_note(kind, dir, name, cache_id));
}

enum seal_says {
    SAYS_RIGHT,
    SAYS_OTHER_VERSION,
    SAYS_OTHER_TIME,
    SAYS_OTHER_NAME,
    SAYS_NOTHING
};

/* A seal that names the file `tail` of the unit, as the store has it. */
static inline void seal(const char *dir, const char *name, const char *cache_id,
                        const char *tail, enum seal_says says)
{
    auto_free char *rest = seal_key(dir, name, cache_id);
    char key[512], file[128], tail_key[128];
    struct object obj = {0};
    struct op op;

    op_init(&op, 5 * NS_PER_SEC);
    (void)snprintf(tail_key, sizeof(tail_key), "%s/%s/%s", dir, name, tail);
    ck_assert_int_eq(store_stat(d.store->next, &op, tail_key, &obj), 0);
    (void)snprintf(file, sizeof(file), "%s%s", tail, says == SAYS_OTHER_NAME ? "-2" : "");
    struct seal_body body = {.how = SEAL_DECLARED,
                             .attempt = (char *)(uintptr_t) "",
                             .files = 2,
                             .tail = {.name = file, .mtime_ns = obj.mtime_ns}};
    (void)snprintf(body.tail.etag, sizeof(body.tail.etag), "%s",
                   says == SAYS_OTHER_VERSION ? "another" : obj.etag);
    body.tail.mtime_ns += says == SAYS_OTHER_TIME;
    auto_free char *text = seal_encode(&body);
    ck_assert(rest && text);
    (void)snprintf(key, sizeof(key), STORE_STATE_DIR "/%s", rest);
    driven_store(&d, key, text, says == SAYS_NOTHING ? strlen(text) / 2 : strlen(text));
    object_release(&obj);
}

static inline void file(const char *path)
{
    driven_store(&d, path, path, strlen(path));
}

/* ---- what is shown here ---- */

static inline bool shown(const char *path)
{
    struct stat st;
    int r = driven_stat(&d, path, &st);

    ck_assert_msg(r == 0 || r == -ENOENT, "%s: %d", path, r);
    return r == 0;
}

/* Readdir and lookup say the same. */
static inline void shows(const char *dir, const char *name, bool wanted)
{
    char path[128], below[160];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    (void)snprintf(below, sizeof(below), "%s/x", path);
    ck_assert_msg((driven_listed_ino(&d, dir, name) != 0) == wanted, "%s is%s listed", path,
                  wanted ? " not" : "");
    ck_assert_msg(shown(path) == wanted, "%s is%s found", path, wanted ? " not" : "");
    ck_assert_msg(shown(below) == wanted, "%s is%s found", below, wanted ? " not" : "");
}

#endif
