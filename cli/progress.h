/* How far a transfer is, on stderr: a bar on a terminal, else a line now and then. */
#ifndef RUNFS_CLI_PROGRESS_H
#define RUNFS_CLI_PROGRESS_H

#include "backends/store.h"
#include "cli/client.h"

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* "uploading"; borrowed */
    bool terminal;
    bool shown; /* a bar stands on the terminal's last line */
    int64_t started_ns, printed_ns;
    int64_t trouble_ns;  /* since when uploads fail, 0 while they don't */
    char error[256];     /* the trouble that was shown last */
    int64_t deadline_ns; /* of the wait; OP_FOREVER without one */
    struct store *store; /* of a transfer of this process, borrowed; else NULL */
    bool stalled;        /* the store stalls, and the user was told */
};

void progress_init(struct progress *p, const char *what);
/* A client_progress; `arg` is the struct progress. */
void progress_step(void *arg, const struct client_step *step);
/* The same for a transfer of this process; a progress function of the cache. */
void progress_update(void *arg, uint64_t done_bytes, uint64_t total_bytes);
/* A client_progress that tells only of a store that stalls, once when that begins. */
void progress_stall(void *arg, const struct client_step *step);
/* Removes the bar. */
void progress_end(struct progress *p);

#endif
