/* cache/tree/: nodes and their names, paths and keys, numbers, what the store does not have. */
#include "cache/tree/tree_impl.h"
#include "common/mem.h"
#include "tests/lib/room.h"
#include "tests/unit/tree/suites.h"

#include <stdio.h>
#include <string.h>

static struct cache *c;
static unsigned nameless, ended;
static const struct node *last_ended;

static void count_nameless(struct cache *cache, struct node *n)
{
    (void)cache;
    (void)n;
    nameless++;
}

static void count_ended(struct cache *cache, struct node *n)
{
    (void)cache;
    ended++;
    last_ended = n;
}

/* From setup() to teardown() a test holds the locks: clang can't see that across functions. */
static NO_THREAD_SAFETY void setup(void)
{
    c = room_core();
    room_tree(c);
    nameless = ended = 0;
    c->tree->own->hooks = (struct node_hooks){.nameless = count_nameless, .end = count_ended};
    ns_write(c);
    cache_lock(c);
}

static NO_THREAD_SAFETY void teardown(void)
{
    cache_unlock(c);
    ns_done(c);
    room_free(c);
}

static struct entry *at(const char *path)
{
    struct entry *e = NULL;

    ck_assert_msg(tree_find(c, path, &e) != NULL, "%s", path);
    return e;
}

static void has_path(struct entry *e, const char *path)
{
    auto_free char *found = entry_path(e);

    ck_assert_str_eq(found, path);
    ck_assert_ptr_eq(tree_find(c, path, NULL), e->node);
}

static void lies_at(struct entry *e, const char *key) REQUIRES(cache_mutex)
{
    auto_place struct place found = entry_place(e);

    ck_assert_str_eq(found.key, key);
}

static void link_to(struct node *n, const char *dir, const char *name) REQUIRES(cache_mutex)
{
    ck_assert_ptr_nonnull(entry_add_locked(c, room_dir_locked(c, dir), name, n));
    n->nlink++;
}

/* ---- paths ---- */

START_TEST(paths_lead_to_nodes_and_back)
{
    struct node *n = room_file_locked(c, "d/e/f");

    has_path(at("d/e/f"), "d/e/f");
    has_path(at("d"), "d");
    ck_assert_ptr_eq(tree_find(c, "d//e/f", NULL), n);
    ck_assert_ptr_null(tree_find(c, "d/e/f/g", NULL));
    ck_assert_ptr_null(tree_find(c, "d/x", NULL));
    ck_assert_ptr_eq(tree_find(c, "", NULL), c->tree->root);
    ck_assert_ptr_null(tree_make_dirs_locked(c, "d/e/f/g")); /* below a file */
    auto_free char *root = node_path(c->tree->root);
    auto_free char *child = child_path(at("d")->node, "x");
    auto_free char *top = child_path(c->tree->root, "x");
    ck_assert_str_eq(root, "");
    ck_assert_str_eq(child, "d/x");
    ck_assert_str_eq(top, "x");
    ck_assert(node_is_below(n, at("d")->node) && node_is_below(n, n));
    ck_assert(!node_is_below(at("d")->node, n) && node_is_below(n, c->tree->root));
}
END_TEST

/* What is below a directory that a rename is still to bring lies below its old place. */
START_TEST(places_are_where_the_store_has_it)
{
    struct node *n = room_file_locked(c, "new/d/f");

    lies_at(at("new/d/f"), "new/d/f");
    at("new")->source = place_dup(place_of_path("old/dir"));
    lies_at(at("new/d/f"), "old/dir/d/f");
    lies_at(at("new"), "old/dir");
    at("new/d/f")->source = place_dup(place_of_path("g"));
    lies_at(at("new/d/f"), "g");
    has_path(at("new/d/f"), "new/d/f");
    auto_place struct place child = child_place(at("new/d")->node, "x");
    ck_assert_str_eq(child.key, "old/dir/d/x");
    ck_assert_ptr_eq(node_name_at(n, place_of_path("g")), at("new/d/f"));
    ck_assert_ptr_null(node_name_at(n, place_of_path("new/d/f")));
}
END_TEST

START_TEST(a_node_has_several_names)
{
    struct node *n = room_file_locked(c, "a");

    link_to(n, "d", "b");
    link_to(n, "e", "c");
    ck_assert_ptr_eq(tree_find(c, "d/b", NULL), n);
    ck_assert(node_is_named_below(c, n, "d") && node_is_named_below(c, n, "e"));
    ck_assert(node_is_named_below(c, n, "d/b") && !node_is_named_below(c, n, "x"));
    entry_remove_locked(c, at("d/b"));
    ck_assert(!node_is_named_below(c, n, "d") && nameless == 0);
    ck_assert_uint_eq(at("e")->node->dir->files, 1);
    entry_remove_locked(c, at("a"));
    entry_remove_locked(c, at("e/c"));
    ck_assert(nameless == 1 && ended == 1 && last_ended == n);
    ck_assert_uint_eq(at("e")->node->dir->files, 0);
}
END_TEST

static struct entry *moved(struct entry *e, struct node *dir, const char *name)
    REQUIRES(cache_ns, cache_mutex)
{
    struct seat s;

    ck_assert_int_eq(seat_take_locked(c, dir, name, e->node, &s), 0);
    return entry_move_locked(c, e, &s);
}

/* The directory loses its only name in between, and with it the room it had. */
START_TEST(a_seat_stays_when_the_directory_becomes_empty)
{
    struct seat s;

    struct node *n = room_file_locked(c, "f");
    (void)room_file_locked(c, "d/g");
    ck_assert_int_eq(seat_take_locked(c, at("d")->node, "g", n, &s), 0);
    entry_remove_locked(c, at("d/g"));
    ck_assert_ptr_null(at("d")->node->dir->children);
    has_path(entry_move_locked(c, at("f"), &s), "d/g");
    ck_assert_ptr_null(tree_find(c, "f", NULL));
    ck_assert_uint_eq(at("d")->node->dir->files, 1);
}
END_TEST

START_TEST(a_seat_that_is_not_taken_leaves_nothing)
{
    struct seat s;

    struct node *n = room_file_locked(c, "d/f");
    ck_assert_int_eq(seat_take_locked(c, at("d")->node, "g", n, &s), 0);
    seat_release(&s);
    seat_release(&s);
    ck_assert_ptr_null(tree_find(c, "d/g", NULL));
    ck_assert_uint_eq(at("d")->node->dir->files, 1);
    ck_assert_ptr_null(n->links->next_link);
}
END_TEST

START_TEST(what_moves_takes_along_what_is_known)
{
    struct node *n = room_file_locked(c, "d/f");
    struct entry *e = at("d/f");

    etag_set(&e->etag, "v");
    e->source = place_dup(place_of_path("elsewhere"));
    e->dirty = true;
    e->verified_ns = 5;
    (void)room_dir_locked(c, "e");
    e = moved(e, at("e")->node, "g");
    has_path(e, "e/g");
    ck_assert_ptr_null(tree_find(c, "d/f", NULL));
    ck_assert(e->node == n && etag_is(&e->etag, "v") && e->dirty && e->verified_ns == 5);
    lies_at(e, "elsewhere");
    ck_assert(at("d")->node->dir->files == 0 && at("e")->node->dir->files == 1);
    ck_assert(nameless == 0 && ended == 0);
}
END_TEST

START_TEST(what_is_below_moves_with_a_directory)
{
    (void)room_file_locked(c, "d/e/f");
    (void)moved(at("d"), c->tree->root, "g");
    has_path(at("g/e/f"), "g/e/f");
    ck_assert_ptr_null(tree_find(c, "d", NULL));
}
END_TEST

/* ---- the end of a node ---- */

/* What keeps a node whose last name goes. */
enum keeps { NOBODY, LOOKUP, REF };

START_TEST(a_node_lives_as_long_as_it_is_held)
{
    struct node *n = room_file_locked(c, "f");
    uint64_t nodes = c->tree->nodes;

    n->nlookup = _i == LOOKUP;
    if (_i == REF)
        node_ref_locked(n);
    entry_remove_locked(c, at("f"));
    ck_assert_uint_eq(nameless, 1);
    ck_assert_uint_eq(ended, _i == NOBODY);
    if (_i == LOOKUP) {
        n->nlookup = 0;
        node_collect_locked(c, n);
    } else if (_i == REF) {
        node_unref_locked(c, n);
    }
    ck_assert_uint_eq(ended, 1);
    ck_assert_uint_eq(c->tree->nodes, nodes - 1);
    ck_assert_ptr_null(c->tree->own->detached);
}
END_TEST

START_TEST(nothing_is_below_a_directory_that_was_removed)
{
    struct node *d = room_dir_locked(c, "d/e");

    d->nlookup = 1;
    entry_remove_locked(c, at("d/e"));
    ck_assert(d->flags & NODE_REMOVED);
    ck_assert_ptr_null(child_path(d, "x"));
    ck_assert(!place_known(node_place(d)));
    ck_assert_uint_eq(ended, 0);
    detached_free_locked(c); /* the mount ends without the kernel's forgets */
    ck_assert_ptr_eq(last_ended, d);
}
END_TEST

START_TEST(a_number_names_one_node_for_ever)
{
    struct node *n = room_file_locked(c, "a");
    uint64_t id = cache_node_id(c, n);

    ck_assert_ptr_eq(cache_node(c, id), n);
    ck_assert_uint_ge((uint32_t)id, 16);
    entry_remove_locked(c, at("a"));
    ck_assert_ptr_null(cache_node(c, id));
    n = room_file_locked(c, "b");
    ck_assert_uint_ne(cache_node_id(c, n), id);
    ck_assert_uint_eq((uint32_t)cache_node_id(c, n), (uint32_t)id); /* the slot again */
    ck_assert_ptr_null(cache_node(c, id));
    ck_assert_ptr_null(cache_node(c, 1));
    ck_assert_ptr_null(cache_node(c, UINT64_MAX));
}
END_TEST

/* ---- inode numbers ---- */

START_TEST(what_takes_a_name_has_another_number_than_what_left_it)
{
    struct node *n = room_file_locked(c, "a");
    uint64_t ino = n->ino;

    ck_assert_uint_eq(ino, ino_of_place(c, place_of_path("a"), false));
    ck_assert(ino >= 16 && ino % 2 == 0);
    n->flags |= NODE_DEFAULT_INO;
    node_keeps_ino_locked(c, n);
    ck_assert(!(n->flags & NODE_DEFAULT_INO));
    uint64_t other = ino_of_found_locked(c, place_of_path("a"), false);
    ck_assert(other != ino && other % 2 == 0);
    ck_assert_uint_eq(ino_of_found_locked(c, place_of_path("b"), false),
                      ino_of_place(c, place_of_path("b"), false));
    ino_stands_locked(c, ino_of_place(c, place_of_path("b"), false), place_of_path("b"), false);
    ck_assert_uint_eq(ino_of_found_locked(c, place_of_path("b"), false),
                      ino_of_place(c, place_of_path("b"), false));
    /* A mount found it there. */
    ino_stands_locked(c, ino_of_place(c, place_of_path("b"), false), place_of_path("elsewhere"),
                      false);
    ck_assert_uint_ne(ino_of_found_locked(c, place_of_path("b"), false),
                      ino_of_place(c, place_of_path("b"), false));
    ck_assert_uint_eq(ino_fresh(c, "a") % 2, 1);
}
END_TEST

START_TEST(places_leave_room_for_removals)
{
    uint64_t first = seq_next_locked(c), second = seq_next_locked(c);

    ck_assert_uint_eq(second - first, SEQ_STEP);
    ck_assert(seq_now_locked(c) >= second && seq_now_locked(c) < second + SEQ_STEP);
    c->tree->seq = second + 5; /* a removal that a renamed directory turned into */
    ck_assert_uint_eq(seq_next_locked(c), second + SEQ_STEP);
}
END_TEST

/* ---- what the store does not have ---- */

START_TEST(what_was_asked_for_in_vain_is_believed_for_a_while)
{
    struct node *d = room_dir_locked(c, "d"), *e = room_dir_locked(c, "e");
    int64_t now = clock_mono_ns();
    char name[32];

    ck_assert(!negative_is_locked(c, d, "x", NS_PER_SEC * 1000));
    negative_note_locked(c, d, "x", now);
    ck_assert(negative_is_locked(c, d, "x", NS_PER_SEC * 1000));
    ck_assert(!negative_is_locked(c, e, "x", NS_PER_SEC * 1000));
    ck_assert(!negative_is_locked(c, d, "x", 0));
    negative_note_locked(c, d, "x", now - 2000 * NS_PER_SEC);
    ck_assert(!negative_is_locked(c, d, "x", NS_PER_SEC * 1000));
    negative_note_locked(c, d, "x", now);
    negative_forget_locked(c, d, "x");
    ck_assert(!negative_is_locked(c, d, "x", NS_PER_SEC * 1000));
    for (int i = 0; i < 1000; i++) { /* the oldest make room */
        (void)snprintf(name, sizeof(name), "name-%d", i);
        negative_note_locked(c, d, name, now);
    }
    ck_assert(negative_is_locked(c, d, "name-999", NS_PER_SEC * 1000));
    ck_assert(!negative_is_locked(c, d, "name-0", NS_PER_SEC * 1000));
}
END_TEST

/* ---- walks ---- */

static int note_name(void *arg, struct node *n)
{
    char *all = arg;

    (void)strcat(all, n->links ? n->links->name : "/");
    return strlen(all) == 4 ? 7 : 0;
}

START_TEST(a_walk_visits_parents_first_until_it_is_ended)
{
    char all[16] = "";

    (void)room_file_locked(c, "d/f");
    (void)room_file_locked(c, "e");
    (void)room_file_locked(c, "g");
    ck_assert_int_eq(tree_each(c->tree->root, note_name, all), 7);
    ck_assert_str_eq(all, "/dfe");
}
END_TEST

Suite *tree_suite(void)
{
    Suite *s = suite_create("tree");
    TCase *t = tcase_create("tree");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, paths_lead_to_nodes_and_back);
    tcase_add_test(t, places_are_where_the_store_has_it);
    tcase_add_test(t, a_node_has_several_names);
    tcase_add_test(t, a_seat_stays_when_the_directory_becomes_empty);
    tcase_add_test(t, a_seat_that_is_not_taken_leaves_nothing);
    tcase_add_test(t, what_moves_takes_along_what_is_known);
    tcase_add_test(t, what_is_below_moves_with_a_directory);
    tcase_add_loop_test(t, a_node_lives_as_long_as_it_is_held, NOBODY, REF + 1);
    tcase_add_test(t, nothing_is_below_a_directory_that_was_removed);
    tcase_add_test(t, a_number_names_one_node_for_ever);
    tcase_add_test(t, what_takes_a_name_has_another_number_than_what_left_it);
    tcase_add_test(t, places_leave_room_for_removals);
    tcase_add_test(t, what_was_asked_for_in_vain_is_believed_for_a_while);
    tcase_add_test(t, a_walk_visits_parents_first_until_it_is_ended);
    suite_add_tcase(s, t);
    return s;
}
