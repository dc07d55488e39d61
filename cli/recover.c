/* runfs recover: what a cache directory without a mount still owes its store. */
#include "cache/mirror/door.h"
#include "cache/offline.h"
#include "cli/arguments.h"
#include "cli/caches.h"
#include "cli/identity.h"
#include "cli/open_store.h"
#include "cli/progress.h"
#include "common/log.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

struct recovery {
    const char *dir;
    struct mount_options options; /* those given with -o */
    struct store *store;
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

/* What the last mount said, what the identity says, what -o says: later ones win. */
static int merge_options(struct recovery *r, const struct settings *identity, struct op *op,
                         struct settings *ret)
{
    const struct settings *more[] = {identity, &r->options.store};
    auto_close int dir_fd = -1;
    int err = door_open(r->dir, DOOR_CACHE, op, &dir_fd, NULL);

    if (!err)
        err = identity_load_options(dir_fd, op, ret);
    for (size_t i = 0; i < ARRAY_SIZE(more) && !err; i++)
        for (size_t j = 0; j < more[i]->n && !err; j++)
            err = settings_add(ret, more[i]->items[j].name, more[i]->items[j].value);
    return err;
}

static int open_all(struct recovery *r, struct op *op)
{
    auto_free char *identity = NULL;
    auto_free char *url = NULL;
    struct settings from_identity = {0}, settings = {0};
    int err = recover_identity(r->dir, op, &identity);

    if (!err)
        err = identity_parse(identity, op, &url, &from_identity);
    if (!err)
        err = merge_options(r, &from_identity, op, &settings);
    if (!err)
        err = open_store(url, &settings, &r->options, op, &r->store);
    if (!err) {
        r->options.cache.dir = r->dir;
        r->options.cache.identity = identity;
        r->options.cache.mountpoint = "(recover)";
        op->deadline_ns = OP_FOREVER;
        err = cache_new(&r->options.cache, r->store, op, &r->cache);
    }
    settings_release(&from_identity);
    settings_release(&settings);
    return err;
}

static int upload(struct recovery *r, struct op *op)
{
    struct progress progress;
    struct cache_stats s;
    int err;

    progress_init(&progress, "uploading");
    progress.store = r->store;
    err = cache_flush_path(r->cache, "", CACHE_FLUSH_STAGED, op, progress_update, &progress);
    progress_end(&progress);
    cache_get_stats(r->cache, &s);
    if (!err && !s.dirty_files && !s.pending_ops && !s.kept_files) {
        command_say("everything is in %s", r->store->url);
        return EXIT_OK;
    }
    (void)command_failed("not everything is in %s: %s", r->store->url,
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
    store_close(r->store);
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
