/* The daemon's end of the control socket: answers `runfs status`, flush, fetch, pin and umount.
 */
#ifndef RUNFS_CLI_CONTROL_SERVER_H
#define RUNFS_CLI_CONTROL_SERVER_H

#include "common/op.h"

#include <jansson.h>

struct cache;
struct control_server;
struct status_doc;

/* Listens on `control` in the cache directory, of which dir_fd is from door_open(), and which
 * the caller has locked: what lies there is left over. Only the daemon's own user and root are
 * answered. Everything is borrowed. */
int control_server_start(int dir_fd, struct cache *cache, struct status_doc *status,
                         struct op *op, struct control_server **ret);

/* Tells those who have paths locked that their locks end, by the end of their connections. To
 * be called before the locks end: who hears of no end may rely on its lock. Accepts NULL. */
void control_server_end_locks(struct control_server *s);

/* Ends what still runs, answers those who wait for the daemon's end with `last`, removes the
 * socket and frees the server. Accepts NULL. */
void control_server_stop(struct control_server *s, const json_t *last);

#endif
