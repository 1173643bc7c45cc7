"""The tally of gangs' pods equals a recount after any events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod
from jobsetpy.api.meta import ObjectKey
from jobsetpy.reconcilers.coscheduling.reconciler import GANGS, OPEN_PODS
from jobsetpy.reconcilers.coscheduling.tally import GangCounts, GangKey
from jobsetpy.testing import store_writer_of
from support.jobsets import decoded

GROUPS, PODS = ("", "g", "h"), ("p", "q", "r", "s")
REASONS = ("", "SchedulingGated", "Unschedulable")
pod_states = st.tuples(
    st.sampled_from(GROUPS),
    st.booleans(),
    st.sampled_from(REASONS),
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    st.booleans(),
)
steps = st.lists(st.tuples(st.sampled_from(PODS), st.one_of(st.none(), pod_states)), max_size=30)


def make(name, state):
    """Return a pod in a state."""
    group, bound, reason, phase, deleting = state
    meta = {"name": name, "namespace": "ns", "uid": name}
    meta["labels"] = {keys.JOBSET_NAME: "js", keys.POD_GROUP_NAME: group}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "PodScheduled", "status": "False", "reason": reason}] if reason else []
    spec = {"nodeName": "n"} if bound else {}
    status = {"phase": phase, "conditions": conditions}
    return decoded(ChildPod, {"metadata": meta, "spec": spec, "status": status})


@given(steps)
def test_tally_equals_a_recount(history):
    """In the end nothing is left."""
    writer = store_writer_of(ChildPod, indexes=[OPEN_PODS, GANGS])
    store, jobset, states = writer.store, ObjectKey("ns", "js"), {}

    def put(name, new):
        if new is None:
            writer.delete(ObjectKey("ns", name))
        else:
            writer.apply(new)

    def open_pods():
        return {key.name for key in store.index_keys(OPEN_PODS, str(jobset))}

    for name, state in history:
        put(name, None if state is None else make(name, state))
        states[name] = state
        live = {
            n: s
            for n, s in states.items()
            if s is not None and s[0] and s[3] not in {"Succeeded", "Failed"} and not s[4]
        }
        for group in GROUPS[1:]:
            mine = [s for s in live.values() if s[0] == group]
            counts = GangCounts.of(
                GangKey(jobset, group), lambda value: store.index_count(GANGS, value)
            )
            open_ = [s for s in mine if not s[1]]
            assert counts.members == len(mine)
            assert counts.bound == len(mine) - len(open_)
            assert counts.gated == sum(s[2] == "SchedulingGated" for s in open_)
            assert counts.unschedulable == sum(s[2] == "Unschedulable" for s in open_)
        opened = {n for n, s in live.items() if not s[1]}
        assert open_pods() == opened
    for name in states:
        put(name, None)
        assert name not in open_pods()
    assert not store.index_values(GANGS)
    assert not store.index_values(OPEN_PODS)
