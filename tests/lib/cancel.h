/* Somebody who gives up while a test waits. */
#ifndef RUNFS_TESTS_LIB_CANCEL_H
#define RUNFS_TESTS_LIB_CANCEL_H

/* A thread's start: sets the atomic_bool that `arg` is, op's `cancelled`, after 30 ms. */
void *cancel_soon(void *arg);

#endif
