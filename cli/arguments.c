/* A small option parser: names the nearest known option, which getopt_long() does not. */
#include "cli/arguments.h"

#include "common/nearest.h"
#include "common/units.h"

#include <string.h>

static const struct argument *find_argument(const struct argument *table, const char *name,
                                            size_t len)
{
    for (; table->name; table++)
        if (strlen(table->name) == len && strncmp(table->name, name, len) == 0)
            return table;
    return NULL;
}

static int unknown(const struct command *self, const struct argument *table, const char *name,
                   size_t len)
{
    char word[64];
    struct nearest n;

    if (len >= sizeof(word))
        len = sizeof(word) - 1;
    memcpy(word, name, len);
    word[len] = '\0';
    nearest_init(&n, word);
    for (; table->name; table++)
        nearest_try(&n, table->name);
    nearest_try(&n, "--help");
    if (n.best)
        return command_misused(self, "unknown option %s, did you mean %s?", word, n.best);
    return command_misused(self, "unknown option %s", word);
}

static int set_value(const struct command *self, const struct argument *a, const char *value)
{
    if (a->time_ns) {
        if (parse_time(value, a->time_ns))
            return command_misused(self, "%s %s: expected a time such as 30, 250ms or 5m",
                                   a->name, value);
    } else {
        *a->text = value;
    }
    return -1;
}

/* One option at argv[*i]; advances *i over a value that stands alone. */
static int parse_option(const struct command *self, const struct argument *table, int argc,
                        char **argv, int *i)
{
    const char *arg = argv[*i];
    bool is_long = arg[1] == '-';
    size_t len = is_long ? strcspn(arg, "=") : 2;
    const struct argument *a = find_argument(table, arg, len);
    const char *value = NULL;

    if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
        command_help(self);
        return EXIT_OK;
    }
    if (!a)
        return unknown(self, table, arg, len);
    if (arg[len])
        value = arg + len + is_long;
    if (a->flag) {
        if (value)
            return command_misused(self, "%s takes no value", a->name);
        *a->flag = true;
        return -1;
    }
    if (!value && *i + 1 < argc)
        value = argv[++*i];
    if (!value)
        return command_misused(self, "%s needs a value", a->name);
    return set_value(self, a, value);
}

int arguments_parse(const struct command *self, const struct argument *table, int argc,
                    char **argv, int *ret_n)
{
    bool options = true;
    int n = 0;

    for (int i = 1; i < argc; i++) {
        int code;

        if (!options || argv[i][0] != '-' || !argv[i][1]) {
            argv[++n] = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--") == 0) {
            options = false;
            continue;
        }
        code = parse_option(self, table, argc, argv, &i);
        if (code >= 0)
            return code;
    }
    *ret_n = n;
    return -1;
}
