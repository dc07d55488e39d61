#include "cli/verify_answer.h"

#include "cli/control_io.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>

static const char *const names[CACHE_VERDICTS] = {
    [CACHE_VERIFIED] = "verified",     [CACHE_DIFFERS] = "differs",
    [CACHE_MISSING] = "missing",       [CACHE_NOT_COMPARED] = "not_compared",
    [CACHE_UNREADABLE] = "unreadable", [CACHE_NOT_STORED] = "not_stored",
    [CACHE_CHANGES] = "changes"};

const char *verify_verdict_name(enum cache_verdict verdict)
{
    return names[verdict];
}

enum cache_verdict verify_verdict(const char *name)
{
    for (int i = 0; i < CACHE_VERDICTS; i++)
        if (name && strcmp(names[i], name) == 0)
            return (enum cache_verdict)i;
    return CACHE_VERDICTS;
}

static void tell_progress(void *arg, uint64_t done, uint64_t total)
{
    const struct verify_answer *a = arg;

    a->progress(a->arg, done, total);
}

static int tell_found(void *arg, const struct cache_verified *v)
{
    const struct verify_answer *a = arg;
    auto_free char *path = control_encode_path(v->path);
    auto_json json_t *message = NULL;

    if (path)
        message =
            json_pack("{s:{s:{s:s, s:s, s:o, s:o, s:o, s:i, s:b, s:o, s:I}}}", "progress",
                      "found", "path", path, "verdict", verify_verdict_name(v->verdict),
                      "expected", control_text(v->expected), "found", control_text(v->found),
                      "why", control_text(v->why), "errno", -v->err, "local", v->local,
                      "cache_dir", control_text(a->cache_dir), "bytes", (json_int_t)v->bytes);
    return message ? control_send(a->fd, message) : -ENOMEM;
}

static json_t *counts(const struct cache_verify_total *total)
{
    json_t *files = json_object();

    for (int i = 0; i < CACHE_VERDICTS; i++)
        (void)json_object_set_new(files, names[i], json_integer((json_int_t)total->files[i]));
    return json_pack("{s:o, s:I, s:I}", "files", files, "bytes", (json_int_t)total->bytes,
                     "read_back", (json_int_t)total->read_back);
}

int verify_answer(const struct verify_answer *a, const char *path, const json_t *request,
                  struct op *op)
{
    bool flushed = json_is_true(json_object_get(request, "flushed"));
    struct cache_verify_total total;
    auto_json json_t *answer = NULL;

    int err = cache_verify_path(a->cache, path, flushed ? CACHE_VERIFY_FLUSHED : 0, op,
                                tell_found, tell_progress, (void *)a, &total);
    answer = json_pack("{s:b, s:o, s:b}", "ok", err == 0, "verified", counts(&total),
                       "may_lead", total.may_lead);
    if (err && answer) {
        (void)json_object_set_new(answer, "errno", json_integer(-err));
        (void)json_object_set_new(answer, "error",
                                  control_text(*op->why ? op->why : strerror(-err)));
    }
    return control_send(a->fd, answer);
}
