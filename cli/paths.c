/* runfs paths: the places of a run as Horovod's stores name them (_remote_attrs() in
 * horovod/spark/common/store.py of 0.28): what an estimator would compute from the mountpoint
 * as its prefix_path. Of Horovod's attributes the two that are functions are left out. */
#include "backends/http/uri.h"
#include "cli/arguments.h"
#include "cli/check.h"
#include "cli/control_io.h"
#include "cli/target.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define URI_MAX (4 * PATH_MAX)

/* What the places are made of. */
struct run {
    struct placed placed;
    char *prefix; /* heap; the mountpoint */
    char *path;   /* heap; of the run, in the mount: "runs/ID" */
    const char *dataset;
    bool dbfs, saving;
};

static void run_release(struct run *r)
{
    placed_release(&r->placed);
    free(r->prefix);
    free(r->path);
}

/* ---- what the configuration says ---- */

static bool has_path(const struct config *c, const char *path)
{
    for (size_t i = 0; i < c->routes.n; i++)
        if (strcmp(c->routes.items[i].path.text, path) == 0)
            return true;
    return false;
}

/* A layout is its routes; a mount may know no more of it. */
static int check_layout(struct run *r, struct op *op)
{
    const struct config *c = &r->placed.config;
    const struct route *route = NULL;

    if (!has_path(c, "intermediate_train_data/**"))
        return op_fail(op, -EINVAL, "its layout is neither horovod nor dbfs");
    if (routes_kind(&c->routes, r->path, ROUTES_DIRECTORY, &route) != ROUTES_MAPPED || !route)
        return op_fail(op, -EINVAL, "no route leads to %s", r->path);
    r->saving = !route->scratch;
    r->dbfs = (c->layout && strcmp(c->layout, "dbfs") == 0) ||
              strcmp(c->policies.items[route->policy].name, "dbfs") == 0;
    return 0;
}

static int check_place(const struct run *r, const char *path, struct op *op)
{
    const struct route *route = NULL;

    if (routes_kind(&r->placed.config.routes, path, ROUTES_DIRECTORY, &route) != ROUTES_NOWHERE)
        return 0;
    return op_fail(op, -EINVAL, "no route leads to %s", path);
}

/* ---- what the command line says ---- */

static int check_run(const struct run *r, struct op *op)
{
    const char *id = strncmp(r->path, "runs/", 5) == 0 ? r->path + 5 : "";

    return *id && !strchr(id, '/')
               ? 0
               : op_fail(op, -EINVAL,
                         "it is no run: a run's directory is runs/ID in its mount");
}

static int find_mounted(struct run *r, const char *path, struct op *op)
{
    struct target target;
    int err = target_resolve(path, op, &target);

    if (err)
        return err;
    err = placed_of_mount(target.mountpoint, op, &r->placed);
    r->prefix = take_ptr(target.mountpoint);
    r->path = take_ptr(target.rel);
    target_release(&target);
    return err;
}

/* "/mnt/x" and "runs/ID" of "/mnt/x/runs/ID": the path need not exist. */
static int split_path(struct run *r, const char *path, struct op *op)
{
    auto_free char *here = *path == '/' ? strdup("") : realpath(".", NULL);
    size_t len = strlen(path);

    while (len > 1 && path[len - 1] == '/')
        len--;
    if (!here || asprintf(&r->prefix, "%s%s%.*s", here, *here ? "/" : "", (int)len, path) < 0) {
        r->prefix = NULL;
        return op_fail(op, -ENOMEM, "out of memory");
    }
    char *id = strrchr(r->prefix, '/');
    char *runs = id > r->prefix ? memrchr(r->prefix, '/', (size_t)(id - r->prefix)) : NULL;
    r->path = strdup(runs ? runs + 1 : "");
    if (!r->path)
        return op_fail(op, -ENOMEM, "out of memory");
    if (runs)
        *runs = '\0';
    return 0;
}

/* What is wrong in the file is printed; *ret_code is the exit code then. */
static int load_file(struct run *r, const char *file, struct op *op, int *ret_code)
{
    struct config_problems problems = {0};
    struct checked checked;
    int err = check_load(file, op, &problems, &checked);

    *ret_code = -1;
    if (err && err != -ENOMEM && problems.n)
        *ret_code = check_problems(file, &problems, false);
    if (!err) {
        SWAP(r->placed, checked.placed);
        checked_release(&checked);
    }
    config_problems_release(&problems);
    return err;
}

/* ---- the answer ---- */

/* The mountpoint as Horovod makes a URI of it: pathlib quotes it, DBFSLocalStore does not. */
static int make_uri(const struct run *r, struct buf *uri)
{
    int err = buf_adds(uri, "file://");

    if (err)
        return err;
    return r->dbfs ? buf_adds(uri, r->prefix)
                   : uri_encode(uri, r->prefix, strlen(r->prefix), true);
}

/* What is below the prefix is not quoted. */
static json_t *place(const char *uri, const char *path, const char *behind)
{
    auto_free char *text = NULL;

    if (asprintf(&text, "%s/%s%s", uri, path, behind) < 0) {
        text = NULL;
        return NULL;
    }
    return json_string(text); /* NULL, too, where it is no UTF-8 */
}

static json_t *dataset(const struct run *r, const char *uri, const char *name)
{
    auto_free char *index = NULL;

    if (r->dataset && asprintf(&index, ".%s", r->dataset) < 0) {
        index = NULL;
        return NULL;
    }
    return place(uri, name, index ? index : "");
}

static json_t *attrs(const struct run *r, const char *uri)
{
    return json_pack("{s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:s, s:s}", "train_data_path",
                     dataset(r, uri, "intermediate_train_data"), "val_data_path",
                     dataset(r, uri, "intermediate_val_data"), "test_data_path",
                     dataset(r, uri, "intermediate_test_data"), "saving_runs", (int)r->saving,
                     "runs_path", place(uri, "runs", ""), "run_path", place(uri, r->path, ""),
                     "checkpoint_path", r->saving ? place(uri, r->path, "") : json_null(),
                     "logs_path", r->saving ? place(uri, r->path, "/logs") : json_null(),
                     "checkpoint_filename", r->dbfs ? "checkpoint.tf" : "checkpoint",
                     "logs_subdir", "logs");
}

static int check_all(struct run *r, struct op *op)
{
    static const char *const places[] = {"intermediate_train_data", "intermediate_val_data",
                                         "intermediate_test_data"};
    int err = check_run(r, op);

    if (!err)
        err = check_layout(r, op);
    for (size_t i = 0; i < ARRAY_SIZE(places) && !err; i++)
        err = check_place(r, places[i], op);
    return err;
}

static int print(const struct run *r)
{
    auto_buf struct buf uri = BUF_INIT(URI_MAX);
    auto_json json_t *j = make_uri(r, &uri) ? NULL : attrs(r, uri.data);

    return j ? command_answer_json(j)
             : command_failed("the mountpoint or the run is no UTF-8, which JSON needs");
}

int command_paths(const struct command *self, int argc, char **argv)
{
    struct run r = {0};
    const char *file = NULL;
    const struct argument table[] = {
        {.name = "--config", .text = &file}, {.name = "--dataset", .text = &r.dataset}, {0}};
    int n, err, code = arguments_parse(self, table, argc, argv, &n), told = -1;
    struct op op;

    if (code >= 0)
        return code;
    if (n != 1)
        return command_misused(self, "paths needs one run");
    if (r.dataset && (!*r.dataset || r.dataset[strspn(r.dataset, "0123456789")]))
        return command_misused(self,
                               "--dataset takes a number, as Horovod counts its data sets");
    op_init(&op, OP_FOREVER);
    if (file) {
        err = load_file(&r, file, &op, &told);
        if (!err)
            err = split_path(&r, argv[1], &op);
    } else {
        err = find_mounted(&r, argv[1], &op);
    }
    if (!err)
        err = check_all(&r, &op);
    if (!err)
        code = print(&r);
    else
        code = told >= 0 ? told : command_failed_by(err, "%s: %s", argv[1], op.why);
    run_release(&r);
    return code;
}
