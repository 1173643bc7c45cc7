"""Pods that have started, for all JobSets that start as a group, counted as they change (KEP-498).

As with epochs, counting all pods at each pod's event would be quadratic; here an event changes a
few numbers. A pod belongs to a group by UIDs alone (pod → Job → JobSet), and counts only if it is
of its Job's present attempt: a pod from before a suspension is not a pod of the Job that was
resumed. The ledger holds no pods; its size grows with the Jobs that take part, and it is empty
while no JobSet uses group scheduling.

What it says is necessary, not sufficient: Jobs that the JobSet has outgrown are still in it. The
decision looks at the Jobs themselves (``group_decision``).
"""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod
from jobsetpy.domain.membership import AttemptKey, attempt_of, parse_count, pods_at_once

_Pods = tuple[str, str]  # UID of the controller, and attempt as the pod has it


class _Job:
    """What is counted of a Job."""

    __slots__ = ("attempt", "counted", "finished", "full", "group", "pods", "want")

    def __init__(self, job: Job, group: AttemptKey, attempt: int) -> None:
        spec, status = job.spec, job.status
        self.group = group
        self.attempt = attempt
        self.pods: _Pods = (job.metadata.uid, job.metadata.annotations[keys.GROUP_ATTEMPT])
        self.finished = status.finished is not None
        self.full = pods_at_once(spec.parallelism, spec.completions)
        self.want = pods_at_once(spec.parallelism, spec.completions, status.succeeded)
        self.counted = 0

    def same_as(self, other: _Job) -> bool:
        """Whether a decision would see no difference."""
        mine = (self.group, self.attempt, self.counted, self.full, self.want)
        return mine == (other.group, other.attempt, other.counted, other.full, other.want)

    def missing(self, started: int) -> int:
        """How many of its pods have yet to start, if so many have."""
        return 0 if self.finished else max(0, self.want - started)


class _Group:
    __slots__ = ("attempts", "started")

    def __init__(self) -> None:
        self.started = 0
        self.attempts: dict[int, int] = {}  # of how many Jobs


class StartLedger:
    """Started pods per Job and per group, kept up to date by events in O(1)."""

    __slots__ = ("_groups", "_jobs", "_pods")

    def __init__(self) -> None:
        self._pods: dict[_Pods, int] = {}
        self._jobs: dict[str, _Job] = {}  # by UID
        self._groups: dict[AttemptKey, _Group] = {}

    def __len__(self) -> int:
        """How many groups and Jobs it has counts of."""
        return len(self._pods) + len(self._jobs) + len(self._groups)

    def started(self, group: AttemptKey) -> int:
        """How many pods have started; of no Job more than it wants, of a finished one all."""
        counts = self._groups.get(group)
        return 0 if counts is None else counts.started

    def attempt(self, group: AttemptKey) -> int:
        """The newest attempt that some Job of the group is of; 0 without Jobs."""
        counts = self._groups.get(group)
        return 0 if counts is None else max(counts.attempts)

    def missing(self, job_uid: str) -> int | None:
        """How many pods of a Job have yet to start; ``None`` if the Job takes no part."""
        job = self._jobs.get(job_uid)
        return None if job is None else job.missing(self._pods.get(job.pods, 0))

    def pod_changed(self, old: ChildPod | None, new: ChildPod | None) -> AttemptKey | None:
        """Take a pod's change into account.

        Args:
            old: the pod before, ``None`` if it is new.
            new: the pod now, ``None`` if it is gone.

        Returns:
            The group whose count changed, or ``None``.
        """
        was = None if old is None else _counts_for(old)
        is_ = None if new is None else _counts_for(new)
        if was == is_:
            return None
        group = None
        if was is not None:
            group = self._count(was, -1)
        if is_ is not None:
            group = self._count(is_, 1) or group
        return group

    def job_changed(self, old: Job | None, new: Job | None) -> AttemptKey | None:
        """Take a Job's change into account.

        Args:
            old: the Job before, ``None`` if it is new.
            new: the Job now, ``None`` if it is gone.

        Returns:
            The group that was joined, left or whose count changed, or ``None``.
        """
        changed = None
        before = None if old is None else self._jobs.get(old.metadata.uid)
        if old is not None and before is not None:
            self._leave(old.metadata.uid, before)
            changed = before.group
        after = None if new is None else _take_part(new)
        if new is not None and after is not None:
            self._join(new.metadata.uid, after)
            if before is not None and before.same_as(after):
                return None
            changed = after.group
        return changed

    def _count(self, pods: _Pods, number: int) -> AttemptKey | None:
        count = self._pods.get(pods, 0) + number
        if count:
            self._pods[pods] = count
        else:
            self._pods.pop(pods, None)
        job = self._jobs.get(pods[0])
        if job is None or job.pods != pods:
            return None
        before = job.counted
        job.counted = job.full - job.missing(count)
        self._groups[job.group].started += job.counted - before
        return job.group if job.counted != before else None

    def _join(self, uid: str, job: _Job) -> None:
        self._jobs[uid] = job
        group = self._groups.setdefault(job.group, _Group())
        job.counted = job.full - job.missing(self._pods.get(job.pods, 0))
        group.started += job.counted
        group.attempts[job.attempt] = group.attempts.get(job.attempt, 0) + 1

    def _leave(self, uid: str, job: _Job) -> None:
        del self._jobs[uid]
        group = self._groups[job.group]
        group.started -= job.counted
        left = group.attempts[job.attempt] - 1
        if left:
            group.attempts[job.attempt] = left
        else:
            del group.attempts[job.attempt]
        if not group.attempts:
            del self._groups[job.group]


def _counts_for(pod: ChildPod) -> _Pods | None:
    """Whose count a pod is part of; ``None`` if it is part of none."""
    meta = pod.metadata
    attempt = meta.annotations.group_attempt
    if attempt is None or not pod.status.group_started or meta.deletion_timestamp is not None:
        return None
    if pod.status.phase in {"Failed", "Succeeded"}:
        return None  # those that succeeded are in their Job's status
    owner = meta.controller_uid
    return (owner, attempt) if owner else None


def _take_part(job: Job) -> _Job | None:
    attempt = parse_count(job.metadata.annotations.get(keys.GROUP_ATTEMPT))
    group = attempt_of(job) if attempt is not None else None
    return None if attempt is None or group is None else _Job(job, group, attempt)
