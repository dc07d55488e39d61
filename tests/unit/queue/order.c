/* cache/queue/order.c: docs/format.md, section 4: who waits for whom, as a table. */
#include "common/mem.h"
#include "tests/lib/route_table.h"
#include "tests/unit/queue/owed.h"
#include "tests/unit/queue/suites.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define GO      ORDER_GO
#define WAIT    ORDER_WAIT
#define READERS ORDER_READERS

/* What is asked: "put K", "attrs K" and "mark D", whether the upload of a file, of its
 * attributes or of a directory's marker may go; "row 2", whether the row may; "urgent 1",
 * whether it goes before the uploads that it would wait for. */
struct line {
    const char *rows, *names, *asked;
    enum order order;
};

static const struct line uploads[] = {
    /* Running deletes of the name, and none that only wait: what is put takes their place. */
    {"", "a", "put a", GO},
    {"+unlink a", "a", "put a", WAIT},
    {"unlink a", "a", "put a", GO},
    {"-unlink a", "a", "put a", GO},
    {"+unlink a", "a b", "put b", GO},
    {"+unlink a/x", "a/ a/y", "put a/y", GO},
    {"+rmdir d", "d/", "mark d", WAIT},
    {"+rmdir d", "d/ d/x", "put d/x", GO},
    /* A marker is not what takes the place of a directory's own object. */
    {"rmdir d", "d/", "mark d", WAIT},
    {"-rmdir d", "d/", "mark d", WAIT},
    /* Renames that read or write the name, whether they run or not. */
    {"rename a b", "b", "put a", WAIT},
    {"rename a b", "b", "put b", WAIT},
    {"-rename a b", "b", "put b", WAIT},
    {"rename a b", "b c", "put c", GO},
    {"rename a b", "b ab", "put ab", GO},
    {"rename a b", "b a/ a/x", "put a/x", WAIT},
    {"rename d/a d/b", "d/ d/b d/c", "put d/c", GO},
    {"renamedir d e", "e/ e/x", "put e/x", WAIT},
    {"renamedir d e", "e/ d/ d/x", "put d/x", WAIT},
    {"renamedir d e", "e/", "mark e", WAIT},
    {"renamedir d e", "e/ d/", "mark d", WAIT},
    {"renamedir d e", "e/ dx", "put dx", GO},
    {"renamedir d/a d/b", "d/ d/b/ d/c", "put d/c", GO},
    /* A directory has room for files that come and go below it, and not for directories. */
    {"rename d/a d/b", "d/ d/b", "mark d", GO},
    {"rename d/a e/a", "d/ e/ e/a", "mark e", GO},
    {"rename d e", "e d/", "mark d", WAIT},
    {"rename e d", "d/", "mark d", WAIT},
    {"rename e d", "d/ d/x/", "mark d/x", WAIT},
    {"renamedir d/a d/b", "d/ d/b/", "mark d", WAIT},
    /* What is in the way: there was a file where a directory is now, or the reverse. */
    {"unlink a", "a/ a/x", "put a/x", WAIT},
    {"unlink a", "a/", "mark a", WAIT},
    {"unlink a", "a/ a/b/ a/b/x", "put a/b/x", WAIT},
    {"-unlink a", "a/ a/x", "put a/x", GO},
    {"+unlink a", "a/ a/x", "put a/x", WAIT},
    {"rmdir a", "a", "put a", WAIT},
    {"unlink a/x", "a", "put a", WAIT},
    {"unlink a/b/x", "a", "put a", WAIT},
    {"-unlink a/x", "a", "put a", GO},
    {"unlink a/x", "a b", "put b", GO},
    {"unlink a", "a/ b/ b/a", "put b/a", GO},
    {"rmdir d", "d/ d/x", "put d/x", GO},
};

static const struct line renames[] = {
    {"rename a b", "b", "row 1", GO},
    /* Renames with a lower number that overlap. */
    {"rename a b; rename b c", "c", "row 1", GO},
    {"rename a b; rename b c", "c", "row 2", WAIT},
    {"rename a b; rename c d", "b d", "row 2", GO},
    {"rename a b; rename c a", "a b", "row 2", WAIT},
    {"rename a b; rename c b", "b", "row 2", WAIT},
    {"-rename a b; rename b c", "c", "row 2", WAIT},
    {"rename a b; rename c d; rename d a", "a b", "row 3", WAIT},
    {"rename a b; rename c d; rename e f", "b d f", "row 3", GO},
    {"renamedir d e; rename e/a f", "e/ f", "row 2", WAIT},
    {"renamedir d e; rename d/a f", "e/ d/ f", "row 2", WAIT},
    {"renamedir d e; rename dd ee", "e/ ee", "row 2", GO},
    {"rename d/a d/b; renamedir d e", "e/ e/b", "row 2", WAIT},
    {"rename d/a d/b; rename d/c d/e", "d/ d/b d/e", "row 2", GO},
    {"renamedir d/a d/b; renamedir d/c d/e", "d/ d/b/ d/e/", "row 2", GO},
    {"renamedir d t; renamedir e d; renamedir t e", "d/ e/", "row 1", GO},
    {"renamedir d t; renamedir e d; renamedir t e", "d/ e/", "row 2", WAIT},
    {"renamedir d t; renamedir e d; renamedir t e", "d/ e/", "row 3", WAIT},
    {"rename f t; renamedir d f; rename t d", "d f/", "row 2", WAIT},
    /* Removals with a lower number, of something of the other kind where it reads or writes. */
    {"unlink b; rename a b", "b", "row 2", GO},
    {"rmdir b; rename a b", "b", "row 2", WAIT},
    {"unlink b; renamedir d b", "b/", "row 2", WAIT},
    {"-unlink b; renamedir d b", "b/", "row 2", GO},
    {"rmdir b; renamedir d b", "b/", "row 2", GO},
    {"unlink a; rename a b", "b", "row 2", GO},
    {"rmdir a; rename a b", "b", "row 2", WAIT},
    {"unlink d; renamedir d e", "e/", "row 2", WAIT},
    {"rmdir d; renamedir d e", "e/", "row 2", GO},
    {"unlink b; rename a b/x", "b/ b/x", "row 2", WAIT},
    {"unlink b; renamedir d b/x", "b/ b/x/", "row 2", WAIT},
    {"rmdir b; rename a b/x", "b/ b/x", "row 2", GO},
    {"unlink b/x; rename a b", "b", "row 2", WAIT},
    {"rmdir b/x; rename a b", "b", "row 2", WAIT},
    {"unlink b/x; renamedir d b", "b/", "row 2", GO},
    {"unlink d/x; renamedir d e", "e/", "row 2", GO},
    {"unlink c; rename a b", "b", "row 2", GO},
    /* One that the listing of what is copied found to be needed. */
    {"*unlink b/x; renamedir d b", "b/", "row 2", WAIT},
    {"-unlink b/x; renamedir d b", "b/", "row 2", GO},
    {"*unlink c/x; renamedir d b", "b/", "row 2", GO},
    /* A later removal is none of it. */
    {"renamedir d b; unlink b", "b/", "row 1", GO},
};

static const struct line removals[] = {
    {"unlink a", "", "row 1", GO},
    {"unlink a; unlink a", "", "row 2", GO},
    /* Renames with a lower number there. */
    {"rename a b; unlink a", "b", "row 2", WAIT},
    {"rename a b; unlink b", "", "row 2", WAIT},
    {"rename a b; unlink c", "b", "row 2", GO},
    {"unlink a; rename a b", "b", "row 1", GO},
    {"renamedir d e; unlink e/x", "e/", "row 2", WAIT},
    {"renamedir d e; unlink d/x", "e/ d/", "row 2", WAIT},
    {"renamedir d e; rmdir e", "", "row 2", WAIT},
    {"renamedir d/a d/b; rmdir d", "", "row 2", WAIT},
    {"renamedir d e; unlink ex", "e/", "row 2", GO},
    /* Urgent: in the way of an upload... */
    {"unlink a", "", "urgent 1", WAIT},
    {"unlink a", "a", "urgent 1", WAIT},
    {"unlink a", "a/", "urgent 1", GO},
    {"rmdir a", "a", "urgent 1", GO},
    {"rmdir a", "a/", "urgent 1", WAIT},
    {"unlink a/x", "a", "urgent 1", GO},
    {"unlink a/x", "a/", "urgent 1", WAIT},
    /* ...or of a rename with a higher number. */
    {"unlink b; renamedir d b", "b/", "urgent 1", GO},
    {"unlink b; renamedir d b; renamedir b c", "c/", "urgent 1", GO},
    {"unlink b; rename a b; rename b c", "c", "urgent 1", WAIT},
    {"rmdir b; rename a b; rename b c", "c", "urgent 1", GO},
    {"unlink b/x; rename a b; rename b c", "c", "urgent 1", GO},
    {"unlink b; rename a b/x; rename b/x c", "b/ c", "urgent 1", GO},
    {"renamedir d b; unlink b", "", "urgent 2", WAIT},
    {"*unlink b/x; renamedir d b; renamedir b c", "c/", "urgent 1", GO},
};

/* The same with what is on its way, and what else the queue knows: what owed_world() takes,
 * and what stands at told[]. */
struct way_line {
    const char *rows, *names, *way, *asked;
    enum order order;
};

/* The lines of the table 'intention | waits for', one after the other. What concerns rows alone
 * stands above. */
static const struct way_line ways[] = {
    /* upload of K: running deletes of K; deletes in its way that have not failed; open readers
     * of K; rename* that read or write K. */
    {"", "a", "", "put a", GO},
    {"", "a", "reader a", "put a", READERS},
    {"", "a", "reader b", "put a", GO},
    {"", "d/ d/x", "reader d", "put d/x", GO},
    {"+unlink a", "a", "reader a", "put a", WAIT},
    {"rename a b", "b", "reader b", "put b", WAIT},
    /* upload of K, also: an upload in flight at K; sessions of K that are being ended. */
    {"", "a", "upload a", "put a", WAIT},
    {"", "a", "upload a; reader a", "put a", WAIT},
    {"", "d/ d/x", "upload d; upload d/x/y; upload d/xx", "put d/x", GO},
    {"", "d/ d/x", "marker d", "put d/x", GO},
    {"", "a", "session a", "put a", WAIT},
    {"", "a b", "session b", "put a", GO},
    /* rename a>b: open readers of b. */
    {"rename a b", "b", "", "row 1", GO},
    {"rename a b", "b", "reader b", "row 1", READERS},
    {"rename a b", "b", "reader a", "row 1", GO},
    {"rename a b", "b", "reader b/x", "row 1", GO},
    {"rename c a; rename a b", "b", "reader b", "row 2", WAIT},
    {"rmdir b; rename a b", "b", "reader b", "row 2", WAIT},
    /* rename a>b, also: uploads in flight and running deletes at a or b. */
    {"rename a b", "b", "upload a", "row 1", WAIT},
    {"rename a b", "b", "upload b", "row 1", WAIT},
    {"rename a b", "b", "upload a/x; upload b/x; upload ab", "row 1", GO},
    {"rename a b", "b", "marker a", "row 1", WAIT},
    {"rename a b", "b", "marker b", "row 1", WAIT},
    {"rename d/a d/b", "d/ d/b", "marker d", "row 1", GO},
    {"+unlink a; rename a b", "b", "", "row 2", WAIT},
    {"+unlink b; rename a b", "b", "", "row 2", WAIT},
    {"rename a b; +unlink a", "b", "", "row 1", WAIT},
    {"+unlink c; rename a b", "b", "", "row 2", GO},
    {"rename a b; unlink a; +unlink c", "b", "", "row 1", GO},
    {"rename a b; +rename b d; +unlink c", "d", "", "row 1", GO},
    {"+unlink d/x; renamedir d/x/y e", "d/ e/", "", "row 2", WAIT}, /* in its way */
    {"rename a b; +unlink b/x", "b", "", "row 1", GO},
    {"+rename x y; rename a b", "b y", "", "row 2", GO},
    /* renamedir d>e: the same at or below d and e, readers at or below e. */
    {"renamedir d e", "e/", "", "row 1", GO},
    {"renamedir d e", "e/", "reader e/x", "row 1", READERS},
    {"renamedir d e", "e/", "reader e", "row 1", READERS},
    {"renamedir d e", "e/", "reader d/x", "row 1", GO},
    {"renamedir d e", "e/ e/x", "upload e/x", "row 1", WAIT},
    {"renamedir d e", "e/ d/ d/x", "upload d/x", "row 1", WAIT},
    {"renamedir d e", "e/", "upload dx; upload ex", "row 1", GO},
    {"renamedir d e", "e/", "marker d/x", "row 1", WAIT},
    {"renamedir d e", "e/", "marker e/x", "row 1", WAIT},
    {"renamedir d e", "e/", "marker e", "row 1", WAIT},
    {"renamedir d e; +unlink d/x", "e/", "", "row 1", WAIT},
    {"renamedir d e; +unlink e/x", "e/", "", "row 1", WAIT},
    {"renamedir d e; +unlink ex", "e/", "", "row 1", GO},
    {"renamedir d f/e", "f/ f/e/", "marker f", "row 1", WAIT}, /* it removes a marker */
    {"renamedir f/d e", "e/ f/", "marker f", "row 1", GO},
    /* A marker of d, renamedir to d: with routes also a running rmdir above d. */
    {"+rmdir d", "d/ d/x/", "", "mark d/x", GO},
    {"+rmdir d", "d/ d/x/", "routes", "mark d/x", WAIT},
    {"rmdir d; +unlink c", "d/ d/x/", "routes", "mark d/x", GO},
    {"+rmdir dx", "d/ d/x/", "routes", "mark d/x", GO},
    {"+unlink d", "d/ d/x/", "routes", "mark d/x", WAIT}, /* in its way */
    {"renamedir e d/x; +rmdir d", "d/ d/x/", "", "row 1", GO},
    {"renamedir e d/x; +rmdir d", "d/ d/x/", "routes", "row 1", WAIT},
    {"renamedir e d/x; +unlink d", "d/ d/x/", "routes", "row 1", GO},
    {"renamedir d/x e; +rmdir d", "d/ e/", "routes", "row 1", GO},
    {"rename e d/x; +rmdir d", "d/ d/x", "routes", "row 1", GO},
    /* A marker of d, a delete or rmdir below d: each waits while the other runs, at one store.
     */
    {"", "d/", "marker d", "mark d", WAIT},
    {"", "d/", "marker d/x; upload d/y; session d; reader d", "mark d", GO},
    {"+unlink d/x", "d/", "", "mark d", WAIT},
    {"+rmdir d/x/y", "d/", "", "mark d", WAIT},
    {"unlink d/x; +unlink c", "d/", "", "mark d", GO},
    {"+rename d/x d/y; +unlink c", "d/ d/y", "", "mark d", GO},
    {"+unlink dx", "d/", "", "mark d", GO},
    {"+unlink d/x", "d/", "routes", "mark d", WAIT},
    {"+unlink d/two/x", "d/ d/two/", "routes", "mark d", GO},
    {"unlink d/x", "d/", "marker d", "row 1", WAIT},
    {"rmdir d/x", "d/", "marker d", "row 1", WAIT},
    {"unlink d/x", "d/", "marker d/y; marker dx", "row 1", GO},
    {"unlink d/x", "d/", "routes; marker d", "row 1", WAIT},
    {"unlink d/two/x", "d/ d/two/", "routes; marker d", "row 1", GO},
    /* unlink, rmdir: files closed earlier; an upload in flight at the key; rename* there
     * (running, or lower seq); open readers. */
    {"unlink z; unlink a", "", "closed f 1", "row 1", GO},
    {"unlink z; unlink a", "", "closed f 1", "row 2", WAIT},
    {"unlink z; rmdir d", "", "closed f 1", "row 2", WAIT},
    {"unlink z; rename a b", "b", "closed f 1", "row 2", GO},
    {"unlink z; unlink a; renamedir c a", "a/", "closed f 1", "row 2", GO}, /* urgent */
    {"unlink z; unlink a", "a/", "closed f 1", "row 2", GO},
    {"unlink z; unlink a", "", "closed f 1s", "row 2", GO},
    {"unlink z; unlink a", "", "closed f 1S", "row 2", WAIT},
    {"unlink z; unlink a", "", "closed d/f 1r", "row 2", GO},
    {"unlink z; unlink d/a", "", "closed d/f 1r", "row 2", WAIT},
    {"unlink z; unlink a", "", "closed f 1; full", "row 2", GO},
    /* ...in the scope of the removal: what a unit is in, two names, or all. */
    {"unlink z; unlink a/b/step1/d", "", "closed a/b/f 1", "row 2", WAIT},
    {"unlink z; unlink a/b/step1/d", "", "closed a/x/f 1", "row 2", GO},
    {"unlink z; unlink a/b/d", "", "closed a/x/f 1", "row 2", WAIT},
    {"unlink z; rmdir a/b/step1", "", "closed a/x/f 1", "row 2", GO},
    {"unlink z; unlink r/checkpoint-1/a", "", "closed r/checkpoint-2/f 1", "row 2", WAIT},
    {"unlink z; unlink r/checkpoint-1/a", "", "closed r/f 1", "row 2", WAIT},
    {"unlink z; unlink r/checkpoint-1/a", "", "closed s/checkpoint-2/f 1", "row 2", GO},
    {"unlink z; rmdir r/checkpoint-1", "", "closed r/checkpoint-2/f 1", "row 2", WAIT},
    {"unlink z; rmdir r/checkpoint-1", "", "closed s/checkpoint-2/f 1", "row 2", GO},
    /* ...also what left the name, when it is refused, or went to another store. */
    {"", "d/", "closed left 1; left unlink d/a", "row 1", GO},
    {"", "d/", "closed left 1r; left unlink d/a", "row 1", WAIT},
    {"", "d/", "closed left 1r; left unlink d/a; full", "row 1", GO},
    {"", "d/ d/a/", "closed left 1r; left unlink d/a", "row 1", GO},
    {"", "", "closed left 1; moved unlink a", "row 1", WAIT},
    {"", "", "closed left 1; moved unlink a; full", "row 1", WAIT},
    {"", "a/", "closed left 1; moved unlink a", "row 1", GO},
    /* ...what a deletion lock covers that is older, and hides what is removed. */
    {"unlink a", "", "locked a", "row 1", WAIT},
    {"unlink d/x", "", "locked d", "row 1", WAIT},
    {"rmdir d", "", "locked d", "row 1", WAIT},
    {"rmdir d", "", "locked d/x", "row 1", GO},
    {"unlink d/x; rmdir d", "", "locked d/x", "row 2", WAIT}, /* after what is below it */
    {"unlink dx", "", "locked d", "row 1", GO},
    {"unlink a", "", "locked b", "row 1", GO},
    {"unlink a; unlink b", "", "locked b; locked a", "row 2", WAIT},
    {"unlink a", "", "locked a; unlocked a", "row 1", GO},
    {"unlink a", "", "locked a; locked a; unlocked a", "row 1", WAIT},
    {"unlink a", "", "late a", "row 1", GO},
    {"unlink a", "", "refusing a", "row 1", GO},
    {"+unlink a; unlink a", "", "locked a", "row 2", WAIT},
    {"rename a b", "b", "locked a; locked b", "row 1", GO},
    {"renamedir d e", "e/", "locked d; locked e", "row 1", GO},
    {"unlink a", "a", "locked a", "put a", GO},
    {"unlink a", "a/", "locked a", "row 1", GO}, /* urgent */
    {"unlink a; renamedir c a", "a/", "locked a", "row 1", GO},
    {"unlink a", "", "locked a; reader a", "row 1", WAIT},
    {"unlink a", "", "reader a; refusing a", "row 1", READERS},
    {"rename a b; unlink b", "", "locked a; moves a b", "row 2", WAIT},
    {"unlink b", "", "locked a; moves a b", "row 1", WAIT},
    {"unlink e/x", "", "locked d/x; moves d e", "row 1", WAIT},
    {"unlink t", "", "locked d; moves d/x t", "row 1", WAIT},
    {"unlink d/x", "", "locked d; moves d/x t", "row 1", WAIT},
    {"unlink t", "", "refusing d; moves d/x t", "row 1", GO},
    /* The name goes up first, if something has it again. */
    {"unlink a", "a", "", "row 1", WAIT}, /* which makes it void */
    {"unlink a", "a", "stored a", "row 1", GO},
    {"unlink a", "", "closed a 9", "row 1", WAIT},
    {"unlink a", "", "closed a 9s", "row 1", GO},
    {"unlink a", "", "closed a 9sw", "row 1", WAIT},
    {"unlink a", "", "closed a 9s; drain", "row 1", WAIT},
    {"unlink a", "", "closed a 9s; sends a", "row 1", WAIT},
    {"unlink a", "", "closed a 9s; stored a", "row 1", WAIT},
    {"unlink a", "", "closed a 9s; comes a", "row 1", WAIT},
    {"unlink b; rmdir b; rename a b; rename b c", "b c", "", "row 1", WAIT},
    {"unlink b/x; rename a b; rename b d", "b/ b/x d", "", "row 1", GO}, /* urgent */
    {"unlink a", "", "ours unlink a", "row 2", WAIT}, /* what it found is the older one's */
    {"unlink b", "", "ours unlink a", "row 2", GO},
    {"", "", "moved unlink a; ours unlink a", "row 2", GO},
    {"unlink a", "", "upload a", "row 1", WAIT},
    {"unlink a", "", "upload a/x; upload b", "row 1", GO},
    {"rmdir d", "d/ d/x", "upload d/x", "row 1", GO},
    {"unlink a", "", "marker a", "row 1", WAIT},
    {"unlink a; rename b a", "", "", "row 1", GO},
    {"unlink a; +rename b a", "", "", "row 1", WAIT},
    {"unlink d/a; +renamedir d e", "", "", "row 1", WAIT},
    {"unlink a; +rename b c", "", "", "row 1", GO},
    {"unlink a", "", "reader a", "row 1", READERS},
    {"unlink a", "", "reader b; reader a/x", "row 1", GO},
    {"unlink a", "", "reader a; upload a", "row 1", WAIT},
    /* rmdir, also: deletes with lower seq below it; with routes, markers below it. */
    {"unlink d/x; rmdir d", "", "", "row 2", WAIT},
    {"-unlink d/x; rmdir d", "", "", "row 2", WAIT},
    {"rmdir d; unlink d/x", "", "", "row 1", GO},
    {"unlink d; rmdir d", "", "", "row 2", GO},
    {"unlink dx; rmdir d", "", "", "row 2", GO},
    {"unlink d/x; unlink d", "", "", "row 2", GO},
    {"rmdir d", "d/ d/x/", "marker d/x", "row 1", GO},
    {"rmdir d", "d/ d/x/", "routes; marker d/x", "row 1", WAIT},
    {"unlink d", "", "routes; marker d/x", "row 1", GO},
    {"rmdir d", "d/", "marker d", "row 1", WAIT},
    /* Section 7, "Fences": names at which an earlier request may still take effect. */
    {"", "a", "unlinks a", "put a", WAIT},
    {"", "a", "unlinks a", "attrs a", WAIT},
    {"", "a b", "unlinks b", "put a", GO},
    {"", "a", "copies a", "put a", WAIT},
    {"", "a", "copies a", "attrs a", GO},
    {"", "d/", "unlinks d; copies d", "mark d", GO},
    {"rename a b", "b", "unlinks b", "row 1", WAIT},
    {"rename a b", "b", "unlinks a; copies b", "row 1", GO},
    {"unlink a", "", "copies a", "row 1", WAIT},
    {"unlink a", "", "unlinks a", "row 1", GO},
    {"unlink a", "", "puts a", "row 1", GO}, /* it is repeated */
    {"renamedir d e", "e/", "puts d/x", "row 1", WAIT},
    {"renamedir d e", "e/", "puts e/x", "row 1", GO},
    {"rename a b", "b", "puts a", "row 1", GO},
    /* The same of a daemon that was killed. */
    {"", "a", "killed unlink a", "put a", WAIT},
    {"", "a", "killed unlink b", "put a", GO},
    {"", "a", "killed rename b a", "attrs a", WAIT},
    {"", "e/ e/x", "killed renamedir d e", "put e/x", WAIT},
    {"unlink a", "", "killed rename b a", "row 1", WAIT},
    {"unlink a", "", "killed unlink a", "row 1", GO},
    {"rename a b", "b", "killed unlink b", "row 1", GO}, /* found, and repeated */
    {"", "b", "killed unlink b; then rename a b", "row 1", WAIT},
    {"", "b", "killed unlink c; then rename a b", "row 1", GO},
    {"renamedir d e", "e/", "killed unlink z", "row 1", WAIT}, /* until nothing can come */
};

static void with_routes(struct cache *c, const char *none) REQUIRES(cache_mutex)
{
    static const struct route_text texts[] = {
        {"d/two/**", NULL, 1}, {"**", NULL, 0}, {NULL, NULL, 0}};
    static struct routes routes;

    (void)none;
    routes = routes_of(texts);
    c->config.routes = &routes;
    c->config.n_stores = 2;
    free(c->queue->volumes);
    ck_assert_int_eq(queue_open(c), 0);
}

static void without_routes(struct cache *c)
{
    if (c->config.routes)
        routes_release((struct routes *)c->config.routes);
    c->config.routes = NULL;
}

static struct entry *name_of(struct cache *c, const char *path) REQUIRES(cache_mutex)
{
    struct entry *e = NULL;

    ck_assert_ptr_nonnull(tree_find(c, path, &e));
    ck_assert_ptr_nonnull(e);
    return e;
}

/* ---- what the queue is told; the rest is for owed_world() ---- */

static void unlinks(struct cache *c, const char *path) REQUIRES(cache_mutex)
{
    ck_assert_int_eq(doubt_removal_locked(c, place_of_path(path)), 0);
}

/* It takes the lock itself, as what killed() calls. */
static NO_THREAD_SAFETY void copies(struct cache *c, const char *path)
{
    cache_unlock(c);
    doubt_copy(c, place_of_path(path));
    cache_lock(c);
}

static void puts_there(struct cache *c, const char *path) REQUIRES(cache_mutex)
{
    ck_assert_int_eq(doubt_put_locked(c, place_of_path(path), "v"), 0);
}

static NO_THREAD_SAFETY void killed(struct cache *c, const char *row)
{
    struct intent *i = owed_add(c, row);

    intents_found_locked(c);
    cache_unlock(c);
    ck_assert_int_eq(doubt_begin(c), 0);
    cache_lock(c);
    intent_remove_locked(c, i);
}

static void then(struct cache *c, const char *row) REQUIRES(cache_mutex)
{
    (void)owed_add(c, row);
}

static void ours(struct cache *c, const char *row) REQUIRES(cache_mutex)
{
    struct intent *i = owed_add(c, row);

    free(i->etag);
    i->etag = strdup(INTENT_OURS);
}

static void left(struct cache *c, const char *row) REQUIRES(cache_mutex)
{
    ck_assert_int_eq(intent_note_moved(owed_add(c, row), name_of(c, "left")->node->ino, NULL),
                     0);
}

static void moved(struct cache *c, const char *row) REQUIRES(cache_mutex)
{
    const struct node *n = tree_find(c, "left", NULL);

    ck_assert_int_eq(intent_note_moved(owed_add(c, row), n ? n->ino : 7, "elsewhere"), 0);
    c->queue->moved++;
}

static void stored(struct cache *c, const char *path) REQUIRES(cache_mutex)
{
    etag_set(&name_of(c, path)->etag, "v");
}

static void comes(struct cache *c, const char *path) REQUIRES(cache_mutex)
{
    name_of(c, path)->source = place_dup(place_of_path("elsewhere"));
}

static void sends(struct cache *c, const char *path) REQUIRES(cache_mutex)
{
    debt_run(&name_of(c, path)->node->file->debt, true);
}

static void sends_no_more(struct cache *c) REQUIRES(cache_mutex)
{
    struct file *f;

    OWED_FILES_FOREACH(c, f)
    debt_run(&f->debt, false);
}

static void drain(struct cache *c, const char *none) REQUIRES(cache_mutex)
{
    (void)none;
    c->queue->drain++;
}

static void full(struct cache *c, const char *none) REQUIRES(cache_mutex)
{
    (void)none;
    c->queue->volumes[0].out_of_quota = true;
}

static const struct {
    const char *word;
    void (*tell)(struct cache *c, const char *about);
} told[] = {
    /* A request that may still arrive, at a name. */
    {"unlinks", unlinks},
    {"copies", copies},
    {"puts", puts_there},
    /* A row of a daemon that was killed, beside those that are there; one that came after. */
    {"killed", killed},
    {"then", then},
    /* A row that means what this cache put alone; one of a name that the file "left" had
     * before; the same when it went to another store. */
    {"ours", ours},
    {"left", left},
    {"moved", moved},
    /* Files as owed_close() takes them. */
    {"closed", owed_close},
    /* A name that the store has, that a rename brings, that goes up. */
    {"stored", stored},
    {"comes", comes},
    {"sends", sends},
    /* A deletion lock that hides, one that came after all rows, one that refuses; the end of
     * one; what it covers was moved. */
    {"locked", owed_locked},
    {"late", owed_late},
    {"refusing", owed_refusing},
    {"unlocked", owed_unlocked},
    {"moves", owed_moves},
    /* A flush wants everything; the store is full; d/two/ has a store of its own. */
    {"drain", drain},
    {"full", full},
    {"routes", with_routes},
};

static bool tell(struct cache *c, const char *word, const char *about) REQUIRES(cache_mutex)
{
    for (size_t i = 0; i < ARRAY_SIZE(told); i++) {
        if (strcmp(told[i].word, word) != 0)
            continue;
        told[i].tell(c, about);
        return true;
    }
    return false;
}

/* What of it is for owed_world(), heap. */
static char *tell_all(struct cache *c, const char *way) REQUIRES(cache_mutex)
{
    auto_free char *copy = strdup(way);
    char *rest = copy, *one, *world = calloc(1, strlen(way) + 2);

    while ((one = strsep(&rest, ";"))) {
        char word[16] = "";
        int used = 0;
        if (sscanf(one, " %15s %n", word, &used) == 1 && !tell(c, word, one + used))
            (void)strcat(strcat(world, one), ";");
    }
    return world;
}

/* ---- what is asked ---- */

static enum order ask(struct cache *c, const char *asked, const struct order_world *w)
    REQUIRES(cache_mutex)
{
    char word[16], about[64];
    int64_t next_ns = INT64_MAX;
    struct barrier b;

    ck_assert_int_eq(sscanf(asked, "%15s %63s", word, about), 2);
    if (strcmp(word, "put") == 0 || strcmp(word, "attrs") == 0)
        return order_of_upload_locked(c, about, *word == 'p', w);
    if (strcmp(word, "mark") == 0)
        return order_of_marker_locked(c, about, path_volume(c, about, true), w);
    if (strcmp(word, "urgent") == 0)
        return intent_is_urgent(c, owed_row(c, (unsigned)atoi(about))) ? GO : WAIT;
    ck_assert_str_eq(word, "row");
    barrier_init_locked(c, &b);
    enum order order =
        order_of_row_locked(c, owed_row(c, (unsigned)atoi(about)), &b, w, &next_ns);
    barrier_release(&b);
    return order;
}

static void holds_on(const struct way_line *line)
{
    struct cache *c = owed_new(line->rows, line->names);

    c->config.late_ns = 3600 * NS_PER_SEC;
    auto_free char *way = tell_all(c, line->way);
    enum order order = ask(c, line->asked, owed_world(way));
    sends_no_more(c);
    without_routes(c);
    owed_free(c);
    ck_assert_msg(order == line->order, "%s | %s | %s | %s: %s", line->rows, line->names,
                  line->way, line->asked,
                  order == GO     ? "goes"
                  : order == WAIT ? "waits"
                                  : "waits for readers");
}

static void holds(const struct line *line)
{
    holds_on(&(struct way_line){line->rows, line->names, "", line->asked, line->order});
}

START_TEST(what_is_on_its_way_comes_first)
{
    holds_on(&ways[_i]);
}
END_TEST

START_TEST(uploads_wait)
{
    holds(&uploads[_i]);
}
END_TEST

START_TEST(renames_wait)
{
    holds(&renames[_i]);
}
END_TEST

START_TEST(removals_wait)
{
    holds(&removals[_i]);
}
END_TEST

START_TEST(a_directory_says_when_it_can_be_listed)
{
    struct cache *c = owed_new("renamedir d e", "e/");
    int64_t next_ns = INT64_MAX, sooner_ns = 1;

    c->config.late_ns = 3600 * NS_PER_SEC;
    ck_assert_int_eq(doubt_put_locked(c, place_of_path("d/x"), "v"), 0);
    int64_t until_ns = doubt_put_until_locked(c, place_of_path("d/x"), "v");
    enum order order = order_of_row_locked(c, owed_row(c, 1), NULL, owed_world(""), &next_ns);
    enum order same = order_of_row_locked(c, owed_row(c, 1), NULL, owed_world(""), &sooner_ns);
    owed_free(c);
    ck_assert(order == WAIT && same == WAIT);
    ck_assert_int_eq(next_ns, until_ns);
    ck_assert_int_eq(sooner_ns, 1);
}
END_TEST

/* ---- what waits for one that fails ---- */

/* `stuck`: a letter a row, "y" for those that fail, or wait for such a one. */
static const struct {
    const char *rows, *names, *stuck, *put;
    enum order order;
} failing[] = {
    {"-rename a b; rename b c; rename x y", "c y", "yyn", "b", WAIT},
    {"-rename a b; rename b c; rename x y", "c y", "yyn", "y", GO},
    {"-unlink b; renamedir d b", "b/", "yn", "b/x", GO},
    {"-rename a b; unlink a; unlink x", "b", "yyn", "x", GO},
    {"rename x y; -rename a b; rename y z", "z b", "nyn", "z", GO},
    {"unlink a; rename b c", "c", "nn", "c", GO},
};

START_TEST(what_waits_for_a_failure_is_stuck)
{
    struct cache *c = owed_new(failing[_i].rows, failing[_i].names);
    struct intent *i;
    char stuck[8] = "";
    size_t n = 0;

    bool any = intents_look_stuck_locked(c, 1);
    for (i = row_first(c); i; i = row_next(i))
        stuck[n++] = i->stuck ? 'y' : 'n';
    bool put = stuck_intent_blocks_locked(c, failing[_i].put);
    owed_free(c);
    ck_assert_str_eq(stuck, failing[_i].stuck);
    ck_assert_int_eq(any, strchr(stuck, 'y') != NULL);
    ck_assert_int_eq(put, failing[_i].order == WAIT);
}
END_TEST

/* ---- what the store is just renaming ---- */

static const struct {
    const char *row, *key;
    bool runs;
} running[] = {
    {"rename a b", "a", false},      {"+rename a b", "a", true},
    {"+rename a b", "b", false},     {"+renamedir d e", "d/x", true},
    {"+renamedir d e", "dx", false}, {"+unlink a", "a", false},
};

START_TEST(what_is_being_renamed_is_in_both_places)
{
    struct cache *c = owed_new(running[_i].row, "");
    struct intent *i = owed_row(c, 1);

    bool runs = rename_runs_at_locked(c, place_of_path(running[_i].key));
    i->redo = i->debt.running; /* an earlier mount may have done it */
    i->debt.running = false;
    bool may_have_run = rename_runs_at_locked(c, place_of_path(running[_i].key));
    owed_free(c);
    ck_assert_int_eq(runs, running[_i].runs);
    ck_assert_int_eq(may_have_run, running[_i].runs);
}
END_TEST

Suite *order_suite(void)
{
    Suite *s = suite_create("order");
    TCase *t = tcase_create("order");

    tcase_add_loop_test(t, uploads_wait, 0, ARRAY_SIZE(uploads));
    tcase_add_loop_test(t, renames_wait, 0, ARRAY_SIZE(renames));
    tcase_add_loop_test(t, removals_wait, 0, ARRAY_SIZE(removals));
    tcase_add_loop_test(t, what_is_on_its_way_comes_first, 0, ARRAY_SIZE(ways));
    tcase_add_test(t, a_directory_says_when_it_can_be_listed);
    tcase_add_loop_test(t, what_waits_for_a_failure_is_stuck, 0, ARRAY_SIZE(failing));
    tcase_add_loop_test(t, what_is_being_renamed_is_in_both_places, 0, ARRAY_SIZE(running));
    suite_add_tcase(s, t);
    return s;
}
