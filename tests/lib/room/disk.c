/* The cache directory of a cache that is made by hand. */
#include "tests/lib/room/room_impl.h"
#include "tests/lib/temp_dir.h"

static void free_disk(struct cache *c)
{
    struct room *r = (struct room *)c;

    journal_close(c->journal);
    mirror_close(&c->mirror);
    temp_dir_remove(r->dir);
}

void room_disk(struct cache *c)
{
    struct room *r = (struct room *)c;
    struct op op;

    op_init(&op, OP_FOREVER);
    temp_dir_make(r->dir, sizeof(r->dir));
    c->config.dir = r->dir;
    int made = mirror_open(r->dir, DOOR_MAKE, &op, &c->mirror);
    ck_assert_msg(made == 0, "%d %s", made, op.why);
    made = journal_open(c->mirror.root_fd, c->mirror.dir, &c->log, &op, &c->journal, NULL);
    ck_assert_msg(made == 0, "%d %s", made, op.why);
    room_ends_with(c, free_disk);
}
