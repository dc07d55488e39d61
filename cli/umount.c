/* runfs umount: uploads everything, unmounts, waits for the daemon's end.
 *
 * In this order, so that a failure leaves the mount as it was: refuse while files are open,
 * drain, look again, unmount, and wait for the daemon's last word and its exit (the cache is
 * free for the next mount then). */
#include "cli/arguments.h"
#include "cli/client.h"
#include "cli/mountinfo.h"
#include "cli/mountpoint.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/users.h"
#include "common/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAITERS_NS       (10 * NS_PER_SEC)
#define WAITERS_PAUSE_US 50000

/* Names the processes that could not be looked at when the search has waited for one of them,
 * or when one of them must use the mount. */
static void tell_passed_over(const char *mountpoint, const struct mount_users *users, bool busy)
{
    if (users->stuck || (busy && users->passed_over))
        (void)command_failed(
            "%s: cannot look at %u process%s waiting in the kernel, which may use it: %s",
            mountpoint, users->passed_over, users->passed_over == 1 ? "" : "es",
            users->passed_names.data ? users->passed_names.data : "");
}

/* `busy`: the kernel says that there is a user. */
static int refuse_users(const char *mountpoint, dev_t dev, bool busy)
{
    struct mount_users users;
    int code = EXIT_OK;

    mount_users_find("/proc", dev, USERS_PATIENCE_MS, &users);
    if (users.count)
        code = command_failed_by(-EBUSY, "%s is in use by %u process%s: %s", mountpoint,
                                 users.count, users.count == 1 ? "" : "es",
                                 users.names.data ? users.names.data : "");
    else
        tell_passed_over(mountpoint, &users, busy);
    mount_users_release(&users);
    return code;
}

/* Prints what the cache still owes the store. */
static void list_rest(struct client *c)
{
    auto_json json_t *answer = NULL;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (client_call(c, json_pack("{s:s, s:b}", "cmd", "status", "files", 1), NULL, NULL, &op,
                    &answer) == 0)
        report_files(json_object_get(answer, "status"));
}

static int drain(struct client *c, int64_t timeout_ns)
{
    auto_json json_t *request =
        json_pack("{s:s, s:s, s:b}", "cmd", "flush", "path", "", "staged", 1);
    auto_json json_t *answer = NULL;
    struct progress progress;
    struct op op;
    int err;

    if (request && timeout_ns != OP_FOREVER)
        (void)json_object_set_new(request, "timeout_ms", json_integer(timeout_ns / NS_PER_MS));
    op_init(&op, OP_FOREVER);
    progress_init(&progress, "uploading");
    if (timeout_ns != OP_FOREVER)
        progress.deadline_ns = clock_mono_ns() + timeout_ns;
    err = client_call(c, take_ptr(request), progress_step, &progress, &op, &answer);
    progress_end(&progress);
    if (!err)
        return EXIT_OK;
    auto_free char *vain = report_vain(answer, c->mountpoint);
    (void)command_failed("%s stays mounted, not everything is in the store: %s%s",
                         c->mountpoint, op.why, vain ? vain : "");
    list_rest(c);
    return (int)report_vain_code(err, answer);
}

/* Until the process is gone, and with it its lock on the cache. */
static void await_exit(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    while (pidfd >= 0 && poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
}

/* The daemon uploads what was written since the drain, tells what is left, and exits. It serves
 * as long as the filesystem is mounted anywhere. */
static int await_end(struct client *c, int pidfd, int64_t timeout_ns)
{
    auto_json json_t *answer = NULL;
    struct progress progress;
    struct op op;
    int err;

    op_init(&op, timeout_ns);
    progress_init(&progress, "uploading");
    progress.deadline_ns = op.deadline_ns;
    err = client_wait(c, progress_stall, &progress, &op, &answer);
    progress_end(&progress);
    if (err == -ETIMEDOUT) {
        (void)command_failed("%s is unmounted, but still in use, by a bind mount or in another "
                             "namespace, or not done%s: the daemon goes on",
                             c->mountpoint, progress.stalled ? ", as its store stalls" : "");
        return EXIT_NOT_YET;
    }
    await_exit(pidfd);
    if (err)
        return command_failed_by(err, "%s is unmounted, but %s", c->mountpoint, op.why);
    if (json_is_true(json_object_get(answer, "clean")))
        return EXIT_OK;
    const char *cache_dir = json_string_value(json_object_get(answer, "cache_dir"));
    (void)command_failed("%s is unmounted; this is in the cache %s and not in the store (the "
                         "next mount with it, or `runfs recover`, publishes what is not kept):",
                         c->mountpoint, cache_dir ? cache_dir : "");
    report_files(answer);
    return EXIT_NOT_YET;
}

/* A process that waits for the store by a path is answered a moment after the store has all,
 * and holds the mount until then. */
static int unmount_patiently(struct client *c, dev_t dev, int64_t timeout_ns, struct op *op)
{
    int64_t until_ns = clock_mono_ns() + (timeout_ns < WAITERS_NS ? timeout_ns : WAITERS_NS);
    int err;

    while ((err = mountpoint_unmount(c->mountpoint, dev, false, op)) == -EBUSY &&
           clock_mono_ns() < until_ns)
        (void)usleep(WAITERS_PAUSE_US);
    return err;
}

/* Once it is unmounted the daemon may end at any moment: it is asked for its last word, and
 * held by a descriptor, before. */
static int unmount_and_wait(struct client *c, dev_t dev, int64_t timeout_ns)
{
    auto_close int pidfd = client_pidfd(c);
    struct op op;
    int err;

    op_init(&op, OP_FOREVER);
    err = client_ask_wait(c, &op);
    if (err)
        return command_failed_by(err, "%s: %s", c->mountpoint, op.why);
    err = unmount_patiently(c, dev, timeout_ns, &op);
    if (err == -EBUSY && refuse_users(c->mountpoint, dev, true) != EXIT_OK)
        return EXIT_BUSY;
    return err ? command_failed_by(err, "%s", op.why) : await_end(c, pidfd, timeout_ns);
}

/* Unmounts what a daemon that died left; nobody can tell whether all was published. Or says why
 * no daemon was found: one that has ended meanwhile, and left nothing, had not died. */
static int unmount_dead(const char *path, const struct op *asked)
{
    auto_free char *abs = NULL;
    bool dead;
    struct op op;
    int err;

    op_init(&op, OP_FOREVER);
    err = mountpoint_prepare(path, &op, &abs, &dead);
    if (err)
        return command_failed_by(err, "%s", op.why);
    if (!dead)
        return command_failed_by(-ENOTCONN, "%s", asked->why);
    (void)command_failed("the runfs of %s had died; it is unmounted now, and the next mount "
                         "with its cache (or `runfs recover CACHE_DIR`) publishes the rest",
                         abs);
    return EXIT_NOT_YET;
}

/* The root of a mount that this process may unmount. */
static int check_root(const struct client *c, const char *path, dev_t *ret_dev)
{
    struct mountinfo m;

    if (!c->mountpoint || *c->rel)
        return command_failed_by(-ENODEV, "%s is not a mountpoint of runfs", path);
    if (mountinfo_by_path(c->mountpoint, &m) || !mountinfo_is_runfs(&m))
        return command_failed_by(-ENODEV, "%s is not a mountpoint of runfs", path);
    *ret_dev = m.dev;
    mountinfo_release(&m);
    return EXIT_OK;
}

static int umount_live(struct client *c, const char *path, int64_t timeout_ns)
{
    dev_t dev = 0;
    int code = check_root(c, path, &dev);

    if (code == EXIT_OK)
        code = refuse_users(c->mountpoint, dev, false);
    if (code == EXIT_OK)
        code = drain(c, timeout_ns);
    if (code == EXIT_OK)
        code = unmount_and_wait(c, dev, timeout_ns);
    return code;
}

int command_umount(const struct command *self, int argc, char **argv)
{
    int64_t timeout_ns = OP_FOREVER;
    const struct argument table[] = {{.name = "--timeout", .time_ns = &timeout_ns}, {0}};
    struct client client;
    struct op op;
    int n, err, code = arguments_parse(self, table, argc, argv, &n);

    if (code >= 0)
        return code;
    if (n != 1)
        return command_misused(self, "umount needs one mountpoint");
    op_init(&op, OP_FOREVER);
    err = client_open(argv[1], &op, &client);
    if (err == -ENOTCONN)
        return unmount_dead(argv[1], &op);
    if (err)
        return command_failed_by(err, "%s", op.why);
    code = umount_live(&client, argv[1], timeout_ns);
    client_close(&client);
    return code;
}
