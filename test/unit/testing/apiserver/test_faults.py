"""Injected faults of the fake server, observed by plain HTTP and by our own client."""

import asyncio

import aiohttp
import pytest

from jobsetpy.api.core import ConfigMap, Pod
from jobsetpy.client import Client
from jobsetpy.errors import NotFoundError, StreamBrokenError
from jobsetpy.testing import FakeApiServer, make_pod
from support import patience
from support.patience import eventually

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def server():
    async with FakeApiServer() as running:
        yield running


@pytest.fixture
async def http(server):
    timeout = aiohttp.ClientTimeout(total=patience.scaled(10))
    async with aiohttp.ClientSession(server.url, timeout=timeout) as session:
        yield session


async def lines(response) -> list[bytes]:
    """Return the complete lines of a stream until it breaks or ends."""
    found = []
    async for line in response.content:
        found.append(line)
    return found


async def test_status_with_retry_after(server, http):
    """The rule answers a given number of requests with header and details."""
    rule = server.faults.status(429, retry_after=3, verb="list", resource="pods", count=2)

    answers = []
    for _ in range(3):
        async with http.get(PODS) as response:
            answers.append((response.status, response.headers.get("Retry-After")))
            body = await response.json() if response.status == 429 else None
            assert body is None or body["details"] == {"retryAfterSeconds": 3}

    assert answers == [(429, "3"), (429, "3"), (200, None)]
    assert rule.spent
    assert rule.hits == 2


@pytest.mark.parametrize(
    ("select", "hit"),
    [
        ({}, True),
        ({"verb": "list"}, True),
        ({"verb": "watch"}, False),
        ({"resource": "pods"}, True),
        ({"resource": "pods/status"}, False),
        ({"namespace": "def*"}, True),
        ({"name": "x"}, False),
        ({"user_agent": "*aiohttp*"}, True),
        ({"skip": 1}, False),
    ],
)
async def test_rule_selects_requests(server, http, select, hit):
    """It selects by verb, resource, namespace, name and user agent, and may skip some."""
    server.faults.status(503, **select)

    async with http.get(PODS) as response:
        assert response.status == (503 if hit else 200)


async def test_lifted_rules_do_nothing(server, http):
    """lift() ends one rule, clear() all of them."""
    rule = server.faults.status(500)
    server.faults.status(503)
    rule.lift()
    async with http.get(PODS) as response:
        assert response.status == 503
    server.faults.clear()
    async with http.get(PODS) as response:
        assert response.status == 200


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
async def test_cut_of_an_answer(server, http, reset):
    """An answer breaks off after its headers."""
    server.faults.cut(reset=reset, verb="list")

    with pytest.raises(aiohttp.ClientError):
        async with http.get(PODS) as response:
            await response.read()

    async with http.get(PODS) as response:
        assert response.status == 200


async def test_cut_of_a_watch_after_events(server, http):
    """A watch breaks off after its n-th event, without an end of the answer."""
    for name in "abc":
        server.create("pods", make_pod(name).build())
    server.faults.cut(after_events=2, verb="watch")

    async with http.get(PODS, params={"watch": "1"}) as response:
        got = []
        with pytest.raises(aiohttp.ClientPayloadError):
            async for line in response.content:
                got.append(line)

    assert len(got) == 2


async def test_cut_of_open_watches(server, http):
    """A rule made later hits open watches, each once, up to its count."""
    async with (
        http.get(PODS, params={"watch": "1"}) as one,
        http.get(PODS, params={"watch": "1"}) as two,
        http.get(MAPS, params={"watch": "1"}) as other,
    ):
        await eventually(lambda: len(server.faults.open_watches) == 3)
        rule = server.faults.cut(resource="pods", count=None)

        for broken in (one, two):
            with pytest.raises(aiohttp.ClientPayloadError):
                await lines(broken)
        assert rule.hits == 2
        server.create(ConfigMap, {"metadata": {"name": "a"}})
        assert b'"ADDED"' in await other.content.readline()


async def test_stalled_watch_continues_when_lifted(server, http):
    """A stalled watch is silent but open, and loses nothing."""
    async with http.get(PODS, params={"watch": "1"}) as response:
        await eventually(lambda: server.faults.open_watches)
        rule = server.faults.stall(verb="watch")
        server.create("pods", make_pod("a").build())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await response.content.readline()
        rule.lift()
        line = await response.content.readline()

    assert b'"name":"a"' in line


async def test_stalled_answer_continues_when_lifted(server, http):
    """An ordinary answer can hang after its headers."""
    rule = server.faults.stall(verb="list")

    async with http.get(PODS) as response:
        rule.lift()
        assert (await response.content.read()).endswith(b"]}")


async def test_stall_ends_with_the_server(http, server):
    """Stopping does not wait for stalled streams."""
    server.faults.stall(verb="watch")
    async with http.get(PODS, params={"watch": "1"}) as response:
        await server.stop()
        with pytest.raises(aiohttp.ClientPayloadError):
            await lines(response)


async def test_ended_and_failed_watches(server, http):
    """end_watches ends cleanly, fail_watches sends an ERROR first; both count what they hit."""
    async with (
        http.get(PODS, params={"watch": "1"}) as one,
        http.get(MAPS, params={"watch": "1"}) as two,
    ):
        await eventually(lambda: len(server.faults.open_watches) == 2)

        assert server.faults.end_watches(resource="pods") == 1
        assert await lines(one) == []
        assert server.faults.fail_watches(410) == 1
        (line,) = await lines(two)

    assert b'"type":"ERROR"' in line
    assert b'"code":410' in line
    await eventually(lambda: not server.faults.open_watches)


async def test_lost_answer(server):
    """The object is stored, and the client does not learn it."""
    client = server.client()
    server.faults.lose_answer(verb="create", resource="configmaps")

    with pytest.raises(StreamBrokenError):
        await client.create(ConfigMap, "default", {"metadata": {"name": "a"}})

    assert server.get(ConfigMap, "a") is not None
    assert server.requests.count("create", "configmaps") == 1


@pytest.mark.looptime
async def test_latency_in_virtual_time():
    """Latency delays a request; over memory it costs no real time."""
    world = FakeApiServer()
    world.faults.latency(20, verb="get")
    client = Client(world.transport())
    loop = asyncio.get_running_loop()
    started = loop.time()

    with pytest.raises(NotFoundError):
        await client.get(Pod, "default", "a")

    assert loop.time() - started == 20


async def test_expired_history(server, http):
    """After expire() an old version is too old; open watches continue."""
    version = server.resource_version
    async with http.get(PODS, params={"watch": "1", "resourceVersion": version}) as response:
        await eventually(lambda: server.faults.open_watches)
        server.create(ConfigMap, {"metadata": {"name": "x"}})
        server.expire()
        server.create("pods", make_pod("a").build())
        assert b'"name":"a"' in await response.content.readline()

    async with http.get(PODS, params={"watch": "1", "resourceVersion": version}) as response:
        (line,) = await lines(response)
    assert b'"code":410' in line


async def test_stop_and_start(server):
    """The same port, objects and versions after an outage."""
    client = server.client()
    server.create(ConfigMap, {"metadata": {"name": "a"}})
    port, version = server.port, server.resource_version

    await server.stop()
    server.create(ConfigMap, {"metadata": {"name": "b"}})
    await server.start()

    assert server.port == port
    assert int(server.resource_version) == int(version) + 1
    assert (await client.get(ConfigMap, "default", "b")).metadata.name == "b"
