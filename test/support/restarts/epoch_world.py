"""A cluster with one JobSet that restarts in place, in which anything may happen next.

The API server stores JobSet, Jobs and pods and sends changes to each manager, in order for each
kind, any time later. Managers are the real handlers, ledger, reconciler of restarts in place and
Jobs planner on real stores; agents are the real barrier and worker rules. The Job controller and the
kubelets are models. ``World.moves`` lists possible next events, ``World.faults`` possible faults,
and ``World.settle`` lets everything come to rest without further faults.

Checked at every event: no worker starts at an epoch before all of its group have come to it, none of
an older epoch is left then, and the status never decreases.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from jobsetpy.agent.protocol.barrier import Barrier, Lift, PatchEpoch, Restart
from jobsetpy.agent.supervisor.worker.rules import JoinNext, Phase, Rules, Start, Worker
from jobsetpy.aio import ManualClock
from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet, JobSetStatus
from jobsetpy.api.reconcile import Result
from jobsetpy.errors import ConflictError
from jobsetpy.reconcilers.execution.caches import POD_INDEXES
from jobsetpy.reconcilers.jobs.plan import ObservedJobSet, plan_jobs
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import expected_pods
from jobsetpy.reconcilers.restart_in_place.epochs.budget import account
from jobsetpy.reconcilers.restart_in_place.reconciler import (
    RestartInPlaceReconciler,
    RestartInPlaceSettings,
)
from jobsetpy.reconcilers.rules import plan as p
from jobsetpy.reconcilers.rules.backoff import RestartBackoff, recorded
from jobsetpy.reconcilers.rules.conditions import finished
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.times import Now, PinnedTime
from jobsetpy.runtime import OWNER_UID, Event, ObjectKey, Request, enqueue_self
from jobsetpy.testing import store_writer_of
from support.jobsets import decoded, jobset_json, merge, replicated_job
from support.restarts import epoch_plans
from support.restarts.epoch_plans import AT, policy
from support.restarts.epoch_steps import (
    ENDED_BY_KUBELET,
    KEY,
    POD_SPEC,
    caches_of,
    containers,
    run,
)

Move = tuple[str, Callable[[], None]]
FEATURES = Features(elastic_jobset=True)
_PODS: dict[tuple[Any, ...], ChildPod] = {}


class Pod:
    """One pod: its object in the API server, and the processes in it."""

    def __init__(self, name: str, job: Mapping[str, Any], index: int) -> None:
        self.name = name
        self.job = str(job["metadata"]["name"])
        self.job_uid = str(job["metadata"]["uid"])
        self.index = index
        self.epoch = 0
        self.phase = "Running"
        self.reported: tuple[Any, ...] = ("n", 0, False, 0)
        self.starts = 0
        self.restarts = 0
        self.code = self.cause = 0
        self.strange = 0
        self.deleting = False
        self.uncounted = False
        self.interrupted = False
        self.unprobed = 0
        self.cut = False
        self.barrier: Barrier | None = None
        self.seen = 0
        self.patch = 0
        self.late = 0
        self.note = 0
        self.probed = False
        self.runs = 0
        self.failed = False
        self.worker = Worker(Rules())
        self.reports_attempts = False
        self.double = False

    @property
    def alive(self) -> bool:
        """True if it counts."""
        return self.phase == "Running"

    def status(self, worker: str) -> tuple[Any, ...]:
        """Return the status that the kubelet will report, with restarts of agent and stranger."""
        return worker, self.restarts, self.restarts > 0 and self.cause != 0, self.strange

    @property
    def slot(self) -> tuple[str, int]:
        """Its place in the group."""
        return self.job, self.index

    def wire(self, number: int) -> ChildPod:
        """Return the pod as a manager decodes it."""
        key = (
            *(self.name, self.job, self.job_uid, self.index),
            *(self.epoch, self.phase, self.reported, self.deleting, self.reports_attempts),
            *(self.uncounted, self.interrupted, self.unprobed),
        )
        pod = _PODS.get(key)
        if pod is None:
            pod = _PODS[key] = self._decoded()
        return evolve(pod, metadata=evolve(pod.metadata, resource_version=str(number)))

    def _decoded(self) -> ChildPod:
        epoch, attempt = self.epoch or None, None
        if self.epoch and self.reports_attempts:
            epoch, attempt = None, self.epoch - 1
        return epoch_plans.pod(
            self.name, epoch, job=self.job_uid, job_name=self.job, index=self.index,
            tracked=not self.uncounted, deleted=self.deleting, phase=self.phase,
            notes={keys.ATTEMPT_ANNOTATION: attempt, keys.UNPROBED_ANNOTATION: self.unprobed or None},
            conditions=[ENDED_BY_KUBELET] if self.interrupted else [],
            **containers(*self.reported),
        )  # fmt: skip


class ManagersClock:
    """Clocks of a manager: wall clocks differ and are set, the monotonic one does neither."""

    def __init__(self, clock: ManualClock, skew_s: float) -> None:
        self._clock = clock
        self.skew = timedelta(seconds=skew_s)

    def monotonic(self) -> float:
        """Return the time that is the same in all managers."""
        return self._clock.monotonic()

    def now(self) -> datetime:
        """Return the time of its own wall clock."""
        return self._clock.now() + self.skew


class World:
    """Cluster of this module.

    Args:
        mode: "sidecar", "supervisor", or "attempts": sidecars of the Go project, which report
            attempts, read the status's attempts, and store nothing for their next run.
        jobs: number of Jobs.
        pods: number of pods of each.
        max_restarts: limit of the JobSet.
    """

    def __init__(
        self, mode: str, *, jobs: int = 2, pods: int = 2, max_restarts: int = 1000
    ) -> None:
        self.sidecar = mode != "supervisor"
        self.attempts = mode == "attempts"
        self.number = 1
        self.restored = False  # from a backup that does not know the latest epochs
        self.max_restarts = max_restarts
        job_spec = {"backoffLimit": keys.INT32_MAX, "podReplacementPolicy": "Failed"}
        item = replicated_job("w", jobs, parallelism=pods, pod_spec=POD_SPEC, job_spec=job_spec)
        self.object = jobset_json(item, failurePolicy=policy(max_restarts), suspend=False)
        self.jobs: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, Pod] = {}
        self.history: list[tuple[int, int]] = []
        self.clock = ManualClock()
        self.skewed = False
        self.waited_s = 0.0
        self.managers: list[Manager] = []
        self.old: Manager | None = None
        self.made = 0
        self.failures = 0
        self.resizing = False
        self.not_before: datetime | None = None
        self.paused_at = 0.0
        self.changes = 0
        self.hasty = False
        self.reached: dict[tuple[str, int], int] = {}
        self.done: dict[str, set[int]] = {}
        self.trace: list[str] = []
        self.jobset: JobSet
        self.store_jobset()
        self.managers.append(Manager(self))

    # ---- the API server --------------------------------------------------------------------------

    def store_jobset(self) -> None:
        """Store a new version of the JobSet, and check it."""
        self.number += 1
        self.object["metadata"]["resourceVersion"] = str(self.number)
        before = self.jobset.status if self.history else None
        self.jobset = decoded(JobSet, self.object)
        status = self.jobset.status
        now = (status.synced_epoch, status.deprecated_epoch)
        if self.attempts:
            attempts = (
                status.current_in_place_restart_attempt,
                status.previous_in_place_restart_attempt,
            )
            expected = tuple(epoch - 1 if epoch else None for epoch in now)
            assert attempts == expected, f"{attempts}, {now}"
        if self.history:
            last = self.history[-1]
            assert now[0] >= last[0], f"status goes back from {last} to {now}"
            assert now[1] >= last[1], f"status goes back from {last} to {now}"
            assert self.restored or now[0] <= last[0] + 1, (
                f"an epoch is left out from {last} to {now}"
            )
        assert self.restored or now[1] <= now[0], (
            f"an epoch is deprecated before it was synced: {now}"
        )
        self._check_pause(now[0])
        self._check_charges(before)
        end = finished(status.conditions)
        if end is not None and end.type == "Failed":
            paid = self.failures + (self.changes if self.hasty else 0)
            assert paid > self.max_restarts, f"failed after {paid} failures: {end.message}"
        if not self.history or self.history[-1] != now:
            self.history.append(now)
        for manager in self.managers:
            manager.jobset_events.append((self.number, self.jobset))

    def _check_pause(self, synced: int) -> None:
        """Check that no barrier lifts before its time, unless a user changed the group meanwhile."""
        not_before, self.not_before = self.not_before, None
        pacing, now = self.jobset.status.restart_pacing, self.clock.monotonic()
        if pacing is not None:
            self.not_before = pacing.not_before
            if self.not_before and self.not_before != not_before:
                self.paused_at = now
        lifted = bool(self.history) and synced > self.history[-1][0]
        if lifted and not_before and not self.changes and not self.jobset.status.restarts:
            assert pacing is not None
            left_s = self.paused_at + RestartBackoff().pause_s(pacing.series) - now
            # A manager that takes over can only compare its wall clock with another's.
            assert left_s < 0.01 or self.skewed, f"epoch {synced} lifts {left_s} s before its time"

    def _check_charges(self, before: JobSetStatus | None) -> None:
        """Check that charges are kept; only a recreation replaces a restart."""
        record = None if before is None else before.in_place_restart
        if before is None or record is None or before.restarts != record.all_jobs_restarts_at_sync:
            return
        was, now = recorded(before), recorded(self.jobset.status)
        assert self.restored or now >= was, f"{was - now} of {was} restarts are given back"

    async def get(self, _cls: type, _namespace: str, _name: str) -> JobSet:
        """Read the JobSet, as a client."""
        return self.jobset

    async def merge_patch(
        self, cls: type, _namespace: str, name: str, body: Any, *, subresource: str = ""
    ) -> Any:
        """Patch the status, as a client, with optimistic concurrency."""
        assert (cls, subresource) == (JobSet, "status")
        if body["metadata"]["resourceVersion"] != self.object["metadata"]["resourceVersion"]:
            raise ConflictError(409, "Conflict", "old", verb="patch", target=name)
        self.object["status"] = merge(self.object.get("status"), body["status"])
        self.store_jobset()
        return self.jobset

    def store_job(self, name: str) -> None:
        """Store a new version of a Job, or its deletion."""
        self.number += 1
        data = self.jobs.get(name)
        job = None
        if data is not None:
            data["metadata"]["resourceVersion"] = str(self.number)
            job = decoded(Job, data)
        for manager in self.managers:
            manager.job_events.append((self.number, name, job))

    def store_pod(self, pod: Pod, *, gone: bool = False) -> None:
        """Store a new version of a pod, or its deletion."""
        self.number += 1
        if gone:
            del self.pods[pod.name]
        new = None if gone else pod.wire(self.number)
        for manager in self.managers:
            manager.pod_events.append((pod.name, new))

    # ---- everything that can happen ----------------------------------------------------------------

    def moves(self) -> list[Move]:
        """Return the possible next events; none if everything is at rest."""
        out: list[Move] = []
        for pod in self.pods.values():
            if pod.alive and pod.cut:
                out += [
                    (f"{pod.name} is given up", lambda pod=pod: self._give_up(pod)),
                    (f"{pod.name} is back", lambda pod=pod: setattr(pod, "cut", False)),
                ]
            elif pod.alive:
                out.extend(self._pod_moves(pod))
            elif pod.interrupted and not pod.uncounted:
                out.append((f"{pod.name} uncounted", lambda pod=pod: self._uncount(pod)))
            elif pod.deleting or pod.interrupted:
                out.append((f"{pod.name} gone", lambda pod=pod: self.store_pod(pod, gone=True)))
        for name in self.jobs:
            step = self._job_step(name)
            if step is not None:
                out.append(step)
        for manager in self.managers:
            out.extend(manager.moves())
        return out

    def _pod_moves(self, pod: Pod) -> Iterator[Move]:
        name = pod.name
        # Containers of a double start later than the managers observe it.
        known = not pod.double or all(manager.knows(pod) for manager in self.managers)
        free = pod.barrier is None and pod.runs == 0 and not pod.deleting and not pod.probed
        if free and known:
            yield f"{name} agent starts", lambda: self._agent_starts(pod)
        if pod.barrier is not None and pod.seen < len(self.history):
            yield f"{name} sees {self.history[pod.seen]}", lambda: self._agent_sees(pod)
        if pod.patch:
            yield f"{name} patched {pod.patch}", lambda: self._patched(pod)
        if pod.late:
            yield f"{name} patched late", lambda: self._patched_late(pod)
        if self.sidecar:
            lifted = pod.barrier is not None and pod.barrier.lifted
            free = not pod.runs and not pod.failed and not pod.deleting
            if lifted and free and not pod.probed:
                yield f"{name} probed", lambda: self._probed(pod)
            if pod.probed and free:
                yield f"{name} worker starts", lambda: self._runs(pod, self._epoch_of(pod))
            if (pod.runs or pod.failed or pod.probed) and (pod.barrier is None or pod.failed):
                yield f"{name} containers end", lambda: self._containers_end(pod)
        elif pod.worker.phase in {Phase.STOPPING, Phase.CLEARING}:
            yield f"{name} worker gone", lambda: self._worker_gone(pod)
        actual = pod.status(self._worker_of(pod))
        if actual != pod.reported:
            yield f"{name} reported {actual}", lambda: self._report(pod, actual)
        if pod.deleting:
            yield f"{name} gone", lambda: self.store_pod(pod, gone=True)
            if pod.uncounted:
                yield f"{name} ends with 0", lambda: self._saves(pod)
            else:
                yield f"{name} uncounted", lambda: self._uncount(pod)

    def _job_step(self, name: str) -> Move | None:
        """Return the Job controller's next step for a Job, if there is one."""
        job = self.jobs[name]
        pods = [pod for pod in self.pods.values() if pod.job_uid == job["metadata"]["uid"]]
        spec, status = job["spec"], job.setdefault("status", {})
        size = spec["parallelism"]
        going = "deletionTimestamp" in job["metadata"]
        ended = any(c["type"] in {"Failed", "Complete"} for c in status.get("conditions", ()))
        if going and not pods:
            return f"{name} gone", lambda: (self.jobs.pop(name), self.store_job(name))[0]  # type: ignore[func-returns-value]
        idle = going or ended or spec.get("suspend") is True
        unwanted = [
            pod for pod in pods
            if not pod.deleting and (going or (pod.alive and (idle or pod.index >= size)))
        ]  # fmt: skip
        if unwanted:
            return f"{name} ends {unwanted[0].name}", lambda: self._delete(unwanted[0])
        if idle:
            return None
        finished = self.done.get(job["metadata"]["uid"], set())
        for double in _doubles(pods, finished):
            return (
                f"{name} ends {double.name}, one too many",
                lambda double=double: self._uncounted(double),
            )
        # Ended pods that the Job counts keep their index.
        gone = {pod for pod in pods if pod.phase == "Failed" or (not pod.alive and pod.uncounted)}
        taken = {pod.index for pod in pods if pod not in gone} | finished
        missing = [index for index in range(size) if index not in taken]
        if missing:
            return f"{name} makes a pod", lambda: self._make(job, missing[0]) and None
        done = sum(index < size for index in finished)
        if done != status.get("succeeded", 0):
            return f"{name} counts", lambda: self._count(name, done, size)
        return None

    def faults(self) -> list[Move]:
        """Return possible faults, and changes by a user."""
        out: list[Move] = [
            ("OTHER WRITE", self.store_jobset),
            ("TAKEOVER", self._take_over),
            ("TAKEOVER, BEHIND", lambda: self._take_over(-7200)),
            ("CLOCK SET BACK", lambda: self._set_clock(-7200)),
            ("CLOCK SET AHEAD", lambda: self._set_clock(7200)),
            ("SUSPEND/RESUME", self._suspend),
            ("SUSPEND/RESUME AT REST", lambda: self._at_rest(self._suspend)),
        ]
        if not self.done:  # a finished Job keeps its size
            out += [
                ("RESIZE", self._resize),
                ("RESIZE AT REST", lambda: self._at_rest(self._resize)),
            ]
        out += self.probes()
        for pod in self.pods.values():
            if not pod.alive or pod.cut:
                continue
            name = pod.name
            if pod.runs and not pod.failed:
                out += [
                    (f"{name} WORKER FAILS", lambda pod=pod: self._fail(pod)),
                    (f"{name} WORKER FAILS", lambda pod=pod: self._fail(pod)),
                ]
            if pod.barrier is not None:
                out.append((f"{name} AGENT CRASHES", lambda pod=pod: self._crash(pod)))
            if not pod.deleting:
                out.append((f"{name} IS DELETED", lambda pod=pod: self._lose(pod)))
            out.append((f"{name} FAILS", lambda pod=pod: self._pod_fails(pod)))
            if pod.barrier is not None and not pod.deleting:
                ends = (
                    f"{name} IS ENDED BY ITS KUBELET",
                    lambda pod=pod: self._end_by_kubelet(pod),
                )
                out.append(ends)
            job = self.jobs.get(pod.job)
            if job is not None and job["metadata"]["uid"] == pod.job_uid:
                out.append((f"{name} HAS A DOUBLE", lambda pod=pod: self._double(pod)))
        out += [(f"{name} FAILS", lambda name=name: self._job_fails(name)) for name in self.jobs]
        if len(self.pods) > 1:
            out.append(("NODE LOST", self._node_lost))
            out.append(("NODE CUT OFF", self._node_cut_off))
        return out

    def harmless(self) -> list[Move]:
        """Return events that are no faults of the group: strangers crash, workers succeed."""
        out: list[Move] = [("OTHER WRITE", self.store_jobset), ("TAKEOVER", self._take_over)]
        out.append(("TIME PASSES", self._time_passes))
        out.append(("A SECOND PASSES", self._second_passes))
        for pod in self.pods.values():
            if not pod.alive or pod.cut:
                continue
            name = pod.name
            out.append((f"{name} STRANGER CRASHES", lambda pod=pod: self._stranger(pod)))
            works = pod.barrier is not None and pod.runs and not pod.failed
            if works and not pod.deleting and not self.resizing:
                out.append((f"{name} WORKER SUCCEEDS", lambda pod=pod: self._succeed(pod)))
        return out

    def probes(self) -> list[Move]:
        """Return those events, and ends of agents by their startup probes."""
        out = self.harmless()
        for pod in self.pods.values():
            # The Go project's agents end with 143 when they are stopped.
            free = pod.alive and not pod.deleting and not pod.cut and not self.attempts
            if free and pod.barrier is not None and pod.note:
                out.append((f"{pod.name} AGENT ENDS WITH 0", lambda pod=pod: self._quit(pod)))
                if not pod.barrier.lifted:
                    out.append((f"{pod.name} KUBELET FORGETS", lambda pod=pod: self._forget(pod)))
        return out

    # ---- pods ------------------------------------------------------------------------------------

    def _time_passes(self) -> None:
        """Let time pass until no cache and no kubelet lags behind."""
        for pod in list(self.pods.values()):
            if pod.alive and not pod.cut and pod.status(self._worker_of(pod)) != pod.reported:
                self._report(pod, pod.status(self._worker_of(pod)))
        for manager in self.managers:
            manager.catch_up()
        self.clock.advance(40)
        for manager in self.managers:
            manager.epochs_due = True

    def _second_passes(self) -> None:
        """Let a second pass, enough for a short pause, not for caches and kubelets."""
        self.clock.advance(1)
        for manager in self.managers:
            manager.epochs_due = manager.jobs_due = True

    def _worker_of(self, pod: Pod) -> str:
        if not self.sidecar:
            return "n"
        return "f" if pod.failed else "r" if pod.runs else "n"

    def _stranger(self, pod: Pod) -> None:
        pod.strange += 1

    def _quit(self, pod: Pod) -> None:
        """End a sidecar by its probe before a worker may start; it starts again alone."""
        self._agent_ends(pod)
        pod.code = 0

    def _succeed(self, pod: Pod) -> None:
        self._agent_ends(pod)
        pod.runs, pod.phase = 0, "Succeeded"
        self.done.setdefault(pod.job_uid, set()).add(pod.index)
        self.store_pod(pod)

    def _make(self, job: Mapping[str, Any], index: int) -> Pod:
        self.made += 1
        pod = Pod(f"{job['metadata']['name']}-{index}-{self.made}", job, index)
        pod.reports_attempts = self.attempts
        self.pods[pod.name] = pod
        self.store_pod(pod)
        return pod

    def _double(self, pod: Pod) -> None:
        """Create a second pod of an index, as the manager and the Job controller do together.

        It may join the next epoch before it is deleted, and a manager that has been replaced may
        mistake its deletion for a failure of that epoch.
        """
        self.failures += 2
        self._make(self.jobs[pod.job], pod.index).double = True

    def _uncounted(self, pod: Pod) -> None:
        pod.uncounted = True
        self._delete(pod)

    def _agent_starts(self, pod: Pod) -> None:
        pod.restarts, pod.starts, pod.cause = pod.starts, pod.starts + 1, pod.code
        note = 0 if self.attempts else pod.note
        pod.barrier = Barrier(uid="js-uid", arrived=("js-uid" if note else "", note))
        pod.seen = len(self.history)
        self._obey(pod, pod.barrier.observe("js-uid", *self.history[-1]))
        # This run was not probed yet: if the barrier is open already, the note is removed.
        pod.note = pod.patch if self.sidecar else 0

    def _agent_sees(self, pod: Pod) -> None:
        assert pod.barrier is not None
        pair = self.history[pod.seen]
        pod.seen += 1
        self._obey(pod, pod.barrier.observe("js-uid", *pair))

    def _obey(self, pod: Pod, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case PatchEpoch(epoch):
                    assert epoch >= pod.epoch, f"{pod.name} patches {epoch} over {pod.epoch}"
                    pod.patch = epoch
                case Lift(epoch):
                    if not self.sidecar:
                        self._work(pod, pod.worker.lifted(epoch))
                case Restart():
                    if self.sidecar:
                        self._agent_ends(pod)
                    else:
                        self._work(pod, pod.worker.deprecated())
                case _:
                    raise AssertionError(action)

    def _work(self, pod: Pod, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case Start(_):
                    assert pod.barrier is not None
                    self._runs(pod, pod.barrier.epoch)
                case JoinNext():
                    assert pod.barrier is not None
                    self._obey(pod, pod.barrier.next_round())
                case _:
                    pass

    def _worker_gone(self, pod: Pod) -> None:
        pod.runs = 0
        if pod.worker.phase is Phase.STOPPING:
            pod.worker.exited(143)
            pod.worker.emptied()
        self._work(pod, pod.worker.emptied())

    def _patched(self, pod: Pod) -> None:
        pod.epoch, pod.patch = pod.patch, 0
        self._note_epoch(pod)

    def _patched_late(self, pod: Pod) -> None:
        # The admission policy refuses a lower one.
        pod.epoch, pod.late = max(pod.epoch, pod.late), 0
        self._note_epoch(pod)

    def _note_epoch(self, pod: Pod) -> None:
        self.reached[pod.slot] = max(self.reached.get(pod.slot, 0), pod.epoch)
        self.store_pod(pod)

    def _probed(self, pod: Pod) -> None:
        pod.probed, pod.note = True, 0

    def _epoch_of(self, pod: Pod) -> int:
        return pod.barrier.epoch if pod.barrier is not None else pod.epoch

    def _runs(self, pod: Pod, epoch: int) -> None:
        """Check the protocol's safety when a worker starts."""
        pod.probed, pod.runs = False, epoch
        (item,) = self.object["spec"]["replicatedJobs"]
        for other in self.pods.values():
            job = self.jobs.get(other.job)
            current = job is not None and job["metadata"]["uid"] == other.job_uid
            if not other.alive or not current or other.index >= job["spec"]["parallelism"]:  # type: ignore[index]
                continue  # not, or no longer, of the group
            assert not 0 < other.runs < epoch, f"{other.name} still runs {other.runs}"
            double = other is not pod and other.runs and other.slot == pod.slot
            assert not double, f"{pod.name} and {other.name} both run"
            behind = 0 < other.epoch < epoch and not self.restored
            assert not behind, f"{other.name} is only at {other.epoch}"
        if self.resizing:
            return  # the group is being changed
        attempts = {
            name: job["metadata"]["labels"][keys.RESTART_ATTEMPT] for name, job in self.jobs.items()
        }
        for name, current in self.jobs.items():
            if attempts[name] != attempts.get(pod.job):
                continue  # the two Jobs are of different groups, one of which is being deleted
            done = self.done.get(current["metadata"]["uid"], set())
            for index in range(item["template"]["spec"]["parallelism"]):
                slot = (name, index)
                if index in done:
                    continue
                assert self.reached.get(slot, 0) >= epoch, f"{slot} never came to {epoch}"

    def _report(self, pod: Pod, actual: str) -> None:
        pod.reported = actual
        self.store_pod(pod)

    def _agent_ends(self, pod: Pod) -> None:
        pod.late, pod.patch = max(pod.late, pod.patch), 0
        pod.barrier = None
        pod.code = 137

    def _containers_end(self, pod: Pod) -> None:
        self._agent_ends(pod)
        pod.runs, pod.failed, pod.probed = 0, False, False
        pod.strange += 1

    def _fail(self, pod: Pod) -> None:
        self.failures += 1
        if self.sidecar:
            pod.failed, pod.runs = True, 0
        elif pod.worker.phase is Phase.RUNNING:
            self._work(pod, pod.worker.exited(1))

    def _crash(self, pod: Pod) -> None:
        self.failures += 1
        self._agent_ends(pod)
        if not self.sidecar:
            pod.runs, pod.worker = 0, Worker(Rules())

    def _delete(self, pod: Pod) -> None:
        pod.deleting = True
        self.store_pod(pod)

    def _uncount(self, pod: Pod) -> None:
        """Remove the Job controller's finalizer from a pod that was asked to leave, as a manager."""
        pod.uncounted = True
        self.store_pod(pod)

    def _saves(self, pod: Pod) -> None:
        """Let the program of a pod that was asked to leave save its work and end with 0."""
        pod.phase, pod.runs, pod.barrier, pod.patch = "Succeeded", 0, None, 0
        self.store_pod(pod)

    def _end_by_kubelet(self, pod: Pod) -> None:
        """Let a kubelet end a pod, whose program saves its work and ends with 0."""
        self.failures += 1  # for a manager that has not seen it, it is a missing pod
        pod.interrupted = True
        self._saves(pod)

    def _forget(self, pod: Pod) -> None:
        """End all containers of a pod whose kubelet has restarted, as its agent has reported before.

        No worker starts: one that a fast kubelet starts runs for seconds, against the protocol.
        """
        pod.unprobed += 1
        self.store_pod(pod)
        self._containers_end(pod)

    def _lose(self, pod: Pod) -> None:
        self.failures += 1
        self._delete(pod)

    def _pod_fails(self, pod: Pod) -> None:
        self.failures += 1
        pod.phase, pod.runs, pod.barrier, pod.patch = "Failed", 0, None, 0
        pod.deleting = True  # its object is removed some time later
        self.store_pod(pod)

    def _node_cut_off(self) -> None:
        """Delete half of the pods, of which neither they nor their kubelet are informed.

        They are given up after a while, or the node returns; until then their workers keep running.
        """
        for pod in list(self.pods.values())[::2]:
            if pod.alive and not pod.cut:
                pod.cut = True
                if not pod.deleting:
                    self._lose(pod)

    def _give_up(self, pod: Pod) -> None:
        """Mark the pod as failed, as a manager; its object is removed some time later."""
        pod.phase, pod.runs, pod.barrier, pod.patch = "Failed", 0, None, 0
        self.store_pod(pod)

    def _node_lost(self) -> None:
        """Remove half of the pods immediately."""
        for pod in list(self.pods.values())[::2]:
            if pod.phase == "Succeeded" or (pod.alive and pod.cut):
                continue  # its Job's finalizer keeps it until it is counted
            if pod.alive:
                self.failures += 1
            self.store_pod(pod, gone=True)

    # ---- Jobs and users ----------------------------------------------------------------------------

    def _count(self, name: str, done: int, size: int) -> None:
        status = self.jobs[name]["status"]
        finished = self.done[self.jobs[name]["metadata"]["uid"]]
        status["succeeded"] = done
        status["completedIndexes"] = ",".join(str(index) for index in sorted(finished))
        if done == size:
            status["conditions"] = [{"type": "Complete", "status": "True"}]
        self.store_job(name)

    def _job_fails(self, name: str) -> None:
        job = self.jobs[name]
        if job.setdefault("status", {}).get("conditions") or "deletionTimestamp" in job["metadata"]:
            return
        self.failures += 1
        job["status"]["conditions"] = [
            {"type": "Failed", "status": "True", "reason": "PodFailurePolicy",
             "lastTransitionTime": AT}
        ]  # fmt: skip
        self.store_job(name)

    def _at_rest(self, change: Callable[[], None]) -> None:
        """Change something when nothing else happens: that never costs a restart.

        By then a former manager knows that it no longer leads. Otherwise it might execute its plan
        for the former state, and suspend Jobs that have just been resumed.
        """
        self.managers = self.managers[-1:]
        self._come_to_rest()
        hasty = self.hasty
        change()
        self.hasty = hasty

    def _suspend(self) -> None:
        self.changes += 1
        self.hasty = True  # in the middle of something else
        spec = self.object["spec"]
        spec["suspend"] = not spec["suspend"]
        self.clock.advance(1)
        self.store_jobset()

    def _resize(self) -> None:
        self.changes += 1
        self.hasty = True
        self.resizing = True
        (item,) = self.object["spec"]["replicatedJobs"]
        spec = item["template"]["spec"]
        spec["parallelism"] = spec["completions"] = 1 if spec["parallelism"] > 1 else 2
        self.store_jobset()

    def act(self, action: p.Action) -> None:
        """Execute an action of a plan, which is based on the knowledge of a manager."""
        match action:
            case p.CreateJob(name, body):
                if name in self.jobs:
                    return
                job = self.jobs[name] = copy.deepcopy(dict(body))
                self.made += 1
                job["metadata"].update(uid=f"job-{self.made}", namespace=KEY.namespace)
                for slot in [slot for slot in self.reached if slot[0] == name]:
                    del self.reached[slot]
            case p.DeleteJob(name, uid) if self._is(name, uid):
                self.jobs[name]["metadata"]["deletionTimestamp"] = AT
            case p.SuspendJob(name, uid) if self._is(name, uid):
                self.jobs[name]["spec"]["suspend"] = True
            case p.ResumeJob(name, uid) if self._is(name, uid):
                self.jobs[name]["spec"]["suspend"] = False
            case p.ResizeJob(name, uid, parallelism, completions) if self._is(name, uid):
                size = {"parallelism": parallelism, "completions": completions}
                self.jobs[name]["spec"].update(size)
            case _:
                return
        self.store_job(name)

    def _is(self, name: str, uid: str) -> bool:
        return name in self.jobs and self.jobs[name]["metadata"]["uid"] == uid

    def _take_over(self, skew_s: float = 0.0) -> None:
        """Start another manager; the former one does not know yet, unless this is the third."""
        known_s = self.managers[-1].clock.skew.total_seconds()
        self.skewed = self.skewed or known_s + skew_s != 0
        self.managers = [*self.managers[-1:], Manager(self, known_s + skew_s)]

    def _set_clock(self, by_s: float) -> None:
        """Set the wall clock of the current manager."""
        self.skewed = True  # a time that it has written and not observed yet is by the former clock
        self.managers[-1].clock.skew += timedelta(seconds=by_s)

    # ---- the end -----------------------------------------------------------------------------------

    def do(self, move: Move) -> None:
        """Let an event happen."""
        self.trace.append(move[0])
        move[1]()

    def settle(self) -> None:
        """Let everything come to rest without further faults."""
        self.managers = self.managers[-1:]
        if self.object["spec"]["suspend"]:
            self._at_rest(self._suspend)
        self._come_to_rest()

    def _come_to_rest(self, rounds: int = 400) -> None:
        self.waited_s = 0.0
        for _ in range(rounds):
            moves = self.moves()
            if not moves and self._wake():
                continue
            if not moves:
                self.resizing = False
                return
            for move in moves:
                self._do_named(move[0])
        raise AssertionError(f"no rest: {[name for name, _ in self.moves()]}")

    def _wake(self) -> bool:
        """Let the time of the shortest wait pass; return False if there is none."""
        waits = [wait for manager in self.managers for wait in manager.waits.values()]
        pauses = self.jobset.status.restart_pacing
        if not waits or pauses is None or pauses.not_before is None:
            return False  # other waits only lead to another check of the same state
        assert min(waits) <= 300.01, f"nothing happens for {min(waits)} s"
        self.waited_s += min(waits)
        assert self.waited_s <= 1000, f"nothing but waits happens for {self.waited_s} s"
        self.clock.advance(min(waits))
        for manager in self.managers:
            manager.epochs_due = manager.jobs_due = True
        return True

    def _do_named(self, name: str) -> None:
        for move in self.moves():
            if move[0] == name:
                self.do(move)
                return

    def check_rest(self) -> None:
        """Check that all workers run at the synced epoch, and that only failures were charged."""
        status = self.jobset.status
        if finished(status.conditions) is not None:
            return
        pods = [pod for pod in self.pods.values() if pod.alive]
        expected = expected_pods(self.jobset)
        done = sum(len(self.done.get(job["metadata"]["uid"], ())) for job in self.jobs.values())

        assert len(pods) == expected - done
        assert {pod.runs for pod in pods} <= {status.synced_epoch}
        assert status.deprecated_epoch < status.synced_epoch
        spent = account(self.jobset, status.synced_epoch, expected).spent
        # A suspension or resize may be charged if it comes before the last change is executed.
        allowed = self.failures + (self.changes if self.hasty else 0)
        assert spent <= allowed, f"{spent} restarts for {self.failures} failures"


class Manager:
    """One manager: caches that lag behind, and pending passes of its reconcilers."""

    def __init__(self, world: World, skew_s: float = 0.0) -> None:
        self.world = world
        self.clock = ManagersClock(world.clock, skew_s)
        self.pause: PinnedTime | None = None
        self.epochs_due = self.jobs_due = True
        self.waits: dict[str, float] = {}
        self.jobset_events: deque[tuple[int, JobSet]] = deque()
        self.job_events: deque[tuple[int, str, Job | None]] = deque()
        self.pod_events: deque[tuple[str, ChildPod | None]] = deque()
        self.jobsets = store_writer_of(JobSet, [world.jobset])
        self.jobs = store_writer_of(Job, indexes=[OWNER_UID])
        self.pods = store_writer_of(ChildPod, indexes=POD_INDEXES)
        self.seen_jobset = self.seen_jobs = world.number
        self.wrote_jobset = self.wrote_jobs = 0
        jobs, pods = self.jobs.store, self.pods.store
        caches = caches_of(world, self.clock, jobsets=self.jobsets.store, jobs=jobs, pods=pods)
        self.epochs = RestartInPlaceReconciler(caches, RestartInPlaceSettings())
        self.own = self.epochs.expectations.handler(enqueue_self)
        for name, data in world.jobs.items():
            self._take_job(name, decoded(Job, data))
        for pod in world.pods.values():
            self._take_pod(pod.name, pod.wire(world.number))

    def moves(self) -> Iterator[Move]:
        """Yield its possible next steps."""
        if self.jobset_events:
            yield "manager sees JobSet", self.see_jobset
        if self.job_events:
            yield "manager sees Job", self.see_job
        if self.pod_events:
            yield f"manager sees {self.pod_events[0][0]}", self.see_pod
        if self.epochs_due:
            yield "epochs pass", self.pass_epochs
        caught_up = self.seen_jobset >= self.wrote_jobset and self.seen_jobs >= self.wrote_jobs
        if self.jobs_due and caught_up:
            yield "jobs pass", self.pass_jobs

    def knows(self, pod: Pod) -> bool:
        """Return True if it has observed that a pod was created."""
        return self.pods.store.get(ObjectKey(KEY.namespace, pod.name)) is not None

    def catch_up(self) -> None:
        """Process all pending events."""
        while self.jobset_events:
            self.see_jobset()
        while self.job_events:
            self.see_job()
        while self.pod_events:
            self.see_pod()

    def see_jobset(self) -> None:
        self.seen_jobset, new = self.jobset_events.popleft()
        old = self.jobsets.apply(new)
        assert old is not None
        self.own(Event(old, new))
        self.epochs_due = self.jobs_due = True

    def see_job(self) -> None:
        self.seen_jobs, name, job = self.job_events.popleft()
        self._take_job(name, job)
        self.jobs_due = True

    def see_pod(self) -> None:
        self._take_pod(*self.pod_events.popleft())

    def _take_job(self, name: str, job: Job | None) -> None:
        if _take(self.jobs, self.epochs.on_job, name, job):
            self.epochs_due = True

    def _take_pod(self, name: str, pod: ChildPod | None) -> None:
        if _take(self.pods, self.epochs.on_pod, name, pod):
            self.epochs_due = True

    def pass_epochs(self) -> None:
        self.epochs_due = False
        self._waits_for("epochs", run(self.epochs.reconcile(Request(KEY))))

    def _waits_for(self, name: str, result: Result) -> None:
        self.waits.pop(name, None)
        if result.delay is not None:
            self.waits[name] = result.delay.total_seconds()

    def pass_jobs(self) -> None:
        world = self.world
        jobset = self.jobsets.store.get(KEY)
        assert jobset is not None
        jobs = self.jobs.store.by_index(OWNER_UID, jobset.metadata.uid)
        plan = plan_jobs(
            ObservedJobSet(
                key=KEY,
                jobset=jobset,
                jobs=jobs,
                surroundings=frozenset({("Service", KEY.name)}),
                features=FEATURES,
                backoff=RestartBackoff(),
            ),
            p.JobsMemory(uid=jobset.metadata.uid, pause=self.pause),
            Now(self.clock.now(), self.clock.monotonic()),
        )
        self.pause = None if plan.memory is None else plan.memory.pause
        self.jobs_due = False
        self._waits_for("jobs", plan.result)
        before = world.number
        for action in plan.actions:
            world.act(action)
        if world.number > before:
            self.wrote_jobs = world.number
        if plan.status is None or not plan.status.patch:
            return
        version = jobset.metadata.resource_version
        body = {"metadata": {"resourceVersion": version}, "status": plan.status.patch}
        try:
            run(world.merge_patch(JobSet, "", KEY.name, body, subresource="status"))
        except ConflictError:
            self.jobs_due = True
        else:
            self.wrote_jobset = world.number


def _doubles(pods: list[Pod], finished: set[int]) -> list[Pod]:
    """Return pods whose index has another pod, or needs none; the Job does not count them."""
    first: dict[int, Pod] = {}
    return [
        pod
        for pod in pods
        if pod.alive
        and not pod.deleting
        and (pod.index in finished or first.setdefault(pod.index, pod) is not pod)
    ]


def _take(store: Any, handler: Any, name: str, new: Any) -> bool:
    """Process an event as an informer does; return True if the handler requests a reconcile."""
    if new is None:
        old = store.delete(ObjectKey(KEY.namespace, name))
        return old is not None and bool(handler(Event(old, None)))
    old = store.apply(new)
    if old is not None and old.metadata.uid != new.metadata.uid:
        ended = bool(handler(Event(old, None)))
        return bool(handler(Event(None, new))) or ended
    return bool(handler(Event(old, new)))
