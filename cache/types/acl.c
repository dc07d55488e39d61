/* What the bytes of an ACL mean; see acl.h. The rules are those of the kernel's
 * fs/posix_acl.c, so that a mount and a local folder answer alike. */
#include "cache/types/acl.h"

#include "cache/types/xattr_set.h"
#include "common/mem.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdlib.h>
#include <string.h>

#define HEAD  sizeof(struct posix_acl_xattr_header)
#define ENTRY sizeof(struct posix_acl_xattr_entry)

struct entry_of {
    uint16_t tag, perm;
    uint32_t id;
};

static size_t count_of(size_t size)
{
    return (size - HEAD) / ENTRY;
}

/* The bytes need not be aligned. */
static struct entry_of entry_at(const void *value, size_t i)
{
    struct posix_acl_xattr_entry raw;

    memcpy(&raw, (const char *)value + HEAD + i * ENTRY, ENTRY);
    return (struct entry_of){
        .tag = le16toh(raw.e_tag), .perm = le16toh(raw.e_perm), .id = le32toh(raw.e_id)};
}

/* Sets the entry's permissions. Whether they were others before. */
static bool set_perm(void *value, size_t i, unsigned perm)
{
    struct posix_acl_xattr_entry raw;
    char *at = (char *)value + HEAD + i * ENTRY;

    memcpy(&raw, at, ENTRY);
    bool differs = le16toh(raw.e_perm) != perm;
    raw.e_perm = htole16((uint16_t)perm);
    memcpy(at, &raw, ENTRY);
    return differs;
}

/* The index of the entry with this tag; the number of entries when there is none. */
static size_t find_tag(const void *value, size_t size, unsigned tag)
{
    size_t n = count_of(size), i = 0;

    while (i < n && entry_at(value, i).tag != tag)
        i++;
    return i;
}

/* Which entry's permissions are the mode's group bits. */
static size_t group_class(const void *value, size_t size)
{
    size_t mask = find_tag(value, size, ACL_MASK);

    return mask < count_of(size) ? mask : find_tag(value, size, ACL_GROUP_OBJ);
}

bool acl_is_name(const char *name)
{
    return strcmp(name, ACL_ACCESS) == 0 || strcmp(name, ACL_DEFAULT) == 0;
}

bool acl_is_empty(size_t size)
{
    return size <= HEAD;
}

/* Whether the entries stand in their order: owner, named users, group, named groups, mask,
 * others. The kernel takes a name twice, but no names without a mask. */
static bool order_is_right(const void *value, size_t n)
{
    static const uint16_t order[] = {ACL_USER_OBJ, ACL_USER, ACL_GROUP_OBJ,
                                     ACL_GROUP,    ACL_MASK, ACL_OTHER};
    const size_t last = sizeof(order) / sizeof(order[0]);
    unsigned seen[sizeof(order) / sizeof(order[0])] = {0};
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        struct entry_of e = entry_at(value, i);
        while (at < last && order[at] != e.tag)
            at++;
        if (at == last || (e.perm & ~(unsigned)S_IRWXO))
            return false;
        bool named = e.tag == ACL_USER || e.tag == ACL_GROUP;
        if ((named && e.id == (uint32_t)ACL_UNDEFINED_ID) || (seen[at]++ && !named))
            return false;
    }
    bool names = seen[1] || seen[3];
    return seen[0] && seen[2] && seen[5] && (seen[4] || !names);
}

int acl_check(const void *value, size_t size)
{
    struct posix_acl_xattr_header head;

    if (size < HEAD || (size - HEAD) % ENTRY)
        return -EINVAL;
    memcpy(&head, value, HEAD);
    if (le32toh(head.a_version) != POSIX_ACL_XATTR_VERSION)
        return -EOPNOTSUPP;
    return acl_is_empty(size) || order_is_right(value, count_of(size)) ? 0 : -EINVAL;
}

bool acl_to_mode(const void *value, size_t size, uint32_t *ret_bits)
{
    uint32_t owner = entry_at(value, find_tag(value, size, ACL_USER_OBJ)).perm;
    uint32_t group = entry_at(value, group_class(value, size)).perm;
    uint32_t others = entry_at(value, find_tag(value, size, ACL_OTHER)).perm;

    *ret_bits = owner << 6 | group << 3 | others;
    return count_of(size) == 3;
}

bool acl_take_mode(void *value, size_t size, uint32_t mode)
{
    bool owner = set_perm(value, find_tag(value, size, ACL_USER_OBJ), mode >> 6 & 7);
    bool group = set_perm(value, group_class(value, size), mode >> 3 & 7);
    bool others = set_perm(value, find_tag(value, size, ACL_OTHER), mode & 7);

    return owner || group || others;
}

bool acl_inherit(void *value, size_t size, uint32_t *mode)
{
    uint32_t bits;
    bool minimal = acl_to_mode(value, size, &bits);

    *mode &= bits | ~(uint32_t)0777;
    (void)acl_take_mode(value, size, *mode);
    return !minimal;
}

/* ---- ACLs ---- */
ssize_t acl_stored(const char *xattrs, const char *name, unsigned char **ret)
{
    unsigned char *value = NULL;
    ssize_t size =
        xattrs && strstr(xattrs, name) ? xattr_set_get(xattrs, name, &value) : -ENODATA;

    if (size >= 0 && (acl_check(value, (size_t)size) < 0 || acl_is_empty((size_t)size))) {
        free(value);
        return -ENODATA;
    }
    if (size >= 0)
        *ret = value;
    return size == -ENOMEM ? size : size < 0 ? -ENODATA : size;
}

int acl_follow_mode(const char *xattrs, uint32_t mode, char **ret)
{
    auto_free unsigned char *value = NULL;
    ssize_t size = acl_stored(xattrs, ACL_ACCESS, &value);

    *ret = NULL;
    if (size < 0)
        return size == -ENODATA ? 0 : (int)size;
    if (!acl_take_mode(value, (size_t)size, mode))
        return 0;
    return xattr_set_edit(xattrs, ACL_ACCESS, value, (size_t)size, 0, ret);
}
