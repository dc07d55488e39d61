/* The room's part of a cache: made, opened, counted, freed. */
#include "cache/transfer/transfer_impl.h"

#include <errno.h>
#include <stdlib.h>

int transfers_new(struct cache *c)
{
    c->transfer = calloc(1, sizeof(*c->transfer));
    if (!c->transfer)
        return -ENOMEM;
    cache_lock(c);
    c->transfer->sum_kind = CHECKSUM_CRC32C;
    cache_unlock(c);
    return 0;
}

unsigned transfers_threads(const struct cache *c)
{
    /* Copies and removals have workers beside the uploads. A store that does not answer holds
     * as many as it may have of each kind. */
    unsigned others = volumes_count(c) - 1;

    return c->config.upload_jobs + 4 + others * (3 * c->config.upload_jobs + 1);
}

int transfers_open(struct cache *c)
{
    cache_lock(c);
    c->transfer->uploading = calloc(uploads_max(c) + 1, sizeof(struct node *));
    c->transfer->volumes = calloc(volumes_count(c), sizeof(struct volume_tasks));
    bool made = c->transfer->uploading && c->transfer->volumes;
    cache_unlock(c);
    return made ? 0 : -ENOMEM;
}

void transfers_free(struct cache *c)
{
    if (!c->transfer)
        return;
    cache_lock(c);
    pins_free(c);
    sessions_free(c);
    free(c->transfer->uploading);
    free(c->transfer->volumes);
    cache_unlock(c);
    free(c->transfer);
    c->transfer = NULL;
}

bool transfers_run_locked(struct cache *c)
{
    const struct transfers *t = c->transfer;

    cache_assert_locked(c);
    return c->queue->uploads_running || t->dir_uploads_running || c->queue->removals_running ||
           t->copies_running || t->stamps_running || t->sessions_ending;
}

void transfers_stats_locked(struct cache *c, struct cache_stats *ret)
{
    const struct transfers *t = c->transfer;

    cache_assert_locked(c);
    ret->uploaded_files = t->uploaded_files;
    ret->uploaded_bytes = t->uploaded_bytes;
    ret->downloaded_bytes = t->downloaded_bytes;
    ret->pinned_files = pins_count_locked(c);
    ret->kept_files = t->kept_files;
    ret->unstamped_files = t->unstamped_files;
    ret->space_trouble = space_trouble_text(t->space);
}

uint64_t transfers_kept_locked(struct cache *c)
{
    cache_assert_locked(c);
    return c->transfer->kept_files;
}

void transfers_found_kept_locked(struct cache *c, uint64_t kept, uint64_t unstamped)
{
    cache_assert_locked(c);
    c->transfer->kept_files = kept;
    c->transfer->unstamped_files = unstamped;
}
