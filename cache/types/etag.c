/* Etags in 16 bytes; see etag.h. */
#include "cache/types/etag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum etag_kind {
    ETAG_NONE,
    ETAG_TEXT, /* a text that fits into bytes[] with its NUL */
    ETAG_HEAP, /* a pointer to a heap string */
    /* So many hex digits, perhaps with "-" and a number of parts. */
    ETAG_HEX_MIN = 16,
    ETAG_HEX_MAX = 32,
};

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The number behind "-", as it is printed again; 0 when it is none that fits. */
static unsigned parts_of(const char *text)
{
    unsigned n = 0;

    if (*text == '0')
        return 0;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return 0;
        n = n * 10 + (unsigned)(*text - '0');
        if (n > UINT16_MAX)
            return 0;
    }
    return n;
}

static bool parse_hex(const char *text, struct etag *ret)
{
    struct etag t = {0};
    size_t len = strcspn(text, "-");

    if (len < ETAG_HEX_MIN || len > ETAG_HEX_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        int d = digit(text[i]);
        if (d < 0)
            return false;
        t.bytes[i / 2] |= (unsigned char)(d << (i % 2 ? 0 : 4));
    }
    unsigned parts = text[len] ? parts_of(text + len + 1) : 0;
    if (text[len] && !parts)
        return false;
    t.kind = (unsigned char)len;
    t.parts[0] = (unsigned char)(parts >> 8);
    t.parts[1] = (unsigned char)parts;
    *ret = t;
    return true;
}

static char *heap_of(const struct etag *t)
{
    char *text;

    memcpy(&text, t->bytes, sizeof(text));
    return text;
}

bool etag_known(const struct etag *t)
{
    return t->kind != ETAG_NONE;
}

const char *etag_text(const struct etag *t, char buf[ETAG_TEXT_MAX])
{
    unsigned parts = (unsigned)t->parts[0] << 8 | t->parts[1];

    switch (t->kind) {
    case ETAG_NONE:
        return NULL;
    case ETAG_HEAP:
        return heap_of(t);
    case ETAG_TEXT:
        memcpy(buf, t->bytes, sizeof(t->bytes));
        return buf;
    default:
        break;
    }
    for (size_t i = 0; i < t->kind; i++)
        buf[i] = "0123456789abcdef"[t->bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];
    buf[t->kind] = '\0';
    if (parts)
        (void)snprintf(buf + t->kind, ETAG_TEXT_MAX - t->kind, "-%u", parts);
    return buf;
}

char *etag_dup(const struct etag *t)
{
    char buf[ETAG_TEXT_MAX];
    const char *text = etag_text(t, buf);

    return text ? strdup(text) : NULL;
}

bool etag_is(const struct etag *t, const char *text)
{
    char buf[ETAG_TEXT_MAX];
    const char *own = etag_text(t, buf);

    return own && strcmp(own, text) == 0;
}

void etag_set(struct etag *t, const char *text)
{
    struct etag made = {.kind = ETAG_TEXT};
    size_t len = text ? strlen(text) : 0;

    if (!text) {
        made.kind = ETAG_NONE;
    } else if (len < sizeof(made.bytes)) {
        memcpy(made.bytes, text, len);
    } else if (!parse_hex(text, &made)) {
        char *copy = strdup(text);
        made.kind = copy ? ETAG_HEAP : ETAG_NONE;
        memcpy(made.bytes, &copy, sizeof(copy));
    }
    etag_clear(t); /* `text` may be its own */
    *t = made;
}

void etag_clear(struct etag *t)
{
    if (t->kind == ETAG_HEAP)
        free(heap_of(t));
    *t = (struct etag){0};
}

void etag_move(struct etag *to, struct etag *from)
{
    *to = *from;
    *from = (struct etag){0};
}
