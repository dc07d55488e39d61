/* cli/control_server: the control socket of a mount. accept4() and poll() are ours, so that
 * the system can be out of descriptors. */
#include "cli/control_server.h"

#include "backends/layers/layers.h"
#include "cli/control_io.h"
#include "cli/open_store.h"
#include "cli/report.h"
#include "cli/status_doc.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    atomic_uint refusals; /* how many accepts still find no descriptor */
    atomic_int refused;   /* the listener that just found none, or -1 */
    atomic_uint looks;    /* at such a listener, by the next poll() */
} system_ = {.refused = -1};

int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    if (atomic_load(&system_.refusals)) {
        atomic_fetch_sub(&system_.refusals, 1);
        atomic_store(&system_.refused, fd);
        errno = EMFILE;
        return -1;
    }
    return (int)syscall(SYS_accept4, fd, addr, len, flags);
}

int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    int refused = atomic_exchange(&system_.refused, -1);

    for (nfds_t i = 0; i < n; i++)
        if (refused >= 0 && fds[i].fd == refused)
            atomic_fetch_add(&system_.looks, 1);
    return (int)syscall(SYS_ppoll, fds, n, timeout_ms < 0 ? NULL : &timeout, NULL, 8);
}

static int connect_to(const char *dir)
{
    struct sockaddr_un address;
    auto_close int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(dir_fd, 0);
    ck_assert_int_ge(fd, 0);
    control_address(dir_fd, &address);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* A mount of one store, as the mount's process has it. */
struct one_store {
    struct store *store;
    const char *name;
    struct open_stores stores;
};

static const struct open_stores *one_store(struct one_store *one, struct store *store)
{
    *one = (struct one_store){.store = store, .name = "store"};
    one->stores =
        (struct open_stores){.top = store, .stores = &one->store, .names = &one->name, .n = 1};
    return &one->stores;
}

/* Without a descriptor for a client the thread waits, instead of asking again and again; the
 * client is served when there is one. */
START_TEST(a_client_waits_for_a_descriptor)
{
    const struct status_info info = {
        .url = "mem:", .mountpoint = "/", .cache_dir = "/", .durability = "cache"};
    auto_json json_t *request = json_pack("{s:s}", "cmd", "status");
    struct control_server *server;
    struct control_reader reader;
    json_t *answer = NULL;
    struct one_store one;
    struct driven d;
    struct op op;

    driven_init(&d, NULL);
    driven_mount(&d);
    op_init(&op, OP_FOREVER);
    struct status_doc *status = status_doc_new(&info, d.cache, one_store(&one, d.store));
    ck_assert_ptr_nonnull(status);
    atomic_store(&system_.refusals, 2);
    auto_close int dir_fd = open(d.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(control_server_start(dir_fd, d.cache, status, &op, &server), 0);
    auto_close int fd = connect_to(d.dir);
    ck_assert_int_eq(control_send(fd, request), 0);
    control_reader_init(&reader, fd, 1 << 20);
    ck_assert_int_eq(control_receive(&reader, &answer), 0);
    ck_assert(json_is_true(json_object_get(answer, "ok")));
    ck_assert_uint_eq(atomic_load(&system_.refusals), 0);
    ck_assert_msg(atomic_load(&system_.looks) == 0, "it looked again at once");
    json_decref(answer);
    control_reader_release(&reader);
    control_server_stop(server, NULL);
    status_doc_free(status);
    driven_release(&d);
}
END_TEST

static atomic_bool refusing;

static int64_t refuse_content(struct layer *l, struct call *c)
{
    (void)l;
    if ((c->kind == CALL_PUT || c->kind == CALL_READ) && atomic_load(&refusing))
        return op_fail(c->op, -EAGAIN, "503 Slow\tDown");
    return call_next(c);
}

/* A mount of a store that refuses all content, and soon counts as stalled. */
struct rig {
    struct driven d;
    struct one_store one;
    struct status_doc *status;
    struct control_server *server;
    struct control_reader reader;
    int dir_fd, fd;
};

static void rig_open(struct rig *g)
{
    static const struct backoff_policy policy = {
        .first_ns = NS_PER_MS, .max_ns = 10 * NS_PER_MS, .stalled_ns = 50 * NS_PER_MS};
    const struct status_info info = {
        .url = "s3://b", .mountpoint = "/", .cache_dir = "/cache", .durability = "cache"};
    struct op op;

    atomic_store(&refusing, true);
    driven_init(&g->d, refuse_content);
    driven_store(&g->d, "far", "y", 1);
    g->d.store = layer_retry_new(g->d.store, &policy);
    ck_assert_ptr_nonnull(g->d.store);
    driven_mount(&g->d);
    op_init(&op, OP_FOREVER);
    g->status = status_doc_new(&info, g->d.cache, one_store(&g->one, g->d.store));
    ck_assert_ptr_nonnull(g->status);
    g->dir_fd = open(g->d.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(control_server_start(g->dir_fd, g->d.cache, g->status, &op, &g->server),
                     0);
    g->fd = connect_to(g->d.dir);
    control_reader_init(&g->reader, g->fd, 1 << 20);
}

static void rig_close(struct rig *g)
{
    control_reader_release(&g->reader);
    (void)close(g->fd);
    control_server_stop(g->server, NULL);
    (void)close(g->dir_fd);
    status_doc_free(g->status);
    driven_release(&g->d);
}

static json_t *receive(struct rig *g)
{
    json_t *answer = NULL;

    ck_assert_int_eq(control_receive(&g->reader, &answer), 0);
    return answer;
}

/* Until the store has refused for so long that it counts as stalled, which lasts. */
static bool is_stalled(struct rig *g)
{
    json_t *stall = status_doc_stall(g->status, NULL);
    bool told = json_is_string(json_object_get(stall, "error"));

    json_decref(stall);
    return told;
}

/* The final answer, and whether a stall was told before; the store works from then on when
 * `mend` says so. */
static json_t *ask(struct rig *g, json_t *request, bool mend, bool *ret_told)
{
    json_t *answer, *step;

    ck_assert_int_eq(control_send(g->fd, request), 0);
    json_decref(request);
    answer = receive(g);
    for (*ret_told = false; (step = json_object_get(answer, "progress")); answer = receive(g)) {
        *ret_told = *ret_told || json_is_object(json_object_get(step, "stalled"));
        if (*ret_told && mend)
            atomic_store(&refusing, false);
        json_decref(answer);
    }
    return answer;
}

/* Who waits for a store that refuses everything hears of it meanwhile, and at the end what is
 * left and where. */
START_TEST(a_flush_tells_of_a_stall)
{
    struct rig g;
    bool told;

    rig_open(&g);
    driven_put(&g.d, "precious", "x", 1);
    DRIVEN_WAIT(is_stalled(&g));
    json_t *answer =
        ask(&g, json_pack("{s:s, s:s, s:i}", "cmd", "flush", "path", "", "timeout_ms", 100),
            false, &told);
    const json_t *stalled = json_object_get(answer, "stalled");
    ck_assert(told);
    ck_assert(json_is_false(json_object_get(answer, "ok")));
    ck_assert_int_eq(json_integer_value(json_object_get(answer, "errno")), ETIMEDOUT);
    ck_assert_str_eq(json_string_value(json_object_get(stalled, "error")), "503 Slow\tDown");
    ck_assert_str_eq(json_string_value(json_object_get(stalled, "what")), "changes");
    ck_assert(json_is_null(json_object_get(stalled, "retried_until")));
    ck_assert_str_eq(json_string_value(json_object_get(answer, "store")), "s3://b");
    ck_assert_int_eq(report_vain_code(-ETIMEDOUT, answer), EXIT_NOT_YET);
    auto_free char *vain = report_vain(answer, "/mnt");
    ck_assert_ptr_nonnull(vain);
    ck_assert_ptr_nonnull(strstr(vain, "last: 503 Slow"));
    ck_assert_ptr_nonnull(strstr(vain, "in the cache /cache"));
    ck_assert_ptr_nonnull(strstr(vain, "`runfs status --files /mnt`): precious"));
    (void)json_object_set_new(json_object_get(answer, "stalled"), "errno",
                              json_string("ECONNREFUSED"));
    ck_assert_int_eq(report_vain_code(-ETIMEDOUT, answer), EXIT_NETWORK);
    json_decref(answer);
    atomic_store(&refusing, false);
    ck_assert_int_eq(driven_flush(&g.d), 0);
    answer = status_doc_stall(g.status, NULL);
    ck_assert(json_is_null(answer));
    json_decref(answer);
    rig_close(&g);
}
END_TEST

/* Who brings something here as well, who has not heard of a single byte. */
START_TEST(a_fetch_tells_of_a_stall)
{
    struct rig g;
    bool told;

    rig_open(&g);
    json_t *answer =
        ask(&g, json_pack("{s:s, s:s}", "cmd", "fetch", "path", "far"), true, &told);
    ck_assert(told);
    ck_assert(json_is_true(json_object_get(answer, "ok")));
    json_decref(answer);
    rig_close(&g);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("control_server");
    TCase *t = tcase_create("control_server");

    tcase_add_test(t, a_client_waits_for_a_descriptor);
    tcase_add_test(t, a_flush_tells_of_a_stall);
    tcase_add_test(t, a_fetch_tells_of_a_stall);
    tcase_set_timeout(t, 30);
    suite_add_tcase(s, t);
    return suite_run(s);
}
