"""Warnings about JobSets that need a disabled feature gate."""

import structlog

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.jobs.feature_gate_warnings import (
    feature_gate_warnings,
    warn_of_in_place_restart,
)
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.runtime import Event, SharedInformer
from jobsetpy.testing import RecordingClient, decoded


def jobset(strategy: str | None, uid: str = "u") -> JobSet:
    """Return a JobSet with this restart strategy."""
    policy = {} if strategy is None else {"failurePolicy": {"restartStrategy": strategy}}
    metadata = {"namespace": "ns", "name": "js", "uid": uid}
    return decoded(JobSet, {"metadata": metadata, "spec": {"replicatedJobs": [], **policy}})


IN_PLACE, OTHER, NONE = jobset(keys.IN_PLACE_RESTART), jobset("Recreate"), jobset(None)


def warnings(*events: Event[JobSet]) -> list[str]:
    """Return the objects of the warnings that these events cause."""
    with structlog.testing.capture_logs() as logs:
        for event in events:
            assert not list(warn_of_in_place_restart(event))
    return [line["object"] for line in logs if line["log_level"] == "warning"]


def test_warning_names_a_new_jobset_with_restart_in_place():
    """JobSets with other strategies cause none."""
    assert warnings(Event(None, IN_PLACE)) == ["ns/js"]
    assert warnings(Event(None, OTHER), Event(None, NONE), Event(IN_PLACE, None)) == []


def test_warning_names_a_changed_jobset_once():
    """When it gets the strategy or is another object, not at each change."""
    assert warnings(Event(NONE, IN_PLACE)) == ["ns/js"]
    assert warnings(Event(jobset(keys.IN_PLACE_RESTART, "before"), IN_PLACE)) == ["ns/js"]
    assert warnings(Event(IN_PLACE, IN_PLACE)) == []


def test_jobsets_are_watched_only_when_the_feature_gate_is_disabled():
    """Standby managers watch them as well."""
    assert not list(feature_gate_warnings(None, Features()))
    informer = SharedInformer(RecordingClient(), JobSet)
    [watch] = feature_gate_warnings(informer, Features(in_place_restart=False))
    assert watch.standby
