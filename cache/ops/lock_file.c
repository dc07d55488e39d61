/* Files that are deletion locks: NAME.del_lock_PID, made by process PID beside NAME, as Ray
 * makes them (docs/locks.md). Such a file has no name in the tree, none in the mirror and none
 * in the store: the table of locks has it, lookups and listings show it from there, and it is
 * gone with its process. */
#include "cache/ops/ops_impl.h"

#include "common/mem.h"
#include "common/path.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MARK        ".del_lock_"
#define COMMAND_MAX 200
#define PID_DIGITS  10

/* The number behind the mark, as Python prints one; 0: the name is no such name. */
static pid_t pid_of_name(const char *name, size_t *ret_len)
{
    const char *mark = NULL;

    for (const char *at = name; (at = strstr(at, MARK)); at++)
        mark = at;
    const char *digits = mark ? mark + strlen(MARK) : "";
    size_t n = strspn(digits, "0123456789");
    if (mark == name || n == 0 || n > PID_DIGITS || digits[n] || *digits == '0')
        return 0;
    long long number = strtoll(digits, NULL, 10);
    *ret_len = mark ? (size_t)(mark - name) : 0;
    return number <= INT_MAX ? (pid_t)number : 0;
}

bool lock_file_is_asked_locked(struct cache *c, struct node *parent, const char *name,
                               pid_t *ret_pid)
{
    size_t len;

    cache_assert_locked(c);
    if (!c->config.policies || c->config.read_only || !parent->dir || !strstr(name, MARK))
        return false;
    *ret_pid = pid_of_name(name, &len);
    auto_free char *path = *ret_pid ? child_path(parent, name) : NULL;
    return path && path_takes_lock_files(c, path) && !entry_find(parent, name);
}

/* Puts the file that stands behind it into the table. Takes over the process's descriptor. */
static int enter(struct cache *c, struct node *parent, const char *name, struct node *n,
                 const struct process *p) EXCLUDES(cache_ns, cache_mutex)
{
    char command[COMMAND_MAX];
    size_t len = 0;

    process_command(p->pid, command, sizeof(command));
    (void)pid_of_name(name, &len);
    auto_free char *of = strndup(name, len), *own = strdup(name);
    ns_read(c); /* the directory stays what it is */
    cache_lock(c);
    bool lost = (parent->flags & NODE_REMOVED) != 0;
    bool taken = !lost && (entry_find(parent, name) || lock_file_locked(c, parent, name));
    auto_free char *path = !lost && of ? child_path(parent, of) : NULL;
    struct deletion_lock *l =
        !taken && path && own ? lock_add_locked(c, path, true, p, command) : NULL;
    if (l) {
        l->node = n;
        l->dir = parent;
        l->name = take_ptr(own);
        l->opens = 1;
        n->nlink = 1;
        node_ref_locked(n);
        node_ref_locked(parent);
    }
    cache_unlock(c);
    ns_done(c);
    return l ? 0 : lost ? -ENOENT : taken ? -EEXIST : -ENOMEM;
}

int lock_file_create(struct cache *c, struct node *parent, const char *name, pid_t own,
                     uint32_t mode, int flags, const struct cache_cred *cred, struct waiter *w,
                     struct node **ret_node, struct stat *st, struct handle **ret)
{
    struct process p;
    pid_t number;

    if (process_watch(w ? w->pid : 0, &p, &number) < 0)
        return -ENOTUNIQ;
    int r = number == own ? cache_tmpfile(c, parent, mode, flags, cred, w, ret_node, st, ret)
                          : -ENOTUNIQ;
    if (r != 0) {
        process_release(&p);
        return r;
    }
    r = enter(c, parent, name, *ret_node, &p);
    st->st_nlink = 1;
    if (r == 0)
        return 0;
    process_release(&p);
    cache_release(c, *ret);
    cache_forget(c, *ret_node, 1);
    return r;
}

/* ---- who takes and gives back ---- */

static struct deletion_lock *find_by_node_locked(struct cache *c, const struct node *n)
    REQUIRES(cache_mutex)
{
    struct deletion_lock *l = c->queue->locks;

    while (l && l->node != n)
        l = l->next;
    return l;
}

bool node_is_lock_file_locked(struct cache *c, const struct node *n)
{
    cache_assert_locked(c);
    return find_by_node_locked(c, n) != NULL;
}

/* Two parts of a program that take the lock share the file: the second opens what is there. */
void lock_file_opened(struct cache *c, const struct node *n, const struct waiter *w)
{
    struct process_line who;

    cache_lock(c);
    bool is_lock = find_by_node_locked(c, n) != NULL;
    cache_unlock(c);
    if (!is_lock)
        return;
    process_line(w ? w->pid : 0, &who);
    cache_lock(c);
    struct deletion_lock *l = find_by_node_locked(c, n);
    if (l && process_line_is(&who, &l->holder))
        l->opens++;
    cache_unlock(c);
}

int lock_file_unlink(struct cache *c, const struct node *parent, const char *name,
                     const struct waiter *w)
{
    struct process_line who;
    int r = -ENOENT;

    cache_lock(c);
    bool is_lock = c->queue->locks && lock_file_locked(c, parent, name);
    cache_unlock(c);
    if (!is_lock)
        return -ENOENT;
    process_line(w ? w->pid : 0, &who);
    cache_lock(c);
    struct deletion_lock *l = lock_file_locked(c, parent, name);
    if (l)
        r = process_line_is(&who, &l->holder) ? 0 : -EBUSY;
    if (l && r == 0 && --l->opens == 0)
        lock_remove_locked(c, l);
    cache_unlock(c);
    return r;
}
