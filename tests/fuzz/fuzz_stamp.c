/* Stamps of mirror files: any text is read or refused, and what was read is written so that it
 * is read the same. The first byte chooses which stamp. */
#include "cache/mirror/stamp.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* A file without a name that carries no stamp yet: together they may not find room. */
static int stamped_file(void)
{
    static int fd = -1;
    char name[4096];
    const char *dir = getenv("TMPDIR");

    static const char *const stamps[] = {STAMP_ATTRS, STAMP_KEYS, STAMP_RANGES};
    for (size_t i = 0; fd >= 0 && i < ARRAY_SIZE(stamps); i++)
        (void)fremovexattr(fd, stamps[i]);
    if (fd >= 0)
        return fd;
    must((size_t)snprintf(name, sizeof(name), "%s/runfs-fuzz-XXXXXX", dir ? dir : "/tmp") <
         sizeof(name));
    fd = mkstemp(name);
    must(fd >= 0 && unlink(name) == 0);
    return fd;
}

static void check_attrs(const char *text)
{
    struct stamp_attrs a, b;

    if (stamp_parse_attrs(text, &a) < 0)
        return;
    int fd = stamped_file();
    must(stamp_write_attrs(fd, &a) == 0 && stamp_read_attrs(fd, &b) == 0);
    must(a.ino == b.ino && a.mode == b.mode && a.uid == b.uid && a.gid == b.gid &&
         a.rdev == b.rdev && a.named_seq == b.named_seq && a.seq == b.seq &&
         a.first_seq == b.first_seq && a.flags == b.flags &&
         a.synced_mtime_ns == b.synced_mtime_ns && a.synced_size == b.synced_size &&
         a.whole_mtime_ns == b.whole_mtime_ns && a.whole_size == b.whole_size &&
         a.made_at == b.made_at);
}

static void check_keys(const char *text)
{
    struct stamp_keys a, b;

    if (stamp_parse_keys(text, &a) < 0)
        return;
    bool all = false;
    int fd = stamped_file(), r = stamp_write_keys(fd, &a, &all);
    must(r == 0 || r == -EFBIG || r == -ENOSPC || r == -E2BIG);
    if (r == 0) {
        must(stamp_read_keys(fd, &b) == 0 && (all ? a.n == b.n : b.n && b.n < a.n));
        for (size_t i = 0; i < a.n; i++) {
            const struct stamp_key *k = stamp_keys_find(&b, a.v[i].key);
            if (!k && !all)
                continue;
            must(k && strcmp(k->etag, a.v[i].etag) == 0 && k->mtime_ns == a.v[i].mtime_ns &&
                 k->size == a.v[i].size && checksum_same(&k->sum, &a.v[i].sum));
        }
        stamp_keys_release(&b);
    }
    stamp_keys_release(&a);
}

static void check_sorted(const struct ranges *r)
{
    for (size_t i = 0; i < r->n; i++) {
        must(r->v[i].off < r->v[i].end);
        must(i == 0 || r->v[i - 1].end < r->v[i].off);
    }
}

/* Fewer may be written, more never. */
static void check_ranges(const char *text)
{
    struct ranges a, b;

    if (stamp_parse_ranges(text, &a) < 0)
        return;
    check_sorted(&a);
    int fd = stamped_file();
    must(stamp_write_ranges(fd, &a, true) == 0 && stamp_read_ranges(fd, &b) == 0);
    check_sorted(&b);
    for (size_t i = 0; i < b.n; i++)
        must(ranges_has(&a, b.v[i].off, b.v[i].end));
    ranges_clear(&a);
    ranges_clear(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > STAMP_MAX)
        return 0;
    auto_free char *text = malloc(size);

    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (data[0] % 3 == 0)
        check_attrs(text);
    else if (data[0] % 3 == 1)
        check_keys(text);
    else
        check_ranges(text);
    return 0;
}
