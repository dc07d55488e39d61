/* The states of a file: docs/format.md, section 3. Only these functions assign them
 * (docs/architecture.md says which file assigns what); each is what one row does in memory. */
#include "cache/content/content_impl.h"

#include "cache/mirror/mirror.h"
#include "cache/types/etag.h"
#include "common/lock.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- invariants ---- */

#ifndef NDEBUG
/* state     bytes here   of before a reboot
 * partial   some         perhaps
 * clean     all          no
 * dirty     all          no */
static void check_state(const struct file *f) REQUIRES(cache_mutex)
{
    assert(f->state == FILE_PARTIAL || (f->present.n == 0 && !f->verify));
    assert(f->stored_generation <= f->generation);
}
#else
static void check_state(const struct file *f)
{
    (void)f;
}
#endif

/* ---- born, and found by a mount ---- */

void file_is_born_locked(struct file *f, enum file_state state)
{
    f->state = state;
    /* The generation goes on from what an earlier mirror file had stored: a change must not
     * look older. */
    for (struct entry *e = f->node->links; e; e = e->next_link)
        if (f->generation < e->stored_generation)
            f->generation = e->stored_generation;
}

void file_is_made_locked(struct file *f)
{
    f->state = FILE_DIRTY;
    f->writing_stamp = true;
    f->generation = 1;
    check_state(f);
}

void file_is_found_locked(struct file *f, bool written)
{
    f->past = written;
    f->generation = 1;
}

void file_is_found_partial_locked(struct file *f)
{
    f->state = FILE_PARTIAL;
    check_state(f);
}

void file_is_found_dirty_locked(struct file *f)
{
    f->state = FILE_DIRTY;
    f->writing_stamp = true;
    check_state(f);
}

void file_forget_content_locked(struct file *f, bool verify)
{
    f->state = FILE_PARTIAL;
    f->verify = verify;
    ranges_clear(&f->present);
    check_state(f);
}

/* ---- bytes from the store ---- */

int file_arrived_locked(struct file *f, uint64_t off, uint64_t end)
{
    return ranges_add(&f->present, off, end);
}

void file_forget_ranges_locked(struct file *f)
{
    ranges_clear(&f->present);
    sums_clear(&f->sums);
}

bool file_claim_locked(struct file *f)
{
    bool free = !f->busy;

    f->busy = true;
    return free;
}

void file_unclaim_locked(struct file *f)
{
    f->busy = false;
}

void file_completed_locked(struct file *f)
{
    f->busy = f->verify = false;
    f->state = FILE_CLEAN;
    file_forget_ranges_locked(f);
    check_state(f);
}

void file_not_completed_locked(struct file *f)
{
    f->busy = f->verify = false;
}

void file_version_is_gone_locked(struct file *f, bool gone)
{
    f->gone = gone;
}

/* ---- written ---- */

void file_has_writer_locked(struct file *f, bool past, bool direct, bool unsure)
{
    atomic_store(&f->changed, true);
    f->generation++;
    f->past = f->past || past;
    f->direct = f->direct || (past && direct);
    /* A name that owes nothing would not get what no time tells of. */
    bool all_goes_up = f->state == FILE_DIRTY && names_all_owe(f->node);
    f->suspect = f->suspect || (past && unsure && !all_goes_up);
    check_state(f);
}

bool file_will_change_locked(struct file *f)
{
    bool first = !f->writing_stamp;

    f->writing_stamp = true;
    return first;
}

void file_will_not_change_locked(struct file *f)
{
    if (f->state != FILE_DIRTY)
        f->writing_stamp = false;
}

void file_counts_as_changed_locked(struct file *f)
{
    f->generation++;
}

void file_changed_again_locked(struct file *f)
{
    atomic_store(&f->changed, true);
    file_counts_as_changed_locked(f);
}

void file_mark_dirty_locked(struct cache *c, struct node *n, bool content)
{
    struct file *f = n->file;

    cache_assert_locked(c);
    assert(!content || f->state != FILE_PARTIAL); /* missing bytes would go up as zeros */
    file_changed_again_locked(f);
    n->ctime_ns = clock_real_ns();
    for (struct entry *e = n->links; e; e = e->next_link) {
        entry_owes_locked(e, true);
        entry_changed_here_locked(e);
    }
    if (!content)
        return;
    if (f->state != FILE_DIRTY)
        file_lru_remove_locked(c, f);
    f->state = FILE_DIRTY;
    f->suspect = false;
    check_state(f);
}

void file_got_name_locked(struct file *f)
{
    f->generation++;
    if (f->state == FILE_CLEAN) /* the other names' records are of this content */
        f->stored_generation = f->generation;
    f->state = FILE_DIRTY;
    f->writing_stamp = true;
    check_state(f);
}

/* ---- equal to a version of the store ---- */

void file_is_version_locked(struct file *f, int64_t mtime_ns, uint64_t size)
{
    f->clean_mtime_ns = mtime_ns;
    f->clean_size = size;
}

void file_is_sent_locked(struct file *f, uint64_t generation, int64_t mtime_ns, uint64_t size,
                         bool unproven)
{
    file_is_version_locked(f, mtime_ns, size);
    bool opened = f->suspect && generation != f->generation; /* since then */
    f->suspect = opened || (f->past && unproven);            /* else the generation tells */
    f->stored_generation = generation;
    check_state(f);
}

void file_is_stored_locked(struct file *f, bool live)
{
    if (f->state == FILE_DIRTY)
        f->state = FILE_CLEAN;
    if (!live)
        f->writing_stamp = f->past = f->direct = false;
    check_state(f);
}

static void set_text(char **text, char *value)
{
    free(*text);
    *text = value;
}

int file_reads_version_locked(struct file *f, const struct etag *t)
{
    set_text(&f->etag, etag_known(t) ? etag_dup(t) : strdup(""));
    return f->etag ? 0 : -ENOMEM;
}

void file_is_stored_as_locked(struct file *f, char *etag)
{
    set_text(&f->etag, etag);
}

void file_was_copied_as_locked(struct file *f, const char *etag)
{
    set_text(&f->copied_etag, strdup(etag));
}

/* ---- on the disk ---- */

void file_is_synced_locked(struct file *f, int64_t mtime_ns, uint64_t size)
{
    f->synced_mtime_ns = mtime_ns;
    f->synced_size = size;
}

void file_is_not_synced_locked(struct file *f)
{
    f->synced_mtime_ns = 0;
}
