/* The trace layer: one debug line per call, with its duration and outcome. */
#include "backends/layers/layer.h"
#include "backends/layers/layers.h"
#include "common/err.h"
#include "common/log.h"

#include <inttypes.h>
#include <stdlib.h>

static int64_t trace_around(struct layer *l, struct call *c)
{
    int64_t start = clock_mono_ns();
    int64_t r = call_next(c);
    double ms = (double)(clock_mono_ns() - start) / (double)NS_PER_MS;
    const char *arrow = c->to ? " to " : "", *to = c->to ? c->to : "";

    if (r < 0)
        log_debug("%s %s/%s%s%s: %s after %.1f ms: %s", call_name(c->kind), l->base.url, c->key,
                  arrow, to, err_name((int)r), ms, c->op->why);
    else
        log_debug("%s %s/%s%s%s: %" PRId64 " after %.1f ms", call_name(c->kind), l->base.url,
                  c->key, arrow, to, r, ms);
    return r;
}

struct store *layer_trace_new(struct store *next)
{
    struct layer *l = calloc(1, sizeof(*l));

    if (!l || layer_init(l, next, trace_around) < 0) {
        free(l);
        return NULL;
    }
    return &l->base;
}
