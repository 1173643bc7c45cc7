"""Observed state of one JobSet: counts of its pods, and events since the last plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import attrs

from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.worker_reports import FirstProgress
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause
from jobsetpy.reconcilers.restart_in_place.failures.pod_changes import Failure
from jobsetpy.reconcilers.restart_in_place.observed.job_counts import Counts
from jobsetpy.reconcilers.restart_in_place.observed.spare_counts import Spares
from jobsetpy.reconcilers.rules.backoff import OFF, RestartBackoff


class Crash(NamedTuple):
    """Container of a pod that failed ``times`` times before the barrier lifted.

    The restart of every container that belongs to a restart of the group is not counted.
    """

    times: int
    pod: str
    container: str


class EpochSeen(NamedTuple):
    """Epoch, and the monotonic time at which it was observed first."""

    epoch: int = 0
    at: float = 0.0


class Arrival(NamedTuple):
    """Pod that has come to an epoch, and its node; "" if unknown."""

    epoch: int = 0
    pod: str = ""
    node: str = ""


class FirstOfRun(NamedTuple):
    """First progress in the previous run, as pods have reported it with an epoch."""

    epoch: int
    progress: FirstProgress


@attrs.define
class Observations:
    """Events of an attempt's pods since the last decision on its epochs.

    Args:
        failures: the first few changes of pods that may mean a failure, all of one epoch.
        remade: name of a Job that is deleted to be recreated on request, or "".
        newest_epoch_seen: the newest epoch that a pod has reached, and when the first one did.
        single: the latest epoch that all pods were at, and the time since then.
        opener: the newest epoch, and name and node of the first pod that has reached it.
        latest: the same for the last pod so far.
        reported: report of the first pod that reached the newest epoch because its worker had
            failed, as the cause for the end of the epoch before.
        first: the newest epoch, and the first progress in the previous run as reported with it: the
            lowest step, and the longest time.
    """

    failures: tuple[Failure, ...] = ()
    remade: str = ""
    newest_epoch_seen: EpochSeen = attrs.field(factory=EpochSeen)
    single: EpochSeen = attrs.field(factory=EpochSeen)
    opener: Arrival = attrs.field(factory=Arrival)
    latest: Arrival = attrs.field(factory=Arrival)
    reported: Cause | None = None
    first: FirstOfRun | None = None


@attrs.define(eq=False)
class GroupCounts(Counts):
    """Counts of the pods of a JobSet's current Jobs.

    Args:
        succeeded: number of pods that have left the group by succeeding.
        lost: number of pods lost with failed Jobs, without those that succeeded.
        crashes: the worst crash since the barrier closed, by ReplicatedJob and container; including
            containers that the JobSet does not name.
        ended: the newest epoch with which a pod has reported the end of its worker.
        spares: Jobs with spares, and their parked pods, which are counted nowhere else.
        notes: observations until now.
    """

    succeeded: int = 0
    lost: int = 0
    crashes: dict[tuple[str, str], Crash] = attrs.field(factory=dict)
    ended: int = 0
    spares: Spares = attrs.field(factory=Spares)
    notes: Observations = attrs.field(factory=Observations)


@attrs.frozen(kw_only=True)
class ObservedEpochs:
    """Observed state of one JobSet.

    Args:
        jobset: the JobSet.
        pods: counts of its current attempt.
        notes: observations since the last plan.
        job_of: finds the Job of a pod.
        node_ready: returns True if the node with a name is ready, as far as known.
        members: lists the Jobs of the current attempt and their pods; O(pods), so it is called only
            to name some of them.
        wait_s: seconds for which the cache may not show own writes yet; 0 if it does.
        stalled_after_s: time after which a closed barrier is reported as stalled.
        missing_after_s: time after which a missing pod of a running group counts as failed.
        backoff: back-off of restarts in quick succession, unless the JobSet sets its own.
        reporters: pods whose agents report neighbours that send no heartbeats, or a line of output,
            in any epoch.
    """

    jobset: JobSet
    pods: GroupCounts = attrs.field(factory=GroupCounts)
    notes: Observations = attrs.field(factory=Observations)
    job_of: Callable[[ChildPod], Job | None] = lambda _pod: None
    node_ready: Callable[[str], bool] = lambda _name: True
    members: Callable[[], tuple[list[Job], list[ChildPod]]] = lambda: ([], [])
    wait_s: float = 0.0
    stalled_after_s: float = 60.0
    missing_after_s: float = 10.0
    backoff: RestartBackoff = OFF
    reporters: Sequence[ChildPod] = ()
