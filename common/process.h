/* Processes as /proc tells of them: which one a thread belongs to, whether it lives, what it
 * was started by. A number alone is another process's some time later; with its start time it
 * is not. Any thread; waits for no disk and no network. */
#ifndef RUNFS_COMMON_PROCESS_H
#define RUNFS_COMMON_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
    pid_t pid;      /* in our own pid namespace */
    uint64_t start; /* clock ticks after the boot */
    int pidfd;      /* -1: it is not watched */
};

/* The process that the thread (or process) `tid` belongs to, to be watched: process_release()
 * gives that back. *ret_own (or NULL) is its number in its own pid namespace, as its getpid()
 * says. -ESRCH: it is not there, or not in our namespace. */
int process_watch(pid_t tid, struct process *ret, pid_t *ret_own);
/* Whether one that is watched has not ended. */
bool process_lives(const struct process *p);
void process_release(struct process *p);
/* Its command line with spaces between the words, cut to `size`; "" when it can't be read. */
void process_command(pid_t pid, char *buf, size_t size);

/* A process and those it comes from: its parent, the parent of that, and so on. */
#define PROCESS_LINE_MAX 32
struct process_line {
    struct {
        pid_t pid;
        uint64_t start;
    } of[PROCESS_LINE_MAX]; /* itself first */
    size_t n;
};

/* Those of the process that `tid` belongs to; none when it can't be read. */
void process_line(pid_t tid, struct process_line *ret);
/* Whether the process is the first of the line; whether it is any of it. */
bool process_line_is(const struct process_line *line, const struct process *p);
bool process_line_has(const struct process_line *line, const struct process *p);

#endif
