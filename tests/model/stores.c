/* The stores of a sequence: slowed down, stopped and failing as the sequence wants them, and
 * what they hold in the end. One, or three with routes to them. */
#include "backends/layers/layer.h"
#include "backends/routed/routed.h"
#include "backends/store.h"
#include "common/mem.h"
#include "tests/model/model.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART 64

struct stores stores;

/* ---- slowed down and stopped ---- */

static bool changes(enum call_kind kind)
{
    return kind == CALL_PUT || kind == CALL_COPY || kind == CALL_RENAME ||
           kind == CALL_REMOVE || kind == CALL_MKDIR || kind == CALL_RMDIR ||
           kind == CALL_SETATTR || kind == CALL_PART || kind == CALL_COMMIT ||
           kind == CALL_ABORT;
}

static int64_t slow_around(struct layer *l, struct call *c)
{
    static __thread struct rng rng;

    (void)l;
    if (!rng.state)
        rng.state = (uint64_t)clock_mono_ns();
    while (atomic_load(stores.frozen)) {
        int r = op_sleep(c->op, 2 * NS_PER_MS);
        if (r < 0)
            return r;
    }
    int r = op_sleep(c->op, rng_below(&rng, 3) ? rng_below(&rng, 2000) * 1000 : 0);
    if (r < 0)
        return r;
    /* A failure in fifty changes; half of them have taken effect nevertheless. Of parts, of
     * which a file has a hundred, one in a thousand: an upload must come to its end. */
    unsigned often = c->kind == CALL_PART ? 2000 : 100;
    unsigned luck = stores.errors && changes(c->kind) ? rng_below(&rng, often) : 2;
    if (luck == 0)
        return op_fail(c->op, -EIO, "%s %s: a failure of the model", call_name(c->kind),
                       c->key);
    /* A store that renames by itself answers: until a lost rename is repeated, listings of its
     * old name show nothing, which the cache believes. */
    if (c->kind == CALL_RENAME)
        luck = 2;
    int64_t done = call_next(c);
    if (luck == 1 && done == 0 && c->ret_obj)
        object_release(c->ret_obj);
    if (luck == 1)
        done = op_fail(c->op, -EIO, "%s %s: a lost answer", call_name(c->kind), c->key);
    if (rng_below(&rng, 4) == 0)
        (void)op_sleep(c->op, rng_below(&rng, 2000) * 1000);
    while (atomic_load(stores.frozen))
        if (op_sleep(c->op, 2 * NS_PER_MS) < 0)
            break;
    return done;
}

/* ---- opening ---- */

bool stores_are_folders(void)
{
    return strncmp(stores.url, "file:", 5) == 0;
}

static struct store *open_driver(const char *which)
{
    struct store_option options[4];
    const char *endpoint = getenv("RUNFS_TEST_S3_ENDPOINT");
    struct store_config config = {.options = options};
    struct store *driver = NULL;
    char url[512];
    struct op op;

    if (endpoint)
        options[config.n_options++] = (struct store_option){"endpoint", endpoint};
    (void)snprintf(url, sizeof(url), "%s/%s%s", stores.url, stores.prefix, which);
    op_init(&op, 10 * NS_PER_SEC);
    if (strncmp(stores.url, "s3:", 3) != 0) {
        char dir[600];
        (void)snprintf(dir, sizeof(dir), "%s", url + (strncmp(url, "file://", 7) == 0 ? 7 : 0));
        (void)mkdir(dir, 0755);
    }
    if (store_open(url, &config, &op, &driver) < 0) {
        (void)fprintf(stderr, "%s\n", op.why);
        _exit(2);
    }
    return driver;
}

static struct store *open_slowed(const char *which, bool parts, bool renames)
{
    struct store *driver = open_driver(which);
    struct layer *l = calloc(1, sizeof(*l));

    /* A folder can be asked for parts of any one size; S3 takes no small ones. */
    for (struct store *s = driver; s && parts && stores_are_folders(); s = s->next)
        s->facts.part_size = s->facts.part_min = s->facts.part_max = PART;
    if (!l || layer_init(l, driver, slow_around) < 0)
        abort();
    if (!renames)
        l->base.facts.caps &= ~(unsigned)STORE_RENAME;
    return &l->base;
}

struct store *stores_open(bool parts)
{
    struct store *leaves[ROUTED_STORES], *routed;
    struct op op;

    if (!stores.routes)
        return open_slowed("", parts, stores.native);
    for (size_t i = 0; i < ROUTED_STORES; i++)
        leaves[i] = open_slowed(routed_names[i], parts, i == 0);
    op_init(&op, 10 * NS_PER_SEC);
    if (routed_store_new(stores.routes, leaves, routed_names, ROUTED_STORES, &op, &routed) < 0)
        abort();
    return routed;
}

/* ---- what they hold ---- */

struct stored {
    struct tree tree;
    char names[NAMES_MAX][PATH_MAX_MODEL];
    uint64_t size[NAMES_MAX];
    size_t n;
};

static int take_stored(void *arg, const char *name, const struct object *obj)
{
    struct stored *s = arg;

    if (obj->is_prefix)
        return 0;
    if (s->n == NAMES_MAX)
        return -EOVERFLOW;
    (void)snprintf(s->names[s->n], PATH_MAX_MODEL, "%s", name);
    s->size[s->n++] = obj->size;
    return 0;
}

static int read_stored(struct stored *s, struct store *store, struct op *op, size_t i,
                       const char *path)
{
    const char *key = s->names[i];
    struct object obj = {0};
    struct mem_sink sink;
    char data[DATA_MAX] = {0};
    ssize_t len = 0;

    mem_sink_init(&sink, data, sizeof(data), 0);
    int r = store_stat(store, op, key, &obj);
    bool link = r == 0 && (obj.attrs.has & ATTR_MODE) && S_ISLNK(obj.attrs.mode);
    if (r == 0 && !link && s->size[i])
        len = store_read(store, op, key, NULL, &sink.base, (size_t)s->size[i], 0, NULL);
    r = r == 0 && len < 0 ? (int)len : r;
    if (r == 0)
        r = tree_add(&s->tree, path, link ? KIND_LINK : KIND_FILE, obj.attrs.mode & 07777,
                     link ? obj.attrs.target : data,
                     link ? strlen(obj.attrs.target) : (size_t)len);
    object_release(&obj);
    return r;
}

/* Adds what the store holds to s->tree; of the leaf of this number by the paths that lead
 * there, of which no two may be one. */
static const char *read_all(struct stored *s, struct store *store, const unsigned *leaf)
{
    static char what[700];
    struct op op;

    op_init(&op, 30 * NS_PER_SEC);
    s->n = 0;
    int r = store_list(store, &op, "", LIST_RECURSIVE, take_stored, s);
    for (size_t i = 0; i < s->n && r == 0; i++) {
        auto_free char *path = leaf ? NULL : strdup(s->names[i]);
        if (leaf)
            r = routes_path_of(stores.routes, *leaf, s->names[i], ROUTES_OBJECT, &path);
        if (r < 0 || tree_at(&s->tree, path)) {
            (void)snprintf(what, sizeof(what), "%s of store %s is no path, or a second one",
                           s->names[i], leaf ? routed_names[*leaf] : "");
            return what;
        }
        r = read_stored(s, store, &op, i, path);
    }
    (void)snprintf(what, sizeof(what), "can't be read: %s %s", strerror(-r), op.why);
    return r < 0 ? what : NULL;
}

static const char *read_leaves(struct stored *s)
{
    const char *why = NULL;

    for (unsigned i = 0; i < ROUTED_STORES && !why; i++) {
        struct store *leaf = open_driver(routed_names[i]);
        why = read_all(s, leaf, &i);
        store_close(leaf);
    }
    return why;
}

const char *stores_differ(const struct tree *wanted)
{
    static struct stored s;
    struct store *store = stores_open(false);
    const char *why = read_all(&s, store, NULL);

    store_close(store);
    if (!why)
        why = tree_differs(&s.tree, wanted, MODES_ALL, true);
    tree_release(&s.tree);
    if (!why && stores.routes) {
        why = read_leaves(&s);
        if (!why)
            why = tree_differs(&s.tree, wanted, MODES_ALL, true);
        tree_release(&s.tree);
    }
    return why;
}

/* How many lines the log of an upload session has; its second is the key. */
static unsigned read_session_log(const char *path, char key[128])
{
    char line[256];
    unsigned lines = 0;
    FILE *f = fopen(path, "r");

    for (; f && fgets(line, sizeof(line), f); lines++)
        if (lines == 1)
            (void)snprintf(key, 128, "%.*s", (int)strcspn(line, "\n"), line);
    if (f)
        (void)fclose(f);
    return lines;
}

const char *stores_session_left(void)
{
    static char what[300];
    char path[700], key[128] = "?";
    struct stat st;
    glob_t found;

    *what = '\0';
    (void)snprintf(path, sizeof(path), "%s/%s%s.runfs/up-*", stores.url + strlen("file://"),
                   stores.prefix, stores.routes ? "-?" : "");
    if (glob(path, 0, NULL, &found) != 0)
        return NULL;
    for (size_t i = 0; i < found.gl_pathc && !*what; i++) {
        const char *name = found.gl_pathv[i];
        bool is_log = strstr(name, ".log") != NULL;
        unsigned lines = is_log ? read_session_log(name, key) : 0;
        if (lines > 2 || (!is_log && stat(name, &st) == 0 && st.st_size > 0))
            (void)snprintf(what, sizeof(what),
                           "an upload of %s that nobody will finish: %s, %u lines", key,
                           strrchr(name, '/') + 1, lines);
    }
    globfree(&found);
    return *what ? what : NULL;
}
