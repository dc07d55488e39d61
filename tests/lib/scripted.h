/* An HTTP server that says exactly what a test tells it to, byte for byte: cut answers, wrong
 * lengths, silence. Each request takes the next answer of the script. */
#ifndef RUNFS_TESTS_LIB_SCRIPTED_H
#define RUNFS_TESTS_LIB_SCRIPTED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scripted_answer {
    const char *text;  /* all bytes, status line first; NULL: silence until the client goes */
    size_t repeat;     /* then this many bytes 'x' */
    bool close;        /* close the connection after it */
    bool reset;        /* ... with a reset */
    bool without_body; /* answer before the request's body was read, and close */
    unsigned stall_ms; /* wait so long before the last byte of `text` */
    const atomic_bool *again; /* the next request gets it as well, as long as this is true */
};

struct scripted;

/* Listens on a free port of 127.0.0.1. The script is borrowed until scripted_free(); behind its
 * end every request gets status 500. Aborts when the machine has no socket. */
struct scripted *scripted_new(const struct scripted_answer *answers, size_t n);
void scripted_free(struct scripted *s);
unsigned scripted_port(const struct scripted *s);
/* How many requests came. */
size_t scripted_count(struct scripted *s);
/* How many connections were made. */
size_t scripted_connections(struct scripted *s);
/* Request number i, head and body, until scripted_free(); "" when it did not come. */
const char *scripted_request(struct scripted *s, size_t i);

/* The date of an answer from so many seconds away. */
#define SCRIPTED_DATE 64
void scripted_date(int64_t seconds, char ret[SCRIPTED_DATE]);
/* Whole minutes between our clock and the time that a request is signed for. */
int64_t scripted_signed_minutes(struct scripted *s, size_t i);

#endif
