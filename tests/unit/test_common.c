/* common/: operations, errors, log, locks, pools, buffers, paths. */
#include "common/buf.h"
#include "common/checksum.h"
#include "common/crc.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/op.h"
#include "common/path.h"
#include "common/pool.h"
#include "common/printable.h"
#include "common/siphash.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- op ---- */

START_TEST(op_without_limits_goes_on)
{
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_int_eq(op_check(&op), 0);
    ck_assert_int_eq(op_left_ns(&op), OP_FOREVER);
    ck_assert_int_eq(op_sleep(&op, NS_PER_MS), 0);
    ck_assert_str_eq(op.why, "");
}
END_TEST

START_TEST(op_deadline_ends_a_sleep)
{
    struct op op;
    int64_t start = clock_mono_ns();

    op_init(&op, 30 * NS_PER_MS);
    ck_assert_int_le(op_left_ns(&op), 30 * NS_PER_MS);
    ck_assert_int_eq(op_sleep(&op, 60 * NS_PER_SEC), -ETIMEDOUT);
    ck_assert_int_ge(clock_mono_ns() - start, 30 * NS_PER_MS);
    ck_assert_int_lt(clock_mono_ns() - start, 20 * NS_PER_SEC);
    ck_assert_int_eq(op_left_ns(&op), 0);
    ck_assert_str_ne(op.why, "");
}
END_TEST

static void *cancel_soon(void *arg)
{
    struct timespec ts = {.tv_nsec = 20 * NS_PER_MS};

    nanosleep(&ts, NULL);
    atomic_store((atomic_bool *)arg, true);
    return NULL;
}

START_TEST(op_cancel_ends_a_sleep)
{
    atomic_bool cancelled = false;
    struct op op;
    pthread_t t;

    op_init(&op, OP_FOREVER);
    op.cancelled = &cancelled;
    ck_assert_int_eq(pthread_create(&t, NULL, cancel_soon, &cancelled), 0);
    ck_assert_int_eq(op_sleep(&op, 60 * NS_PER_SEC), -EINTR);
    pthread_join(t, NULL);
}
END_TEST

START_TEST(op_end_keeps_the_reason)
{
    struct op op;

    op_init(&op, 0);
    ck_assert_int_eq(op_fail(&op, -EIO, "503 %s", "SlowDown"), -EIO);
    ck_assert_int_eq(op_check(&op), -ETIMEDOUT);
    ck_assert_int_eq(op_check(&op), -ETIMEDOUT);
    ck_assert_str_eq(op.why, "the time limit is over; before that: 503 SlowDown");
}
END_TEST

/* ---- arrays ---- */

START_TEST(array_grows_or_stays)
{
    uint64_t *v = NULL;
    size_t cap = 0;

    ck_assert_int_eq(array_grow(v, cap, 0), 0);
    ck_assert_ptr_null(v);
    for (size_t n = 0; n < 1000; n++) {
        ck_assert_int_eq(array_grow(v, cap, n + 1), 0);
        ck_assert_uint_gt(cap, n);
        v[n] = n;
    }
    ck_assert_uint_lt(cap, 2048);
    /* More bytes than a size_t counts. */
    ck_assert_int_eq(array_grow(v, cap, SIZE_MAX / 8 + 2), -ENOMEM);
    ck_assert_int_eq(array_grow(v, cap, SIZE_MAX), -ENOMEM);
    ck_assert_uint_lt(cap, 2048);
    for (size_t n = 0; n < 1000; n++)
        ck_assert_uint_eq(v[n], n);
    free(v);
}
END_TEST

/* ---- err ---- */

START_TEST(err_table)
{
    ck_assert(err_is_transient(-EAGAIN));
    ck_assert(err_is_transient(-EIO));
    ck_assert(err_is_transient(-EPROTO));
    ck_assert(err_is_transient(-ECONNRESET));
    ck_assert(err_is_transient(-ETIMEDOUT));
    ck_assert(!err_is_transient(0));
    ck_assert(!err_is_transient(EAGAIN)); /* a count of 11 bytes */
    ck_assert(!err_is_transient(-ENOENT));
    ck_assert(!err_is_transient(-ESTALE));
    ck_assert(!err_is_transient(-EINTR));
    ck_assert(!err_is_transient(-EACCES));
    ck_assert(!err_is_transient(-ENOSPC));
    ck_assert(err_is_network(-ETIMEDOUT) && !err_is_unreachable(-ETIMEDOUT));
    ck_assert(err_is_network(-ENETDOWN) && err_is_unreachable(-ENETDOWN));
    ck_assert(err_is_transient(-ENETDOWN));
    ck_assert(!err_is_network(-EIO) && !err_is_network(ENETDOWN));
    ck_assert(err_is_no_space(-ENOSPC));
    ck_assert(err_is_no_space(-EDQUOT));
    ck_assert(!err_is_no_space(ENOSPC));
    ck_assert(!err_is_no_space(-EIO));
    ck_assert_str_eq(err_name(-ENOENT), "ENOENT");
    ck_assert_str_eq(err_name(ESTALE), "ESTALE");
    ck_assert_str_eq(err_name(99999), "unknown error");
    ck_assert_int_eq(err_by_name("ESTALE"), ESTALE);
    ck_assert_int_eq(err_by_name("unknown error"), 0);
}
END_TEST

/* ---- log ---- */

static void read_file(const char *path, char *text, size_t size)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    ck_assert_int_ge(fd, 0);
    n = read(fd, text, size - 1);
    ck_assert_int_ge(n, 0);
    text[n] = '\0';
}

START_TEST(log_escapes_and_filters)
{
    char path[] = "/tmp/runfs-test-log-XXXXXX", text[4096];
    enum log_level level;
    struct stat st;
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_int_eq(log_to_file(AT_FDCWD, "/nonexistent/log"), -ENOENT);
    unlink(path);
    ck_assert_int_eq(log_to_file(AT_FDCWD, path), 0);
    log_info("name %s", "a\nb\x1b[31m\x7f\xc2\x9b\xc3\xa9");
    log_debug("not written");
    ck_assert_int_eq(log_level_parse("debug", &level), 0);
    log_set_level(level);
    log_debug("written");
    log_set_level(LOG_LEVEL_INFO);
    ck_assert_int_eq(log_level_parse("loud", &level), -EINVAL);

    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    read_file(path, text, sizeof(text));
    ck_assert_ptr_nonnull(
        strstr(text, " info  name a\\x0ab\\x1b[31m\\x7f\\xc2\\x9b\xc3\xa9\n"));
    ck_assert_ptr_null(strstr(text, "not written"));
    ck_assert_ptr_nonnull(strstr(text, " debug written\n"));

    unlink(path);
    ck_assert_int_eq(log_to_file(AT_FDCWD, path), 0); /* the second redirection */
    log_info("again");
    read_file(path, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, " info  again\n"));
    unlink(path);
}
END_TEST

enum { LOGGERS = 4, LOGGED = 5000 };
#define SLACK (1 << 20) /* more than a line of each thread */

/* Each line carries its thread and its number; together they are larger than a file may be, and
 * smaller than two. */
static void *log_many(void *arg)
{
    char filler[1000];

    memset(filler, '.', sizeof(filler));
    for (int i = 0; i < LOGGED; i++)
        log_info("%.*s=%d %d=", (int)sizeof(filler), filler, *(const int *)arg, i);
    return NULL;
}

/* The lines of the file that nobody had seen; -1 when one is torn or comes twice. */
static int lines_of(int dir, const char *name, bool seen[LOGGERS][LOGGED])
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW), n = 0, thread, number;
    char line[2000];
    FILE *f;

    ck_assert_int_ge(fd, 0);
    f = fdopen(fd, "r");
    ck_assert_ptr_nonnull(f);
    for (; fgets(line, sizeof(line), f); n++) {
        char *end = strchr(line, '=');

        if (!end || sscanf(end, "=%d %d=\n", &thread, &number) != 2 || seen[thread][number])
            return -1;
        seen[thread][number] = true;
    }
    fclose(f);
    return n;
}

static off_t size_of(int dir, const char *name)
{
    struct stat st;

    ck_assert_int_eq(fstatat(dir, name, &st, 0), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    return st.st_size;
}

START_TEST(log_begins_anew_at_its_limit)
{
    static bool seen[LOGGERS][LOGGED];
    char path[] = "/tmp/runfs-test-log-XXXXXX";
    int numbers[LOGGERS], dir;
    pthread_t threads[LOGGERS];

    ck_assert_ptr_nonnull(mkdtemp(path));
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(log_to_file(dir, "log"), 0);
    for (int i = 0; i < LOGGERS; i++) {
        numbers[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, log_many, &numbers[i]), 0);
    }
    for (int i = 0; i < LOGGERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(lines_of(dir, "log", seen) + lines_of(dir, "log.1", seen),
                     LOGGERS * LOGGED);
    ck_assert_int_ge(size_of(dir, "log.1"), LOG_FILE_MAX);
    ck_assert_int_lt(size_of(dir, "log.1"), LOG_FILE_MAX + SLACK);

    /* What others moved away stays where they put it. */
    ck_assert_int_eq(renameat(dir, "log", dir, "aside"), 0);
    (void)log_many(&numbers[0]);
    (void)log_many(&numbers[0]);
    (void)log_many(&numbers[0]);
    ck_assert_int_ge(size_of(dir, "aside"), LOG_FILE_MAX - SLACK);
    ck_assert_int_gt(size_of(dir, "log"), 0);
    ck_assert_int_ge(size_of(dir, "log.1"), LOG_FILE_MAX);

    /* It can't be moved: it goes on where it is. */
    ck_assert_int_eq(unlinkat(dir, "log.1", 0), 0);
    ck_assert_int_eq(mkdirat(dir, "log.1", 0700), 0);
    for (int i = 0; i < LOGGERS; i++)
        (void)log_many(&numbers[0]);
    ck_assert_int_ge(size_of(dir, "log"), LOG_FILE_MAX - SLACK);

    ck_assert_int_eq(unlinkat(dir, "log", 0), 0);
    ck_assert_int_eq(unlinkat(dir, "aside", 0), 0);
    ck_assert_int_eq(unlinkat(dir, "log.1", AT_REMOVEDIR), 0);
    ck_assert_int_eq(rmdir(path), 0);
    close(dir);
}
END_TEST

/* ---- lock ---- */

/* The status of a child that runs `mistake`; its message is not for the test's log. */
static int run_mistake(void (*mistake)(void))
{
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        mistake();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status;
}

static void lock_twice(void)
{
    struct mutex m;

    mutex_init(&m);
    mutex_lock(&m);
    mutex_lock(&m);
}

static void unlock_free(void)
{
    struct mutex m;

    mutex_init(&m);
    mutex_unlock(&m);
}

static void assert_not_held(void)
{
    struct mutex m;

    mutex_init(&m);
    mutex_lock(&m);
    mutex_unlock(&m);
    mutex_assert_held(&m);
}

static void read_twice(void)
{
    struct rwlock l;

    rwlock_init(&l);
    rwlock_read(&l);
    rwlock_read(&l);
}

static void write_what_is_read(void)
{
    struct rwlock l;

    rwlock_init(&l);
    rwlock_read(&l);
    rwlock_write(&l);
}

static void read_what_is_written(void)
{
    struct rwlock l;

    rwlock_init(&l);
    rwlock_write(&l);
    rwlock_read(&l);
}

static void assert_not_read(void)
{
    struct rwlock l;

    rwlock_init(&l);
    rwlock_read(&l);
    rwlock_unlock(&l);
    rwlock_assert_held(&l);
}

static void assert_not_written(void)
{
    struct rwlock l;

    rwlock_init(&l);
    rwlock_read(&l);
    rwlock_assert_held_for_writing(&l);
}

static void *unlock_rwlock(void *arg)
{
    rwlock_unlock(arg);
    return NULL;
}

static void unlock_anothers(void)
{
    struct rwlock l;
    pthread_t thread;

    rwlock_init(&l);
    rwlock_write(&l);
    if (!pthread_create(&thread, NULL, unlock_rwlock, &l))
        (void)pthread_join(thread, NULL);
}

static void (*const mistakes[])(void) = {
    lock_twice,      unlock_free,        assert_not_held,
    read_twice,      write_what_is_read, read_what_is_written,
    assert_not_read, assert_not_written, unlock_anothers};

START_TEST(lock_mistakes_abort)
{
    int status = run_mistake(mistakes[_i]);

    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}
END_TEST

START_TEST(rwlock_knows_its_readers_and_its_writer)
{
    struct rwlock l;

    rwlock_init(&l);
    rwlock_read(&l);
    rwlock_assert_held(&l);
    rwlock_unlock(&l);
    rwlock_write(&l);
    rwlock_assert_held(&l);
    rwlock_assert_held_for_writing(&l);
    rwlock_unlock(&l);
    rwlock_destroy(&l);
}
END_TEST

START_TEST(lock_wait_has_a_limit)
{
    struct mutex m;
    pthread_cond_t cond;
    int64_t start = clock_mono_ns();

    mutex_init(&m);
    cond_init(&cond);
    mutex_lock(&m);
    while (mutex_wait_until(&m, &cond, start + 20 * NS_PER_MS))
        ;
    mutex_assert_held(&m);
    mutex_unlock(&m);
    ck_assert_int_ge(clock_mono_ns() - start, 20 * NS_PER_MS);
    pthread_cond_destroy(&cond);
    mutex_destroy(&m);
}
END_TEST

/* ---- pool ---- */

struct counting_task {
    struct task task;
    struct pool *pool;
    atomic_uint *count;
    unsigned spawn; /* tasks to submit from within */
    char thread_name[16];
};

static void count_and_spawn(struct task *t)
{
    struct counting_task *c = container_of(t, struct counting_task, task);

    pthread_getname_np(pthread_self(), c->thread_name, sizeof(c->thread_name));
    atomic_fetch_add(c->count, 1);
    if (c->spawn) {
        struct counting_task *child = calloc(1, sizeof(*child));
        *child = *c;
        child->spawn--;
        pool_submit(c->pool, &child->task);
        free(c);
    } else {
        free(c);
    }
}

START_TEST(pool_runs_everything)
{
    struct pool *pool = pool_new("test-pool", 3);
    atomic_uint count = 0;

    ck_assert_ptr_nonnull(pool);
    for (int i = 0; i < 500; i++) {
        struct counting_task *c = calloc(1, sizeof(*c));
        *c = (struct counting_task){{.run = count_and_spawn}, pool, &count, i % 3u, ""};
        pool_submit(pool, &c->task);
    }
    pool_drain(pool);
    ck_assert_uint_eq(atomic_load(&count), 500 + 499); /* 0 + 1 + 2 children in turn */
    ck_assert_uint_eq(pool_waiting(pool), 0);
    pool_free(pool);
    pool_free(NULL);
}
END_TEST

struct order_task {
    struct task task;
    struct mutex *gate;
    char *log;
    char letter;
    char thread_name[16];
    bool signals_blocked;
};

static void write_letter(struct task *t)
{
    struct order_task *o = container_of(t, struct order_task, task);
    sigset_t set;

    mutex_lock(o->gate);
    strncat(o->log, &o->letter, 1);
    pthread_getname_np(pthread_self(), o->thread_name, sizeof(o->thread_name));
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    o->signals_blocked = sigismember(&set, SIGTERM) == 1 && sigismember(&set, SIGCHLD) == 1;
    mutex_unlock(o->gate);
}

/* ---- a pool whose worker goes on by itself ---- */

struct chained_task {
    struct task task;
    struct pool *pool;
    unsigned *left; /* the chain is one task at a time */
    bool *batch;    /* so far every worker was */
};

static void run_and_chain(struct task *t)
{
    struct chained_task *c = container_of(t, struct chained_task, task);

    *c->batch = *c->batch && sched_getscheduler(0) == SCHED_BATCH;
    if (--*c->left)
        pool_submit_own(c->pool, &c->task);
}

START_TEST(pool_worker_goes_on_by_itself)
{
    struct pool *pool = pool_new("test-pool", 3);
    unsigned left = 1000;
    bool batch = true;
    struct chained_task c = {{.run = run_and_chain}, pool, &left, &batch};

    ck_assert_ptr_nonnull(pool);
    pool_set_batch(pool);
    pool_submit(pool, &c.task);
    pool_drain(pool);
    ck_assert_uint_eq(left, 0);
    ck_assert(batch);
    pool_free(pool);
}
END_TEST

/* ---- calls that differ by a number ---- */

struct counted_calls {
    struct each each;
    const atomic_bool *cancelled;
    atomic_uint made[100];
    size_t fails_at;
};

static int count_call(struct each *each, size_t i, struct op *op)
{
    struct counted_calls *c = container_of(each, struct counted_calls, each);

    atomic_fetch_add(&c->made[i], 1);
    ck_assert_ptr_eq(op->cancelled, c->cancelled);
    ck_assert(op_left_ns(op) > 0 && op_left_ns(op) <= c->each.patience_ns);
    if (i < c->fails_at)
        return 0;
    op->retry_after_ns = 7;
    return op_fail(op, -EIO, "call %zu failed", i);
}

static void each_of(struct counted_calls *c, size_t n, unsigned at_once, size_t fails_at)
{
    *c = (struct counted_calls){.fails_at = fails_at};
    c->each = (struct each){
        .call = count_call, .n = n, .at_once = at_once, .patience_ns = 3600 * NS_PER_SEC};
}

START_TEST(pool_each_makes_all_calls)
{
    struct pool *pool = pool_new("test-pool", 3);
    const unsigned at_once[] = {1, 2, 1000};
    const atomic_bool cancelled = false;
    struct counted_calls c;
    struct op op;

    ck_assert_ptr_nonnull(pool);
    op_init(&op, OP_FOREVER);
    op.cancelled = &cancelled;
    for (size_t k = 0; k < ARRAY_SIZE(at_once); k++) {
        each_of(&c, 100, at_once[k], SIZE_MAX);
        c.cancelled = &cancelled;
        ck_assert_int_eq(pool_each(pool, &c.each, &op), 0);
        for (size_t i = 0; i < 100; i++)
            ck_assert_uint_eq(atomic_load(&c.made[i]), 1);
    }
    each_of(&c, 0, 2, 0);
    ck_assert_int_eq(pool_each(pool, &c.each, &op), 0);
    ck_assert_str_eq(op.why, "");
    pool_free(pool);
}
END_TEST

START_TEST(pool_each_ends_after_a_failure)
{
    struct pool *pool = pool_new("test-pool", 1);
    struct counted_calls c;
    struct op op;

    ck_assert_ptr_nonnull(pool);
    op_init(&op, OP_FOREVER);
    each_of(&c, 100, 4, 3);
    ck_assert_int_eq(pool_each(pool, &c.each, &op), -EIO);
    ck_assert_str_eq(op.why, "call 3 failed");
    ck_assert_int_eq(op.retry_after_ns, 7);
    for (size_t i = 0; i < 100; i++)
        ck_assert_uint_eq(atomic_load(&c.made[i]), i <= 3);
    pool_free(pool);
}
END_TEST

START_TEST(pool_keeps_order)
{
    struct pool *pool = pool_new("a-name-that-is-too-long", 1);
    char log[8] = "";
    struct mutex gate;
    struct order_task t[4];

    mutex_init(&gate);
    mutex_lock(&gate);
    for (int i = 0; i < 4; i++)
        t[i] =
            (struct order_task){{.run = write_letter}, &gate, log, (char)('a' + i), "", false};
    pool_submit(pool, &t[0].task);
    while (pool_waiting(pool)) /* the worker holds task a */
        sched_yield();
    pool_submit(pool, &t[1].task);
    pool_submit(pool, &t[2].task);
    pool_submit_first(pool, &t[3].task);
    ck_assert_uint_eq(pool_waiting(pool), 3);
    mutex_unlock(&gate);
    pool_free(pool); /* runs what is queued */
    ck_assert_str_eq(log, "adbc");
    ck_assert_str_eq(t[0].thread_name, "a-name-that-is-");
    ck_assert(t[0].signals_blocked);
    mutex_destroy(&gate);
}
END_TEST

/* ---- buf ---- */

START_TEST(buf_grows_to_its_maximum)
{
    auto_buf struct buf b = BUF_INIT(100);
    char sixty[60];

    memset(sixty, 'x', sizeof(sixty));
    ck_assert_int_eq(buf_add(&b, sixty, sizeof(sixty)), 0);
    ck_assert_int_eq(buf_add(&b, sixty, sizeof(sixty)), -EFBIG);
    ck_assert_int_eq(buf_addf(&b, "%041d", 1), -EFBIG);
    ck_assert_uint_eq(b.len, 60);
    ck_assert_int_eq(buf_addf(&b, "%040d", 1), 0);
    ck_assert_uint_eq(b.len, 100);
    ck_assert_uint_eq(strlen(b.data), 100);
    ck_assert_int_eq(buf_addc(&b, 'x'), -EFBIG);
    ck_assert_int_eq(buf_add(&b, NULL, 0), 0);
    buf_clear(&b);
    ck_assert_str_eq(b.data, "");
    ck_assert_int_eq(buf_add(&b, "a\0b", 3), 0);
    ck_assert_mem_eq(b.data, "a\0b", 4);
}
END_TEST

START_TEST(buf_take_empties)
{
    struct buf b;

    buf_init(&b, 10);
    auto_free char *empty = buf_take(&b);
    ck_assert_str_eq(empty, "");
    ck_assert_int_eq(buf_adds(&b, "text"), 0);
    auto_free char *text = buf_take(&b);
    ck_assert_str_eq(text, "text");
    ck_assert_ptr_null(b.data);
    ck_assert_int_eq(buf_adds(&b, "0123456789"), 0); /* the maximum is kept */
    ck_assert_int_eq(buf_addc(&b, 'x'), -EFBIG);
    buf_release(&b);
}
END_TEST

/* ---- path ---- */

static char *long_name(char *buf, size_t len)
{
    memset(buf, 'n', len);
    buf[len] = '\0';
    return buf;
}

START_TEST(path_names_and_keys)
{
    static const char *const bad[] = {"/",  "/a",   "a/",   "a//b",  ".",
                                      "..", "a/..", "../a", "a/./b", "a/../b"};
    static const char *const good[] = {"",    "a",    "a/b",   "...", ".a",
                                       "..a", "a/.b", "a b\n", "é"};
    char name[300];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!path_key_ok(bad[i], 4096), "%s", bad[i]);
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        ck_assert_msg(path_key_ok(good[i], 4096), "%s", good[i]);
    ck_assert(path_key_ok(long_name(name, 255), 4096));
    ck_assert(!path_key_ok(long_name(name, 256), 4096));
    ck_assert(path_key_safe(name, 4096));
    ck_assert(!path_key_safe(name, 256));
    ck_assert(!path_key_safe("a/../b", 4096));
    ck_assert(path_key_ok("abc", 4));
    ck_assert(!path_key_ok("abc", 3));
    ck_assert(!path_name_ok("a\0b", 3));
    ck_assert(!path_name_ok("a/b", 3));
    ck_assert(!path_name_ok("", 0));
}
END_TEST

START_TEST(path_names_shown)
{
    static const struct {
        const char *dir, *name;
        size_t len;
        bool shown;
    } cases[] = {
        {"", "a", 1, true},       {"", "", 0, false},       {"", ".", 1, false},
        {"d", "..", 2, false},    {"d", "...", 3, true},    {"d", "a/b", 3, false},
        {"", "a\0b", 3, false},   {"", "\n", 1, true},      {"", "\xff\xfe", 2, true},
        {"", ".runfs", 6, false}, {"d", ".runfs", 6, true}, {"", ".runf", 5, true},
        {"", ".runfs2", 7, true}, {"", ".RUNFS", 6, true},
    };
    char name[PATH_NAME_MAX + 2], dir[PATH_KEY_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        ck_assert_msg(path_name_shown(cases[i].dir, cases[i].name, cases[i].len) ==
                          cases[i].shown,
                      "%s/%s", cases[i].dir, cases[i].name);
    ck_assert(path_name_shown("", long_name(name, 255), 255));
    ck_assert(!path_name_shown("", long_name(name, 256), 256));
    memset(dir, 'd', sizeof(dir));
    dir[PATH_KEY_MAX - 3] = '\0';
    ck_assert(path_name_shown(dir, "n", 1)); /* 4093, "/", 1: the longest key */
    ck_assert(!path_name_shown(dir, "nn", 2));
}
END_TEST

START_TEST(path_parts)
{
    static const struct {
        const char *key, *parent, *base;
    } t[] = {{"", "", ""}, {"a", "", "a"}, {"a/b", "a", "b"}, {"a/b/c", "a/b", "c"}};

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        auto_free char *parent = path_parent(t[i].key);
        auto_free char *joined = path_join(t[i].parent, t[i].base);
        ck_assert_str_eq(parent, t[i].parent);
        ck_assert_uint_eq(path_parent_len(t[i].key), strlen(t[i].parent));
        ck_assert_str_eq(path_basename(t[i].key), t[i].base);
        ck_assert_str_eq(joined, t[i].key);
    }
    ck_assert_str_eq(path_below("", "a/b"), "a/b");
    ck_assert_str_eq(path_below("a", "a/b"), "b");
    ck_assert_str_eq(path_below("a/b", "a/b"), "");
    ck_assert_ptr_null(path_below("a", "ab"));
    ck_assert_ptr_null(path_below("a/b", "a"));
}
END_TEST

/* The check values of the catalogue of CRCs. */
START_TEST(other_checksums)
{
    ck_assert_uint_eq(crc32_zlib(0, "123456789", 9), 0xcbf43926u);
    ck_assert_uint_eq(crc32_zlib(crc32_zlib(0, "1234", 4), "56789", 5), 0xcbf43926u);
    ck_assert_uint_eq(crc64nvme(0, "123456789", 9), UINT64_C(0xae8b14860a799888));
    ck_assert_uint_eq(crc64nvme(crc64nvme(0, "1234", 4), "56789", 5),
                      UINT64_C(0xae8b14860a799888));
    ck_assert_uint_eq(crc64nvme(0, "", 0), 0);
}
END_TEST

static uint64_t bit_by_bit(uint64_t polynomial, uint64_t ones, const unsigned char *p,
                           size_t len)
{
    uint64_t crc = ones;

    for (size_t i = 0; i < len; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
    }
    return crc ^ ones;
}

/* Whichever way is taken for so many bytes, from wherever they lie. */
START_TEST(checksums_of_all_lengths)
{
    unsigned char data[1100];

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * i * 7 + i / 3);
    for (size_t len = 0; len < sizeof(data) - 17; len += len < 300 ? 1 : 37)
        for (size_t at = 0; at < 17; at += 1 + at) {
            ck_assert_uint_eq(crc32_zlib(0, data + at, len),
                              bit_by_bit(0xedb88320u, UINT32_MAX, data + at, len));
            ck_assert_uint_eq(crc32c(0, data + at, len),
                              bit_by_bit(0x82f63b78u, UINT32_MAX, data + at, len));
            ck_assert_uint_eq(
                crc64nvme(0, data + at, len),
                bit_by_bit(UINT64_C(0x9a6c9329ac4bc9b5), UINT64_MAX, data + at, len));
            ck_assert_uint_eq(crc64nvme(crc64nvme(0, data, at), data + at, len),
                              crc64nvme(0, data, at + len));
            ck_assert_uint_eq(crc32c(crc32c(0, data, at), data + at, len),
                              crc32c(0, data, at + len));
        }
}
END_TEST

START_TEST(checksums_are_combined)
{
    char data[5000];

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)(i * 31);
    for (int kind = CHECKSUM_CRC32C; kind <= CHECKSUM_CRC32; kind++) {
        struct checksum whole = {.kind = (enum checksum_kind)kind};
        checksum_add(&whole, data, sizeof(data));
        for (size_t cut = 0; cut <= sizeof(data); cut += 499) {
            struct checksum first = {.kind = whole.kind}, second = first;
            checksum_add(&first, data, cut);
            checksum_add(&second, data + cut, sizeof(data) - cut);
            checksum_append(&first, &second, sizeof(data) - cut);
            ck_assert(checksum_same(&first, &whole));
        }
    }
}
END_TEST

START_TEST(checksums_as_text)
{
    struct checksum sum = {.kind = CHECKSUM_CRC32C}, back = {0};
    char text[CHECKSUM_TEXT];

    checksum_add(&sum, "1234", 4);
    checksum_add(&sum, "56789", 5);
    checksum_print(&sum, text);
    ck_assert_str_eq(text, "crc32c:e3069283");
    ck_assert(checksum_parse("crc32c:e3069283, and more", strlen(text), &back));
    ck_assert(checksum_same(&sum, &back));
    ck_assert(checksum_parse("crc64nvme:ae8b14860a799888", 26, &back));
    ck_assert_int_eq(back.kind, CHECKSUM_CRC64NVME);
    ck_assert(!checksum_same(&sum, &back));
    ck_assert(!checksum_parse("crc32c:", 7, &back));
    ck_assert(!checksum_parse("crc32c:12 ", 10, &back));
    ck_assert(!checksum_parse("md5:12", 6, &back));
    ck_assert(!checksum_parse("", 0, &back));
    checksum_print(&(struct checksum){0}, text);
    ck_assert_str_eq(text, "");
}
END_TEST

/* The authors' test vectors, vectors.h of the reference implementation: the key and the bytes
 * count from 0. */
START_TEST(siphash_of_the_vectors)
{
    static const struct {
        size_t len;
        unsigned char wanted[16];
    } vectors[] = {
        {0,
         {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55,
          0x02, 0x93}},
        {1,
         {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22,
          0xfc, 0x45}},
    };
    const uint64_t key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    const unsigned char data[] = {0};
    uint64_t h[2];

    siphash(key, data, vectors[_i].len, h);
    for (int i = 0; i < 16; i++)
        ck_assert_uint_eq(h[i / 8] >> (i % 8 * 8) & 0xff, vectors[_i].wanted[i]);
}
END_TEST

/* What a terminal would obey, or show in another order, and what is no UTF-8. */
START_TEST(printable_table)
{
    static const struct {
        const char *text, *wanted;
    } table[] = {
        {"plain \\x1b", "plain \\x1b"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"a\nb\r\x1b[2J\x7f", "a\\x0ab\\x0d\\x1b[2J\\x7f"},
        {"\xc2\x9b\xc2\x80\xc2\xa0", "\\xc2\\x9b\\xc2\\x80\xc2\xa0"},
        {"\x9b"
         "31m",
         "\\x9b31m"},                                          /* C1 of Latin-1 */
        {"\xe2\x80\xaegnp", "\\xe2\\x80\\xaegnp"},             /* right to left */
        {"\xe2\x81\xa6\xd8\x9c", "\\xe2\\x81\\xa6\\xd8\\x9c"}, /* isolates, a mark */
        {"\xe2\x80\xa8", "\\xe2\\x80\\xa8"},                   /* a line's end */
        {"\xc0\x9b\xe0\x82\x9b", "\\xc0\\x9b\\xe0\\x82\\x9b"}, /* longer than need be */
        {"\xed\xa0\x80\xf4\x90\x80\x80", "\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80"},
        {"\xe2\x82", "\\xe2\\x82"}, /* cut off */
        {"\xe2\x82z\xff", "\\xe2\\x82z\\xff"},
    };
    const char *text = table[_i].text;
    char shown[200];
    size_t n, len = 0;

    while ((n = printable_next(shown + len, &text)) > 0)
        len += n;
    shown[len] = '\0';
    ck_assert_str_eq(shown, table[_i].wanted);
    ck_assert_int_eq(*text, '\0');
}
END_TEST

int main(void)
{
    Suite *s = suite_create("common");
    TCase *t = tcase_create("common");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, other_checksums);
    tcase_add_loop_test(t, siphash_of_the_vectors, 0, 2);
    tcase_add_test(t, checksums_of_all_lengths);
    tcase_add_test(t, checksums_are_combined);
    tcase_add_test(t, checksums_as_text);
    tcase_add_test(t, op_without_limits_goes_on);
    tcase_add_test(t, op_deadline_ends_a_sleep);
    tcase_add_test(t, op_cancel_ends_a_sleep);
    tcase_add_test(t, op_end_keeps_the_reason);
    tcase_add_test(t, array_grows_or_stays);
    tcase_add_test(t, err_table);
    tcase_add_test(t, log_escapes_and_filters);
    tcase_add_loop_test(t, printable_table, 0, 12);
    tcase_add_test(t, log_begins_anew_at_its_limit);
    tcase_add_loop_test(t, lock_mistakes_abort, 0, sizeof(mistakes) / sizeof(mistakes[0]));
    tcase_add_test(t, rwlock_knows_its_readers_and_its_writer);
    tcase_add_test(t, lock_wait_has_a_limit);
    tcase_add_test(t, pool_runs_everything);
    tcase_add_test(t, pool_worker_goes_on_by_itself);
    tcase_add_test(t, pool_each_makes_all_calls);
    tcase_add_test(t, pool_each_ends_after_a_failure);
    tcase_add_test(t, pool_keeps_order);
    tcase_add_test(t, buf_grows_to_its_maximum);
    tcase_add_test(t, buf_take_empties);
    tcase_add_test(t, path_names_and_keys);
    tcase_add_test(t, path_names_shown);
    tcase_add_test(t, path_parts);
    suite_add_tcase(s, t);
    return suite_run(s);
}
