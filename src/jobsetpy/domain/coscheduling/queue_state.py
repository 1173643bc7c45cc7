"""What the coscheduler tells managers: whether groups wait, and what room there is.

A gate costs each pod a second write, and is of use only where a group has to wait. So while none
does and there is room for all of a group, its pods are made without gates (``opened``). The
coscheduler holds their binds just the same: whatever is told here, and however old it is, no group
is bound in part. What an error costs is order: a group without gates is tried at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from jobsetpy.domain.coscheduling.capacity import Shape
from jobsetpy.domain.coscheduling.node_rules import Placement, Toleration
from jobsetpy.domain.coscheduling.requests import pod_requests
from jobsetpy.domain.coscheduling.vacancies import Vacancies, decoded

HOLDS: Final = 8000
_PLACED_BY_MORE: Final = ("affinity", "topologySpreadConstraints", "resourceClaims")
"""Fields of a pod that decide where it fits, and that are not counted here."""


@attrs.frozen(kw_only=True)
class QueueState:
    """What the coscheduler tells.

    Args:
        waiting: whether some group has to wait.
        vacancies: what nodes have left; ``None`` if the coscheduler does not look at it.
        holds: so many more binds can be held.
        scheduler_name: of the scheduler that asks it, if that is not the default one.
        member_resource: whether it is asked only about pods that request the member resource.
    """

    waiting: bool = True
    vacancies: Vacancies | None = attrs.field(factory=Vacancies)
    holds: int = HOLDS
    scheduler_name: str = ""
    member_resource: bool = False

    def encoded(self) -> str:
        """As the value of an annotation."""
        value = {
            "waiting": self.waiting,
            "holds": self.holds,
            "schedulerName": self.scheduler_name,
            "memberResource": self.member_resource,
            "room": None if self.vacancies is None else self.vacancies.encoded(),
        }
        return json.dumps(value, separators=(",", ":"))


def queue_state(text: str) -> QueueState | None:
    """What :meth:`QueueState.encoded` has made; ``None`` if the text is something else."""
    try:
        value: Mapping[str, Any] = json.loads(text)
        room = value["room"]
        return QueueState(
            waiting=value["waiting"] is not False,
            vacancies=None if room is None else decoded(room),
            holds=int(value["holds"]),
            scheduler_name=str(value["schedulerName"]),
            member_resource=value["memberResource"] is True,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


@attrs.frozen
class HandOut:
    """Room that pods without gates are to have."""

    shape: Shape
    pods: int


class Openings:
    """Decides which pods are made without gates.

    Args:
        state: what the coscheduler tells; ``None`` if nothing is known of it now.
        before: what was handed out and is perhaps not yet counted there.
    """

    def __init__(self, state: QueueState | None, before: Iterable[HandOut] = ()) -> None:
        self.handed_out: list[HandOut] = []
        self._open = state is not None and not state.waiting
        self._full = False
        self._vacancies = None if state is None else state.vacancies
        self._holds = 0 if state is None else state.holds
        for each in before:
            self._full = self._full or not self._take(each)

    @property
    def nobody_waits(self) -> bool:
        """Whether no group has to wait, as far as is known."""
        return self._open

    def opens(self, pod_spec: Mapping[str, Any], pods: int, *, room: bool = True) -> bool:
        """Whether so many more pods of a group are made without gates, and have room from now on.

        Args:
            pod_spec: of their template.
            pods: how many are to be made.
            room: whether there has to be any; if not, somebody is to make it.
        """
        if not room and self._open and 0 < pods <= self._holds:
            self._holds -= pods
            return not pod_spec.get("schedulingGates")
        if not self._open or self._full or pods <= 0 or not is_counted(pod_spec):
            return False
        wanted = HandOut(shape_of_template(pod_spec), pods)
        if not self._take(wanted):
            return False
        self.handed_out.append(wanted)
        return True

    def leaves_as_much(self, pod_spec: Mapping[str, Any], pods: int) -> bool:
        """Whether there is certainly room for so many more than those that it opens for.

        Not if room is not counted: then nothing is certain.
        """
        if self._vacancies is None or not self._open or self._full:
            return False
        return self._vacancies.without(shape_of_template(pod_spec), pods) is not None

    def _take(self, wanted: HandOut) -> bool:
        if wanted.pods > self._holds:
            return False
        if self._vacancies is not None:
            left = self._vacancies.without(wanted.shape, wanted.pods)
            if left is None:
                return False
            self._vacancies = left
        self._holds -= wanted.pods
        return True


def closed_queue() -> Openings:
    """Nothing is known of a coscheduler: all pods of groups are gated."""
    return Openings(None)


def is_counted(pod_spec: Mapping[str, Any]) -> bool:
    """Whether what decides where pods fit is counted here.

    Pods with gates of others are tried nobody knows when, and volumes may be tied to nodes.
    """
    if any(pod_spec.get(name) for name in (*_PLACED_BY_MORE, "schedulingGates")):
        return False
    return not any(
        "persistentVolumeClaim" in volume or "ephemeral" in volume
        for volume in pod_spec.get("volumes") or ()
    )


def shape_of_template(pod_spec: Mapping[str, Any]) -> Shape:
    """What pods of a template will ask for. Priority is left out: nobody is to make room."""
    every = pod_spec.get("containers") or ()
    before = pod_spec.get("initContainers") or ()
    selector: Mapping[str, str] = pod_spec.get("nodeSelector") or {}
    tolerations = (
        Toleration(*(str(each.get(name) or "") for name in ("key", "operator", "value", "effect")))
        for each in pod_spec.get("tolerations") or ()
    )
    return Shape(
        pod_requests(
            [_requests(each) for each in every],
            [(_requests(each), each.get("restartPolicy") == "Always") for each in before],
            pod_level=_requests(pod_spec),
            overhead=pod_spec.get("overhead") or {},
        ),
        Placement(tuple(sorted(selector.items())), tuple(tolerations)),
    )


def _requests(asks: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked for; the API server fills in limits."""
    resources = asks.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
