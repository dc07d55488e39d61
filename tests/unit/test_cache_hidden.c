/* Which units that others have not finished to publish or to remove a mount does not show. */
#include "backends/drivers.h"
#include "cache/blocking.h"
#include "tests/lib/others_notes.h"
#include "tests/lib/suite.h"

#include <pthread.h>
#include <sys/stat.h>

/* The directory, as who has it open or is in it. */
static struct node *held(const char *path)
{
    struct node *n = NULL;
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(cache_walk(d.cache, path, &op, &n), 0);
    return n;
}

static int count_name(void *arg, const char *name, struct node *node, const struct stat *st,
                      uint64_t next)
{
    int *n = arg;

    (void)node, (void)st, (void)next;
    *n += strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    return 0;
}

static int names_in(struct node *dir)
{
    struct dirhandle *h = NULL;
    struct blocking b;
    struct op op;
    int n = 0, r;

    op_init(&op, 20 * NS_PER_SEC);
    blocking_init(&b, d.cache, NULL);
    BLOCK(b, &op, r, cache_opendir(d.cache, dir, &b.w, &h));
    ck_assert_msg(r == 0, "%d %s", r, op.why);
    ck_assert_int_eq(cache_readdir(d.cache, h, 0, false, &b.w, count_name, &n), 0);
    cache_releasedir(d.cache, h);
    return n;
}

/* ---- which notes hide ---- */

static const struct {
    enum note_kind kind;
    bool hides;
} kinds[] = {{NOTE_OPEN, true},
             {NOTE_LAST, true},
             {NOTE_GONE, true},
             {NOTE_TAKE, false},
             {NOTE_LOCK, false}};

START_TEST(notes_of_others_hide)
{
    impatient();
    driven_mount(&d);
    note(kinds[_i].kind, "r", "checkpoint-1", THEIRS);
    file("r/checkpoint-1/x");
    file("r/checkpoint-2/x");
    file("r/plain");
    shows("r", "checkpoint-1", !kinds[_i].hides);
    shows("r", "checkpoint-2", true);
    ck_assert(shown("r/plain"));
    ck_assert_int_eq(driven_list(&d, "r"), kinds[_i].hides ? 2 : 3);
    note_goes(kinds[_i].kind, "r", "checkpoint-1", THEIRS);
    DRIVEN_WAIT(driven_list(&d, "r") == 3);
    shows("r", "checkpoint-1", true);
}
END_TEST

/* What came by a rename has any name; what is in a unit, or in no unit at all, has no notes. */
START_TEST(any_name_may_be_a_unit)
{
    driven_mount(&d);
    note(NOTE_OPEN, "r", "as you like 100%", THEIRS);
    note(NOTE_OPEN, "r/checkpoint-1", "x", THEIRS);
    file("r/as you like 100%/x");
    file("r/checkpoint-1/x/x");
    shows("r", "as you like 100%", false);
    shows("r/checkpoint-1", "x", true);
}
END_TEST

static const struct {
    enum seal_says says;
    bool counts;
} seals[] = {{SAYS_RIGHT, true},
             {SAYS_OTHER_VERSION, false},
             {SAYS_OTHER_TIME, false},
             {SAYS_OTHER_NAME, false},
             {SAYS_NOTHING, false}};

START_TEST(a_seal_counts_with_its_tail)
{
    driven_mount(&d);
    note(_i % 2 ? NOTE_LAST : NOTE_OPEN, "r", "checkpoint-1", THEIRS);
    file("r/checkpoint-1/x");
    file("r/checkpoint-1/tail");
    seal("r", "checkpoint-1", THEIRS, "tail", seals[_i].says);
    shows("r", "checkpoint-1", seals[_i].counts);
}
END_TEST

START_TEST(a_seal_does_not_outlast_its_tail)
{
    driven_mount(&d);
    note(NOTE_OPEN, "r", "checkpoint-1", THEIRS);
    file("r/checkpoint-1/x");
    file("r/checkpoint-1/tail");
    seal("r", "checkpoint-1", THEIRS, "tail", SAYS_RIGHT);
    store_loses("r/checkpoint-1/tail");
    shows("r", "checkpoint-1", false);
}
END_TEST

START_TEST(each_writer_needs_a_seal)
{
    impatient();
    driven_mount(&d);
    note(NOTE_OPEN, "r", "checkpoint-1", THEIRS);
    note(NOTE_OPEN, "r", "checkpoint-1", OTHERS);
    file("r/checkpoint-1/x");
    file("r/checkpoint-1/tail");
    file("r/checkpoint-1/tail-2");
    seal("r", "checkpoint-1", _i ? OTHERS : THEIRS, "tail", SAYS_RIGHT);
    shows("r", "checkpoint-1", false);
    seal("r", "checkpoint-1", _i ? THEIRS : OTHERS, "tail-2", SAYS_RIGHT);
    DRIVEN_WAIT(shown("r/checkpoint-1"));
    shows("r", "checkpoint-1", true);
}
END_TEST

/* A removal hides what is sealed, too. */
START_TEST(no_seal_counts_against_a_removal)
{
    driven_mount(&d);
    note(NOTE_GONE, "r", "checkpoint-1", THEIRS);
    file("r/checkpoint-1/x");
    seal("r", "checkpoint-1", THEIRS, "x", SAYS_RIGHT);
    shows("r", "checkpoint-1", false);
}
END_TEST

/* ---- what was shown before ---- */

START_TEST(what_is_known_goes)
{
    impatient();
    driven_mount(&d);
    file("r/checkpoint-1/x");
    file("r/checkpoint-1/sub/y");
    shows("r", "checkpoint-1", true);
    driven_shows(&d, "r/checkpoint-1/x", "r/checkpoint-1/x");
    ck_assert(shown("r/checkpoint-1/sub/y"));
    note(NOTE_GONE, "r", "checkpoint-1", THEIRS);
    if (_i)
        DRIVEN_WAIT(driven_list(&d, "r") == 0);
    DRIVEN_WAIT(!shown("r/checkpoint-1/sub/y"));
    DRIVEN_WAIT(!shown("r/checkpoint-1"));
    shows("r", "checkpoint-1", false);
}
END_TEST

/* Nobody lists what is above: who is in it looks at its own names, and finds none. */
START_TEST(it_goes_under_who_is_in_it)
{
    impatient();
    driven_mount(&d);
    file("r/checkpoint-1/sub/y");
    struct node *dir = held("r/checkpoint-1/sub");
    ck_assert_int_eq(names_in(dir), 1);
    note(NOTE_GONE, "r", "checkpoint-1", THEIRS);
    DRIVEN_WAIT(names_in(dir) == 0);
    cache_forget(d.cache, dir, 1);
}
END_TEST

/* What the cache's disk does not let go is not filled again. */
START_TEST(it_is_empty_where_it_can_not_go)
{
    char path[160];

    impatient();
    driven_mount(&d);
    file("r/checkpoint-1/x");
    driven_shows(&d, "r/checkpoint-1/x", "r/checkpoint-1/x");
    (void)snprintf(path, sizeof(path), "%s/mirror/r/checkpoint-1/not-ours", d.dir);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    struct node *dir = held("r/checkpoint-1");
    note(NOTE_OPEN, "r", "checkpoint-1", THEIRS);
    file("r/checkpoint-1/y");
    DRIVEN_WAIT(names_in(dir) == 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(names_in(dir), 0);
    cache_forget(d.cache, dir, 1);
    ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

#define BELIEVED (3 * NS_PER_SEC)

static void becomes_whole(void)
{
    file("r/checkpoint-6/tail");
    seal("r", "checkpoint-6", THEIRS, "tail", SAYS_RIGHT);
    note_goes(NOTE_OPEN, "r", "checkpoint-6", THEIRS);
    DRIVEN_WAIT(driven_list(&d, "r") == 6); /* its name alone is known then */
}

/* Who walks is told of many directories at once; what was listed while a unit was half is not
 * shown when it is whole. */
START_TEST(what_was_listed_before_it_was_whole_is_not_shown)
{
    char path[32];

    d.config.list_timeout_ns = d.config.attr_timeout_ns = BELIEVED;
    driven_mount(&d);
    for (int i = 1; i <= 6; i++) {
        (void)snprintf(path, sizeof(path), "r/checkpoint-%d/x", i);
        file(path);
    }
    note(NOTE_OPEN, "r", "checkpoint-6", THEIRS);
    ck_assert_int_eq(driven_list(&d, "r"), 5);
    atomic_store(&behind, becomes_whole);
    for (int i = 1; i <= 4; i++) {
        (void)snprintf(path, sizeof(path), "r/checkpoint-%d", i);
        ck_assert_int_eq(driven_list(&d, path), 1);
    }
    DRIVEN_WAIT(!atomic_load(&behind) && shown("r/checkpoint-6"));
    ck_assert_int_eq(driven_list(&d, "r/checkpoint-6"), 2);
    ck_assert(shown("r/checkpoint-6/tail"));
}
END_TEST

/* ---- what is ours ---- */

START_TEST(who_writes_in_it_sees_all)
{
    impatient();
    d.config.settle_ns = HOUR;
    driven_mount(&d);
    file(_i ? "r/checkpoint-1/x" : "r/y");
    ck_assert(_i ? shown("r/checkpoint-1/x") : driven_mkdir(&d, "r/checkpoint-1") == 0);
    driven_put(&d, "r/checkpoint-1/mine", "1", 1);
    note(NOTE_OPEN, "r", "checkpoint-1", THEIRS);
    file("r/checkpoint-1/x");
    file("r/checkpoint-1/theirs");
    /* One that was made here is not listed before the store has something of it. */
    DRIVEN_WAIT(driven_list(&d, "r/checkpoint-1") == (_i ? 3 : 1));
    ck_assert(shown("r/checkpoint-1/mine"));
    note(NOTE_GONE, "r", "checkpoint-1", THEIRS);
    file("r/later");
    DRIVEN_WAIT(shown("r/later"));
    ck_assert_int_eq(driven_list(&d, "r"), _i ? 2 : 3);
    driven_shows(&d, "r/checkpoint-1/mine", "1");
}
END_TEST

START_TEST(own_notes_do_not_hide)
{
    driven_mount(&d);
    note(kinds[_i].kind, "r", "checkpoint-1", d.cache->queue->cache_id);
    file("r/checkpoint-1/x");
    shows("r", "checkpoint-1", true);
}
END_TEST

/* Whatever others write beside it; but not what they remove. */
START_TEST(what_was_written_here_stays)
{
    impatient();
    driven_mount(&d);
    note(NOTE_OPEN, "r", "checkpoint-1", THEIRS);
    file("r/checkpoint-1/x");
    file("r/checkpoint-1/tail");
    if (_i == 0)
        note(NOTE_LAST, "r", "checkpoint-1", d.cache->queue->cache_id);
    else
        seal("r", "checkpoint-1", d.cache->queue->cache_id, "tail",
             _i == 1 ? SAYS_RIGHT : SAYS_OTHER_VERSION);
    shows("r", "checkpoint-1", _i != 2);
    note(NOTE_GONE, "r", "checkpoint-1", THEIRS);
    if (_i == 1)
        DRIVEN_WAIT(!shown("r/checkpoint-1"));
}
END_TEST

/* ---- a mount that publishes ---- */

/* Another cache over the same store. */
static void another_mounted(struct driven *other)
{
    struct store *mem = NULL;
    struct op op;

    op_init(&op, 5 * NS_PER_SEC);
    ck_assert_int_eq(mem_store_new(d.store->url, NULL, &op, &mem), 0);
    driven_init_over(other, mem, NULL);
    other->store->facts.caps |= STORE_STATE;
    other->config.settle_ns = 0;
    driven_mount(other);
}

#define PUBLISHED 8
#define PARTS     5

static void *publish(void *arg)
{
    struct driven *p = arg;
    char path[64];

    ck_assert_int_eq(driven_mkdir(p, "r"), 0);
    for (int i = 0; i < PUBLISHED; i++) {
        (void)snprintf(path, sizeof(path), "r/checkpoint-%d", i);
        ck_assert_int_eq(driven_mkdir(p, path), 0);
        for (int k = 0; k < PARTS; k++) {
            (void)snprintf(path, sizeof(path), "r/checkpoint-%d/%d", i, k);
            driven_put(p, path, path, strlen(path));
            (void)usleep(5000);
        }
        ck_assert_int_eq(driven_flush(p), 0);
    }
    return NULL;
}

/* Whatever this mount sees of what another one publishes is whole. */
START_TEST(all_or_nothing_of_what_another_publishes)
{
    struct driven other;
    pthread_t thread;
    char path[64];
    int whole = 0;

    impatient();
    driven_mount(&d);
    another_mounted(&other);
    ck_assert_int_eq(pthread_create(&thread, NULL, publish, &other), 0);
    while (whole < PUBLISHED) {
        whole = 0;
        for (int i = 0; i < PUBLISHED; i++) {
            (void)snprintf(path, sizeof(path), "r/checkpoint-%d", i);
            int n = driven_list(&d, path);
            ck_assert_msg(n == -ENOENT || n == PARTS, "%s: %d", path, n);
            whole += n == PARTS;
        }
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    driven_release(&other);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_hidden");
    TCase *t = tcase_create("units that others have not finished");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, notes_of_others_hide, 0, ARRAY_SIZE(kinds));
    tcase_add_test(t, any_name_may_be_a_unit);
    tcase_add_loop_test(t, a_seal_counts_with_its_tail, 0, ARRAY_SIZE(seals));
    tcase_add_test(t, a_seal_does_not_outlast_its_tail);
    tcase_add_loop_test(t, each_writer_needs_a_seal, 0, 2);
    tcase_add_test(t, no_seal_counts_against_a_removal);
    tcase_add_loop_test(t, what_is_known_goes, 0, 2);
    tcase_add_test(t, it_goes_under_who_is_in_it);
    tcase_add_test(t, it_is_empty_where_it_can_not_go);
    tcase_add_test(t, what_was_listed_before_it_was_whole_is_not_shown);
    tcase_add_loop_test(t, who_writes_in_it_sees_all, 0, 2);
    tcase_add_loop_test(t, own_notes_do_not_hide, 0, ARRAY_SIZE(kinds));
    tcase_add_loop_test(t, what_was_written_here_stays, 0, 3);
    tcase_add_test(t, all_or_nothing_of_what_another_publishes);
    suite_add_tcase(s, t);
    return suite_run(s);
}
