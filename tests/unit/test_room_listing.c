/* cache/listing/: a listing's way into the tree, as a table; with nothing above it. */
#include "cache/listing/listing_impl.h"
#include "common/mem.h"
#include "tests/lib/room.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct store_ops no_ops;
static struct store store = {.ops = &no_ops, .url = (char *)"test:"};
static struct cache *c;

static void setup(void)
{
    c = room_core();
    c->store = &store;
    c->config.list_timeout_ns = 1000 * NS_PER_SEC;
    c->config.list_memory_bytes = 1 << 20;
    room_disk(c);
    room_tree(c);
    room_content(c, 16);
    room_queue(c);
    room_listing(c);
}

static void teardown(void)
{
    room_free(c);
}

/* ---- as text ---- */

/* Words of a text, one after the other; NULL at its end. */
static const char *next_word(const char **text)
{
    static char word[64];
    int used = 0;

    if (sscanf(*text, " %63s%n", word, &used) != 1)
        return NULL;
    *text += used;
    return word;
}

/* What the store has in the root: "d/", or "f" in version "v", "f=w" in version "w"; "-d/" that
 * others' notes hide. */
static void list(struct listing *l, const char *words)
{
    const char *word;

    while ((word = next_word(&words))) {
        struct object obj = {.mtime_ns = 1700000000 * NS_PER_SEC, .size = 5};
        bool hidden = *word == '-';
        word += hidden;
        const char *etag = strchr(word, '=');
        size_t len = etag ? (size_t)(etag - word) : strlen(word);
        obj.is_prefix = word[len - 1] == '/';
        (void)snprintf(obj.etag, sizeof(obj.etag), "%s",
                       obj.is_prefix ? ""
                       : etag        ? etag + 1
                                     : "v");
        ck_assert_int_eq(listing_add(l, word, len - obj.is_prefix, &obj), 0);
        l->v[l->n - 1].hidden = hidden;
    }
}

static void merge(const char *words, int64_t asked_ns, bool cut)
{
    struct listing l = {
        .cache = c, .dir = c->tree->root, .asked_ns = asked_ns, .at = place_of_path("")};
    struct asked at;

    list(&l, words);
    cache_lock(c);
    at = listing_asked_locked(c, place_of_path(""));
    cache_unlock(c);
    listing_merge(&l, &at, 0, cut);
    listing_clear(&l);
}

/* What is here: "f" in version "v", as a listing showed it; "!f" that is dirty, "~f" that was
 * changed after the question was asked. */
static void begin(const char *words) REQUIRES(cache_mutex)
{
    const char *word;

    while ((word = next_word(&words))) {
        char name[64];
        (void)snprintf(name, sizeof(name), "%s", word + strspn(word, "!~"));
        bool dir = name[strlen(name) - 1] == '/';
        name[strlen(name) - dir] = '\0';
        struct node *n = dir ? room_dir_locked(c, name) : room_file_locked(c, name);
        struct entry *e = n->links;
        e->verified_ns = 1;
        e->dirty = *word == '!';
        e->changed_ns = *word == '~' ? INT64_MAX : 0;
        if (!dir)
            etag_set(&e->etag, "v");
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The names in the root, in the order of their bytes, with other versions than "v". */
static const char *names(void) REQUIRES(cache_mutex)
{
    static char text[256];
    char v[16][64], etag[ETAG_TEXT_MAX];
    struct entry *e;
    size_t at, n = 0;

    CHILDREN_FOREACH(c->tree->root->dir->children, e, at)
    {
        const char *version = e->node->dir ? NULL : etag_text(&e->etag, etag);
        bool other = version && strcmp(version, "v") != 0;
        ck_assert_uint_lt(n, ARRAY_SIZE(v));
        (void)snprintf(v[n++], sizeof(v[0]), "%s%s%s%s", e->name, e->node->dir ? "/" : "",
                       other ? "=" : "", other ? version : "");
    }
    qsort(v, n, sizeof(v[0]), by_text);
    text[0] = '\0';
    for (size_t i = 0; i < n; i++)
        (void)strcat(strcat(text, i ? " " : ""), v[i]);
    return text;
}

/* ---- merging ---- */

enum rows { NONE, UNLINK_F, RENAME_F_G, RMDIR_D };

static const struct {
    const char *here;
    enum rows owed;
    const char *listed;
    bool cut; /* there are more names */
    const char *then;
} merges[] = {
    {"", NONE, "", false, ""},
    {"", NONE, "d/ f", false, "d/ f"},
    {"f", NONE, "f g", false, "f g"},
    {"f g", NONE, "f", false, "f"},
    {"f g", NONE, "f", true, "f g"},
    {"f", NONE, "f=w", false, "f=w"},
    {"d/ d/x", NONE, "", false, ""},
    /* What was done here is not overridden. */
    {"!f", NONE, "", false, "f"},
    {"!f", NONE, "f=w", false, "f"},
    {"~f", NONE, "", false, "f"},
    {"~f", NONE, "f=w", false, "f"},
    {"d/ !d/x", NONE, "", false, "d/"},
    /* What rows are about to take away or to move does not show under its old name. */
    {"", UNLINK_F, "f g", false, "g"},
    {"", RENAME_F_G, "f", false, ""},
    {"", RENAME_F_G, "f g", false, "g"},
    {"", RMDIR_D, "d/", false, ""},
    /* A name that became one of the other kind. */
    {"f", NONE, "f/", false, "f/"},
    {"d/", NONE, "d", false, "d"},
    {"", NONE, "a a/", false, "a/"}, /* the object beside the directory hides nothing else */
    {"a/", NONE, "a a/", false, "a/"},
    {"!f", NONE, "f/", false, "f"},
    /* What others have not finished goes, but for what is ours. */
    {"", NONE, "-d/ f", false, "f"},
    {"d/ d/x", NONE, "-d/ f", false, "f"},
    {"d/ d/x", NONE, "-d/ f", true, "f"},
    {"d/ !d/x", NONE, "-d/", true, "d/"},
    {"~d/", NONE, "-d/", true, "d/"},
    {"f", NONE, "-f/", false, ""},
    /* No path can show these. */
    {"", NONE, ". .. f", false, "f"},
};

static void owe(enum rows rows) REQUIRES(cache_mutex)
{
    struct intent *i = rows == UNLINK_F ? intent_new(SEQ_STEP, INTENT_UNLINK, "f", NULL, 0, "v")
                       : rows == RMDIR_D ? intent_new(SEQ_STEP, INTENT_RMDIR, "d", NULL, 0, "")
                       : rows == RENAME_F_G
                           ? intent_new(SEQ_STEP, INTENT_RENAME, "f", "g", 0, "v")
                           : NULL;

    ck_assert(rows == NONE || i);
    if (i)
        intent_add_locked(c, i);
}

START_TEST(a_listing_comes_into_the_tree)
{
    ns_write(c);
    cache_lock(c);
    begin(merges[_i].here);
    owe(merges[_i].owed);
    cache_unlock(c);
    ns_done(c);
    merge(merges[_i].listed, clock_mono_ns(), merges[_i].cut);
    cache_lock(c);
    ck_assert_msg(strcmp(names(), merges[_i].then) == 0, "%s | %s: %s", merges[_i].here,
                  merges[_i].listed, names());
    ck_assert_int_eq(c->tree->root->dir->listed_ns == 0, merges[_i].cut);
    ck_assert_int_eq(c->tree->root->dir->big, merges[_i].cut);
    cache_unlock(c);
}
END_TEST

START_TEST(names_that_no_path_shows_are_counted)
{
    merge("a a/ . f", clock_mono_ns(), false);
    cache_lock(c);
    ck_assert_uint_eq(c->tree->root->dir->hidden_names, 2);
    ck_assert_uint_eq(c->tree->hidden_names, 2);
    cache_unlock(c);
    merge("f", clock_mono_ns(), false);
    cache_lock(c);
    ck_assert_uint_eq(c->tree->hidden_names, 0);
    cache_unlock(c);
}
END_TEST

/* It is about what was there before the move. */
START_TEST(a_listing_of_another_place_is_dropped)
{
    struct listing l = {
        .cache = c, .dir = c->tree->root, .asked_ns = 1, .at = place_of_path("")};
    struct asked at;

    list(&l, "f");
    cache_lock(c);
    at = listing_asked_locked(c, place_of_path(""));
    c->listing->dir_moves++;
    cache_unlock(c);
    listing_merge(&l, &at, 0, false);
    listing_clear(&l);
    cache_lock(c);
    ck_assert_str_eq(names(), "");
    ck_assert_int_eq(c->tree->root->dir->listed_ns, 0);
    cache_unlock(c);
}
END_TEST

/* ---- how long it is valid ---- */

START_TEST(a_listing_is_valid_for_a_while)
{
    struct node *root = c->tree->root;

    cache_lock(c);
    ck_assert(!listing_is_valid(c, root) && dir_may_hold_locked(c, root, "x"));
    negative_note_locked(c, root, "x", clock_mono_ns());
    ck_assert(!dir_may_hold_locked(c, root, "x") && dir_may_hold_locked(c, root, "y"));
    cache_unlock(c);
    merge("f", clock_mono_ns(), false);
    cache_lock(c);
    ck_assert(listing_is_valid(c, root) && !dir_may_hold_locked(c, root, "y"));
    ck_assert_int_eq(dir_need_locked(c, root, true, NULL), 0);
    root->dir->told_ns -= 1001 * NS_PER_SEC;
    ck_assert(!listing_is_valid(c, root) && !listing_is_recent(c, root, true));
    root->dir->local_only = root->dir->new_here = true; /* made here, nobody was told of it */
    ck_assert(listing_is_recent(c, root, true));
    root->flags |= NODE_REMOVED;
    ck_assert_int_eq(dir_need_locked(c, root, true, NULL), -ENOENT);
    root->flags = 0;
    cache_unlock(c);
    ck_assert(listing_told_since(c, root, 1));
    ck_assert(!listing_told_since(c, root, clock_mono_ns() + 1));
    ck_assert_int_gt(listing_validity_in(0), 0); /* who asked comes to see it */
    ck_assert_int_eq(listing_validity_in(5 * NS_PER_SEC), 5 * NS_PER_SEC);
}
END_TEST

START_TEST(what_listings_take_has_a_limit)
{
    struct op op;

    op_init(&op, OP_FOREVER);
    ck_assert_uint_eq(listed_max(c), 16 << 20);
    c->config.list_memory_bytes = UINT64_MAX / 2;
    ck_assert_uint_eq(listed_max(c), UINT64_MAX);
    ck_assert_int_eq(listed_too_much(c, &op, place_of_path("d"), 77), -ENOMEM);
    ck_assert_msg(strstr(op.why, "test:/d") && strstr(op.why, " 77 "), "%s", op.why);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("listing");
    TCase *t = tcase_create("listing");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_listing_comes_into_the_tree, 0, ARRAY_SIZE(merges));
    tcase_add_test(t, names_that_no_path_shows_are_counted);
    tcase_add_test(t, a_listing_of_another_place_is_dropped);
    tcase_add_test(t, a_listing_is_valid_for_a_while);
    tcase_add_test(t, what_listings_take_has_a_limit);
    suite_add_tcase(s, t);
    return suite_run(s);
}
