"""Limits for clients of the webhook server: time, connections, depth; and metrics of requests."""

import asyncio
import contextlib
import json
import ssl
from datetime import UTC, datetime

import pytest

from jobsetpy.admission import _handlers as handlers
from jobsetpy.observability import metrics
from jobsetpy.serving import x509
from jobsetpy.serving.guard import Guard, Guards
from jobsetpy.serving.http import Limits, listening
from jobsetpy.serving.review import ALLOWED
from jobsetpy.serving.review_routes import routes
from jobsetpy.serving.tls import TlsMaterial, TlsPolicy
from jobsetpy.testing import FakeApiServer
from support import patience


class Transport(asyncio.Transport):
    aborted = False

    def abort(self) -> None:
        self.aborted = True


class Inner(asyncio.Protocol):
    """A protocol that records its calls."""

    def __init__(self) -> None:
        self.calls = []

    def connection_made(self, transport) -> None:
        self.calls.append("made")

    def connection_lost(self, exc) -> None:
        self.calls.append("lost")

    def data_received(self, data) -> None:
        self.calls.append(data)

    def eof_received(self):
        self.calls.append("eof")
        return True

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")


@pytest.fixture
def guard():
    return Guard(Inner(), headers_s=10.0, idle_s=100.0)


def connected(guard):
    """Return a transport that is connected to the guard."""
    transport = Transport()
    guard.connection_made(transport)
    return transport


@pytest.mark.looptime
async def test_headers_have_a_fixed_deadline(guard):
    """Single bytes do not extend it."""
    transport = connected(guard)
    for _ in range(9):
        await asyncio.sleep(1)
        guard.data_received(b"x")
    assert not transport.aborted
    await asyncio.sleep(1.1)
    assert transport.aborted


@pytest.mark.looptime
async def test_requests_headers_and_idle_time_have_separate_limits(guard):
    """A request may take any time; then the idle time counts, then the headers' time."""
    transport = connected(guard)
    with guard.request():
        await asyncio.sleep(1000)
    await asyncio.sleep(99)
    assert not transport.aborted
    guard.data_received(b"POST")
    await asyncio.sleep(9)
    assert not transport.aborted
    await asyncio.sleep(1.1)
    assert transport.aborted


@pytest.mark.looptime
async def test_an_idle_connection_is_closed(guard):
    """The idle time begins after a request."""
    transport = connected(guard)
    with guard.request():
        pass
    await asyncio.sleep(100.1)
    assert transport.aborted


@pytest.mark.looptime
async def test_a_lost_connection_is_not_aborted(guard):
    """No timer outlives it, not even that of a request that ends later."""
    transport = connected(guard)
    with guard.request():
        guard.connection_lost(None)
    await asyncio.sleep(1000)
    assert not transport.aborted


async def test_all_calls_are_passed_on(guard):
    """The protocol behind a guard gets all calls of the transport."""
    connected(guard)
    guard.data_received(b"a")
    guard.pause_writing()
    guard.resume_writing()
    assert guard.eof_received() is True
    guard.connection_lost(None)
    assert guard._inner.calls == ["made", b"a", "pause", "resume", "eof", "lost"]


@pytest.mark.looptime
async def test_connections_are_aborted_when_the_server_ends():
    """An established one is aborted immediately, one in its handshake right after it."""
    guards = Guards(Inner)
    connected, shaking = guards(), guards()
    transport, late = Transport(), Transport()
    connected.connection_made(transport)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    loop.call_later(0.3, shaking.connection_made, late)
    loop.call_later(0.4, shaking.connection_lost, None)
    loop.call_later(0.1, connected.connection_lost, None)

    await guards.end()

    assert (transport.aborted, late.aborted) == (True, True)
    assert 0.4 <= loop.time() - begin < 0.5


@pytest.mark.looptime
async def test_the_end_does_not_wait_long_for_a_handshake():
    """A silent client delays the end by one second."""
    guards = Guards(Inner)
    silent = guards()
    loop = asyncio.get_running_loop()
    begin = loop.time()

    await guards.end()

    assert not silent.ended
    assert 0.9 < loop.time() - begin < 1.1


# ---- the server


@pytest.fixture(scope="module")
def authority():
    return x509.new_authority(datetime.now(UTC))


@pytest.fixture(scope="module")
def pair(authority):
    return x509.new_serving(authority, ["127.0.0.1"], datetime.now(UTC))


@pytest.fixture
async def server(authority, pair):
    """Function that connects to the real handlers of JobSets on loopback, with short limits."""
    trust = ssl.create_default_context(cadata=authority.certificate.decode())
    trust.set_alpn_protocols(["h2", "http/1.1"])

    async def slow(request):
        await asyncio.sleep(0.3)
        return ALLOWED

    async with FakeApiServer() as api, contextlib.aclosing(api.client()) as client:
        jobsets = handlers.JobSetHandlers(client)
        made = routes(
            {"/m": jobsets.mutate, "/v": jobsets.validate, "/slow": slow},
            body_limit=4_000_000,
            deadline_s=5,
        )
        limits = Limits(headers_s=0.2, idle_s=0.2)
        async with listening(made, ("127.0.0.1", 0), limits=limits) as server:
            await server.use(TlsPolicy().new_context(TlsMaterial(pair)))
            yield lambda: asyncio.open_connection("127.0.0.1", server.port, ssl=trust)


def post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def review(raw_object: str) -> bytes:
    request = '{"uid": "u", "operation": "CREATE", "namespace": "ns", "object": %s}'
    return (
        '{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": '
        + request % raw_object
        + "}"
    ).encode()


async def exchange(connect, data: bytes) -> tuple[int, bytes]:
    """Return status and body of one answer."""
    async with patience.timeout(10):
        reader, writer = await connect()
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.splitlines()
            if line.lower().startswith(b"content-length")
        )
        body = await reader.readexactly(length)
        writer.close()
        return int(head.split()[1]), body


@pytest.mark.parametrize("sent", [b"", b"POST /m HTTP/1.1\r\nHost: a\r\n"])
async def test_a_client_that_does_not_finish_its_headers_is_disconnected(server, sent):
    """This holds for a client that sends nothing, and for one that sends a part."""
    async with patience.timeout(5):
        reader, writer = await server()
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()


async def test_a_slow_answer_is_not_interrupted(server):
    """Limits of headers and idle time do not apply while a request is answered."""
    status, _ = await exchange(server, post("/slow", review("{}")))
    assert status == 200


async def test_http_2_is_not_offered(server):
    """A client that supports it gets HTTP/1.1."""
    _, writer = await server()
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    writer.close()


NESTED = '{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "a"}, "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": {"template": {"spec": {"x": %s}}}}}]}}'


@pytest.mark.parametrize("path", ["/m", "/v"])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
async def test_deeply_nested_objects_are_answered(server, path, opening, closing):
    """The answer is a verdict or a 400 at any depth."""
    for depth in (50, 300, 600, 900, 950, 980, 1_000, 10_000, 500_000):
        inner = opening * depth + ("1" if opening != "[" else "") + closing * depth
        status, body = await exchange(server, post(path, review(NESTED.replace("%s", inner))))
        if status == 200:
            response = json.loads(body)["response"]
            assert response["allowed"] or response["status"]["code"] in {400, 422}
        else:
            assert status == 400
            assert b"not an AdmissionReview" in body
            assert depth > 50


async def test_requests_are_counted(server):
    """They are counted by path and code, with their times; unknown paths are not counted."""

    def value(name: str, **labels: str) -> float | None:
        return metrics.REGISTRY.get_sample_value(f"controller_runtime_webhook_{name}", labels)

    before = value("requests_total", webhook="/m", code="200") or 0
    seconds = value("latency_seconds_count", webhook="/m") or 0
    for path, data in (("/m", review("{}")), ("/m", b"x"), ("/other", b"x")):
        await exchange(server, post(path, data))
    assert value("requests_total", webhook="/m", code="200") == before + 1
    assert (value("requests_total", webhook="/m", code="400") or 0) >= 1
    assert value("requests_total", webhook="/m", code="500") == 0
    assert value("latency_seconds_count", webhook="/m") == seconds + 2
    assert value("requests_in_flight", webhook="/m") == 0
    assert value("requests_total", webhook="/other", code="404") is None


async def test_a_body_beyond_the_limit_is_counted_as_413(server):
    """aiohttp's own refusals are counted with their code."""
    status, _ = await exchange(server, post("/v", b"x" * 4_000_001))
    assert status == 413
    name = "controller_runtime_webhook_requests_total"
    assert metrics.REGISTRY.get_sample_value(name, {"webhook": "/v", "code": "413"}) == 1
