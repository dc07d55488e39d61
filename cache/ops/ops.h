/* What programs ask for: open, read, write, close, names, attributes. The functions that the
 * frontend calls are in cache.h; here is what the rooms above need besides. */
#ifndef RUNFS_CACHE_OPS_OPS_H
#define RUNFS_CACHE_OPS_OPS_H

#include "cache/transfer/transfer.h"

struct handle {
    struct node *node;
    int flags; /* as open(2) */
    bool writable;
    GUARDED_BY(cache_mutex) struct {
        bool keeps_fd; /* FD_WRITE has a user for as long as the handle lives */
        bool told;     /* this handle has been given the last error */
        bool begins;   /* among file.beginners */
    };
    uint64_t opened_size; /* constant; of the file then */
};

/* What programs have open, of a whole cache. */
struct opened {
    GUARDED_BY(cache_mutex) struct {
        uint64_t open_handles;
    };
};

#endif
