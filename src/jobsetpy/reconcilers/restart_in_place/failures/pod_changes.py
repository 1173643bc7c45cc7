"""Changes of pods that may be failures (KEP-467, "Speed up detection").

The agent of a failed pod opens the next epoch once it runs again, seconds later. The kubelet shows
the end of a worker earlier than that, and for about 0.1 s only: then it restarts the pod and
replaces every exit code with 137. A manager that sees it in between can restart the others
immediately, and knows the cause.

Only a change from one state of a pod to the next counts, never a state by itself: a status may be
left over from the previous run. ``detection.early`` decides which changes are causes of a restart.
"""

from __future__ import annotations

from typing import Final

import attrs

from jobsetpy.api.child_pod import ChildPod, FailedContainer
from jobsetpy.reconcilers.restart_in_place.failures.cause import FailureKind

STATUS_LAG_S: Final = 30.0
"""Maximum seconds by which a pod's status may lag behind the synced epoch."""


@attrs.frozen(eq=False)
class Failure:
    """Change of a pod that may be a failure, recorded for the next reconcile to decide.

    Args:
        kind: result of ``kind_of``.
        epoch: epoch of the pod.
        old: the pod before.
        new: the pod after, ``None`` if it is deleted.
        at: monotonic time at which it was observed.
    """

    kind: FailureKind
    epoch: int
    old: ChildPod
    new: ChildPod | None
    at: float


@attrs.frozen
class SyncedMark:
    """Position in the pods' events when an epoch was observed as synced.

    Args:
        epoch: epoch that was synced.
        version: newest resourceVersion of a pod at that time.
        at: that time on the monotonic clock.
    """

    epoch: int = 0
    version: int = 0
    at: float = 0.0

    def shows_run(self, epoch: int, version: int, now: float) -> bool:
        """Return True if containers that a pod's status shows as running surely run at ``epoch``.

        A status may be left over from the previous run: the agent's patch and the kubelet's reports
        are independent. A worker of this epoch starts only after the epoch was synced, so a status
        that was in the cache at that time shows none. One written later shows none of an older run,
        since every pod's kubelet had removed those; after a while, no status does.

        Args:
            epoch: epoch of the pod.
            version: resourceVersion of the pod.
            now: time on the monotonic clock, in seconds.
        """
        if epoch != self.epoch:
            return False
        return now - self.at >= STATUS_LAG_S or version > self.version


def kind_of(old: ChildPod, new: ChildPod | None) -> FailureKind | None:
    """Return the failure that a pod's change may mean; O(1) and cheap, as it is called per change.

    Args:
        old: the pod before.
        new: the pod now, ``None`` if it is deleted.
    """
    before = old.status
    if (
        old.metadata.deletion_timestamp is not None  # reported when its deletion began
        or before.phase in {"Failed", "Succeeded"}
        or old.metadata.annotations.report is None
    ):
        return None
    if new is None:
        return FailureKind.POD_DELETED
    if new.status.leaving and not before.leaving:
        return FailureKind.POD_LEAVING
    if new.metadata.annotations.report != old.metadata.annotations.report:
        return None  # the agent was faster
    after = new.status
    if after.phase == "Failed":
        return FailureKind.POD_FAILED
    if after.phase == "Succeeded":
        return None
    if new.metadata.deletion_timestamp is not None:
        return FailureKind.POD_DELETED
    if after.failed and before.running and newly_failed(old, new) is not None:
        return FailureKind.CONTAINER_FAILED
    return None


def newly_failed(old: ChildPod, new: ChildPod) -> FailedContainer | None:
    """Return the first container to fail of those that ran before."""
    ran = old.status.running.split(" ")
    return next((failed for failed in new.status.failed if failed.name in ran), None)
