/* XML to structs. One walker over expat keeps the path of the open elements and the text of the
 * innermost; what each document means is in the visitors below it. */
#include "backends/s3/xml.h"

#include "backends/s3/sign.h"
#include "common/mem.h"
#include "common/op.h"
#include "common/secret.h"

#include <ctype.h>
#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PATH_MAX_LEN 256

/* Called where an element ends, with the path of names from the root, joined by "/". */
struct walker;
typedef int (*walk_end)(struct walker *w, const char *path, const char *text);

struct walker {
    XML_Parser parser;
    walk_end start; /* may be NULL; text is "" */
    walk_end end;
    void *arg;
    char path[PATH_MAX_LEN];
    size_t depth;
    struct buf text; /* of the innermost element */
    int err;
};

static void walk_stop(struct walker *w, int err)
{
    if (!w->err)
        w->err = err;
    (void)XML_StopParser(w->parser, XML_FALSE);
}

static const char *local_name(const char *name)
{
    const char *colon = strrchr(name, ':');

    return colon ? colon + 1 : name;
}

static void on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    struct walker *w = arg;
    size_t len = strlen(w->path);
    int n, err;

    (void)attributes;
    name = local_name(name);
    n = snprintf(w->path + len, sizeof(w->path) - len, "%s%s", len ? "/" : "", name);
    if (w->depth++ >= S3_XML_DEPTH_MAX || n < 0 || (size_t)n >= sizeof(w->path) - len) {
        walk_stop(w, -EPROTO);
        return;
    }
    buf_clear(&w->text);
    err = w->start ? w->start(w, w->path, "") : 0;
    if (err)
        walk_stop(w, err);
}

static void on_end(void *arg, const XML_Char *name)
{
    struct walker *w = arg;
    char *slash;
    int err;

    (void)name;
    if (w->err)
        return;
    err = w->end(w, w->path, w->text.data ? w->text.data : "");
    if (err)
        walk_stop(w, err);
    buf_clear(&w->text);
    slash = strrchr(w->path, '/');
    *(slash ? slash : w->path) = '\0';
    w->depth--;
}

static void on_text(void *arg, const XML_Char *text, int len)
{
    struct walker *w = arg;
    int err = w->err ? 0 : buf_add(&w->text, text, (size_t)len);

    if (err)
        walk_stop(w, err == -EFBIG ? -EPROTO : err);
}

static void on_doctype(void *arg, const XML_Char *name, const XML_Char *system_id,
                       const XML_Char *public_id, int has_subset)
{
    (void)name;
    (void)system_id;
    (void)public_id;
    (void)has_subset;
    walk_stop(arg, -EPROTO);
}

/* With a parser that the walker takes. */
static int walk_by(struct walker *w, const char *data, size_t len)
{
    if (!w->parser)
        return -ENOMEM;
    XML_SetUserData(w->parser, w);
    XML_SetElementHandler(w->parser, on_start, on_end);
    XML_SetCharacterDataHandler(w->parser, on_text);
    XML_SetStartDoctypeDeclHandler(w->parser, on_doctype);
    if (len > INT32_MAX)
        w->err = -EPROTO;
    else if (XML_Parse(w->parser, data ? data : "", (int)len, 1) != XML_STATUS_OK && !w->err)
        w->err = XML_GetErrorCode(w->parser) == XML_ERROR_NO_MEMORY ? -ENOMEM : -EPROTO;
    XML_ParserFree(w->parser);
    buf_release(&w->text);
    return w->err;
}

static int walk(const char *data, size_t len, walk_end start, walk_end end, void *arg)
{
    struct walker w = {.parser = XML_ParserCreate(NULL),
                       .start = start,
                       .end = end,
                       .arg = arg,
                       .text = BUF_INIT(S3_XML_TEXT_MAX)};

    return walk_by(&w, data, len);
}

/* The same where the text holds keys, and the parser copies what it reads. */
static int walk_secret(const char *data, size_t len, walk_end end, void *arg)
{
    static const XML_Memory_Handling_Suite memory = {malloc, secret_realloc, secret_free};
    struct walker w = {.parser = XML_ParserCreate_MM(NULL, &memory, NULL),
                       .end = end,
                       .arg = arg,
                       .text = BUF_SECRET(S3_XML_TEXT_MAX)};

    return walk_by(&w, data, len);
}

/* --- small values --- */

static int parse_u64(const char *text, uint64_t max, uint64_t *ret)
{
    unsigned long long value;
    char *end;

    if (!isdigit((unsigned char)*text))
        return -EPROTO;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || *end || value > max)
        return -EPROTO;
    *ret = value;
    return 0;
}

static bool parse_bool(const char *text)
{
    return strcasecmp(text, "true") == 0;
}

int s3_etag_copy(char out[STORE_ETAG_MAX], const char *text)
{
    size_t len = strlen(text);

    if (len >= 2 && text[0] == '"' && text[len - 1] == '"') {
        text++;
        len -= 2;
    }
    if (len >= STORE_ETAG_MAX)
        return -EPROTO;
    /* It goes back into a header: nothing there that could end one. */
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] <= ' ' || text[i] == '"' || text[i] == 0x7f)
            return -EPROTO;
    memcpy(out, text, len);
    out[len] = '\0';
    return 0;
}

int s3_parse_time(const char *text, int64_t *ret_ns)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    time_t seconds;

    if (!end)
        return -EPROTO;
    if (*end == '.')
        for (end++; isdigit((unsigned char)*end);)
            end++;
    if (strcmp(end, "Z") != 0 && strcmp(end, "+00:00") != 0)
        return -EPROTO;
    seconds = timegm(&tm);
    if (seconds < 0 || seconds > INT64_MAX / NS_PER_SEC)
        return -EPROTO;
    *ret_ns = (int64_t)seconds * NS_PER_SEC;
    return 0;
}

static void copy_clean(char *out, size_t size, const char *text)
{
    size_t i;

    for (i = 0; text[i] && i + 1 < size; i++) {
        bool control = (unsigned char)text[i] < ' ' || text[i] == 0x7f;
        out[i] = text[i];
        if (control)
            out[i] = ' ';
    }
    out[i] = '\0';
}

static int replace_text(char **to, const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        return -ENOMEM;
    free(*to);
    *to = copy;
    return 0;
}

/* Room for one more in an array that doubles. */
static void *grow(void *items, size_t n, size_t size)
{
    if (n && (n & (n - 1)))
        return items;
    return reallocarray(items, n ? 2 * n : 1, size);
}

/* --- <Error> --- */

/* An answer that is no <Error> may be long: its first element is enough to know. */
static int error_start(struct walker *w, const char *path, const char *text)
{
    (void)w;
    (void)text;
    return strncmp(path, "Error", 5) == 0 && (path[5] == '\0' || path[5] == '/') ? 0 : -EPROTO;
}

static int error_end(struct walker *w, const char *path, const char *text)
{
    struct s3_error *e = w->arg;

    if (strcmp(path, "Error/Code") == 0)
        copy_clean(e->code, sizeof(e->code), text);
    else if (strcmp(path, "Error/Message") == 0)
        copy_clean(e->message, sizeof(e->message), text);
    else if (strcmp(path, "Error/RequestId") == 0)
        copy_clean(e->request_id, sizeof(e->request_id), text);
    else if (strcmp(path, "Error/Region") == 0)
        copy_clean(e->region, sizeof(e->region), text);
    return 0;
}

bool s3_xml_error(const char *data, size_t len, struct s3_error *ret)
{
    *ret = (struct s3_error){0};
    if (walk(data, len, error_start, error_end, ret)) {
        *ret = (struct s3_error){0};
        return false;
    }
    return ret->code[0] != '\0';
}

/* --- <ListBucketResult> --- */

struct list_walk {
    struct s3_page *page;
    bool encoded; /* <EncodingType>url: names are percent-encoded, a space is "+" */
    bool is_list;
};

static int list_start(struct walker *w, const char *path, const char *text)
{
    struct list_walk *l = w->arg;
    struct s3_page *page = l->page;
    bool is_prefix = strcmp(path, "ListBucketResult/CommonPrefixes") == 0;
    struct s3_entry *entries;

    (void)text;
    if (!is_prefix && strcmp(path, "ListBucketResult/Contents") != 0)
        return 0;
    if (page->n_entries >= S3_PAGE_MAX)
        return -EPROTO;
    entries = grow(page->entries, page->n_entries, sizeof(*entries));
    if (!entries)
        return -ENOMEM;
    page->entries = entries;
    entries[page->n_entries++] = (struct s3_entry){.is_prefix = is_prefix};
    return 0;
}

static int list_entry_text(struct s3_page *page, const char *field, const char *text)
{
    struct s3_entry *e = page->n_entries ? &page->entries[page->n_entries - 1] : NULL;

    if (!e)
        return 0;
    if (strcmp(field, "Contents/Key") == 0 || strcmp(field, "CommonPrefixes/Prefix") == 0)
        return replace_text(&e->name, text);
    if (strcmp(field, "Contents/Size") == 0)
        return parse_u64(text, UINT64_MAX, &e->size);
    if (strcmp(field, "Contents/ETag") == 0)
        return s3_etag_copy(e->etag, text);
    if (strcmp(field, "Contents/LastModified") == 0)
        return s3_parse_time(text, &e->mtime_ns);
    return 0;
}

static int list_end(struct walker *w, const char *path, const char *text)
{
    static const char root[] = "ListBucketResult";
    struct list_walk *l = w->arg;
    const char *field;

    if (strncmp(path, root, sizeof(root) - 1) != 0)
        return -EPROTO;
    l->is_list = true;
    field = path + sizeof(root) - 1;
    if (*field++ != '/')
        return 0;
    if (strcmp(field, "IsTruncated") == 0)
        l->page->truncated = parse_bool(text);
    else if (strcmp(field, "NextContinuationToken") == 0)
        return replace_text(&l->page->token, text);
    else if (strcmp(field, "EncodingType") == 0)
        l->encoded = strcmp(text, "url") == 0;
    else
        return list_entry_text(l->page, field, text);
    return 0;
}

/* Decodes the names in place (EncodingType may come after them) and drops those that hold a
 * NUL: no path can show them. */
static int decode_names(struct s3_page *page, bool encoded)
{
    size_t kept = 0;

    for (size_t i = 0; i < page->n_entries; i++) {
        struct s3_entry *e = &page->entries[i];
        ssize_t len;

        if (!e->name)
            return -EPROTO;
        len = encoded ? s3_uri_decode(e->name, true) : (ssize_t)strlen(e->name);
        if (len < 0)
            return -EPROTO;
        if ((size_t)len != strlen(e->name)) {
            free(e->name);
            e->name = NULL;
            page->unusable++;
            continue;
        }
        if (kept != i) {
            page->entries[kept] = *e;
            e->name = NULL;
        }
        kept++;
    }
    page->n_entries = kept;
    return 0;
}

int s3_xml_list(const char *data, size_t len, struct s3_page *ret)
{
    struct s3_page page = {0};
    struct list_walk l = {.page = &page};
    int err = walk(data, len, list_start, list_end, &l);
    size_t parsed = page.n_entries;

    if (!err && !l.is_list)
        err = -EPROTO;
    if (!err)
        err = decode_names(&page, l.encoded);
    if (!err && page.truncated && (!page.token || !*page.token))
        err = -EPROTO;
    if (err) {
        page.n_entries = parsed;
        s3_page_release(&page);
        return err;
    }
    *ret = page;
    return 0;
}

void s3_page_release(struct s3_page *page)
{
    for (size_t i = 0; i < page->n_entries; i++)
        free(page->entries[i].name);
    free(page->entries);
    free(page->token);
    *page = (struct s3_page){0};
}

/* --- <ListPartsResult> --- */

static int parts_start(struct walker *w, const char *path, const char *text)
{
    struct s3_parts_page *page = w->arg;
    struct s3_part *parts;

    (void)text;
    if (strcmp(path, "ListPartsResult/Part") != 0)
        return 0;
    if (page->n_parts >= S3_PAGE_MAX)
        return -EPROTO;
    parts = grow(page->parts, page->n_parts, sizeof(*parts));
    if (!parts)
        return -ENOMEM;
    page->parts = parts;
    parts[page->n_parts++] = (struct s3_part){0};
    return 0;
}

static int part_text(struct s3_part *part, const char *field, const char *text)
{
    uint64_t value;
    int err;

    if (strcmp(field, "PartNumber") == 0) {
        err = parse_u64(text, S3_PAGE_MAX, &value);
        if (!err)
            part->number = (unsigned)value;
        return err;
    }
    if (strcmp(field, "Size") == 0)
        return parse_u64(text, INT64_MAX, &part->size);
    if (strcmp(field, "ETag") == 0)
        return s3_etag_copy(part->etag, text);
    if (strcmp(field, "ChecksumCRC32C") == 0)
        copy_clean(part->crc32c, sizeof(part->crc32c), text);
    return 0;
}

static int parts_end(struct walker *w, const char *path, const char *text)
{
    static const char in_part[] = "ListPartsResult/Part/";
    struct s3_parts_page *page = w->arg;
    uint64_t value;
    int err = 0;

    if (strncmp(path, "ListPartsResult", 15) != 0)
        return -EPROTO;
    if (strncmp(path, in_part, sizeof(in_part) - 1) == 0 && page->n_parts)
        return part_text(&page->parts[page->n_parts - 1], path + sizeof(in_part) - 1, text);
    if (strcmp(path, "ListPartsResult/Part") == 0)
        return page->parts[page->n_parts - 1].number ? 0 : -EPROTO;
    if (strcmp(path, "ListPartsResult/IsTruncated") == 0)
        page->truncated = parse_bool(text);
    if (strcmp(path, "ListPartsResult/NextPartNumberMarker") == 0 && *text) {
        err = parse_u64(text, S3_PAGE_MAX, &value);
        page->next = err ? 0 : (unsigned)value;
    }
    return err;
}

int s3_xml_parts(const char *data, size_t len, struct s3_parts_page *ret)
{
    struct s3_parts_page page = {0};
    int err = walk(data, len, parts_start, parts_end, &page);

    if (err) {
        s3_parts_page_release(&page);
        return err;
    }
    *ret = page;
    return 0;
}

void s3_parts_page_release(struct s3_parts_page *page)
{
    free(page->parts);
    *page = (struct s3_parts_page){0};
}

/* --- <ListMultipartUploadsResult> --- */

struct uploads_walk {
    int (*visit)(void *arg, const char *key, const char *id, int64_t begun_ns);
    void *arg;
    char *key, *id;
    int64_t begun_ns;
};

static int uploads_end(struct walker *w, const char *path, const char *text)
{
    static const char in_upload[] = "ListMultipartUploadsResult/Upload";
    struct uploads_walk *u = w->arg;
    const char *field = path + sizeof(in_upload) - 1;
    int err = 0;

    if (strncmp(path, "ListMultipartUploadsResult", 26) != 0)
        return -EPROTO;
    if (strncmp(path, in_upload, sizeof(in_upload) - 1) != 0)
        return 0;
    if (strcmp(field, "/Key") == 0)
        return replace_text(&u->key, text);
    if (strcmp(field, "/UploadId") == 0)
        return replace_text(&u->id, text);
    if (strcmp(field, "/Initiated") == 0)
        return s3_parse_time(text, &u->begun_ns);
    if (*field == '\0' && u->key && u->id && s3_uri_decode(u->key, true) >= 0)
        err = u->visit(u->arg, u->key, u->id, u->begun_ns);
    if (*field == '\0') {
        free(take_ptr(u->key));
        free(take_ptr(u->id));
        u->begun_ns = 0;
    }
    return err;
}

int s3_xml_uploads(const char *data, size_t len,
                   int (*visit)(void *arg, const char *key, const char *id, int64_t begun_ns),
                   void *arg)
{
    struct uploads_walk u = {.visit = visit, .arg = arg};
    int err = walk(data, len, NULL, uploads_end, &u);

    free(u.key);
    free(u.id);
    return err;
}

/* --- single texts --- */

struct text_walk {
    const char *path;
    char *text;
};

static int text_end(struct walker *w, const char *path, const char *text)
{
    struct text_walk *t = w->arg;

    return strcmp(path, t->path) == 0 ? replace_text(&t->text, text) : 0;
}

int s3_xml_text(const char *data, size_t len, const char *path, char **ret)
{
    struct text_walk t = {.path = path};
    int err = walk_secret(data, len, text_end, &t);

    if (!err && !t.text)
        err = -EPROTO;
    if (err) {
        secret_free(t.text);
        return err;
    }
    *ret = t.text;
    return 0;
}

/* --- <DeleteResult> --- */

struct delete_walk {
    int (*visit)(void *arg, const char *key, const char *code);
    void *arg;
    char *key, *code;
};

static int delete_end(struct walker *w, const char *path, const char *text)
{
    struct delete_walk *d = w->arg;
    int err = 0;

    if (strncmp(path, "DeleteResult", 12) != 0)
        return -EPROTO;
    if (strcmp(path, "DeleteResult/Error/Key") == 0)
        return replace_text(&d->key, text);
    if (strcmp(path, "DeleteResult/Error/Code") == 0)
        return replace_text(&d->code, text);
    if (strcmp(path, "DeleteResult/Error") == 0) {
        err = d->visit(d->arg, d->key ? d->key : "", d->code ? d->code : "");
        free(take_ptr(d->key));
        free(take_ptr(d->code));
    }
    return err;
}

int s3_xml_delete_errors(const char *data, size_t len,
                         int (*visit)(void *arg, const char *key, const char *code), void *arg)
{
    struct delete_walk d = {.visit = visit, .arg = arg};
    int err = walk(data, len, NULL, delete_end, &d);

    free(d.key);
    free(d.code);
    return err;
}

/* --- <Tagging> --- */

struct tag_walk {
    int (*visit)(void *arg, const char *key, const char *value);
    void *arg;
    char *key, *value;
};

static int tag_end(struct walker *w, const char *path, const char *text)
{
    struct tag_walk *t = w->arg;
    int err = 0;

    if (strncmp(path, "Tagging", 7) != 0)
        return -EPROTO;
    if (strcmp(path, "Tagging/TagSet/Tag/Key") == 0)
        return replace_text(&t->key, text);
    if (strcmp(path, "Tagging/TagSet/Tag/Value") == 0)
        return replace_text(&t->value, text);
    if (strcmp(path, "Tagging/TagSet/Tag") == 0) {
        err = t->key ? t->visit(t->arg, t->key, t->value ? t->value : "") : -EPROTO;
        free(take_ptr(t->key));
        free(take_ptr(t->value));
    }
    return err;
}

int s3_xml_tags(const char *data, size_t len,
                int (*visit)(void *arg, const char *key, const char *value), void *arg)
{
    struct tag_walk t = {.visit = visit, .arg = arg};
    int err = walk(data, len, NULL, tag_end, &t);

    free(t.key);
    free(t.value);
    return err;
}

/* --- writing --- */

/* Bytes of the well-formed UTF-8 character at `s`, 0 for a broken one. */
static size_t utf8_len(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t n = s[0] < 0x80                   ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : (s[0] & 0xf0) == 0xe0       ? 3
                                             : 0;

    if (s[0] >= 0xf0 && s[0] < 0xf5)
        n = 4;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if (n == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0)))
        return 0; /* overlong, surrogate */
    if (n == 3 && s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe)
        return 0; /* U+FFFE and U+FFFF are no XML characters */
    if (n == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90)))
        return 0;
    return n;
}

int s3_xml_escape(struct buf *out, const char *text)
{
    int err = 0;

    for (size_t n; *text && !err; text += n) {
        unsigned char c = (unsigned char)*text;

        n = utf8_len(text);
        if (!n || (c < ' ' && c != '\t' && c != '\n' && c != '\r'))
            return -EINVAL;
        if (c < ' ' || c == 0x7f || strchr("&<>\"'", c))
            err = buf_addf(out, "&#%u;", c);
        else
            err = buf_add(out, text, n);
    }
    return err;
}
