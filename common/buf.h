/* A byte buffer that grows up to a stated maximum and is always NUL-terminated. */
#ifndef RUNFS_COMMON_BUF_H
#define RUNFS_COMMON_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data; /* NULL until something is added */
    size_t len; /* bytes, without the terminating NUL */
    size_t cap;
    size_t max;  /* adding beyond this is -EFBIG */
    bool secret; /* nothing of it is left in memory that was given back (common/secret.h) */
};

#define BUF_INIT(maximum)                                                                      \
    {                                                                                          \
        .max = (maximum)                                                                       \
    }

#define BUF_SECRET(maximum)                                                                    \
    {                                                                                          \
        .max = (maximum), .secret = true                                                       \
    }

void buf_init(struct buf *b, size_t max);
void buf_release(struct buf *b);
void buf_clear(struct buf *b);
/* All return 0, -ENOMEM or -EFBIG, and leave the buffer as it was on failure. */
int buf_add(struct buf *b, const void *data, size_t len);
int buf_adds(struct buf *b, const char *s);
int buf_addc(struct buf *b, char c);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_vaddf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* The text, now the caller's (free()); "" when empty, NULL without memory. The buffer is empty
 * after. */
char *buf_take(struct buf *b);

static inline void buf_cleanup(struct buf *b)
{
    buf_release(b);
}
#define auto_buf __attribute__((cleanup(buf_cleanup)))

#endif
