/* Fields of a policy that stand among the options of a mount. They are texts there, and each is
 * read as the member of a policy in a configuration that says the same. */
#include "runs/policy_options.h"

#include "common/mem.h"
#include "runs/config_impl.h"
#include "runs/policy_fields.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

/* A configuration writes counts as numbers. */
static json_t *count_json(const char *text)
{
    char *end;

    errno = 0;
    long long number = strtoll(text, &end, 10);
    return errno || *end || isspace((unsigned char)*text) || !*text ? json_string(text)
                                                                    : json_integer(number);
}

static int fail(const char *name, const char *value, const char *why, struct op *op)
{
    return op_fail(op, -EINVAL, "option %.60s=%.60s: %s", name, value, why);
}

static int read_member(const struct json_node *member, const char *value, struct policy *to,
                       struct op *op)
{
    struct config_problems problems = {0};
    struct reading r = {.origin = "", .op = op, .problems = &problems};
    int err = config_policy_field(&r, member, policy_preset("data"), to);

    if (err)
        err = op_fail(op, err, "out of memory");
    else if (problems.n)
        err = fail(member->name, value, problems.items[0].text, op);
    config_problems_release(&problems);
    return err;
}

/* `to` began as a copy of `data`. */
static int read_option(const char *name, const char *value, struct policy *to, struct op *op)
{
    auto_free char *own_name = strdup(name);
    const struct policy_field *f = policy_field_find(name);
    json_t *json = f->kind == POLICY_COUNT ? count_json(value) : json_string(value);
    struct json_node member = {
        .type = json ? json_typeof(json) : JSON_NULL, .name = own_name, .value = json};
    int err;

    /* The cache keeps it as JSON. */
    if (!json)
        err = fail(name, value, "it must be UTF-8", op);
    else
        err = own_name ? read_member(&member, value, to, op)
                       : op_fail(op, -ENOMEM, "out of memory");
    json_decref(json);
    return err;
}

static int read_options(const struct settings *settings, struct policy *ret, struct op *op)
{
    int err = policy_copy(ret, POLICY_OF_OPTIONS, policy_preset("data"));

    if (err)
        return op_fail(op, err, "out of memory");
    for (size_t i = 0; i < settings->n && !err; i++)
        err = read_option(settings->items[i].name, settings->items[i].value, ret, op);
    if (err)
        policy_release(ret);
    return err;
}

int policy_option_check(const char *name, const char *value, struct op *op)
{
    struct policy trial;
    int err = policy_copy(&trial, POLICY_OF_OPTIONS, policy_preset("data"));

    if (err)
        return op_fail(op, err, "out of memory");
    err = read_option(name, value, &trial, op);
    policy_release(&trial);
    return err;
}

bool policy_options_same(const struct settings *a, const struct settings *b, const char *name)
{
    struct policy of_a, of_b;
    struct op op;
    bool same;

    op_init(&op, OP_FOREVER);
    if (read_options(a, &of_a, &op))
        return false;
    if (read_options(b, &of_b, &op)) {
        policy_release(&of_a);
        return false;
    }
    same = policy_field_same(&of_a, &of_b, policy_field_find(name));
    policy_release(&of_a);
    policy_release(&of_b);
    return same;
}

static bool is_as_data(const struct policy *p)
{
    for (size_t i = 0; i < policy_fields_n; i++)
        if (!policy_field_same(p, policy_preset("data"), &policy_fields[i]))
            return false;
    return true;
}

int config_policy_options(struct config *config, const struct settings *settings, struct op *op)
{
    struct policies *p = &config->policies;
    struct route *route = config->routes.items;
    struct policy made;
    int err = read_options(settings, &made, op);

    if (err)
        return err;
    if (is_as_data(&made)) {
        policy_release(&made);
        return 0;
    }
    if (array_grow(p->items, p->cap, p->n + 1)) {
        policy_release(&made);
        return op_fail(op, -ENOMEM, "out of memory");
    }
    route->policy = (unsigned)p->n;
    route->scratch = made.upload == UPLOAD_NEVER;
    p->items[p->n++] = made;
    config_drop_policies(config);
    return 0;
}
