/* crash_model STORE_URL DIR SEED COUNT [ROUNDS]
 * Runs COUNT sequences of random operations, each in ROUNDS processes that are killed (at a
 * random moment, at a random crash point, at the end) and followed by one that recovers. What
 * the cache shows after each recovery must be what a local folder would hold; after a flush so
 * must the store, and a cache that begins empty. Prints each sequence that fails; exits with 1
 * when one did. */
#include "backends/layers/layer.h"
#include "backends/store.h"
#include "cache/mirror/crash.h"
#include "common/log.h"
#include "common/mem.h"
#include "tests/model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 8
#define PART       64
#define FEW_FDS    3

#define SESSION_POINTS 7 /* the last ones */

static const char *const points[] = {
    "close-stamped",        "complete-data",      "complete-mtime",   "create-made",
    "create-stamped",       "delete-done",        "delete-noted",     "discard-orphaned",
    "evict-discarded",      "exchange-mirror",    "exchange-rows",    "link-made",
    "materialise-incoming", "materialise-linked", "mkdir-done",       "mkdir-made",
    "mkdir-stamped",        "open-stamped",       "orphan-moved",     "rename-copied",
    "rename-mirror",        "rename-noted",       "rename-row",       "renamedir-copied",
    "renamedir-native",     "renamedir-noted",    "rmdir-mirror",     "rmdir-row",
    "setattr-stamped",      "truncate-complete",  "truncate-emptied", "unlink-mirror",
    "unlink-row",           "upload-committed",   "upload-keys",      "upload-stamped",
    "utimens-moved",        "upload-looked",      "link-ready",       "create-placed",
    "truncate-placed",      "exchange-placed",    "session-noted",    "session-begun",
    "upload-session",       "session-resumed",    "upload-parts",     "session-committed",
    "session-ended",
};

static unsigned reached[ARRAY_SIZE(points)]; /* how often a process died there */

/* What the processes of a sequence share. */
struct shared {
    atomic_int frozen;
    atomic_int matched; /* which of the candidates the recovered tree is; -1 none */
    atomic_uint started, done;
    atomic_int ended; /* the last process did all it had to */
    char why[1024];
};

static struct shared *shared;
static const char *store_url;
static char root[256], prefix[64];
static bool native, errors, trace;

enum ending { END_KILLED, END_POINT, END_LAST, END_THAW, END_STOPPED, ENDINGS };

struct round {
    const struct tree *candidates;
    size_t n_candidates;
    struct plan plan[2]; /* from each of the candidates */
    enum ending ending;
    bool frozen, passthrough;
    bool small;     /* the cache: content is evicted */
    bool few;       /* descriptors: open files lose theirs */
    bool parts;     /* what is larger than PART goes in parts */
    bool relists;   /* what is known of the store is believed for a moment only */
    bool lingers;   /* steps are made slowly, so that others come in between */
    unsigned point; /* END_POINT: which */
    char crash_at[48];
};

/* ---- the store, slowed down and stopped ---- */

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
    while (atomic_load(&shared->frozen)) {
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
    unsigned luck = errors && changes(c->kind) ? rng_below(&rng, often) : 2;
    if (luck == 0)
        return op_fail(c->op, -EIO, "%s %s: a failure of the model", call_name(c->kind),
                       c->key);
    int64_t done = call_next(c);
    if (luck == 1 && done == 0 && c->ret_obj)
        object_release(c->ret_obj);
    if (luck == 1)
        done = op_fail(c->op, -EIO, "%s %s: a lost answer", call_name(c->kind), c->key);
    if (rng_below(&rng, 4) == 0)
        (void)op_sleep(c->op, rng_below(&rng, 2000) * 1000);
    while (atomic_load(&shared->frozen))
        if (op_sleep(c->op, 2 * NS_PER_MS) < 0)
            break;
    return done;
}

static bool is_folder(void)
{
    return strncmp(store_url, "file:", 5) == 0;
}

static struct store *open_store(bool parts)
{
    struct store_option options[4];
    const char *endpoint = getenv("RUNFS_TEST_S3_ENDPOINT");
    struct store_config config = {.options = options};
    struct store *driver = NULL;
    struct layer *l = calloc(1, sizeof(*l));
    char url[512];
    struct op op;

    if (endpoint)
        options[config.n_options++] = (struct store_option){"endpoint", endpoint};
    (void)snprintf(url, sizeof(url), "%s/%s", store_url, prefix);
    op_init(&op, 10 * NS_PER_SEC);
    if (strncmp(store_url, "s3:", 3) != 0) {
        char dir[600];
        (void)snprintf(dir, sizeof(dir), "%s", url + (strncmp(url, "file://", 7) == 0 ? 7 : 0));
        (void)mkdir(dir, 0755);
    }
    if (store_open(url, &config, &op, &driver) < 0) {
        (void)fprintf(stderr, "%s\n", op.why);
        _exit(2);
    }
    /* A folder can be asked for parts of any one size; S3 takes no small ones. */
    for (struct store *s = driver; s && parts && is_folder(); s = s->next)
        s->facts.part_size = s->facts.part_min = s->facts.part_max = PART;
    if (!l || layer_init(l, driver, slow_around) < 0)
        abort();
    if (!native)
        l->base.facts.caps &= ~(unsigned)STORE_RENAME;
    return &l->base;
}

/* ---- a process of the sequence ---- */

static void fail(const char *what, const char *why)
{
    (void)snprintf(shared->why, sizeof(shared->why), "%s: %s", what, why);
    if (getenv("MODEL_STOP"))
        (void)raise(SIGSTOP);
    _exit(1);
}

/* Now and then a thread rests between two of its steps. */
static void linger(const char *point)
{
    static atomic_uint passed;
    struct rng rng = {atomic_fetch_add(&passed, 1) + (unsigned)*point};

    (void)rng_next(&rng);
    if (rng_below(&rng, 3) == 0)
        (void)usleep(rng_below(&rng, 20000));
}

static void mount_cache(struct mounted *m, const struct round *r)
{
    struct cache_config config;
    static char dir[300], identity[80];
    struct op op;

    cache_config_init(&config);
    (void)snprintf(dir, sizeof(dir), "%s/cache", root);
    (void)snprintf(identity, sizeof(identity), "model %s", prefix);
    config.dir = dir;
    config.identity = identity;
    config.size_bytes = r->small ? UINT64_C(24) << 10 : UINT64_C(1) << 30;
    config.reserve_bytes = 1;
    config.settle_ns = 0;
    config.late_ns = 0; /* over S3 a last request of a process that died may still arrive */
    config.upload_interval_ns = 0;
    config.attr_timeout_ns = config.list_timeout_ns = r->relists ? 0 : 3600 * NS_PER_SEC;
    config.passthrough = r->passthrough;
    config.mirror_fds = r->few ? FEW_FDS : 0;
    config.uid = config.gid = 0;
    op_init(&op, 20 * NS_PER_SEC);
    memset(m, 0, sizeof(*m));
    crash_watch(r->lingers ? linger : NULL);
    if (cache_new(&config, open_store(r->parts), &op, &m->cache) < 0)
        fail("the cache does not open", op.why);
}

static void must_be(struct mounted *m, const char *when, const struct tree *wanted,
                    enum modes modes)
{
    struct tree found;
    int r = mounted_read(m, &found, true);

    if (r < 0)
        fail(when, strerror(-r));
    const char *differs = tree_differs(&found, wanted, modes, false);
    if (differs)
        fail(when, differs);
    tree_release(&found);
}

/* Which of the trees that the round before may have left is there. */
static int recognise(struct mounted *m, const struct tree *candidates, size_t n, bool content)
{
    struct tree found;
    const char *differs = NULL;
    char why[1024] = "";
    int r = mounted_read(m, &found, content);

    if (r < 0)
        fail("after a recovery", strerror(-r));
    for (size_t i = 0; i < n; i++) {
        differs = tree_differs(&found, &candidates[i], MODES_ALL, false);
        if (!differs) {
            tree_release(&found);
            return (int)i;
        }
        size_t len = strlen(why);
        (void)snprintf(why + len, sizeof(why) - len, "%s%s", len ? "; or: " : "", differs);
    }
    fail("after a recovery", why);
    return -1;
}

/* A removal that was refused leaves what it should have removed. */
static bool is_in_the_way(int r)
{
    return r == -EISDIR || r == -ENOTDIR || r == -ENOTEMPTY || r == -EEXIST;
}

/* A removal that was refused is tried again later than what it is in the way of, which is told
 * to the one who flushes. */
static int flush_all(struct mounted *m)
{
    struct step flush = {.kind = OP_FLUSH};
    int r = mounted_do(m, &flush);

    for (int i = 0; i < 20 && errors && is_in_the_way(r); i++) {
        (void)usleep(500000);
        r = mounted_do(m, &flush);
    }
    return r;
}

static void do_steps(struct mounted *m, const struct plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        char what[300];
        atomic_store(&shared->started, (unsigned)i + 1);
        if (trace) {
            (void)fprintf(stderr, "%zu", i);
            step_print(stderr, &p->step[i]);
        }
        int r = p->step[i].kind == OP_FLUSH ? flush_all(m) : mounted_do(m, &p->step[i]);
        atomic_store(&shared->done, (unsigned)i + 1);
        /* That an upload failed is told once, and the upload tried again. */
        bool told = errors && (r == -EIO || is_in_the_way(r)) &&
                    (p->step[i].kind == OP_CLOSE || p->step[i].kind == OP_FSYNC);
        if (r == 0 || told)
            continue;
        (void)snprintf(what, sizeof(what), "step %zu (%s)", i, p->step[i].path);
        fail(what, strerror(-r));
    }
}

static void stop_cache(struct mounted *m)
{
    mounted_close_all(m);
    cache_stop(m->cache);
    cache_free(m->cache);
}

static void run_round(struct round *r)
{
    struct mounted m;

    mount_cache(&m, r);
    int matched = recognise(&m, r->candidates, r->n_candidates, true);
    atomic_store(&shared->matched, matched);
    struct plan *p = &r->plan[matched];
    if (*r->crash_at)
        crash_arm(r->crash_at);
    if (r->frozen)
        atomic_store(&shared->frozen, 1);
    do_steps(&m, p);
    if (r->frozen || r->ending == END_THAW)
        must_be(&m, "at once", &p->tree[p->n], MODES_ALL);
    if (r->ending == END_THAW) {
        atomic_store(&shared->frozen, 0);
        mounted_close_all(&m);
        int e = flush_all(&m);
        if (e < 0)
            fail("flush in the same process", strerror(-e));
        must_be(&m, "after a flush in the same process", &p->tree[p->n], MODES_ALL);
    }
    if (r->ending == END_STOPPED) {
        atomic_store(&shared->frozen, 0);
        stop_cache(&m);
    }
    if (r->ending == END_POINT && r->point >= ARRAY_SIZE(points) - SESSION_POINTS) {
        atomic_store(&shared->frozen, 0);
        mounted_close_all(&m);
        (void)flush_all(&m); /* uploads are what is to be interrupted */
    }
    if (r->ending == END_POINT || r->ending == END_KILLED) {
        const struct timespec ts = {.tv_nsec = 20 * 1000 * 1000};
        (void)nanosleep(&ts, NULL);
    }
    atomic_store(&shared->ended, 1);
    (void)raise(SIGKILL);
}

struct stored {
    struct tree tree;
    char names[NAMES_MAX][PATH_MAX_MODEL];
    uint64_t size[NAMES_MAX];
    size_t n;
};

static int take_stored(void *arg, const char *name, const struct object *obj)
{
    struct stored *s = arg;

    if (obj->is_prefix || s->n == NAMES_MAX)
        return 0;
    (void)snprintf(s->names[s->n], PATH_MAX_MODEL, "%s", name);
    s->size[s->n++] = obj->size;
    return 0;
}

static void store_must_be(const struct tree *wanted)
{
    struct store *store = open_store(false);
    static struct stored s;
    struct op op;

    op_init(&op, 30 * NS_PER_SEC);
    int r = store_list(store, &op, "", LIST_RECURSIVE, take_stored, &s);
    for (size_t i = 0; i < s.n && r == 0; i++) {
        struct object obj = {0};
        struct mem_sink sink;
        char data[DATA_MAX] = {0};
        mem_sink_init(&sink, data, sizeof(data), 0);
        r = store_stat(store, &op, s.names[i], &obj);
        bool link = r == 0 && (obj.attrs.has & ATTR_MODE) && S_ISLNK(obj.attrs.mode);
        ssize_t len = 0;
        if (r == 0 && !link && s.size[i])
            len = store_read(store, &op, s.names[i], NULL, &sink.base, (size_t)s.size[i], 0,
                             NULL);
        r = r == 0 && len < 0 ? (int)len : r;
        if (r == 0)
            (void)tree_add(&s.tree, s.names[i], link ? KIND_LINK : KIND_FILE,
                           obj.attrs.mode & 07777, link ? obj.attrs.target : data,
                           link ? strlen(obj.attrs.target) : (size_t)len);
        object_release(&obj);
    }
    if (r < 0)
        fail("the store can't be read", op.why);
    const char *differs = tree_differs(&s.tree, wanted, MODES_ALL, true);
    if (differs)
        fail("in the store", differs);
    store_close(store);
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

/* A part of an upload session that is left in the folder's state, or NULL: staged bytes, or a
 * log with more than its head of two lines. Static. */
static const char *session_left(void)
{
    static char what[300];
    char path[700], key[128] = "?";
    struct stat st;
    glob_t found;

    *what = '\0';
    (void)snprintf(path, sizeof(path), "%s/%s.runfs/up-*", store_url + strlen("file://"),
                   prefix);
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

/* The last process: recovers, publishes, and looks at the store. */
static void run_last(struct round *r)
{
    struct mounted m;

    mount_cache(&m, r);
    int matched = recognise(&m, r->candidates, r->n_candidates, true);
    atomic_store(&shared->matched, matched);
    int e = flush_all(&m);
    if (e < 0)
        fail("flush", strerror(-e));
    must_be(&m, "after the flush", &r->candidates[matched], MODES_ALL);
    /* Nobody waits for the end of those, and one that was refused is tried again. */
    for (int i = 0; i < 300 && is_folder() && session_left(); i++)
        (void)usleep(100000);
    stop_cache(&m);
    store_must_be(&r->candidates[matched]);
    const char *left = is_folder() ? session_left() : NULL;
    if (left)
        fail("in the store", left);
    atomic_store(&shared->ended, 1);
    _exit(0);
}

static void run_cold(struct round *r)
{
    struct mounted m;

    mount_cache(&m, r);
    /* An object store tells the mode of a directory to nobody who only lists. */
    must_be(&m, "with an empty cache", &r->candidates[0],
            strncmp(store_url, "s3:", 3) == 0 ? MODES_OF_FILES : MODES_ALL);
    stop_cache(&m);
    atomic_store(&shared->ended, 1);
    _exit(0);
}

/* ---- the sequence ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)ftw;
    return type == FTW_DP ? rmdir(path) : unlink(path);
}

static void remove_tree(const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Whether the process ended as it was meant to. */
static bool run_process(void (*run)(struct round *), struct round *r, int64_t kill_after_ns)
{
    atomic_store(&shared->frozen, 0);
    atomic_store(&shared->matched, -1);
    atomic_store(&shared->started, 0);
    atomic_store(&shared->done, 0);
    atomic_store(&shared->ended, 0);
    shared->why[0] = '\0';
    pid_t pid = fork();
    if (pid == 0) {
        run(r);
        _exit(3);
    }
    if (kill_after_ns) {
        int64_t until = clock_mono_ns() + 30 * NS_PER_SEC;
        /* The recovery is not what is to be interrupted at random; the steps are. */
        while (atomic_load(&shared->matched) < 0 && clock_mono_ns() < until) {
            const struct timespec ts = {.tv_nsec = 500 * 1000};
            if (waitpid(pid, NULL, WNOHANG | WNOWAIT) == pid)
                break;
            siginfo_t info = {0};
            if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                info.si_pid)
                break;
            (void)nanosleep(&ts, NULL);
        }
        const struct timespec ts = {.tv_sec = kill_after_ns / NS_PER_SEC,
                                    .tv_nsec = kill_after_ns % NS_PER_SEC};
        (void)nanosleep(&ts, NULL);
        (void)kill(pid, SIGKILL);
    }
    int status = 0;
    (void)waitpid(pid, &status, 0);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return true;
    if (!shared->why[0])
        (void)snprintf(shared->why, sizeof(shared->why), "the process ended with status 0x%x",
                       status);
    return false;
}

static void report(uint64_t seed, struct round *rounds, unsigned n, const int *chosen)
{
    (void)printf("FAILED: sequence %llu (%s), round %u: %s\n", (unsigned long long)seed, prefix,
                 n, shared->why);
    for (unsigned i = 0; i <= n; i++) {
        struct round *r = &rounds[i];
        (void)printf(" round %u%s%s%s%s%s%s%s ending %d %s\n", i, r->frozen ? " frozen" : "",
                     r->passthrough ? " passthrough" : "", r->small ? " small" : "",
                     r->few ? " few" : "", r->parts ? " parts" : "",
                     r->relists ? " relists" : "", r->lingers ? " lingers" : "", r->ending,
                     r->crash_at);
        if (chosen[i] < 0)
            continue;
        tree_print(stdout, &r->candidates[chosen[i]]);
        for (size_t k = 0; k < r->plan[chosen[i]].n; k++)
            step_print(stdout, &r->plan[chosen[i]].step[k]);
    }
    (void)fflush(stdout);
}

static void round_make(struct round *r, struct rng *rng, const struct tree *candidates,
                       size_t n_candidates)
{
    memset(r, 0, sizeof(*r));
    r->candidates = candidates;
    r->n_candidates = n_candidates;
    r->frozen = rng_below(rng, 3) == 0;
    r->passthrough = rng_below(rng, 2);
    r->small = !r->frozen && rng_below(rng, 3) == 0;
    r->relists = !r->frozen && rng_below(rng, 2) == 0;
    r->ending = (enum ending)rng_below(rng, ENDINGS);
    r->parts = rng_below(rng, 3) > 0;
    r->lingers = rng_below(rng, 2);
    r->few = rng_below(rng, 3) == 0;
    size_t steps = 1 + rng_below(rng, rng_below(rng, 3) ? 12 : OPS_MAX);
    struct rng same = *rng;
    for (size_t i = 0; i < n_candidates; i++) {
        *rng = same;
        plan_make(&r->plan[i], &candidates[i], rng, steps, r->frozen);
    }
    if (r->ending != END_POINT)
        return;
    /* Most files are too small for parts: what there is of them counts more. */
    r->point = r->parts && rng_below(rng, 3) == 0
                   ? ARRAY_SIZE(points) - 1 - rng_below(rng, SESSION_POINTS)
                   : rng_below(rng, ARRAY_SIZE(points));
    (void)snprintf(r->crash_at, sizeof(r->crash_at), "%s:%u", points[r->point],
                   1 + rng_below(rng, 3) / 2);
}

static bool run_sequence(uint64_t seed, unsigned n_rounds)
{
    struct rng rng = {.state = seed * 2654435761u + 1};
    static struct round rounds[ROUNDS_MAX + 2];
    static struct tree candidates[ROUNDS_MAX + 3][2];
    int chosen[ROUNDS_MAX + 2];
    size_t n_candidates = 1;
    bool ok = true;
    unsigned i;

    memset(candidates, 0, sizeof(candidates));
    for (i = 0; i < ROUNDS_MAX + 2; i++)
        chosen[i] = -1;
    for (i = 0; i < n_rounds && ok; i++) {
        struct round *r = &rounds[i];
        round_make(r, &rng, candidates[i], n_candidates);
        int64_t delay = r->ending == END_KILLED ? 1 + rng_below(&rng, 15) * NS_PER_MS : 0;
        ok = run_process(run_round, r, delay);
        int matched = chosen[i] = atomic_load(&shared->matched);
        if (!ok)
            break;
        if (matched < 0) { /* killed before it had looked: the same candidates again */
            for (size_t k = 0; k < n_candidates; k++)
                tree_copy(&candidates[i + 1][k], &candidates[i][k]);
            continue;
        }
        if (r->ending == END_POINT && !atomic_load(&shared->ended))
            reached[r->point]++;
        unsigned started = atomic_load(&shared->started), done = atomic_load(&shared->done);
        struct plan *p = &r->plan[matched];
        tree_copy(&candidates[i + 1][0], &p->tree[done]);
        tree_close_all(&candidates[i + 1][0]);
        n_candidates = 1;
        if (started > done) {
            tree_copy(&candidates[i + 1][1], &p->tree[started]);
            tree_close_all(&candidates[i + 1][1]);
            n_candidates = 2;
        }
    }
    unsigned last = i;
    if (ok) {
        struct round *r = &rounds[last];
        memset(r, 0, sizeof(*r));
        r->candidates = candidates[last];
        r->n_candidates = n_candidates;
        ok = run_process(run_last, r, 0);
        chosen[last] = atomic_load(&shared->matched);
        if (ok) {
            remove_tree("cache");
            if (chosen[last] == 1)
                r->candidates = &candidates[last][1];
            ok = run_process(run_cold, r, 0);
            chosen[last] = 0;
        }
    }
    if (!ok)
        report(seed, rounds, last, chosen);
    for (i = 0; i <= last; i++)
        for (size_t k = 0; k < 2; k++) {
            if (i < n_rounds)
                plan_release(&rounds[i].plan[k]);
            tree_release(&candidates[i][k]);
        }
    return ok;
}

int main(int argc, char **argv)
{
    unsigned failed = 0, n;

    if (argc < 5) {
        (void)fprintf(stderr, "usage: %s STORE_URL DIR SEED COUNT [ROUNDS]\n", argv[0]);
        return 2;
    }
    store_url = argv[1];
    unsigned long long seed = strtoull(argv[3], NULL, 10);
    n = (unsigned)strtoul(argv[4], NULL, 10);
    unsigned rounds = argc > 5 ? (unsigned)strtoul(argv[5], NULL, 10) : 3;
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    native = getenv("MODEL_NATIVE_RENAME") != NULL;
    errors = getenv("MODEL_ERRORS") != NULL;
    trace = getenv("MODEL_TRACE") != NULL;
    log_set_level(getenv("MODEL_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
    shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(root, sizeof(root), "%s/%llu", argv[2], seed + i);
        (void)snprintf(prefix, sizeof(prefix), "m%llu", seed + i);
        if (mkdir(root, 0700) < 0 && errno != EEXIST) {
            perror(root);
            return 2;
        }
        if (!run_sequence(seed + i, rounds))
            failed++;
        if (!getenv("MODEL_KEEP"))
            remove_tree("");
    }
    (void)printf("died at:");
    for (size_t i = 0; i < ARRAY_SIZE(points); i++)
        if (reached[i])
            (void)printf(" %s %u", points[i], reached[i]);
    (void)printf("\n%u sequences, %u failed\n", n, failed);
    return failed ? 1 : 0;
}
