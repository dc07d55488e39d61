/* Codecs: names of the mount to names of a store and back. A name passes through its raw bytes:
 * what is shown says them with escapes, what is stored says them in the codec. A spelling is
 * good when saying the raw bytes again gives the same text. */
#include "runs/codec.h"

#include "common/mem.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

static const char *const names[CODEC_N] = {
    [CODEC_B32] = "b32",
    [CODEC_HEX] = "hex",
    [CODEC_PCT] = "pct",
};

/* Bytes of a name; adding beyond the end is remembered only. */
struct text {
    char at[PATH_NAME_MAX];
    size_t len;
    bool full;
};

static void text_add(struct text *t, unsigned byte)
{
    if (t->len == sizeof(t->at))
        t->full = true;
    else
        t->at[t->len++] = (char)byte;
}

static bool text_is(const struct text *t, const char *s, size_t len)
{
    return !t->full && t->len == len && memcmp(t->at, s, len) == 0;
}

static const char upper_digits[] = "0123456789ABCDEF", lower_digits[] = "0123456789abcdef";
static const char base32_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/* -1: it is none of the digits. */
static int digit_of(const char *digits, char c)
{
    const char *at = c ? strchr(digits, c) : NULL;

    return at ? (int)(at - digits) : -1;
}

/* ---- escapes: %XX ---- */

static void escape(struct text *to, unsigned char byte)
{
    text_add(to, '%');
    text_add(to, (unsigned char)upper_digits[byte >> 4]);
    text_add(to, (unsigned char)upper_digits[byte & 15]);
}

/* Undoes escapes; false for a "%" that begins none. */
static bool unescape(const char *s, size_t len, struct text *raw)
{
    for (size_t i = 0; i < len; i++) {
        if (s[i] != '%') {
            text_add(raw, (unsigned char)s[i]);
            continue;
        }
        int high = i + 2 < len ? digit_of(upper_digits, s[i + 1]) : -1;
        int low = i + 2 < len ? digit_of(upper_digits, s[i + 2]) : -1;

        if (high < 0 || low < 0)
            return false;
        text_add(raw, (unsigned)(high << 4 | low));
        i += 2;
    }
    return true;
}

/* ---- what is shown ---- */

static bool is_special(const struct text *raw)
{
    return text_is(raw, ".", 1) || text_is(raw, "..", 2) ||
           text_is(raw, PATH_RESERVED, strlen(PATH_RESERVED));
}

static void show(const struct text *raw, struct text *shown)
{
    bool all = is_special(raw);

    for (size_t i = 0; i < raw->len; i++) {
        unsigned char byte = (unsigned char)raw->at[i];

        if (all || byte < 0x20 || byte == 0x7f || byte == '%' || byte == '/')
            escape(shown, byte);
        else
            text_add(shown, byte);
    }
}

static int read_shown(const char *shown, size_t len, struct text *raw)
{
    struct text again = {.len = 0};

    if (len == 0 || !unescape(shown, len, raw))
        return -EINVAL;
    if (len > PATH_NAME_MAX || raw->full)
        return -ENAMETOOLONG;
    show(raw, &again);
    return text_is(&again, shown, len) ? 0 : -EINVAL;
}

/* ---- what is stored ---- */

static void write_b32(const struct text *raw, struct text *stored)
{
    for (size_t i = 0; i < raw->len; i += 5) {
        size_t n = raw->len - i < 5 ? raw->len - i : 5;
        size_t digits = (n * 8 + 4) / 5;
        uint64_t group = 0;

        for (size_t k = 0; k < 5; k++)
            group = group << 8 | (k < n ? (unsigned char)raw->at[i + k] : 0);
        for (size_t k = 0; k < 8; k++)
            text_add(stored, k < digits
                                 ? (unsigned char)base32_digits[group >> (35 - 5 * k) & 31]
                                 : '=');
    }
}

/* Digits up to the padding; what is wrong of it shows when it is written again. */
static bool read_b32(const char *s, size_t len, struct text *raw)
{
    unsigned bits = 0, n = 0;

    while (len && s[len - 1] == '=')
        len--;
    for (size_t i = 0; i < len; i++) {
        int digit = digit_of(base32_digits, s[i]);

        if (digit < 0)
            return false;
        bits = (bits << 5 | (unsigned)digit) & 0xfff;
        n += 5;
        if (n >= 8) {
            n -= 8;
            text_add(raw, bits >> n & 0xff);
        }
    }
    return true;
}

static void write_hex(const struct text *raw, struct text *stored)
{
    for (size_t i = 0; i < raw->len; i++) {
        unsigned char byte = (unsigned char)raw->at[i];

        text_add(stored, (unsigned char)lower_digits[byte >> 4]);
        text_add(stored, (unsigned char)lower_digits[byte & 15]);
    }
}

static bool read_hex(const char *s, size_t len, struct text *raw)
{
    for (size_t i = 0; i + 1 < len; i += 2) {
        int high = digit_of(lower_digits, s[i]), low = digit_of(lower_digits, s[i + 1]);

        if (high < 0 || low < 0)
            return false;
        text_add(raw, (unsigned)(high << 4 | low));
    }
    return true;
}

static void write_pct(const struct text *raw, struct text *stored)
{
    for (size_t i = 0; i < raw->len; i++) {
        unsigned char byte = (unsigned char)raw->at[i];

        if ((byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') ||
            (byte >= '0' && byte <= '9') || byte == '.' || byte == '_' || byte == '-')
            text_add(stored, byte);
        else
            escape(stored, byte);
    }
}

static const struct {
    void (*write)(const struct text *raw, struct text *stored);
    bool (*read)(const char *stored, size_t len, struct text *raw);
} codecs[CODEC_N] = {
    [CODEC_B32] = {write_b32, read_b32},
    [CODEC_HEX] = {write_hex, read_hex},
    [CODEC_PCT] = {write_pct, unescape},
};

/* ---- UTF-8 ---- */

/* Bytes of the character that begins so; 0: none does. */
static size_t utf8_len(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        return 2;
    if (first >= 0xe0 && first <= 0xef)
        return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

/* The second byte judges what is longer than need be, half of a pair, or beyond Unicode. */
static bool utf8_second_ok(unsigned char first, unsigned char second)
{
    switch (first) {
    case 0xe0:
        return second >= 0xa0;
    case 0xed:
        return second < 0xa0;
    case 0xf0:
        return second >= 0x90;
    case 0xf4:
        return second < 0x90;
    default:
        return true;
    }
}

static bool is_utf8(const struct text *raw)
{
    const unsigned char *s = (const unsigned char *)raw->at;

    for (size_t i = 0, n; i < raw->len; i += n) {
        n = utf8_len(s[i]);
        if (n == 0 || n > raw->len - i || (n > 1 && !utf8_second_ok(s[i], s[i + 1])))
            return false;
        for (size_t k = 1; k < n; k++)
            if ((s[i + k] & 0xc0) != 0x80)
                return false;
    }
    return true;
}

/* ---- the calls ---- */

const char *codec_name(enum codec c)
{
    return names[c];
}

int codec_by_name(const char *name, size_t len, enum codec *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (names[i] && strlen(names[i]) == len && memcmp(names[i], name, len) == 0) {
            *ret = (enum codec)i;
            return 0;
        }
    return -ENOENT;
}

int codec_write(enum codec c, const char *shown, size_t len, char ret_stored[PATH_NAME_MAX],
                size_t *ret_len)
{
    struct text raw = {.len = 0}, stored = {.len = 0};
    int r;

    if (c == CODEC_NONE) {
        if (len == 0 || len > PATH_NAME_MAX)
            return len ? -ENAMETOOLONG : -EINVAL;
        memcpy(ret_stored, shown, *ret_len = len);
        return 0;
    }
    r = read_shown(shown, len, &raw);
    if (r < 0)
        return r;
    if (c == CODEC_B32 && !is_utf8(&raw))
        return -EILSEQ;
    codecs[c].write(&raw, &stored);
    if (stored.full)
        return -ENAMETOOLONG;
    memcpy(ret_stored, stored.at, *ret_len = stored.len);
    return 0;
}

int codec_encode(enum codec c, const char *shown, size_t len, struct buf *stored)
{
    char text[PATH_NAME_MAX];
    size_t n;
    int r = codec_write(c, shown, len, text, &n);

    return r < 0 ? r : buf_add(stored, text, n);
}

int codec_decode(enum codec c, const char *stored, size_t len, struct buf *shown)
{
    struct text raw = {.len = 0}, again = {.len = 0}, name = {.len = 0};

    if (len == 0 || len > PATH_NAME_MAX)
        return -ENOENT;
    if (c == CODEC_NONE)
        return buf_add(shown, stored, len);
    if (!codecs[c].read(stored, len, &raw) || (c == CODEC_B32 && !is_utf8(&raw)))
        return -ENOENT;
    codecs[c].write(&raw, &again);
    if (!text_is(&again, stored, len))
        return -ENOENT;
    show(&raw, &name);
    return name.full ? -ENOENT : buf_add(shown, name.at, name.len);
}
