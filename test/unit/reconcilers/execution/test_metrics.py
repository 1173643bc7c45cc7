"""Names, labels and limits of the metrics of JobSets."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from jobsetpy.reconcilers.execution import metrics as execution_metrics
from jobsetpy.reconcilers.execution.metrics import REGISTRY, _named_series

OBJECT_LABELS = {"jobset_name", "namespace", "object", "pod", "uid", "job"}


def value(name: str, /, **labels: str) -> float | None:
    """Return the current value of a sample."""
    return REGISTRY.get_sample_value(name, labels)


class TestRegistry:
    """Metrics served in addition to those of the framework."""

    @pytest.mark.parametrize(
        "name",
        [
            "jobset_failed",
            "jobset_completed",
            "jobset_restarts",
            "jobset_restart_phase_seconds",
        ],
    )
    def test_metric_that_dashboards_use_exists(self, name: str):
        """Counters get the suffix ``_total`` when they are served."""
        assert name in {family.name for family in REGISTRY.collect()}

    def test_every_metric_has_a_help_text(self):
        """It describes the metric."""
        assert [family.name for family in REGISTRY.collect() if not family.documentation] == []

    def test_only_two_metrics_name_objects(self):
        """Except for the two counters that users know, no label names an object."""
        execution_metrics.jobset_finished("Failed", "ns", "label-test")
        execution_metrics.jobset_finished("Completed", "ns", "label-test")
        named = {
            family.name
            for family in REGISTRY.collect()
            for sample in family.samples
            if OBJECT_LABELS & set(sample.labels)
        }
        execution_metrics.forget_jobset("ns", "label-test")

        assert named == {"jobset_failed", "jobset_completed"}

    def test_creation_times_are_not_served(self):
        """They would double the number of series."""
        assert b"_created" not in generate_latest(REGISTRY)


class TestJobSets:
    """The two counters whose labels name a JobSet."""

    def test_jobset_has_its_own_series_until_it_is_deleted(self):
        """A JobSet without series can be forgotten as well."""
        execution_metrics.jobset_finished("Failed", "ns", "a")
        execution_metrics.jobset_finished("Failed", "ns", "a")
        execution_metrics.jobset_finished("Completed", "ns", "b")
        assert value("jobset_failed_total", jobset_name="a", namespace="ns") == 2
        assert value("jobset_completed_total", jobset_name="b", namespace="ns") == 1
        for name in ("a", "b", "never seen"):
            execution_metrics.forget_jobset("ns", name)

        assert value("jobset_failed_total", jobset_name="a", namespace="ns") is None
        assert value("jobset_completed_total", jobset_name="b", namespace="ns") is None

    def test_number_of_series_is_limited(self):
        """A new series replaces the one that changed longest ago."""
        for number in range(execution_metrics.MAX_JOBSET_SERIES + 1):
            execution_metrics.jobset_finished("Completed", "bound", str(number))
            if number == 0:
                execution_metrics.jobset_finished("Failed", "bound", "kept")
            if number == execution_metrics.MAX_JOBSET_SERIES // 2:
                execution_metrics.jobset_finished("Failed", "bound", "kept")
        assert len(_named_series) == execution_metrics.MAX_JOBSET_SERIES
        kept = value("jobset_failed_total", jobset_name="kept", namespace="bound")
        first = value("jobset_completed_total", jobset_name="0", namespace="bound")
        for name, namespace in list(_named_series):
            execution_metrics.forget_jobset(namespace, name)

        assert (kept, first) == (2, None)

    def test_restart_in_place_is_counted(self):
        """It is one kind of restart."""
        before = value("jobset_restarts_total", kind="in_place") or 0
        execution_metrics.in_place_restart_began()
        execution_metrics.in_place_missing_pods(7)

        assert value("jobset_restarts_total", kind="in_place") == before + 1
        assert value("jobset_in_place_restart_missing_pods") == 7

    def test_other_restarts_and_times_to_ready_are_counted(self):
        """Each kind of restart has its own series."""
        before = value("jobset_restarts_total", kind="job") or 0
        execution_metrics.restarted("job")
        execution_metrics.jobset_ready(12)

        assert value("jobset_restarts_total", kind="job") == before + 1
        assert (value("jobset_time_to_ready_seconds_sum") or 0) >= 12


@pytest.mark.parametrize(
    ("code", "label"), [(7, "7"), (255, "255"), (256, "other"), (-1, "other"), (None, "")]
)
def test_number_of_exit_codes_is_limited(code, label):
    """A kubelet reports 0 to 255; other values share one series."""
    name = "jobset_in_place_restart_causes_total"
    before = value(name, cause="container_failed", exit_code=label) or 0
    execution_metrics.in_place_restart_began("container_failed", code)

    assert value(name, cause="container_failed", exit_code=label) == before + 1
