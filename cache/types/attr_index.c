/* Reading and writing the text of an attribute index; see attr_index.h. */
#include "cache/types/attr_index.h"

#include "cache/types/acl.h"
#include "cache/types/xattr_set.h"
#include "common/crc32c.h"
#include "common/mem.h"
#include "common/path.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAGIC "runfs-attrs 2 "
/* The first version could say of files that they have no attributes, when it did not know. */
#define MAGIC_1      "runfs-attrs 1 "
#define TREE_MAGIC   "runfs-trees 2 "
#define TREE_MAGIC_1 "runfs-trees 1 " /* says nothing of markers */
/* "runfs-attrs 2 0123abcd\n" */
#define HEAD_LEN   (sizeof(MAGIC) - 1 + 8 + 1)
#define WORDS      12
#define XATTRS_MAX 4096 /* what a stamp takes */

static int key_of(const char *kind, const char *text, char ret[INDEX_KEY_MAX])
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    if (!EVP_Digest(text, strlen(text), hash, &len, EVP_sha256(), NULL))
        return -ENOMEM;
    size_t n = (size_t)snprintf(ret, INDEX_KEY_MAX, STORE_STATE_DIR "/%s/", kind);
    for (unsigned i = 0; i < len; i++, n += 2)
        (void)snprintf(ret + n, 3, "%02x", hash[i]);
    return 0;
}

int index_key(struct place dir, char ret[INDEX_KEY_MAX])
{
    return key_of("attrs", dir.key, ret);
}

int index_part_key(const char *start, char ret[INDEX_KEY_MAX])
{
    return key_of("tree", start, ret);
}

/* ---- the table ---- */

static void entry_free(struct index_entry *e)
{
    attrs_release(&e->attrs);
    free(e);
}

static void index_remove(struct index *x, struct index_entry *e)
{
    HASH_DEL(x->entries, e);
    entry_free(e);
}

void index_move(struct index *from, struct index_entry *e, struct index *to)
{
    HASH_DEL(from->entries, e);
    HASH_ADD_KEYPTR(hh, to->entries, e->name, strlen(e->name), e);
    if (TABLE_LACKS(hh, e)) /* an index may lack what it knew: that is asked for */
        entry_free(e);
}

void index_release(struct index *x)
{
    struct index_entry *e, *next;

    HASH_ITER(hh, x->entries, e, next)
    {
        index_remove(x, e);
    }
}

struct index_entry *index_find(const struct index *x, const char *name)
{
    struct index_entry *e;

    HASH_FIND_STR(x->entries, name, e);
    return e;
}

/* Whether a file of this size can have the attributes: an object with content is no symlink or
 * device. */
static bool attrs_fit(const struct attrs *a, uint64_t size)
{
    uint32_t type = a->mode & S_IFMT;
    bool link = (a->has & ATTR_MODE) && type == S_IFLNK;

    if (a->has & ~(unsigned)INDEX_ATTRS)
        return false;
    if ((a->has & ATTR_MODE) && (a->mode & ~(uint32_t)(S_IFMT | 07777)))
        return false;
    if ((a->has & ATTR_MODE) && (type == S_IFDIR || (type && type != S_IFREG && size > 0)))
        return false;
    if (link != ((a->has & ATTR_TARGET) != 0) || (link && (!a->target || !*a->target)))
        return false;
    if (a->target && strlen(a->target) >= PATH_MAX)
        return false;
    return !(a->has & ATTR_XATTRS) || (a->xattrs && strlen(a->xattrs) <= XATTRS_MAX);
}

/* Whether a directory can have the attributes. */
static bool marker_attrs_fit(const struct attrs *a)
{
    uint32_t type = a->mode & S_IFMT;

    if (a->has & ~(unsigned)INDEX_MARKER_ATTRS)
        return false;
    if ((a->has & ATTR_MODE) &&
        ((a->mode & ~(uint32_t)(S_IFMT | 07777)) || (type && type != S_IFDIR)))
        return false;
    return !(a->has & ATTR_XATTRS) || (a->xattrs && strlen(a->xattrs) <= XATTRS_MAX);
}

static int is_strange(void *arg, const char *name)
{
    (void)arg;
    return strncmp(name, "user.", 5) != 0 && !acl_is_name(name);
}

/* The index may have a writer who may not write the object. Only the object itself tells of
 * what would lead elsewhere, or give rights that no open() asks for: links, devices, set-id
 * bits. (Modes, owners and ACLs: attrs_confirm_locked().) */
static bool may_be_said(const struct attrs *a)
{
    uint32_t type = a->has & ATTR_MODE ? a->mode & S_IFMT : 0;

    if ((a->has & ATTR_MODE) && (a->mode & (S_ISUID | S_ISGID)))
        return false;
    if (type && type != S_IFREG && type != S_IFDIR)
        return false;
    return !(a->has & ATTR_XATTRS) || xattr_set_each(a->xattrs, is_strange, NULL) == 0;
}

int index_add(struct index *x, const char *name, const struct object *obj,
              const struct attrs *attrs)
{
    return index_add_in(x, "", name, obj, attrs);
}

int index_add_in(struct index *x, const char *dir, const char *name, const struct object *obj,
                 const struct attrs *attrs)
{
    size_t at = strlen(dir), len = strlen(name);
    bool fits = at && !len ? marker_attrs_fit(attrs)
                           : path_name_ok(name, len) && attrs_fit(attrs, obj->size);

    if (HASH_COUNT(x->entries) >= INDEX_ENTRIES_MAX || at + 1 + len >= PATH_KEY_MAX || !fits)
        return -E2BIG;
    if (!may_be_said(attrs))
        return -EPERM;
    struct index_entry *e = calloc(1, sizeof(*e) + at + 1 + len + 1);
    if (!e)
        return -ENOMEM;
    memcpy(e->name, dir, at);
    if (at)
        e->name[at++] = '/';
    memcpy(e->name + at, name, len + 1);
    len += at;
    int r = index_find(x, e->name) ? -EEXIST : attrs_copy(&e->attrs, attrs);
    if (r < 0) {
        free(e);
        return r;
    }
    memcpy(e->etag, obj->etag, sizeof(e->etag));
    e->size = obj->size;
    e->modified_ns = obj->mtime_ns;
    HASH_ADD_KEYPTR(hh, x->entries, e->name, len, e);
    if (TABLE_LACKS(hh, e)) {
        entry_free(e);
        return -ENOMEM;
    }
    return 0;
}

bool index_entry_fits(const struct index_entry *e, const struct object *obj)
{
    size_t len = strlen(e->name);
    bool marker = len && e->name[len - 1] == '/';

    return obj->is_prefix == marker && e->size == obj->size &&
           e->modified_ns == obj->mtime_ns && *e->etag && strcmp(e->etag, obj->etag) == 0;
}

static bool texts_equal(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

bool index_attrs_equal(const struct attrs *a, const struct attrs *b)
{
    unsigned has = a->has;

    return has == b->has && (!(has & ATTR_MODE) || a->mode == b->mode) &&
           (!(has & ATTR_OWNER) || (a->uid == b->uid && a->gid == b->gid)) &&
           (!(has & ATTR_MTIME) || a->mtime_ns == b->mtime_ns) &&
           (!(has & ATTR_RDEV) || a->rdev == b->rdev) &&
           (!(has & ATTR_TARGET) || texts_equal(a->target, b->target)) &&
           (!(has & ATTR_XATTRS) || texts_equal(a->xattrs, b->xattrs));
}

/* ---- writing ---- */

static int add_word(struct buf *b, const char *text)
{
    int r = buf_addc(b, '=');

    for (; *text && r == 0; text++) {
        unsigned char c = (unsigned char)*text;
        r = c <= ' ' || c == '%' || c == 0x7f ? buf_addf(b, "%%%02x", c) : buf_addc(b, *text);
    }
    return r;
}

static int add_text(struct buf *b, bool has, const char *text)
{
    int r = add_word(b, has && text ? text : "");

    return r == 0 ? buf_addc(b, ' ') : r;
}

static int add_entry(struct buf *b, const struct index_entry *e)
{
    const struct attrs *a = &e->attrs;
    int r = buf_addf(b, "%" PRId64 " %" PRIu64 " ", e->modified_ns, e->size);

    if (r == 0)
        r = add_text(b, true, e->etag);
    if (r == 0)
        r = buf_addf(b, "%x %" PRIo32 " %" PRIu32 " %" PRIu32 " %" PRId64 " %" PRIx64 " ",
                     a->has, a->has & ATTR_MODE ? a->mode : 0, a->has & ATTR_OWNER ? a->uid : 0,
                     a->has & ATTR_OWNER ? a->gid : 0, a->has & ATTR_MTIME ? a->mtime_ns : 0,
                     a->has & ATTR_RDEV ? a->rdev : 0);
    if (r == 0)
        r = add_text(b, a->has & ATTR_TARGET, a->target);
    if (r == 0)
        r = add_text(b, a->has & ATTR_XATTRS, a->xattrs);
    if (r == 0)
        r = add_word(b, path_basename(e->name));
    return r == 0 ? buf_addc(b, '\n') : r;
}

static int add_line(struct buf *b, const char *text)
{
    int r = add_word(b, text);

    return r == 0 ? buf_addc(b, '\n') : r;
}

static int begin_text(struct buf *out, const char *magic, const char *whose)
{
    int r = buf_addf(out, "%s00000000\n", magic);

    return r == 0 ? add_line(out, whose) : r;
}

/* Ends the text that begin_text() began at `start`: puts its sum there. */
static void end_text(struct buf *out, size_t start)
{
    const char *body = out->data + start + HEAD_LEN;
    char sum[9];

    (void)snprintf(sum, sizeof(sum), "%08" PRIx32,
                   crc32c(0, body, out->len - start - HEAD_LEN));
    memcpy(out->data + start + sizeof(MAGIC) - 1, sum, 8);
}

int index_format(const struct index *x, const char *dir, struct buf *out)
{
    struct index_entry *e, *next;
    size_t start = out->len;
    int r = begin_text(out, MAGIC, dir);

    HASH_ITER(hh, x->entries, e, next)
    {
        if (r == 0)
            r = add_entry(out, e);
    }
    if (r == 0)
        end_text(out, start);
    return r;
}

/* ---- reading ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "=text" in place; NULL for what add_word() does not write. */
static char *decode_word(char *word)
{
    char *to = word, *from = word + 1;

    if (*word != '=')
        return NULL;
    for (; *from; from++) {
        int high, low;
        if ((unsigned char)*from <= ' ')
            return NULL;
        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        high = hex_digit(from[1]);
        low = high < 0 ? -1 : hex_digit(from[2]);
        if (low < 0 || (high == 0 && low == 0))
            return NULL;
        *to++ = (char)(high * 16 + low);
        from += 2;
    }
    *to = '\0';
    return word;
}

static bool parse_unsigned(const char *text, int base, uint64_t max, uint64_t *ret)
{
    char *end;

    if (!isxdigit((unsigned char)*text))
        return false;
    errno = 0;
    *ret = strtoull(text, &end, base);
    return !errno && !*end && *ret <= max;
}

static bool parse_signed(const char *text, int64_t *ret)
{
    char *end;

    if (!isdigit((unsigned char)text[*text == '-']))
        return false;
    errno = 0;
    *ret = strtoll(text, &end, 10);
    return !errno && !*end;
}

/* "modified size =etag has mode uid gid mtime rdev =target =xattrs =name" */
static int parse_entry(char *line, const char *dir, bool first_version, struct index *x)
{
    struct object obj = {0};
    struct attrs a = {0};
    uint64_t has, mode, uid, gid;
    char *word[WORDS];
    size_t n = 0;

    for (; n < WORDS && line; n++)
        word[n] = strsep(&line, " ");
    if (n < WORDS || line || !parse_signed(word[0], &obj.mtime_ns) ||
        !parse_unsigned(word[1], 10, INT64_MAX, &obj.size) ||
        !parse_unsigned(word[3], 16, INDEX_ATTRS, &has) ||
        !parse_unsigned(word[4], 8, UINT32_MAX, &mode) ||
        !parse_unsigned(word[5], 10, UINT32_MAX, &uid) ||
        !parse_unsigned(word[6], 10, UINT32_MAX, &gid) || !parse_signed(word[7], &a.mtime_ns) ||
        !parse_unsigned(word[8], 16, UINT64_MAX, &a.rdev))
        return -EINVAL;
    char *etag = decode_word(word[2]), *target = decode_word(word[9]),
         *xattrs = decode_word(word[10]), *name = decode_word(word[11]);
    if (!etag || !target || !xattrs || !name || strlen(etag) >= sizeof(obj.etag))
        return -EINVAL;
    memcpy(obj.etag, etag, strlen(etag) + 1);
    a.has = (unsigned)has;
    a.mode = (uint32_t)mode;
    a.uid = (uint32_t)uid;
    a.gid = (uint32_t)gid;
    a.target = has & ATTR_TARGET ? target : NULL;
    a.xattrs = has & ATTR_XATTRS ? xattrs : NULL;
    if (first_version && !(has & ATTR_MODE))
        return 0;
    int r = index_add_in(x, dir, name, &obj, &a);
    if (r == -EPERM) /* leave it out: the object is asked */
        return 0;
    return r == -E2BIG || r == -EEXIST ? -EINVAL : r;
}

static int parse_lines(char *text, const char *dir, bool first_version, struct index *x)
{
    char *line = strsep(&text, "\n");
    char *whose = line && text ? decode_word(line) : NULL;
    int r = whose && strcmp(whose, dir) == 0 ? 0 : -EINVAL;

    while (r == 0 && *text) {
        line = strsep(&text, "\n");
        r = text ? parse_entry(line, "", first_version, x) : -EINVAL;
    }
    return r;
}

static bool begins_with(const char *text, size_t len, const char *magic)
{
    return len >= HEAD_LEN && memcmp(text, magic, sizeof(MAGIC) - 1) == 0;
}

static bool head_is_right(const char *text, size_t len, const char *magic)
{
    char sum[9];

    if (len < HEAD_LEN || len > INDEX_BYTES_MAX || !begins_with(text, len, magic) ||
        text[HEAD_LEN - 1] != '\n')
        return false;
    (void)snprintf(sum, sizeof(sum), "%08" PRIx32, crc32c(0, text + HEAD_LEN, len - HEAD_LEN));
    return memcmp(text + sizeof(MAGIC) - 1, sum, 8) == 0 &&
           !memchr(text + HEAD_LEN, '\0', len - HEAD_LEN);
}

/* ---- the tree's ---- */

void index_part_release(struct index_part *p)
{
    index_release(&p->files);
    for (size_t i = 0; i < p->n_starts; i++)
        free(p->starts[i]);
    free(p->starts);
    *p = (struct index_part){0};
}

size_t index_rank_len(const char *key)
{
    size_t parent = path_parent_len(key);

    return parent ? parent + 1 : 0;
}

int index_rank_cmp(const char *key, const char *rank)
{
    size_t a = index_rank_len(key), b = strlen(rank);
    int r = memcmp(key, rank, a < b ? a : b);

    return r ? r : (a > b) - (a < b);
}

static bool rank_ok(const char *rank)
{
    size_t len = strlen(rank);
    char key[PATH_KEY_MAX];

    if (len < 2 || len > sizeof(key) || rank[len - 1] != '/')
        return false;
    memcpy(key, rank, len - 1);
    key[len - 1] = '\0';
    return path_key_ok(key, PATH_KEY_MAX);
}

int index_part_add_start(struct index_part *p, const char *start)
{
    size_t at = p->n_starts;

    if (p->n_starts >= INDEX_PARTS_MAX || !rank_ok(start))
        return -E2BIG;
    while (at && strcmp(p->starts[at - 1], start) > 0)
        at--;
    if (at && strcmp(p->starts[at - 1], start) == 0)
        return 0;
    auto_free char *copy = strdup(start);
    char **v = copy ? reallocarray(p->starts, p->n_starts + 1, sizeof(*v)) : NULL;
    if (!v)
        return -ENOMEM;
    memmove(v + at + 1, v + at, (p->n_starts - at) * sizeof(*v));
    v[at] = take_ptr(copy);
    p->starts = v;
    p->n_starts++;
    return 0;
}

const char *index_part_of(const struct index_part *first, const char *rank,
                          const char **ret_end)
{
    size_t low = 0, high = first->n_starts; /* how many begin at the rank or before it */

    while (low < high) {
        size_t mid = (low + high) / 2;
        if (strcmp(first->starts[mid], rank) <= 0)
            low = mid + 1;
        else
            high = mid;
    }
    *ret_end = low < first->n_starts ? first->starts[low] : NULL;
    return low ? first->starts[low - 1] : "";
}

static int by_rank(struct index_entry *a, struct index_entry *b)
{
    size_t la = index_rank_len(a->name), lb = index_rank_len(b->name);
    int r = memcmp(a->name, b->name, la < lb ? la : lb);

    return r ? r : la != lb ? (la > lb) - (la < lb) : strcmp(a->name + la, b->name + lb);
}

void index_part_sort(struct index_part *p)
{
    HASH_SORT(p->files.entries, by_rank);
}

static int add_starts(struct buf *b, const struct index_part *p)
{
    int r = 0;

    for (size_t i = 0; i < p->n_starts && r == 0; i++) {
        r = buf_addc(b, '+');
        if (r == 0)
            r = add_line(b, p->starts[i]);
    }
    return r;
}

int index_part_format(const struct index_part *p, const char *start, struct buf *out)
{
    const struct index_entry *before = NULL;
    struct index_entry *e, *next;
    size_t at = out->len;
    int r = begin_text(out, TREE_MAGIC, start);

    if (r == 0)
        r = add_starts(out, p);
    HASH_ITER(hh, p->files.entries, e, next)
    {
        size_t len = path_parent_len(e->name);
        bool same = before && path_parent_len(before->name) == len &&
                    memcmp(before->name, e->name, len) == 0;
        auto_free char *dir = same ? NULL : strndup(e->name, len);
        if (r == 0 && !same)
            r = dir ? add_line(out, dir) : -ENOMEM;
        if (r == 0)
            r = add_entry(out, e);
        before = e;
    }
    if (r == 0)
        end_text(out, at);
    return r;
}

/* "+=start", "=directory", or a file in the directory named last. */
static int parse_part_line(char *line, const char **dir, struct index_part *p)
{
    if (*line == '+') {
        char *start = decode_word(line + 1);
        bool next = start && (!p->n_starts || strcmp(p->starts[p->n_starts - 1], start) < 0);
        int r = next && !*dir ? index_part_add_start(p, start) : -EINVAL;
        return r == -E2BIG ? -EINVAL : r;
    }
    if (*line == '=') {
        *dir = decode_word(line);
        return *dir && path_key_ok(*dir, PATH_KEY_MAX) ? 0 : -EINVAL;
    }
    return *dir ? parse_entry(line, *dir, false, &p->files) : -EINVAL;
}

int index_part_parse(const char *text, size_t len, const char *start, struct index_part *ret)
{
    struct index_part p = {0};
    const char *dir = NULL;

    if (!head_is_right(text, len,
                       begins_with(text, len, TREE_MAGIC_1) ? TREE_MAGIC_1 : TREE_MAGIC))
        return -EINVAL;
    auto_free char *copy = strndup(text + HEAD_LEN, len - HEAD_LEN);
    if (!copy)
        return -ENOMEM;
    char *rest = copy, *line = strsep(&rest, "\n");
    char *whose = rest ? decode_word(line) : NULL;
    int r = whose && strcmp(whose, start) == 0 ? 0 : -EINVAL;
    while (r == 0 && *rest) {
        line = strsep(&rest, "\n");
        r = rest ? parse_part_line(line, &dir, &p) : -EINVAL;
    }
    if (r < 0)
        index_part_release(&p);
    else
        *ret = p;
    return r;
}

/* ---- a directory's ---- */

int index_parse(const char *text, size_t len, const char *dir, struct index *ret)
{
    struct index x = {0};

    bool first_version = begins_with(text, len, MAGIC_1);

    if (!head_is_right(text, len, first_version ? MAGIC_1 : MAGIC))
        return -EINVAL;
    auto_free char *copy = strndup(text + HEAD_LEN, len - HEAD_LEN);
    if (!copy)
        return -ENOMEM;
    int r = parse_lines(copy, dir, first_version, &x);
    if (r < 0)
        index_release(&x);
    else
        *ret = x;
    return r;
}
