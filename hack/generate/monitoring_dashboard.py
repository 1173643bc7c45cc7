"""The Grafana dashboard: rows of plain graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

JOB: Final = 'job=~"$job"'
OWNER: Final = 'jobset_namespace=~"$namespace"'
"""Selects all series if the manager does not label them: an absent label is empty."""
RATE: Final = "$__rate_interval"
CERTIFICATE: Final = "server_certificate_expiration_timestamp_seconds"
WIDTH, HEIGHT = 8, 7  # three panels in Grafana's 24 columns

Query = tuple[str, str]
"""Expression, with ``JOB`` in each selector, and legend of its series."""


def _quantiles(series: str, by: str, selector: str = "") -> list[Query]:
    labels = f"{by}, le" if by else "le"
    inner = f"{series}_bucket{{{JOB}{selector}}}[{RATE}]"
    return [
        (
            f"histogram_quantile({q}, sum by ({labels}) (rate({inner})))",
            f"{{{{{by}}}}} {name}" if by else name,
        )
        for q, name in (("0.5", "p50"), ("0.99", "p99"))
    ]


def _rate(series: str, by: str, selector: str = "") -> Query:
    return (f"sum by ({by}) (rate({series}{{{JOB}{selector}}}[{RATE}]))", _legend(by))


def _share(series: str) -> str:
    """Return the share of the time, without queues and suspension, in which all pods ran."""
    parts = (
        f'{{{JOB},{OWNER},activity="running"}}',
        f'{{{JOB},{OWNER},activity!~"queue|suspended"}}',
    )
    running, total = (f"sum(rate({series}{part}[{RATE}]))" for part in parts)
    return f"{running} / {total}"


def _increase(series: str, by: str, selector: str = "") -> Query:
    """Return counts per interval, which are easier to read than rates of rare events."""
    return (f"sum by ({by}) (increase({series}{{{JOB}{selector}}}[{RATE}]))", _legend(by))


def _goodput(uses: str) -> str:
    """Return the share of training in some uses of the time of restart groups."""
    series = "jobset_in_place_run_seconds_total"
    training, total = (
        f'sum(increase({series}{{{JOB},{OWNER},use=~"{each}"}}[{RATE}]))'
        for each in ("training", uses)
    )
    return f"{training} / {total}"


def _legend(labels: str) -> str:
    return " ".join(f"{{{{{label.strip()}}}}}" for label in labels.split(","))


ROWS: Final[Sequence[tuple[str, Sequence[tuple[str, str, Sequence[Query]]]]]] = (
    (
        "At a glance",
        (
            (
                "Replicas up and leading",
                "short",
                [
                    (f"sum(up{{{JOB}}})", "up"),
                    (f"sum(leader_election_master_status{{{JOB}}})", "leading"),
                ],
            ),
            (
                "Finished JobSets",
                "short",
                [
                    (f"sum(increase(jobset_completed_total{{{JOB}}}[{RATE}]))", "completed"),
                    (f"sum(increase(jobset_failed_total{{{JOB}}}[{RATE}]))", "failed"),
                ],
            ),
            (
                "Time from creation, restart or resumption to ready",
                "s",
                _quantiles("jobset_time_to_ready_seconds", ""),
            ),
        ),
    ),
    (
        "Restarts",
        (
            ("Restarts by kind", "short", [_increase("jobset_restarts_total", "kind")]),
            (
                "Decisions of failure policies",
                "short",
                [_increase("jobset_failure_policy_decisions_total", "action")],
            ),
            (
                "Causes of restarts in place",
                "short",
                [_increase("jobset_in_place_restart_causes_total", "cause, exit_code")],
            ),
            (
                "Time of restart groups by use",
                "s",
                [_increase("jobset_in_place_run_seconds_total", "use", f",{OWNER}")],
            ),
            (
                "Barriers",
                "short",
                [
                    (f"max(jobset_in_place_restarts_stalled{{{JOB}}})", "stalled"),
                    (f"max(jobset_in_place_restart_missing_pods{{{JOB}}})", "pods waited for"),
                    (f"max(jobset_in_place_restart_missing_seats{{{JOB}}})", "pods done without"),
                ],
            ),
        ),
    ),
    (
        "What restarts cost",
        (
            (
                "Time from failure to running again",
                "s",
                _quantiles("jobset_restart_seconds", "kind"),
            ),
            (
                "Seconds lost by phase",
                "s",
                [_increase("jobset_restart_phase_seconds_total", "kind, phase")],
            ),
            (
                "Pod-seconds lost",
                "s",
                [_increase("jobset_restart_pod_seconds_total", "kind", f",{OWNER}")],
            ),
            (
                "JobSets not running, by activity",
                "short",
                [
                    _rate(
                        "jobset_activity_seconds_total", "activity", f',{OWNER},activity!="running"'
                    )
                ],
            ),
            (
                "Pods of JobSets not running, by activity",
                "short",
                [
                    _rate(
                        "jobset_activity_pod_seconds_total",
                        "activity",
                        f',{OWNER},activity!="running"',
                    )
                ],
            ),
            (
                "Share of time with all pods running",
                "percentunit",
                [
                    (_share("jobset_activity_seconds_total"), "by JobSets"),
                    (_share("jobset_activity_pod_seconds_total"), "by pods"),
                ],
            ),
        ),
    ),
    (
        "Goodput",
        (
            (
                "Share of training in the time of runs and restarts",
                "percentunit",
                [
                    (_goodput(".+"), "in place, as workers reported"),
                    (
                        " * ".join(
                            f"({each})"
                            for each in (
                                _share("jobset_activity_pod_seconds_total"),
                                _goodput("missing|starting|repeating|training"),
                            )
                        ),
                        "of the time of pods outside queues",
                    ),
                ],
            ),
            (
                "Pods of JobSets by activity",
                "short",
                [_rate("jobset_activity_pod_seconds_total", "activity", f",{OWNER}")],
            ),
            (
                "Time lost in runs, by use",
                "s",
                [
                    _increase(
                        "jobset_in_place_run_seconds_total", "use", f',{OWNER},use!="training"'
                    )
                ],
            ),
        ),
    ),
    (
        "Queues and controllers",
        (
            ("Queue depth", "short", [(f"sum by (name) (workqueue_depth{{{JOB}}})", "{{name}}")]),
            (
                "Time in queue, p99",
                "s",
                [_quantiles("workqueue_queue_duration_seconds", "name")[1]],
            ),
            ("Time of work, p99", "s", [_quantiles("workqueue_work_duration_seconds", "name")[1]]),
            ("Retries", "ops", [_rate("workqueue_retries_total", "name")]),
            (
                "Reconciles by result",
                "ops",
                [_rate("controller_runtime_reconcile_total", "controller, result")],
            ),
            (
                "Longest running reconcile",
                "s",
                [
                    (
                        f"max by (name) (workqueue_longest_running_processor_seconds{{{JOB}}})",
                        "{{name}}",
                    )
                ],
            ),
        ),
    ),
    (
        "API server",
        (
            ("Requests", "reqps", [_rate("rest_client_requests_total", "method, resource")]),
            (
                "Failed requests",
                "reqps",
                [_rate("rest_client_requests_total", "code, resource", ',code!~"2..|404|409"')],
            ),
            (
                "Latency, p99",
                "s",
                [_quantiles("rest_client_request_duration_seconds", "verb", ',verb!="watch"')[1]],
            ),
            (
                "Requests delayed by the client's rate limit",
                "short",
                [
                    (
                        f"sum(rate(rest_client_rate_limiter_duration_seconds_sum{{{JOB}}}[{RATE}]))",
                        "waiting on average",
                    )
                ],
            ),
            ("Watch events", "ops", [_rate("informer_events_total", "kind")]),
            (
                "Ended watches, failed lists",
                "short",
                [
                    _increase("informer_watch_ends_total", "kind, reason"),
                    (
                        f"sum by (kind) (increase(informer_failures_total{{{JOB}}}[{RATE}]))",
                        "{{kind}} failed",
                    ),
                    (
                        f"sum by (kind) (increase(informer_relists_total{{{JOB}}}[{RATE}]))",
                        "{{kind}} listed again",
                    ),
                ],
            ),
        ),
    ),
    (
        "Webhooks",
        (
            (
                "Requests",
                "reqps",
                [_rate("controller_runtime_webhook_requests_total", "webhook, code")],
            ),
            (
                "Latency, p99",
                "s",
                [_quantiles("controller_runtime_webhook_latency_seconds", "webhook")[1]],
            ),
            (
                "Time until certificates expire",
                "s",
                [(f"min by (server) ({CERTIFICATE}{{{JOB}}}) - time()", "{{server}}")],
            ),
        ),
    ),
    (
        "Groups",
        (
            (
                "Startup groups waiting",
                "short",
                [(f"max(jobset_groups_waiting{{{JOB}}})", "waiting")],
            ),
            ("Duration of gathering", "s", _quantiles("jobset_group_gather_seconds", "")),
            (
                "Followers of exclusive placement",
                "short",
                [_increase("jobset_exclusive_placement_followers_total", "action")],
            ),
            (
                "Coscheduler: gangs",
                "short",
                [(f"max by (state) (jobset_coscheduler_groups{{{JOB}}})", "{{state}}")],
            ),
            (
                "Coscheduler: time until a gang is bound",
                "s",
                _quantiles("jobset_coscheduler_group_bind_seconds", ""),
            ),
            (
                "Coscheduler: refused gangs",
                "short",
                [_increase("jobset_coscheduler_group_rejections_total", "cause")],
            ),
        ),
    ),
    (
        "Processes",
        (
            (
                "Memory",
                "bytes",
                [(f"max by (pod) (process_resident_memory_bytes{{{JOB}}})", "{{pod}}")],
            ),
            ("CPU", "short", [_rate("process_cpu_seconds_total", "pod")]),
            (
                "Event loop lag",
                "s",
                [(f"max by (pod) (event_loop_lag_seconds{{{JOB}}})", "{{pod}}")],
            ),
            (
                "Objects in caches",
                "short",
                [(f"max by (kind) (informer_objects{{{JOB}}})", "{{kind}}")],
            ),
            ("Tasks", "short", [(f"max by (pod) (asyncio_tasks{{{JOB}}})", "{{pod}}")]),
            ("Events", "ops", [_rate("event_recorder_events_total", "outcome")]),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard in Grafana's format."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, graphs in ROWS:
        panels.append(
            {
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": 24, "h": 1},
                "panels": [],
            }
        )
        top += 1
        for number, (name, unit, queries) in enumerate(graphs):
            row, column = divmod(number, 24 // WIDTH)
            place = {"x": column * WIDTH, "y": top + row * HEIGHT, "w": WIDTH, "h": HEIGHT}
            panels.append(_panel(name, unit, queries, place))
        top += -(-len(graphs) * WIDTH // 24) * HEIGHT
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    return {
        "uid": "jobset-controller",
        "title": "JobSet",
        "tags": ["jobset"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_datasource(), *map(_variable, _VARIABLES)]},
        "panels": panels,
    }


def _panel(
    title: str, unit: str, queries: Sequence[Query], place: dict[str, int]
) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": unit, "min": 0, "custom": {"lineWidth": 1, "fillOpacity": 0}},
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expression, "legendFormat": legend}
            for at, (expression, legend) in enumerate(queries)
        ],
    }


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }


_VARIABLES: Final = (
    ("job", "Job", "label_values(jobset_restarts_total, job)", ".*jobset.*"),
    (
        "namespace",
        "Namespace of JobSets (observability.labels)",
        "label_values(jobset_activity_jobsets, jobset_namespace)",
        ".*",
    ),
)
"""Name, label, query and value for all."""


def _variable(declared: tuple[str, str, str, str]) -> dict[str, Any]:
    name, label, query, everything = declared
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "allValue": everything,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
