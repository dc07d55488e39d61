/* The contract over a folder, and what only a folder can be asked: symlinks are no way out, a
 * vanished root is no empty store, a file changed in place is never read as one version. */
#include "tests/contract/contract.c"

#include "backends/drivers.h"
#include "tests/lib/suite.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[64], state[80], url[80];

static struct store *open_driver(const struct contract_fixture *f)
{
    struct store *s = NULL;
    struct op op;

    (void)f;
    op_init(&op, PATIENCE);
    int r = local_store_new(root, NULL, &op, &s);
    ck_assert_msg(r == 0, "%s: %d %s", root, r, op.why);
    return s;
}

static struct store *open_url(const struct contract_fixture *f)
{
    struct store *s = NULL;
    struct op op;

    (void)f;
    op_init(&op, PATIENCE);
    int r = store_open(url, NULL, &op, &s);
    ck_assert_msg(r == 0, "%s: %d %s", url, r, op.why);
    return s;
}

static const struct contract_fixture fixtures[] = {
    {"file", open_driver, .page_names = 100, .any_name = true},
    {"file, all layers", open_url, .page_names = 100, .any_name = true},
};

/* ---- what only a folder can be asked ---- */

static char *native(struct place *p, const char *name)
{
    char *path;

    ck_assert_int_ge(asprintf(&path, "%s/%s/%s", root, p->dir, name), 0);
    return path;
}

static void write_file(const char *path, const char *text)
{
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    ck_assert_int_eq(write(fd, text, strlen(text)), strlen(text));
}

/* Who writes into the file did not put what is there then. */
START_TEST(what_is_written_in_place_has_no_origin)
{
    struct place *p = place_open(_i);
    struct attrs a = signed_attrs(p);
    auto_free char *path = native(p, "object");
    struct object obj;

    if (can(p, STORE_ORIGIN)) {
        ok(p, put_bytes(p, "object", NULL, "text", 4, &a, NULL));
        write_file(path, "TEXT");
        ok(p, stat_of(p, "object", &obj));
        ck_assert(!(obj.attrs.has & ATTR_ORIGIN));
        ck_assert_str_eq(obj.attrs.xattrs, a.xattrs); /* the note is nobody's xattr */
        object_release(&obj);
    }
    place_close(p);
}
END_TEST

/* What can't be there is not there; only to make it is an error. */
START_TEST(a_name_that_is_too_long_is_missing)
{
    struct place *p = place_open(_i);
    char name[301], below[303], buf[8];

    memset(name, 'n', 300);
    name[300] = '\0';
    (void)snprintf(below, sizeof(below), "%s/x", name);
    ok(p, put_text(p, "object", NULL, "x"));
    const char *keys[] = {name, below};
    for (int i = 0; i < 2; i++) {
        const char *k = key(p, keys[i]);
        assert_missing(p, keys[i]);
        fails(p, ENOENT, get_bytes(p, keys[i], NULL, buf, 8, 0, NULL));
        ok(p, store_remove(p->s, &p->op, &k, NULL, 1, NULL));
        ok(p, store_rmdir(p->s, &p->op, key(p, keys[i])));
        fails(p, ENOENT, store_list(p->s, &p->op, key(p, keys[i]), 0, visit_none, NULL));
        fails(p, ENOENT, store_rename(p->s, &p->op, key(p, keys[i]), key(p, "to")));
        fails(p, ENAMETOOLONG, put_text(p, keys[i], NULL, "x"));
        fails(p, ENAMETOOLONG, store_mkdir(p->s, &p->op, key(p, keys[i]), NULL, NULL));
        fails(p, ENAMETOOLONG, store_rename(p->s, &p->op, key(p, "object"), key(p, keys[i])));
    }
    place_close(p);
}
END_TEST

START_TEST(symlinks_are_no_way_out)
{
    struct place *p = place_open(_i);
    auto_free char *out = native(p, "out"), *up = native(p, "up");
    char outside[] = "/tmp/runfs-outside-XXXXXX", buf[8];
    struct attrs a = {.has = ATTR_MODE, .mode = S_IFREG | 0777};
    struct object obj;
    struct stat st;
    auto_free char *secret = NULL;

    ck_assert_ptr_nonnull(mkdtemp(outside));
    ck_assert_int_ge(asprintf(&secret, "%s/secret", outside), 0);
    write_file(secret, "secret");
    ok(p, put_text(p, "object", NULL, "x"));
    ck_assert_int_eq(symlink(outside, out), 0);
    ck_assert_int_eq(symlink(secret, up), 0);

    assert_missing(p, "out/secret");
    fails(p, ENOENT, get_bytes(p, "out/secret", NULL, buf, 8, 0, NULL));
    ck_assert_int_eq(get_bytes(p, "up", NULL, buf, 8, 0, &obj), 0); /* the link itself */
    object_release(&obj);
    fails(p, ENOTDIR, put_text(p, "out/new", NULL, "x"));
    fails(p, ENOTDIR, store_mkdir(p->s, &p->op, key(p, "out/new"), NULL, NULL));
    fails(p, ENOTDIR, store_rename(p->s, &p->op, key(p, "object"), key(p, "out/new")));
    const char *k = key(p, "out/secret");
    ok(p, store_remove(p->s, &p->op, &k, NULL, 1, NULL)); /* nothing of ours is there */
    fails(p, ENOENT, store_list(p->s, &p->op, key(p, "out"), 0, visit_none, NULL));
    ok(p, store_set_attributes(p->s, &p->op, key(p, "up"), NULL, &a, NULL));
    ck_assert_int_eq(stat(secret, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_int_eq(unlink(secret), 0);
    ck_assert_int_eq(rmdir(outside), 0); /* nothing was made there */
    place_close(p);
}
END_TEST

/* Changes the file while it is being delivered. */
struct meddling_sink {
    struct sink base;
    const char *path;
    bool done;
};

static int meddle(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct meddling_sink *m = container_of(sink, struct meddling_sink, base);

    (void)data, (void)len, (void)off;
    if (m->done)
        return 0;
    m->done = true;
    auto_close int fd = open(m->path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && pwrite(fd, "changed", 7, 0) == 7 ? 0 : -EIO;
}

START_TEST(a_file_changed_in_place_is_stale)
{
    struct place *p = place_open(_i);
    auto_free char *path = native(p, "object");
    struct meddling_sink m = {{meddle}, path, false};
    char etag[STORE_ETAG_MAX], buf[16];

    put_versioned(p, "object", "some content", etag);
    /* mtime counts in ticks of the kernel's clock. */
    struct timespec tick = {.tv_nsec = 20 * NS_PER_MS};
    nanosleep(&tick, NULL);
    fails(p, ESTALE, store_read(p->s, &p->op, key(p, "object"), etag, &m.base, 12, 0, NULL));
    fails(p, ESTALE, get_bytes(p, "object", etag, buf, 12, 0, NULL));
    ck_assert_int_eq(get_bytes(p, "object", NULL, buf, 12, 0, NULL), 12);
    ck_assert_mem_eq(buf, "changedntent", 12);
    place_close(p);
}
END_TEST

START_TEST(versions_survive_rename_and_chmod)
{
    struct place *p = place_open(_i);
    auto_free char *path = native(p, "new");
    char etag[STORE_ETAG_MAX], buf[16];

    put_versioned(p, "old", "text", etag);
    ok(p, store_rename(p->s, &p->op, key(p, "old"), key(p, "new")));
    ck_assert_int_eq(chmod(path, 0600), 0);
    ck_assert_int_eq(get_bytes(p, "new", etag, buf, 4, 0, NULL), 4);
    place_close(p);
}
END_TEST

/* rename(2) does nothing then, and says that it worked. */
START_TEST(a_hard_link_is_renamed_over_another)
{
    struct place *p = place_open(_i);
    auto_free char *a = native(p, "a"), *b = native(p, "b");
    struct object obj;

    ok(p, put_text(p, "a", NULL, "one"));
    ck_assert_int_eq(link(a, b), 0);
    ok(p, store_rename(p->s, &p->op, key(p, "a"), key(p, "a")));
    assert_text(p, "a", "one");
    ok(p, store_rename(p->s, &p->op, key(p, "a"), key(p, "b")));
    fails(p, ENOENT, stat_of(p, "a", &obj));
    assert_text(p, "b", "one");
    place_close(p);
}
END_TEST

START_TEST(same_time_and_size_is_another_version)
{
    struct place *p = place_open(_i);
    struct attrs a = {.has = ATTR_MTIME, .mtime_ns = MTIME_NS};
    struct object one, two;

    for (int i = 0; i < 20; i++) { /* inode numbers come back */
        ok(p, put_bytes(p, "object", NULL, "aaaa", 4, &a, &one));
        ok(p, put_bytes(p, "object", NULL, "bbbb", 4, &a, &two));
        ck_assert_str_ne(one.etag, two.etag);
        (void)usleep(20000); /* the clock of birth times has ticks of up to 10 ms */
        struct object three;
        ok(p, put_bytes(p, "object", NULL, "cccc", 4, &a, &three));
        ck_assert_str_ne(one.etag, three.etag);
        object_release(&one);
        object_release(&two);
        object_release(&three);
    }
    place_close(p);
}
END_TEST

static unsigned count_staged(void)
{
    DIR *dir = opendir(state);
    struct dirent *e;
    unsigned n = 0;

    ck_assert_ptr_nonnull(dir);
    while ((e = readdir(dir)))
        n += e->d_name[0] != '.' && strcmp(e->d_name, "lock") != 0 &&
             strcmp(e->d_name, "state") != 0;
    closedir(dir);
    return n;
}

START_TEST(nothing_staged_is_left)
{
    struct place *p = place_open(_i);
    struct source broken = {.size = 2000, .pread = broken_pread};
    struct upload *up;

    ok(p, put_text(p, "object", NULL, "x"));
    unsigned before = count_staged();
    fails(p, ESTALE, put_text(p, "object", "", "x"));
    fails(p, EIO, store_put(p->s, &p->op, key(p, "object"), NULL, &broken, NULL, NULL));
    fails(p, EISDIR,
          store_put(p->s, &p->op, p->dir, NULL, &(struct source){0, broken_pread}, NULL, NULL));
    ok(p, store_upload_begin(p->s, &p->op, key(p, "up"), NULL, &up));
    ck_assert_uint_eq(count_staged(), before + 2);
    ok(p, store_upload_abort(up, &p->op));
    ok(p, store_copy(p->s, &p->op, key(p, "object"), NULL, key(p, "copy"), NULL, NULL, NULL));
    ck_assert_uint_eq(count_staged(), before);
    place_close(p);
}
END_TEST

/* A commit whose rename worked, but not what came after it, is committed again. */
START_TEST(a_published_upload_commits_again)
{
    struct place *p = place_open(_i);
    auto_free char *path = native(p, "object"), *token = NULL, *staged = NULL;
    struct upload *up;

    ok(p, put_text(p, "object", NULL, "old"));
    ok(p, store_upload_begin(p->s, &p->op, key(p, "object"), NULL, &up));
    ok(p, part_of(up, &p->op, "new", 3, test_part_size(p->s), 1));
    token = store_upload_token(up);
    ck_assert_int_ge(asprintf(&staged, "%s/%s", state, token), 0);
    ck_assert_int_eq(rename(staged, path), 0);
    ok(p, store_upload_commit(up, &p->op, "", NULL));
    assert_text(p, "object", "new");
    place_close(p);
}
END_TEST

static void of_another_boot(const char *log)
{
    auto_close int fd = open(log, O_RDWR | O_CLOEXEC);

    ck_assert_int_eq(pwrite(fd, "another-", 8, (off_t)strlen("runfs-upload 1 ")), 8);
}

/* A process was killed between the steps of a commit or an abort, or the machine was started
 * anew. */
START_TEST(what_a_session_that_is_over_left_goes)
{
    enum { COMMITTED, ABORTED, OTHER_BOOT, ENDS };
    struct place *p = place_open(_i);
    auto_free char *path = native(p, "object");

    ok(p, put_text(p, "object", NULL, "old"));
    unsigned before = count_staged();
    for (int end = 0; end < ENDS; end++) {
        auto_free char *token = NULL, *staged = NULL, *log = NULL;
        struct upload *up;
        ok(p, store_upload_begin(p->s, &p->op, key(p, "object"), NULL, &up));
        ok(p, part_of(up, &p->op, "new", 3, test_part_size(p->s), 1));
        token = store_upload_token(up);
        store_upload_detach(up);
        ck_assert_int_ge(asprintf(&staged, "%s/%s", state, token), 0);
        ck_assert_int_ge(asprintf(&log, "%s.log", staged), 0);
        fails(p, ENOENT,
              store_upload_resume(p->s, &p->op, key(p, "other"), token, NULL, NULL, &up));
        ck_assert_uint_eq(count_staged(), before + 2); /* it is not that one's */
        if (end == COMMITTED)
            ck_assert_int_eq(rename(staged, path), 0);
        else if (end == ABORTED)
            ck_assert_int_eq(unlink(staged), 0);
        else
            of_another_boot(log);
        fails(p, ENOENT,
              store_upload_resume(p->s, &p->op, key(p, "object"), token, NULL, NULL, &up));
        ck_assert_uint_eq(count_staged(), before);
        assert_text(p, "object", "new");
    }
    place_close(p);
}
END_TEST

/* Removes an empty directory as soon as somebody has opened it, so often a call. */
#define REMOVALS_A_CALL 4

struct remover {
    const char *name; /* in the root */
    int root_fd, events_fd;
    atomic_int left; /* removals; -1: that was all */
    int removed;
};

static bool somebody_opened(const struct remover *r)
{
    char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    bool opened = false;

    ssize_t n = read(r->events_fd, events, sizeof(events));
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *e = (const void *)&events[at];
        opened = opened || (e->len && strcmp(e->name, r->name) == 0);
        at += (ssize_t)(sizeof(*e) + e->len);
    }
    return opened;
}

static void *remove_what_is_opened(void *arg)
{
    struct remover *r = arg;
    int left;

    while ((left = atomic_load(&r->left)) >= 0) {
        if (left == 0 || !somebody_opened(r) || unlinkat(r->root_fd, r->name, AT_REMOVEDIR) < 0)
            continue;
        r->removed++;
        (void)atomic_compare_exchange_strong(&r->left, &left, left - 1);
    }
    return NULL;
}

static void remover_start(struct remover *r, const char *name, pthread_t *thread)
{
    *r = (struct remover){.name = name};
    r->root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r->events_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    ck_assert_int_ge(inotify_add_watch(r->events_fd, root, IN_OPEN), 0);
    ck_assert_int_eq(pthread_create(thread, NULL, remove_what_is_opened, r), 0);
}

static void remover_stop(struct remover *r, pthread_t thread)
{
    atomic_store(&r->left, -1);
    pthread_join(thread, NULL);
    (void)close(r->events_fd);
    (void)close(r->root_fd);
}

/* What is put, made or moved below a directory makes it where it is missing; that it is removed
 * in between, while it is empty, is no error of the call. */
START_TEST(a_parent_is_removed_beside_what_comes_below_it)
{
    struct place *p = place_open(_i);
    struct remover r;
    pthread_t thread;

    remover_start(&r, p->dir, &thread);
    for (int i = 0; i < 100; i++) {
        const char *file = key(p, "file"), *dir = key(p, "dir");
        const char *beside = p->dir + 1; /* a name in the root */
        ok(p, store_mkdir(p->s, &p->op, p->dir, NULL, NULL));
        atomic_store(&r.left, REMOVALS_A_CALL);
        ok(p, put_text(p, "file", NULL, "content"));
        ok(p, store_rename(p->s, &p->op, file, beside));
        atomic_store(&r.left, REMOVALS_A_CALL);
        ok(p, store_rename(p->s, &p->op, beside, file));
        assert_text(p, "file", "content");
        ok(p, store_remove(p->s, &p->op, &file, NULL, 1, NULL));
        atomic_store(&r.left, REMOVALS_A_CALL);
        ok(p, store_mkdir(p->s, &p->op, dir, NULL, NULL));
        ok(p, store_rmdir(p->s, &p->op, dir));
    }
    remover_stop(&r, thread);
    ck_assert_int_gt(r.removed, 0);
    place_close(p);
}
END_TEST

START_TEST(processes_exclude_each_other)
{
    struct place *p = place_open(_i);
    int number = 0, wins = 0, status;
    struct racer r = {p, key(p, "number"), 0, 0, 0};
    pid_t pids[3];

    ok(p, put_bytes(p, "number", NULL, &number, sizeof(number), NULL, NULL));
    for (int i = 0; i < 3; i++) {
        pids[i] = fork();
        ck_assert_int_ge(pids[i], 0);
        if (pids[i] == 0) {
            race_to_count(&r);
            _exit(r.strange ? 255 : r.wins);
        }
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) != 255);
        wins += WEXITSTATUS(status);
    }
    get_bytes(p, "number", NULL, &number, sizeof(number), 0, NULL);
    ck_assert_int_gt(wins, 0);
    ck_assert_int_eq(number, wins);
    place_close(p);
}
END_TEST

START_TEST(a_vanished_root_is_no_empty_store)
{
    char gone[] = "/tmp/runfs-gone-XXXXXX";
    struct store *s = NULL;
    struct object obj;
    struct op op;

    op_init(&op, PATIENCE);
    ck_assert_ptr_nonnull(mkdtemp(gone));
    ck_assert_int_eq(local_store_new(gone, NULL, &op, &s), 0);
    ck_assert_int_eq(store_stat(s, &op, "", &obj), 0);
    object_release(&obj);
    ck_assert_int_eq(rmdir(gone), 0);
    ck_assert_int_eq(store_stat(s, &op, "", &obj), -ENXIO);
    ck_assert_int_eq(store_stat(s, &op, "key", &obj), -ENXIO);
    ck_assert_int_eq(store_list(s, &op, "", 0, visit_none, NULL), -ENXIO);
    store_close(s);
    op_init(&op, PATIENCE);
    ck_assert_int_eq(store_open(gone, NULL, &op, &s), -ENXIO);
    ck_assert_ptr_nonnull(strstr(op.why, gone));
}
END_TEST

static int remove_any(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

/* Whoever may write to the folder of what is staged could put content. */
START_TEST(a_state_folder_of_others_is_refused)
{
    char own[64], sibling[80];
    static const struct {
        mode_t root, state;
        uid_t owner;
        int err;
    } t[] = {{0755, 0700, 0, 0},         {0755, 0777, 0, -EPERM}, {0755, 0770, 0, -EPERM},
             {0755, 0755, 4711, -EPERM}, {0777, 0777, 0, 0},      {0775, 0770, 0, 0}};
    struct mem_source src;
    struct op op;

    (void)snprintf(own, sizeof(own), "%.54s-XXXXXX", root);
    ck_assert_ptr_nonnull(mkdtemp(own));
    (void)snprintf(sibling, sizeof(sibling), "%s.runfs", own);
    ck_assert_int_eq(mkdir(sibling, 0700), 0);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct store *s = NULL;

        if (t[i].owner && geteuid() != 0)
            continue;
        op_init(&op, PATIENCE);
        ck_assert_int_eq(chmod(own, t[i].root), 0);
        ck_assert_int_eq(geteuid() == 0 ? chown(sibling, t[i].owner, getegid()) : 0, 0);
        ck_assert_int_eq(chmod(sibling, t[i].state), 0);
        ck_assert_int_eq(local_store_new(own, NULL, &op, &s), 0);
        mem_source_init(&src, "x", 1);
        int r = store_put(s, &op, "key", NULL, &src.base, NULL, NULL);
        ck_assert_msg(r == t[i].err, "%zu: %d %s", i, r, op.why);
        if (r)
            ck_assert_ptr_nonnull(strstr(op.why, "belongs to somebody else"));
        store_close(s);
    }
    (void)nftw(own, remove_any, 16, FTW_DEPTH | FTW_PHYS);
    (void)nftw(sibling, remove_any, 16, FTW_DEPTH | FTW_PHYS);
}
END_TEST

/* Root's command must not keep out whose folder it is. */
START_TEST(a_lock_of_roots_is_the_owners)
{
    const uid_t owner = 4711;
    char own[64], path[96];
    struct store *s = NULL;
    struct mem_source src;
    struct stat st;
    struct op op;

    if (geteuid() != 0)
        return;
    (void)snprintf(own, sizeof(own), "%.54s-XXXXXX", root);
    ck_assert_ptr_nonnull(mkdtemp(own));
    ck_assert_int_eq(chown(own, owner, owner), 0);
    (void)snprintf(path, sizeof(path), "%s.runfs", own);
    ck_assert(mkdir(path, 0700) == 0 && chown(path, owner, owner) == 0);
    op_init(&op, PATIENCE);
    ck_assert_int_eq(local_store_new(own, NULL, &op, &s), 0);
    mem_source_init(&src, "x", 1);
    ck_assert_int_eq(store_put(s, &op, "key", NULL, &src.base, NULL, NULL), 0);
    store_close(s);
    (void)snprintf(path, sizeof(path), "%s.runfs/lock", own);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_uid, owner);
    *strrchr(path, '/') = '\0';
    (void)nftw(own, remove_any, 16, FTW_DEPTH | FTW_PHYS);
    (void)nftw(path, remove_any, 16, FTW_DEPTH | FTW_PHYS);
}
END_TEST

/* ---- a trial of the folder ---- */

static unsigned names_in(const char *path)
{
    DIR *dir = opendir(path);
    unsigned n = 0;

    ck_assert_msg(dir != NULL, "%s: %s", path, strerror(errno));
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n - 2;
}

static int visit_counted(void *arg, const char *name, const struct object *obj)
{
    unsigned *n = arg;

    (void)obj;
    *n += strcmp(name, "tried") == 0;
    return 0;
}

/* A put, a refused one, a listing; the object is removed unless it is to be found later. */
static void use_trial(const char *folder, bool remove)
{
    const char *tried = "tried";
    struct mem_source src;
    struct store *s = NULL;
    unsigned shown = 0;
    struct op op;

    op_init(&op, PATIENCE);
    int r = store_open_trial(folder, NULL, &op, &s);
    ck_assert_msg(r == 0, "%s: %d %s", folder, r, op.why);
    mem_source_init(&src, "x", 1);
    ck_assert_int_eq(store_put(s, &op, tried, "", &src.base, NULL, NULL), 0);
    ck_assert_int_eq(store_put(s, &op, tried, "", &src.base, NULL, NULL), -ESTALE);
    ck_assert_int_eq(store_list(s, &op, "", 0, visit_counted, &shown), 0);
    ck_assert_uint_eq(shown, 1);
    if (remove)
        ck_assert_int_eq(store_remove(s, &op, &tried, NULL, 1, NULL), 0);
    store_close(s);
}

/* Whether there is a state folder already or not: nothing of the trial is ever in the store's
 * folder, and nothing stays but what was not removed. */
START_TEST(a_trial_is_never_in_the_folder)
{
    auto_free char *parent = NULL, *folder = NULL, *beside = NULL;
    char events[1024];

    ck_assert_int_ge(asprintf(&parent, "%s/trial-%d", root, _i), 0);
    ck_assert_int_ge(asprintf(&folder, "%s/store", parent), 0);
    ck_assert_int_ge(asprintf(&beside, "%s.runfs", folder), 0);
    ck_assert(mkdir(parent, 0755) == 0 && mkdir(folder, 0755) == 0);
    if (_i == 1)
        ck_assert_int_eq(mkdir(beside, 0700), 0);
    auto_close int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    ck_assert_int_ge(inotify_add_watch(watch, folder, IN_CREATE | IN_MOVE | IN_DELETE), 0);

    use_trial(folder, true);
    ck_assert_uint_eq(names_in(parent), 1 + (unsigned)_i);
    if (_i == 1)
        ck_assert_uint_eq(names_in(beside), 1); /* the lock */
    use_trial(folder, false);
    ck_assert_uint_eq(names_in(parent), 2);
    ck_assert(read(watch, events, sizeof(events)) < 0 && errno == EAGAIN);
    ck_assert_int_eq(nftw(parent, remove_any, 16, FTW_DEPTH | FTW_PHYS), 0);
}
END_TEST

START_TEST(memory_has_no_trial)
{
    struct store *s = NULL;
    struct op op;

    op_init(&op, PATIENCE);
    ck_assert_int_eq(store_open_trial("mem:x", NULL, &op, &s), -EOPNOTSUPP);
    ck_assert_ptr_null(s);
}
END_TEST

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    size_t n = ARRAY_SIZE(fixtures);

    (void)snprintf(root, sizeof(root), "%.30s/runfs-local-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(root)) {
        perror(root);
        return 1;
    }
    (void)snprintf(state, sizeof(state), "%s.runfs", root);
    (void)snprintf(url, sizeof(url), "file://%s", root);

    Suite *s = suite_create("contract local");
    TCase *t = tcase_create("local");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, what_is_written_in_place_has_no_origin, 0, (int)n);
    tcase_add_loop_test(t, a_name_that_is_too_long_is_missing, 0, (int)n);
    tcase_add_loop_test(t, symlinks_are_no_way_out, 0, (int)n);
    tcase_add_loop_test(t, a_file_changed_in_place_is_stale, 0, (int)n);
    tcase_add_loop_test(t, versions_survive_rename_and_chmod, 0, (int)n);
    tcase_add_loop_test(t, a_hard_link_is_renamed_over_another, 0, (int)n);
    tcase_add_loop_test(t, same_time_and_size_is_another_version, 0, 1);
    tcase_add_loop_test(t, nothing_staged_is_left, 0, 1);
    tcase_add_loop_test(t, a_published_upload_commits_again, 0, (int)n);
    tcase_add_loop_test(t, what_a_session_that_is_over_left_goes, 0, (int)n);
    tcase_add_loop_test(t, a_parent_is_removed_beside_what_comes_below_it, 0, (int)n);
    tcase_add_loop_test(t, processes_exclude_each_other, 0, 1);
    tcase_add_test(t, a_vanished_root_is_no_empty_store);
    tcase_add_test(t, a_state_folder_of_others_is_refused);
    tcase_add_test(t, a_lock_of_roots_is_the_owners);
    tcase_add_loop_test(t, a_trial_is_never_in_the_folder, 0, 2);
    tcase_add_test(t, memory_has_no_trial);
    suite_add_tcase(s, contract_tcase(fixtures, n));
    suite_add_tcase(s, t);
    int status = suite_run(s);
    (void)nftw(root, remove_any, 16, FTW_DEPTH | FTW_PHYS);
    (void)nftw(state, remove_any, 16, FTW_DEPTH | FTW_PHYS);
    return status;
}
