"""The agent's tasks together, on a scripted client and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from jobsetpy.agent.protocol.epoch_reporter import EpochReporter
from jobsetpy.agent.protocol.settings import Settings
from jobsetpy.agent.protocol.wire_types import Pod, PodAnnotations, PodMetadata
from jobsetpy.agent.sidecar.sidecar import Agent
from jobsetpy.aio import supervise
from jobsetpy.api import keys
from jobsetpy.client import Page, WatchFrame
from jobsetpy.client._errors import error_from_response
from jobsetpy.errors import (
    ApiTimeoutError,
    ConnectFailedError,
    ExpiredError,
    ForbiddenError,
    NotFoundError,
    RetryableApiError,
    StreamBrokenError,
    UnauthorizedError,
)

EPOCH = "jobset.sigs.k8s.io/epoch"
SETTINGS = Settings(
    namespace="train",
    pod_name="p-0",
    jobset_name="js",
    exit_code=77,
    barrier_port=0,
    barrier_bind_address="127.0.0.1",
    api_host="unused",
)


class Lines:
    """Collects log lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def __call__(self, event: str, /, *, level: str = "info", **fields: object) -> None:
        self.lines.append((event, {"level": level, **fields}))

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.lines]

    def fields(self, event: str) -> dict[str, object]:
        return next(fields for name, fields in self.lines if name == event)


class Stream:
    """A watch whose frames the test pushes."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Sequence[WatchFrame] | Exception] = asyncio.Queue()

    def push(self, *frames: WatchFrame) -> None:
        self._queue.put_nowait(frames)

    def fail(self, error: Exception) -> None:
        self._queue.put_nowait(error)

    async def read(self) -> Sequence[WatchFrame]:
        item = await self._queue.get()
        if isinstance(item, Exception):
            raise item
        return item


class ScriptedClient:
    """The two requests of the agent, answered as the test says."""

    def __init__(self) -> None:
        self.patches: list[tuple[float, dict[str, Any]]] = []
        self.patch_results: list[Exception | None] = []
        self.patch_takes = 0.001
        self.pod = PodMetadata(name="p-0")
        self.watches: list[dict[str, Any]] = []
        self.watch_results: list[Exception | None] = []
        self.stream = Stream()
        self.pages: list[list[dict[str, Any]]] = []

    async def merge_patch(
        self, cls: type[Pod], namespace: str, name: str, body: Mapping[str, Any]
    ) -> Pod:
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(self.patch_takes)
        self.patches.append((now, {"namespace": namespace, "name": name, **body}))
        result = self.patch_results.pop(0) if self.patch_results else None
        if result is not None:
            raise result
        return Pod(self.pod)

    @asynccontextmanager
    async def watch(self, cls: type[Any], namespace: str = "", **how: Any) -> AsyncIterator[Stream]:
        await asyncio.sleep(0.001)
        self.watches.append({"namespace": namespace, **how})
        result = self.watch_results.pop(0) if self.watch_results else None
        if result is not None:
            raise result
        self.stream = Stream()
        yield self.stream

    async def list_page(self, cls: type[Any], namespace: str = "", **how: Any) -> Page[Any]:
        items = [msgspec.convert(item, cls) for item in self.pages.pop(0)]
        return Page(items, "100", "")

    @property
    def annotations(self) -> list[dict[str, str | None]]:
        return [body["metadata"]["annotations"] for _, body in self.patches]

    @property
    def epochs(self) -> list[str | None]:
        return [each[EPOCH] for each in self.annotations]


def jobset(
    version: int, synced: int, deprecated: int, *, uid: str = "u1", strategy: str = "InPlaceRestart"
) -> dict[str, Any]:
    """A JobSet as the API server sends it."""
    status = {"syncedEpoch": synced, "deprecatedEpoch": deprecated}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "js",
            "namespace": "train",
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {"a": "b"},
        },
        "spec": {"failurePolicy": {"restartStrategy": strategy}, "replicatedJobs": []},
        "status": {key: value for key, value in status.items() if value},
    }


def frame(kind: str, data: dict[str, Any]) -> WatchFrame:
    """One line of a watch."""
    return WatchFrame(kind, msgspec.Raw(msgspec.json.encode(data)))


def list_end(version: int) -> WatchFrame:
    """The bookmark that ends a streaming list."""
    mark = {"k8s.io/initial-events-end": "true"}
    metadata = {"resourceVersion": str(version), "annotations": mark}
    return frame("BOOKMARK", {"kind": "JobSet", "metadata": metadata})


class Rig:
    """An agent that runs, with its client and its log."""

    def __init__(self, settings: Settings) -> None:
        self.client = ScriptedClient()
        self.log = Lines()
        self.agent = Agent(settings, self.client, log=self.log)  # type: ignore[arg-type]
        self.task: asyncio.Task[int] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Rig]:
        async with supervise() as tasks:
            self.task = tasks.start(self.agent.run(), name="agent")
            await asyncio.sleep(0.01)
            yield self

    async def sees(self, *frames: WatchFrame) -> None:
        """Push frames and let the agent act on them."""
        self.client.stream.push(*frames)
        await asyncio.sleep(0.01)

    @property
    def lifted(self) -> bool:
        head = b"GET /barrier-is-lifted HTTP/1.1\r\n\r\n"
        return b" 200 " in self.agent._server.answer(head)


@pytest.fixture
def rig() -> Rig:
    """An agent that obeys the first JobSet it sees."""
    return Rig(SETTINGS)


@pytest.mark.looptime
async def test_a_whole_life(rig: Rig) -> None:
    """Join at synced + 1, lift when synced, end with the configured code when deprecated."""
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 2, 2)), list_end(6))
        assert rig.client.epochs == ["3"]
        assert not rig.lifted
        await rig.sees(frame("MODIFIED", jobset(7, 3, 2)))
        assert rig.lifted
        await rig.sees(frame("MODIFIED", jobset(8, 3, 3)))
        assert rig.task is not None
        code = await rig.task

    assert code == 77
    assert rig.client.epochs == ["3"]
    expected = ["started", "joining", "epoch patched", "barrier lifted", "epoch deprecated"]
    assert rig.log.events == expected


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("deadline", "refusals", "ends"),
    [("30s", 100, True), ("30s", 2, False), ("30s", 10, False), ("", 100, False)],
    ids=["given-up", "for-a-moment", "for-minutes", "never-given-up"],
)
async def test_a_token_that_is_refused(rig: Rig, deadline: str, refusals: int, ends: bool) -> None:
    """It is bound to its pod: where pods are given up, a token that stays refused tells that."""
    rig.client.pod = PodMetadata(annotations=PodAnnotations(deadline=deadline))
    with suppress(asyncio.CancelledError):
        async with rig.running():
            await rig.sees(frame("ADDED", jobset(5, 2, 2)), list_end(6))
            await rig.sees(frame("MODIFIED", jobset(7, 3, 2)))
            rig.client.watch_results = [UnauthorizedError(401, "Unauthorized", "no")] * refusals
            rig.client.stream.fail(StreamBrokenError("cut"))
            began = asyncio.get_running_loop().time()
            assert rig.task is not None
            await asyncio.wait([rig.task], timeout=3600)
            assert rig.task.done() is ends
            if ends:
                assert rig.task.result() == 77
                assert 180 <= asyncio.get_running_loop().time() - began <= 240
            else:
                assert not rig.client.watch_results
                rig.task.cancel()


@pytest.mark.looptime
@pytest.mark.parametrize("lifted", [False, True])
async def test_a_defect(rig: Rig, lifted: bool) -> None:
    """Once the worker may run, even a defect of the agent has the whole pod restarted."""
    with suppress(RuntimeError):
        async with rig.running():
            await rig.sees(frame("ADDED", jobset(5, 2, 2)), list_end(6))
            if lifted:
                await rig.sees(frame("MODIFIED", jobset(7, 3, 2)))
            rig.client.stream.fail(RuntimeError("a defect"))
            assert rig.task is not None
            assert await rig.task == 77
    assert rig.task is not None
    assert (rig.task.exception() is None) is lifted
    assert ("failed" in rig.log.events) is lifted


@pytest.mark.looptime
async def test_two_requests_and_no_more(rig: Rig) -> None:
    """A start is one watch of the one JobSet and one patch of the own pod's annotation."""
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        await asyncio.sleep(60)

    [watch] = rig.client.watches
    assert watch["namespace"] == "train"
    assert watch["field_selector"] == "metadata.name=js"
    assert watch["send_initial_events"] is True
    assert watch["resource_version"] == ""
    [(_, patch)] = rig.client.patches
    assert patch == {
        "namespace": "train",
        "name": "p-0",
        "metadata": {"annotations": {EPOCH: "1"}},
    }


@pytest.mark.looptime
async def test_an_incomplete_list_decides_nothing(rig: Rig) -> None:
    """Objects of a list may be stale until its end; only the last state counts, and only then."""
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 1, 1)))
        assert rig.client.epochs == []
        await rig.sees(frame("MODIFIED", jobset(6, 4, 3)))
        assert rig.client.epochs == []
        await rig.sees(list_end(7))

    assert rig.client.epochs == ["5"]


@pytest.mark.looptime
async def test_bounded_silence(rig: Rig) -> None:
    """A watch that dies without a word is replaced, and resumes where it was."""
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        await asyncio.sleep(125)
        assert len(rig.client.watches) == 2
        assert rig.client.watches[1]["resource_version"] == "6"
        await rig.sees(frame("MODIFIED", jobset(8, 1, 0)))
        assert rig.lifted

    assert "watch of the JobSet is silent" in rig.log.events


@pytest.mark.looptime
async def test_bookmarks_keep_the_watch(rig: Rig) -> None:
    """A quiet watch with the server's bookmark each minute costs no requests."""
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        for version in range(7, 12):
            await asyncio.sleep(64)
            await rig.sees(frame("BOOKMARK", {"metadata": {"resourceVersion": str(version)}}))

    assert len(rig.client.watches) == 1


@pytest.mark.looptime
@pytest.mark.parametrize(
    "error",
    [
        ConnectFailedError("refused"),
        ApiTimeoutError("slow"),
        ForbiddenError(403, "Forbidden", "no"),
        RetryableApiError(503, "", "busy"),
        NotFoundError(404, "NotFound", "no such kind yet"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_the_watch_is_tried_for_ever(rig: Rig, error: Exception) -> None:
    """However the first requests fail, the agent joins in the end."""
    rig.client.watch_results = [error] * 20
    rig.client.pages = [[jobset(5, 0, 0)]] * 20
    async with rig.running():
        await asyncio.sleep(1200)
        if not rig.client.epochs:
            await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        await rig.sees(frame("MODIFIED", jobset(107, 1, 0)))
        await asyncio.sleep(1)
        assert rig.lifted

    assert set(rig.client.epochs) == {"1"}


@pytest.mark.looptime
async def test_a_missing_permission_is_named(rig: Rig) -> None:
    """A forbidden watch says which verbs on what are needed, and goes on trying."""
    rig.client.watch_results = [ForbiddenError(403, "Forbidden", "no")]
    async with rig.running():
        await asyncio.sleep(60)
        assert rig.task is not None
        assert not rig.task.done()

    hint = str(rig.log.fields("cannot watch the JobSet")["hint"])
    assert "list and watch on jobsets.jobset.x-k8s.io in namespace train" in hint


@pytest.mark.looptime
@pytest.mark.parametrize("end", [StreamBrokenError("cut"), ExpiredError(410, "Expired", "old")])
async def test_a_watch_that_breaks_loses_nothing(rig: Rig, end: Exception) -> None:
    """After a break or a 410 the agent goes on with the epoch it has."""
    rig.client.pages = [[jobset(9, 1, 0)]]
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        rig.client.stream.fail(end)
        await asyncio.sleep(2)
        if not rig.lifted:
            await rig.sees(frame("ADDED", jobset(9, 1, 0)), list_end(10))
        assert rig.lifted

    assert rig.client.epochs == ["1"]


@pytest.mark.looptime
async def test_a_jobset_that_comes_late(rig: Rig) -> None:
    """No JobSet is no error: the agent says so, waits, and joins when it is there."""
    async with rig.running():
        await rig.sees(list_end(3))
        assert rig.client.epochs == []
        await rig.sees(frame("ADDED", jobset(5, 0, 0)))

    assert rig.client.epochs == ["1"]
    assert rig.log.events.count("no JobSet of this name; waiting") == 1


@pytest.mark.looptime
async def test_a_recreated_jobset_is_ignored(rig: Rig) -> None:
    """Another JobSet of the same name neither lifts the barrier nor ends the agent."""
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        await rig.sees(frame("DELETED", jobset(7, 0, 0)))
        await rig.sees(frame("ADDED", jobset(8, 1, 0, uid="u2")))
        await rig.sees(frame("MODIFIED", jobset(9, 1, 1, uid="u2")))
        assert not rig.lifted
        assert rig.task is not None
        assert not rig.task.done()

    assert rig.client.epochs == ["1"]
    assert rig.log.fields("ignoring another JobSet of this name")["uid"] == "u2"


@pytest.mark.looptime
async def test_the_log_names_the_way_out_when_no_epoch_is_left(rig: Rig) -> None:
    """Only a status that was written by hand leads there; the group would wait for ever."""
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, keys.MAX_EPOCH, 0)), list_end(6))

    (error,) = (event for event, fields in rig.log.lines if fields["level"] == "error")
    assert "delete the JobSet and create it again" in error


@pytest.mark.looptime
async def test_a_jobset_that_does_not_restart_in_place_is_pointed_out(rig: Rig) -> None:
    """Nobody would lift the barrier, so the log says what to set."""
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0, strategy="Recreate")), list_end(6))

    event = "the JobSet does not restart in place: its barrier is never lifted"
    assert "InPlaceRestart" in str(rig.log.fields(event)["hint"])


@pytest.mark.looptime
async def test_the_patch_is_tried_until_it_is_stored(rig: Rig) -> None:
    """An overloaded API server delays the agent and never fails it; then it patches no more."""
    rig.client.patch_results = [
        StreamBrokenError("cut"),
        RetryableApiError(429, "TooManyRequests", "slow down"),
        *[RetryableApiError(503, "", "busy")] * 30,
    ]
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        await asyncio.sleep(3600)

    assert rig.client.epochs == ["1"] * 33
    assert rig.log.events.count("epoch patched") == 1


@pytest.mark.looptime
async def test_a_lost_answer_to_the_patch(rig: Rig) -> None:
    """It is asked again, and the barrier lifts with the answer; then nothing is asked any more."""
    rig.client.patch_results = [ApiTimeoutError("the answer was lost")] * 3
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        await rig.sees(frame("MODIFIED", jobset(7, 1, 0)))
        assert not rig.lifted
        await asyncio.sleep(600)

    assert rig.lifted
    assert rig.client.epochs == ["1"] * 4


@pytest.mark.looptime
@pytest.mark.parametrize("gone", [True, False], ids=["deleted", "being-deleted"])
async def test_no_worker_starts_in_a_pod_that_is_no_more(rig: Rig, gone: bool) -> None:
    """The group is complete at this very epoch, but with the pod that was made in its place."""
    if gone:
        rig.client.patch_results = [NotFoundError(404, "NotFound", "no such pod")] * 100
    else:
        rig.client.pod = PodMetadata(name="p-0", deletion_timestamp="2026-01-01T00:00:00Z")
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        await rig.sees(frame("MODIFIED", jobset(7, 1, 0)))
        await asyncio.sleep(600)

    assert not rig.lifted
    assert len(rig.client.epochs) == 1 or gone


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("deadline", "after_s", "sent"), [("30s", 4, 1), ("30s", 6, 2), ("", 600, 1)]
)
async def test_an_old_answer_says_nothing(rig: Rig, deadline: str, after_s: int, sent: int) -> None:
    """A pod may be given up ten seconds after it was told to end: old answers are asked for anew."""
    rig.client.pod = PodMetadata(annotations=PodAnnotations(deadline=deadline))
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        await asyncio.sleep(after_s)
        await rig.sees(frame("MODIFIED", jobset(7, 1, 0)))
        await asyncio.sleep(1)

    assert rig.lifted
    assert rig.client.epochs == ["1"] * sent


@pytest.mark.looptime
@pytest.mark.parametrize("takes_s", [6.0, 25.0])
async def test_a_worker_starts_though_each_patch_of_its_pod_is_slow(
    rig: Rig, takes_s: float
) -> None:
    """One patch after the lift confirms the pod, however long its answer takes; it is logged."""
    rig.client.pod = PodMetadata(annotations=PodAnnotations(deadline="30s"))
    rig.client.patch_takes = takes_s
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        await asyncio.sleep(takes_s + 60)
        assert not rig.lifted
        await rig.sees(frame("MODIFIED", jobset(7, 1, 0)))
        await asyncio.sleep(2 * takes_s + 1)
        assert rig.lifted
        await asyncio.sleep(600)

    # The one that confirms says that the worker waits, and one more that it no longer does.
    assert rig.client.epochs == ["1", "1", "1"]
    notes = [each.get(keys.SLOW_PATCH_ANNOTATION, "none") for each in rig.client.annotations]
    assert notes == ["none", f"1 {takes_s:.0f}", None]
    assert rig.log.fields("the API server is slow to patch the pod")["seconds"] == takes_s
    assert rig.log.events.count("confirming that the pod exists") == 1


@pytest.mark.looptime
async def test_worker_starts_when_a_policy_does_not_allow_to_report_a_slow_server(rig: Rig) -> None:
    """The policy of an earlier release refuses the annotation: the pod is confirmed without it."""
    rig.client.pod = PodMetadata(annotations=PodAnnotations(deadline="30s"))
    rig.client.patch_takes = 6.0
    rig.client.patch_results = [None, ForbiddenError(403, "Forbidden", "no such annotation")]
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        await asyncio.sleep(60)
        await rig.sees(frame("MODIFIED", jobset(7, 1, 0)))
        await asyncio.sleep(600)
        assert rig.lifted

    notes = [each.get(keys.SLOW_PATCH_ANNOTATION) for each in rig.client.annotations]
    assert notes == [None, "1 6", None]


@pytest.mark.looptime
async def test_a_slow_answer_from_before_the_lift_confirms_nothing(rig: Rig) -> None:
    """The pod may have been given up between the patch and the lift: one more is sent."""
    rig.client.pod = PodMetadata(annotations=PodAnnotations(deadline="30s"))
    rig.client.patch_takes = 6.0
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        await rig.sees(frame("MODIFIED", jobset(7, 1, 0)))
        rig.client.patch_results = [None, NotFoundError(404, "NotFound", "no such pod")]
        rig.client.patch_results += [NotFoundError(404, "NotFound", "no such pod")] * 100
        await asyncio.sleep(600)

    assert not rig.lifted


@pytest.mark.looptime
async def test_pods_of_a_slow_api_server_confirm_spread_over_its_latency() -> None:
    """A group that asked together again would keep the API server slow."""
    began = []
    for draw in (0.0, 0.5, 0.99):
        client, log = ScriptedClient(), Lines()
        client.pod = PodMetadata(annotations=PodAnnotations(deadline="30s"))
        client.patch_takes = 8.0
        async with supervise() as tasks:
            reports = EpochReporter(
                client,  # type: ignore[arg-type]
                namespace="train",
                pod_name="p-0",
                log=log,
                rand=lambda draw=draw: draw,  # type: ignore[misc]
            )
            tasks.start(reports.run(), name="report")
            start = asyncio.get_running_loop().time()
            reports.report(1)
            await asyncio.sleep(10)
            reports.when_confirmed(1, lambda: None)
            await asyncio.sleep(100)
        began.append(round(client.patches[1][0] - start - 10, 2))

    assert began == [0.0, 4.0, 7.92]


@pytest.mark.looptime
async def test_a_pod_that_goes_while_its_group_gathers(rig: Rig) -> None:
    """It had come to the epoch, was given up, and the group is complete with another one."""
    rig.client.pod = PodMetadata(annotations=PodAnnotations(deadline="30s"))
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        assert rig.client.epochs == ["1"]
        await asyncio.sleep(60)
        rig.client.patch_results = [NotFoundError(404, "NotFound", "no such pod")] * 100
        await rig.sees(frame("MODIFIED", jobset(7, 1, 0)))
        await asyncio.sleep(600)

    assert not rig.lifted


@pytest.mark.looptime
async def test_cancelling_ends_it_at_once(rig: Rig) -> None:
    """The agent holds nothing that would have to be waited for."""
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        assert rig.task is not None
        before = asyncio.get_running_loop().time()
        rig.task.cancel()
        with suppress(asyncio.CancelledError):
            await rig.task

    assert asyncio.get_running_loop().time() - before < 0.01


def reporter(client: ScriptedClient, log: Lines) -> EpochReporter:
    """A reporter whose jitter is always one half."""
    return EpochReporter(
        client,  # type: ignore[arg-type]
        namespace="train",
        pod_name="p-0",
        log=log,
        rand=lambda: 0.5,
    )


@pytest.mark.looptime
async def test_retry_after_is_a_minimum() -> None:
    """The server's waiting time comes before the jitter, not in place of it."""
    client, log = ScriptedClient(), Lines()
    busy = RetryableApiError(429, "TooManyRequests", "slow down")
    busy.retry_after = 7.0
    client.patch_results = [busy]
    async with supervise() as tasks:
        reports = reporter(client, log)
        tasks.start(reports.run(), name="report")
        reports.report(1)
        await asyncio.sleep(60)

    first, second = [at for at, _ in client.patches]
    assert second - first == pytest.approx(7.05, abs=0.01)
    assert log.fields("epoch not stored")["status"] == 429


@pytest.mark.looptime
async def test_an_agent_asks_again_after_30_s_when_a_proxy_asks_for_an_hour(rig: Rig) -> None:
    """Watch and patch alike: a pod that obeyed would hold the barrier of its whole group."""
    gone = error_from_response(503, {"retry-after": "3600"}, b"", verb="", target="")
    rig.client.watch_results, rig.client.patch_results = [gone], [gone]
    async with rig.running():
        await asyncio.sleep(31)
        await rig.sees(frame("ADDED", jobset(5, 0, 0)), list_end(6))
        await asyncio.sleep(31)

    assert rig.client.epochs == ["1", "1"]


@pytest.mark.looptime
async def test_what_a_human_must_fix_is_not_asked_often() -> None:
    """A forbidden patch names the permission and is repeated after seconds, then minutes."""
    client, log = ScriptedClient(), Lines()
    client.patch_results = [ForbiddenError(403, "Forbidden", "no")] * 6
    async with supervise() as tasks:
        reports = reporter(client, log)
        tasks.start(reports.run(), name="report")
        reports.report(1)
        await asyncio.sleep(600)

    assert len(client.patches) == 7
    waits = [fields["retry_s"] for event, fields in log.lines if event == "epoch not stored"]
    assert waits == [1, 2, 4, 8, 16, 30]
    assert "patch on pods in train" in str(log.fields("epoch not stored")["hint"])


@pytest.mark.looptime
async def test_only_higher_epochs_are_stored() -> None:
    """A lower or equal epoch is never sent after a higher one; a newer one overtakes."""
    client, log = ScriptedClient(), Lines()
    client.patch_results = [StreamBrokenError("cut")] * 3
    async with supervise() as tasks:
        reports = reporter(client, log)
        tasks.start(reports.run(), name="report")
        reports.report(4)
        await asyncio.sleep(0.02)
        reports.report(3)
        reports.report(5)
        await asyncio.sleep(60)
        reports.report(5)
        await asyncio.sleep(60)

    assert client.epochs == ["4", "5", "5", "5"]
    assert reports.stored == 5
