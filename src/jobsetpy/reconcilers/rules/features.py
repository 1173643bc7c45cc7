"""Feature gates as far as the rules depend on them.

They keep the names that JobSet users know (``RestartJob``, ``ElasticJobSet``, ``InPlaceRestart``;
``Coscheduling`` is our own), and all of them are on unless the configuration says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

ALL_ALPHA: Final = "AllAlpha"
"""Sets every gate of :class:`Features` that is not given by name."""

_WITHOUT_EFFECT: Final = frozenset({"AllBeta"})
_LOCKED: Final = {"TLSOptions": True}
"""Gates that may be given, but only with this value."""


def _gate(name: str) -> Any:
    return attrs.field(default=True, metadata={"gate": name})


@attrs.frozen
class Features:
    """Which optional rules apply.

    Args:
        restart_job: the actions ``RestartJob*`` and ``RestartReplicatedJob*``, and the label that
            counts a Job's own restarts.
        elastic_jobset: a changed parallelism is carried over to Jobs that are running.
        in_place_restart: restarts in place through the epochs of pods.
        coscheduling: pods of a JobSet that asks for it are marked as groups for the scheduler.
    """

    restart_job: bool = _gate("RestartJob")
    elastic_jobset: bool = _gate("ElasticJobSet")
    in_place_restart: bool = _gate("InPlaceRestart")
    coscheduling: bool = _gate("Coscheduling")

    @classmethod
    def from_gates(cls, gates: Mapping[str, bool]) -> Features:
        """From a ``featureGates`` map; gates of other parts are ignored."""
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
    """The gates there are, in the order of :class:`Features`."""
    return tuple(each.metadata["gate"] for each in attrs.fields(Features))


def gate_problems(gates: Mapping[str, bool]) -> list[str]:
    """What is wrong with a ``featureGates`` map: unknown names, and locked gates set otherwise."""
    known = {*gate_names(), ALL_ALPHA, *_WITHOUT_EFFECT, *_LOCKED}
    problems = []
    for name, value in gates.items():
        if name not in known:
            problems.append(f"unrecognized feature gate: {name}")
        elif _LOCKED.get(name, value) != value:
            problems.append(f"cannot set feature gate {name} to {value}, it is locked")
    return problems
