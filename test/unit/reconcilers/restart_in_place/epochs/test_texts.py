"""Events about lines that rules report."""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochState
from support.restarts.epoch_plans import at, jobset, observed, pod


def test_line_is_an_event_once_when_a_rule_reports_it():
    """A reconcile without a new line reports nothing; the event is one line."""
    reporters = [pod("a"), pod("b", notes={keys.LOG_REPORT_ANNOTATION: "slow: t=9\t."})]
    view = observed(jobset(), {1: 4}, reporters=reporters)
    first = plan_epochs(view, EpochState(), at(0))
    second = plan_epochs(view, first.memory, at(1))

    assert [(event.pod, event.reason, event.message) for event in first.notices] == [
        ("b", "LogRule", "pod 'b': log rule slow: t=9 .")
    ]
    assert second.notices == ()
