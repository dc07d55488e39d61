/* The status document, printed for people. */
#ifndef RUNFS_CLI_REPORT_H
#define RUNFS_CLI_REPORT_H

#include <jansson.h>

/* The table: store, state, queue, rates, cache use, last error. */
void report_status(const json_t *status);
/* One line for each entry of "files". */
void report_files(const json_t *status);

#endif
