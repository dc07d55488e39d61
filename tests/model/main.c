/* crash_model STORE_URL DIR SEED COUNT [ROUNDS]
 * Runs COUNT sequences of random operations, each in ROUNDS processes that are killed (at a
 * random moment, at a random crash point, at the end) and followed by one that recovers. What
 * the cache shows after each recovery must be what a local folder would hold; after a flush so
 * must the store, and a cache that begins empty. Prints each sequence that fails; exits with 1
 * when one did. */
#include "cache/mirror/crash.h"
#include "common/log.h"
#include "common/mem.h"
#include "runs/policy.h"
#include "tests/model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 8
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
    "setattr-stamped",      "truncate-complete",  "truncate-emptied", "truncate-stamped",
    "upload-leased",        "unlink-mirror",      "unlink-row",       "upload-committed",
    "upload-keys",          "upload-stamped",     "utimens-moved",    "upload-looked",
    "link-ready",           "create-placed",      "truncate-placed",  "exchange-placed",
    "session-noted",        "session-begun",      "upload-session",   "session-resumed",
    "upload-parts",         "session-committed",  "session-ended",
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
static char root[256];
static bool routed, trace;

enum ending { END_KILLED, END_POINT, END_LAST, END_THAW, END_STOPPED, ENDINGS };

struct round {
    const struct tree *candidates;
    size_t n_candidates;
    struct plan plan[2]; /* from each of the candidates */
    enum ending ending;
    bool frozen, passthrough;
    bool small;     /* the cache: content is evicted */
    bool few;       /* descriptors: open files lose theirs */
    bool parts;     /* what is larger than a few bytes goes in parts */
    bool relists;   /* what is known of the store is believed for a moment only */
    bool renames;   /* routed: new files wait for their rename */
    bool units;     /* routed: what is below the first name is published as a whole */
    bool lingers;   /* steps are made slowly, so that others come in between */
    unsigned point; /* END_POINT: which */
    char crash_at[48];
};

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

static void use_routes(struct cache_config *config, const struct round *r)
{
    static char name[] = "plain", unit[] = "entry", done[] = "[1-3]", pointer[] = "[e-g]";
    static struct policy plain = {.name = name,
                                  .interval_ns = POLICY_UNSET,
                                  .settle_ns = POLICY_UNSET,
                                  .durability = POLICY_UNSET};
    static struct cache_store names[ROUTED_STORES];

    config->routes = stores.routes;
    if (!config->routes)
        return;
    for (size_t i = 0; i < ROUTED_STORES; i++)
        names[i] = (struct cache_store){.name = routed_names[i], .url = stores.url};
    plain.upload = r->renames ? UPLOAD_RENAME : UPLOAD_CLOSE;
    plain.unit = r->units ? unit : NULL;
    plain.unit_idle_ns = 20 * NS_PER_MS;
    plain.unit_done = done;
    plain.unit_pointer = pointer;
    config->policies = &plain;
    config->n_policies = 1;
    config->stores = names;
    config->n_stores = ROUTED_STORES;
}

static void mount_cache(struct mounted *m, const struct round *r)
{
    struct cache_config config;
    static char dir[300], identity[80];
    struct op op;

    cache_config_init(&config);
    (void)snprintf(dir, sizeof(dir), "%s/cache", root);
    (void)snprintf(identity, sizeof(identity), "model %s", stores.prefix);
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
    use_routes(&config, r);
    op_init(&op, 20 * NS_PER_SEC);
    memset(m, 0, sizeof(*m));
    crash_watch(r->lingers ? linger : NULL);
    if (cache_new(&config, stores_open(r->parts), &op, &m->cache) < 0)
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

/* Which of the trees that the round before may have left is there. Two that show the same
 * differ in which names are of one file. */
static int recognise(struct mounted *m, const struct tree *candidates, size_t n, bool content)
{
    struct tree found;
    const char *differs = NULL;
    char why[1024] = "";
    int matched = -1;
    int r = mounted_read(m, &found, content);

    if (r < 0)
        fail("after a recovery", strerror(-r));
    for (size_t i = 0; i < n; i++) {
        differs = tree_differs(&found, &candidates[i], MODES_ALL, false);
        if (!differs && (matched < 0 || !tree_links_agree(&found, &candidates[matched])))
            matched = (int)i;
        if (!differs)
            continue;
        size_t len = strlen(why);
        (void)snprintf(why + len, sizeof(why) - len, "%s%s", len ? "; or: " : "", differs);
    }
    if (matched < 0)
        fail("after a recovery", why);
    tree_release(&found);
    return matched;
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

    for (int i = 0; i < 20 && stores.errors && is_in_the_way(r); i++) {
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
        bool told = stores.errors && (r == -EIO || is_in_the_way(r)) &&
                    (p->step[i].kind == OP_CLOSE || p->step[i].kind == OP_FSYNC);
        if (r == p->step[i].refused || told)
            continue;
        (void)snprintf(what, sizeof(what), "step %zu (%s)", i, p->step[i].path);
        fail(what, r ? strerror(-r) : "was not refused");
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
    for (int i = 0; i < 300 && stores_are_folders() && stores_session_left(); i++)
        (void)usleep(100000);
    stop_cache(&m);
    const char *differs = stores_differ(&r->candidates[matched]);
    if (differs)
        fail("in the store", differs);
    const char *left = stores_are_folders() ? stores_session_left() : NULL;
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
            strncmp(stores.url, "s3:", 3) == 0 ? MODES_OF_FILES : MODES_STORED);
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
    (void)printf("FAILED: sequence %llu (%s), round %u: %s\n", (unsigned long long)seed,
                 stores.prefix, n, shared->why);
    for (unsigned i = 0; i <= n; i++) {
        struct round *r = &rounds[i];
        (void)printf(" round %u%s%s%s%s%s%s%s%s%s ending %d %s\n", i,
                     r->frozen ? " frozen" : "", r->passthrough ? " passthrough" : "",
                     r->small ? " small" : "", r->few ? " few" : "", r->parts ? " parts" : "",
                     r->relists ? " relists" : "", r->renames ? " renames" : "",
                     r->units ? " units" : "", r->lingers ? " lingers" : "", r->ending,
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
    r->renames = routed && rng_below(rng, 2) == 0;
    r->units = routed && rng_below(rng, 2) == 0;
    size_t steps = 1 + rng_below(rng, rng_below(rng, 3) ? 12 : OPS_MAX);
    if (stores.moves) {
        r->frozen = rng_below(rng, 4) > 0;
        r->small = r->relists = false;
        steps = OPS_MAX - rng_below(rng, OPS_MAX / 2);
    }
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
    stores.routes = routed ? routed_table(seed) : NULL;
    routed_begin(&candidates[0][0]);
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
    stores.url = argv[1];
    unsigned long long seed = strtoull(argv[3], NULL, 10);
    n = (unsigned)strtoul(argv[4], NULL, 10);
    unsigned rounds = argc > 5 ? (unsigned)strtoul(argv[5], NULL, 10) : 3;
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    stores.native = getenv("MODEL_NATIVE_RENAME") != NULL;
    stores.errors = getenv("MODEL_ERRORS") != NULL;
    stores.moves = getenv("MODEL_MOVES") != NULL;
    routed = getenv("MODEL_ROUTED") != NULL;
    trace = getenv("MODEL_TRACE") != NULL;
    log_set_level(getenv("MODEL_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
    shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    stores.frozen = &shared->frozen;
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(root, sizeof(root), "%s/%llu", argv[2], seed + i);
        (void)snprintf(stores.prefix, sizeof(stores.prefix), "m%llu", seed + i);
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
