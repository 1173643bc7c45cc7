"""Clients that may call the extender, and changes of its certificates while it serves."""

from __future__ import annotations

import asyncio
import base64
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from jobsetpy import aio
from jobsetpy.aio import ManualClock
from jobsetpy.coscheduler import CoschedulerSettings
from jobsetpy.coscheduler.engine.engine import Engine
from jobsetpy.coscheduler.extender.certificates import secret_source
from jobsetpy.coscheduler.extender.server import listening
from jobsetpy.serving import http, x509
from jobsetpy.serving.certificates import CertificateManager, FileSource
from jobsetpy.serving.tls import TlsPolicy
from jobsetpy.testing import RecordingClient, World
from support.patience import eventually

ARGS = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n"}
SCHEDULER = "system:kube-scheduler"


def files(folder):
    """Certificate files of a server, with the authorities of its clients."""
    return FileSource(folder, folder / "ca.crt")


class Site:
    """Certificates of both sides, in files."""

    def __init__(self, folder):
        self.folder = folder
        self.now = datetime.now(UTC)
        self.authority = x509.new_authority(self.now)
        self.serve(self.authority)
        self.trust(self.authority)

    def serve(self, authority):
        """Write a new server certificate."""
        self.pair = x509.new_serving(authority, ("127.0.0.1",), self.now)
        (self.folder / "tls.crt").write_bytes(self.pair.certificate)
        (self.folder / "tls.key").write_bytes(self.pair.key)

    def trust(self, *authorities):
        """Write the authorities whose clients are accepted."""
        (self.folder / "ca.crt").write_bytes(b"".join(a.certificate for a in authorities))

    def client(self, name=SCHEDULER, *, authority=None, days_ago=0):
        """TLS context of a client; without a name it has no certificate."""
        context = ssl.create_default_context(cadata=self.authority.certificate.decode())
        if name:
            when = self.now - timedelta(days=days_ago)
            pair = x509.new_client(authority or self.authority, name, when)
            file = self.folder / "client.pem"
            file.write_bytes(pair.certificate + pair.key)
            context.load_cert_chain(file)
        return context

    @asynccontextmanager
    async def serving(self):
        """The extender's server and the manager of its certificate."""
        engine = Engine(RecordingClient(World(), qps=0))
        async with listening(lambda: engine, ("127.0.0.1", 0), names=(SCHEDULER,)) as server:
            source = files(self.folder)
            keeper = CertificateManager(source, server="extender", period_s=0.05)
            async with http.serving(server, keeper):
                await eventually(lambda: server.serves and not list(keeper.problems()), 30.0)
                yield server, keeper


@pytest.fixture
def site(tmp_path):
    """An authority, and a server certificate whose server trusts the authority's clients."""
    return Site(tmp_path)


async def status(server, context):
    """Status of a request; 0 without a connection."""
    url = f"https://127.0.0.1:{server.port}/bind"
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=ARGS, ssl=context) as answer,
        ):
            return answer.status
    except aiohttp.ClientError:
        return 0


async def test_clients_need_a_valid_certificate_with_an_allowed_name(site):
    """The certificate has to be issued by the authority and valid now."""
    stranger = x509.new_authority(site.now)
    async with site.serving() as (server, keeper):
        assert list(keeper.problems()) == []
        assert await status(server, site.client()) == 200
        assert await status(server, site.client("other")) == 403
        assert await status(server, site.client("")) == 0
        assert await status(server, site.client(authority=stranger)) == 0
        assert await status(server, site.client(days_ago=400)) == 0


class Holding:
    """An extender that holds binds until ``go`` is set."""

    def __init__(self):
        self.held = 0
        self.go = asyncio.Event()

    async def bind(self, _):
        self.held += 1
        try:
            await self.go.wait()
        finally:
            self.held -= 1
        return ""

    async def preempt(self, _, preemptor=None):
        return {}


@asynccontextmanager
async def holding(site, **given):
    """An extender that holds binds, and its server."""
    extender = Holding()
    async with listening(lambda: extender, ("127.0.0.1", 0), names=(SCHEDULER,), **given) as server:
        await server.use(TlsPolicy().new_context(await files(site.folder).current()))
        yield extender, server


async def bind(session, server, context):
    """Answer to a bind, or its cancellation."""
    url = f"https://127.0.0.1:{server.port}/bind"
    async with session.post(url, json=ARGS, ssl=context) as answer:
        return (await answer.json())["Error"]


async def test_binds_are_held_until_they_are_answered_or_their_client_leaves(site):
    """Binds that are held when the certificates change are answered, too."""
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        holding(site) as (extender, server),
        aiohttp.ClientSession(connector=connector) as session,
        asyncio.TaskGroup() as tasks,
    ):
        binds = [tasks.create_task(bind(session, server, site.client())) for _ in range(20)]
        await eventually(lambda: extender.held == 20, 30.0)
        binds[0].cancel()
        await eventually(lambda: extender.held == 19, 30.0)
        site.trust(x509.new_authority(site.now))
        await server.use(TlsPolicy().new_context(await files(site.folder).current()))
        assert await status(server, site.client()) == 0
        extender.go.set()
        assert {await each for each in binds[1:]} == {""}


async def test_authorities_are_read_again_when_they_change(site):
    """Removed authorities have no clients."""
    async with site.serving() as (server, _):
        context = site.client()
        successor = x509.new_authority(site.now)
        newer = site.client(authority=successor)
        assert await status(server, newer) == 0
        site.trust(site.authority, successor)
        await eventually(lambda: _has(server, newer, 200), 30.0)
        assert await status(server, context) == 200
        site.trust(successor)
        await eventually(lambda: _has(server, context, 0), 30.0)
        assert await status(server, newer) == 200


async def _has(server, context, wanted):
    return await status(server, context) == wanted


async def test_a_file_without_authorities_is_refused(site):
    """A server without authorities would not demand certificates from its clients."""
    site.trust()
    material = await files(site.folder).current()

    with pytest.raises((ssl.SSLError, ValueError)):
        TlsPolicy().new_context(material)


class Stored:
    """Two empty Secrets, and two replicas that share them."""

    def __init__(self):
        self.world = World()
        self.settings = CoschedulerSettings(namespace="default")
        for name in (self.settings.server_secret, self.settings.client_secret):
            self.world.create(
                "secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
            )
        self.clock = ManualClock(datetime.now(UTC))
        self.replicas = [
            secret_source(RecordingClient(self.world, qps=0), self.settings, self.clock)
            for _ in range(2)
        ]

    def data(self, name):
        """A Secret's values."""
        data = self.world.get("secrets", name).get("data", {})
        return {key: base64.b64decode(value) for key, value in data.items()}


async def test_certificates_of_its_own():
    """Both replicas serve the same certificate; the scheduler's Secret has only the client's key."""
    stored = Stored()
    first, second = stored.replicas
    assert await first.current() is None
    async with aio.supervise() as tasks:
        both = [tasks.start(each.renew(), name="renew") for each in stored.replicas]
        await asyncio.wait(both)
    material = await first.current()
    assert material == await second.current()

    server = stored.data(stored.settings.server_secret)
    client = stored.data(stored.settings.client_secret)
    assert set(server) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert set(client) == {"ca.crt", "tls.crt", "tls.key"}
    assert material.client_authorities == client["ca.crt"] == server["ca.crt"]
    now = stored.clock.now()
    pair = x509.KeyPair(client["tls.crt"], client["tls.key"])
    assert x509.client_usable(pair, server["ca.crt"], SCHEDULER, now)
    assert not x509.client_usable(pair, server["ca.crt"], "other", now)
    assert not x509.client_usable(pair, x509.new_authority(now).certificate, SCHEDULER, now)

    assert await first.renew() is False
    stored.clock.advance(300 * 86400)
    assert await first.renew() is True
    renewed = stored.data(stored.settings.client_secret)
    assert renewed["tls.crt"] != client["tls.crt"]
    assert renewed["ca.crt"] == client["ca.crt"]
