/* A TorchX tracker's configuration file: any bytes are a store, or are refused with reasons
 * that have no secret in them. */
#include "runs/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* A file without a disk. */
static int file_with(const uint8_t *data, size_t size)
{
    int fd = memfd_create("tracker", MFD_CLOEXEC);

    must(fd >= 0);
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, data + done, size - done);

        must(n > 0);
        done += (size_t)n;
    }
    return fd;
}

static void check_store(const struct config *c)
{
    must(c->n_stores == 1 && strstr(c->stores[0].url, "://"));
    for (size_t i = 0; i < c->stores[0].settings.n; i++)
        must(c->stores[0].settings.items[i].value[0]);
}

static void check_problems(const struct config_problems *p)
{
    must(p->n > 0);
    for (size_t i = 0; i < p->n; i++)
        must(strncmp(p->items[i].text, "/proc/self/fd/", 14) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config_problems problems = {0};
    struct config config;
    struct op op;
    char text[128];
    int fd = file_with(data, size);

    (void)snprintf(text, sizeof(text),
                   "{\"stores\": {\"t\": {\"torchx_config\": \"/proc/self/fd/%d\"}}}", fd);
    op_init(&op, OP_FOREVER);
    int r = config_parse(text, strlen(text), "fuzz", &op, &problems, &config);
    must(r == 0 || r == -EINVAL);
    if (r < 0) {
        check_problems(&problems);
    } else {
        check_store(&config);
        config_release(&config);
    }
    config_problems_release(&problems);
    (void)close(fd);
    return 0;
}
