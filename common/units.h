/* Sizes, times and flags as people write them. Any thread. */
#ifndef RUNFS_COMMON_UNITS_H
#define RUNFS_COMMON_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "200GiB", "64M", "1.5g", "4096": K, M, G, T, P with or without "iB" count in 1024s, "KB",
 * "MB",
 * ... in 1000s; any case; a bare number is bytes. -EINVAL for anything else, -ERANGE beyond
 * INT64_MAX. */
int parse_size(const char *text, uint64_t *ret_bytes);

/* "250ms", "5s", "1m", "2h", "1.5"; a bare number is seconds. Errors as parse_size(). */
int parse_time(const char *text, int64_t *ret_ns);

/* "true", "yes", "on", "1", or "false", "no", "off", "0". -EINVAL for anything else. */
int parse_flag(const char *text, bool *ret);

#define FORMAT_SIZE_MAX 32
/* "1.5 GiB", "812 B": for people, at most FORMAT_SIZE_MAX bytes; returns `buf`. */
char *format_size(char *buf, uint64_t bytes);

#define FORMAT_TIME_MAX 32
/* "30s", "1500ms": in the largest unit of which a time of at least 0 is a whole number, so that
 * parse_time() reads the same; at most FORMAT_TIME_MAX bytes; returns `buf`. */
char *format_time(char *buf, int64_t ns);

#endif
