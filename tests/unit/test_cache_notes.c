/* Notes and leases at a store: what is put there, by whom, and what others make of it. The
 * times alone are in notes/times.c; S3 is in tests/contract/test_contract_s3.c. */
#include "backends/drivers.h"
#include "cache/notes/notes_impl.h"
#include "common/lock.h"
#include "tests/lib/notes_story.h"
#include "tests/lib/routed_world.h"
#include "tests/lib/suite.h"
#include "tests/lib/temp_dir.h"

#include <pthread.h>
#include <sys/stat.h>

#define S     NS_PER_SEC
#define TTL   (60 * S)
#define LATE  (10 * S)
#define C1    STORY_C1
#define C2    STORY_C2
#define LEASE STORE_STATE_DIR "/nodes/" C1

/* ---- notes and seals ---- */

START_TEST(notes_in_memory)
{
    struct store *s = NULL;
    struct op op;

    op_init(&op, PATIENCE);
    ck_assert_int_eq(mem_store_new("mem:", NULL, &op, &s), 0);
    notes_story(s, &op, "a/b");
    notes_story(s, &op, "");
    store_close(s);
}
END_TEST

START_TEST(notes_beside_a_folder)
{
    char dir[64], path[80], state[100];
    struct store *s = NULL;
    struct op op;

    temp_dir_make(dir, sizeof(dir));
    (void)snprintf(path, sizeof(path), "%s/in", dir);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    op_init(&op, PATIENCE);
    ck_assert_msg(local_store_new(path, NULL, &op, &s) == 0, "%s", op.why);
    notes_story(s, &op, "a/b");
    /* Nothing is left of them but the place. */
    (void)snprintf(state, sizeof(state), "%s.runfs/state", path);
    ck_assert_int_eq(rmdir(state), 0);
    store_close(s);
    temp_dir_remove(dir);
}
END_TEST

START_TEST(notes_of_one_store_of_several)
{
    struct notes_at at;
    struct world w;

    world_open(&w, runs, LEAVES, "mem:");
    notes_story(w.s, &w.op, "runs/r1/checkpoint");
    notes_story(w.s, &w.op, "runs/r1/logs/deep");
    /* The root of a route may have another name in its store. */
    ok(&w, notes_at_unit(w.s, &w.op, "runs/r1/checkpoint", &at));
    ck_assert_str_eq(at.state, STORE_STATE_DIR "/@a");
    ck_assert_str_eq(at.parent, "");
    ck_assert_str_eq(at.name, "r1");
    notes_at_release(&at);
    w.leaf[3]->facts.caps &= ~(unsigned)STORE_STATE;
    fails(&w, EOPNOTSUPP, notes_at_unit(w.s, &w.op, "x/y", &at));
    world_close(&w);
}
END_TEST

static void put_text(struct store *s, const char *key, const char *text)
{
    struct op op;

    op_init(&op, PATIENCE);
    story_ok(&op, own_put(s, &op, key, text));
}

START_TEST(what_others_put_there_is_passed_over)
{
    static const char good[] = "{\"node\":\"n\",\"since\":1,\"attempt\":\"\"}";
    auto_free char *big = malloc(NOTE_BODY_MAX + 2);
    auto_free char *unit = note_unit_key("d", "u");
    struct note note = {.kind = NOTE_OPEN, .cache_id = C1, .id = STORY_ID};
    struct story_seen seen = {0};
    struct store *s = NULL;
    struct note_body body;
    struct notes_at at, parent;
    char key[512];
    struct op op;

    op_init(&op, PATIENCE);
    ck_assert_int_eq(mem_store_new("mem:", NULL, &op, &s), 0);
    story_ok(&op, notes_at_unit(s, &op, "d/u", &at));
    story_ok(&op, notes_at_parent(s, &op, "d", &parent));
    static const char *const others[] = {"x", "open~" C1, "x/open~" C1 "~" STORY_ID,
                                         "open~" C1 "~" STORY_ID "/x"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        (void)snprintf(key, sizeof(key), STORE_STATE_DIR "/%s/%s", unit, others[i]);
        put_text(s, key, "x");
    }
    put_text(s, STORE_STATE_DIR "/units/x/u/open~" C1 "~" STORY_ID, "x");
    story_ok(&op, notes_list(&at, &op, story_note, &seen));
    story_ok(&op, notes_list(&parent, &op, story_note, &seen));
    story_saw(&seen, "");
    story_ok(&op, notes_list_parents(s, &op, STORE_STATE_DIR, story_parent, &seen));
    ck_assert_uint_eq(seen.n, 1); /* and not "x" */
    free(seen.names[0]);

    (void)snprintf(key, sizeof(key), STORE_STATE_DIR "/%s/open~" C1 "~" STORY_ID, unit);
    put_text(s, key, "{}");
    ck_assert_int_eq(notes_read(&at, &op, &note, &body), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(op.why, "open~" C1));
    memset(big, ' ', NOTE_BODY_MAX + 2);
    big[NOTE_BODY_MAX + 1] = '\0';
    memcpy(big, good, strlen(good));
    put_text(s, key, big);
    ck_assert_int_eq(notes_read(&at, &op, &note, &body), -EBADMSG);
    big[NOTE_BODY_MAX] = '\0';
    put_text(s, key, big);
    ck_assert_int_eq(notes_read(&at, &op, &note, &body), 0);
    note_body_release(&body);
    notes_at_release(&at);
    notes_at_release(&parent);
    store_close(s);
}
END_TEST

/* ---- the id of the cache ---- */

START_TEST(a_cache_keeps_its_id)
{
    char dir[64], first[NOTE_ID_SIZE], again[NOTE_ID_SIZE], of_copy[NOTE_ID_SIZE];
    struct mirror m;
    struct op op;

    temp_dir_make(dir, sizeof(dir));
    op_init(&op, PATIENCE);
    ck_assert_msg(mirror_open(dir, DOOR_MAKE, &op, &m) == 0, "%s", op.why);
    ck_assert_int_eq(cache_id_open(&m, first), 0);
    ck_assert(note_is_id(first));
    ck_assert_int_eq(cache_id_open(&m, again), 0);
    ck_assert_str_eq(first, again);
    m.copied = true;
    ck_assert_int_eq(cache_id_open(&m, of_copy), 0);
    ck_assert_str_ne(first, of_copy);
    m.copied = false;
    ck_assert_int_eq(cache_id_open(&m, again), 0);
    ck_assert_str_eq(of_copy, again);
    ck_assert_int_eq(mirror_write_text(&m, "id", "0123\n"), 0); /* damaged */
    ck_assert_int_eq(cache_id_open(&m, again), 0);
    ck_assert(note_is_id(again));
    ck_assert_int_eq(session_id_draw(first), 0);
    ck_assert_int_eq(session_id_draw(again), 0);
    ck_assert_str_ne(first, again);
    mirror_close(&m);
    temp_dir_remove(dir);
}
END_TEST

/* ---- the lease of this cache ---- */

static atomic_llong now_ns; /* moves when the test says so */

static int64_t test_now(void)
{
    return atomic_load(&now_ns);
}

/* What the hooks heard. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned held, lost;
    uint64_t term;
    char why[320];
} heard = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_held(void *arg, uint64_t term)
{
    ck_assert_ptr_eq(arg, &heard);
    pthread_mutex_lock(&heard.lock);
    heard.held++;
    heard.term = term;
    pthread_cond_broadcast(&heard.changed);
    pthread_mutex_unlock(&heard.lock);
}

static void on_lost(void *arg, const char *why)
{
    ck_assert_ptr_eq(arg, &heard);
    pthread_mutex_lock(&heard.lock);
    heard.lost++;
    (void)snprintf(heard.why, sizeof(heard.why), "%s", why);
    pthread_cond_broadcast(&heard.changed);
    pthread_mutex_unlock(&heard.lock);
}

static void await_heard(unsigned held, unsigned lost)
{
    pthread_mutex_lock(&heard.lock);
    while (heard.held < held || heard.lost < lost)
        pthread_cond_wait(&heard.changed, &heard.lock);
    ck_assert_uint_eq(heard.held, held);
    ck_assert_uint_eq(heard.lost, lost);
    pthread_mutex_unlock(&heard.lock);
}

struct own {
    struct store *fault; /* over mem */
    struct lease *lease;
    struct op op;
};

static void own_open_for(struct own *o, int64_t ttl_ns)
{
    struct store *mem = NULL;

    atomic_store(&now_ns, 1000 * S);
    heard.held = heard.lost = 0;
    op_init(&o->op, PATIENCE);
    ck_assert_int_eq(mem_store_new("mem:", NULL, &o->op, &mem), 0);
    o->fault = layer_fault_new(mem);
    ck_assert_ptr_nonnull(o->fault);
    const struct lease_config config = {.store = o->fault,
                                        .state = STORE_STATE_DIR,
                                        .cache_id = C1,
                                        .session = STORY_ID,
                                        .node = "node",
                                        .ttl_ns = ttl_ns,
                                        .now = test_now,
                                        .held = on_held,
                                        .lost = on_lost,
                                        .arg = &heard};
    o->lease = lease_new(&config);
    ck_assert_ptr_nonnull(o->lease);
}

static void own_open(struct own *o)
{
    own_open_for(o, TTL);
}

static void own_close(struct own *o)
{
    lease_free(o->lease);
    store_close(o->fault);
}

static void pass_time(struct own *o, int64_t ns)
{
    atomic_fetch_add(&now_ns, ns);
    lease_wake(o->lease);
}

/* The number in the lease at the store. */
static uint64_t read_beat(struct own *o)
{
    auto_free char *text = NULL;
    struct lease_body body;
    struct op op;
    size_t len;

    op_init(&op, PATIENCE);
    story_ok(&op, own_read(o->fault, &op, LEASE, &text, &len, NULL));
    ck_assert_int_eq(lease_decode(text, len, &body), 0);
    ck_assert_str_eq(body.node, "node");
    ck_assert_str_eq(body.session, STORY_ID);
    ck_assert_int_eq(body.ttl_ns, TTL);
    uint64_t number = body.beat;
    lease_body_release(&body);
    return number;
}

/* Waits until it is another one. */
static uint64_t await_beat(struct own *o, uint64_t before)
{
    uint64_t beat;

    while ((beat = read_beat(o)) == before)
        ck_assert_int_eq(op_sleep(&o->op, NS_PER_MS), 0);
    return beat;
}

static void fail_puts(struct own *o, bool fail)
{
    const struct fault script = {.kind = CALL_PUT,
                                 .first = 1,
                                 .count = 1000000,
                                 .when = FAULT_BEFORE,
                                 .err = -EHOSTUNREACH};

    layer_fault_script(o->fault, &script, fail);
}

START_TEST(it_is_rewritten_while_somebody_needs_it)
{
    struct own o;
    struct op op;

    own_open(&o);
    ck_assert_int_eq(lease_state(o.lease), LEASE_NONE);
    ck_assert_uint_eq(layer_fault_calls(o.fault), 0); /* idle mounts ask nothing */
    ck_assert_int_eq(lease_need(o.lease), 0);
    await_heard(1, 0);
    ck_assert_int_eq(lease_state(o.lease), LEASE_HELD);
    ck_assert(lease_is_held(o.lease));
    ck_assert_uint_eq(lease_term(o.lease), 1);
    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(lease_bind(o.lease, 1, &op), 0);
    uint64_t beat = read_beat(&o);
    for (int i = 0; i < 10; i++) { /* for more than its ttl */
        pass_time(&o, TTL / 3);
        beat = await_beat(&o, beat);
    }
    /* A request of that term may take longer than one ttl. The last rewrite may just be noted.
     */
    ck_assert_int_ge(atomic_load(op.lease_end_ns), 1000 * S + 3 * TTL);
    ck_assert_uint_eq(lease_term(o.lease), 1);
    await_heard(1, 0);
    ck_assert_int_eq(lease_need(o.lease), 0);
    lease_release(o.lease);
    ck_assert(lease_is_held(o.lease)); /* one needs it still */
    lease_release(o.lease);
    ck_assert_int_eq(lease_state(o.lease), LEASE_NONE);
    ck_assert(!lease_is_held(o.lease));
    own_close(&o);
}
END_TEST

START_TEST(nobody_needs_it_and_it_ends)
{
    struct own o;

    own_open(&o);
    ck_assert_int_eq(lease_need(o.lease), 0);
    await_heard(1, 0);
    uint64_t beat = read_beat(&o);
    lease_release(o.lease);
    pass_time(&o, TTL);
    ck_assert_uint_eq(read_beat(&o), beat);
    ck_assert_int_eq(lease_need(o.lease), 0);
    await_heard(2, 0); /* nobody had it to lose */
    ck_assert_uint_eq(lease_term(o.lease), 2);
    ck_assert_uint_ne(read_beat(&o), beat);
    own_close(&o);
}
END_TEST

START_TEST(it_is_lost_when_it_can_not_be_renewed)
{
    struct op op;
    struct own o;

    own_open(&o);
    ck_assert_int_eq(lease_need(o.lease), 0);
    await_heard(1, 0);
    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(lease_bind(o.lease, 1, &op), 0);
    ck_assert_int_eq(atomic_load(op.lease_end_ns), 1000 * S + TTL);
    ck_assert_int_eq(lease_bind(o.lease, 2, &op), -ESTALE);
    fail_puts(&o, true);
    pass_time(&o, TTL - 1);
    ck_assert(lease_is_held(o.lease));
    atomic_fetch_add(&now_ns, 1); /* its thread has not looked yet */
    ck_assert(!lease_is_held(o.lease));
    ck_assert_int_eq(lease_state(o.lease), LEASE_LOST);
    ck_assert_int_eq(lease_bind(o.lease, 1, &op), -ESTALE);
    ck_assert_ptr_nonnull(strstr(op.why, "nodes/" C1));
    pass_time(&o, TTL);
    await_heard(1, 1);
    ck_assert_str_ne(heard.why, "");
    fail_puts(&o, false);
    pass_time(&o, TTL);
    await_heard(2, 1);
    ck_assert_uint_eq(heard.term, 2);
    ck_assert_int_eq(lease_bind(o.lease, 1, &op), -ESTALE); /* the notes were not read again */
    ck_assert_int_eq(atomic_load(op.lease_end_ns), 1000 * S + TTL); /* what was bound ended */
    ck_assert_int_eq(lease_bind(o.lease, 2, &op), 0);
    own_close(&o);
}
END_TEST

START_TEST(the_first_rewrite_may_fail)
{
    struct own o;

    own_open(&o);
    fail_puts(&o, true);
    ck_assert_int_eq(lease_need(o.lease), 0);
    while (!layer_fault_hits(o.fault))
        ck_assert_int_eq(op_sleep(&o.op, NS_PER_MS), 0);
    ck_assert_int_eq(lease_state(o.lease), LEASE_BEATING);
    fail_puts(&o, false);
    pass_time(&o, TTL);
    await_heard(1, 0);
    own_close(&o);
}
END_TEST

START_TEST(a_request_that_hangs_ends_with_the_mount)
{
    const struct fault script = {
        .kind = CALL_PUT, .first = 1, .when = FAULT_BEFORE, .err = -EIO, .delay_ns = 3600 * S};
    struct own o;

    own_open_for(&o, 3600 * S); /* half of that is how long it would wait */
    layer_fault_script(o.fault, &script, 1);
    ck_assert_int_eq(lease_need(o.lease), 0);
    while (!layer_fault_calls(o.fault))
        ck_assert_int_eq(op_sleep(&o.op, NS_PER_MS), 0);
    own_close(&o);
}
END_TEST

/* ---- the leases of others ---- */

struct judge {
    struct store *fault; /* over mem */
    struct others *others;
};

static void judge_open(struct judge *j)
{
    struct store *mem = NULL;
    struct op op;

    atomic_store(&now_ns, 1000 * S);
    op_init(&op, PATIENCE);
    ck_assert_int_eq(mem_store_new("mem:", NULL, &op, &mem), 0);
    j->fault = layer_fault_new(mem);
    const struct others_config config = {.store = j->fault,
                                         .state = STORE_STATE_DIR,
                                         .ttl_ns = TTL,
                                         .late_ns = LATE,
                                         .now = test_now};
    j->others = others_new(&config);
    ck_assert_ptr_nonnull(j->others);
}

static void judge_close(struct judge *j)
{
    others_free(j->others);
    store_close(j->fault);
}

static void beat(struct judge *j, const char *session, int64_t ttl_ns, uint64_t number)
{
    struct lease_body b = {.node = (char *)"n", .ttl_ns = ttl_ns, .beat = number};

    (void)snprintf(b.session, sizeof(b.session), "%s", session);
    auto_free char *text = lease_encode(&b);
    put_text(j->fault, LEASE, text);
}

/* Looks whenever something is due, for so long. */
static void watch_for(struct judge *j, int64_t ns)
{
    int64_t end_ns = test_now() + ns;

    for (;;) {
        others_look(j->others, NULL);
        int64_t next_ns = others_next_ns(j->others);
        ck_assert_int_gt(next_ns, test_now());
        if (next_ns > end_ns)
            break;
        atomic_store(&now_ns, next_ns);
    }
    atomic_store(&now_ns, end_ns);
}

/* From the first look at what is there now until it has ended. */
static int64_t ns_until_ended(struct judge *j)
{
    int64_t began_ns = test_now();

    while (others_state(j->others, C1) != OTHER_ENDED) {
        ck_assert_int_lt(test_now() - began_ns, 3600 * S);
        watch_for(j, S);
    }
    return test_now() - began_ns;
}

static void must_end_after(struct judge *j, int64_t least_ns)
{
    int64_t ns = ns_until_ended(j);

    ck_assert_int_ge(ns, least_ns);
    ck_assert_int_le(ns, least_ns + least_ns / 4);
}

START_TEST(one_that_beats_lives)
{
    struct judge j;

    judge_open(&j);
    ck_assert_int_eq(others_state(j.others, C1), OTHER_UNKNOWN);
    ck_assert_int_eq(others_next_ns(j.others), INT64_MAX);
    beat(&j, STORY_ID, TTL, 1);
    ck_assert_int_eq(others_watch(j.others, C1), 0);
    ck_assert_int_eq(others_state(j.others, C1), OTHER_UNKNOWN);
    for (uint64_t i = 2; i < 30; i++) {
        watch_for(&j, 70 * S); /* less than what it takes to end */
        ck_assert_int_eq(others_state(j.others, C1), OTHER_LIVES);
        beat(&j, STORY_ID, TTL, i);
    }
    watch_for(&j, 10 * S); /* until the last is seen */
    must_end_after(&j, TTL + LATE + 5 * S - 10 * S);
    beat(&j, C2, TTL, 29); /* the same number of another session */
    watch_for(&j, 10 * S);
    ck_assert_int_eq(others_state(j.others, C1), OTHER_LIVES);
    others_unwatch(j.others, C1);
    ck_assert_int_eq(others_state(j.others, C1), OTHER_UNKNOWN);
    ck_assert_int_eq(others_next_ns(j.others), INT64_MAX);
    judge_close(&j);
}
END_TEST

START_TEST(its_ttl_is_what_it_says)
{
    struct judge j;

    judge_open(&j);
    beat(&j, STORY_ID, 300 * S, 1);
    ck_assert_int_eq(others_watch(j.others, C1), 0);
    must_end_after(&j, 300 * S + LATE + 5 * S);
    judge_close(&j);
}
END_TEST

/* 0: there is none; 1: no JSON; 2: too large. */
START_TEST(one_that_says_nothing_counts_as_a_version)
{
    auto_free char *big = malloc(NOTE_BODY_MAX + 2);
    struct judge j;

    judge_open(&j);
    memset(big, ' ', NOTE_BODY_MAX + 1);
    big[NOTE_BODY_MAX + 1] = '\0';
    if (_i == 1)
        put_text(j.fault, LEASE, "{");
    else if (_i == 2)
        put_text(j.fault, LEASE, big);
    ck_assert_int_eq(others_watch(j.others, C1), 0);
    must_end_after(&j, TTL + LATE + 5 * S);
    beat(&j, STORY_ID, TTL, 1);
    watch_for(&j, 10 * S);
    ck_assert_int_eq(others_state(j.others, C1), OTHER_LIVES);
    judge_close(&j);
}
END_TEST

START_TEST(one_look_may_fail)
{
    const struct fault script = {
        .kind = CALL_READ, .first = 3, .when = FAULT_BEFORE, .err = -EHOSTUNREACH};
    struct judge j;

    judge_open(&j);
    beat(&j, STORY_ID, TTL, 1);
    layer_fault_script(j.fault, &script, 1);
    ck_assert_int_eq(others_watch(j.others, C1), 0);
    must_end_after(&j, TTL + LATE + 5 * S);
    ck_assert_uint_eq(layer_fault_hits(j.fault), 1);
    judge_close(&j);
}
END_TEST

START_TEST(what_fails_is_no_look)
{
    const struct fault script = {.kind = CALL_READ,
                                 .first = 1,
                                 .count = 1000000,
                                 .when = FAULT_BEFORE,
                                 .err = -EHOSTUNREACH};
    struct judge j;

    judge_open(&j);
    beat(&j, STORY_ID, TTL, 1);
    ck_assert_int_eq(others_watch(j.others, C1), 0);
    watch_for(&j, 70 * S);
    layer_fault_script(j.fault, &script, 1);
    watch_for(&j, 30 * S);
    ck_assert_uint_gt(layer_fault_hits(j.fault), 1); /* it goes on trying */
    ck_assert_int_eq(others_state(j.others, C1), OTHER_UNKNOWN);
    layer_fault_script(j.fault, NULL, 0);
    watch_for(&j, 10 * S);
    ck_assert_int_eq(others_state(j.others, C1), OTHER_LIVES); /* the time counts anew */
    must_end_after(&j, TTL + LATE + 5 * S - 10 * S);
    judge_close(&j);
}
END_TEST

START_TEST(who_watches_is_counted)
{
    const atomic_bool cancelled = true;
    struct judge j;

    judge_open(&j);
    ck_assert_int_eq(others_watch(j.others, C1), 0);
    ck_assert_int_eq(others_watch(j.others, C1), 0);
    ck_assert_int_eq(others_watch(j.others, C2), 0);
    others_look(j.others, &cancelled);
    ck_assert_uint_eq(layer_fault_calls(j.fault), 0);
    others_look(j.others, NULL);
    ck_assert_uint_eq(layer_fault_calls(j.fault), 2); /* one of each */
    others_look(j.others, NULL);
    ck_assert_uint_eq(layer_fault_calls(j.fault), 2); /* nothing is due */
    others_unwatch(j.others, C1);
    ck_assert_int_eq(others_state(j.others, C1), OTHER_LIVES);
    others_unwatch(j.others, C1);
    ck_assert_int_eq(others_state(j.others, C1), OTHER_UNKNOWN);
    judge_close(&j);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_notes");
    TCase *t = tcase_create("cache_notes");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, notes_in_memory);
    tcase_add_test(t, notes_beside_a_folder);
    tcase_add_test(t, notes_of_one_store_of_several);
    tcase_add_test(t, what_others_put_there_is_passed_over);
    tcase_add_test(t, a_cache_keeps_its_id);
    tcase_add_test(t, it_is_rewritten_while_somebody_needs_it);
    tcase_add_test(t, nobody_needs_it_and_it_ends);
    tcase_add_test(t, it_is_lost_when_it_can_not_be_renewed);
    tcase_add_test(t, the_first_rewrite_may_fail);
    tcase_add_test(t, a_request_that_hangs_ends_with_the_mount);
    tcase_add_test(t, one_that_beats_lives);
    tcase_add_test(t, its_ttl_is_what_it_says);
    tcase_add_loop_test(t, one_that_says_nothing_counts_as_a_version, 0, 3);
    tcase_add_test(t, one_look_may_fail);
    tcase_add_test(t, what_fails_is_no_look);
    tcase_add_test(t, who_watches_is_counted);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
