/* runfs verify, and what `runfs flush --level verified` asks. */
#include "cli/verify.h"

#include "cli/arguments.h"
#include "cli/client.h"
#include "cli/mountinfo.h"
#include "cli/progress.h"
#include "cli/target.h"
#include "cli/verify_answer.h"
#include "common/buf.h"
#include "common/mem.h"
#include "common/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one file ---- */

struct asking {
    struct verified *v;
    struct progress progress;
    const char *mountpoint; /* NULL: of a cache directory */
};

/* What can be done about it; heap. */
static char *advice(enum cache_verdict verdict, bool local, const char *cache_dir,
                    const char *path, const char *shown)
{
    char *text = NULL;
    int r = 0;

    switch (verdict) {
    case CACHE_DIFFERS:
    case CACHE_MISSING:
        r = local ? asprintf(&text,
                             "; all of it is in the cache still: copy %s/mirror/%s away before "
                             "anything opens the file here, and write it again",
                             cache_dir, path)
                  : asprintf(&text, "; write it again, or take it for what it is now");
        break;
    case CACHE_NOT_COMPARED:
        r = asprintf(&text,
                     "; `runfs fetch %s` brings the content here, to be compared from then on",
                     shown);
        break;
    case CACHE_NOT_STORED:
        r = asprintf(&text, "; `runfs flush %s` waits for it", shown);
        break;
    case CACHE_CHANGES:
        r = asprintf(&text, "; verify it again when its writers pause");
        break;
    case CACHE_UNREADABLE:
    case CACHE_VERIFIED:
    case CACHE_VERDICTS:
        break;
    }
    return r < 0 ? NULL : text;
}

static const char *verdict_text(enum cache_verdict verdict)
{
    switch (verdict) {
    case CACHE_DIFFERS:
        return "differs";
    case CACHE_MISSING:
        return "missing";
    case CACHE_NOT_COMPARED:
        return "not compared";
    case CACHE_UNREADABLE:
        return "can't be looked at";
    case CACHE_NOT_STORED:
        return "not in the store yet";
    case CACHE_CHANGES:
        return "changes";
    case CACHE_VERIFIED:
    case CACHE_VERDICTS:
        break;
    }
    return "not verified";
}

static const char *text_of(const json_t *found, const char *field)
{
    const char *text = json_string_value(json_object_get(found, field));

    return text ? text : "";
}

static void add_problem(json_t *problems, const json_t *found, const char *shown)
{
    json_t *problem =
        json_pack("{s:o, s:s, s:s, s:s, s:s, s:I}", "path", control_text(shown), "verdict",
                  text_of(found, "verdict"), "expected", text_of(found, "expected"), "found",
                  text_of(found, "found"), "why", text_of(found, "why"), "bytes",
                  json_integer_value(json_object_get(found, "bytes")));

    (void)json_array_append_new(problems, problem);
}

static void tell_found(struct asking *a, const json_t *found)
{
    enum cache_verdict verdict = verify_verdict(text_of(found, "verdict"));
    const char *expected = text_of(found, "expected"), *there = text_of(found, "found");
    auto_free char *path = NULL;
    auto_free char *shown = NULL;

    if (control_decode_path(text_of(found, "path"), &path) ||
        asprintf(&shown, "%s%s%s", a->mountpoint ? a->mountpoint : "",
                 a->mountpoint && *path ? "/" : "", path) < 0)
        return; /* it is counted all the same */
    auto_free char *hint = advice(verdict, json_is_true(json_object_get(found, "local")),
                                  text_of(found, "cache_dir"), path, shown);
    progress_end(&a->progress);
    (void)command_failed("%s: %s: %s%s%s%s%s%s%s", shown, verdict_text(verdict),
                         text_of(found, "why"), *expected ? " (expected " : "", expected,
                         *expected ? ", found " : "", there, *expected ? ")" : "",
                         hint ? hint : "");
    if (verdict == CACHE_UNREADABLE && !a->v->err)
        a->v->err = -(int)json_integer_value(json_object_get(found, "errno"));
    if (a->v->problems)
        add_problem(a->v->problems, found, shown);
}

static void step(void *arg, const struct client_step *s)
{
    struct asking *a = arg;

    if (s->found)
        tell_found(a, s->found);
    else
        progress_step(&a->progress, s);
}

/* ---- a path ---- */

static void add_counts(struct cache_verify_total *t, const json_t *counts)
{
    const json_t *files = json_object_get(counts, "files");

    for (int i = 0; i < CACHE_VERDICTS; i++)
        t->files[i] += (uint64_t)json_integer_value(
            json_object_get(files, verify_verdict_name((enum cache_verdict)i)));
    t->bytes += (uint64_t)json_integer_value(json_object_get(counts, "bytes"));
    t->read_back += (uint64_t)json_integer_value(json_object_get(counts, "read_back"));
}

static bool is_mountpoint(const char *path)
{
    struct mountinfo m = {0};
    bool is = mountinfo_by_path(path, &m) == 0;

    mountinfo_release(&m);
    return is;
}

/* To look a name up may have the mount ask the store, and take what that has now for what the
 * mount says: its directory is looked up alone, where the name stands in a mount. -ENODEV: it
 * does not, or is none. */
static int open_by_parent(const char *path, struct op *op, struct client *ret)
{
    auto_free char *copy = strdup(path);
    auto_free char *parent = NULL;
    auto_free char *whole = NULL;
    auto_free char *rel = NULL;
    struct target target;
    size_t len = copy ? strlen(copy) : 0;

    if (len && copy[len - 1] == '/') /* what a symlink of this name leads to */
        return -ENODEV;
    char *slash = copy ? strrchr(copy, '/') : NULL;
    const char *name = slash ? slash + 1 : copy;
    if (!name || !*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return -ENODEV;
    if (slash)
        *slash = '\0';
    parent = realpath(!slash ? "." : *copy ? copy : "/", NULL);
    if (!parent || target_resolve(parent, op, &target))
        return -ENODEV;
    int r = asprintf(&rel, "%s%s%s", target.rel, *target.rel ? "/" : "", name);
    target_release(&target);
    if (r < 0 || asprintf(&whole, "%s/%s", parent, name) < 0)
        return op_fail(op, -ENOMEM, "out of memory");
    if (is_mountpoint(whole))
        return -ENODEV;
    r = client_open(parent, op, ret);
    if (r == 0) {
        free(ret->rel);
        ret->rel = take_ptr(rel);
    }
    return r;
}

static int open_path(const char *path, struct op *op, struct client *ret)
{
    struct op quiet = *op;
    int err = open_by_parent(path, &quiet, ret);

    if (err == -ENODEV)
        return client_open(path, op, ret);
    return err ? op_fail(op, err, "%s", quiet.why) : 0;
}

static json_t *make_request(const struct verified *v, const char *rel)
{
    struct op op = {.deadline_ns = v->deadline_ns};
    auto_free char *path = control_encode_path(rel);
    json_t *request = path ? json_pack("{s:s, s:s, s:b}", "cmd", "verify", "path", path,
                                       "flushed", v->flushed)
                           : NULL;

    if (request && v->deadline_ns != OP_FOREVER)
        (void)json_object_set_new(request, "timeout_ms",
                                  json_integer(op_left_ns(&op) / NS_PER_MS));
    return request;
}

/* Whether the path may be a symlink: to look at it would look it up. */
static bool ask(struct verified *v, const char *path)
{
    struct asking a = {.v = v};
    auto_json json_t *answer = NULL;
    struct client client;
    struct op op;

    op_init(&op, OP_FOREVER);
    op.deadline_ns = v->deadline_ns;
    int err = open_path(path, &op, &client);
    if (err) {
        v->err = v->err ? v->err : err;
        (void)command_failed("verify %s: %s", path, op.why);
        return false;
    }
    progress_init(&a.progress, "verifying");
    a.progress.deadline_ns = v->deadline_ns;
    a.mountpoint = client.mountpoint;
    err = client_call(&client, make_request(v, client.rel), step, &a, &op, &answer);
    progress_end(&a.progress);
    add_counts(&v->total, json_object_get(answer, "verified"));
    client_close(&client);
    if (!err)
        return json_is_true(json_object_get(answer, "may_lead"));
    struct op probe = {.deadline_ns = v->deadline_ns};
    /* The daemon was told the time in whole milliseconds, and so may be a little early. */
    v->late = v->late || (err == -ETIMEDOUT && op_left_ns(&probe) <= NS_PER_MS);
    v->err = v->err ? v->err : err;
    (void)command_failed("verify %s: %s", path, op.why);
    return false;
}

void verify_path(struct verified *v, const char *path)
{
    auto_free char *end = ask(v, path) ? target_led_to(path) : NULL;

    if (end)
        (void)ask(v, end);
}

/* ---- all of it ---- */

static uint64_t wrong(const struct cache_verify_total *t)
{
    return t->files[CACHE_DIFFERS] + t->files[CACHE_MISSING] + t->files[CACHE_NOT_COMPARED];
}

void verify_report(const struct verified *v)
{
    const struct cache_verify_total *t = &v->total;
    auto_buf struct buf rest = BUF_INIT(1024);
    char size[FORMAT_SIZE_MAX];

    for (int i = CACHE_VERIFIED + 1; i < CACHE_VERDICTS; i++)
        if (t->files[i])
            (void)buf_addf(&rest, "%s%" PRIu64 " %s", rest.len ? ", " : "; ", t->files[i],
                           verdict_text((enum cache_verdict)i));
    command_say("%" PRIu64 " file%s, %s verified (%" PRIu64 " by reading back)%s",
                t->files[CACHE_VERIFIED], t->files[CACHE_VERIFIED] == 1 ? "" : "s",
                format_size(size, t->bytes), t->read_back, rest.len ? rest.data : "");
}

int verify_code(const struct verified *v)
{
    const struct cache_verify_total *t = &v->total;

    if (wrong(t))
        return EXIT_FAILED;
    if (v->late)
        return EXIT_NOT_YET;
    if (v->err)
        return (int)command_exit_code(v->err);
    return t->files[CACHE_NOT_STORED] || t->files[CACHE_CHANGES] ? EXIT_NOT_YET : EXIT_OK;
}

static json_t *document(const struct verified *v)
{
    const struct cache_verify_total *t = &v->total;
    json_t *files = json_object();

    for (int i = 0; i < CACHE_VERDICTS; i++)
        (void)json_object_set_new(files, verify_verdict_name((enum cache_verdict)i),
                                  json_integer((json_int_t)t->files[i]));
    return json_pack("{s:b, s:o, s:I, s:I, s:O}", "ok", verify_code(v) == EXIT_OK, "files",
                     files, "bytes", (json_int_t)t->bytes, "read_back",
                     (json_int_t)t->read_back, "problems", v->problems);
}

int command_verify(const struct command *self, int argc, char **argv)
{
    struct verified v = {0};
    bool as_json = false;
    int64_t timeout_ns = OP_FOREVER;
    const struct argument table[] = {{.name = "--json", .flag = &as_json},
                                     {.name = "--timeout", .time_ns = &timeout_ns},
                                     {0}};
    struct op op;
    int n, code = arguments_parse(self, table, argc, argv, &n);

    if (code >= 0)
        return code;
    if (n == 0)
        return command_misused(self, "verify needs a path");
    op_init(&op, timeout_ns);
    v.deadline_ns = op.deadline_ns;
    v.problems = as_json ? json_array() : NULL;
    for (int i = 1; i <= n; i++)
        verify_path(&v, argv[i]);
    code = verify_code(&v);
    if (as_json) {
        auto_json json_t *doc = document(&v);
        int told = command_answer_json(doc);
        code = code == EXIT_OK ? told : code;
    } else {
        verify_report(&v);
    }
    json_decref(v.problems);
    return code;
}
