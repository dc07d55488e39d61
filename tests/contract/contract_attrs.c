/* The contract of attributes. Part of contract.c. */
#include "tests/contract/contract_place.h"

/* ---- attributes ---- */

#define MTIME_NS (INT64_C(1700000000) * NS_PER_SEC + 123456789)

static void assert_attrs(struct place *p, const struct attrs *a, const struct attrs *b)
{
    ck_assert_uint_eq(b->has & a->has, a->has);
    if (a->has & ATTR_MODE)
        ck_assert_uint_eq(b->mode, a->mode);
    if (a->has & ATTR_OWNER) {
        ck_assert_uint_eq(b->uid, a->uid);
        ck_assert_uint_eq(b->gid, a->gid);
    }
    if (a->has & ATTR_MTIME)
        ck_assert_int_eq(b->mtime_ns, a->mtime_ns);
    if (a->has & ATTR_RDEV)
        ck_assert_uint_eq(b->rdev, a->rdev);
    if (a->has & ATTR_TARGET)
        ck_assert_str_eq(b->target, a->target);
    if (a->has & ATTR_XATTRS)
        ck_assert_str_eq(b->xattrs, a->xattrs);
    if (a->has & ATTR_ORIGIN) {
        ck_assert_uint_eq(b->origin, a->origin);
        ck_assert_int_eq(b->origin_ns, a->origin_ns);
    }
    (void)p;
}

static struct attrs file_attrs(void)
{
    return (struct attrs){
        .has = ATTR_MODE | ATTR_OWNER | ATTR_MTIME | ATTR_XATTRS,
        .mode = S_IFREG | 0640,
        .uid = geteuid() ? geteuid() : 1234,
        .gid = geteuid() ? getegid() : 4321,
        .mtime_ns = MTIME_NS,
        .xattrs = (char *)"{\"user.a\":\"\",\"user.b\":\"AAEC\"}",
    };
}

/* Also who puts it, where the store keeps that. */
static struct attrs signed_attrs(struct place *p)
{
    struct attrs a = file_attrs();

    if (can(p, STORE_ORIGIN)) {
        a.has |= ATTR_ORIGIN;
        a.origin = UINT64_C(0xfedcba9876543210);
        a.origin_ns = MTIME_NS + 1;
    }
    return a;
}

static int check_listed_attrs(void *arg, const char *name, const struct object *obj)
{
    struct place *p = arg;
    struct attrs a = file_attrs();

    (void)name;
    ck_assert(obj->attrs_known);
    assert_attrs(p, &a, &obj->attrs);
    return 0;
}

START_TEST(attributes_are_kept)
{
    struct place *p = place_open(_i);
    struct attrs a = signed_attrs(p), none = {0};
    struct object obj;

    if (can(p, STORE_ATTRS)) {
        ok(p, put_bytes(p, "file", NULL, "text", 4, &a, &obj));
        object_release(&obj);
        ok(p, stat_of(p, "file", &obj));
        assert_attrs(p, &a, &obj.attrs);
        object_release(&obj);
        if (can(p, STORE_LIST_ATTRS))
            ok(p, store_list(p->s, &p->op, p->dir, 0, check_listed_attrs, p));
        ok(p, put_bytes(p, "file", NULL, "text", 4, &none, NULL));
        ok(p, stat_of(p, "file", &obj));
        ck_assert(!(obj.attrs.has & ATTR_XATTRS)); /* a new object has nothing of the old */
        object_release(&obj);
        assert_text(p, "file", "text");
    }
    place_close(p);
}
END_TEST

static void check_special(struct place *p, const char *name, const struct attrs *a)
{
    struct object obj;

    int r = put_bytes(p, name, NULL, "", 0, a, NULL);
    if (r == -EPERM && geteuid() != 0) /* only root may make device nodes */
        return;
    ck_assert_msg(r == 0, "%s: put %s: %d %s", p->fixture->name, name, r, p->op.why);
    ok(p, stat_of(p, name, &obj));
    ck_assert(!obj.is_prefix);
    ck_assert_uint_eq(obj.size, 0);
    assert_attrs(p, a, &obj.attrs);
    object_release(&obj);
}

START_TEST(special_files_are_kept)
{
    struct place *p = place_open(_i);
    struct attrs link = {.has = ATTR_MODE | ATTR_TARGET | ATTR_MTIME,
                         .mode = S_IFLNK | 0777,
                         .mtime_ns = MTIME_NS,
                         .target = (char *)"../else where/\xc3\xa9"};
    struct attrs fifo = {.has = ATTR_MODE, .mode = S_IFIFO | 0620};
    struct attrs sock = {.has = ATTR_MODE, .mode = S_IFSOCK | 0600};
    struct attrs dev = {
        .has = ATTR_MODE | ATTR_RDEV, .mode = S_IFCHR | 0600, .rdev = makedev(1, 3)};
    struct object obj;

    if (can(p, STORE_ATTRS)) {
        check_special(p, "link", &link);
        check_special(p, "fifo", &fifo);
        check_special(p, "sock", &sock);
        check_special(p, "dev", &dev);
        ok(p, put_text(p, "link", NULL, "a file now")); /* not what it pointed to */
        ok(p, stat_of(p, "link", &obj));
        ck_assert_uint_eq(obj.size, 10);
        ck_assert(!(obj.attrs.has & ATTR_MODE) || S_ISREG(obj.attrs.mode));
        object_release(&obj);
    }
    place_close(p);
}
END_TEST

static void has_attrs(struct place *p, const char *name, const struct attrs *a)
{
    struct object obj;

    ok(p, stat_of(p, name, &obj));
    assert_attrs(p, a, &obj.attrs);
    ck_assert((obj.attrs.has & ATTR_XATTRS) == (a->has & ATTR_XATTRS));
    object_release(&obj);
}

/* As xattrs, also of special files; what is made below a default ACL has the one it was given,
 * or none. */
START_TEST(acls_are_kept)
{
    struct place *p = place_open(_i);
    struct attrs file = {.has = ATTR_MODE | ATTR_XATTRS, .mode = S_IFREG | 0640},
                 dir = {.has = ATTR_MODE | ATTR_XATTRS, .mode = S_IFDIR | 0750};

    /* user::rw-,user:5:rwx,group::r--,mask::r--,other::--- */
    file.xattrs = (char *)"{\"system.posix_acl_access\":\"AgAAAAEABgD/////AgAHAAUAAAAEAAQA/////"
                          "xAABAD/////IAAAAP////8=\","
                          "\"user.b\":\"AAEC\"}";
    /* user::rwx,user:5:rwx,group::r-x,mask::rwx,other::--- */
    dir.xattrs = (char *)"{\"system.posix_acl_default\":\"AgAAAAEABwD/////AgAHAAUAAAAEAAUA/////"
                         "xAABwD/////IAAAAP////8=\"}";
    if (can(p, STORE_ACLS)) {
        struct attrs fifo = file, plain = {.has = ATTR_MODE, .mode = S_IFREG | 0604};
        ok(p, store_mkdir(p->s, &p->op, key(p, "dir"), &dir, NULL));
        has_attrs(p, "dir", &dir);
        ok(p, put_bytes(p, "dir/file", NULL, "text", 4, &file, NULL));
        has_attrs(p, "dir/file", &file);
        ok(p, put_bytes(p, "dir/plain", NULL, "text", 4, &plain, NULL));
        has_attrs(p, "dir/plain", &plain);
        fifo.mode = S_IFIFO | 0640;
        fifo.xattrs = (char *)"{\"system.posix_acl_access\":\"AgAAAAEABgD/////AgAHAAUAAAAEAAQA/"
                              "////xAABAD/////IAAAAP////8=\"}";
        check_special(p, "dir/fifo", &fifo);
        plain.mode = S_IFDIR | 0755;
        ok(p, store_mkdir(p->s, &p->op, key(p, "dir/below"), &plain, NULL));
        has_attrs(p, "dir/below", &plain);
        file.mode = S_IFREG | 0600; /* moves the mask, which the caller sees to */
        file.has = ATTR_MODE;
        ok(p, store_set_attributes(p->s, &p->op, key(p, "dir/file"), NULL, &file, NULL));
        has_attrs(p, "dir/file", &file);
    }
    place_close(p);
}
END_TEST

START_TEST(directories_have_attributes)
{
    struct place *p = place_open(_i);
    struct attrs a = file_attrs();
    struct object obj;

    a.mode = S_IFDIR | 0750;
    if (can(p, STORE_ATTRS)) {
        ok(p, store_mkdir(p->s, &p->op, key(p, "dir"), &a, NULL));
        ok(p, stat_of(p, "dir", &obj));
        assert_attrs(p, &a, &obj.attrs);
        object_release(&obj);
        a.mode = S_IFDIR | 0700;
        ok(p, store_mkdir(p->s, &p->op, key(p, "dir"), &a, NULL));
        ok(p, stat_of(p, "dir", &obj));
        assert_attrs(p, &a, &obj.attrs);
        object_release(&obj);
        a.mode = S_IFDIR | 0711;
        ok(p, store_set_attributes(p->s, &p->op, key(p, "dir"), NULL, &a, NULL));
        ok(p, stat_of(p, "dir", &obj));
        assert_attrs(p, &a, &obj.attrs);
        ck_assert(obj.is_prefix);
        object_release(&obj);
    }
    place_close(p);
}
END_TEST

struct own_object {
    unsigned visited;
    char etag[STORE_ETAG_MAX];
    uint64_t others;
};

static int note_own_object(void *arg, const char *name, const struct object *obj)
{
    struct own_object *own = arg;

    if (name[0]) {
        own->others++;
        return 0;
    }
    ck_assert(obj->is_prefix && obj->has_marker);
    own->visited++;
    memcpy(own->etag, obj->etag, sizeof(own->etag));
    return 0;
}

static struct own_object list_self(struct place *p, unsigned flags)
{
    struct own_object own = {0};

    ok(p, store_list(p->s, &p->op, key(p, "dir"), flags, note_own_object, &own));
    ck_assert_uint_eq(own.others, 1);
    return own;
}

/* Where directories are no objects, a directory's own one can be told from what only its
 * children imply, by its listing and by a question. */
START_TEST(a_directory_may_have_an_object_of_its_own)
{
    struct place *p = place_open(_i);
    struct attrs a = {.has = ATTR_MODE, .mode = S_IFDIR | 0751};
    struct object obj;

    ok(p, put_text(p, "dir/f", NULL, "x"));
    if (!can(p, STORE_DIRS)) {
        fails(p, ENOENT, store_stat_dir(p->s, &p->op, key(p, "dir"), &obj));
        ck_assert_uint_eq(list_self(p, LIST_SELF).visited, 0);
    }
    ok(p, store_mkdir(p->s, &p->op, key(p, "dir"), &a, NULL));
    ok(p, store_stat_dir(p->s, &p->op, key(p, "dir"), &obj));
    ck_assert(obj.is_prefix && obj.has_marker);
    if (can(p, STORE_ATTRS))
        assert_attrs(p, &a, &obj.attrs);
    if (!can(p, STORE_DIRS)) {
        struct own_object own = list_self(p, LIST_SELF);
        ck_assert_uint_eq(own.visited, 1);
        ck_assert_str_eq(own.etag, obj.etag);
    }
    ck_assert_uint_eq(list_self(p, 0).visited, 0);
    object_release(&obj);
    fails(p, ENOENT, store_stat_dir(p->s, &p->op, key(p, "dir/f"), &obj));
    fails(p, ENOENT, store_stat_dir(p->s, &p->op, key(p, "nothing"), &obj));
    if (p->fixture->flat) { /* an object of the same name does not stand in the way */
        ok(p, put_text(p, "dir", NULL, "an object"));
        ok(p, store_stat_dir(p->s, &p->op, key(p, "dir"), &obj));
        ck_assert(obj.is_prefix);
        object_release(&obj);
    }
    place_close(p);
}
END_TEST

START_TEST(set_attributes_keeps_content)
{
    struct place *p = place_open(_i);
    struct attrs a = signed_attrs(p);
    char v1[STORE_ETAG_MAX];
    struct object obj, now;

    if (can(p, STORE_ATTRS)) {
        put_versioned(p, "file", "content", v1);
        ok(p, store_set_attributes(p->s, &p->op, key(p, "file"), v1, &a, &obj));
        ok(p, stat_of(p, "file", &now));
        assert_attrs(p, &a, &now.attrs);
        ck_assert_str_eq(obj.etag, now.etag); /* what it told is what stands there */
        object_release(&obj);
        object_release(&now);
        assert_text(p, "file", "content");
        ok(p, put_text(p, "file", NULL, "another"));
        fails(p, ESTALE, store_set_attributes(p->s, &p->op, key(p, "file"), v1, &a, NULL));
        a.has &= ~(unsigned)ATTR_XATTRS; /* replaced: what is not said is gone */
        ok(p, store_set_attributes(p->s, &p->op, key(p, "file"), NULL, &a, NULL));
        ok(p, stat_of(p, "file", &now));
        ck_assert(!(now.attrs.has & ATTR_XATTRS));
        object_release(&now);
        fails(p, ENOENT, store_set_attributes(p->s, &p->op, key(p, "nothing"), NULL, &a, NULL));
    }
    place_close(p);
}
END_TEST
