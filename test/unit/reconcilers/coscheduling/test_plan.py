"""What a reconcile of a JobSet's gangs does, by tables in virtual time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod
from jobsetpy.api.meta import ObjectKey
from jobsetpy.api.scheduling import SchedulingPodGroup, SchedulingWorkload
from jobsetpy.reconcilers.coscheduling.backends import COSCHEDULER, GATE
from jobsetpy.reconcilers.coscheduling.gangs import gangs_of
from jobsetpy.reconcilers.coscheduling.plan import (
    GangMemory,
    MendPod,
    ObservedGangs,
    has_turned,
    job_matters,
    mending,
    plan_coscheduling,
)
from jobsetpy.reconcilers.coscheduling.tally import GangCounts, GangKey, changed_gangs, gang_state
from jobsetpy.reconcilers.rules.conditions import WARNING
from jobsetpy.reconcilers.rules.times import Now
from jobsetpy.testing.jobsets import (
    EPOCH_START,
    ModelCluster,
    decoded,
    jobset_json,
    merge,
    replicated_job,
)

KEY = ObjectKey("default", "test-js")
WAITING, BOUND = keys.POD_GROUPS_WAITING_REASON, keys.POD_GROUPS_BOUND_REASON
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}


class Gangs:
    """A JobSet of two Jobs with two pods each, its pods, and the memory between reconciles."""

    def __init__(self, scope="JobSet", notes=None, **fixed):
        body = jobset_json(replicated_job("w", 2, parallelism=2))
        body["metadata"]["generation"] = 1
        body["metadata"]["annotations"] = {keys.COSCHEDULING_ANNOTATION: scope, **(notes or {})}
        self.cluster = ModelCluster(body)
        self.cluster.reconcile()
        self.suspects = set()
        self.memory = GangMemory()
        self.pods = {}
        self.fixed = fixed

    def set_pod(self, name, *, node="", minimum="4", **more):
        """Make or change a pod: ``0-1`` is the second of the first Job."""
        group = gangs_of(self.cluster.jobset).of("w", name[0])
        labels = {
            keys.JOBSET_NAME: "test-js",
            keys.REPLICATED_JOB_NAME: "w",
            keys.JOB_INDEX: name[0],
            keys.POD_GROUP_NAME: group.name if group else "",
            keys.POD_GROUP_MIN_AVAILABLE: minimum,
        }
        body = {
            "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
            "spec": {"nodeName": node, "priority": 0},
        }
        pod = decoded(ChildPod, merge(body, more))
        gangs = changed_gangs(self.pods.get(name), pod)
        self.pods[name] = pod
        if mending(self.memory, pod) is not None:
            self.suspects.add(name)
        return any(has_turned(self.memory, self.counts, gang) for gang in gangs)

    def counts(self, gang):
        """Of the pods of a gang, counted anew."""
        states = [state for state in map(gang_state, self.pods.values()) if state is not None]
        return GangCounts.of(Counter(state for key, state in states if key == gang))

    def open_pods(self):
        """Names of pods in gangs that have no node."""
        states = {name: gang_state(pod) for name, pod in self.pods.items()}
        return [name for name, state in states.items() if state and not state[1].bound]

    def observe(self):
        """What the reconciler would see."""
        suspects, self.suspects = self.suspects, set()
        return ObservedGangs(
            key=KEY,
            jobset=self.cluster.jobset,
            jobs=[self.cluster.job(name) for name in self.cluster.jobs],
            counts=self.counts,
            open_pods=self.open_pods,
            suspects=suspects,
            pod=self.pods.get,
            pods=self.pods.values,
            **self.fixed,
        )

    def look(self, at=0.0, **changed):
        """The plan at a time in seconds, carried out but for the writes of pods."""
        now = Now(EPOCH_START + timedelta(seconds=at), 100.0 + at)
        plan = plan_coscheduling(attrs.evolve(self.observe(), **changed), self.memory, now)
        if plan.status is not None and plan.status.patch:
            self.cluster.object = merge(self.cluster.object, {"status": plan.status.patch})
        self.memory = plan.memory or GangMemory()
        return plan

    def change(self, **notes):
        """Set annotations of the JobSet."""
        self.cluster.object = merge(self.cluster.object, {"metadata": {"annotations": notes}})


def told(plan):
    """Reasons of the conditions that a plan sets and announces."""
    return [] if plan.status is None else [event.reason for event in plan.status.events]


def delay(plan):
    """After how many seconds the gangs are looked at again; ``None`` for at the next event."""
    return None if plan.result.delay is None else plan.result.delay.total_seconds()


def labels_of(plan):
    """The minima that pods are given, by their names."""
    mends = (action for stage in plan.stages for action in stage if isinstance(action, MendPod))
    return {m.pod.metadata.name: m.labels and m.labels[keys.POD_GROUP_MIN_AVAILABLE] for m in mends}


ALL = ("0-0", "0-1", "1-0", "1-1")


def test_where_gangs_stand_is_reported_after_pauses_that_grow():
    """A second after they were first seen to be incomplete, then rarely, at once when they are."""
    gangs = Gangs()
    for name in ALL:
        gangs.set_pod(name)
    at, seen = 0.0, []
    while at < 200:
        # The counts are other ones each time: only the pauses keep it from being written.
        gangs.set_pod("0-0", status={"conditions": [GATED] * (len(seen) % 2)})
        plan = gangs.look(at)
        seen.append((at, *told(plan)))
        at += delay(plan)
    times = [1, 6, 16, 36, 76, 136, 196]
    assert seen == [(0,), *((each, WAITING) for each in times)]
    for name in ALL:
        turned = gangs.set_pod(name, node="n")
    assert turned
    plan = gangs.look(at)
    assert (told(plan), delay(plan)) == ([BOUND], None)
    assert gangs.memory.pause == 0


def test_a_status_that_is_not_stored_is_decided_again():
    """What was seen of pods is remembered at once, when to tell next is not."""
    gangs = Gangs()
    gangs.look(0)
    gangs.set_pod("0-0", minimum="9")
    plan = gangs.look(2)
    assert (told(plan), labels_of(plan)) == ([WAITING], {"0-0": "4"})
    gangs.memory = plan.interim
    gangs.cluster.object["status"] = {}
    again = gangs.look(2.1)
    assert (told(again), labels_of(again)) == ([WAITING], {})


def test_pods_of_an_attempt_that_goes_stay_in_its_gang():
    """They are given no label of the next attempt's, and do not count for it."""
    gangs = Gangs()
    attempt = {"metadata": {"labels": {keys.RESTART_ATTEMPT: "0"}}}
    for name in ALL:
        gangs.set_pod(name, node="n", **attempt)
    gangs.look()
    assert [each.counts.bound for each in gangs.memory.standings.values()] == [4]
    gangs.cluster.object = merge(gangs.cluster.object, {"status": {"restarts": 1}})
    assert labels_of(gangs.look(1)) == {}
    assert [each.counts.members for each in gangs.memory.standings.values()] == [0]


def test_pods_with_names_of_before_get_their_attempts():
    """A manager of a version whose names had no attempt has made them."""
    gangs = Gangs()
    old = gangs_of(gangs.cluster.jobset).of("w", 0)
    gangs.cluster.object = merge(gangs.cluster.object, {"status": {"restarts": 1}})
    labels = {keys.POD_GROUP_NAME: old.name, keys.RESTART_ATTEMPT: "1"}
    gangs.set_pod("0-0", node="n", metadata={"labels": labels})
    assert labels_of(gangs.look()) == {"0-0": "4"}


def test_a_gang_turns_once():
    """A pod's event asks for a reconcile when it makes its gang complete, or no longer complete."""
    gangs = Gangs(notes={keys.COSCHEDULING_MIN_ANNOTATION: "2"})
    gangs.look()
    turns = [gangs.set_pod(name, node="n", minimum="2") for name in ALL]
    assert turns == [False, True, True, True]  # until a reconcile has seen it
    gangs.look(1)
    ends = {"status": {"phase": "Failed"}}
    assert [gangs.set_pod(name, node="n", **ends) for name in ALL] == [False, False, True, True]


def test_gang_requests_a_reconcile_only_when_it_is_the_last_to_be_complete():
    """With one gang for each Job: the first to be complete changes nothing that is reported."""
    gangs = Gangs(scope="Job")
    for name in ALL:
        gangs.set_pod(name, minimum="2")
    gangs.look()
    turns = [gangs.set_pod(name, node="n", minimum="2") for name in ALL]
    assert turns == [False, False, False, True]
    assert told(gangs.look(1)) == [BOUND]
    ends = {"status": {"phase": "Failed"}}
    turns = [gangs.set_pod(name, node="n", minimum="2", **ends) for name in ALL]
    assert turns == [True, True, True, True]  # until a reconcile has seen it


def test_only_suspects_are_looked_at():
    """All pods at first and when the gangs change; after that those whose events looked wrong."""
    gangs = Gangs()
    for name in ALL:
        gangs.set_pod(name, minimum="3")
    assert set(labels_of(gangs.look())) == set(ALL)
    assert labels_of(gangs.look()) == {}
    gangs.set_pod("0-1", minimum="5")
    gangs.set_pod("1-0", minimum="4")
    assert labels_of(gangs.look()) == {"0-1": "4"}
    gangs.change(**{keys.COSCHEDULING_MIN_ANNOTATION: "2"})
    assert labels_of(gangs.look()) == dict.fromkeys(ALL, "2")


def test_a_gang_with_less_work_left_needs_fewer():
    """Pods that have no node are told; those that run are left alone."""
    gangs = Gangs()
    for name in ALL:
        gangs.set_pod(name, node="" if name == "1-1" else "n")
    gangs.look()
    before = gangs.cluster.job("test-js-w-0")
    gangs.cluster.complete("test-js-w-0")
    assert job_matters(before, gangs.cluster.job("test-js-w-0"))
    assert labels_of(gangs.look()) == {"1-1": "2"}


@pytest.mark.parametrize(
    ("backend", "node", "lets_go"),
    [("labels", "", True), (COSCHEDULER, "", False), ("labels", "n", False)],
)
def test_pods_that_wait_for_a_coscheduler_that_is_not_in_charge(backend, node, lets_go):
    """Their gate goes; nobody else might take it off."""
    gangs = Gangs(backend=backend)
    gangs.set_pod(
        "0-0",
        node=node,
        metadata={"annotations": {keys.COSCHEDULING_BACKEND_ANNOTATION: COSCHEDULER}},
        spec={"schedulingGates": [GATE]},
        status={"conditions": [GATED]},
    )
    (mends,) = gangs.look().stages
    assert [(mend.labels, mend.gate) for mend in mends] == [(None, True)] * lets_go


@pytest.mark.parametrize("finished", [True, False])
def test_the_wait_ends(finished):
    """With the JobSet's end its objects go; a suspended one keeps them. Nothing is remembered."""
    there = [decoded(SchedulingPodGroup, {"metadata": {"name": "g"}})]
    above = [decoded(SchedulingWorkload, {"metadata": {"name": "w"}})]
    gangs = Gangs(pod_groups=there, workloads=above)
    gangs.look()
    assert told(gangs.look(1)) == [WAITING]
    if finished:
        gangs.cluster.object["status"]["conditions"].append({"type": "Failed", "status": "True"})
    else:
        gangs.cluster.object["spec"]["suspend"] = True
    plan = gangs.look(2)
    reason = keys.POD_GROUPS_FINISHED_REASON if finished else keys.POD_GROUPS_SUSPENDED_REASON
    assert told(plan) == [reason]
    assert [[change.old for change in stage] for stage in plan.stages] == (
        [there, above] if finished else []
    )
    assert (plan.memory, plan.interim) == (None, None)


def test_objects_come_one_kind_after_the_other():
    """The template before the groups that name it, and both before the pods are mended."""
    gangs = Gangs("Job", pod_groups=(), workloads=())
    gangs.set_pod("0-0", minimum="9")
    above, groups, mends = gangs.look().stages
    assert [change.new.kind for change in above] == [SchedulingWorkload]
    assert [change.new.kind for change in groups] == [SchedulingPodGroup] * 2
    assert len(mends) == 1


def test_warnings_are_reported_once():
    """That priorities differ, and that a scope means nothing."""
    gangs = Gangs()
    gangs.set_pod("0-0")
    gangs.set_pod("0-1", spec={"priority": 7})
    reasons = [[each.reason for each in gangs.look(at).notices] for at in range(2)]
    assert reasons == [[keys.POD_GROUP_PRIORITIES_REASON], []]
    gangs.change(**{keys.COSCHEDULING_ANNOTATION: "Rack"})
    plans = [gangs.look(at) for at in range(2)]
    assert [[each.reason for each in plan.notices] for plan in plans] == [
        [keys.COSCHEDULING_INVALID_REASON],
        [],
    ]
    assert all(not plan.stages and plan.status is None for plan in plans)
    gangs.change(**{keys.COSCHEDULING_ANNOTATION: None})
    assert gangs.look().memory is None


def test_that_none_schedules_groups_is_a_condition():
    """Told once, with a warning; it goes when somebody does."""
    gangs = Gangs()
    assert not gangs.look().status.patch
    told = [gangs.look(at, not_served="nobody serves them").status for at in (0.1, 0.2)]
    assert [[(e.type_, e.reason, e.message) for e in each.events] for each in told] == [
        [(WARNING, keys.POD_GROUPS_NOT_SERVED_REASON, "nobody serves them")],
        [],
    ]
    (condition,) = gangs.cluster.object["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("CoschedulingNotServed", "True")
    gangs.look(0.3)
    (condition,) = gangs.cluster.object["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "CoschedulingServed")


def test_another_backend_has_all_pods_looked_at():
    """A coscheduler that was removed takes no gates off any more."""
    gangs = Gangs(backend=COSCHEDULER)
    for name in ALL:
        notes = {keys.COSCHEDULING_BACKEND_ANNOTATION: COSCHEDULER}
        gangs.set_pod(name, metadata={"annotations": notes}, status={"conditions": [GATED]})
    assert gangs.look().mended == []
    assert gangs.look(1, backend="labels").mended == list(ALL)


def test_another_jobset_of_the_name_begins_again():
    """Nothing that is remembered of the old one counts."""
    gangs = Gangs()
    for name in ALL:
        gangs.set_pod(name)
    gangs.look()
    gangs.cluster.object["metadata"]["uid"] = "another"
    plan = gangs.look()
    assert plan.mended == list(ALL)
    assert GangKey(KEY, plan.memory.gangs.common_name).name in plan.memory.standings


def test_pods_of_a_job_that_restarts_alone_leave_the_gang():
    """Else its new pods would start beside the old ones, and be left alone when these have gone."""
    gangs = Gangs()
    for name in ("0-0", "0-1", "1-0", "1-1"):
        own = {"metadata": {"labels": {keys.JOB_RESTART_ATTEMPT: "0"}}}
        gangs.set_pod(name, node="n", **own)
    gangs.look()
    status = {"replicatedJobsStatus": [{"name": "w", "jobRestarts": [1, 0]}]}
    gangs.cluster.object = merge(gangs.cluster.object, {"status": status})
    mends = {mend.pod.metadata.name: mend.labels for mend in gangs.look(1.0).stages[-1]}
    gone = {keys.POD_GROUP_NAME: None, keys.POD_GROUP_MIN_AVAILABLE: None}
    assert mends == {"0-0": gone, "0-1": gone}
    left = merge(own, {"metadata": {"labels": {keys.POD_GROUP_NAME: ""}}})
    gangs.set_pod("0-0", node="n", **left)
    new = {"metadata": {"uid": "new", "labels": {keys.JOB_RESTART_ATTEMPT: "1"}}}
    gangs.set_pod("0-1", **new)
    assert gangs.suspects == set()
    (gang,) = gangs_of(gangs.cluster.jobset)
    assert gangs.counts(GangKey(KEY, gang.name)).members == 3
