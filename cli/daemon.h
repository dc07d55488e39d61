/* Becoming a daemon, and the signals that end one. One mount in a process. */
#ifndef RUNFS_CLI_DAEMON_H
#define RUNFS_CLI_DAEMON_H

#include <stdatomic.h>
#include <stdbool.h>

/* Before anything else: what the caller had open goes to no program that we start, and no core
 * dump of this process holds keys or content, unless RUNFS_CORE_DUMPS is set. */
void daemon_protect(void);

/* Forks. The child closes what the caller had open but for stdin, stdout and stderr, gets the
 * descriptor for daemon_ready() and goes on in the caller's terminal, where its messages are
 * seen. The parent never returns: it exits 0 once the child is ready, or with the child's exit
 * code. -1 when the fork failed. */
int daemon_fork(void);

/* Leaves the terminal and lets the parent exit with 0. */
void daemon_ready(int fd);

/* Signals are taken by a thread of their own from now on; call before any other thread starts.
 * The first SIGTERM or SIGINT sets *daemon_stop() and calls notify (from that thread); later
 * ones are only logged. SIGHUP, SIGPIPE and SIGXFSZ are ignored. 0 or a negative errno. */
int daemon_signals(void (*notify)(void *arg), void *arg);
/* Whether the end was asked for; lives as long as the process. */
const atomic_bool *daemon_stop(void);
/* notify is not called any more once this returned. */
void daemon_signals_end(void);

/* As root, and unless somebody chose already: among the last that the kernel kills for memory.
 */
void daemon_protect_from_oom(void);

#endif
