/* The n-th allocation, disk call or store call of runfs's own code fails, once, while a
 * checkpoint is saved, found owed, read, or removed: nobody crashes, a program that tries again
 * gets on, the store has nothing half, and in the end all of it. By night for each n, else for
 * some. The calls are replaced by the linker (--wrap), so that a sanitizer's stay below. */
#include "cache/mount.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/some.h"
#include "tests/lib/suite.h"
#include "tests/lib/temp_dir.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum kind { KIND_MEMORY, KIND_DISK, KIND_STORE, KINDS };

/* What the processes share. */
static struct shared {
    atomic_uint calls; /* of the kind, since it is armed */
    atomic_int kind;   /* KINDS: none */
    unsigned fail_at;
    atomic_bool failed, ended;
} * shared;

static bool fails(enum kind kind)
{
    if (!shared || atomic_load(&shared->kind) != (int)kind)
        return false;
    if (atomic_fetch_add(&shared->calls, 1) + 1 != shared->fail_at)
        return false;
    atomic_store(&shared->failed, true);
    return true;
}

/* ---- memory ---- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_reallocarray(void *p, size_t n, size_t size);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);

void *__wrap_malloc(size_t size)
{
    return fails(KIND_MEMORY) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails(KIND_MEMORY) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    return fails(KIND_MEMORY) ? NULL : __real_realloc(p, size);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
    return fails(KIND_MEMORY) ? NULL : __real_reallocarray(p, n, size);
}

char *__wrap_strdup(const char *s)
{
    return fails(KIND_MEMORY) ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
    return fails(KIND_MEMORY) ? NULL : __real_strndup(s, n);
}

/* ---- the disk ---- */

#define DISK_FAILS (fails(KIND_DISK) && (errno = EIO))

int __real_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags);
int __real_linkat(int from_dir, const char *from, int to_dir, const char *to, int flags);
int __real_renameat2(int from_dir, const char *from, int to_dir, const char *to,
                     unsigned flags);
int __real_unlinkat(int dir, const char *name, int flags);
int __real_mkdirat(int dir, const char *name, mode_t mode);
int __real_ftruncate(int fd, off_t size);
int __real_fsync(int fd);

int __wrap_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
    return DISK_FAILS ? -1 : __real_fsetxattr(fd, name, value, size, flags);
}

int __wrap_linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    return DISK_FAILS ? -1 : __real_linkat(from_dir, from, to_dir, to, flags);
}

int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return DISK_FAILS ? -1 : __real_renameat2(from_dir, from, to_dir, to, flags);
}

int __wrap_unlinkat(int dir, const char *name, int flags)
{
    return DISK_FAILS ? -1 : __real_unlinkat(dir, name, flags);
}

int __wrap_mkdirat(int dir, const char *name, mode_t mode)
{
    return DISK_FAILS ? -1 : __real_mkdirat(dir, name, mode);
}

int __wrap_ftruncate(int fd, off_t size)
{
    return DISK_FAILS ? -1 : __real_ftruncate(fd, size);
}

int __wrap_fsync(int fd)
{
    return DISK_FAILS ? -1 : __real_fsync(fd);
}

/* ---- the store ---- */

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    return fails(KIND_STORE) ? op_fail(c->op, -EIO, "this call fails") : call_next(c);
}

/* ---- a program that tries again ---- */

static struct driven d;

/* What fails once works the next time. */
#define TRIED(call)                                                                            \
    ({                                                                                         \
        int tried_r = (call);                                                                  \
        for (int tried_n = 0; tried_r < 0 && tried_n < 30; tried_n++) {                        \
            (void)usleep(100000);                                                              \
            tried_r = (call);                                                                  \
        }                                                                                      \
        tried_r;                                                                               \
    })

static int write_once(const char *path)
{
    struct handle *h;
    int r = driven_open(&d, path, O_CREAT | O_TRUNC | O_WRONLY, &h);

    if (r < 0)
        return r;
    int w = driven_write(&d, h, path, strlen(path), 0);
    r = driven_close(&d, h);
    return w < 0 ? w : r;
}

static int make_dir(const char *path)
{
    int r = driven_mkdir(&d, path);

    return r == -EEXIST ? 0 : r;
}

static int move(const char *from, const char *to)
{
    int r = driven_rename(&d, from, to);

    return r == -ENOENT ? 0 : r; /* the failed attempt has done it */
}

static int gone(int r)
{
    return r == -ENOENT ? 0 : r;
}

static int mount_once(void)
{
    struct op op;

    op_init(&op, 60 * NS_PER_SEC);
    d.config.identity = d.store->url;
    return cache_new(&d.config, d.store, &op, &d.cache);
}

/* Those of check take memory. */
static void must_hold(bool holds, int line)
{
    if (holds)
        return;
    (void)dprintf(STDERR_FILENO, "line %d\n", line);
    _exit(3);
}
#define must(condition) must_hold(condition, __LINE__)

static const char *const files[] = {"checkpoint-1/x", "checkpoint-1/sub/y", "checkpoint-1/z",
                                    NULL};

static void save(void)
{
    must(TRIED(make_dir("tmp-1")) == 0);
    must(TRIED(make_dir("tmp-1/sub")) == 0);
    must(TRIED(write_once("tmp-1/x")) == 0);
    must(TRIED(write_once("tmp-1/sub/y")) == 0);
    must(TRIED(write_once("tmp-1/z")) == 0);
    must(TRIED(move("tmp-1", "checkpoint-1")) == 0);
    must(TRIED(write_once("latest.tmp")) == 0);
    must(TRIED(move("latest.tmp", "latest")) == 0);
}

static int read_all(void)
{
    char text[64];
    int r = 0;

    for (size_t i = 0; files[i] && r == 0; i++) {
        ssize_t n = driven_read(&d, files[i], text, sizeof(text));
        r = n < 0 ? (int)n : 0;
        must(n < 0 || (n == (ssize_t)(strlen(files[i]) - 7) && strncmp(text, "tmp-1", 5) == 0));
    }
    return r;
}

static void take_away(void)
{
    for (size_t i = 0; files[i]; i++)
        must(TRIED(gone(driven_unlink(&d, files[i]))) == 0);
    must(TRIED(gone(driven_rmdir(&d, "checkpoint-1/sub"))) == 0);
    must(TRIED(gone(driven_rmdir(&d, "checkpoint-1"))) == 0);
}

static void arm(enum kind kind)
{
    atomic_store(&shared->kind, (int)kind);
}

static void all_is_stored(void)
{
    must(TRIED(driven_flush(&d)) == 0);
    arm(KINDS);
}

/* ---- stories, in a process of their own; what they begin with is made before ---- */

static void begin_empty(void)
{
}

static void begin_stored(void)
{
    driven_mount(&d);
    save();
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
}

static void begin_owed(void)
{
    driven_mount(&d);
    save();
    driven_unmount(&d);
}

static void run_save(enum kind kind)
{
    driven_mount(&d);
    arm(kind);
    save();
    all_is_stored();
}

static void run_recover(enum kind kind)
{
    arm(kind);
    must(TRIED(mount_once()) == 0);
    all_is_stored();
}

static void run_restore(enum kind kind)
{
    temp_dir_remove(d.dir);
    ck_assert_int_eq(mkdir(d.dir, 0700), 0);
    arm(kind);
    must(TRIED(mount_once()) == 0);
    must(TRIED(read_all()) == 0);
    arm(KINDS);
}

static void run_remove(enum kind kind)
{
    driven_mount(&d);
    arm(kind);
    take_away();
    all_is_stored();
}

static const struct story {
    const char *name;
    void (*begin)(void);
    void (*run)(enum kind kind);
    bool removes;
} stories[] = {
    {"save", begin_empty, run_save, false},
    {"recover", begin_owed, run_recover, false},
    {"restore", begin_stored, run_restore, false},
    {"remove", begin_stored, run_remove, true},
};

static void what_the_store_has(const struct story *s, enum kind kind)
{
    char text[64];

    for (size_t i = 0; files[i]; i++)
        ck_assert_msg((driven_stored(&d, files[i], text, sizeof(text)) < 0) == s->removes,
                      "%s, kind %d, call %u: %s", s->name, (int)kind, shared->fail_at,
                      files[i]);
    ck_assert_int_eq(driven_stored(&d, "latest", text, sizeof(text)), 10);
}

/* Whether the call came, and failed. */
static bool tell(const struct story *s, enum kind kind, unsigned fail_at)
{
    int status;

    driven_init_folder(&d, around, 1 << 20);
    d.config.settle_ns = 0;
    d.config.retry_ns = 5 * NS_PER_MS;
    arm(KINDS);
    s->begin();
    atomic_store(&shared->calls, 0);
    atomic_store(&shared->failed, false);
    atomic_store(&shared->ended, false);
    shared->fail_at = fail_at;
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        s->run(kind);
        atomic_store(&shared->ended, true);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(status == 0 && atomic_load(&shared->ended),
                  "%s, kind %d, call %u: status 0x%x", s->name, (int)kind, fail_at, status);
    what_the_store_has(s, kind);
    driven_release(&d);
    return atomic_load(&shared->failed);
}

/* So many of each kind and story, where not each n is tried. */
#define SOME      40
#define SOME_TSAN 3

static unsigned count_calls(const struct story *s, enum kind kind)
{
    (void)tell(s, kind, 0);
    return atomic_load(&shared->calls);
}

START_TEST(any_call_may_fail_once)
{
    const struct story *s = &stories[(size_t)_i / KINDS];
    enum kind kind = (enum kind)(_i % KINDS);
    unsigned all = count_calls(s, kind), n = 0;
    unsigned step = step_through(all, SOME, SOME_TSAN);

    for (unsigned at = 1; at <= all; at += step)
        n += tell(s, kind, at);
    (void)printf("%s, kind %d: %u of %u\n", s->name, (int)kind, n, all);
    ck_assert_uint_gt(n, 0);
}
END_TEST

static void setup(void)
{
    shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
    arm(KINDS);
}

int main(void)
{
    Suite *suite = suite_create("cache_nth_fails");
    TCase *t = tcase_create("cache_nth_fails");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_set_timeout(t, 3600);
    tcase_add_loop_test(t, any_call_may_fail_once, 0, (int)(ARRAY_SIZE(stories) * KINDS));
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
