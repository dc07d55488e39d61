/* What other mounts are told of a unit that this one writes: the note `open` before its first
 * object, the seal behind its last one, and then no note any more. */
#include "backends/store.h"
#include "cache/core/core.h"
#include "cache/mount.h"
#include "common/mem.h"
#include "runs/note.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define UNITS  STORE_STATE_DIR "/" NOTES_DIR
#define SEALS  STORE_STATE_DIR "/" SEALS_DIR
#define LEASES STORE_STATE_DIR "/" LEASES_DIR

static struct driven d;

/* What the store was sent, in that order: "+KEY" put, "-KEY" removed, each behind a space. */
static char sent[16384];
static pthread_mutex_t sent_lock = PTHREAD_MUTEX_INITIALIZER;

static atomic_int refuses_notes, refuses_leases, refuses_removals; /* with this error */
static _Atomic(const char *) refused;                              /* this key */
static atomic_uint listings;                                       /* not of our own objects */

static void note_call(char sign, const char *key)
{
    (void)pthread_mutex_lock(&sent_lock);
    size_t len = strlen(sent);
    (void)snprintf(sent + len, sizeof(sent) - len, " %c%s", sign, key);
    (void)pthread_mutex_unlock(&sent_lock);
}

static bool begins(const char *key, const char *with)
{
    return strncmp(key, with, strlen(with)) == 0;
}

static int refusal_of(const struct call *c)
{
    if (c->kind == CALL_REMOVE && begins(c->keys[0], UNITS))
        return atomic_load(&refuses_removals);
    if (c->kind != CALL_PUT)
        return 0;
    const char *key = atomic_load(&refused);
    return begins(c->key, UNITS)             ? atomic_load(&refuses_notes)
           : begins(c->key, LEASES)          ? atomic_load(&refuses_leases)
           : key && strcmp(key, c->key) == 0 ? EACCES
                                             : 0;
}

static int64_t around(struct layer *l, struct call *c)
{
    int err = refusal_of(c);

    (void)l;
    if (c->kind == CALL_LIST && !begins(c->key, STORE_STATE_DIR))
        atomic_fetch_add(&listings, 1);
    if (err)
        return op_fail(c->op, -err, "%s: refused by the test", c->key ? c->key : c->keys[0]);
    int64_t r = call_next(c);
    if (c->kind == CALL_PUT && r == 0)
        note_call('+', c->key);
    for (size_t i = 0; c->kind == CALL_REMOVE && i < c->n_keys; i++)
        note_call('-', c->keys[i]);
    return r;
}

static void setup(void)
{
    driven_init_like_s3(&d, around);
    d.config.settle_ns = 0;
    d.config.retry_ns = 20 * NS_PER_MS;
    driven_mount(&d);
}

static void teardown(void)
{
    driven_release(&d);
}

static void put(const char *path)
{
    driven_put(&d, path, path, strlen(path));
}

static bool has(const char *key)
{
    char text[8];

    return driven_stored(&d, key, text, sizeof(text)) >= 0;
}

/* How often the text was sent so far; and where it first was, in the order. */
static unsigned times(const char *text)
{
    unsigned n = 0;

    (void)pthread_mutex_lock(&sent_lock);
    for (const char *at = sent; (at = strstr(at, text)); at++)
        n++;
    (void)pthread_mutex_unlock(&sent_lock);
    return n;
}

static size_t place(const char *text)
{
    const char *at = strstr(sent, text);

    ck_assert_msg(at, "%s was not sent: %s", text, sent);
    return (size_t)(at - sent);
}

static int count_one(void *arg, const char *name, const struct object *obj)
{
    (void)name;
    *(unsigned *)arg += !obj->is_prefix;
    return 0;
}

/* How many objects the state has there. */
static unsigned objects(const char *dir)
{
    unsigned n = 0;
    struct op op;

    op_init(&op, 10 * NS_PER_SEC);
    int r = store_list(d.store, &op, dir, LIST_RECURSIVE, count_one, &n);
    ck_assert(r == 0 || r == -ENOENT);
    return n;
}

static void made(const char *dir)
{
    ck_assert_int_eq(driven_mkdir(&d, dir), 0);
}

/* ---- a unit comes ---- */

START_TEST(the_note_is_before_the_first_and_the_seal_behind_the_last)
{
    made("checkpoint-1");
    put("checkpoint-1/x");
    put("checkpoint-1/y");
    put("checkpoint-1/_SUCCESS");
    DRIVEN_WAIT(times(" -" UNITS) == 1);
    size_t open = place(" +" UNITS), seal = place(" +" SEALS);
    ck_assert_uint_lt(open, place(" +checkpoint-1/x"));
    ck_assert_uint_lt(open, place(" +checkpoint-1/y"));
    ck_assert_uint_lt(place(" +checkpoint-1/x"), place(" +checkpoint-1/_SUCCESS"));
    ck_assert_uint_lt(place(" +checkpoint-1/_SUCCESS"), seal);
    ck_assert_uint_lt(seal, place(" -" UNITS));
    ck_assert_uint_eq(objects(UNITS), 0);
    ck_assert_uint_eq(objects(SEALS), 1);
}
END_TEST

/* A listing of the store shows what a reader of it finds: seals and notes are not there. */
START_TEST(a_flush_ends_when_others_see_the_unit)
{
    made("checkpoint-1");
    put("checkpoint-1/x");
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(objects(UNITS), 0);
    ck_assert_uint_eq(objects(SEALS), 1);
}
END_TEST

START_TEST(a_file_alone_has_no_note)
{
    put("model.bin");
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(times(STORE_STATE_DIR "/"), 0);
}
END_TEST

START_TEST(an_edit_has_no_note)
{
    made("checkpoint-1");
    put("checkpoint-1/x");
    ck_assert_int_eq(driven_flush(&d), 0);
    unsigned before = times(UNITS);
    put("checkpoint-1/late");
    put("checkpoint-1/x");
    DRIVEN_WAIT(has("checkpoint-1/late"));
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(times(UNITS), before);
}
END_TEST

/* ---- its store does not take it ---- */

START_TEST(nothing_comes_before_the_note)
{
    bool lease = _i;

    atomic_store(lease ? &refuses_leases : &refuses_notes, EIO);
    made("checkpoint-1");
    put("checkpoint-1/x");
    put("checkpoint-1/_SUCCESS");
    put("beside");
    DRIVEN_WAIT(has("beside"));
    struct op op;
    op_init(&op, 500 * NS_PER_MS);
    int r = cache_flush_path(d.cache, "checkpoint-1", 0, &op, NULL, NULL);
    ck_assert_int_ne(r, 0);
    ck_assert_msg(strstr(op.why, "refused by the test"), "%s", op.why);
    ck_assert(!has("checkpoint-1/x") && !has("checkpoint-1/_SUCCESS"));
    atomic_store(&refuses_leases, 0);
    atomic_store(&refuses_notes, 0);
    DRIVEN_WAIT(has("checkpoint-1/_SUCCESS"));
    ck_assert(has("checkpoint-1/x"));
    DRIVEN_WAIT(objects(UNITS) == 0 && objects(SEALS) == 1);
}
END_TEST

/* What may not write there says so once and publishes all the same. */
START_TEST(a_state_that_is_refused_holds_nothing)
{
    bool lease = _i;

    atomic_store(lease ? &refuses_leases : &refuses_notes, EACCES);
    made("checkpoint-1");
    put("checkpoint-1/x");
    put("checkpoint-1/_SUCCESS");
    DRIVEN_WAIT(has("checkpoint-1/_SUCCESS"));
    ck_assert(has("checkpoint-1/x"));
    ck_assert_int_eq(driven_flush(&d), 0);
}
END_TEST

START_TEST(a_note_that_stays_is_told)
{
    struct op op;

    atomic_store(&refuses_removals, EIO);
    made("checkpoint-1");
    put("checkpoint-1/x");
    op_init(&op, 500 * NS_PER_MS);
    int r = cache_flush_path(d.cache, "checkpoint-1", 0, &op, NULL, NULL);
    ck_assert_int_ne(r, 0);
    ck_assert_msg(strstr(op.why, "refused by the test"), "%s", op.why);
    ck_assert(has("checkpoint-1/x"));
    atomic_store(&refuses_removals, 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(objects(UNITS), 0);
}
END_TEST

/* ---- it goes, or moves ---- */

START_TEST(what_is_removed_takes_its_note_along)
{
    made("checkpoint-1");
    put("checkpoint-1/x");
    put("checkpoint-1/y");
    DRIVEN_WAIT(has("checkpoint-1/x"));
    ck_assert_int_eq(driven_unlink(&d, "checkpoint-1/x"), 0);
    ck_assert_int_eq(driven_unlink(&d, "checkpoint-1/y"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "checkpoint-1"), 0);
    DRIVEN_WAIT(times(" -" UNITS) == 1);
    ck_assert_uint_lt(place(" -checkpoint-1/x"), place(" -" UNITS));
    ck_assert_uint_eq(objects(UNITS), 0);
    ck_assert_uint_eq(objects(SEALS), 0);
}
END_TEST

START_TEST(a_new_name_has_a_note_of_its_own)
{
    made("checkpoint-1");
    put("checkpoint-1/x");
    put("checkpoint-1/y");
    DRIVEN_WAIT(has("checkpoint-1/x"));
    ck_assert_int_eq(driven_rename(&d, "checkpoint-1", "checkpoint-2"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(has("checkpoint-2/x") && has("checkpoint-2/y") && !has("checkpoint-1/x"));
    ck_assert_uint_eq(times(" +" UNITS), 2);
    DRIVEN_WAIT(objects(UNITS) == 0);
    ck_assert_uint_eq(objects(SEALS), 1);
}
END_TEST

START_TEST(a_staged_name_has_none_before_its_rename)
{
    made("tmp-1");
    put("tmp-1/x");
    put("tmp-1/y");
    put("beside");
    DRIVEN_WAIT(has("beside"));
    ck_assert_uint_eq(times(UNITS), 0);
    ck_assert_int_eq(driven_rename(&d, "tmp-1", "checkpoint-1"), 0);
    DRIVEN_WAIT(has("checkpoint-1/y"));
    ck_assert_uint_lt(place(" +" UNITS), place(" +checkpoint-1/x"));
    DRIVEN_WAIT(objects(UNITS) == 0 && objects(SEALS) == 1);
}
END_TEST

START_TEST(a_seal_goes_with_its_unit)
{
    made("checkpoint-1");
    put("checkpoint-1/x");
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(objects(SEALS), 1);
    ck_assert_int_eq(driven_unlink(&d, "checkpoint-1/x"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "checkpoint-1"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    DRIVEN_WAIT(objects(SEALS) == 0);
}
END_TEST

/* ---- the next mount ---- */

START_TEST(the_next_mount_goes_on_with_its_note)
{
    made("checkpoint-1");
    put("checkpoint-1/x");
    put("checkpoint-1/y");
    DRIVEN_WAIT(has("checkpoint-1/x"));
    ck_assert_uint_eq(objects(UNITS), 1);
    driven_unmount(&d);
    ck_assert_uint_eq(objects(UNITS), 1);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(has("checkpoint-1/y"));
    ck_assert_uint_eq(objects(UNITS), 0);
    ck_assert_uint_eq(objects(SEALS), 1);
}
END_TEST

/* Of what is found nobody knows whether the store had the unit: that is asked. */
START_TEST(a_change_of_a_stored_unit_is_found_as_that)
{
    made("checkpoint-1");
    put("checkpoint-1/x");
    ck_assert_int_eq(driven_flush(&d), 0);
    unsigned before = times(UNITS);
    atomic_store(&refused, "checkpoint-1/late");
    put("checkpoint-1/late");
    driven_unmount(&d);
    atomic_store(&refused, NULL);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(has("checkpoint-1/late"));
    ck_assert_uint_eq(times(UNITS), before);
}
END_TEST

START_TEST(a_note_of_nothing_goes)
{
    struct handle *h;

    made("checkpoint-1");
    ck_assert_int_eq(driven_open(&d, "checkpoint-1/x", O_CREAT | O_WRONLY, &h), 0);
    DRIVEN_WAIT(objects(UNITS) == 1);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_unlink(&d, "checkpoint-1/x"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "checkpoint-1"), 0);
    driven_unmount(&d);
    driven_mount(&d);
    DRIVEN_WAIT(objects(UNITS) == 0);
    ck_assert_uint_eq(objects(SEALS), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_unit_notes");
    TCase *t = tcase_create("cache_unit_notes");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, the_note_is_before_the_first_and_the_seal_behind_the_last);
    tcase_add_test(t, a_flush_ends_when_others_see_the_unit);
    tcase_add_test(t, a_file_alone_has_no_note);
    tcase_add_test(t, an_edit_has_no_note);
    tcase_add_loop_test(t, nothing_comes_before_the_note, 0, 2);
    tcase_add_loop_test(t, a_state_that_is_refused_holds_nothing, 0, 2);
    tcase_add_test(t, a_note_that_stays_is_told);
    tcase_add_test(t, what_is_removed_takes_its_note_along);
    tcase_add_test(t, a_new_name_has_a_note_of_its_own);
    tcase_add_test(t, a_staged_name_has_none_before_its_rename);
    tcase_add_test(t, a_seal_goes_with_its_unit);
    tcase_add_test(t, the_next_mount_goes_on_with_its_note);
    tcase_add_test(t, a_change_of_a_stored_unit_is_found_as_that);
    tcase_add_test(t, a_note_of_nothing_goes);
    suite_add_tcase(s, t);
    return suite_run(s);
}
