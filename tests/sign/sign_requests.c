/* Signs what stdin asks for, so that sign.py can compare it with botocore: a JSON object on
 * each line in, one on each line out.
 *
 *   in:  method, base, key, query [[name, value]...], headers [[name, value]...], body, date,
 *        access, secret, region, service; with a body of null its hash is not signed
 *   out: path, query, authorization */
#include "backends/auth/aws_sign.h"
#include "backends/http/uri.h"
#include "common/mem.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAIRS_MAX 64
#define TEXT_MAX  (1024 * 1024)

static const char *text_of(const json_t *in, const char *name)
{
    const char *text = json_string_value(json_object_get(in, name));

    return text ? text : "";
}

static size_t pairs_of(const json_t *in, const char *name, struct aws_pair pairs[PAIRS_MAX])
{
    const json_t *list = json_object_get(in, name);
    size_t n = json_array_size(list);

    for (size_t i = 0; i < n && i < PAIRS_MAX; i++) {
        const json_t *pair = json_array_get(list, i);

        pairs[i].name = json_string_value(json_array_get(pair, 0));
        pairs[i].value = json_string_value(json_array_get(pair, 1));
        if (!pairs[i].name || !pairs[i].value)
            exit(2);
    }
    return n < PAIRS_MAX ? n : PAIRS_MAX;
}

/* As s3_add_checksum() has it. */
static int hash_of(const json_t *in, char ret[AWS_HASH_HEX])
{
    const char *body = json_string_value(json_object_get(in, "body"));

    if (!body)
        return snprintf(ret, AWS_HASH_HEX, AWS_UNSIGNED_PAYLOAD) < 0;
    return aws_sha256_hex(ret, body, strlen(body));
}

static int answer(const json_t *in)
{
    auto_buf struct buf path = BUF_INIT(TEXT_MAX), query = BUF_INIT(TEXT_MAX);
    auto_buf struct buf authorization = BUF_INIT(TEXT_MAX);
    struct aws_pair params[PAIRS_MAX], headers[PAIRS_MAX];
    const char *key = text_of(in, "key");
    char hash[AWS_HASH_HEX];
    size_t n_params = pairs_of(in, "query", params);
    struct aws_signer signer = {.access_key = text_of(in, "access"),
                                .secret_key = text_of(in, "secret"),
                                .region = text_of(in, "region"),
                                .service = text_of(in, "service")};
    struct aws_signed what = {.method = text_of(in, "method"),
                              .headers = headers,
                              .n_headers = pairs_of(in, "headers", headers),
                              .payload_hash = hash,
                              .date = text_of(in, "date")};
    json_t *out;

    if (hash_of(in, hash) || buf_adds(&path, text_of(in, "base")) ||
        uri_encode(&path, key, strlen(key), true) ||
        aws_canonical_query(&query, params, n_params))
        return 1;
    what.path = path.data;
    what.query = query.data ? query.data : "";
    if (aws_sign(&authorization, &signer, &what))
        return 1;
    out = json_pack("{s:s,s:s,s:s}", "path", what.path, "query", what.query, "authorization",
                    authorization.data);
    if (!out || json_dumpf(out, stdout, JSON_COMPACT))
        return 1;
    json_decref(out);
    return puts("") < 0;
}

int main(void)
{
    char *line = NULL;
    size_t size = 0;
    int result = 0;

    while (!result && getline(&line, &size, stdin) > 0) {
        json_t *in = json_loads(line, 0, NULL);

        result = in ? answer(in) : 1;
        json_decref(in);
    }
    free(line);
    return result;
}
