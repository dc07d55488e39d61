/* The status document, printed for people. */
#ifndef RUNFS_CLI_REPORT_H
#define RUNFS_CLI_REPORT_H

#include "cli/command.h"

#include <jansson.h>
#include <stdint.h>

/* The table: store, state, queue, rates, cache use, last error; and where the path goes by
 * which the mount was named. */
void report_status(const json_t *status);
/* What a path tells any user who may read it (cli/bystander.h). */
void report_path(const json_t *status);
/* One line for each entry of "files". */
void report_files(const json_t *status);
/* "a, b, c and 4 more" of a list of names in an answer that is `n` names long. Heap; NULL
 * without memory. */
char *report_names(const json_t *answer, const char *field, uint64_t n);

/* What follows the reason where one waited in vain: "; " and how the store stalls, and what is
 * left, where that is and what to do. Of the answer to a flush or fetch that failed (NULL: none
 * came). `mountpoint` may be NULL. Heap; NULL: there is nothing to say. */
char *report_vain(const json_t *answer, const char *mountpoint);
/* The exit code for the same answer, which failed with `err`: not yet, where the store is only
 * slow or refuses; network where no request ever reached it. */
enum exit_code report_vain_code(int err, const json_t *answer);

#endif
