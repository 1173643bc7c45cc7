"""Backends that schedule gangs, and the fields that they need on pods in addition to labels.

A manager has one backend for all its JobSets:

* ``auto``: ``podgroup`` if the API server serves it, else ``coscheduler`` if one is installed, else
  ``labels``.
* ``labels``: only the two labels, for a scheduler whose own plugin reads them.
* ``coscheduler``: the scheduler that calls our coscheduler, or the resource by which it knows them.
* ``podgroup``: the API server's ``PodGroup``; pods name theirs in ``spec.schedulingGroup``.

Templates of running Jobs are immutable, so their pods keep the backend that the Job was created
for; an annotation on both names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.reconcilers.coscheduling.published import CoschedulerState

AUTO, LABELS, COSCHEDULER, PODGROUP = keys.COSCHEDULING_BACKENDS

DEFAULT_SCHEDULER: Final = "default-scheduler"
"""Value that the API server fills in, so it cannot be distinguished from an empty field."""


@attrs.frozen(kw_only=True)
class SchedulerFields:
    """Scheduler fields of pods in gangs.

    Args:
        backend: one of :data:`~jobsetpy.api.keys.COSCHEDULING_BACKENDS`.
        scheduler_name: scheduler that calls the coscheduler, if it is not the default one; for pods
            that name no other.
        member_resource: let pods request one of the resource by which a scheduler can distinguish
            them, so that ordinary pods do not depend on the coscheduler.
    """

    backend: str = AUTO
    scheduler_name: str = ""
    member_resource: bool = False

    @property
    def coscheduled(self) -> bool:
        """Return whether the coscheduler schedules gangs."""
        return self.backend == COSCHEDULER

    def resolved(self, state: CoschedulerState | None, *, native: bool = False) -> SchedulerFields:
        """Return the fields for the backend that the cluster has.

        Args:
            state: published state of the coscheduler; ``None`` if there is none. Its scheduler
                settings count where no others were configured.
            native: whether the API server serves ``PodGroup``.
        """
        if self.backend == PODGROUP or (self.backend == AUTO and native):
            return attrs.evolve(self, backend=PODGROUP if native else LABELS)
        if self.backend == LABELS:
            return self
        if state is None:
            return attrs.evolve(self, backend=LABELS) if self.backend == AUTO else self
        return attrs.evolve(
            self,
            backend=COSCHEDULER,
            scheduler_name=self.scheduler_name or state.scheduler_name,
            member_resource=self.member_resource or state.member_resource,
        )


def job_annotations(marks: SchedulerFields) -> dict[str, str]:
    """Return the annotations of Jobs and pods in gangs that name the backend."""
    if marks.backend in {AUTO, LABELS}:
        return {}
    return {keys.COSCHEDULING_BACKEND_ANNOTATION: marks.backend}


def marked(
    pod_spec: Mapping[str, Any], marks: SchedulerFields, pod_group: str
) -> Mapping[str, Any]:
    """Return a template's pod spec with the scheduler fields of its backend.

    A template that sets ``nodeName`` bypasses all schedulers.

    Args:
        pod_spec: pod spec of a template; not changed.
        marks: scheduler fields of the backend.
        pod_group: name of the pods' ``PodGroup``, for the backend ``podgroup``.
    """
    if marks.backend == PODGROUP:
        return {**pod_spec, "schedulingGroup": {"podGroupName": pod_group}}
    if not marks.coscheduled or pod_spec.get("nodeName"):
        return pod_spec
    out = dict(pod_spec)
    if marks.scheduler_name and chooses_no_scheduler(pod_spec):
        out["schedulerName"] = marks.scheduler_name
    if marks.member_resource:
        out["containers"] = _as_member(pod_spec.get("containers"))
    return out


def chooses_no_scheduler(pod_spec: Mapping[str, Any]) -> bool:
    """Return whether a pod is scheduled by the default scheduler."""
    return pod_spec.get("schedulerName") in {None, "", DEFAULT_SCHEDULER}


def resources_of_member(resources: Any) -> dict[str, Any]:
    """Return a container's resources with none of the member resource, which also needs a limit.

    kube-scheduler asks its extender about each pod that names the resource, whatever the amount.
    With another amount than 0 it would also expect the resource of nodes that are new or have
    grown, and so would not try a pod again when there is such a node.
    """
    given = resources if isinstance(resources, Mapping) else {}
    none = {keys.POD_GROUP_MEMBER_RESOURCE: "0"}
    return {
        **given,
        **{kind: {**(given.get(kind) or {}), **none} for kind in ("requests", "limits")},
    }


def _as_member(containers: list[dict[str, Any]] | None) -> list[Any]:
    first, *others = containers or [{}]
    return [{**first, "resources": resources_of_member(first.get("resources"))}, *others]
