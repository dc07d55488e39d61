/* URLs that can be shown to people: without secrets. */
#include "backends/store.h"
#include "common/buf.h"
#include "common/mem.h"

#include <ctype.h>
#include <string.h>

static bool names_secret(const char *name, size_t len)
{
    static const char *const words[] = {"secret", "pass", "token", "sig", "key", "credential"};

    for (size_t i = 0; i + 3 <= len; i++)
        for (size_t j = 0; j < ARRAY_SIZE(words); j++)
            if (len - i >= strlen(words[j]) &&
                strncasecmp(name + i, words[j], strlen(words[j])) == 0)
                return true;
    return false;
}

/* Where the user info ends (its "@"), or NULL. A password may hold an unescaped "/": then what
 * follows the first ":" is not a port, and the last "@" before the query counts. */
static const char *user_info_end(const char *authority, const char *end)
{
    const char *slash = memchr(authority, '/', (size_t)(end - authority));
    const char *host_end = slash ? slash : end;
    const char *at = memrchr(authority, '@', (size_t)(host_end - authority));
    const char *colon = memchr(authority, ':', (size_t)(host_end - authority));

    if (at || !colon)
        return at;
    for (const char *p = colon + 1; p < host_end; p++)
        if (!isdigit((unsigned char)*p))
            return memrchr(authority, '@', (size_t)(end - authority));
    return NULL;
}

static int add_query(struct buf *b, const char *query)
{
    int r = 0;

    while (*query && !r) {
        size_t len = strcspn(query, "&#");
        const char *equals = memchr(query, '=', len);
        if (equals && names_secret(query, (size_t)(equals - query))) {
            r = buf_add(b, query, (size_t)(equals - query) + 1);
            if (!r)
                r = buf_adds(b, "***");
        } else {
            r = buf_add(b, query, len);
        }
        query += len;
        if (*query && !r)
            r = buf_addc(b, *query++);
    }
    return r;
}

char *store_url_redact(const char *url)
{
    auto_buf struct buf b = BUF_INIT(2 * strlen(url) + 16);
    const char *end = url + strcspn(url, "?#");
    const char *authority = strstr(url, "://");
    int r = 0;

    if (authority && authority < end) {
        const char *at = user_info_end(authority + 3, end);
        r = buf_add(&b, url, (size_t)(authority + 3 - url));
        url = at ? at + 1 : authority + 3;
        if (at && !r)
            r = buf_adds(&b, "***@");
    }
    if (!r)
        r = buf_add(&b, url, (size_t)(end - url));
    if (*end && !r)
        r = buf_addc(&b, *end++);
    if (!r)
        r = add_query(&b, end);
    return r ? NULL : buf_take(&b);
}
