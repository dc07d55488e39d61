/* What a read costs at the store, counted in requests and bytes. */
#include "cache/mount.h"
#include "cache/transfer/transfer_impl.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB   ((size_t)1 << 20)
#define PIECE ((size_t)128 << 10) /* what the kernel asks for at once */
#define PART  (8 * MIB)
#ifdef __SANITIZE_THREAD__ /* which takes its time */
#define RECORDS 12
#else
#define RECORDS 24
#endif
#define RECORD ((size_t)4 * MIB) /* from one to the next: they are shorter */
#define SIZE   ((RECORDS + 1) * RECORD)
/* Requests that the first parts are cut into while the window grows. */
#define GROWING 3

static struct {
    atomic_uint reads;
    atomic_size_t bytes;
} asked;

static int64_t count(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind == CALL_READ) {
        atomic_fetch_add(&asked.reads, 1);
        atomic_fetch_add(&asked.bytes, c->len);
    }
    return call_next(c);
}

/* Hands its bytes on in pieces of odd lengths, as they come from a socket. */
struct splitter {
    struct sink base;
    struct sink *to;
};

static int split(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct splitter *s = container_of(sink, struct splitter, base);
    int r = 0;

    for (size_t done = 0, n; done < len && r == 0; done += n) {
        n = 1 + (off + done) * 2654435761u % 20000;
        n = n < len - done ? n : len - done;
        r = s->to->write(s->to, (const char *)data + done, n, off + done);
    }
    return r;
}

/* Each read breaks off in the middle, and begins anew. */
static int64_t in_odd_pieces(struct layer *l, struct call *c)
{
    struct splitter s = {.base.write = split, .to = c->sink};

    (void)l;
    if (c->kind != CALL_READ)
        return call_next(c);
    struct call half = *c, whole = *c;
    half.sink = whole.sink = &s.base;
    half.len = c->len / 2;
    half.ret_obj = NULL;
    int64_t r = half.len ? call_next(&half) : 0;
    return r < 0 ? r : call_next(&whole);
}

static char content[SIZE]; /* constant */

static void make_content(void)
{
    for (size_t i = 0; i < SIZE; i += sizeof(uint32_t)) {
        uint32_t word = (uint32_t)i * 2654435761u;
        memcpy(content + i, &word, sizeof(word));
    }
}

static void start_with(struct driven *d, driven_around around, size_t gathered)
{
    memset(&asked, 0, sizeof(asked));
    driven_init(d, around);
    d->config.part_size = PART;
    d->config.gather_bytes = gathered;
    driven_mount(d);
    driven_store(d, "model", content, SIZE);
}

static void start(struct driven *d)
{
    start_with(d, count, 0);
}

static void read_piece(struct driven *d, struct handle *h, size_t len, size_t off)
{
    static char buf[MIB];

    ck_assert_int_eq(driven_pread(d, h, buf, len, off), (ssize_t)len);
    ck_assert(memcmp(buf, content + off, len) == 0);
}

/* A request for each part, a few more while the window grows, and no byte twice. */
static void is_sequential(void)
{
    ck_assert_uint_eq(atomic_load(&asked.bytes), SIZE);
    ck_assert_uint_le(atomic_load(&asked.reads), SIZE / PART + 1 + GROWING);
}

START_TEST(a_sequential_reader_asks_for_whole_parts)
{
    struct handle *h = NULL;
    struct driven d;

    start(&d);
    ck_assert_int_eq(driven_open(&d, "model", O_RDONLY, &h), 0);
    for (size_t off = 0; off < SIZE; off += PIECE)
        read_piece(&d, h, PIECE, off);
    cache_release(d.cache, h);
    is_sequential();
    driven_release(&d);
}
END_TEST

/* The kernel's read-ahead comes by several threads, which pass each other. */
START_TEST(pieces_that_pass_each_other_are_sequential)
{
    struct handle *h = NULL;
    struct driven d;

    start(&d);
    ck_assert_int_eq(driven_open(&d, "model", O_RDONLY, &h), 0);
    for (size_t off = 0; off < SIZE; off += 2 * PIECE) {
        read_piece(&d, h, PIECE, off + PIECE);
        read_piece(&d, h, PIECE, off);
    }
    cache_release(d.cache, h);
    is_sequential();
    driven_release(&d);
}
END_TEST

START_TEST(readers_of_the_same_file_ask_once)
{
    struct handle *h[4];
    struct driven d;

    start(&d);
    for (size_t i = 0; i < ARRAY_SIZE(h); i++)
        ck_assert_int_eq(driven_open(&d, "model", O_RDONLY, &h[i]), 0);
    for (size_t off = 0; off < SIZE; off += PIECE)
        for (size_t i = 0; i < ARRAY_SIZE(h); i++)
            read_piece(&d, h[i], PIECE, off);
    for (size_t i = 0; i < ARRAY_SIZE(h); i++)
        cache_release(d.cache, h[i]);
    is_sequential();
    driven_release(&d);
}
END_TEST

/* Records in any order, each of up to 1 MiB read in pieces: what was asked and little more. */
START_TEST(a_random_reader_gets_what_it_asks)
{
    struct handle *h = NULL;
    size_t wanted = 0;
    struct driven d;
    unsigned seed = 1;

    start(&d);
    ck_assert_int_eq(driven_open(&d, "model", O_RDONLY, &h), 0);
    for (size_t i = 0; i < RECORDS; i++) {
        size_t record = (i * 7 + 1) % RECORDS, off = record * RECORD + 3 * 4096;
        size_t len = (1 + (size_t)(rand_r(&seed) % 256)) * 4096;
        for (size_t done = 0; done < len; done += PIECE)
            read_piece(&d, h, len - done < PIECE ? len - done : PIECE, off + done);
        wanted += len;
    }
    cache_release(d.cache, h);
    ck_assert_uint_le(atomic_load(&asked.bytes), wanted + wanted / 4);
    driven_release(&d);
}
END_TEST

/* Downloads are written in the pieces that suit the machine: each way is right on each. */
START_TEST(what_comes_in_odd_pieces_is_put_together)
{
    static const size_t gathered[] = {16 << 10, 32 << 10, 256 << 10};
    struct driven d;

    start_with(&d, in_odd_pieces, gathered[_i]);
    size_t size = SIZE / 5 + 12345;
    driven_store(&d, "odd", content, size);
    char *found = malloc(size);
    struct handle *h = NULL;
    ck_assert_ptr_nonnull(found);
    ck_assert_int_eq(driven_open(&d, "odd", O_RDONLY, &h), 0);
    ck_assert_int_eq(driven_pread(&d, h, found, 5000, PART + 77), 5000); /* out of order */
    ck_assert_int_eq(driven_pread(&d, h, found, size, 0), (ssize_t)size);
    ck_assert_mem_eq(found, content, size);
    ck_assert_int_eq(driven_close(&d, h), 0);
    free(found);
    driven_release(&d);
}
END_TEST

static char mirror_file[4096];
static atomic_ullong room; /* of it in bytes, and 1, when the first bytes of an answer came */

static unsigned long long room_now(void)
{
    struct stat st;

    return stat(mirror_file, &st) == 0 ? (unsigned long long)st.st_blocks * 512 : 0;
}

static int look_first(struct sink *sink, const void *data, size_t len, uint64_t off)
{
    struct splitter *s = container_of(sink, struct splitter, base);
    size_t half = len / 2;
    int r = s->to->write(s->to, data, half, off);

    if (atomic_load(&room) == 0)
        atomic_store(&room, room_now() + 1);
    return r < 0 ? r : s->to->write(s->to, (const char *)data + half, len - half, off + half);
}

static int64_t look_at_room(struct layer *l, struct call *c)
{
    struct splitter s = {.base.write = look_first, .to = c->sink};
    struct call looked = *c;

    (void)l;
    if (c->kind != CALL_READ)
        return call_next(c);
    looked.sink = &s.base;
    return call_next(&looked);
}

static void start_looking(struct driven *d)
{
    start_with(d, look_at_room, 0);
    (void)snprintf(mirror_file, sizeof(mirror_file), "%s/mirror/model", d->dir);
}

static bool can_reserve(const struct driven *d)
{
    char path[4096];

    (void)snprintf(path, sizeof(path), "%s/probe", d->dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    bool can = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, MIB) == 0;
    (void)close(fd);
    (void)unlink(path);
    return can;
}

START_TEST(a_part_gets_its_room_at_once)
{
    struct handle *h = NULL;
    struct driven d;

    start_looking(&d);
    driven_store(&d, "model", content, PART);
    ck_assert_int_eq(driven_open(&d, "model", O_RDONLY, &h), 0);
    read_piece(&d, h, PIECE, 0);
    DRIVEN_WAIT(atomic_load(&room) != 0); /* the reader had its piece before */
    if (can_reserve(&d))
        ck_assert_uint_gt(atomic_load(&room), PART);
    cache_release(d.cache, h);
    driven_release(&d);
}
END_TEST

START_TEST(a_record_takes_no_more_room_than_its_bytes)
{
    struct handle *h = NULL;
    struct driven d;

    start_looking(&d);
    ck_assert_int_eq(driven_open(&d, "model", O_RDONLY, &h), 0);
    read_piece(&d, h, PIECE, SIZE / 2);
    ck_assert_uint_le(room_now(), 2 * PIECE);
    cache_release(d.cache, h);
    driven_release(&d);
}
END_TEST

/* Somebody reads the old version, of which not all is here, while a new one replaces it: what
 * he may still need is fetched before the store loses it. */
START_TEST(a_reader_keeps_the_version_that_is_replaced)
{
    struct handle *h = NULL;
    struct driven d;
    char buf[8];

    start(&d);
    ck_assert_int_eq(driven_open(&d, "model", O_RDONLY, &h), 0);
    read_piece(&d, h, PIECE, 0);
    if (_i == 0) {
        driven_put(&d, "next", "next", 4);
        ck_assert_int_eq(driven_rename(&d, "next", "model"), 0);
    } else {
        ck_assert_int_eq(driven_unlink(&d, "model"), 0);
        driven_put(&d, "model", "next", 4);
    }
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_stored(&d, "model", buf, sizeof(buf)), 4);
    read_piece(&d, h, PIECE, SIZE - PIECE);
    read_piece(&d, h, PIECE, SIZE / 2);
    cache_release(d.cache, h);
    driven_release(&d);
}
END_TEST

static atomic_bool hold, held;

/* The store has the new attributes, and its answer takes a while. */
static int64_t answer_late(struct layer *l, struct call *c)
{
    (void)l;
    int64_t r = call_next(c);
    while (c->kind == CALL_SETATTR && atomic_load(&hold)) {
        atomic_store(&held, true);
        (void)usleep(1000);
    }
    return r;
}

static void *let_it_answer(void *arg)
{
    (void)usleep(100000); /* somebody reads by now */
    atomic_store(&hold, false);
    return arg;
}

/* They make another version of the object, of which the cache does not know yet. */
START_TEST(a_reader_goes_on_while_attributes_are_on_their_way)
{
    static char data[4 * MIB];
    struct handle *h = NULL;
    pthread_t thread;
    struct driven d;
    char buf[64];

    driven_init(&d, answer_late);
    d.config.settle_ns = 0;
    d.config.part_size = MIB;
    driven_mount(&d);
    driven_store(&d, "f", data, sizeof(data));
    ck_assert_int_eq(driven_open(&d, "f", O_RDONLY, &h), 0);
    ck_assert_int_eq(driven_pread(&d, h, buf, sizeof(buf), 0), sizeof(buf));
    atomic_store(&held, false);
    atomic_store(&hold, true);
    ck_assert_int_eq(driven_chmod(&d, "f", 0600), 0);
    DRIVEN_WAIT(atomic_load(&held));
    ck_assert_int_eq(pthread_create(&thread, NULL, let_it_answer, NULL), 0);
    ck_assert_int_eq(driven_pread(&d, h, buf, sizeof(buf), 3 * MIB), sizeof(buf));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(driven_flush(&d), 0);
    ck_assert_int_eq(driven_pread(&d, h, buf, sizeof(buf), 2 * MIB), sizeof(buf));
    ck_assert_int_eq(driven_close(&d, h), 0);
    driven_release(&d);
}
END_TEST

/* ---- sizes that a store claims ---- */

#define HUGE ((uint64_t)1 << 40)
#define JOBS 2
/* A few for each worker; the parts of what is huge would be a million. */
#define CLAIMS_MAX 16

static struct {
    struct driven d;
    atomic_size_t most; /* claims seen at once */
    atomic_bool silent; /* reads are answered when it is false */
    atomic_bool asked;
} claims;

static void look_at_claims(void)
{
    struct cache *c = claims.d.cache;
    size_t n = 0;

    mutex_lock(&c->lock);
    struct node *node = tree_find(c, "huge", NULL);
    for (struct fetch *f = node->file->fetches; f; f = f->next)
        n++;
    mutex_unlock(&c->lock);
    if (n > atomic_load(&claims.most))
        atomic_store(&claims.most, n);
}

static int64_t count_claims(struct layer *l, struct call *c)
{
    (void)l;
    if (c->kind != CALL_READ || strcmp(c->key, "huge") != 0)
        return call_next(c);
    look_at_claims();
    atomic_store(&claims.asked, true);
    for (int i = 0; i < 5000 && atomic_load(&claims.silent); i++)
        (void)usleep(1000);
    return call_next(c);
}

struct liar {
    store_visit visit;
    void *arg;
};

static int tell_huge(void *arg, const char *name, const struct object *obj)
{
    struct liar *liar = arg;
    struct object lie = *obj;

    if (strcmp(name, "huge") == 0)
        lie.size = HUGE;
    return liar->visit(liar->arg, name, &lie);
}

static int64_t claim_huge(struct layer *l, struct call *c)
{
    struct liar liar = {c->visit, c->visit_arg};

    if (c->kind == CALL_LIST) {
        c->visit = tell_huge;
        c->visit_arg = &liar;
    }
    int64_t r = count_claims(l, c);
    if (r == 0 && c->kind == CALL_STAT && strcmp(c->key, "huge") == 0)
        c->ret_obj->size = HUGE;
    return r;
}

static struct driven *start_claims(driven_around around, size_t size, size_t part)
{
    struct driven *d = &claims.d;
    auto_free char *data = calloc(1, size);

    memset(&claims, 0, sizeof(claims));
    ck_assert_ptr_nonnull(data);
    driven_init(d, around);
    d->config.part_size = part;
    d->config.download_jobs = JOBS;
    driven_mount(d);
    driven_store(d, "huge", data, size);
    driven_store(d, "small", "small", 5);
    return d;
}

START_TEST(a_whole_file_is_claimed_bit_by_bit)
{
    struct driven *d = start_claims(count_claims, 16 * MIB, MIB / 8);
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(d, "huge", O_WRONLY, &h), 0);
    ck_assert_int_eq(driven_write(d, h, "x", 1, 0), 0);
    ck_assert_int_eq(driven_close(d, h), 0);
    ck_assert_uint_le(atomic_load(&claims.most), CLAIMS_MAX);
    ck_assert_uint_ge(atomic_load(&claims.most), JOBS);
    driven_release(d);
}
END_TEST

static void *write_huge(void *arg)
{
    struct driven *d = &claims.d;
    struct handle *h = NULL;

    ck_assert_int_eq(driven_open(d, "huge", O_WRONLY, &h), 0);
    ck_assert_int_lt(driven_write(d, h, "x", 1, 0), 0);
    ck_assert_int_eq(driven_close(d, h), 0);
    return arg;
}

/* The store has a MiB and says a TiB. Who writes to it waits for all of it; others don't, nor
 * does who reads a byte. */
START_TEST(a_claimed_size_holds_nobody)
{
    struct driven *d = start_claims(claim_huge, MIB, MIB / 2);
    pthread_t thread;
    struct stat st;
    char byte;
    int r;

    atomic_store(&claims.silent, true);
    ck_assert_int_eq(pthread_create(&thread, NULL, write_huge, NULL), 0);
    DRIVEN_WAIT(atomic_load(&claims.asked));
    ck_assert_int_eq(driven_stat(d, "small", &st), 0);
    look_at_claims();
    atomic_store(&claims.silent, false);
    do /* the writer may just have found that the object is shorter: another version, then */
        r = (int)driven_read(d, "huge", &byte, 1);
    while (r == -ESTALE);
    ck_assert_int_eq(r, 1);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_le(atomic_load(&claims.most), CLAIMS_MAX);
    driven_release(d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache_read");
    TCase *t = tcase_create("cache_read");

    make_content();
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_sequential_reader_asks_for_whole_parts);
    tcase_add_test(t, pieces_that_pass_each_other_are_sequential);
    tcase_add_test(t, readers_of_the_same_file_ask_once);
    tcase_add_test(t, a_random_reader_gets_what_it_asks);
    tcase_add_test(t, a_part_gets_its_room_at_once);
    tcase_add_test(t, a_record_takes_no_more_room_than_its_bytes);
    tcase_add_loop_test(t, what_comes_in_odd_pieces_is_put_together, 0, 3);
    tcase_add_loop_test(t, a_reader_keeps_the_version_that_is_replaced, 0, 2);
    tcase_add_test(t, a_reader_goes_on_while_attributes_are_on_their_way);
    tcase_add_test(t, a_whole_file_is_claimed_bit_by_bit);
    tcase_add_test(t, a_claimed_size_holds_nobody);
    suite_add_tcase(s, t);
    return suite_run(s);
}
