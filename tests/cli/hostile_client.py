"""hostile_client.py SOCKET: requests that no runfs command makes; the daemon must refuse each and
answer an honest one afterwards."""

import json
import os
import socket
import sys
import time


def connect():
    # Through the directory, as the path may be longer than a socket's address.
    folder = os.open(os.path.dirname(sys.argv[1]), os.O_PATH)
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(f"/proc/self/fd/{folder}/{os.path.basename(sys.argv[1])}")
    os.close(folder)
    return s


def ask(data):
    """The answer to raw bytes; None when the daemon hung up."""
    with connect() as s:
        try:
            s.sendall(data)
            line = s.makefile("rb").readline()
        except (ConnectionResetError, BrokenPipeError):
            return None
    return json.loads(line) if line else None


def refused(data):
    answer = ask(data)
    if answer is not None and answer["ok"]:
        sys.exit(f"accepted: {data[:80]!r}")


def request(**fields):
    return json.dumps(fields).encode() + b"\n"


def main():
    for data in (b"\n", b"nonsense\n", b"[]\n", b"{}\n", b"\xff\xfe\n", b'{"cmd": 5}\n',
                 request(cmd="shutdown"), request(cmd="flush"), request(cmd="flush", path=5),
                 request(cmd="flush", path="../x"), request(cmd="fetch", path="a/%2e%2e/b"),
                 request(cmd="pin", path="%00"), request(cmd="pin", path="%"),
                 b'{"cmd": "status", "cmd": "status"}\n', b"[" * 100000 + b"\n",
                 b"x" * 1000000 + b"\n"):
        refused(data)
    idle = [connect() for _ in range(40)]  # more than are served at once
    for s in idle:
        s.close()
    for _ in range(100):
        answer = ask(request(cmd="status", files=True))
        if answer and answer["ok"] and answer["status"]["state"] == "mounted":
            return
        time.sleep(0.1)
    sys.exit("no honest answer any more")


main()
