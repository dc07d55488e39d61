/* The XML of answers and requests. Parsing is bounded in depth and size and refuses document
 * types and entities; garbage is -EPROTO. Any thread. */
#ifndef RUNFS_BACKENDS_HTTP_XML_H
#define RUNFS_BACKENDS_HTTP_XML_H

#include "common/buf.h"

#include <stddef.h>

#define XML_TEXT_MAX  16384 /* bytes of one text: an encoded key of 4096 bytes fits */
#define XML_DEPTH_MAX 8

/* Called at an element, with the path of names from the root, joined by "/". A result that is
 * not 0 ends the walk and is its result. */
typedef int (*xml_visit)(void *arg, const char *path, const char *text);

/* Calls `start` (may be NULL; its text is "") where an element begins and `end` where it ends.
 * 0, -EPROTO, -ENOMEM, or what a visit returned. */
int xml_walk(const char *data, size_t len, xml_visit start, xml_visit end, void *arg);

/* Frees the heap string *to and puts a copy of `text` in its place; for visitors. */
int xml_replace_text(char **to, const char *text);

/* The text at `path` ("Result/Element") into a heap string; -EPROTO when it is missing. */
int xml_text(const char *data, size_t len, const char *path, char **ret);

/* Adds text with everything escaped that XML needs escaped. -EINVAL for what XML 1.0 can't hold
 * (control characters, broken UTF-8). */
int xml_escape(struct buf *out, const char *text);

#endif
