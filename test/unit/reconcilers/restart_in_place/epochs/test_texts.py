"""Events about pods with unusable annotations, and about lines that rules report."""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.observed.job_counts import InvalidEpoch
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts, Observations
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochState
from support.restarts.epoch_plans import at, jobset, observed, pod


class TestUnusableAnnotations:
    def seen(self, invalid, appeared):
        """Return the input of a plan with invalid annotations, and the number of all so far."""
        pods = GroupCounts({1: 2}, invalid=invalid)
        return observed(jobset(), pods, notes=Observations(invalid=appeared))

    def test_each_is_reported_once_while_it_exists(self):
        """By one Warning for each pod and value."""
        one, two = InvalidEpoch("a", "a", "x"), InvalidEpoch("b", "b", "y" * 50)
        view = self.seen({"a": one}, appeared=1)
        first = plan_epochs(view, EpochState(), at(0))
        second = plan_epochs(self.seen({"a": one, "b": two}, appeared=2), first.memory, at(1))
        none = plan_epochs(self.seen({}, appeared=1), second.memory, at(2))
        again = plan_epochs(view, none.memory, at(3))

        assert [event.pod for event in first.notices] == ["a"]
        assert [event.pod for event in second.notices] == ["b"]
        assert second.notices[0].message.endswith(
            f"has the unusable value '{'y' * 40}...'; delete the pod, and its Job makes another one"
        )
        assert none.notices == ()
        assert [event.pod for event in again.notices] == ["a"]


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
