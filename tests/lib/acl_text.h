/* ACLs as short texts, and some of which it is known what they mean. */
#ifndef RUNFS_TESTS_LIB_ACL_TEXT_H
#define RUNFS_TESTS_LIB_ACL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACL_ENTRIES_MAX 400
#define ACL_NO_ID       UINT32_MAX
#define ACL_CASES       19

/* As the kernel hands them over. */
struct acl_bytes {
    unsigned char v[4 + 8 * ACL_ENTRIES_MAX];
    size_t n;
};

/* "u7 U5:6 g5 G9:1 m7 o0": owner, named user 5, group, named group 9, mask, others. */
struct acl_bytes acl_text(const char *text);
void acl_text_add(struct acl_bytes *b, uint32_t tag, uint32_t perm, uint32_t id);

struct acl_case {
    const char *text;
    int result; /* of acl_check() */
    bool minimal;
    uint32_t bits;
};

extern const struct acl_case acl_cases[ACL_CASES];

#endif
