"""Parallel clients without a filesystem: what the store and the wire can do here.

s5cmd is what a user would take; curl, eight requests at once and payloads unsigned, is the least
that any client has to do. Its URLs are signed beforehand, so it is told nothing secret.
"""

import datetime
import hashlib
import hmac
import os
import subprocess
import urllib.parse
import urllib.request
import xml.etree.ElementTree

import harness

STREAMS = 8


class Client:
    """Stands in a row as a filesystem does, but has no process that stays."""

    name = "?"

    def __init__(self, place):
        self.place = place

    def pids(self):
        return []


class S5cmd(Client):
    name = "s5cmd"

    def run(self, *words):
        command = [os.environ["S5CMD"], "--endpoint-url", self.place.endpoint, "--log", "error", *words]
        subprocess.run(command, env=harness.s3_environment(), check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL)

    def url(self, key):
        return f"s3://{self.place.gateway.bucket}/{key}"

    def upload(self, path, key):
        self.run("cp", "--concurrency", "16", "--part-size", "16", path, self.url(key))

    def download(self, key, path, _size):
        self.run("cp", "--concurrency", "16", "--part-size", "16", self.url(key), path)

    def upload_tree(self, folder, prefix):
        self.run("cp", folder.rstrip("/") + "/", self.url(prefix) + "/")

    def list(self, prefix):
        self.run("ls", self.url(prefix) + "/")

    def list_all(self, prefix):
        self.run("ls", self.url(prefix) + "/*")


class Curl(Client):
    name = "curl"

    def signed(self, method, key, query=()):
        """A URL that is good for ten minutes (Signature Version 4 in the query)."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/{harness.REGION}/s3/aws4_request"
        host = self.place.endpoint.removeprefix("http://")
        path = urllib.parse.quote(f"/{self.place.gateway.bucket}/{key}")
        query = sorted([("X-Amz-Algorithm", "AWS4-HMAC-SHA256"), ("X-Amz-Date", now), ("X-Amz-Expires", "600"),
                        ("X-Amz-Credential", f"{harness.ACCESS_KEY}/{scope}"), ("X-Amz-SignedHeaders", "host"),
                        *query])
        text = urllib.parse.urlencode(query, quote_via=urllib.parse.quote)
        canonical = f"{method}\n{path}\n{text}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
        to_sign = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        secret = f"AWS4{harness.SECRET_KEY}".encode()
        for part in scope.split("/"):
            secret = hmac.digest(secret, part.encode(), "sha256")
        signature = hmac.digest(secret, to_sign.encode(), "sha256").hex()
        return f"http://{host}{path}?{text}&X-Amz-Signature={signature}"

    def ask(self, method, key, query, body=None):
        request = urllib.request.Request(self.signed(method, key, query), data=body, method=method)
        with urllib.request.urlopen(request) as answer:
            return answer.read()

    def run(self, blocks):
        """One curl, all of these requests at once; each block is a list of configuration lines."""
        text = "\nnext\n".join("\n".join([*block, "fail"]) for block in blocks)
        command = ["curl", "--parallel", "--parallel-max", str(STREAMS), "--parallel-immediate",
                   "--no-progress-meter", "--config", "-"]
        return subprocess.run(command, input=text, text=True, check=True, stdout=subprocess.PIPE).stdout

    def upload(self, parts, key):
        """`parts`: files that make the object together."""
        root = xml.etree.ElementTree.fromstring(self.ask("POST", key, [("uploads", "")], b""))
        upload = next(e.text for e in root.iter() if e.tag.endswith("UploadId"))
        blocks = []
        for number, part in enumerate(parts, 1):
            url = self.signed("PUT", key, [("partNumber", str(number)), ("uploadId", upload)])
            blocks.append([f'upload-file = "{part}"', f'url = "{url}"', 'header = "Expect:"',
                           f'write-out = "{number} %header{{etag}}\\n"'])
        etags = dict(line.split(" ", 1) for line in self.run(blocks).splitlines() if line)
        body = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{etags[str(n)]}</ETag></Part>"
                       for n in range(1, len(parts) + 1))
        self.ask("POST", key, [("uploadId", upload)],
                 f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode())

    def upload_each(self, paths, prefix):
        """Files as objects of their names."""
        urls = [self.signed("PUT", f"{prefix}/{os.path.basename(path)}") for path in paths]
        self.run([[f'upload-file = "{path}"', f'url = "{url}"', 'header = "Expect:"']
                  for path, url in zip(paths, urls)])

    def download(self, key, _path, size):
        """To nowhere: no disk takes part."""
        step = -(-size // STREAMS)
        url = self.signed("GET", key)
        ranges = [f"{i * step}-{min(size, (i + 1) * step) - 1}" for i in range(STREAMS)]
        self.run([[f'url = "{url}"', f'range = "{r}"', 'output = "/dev/null"'] for r in ranges])
