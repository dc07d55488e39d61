/* What an answer says: its headers, and the errno of its status. */
#include "backends/http/http.h"

#include "common/mem.h"

#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_AFTER_MAX_S 300
#define CLOCK_SKEW_MAX    (INT64_C(10) * 365 * 24 * 3600 * NS_PER_SEC)

void http_answer_release(struct http_answer *a)
{
    buf_release(&a->headers);
    buf_release(&a->body);
    a->status = 0;
    a->n_headers = 0;
}

int http_answer_each(const struct http_answer *a,
                     int (*visit)(void *arg, const char *name, const char *value), void *arg)
{
    const char *at = a->headers.data;
    int r = 0;

    for (size_t i = 0; i < a->n_headers && !r; i++) {
        const char *value = at + strlen(at) + 1;

        r = visit(arg, at, value);
        at = value + strlen(value) + 1;
    }
    return r;
}

struct wanted {
    const char *name;
    const char *value;
};

static int match_header(void *arg, const char *name, const char *value)
{
    struct wanted *w = arg;

    if (strcmp(name, w->name) == 0)
        w->value = value;
    return 0;
}

const char *http_answer_header(const struct http_answer *a, const char *name)
{
    struct wanted w = {.name = name};

    (void)http_answer_each(a, match_header, &w);
    return w.value;
}

int64_t http_content_length(const struct http_answer *a)
{
    const char *text = http_answer_header(a, "content-length");
    char *end;
    long long value;

    if (!text || !isdigit((unsigned char)*text))
        return -1;
    errno = 0;
    value = strtoll(text, &end, 10);
    return *end || errno ? -1 : value;
}

int64_t http_date_seconds(const struct http_answer *a, const char *name)
{
    const char *text = http_answer_header(a, name);

    int64_t seconds = text ? (int64_t)curl_getdate(text, NULL) : -1;
    return seconds < 0 ? -1 : seconds; /* no server is from before 1970 */
}

int64_t http_clock_skew_ns(const struct http_answer *a)
{
    int64_t theirs = http_date_seconds(a, "date"), skew;

    if (theirs < 0 || theirs > INT64_MAX / NS_PER_SEC / 2)
        return 0;
    skew = theirs * NS_PER_SEC - clock_real_ns();
    return skew > CLOCK_SKEW_MAX || skew < -CLOCK_SKEW_MAX ? 0 : skew;
}

int64_t http_retry_after_ns(const struct http_answer *a)
{
    const char *text = http_answer_header(a, "retry-after");
    int64_t seconds;

    if (!text)
        return 0;
    if (isdigit((unsigned char)*text)) {
        seconds = strtol(text, NULL, 10);
    } else {
        int64_t until = http_date_seconds(a, "retry-after");
        int64_t now = http_date_seconds(a, "date");

        seconds = until < 0 || now < 0 ? 0 : until - now;
    }
    if (seconds > RETRY_AFTER_MAX_S)
        seconds = RETRY_AFTER_MAX_S;
    return seconds > 0 ? seconds * NS_PER_SEC : 0;
}

int http_status_error(int status)
{
    static const struct {
        int status;
        int err;
    } table[] = {
        {400, -EINVAL},     {401, -EACCES}, {402, -EACCES}, {403, -EACCES}, {404, -ENOENT},
        {405, -EOPNOTSUPP}, {408, -EAGAIN}, {409, -EAGAIN}, {410, -ENOENT}, {411, -EPROTO},
        {412, -ESTALE},     {413, -EFBIG},  {416, -ERANGE}, {425, -EAGAIN}, {429, -EAGAIN},
        {501, -EOPNOTSUPP}, {503, -EAGAIN}, {504, -EAGAIN}, {507, -ENOSPC},
    };

    if (status >= 200 && status < 300)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if (table[i].status == status)
            return table[i].err;
    if (status >= 400 && status < 500)
        return -EINVAL;
    return status >= 500 && status < 600 ? -EIO : -EPROTO;
}
