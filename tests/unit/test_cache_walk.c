/* cache/: who walks a tree of many directories does not pay a round trip for each, and sees
 * what each one's own listing would have shown. pthread_mutex_lock() is ours, so that it can be
 * counted. */
#include "cache/mount.h"
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUNS  900
#define LARGE 1200

static atomic_uint lists, flat;    /* of all below */
static atomic_uint noted;          /* listings of the state, for notes of units */
static atomic_uint stats;          /* HEADs of files */
static atomic_uint marker_stats;   /* and of directories' markers */
static atomic_uint reads, written; /* of indexes */
static atomic_bool slow;           /* listings take a while */
static atomic_uint let_go; /* how often who writes an index let others go on before a put */
static struct driven d;

static int64_t counted_ns; /* since when all these are counted */

static _Thread_local unsigned locked; /* how often this thread has taken a lock */

int pthread_mutex_lock(pthread_mutex_t *m)
{
    static const struct timespec never = {.tv_sec = INT32_MAX};

    locked++;
    return pthread_mutex_timedlock(m, &never); /* lock() itself has this name now */
}

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    bool of_state = path_below(STORE_STATE_DIR, c->key);
    atomic_fetch_add(&noted, c->kind == CALL_LIST && of_state);
    atomic_fetch_add(&lists, c->kind == CALL_LIST && !of_state);
    atomic_fetch_add(&flat, c->kind == CALL_LIST && (c->flags & LIST_RECURSIVE));
    atomic_fetch_add(&stats, c->kind == CALL_STAT && !c->self);
    atomic_fetch_add(&marker_stats, c->kind == CALL_STAT && c->self);
    atomic_fetch_add(&reads, c->kind == CALL_READ);
    atomic_fetch_add(&written, c->kind == CALL_PUT && path_below(STORE_STATE_DIR, c->key));
    if (c->kind == CALL_LIST && atomic_load(&slow))
        (void)usleep(100000);
    if (c->kind == CALL_PUT && path_below(STORE_STATE_DIR, c->key) &&
        locked > atomic_load(&let_go))
        atomic_store(&let_go, locked);
    int64_t r = call_next(c);
    if (c->kind == CALL_LIST || c->kind == CALL_PUT)
        locked = 0;
    if (c->kind == CALL_STAT && r == 0) /* the objects are older than they are */
        c->ret_obj->told_ns += 10 * NS_PER_SEC;
    return r;
}

static void setup(void)
{
    atomic_store(&slow, false);
    driven_init_like_s3(&d, around);
    /* However long a walk takes. An index is written when it is asked for. */
    d.config.list_timeout_ns = d.config.attr_timeout_ns = 3600 * NS_PER_SEC;
    d.config.index_settle_ns = d.config.index_kept_ns = 3600 * NS_PER_SEC;
}

static void teardown(void)
{
    driven_release(&d);
}

static void store_run(int i)
{
    char key[64];

    (void)snprintf(key, sizeof(key), "runs/r%04d/checkpoint/model.pt", i);
    driven_store(&d, key, "content", 7);
    (void)snprintf(key, sizeof(key), "runs/r%04d/logs/out", i);
    driven_store(&d, key, "log", 3);
    (void)snprintf(key, sizeof(key), "runs/r%04d/metadata", i);
    driven_store(&d, key, "{}", 2);
}

static void count_from_here(void)
{
    atomic_store(&lists, 0);
    atomic_store(&noted, 0);
    atomic_store(&flat, 0);
    atomic_store(&stats, 0);
    atomic_store(&marker_stats, 0);
    atomic_store(&reads, 0);
    atomic_store(&written, 0);
    atomic_store(&let_go, 0);
    counted_ns = clock_mono_ns();
}

/* So often an index that is not there may be asked for: once a minute, as index.h has it. */
static unsigned looks_for_none(void)
{
    return 1 + (unsigned)((clock_mono_ns() - counted_ns) / (60 * NS_PER_SEC));
}

static void is_run(int i)
{
    struct stat st;
    char path[64];

    (void)snprintf(path, sizeof(path), "runs/r%04d", i);
    ck_assert_int_eq(driven_stat(&d, path, &st), 0);
    ck_assert_int_eq(driven_list(&d, path), 3);
    (void)snprintf(path, sizeof(path), "runs/r%04d/checkpoint", i);
    ck_assert_int_eq(driven_list(&d, path), 1);
    (void)snprintf(path, sizeof(path), "runs/r%04d/checkpoint/model.pt", i);
    ck_assert_int_eq(driven_stat(&d, path, &st), 0);
    ck_assert_int_eq(st.st_size, 7);
    (void)snprintf(path, sizeof(path), "runs/r%04d/logs", i);
    ck_assert_int_eq(driven_list(&d, path), 1);
    (void)snprintf(path, sizeof(path), "runs/r%04d/metadata", i);
    ck_assert_int_eq(driven_stat(&d, path, &st), 0);
    ck_assert_int_eq(st.st_size, 2);
}

START_TEST(one_request_tells_of_many)
{
    for (int i = 0; i < RUNS; i++)
        store_run(i);
    driven_mount(&d);
    count_from_here();
    ck_assert_int_eq(driven_list(&d, "runs"), RUNS);
    for (int i = 0; i < RUNS; i++)
        is_run(i);
    /* A page is a thousand keys; the first two runs are listed one by one. */
    ck_assert_uint_le(atomic_load(&lists), 2 + 2 * 3 + 3 * RUNS / 900 + 1);
    ck_assert_uint_le(atomic_load(&noted), atomic_load(&lists)); /* after each, at most */
    ck_assert_uint_le(atomic_load(&stats), 3 * RUNS + 3 * 3);    /* one for each file, ahead */
}
END_TEST

START_TEST(large_directories_are_listed_one_by_one)
{
    char key[64];

    for (int i = 0; i < 6; i++)
        for (int k = 0; k < LARGE; k++) {
            (void)snprintf(key, sizeof(key), "runs/r%d/f%04d", i, k);
            driven_store(&d, key, "", 0);
        }
    driven_mount(&d);
    count_from_here();
    for (int i = 0; i < 6; i++) {
        (void)snprintf(key, sizeof(key), "runs/r%d", i);
        ck_assert_int_eq(driven_list(&d, key), LARGE);
    }
    /* A lookup asks for a page, the listing for all; one more is tried in vain. */
    ck_assert_uint_le(atomic_load(&lists), 2 + 2 * 6 + 1);
}
END_TEST

/* What lies between two names in the order of keys, and a page that ends within a directory. */
START_TEST(it_shows_what_is_there)
{
    static const char *const others[] = {"runs/r0005",          "runs/r0005-old/x",
                                         "runs/r0005.bak/x",    "runs/r0005/checkpoint-1/x/y/z",
                                         "runs/r0010/logs/a/b", "runs/r0333/logs/in",
                                         "runs/plain"};
    static const char *const markers[] = {"runs/r0007", "runs/r0008/empty", "runs/r0009/logs"};
    struct stat st;
    struct op op;

    op_init(&op, 10 * NS_PER_SEC);
    for (int i = 0; i < 400; i++)
        store_run(i);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        driven_store(&d, others[i], "", 0);
    for (size_t i = 0; i < sizeof(markers) / sizeof(*markers); i++)
        ck_assert_int_eq(store_mkdir(d.store->next, &op, markers[i], NULL, NULL), 0);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "runs"), 403);
    for (int i = 0; i < 5; i++)
        is_run(i);
    ck_assert_int_eq(driven_list(&d, "runs/r0005"), 4);
    ck_assert_int_eq(driven_list(&d, "runs/r0005-old"), 1);
    ck_assert_int_eq(driven_list(&d, "runs/r0005.bak"), 1);
    ck_assert_int_eq(driven_stat(&d, "runs/r0005/checkpoint-1/x/y/z", &st), 0);
    is_run(6);
    is_run(7);
    ck_assert_int_eq(driven_list(&d, "runs/r0008"), 4);
    ck_assert_int_eq(driven_list(&d, "runs/r0008/empty"), 0);
    is_run(9);
    ck_assert_int_eq(driven_list(&d, "runs/r0010/logs"), 2);
    for (int i = 11; i < 333; i++)
        is_run(i);
    ck_assert_int_eq(driven_list(&d, "runs/r0333/logs"), 2);
    for (int i = 334; i < 400; i++)
        is_run(i);
}
END_TEST

/* What was done here counts, whatever the request tells. */
START_TEST(what_was_done_here_stays)
{
    struct stat st;

    for (int i = 0; i < 20; i++)
        store_run(i);
    driven_mount(&d);
    ck_assert_int_eq(driven_unlink(&d, "runs/r0005/metadata"), 0);
    driven_put(&d, "runs/r0006/logs/new", "new", 3);
    ck_assert_int_eq(driven_rename(&d, "runs/r0007", "runs/r0007b"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "runs/r0008b"), 0);
    for (int i = 0; i < 5; i++)
        is_run(i);
    ck_assert_int_eq(driven_list(&d, "runs/r0005"), 2);
    ck_assert_int_eq(driven_list(&d, "runs/r0006/logs"), 2);
    ck_assert_int_eq(driven_stat(&d, "runs/r0007", &st), -ENOENT);
    ck_assert_int_eq(driven_list(&d, "runs/r0007b"), 3);
    is_run(8);
    ck_assert_int_eq(driven_list(&d, "runs/r0008b"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_list(&d, "runs"), 21);
    ck_assert_int_eq(driven_list(&d, "runs/r0005"), 2);
    ck_assert_int_eq(driven_list(&d, "runs/r0007b"), 3);
}
END_TEST

/* ---- 30,000 objects ---- */

/* Under TSan, which takes its time, fewer: still more than are written at once, in several
 * parts. Programs that use fts(3) sort more than 10,000 names by inode number, APART of them
 * here; the cache does not look at how many there are. */
#ifdef __SANITIZE_THREAD__
#define MANY  4500
#define APART 2500
#else
#define MANY  10000
#define APART 11500
#endif
#define MANY_FILES 3
/* The root; the folder of the runs, of which a lookup asks for a page; the first two runs; then
 * a thousand keys at once, which are 333 runs and the beginning of another. */
#define MANY_LISTS (1 + 2 + 2 + (MANY + 332) / 333)

static const char *many_path(int run, int file)
{
    static char path[64];

    if (file < 0)
        (void)snprintf(path, sizeof(path), "runs/r%05d", run);
    else
        (void)snprintf(path, sizeof(path), "runs/r%05d/f%d", run, file);
    return path;
}

static mode_t many_mode(int run, int file)
{
    return S_IFREG | (0600 + (unsigned)(run + file) % 64);
}

/* Every third file is empty: only attributes tell that it is no symlink. Every second was put
 * by a tool that knows no attributes. */
static void store_many(void)
{
    for (int i = 0; i < MANY; i++)
        for (int k = 0; k < MANY_FILES; k++) {
            const struct attrs a = {.has = ATTR_MODE, .mode = many_mode(i, k)};
            driven_store_with(&d, many_path(i, k), "content", k ? 7 : 0, i % 2 ? &a : NULL);
        }
}

static void find_many(void)
{
    ck_assert_int_eq(driven_list(&d, "runs"), MANY);
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(driven_list(&d, many_path(i, -1)), MANY_FILES);
}

static void ls_lr_many(void)
{
    struct stat st;

    ck_assert_int_ge(driven_list(&d, "runs"), MANY);
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(driven_stat(&d, many_path(i, -1), &st), 0);
    for (int i = 0; i < MANY; i++) {
        ck_assert_int_eq(driven_list(&d, many_path(i, -1)), MANY_FILES);
        for (int k = 0; k < MANY_FILES; k++) {
            ck_assert_int_eq(driven_stat(&d, many_path(i, k), &st), 0);
            ck_assert_uint_eq(st.st_mode,
                              i % 2 ? many_mode(i, k) : S_IFREG | d.config.file_mode);
        }
    }
}

static void mount_many(bool state)
{
    d.config.list_memory_bytes = 1 << 30;
    if (!state)
        d.store->facts.caps &= ~(unsigned)STORE_STATE;
    store_many();
    driven_mount(&d);
    count_from_here();
}

START_TEST(find_over_many_without_an_index)
{
    mount_many(false);
    find_many();
    ck_assert_uint_eq(atomic_load(&lists), MANY_LISTS);
    ck_assert_uint_eq(atomic_load(&stats), MANY); /* of empty files */
    ck_assert_uint_eq(atomic_load(&reads), 0);
}
END_TEST

START_TEST(ls_lr_over_many_without_an_index)
{
    mount_many(false);
    ls_lr_many();
    ck_assert_uint_eq(atomic_load(&lists), MANY_LISTS);
    ck_assert_uint_eq(atomic_load(&stats), MANY * MANY_FILES); /* each once */
    ck_assert_uint_eq(atomic_load(&reads), 0);
}
END_TEST

/* The first walk pays, and writes; the later ones, of other mounts, ask for no file. */
START_TEST(walks_over_many_with_the_index)
{
    struct op op;

    mount_many(true);
    ls_lr_many();
    ck_assert_uint_eq(atomic_load(&lists), MANY_LISTS);
    ck_assert_uint_eq(atomic_load(&stats), MANY * MANY_FILES);
    ck_assert_uint_ge(atomic_load(&reads), 1);
    ck_assert_uint_le(atomic_load(&reads), looks_for_none());
    count_from_here();
    op_init(&op, 300 * NS_PER_SEC);
    cache_write_indexes(d.cache, &op);
    ck_assert_uint_le(atomic_load(&written), 20);
    ck_assert_uint_eq(atomic_load(&stats), 0);
    /* A part tells of some 2,700 directories: nobody waits for all of that. */
    unsigned times = atomic_load(&let_go);
    ck_assert_uint_ge(times, 100);
    for (int i = 0; i < 2; i++) {
        driven_mount_afresh(&d);
        count_from_here();
        if (i)
            find_many();
        else
            ls_lr_many();
        ck_assert_uint_eq(atomic_load(&lists), MANY_LISTS);
        /* The empty files of the two runs that were looked into before a walk was seen. */
        ck_assert_uint_eq(atomic_load(&stats), i ? 2 : 0);
        ck_assert_uint_le(atomic_load(&reads), MANY * MANY_FILES / 4096 + 2);
        op_init(&op, 300 * NS_PER_SEC);
        cache_write_indexes(d.cache, &op);
        ck_assert_uint_eq(atomic_load(&written), 0); /* nothing is new */
    }
}
END_TEST

/* ---- directories with attributes of their own ---- */

#define MARKED 1000
/* Two directories are listed alone before a walk is seen. */
#define MARKED_ALONE 2

static mode_t marked_mode(int i)
{
    return S_IFDIR | (0700 + (unsigned)i % 64);
}

static void store_marked(int i, mode_t mode, time_t mtime)
{
    const struct attrs a = {.has = ATTR_MODE | ATTR_OWNER | ATTR_MTIME,
                            .mode = mode,
                            .uid = 7,
                            .gid = 8,
                            .mtime_ns = mtime * NS_PER_SEC};
    struct op op;

    op_init(&op, 10 * NS_PER_SEC);
    ck_assert_int_eq(store_mkdir(d.store->next, &op, many_path(i, -1), &a, NULL), 0);
}

/* `other`: the one whose mode was changed. */
static void ls_lr_marked(int other)
{
    struct stat st;

    ck_assert_int_eq(driven_list(&d, "runs"), MARKED);
    for (int i = 0; i < MARKED; i++) {
        ck_assert_int_eq(driven_stat(&d, many_path(i, -1), &st), 0);
        ck_assert_uint_eq(st.st_mode, i == other ? S_IFDIR | 0711 : marked_mode(i));
        ck_assert_uint_eq(st.st_uid, 7);
        ck_assert_uint_eq(st.st_gid, 8);
        ck_assert_int_eq(st.st_mtim.tv_sec, 1500000000 + i);
        ck_assert_int_eq(driven_list(&d, many_path(i, -1)), i % 2);
    }
}

static void write_indexes(void)
{
    struct op op;

    op_init(&op, 300 * NS_PER_SEC);
    cache_write_indexes(d.cache, &op);
}

/* The first walk pays a HEAD for each, and the index tells the later ones, on other mounts:
 * also when the directories' own times have moved there, and until a marker changes. */
START_TEST(the_index_tells_of_markers)
{
    for (int i = 0; i < MARKED; i++) {
        store_marked(i, marked_mode(i), 1500000000 + i);
        if (i % 2)
            driven_store(&d, many_path(i, 0), "content", 7);
    }
    driven_mount(&d);
    count_from_here();
    ls_lr_marked(-1);
    ck_assert_uint_eq(atomic_load(&marker_stats), MARKED);
    driven_put(&d, "runs/r00500/here", "x",
               1); /* its time moves, that of its marker does not */
    ck_assert_int_eq(driven_unlink(&d, "runs/r00500/here"), 0);
    write_indexes();
    ck_assert_uint_ge(atomic_load(&written), 1);
    for (int turn = 0; turn < 2; turn++) {
        driven_mount_afresh(&d);
        count_from_here();
        ls_lr_marked(-1);
        ck_assert_uint_le(atomic_load(&marker_stats), MARKED_ALONE);
        ck_assert_uint_le(atomic_load(&reads), 2);
        write_indexes();
        ck_assert_uint_eq(atomic_load(&written), 0); /* nothing is new */
    }
    (void)usleep(1100000); /* a marker's change is told by its second */
    store_marked(300, S_IFDIR | 0711, 1500000300);
    driven_mount_afresh(&d);
    count_from_here();
    ls_lr_marked(300);
    ck_assert_uint_le(atomic_load(&marker_stats), MARKED_ALONE + 1);
}
END_TEST

/* Who made the directories knows their attributes, and notes them: nobody pays. */
START_TEST(the_index_tells_of_directories_made_here)
{
    struct stat st;

    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "runs"), 0);
    for (int i = 0; i < MARKED; i++) {
        ck_assert_int_eq(driven_mkdir(&d, many_path(i, -1)), 0);
        if (i % 3)
            ck_assert_int_eq(driven_chmod(&d, many_path(i, -1), marked_mode(i) & 07777), 0);
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    /* What is still on its way is changed once more. */
    ck_assert_int_eq(driven_chmod(&d, many_path(1, -1), 0777), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    count_from_here();
    write_indexes();
    ck_assert_uint_ge(atomic_load(&written), 1);
    ck_assert_uint_eq(atomic_load(&marker_stats), 0);
    driven_mount_afresh(&d);
    count_from_here();
    ck_assert_int_eq(driven_list(&d, "runs"), MARKED);
    for (int i = 0; i < MARKED; i++) {
        ck_assert_int_eq(driven_stat(&d, many_path(i, -1), &st), 0);
        mode_t made = S_IFDIR | 0755;
        ck_assert_uint_eq(st.st_mode, i == 1 ? S_IFDIR | 0777 : i % 3 ? marked_mode(i) : made);
    }
    ck_assert_uint_le(atomic_load(&marker_stats), MARKED_ALONE);
    /* Nobody else's are taken for them. */
    (void)usleep(1100000);
    store_marked(300, S_IFDIR | 0711, 1500000300);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_list(&d, "runs"), MARKED);
    for (int i = 0; i < MARKED; i++)
        ck_assert_int_eq(driven_stat(&d, many_path(i, -1), &st), 0);
    ck_assert_int_eq(driven_stat(&d, many_path(300, -1), &st), 0);
    ck_assert_uint_eq(st.st_mode, S_IFDIR | 0711);
}
END_TEST

/* ---- in no order ---- */

#define APART_ALONE 8 /* before it is seen */
#define APART_RUN   333
#define APART_LISTS (1 + 2 + APART_ALONE + (APART + APART_RUN - 1) / APART_RUN)

static struct visited {
    int run;
    ino_t ino;
} apart[APART];

static int by_ino(const void *a, const void *b)
{
    const struct visited *x = a, *y = b;

    return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static void shuffle(unsigned seed)
{
    for (int i = APART - 1; i > 0; i--) {
        seed = seed * 1103515245 + 12345;
        SWAP(apart[i], apart[seed / 65536 % (unsigned)(i + 1)]);
    }
}

static void mount_apart(bool state)
{
    d.config.list_memory_bytes = 1 << 30;
    if (!state)
        d.store->facts.caps &= ~(unsigned)STORE_STATE;
    for (int i = 0; i < APART; i++)
        for (int k = 0; k < MANY_FILES; k++)
            driven_store(&d, many_path(i, k), "content", 7);
    driven_mount(&d);
    count_from_here();
}

/* In the order of `apart` where the inode numbers are not asked for, as find(1) does. */
static void find_apart(bool by_number, bool stats_dirs)
{
    struct stat st;

    ck_assert_int_eq(driven_list(&d, "runs"), APART);
    for (int i = 0; i < APART; i++) {
        apart[i] = (struct visited){.run = i};
        char key[64];
        (void)snprintf(key, sizeof(key), "%s", many_path(i, -1));
        apart[i].ino = ino_of_place(d.cache, place_of_path(key), true);
    }
    shuffle(7);
    if (by_number)
        qsort(apart, APART, sizeof(*apart), by_ino);
    for (int i = 0; i < APART; i++) {
        const char *path = many_path(apart[i].run, -1);
        if (stats_dirs) {
            ck_assert_int_eq(driven_stat(&d, path, &st), 0);
            ck_assert_uint_eq(st.st_ino, apart[i].ino);
        }
        ck_assert_int_eq(driven_list(&d, path), MANY_FILES);
    }
}

START_TEST(in_no_order_a_run_of_names_is_told_at_once)
{
    mount_apart(_i & 2);
    find_apart(_i & 1, _i & 2);
    /* Before it is seen, three in order may be taken for another walk. */
    ck_assert_uint_ge(atomic_load(&lists), APART_LISTS);
    ck_assert_uint_le(atomic_load(&lists), APART_LISTS + (_i & 1 ? APART_ALONE / 2 : 0));
    ck_assert_uint_eq(atomic_load(&stats), 0);
    /* The parts of the index may be read for each request, where there are any. */
    ck_assert_uint_le(atomic_load(&reads), _i & 2 ? looks_for_none() : 0);
}
END_TEST

/* The attributes of all files, once from HEADs and once from the index. */
START_TEST(in_no_order_the_index_is_used)
{
    struct stat st;
    struct op op;

    mount_apart(true);
    for (int turn = 0; turn < 2; turn++) {
        find_apart(true, true);
        for (int i = 0; i < APART; i++)
            for (int k = 0; k < MANY_FILES; k++)
                ck_assert_int_eq(driven_stat(&d, many_path(apart[i].run, k), &st), 0);
        ck_assert_uint_le(atomic_load(&lists), APART_LISTS + APART_ALONE / 2);
        /* At most the files of the directories that were listed before a walk was seen. */
        if (turn)
            ck_assert_uint_le(atomic_load(&stats), APART_ALONE * MANY_FILES);
        else
            ck_assert_uint_eq(atomic_load(&stats), APART * MANY_FILES);
        ck_assert_uint_le(atomic_load(&reads), APART_LISTS);
        op_init(&op, 300 * NS_PER_SEC);
        cache_write_indexes(d.cache, &op);
        driven_mount_afresh(&d);
        count_from_here();
    }
}
END_TEST

/* Several threads share what each asks for. */
static void *list_some(void *arg)
{
    char path[64];
    int begin = *(int *)arg;

    for (int i = begin; i < APART; i += 4) {
        (void)snprintf(path, sizeof(path), "runs/r%05d", apart[i].run);
        ck_assert_int_eq(driven_list(&d, path), MANY_FILES);
    }
    return NULL;
}

START_TEST(in_no_order_threads_share_requests)
{
    pthread_t threads[4];
    int begin[4] = {0, 1, 2, 3};

    mount_apart(false);
    ck_assert_int_eq(driven_list(&d, "runs"), APART);
    for (int i = 0; i < APART; i++)
        apart[i] = (struct visited){.run = i};
    shuffle(3);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, list_some, &begin[i]), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    /* What was under way when it was seen is on top. */
    ck_assert_uint_le(atomic_load(&lists), 2 * APART_LISTS);
}
END_TEST

/* Who looks into the same few of many again and again gets a listing of each in the end, and no
 * thousand keys around them. */
START_TEST(a_few_of_many_are_listed_alone)
{
    char path[64];
    int turn = 0;

    d.config.list_timeout_ns = 1;
    for (int i = 0; i < 16000; i++) {
        (void)snprintf(path, sizeof(path), "runs/r%05d/f%d", i / 10, i % 10);
        driven_store(&d, path, "content", 7);
    }
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "runs"), 1600);
    do {
        count_from_here();
        for (int i = 0; i < 16; i++) { /* each in another run of names */
            (void)snprintf(path, sizeof(path), "runs/r%05d", i * 7 % 16 * 100 + 7);
            ck_assert_int_eq(driven_list(&d, path), 10);
        }
        (void)usleep(210000); /* what is told is believed for so long at least */
        ck_assert_int_le(turn++, 40);
    } while (atomic_load(&flat) > 0 || turn < 3);
    ck_assert_uint_le(atomic_load(&lists), 2 * 16);
}
END_TEST

static void *walk_many(void *arg)
{
    (void)arg;
    ls_lr_many();
    return NULL;
}

/* Somebody walks, and somebody else asks for one name far ahead: he does not wait for all that
 * lies between. */
START_TEST(a_walk_holds_nobody_up)
{
    pthread_t walker;
    struct stat st;

    driven_store(&d, "runs/z/f", "content", 7);
    mount_many(false);
    atomic_store(&slow, true);
    ck_assert_int_eq(pthread_create(&walker, NULL, walk_many, NULL), 0);
    DRIVEN_WAIT(atomic_load(&lists) > 8);
    unsigned before = atomic_load(&lists);
    ck_assert_int_eq(driven_stat(&d, "runs/z/f", &st), 0);
    ck_assert_uint_le(atomic_load(&lists), before + MANY_LISTS / 2);
    atomic_store(&slow, false);
    ck_assert_int_eq(pthread_join(walker, NULL), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_walk");
    TCase *t = tcase_create("walk");

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, one_request_tells_of_many);
    tcase_add_test(t, large_directories_are_listed_one_by_one);
    tcase_add_test(t, it_shows_what_is_there);
    tcase_add_test(t, what_was_done_here_stays);
    tcase_add_test(t, find_over_many_without_an_index);
    tcase_add_test(t, ls_lr_over_many_without_an_index);
    tcase_add_test(t, walks_over_many_with_the_index);
    tcase_add_test(t, a_walk_holds_nobody_up);
    tcase_add_test(t, the_index_tells_of_markers);
    tcase_add_test(t, the_index_tells_of_directories_made_here);
    tcase_add_loop_test(t, in_no_order_a_run_of_names_is_told_at_once, 0, 4);
    tcase_add_test(t, in_no_order_the_index_is_used);
    tcase_add_test(t, in_no_order_threads_share_requests);
    tcase_add_test(t, a_few_of_many_are_listed_alone);
    suite_add_tcase(s, t);
    return suite_run(s);
}
