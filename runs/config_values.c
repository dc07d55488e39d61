/* Single values of a configuration: texts, flags, names, and what is said of others. */
#include "common/mem.h"
#include "common/nearest.h"
#include "common/units.h"
#include "runs/config_impl.h"

#include <strings.h>

#define NAME_BYTES_MAX 255

bool config_member(const struct json_node *node)
{
    return !node->again;
}

const char *config_meant(const struct json_node *member, const char *const *known)
{
    struct nearest n;

    nearest_init(&n, member->name);
    for (; *known; known++)
        nearest_try(&n, *known);
    return n.best;
}

int config_unknown(struct reading *r, const struct json_node *member, const char *where,
                   const char *const *known)
{
    auto_buf struct buf names = BUF_INIT(CONFIG_TEXT_MAX);
    const char *meant = config_meant(member, known);

    if (meant)
        return config_wrong(r, member->name_at, "unknown \"%s\" in %s, did you mean \"%s\"?",
                            member->name, where, meant);
    for (size_t i = 0; known[i]; i++)
        if (buf_addf(&names, "%s%s", i ? ", " : "", known[i]))
            return -ENOMEM;
    return config_wrong(r, member->name_at, "unknown \"%s\" in %s; known are %s", member->name,
                        where, names.data ? names.data : "none");
}

/* -EINVAL: it is none. */
static int scalar_text(const struct json_node *node, struct buf *text)
{
    switch (node->type) {
    case JSON_STRING:
        return buf_adds(text, json_string_value(node->value));
    case JSON_INTEGER:
        return buf_addf(text, "%lld", (long long)json_integer_value(node->value));
    case JSON_TRUE:
        return buf_adds(text, "true");
    case JSON_FALSE:
        return buf_adds(text, "false");
    default:
        return -EINVAL;
    }
}

static int list_text(const struct json_node *list, struct buf *text)
{
    int err = 0;

    for (size_t i = 0; !err && i < list->n; i++) {
        const char *item = json_string_value(list->items[i].value);

        if (!item || !*item || strchr(item, ':'))
            return -EINVAL;
        err = buf_addf(text, "%s%s", i ? ":" : "", item);
    }
    return err;
}

int config_scalar(struct reading *r, const struct json_node *member, const char *where,
                  bool lists, char **ret)
{
    auto_buf struct buf text = BUF_INIT(CONFIG_TEXT_MAX);
    int err = lists && member->type == JSON_ARRAY ? list_text(member, &text)
                                                  : scalar_text(member, &text);

    *ret = NULL;
    if (err == -EINVAL)
        return config_wrong(
            r, member->at, "\"%s\" in %s must be a text, an integer%s", member->name, where,
            lists ? ", a boolean or a list of texts without \":\"" : " or a boolean");
    if (err == -EFBIG)
        return config_wrong(r, member->at, "\"%s\" in %s is too long", member->name, where);
    if (err)
        return err;
    *ret = buf_take(&text);
    return *ret ? 0 : -ENOMEM;
}

int config_text(struct reading *r, const struct json_node *member, const char *where,
                const char **ret)
{
    *ret = json_string_value(member->value);
    if (*ret && **ret)
        return 0;
    *ret = NULL;
    return config_wrong(r, member->at, "\"%s\" in %s must be a text that is not empty",
                        member->name, where);
}

int config_expect(struct reading *r, const struct json_node *node, json_type type,
                  const char *what, bool *ret)
{
    *ret = node->type == type;
    if (*ret)
        return 0;
    return config_wrong(r, node->at, "%s must be %s", what,
                        type == JSON_OBJECT ? "an object, {...}" : "a list, [...]");
}

int config_name_ok(struct reading *r, const struct json_node *member, const char *what,
                   bool *ret)
{
    size_t len = strlen(member->name);

    *ret = len > 0 && len <= NAME_BYTES_MAX && !strchr(member->name, '/');
    for (const char *c = member->name; *c && *ret; c++)
        *ret = (unsigned char)*c >= 0x20 && *c != 0x7f;
    if (*ret)
        return 0;
    return config_wrong(r, member->name_at,
                        "the name of a %s is 1 to 255 bytes without \"/\" and without control "
                        "characters",
                        what);
}

int config_flag(struct reading *r, const struct json_node *member, const char *where, bool *ret)
{
    auto_free char *text = NULL;
    int err = config_scalar(r, member, where, false, &text);

    if (err || !text || !parse_flag(text, ret))
        return err;
    return config_wrong(r, member->at, "\"%s\" in %s must be true or false", member->name,
                        where);
}

static bool ends_in(const char *name, const char *end)
{
    size_t len = strlen(name), n = strlen(end);

    return len >= n && strcasecmp(name + len - n, end) == 0;
}

static bool has_word(const char *name, const char *word)
{
    for (; *name; name++)
        if (strncasecmp(name, word, strlen(word)) == 0)
            return true;
    return false;
}

bool config_name_secret(const char *name)
{
    static const char *const words[] = {"secret",     "passw",       "token",
                                        "credential", "access_key",  "account_key",
                                        "api_key",    "private_key", "signature"};
    static const char *const whole[] = {"key", "sig", "pass", "pwd", "sas"};
    /* Where a secret is, not what it is. */
    static const char *const places[] = {"_file", "_path", "_dir", "_env", "_command", "_id"};

    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        if (ends_in(name, places[i]))
            return false;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (has_word(name, words[i]))
            return true;
    for (size_t i = 0; i < ARRAY_SIZE(whole); i++)
        if (strcasecmp(name, whole[i]) == 0)
            return true;
    return false;
}
