/* What aws_fetch.c and aws_sts.c share: one request with a few attempts, files with tokens. */
#ifndef RUNFS_BACKENDS_AUTH_AWS_HTTP_H
#define RUNFS_BACKENDS_AUTH_AWS_HTTP_H

#include "backends/auth/aws_fetch.h"

/* A request for keys. Its answer's body holds secrets: and is overwritten by
 * http_answer_release(). */
struct aws_request {
    const char *what; /* for messages: "STS AssumeRole" */
    const char *method;
    const char *url;
    const char *const *headers;
    size_t n_headers;
    struct source *body;
    bool near;           /* of this machine */
    unsigned attempts;   /* 0: three */
    int64_t patience_ns; /* for each; 0: ten seconds */
};

/* Sends it until an answer other than 429 and 5xx comes. 0 for 2xx; else the errno of the
 * status with only the status in the text: the answer is there for the caller to say more. */
int aws_request_run(struct aws_fetch *f, struct op *op, const struct aws_request *req,
                    struct http_answer *ret);
#define auto_aws_answer __attribute__((cleanup(http_answer_release)))

/* The errno that a refusal has towards the store's user. */
int aws_refusal(int err);

/* The text of a small file without space around it, heap; free it with aws_free_secret().
 * `what` names it in messages. */
int aws_read_file(const char *path, const char *what, struct op *op, char **ret);

/* An ISO 8601 time to CLOCK_REALTIME ns. -EPROTO. */
int aws_parse_expiry(const char *text, int64_t *ret_ns);

/* Takes keys out of the JSON object that containers, instances and processes answer with:
 * AccessKeyId, SecretAccessKey, `token_name`, Expiration. -EACCES with a text when it says an
 * error instead, -EPROTO when it makes no sense. */
int aws_keys_from_json(const char *what, const char *text, size_t len, const char *token_name,
                       struct op *op, struct aws_keys *ret);

#endif
