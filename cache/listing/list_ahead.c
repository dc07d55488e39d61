/* Programs walk trees of many small directories: `ls -lR` of a thousand runs. A listing of each
 * would be a round trip each. Where the store lists the keys of a whole subtree in order, one
 * request tells of some hundred directories, and of which of them have a marker.
 *
 * Programs that use fts(3) come to the directories in the order of their inode numbers where
 * there are more than 10,000, and several threads come in no order. The parent's names are then
 * divided into runs of as many directories as one request tells of, and a program that comes to
 * the first of such a run is told of all of it. */
#include "cache/listing/listing_impl.h"

#include "common/mem.h"
#include "common/path.h"

#include <errno.h>
#include <string.h>

/* The siblings looked into in order after which the next ones are listed ahead. */
#define AHEAD_SIBLINGS 3
/* The longest pause between two of them, or as long as a listing is believed. */
#define AHEAD_NS (2 * NS_PER_SEC)
/* How many keys one request of S3 tells. */
#define AHEAD_KEYS 1000
/* A request that tells of fewer directories is not worth what it costs. */
#define AHEAD_DIRS_MIN 16
/* The siblings listed one by one, in any order, after which those around them are told of, too;
 * and how many in order are no accident then. */
#define AHEAD_APART 8
#define AHEAD_SURE  16
/* Requests around directories that may run at a time, below one parent. */
#define AROUND_MAX 8
/* How often one is sent again, for units that came to be known with it. */
#define DEEPER_MAX 3
/* How long no such request is sent where they told of little that was looked into. */
#define USELESS_NS (600 * NS_PER_SEC)

/* ---- who walks ---- */

/* A program that looks into the directory's children one after the other. */
struct list_ahead {
    GUARDED_BY(cache_mutex) struct {
        char *first, *last; /* the names of these, or NULL */
        int64_t last_ns;
        unsigned steps; /* in order */
        bool large;     /* the children are, or it did not work: they are listed one by one */
        char *page_first,
            *page_last; /* what the last request told of, or NULL: there is no more to tell */
        bool paging;    /* the next one is under way */
        unsigned pages; /* its number, from 1 */
        struct waitq waiters; /* for it, and for those around directories */
        unsigned apart;       /* siblings that nothing had told of, */
        int64_t apart_ns;     /* the last of them */
        size_t run; /* names that a request around a directory tells of; 0 not known */
        size_t around[AROUND_MAX]; /* where those begin that are under way, as places in the
                                      parent */
        unsigned n_around;
        size_t sent, looked; /* such requests, and looks into other siblings than before */
        int64_t useless_ns;  /* when they were found to be of little use; 0 never */
    };
};

void list_ahead_free(struct list_ahead *w)
{
    if (!w)
        return;
    free(w->first);
    free(w->last);
    free(w->page_first);
    free(w->page_last);
    free(w);
}

/* The walk through the directory's siblings, or NULL. */
static struct list_ahead *list_ahead_get(struct node *dir) REQUIRES(cache_mutex)
{
    return dir->links ? dir->links->parent->dir->ahead : NULL;
}

/* That walk, begun if there is none. NULL for the root, and without memory. */
static struct list_ahead *make_walk(struct node *dir) REQUIRES(cache_mutex)
{
    struct dir *parent = dir->links ? dir->links->parent->dir : NULL;

    if (!parent || parent->ahead)
        return parent ? parent->ahead : NULL;
    parent->ahead = calloc(1, sizeof(*parent->ahead));
    if (parent->ahead)
        waitq_init(&parent->ahead->waiters);
    return parent->ahead;
}

void list_ahead_listed_locked(struct node *dir)
{
    dir->dir->waited_page = 0;
    if (dir->dir->ahead)
        dir->dir->ahead->large = false;
}

void list_ahead_stop_locked(struct cache *c, struct node *dir)
{
    cache_assert_locked(c);
    if (dir->dir->ahead)
        waitq_wake_locked(c, &dir->dir->ahead->waiters, -EINTR);
}

bool list_ahead_may_pay_locked(struct cache *c, struct node *dir)
{
    const struct list_ahead *w = list_ahead_get(dir);

    cache_assert_locked(c);
    /* The whole store must list in order. This runs for each name that somebody passes, and one
     * listing out of order ends it all. */
    return store_can(c->store, "", STORE_ORDER) && !c->listing->list_ahead_refused &&
           dir->links && !(w && w->large);
}

static int64_t between_ns(struct cache *c)
{
    return c->config.list_timeout_ns > AHEAD_NS ? c->config.list_timeout_ns : AHEAD_NS;
}

void list_ahead_step_locked(struct cache *c, struct node *dir)
{
    struct list_ahead *w = make_walk(dir);
    int64_t now = clock_mono_ns();

    cache_assert_locked(c);
    if (!w)
        return;
    int order = w->last ? strcmp(w->last, dir->links->name) : 1;
    bool next = order < 0 && now - w->last_ns < between_ns(c);
    w->last_ns = now;
    if (order == 0)
        return;
    w->looked++;
    w->steps = next ? w->steps + 1 : 1;
    free(w->last);
    w->last = strdup(dir->links->name);
    if (next)
        return;
    free(w->first);
    w->first = strdup(dir->links->name);
}

/* A program comes to siblings in no order. */
static bool is_apart(struct cache *c, const struct list_ahead *w) REQUIRES(cache_mutex)
{
    return w->apart >= AHEAD_APART && clock_mono_ns() - w->apart_ns < between_ns(c);
}

bool list_ahead_is_on_locked(struct cache *c, struct node *dir)
{
    const struct list_ahead *w = list_ahead_get(dir);

    cache_assert_locked(c);
    return w && w->steps >= (is_apart(c, w) ? AHEAD_SURE : AHEAD_SIBLINGS) &&
           clock_mono_ns() - w->last_ns < between_ns(c);
}

/* ---- what one request tells ---- */

struct page {
    /* Keys below the parent, in order; a directory's own object has is_prefix. */
    struct listing keys;
    struct asked asked; /* of the parent */
    struct op *op;      /* for what is asked about them, all in all */
    int64_t shown_ns;   /* CLOCK_MONOTONIC; when they were there */
    bool disordered;
    bool early;     /* it told of what may have been half of a unit that is whole now */
    bool trusted;   /* no unit was ever made whole there: that can't be */
    unsigned again; /* so often it was listed before */
    bool paging;    /* those who walk wait for it */
    bool around;    /* a directory, and begins at place `from` of the parent */
    size_t from;
    size_t told;        /* directories */
    char *first, *last; /* of them */
};

/* Compares as the keys are ordered, with the "/" at the end of a directory's own. */
static int compare(const struct listed *a, const char *name, bool is_prefix)
{
    size_t la = strlen(a->name), lb = strlen(name), both = la < lb ? la : lb;
    int r = memcmp(a->name, name, both);

    if (r != 0)
        return r;
    int ca = la > both ? (unsigned char)a->name[both] : a->obj.is_prefix ? '/' : 0;
    int cb = lb > both ? (unsigned char)name[both] : is_prefix ? '/' : 0;
    return ca - cb;
}

static int collect(void *arg, const char *name, const struct object *obj)
{
    struct page *p = arg;
    struct listing *l = &p->keys;

    p->disordered = l->n && compare(&l->v[l->n - 1], name, obj->is_prefix) > 0;
    if (p->disordered)
        return 1;
    int r = listing_add(l, name, strlen(name), obj);
    return r < 0 ? r : l->n == AHEAD_KEYS;
}

/* Bytes of the name's first component behind `skip`. */
static size_t component(const char *name, size_t skip)
{
    return strcspn(name + skip, "/");
}

/* The end of the run of keys from `at` on that have this component, too. */
static size_t group_end(const struct page *p, size_t at, size_t end, size_t skip, size_t len)
{
    size_t i = at + 1;

    while (i < end && component(p->keys.v[i].name, skip) == len &&
           memcmp(p->keys.v[i].name + skip, p->keys.v[at].name + skip, len) == 0)
        i++;
    return i;
}

static bool is_dir(const struct listed *item, size_t skip, size_t len)
{
    return item->name[skip + len] == '/' || item->obj.is_prefix;
}

/* ---- into the tree ---- */

/* Fills the directory's listing from the keys [at, end), which all begin with its path and "/",
 * without its own. */
static int fill(struct listing *l, const struct page *p, size_t at, size_t end, size_t skip)
{
    int r = 0;

    for (size_t i = at, next; i < end && r == 0; i = next) {
        const struct listed *item = &p->keys.v[i];
        if (strlen(item->name) < skip) { /* its own marker */
            l->has_marker = true;
            l->marker = item->obj;
            l->marker.attrs = (struct attrs){0};
            next = i + 1;
            continue;
        }
        size_t len = component(item->name, skip);
        bool dir = is_dir(item, skip, len);
        struct object prefix = {.is_prefix = true};
        prefix.has_marker = dir && !item->name[skip + len];
        next = dir ? group_end(p, i, end, skip, len) : i + 1;
        r = listing_add(l, item->name + skip, len, dir ? &prefix : &item->obj);
    }
    return r;
}

/* The directory is left to its own listing when something was done here since it was asked; and
 * to another request, when it may be a unit that was not whole then. */
static struct node *take_dir(struct page *p, struct node *parent, const char *name, size_t len,
                             uint64_t *ret_generation)
{
    struct cache *c = p->keys.cache;
    auto_free char *copy = strndup(name, len);

    cache_lock(c);
    struct entry *e = copy ? entry_find(parent, copy) : NULL;
    struct node *n = e ? e->node : NULL;
    if (!n || !n->dir || e->changed_ns >= p->keys.asked_ns || (n->flags & NODE_REMOVED))
        n = NULL;
    if (n && !p->trusted && hidden_was_listed_early_locked(c, n, p->keys.asked_ns)) {
        p->early = true;
        n = NULL;
    }
    if (n) {
        node_ref_locked(n);
        *ret_generation = n->dir->generation;
    }
    cache_unlock(c);
    return n;
}

static size_t files_in(const struct listing *l)
{
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++)
        n += !l->v[i].obj.is_prefix;
    return n;
}

/* Merges the listing of the directory whose path below the page's parent is the first `skip` -
 * 1 bytes of the keys [at, end), and those of all directories below it. */
static void merge(struct page *p, struct node *dir, uint64_t generation, size_t at, size_t end,
                  size_t skip)
{
    struct cache *c = p->keys.cache;
    struct listing l = {.cache = c,
                        .dir = dir,
                        .whole = true,
                        .asked_ns = p->keys.asked_ns,
                        .generation = generation};
    auto_free char *path = strndup(p->keys.v[at].name, skip - 1);
    auto_place struct place place = path ? place_join(p->asked.at, path) : NO_PLACE;
    const struct asked asked = {place, p->asked.moves};
    int r = place_known(place) ? fill(&l, p, at, end, skip) : -ENOMEM;

    if (r == 0)
        r = hidden_mark(&l, p->op, place, p->shown_ns);
    /* A directory of many files may have an attribute index, which its own listing reads. */
    if (r == 0 && (files_in(&l) < INDEX_FILES_MIN || !c->listing->has_index)) {
        index_tree_fill(c, dir, place, l.v, l.n, l.has_marker ? &l.marker : NULL);
        (void)listing_merge(&l, &asked, 0, false); /* else it is listed by itself */
    }
    listing_clear(&l);
    for (size_t i = at, next; i < end && r == 0; i = next) {
        const struct listed *item = &p->keys.v[i];
        size_t len = strlen(item->name) < skip ? 0 : component(item->name, skip);
        next = len ? group_end(p, i, end, skip, len) : i + 1;
        uint64_t below = 0;
        struct node *n = len && is_dir(item, skip, len)
                             ? take_dir(p, dir, item->name + skip, len, &below)
                             : NULL;
        if (!n)
            continue;
        merge(p, n, below, i, next, skip + len + 1);
        cache_lock(c);
        node_unref_locked(c, n);
        cache_unlock(c);
    }
}

/* The last directory of a page that was cut may go on in the next one. */
static void merge_page(struct page *p, struct node *parent, bool cut)
{
    p->told = 0;
    free(take_ptr(p->first));
    for (size_t i = 0, next; i < p->keys.n; i = next) {
        const char *name = p->keys.v[i].name;
        size_t len = component(name, 0);
        bool dir = is_dir(&p->keys.v[i], 0, len);
        uint64_t generation = 0;
        next = dir ? group_end(p, i, p->keys.n, 0, len) : i + 1;
        if (!dir || (cut && next == p->keys.n))
            continue;
        if (!p->told++)
            p->first = strndup(name, len);
        free(p->last);
        p->last = strndup(name, len);
        struct node *n = take_dir(p, parent, name, len, &generation);
        if (!n)
            continue;
        merge(p, n, generation, i, next, len + 1);
        cache_lock(p->keys.cache);
        node_unref_locked(p->keys.cache, n);
        cache_unlock(p->keys.cache);
    }
}

/* The runs are of one length, so that they do not overlap, until it was quite wrong. */
static void around_told_locked(struct cache *c, struct list_ahead *w, const struct page *p)
    REQUIRES(cache_mutex)
{
    unsigned i = 0;

    while (w->around[i] != p->from)
        i++;
    w->around[i] = w->around[--w->n_around];
    if (p->told < w->run / 2 || p->told > w->run * 2)
        w->run = p->told;
    waitq_wake_locked(c, &w->waiters, 0);
}

/* Notes whether the parent has more to be told of than the page does. */
static void page_told_locked(struct cache *c, struct node *parent, struct page *p, bool usable,
                             bool cut) REQUIRES(cache_mutex)
{
    struct list_ahead *w = parent->dir->ahead;

    if (p->paging) {
        w->paging = false;
        waitq_wake_locked(c, &w->waiters, 0);
    }
    c->listing->list_ahead_refused = c->listing->list_ahead_refused || p->disordered;
    w->large = !usable || (cut && p->told < AHEAD_DIRS_MIN);
    if (p->around) {
        around_told_locked(c, w, p);
        return;
    }
    free(w->page_first);
    free(w->page_last);
    w->page_first = w->page_last = NULL;
    if (w->large || !cut || !p->first || !p->last)
        return;
    w->page_first = take_ptr(p->first);
    w->page_last = take_ptr(p->last);
}

/* Nor has what no mount has ever made whole been half. */
static void merge_early(struct page *p, struct node *parent, bool cut)
{
    p->trusted = !noted_has_seals(p->keys.cache, p->op, p->asked.at);
    if (p->trusted)
        merge_page(p, parent, cut);
    p->early = !p->trusted;
}

/* Lists what is below the parent (referenced) and behind `after`, as far as one request tells.
 * Whether it is to be listed once more. */
static bool tell_once(struct cache *c, struct node *parent, const char *after, struct page p)
{
    struct op_notes notes = {0};
    struct op op;

    cache_op_within(c, &op, c->config.ask_timeout_ns);
    op.notes = &notes;
    int r = store_list_after(c->store, &op, p.asked.at.key, LIST_RECURSIVE, after, collect, &p);
    /* Nobody knows where names that can't be shown were. */
    bool usable = (r == 0 || r == 1) && !p.disordered && notes.hidden_names == 0;
    p.shown_ns = clock_mono_ns();
    op.deadline_ns = p.shown_ns + c->config.ask_timeout_ns;
    op.notes = NULL;
    p.op = &op;
    if (usable)
        merge_page(&p, parent, r == 1);
    if (p.early)
        merge_early(&p, parent, r == 1);
    bool again = p.early && p.again < DEEPER_MAX;
    cache_lock(c);
    if (!again)
        page_told_locked(c, parent, &p, usable, r == 1);
    cache_unlock(c);
    listing_clear(&p.keys);
    free(p.first);
    free(p.last);
    return again;
}

/* What was found by a request is told of by the next one: a level of directories each time. */
static void tell(struct cache *c, struct node *parent, const char *after, struct page p)
{
    while (tell_once(c, parent, after, p)) {
        p.again++;
        p.keys.asked_ns = clock_mono_ns();
    }
}

/* ---- who asks ---- */

/* When the walk is seen, the directories that it came through are told of once more: their
 * files' attributes may be in the index that is only read now. */
static const char *from_locked(struct node *dir) REQUIRES(cache_mutex)
{
    const struct list_ahead *w = list_ahead_get(dir);

    return w && w->steps == AHEAD_SIBLINGS && w->first ? w->first : dir->links->name;
}

/* Where the parent is at the store, owned; none when that is being moved. */
static struct asked asked_locked(struct cache *c, struct node *parent) REQUIRES(cache_mutex)
{
    bool moves = parent->links && place_known(parent->links->source);

    return (struct asked){moves ? NO_PLACE : node_place(parent), c->listing->dir_moves};
}

void list_ahead_run(struct cache *c, struct node *dir, int64_t asked_ns)
{
    struct asked asked = {0};

    cache_lock(c);
    struct node *parent = dir->links ? dir->links->parent : NULL;
    /* Keys below "name/" come behind "name", and what else does is a sibling, too. */
    auto_free char *after = parent ? strdup(from_locked(dir)) : NULL;
    if (after && list_ahead_get(dir) &&
        !place_known(dir->links->source)) /* it may have moved since */
        asked = asked_locked(c, parent);
    if (place_known(asked.at))
        node_ref_locked(parent);
    cache_unlock(c);
    if (!place_known(asked.at))
        return;
    tell(c, parent, after,
         (struct page){.keys = {.cache = c, .asked_ns = asked_ns}, .asked = asked});
    cache_lock(c);
    node_unref_locked(c, parent);
    cache_unlock(c);
    place_free(&asked.at);
}

/* The next page, while those who walk are in the last one. */
struct paging {
    struct task task;
    struct cache *cache;
    struct node *parent; /* referenced */
    struct asked asked;
    char *after;
    int64_t asked_ns;
};

static void run_paging(struct task *task)
{
    struct paging *g = container_of(task, struct paging, task);
    struct cache *c = g->cache;

    tell(c, g->parent, g->after,
         (struct page){
             .keys = {.cache = c, .asked_ns = g->asked_ns}, .asked = g->asked, .paging = true});
    cache_lock(c);
    node_unref_locked(c, g->parent);
    cache_unlock(c);
    place_free(&g->asked.at);
    free(g->after);
    free(g);
}

/* Behind all keys below the directory: "0" follows "/". */
static char *behind(const char *dir)
{
    size_t len = strlen(dir);
    char *after = calloc(len + 2, 1);

    if (after) {
        memcpy(after, dir, len);
        after[len] = '/' + 1;
    }
    return after;
}

void list_ahead_on_locked(struct cache *c, struct node *dir)
{
    struct node *parent = dir->links ? dir->links->parent : NULL;
    struct list_ahead *w = list_ahead_get(dir);

    cache_assert_locked(c);
    if (!w || !list_ahead_is_on_locked(c, dir))
        return;
    if (w->last && strcmp(w->last, dir->links->name) < 0) /* where nothing has to be asked */
        w->last_ns = clock_mono_ns();
    if (!w->page_last || w->paging || strcmp(dir->links->name, w->page_first) < 0 ||
        !list_ahead_may_pay_locked(c, dir) || c->stopping)
        return;
    struct paging *g = calloc(1, sizeof(*g));
    if (g)
        *g = (struct paging){.task.run = run_paging,
                             .cache = c,
                             .parent = parent,
                             .asked = asked_locked(c, parent),
                             .after = behind(w->page_last),
                             .asked_ns = clock_mono_ns()};
    if (!g || !place_known(g->asked.at) || !g->after) {
        if (g) {
            place_free(&g->asked.at);
            free(g->after);
        }
        free(g);
        return;
    }
    node_ref_locked(parent);
    w->paging = true;
    w->pages++;
    workers_submit_locked(c->askers, NULL, &g->task, true);
}

/* The walk through siblings of the directory, or of one above it, whose next page is under way
 * and may tell of it; or NULL. */
static struct list_ahead *paging_of(struct node *dir) REQUIRES(cache_mutex)
{
    for (struct node *at = dir; at->links; at = at->links->parent) {
        struct list_ahead *w = list_ahead_get(at);
        if (w && w->paging && (!w->page_last || strcmp(at->links->name, w->page_last) > 0))
            return w;
    }
    return NULL;
}

/* ---- in no order ---- */

/* Where the run of names begins that the directory is in, as a place in its parent. */
static size_t run_of(const struct list_ahead *w, struct node *dir) REQUIRES(cache_mutex)
{
    const struct children *siblings = dir->links->parent->dir->children;
    size_t place = children_behind(siblings, dir->links) - 1;

    return w->run ? place - place % w->run : 0;
}

static bool runs_around(const struct list_ahead *w, size_t from) REQUIRES(cache_mutex)
{
    for (unsigned i = 0; i < w->n_around; i++)
        if (w->around[i] == from)
            return true;
    return false;
}

/* Where they told of little else that was looked into, a program has its few directories again
 * and again, and a listing of each is shorter. Judged when they could have told all twice. */
static void judge_around_locked(struct list_ahead *w, struct node *parent) REQUIRES(cache_mutex)
{
    size_t all = children_count(parent->dir->children) / (w->run ? w->run : 1);

    if (w->sent < 2 * all + 64)
        return;
    w->useless_ns = w->sent * 2 > w->looked ? clock_mono_ns() : 0;
    w->sent = w->looked = 0;
}

bool list_ahead_apart_locked(struct cache *c, struct node *dir)
{
    struct list_ahead *w = list_ahead_get(dir);
    int64_t now = clock_mono_ns();

    cache_assert_locked(c);
    if (!w || !list_ahead_may_pay_locked(c, dir))
        return false;
    bool apart = is_apart(c, w);
    w->apart = now - w->apart_ns < between_ns(c) ? w->apart + 1 : 1;
    w->apart_ns = now;
    judge_around_locked(w, dir->links->parent);
    /* What is told of beyond list_memory would be forgotten before it is looked into. */
    return apart && (!w->useless_ns || now - w->useless_ns > USELESS_NS) &&
           c->tree->nodes * NODE_BYTES < c->config.list_memory_bytes &&
           w->n_around < AROUND_MAX && !runs_around(w, run_of(w, dir));
}

/* Begins a request for the run at `from`, behind what is known of it. NULL when there is
 * nothing to ask for, else heap. */
static char *begin_around_locked(struct cache *c, struct list_ahead *w, struct node *dir,
                                 size_t from) REQUIRES(cache_mutex)
{
    const struct children *siblings = dir->links->parent->dir->children;
    size_t at = from;
    struct entry *e = children_next(siblings, &at);

    while (e && e->node != dir && (!e->node->dir || listing_is_valid(c, e->node)))
        e = children_next(siblings, &at);
    if (!e || w->n_around == AROUND_MAX || runs_around(w, from))
        return NULL;
    char *after = strdup(e->name);
    if (after) {
        w->around[w->n_around++] = from;
        w->sent++;
    }
    return after;
}

/* Sends one such request for the run that the directory is in; for the first run while their
 * length is not known yet. */
static void ask_around(struct cache *c, struct node *dir, int64_t asked_ns)
{
    struct page p = {.keys = {.cache = c, .asked_ns = asked_ns}, .around = true};
    auto_free char *after = NULL;

    cache_lock(c);
    struct node *parent = dir->links ? dir->links->parent : NULL;
    struct list_ahead *w = list_ahead_get(dir);
    if (w && !place_known(dir->links->source)) { /* it may have moved since */
        p.asked = asked_locked(c, parent);
        p.from = run_of(w, dir);
        after = place_known(p.asked.at) ? begin_around_locked(c, w, dir, p.from) : NULL;
    }
    if (after)
        node_ref_locked(parent);
    cache_unlock(c);
    if (after) {
        tell(c, parent, after, p);
        cache_lock(c);
        node_unref_locked(c, parent);
        cache_unlock(c);
    }
    place_free(&p.asked.at);
}

void list_around(struct cache *c, struct node *dir, int64_t asked_ns)
{
    cache_lock(c);
    const struct list_ahead *w = list_ahead_get(dir);
    bool first = w && !w->run;
    cache_unlock(c);
    ask_around(c, dir, asked_ns);
    if (first && !listing_told_since(c, dir, asked_ns))
        ask_around(c, dir, asked_ns);
}

int list_ahead_wait_locked(struct cache *c, struct node *dir, struct waiter *w)
{
    struct list_ahead *walk = list_ahead_get(dir);

    cache_assert_locked(c);
    if (walk && walk->n_around && runs_around(walk, run_of(walk, dir)))
        return waitq_park_locked(c, &walk->waiters, w);
    walk = paging_of(dir);
    if (!walk)
        return 0;
    /* A program elsewhere does not wait for all that another one walks through. */
    if (!dir->dir->waited_page)
        dir->dir->waited_page = walk->pages;
    if (walk->pages - dir->dir->waited_page > 1) /* the first one may have ended before it */
        return 0;
    return waitq_park_locked(c, &walk->waiters, w);
}
