/* The log: one line per event, with time and level, to stderr or to a file. Any thread. */
#ifndef RUNFS_COMMON_LOG_H
#define RUNFS_COMMON_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Which lines are written; LOG_LEVEL_INFO until told otherwise. */
void log_set_level(enum log_level level);
bool log_is_wanted(enum log_level level);
/* -EINVAL for a name other than error, warn, info, debug. */
int log_level_parse(const char *name, enum log_level *ret_level);

/* A file grows to this size; then it becomes NAME.1, replacing the one before, and starts
 * again. */
#define LOG_FILE_MAX (16LL << 20) /* bytes */

/* Redirects the log to a file (appends, 0600; no symbolic link) below `dir`, which is borrowed
 * and may be AT_FDCWD. 0 or -errno, -EPERM for a link of either kind or another user's file;
 * the old target stays on failure. */
int log_to_file(int dir, const char *name);

#define LOG_TEXT_MAX 4096 /* bytes of a line; what is longer is cut off */

/* Control characters in the arguments are written as \xNN: a hostile name can't forge a line.
 */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
/* Formats the text of a line. */
void log_format(char text[LOG_TEXT_MAX], const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));
/* A line as it is, of something that was at `when_ns` (CLOCK_REALTIME). */
void log_text_at(enum log_level level, int64_t when_ns, const char *text);

#endif
