/* What is on its way, as the order at the store asks; above all the uploads of files, and how
 * many of them to each store. */
#include "cache/transfer/upload.h"

#include "common/lock.h"

unsigned uploads_max(const struct cache *c)
{
    unsigned jobs = c->config.upload_jobs ? c->config.upload_jobs : 1; /* it becomes that */

    return jobs * volumes_count(c);
}

bool upload_runs_at_locked(struct cache *c, struct place at, bool below)
{
    cache_assert_locked(c);
    for (size_t i = 0; i < c->transfer->n_uploading; i++) {
        const char *rest = place_below(at, c->transfer->uploading[i]->file->upload_place);
        if (rest && (below || !*rest))
            return true;
    }
    return false;
}

void upload_runs_locked(struct job *j, char *path)
{
    struct transfers *t = j->cache->transfer;
    struct node *n = j->node;

    cache_assert_locked(j->cache);
    debt_run(&n->file->debt, true);
    n->file->upload_place = place_own_path(path);
    t->uploading[t->n_uploading++] = n;
    j->cache->queue->uploads_running++;
    j->volume = node_volume(n);
    t->volumes[j->volume].uploads++;
}

void upload_runs_no_more_locked(const struct job *j)
{
    struct transfers *t = j->cache->transfer;
    struct node *n = j->node;

    cache_assert_locked(j->cache);
    for (size_t i = 0; i < t->n_uploading; i++)
        if (t->uploading[i] == n) {
            t->uploading[i] = t->uploading[--t->n_uploading];
            break;
        }
    j->cache->queue->uploads_running--;
    t->volumes[j->volume].uploads--;
    debt_run(&n->file->debt, false);
    place_free(&n->file->upload_place);
}

const struct order_world on_its_way = {
    .upload_at = upload_runs_at_locked,
    .marker_at = dir_upload_runs_at_locked,
    .marker_above = dir_upload_runs_above_locked,
    .session_at = session_blocks_upload_locked,
    .readers_at = readers_need_locked,
};
