/* A setenv() that allocates nothing, for `runfs` built with AddressSanitizer, and for nothing
 * else.
 *
 * libfuse calls setenv("_FUSE_COMMFD") in the child that becomes fusermount3, between fork()
 * and exec(). glibc's allocator may be used there; the sanitizer's may not: when another thread
 * had one of its locks as the process forked, the child waits for it for ever, and so does the
 * mount.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLES_MAX 4096

static char *variables[VARIABLES_MAX + 1];
static char texts[4096]; /* of all variables that were set; never given back */
static size_t used;

/* How many others there are, VARIABLES_MAX when they are too many. */
static size_t copy_without(const char *name)
{
    size_t len = strlen(name), n = 0;

    for (char **v = environ; v && *v && n < VARIABLES_MAX; v++)
        if (strncmp(*v, name, len) != 0 || (*v)[len] != '=')
            variables[n++] = *v;
    return n;
}

static int no_room(void)
{
    errno = ENOMEM;
    return -1;
}

/* By one thread at a time, as setenv() is called. */
int setenv(const char *name, const char *value, int replace)
{
    char *text = texts + used;
    size_t room = sizeof(texts) - used;

    if (!replace && getenv(name))
        return 0;
    int n = snprintf(text, room, "%s=%s", name, value);
    if (n < 0 || (size_t)n >= room)
        return no_room();
    size_t at = copy_without(name);
    if (at == VARIABLES_MAX)
        return no_room();
    used += (size_t)n + 1;
    variables[at] = text;
    variables[at + 1] = NULL;
    environ = variables;
    return 0;
}
