/* The answer of a mount to `runfs units`. */
#include "cli/units_answer.h"

#include "cli/control_io.h"
#include "common/mem.h"

static void add_unit(void *arg, const struct cache_unit *u)
{
    auto_free char *path = control_encode_path(u->path);

    (void)json_array_append_new(
        arg, json_pack("{s:s, s:s, s:b, s:I, s:f, s:s}", "path", path ? path : "", "state",
                       u->state, "declared", u->declared, "lacks", (json_int_t)u->lacks,
                       "idle_s", (double)u->idle_ns / (double)NS_PER_SEC, "why", u->why));
}

json_t *units_answer(struct cache *c, const char *path)
{
    json_t *answer = json_pack("{s:b, s:[]}", "ok", 1, "units");

    if (answer)
        cache_each_unit(c, path, add_unit, json_object_get(answer, "units"));
    return answer;
}
