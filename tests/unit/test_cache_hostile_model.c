/* Random changes over several stores, with kills and stores that are down; then all is stored.
 */
#include "tests/lib/routed_cache.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct routed_row layout[] = {
    {.path = "a/**", .leaf = 0},
    {.path = "b/**", .leaf = 1},
    {.path = "r/{x}/c/**", .key = "rc/{x}/**", .leaf = 0},
    {.path = "r/{x}/l/**", .key = "rl/{x}/**", .leaf = 1},
    {.path = "**", .leaf = 2},
};

static const char *const files[] = {"a/0",     "a/1",     "b/0",     "b/1",     "r/0/c/f",
                                    "r/0/c/g", "r/0/l/f", "r/1/c/f", "r/1/l/f", "r/1/l/g"};
static const char *const dirs[] = {"a",     "b",   "r",     "r/0",  "r/0/c",
                                   "r/0/l", "r/1", "r/1/c", "r/1/l"};
#define FILES (sizeof(files) / sizeof(*files))
#define DIRS  (sizeof(dirs) / sizeof(*dirs))

static struct routed_world w;
static char content[FILES][16]; /* "": none */
static bool dir_is[DIRS];
static unsigned seed;
static int _i_seed;
static unsigned pick(unsigned n)
{
    return (unsigned)rand_r(&seed) % n;
}
static bool verbose;
#define SAY(...) (verbose ? (void)fprintf(stderr, __VA_ARGS__) : (void)0)

static int find_dir(const char *p)
{
    for (size_t i = 0; i < DIRS; i++)
        if (strcmp(dirs[i], p) == 0)
            return (int)i;
    return -1;
}

static void put_file(size_t i, unsigned n)
{
    char text[16];
    struct handle *h = NULL;
    (void)snprintf(text, sizeof(text), "v%u", n);
    int r = driven_open(&w.d, files[i], O_CREAT | O_WRONLY | O_TRUNC, &h);
    SAY("put %s %s: %d\n", files[i], text, r);
    if (r < 0)
        return;
    ck_assert_int_eq(driven_write(&w.d, h, text, strlen(text), 0), 0);
    ck_assert_int_eq(driven_close(&w.d, h), 0);
    strcpy(content[i], text);
}

static void move_dir(const char *from, const char *to)
{
    int r = driven_rename(&w.d, from, to);
    SAY("mvdir %s %s: %d\n", from, to, r);
    if (r)
        return;
    if (strcmp(from, to) == 0)
        return;
    size_t len = strlen(from);
    for (size_t i = 0; i < FILES; i++) {
        if (strncmp(files[i], from, len) || files[i][len] != '/' || !*content[i])
            continue;
        char moved[32];
        (void)snprintf(moved, sizeof(moved), "%s%s", to, files[i] + len);
        size_t k = 0;
        while (k < FILES && strcmp(files[k], moved))
            k++;
        ck_assert_msg(k < FILES, "%s", moved);
        memmove(content[k], content[i], sizeof(content[k]));
        *content[i] = '\0';
    }
    for (size_t i = 0; i < DIRS; i++) {
        if (strncmp(dirs[i], from, len) || (dirs[i][len] && dirs[i][len] != '/'))
            continue;
        char moved[32];
        (void)snprintf(moved, sizeof(moved), "%s%s", to, dirs[i] + len);
        int k = find_dir(moved);
        dir_is[k] = dir_is[k] || dir_is[i];
        dir_is[i] = false;
    }
}

static void swap_dirs(void)
{
    int r = driven_exchange(&w.d, "r/0", "r/1");
    SAY("exchange r/0 r/1: %d\n", r);
    if (r)
        return;
    char t[16];
    for (size_t i = 0; i < FILES; i++)
        for (size_t k = i + 1; k < FILES; k++)
            if (!strncmp(files[i], "r/0", 3) && !strncmp(files[k], "r/1", 3) &&
                !strcmp(files[i] + 3, files[k] + 3)) {
                strcpy(t, content[i]);
                strcpy(content[i], content[k]);
                strcpy(content[k], t);
            }
    for (int i = 0; i < 3; i++) {
        bool b = dir_is[3 + i];
        dir_is[3 + i] = dir_is[6 + i];
        dir_is[6 + i] = b;
    }
}

static bool exchange_safe(void)
{
    /* g has no twin in this table */
    return !*content[5] && !*content[9];
}

/* ---- the changes ---- */

static void move_file(size_t from, size_t to)
{
    int r = from != to ? driven_rename(&w.d, files[from], files[to]) : -EEXIST;

    SAY("mv %s %s: %d\n", files[from], files[to], r);
    if (r < 0)
        return;
    ck_assert_msg(*content[from], "%s was not there", files[from]);
    memmove(content[to], content[from], sizeof(content[to]));
    *content[from] = '\0';
}

static void remove_file(size_t i)
{
    int r = driven_unlink(&w.d, files[i]);

    SAY("rm %s: %d\n", files[i], r);
    if (r == 0)
        *content[i] = '\0';
}

static void move_a_dir(bool replaces_itself)
{
    const char *from = pick(2) ? "r/0" : "r/1";

    if (exchange_safe())
        move_dir(from, replaces_itself || strcmp(from, "r/0") != 0 ? "r/0" : "r/1");
}

static void make_dirs(void)
{
    for (size_t d = 0; d < DIRS; d++)
        if (driven_mkdir(&w.d, dirs[d]) == 0)
            dir_is[d] = true;
}

static void remove_dir(void)
{
    size_t d = 3 + pick(6);
    int r = driven_rmdir(&w.d, dirs[d]);

    SAY("rmdir %s: %d\n", dirs[d], r);
    if (r == 0)
        dir_is[d] = false;
}

static void turn_a_store(void)
{
    unsigned leaf = pick(2);

    atomic_store(&w.leaves[leaf].down, pick(2));
    SAY("leaf %u down %d\n", leaf, (int)atomic_load(&w.leaves[leaf].down));
}

static void kill_and_mount(void)
{
    SAY("kill\n");
    driven_unmount(&w.d);
    atomic_store(&w.fuse, -1);
    driven_mount(&w.d);
}

/* The next kill comes after so many changes. */
static void light_fuse(void)
{
    atomic_store(&w.fuse, (int)pick(6));
    SAY("fuse %d\n", atomic_load(&w.fuse));
}

static void evict(void)
{
    struct cache_evicted e;
    struct op op;

    op_init(&op, NS_PER_SEC);
    int r = cache_evict_path(w.d.cache, pick(2) ? "" : dirs[pick(DIRS)], &op, NULL, NULL, &e);
    SAY("evict: %d, %d files\n", r, (int)e.files);
}

static void ask_where(size_t i)
{
    struct op op;
    char url[256];

    op_init(&op, 300 * NS_PER_MS);
    int r = cache_stored_path(w.d.cache, files[i], &op);
    (void)driven_getxattr(&w.d, files[i], "user.runfs.url", url, sizeof(url));
    SAY("stored %s: %d\n", files[i], r);
}

/* Files come and go more often than the rest. */
static void change_file(unsigned n)
{
    size_t i = pick(FILES), k = pick(FILES);

    switch (pick(8)) {
    case 0:
    case 1:
    case 2:
        put_file(i, n);
        break;
    case 3:
    case 4:
    case 5:
        move_file(i, k);
        break;
    case 6:
        remove_file(i);
        break;
    default:
        ask_where(i);
    }
}

static void change_more(void)
{
    switch (pick(9)) {
    case 0:
    case 1:
        move_a_dir(pick(2));
        break;
    case 2:
        if (exchange_safe())
            swap_dirs();
        break;
    case 3:
        make_dirs();
        break;
    case 4:
        turn_a_store();
        break;
    case 5:
        kill_and_mount();
        break;
    case 6:
        remove_dir();
        break;
    case 7:
        evict();
        break;
    default:
        light_fuse();
    }
}

static void step(unsigned n)
{
    if (pick(17) < 8)
        change_file(n);
    else
        change_more();
    if (pick(3) == 0)
        (void)usleep(pick(30) * 1000);
}

/* All stores answer, though a busy machine may take longer than a question may. */
static ssize_t read_at_last(const char *path, char *buf, size_t size)
{
    ssize_t n;

    do
        n = driven_read(&w.d, path, buf, size);
    while (n == -ETIMEDOUT);
    return n;
}

static void check(const char *when)
{
    char buf[16];
    for (size_t i = 0; i < FILES; i++) {
        ssize_t n = read_at_last(files[i], buf, sizeof(buf));
        if (*content[i])
            ck_assert_msg(n == (ssize_t)strlen(content[i]) &&
                              !memcmp(buf, content[i], (size_t)n),
                          "seed %d, %s: %s is %zd %.*s, not %s", _i_seed, when, files[i], n,
                          n > 0 ? (int)n : 0, buf, content[i]);
        else
            ck_assert_msg(n == -ENOENT, "seed %d, %s: %s is %zd %.*s, not gone", _i_seed, when,
                          files[i], n, n > 0 ? (int)n : 0, buf);
    }
}

static void story(int s, enum routed_kind kind)
{
    seed = (unsigned)s;
    _i_seed = s;
    memset(content, 0, sizeof(content));
    memset(dir_is, 0, sizeof(dir_is));
    routed_init(&w, layout, 4 + (s & 1), kind);
    w.d.config.list_timeout_ns = 600 * NS_PER_SEC;
    w.d.config.ask_timeout_ns = 100 * NS_PER_MS;
    driven_mount(&w.d);
    for (size_t d = 0; d < DIRS; d++)
        dir_is[d] = driven_mkdir(&w.d, dirs[d]) == 0;
    for (unsigned n = 0; n < 60; n++)
        step(n);
    for (int i = 0; i < ROUTED_LEAVES; i++)
        atomic_store(&w.leaves[i].down, false);
    SAY("end\n");
    if (s & 2) {
        driven_unmount(&w.d);
        atomic_store(&w.fuse, -1);
        driven_mount(&w.d);
    }
    atomic_store(&w.fuse, -1);
    ck_assert_msg(driven_flush(&w.d) == 0, "seed %d: flush", s);
    check("here");
    driven_mount_afresh(&w.d);
    check("stored");
    routed_release(&w);
}

START_TEST(random_changes)
{
    const char *one = getenv("SEED");
    verbose = one != NULL;
    if (one)
        story(atoi(one), (enum routed_kind)(atoi(one) % 3));
    else
        story(_i, (enum routed_kind)(_i % 3));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hostile_model");
    TCase *t = tcase_create("random");
    const char *n = getenv("SEEDS"), *one = getenv("SEED");

    suite_add_tcase(s, t);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, random_changes, 0, one ? 1 : n ? atoi(n) : 60);
    return suite_run(s);
}
