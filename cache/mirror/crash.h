/* Named points at which a test may have the process killed, in debug builds: with the
 * environment RUNFS_CRASH_AT=name or name:n the n-th passage raises SIGKILL. Or the
 * test has something else done there, to find out what happens in between. Nothing in release
 * builds. */
#ifndef RUNFS_CACHE_CRASH_H
#define RUNFS_CACHE_CRASH_H

#ifdef NDEBUG
#define crash_point(name) ((void)0)
#define crash_arm(at)     ((void)0)
#define crash_watch(seen) ((void)(seen))
#else
void crash_point(const char *name);
/* Takes the place of the environment's word from now on; `at` is borrowed for ever. */
void crash_arm(const char *at);
/* Has `seen` called at each point from now on, by the thread that passes it; NULL ends that. */
void crash_watch(void (*seen)(const char *name));
#endif

#endif
