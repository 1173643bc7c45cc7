"""Says which JobSets ask for what a feature gate keeps this manager from doing.

Admission refuses such JobSets, but those that were stored before the gate was switched off, or
without webhooks, are there all the same; without a word, their workers would wait for nobody.
"""

from __future__ import annotations

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.domain.features import Features
from jobsetpy.observability.logging import get_logger


class FeatureGateWarnings:
    """Logs one warning for each JobSet that restarts in place; a handler of an informer.

    Each of several replicas logs its own: which of them leads is not asked.
    """

    __slots__ = ("_log",)

    def __init__(self) -> None:
        self._log = get_logger("jobset")

    def on_add(self, obj: JobSet, *, initial: bool) -> None:  # noqa: ARG002 - the protocol
        """A JobSet is there, or was before."""
        policy = obj.spec.failure_policy
        if policy is not None and policy.restart_strategy == keys.IN_PLACE_RESTART:
            self._log.warning(
                "this JobSet restarts in place, but the feature gate is off: "
                "it is restarted by recreation, and barriers of its agents stay closed",
                object=str(obj.metadata.key),
                gate="InPlaceRestart",
            )

    def on_update(self, old: JobSet, new: JobSet) -> None:
        """A JobSet changed: tell of it if it did not restart in place before, or is another."""
        policy = old.spec.failure_policy
        before = policy is not None and policy.restart_strategy == keys.IN_PLACE_RESTART
        if not before or old.metadata.uid != new.metadata.uid:
            self.on_add(new, initial=False)

    def on_delete(self, obj: JobSet, *, final_state_known: bool) -> None:
        """A JobSet is gone."""


def setup(manager: rt.Manager, features: Features) -> None:
    """Have ``manager`` say it, where there is something to be said."""
    if not features.in_place_restart:
        manager.informer(JobSet).add_handler(FeatureGateWarnings())
