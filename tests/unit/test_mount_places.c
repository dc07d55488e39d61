/* cli/mount_places: which folders of a mount may lie where. */
#include "cli/mount_places.h"
#include "common/mem.h"
#include "tests/lib/suite.h"
#include "tests/lib/top.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct config_store stores[2];
static struct op op;

static void setup(void)
{
    top_make();
    op_init(&op, OP_FOREVER);
    top_make_dir("mnt", 0700);
    top_make_dir("a", 0700);
    top_make_dir("b", 0700);
}

static void teardown(void)
{
    top_remove();
}

/* Names below the test's folder; "" for a store that is no folder. */
struct places {
    const char *mountpoint, *cache, *a, *b;
};

static int check(const struct places *p)
{
    char mountpoint[512], cache[512], urls[2][600];
    const char *const names[] = {p->a, p->b};
    struct config c = {.stores = stores, .n_stores = p->b ? 2 : 1};

    for (size_t i = 0; i < c.n_stores; i++) {
        (void)snprintf(urls[i], sizeof(urls[i]), *names[i] ? "file://%s" : "mem:x",
                       in_top(names[i]));
        stores[i] = (struct config_store){.name = i ? "b" : "a", .url = urls[i]};
    }
    (void)snprintf(mountpoint, sizeof(mountpoint), "%s", in_top(p->mountpoint));
    (void)snprintf(cache, sizeof(cache), "%s", in_top(p->cache));
    return mount_places_check(mountpoint, cache, &c, &op);
}

static const struct {
    struct places places;
    const char *says; /* NULL: it is fine */
} table[] = {
    {{"mnt", "cache", "a", "b"}, NULL},
    {{"mnt", "cache", "a", NULL}, NULL},
    {{"mnt", "cache", "", "b"}, NULL},
    {{"mnt", "mnt/x/cache", "a", "b"}, "/mnt/x/cache lies within the mountpoint"},
    {{"mnt", "cache", "mnt/a", NULL}, "the store /"},
    {{"mnt", "cache", "a", "mnt/b"}, "the store \"b\" /"},
    {{"mnt", "a/cache", "a", "b"}, "lies within the store \"a\" /"},
    {{"mnt", "b/new/cache", "a", "b"}, "lies within the store \"b\" /"},
    {{"a/mnt", "cache", "a", "b"}, "the mountpoint /"},
    {{"mnt", "a.runfs/cache", "a", "b"}, "lies within the state of the store \"a\" /"},
    {{"mnt", "ab", "a", "b"}, NULL},
};

START_TEST(folders_lie_apart)
{
    int err = check(&table[_i].places);
    struct stat st;

    ck_assert_msg(err == (table[_i].says ? -EINVAL : 0), "%d: %s", err, op.why);
    if (table[_i].says)
        ck_assert_msg(strstr(op.why, table[_i].says) != NULL, "says: %s", op.why);
    if (*table[_i].places.cache)
        ck_assert_int_lt(lstat(in_top(table[_i].places.cache), &st), 0);
}
END_TEST

/* The names that are given may be of links. */
START_TEST(links_are_followed)
{
    const struct places p = {"mnt", "link/cache", "a", NULL};

    ck_assert_int_eq(symlink("a", in_top("link")), 0);
    ck_assert_int_eq(check(&p), -EINVAL);
    ck_assert_ptr_nonnull(strstr(op.why, "/a/cache lies within the store"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mount_places");
    TCase *tc = tcase_create("mount_places");

    suite_add_tcase(suite, tc);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, folders_lie_apart, 0, ARRAY_SIZE(table));
    tcase_add_test(tc, links_are_followed);
    return suite_run(suite);
}
