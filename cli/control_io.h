/* What `runfs` and its daemon say to each other: one JSON object a line over a Unix socket.
 *
 * Requests:  {"cmd": "status", "files": true}
 *            {"cmd": "flush" | "fetch", "path": P, "staged": bool, "timeout_ms": N}
 *            {"cmd": "pin" | "unpin", "path": P}
 *            {"cmd": "writers", "path": P} answers "paths": what may be mapped for writing
 * there
 *            {"cmd": "evict", "path": P} answers how many "files" and "bytes" went, and how
 * many files stay as "dirty", "pinned" or "used", of which "stay_names" has a few
 *            {"cmd": "stored", "path": P} answers whether the store has just that
 *            {"cmd": "wait"}     answered when the daemon has done all and is about to exit;
 * one empty progress says that it was heard
 *
 * Answers:   any number of {"progress": {"done": N, "total": N, "files": N, "error": "text",
 *            "store": URL, "stalled": {...}}}, the error only while an upload fails, the last
 *            two only while the store stalls, then one
 *            {"ok": true, ...} or {"ok": false, "errno": N, "error": "text"}; that of a flush
 * or fetch has "store", "stalled" and "cache_dir", too, and how much is "left", of which
 *            "names" has a few
 *
 * Paths are relative to the mount's root and percent-encoded, as names need not be UTF-8. */
#ifndef RUNFS_CLI_CONTROL_IO_H
#define RUNFS_CLI_CONTROL_IO_H

#include "common/buf.h"

#include <jansson.h>
#include <sys/un.h>

#define CONTROL_NAME "control"            /* the socket's name in the cache directory */
#define CONTROL_ATTR "user.runfs.control" /* of a mount's root: where the socket is */

/* Frees a json_t at the end of the block. */
static inline void json_cleanup(json_t **j)
{
    json_decref(*j);
}
#define auto_json __attribute__((cleanup(json_cleanup)))

/* Sends one message. 0 or a negative errno (-EPIPE when the other side is gone). */
int control_send(int fd, const json_t *message);

/* Takes messages apart; one thread. */
struct control_reader {
    int fd; /* borrowed */
    struct buf pending;
};
void control_reader_init(struct control_reader *r, int fd, size_t max_message);
void control_reader_release(struct control_reader *r);
/* Blocks for the next message. 0, -ENODATA at the end, -EPROTO for what is no JSON object,
 * -EFBIG, or another negative errno. */
int control_receive(struct control_reader *r, json_t **ret);

/* The address of `dir`'s control socket through a descriptor of the directory, so that the 108
 * bytes of sun_path suffice for any depth. */
void control_address(int dir_fd, struct sockaddr_un *ret);

/* Percent-encodes every byte but letters, digits and "/._-"; heap. */
char *control_encode_path(const char *path);
/* The reverse; -EINVAL for a bad escape, a NUL or a ".." component. Heap. */
int control_decode_path(const char *text, char **ret);

/* Bytes that need not be UTF-8 as a JSON text: what is not becomes U+FFFD. NULL: JSON's null.
 */
json_t *control_text(const char *bytes);

#endif
