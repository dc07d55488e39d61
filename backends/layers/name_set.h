/* A set of names that were seen, of which only keyed 128-bit hashes are kept: 16 bytes a name,
 * and no server can choose names that collide. One thread. */
#ifndef RUNFS_BACKENDS_LAYERS_NAME_SET_H
#define RUNFS_BACKENDS_LAYERS_NAME_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct name_hash {
    uint64_t a, b; /* both 0: an empty slot */
};

struct name_set {
    uint64_t key[2];
    struct name_hash *slot;
    size_t n, cap; /* cap is 0 or a power of two */
};

/* 0 or -errno when the machine gives no random key. */
int name_set_init(struct name_set *s);
void name_set_release(struct name_set *s);
/* 1 when the name (of this kind) is new, 0 when it was there, or -ENOMEM. */
int name_set_add(struct name_set *s, const char *name, bool is_prefix);

#endif
