/* runfs status: asks the daemon for its status document and prints it; without a name, those of
 * the whole machine. */
#include "cli/arguments.h"
#include "cli/bystander.h"
#include "cli/caches.h"
#include "cli/client.h"
#include "cli/configured.h"
#include "cli/identity.h"
#include "cli/in_child.h"
#include "cli/mountinfo.h"
#include "cli/overview.h"
#include "cli/placed.h"
#include "cli/report.h"
#include "cli/target.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct status_request {
    bool json, watch, files;
};

/* The socket is gone, perhaps with the whole cache directory: the mount itself tells, too. */
static json_t *read_status(const char *path)
{
    auto_free char *name = NULL;
    struct target target;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (target_resolve(path, &op, &target))
        return NULL;
    /* The file is for the owner alone, and another user's mount could keep root waiting. */
    if (target.owner == geteuid() &&
        asprintf(&name, "%s/.runfs/status.json", target.mountpoint) < 0)
        name = NULL;
    target_release(&target);
    return !name ? NULL : json_load_file(name, JSON_REJECT_DUPLICATES, NULL);
}

static json_t *routed_of_path(const void *path)
{
    return bystander_routed(path);
}

/* Who names the mount by a path in it may mean that one. The mount may have to ask the store.
 */
static void add_asked(json_t *status, const char *path)
{
    json_t *asked = NULL;

    if (in_child(routed_of_path, path, &asked) == 0 && asked)
        (void)json_object_set_new(status, "asked", asked);
}

/* A caller that can't ask the daemon asks the mount, or the path. */
static bool ask_otherwise(const char *path, int err, json_t **ret)
{
    struct op op;

    op_init(&op, OP_FOREVER);
    *ret = err == -ENOTCONN ? read_status(path) : NULL;
    if (*ret)
        add_asked(*ret, path);
    return *ret || (bystander_may_ask(path, err) && bystander_status(path, &op, ret) == 0);
}

static int ask_status(const struct status_request *r, const char *path, json_t **ret)
{
    auto_json json_t *answer = NULL;
    struct client client;
    struct op op;
    int err;

    op_init(&op, OP_FOREVER);
    err = client_open(path, &op, &client);
    if (err && ask_otherwise(path, err, ret))
        return EXIT_OK;
    if (err)
        return command_failed_by(err, "%s", op.why);
    err = client_call(&client, json_pack("{s:s, s:b}", "cmd", "status", "files", r->files),
                      NULL, NULL, &op, &answer);
    bool in_mount = client.mountpoint && *client.rel;
    client_close(&client);
    if (err)
        return command_failed_by(err, "status of %s: %s", path, op.why);
    *ret = json_incref(json_object_get(answer, "status"));
    if (in_mount)
        add_asked(*ret, path);
    return EXIT_OK;
}

/* ---- what a name means ---- */

struct mounted {
    const char *url;
    struct buf points; /* where it is mounted, with ", " between them */
    unsigned n;
};

static int add_point(struct mounted *mounted, const struct mountinfo *m)
{
    return buf_addf(&mounted->points, "%s%s", mounted->n++ ? ", " : "", m->point);
}

static int add_mounted(void *arg, const struct mountinfo *m)
{
    struct mounted *mounted = arg;

    return mountinfo_is_runfs(m) && strcmp(m->source, mounted->url) == 0 ? add_point(mounted, m)
                                                                         : 0;
}

static json_t *stores_of(const void *mountpoint)
{
    json_t *urls = json_array();
    struct placed placed;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (placed_of_mount(mountpoint, &op, &placed) == 0) {
        for (size_t i = 0; i < placed.config.n_stores; i++)
            (void)json_array_append_new(urls, json_string(placed.config.stores[i].url));
        placed_release(&placed);
    }
    return json_pack("{s:o}", "urls", urls);
}

/* What a mount of several stores is named does not say where they are; its cache does, and the
 * mount where that is. */
static int add_one_of(void *arg, const struct mountinfo *m)
{
    auto_json json_t *told = NULL;
    struct mounted *mounted = arg;
    const json_t *url;
    size_t i;

    if (!mountinfo_is_runfs(m) || m->owner != geteuid() ||
        strncmp(m->source, IDENTITY_TITLE, strlen(IDENTITY_TITLE)) != 0)
        return 0;
    int err = in_child(stores_of, m->point, &told);
    if (err == -ETIMEDOUT)
        (void)command_failed("%s does not answer which stores it has", m->point);
    json_array_foreach(json_object_get(told, "urls"), i, url)
    {
        if (strcmp(json_string_value(url), mounted->url) == 0)
            return add_point(mounted, m);
    }
    return 0;
}

/* The only mountpoint of the store, or else a cache of it that a daemon has. */
static int find_by_store(const char *name, const char *url, struct op *op, char **ret)
{
    struct mounted mounted = {.url = url, .points = BUF_INIT(65536)};
    int err = mountinfo_each(add_mounted, &mounted);

    if (!err && !mounted.n)
        err = mountinfo_each(add_one_of, &mounted);
    if (err)
        err = op_fail(op, err, "%s: the mounts can't be read: %s", name, strerror(-err));
    else if (mounted.n > 1)
        err = op_fail(op, -ENOTUNIQ, "%s is mounted %u times, name one of them: %s", name,
                      mounted.n, mounted.points.data);
    else if (mounted.n == 1)
        *ret = strdup(mounted.points.data);
    else
        err = caches_find(name, op, ret);
    buf_release(&mounted.points);
    return err;
}

/* A folder that is a store is one only when nothing of runfs is there. */
static int find_subject(const char *name, struct op *op, char **ret)
{
    auto_free char *url = NULL;
    struct target target;
    struct op trial;

    op_init(&trial, OP_FOREVER);
    if (!strstr(name, "://") && target_resolve(name, &trial, &target) == 0)
        target_release(&target);
    else if (configured_is_file(name))
        return op_fail(op, -ENODEV,
                       "%s is a configuration: name a mountpoint, a store or a cache directory",
                       name);
    else
        url = caches_store_url(name);
    *ret = NULL;
    int err = url ? find_by_store(name, url, op, ret) : 0;
    if (!err && !*ret)
        *ret = strdup(name);
    return err ? err : *ret ? 0 : op_fail(op, -ENOMEM, "out of memory");
}

static int get_answer(const struct status_request *r, const char *name, json_t **ret)
{
    auto_free char *path = NULL;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (!name) {
        *ret = overview_json();
        return *ret ? EXIT_OK : command_failed("the mounts can't be listed");
    }
    int err = find_subject(name, &op, &path);
    return err ? command_failed_by(err, "%s", op.why) : ask_status(r, path, ret);
}

/* `name` NULL: all of the machine. */
static int print_once(const struct status_request *r, const char *name)
{
    auto_json json_t *status = NULL;
    int code = get_answer(r, name, &status);

    if (code != EXIT_OK)
        return code;
    if (r->watch && isatty(STDOUT_FILENO))
        (void)fputs("\033[H\033[2J", stdout);
    if (r->json) {
        /* ASCII: a name must not command the terminal. */
        (void)json_dumpf(status, stdout,
                         JSON_ENSURE_ASCII | (r->watch ? JSON_COMPACT : JSON_INDENT(2)));
        (void)putchar('\n');
    } else if (json_object_get(status, "path")) {
        report_path(status);
    } else if (!name) {
        overview_print(status);
    } else {
        report_status(status);
        if (r->files)
            report_files(status);
    }
    return fflush(stdout) == 0 ? EXIT_OK : command_failed("cannot write the answer");
}

int command_status(const struct command *self, int argc, char **argv)
{
    struct status_request r = {0};
    const struct argument table[] = {{.name = "--json", .flag = &r.json},
                                     {.name = "--watch", .flag = &r.watch},
                                     {.name = "--files", .flag = &r.files},
                                     {0}};
    int n, code = arguments_parse(self, table, argc, argv, &n);

    if (code >= 0)
        return code;
    if (n > 1)
        return command_misused(self, "status takes one mountpoint, store or cache, or none");
    if (n == 0 && r.files)
        return command_misused(self, "--files needs a mountpoint, a store or a cache");
    const char *name = n ? argv[1] : NULL;
    code = print_once(&r, name);
    while (r.watch && code == EXIT_OK) {
        (void)sleep(1);
        code = print_once(&r, name);
    }
    return code;
}
