/* A directory of a test, reached by no symlink, and what is in it by name. All abort the test
 * on a failure. */
#ifndef RUNFS_TESTS_LIB_TOP_H
#define RUNFS_TESTS_LIB_TOP_H

#include <sys/types.h>

extern char top[256];

/* Where $TMPDIR says, or in /tmp. */
void top_make(void);
/* With all that is in it. */
void top_remove(void);
/* The path of a name there, in one of two places that take turns. */
const char *in_top(const char *name);
void top_make_dir(const char *name, mode_t mode);
void top_make_file(const char *name, const char *text);
/* The file has this text. */
void top_holds(const char *name, const char *text);
unsigned top_mode_of(const char *name);

#endif
