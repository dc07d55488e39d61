/* Memory: variables that free themselves, arrays that grow, containers of a member. Any thread.
 */
#ifndef RUNFS_COMMON_MEM_H
#define RUNFS_COMMON_MEM_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The struct of which `ptr` points to `member`. */
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define SWAP(a, b)                                                                             \
    do {                                                                                       \
        __typeof__(a) swap_value_ = (a);                                                       \
        (a) = (b);                                                                             \
        (b) = swap_value_;                                                                     \
    } while (0)

/* Use as the value of an expression and leave NULL behind: hands a self-freeing pointer on. */
#define take_ptr(p)                                                                            \
    ({                                                                                         \
        __typeof__(p) take_ptr_value_ = (p);                                                   \
        (p) = NULL;                                                                            \
        take_ptr_value_;                                                                       \
    })

/* The same for a descriptor; leaves -1 behind. */
#define take_fd(fd)                                                                            \
    ({                                                                                         \
        int take_fd_value_ = (fd);                                                             \
        (fd) = -1;                                                                             \
        take_fd_value_;                                                                        \
    })

static inline void mem_free_cleanup(void *p)
{
    free(*(void **)p);
}

static inline void mem_close_cleanup(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

/* Room for at least `n` elements in the array `v`, which has room for `cap` (a size_t): it
 * doubles. 0; or -ENOMEM, and the array is as it was. */
#define array_grow(v, cap, n) mem_grow(&(v), &(cap), (n), sizeof(*(v)))

#define ARRAY_LEAST 4

static inline int mem_grow(void *array, size_t *cap, size_t n, size_t element)
{
    size_t more = *cap ? *cap : ARRAY_LEAST, bytes;
    void *v;

    if (n <= *cap)
        return 0;
    while (more < n)
        more = more <= SIZE_MAX / 2 ? more * 2 : n;
    if (__builtin_mul_overflow(more, element, &bytes))
        return -ENOMEM;
    memcpy(&v, array, sizeof(v));
    v = realloc(v, bytes);
    if (!v)
        return -ENOMEM;
    memcpy(array, &v, sizeof(v));
    *cap = more;
    return 0;
}

/* `auto_free char *s = ...`: freed at the end of the block unless taken with take_ptr(). */
#define auto_free __attribute__((cleanup(mem_free_cleanup)))
/* `auto_close int fd = ...`: closed at the end of the block unless taken with take_fd(). */
#define auto_close __attribute__((cleanup(mem_close_cleanup)))

#endif
