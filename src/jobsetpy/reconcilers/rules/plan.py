"""Plans: what one reconcile does, as frozen values to print, compare and carry out.

Each system has a ``plan_*(observed, memory, now)`` that returns a :class:`Plan`, and a reconciler
that carries it out. Actions of one plan are independent of each other, except that volumes and the
Service come before the Jobs whose pods need them. Objects are named together with their UID, so
that an action decided on a stale cache never hits a newer object of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import attrs

from jobsetpy.api.jobset import JobSetStatus
from jobsetpy.api.reconcile import Result
from jobsetpy.reconcilers.rules.history import Over

if TYPE_CHECKING:  # commands have to start soon
    from jobsetpy.reconcilers.rules.times import PinnedTime

M = TypeVar("M")


@attrs.frozen
class EmitEvent:
    """An event about the JobSet; ``type_`` is ``Normal`` or ``Warning``.

    ``job`` or ``pod`` names a child that it is about in particular, "" if there is none.
    """

    type_: str
    reason: str
    message: str
    job: str = ""
    pod: str = ""


@attrs.frozen
class CreateJob:
    """Create a child Job; ``body`` may share parts with other bodies, so it is never changed."""

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
    """Give a suspended Job what the JobSet's template says about where pods go, and start it.

    Args:
        name: of the Job.
        uid: of the Job.
        clear_start_time: whether ``status.startTime`` has to be removed first; Kubernetes allows
            no change of a template otherwise.
        template: of the pod template, what can change: ``labels``, ``annotations``,
            ``nodeSelector``, ``tolerations``, ``schedulingGates``.
        annotations: for the Job and its pods, over all others.
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
class CreateService:
    """Create the headless Service; one that exists is left as it is."""

    name: str
    body: Mapping[str, Any]


@attrs.frozen
class CreateClaim:
    """Create a volume claim; one that exists is left as it is."""

    name: str
    body: Mapping[str, Any]


@attrs.frozen
class CreateGroupObject:
    """Create an object that group scheduling needs; one that exists is left as it is.

    Args:
        kind: ``ConfigMap``, ``Role`` or ``RoleBinding``.
        name: of the object.
        body: of the object.
    """

    kind: str
    name: str
    body: Mapping[str, Any]


@attrs.frozen
class DeleteJobSet:
    """Delete the JobSet itself: its time to live after the end is over."""

    name: str
    uid: str


Action = (
    CreateJob
    | DeleteJob
    | SuspendJob
    | ResumeJob
    | ResizeJob
    | CreateService
    | CreateClaim
    | CreateGroupObject
    | DeleteJobSet
)


CREATIONS: Final = (CreateJob, CreateService, CreateClaim, CreateGroupObject)


@attrs.frozen
class StatusChange:
    """A change of the JobSet's status, stored by one patch.

    Args:
        status: the whole of it, for comparison.
        patch: JSON of the changed top-level status fields; empty when nothing has to be written.
        events: what to tell once the patch is stored; never before.
        finished: ``Completed`` or ``Failed`` if this write ends the JobSet, else "".
        decisions: what the failure policy decided, each time it did: an action, or one of
            ``ReachedMaxRestarts`` and ``NoFailurePolicy``, which end the JobSet.
        restarted: how many times this write restarts all Jobs (0 or 1).
        jobs_restarted: how many single Jobs it restarts.
        replicated_jobs_restarted: how many times it restarts all Jobs of one ReplicatedJob.
        ready_s: how long it took until all Jobs were ready, if this write says so first.
        restarts_over: restarts that are over with this write.
    """

    status: JobSetStatus
    patch: Mapping[str, Any] = attrs.field(factory=dict)
    events: tuple[EmitEvent, ...] = ()
    finished: str = ""
    decisions: tuple[str, ...] = ()
    restarted: int = 0
    jobs_restarted: int = 0
    replicated_jobs_restarted: int = 0
    ready_s: float | None = None
    restarts_over: tuple[Over, ...] = ()


@attrs.frozen(kw_only=True)
class Plan(Generic[M]):
    """What one reconcile does; plans of a system add the actions that it has.

    Args:
        memory: what to remember of the JobSet until the next reconcile; ``None`` for nothing.
        status: the status to store; ``None`` to leave it.
        notices: events told at once, whether or not anything is stored.
        result: when to look again, and what was done.
    """

    memory: M | None = None
    status: StatusChange | None = None
    notices: tuple[EmitEvent, ...] = ()
    result: Result = attrs.field(factory=Result.done)


@attrs.frozen
class JobsMemory:
    """What the jobs reconciler remembers of a JobSet.

    Args:
        uid: of the JobSet.
        told: notices that were told.
        counters_at: when agents were last told of another status, on the monotonic clock.
        restarting: whether a restart in place was under way.
        not_before: until then the JobSet is not looked at again, on the monotonic clock.
        children: names of the Jobs that were there and of all that was created, without those that
            this reconciler deletes: what of it is missing was deleted by somebody else.
        surroundings: likewise, names of Service, claims and ConfigMaps that were there.
        recreations: how often such children were created anew, in a row.
        recreated_at: when that was last, on the monotonic clock.
        ready_since: the creation, restart or resume after which all Jobs have been ready.
        pause: end of the stored back-off, on the monotonic clock as well.
        deletion: when the finished JobSet is deleted, likewise.
        held: since when deleted Jobs are kept by finalizers alone, on the monotonic clock, by UID.
    """

    uid: str = ""
    told: frozenset[EmitEvent] = frozenset()
    counters_at: float = float("-inf")
    restarting: bool = False
    not_before: float = float("-inf")
    children: frozenset[str] = frozenset()
    surroundings: AbstractSet[str] = frozenset()
    recreations: int = 0
    recreated_at: float = float("-inf")
    ready_since: datetime | None = None
    pause: PinnedTime | None = None
    deletion: PinnedTime | None = None
    held: Mapping[str, float] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class JobsPlan(Plan[JobsMemory]):
    """What one reconcile does about a JobSet's Jobs and their surroundings.

    Args:
        actions: writes to children (or the deletion of the JobSet).
        partial_status: the status to store in place of ``status`` when some action failed: what
            was decided before and does not depend on the actions.
        problem: why a part of the JobSet cannot be handled until it is changed; "" normally.
        confirm: whether to read the JobSet before anything is done. Children are missing that
            somebody else deleted, which the garbage collector does after the JobSet itself.
        begun: when planning began, on the monotonic clock; ``None`` if nothing was looked at.
        handed_out: room that pods made without the coscheduler's gate are to have.
        activity: what the JobSet does (``reconcilers.rules.time_accounting``), "" if nothing any
            more; ``None`` if it was not looked at.
        pods: how many pods it asks for.
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
        """Whether carrying it out would write nothing."""
        return not self.actions and (self.status is None or not self.status.patch)
