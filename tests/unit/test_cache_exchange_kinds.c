/* RENAME_EXCHANGE of a directory with a file: in the mirror at once, in the store step by step,
 * with something of each content there at any moment; killed at each step; and over stores that
 * can't have both `x` and `x/y`. */
#include "cache/mirror/crash.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/some.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_OLD "the file" /* contents are told apart by their length */
#define FILE_NEW "the new file"
#define ONE      "1"
#define TWO      "22"

/* ---- the store ---- */

enum kind_of_store { LIKE_S3, COPIES, NATIVE, STORES };

static struct {
    pthread_mutex_t lock; /* one change at a time, so that what is there can be looked at */
    atomic_bool watched;
    atomic_bool closed; /* changes wait */
    unsigned lost;      /* how often a content was nowhere; under the lock */
    char why[128];
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_change(enum call_kind kind)
{
    return kind == CALL_PUT || kind == CALL_COMMIT || kind == CALL_COPY ||
           kind == CALL_RENAME || kind == CALL_REMOVE || kind == CALL_MKDIR ||
           kind == CALL_RMDIR;
}

static int count_length(void *arg, const char *name, const struct object *obj)
{
    unsigned *of_length = arg;

    (void)name;
    if (!obj->is_prefix && obj->size < 32)
        of_length[obj->size]++;
    return 0;
}

/* Whatever has happened so far, each content is in the store under some name. */
static void look(struct call *c, int64_t r)
{
    unsigned n[32] = {0};
    struct op op;

    op_init(&op, 5 * NS_PER_SEC);
    ck_assert_int_eq(store_list(c->next, &op, "", LIST_RECURSIVE, count_length, n), 0);
    if ((n[strlen(FILE_OLD)] || n[strlen(FILE_NEW)]) && n[strlen(ONE)] && n[strlen(TWO)])
        return;
    if (gate.lost++ == 0)
        (void)snprintf(gate.why, sizeof(gate.why), "after %s %s (%d): %u+%u %u %u",
                       call_name(c->kind), c->key, (int)r, n[strlen(FILE_OLD)],
                       n[strlen(FILE_NEW)], n[strlen(ONE)], n[strlen(TWO)]);
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (!is_change(c->kind))
        return call_next(c);
    while (atomic_load(&gate.closed)) {
        int waited = op_sleep(c->op, 2 * NS_PER_MS);
        if (waited < 0)
            return waited;
    }
    (void)pthread_mutex_lock(&gate.lock);
    int64_t r = call_next(c);
    if (atomic_load(&gate.watched))
        look(c, r);
    (void)pthread_mutex_unlock(&gate.lock);
    return r;
}

static void start(struct driven *d, enum kind_of_store kind)
{
    atomic_store(&gate.watched, false);
    atomic_store(&gate.closed, false);
    gate.lost = 0;
    if (kind == LIKE_S3)
        driven_init_like_s3(d, around);
    else
        driven_init_folder(d, around, 1 << 20);
    if (kind == COPIES)
        d->store->facts.caps &= ~(unsigned)STORE_RENAME;
    d->config.late_ns = 0;
}

/* ---- what there is ---- */

static bool is_stored(struct driven *d, const char *key, const char *wanted)
{
    char buf[64];
    ssize_t n = driven_stored(d, key, buf, sizeof(buf));

    return wanted ? n == (ssize_t)strlen(wanted) && memcmp(buf, wanted, (size_t)n) == 0
                  : n == -ENOENT || n == -EISDIR;
}

static mode_t kind_of(struct driven *d, const char *path)
{
    struct stat st = {0};
    int r = driven_stat(d, path, &st);

    ck_assert_msg(r == 0, "%s: %d", path, r);
    return st.st_mode & S_IFMT;
}

/* "dir" and "in/f" as they were made, or exchanged. */
static void is_shown(struct driven *d, bool exchanged, const char *content)
{
    const char *dir = exchanged ? "in/f" : "dir", *file = exchanged ? "dir" : "in/f";
    char path[64];

    ck_assert_uint_eq(kind_of(d, dir), S_IFDIR);
    ck_assert_uint_eq(kind_of(d, file), S_IFREG);
    driven_shows(d, file, content);
    ck_assert_int_eq(driven_list(d, dir), 3);
    (void)snprintf(path, sizeof(path), "%s/one", dir);
    driven_shows(d, path, ONE);
    (void)snprintf(path, sizeof(path), "%s/sub/deep/two", dir);
    driven_shows(d, path, TWO);
    (void)snprintf(path, sizeof(path), "%s/empty", dir);
    ck_assert_int_eq(driven_list(d, path), 0);
    ck_assert_int_eq(driven_list(d, ""), 2);
    ck_assert_int_eq(driven_list(d, "in"), 1);
}

static void is_published(struct driven *d, bool exchanged, const char *content)
{
    char path[64];

    ck_assert_int_eq(driven_flush(d), 0);
    is_shown(d, exchanged, content);
    ck_assert(is_stored(d, exchanged ? "dir" : "in/f", content));
    (void)snprintf(path, sizeof(path), "%s/one", exchanged ? "in/f" : "dir");
    ck_assert(is_stored(d, path, ONE));
    (void)snprintf(path, sizeof(path), "%s/one", exchanged ? "dir" : "in/f");
    ck_assert(is_stored(d, path, NULL));
    driven_mount_afresh(d);
    is_shown(d, exchanged, content);
}

/* Both are in the store and nothing of them is here. */
static void make_stored(struct driven *d)
{
    driven_mount(d);
    ck_assert_int_eq(driven_mkdir(d, "dir"), 0);
    ck_assert_int_eq(driven_mkdir(d, "dir/sub"), 0);
    ck_assert_int_eq(driven_mkdir(d, "dir/sub/deep"), 0);
    ck_assert_int_eq(driven_mkdir(d, "dir/empty"), 0);
    ck_assert_int_eq(driven_mkdir(d, "in"), 0);
    driven_put(d, "dir/one", ONE, strlen(ONE));
    driven_put(d, "dir/sub/deep/two", TWO, strlen(TWO));
    driven_put(d, "in/f", FILE_OLD, strlen(FILE_OLD));
    ck_assert_int_eq(driven_chmod(d, "dir", 0750), 0); /* on S3 it gets a marker */
    ck_assert_int_eq(driven_flush(d), 0);
    driven_mount_afresh(d);
    atomic_store(&gate.watched, true);
}

static int exchange(struct driven *d, int order)
{
    return order ? driven_exchange(d, "dir", "in/f") : driven_exchange(d, "in/f", "dir");
}

static void is_over(struct driven *d)
{
    ck_assert_msg(gate.lost == 0, "a content was lost %s", gate.why);
    driven_release(d);
}

/* ---- the file ---- */

enum state { ABSENT, READ, DIRTY, OPEN, LINKED, STATES };

static struct handle *prepare_file(struct driven *d, enum state state)
{
    struct handle *h = NULL;

    if (state == READ || state == LINKED)
        driven_shows(d, "in/f", FILE_OLD);
    if (state == LINKED) {
        ck_assert_int_eq(driven_link(d, "in/f", "dir/link"), 0);
        ck_assert_int_eq(driven_unlink(d, "dir/link"), 0);
    }
    if (state == DIRTY || state == OPEN) { /* not truncated: that would be one more content */
        size_t len = state == OPEN ? 4 : strlen(FILE_NEW);
        ck_assert_int_eq(driven_open(d, "in/f", O_WRONLY, &h), 0);
        ck_assert_int_eq(driven_write(d, h, FILE_NEW, len, 0), 0);
    }
    if (state == DIRTY) {
        ck_assert_int_eq(driven_close(d, h), 0);
        h = NULL;
    }
    return h;
}

START_TEST(a_directory_and_a_file_change_places)
{
    enum state state = (enum state)(_i / 2 % STATES);
    bool is_new = state == DIRTY || state == OPEN;
    struct driven d;
    struct stat st;

    start(&d, (enum kind_of_store)(_i / 2 / STATES));
    make_stored(&d);
    struct handle *h = prepare_file(&d, state);
    ck_assert_int_eq(exchange(&d, _i % 2), 0);
    if (h) {
        atomic_store(&gate.watched, false); /* what is open is not in the store before */
        ck_assert_int_eq(driven_write(&d, h, FILE_NEW + 4, strlen(FILE_NEW) - 4, 4), 0);
        ck_assert_int_eq(driven_close(&d, h), 0);
    }
    is_shown(&d, true, is_new ? FILE_NEW : FILE_OLD);
    is_published(&d, true, is_new ? FILE_NEW : FILE_OLD);
    ck_assert_int_eq(driven_stat(&d, "in/f", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0750);
    is_over(&d);
}
END_TEST

/* Before the store has got anything of it. */
START_TEST(and_back_again)
{
    struct driven d;

    start(&d, (enum kind_of_store)(_i / 4));
    make_stored(&d);
    atomic_store(&gate.closed, true);
    (void)prepare_file(&d, _i % 2 ? DIRTY : ABSENT);
    ck_assert_int_eq(driven_list(&d, "dir"), 3);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(exchange(&d, 1), 0);
    if (_i / 2 % 2)
        ck_assert_int_eq(exchange(&d, 0), 0);
    bool exchanged = !(_i / 2 % 2);
    is_shown(&d, exchanged, _i % 2 ? FILE_NEW : FILE_OLD);
    driven_unmount(&d);
    driven_mount(&d);
    is_shown(&d, exchanged, _i % 2 ? FILE_NEW : FILE_OLD);
    atomic_store(&gate.closed, false);
    is_published(&d, exchanged, _i % 2 ? FILE_NEW : FILE_OLD);
    is_over(&d);
}
END_TEST

/* Changes below the directory that the store has not got yet go where it is now. */
START_TEST(pending_changes_move_along)
{
    struct driven d;

    start(&d, (enum kind_of_store)_i);
    make_stored(&d);
    atomic_store(&gate.closed, true);
    driven_put(&d, "dir/one", "eleven bytes", 11);
    driven_put(&d, "dir/sub/three", "333", 3);
    ck_assert_int_eq(driven_rename(&d, "dir/sub/deep/two", "dir/empty/two"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "dir/sub/deep"), 0);
    ck_assert_int_eq(exchange(&d, 0), 0);
    ck_assert_int_eq(driven_rename(&d, "dir", "in/f/sub/file"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/new", "new", 3);
    for (int i = 0; i < 2; i++) {
        driven_shows(&d, "in/f/one", "eleven byte");
        driven_shows(&d, "in/f/sub/three", "333");
        driven_shows(&d, "in/f/empty/two", TWO);
        driven_shows(&d, "in/f/sub/file", FILE_OLD);
        driven_shows(&d, "dir/new", "new");
        ck_assert_int_eq(driven_list(&d, "in/f"), 3);
        ck_assert_int_eq(driven_list(&d, "in/f/sub"), 2);
        atomic_store(&gate.watched, false);
        atomic_store(&gate.closed, false);
        ck_assert_int_eq(driven_flush(&d), 0);
        driven_mount_afresh(&d);
    }
    is_over(&d);
}
END_TEST

/* What the store never had leaves nothing there. */
START_TEST(one_side_is_new)
{
    struct driven d;

    start(&d, (enum kind_of_store)(_i / 4));
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, _i % 2 ? "dir/one" : "file", ONE, 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&gate.closed, true);
    driven_put(&d, _i % 2 ? "file" : "dir/one", ONE, 1);
    ck_assert_int_eq(_i / 2 % 2 ? driven_exchange(&d, "dir", "file")
                                : driven_exchange(&d, "file", "dir"),
                     0);
    atomic_store(&gate.closed, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    for (int i = 0; i < 2; i++) {
        driven_shows(&d, "dir", ONE);
        driven_shows(&d, "file/one", ONE);
        ck_assert_int_eq(driven_list(&d, ""), 2);
        driven_mount_afresh(&d);
    }
    is_over(&d);
}
END_TEST

START_TEST(a_symlink_and_an_empty_directory)
{
    struct attrs attrs = {
        .has = ATTR_MODE | ATTR_TARGET, .mode = S_IFLNK | 0777, .target = (char *)"there"};
    struct driven d;

    start(&d, (enum kind_of_store)(_i / 2));
    driven_store_with(&d, "link", "", 0, &attrs);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(
        _i % 2 ? driven_exchange(&d, "dir", "link") : driven_exchange(&d, "link", "dir"), 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(kind_of(&d, "dir"), S_IFLNK);
        ck_assert_uint_eq(kind_of(&d, "link"), S_IFDIR);
        ck_assert_int_eq(driven_flush(&d), 0);
        driven_mount_afresh(&d);
    }
    ck_assert_int_eq(driven_rmdir(&d, "link"), 0);
    is_over(&d);
}
END_TEST

/* How a new directory comes to a name that something stored has left, below a directory that
 * the store has elsewhere still. */
static void make_dir_at_left_name(struct driven *d, int way)
{
    if (way == 0) {
        ck_assert_int_eq(driven_mkdir(d, "left"), 0);
        ck_assert_int_eq(driven_exchange(d, "moved/f", "left"), 0);
        return;
    }
    ck_assert_int_eq(driven_rename(d, "moved/f", "left"), 0);
    ck_assert_int_eq(driven_mkdir(d, "moved/f"), 0);
}

/* What was made where something else had been has its place with the directory around it, until
 * the store has moved that. Then it is listed where it is, and all of it is there. */
START_TEST(made_where_another_was_and_moved)
{
    /* Another directory was there, and what is moved lay below the new one. */
    const bool below = _i % 6 >= 3;
    const int way = _i % 3;
    struct driven d;

    start(&d, (enum kind_of_store)(_i / 6));
    d.config.list_timeout_ns = 0;
    if (way == 2) /* who looks into what the store moves by itself waits for the end of that */
        d.config.store_timeout_ns = 5 * NS_PER_SEC;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    if (below)
        ck_assert_int_eq(driven_mkdir(&d, "dir/f"), 0);
    driven_put(&d, below ? "dir/f/old" : "dir/f", FILE_OLD, strlen(FILE_OLD));
    driven_put(&d, "two", TWO, strlen(TWO));
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&gate.closed, true);
    ck_assert_int_eq(driven_rename(&d, "dir", "moved"), 0);
    make_dir_at_left_name(&d, way);
    ck_assert_int_eq(driven_mkdir(&d, "moved/f/sub"), 0);
    driven_put(&d, "moved/f/sub/one", ONE, strlen(ONE));
    if (way == 1) /* it brings the directory to the store, too */
        ck_assert_int_eq(driven_rename(&d, "two", "moved/f/sub/two"), 0);
    if (way == 2) { /* nobody knows what a mount that was killed had sent */
        driven_unmount(&d);
        driven_mount(&d);
    }
    ck_assert_int_eq(driven_rename(&d, below ? "moved/f/sub" : "moved/f", "to"), 0);
    atomic_store(&gate.closed, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    (void)usleep(300000); /* what was listed is believed no more */
    driven_shows(&d, below ? "to/one" : "to/sub/one", ONE);
    ck_assert_int_eq(driven_list(&d, below ? "to" : "to/sub"), way == 1 ? 2 : 1);
    driven_shows(&d, below ? "left/old" : "left", FILE_OLD);
    is_over(&d);
}
END_TEST

START_TEST(what_is_inside_stays)
{
    struct driven d;

    start(&d, LIKE_S3);
    make_stored(&d);
    ck_assert_int_eq(driven_exchange(&d, "dir", "dir/one"), -EINVAL);
    ck_assert_int_eq(driven_exchange(&d, "dir/sub/deep/two", "dir"), -EINVAL);
    ck_assert_int_eq(driven_exchange(&d, "dir", "dir/sub"), -EINVAL);
    ck_assert_int_eq(driven_exchange(&d, "dir", "none"), -ENOENT);
    is_published(&d, false, FILE_OLD);
    is_over(&d);
}
END_TEST

/* What no path shows can't move along, and would hide the file; wherever it is below, and
 * although nobody has looked there. */
START_TEST(hidden_names_hold_the_directory)
{
    static const char *const places[] = {"", "sub/", "a/b/c/"};
    char name[300];
    struct driven d;

    (void)snprintf(name, sizeof(name), "dir/%s%0256d", places[_i], 0);
    start(&d, LIKE_S3);
    d.config.list_timeout_ns = 0;
    driven_store(&d, name, "h", 1);
    driven_store(&d, "dir/sub/one", ONE, 1);
    driven_store(&d, "dir/a/one", ONE, 1);
    driven_store(&d, "dir/one", ONE, 1);
    driven_store(&d, "file", TWO, 2);
    driven_mount(&d);
    ck_assert_int_eq(driven_exchange(&d, "dir", "file"), -ENOTEMPTY);
    ck_assert_int_eq(driven_exchange(&d, "file", "dir"), -ENOTEMPTY);
    driven_shows(&d, "file", TWO);
    driven_shows(&d, "dir/one", ONE);
    is_over(&d);
}
END_TEST

/* Nor is a directory empty that has only such a name. */
START_TEST(hidden_names_are_not_replaced)
{
    char name[300];
    struct driven d;

    (void)snprintf(name, sizeof(name), "dir/%0256d", 0);
    start(&d, LIKE_S3);
    driven_store(&d, name, "h", 1);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "new"), 0);
    ck_assert_int_eq(driven_rename(&d, "new", "dir"), -ENOTEMPTY);
    ck_assert_int_eq(driven_rmdir(&d, "dir"), -ENOTEMPTY);
    is_over(&d);
}
END_TEST

/* What would be too long for the store under its new name is told at once. */
START_TEST(what_does_not_fit_stays)
{
    char name[256], path[600];
    struct driven d;

    memset(name, 'n', 255);
    name[255] = '\0';
    start(&d, LIKE_S3);
    d.store->facts.key_max = 590;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "e"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "d/sub"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "d/deep"), 0);
    (void)snprintf(path, sizeof(path), "d/sub/%s", name);
    ck_assert_int_eq(driven_mkdir(&d, path), 0);
    (void)strcat(path, "/file");
    driven_put(&d, path, ONE, 1);
    (void)snprintf(path, sizeof(path), "e/%s", name);
    ck_assert_int_eq(driven_mkdir(&d, path), 0);
    (void)snprintf(path, sizeof(path), "e/%s/%.80s", name, name);
    driven_put(&d, path, TWO, 2);
    ck_assert_int_eq(driven_exchange(&d, "d/sub", path), -ENAMETOOLONG);
    ck_assert_int_eq(driven_exchange(&d, path, "d/sub"), -ENAMETOOLONG);
    ck_assert_int_eq(driven_unlink(&d, path), 0);
    ck_assert_int_eq(driven_mkdir(&d, path), 0);
    ck_assert_int_eq(driven_exchange(&d, path, "d/sub"), -ENAMETOOLONG);
    ck_assert_int_eq(driven_exchange(&d, path, "d/deep"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    is_over(&d);
}
END_TEST

/* ---- killed ---- */

static const struct {
    const char *point;
    bool native;
} deaths[] = {
    {"exchange-rows", false},   {"exchange-mirror", false},  {"rename-copied", false},
    {"rename-noted", false},    {"renamedir-copied", false}, {"renamedir-noted", false},
    {"rename-copied:2", false}, {"rename-noted:2", false},   {"delete-done", false},
    {"delete-noted", false},    {"delete-done:2", false},    {"delete-noted:2", false},
    {"delete-done:3", false},   {"delete-noted:3", false},   {"exchange-rows", true},
    {"rename-copied", true},    {"rename-noted", true},      {"renamedir-native", true},
    {"renamedir-noted", true},  {"rename-copied:2", true},   {"rename-noted:2", true},
};

static void killed_at(struct driven *d, const char *point, bool dirty, int order)
{
    int status = 0;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        driven_mount(d);
        (void)prepare_file(d, dirty ? DIRTY : ABSENT);
        crash_arm(point);
        (void)exchange(d, order);
        (void)driven_flush(d);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "at %s: status %x", point,
                  status);
}

START_TEST(killed_at_each_step)
{
    bool dirty = _i % 2;
    int order = _i / 2 % 2;
    struct driven d;

    start(&d, deaths[_i / 2].native ? NATIVE : COPIES);
    make_stored(&d);
    driven_unmount(&d);
    killed_at(&d, deaths[_i / 2].point, dirty, order);
    driven_mount(&d);
    is_shown(&d, true, dirty ? FILE_NEW : FILE_OLD);
    is_published(&d, true, dirty ? FILE_NEW : FILE_OLD);
    is_over(&d);
}
END_TEST

/* One row tells that two names change places, when the store has one of them only. */
START_TEST(killed_with_one_side_new)
{
    int status = 0;
    struct driven d;

    start(&d, COPIES);
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, _i ? "dir/one" : "file", ONE, 1);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    pid_t pid = fork();
    if (pid == 0) {
        driven_mount(&d);
        atomic_store(&gate.closed, true);
        driven_put(&d, _i ? "file" : "dir/one", ONE, 1);
        crash_arm("exchange-rows");
        (void)driven_exchange(&d, "file", "dir");
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status));
    driven_mount(&d);
    for (int i = 0; i < 2; i++) {
        driven_shows(&d, "dir", ONE);
        driven_shows(&d, "file/one", ONE);
        ck_assert_int_eq(driven_list(&d, ""), 2);
        ck_assert_int_eq(driven_flush(&d), 0);
        driven_mount_afresh(&d);
    }
    is_over(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_exchange_kinds");
    TCase *tc = tcase_create("exchange");

    tcase_set_timeout(tc, 120);
    tcase_add_some_test(tc, a_directory_and_a_file_change_places, 0, STORES * STATES * 2,
                        SOME_STATES);
    tcase_add_some_test(tc, and_back_again, 0, STORES * 4, SOME_STATES);
    tcase_add_some_test(tc, pending_changes_move_along, 0, STORES, SOME_STATES);
    tcase_add_some_test(tc, one_side_is_new, 0, STORES * 4, SOME_STATES);
    tcase_add_some_test(tc, a_symlink_and_an_empty_directory, 0, STORES * 2, SOME_STATES);
    tcase_add_some_test(tc, made_where_another_was_and_moved, 0, STORES * 6, SOME_STATES);
    tcase_add_test(tc, what_is_inside_stays);
    tcase_add_loop_test(tc, hidden_names_hold_the_directory, 0, 3);
    tcase_add_test(tc, hidden_names_are_not_replaced);
    tcase_add_test(tc, what_does_not_fit_stays);
    tcase_add_some_test(tc, killed_at_each_step, 0, 2 * (int)ARRAY_SIZE(deaths), SOME_POINTS);
    tcase_add_loop_test(tc, killed_with_one_side_new, 0, 2);
    suite_add_tcase(s, tc);
    return suite_run(s);
}
