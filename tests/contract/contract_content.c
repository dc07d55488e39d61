/* The contract of stat, read and put. Part of contract.c. */
#include "tests/contract/contract_place.h"

/* ---- facts ---- */

/* A store that is one store: routes may make several of them one. */
START_TEST(facts_are_the_same_at_every_key)
{
    struct place *p = place_open(_i);
    const char *const keys[] = {key(p, "nothing"), "a/b/c", STORE_STATE_DIR "/index"};
    struct store_facts all, f;

    store_facts(p->s, "", &all);
    ck_assert_uint_eq(all.volume, 0);
    ck_assert_uint_gt(all.put_max, 0);
    ck_assert_uint_gt(all.key_max, 0);
    ck_assert_uint_lt(all.key_max, STORE_KEY_MAX);
    if (all.caps & STORE_PARTS) {
        ck_assert_uint_gt(all.parts_max, 1);
        ck_assert_uint_le(all.part_min, all.part_size);
        ck_assert_uint_le(all.part_size, all.part_max);
    }
    for (size_t i = 0; i < ARRAY_SIZE(keys) && !p->fixture->routed; i++) {
        store_facts(p->s, keys[i], &f);
        ck_assert_uint_eq(f.caps, all.caps);
        ck_assert_uint_eq(f.volume, all.volume);
        ck_assert_uint_eq(f.part_size, all.part_size);
        ck_assert_uint_eq(f.part_min, all.part_min);
        ck_assert_uint_eq(f.part_max, all.part_max);
        ck_assert_uint_eq(f.parts_max, all.parts_max);
        ck_assert_uint_eq(f.put_max, all.put_max);
        ck_assert_uint_eq(f.size_max, all.size_max);
        ck_assert_uint_eq(f.key_max, all.key_max);
    }
    place_close(p);
}
END_TEST

/* ---- stat, put, read ---- */

START_TEST(stat_tells_objects_and_directories)
{
    struct place *p = place_open(_i);
    struct object obj;

    assert_missing(p, "nothing");
    assert_missing(p, "nothing/below");
    ok(p, put_text(p, "dir/sub/object", NULL, "12345"));
    ok(p, stat_of(p, "dir/sub/object", &obj));
    ck_assert_uint_eq(obj.size, 5);
    ck_assert(!obj.is_prefix);
    ck_assert(obj.attrs_known);
    ck_assert_int_gt(obj.mtime_ns, 1500000000 * NS_PER_SEC);
    if (can(p, STORE_IF_MATCH))
        ck_assert_str_ne(obj.etag, "");
    object_release(&obj);
    ok(p, stat_of(p, "dir/sub", &obj));
    ck_assert(obj.is_prefix);
    ck_assert_int_eq(obj.has_marker, can(p, STORE_DIRS));
    object_release(&obj);
    ok(p, store_stat(p->s, &p->op, "", &obj));
    ck_assert(obj.is_prefix);
    object_release(&obj);
    assert_missing(p, "di"); /* a prefix of letters is no directory */
    place_close(p);
}
END_TEST

START_TEST(put_and_read_any_size)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 1000000, (3u << 20) + 7};
    struct place *p = place_open(_i);

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        size_t size = sizes[i];
        auto_free char *data = pattern(size, (unsigned)i), *back = malloc(size + 10);
        struct object put, got;

        ok(p, put_bytes(p, "object", NULL, data, size, NULL, &put));
        ck_assert_uint_eq(put.size, size);
        ck_assert_int_eq(get_bytes(p, "object", NULL, back, size + 10, 0, &got), size);
        ck_assert_mem_eq(back, data, size);
        ck_assert_uint_eq(got.size, size);
        ck_assert_str_eq(got.etag, put.etag);
        object_release(&put);
        object_release(&got);
    }
    place_close(p);
}
END_TEST

START_TEST(read_ranges)
{
    struct place *p = place_open(_i);
    struct object obj;
    char buf[16] = "";

    ok(p, put_text(p, "object", NULL, "0123456789"));
    ck_assert_int_eq(get_bytes(p, "object", NULL, buf, 4, 3, &obj), 4);
    ck_assert_mem_eq(buf, "3456", 4);
    ck_assert_uint_eq(obj.size, 10);
    object_release(&obj);
    ck_assert_int_eq(get_bytes(p, "object", NULL, buf, 16, 8, NULL), 2);
    ck_assert_mem_eq(buf, "89", 2);
    ck_assert_int_eq(get_bytes(p, "object", NULL, buf, 1, 9, NULL), 1);
    ck_assert_int_eq(get_bytes(p, "object", NULL, buf, 16, 10, NULL), 0);
    ck_assert_int_eq(get_bytes(p, "object", NULL, buf, 16, 1000, NULL), 0);
    ck_assert_int_eq(get_bytes(p, "object", NULL, buf, 0, 5, &obj), 0);
    ck_assert_uint_eq(obj.size, 10);
    object_release(&obj);
    ok(p, put_text(p, "empty", NULL, ""));
    ck_assert_int_eq(get_bytes(p, "empty", NULL, buf, 16, 0, &obj), 0);
    ck_assert_uint_eq(obj.size, 0);
    object_release(&obj);
    fails(p, ENOENT, get_bytes(p, "nothing", NULL, buf, 16, 0, NULL));
    fails(p, ENOENT, get_bytes(p, "nothing", NULL, buf, 0, 0, NULL));
    place_close(p);
}
END_TEST

START_TEST(read_one_version)
{
    struct place *p = place_open(_i);
    char v1[STORE_ETAG_MAX], v2[STORE_ETAG_MAX], buf[16];

    put_versioned(p, "object", "first", v1);
    ck_assert_int_eq(get_bytes(p, "object", v1, buf, 16, 0, NULL), 5);
    put_versioned(p, "object", "other", v2);
    ck_assert_str_ne(v1, v2);
    fails(p, ESTALE, get_bytes(p, "object", v1, buf, 16, 0, NULL));
    fails(p, ESTALE, get_bytes(p, "object", v1, buf, 0, 0, NULL));
    ck_assert_int_eq(get_bytes(p, "object", v2, buf, 16, 0, NULL), 5);
    ck_assert_int_eq(get_bytes(p, "object", v2, buf, 16, 100, NULL), 0);
    const char *k = key(p, "object");
    ok(p, store_remove(p->s, &p->op, &k, NULL, 1, NULL));
    fails(p, ENOENT, get_bytes(p, "object", v2, buf, 16, 0, NULL));
    place_close(p);
}
END_TEST

START_TEST(put_checks_the_version)
{
    struct place *p = place_open(_i);
    char v1[STORE_ETAG_MAX], v2[STORE_ETAG_MAX];

    if (!can(p, STORE_IF_MATCH)) {
        fails(p, EOPNOTSUPP, put_text(p, "object", "", "x"));
    } else {
        ok(p, put_text(p, "object", "", "one"));
        fails(p, ESTALE, put_text(p, "object", "", "two"));
        assert_text(p, "object", "one");
        put_versioned(p, "object", "three", v1);
        ok(p, put_text(p, "object", v1, "four"));
        fails(p, ESTALE, put_text(p, "object", v1, "five"));
        assert_text(p, "object", "four");
        put_versioned(p, "gone", "x", v2);
        const char *k = key(p, "gone");
        ok(p, store_remove(p->s, &p->op, &k, NULL, 1, NULL));
        fails(p, ESTALE, put_text(p, "gone", v2, "y"));
        assert_missing(p, "gone");
    }
    place_close(p);
}
END_TEST

/* ---- several at once ---- */

struct racer {
    struct place *p;
    const char *k;
    int id, wins, strange;
};

static void *race_to_create(void *arg)
{
    struct racer *r = arg;
    struct mem_source src;
    struct op op;

    op_init(&op, PATIENCE);
    mem_source_init(&src, &r->id, sizeof(r->id));
    int result = store_put(r->p->s, &op, r->k, "", &src.base, NULL, NULL);
    r->wins = result == 0;
    r->strange = result != 0 && result != -ESTALE;
    return NULL;
}

static void run_racers(struct place *p, struct racer *racers, size_t n, const char *k,
                       void *(*run)(void *))
{
    pthread_t *threads = calloc(n, sizeof(*threads));

    for (size_t i = 0; i < n; i++) {
        racers[i] = (struct racer){p, k, (int)i, 0, 0};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run, &racers[i]), 0);
    }
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    free(threads);
}

START_TEST(one_winner_creates)
{
    struct place *p = place_open(_i);
    struct racer racers[8];
    int winners = 0, winner = -1, found = -1;

    if (can(p, STORE_IF_MATCH)) {
        const char *k = key(p, "lock");
        run_racers(p, racers, ARRAY_SIZE(racers), k, race_to_create);
        for (size_t i = 0; i < ARRAY_SIZE(racers); i++) {
            ck_assert_int_eq(racers[i].strange, 0);
            winners += racers[i].wins;
            if (racers[i].wins)
                winner = racers[i].id;
        }
        ck_assert_int_eq(winners, 1);
        ck_assert_int_eq(get_bytes(p, "lock", NULL, &found, sizeof(found), 0, NULL),
                         sizeof(found));
        ck_assert_int_eq(found, winner);
    }
    place_close(p);
}
END_TEST

/* Reads a number, writes the next one if nobody else did. */
static void *race_to_count(void *arg)
{
    struct racer *r = arg;
    struct mem_source src;
    struct mem_sink sink;
    struct object obj;
    struct op op;
    int number;

    for (int i = 0; i < 20; i++) {
        op_init(&op, PATIENCE);
        mem_sink_init(&sink, &number, sizeof(number), 0);
        ssize_t n = store_read(r->p->s, &op, r->k, NULL, &sink.base, sizeof(number), 0, &obj);
        if (n != sizeof(number)) {
            r->strange++;
            continue;
        }
        number++;
        mem_source_init(&src, &number, sizeof(number));
        int result = store_put(r->p->s, &op, r->k, obj.etag, &src.base, NULL, NULL);
        r->wins += result == 0;
        r->strange += result != 0 && result != -ESTALE;
        object_release(&obj);
    }
    return NULL;
}

START_TEST(no_update_is_lost)
{
    struct place *p = place_open(_i);
    struct racer racers[4];
    int number = 0, wins = 0;

    if (can(p, STORE_IF_MATCH)) {
        ok(p, put_bytes(p, "number", NULL, &number, sizeof(number), NULL, NULL));
        run_racers(p, racers, ARRAY_SIZE(racers), key(p, "number"), race_to_count);
        for (size_t i = 0; i < ARRAY_SIZE(racers); i++) {
            ck_assert_int_eq(racers[i].strange, 0);
            wins += racers[i].wins;
        }
        ck_assert_int_gt(wins, 0);
        get_bytes(p, "number", NULL, &number, sizeof(number), 0, NULL);
        ck_assert_int_eq(number, wins);
    }
    place_close(p);
}
END_TEST

#define UNIFORM (512u << 10)

static void *read_uniform(void *arg)
{
    struct racer *r = arg;
    auto_free char *buf = malloc(UNIFORM);
    struct mem_sink sink;
    struct op op;

    for (int i = 0; i < 15; i++) {
        op_init(&op, PATIENCE);
        mem_sink_init(&sink, buf, UNIFORM, 0);
        ssize_t n = store_read(r->p->s, &op, r->k, NULL, &sink.base, UNIFORM, 0, NULL);
        if (n != UNIFORM || memcmp(buf, buf + 1, UNIFORM - 1) != 0)
            r->strange++;
    }
    return NULL;
}

START_TEST(readers_see_whole_objects)
{
    struct place *p = place_open(_i);
    auto_free char *data = malloc(UNIFORM);
    const char *k = key(p, "object");
    struct racer r = {p, k, 0, 0, 0};
    pthread_t reader;

    memset(data, 'a', UNIFORM);
    ok(p, put_bytes(p, "object", NULL, data, UNIFORM, NULL, NULL));
    ck_assert_int_eq(pthread_create(&reader, NULL, read_uniform, &r), 0);
    for (int i = 0; i < 15; i++) {
        memset(data, 'b' + i, UNIFORM);
        struct mem_source src;
        mem_source_init(&src, data, UNIFORM);
        ok(p, store_put(p->s, &p->op, k, NULL, &src.base, NULL, NULL));
    }
    pthread_join(reader, NULL);
    ck_assert_int_eq(r.strange, 0);
    place_close(p);
}
END_TEST

/* ---- sources and sinks that fail ---- */

static ssize_t broken_pread(struct source *src, void *buf, size_t len, uint64_t off)
{
    (void)src;
    if (off >= 1000)
        return -EIO;
    if (len > 1000 - off)
        len = (size_t)(1000 - off);
    memset(buf, 'x', len);
    return (ssize_t)len;
}

/* Of a file that somebody cut meanwhile. */
static ssize_t short_pread(struct source *src, void *buf, size_t len, uint64_t off)
{
    return off >= 1000 ? 0 : broken_pread(src, buf, len, off);
}

static int full_write(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    (void)sink, (void)data, (void)len, (void)off;
    return -EDQUOT;
}

START_TEST(errors_of_the_caller_come_back)
{
    struct place *p = place_open(_i);
    struct source broken = {.size = 2000, .pread = broken_pread};
    struct source cut = {.size = 2000, .pread = short_pread};
    struct sink full = {.write = full_write};

    ok(p, put_text(p, "object", NULL, "old"));
    fails(p, EIO, store_put(p->s, &p->op, key(p, "object"), NULL, &broken, NULL, NULL));
    fails(p, EBUSY, store_put(p->s, &p->op, key(p, "object"), NULL, &cut, NULL, NULL));
    assert_text(p, "object", "old");
    fails(p, EDQUOT, store_read(p->s, &p->op, key(p, "object"), NULL, &full, 3, 0, NULL));
    place_close(p);
}
END_TEST

static int visit_none(void *arg, const char *name, const struct object *obj)
{
    (void)arg, (void)name, (void)obj;
    return 0;
}

START_TEST(deadline_and_cancel_end_calls)
{
    struct place *p = place_open(_i);
    atomic_bool cancelled = true;
    struct object obj;
    char buf[8];

    ok(p, put_text(p, "object", NULL, "x"));
    for (int cancel = 0; cancel < 2; cancel++) {
        int err = cancel ? EINTR : ETIMEDOUT;
        op_init(&p->op, cancel ? PATIENCE : 0);
        p->op.cancelled = cancel ? &cancelled : NULL;
        ck_assert_int_eq(stat_of(p, "object", &obj), -err);
        ck_assert_int_eq(get_bytes(p, "object", NULL, buf, 1, 0, NULL), -err);
        ck_assert_int_eq(put_text(p, "object", NULL, "y"), -err);
        ck_assert_int_eq(store_list(p->s, &p->op, p->dir, 0, visit_none, NULL), -err);
        ck_assert_str_ne(p->op.why, "");
    }
    op_init(&p->op, PATIENCE);
    assert_text(p, "object", "x");
    place_close(p);
}
END_TEST
