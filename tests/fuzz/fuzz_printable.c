/* Text on its way to a terminal: whatever it is, what comes out holds no control character of
 * any kind and is shown as it is when it is shown again. */
#include "common/mem.h"
#include "common/printable.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* All of `text`, heap. */
static char *shown(const char *text)
{
    char *to = malloc(strlen(text) * PRINTABLE_MAX + 1), *end = to;
    size_t len;

    must(to != NULL);
    while ((len = printable_next(end, &text)) > 0)
        end += len;
    *end = '\0';
    return to;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = strndup((const char *)data, size);
    auto_free char *once = text ? shown(text) : NULL;

    if (!once)
        return 0;
    for (const unsigned char *p = (const unsigned char *)once; *p; p++)
        must(*p >= 0x20 && *p != 0x7f && !(p[0] == 0xc2 && p[1] < 0xa0));
    auto_free char *twice = shown(once);
    must(strcmp(once, twice) == 0);
    json_t *utf8 = json_string(once); /* jansson's own judgement */
    must(utf8 != NULL);
    json_decref(utf8);
    return 0;
}
