/* cache/: the removal of a directory that failed once is tried again later, and what took its
 * place here, a file, goes to the store meanwhile; or the reverse. That row takes away nothing
 * of the other kind, and hides nothing of it from the next mount, which may know it by a
 * listing alone. */
#include "cache/mirror/crash.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OLD "old"
#define NEW "the new one"

/* ---- the store ---- */

enum kind_of_store { LIKE_S3, COPIES, NATIVE, STORES };

static struct {
    const char *key;     /* whose removals fail */
    bool takes_effect;   /* only the answer is lost */
    atomic_bool fails;   /* they do */
    atomic_bool in_list; /* the removal is carried out while the next listing of `listed` is
                            under way */
    const char *listed;
    atomic_uint noted; /* removals whose rows are gone */
} gate;

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    bool removes = (c->kind == CALL_RMDIR || c->kind == CALL_REMOVE) && gate.key &&
                   strcmp(c->key, gate.key) == 0;

    if (removes && atomic_load(&gate.fails)) {
        if (gate.takes_effect)
            (void)call_next(c);
        return op_fail(c->op, -EIO, "%s", gate.takes_effect ? "a lost answer" : "no");
    }
    int64_t r = call_next(c);
    if (c->kind == CALL_LIST && gate.listed && strcmp(c->key, gate.listed) == 0 &&
        atomic_exchange(&gate.in_list, false)) {
        unsigned before = atomic_load(&gate.noted);
        atomic_store(&gate.fails, false);
        for (int i = 0; i < 2000 && atomic_load(&gate.noted) == before; i++)
            (void)op_sleep(c->op, 5 * NS_PER_MS);
        (void)op_sleep(c->op, 100 * NS_PER_MS); /* memory forgets it, too */
    }
    return r;
}

static void seen(const char *name)
{
    if (strcmp(name, "delete-noted") == 0)
        atomic_fetch_add(&gate.noted, 1);
}

static void start(struct driven *d, enum kind_of_store kind, const char *key)
{
    gate.key = key;
    gate.takes_effect = kind != LIKE_S3; /* a folder can't have both at a name */
    gate.listed = NULL;
    atomic_store(&gate.in_list, false);
    atomic_store(&gate.fails, false);
    if (kind == LIKE_S3)
        driven_init_like_s3(d, around);
    else
        driven_init_folder(d, around, 1 << 20);
    if (kind == COPIES)
        d->store->facts.caps &= ~(unsigned)STORE_RENAME;
    d->config.late_ns = 0;
    d->config.retry_ns = 20 * NS_PER_MS;
    d->config.attr_timeout_ns = d->config.list_timeout_ns = 3600 * NS_PER_SEC;
}

static bool is_stored(struct driven *d, const char *key, const char *wanted)
{
    char buf[64];
    ssize_t n = driven_stored(d, key, buf, sizeof(buf));

    return n == (ssize_t)strlen(wanted) && memcmp(buf, wanted, (size_t)n) == 0;
}

/* ---- killed while the content leaves the cache ---- */

static void evict(struct driven *d, const char *path)
{
    struct cache_evicted gone;
    struct op op;

    op_init(&op, 20 * NS_PER_SEC);
    (void)cache_evict_path(d->cache, path, &op, NULL, NULL, &gone);
}

/* A file changes places with a directory. Its content leaves the cache once the store has both
 * under their new names. */
static void exchange_and_die(struct driven *d)
{
    driven_mount(d);
    driven_shows(d, "f", NEW);
    if (driven_exchange(d, "f", "d") < 0)
        _exit(1);
    crash_arm("evict-discarded");
    for (int i = 0; i < 2000; i++) { /* it goes once it is clean */
        if (is_stored(d, "d", NEW) && is_stored(d, "f/one", OLD))
            evict(d, "d");
        (void)usleep(10000);
    }
    _exit(2);
}

START_TEST(killed_between_the_steps_of_an_eviction)
{
    struct driven d;
    struct stat st;
    int status = 0;

    start(&d, COPIES, "d");
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "d"), 0);
    driven_put(&d, "d/one", OLD, strlen(OLD));
    driven_put(&d, "f", NEW, strlen(NEW));
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    driven_unmount(&d);
    atomic_store(&gate.fails, true);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        exchange_and_die(&d);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "d", &st), 0);
    ck_assert(S_ISREG(st.st_mode));
    driven_shows(&d, "d", NEW);
    driven_shows(&d, "f/one", OLD);
    ck_assert_int_eq(driven_list(&d, ""), 2);
    atomic_store(&gate.fails, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    driven_shows(&d, "d", NEW);
    driven_shows(&d, "f/one", OLD);
    driven_release(&d);
}
END_TEST

/* ---- a machine that goes down ---- */

/* The boot id is the first line of its file. */
static void another_boot(struct driven *d)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/boot", d->dir);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "00000000", 8, 0), 8);
    ck_assert_int_eq(close(fd), 0);
}

static void leads_to(struct driven *d, const char *path, const char *wanted)
{
    auto_free char *target = NULL;
    int r = driven_readlink(d, path, &target);

    ck_assert_msg(r == 0, "%s: %d", path, r);
    ck_assert_str_eq(target, wanted);
}

/* What a symlink is was not synced: the store has it. */
START_TEST(a_symlink_that_took_the_place_of_a_directory)
{
    struct driven d;

    start(&d, (enum kind_of_store)_i, "in/x");
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "in"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "in/x"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&gate.fails, true);
    ck_assert_int_eq(driven_rmdir(&d, "in/x"), 0);
    ck_assert_int_eq(driven_symlink(&d, "there", "in/x"), 0);
    DRIVEN_WAIT(driven_stored(&d, "in/x", NULL, 0) >= 0);
    DRIVEN_WAIT(strcmp(driven_state(&d, "in/x"), "clean") == 0);
    driven_unmount(&d);
    another_boot(&d);
    driven_mount(&d);
    leads_to(&d, "in/x", "there");
    ck_assert_int_eq(driven_list(&d, "in"), 1);
    ck_assert_int_eq(driven_rmdir(&d, "in"), -ENOTEMPTY);
    atomic_store(&gate.fails, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    leads_to(&d, "in/x", "there");
    driven_mount_afresh(&d);
    leads_to(&d, "in/x", "there");
    driven_release(&d);
}
END_TEST

/* ---- another node ---- */

/* Puts a file where this cache has removed a directory, or the reverse. */
START_TEST(what_another_node_puts_is_shown)
{
    bool file_comes = _i % 2, while_listed = _i / 2;
    const char *path = file_comes ? "in/x" : "in/x/one";
    struct driven d;
    struct stat st;

    start(&d, LIKE_S3, "in/x");
    gate.takes_effect = true;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "in"), 0);
    driven_put(&d, "in/other", OLD, strlen(OLD));
    if (file_comes)
        ck_assert_int_eq(driven_mkdir(&d, "in/x"), 0);
    else
        driven_put(&d, "in/x", OLD, strlen(OLD));
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&gate.fails, true);
    ck_assert_int_eq(file_comes ? driven_rmdir(&d, "in/x") : driven_unlink(&d, "in/x"), 0);
    DRIVEN_WAIT(!is_stored(&d, "in/x", OLD) && !driven_stores_dir(&d, "in/x"));
    driven_unmount(&d);
    driven_store(&d, path, NEW, strlen(NEW));
    gate.listed = "in";
    atomic_store(&gate.in_list, while_listed);
    crash_watch(seen);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "in"), 2);
    ck_assert_int_eq(driven_stat(&d, "in/x", &st), 0);
    ck_assert_uint_eq(st.st_mode & S_IFMT, file_comes ? S_IFREG : S_IFDIR);
    driven_shows(&d, path, NEW);
    atomic_store(&gate.fails, false);
    (void)driven_flush(&d);
    driven_mount_afresh(&d);
    if (file_comes)
        driven_shows(&d, path, NEW);
    crash_watch(NULL);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_other_kind");
    TCase *tc = tcase_create("removals");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, killed_between_the_steps_of_an_eviction);
    tcase_add_loop_test(tc, a_symlink_that_took_the_place_of_a_directory, 0, STORES);
    tcase_add_loop_test(tc, what_another_node_puts_is_shown, 0, 4);
    suite_add_tcase(s, tc);
    return suite_run(s);
}
