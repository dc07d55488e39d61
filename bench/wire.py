"""A TCP proxy that makes the wire longer: every byte arrives half a round trip later, and a new
connection costs a whole one more, as its handshake would. In a process of its own, so that its
work is not done by the program that measures."""

import asyncio
import multiprocessing
import signal

CHUNK = 256 * 1024


class LongWire:
    def __init__(self, server_port, round_trip_ms):
        self.server_port, self.delay = server_port, round_trip_ms / 2000
        here, there = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=self._run, args=(there,), daemon=True)
        self.process.start()
        self.port = here.recv()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def stop(self):
        self.process.kill()
        self.process.join()

    def _run(self, pipe):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        asyncio.run(self._serve(pipe))

    async def _serve(self, pipe):
        listener = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=CHUNK, backlog=1024)
        pipe.send(listener.sockets[0].getsockname()[1])
        await listener.serve_forever()

    async def _accept(self, reader, writer):
        try:
            await asyncio.sleep(2 * self.delay)
            server = await asyncio.open_connection("127.0.0.1", self.server_port, limit=CHUNK)
            await asyncio.gather(self._pump(reader, server[1]), self._pump(server[0], writer))
        except OSError:
            pass
        finally:
            writer.close()

    async def _pump(self, reader, writer):
        """Takes at once what comes, gives it on when its time has come."""
        loop, on_the_way = asyncio.get_running_loop(), asyncio.Queue(256)

        async def deliver():
            while True:
                due, data = await on_the_way.get()
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                if not data:
                    writer.close()
                    return
                writer.write(data)
                await writer.drain()

        delivery = asyncio.create_task(deliver())
        try:
            while True:
                data = await reader.read(CHUNK)
                await on_the_way.put((loop.time() + self.delay, data))
                if not data:
                    break
        except OSError:
            await on_the_way.put((loop.time(), b""))
        await delivery
