/* What is wrong in a configuration: a list by places, of which the first hundred are kept. */
#include "common/buf.h"
#include "common/mem.h"
#include "common/printable.h"
#include "runs/config.h"

#include <stdarg.h>

#define PROBLEM_TEXT_MAX 4096

static bool place_before(struct text_place a, struct text_place b)
{
    return a.line != b.line ? a.line < b.line : a.column < b.column;
}

/* One line whatever names the file has: `check` prints a line for each problem. */
static char *text_of(const char *fmt, va_list ap)
{
    auto_buf struct buf raw = BUF_INIT(PROBLEM_TEXT_MAX);
    auto_buf struct buf text = BUF_INIT(PROBLEM_TEXT_MAX * PRINTABLE_MAX);
    const char *rest;
    char part[PRINTABLE_MAX];
    size_t len;
    int err = buf_vaddf(&raw, fmt, ap);

    if (err == -EFBIG)
        err = buf_adds(&raw, "what is wrong here is too long to be said");
    rest = raw.data;
    while (!err && rest && (len = printable_next(part, &rest)) > 0)
        err = buf_add(&text, part, len);
    return err ? NULL : buf_take(&text);
}

int config_problem_add(struct config_problems *p, struct text_place at, const char *fmt, ...)
{
    size_t i = p->n;
    va_list ap;
    char *text;

    while (i > 0 && place_before(at, p->items[i - 1].at))
        i--;
    p->more += p->n == CONFIG_PROBLEMS_MAX;
    if (i == CONFIG_PROBLEMS_MAX)
        return 0;
    if (array_grow(p->items, p->cap, p->n + 1))
        return -ENOMEM;
    va_start(ap, fmt);
    text = text_of(fmt, ap);
    va_end(ap);
    if (!text)
        return -ENOMEM;
    if (p->n == CONFIG_PROBLEMS_MAX)
        free(p->items[--p->n].text);
    memmove(&p->items[i + 1], &p->items[i], (p->n - i) * sizeof(*p->items));
    p->items[i] = (struct config_problem){.at = at, .text = text};
    p->n++;
    return 0;
}

void config_problems_release(struct config_problems *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->items[i].text);
    free(p->items);
    *p = (struct config_problems){0};
}

int config_problems_fail(const struct config_problems *p, const char *origin, struct op *op)
{
    const struct config_problem *first = p->items;

    if (first->at.line == 0)
        return op_fail(op, -EINVAL, "%s: %s", origin, first->text);
    return op_fail(op, -EINVAL, "%s:%u:%u: %s", origin, first->at.line, first->at.column,
                   first->text);
}
