/* The fields of a policy as a table: for who copies, reads, compares and prints all of them.
 * And the presets. Any thread. */
#ifndef RUNFS_RUNS_POLICY_FIELDS_H
#define RUNFS_RUNS_POLICY_FIELDS_H

#include "runs/policy.h"

enum policy_kind {
    POLICY_CHOICE,   /* int, or an enum: index into `choices` */
    POLICY_FLAG,     /* int, 0 or 1 */
    POLICY_WORD,     /* char *, one of `choices` */
    POLICY_PATTERNS, /* char *, patterns of names joined by ":" */
    POLICY_TIME,     /* int64_t, ns */
    POLICY_COUNT,    /* int64_t, at least `least` */
};

struct policy_field {
    const char *name;
    enum policy_kind kind;
    size_t offset; /* in struct policy */
    const char *const *choices;
    int64_t least;
    bool built;        /* else it has the preset's value only */
    const char *later; /* a legal value that is not built; or NULL */
};

extern const struct policy_field policy_fields[];
extern const size_t policy_fields_n;
/* NULL: there is none of that name. */
const struct policy_field *policy_field_find(const char *name);

/* The value of a field of kind CHOICE and FLAG; of WORD and PATTERNS; of TIME and COUNT. */
int *policy_choice(const struct policy *p, const struct policy_field *f);
char **policy_text(const struct policy *p, const struct policy_field *f);
int64_t *policy_number(const struct policy *p, const struct policy_field *f);
bool policy_field_unset(const struct policy *p, const struct policy_field *f);
bool policy_field_same(const struct policy *a, const struct policy *b,
                       const struct policy_field *f);

/* A deep copy named `name` into uninitialised `to`; 0 or -ENOMEM. */
int policy_copy(struct policy *to, const char *name, const struct policy *from);
void policy_release(struct policy *p);

/* NULL: there is none. Their names in turn: policy_preset_at(0), ... up to NULL. */
const struct policy *policy_preset(const char *name);
const struct policy *policy_preset_at(size_t i);

/* Appends all presets to an empty list. 0 or -ENOMEM. */
int policies_add_presets(struct policies *p);
/* SIZE_MAX: none. */
size_t policies_find(const struct policies *p, const char *name);

#endif
