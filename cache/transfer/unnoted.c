/* Uploads that the store has and the cache could not note: such a job stays with its file until
 * the file changes, a name of it comes, goes or moves, or a removal there may take what was
 * sent. Else the next attempt only notes it. */
#include "cache/transfer/upload.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

void upload_forget(struct job *j)
{
    if (!j)
        return;
    object_release(&j->object);
    attrs_release(&j->attrs);
    free(j->etag);
    free(j->path);
    free(j);
}

void upload_forget_unnoted_locked(struct node *n)
{
    if (n->file)
        upload_forget(take_ptr(n->file->unnoted));
}

struct job *upload_take_unnoted_locked(struct node *n, const char *path)
{
    struct job *j = take_ptr(n->file->unnoted);

    if (!j)
        return NULL;
    if (strcmp(j->path, path) != 0 || j->generation != n->file->generation) {
        upload_forget(j);
        return NULL;
    }
    j->fd = -1;
    atomic_store(&j->disk_error, 0);
    return j;
}
