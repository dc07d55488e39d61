/* What a mount knows of itself, as one JSON document and as Prometheus text: for `runfs
 * status`,
 * `.runfs/status.json` and `.runfs/metrics`. Any thread. */
#ifndef RUNFS_CLI_STATUS_DOC_H
#define RUNFS_CLI_STATUS_DOC_H

#include <jansson.h>
#include <stdbool.h>

struct cache;
struct fs;
struct open_stores;
struct status_doc;

enum status_state { STATUS_STARTING, STATUS_MOUNTED, STATUS_DRAINING };

/* What does not change while mounted; copied. No secrets: `url` is the store's own redacted
 * one, or "runfs:a+b".
 */
struct status_info {
    const char *url;
    const char *mountpoint;
    const char *cache_dir;
    const char *durability;
    const char *options; /* as they were given, for a remount */
    bool read_only;
};

/* Cache and stores are borrowed. NULL without memory. */
struct status_doc *status_doc_new(const struct status_info *info, struct cache *cache,
                                  const struct open_stores *stores);
void status_doc_free(struct status_doc *doc);

void status_doc_set_state(struct status_doc *doc, enum status_state state);

/* The frontend whose counters are shown from now on; NULL before it is freed. */
void status_doc_set_frontend(struct status_doc *doc, struct fs *fs);

/* Called about once a second, by one thread: notes the counters of transferred bytes, from
 * which rates come, and logs when the store begins to stall and when that ends, and when
 * writers have to wait for long. */
void status_doc_sample(struct status_doc *doc);

/* What the store stalls with, as stall_json(); of several that which stalls for longest.
 * *ret_url (may be NULL) is that store's URL. */
json_t *status_doc_stall(struct status_doc *doc, const char **ret_url);
const char *status_doc_cache_dir(const struct status_doc *doc);

/* The document; `files` adds one entry for each thing the cache owes the store. NULL without
 * memory. */
json_t *status_doc_json(struct status_doc *doc, bool files);

/* Texts for the mount's control files, heap, NULL without memory. `doc` is a struct status_doc:
 * these are callbacks of the frontend. */
char *status_doc_text(void *doc);
char *status_doc_metrics(void *doc);

#endif
