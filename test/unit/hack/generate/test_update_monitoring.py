"""Alerts and dashboard use exported metrics, and generated files are up to date."""

import re
from pathlib import Path

import pytest
import yaml

from hack.generate import monitoring_dashboard, update_monitoring
from support.docs import promql

ROOT = Path(__file__).resolve().parents[4]

TARGET_LABELS = {"job", "pod", "namespace", "instance", "service"}
"""Labels that Prometheus adds to scraped series."""

RULES = [
    rule
    for group in yaml.safe_load(update_monitoring.RULES.read_text())["groups"]
    for rule in group["rules"]
]
EXPRESSIONS = [
    *((rule["alert"], rule["expr"]) for rule in RULES),
    *(
        (panel["title"], target["expr"])
        for panel in monitoring_dashboard.dashboard()["panels"]
        for target in panel.get("targets", ())
    ),
]


def anchor(alert):
    """Anchor of an alert's runbook: ``alert-no-leader`` for JobSetNoLeader."""
    words = re.findall("[A-Z][a-z]*", alert.removeprefix("JobSet"))
    return "-".join(["alert", *words]).lower()


@pytest.fixture(scope="module")
def exported():
    """Labels of all series."""
    return update_monitoring.series_of() | {"up": frozenset()}


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS)
def test_series_of_expressions_are_exported(exported, name, expression):
    """No alert or graph uses a name that does not exist."""
    query = promql.read(expression)

    assert query.asked
    known = set(TARGET_LABELS)
    for selector in query.asked:
        assert selector.series in exported
        assert selector.labels <= exported[selector.series] | TARGET_LABELS
        assert "job" in selector.labels, "series of other programs with the same name would count"
        known |= exported[selector.series]
    assert query.grouped <= known


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alerts_are_complete(rule):
    """Each has a severity, a delay and a runbook, and names only labels that it has."""
    annotations = rule["annotations"]
    page, _, mark = annotations["runbook"].partition("#")
    words = " ".join(annotations.values())
    named = set(re.findall(r"\$labels\.(\w+)", words))

    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert re.fullmatch(r"\d+[mh]", rule["for"])
    assert mark == anchor(rule["alert"])
    assert f'<a id="{mark}"></a>' in (ROOT / page).read_text()
    assert named <= promql.read(rule["expr"]).grouped
    assert words.count("{{") == len(re.findall(r"\{\{ \$labels\.\w+ \}\}", words))


def test_expressions_are_parsed():
    """The result has the series, their selectors and groupings."""
    query = promql.read('sum by (a, b) (rate(x_total{j=~"up",c!="1"}[5m])) / on (a) y > 2 * 3e3')

    assert query.asked == (
        promql.Asked("x_total", frozenset({"j", "c"})),
        promql.Asked("y", frozenset()),
    )
    assert query.grouped == {"a", "b"}
