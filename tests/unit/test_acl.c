/* ACLs: what the cache does with them, also with those that a store made up. */
#include "cache/mirror/crash.h"
#include "cache/types/acl.h"
#include "cache/types/xattr_set.h"
#include "common/mem.h"
#include "tests/lib/acl_text.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- in the cache ---- */

#define WIDE "u7 U5:7 g5 m7 o0"

static atomic_bool no_directories;

static int64_t around(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_MKDIR && atomic_load(&no_directories))
        return op_fail(c->op, -EIO, "not now");
    return call_next(c);
}

static int set(struct driven *d, const char *path, const char *name, const char *text)
{
    struct acl_bytes b = acl_text(text);

    return driven_setxattr(d, path, name, b.v, b.n, 0);
}

/* NULL: it has none. */
static void expect(struct driven *d, const char *path, const char *name, const char *text)
{
    struct acl_bytes b = acl_text(text ? text : "");
    unsigned char value[4096];
    ssize_t n = driven_getxattr(d, path, name, value, sizeof(value));

    if (!text) {
        ck_assert_msg(n == -ENODATA, "%s of %s: %zd", name, path, n);
        return;
    }
    ck_assert_msg(n == (ssize_t)b.n && memcmp(value, b.v, b.n) == 0, "%s of %s: %zd", name,
                  path, n);
}

static void expect_mode(struct driven *d, const char *path, uint32_t mode)
{
    struct stat st;

    ck_assert_int_eq(driven_stat(d, path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, mode);
}

static void begin(struct driven *d, bool like_s3)
{
    atomic_store(&no_directories, false);
    if (like_s3)
        driven_init_like_s3(d, around);
    else
        driven_init(d, around);
    driven_mount(d);
}

START_TEST(kept_in_the_store)
{
    struct driven d;

    begin(&d, _i == 1);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(set(&d, "dir", ACL_DEFAULT, WIDE), 0);
    driven_put(&d, "dir/f", "x", 1);
    ck_assert_int_eq(driven_mkdir(&d, "dir/sub"), 0);
    for (int round = 0; round < 3; round++) {
        expect(&d, "dir", ACL_DEFAULT, WIDE);
        expect(&d, "dir", ACL_ACCESS, NULL);
        expect(&d, "dir/sub", ACL_DEFAULT, WIDE);
        expect(&d, "dir/sub", ACL_ACCESS, "u7 U5:7 g5 m5 o0");
        expect_mode(&d, "dir/sub", 0750);
        expect(&d, "dir/f", ACL_ACCESS, round ? "u6 U5:7 g5 m0 o0" : "u6 U5:7 g5 m4 o0");
        expect(&d, "dir/f", ACL_DEFAULT, NULL);
        ck_assert_int_eq(driven_chmod(&d, "dir/f", 0600), 0);
        expect(&d, "dir/f", ACL_ACCESS, "u6 U5:7 g5 m0 o0");
        ck_assert_int_eq(driven_flush(&d), 0);
        if (round == 0) { /* the stamps say it, too */
            driven_unmount(&d);
            driven_mount(&d);
        } else {
            driven_mount_afresh(&d);
        }
    }
    driven_release(&d);
}
END_TEST

START_TEST(modes_instead)
{
    struct driven d;
    char list[256];

    begin(&d, false);
    driven_put(&d, "f", "x", 1);
    ck_assert_int_eq(driven_chmod(&d, "f", 06644), 0);
    ck_assert_int_eq(set(&d, "f", ACL_ACCESS, "u7 g5 o1"), 0);
    expect(&d, "f", ACL_ACCESS, NULL);
    expect_mode(&d, "f", 06751);
    struct acl_bytes b = acl_text(WIDE);
    ck_assert_int_eq(
        driven_setxattr(&d, "f", ACL_ACCESS, b.v, b.n, CACHE_XATTR_KILL_SGID | XATTR_REPLACE),
        0);
    expect_mode(&d, "f", 04770);
    ck_assert_int_eq(driven_setxattr(&d, "f", "user.x", "1", 1, 0), 0);
    ck_assert_int_eq(driven_listxattr(&d, "f", list, sizeof(list)),
                     sizeof(ACL_ACCESS) + sizeof("user.x"));
    ck_assert_int_eq(driven_removexattr(&d, "f", ACL_ACCESS), 0);
    ck_assert_int_eq(driven_removexattr(&d, "f", ACL_ACCESS), 0);
    ck_assert_int_eq(driven_removexattr(&d, "f", ACL_DEFAULT), 0);
    expect_mode(&d, "f", 04770);
    ck_assert_int_eq(set(&d, "f", ACL_DEFAULT, WIDE), -EACCES);
    ck_assert_int_eq(set(&d, "f", ACL_DEFAULT, ""), 0);
    for (size_t i = 0; i < ACL_CASES; i++)
        ck_assert_int_eq(set(&d, "f", ACL_ACCESS, acl_cases[i].text), acl_cases[i].result);
    ck_assert_int_eq(driven_setxattr(&d, "f", ACL_ACCESS, "", 0, 0), -EINVAL);
    ck_assert_int_eq(driven_setxattr(&d, "f", "system.other", "x", 1, 0), -EOPNOTSUPP);
    ck_assert_int_eq(driven_listxattr(&d, "f", list, sizeof(list)), sizeof(ACL_ACCESS) + 7);
    driven_release(&d);
}
END_TEST

/* A default ACL that nothing could inherit is refused when it is set. */
START_TEST(too_large)
{
    struct driven d;
    struct acl_bytes b = acl_text("u7");
    int most = 0;

    begin(&d, false);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    for (uint32_t i = 0; i < 300; i++) {
        struct acl_bytes with = b;
        acl_text_add(&b, 2, 7, 1000000000 + i * 977);
        with = b;
        acl_text_add(&with, 4, 5, ACL_NO_ID);
        acl_text_add(&with, 0x10, 7, ACL_NO_ID);
        acl_text_add(&with, 0x20, 0, ACL_NO_ID);
        int r = driven_setxattr(&d, "dir", ACL_DEFAULT, with.v, with.n, 0);
        ck_assert(r == 0 || r == -ENOSPC);
        if (r == 0)
            most = (int)i + 1;
    }
    ck_assert_int_ge(most, 60);
    ck_assert_int_lt(most, 300);
    ck_assert_int_eq(driven_mkdir(&d, "dir/sub"), 0);
    driven_put(&d, "dir/sub/f", "x", 1);
    ck_assert_int_gt(driven_getxattr(&d, "dir/sub/f", ACL_ACCESS, NULL, 0), most * 8);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_release(&d);
}
END_TEST

START_TEST(turned_off)
{
    struct driven d;
    char list[64];

    begin(&d, false);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    driven_put(&d, "dir/f", "x", 1);
    ck_assert_int_eq(set(&d, "dir", ACL_DEFAULT, WIDE), 0);
    ck_assert_int_eq(set(&d, "dir/f", ACL_ACCESS, WIDE), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    d.config.acl = false;
    driven_mount(&d);
    ck_assert_int_eq(driven_getxattr(&d, "dir/f", ACL_ACCESS, NULL, 0), -EOPNOTSUPP);
    ck_assert_int_eq(set(&d, "dir/f", ACL_ACCESS, WIDE), -EOPNOTSUPP);
    ck_assert_int_eq(driven_removexattr(&d, "dir/f", ACL_ACCESS), -EOPNOTSUPP);
    ck_assert_int_eq(driven_listxattr(&d, "dir/f", list, sizeof(list)), 0);
    driven_put(&d, "dir/new", "x", 1);
    ck_assert_int_eq(driven_chmod(&d, "dir/f", 0640), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    d.config.acl = true;
    driven_mount_afresh(&d);
    expect(&d, "dir", ACL_DEFAULT, WIDE);
    expect(&d, "dir/f", ACL_ACCESS, "u6 U5:7 g5 m4 o0");
    expect(&d, "dir/new", ACL_ACCESS, NULL);
    driven_release(&d);
}
END_TEST

/* Nothing that a store says is an ACL reaches the kernel unless it is one. */
START_TEST(what_stores_say)
{
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "{\"" ACL_ACCESS "\":1}",
        "{\"" ACL_ACCESS "\":\"%\"}",
        "{\"" ACL_ACCESS "\":\"\"}",
        "{\"" ACL_ACCESS "\":\"AgAAAA==\"}",
        "{\"" ACL_ACCESS "\":\"AgAAAAEABgD/////BAAEAP////8=\"}",
        "{\"" ACL_ACCESS "\":\"AgAAAAEABwD/////BAAHAP////8gAAcA/////w==\"}",
    };
    struct attrs a = {.has = ATTR_MODE | ATTR_XATTRS, .mode = S_IFREG | 0640};
    char name[16], list[64];
    struct driven d;

    if (_i == 1)
        driven_init_like_s3(&d, NULL);
    else
        driven_init(&d, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        (void)snprintf(name, sizeof(name), "f%zu", i);
        a.xattrs = (char *)texts[i];
        driven_store_with(&d, name, "x", 1, &a);
    }
    /* The mode was changed by something that knows no ACLs. */
    struct acl_bytes b = acl_text(WIDE);
    auto_free char *text = NULL;
    ck_assert_int_eq(xattr_set_edit(NULL, ACL_ACCESS, b.v, b.n, 0, &text), 0);
    a.xattrs = text;
    a.mode = S_IFREG | 0604;
    driven_store_with(&d, "changed", "x", 1, &a);
    driven_mount(&d);
    expect(&d, "changed", ACL_ACCESS, "u6 U5:7 g5 m0 o4");
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        (void)snprintf(name, sizeof(name), "f%zu", i);
        expect_mode(&d, name, 0640);
        expect(&d, name, ACL_ACCESS, NULL);
        ck_assert_int_eq(driven_listxattr(&d, name, list, sizeof(list)), 0);
        ck_assert_int_eq(driven_chmod(&d, name, 0600), 0);
        ck_assert_int_eq(set(&d, name, ACL_ACCESS, WIDE), 0);
        expect(&d, name, ACL_ACCESS, WIDE);
    }
    driven_release(&d);
}
END_TEST

/* A directory came into the store by what is below it, while its own attributes are owed: they
 * count, also after a remount, whatever a listing says. */
START_TEST(an_owed_directory_keeps_what_it_inherited)
{
    struct driven d;

    atomic_store(&no_directories, false);
    driven_init_folder(&d, around, 1 << 20);
    driven_mount(&d);
    atomic_store(&no_directories, true);
    ck_assert_int_eq(driven_mkdir(&d, "dir"), 0);
    ck_assert_int_eq(set(&d, "dir", ACL_DEFAULT, WIDE), 0);
    ck_assert_int_eq(driven_mkdir(&d, "dir/sub"), 0);
    driven_put(&d, "dir/sub/f", "x", 1);
    DRIVEN_WAIT(driven_stored(&d, "dir/sub/f", (char[4]){0}, 4) == 1);
    driven_unmount(&d);
    driven_mount(&d);
    ck_assert_int_eq(driven_list(&d, "dir"), 1);
    expect_mode(&d, "dir/sub", 0750);
    expect(&d, "dir/sub", ACL_DEFAULT, WIDE);
    atomic_store(&no_directories, false);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_mount_afresh(&d);
    expect_mode(&d, "dir/sub", 0750);
    expect(&d, "dir/sub", ACL_DEFAULT, WIDE);
    expect(&d, "dir/sub/f", ACL_ACCESS, "u6 U5:7 g5 m4 o0");
    driven_release(&d);
}
END_TEST

/* ---- killed ---- */

#ifndef NDEBUG
static const struct {
    const char *before, *after; /* before: NULL: the mode alone */
    uint32_t mode;              /* before */
    const char *at;
} killings[] = {
    {NULL, "u7 U5:7 g0 m7 o0", 0750, "acl-narrowed"},
    {NULL, "u7 U5:7 g0 m7 o0", 0707, "xattrs-written"},
    {"u6 U5:6 g0 m6 o0", "u6 g0 o4", 0660, "acl-narrowed"},
    {"u6 U5:6 g0 m6 o0", "u6 g0 o4", 0660, "xattrs-written"},
    {"u6 U5:6 g0 m6 o0", "u6 g6 o0", 0600, "xattrs-written"},
    {"u6 U5:6 g0 m6 o0", "u6 U5:0 g4 m4 o0", 0660, "acl-narrowed"},
    {"u6 U5:6 g0 m6 o0", "u6 U5:0 g4 m4 o0", 0660, "xattrs-written"},
};

/* What the owner, user 5, the group and others may do. */
struct rights {
    uint32_t owner, named, group, others;
};

static struct rights rights_of(struct driven *d)
{
    unsigned char value[4096];
    struct stat st;

    ck_assert_int_eq(driven_stat(d, "f", &st), 0);
    struct rights r = {.owner = st.st_mode >> 6 & 7,
                       .named = st.st_mode & 7,
                       .group = st.st_mode >> 3 & 7,
                       .others = st.st_mode & 7};
    ssize_t n = driven_getxattr(d, "f", ACL_ACCESS, value, sizeof(value));
    for (ssize_t i = 4; i < n; i += 8) {
        uint32_t tag = value[i], perm = value[i + 2] & st.st_mode >> 3;
        r.named = tag == 2 ? perm : r.named;
        r.group = tag == 4 ? perm : r.group;
    }
    return r;
}

static void prepare(struct driven *d, int i, bool directory)
{
    if (directory)
        ck_assert_int_eq(driven_mkdir(d, "f"), 0);
    else
        driven_put(d, "f", "x", 1);
    if (killings[i].before)
        ck_assert_int_eq(set(d, "f", ACL_ACCESS, killings[i].before), 0);
    ck_assert_int_eq(driven_chmod(d, "f", killings[i].mode), 0);
}

static void none_has_more(uint32_t found, uint32_t before, uint32_t after)
{
    ck_assert_uint_eq(found & ~(before | after), 0);
}

/* Killed between the stamps nobody may more than before or after, and the store gets what the
 * mount shows. */
START_TEST(killed_while_set)
{
    int i = _i / 2;
    struct rights before, after, found[2];
    struct driven d;
    int status = 0;

    driven_init_folder(&d, NULL, 1 << 20);
    driven_mount(&d);
    prepare(&d, i, _i % 2);
    before = rights_of(&d);
    ck_assert_int_eq(set(&d, "f", ACL_ACCESS, killings[i].after), 0);
    after = rights_of(&d);
    ck_assert_int_eq(_i % 2 ? driven_rmdir(&d, "f") : driven_unlink(&d, "f"), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    prepare(&d, i, _i % 2);
    ck_assert_int_eq(driven_flush(&d), 0);
    driven_unmount(&d);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        driven_mount(&d);
        crash_arm(killings[i].at);
        (void)set(&d, "f", ACL_ACCESS, killings[i].after);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
    driven_mount(&d);
    for (int round = 0; round < 2; round++) {
        found[round] = rights_of(&d);
        none_has_more(found[round].owner, before.owner, after.owner);
        none_has_more(found[round].named, before.named, after.named);
        none_has_more(found[round].group, before.group, after.group);
        none_has_more(found[round].others, before.others, after.others);
        if (round == 0) {
            ck_assert_int_eq(driven_flush(&d), 0);
            driven_mount_afresh(&d);
        }
    }
    ck_assert_mem_eq(&found[0], &found[1], sizeof(found[0]));
    driven_release(&d);
}
END_TEST
#endif

int main(void)
{
    Suite *s = suite_create("acl");
    TCase *t = tcase_create("acl");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, kept_in_the_store, 0, 2);
    tcase_add_test(t, modes_instead);
    tcase_add_test(t, too_large);
    tcase_add_test(t, turned_off);
    tcase_add_loop_test(t, what_stores_say, 0, 2);
    tcase_add_test(t, an_owed_directory_keeps_what_it_inherited);
#ifndef NDEBUG
    tcase_add_loop_test(t, killed_while_set, 0, 2 * ARRAY_SIZE(killings));
#endif
    suite_add_tcase(s, t);
    return suite_run(s);
}
