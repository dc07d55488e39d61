/* cli/control_server: the control socket of a mount. accept4() and poll() are ours, so that
 * the system can be out of descriptors. */
#include "cli/control_server.h"

#include "cli/control_io.h"
#include "cli/status_doc.h"
#include "common/mem.h"
#include "tests/lib/driven.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
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
    struct driven d;
    struct op op;

    driven_init(&d, NULL);
    driven_mount(&d);
    op_init(&op, OP_FOREVER);
    struct status_doc *status = status_doc_new(&info, d.cache, d.store);
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

int main(void)
{
    Suite *s = suite_create("control_server");
    TCase *t = tcase_create("control_server");

    tcase_add_test(t, a_client_waits_for_a_descriptor);
    tcase_set_timeout(t, 30);
    suite_add_tcase(s, t);
    return suite_run(s);
}
