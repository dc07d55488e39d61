/* The command line of one command: options with their values, and what is left. */
#ifndef RUNFS_CLI_ARGUMENTS_H
#define RUNFS_CLI_ARGUMENTS_H

#include "cli/command.h"

#include <stdbool.h>
#include <stdint.h>

/* One option of a command; a table of these ends with an empty one. */
struct argument {
    const char *name;  /* "--timeout" or "-f" */
    bool *flag;        /* set when it is there; NULL when it takes a value */
    int64_t *time_ns;  /* the value as a time */
    const char **text; /* the value as it is; borrowed from argv */
};

/* Reads options anywhere before "--" and moves what is left to argv[1...]; its count goes to
 * *ret_n. Returns -1 to go on, else an exit code: --help was asked for and printed, or the line
 * was wrong and the message is out. */
int arguments_parse(const struct command *self, const struct argument *table, int argc,
                    char **argv, int *ret_n);

#endif
