/* Units that other mounts left unfinished, adopted or dropped: the others are a test's own
 * objects in the state of the store. */
#include "cache/cache.h"
#include "cache/queue/queue.h"
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define THEIRS  "00000000000000c1"
#define SESSION "00000000000000aa"

static const struct routed_row rows[] = {
    {.path = "a/**", .key = "k/**", .leaf = 0, .policy = 1},
    {.path = "**", .leaf = 1},
};

static struct routed_world w;
static char removed[4096];     /* from the first store, each key behind a space */
static atomic_bool comes_back; /* the owner does, when somebody puts a `take` */
static atomic_bool breaks_off; /* who gave the command does, when its deed begins: */
static atomic_bool broken_off;
static atomic_bool beats;

static void beat(void)
{
    static unsigned n;
    char text[128];

    (void)snprintf(text, sizeof(text),
                   "{\"node\":\"n3\",\"session\":\"" SESSION "\",\"ttl_ms\":200,\"beat\":%u}",
                   ++n);
    routed_store(&w, 0, STORE_STATE_DIR "/" LEASES_DIR "/" THEIRS, text);
}

static void *beat_on(void *arg)
{
    (void)arg;
    while (atomic_load(&beats)) {
        beat();
        (void)sleep(1); /* longer than late_window: only the wait for its end sees it */
    }
    return NULL;
}

static void watch(unsigned leaf, const struct call *c)
{
    if (leaf != 0)
        return;
    if (atomic_load(&breaks_off) &&
        (c->kind == CALL_REMOVE || (c->kind == CALL_PUT && strstr(c->key, SEALS_DIR "/"))))
        atomic_store(&broken_off, true);
    if (c->kind == CALL_PUT && strstr(c->key, "/take~") && atomic_load(&comes_back))
        beat();
    for (size_t i = 0; c->kind == CALL_REMOVE && i < c->n_keys; i++) {
        size_t len = strlen(removed);
        (void)snprintf(removed + len, sizeof(removed) - len, " %s", c->keys[i]);
    }
}

static void setup(void)
{
    struct policy *p = &w.policies[1];

    routed_init(&w, rows, ARRAY_SIZE(rows), ROUTED_S3);
    p->unit = (char *)(uintptr_t) "names";
    p->unit_names = (char *)(uintptr_t) "c-#";
    p->lock_ttl_ns = 200 * NS_PER_MS;
    w.d.config.late_ns = 50 * NS_PER_MS;
    removed[0] = '\0';
    atomic_store(&comes_back, false);
    atomic_store(&breaks_off, false);
    atomic_store(&broken_off, false);
    atomic_store(&w.watch, watch);
}

static void teardown(void)
{
    routed_release(&w);
}

static const char *note_at(enum note_kind kind, const char *cache_id, const char *id)
{
    static char key[512];
    auto_free char *unit = note_unit_key("k/r", "c-1");
    auto_free char *note = unit ? note_key(unit, kind, cache_id, id) : NULL;

    ck_assert_ptr_nonnull(note);
    (void)snprintf(key, sizeof(key), STORE_STATE_DIR "/%s", note);
    return key;
}

static void note(enum note_kind kind, const char *cache_id)
{
    const struct note_body body = {
        .node = (char *)(uintptr_t) "n3",
        .attempt = (char *)(uintptr_t) "",
        .tail = {.name = kind == NOTE_GONE ? (char *)(uintptr_t) "x" : NULL}};
    auto_free char *text = note_encode(&body);

    ck_assert_ptr_nonnull(text);
    routed_store(&w, 0, note_at(kind, cache_id, SESSION), text);
}

static bool has_note(enum note_kind kind)
{
    return routed_has(&w, 0, note_at(kind, THEIRS, SESSION));
}

/* What is in the state below units/ and whole/: how many, and the last of them. */
struct state {
    unsigned n;
    char last[512];
};

static int count(void *arg, const char *name, const struct object *obj)
{
    struct state *s = arg;

    s->n += !obj->is_prefix;
    (void)snprintf(s->last, sizeof(s->last), "%s", name);
    return 0;
}

static struct state state_of(const char *dir)
{
    struct state s = {0};
    char key[128];
    struct op op;

    (void)snprintf(key, sizeof(key), STORE_STATE_DIR "/%s", dir);
    op_init(&op, 5 * NS_PER_SEC);
    int r = store_list(w.leaves[0].layer->base.next ? w.leaves[0].layer->base.next
                                                    : &w.leaves[0].layer->base,
                       &op, key, LIST_RECURSIVE, count, &s);
    ck_assert_msg(r == 0 || r == -ENOENT, "%d", r);
    return s;
}

static bool shown(const char *path)
{
    struct stat st;
    int r = driven_stat(&w.d, path, &st);

    ck_assert_msg(r == 0 || r == -ENOENT, "%s: %d", path, r);
    return r == 0;
}

static int clean(const char *path, bool drops)
{
    struct op op;

    op_init(&op, OP_FOREVER);
    op.cancelled = &broken_off;
    int r = cache_clean_unit(w.d.cache, path, drops, &op);
    ck_assert_msg(r == 0 || *op.why, "%d without a word", r);
    return r;
}

static void half(void)
{
    routed_store(&w, 0, "k/r/c-1/x", "1");
    routed_store(&w, 0, "k/r/c-1/sub/y", "1");
    routed_store(&w, 0, "k/r/c-1/z", "1");
    driven_mount(&w.d);
}

START_TEST(an_ended_owners_unit_is_adopted)
{
    note(NOTE_OPEN, THEIRS);
    if (_i)
        note(NOTE_LAST, THEIRS);
    if (_i)
        beat(); /* its last */
    half();
    if (_i) /* an earlier mount was killed with it */
        routed_store(&w, 0, note_at(NOTE_TAKE, w.d.cache->queue->cache_id, SESSION), "{}");
    ck_assert(!shown("a/r/c-1"));
    ck_assert_int_eq(clean("a/r/c-1", false), 0);
    ck_assert(shown("a/r/c-1/sub/y") && shown("a/r/c-1/x"));
    ck_assert_uint_eq(state_of(NOTES_DIR).n, 0);
    const struct state seals = state_of(SEALS_DIR);
    ck_assert_uint_eq(seals.n, 1);
    ck_assert_str_ne(path_basename(seals.last), THEIRS);
    ck_assert_str_eq(strstr(removed, "k/") ? "removed" : "", "");
}
END_TEST

START_TEST(a_living_owners_unit_stays)
{
    pthread_t thread;

    note(NOTE_OPEN, THEIRS);
    half();
    atomic_store(&beats, true);
    ck_assert_int_eq(pthread_create(&thread, NULL, beat_on, NULL), 0);
    int r = clean("a/r/c-1", _i);
    atomic_store(&beats, false);
    (void)pthread_join(thread, NULL);
    ck_assert_int_eq(r, -EAGAIN);
    ck_assert(has_note(NOTE_OPEN) && !shown("a/r/c-1"));
    ck_assert_uint_eq(state_of(NOTES_DIR).n, 1);
    ck_assert_uint_eq(state_of(SEALS_DIR).n, 0);
    ck_assert(routed_has(&w, 0, "k/r/c-1/x"));
}
END_TEST

/* TAKE_THEN_LOOK: between the look and the deed the owner may be back. */
START_TEST(an_owner_who_comes_back_keeps_it)
{
    note(NOTE_OPEN, THEIRS);
    half();
    atomic_store(&comes_back, true);
    ck_assert_int_eq(clean("a/r/c-1", _i), -EAGAIN);
    ck_assert(has_note(NOTE_OPEN));
    ck_assert_uint_eq(state_of(NOTES_DIR).n, 1);
    ck_assert_uint_eq(state_of(SEALS_DIR).n, 0);
    ck_assert(routed_has(&w, 0, "k/r/c-1/x"));
}
END_TEST

START_TEST(what_is_dropped_goes_tail_first)
{
    note(_i ? NOTE_GONE : NOTE_OPEN, THEIRS);
    half();
    ck_assert(!shown("a/r/c-1"));
    ck_assert_int_eq(clean("a/r/c-1", true), 0);
    ck_assert(!routed_has(&w, 0, "k/r/c-1/x") && !routed_has(&w, 0, "k/r/c-1/sub/y") &&
              !routed_has(&w, 0, "k/r/c-1/z"));
    const char *tail = strstr(removed, "k/r/c-1/z"), *other = strstr(removed, "k/r/c-1/x");
    const char *own = strstr(removed, _i ? "/gone~" : "/open~");
    ck_assert(tail && other && own && tail < other && other < own);
    ck_assert(strstr(own, "/take~"));
    ck_assert_uint_eq(state_of(NOTES_DIR).n, 0);
    ck_assert(!shown("a/r/c-1"));
}
END_TEST

/* A seal of the file in that version, or in another one. */
static void seal(const char *tail, bool right)
{
    auto_free char *rest = seal_key("k/r", "c-1", THEIRS);
    auto_free char *file = path_join("k/r/c-1", tail);
    struct seal_body body = {
        .attempt = (char *)(uintptr_t) "", .files = 3, .tail.name = (char *)(uintptr_t)tail};
    struct object obj = {0};
    char key[512];
    struct op op;

    op_init(&op, 5 * NS_PER_SEC);
    ck_assert_int_eq(store_stat(w.leaves[0].layer->base.next, &op, file, &obj), 0);
    body.tail.mtime_ns = obj.mtime_ns;
    (void)snprintf(body.tail.etag, sizeof(body.tail.etag), "%s", right ? obj.etag : "another");
    object_release(&obj);
    auto_free char *text = seal_encode(&body);
    ck_assert(rest && file && text);
    (void)snprintf(key, sizeof(key), STORE_STATE_DIR "/%s", rest);
    routed_store(&w, 0, key, text);
}

/* That of a unit which had the name before names nothing. */
START_TEST(what_a_seal_names_goes_first)
{
    note(NOTE_GONE, THEIRS);
    half();
    seal("x", _i);
    ck_assert_int_eq(clean("a/r/c-1", true), 0);
    const char *x = strstr(removed, "k/r/c-1/x"), *y = strstr(removed, "k/r/c-1/sub/y");
    const char *z = strstr(removed, "k/r/c-1/z");
    ck_assert_msg(x && y && z && (_i ? x < y && x < z : z < x && z < y), "%s", removed);
    ck_assert_uint_eq(state_of(NOTES_DIR).n, 0);
    ck_assert_uint_eq(state_of(SEALS_DIR).n, 0);
}
END_TEST

START_TEST(there_is_nothing_to_do)
{
    half();
    ck_assert_int_eq(clean("a/r/c-1", _i), -ENOENT); /* no note */
    ck_assert_int_eq(clean("a/r", _i), -ENOENT);
    ck_assert_int_eq(clean("a/r/c-1/sub", _i), -EINVAL); /* part of one */
    ck_assert_int_eq(clean("b/c-1", _i), -EINVAL);       /* no unit by its policy */
    if (_i == 0) {
        note(NOTE_GONE, THEIRS);
        ck_assert_int_eq(clean("a/r/c-1", false), -EBUSY);
    }
    ck_assert(routed_has(&w, 0, "k/r/c-1/x"));
}
END_TEST

/* Its `take` would tell others that it goes on, for as long as this mount lives. */
START_TEST(what_is_broken_off_leaves_no_take)
{
    note(NOTE_OPEN, THEIRS);
    half();
    atomic_store(&breaks_off, true);
    ck_assert_int_eq(clean("a/r/c-1", _i), -EINTR);
    ck_assert(has_note(NOTE_OPEN) && !shown("a/r/c-1"));
    ck_assert_uint_eq(state_of(NOTES_DIR).n, 1);
}
END_TEST

static void *drop(void *arg)
{
    *(int *)arg = clean("a/r/c-1", true);
    return NULL;
}

static bool is_at_it(void)
{
    cache_lock(w.d.cache);
    bool is = w.d.cache->queue->cleanings;
    cache_unlock(w.d.cache);
    return is;
}

/* One that adopts would seal what another has not dropped yet. */
START_TEST(one_command_at_a_time_cleans_up)
{
    pthread_t thread;
    int r = 1;

    note(NOTE_OPEN, THEIRS);
    half();
    ck_assert_int_eq(pthread_create(&thread, NULL, drop, &r), 0);
    DRIVEN_WAIT(is_at_it());
    ck_assert_int_eq(clean("a/r/c-1", _i), -EAGAIN);
    (void)pthread_join(thread, NULL);
    ck_assert_int_eq(r, 0);
    ck_assert(!is_at_it() && !routed_has(&w, 0, "k/r/c-1/x"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_left_units");
    TCase *t = tcase_create("units that others left");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, an_ended_owners_unit_is_adopted, 0, 2);
    tcase_add_loop_test(t, a_living_owners_unit_stays, 0, 2);
    tcase_add_loop_test(t, an_owner_who_comes_back_keeps_it, 0, 2);
    tcase_add_loop_test(t, what_is_dropped_goes_tail_first, 0, 2);
    tcase_add_loop_test(t, what_a_seal_names_goes_first, 0, 2);
    tcase_add_loop_test(t, there_is_nothing_to_do, 0, 2);
    tcase_add_loop_test(t, what_is_broken_off_leaves_no_take, 0, 2);
    tcase_add_loop_test(t, one_command_at_a_time_cleans_up, 0, 2);
    suite_add_tcase(s, t);
    return suite_run(s);
}
