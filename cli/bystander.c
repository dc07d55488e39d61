#include "cli/bystander.h"

#include "cli/control_io.h"
#include "cli/target.h"
#include "cli/writeback.h"
#include "common/mem.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#define AGAIN_NS (200 * NS_PER_MS) /* between questions while too many wait */

/* ---- asking ---- */

/* The owner of a mount could let a question of root's wait for ever. */
static bool is_safe(const struct target *t)
{
    return geteuid() != 0 || t->owner == 0;
}

bool bystander_may_ask(const char *path, int err)
{
    struct target target;
    struct op op;

    op_init(&op, OP_FOREVER);
    if ((err != -EACCES && err != -ENOTCONN) || target_resolve(path, &op, &target))
        return false;
    bool safe = is_safe(&target);
    target_release(&target);
    return safe;
}

/* Heap; NULL with errno. */
static char *attribute(const char *path, const char *name)
{
    char value[PATH_MAX];
    ssize_t n = lgetxattr(path, name, value, sizeof(value));

    return n < 0 ? NULL : strndup(value, (size_t)n);
}

/* ---- waiting ---- */

static void on_alarm(int sig)
{
    (void)sig; /* it has interrupted the question, which is all it is for */
}

/* The alarm comes at the deadline, and again and again: the first could come before the
 * question. */
static void set_alarm(const struct op *op)
{
    const struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval timer = {.it_interval.tv_usec = 100000};
    int64_t left_ns = op_left_ns(op);

    if (left_ns == OP_FOREVER)
        return;
    timer.it_value.tv_sec = left_ns / NS_PER_SEC;
    timer.it_value.tv_usec = left_ns % NS_PER_SEC / 1000 + 1;
    (void)sigaction(SIGALRM, &action, NULL);
    (void)setitimer(ITIMER_REAL, &timer, NULL);
}

static void end_alarm(void)
{
    const struct itimerval none = {0};

    (void)setitimer(ITIMER_REAL, &none, NULL);
}

/* What programs stored through mappings of a file that they have open belongs to it. */
static int write_back(const char *path, struct op *op)
{
    auto_free char *state = attribute(path, "user.runfs.state");
    auto_buf struct buf paths = BUF_INIT(WRITEBACK_MAX);
    struct target target;
    struct stat st;
    int err;

    if (!state || strcmp(state, "clean") == 0 || strcmp(state, "partial") == 0 ||
        lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return 0; /* the question tells what is wrong */
    err = target_resolve(path, op, &target);
    if (err)
        return err;
    err = buf_add(&paths, target.rel, strlen(target.rel) + 1);
    err = err ? op_fail(op, err, "%s", strerror(-err))
              : writeback_files(target.mountpoint, 0, &paths, op);
    target_release(&target);
    return err;
}

static const char *reason(int err)
{
    switch (err) {
    case -EBUSY:
        return "something there is open for writing, or waits under a staging name for its "
               "rename: close or rename it first";
    case -ESTALE:
        return "some content was kept in the cache, not published: the user who mounted it "
               "sees it in `runfs status --files`";
    case -ENODATA:
    case -EOPNOTSUPP:
        return "only files and directories can be waited for (of a symlink: its directory), "
               "and the runfs that serves it must know how";
    default:
        return strerror(-err);
    }
}

static int ask(const char *path, struct op *op)
{
    char value[16];
    int err;

    do {
        err = lgetxattr(path, "user.runfs.wait", value, sizeof(value)) < 0 ? -errno : 0;
        if (err != -EINTR && err != -EAGAIN)
            return err;
        /* A signal: the alarm's, or one that is nothing to us. */
        err = err == -EAGAIN ? op_sleep(op, AGAIN_NS) : op_check(op);
    } while (!err);
    return err;
}

int bystander_await(const char *path, struct op *op)
{
    int err = write_back(path, op);

    if (err)
        return err;
    set_alarm(op);
    err = ask(path, op);
    end_alarm();
    if (err == -ETIMEDOUT)
        return op_fail(op, err, "not everything is in the store yet");
    return err ? op_fail(op, err, "%s", reason(err)) : 0;
}

/* ---- looking ---- */

static json_t *owed_of(const char *text)
{
    json_int_t files, bytes, uploading, failed, staged, operations;

    if (sscanf(text,
               "files=%" JSON_INTEGER_FORMAT " bytes=%" JSON_INTEGER_FORMAT
               " uploading=%" JSON_INTEGER_FORMAT " failed=%" JSON_INTEGER_FORMAT
               " staged=%" JSON_INTEGER_FORMAT " operations=%" JSON_INTEGER_FORMAT,
               &files, &bytes, &uploading, &failed, &staged, &operations) != 6)
        return NULL;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "files", files, "bytes", bytes,
                     "uploading", uploading, "failed", failed, "staged", staged, "operations",
                     operations);
}

static const struct {
    const char *field, *attribute;
} routed[] = {{"store", "user.runfs.store"},
              {"route", "user.runfs.route"},
              {"policy", "user.runfs.policy"}};

static void add_routed(json_t *to, const char *path)
{
    for (size_t i = 0; i < ARRAY_SIZE(routed); i++) {
        auto_free char *text = attribute(path, routed[i].attribute);
        if (text)
            (void)json_object_set_new(to, routed[i].field, control_text(text));
    }
}

json_t *bystander_routed(const char *path)
{
    auto_free char *state = NULL;
    auto_json json_t *told = NULL;
    struct target target;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (target_resolve(path, &op, &target))
        return NULL;
    bool asks = *target.rel && is_safe(&target);
    target_release(&target);
    if (asks)
        state = attribute(path, "user.runfs.state");
    if (!state)
        return NULL;
    told = json_pack("{s:o, s:o}", "path", control_text(path), "state", control_text(state));
    add_routed(told, path);
    return json_object_get(told, "route") ? take_ptr(told) : NULL;
}

int bystander_status(const char *path, struct op *op, json_t **ret)
{
    auto_free char *state = attribute(path, "user.runfs.state");
    int err = state ? 0 : -errno;

    if (err)
        return op_fail(op, err, "%s: %s", path, reason(err));
    auto_free char *owed = attribute(path, "user.runfs.owed");
    auto_free char *url = attribute(path, "user.runfs.url");
    auto_free char *version = attribute(path, "user.runfs.version");
    if (!owed || !url || !version)
        return op_fail(op, -ENODATA, "%s: it does not tell what is owed", path);
    *ret = json_pack("{s:o, s:o, s:o, s:o, s:o}", "path", control_text(path), "state",
                     control_text(state), "url", control_text(url), "version",
                     control_text(version), "owed", owed_of(owed));
    if (!*ret)
        return op_fail(op, -EPROTO, "%s: it does not tell what is owed", path);
    add_routed(*ret, path);
    return 0;
}
