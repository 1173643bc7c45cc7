"""Warnings about JobSets that need a feature whose gate is off in this manager.

Admission rejects such JobSets, but those that were stored before the gate was switched off, or
without webhooks, still exist; without a warning their workers would wait forever for no visible
reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from jobsetpy import runtime as rt
from jobsetpy.api.jobset import JobSet
from jobsetpy.observability.logging import get_logger
from jobsetpy.reconcilers.rules.features import Features

_LOG: Final = get_logger("jobset")


def feature_gate_warnings(
    jobsets: rt.SharedInformer[JobSet], features: Features
) -> Iterable[rt.Watch[JobSet]]:
    """Return watches that log a warning for each such JobSet; every replica logs its own."""
    if not features.in_place_restart:
        yield rt.Watch(jobsets, warn_of_in_place_restart, standby=True)


def warn_of_in_place_restart(event: rt.Event[JobSet]) -> Iterable[rt.Request]:
    """Log a warning for a JobSet that restarts in place: once, when it appears or enables it."""
    old, new = event.old, event.new
    if new is None or not new.spec.restarts_in_place:
        return ()
    if old is None or not old.spec.restarts_in_place or old.metadata.uid != new.metadata.uid:
        _LOG.warning(
            "this JobSet restarts in place, but the feature gate is off: "
            "it is restarted by recreation, and barriers of its agents stay closed",
            object=str(new.metadata.key),
            gate="InPlaceRestart",
        )
    return ()
