"""An S3 server that keeps any key in memory: for names and listings that real servers refuse. It
checks no signature and knows no upload in parts. By hand: `plain_s3.py` serves until it is killed."""

import hashlib
import http.server
import re
import threading
import time
import urllib.parse
import xml.etree.ElementTree
from xml.sax.saxutils import escape

KEY_MAX = 1024
PAGE = 7 # names of a listing page: few, so that every listing of a test has several


def quote(key):
    """As encoding-type=url has it."""
    return urllib.parse.quote(key, safe="/-_.*")


def words_of(query):
    """(name, value) of each, as bytes of any kind."""
    for word in filter(None, query.split("&")):
        name, _, value = word.partition("=")
        yield urllib.parse.unquote_to_bytes(name), urllib.parse.unquote_to_bytes(value.replace("+", " "))


class Object:
    def __init__(self, body, headers=()):
        self.body = body
        self.meta = dict(headers)
        self.etag = '"' + hashlib.md5(body).hexdigest() + '"'
        self.time = time.time()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16 # headers and body in one packet

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=(), length=None):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code):
        self.answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def handle_request(self):
        path, _, query = self.path.partition("?")
        _, _, key = urllib.parse.unquote_to_bytes(path)[1:].partition(b"/")
        asked = dict(words_of(query)) # parse_qs() of bytes wants ASCII
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        while self.server.silent and key.startswith(self.server.silent):
            time.sleep(0.05)
        with self.server.lock:
            self.server.requests.append((self.command, key))
            if self.server.forbidden and key.startswith(self.server.forbidden):
                self.refuse(403, "AccessDenied")
            elif self.command == "GET" and not key:
                self.list(asked)
            elif self.command == "POST" and b"delete" in asked:
                self.delete_many(body)
            else:
                getattr(self, "do_" + self.command.lower())(key, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request

    # ---- objects ----

    def headers_of(self, found):
        when = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(found.time))
        return {**found.meta, "ETag": found.etag, "Last-Modified": when}

    def do_head(self, key, _):
        found = self.server.objects.get(key)
        if not found:
            self.refuse(404, "NoSuchKey")
            return
        self.answer(200, headers=self.headers_of(found), length=len(found.body))

    def do_get(self, key, _):
        found = self.server.objects.get(key)
        if not found:
            self.refuse(404, "NoSuchKey")
        elif self.headers.get("If-Match", found.etag) != found.etag:
            self.refuse(412, "PreconditionFailed")
        else:
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if not wanted:
                self.answer(200, found.body, self.headers_of(found))
                return
            first, last = int(wanted[1]), min(int(wanted[2]), len(found.body) - 1)
            if first > last:
                self.refuse(416, "InvalidRange")
                return
            headers = {**self.headers_of(found), "Content-Range": f"bytes {first}-{last}/{len(found.body)}"}
            self.answer(206, found.body[first:last + 1], headers)

    def do_put(self, key, body):
        if self.server.full:
            self.refuse(507, "QuotaExceeded")
            return
        if len(key) > self.server.key_max:
            self.refuse(400, "KeyTooLongError")
            return
        there = self.server.objects.get(key)
        if there and self.headers.get("If-None-Match") == "*":
            self.refuse(412, "PreconditionFailed")
            return
        if self.headers.get("If-Match") and (not there or there.etag != self.headers["If-Match"]):
            self.refuse(412, "PreconditionFailed")
            return
        meta = {n.lower(): v for n, v in self.headers.items() if n.lower().startswith("x-amz-meta-")}
        source = self.headers.get("x-amz-copy-source")
        if source:
            _, _, name = urllib.parse.unquote_to_bytes(source.lstrip("/")).partition(b"/")
            found = self.server.objects.get(name)
            if not found:
                self.refuse(404, "NoSuchKey")
                return
            body = found.body
            if self.headers.get("x-amz-metadata-directive") != "REPLACE":
                meta = found.meta
        made = self.server.objects[key] = Object(body, meta)
        answer = f"<CopyObjectResult><ETag>{escape(made.etag)}</ETag></CopyObjectResult>".encode() if source else b""
        self.answer(200, answer, {"ETag": made.etag})

    def do_post(self, _key, _body):
        self.refuse(501, "NotImplemented")

    def do_delete(self, key, _):
        self.server.objects.pop(key, None)
        self.answer(204)

    def delete_many(self, body):
        for name in xml.etree.ElementTree.fromstring(body).iter():
            if name.tag.endswith("}Key"):
                self.server.objects.pop((name.text or "").encode(), None)
        self.answer(200, b"<DeleteResult></DeleteResult>")

    # ---- listings ----

    def list(self, asked):
        prefix, delimiter = asked.get(b"prefix", b""), asked.get(b"delimiter", b"")
        names = {}
        for key in self.server.objects:
            below = key[len(prefix):]
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in below:
                names[prefix + below.partition(delimiter)[0] + delimiter] = None
            else:
                names[key] = self.server.objects[key]
        after = bytes.fromhex(asked.get(b"continuation-token", b"").decode())
        left = sorted(n for n in names if n > after)
        page = left[:min(PAGE, int(asked.get(b"max-keys", PAGE)))]
        text = "<ListBucketResult><EncodingType>url</EncodingType>"
        for name in page:
            found = names[name]
            if found is None:
                text += f"<CommonPrefixes><Prefix>{quote(name)}</Prefix></CommonPrefixes>"
            else:
                when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(found.time))
                text += f"<Contents><Key>{quote(name)}</Key><LastModified>{when}</LastModified>" \
                        f"<ETag>{escape(found.etag)}</ETag><Size>{len(found.body)}</Size></Contents>"
        more = len(left) > len(page)
        text += f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
        if more:
            text += f"<NextContinuationToken>{page[-1].hex()}</NextContinuationToken>"
        self.answer(200, f"{text}{self.server.extra}</ListBucketResult>".encode(),
                    {"Content-Type": "application/xml"})


class PlainS3(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128 # a connection that finds no place is tried again after a second

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects = {} # key (bytes) to Object
        self.requests = [] # (method, key)
        self.full = False # nothing can be written
        self.key_max = KEY_MAX
        self.forbidden = self.silent = None # keys that begin so are refused; get no answer
        self.extra = "" # what every listing has besides
        self.lock = threading.Lock()
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def put(self, key, body, **meta):
        with self.lock:
            self.objects[key] = Object(body, {f"x-amz-meta-{n}": v for n, v in meta.items()})

    def bodies(self):
        with self.lock:
            return {key: found.body for key, found in self.objects.items()}

    def stop(self):
        self.shutdown()
        self.server_close()


if __name__ == "__main__":
    print(PlainS3().endpoint, flush=True)
    threading.Event().wait()
