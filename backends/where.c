/* Where stores are, and the forms of their URLs: what is the same for all kinds. */
#include "backends/where.h"

#include "backends/drivers.h"
#include "common/buf.h"
#include "common/mem.h"
#include "common/nearest.h"
#include "common/path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The words of `--as`; a kind of store has some of them. */
static const char *const forms[] = {"s3", "s3a", "hdfs", "webhdfs", "file", "dbfs"};

/* ---- places ---- */

void store_where_release(struct store_where *w)
{
    free(w->server);
    free(w->root);
    free(w->state);
    *w = (struct store_where){0};
}

int store_where(const char *url, const struct store_config *config, struct op *op,
                struct store_where *ret)
{
    const struct driver *d = driver_find(url);
    struct store_where w = {0};

    if (!d)
        return driver_unknown_url(url, op);
    int r = driver_check_options(d, config, op);
    if (!r)
        r = d->where(url, config, op, &w);
    if (r < 0) {
        store_where_release(&w);
        return r;
    }
    *ret = w;
    return 0;
}

const char *store_no_endpoint(const char *url)
{
    const struct driver *d = driver_find(url);

    return d ? d->no_endpoint : NULL;
}

bool store_where_meet(const struct store_where *a, const struct store_where *b)
{
    return strcmp(a->server, b->server) == 0 &&
           (path_below(a->root, b->root) || path_below(b->root, a->root));
}

/* ---- forms of URLs ---- */

int store_url_form(const char *as, struct op *op)
{
    struct nearest n;

    nearest_init(&n, as);
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        if (strcmp(forms[i], as) == 0)
            return 0;
        nearest_try(&n, forms[i]);
    }
    return op_fail(op, -EINVAL,
                   "\"%.40s\" is no form of a URL%s%s%s; known are s3, s3a, hdfs, webhdfs, "
                   "file and dbfs",
                   as, n.best ? ", did you mean \"" : "", n.best ? n.best : "",
                   n.best ? "\"?" : "");
}

static int lacks_form(const struct driver *d, const char *as, struct op *op)
{
    auto_buf struct buf has = BUF_INIT(128);

    for (const char *const *f = d->as; *f; f++) {
        int r = buf_addf(&has, "%s%s", f == d->as ? "" : " or ", *f);
        if (r < 0)
            return r;
    }
    return op_fail(op, -EINVAL, "an object of a store of the form %s has no %s:// form%s%s",
                   d->form, as, has.len ? "; it has " : "", has.len ? has.data : "");
}

/* 0 when stores of this kind have that form. */
static int check_form(const struct driver *d, const char *as, struct op *op)
{
    int r = store_url_form(as, op);

    for (const char *const *f = d->as; *f && !r; f++)
        if (strcmp(*f, as) == 0)
            return 0;
    return r ? r : lacks_form(d, as, op);
}

int store_url_as(const char *url, const char *as, struct op *op, char **ret)
{
    const struct driver *d = driver_find(url);

    if (!d)
        return driver_unknown_url(url, op);
    int r = as ? check_form(d, as, op) : 0;
    if (r < 0)
        return r;
    const char *rest = strstr(url, "://");
    if (!as)
        r = asprintf(ret, "%s", url);
    else if (rest)
        r = asprintf(ret, "%s%s", as, rest);
    else /* a path, or file:/path */
        r = asprintf(ret, "%s://%s", as, url + strcspn(url, "/"));
    if (r < 0)
        *ret = NULL;
    return r < 0 ? op_fail(op, -ENOMEM, "out of memory") : 0;
}

int store_url_of(const struct store_where *w, const char *key, const char *as, struct op *op,
                 char **ret)
{
    const struct driver *d = driver_of(w);
    const char *bucket = strrchr(w->server, '/');
    auto_free char *below = path_join(w->root, key);
    auto_free char *url = NULL;
    int n = -1;

    if (below && !d->as[0])
        n = asprintf(&url, "%s%s%s", w->server, *below ? "/" : "", below);
    else if (below)
        n = asprintf(&url, "%s://%s%s%s", d->as[0], bucket ? bucket + 1 : "",
                     *below || !bucket ? "/" : "", below);
    if (n < 0) {
        url = NULL;
        return op_fail(op, -ENOMEM, "out of memory");
    }
    return store_url_as(url, as, op, ret);
}

int store_key_of(const struct store_where *w, const char *url, struct op *op, char **ret_key)
{
    return driver_of(w)->key_of(w, url, op, ret_key);
}
