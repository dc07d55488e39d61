/* What the files behind journal.h share. */
#ifndef RUNFS_CACHE_MIRROR_JOURNAL_IMPL_H
#define RUNFS_CACHE_MIRROR_JOURNAL_IMPL_H

#include "cache/mirror/journal.h"
#include "common/lock.h"

#include <pthread.h>
#include <sqlite3.h>

extern struct lock_class journal_mutex;

/* One change that waits for a commit; lives on its caller's stack. */
struct change {
    int (*apply)(struct journal *j, const struct change *change);
    const struct journal_row *rows, *told;
    size_t n_rows, n_told;
    const uint64_t *seqs;
    size_t n_seqs;
    const char *text;
    const struct journal_session *session;
    const struct journal_unit *unit;
    const struct journal_put *put, *settled;
    size_t n_settled;
    const struct journal_wait *waits;
    size_t n_waits;
    int flag;
    bool durable;    /* the commit waits for the disk */
    bool takes_back; /* what fails of it is done with a later commit */
    int result;
    bool done;
    struct change *next;
};

struct journal {
    sqlite3 *db;           /* used by the leader only */
    struct log_queue *log; /* constant */
    struct {
        struct mutex lock;
        pthread_cond_t done;
        GUARDED_BY(journal_mutex) struct {
            struct change *head, **tail;
            bool leading; /* someone is committing */
        };
    } queue;
    sqlite3_stmt *insert, *insert_over, *remove, *remove_over, *tell, *tell_over;
    sqlite3_stmt *note_put, *forget_put;
    struct { /* used by the leader only */
        uint64_t *seqs;
        size_t n, cap;
    } unwanted; /* rows that were taken back, and could not be removed yet */
    atomic_bool has_unwanted;
    atomic_uint_fast64_t commits; /* how many there were of intentions */
    atomic_uint_fast64_t synced;  /* and up to which of them they are on the disk */
};

MUTEX_KIND(journal, struct journal, queue.lock);

/* ---- journal.c ---- */
/* The negative errno for a result of SQLite; 0 for the good ones. */
int journal_errno(int rc);
/* Runs statements that answer nothing. The caller is the leader, or the only one who has the
 * journal. 0 or a negative errno; the log has the reason. */
int journal_run_sql(struct journal *j, const char *sql);

/* ---- journal_read.c ---- */
/* Runs a query; `row` is called for each line of the answer. The journal is used by one thread
 * then (recovery), or the reader takes the leader's place. */
int journal_query(struct journal *j, const char *sql, int (*row)(sqlite3_stmt *s, void *arg),
                  void *arg);
/* A `row` for journal_query() that ignores each line. Returns 0. */
int journal_no_row(sqlite3_stmt *s, void *arg);

#endif
