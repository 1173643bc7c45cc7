"""Feature gates that the rules depend on.

They keep the names that JobSet users know (``RestartJob``, ``ElasticJobSet``, ``InPlaceRestart``;
``Coscheduling`` is our own), and all of them are on by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

ALL_ALPHA: Final = "AllAlpha"
"""Gate that sets every gate of :class:`Features` not given by name."""

_WITHOUT_EFFECT: Final = frozenset({"AllBeta", "JobSetGangOfGangs"})
_LOCKED: Final = {"TLSOptions": True}
"""Gates that accept only this value."""
_WORDS: Final = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
"""Values of gates in flags, as Go's flags have them."""


def _gate(name: str) -> Any:
    return attrs.field(default=True, metadata={"gate": name})


@attrs.frozen
class Features:
    """Optional rules that apply.

    Args:
        restart_job: the actions ``RestartJob*`` and ``RestartReplicatedJob*``, and the label that
            counts a Job's own restarts.
        elastic_jobset: a changed parallelism is applied to running Jobs.
        in_place_restart: restarts in place through the epochs of pods.
        coscheduling: pods of a JobSet that requests it are marked as gangs for the scheduler.
        active_deadline: ``spec.activeDeadlineSeconds`` (KEP-1186).
        execution_attempts: runs are counted in ``status.executionAttempts`` (KEP-1282).
        scheduling: gangs by ``spec.scheduling`` (KEP-969).
        mutable_resources: resources of containers may change while a JobSet is suspended
            (KEP-1150).
    """

    restart_job: bool = _gate("RestartJob")
    elastic_jobset: bool = _gate("ElasticJobSet")
    in_place_restart: bool = _gate("InPlaceRestart")
    coscheduling: bool = _gate("Coscheduling")
    active_deadline: bool = _gate("JobSetActiveDeadlineSeconds")
    execution_attempts: bool = _gate("ExecutionAttemptsTracking")
    scheduling: bool = _gate("JobSetWorkloadAwareSchedulingAPI")
    mutable_resources: bool = _gate("MutablePodResourcesForSuspendedJobSets")

    @classmethod
    def from_gates(cls, gates: Mapping[str, bool]) -> Features:
        """Return the features of a ``featureGates`` map; other components' gates are ignored."""
        default: Mapping[str, bool] = {}
        if ALL_ALPHA in gates:
            default = dict.fromkeys(gate_names(), gates[ALL_ALPHA])
        given = {**default, **gates}
        return cls(
            **{
                each.name: given[each.metadata["gate"]]
                for each in attrs.fields(cls)
                if each.metadata["gate"] in given
            }
        )


def gate_names() -> tuple[str, ...]:
    """Return the names of all gates, in the order of :class:`Features`."""
    return tuple(each.metadata["gate"] for each in attrs.fields(Features))


def gate_problems(gates: Mapping[str, bool]) -> list[str]:
    """Return errors in a ``featureGates`` map: unknown names, and changed locked gates."""
    known = {*gate_names(), ALL_ALPHA, *_WITHOUT_EFFECT, *_LOCKED}
    problems = []
    for name, value in gates.items():
        if name not in known:
            problems.append(f"unrecognized feature gate: {name}")
        elif _LOCKED.get(name, value) != value:
            problems.append(f"cannot set feature gate {name} to {value}, it is locked")
    return problems


def parse_gates(text: str) -> dict[str, bool]:
    """``A=true,B=false`` as a map.

    Raises:
        ValueError: another form, an unknown gate, or a locked one.
    """
    gates: dict[str, bool] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = part.partition("=")
        on = _WORDS.get(value.strip().lower())
        if on is None:
            raise ValueError(f"{part!r} is not NAME=true or NAME=false")
        gates[name.strip()] = on
    if problems := gate_problems(gates):
        raise ValueError("; ".join(problems))
    return gates
