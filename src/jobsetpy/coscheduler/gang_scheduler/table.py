"""Table of gangs: membership of pods, their states, and the gangs that an event has changed."""

from __future__ import annotations

from collections import Counter

from jobsetpy.coscheduler.gang_scheduler.gang import TrackedGang, TrackedPod
from jobsetpy.coscheduler.gang_scheduler.state import Counts, PodState, SeenPod, Stage
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey


class GangTable:
    """Gangs and their pods. Each change of a pod marks its gang as changed.

    Attributes:
        changed: gangs that are not :meth:`reviewed` yet.
    """

    def __init__(self) -> None:
        self.gangs: dict[PodGroupKey, TrackedGang] = {}
        self.pods: dict[str, TrackedPod] = {}
        self.changed: dict[TrackedGang, None] = {}
        self._stages: Counter[Stage] = Counter()
        self._states: Counter[PodState] = Counter()

    # -- pods ---------------------------------------------------------------------------------

    def add(self, seen: SeenPod, state: PodState) -> TrackedPod:
        """Add a pod, and its gang if it is the first."""
        uid = seen.uid
        gang = self.gangs.get(seen.group)
        if gang is None:
            gang = self.gangs[seen.group] = TrackedGang(seen.group)
        pod = TrackedPod(uid, seen.name, gang, seen.member, state)
        self.pods[uid] = gang.pods[state][uid] = pod
        self._states[state] += 1
        gang.add_kind(pod.kind)
        self.touch(gang)
        return pod

    def update(self, pod: TrackedPod, seen: SeenPod) -> None:
        """Update the properties of a pod."""
        if pod.kind != seen.member:
            pod.gang.add_kind(seen.member)
            pod.gang.remove_kind(pod.kind)
            pod.kind = seen.member
        self.touch(pod.gang)

    def move(self, pod: TrackedPod, state: PodState) -> None:
        """Change the state of a pod."""
        gang = pod.gang
        if pod.state is not state:
            del gang.pods[pod.state][pod.uid]
            gang.pods[state][pod.uid] = pod
            self._states[pod.state] -= 1
            self._states[state] += 1
            pod.state = state
        self.touch(gang)

    def remove(self, pod: TrackedPod) -> None:
        """Remove a pod."""
        gang = pod.gang
        del self.pods[pod.uid]
        del gang.pods[pod.state][pod.uid]
        self._states[pod.state] -= 1
        gang.remove_kind(pod.kind)
        if not gang.kinds:
            del self.gangs[gang.key]
        self.touch(gang)

    # -- changes ------------------------------------------------------------------------------

    def touch(self, gang: TrackedGang) -> None:
        """Mark a gang as changed."""
        self.changed[gang] = None

    def reviewed(self, gang: TrackedGang) -> None:
        """Count a gang in its stage: everything that depends on it is up to date."""
        self.changed.pop(gang, None)
        stage = gang.stage if gang.kinds else None
        if gang.counted_as != stage:
            for name, change in ((gang.counted_as, -1), (stage, 1)):
                if name is not None:
                    self._stages[name] += change
            gang.counted_as = stage

    # -- queries ------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """Return the numbers of gangs and pods; O(1)."""
        return Counts(+self._stages, +self._states)

    def states(self) -> dict[str, PodState]:
        """Return the state of every pod, by UID."""
        return {uid: pod.state for uid, pod in self.pods.items()}
