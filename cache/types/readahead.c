/* How far to fetch ahead; see readahead.h. A stream is one program that reads in order, or
 * several that read the same bytes. */
#include "cache/types/readahead.h"

#include <stdbool.h>
#include <stdlib.h>

/* The most that is fetched ahead of a sequential reader, and the least ahead of one that began
 * with the file, in bytes. */
#define AHEAD_MAX (UINT64_C(64) << 20)
#define AHEAD_MIN (UINT64_C(1) << 20)
/* A run up to this length in the middle of a file proves nothing: one read of a record comes in
 * pieces. */
#define RUN_MIN (UINT64_C(1) << 20)
/* The kernel's own read-ahead comes in pieces that pass each other. */
#define PASSING (UINT64_C(256) << 10)
/* How many programs or threads may read at different places, as threads do that load a tensor
 * each. */
#define STREAMS_MAX 16

struct stream {
    uint64_t start; /* where the run of sequential reads began */
    uint64_t next;  /* where it would go on; 0: there is none */
};

struct streams {
    struct stream v[STREAMS_MAX]; /* the last one used first */
};

static bool goes_on(const struct stream *s, uint64_t off, uint64_t end)
{
    return s->next && off <= s->next + PASSING && end + PASSING >= s->next;
}

/* The stream that was not used for longest, but never the longest run: its readers may just
 * wait for the store, while those who fell back go on. */
static size_t oldest(const struct streams *s)
{
    size_t longest = 0;

    for (size_t i = 1; i < STREAMS_MAX; i++)
        if (s->v[i].next - s->v[i].start > s->v[longest].next - s->v[longest].start)
            longest = i;
    return longest == STREAMS_MAX - 1 ? STREAMS_MAX - 2 : STREAMS_MAX - 1;
}

/* Moves the stream of the read to the front. Of several that it continues the one with the
 * longest run, so that a reader who falls back and comes up again stays with it; of none a new
 * stream, in place of oldest(). */
static struct stream *take(struct streams *s, uint64_t off, uint64_t end)
{
    /* Pieces pass each other at the beginning of the file, too. */
    struct stream found = {.start = off <= PASSING ? 0 : off};
    size_t at = oldest(s);
    bool goes = false;

    for (size_t i = 0; i < STREAMS_MAX; i++) {
        if (!goes_on(&s->v[i], off, end) || (goes && s->v[i].start >= found.start))
            continue;
        goes = true;
        found = s->v[i];
        at = i;
    }
    for (; at > 0; at--)
        s->v[at] = s->v[at - 1];
    s->v[0] = found;
    return s->v;
}

/* The window grows with the evidence: twice the length of the run for a reader that began with
 * the file, which mostly goes on. One that began elsewhere reads a tensor or a record, and
 * stops somewhere: a quarter, so that no more than that is fetched in vain. */
uint64_t readahead_of(struct streams **s, uint64_t off, size_t len)
{
    if (!*s)
        *s = calloc(1, sizeof(**s));
    if (!*s)
        return 0;
    struct stream *t = take(*s, off, off + len);
    if (off + len > t->next)
        t->next = off + len;
    uint64_t run = t->next - t->start, ahead = 2 * run;
    if (t->start == 0)
        ahead = ahead < AHEAD_MIN ? AHEAD_MIN : ahead;
    else
        ahead = run < RUN_MIN ? 0 : (run - RUN_MIN) / 4;
    return ahead < AHEAD_MAX ? ahead : AHEAD_MAX;
}
