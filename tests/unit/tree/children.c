/* cache/tree/children.c: what the names of a directory are kept in. */
#include "cache/tree/tree.h"
#include "tests/unit/tree/suites.h"

#include <stdio.h>
#include <string.h>

#define NAMES 5000

static struct entry *made[NAMES];
static bool there[NAMES];
static struct children *names;

static struct entry *make(const char *name)
{
    struct entry *e = calloc(1, offsetof(struct entry, name) + strlen(name) + 1);

    ck_assert_ptr_nonnull(e);
    memcpy(e->name, name, strlen(name) + 1);
    e->hash = children_hash(name);
    return e;
}

static void setup(void)
{
    char name[32];

    for (int i = 0; i < NAMES; i++) {
        (void)snprintf(name, sizeof(name), "name-%d", i);
        made[i] = make(name);
        there[i] = false;
    }
    names = NULL;
}

static void teardown(void)
{
    for (int i = 0; i < NAMES; i++) {
        if (there[i])
            children_remove(&names, made[i]);
        free(made[i]);
    }
    ck_assert_ptr_null(names);
}

static void add(int i)
{
    struct children *room;

    if (children_room(names, &room) < 0)
        ck_abort_msg("%s is refused", made[i]->name);
    children_add(&names, &room, made[i]);
    free(room);
    there[i] = true;
}

static void take(int i)
{
    children_remove(&names, made[i]);
    there[i] = false;
}

static void check_all(void)
{
    size_t n = 0, at, seen = 0;
    struct entry *e;

    for (int i = 0; i < NAMES; i++) {
        n += there[i];
        if (children_find(names, made[i]->name) != (there[i] ? made[i] : NULL))
            ck_abort_msg("%s", made[i]->name); /* an assertion a name would take seconds */
    }
    ck_assert_uint_eq(children_count(names), n);
    CHILDREN_FOREACH(names, e, at)
    {
        if (!there[atoi(e->name + strlen("name-"))] || children_behind(names, e) != at)
            ck_abort_msg("%s", e->name);
        seen++;
    }
    ck_assert_uint_eq(seen, n);
}

START_TEST(names_keep_their_order)
{
    struct entry *e;
    size_t at;
    int i = 0;

    check_all();
    for (i = 0; i < NAMES; i++) {
        add(i);
        if (i < 40 || i % 997 == 0)
            check_all();
    }
    for (i = 0; i < NAMES; i += 2)
        take(i);
    check_all();
    for (i = 0; i < NAMES; i += 2)
        add(i);
    check_all();
    i = 0;
    CHILDREN_FOREACH(names, e, at)
    {
        ck_assert_ptr_eq(e, made[i < NAMES / 2 ? 2 * i + 1 : 2 * (i - NAMES / 2)]);
        i++;
    }
    ck_assert_int_eq(i, NAMES);
}
END_TEST

START_TEST(names_go_while_they_are_walked_through)
{
    struct entry *e;
    size_t at;

    for (int i = 0; i < NAMES; i++)
        add(i);
    CHILDREN_FOREACH(names, e, at)
    {
        int i = atoi(e->name + strlen("name-"));
        ck_assert(i % 3 != 2);
        if (i % 3 == 1) /* itself, and one that is still to come */
            take(i);
        if (i % 3 == 1 && i + 1 < NAMES)
            take(i + 1);
    }
    check_all();
    CHILDREN_FOREACH(names, e, at)
    {
        take(atoi(e->name + strlen("name-")));
    }
    ck_assert_ptr_null(names);
}
END_TEST

/* Names that come and go neither fill the table nor have it made anew each time. */
START_TEST(names_come_and_go)
{
    static const int kept[] = {0, 3, 11, 12, 13, 17, 100, 1000};
    unsigned seed = 1;

    for (int i = 0; i < kept[_i]; i++)
        add(i);
    for (int i = 0; i < 100000; i++) {
        int k = kept[_i] + i % (NAMES - kept[_i]);
        add(k);
        take(k);
    }
    check_all();
    for (int i = 0; i < 100000; i++) {
        seed = seed * 1103515245 + 12345;
        int k = (int)(seed / 65536 % (unsigned)(2 * kept[_i] + 1));
        if (there[k])
            take(k);
        else
            add(k);
    }
    check_all();
}
END_TEST

Suite *children_suite(void)
{
    Suite *s = suite_create("children");
    TCase *t = tcase_create("children");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, names_keep_their_order);
    tcase_add_test(t, names_go_while_they_are_walked_through);
    tcase_add_loop_test(t, names_come_and_go, 0, 8);
    suite_add_tcase(s, t);
    return s;
}
