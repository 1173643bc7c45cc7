"""Contract: start, events and end of watches."""

import asyncio
from typing import Any

import pytest

from support import patience
from support.contract_kit import Api, brief, define, definition

END = "k8s.io/initial-events-end"
STREAMING = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


def version(event: dict) -> int:
    return int(event["object"]["metadata"]["resourceVersion"])


async def test_events_after_a_version(api: Api) -> None:
    """A watch from a version sends the events since then, and then the following ones."""
    first = await api.make_pod("a")
    second = await api.make_pod("b")

    async with api.watch(api.pods, resourceVersion=first.version) as events:
        past = await events.next()
        patched = await api.merge(f"{api.pods}/a", {"metadata": {"labels": {"x": "y"}}})
        live = await events.next()

    assert (events.status, events.headers["Content-Type"]) == (200, "application/json")
    assert brief(past) == ("ADDED", "b")
    assert past["object"] == second.body
    assert brief(live) == ("MODIFIED", "a")
    assert live["object"] == patched.body


async def test_history_is_replayed_event_by_event(api: Api) -> None:
    """The past is not compacted: every change is sent, in the order of versions."""
    made = await api.make("a")
    path = f"{api.configmaps}/a"
    await api.merge(path, {"data": {"k": "1"}})
    await api.merge(path, {"data": {"k": "2"}})
    await api.delete(path)
    await api.make("a")

    async with api.watch(api.configmaps, resourceVersion=made.version) as events:
        found = [await events.next() for _ in range(4)]

    assert [event["type"] for event in found] == ["MODIFIED", "MODIFIED", "DELETED", "ADDED"]
    assert [version(event) for event in found] == sorted(map(version, found))


@pytest.mark.parametrize("start", [{}, {"resourceVersion": "0"}], ids=["none", "zero"])
async def test_start_without_a_version(api: Api, start: dict) -> None:
    """Without a version the existing objects come first, as ADDED."""
    await api.make_pod("b")
    await api.make_pod("a")
    await api.merge(f"{api.pods}/a", {"metadata": {"labels": {"x": "y"}}})
    await asyncio.sleep(0 if api.is_fake else 0.3)  # version 0 may be served from an old cache

    async with api.watch(api.pods, **start) as events:
        present = await events.take(2)
        await api.make_pod("c")
        live = await events.take(1)

    assert sorted(present) == [("ADDED", "a"), ("ADDED", "b")]
    assert live == [("ADDED", "c")]


async def test_streaming_list(api: Api) -> None:
    """With sendInitialEvents: the existing objects, a marked bookmark, then the following events."""
    await api.make_pod("a")
    last = await api.make_pod("b")

    async with api.watch(api.pods, **STREAMING) as events:
        present = await events.take(2)
        bookmark = await events.next()
        await api.make_pod("c")
        live = await events.next()

    assert sorted(present) == [("ADDED", "a"), ("ADDED", "b")]
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == "Pod"
    assert bookmark["object"]["metadata"]["annotations"] == {END: "true"}
    assert version(bookmark) >= int(last.version)
    assert brief(live) == ("ADDED", "c")
    assert version(live) > version(bookmark)


async def test_streaming_list_of_nothing(api: Api) -> None:
    """The bookmark is sent even if there is no object."""
    async with api.watch(api.pods, **STREAMING) as events:
        bookmark = await events.next()

    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {END: "true"}


async def test_streaming_list_with_selector(api: Api) -> None:
    """Selectors apply to initial events."""
    await api.make_pod("a", labels={"x": "y"})
    await api.make_pod("b")

    async with api.watch(api.pods, labelSelector="x=y", **STREAMING) as events:
        found = await events.take(1)
        bookmark = await events.next()

    assert found == [("ADDED", "a")]
    assert bookmark["type"] == "BOOKMARK"


async def test_streaming_list_not_older_than(api: Api) -> None:
    """A version with sendInitialEvents is a lower bound, not a start."""
    made = await api.make_pod("a")

    async with api.watch(api.pods, resourceVersion=made.version, **STREAMING) as events:
        found = await events.take(1)
        bookmark = await events.next()

    assert found == [("ADDED", "a")]
    assert version(bookmark) >= int(made.version)


async def test_bookmarks_make_a_plain_watch_a_streaming_list(api: Api) -> None:
    """A watch without version that accepts bookmarks gets the marked bookmark, too."""
    await api.make_pod("a")

    async with api.watch(api.pods, resourceVersion="0", allowWatchBookmarks="true") as events:
        found = [await events.next(), await events.next()]

    assert {event["type"] for event in found} >= {"BOOKMARK"}
    assert found[-1]["object"]["metadata"].get("annotations") == {END: "true"}


async def test_no_initial_events(api: Api) -> None:
    """With sendInitialEvents=false only the following events are sent."""
    await api.make_pod("a")

    query = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}
    async with api.watch(api.pods, **query) as events:
        await api.make_pod("b")
        found = await events.take(1)

    assert found == [("ADDED", "b")]


async def test_end_at_the_timeout(api: Api) -> None:
    """timeoutSeconds ends the stream cleanly, with the end of the chunked response."""
    made = await api.make_pod("a")

    async with (
        patience.timeout(10),
        api.watch(api.pods, resourceVersion=made.version, timeoutSeconds=1) as events,
    ):
        found = await events.rest()

    assert found == []


@pytest.mark.slow
async def test_bookmarks_have_the_version_of_events_that_were_not_sent(api: Api) -> None:
    """A bookmark before the end has the version of changes that did not match."""
    made = await api.make_pod("a")

    query = {"allowWatchBookmarks": "true", "labelSelector": "none", "timeoutSeconds": 4}
    async with (
        patience.timeout(15),
        api.watch(api.pods, resourceVersion=made.version, **query) as events,
    ):
        unseen = await api.make_pod("b")
        found = await events.rest()

    assert found != []
    assert {event["type"] for event in found} == {"BOOKMARK"}
    assert version(found[-1]) >= int(unseen.version)
    assert "annotations" not in found[-1]["object"]["metadata"]


@pytest.mark.slow
async def test_watch_from_the_future_is_silent(api: Api) -> None:
    """It is accepted, and shows neither changes nor bookmarks of the versions up to its own."""
    made = await api.make_pod("a")

    query = {"allowWatchBookmarks": "true", "timeoutSeconds": 5}
    future = int(made.version) + 1_000_000
    async with (
        patience.timeout(15),
        api.watch(api.pods, resourceVersion=str(future), **query) as events,
    ):
        await api.make_pod("b")
        found = await events.rest()

    assert (events.status, found) == (200, [])


@pytest.mark.slow
async def test_no_bookmarks_unless_requested(api: Api) -> None:
    """Without allowWatchBookmarks none is sent."""
    made = await api.make_pod("a")

    async with (
        patience.timeout(15),
        api.watch(api.pods, resourceVersion=made.version, timeoutSeconds=3) as events,
    ):
        await api.make_pod("b")
        found = await events.rest()

    assert [brief(event) for event in found] == [("ADDED", "b")]


async def test_objects_that_start_and_stop_matching(api: Api) -> None:
    """Under a selector an object appears with ADDED and disappears with DELETED."""
    made = await api.make("a", labels={"x": "no"})
    path = f"{api.configmaps}/a"

    async def label(value: str, **data: str) -> None:
        await api.merge(path, {"metadata": {"labels": {"x": value}}, "data": data})

    query = {"resourceVersion": made.version, "labelSelector": "x=yes"}
    async with api.watch(api.configmaps, **query) as events:
        await label("yes", k="1")
        await label("yes", k="2")
        await label("no", k="3")
        await label("no", k="4")
        await label("yes", k="5")
        await api.delete(path)
        found = [await events.next() for _ in range(5)]

    types = [event["type"] for event in found]
    assert types == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    left = found[2]["object"]
    assert (left["metadata"]["labels"], left["data"]) == ({"x": "yes"}, {"k": "2"})
    assert version(found[1]) < version(found[2]) < version(found[3])


async def test_pods_that_leave_a_field_selector(api: Api) -> None:
    """The same for fields: a pod that gets a phase, or a node."""
    made = await api.make_pod("a")

    def watch(phase: str) -> Any:
        selector = f"status.phase={phase}"
        return api.watch(api.pods, resourceVersion=made.version, fieldSelector=selector)

    async with watch("Pending") as pending, watch("Running") as running:
        await api.merge(f"{api.pods}/a/status", {"status": {"phase": "Running"}})
        found = await pending.take(1) + await running.take(1)

    assert found == [("DELETED", "a"), ("ADDED", "a")]


async def test_one_object_by_field_selector(api: Api) -> None:
    """An agent watches its JobSet by name."""
    made = await api.make_widget("a", spec={"size": 1})
    await api.make_widget("b", spec={"size": 1})

    query = {"resourceVersion": made.version, "fieldSelector": "metadata.name=a"}
    async with api.watch(api.widgets, **query) as events:
        await api.merge(f"{api.widgets}/b", {"spec": {"size": 2}})
        await api.merge(f"{api.widgets}/a/status", {"status": {"ready": 1}})
        await api.delete(f"{api.widgets}/a")
        found = await events.take(2)

    assert found == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_watch_over_all_namespaces(api: Api) -> None:
    """Without a namespace the events of all are sent."""
    made = await api.make_widget("a")

    async with api.watch(
        "/apis/contract.example.com/v1/widgets",
        resourceVersion=made.version,
        fieldSelector=f"metadata.namespace={api.ns}",
    ) as events:
        await api.make_widget("b")
        found = await events.take(1)

    assert found == [("ADDED", "b")]


async def test_other_namespaces_are_not_watched(api: Api) -> None:
    """A watch of a namespace sends no events of another one."""
    made = await api.make("a")
    other = "/api/v1/namespaces/default/configmaps"
    await api.post(other, {"metadata": {"name": f"{api.ns}-x"}})
    await api.delete(f"{other}/{api.ns}-x")
    await api.make("b")

    async with api.watch(api.configmaps, resourceVersion=made.version) as events:
        found = await events.take(1)

    assert found == [("ADDED", "b")]


async def test_version_that_is_too_old(api: Api) -> None:
    """The response is 200 with one ERROR event, 410 Expired, and the stream ends."""
    await define(api, definition("gadgets", "Gadget"))
    path = f"/apis/contract.example.com/v1/namespaces/{api.ns}/gadgets"

    async with api.watch(path, resourceVersion="1") as events:
        found = await events.rest()

    assert events.status == 200
    assert [event["type"] for event in found] == ["ERROR"]
    status = found[0]["object"]
    assert (status["kind"], status["status"]) == ("Status", "Failure")
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


async def test_version_from_the_future(api: Api) -> None:
    """A watch from a version that does not exist yet is silent until its end."""
    async with api.watch(api.pods, resourceVersion="999999999", timeoutSeconds=1) as events:
        await api.make_pod("a")
        found = await events.rest()

    assert (events.status, found) == (200, [])


async def test_version_of_another_kind_starts_a_watch(api: Api) -> None:
    """Versions belong to the whole server, so that of a list or of another kind is valid."""
    made = await api.make("a")

    async with api.watch(api.pods, resourceVersion=made.version) as events:
        await api.make_pod("b")
        found = await events.take(1)

    assert found == [("ADDED", "b")]


async def test_list_then_watch_misses_nothing(api: Api) -> None:
    """A watch from a list's version continues exactly there."""
    await api.make_pod("a")
    listed = await api.get(api.pods)
    await api.make_pod("b")
    await api.delete(f"{api.pods}/a")

    async with api.watch(api.pods, resourceVersion=listed.version) as events:
        found = await events.take(3)

    assert listed.names == ["a"]
    assert found == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]


@pytest.mark.parametrize(
    ("query", "failure"),
    [
        ({"fieldSelector": "spec.none=1"}, (400, 400, "BadRequest")),
        ({"labelSelector": "a==="}, (400, 400, "BadRequest")),
    ],
    ids=["field", "label"],
)
async def test_invalid_watch_is_refused(api: Api, query: dict, failure: tuple) -> None:
    """With an ordinary Status."""

    answer = await api.get(api.pods, watch="1", timeoutSeconds=1, **query)

    assert answer.failure == failure
