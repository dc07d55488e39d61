/* Codecs: how a name of the mount is written as a name of a store, and back. RUNS: RFC 4648
 * base32 (upper case, padded), lower-case hex, and percent-encoding of all but [A-Za-z0-9._-].
 *
 * The bytes that a stored name stands for are shown as they are, but for "%", "/", bytes below
 * 0x20 and 0x7f, which a name of the mount has as "%XX" (upper case). The whole names ".", ".."
 * and ".runfs" have each byte so: "%2E", "%2E%2E", "%2E%72%75%6E%66%73". There is one spelling
 * of each: any other is none. No name is over PATH_NAME_MAX bytes on either side. Without a
 * codec a name is the same bytes on both sides. Any thread. */
#ifndef RUNFS_RUNS_CODEC_H
#define RUNFS_RUNS_CODEC_H

#include "common/buf.h"
#include "common/path.h"

#include <stddef.h>

enum codec { CODEC_NONE, CODEC_B32, CODEC_HEX, CODEC_PCT, CODEC_N };

/* "b32" ...; NULL for CODEC_NONE. */
const char *codec_name(enum codec c);
/* 0 or -ENOENT. */
int codec_by_name(const char *name, size_t len, enum codec *ret);

/* The stored form of a name of the mount, without a NUL. -EINVAL: no spelling of any name (not
 * canonical); -EILSEQ: `b32` of what is no UTF-8; -ENAMETOOLONG. Allocates nothing. */
int codec_write(enum codec c, const char *shown, size_t len, char ret_stored[PATH_NAME_MAX],
                size_t *ret_len);
/* The same, appended. -ENOMEM, -EFBIG too. `stored` is unchanged on failure. */
int codec_encode(enum codec c, const char *shown, size_t len, struct buf *stored);
/* Appends the name of the mount. -ENOENT: the stored name is not the encoding of what it
 * decodes to, or of nothing that could be a name here; -ENOMEM. */
int codec_decode(enum codec c, const char *stored, size_t len, struct buf *shown);

#endif
