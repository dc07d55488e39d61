/* The log: one line per event, one write(2) per line, so that lines of threads don't mix. */
#include "common/log.h"
#include "common/mem.h"
#include "common/printable.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX       4096
#define LINE_MAX_BYTES (PRINTABLE_MAX * TEXT_MAX + 64) /* every byte escaped, and the head */

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static atomic_int log_max_level = LOG_LEVEL_INFO;
static atomic_int log_fd = STDERR_FILENO;

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&log_max_level, (int)level, memory_order_relaxed);
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

int log_to_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    if (fd < 0)
        return -errno;

    /* A writer may be using the first log file's number just now: dup3() swaps what stands
     * behind it, so no line can go to a descriptor that was closed and reused. */
    int old = atomic_load(&log_fd);
    if (old == STDERR_FILENO) {
        atomic_store(&log_fd, fd);
        return 0;
    }
    int r = dup3(fd, old, O_CLOEXEC) < 0 ? -errno : 0;
    (void)close(fd);
    return r;
}

static size_t log_head(char *line, size_t size, enum log_level level)
{
    struct timespec ts;
    struct tm tm;
    int n;

    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    n = snprintf(line, size, "%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ %-5s ", tm.tm_year + 1900,
                 tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, ts.tv_nsec / 1000,
                 level_names[level]);
    return n < 0 ? 0 : (size_t)n;
}

static size_t log_escape(char *to, const char *text)
{
    char *start = to;
    size_t len;

    while ((len = printable_next(to, &text)) > 0)
        to += len;
    return (size_t)(to - start);
}

void log_line(enum log_level level, const char *fmt, ...)
{
    char text[TEXT_MAX], line[LINE_MAX_BYTES];
    int saved = errno;
    va_list ap;
    size_t len;

    if ((int)level > atomic_load_explicit(&log_max_level, memory_order_relaxed))
        return;
    va_start(ap, fmt);
    if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
        text[0] = '\0';
    va_end(ap);
    len = log_head(line, 64, level);
    len += log_escape(line + len, text);
    line[len++] = '\n';
    /* Nothing can be done about a log that can't be written, and nobody could be told. */
    ssize_t n = write(atomic_load(&log_fd), line, len);
    (void)n;
    errno = saved;
}
