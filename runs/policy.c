/* The presets, and the table of a policy's fields. */
#include "runs/policy.h"

#include "common/mem.h"
#include "common/op.h"
#include "runs/policy_fields.h"

/* What the mount stages without a policy, and Hadoop's committers. */
#define STAGING_CHECKPOINT "_checkpoint:tmp-*:*.tmp:.*.tmp*:*.orbax-checkpoint-tmp-*:_temporary"

/* Directories of one step. No bare "#": MLflow's 0/ is no checkpoint. */
#define UNIT_NAMES                                                                             \
    "checkpoint-#:checkpoint_*:step#:step-#:step_#:global_step#:epoch#:epoch-#:epoch_#:"       \
    "epoch=*:iter_#:intermediate_*_data*"
#define UNIT_DONE                                                                              \
    "_SUCCESS:.metadata:trainer_state.json:_CHECKPOINT_METADATA:commit_success.txt"
#define UNIT_POINTER                                                                           \
    "checkpoint:latest:latest_*:last:last.ckpt:checkpoint_manager_snapshot.json"
#define RAY_POINTER "checkpoint_manager_snapshot.json:result.json:experiment_state-*.json"

#define UNIT_TIMES .unit_idle_ns = 10 * NS_PER_SEC, .unit_max_ns = 600 * NS_PER_SEC
#define NO_UNIT    .unit = "none", .unit_idle_ns = POLICY_UNSET, .unit_max_ns = POLICY_UNSET
#define FROM_MOUNT .interval_ns = POLICY_UNSET, .durability = POLICY_UNSET
#define NO_LOCKS                                                                               \
    .locks = "off", .lock_ttl_ns = POLICY_UNSET, .expect = 1, .keep_last = 0, .del_locks = 0
#define LOCKS(how) .locks = (how), .lock_ttl_ns = 60 * NS_PER_SEC, .expect = 1, .keep_last = 0

/* Their texts are constant: policy_copy() makes those that are released. */
static const struct policy presets[] = {
    {.name = "checkpoint",
     .staging = STAGING_CHECKPOINT,
     .settle_ns = POLICY_UNSET,
     FROM_MOUNT,
     .unit = "entry",
     .unit_done = UNIT_DONE,
     .unit_pointer = UNIT_POINTER,
     UNIT_TIMES,
     LOCKS("cluster"),
     .del_locks = 0},
    /* How often is the mount's upload_interval. */
    {.name = "logs",
     .upload = UPLOAD_INTERVAL,
     .conflict = CONFLICT_LAST,
     .settle_ns = POLICY_UNSET,
     FROM_MOUNT,
     NO_UNIT,
     NO_LOCKS},
    {.name = "metadata",
     .settle_ns = 0,
     .urgent = true,
     FROM_MOUNT,
     .unit = "file",
     .unit_idle_ns = POLICY_UNSET,
     .unit_max_ns = POLICY_UNSET,
     NO_LOCKS},
    {.name = "data",
     .settle_ns = POLICY_UNSET,
     FROM_MOUNT,
     .unit = "names",
     .unit_names = UNIT_NAMES,
     .unit_done = UNIT_DONE,
     .unit_pointer = UNIT_POINTER,
     UNIT_TIMES,
     LOCKS("node"),
     .del_locks = 0},
    {.name = "scratch",
     .upload = UPLOAD_NEVER,
     .settle_ns = POLICY_UNSET,
     FROM_MOUNT,
     NO_UNIT,
     NO_LOCKS},
    /* The run directory is the checkpoint. */
    {.name = "dbfs",
     .staging = STAGING_CHECKPOINT,
     .settle_ns = POLICY_UNSET,
     FROM_MOUNT,
     .unit = "root",
     .unit_done = UNIT_DONE,
     .unit_pointer = UNIT_POINTER,
     UNIT_TIMES,
     LOCKS("cluster"),
     .del_locks = 0},
    {.name = "ray",
     .settle_ns = POLICY_UNSET,
     FROM_MOUNT,
     .unit = "names",
     .unit_names = "checkpoint_*",
     .unit_done = UNIT_DONE,
     .unit_pointer = RAY_POINTER,
     UNIT_TIMES,
     LOCKS("cluster"),
     .del_locks = 1},
    {.name = "adaptdl",
     .staging = STAGING_CHECKPOINT,
     .settle_ns = POLICY_UNSET,
     FROM_MOUNT,
     .unit = "names",
     .unit_names = "checkpoint-#",
     .unit_done = UNIT_DONE,
     .unit_pointer = UNIT_POINTER,
     UNIT_TIMES,
     LOCKS("cluster"),
     .del_locks = 0},
    {.name = "tfos",
     .settle_ns = POLICY_UNSET,
     FROM_MOUNT,
     .unit = "names",
     .unit_names = UNIT_NAMES ":export*:saved_model*:#",
     .unit_done = UNIT_DONE,
     .unit_pointer = "checkpoint",
     UNIT_TIMES,
     LOCKS("node"),
     .del_locks = 0},
};

static const char *const uploads[] = {"close", "rename", "interval", "never", NULL};
static const char *const conflicts[] = {"keep", "last", NULL};
static const char *const durabilities[] = {"cache", "store", NULL};
static const char *const units[] = {"none", "file", "names", "entry", "root", NULL};
static const char *const lock_words[] = {"off", "node", "cluster", NULL};

#define FIELD(member) offsetof(struct policy, member)

const struct policy_field policy_fields[] = {
    {"upload", POLICY_CHOICE, FIELD(upload), uploads, 0, true, NULL},
    {"staging", POLICY_PATTERNS, FIELD(staging), NULL, 0, true, NULL},
    {"logs", POLICY_PATTERNS, FIELD(logs), NULL, 0, true, NULL},
    {"interval", POLICY_TIME, FIELD(interval_ns), NULL, 0, true, NULL},
    {"settle", POLICY_TIME, FIELD(settle_ns), NULL, 0, true, NULL},
    {"conflict", POLICY_CHOICE, FIELD(conflict), conflicts, 0, true, NULL},
    {"durability", POLICY_CHOICE, FIELD(durability), durabilities, 0, true, NULL},
    {"unit", POLICY_WORD, FIELD(unit), units, 0, true, NULL},
    {"unit_names", POLICY_PATTERNS, FIELD(unit_names), NULL, 0, true, NULL},
    {"unit_done", POLICY_PATTERNS, FIELD(unit_done), NULL, 0, true, NULL},
    {"unit_pointer", POLICY_PATTERNS, FIELD(unit_pointer), NULL, 0, true, NULL},
    {"unit_idle", POLICY_TIME, FIELD(unit_idle_ns), NULL, 0, true, NULL},
    {"unit_max", POLICY_TIME, FIELD(unit_max_ns), NULL, 0, false, NULL},
    {"locks", POLICY_WORD, FIELD(locks), lock_words, 0, false, NULL},
    {"lock_ttl", POLICY_TIME, FIELD(lock_ttl_ns), NULL, 1, true, NULL},
    {"expect", POLICY_COUNT, FIELD(expect), NULL, 1, false, "env"},
    {"keep_last", POLICY_COUNT, FIELD(keep_last), NULL, 0, false, NULL},
    {"del_locks", POLICY_FLAG, FIELD(del_locks), NULL, 0, true, NULL},
};
const size_t policy_fields_n = ARRAY_SIZE(policy_fields);

const struct policy_field *policy_field_find(const char *name)
{
    for (size_t i = 0; i < policy_fields_n; i++)
        if (strcmp(policy_fields[i].name, name) == 0)
            return &policy_fields[i];
    return NULL;
}

static void *field_of(const struct policy *p, const struct policy_field *f)
{
    return (char *)p + f->offset;
}

int *policy_choice(const struct policy *p, const struct policy_field *f)
{
    return field_of(p, f);
}

char **policy_text(const struct policy *p, const struct policy_field *f)
{
    return field_of(p, f);
}

int64_t *policy_number(const struct policy *p, const struct policy_field *f)
{
    return field_of(p, f);
}

bool policy_field_unset(const struct policy *p, const struct policy_field *f)
{
    switch (f->kind) {
    case POLICY_CHOICE:
    case POLICY_FLAG:
        return *policy_choice(p, f) == POLICY_UNSET;
    case POLICY_WORD:
    case POLICY_PATTERNS:
        return !*policy_text(p, f);
    default:
        return *policy_number(p, f) == POLICY_UNSET;
    }
}

bool policy_field_same(const struct policy *a, const struct policy *b,
                       const struct policy_field *f)
{
    if (f->kind == POLICY_CHOICE || f->kind == POLICY_FLAG)
        return *policy_choice(a, f) == *policy_choice(b, f);
    if (f->kind == POLICY_TIME || f->kind == POLICY_COUNT)
        return *policy_number(a, f) == *policy_number(b, f);
    if (policy_field_unset(a, f) || policy_field_unset(b, f))
        return policy_field_unset(a, f) == policy_field_unset(b, f);
    return strcmp(*policy_text(a, f), *policy_text(b, f)) == 0;
}

static bool is_text(const struct policy_field *f)
{
    return f->kind == POLICY_WORD || f->kind == POLICY_PATTERNS;
}

int policy_copy(struct policy *to, const char *name, const struct policy *from)
{
    bool ok = true;

    *to = *from;
    to->name = strdup(name);
    to->preset = from->preset ? from->preset : from->name;
    for (size_t i = 0; i < policy_fields_n; i++) {
        char **text = policy_text(to, &policy_fields[i]);

        if (!is_text(&policy_fields[i]) || !*text)
            continue;
        *text = strdup(*text);
        ok = ok && *text;
    }
    if (ok && to->name)
        return 0;
    policy_release(to);
    return -ENOMEM;
}

void policy_release(struct policy *p)
{
    for (size_t i = 0; i < policy_fields_n; i++)
        if (is_text(&policy_fields[i]))
            free(*policy_text(p, &policy_fields[i]));
    free(p->name);
    *p = (struct policy){0};
}

const struct policy *policy_preset_at(size_t i)
{
    return i < ARRAY_SIZE(presets) ? &presets[i] : NULL;
}

const struct policy *policy_preset(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(presets); i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

int policies_add_presets(struct policies *p)
{
    for (size_t i = 0; i < ARRAY_SIZE(presets); i++) {
        if (array_grow(p->items, p->cap, p->n + 1) ||
            policy_copy(&p->items[p->n], presets[i].name, &presets[i]))
            return -ENOMEM;
        p->n++;
    }
    return 0;
}

size_t policies_find(const struct policies *p, const char *name)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->items[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

void policies_release(struct policies *p)
{
    for (size_t i = 0; i < p->n; i++)
        policy_release(&p->items[i]);
    free(p->items);
    *p = (struct policies){0};
}
