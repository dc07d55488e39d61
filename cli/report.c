/* From the status document to lines. */
#include "cli/report.h"

#include "cli/stall_doc.h"
#include "common/buf.h"
#include "common/mem.h"
#include "common/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define REPORT_VAIN_MAX (64 * 1024)

static const char *text_of(const json_t *from, const char *name)
{
    const char *text = json_string_value(json_object_get(from, name));

    return text ? text : "";
}

static uint64_t number_of(const json_t *from, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(from, name));
}

static void print_queue(const json_t *queue)
{
    char size[FORMAT_SIZE_MAX];

    (void)printf("not in store  %" PRIu64 " files, %s; %" PRIu64 " uploading, %" PRIu64
                 " failed, %" PRIu64 " waiting for a rename, %" PRIu64 " kept\n",
                 number_of(queue, "dirty_files"),
                 format_size(size, number_of(queue, "dirty_bytes")),
                 number_of(queue, "uploading_files"), number_of(queue, "failed_files"),
                 number_of(queue, "staged_files"), number_of(queue, "kept_files"));
    if (number_of(queue, "oldest_seconds"))
        (void)printf("oldest        changed %" PRIu64 " s ago\n",
                     number_of(queue, "oldest_seconds"));
    if (number_of(queue, "unstamped_files"))
        (void)printf("unstamped     %" PRIu64 " of the kept files had no stamp at the mount: "
                     "was the cache copied without extended attributes?\n",
                     number_of(queue, "unstamped_files"));
    (void)printf("operations    %" PRIu64 " renames, deletes and the like to do\n",
                 number_of(queue, "pending_ops"));
}

static void print_transfer(const json_t *t)
{
    char bytes[FORMAT_SIZE_MAX], rate[FORMAT_SIZE_MAX];

    (void)printf("uploaded      %s in %" PRIu64 " files, now %s/s\n",
                 format_size(bytes, number_of(t, "uploaded_bytes")),
                 number_of(t, "uploaded_files"),
                 format_size(rate, number_of(t, "upload_bytes_per_second")));
    (void)printf("downloaded    %s, now %s/s\n",
                 format_size(bytes, number_of(t, "downloaded_bytes")),
                 format_size(rate, number_of(t, "download_bytes_per_second")));
}

static void print_cache(const json_t *status, const json_t *cache)
{
    char used[FORMAT_SIZE_MAX], size[FORMAT_SIZE_MAX], room[FORMAT_SIZE_MAX];

    command_say("cache         %s of %s in %s (%s free on the disk)",
                format_size(used, number_of(cache, "used_bytes")),
                format_size(size, number_of(cache, "size_bytes")), text_of(status, "cache_dir"),
                format_size(room, number_of(cache, "disk_free_bytes")));
    (void)printf("files         %" PRIu64 " in the cache, %" PRIu64 " open, %" PRIu64
                 " pinned\n",
                 number_of(cache, "mirror_files"), number_of(cache, "open_handles"),
                 number_of(cache, "pinned_files"));
    if (*text_of(cache, "trouble"))
        command_say("trouble       %s", text_of(cache, "trouble"));
    if (json_is_true(json_object_get(cache, "copied")))
        (void)printf("copied        the cache was a copy of another directory at the mount\n");
    if (number_of(cache, "descriptors_refused"))
        (void)printf("descriptors   %" PRIu64 " opens got ENFILE: %" PRIu64 " of %" PRIu64
                     " are open (ulimit -Hn, LimitNOFILE)\n",
                     number_of(cache, "descriptors_refused"), number_of(cache, "descriptors"),
                     number_of(cache, "descriptors_limit"));
    if (number_of(cache, "hidden_names"))
        (void)printf("hidden        %" PRIu64 " names in the store that no path can show\n",
                     number_of(cache, "hidden_names"));
}

static void print_stall(const json_t *status)
{
    const json_t *stalled = json_object_get(status, "stalled");
    uint64_t writers = number_of(json_object_get(status, "cache"), "waiting_writers");
    char text[STALL_TEXT_MAX];

    if (json_is_object(stalled))
        command_say("stalled       %s: %s", text_of(stalled, "what"),
                    stall_text(stalled, OP_FOREVER, NULL, text));
    if (writers)
        (void)printf("writers       %" PRIu64 " wait: the cache is full, and what is in it is "
                     "not published yet%s\n",
                     writers, json_is_object(stalled) ? ": the store stalls" : "");
}

/* Where there are several. */
static void print_stores(const json_t *stores)
{
    const json_t *store;
    size_t i;

    json_array_foreach(stores, i, store)
    {
        const json_t *stalled = json_object_get(store, "stalled");
        char text[STALL_TEXT_MAX] = "";

        if (json_is_object(stalled))
            (void)stall_text(stalled, OP_FOREVER, NULL, text);
        command_say("  %-11s %s, %" PRIu64 " requests, %" PRIu64 " failed%s%s",
                    text_of(store, "name"), text_of(store, "url"), number_of(store, "requests"),
                    number_of(store, "failures"), *text ? ", stalled: " : "", text);
    }
}

static void print_known(const char *line, const json_t *from, const char *name)
{
    if (*text_of(from, name))
        command_say("%s%s", line, text_of(from, name));
}

/* Where a path goes is told of a mount with routes, in the words of `runfs check`. */
static void print_path(const json_t *path)
{
    command_say("path          %s, itself %s", text_of(path, "path"), text_of(path, "state"));
    print_known("  store       ", path, "store");
    print_known("  route       ", path, "route");
    print_known("  policy      ", path, "policy");
}

void report_status(const json_t *status)
{
    const json_t *requests = json_object_get(status, "requests");
    const json_t *error = json_object_get(status, "last_error");
    const json_t *read_error = json_object_get(status, "last_read_error");
    const json_t *asked = json_object_get(status, "asked");

    command_say("store         %s%s", text_of(status, "store"),
                json_is_true(json_object_get(status, "read_only")) ? " (read-only)" : "");
    print_stores(json_object_get(status, "stores"));
    command_say("mountpoint    %s, %s for %" PRIu64 " s, pid %" PRIu64,
                text_of(status, "mountpoint"), text_of(status, "state"),
                number_of(status, "uptime_seconds"), number_of(status, "pid"));
    print_stall(status);
    print_queue(json_object_get(status, "queue"));
    print_transfer(json_object_get(status, "transfer"));
    print_cache(status, json_object_get(status, "cache"));
    (void)printf("requests      %" PRIu64 ", %" PRIu64 " failed, %" PRIu64 " repeated\n",
                 number_of(requests, "requests"), number_of(requests, "failures"),
                 number_of(requests, "retries"));
    if (json_is_object(error))
        command_say("last error    %s: %s", text_of(error, "errno"), text_of(error, "text"));
    if (json_is_object(read_error))
        command_say("last read     %s: %s", text_of(read_error, "errno"),
                    text_of(read_error, "text"));
    if (json_is_object(asked))
        print_path(asked);
}

void report_path(const json_t *status)
{
    const json_t *owed = json_object_get(status, "owed");
    char size[FORMAT_SIZE_MAX];

    print_path(status);
    command_say("object        %s %s", text_of(status, "url"), text_of(status, "version"));
    command_say("not in store  %" PRIu64 " files, %s; %" PRIu64 " uploading, %" PRIu64
                " failed, %" PRIu64 " waiting for a rename",
                number_of(owed, "files"), format_size(size, number_of(owed, "bytes")),
                number_of(owed, "uploading"), number_of(owed, "failed"),
                number_of(owed, "staged"));
    command_say("operations    %" PRIu64 " renames, deletes and the like to do",
                number_of(owed, "operations"));
}

void report_files(const json_t *status)
{
    const json_t *files = json_object_get(status, "files");
    const json_t *file;
    size_t i;

    json_array_foreach(files, i, file) command_print_pending(&(struct cache_pending){
        .kind = text_of(file, "kind"),
        .path = text_of(file, "path"),
        .path2 = json_string_value(json_object_get(file, "path2")),
        .state = text_of(file, "state"),
        .error = json_string_value(json_object_get(file, "error")),
        .routed.store = json_string_value(json_object_get(file, "store")),
        .bytes = number_of(file, "bytes"),
        .bytes_done = number_of(file, "bytes_done"),
    });
    if (json_is_true(json_object_get(status, "files_truncated")))
        (void)printf("... and more\n");
}

char *report_names(const json_t *answer, const char *field, uint64_t n)
{
    const json_t *names = json_object_get(answer, field), *name;
    struct buf text = BUF_INIT(REPORT_VAIN_MAX);
    size_t i;

    json_array_foreach(names, i, name)
    {
        (void)buf_addf(&text, "%s%s", i ? ", " : "", json_string_value(name));
    }
    if (n > i)
        (void)buf_addf(&text, " and %" PRIu64 " more", n - i);
    return buf_take(&text);
}

char *report_vain(const json_t *answer, const char *mountpoint)
{
    const json_t *stalled = json_object_get(answer, "stalled");
    const char *said = text_of(answer, "error"), *cache_dir = text_of(answer, "cache_dir");
    uint64_t left = number_of(answer, "left");
    auto_free char *names = report_names(answer, "names", left);
    struct buf text = BUF_INIT(REPORT_VAIN_MAX);
    char words[STALL_TEXT_MAX];

    if (json_is_object(stalled))
        (void)buf_addf(&text, "; %s: %s", text_of(answer, "store"),
                       stall_text(stalled, OP_FOREVER, said, words));
    if (left) {
        (void)buf_addf(&text,
                       "; what is left is in the cache %s, and tried again while it is mounted "
                       "(see `runfs status --files %s`): %s",
                       cache_dir, mountpoint ? mountpoint : cache_dir, names ? names : "");
    }
    return text.len ? buf_take(&text) : NULL;
}

enum exit_code report_vain_code(int err, const json_t *answer)
{
    enum exit_code code = command_exit_code_of_wait(err);

    return code == EXIT_NOT_YET && stall_is_unreachable(json_object_get(answer, "stalled"))
               ? EXIT_NETWORK
               : code;
}
