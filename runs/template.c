/* Templates: their text taken apart, copied and compared with one name. */
#include "runs/template.h"

#include "common/buf.h"
#include "common/mem.h"
#include "common/nearest.h"
#include "common/path.h"

#include <errno.h>
#include <string.h>

/* A component's text on its way into the component. */
struct reader {
    struct op *op;
    enum template_side side;
    const char *text;
    size_t len, at;
};

/* What messages quote of a component; a long one is cut. */
#define QUOTED(rd) (int)((rd)->len < 80 ? (rd)->len : 80), (rd)->text

static const char *side_name(enum template_side side)
{
    return side == TEMPLATE_PATH ? "path" : "key";
}

static bool is_name_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (!first && ((c >= '0' && c <= '9') || c == '_'));
}

static int unknown_codec(struct reader *rd, const char *name, size_t len)
{
    char word[32];
    struct nearest n;

    len = len < sizeof(word) ? len : sizeof(word) - 1;
    memcpy(word, name, len);
    word[len] = '\0';
    nearest_init(&n, word);
    for (int c = CODEC_NONE + 1; c < CODEC_N; c++)
        nearest_try(&n, codec_name((enum codec)c));
    if (n.best)
        return op_fail(rd->op, -EINVAL,
                       "unknown codec \"%s\" in \"%.*s\", did you mean \"%s\"?", word,
                       QUOTED(rd), n.best);
    return op_fail(rd->op, -EINVAL,
                   "unknown codec \"%s\" in \"%.*s\"; there are b32, hex and pct", word,
                   QUOTED(rd));
}

/* The text in braces: a name, perhaps with a codec. */
static int read_capture(struct reader *rd, const char *inner, size_t len, struct component *c)
{
    size_t n = 0;

    while (n < len && is_name_char(inner[n], n == 0))
        n++;
    if (n == 0 || (n < len && inner[n] != ':'))
        return op_fail(
            rd->op, -EINVAL,
            "no name of a capture in \"%.*s\": it begins with one of a-z and goes on "
            "with a-z, 0-9 and _",
            QUOTED(rd));
    if (n < len && codec_by_name(inner + n + 1, len - n - 1, &c->codec) < 0)
        return unknown_codec(rd, inner + n + 1, len - n - 1);
    if (n < len && rd->side == TEMPLATE_PATH)
        return op_fail(rd->op, -EINVAL,
                       "a codec in \"%.*s\": \"path\" can't have one, \"key\" can", QUOTED(rd));
    c->capture = strndup(inner, n);
    return c->capture ? 0 : -ENOMEM;
}

/* At a "{" that is no brace of a literal. */
static int read_braces(struct reader *rd, struct component *c)
{
    const char *inner = rd->text + rd->at + 1;
    const char *end = memchr(inner, '}', rd->len - rd->at - 1);

    if (!end)
        return op_fail(rd->op, -EINVAL, "no \"}\" behind \"{\" in \"%.*s\"", QUOTED(rd));
    if (c->capture)
        return op_fail(rd->op, -EINVAL, "two captures in \"%.*s\"", QUOTED(rd));
    rd->at = (size_t)(end + 1 - rd->text);
    return read_capture(rd, inner, (size_t)(end - inner), c);
}

/* One byte of a literal, a doubled brace, or a capture. */
static int read_one(struct reader *rd, struct component *c, struct buf *literal[2])
{
    char byte = rd->text[rd->at];
    bool brace = byte == '{' || byte == '}';

    if (brace && rd->at + 1 < rd->len && rd->text[rd->at + 1] == byte)
        rd->at++;
    else if (byte == '{')
        return read_braces(rd, c);
    else if (byte == '}')
        return op_fail(rd->op, -EINVAL, "no \"{\" before \"}\" in \"%.*s\"", QUOTED(rd));
    rd->at++;
    return buf_addc(literal[c->capture != NULL], byte);
}

static int check_literal(const struct reader *rd, const struct component *c, bool first)
{
    size_t len = strlen(c->before) + strlen(c->after) + (c->capture != NULL);

    if (len > PATH_NAME_MAX)
        return op_fail(rd->op, -EINVAL, "\"%.*s...\" is longer than a name of %d bytes",
                       QUOTED(rd), PATH_NAME_MAX);
    if (c->capture)
        return 0;
    if (!path_name_ok(c->before, len) ||
        (first && rd->side == TEMPLATE_PATH && strcmp(c->before, PATH_RESERVED) == 0))
        return op_fail(rd->op, -EINVAL, "\"%s\" can't be a component%s", c->before,
                       len ? "" : ": \"/\" stands between two names only");
    return 0;
}

static int read_component(struct reader *rd, bool first, struct component *c)
{
    struct buf auto_buf before = BUF_INIT(TEMPLATE_TEXT_MAX);
    struct buf auto_buf after = BUF_INIT(TEMPLATE_TEXT_MAX);
    struct buf *literal[2] = {&before, &after};
    int r = 0;

    while (r == 0 && rd->at < rd->len)
        r = read_one(rd, c, literal);
    if (r < 0)
        return r;
    c->before = buf_take(&before);
    c->after = buf_take(&after);
    return c->before && c->after ? check_literal(rd, c, first) : -ENOMEM;
}

static int add_component(struct template *t, struct reader *rd, size_t *cap)
{
    struct component *c;

    if (t->n == TEMPLATE_COMPONENTS_MAX)
        return op_fail(rd->op, -EINVAL, "more than %d components in \"%s\"",
                       TEMPLATE_COMPONENTS_MAX, side_name(rd->side));
    if (array_grow(t->components, *cap, t->n + 1) < 0)
        return -ENOMEM;
    c = &t->components[t->n++];
    *c = (struct component){.codec = CODEC_NONE};
    return read_component(rd, t->n == 1, c);
}

static int read_all(struct template *t, enum template_side side, struct op *op)
{
    size_t cap = 0;

    for (const char *at = t->text;; at++) {
        size_t len = (size_t)(strchrnul(at, '/') - at);
        struct reader rd = {.op = op, .side = side, .text = at, .len = len};
        int r;

        t->rest = len == 2 && memcmp(at, "**", 2) == 0;
        if (t->rest && at[len])
            return op_fail(op, -EINVAL, "\"**\" is not the last of \"%s\"", side_name(side));
        r = t->rest ? 0 : add_component(t, &rd, &cap);
        at += len;
        if (r < 0 || !*at)
            return r;
    }
}

/* What no name can have the form of: a capture twice, or too long. */
static int check_all(const struct template *t, enum template_side side, struct op *op)
{
    size_t least = t->rest ? 2 : 0; /* with the NUL */

    for (size_t i = 0; i < t->n; i++) {
        const struct component *c = &t->components[i];

        least += strlen(c->before) + (c->capture != NULL) + strlen(c->after) + 1;
        for (size_t k = 0; c->capture && k < i; k++)
            if (t->components[k].capture && strcmp(t->components[k].capture, c->capture) == 0)
                return op_fail(op, -EINVAL, "\"%s\" has {%.80s} twice", side_name(side),
                               c->capture);
    }
    if (least > PATH_KEY_MAX)
        return op_fail(op, -EINVAL, "\"%s\" is longer than %d bytes", side_name(side),
                       PATH_KEY_MAX - 1);
    return 0;
}

int template_parse(const char *text, enum template_side side, struct op *op,
                   struct template *ret)
{
    struct template t = {.text = NULL};
    int r;

    if (strlen(text) >= TEMPLATE_TEXT_MAX)
        return op_fail(op, -EINVAL, "\"%s\" is longer than %d bytes", side_name(side),
                       TEMPLATE_TEXT_MAX - 1);
    t.text = strdup(text);
    r = t.text ? read_all(&t, side, op) : -ENOMEM;
    if (r == 0)
        r = check_all(&t, side, op);
    if (r < 0)
        template_release(&t);
    else
        *ret = t;
    return r;
}

void template_release(struct template *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->components[i].before);
        free(t->components[i].capture);
        free(t->components[i].after);
    }
    free(t->components);
    free(t->text);
    *t = (struct template){.text = NULL};
}

static int component_copy(struct component *to, const struct component *from)
{
    to->before = strdup(from->before);
    to->after = strdup(from->after);
    to->capture = from->capture ? strdup(from->capture) : NULL;
    to->codec = from->codec;
    return to->before && to->after && !to->capture == !from->capture ? 0 : -ENOMEM;
}

int template_copy(struct template *to, const struct template *from)
{
    int r;

    *to = (struct template){.text = strdup(from->text), .rest = from->rest};
    if (from->n)
        to->components = calloc(from->n, sizeof(*to->components));
    r = to->text && (to->components || from->n == 0) ? 0 : -ENOMEM;
    while (r == 0 && to->n < from->n) {
        r = component_copy(&to->components[to->n], &from->components[to->n]);
        to->n++;
    }
    if (r < 0)
        template_release(to);
    return r;
}

bool component_takes(const struct component *c, const char *name, size_t len, size_t *ret_at,
                     size_t *ret_len)
{
    size_t before = strlen(c->before), after = strlen(c->after);

    if (c->capture ? len <= before + after : len != before)
        return false;
    if (memcmp(name, c->before, before) != 0 ||
        memcmp(name + len - after, c->after, after) != 0)
        return false;
    *ret_at = before;
    *ret_len = len - before - after;
    return true;
}
