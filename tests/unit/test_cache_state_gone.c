/* backends/local, cache/: the folder in which a store stages is gone, or the whole folder can't
 * be reached. That says nothing of any object: nothing counts as removed, and no rename as
 * done.
 */
#include "backends/drivers.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"
#include "tests/lib/temp_dir.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How it goes. The store's own folder stays where its descriptor is. */
enum going { PARENT_AWAY, PARENT_A_FILE, REMOVED, GOINGS };

static char top[64], parent[80], away[80], root[96], state[112];
static struct driven d;
static atomic_int commits; /* 1: the next one finds no state folder */
static atomic_int moves;   /* that were asked for */
static atomic_int untrue;  /* renames that still answer ENOENT, and do nothing */
static atomic_bool stale;  /* NFS has no such export for the moment */
static atomic_int stales;  /* calls that met this */

static bool is_root(int fd)
{
    struct stat st, wanted;

    return fstat(fd, &st) == 0 && stat(root, &wanted) == 0 && st.st_ino == wanted.st_ino &&
           st.st_dev == wanted.st_dev;
}

/* In place of the C library's: what begins at the root of the store fails as on NFS. */
long syscall(long number, ...)
{
    static long (*_Atomic libc)(long, ...);
    long a[6];
    va_list ap;

    va_start(ap, number);
    for (size_t i = 0; i < ARRAY_SIZE(a); i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (number == SYS_openat2 && atomic_load(&stale) && is_root((int)a[0])) {
        atomic_fetch_add(&stales, 1);
        errno = ESTALE;
        return -1;
    }
    if (!libc) {
        long (*found)(long, ...);
        *(void **)&found = dlsym(RTLD_NEXT, "syscall");
        libc = found;
    }
    return libc(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_COMMIT && atomic_fetch_sub(&commits, 1) == 1)
        temp_dir_remove(state);
    atomic_fetch_add(&moves, c->kind == CALL_RENAME || c->kind == CALL_COPY);
    if (c->kind == CALL_RENAME && atomic_fetch_sub(&untrue, 1) > 0)
        return op_fail(c->op, -ENOENT, "the server takes no such new name");
    return call_next(c);
}

static void setup(void)
{
    struct store *s = NULL;
    struct op op;

    atomic_store(&commits, 0);
    atomic_store(&untrue, 0);
    atomic_store(&stale, false);
    atomic_store(&stales, 0);
    temp_dir_make(top, sizeof(top));
    (void)snprintf(parent, sizeof(parent), "%s/parent", top);
    (void)snprintf(away, sizeof(away), "%s/away", top);
    (void)snprintf(root, sizeof(root), "%s/store", parent);
    (void)snprintf(state, sizeof(state), "%s.runfs", root);
    ck_assert(mkdir(parent, 0755) == 0 && mkdir(root, 0755) == 0);
    op_init(&op, 10 * NS_PER_SEC);
    ck_assert_int_eq(local_store_new(root, NULL, &op, &s), 0);
    s->facts.part_size = s->facts.part_min = s->facts.part_max = 4;
    driven_init_over(&d, s, around);
}

static void teardown(void)
{
    driven_release(&d);
    temp_dir_remove(top);
}

static void go(enum going how)
{
    if (how == REMOVED) {
        temp_dir_remove(state);
        return;
    }
    ck_assert_int_eq(rename(parent, away), 0);
    auto_close int fd = how == PARENT_A_FILE ? creat(parent, 0600) : -1;
    ck_assert(how == PARENT_AWAY || fd >= 0);
}

static void come_back(enum going how)
{
    if (how == PARENT_A_FILE)
        ck_assert_int_eq(unlink(parent), 0);
    if (how != REMOVED)
        ck_assert_int_eq(rename(away, parent), 0);
}

/* ---- the driver ---- */

enum change { PUT, COPY, RENAME, RENAME_DIR, REMOVE, SET_ATTRS, UPLOAD, CHANGES };

static int upload(struct store *s, struct op *op)
{
    struct mem_source src;
    struct upload *up;

    int r = store_upload_begin(s, op, "new", NULL, &up);
    if (r < 0)
        return r;
    mem_source_init(&src, "parts", 5);
    r = store_upload_part(up, op, 1, &src.base);
    if (!r)
        r = store_upload_commit(up, op, NULL, NULL);
    if (r < 0)
        (void)store_upload_abort(up, op);
    return r;
}

static int make(struct store *s, struct op *op, enum change change)
{
    const struct attrs attrs = {.has = ATTR_MODE, .mode = S_IFREG | 0600};
    const char *const key = "a";
    struct mem_source src;

    op_init(op, 10 * NS_PER_SEC);
    mem_source_init(&src, "new", 3);
    switch (change) {
    case PUT:
        return store_put(s, op, "new", NULL, &src.base, NULL, NULL);
    case COPY:
        return store_copy(s, op, "a", NULL, "new", NULL, NULL, NULL);
    case RENAME:
        return store_rename(s, op, "a", "new");
    case RENAME_DIR:
        return store_rename(s, op, "dir", "new");
    case REMOVE:
        return store_remove(s, op, &key, NULL, 1, NULL);
    case SET_ATTRS:
        return store_set_attributes(s, op, "a", "other version", &attrs, NULL);
    default:
        return upload(s, op);
    }
}

static struct store *open_filled(void)
{
    struct store *s = NULL;
    struct mem_source src;
    struct op op;

    op_init(&op, 10 * NS_PER_SEC);
    ck_assert_int_eq(local_store_new(root, NULL, &op, &s), 0);
    mem_source_init(&src, "a", 1);
    ck_assert_int_eq(store_put(s, &op, "a", NULL, &src.base, NULL, NULL), 0);
    ck_assert_int_eq(store_mkdir(s, &op, "dir", NULL, NULL), 0);
    return s;
}

/* A descriptor that is open already follows its folder: the store is opened anew. */
START_TEST(no_object_is_missing_because_the_folder_is)
{
    enum change change = (enum change)(_i / GOINGS);
    enum going how = (enum going)(_i % GOINGS);
    struct store *s = open_filled();
    struct op op;

    if (how != REMOVED) {
        store_close(s);
        op_init(&op, 10 * NS_PER_SEC);
        ck_assert_int_eq(local_store_new(root, NULL, &op, &s), 0);
    }
    go(how);
    int r = make(s, &op, change);
    if (how != REMOVED) {
        ck_assert_msg(r == -ENXIO, "%d %s", r, op.why);
        ck_assert_ptr_nonnull(strstr(op.why, state));
    }
    come_back(how);
    if (how != REMOVED)
        r = make(s, &op, change);
    ck_assert_msg(r == (change == SET_ATTRS ? -ESTALE : 0), "%d %s", r, op.why);
    store_close(s);
}
END_TEST

/* ---- a mount ---- */

static void fill(void)
{
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "from"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "to"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "empty"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "below"), 0);
    driven_put(&d, "from/a", "a", 1);
    driven_put(&d, "below/b", "b", 1);
    ck_assert_int_eq(driven_flush(&d), 0);
}

/* A store that has opened no folder to stage in yet, and an empty cache. */
static void open_anew(void)
{
    struct store *s = NULL;
    struct op op;

    driven_release(&d);
    op_init(&op, 10 * NS_PER_SEC);
    ck_assert_int_eq(local_store_new(root, NULL, &op, &s), 0);
    driven_init_over(&d, s, around);
    driven_mount(&d);
}

static void check_moved(void)
{
    driven_shows(&d, "to/n", "a");
    driven_shows(&d, "new/b", "b");
    driven_stores(&d, "to/n", "a");
    driven_stores(&d, "from/a", NULL);
    driven_stores(&d, "new/b", "b");
    ck_assert(!driven_stores_dir(&d, "below"));
    ck_assert(!driven_stores_dir(&d, "empty"));
    ck_assert(driven_stores_dir(&d, "moved"));
}

START_TEST(renames_wait_for_it)
{
    fill();
    if (_i != REMOVED)
        open_anew();
    ck_assert_int_eq(driven_list(&d, ""), 4);
    ck_assert_int_eq(driven_list(&d, "from"), 1);
    ck_assert_int_eq(driven_list(&d, "below"), 1);
    go((enum going)_i);
    atomic_store(&moves, 0);
    ck_assert_int_eq(driven_rename(&d, "from/a", "to/n"), 0);
    ck_assert_int_eq(driven_rename(&d, "below", "new"), 0);
    ck_assert_int_eq(driven_rename(&d, "empty", "moved"), 0);
    DRIVEN_WAIT(atomic_load(&moves) >= 1);
    (void)usleep(300 * 1000); /* the others, too */
    come_back((enum going)_i);
    DRIVEN_WAIT(driven_flush(&d) == 0); /* one may end by a refusal that was under way */
    check_moved();
}
END_TEST

START_TEST(an_upload_in_parts_begins_anew)
{
    driven_mount(&d);
    atomic_store(&commits, 1);
    driven_put(&d, "f", "several parts", 13);
    DRIVEN_WAIT(driven_flush(&d) == 0); /* the session is gone: one attempt fails */
    ck_assert_int_le(atomic_load(&commits), -1);
    driven_stores(&d, "f", "several parts");
}
END_TEST

/* Some network filesystems say so of a new name that they don't take. */
START_TEST(a_rename_that_finds_nothing_is_asked_about)
{
    fill();
    ck_assert_int_eq(driven_list(&d, "from"), 1);
    atomic_store(&untrue, 3);
    if (_i)
        ck_assert_int_eq(driven_rename(&d, "below", "new"), 0);
    else
        ck_assert_int_eq(driven_rename(&d, "from/a", "to/n"), 0);
    DRIVEN_WAIT(atomic_load(&untrue) <= 0);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, _i ? "new/b" : "to/n", _i ? "b" : "a");
    driven_stores(&d, _i ? "below/b" : "from/a", NULL);
    driven_shows(&d, _i ? "new/b" : "to/n", _i ? "b" : "a");
}
END_TEST

START_TEST(what_is_stale_is_an_outage)
{
    fill();
    atomic_store(&stale, true);
    ck_assert_int_eq(driven_unlink(&d, "from/a"), 0);
    DRIVEN_WAIT(atomic_load(&stales) >= 2);
    (void)usleep(300 * 1000);
    atomic_store(&stale, false);
    DRIVEN_WAIT(driven_flush(&d) == 0);
    driven_stores(&d, "from/a", NULL);
}
END_TEST

START_TEST(a_trial_makes_no_folder_again)
{
    struct store *s = NULL;
    struct mem_source src;
    char made[128];
    struct op op;

    op_init(&op, 10 * NS_PER_SEC);
    ck_assert_int_eq(mkdir(state, 0700), 0);
    (void)snprintf(made, sizeof(made), "file://%s", root);
    ck_assert_int_eq(store_open_trial(made, NULL, &op, &s), 0);
    temp_dir_remove(state);
    mem_source_init(&src, "x", 1);
    ck_assert_int_eq(store_put(s, &op, "x", NULL, &src.base, NULL, NULL), -ENXIO);
    store_close(s);
    (void)snprintf(made, sizeof(made), "%s.runfs", state);
    ck_assert_int_eq(access(state, F_OK), -1);
    ck_assert_int_eq(access(made, F_OK), -1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_state_gone");
    TCase *t = tcase_create("cache_state_gone");

    temp_dir_begin();
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, no_object_is_missing_because_the_folder_is, 0, CHANGES * GOINGS);
    tcase_add_loop_test(t, renames_wait_for_it, 0, GOINGS);
    tcase_add_test(t, an_upload_in_parts_begins_anew);
    tcase_add_loop_test(t, a_rename_that_finds_nothing_is_asked_about, 0, 2);
    tcase_add_test(t, what_is_stale_is_an_outage);
    tcase_add_test(t, a_trial_makes_no_folder_again);
    suite_add_tcase(s, t);
    return suite_run(s);
}
