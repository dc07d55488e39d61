/* Whether the stores of a configuration can be reached, and do what runfs needs. What is tried
 * is tried on an object of our own, outside of the store's root, that is removed again: where
 * it stages, or among the objects of a store's state. Where a store has neither, and where the
 * mount would be read-only, nothing is written. */
#include "cli/check.h"

#include "cli/command.h"
#include "cli/control_io.h"
#include "cli/open_store.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define REMOVE_NS     (10 * NS_PER_SEC)
#define TRIED_CONTENT "runfs check --reach has tried this store; it can be removed\n"

enum probe { PROBE_CREATE, PROBE_MATCH, PROBE_LIST, PROBE_REMOVE, PROBES };
enum outcome { NOT_TRIED, WORKS, FAILS };

static const struct {
    const char *name, *field;
} probes[PROBES] = {
    [PROBE_CREATE] = {"exclusive create", "exclusive_create"},
    [PROBE_MATCH] = {"If-Match", "if_match"},
    [PROBE_LIST] = {"list after put", "list_after_put"},
    [PROBE_REMOVE] = {"remove", "remove"},
};

/* One store. */
struct trial {
    const struct checked *checked;
    const struct config_store *from;
    struct store *store;
    struct op op;
    char key[64];
    const char *dir;       /* of the key */
    const char *unwritten; /* why nothing was written; NULL: something was, or was to be */
    enum outcome outcome[PROBES];
    char *why[PROBES]; /* heap; of those that fail */
    int err;           /* out of reach; op.why */
};

/* ---- probes ---- */

static int put(struct trial *t, const char *etag, struct object *ret)
{
    struct mem_source src;

    mem_source_init(&src, TRIED_CONTENT, strlen(TRIED_CONTENT));
    return store_put(t->store, &t->op, t->key, etag, &src.base, NULL, ret);
}

static void fails(struct trial *t, enum probe p, const char *why)
{
    t->outcome[p] = FAILS;
    t->why[p] = strdup(why);
}

/* Judges the put that had to be refused. */
static void refused(struct trial *t, enum probe p, int r, const char *otherwise)
{
    if (r == -ESTALE)
        t->outcome[p] = WORKS;
    else
        fails(t, p, r < 0 ? t->op.why : otherwise);
}

static void try_create(struct trial *t, struct object *made)
{
    struct object again = {0};
    int r = put(t, "", made);

    if (r < 0) {
        fails(t, PROBE_CREATE, t->op.why);
        return;
    }
    r = put(t, "", &again);
    refused(t, PROBE_CREATE, r, "a second one replaced the first");
    if (r == 0) {
        object_release(made);
        *made = again;
    }
}

static void try_match(struct trial *t, struct object *made)
{
    struct object again = {0};
    int r;

    if (!store_can(t->store, t->key, STORE_IF_MATCH)) {
        fails(t, PROBE_MATCH, "this kind of store can't check a version");
        return;
    }
    r = put(t, "00000000000000000000000000000000", &again);
    refused(t, PROBE_MATCH, r, "a put for another version replaced the object");
    if (r == 0)
        object_release(&again);
    if (t->outcome[PROBE_MATCH] != WORKS)
        return;
    r = put(t, made->etag, &again);
    if (r < 0)
        fails(t, PROBE_MATCH, t->op.why);
    else
        object_release(&again);
}

static int is_it(void *arg, const char *name, const struct object *obj)
{
    (void)obj;
    return strcmp(name, arg) == 0;
}

static void try_list(struct trial *t)
{
    auto_free char *name = strdup(path_basename(t->key));
    int r = name ? store_list(t->store, &t->op, t->dir, 0, is_it, name)
                 : op_fail(&t->op, -ENOMEM, "out of memory");

    if (r > 0)
        t->outcome[PROBE_LIST] = WORKS;
    else
        fails(t, PROBE_LIST, r < 0 ? t->op.why : "the listing does not have the object yet");
}

/* Has its own time: what came before may have used it up, and nothing is to be left there. */
static void try_remove(struct trial *t)
{
    const char *key = t->key;
    struct op op;

    op_init(&op, REMOVE_NS);
    if (store_remove(t->store, &op, &key, NULL, 1, NULL) < 0)
        fails(t, PROBE_REMOVE, op.why);
    else
        t->outcome[PROBE_REMOVE] = WORKS;
}

/* Only reads. */
static int stop_at_first(void *arg, const char *name, const struct object *obj)
{
    (void)arg;
    (void)name;
    (void)obj;
    return 1;
}

static int try_root(struct trial *t)
{
    int r = store_list(t->store, &t->op, "", 0, stop_at_first, NULL);

    if (r < 0)
        fails(t, PROBE_LIST, t->op.why);
    return r;
}

/* On an object of its own in t->dir. */
static void try_object(struct trial *t)
{
    struct object made = {0};
    uint64_t random;

    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        fails(t, PROBE_CREATE, "no random numbers");
        return;
    }
    (void)snprintf(t->key, sizeof(t->key), "%s%scheck-%016" PRIx64, t->dir,
                   t->dir[0] ? "/" : "", random);
    try_create(t, &made);
    bool there = made.etag[0] || t->outcome[PROBE_CREATE] == WORKS;
    if (there) {
        try_match(t, &made);
        try_list(t);
    }
    try_remove(t); /* a put whose answer did not come may have worked */
    object_release(&made);
}

/* Where the store stages. */
static void try_aside(struct trial *t, const struct store_config *config)
{
    struct store *of = t->store;
    int r = store_open_trial(t->from->url, config, &t->op, &t->store);

    if (r == -EOPNOTSUPP)
        t->unwritten = t->op.why;
    else if (r < 0)
        fails(t, PROBE_CREATE, t->op.why);
    if (r == 0) {
        t->dir = "";
        try_object(t);
        store_close(t->store);
    }
    t->store = of;
}

static void try_all(struct trial *t, const struct store_config *config)
{
    /* A trial leaves no state folder behind, which would be closed to other users. */
    bool state =
        !store_has_trial(t->from->url) && store_can(t->store, STORE_STATE_DIR, STORE_STATE);

    if (t->checked->options.read_only)
        t->unwritten = "the mount would be read-only";
    if (state && !t->unwritten) {
        t->dir = STORE_STATE_DIR;
        try_object(t);
    } else if (try_root(t) >= 0 && !t->unwritten) {
        try_aside(t, config);
    }
}

/* ---- stores ---- */

static void try_store(struct trial *t)
{
    auto_free struct store_option *list = NULL;
    struct store_config config;

    op_init(&t->op, t->checked->options.mount_timeout_ns);
    t->err = store_settings(&t->from->settings, &t->op, &list, &config);
    if (t->err)
        return;
    config.connections = t->checked->options.connections;
    t->err = store_open(t->from->url, &config, &t->op, &t->store);
    if (t->err)
        return;
    op_init(&t->op, t->checked->options.mount_timeout_ns);
    try_all(t, &config);
    store_close(t->store);
}

/* ---- telling ---- */

static int code_of(const struct trial *t)
{
    for (size_t p = 0; p < PROBES; p++)
        if (t->outcome[p] == FAILS)
            return EXIT_FAILED;
    return t->err ? EXIT_FAILED : EXIT_OK;
}

static void say(const struct trial *t, const char *url)
{
    auto_buf struct buf works = BUF_INIT(256);

    if (t->err) {
        (void)command_failed("%s: %s: %s", t->from->name, url, t->op.why);
        return;
    }
    for (size_t p = 0; p < PROBES; p++) {
        if (t->outcome[p] == FAILS)
            (void)command_failed("%s: %s: %s fails: %s", t->from->name, url, probes[p].name,
                                 t->why[p] ? t->why[p] : "");
        else if (t->outcome[p] == WORKS)
            (void)buf_addf(&works, "%s%s", works.len ? ", " : "", probes[p].name);
    }
    if (works.len)
        command_say("%s: %s: reached; works: %s", t->from->name, url, works.data);
    else if (code_of(t) == EXIT_OK)
        command_say("%s: %s: reached; nothing was written, as %s", t->from->name, url,
                    t->unwritten);
}

static json_t *json_of(const struct trial *t, const char *url)
{
    json_t *j = json_pack("{s:o, s:o, s:b, s:o}", "name", control_text(t->from->name), "url",
                          control_text(url), "reached", t->err == 0, "error",
                          t->err ? control_text(t->op.why) : json_null());

    for (size_t p = 0; p < PROBES; p++) {
        auto_free char *field = NULL;

        (void)json_object_set_new(
            j, probes[p].field,
            t->outcome[p] == NOT_TRIED ? json_null() : json_boolean(t->outcome[p] == WORKS));
        if (t->outcome[p] == FAILS && asprintf(&field, "%s_error", probes[p].field) > 0)
            (void)json_object_set_new(j, field, control_text(t->why[p]));
    }
    return j;
}

static int reach_one(const struct checked *c, size_t i, json_t *to)
{
    struct trial t = {.checked = c, .from = &c->placed.config.stores[i]};
    auto_free char *url = NULL;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (store_url_of(&c->placed.where[i], "", NULL, &op, &url))
        return command_failed("%s", op.why);
    try_store(&t);
    if (to)
        (void)json_array_append_new(to, json_of(&t, url));
    else
        say(&t, url);
    for (size_t p = 0; p < PROBES; p++)
        free(t.why[p]);
    return code_of(&t);
}

int check_reach(const struct checked *c, bool json)
{
    auto_json json_t *list = json ? json_array() : NULL;
    int first = EXIT_OK;

    for (size_t i = 0; i < c->placed.config.n_stores; i++) {
        int code = config_store_used(&c->placed.config, i) ? reach_one(c, i, list) : EXIT_OK;

        if (first == EXIT_OK)
            first = code;
    }
    if (!json) {
        check_say_unused(c);
        return first;
    }
    auto_json json_t *all = json_pack("{s:O}", "stores", list);
    int code = command_answer_json(all);
    return first == EXIT_OK ? code : first;
}
