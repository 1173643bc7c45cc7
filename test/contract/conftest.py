"""The same tests against the fake API server and a real one, in plain HTTP.

The suite verifies the fake. The real server is a control plane of our own without controllers, or
the one of JOBSETPY_KUBECONFIG.
"""

import base64
import secrets
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from hack.cluster import Cluster
from jobsetpy.testing import FakeApiServer
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
    config = yaml.safe_load(path.read_text())
    context = next(c for c in config["contexts"] if c["name"] == config["current-context"])
    context = context["context"]
    cluster = next(c for c in config["clusters"] if c["name"] == context["cluster"])["cluster"]
    user = next(u for u in config["users"] if u["name"] == context["user"])["user"]
    tls = ssl.create_default_context()
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    elif "certificate-authority-data" in cluster:
        tls.load_verify_locations(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
    else:
        tls.load_verify_locations(path.parent / cluster["certificate-authority"])
    headers = {}
    if "token" in user:
        headers["Authorization"] = f"Bearer {user['token']}"
    with tempfile.TemporaryDirectory() as folder:
        pair = []
        for name in ("client-certificate", "client-key"):
            if f"{name}-data" in user:
                file = Path(folder) / name
                file.write_bytes(base64.b64decode(user[f"{name}-data"]))
                pair.append(file)
            elif name in user:
                pair.append(path.parent / user[name])
        if pair:
            tls.load_cert_chain(*pair)
    return Endpoint(cluster["server"], headers, tls)


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
