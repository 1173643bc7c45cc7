"""Comparison of the installed CRD of JobSets with the fields of this release.

An API server drops fields that its CRD does not have, in requests of users and of the manager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api._wire import wire_name
from jobsetpy.api.jobset import JobSetSpec, JobSetStatus
from jobsetpy.reconcilers.rules.conditions import WARNING, DesiredCondition

FIX: Final = "jobsetpy crds | kubectl apply --server-side -f -"
"""Command that installs the CRD of this release."""

_KINDS: Final[Mapping[str, Any]] = {"spec": JobSetSpec, "status": JobSetStatus}
_FIELDS: Final[Mapping[str, Iterable[str]]] = {
    part: tuple(wire_name(each) for each in attrs.fields(kind)) for part, kind in _KINDS.items()
}
_MAX_NAMED: Final = 5


def missing_fields(properties: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return the paths of this release's fields that a CRD does not have, as ``status.state``.

    Args:
        properties: names of the CRD's fields under ``spec`` and under ``status``.
    """
    return frozenset(
        f"{part}.{name}"
        for part, names in _FIELDS.items()
        for name in names
        if name not in properties.get(part, ())
    )


def listed(missing: Collection[str]) -> str:
    """Return the first of some fields, with the number of the others."""
    more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
    return ", ".join(sorted(missing)[:_MAX_NAMED]) + more


def explanation(missing: Collection[str]) -> str:
    """Return the message about fields that the CRD does not have."""
    return (
        "the CRD of JobSets is not that of the manager's release: the API server drops these "
        f"fields, so they have no effect: {listed(missing)}; apply the manager's CRD ({FIX})"
    )


def condition(missing: Collection[str]) -> DesiredCondition:
    """Return the condition of JobSets about fields that the CRD does not have."""
    kind = reason = keys.OLD_DEFINITION_REASON
    if not missing:
        return DesiredCondition(kind, False, reason, "the CRD of JobSets has all fields")
    return DesiredCondition(kind, True, reason, explanation(missing), WARNING)
