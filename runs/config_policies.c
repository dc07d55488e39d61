/* "policies" of a configuration: each is another one's copy with other fields. */
#include "common/mem.h"
#include "common/nearest.h"
#include "common/units.h"
#include "runs/config_impl.h"
#include "runs/policy_fields.h"

#include <stdlib.h>

#define NONE SIZE_MAX

/* The configuration's own policies, in the order of the file. */
struct own {
    const struct json_node *node;
    const char *preset; /* what it extends; NULL: `parent` */
    size_t parent;      /* index among the own ones */
    size_t depth;       /* own policies from this one to the last before the preset; 0: they
                           never reach one, or too late */
};

struct own_policies {
    struct own items[CONFIG_POLICIES_MAX];
    size_t n;
    size_t first; /* their index in config->policies */
};

/* ---- fields ---- */

/* A pattern is of one name: with a "/" it would match nothing. */
static int read_patterns(struct reading *r, const struct json_node *member, char **to)
{
    auto_free char *text = NULL;
    int err = config_scalar(r, member, "a policy", true, &text);

    if (err || !text)
        return err;
    if (strchr(text, '/'))
        return config_wrong(r, member->at,
                            "\"%s\" in a policy: a pattern is of one name, without \"/\"",
                            member->name);
    free(*to);
    *to = take_ptr(text);
    return 0;
}

/* The index of the word; -1: it is none of them, and that was reported. */
static int read_choice(struct reading *r, const struct json_node *member,
                       const struct policy_field *f, int *ret)
{
    auto_buf struct buf wanted = BUF_INIT(256);
    const char *text = json_string_value(member->value);

    for (*ret = 0; f->choices[*ret]; ++*ret) {
        if (text && strcmp(text, f->choices[*ret]) == 0)
            return 0;
        if (buf_addf(&wanted, "%s%s", *ret ? ", " : "", f->choices[*ret]))
            return -ENOMEM;
    }
    *ret = -1;
    return config_wrong(r, member->at, "\"%s\" in a policy must be one of %s", f->name,
                        wanted.data);
}

static int read_word(struct reading *r, const struct json_node *member,
                     const struct policy_field *f, char **to)
{
    char *word;
    int choice = -1, err = read_choice(r, member, f, &choice);

    if (err || choice < 0)
        return err;
    word = strdup(f->choices[choice]);
    if (!word)
        return -ENOMEM;
    free(*to);
    *to = word;
    return 0;
}

static int read_flag(struct reading *r, const struct json_node *member, int *to)
{
    bool flag = *to > 0;
    int err = config_flag(r, member, "a policy", &flag);

    *to = flag;
    return err;
}

static int read_time(struct reading *r, const struct json_node *member,
                     const struct policy_field *f, int64_t *to)
{
    auto_free char *text = NULL;
    int64_t ns;
    int err = config_scalar(r, member, "a policy", false, &text);

    if (err || !text)
        return err;
    if (parse_time(text, &ns))
        return config_wrong(r, member->at,
                            "\"%s\" in a policy must be a time such as 250ms, 5s or 1m",
                            f->name);
    if (ns < f->least)
        return config_wrong(r, member->at, "\"%s\" in a policy must be more than 0", f->name);
    *to = ns;
    return 0;
}

static int read_count(struct reading *r, const struct json_node *member,
                      const struct policy_field *f, int64_t *to)
{
    json_int_t n = json_integer_value(member->value);

    if (member->type != JSON_INTEGER || n < f->least)
        return config_wrong(r, member->at, "\"%s\" in a policy must be an integer from %lld",
                            f->name, (long long)f->least);
    *to = n;
    return 0;
}

static int read_value(struct reading *r, const struct json_node *member,
                      const struct policy_field *f, struct policy *to)
{
    int choice = -1, err;

    switch (f->kind) {
    case POLICY_CHOICE:
        err = read_choice(r, member, f, &choice);
        if (choice >= 0)
            *policy_choice(to, f) = choice;
        return err;
    case POLICY_FLAG:
        return read_flag(r, member, policy_choice(to, f));
    case POLICY_WORD:
        return read_word(r, member, f, policy_text(to, f));
    case POLICY_PATTERNS:
        return read_patterns(r, member, policy_text(to, f));
    case POLICY_TIME:
        return read_time(r, member, f, policy_number(to, f));
    default:
        return read_count(r, member, f, policy_number(to, f));
    }
}

static int unknown_field(struct reading *r, const struct json_node *member)
{
    auto_free const char **known = calloc(policy_fields_n + 2, sizeof(*known));

    if (!known)
        return -ENOMEM;
    known[0] = "extends";
    for (size_t i = 0; i < policy_fields_n; i++)
        known[i + 1] = policy_fields[i].name;
    return config_unknown(r, member, "a policy", known);
}

/* What is not built may say again what the policy has anyway, as an expanded configuration
 * does. */
int config_policy_field(struct reading *r, const struct json_node *member,
                        const struct policy *extended, struct policy *to)
{
    const struct policy_field *f = policy_field_find(member->name);
    const char *text = json_string_value(member->value);
    int err;

    if (strcmp(member->name, "extends") == 0)
        return 0;
    if (!f)
        return unknown_field(r, member);
    if (f->later && text && strcmp(text, f->later) == 0)
        return config_wrong(r, member->at, "\"%s\": \"%s\" of a policy is not built yet",
                            f->name, text);
    err = read_value(r, member, f, to);
    if (!err && !f->built && !policy_field_same(extended, to, f))
        return config_wrong(r, member->name_at, "\"%s\" of a policy is not built yet", f->name);
    return err;
}

static int read_fields(struct reading *r, const struct json_node *node,
                       const struct policy *extended, struct policy *to)
{
    bool object;
    int err = config_expect(r, node, JSON_OBJECT, "a policy", &object);

    for (size_t i = 0; object && !err && i < node->n; i++)
        if (config_member(&node->items[i]))
            err = config_policy_field(r, &node->items[i], extended, to);
    return err;
}

/* ---- presets that are said again ---- */

/* An expanded configuration says what its presets are, and that must be what they are. */
static int read_preset(struct reading *r, const struct json_node *node)
{
    const struct policy *preset = policy_preset(node->name);
    struct policy said;
    bool same = !json_node_get(node, "extends");
    int err = policy_copy(&said, preset->name, preset);

    if (err)
        return err;
    err = read_fields(r, node, preset, &said);
    for (size_t i = 0; i < policy_fields_n; i++)
        same = same &&
               (!policy_fields[i].built || policy_field_same(preset, &said, &policy_fields[i]));
    policy_release(&said);
    if (err || same)
        return err;
    return config_wrong(r, node->name_at,
                        "\"%s\" is a preset; give yours another name, with \"extends\": \"%s\"",
                        node->name, node->name);
}

/* ---- who extends whom ---- */

static size_t find_own(const struct own_policies *o, const char *name)
{
    for (size_t i = 0; i < o->n; i++)
        if (strcmp(o->items[i].node->name, name) == 0)
            return i;
    return NONE;
}

static int unknown_extended(struct reading *r, const struct own_policies *o,
                            const struct json_node *extends, const char *name)
{
    struct nearest n;

    nearest_init(&n, name);
    for (size_t i = 0; policy_preset_at(i); i++)
        nearest_try(&n, policy_preset_at(i)->name);
    for (size_t i = 0; i < o->n; i++)
        nearest_try(&n, o->items[i].node->name);
    if (n.best)
        return config_wrong(r, extends->at,
                            "there is no policy \"%s\" to extend, did you mean \"%s\"?", name,
                            n.best);
    return config_wrong(r, extends->at, "there is no policy \"%s\" to extend", name);
}

static int link_one(struct reading *r, struct own_policies *o, struct own *own)
{
    const struct json_node *extends = json_node_get(own->node, "extends");
    const struct policy *preset;
    const char *name;
    int err;

    own->preset = "data";
    if (!extends)
        return 0;
    err = config_text(r, extends, "a policy", &name);
    if (err || !name)
        return err;
    preset = policy_preset(name);
    own->parent = preset ? NONE : find_own(o, name);
    if (!preset && own->parent == NONE)
        return unknown_extended(r, o, extends, name);
    own->preset = preset ? preset->name : NULL;
    return 0;
}

/* NONE when the walk passes more policies than there are: it goes in a circle. */
static size_t depth_of(const struct own_policies *o, size_t i)
{
    size_t depth = 1;

    for (; !o->items[i].preset && depth <= o->n; depth++)
        i = o->items[i].parent;
    return depth > o->n ? NONE : depth;
}

/* Each circle is told once, of its first policy in the file. */
static int tell_circle(struct reading *r, const struct own_policies *o, size_t from)
{
    auto_buf struct buf names = BUF_INIT(CONFIG_TEXT_MAX);
    size_t i = from, passed = 0;

    do {
        if (buf_addf(&names, "%s > ", o->items[i].node->name))
            return -ENOMEM;
        i = o->items[i].parent;
    } while (i > from && ++passed < o->n);
    if (i != from)
        return 0;
    return config_wrong(r, json_node_get(o->items[from].node, "extends")->at,
                        "policies extend each other: %s%s", names.data,
                        o->items[from].node->name);
}

static int find_depth(struct reading *r, struct own_policies *o, size_t i)
{
    size_t depth = depth_of(o, i);

    o->items[i].depth = depth <= CONFIG_EXTENDS_MAX ? depth : 0;
    if (depth == NONE)
        return tell_circle(r, o, i);
    if (depth == CONFIG_EXTENDS_MAX + 1)
        return config_wrong(r, o->items[i].node->name_at,
                            "policy \"%s\" extends more than %d others", o->items[i].node->name,
                            CONFIG_EXTENDS_MAX - 1);
    return 0;
}

/* ---- all of them ---- */

/* What never reaches a preset was reported; its fields are still looked at. */
static int fill_in(struct reading *r, const struct own_policies *o, size_t i)
{
    struct policies *p = &r->config->policies;
    const struct own *own = &o->items[i];
    const struct policy *extended = own->preset  ? policy_preset(own->preset)
                                    : own->depth ? &p->items[o->first + own->parent]
                                                 : policy_preset("data");
    struct policy made;
    int err = policy_copy(&made, own->node->name, extended);

    if (err)
        return err;
    err = read_fields(r, own->node, extended, &made);
    policy_release(&p->items[o->first + i]);
    p->items[o->first + i] = made;
    return err;
}

/* Who is extended comes first. */
static int fill_in_all(struct reading *r, const struct own_policies *o)
{
    int err = 0;

    for (size_t depth = 0; depth <= CONFIG_EXTENDS_MAX; depth++)
        for (size_t i = 0; !err && i < o->n; i++)
            if (o->items[i].depth == depth)
                err = fill_in(r, o, i);
    return err;
}

static int add_own(struct reading *r, struct own_policies *o, const struct json_node *node)
{
    struct policies *p = &r->config->policies;
    bool ok;
    int err = config_name_ok(r, node, "policy", &ok);

    if (!ok)
        r->amiss |= AMISS_POLICIES;
    if (err || !ok)
        return err;
    if (policy_preset(node->name))
        return read_preset(r, node);
    if (o->n == CONFIG_POLICIES_MAX)
        return config_wrong(r, node->name_at, "more than %d policies", CONFIG_POLICIES_MAX);
    if (array_grow(p->items, p->cap, p->n + 1) ||
        policy_copy(&p->items[p->n], node->name, policy_preset("data")))
        return -ENOMEM;
    p->n++;
    o->items[o->n++] = (struct own){.node = node, .parent = NONE};
    return 0;
}

static int read_own(struct reading *r, struct own_policies *o, const struct json_node *policies)
{
    int err = 0;

    for (size_t i = 0; !err && i < policies->n; i++)
        if (config_member(&policies->items[i]))
            err = add_own(r, o, &policies->items[i]);
    for (size_t i = 0; !err && i < o->n; i++)
        err = link_one(r, o, &o->items[i]);
    for (size_t i = 0; !err && i < o->n; i++)
        err = find_depth(r, o, i);
    return err ? err : fill_in_all(r, o);
}

int config_read_policies(struct reading *r, const struct json_node *policies)
{
    auto_free struct own_policies *o = calloc(1, sizeof(*o));
    bool ok = false;
    int err = o ? policies_add_presets(&r->config->policies) : -ENOMEM;

    if (err || !policies)
        return err;
    o->first = r->config->policies.n;
    err = config_expect(r, policies, JSON_OBJECT, "\"policies\"", &ok);
    if (!ok)
        r->amiss |= AMISS_POLICIES;
    return err || !ok ? err : read_own(r, o, policies);
}

void config_drop_policies(struct config *c)
{
    struct policies *p = &c->policies;
    size_t kept = 0;

    for (size_t i = 0; i < p->n; i++) {
        bool used = strcmp(p->items[i].name, p->items[i].preset) != 0;

        for (size_t j = 0; j < c->routes.n && !used; j++)
            used = c->routes.items[j].policy == i;
        if (!used) {
            policy_release(&p->items[i]);
            continue;
        }
        for (size_t j = 0; j < c->routes.n; j++)
            if (c->routes.items[j].policy == i)
                c->routes.items[j].policy = (unsigned)kept;
        if (kept != i)
            p->items[kept] = p->items[i];
        kept++;
    }
    p->n = kept;
}
