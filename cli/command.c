/* What the commands share: messages and help. */
#include "cli/command.h"

#include "common/units.h"

#include <ctype.h>
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
    for (const char *s = text; *s; s++) {
        if (iscntrl((unsigned char)*s))
            (void)fprintf(stderr, "\\x%02x", (unsigned char)*s);
        else
            (void)fputc(*s, stderr);
    }
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

static void print_path(const char *path)
{
    for (; *path; path++) {
        if (iscntrl((unsigned char)*path))
            (void)printf("\\x%02x", (unsigned char)*path);
        else
            (void)putchar(*path);
    }
}

void command_print_pending(const struct cache_pending *p)
{
    char size[FORMAT_SIZE_MAX];

    (void)printf("%-9s %-8s %10s  ", p->state, p->kind, format_size(size, p->bytes));
    print_path(p->path);
    if (p->path2) {
        (void)fputs(" -> ", stdout);
        print_path(p->path2);
    }
    if (p->error) {
        (void)fputs("  (", stdout);
        print_path(p->error);
        (void)putchar(')');
    }
    (void)putchar('\n');
}
