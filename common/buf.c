/* A byte buffer that grows up to a stated maximum and is always NUL-terminated. */
#include "common/buf.h"

#include "common/secret.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 64

/* Makes room for `more` bytes and the NUL. */
static int buf_reserve(struct buf *b, size_t more)
{
    size_t cap = b->cap ? b->cap : FIRST_CAP;

    if (more > b->max || b->len > b->max - more)
        return -EFBIG;
    if (b->len + more >= SIZE_MAX / 2)
        return -ENOMEM;
    while (cap < b->len + more + 1)
        cap *= 2;
    if (cap == b->cap)
        return 0;

    char *data = b->secret ? secret_realloc(b->data, cap) : realloc(b->data, cap);
    if (!data)
        return -ENOMEM;
    b->data = data;
    b->cap = cap;
    return 0;
}

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf)BUF_INIT(max);
}

void buf_release(struct buf *b)
{
    if (b->secret)
        secret_free(b->data);
    else
        free(b->data);
    *b = (struct buf){.max = b->max, .secret = b->secret};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

int buf_add(struct buf *b, const void *data, size_t len)
{
    int r = buf_reserve(b, len);
    if (r < 0)
        return r;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
    return 0;
}

int buf_adds(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

int buf_addc(struct buf *b, char c)
{
    return buf_add(b, &c, 1);
}

int buf_vaddf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    int n, r;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n < 0)
        return -ENOMEM;
    r = buf_reserve(b, (size_t)n);
    if (r < 0)
        return r;
    (void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    b->len += (size_t)n;
    return 0;
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    int r;

    va_start(ap, fmt);
    r = buf_vaddf(b, fmt, ap);
    va_end(ap);
    return r;
}

char *buf_take(struct buf *b)
{
    char *data = b->data ? b->data : strdup("");

    b->data = NULL;
    buf_release(b);
    return data;
}
