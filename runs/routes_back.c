/* From keys back to paths. */
#include "common/buf.h"
#include "runs/match.h"
#include "runs/routes.h"

#include <errno.h>

int routes_path_of(const struct routes *r, unsigned store, const char *key, enum routes_as as,
                   char **ret)
{
    struct buf auto_buf path = BUF_INIT(PATH_KEY_MAX);

    for (size_t i = 0; i < r->n; i++) {
        const struct route *route = &r->items[i];
        int err;

        if (route->scratch || route->store != store)
            continue;
        buf_clear(&path);
        err = match_path(route, key, as, &path);
        if (err == 0 && routes_owner(r, path.len ? path.data : "", as) == route) {
            *ret = buf_take(&path);
            return *ret ? 0 : -ENOMEM;
        }
        if (err < 0 && err != -ENOENT)
            return err;
    }
    return -ENOENT;
}
