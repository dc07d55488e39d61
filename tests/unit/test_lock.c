/* common/lock.c: mistakes with locks abort, and waits have a limit. */
#include "common/lock.h"
#include "common/op.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* The status of a child that runs `mistake`, and what it has logged. */
static int run_mistake(void (*mistake)(void), char *text, size_t size)
{
    int said = memfd_create("said", MFD_CLOEXEC), status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        (void)dup2(said, STDERR_FILENO);
        mistake();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ssize_t n = pread(said, text, size - 1, 0);
    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    (void)close(said);
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
    char text[1000];
    int status = run_mistake(mistakes[_i], text, sizeof(text));

    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    ck_assert_ptr_nonnull(strstr(text, "runfs ends by a mistake of its own"));
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

int main(void)
{
    Suite *s = suite_create("lock");
    TCase *t = tcase_create("lock");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, lock_mistakes_abort, 0, sizeof(mistakes) / sizeof(mistakes[0]));
    tcase_add_test(t, rwlock_knows_its_readers_and_its_writer);
    tcase_add_test(t, lock_wait_has_a_limit);
    suite_add_tcase(s, t);
    return suite_run(s);
}
