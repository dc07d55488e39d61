/* cache/: what a mount finds that an earlier one left: after a reboot of the machine, and with
 * a damaged journal. */
#include "cache/cache.h"
#include "cache/mirror/crash.h"
#include "cache/offline.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PART  65536
#define LARGE (64 * PART) /* more than a reader is read ahead at once */

/* ---- the disk can't read a directory ---- */

static atomic_bool damaged;
static char vanishing[128]; /* goes when it has been listed */

/* libc's. The headers may call it readdir64(). */
struct dirent *readdir(DIR *d)
{
    static struct dirent *(*libc)(DIR *);

    if (!libc)
        *(void **)&libc = dlsym(RTLD_NEXT, "readdir64");
    if (atomic_load(&damaged)) {
        errno = EIO;
        return NULL;
    }
    struct dirent *e = libc(d);
    if (e && *vanishing && strcmp(e->d_name, strrchr(vanishing, '/') + 1) == 0)
        (void)unlink(vanishing);
    return e;
}

/* ---- the store takes nothing ---- */

static atomic_bool refusing, refusing_removals;
static atomic_uint adding; /* requests that add something */

static int64_t refuse(struct layer *l, struct call *c)
{
    (void)l;
    bool adds = c->kind == CALL_PUT || c->kind == CALL_BEGIN || c->kind == CALL_RENAME ||
                c->kind == CALL_COPY;

    if (adds)
        atomic_fetch_add(&adding, 1);
    bool refused = adds ? atomic_load(&refusing)
                        : c->kind == CALL_REMOVE && atomic_load(&refusing_removals);
    if (refused)
        return op_fail(c->op, -EACCES, "%s %s: refused", call_name(c->kind), c->key);
    return call_next(c);
}

/* ---- what is pending ---- */

struct pending {
    char text[1024];
};

static int add_pending(void *arg, const struct cache_pending *p)
{
    struct pending *all = arg;
    size_t len = strlen(all->text);

    (void)snprintf(all->text + len, sizeof(all->text) - len, "[%s %s]", p->kind, p->path);
    return 0;
}

static void has_pending(const struct pending *p, const char *one, bool there)
{
    ck_assert_msg(!!strstr(p->text, one) == there, "%s %s: %s", one,
                  there ? "is missing" : "is listed", p->text);
}

static void file_path(struct driven *d, const char *name, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%s/%s", d->dir, name);
}

/* ---- after a reboot ---- */

static void another_boot(struct driven *d)
{
    char path[128];

    file_path(d, "boot", path, sizeof(path));
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs("00000000-0000-0000-0000-000000000000\n", f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

/* What a crash of the machine does to data that was not synced: blocks are lost, size and times
 * are not. */
static void lose_blocks(struct driven *d, const char *name, off_t off, size_t len)
{
    static const char zeros[PART];
    char path[128];
    struct stat st;

    file_path(d, name, path, sizeof(path));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(pwrite(fd, zeros, len, off), (ssize_t)len);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    ck_assert_int_eq(futimens(fd, times), 0);
    (void)close(fd);
}

static void write_synced(struct driven *d, const char *name, const char *before,
                         const char *after)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(d, name, O_WRONLY | O_CREAT | O_TRUNC, &h), 0);
    ck_assert_int_eq(driven_write(d, h, before, strlen(before), 0), 0);
    ck_assert_int_eq(driven_fsync(d, h), 0);
    /* A change within the clock's granularity of the sync could not be told from it. */
    (void)usleep(30000);
    if (after)
        ck_assert_int_eq(driven_write(d, h, after, strlen(after), strlen(before)), 0);
    ck_assert_int_eq(driven_close(d, h), 0);
}

static ino_t ino_of(struct driven *d, const char *path)
{
    struct stat st;

    ck_assert_int_eq(driven_stat(d, path, &st), 0);
    return st.st_ino;
}

static void before_the_reboot(struct driven *d, const char *large)
{
    char buf[PART];

    d->config.part_size = PART;
    d->config.settle_ns = 10 * NS_PER_SEC; /* no upload is refused, and told, before a close */
    driven_store(d, "partial", large, LARGE);
    driven_store(d, "from/x", "x", 1);
    driven_mount(d);
    driven_put(d, "clean", "clean", 5);
    driven_put(d, "clean2", "clean", 5);
    driven_put(d, "changed", "old", 3);
    driven_put(d, "synced", "old", 3);
    driven_put(d, "from/moved", "moved", 5);
    ck_assert_int_eq(driven_flush(d), 0);
    ck_assert_int_eq(driven_rename(d, "from", "to"), 0);
    ck_assert_int_eq(driven_rename(d, "to/moved", "to/again"), 0);
    ck_assert_int_eq(driven_flush(d), 0);
    ck_assert_int_eq(driven_read(d, "partial", buf, sizeof(buf)), PART);
    ck_assert_str_eq(driven_state(d, "partial"), "partial");
    atomic_store(&refusing, true);
    driven_put(d, "changed", "unsynced", 8);
    driven_put(d, "new", "unsynced", 8);
    write_synced(d, "synced", "synced", NULL);
    write_synced(d, "dir/later", "synced", "unsynced");
    ck_assert_int_eq(driven_link(d, "clean2", "link"), 0);
    driven_unmount(d);
}

START_TEST(after_a_reboot_only_what_was_synced_counts)
{
    static char large[LARGE], back[LARGE];
    struct pending pending = {""};
    struct cache_stats s;
    struct driven d;
    struct op op;

    memset(large, 'x', sizeof(large));
    driven_init(&d, refuse);
    driven_store(&d, "dir/x", "x", 1);
    before_the_reboot(&d, large);
    driven_mount(&d);
    ino_t clean = ino_of(&d, "clean"), partial = ino_of(&d, "partial");
    ino_t synced = ino_of(&d, "synced");
    /* An attempt to upload it writes its stamp: it is synced as before. */
    DRIVEN_WAIT((cache_get_stats(d.cache, &s), s.failed_files == 5));
    driven_unmount(&d);
    another_boot(&d);
    lose_blocks(&d, "mirror/clean", 0, 5);
    lose_blocks(&d, "mirror/clean2", 0, 5);
    lose_blocks(&d, "mirror/partial", 0, PART);
    lose_blocks(&d, "mirror/changed", 0, 8);
    atomic_store(&refusing, false);
    driven_mount(&d);
    cache_get_stats(d.cache, &s);
    ck_assert_uint_eq(s.kept_files, 5);
    (void)cache_each_pending(d.cache, add_pending, &pending);
    has_pending(&pending, "[kept changed]", true);
    has_pending(&pending, "[kept new]", true);
    has_pending(&pending, "[kept dir/later]", true);
    has_pending(&pending, "[kept link]", true);
    ck_assert_uint_eq(ino_of(&d, "clean"), clean);
    ck_assert_uint_eq(ino_of(&d, "partial"), partial);
    ck_assert_uint_eq(ino_of(&d, "synced"), synced);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "changed", "old");
    driven_stores(&d, "synced", "synced");
    driven_stores(&d, "to/again", "moved");
    ck_assert_int_eq(driven_stored(&d, "new", back, 1), -ENOENT);
    ck_assert_int_eq(driven_stored(&d, "link", back, 1), -ENOENT);
    ck_assert_int_eq(driven_stored(&d, "dir/later", back, 1), -ENOENT);
    ck_assert_int_eq(driven_read(&d, "clean", back, sizeof(back)), 5);
    ck_assert_mem_eq(back, "clean", 5);
    ck_assert_int_eq(driven_read(&d, "clean2", back, sizeof(back)), 5);
    ck_assert_mem_eq(back, "clean", 5);
    ck_assert_int_eq(driven_read(&d, "changed", back, sizeof(back)), 3);
    ck_assert_int_eq(driven_read(&d, "partial", back, sizeof(back)), LARGE);
    ck_assert_mem_eq(back, large, sizeof(large));
    driven_unmount(&d);
    /* What is kept is still listed when nothing is mounted, and what it holds is what was
     * there. */
    pending.text[0] = '\0';
    op_init(&op, 10 * NS_PER_SEC);
    ck_assert_int_eq(recover_list(d.dir, &op, add_pending, &pending), 0);
    has_pending(&pending, "[kept new]", true);
    has_pending(&pending, "[write synced]", false);
    driven_release(&d);
}
END_TEST

/* The same boot: what was closed counts, synced or not. */
START_TEST(after_a_crash_all_that_was_closed_counts)
{
    static char large[LARGE];
    struct driven d;

    driven_init(&d, refuse);
    driven_store(&d, "dir/x", "x", 1);
    before_the_reboot(&d, large);
    atomic_store(&refusing, false);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "changed", "unsynced");
    driven_stores(&d, "new", "unsynced");
    driven_stores(&d, "synced", "synced");
    driven_stores(&d, "dir/later", "syncedunsynced");
    driven_stores(&d, "link", "clean");
    driven_release(&d);
}
END_TEST

static bool is_kept(struct driven *d, const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/kept/%s", d->dir, name);
    return access(path, F_OK) == 0;
}

static struct driven *recovering;
static unsigned taken_back;

static void nothing_is_kept_yet(const char *point)
{
    if (strcmp(point, "removals-taken-back") != 0)
        return;
    taken_back++;
    ck_assert(!is_kept(recovering, "two") && !is_kept(recovering, "moved"));
}

/* A removal waits for what was closed before it; what is kept never comes. What has to make
 * room for a synced file goes, and what was removed before. */
START_TEST(what_followed_an_unsynced_file_is_not_removed)
{
    bool synced = _i == 1;
    struct driven d;
    char back[8];

    driven_init(&d, refuse);
    recovering = &d;
    taken_back = 0;
    d.config.settle_ns = 10 * NS_PER_SEC;
    d.config.late_ns = 0; /* what was refused does not come late */
    driven_mount(&d);
    driven_put(&d, "zero", "zero", 4);
    driven_put(&d, "one", "one", 3);
    driven_put(&d, "moving", "old", 3);
    driven_put(&d, "place", "file", 4);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refusing, true);
    atomic_store(&refusing_removals, true);
    ck_assert_int_eq(driven_unlink(&d, "zero"), 0);
    write_synced(&d, "two", "two", synced ? NULL : "!");
    write_synced(&d, "moving", "new", synced ? NULL : "!");
    ck_assert_int_eq(driven_rename(&d, "moving", "moved"), 0);
    ck_assert_int_eq(driven_unlink(&d, "one"), 0);
    ck_assert_int_eq(driven_rmdir(&d, "dir"), 0);
    ck_assert_int_eq(driven_unlink(&d, "place"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "place"), 0);
    write_synced(&d, "place/file", "file", NULL);
    driven_unmount(&d);
    another_boot(&d);
    atomic_store(&refusing, false);
    atomic_store(&refusing_removals, false);
    crash_watch(nothing_is_kept_yet);
    driven_mount(&d);
    crash_watch(NULL);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(is_kept(&d, "two"), !synced);
    ck_assert_int_eq(driven_stored(&d, "zero", back, sizeof(back)), -ENOENT);
    driven_stores(&d, "place/file", "file");
    ck_assert_int_lt(driven_stored(&d, "place", back, sizeof(back)), 0);
    if (synced) {
        driven_stores(&d, "two", "two");
        driven_stores(&d, "moved", "new");
        ck_assert_int_eq(driven_stored(&d, "one", back, sizeof(back)), -ENOENT);
        ck_assert_int_eq(driven_stored(&d, "moving", back, sizeof(back)), -ENOENT);
    } else {
        driven_stores(&d, "one", "one");
        driven_stores(&d, "moving", "old");
        ck_assert_int_eq(driven_read(&d, "one", back, sizeof(back)), 3);
    }
    struct stat st;
    ck_assert_int_eq(driven_stat(&d, "dir", &st), synced ? -ENOENT : 0);
    ck_assert_uint_eq(taken_back, synced ? 0 : 1);
    driven_release(&d);
}
END_TEST

/* ---- the order after a SIGKILL ---- */

/* For calls that find what they need here. */
static void never(struct waiter *w, int err)
{
    (void)w;
    (void)err;
    ck_abort_msg("woken");
}

static void make_something(struct driven *d, int which)
{
    const struct cache_cred cred = {0};
    struct waiter w = {.wake = never};
    struct node *root = cache_root(d->cache), *n = NULL;
    struct handle *h = NULL;
    struct stat st;

    if (which == 0)
        ck_assert_int_eq(cache_symlink(d->cache, root, "latest", "two", &cred, &w, &n, &st), 0);
    else if (which == 1 || which == 2)
        ck_assert_int_eq(cache_mknod(d->cache, root, "made",
                                     (which == 1 ? S_IFREG : S_IFIFO) | 0644, 0, &cred, &w, &n,
                                     &st),
                         0);
    else if (which == 3)
        ck_assert_int_eq(driven_truncate(d, "a", 1), 0);
    else if (which == 4)
        ck_assert_int_eq(driven_exchange(d, "a", "b"), 0);
    else
        ck_assert_int_eq(driven_open(d, "made", O_RDONLY | O_CREAT, &h), 0);
    if (h)
        ck_assert_int_eq(driven_close(d, h), 0);
    if (n)
        cache_forget(d->cache, n, 1);
}

/* What nobody closed has its place in the order, too: a removal that came later waits for it.
 */
START_TEST(what_has_no_close_keeps_its_place)
{
    struct driven d;
    char back[8];

    driven_init(&d, refuse);
    driven_store(&d, "a", "aa", 2);
    driven_store(&d, "b", "bb", 2);
    driven_mount(&d);
    driven_put(&d, "one", "one", 3);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_list(&d, ""), 3);
    atomic_store(&refusing, true);
    make_something(&d, _i);
    ck_assert_int_eq(driven_unlink(&d, "one"), 0);
    (void)usleep(300000);
    driven_stores(&d, "one", "one");
    driven_unmount(&d);
    driven_mount(&d);
    (void)usleep(700000);
    driven_stores(&d, "one", "one");
    driven_unmount(&d);
    atomic_store(&refusing, false);
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_stored(&d, "one", back, sizeof(back)), -ENOENT);
    driven_release(&d);
}
END_TEST

/* ---- a damaged journal ---- */

static const struct {
    const char *file;
    off_t keep;  /* bytes that stay as they are */
    size_t fill; /* bytes of noise behind them */
} damages[] = {
    {"state.db", 0, 0},       {"state.db", 0, 20000},     {"state.db", 100, 0},
    {"state.db", 100, 20000}, {"state.db", 4096, 100000}, {"state.db-wal", 0, 20000},
};

static void damage(struct driven *d, const char *file, off_t keep, size_t fill)
{
    char path[128], noise[4096];

    file_path(d, file, path, sizeof(path));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, keep), 0);
    for (size_t done = 0; done < fill; done += sizeof(noise)) {
        for (size_t i = 0; i < sizeof(noise); i++)
            noise[i] = (char)(random() >> 7);
        ck_assert_int_eq(pwrite(fd, noise, sizeof(noise), keep + (off_t)done), sizeof(noise));
    }
    (void)close(fd);
}

static bool set_aside(struct driven *d)
{
    DIR *dir = opendir(d->dir);
    bool found = false;

    ck_assert_ptr_nonnull(dir);
    for (struct dirent *e; (e = readdir(dir));)
        found = found || strncmp(e->d_name, "state.db.damaged-", 17) == 0;
    (void)closedir(dir);
    return found;
}

/* Whatever became of the journal: what was written and closed is in the mirror, and goes up. */
START_TEST(a_damaged_journal_loses_no_content)
{
    struct driven d;
    struct stat st;

    driven_init(&d, refuse);
    d.config.settle_ns = 10 * NS_PER_SEC; /* as above */
    driven_store(&d, "dir/x", "x", 1);
    driven_store(&d, "gone", "gone", 4);
    driven_store(&d, "was", "was", 3);
    driven_mount(&d);
    atomic_store(&refusing, true);
    driven_put(&d, "a", "first", 5);
    driven_put(&d, "dir/b", "second", 6);
    ck_assert_int_eq(driven_unlink(&d, "gone"), 0);
    driven_unmount(&d);
    damage(&d, damages[_i].file, damages[_i].keep, damages[_i].fill);
    atomic_store(&refusing, false);
    driven_mount(&d);
    ck_assert_int_eq(driven_stat(&d, "a", &st), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "a", "first");
    driven_stores(&d, "dir/b", "second");
    driven_stores(&d, "was", "was");
    /* An empty file is a new database to SQLite, noise in its log is none of its log's. */
    bool readable = damages[_i].keep + (off_t)damages[_i].fill == 0 ||
                    strcmp(damages[_i].file, "state.db") != 0;
    ck_assert_int_eq(set_aside(&d), !readable);
    driven_release(&d);
}
END_TEST

/* A log was rotated, nothing of it is here, and the row of the rename is lost: the store's
 * object is all there is of the older one, and stays. The new one is kept beside it. */
START_TEST(without_journal_nothing_of_unknown_origin_is_replaced)
{
    struct pending pending = {""};
    struct driven d;

    driven_init_like_s3(&d, refuse);
    driven_store(&d, "log", "older", 5);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, ""), 1);
    atomic_store(&refusing, true);
    ck_assert_int_eq(driven_rename(&d, "log", "log.1"), 0);
    driven_put(&d, "log", "newer", 5);
    driven_put(&d, "new", "new", 3);
    driven_unmount(&d);
    damage(&d, "state.db", 0, 20000);
    atomic_store(&refusing, false);
    driven_mount(&d);
    (void)driven_flush(&d); /* tells of what lost, unless it has lost before */
    driven_stores(&d, "log", "older");
    driven_stores(&d, "new", "new");
    (void)cache_each_pending(d.cache, add_pending, &pending);
    has_pending(&pending, "[kept log]", true);
    driven_release(&d);
}
END_TEST

/* Both at once: what was renamed and not synced has no name in the store that it could come
 * from, and its blocks may be lost. It is kept, and the store's own name shows again. */
START_TEST(without_journal_after_a_reboot_a_renamed_file_is_kept)
{
    struct pending pending = {""};
    struct driven d;
    char back[8];

    driven_init(&d, refuse);
    driven_mount(&d);
    driven_put(&d, "a", "first", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&refusing, true);
    ck_assert_int_eq(driven_rename(&d, "a", "b"), 0);
    driven_unmount(&d);
    damage(&d, "state.db", 0, 20000);
    another_boot(&d);
    lose_blocks(&d, "mirror/b", 0, 5);
    atomic_store(&refusing, false);
    driven_mount(&d);
    (void)cache_each_pending(d.cache, add_pending, &pending);
    has_pending(&pending, "[kept b]", true);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "a", "first");
    ck_assert_int_eq(driven_stored(&d, "b", back, sizeof(back)), -ENOENT);
    ck_assert_int_eq(driven_read(&d, "a", back, sizeof(back)), 5);
    ck_assert_mem_eq(back, "first", 5);
    driven_release(&d);
}
END_TEST

/* ---- many names of one file ---- */

#define NAMES 300

static const char *nth_name(int i)
{
    static char name[64];

    (void)snprintf(name, sizeof(name), "dir/one-of-many-names-of-one-file-%04d", i);
    return name;
}

static unsigned stamp_flags(struct driven *d, const char *name)
{
    char path[160], text[256] = "";
    unsigned flags = 0;

    (void)snprintf(path, sizeof(path), "%s/mirror/%s", d->dir, name);
    ck_assert_int_gt(getxattr(path, "user.runfs.a", text, sizeof(text) - 1), 0);
    ck_assert_int_eq(sscanf(text, "1 %*x %*o %*u %*u %*x %*u %*u %*u %x", &flags), 1);
    return flags;
}

static void has_all_names(struct driven *d, const char *content)
{
    char buf[16];

    ck_assert_int_eq(driven_list(d, "dir"), NAMES);
    for (int i = 0; i < NAMES; i++) {
        memset(buf, 0, sizeof(buf));
        ck_assert_int_eq(driven_read(d, nth_name(i), buf, sizeof(buf) - 1),
                         (ssize_t)strlen(content));
        ck_assert_str_eq(buf, content);
        ck_assert_str_ne(driven_state(d, nth_name(i)), "dirty");
    }
}

/* More than a stamp can tell of: what is in the store is known to be there, on the next mount
 * and after a reboot, too; and what is not goes there. */
START_TEST(many_names_of_one_file)
{
    struct driven d;
    char first[64];

    atomic_store(&refusing, false);
    driven_init(&d, refuse);
    d.config.late_ns = 0;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    (void)snprintf(first, sizeof(first), "%s", nth_name(0));
    driven_put(&d, first, "content", 7);
    for (int i = 1; i < NAMES; i++)
        ck_assert_int_eq(driven_link(&d, first, nth_name(i)), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    DRIVEN_WAIT((stamp_flags(&d, first) & 1) == 0); /* nothing is owed */
    if (_i == 2) {                                  /* one of them is owed */
        atomic_store(&refusing, true);
        ck_assert_int_eq(driven_link(&d, first, "dir/another"), 0);
    }
    driven_unmount(&d);
    if (_i == 1)
        another_boot(&d);
    atomic_store(&refusing, false);
    atomic_store(&adding, 0);
    driven_mount(&d);
    if (_i == 2) {
        char buf[16] = "";
        ck_assert_int_eq(driven_flush(&d), 0);
        ck_assert_int_eq(driven_stored(&d, "dir/another", buf, sizeof(buf)), 7);
        ck_assert_int_eq(driven_unlink(&d, "dir/another"), 0);
    }
    has_all_names(&d, "content");
    ck_assert_int_eq(driven_flush(&d), 0);
    if (_i != 2)
        ck_assert_uint_eq(atomic_load(&adding), 0);
    char kept[128];
    file_path(&d, "kept/dir", kept, sizeof(kept));
    ck_assert_int_eq(access(kept, F_OK), -1);
    driven_put(&d, nth_name(NAMES - 1), "other", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    ck_assert_int_eq(driven_list(&d, "dir"), NAMES);
    driven_release(&d);
}
END_TEST

/* Names that can't be listed are owed nevertheless. */
START_TEST(a_directory_that_fails_is_not_empty)
{
    struct driven d;
    struct op op;

    driven_init_like_s3(&d, refuse);
    driven_mount(&d);
    atomic_store(&refusing, true);
    driven_put(&d, "owed", "content", 7);
    driven_unmount(&d);
    atomic_store(&refusing, false);
    atomic_store(&damaged, true);
    op_init(&op, 20 * NS_PER_SEC);
    d.config.identity = d.store->url;
    int r = cache_new(&d.config, d.store, &op, &d.cache);
    atomic_store(&damaged, false);
    ck_assert_int_eq(r, -EIO);
    ck_assert_ptr_nonnull(strstr(op.why, "recovery failed"));
    driven_mount(&d);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_stores(&d, "owed", "content");
    driven_release(&d);
}
END_TEST

/* Its owner looked at what was kept, and removes it while others list it. */
START_TEST(what_goes_meanwhile_is_no_failure)
{
    struct pending pending = {""};
    struct driven d;

    driven_init_like_s3(&d, refuse);
    driven_mount(&d);
    driven_put(&d, "x", "ours", 4);
    driven_store(&d, "x", "theirs", 6);
    (void)driven_flush(&d);
    file_path(&d, "kept/x", vanishing, sizeof(vanishing));
    ck_assert_int_eq(access(vanishing, F_OK), 0);
    int r = cache_each_pending(d.cache, add_pending, &pending);
    *vanishing = '\0';
    ck_assert_int_eq(r, 0);
    has_pending(&pending, "kept", false);
    driven_release(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_recover");
    TCase *t = tcase_create("cache_recover");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, after_a_reboot_only_what_was_synced_counts);
    tcase_add_test(t, after_a_crash_all_that_was_closed_counts);
    tcase_add_loop_test(t, what_followed_an_unsynced_file_is_not_removed, 0, 2);
    tcase_add_loop_test(t, what_has_no_close_keeps_its_place, 0, 6);
    tcase_add_loop_test(t, a_damaged_journal_loses_no_content, 0, ARRAY_SIZE(damages));
    tcase_add_test(t, without_journal_nothing_of_unknown_origin_is_replaced);
    tcase_add_test(t, without_journal_after_a_reboot_a_renamed_file_is_kept);
    tcase_add_loop_test(t, many_names_of_one_file, 0, 3);
    tcase_add_test(t, a_directory_that_fails_is_not_empty);
    tcase_add_test(t, what_goes_meanwhile_is_no_failure);
    suite_add_tcase(s, t);
    return suite_run(s);
}
