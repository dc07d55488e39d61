/* The commands' end of the control socket. One thread. */
#ifndef RUNFS_CLI_CLIENT_H
#define RUNFS_CLI_CLIENT_H

#include "cli/control_io.h"
#include "common/op.h"

#include <stdint.h>
#include <sys/types.h>

struct client {
    int fd;
    pid_t pid;        /* the daemon */
    char *rel;        /* the path below the mount's root, "" for the root; heap */
    char *mountpoint; /* NULL when the path was a cache directory; heap */
    struct control_reader reader;
};

/* Connects to the daemon that serves `path`: a path on a mount, or a cache directory in use
 * (also after its mount is gone). Only the owner of the mount or of the directory is taken for
 * it: -EPERM when somebody else listens there. Root finds the daemon of another user's mount
 * without asking the mount. -EACCES: only the mount's owner and root may. -ENOTCONN when the
 * daemon died. */
int client_open(const char *path, struct op *op, struct client *ret);
/* The cache directory that a mount tells of: the folder of its socket. Heap. Only a mount of
 * the caller's own may be asked: another user's could keep it waiting. -ENOTCONN when its
 * daemon died. */
int client_cache_dir(const char *mountpoint, struct op *op, char **ret);
/* Of the daemon's process, for poll(); -1 when it is gone. The caller closes it. */
int client_pidfd(const struct client *c);
/* Accepts one that was never opened but zeroed. */
void client_close(struct client *c);

struct client_step {
    uint64_t done_bytes, total_bytes;
    uint64_t files;        /* not in the store yet, of the whole mount */
    const char *error;     /* while uploads fail and are tried again, else NULL */
    const char *store;     /* its URL, with `stalled` */
    const json_t *stalled; /* while the store stalls (stall_doc.h), else NULL */
    const json_t *found;   /* what a verification found (verify_answer.c), and all else is 0;
                              NULL: it tells how far the request is */
};
typedef void (*client_progress)(void *arg, const struct client_step *step);

/* Sends the request (which it consumes; NULL is out of memory) and blocks for the answer, which
 * is the caller's. A refusal is its errno with the daemon's reason in op->why, and its answer
 * is the caller's as well. -EPIPE when the daemon went away before it answered. `progress`
 * may be NULL. */
int client_call(struct client *c, json_t *request, client_progress progress, void *arg,
                struct op *op, json_t **ret);

/* The request "wait" in two steps: once the first returned 0 the daemon's last word will come,
 * however soon it ends; the second blocks for it, or until op's deadline: -ETIMEDOUT. */
int client_ask_wait(struct client *c, struct op *op);
int client_wait(struct client *c, client_progress progress, void *arg, struct op *op,
                json_t **ret);

#endif
