"""HTTP server of the barrier, on real loopback sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobsetpy.agent.sidecar import probe
from jobsetpy.agent.sidecar.probe import BarrierServer, listen
from support import patience

PATH = "/barrier-is-lifted"
GET = b"GET /barrier-is-lifted HTTP/1.1\r\n\r\n"


@asynccontextmanager
async def serving(server: BarrierServer) -> AsyncIterator[int]:
    """Run ``server`` on a free loopback port."""
    sock = listen("127.0.0.1", 0)
    port: int = sock.getsockname()[1]
    async with server.listening(sock):
        yield port


async def exchange(port: int, *parts: bytes) -> bytes:
    """Send the parts one by one; return all that the server sends until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        async with patience.timeout(5):
            return await reader.read()
    finally:
        writer.transport.abort()


def status_of(response: bytes) -> int:
    """Return the status code of a response."""
    version, code, _reason = response.split(b"\r\n", 1)[0].split(b" ", 2)
    assert version == b"HTTP/1.1"
    return int(code)


async def test_probe_succeeds_once_the_barrier_is_lifted() -> None:
    """The port answers from the start."""
    server = BarrierServer(PATH)
    async with serving(server) as port:
        request = b"GET /barrier-is-lifted HTTP/1.1\r\nHost: x\r\nUser-Agent: kube-probe\r\n\r\n"
        before = await exchange(port, request)
        server.lift()
        after = await exchange(port, request)

    assert [status_of(before), status_of(after)] == [503, 200]
    assert after.endswith(b"\r\n\r\nOK\n")
    assert b"Connection: close\r\n" in after


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /barrier-is-lifted HTTP/1.0\r\n\r\n", 503),
        (b"GET /barrier-is-lifted?x=1 HTTP/1.1\r\n\r\n", 503),
        (b"GET /barrier-is-lifted HTTP/1.1\n\n", 503),
        (b"HEAD /barrier-is-lifted HTTP/1.1\r\n\r\n", 503),
        (b"POST /barrier-is-lifted HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 405),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /barrier-is-lifted/ HTTP/1.1\r\n\r\n", 404),
        (b"GET /barrier-is-lifted HTTP/2\r\n\r\n", 400),
        (b"GET /barrier-is-lifted\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\n\n", 400),
        (b"GET /" + b"a" * 9000, 431),
    ],
)
async def test_every_request_is_answered(head: bytes, status: int) -> None:
    """The connection is then closed."""
    async with serving(BarrierServer(PATH)) as port:
        response = await exchange(port, head)

    assert status == status_of(response)


@asynccontextmanager
async def waiting_probe(port: int, seconds: int) -> AsyncIterator[asyncio.StreamReader]:
    """Send a probe that waits, and yield the stream for its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /barrier-is-lifted?wait=%d HTTP/1.1\r\n\r\n" % seconds)
        await writer.drain()
        yield reader
    finally:
        writer.transport.abort()


async def test_probe_may_wait_for_the_barrier() -> None:
    """It is answered when the barrier lifts, and immediately from then on."""
    server = BarrierServer(PATH)
    async with serving(server) as port, waiting_probe(port, 60) as first:
        async with waiting_probe(port, 60) as second:
            assert status_of(await exchange(port, GET)) == 503
            server.lift()
            assert [status_of(await each.read()) for each in (first, second)] == [200, 200]
        async with waiting_probe(port, 60) as third:
            assert status_of(await third.read()) == 200


async def test_probe_that_waits_is_answered_when_its_time_is_over() -> None:
    """One with an invalid time does not wait."""
    async with serving(BarrierServer(PATH)) as port, waiting_probe(port, 1) as waiting:
        for wait in (b"", b"0", b"-1", b"1.5", b"x"):
            head = b"GET /barrier-is-lifted?wait=" + wait + b" HTTP/1.1\r\n\r\n"
            assert status_of(await exchange(port, head)) == 503
        assert status_of(await waiting.read()) == 503


@pytest.mark.parametrize("broken_off", [True, False], ids=["broken off", "answered"])
async def test_loss_is_reported_when_waiting_probes_stop(
    monkeypatch: pytest.MonkeyPatch, broken_off: bool
) -> None:
    """A kubelet that restarts breaks off its probe and may have forgotten it."""
    monkeypatch.setattr(probe, "GONE_S" if broken_off else "SILENT_S", 0.05)
    lost = asyncio.Event()
    async with serving(BarrierServer(PATH, on_lost=lost.set)) as port:
        async with waiting_probe(port, 60 if broken_off else 1) as waiting:
            assert status_of(await exchange(port, GET)) == 503
            assert not lost.is_set()
            if not broken_off:
                assert status_of(await waiting.read()) == 503
        async with patience.timeout(5):
            await lost.wait()


async def test_barrier_holds_when_another_probe_waits_or_comes() -> None:
    """The kubelet probes again after a connection broke; probes that do not wait are no sign."""
    lost: list[str] = []
    server = BarrierServer(PATH, on_lost=lambda: lost.append("lost"))
    async with serving(server) as port:
        await exchange(port, GET)
        assert server.holds
        async with waiting_probe(port, 60):
            pass
        await patience.eventually(lambda: not server.holds, 5)
        async with waiting_probe(port, 60):
            await patience.eventually(lambda: server.holds, 5)

    assert lost == []


async def test_worker_counts_as_started_when_the_barrier_lifts_without_a_probe() -> None:
    """The kubelet has gone; the next one may start the worker without asking."""
    opened: list[str] = []
    lost: list[str] = []
    server = BarrierServer(
        PATH, on_open=lambda: opened.append("open"), on_lost=lambda: lost.append("lost")
    )
    async with serving(server) as port:
        async with waiting_probe(port, 60):
            pass
        await patience.eventually(lambda: not server.holds, 5)
        server.lift()
        assert server.holds

    assert (opened, lost) == (["open"], [])


@pytest.mark.parametrize("sent", [b"", GET.replace(b"lifted", b"lifted?wait=60")])
async def test_open_connections_end_with_the_server(sent: bytes) -> None:
    """They are closed without an answer, silent ones and probes that wait."""
    async with serving(BarrierServer(PATH)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert status_of(await exchange(port, GET)) == 503
    async with patience.timeout(5):
        assert await reader.read() == b""
    writer.transport.abort()


async def test_silent_client_is_disconnected_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It gets no answer."""
    monkeypatch.setattr(probe, "DEADLINE_S", 0.05)
    async with serving(BarrierServer(PATH)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with patience.timeout(5):
            received = await reader.read()
        writer.transport.abort()

    assert received == b""


async def test_probe_is_answered_when_there_are_many_silent_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest connections above the limit are closed."""
    monkeypatch.setattr(probe, "MAX_CONNECTIONS", 4)
    async with serving(BarrierServer(PATH)) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        response = await exchange(port, GET)
        for _, writer in silent:
            writer.transport.abort()

    assert status_of(response) == 503


async def test_connections_above_the_limit_are_closed_when_they_arrive_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server has not begun to read from those that it drops."""
    monkeypatch.setattr(probe, "MAX_CONNECTIONS", 4)
    async with serving(BarrierServer(PATH)) as port:
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
        for client in clients[:8]:
            reader, writer = await asyncio.open_connection(sock=client)
            async with patience.timeout(5):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.transport.abort()
        for client in clients[8:]:
            client.close()


async def test_server_listens_on_both_families_without_an_address() -> None:
    """The kubelet reaches it by IPv4, and by IPv6 where there is any."""
    server = BarrierServer(PATH)
    sock = listen("", 0)
    port: int = sock.getsockname()[1]
    async with server.listening(sock):
        response = await exchange(port, GET)

    assert status_of(response) == 503


@given(head=st.binary(max_size=200))
@example(head=b"GET  HTTP/1.1\n\n")
@example(head=b"\xff \xff HTTP/1.\xff\n\n")
def test_any_bytes_get_a_response(head: bytes) -> None:
    """No input raises an error, and only the right one is answered with 200."""
    server = BarrierServer(PATH)
    server.lift()
    response = server.answer(head)

    assert status_of(response) in {200, 400, 404, 405}
    assert (status_of(response) == 200) <= (PATH.encode() in head)
