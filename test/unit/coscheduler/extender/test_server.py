"""The scheduler extender's requests and answers."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import msgspec
import pytest
from aiohttp.web_protocol import RequestHandler

from jobsetpy.coscheduler.engine.engine import Engine
from jobsetpy.coscheduler.engine.writes import BindRequest
from jobsetpy.coscheduler.extender.extender import BIND_BODY_LIMIT
from jobsetpy.coscheduler.extender.server import listening
from jobsetpy.errors import NotLeadingError
from jobsetpy.testing import RecordingClient, World, make_pod
from support import patience

ARGS = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n"}


@pytest.mark.parametrize(
    "change",
    [
        {"PodName": ""},
        {"Node": None},
        {"PodUID": 7},
        {"PodNamespace": "../x"},
        {"PodName": ".."},
        {"PodName": "p?x=y"},
    ],
)
def test_requests_without_a_valid_pod_are_refused(change):
    """Names become parts of a path, so they are checked."""
    with pytest.raises(ValueError, match=r"Expected .*\$\.(Pod|Node)"):
        msgspec.json.decode(json.dumps({**ARGS, **change}), type=BindRequest)


async def ask(port, path, body, *, plain=False):
    """Return status and answer of one request."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}/{path}", json=body) as answer,
    ):
        return answer.status, None if plain else await answer.json()


async def test_binds_and_preemption():
    """An empty error means success; nodes without waiting victims are returned unchanged."""
    world = World()
    pod = world.create("pods", make_pod("p").build())
    engine = Engine(RecordingClient(world, qps=0))
    async with listening(lambda: engine, ("127.0.0.1", 0)) as server:
        await server.use(None)
        port = server.port
        args = {**ARGS, "PodUID": pod["metadata"]["uid"]}
        assert await ask(port, "bind", args) == (200, {"Error": ""})
        assert world.get("pods", "p")["spec"]["nodeName"] == "n"
        status, answer = await ask(port, "bind", args)
        assert status == 200
        assert "already assigned" in answer["Error"]
        assert (await ask(port, "bind", {}))[0] == 400

        victims = {"n": {"Pods": [{"UID": "x"}], "NumPDBViolations": 1}}
        status, answer = await ask(port, "preempt", {"NodeNameToMetaVictims": victims})
        assert (status, answer) == (200, {"NodeNameToMetaVictims": victims})
        assert (await ask(port, "preempt", {"NodeNameToVictims": {}}))[0] == 400


async def test_long_and_deep_bodies_are_refused():
    """A client can exhaust neither the memory nor the stack of the parser."""
    engine = Engine(RecordingClient(World(), qps=0))
    async with listening(lambda: engine, ("127.0.0.1", 0)) as server:
        await server.use(None)
        port = server.port
        status, _ = await ask(port, "bind", {**ARGS, "Filler": "x" * BIND_BODY_LIMIT}, plain=True)
        assert status == 413
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"http://127.0.0.1:{port}/bind", data=b"[" * 9000) as answer,
        ):
            assert answer.status == 400


def standby():
    """Return no engine: another replica leads."""
    raise NotLeadingError("not here")


async def test_a_standby_refuses_requests_and_closes_the_connection():
    """kube-scheduler tries again, on another connection."""
    async with listening(standby, ("127.0.0.1", 0), prefix="/ext") as server:
        await server.use(None)
        async with aiohttp.ClientSession() as session:
            for path, body in (("bind", ARGS), ("preempt", {"NodeNameToMetaVictims": {}})):
                url = f"http://127.0.0.1:{server.port}/ext/{path}"
                async with session.post(url, json=body) as answer:
                    assert answer.status == 503
                    assert answer.headers["Connection"] == "close"
                    assert (await answer.json())["Error"] == "not here"


async def test_the_socket_outlives_its_servers():
    """No connection is refused while one server replaces another."""
    async with listening(standby, ("127.0.0.1", 0)) as server:
        assert not server.serves
        for _ in range(3):
            await server.use(None)
            async with patience.timeout(10):
                assert (await ask(server.port, "bind", ARGS))[0] == 503


async def test_a_connection_is_closed_when_its_body_does_not_arrive(monkeypatch):
    """Other connections continue."""
    # aiohttp waits ten seconds for the rest of a body before it closes a connection.
    defaults = RequestHandler.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "lingering_time", defaults["lingering_time"] / 50)
    async with listening(standby, ("127.0.0.1", 0), body_s=0.1) as server:
        await server.use(None)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        async with patience.timeout(30):
            answer = await reader.read()  # to the connection's end
        assert answer.startswith(b"HTTP/1.1 408 ")
        writer.close()
        assert (await ask(server.port, "bind", ARGS))[0] == 503
