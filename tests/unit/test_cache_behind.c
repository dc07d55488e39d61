/* Requests that get no answer, are made again with success, and arrive later; and names that
 * go, or come, beneath an upload. What is newer stays. */
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct driven d;
static struct {
    atomic_bool leave_puts, leave_copies; /* behind */
    atomic_bool race;                     /* another node puts `f` before the next put of it */
    atomic_bool hold_attrs, attrs_held, drop_attrs;
    atomic_bool lose_puts, refuse_moves; /* of and below r0 */
    atomic_bool mounted;
    atomic_bool newer; /* content was written */
} gate;
static struct attrs left;                /* of the put that was left behind */
static _Atomic(void (*)(void)) at_lease; /* once */

/* An upload tries a lease between its start and its look at the name. */
int fcntl64(int fd, int cmd, ...)
{
    va_list ap;

    va_start(ap, cmd);
    long arg = va_arg(ap, long);
    va_end(ap);
    if (cmd == F_SETLEASE && (int)arg == F_RDLCK) {
        void (*what)(void) = atomic_exchange(&at_lease, NULL);
        if (what)
            what();
    }
    return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_PUT && strcmp(c->key, "f") == 0 && atomic_exchange(&gate.race, false))
        driven_store(&d, "f", "theirs 2", 8);
    if (c->kind == CALL_PUT && strcmp(c->key, "k") == 0 && atomic_load(&gate.leave_puts)) {
        left = *c->attrs;
        c->op->left_behind = true;
    }
    if (c->kind == CALL_PUT && strchr(c->key, '/') && atomic_load(&gate.lose_puts)) {
        if (strcmp(c->key, "r0/s") == 0)
            (void)call_next(c);
        return op_fail(c->op, -EIO, "put: the answer was lost");
    }
    if (c->kind == CALL_LIST && atomic_load(&gate.refuse_moves) &&
        strncmp(c->key, "r0", 2) == 0)
        return op_fail(c->op, -EIO, "list: no answer");
    while (c->kind == CALL_SETATTR && atomic_load(&gate.hold_attrs)) {
        atomic_store(&gate.attrs_held, true);
        (void)usleep(1000);
    }
    if (c->kind == CALL_SETATTR && atomic_load(&gate.drop_attrs))
        return op_fail(c->op, -EINTR, "killed");
    if ((c->kind == CALL_COPY || c->kind == CALL_SETATTR) && atomic_load(&gate.leave_copies))
        c->op->left_behind = true;
    return call_next(c);
}

static void start(void)
{
    memset(&gate, 0, sizeof(gate));
    driven_init_like_s3(&d, around);
    d.config.retry_ns = 100 * NS_PER_MS;
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
}

/* ---- names that go ---- */

static void replaced_and_renamed(void)
{
    driven_store(&d, "f", "theirs", 6);
    ck_assert_int_eq(driven_rename(&d, "f", "g"), 0);
}

static void replaced_and_removed(void)
{
    driven_store(&d, "f", "theirs", 6);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
}

static const struct {
    void (*what)(void);
    bool stored; /* a version of ours, before */
} goings[] = {
    {replaced_and_renamed, true}, {replaced_and_removed, true}, {replaced_and_removed, false}};

/* An upload was begun to a name that goes before the upload looks at it. */
START_TEST(an_upload_to_a_name_that_went_replaces_nothing)
{
    start();
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, ""), 0);
    if (goings[_i].stored) {
        driven_put(&d, "f", "one", 3);
        ck_assert_int_eq(driven_flush(&d), 0);
    }
    atomic_store(&at_lease, goings[_i].what);
    driven_put(&d, "f", "changed", 7);
    DRIVEN_WAIT(!atomic_load(&at_lease));
    (void)driven_flush(&d); /* tells of theirs */
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "theirs");
    driven_release(&d);
}
END_TEST

static struct handle *anew;

static void made_anew(void)
{
    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_TRUNC, &anew), 0);
    ck_assert_int_eq(driven_write(&d, anew, "ha", 2, 0), 0);
    atomic_store(&gate.newer, true);
}

/* A flush had the file chosen while it was whole. */
START_TEST(what_is_made_anew_meanwhile_is_not_published_half)
{
    start();
    d.config.settle_ns = 30 * NS_PER_SEC; /* only a flush uploads */
    driven_mount(&d);
    driven_put(&d, "f", "whole", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_put(&d, "f", "another", 7);
    atomic_store(&at_lease, made_anew);
    (void)driven_flush(&d); /* tells of the half file, or of what was before */
    DRIVEN_WAIT(atomic_load(&gate.newer));
    driven_stores(&d, "f", "whole");
    ck_assert_int_eq(driven_write(&d, anew, "lves", 4, 2), 0);
    ck_assert_int_eq(driven_close(&d, anew), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "f", "halves");
    driven_release(&d);
}
END_TEST

static void cut_off(void)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(&d, "f", O_WRONLY | O_TRUNC, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "newer", 5, 0), -ENOSPC);
    ck_assert_int_eq(driven_close(&d, h), -ENOSPC);
    atomic_store(&gate.newer, true);
}

/* Its attributes had it chosen. */
START_TEST(what_is_cut_off_meanwhile_is_not_published)
{
    start();
    driven_mount(&d);
    driven_put(&d, "f", "whole", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    d.config.settle_ns = 30 * NS_PER_SEC;    /* only a flush uploads */
    d.config.reserve_bytes = UINT64_MAX / 2; /* no disk has that */
    driven_mount(&d);
    ck_assert_int_eq(driven_chmod(&d, "f", 0640), 0);
    atomic_store(&at_lease, cut_off);
    ck_assert_int_lt(driven_flush(&d), 0); /* it may be half yet */
    DRIVEN_WAIT(atomic_load(&gate.newer));
    ck_assert_int_eq(driven_flush(&d), -ENOSPC);
    driven_unmount(&d);
    driven_stores(&d, "f", "whole");
    driven_release(&d);
}
END_TEST

/* What the question shows is replaced; not what comes after the answer. */
START_TEST(what_comes_after_the_question_stays)
{
    char place[96];

    start();
    d.config.late_ns = 0;
    d.config.settle_ns = 30 * NS_PER_SEC;
    driven_mount(&d);
    driven_put(&d, "f", "ours", 4);
    driven_unmount(&d);
    (void)snprintf(place, sizeof(place), "%s/place", d.dir); /* as an older version left it */
    ck_assert_int_eq(unlink(place), 0);
    driven_store(&d, "f", "theirs 1", 8);
    atomic_store(&gate.race, true);
    driven_mount(&d);
    (void)driven_flush(&d); /* tells of theirs */
    ck_assert(!atomic_load(&gate.race));
    driven_stores(&d, "f", "theirs 2");
    driven_release(&d);
}
END_TEST

/* ---- left behind ---- */

static bool put_left_behind(int64_t late_ns, int i)
{
    char buf[8];

    (void)i;
    start();
    d.config.late_ns = late_ns;
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, ""), 0);
    int64_t until_ns = clock_mono_ns() + late_ns;
    atomic_store(&gate.leave_puts, true);
    driven_put(&d, "k", "one", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_unlink(&d, "k"), 0);
    DRIVEN_WAIT(driven_stored(&d, "k", buf, sizeof(buf)) == -ENOENT);
    ck_assert_int_eq(driven_store_if(&d, "k", "", "one", 3, &left), 0); /* it arrives */
    bool in_time = clock_mono_ns() < until_ns;
    ck_assert_int_eq(driven_flush(&d), 0);
    if (in_time)
        driven_stores(&d, "k", NULL);
    driven_release(&d);
    return in_time;
}

START_TEST(a_put_left_behind_brings_nothing_back)
{
    driven_in_window(put_left_behind, 0);
}
END_TEST

static void change_by_copies(int i)
{
    atomic_store(&gate.leave_copies, true);
    if (i == 0)
        ck_assert_int_eq(driven_rename(&d, "dir/a", "dir/b"), 0);
    else if (i == 1)
        ck_assert_int_eq(driven_rename(&d, "dir", "new"), 0);
    else
        ck_assert_int_eq(driven_chmod(&d, "dir/a", 0640), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&gate.leave_copies, false);
}

static bool copy_left_behind(int64_t late_ns, int i)
{
    static const char *const at[] = {"dir/b", "new/a", "dir/a"};
    const char *key = at[i % 3];
    bool removed = i >= 3;

    start();
    d.config.late_ns = late_ns;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/a", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    int64_t until_ns = clock_mono_ns() + late_ns;
    change_by_copies(i % 3);
    driven_stores(&d, key, "old");
    if (removed)
        ck_assert_int_eq(driven_unlink(&d, key), 0);
    else
        driven_put(&d, key, "newer", 5);
    (void)usleep(200000);
    driven_store(&d, key, "old", 3); /* it arrives */
    bool in_time = clock_mono_ns() < until_ns;
    ck_assert_int_eq(driven_flush(&d), 0);
    if (in_time)
        driven_stores(&d, key, removed ? NULL : "newer");
    driven_release(&d);
    return in_time;
}

/* A copy carries no condition of its target: nothing is put there while one may arrive, and a
 * removal waits for it. */
START_TEST(a_copy_left_behind_replaces_nothing_newer)
{
    driven_in_window(copy_left_behind, _i);
}
END_TEST

static void put_newer(void)
{
    while (!atomic_load(&gate.mounted)) /* an upload may begin before that is told */
        (void)usleep(1000);
    driven_put(&d, "m", "newer", 5);
    atomic_store(&gate.newer, true);
}

static bool chmod_left_behind(int64_t late_ns, int i)
{
    start();
    d.config.late_ns = late_ns;
    driven_mount(&d);
    driven_put(&d, "m", "old", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&gate.hold_attrs, true);
    ck_assert_int_eq(driven_chmod(&d, "m", 0640), 0);
    DRIVEN_WAIT(atomic_load(&gate.attrs_held));
    atomic_store(&gate.drop_attrs, true); /* it is on its way when the daemon dies */
    atomic_store(&gate.hold_attrs, false);
    driven_unmount(&d);
    atomic_store(&gate.drop_attrs, false);
    if (i) /* it is just sent again when its content comes */
        atomic_store(&at_lease, put_newer);
    int64_t until_ns = clock_mono_ns() + late_ns;
    driven_mount(&d);
    atomic_store(&gate.mounted, true);
    if (!i)
        put_newer();
    DRIVEN_WAIT(atomic_load(&gate.newer));
    (void)usleep(200000);
    driven_store(&d, "m", "old", 3); /* it arrives */
    bool in_time = clock_mono_ns() < until_ns;
    ck_assert_int_eq(driven_flush(&d), 0);
    if (in_time)
        driven_stores(&d, "m", "newer");
    driven_release(&d);
    return in_time;
}

/* New attributes are a copy, too, and the daemon is killed meanwhile. */
START_TEST(a_chmod_of_a_killed_daemon_replaces_nothing_newer)
{
    driven_in_window(chmod_left_behind, _i);
}
END_TEST

static bool moved_and_removed(int64_t late_ns, int i)
{
    char buf[8];

    (void)i;
    start();
    d.config.late_ns = late_ns;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "r0"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&gate.lose_puts, true);
    atomic_store(&gate.refuse_moves, true);
    driven_put(&d, "r0/s", "sent", 4);
    DRIVEN_WAIT(driven_stored(&d, "r0/s", buf, sizeof(buf)) == 4);
    ck_assert_int_eq(driven_rename(&d, "r0", "r1"), 0);
    driven_unmount(&d);
    atomic_store(&gate.refuse_moves, false);
    int64_t until_ns = clock_mono_ns() + late_ns; /* the directory is not moved before */
    driven_mount(&d);
    ck_assert_int_eq(driven_unlink(&d, "r1/s"), 0);
    bool in_time = clock_mono_ns() < until_ns;
    atomic_store(&gate.lose_puts, false);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    if (in_time) {
        driven_stores(&d, "r0/s", NULL);
        driven_stores(&d, "r1/s", NULL);
    }
    driven_release(&d);
    return in_time;
}

/* It got to the store, its directory moves in the next mount, and it was removed by then. */
START_TEST(what_moved_with_its_directory_is_still_ours)
{
    driven_in_window(moved_and_removed, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_behind");
    TCase *t = tcase_create("cache_behind");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, an_upload_to_a_name_that_went_replaces_nothing, 0,
                        sizeof(goings) / sizeof(*goings));
    tcase_add_test(t, what_is_made_anew_meanwhile_is_not_published_half);
    tcase_add_test(t, what_is_cut_off_meanwhile_is_not_published);
    tcase_add_test(t, what_comes_after_the_question_stays);
    tcase_add_test(t, a_put_left_behind_brings_nothing_back);
    tcase_add_loop_test(t, a_copy_left_behind_replaces_nothing_newer, 0, 6);
    tcase_add_loop_test(t, a_chmod_of_a_killed_daemon_replaces_nothing_newer, 0, 2);
    tcase_add_test(t, what_moved_with_its_directory_is_still_ours);
    suite_add_tcase(s, t);
    return suite_run(s);
}
