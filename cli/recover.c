/* runfs recover: what a cache directory without a mount still owes its store. */
#include "cache/mirror/door.h"
#include "cache/offline.h"
#include "cli/arguments.h"
#include "cli/caches.h"
#include "cli/configured.h"
#include "cli/kept_config.h"
#include "cli/progress.h"
#include "common/log.h"
#include "common/mem.h"
#include "runs/policy_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct recovery {
    const char *dir;
    struct mount_options options; /* those given with -o */
    char *identity, *title;       /* heap */
    struct config config;
    struct open_stores stores;
    struct cache *cache;
    unsigned seen;
};

static int print_pending(void *arg, const struct cache_pending *p)
{
    struct recovery *r = arg;

    command_print_pending(p);
    r->seen++;
    return 0;
}

static int list(struct recovery *r)
{
    struct op op;
    int err;

    op_init(&op, OP_FOREVER);
    err = recover_list(r->dir, &op, print_pending, r);
    if (err)
        return command_failed_by(err, "%s", op.why);
    if (r->seen == 0)
        (void)printf("%s owes its store nothing\n", r->dir);
    return EXIT_OK;
}

static int export(struct recovery *r, const char *to)
{
    struct op op;
    int err;

    op_init(&op, OP_FOREVER);
    err = recover_export(r->dir, to, &op, print_pending, r);
    if (err)
        return command_failed_by(err, "%s", op.why);
    (void)printf("%u copied to %s\n", r->seen, to);
    return EXIT_OK;
}

/* What -o says comes over what the last mount had. */
static int add_options(struct recovery *r, struct op *op)
{
    const struct settings *given = &r->options.store;

    if (given->n && r->config.n_stores > 1)
        return op_fail(op, -EINVAL,
                       "option %s is one store's, and the cache %s has %zu: mount it with a "
                       "configuration that has the option where it belongs",
                       given->items[0].name, r->dir, r->config.n_stores);
    for (size_t i = 0; i < given->n; i++)
        if (settings_add(&r->config.stores[0].settings, given->items[i].name,
                         given->items[i].value))
            return op_fail(op, -ENOMEM, "out of memory");
    return 0;
}

/* Routes and policies that the last mount had stay as they were. */
static int add_policy_fields(struct recovery *r, struct op *op)
{
    const struct settings *given = &r->options.policy;

    const bool plain = configured_is_plain(&r->config);
    int err = plain ? config_policy_options(&r->config, given, op) : 0;

    if (plain && !err && r->config.routes.items[0].scratch)
        return op_fail(op, -EINVAL,
                       "option upload=never: then nothing would be published; leave it out");
    if (given->n == 0 || plain)
        return err;
    return op_fail(op, -EINVAL,
                   "option %s=%.60s: the cache %s has a policy of its own: publish without it, "
                   "or mount it with a configuration whose policy says that",
                   given->items[0].name, given->items[0].value, r->dir);
}

static int load_config(struct recovery *r, struct op *op)
{
    struct identity identity;
    auto_close int dir_fd = -1;
    int err = recover_identity(r->dir, op, &r->identity);

    if (!err)
        err = identity_parse(r->identity, op, &identity);
    if (err)
        return err;
    r->title = take_ptr(identity.title);
    err = door_open(r->dir, DOOR_CACHE, op, &dir_fd, NULL);
    if (!err)
        err = kept_config_load(dir_fd, r->dir, &identity, op, &r->config);
    identity_release(&identity);
    if (!err)
        err = add_options(r, op);
    return err ? err : add_policy_fields(r, op);
}

/* Elsewhere files would be published, and removed, that nobody meant; who names an endpoint on
 * the command line means it. */
static int check_place(const struct recovery *r, struct op *op)
{
    const char *endpoint = settings_get(&r->options.store, "endpoint");
    auto_free char *opened = identity_of(&r->config, &r->stores);
    auto_free char *words = NULL;

    if (!opened)
        return op_fail(op, -ENOMEM, "out of memory");
    if ((endpoint && *endpoint) || strcmp(opened, r->identity) == 0)
        return 0;
    words = identity_difference(r->identity, opened, "what was opened");
    return op_fail(
        op, -EEXIST,
        "nothing is published: %.160s; put it back there, or say by -o endpoint=URL where one "
        "store is (endpoint=aws: AWS itself), or copy out with --export DIR",
        words ? words : "other stores than the cache's were opened");
}

static int open_all(struct recovery *r, struct op *op)
{
    int err = load_config(r, op);

    if (!err)
        err = open_stores(&r->config, &r->options, op, &r->stores);
    if (!err)
        err = check_place(r, op);
    if (!err) {
        r->options.cache.dir = r->dir;
        r->options.cache.identity = r->identity;
        r->options.cache.mountpoint = "(recover)";
        open_stores_tell(&r->stores, &r->config, &r->options.cache);
        op->deadline_ns = OP_FOREVER;
        err = cache_new(&r->options.cache, r->stores.top, op, &r->cache);
    }
    return err;
}

static int upload(struct recovery *r, struct op *op)
{
    struct progress progress;
    struct cache_stats s;
    int err;

    progress_init(&progress, "uploading");
    progress.store = r->stores.top;
    err = cache_flush_path(r->cache, "", CACHE_FLUSH_STAGED, op, progress_update, &progress);
    progress_end(&progress);
    cache_get_stats(r->cache, &s);
    if (!err && !s.dirty_files && !s.pending_ops && !s.kept_files) {
        command_say("everything is in %s", r->title);
        return EXIT_OK;
    }
    (void)command_failed("not everything is in %s: %s", r->title,
                         err ? op->why : "some content was kept on purpose");
    (void)cache_each_pending(r->cache, print_pending, r);
    return err ? (int)command_exit_code_of_wait(err) : EXIT_NOT_YET;
}

static int publish(struct recovery *r)
{
    struct op op;
    int code, err;

    op_init(&op, OP_FOREVER);
    log_set_level(LOG_LEVEL_WARN);
    err = open_all(r, &op);
    code = err ? command_failed_by(err, "%s", op.why) : upload(r, &op);
    if (r->cache)
        cache_stop(r->cache);
    cache_free(r->cache);
    open_stores_close(&r->stores);
    config_release(&r->config);
    free(r->identity);
    free(r->title);
    return code;
}

int command_recover(const struct command *self, int argc, char **argv)
{
    bool do_list = false, do_publish = false;
    const char *export_to = NULL, *options = NULL;
    const struct argument table[] = {{.name = "--list", .flag = &do_list},
                                     {.name = "--publish", .flag = &do_publish},
                                     {.name = "--export", .text = &export_to},
                                     {.name = "-o", .text = &options},
                                     {0}};
    struct recovery r = {0};
    auto_free char *dir = NULL;
    struct op op;
    int n, err, code = arguments_parse(self, table, argc, argv, &n);

    if (code >= 0)
        return code;
    if (n != 1)
        return command_misused(self, "recover needs one cache directory, mountpoint or store");
    if (do_list + do_publish + (export_to != NULL) > 1)
        return command_misused(self, "--list, --publish and --export exclude each other");
    op_init(&op, OP_FOREVER);
    err = caches_find(argv[1], &op, &dir);
    if (err)
        return command_failed_by(err, "%s", op.why);
    r.dir = dir;
    mount_options_init(&r.options);
    if (options && mount_options_parse(&r.options, options, &op))
        code = command_misused(self, "%s", op.why);
    else if (do_publish)
        code = publish(&r);
    else
        code = export_to ? export(&r, export_to) : list(&r);
    mount_options_release(&r.options);
    return code;
}
