/* Configuration files: any bytes are read or refused with a reason, and an accepted file has
 * what its reader relies on. */
#include "cli/single_config.h"

#include <errno.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_settings(const struct settings *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (!s->items[i].name || !s->items[i].value || !settings_get(s, s->items[i].name))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct single_config config;
    struct op op;

    op_init(&op, OP_FOREVER);
    int r = single_config_parse((const char *)data, size, "fuzz", &op, &config);
    if (r < 0) {
        if (!op.why[0])
            abort();
        return 0;
    }
    if (r > 0)
        abort();
    check_settings(&config.store);
    check_settings(&config.options);
    single_config_release(&config);
    return 0;
}
