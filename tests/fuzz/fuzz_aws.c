/* AWS's profile files, command lines in them, and the JSON that hands out keys: any bytes are
 * read or refused with a reason, and what is accepted can stand in a request. */
#include "backends/auth/aws_http.h"
#include "backends/auth/aws_process.h"
#include "backends/auth/aws_profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_keys(struct aws_keys *keys)
{
    must(keys->access_key && *keys->access_key && keys->secret_key && *keys->secret_key);
    must(!strpbrk(keys->access_key, " \r\n"));
    must(!keys->session_token || !strpbrk(keys->session_token, " \r\n"));
    aws_keys_release(keys);
}

static void check_settings(const struct aws_profiles *p, struct op *op)
{
    static const char *const names[] = {"region", "role_arn", "credential_process",
                                        "sso_session"};
    struct aws_settings s;

    must(aws_settings_load(p, op, &s) == 0);
    aws_settings_release(&s);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = aws_profile_get(p, "default", NULL, names[i]);

        must(!value || *value);
    }
    (void)aws_profile_endpoint(p, "default", "sts");
}

static void try_profiles(const char *credentials, const char *config)
{
    struct aws_profiles *p;
    struct aws_keys keys;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (aws_profiles_parse(NULL, credentials, config, &op, &p))
        abort(); /* no profile was asked for: nothing can be missing */
    check_settings(p, &op);
    for (int file = AWS_CREDENTIALS_FILE; file <= AWS_CONFIG_FILE; file++) {
        int r = aws_profile_keys(p, "default", file, &op, &keys);

        must(r == 1 || r == 0 || (r == -EINVAL && op.why[0]));
        if (r == 1)
            check_keys(&keys);
    }
    aws_profiles_free(p);
}

static void try_command(const char *line)
{
    char **words;

    if (aws_split_command(line, &words))
        return;
    must(words[0] != NULL);
    for (size_t i = 0; words[i]; i++)
        must(strlen(words[i]) <= strlen(line));
    aws_free_command(words);
}

static void try_json(const char *text, size_t len)
{
    struct aws_keys keys;
    int64_t expiry;
    struct op op;

    op_init(&op, OP_FOREVER);
    if (aws_keys_from_json("fuzz", text, len, "Token", &op, &keys) == 0)
        check_keys(&keys);
    else
        must(op.why[0]);
    if (aws_parse_expiry(text, &expiry) == 0)
        must(expiry >= 0);
}

/* The credentials file, a line "---", the config file. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *second;

    must(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    try_json(text, size);
    try_command(text);
    second = strstr(text, "\n---\n");
    if (second) {
        *second = '\0';
        second += 5;
    }
    unsetenv("AWS_PROFILE");
    unsetenv("AWS_DEFAULT_PROFILE");
    try_profiles(text, second);
    free(text);
    return 0;
}
