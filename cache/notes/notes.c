/* Requests for notes and seals; see notes.h. */
#include "cache/notes/notes.h"

#include "cache/notes/notes_impl.h"
#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <string.h>

static int no_memory(struct op *op)
{
    return op_fail(op, -ENOMEM, "out of memory");
}

/* ---- where they lie ---- */

int notes_at_parent(struct store *s, struct op *op, const char *dir, struct notes_at *ret)
{
    *ret = (struct notes_at){.store = s};
    return store_state_of(s, op, dir, true, &ret->state, &ret->parent);
}

int notes_at_unit(struct store *s, struct op *op, const char *dir, struct notes_at *ret)
{
    struct notes_at at;

    *ret = (struct notes_at){0};
    int r = notes_at_parent(s, op, dir, &at);
    if (r < 0)
        return r;
    auto_free char *whole = take_ptr(at.parent);
    at.parent = path_parent(whole);
    at.name = strdup(path_basename(whole));
    if (at.parent && at.name) {
        *ret = at;
        return 0;
    }
    notes_at_release(&at);
    return no_memory(op);
}

void notes_at_release(struct notes_at *at)
{
    free(at->state);
    free(at->parent);
    free(at->name);
    *at = (struct notes_at){0};
}

/* "units/P" or "units/P/U" in the state; heap. */
static char *notes_key(const struct notes_at *at)
{
    auto_free char *rest =
        at->name ? note_unit_key(at->parent, at->name) : note_parent_key(at->parent);

    return rest ? own_key(at->state, rest) : NULL;
}

static char *note_key_at(const struct notes_at *at, enum note_kind kind, const char *cache_id,
                         const char *id)
{
    auto_free char *unit = notes_key(at);

    return unit ? note_key(unit, kind, cache_id, id) : NULL;
}

static char *seal_key_at(const struct notes_at *at, const char *cache_id)
{
    auto_free char *rest = seal_key(at->parent, at->name, cache_id);

    return rest ? own_key(at->state, rest) : NULL;
}

/* ---- one object ---- */

/* Both heap, or NULL without memory. */
static int put_text(const struct notes_at *at, struct op *op, const char *key, const char *text)
{
    return key && text ? own_put(at->store, op, key, text) : no_memory(op);
}

static int remove_key(const struct notes_at *at, struct op *op, const char *key)
{
    return key ? store_remove(at->store, op, &key, NULL, 1, NULL) : no_memory(op);
}

static int read_text(const struct notes_at *at, struct op *op, const char *key, char **ret,
                     size_t *ret_len)
{
    return key ? own_read(at->store, op, key, ret, ret_len, NULL) : no_memory(op);
}

static int undecoded(const struct notes_at *at, struct op *op, const char *key, int err)
{
    if (err == -ENOMEM)
        return no_memory(op);
    return op_fail(op, err, "%s/%s says nothing that runfs writes", at->store->url, key);
}

int notes_put(const struct notes_at *at, struct op *op, enum note_kind kind,
              const char *cache_id, const char *id, const struct note_body *body)
{
    auto_free char *key = note_key_at(at, kind, cache_id, id);
    auto_free char *text = note_encode(body);

    return put_text(at, op, key, text);
}

int notes_remove(const struct notes_at *at, struct op *op, enum note_kind kind,
                 const char *cache_id, const char *id)
{
    auto_free char *key = note_key_at(at, kind, cache_id, id);

    return remove_key(at, op, key);
}

int notes_read(const struct notes_at *at, struct op *op, const struct note *note,
               struct note_body *ret)
{
    auto_free char *key = note_key_at(at, note->kind, note->cache_id, note->id);
    auto_free char *text = NULL;
    size_t len;

    int r = read_text(at, op, key, &text, &len);
    if (r < 0)
        return r;
    r = note_decode(text, len, ret);
    return r < 0 ? undecoded(at, op, key, r) : 0;
}

int seal_put(const struct notes_at *at, struct op *op, const char *cache_id,
             const struct seal_body *body)
{
    auto_free char *key = seal_key_at(at, cache_id);
    auto_free char *text = seal_encode(body);

    return put_text(at, op, key, text);
}

int seal_remove(const struct notes_at *at, struct op *op, const char *cache_id)
{
    auto_free char *key = seal_key_at(at, cache_id);

    return remove_key(at, op, key);
}

int seal_read(const struct notes_at *at, struct op *op, const char *cache_id,
              struct seal_body *ret)
{
    auto_free char *key = seal_key_at(at, cache_id);
    auto_free char *text = NULL;
    size_t len;

    int r = read_text(at, op, key, &text, &len);
    if (r < 0)
        return r;
    r = seal_decode(text, len, ret);
    return r < 0 ? undecoded(at, op, key, r) : 0;
}

/* ---- listings ---- */

struct note_listing {
    bool (*parse)(const char *name, struct note *ret);
    notes_visit visit;
    void *arg;
    bool of_unit; /* names without U */
};

/* A name with U has just one "/", one without has none. */
static int visit_note(void *arg, const char *name, const struct object *obj)
{
    const struct note_listing *l = arg;
    struct note note;

    if (obj->is_prefix || !l->parse(name, &note) || !*note.unit != l->of_unit)
        return 0;
    return l->visit(l->arg, &note);
}

static int list_below(const struct notes_at *at, struct op *op, const char *key,
                      struct note_listing *l)
{
    l->of_unit = at->name != NULL;
    if (!key)
        return no_memory(op);
    int r = store_list(at->store, op, key, LIST_RECURSIVE, visit_note, l);
    return r == -ENOENT ? 0 : r;
}

int notes_list(const struct notes_at *at, struct op *op, notes_visit visit, void *arg)
{
    struct note_listing l = {.parse = note_parse, .visit = visit, .arg = arg};
    auto_free char *key = notes_key(at);

    return list_below(at, op, key, &l);
}

/* "whole/P" or "whole/P/U" in the state; heap. */
static char *seals_key(const struct notes_at *at)
{
    char unit[NOTE_UNIT_SIZE];
    auto_free char *rest = seal_parent_key(at->parent);
    auto_free char *all = rest ? own_key(at->state, rest) : NULL;

    if (!all || !at->name)
        return take_ptr(all);
    return note_unit_part(at->name, unit) < 0 ? NULL : own_key(all, unit);
}

int seals_list(const struct notes_at *at, struct op *op, notes_visit visit, void *arg)
{
    struct note_listing l = {.parse = seal_parse, .visit = visit, .arg = arg};
    auto_free char *key = seals_key(at);

    return list_below(at, op, key, &l);
}

struct parent_listing {
    int (*visit)(void *arg, const char *parent);
    void *arg;
};

static int visit_parent(void *arg, const char *name, const struct object *obj)
{
    const struct parent_listing *l = arg;

    return obj->is_prefix && note_is_parent(name) ? l->visit(l->arg, name) : 0;
}

int notes_list_parents(struct store *s, struct op *op, const char *state,
                       int (*visit)(void *arg, const char *parent), void *arg)
{
    struct parent_listing l = {.visit = visit, .arg = arg};
    auto_free char *key = own_key(state, NOTES_DIR);

    if (!key)
        return no_memory(op);
    int r = store_list(s, op, key, 0, visit_parent, &l);
    return r == -ENOENT ? 0 : r;
}
