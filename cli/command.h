/* The commands of `runfs`. */
#ifndef RUNFS_CLI_COMMAND_H
#define RUNFS_CLI_COMMAND_H

#include "cache/cache.h"
#include "common/op.h"

#include <jansson.h>

/* Scripts tell by them what to do next: they are documented, and stay. */
enum exit_code {
    EXIT_OK = 0,
    EXIT_FAILED = 1,  /* for a cause without a code of its own */
    EXIT_USAGE = 2,   /* the command line is wrong */
    EXIT_NOT_YET = 3, /* the store lacks something still */
    EXIT_BUSY = 4,    /* a process uses the mount, or another mount or command has the cache */
    EXIT_NOT_FOUND = 5, /* bucket, path, mount or cache */
    EXIT_REFUSED = 6,   /* credentials, permission */
    EXIT_NETWORK = 7,   /* the store can't be reached */
};

struct command {
    const char *name;
    const char *usage; /* what follows the name */
    const char *line;  /* what it does, for the list of commands */
    const char *help;  /* the rest of its --help; "" when `usage` says all */
    /* argv[0] is the command's name. Returns an exit code. */
    int (*run)(const struct command *self, int argc, char **argv);
};

int command_mount(const struct command *self, int argc, char **argv);
int command_umount(const struct command *self, int argc, char **argv);
int command_status(const struct command *self, int argc, char **argv);
int command_flush(const struct command *self, int argc, char **argv);
int command_commit(const struct command *self, int argc, char **argv);
int command_units(const struct command *self, int argc, char **argv);
int command_fetch(const struct command *self, int argc, char **argv);
int command_pin(const struct command *self, int argc, char **argv);
int command_unpin(const struct command *self, int argc, char **argv);
int command_evict(const struct command *self, int argc, char **argv);
int command_lock(const struct command *self, int argc, char **argv);
int command_locks(const struct command *self, int argc, char **argv);
int command_check(const struct command *self, int argc, char **argv);
int command_paths(const struct command *self, int argc, char **argv);
int command_verify(const struct command *self, int argc, char **argv);
int command_url(const struct command *self, int argc, char **argv);
int command_recover(const struct command *self, int argc, char **argv);

/* The form that mount(8) and fstab use: SPEC DIR [-o OPTIONS]. Without `by_mount8` the caller
 * was fuse3's helper, whose "dev" and "suid" don't count. */
int command_mount_helper(int argc, char **argv, bool by_mount8);

/* The exit code of a command that failed with this negative errno. No other place decides it.
 */
enum exit_code command_exit_code(int err);
/* The same of a command that waited for the store to have something which it lacks then. */
enum exit_code command_exit_code_of_wait(int err);

/* Prints a command's whole help to stdout. */
void command_help(const struct command *c);

/* Prints what the exit codes mean. */
void command_print_exit_codes(void);

/* One line "runfs: ..." on stderr; returns EXIT_FAILED. */
int command_failed(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same for a negative errno; returns its exit code. */
int command_failed_by(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same with a hint at --help; returns EXIT_USAGE. */
int command_misused(const struct command *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* One line on stdout, whatever is in the texts. */
void command_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The same for programs, too: they get the bytes of the text as they are, while a terminal is
 * not commanded by them. Returns an exit code. */
int command_answer(const char *text);
/* A document in ASCII, so that no name commands the terminal; NULL is out of memory. Returns an
 * exit code. */
int command_answer_json(const json_t *document);

/* Prints one line of what is owed to the store. */
void command_print_pending(const struct cache_pending *p);

#endif
