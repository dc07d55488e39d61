/* Where a store is, and how its objects are named elsewhere: as words and URLs, without asking
 * anybody. Any thread.
 *
 * A URL says a key's bytes as they are, as AWS's tools and Hadoop take them: s3://BUCKET/KEY,
 * s3a://BUCKET/KEY and file:///PATH know no percent-encoding. Only http and https do. */
#ifndef RUNFS_BACKENDS_WHERE_H
#define RUNFS_BACKENDS_WHERE_H

#include "backends/store.h"

/* Two stores are in one place just when all of these are equal; one is within another when the
 * server is the same and its root is below the other's. All heap. */
struct store_where {
    char *server; /* "s3 https://HOST/BUCKET", "file", "mem:NAME" */
    char *root;   /* there, a key; "" all of it. Of a folder: its path without symlinks and
                     without the "/" it begins with */
    char *state;  /* there, a key: where the store keeps what is its own; NULL: nowhere */
};

/* Where the store that `url` names is, by the options and what the driver reads of environment
 * and profiles. Only files of this machine are looked at; a folder that is missing is where it
 * would be made. -EINVAL for what store_open() refuses of URL and options without a network:
 * the text holds no secret. */
int store_where(const char *url, const struct store_config *config, struct op *op,
                struct store_where *ret);
/* Accepts a zeroed one. */
void store_where_release(struct store_where *w);
/* What the option `endpoint` says for a store that has none, whatever the environment and the
 * profiles name; NULL where the stores of that form have no such option. */
const char *store_no_endpoint(const char *url);
/* Whether both lie in one namespace of one server, and one of the two in the other or at the
 * same place. */
bool store_where_meet(const struct store_where *a, const struct store_where *b);

/* Whether `as` is a word for a form of URLs at all; -EINVAL with those that are. */
int store_url_form(const char *as, struct op *op);
/* The URL of a key of the store at `w`, in the form that `as` names ("s3a", "file", ...; NULL:
 * as runfs takes it). *ret is heap. -EINVAL: a store of that kind has no such form, or there is
 * no such word. */
int store_url_of(const struct store_where *w, const char *key, const char *as, struct op *op,
                 char **ret);
/* The same of a URL that is in the form that runfs takes, as user.runfs.url tells it. */
int store_url_as(const char *url, const char *as, struct op *op, char **ret);
/* The reverse: the key that `url` names in the store at `w`, in any of its forms; https, too,
 * with the bucket in the path or in the host. *ret_key is heap. -ENOENT: it names no object of
 * that store; -EINVAL: it has no form that any store knows. */
int store_key_of(const struct store_where *w, const char *url, struct op *op, char **ret_key);

#endif
