/* file:///path and /path: a folder as a store.
 *
 * An object is an ordinary file; whoever looks sees whole files only, because new content is
 * staged elsewhere (stage.c), synced, and renamed into place. Attributes are the inode's
 * own. Versions are described at fill_etag() in attrs.c. Conditional changes are atomic
 * between all runfs processes by a lock file; "must be absent" also against anybody else. */
#include "backends/local/local.h"
#include "backends/drivers.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define PART_SIZE (UINT64_C(16) << 20)
#define PARTS_MAX (1u << 20)
#define FILE_MAX  INT64_MAX

struct local_store *local_of(struct store *s)
{
    return container_of(s, struct local_store, base);
}

static void local_close(struct store *s)
{
    struct local_store *l = local_of(s);

    if (l->own)
        local_state_apart_end(l->state_fd, l->own);
    if (l->root_fd >= 0)
        (void)close(l->root_fd);
    if (l->state_fd >= 0)
        (void)close(l->state_fd);
    mutex_destroy(&l->lock);
    free(l->own);
    free(l->root);
    free(l->boot_id);
    free(s->url);
    free(s->root_id);
    free(l);
}

static const struct store_ops local_ops = {
    .name = "file",
    .stat = local_stat,
    .list = local_list,
    .read = local_read,
    .put = local_put,
    .upload_begin = local_upload_begin,
    .upload_part = local_upload_part,
    .upload_commit = local_upload_commit,
    .upload_abort = local_upload_abort,
    .upload_detach = local_upload_detach,
    .upload_token = local_upload_token,
    .upload_resume = local_upload_resume,
    .upload_has = local_upload_has,
    .copy = local_copy,
    .rename = local_rename,
    .remove = local_remove,
    .mkdir = local_mkdir,
    .rmdir = local_rmdir,
    .set_attributes = local_set_attributes,
    .close = local_close,
};

const char *local_path_of(const char *url)
{
    if (strncmp(url, "file:///", 8) == 0)
        return url + 7;
    if (strncmp(url, "file:/", 6) == 0 && url[6] != '/')
        return url + 5;
    return url[0] == '/' ? url : NULL;
}

int local_no_path(const char *url, struct op *op)
{
    auto_free char *shown = store_url_redact(url);

    return op_fail(op, -EINVAL, "\"%.100s\": found no absolute path, expected file:///path",
                   shown ? shown : "");
}

int local_is_machine(struct op *op)
{
    return op_fail(op, -EINVAL, "\"/\" is the whole machine, expected a folder below it");
}

static char *read_boot_id(void)
{
    char text[64];
    auto_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return NULL;
    text[n] = '\0';
    return strndup(text, strcspn(text, " \n"));
}

/* An unmounted disk leaves another folder at its path, mostly an empty one. */
static char *describe_root(const struct local_store *l)
{
    struct statx stx;
    char *text = NULL;

    if (statx(l->root_fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &stx) < 0)
        return NULL;
    int64_t born_ns = stx.stx_mask & STATX_BTIME
                          ? stx.stx_btime.tv_sec * NS_PER_SEC + stx.stx_btime.tv_nsec
                          : 0;
    return asprintf(&text, "%" PRIu64 " %" PRId64, (uint64_t)stx.stx_ino, born_ns) < 0 ? NULL
                                                                                       : text;
}

static int open_root(struct local_store *l, const char *path, struct op *op)
{
    l->root_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->root_fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return op_fail(op, -ENXIO, "%s is not a folder that exists", path);
    if (l->root_fd < 0)
        return op_fail(op, -errno, "%s can't be opened: %s", path, strerror(errno));
    /* The real path: the state folder is a sibling of the folder, not of a symlink to it. */
    l->root = realpath(path, NULL);
    if (!l->root)
        return op_fail(op, -errno, "%s: %s", path, strerror(errno));
    if (strcmp(l->root, "/") == 0)
        return local_is_machine(op);
    int fd = local_openat(l, "", O_PATH | O_DIRECTORY);
    if (fd < 0)
        return op_fail(op, fd, "%s: openat2: %s (Linux 5.6 or later is needed)", path,
                       strerror(-fd));
    (void)close(fd);
    if (local_has_acls(l->root_fd))
        l->base.facts.caps |= STORE_ACLS;
    if (local_has_origins(l->root_fd))
        l->base.facts.caps |= STORE_ORIGIN;
    l->base.root_id = describe_root(l);
    return l->base.root_id ? 0 : op_fail(op, -EIO, "%s: statx: %s", path, strerror(errno));
}

static struct local_store *local_new(void)
{
    struct local_store *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;

    l->base = (struct store){
        .ops = &local_ops,
        .facts = {.caps = STORE_RENAME | STORE_IF_MATCH | STORE_PARTS | STORE_DIRS |
                          STORE_LIST_ATTRS | STORE_COPY | STORE_ATTRS | STORE_PROMPT,
                  /* One size, so that a part's place is known from its number. */
                  .part_size = PART_SIZE,
                  .part_min = PART_SIZE,
                  .part_max = PART_SIZE,
                  .parts_max = PARTS_MAX,
                  .put_max = FILE_MAX,
                  .size_max = FILE_MAX,
                  .key_max = STORE_KEY_MAX - 1},
    };
    l->root_fd = l->state_fd = -1;
    mutex_init(&l->lock);
    return l;
}

const char *const local_store_options[] = {"state_prefix", NULL};

/* Where objects of our own go is no matter of choice: who mounts the folder elsewhere has to
 * find them. */
static int choose_state(struct local_store *l, const struct store_config *config, struct op *op)
{
    const char *told = config ? store_config_get(config, "state_prefix") : NULL;

    if (told && strcasecmp(told, "off") != 0)
        return op_fail(op, -EINVAL,
                       "state_prefix: \"%.80s\": that of a folder is beside it; expected off",
                       told);
    l->stateless = told ? LOCAL_STATE_OFF : local_state_look(l);
    if (l->stateless == -ENOMEM)
        return op_fail(op, -ENOMEM, "no memory to open a store");
    if (!l->stateless)
        l->base.facts.caps |= STORE_STATE;
    return 0;
}

int local_store_new(const char *url, const struct store_config *config, struct op *op,
                    struct store **ret)
{
    const char *path = local_path_of(url);

    if (!path)
        return local_no_path(url, op);
    struct local_store *l = local_new();
    if (!l)
        return op_fail(op, -ENOMEM, "no memory to open a store");
    int r = open_root(l, path, op);
    if (!r) {
        l->boot_id = read_boot_id();
        if (!l->boot_id || asprintf(&l->base.url, "file://%s", l->root) < 0) {
            l->base.url = NULL;
            r = op_fail(op, -ENOMEM, "no memory, or no /proc");
        }
    }
    if (!r)
        r = choose_state(l, config, op);
    if (r < 0) {
        local_close(&l->base);
        return r;
    }
    *ret = &l->base;
    return 0;
}
