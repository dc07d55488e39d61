/* What S3 servers answer: any bytes are a listing, parts, tags, an error or a refusal, within
 * the bounds that the headers name; what is written for a server is read back the same. The
 * first byte chooses the parser. */
#include "backends/http/xml.h"
#include "backends/s3/xml.h"
#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void check_list(const char *text, size_t len)
{
    struct s3_page page;

    if (s3_xml_list(text, len, &page) < 0)
        return;
    must(page.n_entries <= S3_PAGE_MAX);
    for (size_t i = 0; i < page.n_entries; i++) {
        const struct s3_entry *e = &page.entries[i];
        must(e->name && strlen(e->name) <= XML_TEXT_MAX);
        must(memchr(e->etag, '\0', sizeof(e->etag)) != NULL);
    }
    s3_page_release(&page);
}

static void check_parts(const char *text, size_t len)
{
    struct s3_parts_page page;

    if (s3_xml_parts(text, len, &page) < 0)
        return;
    must(page.n_parts <= S3_PAGE_MAX);
    for (size_t i = 0; i < page.n_parts; i++)
        must(memchr(page.parts[i].etag, '\0', sizeof(page.parts[i].etag)) &&
             memchr(page.parts[i].crc32c, '\0', sizeof(page.parts[i].crc32c)));
    s3_parts_page_release(&page);
}

static void check_error(const char *text, size_t len)
{
    struct s3_error e;
    const char *const shown[] = {e.code, e.message, e.request_id, e.region};

    if (!s3_xml_error(text, len, &e))
        return;
    for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
        for (const char *c = shown[i]; *c; c++)
            must((unsigned char)*c >= ' ' && *c != 0x7f); /* it is logged */
}

static int see_failure(void *arg, const char *key, const char *code)
{
    (void)arg;
    must(key && code);
    return 0;
}

static int see_tag(void *arg, const char *key, const char *value)
{
    (void)arg;
    must(key && value);
    return 0;
}

static int see_upload(void *arg, const char *key, const char *id, int64_t begun_ns)
{
    (void)arg;
    (void)begun_ns;
    must(key && id);
    return 0;
}

/* What is escaped is one text of the document, and the same text again. */
static void check_escape(const char *text)
{
    auto_buf struct buf b = BUF_INIT(1 << 20);
    char *back = NULL;

    must(buf_adds(&b, "<R><K>") == 0);
    if (xml_escape(&b, text) < 0)
        return;
    must(buf_adds(&b, "</K></R>") == 0);
    int r = xml_text(b.data, b.len, "R/K", &back);
    must(r == 0 || strlen(text) > XML_TEXT_MAX / 2);
    must(r < 0 || strcmp(back, text) == 0);
    free(back);
}

static void check_small(const char *text)
{
    char etag[STORE_ETAG_MAX];
    int64_t ns;

    if (s3_etag_copy(etag, text) == 0)
        must(strlen(etag) < STORE_ETAG_MAX);
    (void)s3_parse_time(text, &ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t len = size - 1;
    auto_free char *text = malloc(len + 1);
    char *found = NULL;

    if (!text)
        return 0;
    memcpy(text, data + 1, len);
    text[len] = '\0';
    switch (data[0] % 6) {
    case 0:
        check_list(text, len);
        break;
    case 1:
        check_parts(text, len);
        break;
    case 2:
        check_error(text, len);
        break;
    case 3:
        (void)s3_xml_delete_errors(text, len, see_failure, NULL);
        (void)s3_xml_uploads(text, len, see_upload, NULL);
        (void)s3_xml_tags(text, len, see_tag, NULL);
        break;
    case 4:
        must(xml_text(text, len, "InitiateMultipartUploadResult/UploadId", &found) < 0 ||
             found);
        free(found);
        break;
    default:
        check_escape(text);
        check_small(text);
    }
    return 0;
}
