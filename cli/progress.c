/* The progress bar. */
#include "cli/progress.h"

#include "cli/command.h"
#include "cli/stall_doc.h"
#include "common/op.h"
#include "common/units.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR_WIDTH  30
#define LINE_NS    (5 * NS_PER_SEC) /* between lines where there is no terminal */
#define TROUBLE_NS (2 * NS_PER_SEC)
#define BAR_NS     (100 * NS_PER_MS) /* between redraws of the bar */

void progress_init(struct progress *p, const char *what)
{
    *p = (struct progress){
        .what = what, .terminal = isatty(STDERR_FILENO), .deadline_ns = OP_FOREVER};
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

/* Once for each new reason, above the bar; not what passes at once or ends the command. */
static void print_error(struct progress *p, const char *error, int64_t now)
{
    if (!error)
        p->trouble_ns = 0;
    else if (!p->trouble_ns)
        p->trouble_ns = now;
    if (!error || now - p->trouble_ns < TROUBLE_NS)
        return;
    if (strncmp(p->error, error, sizeof(p->error) - 1) == 0)
        return;
    (void)snprintf(p->error, sizeof(p->error), "%s", error);
    progress_end(p);
    (void)command_failed("an upload failed and is tried again: %s", error);
}

void progress_stall(void *arg, const struct client_step *step)
{
    struct progress *p = arg;
    bool told = p->stalled;
    char text[STALL_TEXT_MAX];

    p->stalled = step->stalled != NULL;
    if (told || !p->stalled)
        return;
    progress_end(p);
    (void)command_failed("waiting for %s: %s", step->store ? step->store : "the store",
                         stall_text(step->stalled, p->deadline_ns, NULL, text));
}

void progress_step(void *arg, const struct client_step *step)
{
    struct progress *p = arg;
    int64_t now = clock_mono_ns();
    double seconds = (double)(now - p->started_ns) / (double)NS_PER_SEC;
    char done[FORMAT_SIZE_MAX], total[FORMAT_SIZE_MAX], rate[FORMAT_SIZE_MAX], numbers[160];
    char files[32] = "";
    unsigned percent = 100;

    progress_stall(p, step);
    print_error(p, step->error, now);
    if (now - p->printed_ns < (p->terminal ? BAR_NS : LINE_NS))
        return;
    if (step->done_bytes < step->total_bytes)
        percent = (unsigned)(100.0 * (double)step->done_bytes / (double)step->total_bytes);
    if (step->files)
        (void)snprintf(files, sizeof(files), ", %llu files", (unsigned long long)step->files);
    (void)snprintf(numbers, sizeof(numbers), "%s of %s, %s/s%s",
                   format_size(done, step->done_bytes), format_size(total, step->total_bytes),
                   format_size(rate, (uint64_t)((double)step->done_bytes / seconds)), files);
    if (p->terminal)
        print_bar(p->what, percent, numbers);
    else
        (void)fprintf(stderr, "%s: %u%%, %s\n", p->what, percent, numbers);
    p->shown = p->terminal;
    p->printed_ns = now;
}

void progress_update(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct progress *p = arg;
    struct store_stats s = {0};

    if (p->store)
        store_get_stats(p->store, &s);
    auto_json json_t *stalled = stall_json(&s.stall);
    const struct client_step step = {.done_bytes = done_bytes,
                                     .total_bytes = total_bytes,
                                     .store = p->store ? p->store->url : NULL,
                                     .stalled = json_is_object(stalled) ? stalled : NULL};

    progress_step(p, &step);
}

void progress_end(struct progress *p)
{
    if (p->shown)
        (void)fprintf(stderr, "\r\033[K");
    p->shown = false;
}
