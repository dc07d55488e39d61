/* HTTP requests over pooled libcurl handles. A handle goes from the idle list to one thread and
 * back; with it travels the multi handle that keeps its connections open. Driving the multi
 * handle here, rather than curl_easy_perform(), is what lets a cancel end a stuck request
 * within a tenth of a second. */
#include "backends/http/http.h"

#include "backends/http/pool.h"
#include "common/mem.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define POLL_MS             100
#define RECEIVE_BUFFER      (512L * 1024)
#define SEND_BUFFER         (2L * 1024 * 1024)
#define SMALL_BUFFER        (16L * 1024) /* the least that curl takes for sending */
#define SMALL_BODY          (60 * 1024)  /* curl sends up to 64 KiB together with the headers */
#define CONNECTION_MAX_IDLE 50L          /* seconds; servers tend to close at 60 */

/* A request while it runs. */
struct run {
    struct http *http;
    struct op *op;
    const struct http_request *req;
    struct http_answer *answer;
    struct http_slot *slot;
    struct curl_slist *headers;
    char *small_body;  /* the whole body, when it is that small */
    unsigned starts;   /* how often curl began to send it */
    uint64_t sent_off; /* next byte of the source */
    bool headers_done; /* the empty line behind them came */
    bool begun;        /* to_sink->begin was asked */
    uint64_t sink_off; /* where the next byte belongs */
    uint64_t sink_left;
    int err; /* what a callback failed with */
};

/* --- errors --- */

static int curl_error(CURLcode code, long os_error, bool connected)
{
    switch (code) {
    case CURLE_OK:
        return 0;
    case CURLE_OUT_OF_MEMORY: /* also its word for a header line over 100 KB */
        return connected ? -EPROTO : -ENOMEM;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return -EHOSTUNREACH;
    case CURLE_COULDNT_CONNECT:
        return os_error == ECONNREFUSED ? -ECONNREFUSED : -EHOSTUNREACH;
    case CURLE_OPERATION_TIMEDOUT:
        return -ETIMEDOUT;
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
        return -ECONNRESET;
    case CURLE_PEER_FAILED_VERIFICATION:
        return -EACCES;
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_URL_MALFORMAT:
        return -EINVAL;
    case CURLE_UNSUPPORTED_PROTOCOL: /* also its word for an answer without a status line */
        return connected ? -EPROTO : -EINVAL;
    default:
        return -EPROTO;
    }
}

/* --- callbacks: each runs in the requester's thread --- */

static int run_fail(struct run *run, int err)
{
    if (!run->err)
        run->err = err;
    return err;
}

static size_t on_send(char *to, size_t size, size_t n, void *arg)
{
    struct run *run = arg;
    struct source *src = run->req->body;
    size_t len = size * n;
    ssize_t got;

    if (!src || run->sent_off >= src->size)
        return 0;
    if (len > src->size - run->sent_off)
        len = (size_t)(src->size - run->sent_off);
    got = src->pread(src, to, len, run->sent_off);
    if (got <= 0) {
        if (got == 0) /* not transient: the caller must look at its file again */
            got = op_fail(run->op, -EBUSY, "the content ended at byte %llu of %llu",
                          (unsigned long long)run->sent_off, (unsigned long long)src->size);
        (void)run_fail(run, (int)got);
        return CURL_READFUNC_ABORT;
    }
    run->sent_off += (uint64_t)got;
    return (size_t)got;
}

/* curl starts over when a kept connection turns out to be dead. */
static int on_seek(void *arg, curl_off_t offset, int origin)
{
    struct run *run = arg;

    if (origin != SEEK_SET || offset < 0)
        return CURL_SEEKFUNC_CANTSEEK;
    run->sent_off = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* Before each sending, the first and any that curl adds by itself. */
static int on_start(void *arg, char *peer, char *own, int peer_port, int own_port)
{
    struct run *run = arg;

    (void)peer;
    (void)own;
    (void)peer_port;
    (void)own_port;
    if (run->starts++ && run->req->once) {
        (void)run_fail(run, op_fail(run->op, -ECONNRESET,
                                    "the connection died and the request may have arrived"));
        return CURL_PREREQFUNC_ABORT;
    }
    return CURL_PREREQFUNC_OK;
}

/* What no line of a request or an answer may hold: for some reader it would end there, and the
 * rest be another line. */
static bool has_control(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return true;
    }
    return false;
}

static int add_header(struct http_answer *a, const char *name, size_t name_len,
                      const char *value, size_t len)
{
    size_t start = a->headers.len;
    int err = 0;

    while (len && isspace((unsigned char)value[len - 1]))
        len--;
    while (len && isspace((unsigned char)*value)) {
        value++;
        len--;
    }
    if (has_control(name, name_len) || has_control(value, len))
        return -EBADMSG;
    if (a->n_headers >= HTTP_HEADER_COUNT_MAX)
        return -E2BIG;
    for (size_t i = 0; i < name_len && !err; i++)
        err = buf_addc(&a->headers, (char)tolower((unsigned char)name[i]));
    if (!err)
        err = buf_add(&a->headers, "", 1);
    if (!err)
        err = buf_add(&a->headers, value, len);
    if (!err)
        err = buf_add(&a->headers, "", 1);
    if (err) {
        a->headers.len = start;
        return err == -EFBIG ? -E2BIG : err;
    }
    a->n_headers++;
    return 0;
}

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
    struct run *run = arg;
    struct http_answer *a = run->answer;
    size_t len = size * n;
    const char *colon;
    int err;

    /* A status line starts over: what came before was an interim answer. */
    if (len >= 5 && strncasecmp(line, "HTTP/", 5) == 0) {
        buf_clear(&a->headers);
        a->n_headers = 0;
        run->headers_done = false;
        return len;
    }
    if (len <= 2 && memchr("\r\n", line[0], 2))
        run->headers_done = true;
    colon = memchr(line, ':', len);
    if (!colon || colon == line)
        return len;
    err = add_header(a, line, (size_t)(colon - line), colon + 1,
                     len - (size_t)(colon + 1 - line));
    if (err == -E2BIG)
        err = op_fail(run->op, -EPROTO, "too many headers");
    if (err == -EBADMSG)
        err = op_fail(run->op, -EPROTO, "the answer has a control character in a header");
    if (err) {
        (void)run_fail(run, err);
        return 0;
    }
    return len;
}

static bool wants_sink(const struct run *run)
{
    return run->req->to_sink && run->answer->status >= 200 && run->answer->status < 300;
}

static int body_begin(struct run *run)
{
    struct http_body_sink *to = run->req->to_sink;

    if (run->begun || !wants_sink(run))
        return 0;
    run->begun = true;
    return to->begin(to, run->answer, run->op, &run->sink_off, &run->sink_left);
}

static int body_to_sink(struct run *run, const char *data, size_t len)
{
    struct sink *sink = run->req->to_sink->sink;
    int err;

    if (len > run->sink_left)
        return op_fail(run->op, -EPROTO, "more bytes than the answer announced");
    err = sink->write(sink, data, len, run->sink_off);
    if (err)
        return err;
    run->sink_off += len;
    run->sink_left -= len;
    run->answer->sunk += len;
    return 0;
}

static int body_to_buf(struct run *run, const char *data, size_t len)
{
    int err = buf_add(&run->answer->body, data, len);

    return err == -EFBIG ? op_fail(run->op, -EPROTO, "the answer is larger than %zu bytes",
                                   run->answer->body.max)
                         : err;
}

static void read_status(struct run *run)
{
    long status = 0;

    curl_easy_getinfo(run->slot->easy, CURLINFO_RESPONSE_CODE, &status);
    run->answer->status = (int)status;
}

static size_t on_receive(char *data, size_t size, size_t n, void *arg)
{
    struct run *run = arg;
    size_t len = size * n;
    int err;

    if (!run->answer->status) {
        read_status(run);
        run->answer->body.max = run->answer->status >= 200 && run->answer->status < 300
                                    ? run->req->body_max
                                    : HTTP_ERROR_BODY_MAX;
    }
    err = body_begin(run);
    if (!err)
        err = wants_sink(run) ? body_to_sink(run, data, len) : body_to_buf(run, data, len);
    if (err) {
        (void)run_fail(run, err);
        return 0;
    }
    return len;
}

/* --- one request --- */

/* A key or an option with a line's end in it would become a header of its own. The text may be
 * a secret: the header's name has to do. */
static int check_request(struct run *run)
{
    const struct http_request *req = run->req;

    if (has_control(req->url, strlen(req->url)) || strpbrk(req->url, " \t"))
        return op_fail(run->op, -EINVAL, "the URL has a control character or a space");
    for (size_t i = 0; i < req->n_headers; i++)
        if (has_control(req->headers[i], strlen(req->headers[i])))
            return op_fail(run->op, -EINVAL, "the header %.*s has a control character",
                           (int)strcspn(req->headers[i], ":;\r\n"), req->headers[i]);
    return 0;
}

static int make_headers(struct run *run)
{
    /* No pause for "100 Continue", and no type that curl would invent. */
    static const char *const always[] = {"Expect:", "Accept:", "Content-Type:"};
    struct curl_slist *list = NULL, *more;
    bool has_type = false;

    for (size_t i = 0; i < run->req->n_headers; i++) {
        more = curl_slist_append(list, run->req->headers[i]);
        if (!more)
            goto fail;
        list = more;
        has_type |= strncasecmp(run->req->headers[i], "content-type:", 13) == 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(always) - (has_type ? 1 : 0); i++) {
        more = curl_slist_append(list, always[i]);
        if (!more)
            goto fail;
        list = more;
    }
    run->headers = list;
    return 0;
fail:
    curl_slist_free_all(list);
    return op_fail(run->op, -ENOMEM, "out of memory");
}

/* A small body leaves in one piece with the headers: one call less for us, one less for the
 * server. */
static int take_small_body(struct run *run)
{
    struct source *src = run->req->body;

    if (!src || src->size == 0 || src->size > SMALL_BODY)
        return 0;
    run->small_body = malloc((size_t)src->size);
    if (!run->small_body)
        return op_fail(run->op, -ENOMEM, "out of memory");
    while (run->sent_off < src->size) {
        size_t left = (size_t)(src->size - run->sent_off);
        size_t got = on_send(run->small_body + run->sent_off, 1, left, run);
        if (got == CURL_READFUNC_ABORT)
            return run->err;
    }
    return 0;
}

static void set_method(struct run *run)
{
    const char *method = run->req->method;
    CURL *easy = run->slot->easy;

    if (strcmp(method, "HEAD") == 0) {
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    } else if (strcmp(method, "PUT") == 0 || strcmp(method, "POST") == 0) {
        curl_off_t size = run->req->body ? (curl_off_t)run->req->body->size : 0;

        if (run->small_body) {
            curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, size);
            curl_easy_setopt(easy, CURLOPT_POSTFIELDS, run->small_body);
        } else {
            curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
            curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, size);
        }
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    } else if (strcmp(method, "GET") != 0) {
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    }
}

/* Whatever the machine's own configuration of OpenSSL still takes. Redirects are not followed;
 * if ever they were, they led to nothing else. */
static void set_protocols(CURL *easy, bool allow_plain)
{
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, allow_plain ? "http,https" : "https");
    curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, "https");
#else
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS,
                     allow_plain ? CURLPROTO_HTTP | CURLPROTO_HTTPS : CURLPROTO_HTTPS);
    curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS, CURLPROTO_HTTPS);
#endif
}

static void set_options(struct run *run)
{
    CURL *easy = run->slot->easy;
    struct http *h = run->http;

    run->slot->error[0] = '\0';
    curl_easy_setopt(easy, CURLOPT_URL, run->req->url);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L); /* "a/../b" is a key like any other */
    set_method(run);
    set_protocols(easy, h->allow_plain);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, run->headers);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "runfs/" RUNFS_VERSION);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700 /* a request that ends does not wait for its resolver */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, CONNECTION_MAX_IDLE);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, run->small_body ? SMALL_BUFFER : RECEIVE_BUFFER);
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, SEND_BUFFER);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)(h->connect_timeout_ns / NS_PER_MS));
    curl_easy_setopt(easy, CURLOPT_SHARE, h->share);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    if (h->ca_file)
        curl_easy_setopt(easy, CURLOPT_CAINFO, h->ca_file);
    if (h->direct)
        curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, run->slot->error);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_start);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, run);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_send);
    curl_easy_setopt(easy, CURLOPT_READDATA, run);
    curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, run);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, run);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_receive);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, run);
}

/* Bytes moved so far, either way. */
static uint64_t moved(const struct run *run)
{
    curl_off_t up = 0, down = 0;

    curl_easy_getinfo(run->slot->easy, CURLINFO_SIZE_UPLOAD_T, &up);
    curl_easy_getinfo(run->slot->easy, CURLINFO_SIZE_DOWNLOAD_T, &down);
    return (uint64_t)up + (uint64_t)down + run->answer->headers.len;
}

static bool finished(CURLM *multi, CURLcode *ret_code)
{
    CURLMsg *msg;
    int left;

    while ((msg = curl_multi_info_read(multi, &left)))
        if (msg->msg == CURLMSG_DONE) {
            *ret_code = msg->data.result;
            return true;
        }
    return false;
}

static int poll_ms(const struct op *op)
{
    int64_t left = op_left_ns(op) / NS_PER_MS;

    return left < POLL_MS ? (int)left + 1 : POLL_MS;
}

/* Drives the transfer to its end. 0 with curl's verdict, or a negative errno that ended it. */
static int drive(struct run *run, CURLcode *ret_code)
{
    int64_t silence = run->req->silence_ns ? run->req->silence_ns : run->http->silence_ns;
    int64_t last = clock_mono_ns();
    uint64_t before = 0;

    for (;;) {
        int running, err;
        uint64_t now_moved;

        if (curl_multi_perform(run->slot->multi, &running) != CURLM_OK)
            return op_fail(run->op, -EIO, "libcurl: the transfer cannot run");
        if (finished(run->slot->multi, ret_code))
            return 0;
        err = op_check(run->op);
        if (err)
            return err;
        now_moved = moved(run);
        if (now_moved != before) {
            before = now_moved;
            last = clock_mono_ns();
        } else if (clock_mono_ns() - last > silence) {
            return op_fail(run->op, -ETIMEDOUT, "no byte for %lld ms",
                           (long long)(silence / NS_PER_MS));
        }
        (void)curl_multi_poll(run->slot->multi, NULL, 0, poll_ms(run->op), NULL);
    }
}

/* What curl's verdict means, when no callback had one of its own. */
static int judge(struct run *run, CURLcode code)
{
    char *peer = NULL;
    long os_error = 0;

    if (run->err)
        return run->err;
    if (code != CURLE_OK) {
        const char *text = run->slot->error[0] ? run->slot->error : curl_easy_strerror(code);

        curl_easy_getinfo(run->slot->easy, CURLINFO_OS_ERRNO, &os_error);
        curl_easy_getinfo(run->slot->easy, CURLINFO_PRIMARY_IP, &peer);
        return op_fail(run->op, curl_error(code, os_error, peer && *peer), "%s", text);
    }
    if (!run->headers_done) /* curl takes that for an empty answer */
        return op_fail(run->op, -ECONNRESET, "the connection ended within the headers");
    read_status(run);
    if (run->answer->status < 200)
        return op_fail(run->op, -EPROTO, "status %d", run->answer->status);
    if (wants_sink(run)) {
        int err = body_begin(run); /* an empty body never reached on_receive() */

        if (err)
            return err;
        if (run->sink_left)
            return op_fail(run->op, -EPROTO, "%llu bytes fewer than the answer announced",
                           (unsigned long long)run->sink_left);
    }
    return 0;
}

static int transfer(struct run *run)
{
    CURLcode code = CURLE_OK;
    int err;

    set_options(run);
    if (curl_multi_add_handle(run->slot->multi, run->slot->easy) != CURLM_OK)
        return op_fail(run->op, -ENOMEM, "libcurl: cannot start a transfer");
    err = drive(run, &code);
    if (!err)
        err = judge(run, code);
    /* Removing an unfinished transfer closes its connection, as it must. */
    curl_multi_remove_handle(run->slot->multi, run->slot->easy);
    return err;
}

int http_run(struct http *h, struct op *op, const struct http_request *req,
             struct http_answer *ret)
{
    struct run run = {.http = h, .op = op, .req = req, .answer = ret};
    int64_t start = clock_mono_ns();
    int err;

    *ret = (struct http_answer){.headers = BUF_INIT(HTTP_HEADERS_MAX),
                                .body = {.max = req->body_max, .secret = req->secret}};
    err = op_check(op);
    if (!err)
        err = check_request(&run);
    if (!err)
        err = make_headers(&run);
    if (!err)
        err = take_small_body(&run);
    if (err)
        goto out;
    run.slot = http_slot_take(h);
    if (run.slot && http_slot_begin(run.slot)) {
        err = transfer(&run);
        http_slot_end(run.slot);
    } else {
        err = op_fail(op, -ENOMEM, "libcurl: no handle");
    }
    if (run.slot)
        http_slot_put(h, run.slot);
out:
    free(run.small_body);
    curl_slist_free_all(run.headers);
    ret->duration_ns = clock_mono_ns() - start;
    return err;
}
