/* Lines for the log from where locks are held: queued in memory, written by a worker. */
#include "common/log_queue.h"

#include "common/mem.h"
#include "common/op.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

MUTEX_KIND(log_queue, struct log_queue, lock);

struct queued_line {
    struct queued_line *next;
    uint64_t left_out; /* how many are missing before it */
    int64_t when_ns;   /* CLOCK_REALTIME */
    enum log_level level;
    char text[];
};

static void say_left_out(uint64_t n)
{
    if (n > 0)
        log_warn("%" PRIu64
                 " lines of the log are left out: the log could not be written as fast",
                 n);
}

/* The first, or NULL when there is none; *ret_left_out: how many are missing before it. */
static struct queued_line *take_locked(struct log_queue *q, uint64_t *ret_left_out)
    REQUIRES(log_queue_mutex)
{
    struct queued_line *line = q->head;

    log_queue_assert_locked(q);
    *ret_left_out = line ? line->left_out : q->left_out;
    if (!line) {
        q->left_out = 0;
        return NULL;
    }
    q->head = line->next;
    if (!q->head)
        q->tail = &q->head;
    q->n--;
    return line;
}

/* There is one of these at a time, so that the order is kept. */
static void write_lines(struct task *task)
{
    struct log_queue *q = container_of(task, struct log_queue, task);
    bool more = true;

    while (more) {
        uint64_t left_out;
        log_queue_lock(q);
        struct queued_line *line = take_locked(q, &left_out);
        more = q->writing = line || left_out > 0;
        log_queue_unlock(q);
        say_left_out(left_out);
        if (line)
            log_text_at(line->level, line->when_ns, line->text);
        free(line);
    }
}

void log_queue_init(struct log_queue *q)
{
    *q = (struct log_queue){.tail = &q->head, .task.run = write_lines};
    mutex_init(&q->lock);
}

void log_queue_start(struct log_queue *q, struct pool *pool)
{
    log_queue_lock(q);
    q->pool = pool;
    log_queue_unlock(q);
}

void log_queue_stop(struct log_queue *q)
{
    log_queue_lock(q);
    assert(!q->head && !q->writing);
    q->pool = NULL;
    log_queue_unlock(q);
}

void log_queue_release(struct log_queue *q)
{
    mutex_destroy(&q->lock);
}

/* Takes the line over; NULL: there was no memory for it. Returns the pool that has to get the
 * task, or NULL. */
static struct pool *add_locked(struct log_queue *q, struct queued_line *line)
    REQUIRES(log_queue_mutex)
{
    struct pool *idle = q->writing ? NULL : q->pool;

    log_queue_assert_locked(q);
    q->writing = true;
    if (!line || q->n == LOG_QUEUE_MAX) {
        free(line);
        q->left_out++;
        return idle;
    }
    line->left_out = q->left_out;
    q->left_out = 0;
    *q->tail = line;
    q->tail = &line->next;
    q->n++;
    return idle;
}

static void queue_text(struct log_queue *q, enum log_level level, const char *text)
{
    size_t len = strlen(text);
    struct queued_line *line = malloc(sizeof(*line) + len + 1);

    if (line) {
        *line = (struct queued_line){.when_ns = clock_real_ns(), .level = level};
        memcpy(line->text, text, len + 1);
    }
    log_queue_lock(q);
    struct pool *idle = add_locked(q, line);
    log_queue_unlock(q);
    if (idle)
        pool_submit_first(idle, &q->task);
}

void log_later(struct log_queue *q, enum log_level level, const char *fmt, ...)
{
    char text[LOG_TEXT_MAX];
    int saved = errno;
    va_list ap;

    if (!log_is_wanted(level))
        return;
    va_start(ap, fmt);
    log_format(text, fmt, ap);
    va_end(ap);
    log_queue_lock(q);
    bool now = !q->pool;
    log_queue_unlock(q);
    if (now)
        log_text_at(level, clock_real_ns(), text);
    else
        queue_text(q, level, text);
    errno = saved;
}
