/* Configurations in tests: what was read of them, or what is wrong, as lines of text. */
#ifndef RUNFS_TESTS_LIB_CONFIG_LINES_H
#define RUNFS_TESTS_LIB_CONFIG_LINES_H

#include "runs/config.h"

/* The text is refused for exactly these: "LINE:COLUMN: TEXT\n" each; op->why is the first. */
void config_lines_refused(const char *text, const char *origin, const char *lines);

/* The text is read as these stores, "NAME URL name=value...\n", and these routes,
 * "PATH STORE KEY POLICY\n"; and what it expands to is read as the same and expands to itself.
 */
void config_lines_legal(const char *text, const char *origin, const char *stores,
                        const char *routes);
/* What a configuration has of them; heap. */
char *config_lines_stores(const struct config *c);
char *config_lines_routes(const struct config *c);
/* That it expands to a text which is read as the same, and to itself again. */
void config_lines_expanded(const struct config *c);

#endif
