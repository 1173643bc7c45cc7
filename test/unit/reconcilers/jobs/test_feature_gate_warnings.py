"""JobSets that ask for what a feature gate switches off."""

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
    """A JobSet that restarts in some way."""
    policy = {} if strategy is None else {"failurePolicy": {"restartStrategy": strategy}}
    metadata = {"namespace": "ns", "name": "js", "uid": uid}
    return decoded(JobSet, {"metadata": metadata, "spec": {"replicatedJobs": [], **policy}})


ASKS, OTHER, NONE = jobset(keys.IN_PLACE_RESTART), jobset("Recreate"), jobset(None)


def warnings(*events: Event[JobSet]) -> list[str]:
    """The objects of the warnings that some events cause."""
    with structlog.testing.capture_logs() as logs:
        for event in events:
            assert not list(warn_of_in_place_restart(event))
    return [line["object"] for line in logs if line["log_level"] == "warning"]


def test_appears():
    """A JobSet that restarts in place is named when it appears, any other is not."""
    assert warnings(Event(None, ASKS)) == ["ns/js"]
    assert warnings(Event(None, OTHER), Event(None, NONE), Event(ASKS, None)) == []


def test_changes():
    """It is named when it begins to ask for it, or is another object, not at each change."""
    assert warnings(Event(NONE, ASKS)) == ["ns/js"]
    assert warnings(Event(jobset(keys.IN_PLACE_RESTART, "before"), ASKS)) == ["ns/js"]
    assert warnings(Event(ASKS, ASKS)) == []


def test_watch():
    """Every replica listens where the gate is off, nobody where it is on."""
    assert not list(feature_gate_warnings(None, Features()))
    informer = SharedInformer(RecordingClient(), JobSet)
    [watch] = feature_gate_warnings(informer, Features(in_place_restart=False))
    assert watch.standby
