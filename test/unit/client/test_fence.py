"""The fence around a leader's writes: none is sent after it has closed, even if it had to wait."""

import asyncio

import pytest

from jobsetpy import aio
from jobsetpy.api.core import Pod
from jobsetpy.client import AiohttpTransport, Client, H11Transport, HttpRequest, WriteFence, _slim
from jobsetpy.errors import ApiTimeoutError, LeadershipLostError
from jobsetpy.testing import FakeApiServer, RecordingClient, make_pod
from support import patience
from support.logins import StaticLogin


def loop_time():
    return asyncio.get_running_loop().time()


@pytest.fixture
def client():
    """A client of a world with one pod."""
    client = RecordingClient(qps=0)
    client.world.create("pods", make_pod("p").build())
    return client


@pytest.fixture
async def fence():
    """A closed fence in the loop's time."""
    return WriteFence(loop_time)


@pytest.fixture
def fenced(client, fence):
    """The client behind the fence."""
    return client.fenced_by(fence)


WRITES = {
    "create": lambda client: client.create(Pod, "default", make_pod("q").build()),
    "replace": lambda client: client.replace(Pod, "default", "p", make_pod("p").build()),
    "merge_patch": lambda client: client.merge_patch(Pod, "default", "p", {}),
    "json_patch": lambda client: client.json_patch(Pod, "default", "p", []),
    "apply": lambda client: client.apply(Pod, "default", "p", {}, owner="x"),
    "delete": lambda client: client.delete(Pod, "default", "p"),
}


@pytest.mark.looptime
@pytest.mark.parametrize("verb", WRITES)
async def test_closed_fence_refuses_every_write(client, fenced, verb):
    """Nothing is sent."""
    with pytest.raises(LeadershipLostError):
        await WRITES[verb](fenced)

    assert client.writes == []


@pytest.mark.looptime
async def test_reads_and_writes_of_the_original_client_pass(client, fenced):
    """A standby manager reads, and every replica makes some writes."""
    read = await fenced.get(Pod, "default", "p")
    await client.merge_patch(Pod, "default", "p", {"metadata": {"labels": {"a": "b"}}})

    assert read.metadata.name == "p"
    assert len(client.writes) == 1


@pytest.mark.looptime
async def test_write_is_aborted_when_the_fence_closes(client, fence, fenced):
    """A hanging call ends with the claim that it began under, before its own deadline."""
    client.world.faults.latency(60, verb="patch")
    started = loop_time()
    fence.open_until(started + 5)
    with pytest.raises(ApiTimeoutError):
        await fenced.merge_patch(Pod, "default", "p", {})

    assert loop_time() - started == pytest.approx(5, abs=0.1)


@pytest.mark.looptime
async def test_slow_write_is_answered_while_the_leader_renews_its_claim(client, fence, fenced):
    """The manager does not repeat a request that takes longer than one claim."""
    client.world.faults.latency(25, verb="patch")
    started = loop_time()
    fence.open_until(started + 10)

    async def renew():
        while True:
            await asyncio.sleep(2)
            fence.open_until(loop_time() + 10)

    async with aio.supervise() as tasks:
        tasks.start(renew(), name="renewals")
        await fenced.merge_patch(Pod, "default", "p", {"metadata": {"labels": {"a": "b"}}})
        tasks.cancel_all()

    assert loop_time() - started == pytest.approx(25, abs=0.1)
    assert len(client.writes) == 1


@pytest.mark.looptime
async def test_write_is_aborted_at_the_end_of_the_last_renewal(client, fence, fenced):
    """The last claim counts, not the one under which the write began."""
    client.world.faults.latency(60, verb="patch")
    started = loop_time()
    fence.open_until(started + 5)
    asyncio.get_running_loop().call_later(3, fence.open_until, started + 8)
    with pytest.raises(ApiTimeoutError, match="no answer in 8 s"):
        await fenced.merge_patch(Pod, "default", "p", {})

    assert loop_time() - started == pytest.approx(8, abs=0.1)


@pytest.mark.looptime
async def test_write_is_not_repeated_after_the_fence_has_closed(client, fence, fenced):
    """A retry that the server requested is refused."""
    client.world.faults.status(429, verb="patch", retry_after=3)
    fence.open_until(loop_time() + 2)
    with pytest.raises(LeadershipLostError):
        await fenced.merge_patch(Pod, "default", "p", {})


def aiohttp_transport(url: str) -> AiohttpTransport:
    return AiohttpTransport(StaticLogin(host=url), max_connections=1)


@pytest.mark.parametrize("make_transport", [aiohttp_transport, H11Transport])
async def test_write_checks_its_fence_again_when_it_has_a_connection(make_transport, monkeypatch):
    """All connections are in use until the fence has closed: the waiting write is not sent."""
    monkeypatch.setattr(_slim, "MAX_CONNECTIONS", 1)
    async with FakeApiServer() as server:
        server.create("pods", make_pod("p").build())
        client = Client(make_transport(server.url))
        moments = iter([0.0, 0.0])  # open at the first checks, closed at the last
        fence = WriteFence(lambda: next(moments, 100.0))
        fence.open_until(60.0)
        server.faults.latency(0.2, verb="get")
        async with aio.supervise() as tasks:
            tasks.start(client.get(Pod, "default", "p"), name="slow")
            await asyncio.sleep(0.05)
            with pytest.raises(LeadershipLostError):
                await client.fenced_by(fence).merge_patch(Pod, "default", "p", {})
        after = await client.get(Pod, "default", "p")
        await client.aclose()

        assert after.metadata.name == "p"
        assert [one.verb for one in server.requests.writes if one.verb == "patch"] == []


async def test_every_transport_refuses_a_request_with_a_closed_fence(fence):
    """The fence is a field of the request, which needs no client."""
    async with FakeApiServer() as server:
        request = HttpRequest(method="GET", path="/readyz", fence=fence)
        for transport in (
            aiohttp_transport(server.url),
            H11Transport(server.url),
            server.transport(),
        ):
            with pytest.raises(LeadershipLostError):
                await transport.request(request)
            with pytest.raises(LeadershipLostError):
                async with transport.stream(request):
                    pass
            await transport.aclose()

        assert server.requests.count() == 0


async def test_unpooled_client_does_not_wait_for_connections_or_the_rate_limit():
    """All connections hang and the limit is used up; it is answered immediately."""
    async with FakeApiServer() as server:
        server.create("pods", make_pod("p").build())
        transport = AiohttpTransport(StaticLogin(host=server.url), max_connections=1)
        client = Client(transport, qps=0.001, burst=1)
        unpooled = client.unpooled()
        server.faults.latency(patience.scaled(30), verb="get", name="hangs")
        async with aio.supervise() as tasks:
            tasks.start(client.get(Pod, "default", "hangs"), name="hangs")
            await asyncio.sleep(0.05)
            async with patience.timeout(5):
                found = await unpooled.get(Pod, "default", "p")
                patched = await unpooled.merge_patch(
                    Pod, "default", "p", {"metadata": {"labels": {"a": "b"}}}
                )
            tasks.cancel_all()
        await client.aclose()

    assert found.metadata.name == "p"
    assert patched.metadata.labels == {"a": "b"}
