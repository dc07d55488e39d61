/* runfs mount: the command line, and the form that mount(8) uses. */
#include "cli/command.h"
#include "cli/configured.h"
#include "cli/daemon.h"
#include "cli/mountpoint.h"
#include "cli/remount.h"
#include "cli/serve.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* See EXIT STATUS in mount(8). */
enum { MOUNT8_USAGE = 1, MOUNT8_FAILED = 32 };

static int parse_spec(struct serve_request *r, const char *spec, const char *list,
                      struct op *op)
{
    int err = configured(spec, list, &r->options, op, &r->config);

    if (err)
        return err;
    r->given = strdup(list ? list : "");
    return r->given ? 0 : op_fail(op, -ENOMEM, "out of memory");
}

static void request_release(struct serve_request *r)
{
    mount_options_release(&r->options);
    config_release(&r->config);
    free(r->mountpoint);
    free(r->given);
}

static int mount_spec(const struct command *self, const char *spec, const char *dir,
                      const char *list, bool foreground)
{
    struct serve_request request = {0};
    int code, err, ready_fd = -1;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (remount_is_asked(list)) {
        err = remount(dir, list, &op);
        return err ? command_failed_by(err, "%s", op.why) : EXIT_OK;
    }
    mount_options_init(&request.options);
    if (parse_spec(&request, spec, list, &op)) {
        if (!self)
            (void)command_failed("%s", op.why);
        code = self ? command_misused(self, "%s", op.why) : EXIT_USAGE;
    } else if ((err = mountpoint_prepare(dir, &op, &request.mountpoint, &request.taken_over))) {
        code = command_failed_by(err, "%s", op.why);
    } else if (!foreground && (ready_fd = daemon_fork()) < 0) {
        code = command_failed("cannot start a process: %s", strerror(errno));
    } else {
        code = serve_mount(&request, ready_fd);
    }
    request_release(&request);
    return code;
}

/* Joins the values of several -o. */
static int add_list(struct buf *list, const char *more)
{
    return more ? buf_addf(list, "%s%s", list->len ? "," : "", more) : 0;
}

int command_mount(const struct command *self, int argc, char **argv)
{
    auto_buf struct buf list = BUF_INIT(65536);
    bool foreground = false, help = false;
    const char *words[3];
    int n = 0;

    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];

        if (strcmp(arg, "-f") == 0) {
            foreground = true;
        } else if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            help = true;
        } else if (strncmp(arg, "-o", 2) == 0) {
            if (!arg[2] && ++i == argc)
                return command_misused(self, "-o needs options");
            if (add_list(&list, arg[2] ? arg + 2 : argv[i]))
                return command_misused(self, "the options are too long");
        } else if (arg[0] == '-' && arg[1]) {
            return command_misused(self, "unknown option %s, known are -f, -o and --help", arg);
        } else if (n < 2) {
            words[n++] = arg;
        } else {
            return command_misused(self, "mount takes a store and a mountpoint, not also %s",
                                   arg);
        }
    }
    if (help) {
        command_help(self);
        (void)printf("\nOptions of -o, later ones win:\n");
        mount_options_help();
        return EXIT_OK;
    }
    if (n != 2)
        return command_misused(self, "mount needs a store (or a CONFIG.json) and a mountpoint");
    return mount_spec(self, words[0], words[1], list.data, foreground);
}

/* fuse3's own helper asks for "dev" and "suid" unless they were switched off, so that from it
 * they say nothing. */
static int add_filtered(struct buf *list, const char *more)
{
    for (const char *end; *more; more = *end ? end + 1 : end) {
        size_t len;

        for (end = more; *end && *end != ','; end++)
            if (*end == '\\' && end[1])
                end++;
        len = (size_t)(end - more);
        if ((len == 3 && memcmp(more, "dev", 3) == 0) ||
            (len == 4 && memcmp(more, "suid", 4) == 0))
            continue;
        if ((list->len && buf_addc(list, ',')) || buf_add(list, more, len))
            return -EFBIG;
    }
    return 0;
}

/* mount -f: all but the mount itself. */
static int check_spec(const char *spec, const char *list)
{
    struct serve_request request = {0};
    struct op op;
    int err;

    op_init(&op, OP_FOREVER);
    if (remount_is_asked(list))
        return EXIT_OK;
    mount_options_init(&request.options);
    err = parse_spec(&request, spec, list, &op);
    request_release(&request);
    if (err)
        (void)command_failed("%s", op.why);
    return err ? EXIT_USAGE : EXIT_OK;
}

static int run_helper(int argc, char **argv, bool by_mount8)
{
    auto_buf struct buf list = BUF_INIT(65536);
    bool foreground = false, fake = false;

    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc) {
            if (by_mount8 ? add_list(&list, argv[++i]) : add_filtered(&list, argv[++i])) {
                (void)command_failed("the options are too long");
                return EXIT_USAGE;
            }
        } else if (strcmp(argv[i], "-t") == 0 && i + 1 < argc) {
            i++; /* the type: what made mount(8) call us */
        } else if (by_mount8 && strcmp(argv[i], "-f") == 0) {
            fake = true;
        } else if (strcmp(argv[i], "-f") == 0) {
            foreground = true;
        } else if (argv[i][0] != '-' || strspn(argv[i] + 1, "snv") != strlen(argv[i] + 1)) {
            (void)command_failed("unknown argument %s after the mountpoint", argv[i]);
            return EXIT_USAGE;
        }
    }
    return fake ? check_spec(argv[1], list.data)
                : mount_spec(NULL, argv[1], argv[2], list.data, foreground);
}

/* mount(8) hands on what its helper ends with, and documents these. A daemon's first process
 * ends with the code of the other, which comes by here, too. */
int command_mount_helper(int argc, char **argv, bool by_mount8)
{
    int code = run_helper(argc, argv, by_mount8);

    return code == EXIT_OK ? EXIT_OK : code == EXIT_USAGE ? MOUNT8_USAGE : MOUNT8_FAILED;
}
