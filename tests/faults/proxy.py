#!/usr/bin/env python3
"""A TCP proxy before a test server that can be told to fail.

freeze/thaw    bytes stop in both directions, connections stay open (a stuck server)
rate N         at most N bytes a second in each direction, all connections together; 0 no limit
cut N [COUNT]  the next COUNT connections (1) are closed after N bytes from the server
cutup N [COUNT]  the same after N bytes from the client
reset          every open connection ends with a reset
refuse/accept  new connections are refused / accepted again
stats          prints the counts as JSON
quit

In a test: `with Proxy(port) as p: p.freeze()`. By hand: `proxy.py SERVER_PORT` prints its own
port, then takes the words above as lines on standard input and answers each with "ok".
"""

import asyncio
import errno
import json
import socket
import struct
import sys
import threading

CHUNK = 64 * 1024


class Proxy:
    def __init__(self, server_port, server_host="127.0.0.1"):
        self.server = (server_host, server_port)
        self._held = socket.socket() # never listens, and keeps the port while connections are refused
        # Not SO_REUSEADDR: with that another's server may listen there meanwhile.
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port = self._held.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._open = asyncio.Event()
        self._rate = 0
        self._next_free = {"up": 0.0, "down": 0.0}
        self._cuts = {"up": [], "down": []}
        self._links = set()
        self._listener = None
        self._counts = {"connections": 0, "refused": 0, "up": 0, "down": 0, "cut": 0, "reset": 0}

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
        self._held.close()
        if not self._thread.is_alive():
            return
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def freeze(self):
        self._call(self._set_open(False))

    def thaw(self):
        self._call(self._set_open(True))

    def rate(self, bytes_per_second):
        self._call(self._set_rate(bytes_per_second))

    def cut(self, after, count=1, direction="down"):
        self._call(self._add_cuts(direction, after, count))

    def reset(self):
        self._call(self._reset())

    def refuse(self):
        self._call(self._close_listener())

    def accept(self):
        self._call(self._listen())

    def stats(self):
        return dict(self._counts)

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    # ---- in the loop's thread ----

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _listen(self):
        """A client that asks while nobody listens may have the port as its own end for a moment."""
        for attempt in range(50):
            try:
                return await self._listen_once()
            except OSError as e:
                if e.errno != errno.EADDRINUSE or attempt == 49:
                    raise
            await asyncio.sleep(0.1)

    async def _listen_once(self):
        if self._listener is None:
            self._open.set()
            self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=CHUNK,
                                                        reuse_address=False, reuse_port=True)

    async def _close_listener(self):
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self._reset()

    async def _close(self):
        await self._close_listener()
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _set_open(self, opened):
        if opened:
            self._open.set()
        else:
            self._open.clear()

    async def _set_rate(self, bytes_per_second):
        self._rate = bytes_per_second
        self._next_free = {"up": 0.0, "down": 0.0}

    async def _add_cuts(self, direction, after, count):
        self._cuts[direction] += [after] * count

    async def _reset(self):
        for link in list(self._links):
            self._abort(link)
            self._counts["reset"] += 1

    @staticmethod
    def _abort(link):
        for writer in link:
            raw = writer.get_extra_info("socket")
            if raw is not None and raw.fileno() >= 0:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _accept(self, reader, writer):
        self._counts["connections"] += 1
        try:
            server_reader, server_writer = await asyncio.open_connection(*self.server, limit=CHUNK)
        except OSError:
            self._counts["refused"] += 1
            self._abort((writer,))
            return
        link = (writer, server_writer)
        limits = {d: self._cuts[d].pop(0) if self._cuts[d] else None for d in ("up", "down")}
        self._links.add(link)
        try:
            await asyncio.gather(self._pump("up", reader, server_writer, limits["up"], link),
                                 self._pump("down", server_reader, writer, limits["down"], link))
        except (OSError, asyncio.CancelledError):
            self._abort(link)
        finally:
            self._links.discard(link)
            for one in link:
                one.close()

    async def _pump(self, direction, reader, writer, limit, link):
        passed = 0
        while True:
            data = await reader.read(CHUNK)
            await self._open.wait()
            if not data:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            await self._pay(direction, len(data))
            if limit is not None and passed + len(data) > limit:
                writer.write(data[:limit - passed])
                await writer.drain()
                self._counts["cut"] += 1
                for one in link:
                    one.close()
                return
            passed += len(data)
            self._counts[direction] += len(data)
            writer.write(data)
            await writer.drain()

    async def _pay(self, direction, size):
        """Sleeps as long as the wire is busy with what went before."""
        if not self._rate:
            return
        now = self._loop.time()
        start = max(now, self._next_free[direction])
        self._next_free[direction] = start + size / self._rate
        if start > now:
            await asyncio.sleep(start - now)


def obey(proxy, words):
    name, arguments = words[0], [int(w) for w in words[1:]]
    if name == "stats":
        print(json.dumps(proxy.stats()), flush=True)
    elif name == "cutup":
        proxy.cut(*arguments, direction="up")
    elif name in ("freeze", "thaw", "rate", "cut", "reset", "refuse", "accept"):
        getattr(proxy, name)(*arguments)
    else:
        raise ValueError(name)


def main():
    with Proxy(int(sys.argv[1])) as proxy:
        print(proxy.port, flush=True)
        for line in sys.stdin:
            words = line.split()
            if words == ["quit"]:
                break
            if words:
                obey(proxy, words)
                print("ok", flush=True)


if __name__ == "__main__":
    main()
