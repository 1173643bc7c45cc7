"""Requests that ``Client`` sends for each verb, and its use of the answers."""

import msgspec
import pytest

from jobsetpy.api.batch import Job
from jobsetpy.api.core import ConfigMap, Pod
from jobsetpy.client import Client, HttpResponse
from jobsetpy.errors import (
    ConnectFailedError,
    DecodeError,
    ExpiredError,
    RetryableApiError,
    StreamBrokenError,
    UnauthorizedError,
)

OK = HttpResponse(200, {}, b'{"metadata": {"name": "a"}}')
JOBS = "/apis/batch/v1/namespaces/n/jobs"
KIND = {"apiVersion": "batch/v1", "kind": "Job"}
NAMED = {**KIND, "metadata": {"name": "a"}}
JSON, MERGE = "application/json", "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
OPTIONS = {"apiVersion": "v1", "kind": "DeleteOptions"}
SELECTORS = {"label_selector": "a=b", "field_selector": "x", "limit": 5, "continue_token": "t"}
REMOVAL = [{"op": "remove", "path": "/x"}]
CREATOR = {"owner": "me", "force": False, "subresource": "status"}
KNOWN = {"propagation": "Foreground", "uid": "u", "resource_version": "3"}
REQUESTS = [
    (lambda c: c.get(Job, "n", "a"),
     "GET", f"{JOBS}/a", {}, None, None),
    (lambda c: c.list_page(Job),
     "GET", "/apis/batch/v1/jobs", {}, None, None),
    (lambda c: c.list_page(Job, "n", **SELECTORS),
     "GET", JOBS, {"labelSelector": "a=b", "fieldSelector": "x", "limit": "5", "continue": "t"}, None, None),
    (lambda c: c.list_page(Job, resource_version="0"),
     "GET", "/apis/batch/v1/jobs", {"resourceVersion": "0"}, None, None),
    (lambda c: c.create(Job, "n", {"x": 1}),
     "POST", JOBS, {}, {**KIND, "x": 1}, JSON),
    (lambda c: c.replace(Job, "n", "a", {"x": 1}),
     "PUT", f"{JOBS}/a", {}, {**NAMED, "x": 1}, JSON),
    (lambda c: c.merge_patch(Job, "n", "a", {"x": None}, subresource="status"),
     "PATCH", f"{JOBS}/a/status", {}, {"x": None}, MERGE),
    (lambda c: c.json_patch(Job, "n", "a", REMOVAL),
     "PATCH", f"{JOBS}/a", {}, REMOVAL, "application/json-patch+json"),
    (lambda c: c.apply(Job, "n", "a", {"spec": {}}, owner="me"),
     "PATCH", f"{JOBS}/a", {"fieldManager": "me", "force": "true"}, {**NAMED, "spec": {}}, APPLY),
    (lambda c: c.apply(Job, "n", "a", {"kind": "Job"}, **CREATOR),
     "PATCH", f"{JOBS}/a/status", {"fieldManager": "me", "force": "false"}, NAMED, APPLY),
    (lambda c: c.delete(Job, "n", "a"),
     "DELETE", f"{JOBS}/a", {}, OPTIONS | {"propagationPolicy": "Background"}, JSON),
    (lambda c: c.delete(Job, "n", "a", **KNOWN),
     "DELETE", f"{JOBS}/a", {},
     OPTIONS | {"propagationPolicy": "Foreground", "preconditions": {"uid": "u", "resourceVersion": "3"}}, JSON),
]  # fmt: skip


@pytest.mark.parametrize("case", REQUESTS)
async def test_each_verb_is_one_request(case, scripted):
    """Method, path, query, body and content type are those of the REST API."""
    call, method, path, query, body, content_type = case
    transport = scripted(OK)
    await call(Client(transport))
    (request,) = transport.requests

    assert (method, path, query) == (request.method, request.path, dict(request.query))
    if body is None:
        assert request.body is None
    else:
        assert body == msgspec.json.decode(request.body)
        assert content_type == request.content_type


async def test_answers_have_the_class_that_was_passed(scripted):
    """Decoded objects are not plain dictionaries."""
    client: Client = Client(scripted(OK, HttpResponse(201, {}, OK.body)))

    assert isinstance(await client.get(Pod, "n", "a"), Pod)
    assert isinstance(await client.create(ConfigMap, "n", {}), ConfigMap)


async def test_answer_that_does_not_fit_is_a_decode_error(scripted):
    """It is not a transport error and is not retried."""
    transport = scripted(HttpResponse(200, {}, b'{"metadata": 3}'))
    with pytest.raises(DecodeError):
        await Client(transport).get(Pod, "n", "a")

    assert len(transport.requests) == 1


async def test_delete_accepts_any_success(scripted):
    """The answer is the object or a Status, before or after the deletion."""
    client = Client(scripted(HttpResponse(202, {}, b'{"kind": "Status"}')))

    assert await client.delete(Pod, "n", "a") is None


async def test_closing_closes_the_transport(scripted):
    """The client owns its transport."""
    transport = scripted()
    client = Client(transport)
    await client.aclose()

    assert transport.closed
    assert client.transport is transport


# ---- watches --------------------------------------------------------------------------------


def line(kind, name):
    """Return the line of a watch event."""
    return msgspec.json.encode({"type": kind, "object": {"metadata": {"name": name}}}) + b"\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"resource_version": "7"}, {"resourceVersion": "7"}),
        ({"resource_version": ""}, {}),
        (
            {"resource_version": "", "send_initial_events": True},
            {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"},
        ),
        (
            {"resource_version": "7", "label_selector": "a", "field_selector": "b"},
            {"resourceVersion": "7", "labelSelector": "a", "fieldSelector": "b"},
        ),
    ],
)
async def test_watch_requests_bookmarks_and_a_time_limit(options, expected, scripted):
    """Both are part of every watch."""
    transport = scripted(HttpResponse(200, {}, b""))
    async with Client(transport).watch(Pod, "n", timeout_seconds=300, **options):
        pass
    (request,) = transport.requests

    assert request.path == "/api/v1/namespaces/n/pods"
    always = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": "300"}
    assert dict(request.query) == always | expected


async def test_watch_yields_frames_until_its_end(scripted, scripted_stream):
    """They are not decoded; leaving the context closes the stream."""
    body = scripted_stream(
        200, {}, [line("ADDED", "a") + line("MODIFIED", "b"), line("DELETED", "c")]
    )
    client = Client(scripted(body))
    async with client.watch(Pod, resource_version="1", timeout_seconds=300) as watch:
        first = await watch.read()
        second = await watch.read()
        assert await watch.read() == []
        assert not body.closed

    assert [frame.type for frame in [*first, *second]] == ["ADDED", "MODIFIED", "DELETED"]
    assert msgspec.json.decode(second[0].object) == {"metadata": {"name": "c"}}
    assert body.closed


async def test_watch_raises_when_its_connection_breaks(scripted, scripted_stream):
    """A cut connection is not a clean end."""
    body = scripted_stream(200, {}, [line("ADDED", "a"), StreamBrokenError("cut")])
    client = Client(scripted(body))
    async with client.watch(Pod, resource_version="1", timeout_seconds=300) as watch:
        await watch.read()
        with pytest.raises(StreamBrokenError):
            await watch.read()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (HttpResponse(410, {}, b'{"reason": "Expired"}'), ExpiredError),
        (HttpResponse(429, {"retry-after": "2"}, b""), RetryableApiError),
        (HttpResponse(500, {}, b""), RetryableApiError),
        (ConnectFailedError("refused"), ConnectFailedError),
        (StreamBrokenError("cut"), StreamBrokenError),
    ],
)
async def test_refused_watch_is_not_retried_by_the_client(answer, expected, scripted):
    """The watcher decides when to try again and where to resume."""
    transport = scripted(answer)
    with pytest.raises(expected):
        async with Client(transport).watch(Pod, resource_version="1", timeout_seconds=300):
            pass

    assert len(transport.requests) == 1


async def test_refusal_counts_when_its_body_breaks_off(scripted, scripted_stream):
    """The status is enough; the text of the answer may be lost."""
    body = scripted_stream(410, {}, [b'{"kind"', StreamBrokenError("cut")])
    with pytest.raises(ExpiredError):
        async with Client(scripted(body)).watch(Pod, resource_version="1", timeout_seconds=300):
            pass

    assert body.closed


async def test_watch_with_an_old_token_is_opened_with_a_new_one(scripted):
    """A rotated token does not look like a refusal to the watcher."""
    transport = scripted(HttpResponse(401, {}, b""), HttpResponse(200, {}, b""))
    async with Client(transport).watch(Pod, resource_version="1", timeout_seconds=300) as watch:
        assert await watch.read() == []

    assert transport.refreshes == 1


async def test_watch_refused_with_a_new_token_is_refused(scripted):
    """Credentials are read again once."""
    transport = scripted(HttpResponse(401, {}, b""), HttpResponse(401, {}, b""))
    with pytest.raises(UnauthorizedError):
        async with Client(transport).watch(Pod, resource_version="1", timeout_seconds=300):
            pass


async def test_observer_is_notified_of_watches(scripted, observer):
    """A watch counts as one request when it is opened."""
    transport = scripted(HttpResponse(200, {}, b""), ConnectFailedError("x"))
    client = Client(transport, observer=observer)
    async with client.watch(Pod, resource_version="1", timeout_seconds=300):
        pass
    with pytest.raises(ConnectFailedError):
        async with client.watch(Pod, resource_version="1", timeout_seconds=300):
            pass

    found = [(verb, resource, status) for verb, resource, status, _ in observer.seen]
    assert found == [("watch", "pods", 200), ("watch", "pods", None)]


@pytest.mark.looptime
async def test_opening_a_watch_has_a_deadline(scripted, looptime):
    """The wait for the rate limit is part of it."""
    client = Client(scripted(OK), qps=0.01, burst=1)
    await client.get(ConfigMap, "n", "a")
    with pytest.raises(Exception, match="rate limit"):
        async with client.watch(
            Pod, resource_version="1", timeout_seconds=300, connect_timeout_s=4
        ):
            pass

    assert looptime == 4
