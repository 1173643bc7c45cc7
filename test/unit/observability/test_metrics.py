"""Names, labels and bounds of the metrics."""

import pytest
from prometheus_client import generate_latest

from jobsetpy.observability import metrics
from jobsetpy.observability._jobset_metrics import _named_series
from jobsetpy.observability.metrics import REGISTRY
from jobsetpy.observability.observers import ClientMetrics, InformerMetrics

OBJECT_LABELS = {"jobset_name", "namespace", "object", "pod", "uid", "job"}


def value(name: str, /, **labels: str) -> float | None:
    """A sample's present value."""
    return REGISTRY.get_sample_value(name, labels)


class TestRegistry:
    """What is served."""

    @pytest.mark.parametrize(
        "name",
        [
            "workqueue_adds",
            "workqueue_depth",
            "workqueue_queue_duration_seconds",
            "workqueue_work_duration_seconds",
            "workqueue_unfinished_work_seconds",
            "workqueue_longest_running_processor_seconds",
            "workqueue_retries",
            "controller_runtime_reconcile",
            "controller_runtime_reconcile_errors",
            "controller_runtime_terminal_reconcile_errors",
            "controller_runtime_reconcile_panics",
            "controller_runtime_reconcile_timeouts",
            "controller_runtime_reconcile_time_seconds",
            "controller_runtime_max_concurrent_reconciles",
            "controller_runtime_active_workers",
            "rest_client_requests",
            "leader_election_master_status",
            "jobset_failed",
            "jobset_completed",
            "jobset_in_place_restarts",
            "jobset_in_place_restart_phase_seconds",
            "event_loop_lag_seconds",
            "process_resident_memory_bytes",
        ],
    )
    def test_has(self, name: str):
        """Names that dashboards know are there (counters get ``_total`` when served)."""
        assert name in {family.name for family in REGISTRY.collect()}

    def test_everything_has_help(self):
        """Each metric says what it is."""
        assert [] == [family.name for family in REGISTRY.collect() if not family.documentation]

    def test_only_two_name_objects(self):
        """No label names an object, but for the two counters that users know."""
        metrics.jobset_failed("ns", "label-test")
        metrics.jobset_completed("ns", "label-test")
        named = {
            family.name
            for family in REGISTRY.collect()
            for sample in family.samples
            if OBJECT_LABELS & set(sample.labels)
        }
        metrics.forget_jobset("ns", "label-test")

        assert named == {"jobset_failed", "jobset_completed"}

    def test_no_created_series(self):
        """The creation time of each counter is not served."""
        assert b"_created" not in generate_latest(REGISTRY)

    @pytest.mark.parametrize("phase", ["detect", "deprecate", "gather", "lift"])
    def test_restart_phases_start_at_zero(self, phase: str):
        """Series that an alert may ask for exist before anything happened."""
        assert value("jobset_in_place_restart_phase_seconds_count", phase=phase) is not None

    def test_controller_starts_at_zero(self):
        """All series of a controller exist from its start."""
        metrics.ReconcileMetrics("fresh")
        metrics.QueueMetrics("fresh")

        for result in ("success", "error", "requeue", "requeue_after"):
            total = value("controller_runtime_reconcile_total", controller="fresh", result=result)
            assert total == 0
        assert value("workqueue_adds_total", controller="fresh", name="fresh") == 0


class TestQueueGauges:
    """Read when scraped."""

    def test_depth_by_priority(self):
        """Each priority has a depth, 0 is always there, and all are gone at the end."""
        depths = {-100: 7}
        with metrics.queue_gauges("gq", lambda: depths, lambda: [1.5, 2.5]):
            labels = {"name": "gq", "controller": "gq"}
            assert value("workqueue_depth", priority="-100", **labels) == 7
            assert value("workqueue_depth", priority="0", **labels) == 0
            assert value("workqueue_unfinished_work_seconds", **labels) == 4.0
            assert value("workqueue_longest_running_processor_seconds", **labels) == 2.5
        assert value("workqueue_depth", priority="0", **labels) is None


class TestJobSets:
    """The two counters with names."""

    def test_counted_and_forgotten(self):
        """Each JobSet has its own series until it is deleted."""
        metrics.jobset_failed("ns", "a")
        metrics.jobset_failed("ns", "a")
        metrics.jobset_completed("ns", "b")
        assert value("jobset_failed_total", jobset_name="a", namespace="ns") == 2
        assert value("jobset_completed_total", jobset_name="b", namespace="ns") == 1
        for name in ("a", "b", "never seen"):
            metrics.forget_jobset("ns", name)

        assert value("jobset_failed_total", jobset_name="a", namespace="ns") is None
        assert value("jobset_completed_total", jobset_name="b", namespace="ns") is None

    def test_bounded(self):
        """The series that changed longest ago makes room for a new one."""
        for number in range(metrics.MAX_JOBSET_SERIES + 1):
            metrics.jobset_completed("bound", str(number))
            if number == 0:
                metrics.jobset_failed("bound", "kept")
            if number == metrics.MAX_JOBSET_SERIES // 2:
                metrics.jobset_failed("bound", "kept")
        assert len(_named_series) == metrics.MAX_JOBSET_SERIES
        kept = value("jobset_failed_total", jobset_name="kept", namespace="bound")
        first = value("jobset_completed_total", jobset_name="0", namespace="bound")
        for name, namespace in list(_named_series):
            metrics.forget_jobset(namespace, name)

        assert (kept, first) == (2, None)

    def test_in_place_restarts(self):
        """An in-place restart counts as a restart, and its phases in seconds."""
        before = value("jobset_restarts_total", kind="in_place") or 0
        metrics.in_place_restart_began()
        metrics.in_place_restart_phase("gather", 1.5)
        metrics.in_place_restart_ended(2.5)
        metrics.in_place_missing_pods(7)

        assert value("jobset_restarts_total", kind="in_place") == before + 1
        assert (value("jobset_in_place_restart_phase_seconds_sum", phase="gather") or 0) >= 1.5
        assert (value("jobset_in_place_restart_seconds_sum") or 0) >= 2.5
        assert value("jobset_in_place_restart_missing_pods") == 7

    def test_other_counts(self):
        """Restarts of other kinds and the time to ready are counted."""
        before = value("jobset_restarts_total", kind="job") or 0
        metrics.restarted("job")
        metrics.jobset_ready(12)

        assert value("jobset_restarts_total", kind="job") == before + 1
        assert (value("jobset_time_to_ready_seconds_sum") or 0) >= 12


class TestProcess:
    """Of the process as a whole."""

    def test_loop_lag_is_the_worst_of_fifteen(self):
        """A stall shows for fifteen measurements, and is counted."""
        stalls = value("event_loop_stalls_total") or 0
        metrics.loop_lag(0.5)
        for _ in range(14):
            metrics.loop_lag(0.001)
        assert value("event_loop_lag_seconds") == 0.5
        metrics.loop_lag(0.001)

        assert value("event_loop_lag_seconds") == 0.001
        assert value("event_loop_stalls_total") == stalls + 1

    def test_leader(self):
        """1 for the leader, 0 for others."""
        metrics.leader("lease", leading=True)
        assert value("leader_election_master_status", name="lease") == 1
        metrics.leader("lease", leading=False)

        assert value("leader_election_master_status", name="lease") == 0


class TestObservers:
    """Hooks of the layers above."""

    @pytest.mark.parametrize(
        ("verb", "method"),
        [("list", "GET"), ("watch", "GET"), ("create", "POST"), ("apply", "PATCH"), ("x", "OTHER")],
    )
    def test_requests(self, verb: str, method: str):
        """A request is counted by code, HTTP method and resource; one without answer too."""
        observer = ClientMetrics()
        observer.on_response(verb, f"{verb}s", 200, 0.1)
        observer.on_response(verb, f"{verb}s", None, 0.1)
        observer.on_throttled(0.5)

        for code in ("200", "<error>"):
            labels = {"code": code, "method": method, "resource": f"{verb}s"}
            assert value("rest_client_requests_total", **labels) == 1
        assert (value("rest_client_rate_limiter_duration_seconds_count") or 0) >= 1

    def test_informers(self):
        """What informers go through is counted by kind."""
        observer = InformerMetrics()
        observer.on_list("Toy", 0.5, 10)
        observer.on_relist("Toy", "expired")
        observer.on_watch_open("Toy", "5")
        observer.on_event("Toy", "ADDED")
        observer.on_stale_event("Toy", "ADDED")
        observer.on_watch_end("Toy", "eof")
        observer.on_silence("Toy", 45.0)
        observer.on_failure("Toy", ValueError("x"), 1.0)
        observer.on_decode_error("Toy", ValueError("x"), "ns", "a")

        assert value("informer_list_duration_seconds_sum", kind="Toy") == 0.5
        assert value("informer_relists_total", kind="Toy") == 1
        assert value("informer_events_total", kind="Toy", type="ADDED") == 1
        assert value("informer_stale_events_total", kind="Toy") == 1
        assert value("informer_watch_ends_total", kind="Toy", reason="eof") == 1
        assert value("informer_failures_total", kind="Toy") == 1
        assert value("informer_decode_errors_total", kind="Toy") == 1
