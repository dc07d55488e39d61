/* The names that stand for all that two routes allow at one place of an object. An earlier
 * route takes a path by what its names begin and end with, so the names to try are: as plain as
 * the two allow, and as short. */
#include "runs/overlap.h"

#include "common/buf.h"
#include "common/mem.h"
#include "runs/match.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* In all codecs the encoding of something. */
#define IN_ALL_CODECS "42222222"

/* ---- a fresh character ---- */

static bool template_has(const struct template *t, const char *text)
{
    for (size_t i = 0; i < t->n; i++)
        if (strstr(t->components[i].before, text) || strstr(t->components[i].after, text))
            return true;
    return false;
}

static bool routes_have(const struct routes *r, const char *text)
{
    for (size_t i = 0; i < r->n; i++)
        if (template_has(&r->items[i].path, text) || template_has(&r->items[i].key, text))
            return true;
    return false;
}

void overlap_fresh(const struct routes *r, char ret[FRESH_MAX])
{
    static const char plain[] = "zyxwvutsrqponmlkjihgfedcba9876543210ZYXWVUTSRQPONMLKJIHGFEDCBA"
                                "_-+~!#$&'()*,:;<=>?@[]^`{|}";

    for (size_t i = 0; i < strlen(plain); i++) {
        (void)snprintf(ret, FRESH_MAX, "%c", plain[i]);
        if (!routes_have(r, ret))
            return;
    }
    for (unsigned c = 0x80; c < 0x800; c++) { /* characters of two bytes */
        (void)snprintf(ret, FRESH_MAX, "%c%c", (int)(0xc0 | c >> 6), (int)(0x80 | (c & 0x3f)));
        if (!routes_have(r, ret))
            return;
    }
}

/* ---- adding a name ---- */

struct names {
    const struct routes *routes;
    const struct slot *slots;
    struct candidates *to;
    int err;
};

/* Whether the slot allows the name, and what it becomes in the path. */
static bool slot_takes(const struct slot *slot, const char *name, size_t len,
                       char shown[PATH_NAME_MAX + 1])
{
    struct buf auto_buf text = BUF_INIT(PATH_NAME_MAX);
    const struct component *c = slot->capture;
    size_t at, n;

    shown[0] = '\0';
    if (slot->literal)
        return slot->literal_len == len && memcmp(slot->literal, name, len) == 0;
    if (!c) {
        memcpy(shown, name, len);
        shown[len] = '\0';
        return true;
    }
    if (!component_takes(c, name, len, &at, &n) ||
        match_name(slot->route, slot->path_at, c->codec, name + at, n, &text) < 0)
        return false;
    memcpy(shown, text.data, text.len + 1);
    return true;
}

/* Whether an earlier route may take a path with that name there. */
static bool route_takes(const struct route *route, size_t path_at, const char *shown)
{
    size_t at, n;

    return path_at >= route->path.n ||
           component_takes(&route->path.components[path_at], shown, strlen(shown), &at, &n);
}

/* Whether `a` is shown wherever `b` is. */
static bool as_good(const struct names *names, const struct candidate *a,
                    const struct candidate *b)
{
    for (size_t side = 0; side < 2; side++) {
        const struct slot *slot = &names->slots[side];

        if (slot->literal)
            continue;
        for (const struct route *e = names->routes->items; e < slot->route; e++)
            if (route_takes(e, slot->path_at, a->shown[side]) &&
                !route_takes(e, slot->path_at, b->shown[side]))
                return false;
    }
    return true;
}

static void keep(struct names *names, const struct candidate *c)
{
    struct candidates *to = names->to;
    size_t n = 0;

    for (size_t i = 0; i < to->n; i++)
        if (as_good(names, &to->items[i], c))
            return;
    for (size_t i = 0; i < to->n; i++)
        if (!as_good(names, c, &to->items[i]))
            to->items[n++] = to->items[i];
    to->n = n;
    if (array_grow(to->items, to->cap, to->n + 1) < 0)
        names->err = -ENOMEM;
    else
        to->items[to->n++] = *c;
}

static void try_name(struct names *names, const char *name, size_t len)
{
    struct candidate c;

    if (!path_name_ok(name, len))
        return;
    memcpy(c.name, name, len);
    c.name[len] = '\0';
    if (slot_takes(&names->slots[0], name, len, c.shown[0]) &&
        slot_takes(&names->slots[1], name, len, c.shown[1]))
        keep(names, &c);
}

/* ---- names of two components ---- */

/* What a name begins and ends with for both slots: the longer of the two, of which the other
 * has to be a part. */
struct affixes {
    const char *before, *after;
    size_t before_len, after_len;
};

static void take_affixes(const struct slot *slot, struct affixes *a)
{
    if (!slot->capture)
        return;
    if (strlen(slot->capture->before) >= a->before_len) {
        a->before = slot->capture->before;
        a->before_len = strlen(a->before);
    }
    if (strlen(slot->capture->after) >= a->after_len) {
        a->after = slot->capture->after;
        a->after_len = strlen(a->after);
    }
}

/* The text between both ends. */
static void try_between(struct names *names, const struct affixes *a, const char *text,
                        size_t len)
{
    char name[3 * PATH_NAME_MAX];
    size_t n = a->before_len;

    memcpy(name, a->before, n);
    memcpy(name + n, text, len);
    n += len;
    memcpy(name + n, a->after, a->after_len);
    try_name(names, name, n + a->after_len);
}

/* The ends one over the other: names that are too short for what has a byte between them. */
static void try_short(struct names *names, const struct affixes *a)
{
    char name[2 * PATH_NAME_MAX];

    memcpy(name, a->before, a->before_len);
    for (size_t n = 0; n <= a->before_len && n <= a->after_len; n++)
        if (memcmp(a->before + a->before_len - n, a->after, n) == 0) {
            memcpy(name + a->before_len, a->after + n, a->after_len - n);
            try_name(names, name, a->before_len + a->after_len - n);
        }
}

/* An encoding within the literals of its own component, with the ends of the other one written
 * over it. */
static void try_over(struct names *names, const struct affixes *a, const struct component *c,
                     const char *text, size_t len)
{
    char name[3 * PATH_NAME_MAX];
    size_t before = strlen(c->before), after = strlen(c->after), n = before + len + after;

    memcpy(name, c->before, before);
    memcpy(name + before, text, len);
    memcpy(name + before + len, c->after, after);
    if (n < a->before_len || n < a->after_len)
        return;
    memcpy(name, a->before, a->before_len);
    memcpy(name + n - a->after_len, a->after, a->after_len);
    try_name(names, name, n);
}

/* A word as it is, and as each slot's codec writes it. */
static void try_word(struct names *names, const struct affixes *a, const char *word, size_t len)
{
    try_between(names, a, word, len);
    for (size_t side = 0; side < 2; side++) {
        const struct component *c = names->slots[side].capture;
        char text[PATH_NAME_MAX];
        size_t n;

        if (c && c->codec != CODEC_NONE && codec_write(c->codec, word, len, text, &n) == 0)
            try_over(names, a, c, text, n);
    }
}

/* A character several times, since the lengths of encodings go in steps. */
static void try_words(struct names *names, const struct affixes *a, const char *character)
{
    static const size_t times[] = {1, 2, 3, 4, 5, 10, 20, 40};
    size_t len = strlen(character);
    char word[40 * FRESH_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
        for (size_t k = 0; k < times[i]; k++)
            memcpy(word + k * len, character, len);
        try_word(names, a, word, times[i] * len);
    }
}

int overlap_names(const struct routes *r, const struct slot slots[2], char letter,
                  const char *fresh, struct candidates *ret)
{
    struct names names = {.routes = r, .slots = slots, .to = ret};
    struct affixes a = {.before = "", .after = ""};
    const struct slot *literal = slots[0].literal ? &slots[0] : &slots[1];

    if (literal->literal) {
        try_name(&names, literal->literal, literal->literal_len);
        return names.err;
    }
    take_affixes(&slots[0], &a);
    take_affixes(&slots[1], &a);
    try_words(&names, &a, (char[]){letter, '\0'});
    try_words(&names, &a, fresh);
    try_between(&names, &a, IN_ALL_CODECS, strlen(IN_ALL_CODECS));
    try_short(&names, &a);
    return names.err;
}
