/* Configuration files: any bytes are read, or refused with reasons that have places in order.
 * What is read expands to a text that is read as the same, and expands to itself. */
#include "runs/config.h"

#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_problems(const struct config_problems *p, size_t size, const struct op *op)
{
    must(p->n > 0 && p->n <= CONFIG_PROBLEMS_MAX && op->why[0]);
    must(p->more == 0 || p->n == CONFIG_PROBLEMS_MAX);
    for (size_t i = 0; i < p->n; i++) {
        const struct text_place at = p->items[i].at;

        must(p->items[i].text[0] && !strchr(p->items[i].text, '\n'));
        must(at.line >= 1 && at.line <= size + 1 && at.column >= 1 && at.column <= size + 1);
        if (i > 0)
            must(at.line > p->items[i - 1].at.line || (at.line == p->items[i - 1].at.line &&
                                                       at.column >= p->items[i - 1].at.column));
    }
}

static void check_config(const struct config *c)
{
    for (size_t i = 0; i < c->n_stores; i++)
        must(c->stores[i].name[0] && c->stores[i].url && c->stores[i].url[0]);
    for (size_t i = 0; i < c->routes.n; i++) {
        const struct route *r = &c->routes.items[i];

        must(r->store < c->n_stores && r->policy < c->policies.n);
        must(r->scratch == (c->policies.items[r->policy].upload == UPLOAD_NEVER));
        must(routes_covering(&c->routes, i) == SIZE_MAX);
    }
    must(c->n_stores == 0 || c->routes.n > 0);
}

/* All stores are in one place, as badly as can be. */
static void check_roots(const struct config *c)
{
    auto_free struct config_root *roots = calloc(c->n_stores + 1, sizeof(*roots));
    static char server[] = "x", root[] = "a/b", state[] = "a/b.runfs";
    struct op op;

    op_init(&op, OP_FOREVER);
    for (size_t i = 0; i < c->n_stores; i++)
        roots[i] = (struct config_root){server, root, state};
    int r = config_check_roots(c, roots, &op, NULL);
    must(r == 0 || (r == -EINVAL && op.why[0]));
}

static void check_expanded(const struct config *c)
{
    auto_free char *text = config_expand(c, true), *again_text = NULL;
    struct config again;
    struct op op;

    op_init(&op, OP_FOREVER);
    must(text && config_parse(text, strlen(text), "expanded", &op, NULL, &again) == 0);
    must(again.n_stores == c->n_stores && again.routes.n == c->routes.n);
    again_text = config_expand(&again, true);
    must(again_text && strcmp(again_text, text) == 0);
    config_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config_problems problems = {0};
    struct config config;
    struct op op;

    /* It would read any file; fuzz_tracker has its own. */
    if (memmem(data, size, "torchx_config", 13))
        return 0;
    op_init(&op, OP_FOREVER);
    int r = config_parse((const char *)data, size, "fuzz", &op, &problems, &config);
    must(r == 0 || r == -EINVAL);
    if (r < 0) {
        check_problems(&problems, size, &op);
    } else {
        must(problems.n == 0);
        check_config(&config);
        check_roots(&config);
        check_expanded(&config);
        config_release(&config);
    }
    config_problems_release(&problems);
    return 0;
}
