/* Configurations in tests as lines of text. */
#include "tests/lib/config_lines.h"

#include "common/buf.h"
#include "common/mem.h"

#include <check.h>
#include <stdio.h>

#define LINES_MAX (1024 * 1024)

void config_lines_refused(const char *text, const char *origin, const char *lines)
{
    auto_buf struct buf found = BUF_INIT(LINES_MAX), why = BUF_INIT(LINES_MAX);
    struct config_problems problems = {0};
    struct config config;
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_msg(config_parse(text, strlen(text), origin, &op, &problems, &config) == -EINVAL,
                  "not refused: %s", text);
    for (size_t i = 0; i < problems.n; i++)
        ck_assert_int_eq(buf_addf(&found, "%u:%u: %s\n", problems.items[i].at.line,
                                  problems.items[i].at.column, problems.items[i].text),
                         0);
    ck_assert_msg(found.data && strcmp(found.data, lines) == 0,
                  "%s\nis refused for\n%snot for\n%s", text, found.data, lines);
    ck_assert_int_eq(buf_addf(&why, "%s:%s", origin, lines), 0);
    ck_assert_msg(strncmp(op.why, why.data, strlen(op.why)) == 0, "%s", op.why);
    ck_assert_ptr_null(strstr(op.why, "hush"));
    config_problems_release(&problems);
}

char *config_lines_stores(const struct config *c)
{
    auto_buf struct buf lines = BUF_INIT(LINES_MAX);

    for (size_t i = 0; i < c->n_stores; i++) {
        const struct config_store *s = &c->stores[i];

        ck_assert_int_eq(buf_addf(&lines, "%s %s", s->name, s->url), 0);
        for (size_t j = 0; j < s->settings.n; j++)
            ck_assert_int_eq(buf_addf(&lines, " %s=%s", s->settings.items[j].name,
                                      s->settings.items[j].value),
                             0);
        ck_assert_int_eq(buf_addc(&lines, '\n'), 0);
    }
    return buf_take(&lines);
}

char *config_lines_routes(const struct config *c)
{
    auto_buf struct buf lines = BUF_INIT(LINES_MAX);

    for (size_t i = 0; i < c->routes.n; i++) {
        const struct route *r = &c->routes.items[i];

        ck_assert_uint_lt(r->store, c->n_stores);
        ck_assert_uint_lt(r->policy, c->policies.n);
        ck_assert_int_eq(r->scratch, c->policies.items[r->policy].upload == UPLOAD_NEVER);
        ck_assert_int_eq(buf_addf(&lines, "%s %s %s %s\n", r->path.text,
                                  c->stores[r->store].name, r->key.text,
                                  c->policies.items[r->policy].name),
                         0);
    }
    return buf_take(&lines);
}

void config_lines_expanded(const struct config *c)
{
    auto_free char *stores = config_lines_stores(c), *routes = config_lines_routes(c);
    auto_free char *text = config_expand(c, true);
    auto_free char *again_stores = NULL, *again_routes = NULL, *again_text = NULL;
    struct config again;
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_ptr_nonnull(text);
    ck_assert_msg(config_parse(text, strlen(text), "expanded", &op, NULL, &again) == 0,
                  "%s\n%s", op.why, text);
    again_stores = config_lines_stores(&again);
    again_routes = config_lines_routes(&again);
    again_text = config_expand(&again, true);
    ck_assert_str_eq(again_stores, stores);
    ck_assert_str_eq(again_routes, routes);
    ck_assert_str_eq(again_text, text);
    for (size_t i = 0; i < c->routes.n; i++) /* no field of the text */
        ck_assert_int_eq(again.policies.items[again.routes.items[i].policy].urgent,
                         c->policies.items[c->routes.items[i].policy].urgent);
    config_release(&again);
}

void config_lines_legal(const char *text, const char *origin, const char *stores,
                        const char *routes)
{
    auto_free char *found_stores = NULL, *found_routes = NULL;
    struct config config;
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_msg(config_parse(text, strlen(text), origin, &op, NULL, &config) == 0, "%s\n%s",
                  op.why, text);
    found_stores = config_lines_stores(&config);
    found_routes = config_lines_routes(&config);
    ck_assert_str_eq(found_stores, stores);
    ck_assert_str_eq(found_routes, routes);
    config_lines_expanded(&config);
    config_release(&config);
}
