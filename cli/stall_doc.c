/* A store that stalls, in words. */
#include "cli/stall_doc.h"

#include "cli/control_io.h"
#include "common/err.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define ISO_TIME "%Y-%m-%dT%H:%M:%SZ"

json_t *stall_time(int64_t real_ns)
{
    time_t seconds = (time_t)(real_ns / NS_PER_SEC);
    char text[32];
    struct tm tm;

    if (!gmtime_r(&seconds, &tm) || !strftime(text, sizeof(text), ISO_TIME, &tm))
        return json_null();
    return json_string(text);
}

json_t *stall_json(const struct store_stall *s)
{
    if (!s->ns)
        return json_null();
    json_t *until = s->until_ns == OP_FOREVER
                        ? json_null()
                        : stall_time(clock_real_ns() + s->until_ns - clock_mono_ns());
    return json_pack("{s:I, s:s, s:o, s:o, s:o}", "since_seconds",
                     (json_int_t)(s->ns / NS_PER_SEC), "what",
                     s->changes ? "changes" : "questions", "errno",
                     s->err ? json_string(err_name(s->err)) : json_null(), "error",
                     s->why[0] ? control_text(s->why) : json_null(), "retried_until", until);
}

static const char *text_of(const json_t *from, const char *name)
{
    return json_string_value(json_object_get(from, name));
}

/* The clock on the wall, as people read it; "" when it is never given up. */
static void format_until(const json_t *stalled, int64_t deadline_ns, char *ret, size_t size)
{
    const char *iso = text_of(stalled, "retried_until");
    struct tm tm = {0};
    time_t at = 0;

    *ret = '\0';
    if (deadline_ns != OP_FOREVER)
        at = (time_t)((clock_real_ns() + deadline_ns - clock_mono_ns()) / NS_PER_SEC);
    else if (iso && strptime(iso, ISO_TIME, &tm))
        at = timegm(&tm);
    if (at && localtime_r(&at, &tm) && !strftime(ret, size, "%H:%M:%S", &tm))
        *ret = '\0';
}

const char *stall_text(const json_t *stalled, int64_t deadline_ns, const char *said,
                       char ret[STALL_TEXT_MAX])
{
    const char *error = text_of(stalled, "error");
    bool tell = error && !(said && strstr(said, error));
    char until[16];

    format_until(stalled, deadline_ns, until, sizeof(until));
    (void)snprintf(ret, STALL_TEXT_MAX, "no %s for %lld s%s%s; retried until %s",
                   error ? "success" : "answer",
                   (long long)json_integer_value(json_object_get(stalled, "since_seconds")),
                   tell ? ", last: " : "", tell ? error : "", *until ? until : "it works");
    return ret;
}

bool stall_is_unreachable(const json_t *stalled)
{
    const char *name = text_of(stalled, "errno");

    return name && err_is_unreachable(-err_by_name(name));
}
