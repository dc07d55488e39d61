/* The contract: objects of our own, which every kind of store keeps outside of its root. */
#include "tests/contract/contract_place.h"

/* The key of a name in the test's own directory of the state; good for eight calls. */
static const char *state_key(struct place *p, const char *name)
{
    char *k = p->keys[p->next_key++ % ARRAY_SIZE(p->keys)];
    const char *of = p->fixture->state;

    (void)snprintf(k, STORE_KEY_MAX, "%s%s%s/%s%s%s", STORE_STATE_DIR, of ? "/" : "",
                   of ? of : "", p->dir, name[0] ? "/" : "", name);
    return k;
}

static struct place *place_with_state(int i)
{
    struct place *p = place_open(i);

    ck_assert_msg(store_can(p->s, state_key(p, ""), STORE_STATE), "%s keeps no state",
                  p->fixture->name);
    return p;
}

static int put_state(struct place *p, struct op *op, const char *name, const char *etag,
                     const char *text, struct object *obj)
{
    struct mem_source src;

    mem_source_init(&src, text, strlen(text));
    return store_put(p->s, op, name, etag, &src.base, NULL, obj);
}

static void assert_state(struct place *p, const char *name, const char *text)
{
    struct mem_sink sink;
    char buf[256];

    mem_sink_init(&sink, buf, sizeof(buf) - 1, 0);
    ssize_t n = store_read(p->s, &p->op, name, NULL, &sink.base, sizeof(buf) - 1, 0, NULL);
    ck_assert_msg(n >= 0, "%s: read %s: %zd %s", p->fixture->name, name, n, p->op.why);
    buf[n] = '\0';
    ck_assert_str_eq(buf, text);
}

static void remove_state(struct place *p, const char *name)
{
    ok(p, store_remove(p->s, &p->op, &name, NULL, 1, NULL));
}

static int count_state(void *arg, const char *name, const struct object *obj)
{
    (void)obj;
    *(unsigned *)arg +=
        path_below(STORE_STATE_DIR, name) != NULL || strstr(name, ".runfs") != NULL;
    return 0;
}

static void assert_root_is_clean(struct place *p)
{
    unsigned seen = 0;

    ok(p, store_list(p->s, &p->op, "", 0, count_state, &seen));
    ok(p, store_list(p->s, &p->op, "", LIST_RECURSIVE, count_state, &seen));
    ck_assert_uint_eq(seen, 0);
}

/* Objects of our own are kept like others and seen in no listing of the root. */
START_TEST(state_lies_outside_of_the_root)
{
    struct place *p = place_with_state(_i);
    const char *note = state_key(p, "sub/note");
    struct object obj, found;

    ok(p, put_text(p, "other", NULL, "x"));
    ok(p, put_state(p, &p->op, note, "", "state", &obj));
    fails(p, ESTALE, put_state(p, &p->op, note, "", "again", NULL));
    ok(p, store_stat(p->s, &p->op, note, &found));
    ck_assert_uint_eq(found.size, 5);
    ck_assert_str_eq(found.etag, obj.etag);
    object_release(&found);
    ok(p, put_state(p, &p->op, note, obj.etag, "newer", NULL));
    fails(p, ESTALE, put_state(p, &p->op, note, obj.etag, "older", NULL));
    object_release(&obj);
    assert_state(p, note, "newer");
    ok(p, put_state(p, &p->op, note, NULL, "newest one", NULL));
    assert_state(p, note, "newest one");
    assert_root_is_clean(p);
    assert_missing(p, "sub/note");

    const char *names[] = {note, key(p, "other")};
    ok(p, store_remove(p->s, &p->op, names, NULL, 2, NULL));
    fails(p, ENOENT, store_stat(p->s, &p->op, note, &obj));
    assert_missing(p, "other");
    remove_state(p, note); /* which is not there */
    place_close(p);
}
END_TEST

struct seen_names {
    char text[512]; /* each with a ";" */
    unsigned objects;
};

static int note_name(void *arg, const char *name, const struct object *obj)
{
    struct seen_names *seen = arg;

    if (!obj->is_prefix) {
        seen->objects++;
        ck_assert_uint_eq(obj->size, 1);
    }
    (void)snprintf(seen->text + strlen(seen->text), sizeof(seen->text) - strlen(seen->text),
                   "%s%s;", name, obj->is_prefix ? "/" : "");
    return 0;
}

/* Directories are there as long as something is below them. */
START_TEST(state_is_listed_by_itself)
{
    static const char *const names[] = {"units/one/open", "units/one/seal", "units/two/open",
                                        "lease"};
    struct place *p = place_with_state(_i);
    struct seen_names one = {0}, all = {0}, above = {0};
    struct object obj;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        ok(p, put_state(p, &p->op, state_key(p, names[i]), "", "x", NULL));
    ok(p, store_list(p->s, &p->op, state_key(p, ""), 0, note_name, &one));
    ck_assert_uint_eq(one.objects, 1);
    ck_assert_ptr_nonnull(strstr(one.text, "lease;"));
    ck_assert_ptr_nonnull(strstr(one.text, "units/;"));
    ck_assert_uint_eq(strlen(one.text), strlen("lease;units/;"));
    ok(p, store_list(p->s, &p->op, state_key(p, "units"), LIST_RECURSIVE, note_name, &all));
    ck_assert_uint_eq(all.objects, 3);
    for (size_t i = 0; i < 3; i++)
        ck_assert_ptr_nonnull(strstr(all.text, names[i] + strlen("units/")));
    ok(p, store_stat(p->s, &p->op, state_key(p, "units/one"), &obj));
    ck_assert(obj.is_prefix);
    object_release(&obj);
    assert_root_is_clean(p);

    remove_state(p, state_key(p, names[0]));
    ok(p, store_stat(p->s, &p->op, state_key(p, "units/one"), &obj));
    object_release(&obj);
    for (size_t i = 1; i < ARRAY_SIZE(names); i++)
        remove_state(p, state_key(p, names[i]));
    fails(p, ENOENT, store_stat(p->s, &p->op, state_key(p, "units/one"), &obj));
    fails(p, ENOENT, store_stat(p->s, &p->op, state_key(p, ""), &obj));
    int r = store_list(p->s, &p->op, state_key(p, ""), 0, note_name, &above);
    ck_assert_msg(r == 0 || r == -ENOENT, "%d %s", r, p->op.why);
    ck_assert_str_eq(above.text, "");
    place_close(p);
}
END_TEST

#define HANDS 8

START_TEST(one_winner_creates_state)
{
    struct place *p = place_with_state(_i);
    struct racer racers[HANDS];
    struct object obj;

    for (int round = 0; round < 10; round++) {
        const char *slot = state_key(p, "slots/worker-0");
        int wins = 0, winner = 0;
        run_racers(p, racers, HANDS, slot, race_to_create);
        for (int i = 0; i < HANDS; i++) {
            ck_assert(!racers[i].strange);
            wins += racers[i].wins;
            winner = racers[i].wins ? i : winner;
        }
        ck_assert_int_eq(wins, 1);
        struct mem_sink sink;
        int id = -1;
        mem_sink_init(&sink, &id, sizeof(id), 0);
        ck_assert_int_eq(store_read(p->s, &p->op, slot, NULL, &sink.base, sizeof(id), 0, NULL),
                         sizeof(id));
        ck_assert_int_eq(id, winner);
        remove_state(p, slot);
        fails(p, ENOENT, store_stat(p->s, &p->op, slot, &obj));
    }
    place_close(p);
}
END_TEST

/* Puts and removes what is alone in its directory at times. */
static void *come_and_go(void *arg)
{
    struct racer *r = arg;
    auto_free char *k = NULL;
    struct op op;

    op_init(&op, PATIENCE);
    if (asprintf(&k, "%s/hand-%d", r->k, r->id) < 0)
        k = NULL;
    for (int i = 0; k && i < 25 && !r->strange; i++) {
        const char *name = k;
        r->strange = put_state(r->p, &op, k, NULL, "x", NULL) != 0 ||
                     store_remove(r->p->s, &op, &name, NULL, 1, NULL) != 0;
        if (r->strange)
            (void)fprintf(stderr, "%s: %s\n", r->p->fixture->name, op.why);
    }
    r->strange = r->strange || !k;
    return NULL;
}

START_TEST(state_comes_and_goes_beside_others)
{
    struct place *p = place_with_state(_i);
    struct racer racers[HANDS];
    struct object obj;

    if (p->fixture->removal_bars)
        ok(p, put_state(p, &p->op, state_key(p, "deep/er/stays"), NULL, "x", NULL));
    run_racers(p, racers, HANDS, state_key(p, "deep/er"), come_and_go);
    for (int i = 0; i < HANDS; i++)
        ck_assert(!racers[i].strange);
    remove_state(p, state_key(p, "deep/er/stays"));
    fails(p, ENOENT, store_stat(p->s, &p->op, state_key(p, "deep"), &obj));
    place_close(p);
}
END_TEST

START_TEST(odd_names_of_state_survive)
{
    static const char *const odd[] = {"a b",  "%2e%2e", "@a",  ".runfs",      "...",
                                      "lock", "put-1",  "<&>", "state/state", "\xc3\xa9"};
    static const char *const bad[] = {"..", "a/../b", "a//b", "a/", "./a"};
    struct place *p = place_with_state(_i);
    struct seen_names seen = {0};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        fails(p, EINVAL, put_state(p, &p->op, state_key(p, bad[i]), NULL, "x", NULL));
        const char *k = state_key(p, bad[i]);
        fails(p, EINVAL, store_remove(p->s, &p->op, &k, NULL, 1, NULL));
    }
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
        ok(p, put_state(p, &p->op, state_key(p, odd[i]), "", "x", NULL));
    ok(p, store_list(p->s, &p->op, state_key(p, ""), LIST_RECURSIVE, note_name, &seen));
    ck_assert_uint_eq(seen.objects, ARRAY_SIZE(odd));
    assert_root_is_clean(p);
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
        ck_assert_ptr_nonnull(strstr(seen.text, odd[i]));
        assert_state(p, state_key(p, odd[i]), "x");
        remove_state(p, state_key(p, odd[i]));
    }
    place_close(p);
}
END_TEST
