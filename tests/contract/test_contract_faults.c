/* What each layer adds, with faults made on purpose: lost answers, cut reads and listings,
 * pauses, deadlines, counts. One scenario is run again with its 1st, 2nd, 3rd ... call failing,
 * until none fails. */
#include "backends/drivers.h"
#include "backends/layers/fault.h"
#include "backends/layers/layers.h"
#include "common/log.h"
#include "common/mem.h"
#include "tests/lib/cancel.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PATIENCE (60 * NS_PER_SEC)

static const struct backoff_policy quick = {
    .first_ns = 1000, .max_ns = NS_PER_MS, .attempts = 4};

/* retry > stats > fault > mem, and the bare mem below, as another node has it. */
struct rig {
    struct store *s, *fault, *mem;
    struct op op;
};

static void rig_open(struct rig *g, const struct backoff_policy *policy)
{
    op_init(&g->op, PATIENCE);
    ck_assert_int_eq(mem_store_new("mem:", NULL, &g->op, &g->mem), 0);
    g->fault = layer_fault_new(g->mem);
    g->s = layer_retry_new(layer_stats_new(g->fault), policy);
    ck_assert_ptr_nonnull(g->s);
}

static void rig_close(struct rig *g)
{
    store_close(g->s);
}

static void script(struct rig *g, struct fault f)
{
    layer_fault_script(g->fault, &f, 1);
}

static int put(struct store *s, struct op *op, const char *key, const char *etag,
               const char *text, const struct attrs *attrs, struct object *obj)
{
    struct mem_source src;

    mem_source_init(&src, text, strlen(text));
    return store_put(s, op, key, etag, &src.base, attrs, obj);
}

static void assert_text(struct store *s, const char *key, const char *text)
{
    struct mem_sink sink;
    char buf[256];
    struct op op;

    op_init(&op, PATIENCE);
    mem_sink_init(&sink, buf, sizeof(buf), 0);
    ssize_t n = store_read(s, &op, key, NULL, &sink.base, sizeof(buf), 0, NULL);
    ck_assert_msg(n >= 0, "%s: %zd %s", key, n, op.why);
    ck_assert_uint_eq((size_t)n, strlen(text));
    ck_assert_mem_eq(buf, text, (size_t)n);
}

/* ---- every call fails once ---- */

#define ok(g, expression)                                                                      \
    do {                                                                                       \
        int ok_r_ = (int)(expression);                                                         \
        ck_assert_msg(ok_r_ == 0, "%s: %d %s", #expression, ok_r_, (g)->op.why);               \
    } while (0)

static int count_visit(void *arg, const char *name, const struct object *obj)
{
    (void)name, (void)obj;
    ++*(int *)arg;
    return 0;
}

static void upload_parts(struct rig *g, const struct attrs *a)
{
    struct mem_source src;
    struct upload *up;

    ok(g, store_upload_begin(g->s, &g->op, "parts", a, &up));
    mem_source_init(&src, "first ", 6);
    ok(g, store_upload_part(up, &g->op, 1, &src.base));
    mem_source_init(&src, "last", 4);
    ok(g, store_upload_part(up, &g->op, 2, &src.base));
    ok(g, store_upload_commit(up, &g->op, "", NULL));
    ok(g, store_upload_begin(g->s, &g->op, "aborted", a, &up));
    (void)store_upload_abort(up, &g->op); /* not repeated: may fail, and then a session stays */
}

static void run_scenario(struct rig *g)
{
    struct attrs a = {
        .has = ATTR_MTIME | ATTR_MODE, .mode = S_IFREG | 0600, .mtime_ns = 1234567};
    struct attrs later = {.has = ATTR_MTIME, .mtime_ns = 7654321};
    const char *keys[] = {"gone1", "gone2"};
    struct object v1, v2;
    int names = 0;

    ok(g, put(g->s, &g->op, "object", "", "one", NULL, &v1));
    ok(g, put(g->s, &g->op, "object", v1.etag, "two", &a, &v2));
    upload_parts(g, &a);
    ok(g, store_copy(g->s, &g->op, "object", v2.etag, "copied", "", NULL, NULL));
    ok(g, store_set_attributes(g->s, &g->op, "object", v2.etag, &later, NULL));
    ok(g, store_rename(g->s, &g->op, "copied", "dir/renamed"));
    ok(g, put(g->s, &g->op, "gone1", NULL, "x", NULL, NULL));
    ok(g, store_remove(g->s, &g->op, keys, NULL, 2, NULL));
    ok(g, store_mkdir(g->s, &g->op, "made", NULL, NULL));
    ok(g, store_mkdir(g->s, &g->op, "unmade", NULL, NULL));
    ok(g, store_rmdir(g->s, &g->op, "unmade"));
    ok(g, store_list(g->s, &g->op, "", 0, count_visit, &names));
    ck_assert_int_eq(names, 4); /* object, parts, dir, made */
    assert_text(g->s, "object", "two");
    object_release(&v1);
    object_release(&v2);
}

static void check_outcome(struct rig *g)
{
    struct object obj;

    assert_text(g->mem, "object", "two");
    assert_text(g->mem, "parts", "first last");
    assert_text(g->mem, "dir/renamed", "two");
    ok(g, store_stat(g->mem, &g->op, "object", &obj));
    ck_assert_int_eq(obj.attrs.mtime_ns, 7654321);
    object_release(&obj);
    ok(g, store_stat(g->mem, &g->op, "parts", &obj));
    ck_assert_int_eq(obj.attrs.mtime_ns, 1234567);
    object_release(&obj);
    ck_assert_int_eq(store_stat(g->mem, &g->op, "copied", &obj), -ENOENT);
    ck_assert_int_eq(store_stat(g->mem, &g->op, "gone1", &obj), -ENOENT);
    ck_assert_int_eq(store_stat(g->mem, &g->op, "unmade", &obj), -ENOENT);
}

START_TEST(every_call_may_fail_once)
{
    static const int errors[] = {-EAGAIN, -EIO, -EPROTO, -ECONNRESET, -ETIMEDOUT};
    unsigned rounds = 0;

    for (unsigned n = 1;; n++, rounds++) {
        struct rig g;
        rig_open(&g, &quick);
        script(&g, (struct fault){.kind = FAULT_ANY_KIND,
                                  .first = n,
                                  .when = _i ? FAULT_AFTER : FAULT_BEFORE,
                                  .err = errors[n % ARRAY_SIZE(errors)]});
        run_scenario(&g);
        unsigned hits = layer_fault_hits(g.fault);
        layer_fault_script(g.fault, NULL, 0);
        check_outcome(&g);
        rig_close(&g);
        if (!hits)
            break;
    }
    ck_assert_uint_ge(rounds, 18); /* calls of the scenario */
}
END_TEST

/* ---- whose work is it? ---- */

START_TEST(lost_answers_prove_nothing_about_others)
{
    struct rig g;
    struct object v1;

    rig_open(&g, &quick);
    /* The put failed before it had an effect, and then another node wrote. */
    ok(&g, put(g.mem, &g.op, "object", NULL, "other", NULL, NULL));
    script(&g, (struct fault){.kind = CALL_PUT, .first = 1, .err = -EIO});
    ck_assert_int_eq(put(g.s, &g.op, "object", "", "mine!", NULL, NULL), -ESTALE);
    ck_assert_ptr_nonnull(strstr(g.op.why, "version"));
    assert_text(g.mem, "object", "other");
    /* The same bytes with another time are another's, too. */
    struct attrs a = {.has = ATTR_MTIME, .mtime_ns = 42},
                 b = {.has = ATTR_MTIME, .mtime_ns = 43};
    ok(&g, put(g.mem, &g.op, "timed", NULL, "same", &a, NULL));
    script(&g, (struct fault){.kind = CALL_PUT, .first = 1, .err = -EIO});
    ck_assert_int_eq(put(g.s, &g.op, "timed", "", "same", &b, NULL), -ESTALE);
    /* With the same bytes it does not matter whose they are ... */
    ok(&g, put(g.mem, &g.op, "again", NULL, "same", NULL, &v1));
    script(&g, (struct fault){.kind = CALL_PUT, .first = 1, .err = -EIO});
    ck_assert_int_eq(put(g.s, &g.op, "again", "no such version", "same", NULL, NULL), 0);
    /* ... but a conflict is a conflict when no answer was lost before it. */
    script(&g, (struct fault){.kind = CALL_PUT, .first = 1, .err = -ESTALE});
    ck_assert_int_eq(put(g.s, &g.op, "again", v1.etag, "same", NULL, NULL), -ESTALE);
    object_release(&v1);
    rig_close(&g);
}
END_TEST

/* Whoever asked for a change that was repeated learns that an attempt may still arrive. "Slow
 * down" is an answer: nothing is on its way then. */
START_TEST(repeated_changes_leave_attempts_behind)
{
    const char *keys[] = {"object"};
    struct rig g;

    rig_open(&g, &quick);
    ok(&g, store_remove(g.s, &g.op, keys, NULL, 1, NULL));
    ck_assert(!g.op.left_behind);
    script(&g, (struct fault){.kind = CALL_REMOVE, .first = 1, .err = -EAGAIN});
    ok(&g, store_remove(g.s, &g.op, keys, NULL, 1, NULL));
    ck_assert(!g.op.left_behind);
    script(&g, (struct fault){.kind = CALL_REMOVE, .first = 1, .err = -ETIMEDOUT});
    ok(&g, store_remove(g.s, &g.op, keys, NULL, 1, NULL));
    ck_assert(g.op.left_behind);
    rig_close(&g);
}
END_TEST

/* Both nodes keep the time, as chmod does: it does not tell whose change is there. */
START_TEST(lost_chmods_prove_nothing_about_others)
{
    static const struct attrs others[] = {
        {.has = ATTR_MODE | ATTR_MTIME, .mode = S_IFREG | 0600, .mtime_ns = 7},
        {.has = ATTR_MODE | ATTR_OWNER | ATTR_MTIME,
         .mode = S_IFREG | 0640,
         .uid = 2,
         .mtime_ns = 7},
        {.has = ATTR_MODE | ATTR_XATTRS | ATTR_MTIME,
         .mode = S_IFREG | 0640,
         .xattrs = (char *)"{\"user.a\":\"eA==\"}",
         .mtime_ns = 7}};
    static const struct attrs mine = {.has = ATTR_MODE | ATTR_OWNER | ATTR_XATTRS | ATTR_MTIME,
                                      .mode = S_IFREG | 0640,
                                      .mtime_ns = 7};
    struct object v1;
    struct rig g;

    rig_open(&g, &quick);
    for (size_t i = 0; i < 4; i++) {
        const struct attrs *theirs = i < 3 ? &others[i] : &mine; /* who may have been us */

        ok(&g, put(g.mem, &g.op, "object", NULL, "text", &others[0], &v1));
        ok(&g, store_set_attributes(g.mem, &g.op, "object", v1.etag, theirs, NULL));
        script(&g, (struct fault){.kind = CALL_SETATTR, .first = 1, .err = -EIO});
        int r = store_set_attributes(g.s, &g.op, "object", v1.etag, &mine, NULL);
        ck_assert_msg(r == (i < 3 ? -ESTALE : 0), "%zu: %d %s", i, r, g.op.why);
        object_release(&v1);
    }
    rig_close(&g);
}
END_TEST

START_TEST(lost_commits_prove_nothing_about_others)
{
    struct attrs a = {.has = ATTR_MTIME, .mtime_ns = 42},
                 b = {.has = ATTR_MTIME, .mtime_ns = 43};
    struct mem_source src;
    struct upload *up;
    struct rig g;

    rig_open(&g, &quick);
    ok(&g, store_upload_begin(g.s, &g.op, "object", &a, &up));
    mem_source_init(&src, "mine!", 5);
    ok(&g, store_upload_part(up, &g.op, 1, &src.base));
    ok(&g, put(g.mem, &g.op, "object", NULL, "other", &b, NULL));
    script(&g, (struct fault){.kind = CALL_COMMIT, .first = 1, .err = -EIO});
    ck_assert_int_eq(store_upload_commit(up, &g.op, "", NULL), -ESTALE);
    assert_text(g.mem, "object", "other");
    ck_assert_int_eq(store_upload_abort(up, &g.op), 0);
    rig_close(&g);
}
END_TEST

/* ---- reads and listings that break off ---- */

struct counting_sink {
    struct mem_sink mem;
    struct sink base;
    size_t bytes;
};

static int count_write(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct counting_sink *k = container_of(sink, struct counting_sink, base);

    k->bytes += len;
    return k->mem.base.write(&k->mem.base, data, len, off);
}

START_TEST(reads_continue_where_they_broke_off)
{
    const char *text = "0123456789";
    struct object obj;
    struct rig g;

    rig_open(&g, &quick);
    ok(&g, put(g.mem, &g.op, "object", NULL, text, NULL, &obj));
    for (int pinned = 0; pinned < 2; pinned++) {
        struct counting_sink k = {.base = {count_write}};
        struct fault cuts = {CALL_READ, 1, 2, FAULT_CUT, -ECONNRESET, .after = 4};
        char buf[10] = "";

        mem_sink_init(&k.mem, buf, sizeof(buf), 0);
        script(&g, cuts);
        ssize_t n =
            store_read(g.s, &g.op, "object", pinned ? obj.etag : NULL, &k.base, 10, 0, NULL);
        ck_assert_int_eq(n, 10);
        ck_assert_mem_eq(buf, text, 10);
        /* Of a known version each byte comes once; else each attempt starts over. */
        ck_assert_uint_eq(k.bytes, pinned ? 10 : 4 + 4 + 10);
    }
    object_release(&obj);
    rig_close(&g);
}
END_TEST

/* Another node replaces the object when the first bytes have arrived. */
struct replacing_sink {
    struct sink base;
    struct rig *rig;
};

static int replace_then_fail(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct replacing_sink *k = container_of(sink, struct replacing_sink, base);
    struct op op;

    (void)data, (void)len;
    op_init(&op, PATIENCE);
    return off == 0 ? put(k->rig->mem, &op, "object", NULL, "abcdefghij", NULL, NULL) : 0;
}

START_TEST(reads_never_mix_versions)
{
    struct fault cut = {CALL_READ, 1, 1, FAULT_CUT, -EIO, .after = 4};
    struct object obj;
    struct rig g;

    rig_open(&g, &quick);
    struct replacing_sink k = {{replace_then_fail}, &g};
    ok(&g, put(g.mem, &g.op, "object", NULL, "0123456789", NULL, &obj));
    script(&g, cut);
    ck_assert_int_eq(store_read(g.s, &g.op, "object", obj.etag, &k.base, 10, 0, NULL), -ESTALE);
    object_release(&obj);
    rig_close(&g);
}
END_TEST

START_TEST(listings_visit_each_name_once)
{
    struct fault cut = {CALL_LIST, 1, 3, FAULT_CUT, -EAGAIN, .after = 7};
    struct rig g;
    int names = 0;
    char key[16];

    rig_open(&g, &quick);
    for (int i = 0; i < 3000; i++) { /* more than the set of seen names begins with */
        (void)snprintf(key, sizeof(key), "dir/%d", i);
        ok(&g, put(g.mem, &g.op, key, NULL, "", NULL, NULL));
    }
    cut.after = 2000;
    script(&g, cut);
    ok(&g, store_list(g.s, &g.op, "dir", 0, count_visit, &names));
    ck_assert_int_eq(names, 3000);
    ck_assert_uint_eq(layer_fault_hits(g.fault), 3);
    rig_close(&g);
}
END_TEST

/* ---- when to repeat, and when not ---- */

static ssize_t broken_pread(struct source *src, void *buf, size_t len, uint64_t off)
{
    (void)src, (void)buf, (void)len, (void)off;
    return -EIO;
}

static int broken_write(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    (void)sink, (void)data, (void)len, (void)off;
    return -EIO;
}

static int broken_visit(void *arg, const char *name, const struct object *obj)
{
    (void)arg, (void)name, (void)obj;
    return -EIO;
}

START_TEST(what_can_not_help_is_not_repeated)
{
    struct source src = {.size = 5, .pread = broken_pread};
    struct sink sink = {.write = broken_write};
    struct object obj;
    struct rig g;

    rig_open(&g, &quick);
    ok(&g, put(g.mem, &g.op, "object", NULL, "text", NULL, NULL));
    script(&g, (struct fault){.kind = CALL_STAT, .first = 1, .count = 9, .err = -EACCES});
    ck_assert_int_eq(store_stat(g.s, &g.op, "object", &obj), -EACCES);
    ck_assert_uint_eq(layer_fault_calls(g.fault), 1);
    layer_fault_script(g.fault, NULL, 0);
    ck_assert_int_eq(store_put(g.s, &g.op, "new", NULL, &src, NULL, NULL), -EIO);
    ck_assert_int_eq(store_read(g.s, &g.op, "object", NULL, &sink, 4, 0, NULL), -EIO);
    ck_assert_int_eq(store_list(g.s, &g.op, "", 0, broken_visit, NULL), -EIO);
    ck_assert_uint_eq(layer_fault_calls(g.fault), 3);
    rig_close(&g);
}
END_TEST

START_TEST(attempts_are_limited)
{
    struct object obj;
    struct rig g;

    rig_open(&g, &quick);
    script(&g,
           (struct fault){.kind = CALL_STAT, .first = 1, .count = 99, .err = -ECONNREFUSED});
    ck_assert_int_eq(store_stat(g.s, &g.op, "object", &obj), -ECONNREFUSED);
    ck_assert_uint_eq(layer_fault_calls(g.fault), 4);
    ck_assert_ptr_nonnull(strstr(g.op.why, "scripted"));
    script(&g, (struct fault){.kind = CALL_STAT, .first = 1, .count = 99, .err = -EAGAIN});
    ck_assert_int_eq(store_stat(g.s, &g.op, "object", &obj), -ETIMEDOUT);
    rig_close(&g);
}
END_TEST

START_TEST(deadlines_and_pauses_hold)
{
    static const struct backoff_policy endless = {.first_ns = NS_PER_MS,
                                                  .max_ns = 5 * NS_PER_MS};
    struct object obj;
    struct rig g;
    int64_t start;

    rig_open(&g, &endless);
    script(&g, (struct fault){.kind = CALL_STAT, .first = 1, .count = 99999, .err = -EAGAIN});
    start = clock_mono_ns();
    op_init(&g.op, NS_PER_SEC);
    ck_assert_int_eq(store_stat(g.s, &g.op, "object", &obj), -ETIMEDOUT);
    ck_assert_int_lt(clock_mono_ns() - start, 10 * NS_PER_SEC);
    ck_assert_uint_gt(layer_fault_calls(g.fault), 3);
    ck_assert_ptr_nonnull(strstr(g.op.why, "scripted"));

    op_init(&g.op, PATIENCE);
    ok(&g, put(g.mem, &g.op, "object", NULL, "x", NULL, NULL));
    script(&g, (struct fault){.kind = CALL_STAT,
                              .first = 1,
                              .err = -EAGAIN,
                              .retry_after_ns = 80 * NS_PER_MS});
    start = clock_mono_ns();
    op_init(&g.op, PATIENCE);
    ok(&g, store_stat(g.s, &g.op, "object", &obj));
    ck_assert_int_ge(clock_mono_ns() - start, 80 * NS_PER_MS);
    object_release(&obj);
    rig_close(&g);
}
END_TEST

START_TEST(a_cancel_ends_the_wait)
{
    atomic_bool cancelled = false;
    struct object obj;
    pthread_t t;
    struct rig g;

    rig_open(&g, &quick);
    script(&g, (struct fault){.kind = CALL_STAT,
                              .first = 1,
                              .err = -EAGAIN,
                              .retry_after_ns = 3600 * NS_PER_SEC});
    op_init(&g.op, OP_FOREVER);
    g.op.cancelled = &cancelled;
    ck_assert_int_eq(pthread_create(&t, NULL, cancel_soon, &cancelled), 0);
    ck_assert_int_eq(store_stat(g.s, &g.op, "object", &obj), -EINTR);
    pthread_join(t, NULL);
    rig_close(&g);
}
END_TEST

/* ---- stats and trace ---- */

START_TEST(stats_count_what_reached_the_driver)
{
    struct store_stats t;
    struct object obj;
    struct rig g;

    rig_open(&g, &quick);
    script(&g, (struct fault){.kind = CALL_PUT, .first = 1, .err = -EIO});
    ok(&g, put(g.s, &g.op, "object", NULL, "12345", NULL, NULL));
    assert_text(g.s, "object", "12345");
    ck_assert_int_eq(store_stat(g.s, &g.op, "nothing", &obj), -ENOENT);
    store_get_stats(g.s, &t);
    ck_assert_uint_eq(t.requests, 4);
    ck_assert_uint_eq(t.puts, 2);
    ck_assert_uint_eq(t.reads, 1);
    ck_assert_uint_eq(t.stats, 1);
    ck_assert_uint_eq(t.failures, 1);
    ck_assert_uint_eq(t.retries, 1);
    ck_assert_uint_eq(t.bytes_written, 5);
    ck_assert_uint_eq(t.bytes_read, 5);
    rig_close(&g);
}
END_TEST

START_TEST(trace_tells_call_and_outcome)
{
    char path[] = "/tmp/runfs-test-trace-XXXXXX", text[4096];
    struct object obj;
    struct store *s;
    struct op op;

    auto_close int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(log_to_file(AT_FDCWD, path), 0);
    log_set_level(LOG_LEVEL_DEBUG);
    op_init(&op, PATIENCE);
    ck_assert_int_eq(mem_store_new("mem:", NULL, &op, &s), 0);
    s = layer_trace_new(s);
    ck_assert_int_eq(put(s, &op, "dir/a\nb", NULL, "x", NULL, NULL), 0);
    ck_assert_int_eq(store_stat(s, &op, "nothing", &obj), -ENOENT);
    ck_assert_int_eq(store_rename(s, &op, "dir/a\nb", "c"), 0);
    store_close(s);
    log_set_level(LOG_LEVEL_INFO);
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    ck_assert_int_gt(n, 0);
    text[n] = '\0';
    ck_assert_ptr_nonnull(strstr(text, "debug put mem:/dir/a\\x0ab: 0 after "));
    ck_assert_ptr_nonnull(strstr(text, "debug stat mem:/nothing: ENOENT after "));
    ck_assert_ptr_nonnull(strstr(text, "debug rename mem:/dir/a\\x0ab to c: 0 after "));
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("layers");
    TCase *t = tcase_create("layers");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, every_call_may_fail_once, 0, 2);
    tcase_add_test(t, lost_answers_prove_nothing_about_others);
    tcase_add_test(t, repeated_changes_leave_attempts_behind);
    tcase_add_test(t, lost_chmods_prove_nothing_about_others);
    tcase_add_test(t, lost_commits_prove_nothing_about_others);
    tcase_add_test(t, reads_continue_where_they_broke_off);
    tcase_add_test(t, reads_never_mix_versions);
    tcase_add_test(t, listings_visit_each_name_once);
    tcase_add_test(t, what_can_not_help_is_not_repeated);
    tcase_add_test(t, attempts_are_limited);
    tcase_add_test(t, deadlines_and_pauses_hold);
    tcase_add_test(t, a_cancel_ends_the_wait);
    tcase_add_test(t, stats_count_what_reached_the_driver);
    tcase_add_test(t, trace_tells_call_and_outcome);
    suite_add_tcase(s, t);
    return suite_run(s);
}
