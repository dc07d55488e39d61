/* Percent-encoding, as RFC 3986 has it. */
#include "backends/http/uri.h"

static bool is_unreserved(unsigned char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           c == '-' || c == '.' || c == '_' || c == '~';
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int uri_encode(struct buf *out, const char *text, size_t len, bool keep_slash)
{
    static const char hex_upper[] = "0123456789ABCDEF";
    int err = 0;

    for (size_t i = 0; i < len && !err; i++) {
        unsigned char c = (unsigned char)text[i];

        if (is_unreserved(c) || (keep_slash && c == '/')) {
            err = buf_addc(out, (char)c);
        } else {
            char escape[3] = {'%', hex_upper[c >> 4], hex_upper[c & 15]};

            err = buf_add(out, escape, sizeof(escape));
        }
    }
    return err;
}

ssize_t uri_decode(char *text, bool plus_is_space)
{
    char *to = text;

    for (const char *from = text; *from; from++) {
        if (*from == '%') {
            int high = hex_value(from[1]);
            int low = high < 0 ? -1 : hex_value(from[2]);

            if (low < 0)
                return -1;
            *to++ = (char)(high << 4 | low);
            from += 2;
        } else if (*from == '+' && plus_is_space) {
            *to++ = ' ';
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
    return to - text;
}
