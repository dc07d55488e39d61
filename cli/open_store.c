/* Settings to store options. */
#include "cli/open_store.h"

#include "common/mem.h"

#include <errno.h>

int open_store(const char *url, const struct settings *settings,
               const struct mount_options *options, struct op *op, struct store **ret)
{
    auto_free struct store_option *list = calloc(settings->n + 1, sizeof(*list));
    struct store_config config = {.options = list, .connections = options->connections};

    if (!list)
        return op_fail(op, -ENOMEM, "out of memory");
    for (size_t i = 0; i < settings->n; i++) {
        const struct setting *s = &settings->items[i];

        if (settings_get(settings, s->name) == s->value)
            list[config.n_options++] =
                (struct store_option){.name = s->name, .value = s->value};
    }
    op->deadline_ns = clock_mono_ns() + options->mount_timeout_ns;
    return store_open(url, &config, op, ret);
}
