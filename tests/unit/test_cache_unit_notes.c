/* What other mounts are told of a unit that this one writes: the note `open` before its first
 * object, the seal behind its last one, and then no note any more. */
#include "backends/store.h"
#include "cache/core/core.h"
#include "cache/mount.h"
#include "common/mem.h"
#include "runs/note.h"
#include "runs/policy_fields.h"
#include "tests/lib/driven.h"
#include "tests/lib/route_table.h"
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

/* With this error. */
static atomic_int refuses_notes, refuses_leases, refuses_removals, refuses_seals,
    refuses_seal_removals;
static _Atomic(const char *) refused; /* this key */
static _Atomic(const char *) slow;    /* the put of this key takes longer than a lease */
static atomic_uint notes_refused, leases_refused;
static _Atomic int64_t beaten_ns; /* when the last rewrite of the lease that worked began */

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
    if (c->kind == CALL_REMOVE && begins(c->keys[0], SEALS))
        return atomic_load(&refuses_seal_removals);
    if (c->kind != CALL_PUT)
        return 0;
    const char *key = atomic_load(&refused);
    return begins(c->key, UNITS)             ? atomic_load(&refuses_notes)
           : begins(c->key, LEASES)          ? atomic_load(&refuses_leases)
           : begins(c->key, SEALS)           ? atomic_load(&refuses_seals)
           : key && strcmp(key, c->key) == 0 ? EACCES
                                             : 0;
}

#define TTL_NS NS_PER_SEC

/* As over a link on which the request is on its way for so long. */
static int64_t take_long(struct op *op)
{
    int64_t until_ns = clock_boot_ns() + TTL_NS + TTL_NS / 2;
    int r = 0;

    while (r == 0 && clock_boot_ns() < until_ns)
        r = op_sleep(op, 10 * NS_PER_MS);
    return r;
}

static int64_t around(struct layer *l, struct call *c)
{
    const char *key = atomic_load(&slow);
    int err = refusal_of(c);

    (void)l;
    if (key && c->kind == CALL_PUT && strcmp(key, c->key) == 0 && take_long(c->op) < 0)
        return -ETIMEDOUT;
    if (err && c->kind == CALL_PUT && begins(c->key, UNITS))
        atomic_fetch_add(&notes_refused, 1);
    if (err && c->kind == CALL_PUT && begins(c->key, LEASES))
        atomic_fetch_add(&leases_refused, 1);
    if (err)
        return op_fail(c->op, -err, "%s: refused by the test", c->key ? c->key : c->keys[0]);
    int64_t now_ns = clock_boot_ns(), r = call_next(c);
    if (c->kind == CALL_PUT && r == 0 && begins(c->key, LEASES))
        atomic_store(&beaten_ns, now_ns);
    if (c->kind == CALL_PUT && r == 0)
        note_call('+', c->key);
    for (size_t i = 0; c->kind == CALL_REMOVE && i < c->n_keys; i++)
        note_call('-', c->keys[i]);
    return r;
}

static void setup(void)
{
    sent[0] = '\0';
    atomic_store(&refuses_notes, 0);
    atomic_store(&refuses_leases, 0);
    atomic_store(&refuses_removals, 0);
    atomic_store(&refuses_seals, 0);
    atomic_store(&refuses_seal_removals, 0);
    atomic_store(&refused, NULL);
    atomic_store(&slow, NULL);
    atomic_store(&notes_refused, 0);
    atomic_store(&leases_refused, 0);
    atomic_store(&beaten_ns, 0);
    driven_init_like_s3(&d, around);
    d.config.settle_ns = 0;
    d.config.retry_ns = 20 * NS_PER_MS;
    driven_mount(&d);
}

static struct routes routes; /* of mount_with() */

static void teardown(void)
{
    driven_release(&d);
    routes_release(&routes);
}

/* As a mount whose policy has a lease of so short a time, and a unit that settles then. */
static void mount_with(int64_t ttl_ns, int64_t idle_ns)
{
    static const struct route_text all[] = {{"**", NULL, 0}, {NULL, NULL, 0}};
    static const struct cache_store store = {.name = "a", .url = "mem:a"};
    static struct policy policy;

    routes = routes_of(all);
    policy = *policy_preset("data");
    policy.lock_ttl_ns = ttl_ns;
    policy.unit_idle_ns = idle_ns;
    driven_unmount(&d);
    d.config.routes = &routes;
    d.config.policies = &policy;
    d.config.n_policies = d.config.n_stores = 1;
    d.config.stores = &store;
    driven_mount(&d);
}

/* What nobody renews for its ttl is lost, by what a lease is. */
static void lose_lease(void)
{
    atomic_store(&refuses_leases, EIO);
    DRIVEN_WAIT(clock_boot_ns() >= atomic_load(&beaten_ns) + TTL_NS);
    atomic_store(&refuses_leases, 0);
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
    DRIVEN_WAIT(atomic_load(lease ? &leases_refused : &notes_refused) >
                1); /* the first is known */
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

static const int refusals[] = {EACCES, ENOSPC};

/* What may not write there, or has no room, says so once and publishes all the same. */
START_TEST(a_state_that_is_refused_holds_nothing)
{
    bool lease = _i % 2;

    atomic_store(lease ? &refuses_leases : &refuses_notes, refusals[_i / 2]);
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

/* ---- what others see after trouble ---- */

/* Each name asks for the journal to know it before it goes. */
START_TEST(a_tail_of_two_names_comes)
{
    made("checkpoint-1");
    put("checkpoint-1/x");
    ck_assert_int_eq(driven_link(&d, "checkpoint-1/x", "checkpoint-1/y"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(has("checkpoint-1/x") && has("checkpoint-1/y"));
    ck_assert_uint_eq(objects(UNITS), 0);
}
END_TEST

START_TEST(a_unit_in_what_is_staged_now_is_none)
{
    made("run");
    made("run/checkpoint-1");
    put("run/checkpoint-1/x");
    put("run/checkpoint-1/y");
    DRIVEN_WAIT(has("run/checkpoint-1/x"));
    ck_assert_uint_eq(objects(UNITS), 1);
    ck_assert_int_eq(driven_rename(&d, "run", "tmp-run"), 0);
    DRIVEN_WAIT(objects(UNITS) == 0);
    ck_assert_int_eq(driven_flush(&d), 0);
}
END_TEST

/* Nobody but this mount takes away what it has put. */
START_TEST(a_note_that_is_refused_later_goes)
{
    struct handle *h;

    mount_with(TTL_NS, NS_PER_MS);
    made("checkpoint-1");
    ck_assert_int_eq(driven_open(&d, "checkpoint-1/x", O_CREAT | O_WRONLY, &h), 0);
    DRIVEN_WAIT(objects(UNITS) == 1);
    atomic_store(&refuses_notes, EACCES);
    lose_lease();
    DRIVEN_WAIT(atomic_load(&notes_refused));
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(has("checkpoint-1/x"));
    ck_assert_uint_eq(objects(UNITS), 0);
}
END_TEST

START_TEST(a_found_unit_is_no_edit_by_its_own_files)
{
    atomic_store(&refuses_leases, EIO);
    made("checkpoint-1");
    put("checkpoint-1/x");
    put("checkpoint-1/y");
    mount_with(TTL_NS, 600 * NS_PER_SEC); /* nothing is noted yet */
    atomic_store(&refuses_leases, 0);
    DRIVEN_WAIT(has("checkpoint-1/x"));
    unsigned before = times(" +" UNITS);
    lose_lease();
    DRIVEN_WAIT(times(" +" UNITS) > before || objects(UNITS) == 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(has("checkpoint-1/y"));
    ck_assert_uint_eq(objects(UNITS), 0);
    ck_assert_uint_eq(objects(SEALS), 1);
}
END_TEST

/* It is renewed meanwhile. */
START_TEST(a_file_may_take_longer_than_the_lease)
{
    mount_with(TTL_NS, NS_PER_MS);
    atomic_store(&slow, _i ? "checkpoint-1/y" : "checkpoint-1/x"); /* the tail, or not */
    made("checkpoint-1");
    put("checkpoint-1/x");
    put("checkpoint-1/y");
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(has("checkpoint-1/x") && has("checkpoint-1/y"));
    ck_assert_uint_eq(objects(UNITS), 0);
}
END_TEST

/* A program that died left it, and nobody waits for it. */
START_TEST(a_temporary_file_is_no_tail)
{
    mount_with(60 * NS_PER_SEC, NS_PER_MS);
    made("checkpoint-1");
    put("checkpoint-1/x");
    put("checkpoint-1/y.tmp");
    DRIVEN_WAIT(times(" -" UNITS) == 1);
    ck_assert(has("checkpoint-1/x"));
    ck_assert_uint_eq(objects(SEALS), 1);
}
END_TEST

START_TEST(a_seal_that_is_refused_holds_nothing)
{
    atomic_store(&refuses_seals, refusals[_i]);
    for (int i = 1; i <= 2; i++) {
        char path[32];
        (void)snprintf(path, sizeof(path), "checkpoint-%d", i);
        made(path);
        (void)snprintf(path, sizeof(path), "checkpoint-%d/x", i);
        put(path);
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(has("checkpoint-1/x") && has("checkpoint-2/x"));
    ck_assert_uint_eq(objects(UNITS), 0);
}
END_TEST

/* It counts for nothing, as its unit has gone. */
START_TEST(a_seal_that_may_not_go_holds_nothing)
{
    made("checkpoint-1");
    put("checkpoint-1/x");
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refuses_seal_removals, EACCES);
    ck_assert_int_eq(driven_unlink(&d, "checkpoint-1/x"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "checkpoint-1"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    made("checkpoint-1");
    put("checkpoint-1/x");
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(has("checkpoint-1/x"));
}
END_TEST

/* The seal says that the unit is whole, so that nobody believes the note. */
START_TEST(a_note_that_may_not_go_holds_nothing)
{
    atomic_store(&refuses_removals, EACCES);
    made("checkpoint-1");
    put("checkpoint-1/x");
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(objects(SEALS), 1);
    driven_unmount(&d);
    atomic_store(&refuses_removals, 0);
    driven_mount(&d);
    DRIVEN_WAIT(objects(UNITS) == 0);
}
END_TEST

/* A mount that has no place for notes any more takes its files all the same. */
START_TEST(notes_of_a_state_that_is_gone_hold_nothing)
{
    made("checkpoint-1");
    put("checkpoint-1/x");
    put("checkpoint-1/y");
    DRIVEN_WAIT(has("checkpoint-1/x"));
    driven_unmount(&d);
    d.store->facts.caps &= ~(unsigned)STORE_STATE;
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert(has("checkpoint-1/y"));
}
END_TEST

/* An earlier one of the same name was removed, and its note could not go. Which of the two the
 * unit takes up is a matter of their ids. */
START_TEST(an_old_note_seals_no_new_unit)
{
    struct op op;

    made("checkpoint-1");
    put("checkpoint-1/x");
    put("checkpoint-1/y");
    atomic_store(&refuses_removals, EIO);
    op_init(&op, 500 * NS_PER_MS);
    ck_assert_int_ne(cache_flush_path(d.cache, "checkpoint-1", 0, &op, NULL, NULL), 0);
    DRIVEN_WAIT(objects(SEALS) == 1);
    ck_assert_int_eq(driven_unlink(&d, "checkpoint-1/x"), 0);
    ck_assert_int_eq(driven_unlink(&d, "checkpoint-1/y"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "checkpoint-1"), 0);
    DRIVEN_WAIT(!has("checkpoint-1/y"));
    made("checkpoint-1");
    put("checkpoint-1/y");
    put("checkpoint-1/x");
    DRIVEN_WAIT(has("checkpoint-1/y"));
    driven_unmount(&d);
    unsigned before = times(" +" SEALS);
    atomic_store(&refuses_removals, 0);
    d.config.late_ns = 0;
    driven_mount(&d);
    DRIVEN_WAIT(times(" -" UNITS) == 1);
    ck_assert_uint_eq(times(" +" SEALS), before);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(objects(UNITS), 0);
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
    tcase_add_loop_test(t, a_state_that_is_refused_holds_nothing, 0, 4);
    tcase_add_test(t, a_note_that_stays_is_told);
    tcase_add_test(t, what_is_removed_takes_its_note_along);
    tcase_add_test(t, a_new_name_has_a_note_of_its_own);
    tcase_add_test(t, a_staged_name_has_none_before_its_rename);
    tcase_add_test(t, a_seal_goes_with_its_unit);
    tcase_add_test(t, the_next_mount_goes_on_with_its_note);
    tcase_add_test(t, a_change_of_a_stored_unit_is_found_as_that);
    tcase_add_test(t, a_note_of_nothing_goes);
    tcase_add_test(t, a_tail_of_two_names_comes);
    tcase_add_test(t, a_unit_in_what_is_staged_now_is_none);
    tcase_add_test(t, a_note_that_is_refused_later_goes);
    tcase_add_test(t, a_found_unit_is_no_edit_by_its_own_files);
    tcase_add_loop_test(t, a_file_may_take_longer_than_the_lease, 0, 2);
    tcase_add_test(t, a_temporary_file_is_no_tail);
    tcase_add_loop_test(t, a_seal_that_is_refused_holds_nothing, 0, 2);
    tcase_add_test(t, a_seal_that_may_not_go_holds_nothing);
    tcase_add_test(t, a_note_that_may_not_go_holds_nothing);
    tcase_add_test(t, notes_of_a_state_that_is_gone_hold_nothing);
    tcase_add_loop_test(t, an_old_note_seals_no_new_unit, 0, 6);
    suite_add_tcase(s, t);
    return suite_run(s);
}
