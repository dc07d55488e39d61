/* What the commands share: messages and help. */
#include "cli/command.h"

#include "cli/redact.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/printable.h"
#include "common/units.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum exit_code command_exit_code(int err)
{
    switch (err) {
    case -EBUSY:
        return EXIT_BUSY;
    case -ENOENT:
    case -ENXIO:    /* what both kinds of store say when the whole is missing */
    case -ENODEV:   /* no mount of runfs there */
    case -ENOTCONN: /* a mount without its runfs */
        return EXIT_NOT_FOUND;
    case -EACCES:
    case -EPERM:
        return EXIT_REFUSED;
    default:
        return err_is_network(err) ? EXIT_NETWORK : EXIT_FAILED;
    }
}

enum exit_code command_exit_code_of_wait(int err)
{
    enum exit_code code = command_exit_code(err);

    /* The time that was given is over, a writer goes on, an upload fails. */
    if (err == -ETIMEDOUT || code == EXIT_FAILED || code == EXIT_BUSY)
        return EXIT_NOT_YET;
    return code;
}

void command_print_exit_codes(void)
{
    (void)printf("Exit codes: 0 done, 1 failed for another cause than these, 2 wrong command "
                 "line, 3 not\n"
                 "everything is in the store yet, 4 busy (a process uses the mount, a mount "
                 "or a command\n"
                 "has the cache), 5 not found (bucket, path, mount, cache), 6 refused "
                 "(credentials,\n"
                 "permission), 7 the store can't be reached. One line on stderr says why.\n");
}

void command_help(const struct command *c)
{
    (void)printf("Usage: runfs %s %s\n\n%s.\n", c->name, c->usage, c->line);
    if (*c->help)
        (void)printf("\n%s", c->help);
    (void)putchar('\n');
    command_print_exit_codes();
}

/* A line stays a line whatever is in it, and has no secret of a URL. */
static void print_line(const char *fmt, va_list ap)
{
    char text[2048];

    (void)vsnprintf(text, sizeof(text), fmt, ap);
    auto_free char *shown = redact_words(text);
    (void)fputs("runfs: ", stderr);
    printable_print(stderr, shown ? shown : "out of memory");
    (void)fputc('\n', stderr);
}

int command_failed(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    print_line(fmt, ap);
    va_end(ap);
    return EXIT_FAILED;
}

int command_failed_by(int err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    print_line(fmt, ap);
    va_end(ap);
    return (int)command_exit_code(err);
}

void command_say(const char *fmt, ...)
{
    auto_free char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    printable_print(stdout, text ? text : "(out of memory)");
    (void)putchar('\n');
}

static int end_answer(void)
{
    (void)putchar('\n');
    return fflush(stdout) == 0 ? EXIT_OK : command_failed("cannot write the answer");
}

int command_answer(const char *text)
{
    if (isatty(STDOUT_FILENO))
        printable_print(stdout, text);
    else
        (void)fputs(text, stdout);
    return end_answer();
}

int command_answer_json(const json_t *document)
{
    if (!document || json_dumpf(document, stdout, JSON_ENSURE_ASCII | JSON_INDENT(2)))
        return command_failed("cannot write the answer");
    return end_answer();
}

int command_misused(const struct command *c, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    (void)command_failed("%s (see `runfs %s --help`)", text, c->name);
    return EXIT_USAGE;
}

/* The daemon's word, which another user's daemon may choose. */
static void print_column(const char *text, int width)
{
    printable_print(stdout, text);
    (void)printf("%*s ", width > (int)strlen(text) ? width - (int)strlen(text) : 0, "");
}

void command_print_pending(const struct cache_pending *p)
{
    char size[FORMAT_SIZE_MAX];

    print_column(p->state, 9);
    print_column(p->kind, 8);
    (void)printf("%10s  ", format_size(size, p->bytes));
    printable_print(stdout, p->path);
    if (p->path2) {
        (void)fputs(" -> ", stdout);
        printable_print(stdout, p->path2);
    }
    if (p->routed.store) {
        (void)fputs("  [", stdout);
        printable_print(stdout, p->routed.store);
        (void)putchar(']');
    }
    if (p->error) {
        (void)fputs("  (", stdout);
        printable_print(stdout, p->error);
        (void)putchar(')');
    }
    (void)putchar('\n');
}
