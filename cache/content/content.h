/* The mirror file behind a node: its states (docs/format.md, section 3), its stamps and its
 * descriptors, and how it leaves its name. The room owns the lists of files and struct
 * file, of which the rooms above write fields, too, under `lock`; it calls tree/ and what
 * is below it, above all the mirror. */
#ifndef RUNFS_CACHE_CONTENT_CONTENT_H
#define RUNFS_CACHE_CONTENT_CONTENT_H

#include "cache/mirror/stamp.h"
#include "cache/tree/tree.h"
#include "cache/types/debt.h"
#include "cache/types/range.h"
#include "cache/types/sums.h"

/* A reader's descriptor is O_RDONLY, so that a lease can tell whether writers live. */
enum file_fd { FD_READ, FD_WRITE };

/* A descriptor on a mirror file; fds.c owns all of it. */
struct mirror_fd {
    GUARDED_BY(cache_mutex) struct {
        int fd;         /* -1: closed */
        unsigned users; /* it stays open while there are any */
        bool idle;      /* open without users, for the open handles: in fd_cache.idle */
        struct mirror_fd *prev, *next;
    };
};

enum file_state { FILE_PARTIAL, FILE_CLEAN, FILE_DIRTY };

/* What a node has beyond its attributes once the mirror holds a file for it. */
struct file {
    struct node *node;
    int backing_slot;        /* the frontend's; its own lock */
    atomic_bool changed;     /* set when a writer comes: an upload that reads the file stops */
    atomic_bool passthrough; /* mode of the open handles; written under `lock` */
    GUARDED_BY(cache_mutex) struct {
        enum file_state state;
        struct ranges present; /* FILE_PARTIAL */
        struct sums sums;      /* of what fetches brought of it in this mount */
        struct fetch *fetches;
        bool needed_whole; /* the next is claimed with the end of each, though nobody waits */
        /* who reads it in order, while it is partial and open, or NULL */
        struct streams *streams;
        struct stamp_keys keys;
        bool keys_cut;        /* the stamp has not all of them */
        unsigned keys_behind; /* the stamp has older ones, and says so by these stamp_flags */
        struct mirror_fd fds[2]; /* FD_READ and FD_WRITE */
        unsigned open_handles, write_handles, exec_handles;
        unsigned map_handles; /* that may be mapped for writing */
        unsigned truncates;   /* under way, by path: as writers */
        unsigned beginners;   /* handles that made the content anew, and have not ended that */
        int64_t whole_mtime_ns; /* of the mirror file when one of them closed it; 0: not, or it
                                   was written since */
        uint64_t whole_size;
        bool time_moves; /* of a whole one: till it has the new mtime its stamp tells of none */
        bool busy;       /* turns from partial to complete: readers and writers wait */
        uint64_t generation; /* counts changes of content or attributes, as far as seen */
        uint64_t stored_generation; /* of the last upload's content */
        int64_t clean_mtime_ns; /* of the mirror file when it was last equal to the store; as
                                   its filesystem keeps it */
        uint64_t clean_size;
        struct checksum sum; /* of the content that is, or will be, clean; where it is known */
        bool verify;  /* FILE_PARTIAL: all bytes may be here and right, since before a reboot */
        bool suspect; /* mtime can't prove that it is unchanged since then */
        int64_t synced_mtime_ns; /* of the mirror file when it was last synced; 0 never */
        uint64_t synced_size;
        uint64_t writes;    /* that came through the daemon */
        bool writing_stamp; /* the stamp is to say STAMP_WRITING */
        bool past; /* since it was last seen without a writer someone may write past the daemon:
                      in passthrough, or from before the mount */
        bool direct; /* of those, one may write with O_DIRECT, asynchronously: such bytes come
                        after their mtime, and the inode's lock is free by then */
        unsigned noted; /* flags that the stamp on the disk has, whatever is being written just
                           now, enum stamp_flags */
        bool short_write;  /* a write found no room: not published before it is made again */
        bool disk_lost;    /* cut, because the disk lost what it had taken: all is made again */
        uint64_t short_at; /* where */
        bool gone;         /* the version being read is no longer at the store */
        struct {           /* the last failed fetch, for those who waited for it */
            uint64_t off, end;
            int err;
            int64_t until_ns;
        } failed;
        /* content that the kernel's pages show; see handle_keep_cache() */
        uint64_t kept_generation;
        uint64_t orphan_id;         /* the mirror file is orphans/<id>; 0: at its path */
        bool unnamed;               /* O_TMPFILE without a name yet */
        struct place orphan_source; /* owned; where a nameless partial file reads from */
        char *etag;                 /* version that a partial or clean file is */
        char *copied_etag; /* a rename's last copy of what was put to an older path, or NULL */
        uint64_t seq;      /* order of the last close */
        /* of the last one that closed content: whose turn it is in a unit goes by that */
        uint64_t unit_seq;
        uint64_t unit_generation; /* that was closed then */
        /* Its upload, in the place of the first close that is not in the store; `failing_ns` is
         * of the store that it goes to now */
        struct debt debt;
        bool unclosed; /* that is the place of its move to another store: no close has one */
        /* of the first one that the upload which runs has not seen; 0 none */
        uint64_t after_seq;
        uint64_t after_want; /* and of the first one that `wanted_generation` is older than */
        unsigned rewrites;   /* uploads in a row that found it rewritten while they read it */
        unsigned losses;     /* names that another node's version took */
        bool error_told;     /* a close or fsync has reported its error */
        bool error_here;     /* that is the cache's own disk's, not the store's */
        bool urgent;         /* its policy has it go up before others */
        bool staged;         /* waits for a rename, as its name or its policy says */
        bool log;            /* it goes up while it is open, as they say, too */
        bool pointer;        /* it says which of the units beside it counts */
        int64_t staged_ns;   /* CLOCK_MONOTONIC; since when */
        uint64_t made_at; /* it waits as long as path_made_at() of its path says this; 0: not */
        bool mapped_writer;         /* a mapping may still write */
        bool wanted_half;           /* as it is, though who made it anew has not ended that */
        uint64_t wanted_generation; /* the last one that somebody waits, or waited, for */
        struct place upload_place;  /* owned; while its upload runs: to where */
        uint64_t upload_done;
        struct job *unnoted;      /* in the store, but the cache could not note it */
        int64_t uploaded_live_ns; /* CLOCK_MONOTONIC; last upload while it was open */
        uint64_t blocks_bytes;    /* what it takes on the disk, as last seen */
        bool was_mapped;          /* while one of map_handles lived, outside of passthrough */
        bool in_lru, is_writer;
        struct file *lru_prev, *lru_next;       /* clean and partial files that may go */
        struct file *urgent_prev, *urgent_next; /* contents.urgent, if queued and urgent */
        struct file *writer_prev, *writer_next; /* contents.writers */
        struct waitq range_waiters;             /* bytes came, or failed */
        struct waitq upload_waiters;            /* an upload ended */
    };
};

/* The mirror files' part of a cache. */
struct contents {
    struct contents_own *own; /* constant; what only the room itself sees */

    GUARDED_BY(cache_mutex) struct {
        struct file *urgent;      /* queued ones that are urgent, in the order they came */
        struct file *writers;     /* open for writing, or held by a mapping */
        struct file *lru;         /* least recently used first */
        uint64_t used_bytes;      /* what the files of the mirror take on the disk */
        uint64_t disk_free_bytes; /* as last seen, less what was written since */
        /* nameless nodes with a mirror file that reads from the store */
        struct node **stale_readers;
        size_t n_stale_readers;
    };
};

/* ---- arrive.c ---- */
/* Row "fetch range" takes as long as its download, and is three functions, a step each. */

/* Step 1, once, before its first byte: takes the room of [off, end) on the disk, of 1 MiB or
 * more, and changes no size. Where that fails the writes take it, and say why. Takes no lock.
 */
void file_take_room(int fd, uint64_t off, uint64_t end);
/* Step 2, for each piece: writes the bytes into the mirror file. The caller then notes them
 * under the lock (file_arrived_locked()) and wakes their readers. 0 or a negative errno. Takes
 * no lock. */
int file_write_arrived(int fd, const char *data, size_t len, uint64_t off);
/* Step 3, when the download has ended well: records in the stamp which ranges are here, of all
 * downloads, unless the file turns complete by now. What is not recorded is fetched again by a
 * later mount. `sum`: of the bytes of `summed`, for the file's own; or NULL. */
void file_note_arrived(struct cache *c, struct node *n, int fd, const struct range *summed,
                       const struct checksum *sum) EXCLUDES(cache_mutex);
/* They are not the store's bytes (file_forget_ranges_locked()): nor does the stamp say so any
 * more, if the disk takes that. Takes no lock. */
void file_note_damaged(int fd);

/* ---- attrs.c ---- */
/* The disk says "synced at that time", and the content was changed since: the time to be set
 * may be that very one. Or it says "made anew, and whole at that time", and would call the file
 * half with another one. The stamp has to be written first. */
#define MARK_OUTLIVED (-EAGAIN)
/* Row "utimens", step 1, in the disk's part; on MARK_OUTLIVED the caller writes the stamp
 * (node_write_stamp()) and asks again. Sets the mirror file's mtime together with what is known
 * of it, so that nobody takes the one without the other for a change of content. What was
 * synced before stays so. 0, MARK_OUTLIVED or a negative errno. */
int file_move_mtime_locked(struct cache *c, struct file *f, int fd, const struct stat *st)
    REQUIRES(cache_mutex);
/* The node has a new mtime, which must not look like a new content, and must not hide one. */
void file_mtime_moved_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* Row "attributes", step 1, and steps 2 and 3 of row "utimens": the caller has set the fields
 * of `set` (enum cache_set), and the file is marked and queued. Writes the stamp, which says
 * STAMP_ATTR_DIRTY, then with a new mtime the records, which have it. 0: nothing came of it,
 * and nothing is written, unless step 1 had the stamp written already. 0 or a negative errno.
 * Takes a stamp lock. */
int file_note_attrs(struct cache *c, struct node *n, int fd, unsigned set)
    EXCLUDES(cache_mutex);
/* The same row of an extended attribute: first the set. The caller takes it over in memory
 * then, has the node queued, and writes the stamp (node_write_stamp()). NULL: there are none. 0
 * or a negative errno. ns held for writing, so that edits follow one another. */
int node_write_xattrs(int fd, const char *json);
/* What a mode was before it was narrowed. */
struct narrowed {
    uint32_t mode, before;
    bool was_dirty;
};
/* Row "an access ACL that moves the mode", which are two stamps: 1 what both the old and the
 * new mode allow is allowed; 2 the set, as node_write_xattrs(). The caller goes on as there,
 * and the stamp that it writes is step 3; on failure it gives the mode of `*ret` back, which is
 * set in any case. 0 or a negative errno. ns held for writing; takes a stamp lock. */
int node_write_access_acl(struct cache *c, struct node *n, int fd, const char *json,
                          uint32_t mode, struct narrowed *ret) REQUIRES(cache_ns)
    EXCLUDES(cache_mutex);

/* ---- birth.c ---- */
/* A node that nobody has seen yet gets the time at which the mirror file was made: the disk's
 * clock ticks more slowly than ours, and what is told of a new file must stay true. */
int node_take_birth_time(struct node *n, int fd) REQUIRES(cache_mutex);
/* Writes the stamps of a file or directory that has none yet: its xattrs, then the one by which
 * it counts. 0 or a negative errno. Takes a stamp lock. */
int node_write_first_stamps(struct cache *c, struct node *n, int fd) EXCLUDES(cache_mutex);
/* Row "create", of a regular file, a fifo or a device that is dirty in memory already
 * (file_is_made_locked()): 1 the empty file at `path`; 2 its stamps. The node gets the file's
 * time in between. The caller gives it its name in the tree and answers. `keep_fd`: FD_WRITE is
 * in use then. 0, or a negative errno, and nothing of it is left. ns held for writing; takes a
 * stamp lock. */
int file_create(struct cache *c, struct node *n, const char *path, bool keep_fd)
    REQUIRES(cache_ns) EXCLUDES(cache_mutex);
/* Row "symlink". Its content is its target: it comes to `path` with both content and stamp,
 * since content without a stamp would be taken for a file's. Otherwise as file_create(). */
int file_create_symlink(struct cache *c, struct node *n, const char *path, const char *target)
    REQUIRES(cache_ns) EXCLUDES(cache_mutex);
/* Row "create without an open", last step, before the reply: the stamp of a file that no writer
 * will close gets its place in the order, which the caller has given it (file_queue_locked());
 * not `queued`: it has a writer after all, and nothing is written. What fails costs the place
 * alone. Takes ns for reading, then a stamp lock. */
void file_note_made(struct cache *c, struct node *n, bool queued)
    EXCLUDES(cache_ns, cache_mutex);
/* Row "materialise": creates the mirror file of a node known from a listing, partial unless it
 * is empty; nothing to do when it is there. 1 in incoming/; 2 its stamps; 3 it goes to its
 * path. It is claimed meanwhile: who does not take ns sees it, and waits. 0, -ESTALE when the
 * node has no name any more, or a negative errno, which the log tells; nothing is left then. ns
 * held for writing; takes a stamp lock. */
int file_materialise(struct cache *c, struct node *n) REQUIRES(cache_ns) EXCLUDES(cache_mutex);

/* ---- change.c ---- */
/* Row "open for write", step 1: has STAMP_WRITING on the disk before a writable open is
 * answered, or a truncate begins; both are among the writers by now. So is STAMP_BEGUN before
 * the content is made anew. If another thread is just writing it, this one does not wait. */
int file_stamp_writing(struct cache *c, struct node *n, int fd) EXCLUDES(cache_mutex);
/* Notes that the daemon itself changed the content through `fd`. 0 or a negative errno. */
int file_note_change(struct cache *c, struct node *n, int fd) EXCLUDES(cache_mutex);
/* The change of row "truncate by path", and of any other truncation of a file that is complete:
 * STAMP_WRITING, the new size, what is known of the content, and where a short write was mended
 * by it the stamp again. The caller is among the writers (file.truncates). 0 or a negative
 * errno. Takes a stamp lock. */
int file_truncate_complete(struct cache *c, struct node *n, int fd, uint64_t size)
    EXCLUDES(cache_mutex);
/* Row "O_TRUNC, truncate of a partial file to 0", of one that is claimed: 1 no ranges; 2 no
 * bytes; 3 STAMP_WRITING; 4 it is complete, and dirty. Gives the claim back and wakes who waits
 * for ranges; where a step failed it is partial still. 0 or a negative errno. Takes a stamp
 * lock. */
int file_empty_partial(struct cache *c, struct node *n, int fd) EXCLUDES(cache_mutex);
/* Row "truncate by path", last step, before the reply: the stamp gets the file's place in the
 * order, which the caller has given it (file_queue_locked()); not `queued`: a writer's close
 * does it, and nothing is written. 0 or a negative errno. Takes ns for reading, then a stamp
 * lock. */
int file_note_truncated(struct cache *c, struct node *n, bool queued)
    EXCLUDES(cache_ns, cache_mutex);
/* Row "exchange of two files", of one of them, before the mirror's step: it lies in the mirror,
 * complete, and its stamp says STAMP_WRITING and the number of its coming name. 0, -EAGAIN when
 * it is not complete, or a negative errno. ns held for writing; takes a stamp lock. */
int file_prepare_exchange(struct cache *c, struct node *n) REQUIRES(cache_ns)
    EXCLUDES(cache_mutex);
/* The same row, last step, before the reply: their stamps get their places in the order, which
 * the caller has given them (file_queue_locked()). Without, they come last. ns held for
 * writing; takes stamp locks. */
void files_note_exchanged(struct cache *c, struct node *const nodes[2]) REQUIRES(cache_ns)
    EXCLUDES(cache_mutex);
/* Row "close of a dirty file", before the reply: the stamp gets the close's number, which the
 * caller has given it (file_queue_locked()), and what else the close told of the file; without
 * such `news` nothing is written. 0 or a negative errno. Takes a stamp lock. */
int file_note_closed(struct cache *c, struct node *n, int fd, bool news) EXCLUDES(cache_mutex);
/* Row "complete" from step 2 on, of a partial file that is claimed and all ranges of which are
 * here and right: 2 its checksum, as the caller found it, into the records; 3 its time; 4 no
 * ranges. The caller then has it clean (file_completed_locked()). 0 or a negative errno. Takes
 * a stamp lock. */
int file_complete(struct cache *c, struct node *n, int fd, const struct checksum *sum)
    EXCLUDES(cache_mutex);
/* Row "upload", steps 4 and 5: the stamp says what the store has first, then that nothing is
 * owed. 0 or a negative errno. */
int file_note_stored(struct cache *c, struct node *n, int fd) EXCLUDES(cache_mutex);

/* ---- check.c ---- */
#ifndef NDEBUG
/* Walks the lists of files and aborts on a broken invariant of docs/format.md. */
void contents_check_locked(struct cache *c) REQUIRES(cache_mutex);
/* The same of one file. */
void file_check_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
#endif

/* ---- damage.c ---- */
/* A write at `off` found no room: what the file holds is not what its writer meant. */
void file_short_write_locked(struct cache *c, struct node *n, uint64_t off)
    REQUIRES(cache_mutex);
/* The disk took the content and could not keep it: nobody knows what the file is now. */
void file_disk_lost_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* The same of a file that the store has: its next open drops it. */
void file_disk_lost_clean_locked(struct file *f) REQUIRES(cache_mutex);
/* file_disk_lost_locked(), and the stamp on the disk as far as that works. */
void file_disk_lost(struct cache *c, struct node *n, int fd) EXCLUDES(cache_mutex);
/* 0, or -EIO when the kernel tells that pages of the file could not be written: it forgets
 * them, and what is read is what the disk had before. Told once, so the file is held back from
 * then on. What is read before the call is right when it returns 0. */
int file_check_kept(struct cache *c, struct node *n, int fd);
/* Bytes were written at [off, end), or nothing is meant to be behind `off`. */
void file_repaired_locked(struct node *n, uint64_t off, uint64_t end) REQUIRES(cache_mutex);

/* ---- fds.c ---- */
/* Raises the process's limit. `limit`: how many for mirror files; 0: what the daemon does not
 * need itself. */
void fds_init(struct cache *c, unsigned limit) EXCLUDES(cache_mutex);
/* The descriptor, in use until file_put_fd_locked(), which the same thread calls soon: so there
 * is always one to be had. Takes ns for reading. */
int file_get_fd(struct cache *c, struct node *n, enum file_fd which)
    EXCLUDES(cache_ns, cache_mutex);
/* file_get_fd() for a caller that holds ns. */
int file_get_fd_ns_locked(struct cache *c, struct node *n, enum file_fd which)
    REQUIRES_SHARED(cache_ns) EXCLUDES(cache_mutex);
/* It stays open, idle, where handles may ask for it again. */
void file_put_fd_locked(struct cache *c, struct file *f, enum file_fd which)
    REQUIRES(cache_mutex);
/* Takes over the descriptor of a file that nobody has opened yet; it is in use then. */
void file_take_fd_locked(struct cache *c, struct file *f, enum file_fd which, int fd)
    REQUIRES(cache_mutex);
/* Closes what was open for handles that are gone. */
void file_close_spare_fds_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* One more descriptor will be in use for as long as a program likes. 0; or -ENFILE, which log
 * and status then tell. */
int fds_keep_locked(struct cache *c) REQUIRES(cache_mutex);
/* fds_keep_locked() for a descriptor that was let in before, whether there is room or not. */
void fds_keep_anyway_locked(struct cache *c) REQUIRES(cache_mutex);
/* Whether there is room for one more: 0 or -ENFILE, as above. */
int fds_room_locked(struct cache *c) REQUIRES(cache_mutex);
/* The program that fds_keep_locked() let in is done with its descriptor. */
void fds_unkeep_locked(struct cache *c) REQUIRES(cache_mutex);
/* Whether programs keep less than half of the descriptors. */
bool fds_plenty_locked(struct cache *c) REQUIRES(cache_mutex);

/* ---- file.c ---- */
/* Gives the node a file in this state. NULL without memory. */
struct file *file_new(struct node *n, enum file_state state) REQUIRES(cache_mutex);
/* Frees the file and takes it out of all lists; nobody has it open and nothing of it is on its
 * way. */
void file_free_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* The file is in the mirror, or will be next: file_free_locked() counts it off. */
void file_count_locked(struct cache *c) REQUIRES(cache_mutex);
/* A number that no name in incoming/ and orphans/ has; never 0. */
uint64_t file_next_id_locked(struct cache *c) REQUIRES(cache_mutex);
/* Takes ns for writing. */
int file_need(struct cache *c, struct node *n) EXCLUDES(cache_ns, cache_mutex);
/* The mirror file's descriptor, made when there is none, as file_get_fd(); -ESTALE: it has no
 * name any more. Takes ns for writing. */
int file_need_fd(struct cache *c, struct node *n, enum file_fd which);
/* Notes how much of the disk is free, as its caller has just been told. */
void disk_seen_locked(struct cache *c, const struct statvfs *vfs) REQUIRES(cache_mutex);
/* The file takes so many bytes on the disk now: counts the difference. */
void file_account_locked(struct cache *c, struct file *f, uint64_t blocks_bytes)
    REQUIRES(cache_mutex);
/* Whether the node's content may change without a listing being right about it. */
bool node_is_ours(struct node *n) REQUIRES(cache_mutex);
/* Takes the file off the list of those that wait for their upload, if it is there. */
void file_unqueue_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* Makes the file the last to be evicted, if it may be evicted at all. */
void file_lru_add_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* Takes the file off that list: it is not evicted. */
void file_lru_remove_locked(struct cache *c, struct file *f) REQUIRES(cache_mutex);
/* Removes orphans/<id>; the log tells of a failure. Takes no lock. */
void file_drop_orphan(struct cache *c, uint64_t id);

/* ---- half.c ---- */
/* Somebody makes the content anew: the file is half until that writer has ended. */
void file_begin_anew_locked(struct file *f) REQUIRES(cache_mutex);
/* One of those has ended: what comes later are changes of something whole. */
void file_end_anew_locked(struct file *f) REQUIRES(cache_mutex);
/* Whether a writer said of the content with this mtime (of the mirror file) and size that it is
 * whole. */
bool file_is_said_whole(const struct file *f, int64_t mtime_ns, uint64_t size)
    REQUIRES(cache_mutex);
/* A writer says it, or it is so with another mtime. */
void file_say_whole_locked(struct file *f, int64_t mtime_ns, uint64_t size)
    REQUIRES(cache_mutex);
/* It changes: that was said of something else. Whether the stamp must learn it. */
bool file_unsay_whole_locked(struct file *f) REQUIRES(cache_mutex);
/* STAMP_BEGUN and STAMP_WHOLE as they are to be. */
unsigned file_stamp_begun(const struct file *f) REQUIRES(cache_mutex);
/* Whether the stamp on the disk says so. */
bool file_begun_is_noted(const struct file *f) REQUIRES(cache_mutex);
/* The mirror file is about to get another mtime; `whole`: it is said to be whole now. Whether
 * the stamp that is on the disk would call it half then, and must be written first: it says
 * nothing of a beginning until file_time_moved_locked(). */
bool file_time_moves_locked(struct file *f, bool whole) REQUIRES(cache_mutex);
void file_time_moved_locked(struct file *f) REQUIRES(cache_mutex);
/* Whether the content was made anew by a writer that has not said of what is there now that it
 * is whole: it replaces nothing unless that is asked for. A log is what it is at any moment. */
bool file_is_half_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);

/* ---- look.c ---- */
/* What a program sees of the node; nothing is asked. */
void node_stat(struct node *n, struct stat *st) REQUIRES(cache_mutex);
/* Brings size and mtime of a file that someone writes up to date. */
void node_look_locked(struct cache *c, struct node *n) REQUIRES(cache_mutex);
/* What fstat() says of the mirror file, into the node; marks it dirty when it changed. Under
 * the lock, so that an older look can't come after a younger one. 0 or -errno. */
int file_look_locked(struct cache *c, struct node *n, int fd, struct stat *ret_st)
    REQUIRES(cache_mutex);
/* Whether the file has the time and size at which it was last synced. */
bool file_says_synced(const struct file *f, const struct stat *now) REQUIRES(cache_mutex);
/* Whether somebody can still change the mirror file, of which `fd` is open for reading only:
 * through a descriptor, or through a mapping without one. docs/format.md, invariant 5. */
bool file_has_writer(int fd);
/* Returns when each write() that was under way in the mirror file, past the daemon as well, has
 * ended. It moved the file's time when it began: what was looked up before may be of half of
 * it. Takes no lock. */
void file_await_writes(int fd);
/* The same for what no open handle tells of. A file that was open for writing, and is marked
 * so, may be mapped, and change past the daemon: it is looked at, and while somebody still can
 * write it counts as changed by now, since a page that is dirty already moves no time. */
int file_look_past_locked(struct cache *c, struct node *n, int fd) REQUIRES(cache_mutex);
/* The mtime of the stat, in ns since 1970. */
int64_t stat_mtime_ns(const struct stat *st);
/* Whether a file that was changed at this time could change again without its mtime moving. */
bool mtime_is_racy(int64_t mtime_ns);
/* The same at an earlier CLOCK_REALTIME. */
bool mtime_was_racy(int64_t mtime_ns, int64_t then_ns);

/* ---- room.c ---- */
/* Makes the room's part of the cache. 0 or -ENOMEM. */
int contents_new(struct cache *c);
/* All nodes are gone. Accepts a cache without that part. */
void contents_free(struct cache *c) EXCLUDES(cache_mutex);
/* The room's numbers of the status. */
void contents_stats_locked(struct cache *c, struct cache_stats *ret) REQUIRES(cache_mutex);

/* ---- stamps.c ---- */
/* Writes the stamp's attributes as the node is now. `fd` is its mirror file or directory. */
int node_write_stamp(struct cache *c, struct node *n, int fd) EXCLUDES(cache_mutex);
/* The same, found by path; takes ns for reading. */
int node_save_stamp(struct cache *c, struct node *n) EXCLUDES(cache_ns);
/* The same by path, for a caller that holds ns; nothing when the mirror has no such file. */
int node_write_stamp_ns_locked(struct cache *c, struct node *n) REQUIRES_SHARED(cache_ns);
/* The inode is about to get a name that an older intention may have taken from it: its stamp
 * gets a new number, so that recovery does not take it for what that one meant. ns held for
 * writing. */
int node_renumber(struct cache *c, struct node *n) REQUIRES(cache_ns) EXCLUDES(cache_mutex);
/* Writes all that is known of a directory, also what only the store had told of it, into the
 * mirror, where its directory is made: from then on it is this cache's. Its attributes are
 * known. ns held for writing. 0 or a negative errno. */
int dir_write_stamps(struct cache *c, struct node *dir, const char *path) REQUIRES(cache_ns)
    EXCLUDES(cache_mutex);
/* The stamp on the disk has not all records; or has older ones than are known by now: until
 * they are written it says `flag` (STAMP_WRITING, STAMP_ATTR_DIRTY), so that what the store has
 * already is owed to it. */
void file_set_keys_cut_locked(struct file *f, bool cut) REQUIRES(cache_mutex);
void file_keys_are_behind_locked(struct file *f, unsigned flag) REQUIRES(cache_mutex);
/* Writes the records of what the store holds. */
int file_write_keys(struct cache *c, struct node *n, int fd) EXCLUDES(cache_mutex);
/* Notes in the stamp which version an upload of the file to that place is to replace, as
 * stamp_keys_expect(): the next mount knows it then. When that fails nothing is lost: the
 * upload of a next mount loses against what it does not know, and is kept. Takes no ns. */
void file_expect(struct cache *c, struct node *n, int fd, struct place at, const char *etag)
    EXCLUDES(cache_mutex);

/* ---- state.c ---- */
/* A new struct file, in this state; its generation goes on from what its names had stored. */
void file_is_born_locked(struct file *f, enum file_state state) REQUIRES(cache_mutex);
/* Row "create": it is dirty, and so will its stamp say. */
void file_is_made_locked(struct file *f) REQUIRES(cache_mutex);
/* A mount found it; `written`: somebody may have written it past the daemon. */
void file_is_found_locked(struct file *f, bool written) REQUIRES(cache_mutex);
void file_is_found_partial_locked(struct file *f) REQUIRES(cache_mutex);
void file_is_found_dirty_locked(struct file *f) REQUIRES(cache_mutex);
/* Recovery has its bytes read again; `verify`: unless they prove to be right. */
void file_forget_content_locked(struct file *f, bool verify) REQUIRES(cache_mutex);
/* Row "fetch range": the bytes are in the mirror file. 0 or -ENOMEM. */
int file_arrived_locked(struct file *f, uint64_t off, uint64_t end) REQUIRES(cache_mutex);
/* They are not, or not the right ones. */
void file_forget_ranges_locked(struct file *f) REQUIRES(cache_mutex);
/* Claims the file for a step that turns it complete, or takes it away: nobody reads, fetches or
 * writes meanwhile. False: somebody else has it. */
bool file_claim_locked(struct file *f) REQUIRES(cache_mutex);
void file_unclaim_locked(struct file *f) REQUIRES(cache_mutex);
/* Row "complete", last step, of a claimed file: it is clean, until it is marked dirty. */
void file_completed_locked(struct file *f) REQUIRES(cache_mutex);
/* That row went wrong: it stays partial. */
void file_not_completed_locked(struct file *f) REQUIRES(cache_mutex);
/* The store has no more the version that is being read; or has it after all. */
void file_version_is_gone_locked(struct file *f, bool gone) REQUIRES(cache_mutex);
/* Row "open for write": somebody may write from now on; `past` the daemon, and then with
 * O_DIRECT, or (`unsure`) without moving an mtime that can be told from the clean one. */
void file_has_writer_locked(struct file *f, bool past, bool direct, bool unsure)
    REQUIRES(cache_mutex);
/* The stamp is to say STAMP_WRITING: true, if it was not to before. Or need not: the only
 * writer is refused, and nobody's mapping that outlived a close had it said before. */
bool file_will_change_locked(struct file *f) REQUIRES(cache_mutex);
void file_will_not_change_locked(struct file *f) REQUIRES(cache_mutex);
/* What is dirty may have changed, and what was sent of it is not what is here now. */
void file_counts_as_changed_locked(struct file *f) REQUIRES(cache_mutex);
/* What is dirty, or about to be, changed: an upload that reads it stops. */
void file_changed_again_locked(struct file *f) REQUIRES(cache_mutex);
/* The file changed: it is to be uploaded under each of its names. `content`: not its
 * attributes alone. */
void file_mark_dirty_locked(struct cache *c, struct node *n, bool content)
    REQUIRES(cache_mutex);
/* It has one more name, under which all of it is owed. */
void file_got_name_locked(struct file *f) REQUIRES(cache_mutex);
/* With this mtime of the mirror file, and this size, it is what the store has. */
void file_is_version_locked(struct file *f, int64_t mtime_ns, uint64_t size)
    REQUIRES(cache_mutex);
/* Row "upload", step 3: the store took what it was then; `unproven`: mtime can't tell whether
 * it changed since. */
void file_is_sent_locked(struct file *f, uint64_t generation, int64_t mtime_ns, uint64_t size,
                         bool unproven) REQUIRES(cache_mutex);
/* And has it under each name: nothing is owed; `live`: a writer lived while it went up. */
void file_is_stored_locked(struct file *f, bool live) REQUIRES(cache_mutex);
/* It is read from the version that a name of it is known to be; "" where none is known. 0 or
 * -ENOMEM. */
int file_reads_version_locked(struct file *f, const struct etag *t) REQUIRES(cache_mutex);
/* The store has what it is under this etag (heap, taken over; NULL: not known, without memory):
 * as it was put, copied, got attributes, or was noted in a record. */
void file_is_stored_as_locked(struct file *f, char *etag) REQUIRES(cache_mutex);
/* A rename's copy of what was put to an older path became this version. Without memory none is
 * known. */
void file_was_copied_as_locked(struct file *f, const char *etag) REQUIRES(cache_mutex);
/* With this mtime and size it was synced to the disk; or that is so no more. */
void file_is_synced_locked(struct file *f, int64_t mtime_ns, uint64_t size)
    REQUIRES(cache_mutex);
void file_is_not_synced_locked(struct file *f) REQUIRES(cache_mutex);

/* ---- sync.c ---- */
/* Syncs the mirror file or directory to the disk, and notes of a file in its stamp, synced as
 * well, that this content is there. 0; 1: it was written meanwhile, and the stamp does not say
 * that what it is now was synced; or a negative errno. Takes no ns, waits for the disk. */
int node_sync(struct cache *c, struct node *n, int fd) EXCLUDES(cache_mutex);

/* ---- unlinked.c ---- */
/* Forgets those stale readers that need the store no more, being complete, closed or lost. */
void stale_readers_forget_locked(struct cache *c) REQUIRES(cache_mutex);
/* The cache ends: forgets them all. */
void stale_readers_end_locked(struct cache *c) REQUIRES(cache_mutex);
/* The bytes are the store's no longer (another version is there): a closed file is dropped, an
 * open one becomes nameless and goes on with its old bytes, one that has other names goes on
 * under those. -EBUSY: a chmod came meanwhile, it stays, and its upload finds that out. ns held
 * for writing. */
int node_replaced(struct cache *c, struct entry *e, const struct object *obj) REQUIRES(cache_ns)
    EXCLUDES(cache_mutex);
/* Takes the mirror file of a node without open handles away: 1 it leaves its path for orphans/;
 * 2 a chore removes it there. 0; -EBUSY: it is in use, or something of it is owed by now; or a
 * negative errno, and it is where it was. ns held for writing. */
int file_discard(struct cache *c, struct node *n) REQUIRES(cache_ns) EXCLUDES(cache_mutex);
/* Both rows "evict", of a file that the caller chose (transfer/ knows what is pinned or owed):
 * as file_discard(); then, where the inode's number can't be derived, a fresh partial file
 * keeps it under the name: a mapping may still read the old inode. 0; -EBUSY: it is in use
 * after all; other failures the log tells. ns held for writing; takes a stamp lock. */
int file_evict(struct cache *c, struct node *n) REQUIRES(cache_ns) EXCLUDES(cache_mutex);
/* The mirror's part of a name that goes while the inode keeps others: the link and the record
 * of it. The inode keeps its number, too. ns held for writing; the entry is still there. */
int file_leave_name(struct cache *c, struct entry *e) REQUIRES(cache_ns) EXCLUDES(cache_mutex);
/* It was made without a name (O_TMPFILE), or has got one. */
void file_set_unnamed_locked(struct file *f, bool unnamed) REQUIRES(cache_mutex);
/* The node, which has a mirror file, loses its last name: the file leaves `path` for orphans/.
 * ns held for writing. */
int file_orphan(struct cache *c, struct node *n, const char *path) REQUIRES(cache_ns)
    EXCLUDES(cache_mutex);
/* The same in two steps, around the mirror's rename that takes its place at `path`: it gets a
 * second name, orphans/<id>, to be dropped again if that rename fails; and when it did not,
 * what is known of the file follows, its last entry still being there. */
int file_keep_aside(struct cache *c, const char *path, uint64_t *ret_id) REQUIRES(cache_ns)
    EXCLUDES(cache_mutex);
void file_orphaned_locked(struct cache *c, struct node *n, uint64_t id) REQUIRES(cache_mutex);

#endif
