"""Plans of reconciles, as frozen values to print, compare and execute.

Each feature has a ``plan_*(observed, memory, now)`` that returns a :class:`Plan`, and a reconciler
that executes it. Actions of one plan are independent of each other, except that volumes and the
Service come before the Jobs whose pods need them. Objects are identified by name and UID, so that
an action decided on a stale cache never affects a newer object of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

import attrs

from jobsetpy.api.jobset import JobSetStatus
from jobsetpy.api.reconcile import Result
from jobsetpy.reconcilers.rules.history import Over

if TYPE_CHECKING:  # commands have to start quickly
    from jobsetpy.reconcilers.rules.times import PinnedTime

M = TypeVar("M")


@attrs.frozen
class EmitEvent:
    """Event about the JobSet; ``type_`` is ``Normal`` or ``Warning``.

    ``job`` or ``pod`` names the child that it is about, "" if there is none.
    """

    type_: str
    reason: str
    message: str
    job: str = ""
    pod: str = ""


@attrs.frozen
class CreateJob:
    """Create a child Job; ``body`` may share parts with other bodies, so it is never modified."""

    name: str
    body: Mapping[str, Any]


@attrs.frozen
class DeleteJob:
    """Delete a child Job, its pods first (foreground propagation)."""

    name: str
    uid: str


@attrs.frozen
class SuspendJob:
    """Set ``spec.suspend`` of a child Job."""

    name: str
    uid: str


@attrs.frozen
class ResumeJob:
    """Apply the template's scheduling fields to a suspended Job and start it.

    Args:
        name: name of the Job.
        uid: UID of the Job.
        clear_start_time: True to remove ``status.startTime`` first; Kubernetes allows no change of
            a template otherwise.
        template: mutable fields of the pod template: ``labels``, ``annotations``, ``nodeSelector``,
            ``tolerations``, ``schedulingGates``.
        annotations: annotations of the Job and its pods, which override all others.
    """

    name: str
    uid: str
    clear_start_time: bool = False
    template: Mapping[str, Any] = attrs.field(factory=dict)
    annotations: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class ResizeJob:
    """Set parallelism and completions of a running Job."""

    name: str
    uid: str
    parallelism: int
    completions: int


@attrs.frozen
class CreateObject:
    """Create an object that pods need; an existing one is not changed.

    Args:
        kind: ``Service`` or ``PersistentVolumeClaim``; ``ConfigMap``, ``Role`` or ``RoleBinding``
            of a startup group.
        name: name of the object.
        body: body of the object.
    """

    kind: str
    name: str
    body: Mapping[str, Any]


@attrs.frozen
class DeleteJobSet:
    """Delete the JobSet: its time to live after the end has expired."""

    name: str
    uid: str


Action = CreateJob | DeleteJob | SuspendJob | ResumeJob | ResizeJob | CreateObject | DeleteJobSet

CREATIONS: Final = (CreateJob, CreateObject)


Use = Literal["missing", "starting", "repeating", "training", "restarting"]
"""Parts of a group's time: the share of seats without a pod; of the others, until a run's first
step, in steps that an earlier run had done, and in new ones; and from the first sign of the run's
end until the next run."""


@attrs.frozen(kw_only=True)
class Run:
    """Report of the pods on the run that a restart has ended.

    Args:
        lost_steps: number of steps that it has repeated.
        first_step_s: seconds from the failure before it to its first step.
        spent: use of its seconds, and of those of the restart after it.
    """

    lost_steps: int | None = None
    first_step_s: float | None = None
    spent: Mapping[Use, float] = attrs.field(factory=dict)


@attrs.frozen
class StatusChange:
    """Change of the JobSet's status, stored by one patch.

    Args:
        status: the whole status, for comparison.
        patch: JSON of the changed top-level status fields; empty when nothing has to be written.
        events: events to record once the patch is stored; never before.
        finished: ``Completed`` or ``Failed`` if this write ends the JobSet, else "".
        decisions: decisions of the failure policy: an action, or one of ``ReachedMaxRestarts`` and
            ``NoFailurePolicy``, which end the JobSet.
        restarted: number of restarts with this write, by kind (``rules.history``); those in place
            are counted elsewhere.
        ready_s: seconds until all Jobs were ready, if this write is the first to show it.
        restarts_over: restarts that end with this write.
        run: report on the run before, if the write ends a restart in place.
    """

    status: JobSetStatus
    patch: Mapping[str, Any] = attrs.field(factory=dict)
    events: tuple[EmitEvent, ...] = ()
    finished: str = ""
    decisions: tuple[str, ...] = ()
    restarted: Mapping[str, int] = attrs.field(factory=dict)
    ready_s: float | None = None
    restarts_over: tuple[Over, ...] = ()
    run: Run = attrs.field(factory=Run)


@attrs.frozen(kw_only=True)
class Plan(Generic[M]):
    """Plan of one reconcile; features add their actions.

    Args:
        memory: state of the JobSet to keep until the next reconcile; ``None`` for none.
        status: the status to store; ``None`` to leave it.
        notices: events to record immediately, whether or not the status is stored.
        result: time of the next reconcile, and the outcome of this one.
    """

    memory: M | None = None
    status: StatusChange | None = None
    notices: tuple[EmitEvent, ...] = ()
    result: Result = attrs.field(factory=Result.done)


@attrs.frozen
class JobsMemory:
    """State of a JobSet that the jobs reconciler remembers.

    Args:
        uid: UID of the JobSet.
        notified: recorded notices.
        counters_at: monotonic time of the last status that agents were notified of.
        restarting: True if a restart in place was in progress.
        not_before: monotonic time before which the JobSet is not reconciled again.
        children: names of existing and created Jobs, without those that this reconciler deletes,
            and of the other objects that pods need: missing ones were deleted by another client.
        recreations: number of consecutive recreations of such children.
        recreated_at: monotonic time of the last one.
        ready_since: the creation, restart or resume after which all Jobs have been ready.
        pause: end of the stored back-off, with its monotonic time.
        deletion: time at which the finished JobSet is deleted, likewise.
        expiry: end of the current run by its deadline, with its monotonic time.
    """

    uid: str = ""
    notified: frozenset[EmitEvent] = frozenset()
    counters_at: float = float("-inf")
    restarting: bool = False
    not_before: float = float("-inf")
    children: frozenset[str] = frozenset()
    recreations: int = 0
    recreated_at: float = float("-inf")
    ready_since: datetime | None = None
    pause: PinnedTime | None = None
    deletion: PinnedTime | None = None
    expiry: PinnedTime | None = None


@attrs.frozen(kw_only=True)
class JobsPlan(Plan[JobsMemory]):
    """Plan for a JobSet's Jobs, Service, claims and ConfigMaps.

    Args:
        actions: writes to children (or the deletion of the JobSet).
        partial_status: the status to store in place of ``status`` if an action failed: its part
            that does not depend on the actions.
        problem: reason why a part of the JobSet cannot be handled until it is changed; usually "".
        confirm: True to read the JobSet before any action: children were deleted by another client,
            possibly by the garbage collector after the JobSet itself.
        begun: monotonic time at which planning began; ``None`` if it was skipped.
        activity: activity of the JobSet (``reconcilers.rules.time_accounting``), "" if it has
            ended; ``None`` if it was not determined.
        pods: number of pods that it requests.
    """

    actions: tuple[Action, ...] = ()
    partial_status: StatusChange | None = None
    problem: str = ""
    confirm: bool = False
    begun: float | None = None
    activity: str | None = None
    pods: int = 0

    @property
    def empty(self) -> bool:
        """Return True if executing it would write nothing."""
        return not self.actions and (self.status is None or not self.status.patch)
