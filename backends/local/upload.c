/* Uploads in parts of a local store.
 *
 * A session is two files of the state folder: "up-X", into which parts are written at their
 * place (all parts but the last have one fixed size), and "up-X.log", which tells the key, the
 * boot in which the session began, and each part that was written. The token is "up-X". A
 * commit moves "up-X" to the key, an abort removes it; the log goes after it. Data of another
 * boot may have been lost with the page cache, so such a session counts as gone. */
#include "backends/local/local.h"
#include "common/buf.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CHUNK     (1 << 20)
#define TOKEN_LEN 35 /* "up-" and 32 hexadecimal digits */
#define LOG_MAX   (UINT64_C(64) << 20)

struct local_upload {
    struct upload base;
    char *key, *name; /* constant */
    int fd, log_fd;   /* constant */
    bool has_mtime;   /* constant */
    int64_t mtime_ns; /* constant */

    struct mutex lock; /* guards what follows */
    uint64_t *size;    /* of part number - 1, plus 1; 0 where there is none */
    unsigned n_parts;  /* highest number */
};

static void upload_free(struct local_upload *up)
{
    if (!up)
        return;
    if (up->fd >= 0)
        (void)close(up->fd);
    if (up->log_fd >= 0)
        (void)close(up->log_fd);
    mutex_destroy(&up->lock);
    free(up->key);
    free(up->name);
    free(up->size);
    free(up);
}

/* Takes `name`, also on failure. */
static struct local_upload *upload_new(struct store *s, const char *key, char *name)
{
    struct local_upload *up = calloc(1, sizeof(*up));
    if (!up) {
        free(name);
        return NULL;
    }
    up->base.store = s;
    up->fd = up->log_fd = -1;
    up->name = name;
    up->key = strdup(key);
    mutex_init(&up->lock);
    if (!up->key || !up->name) {
        upload_free(up);
        return NULL;
    }
    return up;
}

static int log_name(const struct local_upload *up, char name[TOKEN_LEN + 8])
{
    return snprintf(name, TOKEN_LEN + 8, "%s.log", up->name);
}

static void remove_files(const struct local_upload *up, int state_fd)
{
    char name[TOKEN_LEN + 8];

    log_name(up, name);
    (void)unlinkat(state_fd, up->name, 0);
    (void)unlinkat(state_fd, name, 0);
}

/* ---- the log ---- */

static int write_header(struct local_upload *up, const char *boot_id)
{
    auto_buf struct buf b = BUF_INIT(2 * STORE_KEY_MAX);

    int r = buf_addf(&b, "runfs-upload 1 %s %d %" PRId64 " %zu\n%s\n", boot_id, up->has_mtime,
                     up->mtime_ns, strlen(up->key), up->key);
    if (r < 0)
        return r;
    ssize_t n = write(up->log_fd, b.data, b.len);
    if (n < 0)
        return -errno;
    return (size_t)n == b.len ? 0 : -ENOSPC;
}

static int note_size_locked(struct local_upload *up, unsigned number, uint64_t size)
    REQUIRES(&up->lock)
{
    mutex_assert_held(&up->lock);
    if (number > up->n_parts) {
        uint64_t *grown = realloc(up->size, number * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        memset(grown + up->n_parts, 0, (number - up->n_parts) * sizeof(*grown));
        up->size = grown;
        up->n_parts = number;
    }
    up->size[number - 1] = size + 1;
    return 0;
}

/* Parses the header; returns what follows it, or NULL when it is not of this key. */
static const char *parse_header(struct local_upload *up, const char *text, char boot[64])
{
    int has_mtime, used = 0;
    size_t len;

    if (sscanf(text, "runfs-upload 1 %63s %d %" SCNd64 " %zu%n", boot, &has_mtime,
               &up->mtime_ns, &len, &used) != 4 ||
        text[used] != '\n')
        return NULL;
    text += used + 1;
    if (len != strlen(up->key) || strncmp(text, up->key, len) != 0 || text[len] != '\n')
        return NULL;
    up->has_mtime = has_mtime != 0;
    return text + len + 1;
}

/* A line that a crash cut off ends the log; its part is sent again. */
static int parse_parts(struct local_upload *up, const char *text)
{
    unsigned number;
    uint64_t size;
    int used, r = 0;

    mutex_lock(&up->lock);
    while (!r && sscanf(text, "%u %" SCNu64 "%n", &number, &size, &used) == 2 &&
           text[used] == '\n') {
        if (number < 1 || number > up->base.store->facts.parts_max ||
            size > up->base.store->facts.part_max)
            r = -EINVAL;
        else
            r = note_size_locked(up, number, size);
        text += used + 1;
    }
    mutex_unlock(&up->lock);
    return r;
}

static int read_log(struct local_upload *up, char boot[64])
{
    auto_buf struct buf b = BUF_INIT(LOG_MAX);
    char chunk[4096];
    ssize_t n;
    int r = 0;

    while (!r && (n = pread(up->log_fd, chunk, sizeof(chunk), (off_t)b.len)) > 0)
        r = buf_add(&b, chunk, (size_t)n);
    if (r < 0)
        return r;
    const char *parts = b.data ? parse_header(up, b.data, boot) : NULL;
    return parts ? parse_parts(up, parts) : -ENOENT;
}

/* ---- the calls ---- */

int local_write_source(int fd, struct op *op, struct source *src, uint64_t off)
{
    auto_free char *chunk = malloc(CHUNK);
    if (!chunk)
        return op_fail(op, -ENOMEM, "no memory");

    for (uint64_t done = 0; done < src->size;) {
        uint64_t want = src->size - done < CHUNK ? src->size - done : CHUNK;
        int r = op_check(op);
        if (r < 0)
            return r;
        ssize_t n = src->pread(src, chunk, want, done);
        if (n < 0)
            return op_fail(op, (int)n, "the source can't be read: %s", strerror((int)-n));
        if (n == 0)
            return op_fail(op, -EBUSY, "the source ends after %" PRIu64 " of %" PRIu64 " bytes",
                           done, src->size);
        for (ssize_t at = 0; at < n;) {
            ssize_t w = pwrite(fd, chunk + at, (size_t)(n - at), (off_t)(off + done) + at);
            if (w < 0)
                return op_fail(op, -errno, "write: %s", strerror(errno));
            at += w;
        }
        done += (uint64_t)n;
    }
    return 0;
}

/* Mode, owner, xattrs and origin wait in the staged inode; the time, which writing moves, in
 * the log.
 */
static int begin_files(struct local_upload *up, struct local_store *l, int state_fd,
                       const struct attrs *attrs)
{
    struct attrs without_time = attrs ? *attrs : (struct attrs){0};
    char name[TOKEN_LEN + 8];

    without_time.has &= ~(unsigned)ATTR_MTIME;
    int r = local_stage_make(state_fd, up->name, attrs, &up->fd);
    if (!r)
        r = local_apply_attrs(state_fd, up->name, &without_time, true);
    if (r < 0)
        return r;
    if (attrs && (attrs->has & ATTR_MTIME)) {
        up->has_mtime = true;
        up->mtime_ns = attrs->mtime_ns;
    }
    log_name(up, name);
    up->log_fd = openat(state_fd, name, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (up->log_fd < 0)
        return -errno;
    return write_header(up, l->boot_id);
}

int local_upload_begin(struct store *s, struct op *op, const char *key,
                       const struct attrs *attrs, struct upload **ret_up)
{
    struct local_store *l = local_of(s);
    int state_fd;

    int r = local_state(l, op, &state_fd);
    if (r < 0)
        return r;
    struct local_upload *up = upload_new(s, key, local_stage_name("up-"));
    if (!up)
        return op_fail(op, -ENOMEM, "no memory for an upload");
    r = begin_files(up, l, state_fd, attrs);
    if (r < 0) {
        remove_files(up, state_fd);
        upload_free(up);
        return local_stage_fail(l, op, "upload", key, r);
    }
    *ret_up = &up->base;
    return 0;
}

int local_upload_part(struct upload *base, struct op *op, unsigned number, struct source *src)
{
    struct local_upload *up = container_of(base, struct local_upload, base);
    char line[64];

    int r = local_write_source(up->fd, op, src, (number - 1) * base->store->facts.part_size);
    if (r < 0)
        return r;
    int len = snprintf(line, sizeof(line), "%u %" PRIu64 "\n", number, src->size);
    mutex_lock(&up->lock); /* over the write, too: one line of the log at a time */
    r = note_size_locked(up, number, src->size);
    if (!r && write(up->log_fd, line, (size_t)len) != len)
        r = -EIO;
    mutex_unlock(&up->lock);
    return r < 0 ? local_fail(local_of(base->store), op, "part", up->key, r) : 0;
}

static int total_size(struct local_upload *up, struct op *op, uint64_t *ret)
{
    uint64_t part_size = up->base.store->facts.part_size;
    int r = 0;

    mutex_lock(&up->lock);
    if (up->n_parts == 0)
        r = op_fail(op, -EINVAL, "no part was uploaded");
    for (unsigned i = 0; !r && i < up->n_parts; i++) {
        if (!up->size[i])
            r = op_fail(op, -EINVAL, "part %u of %u is missing", i + 1, up->n_parts);
        else if (i + 1 < up->n_parts && up->size[i] - 1 != part_size)
            r = op_fail(op, -EINVAL, "part %u has %" PRIu64 " bytes, not %" PRIu64, i + 1,
                        up->size[i] - 1, part_size);
    }
    if (!r)
        *ret = (up->n_parts - 1) * part_size + up->size[up->n_parts - 1] - 1;
    mutex_unlock(&up->lock);
    return r;
}

/* Only when needed: it moves mtime, and with it the version. */
static int cut_to(int fd, uint64_t size)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if ((uint64_t)st.st_size != size && ftruncate(fd, (off_t)size) < 0)
        return -errno;
    return 0;
}

/* Whether the key is the staged inode itself: an earlier commit published it, but could not be
 * sure of the disk. Then only that is done again. */
static int published_before(struct local_upload *up, struct object *obj)
{
    struct object staged, found;
    auto_close int parent = -1;

    int r = local_describe_fd(up->fd, &staged);
    if (!r)
        r = local_open_parent(local_of(up->base.store), up->key, false, &parent);
    if (r < 0)
        return r;
    r = local_describe(parent, local_name(up->key), &found);
    if (r < 0)
        return r;
    if (strcmp(found.etag, staged.etag) != 0) {
        object_release(&found);
        r = -ENOENT;
    }
    if (!r)
        r = local_sync_dir(parent);
    if (!r)
        *obj = found;
    return r;
}

static int publish(struct local_upload *up, struct op *op, int state_fd, const char *etag,
                   struct object *obj)
{
    const struct attrs time = {.has = up->has_mtime ? ATTR_MTIME : 0, .mtime_ns = up->mtime_ns};
    struct local_store *l = local_of(up->base.store);

    int r = local_apply_mtime(state_fd, up->name, &time);
    if (!r)
        local_renew_origin(state_fd, up->name);
    if (!r && fsync(up->fd) < 0)
        r = -errno;
    if (!r)
        r = local_describe(state_fd, up->name, obj);
    if (r == -ENOENT && published_before(up, obj) == 0)
        return 0;
    if (r < 0)
        return local_fail(l, op, "commit", up->key, r);
    r = local_publish(l, op, up->name, up->key, etag);
    if (r < 0)
        object_release(obj);
    return r;
}

int local_upload_commit(struct upload *base, struct op *op, const char *etag,
                        struct object *ret_obj)
{
    struct local_upload *up = container_of(base, struct local_upload, base);
    struct local_store *l = local_of(base->store);
    uint64_t size = 0;
    int state_fd;
    struct object obj;

    int r = local_state(l, op, &state_fd);
    if (!r)
        r = total_size(up, op, &size);
    if (r < 0)
        return r;
    r = cut_to(up->fd, size);
    if (r < 0)
        return local_fail(l, op, "commit", up->key, r);
    r = publish(up, op, state_fd, etag, &obj);
    if (r < 0)
        return r;
    if (ret_obj)
        *ret_obj = obj;
    else
        object_release(&obj);
    remove_files(up, state_fd);
    upload_free(up);
    return 0;
}

int local_upload_abort(struct upload *base, struct op *op)
{
    struct local_upload *up = container_of(base, struct local_upload, base);
    int state_fd;

    int r = local_state(local_of(base->store), op, &state_fd);
    if (!r)
        remove_files(up, state_fd);
    upload_free(up);
    return r;
}

void local_upload_detach(struct upload *base)
{
    upload_free(container_of(base, struct local_upload, base));
}

char *local_upload_token(struct upload *base)
{
    return strdup(container_of(base, struct local_upload, base)->name);
}

/* Tokens come from a file that may be damaged: only names that local_stage_name() makes. */
static bool token_ok(const char *token)
{
    return strlen(token) == TOKEN_LEN && strncmp(token, "up-", 3) == 0 &&
           strspn(token + 3, "0123456789abcdef") == TOKEN_LEN - 3;
}

/* What is left of a session that is over goes with it: a process was killed between the removal
 * of its two files, or the machine was started anew. */
static int is_over(const struct local_upload *up, int state_fd)
{
    remove_files(up, state_fd);
    return -ENOENT;
}

static int open_session(struct local_upload *up, const char *boot_id, int state_fd)
{
    char name[TOKEN_LEN + 8], boot[64];

    log_name(up, name);
    up->fd = openat(state_fd, up->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (up->fd < 0)
        return errno == ENOENT ? is_over(up, state_fd) : -errno;
    up->log_fd = openat(state_fd, name, O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    if (up->log_fd < 0)
        return errno == ENOENT ? is_over(up, state_fd) : -errno;
    int r = read_log(up, boot);
    return r == 0 && strcmp(boot, boot_id) != 0 ? is_over(up, state_fd) : r;
}

/* Nobody else has this session yet: its parts are read without its lock. */
static int visit_parts(struct local_upload *up,
                       int (*visit)(void *arg, const struct part *part), void *arg)
{
    int r = 0;

    for (unsigned i = 0; !r && i < up->n_parts; i++) {
        struct part part = {.number = i + 1, .size = up->size[i] - 1};
        if (up->size[i])
            r = visit(arg, &part);
    }
    return r;
}

int local_upload_resume(struct store *s, struct op *op, const char *key, const char *token,
                        int (*visit)(void *arg, const struct part *part), void *arg,
                        struct upload **ret_up)
{
    struct local_store *l = local_of(s);
    int state_fd;

    if (!token_ok(token))
        return op_fail(op, -ENOENT, "resume %s/%s: no such session", l->root, key);
    int r = local_state(l, op, &state_fd);
    if (r < 0)
        return r;
    struct local_upload *up = upload_new(s, key, strdup(token));
    if (!up)
        return op_fail(op, -ENOMEM, "no memory for an upload");
    r = open_session(up, l->boot_id, state_fd);
    if (!r && visit)
        r = visit_parts(up, visit, arg);
    if (r) {
        upload_free(up);
        return r < 0 ? local_fail(l, op, "resume", key, r) : r;
    }
    *ret_up = &up->base;
    return 0;
}

/* The staged file's bytes [off, off+size) against the source's. */
static int same_bytes(int fd, struct op *op, struct source *src, uint64_t off)
{
    auto_free char *ours = malloc(CHUNK), *theirs = malloc(CHUNK);

    if (!ours || !theirs)
        return op_fail(op, -ENOMEM, "no memory");
    for (uint64_t done = 0; done < src->size;) {
        size_t want = src->size - done < CHUNK ? (size_t)(src->size - done) : CHUNK;
        int r = op_check(op);
        if (r < 0)
            return r;
        ssize_t n = src->pread(src, ours, want, done);
        if (n < 0)
            return op_fail(op, (int)n, "the source can't be read: %s", strerror((int)-n));
        if (n == 0 || pread(fd, theirs, (size_t)n, (off_t)(off + done)) != n ||
            memcmp(ours, theirs, (size_t)n) != 0)
            return 0;
        done += (uint64_t)n;
    }
    return 1;
}

int local_upload_has(struct upload *base, struct op *op, unsigned number, struct source *src)
{
    struct local_upload *up = container_of(base, struct local_upload, base);

    mutex_lock(&up->lock);
    bool sized = number >= 1 && number <= up->n_parts && up->size[number - 1] == src->size + 1;
    mutex_unlock(&up->lock);
    return sized ? same_bytes(up->fd, op, src, (number - 1) * base->store->facts.part_size) : 0;
}
