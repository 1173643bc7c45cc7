"""The webhook server: envelope, limits, deadlines, certificates that change while it serves."""

import asyncio
import base64
import json
import ssl
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from jobsetpy import aio
from jobsetpy.admission._handlers import invalid_jobset
from jobsetpy.errors import NotSyncedError
from jobsetpy.observability import metrics
from jobsetpy.reconcilers.rules.field_errors import invalid, plain
from jobsetpy.serving import review, x509
from jobsetpy.serving.certificates import CertificateManager, FileSource
from jobsetpy.serving.http import listening, serving
from jobsetpy.serving.review import ALLOWED, Answer, ReviewRequest
from jobsetpy.serving.review_routes import deadline, routes
from jobsetpy.serving.tls import TlsMaterial, TlsPolicy
from support.patience import eventually

LOOPBACK = ("127.0.0.1", 0)
REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}


def body(**request) -> bytes:
    return json.dumps({**REVIEW, "request": {"uid": "u1", **request}}).encode()


@pytest.fixture(scope="module")
def authority():
    """An authority that is valid now, because TLS checks the clock."""
    return x509.new_authority(datetime.now(UTC))


@pytest.fixture(scope="module")
def pair(authority):
    return x509.new_serving(authority, ["127.0.0.1", "svc.ns.svc"], datetime.now(UTC))


# ---- envelope


def test_decode_request():
    """A request has the fields that handlers use; its objects may be any JSON."""
    request = review.decode(body(operation="UPDATE", namespace="ns", object={"a": 1}, oldObject=3))
    assert request == ReviewRequest("u1", "UPDATE", "ns", "", {"a": 1}, 3)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        json.dumps(REVIEW).encode(),
        json.dumps(
            {**REVIEW, "apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "u"}}
        ).encode(),
    ],
)
def test_undecodable(data):
    """Anything but an AdmissionReview v1 raises the same error."""
    with pytest.raises(ValueError, match="AdmissionReview"):
        review.decode(data)


def test_encode_patch():
    """Patches are base64 in the answer."""
    patch = [{"op": "add", "path": "/a", "value": 1}]
    response = json.loads(review.encode("u1", Answer(patch=patch)))["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == (
        "u1",
        True,
        "JSONPatch",
    )
    assert json.loads(base64.b64decode(response["patch"])) == patch
    assert json.loads(review.encode("u1", ALLOWED))["response"] == {"uid": "u1", "allowed": True}


def test_encode_warnings():
    """Warnings of an allowed request are in the answer, which the API server passes on."""
    response = json.loads(review.encode("u1", Answer(warnings=["a: b"])))["response"]

    assert response == {"uid": "u1", "allowed": True, "warnings": ["a: b"]}


def test_invalid_form():
    """Several problems are in brackets, each text once; every problem is a cause."""
    problem, other = invalid("spec.a", "x", "bad"), plain("wrong")
    single = invalid_jobset({"metadata": {"name": "js"}}, [problem]).status
    assert (
        single["message"]
        == 'JobSet.jobset.x-k8s.io "js" is invalid: spec.a: Invalid value: "x": bad'
    )
    several = invalid_jobset({}, [problem, other, other]).status
    assert several["message"] == (
        'JobSet.jobset.x-k8s.io "" is invalid: [spec.a: Invalid value: "x": bad, '
        "<nil>: Internal error: wrong]"
    )
    assert (
        several["details"]["causes"][1:]
        == [{"reason": "InternalError", "message": "Internal error: wrong", "field": "<nil>"}] * 2
    )
    assert (several["code"], several["reason"]) == (422, "Invalid")


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [("", 9.0), ("10s", 9.0), ("5s", 4.5), ("0.2s", 0.1), ("1h", 9.0), ("x", 9.0), ("30s", 9.0)],
)
def test_deadline(timeout, seconds):
    """The deadline is a little shorter than the caller's timeout, and at most the limit."""
    assert deadline(timeout, 9.0) == seconds


# ---- server


async def allow(request: ReviewRequest) -> Answer:
    return ALLOWED


async def never(request: ReviewRequest) -> Answer:
    await asyncio.Event().wait()
    return ALLOWED


async def unsynced(request: ReviewRequest) -> Answer:
    raise NotSyncedError("pods")


async def broken(request: ReviewRequest) -> Answer:
    raise KeyError("x")


PANICS = "controller_runtime_webhook_panics_total"


def count(name: str) -> float:
    return metrics.REGISTRY.get_sample_value(name) or 0.0


@pytest.fixture
async def call(authority, pair):
    """Function that posts to a server on loopback, over verified TLS."""
    context = TlsPolicy().new_context(TlsMaterial(pair))
    made = routes(
        {"/ok": allow, "/slow": never, "/unsynced": unsynced, "/broken": broken},
        body_limit=2000,
        deadline_s=0.2,
    )
    trust = ssl.create_default_context(cadata=authority.certificate.decode())
    async with listening(made, LOOPBACK) as server, aiohttp.ClientSession() as session:
        await server.use(context)

        async def post(path: str, data: bytes) -> tuple[int, str]:
            url = f"https://127.0.0.1:{server.port}{path}"
            async with session.post(url, data=data, ssl=trust) as answer:
                return answer.status, await answer.text()

        yield post


@pytest.mark.parametrize(
    ("path", "data", "panics"),
    [("/broken", body(), 1), ("/unsynced", body(), 0)],
    ids=["admission", "expected"],
)
async def test_panics_are_counted_when_a_handler_raises(call, path, data, panics):
    """Under the name of controller-runtime; an expected error is none."""
    before = count(PANICS)
    assert (await call(path, data))[0] == 500

    assert count(PANICS) - before == panics


@pytest.mark.parametrize(
    ("path", "data", "status"),
    [
        ("/ok", body(), 200),
        ("/ok", b"nonsense", 400),
        ("/ok", body(object="x" * 3000), 413),
        ("/slow", body(), 504),
        ("/unsynced", body(), 500),
        ("/other", body(), 404),
    ],
)
async def test_answers(call, path, data, status):
    """Each request is answered in time, with the right status."""
    found, text = await call(path, data)
    assert found == status
    if status == 200:
        assert json.loads(text)["response"]["allowed"] is True


# ---- certificates


def test_issued_certificates(authority, pair):
    """A certificate is usable only for its names, with its key and its authority."""
    now = datetime.now(UTC)
    assert x509.authority_usable(authority, now)
    assert x509.serving_usable(pair, authority.certificate, ["svc.ns.svc"], now)
    assert not x509.serving_usable(pair, authority.certificate, ["other.ns.svc"], now)
    assert not x509.authority_usable(pair, now)
    other = x509.new_authority(now)
    assert not x509.serving_usable(pair, other.certificate, ["svc.ns.svc"], now)
    mixed = x509.KeyPair(pair.certificate, other.key)
    assert not x509.serving_usable(mixed, authority.certificate, ["svc.ns.svc"], now)


@pytest.mark.parametrize(
    ("after", "usable"),
    [
        (timedelta(0), True),
        (x509.SERVING_LIFETIME - x509.RENEW_BEFORE - timedelta(hours=1), True),
        (x509.SERVING_LIFETIME - x509.RENEW_BEFORE + timedelta(hours=1), False),
        (-timedelta(hours=2), False),
    ],
)
def test_certificates_are_renewed_in_time(authority, pair, after, usable):
    """A certificate is unusable before its begin, and well before its end."""
    now = datetime.now(UTC) + after
    assert x509.serving_usable(pair, authority.certificate, ["svc.ns.svc"], now) is usable


@pytest.mark.parametrize(
    "junk", [b"", b"x", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_invalid_certificates_are_unusable(authority, pair, junk):
    """Invalid stored data is replaced, and causes no error."""
    now = datetime.now(UTC)
    assert not x509.authority_usable(x509.KeyPair(junk, authority.key), now)
    assert not x509.authority_usable(x509.KeyPair(authority.certificate, junk), now)
    assert not x509.serving_usable(
        x509.KeyPair(pair.certificate, junk), authority.certificate, [], now
    )
    assert x509.bundle(authority.certificate, junk, now) == authority.certificate


async def test_files_are_reloaded(tmp_path, authority, pair):
    """New certificate files are used without a restart, unusable ones are ignored."""
    certificates = CertificateManager(FileSource(tmp_path), server="webhooks", period_s=0.01, backoff=lambda: aio.Backoff(base=0.01, cap=0.01))  # fmt: skip
    trust = ssl.create_default_context(cadata=authority.certificate.decode())

    def write(what: x509.KeyPair) -> None:
        (tmp_path / "tls.crt").write_bytes(what.certificate)
        (tmp_path / "tls.key").write_bytes(what.key)

    async def shown(port: int) -> bytes:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        writer.close()
        return ssl.DER_cert_to_PEM_cert(
            writer.get_extra_info("ssl_object").getpeercert(True)
        ).encode()

    made = routes({"/ok": allow}, body_limit=1000, deadline_s=1)
    reads = count("certwatcher_read_certificate_total")
    errors = count("certwatcher_read_certificate_errors_total")
    async with listening(made, LOOPBACK) as server, serving(server, certificates):
        await eventually(lambda: "tls.crt" in "".join(certificates.problems()))
        assert not server.serves
        assert count("certwatcher_read_certificate_errors_total") > errors
        with pytest.raises(ConnectionRefusedError):  # and not a handshake without an answer
            await asyncio.open_connection("127.0.0.1", server.port)
        write(pair)
        await eventually(lambda: not list(certificates.problems()))
        assert await shown(server.port) == pair.certificate
        new = x509.new_serving(authority, ["127.0.0.1"], datetime.now(UTC))
        for name, data in (("key", b"half a file"), ("key", new.key), ("crt", b"nonsense")):
            (tmp_path / f"tls.{name}").write_bytes(data)
            await asyncio.sleep(0.05)
            assert await shown(server.port) == pair.certificate
            assert list(certificates.problems()) == []
        write(new)

        async def exchanged() -> bool:
            return await shown(server.port) == new.certificate

        await eventually(exchanged)
        assert count("certwatcher_read_certificate_total") - reads > 5


@pytest.mark.parametrize(
    ("later", "problem"),
    [
        (timedelta(0), ""),
        (x509.SERVING_LIFETIME - timedelta(minutes=1), ""),
        (x509.SERVING_LIFETIME + timedelta(minutes=1), "the certificate ended at "),
        (-timedelta(hours=2), "the certificate is not valid before "),
    ],
)
async def test_a_certificate_outside_its_validity_is_reported(tmp_path, pair, later, problem):
    """The process is not ready until there is a valid certificate."""
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    clock = aio.ManualClock(datetime.now(UTC) + later)
    certificates = CertificateManager(
        FileSource(tmp_path), server="webhooks", period_s=0.01, clock=clock
    )
    assert list(certificates.problems()) == ["there is no certificate yet"]
    async with listening([], LOOPBACK) as server, serving(server, certificates):

        def settled() -> bool:
            return "yet" not in "".join(certificates.problems())

        await eventually(settled)

        assert "".join(certificates.problems()).startswith(problem)
        assert bool(problem) is bool(list(certificates.problems()))
        gauge = "server_certificate_expiration_timestamp_seconds"
        ends = metrics.REGISTRY.get_sample_value(gauge, {"server": "webhooks"})
        assert ends == x509.lifetime(pair).ends.timestamp()


async def test_a_draining_server_closes_each_connection_after_an_answer(authority, pair):
    """Each answer is complete; the client's next request may go to another server."""
    leaving = asyncio.Event()
    answers = routes({"/ok": allow}, body_limit=2000, deadline_s=1)
    trust = ssl.create_default_context(cadata=authority.certificate.decode())
    made, found = [], []

    async def count(*_):
        made.append(1)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(count)
    async with (
        listening(answers, LOOPBACK, draining=leaving.is_set) as server,
        aiohttp.ClientSession(trace_configs=[trace]) as session,
    ):
        await server.use(TlsPolicy().new_context(TlsMaterial(pair)))
        for leaves in (False, False, True, True):
            if leaves:
                leaving.set()
            url = f"https://127.0.0.1:{server.port}/ok"
            async with session.post(url, data=body(), ssl=trust) as answer:
                assert answer.status == 200
                found.append((answer.headers.get("Connection"), len(made)))

    assert found == [(None, 1), (None, 1), ("close", 1), ("close", 2)]
