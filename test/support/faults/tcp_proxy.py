"""A TCP proxy on the loopback device that fails on request: the network to the API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class TcpProxy:
    """Forwards bytes to ``(host, port)``; connections can be cut, stalled, delayed or refused.

    TLS is passed through, so both ends see only the effects of a bad network.

    Attributes:
        delay_s: latency that is added in each direction, in seconds.
    """

    def __init__(self, host: str, port: int, *, listen: int = 0) -> None:
        self._target = (host, port)
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._stalled: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._end = asyncio.Event()
        self.refusing = False
        self.delay_s = 0.0
        self.accepted = 0
        self.port = listen

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[TcpProxy]:
        """Listen within the block, by default on a free port."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self._end.set()
            self.cut()
            await asyncio.sleep(0)

    def retarget(self, host: str, port: int) -> None:
        """Let later connections lead elsewhere."""
        self._target = (host, port)

    def cut(self) -> int:
        """Reset every open connection; return their number."""
        pairs = list(self._pairs)
        for client, upstream in pairs:
            for writer in (client, upstream):
                writer.transport.abort()
        return len(pairs)

    def stall_open(self) -> int:
        """Stop forwarding on open connections, without closing them; return their number.

        New connections work, as when the path of the old ones is broken.
        """
        for pair in self._pairs:
            self._stalled.add(pair)
        return len(self._pairs)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.refusing:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, up_writer)
        self._pairs.add(pair)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(pair, reader, up_writer))
                group.create_task(self._pump(pair, up_reader, writer))
        finally:
            self._pairs.discard(pair)
            self._stalled.discard(pair)
            for end in pair:
                end.transport.abort()

    async def _pump(
        self,
        pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
    ) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while data := await source.read(65536):
                if pair in self._stalled:
                    await self._end.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                sink.write(data)
                await sink.drain()
        with contextlib.suppress(ConnectionError, OSError, RuntimeError):
            sink.write_eof() if sink.can_write_eof() else sink.close()
