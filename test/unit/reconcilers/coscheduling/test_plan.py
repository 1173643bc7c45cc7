"""Plan of a reconcile of a JobSet's gangs, in virtual time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod
from jobsetpy.api.meta import ObjectKey
from jobsetpy.api.scheduling import NATIVE_APIS, SchedulingPodGroup, SchedulingWorkload
from jobsetpy.reconcilers.coscheduling.backends import COSCHEDULER
from jobsetpy.reconcilers.coscheduling.gangs import gangs_of
from jobsetpy.reconcilers.coscheduling.plan import (
    FixPod,
    GangMemory,
    ObservedGangs,
    has_turned,
    job_matters,
    plan_coscheduling,
    pod_fix,
)
from jobsetpy.reconcilers.coscheduling.pod_groups import NativeObjects
from jobsetpy.reconcilers.coscheduling.tally import GangCounts, GangKey, changed_gangs, gang_state
from jobsetpy.reconcilers.rules.conditions import WARNING
from jobsetpy.reconcilers.rules.times import Now
from support.jobsets import (
    EPOCH_START,
    ModelCluster,
    decoded,
    jobset_json,
    merge,
    replicated_job,
)
from support.model_kit import delay, reported

KEY = ObjectKey("default", "test-js")
GATE, OTHER = {"name": keys.COSCHEDULING_GATE}, {"name": "example.com/quota"}
BETA = NATIVE_APIS[1]
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
        """Create or change a pod: ``0-1`` is the second pod of the first Job."""
        gang = gangs_of(self.cluster.jobset).of("w", name[0])
        labels = {
            keys.JOBSET_NAME: "test-js",
            keys.REPLICATED_JOB_NAME: "w",
            keys.JOB_INDEX: name[0],
            keys.POD_GROUP_NAME: gang.name if gang else "",
            keys.POD_GROUP_MIN_AVAILABLE: minimum,
        }
        body = {
            "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
            "spec": {"nodeName": node},
        }
        pod = decoded(ChildPod, merge(body, more))
        gangs = changed_gangs(self.pods.get(name), pod)
        self.pods[name] = pod
        if pod_fix(self.memory, pod) is not None:
            self.suspects.add(name)
        return any(has_turned(self.memory, self.counts, gang) for gang in gangs)

    def counts(self, gang):
        """Count the pods of a gang."""
        values = Counter(value for pod in self.pods.values() for value in {*gang_state(pod)})
        return GangCounts.of(gang, values.__getitem__)

    def open_pods(self):
        """Return the names of gang members without a node."""
        return [n for n, pod in self.pods.items() if gang_state(pod) and not pod.spec.node_name]

    def observe(self):
        """Return what a reconciler would observe."""
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

    def plan(self, at=0.0, **changed):
        """Return the plan at ``at`` seconds, executed except for the writes of pods."""
        now = Now(EPOCH_START + timedelta(seconds=at), 100.0 + at)
        plan = plan_coscheduling(attrs.evolve(self.observe(), **changed), self.memory, now)
        if plan.status is not None and plan.status.patch:
            self.cluster.object = merge(self.cluster.object, {"status": plan.status.patch})
        self.memory = plan.memory or GangMemory()
        return plan

    def change(self, **notes):
        """Set annotations of the JobSet."""
        self.cluster.object = merge(self.cluster.object, {"metadata": {"annotations": notes}})


def labels_of(plan):
    """Return the minimum that the plan sets for each pod, by the pod's name."""
    fixes = (action for stage in plan.stages for action in stage if isinstance(action, FixPod))
    return {f.pod.metadata.name: f.labels and f.labels[keys.POD_GROUP_MIN_AVAILABLE] for f in fixes}


ALL = ("0-0", "0-1", "1-0", "1-1")


def test_state_of_gangs_is_reported_after_growing_pauses():
    """One second after a gang is found incomplete, then rarely; immediately once it is complete."""
    gangs = Gangs()
    for name in ALL:
        gangs.set_pod(name)
    at, seen = 0.0, []
    while at < 200:
        # The counts differ each time: only the pauses prevent a write.
        gangs.set_pod("0-0", status={"conditions": [GATED] * (len(seen) % 2)})
        plan = gangs.plan(at)
        seen.append((at, *reported(plan)))
        at += delay(plan)
    times = [1, 6, 16, 36, 76, 136, 196]
    assert seen == [(0,), *((each, WAITING) for each in times)]
    for name in ALL:
        turned = gangs.set_pod(name, node="n")
    assert turned
    plan = gangs.plan(at)
    assert (reported(plan), delay(plan)) == ([BOUND], None)
    assert gangs.memory.pause == 0


def test_status_is_planned_again_when_its_write_failed():
    """Observations of pods are kept; the time of the next report is not."""
    gangs = Gangs()
    gangs.plan(0)
    gangs.set_pod("0-0", minimum="9")
    plan = gangs.plan(2)
    assert (reported(plan), labels_of(plan)) == ([WAITING], {"0-0": "4"})
    gangs.memory = plan.interim
    gangs.cluster.object["status"] = {}
    again = gangs.plan(2.1)
    assert (reported(again), labels_of(again)) == ([WAITING], {})


def test_pods_of_a_terminating_attempt_stay_in_its_gang():
    """They get no labels of the next attempt and do not count for it."""
    gangs = Gangs()
    attempt = {"metadata": {"labels": {keys.RESTART_ATTEMPT: "0"}}}
    for name in ALL:
        gangs.set_pod(name, node="n", **attempt)
    gangs.plan()
    assert [each.counts.bound for each in gangs.memory.standings.values()] == [4]
    gangs.cluster.object = merge(gangs.cluster.object, {"status": {"restarts": 1}})
    assert labels_of(gangs.plan(1)) == {}
    assert [each.counts.members for each in gangs.memory.standings.values()] == [0]


def test_pods_with_names_of_old_versions_get_the_name_of_their_attempt():
    """Gang names had no attempt when an older manager created the pods."""
    gangs = Gangs()
    old = gangs_of(gangs.cluster.jobset).of("w", 0)
    gangs.cluster.object = merge(gangs.cluster.object, {"status": {"restarts": 1}})
    labels = {keys.POD_GROUP_NAME: old.name, keys.RESTART_ATTEMPT: "1"}
    gangs.set_pod("0-0", node="n", metadata={"labels": labels})
    assert labels_of(gangs.plan()) == {"0-0": "4"}


def test_pod_event_requests_a_reconcile_when_its_gang_becomes_complete_or_incomplete():
    """Further events request it until a reconcile has seen the change."""
    gangs = Gangs(notes={keys.COSCHEDULING_MIN_ANNOTATION: "2"})
    gangs.plan()
    turns = [gangs.set_pod(name, node="n", minimum="2") for name in ALL]
    assert turns == [False, True, True, True]  # until a reconcile has seen it
    gangs.plan(1)
    ends = {"status": {"phase": "Failed"}}
    assert [gangs.set_pod(name, node="n", **ends) for name in ALL] == [False, False, True, True]


def test_gang_requests_a_reconcile_only_when_it_is_the_last_to_be_complete():
    """With one gang for each Job, the first complete gang changes nothing that is reported."""
    gangs = Gangs(scope="Job")
    for name in ALL:
        gangs.set_pod(name, minimum="2")
    gangs.plan()
    turns = [gangs.set_pod(name, node="n", minimum="2") for name in ALL]
    assert turns == [False, False, False, True]
    assert reported(gangs.plan(1)) == [BOUND]
    ends = {"status": {"phase": "Failed"}}
    turns = [gangs.set_pod(name, node="n", minimum="2", **ends) for name in ALL]
    assert turns == [True, True, True, True]  # until a reconcile has seen it


def test_only_pods_with_suspicious_events_are_checked():
    """All pods are checked first and when the gangs change."""
    gangs = Gangs()
    for name in ALL:
        gangs.set_pod(name, minimum="3")
    assert set(labels_of(gangs.plan())) == set(ALL)
    assert labels_of(gangs.plan()) == {}
    gangs.set_pod("0-1", minimum="5")
    gangs.set_pod("1-0", minimum="4")
    assert labels_of(gangs.plan()) == {"0-1": "4"}
    gangs.change(**{keys.COSCHEDULING_MIN_ANNOTATION: "2"})
    assert labels_of(gangs.plan()) == dict.fromkeys(ALL, "2")


def test_minimum_is_lower_when_less_work_is_left():
    """Pods without a node get the lower minimum; running pods are left alone."""
    gangs = Gangs()
    for name in ALL:
        gangs.set_pod(name, node="" if name == "1-1" else "n")
    gangs.plan()
    before = gangs.cluster.job("test-js-w-0")
    gangs.cluster.complete("test-js-w-0")
    assert job_matters(before, gangs.cluster.job("test-js-w-0"))
    assert labels_of(gangs.plan()) == {"1-1": "2"}


def test_pods_that_replace_lost_ones_wait_for_nodes_of_seats_only_when_workers_have_run():
    """Bound pods keep their labels, which costs no write; after a resume all pods wait again."""
    gangs = Gangs("Job", {keys.IN_PLACE_SPARES_ANNOTATION: "1"})
    policy = {"maxRestarts": 9, "restartStrategy": keys.IN_PLACE_RESTART}
    gangs.cluster.object = merge(gangs.cluster.object, {"spec": {"failurePolicy": policy}})
    for name in ALL:
        gangs.set_pod(name, node="n", minimum="2")
    started = gangs.plan()
    gangs.cluster.object = merge(gangs.cluster.object, {"status": {"syncedEpoch": 1}})
    ran = gangs.plan()
    gangs.set_pod("0-1", minimum="2")
    assert [labels_of(each) for each in (started, ran, gangs.plan())] == [{}, {}, {"0-1": "1"}]

    resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    gangs.cluster.object["status"]["conditions"].append(resumed)
    gangs.set_pod("0-1", minimum="1")
    assert labels_of(gangs.plan()) == {"0-1": "2"}


@pytest.mark.parametrize(
    ("backend", "gates", "ungated"),
    [(COSCHEDULER, [GATE], True), (COSCHEDULER, [OTHER], False), ("podgroup", [GATE], False)],
)
def test_gate_of_version_0_2_is_removed(backend, gates, ungated):
    """Coschedulers no longer remove it; gates of others stay."""
    gangs = Gangs()
    gangs.set_pod(
        "0-0",
        metadata={"annotations": {keys.COSCHEDULING_BACKEND_ANNOTATION: backend}},
        spec={"schedulingGates": gates},
        status={"conditions": [GATED]},
    )
    (fixes,) = gangs.plan().stages
    assert [(fix.labels, fix.gate) for fix in fixes] == [(None, True)] * ungated


@pytest.mark.parametrize("finished", [True, False])
def test_waiting_condition_is_cleared_when_the_jobset_ends_or_is_suspended(finished):
    """The objects are deleted: there are no pods."""
    stored = [decoded(SchedulingPodGroup, {"metadata": {"name": "g"}})]
    workloads = [decoded(SchedulingWorkload, {"metadata": {"name": "w"}})]
    gangs = Gangs(native=NativeObjects(BETA, stored, workloads))
    gangs.plan()
    assert reported(gangs.plan(1)) == [WAITING]
    if finished:
        gangs.cluster.object["status"]["conditions"].append({"type": "Failed", "status": "True"})
    else:
        gangs.cluster.object["spec"]["suspend"] = True
    plan = gangs.plan(2)
    reason = keys.POD_GROUPS_FINISHED_REASON if finished else keys.POD_GROUPS_SUSPENDED_REASON
    assert reported(plan) == [reason]
    assert [[change.old for change in stage] for stage in plan.stages] == [stored, workloads]
    assert (plan.memory, plan.interim) == (None, None)


def test_gangs_are_not_bound_while_the_jobset_is_suspended():
    """Its pods are deleted; the condition is set again when those of the next start are bound."""
    gangs = Gangs()
    for name in ALL:
        gangs.set_pod(name, node="n")
    assert reported(gangs.plan()) == [BOUND]
    gangs.cluster.object["spec"]["suspend"] = True
    assert reported(gangs.plan(1)) == [keys.POD_GROUPS_SUSPENDED_REASON]
    assert reported(gangs.plan(2)) == []
    gangs.cluster.object["spec"]["suspend"] = False
    assert reported(gangs.plan(3)) == [BOUND]


def test_objects_are_created_one_kind_after_the_other():
    """The workload comes before the groups that name it, and pods are fixed last."""
    gangs = Gangs("Job", native=NativeObjects(BETA))
    gangs.set_pod("0-0", minimum="9")
    workloads, groups, fixes = gangs.plan().stages
    assert [change.new.kind for change in workloads] == [SchedulingWorkload]
    assert [change.new.kind for change in groups] == [SchedulingPodGroup] * 2
    assert len(fixes) == 1


def test_pod_group_is_replaced_when_it_has_no_minimum():
    """Its policy may be another one, for which the API server stores no minimum."""
    gangs = Gangs(native=NativeObjects(BETA))
    _, (change,), _ = gangs.plan().stages
    other = {"metadata": {"name": change.new.name}, "spec": {"schedulingPolicy": {"basic": {}}}}
    stored = decoded(SchedulingPodGroup, other)
    _, (replaced,), _ = gangs.plan(native=NativeObjects(BETA, (stored,))).stages
    assert (replaced.old, replaced.new) == (stored, change.new)


def test_warnings_are_reported_once():
    """A scope that does not exist."""
    gangs = Gangs()
    gangs.set_pod("0-0")
    gangs.plan()
    gangs.change(**{keys.COSCHEDULING_ANNOTATION: "Rack"})
    plans = [gangs.plan(at) for at in range(2)]
    reasons = [[each.reason for each in plan.notices] for plan in plans]
    assert reasons == [[keys.COSCHEDULING_INVALID_REASON], []]
    assert all(not plan.stages and plan.status is None for plan in plans)
    gangs.change(**{keys.COSCHEDULING_ANNOTATION: None})
    assert gangs.plan().memory is None


def test_condition_says_that_gangs_are_not_served():
    """It is set once, with a warning, and cleared when gangs are served again."""
    gangs = Gangs()
    assert not gangs.plan().status.patch
    drafts = [gangs.plan(at, not_served="no scheduler").status for at in (0.1, 0.2)]
    assert [[(e.type_, e.reason, e.message) for e in draft.events] for draft in drafts] == [
        [(WARNING, keys.POD_GROUPS_NOT_SERVED_REASON, "no scheduler")],
        [],
    ]
    (condition,) = gangs.cluster.object["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("CoschedulingNotServed", "True")
    gangs.plan(0.3)
    (condition,) = gangs.cluster.object["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "CoschedulingServed")


def test_memory_is_dropped_when_another_jobset_has_the_name():
    """All pods are checked again for the new UID."""
    gangs = Gangs()
    for name in ALL:
        gangs.set_pod(name)
    gangs.plan()
    gangs.cluster.object["metadata"]["uid"] = "another"
    plan = gangs.plan()
    assert plan.fixed == list(ALL)
    assert GangKey(KEY, plan.memory.gangs.common_name).name in plan.memory.standings


def test_pods_of_a_job_that_restarts_alone_leave_the_gang():
    """Its new pods would otherwise start next to the old ones, before these are gone."""
    gangs = Gangs()
    for name in ALL:
        own = {"metadata": {"labels": {keys.JOB_RESTART_ATTEMPT: "0"}}}
        gangs.set_pod(name, node="n", **own)
    gangs.plan()
    status = {"replicatedJobsStatus": [{"name": "w", "jobRestarts": [1, 0]}]}
    gangs.cluster.object = merge(gangs.cluster.object, {"status": status})
    fixes = {fix.pod.metadata.name: fix.labels for fix in gangs.plan(1.0).stages[-1]}
    gone = {keys.POD_GROUP_NAME: None, keys.POD_GROUP_MIN_AVAILABLE: None}
    assert fixes == {"0-0": gone, "0-1": gone}
    left = merge(own, {"metadata": {"labels": {keys.POD_GROUP_NAME: ""}}})
    gangs.set_pod("0-0", node="n", **left)
    new = {"metadata": {"uid": "new", "labels": {keys.JOB_RESTART_ATTEMPT: "1"}}}
    gangs.set_pod("0-1", **new)
    assert gangs.suspects == set()
    (gang,) = gangs_of(gangs.cluster.jobset)
    assert gangs.counts(GangKey(KEY, gang.name)).members == 3
