/* The progress bar. */
#include "cli/progress.h"

#include "common/op.h"
#include "common/units.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR_WIDTH 30
#define LINE_NS   (5 * NS_PER_SEC)  /* between lines where there is no terminal */
#define BAR_NS    (100 * NS_PER_MS) /* between redraws of the bar */

void progress_init(struct progress *p, const char *what)
{
    *p = (struct progress){.what = what, .terminal = isatty(STDERR_FILENO)};
    p->started_ns = p->printed_ns = clock_mono_ns();
}

static void print_bar(const char *what, unsigned percent, const char *numbers)
{
    char bar[BAR_WIDTH + 1];

    memset(bar, '-', BAR_WIDTH);
    memset(bar, '#', percent * BAR_WIDTH / 100);
    bar[BAR_WIDTH] = '\0';
    (void)fprintf(stderr, "\r\033[K%s [%s] %3u%% %s", what, bar, percent, numbers);
    (void)fflush(stderr);
}

void progress_update(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct progress *p = arg;
    int64_t now = clock_mono_ns();
    double seconds = (double)(now - p->started_ns) / (double)NS_PER_SEC;
    char done[FORMAT_SIZE_MAX], total[FORMAT_SIZE_MAX], rate[FORMAT_SIZE_MAX], numbers[160];
    unsigned percent = 100;

    if (now - p->printed_ns < (p->terminal ? BAR_NS : LINE_NS))
        return;
    if (done_bytes < total_bytes)
        percent = (unsigned)(100.0 * (double)done_bytes / (double)total_bytes);
    (void)snprintf(numbers, sizeof(numbers), "%s of %s, %s/s", format_size(done, done_bytes),
                   format_size(total, total_bytes),
                   format_size(rate, (uint64_t)((double)done_bytes / seconds)));
    if (p->terminal)
        print_bar(p->what, percent, numbers);
    else
        (void)fprintf(stderr, "%s: %u%%, %s\n", p->what, percent, numbers);
    p->shown = p->terminal;
    p->printed_ns = now;
}

void progress_end(struct progress *p)
{
    if (p->shown)
        (void)fprintf(stderr, "\r\033[K");
    p->shown = false;
}
