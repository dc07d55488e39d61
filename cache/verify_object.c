/* One object of a verification: asked for, read back where that is needed, and compared.
 *
 * What counts is the store's own checksum beside the one that is known here, or of the content
 * that is here. Where one of the two is missing the object is read from the store, past the
 * cache. What differs is looked at once more, since it may have changed here meanwhile. */
#include "cache/verify.h"

#include "common/err.h"
#include "common/lock.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES       4                    /* how often what moves is looked at */
#define RANGE_BYTES (UINT64_C(32) << 20) /* in one request; a small object in one */
#define CHUNK_BYTES ((size_t)1 << 20)

/* ---- requests ---- */

/* One request of those that the caller waits for. */
static void begin(const struct check *k, struct op *op)
{
    op_init(op, k->v->cache->config.store_timeout_ns);
    op->cancelled = k->v->op->cancelled;
    if (op->deadline_ns > k->v->op->deadline_ns)
        op->deadline_ns = k->v->op->deadline_ns;
}

/* Sums up what is read, in order. A retried read delivers bytes again. */
struct sum_sink {
    struct sink base;
    struct verifying *v;
    struct checksum begun, sum; /* before `start`, and now */
    uint64_t start, next;       /* offsets of the request, and behind what was summed */
};

static int add(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct sum_sink *s = container_of(sink, struct sum_sink, base);

    if (off == s->start) {
        s->sum = s->begun;
        s->next = off;
    }
    if (off > s->next)
        return -EIO;
    size_t again = (size_t)(s->next - off);
    if (again >= len)
        return 0;
    checksum_add(&s->sum, (const char *)data + again, len - again);
    s->next = off + len;
    (void)atomic_fetch_add(&s->v->bytes, len - again);
    return atomic_load(&s->v->over) ? -EINTR : 0;
}

/* The sum of what the store has, of `sum`'s kind. -ESTALE: it is another version by now. */
static int read_back(struct check *k, const struct object *obj, struct checksum *sum,
                     struct op *op)
{
    struct sum_sink s = {.base.write = add, .v = k->v, .sum = {.kind = sum->kind}};
    uint64_t off = 0;

    while (off < obj->size) {
        uint64_t left = obj->size - off;
        size_t len = (size_t)(left < RANGE_BYTES ? left : RANGE_BYTES);
        s.begun = s.sum;
        s.start = s.next = off;
        begin(k, op);
        ssize_t n = store_read(k->v->cache->store, op, k->belief.at.key,
                               *obj->etag ? obj->etag : NULL, &s.base, len, off, NULL);
        if (n < 0)
            return (int)n;
        if ((size_t)n != len || s.next != off + len)
            return op_fail(op, -ESTALE, "it became shorter");
        off += len;
    }
    *sum = s.sum;
    return 0;
}

/* ---- what is here ---- */

static int sum_fd(struct check *k, int fd, struct checksum *sum)
{
    auto_free char *chunk = malloc(CHUNK_BYTES);
    uint64_t size = k->belief.size;

    if (!chunk)
        return -ENOMEM;
    for (uint64_t off = 0; off < size;) {
        size_t want = size - off < CHUNK_BYTES ? (size_t)(size - off) : CHUNK_BYTES;
        ssize_t n = pread(fd, chunk, want, (off_t)off);
        if (n <= 0)
            return n < 0 ? -errno : -ESTALE;
        if (atomic_load(&k->v->over))
            return -EINTR;
        checksum_add(sum, chunk, (size_t)n);
        off += (uint64_t)n;
    }
    return 0;
}

/* The sum of the content that is here, of `kind`; none where not all of it is, or it can't be
 * read. */
static void sum_here(struct check *k, enum checksum_kind kind, struct checksum *ret)
{
    struct cache *c = k->v->cache;
    struct checksum sum = {.kind = kind};

    *ret = (struct checksum){0};
    if (!k->belief.local)
        return;
    int fd = file_get_fd(c, k->node, FD_READ);
    if (fd < 0)
        return;
    int r = sum_fd(k, fd, &sum);
    cache_lock(c);
    file_put_fd_locked(c, k->node->file, FD_READ);
    cache_unlock(c);
    if (r == 0)
        *ret = sum;
}

/* ---- in words ---- */

static void describe(char text[VERIFY_TEXT], uint64_t size, const struct checksum *sum)
{
    char value[CHECKSUM_TEXT];

    checksum_print(sum, value);
    (void)snprintf(text, VERIFY_TEXT, "%" PRIu64 " bytes%s%s", size, *value ? ", " : "", value);
}

static enum cache_verdict judged(struct check *k, enum cache_verdict verdict, const char *why)
{
    (void)snprintf(k->why, sizeof(k->why), "%s", why);
    return verdict;
}

/* The store was asked and did not answer it; -ESTALE: it changes there just now. */
static enum cache_verdict unread(struct check *k, int r, const struct op *op)
{
    k->result.err = r;
    return judged(k, CACHE_UNREADABLE, *op->why ? op->why : strerror(-r));
}

/* ---- comparing ---- */

static bool is_other_version(const struct check *k, const struct object *obj)
{
    return k->belief.etag && strcmp(k->belief.etag, obj->etag) != 0;
}

static enum cache_verdict differs(struct check *k, const struct object *obj)
{
    return judged(k, CACHE_DIFFERS,
                  is_other_version(k, obj)
                      ? "another version is there than this mount knows: somebody else put it"
                      : "the version is the one that this mount knows, its content is not");
}

static enum cache_verdict compare_sums(struct check *k, const struct object *obj,
                                       const struct checksum *expected,
                                       const struct checksum *found)
{
    if (checksum_same(expected, found))
        return CACHE_VERIFIED;
    describe(k->expected, k->belief.size, expected);
    describe(k->found, obj->size, found);
    return differs(k, obj);
}

/* The store's checksum beside one of the same kind from here; false: there is none. */
static bool compare_told(struct check *k, const struct object *obj, enum cache_verdict *ret)
{
    struct checksum here = k->belief.sum;

    if (obj->checksum.kind == CHECKSUM_NONE)
        return false;
    if (here.kind != obj->checksum.kind)
        sum_here(k, obj->checksum.kind, &here);
    if (here.kind != obj->checksum.kind)
        return false;
    *ret = compare_sums(k, obj, &here, &obj->checksum);
    return true;
}

/* What the object is compared with when it is read: what is known here, else what the store
 * keeps of this very version. */
static bool expected_sum(struct check *k, const struct object *obj, struct checksum *ret)
{
    *ret = k->belief.sum;
    if (ret->kind == CHECKSUM_NONE)
        sum_here(k, CHECKSUM_CRC32C, ret);
    if (ret->kind == CHECKSUM_NONE && !is_other_version(k, obj))
        *ret = obj->checksum;
    return ret->kind != CHECKSUM_NONE;
}

static enum cache_verdict compare_read(struct check *k, const struct object *obj, int *ret_err,
                                       struct op *op)
{
    struct checksum expected, found;

    if (!expected_sum(k, obj, &expected)) {
        if (is_other_version(k, obj)) {
            (void)snprintf(k->expected, VERIFY_TEXT, "version %.100s", k->belief.etag);
            (void)snprintf(k->found, VERIFY_TEXT, "version %.100s", obj->etag);
            return differs(k, obj);
        }
        return judged(k, CACHE_NOT_COMPARED,
                      "the store keeps no checksum, and here neither the content nor its "
                      "checksum is known");
    }
    found = (struct checksum){.kind = expected.kind};
    *ret_err = read_back(k, obj, &found, op);
    if (*ret_err < 0)
        return unread(k, *ret_err, op);
    k->result.read_back = true;
    return compare_sums(k, obj, &expected, &found);
}

static const char *type_name(uint32_t type)
{
    return !type || S_ISREG(type) ? "a file"
           : S_ISLNK(type)        ? "a symlink"
           : S_ISDIR(type)        ? "a directory"
                                  : "a special file";
}

/* What is no file has no content: its kind counts, and where a symlink leads. A listing tells
 * neither of what has no bytes: then it is what the version is. */
static enum cache_verdict compare_special(struct check *k, const struct object *obj)
{
    const struct attrs *a = &obj->attrs;
    const char *target = (a->has & ATTR_TARGET) && a->target ? a->target : "";

    if (!k->belief.type && !is_other_version(k, obj) && obj->size == k->belief.size)
        return CACHE_VERIFIED;
    if (!obj->attrs_known || !(a->has & ATTR_MODE) || (S_ISLNK(a->mode) && !k->belief.target))
        return judged(k, CACHE_NOT_COMPARED, "what it is, or where it leads, is not known");
    if ((a->mode & S_IFMT) == k->belief.type &&
        (!S_ISLNK(a->mode) || strcmp(target, k->belief.target) == 0))
        return CACHE_VERIFIED;
    (void)snprintf(k->expected, VERIFY_TEXT, "%s%s%.100s", type_name(k->belief.type),
                   k->belief.target ? " to " : "", k->belief.target ? k->belief.target : "");
    (void)snprintf(k->found, VERIFY_TEXT, "%s%s%.100s", type_name(a->mode),
                   *target ? " to " : "", target);
    return differs(k, obj);
}

static bool is_special(const struct check *k, const struct object *obj)
{
    return (k->belief.type && !S_ISREG(k->belief.type)) ||
           (obj->attrs_known && (obj->attrs.has & ATTR_MODE) && !S_ISREG(obj->attrs.mode));
}

static enum cache_verdict compare(struct check *k, const struct object *obj, int *ret_err,
                                  struct op *op)
{
    enum cache_verdict verdict;

    if (obj->is_prefix) {
        (void)snprintf(k->expected, VERIFY_TEXT, "%s", type_name(k->belief.type));
        (void)snprintf(k->found, VERIFY_TEXT, "a directory");
        return differs(k, obj);
    }
    if (is_special(k, obj))
        return compare_special(k, obj);
    if (obj->size != k->belief.size) {
        describe(k->expected, k->belief.size, &k->belief.sum);
        describe(k->found, obj->size, &obj->checksum);
        return differs(k, obj);
    }
    if (obj->size == 0 || compare_told(k, obj, &verdict))
        return obj->size == 0 ? CACHE_VERIFIED : verdict;
    return compare_read(k, obj, ret_err, op);
}

/* *ret_err: why the store told nothing; -ESTALE: it is to be asked again. */
static enum cache_verdict ask(struct check *k, char etag[STORE_ETAG_MAX], int *ret_err)
{
    struct object obj = {0};
    struct op op;

    k->result.read_back = false;
    *etag = *k->expected = *k->found = *k->why = '\0';
    begin(k, &op);
    int r = store_stat(k->v->cache->store, &op, k->belief.at.key, &obj);
    *ret_err = r == -ENOENT ? 0 : r;
    if (r == -ENOENT) {
        describe(k->expected, k->belief.size, &k->belief.sum);
        (void)snprintf(k->found, VERIFY_TEXT, "nothing");
        return judged(k, CACHE_MISSING, "the store has no object there");
    }
    if (r < 0)
        return unread(k, r, &op);
    memcpy(etag, obj.etag, STORE_ETAG_MAX);
    enum cache_verdict verdict = compare(k, &obj, ret_err, &op);
    object_release(&obj);
    return verdict;
}

/* ---- what comes of it ---- */

/* The names of the version that was compared say so. */
static void note_locked(struct check *k, enum cache_verdict verdict, const char *etag)
    REQUIRES(cache_mutex)
{
    struct entry *e = NULL;
    struct node *n = tree_find(k->v->cache, k->path, &e);

    if (!n || !e)
        return;
    if (verdict == CACHE_VERIFIED && etag_is(&e->etag, etag))
        entry_compared_locked(e, true);
    else if (verdict == CACHE_DIFFERS || verdict == CACHE_MISSING)
        entry_compared_locked(e, false);
}

/* Nobody else is asked either: the network, the caller's time, or the caller itself is gone. */
static bool ends_all(const struct check *k, int err)
{
    struct op probe = *k->v->op;

    return err == -EINTR || err == -ENXIO || err_is_network(err) || op_check(&probe) < 0;
}

static void end_all_locked(struct check *k, int err) REQUIRES(cache_mutex)
{
    struct verifying *v = k->v;

    if (!v->err) {
        v->err = err;
        (void)snprintf(v->why, sizeof(v->why), "%s", k->why);
    }
    atomic_store(&v->over, true);
}

/* Whether it is to be looked at once more, as it moved here, or there. */
static bool settle_locked(struct check *k, enum cache_verdict verdict, const char *etag,
                          int err) REQUIRES(cache_mutex)
{
    k->result.verdict = verdict;
    if (err < 0 && err != -ESTALE && err != -ENOENT && ends_all(k, err)) {
        end_all_locked(k, err);
        return false;
    }
    k->looked = true;
    bool moved = check_moved_on_locked(k) || err == -ESTALE || err == -ENOENT;
    if (!moved) {
        note_locked(k, verdict, etag);
        return false;
    }
    int r = check_believe_locked(k);
    k->result.verdict = r == -EBUSY ? CACHE_NOT_STORED : CACHE_CHANGES;
    *k->expected = *k->found = '\0';
    if (r != -EBUSY)
        (void)snprintf(k->why, sizeof(k->why), "%s",
                       r == -ENOENT ? "it was removed or renamed meanwhile"
                                    : "it changes while it is looked at");
    return r == 0;
}

void check_run(struct check *k)
{
    struct cache *c = k->v->cache;
    char etag[STORE_ETAG_MAX];
    bool again = true;

    for (int i = 0; i < TRIES && again && !atomic_load(&k->v->over); i++) {
        int err = 0;
        enum cache_verdict verdict = ask(k, etag, &err);
        cache_lock(c);
        again = settle_locked(k, verdict, etag, err);
        cache_unlock(c);
    }
    if (!k->result.read_back && k->result.verdict == CACHE_VERIFIED)
        (void)atomic_fetch_add(&k->v->bytes, k->belief.size);
}
