/* cache/: names are moved over one another and away at random, while the store takes no changes
 * and the daemon is killed now and then. In the end the store has what a local folder would,
 * and nothing beside it; no content was set aside.
 *
 * MOVES_SEED and MOVES_COUNT: other sequences than those of each day, and how many. MOVES_TELL:
 * the steps are told. */
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/driven.h"
#include "tests/lib/some.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT     40 /* sequences, unless told */
#define ROUNDS    4  /* at most, each of one daemon */
#define STEPS     120
#define NAMES_MAX 64
#define PATHS_MAX 48

static struct driven d;
static atomic_uint away; /* kinds of changes that the store does not take, as bits */

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (atomic_load(&away) & 1u << c->kind)
        return op_fail(c->op, -EHOSTUNREACH, "no answer");
    return call_next(c);
}

/* ---- what a folder would hold ---- */

struct name {
    char path[PATHS_MAX];
    unsigned content; /* its number; 0: a directory */
};

static struct name names[NAMES_MAX];
static size_t n_names;
static unsigned contents;
static uint64_t state;

static unsigned below(unsigned n)
{
    uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)((z ^ (z >> 31)) % n);
}

static struct name *at(const char *path)
{
    for (size_t i = 0; i < n_names; i++)
        if (strcmp(names[i].path, path) == 0)
            return &names[i];
    return NULL;
}

static bool is_empty(const char *path)
{
    for (size_t i = 0; i < n_names; i++) {
        const char *rest = path_below(path, names[i].path);
        if (rest && *rest)
            return false;
    }
    return true;
}

/* Whether there is a directory that the name is to be in. */
static bool has_parent(const char *path)
{
    auto_free char *parent = path_parent(path);

    return !parent || !*parent || (at(parent) && at(parent)->content == 0);
}

static void drop(struct name *n)
{
    *n = names[--n_names];
}

static void enter(const char *path, unsigned content)
{
    struct name *n = at(path);

    if (!n)
        n = &names[n_names++];
    ck_assert_uint_lt(n_names, NAMES_MAX);
    (void)snprintf(n->path, sizeof(n->path), "%s", path);
    n->content = content;
}

/* ---- steps ---- */

static void any_path(char *ret, bool dir)
{
    static const char *const dirs[] = {"a", "b", "a/b", "b/a", "a/b/c", "b/a/c", "e", "b/t"};
    const char *parent = dirs[below(dir ? 8 : 6)];

    if (dir)
        (void)snprintf(ret, PATHS_MAX, "%s", parent);
    else
        (void)snprintf(ret, PATHS_MAX, "%s%s%c", below(6) ? parent : "", "/", 'x' + below(3));
    if (*ret == '/')
        memmove(ret, ret + 1, strlen(ret));
}

static void told(const char *what, const char *from, const char *to, unsigned content)
{
    if (getenv("MOVES_TELL"))
        (void)fprintf(stderr, "%s %s %s %u\n", what, from, to, content);
}

static void write_file(const char *path)
{
    char text[16];

    if (!has_parent(path) || (at(path) && !at(path)->content))
        return;
    enter(path, ++contents);
    told("write", path, "", contents);
    (void)snprintf(text, sizeof(text), "%u", contents);
    driven_put(&d, path, text, strlen(text));
}

static void remove_name(const char *path)
{
    struct name *n = at(path);

    if (!n || !is_empty(path))
        return;
    told("remove", path, "", n->content);
    ck_assert_int_eq(n->content ? driven_unlink(&d, path) : driven_rmdir(&d, path), 0);
    drop(n);
}

static void make_dir(const char *path)
{
    if (!has_parent(path) || at(path))
        return;
    enter(path, 0);
    told("mkdir", path, "", 0);
    ck_assert_int_eq(driven_mkdir(&d, path), 0);
}

static void move(const char *from, const char *to)
{
    struct name *n = at(from), *over = at(to);

    if (!n || !has_parent(to) || path_below(from, to) || path_below(to, from))
        return;
    if (over && (!over->content != !n->content || !is_empty(to)))
        return;
    told("move", from, to, n->content);
    ck_assert_msg(driven_rename(&d, from, to) == 0, "%s to %s", from, to);
    if (over)
        drop(over);
    for (size_t i = 0; i < n_names; i++) {
        const char *rest = path_below(from, names[i].path);
        char moved[PATHS_MAX * 2];
        if (!rest)
            continue;
        (void)snprintf(moved, sizeof(moved), "%s%s%s", to, *rest ? "/" : "", rest);
        ck_assert_uint_lt(strlen(moved), PATHS_MAX);
        memcpy(names[i].path, moved, strlen(moved) + 1);
    }
}

static void take_step(void)
{
    bool dir = below(5) < 2;
    char from[PATHS_MAX], to[PATHS_MAX];

    any_path(from, dir);
    any_path(to, dir);
    switch (below(10)) {
    case 0:
        remove_name(from);
        break;
    case 1:
    case 2:
        write_file(to);
        break;
    case 3:
        any_path(to, true);
        make_dir(to);
        break;
    default:
        move(from, to);
        break;
    }
}

/* ---- the store in between ---- */

#define CHANGES                                                                                \
    (1u << CALL_PUT | 1u << CALL_COPY | 1u << CALL_RENAME | 1u << CALL_REMOVE |                \
     1u << CALL_MKDIR | 1u << CALL_RMDIR | 1u << CALL_SETATTR)

/* All changes, mostly; else some kinds of them. */
static void go_away(void)
{
    atomic_store(&away, below(3) ? CHANGES : CHANGES & below(1u << CALL_KINDS));
    told("away", "", "", atomic_load(&away));
}

static void show_all(void)
{
    char text[16];

    for (size_t i = 0; i < n_names; i++) {
        struct stat st;
        int r = driven_stat(&d, names[i].path, &st);
        ck_assert_msg(r == 0, "%s: %s", names[i].path, strerror(-r));
        (void)snprintf(text, sizeof(text), "%u", names[i].content);
        if (names[i].content)
            driven_shows(&d, names[i].path, text);
    }
}

static void run_daemon(void)
{
    go_away();
    for (unsigned steps = below(below(2) ? STEPS : STEPS / 3); steps; steps--) {
        take_step();
        if (below(30) == 0)
            go_away();
        if (below(20) == 0)
            (void)usleep(below(3000));
    }
    show_all();
}

static int count_stored(void *arg, const char *name, const struct object *obj)
{
    size_t *n = arg;

    if (obj->is_prefix || strncmp(name, ".runfs", 6) == 0)
        return 0;
    ck_assert_msg(at(name) && at(name)->content, "the store has %s", name);
    ++*n;
    return 0;
}

static void check_store(void)
{
    struct cache_stats stats;
    size_t files = 0, stored = 0;
    struct op op;
    char text[16];

    cache_get_stats(d.cache, &stats);
    ck_assert_uint_eq(stats.kept_files, 0);
    for (size_t i = 0; i < n_names; i++) {
        (void)snprintf(text, sizeof(text), "%u", names[i].content);
        if (names[i].content)
            driven_stores(&d, names[i].path, text);
        files += names[i].content != 0;
    }
    op_init(&op, 20 * NS_PER_SEC);
    ck_assert_int_eq(store_list(d.store, &op, "", LIST_RECURSIVE, count_stored, &stored), 0);
    ck_assert_uint_eq(stored, files);
}

static void begin(uint64_t seed)
{
    state = seed;
    n_names = 0;
    contents = 0;
    atomic_store(&away, 0);
    driven_init_like_s3(&d, around);
    d.config.settle_ns = 0;
    d.config.retry_ns = d.config.late_ns = 2 * NS_PER_MS;
    d.config.attr_timeout_ns = d.config.list_timeout_ns = 3600 * NS_PER_SEC;
    driven_mount(&d);
    for (int i = 0; i < 40; i++) {
        char path[PATHS_MAX];
        any_path(path, i < 20);
        if (i < 20)
            make_dir(path);
        else if (below(2))
            write_file(path);
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    if (below(2))
        driven_mount_afresh(&d);
}

static uint64_t number_of(const char *variable, uint64_t unless_told)
{
    const char *text = getenv(variable);

    return text ? strtoull(text, NULL, 10) : unless_told;
}

START_TEST(names_end_where_they_were_moved)
{
    uint64_t seed = number_of("MOVES_SEED", 20001) + (uint64_t)_i;

    (void)fprintf(stderr, "sequence %llu\n", (unsigned long long)seed);
    begin(seed);
    for (unsigned rounds = 1 + below(ROUNDS); rounds; rounds--) {
        run_daemon();
        if (rounds == 1 && below(2))
            break;
        told("kill", "", "", 0);
        driven_unmount(&d);
        driven_mount(&d);
        show_all();
    }
    atomic_store(&away, 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    check_store();
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_moves");
    TCase *t = tcase_create("cache_moves");

    tcase_set_timeout(t, 60);
    tcase_add_some_test(t, names_end_where_they_were_moved, 0,
                        (int)number_of("MOVES_COUNT", COUNT),
                        getenv("MOVES_COUNT") ? 1 : SOME_SEQUENCES);
    suite_add_tcase(s, t);
    return suite_run(s);
}
