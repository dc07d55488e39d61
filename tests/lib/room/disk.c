/* The cache directory of a cache that is made by hand. */
#include "tests/lib/room/room_impl.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void free_disk(struct cache *c)
{
    struct room *r = (struct room *)c;

    journal_close(c->journal);
    mirror_close(&c->mirror);
    (void)nftw(r->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void room_disk(struct cache *c)
{
    struct room *r = (struct room *)c;
    const char *tmp = getenv("TMPDIR");
    struct op op;

    op_init(&op, OP_FOREVER);
    (void)snprintf(r->dir, sizeof(r->dir), "%s/runfs-room-XXXXXX", tmp ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(r->dir));
    c->config.dir = r->dir;
    int made = mirror_open(r->dir, DOOR_MAKE, &op, &c->mirror);
    ck_assert_msg(made == 0, "%d %s", made, op.why);
    made = journal_open(c->mirror.root_fd, c->mirror.dir, &c->log, &op, &c->journal, NULL);
    ck_assert_msg(made == 0, "%d %s", made, op.why);
    room_ends_with(c, free_disk);
}
