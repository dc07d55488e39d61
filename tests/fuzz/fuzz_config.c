/* Configuration files: any bytes are read or refused with a reason, and an accepted file has
 * what its reader relies on. */
#include "runs/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_stores(const struct config *c)
{
    for (size_t i = 0; i < c->n_stores; i++) {
        const struct settings *s = &c->stores[i].settings;

        if (!c->stores[i].name || !c->stores[i].url)
            abort();
        for (size_t j = 0; j < s->n; j++)
            if (!s->items[j].name || !s->items[j].value || !settings_get(s, s->items[j].name))
                abort();
    }
    for (size_t i = 0; i < c->n_options; i++)
        if (!c->options[i].name || !c->options[i].value)
            abort();
}

static void check_routes(const struct config *c)
{
    for (size_t i = 0; i < c->routes.n; i++) {
        const struct route *r = &c->routes.items[i];

        if (r->policy >= c->policies.n || (!r->scratch && r->store >= c->n_stores))
            abort();
    }
}

/* What a cache directory keeps is read as the same. */
static void check_expanded(const struct config *c)
{
    char *text = config_expand(c, true), *again;
    struct config read;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (!text || config_parse(text, strlen(text), "expanded", &op, NULL, &read))
        abort();
    again = config_expand(&read, true);
    if (!again || strcmp(text, again) != 0)
        abort();
    config_release(&read);
    free(text);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config config;
    struct op op;

    op_init(&op, OP_FOREVER);
    int r = config_parse((const char *)data, size, "fuzz", &op, NULL, &config);
    if (r < 0) {
        if (!op.why[0])
            abort();
        return 0;
    }
    if (r > 0)
        abort();
    check_stores(&config);
    check_routes(&config);
    if (config.n_stores)
        check_expanded(&config);
    config_release(&config);
    return 0;
}
