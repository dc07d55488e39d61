/* What notes, seals and leases say: JSON that others write, too, and that people may look at
 * with any tool. */
#include "common/buf.h"
#include "common/mem.h"
#include "common/op.h"
#include "runs/note.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES 4095 /* of a tail: a key */

static const char *const hows[] = {"declared", "assumed", "cut"};

const char *seal_how_word(enum seal_how how)
{
    return hows[how];
}

static void json_done(json_t **j)
{
    json_decref(*j);
}
#define own_json __attribute__((cleanup(json_done)))

/* ---- texts ---- */

static json_t *text_json(const char *text)
{
    auto_buf struct buf b = BUF_INIT(NOTE_BODY_MAX);
    int r = buf_adds(&b, "");

    for (; *text && !r; text++) {
        bool shown = *text >= ' ' && *text <= '~' && *text != '%';
        r = shown ? buf_addc(&b, *text) : buf_addf(&b, "%%%02X", (unsigned char)*text);
    }
    return r ? NULL : json_string(b.len ? b.data : "");
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Turns %XX back, in place. False: it is spelled wrong. */
static bool unescape(char *text)
{
    char *to = text;

    for (const char *p = text; *p; p++) {
        if (*p != '%') {
            *to++ = *p;
            continue;
        }
        int high = hex_value(p[1]);
        int low = high >= 0 ? hex_value(p[2]) : -1;
        if (low < 0 || high + low == 0)
            return false;
        *to++ = (char)(high * 16 + low);
        p += 2;
    }
    *to = '\0';
    return true;
}

static int text_of(const json_t *object, const char *field, size_t max, char **ret)
{
    const char *value = json_string_value(json_object_get(object, field));

    if (!value)
        return -EBADMSG;
    auto_free char *text = strdup(value);
    if (!text)
        return -ENOMEM;
    if (!unescape(text) || strlen(text) > max)
        return -EBADMSG;
    *ret = take_ptr(text);
    return 0;
}

/* The same into an array of `size` bytes. */
static int short_text_of(const json_t *object, const char *field, size_t size, char *ret)
{
    auto_free char *text = NULL;
    int r = text_of(object, field, size - 1, &text);

    if (!r)
        memcpy(ret, text, strlen(text) + 1);
    return r;
}

static int integer_of(const json_t *object, const char *field, int64_t least, int64_t *ret)
{
    const json_t *value = json_object_get(object, field);

    if (!json_is_integer(value) || json_integer_value(value) < least)
        return -EBADMSG;
    *ret = json_integer_value(value);
    return 0;
}

/* ---- objects ---- */

static int parse(const void *data, size_t len, json_t **ret)
{
    json_error_t why;
    json_t *j = len <= NOTE_BODY_MAX && len
                    ? json_loadb(data, len, JSON_REJECT_DUPLICATES, &why)
                    : NULL;

    if (!j && len && len <= NOTE_BODY_MAX && json_error_code(&why) == json_error_out_of_memory)
        return -ENOMEM;
    if (json_is_object(j)) {
        *ret = j;
        return 0;
    }
    json_decref(j);
    return -EBADMSG;
}

static char *dump(const json_t *j)
{
    return j ? json_dumps(j, JSON_COMPACT) : NULL;
}

static json_t *tail_json(const struct unit_tail *t)
{
    return json_pack("{s:o, s:o, s:I}", "name", text_json(t->name), "etag", text_json(t->etag),
                     "mtime_ns", (json_int_t)t->mtime_ns);
}

static int tail_of(const json_t *object, struct unit_tail *ret)
{
    const json_t *tail = json_object_get(object, "tail");

    if (!json_is_object(tail))
        return -EBADMSG;
    int r = text_of(tail, "name", NAME_MAX_BYTES, &ret->name);
    if (!r)
        r = short_text_of(tail, "etag", sizeof(ret->etag), ret->etag);
    return r ? r : integer_of(tail, "mtime_ns", INT64_MIN, &ret->mtime_ns);
}

/* ---- notes ---- */

char *note_encode(const struct note_body *b)
{
    own_json json_t *j = json_pack("{s:o, s:I, s:o, s:o*}", "node", text_json(b->node), "since",
                                   (json_int_t)b->since_s, "attempt", text_json(b->attempt),
                                   "tail", b->tail.name ? tail_json(&b->tail) : NULL);

    if (j && b->tail.name && !json_object_get(j, "tail"))
        return NULL;
    return dump(j);
}

static int read_note(const json_t *j, struct note_body *ret)
{
    int r = text_of(j, "node", NOTE_NODE_MAX, &ret->node);

    if (!r)
        r = integer_of(j, "since", INT64_MIN, &ret->since_s);
    if (!r)
        r = text_of(j, "attempt", NOTE_ATTEMPT_MAX, &ret->attempt);
    if (!r && json_object_get(j, "tail"))
        r = tail_of(j, &ret->tail);
    return r;
}

int note_decode(const void *data, size_t len, struct note_body *ret)
{
    own_json json_t *j = NULL;
    struct note_body b = {0};
    int r = parse(data, len, &j);

    if (!r)
        r = read_note(j, &b);
    if (r)
        note_body_release(&b);
    else
        *ret = b;
    return r;
}

void note_body_release(struct note_body *b)
{
    free(b->node);
    free(b->attempt);
    free(b->tail.name);
    *b = (struct note_body){0};
}

/* ---- leases ---- */

char *lease_encode(const struct lease_body *b)
{
    int64_t ms = b->ttl_ns / NS_PER_MS + (b->ttl_ns % NS_PER_MS != 0);

    assert(b->ttl_ns > 0 && b->beat <= INT64_MAX);
    own_json json_t *j =
        json_pack("{s:o, s:s, s:I, s:I}", "node", text_json(b->node), "session", b->session,
                  "ttl", (json_int_t)ms, "beat", (json_int_t)b->beat);
    return dump(j);
}

static int read_lease(const json_t *j, struct lease_body *ret)
{
    int64_t ms, beat;
    int r = text_of(j, "node", NOTE_NODE_MAX, &ret->node);

    if (!r)
        r = short_text_of(j, "session", sizeof(ret->session), ret->session);
    if (!r && !note_is_id(ret->session))
        r = -EBADMSG;
    if (!r)
        r = integer_of(j, "ttl", 1, &ms);
    if (!r)
        r = integer_of(j, "beat", 0, &beat);
    if (!r && ms > INT64_MAX / NS_PER_MS)
        r = -EBADMSG;
    if (!r) {
        ret->ttl_ns = ms * NS_PER_MS;
        ret->beat = (uint64_t)beat;
    }
    return r;
}

int lease_decode(const void *data, size_t len, struct lease_body *ret)
{
    own_json json_t *j = NULL;
    struct lease_body b = {0};
    int r = parse(data, len, &j);

    if (!r)
        r = read_lease(j, &b);
    if (r)
        lease_body_release(&b);
    else
        *ret = b;
    return r;
}

void lease_body_release(struct lease_body *b)
{
    free(b->node);
    *b = (struct lease_body){0};
}

/* ---- seals ---- */

char *seal_encode(const struct seal_body *b)
{
    assert(b->files <= INT64_MAX && b->tail.name);
    own_json json_t *j =
        json_pack("{s:s, s:o, s:I, s:o}", "how", hows[b->how], "attempt", text_json(b->attempt),
                  "files", (json_int_t)b->files, "tail", tail_json(&b->tail));
    return dump(j);
}

static int how_of(const json_t *j, enum seal_how *ret)
{
    const char *word = json_string_value(json_object_get(j, "how"));

    for (size_t i = 0; word && i < ARRAY_SIZE(hows); i++) {
        if (strcmp(hows[i], word) == 0) {
            *ret = (enum seal_how)i;
            return 0;
        }
    }
    return -EBADMSG;
}

static int read_seal(const json_t *j, struct seal_body *ret)
{
    int64_t files = 0;
    int r = how_of(j, &ret->how);

    if (!r)
        r = text_of(j, "attempt", NOTE_ATTEMPT_MAX, &ret->attempt);
    if (!r)
        r = integer_of(j, "files", 0, &files);
    ret->files = (uint64_t)files;
    return r ? r : tail_of(j, &ret->tail);
}

int seal_decode(const void *data, size_t len, struct seal_body *ret)
{
    own_json json_t *j = NULL;
    struct seal_body b = {0};
    int r = parse(data, len, &j);

    if (!r)
        r = read_seal(j, &b);
    if (r)
        seal_body_release(&b);
    else
        *ret = b;
    return r;
}

void seal_body_release(struct seal_body *b)
{
    free(b->attempt);
    free(b->tail.name);
    *b = (struct seal_body){0};
}
