/* Sizes and times as people write them: a decimal number and a unit. */
#include "common/units.h"

#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <strings.h>

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"K", UINT64_C(1) << 10},
    {"KiB", UINT64_C(1) << 10},
    {"KB", UINT64_C(1000)},
    {"M", UINT64_C(1) << 20},
    {"MiB", UINT64_C(1) << 20},
    {"MB", UINT64_C(1000000)},
    {"G", UINT64_C(1) << 30},
    {"GiB", UINT64_C(1) << 30},
    {"GB", UINT64_C(1000000000)},
    {"T", UINT64_C(1) << 40},
    {"TiB", UINT64_C(1) << 40},
    {"TB", UINT64_C(1000000000000)},
    {"P", UINT64_C(1) << 50},
    {"PiB", UINT64_C(1) << 50},
    {"PB", UINT64_C(1000000000000000)},
};

static const struct unit time_units[] = {
    {"", UINT64_C(1000000000)},     {"ns", 1},
    {"us", UINT64_C(1000)},         {"ms", UINT64_C(1000000)},
    {"s", UINT64_C(1000000000)},    {"sec", UINT64_C(1000000000)},
    {"m", UINT64_C(60000000000)},   {"min", UINT64_C(60000000000)},
    {"h", UINT64_C(3600000000000)}, {"d", UINT64_C(86400000000000)},
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads "123" or "1.5": the value times 10^9, so that a fraction stays an integer. */
static int parse_billionths(const char **text, unsigned __int128 *ret)
{
    const char *s = *text;
    unsigned __int128 value = 0;
    uint64_t weight = UINT64_C(1000000000);

    if (!is_digit(*s))
        return -EINVAL;
    for (; is_digit(*s); s++) {
        value = value * 10 + (unsigned)(*s - '0');
        if (value > INT64_MAX)
            return -ERANGE;
    }
    value *= weight;
    if (*s == '.') {
        if (!is_digit(*++s))
            return -EINVAL;
        for (; is_digit(*s); s++) {
            weight /= 10;
            value += weight * (unsigned)(*s - '0');
        }
    }
    *text = s;
    *ret = value;
    return 0;
}

static int parse_with_units(const char *text, const struct unit *units, size_t n, uint64_t *ret)
{
    unsigned __int128 value;
    int err = parse_billionths(&text, &value);

    if (err)
        return err;
    while (*text == ' ')
        text++;
    for (size_t i = 0; i < n; i++) {
        if (strcasecmp(text, units[i].name) != 0)
            continue;
        /* Bounded before the product, which would not fit 128 bits for the largest of both. */
        if (value / 1000000000 > (unsigned __int128)INT64_MAX / units[i].factor)
            return -ERANGE;
        value = value * units[i].factor / 1000000000;
        if (value > INT64_MAX)
            return -ERANGE;
        *ret = (uint64_t)value;
        return 0;
    }
    return -EINVAL;
}

int parse_size(const char *text, uint64_t *ret_bytes)
{
    return parse_with_units(text, size_units, ARRAY_SIZE(size_units), ret_bytes);
}

int parse_time(const char *text, int64_t *ret_ns)
{
    uint64_t ns;
    int err = parse_with_units(text, time_units, ARRAY_SIZE(time_units), &ns);

    if (err)
        return err;
    *ret_ns = (int64_t)ns;
    return 0;
}

int parse_flag(const char *text, bool *ret)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcmp(words[i], text) == 0) {
            *ret = i % 2;
            return 0;
        }
    }
    return -EINVAL;
}

char *format_size(char *buf, uint64_t bytes)
{
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes / 1024;
    size_t i = 0;

    if (bytes < 1024) {
        (void)snprintf(buf, FORMAT_SIZE_MAX, "%u B", (unsigned)bytes);
        return buf;
    }
    while (value >= 1023.95 && i + 1 < ARRAY_SIZE(names)) {
        value /= 1024;
        i++;
    }
    (void)snprintf(buf, FORMAT_SIZE_MAX, "%.1f %s", value, names[i]);
    return buf;
}

char *format_time(char *buf, int64_t ns)
{
    static const struct {
        const char *name;
        int64_t ns;
    } units[] = {{"h", INT64_C(3600000000000)}, {"m", INT64_C(60000000000)},
                 {"s", INT64_C(1000000000)},    {"ms", INT64_C(1000000)},
                 {"us", INT64_C(1000)},         {"ns", 1}};
    size_t i = ns ? 0 : 2;

    while (ns % units[i].ns != 0)
        i++;
    (void)snprintf(buf, FORMAT_TIME_MAX, "%" PRId64 "%s", ns / units[i].ns, units[i].name);
    return buf;
}
