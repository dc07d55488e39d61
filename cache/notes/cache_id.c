/* The id of this cache, and that of a mount's session. */
#include "cache/notes/notes.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define ID_FILE "id"

int session_id_draw(char ret[NOTE_ID_SIZE])
{
    uint64_t number;

    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return -EIO;
    (void)snprintf(ret, NOTE_ID_SIZE, "%016" PRIx64, number);
    return 0;
}

int cache_id_open(struct mirror *m, char ret[NOTE_ID_SIZE])
{
    auto_free char *text = NULL;
    int r = m->copied ? -ENOENT : mirror_read_text(m, ID_FILE, &text);

    if (r == 0 && note_is_id(text)) {
        memcpy(ret, text, NOTE_ID_SIZE);
        return 0;
    }
    if (r < 0 && r != -ENOENT)
        return r;
    r = session_id_draw(ret);
    return r < 0 ? r : mirror_write_text(m, ID_FILE, ret);
}
