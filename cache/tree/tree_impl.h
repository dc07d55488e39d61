/* What the files of tree/ share. */
#ifndef RUNFS_CACHE_TREE_TREE_IMPL_H
#define RUNFS_CACHE_TREE_TREE_IMPL_H

#include "cache/tree/tree.h"

/* ---- ids.c ---- */
/* Gives a new node its slot; 0 or -ENOMEM. */
int ids_add(struct ids *ids, struct node *n) REQUIRES(cache_mutex);
/* The node goes, and its number with it. */
void ids_remove(struct ids *ids, struct node *n) REQUIRES(cache_mutex);

#endif
