#include "tests/lib/acl_text.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static void put_le(struct acl_bytes *b, uint32_t value, size_t len)
{
    for (size_t i = 0; i < len; i++)
        b->v[b->n++] = (unsigned char)(value >> 8 * i);
}

void acl_text_add(struct acl_bytes *b, uint32_t tag, uint32_t perm, uint32_t id)
{
    put_le(b, tag, 2);
    put_le(b, perm, 2);
    put_le(b, id, 4);
}

struct acl_bytes acl_text(const char *text)
{
    static const char letters[] = "uUgGmo";
    static const uint32_t tags[] = {1, 2, 4, 8, 0x10, 0x20};
    struct acl_bytes b = {.n = 0};
    int used = 0;

    put_le(&b, 2, 4);
    for (; *text; text += used) {
        unsigned id = ACL_NO_ID, perm = 0;
        char letter = 0;
        if (sscanf(text, " %c%u:%u%n", &letter, &id, &perm, &used) != 3) {
            id = ACL_NO_ID;
            ck_assert_int_eq(sscanf(text, " %c%u%n", &letter, &perm, &used), 2);
        }
        const char *at = strchr(letters, letter);
        ck_assert_ptr_nonnull(at);
        acl_text_add(&b, tags[at - letters], perm, id);
    }
    return b;
}

const struct acl_case acl_cases[ACL_CASES] = {
    {"u6 g4 o0", 0, true, 0640},
    {"u7 U5:7 g5 m5 o1", 0, false, 0751},
    {"u7 g5 G5:7 m0 o1", 0, false, 0701},
    {"u7 g7 m4 o0", 0, false, 0740},
    {"u7 U5:7 U5:6 U4:0 g5 G1:1 G1:1 m7 o7", 0, false, 0777},
    {"u6 g4", -EINVAL, false, 0},
    {"u6 o4", -EINVAL, false, 0},
    {"g6 o4", -EINVAL, false, 0},
    {"u6 u6 g4 o0", -EINVAL, false, 0},
    {"u6 g4 g4 o0", -EINVAL, false, 0},
    {"u6 g4 m4 m4 o0", -EINVAL, false, 0},
    {"u6 g4 o0 o0", -EINVAL, false, 0},
    {"g4 u6 o0", -EINVAL, false, 0},
    {"u6 g4 o0 m7", -EINVAL, false, 0},
    {"u6 g4 U5:7 m7 o0", -EINVAL, false, 0},
    {"u6 U5:7 g4 o0", -EINVAL, false, 0},
    {"u6 g4 G5:7 o0", -EINVAL, false, 0},
    {"u8 g4 o0", -EINVAL, false, 0},
    {"u6 U4294967295:7 g4 m7 o0", -EINVAL, false, 0},
};
