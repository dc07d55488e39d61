/* The process that serves one mount, from opening the store to the last upload after the
 * unmount. */
#ifndef RUNFS_CLI_SERVE_H
#define RUNFS_CLI_SERVE_H

#include "cli/options.h"
#include "runs/config.h"

/* What to mount where. */
struct serve_request {
    struct mount_options options;
    struct config config; /* the stores, and what lies in which */
    char *mountpoint;     /* absolute; heap */
    char *given;          /* the options as they were given, for a remount; heap */
    bool taken_over;      /* the mountpoint was a dead runfs's until now; for the log */
};

/* Mounts, and serves until the mount is gone and everything is in the store (or drain_timeout
 * is over). `ready_fd` is daemon_fork()'s, -1 to stay in the foreground with the log on stderr.
 * A failure before the mount is usable is one line on stderr. Returns an exit code: 0 only when
 * the store has everything. Takes over the process's signals. */
int serve_mount(struct serve_request *request, int ready_fd);

#endif
