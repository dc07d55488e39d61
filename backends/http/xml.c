/* XML in and out. One walker over expat keeps the path of the open elements and the text of the
 * innermost. */
#include "backends/http/xml.h"

#include "common/mem.h"
#include "common/secret.h"

#include <errno.h>
#include <expat.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_MAX_LEN 256

struct walker {
    XML_Parser parser;
    xml_visit start; /* may be NULL; text is "" */
    xml_visit end;
    void *arg;
    char path[PATH_MAX_LEN];
    size_t depth;
    struct buf text; /* of the innermost element */
    int err;
};

static void walk_stop(struct walker *w, int err)
{
    if (!w->err)
        w->err = err;
    (void)XML_StopParser(w->parser, XML_FALSE);
}

static const char *local_name(const char *name)
{
    const char *colon = strrchr(name, ':');

    return colon ? colon + 1 : name;
}

static void on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    struct walker *w = arg;
    size_t len = strlen(w->path);
    int n, err;

    (void)attributes;
    name = local_name(name);
    n = snprintf(w->path + len, sizeof(w->path) - len, "%s%s", len ? "/" : "", name);
    if (w->depth++ >= XML_DEPTH_MAX || n < 0 || (size_t)n >= sizeof(w->path) - len) {
        walk_stop(w, -EPROTO);
        return;
    }
    buf_clear(&w->text);
    err = w->start ? w->start(w->arg, w->path, "") : 0;
    if (err)
        walk_stop(w, err);
}

static void on_end(void *arg, const XML_Char *name)
{
    struct walker *w = arg;
    char *slash;
    int err;

    (void)name;
    if (w->err)
        return;
    err = w->end(w->arg, w->path, w->text.data ? w->text.data : "");
    if (err)
        walk_stop(w, err);
    buf_clear(&w->text);
    slash = strrchr(w->path, '/');
    *(slash ? slash : w->path) = '\0';
    w->depth--;
}

static void on_text(void *arg, const XML_Char *text, int len)
{
    struct walker *w = arg;
    int err = w->err ? 0 : buf_add(&w->text, text, (size_t)len);

    if (err)
        walk_stop(w, err == -EFBIG ? -EPROTO : err);
}

static void on_doctype(void *arg, const XML_Char *name, const XML_Char *system_id,
                       const XML_Char *public_id, int has_subset)
{
    (void)name;
    (void)system_id;
    (void)public_id;
    (void)has_subset;
    walk_stop(arg, -EPROTO);
}

/* With a parser that the walker takes. */
static int walk_by(struct walker *w, const char *data, size_t len)
{
    if (!w->parser)
        return -ENOMEM;
    XML_SetUserData(w->parser, w);
    XML_SetElementHandler(w->parser, on_start, on_end);
    XML_SetCharacterDataHandler(w->parser, on_text);
    XML_SetStartDoctypeDeclHandler(w->parser, on_doctype);
    if (len > INT32_MAX)
        w->err = -EPROTO;
    else if (XML_Parse(w->parser, data ? data : "", (int)len, 1) != XML_STATUS_OK && !w->err)
        w->err = XML_GetErrorCode(w->parser) == XML_ERROR_NO_MEMORY ? -ENOMEM : -EPROTO;
    XML_ParserFree(w->parser);
    buf_release(&w->text);
    return w->err;
}

int xml_walk(const char *data, size_t len, xml_visit start, xml_visit end, void *arg)
{
    struct walker w = {.parser = XML_ParserCreate(NULL),
                       .start = start,
                       .end = end,
                       .arg = arg,
                       .text = BUF_INIT(XML_TEXT_MAX)};

    return walk_by(&w, data, len);
}

/* The same where the text holds keys, and the parser copies what it reads. */
static int walk_secret(const char *data, size_t len, xml_visit end, void *arg)
{
    static const XML_Memory_Handling_Suite memory = {malloc, secret_realloc, secret_free};
    struct walker w = {.parser = XML_ParserCreate_MM(NULL, &memory, NULL),
                       .end = end,
                       .arg = arg,
                       .text = BUF_SECRET(XML_TEXT_MAX)};

    return walk_by(&w, data, len);
}

int xml_replace_text(char **to, const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        return -ENOMEM;
    free(*to);
    *to = copy;
    return 0;
}

/* --- single texts --- */

struct text_walk {
    const char *path;
    char *text;
};

static int text_end(void *arg, const char *path, const char *text)
{
    struct text_walk *t = arg;

    return strcmp(path, t->path) == 0 ? xml_replace_text(&t->text, text) : 0;
}

int xml_text(const char *data, size_t len, const char *path, char **ret)
{
    struct text_walk t = {.path = path};
    int err = walk_secret(data, len, text_end, &t);

    if (!err && !t.text)
        err = -EPROTO;
    if (err) {
        secret_free(t.text);
        return err;
    }
    *ret = t.text;
    return 0;
}

/* --- writing --- */

/* Bytes of the well-formed UTF-8 character at `s`, 0 for a broken one. */
static size_t utf8_len(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t n = s[0] < 0x80                   ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : (s[0] & 0xf0) == 0xe0       ? 3
                                             : 0;

    if (s[0] >= 0xf0 && s[0] < 0xf5)
        n = 4;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if (n == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0)))
        return 0; /* overlong, surrogate */
    if (n == 3 && s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe)
        return 0; /* U+FFFE and U+FFFF are no XML characters */
    if (n == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90)))
        return 0;
    return n;
}

int xml_escape(struct buf *out, const char *text)
{
    int err = 0;

    for (size_t n; *text && !err; text += n) {
        unsigned char c = (unsigned char)*text;

        n = utf8_len(text);
        if (!n || (c < ' ' && c != '\t' && c != '\n' && c != '\r'))
            return -EINVAL;
        if (c < ' ' || c == 0x7f || strchr("&<>\"'", c))
            err = buf_addf(out, "&#%u;", c);
        else
            err = buf_add(out, text, n);
    }
    return err;
}
