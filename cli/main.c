/* runfs: the table of commands. */
#include "cli/command.h"
#include "cli/daemon.h"
#include "common/mem.h"
#include "common/nearest.h"

#include <stdio.h>
#include <string.h>

static const struct command commands[] = {
    {"mount", "[-f] [-o OPTION[=VALUE],...] STORE|CONFIG.json MOUNTPOINT",
     "Mount a store as a directory; returns when it is usable",
     "STORE is a URL such as s3://bucket/prefix, file:///path or /path. CONFIG.json names one "
     "or\n"
     "several stores and what lies in which.\n"
     "Credentials come from where AWS's tools find them (environment, profile, container,\n"
     "instance), never from the command line. A mountpoint that a runfs left behind when it\n"
     "died is taken over.\n"
     "  -f   stay in the foreground, log to stderr (else to runfs.log in the cache directory)\n"
     "SIGTERM and SIGINT upload what is left, then unmount.\n",
     command_mount},
    {"umount", "MOUNTPOINT [--timeout TIME]",
     "Upload everything, unmount, and wait until the cache is free",
     "Exit code 0 says that the store has everything. While processes use the mount it is\n"
     "refused with their process ids. What waits under a staging name is published as it is.\n"
     "A store that can't be reached is waited for without end, or for --timeout; then, or\n"
     "when the store refuses, what is left is listed and the mount stays. Once unmounted, the\n"
     "daemon's end is waited for as long again: a bind mount puts it off (exit code 3).\n"
     "`fusermount3 -u` unmounts at once: the daemon goes on uploading and keeps the cache\n"
     "until it is done.\n",
     command_umount},
    {"status", "[MOUNTPOINT|STORE|CACHE_DIR] [--json] [--watch] [--files]",
     "Show what is not in the store yet, rates, errors and the cache's use",
     "Without a name: all mounts of this machine, and the caches in the default places that\n"
     "were left with something that the store lacks. Of a path in a mount with routes: its\n"
     "store, route and policy, too.\n"
     "  --json    one JSON document\n"
     "  --watch   again every second\n"
     "  --files   also one line for each file and operation the store lacks\n",
     command_status},
    {"flush", "PATH... [--timeout TIME] [--staged] [--open] [--level store|verified]",
     "Return when these are in the store",
     "Staging names such as *.tmp are not published before they are renamed; when some are\n"
     "left the exit code is 3. --staged publishes them under the names they have. Nor is a\n"
     "file that a program makes anew before that closes or syncs it; --open publishes it\n"
     "half, as it is. A symlink names what it leads to, too, here and below.\n"
     "  --level  verified: then compares what the store has, too, as `runfs verify` does\n",
     command_flush},
    {"commit", "DIR... [--timeout TIME]", "Say that these are complete, and flush them",
     "DIR is a directory that is published as a whole, by the `unit` of its policy: the file\n"
     "that was closed last in it goes to the store after the rest, and is kept back while "
     "more\n"
     "may come. That ends here, though a program has a file in it open.\n",
     command_commit},
    {"units", "[PATH] [--json] | --adopt PATH | --drop PATH",
     "List directories that the store does not have whole yet",
     "Of those that are published as a whole, at or below PATH (.): how each stands, how many\n"
     "files the store lacks, what it waits for. Exit code 3 when there is one.\n"
     "What another mount left unfinished, and hides for ever as that mount is gone:\n"
     "  --adopt  shows it as it is, as complete\n"
     "  --drop   removes what the store has of it\n"
     "Both look for a minute or more whether that mount lives; if so the exit code is 3.\n",
     command_units},
    {"verify", "PATH... [--json] [--timeout TIME]",
     "Compare what the store has with what the mount says it has",
     "Each file at and below the paths: it is there, with its size and its checksum. An "
     "object\n"
     "of which the store keeps no checksum, or whose content was never here, is read back.\n"
     "Exit code 1: something differs, is missing, or can't be compared, each named on stderr;\n"
     "3: something is not in the store yet, or changes. Nothing is changed.\n"
     "  --json   one JSON document\n",
     command_verify},
    {"fetch", "PATH...", "Bring the whole content of these into the cache", "", command_fetch},
    {"pin", "PATH...", "Keep the content of these from eviction",
     "Pinning downloads nothing; `runfs fetch` does.\n", command_pin},
    {"unpin", "PATH...", "Let the content of these be evicted again", "", command_unpin},
    {"evict", "PATH...", "Let clean content of these leave the cache",
     "What the store lacks, what is pinned or in use stays; then the exit code is 1.\n",
     command_evict},
    {"lock", "[--wait TIME] [--refuse] PATH... -- COMMAND [ARGUMENT...]",
     "Run a command while nothing below these is removed",
     "What others remove there meanwhile is gone from the mount at once, and from store and\n"
     "cache when the command has ended. RUNFS_LOCKED names a read-only view of each PATH, "
     "with\n"
     "what was removed since, joined by \":\".\n"
     "  --wait     so long for a lock that is in the way, or a removal (else not at all)\n"
     "  --refuse   removals by others fail (EBUSY) instead\n"
     "Exits as the command does; 125 without the lock, 126 and 127 when the command can't be\n"
     "run or found, 69 when the daemon ended before the command did.\n",
     command_lock},
    {"locks", "[PATH] [--json]", "Show who has what locked from removal",
     "Without PATH: of all mounts of the user.\n", command_locks},
    {"url", "PATH [--as KIND] | --path URL",
     "Name the object behind a path, or the path of one",
     "Prints the URL of what stands at PATH, as other programs take it. A file that the store\n"
     "does not have just so, under that name, is refused (exit code 1): flush it first, or\n"
     "write it again when a full disk cut it off. The key is not percent-encoded.\n"
     "  --as     s3, s3a, hdfs, webhdfs, file or dbfs: in that form, if the store has it\n"
     "  --path   the reverse: where a mount of this user has the object; https, too\n",
     command_url},
    {"paths", "RUN [--config CONFIG] [--dataset N]",
     "Print the places of a run, as Horovod's stores name them",
     "JSON for the estimators of Horovod: RUN is a run's directory (runs/ID) in a mount with\n"
     "the layout horovod or dbfs, or with --config a path as a mount of CONFIG would have "
     "it.\n",
     command_paths},
    {"check",
     "CONFIG [PATH... | --key STORE KEY] [--expand] [--json] [--reach] [--same-as FILE]",
     "Check a configuration, and tell what it does with a path",
     "Asks no store without --reach. All that is wrong is told, each with its place: exit "
     "code\n"
     "2. A PATH of the mount prints store, key, route and policy.\n"
     "  --key      the path of a key of a store\n"
     "  --expand   the routes that a layout stands for\n"
     "  --json     one JSON document\n"
     "  --reach    opens the stores as a mount does, and tries what runfs needs of them\n"
     "  --same-as  whether another configuration means the same; else the differences, and 1\n",
     command_check},
    {"recover", "CACHE_DIR|MOUNTPOINT|STORE [--list|--publish|--export DIR] [-o OPTION,...]",
     "Show, publish or copy out what an unmounted cache owes its store",
     "A mountpoint or a store names its cache when that lies in the default place.\n"
     "  --list     what is not in the store (the default)\n"
     "  --publish  upload it; -o gives options of the one store as `runfs mount` does\n"
     "  --export   copy it to a folder; what was kept beside a newer file of its name goes to\n"
     "             .runfs-kept in it\n",
     command_recover},
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int help(void)
{
    (void)printf("Usage: runfs COMMAND ...\n\nCommands:\n");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        (void)printf("  %-8s %s\n", commands[i].name, commands[i].line);
    (void)printf("  help     Tell all about a command: runfs help COMMAND\n"
                 "  version  Print the version\n");
    (void)printf("\n`runfs COMMAND --help` tells more. `runfs STORE MOUNTPOINT -o OPTIONS` is "
                 "the form\nthat mount(8) and fstab use (type fuse.runfs).\n");
    command_print_exit_codes();
    return EXIT_OK;
}

static int unknown_command(const char *name)
{
    struct nearest n;

    nearest_init(&n, name);
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        nearest_try(&n, commands[i].name);
    nearest_try(&n, "help");
    nearest_try(&n, "version");
    (void)command_failed("unknown command %.60s%s%s%s (see `runfs --help`)", name,
                         n.best ? ", did you mean " : "", n.best ? n.best : "",
                         n.best ? "?" : "");
    return EXIT_USAGE;
}

/* `runfs help COMMAND` is `runfs COMMAND --help`. */
static int help_about(const char *name)
{
    const struct command *command = find_command(name);
    char *argv[] = {(char *)name, "--help", NULL};

    return command ? command->run(command, 2, argv) : unknown_command(name);
}

/* "s3://b/p DIR ...", "/srv/x DIR ..." or "x.json DIR ...": a mount as mount(8) writes it. */
static bool is_mount_form(int argc, char **argv)
{
    size_t len = strlen(argv[1]);

    return argc >= 3 && argv[2][0] != '-' &&
           (strpbrk(argv[1], ":/") || (len > 5 && strcmp(argv[1] + len - 5, ".json") == 0));
}

/* mount(8) calls helpers by the name of the type. */
static bool is_helper_name(const char *argv0)
{
    const char *slash = strrchr(argv0, '/');
    const char *name = slash ? slash + 1 : argv0;

    return strcmp(name, "mount.fuse.runfs") == 0 || strcmp(name, "mount.runfs") == 0;
}

int main(int argc, char **argv)
{
    const struct command *command;

    daemon_protect();
    if (argc >= 3 && is_helper_name(argv[0]))
        return command_mount_helper(argc, argv, true);
    if (argc < 2) {
        (void)command_failed("no command (see `runfs --help`)");
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "help") == 0 && argc > 2)
        return help_about(argv[2]);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return help();
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        (void)printf("runfs %s\n", RUNFS_VERSION);
        return EXIT_OK;
    }
    command = find_command(argv[1]);
    if (command)
        return command->run(command, argc - 1, argv + 1);
    return is_mount_form(argc, argv) ? command_mount_helper(argc, argv, false)
                                     : unknown_command(argv[1]);
}
