"""Observed state of one JobSet: counts of its pods, and events since the last plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import attrs

from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.failures import Failure
from jobsetpy.reconcilers.restart_in_place.job_seats import SeatedJob
from jobsetpy.reconcilers.restart_in_place.node_memory import NodeMemory
from jobsetpy.reconcilers.restart_in_place.reports import FirstProgress, ReportedEnd
from jobsetpy.reconcilers.rules.backoff import OFF, RestartBackoff


@attrs.frozen
class InvalidEpoch:
    """Pod whose annotation is not a valid epoch or attempt."""

    pod_name: str
    pod_uid: str
    text: str
    is_attempt: bool = False


class Crash(NamedTuple):
    """Container of a pod that failed ``times`` times before the barrier lifted.

    The restart of every container that belongs to a restart of the group is not counted. ``at`` has
    the times of failures within the window, if there is one.
    """

    times: int
    pod: str
    container: str
    at: tuple[datetime, ...] = ()


@attrs.frozen
class Spares:
    """Parked pods of an attempt, and access to all pods of its Jobs with spares.

    Args:
        parked: number of parked pods at each epoch.
        ready: number of those whose standby process is ready, at any epoch.
        exhausted: number of Jobs without a ready spare.
        jobs: returns the Jobs with spares and their pods; O(pods).
    """

    parked: Mapping[int, int]
    ready: int
    exhausted: int
    jobs: Callable[[], Sequence[SeatedJob]]


@attrs.frozen
class Histogram:
    """Counts of the pods of a JobSet's current Jobs.

    Args:
        epochs: number of live pods at each epoch, without zeros.
        succeeded: number of pods that have left the group by succeeding.
        first: a pod that was observed early at each epoch, as far as known.
        restarts: number of live pods for each restart count of a container above 0, for any cause.
        lost: number of pods lost with failed Jobs, without those that succeeded.
        leaving: number of pods at an epoch that are being deleted.
        doubles: number of live pods whose completion index another live pod has as well; including
            those that have not reported an epoch yet, and may join any that is not synced.
        crashes: the worst crash since the barrier closed, by ReplicatedJob and container; including
            containers that the JobSet does not name.
        attempts: number of live pods with an agent of the Go project, which reports attempts.
        progress: the newest epoch with which a pod has reported earlier progress, and the highest
            step; -1 without a number.
        ended: the newest epoch with which a pod has reported the end of its worker.
        slow: number of pods whose worker waits for a slow API server at its epoch.
        digest: digest of the UIDs of pods with an epoch, in any order.
        spares: parked pods, which are counted nowhere else; ``None`` without Jobs with spares.
    """

    epochs: Mapping[int, int] = attrs.field(factory=dict)
    succeeded: int = 0
    first: Mapping[int, str] = attrs.field(factory=dict)
    restarts: Mapping[int, int] = attrs.field(factory=dict)
    lost: int = 0
    leaving: int = 0
    doubles: int = 0
    crashes: Mapping[tuple[str, str], Crash] = attrs.field(factory=dict)
    attempts: int = 0
    progress: tuple[int, int] = (0, -1)
    ended: int = 0
    digest: int = 0
    slow: int = 0
    spares: Spares | None = None


@attrs.frozen
class Observations:
    """Events of an attempt's pods since the last decision on its epochs.

    Args:
        failures: the first few changes of pods that may mean a failure, all of one epoch.
        remade: name of a Job that is deleted to be recreated on request, or "".
        invalid: number of pods with an invalid annotation that have appeared.
        opened: the newest epoch that a pod has reached, and when the first one did.
        single: the latest epoch that all pods were at, and the time since then.
        opener: the newest epoch, and name and node of the first pod that has reached it.
        latest: the same for the last pod so far.
        reported: report of the first pod that reached the newest epoch because its worker had
            failed.
        first: the newest epoch, and the first progress in the previous run as reported with it: the
            lowest step, and the longest time.
    """

    failures: tuple[Failure, ...] = ()
    remade: str = ""
    invalid: int = 0
    opened: tuple[int, float] = (0, 0.0)
    single: tuple[int, float] = (0, 0.0)
    opener: tuple[int, str, str] = (0, "", "")
    latest: tuple[int, str, str] = (0, "", "")
    reported: ReportedEnd | None = None
    first: tuple[int, FirstProgress] | None = None


@attrs.frozen(kw_only=True)
class ObservedEpochs:
    """Observed state of one JobSet.

    Args:
        jobset: the JobSet; ``None`` if it is deleted.
        pods: counts of its current attempt.
        invalid: pods with an invalid annotation, by UID.
        notes: observations since the last plan.
        job_of: finds the Job of a pod.
        node_ready: returns True if the node with a name is ready, as far as known.
        failed_at: returns the monotonic time of the latest observed failure of a Job's pod.
        members: lists the Jobs of the current attempt and their pods; O(pods), so it is called only
            to name some of them.
        wait_s: seconds for which the cache may not show own writes yet; 0 if it does.
        stalled_after_s: time after which a closed barrier is reported as stalled.
        missing_after_s: time after which a missing pod of a running group counts as failed.
        backoff: back-off of restarts in quick succession, unless the JobSet sets its own.
        nodes: settings for suspect nodes.
        unheard: pods whose agents report neighbours that send no heartbeats, in any epoch.
    """

    jobset: JobSet | None
    pods: Histogram = attrs.field(factory=Histogram)
    invalid: Mapping[str, InvalidEpoch] = attrs.field(factory=dict)
    notes: Observations = attrs.field(factory=Observations)
    job_of: Callable[[ChildPod], Job | None] = lambda _pod: None
    node_ready: Callable[[str], bool] = lambda _name: True
    failed_at: Callable[[Job], float | None] = lambda _job: None
    members: Callable[[], tuple[list[Job], list[ChildPod]]] = lambda: ([], [])
    wait_s: float = 0.0
    stalled_after_s: float = 60.0
    missing_after_s: float = 10.0
    backoff: RestartBackoff = OFF
    nodes: NodeMemory = attrs.field(factory=NodeMemory)
    unheard: Sequence[ChildPod] = ()
