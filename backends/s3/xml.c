/* XML to structs: what each document means is in the visitors of its elements. */
#include "backends/s3/xml.h"

#include "backends/http/uri.h"
#include "backends/http/xml.h"
#include "common/mem.h"
#include "common/op.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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

/* Room for one more in an array that doubles. */
static void *grow(void *items, size_t n, size_t size)
{
    if (n && (n & (n - 1)))
        return items;
    return reallocarray(items, n ? 2 * n : 1, size);
}

/* --- <Error> --- */

/* An answer that is no <Error> may be long: its first element is enough to know. */
static int error_start(void *arg, const char *path, const char *text)
{
    (void)arg;
    (void)text;
    return strncmp(path, "Error", 5) == 0 && (path[5] == '\0' || path[5] == '/') ? 0 : -EPROTO;
}

static int error_end(void *arg, const char *path, const char *text)
{
    struct s3_error *e = arg;

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
    if (xml_walk(data, len, error_start, error_end, ret)) {
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

static int list_start(void *arg, const char *path, const char *text)
{
    struct list_walk *l = arg;
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
        return xml_replace_text(&e->name, text);
    if (strcmp(field, "Contents/Size") == 0)
        return parse_u64(text, UINT64_MAX, &e->size);
    if (strcmp(field, "Contents/ETag") == 0)
        return s3_etag_copy(e->etag, text);
    if (strcmp(field, "Contents/LastModified") == 0)
        return s3_parse_time(text, &e->mtime_ns);
    return 0;
}

static int list_end(void *arg, const char *path, const char *text)
{
    static const char root[] = "ListBucketResult";
    struct list_walk *l = arg;
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
        return xml_replace_text(&l->page->token, text);
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
        len = encoded ? uri_decode(e->name, true) : (ssize_t)strlen(e->name);
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
    int err = xml_walk(data, len, list_start, list_end, &l);
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

static int parts_start(void *arg, const char *path, const char *text)
{
    struct s3_parts_page *page = arg;
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

static int parts_end(void *arg, const char *path, const char *text)
{
    static const char in_part[] = "ListPartsResult/Part/";
    struct s3_parts_page *page = arg;
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
    int err = xml_walk(data, len, parts_start, parts_end, &page);

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

static int uploads_end(void *arg, const char *path, const char *text)
{
    static const char in_upload[] = "ListMultipartUploadsResult/Upload";
    struct uploads_walk *u = arg;
    const char *field = path + sizeof(in_upload) - 1;
    int err = 0;

    if (strncmp(path, "ListMultipartUploadsResult", 26) != 0)
        return -EPROTO;
    if (strncmp(path, in_upload, sizeof(in_upload) - 1) != 0)
        return 0;
    if (strcmp(field, "/Key") == 0)
        return xml_replace_text(&u->key, text);
    if (strcmp(field, "/UploadId") == 0)
        return xml_replace_text(&u->id, text);
    if (strcmp(field, "/Initiated") == 0)
        return s3_parse_time(text, &u->begun_ns);
    if (*field == '\0' && u->key && u->id && uri_decode(u->key, true) >= 0)
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
    int err = xml_walk(data, len, NULL, uploads_end, &u);

    free(u.key);
    free(u.id);
    return err;
}

/* --- <DeleteResult> --- */

struct delete_walk {
    int (*visit)(void *arg, const char *key, const char *code);
    void *arg;
    char *key, *code;
};

static int delete_end(void *arg, const char *path, const char *text)
{
    struct delete_walk *d = arg;
    int err = 0;

    if (strncmp(path, "DeleteResult", 12) != 0)
        return -EPROTO;
    if (strcmp(path, "DeleteResult/Error/Key") == 0)
        return xml_replace_text(&d->key, text);
    if (strcmp(path, "DeleteResult/Error/Code") == 0)
        return xml_replace_text(&d->code, text);
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
    int err = xml_walk(data, len, NULL, delete_end, &d);

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

static int tag_end(void *arg, const char *path, const char *text)
{
    struct tag_walk *t = arg;
    int err = 0;

    if (strncmp(path, "Tagging", 7) != 0)
        return -EPROTO;
    if (strcmp(path, "Tagging/TagSet/Tag/Key") == 0)
        return xml_replace_text(&t->key, text);
    if (strcmp(path, "Tagging/TagSet/Tag/Value") == 0)
        return xml_replace_text(&t->value, text);
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
    int err = xml_walk(data, len, NULL, tag_end, &t);

    free(t.key);
    free(t.value);
    return err;
}
