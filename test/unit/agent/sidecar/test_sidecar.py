"""All tasks of the sidecar, with a scripted client and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
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
from support.agents.agent_process import AgentLog

pytestmark = pytest.mark.looptime

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


class Stream:
    """A watch with frames that the test pushes."""

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
    """Client for the agent's two requests, with answers that the test sets."""

    def __init__(self) -> None:
        self.patches: list[tuple[float, dict[str, Any]]] = []
        self.patch_results: list[Exception | None] = []
        self.patch_takes = 0.001
        self.pod = PodMetadata(name="p-0")
        self.watches: list[dict[str, Any]] = []
        self.watch_results: list[Exception | None] = []
        self.stream = Stream()
        self.pages: list[list[dict[str, Any]]] = []
        self.known: dict[str, Any] = {}
        """JobSet that the agent was shown last."""

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
        result = self.watch_results.pop(0) if self.watch_results else None
        if result is not None:
            raise result
        page = self.pages.pop(0) if self.pages else [self.known]
        items = [msgspec.convert(item, cls) for item in page]
        return Page(items, "100", "")

    @property
    def annotations(self) -> list[dict[str, str | None]]:
        return [body["metadata"]["annotations"] for _, body in self.patches]

    @property
    def epochs(self) -> list[str | None]:
        return [each[EPOCH] for each in self.annotations]


def jobset(
    version: int, synced: int = 0, deprecated: int = 0, *, uid: str = "u1", **policy: str
) -> dict[str, Any]:
    """Return a JobSet as the API server sends it."""
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
        "spec": {
            "failurePolicy": {"restartStrategy": "InPlaceRestart"} | policy,
            "replicatedJobs": [],
        },
        "status": {key: value for key, value in status.items() if value},
    }


def frame(kind: str, data: dict[str, Any]) -> WatchFrame:
    """Return a line of a watch."""
    return WatchFrame(kind, msgspec.Raw(msgspec.json.encode(data)))


def list_end(version: int) -> WatchFrame:
    """Return the bookmark that ends a streaming list."""
    mark = {"k8s.io/initial-events-end": "true"}
    metadata = {"resourceVersion": str(version), "annotations": mark}
    return frame("BOOKMARK", {"kind": "JobSet", "metadata": metadata})


class Rig:
    """A running agent with its client and its log."""

    def __init__(self, settings: Settings) -> None:
        self.client = ScriptedClient()
        self.log = AgentLog()
        self.agent = Agent(settings, self.client, log=self.log)  # type: ignore[arg-type]
        self.task: asyncio.Task[int] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Rig]:
        async with supervise() as tasks:
            self.task = tasks.start(self.agent.run(), name="agent")
            await asyncio.sleep(0.01)
            yield self

    @asynccontextmanager
    async def joined(self, synced: int = 0, deprecated: int = 0) -> AsyncIterator[Rig]:
        """Run the agent and show it a JobSet with a status."""
        async with self.running():
            await self.sees(frame("ADDED", jobset(5, synced, deprecated)), list_end(6))
            yield self

    async def lift(self, version: int = 7) -> None:
        """Show the agent that its first epoch is synced."""
        await self.sees(frame("MODIFIED", jobset(version, 1)))

    async def quiet(self, seconds: int) -> None:
        """Let time pass in which the API server sends only its bookmarks."""
        for _ in range(seconds // 60):
            await asyncio.sleep(60)
            await self.sees(frame("BOOKMARK", {"metadata": {"resourceVersion": "6"}}))
        await asyncio.sleep(seconds % 60)

    async def sees(self, *frames: WatchFrame) -> None:
        """Push frames and let the agent act on them."""
        for each in frames:
            if each.type != "BOOKMARK":
                self.client.known = msgspec.json.decode(each.object)
        self.client.stream.push(*frames)
        await asyncio.sleep(0.01)

    @property
    def lifted(self) -> bool:
        head = b"GET /barrier-is-lifted HTTP/1.1\r\n\r\n"
        return b" 200 " in self.agent._server.answer(head)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """An agent that follows the first JobSet that it gets."""
    return Rig(msgspec.structs.replace(SETTINGS, arrival_file=str(tmp_path / "arrival")))


async def test_agent_joins_lifts_and_ends_with_its_epoch(rig: Rig) -> None:
    """It joins at synced + 1 and ends with the configured code when its epoch is deprecated."""
    async with rig.joined(2, 2):
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


@pytest.mark.parametrize(
    ("deadline", "refusals", "ends"),
    [("30s", 100, True), ("30s", 2, False), ("30s", 10, False), ("", 100, False)],
    ids=["given-up", "for-a-moment", "for-minutes", "never-given-up"],
)
async def test_agent_ends_when_its_token_stays_refused(
    rig: Rig, deadline: str, refusals: int, ends: bool
) -> None:
    """The token is bound to its pod: where pods are given up, a refusal shows that this one was."""
    rig.client.pod = PodMetadata(annotations=PodAnnotations(deadline=deadline))
    with suppress(asyncio.CancelledError):
        async with rig.joined(2, 2):
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


@pytest.mark.parametrize("lifted", [False, True])
async def test_defect_ends_the_agent_with_its_exit_code_after_the_lift(
    rig: Rig, lifted: bool
) -> None:
    """Once the worker may run, the whole pod is restarted."""
    with suppress(RuntimeError):
        async with rig.joined(2, 2):
            if lifted:
                await rig.sees(frame("MODIFIED", jobset(7, 3, 2)))
            rig.client.stream.fail(RuntimeError("a defect"))
            assert rig.task is not None
            assert await rig.task == 77
    assert rig.task is not None
    assert (rig.task.exception() is None) is lifted
    assert ("failed" in rig.log.events) is lifted


async def test_agent_stays_when_the_barrier_lifts_while_it_reports_a_forgotten_probe(
    rig: Rig,
) -> None:
    """The worker may run from then on, and must not be ended."""
    async with rig.joined():
        rig.client.patch_takes = 0.5
        rig.agent._server._on_lost()
        await rig.lift()
        await asyncio.sleep(2)
        assert rig.lifted
        assert rig.task is not None
        assert not rig.task.done()


@pytest.mark.parametrize("cut_off", [False, True])
async def test_pod_restarts_at_its_epoch_when_the_kubelet_has_forgotten_the_probe(
    rig: Rig, tmp_path: Path, cut_off: bool
) -> None:
    """Its worker has not run in a complete group: the others stay, and nothing is charged."""
    async with rig.joined(2, 2):
        begun = asyncio.get_running_loop().time()
        rig.client.patch_takes = 3600 if cut_off else 0.001
        rig.agent._server._on_lost()
        assert rig.task is not None
        code = await rig.task
        assert asyncio.get_running_loop().time() - begun < 1.1

    assert (code, rig.client.epochs) == (77, ["3"] if cut_off else ["3", "3"])
    reported = "jobset.sigs.k8s.io/in-place-restart-unprobed" in rig.client.annotations[-1]
    assert reported is not cut_off
    assert "the kubelet has stopped probing the closed barrier" in rig.log.events
    assert (tmp_path / "arrival").read_text() == "u1 3"


async def test_start_costs_two_requests(rig: Rig) -> None:
    """One watch of the one JobSet, and one patch of the pod's own annotation."""
    async with rig.joined():
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


async def test_incomplete_list_changes_nothing(rig: Rig) -> None:
    """Its objects may be stale: only the last state at its end counts."""
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, 1, 1)))
        assert rig.client.epochs == []
        await rig.sees(frame("MODIFIED", jobset(6, 4, 3)))
        assert rig.client.epochs == []
        await rig.sees(list_end(7))

    assert rig.client.epochs == ["5"]


async def test_silent_watch_is_replaced(rig: Rig) -> None:
    """The next one resumes at the last version."""
    async with rig.joined():
        await asyncio.sleep(125)
        assert len(rig.client.watches) == 2
        assert rig.client.watches[1]["resource_version"] == "6"
        await rig.lift(8)
        assert rig.lifted

    assert "watch of the JobSet is silent" in rig.log.events


@pytest.mark.parametrize("runs", [False, True], ids=["waits", "runs"])
@pytest.mark.parametrize(("version", "lists"), [(4, 2), (9, 1)], ids=["behind", "passed"])
async def test_agent_reports_its_epoch_again_when_etcd_is_restored(
    rig: Rig, runs: bool, version: int, lists: int
) -> None:
    """JobSet and pod are as in the backup; resourceVersions may have passed those of before."""
    async with rig.joined():
        if runs:
            await rig.lift()
        before = rig.client.epochs
        await asyncio.sleep(10)
        rig.client.stream.fail(StreamBrokenError("cut"))
        rig.client.watch_results = [RetryableApiError(503)]
        await asyncio.sleep(1)
        for _ in range(lists):  # of a list that turns out to be older, the second is marked so
            await rig.sees(frame("ADDED", jobset(2)), list_end(version))
            await asyncio.sleep(1)
        await rig.lift(version + 1)
        await asyncio.sleep(1)
        assert rig.lifted

    assert [*before, before[-1]] == rig.client.epochs


async def test_bookmarks_keep_a_watch_open(rig: Rig) -> None:
    """A quiet watch with a bookmark each minute costs no requests."""
    async with rig.joined():
        for version in range(7, 12):
            await asyncio.sleep(64)
            await rig.sees(frame("BOOKMARK", {"metadata": {"resourceVersion": str(version)}}))

    assert len(rig.client.watches) == 1


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
async def test_watch_is_retried_after_any_error(rig: Rig, error: Exception) -> None:
    """The agent joins once a request succeeds."""
    rig.client.watch_results = [error] * 20
    rig.client.pages = [[jobset(5)]] * 20
    async with rig.running():
        await asyncio.sleep(1200)
        if not rig.client.epochs:
            await rig.sees(frame("ADDED", jobset(5)), list_end(6))
        await rig.lift(107)
        await asyncio.sleep(1)
        assert rig.lifted

    assert set(rig.client.epochs) == {"1"}


async def test_missing_permission_is_named(rig: Rig) -> None:
    """The log has verbs and resource, and the agent tries again."""
    rig.client.watch_results = [ForbiddenError(403, "Forbidden", "no")]
    async with rig.running():
        await asyncio.sleep(60)
        assert rig.task is not None
        assert not rig.task.done()

    hint = str(rig.log.fields("cannot watch the JobSet")["hint"])
    assert "list and watch on jobsets.jobset.x-k8s.io in namespace train" in hint


@pytest.mark.parametrize("end", [StreamBrokenError("cut"), ExpiredError(410, "Expired", "old")])
async def test_watch_that_breaks_loses_nothing(rig: Rig, end: Exception) -> None:
    """After a broken stream or a 410 the agent keeps its epoch."""
    rig.client.pages = [[jobset(9, 1)]]
    async with rig.joined():
        rig.client.stream.fail(end)
        await asyncio.sleep(2)
        if not rig.lifted:
            await rig.sees(frame("ADDED", jobset(9, 1)), list_end(10))
        assert rig.lifted

    assert rig.client.epochs == ["1"]


async def test_agent_waits_for_a_jobset_that_does_not_exist(rig: Rig) -> None:
    """It is not an error: the log says so, and the agent joins when it exists."""
    async with rig.running():
        await rig.sees(list_end(3))
        assert rig.client.epochs == []
        await rig.sees(frame("ADDED", jobset(5)))

    assert rig.client.epochs == ["1"]
    assert rig.log.events.count("no JobSet of this name; waiting") == 1


async def test_recreated_jobset_is_ignored(rig: Rig) -> None:
    """It neither lifts the barrier nor ends the agent."""
    async with rig.joined():
        await rig.sees(frame("DELETED", jobset(7)))
        await rig.sees(frame("ADDED", jobset(8, 1, uid="u2")))
        await rig.sees(frame("MODIFIED", jobset(9, 1, 1, uid="u2")))
        assert not rig.lifted
        assert rig.task is not None
        assert not rig.task.done()

    assert rig.client.epochs == ["1"]
    assert rig.log.fields("ignoring another JobSet of this name")["uid"] == "u2"


async def test_log_has_a_remedy_when_no_epoch_is_left(rig: Rig) -> None:
    """Only a status written by hand leads there; the group would wait for ever."""
    async with rig.joined(keys.MAX_EPOCH):
        pass

    (error,) = (event for event, fields in rig.log.lines if fields.get("level") == "error")
    assert "delete the JobSet and create it again" in error


async def test_log_has_a_remedy_when_the_jobset_does_not_restart_in_place(rig: Rig) -> None:
    """Its barrier would never be lifted."""
    async with rig.running():
        await rig.sees(frame("ADDED", jobset(5, restartStrategy="Recreate")), list_end(6))

    event = "the JobSet does not restart in place: its barrier is never lifted"
    assert "InPlaceRestart" in str(rig.log.fields(event)["hint"])


async def test_patch_is_retried_until_it_is_stored(rig: Rig) -> None:
    """An overloaded API server delays the agent and never fails it; no other patch follows."""
    rig.client.patch_results = [
        StreamBrokenError("cut"),
        RetryableApiError(429, "TooManyRequests", "slow down"),
        *[RetryableApiError(503, "", "busy")] * 30,
    ]
    async with rig.joined():
        await rig.quiet(3600)

    assert rig.client.epochs == ["1"] * 33
    assert rig.log.events.count("epoch patched") == 1


async def test_patch_is_repeated_when_its_answer_is_lost(rig: Rig) -> None:
    """The barrier lifts with the answer, and no other request follows."""
    rig.client.patch_results = [ApiTimeoutError("the answer was lost")] * 3
    async with rig.joined():
        await rig.lift()
        assert not rig.lifted
        await asyncio.sleep(600)

    assert rig.lifted
    assert rig.client.epochs == ["1"] * 4


@pytest.mark.parametrize("gone", [True, False], ids=["deleted", "being-deleted"])
async def test_no_worker_starts_in_a_pod_that_is_deleted(rig: Rig, gone: bool) -> None:
    """The group is complete at this epoch, but with the pod that replaced it."""
    if gone:
        rig.client.patch_results = [NotFoundError(404, "NotFound", "no such pod")] * 100
    else:
        rig.client.pod = PodMetadata(name="p-0", deletion_timestamp="2026-01-01T00:00:00Z")
    async with rig.joined():
        await rig.lift()
        await asyncio.sleep(600)

    assert not rig.lifted
    assert len(rig.client.epochs) == 1 or gone


@pytest.mark.parametrize(
    ("deadline", "after_s", "sent"), [("30s", 4, 1), ("30s", 6, 2), ("", 600, 1)]
)
async def test_pod_is_confirmed_again_when_the_last_answer_is_old(
    rig: Rig, deadline: str, after_s: int, sent: int
) -> None:
    """A pod may be given up ten seconds after its deletion began."""
    rig.client.pod = PodMetadata(annotations=PodAnnotations(deadline=deadline))
    async with rig.joined():
        await rig.quiet(after_s)
        await rig.lift()
        await asyncio.sleep(1)

    assert rig.lifted
    assert rig.client.epochs == ["1"] * sent


@pytest.mark.parametrize("takes_s", [6.0, 25.0])
async def test_worker_starts_though_each_patch_of_its_pod_is_slow(rig: Rig, takes_s: float) -> None:
    """One patch after the lift confirms the pod, however long it takes; the log reports it."""
    rig.client.pod = PodMetadata(annotations=PodAnnotations(deadline="30s"))
    rig.client.patch_takes = takes_s
    async with rig.joined():
        await asyncio.sleep(takes_s + 60)
        assert not rig.lifted
        await rig.lift()
        await asyncio.sleep(2 * takes_s + 1)
        assert rig.lifted
        await asyncio.sleep(600)

    assert rig.client.epochs == ["1", "1"]
    assert rig.log.fields("the API server is slow to patch the pod")["seconds"] == takes_s
    assert rig.log.events.count("confirming that the pod exists") == 1


async def test_slow_answer_to_a_patch_before_the_lift_does_not_confirm_the_pod(rig: Rig) -> None:
    """The pod may have been given up between patch and lift: another patch is sent."""
    rig.client.pod = PodMetadata(annotations=PodAnnotations(deadline="30s"))
    rig.client.patch_takes = 6.0
    async with rig.joined():
        await rig.lift()
        missing = NotFoundError(404, "NotFound", "no such pod")
        rig.client.patch_results = [None, *[missing] * 101]
        await asyncio.sleep(600)

    assert not rig.lifted


async def test_confirming_patches_are_spread_over_the_latency_of_a_slow_server() -> None:
    """A group that sent them at the same time again would keep it slow."""
    began = []
    for draw in (0.0, 0.5, 0.99):
        client = ScriptedClient()
        client.pod = PodMetadata(annotations=PodAnnotations(deadline="30s"))
        client.patch_takes = 8.0
        async with reporting(client, draw=draw) as (reports, _):
            start = asyncio.get_running_loop().time()
            reports.report(1)
            await asyncio.sleep(10)
            reports.when_confirmed(1, lambda: None)
            await asyncio.sleep(100)
        began.append(round(client.patches[1][0] - start - 10, 2))

    assert began == [0.0, 4.0, 7.92]


async def test_worker_does_not_start_when_its_pod_is_given_up_before_the_lift(rig: Rig) -> None:
    """It had joined the epoch, and another pod completed the group."""
    rig.client.pod = PodMetadata(annotations=PodAnnotations(deadline="30s"))
    async with rig.joined():
        assert rig.client.epochs == ["1"]
        await asyncio.sleep(60)
        rig.client.patch_results = [NotFoundError(404, "NotFound", "no such pod")] * 100
        await rig.lift()
        await asyncio.sleep(600)

    assert not rig.lifted


async def test_agent_ends_immediately_when_it_is_cancelled(rig: Rig) -> None:
    """Nothing that it holds has to be waited for."""
    async with rig.joined():
        assert rig.task is not None
        before = asyncio.get_running_loop().time()
        rig.task.cancel()
        with suppress(asyncio.CancelledError):
            await rig.task

    assert asyncio.get_running_loop().time() - before < 0.01


@asynccontextmanager
async def reporting(
    client: ScriptedClient, draw: float = 0.5
) -> AsyncIterator[tuple[EpochReporter, AgentLog]]:
    """Run a reporter of epochs with a fixed jitter; its log comes with it."""
    log = AgentLog()
    async with supervise() as tasks:
        reports = EpochReporter(SETTINGS, client, log=log, rand=lambda: draw)
        tasks.start(reports.run(), name="report")
        yield reports, log


async def test_retry_after_is_a_minimum() -> None:
    """The jitter is added to the server's waiting time."""
    client = ScriptedClient()
    busy = RetryableApiError(429, "TooManyRequests", "slow down")
    busy.retry_after = 7.0
    client.patch_results = [busy]
    async with reporting(client) as (reports, log):
        reports.report(1)
        await asyncio.sleep(60)

    first, second = [at for at, _ in client.patches]
    assert second - first == pytest.approx(7.05, abs=0.01)
    assert log.fields("epoch not stored")["status"] == 429


async def test_agent_tries_again_after_30_s_when_a_proxy_asks_for_an_hour(rig: Rig) -> None:
    """Otherwise its pod would hold the barrier of the whole group; watch and patch do so."""
    gone = error_from_response(503, {"retry-after": "3600"}, b"", verb="", target="")
    rig.client.watch_results, rig.client.patch_results = [gone], [gone]
    async with rig.running():
        await asyncio.sleep(31)
        await rig.sees(frame("ADDED", jobset(5)), list_end(6))
        await asyncio.sleep(31)

    assert rig.client.epochs == ["1", "1"]


async def test_forbidden_patch_is_repeated_with_growing_pauses() -> None:
    """The log names the permission."""
    client = ScriptedClient()
    client.patch_results = [ForbiddenError(403, "Forbidden", "no")] * 6
    async with reporting(client) as (reports, log):
        reports.report(1)
        await asyncio.sleep(600)

    assert len(client.patches) == 7
    waits = [fields["retry_s"] for event, fields in log.lines if event == "epoch not stored"]
    assert waits == [1, 2, 4, 8, 16, 30]
    assert "patch on pods in train" in str(log.fields("epoch not stored")["hint"])


async def test_only_higher_epochs_are_stored() -> None:
    """A lower or equal epoch is not sent after a higher one; a newer one replaces it."""
    client = ScriptedClient()
    client.patch_results = [StreamBrokenError("cut")] * 3
    async with reporting(client) as (reports, _):
        reports.report(4)
        await asyncio.sleep(0.02)
        reports.report(3)
        reports.report(5)
        await asyncio.sleep(60)
        reports.report(5)
        await asyncio.sleep(60)

    assert client.epochs == ["4", "5", "5", "5"]
    assert reports.stored == 5
