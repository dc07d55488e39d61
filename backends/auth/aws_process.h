/* Keys from a program (credential_process in a profile). Any thread. */
#ifndef RUNFS_BACKENDS_AUTH_AWS_PROCESS_H
#define RUNFS_BACKENDS_AUTH_AWS_PROCESS_H

#include "backends/auth/aws_keys.h"

#include <stddef.h>

/* Takes a command line apart as a shell would: blanks, quotes, backslashes; nothing is
 * expanded. *ret is a NULL-terminated heap array of heap strings. -EINVAL for an open quote or
 * no word. */
int aws_split_command(const char *line, char ***ret);
void aws_free_command(char **words);

/* Runs the command without a shell, at most a minute, and takes the keys out of what it prints.
 * -EACCES with a text when it fails. What it says on stderr is shown to nobody. */
int aws_fetch_process(const char *command, struct op *op, struct aws_keys *ret);

#endif
