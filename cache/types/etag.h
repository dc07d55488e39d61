/* An etag as it is kept for each known name: most are some hex digits, with or without a number
 * of parts behind them, and take 16 bytes then. Any thread; no I/O. */
#ifndef RUNFS_CACHE_ETAG_H
#define RUNFS_CACHE_ETAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ETAG_TEXT_MAX 40 /* bytes of what is not kept as text, with the NUL */

/* All zero: none is known. Of alignment 1, and packed without gaps. */
struct etag {
    unsigned char kind;     /* enum etag_kind of etag.c */
    unsigned char parts[2]; /* 0: no number of parts */
    unsigned char bytes[16];
};

/* An empty one is known, too: a version of which the store told no etag. */
bool etag_known(const struct etag *t);
/* NULL when none is known; valid until it is set or cleared, and as long as `buf`. */
const char *etag_text(const struct etag *t, char buf[ETAG_TEXT_MAX]);
/* Heap; NULL when none is known, or without memory. */
char *etag_dup(const struct etag *t);
/* False when none is known. */
bool etag_is(const struct etag *t, const char *text);
/* Replaces it; with NULL, and without memory, none is known then. */
void etag_set(struct etag *t, const char *text);
void etag_clear(struct etag *t);
/* Hands it on: none is known in `from` then. `to` had none. */
void etag_move(struct etag *to, struct etag *from);

#endif
