"""When a group restarts in place, and when its barrier lifts (KEP-467).

Every pod of the group carries the epoch it has come to. When all are at one epoch, that epoch is
*synced* and its workers may run. Otherwise all epochs before the newest are *deprecated*, and pods
at one of those restart. The decision needs only a histogram of epochs, never the pods themselves.

Epochs start at 1, so epoch ``e`` means ``e - 1`` restarts. Both numbers only ever grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.domain import conditions as cond
from jobsetpy.domain.plan import EmitEvent
from jobsetpy.domain.planner import is_ours

INVALID: Final = -1
"""What ``parse_epoch`` makes of a text that is no epoch."""


def parse_epoch(text: str | None) -> int:
    """An epoch annotation as a number.

    Returns:
        The epoch, 1 to 2147483647; 0 without an annotation, which means that the agent has not
        started yet; ``INVALID`` for anything else.
    """
    if text is None:
        return 0
    # Ten digits hold every int32; int() of a long text would be slow, and takes "1_0" and " 1".
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        return INVALID
    epoch = int(text)
    return epoch if 1 <= epoch <= keys.INT32_MAX else INVALID


@attrs.frozen
class InvalidEpoch:
    """A pod whose annotation is no epoch."""

    pod_name: str
    pod_uid: str
    text: str


@attrs.frozen
class Histogram:
    """The pods of a JobSet's current Jobs, counted.

    Args:
        epochs: how many live pods are at each epoch; no zero counts.
        succeeded: how many pods have left the group by succeeding.
    """

    epochs: Mapping[int, int] = attrs.field(factory=dict)
    succeeded: int = 0


@attrs.frozen
class EpochDecision:
    """What the status has to become.

    Args:
        synced: new ``syncedEpoch``, or ``None`` to leave it.
        deprecated: new ``deprecatedEpoch``, or ``None`` to leave it.
        failed: the condition that ends the JobSet: its budget of restarts is spent. Setting it
            has an event of its own.
        events: what else to tell once the change is stored.
    """

    synced: int | None = None
    deprecated: int | None = None
    failed: cond.Wanted | None = None
    events: tuple[EmitEvent, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing has to be written."""
        return self.synced is None and self.deprecated is None and self.failed is None


NOTHING: Final = EpochDecision()


def takes_part(jobset: JobSet) -> bool:
    """Whether restarts in place are on for a JobSet that is alive and running."""
    policy = jobset.spec.failure_policy
    return (
        policy is not None
        and policy.restart_strategy == keys.IN_PLACE_RESTART
        and jobset.metadata.deletion_timestamp is None
        and jobset.spec.suspend is not True
        and is_ours(jobset)
        and cond.finished(jobset.status.conditions) is None
    )


def expected_pods(jobset: JobSet) -> int:
    """How many pods the group has: replicas times parallelism, over all ReplicatedJobs."""
    total = 0
    for item in jobset.spec.replicated_jobs:
        spec = item.template.get("spec")
        parallelism = spec.get("parallelism") if isinstance(spec, Mapping) else None
        # The API server's default is 1.
        total += item.replicas * (parallelism if isinstance(parallelism, int) else 1)
    return total


def decide_epochs(jobset: JobSet, pods: Histogram) -> EpochDecision:
    """The rule of restarts in place.

    * All expected pods, less those that succeeded, at one epoch: that epoch is synced.
    * Otherwise every epoch before the newest is deprecated.
    * More restarts that count than ``maxRestarts``: the JobSet fails.

    Args:
        jobset: with the numbers decided so far.
        pods: of the current attempt's Jobs; pods of other Jobs, failed ones, and those without a
            usable annotation are not in its epochs.
    """
    if not pods.epochs or not takes_part(jobset):
        return NOTHING
    status = jobset.status
    newest = max(pods.epochs)
    failed = _over_budget(jobset, newest)
    if failed is not None:
        return EpochDecision(failed=failed)
    if len(pods.epochs) == 1:
        count = pods.epochs[newest]
        if count == expected_pods(jobset) - pods.succeeded:
            if newest <= status.synced_epoch:
                return NOTHING
            return EpochDecision(synced=newest, events=_completed(newest, count))
    if newest - 1 <= status.deprecated_epoch:
        return NOTHING
    return EpochDecision(deprecated=newest - 1, events=_started(newest, pods.epochs))


def _over_budget(jobset: JobSet, newest: int) -> cond.Wanted | None:
    """Whether the newest epoch stands for more restarts than the policy allows.

    Recreated pods join at the next epoch too, so restarts by a rule that ignores the maximum are
    taken off again.
    """
    policy = jobset.spec.failure_policy
    if policy is None:
        return None
    status = jobset.status
    uncounted = status.restarts - status.restarts_count_towards_max
    for item in status.replicated_jobs_status:
        uncounted += sum(item.job_restarts) - sum(item.job_restarts_count_towards_max)
    if newest - 1 - uncounted <= policy.max_restarts:
        return None
    return cond.failed(
        keys.REACHED_MAX_RESTARTS_REASON, "jobset failed due to reaching max number of restarts"
    )


def _started(newest: int, epochs: Mapping[int, int]) -> tuple[EmitEvent, ...]:
    behind = sum(count for epoch, count in epochs.items() if epoch < newest)
    if behind == 0:
        # New pods arrive after their Jobs were recreated: nobody has to restart in place.
        return ()
    pods = "pod has" if behind == 1 else "pods have"
    message = f"restart in place to epoch {newest}: {behind} {pods} to follow"
    return (EmitEvent(cond.NORMAL, keys.IN_PLACE_RESTART_STARTED_REASON, message),)


def _completed(epoch: int, count: int) -> tuple[EmitEvent, ...]:
    if epoch == 1:
        return ()
    pods = "pod is" if count == 1 else "pods are"
    message = f"{count} {pods} at epoch {epoch}: workers may run"
    return (EmitEvent(cond.NORMAL, keys.IN_PLACE_RESTART_COMPLETED_REASON, message),)
