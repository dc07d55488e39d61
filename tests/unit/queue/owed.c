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
    c->queue->removals_running += i->debt.running && !intent_is_rename(i);
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

static void close_file(struct cache *c, const char *name, unsigned at, const char *flags)
    REQUIRES(cache_mutex)
{
    struct node *n = room_file_locked(c, name);
    struct file *f = file_new(n, FILE_DIRTY);

    ck_assert_ptr_nonnull(f);
    file_count_locked(c);
    n->links->dirty = true;
    n->links->refused = strchr(flags, 'r') != NULL;
    f->debt.error = n->links->refused ? -EINVAL : 0;
    f->debt.seq = f->seq = at * SEQ_STEP;
    f->staged = strpbrk(flags, "sS") != NULL;
    f->staged_ns = strchr(flags, 'S') ? clock_mono_ns() : 0;
    f->debt.wanted = strchr(flags, 'w') != NULL;
    f->write_handles = strchr(flags, 'o') != NULL;
    file_insert_locked(c, f);
}

void owed_close(struct cache *c, const char *files)
{
    char name[64], flags[8];
    unsigned at;
    int used = 0;

    for (; *files; files += used) {
        flags[0] = '\0';
        ck_assert_int_ge(sscanf(files, " %63s %u%n", name, &at, &used), 2);
        if (files[used] && files[used] != ' ') {
            (void)sscanf(files + used, "%7[a-zA-Z]", flags);
            used += (int)strlen(flags);
        }
        close_file(c, name, at, flags);
    }
}

/* ---- what is on its way ---- */

static const char *on_its_way;

/* Whether one of the kind is, at the place, below it or (`above`) above it. */
static bool is_on_its_way(const char *kind, struct place at, bool below, bool above)
{
    char word[16], key[64];
    int used = 0;

    for (const char *rest = on_its_way; rest && *rest; rest += used) {
        ck_assert_int_eq(sscanf(rest, " %15s %63[^; ]%n", word, key, &used), 2);
        used += rest[used] == ';';
        const struct place there = place_of_key(key);
        if (strcmp(word, kind) == 0 &&
            (place_same(at, there) || (below && place_below(at, there)) ||
             (above && place_below(there, at))))
            return true;
    }
    return false;
}

static bool upload_at(struct cache *c, struct place at, bool below)
{
    (void)c;
    return is_on_its_way("upload", at, below, false);
}

static bool marker_at(struct cache *c, struct place at, bool below)
{
    (void)c;
    return is_on_its_way("marker", at, below, false);
}

/* All markers go to the first store. */
static bool marker_above(struct cache *c, struct place at, unsigned volume)
{
    (void)c;
    return volumes_meet(volume, 1) && is_on_its_way("marker", at, false, true);
}

static bool session_at(struct cache *c, struct place at)
{
    (void)c;
    return is_on_its_way("session", at, false, false);
}

static bool readers_at(struct cache *c, struct place at, bool below)
{
    (void)c;
    return is_on_its_way("reader", at, below, false);
}

const struct order_world *owed_world(const char *text)
{
    static const struct order_world world = {.upload_at = upload_at,
                                             .marker_at = marker_at,
                                             .marker_above = marker_above,
                                             .session_at = session_at,
                                             .readers_at = readers_at};

    on_its_way = text;
    return &world;
}

/* ---- deletion locks ---- */

static struct deletion_lock *lock_of(struct cache *c, const char *path, bool refuse)
    REQUIRES(cache_mutex)
{
    const struct process nobody = {.pidfd = -1};
    struct deletion_lock *l = lock_add_locked(c, path, refuse, &nobody, "");

    ck_assert_ptr_nonnull(l);
    l->since_seq = 0; /* the rows are there by now */
    return l;
}

void owed_locked(struct cache *c, const char *path)
{
    (void)lock_of(c, path, false);
}

void owed_refusing(struct cache *c, const char *path)
{
    (void)lock_of(c, path, true);
}

void owed_late(struct cache *c, const char *path)
{
    lock_of(c, path, false)->since_seq = UINT64_MAX;
}

void owed_unlocked(struct cache *c, const char *path)
{
    struct deletion_lock *l = c->queue->locks;

    while (strcmp(l->paths[0], path) != 0)
        l = l->next;
    lock_remove_locked(c, l);
}

void owed_moves(struct cache *c, const char *names)
{
    char from[32], to[32];

    ck_assert_int_eq(sscanf(names, "%31s %31s", from, to), 2);
    ck_assert_int_eq(lock_follow_locked(c, &(struct lock_move){.from = from, .to = to}, 1), 0);
}
