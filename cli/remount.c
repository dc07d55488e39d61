/* The kernel's part of the options by mount(2), the rest compared with what the daemon has. */
#include "cli/remount.h"

#include "cli/client.h"
#include "cli/mountinfo.h"
#include "cli/options.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/mount.h>

struct change {
    struct mount_options asked, running;
    bool read_only; /* the daemon takes no writes at all */
    unsigned long flags;
    struct op *op;
};

static const struct {
    const char *name;
    unsigned long set, cleared;
} flags[] = {
    {"ro", MS_RDONLY, 0},
    {"rw", 0, MS_RDONLY},
    {"nosuid", MS_NOSUID, 0},
    {"suid", 0, MS_NOSUID},
    {"nodev", MS_NODEV, 0},
    {"dev", 0, MS_NODEV},
    {"noexec", MS_NOEXEC, 0},
    {"exec", 0, MS_NOEXEC},
    {"sync", MS_SYNCHRONOUS, 0},
    {"async", 0, MS_SYNCHRONOUS},
    {"dirsync", MS_DIRSYNC, 0},
    {"nosymfollow", MS_NOSYMFOLLOW, 0},
    {"symfollow", 0, MS_NOSYMFOLLOW},
};

/* What the kernel shows of a mount and mount(8) hands on from there. */
static const char *const shown[] = {"remount", "user_id", "group_id", "max_read", "blksize"};

static int is_remount(void *arg, const char *name, const char *value)
{
    (void)arg;
    return !value && strcmp(name, "remount") == 0;
}

bool remount_is_asked(const char *list)
{
    return list && mount_options_each(list, is_remount, NULL) == 1;
}

static bool set_flag(struct change *c, const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        if (strcmp(flags[i].name, name) != 0)
            continue;
        c->flags = (c->flags | flags[i].set) & ~flags[i].cleared;
        return true;
    }
    return false;
}

static int take_option(void *arg, const char *name, const char *value)
{
    struct change *c = arg;
    int err;

    if ((!value && set_flag(c, name)) || mount_options_ignored(name))
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
        if (strcmp(shown[i], name) == 0)
            return 0;
    err = mount_options_set(&c->asked, name, value, c->op);
    if (err || mount_options_same(&c->asked, &c->running, name))
        return err;
    return op_fail(c->op, -EINVAL,
                   "option %.60s can't change while mounted; unmount and mount again", name);
}

static int ask_daemon(const char *abs, struct change *c)
{
    auto_json json_t *answer = NULL;
    const json_t *status;
    const char *given;
    struct client client;
    int err = client_open(abs, c->op, &client);

    if (err)
        return err;
    err = client_call(&client, json_pack("{s:s}", "cmd", "status"), NULL, NULL, c->op, &answer);
    client_close(&client);
    if (err)
        return err;
    status = json_object_get(answer, "status");
    given = json_string_value(json_object_get(status, "options"));
    if (!given)
        return op_fail(
            c->op, -EPROTO,
            "%s: its daemon, of another version of runfs, does not tell its options; "
            "unmount and mount again",
            abs);
    c->read_only = json_is_true(json_object_get(status, "read_only"));
    return mount_options_parse(&c->running, given, c->op);
}

static int apply(const char *abs, struct change *c)
{
    if (c->read_only && !(c->flags & MS_RDONLY))
        return op_fail(c->op, -EINVAL,
                       "option rw can't change while mounted: %s was mounted with ro; unmount "
                       "and mount again",
                       abs);
    if (mount(NULL, abs, NULL, MS_REMOUNT | c->flags, NULL) == 0)
        return 0;
    return op_fail(c->op, -errno, "cannot remount %s: %s", abs,
                   errno == EBUSY ? "files are open for writing" : strerror(errno));
}

int remount(const char *dir, const char *list, struct op *op)
{
    struct change c = {.op = op};
    auto_free char *abs = realpath(dir, NULL);
    struct mountinfo m;
    bool ours;
    int err;

    if (!abs)
        return op_fail(op, -errno, "mountpoint %s: %s", dir, strerror(errno));
    err = mountinfo_by_path(abs, &m);
    ours = !err && mountinfo_is_runfs(&m);
    /* mount(2) clears the flags that it is not given. */
    c.flags = (err ? 0 : m.flags) | MS_NOSUID | MS_NODEV;
    if (!err)
        mountinfo_release(&m);
    if (!ours)
        return op_fail(op, -EINVAL, "%s is not a mountpoint of runfs", abs);
    mount_options_init(&c.asked);
    mount_options_init(&c.running);
    err = ask_daemon(abs, &c);
    if (!err)
        err = mount_options_each(list, take_option, &c);
    if (!err)
        err = apply(abs, &c);
    mount_options_release(&c.asked);
    mount_options_release(&c.running);
    return err;
}
