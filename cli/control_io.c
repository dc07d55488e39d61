/* Lines of JSON over a socket, and paths within them. */
#include "cli/control_io.h"

#include "common/mem.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define PATH_TEXT_MAX (3 * 65536)

int control_send(int fd, const json_t *message)
{
    auto_free char *text = json_dumps(message, JSON_COMPACT);
    size_t len, sent = 0;

    if (!text)
        return -ENOMEM;
    len = strlen(text);
    text[len++] = '\n'; /* over the NUL: the length counts from here on */
    while (sent < len) {
        ssize_t n = send(fd, text + sent, len - sent, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        sent += (size_t)n;
    }
    return 0;
}

void control_reader_init(struct control_reader *r, int fd, size_t max_message)
{
    r->fd = fd;
    buf_init(&r->pending, max_message);
}

void control_reader_release(struct control_reader *r)
{
    buf_release(&r->pending);
}

/* Takes the first `len` bytes and their newline off the buffer. */
static int take_line(struct control_reader *r, size_t len, json_t **ret)
{
    json_t *message = json_loadb(r->pending.data, len, JSON_REJECT_DUPLICATES, NULL);

    r->pending.len -= len + 1;
    memmove(r->pending.data, r->pending.data + len + 1, r->pending.len + 1);
    if (!json_is_object(message)) {
        json_decref(message);
        return -EPROTO;
    }
    *ret = message;
    return 0;
}

int control_receive(struct control_reader *r, json_t **ret)
{
    char chunk[4096];
    size_t searched = 0;

    for (;;) {
        char *end = NULL;
        ssize_t n;
        int err;

        if (r->pending.len > searched)
            end = memchr(r->pending.data + searched, '\n', r->pending.len - searched);
        if (end)
            return take_line(r, (size_t)(end - r->pending.data), ret);
        searched = r->pending.len;
        n = recv(r->fd, chunk, sizeof(chunk), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -ENODATA;
        err = buf_add(&r->pending, chunk, (size_t)n);
        if (err)
            return err;
    }
}

void control_address(int dir_fd, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/" CONTROL_NAME,
                   dir_fd);
}

char *control_encode_path(const char *path)
{
    struct buf text = BUF_INIT(PATH_TEXT_MAX);

    for (; *path; path++) {
        unsigned char c = (unsigned char)*path;
        bool plain = c < 128 && (isalnum(c) || strchr("/._-", c));
        int err = plain ? buf_addc(&text, *path) : buf_addf(&text, "%%%02X", c);

        if (err) {
            buf_release(&text);
            return NULL;
        }
    }
    return buf_take(&text);
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *at = c ? strchr(digits, toupper((unsigned char)c)) : NULL;

    return at ? (int)(at - digits) : -1;
}

static bool has_dotdot(const char *path)
{
    while (*path) {
        size_t len = strcspn(path, "/");

        if (len == 2 && path[0] == '.' && path[1] == '.')
            return true;
        path += len + (path[len] == '/');
    }
    return false;
}

int control_decode_path(const char *text, char **ret)
{
    auto_free char *path = strdup(text);
    char *to = path;

    if (!path)
        return -ENOMEM;
    for (; *text; text++) {
        int high, low;

        if (*text != '%') {
            *to++ = *text;
            continue;
        }
        high = hex_digit(text[1]);
        low = high < 0 ? -1 : hex_digit(text[2]);
        if (low < 0 || high * 16 + low == 0)
            return -EINVAL;
        *to++ = (char)(high * 16 + low);
        text += 2;
    }
    *to = '\0';
    if (has_dotdot(path))
        return -EINVAL;
    *ret = take_ptr(path);
    return 0;
}

json_t *control_text(const char *bytes)
{
    struct buf text = BUF_INIT(PATH_TEXT_MAX);
    json_t *json;

    if (!bytes)
        return json_null();
    json = json_string(bytes);
    if (json)
        return json;
    /* Rare: byte by byte keeps ASCII and replaces the rest. */
    for (; *bytes; bytes++)
        if (buf_adds(&text,
                     (unsigned char)*bytes < 128 ? (char[]){*bytes, '\0'} : "\xEF\xBF\xBD"))
            break;
    json = json_string(text.data ? text.data : "");
    buf_release(&text);
    return json;
}
