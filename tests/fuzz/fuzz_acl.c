/* ACLs and the sets of extended attributes that hold them: any bytes are taken or refused; what
 * is taken stays an ACL whatever mode it is given, and says that mode. The first two bytes are
 * the mode; what follows is an ACL's bytes, and the text of a set. */
#include "cache/types/acl.h"
#include "cache/types/xattr_set.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void check_acl(const uint8_t *data, size_t size, uint32_t mode)
{
    auto_free uint8_t *value = malloc(size + 1);
    uint32_t bits = 0, made = mode;

    if (!value || acl_check(data, size) < 0 || acl_is_empty(size))
        return;
    memcpy(value, data, size);
    bool minimal = acl_to_mode(value, size, &bits);
    must(bits <= 0777 && !acl_take_mode(value, size, bits));
    must(acl_inherit(value, size, &made) == !minimal);
    must((made & ~mode) == 0 && (made & ~0777U) == (mode & ~0777U) && !(made & 0777 & ~bits));
    (void)acl_take_mode(value, size, mode);
    must(acl_check(value, size) == 0);
    must(acl_to_mode(value, size, &bits) == minimal && bits == (mode & 0777));
}

static int take_out(void *arg, const char *name)
{
    char **text = arg, *left = NULL;

    if (xattr_set_edit(*text, name, NULL, 0, 0, &left) == 0) {
        free(*text);
        *text = left;
    }
    return 0;
}

static void check_set(const char *text)
{
    unsigned char *value = NULL;
    char *left = NULL;

    ssize_t n = xattr_set_get(text, ACL_ACCESS, &value);
    if (n >= 0) {
        must(xattr_set_edit(text, ACL_ACCESS, value, (size_t)n, 0, &left) == 0 && left);
        unsigned char *again = NULL;
        must(xattr_set_get(left, ACL_ACCESS, &again) == n);
        must(n == 0 || memcmp(value, again, (size_t)n) == 0);
        free(again);
        free(value);
    }
    (void)xattr_set_each(text, take_out, &left);
    free(left);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 1 << 16)
        return 0;
    auto_free char *text = strndup((const char *)data + 2, size - 2);
    check_acl(data + 2, size - 2, (uint32_t)(data[0] | data[1] << 8) & 07777);
    if (text)
        check_set(text);
    return 0;
}
