/* The status document. docs/status.md lists its fields; they are added to, not renamed. */
#include "cli/status_doc.h"

#include "backends/store.h"
#include "cache/cache.h"
#include "cli/control_io.h"
#include "cli/open_store.h"
#include "cli/stall_doc.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/mem.h"
#include "fuse/fs.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define FILES_MAX   10000 /* entries of one answer */
#define SAMPLES     10    /* seconds that a rate looks back */
#define METRICS_MAX (1024 * 1024)
/* Writers wait for a moment all the time where the cache is small. */
#define WRITERS_PATIENCE_NS (5 * NS_PER_SEC)

struct sample {
    int64_t at_ns; /* CLOCK_MONOTONIC; 0 none */
    uint64_t uploaded, downloaded;
};

/* Keeps the frontend from being freed while it is asked: above the frontend's locks. */
extern struct lock_class frontend_mutex;
/* A leaf. */
extern struct lock_class rate_mutex;

/* Constant, but for what says otherwise. */
struct status_doc {
    struct cache *cache;
    const struct open_stores *stores;
    char *url, *mountpoint, *cache_dir, *durability, *options;
    bool read_only;
    int64_t started_ns;
    atomic_int state; /* enum status_state */

    struct mutex rate_lock;
    struct sample ring[SAMPLES] GUARDED_BY(rate_mutex);
    unsigned next GUARDED_BY(rate_mutex);

    struct mutex frontend_lock;
    struct fs *fs GUARDED_BY(frontend_mutex); /* NULL without one */

    struct {                 /* of the thread that samples */
        int64_t *stalled_ns; /* heap, of each store: CLOCK_MONOTONIC, since when; 0: it does
                                not */
        int64_t held_ns;     /* since when writers wait; 0: none does */
        int64_t seen_ns;     /* when one was last seen to wait */
        bool held_told;
    } told;
};

MUTEX_KIND(frontend, struct status_doc, frontend_lock);
MUTEX_KIND(rate, struct status_doc, rate_lock);

struct rates {
    uint64_t up, down; /* bytes a second */
};

static const char *const state_names[] = {"starting", "mounted", "draining"};

struct status_doc *status_doc_new(const struct status_info *info, struct cache *cache,
                                  const struct open_stores *stores)
{
    struct status_doc *doc = calloc(1, sizeof(*doc));

    if (!doc)
        return NULL;
    mutex_init(&doc->rate_lock);
    mutex_init(&doc->frontend_lock);
    doc->cache = cache;
    doc->stores = stores;
    doc->told.stalled_ns = calloc(stores->n, sizeof(*doc->told.stalled_ns));
    doc->url = strdup(info->url);
    doc->mountpoint = strdup(info->mountpoint);
    doc->cache_dir = strdup(info->cache_dir);
    doc->durability = strdup(info->durability);
    doc->options = strdup(info->options ? info->options : "");
    doc->read_only = info->read_only;
    doc->started_ns = clock_mono_ns();
    if (!doc->url || !doc->mountpoint || !doc->cache_dir || !doc->durability || !doc->options ||
        !doc->told.stalled_ns) {
        status_doc_free(doc);
        return NULL;
    }
    return doc;
}

void status_doc_free(struct status_doc *doc)
{
    if (!doc)
        return;
    mutex_destroy(&doc->rate_lock);
    mutex_destroy(&doc->frontend_lock);
    free(doc->url);
    free(doc->mountpoint);
    free(doc->cache_dir);
    free(doc->durability);
    free(doc->options);
    free(doc->told.stalled_ns);
    free(doc);
}

void status_doc_set_state(struct status_doc *doc, enum status_state state)
{
    atomic_store(&doc->state, (int)state);
}

void status_doc_set_frontend(struct status_doc *doc, struct fs *fs)
{
    frontend_lock(doc);
    doc->fs = fs;
    frontend_unlock(doc);
}

static void get_frontend(struct status_doc *doc, struct fs_stats *ret)
{
    *ret = (struct fs_stats){0};
    frontend_lock(doc);
    if (doc->fs)
        fs_get_stats(doc->fs, ret);
    frontend_unlock(doc);
}

/* One line when it begins and one when it ends. */
static void log_stall(struct status_doc *doc, size_t i, const struct store_stall *stall)
{
    int64_t now = clock_mono_ns(), since = doc->told.stalled_ns[i];
    const char *url = doc->stores->n > 1 ? doc->stores->stores[i]->url : doc->url;

    if (!stall->ns && since)
        log_warn("store %s: the stall is over after %lld s", url,
                 (long long)((now - since) / NS_PER_SEC));
    if (stall->ns && !since) {
        auto_json json_t *json = stall_json(stall);
        char text[STALL_TEXT_MAX];

        log_warn("store %s: %s: %s", url,
                 stall->changes ? "uploads and other changes" : "downloads and questions",
                 stall_text(json, OP_FOREVER, NULL, text));
    }
    doc->told.stalled_ns[i] = stall->ns ? (since ? since : now - stall->ns) : 0;
}

static bool log_stalls(struct status_doc *doc)
{
    bool any = false;

    for (size_t i = 0; i < doc->stores->n; i++) {
        struct store_stats stats;

        store_get_stats(doc->stores->stores[i], &stats);
        log_stall(doc, i, &stats.stall);
        any = any || stats.stall.ns;
    }
    return any;
}

/* Says once that writers wait, when that lasts. A writer that waits is woken now and then to
 * look for room, and does not count as waiting then. */
static void log_writers(struct status_doc *doc, const struct cache_stats *s, bool stalled)
{
    int64_t now = clock_mono_ns();

    if (s->waiting_writers) {
        doc->told.held_ns = doc->told.held_ns ? doc->told.held_ns : now;
        doc->told.seen_ns = now;
    } else if (now - doc->told.seen_ns >= WRITERS_PATIENCE_NS) {
        doc->told.held_ns = 0;
        doc->told.held_told = false;
    }
    if (!s->waiting_writers || doc->told.held_told ||
        now - doc->told.held_ns < WRITERS_PATIENCE_NS)
        return;
    doc->told.held_told = true;
    log_warn("cache %s: %" PRIu64 " writers wait, as it is full (%" PRIu64 " of %" PRIu64
             " bytes) and nothing can be evicted: %" PRIu64 " files are not published yet%s; "
             "`runfs status --files %s` lists them",
             doc->cache_dir, s->waiting_writers, s->used_bytes, s->size_bytes, s->dirty_files,
             stalled ? ", and the store stalls" : "", doc->mountpoint);
}

void status_doc_sample(struct status_doc *doc)
{
    struct cache_stats s;
    struct sample *sample;

    cache_get_stats(doc->cache, &s);
    log_writers(doc, &s, log_stalls(doc));
    rate_lock(doc);
    sample = &doc->ring[doc->next++ % SAMPLES];
    sample->at_ns = clock_mono_ns();
    sample->uploaded = s.uploaded_bytes;
    sample->downloaded = s.downloaded_bytes;
    rate_unlock(doc);
}

/* From the oldest sample to now. */
static struct rates get_rates(struct status_doc *doc, const struct cache_stats *s)
{
    const struct sample *oldest = NULL;
    struct rates r = {0};
    int64_t ns;

    rate_lock(doc);
    for (size_t i = 0; i < SAMPLES; i++) {
        const struct sample *one = &doc->ring[i];

        if (one->at_ns && (!oldest || one->at_ns < oldest->at_ns))
            oldest = one;
    }
    ns = oldest ? clock_mono_ns() - oldest->at_ns : 0;
    if (ns >= NS_PER_SEC / 10) {
        double seconds = (double)ns / (double)NS_PER_SEC;

        r.up = (uint64_t)((double)(s->uploaded_bytes - oldest->uploaded) / seconds);
        r.down = (uint64_t)((double)(s->downloaded_bytes - oldest->downloaded) / seconds);
    }
    rate_unlock(doc);
    return r;
}

static void set_number(json_t *to, const char *name, uint64_t value)
{
    (void)json_object_set_new(to, name, json_integer((json_int_t)value));
}

json_t *status_doc_stall(struct status_doc *doc, const char **ret_url)
{
    struct store_stall worst = {0};

    for (size_t i = 0; i < doc->stores->n; i++) {
        struct store *store = doc->stores->stores[i];
        struct store_stats s;

        store_get_stats(store, &s);
        if (i && s.stall.ns <= worst.ns)
            continue;
        worst = s.stall;
        if (ret_url)
            *ret_url = doc->stores->n > 1 ? store->url : doc->url;
    }
    return stall_json(&worst);
}

const char *status_doc_cache_dir(const struct status_doc *doc)
{
    return doc->cache_dir;
}

static json_t *json_cache(const struct cache_stats *s)
{
    json_t *j = json_object();

    set_number(j, "size_bytes", s->size_bytes);
    set_number(j, "used_bytes", s->used_bytes);
    set_number(j, "disk_free_bytes", s->disk_free_bytes);
    set_number(j, "open_handles", s->open_handles);
    set_number(j, "nodes", s->nodes);
    set_number(j, "mirror_files", s->mirror_files);
    set_number(j, "pinned_files", s->pinned_files);
    set_number(j, "hidden_names", s->hidden_names);
    set_number(j, "waiting_writers", s->waiting_writers);
    (void)json_object_set_new(j, "copied", json_boolean(s->copied));
    set_number(j, "descriptors", s->fds_open);
    set_number(j, "descriptors_limit", s->fds_limit);
    set_number(j, "descriptors_refused", s->fds_refused);
    (void)json_object_set_new(j, "trouble",
                              s->space_trouble ? json_string(s->space_trouble) : json_null());
    return j;
}

/* A clock that was set back makes nothing older than now. */
static uint64_t age_seconds(int64_t since_ns)
{
    int64_t now_ns = clock_real_ns();

    return since_ns && since_ns < now_ns ? (uint64_t)((now_ns - since_ns) / NS_PER_SEC) : 0;
}

static json_t *json_queue(const struct cache_stats *s)
{
    json_t *j = json_object();

    set_number(j, "dirty_files", s->dirty_files);
    set_number(j, "dirty_bytes", s->dirty_bytes);
    set_number(j, "uploading_files", s->uploading_files);
    set_number(j, "failed_files", s->failed_files);
    set_number(j, "staged_files", s->staged_files);
    set_number(j, "pending_ops", s->pending_ops);
    set_number(j, "kept_files", s->kept_files);
    set_number(j, "oldest_seconds", age_seconds(s->oldest_ns));
    set_number(j, "unstamped_files", s->unstamped_files);
    return j;
}

static json_t *json_transfer(struct status_doc *doc, const struct cache_stats *s)
{
    struct rates r = get_rates(doc, s);
    json_t *j = json_object();

    set_number(j, "uploaded_files", s->uploaded_files);
    set_number(j, "uploaded_bytes", s->uploaded_bytes);
    set_number(j, "downloaded_bytes", s->downloaded_bytes);
    set_number(j, "upload_bytes_per_second", r.up);
    set_number(j, "download_bytes_per_second", r.down);
    return j;
}

static json_t *json_requests(struct status_doc *doc)
{
    struct store_stats s;
    json_t *j = json_object();

    store_get_stats(doc->stores->top, &s);
    set_number(j, "requests", s.requests);
    set_number(j, "failures", s.failures);
    set_number(j, "retries", s.retries);
    set_number(j, "reads", s.reads);
    set_number(j, "puts", s.puts);
    set_number(j, "parts", s.parts);
    set_number(j, "lists", s.lists);
    set_number(j, "stats", s.stats);
    set_number(j, "removes", s.removes);
    set_number(j, "copies", s.copies);
    set_number(j, "bytes_read", s.bytes_read);
    set_number(j, "bytes_written", s.bytes_written);
    return j;
}

static json_t *json_store(const struct open_stores *stores, size_t i)
{
    struct store_stats s;
    json_t *j = json_object();

    store_get_stats(stores->stores[i], &s);
    (void)json_object_set_new(j, "name", control_text(stores->names[i]));
    (void)json_object_set_new(j, "url", control_text(stores->stores[i]->url));
    set_number(j, "requests", s.requests);
    set_number(j, "failures", s.failures);
    (void)json_object_set_new(j, "stalled", stall_json(&s.stall));
    return j;
}

static json_t *json_stores(const struct open_stores *stores)
{
    json_t *all = json_array();

    for (size_t i = 0; i < stores->n; i++)
        (void)json_array_append_new(all, json_store(stores, i));
    return all;
}

static json_t *json_frontend(struct status_doc *doc)
{
    struct fs_stats s;
    json_t *j = json_object();

    get_frontend(doc, &s);
    (void)json_object_set_new(j, "passthrough", json_boolean(s.passthrough));
    set_number(j, "parked", s.parked);
    set_number(j, "opens_passthrough", s.opens_passthrough);
    set_number(j, "opens_normal", s.opens_normal);
    set_number(j, "notifications", s.notifications);
    set_number(j, "notifications_lost", s.notifications_lost);
    return j;
}

static json_t *json_error(int err, const char *text)
{
    json_t *j;

    if (!err)
        return json_null();
    j = json_object();
    (void)json_object_set_new(j, "errno", json_string(err_name(err)));
    (void)json_object_set_new(j, "text", control_text(text));
    return j;
}

struct file_list {
    json_t *array;
    bool truncated;
};

static void add_text(json_t *to, const char *name, const char *text)
{
    if (text)
        (void)json_object_set_new(to, name, control_text(text));
}

static int add_file(void *arg, const struct cache_pending *p)
{
    struct file_list *list = arg;
    json_t *j;

    if (json_array_size(list->array) >= FILES_MAX) {
        list->truncated = true;
        return 1;
    }
    j = json_object();
    (void)json_object_set_new(j, "kind", control_text(p->kind));
    (void)json_object_set_new(j, "path", control_text(p->path));
    add_text(j, "path2", p->path2);
    (void)json_object_set_new(j, "state", control_text(p->state));
    add_text(j, "error", p->error);
    add_text(j, "store", p->routed.store);
    add_text(j, "route", p->routed.route);
    add_text(j, "policy", p->routed.policy);
    set_number(j, "bytes", p->bytes);
    set_number(j, "bytes_done", p->bytes_done);
    return json_array_append_new(list->array, j) ? 1 : 0;
}

static void add_files(struct status_doc *doc, json_t *to)
{
    struct file_list list = {.array = json_array()};

    if (!list.array)
        return;
    (void)cache_each_pending(doc->cache, add_file, &list);
    (void)json_object_set_new(to, "files", list.array);
    (void)json_object_set_new(to, "files_truncated", json_boolean(list.truncated));
}

json_t *status_doc_json(struct status_doc *doc, bool files)
{
    struct cache_stats s;
    json_t *j = json_object();

    if (!j)
        return NULL;
    cache_get_stats(doc->cache, &s);
    (void)json_object_set_new(j, "version", json_string(RUNFS_VERSION));
    (void)json_object_set_new(j, "state", json_string(state_names[atomic_load(&doc->state)]));
    set_number(j, "pid", (uint64_t)getpid());
    (void)json_object_set_new(j, "time", stall_time(clock_real_ns()));
    set_number(j, "uptime_seconds",
               (uint64_t)((clock_mono_ns() - doc->started_ns) / NS_PER_SEC));
    (void)json_object_set_new(j, "store", control_text(doc->url));
    if (doc->stores->n > 1)
        (void)json_object_set_new(j, "stores", json_stores(doc->stores));
    (void)json_object_set_new(j, "mountpoint", control_text(doc->mountpoint));
    (void)json_object_set_new(j, "cache_dir", control_text(doc->cache_dir));
    (void)json_object_set_new(j, "durability", json_string(doc->durability));
    (void)json_object_set_new(j, "options", control_text(doc->options));
    (void)json_object_set_new(j, "read_only", json_boolean(doc->read_only));
    (void)json_object_set_new(j, "queue", json_queue(&s));
    (void)json_object_set_new(j, "transfer", json_transfer(doc, &s));
    (void)json_object_set_new(j, "cache", json_cache(&s));
    (void)json_object_set_new(j, "requests", json_requests(doc));
    (void)json_object_set_new(j, "frontend", json_frontend(doc));
    (void)json_object_set_new(j, "stalled", status_doc_stall(doc, NULL));
    (void)json_object_set_new(j, "last_error", json_error(s.last_error, s.last_error_text));
    (void)json_object_set_new(j, "last_read_error",
                              json_error(s.last_read_error, s.last_read_error_text));
    if (files)
        add_files(doc, j);
    return j;
}

char *status_doc_text(void *doc)
{
    auto_json json_t *j = status_doc_json(doc, true);
    auto_free char *body = j ? json_dumps(j, JSON_INDENT(2)) : NULL;
    char *text;

    if (!body || asprintf(&text, "%s\n", body) < 0)
        return NULL;
    return text;
}

struct metric {
    const char *name;
    const char *type;
    const char *help;
    uint64_t value;
};

static void add_head(struct buf *text, const struct metric *m)
{
    (void)buf_addf(text, "# HELP runfs_%s %s\n# TYPE runfs_%s %s\nrunfs_%s %" PRIu64 "\n",
                   m->name, m->help, m->name, m->type, m->name, m->value);
}

static void add_metrics(struct buf *text, const struct metric *metrics, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_head(text, &metrics[i]);
}

static void add_cache_metrics(struct buf *text, const struct cache_stats *s)
{
    const struct metric metrics[] = {
        {"cache_size_bytes", "gauge", "Limit of the cache.", s->size_bytes},
        {"cache_used_bytes", "gauge", "Disk blocks the cache uses.", s->used_bytes},
        {"cache_disk_free_bytes", "gauge", "Free space of its disk.", s->disk_free_bytes},
        {"dirty_files", "gauge", "Files not in the store yet.", s->dirty_files},
        {"dirty_bytes", "gauge", "Bytes not in the store yet.", s->dirty_bytes},
        {"uploading_files", "gauge", "Files being uploaded.", s->uploading_files},
        {"failed_files", "gauge", "Dirty files whose last upload failed.", s->failed_files},
        {"staged_files", "gauge", "Files that wait for a rename.", s->staged_files},
        {"kept_files", "gauge", "Files not published on purpose.", s->kept_files},
        {"unstamped_files", "gauge", "Of the kept files, those without a stamp at the mount.",
         s->unstamped_files},
        {"pending_operations", "gauge", "Renames, deletes and the like not in the store yet.",
         s->pending_ops},
        {"open_handles", "gauge", "Open files.", s->open_handles},
        {"pinned_files", "gauge", "Files kept from eviction.", s->pinned_files},
        {"waiting_writers", "gauge", "Requests that wait for room in the cache.",
         s->waiting_writers},
        {"hidden_names", "gauge", "Names in the store that no path can show.", s->hidden_names},
        {"descriptors", "gauge", "Descriptors open on mirror files.", s->fds_open},
        {"descriptors_refused_total", "counter", "Opens refused as all descriptors were taken.",
         s->fds_refused},
        {"uploaded_files_total", "counter", "Files uploaded.", s->uploaded_files},
        {"uploaded_bytes_total", "counter", "Bytes uploaded.", s->uploaded_bytes},
        {"downloaded_bytes_total", "counter", "Bytes downloaded.", s->downloaded_bytes},
    };

    add_metrics(text, metrics, ARRAY_SIZE(metrics));
}

#define STORE_METRICS 13

static void fill_store_metrics(const struct store_stats *s, struct metric ret[STORE_METRICS])
{
    const struct metric metrics[STORE_METRICS] = {
        {"store_stalled_seconds", "gauge",
         "For how long nothing succeeded while requests wait; 0 when all is well.",
         (uint64_t)(s->stall.ns / NS_PER_SEC)},
        {"store_requests_total", "counter", "Requests to the store.", s->requests},
        {"store_failures_total", "counter", "Requests that failed.", s->failures},
        {"store_retries_total", "counter", "Requests repeated.", s->retries},
        {"store_reads_total", "counter", "Reads.", s->reads},
        {"store_puts_total", "counter", "Whole uploads.", s->puts},
        {"store_parts_total", "counter", "Parts uploaded.", s->parts},
        {"store_lists_total", "counter", "Listings.", s->lists},
        {"store_stats_total", "counter", "Questions for attributes.", s->stats},
        {"store_removes_total", "counter", "Removals.", s->removes},
        {"store_copies_total", "counter", "Server-side copies.", s->copies},
        {"store_read_bytes_total", "counter", "Bytes read from the store.", s->bytes_read},
        {"store_written_bytes_total", "counter", "Bytes sent to it.", s->bytes_written},
    };

    memcpy(ret, metrics, sizeof(metrics));
}

/* The total; and where there are several stores a series for each, as its label says. */
static void add_store_metrics(struct buf *text, const struct open_stores *stores)
{
    size_t n = stores->n > 1 ? stores->n : 0;
    struct metric total[STORE_METRICS];
    auto_free struct metric(*each)[STORE_METRICS] = calloc(n + 1, sizeof(*each));
    struct store_stats s;

    store_get_stats(stores->top, &s);
    fill_store_metrics(&s, total);
    for (size_t i = 0; each && i < n; i++) {
        store_get_stats(stores->stores[i], &s);
        fill_store_metrics(&s, each[i]);
    }
    for (size_t m = 0; m < STORE_METRICS; m++) {
        add_head(text, &total[m]);
        for (size_t i = 0; each && i < n; i++)
            (void)buf_addf(text, "runfs_%s{store=\"%s\"} %" PRIu64 "\n", each[i][m].name,
                           stores->names[i], each[i][m].value);
    }
}

static void add_frontend_metrics(struct buf *text, const struct fs_stats *s)
{
    const struct metric metrics[] = {
        {"passthrough", "gauge", "1 while new opens may be passthrough.", s->passthrough},
        {"parked_requests", "gauge", "Requests that wait for the store.", s->parked},
        {"opens_passthrough_total", "counter", "Passthrough opens.", s->opens_passthrough},
        {"opens_normal_total", "counter", "Opens in normal mode.", s->opens_normal},
        {"notifications_total", "counter", "Notifications to the kernel.", s->notifications},
        {"notifications_lost_total", "counter", "Notifications dropped.",
         s->notifications_lost},
    };

    add_metrics(text, metrics, ARRAY_SIZE(metrics));
}

char *status_doc_metrics(void *arg)
{
    struct status_doc *doc = arg;
    struct buf text = BUF_INIT(METRICS_MAX);
    struct cache_stats cache;
    struct fs_stats frontend;

    cache_get_stats(doc->cache, &cache);
    add_cache_metrics(&text, &cache);
    add_store_metrics(&text, doc->stores);
    get_frontend(doc, &frontend);
    add_frontend_metrics(&text, &frontend);
    return buf_take(&text);
}
