"""Retries, deadlines, credentials and limits of one call, in virtual time."""

import asyncio

import pytest

from jobsetpy.aio import Backoff
from jobsetpy.api.core import ConfigMap
from jobsetpy.client import Client, HttpRequest, HttpResponse
from jobsetpy.client._retry import (
    MAX_RETRIES,
    MAX_RETRY_AFTER_RETRIES,
    Safety,
    is_retryable,
    wait_after,
)
from jobsetpy.client._send import target_of
from jobsetpy.errors import (
    ApiTimeoutError,
    ConflictError,
    ConnectFailedError,
    ForbiddenError,
    NotFoundError,
    RetryableApiError,
    StreamBrokenError,
    TransportError,
    UnauthorizedError,
)

pytestmark = pytest.mark.looptime

OK = HttpResponse(200, {}, b'{"metadata": {"name": "a"}}')
BODY = {"metadata": {"name": "a"}}


def failed(status, retry_after=None):
    """Return an answer with a status."""
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return HttpResponse(status, headers, b"{}")


def error(status, retry_after=None):
    """Return the exception for such an answer."""
    made = RetryableApiError(status)
    made.retry_after = retry_after
    return made


CALLS = {
    "get": lambda c: c.get(ConfigMap, "n", "a"),
    "list": lambda c: c.list_page(ConfigMap),
    "create": lambda c: c.create(ConfigMap, "n", BODY),
    "replace": lambda c: c.replace(ConfigMap, "n", "a", BODY),
    "merge_patch": lambda c: c.merge_patch(ConfigMap, "n", "a", BODY),
    "json_patch": lambda c: c.json_patch(ConfigMap, "n", "a", []),
    "apply": lambda c: c.apply(ConfigMap, "n", "a", BODY, owner="me"),
    "delete": lambda c: c.delete(ConfigMap, "n", "a"),
    "raw GET": lambda c: c.raw(HttpRequest(method="GET", path="/readyz")),
    "raw POST": lambda c: c.raw(HttpRequest(method="POST", path="/x")),
}
READS = {"get", "list", "raw GET"}


@pytest.mark.parametrize(
    ("failure", "read", "create", "write"),
    [
        (error(429), True, True, True),
        (error(429, 1.0), True, True, True),
        (error(503, 1.0), True, True, True),
        (ConnectFailedError(), True, True, True),
        (error(503), True, False, False),
        (error(500), True, False, False),
        (error(500, 1.0), True, False, False),
        (error(504), True, False, False),
        (StreamBrokenError(), True, False, False),
        (ApiTimeoutError(), False, False, False),
        (TransportError(), False, False, False),
        (NotFoundError(404), False, False, False),
        (ConflictError(409), False, False, False),
        (ForbiddenError(403), False, False, False),
        (UnauthorizedError(401), False, False, False),
    ],
)
def test_retry_depends_on_the_safety_of_a_repetition(failure, read, create, write):
    """The table is complete."""
    found = [is_retryable(failure, safety) for safety in Safety]

    assert found == [read, create, write]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("failure", [failed(429, "1"), failed(503, "1"), ConnectFailedError("x")])
async def test_every_call_is_retried_when_it_was_not_started(call, failure, scripted, looptime):
    """It was rejected before any work, or had no connection."""
    transport = scripted(failure, failure, OK)
    await CALLS[call](Client(transport))

    assert len(transport.requests) == 3


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("failure", [failed(500), failed(503), StreamBrokenError("cut")])
async def test_only_reads_are_retried_when_they_may_have_been_done(
    call, failure, scripted, looptime
):
    """A create or a patch that may have arrived is not sent twice."""
    transport = scripted(failure, OK)
    if call in READS:
        await CALLS[call](Client(transport))
        assert len(transport.requests) == 2
    else:
        with pytest.raises((RetryableApiError, StreamBrokenError)):
            await CALLS[call](Client(transport))
        assert len(transport.requests) == 1


async def test_retry_after_is_a_minimum(scripted, looptime):
    """Jitter is added to the server's waiting time."""
    transport = scripted(failed(429, "3"), failed(429, "5"), OK)
    await Client(transport, rand=lambda: 0.5).get(ConfigMap, "n", "a")
    waits = [b - a for a, b in zip(transport.times, transport.times[1:], strict=False)]

    assert [round(wait, 3) for wait in waits] == [3.05, 5.1]


async def test_backoff_doubles_without_a_hint(scripted, looptime):
    """After the last retry the failure is raised."""
    transport = scripted(*[failed(500)] * 10)
    with pytest.raises(RetryableApiError):
        await Client(transport, rand=lambda: 1.0).get(ConfigMap, "n", "a")
    waits = [b - a for a, b in zip(transport.times, transport.times[1:], strict=False)]

    assert len(waits) == MAX_RETRIES
    assert [round(wait, 3) for wait in waits] == [0.1, 0.2, 0.4, 0.8, 1.6]


def test_number_of_requested_retries_is_bounded():
    """A server may not postpone a call for ever."""
    backoff, refused = Backoff(rand=lambda: 0.0), error(429, 1.0)
    waits = [
        wait_after(refused, Safety.READ, backoff, 1e9) for _ in range(MAX_RETRY_AFTER_RETRIES + 1)
    ]

    assert waits == [1.0] * MAX_RETRY_AFTER_RETRIES + [None]


async def test_wait_beyond_the_deadline_is_not_begun(scripted, looptime):
    """The failure is raised immediately, instead of a timeout later."""
    transport = scripted(failed(429, "20"))
    with pytest.raises(RetryableApiError) as caught:
        await Client(transport).get(ConfigMap, "n", "a", timeout_s=10)

    assert caught.value.retry_after == 20
    assert looptime == 0


async def test_deadline_bounds_all_attempts_together(scripted, looptime):
    """Each attempt gets the time that is left."""
    transport = scripted((4, failed(500)), (4, failed(500)), (99, OK))
    with pytest.raises(ApiTimeoutError):
        await Client(transport, rand=lambda: 0.0).get(ConfigMap, "n", "a", timeout_s=10)

    assert looptime == 10
    assert [request.timeout_s for request in transport.requests] == pytest.approx([10, 6, 2])


async def test_call_without_a_deadline_has_the_clients(scripted, looptime):
    """It covers the whole call."""
    transport = scripted((99, OK))
    with pytest.raises(ApiTimeoutError):
        await Client(transport, timeout_s=7).create(ConfigMap, "n", BODY)

    assert looptime == 7


@pytest.mark.parametrize("call", CALLS)
async def test_refused_credentials_are_read_again_once(call, scripted, looptime):
    """A rotated token costs one round trip, for writes as well."""
    transport = scripted(failed(401), OK)
    await CALLS[call](Client(transport))

    assert transport.refreshes == 1


async def test_call_refused_with_new_credentials_is_refused(scripted, looptime):
    """They are read again once."""
    transport = scripted(failed(401), failed(401))
    with pytest.raises(UnauthorizedError):
        await Client(transport).get(ConfigMap, "n", "a")

    assert (transport.refreshes, len(transport.requests)) == (1, 2)


async def test_reading_credentials_is_within_the_deadline(scripted, looptime):
    """A login that hangs does not block its caller."""
    transport = scripted(failed(401))

    async def hang():
        await asyncio.sleep(1000)

    transport.refresh_credentials = hang
    with pytest.raises(ApiTimeoutError):
        await Client(transport).get(ConfigMap, "n", "a", timeout_s=5)

    assert looptime == 5


async def test_wait_for_the_rate_limit_is_within_the_deadline(scripted, looptime):
    """A call that has to wait longer is not sent."""
    transport = scripted(OK)
    client = Client(transport, qps=0.1, burst=1)
    await client.get(ConfigMap, "n", "a")
    with pytest.raises(ApiTimeoutError, match="rate limit"):
        await client.get(ConfigMap, "n", "a", timeout_s=3)

    assert looptime == 3
    assert len(transport.requests) == 1


async def test_observer_is_notified_of_every_attempt(scripted, looptime, observer):
    """Failures, retries and waits for the limit count; objects are not named."""
    transport = scripted((1, failed(429)), StreamBrokenError("cut"), OK, OK)
    client = Client(transport, qps=1, burst=3, observer=observer, rand=lambda: 0.0)
    await client.get(ConfigMap, "n", "secret-name")
    await client.merge_patch(ConfigMap, "n", "a", BODY, subresource="status")

    assert observer.seen == [
        ("get", "configmaps", 429, 1.0),
        ("get", "configmaps", None, 0.0),
        ("get", "configmaps", 200, 0.0),
        ("patch", "configmaps/status", 200, 0.0),
    ]


async def test_cancelled_call_is_not_retried(scripted, looptime):
    """Its exception is not translated."""
    transport = scripted((100, OK))
    task = asyncio.create_task(Client(transport, timeout_s=1000).get(ConfigMap, "n", "a"))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/namespaces/n/pods/a", "pods n/a"),
        ("/api/v1/namespaces/n/pods/a/status", "pods/status n/a"),
        ("/api/v1/namespaces/n/pods", "pods in n"),
        ("/api/v1/pods", "pods"),
        ("/apis/batch/v1/namespaces/n/jobs/a", "jobs n/a"),
        ("/apis/x.io/v1/nodes/a", "nodes a"),
        ("/api/v1/namespaces/n", "namespaces n"),
        ("/readyz", "/readyz"),
        ("/api", "/api"),
    ],
)
def test_targets_are_readable(path, expected):
    """Errors name the request's resource and object."""
    assert expected == target_of(HttpRequest(method="GET", path=path))
