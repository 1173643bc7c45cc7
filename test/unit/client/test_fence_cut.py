"""A write that hangs when its fence closes: data not delivered by then is never delivered.

The network is a proxy with small buffers that reads nothing for a while, so that the request waits
in this machine's buffers; then it delivers all data that it gets.
"""

import asyncio
import contextlib
import socket

import pytest
import uvloop

from jobsetpy import aio
from jobsetpy.api.core import Pod
from jobsetpy.client import AiohttpTransport, Client, H11Transport, WriteFence
from jobsetpy.client._aiohttp import AbortOnFailure
from jobsetpy.client._connection import PEER_TIMEOUT_S
from jobsetpy.errors import TransportError
from jobsetpy.testing import FakeApiServer, make_pod
from support import patience
from support.logins import StaticLogin

BUFFER = 4096


@contextlib.asynccontextmanager
async def slow_network(port: int):
    """Yield a port that leads to ``port`` once its gate is open, the gate, and the end."""
    gate, ended = asyncio.Event(), asyncio.Event()

    async def pump(reader, writer) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader, writer) -> None:
        writer.transport.pause_reading()
        await gate.wait()
        writer.transport.resume_reading()
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.TaskGroup() as group:
                group.create_task(pump(reader, up_writer))
                group.create_task(pump(up_reader, writer))
        finally:
            writer.transport.abort()
            ended.set()

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    listening.bind(("127.0.0.1", 0))
    server = await asyncio.start_server(accept, sock=listening, limit=BUFFER)
    async with server:
        yield listening.getsockname()[1], gate, ended


def aiohttp_transport(url: str) -> AiohttpTransport:
    return AiohttpTransport(StaticLogin(host=url))


async def deliver_late(make_transport, size: int) -> tuple[str, bool, bool]:
    """Write an object of ``size`` bytes, which hangs until its fence has closed."""
    async with FakeApiServer() as server, slow_network(server.port) as (port, gate, ended):
        client = Client(make_transport(f"http://127.0.0.1:{port}"))
        fence = WriteFence(aio.steady)
        fence.open_until(aio.steady() + 0.3)
        body = make_pod("late").build()
        body["metadata"]["annotations"] = {"x": "x" * size}
        error = ""
        try:
            await client.fenced_by(fence).create(Pod, "default", body)
        except TransportError as found:
            error = type(found).__name__
        gate.set()
        async with patience.timeout(20):
            await ended.wait()
        stored = bool(server.requests.writes)
        # The pool continues with other connections.
        fence.open_until(aio.steady() + 60)
        body["metadata"]["annotations"] = {}
        again = await client.fenced_by(fence).create(Pod, "default", body)
        await client.aclose()
        return error, stored, again.metadata.name == "late"


async def test_unconfirmed_data_is_discarded_by_the_kernel():
    """In a stopped process, too: the timeout is that after which another manager may write."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        address = server.sockets[0].getsockname()
        _, writer = await asyncio.open_connection(*address)
        fence = WriteFence(aio.steady, grace_s=5.0)
        fence.open_until(aio.steady() + 60)
        own = writer.get_extra_info("socket")
        before = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        with AbortOnFailure(fence) as sent:
            sent.admit(writer)
        after = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        alive = not writer.is_closing()
        with pytest.raises(ZeroDivisionError), AbortOnFailure(fence) as sent:
            sent.admit(writer)
            raise ZeroDivisionError

        assert (before, after, alive, writer.is_closing()) == (0, 5000, True, True)


async def test_connections_of_other_writes_keep_their_timeout():
    """Only a write behind a fence changes it."""
    async with FakeApiServer() as server:
        transport = H11Transport(server.url)
        client = Client(transport)
        fence = WriteFence(aio.steady, grace_s=5.0)
        fence.open_until(aio.steady() + 60)
        seen = []
        for one in (client, client.fenced_by(fence)):
            await one.create(Pod, "default", make_pod(f"p{len(seen)}").build())
            own = transport._idle[-1].transport.get_extra_info("socket")
            seen.append(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        await client.aclose()

        assert seen == [PEER_TIMEOUT_S * 1000, 5000]


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("size", [30_000, 3_000_000])
@pytest.mark.parametrize("transport", [aiohttp_transport, H11Transport], ids=["aiohttp", "slim"])
def test_nothing_is_delivered_after_the_fence_has_closed(factory, size, transport):
    """Neither from the system's buffers nor from the process's, with any loop and transport."""
    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(deliver_late(transport, size)) == ("ApiTimeoutError", False, True)
