"""Health, readiness and metrics over real loopback sockets."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from jobsetpy.manager import Manager, ManagerSettings
from jobsetpy.manager._endpoints import health_routes, metrics_route
from jobsetpy.serving.http import listening, parse_address
from jobsetpy.testing import RecordingClient, World
from support import patience
from support.managers import started


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8081", ("127.0.0.1", 8081)),
        (":8443", ("", 8443)),
        ("[::1]:80", ("::1", 80)),
        ("0", None),
        ("", None),
    ],
)
def test_bind_addresses_are_parsed(text, expected):
    """A bind address is host:port, :port, or 0 for off."""
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["8081", "host:", "host:http", ":70000"])
def test_invalid_bind_addresses_are_refused(text):
    """The error has the right form."""
    with pytest.raises(ValueError, match=r"expected host:port"):
        parse_address(text)


@asynccontextmanager
async def serving(routes):
    """Port of a server without TLS on loopback."""
    async with listening(routes, ("127.0.0.1", 0)) as server:
        await server.use(None)
        yield server.port


async def get(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


async def test_health_reports_the_current_state():
    """readyz fails with one line per problem, and is ok without problems."""
    problems = ["pods"]
    routes = health_routes({}, {"caches": lambda: problems})
    async with serving(routes) as port:
        before = await get(port, "/readyz")
        problems.clear()
        after = await get(port, "/readyz")
        live = await get(port, "/healthz")

    assert before == (500, "caches: pods\n")
    assert after == (200, "ok")
    assert live == (200, "ok")


async def test_metrics_are_served_in_text_format():
    """The series of all registries appear under /metrics."""
    registry, other = CollectorRegistry(), CollectorRegistry()
    Counter("things_total", "Things.", registry=registry).inc(3)
    Counter("others_total", "Others.", registry=other).inc(4)
    async with serving([metrics_route([registry, other])]) as port:
        status, text = await get(port, "/metrics")

    assert status == 200
    assert "things_total 3.0" in text
    assert "others_total 4.0" in text


@pytest.mark.parametrize(
    "path", ["/debug/pprof/", "/debug/pprof/heap", "/debug/", "/metrics/", "/", "/configz"]
)
async def test_nothing_else_is_served(path):
    """There is no profiling, nor another endpoint with internals of the process."""
    routes = [*health_routes({}, {}), metrics_route([CollectorRegistry()])]
    async with serving(routes) as port:
        assert await get(port, path) == (404, "404: Not Found")


@pytest.mark.parametrize(
    "opening",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",  # RFC 9113, 3.3
        b"\r\n".join(  # RFC 7540, 3.2
            (
                b"GET /healthz HTTP/1.1",
                b"Host: x",
                b"Connection: Upgrade, HTTP2-Settings",
                b"Upgrade: h2c",
                b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
                b"\r\n",
            )
        ),
    ],
)
async def test_http2_is_not_used(opening):
    """It is used neither for clients that start with it, nor for those that request an upgrade."""
    async with serving(health_routes({}, {})) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(opening)
        async with patience.timeout(10):
            answer = await reader.read(7)
        writer.transport.abort()

    assert answer == b"HTTP/1."


async def test_no_address_serves_nothing():
    """Without addresses there are no servers and no ports."""
    manager = Manager(RecordingClient(World(), qps=0), settings=ManagerSettings())
    async with started(manager):
        assert (manager.health_port, manager.metrics_port) == (None, None)
