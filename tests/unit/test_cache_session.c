/* cache/: uploads in parts that are broken off, by SIGKILL at each step and by failures, go on
 * with what the store has, or are ended there. */
#include "cache/mirror/crash.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PART  4096
#define PARTS 16
#define SIZE  (PART * PARTS - 100)

/* ---- the store ---- */

static atomic_uint sent;       /* parts */
static atomic_uint kill_after; /* parts; 0 never */
static atomic_uint fail_after; /* parts; 0 never */
static atomic_int refused;     /* enum call_kind; -1 none */

/* What becomes of the next copy that changes attributes. */
static atomic_int copy_ends;
enum { COPY_WHOLE, COPY_FAILS, COPY_DIES };

/* As S3 changes attributes: by a copy in parts. It dies or fails after the first. */
static int64_t copy_broken_off(struct call *c, bool die)
{
    static const char part[PART];
    struct store_sessions *s = c->op->notes->sessions;
    struct mem_source src;
    struct upload *up;

    ck_assert_ptr_nonnull(s);
    ck_assert_int_eq(s->begun(s, c->key, NULL), 0);
    ck_assert_int_eq(store_upload_begin(c->next, c->op, c->key, NULL, &up), 0);
    auto_free char *token = store_upload_token(up);
    ck_assert_int_eq(s->begun(s, c->key, token), 0);
    mem_source_init(&src, part, sizeof(part));
    ck_assert_int_eq(store_upload_part(up, c->op, 1, &src.base), 0);
    if (die)
        (void)raise(SIGKILL);
    store_upload_detach(up);
    return op_fail(c->op, -ECONNRESET, "copy %s: cut", c->key);
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    int how = c->kind == CALL_SETATTR ? atomic_exchange(&copy_ends, COPY_WHOLE) : COPY_WHOLE;
    if (how != COPY_WHOLE)
        return copy_broken_off(c, how == COPY_DIES);
    if ((int)c->kind == atomic_load(&refused))
        return op_fail(c->op, -EACCES, "%s %s: refused", call_name(c->kind), c->key);
    unsigned most = atomic_load(&fail_after);
    if (c->kind == CALL_PART && most && atomic_load(&sent) >= most)
        return op_fail(c->op, -ECONNRESET, "%s %s: cut", call_name(c->kind), c->key);
    int64_t r = call_next(c);
    if (c->kind == CALL_PART && r == 0 &&
        atomic_fetch_add(&sent, 1) + 1 == atomic_load(&kill_after))
        (void)raise(SIGKILL);
    return r;
}

static void setup(struct driven *d)
{
    atomic_store(&sent, 0);
    atomic_store(&kill_after, 0);
    atomic_store(&fail_after, 0);
    atomic_store(&refused, -1);
    atomic_store(&copy_ends, COPY_WHOLE);
    driven_init_folder(d, around, PART);
    d->config.upload_jobs = 1;
}

/* Sessions in the state of the store, but for those that nobody could have known. */
static size_t sessions_left(struct driven *d)
{
    char path[128];
    struct stat st;
    glob_t found;
    size_t n = 0;

    (void)snprintf(path, sizeof(path), "%s.runfs/up-*", d->folder);
    if (glob(path, 0, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++)
        n += !strstr(found.gl_pathv[i], ".log") && stat(found.gl_pathv[i], &st) == 0 &&
             st.st_size > 0;
    globfree(&found);
    return n;
}

/* ---- the file ---- */

static void fill(char *data, unsigned seed)
{
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (char)((i / 7 + i * seed) % 251);
}

/* In a process that dies at a crash point, or after some parts. */
static void killed_at(struct driven *d, const char *point, unsigned parts, const char *data)
{
    int status = 0;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        atomic_store(&kill_after, parts);
        if (point)
            crash_arm(point);
        driven_mount(d);
        if (data)
            driven_put(d, "f", data, SIZE);
        (void)driven_flush(d);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "at %s: status %x",
                  point ? point : "parts", status);
}

static void is_stored(struct driven *d, const char *data)
{
    auto_free char *back = malloc(SIZE + 1);

    ck_assert_int_eq(driven_stored(d, "f", back, SIZE + 1), SIZE);
    ck_assert_mem_eq(back, data, SIZE);
}

/* The next mount, until all is stored. */
static void finish(struct driven *d, const char *data)
{
    driven_mount(d);
    ck_assert_int_eq(driven_flush(d), 0);
    is_stored(d, data);
    ck_assert_uint_eq(sessions_left(d), 0);
    driven_unmount(d);
}

static void finishes(struct driven *d, const char *data, unsigned parts)
{
    finish(d, data);
    ck_assert_uint_eq(atomic_load(&sent), parts);
}

/* ---- tests ---- */

static const struct {
    const char *point;
    unsigned kill_after, sent_again;
    bool or_none;
} deaths[] = {
    {"session-noted", 0, PARTS, false},
    {"session-begun", 0, PARTS, false},
    {"upload-session", 0, PARTS, false},
    {NULL, 5, PARTS - 5, false},
    {NULL, PARTS, 0, false},
    {"upload-parts", 0, 0, false},
    /* Whose it is a folder tells only of a file that was written 20 ms before it was put: else
     * it is written once more. */
    {"session-committed", 0, PARTS, true},
    {"upload-committed", 0, PARTS, true},
};

START_TEST(only_what_is_missing_is_sent)
{
    auto_free char *data = malloc(SIZE);
    struct driven d;

    setup(&d);
    fill(data, 1);
    killed_at(&d, deaths[_i].point, deaths[_i].kill_after, data);
    finish(&d, data);
    unsigned n = atomic_load(&sent);
    ck_assert_msg(n == deaths[_i].sent_again || (n == 0 && deaths[_i].or_none), "%u", n);
    driven_release(&d);
}
END_TEST

START_TEST(killed_while_it_resumes)
{
    auto_free char *data = malloc(SIZE);
    struct driven d;

    setup(&d);
    fill(data, 1);
    killed_at(&d, NULL, 5, data);
    killed_at(&d, "session-resumed", 0, NULL);
    killed_at(&d, NULL, 3, NULL);
    finishes(&d, data, PARTS - 8);
    driven_release(&d);
}
END_TEST

START_TEST(a_changed_file_begins_anew)
{
    auto_free char *data = malloc(SIZE);
    char path[100];
    struct driven d;

    setup(&d);
    fill(data, 1);
    killed_at(&d, NULL, 5, data);
    (void)snprintf(path, sizeof(path), "%s/mirror/f", d.dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    (void)usleep(20000); /* the clock of mtime has ticks of up to 10 ms */
    data[5] ^= 1;
    ck_assert_int_eq(pwrite(fd, data + 5, 1, 5), 1);
    (void)close(fd);
    killed_at(&d, "session-ended", 0, NULL);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    is_stored(&d, data);
    ck_assert_uint_eq(sessions_left(&d), 0);
    driven_release(&d);
}
END_TEST

/* As by a mapping: the mirror file changes and its time does not. */
START_TEST(a_changed_part_is_sent_again)
{
    auto_free char *data = malloc(SIZE);
    char path[100];
    struct stat st;
    struct driven d;

    setup(&d);
    fill(data, 1);
    killed_at(&d, NULL, 9, data);
    (void)snprintf(path, sizeof(path), "%s/mirror/f", d.dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(fstat(fd, &st), 0);
    data[4 * PART + 1] ^= 1;
    ck_assert_int_eq(pwrite(fd, data + 4 * PART + 1, 1, 4 * PART + 1), 1);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    ck_assert_int_eq(futimens(fd, times), 0);
    (void)close(fd);
    finishes(&d, data, PARTS - 9 + 1);
    driven_release(&d);
}
END_TEST

/* The session carries the attributes: with others it is of no use. */
START_TEST(changed_attributes_begin_anew)
{
    auto_free char *data = malloc(SIZE);
    char path[100];
    struct driven d;

    setup(&d);
    fill(data, 1);
    killed_at(&d, NULL, 9, data);
    (void)snprintf(path, sizeof(path), "%s/mirror/f", d.dir);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (struct timespec[2]){{1, 0}, {1000, 0}}, 0), 0);
    finishes(&d, data, PARTS);
    driven_release(&d);
}
END_TEST

START_TEST(what_nobody_needs_is_ended)
{
    auto_free char *data = malloc(SIZE);
    struct driven d;

    setup(&d);
    fill(data, 1);
    killed_at(&d, NULL, 5, data);
    ck_assert_uint_eq(sessions_left(&d), 1);
    atomic_store(&refused, CALL_PART); /* nothing goes up before it is gone */
    driven_mount(&d);
    ck_assert_int_eq(driven_unlink(&d, "f"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(sessions_left(&d), 0);
    driven_unmount(&d);
    driven_mount(&d); /* and forgotten */
    driven_release(&d);
}
END_TEST

static void has_mode(struct driven *d, mode_t mode)
{
    char path[128];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/f", d->folder);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, mode);
}

START_TEST(a_copy_that_died_is_ended)
{
    struct driven d;
    int status = 0;

    setup(&d);
    driven_mount(&d);
    driven_put(&d, "f", "content", 7);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        driven_mount(&d);
        atomic_store(&copy_ends, COPY_DIES);
        (void)driven_chmod(&d, "f", 0600);
        (void)driven_flush(&d);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
    ck_assert_uint_eq(sessions_left(&d), 1);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(sessions_left(&d), 0);
    has_mode(&d, 0600);
    driven_unmount(&d);
    driven_release(&d);
}
END_TEST

START_TEST(a_copy_that_could_not_end_its_session)
{
    struct driven d;

    setup(&d);
    driven_mount(&d);
    driven_put(&d, "f", "content", 7);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&copy_ends, COPY_FAILS);
    ck_assert_int_eq(driven_chmod(&d, "f", 0600), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(sessions_left(&d), 0);
    has_mode(&d, 0600);
    driven_unmount(&d);
    driven_release(&d);
}
END_TEST

START_TEST(a_failure_keeps_what_was_sent)
{
    auto_free char *data = malloc(SIZE);
    struct driven d;

    setup(&d);
    fill(data, 1);
    atomic_store(&fail_after, 6);
    driven_mount(&d);
    driven_put(&d, "f", data, SIZE);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "failed") == 0);
    ck_assert_uint_eq(atomic_load(&sent), 6);
    atomic_store(&fail_after, 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_uint_eq(atomic_load(&sent), PARTS);
    is_stored(&d, data);
    ck_assert_uint_eq(sessions_left(&d), 0);
    driven_release(&d);
}
END_TEST

/* Somebody may not list parts: then all is sent anew, and the old session ended nevertheless.
 */
START_TEST(parts_that_may_not_be_listed)
{
    auto_free char *data = malloc(SIZE);
    struct driven d;

    setup(&d);
    fill(data, 1);
    killed_at(&d, NULL, 5, data);
    atomic_store(&refused, CALL_RESUME);
    driven_mount(&d);
    DRIVEN_WAIT(strcmp(driven_state(&d, "f"), "clean") == 0);
    is_stored(&d, data);
    ck_assert_uint_eq(atomic_load(&sent), PARTS);
    atomic_store(&refused, -1);
    DRIVEN_WAIT(sessions_left(&d) == 0);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_session");
    TCase *t = tcase_create("sessions");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, only_what_is_missing_is_sent, 0, ARRAY_SIZE(deaths));
    tcase_add_test(t, killed_while_it_resumes);
    tcase_add_test(t, a_changed_file_begins_anew);
    tcase_add_test(t, a_changed_part_is_sent_again);
    tcase_add_test(t, changed_attributes_begin_anew);
    tcase_add_test(t, what_nobody_needs_is_ended);
    tcase_add_test(t, a_copy_that_died_is_ended);
    tcase_add_test(t, a_copy_that_could_not_end_its_session);
    tcase_add_test(t, a_failure_keeps_what_was_sent);
    tcase_add_test(t, parts_that_may_not_be_listed);
    suite_add_tcase(s, t);
    return suite_run(s);
}
