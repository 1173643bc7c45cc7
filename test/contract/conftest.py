"""The same tests against the fake API server and a real one, in plain HTTP.

The suite verifies the fake. The real server is a control plane of our own without controllers, or
the one of JOBSETPY_KUBECONFIG.
"""

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from hack.cluster import Cluster
from jobsetpy.testing import FakeApiServer
from support.cluster.raw_api import credentials
from support.contract_kit import USER_AGENT, Api, Endpoint, define, definition


@pytest.fixture(scope="package")
def real_endpoint() -> Iterator[Endpoint]:
    """A kube-apiserver whose etcd forgets old versions within seconds."""
    args = ["--etcd-compaction-interval=2s"]
    with Cluster(controller_manager=False, scheduler=False, apiserver_args=args) as running:
        yield _from_kubeconfig(running.kubeconfig)


@pytest.fixture(scope="package")
def collecting_endpoint() -> Iterator[Endpoint]:
    """A control plane with controllers, for the garbage collector."""
    with Cluster(scheduler=False) as running:
        yield _from_kubeconfig(running.kubeconfig)


def _from_kubeconfig(path: Path) -> Endpoint:
    server, tls, token = credentials(path)
    return Endpoint(server, {"Authorization": f"Bearer {token}"} if token else {}, tls)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.cluster)])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """The server under test."""
    async with _server(request, "real_endpoint") as opened:
        yield opened


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.cluster)])
async def collecting(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """A server with a garbage collector."""
    async with _server(request, "collecting_endpoint") as opened:
        opened.like_a_cluster()
        yield opened


@asynccontextmanager
async def _server(request: pytest.FixtureRequest, real: str) -> AsyncIterator[Api]:
    if request.param == "real":
        async with _opened(request.getfixturevalue(real)) as opened:
            yield opened
    else:
        async with (
            FakeApiServer() as server,
            _opened(Endpoint(server.url, {}, None, server)) as opened,
        ):
            yield opened


@asynccontextmanager
async def _opened(endpoint: Endpoint) -> AsyncIterator[Api]:
    headers = {"User-Agent": USER_AGENT, **endpoint.headers}
    connector = aiohttp.TCPConnector(ssl=endpoint.tls if endpoint.tls is not None else True)
    async with aiohttp.ClientSession(endpoint.url, headers=headers, connector=connector) as session:
        api = Api(endpoint, session, f"c-{secrets.token_hex(4)}")
        made = await api.post("/api/v1/namespaces", {"metadata": {"name": api.ns}})
        assert made.status == 201, made.body
        # Without a controller no account is created, and pods without one are refused.
        account = {"metadata": {"name": "default"}}
        await api.post(f"/api/v1/namespaces/{api.ns}/serviceaccounts", account)
        await define(api, definition("widgets", "Widget"))
        yield api
        await api.delete(f"/api/v1/namespaces/{api.ns}")
