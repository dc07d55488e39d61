/* Text that others chose (names, a store's words) on its way to a terminal or a log: what could
 * command the terminal, break the line or show it in another order is shown as \xNN. */
#ifndef RUNFS_COMMON_PRINTABLE_H
#define RUNFS_COMMON_PRINTABLE_H

#include <stddef.h>
#include <stdio.h>

#define PRINTABLE_MAX 4 /* the most that one step gives */

/* Moves *text over the next character, or over one byte that must not be shown, and puts into
 * `to` what stands for it, without a NUL. Returns how much that is; 0 at the end of the text.
 */
size_t printable_next(char to[PRINTABLE_MAX], const char **text);

/* The whole text; never more than PRINTABLE_MAX bytes for each of it. */
void printable_print(FILE *file, const char *text);

#endif
