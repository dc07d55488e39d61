/* common/log.c and common/printable.c: what the log shows, and how long it grows. */
#include "common/log.h"
#include "common/mem.h"
#include "common/printable.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- what may be shown ---- */

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
    Suite *s = suite_create("log");
    TCase *t = tcase_create("log");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, log_escapes_and_filters);
    tcase_add_loop_test(t, printable_table, 0, 12);
    tcase_add_test(t, log_begins_anew_at_its_limit);
    suite_add_tcase(s, t);
    return suite_run(s);
}
