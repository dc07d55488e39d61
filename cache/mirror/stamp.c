/* Encoding and decoding of the stamp; see stamp.h. Text, so that a person can read it with
 * getfattr(1). */
#include "cache/mirror/stamp.h"

#include "common/buf.h"
#include "common/mem.h"
#include "common/siphash.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

static int read_text(int fd, const char *name, char text[STAMP_MAX + 1])
{
    ssize_t n = fgetxattr(fd, name, text, STAMP_MAX);

    if (n < 0)
        return -errno;
    text[n] = '\0';
    return strlen(text) == (size_t)n ? 0 : -EINVAL;
}

static int write_text(int fd, const char *name, const char *text, size_t len)
{
    return fsetxattr(fd, name, text, len, 0) < 0 ? -errno : 0;
}

int stamp_parse_attrs(const char *text, struct stamp_attrs *ret)
{
    struct stamp_attrs a = {0};
    int end = 0, more = 0, made = 0;
    int n = sscanf(text,
                   "1 %" SCNx64 " %" SCNo32 " %" SCNu32 " %" SCNu32 " %" SCNx64 " %" SCNu64
                   " %" SCNu64 " %" SCNu64 " %x %" SCNd64 " %" SCNu64 "%n",
                   &a.ino, &a.mode, &a.uid, &a.gid, &a.rdev, &a.named_seq, &a.seq, &a.first_seq,
                   &a.flags, &a.synced_mtime_ns, &a.synced_size, &end);

    if (n != 11)
        return -EINVAL;
    if ((a.flags & STAMP_WHOLE) && sscanf(text + end, " %" SCNd64 " %" SCNu64 "%n",
                                          &a.whole_mtime_ns, &a.whole_size, &more) != 2)
        return -EINVAL;
    if ((a.flags & STAMP_UNRENAMED) &&
        sscanf(text + end + more, " %" SCNx64 "%n", &a.made_at, &made) != 1)
        return -EINVAL;
    if (text[end + more + made] != '\0')
        return -EINVAL;
    *ret = a;
    return 0;
}

int stamp_read_attrs(int fd, struct stamp_attrs *ret)
{
    char text[STAMP_MAX + 1];
    int r = read_text(fd, STAMP_ATTRS, text);

    return r < 0 ? r : stamp_parse_attrs(text, ret);
}

int stamp_write_attrs(int fd, const struct stamp_attrs *a)
{
    char text[256];
    int n = snprintf(text, sizeof(text),
                     "1 %" PRIx64 " %" PRIo32 " %" PRIu32 " %" PRIu32 " %" PRIx64 " %" PRIu64
                     " %" PRIu64 " %" PRIu64 " %x %" PRId64 " %" PRIu64,
                     a->ino, a->mode, a->uid, a->gid, a->rdev, a->named_seq, a->seq,
                     a->first_seq, a->flags, a->synced_mtime_ns, a->synced_size);
    if (a->flags & STAMP_WHOLE)
        n += snprintf(text + n, sizeof(text) - (size_t)n, " %" PRId64 " %" PRIu64,
                      a->whole_mtime_ns, a->whole_size);
    if (a->flags & STAMP_UNRENAMED)
        n += snprintf(text + n, sizeof(text) - (size_t)n, " %" PRIx64, a->made_at);

    return write_text(fd, STAMP_ATTRS, text, (size_t)n);
}

void stamp_keys_release(struct stamp_keys *k)
{
    for (size_t i = 0; i < k->n; i++) {
        free(k->v[i].key);
        free(k->v[i].etag);
    }
    free(k->v);
    *k = (struct stamp_keys){0};
}

/* The most that a record takes of a key, so that several fit into an inode, beside the user's
 * xattrs. */
#define KEY_MAX_LEN 200
#define KEY_HASHED  34 /* "/" and 32 digits; with the NUL */

/* The key as its record has it: a long one is its hash. No key begins with "/". */
static const char *recorded_key(const char *key, char hashed[KEY_HASHED])
{
    static const uint64_t same_for_all[2];
    size_t len = strlen(key);
    uint64_t h[2];

    if (len <= KEY_MAX_LEN)
        return key;
    siphash(same_for_all, key, len, h);
    (void)snprintf(hashed, KEY_HASHED, "/%016" PRIx64 "%016" PRIx64, h[0], h[1]);
    return hashed;
}

struct stamp_key *stamp_keys_find(const struct stamp_keys *k, const char *key)
{
    char hashed[KEY_HASHED];

    assert(key);
    key = recorded_key(key, hashed);
    for (size_t i = 0; i < k->n; i++)
        if (strcmp(k->v[i].key, key) == 0)
            return &k->v[i];
    return NULL;
}

void stamp_keys_remove(struct stamp_keys *k, const char *key)
{
    struct stamp_key *rec = stamp_keys_find(k, key);

    if (!rec)
        return;
    free(rec->key);
    free(rec->etag);
    *rec = k->v[--k->n];
}

int stamp_keys_set(struct stamp_keys *k, const char *key, const char *etag, int64_t mtime_ns,
                   uint64_t size)
{
    char hashed[KEY_HASHED];
    struct stamp_key *rec = stamp_keys_find(k, key);
    auto_free char *new_key = rec ? NULL : strdup(recorded_key(key, hashed));
    auto_free char *new_etag = strdup(etag);

    if (!new_etag || (!rec && !new_key))
        return -ENOMEM;
    if (!rec) {
        struct stamp_key *v = reallocarray(k->v, k->n + 1, sizeof(*v));
        if (!v)
            return -ENOMEM;
        k->v = v;
        rec = &v[k->n++];
        *rec = (struct stamp_key){.key = take_ptr(new_key)};
    }
    free(rec->etag);
    rec->etag = take_ptr(new_etag);
    rec->mtime_ns = mtime_ns;
    rec->size = size;
    rec->sum = (struct checksum){0};
    return 0;
}

bool stamp_key_is_expected(const struct stamp_key *rec)
{
    return rec->size == UINT64_MAX;
}

bool stamp_keys_expect(struct stamp_keys *k, const char *key, const char *etag)
{
    struct stamp_key *rec = stamp_keys_find(k, key);

    if (!etag) {
        stamp_keys_remove(k, key);
        return rec != NULL;
    }
    if (rec && stamp_key_is_expected(rec) && strcmp(rec->etag, etag) == 0)
        return false;
    return stamp_keys_set(k, key, etag, 0, UINT64_MAX) == 0;
}

/* Spaces, newlines and "%" are percent-encoded, everything else stays as it is. */
static int add_word(struct buf *b, const char *s)
{
    int r = 0;

    for (; *s && r == 0; s++)
        r = *s == ' ' || *s == '\n' || *s == '%' ? buf_addf(b, "%%%02x", (unsigned char)*s)
                                                 : buf_addc(b, *s);
    return r;
}

static int decode_word(const char *s, size_t len, char **ret)
{
    auto_free char *out = malloc(len + 1);
    size_t n = 0;

    if (!out)
        return -ENOMEM;
    for (size_t i = 0; i < len; i++) {
        unsigned c = (unsigned char)s[i];
        if (c == '%') {
            if (i + 2 >= len || sscanf(s + i + 1, "%2x", &c) != 1 || c == 0)
                return -EINVAL;
            i += 2;
        }
        out[n++] = (char)c;
    }
    out[n] = '\0';
    *ret = take_ptr(out);
    return 0;
}

/* "mtime size [checksum]=etag key\n" */
static int parse_key_line(const char *line, const char *end, struct stamp_keys *k)
{
    int64_t mtime_ns;
    uint64_t size;
    int used = 0;

    if (sscanf(line, "%" SCNd64 " %" SCNu64 " %n", &mtime_ns, &size, &used) != 2 || used == 0 ||
        line + used >= end)
        return -EINVAL;
    const char *etag = line + used;
    const char *space = memchr(etag, ' ', (size_t)(end - etag));
    if (!space || space + 1 >= end)
        return -EINVAL;
    auto_free char *etag_text = NULL;
    auto_free char *key_text = NULL;
    int r = decode_word(etag, (size_t)(space - etag), &etag_text);
    if (r == 0)
        r = decode_word(space + 1, (size_t)(end - space - 1), &key_text);
    /* An etag is written with a leading "=", since a word can't be empty. */
    char *equals = r == 0 ? strchr(etag_text, '=') : NULL;
    struct checksum sum = {0};
    if (r == 0 && (!equals || (equals > etag_text &&
                               !checksum_parse(etag_text, (size_t)(equals - etag_text), &sum))))
        r = -EINVAL;
    if (r == 0)
        r = stamp_keys_set(k, key_text, equals + 1, mtime_ns, size);
    if (r == 0)
        stamp_keys_find(k, key_text)->sum = sum;
    return r;
}

int stamp_parse_keys(const char *text, struct stamp_keys *ret)
{
    struct stamp_keys k = {0};

    while (*text) {
        const char *end = strchr(text, '\n');
        int r = end ? parse_key_line(text, end, &k) : -EINVAL;
        if (r < 0) {
            stamp_keys_release(&k);
            return r;
        }
        text = end + 1;
    }
    *ret = k;
    return 0;
}

int stamp_read_keys(int fd, struct stamp_keys *ret)
{
    char text[STAMP_MAX + 1];
    int r = read_text(fd, STAMP_KEYS, text);

    return r < 0 ? r : stamp_parse_keys(text, ret);
}

static int add_key(struct buf *b, const struct stamp_key *k)
{
    char sum[CHECKSUM_TEXT];

    checksum_print(&k->sum, sum);
    int r = buf_addf(b, "%" PRId64 " %" PRIu64 " %s=", k->mtime_ns, k->size, sum);
    if (r == 0)
        r = add_word(b, k->etag);
    if (r == 0)
        r = buf_addc(b, ' ');
    if (r == 0)
        r = add_word(b, k->key);
    return r == 0 ? buf_addc(b, '\n') : r;
}

int stamp_write_keys(int fd, const struct stamp_keys *k, bool *ret_all)
{
    auto_buf struct buf b = BUF_INIT(STAMP_MAX);
    size_t len = 0; /* of what is written: whole records */
    int r = 0;

    *ret_all = true;
    for (size_t i = 0; i < k->n && *ret_all; i++) {
        r = add_key(&b, &k->v[i]);
        if (i > 0 && (r == -EFBIG || b.len > STAMP_KEYS_MAX)) {
            *ret_all = false;
            r = 0;
        }
        if (r < 0)
            return r;
        len = *ret_all ? b.len : len;
    }
    return write_text(fd, STAMP_KEYS, b.data ? b.data : "", len);
}

int stamp_parse_ranges(const char *text, struct ranges *ret)
{
    struct ranges set = {0};
    int r = 0;

    while (*text && r == 0) {
        struct range one;
        int used = 0;
        if (sscanf(text, "%" SCNx64 "-%" SCNx64 ";%n", &one.off, &one.end, &used) != 2 ||
            used == 0 || one.off >= one.end)
            r = -EINVAL;
        else
            r = ranges_add(&set, one.off, one.end);
        text += used;
    }
    if (r < 0)
        ranges_clear(&set);
    else
        *ret = set;
    return r;
}

int stamp_read_ranges(int fd, struct ranges *ret)
{
    char text[STAMP_MAX + 1];
    int r = read_text(fd, STAMP_RANGES, text);

    return r < 0 ? r : stamp_parse_ranges(text, ret);
}

/* The shortest length that a range must have so that at most `most` ranges are written. */
static uint64_t cut_off(const struct ranges *r, size_t most)
{
    uint64_t shortest = 0;

    for (;;) {
        size_t n = 0;
        for (size_t i = 0; i < r->n; i++)
            n += r->v[i].end - r->v[i].off >= shortest;
        if (n <= most)
            return shortest;
        shortest = shortest ? shortest * 2 : 4096;
    }
}

int stamp_write_ranges(int fd, const struct ranges *r, bool create)
{
    char text[1200]; /* leaves room for the other stamps in a block of 4 KiB */
    size_t len = 0;
    uint64_t shortest = cut_off(r, sizeof(text) / 36);

    for (size_t i = 0; i < r->n; i++)
        if (r->v[i].end - r->v[i].off >= shortest)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "%" PRIx64 "-%" PRIx64 ";",
                                    r->v[i].off, r->v[i].end);
    /* Only a file that is still partial takes it: a late record must not make a written file
     * partial. */
    return fsetxattr(fd, STAMP_RANGES, text, len, create ? 0 : XATTR_REPLACE) < 0 ? -errno : 0;
}

int stamp_remove_ranges(int fd)
{
    return fremovexattr(fd, STAMP_RANGES) < 0 && errno != ENODATA ? -errno : 0;
}

int stamp_read_xattrs(int fd, char **ret)
{
    char text[STAMP_MAX + 1];
    int r = read_text(fd, STAMP_XATTRS, text);

    if (r < 0)
        return r;
    *ret = strdup(text);
    return *ret ? 0 : -ENOMEM;
}

int stamp_write_xattrs(int fd, const char *json)
{
    if (!json)
        return fremovexattr(fd, STAMP_XATTRS) < 0 && errno != ENODATA ? -errno : 0;
    return write_text(fd, STAMP_XATTRS, json, strlen(json));
}
