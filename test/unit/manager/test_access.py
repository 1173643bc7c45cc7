"""Authorization of metrics requests, and metrics over TLS."""

import asyncio
import contextlib
import json
import ssl
from datetime import timedelta

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from jobsetpy import aio
from jobsetpy.client import Client, HttpResponse
from jobsetpy.errors import ConnectFailedError
from jobsetpy.manager._access import MAX_REMEMBERED, MAX_WAITING, AccessReviewer
from jobsetpy.manager._endpoints import metrics_route
from jobsetpy.serving.certificates import CertificateManager, SelfSignedSource
from jobsetpy.serving.http import listening, serving
from jobsetpy.serving.tls import TlsPolicy
from support.patience import eventually


class Authority:
    """An API server that knows two tokens."""

    def __init__(self):
        self.reviews = []
        self.down = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def request(self, request):
        if self.down:
            raise ConnectFailedError("no connection")
        await self.answers.wait()
        spec = json.loads(request.body)["spec"]
        kind = request.path.rsplit("/", 1)[1]
        self.reviews.append((kind, spec))
        if kind == "tokenreviews":
            known = spec["token"] in {"good", "poor"}
            user = {"username": spec["token"], "groups": ["g"], "extra": {"k": ["v"]}}
            status = {"authenticated": known, "user": user if known else {}}
        else:
            status = {"allowed": spec["user"] == "good"}
        return HttpResponse(201, {}, json.dumps({"status": status}).encode())


@pytest.fixture
def authority():
    return Authority()


@pytest.fixture
def clock():
    return aio.ManualClock()


@pytest.fixture
def reviewer(authority, clock):
    return AccessReviewer(Client(authority), clock=clock.monotonic)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer good", 200),
        ("bearer good", 200),
        ("Bearer poor", 403),
        ("Bearer stranger", 401),
        ("Bearer ", 401),
        ("Bearer " + "x" * 20_000, 401),
        ("Basic Z29vZA==", 401),
        ("good", 401),
        ("", 401),
    ],
)
async def test_verdicts(reviewer, header, status):
    """Only a token that is accepted and allowed passes."""
    assert await reviewer.verdict(header, "get", "/metrics") == status


async def test_the_access_review_has_the_user_and_the_path(reviewer, authority):
    """The user is that of the token review; path and verb are those of the request."""
    await reviewer.verdict("Bearer good", "get", "/metrics")

    assert authority.reviews[1] == (
        "subjectaccessreviews",
        {
            "user": "good",
            "uid": "",
            "groups": ["g"],
            "extra": {"k": ["v"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        },
    )


@pytest.mark.parametrize(("token", "lasts_s"), [("good", 60), ("poor", 10), ("stranger", 10)])
async def test_verdicts_are_cached(reviewer, authority, clock, token, lasts_s):
    """A review is requested once, and again when the verdict has expired."""
    for _ in range(5):
        await reviewer.verdict(f"Bearer {token}", "get", "/metrics")
    first = len(authority.reviews)
    clock.advance(lasts_s - 0.1)
    await reviewer.verdict(f"Bearer {token}", "get", "/metrics")
    within = len(authority.reviews)
    clock.advance(0.2)
    await reviewer.verdict(f"Bearer {token}", "get", "/metrics")

    assert first == within
    assert len(authority.reviews) == 2 * first


async def test_an_outage_admits_no_new_client_and_is_not_cached(reviewer, authority):
    """Without the API server the answer is 503, except for clients with a cached verdict."""
    await reviewer.verdict("Bearer good", "get", "/metrics")
    authority.down = True
    known = await reviewer.verdict("Bearer good", "get", "/metrics")
    unknown = await reviewer.verdict("Bearer poor", "get", "/metrics")
    authority.down = False

    assert (known, unknown) == (200, 503)
    assert await reviewer.verdict("Bearer poor", "get", "/metrics") == 403


async def test_the_number_of_cached_verdicts_is_bounded(reviewer):
    """Guessed tokens do not fill the memory."""
    for number in range(MAX_REMEMBERED + 10):
        await reviewer.verdict(f"Bearer {number}", "get", "/metrics")

    assert len(reviewer._refused) == MAX_REMEMBERED


async def test_a_flood_of_guesses_does_not_delay_a_known_token(reviewer, authority, clock):
    """Neither its cached verdict nor its next review waits for them."""
    assert await reviewer.verdict("Bearer good", "get", "/metrics") == 200
    for number in range(MAX_REMEMBERED + 10):
        await reviewer.verdict(f"Bearer {number}", "get", "/metrics")
    before = len(authority.reviews)
    assert await reviewer.verdict("Bearer good", "get", "/metrics") == 200
    assert len(authority.reviews) == before

    clock.advance(61)
    quick, authority.answers = authority.answers, asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        guesses = [
            tasks.create_task(reviewer.verdict(f"Bearer x{number}", "get", "/metrics"))
            for number in range(MAX_WAITING + 10)
        ]
        await asyncio.sleep(0.1)
        late, authority.answers = authority.answers, quick
        async with asyncio.timeout(1):
            assert await reviewer.verdict("Bearer good", "get", "/metrics") == 200
        late.set()
    assert [guess.result() for guess in guesses].count(503) == 10


async def fetch(port, context, token=""):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://127.0.0.1:{port}/metrics", ssl=context, headers=headers) as answer,
    ):
        return answer.status, await answer.text(), dict(answer.headers)


def trusting():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def test_metrics_over_tls(reviewer):
    """Metrics are served with a self-made certificate, to authorized clients, without HTTP/2."""
    registry = CollectorRegistry()
    Counter("things_total", "Things.", registry=registry).inc(3)
    source, policy = SelfSignedSource(("metrics",)), TlsPolicy(tls13_only=True)
    certificates = CertificateManager(source, server="metrics", period_s=60, policy=policy)
    routes = [metrics_route([registry], reviewer)]
    async with listening(routes, ("127.0.0.1", 0)) as server, serving(server, certificates):
        port = server.port

        async def accepts() -> bool:  # connections are refused until there is a certificate
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.transport.abort()
                return True
            return False

        await eventually(accepts)
        good = await fetch(port, trusting(), "good")
        poor = await fetch(port, trusting(), "poor")
        anonymous = await fetch(port, trusting())
        old = trusting()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(aiohttp.ClientConnectorError):
            await fetch(port, old, "good")
        both = trusting()
        both.set_alpn_protocols(["h2", "http/1.1"])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=both)
        chosen = writer.get_extra_info("ssl_object").selected_alpn_protocol()
        writer.transport.abort()
        assert reader is not None

    assert (good[0], "things_total 3.0" in good[1]) == (200, True)
    assert (poor[0], "things_total" in poor[1]) == (403, False)
    assert (anonymous[0], anonymous[2]["WWW-Authenticate"]) == (401, "Bearer")
    assert chosen == "http/1.1"


async def test_a_self_made_certificate_is_renewed_before_it_expires():
    """It is kept while it is valid, and replaced 90 days before it expires."""
    clock = aio.ManualClock()
    source = SelfSignedSource(("metrics",), clock)
    made = await source.renew()
    first = await source.current()
    kept = not await source.renew()
    clock.advance(timedelta(days=276).total_seconds())
    again = await source.renew()

    assert (made, kept, again) == (True, True, True)
    assert first != await source.current()
