/* The daemon's end of `runfs lock` and `runfs locks`: the requests "lock" and "locks" of the
 * control socket. */
#ifndef RUNFS_CLI_CONTROL_LOCKS_H
#define RUNFS_CLI_CONTROL_LOCKS_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cache;
struct connection;

/* How many connections may have locks at a time: others need some, too. */
#define CONTROL_LOCKS_MAX 128

/* Takes the locks that the client at `fd` asks for, answers, and gives them back when the
 * client is gone or the server stops: when `await_stop` returns true, which it does within some
 * ns in any case. 0, or a negative errno: the connection is at its end. */
int control_lock_paths(struct cache *cache, int fd, const json_t *request,
                       const atomic_bool *gone,
                       bool (*await_stop)(struct connection *c, int64_t ns),
                       struct connection *c);

/* Answers with the locks of a path, as docs/locks.md says. */
int control_list_locks(struct cache *cache, int fd, const char *path);

#endif
