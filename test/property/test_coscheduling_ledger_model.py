"""The ledger of coscheduling's groups against a recount, for any order of events."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod
from jobsetpy.api.meta import ObjectKey
from jobsetpy.domain.coscheduling.ledger import GangKey, GangLedger
from jobsetpy.testing.jobsets import decoded

GROUPS, PODS = ("", "g", "h"), ("p", "q", "r", "s")
REASONS = ("", "SchedulingGated", "Unschedulable")
pod_states = st.tuples(
    st.sampled_from(GROUPS),
    st.booleans(),
    st.sampled_from(REASONS),
    st.sampled_from([None, 0, 5]),
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    st.booleans(),
)
steps = st.lists(st.tuples(st.sampled_from(PODS), st.one_of(st.none(), pod_states)), max_size=30)


def make(name, state):
    """A pod in some state."""
    group, bound, reason, priority, phase, deleting = state
    meta = {"name": name, "namespace": "ns", "uid": name}
    meta["labels"] = {keys.JOBSET_NAME: "js", keys.POD_GROUP_NAME: group}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "PodScheduled", "status": "False", "reason": reason}] if reason else []
    spec = {"priority": priority} | ({"nodeName": "n"} if bound else {})
    status = {"phase": phase, "conditions": conditions}
    return decoded(ChildPod, {"metadata": meta, "spec": spec, "status": status})


@given(steps)
def test_the_counts_are_those_of_a_recount(history):
    """Whatever comes and goes; in the end nothing is left."""
    ledger, pods, states = GangLedger(), {}, {}
    for name, state in history:
        new = None if state is None else make(name, state)
        ledger.pod_changed(pods.get(name), new)
        pods[name], states[name] = new, state
        live = {
            n: s
            for n, s in states.items()
            if s is not None and s[0] and s[4] not in {"Succeeded", "Failed"} and not s[5]
        }
        for group in GROUPS[1:]:
            mine = [s for s in live.values() if s[0] == group]
            counts = ledger.counts(GangKey(ObjectKey("ns", "js"), group))
            open_ = [s for s in mine if not s[1]]
            assert counts.members == len(mine)
            assert counts.bound == len(mine) - len(open_)
            assert counts.gated == sum(s[2] == "SchedulingGated" for s in open_)
            assert counts.unschedulable == sum(s[2] == "Unschedulable" for s in open_)
            assert counts.priorities == Counter(s[3] for s in mine if s[3] is not None)
        opened = {n for n, s in live.items() if not s[1]}
        assert set(ledger.open_pods(ObjectKey("ns", "js"))) == opened
    for name, pod in pods.items():
        ledger.pod_changed(pod, None)
        assert name not in ledger.open_pods(ObjectKey("ns", "js"))
    assert len(ledger) == 0
