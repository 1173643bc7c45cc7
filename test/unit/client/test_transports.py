"""One table of cases over real sockets, run against both transports."""

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
    """A GET with a deadline that never matters."""
    return HttpRequest(method="GET", path=path, **({"timeout_s": patience.scaled(20)} | options))


def send(method, body=b"{}", **options):
    """A write."""
    return HttpRequest(
        method=method, path="/x", body=body, **({"timeout_s": patience.scaled(20)} | options)
    )


async def read_all(stream):
    """Everything up to the clean end."""
    pieces = []
    while piece := await stream.read():
        pieces.append(piece)
    return b"".join(pieces)


# ---- whole answers --------------------------------------------------------------------------


async def test_a_request_arrives_as_meant(http_server, connected):
    """Method, target, headers and body, and nothing else of weight."""
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


async def test_no_token_no_header(http_server, connected):
    """An anonymous client says nothing of itself."""
    async with connected() as transport:
        await transport.request(get())

    assert "authorization" not in http_server.requests[0].headers


@pytest.mark.parametrize("status", [200, 201, 204, 302, 404, 409, 500, 503])
async def test_every_status_is_an_answer(status, http_server, connected):
    """The transport judges nothing, follows nothing and repeats nothing."""

    async def handler(exchange):
        body = b"" if status == 204 else b"text"
        await exchange.reply(status, body, ["Location: /elsewhere", "Retry-After: 3"])

    async with connected(handler) as transport:
        answer = await transport.request(get())

    assert answer.status == status
    assert answer.headers["retry-after"] == "3"
    assert answer.headers.get("location") == "/elsewhere"
    assert "Retry-After".lower() in list(answer.headers)
    assert len(http_server.requests) == 1


async def test_connections_are_kept(http_server, connected):
    """Requests one after the other share a connection, also after failures."""

    async def handler(exchange):
        await exchange.reply(404 if len(http_server.requests) % 2 else 200, b"x" * 10_000)

    async with connected(handler) as transport:
        for _ in range(5):
            await transport.request(get())
            await transport.request(send("POST"))

    assert http_server.connections == 1


async def test_a_crowd_of_requests_shares_connections(http_server, connected):
    """A thousand requests at once do not open a thousand connections."""
    async with connected() as transport, asyncio.TaskGroup() as group:
        for _ in range(1000):
            group.create_task(transport.request(send("POST")))

    assert len(http_server.requests) == 1000
    assert http_server.connections <= 64


async def test_connection_close_is_obeyed(http_server, connected):
    """A server that closes after its answer is met on a new connection."""

    async def handler(exchange):
        await exchange.reply(200, b"x", ["Connection: close"])
        exchange.close()

    async with connected(handler) as transport:
        for _ in range(3):
            assert (await transport.request(send("POST"))).body == b"x"

    assert http_server.connections == 3


@pytest.mark.parametrize("pieces", [[], [b"a"], [b"hello ", b"w", b"orld"], [b"x" * 300_000] * 20])
async def test_chunked_answers(pieces, http_server, connected):
    """Chunks are put together, also when they are many and large."""

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


async def test_interim_answers_are_passed_over(connected):
    """A 1xx is not the answer."""

    async def handler(exchange):
        await exchange.send(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        await exchange.reply(200, b"real")

    async with connected(handler) as transport:
        answer = await transport.request(get())

    assert (answer.status, answer.body) == (200, b"real")


async def test_large_bodies_arrive(http_server, connected):
    """A body far beyond the socket's buffers goes out whole."""
    body = b"y" * 5_000_000
    async with connected() as transport:
        await transport.request(send("POST", body))

    assert http_server.requests[0].body == body


async def test_many_requests_and_many_watches_at_once(connected):
    """Open streams take no turns from requests, however many they are."""

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
    """Servers that break off, each at another place."""

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
async def test_broken_answers(handler, method, http_server, connected):
    """Whatever breaks, it is a StreamBrokenError, and nothing is sent a second time."""
    async with connected(handler) as transport:
        with pytest.raises(StreamBrokenError):
            await transport.request(send(method, None if method == "GET" else b"{}"))

    assert len(http_server.requests) == 1


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"])
async def test_silence_ends_at_the_deadline(start, http_server, connected):
    """Before the headers and in the body alike; the connection is not used again."""

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
    """An answer that nobody waits for cannot be taken for the next one."""
    asked = asyncio.Event()

    async def handler(exchange):
        if len(http_server.requests) == 1:
            asked.set()
            await exchange.gone.wait()
        else:
            await exchange.reply(200, b"second")

    async with connected(handler) as transport:
        task = asyncio.create_task(transport.request(get()))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await transport.request(get())).body == b"second"


async def test_none_listens(transport_to):
    """A refused connection is known not to have carried anything."""
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


async def test_a_closed_transport_sends_nothing(http_server, transport_to):
    """Use after close is an error of its own, which nobody retries."""
    async with http_server.running():
        transport = transport_to(http_server.url)
        await transport.aclose()
        with pytest.raises(TransportError) as caught:
            await transport.request(get())

    assert type(caught.value) is TransportError
    assert http_server.requests == []


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
async def test_writes_are_not_repeated_on_stale_connections(method, http_server, connected):
    """A server may close a kept connection while a request is on its way; it may have read it."""

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


async def test_a_second_answer_is_not_taken_for_the_next_one(http_server, connected):
    """A connection on which more came than was asked for is closed."""
    right = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright"
    late = b"HTTP/1.1 408 Late\r\nContent-Length: 4\r\n\r\nlate"

    async def handler(exchange):
        await exchange.send(right + late)

    async with connected(handler) as transport:
        for _ in range(3):
            assert (await transport.request(send("POST"))).body == b"right"

    assert http_server.connections == 3


async def test_reads_survive_stale_connections(http_server, transport_to):
    """Through the client a read on such a connection succeeds."""

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
async def test_tls_with_the_right_authority(host, connected, certificates):
    """Certificates are checked against the given authority, for IPv6 addresses as well."""
    async with connected(
        context=certificates.server_context(), host=host, ca=certificates.ca
    ) as transport:
        assert (await transport.request(get())).body == b"hello"
        async with transport.stream(get()) as stream:
            assert await read_all(stream) == b"hello"


async def test_tls_with_the_wrong_authority(http_server, connected, certificates, other_authority):
    """Nothing is sent to a server whose certificate someone else signed."""
    context = other_authority.server_context()
    async with connected(context=context, ca=certificates.ca, token="secret") as transport:
        with pytest.raises(ConnectFailedError, match=r"(?i)certificate"):
            await transport.request(get())

    assert http_server.requests == []


def open_sockets(port):
    """Sockets of this process that are connected to a port of loopback."""
    every = [each for each in gc.get_objects() if type(each) is socket.socket]
    found = [each for each in every if each.family == socket.AF_INET]
    peers = []
    for each in found:
        with contextlib.suppress(OSError):
            peers.append(each.getpeername())
    return [peer for peer in peers if peer[1] == port]


async def whole(transport):
    """A request."""
    await transport.request(get())


async def streamed(transport):
    """A stream that is read."""
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
    """Nor does closing wait for the peer, which may be away, to say that it closes as well."""
    asked = asyncio.Event()

    async def handler(exchange):
        await exchange.send(start)
        asked.set()
        await exchange.gone.wait()

    http_server.handler = handler
    context = None if start is None else certificates.server_context()
    async with http_server.running(context=context):
        proxy = TcpProxy("127.0.0.1", int(http_server.url.rpartition(":")[2]))
        async with proxy.serving():
            transport = transport_to(f"https://127.0.0.1:{proxy.port}", ca=certificates.ca)
            task = asyncio.create_task(call(transport))
            await patience.eventually(lambda: proxy.accepted if start is None else asked.is_set())
            await asyncio.sleep(0.05)  # what was sent arrives; no matter if it does not
            assert len(open_sockets(proxy.port)) == 1
            proxy.stall_open()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await transport.aclose()
            left = open_sockets(proxy.port)

    assert left == []


async def test_a_rotated_authority_is_taken_up(connected, certificates, other_authority, tmp_path):
    """New connections trust what the file holds when they are opened, and nothing from before."""
    file = tmp_path / "ca.crt"
    shutil.copy(other_authority.ca, file)
    async with connected(context=certificates.server_context(), ca=file) as transport:
        with pytest.raises(ConnectFailedError, match=r"(?i)certificate"):
            await transport.request(get())
        file.write_text("half a file")
        with pytest.raises(ConnectFailedError):
            await transport.request(get())
        # As Kubernetes does it: another file under the same name.
        shutil.copy(certificates.ca, tmp_path / "new")
        (tmp_path / "new").replace(file)
        assert (await transport.request(get())).body == b"hello"
        async with transport.stream(get()) as stream:
            assert await read_all(stream) == b"hello"


async def test_tls_with_the_wrong_name(http_server, connected, certificates):
    """A certificate for another host is none."""
    async with connected(
        context=certificates.server_context("other"), ca=certificates.ca
    ) as transport:
        with pytest.raises(ConnectFailedError, match=r"(?i)certificate"):
            await transport.request(get())

    assert http_server.requests == []


async def test_tls_to_a_server_without(http_server, transport_to, certificates):
    """A plain server is not spoken to in the clear."""
    http_server.greeting = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    async with http_server.running():
        transport = transport_to(http_server.url.replace("http:", "https:"), ca=certificates.ca)
        with pytest.raises(ConnectFailedError):
            await transport.request(get())
        await transport.aclose()

    assert http_server.requests == []


async def test_tls_answers_that_are_cut(connected, certificates):
    """Breaking off within TLS is told as without."""
    async with connected(
        cuts()[4], context=certificates.server_context(), ca=certificates.ca
    ) as transport:
        with pytest.raises(StreamBrokenError):
            await transport.request(get())


# ---- credentials ----------------------------------------------------------------------------


async def test_a_rotated_token_is_taken_up_after_a_401(http_server, transport_to, tmp_path):
    """The client has the file read again at once and repeats the request, a create too."""
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


async def test_no_credentials_no_request(http_server, connected, tmp_path):
    """A token file that is not there yet stops the request before it starts."""
    async with connected(token_file=tmp_path / "none") as transport:
        with pytest.raises(ConnectFailedError):
            await transport.request(get())
        (tmp_path / "none").write_text("t")
        await transport.refresh_credentials()
        await transport.request(get())

    assert len(http_server.requests) == 1


# ---- streams --------------------------------------------------------------------------------


async def test_a_stream_gives_bytes_as_they_come(connected):
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


async def test_leaving_a_stream_closes_it_at_once(connected):
    """The server is not left with a watch that nobody reads."""
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


async def test_a_cancelled_read_loses_nothing(connected):
    """An idle deadline around a read may pass, and the next read goes on."""
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
async def test_a_stream_that_breaks(handler, connected):
    """What came before is delivered; then the break is told, and told again if asked again."""
    async with connected(handler) as transport, transport.stream(get()) as stream:
        with pytest.raises(StreamBrokenError):
            await read_all(stream)
        with pytest.raises(StreamBrokenError):
            await stream.read()


async def test_a_stream_that_is_not_answered(connected):
    """Opening has a deadline; what is read later has none."""

    async def handler(exchange):
        await exchange.gone.wait()

    async with connected(handler) as transport:
        with pytest.raises(ApiTimeoutError):
            async with transport.stream(get(timeout_s=0.1)):
                pass


async def test_a_refused_stream_has_a_body(connected):
    """The reason can be read from the stream like anything else."""

    async def handler(exchange):
        await exchange.reply(410, b'{"reason":"Expired"}')

    async with connected(handler) as transport, transport.stream(get()) as stream:
        assert stream.status == 410
        assert await read_all(stream) == b'{"reason":"Expired"}'


async def test_a_slow_reader_stops_the_server(connected):
    """Unread data is bounded: the server has to wait instead of filling our memory."""
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
