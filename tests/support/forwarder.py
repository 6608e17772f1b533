"""A TCP forwarder that misbehaves on demand: delay, freeze, cut, flap, TLS."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import ssl


class Forwarder:
    """Forwards a free port of 127.0.0.1 to another; ends TLS when given a context.

    Attributes:
        port: Where to connect.
        delay: Wall seconds that every piece of data waits.
    """

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        self.target = target
        self.delay = 0.0
        self.port = 0
        self._tls = tls
        self._connections: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._refusing = False
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._flowing = asyncio.Event()
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def freeze(self) -> None:
        """Keep connections, move nothing."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def thaw(self) -> None:
        """Move data again."""
        self._loop.call_soon_threadsafe(self._flowing.set)

    def cut(self, *, refuse: bool = False) -> None:
        """Drop every connection; refuse new ones until :meth:`heal`."""
        self._refusing = refuse
        self._run(self._drop())

    def heal(self) -> None:
        """Take new connections again."""
        self._refusing = False

    def _run(self, work) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _open(self) -> None:
        self._flowing.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        self._server.close()
        await self._drop()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _drop(self) -> None:
        for writer in list(self._connections):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            if self._refusing:
                return
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
            self._connections.add(far_writer)
            try:
                await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
            finally:
                self._connections.discard(far_writer)
                far_writer.transport.abort()
        except OSError:
            pass
        finally:
            self._connections.discard(writer)
            writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if self.delay:
                await asyncio.sleep(self.delay)
            await self._flowing.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError
