/* Memory that holds secrets: nothing of it is left where it is freed. */
#ifndef RUNFS_COMMON_SECRET_H
#define RUNFS_COMMON_SECRET_H

#include <stddef.h>

/* As realloc() and free(), for any memory of malloc(); what is given back is overwritten. */
void *secret_realloc(void *ptr, size_t size);
void secret_free(void *ptr);

#endif
