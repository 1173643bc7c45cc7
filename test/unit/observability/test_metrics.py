"""Names, labels and bounds of the metrics."""

import pytest
from prometheus_client import generate_latest

from jobsetpy.observability import metrics
from jobsetpy.observability.hooks import ClientMetrics, InformerMetrics
from jobsetpy.observability.metrics import REGISTRY

OBJECT_LABELS = {"jobset_name", "namespace", "object", "pod", "uid", "job"}


def value(name: str, /, **labels: str) -> float | None:
    """Current value of a sample."""
    return REGISTRY.get_sample_value(name, labels)


class TestRegistry:
    """Metrics that are served."""

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
            "event_loop_lag_seconds",
            "process_resident_memory_bytes",
        ],
    )
    def test_metric_exists(self, name: str):
        """Metrics that dashboards use exist (counters get ``_total`` when served)."""
        assert name in {family.name for family in REGISTRY.collect()}

    def test_every_metric_has_help(self):
        """Each metric has a description."""
        assert [family.name for family in REGISTRY.collect() if not family.documentation] == []

    def test_no_label_names_an_object(self):
        """The number of series does not grow with the number of objects."""
        named = {
            family.name
            for family in REGISTRY.collect()
            for sample in family.samples
            if OBJECT_LABELS & set(sample.labels)
        }

        assert named == set()

    def test_no_metric_is_about_jobsets(self):
        """Custom controllers do not serve JobSet's metrics."""
        names = {family.name for family in REGISTRY.collect()}

        assert [name for name in names if name.startswith("jobset")] == []

    def test_no_created_series(self):
        """The creation time of each counter is not served."""
        assert b"_created" not in generate_latest(REGISTRY)

    def test_controller_starts_at_zero(self):
        """All series of a controller exist from its start."""
        metrics.ReconcileMetrics("fresh")
        metrics.QueueMetrics("fresh")

        for result in ("success", "error", "requeue", "requeue_after"):
            total = value("controller_runtime_reconcile_total", controller="fresh", result=result)
            assert total == 0
        assert value("workqueue_adds_total", controller="fresh", name="fresh") == 0


class TestQueueGauges:
    """Gauges that are read when scraped."""

    def test_depth_by_priority(self):
        """Each priority has a depth, priority 0 always; all are removed at the end."""
        depths = {-100: 7}
        with metrics.queue_gauges("gq", lambda: depths, lambda: [1.5, 2.5]):
            labels = {"name": "gq", "controller": "gq"}
            assert value("workqueue_depth", priority="-100", **labels) == 7
            assert value("workqueue_depth", priority="0", **labels) == 0
            assert value("workqueue_unfinished_work_seconds", **labels) == 4.0
            assert value("workqueue_longest_running_processor_seconds", **labels) == 2.5
        assert value("workqueue_depth", priority="0", **labels) is None


class TestProcess:
    """Metrics of the whole process."""

    def test_loop_lag_is_the_worst_of_fifteen(self):
        """A stall is visible for fifteen measurements, and is counted."""
        stalls = value("event_loop_stalls_total") or 0
        metrics.loop_lag(0.5)
        for _ in range(14):
            metrics.loop_lag(0.001)
        assert value("event_loop_lag_seconds") == 0.5
        metrics.loop_lag(0.001)

        assert value("event_loop_lag_seconds") == 0.001
        assert value("event_loop_stalls_total") == stalls + 1

    def test_leader(self):
        """The metric is 1 for the leader and 0 for others."""
        metrics.leader("lease", leading=True)
        assert value("leader_election_master_status", name="lease") == 1
        metrics.leader("lease", leading=False)

        assert value("leader_election_master_status", name="lease") == 0


class TestObservers:
    """Hooks of clients and informers."""

    @pytest.mark.parametrize(
        ("verb", "method"),
        [("list", "GET"), ("watch", "GET"), ("create", "POST"), ("apply", "PATCH"), ("x", "OTHER")],
    )
    def test_requests(self, verb: str, method: str):
        """A request is counted by code, method, host and resource, also without an answer."""
        observer = ClientMetrics()
        observer.host = "api.example:6443"
        observer.on_response(verb, f"{verb}s", 200, 0.1)
        observer.on_response(verb, f"{verb}s", None, 0.1)
        observer.on_throttled(0.5)

        for code in ("200", "<error>"):
            labels = {"code": code, "method": method, "resource": f"{verb}s"}
            labels["host"] = "api.example:6443"
            assert value("rest_client_requests_total", **labels) == 1
        assert (value("rest_client_rate_limiter_duration_seconds_count") or 0) >= 1

    def test_informers(self):
        """Calls of informers are counted by kind."""
        observer = InformerMetrics()
        observer.on_list("Toy", 0.5, 10)
        observer.on_relist("Toy", "expired")
        observer.on_watch_open("Toy", "5")
        observer.on_event("Toy", "ADDED")
        observer.on_watch_end("Toy", "eof")
        observer.on_silence("Toy", 45.0)
        observer.on_failure("Toy", ValueError("x"), 1.0)
        observer.on_decode_error("Toy", ValueError("x"), "ns", "a")

        assert value("informer_relists_total", kind="Toy") == 1
        assert value("informer_events_total", kind="Toy", type="ADDED") == 1
        assert value("informer_watch_ends_total", kind="Toy", reason="eof") == 1
        assert value("informer_failures_total", kind="Toy") == 1
        assert value("informer_decode_errors_total", kind="Toy") == 1
