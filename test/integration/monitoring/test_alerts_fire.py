"""Prometheus' own tool checks the alerts' grammar, when they fire, and when they do not."""

import re
import subprocess

import attrs
import pytest
import yaml

from hack.cluster._binaries import Binaries
from hack.cluster._progress import Progress
from hack.generate import update_monitoring
from support import patience
from support.docs import docs_kit

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(120)]

OURS = {"job": "jobset-controller-manager-metrics-service", "pod": "m-0"}


def series(name, /, **labels):
    text = ",".join(f'{key}="{value}"' for key, value in {**OURS, **labels}.items())
    return f"{name}{{{text}}}"


@attrs.frozen
class Case:
    """Series that make an alert fire with ``labels``, and values that do not.

    Values are in Prometheus' notation, one per minute: ``0+5x90`` grows by five.
    """

    alert: str
    firing: dict
    quiet: dict
    labels: dict = attrs.field(factory=dict)


def case(alert, /, *parts, **labels):
    """A case; each part is a series, its firing and its quiet values."""
    return Case(
        alert,
        {name: firing for name, firing, _ in parts},
        {name: quiet for name, _, quiet in parts},
        labels,
    )


def histogram(name, firing, quiet, limit, /, **labels):
    """Observations that are all below ``limit`` when quiet, and above it when firing."""
    below = (series(f"{name}_bucket", le=limit, **labels), firing, quiet)
    return [below, (series(f"{name}_bucket", le="+Inf", **labels), quiet, quiet)]


NEVER, SOME, MANY = "0x120", "0+1x120", "0+600x120"

CASES = [
    case("JobSetManagerDown", (series("up"), "0x120", "1x120")),
    case(
        "JobSetNoLeader",
        (series("leader_election_master_status", name="l"), "0x120", "1x120"),
        (series("leader_election_master_status", name="l", pod="m-1"), "0x120", "0x120"),
        name="l",
    ),
    case(
        "JobSetSeveralLeaders",
        (series("leader_election_master_status", name="l"), "1x120", "1x120"),
        (series("leader_election_master_status", name="l", pod="m-1"), "1x120", "0x120"),
        name="l",
    ),
    case(
        "JobSetReconcileErrors",
        *(
            (series("controller_runtime_reconcile_total", controller="c", result=result), a, b)
            for result, a, b in (("success", SOME, MANY), ("error", SOME, SOME))
        ),
        controller="c",
    ),
    case(
        "JobSetReconcileDefects",
        (series("controller_runtime_reconcile_panics_total", controller="c"), SOME, NEVER),
        controller="c",
    ),
    case(
        "JobSetReconcileStuck",
        (
            series("workqueue_longest_running_processor_seconds", controller="c", name="c"),
            "200x120",
            "0 0 0 130 0 0 0 130 0x110",
        ),
        controller="c",
    ),
    case(
        "JobSetQueueSlow",
        *histogram("workqueue_queue_duration_seconds", NEVER, SOME, "10.0", name="c"),
        (series("workqueue_queue_duration_seconds_bucket", le="100.0", name="c"), SOME, SOME),
        name="c",
    ),
    case(
        "JobSetQueueDeep",
        (series("workqueue_depth", name="c", priority="0"), "80x120", "80x120"),
        (series("workqueue_depth", name="c", priority="-100"), "80x120", "900 700 300 0x117"),
        name="c",
    ),
    case(
        "JobSetEventLoopStalls",
        (series("event_loop_stalls_total"), "0+20x120", SOME),
        pod="m-0",
    ),
    case(
        "JobSetMemoryHigh",
        (series("process_resident_memory_bytes"), "3600000000x120", "300000000x120"),
        pod="m-0",
    ),
    case(
        "JobSetEventsLost",
        (series("event_recorder_events_total", controller="c", outcome="failed"), SOME, NEVER),
        (series("event_recorder_events_total", controller="c", outcome="created"), MANY, MANY),
        controller="c",
    ),
    case(
        "JobSetApiErrors",
        *(
            (series("rest_client_requests_total", method="GET", resource="pods", code=code), a, b)
            for code, a, b in (("200", SOME, MANY), ("503", SOME, SOME), ("<error>", SOME, NEVER))
        ),
        resource="pods",
    ),
    case(
        "JobSetApiForbidden",
        (
            series("rest_client_requests_total", method="GET", resource="pods", code="403"),
            SOME,
            NEVER,
        ),
        method="GET",
        resource="pods",
    ),
    case(
        "JobSetApiSlow",
        *histogram("rest_client_request_duration_seconds", NEVER, SOME, "2.0", verb="patch"),
        (series("rest_client_request_duration_seconds_bucket", le="4.0", verb="patch"), SOME, SOME),
        *(
            (series("rest_client_request_duration_seconds_bucket", le=le, verb="list"), a, a)
            for le, a in (("2.0", NEVER), ("+Inf", SOME))
        ),
        verb="patch",
    ),
    case(
        "JobSetApiThrottled",
        (series("rest_client_rate_limiter_duration_seconds_sum"), "0+120x120", "0+6x120"),
        pod="m-0",
    ),
    case(
        "JobSetWatchFails",
        (series("informer_failures_total", kind="Pod"), "0+6x120", "0 1 1 1 2x116"),
        kind="Pod",
    ),
    case(
        "JobSetRelists",
        (series("informer_relists_total", kind="Pod"), SOME, "0 1 1 1 2x116"),
        kind="Pod",
    ),
    case(
        "JobSetObjectsLeftOut",
        (series("informer_decode_errors_total", kind="Pod"), "0x110 1x9", NEVER),
        kind="Pod",
    ),
    case(
        "JobSetWebhookErrors",
        (
            series("controller_runtime_webhook_requests_total", webhook="/w", code="500"),
            SOME,
            NEVER,
        ),
        (
            series("controller_runtime_webhook_requests_total", webhook="/w", code="200"),
            MANY,
            MANY,
        ),
        webhook="/w",
    ),
    case(
        "JobSetWebhookSlow",
        *histogram("controller_runtime_webhook_latency_seconds", NEVER, SOME, "1.0", webhook="/w"),
        (
            series("controller_runtime_webhook_latency_seconds_bucket", le="5.0", webhook="/w"),
            SOME,
            SOME,
        ),
        webhook="/w",
    ),
    case(
        "JobSetCertificateExpires",
        (
            series("server_certificate_expiration_timestamp_seconds", server="webhook"),
            "86400x120",
            "8640000x120",
        ),
        server="webhook",
    ),
    case(
        "JobSetBarrierStalled",
        (series("jobset_in_place_restarts_stalled"), "2x120", "0 0 1 1 0x116"),
    ),
    case(
        "JobSetRestartsSlow",
        *histogram("jobset_restart_seconds", NEVER, SOME, "120.0", kind="in_place"),
        (series("jobset_restart_seconds_bucket", kind="in_place", le="300.0"), SOME, SOME),
    ),
    case(
        "JobSetRestartsFrequent",
        (series("jobset_restarts_total", kind="in_place"), "0+2x120", "0x60 1+0.1x60"),
    ),
    case("JobSetGroupWaits", (series("jobset_groups_waiting"), "1x120", "1x20 0 1x20 0 1x20 0x60")),
    case(
        "JobSetCoschedulerHolds",
        (series("jobset_coscheduler_groups", state="holding"), "1x120", "1x10 0x109"),
    ),
    case(
        "JobSetCoschedulerBindFailures",
        (series("jobset_coscheduler_bind_failures_total"), "0+6x120", "0 1x119"),
    ),
    case(
        "JobSetCoschedulerFull",
        (series("jobset_coscheduler_held_binds"), "980x120", "10x120"),
        (series("jobset_coscheduler_held_binds_limit"), "1000x120", "1000x120"),
        pod="m-0",
    ),
]

RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load(update_monitoring.RULES.read_text())["groups"]
    for rule in group["rules"]
}


def annotations(rule, labels):
    """Return the annotations of an alert with these labels."""
    return {
        key: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)
        for key, text in rule["annotations"].items()
    }


def separated(cases):
    """Return groups of cases without a common series name; each group is one test of promtool."""
    groups = []
    for case in cases:
        names = {name.partition("{")[0] for name in case.firing}
        group = next((group for group in groups if not names & group[1]), None)
        if group is None:
            group = ([], set())
            groups.append(group)
        group[0].append(case)
        group[1].update(names)
    return [members for members, _ in groups]


def group_test(what, cases, values, checks):
    """One test of promtool with all series of the cases."""
    return {
        "name": what,
        "interval": "1m",
        "input_series": [
            {"series": name, "values": text}
            for case in cases
            for name, text in values(case).items()
        ],
        "alert_rule_test": [
            {"eval_time": at, "alertname": case.alert, "exp_alerts": alerts}
            for case in cases
            for at, alerts in checks(case)
        ],
    }


def firing(case):
    """Return the expected alerts: none before their time, then with exactly these labels and texts."""
    rule = RULES[case.alert]
    fired = {
        "exp_labels": {**case.labels, **rule["labels"]},
        "exp_annotations": annotations(rule, case.labels),
    }
    return [("1m" if rule["for"] != "1m" else "0m", []), ("119m", [fired])]


def quiet(case):
    """Return the expected alerts: none at any time."""
    return [(f"{minute}m", []) for minute in (5, 15, 30, 60, 119)]


def quiet_values(case):
    """Return the quiet values, and firing values of another program."""
    if case.alert == "JobSetManagerDown":
        return case.quiet
    others = {
        name.replace(OURS["job"], "another-operator"): values
        for name, values in case.firing.items()
    }
    return {**case.quiet, **others}


@pytest.fixture(scope="module")
def promtool():
    path = Binaries.find(["promtool"], Progress())["promtool"]

    def run(*words, cwd=docs_kit.ROOT):
        return subprocess.run(
            [str(path), *words],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=patience.scaled(60),
            check=False,
        )

    return run


def test_rules_have_no_lint_finding(promtool):
    """No rule is refused or suspicious."""
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(update_monitoring.RULES))

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_when_it_should_and_not_otherwise(promtool, tmp_path):
    """After its time, with the labels of its text; never for series of another program."""
    assert [case.alert for case in CASES] == list(RULES)
    tests = []
    for cases in separated(CASES):
        tests.append(group_test("firing", cases, lambda case: case.firing, firing))
        tests.append(group_test("quiet", cases, quiet_values, quiet))
    content = {
        "rule_files": [str(update_monitoring.RULES)],
        "evaluation_interval": "1m",
        "tests": tests,
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(content, sort_keys=False, width=1000))
    done = promtool("test", "rules", "tests.yaml", cwd=tmp_path)

    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
