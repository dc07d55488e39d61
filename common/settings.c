/* A list of names and texts. */
#include "common/settings.h"

#include "common/mem.h"

int settings_add(struct settings *s, const char *name, const char *value)
{
    struct setting *item;

    if (array_grow(s->items, s->cap, s->n + 1))
        return -ENOMEM;
    item = &s->items[s->n];
    item->name = strdup(name);
    item->value = strdup(value);
    if (!item->name || !item->value) {
        free(item->name);
        free(item->value);
        return -ENOMEM;
    }
    s->n++;
    return 0;
}

const char *settings_get(const struct settings *s, const char *name)
{
    for (size_t i = s->n; i-- > 0;)
        if (strcmp(s->items[i].name, name) == 0)
            return s->items[i].value;
    return NULL;
}

void settings_release(struct settings *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->items[i].name);
        free(s->items[i].value);
    }
    free(s->items);
    *s = (struct settings){0};
}
