/* Names and texts of notes, seals and leases that others put: each is read or refused, and what
 * was read is written so that it is read the same. The first byte chooses which. */
#include "common/mem.h"
#include "runs/note.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void check_ids(const struct note *n)
{
    must(note_is_id(n->cache_id) && !strchr(n->unit, '/'));
    must(strcmp(n->unit, ".") != 0 && strcmp(n->unit, "..") != 0);
}

static void check_name(const char *name)
{
    struct note n;

    if (note_parse(name, &n)) {
        char again[2 * NOTE_UNIT_SIZE];
        check_ids(&n);
        must(note_is_id(n.id));
        (void)snprintf(again, sizeof(again), "%s%s%s~%s~%s", n.unit, *n.unit ? "/" : "",
                       note_kind_word(n.kind), n.cache_id, n.id);
        must(strcmp(again, name) == 0);
    }
    if (seal_parse(name, &n)) {
        char again[2 * NOTE_UNIT_SIZE];
        check_ids(&n);
        (void)snprintf(again, sizeof(again), "%s%s%s", n.unit, *n.unit ? "/" : "", n.cache_id);
        must(strcmp(again, name) == 0);
    }
}

/* Any bytes can be a name of a unit: it gets one U, which is told back. */
static void check_unit(const char *name)
{
    char unit[NOTE_UNIT_SIZE], below[2 * NOTE_UNIT_SIZE];
    struct note n;

    if (strchr(name, '/'))
        return;
    must(note_unit_part(name, unit) == 0);
    (void)snprintf(below, sizeof(below), "%s/0123456789abcdef", unit);
    must(seal_parse(below, &n) && strcmp(n.unit, unit) == 0);
}

static bool same_tail(const struct unit_tail *a, const struct unit_tail *b)
{
    return !a->name == !b->name && (!a->name || strcmp(a->name, b->name) == 0) &&
           strcmp(a->etag, b->etag) == 0 && a->mtime_ns == b->mtime_ns;
}

static void check_note(const uint8_t *data, size_t size)
{
    struct note_body a, b;

    int r = note_decode(data, size, &a);
    must(r == 0 || r == -EBADMSG);
    if (r)
        return;
    auto_free char *text = note_encode(&a);
    must(text && note_decode(text, strlen(text), &b) == 0);
    must(strcmp(a.node, b.node) == 0 && a.since_s == b.since_s &&
         strcmp(a.attempt, b.attempt) == 0 && same_tail(&a.tail, &b.tail));
    note_body_release(&a);
    note_body_release(&b);
}

static void check_lease(const uint8_t *data, size_t size)
{
    struct lease_body a, b;

    int r = lease_decode(data, size, &a);
    must(r == 0 || r == -EBADMSG);
    if (r)
        return;
    auto_free char *text = lease_encode(&a);
    must(text && a.ttl_ns > 0 && lease_decode(text, strlen(text), &b) == 0);
    must(strcmp(a.node, b.node) == 0 && strcmp(a.session, b.session) == 0 &&
         a.ttl_ns == b.ttl_ns && a.beat == b.beat);
    lease_body_release(&a);
    lease_body_release(&b);
}

static void check_seal(const uint8_t *data, size_t size)
{
    struct seal_body a, b;

    int r = seal_decode(data, size, &a);
    must(r == 0 || r == -EBADMSG);
    if (r)
        return;
    auto_free char *text = seal_encode(&a);
    must(text && seal_decode(text, strlen(text), &b) == 0);
    must(a.how == b.how && strcmp(a.attempt, b.attempt) == 0 && a.files == b.files &&
         same_tail(&a.tail, &b.tail));
    seal_body_release(&a);
    seal_body_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    auto_free char *text = strndup((const char *)data + 1, size - 1);

    if (!text)
        return 0;
    switch (data[0] % 4) {
    case 0:
        check_name(text);
        check_unit(text);
        break;
    case 1:
        check_note(data + 1, size - 1);
        break;
    case 2:
        check_lease(data + 1, size - 1);
        break;
    default:
        check_seal(data + 1, size - 1);
    }
    return 0;
}
