/* cache/queue/owed.c: the walk over all that is owed meets each once, whatever its state. */
#include "tests/lib/room.h"
#include "tests/unit/queue/owed.h"
#include "tests/unit/queue/suites.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

static struct file *add_file(struct cache *c, const char *name) REQUIRES(cache_mutex)
{
    struct file *f = file_new(room_file_locked(c, name), FILE_DIRTY);

    ck_assert_ptr_nonnull(f);
    file_count_locked(c);
    return f;
}

static void add_writer(struct cache *c, struct file *f) REQUIRES(cache_mutex)
{
    f->is_writer = true;
    f->open_handles = f->write_handles = 1;
    DL_APPEND2(c->content->writers, f, writer_prev, writer_next);
}

static void forget_writers(struct cache *c) REQUIRES(cache_mutex)
{
    struct file *f, *next;

    DL_FOREACH_SAFE2(c->content->writers, f, next, writer_next)
    {
        DL_DELETE2(c->content->writers, f, writer_prev, writer_next);
        f->open_handles = f->write_handles = f->is_writer = 0;
    }
}

static void add_queued(struct cache *c, const char *name) REQUIRES(cache_mutex)
{
    file_insert_locked(c, add_file(c, name));
}

/* What the walk meets: a letter each, of its kind. */
static const char *walked(struct cache *c) REQUIRES(cache_mutex)
{
    static const char letters[] = {
        [DEBT_FILE] = 'f', [DEBT_DIR] = 'd', [DEBT_ROW] = 'r', [DEBT_SESSION] = 's'};
    static char text[64];
    size_t n = 0;
    struct debt *d;

    OWED_FOREACH(c, d)
    {
        ck_assert_uint_lt(n, sizeof(text) - 1);
        text[n++] =
            d->kind == DEBT_FILE && !debt_is_queued(d) ? 'o' : letters[(enum debt_kind)d->kind];
    }
    text[n] = '\0';
    return text;
}

/* Each kind, and each pair of them, is met where others are missing. */
static const struct {
    unsigned files, open, both, dirs;
    const char *rows, *walk;
} walks[] = {
    {0, 0, 0, 0, "", ""},
    {2, 0, 0, 0, "", "ff"},
    {0, 2, 0, 0, "", "oo"},
    {0, 0, 2, 0, "", "ff"}, /* open, and queued: once */
    {0, 0, 0, 2, "", "dd"},
    {0, 0, 0, 0, "unlink a; unlink b", "rr"},
    {1, 1, 1, 1, "unlink a", "ffodr"},
    {0, 1, 0, 0, "unlink a", "or"},
    {1, 0, 0, 0, "rename a b", "fr"},
    {0, 1, 1, 1, "", "fod"},
};

START_TEST(each_is_met_once)
{
    struct cache *c = owed_new(walks[_i].rows, "");
    char name[] = "f0";
    struct debt session = {.kind = DEBT_SESSION};

    for (unsigned i = 0; i < walks[_i].files; i++, name[1]++)
        add_queued(c, name);
    for (unsigned i = 0; i < walks[_i].open; i++, name[1]++)
        add_writer(c, add_file(c, name));
    for (unsigned i = 0; i < walks[_i].both; i++, name[1]++) {
        add_queued(c, name);
        add_writer(c, debt_file(c->queue->owed[DEBT_FILE].last));
    }
    for (unsigned i = 0; i < walks[_i].dirs; i++, name[1]++)
        dir_queue_locked(c, room_dir_locked(c, name));
    ck_assert_str_eq(walked(c), walks[_i].walk);
    debts_add(&c->queue->owed[DEBT_SESSION], &session);
    const char *text = walked(c);
    ck_assert_uint_eq(strlen(text), strlen(walks[_i].walk) + 1);
    ck_assert_int_eq(text[strlen(walks[_i].walk)], 's');
    debt_leave(&session);
    forget_writers(c);
    owed_free(c);
}
END_TEST

/* Who walks may queue what is open: it is met no second time. */
START_TEST(what_is_open_may_be_queued_on_the_way)
{
    struct cache *c = owed_new("unlink a", "");
    struct debt *after;
    unsigned n = 0;

    add_queued(c, "f");
    add_writer(c, add_file(c, "g"));
    add_writer(c, add_file(c, "h"));
    for (struct debt *d = owed_first_locked(c); d; d = after, n++) {
        after = owed_next_locked(c, d);
        if (d->kind == DEBT_FILE && !debt_is_queued(d))
            file_insert_locked(c, debt_file(d));
    }
    ck_assert_uint_eq(n, 4);
    ck_assert_str_eq(walked(c), "fffr");
    forget_writers(c);
    owed_free(c);
}
END_TEST

START_TEST(a_failure_is_told_once)
{
    struct cache *c = owed_new("unlink a", "");
    struct intent *i = owed_row(c, 1);
    int64_t now = clock_mono_ns();

    c->config.retry_ns = NS_PER_SEC;
    owed_failed_locked(c, &i->debt, -EIO, "why");
    owed_failed_locked(c, &i->debt, -ENOSPC, "why not");
    ck_assert_uint_eq(i->debt.attempts, 2);
    ck_assert_int_ge(i->debt.due_ns, now + NS_PER_SEC); /* half of two pauses */
    ck_assert_int_eq(c->write_failure.err, -ENOSPC);
    ck_assert_str_eq(c->write_failure.text, "why not");
    owed_free(c);
}
END_TEST

/* What failed comes due in few passes, however much it is, and no sooner than it would. */
START_TEST(failures_come_due_together)
{
    struct cache *c = owed_new("unlink a", "");
    struct intent *i = owed_row(c, 1);
    const int64_t retry_ns = _i ? NS_PER_MS : 2 * NS_PER_SEC;
    const int64_t grid = _i ? NS_PER_MS / 8 : NS_PER_SEC / 4;

    c->config.retry_ns = retry_ns;
    for (int k = 0; k < 500; k++) {
        int64_t begun = clock_mono_ns();
        debt_forgive(&i->debt);
        owed_failed_locked(c, &i->debt, -EIO, "why");
        ck_assert_int_ge(i->debt.due_ns, begun + retry_ns / 2);
        ck_assert_int_lt(i->debt.due_ns, i->debt.failed_ns + retry_ns + grid);
        ck_assert_int_eq(i->debt.due_ns % grid, 0);
    }
    owed_free(c);
}
END_TEST

Suite *walk_suite(void)
{
    Suite *s = suite_create("walk");
    TCase *t = tcase_create("walk");

    tcase_add_loop_test(t, each_is_met_once, 0, (int)ARRAY_SIZE(walks));
    tcase_add_test(t, what_is_open_may_be_queued_on_the_way);
    tcase_add_test(t, a_failure_is_told_once);
    tcase_add_loop_test(t, failures_come_due_together, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
