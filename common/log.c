/* The log: one line per event, one write(2) per line, so that lines of threads don't mix. A
 * file that has grown to its limit becomes NAME.1, in place of the former one, and is begun
 * anew. */
#include "common/log.h"
#include "common/lock.h"
#include "common/mem.h"
#include "common/op.h"
#include "common/printable.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES (PRINTABLE_MAX * LOG_TEXT_MAX + 64) /* all escaped, and the head */

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static atomic_int log_max_level = LOG_LEVEL_INFO;
static atomic_int log_fd = STDERR_FILENO;

/* The file's size. Writers count without the lock, and take it at the limit; what is no regular
 * file never gets there. */
static atomic_llong log_bytes = LLONG_MIN;

/* A leaf, held while the file is renamed and opened anew. */
static struct mutex log_lock = {.m = PTHREAD_MUTEX_INITIALIZER};
static struct {
    int dir; /* AT_FDCWD or our own */
    char name[PATH_MAX];
    char former[PATH_MAX + 2];
} log_file GUARDED_BY(log_lock) = {.dir = AT_FDCWD};

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&log_max_level, (int)level, memory_order_relaxed);
}

bool log_is_wanted(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&log_max_level, memory_order_relaxed);
}

int log_level_parse(const char *name, enum log_level *ret_level)
{
    for (size_t i = 0; i < ARRAY_SIZE(level_names); i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *ret_level = (enum log_level)i;
            return 0;
        }
    }
    return -EINVAL;
}

/* Lines are appended to no file that others can have given this name. */
static int log_open(int dir, const char *name)
{
    const int safe = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    auto_close int fd = openat(dir, name, O_WRONLY | O_APPEND | O_CREAT | safe, 0600);
    struct stat st;

    if (fd < 0)
        return errno == ELOOP || errno == ENXIO ? -EPERM : -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1)
        return -EPERM;
    return take_fd(fd);
}

/* A writer may be using the log's number just now: dup3() swaps what stands behind it, so no
 * line can go to a descriptor that was closed and reused. Takes `fd`. */
static int log_switch(int fd)
{
    int old = atomic_load(&log_fd), err;

    if (old == STDERR_FILENO) {
        atomic_store(&log_fd, fd);
        return 0;
    }
    err = dup3(fd, old, O_CLOEXEC) < 0 ? -errno : 0;
    (void)close(fd);
    return err;
}

/* What stands under the name may have been moved or replaced by others: that is not ours to
 * move. */
static bool log_is_ours_locked(void) REQUIRES(&log_lock)
{
    struct stat named, open;

    return !fstatat(log_file.dir, log_file.name, &named, AT_SYMLINK_NOFOLLOW) &&
           !fstat(atomic_load(&log_fd), &open) && named.st_dev == open.st_dev &&
           named.st_ino == open.st_ino;
}

/* A line that another thread is writing goes to the former file. What fails is tried again
 * after as many bytes, and the log goes on where it was. Returns how many bytes the file has
 * now. */
static off_t log_begin_anew_locked(void) REQUIRES(&log_lock)
{
    bool moved = false;
    struct stat st;
    int fd;

    if (log_is_ours_locked()) {
        moved = !renameat(log_file.dir, log_file.name, log_file.dir, log_file.former);
        if (!moved)
            return 0;
    }
    fd = log_open(log_file.dir, log_file.name);
    if (fd < 0) {
        if (moved)
            (void)renameat(log_file.dir, log_file.former, log_file.dir, log_file.name);
        return 0;
    }
    if (fstat(fd, &st))
        st.st_size = 0;
    (void)log_switch(fd);
    return st.st_size;
}

/* While one thread begins the file anew the others wait after their line: the former file must
 * not grow without end. */
static void log_written(ssize_t n)
{
    if (n <= 0 || atomic_fetch_add(&log_bytes, n) + n < LOG_FILE_MAX)
        return;
    mutex_lock(&log_lock);
    if (atomic_load(&log_bytes) >= LOG_FILE_MAX)
        atomic_store(&log_bytes, log_begin_anew_locked());
    mutex_unlock(&log_lock);
}

/* Remembers where the file is, and how far from its limit. */
static int log_note_locked(int dir, const char *name, int fd) REQUIRES(&log_lock)
{
    auto_close int own = -1;
    struct stat st;

    if (strlen(name) >= sizeof(log_file.name))
        return -ENAMETOOLONG;
    if (fstat(fd, &st))
        return -errno;
    if (dir != AT_FDCWD) {
        own = fcntl(dir, F_DUPFD_CLOEXEC, 0);
        if (own < 0)
            return -errno;
    }
    if (log_file.dir != AT_FDCWD)
        (void)close(log_file.dir);
    log_file.dir = dir == AT_FDCWD ? dir : take_fd(own);
    (void)snprintf(log_file.name, sizeof(log_file.name), "%s", name);
    (void)snprintf(log_file.former, sizeof(log_file.former), "%s.1", name);
    atomic_store(&log_bytes, S_ISREG(st.st_mode) ? st.st_size : LLONG_MIN);
    return 0;
}

int log_to_file(int dir, const char *name)
{
    int fd = log_open(dir, name), err;

    if (fd < 0)
        return fd;
    mutex_lock(&log_lock);
    err = log_note_locked(dir, name, fd);
    if (err)
        (void)close(fd);
    else
        err = log_switch(fd);
    mutex_unlock(&log_lock);
    return err;
}

static size_t log_head(char *line, size_t size, enum log_level level, int64_t when_ns)
{
    time_t s = (time_t)(when_ns / NS_PER_SEC);
    struct tm tm;
    int n;

    gmtime_r(&s, &tm);
    n = snprintf(line, size, "%04d-%02d-%02dT%02d:%02d:%02d.%06" PRId64 "Z %-5s ",
                 tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                 when_ns % NS_PER_SEC / 1000, level_names[level]);
    return n < 0 ? 0 : (size_t)n;
}

/* Writes no more than LOG_TEXT_MAX bytes of the text. */
static size_t log_escape(char *to, const char *text)
{
    const char *end = text + LOG_TEXT_MAX - 1;
    char *start = to;
    size_t len;

    while (text < end && (len = printable_next(to, &text)) > 0)
        to += len;
    return (size_t)(to - start);
}

void log_text_at(enum log_level level, int64_t when_ns, const char *text)
{
    char line[LINE_MAX_BYTES];
    int saved = errno;
    size_t len;

    if (!log_is_wanted(level))
        return;
    len = log_head(line, 64, level, when_ns);
    len += log_escape(line + len, text);
    line[len++] = '\n';
    /* Nothing can be done about a log that can't be written, and nobody could be told. */
    log_written(write(atomic_load(&log_fd), line, len));
    errno = saved;
}

void log_format(char text[LOG_TEXT_MAX], const char *fmt, va_list ap)
{
    if (vsnprintf(text, LOG_TEXT_MAX, fmt, ap) < 0)
        text[0] = '\0';
}

void log_line(enum log_level level, const char *fmt, ...)
{
    char text[LOG_TEXT_MAX];
    int saved = errno;
    va_list ap;

    if (!log_is_wanted(level))
        return;
    va_start(ap, fmt);
    log_format(text, fmt, ap);
    va_end(ap);
    log_text_at(level, clock_real_ns(), text);
    errno = saved;
}
