/* runfs flush, fetch, pin, unpin and evict: one request for each path. */
#include "cli/arguments.h"
#include "cli/bystander.h"
#include "cli/client.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/target.h"
#include "cli/verify.h"
#include "cli/writeback.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct transfer {
    const char *cmd;    /* of the request */
    const char *what;   /* for the progress bar; NULL for none */
    int64_t timeout_ns; /* for all paths together */
    bool staged, open;
    bool writes_back;    /* what mappings stored belongs to it */
    bool may_be_missing; /* the path need not exist */
    bool evicts;         /* and says what stays */
    bool commits;        /* says that a unit is complete before */
    const char *level;   /* of a flush; NULL: as far as the store */
};

static json_t *make_request(const struct transfer *t, const char *rel, int64_t left_ns)
{
    auto_free char *path = control_encode_path(rel);
    json_t *request = path ? json_pack("{s:s, s:s}", "cmd", t->cmd, "path", path) : NULL;

    if (!request)
        return NULL;
    if (t->staged)
        (void)json_object_set_new(request, "staged", json_true());
    if (t->open)
        (void)json_object_set_new(request, "open", json_true());
    if (left_ns != OP_FOREVER)
        (void)json_object_set_new(request, "timeout_ms", json_integer(left_ns / NS_PER_MS));
    return request;
}

/* A flush that succeeded may have left things that it must not publish by itself. */
static int report_leftover(const char *path, const json_t *answer)
{
    uint64_t staged = (uint64_t)json_integer_value(json_object_get(answer, "staged"));
    uint64_t kept = (uint64_t)json_integer_value(json_object_get(answer, "kept"));
    auto_free char *staged_names = report_names(answer, "staged_names", staged);
    auto_free char *kept_names = report_names(answer, "kept_names", kept);
    const char *cache_dir = json_string_value(json_object_get(answer, "cache_dir"));

    if (staged)
        (void)command_failed("%s: %" PRIu64 " wait for their rename (--staged publishes "
                             "them as they are): %s",
                             path, staged, staged_names ? staged_names : "");
    if (kept)
        (void)command_failed("%s: %" PRIu64 " kept in the cache %s, not published (see `runfs "
                             "status --files`): %s",
                             path, kept, cache_dir ? cache_dir : "",
                             kept_names ? kept_names : "");
    return staged || kept ? EXIT_NOT_YET : EXIT_OK;
}

/* An eviction leaves alone what is ours, scratch, pinned or in use. */
static int report_stays(const char *path, const json_t *answer)
{
    uint64_t dirty = (uint64_t)json_integer_value(json_object_get(answer, "dirty"));
    uint64_t local = (uint64_t)json_integer_value(json_object_get(answer, "local"));
    uint64_t pinned = (uint64_t)json_integer_value(json_object_get(answer, "pinned"));
    uint64_t used = (uint64_t)json_integer_value(json_object_get(answer, "used"));
    uint64_t all = dirty + local + pinned + used;
    auto_free char *names = report_names(answer, "stay_names", all);
    char scratch[40] = "";

    if (all == 0)
        return EXIT_OK;
    if (local)
        (void)snprintf(scratch, sizeof(scratch), " %" PRIu64 " scratch,", local);
    return command_failed("%s: %" PRIu64 " stay in the cache (%" PRIu64
                          " that no store has so,%s %" PRIu64 " pinned, %" PRIu64
                          " open, locked or of several names): %s",
                          path, all, dirty, scratch, pinned, used, names ? names : "");
}

static int add_paths(struct buf *paths, const json_t *texts)
{
    const json_t *text;
    size_t i;

    json_array_foreach(texts, i, text)
    {
        auto_free char *path = NULL;
        int err = control_decode_path(json_string_value(text), &path);

        if (!err)
            err = buf_add(paths, path, strlen(path) + 1);
        if (err)
            return err;
    }
    return 0;
}

/* What mappings stored belongs to what is asked for. A path that is a cache directory may have
 * no mount any more, and a daemon of an earlier version tells of no writers. */
static int write_back(struct client *client, struct op *op)
{
    auto_free char *path = control_encode_path(client->rel);
    auto_json json_t *answer = NULL;
    auto_buf struct buf paths = BUF_INIT(WRITEBACK_MAX);

    if (!client->mountpoint)
        return 0;
    int err = client_call(client,
                          path ? json_pack("{s:s, s:s}", "cmd", "writers", "path", path) : NULL,
                          NULL, NULL, op, &answer);
    if (err)
        return err == -ENOSYS ? 0 : err;
    err = add_paths(&paths, json_object_get(answer, "paths"));
    return err ? op_fail(op, err, "%s", strerror(-err))
               : writeback_files(client->mountpoint, 0, &paths, op);
}

/* A caller that may not ask the daemon, or can't for the reason `unasked`, waits by the path.
 */
static int await_by(const struct transfer *t, const char *path, int64_t deadline_ns,
                    const char *unasked)
{
    struct op op;

    if (t->staged || t->open)
        return command_failed_by(
            -EPERM, "flush %s: --staged and --open are for the user who mounted it, and root",
            path);
    op_init(&op, OP_FOREVER);
    op.deadline_ns = deadline_ns;
    int err = bystander_await(path, &op);
    if (!err)
        return EXIT_OK;
    (void)command_failed("flush %s: %s%s%s%s", path, op.why,
                         unasked ? " (its daemon was not asked: " : "", unasked ? unasked : "",
                         unasked ? ")" : "");
    return (int)command_exit_code_of_wait(err);
}

static int commit(struct client *client, struct op *op)
{
    auto_free char *path = control_encode_path(client->rel);
    auto_json json_t *answer = NULL;

    return client_call(client,
                       path ? json_pack("{s:s, s:s}", "cmd", "commit", "path", path) : NULL,
                       NULL, NULL, op, &answer);
}

static int transfer_one(const struct transfer *t, const char *path, int64_t deadline_ns)
{
    auto_json json_t *answer = NULL;
    struct progress progress;
    struct client client;
    struct op op;
    int err;

    /* The daemon has nothing to do for what isn't there, and a mistyped path must not succeed.
     */
    if (!t->may_be_missing && faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
        errno != EACCES) /* as root on another user's mount */
        return command_failed_by(-errno, "%s: %s", path, strerror(errno));
    op_init(&op, OP_FOREVER);
    op.deadline_ns = deadline_ns;
    err = client_open(path, &op, &client);
    if (err && t->writes_back && !t->commits && bystander_may_ask(path, err))
        return await_by(t, path, deadline_ns, err == -ENOTCONN ? op.why : NULL);
    if (err)
        return command_failed_by(err, "%s", op.why);
    progress_init(&progress, t->what);
    progress.deadline_ns = deadline_ns;
    err = t->writes_back ? write_back(&client, &op) : 0;
    bool unseen = err == -EACCES; /* what the daemon has is flushed all the same */
    if (unseen)
        (void)command_failed("%s %s: %s", t->cmd, path, op.why);
    if (t->commits && !err)
        err = commit(&client, &op);
    if (!err || unseen)
        err = client_call(&client, make_request(t, client.rel, op_left_ns(&op)),
                          t->what ? progress_step : NULL, &progress, &op, &answer);
    progress_end(&progress);
    auto_free char *vain = err ? report_vain(answer, client.mountpoint) : NULL;
    client_close(&client);
    if (err) {
        (void)command_failed("%s %s: %s%s", t->cmd, path, op.why, vain ? vain : "");
        return (int)(t->writes_back ? report_vain_code(err, answer) : command_exit_code(err));
    }
    int code = t->evicts ? report_stays(path, answer) : report_leftover(path, answer);
    return unseen ? EXIT_REFUSED : code;
}

static int transfer_path(const struct transfer *t, const char *path, int64_t deadline_ns)
{
    auto_free char *end = target_led_to(path);
    int code = transfer_one(t, path, deadline_ns);

    return code == EXIT_OK && end ? transfer_one(t, end, deadline_ns) : code;
}

/* Of both the worse: what is wrong in the store, else what the flush has not brought there. */
static int code_of_both(int flushed, const struct verified *v)
{
    int code = verify_code(v);

    verify_report(v);
    return flushed == EXIT_OK || (flushed == EXIT_NOT_YET && code == EXIT_FAILED) ? code
                                                                                  : flushed;
}

static int transfer_all(struct transfer *t, const struct command *self, int argc, char **argv)
{
    const struct argument flush_table[] = {{.name = "--timeout", .time_ns = &t->timeout_ns},
                                           {.name = "--staged", .flag = &t->staged},
                                           {.name = "--open", .flag = &t->open},
                                           {.name = "--level", .text = &t->level},
                                           {0}};
    const struct argument no_table[] = {{0}};
    const struct argument commit_table[] = {{.name = "--timeout", .time_ns = &t->timeout_ns},
                                            {0}};
    bool is_flush = strcmp(t->cmd, "flush") == 0;
    struct verified v = {.flushed = true};
    struct op op;
    int n, code, first = EXIT_OK;

    t->timeout_ns = OP_FOREVER;
    code = arguments_parse(self,
                           t->commits ? commit_table
                           : is_flush ? flush_table
                                      : no_table,
                           argc, argv, &n);
    if (code >= 0)
        return code;
    if (n == 0)
        return command_misused(self, "%s needs a path", self->name);
    bool verifies = t->level && strcmp(t->level, "verified") == 0;
    if (t->level && !verifies && strcmp(t->level, "store") != 0)
        return command_misused(self, "--level is store or verified, not %s", t->level);
    op_init(&op, t->timeout_ns);
    v.deadline_ns = op.deadline_ns;
    for (int i = 1; i <= n; i++) {
        code = transfer_path(t, argv[i], op.deadline_ns);
        if (verifies && (code == EXIT_OK || code == EXIT_NOT_YET))
            verify_path(&v, argv[i]);
        if (first == EXIT_OK)
            first = code;
    }
    return verifies ? code_of_both(first, &v) : first;
}

int command_flush(const struct command *self, int argc, char **argv)
{
    return transfer_all(
        &(struct transfer){.cmd = "flush", .what = "uploading", .writes_back = true}, self,
        argc, argv);
}

int command_commit(const struct command *self, int argc, char **argv)
{
    return transfer_all(
        &(struct transfer){
            .cmd = "flush", .what = "uploading", .writes_back = true, .commits = true},
        self, argc, argv);
}

int command_fetch(const struct command *self, int argc, char **argv)
{
    return transfer_all(&(struct transfer){.cmd = "fetch", .what = "downloading"}, self, argc,
                        argv);
}

int command_pin(const struct command *self, int argc, char **argv)
{
    return transfer_all(&(struct transfer){.cmd = "pin"}, self, argc, argv);
}

int command_unpin(const struct command *self, int argc, char **argv)
{
    return transfer_all(&(struct transfer){.cmd = "unpin", .may_be_missing = true}, self, argc,
                        argv);
}

int command_evict(const struct command *self, int argc, char **argv)
{
    return transfer_all(&(struct transfer){.cmd = "evict", .evicts = true}, self, argc, argv);
}
