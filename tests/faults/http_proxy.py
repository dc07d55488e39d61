"""A proxy before a test's S3 server that understands HTTP, so that single answers can be altered
while everything else stays real.

Each request is read whole, classified (`kind`), and given to the first rule that wants it; a rule
is a coroutine that decides what happens to this one exchange. Without a rule it is forwarded.

    with HttpProxy(gateway.port) as p:
        p.rule({"get"}, truncated)            # each GET of an object
        p.rule({"put"}, storm(), every=3)     # each third PUT
        p.clear()                             # the fault goes

Kinds: list, get, head, put, copy, delete, begin, part, complete, abort, parts (a listing of an
upload's parts), other.
"""

import asyncio
import collections
import socket
import struct
import threading

HEAD_MAX = 1 << 20


class Request:
    def __init__(self, head):
        lines = head.decode("latin-1").split("\r\n")
        self.line = lines[0]
        self.method, self.target, _ = self.line.split(" ", 2)
        self.headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:] if line]
        self.path, _, self.query = self.target.partition("?")
        self.body = b""

    def header(self, name):
        return next((v for n, v in self.headers if n.lower() == name), None)

    def raw(self):
        head = "".join([self.line + "\r\n", *(f"{n}: {v}\r\n" for n, v in self.headers), "\r\n"])
        return head.encode("latin-1") + self.body

    @property
    def kind(self):
        words = {w.split("=")[0] for w in self.query.split("&")}
        if "list-type" in words:
            return "list"
        if self.method == "POST":
            return "begin" if "uploads" in words else "complete" if "uploadId" in words else \
                "delete" if "delete" in words else "other"
        if self.method == "PUT" and self.header("x-amz-copy-source"):
            return "copy"
        if "uploadId" in words:
            return {"PUT": "part", "DELETE": "abort", "GET": "parts"}.get(self.method, "other")
        return {"GET": "get", "HEAD": "head", "PUT": "put", "DELETE": "delete"}.get(self.method, "other")


class Response:
    """Altered freely; sent with a Content-Length of its body unless `length` is set."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        self.length = None
        self.close = False

    def header(self, name):
        return next((v for n, v in self.headers if n.lower() == name), None)

    def set(self, name, value):
        self.headers = [(n, v) for n, v in self.headers if n.lower() != name.lower()] + [(name, value)]

    def raw(self, to_head):
        length = self.length if self.length is not None else \
            self.header("content-length") if to_head else len(self.body)
        headers = [(n, v) for n, v in self.headers if n.lower() not in ("content-length", "transfer-encoding")]
        if length is not None:
            headers.append(("Content-Length", str(length)))
        if self.close:
            headers.append(("Connection", "close"))
        head = "".join([f"HTTP/1.1 {self.status}\r\n", *(f"{n}: {v}\r\n" for n, v in headers), "\r\n"])
        return head.encode("latin-1") + (b"" if to_head else self.body)


class Gone(Exception):
    """This connection ends."""


class Exchange:
    """One request, and what a rule may do with it."""

    def __init__(self, proxy, request, writer):
        self.proxy, self.request, self.writer = proxy, request, writer

    async def forward(self, stop_after=None):
        """The server's answer to the request. Each is sent on a connection of its own; with
        `stop_after` only so many bytes leave, then the connection is reset."""
        try:
            reader, writer = await asyncio.open_connection(*self.proxy.server, limit=HEAD_MAX)
        except OSError:
            raise Gone from None
        try:
            raw = self.request.raw()
            writer.write(raw if stop_after is None else raw[:stop_after])
            await writer.drain()
            if stop_after is not None:
                raise Gone
            return await read_response(reader, self.request.method)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            raise Gone from None
        finally:
            writer.transport.abort() if stop_after is not None else writer.close()

    async def send(self, response):
        self.writer.write(response.raw(self.request.method == "HEAD"))
        await self.writer.drain()
        if response.close:
            raise Gone

    async def send_bytes(self, data):
        self.writer.write(data)
        await self.writer.drain()

    def end(self):
        """The connection is closed after what was sent."""
        raise Gone

    async def in_thread(self, function):
        """Runs what blocks, such as killing the server."""
        return await asyncio.get_running_loop().run_in_executor(None, function)


async def read_head(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    return head[:-4]


async def read_chunked(reader):
    body = b""
    while True:
        size = int((await reader.readline()).split(b";")[0], 16)
        body += await reader.readexactly(size)
        await reader.readline()
        if size == 0:
            return body


async def read_response(reader, method):
    while True:
        lines = (await read_head(reader)).decode("latin-1").split("\r\n")
        status = lines[0].split(" ", 1)[1]
        if not status.startswith("1"):
            break
    headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:]]
    found = Response(status, headers, b"")
    if method == "HEAD" or status[:3] in ("204", "304"):
        return found
    if (found.header("transfer-encoding") or "").lower() == "chunked":
        found.body = await read_chunked(reader)
    elif found.header("content-length") is not None:
        found.body = await reader.readexactly(int(found.header("content-length")))
    else:
        found.body = await reader.read()
    return found


class Rule:
    def __init__(self, kinds, action, every, count, where):
        self.kinds, self.action, self.every, self.count, self.where = kinds, action, every, count, where
        self.seen = self.hits = 0

    def wants(self, request):
        if request.kind not in self.kinds or (self.where and self.where not in request.target):
            return False
        if self.count is not None and self.hits >= self.count:
            return False
        self.seen += 1
        if self.seen % self.every:
            return False
        self.hits += 1
        return True


ALL = {"list", "get", "head", "put", "copy", "delete", "begin", "part", "complete", "abort", "parts", "other"}


class HttpProxy:
    def __init__(self, server_port):
        self.server = ("127.0.0.1", server_port)
        self.port = None
        self.rules = []
        self.requests = collections.Counter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="http-proxy", daemon=True)
        self._listener = None
        self._tasks = set()  # asyncio itself keeps none alive

    # ---- from the test's thread ----

    def __enter__(self):
        return self.start()

    def __exit__(self, *exception):
        self.stop()

    def start(self):
        self._thread.start()
        self._call(self._listen())
        return self

    def stop(self):
        if not self._thread.is_alive():
            return
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def rule(self, kinds, action, every=1, count=None, where=None):
        """Gives every `every`-th request of these kinds (whose target has `where` in it) to `action`,
        `count` of them at most. Returns the rule; its `hits` says how many there were."""
        rule = Rule(kinds, action, every, count, where)
        self.rules = [*self.rules, rule]
        return rule

    def clear(self):
        self.rules = []

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    # ---- in the loop's thread ----

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _listen(self):
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=HEAD_MAX)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _close(self):
        self._listener.close()
        await asyncio.sleep(0.01)  # what was accepted has its task then
        while tasks := [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        try:
            while True:
                request = Request(await read_head(reader))
                length = int(request.header("content-length") or 0)
                request.body = await reader.readexactly(length)
                await self._serve(Exchange(self, request, writer))
        except (Gone, OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(asyncio.current_task())
            writer.close()

    async def _serve(self, exchange):
        self.requests[exchange.request.kind] += 1
        rule = next((r for r in self.rules if r.wants(exchange.request)), None)
        if rule:
            await rule.action(exchange)
        else:
            await exchange.send(await exchange.forward())


def reset(exchange):
    """Ends the connection with a reset, as a killed machine's does."""
    raw = exchange.writer.get_extra_info("socket")
    if raw is not None and raw.fileno() >= 0:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    exchange.writer.transport.abort()
    raise Gone


# ---- faults ------------------------------------------------------------------------------------


def altered(change):
    """A fault that changes the server's good answers; what it refused is passed on."""
    async def action(exchange):
        response = await exchange.forward()
        if response.status.startswith("2"):
            change(response)
        await exchange.send(response)
    return action


def _longer(response):
    response.length, response.close = len(response.body) + 100, True


def _shorter(response):
    response.length, response.close = max(0, len(response.body) - 10), True


def _half(response):
    response.length, response.body = len(response.body), response.body[:len(response.body) // 2]
    response.close = True


def _other_etag(response):
    response.set("ETag", '"0123456789abcdef0123456789abcdef"')
    response.body = replaced(response.body, b"<ETag>", b"</ETag>", b"&#34;0123456789abcdef0123456789abcdef&#34;")


def _other_range(response):
    found = response.header("content-range")
    if found:
        span, _, size = found.removeprefix("bytes ").partition("/")
        first, last = (int(x) for x in span.split("-"))
        response.set("Content-Range", f"bytes {first + 1}-{last + 1}/{int(size) + 1}")
    else:
        response.status = "206 Partial Content"
        response.set("Content-Range", f"bytes 1-{len(response.body)}/{len(response.body) + 1}")


def _garbage(response):
    response.body = b"\x00\xff<<<not xml at all" + bytes(range(256)) * 8


def _deep(response):
    response.body = b"<ListBucketResult>" * 200_000


def _doctype(response):
    entities = b"".join(b'<!ENTITY a%d "%s">' % (i, b"&a%d;" % (i - 1) * 10) for i in range(1, 12))
    response.body = b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a0 "ha">' + entities + \
        b"]><ListBucketResult><Name>&a11;</Name></ListBucketResult>"


def _error_in_200(response):
    response.body = b"<?xml version=\"1.0\"?><Error><Code>InternalError</Code>" \
        b"<Message>We encountered an internal error.</Message></Error>"


def replaced(body, start, end, by):
    """`body` with what stands between each `start` and `end` replaced."""
    head, *rest = body.split(start)
    return head + b"".join(start + by + end + part.partition(end)[2] for part in rest)


def _more(response, token):
    response.body = replaced(response.body, b"<IsTruncated>", b"</IsTruncated>", b"true")
    tag = b"<NextContinuationToken>" + token + b"</NextContinuationToken>"
    response.body = response.body.replace(b"</ListBucketResult>", tag + b"</ListBucketResult>")


longer = altered(_longer)
shorter = altered(_shorter)
truncated = altered(_half)
other_etag = altered(_other_etag)
other_range = altered(_other_range)
garbage = altered(_garbage)
deep = altered(_deep)
doctype = altered(_doctype)
error_in_200 = altered(_error_in_200)


def repeating(token):
    """Each page of a listing says that there is another, which is the first one again; token(n) is
    what the n-th answer continues with."""
    pages, count = {}, 0

    async def action(exchange):
        nonlocal count
        where = "&".join(w for w in exchange.request.query.split("&") if not w.startswith("continuation-token="))
        if where not in pages:
            pages[where] = await exchange.forward()
            pages[where].first = pages[where].body
        page = pages[where]
        count += 1
        page.body = page.first
        if page.status.startswith("2"):
            _more(page, token(count))
        await exchange.send(page)
    return action


def looping_token():
    return repeating(lambda n: b"round-and-round")


def two_tokens():
    return repeating(lambda n: b"round" if n % 2 else b"and-round")


def fresh_tokens():
    return repeating(lambda n: b"token-%d" % n)


async def endless_pages(exchange):
    """Empty pages without end."""
    body = b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%d" \
        b"</NextContinuationToken></ListBucketResult>" % exchange.proxy.requests["list"]
    await exchange.send(Response("200 OK", [("Content-Type", "application/xml")], body))


async def endless_body(exchange):
    """A body that never ends, for a good answer."""
    response = await exchange.forward()
    head = "".join([f"HTTP/1.1 {response.status}\r\n",
                    *(f"{n}: {v}\r\n" for n, v in response.headers
                      if n.lower() not in ("content-length", "transfer-encoding")),
                    "Transfer-Encoding: chunked\r\n\r\n"])
    await exchange.send_bytes(head.encode("latin-1"))
    while True:
        await exchange.send_bytes(b"10000\r\n" + b"x" * 65536 + b"\r\n")


async def huge_headers(exchange):
    response = await exchange.forward()
    for i in range(400):
        response.headers.append((f"X-Filler-{i}", "y" * 2000))
    await exchange.send(response)


async def one_huge_header(exchange):
    response = await exchange.forward()
    response.headers.append(("X-Filler", "y" * 400_000))
    await exchange.send(response)


async def twice(exchange):
    """The request is delivered twice; the answer to the second delivery comes back."""
    await exchange.forward()
    await exchange.send(await exchange.forward())


async def answer_lost(exchange):
    """The request takes effect, the answer never comes."""
    await exchange.forward()
    reset(exchange)


async def cut_request(exchange):
    """The connection dies in the middle of the request."""
    raw = len(exchange.request.raw())
    await exchange.forward(stop_after=raw - max(1, len(exchange.request.body) // 2))


def late(seconds):
    async def action(exchange):
        await asyncio.sleep(seconds)
        await exchange.send(await exchange.forward())
    return action


async def silence(exchange):
    """A black hole: the request is taken, nothing ever comes back."""
    await asyncio.sleep(3600)


def refusal(status, code, message, retry_after=None):
    async def action(exchange):
        body = f"<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        response = Response(status, [("Content-Type", "application/xml")], body.encode())
        if retry_after is not None:
            response.set("Retry-After", str(retry_after))
        if exchange.request.method == "HEAD":
            response.length = 0
        await exchange.send(response)
    return action


def page(status, body, kind="text/html"):
    """Something else answers at the server's address, the server never hears of it."""
    async def action(exchange):
        await exchange.send(Response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))], body))
    return action


def storm(retry_after=None):
    return refusal("503 Service Unavailable", "SlowDown", "Please reduce your request rate.", retry_after)


def pretended():
    """A Complete is lost, and its repetition answered as done although nothing was: what versitygw
    says when it was killed in the middle of the first."""
    seen = set()

    async def action(exchange):
        if exchange.request.query not in seen:
            seen.add(exchange.request.query)
            reset(exchange)
        body = b"<CompleteMultipartUploadResult><ETag>&#34;0123456789abcdef-3&#34;</ETag>" \
            b"</CompleteMultipartUploadResult>"
        await exchange.send(Response("200 OK", [("Content-Type", "application/xml")], body))
    return action


def expired(key):
    """Refuses what is signed with this access key."""
    refuse = refusal("400 Bad Request", "ExpiredToken", "The provided token has expired.")

    async def action(exchange):
        if f"Credential={key}/" in (exchange.request.header("authorization") or ""):
            await refuse(exchange)
        else:
            await exchange.send(await exchange.forward())
    return action


def then(first, kill):
    """`first` says how far the exchange goes ("request", "effect", "half"); then kill() is called
    and the connection is reset."""
    async def action(exchange):
        if first == "request":
            await exchange.in_thread(kill)
            reset(exchange)
        if first == "middle":
            sent = asyncio.ensure_future(swallow(exchange.forward()))
            await asyncio.sleep(0.002)
            await exchange.in_thread(kill)
            await sent
            reset(exchange)
        response = await exchange.forward()
        if first == "half":
            await exchange.send_bytes(response.raw(False)[:-max(1, len(response.body) // 2)])
        await exchange.in_thread(kill)
        reset(exchange)
    return action


async def swallow(coroutine):
    try:
        await coroutine
    except Gone:
        pass
