/* AWS Signature Version 4: from a request to its canonical form, its hash and its signature. */
#include "backends/s3/sign.h"

#include "common/mem.h"
#include "common/op.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CANONICAL_MAX (128 * 1024)

static const char hex_lower[] = "0123456789abcdef";

static bool is_unreserved(unsigned char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           c == '-' || c == '.' || c == '_' || c == '~';
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static void to_hex(char *out, const unsigned char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = hex_lower[data[i] >> 4];
        out[2 * i + 1] = hex_lower[data[i] & 15];
    }
    out[2 * len] = '\0';
}

int s3_uri_encode(struct buf *out, const char *text, size_t len, bool keep_slash)
{
    static const char hex_upper[] = "0123456789ABCDEF";
    int err = 0;

    for (size_t i = 0; i < len && !err; i++) {
        unsigned char c = (unsigned char)text[i];

        if (is_unreserved(c) || (keep_slash && c == '/')) {
            err = buf_addc(out, (char)c);
        } else {
            char escape[3] = {'%', hex_upper[c >> 4], hex_upper[c & 15]};

            err = buf_add(out, escape, sizeof(escape));
        }
    }
    return err;
}

ssize_t s3_uri_decode(char *text, bool plus_is_space)
{
    char *to = text;

    for (const char *from = text; *from; from++) {
        if (*from == '%') {
            int high = hex_value(from[1]);
            int low = high < 0 ? -1 : hex_value(from[2]);

            if (low < 0)
                return -1;
            *to++ = (char)(high << 4 | low);
            from += 2;
        } else if (*from == '+' && plus_is_space) {
            *to++ = ' ';
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
    return to - text;
}

/* A parameter or header on its way into sorted order. */
struct sortable {
    char *name;
    char *value;
    size_t index; /* where it stood: qsort() is not stable */
};

static void free_sortables(struct sortable *list, size_t n)
{
    for (size_t i = 0; list && i < n; i++) {
        free(list[i].name);
        free(list[i].value);
    }
    free(list);
}

static int compare_params(const void *a, const void *b)
{
    const struct sortable *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order ? order : strcmp(x->value, y->value);
}

static int compare_headers(const void *a, const void *b)
{
    const struct sortable *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static char *encoded(const char *text)
{
    auto_buf struct buf b = BUF_INIT(CANONICAL_MAX);

    if (s3_uri_encode(&b, text, strlen(text), false))
        return NULL;
    return buf_take(&b);
}

int s3_canonical_query(struct buf *out, const struct s3_pair *params, size_t n)
{
    struct sortable *list = calloc(n ? n : 1, sizeof(*list));
    int err = list ? 0 : -ENOMEM;

    for (size_t i = 0; i < n && !err; i++) {
        list[i].name = encoded(params[i].name);
        list[i].value = encoded(params[i].value);
        if (!list[i].name || !list[i].value)
            err = -ENOMEM;
    }
    if (!err && n)
        qsort(list, n, sizeof(*list), compare_params);
    for (size_t i = 0; i < n && !err; i++)
        err = buf_addf(out, "%s%s=%s", i ? "&" : "", list[i].name, list[i].value);
    free_sortables(list, n);
    return err;
}

/* The value without space around it and with runs of spaces as one, as SigV4 wants it. */
static char *trimmed(const char *value)
{
    char *out = malloc(strlen(value) + 1), *to = out;

    if (!out)
        return NULL;
    while (*value == ' ' || *value == '\t')
        value++;
    for (; *value; value++) {
        if (*value == ' ' && to > out && to[-1] == ' ')
            continue;
        *to++ = *value;
    }
    while (to > out && (to[-1] == ' ' || to[-1] == '\t'))
        to--;
    *to = '\0';
    return out;
}

static int sort_headers(const struct s3_signed *what, struct sortable **ret)
{
    size_t n = what->n_headers;
    struct sortable *list = calloc(n ? n : 1, sizeof(*list));

    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        list[i].name = strdup(what->headers[i].name);
        list[i].value = trimmed(what->headers[i].value);
        list[i].index = i;
        if (!list[i].name || !list[i].value) {
            free_sortables(list, n);
            return -ENOMEM;
        }
    }
    if (n)
        qsort(list, n, sizeof(*list), compare_headers);
    *ret = list;
    return 0;
}

/* "a;b;c": the names of the signed headers. */
static int add_names(struct buf *out, const struct sortable *list, size_t n)
{
    int err = 0;

    for (size_t i = 0; i < n && !err; i++)
        if (i == 0 || strcmp(list[i].name, list[i - 1].name) != 0)
            err = buf_addf(out, "%s%s", i ? ";" : "", list[i].name);
    return err;
}

static int add_canonical(struct buf *out, const struct s3_signed *what,
                         const struct sortable *list)
{
    size_t n = what->n_headers;
    int err = buf_addf(out, "%s\n%s\n%s\n", what->method, what->path, what->query);

    for (size_t i = 0; i < n && !err; i++) {
        bool again = i > 0 && strcmp(list[i].name, list[i - 1].name) == 0;
        bool last = i + 1 == n || strcmp(list[i].name, list[i + 1].name) != 0;

        err = buf_addf(out, "%s%s%s%s", again ? "," : list[i].name, again ? "" : ":",
                       list[i].value, last ? "\n" : "");
    }
    if (!err)
        err = buf_addc(out, '\n');
    if (!err)
        err = add_names(out, list, n);
    return err ? err : buf_addf(out, "\n%s", what->payload_hash);
}

int s3_canonical_request(struct buf *out, const struct s3_signed *what)
{
    struct sortable *list;
    int err = sort_headers(what, &list);

    if (err)
        return err;
    err = add_canonical(out, what, list);
    free_sortables(list, what->n_headers);
    return err;
}

int s3_sha256_hex(char out[S3_HASH_HEX], const void *data, size_t len)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];

    if (!EVP_Digest(data, len, hash, NULL, EVP_sha256(), NULL))
        return -EIO;
    to_hex(out, hash, sizeof(hash));
    return 0;
}

static bool hmac(unsigned char out[SHA256_DIGEST_LENGTH], const void *key, size_t key_len,
                 const char *text, size_t len)
{
    return HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)text, len, out, NULL) !=
           NULL;
}

/* The key of the day: HMAC over date, region, service and the closing word, in a chain. */
static bool signing_key(unsigned char out[SHA256_DIGEST_LENGTH], const struct s3_signer *signer,
                        const char *day)
{
    char seed[256];
    int len = snprintf(seed, sizeof(seed), "AWS4%s", signer->secret_key);
    bool ok = len > 0 && (size_t)len < sizeof(seed) && hmac(out, seed, (size_t)len, day, 8) &&
              hmac(out, out, SHA256_DIGEST_LENGTH, signer->region, strlen(signer->region)) &&
              hmac(out, out, SHA256_DIGEST_LENGTH, signer->service, strlen(signer->service)) &&
              hmac(out, out, SHA256_DIGEST_LENGTH, "aws4_request", 12);

    OPENSSL_cleanse(seed, sizeof(seed));
    return ok;
}

static int add_signature(struct buf *out, const struct s3_signer *signer,
                         const struct s3_signed *what, const struct buf *canonical,
                         const struct sortable *list)
{
    auto_buf struct buf text = BUF_INIT(4096);
    unsigned char key[SHA256_DIGEST_LENGTH], mac[SHA256_DIGEST_LENGTH];
    char hash[S3_HASH_HEX], signature[S3_HASH_HEX];
    bool ok;
    int err = s3_sha256_hex(hash, canonical->data, canonical->len);

    if (!err)
        err = buf_addf(&text, "AWS4-HMAC-SHA256\n%s\n%.8s/%s/%s/aws4_request\n%s", what->date,
                       what->date, signer->region, signer->service, hash);
    if (err)
        return err;
    ok = signing_key(key, signer, what->date) &&
         hmac(mac, key, sizeof(key), text.data, text.len);
    OPENSSL_cleanse(key, sizeof(key));
    if (!ok)
        return -EIO;
    to_hex(signature, mac, sizeof(mac));
    err =
        buf_addf(out, "AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/%s/aws4_request, SignedHeaders=",
                 signer->access_key, what->date, signer->region, signer->service);
    if (!err)
        err = add_names(out, list, what->n_headers);
    return err ? err : buf_addf(out, ", Signature=%s", signature);
}

int s3_sign(struct buf *out, const struct s3_signer *signer, const struct s3_signed *what)
{
    auto_buf struct buf canonical = BUF_INIT(CANONICAL_MAX);
    struct sortable *list;
    int err = sort_headers(what, &list);

    if (err)
        return err;
    err = add_canonical(&canonical, what, list);
    if (!err)
        err = add_signature(out, signer, what, &canonical, list);
    free_sortables(list, what->n_headers);
    return err;
}

void s3_format_date(char out[S3_DATE_LEN], int64_t real_ns)
{
    time_t seconds = (time_t)(real_ns / NS_PER_SEC);
    struct tm tm;

    if (!gmtime_r(&seconds, &tm) || strftime(out, S3_DATE_LEN, "%Y%m%dT%H%M%SZ", &tm) == 0)
        (void)snprintf(out, S3_DATE_LEN, "19700101T000000Z");
}
