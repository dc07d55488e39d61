#include "tests/unit/queue/owed.h"

#include "common/mem.h"
#include "tests/lib/room.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static enum intent_kind kind_of(const char *word)
{
    static const char *const words[] = {[INTENT_UNLINK] = "unlink",
                                        [INTENT_RMDIR] = "rmdir",
                                        [INTENT_RENAME] = "rename",
                                        [INTENT_RENAMEDIR] = "renamedir"};

    for (enum intent_kind kind = INTENT_UNLINK; kind <= INTENT_RENAMEDIR; kind++)
        if (strcmp(words[kind], word) == 0)
            return kind;
    ck_abort_msg("no kind: %s", word);
}

struct intent *owed_add(struct cache *c, const char *row)
{
    char word[16] = "", from[64] = "", to[64] = "";
    const char *mark = row + strspn(row, " ");
    int words = sscanf(mark + strspn(mark, "+-*"), "%15s %63s %63s", word, from, to);

    ck_assert_msg(words >= 2, "%s", row);
    struct intent *i =
        intent_new(seq_next_locked(c), kind_of(word), from, words == 3 ? to : NULL, 0, "v");
    ck_assert_ptr_nonnull(i);
    i->debt.running = *mark == '+';
    i->debt.error = *mark == '-' ? -EIO : 0;
    i->urgent = *mark == '*';
    intent_add_locked(c, i);
    return i;
}

static void add_name(struct cache *c, char *name) REQUIRES(cache_mutex)
{
    size_t len = strlen(name);

    if (name[len - 1] != '/') {
        (void)room_file_locked(c, name);
        return;
    }
    name[len - 1] = '\0';
    (void)room_dir_locked(c, name);
}

/* Until owed_free() the caller holds the locks: clang can't see that across functions. */
NO_THREAD_SAFETY struct cache *owed_new(const char *rows, const char *names)
{
    auto_free char *row_copy = strdup(rows), *name_copy = strdup(names);
    char *rest = row_copy, *row, *name;
    struct cache *c = room_core();

    room_tree(c);
    room_content(c, 16);
    room_queue(c);
    ns_write(c);
    cache_lock(c);
    while ((row = strsep(&rest, ";")))
        if (*row)
            (void)owed_add(c, row);
    rest = name_copy;
    while ((name = strsep(&rest, " ")))
        if (*name)
            add_name(c, name);
    return c;
}

NO_THREAD_SAFETY void owed_free(struct cache *c)
{
    cache_unlock(c);
    ns_done(c);
    room_free(c);
}

struct intent *owed_row(struct cache *c, unsigned n)
{
    struct intent *i = row_first(c);

    while (i && --n > 0)
        i = row_next(i);
    ck_assert_ptr_nonnull(i);
    return i;
}
