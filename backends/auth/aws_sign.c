/* AWS Signature Version 4: from a request to its canonical form, its hash and its signature. */
#include "backends/auth/aws_sign.h"

#include "backends/http/uri.h"
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

static void to_hex(char *out, const unsigned char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = hex_lower[data[i] >> 4];
        out[2 * i + 1] = hex_lower[data[i] & 15];
    }
    out[2 * len] = '\0';
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

    if (uri_encode(&b, text, strlen(text), false))
        return NULL;
    return buf_take(&b);
}

int aws_canonical_query(struct buf *out, const struct aws_pair *params, size_t n)
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

static int sort_headers(const struct aws_signed *what, struct sortable **ret)
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

static int add_canonical(struct buf *out, const struct aws_signed *what,
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

int aws_canonical_request(struct buf *out, const struct aws_signed *what)
{
    struct sortable *list;
    int err = sort_headers(what, &list);

    if (err)
        return err;
    err = add_canonical(out, what, list);
    free_sortables(list, what->n_headers);
    return err;
}

int aws_sha256_hex(char out[AWS_HASH_HEX], const void *data, size_t len)
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
static bool signing_key(unsigned char out[SHA256_DIGEST_LENGTH],
                        const struct aws_signer *signer, const char *day)
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

static int add_signature(struct buf *out, const struct aws_signer *signer,
                         const struct aws_signed *what, const struct buf *canonical,
                         const struct sortable *list)
{
    auto_buf struct buf text = BUF_INIT(4096);
    unsigned char key[SHA256_DIGEST_LENGTH], mac[SHA256_DIGEST_LENGTH];
    char hash[AWS_HASH_HEX], signature[AWS_HASH_HEX];
    bool ok;
    int err = aws_sha256_hex(hash, canonical->data, canonical->len);

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

int aws_sign(struct buf *out, const struct aws_signer *signer, const struct aws_signed *what)
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

void aws_format_date(char out[AWS_DATE_LEN], int64_t real_ns)
{
    time_t seconds = (time_t)(real_ns / NS_PER_SEC);
    struct tm tm;

    if (!gmtime_r(&seconds, &tm) || strftime(out, AWS_DATE_LEN, "%Y%m%dT%H%M%SZ", &tm) == 0)
        (void)snprintf(out, AWS_DATE_LEN, "19700101T000000Z");
}
