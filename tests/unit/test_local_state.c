/* Objects of our own beside a folder: where they lie, whose folder is believed, and that
 * nothing leads out of it. What holds for every kind of store is in
 * tests/contract/contract_state.c. */
#include "backends/drivers.h"
#include "common/mem.h"
#include "tests/lib/suite.h"
#include "tests/lib/temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE (60 * NS_PER_SEC)
#define USER     4711

/* ---- a filesystem that can do less, as NFS ---- */

static atomic_bool no_replace; /* knows no RENAME_NOREPLACE */
static atomic_bool no_locks;   /* locks of one machine say nothing to others */
static atomic_bool loses_word; /* a link is made, and answered with EEXIST */

static void (*_Atomic before_rename)(void);
static atomic_uint renames;

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    void (*before)(void) = atomic_exchange(&before_rename, NULL);

    atomic_fetch_add(&renames, 1);
    if (before)
        before();
    if (flags && atomic_load(&no_replace)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    int r = (int)syscall(SYS_linkat, from_fd, from, to_fd, to, flags);

    if (r == 0 && atomic_load(&loses_word)) {
        errno = EEXIST;
        return -1;
    }
    return r;
}

int flock(int fd, int operation)
{
    return atomic_load(&no_locks) ? 0 : (int)syscall(SYS_flock, fd, operation);
}

/* ---- a folder, and what is beside it ---- */

static char parent[PATH_MAX], folder[PATH_MAX + 16], beside[PATH_MAX + 32];
static struct op op;

static void setup(void)
{
    char base[PATH_MAX];

    temp_dir_make(parent, sizeof(parent));
    (void)snprintf(base, sizeof(base), "%s", parent);
    *strrchr(base, '/') = '\0';
    ck_assert(chmod(base, 0755) == 0 && chmod(parent, 0755) == 0); /* for other users, too */
    (void)snprintf(folder, sizeof(folder), "%s/store", parent);
    (void)snprintf(beside, sizeof(beside), "%s.runfs", folder);
    ck_assert_int_eq(mkdir(folder, 0755), 0);
    op_init(&op, PATIENCE);
}

static void teardown(void)
{
    atomic_store(&no_replace, false);
    atomic_store(&no_locks, false);
    atomic_store(&loses_word, false);
    temp_dir_remove(parent);
}

static struct store *open_store(void)
{
    struct store *s = NULL;
    int r = local_store_new(folder, NULL, &op, &s);

    ck_assert_msg(r == 0, "%s: %d %s", folder, r, op.why);
    return s;
}

static int put(struct store *s, const char *key, const char *etag)
{
    struct mem_source src;

    mem_source_init(&src, "text", 4);
    return store_put(s, &op, key, etag, &src.base, NULL, NULL);
}

static ssize_t get(struct store *s, const char *key)
{
    struct mem_sink sink;
    char buf[16];

    mem_sink_init(&sink, buf, sizeof(buf), 0);
    return store_read(s, &op, key, NULL, &sink.base, sizeof(buf), 0, NULL);
}

static int count(void *arg, const char *name, const struct object *obj)
{
    (void)name, (void)obj;
    ++*(unsigned *)arg;
    return 0;
}

static int list(struct store *s, const char *key, unsigned *ret_n)
{
    *ret_n = 0;
    return store_list(s, &op, key, LIST_RECURSIVE, count, ret_n);
}

static int drop(struct store *s, const char *key)
{
    return store_remove(s, &op, &key, NULL, 1, NULL);
}

#define ok(expression)                                                                         \
    do {                                                                                       \
        int ok_r_ = (int)(expression);                                                         \
        ck_assert_msg(ok_r_ == 0, "%s: %d %s", #expression, ok_r_, op.why);                    \
    } while (0)

#define fails(error, expression)                                                               \
    do {                                                                                       \
        int fails_r_ = (int)(expression);                                                      \
        ck_assert_msg(fails_r_ == -(error), "%s: %d, not -%s; %s", #expression, fails_r_,      \
                      #error, op.why);                                                         \
    } while (0)

__attribute__((format(printf, 1, 2))) static char *path(const char *format, ...)
{
    static char text[8][2 * PATH_MAX];
    static unsigned next;
    char *ret = text[next++ % 8];
    va_list ap;

    va_start(ap, format);
    (void)vsnprintf(ret, sizeof(text[0]), format, ap);
    va_end(ap);
    return ret;
}

static bool is_there(const char *name)
{
    struct stat st;

    return lstat(name, &st) == 0;
}

static mode_t mode_of(const char *name)
{
    struct stat st;

    ck_assert_msg(stat(name, &st) == 0, "%s: %s", name, strerror(errno));
    return st.st_mode & 07777;
}

static void write_file(const char *name, const char *text)
{
    auto_close int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    ck_assert_msg(fd >= 0, "%s: %s", name, strerror(errno));
    ck_assert_int_eq(write(fd, text, strlen(text)), strlen(text));
}

/* No word of what is there is believed, and nothing is put there. */
static void assert_stateless(const char *why)
{
    struct store *s = open_store();
    unsigned n;

    ck_assert(!store_can(s, STORE_STATE_DIR "/x", STORE_STATE));
    fails(EPERM, put(s, STORE_STATE_DIR "/new", ""));
    if (why)
        ck_assert_msg(strstr(op.why, why) != NULL, "%s", op.why);
    fails(ENOENT, get(s, STORE_STATE_DIR "/note"));
    fails(ENOENT, list(s, STORE_STATE_DIR, &n));
    ck_assert_uint_eq(n, 0);
    store_close(s);
}

START_TEST(state_is_beside_the_folder)
{
    struct store *s = open_store();
    struct object obj;
    unsigned n;

    ck_assert(store_can(s, STORE_STATE_DIR "/x", STORE_STATE));
    fails(ENOENT, store_stat(s, &op, STORE_STATE_DIR, &obj));
    fails(ENOENT, get(s, STORE_STATE_DIR "/units/a/open"));
    (void)list(s, STORE_STATE_DIR "/units", &n);
    ck_assert(!is_there(beside)); /* who only asks makes nothing */
    ok(put(s, STORE_STATE_DIR "/units/a/open", ""));
    ok(put(s, STORE_STATE_DIR "/units/b/open", ""));
    ck_assert(is_there(path("%s/state/units/a/open", beside)));
    ck_assert(!is_there(path("%s/.runfs", folder)));
    ok(list(s, "", &n));
    ck_assert_uint_eq(n, 0);
    ok(store_stat(s, &op, STORE_STATE_DIR, &obj));
    ck_assert(obj.is_prefix);
    object_release(&obj);
    ok(drop(s, STORE_STATE_DIR "/units/a/open"));
    ck_assert(!is_there(path("%s/state/units/a", beside)));
    ck_assert(is_there(path("%s/state/units/b", beside)));
    ok(drop(s, STORE_STATE_DIR "/units/b/open"));
    ck_assert(!is_there(path("%s/state/units", beside)));
    ck_assert(is_there(path("%s/state", beside)));

    /* The directory of all of it is no key. */
    fails(EPERM, put(s, STORE_STATE_DIR, NULL));
    fails(EPERM, store_mkdir(s, &op, STORE_STATE_DIR, NULL, NULL));
    ok(store_rmdir(s, &op, STORE_STATE_DIR));
    fails(ENOENT, store_rename(s, &op, STORE_STATE_DIR, "mine"));
    ck_assert(is_there(path("%s/state", beside)));
    ok(put(s, "object", NULL));
    fails(EPERM, store_rename(s, &op, "object", STORE_STATE_DIR));
    store_close(s);
}
END_TEST

/* A killed process left a directory, or a name that is too long was asked for. */
START_TEST(what_is_empty_goes_with_the_next_removal)
{
    struct store *s = open_store();
    char name[301];

    memset(name, 'n', 300);
    name[300] = '\0';
    ok(put(s, STORE_STATE_DIR "/a/b/c/note", NULL));
    ck_assert_int_eq(unlink(path("%s/state/a/b/c/note", beside)), 0);
    ok(drop(s, STORE_STATE_DIR "/a/b/c/note"));
    ck_assert(!is_there(path("%s/state/a", beside)));
    fails(ENAMETOOLONG, put(s, path("%s/%s", STORE_STATE_DIR, name), NULL));
    fails(ENOENT, get(s, path("%s/%s", STORE_STATE_DIR, name)));
    ok(drop(s, path("%s/%s", STORE_STATE_DIR, name)));
    store_close(s);
}
END_TEST

static struct store *racing;
static pthread_t remover;

static void *remove_last(void *arg)
{
    const char *key = STORE_STATE_DIR "/dir/last";
    struct op own;

    op_init(&own, PATIENCE);
    *(int *)arg = store_remove(racing, &own, &key, NULL, 1, NULL);
    return NULL;
}

static int removed;

static void remove_beside(void)
{
    ck_assert_int_eq(pthread_create(&remover, NULL, remove_last, &removed), 0);
    (void)usleep(200000);
}

/* What is put finds the directory that it is put into. */
START_TEST(a_removal_waits_for_what_comes_into_its_directory)
{
    racing = open_store();
    ok(put(racing, STORE_STATE_DIR "/dir/last", NULL));
    atomic_store(&renames, 0);
    atomic_store(&before_rename, remove_beside);
    ok(put(racing, STORE_STATE_DIR "/dir/new", NULL));
    ck_assert_int_eq(pthread_join(remover, NULL), 0);
    ck_assert_int_eq(removed, 0);
    ck_assert_uint_eq(atomic_load(&renames), 1);
    ck_assert_int_eq(get(racing, STORE_STATE_DIR "/dir/new"), 4);
    ck_assert(!is_there(path("%s/state/dir/last", beside)));
    store_close(racing);
}
END_TEST

/* ---- who is believed ---- */

static const struct {
    mode_t root, state;
    uid_t owner;
    bool trusted;
} trust[] = {{0755, 0700, 0, true},     {0755, 0777, 0, false}, {0755, 0770, 0, false},
             {0755, 0755, USER, false}, {0777, 0777, 0, true},  {0775, 0770, 0, true}};

START_TEST(a_folder_of_others_says_nothing)
{
    if (trust[_i].owner && geteuid() != 0)
        return;
    for (int inner = 0; inner < 2; inner++) {
        const char *place = inner ? path("%s/state", beside) : beside;
        ck_assert(inner || (mkdir(beside, 0700) == 0 &&
                            mkdir(path("%s/state", beside), trust[_i].root) == 0));
        write_file(path("%s/state/note", beside), "believe me");
        ck_assert_int_eq(chmod(folder, trust[_i].root), 0);
        if (geteuid() == 0)
            ck_assert_int_eq(chown(place, trust[_i].owner, getegid()), 0);
        ck_assert_int_eq(chmod(place, trust[_i].state), 0);

        struct store *s = open_store();
        ck_assert_int_eq(store_can(s, STORE_STATE_DIR, STORE_STATE),
                         trust[_i].trusted || inner);
        if (trust[_i].trusted) {
            ck_assert_int_eq(get(s, STORE_STATE_DIR "/note"), 10);
            ok(put(s, STORE_STATE_DIR "/note", NULL));
        } else if (inner) {
            unsigned n;
            fails(EPERM, get(s, STORE_STATE_DIR "/note"));
            fails(EPERM, list(s, STORE_STATE_DIR, &n));
            fails(EPERM, put(s, STORE_STATE_DIR "/note", NULL));
            fails(EPERM, drop(s, STORE_STATE_DIR "/note"));
            ck_assert_ptr_nonnull(strstr(op.why, "belongs to somebody else"));
            ck_assert(is_there(path("%s/state/note", beside)));
        } else {
            assert_stateless("belongs to somebody else");
        }
        store_close(s);
        if (geteuid() == 0)
            ck_assert_int_eq(chown(place, 0, getegid()), 0);
        ck_assert_int_eq(chmod(place, trust[_i].root), 0);
        ck_assert_int_eq(chmod(beside, 0700), 0);
    }
}
END_TEST

/* It was ours when the store was opened. */
START_TEST(a_folder_that_is_opened_to_others_says_nothing)
{
    struct store *s = open_store();
    struct object obj;
    unsigned n;

    ok(put(s, STORE_STATE_DIR "/note", NULL));
    ck_assert_int_eq(chmod(beside, 0777), 0);
    fails(EPERM, get(s, STORE_STATE_DIR "/note"));
    fails(EPERM, store_stat(s, &op, STORE_STATE_DIR "/other", &obj));
    fails(EPERM, list(s, STORE_STATE_DIR, &n));
    ck_assert_int_eq(chmod(beside, 0700), 0);
    ck_assert_int_eq(get(s, STORE_STATE_DIR "/note"), 4);

    ck_assert_int_eq(rename(beside, path("%s-moved", beside)), 0);
    ck_assert_int_eq(symlink(path("%s-moved", beside), beside), 0);
    fails(EPERM, get(s, STORE_STATE_DIR "/note"));
    fails(EPERM, store_stat(s, &op, STORE_STATE_DIR "/other", &obj));
    store_close(s);
    assert_stateless("it is no folder");
}
END_TEST

START_TEST(links_are_no_way_out)
{
    struct store *s = open_store();
    struct object obj;
    char target[8];

    ok(put(s, STORE_STATE_DIR "/note", NULL));
    ck_assert_int_eq(mkdir(path("%s/outside", parent), 0700), 0);
    write_file(path("%s/outside/secret", parent), "secret");
    ck_assert_int_eq(symlink(path("%s/outside", parent), path("%s/state/out", beside)), 0);
    ck_assert_int_eq(symlink("../put-1", path("%s/state/up", beside)), 0);
    write_file(path("%s/put-1", beside), "staged");

    fails(ENOENT, get(s, STORE_STATE_DIR "/out/secret"));
    fails(ENOTDIR, put(s, STORE_STATE_DIR "/out/new", NULL));
    ok(drop(s, STORE_STATE_DIR "/out/secret"));
    ck_assert_int_eq(get(s, STORE_STATE_DIR "/up"), 0); /* the link itself */
    ok(store_stat(s, &op, STORE_STATE_DIR "/up", &obj));
    ck_assert(S_ISLNK(obj.attrs.mode));
    object_release(&obj);
    ok(put(s, STORE_STATE_DIR "/up", NULL));
    ck_assert_int_lt(readlink(path("%s/state/up", beside), target, sizeof(target)), 0);
    ck_assert(is_there(path("%s/outside/secret", parent)));
    ck_assert(!is_there(path("%s/outside/new", parent)));

    ck_assert_int_eq(rename(path("%s/state", beside), path("%s/outside/state", parent)), 0);
    ck_assert_int_eq(symlink(path("%s/outside/state", parent), path("%s/state", beside)), 0);
    fails(EPERM, get(s, STORE_STATE_DIR "/note"));
    fails(EPERM, put(s, STORE_STATE_DIR "/note", NULL));
    store_close(s);
}
END_TEST

/* A staged file or a session is no key, nor the other way. */
START_TEST(state_and_what_is_staged_are_apart)
{
    struct store *s = open_store();

    ok(put(s, STORE_STATE_DIR "/lock", NULL));
    ok(put(s, STORE_STATE_DIR "/put-1", NULL));
    ok(put(s, "object", NULL));
    fails(ENOENT, get(s, STORE_STATE_DIR "/state/lock"));
    ck_assert(is_there(path("%s/state/put-1", beside)));
    ck_assert(!is_there(path("%s/put-1", beside)));
    store_close(s);
}
END_TEST

/* ---- where there is no place ---- */

START_TEST(a_disk_of_its_own_has_no_state)
{
    struct stat a, b;

    ck_assert(stat("/dev", &a) == 0 && stat("/dev/shm", &b) == 0);
    if (a.st_dev == b.st_dev)
        return;
    (void)strcpy(folder, "/dev/shm");
    assert_stateless("on another disk");
    ck_assert(!is_there("/dev/shm.runfs"));
}
END_TEST

START_TEST(state_can_be_switched_off)
{
    static const struct store_option off = {"state_prefix", "off"},
                                     other = {"state_prefix", "x"};
    struct store_config config = {.options = &off, .n_options = 1};
    struct store *s = NULL;

    ok(store_open(folder, &config, &op, &s));
    ck_assert(!store_can(s, STORE_STATE_DIR, STORE_STATE));
    fails(EPERM, put(s, STORE_STATE_DIR "/x", NULL));
    ck_assert_ptr_nonnull(strstr(op.why, "state_prefix=off"));
    ok(put(s, "object", NULL)); /* what is staged is no matter of it */
    store_close(s);
    config.options = &other;
    fails(EINVAL, store_open(folder, &config, &op, &s));
    ck_assert_ptr_nonnull(strstr(op.why, "expected off"));
}
END_TEST

START_TEST(a_trial_has_no_state)
{
    struct store *s = NULL;

    ok(store_open_trial(folder, NULL, &op, &s));
    ck_assert(!store_can(s, STORE_STATE_DIR, STORE_STATE));
    fails(EPERM, put(s, STORE_STATE_DIR "/x", NULL));
    store_close(s);
    ck_assert(!is_there(beside));
}
END_TEST

/* Runs it as another user; 0 when it returned true. */
static int as_user(bool (*run)(void))
{
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (setgid(USER) < 0 || setuid(USER) < 0)
            _exit(99);
        _exit(run() ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Stages in the folder, where no state of others would be found. */
static bool puts_but_keeps_no_state(void)
{
    struct store *s = NULL;
    bool good = local_store_new(folder, NULL, &op, &s) == 0 &&
                !store_can(s, STORE_STATE_DIR, STORE_STATE) && put(s, "object", NULL) == 0 &&
                put(s, STORE_STATE_DIR "/x", NULL) == -EPERM &&
                get(s, STORE_STATE_DIR "/x") == -ENOENT;
    unsigned n;

    good = good && list(s, "", &n) == 0 && n == 1; /* what is staged there is in none */
    store_close(s);
    return good && is_there(path("%s/.runfs/lock", folder)) &&
           !is_there(path("%s/.runfs/state", folder));
}

static bool reads_and_is_refused(void)
{
    struct store *s = NULL;
    bool good = local_store_new(folder, NULL, &op, &s) == 0 &&
                store_can(s, STORE_STATE_DIR, STORE_STATE) &&
                get(s, STORE_STATE_DIR "/note") == 4 &&
                put(s, STORE_STATE_DIR "/note", NULL) == -EACCES;

    if (!good)
        (void)fprintf(stderr, "%s\n", op.why);
    store_close(s);
    return good;
}

START_TEST(who_may_make_nothing_beside_it_has_no_state)
{
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(chmod(folder, 0777), 0);
    ck_assert_int_eq(as_user(puts_but_keeps_no_state), 0);
}
END_TEST

START_TEST(who_may_only_read_reads_state)
{
    if (geteuid() != 0)
        return;
    struct store *s = open_store();
    ok(put(s, STORE_STATE_DIR "/note", NULL));
    store_close(s);
    ck_assert(chmod(beside, 0755) == 0 && chmod(path("%s/state", beside), 0755) == 0);
    ck_assert_int_eq(as_user(reads_and_is_refused), 0);
}
END_TEST

static bool puts_state(void)
{
    struct store *s = NULL;
    bool good = local_store_new(folder, NULL, &op, &s) == 0 &&
                put(s, STORE_STATE_DIR "/units/a/mine", "") == 0 &&
                drop(s, STORE_STATE_DIR "/units/a/roots") == 0;

    if (!good)
        (void)fprintf(stderr, "%s\n", op.why);
    store_close(s);
    return good;
}

/* Whom the folder of state lets in, its directories do, too: who made them does not count. */
START_TEST(all_to_whom_it_is_open_share_it)
{
    if (geteuid() != 0)
        return;
    const bool owners = _i == 0;
    const mode_t mode = owners ? 0700 : 02770;
    ck_assert(chown(folder, owners ? USER : 0, USER) == 0 &&
              chmod(folder, owners ? 0755 : 02775) == 0);
    ck_assert(mkdir(beside, 0700) == 0 && chown(beside, owners ? USER : 0, USER) == 0 &&
              chmod(beside, mode) == 0);
    mode_t mask = umask(077);
    struct store *s = open_store();
    ok(put(s, STORE_STATE_DIR "/units/a/roots", ""));
    store_close(s);
    (void)umask(mask);
    ck_assert_uint_eq(mode_of(path("%s/state", beside)), mode);
    ck_assert_uint_eq(mode_of(path("%s/state/units/a", beside)), mode);
    ck_assert_int_eq(as_user(puts_state), 0);
}
END_TEST

START_TEST(a_vanished_folder_has_no_state)
{
    struct store *s = open_store();
    unsigned n;

    ok(put(s, STORE_STATE_DIR "/note", NULL));
    ck_assert_int_eq(rmdir(folder), 0);
    fails(ENXIO, get(s, STORE_STATE_DIR "/note"));
    fails(ENXIO, put(s, STORE_STATE_DIR "/other", NULL));
    fails(ENXIO, list(s, STORE_STATE_DIR, &n));
    store_close(s);
}
END_TEST

/* ---- one winner ---- */

#define HANDS 8

struct hand {
    pthread_t thread;
    struct store *s;
    const char *key;
    int r;
};

static void *create(void *arg)
{
    struct hand *h = arg;
    struct mem_source src;
    struct op own;

    op_init(&own, PATIENCE);
    mem_source_init(&src, "text", 4);
    h->r = store_put(h->s, &own, h->key, "", &src.base, NULL, NULL);
    return NULL;
}

static unsigned race(struct store *s, const char *key)
{
    struct hand hands[HANDS];
    unsigned wins = 0;

    for (int i = 0; i < HANDS; i++) {
        hands[i] = (struct hand){.s = s, .key = key};
        ck_assert_int_eq(pthread_create(&hands[i].thread, NULL, create, &hands[i]), 0);
    }
    for (int i = 0; i < HANDS; i++) {
        pthread_join(hands[i].thread, NULL);
        ck_assert(hands[i].r == 0 || hands[i].r == -ESTALE);
        wins += hands[i].r == 0;
    }
    return wins;
}

/* The filesystem decides, also where it knows no RENAME_NOREPLACE, and no lock between
 * machines. */
START_TEST(one_winner_without_locks)
{
    struct store *s = open_store();

    atomic_store(&no_locks, true);
    atomic_store(&no_replace, _i == 1);
    for (int i = 0; i < 100; i++) {
        const char *key = path("%s/slot-%d", STORE_STATE_DIR, i);
        ck_assert_uint_eq(race(s, key), 1);
        ck_assert_int_eq(get(s, key), 4);
    }
    store_close(s);
}
END_TEST

START_TEST(a_link_whose_answer_was_lost_is_the_winners)
{
    struct store *s = open_store();
    struct stat st;

    atomic_store(&no_replace, true);
    atomic_store(&loses_word, true);
    ok(put(s, STORE_STATE_DIR "/slot", ""));
    fails(ESTALE, put(s, STORE_STATE_DIR "/slot", ""));
    ck_assert_int_eq(stat(path("%s/state/slot", beside), &st), 0);
    ck_assert_uint_eq(st.st_nlink, 1); /* nothing staged is left */
    store_close(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("local state");
    TCase *t = tcase_create("local state");

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, state_is_beside_the_folder);
    tcase_add_test(t, what_is_empty_goes_with_the_next_removal);
    tcase_add_test(t, a_removal_waits_for_what_comes_into_its_directory);
    tcase_add_loop_test(t, a_folder_of_others_says_nothing, 0, ARRAY_SIZE(trust));
    tcase_add_test(t, a_folder_that_is_opened_to_others_says_nothing);
    tcase_add_test(t, links_are_no_way_out);
    tcase_add_test(t, state_and_what_is_staged_are_apart);
    tcase_add_test(t, a_disk_of_its_own_has_no_state);
    tcase_add_test(t, state_can_be_switched_off);
    tcase_add_test(t, a_trial_has_no_state);
    tcase_add_test(t, who_may_make_nothing_beside_it_has_no_state);
    tcase_add_test(t, who_may_only_read_reads_state);
    tcase_add_loop_test(t, all_to_whom_it_is_open_share_it, 0, 2);
    tcase_add_test(t, a_vanished_folder_has_no_state);
    tcase_add_loop_test(t, one_winner_without_locks, 0, 2);
    tcase_add_test(t, a_link_whose_answer_was_lost_is_the_winners);
    suite_add_tcase(s, t);
    return suite_run(s);
}
