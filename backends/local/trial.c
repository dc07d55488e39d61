/* A local store to be tried: the folder in which a store stages, as a store of its own.
 *
 * It is on the same disk, is written by the same calls, and no listing of the store has it.
 * That files may come into the store's root, too, is asked of the kernel by a file without a
 * name. */
#include "backends/drivers.h"
#include "backends/local/local.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where the filesystem has no files without names, the permissions have to do. */
static int takes_files(const struct local_store *l, struct op *op)
{
    auto_close int fd = openat(l->root_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : 0;

    if (r == -EOPNOTSUPP || r == -EISDIR || r == -EINVAL)
        r = faccessat(l->root_fd, ".", W_OK | X_OK, AT_EACCESS) < 0 ? -errno : 0;
    if (r == 0)
        return 0;
    if (r == -ENOSPC || r == -EDQUOT)
        return op_fail(op, r, "%s takes no new file: %s; make room", l->root, strerror(-r));
    return op_fail(op, r,
                   "%s takes no new file: %s; let uid %u write there, or mount it with the "
                   "option ro",
                   l->root, strerror(-r), (unsigned)geteuid());
}

/* Makes the state folder the root, and nothing beside it. */
static int move_root(struct local_store *l, struct op *op)
{
    char link[64];
    int state_fd;

    int r = local_state(l, op, &state_fd); /* it is open */
    if (r < 0)
        return r;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", state_fd);
    auto_free char *root = realpath(link, NULL);
    auto_free char *url = NULL;
    auto_close int fd = fcntl(state_fd, F_DUPFD_CLOEXEC, 0);
    if (!root || fd < 0 || asprintf(&url, "file://%s", root) < 0) {
        url = NULL;
        return op_fail(op, -EIO, "the folder beside %s can't be opened", l->root);
    }
    l->is_trial = true;
    l->stateless = LOCAL_STATE_OFF; /* it is in the state folder itself */
    l->base.facts.caps &= ~(unsigned)STORE_STATE;
    (void)close(l->root_fd);
    l->root_fd = take_fd(fd);
    free(l->root);
    l->root = take_ptr(root);
    free(l->base.url);
    l->base.url = take_ptr(url);
    return 0;
}

int local_trial_new(const char *url, const struct store_config *config, struct op *op,
                    struct store **ret)
{
    struct store *s = NULL;
    int r = local_store_new(url, config, op, &s);
    if (r < 0)
        return r;

    struct local_store *l = local_of(s);
    r = takes_files(l, op);
    if (!r)
        r = local_state_apart(l, op, &l->own);
    if (!r)
        r = move_root(l, op);
    if (r < 0) {
        store_close(s);
        return r;
    }
    *ret = s;
    return 0;
}
