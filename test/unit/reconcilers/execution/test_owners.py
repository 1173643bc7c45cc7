"""Labels of metrics that name the owner of a JobSet's time."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.execution.metrics import activity_registry
from jobsetpy.reconcilers.execution.owners import OTHER, OWNERS, OwnedCounter, Owners
from jobsetpy.reconcilers.rules.time_accounting import ACTIVITIES, Total
from jobsetpy.testing import decoded
from support.jobsets import jobset_json


def meta(namespace="ns", queue=""):
    """Return the metadata of a JobSet."""
    body = jobset_json()
    body["metadata"]["namespace"] = namespace
    body["metadata"]["labels"] = {keys.KUEUE_QUEUE_LABEL: queue} if queue else {}
    return decoded(JobSet, body).metadata


@pytest.fixture
def labelled():
    """Labels of owners in this process's metrics, until the test ends."""
    OWNERS.configure(("namespace", "queue"))
    yield
    OWNERS.configure(())


@pytest.mark.parametrize(
    ("words", "labels", "owner"),
    [
        ((), (), ()),
        (("namespace",), ("jobset_namespace",), ("ns",)),
        (("queue",), ("queue",), ("gpus",)),
        (("queue", "namespace"), ("queue", "jobset_namespace"), ("gpus", "ns")),
    ],
)
def test_owner_has_the_configured_labels(words, labels, owner):
    """In their order."""
    owners = Owners()
    owners.configure(words)
    assert (owners.labels, owners.of(meta(queue="gpus"))) == (labels, owner)


def test_owners_beyond_the_bound_share_one_value_that_is_logged_once():
    """Those that are known keep theirs."""
    owners = Owners()
    owners.configure(("namespace", "queue"), limit=2)
    with capture_logs() as logs:
        found = [owners.of(meta(name)) for name in ("a", "b", "c", "d", "a")]
    assert found == [("a", ""), ("b", ""), (OTHER, OTHER), (OTHER, OTHER), ("a", "")]
    assert [each["limit"] for each in logs] == [2]


def test_activities_have_one_sample_each_when_owners_are_not_labelled():
    """As before there were such labels."""
    registry = activity_registry(lambda: {((), "running"): Total(5.0, 10.0, 1)})
    samples = [each for family in registry.collect() for each in family.samples]
    assert len(samples) == 3 * len(ACTIVITIES)
    assert {"activity"} == {name for each in samples for name in each.labels}
    assert registry.get_sample_value("jobset_activity_seconds_total", {"activity": "running"}) == 5


def test_activities_and_costs_have_the_labels_of_their_owners(labelled):
    """Only for owners that there are."""
    registry = activity_registry(lambda: {(("ns", "gpus"), "queue"): Total(5.0, 10.0, 1)})
    counter = OwnedCounter("cost", "Costs.", "kind", ("job",))
    counter.inc(("ns", ""), "in_place", 2.5)
    counter.inc(("ns", ""), "in_place", 1.0)
    samples = [each for family in registry.collect() for each in family.samples]
    (cost,) = [each for family in counter.collect() for each in family.samples]

    expected = {"jobset_namespace": "ns", "queue": "gpus", "activity": "queue"}
    assert [each.labels for each in samples] == [expected] * 3
    assert (cost.name, cost.value) == ("cost_total", 3.5)
    assert cost.labels == {"jobset_namespace": "ns", "queue": "", "kind": "in_place"}
