/* cache/content/: the mirror file behind a node, in a real mirror; with nothing above it. */
#include "cache/content/content_impl.h"
#include "common/mem.h"
#include "common/path.h"
#include "tests/lib/room.h"
#include "tests/lib/suite.h"
#include "tests/unit/content/suites.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define T   (1700000000 * NS_PER_SEC)
#define FDS 4

static struct cache *c;

static void setup(void)
{
    c = room_core();
    room_disk(c);
    room_tree(c);
    room_content(c, FDS);
}

static void teardown(void)
{
    room_free(c);
}

/* ---- helpers ---- */

/* A name that a listing showed, in version "v". */
static struct node *listed(const char *path, uint64_t size)
{
    ns_write(c);
    cache_lock(c);
    struct node *n = room_file_locked(c, path);
    n->size = size;
    n->mtime_ns = n->ctime_ns = T;
    etag_set(&n->links->etag, "v");
    cache_unlock(c);
    ns_done(c);
    return n;
}

/* The same with its mirror file; all of it is here when it is empty. */
static struct node *held(const char *path, uint64_t size)
{
    struct node *n = listed(path, size);

    ck_assert_int_eq(file_need(c, n), 0);
    return n;
}

static int open_mirror(const char *path, int flags)
{
    ns_read(c);
    int fd = mirror_open_path(&c->mirror, path, flags);
    ns_done(c);
    return fd;
}

static bool is_in_mirror(const char *path)
{
    auto_close int fd = open_mirror(path, O_RDONLY);

    ck_assert(fd >= 0 || fd == -ENOENT);
    return fd >= 0;
}

/* As a program would that has the mirror's file open in passthrough. */
static void write_past(const char *path, const char *text)
{
    auto_close int fd = open_mirror(path, O_RDWR);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, text, strlen(text), 0), (ssize_t)strlen(text));
}

static void look(struct node *n)
{
    struct stat st;
    int fd = file_get_fd(c, n, FD_READ);

    ck_assert_int_ge(fd, 0);
    cache_lock(c);
    ck_assert_int_eq(file_look_locked(c, n, fd, &st), 0);
    file_put_fd_locked(c, n->file, FD_READ);
    cache_unlock(c);
}

static enum file_state state_of(struct node *n)
{
    cache_lock(c);
    enum file_state state = n->file->state;
    cache_unlock(c);
    return state;
}

static unsigned fds_open(void)
{
    cache_lock(c);
    unsigned n = c->content->own->fds.open;
    cache_unlock(c);
    return n;
}

/* ---- birth ---- */

START_TEST(a_mirror_file_is_born_with_its_stamps)
{
    struct node *n = held("d/f", (uint64_t)_i);
    auto_close int fd = open_mirror("d/f", O_RDONLY);
    struct stamp_keys keys = {0};
    struct ranges present = {0};
    struct stamp_attrs a;
    struct stat st;

    ck_assert_int_eq(state_of(n), _i ? FILE_PARTIAL : FILE_CLEAN);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(st.st_size, _i);
    ck_assert_int_eq(st.st_mtim.tv_sec, T / NS_PER_SEC);
    ck_assert_int_eq(stamp_read_attrs(fd, &a), 0);
    ck_assert_uint_eq(a.ino, n->ino);
    ck_assert_uint_eq(a.mode, n->mode);
    ck_assert_uint_eq(a.flags, 0);
    ck_assert_int_eq(stamp_read_keys(fd, &keys), 0);
    const struct stamp_key *k = stamp_keys_find(&keys, "d/f");
    ck_assert_ptr_nonnull(k);
    ck_assert_str_eq(k->etag, "v");
    ck_assert(k->mtime_ns == T && k->size == (uint64_t)_i);
    ck_assert_int_eq(stamp_read_ranges(fd, &present), _i ? 0 : -ENODATA);
    ck_assert_uint_eq(present.n, 0);
    ck_assert_int_eq(file_need(c, n), 0);
    ck_assert_uint_eq(c->content->own->mirror_files, 1);
    stamp_keys_release(&keys);
}
END_TEST

START_TEST(a_file_that_can_not_be_born_leaves_nothing)
{
    struct node *n = listed("f", 5);
    auto_close int other = mirror_create(&c->mirror, "f");

    ck_assert_int_ge(other, 0);
    ck_assert_int_eq(file_need(c, n), -EEXIST);
    ck_assert_ptr_null(n->file);
    ck_assert_uint_eq(c->content->own->mirror_files, 0);
    ck_assert_int_eq(mirror_remove_incoming(&c->mirror, c->content->own->next_id), -ENOENT);
}
END_TEST

/* ---- stamps ---- */

/* What a file is, and what its stamp says then. */
enum is { DIRTY_ATTRS, WRITING, SHORT, LOST, SYNCED, BEGUN, WHOLE, KEYS_CUT, HEARSAY };

static const struct {
    enum is is;
    unsigned flags;
} stamps[] = {
    {DIRTY_ATTRS, STAMP_ATTR_DIRTY},
    {WRITING, STAMP_WRITING},
    {SHORT, STAMP_SHORT_WRITE},
    {LOST, STAMP_DISK_LOST},
    {SYNCED, STAMP_SYNCED},
    {BEGUN, STAMP_BEGUN},
    {WHOLE, STAMP_BEGUN | STAMP_WHOLE},
    {KEYS_CUT, STAMP_KEYS_CUT | STAMP_MANY},
    {HEARSAY, STAMP_HEARSAY},
};

static void becomes(struct node *n, enum is is) REQUIRES(cache_mutex)
{
    struct file *f = n->file;

    f->writing_stamp = is == WRITING;
    f->short_write = is == SHORT || is == LOST;
    f->disk_lost = is == LOST;
    f->synced_mtime_ns = is == SYNCED ? T + 1 : 0;
    f->synced_size = is == SYNCED ? 3 : 0;
    f->beginners = is == BEGUN || is == WHOLE;
    f->whole_mtime_ns = is == WHOLE ? T + 2 : 0;
    f->whole_size = is == WHOLE ? 4 : 0;
    f->keys_cut = is == KEYS_CUT;
    n->flags |= is == DIRTY_ATTRS ? NODE_ATTR_DIRTY : 0;
    n->flags |= is == HEARSAY ? NODE_ATTRS_HEARSAY : 0;
}

START_TEST(a_stamp_says_what_the_file_is)
{
    struct node *n = held("f", 0);
    auto_close int fd = open_mirror("f", O_RDONLY);
    struct stamp_attrs a;

    cache_lock(c);
    becomes(n, stamps[_i].is);
    n->file->seq = 7 * SEQ_STEP;
    n->file->debt.seq = 5 * SEQ_STEP;
    cache_unlock(c);
    ck_assert_int_eq(_i % 2 ? node_save_stamp(c, n) : node_write_stamp(c, n, fd), 0);
    ck_assert_int_eq(stamp_read_attrs(fd, &a), 0);
    ck_assert_uint_eq(a.flags, stamps[_i].flags);
    ck_assert(a.seq == 7 * SEQ_STEP && a.first_seq == 5 * SEQ_STEP);
    ck_assert_int_eq(a.synced_mtime_ns, stamps[_i].is == SYNCED ? T + 1 : 0);
    ck_assert_int_eq(a.whole_mtime_ns, stamps[_i].is == WHOLE ? T + 2 : 0);
    ck_assert_uint_eq(n->file->noted, stamps[_i].flags);
}
END_TEST

START_TEST(records_say_what_the_store_has)
{
    const struct store_ops ops = {0};
    struct store store = {.ops = &ops};
    struct node *n = held("f", 0);
    auto_close int fd = open_mirror("f", O_RDONLY);
    struct stamp_keys keys = {0};

    cache_lock(c);
    n->file->sum = (struct checksum){CHECKSUM_CRC32C, 0x1234};
    ck_assert_int_eq(stamp_keys_set(&n->file->keys, "old", "w", T - 1, 9), 0);
    cache_unlock(c);
    ck_assert_int_eq(file_write_keys(c, n, fd), 0);
    c->store = &store;
    file_expect(c, n, fd, place_of_path("new"), "x"); /* uploads there are bound to nothing */
    ck_assert_int_eq(stamp_read_keys(fd, &keys), 0);
    ck_assert_uint_eq(keys.n, 2);
    ck_assert_uint_eq(stamp_keys_find(&keys, "f")->sum.value, 0x1234);
    ck_assert_int_eq(stamp_keys_find(&keys, "old")->sum.kind, CHECKSUM_NONE);
    stamp_keys_release(&keys);
    store.facts.caps = STORE_ORIGIN;
    file_expect(c, n, fd, place_of_path("new"), "x");
    ck_assert_int_eq(stamp_read_keys(fd, &keys), 0);
    const struct stamp_key *k = stamp_keys_find(&keys, "new");
    ck_assert_ptr_nonnull(k);
    ck_assert(stamp_key_is_expected(k) && strcmp(k->etag, "x") == 0);
    ck_assert(!stamp_key_is_expected(stamp_keys_find(&keys, "f")));
    stamp_keys_release(&keys);
}
END_TEST

/* ---- looks ---- */

START_TEST(a_write_past_the_daemon_shows)
{
    struct node *n = held("f", 0);

    look(n);
    ck_assert_int_eq(state_of(n), FILE_CLEAN);
    uint64_t before = n->file->generation;
    write_past("f", "past");
    look(n);
    ck_assert_int_eq(state_of(n), FILE_DIRTY);
    ck_assert_uint_eq(n->size, 4);
    ck_assert(n->mtime_ns > T && n->ctime_ns >= n->mtime_ns);
    ck_assert(n->file->generation == before + 1 && n->file->state == FILE_DIRTY);
    ck_assert(n->links->dirty && node_is_ours(n));
    look(n);
    ck_assert_uint_eq(n->file->generation, before + 1); /* seen once */
}
END_TEST

START_TEST(a_new_time_alone_is_a_change)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 12345}};
    struct node *n = held("f", 0);
    auto_close int fd = open_mirror("f", O_RDWR);

    ck_assert_int_eq(futimens(fd, times), 0);
    look(n);
    ck_assert_int_eq(state_of(n), FILE_DIRTY);
    ck_assert_int_eq(n->mtime_ns, 12345 * NS_PER_SEC);
}
END_TEST

START_TEST(what_its_time_does_not_prove_is_a_change)
{
    struct node *n = held("f", 0);

    n->file->suspect = true;
    look(n);
    ck_assert(state_of(n) == FILE_DIRTY && !n->file->suspect);
}
END_TEST

/* Its bytes come from the store: their arrival is no change. */
START_TEST(a_partial_file_changes_by_no_look)
{
    struct node *n = held("f", 4);

    write_past("f", "came");
    look(n);
    ck_assert_int_eq(state_of(n), FILE_PARTIAL);
    ck_assert(n->mtime_ns == T && !n->links->dirty);
}
END_TEST

START_TEST(who_can_still_write_is_found)
{
    struct node *n = held("f", 0);
    auto_close int reader = open_mirror("f", O_RDONLY);
    int writer = open_mirror("f", O_RDWR);

    n->file->writing_stamp = true;
    ck_assert(file_has_writer(reader));
    cache_lock(c);
    for (uint64_t i = 1; i <= 2; i++) { /* each time anew: a dirty page moves no time */
        ck_assert_int_eq(file_look_past_locked(c, n, reader), 0);
        ck_assert(n->file->mapped_writer && n->file->state == FILE_DIRTY);
        ck_assert_uint_eq(n->file->generation, i);
    }
    (void)close(writer);
    ck_assert_int_eq(file_look_past_locked(c, n, reader), 0);
    ck_assert(!n->file->mapped_writer && n->file->generation == 2);
    cache_unlock(c);
    ck_assert(!file_has_writer(reader));
}
END_TEST

START_TEST(young_times_prove_nothing)
{
    ck_assert(mtime_was_racy(T, T) && mtime_was_racy(T, T + NS_PER_MS));
    ck_assert(mtime_was_racy(T + 1, T)); /* the clock was put back */
    ck_assert(!mtime_was_racy(T, T + NS_PER_SEC));
    ck_assert(mtime_is_racy(clock_real_ns()) && !mtime_is_racy(T));
}
END_TEST

/* ---- whose it is ---- */

START_TEST(a_file_made_anew_is_half_until_its_writer_says_so)
{
    struct node *n = held("f", 0), *log = held("logs/f", 0);

    cache_lock(c);
    ck_assert(!file_is_half_locked(c, n));
    n->file->beginners = log->file->beginners = 1;
    ck_assert(file_is_half_locked(c, n) && !file_is_half_locked(c, log));
    n->file->whole_mtime_ns = n->mtime_ns;
    n->file->whole_size = n->size;
    ck_assert(!file_is_half_locked(c, n));
    n->size++; /* written since */
    ck_assert(file_is_half_locked(c, n));
    n->size--;
    n->file->beginners = log->file->beginners = 0;
    cache_unlock(c);
}
END_TEST

static int woken_with;

static void wake(struct waiter *w, int err)
{
    (void)w;
    woken_with = err;
}

START_TEST(what_the_disk_lost_stays_held_back)
{
    struct waiter w = {.wake = wake};
    struct node *n = held("f", 0);

    cache_lock(c);
    (void)waitq_park_locked(c, &n->file->upload_waiters, &w);
    file_short_write_locked(c, n, 17);
    ck_assert_ptr_eq(c->wake_list, &w); /* it learns that it goes there no more */
    ck_assert(n->file->short_write && n->file->short_at == 17);
    ck_assert_int_eq(n->file->debt.error, -ENOSPC);
    file_disk_lost_locked(c, n);
    file_short_write_locked(c, n, 18);
    ck_assert(n->file->disk_lost && n->file->short_at == 0);
    ck_assert_int_eq(n->file->debt.error, -EIO);
    cache_unlock(c);
}
END_TEST

/* What keeps a file from eviction. */
enum keeps { NOTHING, OPEN, QUEUED, UPLOADING, DIRTY, ATTRS };

START_TEST(only_what_the_store_has_may_go)
{
    struct node *n = held("f", 4);
    struct file *f = n->file;

    cache_lock(c);
    f->open_handles = _i == OPEN;
    struct debts queue = {0};
    if (_i == QUEUED)
        debts_add(&queue, &f->debt);
    f->debt.running = _i == UPLOADING;
    f->state = _i == DIRTY ? FILE_DIRTY : FILE_PARTIAL;
    n->flags |= _i == ATTRS ? NODE_ATTR_DIRTY : 0;
    file_lru_add_locked(c, f);
    ck_assert_int_eq(f->in_lru, _i == NOTHING);
    ck_assert_ptr_eq(c->content->lru, _i == NOTHING ? f : NULL);
    f->open_handles = f->debt.running = 0;
    debt_leave(&f->debt);
    cache_unlock(c);
}
END_TEST

/* ---- descriptors ---- */

static int get(struct node *n)
{
    int fd = file_get_fd(c, n, FD_READ);

    ck_assert_int_ge(fd, 0);
    return fd;
}

static void put(struct node *n)
{
    cache_lock(c);
    file_put_fd_locked(c, n->file, FD_READ);
    cache_unlock(c);
}

static void set_handles(struct node *n, unsigned handles)
{
    cache_lock(c);
    n->file->open_handles = handles;
    file_close_spare_fds_locked(c, n->file);
    cache_unlock(c);
}

START_TEST(many_files_share_few_descriptors)
{
    struct node *v[3 * FDS];
    char name[16], byte;

    for (int i = 0; i < 3 * FDS; i++) {
        (void)snprintf(name, sizeof(name), "f%d", i);
        v[i] = held(name, 0);
        byte = (char)i;
        write_past(name, (const char[]){(char)('a' + i), '\0'});
        set_handles(v[i], 1);
    }
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 3 * FDS; i++) {
            ck_assert_int_eq(pread(get(v[i]), &byte, 1, 0), 1);
            ck_assert_int_eq(byte, 'a' + i);
            put(v[i]);
            ck_assert_uint_le(fds_open(), FDS);
        }
    ck_assert_uint_eq(fds_open(), FDS);
    ck_assert_ptr_eq(c->content->own->fds.idle, &v[2 * FDS]->file->fds[FD_READ]); /* the next */
    for (int i = 0; i < 3 * FDS; i++) /* who works with one is not made to wait */
        (void)get(v[i]);
    ck_assert_uint_eq(fds_open(), 3 * FDS);
    for (int i = 0; i < 3 * FDS; i++)
        put(v[i]);
    ck_assert_uint_eq(fds_open(), FDS);
    for (int i = 0; i < 3 * FDS; i++)
        set_handles(v[i], 0);
    ck_assert_uint_eq(fds_open(), 0);
}
END_TEST

START_TEST(those_that_are_kept_have_a_limit)
{
    cache_lock(c);
    for (int i = 0; i < FDS; i++) {
        ck_assert_int_eq(fds_plenty_locked(c), i < FDS / 2);
        ck_assert_int_eq(fds_keep_locked(c), 0);
    }
    ck_assert_int_eq(fds_room_locked(c), -ENFILE);
    ck_assert_int_eq(fds_keep_locked(c), -ENFILE);
    ck_assert(c->content->own->fds.refused == 2 && c->content->own->fds.full);
    fds_unkeep_locked(c);
    ck_assert_int_eq(fds_keep_locked(c), 0);
    for (int i = 0; i < FDS; i++)
        fds_unkeep_locked(c);
    ck_assert(c->content->own->fds.kept == 0 && !c->content->own->fds.full);
    cache_unlock(c);
}
END_TEST

/* ---- how it leaves its name ---- */

static int discard(struct node *n)
{
    ns_write(c);
    int r = file_discard(c, n);
    ns_done(c);
    return r;
}

START_TEST(only_a_file_that_nobody_uses_is_discarded)
{
    struct node *n = held("f", 4);

    set_handles(n, 1);
    ck_assert_int_eq(discard(n), -EBUSY);
    set_handles(n, 0);
    (void)get(n);
    ck_assert_int_eq(discard(n), -EBUSY);
    put(n);
    n->file->state = FILE_DIRTY;
    ck_assert_int_eq(discard(n), -EBUSY);
    n->file->state = FILE_PARTIAL;
    ck_assert(is_in_mirror("f"));
    ck_assert_int_eq(discard(n), 0);
    ck_assert_ptr_null(n->file);
    ck_assert(!is_in_mirror("f"));
    ck_assert_uint_eq(c->content->own->mirror_files, 0);
    pool_drain(c->chores);
    ck_assert_int_eq(mirror_open_orphan(&c->mirror, c->content->own->next_id, O_RDONLY),
                     -ENOENT);
    ck_assert_int_eq(discard(n), 0); /* there is none */
}
END_TEST

START_TEST(an_unlinked_file_is_read_until_its_last_close)
{
    struct node *n = held("f", 0);
    char text[8] = "";

    write_past("f", "text");
    set_handles(n, 1);
    ns_write(c);
    ck_assert_int_eq(file_orphan(c, n, "f"), 0);
    ns_done(c);
    ck_assert(!is_in_mirror("f"));
    ck_assert_int_eq(pread(get(n), text, sizeof(text), 0), 4);
    ck_assert_str_eq(text, "text");
    put(n);
    uint64_t id = n->file->orphan_id;
    ns_write(c);
    cache_lock(c);
    n->file->open_handles = 0;
    entry_remove_locked(c, n->links);
    cache_unlock(c);
    ns_done(c);
    pool_drain(c->chores);
    ck_assert_int_eq(mirror_open_orphan(&c->mirror, id, O_RDONLY), -ENOENT);
}
END_TEST

START_TEST(a_name_goes_and_others_stay)
{
    struct node *n = held("a", 0);
    struct stamp_keys keys = {0};

    ck_assert_int_eq(mirror_mkdirs(&c->mirror, "d"), 0);
    auto_close int fd = open_mirror("a", O_RDONLY);
    ck_assert_int_eq(mirror_link_fd(&c->mirror, fd, "d/b"), 0);
    ns_write(c);
    cache_lock(c);
    ck_assert_ptr_nonnull(entry_add_locked(c, room_dir_locked(c, "d"), "b", n));
    ck_assert_int_eq(stamp_keys_set(&n->file->keys, "d/b", "v", T, 0), 0);
    cache_unlock(c);
    ck_assert_int_eq(file_leave_name(c, entry_find(c->tree->root, "a")), 0);
    ns_done(c);
    ck_assert(!is_in_mirror("a") && is_in_mirror("d/b"));
    ck_assert_int_eq(stamp_read_keys(fd, &keys), 0);
    ck_assert(!stamp_keys_find(&keys, "a") && stamp_keys_find(&keys, "d/b"));
    cache_lock(c);
    /* Its number goes with the file. */
    ck_assert_uint_ne(ino_of_found_locked(c, place_of_path("a"), false), n->ino);
    cache_unlock(c);
    stamp_keys_release(&keys);
}
END_TEST

/* The store has another version now; the file is closed, or open. */
START_TEST(another_version_takes_the_name)
{
    struct object obj = {.size = 9, .mtime_ns = T + NS_PER_SEC, .etag = "w"};
    struct node *old = held("f", 4);
    uint64_t ino = old->ino;

    set_handles(old, _i != 0);
    ns_write(c);
    ck_assert_int_eq(node_replaced(c, old->links, &obj), 0);
    cache_lock(c);
    struct entry *e = entry_find(c->tree->root, "f");
    struct node *now = e->node;
    ck_assert(etag_is(&e->etag, "w") && now->size == 9 && now->ino == ino && !now->file);
    ck_assert_int_eq(now == old, _i == 0);
    if (now != old) {
        ck_assert((old->flags & NODE_REPLACED) && !old->links && old->file->orphan_id);
        /* Its other bytes are still read there. */
        ck_assert_str_eq(old->file->orphan_source.key, "f");
        ck_assert_uint_eq(c->content->n_stale_readers, 1);
        old->file->open_handles = 0;
    }
    cache_unlock(c);
    ns_done(c);
    ck_assert(!is_in_mirror("f"));
}
END_TEST

static void add_births(TCase *t)
{
    tcase_add_loop_test(t, a_mirror_file_is_born_with_its_stamps, 0, 5);
    tcase_add_test(t, a_file_that_can_not_be_born_leaves_nothing);
    tcase_add_loop_test(t, a_stamp_says_what_the_file_is, 0, ARRAY_SIZE(stamps));
    tcase_add_test(t, records_say_what_the_store_has);
}

static void add_looks(TCase *t)
{
    tcase_add_test(t, a_write_past_the_daemon_shows);
    tcase_add_test(t, a_new_time_alone_is_a_change);
    tcase_add_test(t, what_its_time_does_not_prove_is_a_change);
    tcase_add_test(t, a_partial_file_changes_by_no_look);
    tcase_add_test(t, who_can_still_write_is_found);
    tcase_add_test(t, young_times_prove_nothing);
    tcase_add_test(t, a_file_made_anew_is_half_until_its_writer_says_so);
    tcase_add_test(t, what_the_disk_lost_stays_held_back);
    tcase_add_loop_test(t, only_what_the_store_has_may_go, NOTHING, ATTRS + 1);
}

static void add_ends(TCase *t)
{
    tcase_add_test(t, many_files_share_few_descriptors);
    tcase_add_test(t, those_that_are_kept_have_a_limit);
    tcase_add_test(t, only_a_file_that_nobody_uses_is_discarded);
    tcase_add_test(t, an_unlinked_file_is_read_until_its_last_close);
    tcase_add_test(t, a_name_goes_and_others_stay);
    tcase_add_loop_test(t, another_version_takes_the_name, 0, 2);
}

int main(void)
{
    static void (*const adds[])(TCase *) = {add_births, add_looks, add_ends};
    static const char *const names[] = {"births", "looks", "ends"};
    Suite *s = suite_create("content");

    for (size_t i = 0; i < ARRAY_SIZE(adds); i++) {
        TCase *t = tcase_create(names[i]);
        tcase_add_checked_fixture(t, setup, teardown);
        adds[i](t);
        suite_add_tcase(s, t);
    }
    Suite *const suites[] = {s, rows_suite()};
    return suites_run(suites, ARRAY_SIZE(suites));
}
