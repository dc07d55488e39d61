/* What the commands share: messages and help. */
#include "cli/command.h"

#include "common/mem.h"
#include "common/printable.h"
#include "common/units.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void command_help(const struct command *c)
{
    (void)printf("Usage: runfs %s %s\n\n%s.\n", c->name, c->usage, c->line);
    if (*c->help)
        (void)printf("\n%s", c->help);
    (void)printf("\nExit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong "
                 "command line.\n");
}

/* A line stays a line whatever is in it. */
static void print_line(const char *fmt, va_list ap)
{
    char text[2048];

    (void)vsnprintf(text, sizeof(text), fmt, ap);
    (void)fputs("runfs: ", stderr);
    printable_print(stderr, text);
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
    if (p->error) {
        (void)fputs("  (", stdout);
        printable_print(stdout, p->error);
        (void)putchar(')');
    }
    (void)putchar('\n');
}
