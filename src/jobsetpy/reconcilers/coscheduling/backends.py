"""Who schedules groups of coscheduling, and what pods are given for it beside their labels.

One backend at a time, for all JobSets of a manager:

* ``auto``: ``coscheduler`` where one is installed, else ``labels``.
* ``labels``: the two labels and nothing else, for a scheduler whose own plugin reads them.
* ``coscheduler``: a scheduling gate, which our coscheduler takes off when it is the group's turn.
* ``podgroup``: the API server's own groups; pods name theirs in ``spec.schedulingGroup``.

Templates of running Jobs cannot change, so pods of such keep what their Job was made with; an
annotation on both says what that was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import attrs

from jobsetpy.api import keys
from jobsetpy.reconcilers.coscheduling.queue_state import QueueState

AUTO, LABELS, COSCHEDULER, PODGROUP = keys.COSCHEDULING_BACKENDS

DEFAULT_SCHEDULER: Final = "default-scheduler"
"""What the API server fills in, so that it cannot be told from a template that says nothing."""

GATE: Final = {"name": keys.COSCHEDULING_GATE}


@attrs.frozen(kw_only=True)
class SchedulerFields:
    """What pods of groups are given.

    Args:
        backend: one of :data:`~jobsetpy.api.keys.COSCHEDULING_BACKENDS`.
        scheduler_name: of the scheduler that knows the coscheduler, if it is not the default one;
            for pods that name no other.
        member_resource: whether pods ask for one of the resource by which a scheduler can tell
            them from all others, so that ordinary pods do not depend on the coscheduler.
        always_gate: whether pods are gated even while no group waits: groups are then tried one
            after the other, at the cost of a second write for each pod.
    """

    backend: str = AUTO
    scheduler_name: str = ""
    member_resource: bool = False
    always_gate: bool = False

    @property
    def gates(self) -> bool:
        """Whether pods are born with the gate, unless there is nobody to wait for."""
        return self.backend == COSCHEDULER

    def resolved(self, state: QueueState | None) -> SchedulerFields:
        """The marks of the coscheduler that tells this; of none if ``None``.

        What it says of its scheduler counts where nothing else was said.
        """
        if self.backend not in {AUTO, COSCHEDULER}:
            return self
        if state is None:
            return attrs.evolve(self, backend=LABELS) if self.backend == AUTO else self
        return attrs.evolve(
            self,
            backend=COSCHEDULER,
            scheduler_name=self.scheduler_name or state.scheduler_name,
            member_resource=self.member_resource or state.member_resource,
        )


class CoschedulerStatus(Protocol):
    """What is seen of a coscheduler."""

    @property
    def marks(self) -> SchedulerFields:
        """What pods of groups are given now."""
        ...

    @property
    def queue_is_empty(self) -> bool:
        """Whether no gang waits, so that pods need no gate."""
        ...


def job_annotations(marks: SchedulerFields) -> dict[str, str]:
    """What Jobs and pods of groups are told of the backend."""
    if marks.backend in {AUTO, LABELS}:
        return {}
    return {keys.COSCHEDULING_BACKEND_ANNOTATION: marks.backend}


def marked(
    pod_spec: Mapping[str, Any],
    marks: SchedulerFields,
    pod_group: str,
    *,
    gate: bool = True,
) -> Mapping[str, Any]:
    """A template's pod spec with the marks of its backend.

    A template that names nodes itself passes by every scheduler, and the API server would refuse a
    gate on it.

    Args:
        pod_spec: of a template; not changed.
        marks: the backend's.
        pod_group: name of the pods' ``PodGroup``, for the backend of that name.
        gate: whether the coscheduler's pods are gated.
    """
    if marks.backend == PODGROUP:
        return {**pod_spec, "schedulingGroup": {"podGroupName": pod_group}}
    if not marks.gates or pod_spec.get("nodeName"):
        return pod_spec
    out = dict(pod_spec)
    if gate:
        out["schedulingGates"] = gated(pod_spec.get("schedulingGates"))
    if marks.scheduler_name and chooses_no_scheduler(pod_spec):
        out["schedulerName"] = marks.scheduler_name
    if marks.member_resource:
        out["containers"] = _as_member(pod_spec.get("containers"))
    return out


def gated(gates: Any) -> list[Any]:
    """Gates with ours among them."""
    present = list(gates or ())
    return present if GATE in present else [*present, dict(GATE)]


def chooses_no_scheduler(pod_spec: Mapping[str, Any]) -> bool:
    """Whether a pod is scheduled by whatever scheduler is the default."""
    return pod_spec.get("schedulerName") in {None, "", DEFAULT_SCHEDULER}


def resources_of_member(resources: Any) -> dict[str, Any]:
    """A container's resources with one of the member resource, which has to be limited as well."""
    given = resources if isinstance(resources, Mapping) else {}
    one = {keys.POD_GROUP_MEMBER_RESOURCE: "1"}
    return {
        **given,
        **{kind: {**(given.get(kind) or {}), **one} for kind in ("requests", "limits")},
    }


def _as_member(containers: list[dict[str, Any]] | None) -> list[Any]:
    first, *others = containers or [{}]
    return [{**first, "resources": resources_of_member(first.get("resources"))}, *others]
