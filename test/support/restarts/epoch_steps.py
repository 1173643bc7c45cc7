"""The protocol of restarts in place as pure steps, each of them the project's own code.

For tests that try many orders of events. The reaction of the manager or of an agent to one event is
computed by the real handlers, reconciler, barrier and worker rules, which are built from a small
value, and whose state becomes such a value again. Equal values have equal results, so that each is
computed once.

A pod, as a cache holds it, is ``()`` if there is none, or ``(epoch, worker, deleting, restarts)``
with the worker as its kubelet reports it: "n" (none), "r" (runs), "f" (has failed) or "s" (has
succeeded, as has the pod), and with the restarts of its agent, whether the latest was for a failure,
those of a container that the JobSet does not name, which always follow failures, and the number of
ends of the agent that it has reported.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from attrs import evolve

from jobsetpy.agent.protocol.barrier import Barrier, Lift, PatchEpoch, Restart
from jobsetpy.agent.supervisor.standby.process import Standby, StandbyPhase, StandbyRules
from jobsetpy.agent.supervisor.worker.rules import Phase, Rules, Worker
from jobsetpy.aio import Clock, ManualClock
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import LabelledNode
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.errors import ConflictError
from jobsetpy.reconcilers.execution.caches import POD_INDEXES, SharedCaches
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause, FailureKind
from jobsetpy.reconcilers.restart_in_place.failures.pod_changes import Failure, SyncedMark, kind_of
from jobsetpy.reconcilers.restart_in_place.reconciler import (
    RestartInPlaceReconciler,
    RestartInPlaceSettings,
)
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochState
from jobsetpy.reconcilers.restart_in_place.steps.waiting import Waiting
from jobsetpy.runtime import OWNER_UID, Event, ObjectKey, Request
from jobsetpy.testing import store_of, store_writer_of
from support.jobsets import merge, replicated_job
from support.restarts import epoch_plans
from support.restarts.epoch_plans import GROUP, RULE

KEY = ObjectKey("default", "test-js")
UNCOUNTED = {FailureKind.REQUESTED, FailureKind.POD_LEAVING}
HOLDS = "waits for the back-off"
LONGEST_PAUSE_S = 600.0
OLD, MARK, NEW = 10, 15, 20
"""ResourceVersions of pods: before and after the synced epoch was observed, and in between."""
CONTAINER = {"name": "worker", "image": "w", "restartPolicyRules": [RULE]}
AGENT = {"name": "agent", "restartPolicy": "Always", "restartPolicyRules": [RULE]}
POD_SPEC = {"containers": [CONTAINER], "initContainers": [AGENT]}


class Version(NamedTuple):
    """A JobSet as the API server has it, apart from conditions that nothing depends on.

    ``requests`` is the number of restarts in place requested by its annotation. ``turns`` is the number
    of writes of the condition Suspended, which is true if it is odd. ``pacing`` is the stored
    back-off as JSON, by the wall clock of the manager that wrote it.
    """

    synced: int = 0
    deprecated: int = 0
    record: tuple[tuple[str, Any], ...] = ()
    failed: bool = False
    requests: int = 0
    suspended: bool = False
    turns: int = 0
    pacing: str = ""


class View(NamedTuple):
    """Knowledge of a manager, apart from the version of the JobSet that it has cached.

    ``fresh`` is True for each cached pod that has changed since the synced epoch was observed.
    ``cause`` is an early failure: epoch and sign. ``synced`` and ``deprecated`` are the epochs that
    the ledger knows. ``failures`` are those that are not judged yet: the pod's slot, before and
    after. ``crashes`` is the ledger's state of containers that fail before the barrier lifts:
    whether it has stored a status, the count up to which restarts are the group's, the number of
    failures of each container of a pod, and the worst of them. ``left`` is True if the JobSet was
    suspended at the last pass.
    """

    pods: tuple[tuple[Any, ...], ...]
    fresh: tuple[bool, ...]
    cause: tuple[int, str] | tuple[()] = ()
    synced: int = 0
    deprecated: int = 0
    failures: tuple[tuple[int, tuple[Any, ...], tuple[Any, ...]], ...] = ()
    crashes: tuple[Any, ...] = (False, 0, (), (), ())
    left: bool = False


class Pass(NamedTuple):
    """Result of a pass of the reconciler: the version it wrote, if any, and its view then."""

    view: View
    written: Version | None
    read_again: bool


@cache
def jobset_of(version: Version, size: int, number: int, max_restarts: int) -> JobSet:
    """Return a JobSet of one Job with ``size`` pods, with a resourceVersion."""
    status: dict[str, Any] = {}
    if version.record:
        status["inPlaceRestart"] = dict(version.record)
    if version.pacing:
        status["restartPacing"] = json.loads(version.pacing)
    conditions = [{"type": "Failed", "status": "True"}] if version.failed else []
    if version.turns:
        at = f"2026-01-01T00:{version.turns:02}:00Z"
        value = "True" if version.turns % 2 else "False"
        conditions.append({"type": "Suspended", "status": value, "lastTransitionTime": at})
    if conditions:
        status["conditions"] = conditions
    job_spec = {"backoffLimit": keys.INT32_MAX}
    item = replicated_job("w", parallelism=size, pod_spec=POD_SPEC, job_spec=job_spec)
    notes = {keys.RESTART_IN_PLACE_ANNOTATION: str(version.requests)} if version.requests else None
    of = epoch_plans.jobset(
        version.synced, version.deprecated, items=[item], max_restarts=max_restarts, notes=notes,
        status=status, suspend=version.suspended,
    )  # fmt: skip
    return evolve(of, metadata=evolve(of.metadata, resource_version=str(number)))


@cache
def job_of(size: int) -> Job:
    """Return its Job."""
    return epoch_plans.job("test-js-w-0", spec={"parallelism": size})


STATES = {"r": {"running": {}}, "f": {"terminated": {"exitCode": 1}}}
LEAVES = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
ENDED_BY_KUBELET = LEAVES | {"reason": "TerminationByKubelet"}
NOTICES = {2: [LEAVES], 4: [ENDED_BY_KUBELET]}


def containers(worker: str, restarts: int, failed: bool, strange: int) -> dict[str, Any]:
    """Return the statuses of a pod's containers: the worker, its agent, and another sidecar.

    Args:
        worker: state of the worker, as the pods of this module have it.
        restarts: restarts of the agent.
        failed: whether the latest of them was for a failure.
        strange: restarts of the other sidecar.
    """
    ends = {"agent": (restarts, 137 if failed else 0), "mesh": (strange, 1)}
    return {
        "containerStatuses": [{"name": "worker", "state": STATES.get(worker, {})}],
        "initContainerStatuses": [
            {"name": name, "restartCount": count, "lastState": {"terminated": {"exitCode": code}}}
            for name, (count, code) in ends.items()
        ],
    }


@cache
def pod_of(slot: int, pod: tuple[Any, ...], number: int) -> ChildPod | None:
    """Return a pod with a resourceVersion; ``None`` for ``()``."""
    if not pod:
        return None
    epoch, worker, deleting, (restarts, failed, strange, unprobed) = pod
    return epoch_plans.pod(
        f"p{slot}", epoch or None, uid=f"uid-{slot}", job="test-js-w-0", index=slot,
        tracked=deleting != 3, deleted=deleting in {1, 2, 3}, meta={"resourceVersion": str(number)},
        phase="Succeeded" if worker == "s" else "Running",
        conditions=NOTICES.get(deleting, []),
        notes={keys.UNPROBED_ANNOTATION: f"{epoch} {unprobed}"} if unprobed else None,
        **containers(worker, restarts, failed, strange),
    )  # fmt: skip


class RecordedEvents:
    """Emitted events: kind of the object, type, reason and message, oldest first."""

    def __init__(self) -> None:
        self.emitted: list[tuple[str, str, str, str]] = []

    def event(self, obj: object, type_: str, reason: str, message: str, **_more: object) -> None:
        """Record an event."""
        self.emitted.append((type(obj).__name__, type_, reason, message))


def caches_of(client: Any, clock: Clock, **stores: Any) -> Any:
    """Return the caches of a reconciler that has no manager; its events are recorded."""
    stores.setdefault("nodes", store_writer_of(LabelledNode).store)
    informers = {name: SimpleNamespace(store=store) for name, store in stores.items()}
    manager = SimpleNamespace(client=client, clock=clock)
    caches = SimpleNamespace(manager=manager, events=RecordedEvents(), definition=None, **informers)
    caches.status_writer = partial(SharedCaches.status_writer, cast("Any", caches))
    return caches


class _Server:
    """API server of one pass: the JobSet, and optimistic concurrency."""

    def __init__(self, version: Version, size: int, number: int, max_restarts: int) -> None:
        self.version = version
        self.size = size
        self.number = number
        self.max_restarts = max_restarts
        self.written: Version | None = None
        self.gets = 0
        self.paced = False

    @property
    def jobset(self) -> JobSet:
        return jobset_of(self.version, self.size, self.number, self.max_restarts)

    async def get(self, _cls: type, _namespace: str, _name: str) -> JobSet:
        self.gets += 1
        return self.jobset

    async def merge_patch(
        self, _cls: type, _namespace: str, _name: str, body: Any, *, subresource: str
    ) -> JobSet:
        assert subresource == "status"
        if body["metadata"]["resourceVersion"] != str(self.number):
            raise ConflictError(409, "Conflict", "old", verb="patch", target="jobset")
        status = body["status"]
        old = self.version
        record = merge(dict(old.record), status.get("inPlaceRestart", {}))
        failed = any(
            c["type"] == "Failed" and c["status"] == "True" for c in status.get("conditions", ())
        )
        self.version = self.written = Version(
            status.get("syncedEpoch", old.synced),
            status.get("deprecatedEpoch", old.deprecated),
            tuple(sorted(record.items())),
            old.failed or failed,
            old.requests,
            old.suspended,
            old.turns,
            _merged(old.pacing, status.get("restartPacing")) if self.paced else "",
        )
        self.number += 1
        return self.jobset


def _merged(old: str, change: Any) -> str:
    if not change:
        return old
    return json.dumps(merge(json.loads(old or "{}"), change), sort_keys=True)


class _Manager:
    """Real parts of a manager, in the state that a :class:`View` describes."""

    def __init__(
        self,
        view: View,
        cached: Version,
        number: int,
        *,
        server: Any,
        max_restarts: int,
        skew_h: int = 0,
    ) -> None:
        size = len(view.pods)
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=skew_h))
        self.versions = [NEW if fresh else OLD for fresh in view.fresh]
        self.pods = [pod_of(slot, pod, self.versions[slot]) for slot, pod in enumerate(view.pods)]
        self.jobset = jobset_of(cached, size, number, max_restarts)
        jobsets = store_of(JobSet, [self.jobset])
        jobs = store_of(Job, [job_of(size)], indexes=[OWNER_UID])
        pods = store_of(
            ChildPod,
            [pod for pod in self.pods if pod is not None],
            indexes=POD_INDEXES,
        )
        self.reconciler = RestartInPlaceReconciler(
            caches_of(server, self.clock, jobsets=jobsets, jobs=jobs, pods=pods),
            RestartInPlaceSettings(),
        )
        self.ledger = self.reconciler.ledger
        self.ledger.job_changed(None, job_of(size))
        for pod in self.pods:
            self.ledger.pod_changed(None, pod)
        self.ledger.newest_version = NEW if any(view.fresh) else MARK
        group = self.group = self.ledger._attempts[GROUP]
        if view.synced:
            group.mark = SyncedMark(view.synced, MARK, self.clock.monotonic())
        group.deprecated = view.deprecated
        group.noted, group.excused, crashed, crashes, unprobed = view.crashes
        group.crashed, group.crashes = dict(crashed), dict(crashes)
        group.unprobed = Counter(dict(unprobed))
        self.failures = {_failure(*seen): seen for seen in view.failures}
        group.notes.failures = tuple(self.failures)
        cause = None
        if view.cause:
            sign = FailureKind(view.cause[1])
            cause = Cause(view.cause[0], sign, "p", counted=sign not in UNCOUNTED)
        self.reconciler._memories.keep(KEY, EpochState(uid="js-uid", cause=cause, left=view.left))

    def view(
        self,
        pods: tuple[tuple[Any, ...], ...],
        versions: list[int],
        change: tuple[int, tuple[Any, ...], tuple[Any, ...]] | None = None,
    ) -> View:
        """Return its knowledge after a change of a pod."""
        known = self.reconciler._memories.of(KEY).cause
        cause: tuple[int, str] | tuple[()] = ()
        if known is not None and known.kind is not None:
            cause = (known.epoch, known.kind.value)
        mark = self.group.mark
        fresh = tuple(bool(pod) and v > mark.version for pod, v in zip(pods, versions, strict=True))
        failures = [self.failures.get(one, change) for one in self.group.notes.failures]
        return View(
            pods, fresh, cause, mark.epoch, self.group.deprecated,
            tuple(seen for seen in failures if seen is not None),
            (
                self.group.noted, self.group.excused, tuple(sorted(self.group.crashed.items())),
                tuple(sorted(self.group.crashes.items())),
                tuple(sorted(self.group.unprobed.items())),
            ),
            self.reconciler._memories.of(KEY).left,
        )  # fmt: skip


def _failure(slot: int, old: tuple[Any, ...], new: tuple[Any, ...]) -> Failure:
    before, after = pod_of(slot, old, NEW), pod_of(slot, new, NEW + 1)
    assert before is not None
    sign = kind_of(before, after)
    assert sign is not None
    return Failure(sign, old[0], before, after, 0.0)


@cache
def see_pod(
    view: View, cached: Version, slot: int, pod: tuple[Any, ...], max_restarts: int
) -> tuple[View, bool]:
    """Return a manager's view after a change of a pod in its watch, and if a pass is needed."""
    manager = _Manager(view, cached, 1, server=None, max_restarts=max_restarts)
    old, new = manager.pods[slot], pod_of(slot, pod, NEW + 1)
    due = False
    if old is not None or new is not None:
        due = bool(manager.reconciler.on_pod(Event(old, new)))
    pods = (*view.pods[:slot], pod, *view.pods[slot + 1 :])
    versions = [*manager.versions]
    versions[slot] = NEW + 1
    return manager.view(pods, versions, (slot, view.pods[slot], pod)), due


@cache
def reconcile(
    view: View,
    cached: Version,
    stored: Version,
    max_restarts: int,
    *,
    behind: bool,
    waiting: bool,
    late: bool = False,
    skew_h: int | None = None,
) -> Pass:
    """Return the result of one pass of the reconciler.

    Args:
        view: knowledge of the manager.
        cached: the JobSet in its cache.
        stored: the JobSet in the API server.
        max_restarts: limit of the JobSet.
        behind: whether the two are different versions, equal or not.
        waiting: whether the cache does not show the manager's own last write yet.
        late: whether a missing pod, if there is one, has been missing for a while.
        skew_h: hours by which the manager's wall clock is ahead, where back-offs are stored; a
            pass then lasts until the back-off is over, which has to be soon.
    """
    size = len(view.pods)
    server = _Server(stored, size, 7 if behind else 5, max_restarts)
    server.paced = skew_h is not None
    manager = _Manager(
        view, cached, 5, server=server, max_restarts=max_restarts, skew_h=skew_h or 0
    )
    if late:
        memories = manager.reconciler._memories
        missing = Waiting(lacking_since=-20.0, look_at=-10.0)
        memories.keep(KEY, evolve(memories.of(KEY), waiting=missing))
    if waiting:
        manager.reconciler.expectations.expect_version(KEY, "js-uid", "6", cached="5")
    result = run(manager.reconciler.reconcile(Request(KEY)))
    if server.paced and result.summary == HOLDS:
        assert result.delay is not None
        assert result.delay.total_seconds() <= LONGEST_PAUSE_S, "a pause is longer than any"
        manager.clock.advance(result.delay.total_seconds())
        result = run(manager.reconciler.reconcile(Request(KEY)))
        assert result.summary != HOLDS, "a pause is not over when it should be"
    return Pass(manager.view(view.pods, manager.versions), server.written, server.gets > 0)


def run(coro: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that never has to wait."""
    try:
        coro.send(None)
    except StopIteration as end:
        return end.value
    coro.close()
    raise AssertionError("it waits")


def by_the_wall_clock(pace, pacing):
    """Return the time from the manager's wall clock until the stored end of a pause, in seconds."""
    if pacing is None or pacing.not_before is None:
        return 0.0
    left_s = (pacing.not_before - pace.now).total_seconds()
    return max(0.0, min(left_s, pace.backoff.longest_s))


# ---- agents --------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """Reaction of an agent's barrier: its state, and the actions."""

    barrier: tuple[Any, ...]
    patch: int = 0
    lift: bool = False
    restart: bool = False


def state_of(barrier: Barrier) -> tuple[Any, ...]:
    """Return the state of a barrier, for :func:`barrier_of`."""
    return (
        barrier._synced, barrier._deprecated, barrier.epoch, barrier.lifted, barrier._over,
        barrier._replaced,
    )  # fmt: skip


def barrier_of(state: tuple[Any, ...], note: int = 0) -> Barrier:
    """Return a barrier in a state; a new one if that is ``()``."""
    barrier = Barrier(uid="js-uid", arrived=("js-uid" if note else "", note))
    if state:
        (
            barrier._synced, barrier._deprecated, barrier.epoch, barrier.lifted, barrier._over,
            barrier._replaced,
        ) = state  # fmt: skip
    return barrier


def _seen(barrier: Barrier, actions: list[Any]) -> Seen:
    patch, lift, restart = 0, False, False
    for action in actions:
        match action:
            case PatchEpoch(epoch):
                patch = epoch
            case Lift():
                lift = True
            case Restart():
                restart = True
    return Seen(state_of(barrier), patch, lift, restart)


@cache
def observe(state: tuple[Any, ...], synced: int, deprecated: int, note: int = 0) -> Seen:
    """Return the reaction of an agent to a state of the JobSet; its first one if ``state`` is ``()``.

    ``note`` is the epoch that the agent's run before has stored for it.
    """
    barrier = barrier_of(state, note)
    return _seen(barrier, barrier.observe("js-uid", synced, deprecated))


@cache
def next_round(state: tuple[Any, ...]) -> Seen:
    """Return the reaction of an agent's barrier when its worker is gone."""
    barrier = barrier_of(state)
    return _seen(barrier, barrier.next_round())


@cache
def worker_step(phase: str, event: str, processes: int = 1) -> tuple[str, tuple[str, ...]]:
    """Return the new phase of a supervisor's worker, and the names of the actions.

    Args:
        phase: of ``Phase``; its processes have ended in phase "clearing" only.
        event: "lifted", "deprecated", "failed" (one process, by itself), "hung", "stopped" (all
            processes, within their time), "late" (that time is over) or "emptied".
        processes: number of its processes.
    """
    worker = Worker(Rules(processes=processes))
    worker.phase = Phase(phase)
    worker._running = 0 if phase in {"waiting", "clearing"} else processes
    match event:
        case "lifted":
            actions = worker.lifted(1)
        case "deprecated":
            actions = worker.deprecated()
        case "failed":
            actions = worker.exited(1)
        case "hung":
            actions = worker.hung()
        case "stopped":
            actions = [step for _ in range(processes) for step in worker.exited(143)]
            if worker.phase is Phase.STOPPING:
                actions += worker.emptied()
        case "late":
            actions = worker.grace_over()
        case "emptied":
            actions = worker.emptied()
        case _:
            raise AssertionError(event)
    return worker.phase.value, tuple(type(action).__name__ for action in actions)


@cache
def standby_step(phase: str, event: str) -> tuple[str, bool]:
    """Return the new phase of a supervisor's standby process, and whether it is the worker now.

    Args:
        phase: of ``StandbyPhase``.
        event: "due", "ready", "ended" or "take", when the barrier has lifted.
    """
    standby = Standby(StandbyRules())
    standby.phase = StandbyPhase(phase)
    taken = False
    match event:
        case "due":
            standby.due(needed=True)
        case "ready":
            standby.ready()
        case "ended":
            standby.ended()
        case "take":
            taken = standby.take()
        case _:
            raise AssertionError(event)
    return standby.phase.value, taken
