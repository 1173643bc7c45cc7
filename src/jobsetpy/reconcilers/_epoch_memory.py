"""What the pod epochs reconciler remembers of a JobSet between passes.

Nothing here is needed for a restart to go on: a new manager starts without it. Lost with it are at
most an early detection, a measurement and the time a barrier has been closed.
"""

from __future__ import annotations

import attrs

from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import ObjectKey, version_number
from jobsetpy.domain.epochs.decision import Histogram, InvalidEpoch
from jobsetpy.domain.epochs.failures import Cause
from jobsetpy.reconcilers import metrics

STATUS_LAG_S = 30.0
"""By then a pod's status is not older any more than the synced epoch that was seen before it."""


@attrs.define
class Phases:
    """Times of a restart in place, on the monotonic clock."""

    epoch: int = 0
    began: float | None = None
    deprecated: float | None = None
    followed: float | None = None
    gathered: float | None = None

    def sign(self, now: float) -> None:
        """A failure or a new epoch has been seen."""
        if self.began is None:
            self.began = now

    def deprecate(self, epoch: int, now: float) -> None:
        """``epoch`` has been deprecated."""
        if self.began is not None:
            metrics.in_place_restart_phase("detect", now - self.began)
        self.epoch, self.deprecated, self.followed, self.gathered = epoch, now, None, None

    def look(self, pods: Histogram, now: float) -> None:
        """A pod has changed; O(1)."""
        if self.followed is None and self.deprecated is not None and len(pods.epochs) == 1:
            (only,) = pods.epochs
            if only > self.epoch:
                self.followed = now
                metrics.in_place_restart_phase("deprecate", now - self.deprecated)

    def gather(self, now: float) -> None:
        """All pods are there."""
        if self.gathered is None:
            self.gathered = now
            if self.followed is not None:
                metrics.in_place_restart_phase("gather", now - self.followed)

    def end(self, now: float, *, restart: bool) -> None:
        """The barrier has been lifted."""
        if restart and self.gathered is not None:
            metrics.in_place_restart_phase("lift", now - self.gathered)
        if restart and self.began is not None:
            metrics.in_place_restart_ended(now - self.began)
        self.reset()

    def reset(self) -> None:
        """There is no restart."""
        self.epoch = 0
        self.began = self.deprecated = self.followed = self.gathered = None


@attrs.define
class EpochMemory:
    """Of one JobSet, known by ``uid``.

    Args:
        uid: of the JobSet.
        told: unusable annotations that an event has told of.
        cause: the failure that ended the latest epoch to end early.
        phases: the restart that is measured.
        waiting_since: when the barrier was first seen closed, on the monotonic clock.
        look_at: when to see who holds it.
        stall_told: the epoch whose stalled barrier an event has told of.
        missing: how many pods the barrier waited for at the last look.
        stalled: whether the barrier is held for so long that it was looked who holds it.
    """

    uid: str
    told: frozenset[InvalidEpoch] = frozenset()
    cause: Cause | None = None
    phases: Phases = attrs.field(factory=Phases)
    waiting_since: float | None = None
    look_at: float = 0.0
    stall_told: int = 0
    missing: int = 0
    stalled: bool = False
    _synced: int = 0
    _synced_version: int = 0
    _synced_at: float = 0.0

    def wait(self, now: float, patience_s: float) -> None:
        """The barrier has been closed, or is seen closed for the first time."""
        self.waiting_since, self.look_at = now, now + patience_s

    def saw_synced(self, epoch: int, version: int, now: float) -> None:
        """Note that an epoch is synced, when that is news.

        Args:
            epoch: of the status.
            version: the newest resourceVersion of a pod seen before the epoch was synced.
            now: on the monotonic clock.
        """
        if epoch != self._synced:
            self._synced, self._synced_version, self._synced_at = epoch, version, now

    def runs(self, epoch: int, version: str, now: float) -> bool:
        """Whether what a pod's status shows as running surely runs at ``epoch``.

        A status may be left from the run before: the agent's patch and the kubelet's reports are
        not in step. A worker of this epoch starts only after the epoch was synced, so a status that
        was in the cache by then shows none. One written later shows none of an older run, since by
        then every pod's kubelet had removed those; after a while, neither does any.

        Args:
            epoch: the pod's.
            version: the pod's resourceVersion.
            now: on the monotonic clock.
        """
        if epoch != self._synced:
            return False
        if now - self._synced_at >= STATUS_LAG_S:
            return True
        return version_number(version) > self._synced_version


class EpochMemories:
    """Of all JobSets that restart in place."""

    def __init__(self) -> None:
        self._memories: dict[ObjectKey, EpochMemory] = {}
        self._missing = 0
        self._stalled = 0
        self.newest_version = 0

    def __len__(self) -> int:
        """How many JobSets are remembered."""
        return len(self._memories)

    def get(self, jobset: JobSet) -> EpochMemory | None:
        """What is remembered of a JobSet, if anything is."""
        memory = self._memories.get(jobset.metadata.key)
        return memory if memory is not None and memory.uid == jobset.metadata.uid else None

    def of(self, jobset: JobSet) -> EpochMemory:
        """What is remembered of a JobSet, to be added to."""
        memory = self.get(jobset)
        if memory is None:
            key = jobset.metadata.key
            self.forget(key)
            memory = self._memories[key] = EpochMemory(jobset.metadata.uid)
        return memory

    def forget(self, key: ObjectKey) -> None:
        """A JobSet is gone, or does not restart in place for now."""
        memory = self._memories.pop(key, None)
        if memory is not None:
            self.set_missing(memory, 0)

    def set_missing(self, memory: EpochMemory, count: int) -> None:
        """Note how many pods a barrier waits for; one that waits for none is not stalled."""
        if memory.missing != count:
            self._missing += count - memory.missing
            memory.missing = count
            metrics.in_place_missing_pods(self._missing)
        if not count:
            self.set_stalled(memory, stalled=False)

    def set_stalled(self, memory: EpochMemory, *, stalled: bool) -> None:
        """Note whether a barrier is stalled."""
        if memory.stalled != stalled:
            self._stalled += 1 if stalled else -1
            memory.stalled = stalled
            metrics.in_place_stalled(self._stalled)

    def saw_pod(self, pod: ChildPod) -> None:
        """Note how far the pods' events have come."""
        version = version_number(pod.metadata.resource_version)
        self.newest_version = max(self.newest_version, version)
