/* Several stores as one: a store whose keys are paths of the mount, each of which a route leads
 * to a key of one of the stores (leaves).
 *
 * An object is in one leaf. A directory may be a key of one leaf (mapped), on the way to other
 * routes' paths (implied, fixed), or both; then it shows what all of them have there: a listing
 * asks each leaf that has a part in it, all at once, and fails when one of them fails. What
 * crosses leaves is -EXDEV, and nothing is asked.
 *
 * A recursive listing asks for one directory on the way after the other: while answers come it
 * moves op's deadline on, so that only a store that says nothing for so long ends it.
 *
 * No path has STORE_ORDER or STORE_STATE; facts depend on the key, `volume` is 1 for the first
 * leaf, and 0 where no single leaf is behind it.
 *
 * Objects of our own lie in the state of one leaf, as where it is mounted alone: the key
 * STORE_STATE_DIR "/@NAME/REST" leads to STORE_STATE_DIR "/REST" of the leaf NAME, and has
 * STORE_STATE where that has it; else nothing is there, and nothing can be made. No other key
 * of STORE_STATE_DIR leads anywhere. A directory of it is listed; what goes by directories
 * (mkdir, rmdir) does not reach it. Any thread. */
#ifndef RUNFS_BACKENDS_ROUTED_H
#define RUNFS_BACKENDS_ROUTED_H

#include "backends/store.h"
#include "runs/routes.h"

/* `routes` is borrowed while the store is open; its store indexes are those of `stores`, which
 * belong to the new store after success, as `names` (copied) do not. n >= 1. 0 or -ENOMEM. */
int routed_store_new(const struct routes *routes, struct store *const *stores,
                     const char *const *names, size_t n, struct op *op, struct store **ret);

/* What several stores are called as one: "runfs:a+b", the names in their order, which is not
 * that of the stores: a configuration may have them in any. Of more names than fit into 1,024
 * bytes the first, and how many more there are: "runfs:a+b+254-more". Heap; NULL without
 * memory. */
char *routed_title(const char *const *names, size_t n);

/* The key of `rest` in the state of store i of `s`; of a store that is none of this kind, and
 * then i is 0, STORE_STATE_DIR "/REST". Heap; NULL without memory. */
char *routed_state_key(const struct store *s, size_t i, const char *rest);

/* How many stores it is made of; 0: it is none of this kind. */
size_t routed_count(const struct store *s);
/* Its name and the store itself, which goes on belonging to `s`. */
const char *routed_name(const struct store *s, size_t i);
struct store *routed_leaf(const struct store *s, size_t i);
/* The store that has the path as an object, or else as a directory; routed_count() where there
 * is none, or several by a directory that is no key of one. Allocates nothing. */
size_t routed_index(const struct store *s, const char *path);

#endif
