"""The scheduler extender's requests and answers."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

import aiohttp
import pytest

from jobsetpy.admission import _x509 as x509
from jobsetpy.coscheduler._engine import Engine
from jobsetpy.coscheduler._server import bind_request, mutual_tls, serving
from jobsetpy.testing import RecordingClient, World, make_pod

ARGS = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n"}


@pytest.mark.parametrize(
    "change",
    [{"PodName": ""}, {"Node": None}, {"PodUID": 7}, {"PodNamespace": "../x"}, {"PodName": ".."}],
)
def test_requests_that_name_no_pod_are_refused(change):
    """Names become parts of a path."""
    with pytest.raises(ValueError, match=r"expected|no such pod"):
        bind_request({**ARGS, **change})


def test_field_names_are_read_as_go_does():
    """Without regard to case."""
    request = bind_request({name.lower(): value for name, value in ARGS.items()})
    assert (request.namespace, request.name, request.uid, request.node) == (
        "default",
        "p",
        "u",
        "n",
    )


async def ask(port, path, body):
    """Status and answer of one request."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}/{path}", json=body) as answer,
    ):
        return answer.status, await answer.json()


async def test_binds_and_preemption():
    """An empty error is success; nodes without waiting victims stay as they were."""
    world = World()
    pod = world.create("pods", make_pod("p").build())
    engine = Engine(RecordingClient(world, qps=0))
    async with serving(engine, "127.0.0.1", 0, None) as port:
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


async def test_a_client_without_a_certificate_is_not_let_in(tmp_path):
    """Whoever can reach this could have pods bound."""
    now = datetime.now(UTC)
    authority = x509.new_authority(now)
    pair = x509.new_serving(authority, ("127.0.0.1",), now)
    files = {"crt": pair.certificate, "key": pair.key, "ca": authority.certificate}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    context = mutual_tls(*(tmp_path / name for name in ("crt", "key", "ca")))
    engine = Engine(RecordingClient(World(), qps=0))
    own = ssl.create_default_context(cadata=authority.certificate.decode())
    async with serving(engine, "127.0.0.1", 0, context) as port, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.post(f"https://127.0.0.1:{port}/bind", json=ARGS, ssl=own)
