/* Names and texts, as `-o name=value` gives them. One thread at a time. */
#ifndef RUNFS_COMMON_SETTINGS_H
#define RUNFS_COMMON_SETTINGS_H

#include <stddef.h>

struct setting {
    char *name;
    char *value; /* "true" and "false" for JSON's booleans */
};

/* A list of settings that owns its texts. */
struct settings {
    struct setting *items;
    size_t n, cap;
};

/* Appends a copy. 0 or -ENOMEM. */
int settings_add(struct settings *s, const char *name, const char *value);
/* The value of the last setting of that name, or NULL. */
const char *settings_get(const struct settings *s, const char *name);
void settings_release(struct settings *s);

#endif
