/* Edit distance, and the nearest of a list. */
#include "common/nearest.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#define WORD_MAX 64

static unsigned min2(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned edit_distance(const char *a, const char *b)
{
    unsigned rows[3][WORD_MAX + 1]; /* the last three rows of the table */
    size_t alen = strlen(a), blen = strlen(b);

    if (alen > WORD_MAX || blen > WORD_MAX)
        return UINT_MAX;
    for (size_t j = 0; j <= blen; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= alen; i++) {
        unsigned *row = rows[i % 3], *above = rows[(i - 1) % 3], *two = rows[(i + 1) % 3];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= blen; j++) {
            bool same = a[i - 1] == b[j - 1];

            row[j] = min2(above[j - 1] + !same, min2(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = min2(row[j], two[j - 2] + 1);
        }
    }
    return rows[alen % 3][blen];
}

void nearest_init(struct nearest *n, const char *word)
{
    *n = (struct nearest){.word = word, .distance = (unsigned)strlen(word) / 2 + 1};
}

void nearest_try(struct nearest *n, const char *known)
{
    unsigned distance = edit_distance(n->word, known);

    if (distance < n->distance) {
        n->distance = distance;
        n->best = known;
    }
}
