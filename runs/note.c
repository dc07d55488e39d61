/* The names of notes, seals and leases in the state of a store. */
#include "runs/note.h"

#include "common/buf.h"
#include "common/mem.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define HASHED     '~' /* stands in no name that is spelled */
#define HASH_BYTES 32

static const char *const kinds[NOTE_KINDS] = {"open", "last", "take", "gone", "lock"};

const char *note_kind_word(enum note_kind kind)
{
    return kinds[kind];
}

/* ---- parts ---- */

/* The first `bytes` of the SHA-256, in hex. */
static int hash_hex(const char *text, size_t bytes, char *ret)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    if (!EVP_Digest(text, strlen(text), hash, &len, EVP_sha256(), NULL))
        return -ENOMEM;
    assert(len == HASH_BYTES && bytes <= len);
    for (size_t i = 0; i < bytes; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", hash[i]);
    return 0;
}

int note_parent_part(const char *parent_key, char ret[NOTE_PARENT_SIZE])
{
    return hash_hex(parent_key, HASH_BYTES, ret);
}

int note_id(const char *text, char ret[NOTE_ID_SIZE])
{
    return hash_hex(text, (NOTE_ID_SIZE - 1) / 2, ret);
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("._-", c));
}

/* Whether the name fits when it is spelled. */
static bool spell(const char *name, char ret[NOTE_UNIT_SIZE])
{
    /* As components of a key these mean something else, and no name of a store is so called. */
    bool dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    size_t n = 0;

    for (; *name; name++) {
        bool plain = is_plain(*name) && !dots;
        if (n + (plain ? 1 : 3) >= NOTE_UNIT_SIZE)
            return false;
        if (plain)
            ret[n++] = *name;
        else
            n += (size_t)snprintf(ret + n, 4, "%%%02X", (unsigned char)*name);
    }
    ret[n] = '\0';
    return n > 0;
}

int note_unit_part(const char *name, char ret[NOTE_UNIT_SIZE])
{
    if (spell(name, ret))
        return 0;
    ret[0] = HASHED;
    ret[1] = '\0';
    return *name ? hash_hex(name, HASH_BYTES, ret + 1) : 0;
}

/* ---- keys ---- */

/* `name` NULL: of the directory alone. */
static char *key_below(const char *dir, const char *parent_key, const char *name)
{
    char parent[NOTE_PARENT_SIZE], unit[NOTE_UNIT_SIZE] = "", *key;

    if (note_parent_part(parent_key, parent) < 0 || (name && note_unit_part(name, unit) < 0))
        return NULL;
    return asprintf(&key, "%s/%s%s%s", dir, parent, name ? "/" : "", unit) < 0 ? NULL : key;
}

char *note_parent_key(const char *parent_key)
{
    return key_below(NOTES_DIR, parent_key, NULL);
}

char *note_unit_key(const char *parent_key, const char *name)
{
    return key_below(NOTES_DIR, parent_key, name);
}

char *note_key(const char *unit_key, enum note_kind kind, const char *cache_id, const char *id)
{
    char *key;

    assert(note_is_id(cache_id) && note_is_id(id));
    return asprintf(&key, "%s/%s~%s~%s", unit_key, kinds[kind], cache_id, id) < 0 ? NULL : key;
}

char *seal_parent_key(const char *parent_key)
{
    return key_below(SEALS_DIR, parent_key, NULL);
}

char *seal_key(const char *parent_key, const char *name, const char *cache_id)
{
    auto_free char *unit = key_below(SEALS_DIR, parent_key, name);
    char *key;

    assert(note_is_id(cache_id));
    return !unit || asprintf(&key, "%s/%s", unit, cache_id) < 0 ? NULL : key;
}

char *note_lease_key(const char *cache_id)
{
    char *key;

    assert(note_is_id(cache_id));
    return asprintf(&key, LEASES_DIR "/%s", cache_id) < 0 ? NULL : key;
}

/* ---- names that a listing has ---- */

static bool is_hex(const char *text, size_t len)
{
    return strlen(text) == len && strspn(text, "0123456789abcdef") == len;
}

bool note_is_parent(const char *name)
{
    return is_hex(name, NOTE_PARENT_SIZE - 1);
}

bool note_is_id(const char *name)
{
    return is_hex(name, NOTE_ID_SIZE - 1);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Whether a name is spelled so: what could be spelled in another way is not. */
static bool is_spelled(const char *unit)
{
    bool dots = strcmp(unit, "%2E") == 0 || strcmp(unit, "%2E%2E") == 0;

    if (strcmp(unit, ".") == 0 || strcmp(unit, "..") == 0)
        return false;
    for (const char *p = unit; *p; p++) {
        if (is_plain(*p))
            continue;
        int high = *p == '%' ? hex_digit(p[1]) : -1;
        int low = high >= 0 ? hex_digit(p[2]) : -1;
        char c = (char)(high * 16 + low);
        if (low < 0 || !c || c == '/' || (is_plain(c) && !dots))
            return false;
        p += 2;
    }
    return *unit;
}

/* Takes U from the front, where there is one. */
static bool take_unit(const char **name, char ret[NOTE_UNIT_SIZE])
{
    const char *slash = strchr(*name, '/');
    size_t len = slash ? (size_t)(slash - *name) : 0;

    ret[0] = '\0';
    if (!slash)
        return true;
    if (len >= NOTE_UNIT_SIZE)
        return false;
    memcpy(ret, *name, len);
    ret[len] = '\0';
    *name = slash + 1;
    return ret[0] == HASHED ? !ret[1] || is_hex(ret + 1, (size_t)2 * HASH_BYTES)
                            : is_spelled(ret);
}

/* Takes an ID and the "~" behind it, or the end. */
static bool take_id(const char **name, bool last, char ret[NOTE_ID_SIZE])
{
    size_t len = strcspn(*name, "~");

    if (len != NOTE_ID_SIZE - 1 || ((*name)[len] == '\0') != last)
        return false;
    memcpy(ret, *name, len);
    ret[len] = '\0';
    *name += len + !last;
    return note_is_id(ret);
}

static bool take_kind(const char **name, enum note_kind *ret)
{
    for (enum note_kind k = 0; k < NOTE_KINDS; k++) {
        size_t len = strlen(kinds[k]);
        if (strncmp(*name, kinds[k], len) != 0 || (*name)[len] != '~')
            continue;
        *ret = k;
        *name += len + 1;
        return true;
    }
    return false;
}

bool note_parse(const char *name, struct note *ret)
{
    struct note n = {0};

    if (!take_unit(&name, n.unit) || !take_kind(&name, &n.kind) ||
        !take_id(&name, false, n.cache_id) || !take_id(&name, true, n.id))
        return false;
    *ret = n;
    return true;
}

bool seal_parse(const char *name, struct note *ret)
{
    struct note n = {0};

    if (!take_unit(&name, n.unit) || !take_id(&name, true, n.cache_id))
        return false;
    *ret = n;
    return true;
}
