/* A store that stalls (struct store_stall), in the words of the status document, the control
 * socket, commands and the log. Any thread. */
#ifndef RUNFS_CLI_STALL_DOC_H
#define RUNFS_CLI_STALL_DOC_H

#include "backends/store.h"

#include <jansson.h>

/* An ISO time in UTC; heap or a JSON null without memory. */
json_t *stall_time(int64_t real_ns);

/* {"since_seconds", "what", "errno", "error", "retried_until"}, or JSON's null without a stall.
 * NULL without memory. */
json_t *stall_json(const struct store_stall *s);

#define STALL_TEXT_MAX 512
/* "no answer for 7 s, last: 503 Slow Down; retried until 14:03:22" of what stall_json() made.
 * `deadline_ns` (CLOCK_MONOTONIC) is when the caller stops waiting; OP_FOREVER: nothing but
 * what the JSON says. What `said` (may be NULL) has already is not said again. Returns `ret`.
 */
const char *stall_text(const json_t *stalled, int64_t deadline_ns, const char *said,
                       char ret[STALL_TEXT_MAX]);

/* Whether no request ever arrived: nobody listens there, or no way leads there. */
bool stall_is_unreachable(const json_t *stalled);

#endif
