/* Texts for people without the secrets of the URLs in them. */
#include "cli/redact.h"

#include "backends/store.h"
#include "common/buf.h"
#include "common/mem.h"

#include <ctype.h>
#include <string.h>

#define BLANKS " \t\n"
/* What a message puts around a word. */
#define BEFORE "\"'(<"
#define BEHIND "\"'),.:;>"

static bool is_url(const char *word, size_t len)
{
    size_t scheme = 0;

    while (scheme < len &&
           (isalnum((unsigned char)word[scheme]) || strchr("+-.", word[scheme])))
        scheme++;
    return scheme > 0 && len - scheme > 2 && word[scheme] == ':' && word[scheme + 1] == '/';
}

static int add_word(struct buf *to, const char *word, size_t len)
{
    size_t before = strspn(word, BEFORE);
    int r;

    if (before >= len || !is_url(word + before, len - before))
        return buf_add(to, word, len);
    size_t end = len;
    while (strchr(BEHIND, word[end - 1]))
        end--;
    auto_free char *url = strndup(word + before, end - before);
    auto_free char *shown = url ? store_url_redact(url) : NULL;

    r = shown ? buf_add(to, word, before) : -1;
    if (!r)
        r = buf_adds(to, shown);
    return r ? r : buf_add(to, word + end, len - end);
}

char *redact_words(const char *text)
{
    auto_buf struct buf to = BUF_INIT(4 * strlen(text) + 16);
    int r = buf_adds(&to, "");

    while (*text && !r) {
        size_t blanks = strspn(text, BLANKS), len = strcspn(text + blanks, BLANKS);

        r = buf_add(&to, text, blanks);
        if (!r)
            r = add_word(&to, text + blanks, len);
        text += blanks + len;
    }
    return r ? NULL : buf_take(&to);
}
