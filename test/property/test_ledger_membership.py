"""Ledgers subtract exactly what they have counted, even if states cannot be read or are skipped."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.aio import supervise
from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod
from jobsetpy.client import Client
from jobsetpy.informers import SharedInformer, WatchOptions
from jobsetpy.reconcilers.restart_in_place.observed.ledger import EpochLedger
from jobsetpy.reconcilers.rules.membership import attempt_of
from jobsetpy.reconcilers.rules.membership_ledger import Member, MembershipLedger
from jobsetpy.testing import World
from support.jobsets import decoded
from support.restarts.epoch_plans import GROUP, job

JOBS, PODS = ("job-a", "job-b"), ("p", "q", "r", "s")
GROUPS = (GROUP, GROUP._replace(attempt=1))
BAD = "bad"
"""An annotation that the ledger of this test cannot read."""


class Counts:
    """Pods by annotation, of a Job or of an attempt."""

    def __init__(self):
        self.jobs, self.pods = 0, Counter()

    def count(self, pod, number):
        """Add to a count."""
        self.pods[pod] += number
        assert self.pods[pod] >= 0
        self.pods += Counter()  # without zeros

    def pod_counted(self, _job, _counts, pod, number):
        """Count for the attempt like for the Job."""
        self.count(pod, number)
        return True

    def job_changed(self, before, after, counts):
        """Add or remove the Job's pods."""
        for pod, number in counts.pods.items():
            self.pods[pod] += number * ((after is not None) - (before is not None))
        self.pods += Counter()
        return True

    @property
    def empty(self):
        """True if there are no pods."""
        return not self.pods


def read_pod(pod):
    """Return controller and annotation of a pod; fail for a bad one."""
    text = pod.metadata.annotations.epoch
    if text == BAD:
        raise ValueError(text)
    return None if text is None else (pod.metadata.controller_uid, text)


def make_pod(name, owner, text, **more):
    """Return a pod of a Job."""
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": {keys.JOBSET_NAME: "js"},
            "annotations": {} if text is None else {keys.EPOCH_ANNOTATION: text},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner,
                                 "controller": True}]} | more  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {},
            "status": {"phase": "Running"}}  # fmt: skip


pod_states = st.tuples(st.sampled_from(JOBS), st.sampled_from([None, "1", "2", BAD]))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.sampled_from(PODS), st.none() | pod_states),
        st.tuples(st.just("job"), st.sampled_from(JOBS), st.none() | st.integers(0, 1)),
    ),
    max_size=40,
)


@given(steps)
def test_state_that_cannot_be_read_is_not_counted(history):
    """Counts are those of the readable states."""
    book = MembershipLedger(read_pod, lambda job: Member(attempt_of(job), "job"), Counts, Counts)
    pods, jobs = {}, {}

    def put(kind, name, state):
        held = pods if kind == "pod" else jobs
        old, new = held.pop(name, None), None
        if state is not None:
            new = (
                job(name, attempt=str(state))
                if kind == "job"
                else decoded(ChildPod, make_pod(name, *state))
            )
            held[name] = new
        if kind == "job":
            book.job_changed(old, new)
        elif new is not None and new.metadata.annotations.epoch == BAD:
            with pytest.raises(ValueError, match=BAD):
                book.pod_changed(old, new)
        else:
            book.pod_changed(old, new)

    for step in history:
        put(*step)
        for group in GROUPS:
            members = {uid for uid, each in jobs.items() if attempt_of(each) == group}
            found = [
                pod.metadata for pod in pods.values() if pod.metadata.controller_uid in members
            ]
            texts = Counter(meta.annotations.epoch for meta in found)
            counts = book._attempts.get(group)
            assert (counts.pods if counts else Counter()) == Counter(
                {text: number for text, number in texts.items() if text not in {None, BAD}}
            )
    for kind, names in (("pod", tuple(pods)), ("job", tuple(jobs))):
        for name in names:
            put(kind, name, None)
    assert len(book) == 0


class Feed:
    """Handler that passes an informer's events to a ledger."""

    def __init__(self, ledger):
        self.ledger = ledger

    def on_add(self, obj, *, initial):
        self.ledger.pod_changed(None, obj)

    def on_update(self, old, new):
        self.ledger.pod_changed(old, new)

    def on_delete(self, obj, *, final_state_known):
        self.ledger.pod_changed(obj, None)


UNREADABLE = {"spec": {"priority": "very high"}}
EPOCH_2 = {"metadata": {"annotations": {keys.EPOCH_ANNOTATION: "2"}}}
NOT_OURS = {"metadata": {"labels": {keys.JOBSET_NAME: None}}}


@pytest.mark.looptime
@pytest.mark.parametrize(
    "changes",
    [
        [EPOCH_2 | UNREADABLE, None],
        [EPOCH_2 | UNREADABLE, {"spec": {"priority": None}}, None],
        [{"metadata": EPOCH_2["metadata"] | NOT_OURS["metadata"]}],
        [EPOCH_2 | UNREADABLE, {"spec": {"priority": None}} | NOT_OURS],
    ],
    ids=["unreadable", "unreadable-for-a-time", "leaves-the-selector", "both"],
)
async def test_skipped_states_leave_nothing_in_the_ledger(changes):
    """A pod changes its epoch in a state that is not delivered, and is then deleted."""
    world, ledger, group = World(), EpochLedger(), GROUPS[0]
    ledger.job_changed(None, job("job-a"))
    options = WatchOptions(label_selector=keys.JOBSET_NAME)
    informer = SharedInformer(Client(world.transport()), ChildPod, options)
    informer.add_handler(Feed(ledger))
    pod = make_pod("p", "job-a", "1")
    del pod["metadata"]["uid"], pod["metadata"]["namespace"]
    world.create("pods", pod)
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await informer.wait_for_sync()
        assert ledger.histogram(group).epochs == {1: 1}
        for change in changes:
            if change is None:
                world.delete("pods", "p")
            else:
                world.patch("pods", "p", change)
            await asyncio.sleep(1)

        assert ledger.histogram(group).epochs == {}
