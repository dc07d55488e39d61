#include "common/printable.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The character at `p` and its length; 0 where none begins: a stray or missing byte, a form
 * longer than need be, a surrogate, or what is beyond Unicode. */
static size_t decode(const unsigned char *p, uint32_t *ret)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = *p < 0x80             ? 1
                 : (*p & 0xe0) == 0xc0 ? 2
                 : (*p & 0xf0) == 0xe0 ? 3
                 : (*p & 0xf8) == 0xf0 ? 4
                                       : 0;
    uint32_t c = len == 1 ? *p : *p & (0x7fu >> len);

    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) /* nor is the NUL at the end */
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (len > 1 && (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)))
        return 0;
    *ret = c;
    return len;
}

/* C0, DEL and C1 command a terminal; the separators end a line; the others turn the order in
 * which the rest is shown. */
static bool must_escape(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

size_t printable_next(char to[PRINTABLE_MAX], const char **text)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *p = (const unsigned char *)*text;
    uint32_t c = 0;

    if (!*p)
        return 0;
    size_t len = decode(p, &c);
    if (len > 0 && !must_escape(c)) {
        memcpy(to, p, len);
        *text += len;
        return len;
    }
    /* The bytes that follow are no character's first, and come to this, too. */
    memcpy(to, (char[]){'\\', 'x', hex[*p >> 4], hex[*p & 15]}, PRINTABLE_MAX);
    *text += 1;
    return PRINTABLE_MAX;
}

void printable_print(FILE *file, const char *text)
{
    char part[PRINTABLE_MAX];
    size_t len;

    while ((len = printable_next(part, &text)) > 0)
        (void)fwrite(part, 1, len, file);
}
