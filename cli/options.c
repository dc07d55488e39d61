/* The mount's options: one table of names, kinds and places, and how texts become values. What
 * is not in it may be a field of a policy, which has a table of its own. */
#include "cli/options.h"

#include "backends/store.h"
#include "common/mem.h"
#include "common/nearest.h"
#include "common/units.h"
#include "runs/policy_fields.h"
#include "runs/policy_options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum option_kind {
    OPTION_TEXT,   /* char *, heap */
    OPTION_SIZE,   /* uint64_t, bytes */
    OPTION_TIME,   /* int64_t, ns */
    OPTION_COUNT,  /* unsigned, 1 to 1024 */
    OPTION_ID,     /* uint32_t */
    OPTION_OCTAL,  /* unsigned, up to 0777 */
    OPTION_FLAG,   /* bool */
    OPTION_CHOICE, /* int, index into `choices` */
};

struct option_def {
    const char *name;
    enum option_kind kind;
    size_t offset; /* in struct mount_options */
    const char *const *choices;
    const char *help;
};

static const char *const durability_names[] = {"cache", "store", NULL};
static const char *const passthrough_names[] = {"auto", "off", NULL};
static const char *const incomplete_names[] = {"hide", "show", NULL};
static const char *const level_names[] = {"error", "warn", "info", "debug", NULL};

#define FIELD(member) offsetof(struct mount_options, member)

static const struct option_def defs[] = {
    {"cache_dir", OPTION_TEXT, FIELD(cache_dir), NULL,
     "where the cache lives (~/.cache/runfs/..., for root /var/cache/runfs/...)"},
    {"cache_size", OPTION_SIZE, FIELD(cache.size_bytes), NULL,
     "limit of the cache (80 % of what is free)"},
    {"cache_reserve", OPTION_SIZE, FIELD(cache.reserve_bytes), NULL,
     "kept free on the cache's disk (5 % of it, at most 10 GiB)"},
    {"config", OPTION_TEXT, FIELD(config), NULL, "read options from this JSON file first"},
    {"layout", OPTION_TEXT, FIELD(layout), NULL,
     "what lies where: plain, runs, horovod, dbfs, ray, adaptdl, torchx, tfos (plain)"},
    {"durability", OPTION_CHOICE, FIELD(durability), durability_names,
     "what close and fsync wait for: cache or store (cache)"},
    {"attr_timeout", OPTION_TIME, FIELD(cache.attr_timeout_ns), NULL,
     "how long a known version is believed without asking the store (1s)"},
    {"entry_timeout", OPTION_TIME, FIELD(entry_timeout_ns), NULL,
     "how long the kernel believes a name (1s)"},
    {"list_timeout", OPTION_TIME, FIELD(cache.list_timeout_ns), NULL,
     "how long a listing is believed (5s)"},
    {"incomplete", OPTION_CHOICE, FIELD(incomplete), incomplete_names,
     "checkpoints that other mounts have not finished: hide or show (hide)"},
    {"upload_interval", OPTION_TIME, FIELD(cache.upload_interval_ns), NULL,
     "how often *tfevents*, *.log and logs/ are uploaded while open; 0 never (30s)"},
    {"late_window", OPTION_TIME, FIELD(cache.late_ns), NULL,
     "how long after a crash what the killed daemon sent may still arrive (10s)"},
    {"settle", OPTION_TIME, FIELD(cache.settle_ns), NULL,
     "how long a closed file rests before its upload starts (100ms)"},
    {"store_timeout", OPTION_TIME, FIELD(cache.store_timeout_ns), NULL,
     "deadline of one request to the store, retries included (5m)"},
    {"ask_timeout", OPTION_TIME, FIELD(cache.ask_timeout_ns), NULL,
     "how long ls, stat, open and create wait for a store that does not answer (1m)"},
    {"mount_timeout", OPTION_TIME, FIELD(mount_timeout_ns), NULL,
     "how long mounting waits for keys, for the store (at most 10s) and for the cache (20s)"},
    {"drain_timeout", OPTION_TIME, FIELD(drain_timeout_ns), NULL,
     "how long the daemon goes on uploading after SIGTERM or an unmount (no limit)"},
    {"upload_jobs", OPTION_COUNT, FIELD(cache.upload_jobs), NULL,
     "uploads at the same time (8)"},
    {"download_jobs", OPTION_COUNT, FIELD(cache.download_jobs), NULL,
     "downloads at the same time (8)"},
    {"connections", OPTION_COUNT, FIELD(connections), NULL, "connections to the store (32)"},
    {"part_size", OPTION_SIZE, FIELD(cache.part_size), NULL,
     "bytes of one upload part (16MiB)"},
    {"list_memory", OPTION_SIZE, FIELD(cache.list_memory_bytes), NULL,
     "memory for remote listings (256MiB)"},
    {"staging", OPTION_TEXT, FIELD(staging), NULL,
     "patterns of names not published before they are renamed, joined by \":\""},
    {"allow_other", OPTION_FLAG, FIELD(allow_other), NULL, "other users may use the mount"},
    {"ro", OPTION_FLAG, FIELD(read_only), NULL, "read-only"},
    {"nonempty", OPTION_FLAG, FIELD(nonempty), NULL,
     "the mountpoint need not be empty; what it holds is hidden"},
    {"acl", OPTION_FLAG, FIELD(acl), NULL,
     "POSIX ACLs are kept, inherited and enforced (on with allow_other); noacl: neither"},
    {"uid", OPTION_ID, FIELD(cache.uid), NULL, "owner of objects that say none (the mounter)"},
    {"gid", OPTION_ID, FIELD(cache.gid), NULL, "group of objects that say none"},
    {"umask", OPTION_OCTAL, FIELD(umask), NULL,
     "taken from the mode of objects that say none (022)"},
    {"fmask", OPTION_OCTAL, FIELD(fmask), NULL, "the same for files only"},
    {"dmask", OPTION_OCTAL, FIELD(dmask), NULL, "the same for directories only"},
    {"passthrough", OPTION_CHOICE, FIELD(passthrough), passthrough_names,
     "kernel passthrough for complete files: auto or off (auto)"},
    {"log_level", OPTION_CHOICE, FIELD(log_level), level_names,
     "error, warn, info or debug (info)"},
};

/* What mount(8) and fstab carry for every filesystem and means nothing to runfs. */
static const char *const ignored[] = {
    "auto",       "noauto",      "_netdev",
    "defaults",   "nofail",      "user",
    "nouser",     "users",       "owner",
    "group",      "atime",       "noatime",
    "relatime",   "norelatime",  "diratime",
    "nodiratime", "strictatime", "nostrictatime",
    "lazytime",   "nolazytime",  "comment",
    "silent",     "loud",        "iversion",
    "noiversion", "uhelper",     "default_permissions", /* always on */
};

/* What the kernel's mount takes. */
static const char *const kernel_flags[] = {
    "suid", "nosuid", "dev", "nodev", "exec", "noexec", "sync", "async", "dirsync",
};

/* What a kernel with SELinux takes, the value in quotes. */
static const char *const selinux[] = {"context", "fscontext", "defcontext", "rootcontext"};

static bool in_list(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

bool mount_options_is_stores(const char *name)
{
    const char *const *names = store_option_names();

    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

int mount_options_check_stores(const char *name, struct op *op)
{
    struct nearest n;

    if (mount_options_is_stores(name))
        return 0;
    nearest_init(&n, name);
    for (const char *const *s = store_option_names(); *s; s++)
        nearest_try(&n, *s);
    if (n.best)
        return op_fail(op, -EINVAL, "unknown option \"%.60s\", did you mean \"%s\"?", name,
                       n.best);
    return op_fail(op, -EINVAL, "no kind of store has the option \"%.60s\"", name);
}

static const struct option_def *find_def(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(defs); i++)
        if (strcmp(defs[i].name, name) == 0)
            return &defs[i];
    return NULL;
}

bool mount_options_is_policy_field(const char *name)
{
    return !find_def(name) && policy_field_find(name);
}

static int unknown_option(const char *name, struct op *op)
{
    struct nearest n;

    nearest_init(&n, name);
    for (size_t i = 0; i < ARRAY_SIZE(defs); i++)
        nearest_try(&n, defs[i].name);
    for (size_t i = 0; i < policy_fields_n; i++)
        nearest_try(&n, policy_fields[i].name);
    for (const char *const *s = store_option_names(); *s; s++)
        nearest_try(&n, *s);
    if (n.best)
        return op_fail(op, -EINVAL, "unknown option \"%.60s\", did you mean \"%s\"?", name,
                       n.best);
    return op_fail(op, -EINVAL,
                   "unknown option \"%.60s\"; `runfs mount --help` lists the known ones", name);
}

static int bad_value(const char *name, const char *value, const char *wanted, struct op *op)
{
    return op_fail(op, -EINVAL, "option %s=%.60s: expected %s", name, value, wanted);
}

static int parse_number(const char *text, int base, unsigned long max, unsigned long *ret)
{
    char *end;

    if (*text < '0' || *text > '9')
        return -EINVAL;
    errno = 0;
    *ret = strtoul(text, &end, base);
    return errno || *end || *ret > max ? -EINVAL : 0;
}

static int set_number(const struct option_def *def, void *field, const char *value,
                      struct op *op)
{
    unsigned long number;

    switch (def->kind) {
    case OPTION_COUNT:
        if (parse_number(value, 10, 1024, &number) || number == 0)
            return bad_value(def->name, value, "a number from 1 to 1024", op);
        *(unsigned *)field = (unsigned)number;
        return 0;
    case OPTION_ID:
        if (parse_number(value, 10, UINT32_MAX - 1, &number))
            return bad_value(def->name, value, "a numeric id", op);
        *(uint32_t *)field = (uint32_t)number;
        return 0;
    default:
        if (parse_number(value, 8, 0777, &number))
            return bad_value(def->name, value, "an octal mode such as 022", op);
        *(unsigned *)field = (unsigned)number;
        return 0;
    }
}

static int set_choice(const struct option_def *def, int *field, const char *value,
                      struct op *op)
{
    auto_buf struct buf wanted = BUF_INIT(256);

    for (int i = 0; def->choices[i]; i++) {
        if (strcmp(def->choices[i], value) == 0) {
            *field = i;
            return 0;
        }
        (void)buf_addf(&wanted, "%s%s", i ? ", " : "", def->choices[i]);
    }
    return bad_value(def->name, value, wanted.data ? wanted.data : "another value", op);
}

static int set_text(char **field, const char *value, struct op *op)
{
    char *copy = strdup(value);

    if (!copy)
        return op_fail(op, -ENOMEM, "out of memory");
    free(*field);
    *field = copy;
    return 0;
}

static int set_known(struct mount_options *o, const struct option_def *def, const char *value,
                     struct op *op)
{
    void *field = (char *)o + def->offset;

    if (!value && def->kind == OPTION_FLAG)
        value = "true";
    if (!value || !*value)
        return op_fail(op, -EINVAL, "option %s needs a value (%s)", def->name, def->help);
    switch (def->kind) {
    case OPTION_TEXT:
        return set_text(field, value, op);
    case OPTION_SIZE:
        if (parse_size(value, field))
            return bad_value(def->name, value, "a size such as 64M or 200GiB", op);
        return 0;
    case OPTION_TIME:
        if (parse_time(value, field))
            return bad_value(def->name, value, "a time such as 250ms, 5s or 1m", op);
        return 0;
    case OPTION_FLAG:
        if (parse_flag(value, field))
            return bad_value(def->name, value, "true or false", op);
        return 0;
    case OPTION_CHOICE:
        return set_choice(def, field, value, op);
    default:
        return set_number(def, field, value, op);
    }
}

static int add_kernel_flag(struct mount_options *o, const char *name, struct op *op)
{
    int err = buf_addf(&o->kernel, "%s%s", o->kernel.len ? "," : "", name);

    return err ? op_fail(op, err, "too many mount options") : 0;
}

/* mount(8) hands these on only where it knows SELinux; the kernel without it would not say
 * which option it refuses. */
static int add_selinux(struct mount_options *o, const char *name, const char *value,
                       struct op *op)
{
    auto_buf struct buf text = BUF_INIT(4096);
    int err = buf_addf(&text, "%s=\"", name);

    if (access("/sys/fs/selinux/enforce", F_OK) < 0)
        return op_fail(op, -EINVAL, "option %s: this kernel runs without SELinux; leave it out",
                       name);
    for (; *value && !err; value++)
        err = buf_addf(&text, *value == ',' || *value == '\\' ? "\\%c" : "%c", *value);
    if (!err)
        err = buf_addc(&text, '"');
    return err ? op_fail(op, err, "option %s is too long", name)
               : add_kernel_flag(o, text.data, op);
}

bool mount_options_is_words(const char *name)
{
    return mount_options_ignored(name) || strcmp(name, "remount") == 0 ||
           in_list(kernel_flags, ARRAY_SIZE(kernel_flags), name) ||
           in_list(selinux, ARRAY_SIZE(selinux), name);
}

bool mount_options_ignored(const char *name)
{
    return in_list(ignored, ARRAY_SIZE(ignored), name) || strncmp(name, "x-", 2) == 0 ||
           strncmp(name, "X-", 2) == 0;
}

static int field_takes(const struct policy_field *f, struct buf *text)
{
    int err = 0;

    switch (f->kind) {
    case POLICY_CHOICE:
    case POLICY_WORD:
        for (size_t i = 0; f->choices[i] && !err; i++)
            err = buf_addf(text, "%s%s", i ? ", " : "", f->choices[i]);
        return err;
    case POLICY_PATTERNS:
        return buf_adds(text, "patterns of names, joined by \":\"");
    case POLICY_TIME:
        return buf_adds(text, "a time");
    case POLICY_FLAG:
        return buf_adds(text, "true or false");
    default:
        return buf_addf(text, "a number from %lld", (long long)f->least);
    }
}

static int needs_value(const struct policy_field *f, struct op *op)
{
    auto_buf struct buf takes = BUF_INIT(256);
    int err = field_takes(f, &takes);

    return err ? op_fail(op, err, "out of memory")
               : op_fail(op, -EINVAL, "option %s needs a value (%s)", f->name, takes.data);
}

/* An empty value may be right: patterns that take no name. */
static int add_policy_field(struct mount_options *o, const struct policy_field *f,
                            const char *value, struct op *op)
{
    int err;

    if (!value && f->kind == POLICY_FLAG)
        value = "true";
    if (!value)
        return needs_value(f, op);
    err = policy_option_check(f->name, value, op);
    if (err)
        return err;
    err = settings_add(&o->policy, f->name, value);
    return err ? op_fail(op, err, "out of memory") : 0;
}

/* rw=false would say the opposite of what it is taken for. */
static int set_writable(struct mount_options *o, const char *value, struct op *op)
{
    bool writable = true;

    if (value && (parse_flag(value, &writable) || !writable))
        return bad_value("rw", value, "no value or true; read-only is ro", op);
    o->read_only = false;
    return 0;
}

int mount_options_set(struct mount_options *o, const char *name, const char *value,
                      struct op *op)
{
    const struct option_def *def = find_def(name);

    if (def) {
        int err = set_known(o, def, value, op);

        if (def->offset == offsetof(struct mount_options, acl))
            o->noacl = !o->acl;
        return err;
    }
    if (mount_options_is_stores(name)) {
        int err = settings_add(&o->store, name, value ? value : "true");

        return err ? op_fail(op, err, "out of memory") : 0;
    }
    if (mount_options_is_policy_field(name))
        return add_policy_field(o, policy_field_find(name), value, op);
    if (strcmp(name, "rw") == 0)
        return set_writable(o, value, op);
    if (!value && strcmp(name, "noacl") == 0) {
        o->acl = false;
        o->noacl = true;
        return 0;
    }
    if (!value && in_list(kernel_flags, ARRAY_SIZE(kernel_flags), name))
        return add_kernel_flag(o, name, op);
    if (value && in_list(selinux, ARRAY_SIZE(selinux), name))
        return add_selinux(o, name, value, op);
    return mount_options_ignored(name) ? 0 : unknown_option(name, op);
}

/* Takes the next item off a list, in place: unescapes "\,", takes the quotes off x="a,b" as
 * mount(8) writes it, and cuts at the comma. */
static char *next_item(char **list)
{
    char *item = *list, *to = item, *from = item;
    bool quoted = false;

    for (; *from && (quoted || *from != ','); from++) {
        if (*from == '"' && (quoted || (to > item && to[-1] == '='))) {
            quoted = !quoted;
            continue;
        }
        if (from[0] == '\\' && (from[1] == ',' || from[1] == '\\'))
            from++;
        *to++ = *from;
    }
    *list = *from ? from + 1 : from;
    *to = '\0';
    return item;
}

int mount_options_each(const char *list,
                       int (*visit)(void *arg, const char *name, const char *value), void *arg)
{
    auto_free char *copy = strdup(list);
    char *rest = copy;
    int r = 0;

    if (!copy)
        return -ENOMEM;
    while (*rest && r == 0) {
        char *item = next_item(&rest);
        char *equals = strchr(item, '=');

        if (equals)
            *equals = '\0';
        if (*item || equals)
            r = visit(arg, item, equals ? equals + 1 : NULL);
    }
    return r;
}

struct parse {
    struct mount_options *options;
    struct op *op;
};

static int parse_item(void *arg, const char *name, const char *value)
{
    const struct parse *p = arg;

    return mount_options_set(p->options, name, value, p->op);
}

int mount_options_parse(struct mount_options *o, const char *list, struct op *op)
{
    struct parse p = {.options = o, .op = op};
    int err = mount_options_each(list, parse_item, &p);

    return err && !*op->why ? op_fail(op, err, "out of memory") : err;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool mount_options_same(const struct mount_options *a, const struct mount_options *b,
                        const char *name)
{
    static const size_t sizes[] = {
        [OPTION_SIZE] = sizeof(uint64_t),  [OPTION_TIME] = sizeof(int64_t),
        [OPTION_COUNT] = sizeof(unsigned), [OPTION_ID] = sizeof(uint32_t),
        [OPTION_OCTAL] = sizeof(unsigned), [OPTION_FLAG] = sizeof(bool),
        [OPTION_CHOICE] = sizeof(int),
    };
    const struct option_def *def = find_def(name);

    if (strcmp(name, "noacl") == 0)
        return a->noacl == b->noacl;
    if (mount_options_is_policy_field(name))
        return policy_options_same(&a->policy, &b->policy, name);
    if (!def)
        return same_text(settings_get(&a->store, name), settings_get(&b->store, name));
    const char *of_a = (const char *)a + def->offset, *of_b = (const char *)b + def->offset;
    if (def->kind == OPTION_TEXT)
        return same_text(*(char *const *)(const void *)of_a,
                         *(char *const *)(const void *)of_b);
    return memcmp(of_a, of_b, sizes[def->kind]) == 0;
}

void mount_options_init(struct mount_options *o)
{
    *o = (struct mount_options){
        .entry_timeout_ns = -1,
        .mount_timeout_ns = 20 * NS_PER_SEC,
        .drain_timeout_ns = OP_FOREVER,
        .durability = DURABILITY_CACHE,
        .log_level = LOG_LEVEL_INFO,
        .umask = 022,
        .fmask = MASK_AS_UMASK,
        .dmask = MASK_AS_UMASK,
    };
    buf_init(&o->kernel, 256);
    cache_config_init(&o->cache);
    o->cache.uid = getuid();
    o->cache.gid = getgid();
}

unsigned mount_options_mask(const struct mount_options *o, bool directory)
{
    unsigned mask = directory ? o->dmask : o->fmask;

    return mask == MASK_AS_UMASK ? o->umask : mask;
}

bool mount_options_acl(const struct mount_options *o)
{
    return o->acl || (o->allow_other && !o->noacl);
}

void mount_options_release(struct mount_options *o)
{
    free(o->cache_dir);
    free(o->staging);
    free(o->config);
    free(o->layout);
    settings_release(&o->store);
    settings_release(&o->policy);
    buf_release(&o->kernel);
}

static void print_fields(void)
{
    (void)printf(
        "Fields of a policy, where there are neither routes nor a layout (man runfs):\n");
    for (size_t i = 0; i < policy_fields_n; i++) {
        auto_buf struct buf takes = BUF_INIT(256);
        const struct policy_field *f = &policy_fields[i];

        if (f->built && mount_options_is_policy_field(f->name))
            (void)printf("  %-16s %s\n", f->name, field_takes(f, &takes) ? "" : takes.data);
    }
    (void)printf("Not built yet, so that only what the policy data has is taken:\n ");
    for (size_t i = 0; i < policy_fields_n; i++)
        if (!policy_fields[i].built)
            (void)printf(" %s", policy_fields[i].name);
    (void)printf("\n");
}

void mount_options_help(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(defs); i++)
        (void)printf("  %-16s %s\n", defs[i].name, defs[i].help);
    print_fields();
    (void)printf("Options of the stores:\n ");
    for (const char *const *s = store_option_names(); *s; s++)
        (void)printf(" %s", *s);
    (void)printf("\n");
}

const char **mount_options_split_staging(char *staging)
{
    size_t n = 2, i = 0;
    const char **list;
    char *rest = staging, *word;

    for (const char *s = staging; *s; s++)
        n += *s == ':';
    list = calloc(n, sizeof(*list));
    if (!list)
        return NULL;
    while ((word = strsep(&rest, ":")))
        if (*word)
            list[i++] = word;
    return list;
}
