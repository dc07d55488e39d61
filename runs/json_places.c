/* JSON with places. jansson judges the text; a scanner then finds where each value of it lies,
 * and gives each word to jansson alone. So the scanner meets legal JSON only. */
#include "runs/json_places.h"

#include "common/mem.h"

#include <stdint.h>

struct scan {
    const char *text;
    size_t len, at;
    unsigned line;
    size_t line_at; /* where the line begins */
};

static struct text_place place_of(const struct scan *s)
{
    return (struct text_place){.line = s->line, .column = (unsigned)(s->at - s->line_at) + 1};
}

static void step(struct scan *s)
{
    if (s->text[s->at++] == '\n') {
        s->line++;
        s->line_at = s->at;
    }
}

/* NUL at the end: no other is in legal JSON. */
static char peek(const struct scan *s)
{
    if (s->at == s->len)
        return '\0';
    return s->text[s->at];
}

/* What separates values says nothing more in a text that is known to be legal. */
static char next_word(struct scan *s)
{
    while (peek(s) && strchr(" \t\r\n,:", peek(s)))
        step(s);
    return peek(s);
}

static void skip_text(struct scan *s)
{
    step(s);
    while (peek(s) && peek(s) != '"') {
        if (peek(s) == '\\')
            step(s);
        if (peek(s))
            step(s);
    }
    if (peek(s))
        step(s);
}

static int read_word(struct scan *s, json_t **ret)
{
    size_t from = s->at;
    json_error_t where;

    if (peek(s) == '"')
        skip_text(s);
    else
        while (peek(s) && !strchr(" \t\r\n,:]}", peek(s)))
            step(s);
    *ret = json_loadb(s->text + from, s->at - from, JSON_DECODE_ANY, &where);
    if (*ret)
        return 0;
    return json_error_code(&where) == json_error_out_of_memory ? -ENOMEM : -EINVAL;
}

static struct json_node *add_item(struct json_node *to)
{
    if (array_grow(to->items, to->cap, to->n + 1))
        return NULL;
    to->items[to->n] = (struct json_node){0};
    return &to->items[to->n++];
}

static int read_name(struct scan *s, struct json_node *member)
{
    json_t *word = NULL;
    int err;

    member->name_at = place_of(s);
    err = read_word(s, &word);
    if (err)
        return err;
    member->name = json_is_string(word) ? strdup(json_string_value(word)) : NULL;
    err = member->name ? 0 : json_is_string(word) ? -ENOMEM : -EINVAL;
    json_decref(word);
    return err;
}

static int read_value(struct scan *s, struct json_node *node);

static int read_items(struct scan *s, struct json_node *node, char end)
{
    step(s);
    while (next_word(s) != end) {
        struct json_node *item = peek(s) ? add_item(node) : NULL;
        int err = item ? 0 : peek(s) ? -ENOMEM : -EINVAL;

        if (!err && node->type == JSON_OBJECT)
            err = read_name(s, item);
        if (!err)
            err = read_value(s, item);
        if (err)
            return err;
    }
    step(s);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct json_node *const *x = a, *const *y = b;
    int order = strcmp((*x)->name, (*y)->name);

    return order ? order : (*x > *y) - (*x < *y);
}

static int mark_again(struct json_node *object)
{
    auto_free struct json_node **sorted = NULL;

    if (object->n < 2)
        return 0;
    sorted = calloc(object->n, sizeof(struct json_node *));
    if (!sorted)
        return -ENOMEM;
    for (size_t i = 0; i < object->n; i++)
        sorted[i] = &object->items[i];
    qsort(sorted, object->n, sizeof(*sorted), by_name);
    for (size_t i = 1; i < object->n; i++)
        sorted[i]->again = strcmp(sorted[i]->name, sorted[i - 1]->name) == 0;
    return 0;
}

/* jansson allows no text that is nested so deeply that this would need too much of a stack. */
static int read_value(struct scan *s, struct json_node *node)
{
    char first = next_word(s);
    int err;

    node->at = place_of(s);
    node->type = first == '{' ? JSON_OBJECT : JSON_ARRAY;
    if (first == '[')
        return read_items(s, node, ']');
    if (first != '{') {
        err = read_word(s, &node->value);
        if (!err)
            node->type = json_typeof(node->value);
        return err;
    }
    err = read_items(s, node, '}');
    return err ? err : mark_again(node);
}

/* In our words: jansson's own quote the text. */
static const char *why_no_json(enum json_error_code code)
{
    switch (code) {
    case json_error_premature_end_of_input:
        return "the JSON ends too early; a bracket, brace or quote is not closed";
    case json_error_end_of_input_expected:
        return "something follows behind the end of the JSON";
    case json_error_invalid_utf8:
        return "no JSON: this is no UTF-8";
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return "a text can't hold \\u0000";
    case json_error_numeric_overflow:
        return "the number is too large";
    case json_error_stack_overflow:
        return "nested too deeply";
    default:
        return "no JSON: a comma, colon, quote or bracket is missing or out of place here";
    }
}

/* The place of the last byte that was read. */
static struct text_place place_of_end(const char *text, size_t len, int position)
{
    struct scan s = {.text = text, .len = len, .line = 1};
    size_t end = position > 0 ? (size_t)position - 1 : 0;

    while (s.at < end && s.at < len)
        step(&s);
    return place_of(&s);
}

/* Whether jansson takes the text. */
static int judge(const char *text, size_t len, struct text_place *ret_at, const char **ret_why)
{
    json_error_t where;
    json_t *whole = json_loadb(text, len, JSON_DECODE_ANY, &where);

    if (whole) {
        json_decref(whole);
        return 0;
    }
    if (json_error_code(&where) == json_error_out_of_memory)
        return -ENOMEM;
    *ret_at = place_of_end(text, len, where.position);
    *ret_why = why_no_json(json_error_code(&where));
    return -EINVAL;
}

int json_places_parse(const char *text, size_t len, struct json_node *ret,
                      struct text_place *ret_at, const char **ret_why)
{
    struct scan s = {.text = text, .len = len, .line = 1};
    struct json_node root = {0};
    int err = judge(text, len, ret_at, ret_why);

    if (err)
        return err;
    err = read_value(&s, &root);
    if (err) {
        json_node_release(&root);
        *ret_at = place_of(&s);
        *ret_why = why_no_json(json_error_invalid_syntax);
        return err;
    }
    *ret = root;
    return 0;
}

void json_node_release(struct json_node *node)
{
    for (size_t i = 0; i < node->n; i++)
        json_node_release(&node->items[i]);
    free(node->items);
    free(node->name);
    json_decref(node->value);
    *node = (struct json_node){0};
}

const struct json_node *json_node_get(const struct json_node *object, const char *name)
{
    for (size_t i = 0; i < object->n; i++)
        if (object->items[i].name && strcmp(object->items[i].name, name) == 0)
            return &object->items[i];
    return NULL;
}
