"""Which pods send no heartbeats (see ``agent.supervisor.heartbeats.rules``) and are silent.

Decision:

* A pod is *silent* if agents on two other nodes report it. Neighbours in the ring that are reported
  as well count as one with it: two nodes of a rack that vanish together have one observer each.
  Reports from a node that is itself reported do not count: who of two is cut off is not known. In a
  group of two nodes one observer is enough.
* Silence alone ends nothing. Workers have to make no progress as well, as observers see it, and
  there have to be spares for all seats of silent nodes. Otherwise an event says why nothing is
  done.
* A silent pod is waited for until the last call, whatever it was doing: by then its own agent, if
  it is cut off, has killed its worker (``agent.supervisor.heartbeats.self_fence``). A silent spare
  gets no seat.

Being wrong costs a restart, and never a result: the seat of a silent pod goes to a spare as any
seat does, and each agent learns from the assignment if it still has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from math import inf
from operator import itemgetter
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.agent_reports import PARKED, READY
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.epoch_report import parse_epoch
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet
from jobsetpy.reconcilers.restart_in_place.detection.heartbeat_report import (
    BLOCKED,
    MOVING,
    STALLED,
    UNKNOWN,
    Report,
    parse_report,
)
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import record_of
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause, FailureKind
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.spares.assign_job import SeatedJob, SeatingRequest
from jobsetpy.reconcilers.restart_in_place.spares.assign_jobs import assign_seats
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.membership import parse_count
from jobsetpy.reconcilers.rules.plan import EmitEvent

MAX_OBSERVERS: Final = 64
"""Maximum number of reports that are evaluated: more of them mean that the network has failed."""

OBSERVERS: Final = 2


@attrs.frozen(kw_only=True)
class Silence:
    """Result of an evaluation of all reports.

    Args:
        pods: silent pods, in the order of the ring.
        gone: UIDs of all pods on their nodes.
        observers: names of the nodes whose agents report them, in order.
        motion: ``STALLED`` if the observers see workers without progress, and none with it;
            ``MOVING`` if they see any with it; else "unknown".
        doubted: pods that too few agents report.
        blocked: names of pods that have never received a heartbeat.
        outage: True if there are too many reports to evaluate.
        replaceable: True if workers stall and spares can take all seats of silent nodes.
    """

    pods: tuple[ChildPod, ...] = ()
    gone: frozenset[str] = frozenset()
    observers: tuple[str, ...] = ()
    motion: str = ""
    doubted: tuple[ChildPod, ...] = ()
    blocked: tuple[str, ...] = ()
    outage: bool = False
    replaceable: bool = False

    @property
    def uids(self) -> frozenset[str]:
        """UIDs of the silent pods."""
        return frozenset(pod.metadata.uid for pod in self.pods)


NO_SILENCE: Final = Silence()


@attrs.frozen(kw_only=True)
class Heard:
    """Result of the last plan's evaluation; this module alone makes another one.

    Args:
        silent: UIDs of silent pods.
        reported: messages of events about what agents report without a restart.
    """

    silent: frozenset[str] = frozenset()
    reported: frozenset[str] = frozenset()

    @classmethod
    def of(cls, silence: Silence, events: Sequence[EmitEvent]) -> Heard:
        """Return the result of an evaluation and its events, new ones and others."""
        return cls(silent=silence.uids, reported=frozenset(each.message for each in events))


def find_silence(
    epoch: int,
    replicated_jobs: Sequence[str],
    pods: Iterable[ChildPod],
    reports: Mapping[str, Report],
) -> Silence:
    """Evaluate the reports of pods; O(pods).

    Args:
        epoch: the synced epoch.
        replicated_jobs: names of the ReplicatedJobs, in their order.
        pods: pods of the JobSet's current Jobs.
        reports: reports about this epoch, by UID of the observing pod.
    """
    ring = _ring(replicated_jobs, pods)
    heard = [(pod, reports[pod.metadata.uid]) for pod in ring if pod.metadata.uid in reports]
    blocked = tuple(pod.metadata.name for pod, report in heard if report.motion == BLOCKED)
    by_name = {_name(pod): pod for pod in ring if _may_be_silent(pod, epoch)}
    named = [
        (pod.spec.node_name, report.motion, by_name[name])
        for pod, report in heard
        for name in report.pods
        if name in by_name and by_name[name].spec.node_name != pod.spec.node_name
    ]
    found = _judged(ring, named) if named else NO_SILENCE
    return attrs.evolve(found, blocked=blocked)


def _judged(ring: Sequence[ChildPod], named: Sequence[tuple[str, str, ChildPod]]) -> Silence:
    """Return the silent pods of a ring.

    Args:
        ring: pods with a place in the ring, in its order.
        named: observing node, motion, and reported pod, of each report.
    """
    nodes = [pod.spec.node_name for pod in ring]
    witnesses = _witnesses(nodes, named)
    needed = min(OBSERVERS, len(set(nodes) - witnesses.keys()))
    silent = {
        node for node, seen in witnesses.items() if 0 < needed <= len({one for one, _ in seen})
    }
    seen = {each for node in silent for each in witnesses[node]}
    motions = {motion for _, motion in seen}
    found = {pod.metadata.uid: pod for _, _, pod in named}
    return Silence(
        pods=tuple(pod for pod in found.values() if pod.spec.node_name in silent),
        gone=frozenset(pod.metadata.uid for pod in ring if pod.spec.node_name in silent),
        observers=tuple(sorted({observer for observer, _ in seen})),
        motion=next((each for each in (MOVING, STALLED) if each in motions), UNKNOWN),
        doubted=tuple(pod for pod in found.values() if pod.spec.node_name not in silent),
    )


def _ring(replicated_jobs: Sequence[str], pods: Iterable[ChildPod]) -> list[ChildPod]:
    """Return the live pods that have a place in the ring, in its order."""
    order = {name: at for at, name in enumerate(replicated_jobs)}
    places = {pod.metadata.uid: (_place(pod, order), pod) for pod in pods if pod.live}
    return [pod for place, pod in sorted(places.values(), key=itemgetter(0)) if place[0] >= 0]


def _place(pod: ChildPod, order: Mapping[str, int]) -> tuple[int, int, int]:
    """Return the place of a pod in the ring; the first number is -1 if it has none."""
    labels, index = pod.metadata.labels, parse_count(pod.metadata.annotations.completion_index)
    job = parse_count(labels.job_index)
    if index is None or job is None or not pod.spec.node_name:
        return (-1, 0, 0)
    return (order.get(labels.replicated_job_name, -1), job, index)


def _name(pod: ChildPod) -> str:
    """Return the name of a pod in the ring."""
    labels = pod.metadata.labels
    index = pod.metadata.annotations.completion_index
    return f"{labels.replicated_job_name}-{labels.job_index}-{index}"


def _may_be_silent(pod: ChildPod, epoch: int) -> bool:
    """Return True if a pod works in the epoch, or is a spare, which is at the next one."""
    reported = parse_epoch(pod.metadata.annotations.epoch)
    spare = pod.metadata.annotations.agent_state in {READY, PARKED}
    return reported == epoch or (reported == epoch + 1 and spare)


def _witnesses(
    nodes: Sequence[str], named: Sequence[tuple[str, str, ChildPod]]
) -> Mapping[str, set[tuple[str, str]]]:
    """Return by reported node the other nodes that report it, each with the motion it sees.

    Reported nodes whose pods are next to each other in the ring count as one.

    Args:
        nodes: nodes of the ring's pods, in its order.
        named: observing node, motion, and reported pod, of each report.
    """
    first = {pod.spec.node_name: pod.spec.node_name for _, _, pod in named}
    for one, other in pairwise([*nodes, *nodes[:1]]):
        if one in first and other in first:
            old, new = first[other], first[one]
            first.update({node: new for node, each in first.items() if each == old})
    found: dict[str, set[tuple[str, str]]] = {each: set() for each in first.values()}
    for observer, motion, pod in named:
        if observer not in first:
            found[first[pod.spec.node_name]].add((observer, motion))
    return {node: found[each] for node, each in first.items()}


def can_be_replaced(
    jobs: Iterable[SeatedJob], record: InPlaceRestartStatus, gone: frozenset[str]
) -> bool:
    """Return True if there is a pod for each seat, without those that are gone; O(pods)."""
    left = [
        attrs.evolve(
            job, pods=[attrs.evolve(pod, epoch=1) for pod in job.pods if pod.uid not in gone]
        )
        for job in jobs
    ]
    now = SeatingRequest(epoch=1, waited_s=inf, starting=False)
    return not assign_seats(left, record.taken_seats, now, record.taken_jobs).unfilled


# ---- seam with the plan --------------------------------------------------------------------------


def silence_of(observed: ObservedEpochs) -> Silence:
    """Evaluate the reports of a JobSet's pods; O(pods) if there are some of this epoch."""
    jobset, spares = observed.jobset, observed.pods.spares
    epoch = jobset.status.synced_epoch
    parsed = ((pod, parse_report(pod.metadata.annotations.unheard)) for pod in observed.reporters)
    current = ((pod.metadata.uid, each) for pod, each in parsed if each and each.epoch == epoch)
    reports = dict(islice(current, MAX_OBSERVERS + 1))
    if not reports:
        return NO_SILENCE
    if len(reports) > MAX_OBSERVERS:
        return Silence(outage=True)
    names = [item.name for item in jobset.spec.replicated_jobs]
    found = find_silence(epoch, names, observed.members()[1], reports)
    if found.motion != STALLED or not spares.seats:
        return found
    jobs = spares.jobs(fixed=observed.pods.succeeded > 0)
    replaceable = can_be_replaced(jobs, record_of(jobset), found.gone)
    return attrs.evolve(found, replaceable=replaceable)


def silent_cause(jobset: JobSet, silence: Silence) -> Cause | None:
    """Return the restart that a silent pod requires: its workers stall, and spares are there."""
    if not silence.replaceable:
        return None
    epoch = jobset.status.synced_epoch
    for pod in silence.pods:
        if parse_epoch(pod.metadata.annotations.epoch) == epoch:  # a spare is at the next one
            name, node = pod.metadata.name, pod.spec.node_name
            return Cause(epoch, FailureKind.POD_SILENT, name, node=node)
    return None


def unheard_events(jobset: JobSet, silence: Silence, *, restarts: bool) -> list[EmitEvent]:
    """Return the events about heartbeats that are missing, while that leads to no restart."""
    status = jobset.status
    if silence == NO_SILENCE or status.synced_epoch <= status.deprecated_epoch:
        return []
    found = []
    if silence.outage:
        message = (
            f"more than {MAX_OBSERVERS} pods do not hear their neighbours: the network has failed, "
            "and not a node; no restart follows"
        )
        found.append(EmitEvent(cond.WARNING, keys.HEARTBEATS_MISSING_REASON, message))
    if silence.blocked:
        names = ", ".join(map(repr, silence.blocked))
        message = (
            f"no heartbeats arrive at {names}: a silent node will be noticed late; let the pods of "
            f"the JobSet reach each other by UDP, port {keys.HEARTBEAT_PORT} (NetworkPolicy)"
        )
        found.append(EmitEvent(cond.WARNING, keys.HEARTBEATS_BLOCKED_REASON, message))
    if restarts:
        return found
    why = _why_running(silence)
    nodes = "node" if len(silence.observers) == 1 else "nodes"
    agents = f"agents on {len(silence.observers)} other {nodes}"
    found += [_event(keys.POD_SILENT_REASON, pod, agents, why) for pod in silence.pods]
    agents, why = "agents of one node", "nothing is done, since agents of other nodes do"
    found += [_event(keys.HEARTBEATS_MISSING_REASON, pod, agents, why) for pod in silence.doubted]
    return found


def _why_running(silence: Silence) -> str:
    """Return why silent pods cause no restart."""
    if silence.motion == MOVING:
        return "nothing is done, since workers make progress"
    if silence.motion != STALLED:
        return "nothing is done, since no worker reports enough progress to see that it stalls"
    if not silence.replaceable:
        return "no spare can take its seat: the group waits for the pod, or for its replacement"
    return "nothing is done, since it has no seat, or no restarts are left"


def _event(reason: str, pod: ChildPod, observers: str, why: str) -> EmitEvent:
    name = pod.metadata.name
    message = f"{observers} do not hear pod {name!r} on node {pod.spec.node_name!r}: {why}"
    return EmitEvent(cond.WARNING, reason, message, pod=name)
