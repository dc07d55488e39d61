#include "common/secret.h"

#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

void secret_free(void *ptr)
{
    if (ptr)
        explicit_bzero(ptr, malloc_usable_size(ptr));
    free(ptr);
}

void *secret_realloc(void *ptr, size_t size)
{
    size_t before = ptr ? malloc_usable_size(ptr) : 0;
    void *more = malloc(size);

    if (!more)
        return NULL;
    if (ptr)
        memcpy(more, ptr, before < size ? before : size);
    secret_free(ptr);
    return more;
}

/* Keys come as JSON, and jansson copies what it reads. All of it, since its allocator is one
 * for the whole process; before any thread uses it. */
static __attribute__((constructor)) void json_forgets(void)
{
    json_set_alloc_funcs(malloc, secret_free);
}
