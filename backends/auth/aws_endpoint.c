/* Where a service is: its endpoint and its region. */
#include "backends/auth/aws_endpoint.h"

#include "backends/store.h"
#include "common/mem.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

static bool host_ok(const char *host, size_t len)
{
    if (len == 0)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)host[i]) && !strchr("-._:[]", host[i]))
            return false;
    return true;
}

/* curl leaves a scheme's own port out of the Host header, so the signature must, too. */
static void drop_standard_port(char *host, bool https)
{
    size_t len = strlen(host), port_len = https ? 4 : 3;

    if (len > port_len && strcmp(host + len - port_len, https ? ":443" : ":80") == 0)
        host[len - port_len] = '\0';
}

int aws_endpoint_parse(const char *url, struct op *op, struct aws_endpoint *ret)
{
    static const char expected[] = "expected https://HOST[:PORT] or http://HOST[:PORT]";
    auto_free char *shown = url ? store_url_redact(url) : NULL;
    struct aws_endpoint e = {.https = true};
    const char *at = url, *scheme_end;
    size_t host_len, base_len;

    if (!url || !*url) {
        *ret = e;
        return 0;
    }
    if (!shown)
        return op_fail(op, -ENOMEM, "out of memory");
    if (strchr(url, '@'))
        return op_fail(op, -EINVAL, "endpoint: a user name or password has no place in it; %s",
                       expected);
    scheme_end = strstr(url, "://");
    if (scheme_end) {
        e.https = strncasecmp(url, "https://", 8) == 0;
        if (!e.https && strncasecmp(url, "http://", 7) != 0)
            return op_fail(op, -EINVAL, "endpoint: unknown scheme \"%.*s\"; %s",
                           (int)(scheme_end - url > 20 ? 20 : scheme_end - url), url, expected);
        at = scheme_end + 3;
    } else {
        return op_fail(op, -EINVAL,
                       "endpoint %.100s: whether it takes TLS must be said: https://%.100s or "
                       "http://%.100s",
                       shown, shown, shown);
    }
    host_len = strcspn(at, "/");
    base_len = strlen(at + host_len);
    while (base_len && at[host_len + base_len - 1] == '/')
        base_len--;
    if (!host_ok(at, host_len) || host_len >= sizeof(e.host) - AWS_LABEL_MAX ||
        base_len >= sizeof(e.base) || strpbrk(at, "?#% "))
        return op_fail(op, -EINVAL, "endpoint %.100s: %s", shown, expected);
    e.custom = true;
    memcpy(e.host, at, host_len);
    memcpy(e.base, at + host_len, base_len);
    for (char *c = e.host; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    drop_standard_port(e.host, e.https);
    *ret = e;
    return 0;
}

bool aws_region_ok(const char *region)
{
    size_t len = strlen(region);

    if (len == 0 || len >= AWS_REGION_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)region[i]) && region[i] != '-' && region[i] != '_')
            return false;
    return true;
}
