/* A mount that comes back to its unit after its lease was lost, or after it was killed: others
 * may have cleaned up what it had left there (docs/units.md, 4). The store never has the tail
 * without the rest. */
#include "backends/store.h"
#include "cache/core/core.h"
#include "cache/mount.h"
#include "cache/queue/queue.h"
#include "common/mem.h"
#include "runs/note.h"
#include "runs/policy_fields.h"
#include "tests/lib/driven.h"
#include "tests/lib/route_table.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNITS  STORE_STATE_DIR "/" NOTES_DIR
#define SEALS  STORE_STATE_DIR "/" SEALS_DIR
#define LEASES STORE_STATE_DIR "/" LEASES_DIR

#define TTL_NS  NS_PER_SEC
#define HOUR    (3600 * NS_PER_SEC)
#define THEIRS  "00000000000000c1"
#define SESSION "00000000000000aa"

static struct driven d;
static struct routes routes;
static struct policy policy;

static atomic_bool cut_off;       /* no lease is renewed */
static _Atomic int64_t beaten_ns; /* when the last rewrite of the lease that worked began */
static atomic_uint opens;         /* so many `open` were put */
static atomic_bool tail_first;    /* the tail came before another file */
static atomic_uint looks;         /* so often the store was asked what a file is */

static bool begins(const char *key, const char *with)
{
    return strncmp(key, with, strlen(with)) == 0;
}

static bool has(const char *key)
{
    char text[8];

    return driven_stored(&d, key, text, sizeof(text)) >= 0;
}

static int64_t around(struct layer *l, struct call *c)
{
    bool lease = c->kind == CALL_PUT && begins(c->key, LEASES);
    int64_t now_ns = clock_boot_ns();

    (void)l;
    if (lease && atomic_load(&cut_off))
        return op_fail(c->op, -EIO, "%s: the link is cut", c->key);
    if (c->kind == CALL_PUT && strcmp(c->key, "checkpoint-1/tail") == 0 &&
        !(has("checkpoint-1/x") && has("checkpoint-1/sub/y")))
        atomic_store(&tail_first, true);
    if (c->kind == CALL_STAT && begins(c->key, "checkpoint-1/"))
        atomic_fetch_add(&looks, 1);
    int64_t r = call_next(c);
    if (lease && r == 0)
        atomic_store(&beaten_ns, now_ns);
    if (c->kind == CALL_PUT && r == 0 && begins(c->key, UNITS))
        atomic_fetch_add(&opens, 1);
    return r;
}

static void setup(void)
{
    static const struct route_text all[] = {{"**", NULL, 0}, {NULL, NULL, 0}};
    static const struct cache_store store = {.name = "a", .url = "mem:a"};

    atomic_store(&cut_off, false);
    atomic_store(&beaten_ns, 0);
    atomic_store(&opens, 0);
    atomic_store(&tail_first, false);
    atomic_store(&looks, 0);
    driven_init_like_s3(&d, around);
    routes = routes_of(all);
    policy = *policy_preset("data");
    policy.lock_ttl_ns = TTL_NS;
    policy.unit_idle_ns = HOUR;
    d.config.routes = &routes;
    d.config.policies = &policy;
    d.config.n_policies = d.config.n_stores = 1;
    d.config.stores = &store;
    d.config.settle_ns = 0;
    d.config.retry_ns = 20 * NS_PER_MS;
    d.config.late_ns = 0;
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 1;
    driven_mount(&d);
}

static void teardown(void)
{
    driven_release(&d);
    routes_release(&routes);
}

static void put(const char *path)
{
    driven_put(&d, path, path, strlen(path));
}

/* All but the tail is in the store. */
static void write_unit(void)
{
    ck_assert_int_eq(driven_mkdir(&d, "checkpoint-1"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "checkpoint-1/sub"), 0);
    put("checkpoint-1/x");
    put("checkpoint-1/sub/y");
    put("checkpoint-1/tail");
    DRIVEN_WAIT(has("checkpoint-1/x") && has("checkpoint-1/sub/y"));
    ck_assert(!has("checkpoint-1/tail"));
}

static void store_loses(const char *key)
{
    struct op op;

    op_init(&op, 5 * NS_PER_SEC);
    ck_assert_int_eq(store_remove(d.store->next, &op, &key, NULL, 1, NULL), 0);
}

static int take_one(void *arg, const char *name, const struct object *obj)
{
    char *ret = arg;

    if (!obj->is_prefix)
        (void)snprintf(ret, 512, "%s", name);
    return 0;
}

/* The one object of the state there, or "". */
static void only(const char *dir, char ret[512])
{
    struct op op;

    ret[0] = '\0';
    op_init(&op, 5 * NS_PER_SEC);
    int r = store_list(d.store->next, &op, dir, LIST_RECURSIVE, take_one, ret);
    ck_assert(r == 0 || r == -ENOENT);
}

static bool has_any(const char *dir)
{
    char name[512];

    only(dir, name);
    return *name;
}

/* As another mount does it for `runfs units --drop`. */
static void others_drop(void)
{
    char name[512], key[1024];

    store_loses("checkpoint-1/x");
    store_loses("checkpoint-1/sub/y");
    only(UNITS, name);
    ck_assert_str_ne(name, "");
    (void)snprintf(key, sizeof(key), UNITS "/%s", name);
    store_loses(key);
}

/* What nobody renews for its ttl is lost, by what a lease is. */
static void be_cut_off(void)
{
    atomic_store(&cut_off, true);
    DRIVEN_WAIT(clock_boot_ns() >= atomic_load(&beaten_ns) + TTL_NS);
}

static void all_is_there(void)
{
    ck_assert(!atomic_load(&tail_first));
    driven_stores(&d, "checkpoint-1/x", "checkpoint-1/x");
    driven_stores(&d, "checkpoint-1/sub/y", "checkpoint-1/sub/y");
    driven_stores(&d, "checkpoint-1/tail", "checkpoint-1/tail");
    ck_assert(!has_any(UNITS) && has_any(SEALS));
}

enum comes { STOPPED, LISTED, KILLED, COMES };

START_TEST(what_others_dropped_goes_again)
{
    write_unit();
    if (_i == KILLED)
        driven_unmount(&d);
    else
        be_cut_off();
    others_drop();
    if (_i == LISTED) /* what the store has no more does not go, as it is needed */
        ck_assert_int_eq(driven_list(&d, "checkpoint-1"), 3);
    atomic_store(&cut_off, false);
    if (_i == KILLED)
        driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    all_is_there();
}
END_TEST

/* It has sent the tail by then; or all of it, but for the seal. */
START_TEST(what_is_there_stays)
{
    write_unit();
    be_cut_off();
    unsigned before = atomic_load(&opens);
    atomic_store(&cut_off, false);
    DRIVEN_WAIT(atomic_load(&opens) > before);
    ck_assert_int_eq(driven_flush(&d), 0);
    all_is_there();
}
END_TEST

static int flush_within(int64_t ns, struct op *op)
{
    op_init(op, ns);
    return cache_flush_path(d.cache, "checkpoint-1", 0, op, NULL, NULL);
}

static void no_stay(void *arg, const char *path, enum cache_stay why)
{
    (void)arg, (void)path, (void)why;
}

/* Here x was evicted, and there others dropped it. */
static void lose_x(void)
{
    struct cache_evicted e;
    struct op op;

    write_unit();
    op_init(&op, 5 * NS_PER_SEC);
    ck_assert_int_eq(cache_evict_path(d.cache, "checkpoint-1/x", &op, no_stay, NULL, &e), 0);
    ck_assert_uint_eq(e.files, 1);
    be_cut_off();
    others_drop();
    atomic_store(&cut_off, false);
    ck_assert_int_eq(flush_within(20 * NS_PER_SEC, &op), -ESTALE);
    ck_assert_msg(strstr(op.why, "x") && strstr(op.why, "somebody removed"), "%s", op.why);
}

/* x was written again, and is the last one that was closed. */
static void goes_up_with_x(void)
{
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "checkpoint-1/tail", "checkpoint-1/tail");
    ck_assert(has("checkpoint-1/x") && has("checkpoint-1/sub/y"));
    ck_assert(!has_any(UNITS) && has_any(SEALS));
}

/* Nobody can make it whole but its program: others go on not to see it. */
START_TEST(what_is_nowhere_holds_the_tail)
{
    lose_x();
    ck_assert(!has("checkpoint-1/tail") && has_any(UNITS) && !has_any(SEALS));
    put("checkpoint-1/x");
    goes_up_with_x();
}
END_TEST

/* What is known stays so, unless the store is asked. */
static void mount_to_believe(void)
{
    driven_unmount(&d);
    d.config.list_timeout_ns = d.config.attr_timeout_ns = HOUR;
    driven_mount(&d);
}

/* Its name stays, and an open of it asks once: not again and again as long as it stays. */
START_TEST(an_open_of_what_is_nowhere_asks_once)
{
    struct handle *h;
    char text[8];
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    mount_to_believe();
    lose_x();
    ck_assert_int_eq(driven_open(&d, "checkpoint-1/x", O_RDONLY, &h), 0);
    ck_assert_int_eq(driven_pread(&d, h, text, sizeof(text), 0), -ESTALE);
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_ne(cache_stored_path(d.cache, "checkpoint-1/x", &op), 0);
    atomic_store(&looks, 0);
    if (_i)
        put("checkpoint-1/x");
    ck_assert_int_eq(driven_open(&d, "checkpoint-1/x", O_RDONLY, &h), 0);
    ck_assert_uint_eq(atomic_load(&looks), 1);
    ck_assert_int_eq(driven_close(&d, h), 0);
    if (!_i)
        put("checkpoint-1/x");
    goes_up_with_x();
}
END_TEST

/* Of what others had in it, and this mount never looked at, nobody can say what it was. */
START_TEST(what_was_never_looked_at_and_is_nowhere_is_not_found)
{
    struct stat st;

    mount_to_believe();
    write_unit();
    driven_store(&d, "checkpoint-1/theirs", "theirs", 6);
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "checkpoint-1"), 4);
    be_cut_off();
    store_loses("checkpoint-1/theirs");
    atomic_store(&looks, 0);
    ck_assert_int_eq(driven_stat(&d, "checkpoint-1/theirs", &st), -ENOENT);
    ck_assert_uint_eq(atomic_load(&looks), 1);
    ck_assert_int_eq(driven_list(&d, "checkpoint-1"), 4);
}
END_TEST

/* Its rows say which notes this cache has put; without them the notes themselves do. */
START_TEST(the_journal_is_lost)
{
    static const char *const files[] = {"state.db", "state.db-wal", "state.db-shm"};
    char path[128];

    write_unit();
    driven_unmount(&d);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", d.dir, files[i]);
        ck_assert(unlink(path) == 0 || errno == ENOENT);
    }
    if (_i)
        store_loses("checkpoint-1/x");
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    all_is_there();
}
END_TEST

/* ---- somebody cleans up ---- */

static const char *take_key(void)
{
    static char key[512];
    auto_free char *unit = note_unit_key("", "checkpoint-1");
    auto_free char *note = unit ? note_key(unit, NOTE_TAKE, THEIRS, SESSION) : NULL;

    ck_assert_ptr_nonnull(note);
    (void)snprintf(key, sizeof(key), STORE_STATE_DIR "/%s", note);
    return key;
}

/* What he removes while the owner looks would be missed. */
START_TEST(who_cleans_up_is_waited_for)
{
    struct op op;

    write_unit();
    be_cut_off();
    driven_store(&d, take_key(), "{}", 2);
    unsigned before = atomic_load(&opens);
    atomic_store(&cut_off, false);
    DRIVEN_WAIT(atomic_load(&opens) > before);
    ck_assert_int_lt(flush_within(300 * NS_PER_MS, &op), 0);
    store_loses("checkpoint-1/x");
    ck_assert(!has("checkpoint-1/tail"));
    store_loses(take_key());
    ck_assert_int_eq(driven_flush(&d), 0);
    all_is_there();
}
END_TEST

/* Whose lease has ended cleans up no more. */
START_TEST(nobody_waits_for_a_dead_one)
{
    write_unit();
    be_cut_off();
    driven_store(&d, take_key(), "{}", 2);
    atomic_store(&cut_off, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    store_loses(take_key());
    all_is_there();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_unit_back");
    TCase *t = tcase_create("cache_unit_back");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, what_others_dropped_goes_again, 0, COMES);
    tcase_add_test(t, what_is_there_stays);
    tcase_add_test(t, what_is_nowhere_holds_the_tail);
    tcase_add_loop_test(t, an_open_of_what_is_nowhere_asks_once, 0, 2);
    tcase_add_test(t, what_was_never_looked_at_and_is_nowhere_is_not_found);
    tcase_add_loop_test(t, the_journal_is_lost, 0, 2);
    tcase_add_test(t, who_cleans_up_is_waited_for);
    tcase_add_test(t, nobody_waits_for_a_dead_one);
    suite_add_tcase(s, t);
    return suite_run(s);
}
