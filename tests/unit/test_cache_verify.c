/* cache/: whether the store has what this mount says, and how safe a content is
 * (user.runfs.durability). */
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGE  (3 * 65536 + 5)
#define OLD_US 250000 /* a listing is believed for 200 ms at least */

/* ---- a store that keeps no checksums, damages what it has, is asked at a moment ---- */

static struct driven d;
static atomic_bool no_sums, other_sums, damages, asked, holds;
static atomic_int fails;
static atomic_uint slow_us;
static atomic_uint reads, stats, lists;
static void (*_Atomic meanwhile)(void); /* called once, before the next stat that verifies */
static char content[LARGE];

struct damaging {
    struct sink base;
    struct sink *to;
};

static int damage(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct damaging *dam = container_of(sink, struct damaging, base);
    auto_free char *copy = malloc(len ? len : 1);

    memcpy(copy, data, len);
    if (off == 0 && len)
        copy[len - 1] ^= 4;
    return dam->to->write(dam->to, copy, len, off);
}

struct hiding {
    store_visit visit;
    void *arg;
};

static int hide_sum(void *arg, const char *name, const struct object *obj)
{
    const struct hiding *h = arg;
    struct object shown = *obj;

    shown.checksum.kind = CHECKSUM_NONE;
    return h->visit(h->arg, name, &shown);
}

static int64_t around(struct layer *l, struct call *c)
{
    struct damaging dam = {{damage}, c->sink};
    struct hiding hiding = {c->visit, c->visit_arg};

    (void)l;
    if (c->kind == CALL_LIST && atomic_load(&no_sums)) {
        c->visit = hide_sum;
        c->visit_arg = &hiding;
    }
    if (atomic_load(&asked) && c->kind == CALL_STAT) {
        void (*then)(void) = atomic_exchange(&meanwhile, NULL);
        atomic_fetch_add(&stats, 1);
        if (then)
            then();
        (void)usleep(atomic_load(&slow_us));
        if (atomic_load(&fails))
            return op_fail(c->op, atomic_load(&fails), "as told");
    }
    if ((c->kind == CALL_RENAME || c->kind == CALL_COPY) && atomic_load(&holds))
        return op_fail(c->op, -EAGAIN, "not now");
    atomic_fetch_add(&reads, c->kind == CALL_READ);
    atomic_fetch_add(&lists, c->kind == CALL_LIST);
    if (c->kind == CALL_READ && atomic_load(&damages))
        c->sink = &dam.base;
    int64_t r = call_next(c);
    if (r >= 0 && c->ret_obj && c->kind != CALL_LIST) {
        if (atomic_load(&no_sums))
            c->ret_obj->checksum.kind = CHECKSUM_NONE;
        if (atomic_load(&other_sums))
            c->ret_obj->checksum.value ^= 1;
    }
    return r;
}

static void reset(void)
{
    atomic_store(&no_sums, false);
    atomic_store(&other_sums, false);
    atomic_store(&damages, false);
    atomic_store(&asked, false);
    atomic_store(&holds, false);
    atomic_store(&fails, 0);
    atomic_store(&slow_us, 0);
    atomic_store(&reads, 0);
    atomic_store(&stats, 0);
    atomic_store(&meanwhile, NULL);
    for (size_t i = 0; i < LARGE; i++)
        content[i] = (char)(i * 7 % 253);
}

static void setup(void)
{
    reset();
    driven_init(&d, around);
}

static void setup_like_s3(void)
{
    reset();
    driven_init_like_s3(&d, around);
}

static void setup_without_sums(void)
{
    setup();
    atomic_store(&no_sums, true);
}

static void setup_folder(void)
{
    reset();
    driven_init_folder(&d, around, 65536);
}

static void teardown(void)
{
    driven_release(&d);
}

/* ---- asking ---- */

static struct {
    unsigned told;
    enum cache_verdict verdict;
    char path[64], expected[160], found[160], why[320];
    bool local;
} last;
static struct cache_verify_total total;
static struct op op;

static int note(void *arg, const struct cache_verified *v)
{
    (void)arg;
    last.told++;
    last.verdict = v->verdict;
    last.local = v->local;
    (void)snprintf(last.path, sizeof(last.path), "%s", v->path);
    (void)snprintf(last.expected, sizeof(last.expected), "%s", v->expected);
    (void)snprintf(last.found, sizeof(last.found), "%s", v->found);
    (void)snprintf(last.why, sizeof(last.why), "%s", v->why);
    return 0;
}

static int verify_with(const char *path, unsigned flags)
{
    memset(&last, 0, sizeof(last));
    op_init(&op, 20 * NS_PER_SEC);
    atomic_store(&stats, 0);
    atomic_store(&reads, 0);
    atomic_store(&lists, 0);
    atomic_store(&asked, true);
    int r = cache_verify_path(d.cache, path, flags, &op, note, NULL, NULL, &total);
    atomic_store(&asked, false);
    return r;
}

static int verify(const char *path)
{
    return verify_with(path, 0);
}

static void verifies(const char *path, unsigned files, unsigned read_back)
{
    ck_assert_int_eq(verify(path), 0);
    ck_assert_msg(last.told == 0, "%s: %s (%s; %s)", last.path, last.why, last.expected,
                  last.found);
    ck_assert_uint_eq(total.files[CACHE_VERIFIED], files);
    ck_assert_uint_eq(total.read_back, read_back);
}

/* Just one file is told of. */
static void tells(const char *path, enum cache_verdict verdict, const char *of)
{
    ck_assert_int_eq(verify(path), 0);
    ck_assert_uint_eq(last.told, 1);
    ck_assert_str_eq(last.path, of);
    ck_assert_msg(last.verdict == verdict, "%d: %s", (int)last.verdict, last.why);
    ck_assert_uint_eq(total.files[verdict], 1);
}

static const char *durability(const char *path)
{
    static char value[32];
    ssize_t n = driven_getxattr(&d, path, "user.runfs.durability", value, sizeof(value) - 1);

    value[n < 0 ? 0 : n] = '\0';
    return value;
}

static void stored(const char *path, const char *text)
{
    driven_put(&d, path, text, strlen(text));
    ck_assert_int_eq(driven_flush(&d), 0);
}

static int fetch(const char *path)
{
    op_init(&op, 10 * NS_PER_SEC);
    return cache_fetch_path(d.cache, path, &op, NULL, NULL);
}

static int evict(const char *path)
{
    struct cache_evicted e;

    op_init(&op, 10 * NS_PER_SEC);
    int r = cache_evict_path(d.cache, path, &op, NULL, NULL, &e);
    return r < 0 ? r : (int)e.files;
}

/* ---- verified ---- */

START_TEST(a_stored_tree_is_verified)
{
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "run"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "run/deep"), 0);
    driven_put(&d, "run/a", "some text", 9);
    driven_put(&d, "run/empty", "", 0);
    driven_put(&d, "run/deep/large", content, LARGE);
    ck_assert_int_eq(driven_symlink(&d, "deep/large", "run/link"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    verifies("run", 4, 0);
    ck_assert_uint_eq(total.bytes, 9 + LARGE + 10);
    ck_assert_uint_eq(atomic_load(&reads), 0);
    verifies("run/deep/large", 1, 0);
    verifies("", 4, 0);
    ck_assert_int_eq(verify("nothing"), -ENOENT);
}
END_TEST

/* The server's word is none: the object itself is read. */
START_TEST(where_no_checksum_is_kept_it_is_read_back)
{
    driven_mount(&d);
    driven_put(&d, "a", "some text", 9);
    driven_put(&d, "empty", "", 0);
    driven_put(&d, "large", content, LARGE);
    ck_assert_int_eq(driven_flush(&d), 0);
    verifies("", 3, 2);
    ck_assert_uint_eq(atomic_load(&reads), 2);
}
END_TEST

/* What this mount has never had is compared with what the store keeps of that very version. */
START_TEST(what_only_a_listing_told_is_read_back)
{
    driven_store(&d, "dir/a", "some text", 9);
    driven_store(&d, "dir/empty", "", 0);
    driven_mount(&d);
    ck_assert_str_eq(durability("dir/a"), "store");
    atomic_store(&damages, true);
    tells("dir", CACHE_DIFFERS, "dir/a");
    ck_assert_str_eq(durability("dir/a"), "store");
    atomic_store(&damages, false);
    verifies("dir", 2, 1);
    ck_assert_str_eq(durability("dir/a"), "verified");
    verifies("dir", 2, 0); /* its checksum is known now */
}
END_TEST

START_TEST(with_nothing_to_compare_it_is_not_verified)
{
    driven_store(&d, "dir/a", "some text", 9);
    driven_mount(&d);
    tells("dir", CACHE_NOT_COMPARED, "dir/a");
    ck_assert_int_eq(fetch("dir/a"), 0);
    verifies("dir", 1, 1);
}
END_TEST

/* Nothing of it is here, and what the store keeps is of the other version. */
START_TEST(what_only_a_listing_told_is_replaced)
{
    driven_store(&d, "dir/a", "some text", 9);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "dir"), 1);
    driven_store(&d, "dir/a", "some tent", 9);
    tells("dir", CACHE_DIFFERS, "dir/a");
    ck_assert_ptr_nonnull(strstr(last.expected, "version "));
}
END_TEST

START_TEST(evicted_content_is_known_by_its_checksum)
{
    driven_mount(&d);
    stored("a", "some text");
    ck_assert_int_eq(evict("a"), 1);
    verifies("a", 1, 0);
    atomic_store(&other_sums, true);
    tells("a", CACHE_DIFFERS, "a");
    ck_assert(!last.local);
}
END_TEST

/* ---- not what it should be ---- */

static void another_writer(bool listed)
{
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    stored("dir/a", "some text");
    driven_store(&d, "dir/a", "some tent", 9);
    if (listed)
        (void)usleep(OLD_US);
    tells("dir", CACHE_DIFFERS, "dir/a");
    ck_assert_ptr_nonnull(strstr(last.why, "another version"));
    ck_assert(last.local);
}

START_TEST(what_another_writer_put_differs)
{
    another_writer(false);
    ck_assert_ptr_nonnull(strstr(last.expected, "9 bytes, crc32c:"));
    ck_assert_ptr_nonnull(strstr(last.found, "9 bytes, crc32c:"));
    ck_assert_str_ne(last.expected, last.found);
}
END_TEST

/* The listing that the walk asks for shows this mount the other version: not before it is
 * compared. */
START_TEST(a_listing_on_the_way_hides_nothing)
{
    d.config.list_timeout_ns = d.config.attr_timeout_ns = NS_PER_MS;
    another_writer(true);
}
END_TEST

START_TEST(another_version_of_the_same_content_is_right)
{
    driven_mount(&d);
    stored("a", "some text");
    driven_store(&d, "a", "some text", 9);
    ck_assert_int_eq(verify("a"), 0);
    ck_assert_uint_eq(last.told, 0);
}
END_TEST

START_TEST(what_was_truncated_differs)
{
    driven_mount(&d);
    stored("a", "some text");
    driven_store(&d, "a", "some", 4);
    tells("a", CACHE_DIFFERS, "a");
    ck_assert_ptr_nonnull(strstr(last.expected, "9 bytes"));
    ck_assert_ptr_nonnull(strstr(last.found, "4 bytes"));
    driven_store(&d, "a", "", 0);
    tells("a", CACHE_DIFFERS, "a");
}
END_TEST

START_TEST(what_was_removed_is_missing)
{
    const char *key = "dir/a";
    bool late = _i;

    if (late)
        d.config.list_timeout_ns = d.config.attr_timeout_ns = NS_PER_MS;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    stored("dir/a", "some text");
    stored("dir/b", "more");
    ck_assert_str_ne(durability("dir/a"), "cache");
    op_init(&op, NS_PER_SEC);
    ck_assert_int_eq(store_remove(d.store, &op, &key, NULL, 1, NULL), 0);
    if (late) { /* the walk lists it anew, and that is told before the object */
        (void)usleep(OLD_US);
        atomic_store(&slow_us, OLD_US);
    }
    tells("dir", CACHE_MISSING, "dir/a");
    ck_assert_uint_eq(total.files[CACHE_VERIFIED], 1);
    ck_assert_str_eq(last.found, "nothing");
}
END_TEST

/* The same version, of the same size. */
START_TEST(damage_at_the_store_is_found)
{
    driven_mount(&d);
    stored("a", "some text");
    verifies("a", 1, atomic_load(&no_sums));
    ck_assert_str_eq(durability("a"), "verified");
    atomic_store(atomic_load(&no_sums) ? &damages : &other_sums, true);
    tells("a", CACHE_DIFFERS, "a");
    ck_assert_ptr_nonnull(strstr(last.why, "the version is the one"));
    ck_assert_str_eq(durability("a"), "store");
}
END_TEST

/* A folder keeps no checksums, and tells nothing of a change that sets the time back. */
START_TEST(damage_in_a_folder_is_found)
{
    char path[128];
    struct stat st;

    driven_mount(&d);
    driven_put(&d, "a", content, LARGE);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_str_eq(durability("a"), "store");
    verifies("a", 1, 1);
    ck_assert_str_eq(durability("a"), "verified");
    (void)snprintf(path, sizeof(path), "%s/a", d.folder);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(pwrite(fd, "!", 1, LARGE - 1), 1);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    ck_assert_int_eq(futimens(fd, times), 0);
    (void)close(fd);
    tells("a", CACHE_DIFFERS, "a");
    ck_assert_int_eq(unlink(path), 0);
    tells("a", CACHE_MISSING, "a");
}
END_TEST

START_TEST(a_symlink_that_leads_elsewhere_differs)
{
    struct attrs a = {.has = ATTR_MODE | ATTR_TARGET, .mode = S_IFLNK | 0777};

    driven_mount(&d);
    ck_assert_int_eq(driven_symlink(&d, "here", "link"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    verifies("link", 1, 0);
    a.target = strdup("there");
    driven_store_with(&d, "link", "", 0, &a);
    attrs_release(&a);
    tells("link", CACHE_DIFFERS, "link");
    ck_assert_str_eq(last.expected, "a symlink to here");
    ck_assert_str_eq(last.found, "a symlink to there");
}
END_TEST

START_TEST(a_directory_in_place_of_a_file_differs)
{
    const char *key = "a";

    driven_mount(&d);
    stored("a", "some text");
    op_init(&op, NS_PER_SEC);
    ck_assert_int_eq(store_remove(d.store, &op, &key, NULL, 1, NULL), 0);
    driven_store(&d, "a/b", "x", 1);
    tells("a", CACHE_DIFFERS, "a");
    ck_assert_str_eq(last.found, "a directory");
}
END_TEST

/* ---- not there yet, or not the same any more ---- */

START_TEST(what_is_dirty_is_not_stored)
{
    struct handle *h = NULL;

    driven_mount(&d);
    stored("a", "some text");
    ck_assert_int_eq(driven_open(&d, "a", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(&d, h, "S", 1, 0), 0);
    tells("a", CACHE_NOT_STORED, "a");
    ck_assert_str_eq(durability("a"), "cache");
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    verifies("a", 1, 0);
    atomic_store(&fails, -EIO); /* it is not asked for */
    driven_put(&d, "b.tmp", "x", 1);
    tells("b.tmp", CACHE_NOT_STORED, "b.tmp");
}
END_TEST

static void overwrite(void)
{
    driven_put(&d, "a", "other!!", 7);
}

START_TEST(a_change_meanwhile_is_no_damage)
{
    driven_mount(&d);
    stored("a", "some text");
    d.config.settle_ns = NS_PER_SEC;
    atomic_store(&meanwhile, overwrite);
    ck_assert_int_eq(verify("a"), 0);
    ck_assert_uint_le(last.told, 1); /* else it has come to the store, and is verified */
    ck_assert_uint_eq(total.files[CACHE_DIFFERS] + total.files[CACHE_MISSING], 0);
    ck_assert_uint_eq(total.files[CACHE_NOT_STORED] + total.files[CACHE_VERIFIED], 1);
}
END_TEST

static void overwrite_and_flush(void)
{
    overwrite();
    ck_assert_int_eq(driven_flush(&d), 0);
}

START_TEST(what_was_uploaded_meanwhile_is_looked_at_again)
{
    driven_mount(&d);
    stored("a", "some text");
    atomic_store(&meanwhile, overwrite_and_flush);
    verifies("a", 1, 0);
    ck_assert_uint_eq(total.bytes, 7);
}
END_TEST

static void take_away(void)
{
    ck_assert_int_eq(driven_unlink(&d, "a"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
}

START_TEST(what_was_removed_here_meanwhile_is_not_missing)
{
    driven_mount(&d);
    stored("a", "some text");
    atomic_store(&meanwhile, take_away);
    tells("a", CACHE_CHANGES, "a");
}
END_TEST

static void change_each_time(void)
{
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(&d, "a", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_close(&d, h), 0);
    atomic_store(&meanwhile, change_each_time);
}

START_TEST(what_never_rests_is_told_as_such)
{
    driven_mount(&d);
    stored("a", "some text");
    atomic_store(&meanwhile, change_each_time);
    ck_assert_int_eq(verify("a"), 0);
    atomic_store(&meanwhile, NULL);
    ck_assert_uint_eq(last.told, 1);
    ck_assert(last.verdict == CACHE_CHANGES || last.verdict == CACHE_NOT_STORED);
}
END_TEST

/* ---- trouble ---- */

START_TEST(an_outage_ends_it)
{
    driven_mount(&d);
    for (unsigned i = 0; i < 300; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "f%u", i);
        driven_put(&d, name, "x", 1);
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    atomic_store(&fails, -EHOSTUNREACH);
    ck_assert_int_eq(verify(""), -EHOSTUNREACH);
    ck_assert_ptr_nonnull(strstr(op.why, "as told"));
    ck_assert_uint_lt(atomic_load(&stats), 300);
    ck_assert_uint_eq(last.told, 0);
}
END_TEST

START_TEST(one_that_is_refused_ends_nothing)
{
    driven_mount(&d);
    stored("a", "x");
    stored("b", "y");
    atomic_store(&fails, -EACCES);
    ck_assert_int_eq(verify(""), 0);
    ck_assert_uint_eq(last.told, 2);
    ck_assert_int_eq(last.verdict, CACHE_UNREADABLE);
}
END_TEST

static atomic_bool cancelled;

static void cancel(void)
{
    atomic_store(&cancelled, true);
}

START_TEST(it_can_be_interrupted)
{
    driven_mount(&d);
    stored("a", "x");
    op_init(&op, 20 * NS_PER_SEC);
    atomic_store(&cancelled, false);
    op.cancelled = &cancelled;
    atomic_store(&meanwhile, cancel);
    atomic_store(&asked, true);
    memset(&last, 0, sizeof(last));
    ck_assert_int_eq(cache_verify_path(d.cache, "", 0, &op, note, NULL, NULL, &total), -EINTR);
    op_init(&op, 0);
    ck_assert_int_eq(cache_verify_path(d.cache, "", 0, &op, note, NULL, NULL, &total),
                     -ETIMEDOUT);
}
END_TEST

/* ---- what was flushed ---- */

START_TEST(of_what_was_flushed_nothing_else_is_asked)
{
    d.config.list_timeout_ns = 1;
    driven_store(&d, "dir/theirs", "some text", 9);
    driven_mount(&d);
    stored("dir/ours", "x");
    stored("dir/evicted", "y");
    ck_assert_int_eq(evict("dir/evicted"), 1);
    ck_assert_int_eq(driven_list(&d, "dir"), 3);
    (void)usleep(OLD_US);
    ck_assert_int_eq(verify_with("dir", CACHE_VERIFY_FLUSHED), 0);
    ck_assert_uint_eq(last.told, 0);
    ck_assert_uint_eq(total.files[CACHE_VERIFIED], 2);
    ck_assert_uint_eq(atomic_load(&stats), 2);
    ck_assert_uint_eq(atomic_load(&lists), 0);
    ck_assert_int_eq(driven_rename(&d, "dir/evicted", "dir/moved"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(verify_with("dir", CACHE_VERIFY_FLUSHED), 0);
    ck_assert_uint_eq(total.files[CACHE_VERIFIED], 2);
}
END_TEST

/* ---- user.runfs.durability ---- */

START_TEST(durability_follows_the_content)
{
    driven_mount(&d);
    d.config.settle_ns = 0;
    stored("a", "some text");
    ck_assert_str_eq(durability("a"), "verified"); /* the server has compared it */
    ck_assert_int_eq(driven_chmod(&d, "a", 0600), 0);
    ck_assert_str_eq(durability("a"), "cache");
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_str_eq(durability("a"), "store"); /* another version, that nobody compared */
    verifies("a", 1, 0);
    ck_assert_str_eq(durability("a"), "verified");
    driven_put(&d, "a", "other", 5);
    ck_assert_str_ne(durability("a"), "store");
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_str_eq(durability("a"), "verified");
    ck_assert_int_eq(evict("a"), 1);
    ck_assert_str_eq(durability("a"), "verified");
}
END_TEST

START_TEST(durability_without_checksums_is_store)
{
    driven_store(&d, "b", "more", 4);
    driven_mount(&d);
    stored("a", "some text");
    ck_assert_str_eq(durability("a"), "store");
    ck_assert_int_eq(fetch("b"), 0);
    ck_assert_str_eq(durability("b"), "store");
    verifies("", 2, 2);
    ck_assert_str_eq(durability("a"), "verified");
    ck_assert_str_eq(durability("b"), "verified");
    driven_put(&d, "a", "other", 5);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_str_eq(durability("a"), "store");
}
END_TEST

START_TEST(what_was_read_as_a_whole_is_verified)
{
    driven_store(&d, "a", content, LARGE);
    driven_mount(&d);
    ck_assert_str_eq(durability("a"), "store");
    ck_assert_int_eq(fetch("a"), 0);
    DRIVEN_WAIT(strcmp(durability("a"), "verified") == 0);
}
END_TEST

/* That the cache has what its stamp says is no word of the store's. */
START_TEST(what_a_reboot_left_whole_is_not_verified)
{
    char path[128];

    driven_mount(&d);
    stored("a", "some text");
    driven_unmount(&d);
    (void)snprintf(path, sizeof(path), "%s/boot", d.dir);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs("00000000-0000-0000-0000-000000000000\n", f), 0);
    ck_assert_int_eq(fclose(f), 0);
    driven_mount(&d);
    driven_shows(&d, "a", "some text");
    DRIVEN_WAIT(strcmp(driven_state(&d, "a"), "clean") == 0);
    ck_assert_uint_eq(atomic_load(&reads), 0);
    ck_assert_str_eq(durability("a"), "store");
    verifies("a", 1, 0);
}
END_TEST

START_TEST(another_version_is_not_verified)
{
    d.config.list_timeout_ns = d.config.attr_timeout_ns = NS_PER_MS;
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    stored("dir/a", "some text");
    ck_assert_str_eq(durability("dir/a"), "verified");
    driven_store(&d, "dir/a", "some tent", 9);
    (void)usleep(OLD_US);
    DRIVEN_WAIT(driven_list(&d, "dir") == 1 && strcmp(durability("dir/a"), "store") == 0);
}
END_TEST

START_TEST(a_directory_is_as_safe_as_the_least_in_it)
{
    struct handle *h = NULL;

    driven_store(&d, "theirs/x", "x", 1);
    driven_mount(&d);
    ck_assert_str_eq(durability("theirs"), "store"); /* not listed */
    ck_assert_int_eq(driven_mkdir(&d, "run"), 0);
    ck_assert_int_eq(driven_mkdir(&d, "run/deep"), 0);
    stored("run/deep/a", "some text");
    stored("run/b", "more");
    ck_assert_str_eq(durability("run"), "verified");
    ck_assert_int_eq(driven_list(&d, ""), 2);
    ck_assert_str_eq(durability(""), "store");
    ck_assert_int_eq(driven_open(&d, "run/deep/a", O_WRONLY, &h), 0);
    ck_assert_str_eq(durability("run/deep/a"), "cache"); /* it may change at any moment */
    ck_assert_int_eq(driven_write(&d, h, "S", 1, 0), 0);
    ck_assert_str_eq(durability("run"), "cache");
    ck_assert_str_eq(durability("run/b"), "verified");
    ck_assert_str_eq(durability(""), "cache");
    ck_assert_int_eq(driven_close(&d, h), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_str_eq(durability("run"), "verified");
    ck_assert_int_eq(driven_list(&d, "theirs"), 1);
    ck_assert_str_eq(durability("theirs"), "store");
    verifies("theirs", 1, 1);
    ck_assert_str_eq(durability("theirs"), "verified");
    ck_assert_str_eq(durability(""), "verified");
}
END_TEST

/* The store has the content, under another name. */
START_TEST(a_rename_that_is_owed_is_in_the_cache)
{
    driven_mount(&d);
    ck_assert_int_eq(driven_mkdir(&d, "old"), 0);
    stored("old/a", "some text");
    atomic_store(&holds, true);
    ck_assert_int_eq(driven_rename(&d, "old", "new"), 0);
    ck_assert_str_eq(durability("new/a"), "cache");
    ck_assert_str_eq(durability("new"), "cache");
    ck_assert_str_eq(durability(""), "cache");
    tells("new", CACHE_NOT_STORED, "new/a");
    atomic_store(&holds, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_str_ne(durability("new/a"), "cache");
    verifies("new", 1, 0);
}
END_TEST

int main(void)
{
    static const struct {
        const char *name;
        void (*setup)(void);
    } with_sums[] = {{"like a folder with checksums", setup}, {"like S3", setup_like_s3}};
    Suite *s = suite_create("cache_verify");

    for (size_t i = 0; i < ARRAY_SIZE(with_sums); i++) {
        TCase *t = tcase_create(with_sums[i].name);
        tcase_set_timeout(t, 60);
        tcase_add_checked_fixture(t, with_sums[i].setup, teardown);
        tcase_add_test(t, a_stored_tree_is_verified);
        tcase_add_test(t, what_only_a_listing_told_is_read_back);
        tcase_add_test(t, what_only_a_listing_told_is_replaced);
        tcase_add_test(t, evicted_content_is_known_by_its_checksum);
        tcase_add_test(t, what_another_writer_put_differs);
        tcase_add_test(t, a_listing_on_the_way_hides_nothing);
        tcase_add_test(t, another_version_of_the_same_content_is_right);
        tcase_add_test(t, what_was_truncated_differs);
        tcase_add_loop_test(t, what_was_removed_is_missing, 0, 2);
        tcase_add_test(t, damage_at_the_store_is_found);
        tcase_add_test(t, a_symlink_that_leads_elsewhere_differs);
        tcase_add_test(t, a_directory_in_place_of_a_file_differs);
        tcase_add_test(t, what_is_dirty_is_not_stored);
        tcase_add_test(t, a_change_meanwhile_is_no_damage);
        tcase_add_test(t, what_was_uploaded_meanwhile_is_looked_at_again);
        tcase_add_test(t, what_was_removed_here_meanwhile_is_not_missing);
        tcase_add_test(t, what_never_rests_is_told_as_such);
        tcase_add_test(t, an_outage_ends_it);
        tcase_add_test(t, one_that_is_refused_ends_nothing);
        tcase_add_test(t, it_can_be_interrupted);
        tcase_add_test(t, of_what_was_flushed_nothing_else_is_asked);
        tcase_add_test(t, durability_follows_the_content);
        tcase_add_test(t, what_was_read_as_a_whole_is_verified);
        tcase_add_test(t, what_a_reboot_left_whole_is_not_verified);
        tcase_add_test(t, another_version_is_not_verified);
        tcase_add_test(t, a_directory_is_as_safe_as_the_least_in_it);
        tcase_add_test(t, a_rename_that_is_owed_is_in_the_cache);
        suite_add_tcase(s, t);
    }
    TCase *t = tcase_create("without checksums");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup_without_sums, teardown);
    tcase_add_test(t, where_no_checksum_is_kept_it_is_read_back);
    tcase_add_test(t, with_nothing_to_compare_it_is_not_verified);
    tcase_add_test(t, damage_at_the_store_is_found);
    tcase_add_test(t, durability_without_checksums_is_store);
    suite_add_tcase(s, t);
    t = tcase_create("a folder");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup_folder, teardown);
    tcase_add_test(t, damage_in_a_folder_is_found);
    suite_add_tcase(s, t);
    return suite_run(s);
}
