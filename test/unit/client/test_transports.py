"""Cases that both transports pass, over real sockets."""

import asyncio
import contextlib
import gc
import shutil
import socket

import pytest

from jobsetpy.client import Client, HttpRequest
from jobsetpy.errors import (
    ApiTimeoutError,
    ConnectFailedError,
    StreamBrokenError,
    TransportError,
    UnauthorizedError,
)
from support import patience
from support.faults.tcp_proxy import TcpProxy


def get(path="/x", **options):
    """Return a GET with a deadline that is never reached."""
    return HttpRequest(method="GET", path=path, **({"timeout_s": patience.scaled(20)} | options))


def send(method, body=b"{}", **options):
    """Return a write."""
    return HttpRequest(
        method=method, path="/x", body=body, **({"timeout_s": patience.scaled(20)} | options)
    )


async def read_all(stream):
    """Read until the clean end; return all data."""
    pieces = []
    while piece := await stream.read():
        pieces.append(piece)
    return b"".join(pieces)


# ---- whole answers --------------------------------------------------------------------------


async def test_request_is_sent_completely(http_server, connected):
    """Method, target, headers and body arrive, without headers that change their meaning."""
    async with connected(token="t0k") as transport:
        request = HttpRequest(
            method="PATCH",
            path="/a/b%2Fc",
            query=(("labelSelector", "a=b,c in (d)"),),
            body=b'{"a":1}',
            content_type="application/merge-patch+json",
        )
        answer = await transport.request(request)
    (got,) = http_server.requests

    assert (answer.status, answer.body) == (200, b"hello")
    assert got.method == "PATCH"
    assert got.target == "/a/b%2Fc?labelSelector=a%3Db%2Cc%20in%20%28d%29"
    assert got.body == b'{"a":1}'
    assert got.headers["authorization"] == "Bearer t0k"
    assert got.headers["content-type"] == "application/merge-patch+json"
    assert got.headers["accept"] == "application/json"
    assert got.headers["user-agent"].startswith("jobsetpy/")
    assert got.headers["host"] in http_server.url
    assert got.headers.get("accept-encoding", "identity") == "identity"


async def test_anonymous_request_has_no_authorization(http_server, connected):
    """There is no token."""
    async with connected() as transport:
        await transport.request(get())

    assert "authorization" not in http_server.requests[0].headers


@pytest.mark.parametrize("status", [200, 201, 204, 302, 404, 409, 500, 503])
async def test_every_status_is_an_answer(status, http_server, connected):
    """The transport raises no error for it, follows no redirect and repeats nothing."""

    async def handler(exchange):
        body = b"" if status == 204 else b"text"
        await exchange.reply(status, body, ["Location: /elsewhere", "Retry-After: 3"])

    async with connected(handler) as transport:
        answer = await transport.request(get())

    assert answer.status == status
    assert answer.headers["retry-after"] == "3"
    assert answer.headers.get("location") == "/elsewhere"
    assert len(http_server.requests) == 1


async def test_connections_are_kept(http_server, connected):
    """Successive requests share one, also after failures."""

    async def handler(exchange):
        await exchange.reply(404 if len(http_server.requests) % 2 else 200, b"x" * 10_000)

    async with connected(handler) as transport:
        for _ in range(5):
            await transport.request(get())
            await transport.request(send("POST"))

    assert http_server.connections == 1


async def test_concurrent_requests_share_connections(http_server, connected):
    """A thousand requests do not open a thousand connections."""
    async with connected() as transport, asyncio.TaskGroup() as group:
        for _ in range(1000):
            group.create_task(transport.request(send("POST")))

    assert len(http_server.requests) == 1000
    assert http_server.connections <= 64


async def test_connection_is_closed_when_the_server_says_so(http_server, connected):
    """The next request has a new one."""

    async def handler(exchange):
        await exchange.reply(200, b"x", ["Connection: close"])
        exchange.close()

    async with connected(handler) as transport:
        for _ in range(3):
            assert (await transport.request(send("POST"))).body == b"x"

    assert http_server.connections == 3


@pytest.mark.parametrize("pieces", [[], [b"a"], [b"hello ", b"w", b"orld"], [b"x" * 300_000] * 20])
async def test_chunked_answers_are_joined(pieces, http_server, connected):
    """There may be many large chunks."""

    async def handler(exchange):
        await exchange.head()
        for piece in pieces:
            await exchange.chunk(piece)
        await exchange.chunk(b"")

    async with connected(handler) as transport:
        for _ in range(2):
            answer = await transport.request(get())
            assert answer.body == b"".join(pieces)

    assert http_server.connections == 1


async def test_interim_answers_are_skipped(connected):
    """A 1xx is not the answer."""

    async def handler(exchange):
        await exchange.send(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        await exchange.reply(200, b"real")

    async with connected(handler) as transport:
        answer = await transport.request(get())

    assert (answer.status, answer.body) == (200, b"real")


async def test_large_bodies_arrive(http_server, connected):
    """They may be much larger than the socket's buffers."""
    body = b"y" * 5_000_000
    async with connected() as transport:
        await transport.request(send("POST", body))

    assert http_server.requests[0].body == body


async def test_open_streams_do_not_delay_requests(connected):
    """There may be many of both."""

    async def handler(exchange):
        if exchange.request.target == "/watch":
            await exchange.head()
            await exchange.chunk(b"first\n")
            await exchange.gone.wait()
        else:
            await exchange.reply(200, b"ok")

    async with connected(handler) as transport:
        ready = asyncio.Semaphore(0)
        done = asyncio.Event()

        async def watch():
            async with transport.stream(get("/watch")) as stream:
                await stream.read()
                ready.release()
                await done.wait()

        async with asyncio.TaskGroup() as group:
            for _ in range(80):
                group.create_task(watch())
            for _ in range(80):
                await ready.acquire()
            async with asyncio.TaskGroup() as requests:
                answers = [requests.create_task(transport.request(get())) for _ in range(200)]
            done.set()

    assert {answer.result().status for answer in answers} == {200}


# ---- failures -------------------------------------------------------------------------------


def cuts():
    """Return handlers that break off, each at another place."""

    async def before_anything(exchange):
        exchange.cut()

    async def in_the_head(exchange):
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Le")
        exchange.close()

    async def in_the_body(exchange):
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        exchange.close()

    async def in_a_chunk(exchange):
        await exchange.head()
        await exchange.send(b"ff\r\nhalf")
        exchange.close()

    async def between_chunks(exchange):
        await exchange.head()
        await exchange.chunk(b"one")
        exchange.close()

    async def no_http(exchange):
        await exchange.send(b"SSH-2.0-server\r\n\r\n")
        exchange.close()

    return [before_anything, in_the_head, in_the_body, in_a_chunk, between_chunks, no_http]


@pytest.mark.parametrize("handler", cuts(), ids=lambda handler: handler.__name__)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_broken_answer_is_an_error(handler, method, http_server, connected):
    """It is a StreamBrokenError wherever it breaks, and nothing is sent again."""
    async with connected(handler) as transport:
        with pytest.raises(StreamBrokenError):
            await transport.request(send(method, None if method == "GET" else b"{}"))

    assert len(http_server.requests) == 1


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"])
async def test_silence_ends_at_the_deadline(start, http_server, connected):
    """Before the headers and in the body; the connection is not used again."""

    async def handler(exchange):
        if len(http_server.requests) == 1:
            await exchange.send(start)
            await exchange.gone.wait()
        else:
            await exchange.reply(200, b"ok")

    async with connected(handler) as transport:
        with pytest.raises(ApiTimeoutError):
            await transport.request(get(timeout_s=0.1))
        assert (await transport.request(get())).body == b"ok"

    assert http_server.connections == 2


async def test_cancellation_closes_the_connection(http_server, connected):
    """The answer to a cancelled request must not be read as the next one."""
    received = asyncio.Event()

    async def handler(exchange):
        if len(http_server.requests) == 1:
            received.set()
            await exchange.gone.wait()
        else:
            await exchange.reply(200, b"second")

    async with connected(handler) as transport:
        task = asyncio.create_task(transport.request(get()))
        await received.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await transport.request(get())).body == b"second"


async def test_refused_connection_is_an_error_of_its_own(transport_to):
    """Nothing was sent on it."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        transport = transport_to(f"http://127.0.0.1:{port}")
        with pytest.raises(ConnectFailedError):
            await transport.request(get())
        with pytest.raises(ConnectFailedError):
            async with transport.stream(get()):
                pass
        await transport.aclose()


async def test_closed_transport_sends_nothing(http_server, transport_to):
    """Its error is not retried."""
    async with http_server.running():
        transport = transport_to(http_server.url)
        await transport.aclose()
        with pytest.raises(TransportError) as caught:
            await transport.request(get())

    assert type(caught.value) is TransportError
    assert http_server.requests == []


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
async def test_writes_are_not_repeated_on_stale_connections(method, http_server, connected):
    """A server may close a kept connection after it has read a request."""

    async def handler(exchange):
        if exchange.request.target == "/x" and len(http_server.requests) == 2:
            exchange.close()
        else:
            await exchange.reply(200, b"ok")

    async with connected(handler) as transport:
        await transport.request(get())
        with pytest.raises(StreamBrokenError):
            await transport.request(send(method))
        assert (await transport.request(get())).body == b"ok"

    assert [request.method for request in http_server.requests] == ["GET", method, "GET"]


async def test_unrequested_answer_closes_the_connection(http_server, connected):
    """It is not taken for the next one."""
    right = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright"
    late = b"HTTP/1.1 408 Late\r\nContent-Length: 4\r\n\r\nlate"

    async def handler(exchange):
        await exchange.send(right + late)

    async with connected(handler) as transport:
        for _ in range(3):
            assert (await transport.request(send("POST"))).body == b"right"

    assert http_server.connections == 3


async def test_reads_survive_stale_connections(http_server, transport_to):
    """The client repeats a read."""

    async def handler(exchange):
        if len(http_server.requests) == 2:
            exchange.close()
        else:
            await exchange.reply(200, b"ok")

    http_server.handler = handler
    async with http_server.running():
        client = Client(transport_to(http_server.url), rand=lambda: 0.0)
        await client.raw(get())
        assert (await client.raw(get())).body == b"ok"
        await client.aclose()

    assert http_server.connections == 2


# ---- TLS ------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_certificate_of_the_given_authority_is_accepted(host, connected, certificates):
    """For IPv6 addresses as well."""
    async with connected(
        context=certificates.server_context(), host=host, ca=certificates.ca
    ) as transport:
        assert (await transport.request(get())).body == b"hello"
        async with transport.stream(get()) as stream:
            assert await read_all(stream) == b"hello"


async def test_certificate_of_another_authority_is_refused(
    http_server, connected, certificates, other_authority
):
    """Nothing is sent."""
    context = other_authority.server_context()
    async with connected(context=context, ca=certificates.ca, token="secret") as transport:
        with pytest.raises(ConnectFailedError, match=r"(?i)certificate"):
            await transport.request(get())

    assert http_server.requests == []


def open_sockets(port):
    """Return sockets of this process that are connected to a port of the loopback device."""
    every = [each for each in gc.get_objects() if type(each) is socket.socket]
    found = [each for each in every if each.family == socket.AF_INET]
    peers = []
    for each in found:
        with contextlib.suppress(OSError):
            peers.append(each.getpeername())
    return [peer for peer in peers if peer[1] == port]


async def whole(transport):
    """Send a request."""
    await transport.request(get())


async def streamed(transport):
    """Read a stream."""
    async with transport.stream(get()) as stream:
        await read_all(stream)


@pytest.mark.parametrize("call", [whole, streamed])
@pytest.mark.parametrize(
    "start",
    [None, b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"],
    ids=["handshake", "headers", "body"],
)
async def test_cancelled_tls_requests_leave_no_connection(
    call, start, http_server, transport_to, certificates
):
    """Closing does not wait for the peer to close as well."""
    received = asyncio.Event()

    async def handler(exchange):
        await exchange.send(start)
        received.set()
        await exchange.gone.wait()

    http_server.handler = handler
    context = None if start is None else certificates.server_context()
    async with http_server.running(context=context):
        proxy = TcpProxy("127.0.0.1", int(http_server.url.rpartition(":")[2]))
        async with proxy.serving():
            transport = transport_to(f"https://127.0.0.1:{proxy.port}", ca=certificates.ca)
            task = asyncio.create_task(call(transport))
            await patience.eventually(
                lambda: proxy.accepted if start is None else received.is_set()
            )
            await asyncio.sleep(0.05)  # sent data arrives; the test does not depend on it
            assert len(open_sockets(proxy.port)) == 1
            proxy.stall_open()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await transport.aclose()
            left = open_sockets(proxy.port)

    assert left == []


async def test_rotated_authority_is_used(connected, certificates, other_authority, tmp_path):
    """New connections trust the file's content at the time when they are opened."""
    file = tmp_path / "ca.crt"
    shutil.copy(other_authority.ca, file)
    async with connected(context=certificates.server_context(), ca=file) as transport:
        with pytest.raises(ConnectFailedError, match=r"(?i)certificate"):
            await transport.request(get())
        file.write_text("half a file")
        with pytest.raises(ConnectFailedError):
            await transport.request(get())
        # Kubernetes replaces the file by another one.
        shutil.copy(certificates.ca, tmp_path / "new")
        (tmp_path / "new").replace(file)
        assert (await transport.request(get())).body == b"hello"
        async with transport.stream(get()) as stream:
            assert await read_all(stream) == b"hello"


async def test_certificate_for_another_host_is_refused(http_server, connected, certificates):
    """Nothing is sent."""
    async with connected(
        context=certificates.server_context("other"), ca=certificates.ca
    ) as transport:
        with pytest.raises(ConnectFailedError, match=r"(?i)certificate"):
            await transport.request(get())

    assert http_server.requests == []


async def test_server_without_tls_is_refused(http_server, transport_to, certificates):
    """Nothing is sent in plain text."""
    http_server.greeting = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    async with http_server.running():
        transport = transport_to(http_server.url.replace("http:", "https:"), ca=certificates.ca)
        with pytest.raises(ConnectFailedError):
            await transport.request(get())
        await transport.aclose()

    assert http_server.requests == []


async def test_answer_that_is_cut_within_tls_is_an_error(connected, certificates):
    """It is the same as without TLS."""
    async with connected(
        cuts()[4], context=certificates.server_context(), ca=certificates.ca
    ) as transport:
        with pytest.raises(StreamBrokenError):
            await transport.request(get())


# ---- credentials ----------------------------------------------------------------------------


async def test_rotated_token_is_used_after_a_401(http_server, transport_to, tmp_path):
    """The client reads the file immediately and repeats the request, even a create."""
    file = tmp_path / "token"
    file.write_text("old\n")
    valid = "old"

    async def handler(exchange):
        fine = exchange.request.headers["authorization"] == f"Bearer {valid}"
        await exchange.reply(201 if fine else 401, b"{}")

    http_server.handler = handler
    async with http_server.running():
        client = Client(transport_to(http_server.url, token_file=file))
        await client.raw(get())
        valid = "new"
        file.write_text("new\n")
        assert (await client.raw(send("POST"))).status == 201
        valid = "newer"
        with pytest.raises(UnauthorizedError):
            await client.raw(get())
        await client.aclose()

    sent = [request.headers["authorization"] for request in http_server.requests]
    assert sent == ["Bearer old", "Bearer old", "Bearer new", "Bearer new", "Bearer new"]


async def test_request_is_not_sent_when_the_token_file_is_missing(http_server, connected, tmp_path):
    """It is sent once the file exists."""
    async with connected(token_file=tmp_path / "none") as transport:
        with pytest.raises(ConnectFailedError):
            await transport.request(get())
        (tmp_path / "none").write_text("t")
        await transport.refresh_credentials()
        await transport.request(get())

    assert len(http_server.requests) == 1


# ---- streams --------------------------------------------------------------------------------


async def test_stream_returns_bytes_as_they_arrive(connected):
    """Nothing is held back until more arrives."""
    go = asyncio.Event()

    async def handler(exchange):
        await exchange.head()
        await exchange.chunk(b"one\n")
        await go.wait()
        await exchange.chunk(b"two\n")
        await exchange.chunk(b"")

    async with connected(handler) as transport, transport.stream(get()) as stream:
        assert stream.status == 200
        assert stream.headers["transfer-encoding"] == "chunked"
        assert await stream.read() == b"one\n"
        go.set()
        assert await read_all(stream) == b"two\n"
        assert await stream.read() == b""


async def test_leaving_a_stream_closes_it_immediately(connected):
    """The server does not keep a watch that has no reader."""
    gone = asyncio.Event()

    async def handler(exchange):
        await exchange.head()
        await exchange.chunk(b"one\n")
        await exchange.gone.wait()
        gone.set()

    async with connected(handler) as transport:
        async with transport.stream(get()) as stream:
            await stream.read()
        async with patience.timeout(5):
            await gone.wait()


async def test_cancelled_read_loses_nothing(connected):
    """An idle deadline may pass, and the next read continues."""
    go = asyncio.Event()

    async def handler(exchange):
        await exchange.head()
        await exchange.chunk(b"one\n")
        await go.wait()
        await exchange.chunk(b"two\n")
        await exchange.chunk(b"")

    async with connected(handler) as transport, transport.stream(get()) as stream:
        assert await stream.read() == b"one\n"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await stream.read()
        go.set()
        assert await read_all(stream) == b"two\n"


@pytest.mark.parametrize("handler", cuts()[2:5], ids=lambda handler: handler.__name__)
async def test_broken_stream_is_an_error(handler, connected):
    """Data that came before is delivered; then every read raises the error."""
    async with connected(handler) as transport, transport.stream(get()) as stream:
        with pytest.raises(StreamBrokenError):
            await read_all(stream)
        with pytest.raises(StreamBrokenError):
            await stream.read()


async def test_opening_a_stream_has_a_deadline(connected):
    """Later reads have none."""

    async def handler(exchange):
        await exchange.gone.wait()

    async with connected(handler) as transport:
        with pytest.raises(ApiTimeoutError):
            async with transport.stream(get(timeout_s=0.1)):
                pass


async def test_refused_stream_has_a_body(connected):
    """The reason is read from it."""

    async def handler(exchange):
        await exchange.reply(410, b'{"reason":"Expired"}')

    async with connected(handler) as transport, transport.stream(get()) as stream:
        assert stream.status == 410
        assert await read_all(stream) == b'{"reason":"Expired"}'


async def test_slow_reader_blocks_the_server(connected):
    """Unread data is bounded: the server has to wait."""
    sent = 0
    ended = asyncio.Event()

    async def handler(exchange):
        nonlocal sent
        await exchange.head()
        for _ in range(2000):
            await exchange.chunk(b"z" * 65536)
            sent += 65536
        await exchange.chunk(b"")
        ended.set()

    async with connected(handler) as transport, transport.stream(get()) as stream:
        await stream.read()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await ended.wait()
        before = sent
        rest = await read_all(stream)

    assert before < 40_000_000
    assert len(rest) > 2000 * 65536 - 3_000_000
