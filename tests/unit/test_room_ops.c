/* cache/ops/: what changes of names leave for the store to do, as a table of rows, and which
 * are refused; with nothing above it. */
#include "cache/ops/ops_impl.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/path.h"
#include "runs/routes.h"
#include "tests/lib/room.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct store_ops no_ops;
static struct store store = {.ops = &no_ops, .facts = {.key_max = 40}};
static const struct cache_cred cred = {.umask = 022};
static struct cache *c;
static struct handle *open_handle; /* of the file that is still open, or NULL */

/* The directory is known: nobody but this cache has put anything there. */
static void is_ours(struct node *dir)
{
    cache_lock(c);
    dir->dir->local_only = dir->dir->new_here = true;
    node_attrs_are_known(dir);
    cache_unlock(c);
}

static void setup(void)
{
    c = room_core();
    c->store = &store;
    c->config.list_timeout_ns = 1000 * NS_PER_SEC;
    c->config.attr_timeout_ns = 1000 * NS_PER_SEC;
    c->config.size_bytes = UINT64_MAX / 2;
    room_disk(c);
    room_tree(c);
    room_content(c, 16);
    room_queue(c);
    room_listing(c);
    room_transfer(c);
    room_ops(c);
    is_ours(c->tree->root);
    cache_lock(c);
    c->content->disk_free_bytes = UINT64_MAX / 2;
    cache_unlock(c);
}

static void teardown(void)
{
    if (open_handle)
        cache_release(c, take_ptr(open_handle));
    room_free(c);
}

/* ---- steps ---- */

static struct node *parent_of(const char *path)
{
    auto_free char *parent = path_parent(path);
    struct node *n = tree_find(c, parent, NULL);

    ck_assert_msg(n != NULL, "no parent of %s", path);
    return n;
}

static int put(const char *path)
{
    struct node *n;
    struct stat st;

    return cache_mknod(c, parent_of(path), path_basename(path), S_IFREG | 0644, 0, &cred, NULL,
                       &n, &st);
}

static int make_dir(const char *path)
{
    struct node *n;
    struct stat st;

    return cache_mkdir(c, parent_of(path), path_basename(path), 0755, &cred, NULL, &n, &st);
}

static int move(const char *from, const char *to, unsigned flags)
{
    return cache_rename(c, parent_of(from), path_basename(from), parent_of(to),
                        path_basename(to), flags, NULL);
}

/* As when an upload of it has ended. */
static void stored_locked(struct entry *e) REQUIRES(cache_mutex)
{
    struct node *n = e->node;

    e->may_exist = true;
    e->verified_ns = clock_mono_ns();
    n->flags &= ~(unsigned)NODE_ATTR_DIRTY;
    if (n->dir) {
        n->dir->has_marker = true;
        n->dir->new_here = false;
        dir_unqueue_locked(c, n);
        return;
    }
    e->dirty = false;
    etag_set(&e->etag, "v");
    e->stored_generation = n->file->generation;
    file_unqueue_locked(c, n->file);
    n->file->state = FILE_CLEAN;
    n->file->debt.seq = 0;
}

static void written_locked(struct node *n) REQUIRES(cache_mutex)
{
    file_mark_dirty_locked(c, n, true);
    file_queue_locked(c, n);
}

static int open_for_writing(struct node *n)
{
    ck_assert_ptr_null(open_handle);
    return cache_open(c, n, O_RDWR, NULL, &open_handle);
}

static int change(const char *word, const char *path)
{
    struct entry *e;
    struct node *n = tree_find(c, path, &e);

    if (strcmp(word, "put") == 0)
        return put(path);
    if (strcmp(word, "mkdir") == 0)
        return make_dir(path);
    if (strcmp(word, "unlink") == 0)
        return cache_unlink(c, parent_of(path), path_basename(path), NULL);
    if (strcmp(word, "rmdir") == 0)
        return cache_rmdir(c, parent_of(path), path_basename(path), NULL);
    ck_assert_msg(n != NULL, "%s %s", word, path);
    if (strcmp(word, "open") == 0)
        return open_for_writing(n);
    ns_write(c);
    cache_lock(c);
    if (strcmp(word, "store") == 0)
        stored_locked(e);
    else if (strcmp(word, "write") == 0)
        written_locked(n);
    else
        ck_abort_msg("no such change: %s", word);
    cache_unlock(c);
    ns_done(c);
    return 0;
}

/* "put f; store f; rename f g"; also write, open, mkdir, unlink, rmdir, exchange. The result of
 * the last one; all before it succeed. */
static int do_steps(const char *steps)
{
    auto_free char *copy = strdup(steps);
    char *rest = copy, *step, word[16], a[64], b[64];
    int r = 0;

    while ((step = strsep(&rest, ";"))) {
        ck_assert_msg(r == 0, "before %s: %d", step, r);
        int n = sscanf(step, "%15s %63s %63s", word, a, b);
        ck_assert_int_ge(n, 2);
        if (n == 2)
            r = change(word, a);
        else
            r = move(a, b, strcmp(word, "exchange") == 0 ? RENAME_EXCHANGE : 0);
    }
    return r;
}

/* The rows, without the numbers of temporary names. */
static const char *rows(void) REQUIRES(cache_mutex)
{
    static const char *const words[] = {[INTENT_UNLINK] = "unlink",
                                        [INTENT_RMDIR] = "rmdir",
                                        [INTENT_RENAME] = "rename",
                                        [INTENT_RENAMEDIR] = "renamedir"};
    static char text[256];
    const struct intent *i;
    size_t n = 0;

    text[0] = '\0';
    for (i = row_first(c); i; i = row_next(i)) {
        const char *from = strncmp(i->from, ".runfs-", 7) == 0 ? "T" : i->from;
        const char *to = i->to && strncmp(i->to, ".runfs-", 7) == 0 ? "T" : i->to;
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s %s%s%s", n ? "; " : "",
                              words[i->kind], from, to ? " " : "", to ? to : "");
    }
    return text;
}

static int count(void *arg, const struct journal_row *row)
{
    (void)row;
    ++*(unsigned *)arg;
    return 0;
}

/* ---- rows ---- */

static const struct {
    const char *steps, *rows;
} changes[] = {
    /* What the store never had needs no row. */
    {"put f; unlink f", ""},
    {"put f; rename f g", ""},
    {"mkdir d; rmdir d", ""},
    {"mkdir d; put d/f; rename d e", ""},
    /* What it has goes, or moves. */
    {"put f; store f; unlink f", "unlink f"},
    {"mkdir d; store d; rmdir d", "rmdir d"},
    {"put f; store f; rename f g", "rename f g"},
    {"mkdir d; put d/f; store d/f; rename d e", "renamedir d e"},
    {"mkdir d; store d; rename d e", "renamedir d e"},
    {"put f; store f; put g; store g; rename f g", "rename f g"},
    {"put f; store f; put g; rename f g", "rename f g"},
    {"put f; store f; rename f g; rename g h", "rename f g; rename g h"},
    {"put f; store f; rename f g; unlink g", "rename f g; unlink g"},
    {"put f; store f; rename f g; put f; unlink f", "rename f g"},
    /* Closed before it is moved, it is uploaded under its new name; open, its old version
       moves. */
    {"put f; store f; write f; rename f g", "unlink f"},
    {"put f; store f; open f; write f; rename f g", "rename f g"},
    {"put f; store f; write f; rename f g.tmp", "rename f g.tmp"}, /* a staging name */
    {"put f; put g; store g; rename f g", ""},
    /* A name that is taken again: its upload makes the removal void. */
    {"put f; store f; unlink f; put f", "unlink f"},
    {"put f; store f; unlink f; put f; unlink f", "unlink f"},
    /* Exchanges. */
    {"put f; store f; put g; store g; exchange f g", ""},
    {"mkdir d; store d; mkdir e; store e; exchange d e",
     "renamedir d T; renamedir e d; renamedir T e"},
    {"mkdir d; store d; mkdir e; exchange d e", "renamedir d T; renamedir T e"},
    {"mkdir d; mkdir e; exchange d e", ""},
    {"mkdir d; store d; put f; store f; exchange f d", "rename f T; renamedir d f; rename T d"},
    {"mkdir d; store d; put f; exchange f d", "renamedir d f"},
    {"mkdir d; put f; store f; exchange f d", "rename f d"},
    {"mkdir d; put f; exchange f d", ""},
};

START_TEST(a_change_leaves_rows)
{
    unsigned on_disk = 0, in_memory = 0;

    int r = do_steps(changes[_i].steps);
    cache_lock(c);
    for (const struct intent *i = row_first(c); i; i = row_next(i))
        in_memory++;
    ck_assert_msg(r == 0, "%s: %d", changes[_i].steps, r);
    ck_assert_msg(strcmp(rows(), changes[_i].rows) == 0, "%s: %s", changes[_i].steps, rows());
    cache_unlock(c);
    ck_assert_int_eq(journal_each(c->journal, count, &on_disk), 0);
    ck_assert_uint_eq(on_disk, in_memory);
}
END_TEST

/* ---- to another store ---- */

static struct routes routes;

static void add_route(const char *path, unsigned of)
{
    struct template from, key;
    struct op op;

    op_init(&op, NS_PER_SEC);
    ck_assert_int_eq(template_parse(path, TEMPLATE_PATH, &op, &from), 0);
    ck_assert_int_eq(template_parse(path, TEMPLATE_KEY, &op, &key), 0);
    ck_assert_int_eq(routes_add(&routes, &from, &key, of, 0, (struct text_place){0}, &op), 0);
}

static void setup_stores(void)
{
    setup();
    add_route("a/**", 0);
    add_route("b/**", 1);
    c->config.routes = &routes;
    ck_assert_int_eq(do_steps("mkdir a; mkdir b"), 0);
}

static void teardown_stores(void)
{
    teardown();
    routes_release(&routes);
}

struct found_row {
    uint64_t seq, ino;
    char to[8];
};

static int find_row(void *arg, const struct journal_row *row)
{
    struct found_row *found = arg;

    ck_assert_int_eq(row->kind, INTENT_UNLINK);
    ck_assert_str_eq(row->from, "a/f");
    *found = (struct found_row){.seq = row->seq, .ino = row->ino};
    (void)snprintf(found->to, sizeof(found->to), "%s", row->to ? row->to : "");
    return 0;
}

/* Its place is before that of the row, which says which file it is, for the next mount. */
START_TEST(the_row_of_what_moves_to_another_store_names_it)
{
    struct found_row row = {0};

    ck_assert_int_eq(do_steps(_i ? "put a/f; store a/f; open a/f; rename a/f b/f"
                                 : "put a/f; store a/f; rename a/f b/f"),
                     0);
    ck_assert_int_eq(journal_each(c->journal, find_row, &row), 0);
    ck_assert_str_eq(row.to, "b/f");
    cache_lock(c);
    struct node *n = tree_find(c, "b/f", NULL);
    ck_assert_uint_eq(row.ino, n->ino);
    ck_assert(n->file->debt.seq && n->file->debt.seq < row.seq);
    ck_assert_int_eq(n->file->unclosed, _i);
    cache_unlock(c);
}
END_TEST

/* Nothing waits for what no store has and no close has ended. */
START_TEST(what_no_store_had_moves_without_a_place)
{
    ck_assert_int_eq(do_steps("put a/f; open a/f; rename a/f b/f"), 0);
    cache_lock(c);
    ck_assert_ptr_null(row_first(c));
    cache_unlock(c);
}
END_TEST

START_TEST(what_lost_pages_moves_to_no_other_store)
{
    ck_assert_int_eq(do_steps("put a/f; store a/f"), 0);
    cache_lock(c);
    tree_find(c, "a/f", NULL)->file->disk_lost = true;
    cache_unlock(c);
    ck_assert_int_eq(do_steps("rename a/f b/f"), -EXDEV);
    ck_assert_int_eq(do_steps("rename a/f a/g"), 0);
}
END_TEST

/* ---- a path without a route ---- */

/* What is in the log file; of up to 64 KiB. */
static const char *log_text(const char *file)
{
    static char text[1 << 16];
    auto_close int fd = open(file, O_RDONLY | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    return text;
}

static unsigned count_of(const char *text, const char *what)
{
    unsigned n = 0;

    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

/* As if so much time had passed since the log was told. */
static void wait_for(int64_t ns)
{
    cache_lock(c);
    c->ops->refused_ns -= ns;
    cache_unlock(c);
}

/* A program that tries thousands of names does not fill the disk with lines. */
START_TEST(a_path_without_a_route_is_logged_once_a_minute)
{
    char file[] = "/tmp/runfs-test-log-XXXXXX", steps[32];

    close(mkstemp(file));
    ck_assert_int_eq(log_to_file(AT_FDCWD, file), 0);
    ck_assert_int_eq(do_steps("put first"), -EPERM);
    for (int i = 0; i < 100; i++) {
        (void)snprintf(steps, sizeof(steps), "%s other%d", i % 2 ? "put" : "mkdir", i);
        ck_assert_int_eq(do_steps(steps), -EPERM);
    }
    wait_for(30 * NS_PER_SEC);
    ck_assert_int_eq(do_steps("put soon"), -EPERM);
    ck_assert_uint_eq(count_of(log_text(file), "can't be made"), 1);
    ck_assert_uint_eq(count_of(log_text(file), " first can't be made: no route leads there"),
                      1);
    wait_for(30 * NS_PER_SEC);
    ck_assert_int_eq(do_steps("mkdir a/dir; put later"), -EPERM);
    ck_assert_uint_eq(count_of(log_text(file), "can't be made"), 2);
    ck_assert_uint_eq(count_of(log_text(file), " later can't be made: no route leads there"),
                      1);
    ck_assert_int_eq(do_steps("put a/file"), 0); /* what has a route is not told of */
    wait_for(60 * NS_PER_SEC);
    ck_assert_int_eq(do_steps("put a/other"), 0);
    ck_assert_uint_eq(count_of(log_text(file), "can't be made"), 2);
    (void)unlink(file);
}
END_TEST

/* ---- refusals ---- */

static const struct {
    const char *steps;
    int r;
} refusals[] = {
    {"unlink f", -ENOENT},
    {"rmdir d", -ENOENT},
    {"put f; put f", -EEXIST},
    {"put f; mkdir f", -EEXIST},
    {"put f; put f/x", -ENOTDIR},
    {"put f; rmdir f", -ENOTDIR},
    {"mkdir d; unlink d", -EISDIR},
    {"mkdir d; put d/f; rmdir d", -ENOTEMPTY},
    {"rename f g", -ENOENT},
    {"mkdir d; rename d d/e", -EINVAL},
    {"mkdir d; mkdir d/e; exchange d d/e", -EINVAL},
    {"mkdir d; put f; rename d f", -ENOTDIR},
    {"mkdir d; put f; rename f d", -EISDIR},
    {"mkdir d; mkdir e; put e/f; rename d e", -ENOTEMPTY},
    {"put f; exchange f g", -ENOENT},
    {"put .runfs", -EINVAL}, /* not in the root */
    {"mkdir d; put d/.runfs", 0},
    /* The store takes keys of 40 bytes. */
    {"put 1234567890123456789012345678901234567890", 0},
    {"put 12345678901234567890123456789012345678901", -ENAMETOOLONG},
    {"mkdir 1234567890123456789012345678901234567890", -ENAMETOOLONG}, /* with its slash */
    {"mkdir d; put d/12345678901234567890123456789012345678; rename d e", 0},
    {"mkdir d; put d/12345678901234567890123456789012345678; rename d ee", -ENAMETOOLONG},
};

START_TEST(a_change_is_refused)
{
    int r = do_steps(refusals[_i].steps);

    ck_assert_msg(r == refusals[_i].r, "%s: %d", refusals[_i].steps, r);
}
END_TEST

/* ---- what is owed ---- */

START_TEST(what_is_owed_is_told_in_numbers)
{
    ck_assert_int_eq(do_steps("mkdir d; put d/f; put d/g.tmp; put h; put x; store x; unlink x"),
                     0);
    cache_lock(c);
    struct node *f = tree_find(c, "d/f", NULL);
    f->size = 7;
    f->file->debt.error = -EIO;
    f->file->debt.running = true;
    auto_free char *below = node_owed_text_locked(c, tree_find(c, "d", NULL));
    auto_free char *all = node_owed_text_locked(c, c->tree->root);
    f->file->debt.running = false;
    cache_unlock(c);
    ck_assert_str_eq(below, "files=2 bytes=7 uploading=1 failed=1 staged=1 operations=1");
    ck_assert_str_eq(all, "files=3 bytes=7 uploading=1 failed=1 staged=1 operations=2");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ops");
    TCase *t = tcase_create("ops");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_change_leaves_rows, 0, ARRAY_SIZE(changes));
    tcase_add_loop_test(t, a_change_is_refused, 0, ARRAY_SIZE(refusals));
    tcase_add_test(t, what_is_owed_is_told_in_numbers);
    suite_add_tcase(s, t);
    t = tcase_create("stores");
    tcase_add_checked_fixture(t, setup_stores, teardown_stores);
    tcase_add_loop_test(t, the_row_of_what_moves_to_another_store_names_it, 0, 2);
    tcase_add_test(t, what_no_store_had_moves_without_a_place);
    tcase_add_test(t, what_lost_pages_moves_to_no_other_store);
    tcase_add_test(t, a_path_without_a_route_is_logged_once_a_minute);
    suite_add_tcase(s, t);
    return suite_run(s);
}
