"""Alerts and dashboard ask for what is exported, and what is made from it is up to date."""

import re
from pathlib import Path

import pytest
import yaml

from hack.generate import monitoring_dashboard, update_monitoring
from support.docs import promql

ROOT = Path(__file__).resolve().parents[4]

OF_TARGETS = {"job", "pod", "namespace", "instance", "service"}
"""Labels that Prometheus adds to what it scrapes."""

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
    """Of the runbook of an alert: ``alert-no-leader`` of JobSetNoLeader."""
    words = re.findall("[A-Z][a-z]*", alert.removeprefix("JobSet"))
    return "-".join(["alert", *words]).lower()


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS)
def test_everything_asked_for_is_exported(name, expression):
    """No alert and no graph is silent because of a name that does not exist."""
    exported = update_monitoring.series_of() | {"up": frozenset()}
    query = promql.read(expression)

    assert query.asked
    known = set(OF_TARGETS)
    for asked in query.asked:
        assert asked.series in exported
        assert asked.labels <= exported[asked.series] | OF_TARGETS
        assert "job" in asked.labels, "another program's series of that name would count too"
        known |= exported[asked.series]
    assert query.grouped <= known


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alerts_can_be_acted_on(rule):
    """Each has a severity, waits before it fires, names only labels it has, and has a runbook."""
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


def test_what_is_generated_is_up_to_date():
    """The object with the alerts, the dashboard and the page about metrics: ``make generate``."""
    for name, make in update_monitoring.OUTPUTS.items():
        assert make() == (ROOT / name).read_text(), name


def test_panels_do_not_overlap():
    """Every panel has a place and a number of its own."""
    panels = monitoring_dashboard.dashboard()["panels"]
    places = set()
    for panel in panels:
        grid = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & places, panel["title"]
        places |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_an_expression_is_taken_apart():
    """Series, their selectors and groupings, and nothing else."""
    query = promql.read('sum by (a, b) (rate(x_total{j=~"up",c!="1"}[5m])) / on (a) y > 2 * 3e3')

    assert query.asked == (
        promql.Asked("x_total", frozenset({"j", "c"})),
        promql.Asked("y", frozenset()),
    )
    assert query.grouped == {"a", "b"}
