/* How far to fetch ahead of those who read a partial file in order. The kernel tells who reads
 * only so far: what one reader has brought into its page cache the next ones get from there, so
 * that each of several processes shows pieces of one sequence. What belongs together is told by
 * offsets, for all who have the file open. Not locked: the owner's lock guards it. */
#ifndef RUNFS_CACHE_AHEAD_H
#define RUNFS_CACHE_AHEAD_H

#include <stddef.h>
#include <stdint.h>

struct streams;

/* [off, off + len) is being read; returns how many bytes behind it are worth fetching. *s is
 * made when there is none, and given back with free(); without memory nothing is worth
 * fetching. */
uint64_t readahead_of(struct streams **s, uint64_t off, size_t len);

#endif
