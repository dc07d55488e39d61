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

/* A path, and what follows "file:" and "mem:", is a name in which "@" means nothing. */
static bool is_plain_name(const char *url)
{
    return url[0] == '/' || strncasecmp(url, "file:", 5) == 0 ||
           strncasecmp(url, "mem:", 4) == 0;
}

/* Where user info would begin, or NULL. Behind too many or too few "/", where it has no place,
 * people write it all the same: then it is *ret_doubtful. */
static const char *user_info_begin(const char *url, bool *ret_doubtful)
{
    const char *name = url + strcspn(url, "?#");
    const char *colon = memchr(url, ':', (size_t)(name - url));
    const char *at = colon ? colon + 1 : url;
    size_t slashes = strspn(at, "/");

    *ret_doubtful = slashes != 2;
    if (!colon || (is_plain_name(url) && slashes != 2))
        return NULL;
    return slashes ? at + slashes : url;
}

/* Where the user info ends (its "@"), or NULL. A password may hold an unescaped "/", "?" or
 * "#": then what follows the first ":" is not a port, and the last "@" counts. */
static const char *user_info_end(const char *begin, bool doubtful)
{
    const char *host_end = begin + strcspn(begin, "/?#");
    const char *at = memrchr(begin, '@', (size_t)(host_end - begin));
    const char *colon = memchr(begin, ':', (size_t)(host_end - begin));

    if (!colon || (at && colon > at))
        return doubtful ? NULL : at;
    if (at)
        return at;
    for (const char *p = colon + 1; p < host_end; p++)
        if (!isdigit((unsigned char)*p))
            return strrchr(p, '@');
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
    bool doubtful;
    const char *begin = user_info_begin(url, &doubtful);
    const char *at = begin ? user_info_end(begin, doubtful) : NULL;
    int r = 0;

    if (at) {
        r = buf_add(&b, url, (size_t)(begin - url));
        if (!r)
            r = buf_adds(&b, "***@");
        url = at + 1;
    }
    const char *end = url + strcspn(url, "?#");
    if (!r)
        r = buf_add(&b, url, (size_t)(end - url));
    if (*end && !r)
        r = buf_addc(&b, *end++);
    if (!r)
        r = add_query(&b, end);
    return r ? NULL : buf_take(&b);
}
