/* Attributes as object metadata. */
#include "backends/s3/attrs.h"

#include "backends/http/uri.h"
#include "common/buf.h"
#include "common/mem.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define VALUE_MAX (64 * 1024)

static const char *const names[] = {"mode",           "uid",   "gid",         "mtime", "rdev",
                                    "symlink-target", "xattr", "runfs-origin"};

typedef int (*add_header)(void *arg, const char *name, const char *value);

static int add_number(add_header add, void *arg, const char *name, uint64_t value)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%" PRIu64, value);
    return add(arg, name, text);
}

/* Whole seconds rounded down and always nine digits: s3fs takes the digits after the point as a
 * count of nanoseconds, rclone and others as a fraction; so written, both are right. */
static int add_time(add_header add, void *arg, int64_t ns)
{
    int64_t seconds = ns / NS_PER_SEC - (ns % NS_PER_SEC < 0);
    char text[40];

    (void)snprintf(text, sizeof(text), "%" PRId64 ".%09" PRId64, seconds,
                   ns - seconds * NS_PER_SEC);
    return add(arg, S3_META_PREFIX "mtime", text);
}

static int add_encoded(add_header add, void *arg, const char *name, const char *value)
{
    auto_buf struct buf text = BUF_INIT(VALUE_MAX);
    int err = uri_encode(&text, value, strlen(value), true);

    if (err)
        return err == -EFBIG ? -E2BIG : err;
    return add(arg, name, text.data ? text.data : "");
}

static int add_origin(add_header add, void *arg, const struct attrs *a)
{
    char text[48];

    (void)snprintf(text, sizeof(text), "%016" PRIx64 ".%" PRId64, a->origin, a->origin_ns);
    return add(arg, S3_META_PREFIX "runfs-origin", text);
}

int s3_attrs_write(const struct attrs *a, add_header add, void *arg)
{
    int err = 0;

    if (a->has & ATTR_MODE)
        err = add_number(add, arg, S3_META_PREFIX "mode", a->mode);
    if (!err && a->has & ATTR_OWNER) {
        err = add_number(add, arg, S3_META_PREFIX "uid", a->uid);
        if (!err)
            err = add_number(add, arg, S3_META_PREFIX "gid", a->gid);
    }
    if (!err && a->has & ATTR_MTIME)
        err = add_time(add, arg, a->mtime_ns);
    if (!err && a->has & ATTR_RDEV)
        err = add_number(add, arg, S3_META_PREFIX "rdev", a->rdev);
    if (!err && a->has & ATTR_TARGET && a->target)
        err = add_encoded(add, arg, S3_META_PREFIX "symlink-target", a->target);
    if (!err && a->has & ATTR_XATTRS && a->xattrs)
        err = add_encoded(add, arg, S3_META_PREFIX "xattr", a->xattrs);
    if (!err && a->has & ATTR_ORIGIN)
        err = add_origin(add, arg, a);
    return err;
}

static bool parse_number(const char *text, uint64_t max, uint64_t *ret)
{
    unsigned long long value;
    char *end;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || *end || value > max)
        return false;
    *ret = value;
    return true;
}

/* Sixteen hexadecimal digits, a point, nanoseconds. */
static bool parse_origin(const char *text, struct attrs *a)
{
    uint64_t ns = 0;
    char *end;

    errno = 0;
    unsigned long long origin = strtoull(text, &end, 16);
    if (errno || end != text + 16 || *end != '.' || !isxdigit((unsigned char)*text) ||
        !parse_number(end + 1, INT64_MAX, &ns))
        return false;
    a->origin = origin;
    a->origin_ns = (int64_t)ns;
    return true;
}

/* "seconds", "seconds.fraction" with any number of digits, seconds perhaps negative. */
static bool parse_time(const char *text, int64_t *ret_ns)
{
    const int64_t max = INT64_MAX / NS_PER_SEC - 1;
    int64_t fraction = 0, unit = NS_PER_SEC / 10;
    long long seconds;
    char *end;

    if (!isdigit((unsigned char)*text) && !(*text == '-' && isdigit((unsigned char)text[1])))
        return false;
    errno = 0;
    seconds = strtoll(text, &end, 10);
    if (errno || seconds > max || seconds < -max)
        return false;
    if (*end == '.')
        for (end++; isdigit((unsigned char)*end); end++, unit /= 10)
            fraction += (*end - '0') * unit;
    if (*end)
        return false;
    *ret_ns = seconds * NS_PER_SEC + fraction;
    return true;
}

/* Percent-decoded, heap; *ret stays NULL for what is broken or holds a NUL. */
static int decode(const char *text, char **ret)
{
    auto_free char *copy = strdup(text);
    ssize_t len;

    if (!copy)
        return -ENOMEM;
    len = uri_decode(copy, false);
    if (len > 0 && strlen(copy) == (size_t)len) {
        free(*ret);
        *ret = take_ptr(copy);
    }
    return 0;
}

/* What has been read so far. */
struct reading {
    struct attrs attrs;
    bool has_uid, has_gid;
};

static int read_meta(void *arg, const char *header, const char *value)
{
    struct reading *r = arg;
    struct attrs *a = &r->attrs;
    const char *name = header + sizeof(S3_META_PREFIX) - 1;
    uint64_t number = 0;

    if (strncmp(header, S3_META_PREFIX, sizeof(S3_META_PREFIX) - 1) != 0)
        return 0;
    if (strcmp(name, "mode") == 0 && parse_number(value, UINT32_MAX, &number)) {
        a->mode = (uint32_t)number & (S_IFMT | 07777);
        a->has |= ATTR_MODE;
    } else if (strcmp(name, "uid") == 0 && parse_number(value, UINT32_MAX, &number)) {
        a->uid = (uint32_t)number;
        r->has_uid = true;
    } else if (strcmp(name, "gid") == 0 && parse_number(value, UINT32_MAX, &number)) {
        a->gid = (uint32_t)number;
        r->has_gid = true;
    } else if (strcmp(name, "rdev") == 0 && parse_number(value, UINT64_MAX, &number)) {
        a->rdev = number;
        a->has |= ATTR_RDEV;
    } else if (strcmp(name, "mtime") == 0 && parse_time(value, &a->mtime_ns)) {
        a->has |= ATTR_MTIME;
    } else if (strcmp(name, "runfs-origin") == 0 && parse_origin(value, a)) {
        a->has |= ATTR_ORIGIN;
    } else if (strcmp(name, "symlink-target") == 0) {
        return decode(value, &a->target);
    } else if (strcmp(name, "xattr") == 0) {
        return decode(value, &a->xattrs);
    }
    return 0;
}

/* The key's form decides between file and directory; an unknown type is a plain file. */
static uint32_t checked_mode(uint32_t mode, bool is_dir)
{
    uint32_t bits = mode & 07777;

    if (is_dir)
        return S_IFDIR | bits;
    switch (mode & S_IFMT) {
    case S_IFLNK:
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFCHR:
    case S_IFBLK:
        return mode;
    default:
        return S_IFREG | bits;
    }
}

int s3_attrs_read(const struct http_answer *answer, bool is_dir, struct attrs *ret)
{
    struct reading r = {0};
    int err = http_answer_each(answer, read_meta, &r);

    if (err) {
        attrs_release(&r.attrs);
        return err;
    }
    if (r.has_uid && r.has_gid)
        r.attrs.has |= ATTR_OWNER;
    if (r.attrs.has & ATTR_MODE)
        r.attrs.mode = checked_mode(r.attrs.mode, is_dir);
    /* Without an owner it would be a set-id program of whoever mounts. */
    if (!(r.attrs.has & ATTR_OWNER))
        r.attrs.mode &= ~(uint32_t)(S_ISUID | S_ISGID);
    if (r.attrs.target)
        r.attrs.has |= ATTR_TARGET;
    if (r.attrs.xattrs)
        r.attrs.has |= ATTR_XATTRS;
    *ret = r.attrs;
    return 0;
}

bool s3_attrs_owns(const char *header)
{
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcmp(header + sizeof(S3_META_PREFIX) - 1, names[i]) == 0)
            return true;
    return false;
}
